"""Reads all that is about one node, from both stores and in the order of docs/lending.md."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from spillway import kubernetes
from spillway.cluster_api import NODES, PODS, ClusterApi, ClusterUnreachable
from spillway.kubernetes import object_decoder
from spillway.lending_marks import POOL_POD, POOL_UID, virtual_node_name
from vk_bridge.core.loan import Manifest, RealPod, Sight
from vk_bridge.core.pod_conversion import PoolSide
from vk_bridge.core.pod_status import mirrored_status
from vk_bridge.core.reading import GRACE_SECONDS, occupies, pool_of, read_pool_pod, read_real_pod, read_virtual_node
from vk_bridge.core.register import read_owner_node
from vk_bridge.core.virtual_node import Standing, is_current, offered, taken_by_others, virtual_node
from vk_bridge.pools import Pool
from vk_bridge.reach import Reach
from vk_bridge.settings import Settings

T = TypeVar("T")
StandingOf = Callable[[Manifest], Standing]
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", re.ASCII)
_POD = object_decoder(kubernetes.PODS)


@dataclass(frozen=True, slots=True)
class Reading:
    """sight: for the core; the rest are the manifests behind it, pods by uid. due_at: when the next grace is over.

    amounts: what the node offers. wanted: the virtual node as it should be; both None without the real node.
    """

    name: str
    pool: Pool | None
    side: PoolSide
    sight: Sight
    node: Manifest | None
    virtual: Manifest | None
    pool_pods: Mapping[str, Manifest]
    real_pods: Mapping[str, Manifest]
    amounts: Mapping[str, int]
    standing: Standing | None
    due_at: float | None

    def virtual_manifest(self, *, is_open: bool) -> dict[str, Any]:
        assert self.node is not None
        assert self.standing is not None
        return virtual_node(self.node, self.amounts, self.standing, is_open=is_open)

    @property
    def real_by_pool_uid(self) -> dict[str, Manifest]:
        return {pod["metadata"]["labels"][POOL_UID]: pod for pod in self.real_pods.values()}

    @property
    def both_read(self) -> bool:
        return self.sight.owner_read and self.sight.pool_read


class _Side:
    """One of the two clusters, for one reading: after its first failure it is not asked again."""

    def __init__(self, api: ClusterApi | None, reach: Reach | None) -> None:
        self._api = api
        self._reach = reach
        self.read = True

    async def get(self, kind: kubernetes.Kind, namespace: str, name: str) -> Manifest | None:
        api = self._api
        return None if api is None else await self._ask(lambda: api.get(kind, namespace, name), None)

    async def pods_on(self, node: str) -> list[dict[str, Any]]:
        api = self._api
        return (
            [] if api is None else await self._ask(lambda: api.list(PODS, field_selector=f"spec.nodeName={node}"), [])
        )

    async def _ask(self, call: Callable[[], Awaitable[T]], instead: T) -> T:
        assert self._reach is not None
        if not self.read:
            return instead
        try:
            return await self._reach.ask(call)
        except ClusterUnreachable:
            self.read = False
            return instead


class NodeReader:
    """Of one owner cluster. deleting: since when this bridge has seen real pods being deleted, by uid."""

    def __init__(self, cluster: str, fleet: str, api: ClusterApi, reach: Reach, settings: Settings) -> None:
        self._cluster = cluster
        self._fleet = fleet
        self._api = api
        self._reach = reach
        self._settings = settings
        self._deleting: dict[str, dict[str, float]] = {}

    async def read(self, name: str, pool_name: str, pool: Pool | None, standing_of: StandingOf) -> Reading:
        """pool_name: the loan's, or the declared one; pool None: it is not in the fleet, and has nothing any more.

        An empty pool_name: nobody knows which pool, so that it cannot be read. Raises nothing.
        """
        read_at = asyncio.get_running_loop().time()
        virtual_name = virtual_node_name(self._cluster, name)
        there = _Side(pool.api if pool else None, pool.reach if pool else None)
        here = _Side(self._api, self._reach)
        there.read = bool(pool_name)
        shown = await there.get(NODES, "", virtual_name)
        node = await here.get(NODES, "", name)
        pool_pods: dict[str, Manifest] = (
            {one["metadata"]["uid"]: one for one in await there.pods_on(virtual_name)} if there.read else {}
        )
        all_pods = await here.pods_on(name)
        real_pods = {one["metadata"]["uid"]: one for one in all_pods if pool_of(one)}
        pool_pods |= await self._came_in_between(there, real_pods, pool_pods)
        side = PoolSide(pool_name, virtual_name, self._settings.kubelet_address)
        standing = standing_of(node) if node is not None else None
        taken = taken_by_others([_POD.decode(msgspec.json.encode(one)) for one in all_pods], pool_name)
        amounts = offered(node, taken) if node is not None else {}
        current = (
            node is not None
            and shown is not None
            and standing is not None
            and is_current(shown, virtual_node(node, amounts, standing, is_open=True))
        )
        found_real, due_at = self._real(name, real_pods, pool_pods, read_at)
        sight = Sight(
            read_at,
            read_owner_node(node, self._fleet) if node is not None and here.read else None,
            read_virtual_node(shown, self._cluster, name, current=current)
            if shown is not None and there.read
            else None,
            tuple(map(read_pool_pod, pool_pods.values())) if there.read else (),
            found_real if here.read else (),
            occupied=here.read and any(map(occupies, all_pods)),
            owner_read=here.read,
            pool_read=there.read,
            pool=pool_name,
        )
        return Reading(name, pool, side, sight, node, shown, pool_pods, real_pods, amounts, standing, due_at)

    def forget(self, name: str) -> None:
        self._deleting.pop(name, None)

    async def _came_in_between(
        self, there: _Side, real_pods: Mapping[str, Manifest], pool_pods: Mapping[str, Manifest]
    ) -> dict[str, Manifest]:
        """The pool pods of real ones that came without one: they may have come after the pool's pods were listed."""
        found: dict[str, Manifest] = {}
        for pod in real_pods.values():
            uid = pod["metadata"]["labels"][POOL_UID]
            namespace, _, name = (pod["metadata"].get("annotations") or {}).get(POOL_POD, "").partition("/")
            # The annotation is what anybody in the owner may have written.
            if uid not in pool_pods and there.read and _is_name(namespace) and _is_name(name):
                again = await there.get(PODS, namespace, name)
                if again is not None and again["metadata"]["uid"] == uid:
                    found[uid] = again
        return found

    def _real(
        self, name: str, real_pods: Mapping[str, Manifest], pool_pods: Mapping[str, Manifest], now: float
    ) -> tuple[tuple[RealPod, ...], float | None]:
        """The real pods, and when the grace of the next of them is over. Graces begin at the first sight."""
        before, seen, due_at = self._deleting.get(name, {}), dict[str, float](), None
        found: list[RealPod] = []
        for uid, pod in real_pods.items():
            overdue = False
            if pod["metadata"].get("deletionTimestamp"):
                seen[uid] = before.get(uid, now)
                grace = pod["metadata"].get("deletionGracePeriodSeconds", GRACE_SECONDS)
                over_at = seen[uid] + grace + self._settings.overdue_seconds
                overdue = now >= over_at
                due_at = over_at if due_at is None else min(due_at, over_at)
            shown = pool_pods.get(pod["metadata"]["labels"][POOL_UID])
            news = shown is not None and mirrored_status(shown, pod, self._settings.kubelet_address) is not None
            found.append(read_real_pod(pod, overdue=overdue, news=news))
        if seen:
            self._deleting[name] = seen
        else:
            self._deleting.pop(name, None)
        return tuple(found), due_at


def _is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None
