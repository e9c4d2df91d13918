"""Simulates what would happen: changes a state, decides requests on it, and takes the planner's steps that follow.

The decisions and the steps (background/round.py) are the code of the planner itself. No cluster carries anything out,
and no time passes. Nothing binds, so possible room is not used, and leaving replicas do not leave. README,
"Simulations", says what that means for each step.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from planner.core.background.headroom import HeadroomPace
from planner.core.background.homing import Homing
from planner.core.background.round import DecisionClock, RoundMemory, apply_events, steps_of_round
from planner.core.explaining.supposing import SUPPOSED_BLOCK
from planner.core.knowledge.brakes import MINUTE
from planner.core.knowledge.rules import PlannerRules
from planner.core.knowledge.state import PlannerState
from planner.core.knowledge.subject import Moment
from planner.core.knowledge.workload import Workload
from planner.core.requests import autoscaling, decisions
from planner.core.requests.answers import placement_reply
from planner.core.requests.decisions import UndecidedRequest
from spillway.addresses import Tombstone
from spillway.api import ApplyRequest, PlacementReply, RequestError, invalid_argument_error
from spillway.columns import columns_of
from spillway.events import PHASE_LOST, Event
from spillway.feasibility.cluster_view import NEVER, ClusterView
from spillway.model import Generation, NodeRow
from spillway.troubles import TroubleCode

ROUNDS_MAX = 1000
STEP_SECONDS = 0.001
"""Seconds between two rounds. That is enough to fill the budget of moves, and too short to make any value stale."""
QUIET_ROUNDS = 2
"""The simulation ends after so many rounds in a row without a change. One is not enough: overflow that may go home is
found in one round, and goes in the next."""
NODES_MAX = 10_000
ALL_MOVES = 1e12
"""A budget of moves a minute that never limits."""
PLACES_MAX = 2**31
TELLS_NOBODY = HeadroomPace(look=0.0, repeat=0.0, settle=0.0, looks_max=0)
"""A pace without any headroom report, as nobody reads reports in a simulation."""


def rules_without_bounds(rules: PlannerRules) -> PlannerRules:
    """Returns rules with which all moves happen at once and without confirmations, as the user wants the final state.

    Overflow goes home as soon as there is room. Moves that the rules switch off (0 a minute) stay off.
    """
    return replace(
        rules,
        moves_per_minute=ALL_MOVES if rules.moves_per_minute else 0.0,
        home_moves_per_minute=ALL_MOVES if rules.home_moves_per_minute else 0.0,
        home_after=0.0,
        confirm_over_replicas=2**31,
        replans_max=10_000,
        looks_max=2**31,
    )


@dataclass(slots=True)
class SimulatedAnswer:
    """The answer to one request: its placement, or the text of its refusal."""

    workload: str
    placement: PlacementReply | None
    refused: str


@dataclass(frozen=True, slots=True)
class SimulatedPlacement:
    """One workload whose placement changed, or that has unplaced replicas.

    before, after: kept replicas by cluster.
    new_before, new_after: by cluster, how many of them are on nodes that do not exist yet.
    """

    workload: str
    replicas: int
    before: Mapping[str, int]
    after: Mapping[str, int]
    unplaced: int
    waiting_for: str
    new_before: Mapping[str, int]
    new_after: Mapping[str, int]


class Simulation:
    """A simulation, which owns and changes `state`: the caller must not use it any more. now: the state's own time."""

    def __init__(self, state: PlannerState, now: float, wall_ms: int) -> None:
        self.state = state
        self.answers: list[SimulatedAnswer] = []
        self._now, self._wall_ms = now, wall_ms
        generations = (workload.placement.generation for workload in state.workloads.values() if workload.placement)
        self._epoch = max((generation.epoch for generation in generations), default=0) + 1
        self._sequence = 0
        self._memory = RoundMemory(TELLS_NOBODY)
        self._memory.homing = Homing(look_seconds=0.0, new_places_max=PLACES_MAX)
        self._moments = DecisionClock(lambda: self._now, self._next_moment)
        state.brakes.update_confirmations({}, 0, now - MINUTE, wall_ms)  # The budgets of moves are full from now on.
        self._before = {
            key: (kept_replicas_by_cluster(workload), new_replicas_by_cluster(workload))
            for key, workload in state.workloads.items()
        }

    # ── What is supposed ────────────────────────────────────────────────────────────────────────────────────────

    def lose_cluster(self, cluster: str) -> None:
        """Makes the cluster lost for good: it is no longer heard, and its phase is Lost."""
        view = self._joined_view(cluster)
        assert view.joined is not None
        view.age_ms = view.heard_at = NEVER
        view.trouble, view.trouble_code = "supposed to be gone", TroubleCode.UNREACHABLE
        view.trouble_for_callers = view.trouble
        self.state.apply_event(replace(view.joined, phase=PHASE_LOST), self._now)

    def add_nodes(self, cluster: str, like: str, count: int) -> None:
        """Adds empty nodes to a cluster. like: the name of one of its node groups or of an existing node."""
        view = self._joined_view(cluster)
        if not 1 <= count <= NODES_MAX:
            raise invalid_argument_error("nodes", count, f"1 to {NODES_MAX}")
        names = (name for number in itertools.count() if view.nodes.row_of(name := f"{like}-more-{number}") is None)
        rows = [_empty_node_like(view, like, name) for name in itertools.islice(names, count)]
        view.nodes.upsert_nodes(columns_of(rows), SUPPOSED_BLOCK)
        view.revision += 1
        self.state.note_room_change(cluster)

    def _joined_view(self, cluster: str) -> ClusterView:
        view = self.state.clusters.get(cluster)
        if view is None or view.joined is None:
            names = ", ".join(joined.cluster for joined in self.state.joined_clusters()) or "none"
            raise invalid_argument_error("cluster", cluster, f"a cluster of the fleet: {names}")
        return view

    # ── What is decided ─────────────────────────────────────────────────────────────────────────────────────────

    def answer_request(self, name: str, request: ApplyRequest) -> SimulatedAnswer:
        """Answers a request as the planner would now. name: the workload's name to show if the request is refused."""
        try:
            decided = decisions.decide_apply(self.state, replace(request, idempotency_key=""), self._next_moment())
        except RequestError as error:
            answer = SimulatedAnswer(name, None, f"{error.code}: {error.text}")
        except UndecidedRequest as waits:
            answer = SimulatedAnswer(name, None, f"waits for binds: {waits}")
        else:
            self._apply_events(decided.events)
            answer = SimulatedAnswer(f"{decided.reply.namespace}/{decided.reply.name}", decided.reply, "")
        self.answers.append(answer)
        return answer

    def run_until_quiet(self) -> bool:
        """Runs rounds until nothing more happens. Returns False when that takes more than ROUNDS_MAX rounds."""
        quiet = 0
        for _ in range(ROUNDS_MAX):
            self._now += STEP_SECONDS
            quiet = 0 if self._run_round() else quiet + 1
            if quiet == QUIET_ROUNDS:
                return True
        return False

    def _run_round(self) -> int:
        """Runs one round of the planner. Returns how many events it has."""
        state, count = self.state, 0
        self._end_waits()
        for key in list(state.scalings.due):
            count += self._apply_events(
                autoscaling.declare_scale_decision(state, state.workloads[key], self._next_moment())
            )
        for step in steps_of_round(state, self._memory, self._moments):
            count += self._apply_events(step.events)
        return count

    def _end_waits(self) -> None:
        """Ends all waits for binds and lent nodes: nothing binds here, and no lent node comes back."""
        state = self.state
        for key in list(state.waiting):
            workload = state.workloads[key]
            if not workload.settled:
                workload.waiting_since, workload.settled = self._now, True
                workload.lent_since = self._now - state.rules.lent_wait
                state.waiting.retry_workload(key)

    def _apply_events(self, events: Sequence[Event | Tombstone]) -> int:
        apply_events(self.state, events, self._now)
        return len(events)

    def _next_moment(self) -> Moment:
        self._sequence += 1
        return Moment(self._now, self._wall_ms, Generation(self._epoch, self._sequence))

    # ── What came of it ─────────────────────────────────────────────────────────────────────────────────────────

    def placement_outcomes(self) -> list[SimulatedPlacement]:
        """Returns the workloads that changed or have unplaced replicas, in the order of namespace and name."""
        found = []
        for key in sorted(self.state.workloads):
            workload = self.state.workloads[key]
            (before, new_before), after, new_after = (
                self._before.get(key, ({}, {})),
                kept_replicas_by_cluster(workload),
                new_replicas_by_cluster(workload),
            )
            if (before, new_before) != (after, new_after) or workload.unplaced:
                reply = placement_reply(self.state, workload.declared, workload.placement)
                waits = reply.unplaced, reply.waiting_for
                found.append(
                    SimulatedPlacement("/".join(key), reply.replicas, before, after, *waits, new_before, new_after)
                )
        return found


def kept_replicas_by_cluster(workload: Workload) -> dict[str, int]:
    """Returns the kept replicas by cluster."""
    return {part.cluster: part.replicas_kept for part in workload.parts.values() if part.replicas_kept}


def new_replicas_by_cluster(workload: Workload) -> dict[str, int]:
    """Returns the kept replicas on nodes that do not exist yet, by cluster."""
    return {part.cluster: part.replicas_new for part in workload.parts.values() if part.replicas_new}


def _empty_node_like(view: ClusterView, like: str, name: str) -> NodeRow:
    for group, _ in view.node_groups():
        if group.name == like:
            labels = tuple(sorted((*group.labels, ("kubernetes.io/hostname", name))))
            return NodeRow(name, dict(group.allocatable), {}, labels=labels, taints=group.taints)
    row = view.nodes.row_of(like)
    if row is None:
        groups = ", ".join(group.name for group, _ in view.node_groups()) or "none"
        raise invalid_argument_error("nodes", like, f"a node group of {view.name} ({groups}), or one of its nodes")
    return view.nodes.empty_node_like(row, name)
