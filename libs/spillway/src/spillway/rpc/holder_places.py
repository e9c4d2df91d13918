"""Limits for each holder, for example each caller: semaphores, and counts of what the holder has now."""

import asyncio
from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

Holder = TypeVar("Holder", bound=Hashable)


class HolderPlaces:
    """Gives each holder, a caller or a connection, a semaphore with `most` places."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._locks: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        """The semaphores by holder. One is removed when no call holds it or waits for it."""

    def semaphore_of(self, holder: str) -> asyncio.Semaphore:
        """Returns the holder's semaphore. A new one, with all places free, is made if no call has it."""
        lock = self._locks.get(holder)
        if lock is None:
            lock = self._locks[holder] = asyncio.Semaphore(self._most)
        return lock


class HolderCounts(Generic[Holder]):
    """Counts what each holder has at this moment, such as calls or bytes. A holder that has nothing takes no memory."""

    def __init__(self) -> None:
        self._counts = Counter[Holder]()

    def count_of(self, holder: Holder) -> int:
        """Returns the count of a holder; 0 if it has nothing."""
        return self._counts[holder]

    @contextmanager
    def counted(self, holder: Holder, amount: int = 1) -> Iterator[None]:
        """Adds the amount to the holder's count until the block ends. The caller checks the bound before."""
        self._counts[holder] += amount
        try:
            yield
        finally:
            self._counts[holder] -= amount
            if not self._counts[holder]:
                del self._counts[holder]
