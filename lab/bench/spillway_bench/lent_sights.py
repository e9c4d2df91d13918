"""Observes lent nodes and their pods by watches of the pool's and the owners' APIs, with the time of each change."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec import Struct

from spillway.clusters.api import ClusterApi, ListedObjects, ObjectRemoved, ObjectUpserted
from spillway.kubernetes.objects import NODES, Kind, Meta, Node
from spillway.lending_marks import LENDING, LENT_CLUSTER, POOL_UID, virtual_node_name

RUNNING: Final = "Running"
ENDED: Final = ("Succeeded", "Failed")
NodeKey = tuple[str, str]
"""(owner, node)"""


class SeenSpec(Struct, frozen=True, gc=False, rename="camel"):
    node_name: str = ""


class SeenStatus(Struct, frozen=True, gc=False, rename="camel"):
    phase: str = ""


class SeenPod(Struct, frozen=True, gc=False, rename="camel"):
    metadata: Meta
    spec: SeenSpec = SeenSpec()
    status: SeenStatus = SeenStatus()


SEEN_PODS: Final = Kind("", "v1", "pods", SeenPod)


@dataclass(slots=True)
class PodTimes:
    """The times at which a pool pod was first seen in each state; 0: not yet.

    bound: it has a node. created: its real pod exists. started: its real pod runs. mirrored: the pool pod shows that.
    """

    bound: float = 0.0
    created: float = 0.0
    started: float = 0.0
    mirrored: float = 0.0


@dataclass(slots=True)
class Sights:
    """The observations of all clusters.

    times: of every pool pod so far, by uid. Most other fields describe the objects that exist now.
    real: (uid of the pool pod, node) by uid of the real pod.
    own: (node, phase) of each pod of the owners' own users, by uid.
    lost_ready: how often an existing virtual node was no longer Ready.
    """

    times: dict[str, PodTimes] = field(default_factory=dict)
    pool_pods: set[str] = field(default_factory=set)
    running: set[str] = field(default_factory=set)
    real: dict[str, tuple[str, NodeKey]] = field(default_factory=dict)
    pods_on: dict[NodeKey, int] = field(default_factory=dict)
    emptied_at: dict[NodeKey, float] = field(default_factory=dict)
    own: dict[str, tuple[NodeKey, str]] = field(default_factory=dict)
    tainted: set[NodeKey] = field(default_factory=set)
    untainted_at: dict[NodeKey, float] = field(default_factory=dict)
    ready: set[str] = field(default_factory=set)
    virtual: set[str] = field(default_factory=set)
    virtual_gone_at: dict[str, float] = field(default_factory=dict)
    lost_ready: int = 0
    ended: set[str] = field(default_factory=set)

    def times_of_pod(self, uid: str) -> PodTimes:
        found = self.times.get(uid)
        if found is None:
            found = self.times[uid] = PodTimes()
        return found

    def node_usable_since(self, node: NodeKey) -> float | None:
        """Returns when the taint, the virtual node and the pool's pods were all gone; None while one is there."""
        name = virtual_node_name(*node)
        if node in self.tainted or name in self.virtual or self.pods_on.get(node):
            return None
        return max(self.untainted_at[node], self.virtual_gone_at[name], self.emptied_at.get(node, 0.0))

    def settled_pod_count(self) -> int:
        """Returns the number of running pool pods that have a real pod.

        Returns -1 while a pool pod has two real pods, or a real pod has no pool pod.
        """
        of_pool = [uid for uid, _ in self.real.values()]
        whole = len(of_pool) == len(set(of_pool)) and set(of_pool) <= self.pool_pods
        return len(self.running & set(of_pool)) if whole else -1

    # ── What the watches say ────────────────────────────────────────────────────────────────────────────────────

    def note_pool_pod(self, pod: SeenPod, *, gone: bool) -> None:
        uid, now = pod.metadata.uid, time.monotonic()
        if pod.status.phase in ENDED:
            self.ended.add(uid)
        if gone or uid in self.ended:
            self.pool_pods.discard(uid)
            self.running.discard(uid)
            return
        self.pool_pods.add(uid)
        times = self.times_of_pod(uid)
        if pod.spec.node_name and not times.bound:
            times.bound = now
        if pod.status.phase == RUNNING:
            times.mirrored = times.mirrored or now
            self.running.add(uid)
        else:
            self.running.discard(uid)

    def note_owner_pod(self, cluster: str, pod: SeenPod, *, gone: bool) -> None:
        uid, now, key = pod.metadata.uid, time.monotonic(), (cluster, pod.spec.node_name)
        pool_uid = pod.metadata.labels.get(POOL_UID, "")
        if not pool_uid:
            self.own.pop(uid, None)
            if not gone:
                self.own[uid] = key, pod.status.phase
            return
        if gone or pod.status.phase in ENDED:
            if self.real.pop(uid, None) is not None:
                self.pods_on[key] -= 1
                self.emptied_at[key] = now
            return
        if uid not in self.real:
            self.real[uid] = pool_uid, key
            self.pods_on[key] = self.pods_on.get(key, 0) + 1
        times = self.times_of_pod(pool_uid)
        times.created = times.created or now
        if pod.status.phase == RUNNING and not times.started:
            times.started = now

    def note_virtual_node(self, node: Node, *, gone: bool) -> None:
        name = node.metadata.name
        if LENT_CLUSTER not in node.metadata.labels:
            return
        ready = any(one.type == "Ready" and one.status == "True" for one in node.status.conditions)
        if gone:
            self.virtual.discard(name)
            self.ready.discard(name)
            self.virtual_gone_at[name] = time.monotonic()
            return
        self.virtual.add(name)
        if ready and not node.spec.unschedulable:
            self.ready.add(name)
        elif name in self.ready and not ready:
            self.lost_ready += 1
            self.ready.discard(name)

    def note_owner_node(self, cluster: str, node: Node, *, gone: bool) -> None:
        key = cluster, node.metadata.name
        marked = not gone and any(taint.key == LENDING for taint in node.spec.taints)
        if key in self.tainted and not marked:
            self.untainted_at[key] = time.monotonic()
        (self.tainted.add if marked else self.tainted.discard)(key)


@asynccontextmanager
async def watch_clusters(pool: ClusterApi, owners: Mapping[str, ClusterApi]) -> AsyncIterator[Sights]:
    """Watches all clusters and yields the observations. It must start before any node is lent."""
    sights = Sights()
    follows = [
        _follow_objects(pool, SEEN_PODS, sights.note_pool_pod),
        _follow_objects(pool, NODES, sights.note_virtual_node),
        *(
            _follow_objects(api, SEEN_PODS, _note_for_cluster(sights.note_owner_pod, name))
            for name, api in owners.items()
        ),
        *(_follow_objects(api, NODES, _note_for_cluster(sights.note_owner_node, name)) for name, api in owners.items()),
    ]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(follow) for follow in follows]
        yield sights
        for task in tasks:
            task.cancel()


def _note_for_cluster(note: Callable[..., None], cluster: str) -> Callable[..., None]:
    def note_change(found: Any, *, gone: bool) -> None:
        note(cluster, found, gone=gone)

    return note_change


async def _follow_objects(api: ClusterApi, kind: Kind, note: Callable[..., None]) -> None:
    """Follows the objects of a kind by one list and one watch. Fails if the watch needs a second list.

    A second list would not show the objects that were removed meanwhile.
    """
    listed = False
    async for batch in api.follow_objects(kind):
        for change in batch:
            match change:
                case ListedObjects(objects):
                    if listed:
                        raise AssertionError(f"{api.name}: {kind.plural} were listed again: what went was not seen")
                    listed = True
                    _note_objects(objects, note)
                case ObjectUpserted(found):
                    note(found, gone=False)
                case ObjectRemoved(found):
                    note(found, gone=True)


def _note_objects(objects: Iterable[Any], note: Callable[..., None]) -> None:
    for found in objects:
        note(found, gone=False)
