"""Bounds how long a round works on many workloads, so that requests do not wait for all of them."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from planner.core.knowledge.rules import PlannerRules


@dataclass(frozen=True, slots=True)
class TimeShare:
    """The time that one kind of work may take in a round. clock: returns the seconds of a steady clock."""

    clock: Callable[[], float]
    until: float

    def is_over(self) -> bool:
        """Returns whether the rest of the work must wait for the next round."""
        return self.clock() >= self.until


UNLIMITED_TIME = TimeShare(lambda: 0.0, inf)


class RoundTime:
    """Gives each kind of work in a round its time: what is left of round_seconds, and at least round_kind_seconds.

    So no kind of work takes the time of the kinds after it.
    """

    def __init__(self, clock: Callable[[], float], rules: PlannerRules) -> None:
        """Begins the round now. clock: returns the seconds of a steady clock."""
        self._clock, self._least = clock, rules.round_kind_seconds
        self._until = clock() + rules.round_seconds

    def next_share(self) -> TimeShare:
        """Returns the time of the kind of work that begins now."""
        return TimeShare(self._clock, max(self._until, self._clock() + self._least))
