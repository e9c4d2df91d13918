"""Finds an owner's real pods for a pool's API server that asks for the logs of its pods."""

from collections.abc import AsyncGenerator

from spillway.clusters.api import PODS, ClusterApi, LogOptions
from vk_bridge.cluster.backoff_gate import BackoffGate
from vk_bridge.cluster.pools import Pool, Pools
from vk_bridge.core.node.loan import Manifest
from vk_bridge.core.pod.conversion import real_pod_place
from vk_bridge.core.pod.parsing import is_real_pod_of
from vk_bridge.core.selection.owner_cache import OwnerCache
from vk_bridge.core.shares import LogPlaces


class LentPods:
    """Finds real pods in one owner and streams their logs. Its methods raise ClusterUnreachable and Refused.

    A real pod is read from the cluster each time.
    log_places: the logs of this owner that are being read, at most `logs_max`.
    """

    def __init__(
        self, api: ClusterApi, gate: BackoffGate, owner_cache: OwnerCache, pools: Pools, logs_max: int
    ) -> None:
        self.log_places = LogPlaces(logs_max)
        self._api = api
        self._gate = gate
        self._owner_cache = owner_cache
        self._pools = pools

    def find_pool(self, name: str) -> Pool | None:
        return self._pools.find_pool(name)

    def has_virtual_node(self, virtual_node: str) -> bool:
        """Returns whether this name is, or would be, the virtual node of a node of this owner."""
        return virtual_node in self._owner_cache.node_by_virtual

    async def find_real_pod(self, pool_id: str, pool_pod: Manifest) -> Manifest | None:
        """Returns the real pod, on the node that the pool pod's virtual node stands for; None: there is none."""
        node = self._owner_cache.node_by_virtual.get(pool_pod["spec"].get("nodeName", ""), "")
        namespace, name = real_pod_place(pool_pod, pool_id)
        found = await self._gate.send_request(lambda: self._api.get(PODS, namespace, name))
        return found if found is not None and is_real_pod_of(found, pool_pod, pool_id, node) else None

    def stream_pod_logs(self, real_pod: Manifest, options: LogOptions) -> AsyncGenerator[bytes, None]:
        metadata = real_pod["metadata"]
        return self._api.container_log_chunks(metadata["namespace"], metadata["name"], options)
