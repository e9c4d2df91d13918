"""Runs the planner's work that no request asks for, in a fixed order.

The active planner and the tests ask for the steps of a round. A step is decided on the state that the steps before it
left. So the caller must apply the events of a step before it asks for the next step.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from typing import Protocol, TypeVar

from planner.core.background import aftermath, moves, twins
from planner.core.background.aftermath import AftermathStep
from planner.core.background.headroom import HeadroomPace, Headrooms
from planner.core.background.homing import Homing
from planner.core.background.lent_homes import LentHomes
from planner.core.knowledge.all_clusters import newly_known_api_servers
from planner.core.knowledge.round_time import RoundTime, TimeShare
from planner.core.knowledge.state import PlannerState
from planner.core.knowledge.subject import Moment
from planner.core.knowledge.workload import Workload
from planner.core.placement import placing
from spillway.addresses import Tombstone
from spillway.events import Event
from spillway.feasibility.cluster_view import WorkloadKey


class StepKind(Enum):
    """The kind of a step, as far as logs and counters tell steps apart."""

    MOVED = auto()
    TAKEN_BACK = auto()
    WAITS_FOR_MISSING = auto()
    OTHER = auto()


Subject = WorkloadKey | str
"""The workload that a decision is about, or the name of a step that is about the fleet."""
T = TypeVar("T")


class DecisionGuard(Protocol):
    """Runs decisions so that an error in one affects only its subject (docs/adr/0031, docs/adr/0037)."""

    def __call__(self, subject: Subject, decide: Callable[[], T], /) -> T | None:
        """Returns the decision. Returns None when it meets an error, and while its subject is paused after an error."""
        ...


@dataclass(frozen=True, slots=True)
class RoundStep:
    """One step of a round.

    kind: for logs and counters.
    events: to be applied and written together; empty when nothing changed.
    subject: the workload or fleet step for which no decision is made for a while if the events cannot be written.
    cause: why replicas moved.
    replicas: by cluster, the replicas that are taken back or that wait for a missing object.
    """

    kind: StepKind
    events: Sequence[Event | Tombstone]
    subject: Subject
    cause: str = ""
    replicas: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DecisionClock:
    """The clock of a round.

    now: returns the seconds of a steady clock. next: returns the moment of the next decision, with a new generation.
    """

    now: Callable[[], float]
    next: Callable[[], Moment]


class RoundMemory:
    """The values that one turn keeps from round to round. Each turn begins with a new, empty memory."""

    def __init__(self, pace: HeadroomPace) -> None:
        """Begins without memory. pace: how often headroom is reported."""
        self.homing = Homing()
        self.lent_homes = LentHomes()
        self.headrooms = Headrooms(pace)


def run_unguarded(_: Subject, decide: Callable[[], T]) -> T:
    """Runs the decision without a guard, so that its errors are raised. It is for tests and simulations."""
    return decide()


def apply_events(state: PlannerState, events: Iterable[Event | Tombstone], now: float) -> None:
    """Applies decided events to the state. now: seconds of a steady clock."""
    for event in events:
        if isinstance(event, Tombstone):
            state.apply_tombstone(event.address.topic.name, event.address.key)
        else:
            state.apply_event(event, now)


def retry_workloads(state: PlannerState, subjects: Iterable[Subject]) -> None:
    """Makes workloads due again for which no decision was made for a while. Fleet steps come in every round anyway."""
    for key in subjects:
        if not isinstance(key, str) and key in state.workloads:
            state.waiting.retry_workload(key)
            state.rollouts.retry_workload(key)
            state.scalings.index_workload(key, state.workloads[key])


def steps_of_round(
    state: PlannerState,
    memory: RoundMemory,
    moments: DecisionClock,
    guard: DecisionGuard = run_unguarded,
    awaited: Mapping[str, int] = aftermath.NONE_AWAITED,
) -> Iterator[RoundStep]:
    """Yields the steps of one round.

    awaited: by cluster, the highest priority of the requests that wait for binds there. Waiting workloads may have to
    wait for those requests (`aftermath.next_waiting_workloads`).
    """
    time = RoundTime(moments.now, state.rules)
    guard("timers", partial(aftermath.update_progress_timers, state, moments.now()))
    yield from _steps_in_time(time.next_share(), _hand_over_steps(state, moments, guard))
    moment, share = moments.next(), time.next_share()
    all_known = guard("look for moves", partial(moves.look_for_moves, state, moment.now, share)) is True
    yield _fleet_step(guard, "brakes", partial(_update_confirmations, state, memory, moment, all_known))
    if all_known:
        yield from _steps_in_time(time.next_share(), _move_steps(state, moment, moments, guard))
    yield from _steps_in_time(time.next_share(), _take_back_steps(state, moments, guard))
    yield from _steps_in_time(time.next_share(), _missing_object_steps(state, moments, guard))
    share = time.next_share()
    yield from _steps_in_time(share, _retry_steps(state, moments, guard, awaited, share))
    yield from _steps_in_time(time.next_share(), _rollout_steps(state, moments, guard))
    if all_known:
        share = time.next_share()
        yield from _steps_in_time(share, _home_steps(state, memory, moments, guard, share))
    yield _fleet_step(
        guard,
        "lent homes",
        partial(memory.lent_homes.update_home_needs, state, memory.homing.overflowed, moments.next()),
    )
    yield _fleet_step(guard, "needs", partial(aftermath.lowered_capacity_needs, state, moments.next()))
    yield from _steps_in_time(time.next_share(), _settle_steps(state, moments, guard))
    yield _fleet_step(guard, "clusters that left", partial(moves.clusters_that_left, state))
    yield _fleet_step(guard, "API servers", partial(newly_known_api_servers, state.clusters))
    yield _fleet_step(guard, "headroom", partial(memory.headrooms.report_due_headroom, state, moments.next()))


def steps_before_requests(
    state: PlannerState,
    moments: DecisionClock,
    lowest: int | None,
    guard: DecisionGuard = run_unguarded,
    awaited: Mapping[str, int] = aftermath.NONE_AWAITED,
) -> Iterator[RoundStep]:
    """Yields the steps before the next group of requests: waiting workloads of a higher priority get free room first.

    lowest: the lowest priority among these requests; None without requests. A waiting workload is tried before them
    only if its priority is higher. awaited: as in steps_of_round.
    """
    highest = state.waiting.highest_priority
    if lowest is None or highest is None or highest <= lowest:
        return
    share = RoundTime(moments.now, state.rules).next_share()
    yield from _steps_in_time(share, _retry_steps(state, moments, guard, awaited, share, above=lowest))


def _steps_in_time(share: TimeShare, steps: Iterable[RoundStep]) -> Iterator[RoundStep]:
    """Yields at least one step, and further ones while there is time. The next round takes those that are left."""
    for step in steps:
        yield step
        if share.is_over():
            return


def _workload_step(
    guard: DecisionGuard, key: WorkloadKey, decide: Callable[[], AftermathStep], kind: StepKind = StepKind.OTHER
) -> RoundStep:
    """Returns the step of one workload; without events when its decision failed."""
    step = guard(key, decide)
    return RoundStep(kind, (), key) if step is None else RoundStep(kind, step.events, key, step.cause)


def _fleet_step(guard: DecisionGuard, name: str, decide: Callable[[], Sequence[Event | Tombstone]]) -> RoundStep:
    """Returns a step that is not about one workload."""
    return RoundStep(StepKind.OTHER, guard(name, decide) or (), name)


def _hand_over_steps(state: PlannerState, moments: DecisionClock, guard: DecisionGuard) -> Iterator[RoundStep]:
    for workload, twin in guard("twins", partial(twins.workloads_to_hand_over, state)) or ():
        over = partial(twins.hand_over_step, state, workload, twin, moments.next())
        yield _workload_step(guard, workload.workload_key, over, StepKind.MOVED)


def _move_steps(
    state: PlannerState, moment: Moment, moments: DecisionClock, guard: DecisionGuard
) -> Iterator[RoundStep]:
    """Yields the steps of moves without a request by name, as far as the brakes allow them."""
    for workload in guard("moves", partial(moves.workloads_due_to_move, state, moment.now, state.brakes)) or ():
        move = partial(moves.next_move_step, state, workload, moments.next(), state.brakes)
        yield _workload_step(guard, workload.workload_key, move, StepKind.MOVED)


def _retry_steps(
    state: PlannerState,
    moments: DecisionClock,
    guard: DecisionGuard,
    awaited: Mapping[str, int],
    share: TimeShare,
    above: int | None = None,
) -> Iterator[RoundStep]:
    found = partial(aftermath.next_waiting_workloads, state, moments.now(), awaited, above, share)
    due = guard("waiting workloads", found)
    while due is not None and (workload := guard("waiting workloads", partial(_next_of, due))) is not None:
        yield _workload_step(
            guard,
            workload.workload_key,
            partial(aftermath.retry_waiting_workload, state, workload, moments.next(), state.brakes),
        )


def _next_of(workloads: Iterator[Workload]) -> Workload | None:
    return next(workloads, None)


def _rollout_steps(state: PlannerState, moments: DecisionClock, guard: DecisionGuard) -> Iterator[RoundStep]:
    for key in guard("rollouts", partial(state.rollouts.take_due_workloads, state.rules.replans_max)) or ():
        yield _workload_step(
            guard, key, partial(aftermath.continue_rollout, state, state.workloads[key], moments.next())
        )


def _home_steps(
    state: PlannerState, memory: RoundMemory, moments: DecisionClock, guard: DecisionGuard, share: TimeShare
) -> Iterator[RoundStep]:
    for workload in guard("homes", partial(memory.homing.workloads_going_home, state, moments.now(), share)) or ():
        memory.homing.note_tried(workload.workload_key)
        home = partial(memory.homing.send_home_step, state, workload, moments.next(), state.brakes)
        yield _workload_step(guard, workload.workload_key, home, StepKind.MOVED)


def _settle_steps(state: PlannerState, moments: DecisionClock, guard: DecisionGuard) -> Iterator[RoundStep]:
    """Yields the steps of workloads that lose parts. Each goes to the end, so the next round begins with the others."""
    for key in list(state.leaving):
        state.leaving[key] = state.leaving.pop(key)
        yield _workload_step(guard, key, partial(aftermath.settle_workload, state, key, moments.next()))


def _update_confirmations(
    state: PlannerState, memory: RoundMemory, moment: Moment, all_known: bool
) -> Sequence[Event | Tombstone]:
    """Counts the replicas that causes would move. Until all are known no cause is counted, so none moves anything."""
    wanted = {**moves.wanted_moves_by_cause(state, moment.now), **memory.homing.wanted} if all_known else {}
    return state.brakes.update_confirmations(
        wanted, state.fleet_replicas() if wanted else 0, moment.now, moment.wall_ms
    )


def _take_back_steps(state: PlannerState, moments: DecisionClock, guard: DecisionGuard) -> Iterator[RoundStep]:
    """Takes back replicas that did not bind."""
    moment, brakes = moments.next(), state.brakes
    for workload, counts in (
        guard("take-backs", lambda: list(aftermath.workloads_to_take_back(state, moment, brakes))) or ()
    ):
        at = moments.next()
        aftermath.hold_clusters(state, workload, counts, at.now)
        taken = guard(workload.workload_key, partial(placing.take_back_replicas, state, workload, counts, at))
        events = taken.events if taken is not None else ()
        yield RoundStep(StepKind.TAKEN_BACK, events, workload.workload_key, replicas=counts)


def _missing_object_steps(state: PlannerState, moments: DecisionClock, guard: DecisionGuard) -> Iterator[RoundStep]:
    """A part that lacks an object waits for it and reserves nothing."""
    later, brakes = moments.next(), state.brakes
    lacking = guard("missing objects", lambda: list(aftermath.workloads_lacking_objects(state, later, brakes)))
    for workload, counts, missing in lacking or ():
        waits = guard(
            workload.workload_key,
            partial(placing.await_missing_objects, state, workload, counts, missing, moments.next()),
        )
        events = waits.events if waits is not None else ()
        yield RoundStep(StepKind.WAITS_FOR_MISSING, events, workload.workload_key, replicas=counts)
