"""Simulates a member cluster: its controllers, its scheduler, and its collector, whose records come late."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from snapshot.core.cluster_state import ClusterState, StateChanges
from snapshot.core.rules import SnapshotRules
from snapshot.core.waiting_groups import WaitingGroup
from spillway.kubernetes.objects import DEPLOYMENTS, NODES, PODS, REPLICASETS, Deployment, Manifest
from spillway.model import Generation

from .objects import decode_objects, make_deployment, make_pod, make_replica_set
from .schedulers import Pods, Scheduler
from .trace import Cluster
from .workloads import PLAIN, Key, Workload

FLEET = "replay-00000001"
TICK_SECONDS = 0.1
PODS_A_TICK = 40
"""Pods that are bound in one tick: 400 a second, about as a kube-scheduler."""
RETRY_FIRST_SECONDS, RETRY_LONGEST_SECONDS = 1.0, 10.0
HEARTBEAT_SECONDS = 2.0
DELAY_SECONDS_MIN = 0.05


@dataclass(frozen=True, slots=True)
class Shown:
    """The state of one object in a cluster. gone: it does not exist any more."""

    key: Key
    version: Generation
    replicas: int
    ready: int
    gone: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """The state of a cluster at one instant, as its collector and its propagator report it."""

    changes: StateChanges
    groups: dict[str, WaitingGroup] | None
    shown: tuple[Shown, ...]
    age_seconds: float


class Listener(Protocol):
    """Receives the reports of the clusters."""

    async def add_cluster(self, cluster: Cluster, whole: StateChanges) -> None: ...

    async def receive_report(self, cluster: str, report: Report) -> None: ...


@dataclass(slots=True)
class Replica:
    name: str
    node: str = ""
    failed: bool = False
    retry_at: float = 0.0
    wait: float = RETRY_FIRST_SECONDS


@dataclass(slots=True)
class Deployed:
    """The object of one workload and its pods. none_fits: number of pods that had left when one found no node."""

    workload: Workload
    version: Generation
    replicas: int
    pods: list[Replica] = field(default_factory=list)
    none_fits: int = -1

    @property
    def bound_pod_count(self) -> int:
        return sum(1 for one in self.pods if one.node)


class Member:
    """A member cluster. delay: the most seconds from a change in the cluster to the reader of its record.

    handed: pods given to the scheduler, by kind of workload. failed: pods that once found no node, by key.
    most: the most replicas that each workload had here.
    """

    def __init__(
        self, cluster: Cluster, scheduler: Scheduler, listener: Listener, random: Random, delay: float
    ) -> None:
        self.cluster, self.scheduler = cluster, scheduler
        self.objects: dict[Key, Deployed] = {}
        self.handed: Counter[str] = Counter()
        self.failed: Counter[Key] = Counter()
        self.most: dict[Key, int] = {}
        self._listener, self._random, self._delay_seconds_max = listener, random, delay
        self._collector = ClusterState(FLEET, SnapshotRules())
        self._versions: dict[Key, Generation] = {}
        self._changed: set[Key] = set()
        self._gone: dict[Key, Generation] = {}
        self._late: asyncio.Queue[tuple[float, float, Report]] = asyncio.Queue()
        self._said_at, self._made, self._leavings = 0.0, 0, 0
        self._left: list[tuple[float, Manifest]] = []
        self._collector.replace_objects(NODES, decode_objects(NODES, cluster.nodes), 0.0)
        self._collector.replace_objects(PODS, decode_objects(PODS, cluster.pods), 0.0)

    async def report_first_state(self) -> None:
        self._collector.take_changes()
        await self._listener.add_cluster(self.cluster, self._collector.whole_state())

    @property
    def pending_pod_count(self) -> int:
        return sum(1 for known in self.objects.values() for one in known.pods if not one.node)

    # ── Changes from outside ────────────────────────────────────────────────────────────────────────────────────

    def apply_part(self, workload: Workload, version: Generation, replicas: int, removing: bool) -> None:
        """Changes the object to this version of its part. Ignores a version older than the object's."""
        key = workload.key
        if key in self._versions and version < self._versions[key]:
            return
        self._versions[key] = version
        known = self.objects.get(key)
        if removing:
            if known is not None:
                self._scale_deployment(known, 0)
                del self.objects[key]
                self._collector.remove_object(DEPLOYMENTS, self._deployment_object(known))
            self._gone[key] = version
            return
        if known is None:
            known = self.objects[key] = Deployed(workload, version, 0)
            self._collector.upsert_object(REPLICASETS, make_replica_set(_uid_of_key(key)))
        known.version = version
        self._scale_deployment(known, replicas)

    def _scale_deployment(self, known: Deployed, replicas: int) -> None:
        """Scales as a ReplicaSet does: pods without a node are removed first."""
        known.replicas = replicas
        key = known.workload.key
        self.most[key] = max(self.most.get(key, 0), replicas)
        while len(known.pods) < replicas:
            self._made += 1
            known.pods.append(Replica(f"{key[1]}-{self._made}"))
            self.handed[known.workload.kind] += 1
        known.pods.sort(key=lambda one: not one.node)
        for one in known.pods[replicas:]:
            if one.node:
                self.scheduler.remove_pods([self._pods_of_replica(known, one)])
                self._left.append((_loop_time(), _pod_manifest(known.workload, one)))
                self._leavings += 1
            self._collector.pods.remove_pod(f"{one.name}-0")
        del known.pods[replicas:]
        self._show_deployment(known)

    def end_foreign_pods(self, pods: Sequence[Manifest]) -> None:
        """Ends pods of other users."""
        self.scheduler.remove_foreign_pods(pods)
        for manifest in pods:
            self._left.append((_loop_time(), manifest))
            self._leavings += 1
            self._collector.pods.remove_pod(manifest["metadata"]["uid"])

    # ── Controllers and scheduler ───────────────────────────────────────────────────────────────────────────────

    async def run(self) -> None:
        await asyncio.gather(self._run_controllers(), self._send_late_reports())

    async def _run_controllers(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self._schedule_pods()
            self._queue_report()

    def _schedule_pods(self) -> None:
        now = _loop_time()
        due = [
            (known, one)
            for known in self.objects.values()
            for one in known.pods
            if not one.node and one.retry_at <= now
        ]
        self._random.shuffle(due)
        due = due[:PODS_A_TICK]
        if not due:
            return
        asked = [(known, one) for known, one in due if not self._is_placement_hopeless(known)]
        placed = self.scheduler.place_pods([self._pods_of_replica(known, one) for known, one in asked])
        node_of = {one.name: nodes[0] for (_, one), nodes in zip(asked, placed, strict=True) if nodes}
        for known, one in due:
            if one.name in node_of:
                one.node = node_of[one.name]
            else:
                self._note_failure(known, one, now)
            made = make_pod(f"{one.name}-0", _uid_of_key(known.workload.key), known.workload.pod_template, one.node)
            self._collector.upsert_object(PODS, made)
            self._show_deployment(known)

    def _is_placement_hopeless(self, known: Deployed) -> bool:
        """Returns whether no pod has left since an equal one found no node. Then pods that ignore others find none
        either."""
        return known.workload.kind == PLAIN and known.none_fits == self._leavings

    def _note_failure(self, known: Deployed, one: Replica, now: float) -> None:
        known.none_fits = self._leavings
        if not one.failed:
            one.failed = True
            self.failed[known.workload.key] += 1
        one.retry_at, one.wait = now + one.wait, min(2 * one.wait, RETRY_LONGEST_SECONDS)

    def _show_deployment(self, known: Deployed) -> None:
        self._collector.upsert_object(DEPLOYMENTS, self._deployment_object(known))
        self._changed.add(known.workload.key)

    def _deployment_object(self, known: Deployed) -> Deployment:
        uid = _uid_of_key(known.workload.key)
        return make_deployment(FLEET, uid, known.version, known.replicas, len(known.pods), known.bound_pod_count)

    def _pods_of_replica(self, known: Deployed, one: Replica) -> Pods:
        return Pods(known.workload.key[0], known.workload.pod_template, 1, one.name)

    # ── Reports ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _queue_report(self) -> None:
        """Sends a record of this instant if anything changed or none was sent for a while."""
        now = _loop_time()
        changes, groups = self._collector.take_changes(), self._collector.take_waiting_groups()
        shown = [Shown(key, version, 0, 0, gone=True) for key, version in self._gone.items()]
        for key in sorted(self._changed):
            known = self.objects.get(key)
            if known is not None:
                shown.append(Shown(key, known.version, len(known.pods), known.bound_pod_count))
        self._gone, self._changed = {}, set()
        if not (changes or groups or shown) and now < self._said_at + HEARTBEAT_SECONDS:
            return
        self._said_at = now
        due = now + self._random.uniform(DELAY_SECONDS_MIN, self._delay_seconds_max)
        self._late.put_nowait((now, due, Report(changes, groups, tuple(shown), 0.0)))

    async def _send_late_reports(self) -> None:
        while True:
            seen_at, due, report = await self._late.get()
            await asyncio.sleep(max(0.0, due - _loop_time()))
            late = Report(report.changes, report.groups, report.shown, _loop_time() - seen_at)
            self._left = [(at, manifest) for at, manifest in self._left if at > seen_at]
            await self._listener.receive_report(self.cluster.name, late)

    def unreported_departures(self, since: float = 0.0) -> list[Manifest]:
        """Returns pods that left at `since` or later and that no record has reported yet."""
        return [manifest for at, manifest in self._left if at >= since]


def _pod_manifest(workload: Workload, one: Replica) -> Manifest:
    template = workload.pod_template
    name = {"name": f"{one.name}-0", "namespace": workload.key[0]}
    return {"metadata": template["metadata"] | name, "spec": template["spec"] | {"nodeName": one.node}, "status": {}}


def _uid_of_key(key: Key) -> str:
    return "/".join(key)


def _loop_time() -> float:
    return asyncio.get_running_loop().time()
