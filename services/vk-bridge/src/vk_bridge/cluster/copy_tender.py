"""Decides when an owner's copies are compared with their originals, until no copy is left after the last loan."""

import asyncio
import contextlib
from collections.abc import Callable

import structlog

from spillway.pauses import doubled_pause_seconds
from vk_bridge.cluster.copies import Copies, CopiesState
from vk_bridge.cluster.pools import Pool
from vk_bridge.core.log_state import LendingLogState
from vk_bridge.settings import VkBridgeSettings

log = structlog.get_logger()


class CopyTender:
    """Updates and removes the copies in one owner at intervals.

    swept: called once a list shows that the cluster holds no copy and no real pod any more.
    """

    def __init__(
        self,
        cluster: str,
        copies: Copies,
        state: LendingLogState,
        settings: VkBridgeSettings,
        swept: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._copies = copies
        self._state = state
        self._settings = settings
        self._swept = swept
        self._told = asyncio.Event()

    def note_lending_changed(self) -> None:
        """Starts the next comparison at once, not after the pause, if the cluster lends nothing any more.

        Call it when a loan has ended or a lending rule has changed.
        """
        if self._state.needs_sweep(self._cluster):
            self._told.set()

    async def run(self, pools: Callable[[str], Pool | None]) -> None:
        """Compares the copies with their originals, and removes unused ones, at intervals until it is cancelled."""
        failed = 0
        self.note_lending_changed()
        while True:
            await self._wait_before_comparison(failed)
            changes = self._state.lending_change_count(self._cluster)
            tended = await self._copies.tend_copies(pools)
            if tended is CopiesState.NONE_LEFT and self._state.needs_sweep(self._cluster):
                self._state.note_swept(self._cluster, changes)
                log.info("holds nothing more of pools' pods", cluster=self._cluster)
                self._swept()
            failed = failed + 1 if tended is CopiesState.FAILED and self._state.lends_nothing(self._cluster) else 0

    async def _wait_before_comparison(self, failed: int) -> None:
        settings = self._settings
        seconds = doubled_pause_seconds(settings.copies_seconds, settings.resync_seconds, failed)
        with contextlib.suppress(TimeoutError):
            # asyncio.wait_for may lose a cancellation that comes together with the event.
            async with asyncio.timeout(seconds):
                await self._told.wait()
        self._told.clear()
