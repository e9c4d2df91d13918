"""Renews the Leases of a cluster's virtual nodes, so that these nodes count as alive in the pool."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

import structlog

from spillway.clusters.api import ClusterUnreachable, Conflict, Refused
from vk_bridge.cluster.pools import Pool, Pools
from vk_bridge.core.selection.owner_cache import WatchedNode
from vk_bridge.settings import VkBridgeSettings

log = structlog.get_logger()


class Leases:
    """Renews the Leases of the virtual nodes of one owner, in all its pools."""

    def __init__(self, cluster: str, pools: Pools, settings: VkBridgeSettings, wall_ms: Callable[[], int]) -> None:
        self._cluster = cluster
        self._pools = pools
        self._settings = settings
        self._wall_ms = wall_ms

    async def run(self) -> None:
        slots = asyncio.Semaphore(self._settings.leases_at_once)
        while True:
            began = asyncio.get_running_loop().time()
            async with asyncio.TaskGroup() as group:
                for pool in self._pools.followed_pools():
                    for node in pool.virtual_nodes_of_owner(self._cluster):
                        group.create_task(self._renew_lease(pool, node, slots))
            passed = asyncio.get_running_loop().time() - began
            await asyncio.sleep(max(0.1, self._settings.lease_seconds - passed))

    async def _renew_lease(self, pool: Pool, node: WatchedNode, slots: asyncio.Semaphore) -> None:
        name, uid = node.metadata.name, node.metadata.uid
        async with slots:
            renewed_at = datetime.fromtimestamp(self._wall_ms() / 1000, UTC)
            try:
                await pool.gate.send_request(
                    lambda: pool.api.renew_node_lease(
                        name,
                        uid,
                        name,
                        duration_seconds=self._settings.lease_duration_seconds,
                        renewed_at=renewed_at,
                    )
                )
            except (ClusterUnreachable, Conflict, Refused) as error:
                log.warning(
                    "the Lease of a virtual node is not renewed", cluster=self._cluster, node=name, error=str(error)
                )
