"""Follows the pool clusters of one instance: their virtual nodes, and all changes on them."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import structlog
from msgspec import Struct

from spillway.clusters.api import Change, ClusterApi, FollowingFailed, ListedObjects, ObjectRemoved, ObjectUpserted
from spillway.events import ClusterJoined
from spillway.kubernetes.objects import Kind, Meta
from spillway.lending_marks import LENT_CLUSTER, LENT_NODE
from spillway.running.cluster_turns import way_to_joined_cluster
from spillway.running.isolation import Failures
from vk_bridge.cluster.backoff_gate import BackoffGate
from vk_bridge.cluster.pod_conversion import SERVICE
from vk_bridge.core.pod.budgets import BUDGETS, DisruptionBudgets
from vk_bridge.core.selection.owner_cache import WATCHED_NODES, WatchedNode
from vk_bridge.settings import VkBridgeSettings

Connect = Callable[[ClusterJoined], ClusterApi]
Touch = Callable[[str, str, Change, bool], None]
"""A function to call after a change, with the pool, the virtual node, the change, and whether it is about pods.

For a list the name of the virtual node is empty, because anything may have changed on any virtual node.
"""
log = structlog.get_logger()


class BoundSpec(Struct, frozen=True, gc=False, rename="camel"):
    node_name: str = ""


class BoundPod(Struct, frozen=True, gc=False, rename="camel"):
    """A pool's pod, only with the node it is bound to. The rest is read when the pod is worked on."""

    metadata: Meta
    spec: BoundSpec = BoundSpec()


BOUND_PODS: Final = Kind("", "v1", "pods", BoundPod)


@dataclass(slots=True)
class Pool:
    """One pool cluster. virtual_nodes: the virtual nodes of all owners, by name."""

    name: str
    joined: ClusterJoined
    api: ClusterApi
    gate: BackoffGate
    virtual_nodes: dict[str, WatchedNode] = field(default_factory=dict)
    budgets: DisruptionBudgets = field(default_factory=DisruptionBudgets)

    def virtual_nodes_of_owner(self, cluster: str) -> list[WatchedNode]:
        return [node for node in self.virtual_nodes.values() if node.metadata.labels.get(LENT_CLUSTER) == cluster]


class Pools:
    """The pools that loans of this instance's clusters have named so far. Each is followed once, for all owners."""

    def __init__(self, connect: Connect, settings: VkBridgeSettings, group: asyncio.TaskGroup, touch: Touch) -> None:
        self._connect = connect
        self._settings = settings
        self._group = group
        self._touch = touch
        self._pools: dict[str, tuple[Pool, asyncio.Task[None]]] = {}
        self._failures = Failures[str](SERVICE, "pool", settings.failed_first_seconds, settings.failed_longest_seconds)

    def follow_pool(self, joined: ClusterJoined) -> Pool:
        """Returns the pool and follows it from now on. If the way to reach it has changed, it is connected again."""
        known = self._pools.get(joined.cluster)
        if known is not None and way_to_joined_cluster(known[0].joined) == way_to_joined_cluster(joined):
            return known[0]
        self.stop_following_pool(joined.cluster)
        pool = Pool(joined.cluster, joined, self._connect(joined), BackoffGate(joined.cluster, self._settings))
        self._pools[joined.cluster] = pool, self._group.create_task(self._follow_pool(pool), name=f"pool {pool.name}")
        return pool

    def find_pool(self, name: str) -> Pool | None:
        """Returns the pool; None if no loan of this instance's clusters has named it."""
        known = self._pools.get(name)
        return known[0] if known is not None else None

    def followed_pools(self) -> list[Pool]:
        return [pool for pool, _ in self._pools.values()]

    def lent_node_of_virtual(self, pool: str, virtual_node: str, cluster: str) -> str:
        """Returns the node of this owner that a virtual node stands for, even if it is gone; empty: there is none."""
        known = self._pools.get(pool)
        node = known[0].virtual_nodes.get(virtual_node) if known is not None else None
        ours = node is not None and node.metadata.labels.get(LENT_CLUSTER) == cluster
        return node.metadata.annotations.get(LENT_NODE, "") if node is not None and ours else ""

    def stop_following_pool(self, name: str) -> None:
        """Stops following a pool that left the fleet or is reached in another way."""
        known = self._pools.pop(name, None)
        if known is not None:
            known[1].cancel()

    def close(self) -> None:
        for name in list(self._pools):
            self.stop_following_pool(name)

    async def _follow_pool(self, pool: Pool) -> None:
        try:
            while True:
                await self._follow_until_an_error(pool)
        finally:
            self._failures.reset_failures(pool.name)
            await pool.api.close()

    async def _follow_until_an_error(self, pool: Pool) -> None:
        """Follows one pool. An unexpected error ends no other pool: this one is listed again after a pause."""
        clock = asyncio.get_running_loop().time
        began_at = clock()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._follow_nodes(pool))
                group.create_task(self._follow_pods(pool))
                group.create_task(self._follow_budgets(pool))
        except Exception as error:
            if clock() - began_at > self._settings.failed_longest_seconds:
                self._failures.reset_failures(pool.name)
            await asyncio.sleep(self._failures.note_failure(pool.name, error, cluster=pool.name))

    async def _follow_nodes(self, pool: Pool) -> None:
        async for batch in pool.api.follow_objects(WATCHED_NODES, label_selector=LENT_CLUSTER):
            for change in batch:
                self._note_failure(pool, change)
                match change:
                    case ListedObjects(objects):
                        pool.virtual_nodes = {node.metadata.name: node for node in objects}
                        self._touch(pool.name, "", change, False)
                    case ObjectUpserted(node):
                        pool.virtual_nodes[node.metadata.name] = node
                        self._touch(pool.name, node.metadata.name, change, False)
                    case ObjectRemoved(node):
                        pool.virtual_nodes.pop(node.metadata.name, None)
                        self._touch(pool.name, node.metadata.name, change, False)

    async def _follow_pods(self, pool: Pool) -> None:
        async for batch in pool.api.follow_objects(BOUND_PODS):
            for change in batch:
                self._note_failure(pool, change)
                match change:
                    case ListedObjects():
                        self._touch(pool.name, "", change, True)
                    case ObjectUpserted(pod) | ObjectRemoved(pod) if pod.spec.node_name:
                        self._touch(pool.name, pod.spec.node_name, change, True)

    async def _follow_budgets(self, pool: Pool) -> None:
        """Follows the disruption budgets.

        A change of a budget causes no work on a node, because budgets change with each pod. The bridge's next record
        of the node contains it.
        """
        async for batch in pool.api.follow_objects(BUDGETS):
            for change in batch:
                self._note_failure(pool, change)
                match change:
                    case ListedObjects(objects):
                        pool.budgets.replace_budgets(objects)
                    case ObjectUpserted(budget):
                        pool.budgets.put_budget(budget)
                    case ObjectRemoved(budget):
                        pool.budgets.drop_budget(budget)

    @staticmethod
    def _note_failure(pool: Pool, change: Change) -> None:
        if isinstance(change, FollowingFailed):
            log.warning("a pool cannot be followed", cluster=pool.name, error=str(change.error))
