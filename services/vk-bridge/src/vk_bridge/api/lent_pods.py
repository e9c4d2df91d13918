"""One owner's real pods of pools, for those who ask a pool what its pods have written."""

from collections.abc import AsyncGenerator

from spillway.clusters.api import PODS, ClusterApi, LogOptions
from vk_bridge.cluster.backoff_gate import BackoffGate
from vk_bridge.cluster.pools import Pool, Pools
from vk_bridge.core.node.loan import Manifest
from vk_bridge.core.pod.conversion import real_place
from vk_bridge.core.pod.parsing import is_real_pod_of
from vk_bridge.core.selection.owner_cache import OwnerCache


class LentPods:
    """Lets ClusterUnreachable and Refused through. Which real pod is whose is read anew each time, never remembered."""

    def __init__(self, api: ClusterApi, gate: BackoffGate, mirror: OwnerCache, pools: Pools) -> None:
        self._api = api
        self._gate = gate
        self._mirror = mirror
        self._pools = pools

    def pool(self, name: str) -> Pool | None:
        return self._pools.find(name)

    def has(self, virtual_node: str) -> bool:
        """Whether it stands, or would stand, for a node of this owner."""
        return virtual_node in self._mirror.node_by_virtual

    async def real_pod(self, pool_id: str, pool_pod: Manifest) -> Manifest | None:
        """On the node for which the pool pod's virtual node stands; None: there is none."""
        node = self._mirror.node_by_virtual.get(pool_pod["spec"].get("nodeName", ""), "")
        namespace, name = real_place(pool_pod, pool_id)
        found = await self._gate.ask(lambda: self._api.get(PODS, namespace, name))
        return found if found is not None and is_real_pod_of(found, pool_pod, pool_id, node) else None

    def logs(self, real_pod: Manifest, options: LogOptions) -> AsyncGenerator[bytes, None]:
        metadata = real_pod["metadata"]
        return self._api.logs(metadata["namespace"], metadata["name"], options)
