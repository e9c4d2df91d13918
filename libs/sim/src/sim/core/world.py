"""The common state of all controllers: the store, the time of this step, timers, and a given source of randomness."""

import hashlib
from collections.abc import Callable
from datetime import UTC, datetime
from heapq import heappop, heappush
from typing import Any, Protocol

from sim.core.kinds import Key, Object
from sim.core.store import Store
from sim.settings import Settings

_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


class RandomSource(Protocol):
    def getrandbits(self, k: int, /) -> int: ...

    def randrange(self, start: int, /) -> int: ...


class World:
    def __init__(self, settings: Settings, random: RandomSource, now: float) -> None:
        self.settings = settings
        self.random = random
        self.store = Store(settings.first_version, settings.history_changes)
        self.now = now
        self.sidecar = settings.sidecar
        self._unix_offset_seconds = settings.start_unix_seconds - now
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._timers_made = 0
        self._stamp = (0, "")

    @property
    def unix_seconds(self) -> float:
        """Returns the time of the wall clock."""
        return self.now + self._unix_offset_seconds

    def timestamp(self, later_seconds: float = 0.0) -> str:
        """Returns the time of the wall clock in objects' form. later_seconds: added to the present time."""
        second = int(self.now + later_seconds + self._unix_offset_seconds)
        if self._stamp[0] != second:
            self._stamp = (second, datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
        return self._stamp[1]

    def new_uid(self) -> str:
        return _format_uid(f"{self.random.getrandbits(128):032x}")

    def derived_uid(self, *texts: str) -> str:
        """Returns a uid without use of the source of randomness, so that a seed still gives the same choices."""
        return _format_uid(hashlib.sha256("/".join(texts).encode()).hexdigest()[:32])

    def unused_name(self, plural: str, namespace: str, prefix: str) -> str:
        while True:
            bits = self.random.getrandbits(40)
            letters = []
            for _ in range(5):
                bits, index = divmod(bits, len(_SUFFIX_LETTERS))
                letters.append(_SUFFIX_LETTERS[index])
            name = prefix[:58] + "".join(letters)
            if self.store.get_object(plural, (namespace, name)) is None:
                return name

    def run_after(self, seconds: float, action: Callable[[], None]) -> None:
        self._timers_made += 1
        heappush(self._timers, (self.now + seconds, self._timers_made, action))

    def next_timer_at(self) -> float | None:
        return self._timers[0][0] if self._timers else None

    def run_timers(self, limit: int) -> int:
        ran = 0
        while self._timers and self._timers[0][0] <= self.now and ran < limit:
            heappop(self._timers)[2]()
            ran += 1
        return ran

    def object_with_uid(self, plural: str, key: Key, uid: str) -> Object | None:
        """Returns the object if it still has this uid, and is not another one of its name."""
        found = self.store.get_object(plural, key)
        return found if found and found["metadata"]["uid"] == uid else None

    def put_status(self, plural: str, found: Object, status: dict[str, Any]) -> None:
        """Writes a status only if it differs."""
        if found.get("status") != status:
            self.store.put_object(plural, {**found, "status": status})


def _format_uid(digits: str) -> str:
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def find_condition(found: Object, kind: str) -> dict[str, Any] | None:
    conditions = (found.get("status") or {}).get("conditions") or ()
    return next((one for one in conditions if one["type"] == kind), None)


def controller_of(found: Object) -> dict[str, Any] | None:
    references = found["metadata"].get("ownerReferences") or ()
    return next((one for one in references if one.get("controller")), None)
