"""How long a request with Refuse waits for binds before it is refused, in however many calls it is asked, and that what
was asked behind it meanwhile stays behind it."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count

from planner.core.knowledge.rules import Rules
from planner.core.requests.queueing import Place
from spillway.feasibility.cluster_view import ClusterView, WorkloadKey

ONWARD, ANSWERED = 0.8, 0.95
"""Of the time that one call has: after how much it goes on to later tiers, and it is answered in any case."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request: since this call came; first: since the first one with its key that was not decided came. turn: in the
    order of asking; who was sent back and asks again has the turn that it had."""

    place: Place
    since: float
    first: float
    turn: int


@dataclass(frozen=True, slots=True)
class _SentBack:
    """A request that was answered without a decision: it is expected again until then."""

    turn: int
    until: float


class Patience:
    """call_seconds: that one call has. again_seconds: for how long who was sent back keeps its turn. kept_max: how many
    undecided requests are known, and of how many workloads those that were sent back, the newest.

    A call has less time than the wait for binds may take, and a replica that only possibly fits is neither promised nor
    refused. So whoever is not decided is told to ask again, and the next call with its key goes on with its wait. What
    comes after it about the same workload is sent back, too, until that call is taken up.
    """

    def __init__(self, rules: Rules, call_seconds: float, again_seconds: float, kept_max: int) -> None:
        self._rules, self._call_seconds, self._again_seconds = rules, call_seconds, again_seconds
        self._kept_max = kept_max
        self._first: dict[Place, float] = {}
        self._turns = count()
        self._sent_back: dict[WorkloadKey, dict[str, _SentBack]] = {}

    def asked(self, place: Place, now: float) -> Asked:
        first = self._first.get(place, now)
        forgotten = now - first > self._rules.bind_wait_max + self._call_seconds
        back = None if place.about is None else self._sent_back.get(place.about, {}).get(place.key)
        asked = Asked(place, now, now if forgotten else first, next(self._turns) if back is None else back.turn)
        if back is not None:  # What is behind it may be in the queue before it, and is so until this is taken up.
            self.sent_back(asked, now)
        return asked

    def take_up(self, asked: Asked, now: float) -> bool:
        """Whether the request is decided now. False if an earlier request about the same workload was sent back and is
        expected again: then this one is sent back, too, so that the order of asking stays."""
        if self.is_behind(asked, now):
            self.sent_back(asked, now)
            return False
        if asked.place.about is not None:
            self._sent_back.get(asked.place.about, {}).pop(asked.place.key, None)
        return True

    def put_off(self, asked: Asked, now: float) -> bool:
        """Notes that the request waits for binds. Whether it stays in the queue; False once its call is nearly over:
        then it is sent back, so that its caller asks again while there is time."""
        self._note_undecided(asked)
        if not self.is_over(asked, now):
            return True
        self.sent_back(asked, now)
        return False

    def sent_back(self, asked: Asked, now: float) -> None:
        """Notes that the caller is told to ask again, or asks again."""
        about = asked.place.about
        if about is None:
            return
        expected = self._sent_back.pop(about, {})  # The newest last.
        self._sent_back[about] = {key: one for key, one in expected.items() if one.until > now}
        self._sent_back[about][asked.place.key] = _SentBack(asked.turn, now + self._again_seconds)
        if len(self._sent_back) > self._kept_max:
            del self._sent_back[next(iter(self._sent_back))]

    def ran_out(self, asked: Asked, now: float) -> None:
        """The call ended before the request was decided. The caller asks again, and the wait goes on then."""
        self._note_undecided(asked)
        self.sent_back(asked, now)

    def is_behind(self, asked: Asked, now: float) -> bool:
        """Whether an earlier request about the same workload was sent back and is expected again."""
        expected = () if asked.place.about is None else self._sent_back.get(asked.place.about, {}).values()
        return any(one.turn < asked.turn and one.until > now for one in expected)

    def _note_undecided(self, asked: Asked) -> None:
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
