"""What would happen: a state is changed, requests are decided on it, and what follows is followed, all in thought.

The decisions are the planner's own. No cluster carries anything out meanwhile: nothing binds, so what is only possible
is not used, and what is to leave has not left yet.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from planner.core.background import aftermath, moves
from planner.core.explaining.supposing import SUPPOSED_BLOCK
from planner.core.knowledge.rules import Rules
from planner.core.knowledge.state import PlannerState
from planner.core.knowledge.subject import Moment
from planner.core.knowledge.workload import Workload
from planner.core.requests import autoscaling, decisions
from planner.core.requests.answers import placement_reply
from planner.core.requests.decisions import Undecided
from spillway.addresses import Tombstone
from spillway.api import ApplyRequest, PlacementReply, RequestError, invalid
from spillway.columns import columns_of
from spillway.events import PHASE_LOST, Event
from spillway.feasibility.cluster_view import NEVER, ClusterView
from spillway.model import Generation, NodeRow
from spillway.troubles import TroubleCode

ROUNDS_MAX = 1000
STEP_SECONDS = 0.001
"""By which time passes between rounds: enough to fill the budget of moves, not to make anything old."""
NODES_MAX = 10_000


def rules_without_bounds(rules: Rules) -> Rules:
    """As many moves at once as there are, without confirmations: what is asked is where everything ends."""
    return replace(rules, moves_per_minute=1e12, confirm_over_replicas=2**31, replans_max=10_000, looks_max=2**31)


@dataclass(slots=True)
class Answer:
    """What became of one request: its placement, or why it is refused."""

    workload: str
    placement: PlacementReply | None
    refused: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """One workload whose placement is another than before, or that waits. before, after: replicas kept by cluster.

    new_before, new_after: those of them on nodes that do not exist yet.
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
    """Owns its state: whoever gives it must not use it any more. now: in the state's own time."""

    def __init__(self, state: PlannerState, now: float, wall_ms: int) -> None:
        self.state = state
        self.answers: list[Answer] = []
        self._now, self._wall_ms = now, wall_ms
        generations = (workload.placement.generation for workload in state.workloads.values() if workload.placement)
        self._epoch = max((generation.epoch for generation in generations), default=0) + 1
        self._sequence = 0
        state.brakes.step({}, 0, now - 1.0, wall_ms)  # The budget of moves fills from here on.
        self._before = {key: (kept(workload), new(workload)) for key, workload in state.workloads.items()}

    # ── What is supposed ────────────────────────────────────────────────────────────────────────────────────────

    def lose(self, cluster: str) -> None:
        """The cluster is gone and does not return."""
        view = self._view(cluster)
        assert view.joined is not None
        view.age_ms = view.heard_at = NEVER
        view.trouble, view.trouble_code = "supposed to be gone", TroubleCode.UNREACHABLE
        view.trouble_for_callers = view.trouble
        self.state.apply(replace(view.joined, phase=PHASE_LOST), self._now)

    def add_nodes(self, cluster: str, like: str, count: int) -> None:
        """So many empty nodes more, of a node group of the cluster or like a node that is there."""
        view = self._view(cluster)
        if not 1 <= count <= NODES_MAX:
            raise invalid("nodes", count, f"1 to {NODES_MAX}")
        names = (name for number in itertools.count() if view.nodes.row_of(name := f"{like}-more-{number}") is None)
        rows = [_node_like(view, like, name) for name in itertools.islice(names, count)]
        view.nodes.upsert(columns_of(rows), SUPPOSED_BLOCK)
        view.revision += 1
        self.state.room_changed(cluster)

    def _view(self, cluster: str) -> ClusterView:
        view = self.state.clusters.get(cluster)
        if view is None or view.joined is None:
            names = ", ".join(joined.cluster for joined in self.state.joined()) or "none"
            raise invalid("cluster", cluster, f"a cluster of the fleet: {names}")
        return view

    # ── What is decided ─────────────────────────────────────────────────────────────────────────────────────────

    def apply(self, name: str, request: ApplyRequest) -> Answer:
        """As the planner would answer it now. name: of the workload, for people."""
        try:
            decided = decisions.apply(self.state, replace(request, idempotency_key=""), self._moment())
        except RequestError as error:
            answer = Answer(name, None, f"{error.code}: {error.text}")
        except Undecided as waits:
            answer = Answer(name, None, f"waits for binds: {waits}")
        else:
            self._keep(decided.events)
            answer = Answer(f"{decided.reply.namespace}/{decided.reply.name}", decided.reply, "")
        self.answers.append(answer)
        return answer

    def settle(self) -> bool:
        """Follows what follows until nothing more does; False when that takes more than ROUNDS_MAX rounds."""
        for _ in range(ROUNDS_MAX):
            self._now += STEP_SECONDS
            if not self._round():
                return True
        return False

    def _round(self) -> int:
        state, moment = self.state, self._moment()
        count = self._keep(state.brakes.step(moves.wanted(state, moment.now), 0, moment.now, moment.wall_ms))
        for workload in moves.due(state, moment.now, state.brakes):
            count += self._keep(moves.next_step(state, workload, self._moment(), state.brakes).events)
        for key in list(state.scalings.due):
            count += self._keep(autoscaling.declare(state, state.workloads[key], self._moment()))
        for key in list(state.waiting):
            workload = state.workloads[key]
            if not workload.settled:  # Nothing binds here: what is waited for does not come.
                workload.waiting_since, workload.settled = moment.now, True
                workload.lent_since = moment.now - state.rules.lent_wait
                state.waiting.retry(key)
        for workload in aftermath.next_waiting(state, moment.now):
            count += self._keep(aftermath.try_again(state, workload, self._moment(), state.brakes).events)
        return count

    def _keep(self, events: Sequence[Event | Tombstone]) -> int:
        for event in events:
            if not isinstance(event, Tombstone):
                self.state.apply(event, self._now)
        return len(events)

    def _moment(self) -> Moment:
        self._sequence += 1
        return Moment(self._now, self._wall_ms, Generation(self._epoch, self._sequence))

    # ── What came of it ─────────────────────────────────────────────────────────────────────────────────────────

    def outcomes(self) -> list[Outcome]:
        """By namespace and name."""
        found = []
        for key in sorted(self.state.workloads):
            workload = self.state.workloads[key]
            (before, new_before), after, new_after = self._before.get(key, ({}, {})), kept(workload), new(workload)
            if (before, new_before) != (after, new_after) or workload.unplaced:
                reply = placement_reply(self.state, workload.declared, workload.placement)
                waits = reply.unplaced, reply.waiting_for
                found.append(Outcome("/".join(key), reply.replicas, before, after, *waits, new_before, new_after))
        return found


def kept(workload: Workload) -> dict[str, int]:
    """Replicas that count, by cluster."""
    return {part.cluster: part.replicas_kept for part in workload.parts.values() if part.replicas_kept}


def new(workload: Workload) -> dict[str, int]:
    """Those on nodes that do not exist yet, by cluster."""
    return {part.cluster: part.replicas_new for part in workload.parts.values() if part.replicas_new}


def _node_like(view: ClusterView, like: str, name: str) -> NodeRow:
    for group, _ in view.node_groups():
        if group.name == like:
            labels = tuple(sorted((*group.labels, ("kubernetes.io/hostname", name))))
            return NodeRow(name, dict(group.allocatable), {}, labels=labels, taints=group.taints)
    row = view.nodes.row_of(like)
    if row is None:
        groups = ", ".join(group.name for group, _ in view.node_groups()) or "none"
        raise invalid("nodes", like, f"a node group of {view.name} ({groups}), or one of its nodes")
    return view.nodes.empty_like(row, name)
