"""Which target is worked on next: each waits at most once, and is never worked on by two at the same time."""

import asyncio
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class WorkQueue(Generic[T]):
    """Bounded by the number of targets, since a target that waits already is not added again.

    What is to be done is looked up when its turn comes, so what is newer replaces what waits.
    """

    def __init__(self) -> None:
        self._ready: dict[T, None] = {}
        self._later: dict[T, asyncio.TimerHandle] = {}
        self._running: set[T] = set()
        self._again: set[T] = set()
        self._woken = asyncio.Event()

    def add(self, target: T, delay_seconds: float = 0.0) -> None:
        """Now, or after a delay; now goes before a delay, and of two delays the newer one counts."""
        if delay_seconds > 0:
            if target not in self._ready and target not in self._again:
                self._cancel(target)
                loop = asyncio.get_running_loop()
                self._later[target] = loop.call_later(delay_seconds, self.add, target)
            return
        self._cancel(target)
        if target in self._running:
            self._again.add(target)
        elif target not in self._ready:
            self._ready[target] = None
            self._woken.set()

    async def take(self) -> T:
        """The one that waits longest; it is given to nobody else until `done`."""
        while not self._ready:
            self._woken.clear()
            await self._woken.wait()
        target = next(iter(self._ready))
        del self._ready[target]
        self._running.add(target)
        return target

    def done(self, target: T) -> None:
        self._running.discard(target)
        if target in self._again:
            self._again.discard(target)
            self.add(target)

    def close(self) -> None:
        for target in tuple(self._later):
            self._cancel(target)

    def __len__(self) -> int:
        return len(self._ready) + len(self._later) + len(self._again)

    def _cancel(self, target: T) -> None:
        handle = self._later.pop(target, None)
        if handle is not None:
            handle.cancel()
