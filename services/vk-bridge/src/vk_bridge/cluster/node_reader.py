"""Reads everything about one node from both clusters, in the order of docs/lending.md."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import msgspec

from spillway.clusters.api import NODES, PODS, ClusterApi, ClusterUnreachable
from spillway.kubernetes import objects
from spillway.kubernetes.objects import is_object_name, object_decoder
from spillway.lending_marks import POOL_POD, POOL_UID, RECALLED, virtual_node_name
from spillway.pauses import doubled_pause_seconds
from vk_bridge.cluster.answers import NodeAnswers, WriteAnswers
from vk_bridge.cluster.backoff_gate import BackoffGate
from vk_bridge.cluster.pools import Pool
from vk_bridge.cluster.version_cache import VersionCache
from vk_bridge.core.node.loan import OWNED, Manifest, Observation, OwnerNode, RealPod, VirtualNode
from vk_bridge.core.node.marks import read_owner_node
from vk_bridge.core.node.virtual_node import (
    VirtualNodeSpec,
    amounts_taken_by_others,
    is_current,
    keeps_endpoint,
    make_virtual_node,
    offered_amounts,
    operating_system_of_node,
    read_virtual_node,
    shown_address,
)
from vk_bridge.core.pod.admitted_sizes import (
    AdmittedSizes,
    allocatable_for_pool,
    is_refused_by_its_node,
    room_for_more_pods,
    sizes_asked,
    sizes_held,
)
from vk_bridge.core.pod.conversion import PoolSide
from vk_bridge.core.pod.delete_collections import listed_pod
from vk_bridge.core.pod.deletion import PodDeletion
from vk_bridge.core.pod.node_refusals import (
    PauseRules,
    PodKind,
    Refusals,
    RefusedLately,
    RefusedPod,
    is_unanswered_by_its_node,
    kind_of_pod,
    paused_pool_uids,
    too_large_pods,
)
from vk_bridge.core.pod.parsing import (
    is_occupying_node,
    pool_of_real_pod,
    read_deletion,
    read_pool_pod,
    read_real_pod,
)
from vk_bridge.core.pod.status import mirrored_status
from vk_bridge.core.pod.update import is_behind
from vk_bridge.settings import VkBridgeSettings

T = TypeVar("T")
VirtualNodeSpecOf = Callable[[Manifest], VirtualNodeSpec]
Nodes = tuple[Manifest | None, Manifest | None]
"""The real node and the virtual node."""
_POD = object_decoder(objects.PODS)


@dataclass(frozen=True, slots=True)
class PodPair:
    """The result of comparing a real pod with its pool pod. news, behind: as in RealPod.

    held: the sizes of the pod; None for a pod of another pool.
    refused: the pod if the node did not admit it; None if it did.
    unanswered: its kind if the node has neither admitted nor refused it yet.
    """

    news: bool
    behind: bool
    held: AdmittedSizes | None
    refused: RefusedPod | None = None
    unanswered: PodKind | None = None


@dataclass(frozen=True, slots=True)
class _RealPods:
    """The real pods of one node.

    held: the sizes of this pool's pods.
    refused: the pods that the node has not admitted lately.
    unanswered: the kinds of pods that the node has neither admitted nor refused yet.
    due_at: the clock time at which the next deadline ends; None: there is none.
    """

    pods: tuple[RealPod, ...]
    held: tuple[AdmittedSizes, ...]
    refused: RefusedLately
    unanswered: tuple[PodKind, ...]
    due_at: float | None

    def allocatable_for_pool(self, free: Mapping[str, int]) -> dict[str, int]:
        return allocatable_for_pool(free, self.held, self.refused.sizes)


@dataclass(frozen=True, slots=True)
class NodeReading:
    """One reading of a node. observation: for the core; the rest are the manifests behind it, pods by uid.

    amounts: the resources that the virtual node offers to the pool.
    due_at: the clock time at which the next grace is over, or a refusal is forgotten.
    fresh: True if all was read in one go. Otherwise the nodes are older, or answers to writes amended them.
    listed_at: the clock time at which the pods were listed; None if a node was written since.
    paused: uids of pool pods that are not created yet, because a node has just refused such a pod.
    too_large: by uid, why a pool pod without a real pod fits no node of this size.
    """

    name: str
    pool: Pool | None
    side: PoolSide
    observation: Observation
    found: NodeAnswers
    real_pods: Mapping[str, Manifest]
    amounts: Mapping[str, int]
    virtual_spec: VirtualNodeSpec | None
    due_at: float | None
    fresh: bool = True
    listed_at: float | None = None
    paused: frozenset[str] = frozenset()
    too_large: Mapping[str, str] = field(default_factory=dict)

    @property
    def node(self) -> Manifest | None:
        return self.found.node

    @property
    def virtual(self) -> Manifest | None:
        return self.found.virtual

    @property
    def pool_pods(self) -> Mapping[str, Manifest]:
        return self.found.pool_pods

    def virtual_manifest(self, *, is_open: bool) -> dict[str, Any]:
        assert self.node is not None
        assert self.virtual_spec is not None
        return make_virtual_node(self.node, self.amounts, self.virtual_spec, is_open=is_open)

    @property
    def real_by_pool_uid(self) -> dict[str, Manifest]:
        return {pod["metadata"]["labels"][POOL_UID]: pod for pod in self.real_pods.values()}

    @property
    def is_read_on_both_sides(self) -> bool:
        return self.observation.owner_read and self.observation.pool_read

    @property
    def is_recalled(self) -> bool:
        """Returns whether the node is recalled: its kubelet admits no pod of the pool, and the bridge creates none."""
        return self.observation.node is not None and self.observation.node.state == RECALLED


class _ClusterSide:
    """One of the two clusters, for one reading; after its first failure it is not asked again."""

    def __init__(self, api: ClusterApi | None, gate: BackoffGate | None) -> None:
        self._api = api
        self._gate = gate
        self.read = True

    async def get_object(self, kind: objects.Kind, namespace: str, name: str) -> Manifest | None:
        api = self._api
        return None if api is None else await self._call_unless_failed(lambda: api.get(kind, namespace, name), None)

    async def list_pods_on_node(self, node: str) -> tuple[list[dict[str, Any]], str]:
        """Returns the pods on a node, and the resourceVersion of that list."""
        api, selector = self._api, f"spec.nodeName={node}"
        if api is None:
            return [], ""
        return await self._call_unless_failed(lambda: api.list_with_version(PODS, field_selector=selector), ([], ""))

    async def _call_unless_failed(self, call: Callable[[], Awaitable[T]], instead: T) -> T:
        assert self._gate is not None
        if not self.read:
            return instead
        try:
            return await self._gate.send_request(call)
        except ClusterUnreachable:
            self.read = False
            return instead


class NodeReader:
    """Reads the nodes of one owner cluster, and remembers by node and uid the real pods that are being deleted."""

    def __init__(
        self, cluster: str, fleet: str, api: ClusterApi, gate: BackoffGate, settings: VkBridgeSettings
    ) -> None:
        self._cluster = cluster
        self._fleet = fleet
        self._api = api
        self._gate = gate
        self._settings = settings
        self._deleting: dict[str, dict[str, PodDeletion]] = {}
        self._compared = VersionCache[PodPair]()
        self._waiting_kinds = VersionCache[PodKind]()
        self._refusals = Refusals(settings.refused_size_seconds)
        self._pause_rules = PauseRules(settings.refusal_pause_seconds, settings.refused_tries_max)
        self._shown_at: dict[str, float] = {}
        """The clock time at which this bridge last wrote a node's virtual node, by node."""

    async def read_node(self, name: str, pool_name: str, pool: Pool | None, spec_of: VirtualNodeSpecOf) -> NodeReading:
        """Reads both nodes and all pods. Raises nothing.

        pool_name: the loan's pool, or the declared one. If it is empty, the pool is unknown and counts as not read.
        pool: None if the pool is not in the fleet. It then counts as read and empty.
        """
        read_at, virtual_name = asyncio.get_running_loop().time(), virtual_node_name(self._cluster, name)
        here, there = self._cluster_sides(pool_name, pool)
        shown = await there.get_object(NODES, "", virtual_name)
        node = await here.get_object(NODES, "", name)
        side = self._pool_side(name, pool_name)
        found = await self._read_pods_into_answers(name, side, here, there, (node, shown))
        virtual_spec = spec_of(node) if node is not None else None
        return replace(self._make_reading(name, pool, side, found, virtual_spec, read_at), listed_at=read_at)

    async def read_pods(
        self, name: str, pool_name: str, pool: Pool | None, nodes: Nodes, spec_of: VirtualNodeSpecOf
    ) -> NodeReading:
        """Reads only the pods and keeps the nodes of an earlier reading. The result is not fresh."""
        read_at, node = asyncio.get_running_loop().time(), nodes[0]
        here, there = self._cluster_sides(pool_name, pool)
        side = self._pool_side(name, pool_name)
        found = await self._read_pods_into_answers(name, side, here, there, nodes)
        virtual_spec = spec_of(node) if node is not None else None
        return replace(
            self._make_reading(name, pool, side, found, virtual_spec, read_at), fresh=False, listed_at=read_at
        )

    async def read_pods_again(
        self, reading: NodeReading, answers: WriteAnswers, spec_of: VirtualNodeSpecOf
    ) -> NodeReading:
        """Reads the pods, and takes the nodes from the answers to the writes since the last reading."""
        found, name = self.amended_reading(reading, answers, spec_of).found, reading.name
        return await self.read_pods(name, reading.side.pool_id, reading.pool, (found.node, found.virtual), spec_of)

    def _pool_side(self, name: str, pool_name: str) -> PoolSide:
        settings, virtual = self._settings, virtual_node_name(self._cluster, name)
        return PoolSide(pool_name, virtual, settings.kubelet_address, settings.carried_prefixes)

    def _cluster_sides(self, pool_name: str, pool: Pool | None) -> tuple[_ClusterSide, _ClusterSide]:
        there = _ClusterSide(pool.api if pool else None, pool.gate if pool else None)
        there.read = bool(pool_name)
        return _ClusterSide(self._api, self._gate), there

    async def _read_pods_into_answers(
        self, name: str, side: PoolSide, here: _ClusterSide, there: _ClusterSide, nodes: Nodes
    ) -> NodeAnswers:
        listed, version = await there.list_pods_on_node(side.virtual_node) if there.read else ([], "")
        pool_pods: dict[str, Manifest] = {one["metadata"]["uid"]: one for one in listed}
        own_pods: dict[str, Manifest] = {one["metadata"]["uid"]: one for one in (await here.list_pods_on_node(name))[0]}
        places = {uid: listed_pod(one) for uid, one in pool_pods.items()}
        pool_pods |= await self._read_unlisted_pool_pods(there, _real_pod_by_uid(own_pods), pool_pods)
        return NodeAnswers(*nodes, pool_pods, own_pods, here.read, there.read, pool_listed=places, pool_version=version)

    def amended_reading(self, reading: NodeReading, answers: WriteAnswers, spec_of: VirtualNodeSpecOf) -> NodeReading:
        """Returns the reading with the answers to later writes in place of what was read. It is not fresh."""
        before, node = reading.found, answers.node or reading.node
        virtual = answers.virtual or before.virtual
        found = replace(
            before,
            node=node,
            virtual=virtual if virtual is not None and virtual["metadata"]["uid"] not in answers.gone else None,
            pool_pods={
                uid: pod for uid, pod in {**before.pool_pods, **answers.pool_pods}.items() if uid not in answers.gone
            },
            own_pods={**before.own_pods, **answers.real_pods},
        )
        virtual_spec, now = spec_of(node) if node is not None else None, asyncio.get_running_loop().time()
        amended = self._make_reading(reading.name, reading.pool, reading.side, found, virtual_spec, now)
        listed_at = reading.listed_at if answers.node is None and answers.virtual is None else None
        return replace(amended, fresh=False, listed_at=listed_at)

    def _make_reading(
        self,
        name: str,
        pool: Pool | None,
        side: PoolSide,
        found: NodeAnswers,
        virtual_spec: VirtualNodeSpec | None,
        read_at: float,
    ) -> NodeReading:
        """Makes the reading from the answers: the amounts for the pool, the observation and the pods to create later.

        The amounts are those of the real node that other pods leave free.
        """
        node, shown, pods = found.node, found.virtual, found.own_pods.values()
        address = shown_address(shown) or self._settings.kubelet_address
        side = replace(side, address=address, operating_system=operating_system_of_node(node))
        real_pods = _real_pod_by_uid(found.own_pods)
        found_real = self._compare_real_pods(name, real_pods, found.pool_pods, side, read_at)
        others = (one for one in pods if not side.pool_id or pool_of_real_pod(one) != side.pool_id)
        taken = amounts_taken_by_others([_POD.decode(msgspec.json.encode(one)) for one in others], side.pool_id)
        free = offered_amounts(node, taken) if node is not None else {}
        amounts = found_real.allocatable_for_pool(free)
        virtual = self._read_virtual_node(name, found, amounts, virtual_spec, read_at)
        here, there = found.owner_read, found.pool_read
        observation = Observation(
            read_at,
            read_owner_node(node, self._fleet) if node is not None and here else None,
            virtual if there else None,
            tuple(map(read_pool_pod, found.pool_pods.values())) if there else (),
            found_real.pods if here else (),
            occupied=here and any(map(is_occupying_node, pods)),
            owner_read=here,
            pool_read=there,
            pool=side.pool_id,
        )
        # If the owner's pods cannot be counted, every amount is 0, which says nothing about the node's size.
        waiting = self._kinds_of_waiting_pods(name, found.pool_pods, observation)
        too_large = too_large_pods(waiting, free if taken is not None else {})
        may_begin = {uid: kind for uid, kind in waiting.items() if uid not in too_large}
        room = room_for_more_pods(free, found_real.held)
        lately, unanswered = found_real.refused, found_real.unanswered
        return NodeReading(
            name,
            pool,
            side,
            observation,
            found,
            real_pods,
            amounts,
            virtual_spec,
            due_at=found_real.due_at,
            paused=paused_pool_uids(may_begin, unanswered, lately, room, read_at, self._pause_rules),
            too_large=too_large,
        )

    def _read_virtual_node(
        self,
        name: str,
        found: NodeAnswers,
        amounts: Mapping[str, int],
        virtual_spec: VirtualNodeSpec | None,
        read_at: float,
    ) -> VirtualNode | None:
        node, shown, settings = found.node, found.virtual, self._settings
        if shown is None:
            return None
        current = (
            node is not None
            and virtual_spec is not None
            and is_current(
                shown, make_virtual_node(node, amounts, virtual_spec, is_open=True), settings.heartbeat_seconds
            )
        )
        shown_seconds = read_at - self._shown_at.get(name, -math.inf)
        reachable = virtual_spec is None or keeps_endpoint(
            shown, virtual_spec, shown_seconds, settings.endpoint_seconds
        )
        return read_virtual_node(shown, self._cluster, name, current=current, reachable=reachable)

    def _kinds_of_waiting_pods(
        self, name: str, pool_pods: Mapping[str, Manifest], observation: Observation
    ) -> dict[str, PodKind]:
        """Returns the kinds of the pool pods for which a real pod is still to be created, by uid."""
        begun = {pod.pool_uid for pod in observation.real_pods}
        waiting = (pod.uid for pod in observation.pool_pods if not (pod.created or pod.ended or pod.deleting))
        versions = {uid: pool_pods[uid]["metadata"]["resourceVersion"] for uid in waiting if uid not in begun}
        return self._waiting_kinds.value_by_uid(name, versions, lambda uid: kind_of_pod(pool_pods[uid]))

    def reading_as_never_lent(self, reading: NodeReading) -> NodeReading | None:
        """Returns the reading as if the node had never been lent, for a pool that the register does not name.

        Returns None if the register names this pool: then the node is on loan to this pool, and nothing is left over.
        """
        register, pool_id = reading.observation.node, reading.side.pool_id
        if register is not None and register.pool == pool_id:
            return None
        of_pool = {uid: pod for uid, pod in reading.found.own_pods.items() if pool_of_real_pod(pod) == pool_id}
        found = replace(reading.found, node=None, own_pods=of_pool)
        alone = self._make_reading(reading.name, reading.pool, reading.side, found, None, reading.observation.read_at)
        if register is None:
            return alone
        owned = OwnerNode(register.uid, register.resource_version, OWNED, None)
        return replace(alone, observation=replace(alone.observation, node=owned))

    def note_forced_deletion(self, name: str, uid: str) -> None:
        """Counts a forced deletion of a real pod. The pod may still exist, so the next try comes after a pause."""
        ending = self._deleting.get(name, {}).get(uid)
        if ending is not None:
            first, longest = self._settings.force_first_seconds, self._settings.force_longest_seconds
            again_at = asyncio.get_running_loop().time() + doubled_pause_seconds(first, longest, ending.forced)
            self._deleting[name][uid] = replace(ending, forced=ending.forced + 1, again_at=again_at)

    def note_virtual_node_shown(self, name: str) -> None:
        self._shown_at[name] = asyncio.get_running_loop().time()

    async def _read_unlisted_pool_pods(
        self, there: _ClusterSide, real_pods: Mapping[str, Manifest], pool_pods: Mapping[str, Manifest]
    ) -> dict[str, Manifest]:
        """Returns pool pods that the list lacks although their real pods exist: they may have come after the list."""
        found: dict[str, Manifest] = {}
        for pod in real_pods.values():
            uid = pod["metadata"]["labels"][POOL_UID]
            namespace, _, name = (pod["metadata"].get("annotations") or {}).get(POOL_POD, "").partition("/")
            # Anybody in the owner cluster can write this annotation.
            if uid not in pool_pods and there.read and is_object_name(namespace) and is_object_name(name):
                again = await there.get_object(PODS, namespace, name)
                if again is not None and again["metadata"]["uid"] == uid:
                    found[uid] = again
        return found

    def _compare_real_pods(
        self,
        name: str,
        real_pods: Mapping[str, Manifest],
        pool_pods: Mapping[str, Manifest],
        side: PoolSide,
        now: float,
    ) -> _RealPods:
        """Compares all real pods with their pool pods; a grace period begins when a deletion is first seen."""
        before, seen = self._deleting.get(name, {}), dict[str, PodDeletion]()
        shown = {uid: pool_pods.get(pod["metadata"]["labels"][POOL_UID]) for uid, pod in real_pods.items()}
        seen_from = f"{side.pool_id} {side.address}"
        versions = {uid: f"{_versions_of_pair(pod, shown[uid])} {seen_from}" for uid, pod in real_pods.items()}
        compared = self._compared.value_by_uid(
            name, versions, lambda uid: _compare_pod_pair(real_pods[uid], shown[uid], side)
        )
        found: list[RealPod] = []
        due: list[float] = []
        for uid, pod in real_pods.items():
            overdue, seconds_left = False, 0
            if pod["metadata"].get("deletionTimestamp"):
                seen[uid] = ending = read_deletion(pod, before.get(uid), now)
                seconds_left = ending.seconds_left(now)
                overdue_at = ending.forced_at(self._settings.overdue_seconds)
                overdue = now >= overdue_at
                if not overdue:
                    due.append(overdue_at)
            pair = compared[uid]
            found.append(
                read_real_pod(pod, overdue=overdue, news=pair.news, behind=pair.behind, seconds_left=seconds_left)
            )
        if seen:
            self._deleting[name] = seen
        else:
            self._deleting.pop(name, None)
        refused = {uid: pair.refused for uid, pair in compared.items() if pair.refused is not None}
        lately = self._refusals.update_refusals(name, refused, now)
        due += [lately.forgotten_at] if lately.forgotten_at is not None else []
        held = tuple(pair.held for pair in compared.values() if pair.held is not None)
        unanswered = tuple(pair.unanswered for pair in compared.values() if pair.unanswered is not None)
        return _RealPods(tuple(found), held, lately, unanswered, min(due, default=None))


def _compare_pod_pair(pod: Manifest, shown: Manifest | None, side: PoolSide) -> PodPair:
    held = sizes_held(pod, shown) if pool_of_real_pod(pod) == side.pool_id else None
    if shown is None:
        return PodPair(news=False, behind=False, held=held)
    return PodPair(
        news=mirrored_status(shown, pod, side.address) is not None,
        behind=is_behind(pod, shown, side.carried),
        held=held,
        refused=RefusedPod(kind_of_pod(shown), sizes_asked(pod, shown)) if is_refused_by_its_node(pod) else None,
        unanswered=kind_of_pod(shown) if is_unanswered_by_its_node(pod) else None,
    )


def _real_pod_by_uid(pods: Mapping[str, Manifest]) -> dict[str, Manifest]:
    """Returns the real pods, of any pool."""
    return {uid: pod for uid, pod in pods.items() if pool_of_real_pod(pod)}


def _versions_of_pair(pod: Manifest, shown: Manifest | None) -> str:
    """Returns the versions of a real pod and of its pool pod."""
    there = shown["metadata"]["resourceVersion"] if shown is not None else ""
    return f"{pod['metadata']['resourceVersion']} {there}"
