"""Which target is worked on next: each waits at most once, and is never worked on by two at the same time."""

import asyncio
from collections.abc import Hashable
from functools import partial
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class WorkQueue(Generic[T]):
    """Bounded by the number of targets, since a target that waits already is not added again.

    What is to be done is looked up when its turn comes, so what is newer replaces what waits.
    """

    def __init__(self) -> None:
        self._ready: dict[T, None] = {}
        self._first: dict[T, None] = {}
        self._later: dict[T, asyncio.TimerHandle] = {}
        self._running: set[T] = set()
        self._again: dict[T, bool] = {}
        self._woken = asyncio.Event()

    def add(self, target: T, delay_seconds: float = 0.0, *, first: bool = False) -> None:
        """Now, or after a delay; now goes before a delay, and of two delays the newer one counts.

        first: before all those that are not.
        """
        if delay_seconds > 0:
            if not self._waits(target):
                self._cancel(target)
                loop = asyncio.get_running_loop()
                self._later[target] = loop.call_later(delay_seconds, partial(self.add, target, first=first))
            return
        self._cancel(target)
        if target in self._running:
            self._again[target] = first or self._again.get(target, False)
        elif first:
            self._ready.pop(target, None)
            self._first[target] = None
            self._woken.set()
        elif target not in self._first:
            self._ready[target] = None
            self._woken.set()

    async def take(self) -> T:
        """The one that waits longest; it is given to nobody else until `done`."""
        while not (self._first or self._ready):
            self._woken.clear()
            await self._woken.wait()
        queue = self._first or self._ready
        target = next(iter(queue))
        del queue[target]
        self._running.add(target)
        return target

    def done(self, target: T) -> None:
        self._running.discard(target)
        if target in self._again:
            self.add(target, first=self._again.pop(target))

    def close(self) -> None:
        for target in tuple(self._later):
            self._cancel(target)

    def __len__(self) -> int:
        return len(self._first) + len(self._ready) + len(self._later) + len(self._again)

    def _waits(self, target: T) -> bool:
        return target in self._ready or target in self._first or target in self._again

    def _cancel(self, target: T) -> None:
        handle = self._later.pop(target, None)
        if handle is not None:
            handle.cancel()
