"""Keeps the state that an owner's watches deliver: nodes as candidates, the pods on each, and their idle times."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec import Struct, to_builtins

from spillway.kubernetes import objects
from spillway.kubernetes.objects import AnnotatedMeta, Kind
from spillway.kubernetes.resource_versions import version_number
from spillway.lending_marks import LENT_CLUSTER, POOL_UID, virtual_node_name
from spillway.model import Taint
from vk_bridge.core.node.loan import OWNED, Manifest, OwnerNode
from vk_bridge.core.node.marks import read_owner_node
from vk_bridge.core.node.usage import NodeUse
from vk_bridge.core.node.virtual_node import offered_amounts
from vk_bridge.core.pod.conversion import CopyPlace, copy_places_in_annotations
from vk_bridge.core.pod.parsing import has_ended, is_daemon, is_occupying_node, pool_of_real_pod
from vk_bridge.core.selection.candidates import CandidateNode
from vk_bridge.core.selection.idleness import Idleness, SeenPod


class WatchedNode(Struct, frozen=True, gc=False, rename="camel"):
    metadata: AnnotatedMeta
    spec: objects.NodeSpec = objects.NodeSpec()
    status: objects.NodeStatus = objects.NodeStatus()


class WatchedPod(Struct, frozen=True, gc=False, rename="camel"):
    metadata: AnnotatedMeta
    spec: objects.ObservedPodSpec = objects.ObservedPodSpec()
    status: objects.PodStatus = objects.PodStatus()


WATCHED_NODES: Final = Kind("", "v1", "nodes", WatchedNode, namespaced=False)
WATCHED_PODS: Final = Kind("", "v1", "pods", WatchedPod)


@dataclass(frozen=True, slots=True)
class KnownNode:
    """A node as its last event showed it. allocatable: amounts in the units of Shape's requests."""

    register: OwnerNode
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    allocatable: Mapping[str, int]
    ready: bool
    unschedulable: bool


@dataclass(frozen=True, slots=True)
class KnownPod:
    """A pod as its last event showed it.

    own: whether it is the owner's own pod, no daemon, and not ended.
    pool: the pool of a real pod; empty: it is no real pod. copies: the copies that it uses.
    """

    node: str
    namespace: str
    own: bool
    pool: str
    pool_uid: str
    requests: Mapping[str, int]
    copies: frozenset[CopyPlace]


@dataclass(slots=True)
class _Pods:
    by_uid: dict[str, KnownPod] = field(default_factory=dict)
    uids_by_node: dict[str, set[str]] = field(default_factory=dict)


class OwnerCache:
    """The nodes and pods of one owner. Each change returns the names of the nodes that it is about.

    now: a parameter of most methods, in seconds of the bridge's own clock.
    """

    def __init__(self, cluster: str, fleet: str) -> None:
        self.idleness = Idleness()
        self.nodes: dict[str, KnownNode] = {}
        self.node_by_virtual: dict[str, str] = {}
        self._cluster = cluster
        self._fleet = fleet
        self._pods = _Pods()
        self._virtual: set[str] = set()
        """Nodes that others lend to this cluster."""

    @property
    def node_count(self) -> int:
        """Returns the number of all nodes in the cluster, including nodes that others lend to it."""
        return len(self.nodes) + len(self._virtual)

    @property
    def pod_count(self) -> int:
        return len(self._pods.by_uid)

    # ── Nodes ───────────────────────────────────────────────────────────────────────────────────────────────────

    def replace_nodes(self, objects: Iterable[WatchedNode], now: float) -> set[str]:
        listed = tuple(objects)
        found = {node.metadata.name: node for node in listed if not _is_virtual(node)}
        self._virtual = {node.metadata.name for node in listed} - found.keys()
        gone = self.nodes.keys() - found.keys()
        for name in gone:
            self.drop_node(name)
        for node in found.values():
            self.put_node(node, now)
        return gone | found.keys()

    def put_node(self, node: WatchedNode, now: float) -> set[str]:
        """Applies a node. A virtual node that another cluster lends here is not the owner's own, nor are its marks."""
        name = node.metadata.name
        if _is_virtual(node):
            known = {self.drop_node(name)} if name in self.nodes else set()
            self._virtual.add(name)
            return known
        self._virtual.discard(name)
        manifest: dict[str, Any] = to_builtins(node)
        ready = any(one.type == "Ready" and one.status == "True" for one in node.status.conditions)
        self.nodes[name] = KnownNode(
            register=read_owner_node(manifest, self._fleet),
            labels=node.metadata.labels,
            taints=tuple(Taint(one.key, one.value, one.effect) for one in node.spec.taints),
            allocatable=offered_amounts(manifest, {}),
            ready=ready,
            unschedulable=node.spec.unschedulable,
        )
        self.node_by_virtual[virtual_node_name(self._cluster, name)] = name
        self.idleness.add_node(name, node.metadata.uid, now)
        return {name}

    def drop_node(self, name: str) -> str:
        self.nodes.pop(name, None)
        self._virtual.discard(name)
        self.node_by_virtual.pop(virtual_node_name(self._cluster, name), None)
        self.idleness.remove_node(name)
        return name

    # ── Pods ────────────────────────────────────────────────────────────────────────────────────────────────────

    def replace_pods(self, objects: Iterable[WatchedPod], now: float) -> set[str]:
        """Replaces all pods. Changes since the last list are unknown, so every node's idle time begins again."""
        touched = set(self._pods.uids_by_node)
        self._pods = _Pods()
        self.idleness.begin_new_list(now)
        for pod in objects:
            touched |= self.put_pod(pod, now)
        return touched

    def put_pod(self, pod: WatchedPod, now: float) -> set[str]:
        uid, manifest = pod.metadata.uid, _partial_manifest(pod)
        before = self._pods.by_uid.get(uid)
        pool, requests = pool_of_real_pod(manifest), objects.pod_requests_or_none(pod.spec, pod.status)
        known = KnownPod(
            node=pod.spec.node_name,
            namespace=pod.metadata.namespace,
            own=is_occupying_node(manifest) or requests is None,
            pool=pool,
            pool_uid=pod.metadata.labels.get(POOL_UID, ""),
            requests=requests or {},
            copies=copy_places_in_annotations(pool, pod.metadata.annotations) if pool else frozenset(),
        )
        self._forget_pod(uid)
        self._pods.by_uid[uid] = known
        if known.node:
            self._pods.uids_by_node.setdefault(known.node, set()).add(uid)
        self.idleness.apply_pod(seen_pod(manifest), now)
        return {node for node in (before.node if before else "", known.node) if node}

    def drop_pod(self, pod: WatchedPod, now: float) -> set[str]:
        self._forget_pod(pod.metadata.uid)
        self.idleness.remove_pod(self._last_seen_pod(pod), now)
        return {pod.spec.node_name} if pod.spec.node_name else set()

    def pods_on_node(self, node: str) -> Iterator[KnownPod]:
        for uid in self._pods.uids_by_node.get(node, ()):
            yield self._pods.by_uid[uid]

    def real_pods(self) -> Iterator[KnownPod]:
        """Returns the real pods of any pool, on any node."""
        return (pod for pod in self._pods.by_uid.values() if pod.pool)

    def pod_namespaces(self) -> set[str]:
        """Returns the namespaces of all pods."""
        return {pod.namespace for pod in self._pods.by_uid.values()}

    # ── What a decision asks ────────────────────────────────────────────────────────────────────────────────────

    def is_marked(self, node: str) -> bool:
        """Returns whether the node has our marks or real pods of a pool."""
        known = self.nodes.get(node)
        marked = known is not None and (known.register.marked or known.register.state != OWNED)
        return marked or self.has_real_pods(node)

    def has_real_pods(self, node: str) -> bool:
        """Returns whether the node has real pods of any pool."""
        return any(pod.pool for pod in self.pods_on_node(node))

    def candidate_node(self, name: str, returned_seconds: float | None) -> CandidateNode:
        known = self.nodes[name]
        return CandidateNode(
            name=name,
            labels=known.labels,
            taints=known.taints,
            allocatable=known.allocatable,
            ready=known.ready,
            unschedulable=known.unschedulable,
            state=known.register.state,
            idle_seconds=self.idleness.idle_seconds(name),
            returned_seconds=returned_seconds,
            foreign=known.register.foreign,
        )

    def node_use(self, name: str, rule: str) -> NodeUse:
        """Returns the present use of the node by the owner's own pods, from their requests."""
        known, own = self.nodes[name], [pod for pod in self.pods_on_node(name) if pod.own]
        requested: dict[str, int] = {}
        for pod in own:
            for resource, amount in pod.requests.items():
                requested[resource] = requested.get(resource, 0) + amount
        return NodeUse(rule, known.allocatable, requested, len(own), lent=known.register.state != OWNED)

    def _forget_pod(self, uid: str) -> None:
        known = self._pods.by_uid.pop(uid, None)
        if known is not None and known.node:
            uids = self._pods.uids_by_node[known.node]
            uids.discard(uid)
            if not uids:
                del self._pods.uids_by_node[known.node]

    @staticmethod
    def _last_seen_pod(pod: WatchedPod) -> SeenPod:
        return seen_pod(_partial_manifest(pod))


def seen_pod(pod: Manifest) -> SeenPod:
    """Returns the pod as Idleness needs it. A resourceVersion that is no number counts as older than all others.

    No API server of today sends such a version.
    """
    metadata = pod["metadata"]
    version = version_number(metadata.get("resourceVersion", ""))
    return SeenPod(
        uid=metadata["uid"],
        version=-1 if version is None else version,
        node=(pod.get("spec") or {}).get("nodeName", ""),
        holds=not has_ended(pod),
        excused=is_daemon(pod) or bool(pool_of_real_pod(pod)),
    )


def _is_virtual(node: WatchedNode) -> bool:
    return LENT_CLUSTER in node.metadata.labels


def _partial_manifest(pod: WatchedPod) -> dict[str, Any]:
    """Returns a watched pod as a manifest with the fields that `pod.parsing` reads."""
    metadata = pod.metadata
    return {
        "metadata": {
            "uid": metadata.uid,
            "namespace": metadata.namespace,
            "resourceVersion": metadata.resource_version,
            "labels": metadata.labels,
            "ownerReferences": [{"kind": one.kind, "controller": one.controller} for one in metadata.owner_references],
        },
        "spec": {"nodeName": pod.spec.node_name},
        "status": {"phase": pod.status.phase},
    }
