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
        self._ready: dict[int, dict[T, None]] = {}
        """By rank."""
        self._rank: dict[T, int] = {}
        """Of those that are ready."""
        self._later: dict[T, asyncio.TimerHandle] = {}
        self._running: dict[T, int] = {}
        self._again: dict[T, int] = {}
        self._woken = asyncio.Event()

    def add(self, target: T, delay_seconds: float = 0.0, *, rank: int = 0) -> None:
        """Now, or after a delay; now goes before a delay, and of two delays the newer one counts.

        rank: a higher one goes before all lower ones. What waits is moved up by it, never down.
        """
        if delay_seconds > 0:
            if not self._waits(target):
                self._cancel(target)
                loop = asyncio.get_running_loop()
                self._later[target] = loop.call_later(delay_seconds, partial(self.add, target, rank=rank))
            return
        self._cancel(target)
        if target in self._running:
            self._again[target] = max(rank, self._again.get(target, rank))
            return
        before = self._rank.get(target)
        if before is not None and before >= rank:
            return
        if before is not None:
            del self._ready[before][target]
        self._ready.setdefault(rank, {})[target] = None
        self._rank[target] = rank
        self._woken.set()

    async def take(self) -> T:
        """Of the highest rank the one that waits longest; it is given to nobody else until `done`."""
        while not self._rank:
            self._woken.clear()
            await self._woken.wait()
        rank = max(rank for rank, ready in self._ready.items() if ready)
        target = next(iter(self._ready[rank]))
        del self._ready[rank][target], self._rank[target]
        self._running[target] = rank
        return target

    def done(self, target: T) -> None:
        self._running.pop(target, None)
        if target in self._again:
            self.add(target, rank=self._again.pop(target))

    def has_waiting(self, rank: int) -> bool:
        """Whether one of at least this rank is ready."""
        return any(ready for of, ready in self._ready.items() if of >= rank)

    def taken_at(self, target: T) -> int:
        """The rank at which one that is worked on was taken."""
        return self._running[target]

    def close(self) -> None:
        for target in tuple(self._later):
            self._cancel(target)

    def __len__(self) -> int:
        return len(self._rank) + len(self._later) + len(self._again)

    def _waits(self, target: T) -> bool:
        return target in self._rank or target in self._again

    def _cancel(self, target: T) -> None:
        handle = self._later.pop(target, None)
        if handle is not None:
            handle.cancel()
