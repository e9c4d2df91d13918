"""Paces the attempts at one cluster.

While the cluster does not answer, one attempt is made at a time, after pauses that double.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from propagator.settings import PropagatorSettings
from spillway.clusters.api import ClusterUnreachable
from spillway.pauses import Setbacks
from spillway.waiting import is_set_within


class Attempts:
    """The attempts at one cluster. slots: the places for attempts at all clusters together."""

    def __init__(self, settings: PropagatorSettings, slots: asyncio.Semaphore) -> None:
        self._slots = slots
        self._setbacks = Setbacks(settings.unreachable_first_seconds, settings.unreachable_longest_seconds)
        self._answered = asyncio.Event()
        self._alone = asyncio.Lock()

    @property
    def is_failing(self) -> bool:
        """Returns whether the last attempts at the cluster failed."""
        return self._setbacks.count > 0

    @asynccontextmanager
    async def paced_attempt(self) -> AsyncIterator[None]:
        """Runs one attempt. If the cluster does not answer, the next pause begins, and ClusterUnreachable is raised.

        A place among all clusters' attempts is taken only when the attempt is due, so a silent cluster does not block
        others.
        """
        if not self.is_failing:
            async with self._attempt_in_slot():
                yield
            return
        async with self._alone:
            seconds = self._setbacks.pause_seconds(asyncio.get_running_loop().time())
            if seconds > 0:
                await is_set_within(self._answered, seconds)
            async with self._attempt_in_slot():
                yield

    def note_cluster_answer(self) -> None:
        """Ends the pause because the cluster has answered: waiting attempts may begin."""
        self._setbacks.note_success()
        self._answered.set()

    @asynccontextmanager
    async def _attempt_in_slot(self) -> AsyncIterator[None]:
        async with self._slots:
            try:
                yield
            except ClusterUnreachable:
                self._answered.clear()
                self._setbacks.note_failure(asyncio.get_running_loop().time())
                raise
