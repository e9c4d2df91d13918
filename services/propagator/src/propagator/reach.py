"""Whether a cluster answers: while it does not, one attempt at a time is made, after longer and longer pauses."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from propagator.settings import Settings
from spillway.cluster_api import ClusterUnreachable


class Reach:
    def __init__(self, settings: Settings, slots: asyncio.Semaphore) -> None:
        self._settings = settings
        self._slots = slots
        self._failures = 0
        self._again_at = 0.0
        self._answered = asyncio.Event()
        self._alone = asyncio.Lock()

    @property
    def failing(self) -> bool:
        return self._failures > 0

    @asynccontextmanager
    async def attempt(self) -> AsyncIterator[None]:
        """One go at the cluster. It notes when the cluster did not answer, and lets ClusterUnreachable through.

        A place among all clusters' attempts is taken only when it is due, so that silent clusters cost the others none.
        """
        if not self.failing:
            async with self._noted():
                yield
            return
        async with self._alone:
            await self._pause()
            async with self._noted():
                yield

    def answered(self) -> None:
        """Something was heard from the cluster: whoever waits may try."""
        self._failures = 0
        self._answered.set()

    @asynccontextmanager
    async def _noted(self) -> AsyncIterator[None]:
        async with self._slots:
            try:
                yield
            except ClusterUnreachable:
                self._failed()
                raise

    async def _pause(self) -> None:
        seconds = self._again_at - asyncio.get_running_loop().time()
        if self.failing and seconds > 0:
            try:
                async with asyncio.timeout(seconds):
                    await self._answered.wait()
            except TimeoutError:
                pass

    def _failed(self) -> None:
        """Attempts that were under way together count as one failure."""
        now = asyncio.get_running_loop().time()
        self._answered.clear()
        if now < self._again_at:
            return
        self._failures += 1
        longest = self._settings.unreachable_longest_seconds
        self._again_at = now + min(
            longest, self._settings.unreachable_first_seconds * 2.0 ** min(self._failures - 1, 32)
        )
