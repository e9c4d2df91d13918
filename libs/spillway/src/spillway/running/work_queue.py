"""Chooses the next target to work on. Each target waits at most once, and never has two workers at the same time."""

import asyncio
from collections.abc import Hashable
from functools import partial
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class WorkQueue(Generic[T]):
    """A queue of targets. It is bounded by their number, since a target that waits already is not added again.

    The work itself is looked up when the target's turn comes, so the newest state counts.
    """

    def __init__(self) -> None:
        self._ready: dict[int, dict[T, None]] = {}
        """The targets that are ready, by rank."""
        self._rank: dict[T, int] = {}
        """The rank of each target that is ready."""
        self._later: dict[T, asyncio.TimerHandle] = {}
        self._running: dict[T, int] = {}
        self._again: dict[T, int] = {}
        self._woken = asyncio.Event()

    def add_target(self, target: T, delay_seconds: float = 0.0, *, rank: int = 0) -> None:
        """Adds a target now, or after a delay. Adding it now ends its delay, and a newer delay replaces an older one.

        A delay has no effect on a target that waits already. rank: targets of a higher rank are taken first. A new rank
        can move a waiting target up, never down.
        """
        if delay_seconds > 0:
            if not self._is_waiting(target):
                self._cancel_delay(target)
                loop = asyncio.get_running_loop()
                self._later[target] = loop.call_later(delay_seconds, partial(self.add_target, target, rank=rank))
            return
        self._cancel_delay(target)
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

    async def take_target(self) -> T:
        """Returns the target of the highest rank that waits longest. No other caller gets it until `finish_target`."""
        while not self._rank:
            self._woken.clear()
            await self._woken.wait()
        rank = max(rank for rank, ready in self._ready.items() if ready)
        target = next(iter(self._ready[rank]))
        del self._ready[rank][target], self._rank[target]
        self._running[target] = rank
        return target

    def finish_target(self, target: T) -> None:
        self._running.pop(target, None)
        if target in self._again:
            self.add_target(target, rank=self._again.pop(target))

    def has_waiting_target(self, rank: int) -> bool:
        """Returns whether a target of at least this rank is ready."""
        return any(ready for of, ready in self._ready.items() if of >= rank)

    def rank_of_running(self, target: T) -> int:
        """Returns the rank at which a target in work was taken."""
        return self._running[target]

    def close(self) -> None:
        for target in tuple(self._later):
            self._cancel_delay(target)

    def __len__(self) -> int:
        return len(self._rank) + len(self._later) + len(self._again)

    def _is_waiting(self, target: T) -> bool:
        return target in self._rank or target in self._again

    def _cancel_delay(self, target: T) -> None:
        handle = self._later.pop(target, None)
        if handle is not None:
            handle.cancel()
