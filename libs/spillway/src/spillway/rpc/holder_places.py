"""Locks with a number of places for each holder, for example for each caller."""

import asyncio
from weakref import WeakValueDictionary


class HolderPlaces:
    """Gives each holder, a caller or a connection, a lock with `most` places."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._locks: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        """A lock is removed when no call holds it or waits for it."""

    def of(self, holder: str) -> asyncio.Semaphore:
        lock = self._locks.get(holder)
        if lock is None:
            lock = self._locks[holder] = asyncio.Semaphore(self._most)
        return lock
