"""How long a request with Refuse waits for binds before it is refused, in however many calls it is asked."""

from collections.abc import Mapping
from dataclasses import dataclass

from planner.core.requests.queueing import Place
from planner.core.rules import Rules
from spillway.feasibility.cluster_view import ClusterView

ONWARD, ANSWERED = 0.8, 0.95
"""Of the time that one call has: after how much it goes on to later tiers, and it is answered in any case."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request: since this call came; first: since the first one with its key that was not decided came."""

    place: Place
    since: float
    first: float


class Patience:
    """call_seconds: that one call has. kept_max: how many undecided requests are known, the newest.

    A call has less time than the wait for binds may take, and a replica that only possibly fits is neither promised nor
    refused. So whoever is not decided is told to ask again, and the next call with its key goes on with its wait.
    """

    def __init__(self, rules: Rules, call_seconds: float, kept_max: int) -> None:
        self._rules, self._call_seconds, self._kept_max = rules, call_seconds, kept_max
        self._first: dict[Place, float] = {}

    def asked(self, place: Place, now: float) -> Asked:
        first = self._first.get(place, now)
        forgotten = now - first > self._rules.bind_wait_max + self._call_seconds
        return Asked(place, now, now if forgotten else first)

    def waits(self, asked: Asked) -> None:
        """It is not decided yet."""
        self._first.pop(asked.place, None)
        self._first[asked.place] = asked.first
        if len(self._first) > self._kept_max:
            del self._first[next(iter(self._first))]

    def decided(self, asked: Asked) -> None:
        self._first.pop(asked.place, None)

    def is_patient(self, asked: Asked, clusters: Mapping[str, ClusterView], now: float) -> bool:
        """Whether it may still wait for binds: so long as they come, and for so long in all."""
        bound_at = max((view.bound_at for view in clusters.values()), default=0.0)
        quiet = now - max(bound_at, asked.first) >= self._rules.bind_quiet
        return not quiet and now - asked.first < self._rules.bind_wait_max

    def goes_on(self, asked: Asked, now: float) -> bool:
        """Whether it waits for no tier any more, but takes room wherever it is certain."""
        return now - asked.first >= self.onward_seconds

    @property
    def onward_seconds(self) -> float:
        return min(self._rules.bind_wait_max, self._call_seconds * ONWARD)

    def is_over(self, asked: Asked, now: float) -> bool:
        """Whether this call has to be answered, so that its caller asks again while it has the time."""
        return now - asked.since >= self._call_seconds * ANSWERED
