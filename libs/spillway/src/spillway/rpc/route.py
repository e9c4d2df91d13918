"""Chooses the endpoint to try next: a named leader, then each endpoint once, then a pause; until the time is over."""

import asyncio
import re
import time
from collections.abc import Sequence
from random import Random

from spillway.api_errors import RequestError
from spillway.pauses import doubled_pause_seconds

BACKOFF_SECONDS, BACKOFF_SECONDS_MAX = 0.05, 2.0
RETRIABLE = frozenset({"UNAVAILABLE", "CANCELLED"})
"""gRPC codes after which another try may succeed. A server sends CANCELLED only when it stops; a call that we cancel
ourselves raises asyncio's error."""
_LATE = "Deadline Exceeded"
"""gRPC's own text for a call that ran out of time. Our servers use other words."""
_NO_CONNECTION = re.compile(
    r"failed to connect to all addresses; last error: "
    r"(?:[A-Z_]+: )?(?:ipv[46]:\S+: )?(?:Failed to connect to remote host: )?"
)
"""The text that gRPC writes before the reason of a failed connection. The caller of this code adds the address."""


class Route:
    """The tries of one call. seconds: how long to go on after its first failure."""

    def __init__(self, endpoints: Sequence[str], first: str, seconds: float, random: Random) -> None:
        self._endpoints = endpoints
        self._waiting = _endpoints_with_first(first, endpoints)
        self._tried: set[str] = set()
        self._seconds = seconds
        self._random = random
        self._until: float | None = None
        self.rounds = 0
        """The number of times that every endpoint was tried."""
        self._error = RequestError("UNAVAILABLE", "no endpoint")

    async def next_endpoint(self) -> str:
        """Returns the endpoint to try now. Raises the last error when the time is over."""
        if not self._waiting:
            pause = doubled_pause_seconds(BACKOFF_SECONDS, BACKOFF_SECONDS_MAX, self.rounds)
            pause *= 0.5 + self._random.random() / 2
            if self._until is not None and time.monotonic() + pause >= self._until:
                raise self._error
            await asyncio.sleep(pause)
            self.rounds += 1
            self._tried.clear()
            self._waiting = list(self._endpoints)
        return self._waiting.pop(0)

    def note_failure(self, endpoint: str, error: RequestError, leader: str) -> None:
        """Stores a failed try, and puts the leader that it named first. Raises errors that a new try cannot help."""
        if error.code not in RETRIABLE:
            raise error
        if error.reason or not self._error.reason:  # A reason says more than an unreachable endpoint.
            self._error = RequestError("UNAVAILABLE", f"{endpoint}: {error.text}", error.reason, error.details)
        self._until = self._until or time.monotonic() + self._seconds
        self._tried.add(endpoint)
        if leader and leader not in self._tried:
            self._waiting = _endpoints_with_first(leader, self._waiting)

    def deadline_error(self, endpoint: str, error: RequestError, seconds: float) -> RequestError:
        """Returns the error of a call without an answer in time. Its text contains the earlier error, if any."""
        late = f"{endpoint}: no answer within {seconds:g} s" if _LATE in error.text else error.text
        before = f"; before that {self._error.text}" if self._until is not None else ""
        return error.with_text(late + before)


def failure_reason(details: str) -> str:
    """Returns gRPC's text about a failed call, for the user; for a failed connection only the reason in it."""
    return _NO_CONNECTION.sub("no connection: ", details) or "no reason given"


def _endpoints_with_first(first: str, endpoints: Sequence[str]) -> list[str]:
    return ([first] if first else []) + [endpoint for endpoint in endpoints if endpoint != first]
