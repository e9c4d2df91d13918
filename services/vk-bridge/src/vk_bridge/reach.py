"""Whether a cluster answers: while it does not, it is asked again only after longer and longer pauses."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from spillway import metrics
from spillway.cluster_api import ClusterUnreachable
from vk_bridge.settings import Settings

T = TypeVar("T")
log = structlog.get_logger()


class Reach:
    """One cluster's. Nodes are worked on whose other side answers, so nobody waits here for the one that does not."""

    def __init__(self, cluster: str, settings: Settings) -> None:
        self._cluster = cluster
        self._settings = settings
        self._failures = 0
        self._again_at = 0.0

    async def ask(self, call: Callable[[], Awaitable[T]]) -> T:
        """The call's answer. Raises ClusterUnreachable, without asking within a pause; all else goes through."""
        now = asyncio.get_running_loop().time()
        if now < self._again_at:
            raise ClusterUnreachable(self._cluster, "timeout", "did not answer a moment ago")
        try:
            answer = await call()
        except ClusterUnreachable as error:
            self._failed(error)
            raise
        if self._failures:
            log.info("cluster answers again", cluster=self._cluster)
        self._failures, self._again_at = 0, 0.0
        return answer

    def _failed(self, error: ClusterUnreachable) -> None:
        """Calls that were under way together count as one. What is forbidden says nothing of other calls."""
        metrics.CLUSTER_UNREACHABLE.labels(error.reason).inc()
        now = asyncio.get_running_loop().time()
        if error.reason == "forbidden" or now < self._again_at:
            return
        if not self._failures:
            log.warning("cluster does not answer", cluster=self._cluster, error=str(error))
        self._failures += 1
        longest = self._settings.unreachable_longest_seconds
        pause = self._settings.unreachable_first_seconds * 2.0 ** min(self._failures - 1, 32)
        self._again_at = now + min(longest, pause)
