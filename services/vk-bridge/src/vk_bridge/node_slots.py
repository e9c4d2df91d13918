"""How many nodes one instance works on at the same time, whichever clusters they are of."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class NodeSlots:
    """Nodes that an owner waits for go first: while any of them waits or is worked on, few others are.

    Without that the pods which their controllers make anew, and which run on other nodes, take the time that telling
    the rest to go would need. Some others always go on: a recall may last as long as a cluster does not answer.
    """

    def __init__(self, most: int, beside_recalled: int) -> None:
        self._most = most
        self._beside_recalled = min(beside_recalled, most)
        self._recalled = 0
        """Waiting or worked on."""
        self._running = self._others = 0
        self._freed = asyncio.Event()

    @asynccontextmanager
    async def one(self, *, recalled: bool) -> AsyncIterator[None]:
        """Waits for a slot, and has it until the end. recalled: its owner waits for it."""
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
