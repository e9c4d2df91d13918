"""Limits how many nodes one instance works on at the same time, over all clusters."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class NodeSlots:
    """Gives slots first to nodes that an owner waits for. While such a node waits or has a slot, few others get one.

    Otherwise, pods that controllers create anew on other nodes would take the time needed for the other recalls. Some
    other nodes always go on, because a recall may last as long as a cluster does not answer.
    """

    def __init__(self, most: int, beside_recalled: int) -> None:
        self._most = most
        self._beside_recalled = min(beside_recalled, most)
        self._recalled = 0
        """The number of recalled nodes that wait for a slot or have one."""
        self._running = self._others = 0
        self._freed = asyncio.Event()

    @asynccontextmanager
    async def hold_slot(self, *, recalled: bool) -> AsyncIterator[None]:
        """Waits for a slot, and holds it until the end of the context.

        recalled: whether the owner waits for the node.
        """
        self._recalled += recalled
        try:
            while not self._has_room(recalled):
                self._freed.clear()
                await self._freed.wait()
            self._running += 1
            self._others += not recalled
            try:
                yield
            finally:
                self._running -= 1
                self._others -= not recalled
        finally:
            self._recalled -= recalled
            self._freed.set()

    def _has_room(self, recalled: bool) -> bool:
        if recalled or not self._recalled:
            return self._running < self._most
        return self._running < self._most and self._others < self._beside_recalled
