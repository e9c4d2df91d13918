"""Brakes keep replicas where they are although a cause would move them.

There are three: a freeze that a person set, a budget of moves a minute, and a confirmation of a move of much of the
fleet.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import floor
from typing import Final

from planner.core.knowledge.allowance import (
    CAUSE_DRAIN,
    CAUSE_FAILOVER,
    CAUSE_HOME,
    CAUSE_LOST,
    CAUSE_POLICY,
    CAUSE_RETURN,
)
from planner.core.knowledge.rules import PlannerRules
from spillway.addresses import Tombstone, brake_address
from spillway.events import BrakeReleased, BrakeSet, ConfirmationAsked, ConfirmationGiven
from spillway.feasibility.cluster_view import WorkloadKey
from spillway.scopes import FLEET_SCOPE, cluster_scope, workload_scope

CAUSES_CONFIRMED: Final = frozenset((CAUSE_FAILOVER, CAUSE_RETURN, CAUSE_DRAIN, CAUSE_HOME, CAUSE_POLICY))
"""The causes that wait for a person's confirmation when they would move much. Lost is not one of them: a person has
declared this cluster lost. Moves in the step of an Apply or Scale need no confirmation. The cause Policy is for later
moves, after a cluster joined or when room appears."""
CAUSES_IN_BUDGET: Final = CAUSES_CONFIRMED | {CAUSE_LOST}
"""The causes whose moves use up the budget. A person asked for all other moves by name, or the replicas never ran."""

MINUTE: Final = 60.0

ASKED_AGAIN_GROWTH: Final = 1.5
"""A confirmation is asked for again when its replicas have grown by this factor."""

BrakeEvent = BrakeSet | BrakeReleased | ConfirmationAsked | ConfirmationGiven
Cause = tuple[str, str]
"""A cause, and the cluster that it moves replicas away from (Return: the cluster that is back)."""


def confirmation_scope(cause: str, cluster: str) -> str:
    return f"{cause}/{cluster}"


@dataclass(slots=True)
class MoveBudget:
    """A token bucket: it fills evenly by `per_minute`, holds at most one minute's amount, and begins empty.

    now: seconds of a clock that only grows. The bucket begins to fill at the first call.
    """

    per_minute: float
    left: float = 0.0
    filled_at: float | None = None

    def fill_budget(self, now: float) -> None:
        if self.filled_at is not None:
            more = max(0.0, now - self.filled_at) * self.per_minute / MINUTE
            self.left = min(self.per_minute, self.left + more)
        self.filled_at = now if self.filled_at is None else max(now, self.filled_at)

    @property
    def whole_replicas(self) -> int:
        """Returns how many replicas may move now: what is left, rounded down."""
        return max(0, floor(self.left + 1e-9))  # The sum of many small fills may stay just below a whole number.


@dataclass(slots=True)
class RecentMoves:
    """Allows at most `per_minute` replicas in any 60 s.

    Moves before the first call are unknown, so the full amount is assumed for them. now: as in MoveBudget.
    """

    per_minute: float
    entries: list[tuple[float, int]] | None = None

    def forget_old_moves(self, now: float) -> None:
        if self.entries is None:
            self.entries = [(now, floor(self.per_minute))]
        self.entries = [(at, count) for at, count in self.entries if now - at < MINUTE]

    def note_moves(self, count: int, now: float) -> None:
        self.entries = [*(self.entries or ()), (now, count)]

    @property
    def whole_replicas(self) -> int:
        """Returns how many replicas may move now: the limit, less what moved in the last 60 s."""
        return 0 if self.entries is None else max(0, floor(self.per_minute) - sum(count for _, count in self.entries))


class Brakes:
    """Decides how many replicas may move now. Implements Allowance (allowance.py).

    brakes, asked, given: the brakes, and the confirmations asked for and given, by scope. They come from the log.
    Everything else is forgotten at the end of the turn.
    wanted: by confirmation scope, the replicas that each cause would still move, by the last update_confirmations().
    moved: by cause, the replicas that have moved in this turn.
    """

    def __init__(self, rules: PlannerRules) -> None:
        self.brakes: dict[str, BrakeSet] = {}
        self.asked: dict[str, ConfirmationAsked] = {}
        self.given: dict[str, ConfirmationGiven] = {}
        self.wanted: dict[str, int] = {}
        self.moved: Counter[str] = Counter()
        self._revision = 0
        self._rules = rules
        self._budget = MoveBudget(rules.moves_per_minute)
        self._home = RecentMoves(rules.home_moves_per_minute)
        self._spent: list[tuple[float, int]] = []
        self._now = 0.0
        self._fleet_replicas = 0
        self._totals: dict[str, int] = {}
        self._unconfirmed: Counter[str] = Counter()
        self._moved_of_cause: Counter[str] = Counter()
        self._over_since: dict[str, float] = {}
        self._over_budget: dict[tuple[str, str, WorkloadKey], int] = {}
        self._promised_to: WorkloadKey = ("", "")
        self._promised: dict[Cause, int] = {}
        self._offset = -1

    # ── Events ──────────────────────────────────────────────────────────────────────────────────────────────────

    def apply_event(self, event: BrakeEvent, offset: int = -1) -> None:
        """Applies one event. offset: −1 for our own new event. A record at or before a known offset is dropped."""
        if self._is_known_offset(offset):
            return
        self._revision += 1
        match event:
            case BrakeSet():
                self.brakes[event.scope] = event
            case BrakeReleased():
                self.brakes.pop(event.scope, None)
            case ConfirmationAsked():
                self.asked[event.scope] = event
                self.given.pop(event.scope, None)
            case ConfirmationGiven():
                self.given[event.scope] = event
                self.asked.pop(event.scope, None)

    def forget_scope(self, scope: str, offset: int = -1) -> None:
        """Forgets a scope after its tombstone."""
        if self._is_known_offset(offset):
            return
        self._revision += 1
        for entries in (self.brakes, self.asked, self.given, self._totals, self._over_since):
            entries.pop(scope, None)
        self._moved_of_cause.pop(scope, None)

    def _is_known_offset(self, offset: int) -> bool:
        """Returns whether the record is known. The topic has one partition, so offsets order all its records."""
        if 0 <= offset <= self._offset:
            return True
        self._offset = max(offset, self._offset)
        return False

    @property
    def allowance_revision(self) -> int:
        """Returns a number that changes when a brake or a confirmation may have changed; the budget does not count."""
        return self._revision

    # ── What a move asks ────────────────────────────────────────────────────────────────────────────────────────

    def is_frozen(self, cluster: str, key: WorkloadKey) -> bool:
        """Returns whether nothing may move from this cluster or to it, or be taken back there."""
        return self._widest_brake_scope(cluster, key) != ""

    def frozen_clusters_among(self, clusters: Iterable[str], key: WorkloadKey) -> frozenset[str]:
        return frozenset(name for name in clusters if self.is_frozen(name, key)) if self.brakes else frozenset()

    def why_frozen(self, cluster: str, key: WorkloadKey | None = None) -> str:
        """Returns a text for users: the brake on a cluster, for one workload or for all; empty without a brake."""
        scope = self._widest_brake_scope(cluster, key)
        if not scope:
            return ""
        brake = self.brakes[scope]
        return f"{scope} is frozen by {brake.by}: {brake.reason or 'no reason given'}"

    def why_held(self, cause: str, cluster: str, key: WorkloadKey) -> str:
        """Returns a text for users: the brake, confirmation or budget that a cause waits for in a cluster, or "".

        A budget that only has to fill is not named. It is named when it never reaches a whole replica.
        """
        scope = self._widest_brake_scope(cluster, key)
        if scope:
            return f"the brake of {scope}: {self.brakes[scope].reason or 'no reason given'}"
        scope = confirmation_scope(cause, cluster)
        if scope in self.asked and cause in CAUSES_CONFIRMED:
            return f"the confirmation of {scope}"
        if cause in CAUSES_IN_BUDGET and self._budget.per_minute < 1:
            return f"the budget: moves_per_minute is {self._budget.per_minute:g}"
        return ""

    def allow_replicas(self, cause: str, cluster: str, key: WorkloadKey, replicas: int) -> int:
        """Returns how many of `replicas` of a workload may move away from a cluster in this step.

        Returns 0 for a cause that needs confirmation and was not in the `wanted` of update_confirmations(): nobody
        knows how many replicas it would move in total. The caller also asks is_frozen() about the target cluster. All
        clusters that one workload moves away from share the budget. Before another workload asks, the caller must call
        spend_budget() for this one.
        """
        if self._widest_brake_scope(cluster, key) or not self._is_confirmed(cause, cluster):
            return 0
        if cause not in CAUSES_IN_BUDGET:
            return replicas
        if key != self._promised_to:
            self._promised_to, self._promised = key, {}
        others = sum(count for place, count in self._promised.items() if place != (cause, cluster))
        left = self._budget.whole_replicas - others
        # A workload's overflow goes home from one cluster at a time. So no other promise counts against this budget.
        if cause == CAUSE_HOME:
            left = min(left, self._home.whole_replicas)
        allowed = max(0, min(replicas, left))
        self._promised[cause, cluster] = allowed
        self._over_budget[cause, cluster, key] = replicas - allowed
        return allowed

    def spend_budget(self, cause: str, cluster: str, key: WorkloadKey, replicas: int) -> None:
        """Subtracts replicas that leave this cluster from the budget. allow_replicas() must have allowed them."""
        self.moved[cause] += replicas
        if cause in CAUSES_IN_BUDGET:
            self._budget.left -= replicas
            self._spent.append((self._now, replicas))
            self._promised.pop((cause, cluster), None)
        if cause == CAUSE_HOME:
            self._home.note_moves(replicas, self._now)
        if cause in CAUSES_CONFIRMED:
            self._moved_of_cause[confirmation_scope(cause, cluster)] += replicas

    def _widest_brake_scope(self, cluster: str, key: WorkloadKey | None) -> str:
        """Returns the scope of the widest brake that holds here; empty without a brake."""
        if not self.brakes:
            return ""
        scopes = (FLEET_SCOPE, cluster_scope(cluster), workload_scope(*key) if key else "")
        return next((scope for scope in scopes if scope in self.brakes), "")

    def _is_confirmed(self, cause: str, cluster: str) -> bool:
        """Returns whether a cause needs no confirmation, or has it."""
        scope = confirmation_scope(cause, cluster)
        if cause not in CAUSES_CONFIRMED or scope in self.given:
            return True
        # A cause without a total is not confirmed, as nobody knows how many replicas it would move.
        if scope in self.asked or scope not in self._totals:
            return False
        return not self._is_above_bounds(self._unconfirmed[cause], self._fleet_replicas)

    def _is_above_bounds(self, replicas: int, fleet_replicas: int) -> bool:
        rules = self._rules
        return replicas > rules.confirm_over_replicas and replicas > rules.confirm_over_fraction * fleet_replicas

    # ── Confirmations ───────────────────────────────────────────────────────────────────────────────────────────

    def update_confirmations(
        self, wanted: Mapping[Cause, int], fleet_replicas: int, now: float, wall_ms: int
    ) -> tuple[ConfirmationAsked | Tombstone, ...]:
        """Counts what every cause would still move. Returns the confirmations to ask for, and tombstones of ended ones.

        Many clusters may be lost at once for one reason. So the replicas that a cause moves from all clusters are added
        up, without those that are confirmed. If the sum is large, the cause needs confirmation. Call this in every
        step, before anything is moved.

        wanted: every cause that goes on, and how many replicas it has yet to move, 0 included. Replicas that it has
        moved are added here. So a cause that comes in small pieces is confirmed like one that comes at once.
        fleet_replicas: the replicas that all workloads ask for.
        """
        self._budget.fill_budget(now)
        self._home.forget_old_moves(now)
        self._spent = [(at, count) for at, count in self._spent if now - at < MINUTE]
        self._now = now
        self._fleet_replicas = fleet_replicas
        self._over_budget.clear()
        self._promised.clear()
        self.wanted = {confirmation_scope(*cause): replicas for cause, replicas in wanted.items()}
        self._totals = {scope: replicas + self._moved_of_cause[scope] for scope, replicas in self.wanted.items()}
        self._unconfirmed = Counter()
        for scope, total in self._totals.items():
            if scope not in self.given:
                self._unconfirmed[scope.partition("/")[0]] += total
        return (*self._confirmations_to_ask(wanted, wall_ms), *self._confirmations_to_forget(now))

    @property
    def replicas_over_budget(self) -> int:
        """Returns how many replicas allow_replicas() refused in the last step because the budget was used up."""
        return sum(self._over_budget.values())

    def replicas_moved_last_minute(self, now: float) -> int:
        """Returns how many replicas moved within the budget in the last 60 s of this turn. now: as in MoveBudget."""
        return sum(count for at, count in self._spent if now - at < MINUTE)

    def replicas_to_move_from(self, cluster: str = "") -> int:
        """Returns the replicas that causes would still move away from a cluster, or from all clusters without one."""
        return sum(replicas for scope, replicas in self.wanted.items() if cluster in ("", scope.partition("/")[2]))

    def held_replicas_by_kind(self) -> dict[str, int]:
        """Returns how many replicas a brake (of the fleet or a cluster), a confirmation or the budget holds back.

        Replicas that only the brake of their workload holds are not counted.
        """
        held = {"brake": 0, "confirmation": 0, "budget": self.replicas_over_budget}
        for scope, replicas in self.wanted.items():
            cause, _, cluster = scope.partition("/")
            if self._widest_brake_scope(cluster, None):
                held["brake"] += replicas
            elif not self._is_confirmed(cause, cluster):
                held["confirmation"] += replicas
        return held

    def is_known_confirmation(self, scope: str) -> bool:
        """Returns whether this confirmation was asked for or given."""
        return scope in self.asked or scope in self.given

    def needs_confirmation(self, cause: str, cluster: str, replicas: int, fleet_replicas: int) -> bool:
        """Returns whether a cause that is about to begin would wait for a confirmation."""
        scope = confirmation_scope(cause, cluster)
        # `replicas` replaces this cluster's own share of the sum, so only other clusters' shares are added to it.
        others = self._unconfirmed[cause] - (self._totals.get(scope, 0) if scope not in self.given else 0)
        return scope not in self.given and self._is_above_bounds(replicas + others, fleet_replicas)

    def _confirmations_to_ask(self, wanted: Mapping[Cause, int], wall_ms: int) -> Iterable[ConfirmationAsked]:
        for cause, cluster in sorted(wanted):
            scope = confirmation_scope(cause, cluster)
            total = self._totals[scope]
            if cause not in CAUSES_CONFIRMED or scope in self.given or not wanted[cause, cluster]:
                continue
            if not self._is_above_bounds(self._unconfirmed[cause], self._fleet_replicas):
                continue
            known = self.asked.get(scope)
            if known is None or total >= known.replicas * ASKED_AGAIN_GROWTH:
                yield ConfirmationAsked(scope, cause, cluster, total, self._fleet_replicas, wall_ms)

    def _confirmations_to_forget(self, now: float) -> Iterable[Tombstone]:
        """Yields tombstones for the confirmations of causes that ended `confirmation_kept` seconds ago.

        They are kept so long because a new planner may read late that a cause goes on.
        """
        for scope in sorted({*self.asked, *self.given, *self._moved_of_cause}):
            if scope in self.wanted:
                self._over_since.pop(scope, None)
            elif now - self._over_since.setdefault(scope, now) >= self._rules.confirmation_kept:
                if self.is_known_confirmation(scope):
                    yield Tombstone(brake_address(scope))
                else:
                    self.forget_scope(scope)
