"""Lets callers take turns by the time that their requests take, also from one group of requests to the next.

Each request has a start on a clock of served seconds: the end of its caller's request before it, or the time of the
clock if that is later. The request with the earliest start is served first, and its start is then the clock's time. So
a caller without a backlog starts now, and each request of a long backlog starts after the one before it. No request
waits for ever, since the clock reaches its start.

Source: start-time fair queueing, Goyal, Vin and Cheng, 1996.
"""

from dataclasses import dataclass
from typing import Final

LEAST_SECONDS: Final = 0.001
"""The least time that a request counts for. So callers whose requests take no time take turns by request."""


@dataclass(frozen=True, slots=True)
class _Served:
    """end: where the caller's last request ended, on the clock of served seconds. seconds: of one of its requests."""

    end: float
    seconds: float


class CallerTurns:
    """The requests that were served lately, by caller."""

    def __init__(self) -> None:
        self._now = 0.0
        self._served: dict[str, _Served] = {}

    def next_start(self, caller: str) -> float:
        """Returns the start of the caller's next request."""
        served = self._served.get(caller)
        return self._now if served is None else max(self._now, served.end)

    def expected_seconds(self, caller: str) -> float:
        """Returns how long a request of this caller is expected to take: as long as its last one."""
        served = self._served.get(caller)
        return LEAST_SECONDS if served is None else served.seconds

    def note_served_requests(self, caller: str, requests: int, seconds: float) -> None:
        """Counts requests of this caller that were just served, and took so many seconds together."""
        start, each = self.next_start(caller), max(seconds / requests, LEAST_SECONDS)
        self._now = start
        self._served[caller] = _Served(start + requests * each, each)

    def forget_past_ends(self) -> None:
        """Forgets callers whose last request ended before now. They start now, like a new caller."""
        self._served = {caller: one for caller, one in self._served.items() if one.end > self._now}
