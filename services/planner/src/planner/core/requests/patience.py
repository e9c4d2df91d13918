"""Decides how long a request waits for binds when its policy says Refuse, and keeps the order of requests.

One wait may last over several calls with the same idempotency key.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import count

from planner.core.knowledge.all_clusters import has_heard_all_since
from planner.core.knowledge.rules import PlannerRules
from planner.core.requests.queueing import QueuePlace
from spillway.feasibility.cluster_view import ClusterView, WorkloadKey

ONWARD, ANSWERED = 0.8, 0.95
"""Fractions of a call's time. After ONWARD a request also uses later tiers; after ANSWERED its call gets an answer."""


@dataclass(frozen=True, slots=True)
class WaitingRequest:
    """A call with a request.

    since: the time when this call came.
    first: the time when the first undecided call with its key came.
    turn: the place of the request in the order of arrival. A request that was sent back keeps it in its next call.
    """

    place: QueuePlace
    since: float
    first: float
    turn: int


@dataclass(frozen=True, slots=True)
class _SentBack:
    """A request that was answered without a decision. until: the time until which its next call is expected."""

    turn: int
    until: float


@dataclass(frozen=True, slots=True)
class BindWait:
    """An undecided request. clusters: where its replicas possibly fit. priority: of its workload."""

    clusters: frozenset[str]
    priority: int


def highest_priority_by_cluster(held_up: Iterable[object]) -> dict[str, int]:
    """Returns, by cluster, the highest priority of the requests that wait for binds there.

    held_up: as in RequestQueue.held_up; values other than a BindWait are ignored.
    """
    found: dict[str, int] = {}
    for wait in (one for one in held_up if isinstance(one, BindWait)):
        for cluster in wait.clusters:
            found[cluster] = max(wait.priority, found.get(cluster, wait.priority))
    return found


class UndecidedRequests:
    """Tracks undecided requests.

    A replica that only possibly fits is neither promised nor refused, and a call may have less time than the wait for
    binds takes. So the caller of an undecided request must ask again, and the next call with its key continues the
    wait. Until that call is taken up, later requests about the same workload are sent back, too.

    call_seconds: the time of one call. again_seconds: how long a request that was sent back keeps its turn.
    kept_max: the most undecided requests that are known, and the most workloads with requests that were sent back.
    refuse_after_seconds: the longest time that a request without room waits for newer messages of clusters.
    """

    def __init__(
        self,
        rules: PlannerRules,
        call_seconds: float,
        again_seconds: float,
        kept_max: int,
        refuse_after_seconds: float,
    ) -> None:
        self._rules, self._call_seconds, self._again_seconds = rules, call_seconds, again_seconds
        self._refuse_after_seconds = refuse_after_seconds
        self._kept_max = kept_max
        self._first: dict[QueuePlace, float] = {}
        self._turns = count()
        self._sent_back: dict[WorkloadKey, dict[str, _SentBack]] = {}

    def may_await_clusters(self, request: WaitingRequest, clusters: Mapping[str, ClusterView], now: float) -> bool:
        """Returns whether a request without room may still wait for newer messages of clusters before it is refused.

        The state may be old. clusters: by name.
        """
        longest = min(self._refuse_after_seconds, self.seconds_until_later_tiers)
        if now - request.since >= longest:
            return False
        return not has_heard_all_since(clusters, request.since, now, self._rules.capacity_age_max)

    def begin_request(self, place: QueuePlace, now: float) -> WaitingRequest:
        first = self._first.get(place, now)
        forgotten = now - first > self._rules.bind_wait_max + self._call_seconds
        back = None if place.about is None else self._sent_back.get(place.about, {}).get(place.key)
        asked = WaitingRequest(
            place, now, now if forgotten else first, next(self._turns) if back is None else back.turn
        )
        if back is not None:  # Later requests may be in the queue before this one, so they wait until it is taken up.
            self.note_sent_back(asked, now)
        return asked

    def try_take_up(self, asked: WaitingRequest, now: float) -> bool:
        """Returns whether the request may be decided now. It may not while an earlier request about its workload is
        expected again. Then this request is sent back, too, so that the order of arrival stays."""
        if self.is_behind(asked, now):
            self.note_sent_back(asked, now)
            return False
        if asked.place.about is not None:
            self._sent_back.get(asked.place.about, {}).pop(asked.place.key, None)
        return True

    def put_off_request(self, asked: WaitingRequest, now: float) -> bool:
        """Records that the request waits for binds. Returns whether it stays in the queue.

        When its call is nearly over it is sent back, so that its caller asks again in time.
        """
        self._note_undecided(asked)
        if not self.is_over(asked, now):
            return True
        self.note_sent_back(asked, now)
        return False

    def note_sent_back(self, asked: WaitingRequest, now: float) -> None:
        """Records that the caller must call again. The request keeps its turn for again_seconds."""
        about = asked.place.about
        if about is None:
            return
        expected = self._sent_back.pop(about, {})  # The newest stays last.
        self._sent_back[about] = {key: one for key, one in expected.items() if one.until > now}
        self._sent_back[about][asked.place.key] = _SentBack(asked.turn, now + self._again_seconds)
        if len(self._sent_back) > self._kept_max:
            del self._sent_back[next(iter(self._sent_back))]

    def note_ran_out(self, asked: WaitingRequest, now: float) -> None:
        """Records that the call ended before the request was decided. The wait goes on with the caller's next call."""
        self._note_undecided(asked)
        self.note_sent_back(asked, now)

    def is_behind(self, asked: WaitingRequest, now: float) -> bool:
        """Returns whether an earlier request about the same workload was sent back and is expected again."""
        expected = () if asked.place.about is None else self._sent_back.get(asked.place.about, {}).values()
        return any(one.turn < asked.turn and one.until > now for one in expected)

    def _note_undecided(self, asked: WaitingRequest) -> None:
        self._first.pop(asked.place, None)
        self._first[asked.place] = asked.first
        if len(self._first) > self._kept_max:
            del self._first[next(iter(self._first))]

    def note_decided(self, asked: WaitingRequest) -> None:
        self._first.pop(asked.place, None)

    def may_wait_for_binds(self, asked: WaitingRequest, clusters: Mapping[str, ClusterView], now: float) -> bool:
        """Returns whether the request may still wait for binds: as long as binds come, at most for bind_wait_max."""
        bound_at = max((view.bound_at for view in clusters.values()), default=0.0)
        quiet = now - max(bound_at, asked.first) >= self._rules.bind_quiet
        return not quiet and now - asked.first < self._rules.bind_wait_max

    def may_use_later_tiers(self, asked: WaitingRequest, now: float) -> bool:
        """Returns whether the request stops waiting for the first tiers and takes certain room in any tier."""
        return now - asked.first >= self.seconds_until_later_tiers

    @property
    def seconds_until_later_tiers(self) -> float:
        return min(self._rules.bind_wait_max, self._call_seconds * ONWARD)

    def is_over(self, asked: WaitingRequest, now: float) -> bool:
        """Returns whether this call must be answered now, so that its caller can ask again in time."""
        return now - asked.since >= self._call_seconds * ANSWERED
