"""Guards the requests to a cluster: while it does not answer, it is asked only after longer and longer pauses."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from spillway import metrics
from spillway.clusters.api import ClusterUnreachable
from spillway.pauses import Setbacks
from vk_bridge.settings import VkBridgeSettings

T = TypeVar("T")
log = structlog.get_logger()


class BackoffGate:
    """The gate of one cluster. A request within a pause fails at once, so that work on other clusters does not wait."""

    def __init__(self, cluster: str, settings: VkBridgeSettings) -> None:
        self._cluster = cluster
        self._setbacks = Setbacks(settings.unreachable_first_seconds, settings.unreachable_longest_seconds)

    async def send_request(self, call: Callable[[], Awaitable[T]]) -> T:
        """Returns the call's answer. Raises ClusterUnreachable; within a pause it does so without a request.

        Other errors pass through.
        """
        if self._setbacks.pause_seconds(asyncio.get_running_loop().time()) > 0:
            raise ClusterUnreachable(self._cluster, "timeout", "did not answer a moment ago")
        try:
            answer = await call()
        except ClusterUnreachable as error:
            self._count_failure(error)
            raise
        if self._setbacks.count:
            log.info("a cluster answers again", cluster=self._cluster)
        self._setbacks.note_success()
        return answer

    def _count_failure(self, error: ClusterUnreachable) -> None:
        """Counts a failure. A forbidden call begins no pause, because other calls may still succeed."""
        metrics.CLUSTER_UNREACHABLE.labels(error.reason).inc()
        first = error.reason != "forbidden" and self._setbacks.note_failure(asyncio.get_running_loop().time())
        if first and self._setbacks.count == 1:
            log.warning("a cluster does not answer", cluster=self._cluster, error=str(error))
