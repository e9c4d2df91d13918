"""What the planner does without a request, and in which order.

The leader and the test worlds ask for the steps of a round. A step is decided on the state that the steps before have
left. So the caller applies the events of a step before it asks for the next step.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from typing import Protocol

from planner.core.background import aftermath, duplicates, moves
from planner.core.background.headroom import Headrooms, Pace
from planner.core.background.homing import Homing
from planner.core.background.lent_homes import LentHomes
from planner.core.knowledge.all_clusters import newly_known
from planner.core.knowledge.state import PlannerState
from planner.core.knowledge.subject import Moment
from planner.core.placement import placing
from spillway.addresses import Tombstone
from spillway.events import Event
from spillway.feasibility.cluster_view import WorkloadKey


class StepKind(Enum):
    """What a step is, as far as logs and counters tell steps apart."""

    MOVED = auto()
    TAKEN_BACK = auto()
    WAITS_FOR_MISSING = auto()
    OTHER = auto()


class Decided(Protocol):
    """The result of a decision."""

    @property
    def events(self) -> Sequence[Event | Tombstone]: ...


Guard = Callable[[WorkloadKey, Callable[[], Decided]], Sequence[Event | Tombstone]]
"""Runs a workload's decision and returns its events; no events when the decision meets a bug (docs/adr/0031)."""


@dataclass(frozen=True, slots=True)
class RoundStep:
    """One step of a round.

    kind: for logs and counters. events: to be applied and written together; empty when nothing changed. key: the
    workload, if the step is about one. cause: why replicas moved. replicas: by cluster, the replicas that are taken
    back or that wait for a missing object.
    """

    kind: StepKind
    events: Sequence[Event | Tombstone]
    key: WorkloadKey = ("", "")
    cause: str = ""
    replicas: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Moments:
    """now: seconds of a steady clock. next: the moment of the next decision, with its own generation."""

    now: Callable[[], float]
    next: Callable[[], Moment]


class Memory:
    """What a round remembers of earlier rounds. A new leader begins with a new memory."""

    def __init__(self, pace: Pace) -> None:
        """pace: how often headroom is told."""
        self.homing = Homing()
        self.lent_homes = LentHomes()
        self.headrooms = Headrooms(pace)


def unguarded(_: WorkloadKey, decide: Callable[[], Decided]) -> Sequence[Event | Tombstone]:
    """The guard of tests: a bug raises."""
    return decide().events


def apply_events(state: PlannerState, events: Iterable[Event | Tombstone], now: float) -> None:
    """Applies what was decided to the state that it was decided on. now: seconds of a steady clock."""
    for event in events:
        if isinstance(event, Tombstone):
            state.apply_tombstone(event.address.topic.name, event.address.key)
        else:
            state.apply(event, now)


def retry_workloads(state: PlannerState, keys: Iterable[WorkloadKey]) -> None:
    """Marks workloads to be looked at again that were left alone for a while."""
    for key in filter(state.workloads.__contains__, keys):
        state.waiting.retry(key)
        state.rollouts.retry(key)


def steps_of_round(
    state: PlannerState, memory: Memory, moments: Moments, guard: Guard = unguarded, undecided: bool = False
) -> Iterator[RoundStep]:
    """Yields the steps of one round.

    undecided: whether requests wait for binds. Waiting workloads may have to wait for those requests
    (`aftermath.next_waiting`).
    """
    aftermath.watch(state, moments.now())
    yield from _moves(state, memory, moments)
    yield from _take_backs(state, moments, guard)
    yield from _tried_again(state, moments, guard, undecided)
    for key in state.rollouts.due(state.rules.replans_max):
        on = partial(aftermath.roll_on, state, state.workloads[key], moments.next())
        yield RoundStep(StepKind.OTHER, guard(key, on), key)
    for workload in memory.homing.due(state, moments.now()):
        step = memory.homing.next_step(state, workload, moments.next(), state.brakes)
        yield RoundStep(StepKind.MOVED, step.events, step.key, step.cause)
    yield RoundStep(StepKind.OTHER, memory.lent_homes.step(state, memory.homing.overflowed, moments.next()))
    yield RoundStep(StepKind.OTHER, aftermath.needs_met(state, moments.next()))
    for key in list(state.leaving):
        settled = partial(aftermath.settle, state, key, moments.next())
        yield RoundStep(StepKind.OTHER, guard(key, settled), key)
    yield RoundStep(StepKind.OTHER, moves.left(state))
    yield RoundStep(StepKind.OTHER, newly_known(state.clusters))
    yield RoundStep(StepKind.OTHER, memory.headrooms.step(state, moments.next()))


def steps_before_requests(
    state: PlannerState, moments: Moments, lowest: int | None, guard: Guard = unguarded, undecided: bool = False
) -> Iterator[RoundStep]:
    """Yields the steps that come before the requests of a group: free room goes to the higher priority first.

    lowest: the lowest priority among the requests that are decided next; None without requests. A waiting workload is
    tried before them only if its priority is higher. undecided: as in steps_of_round.
    """
    highest = state.waiting.highest_priority
    if lowest is None or highest is None or highest <= lowest:
        return
    yield from _tried_again(state, moments, guard, undecided, above=lowest)


def _tried_again(
    state: PlannerState, moments: Moments, guard: Guard, undecided: bool, above: int | None = None
) -> Iterator[RoundStep]:
    for workload in aftermath.next_waiting(state, moments.now(), undecided, above):
        again = partial(aftermath.try_again, state, workload, moments.next(), state.brakes)
        yield RoundStep(StepKind.OTHER, guard(workload.key, again), workload.key)


def _moves(state: PlannerState, memory: Memory, moments: Moments) -> Iterator[RoundStep]:
    """Moves that nobody asked for by name, as far as the brakes allow them."""
    moment = moments.next()
    for step in duplicates.steps(state, moments.next):
        yield RoundStep(StepKind.MOVED, step.events, step.key, step.cause)
    wanted = {**moves.wanted(state, moment.now), **memory.homing.wanted}
    asked = state.brakes.step(wanted, state.fleet_replicas() if wanted else 0, moment.now, moment.wall_ms)
    yield RoundStep(StepKind.OTHER, asked)
    for workload in moves.due(state, moment.now, state.brakes):
        step = moves.next_step(state, workload, moments.next(), state.brakes)
        yield RoundStep(StepKind.MOVED, step.events, step.key, step.cause)


def _take_backs(state: PlannerState, moments: Moments, guard: Guard) -> Iterator[RoundStep]:
    """Takes back replicas that did not bind. A part that lacks an object waits for it and reserves nothing."""
    for workload, counts in list(aftermath.take_backs(state, moments.next(), state.brakes)):
        moment = moments.next()
        aftermath.hold(state, workload, counts, moment.now)
        taken = guard(workload.key, partial(placing.take_back, state, workload, counts, moment))
        yield RoundStep(StepKind.TAKEN_BACK, taken, workload.key, replicas=counts)
    for workload, counts, missing in list(aftermath.lack_what_they_need(state, moments.next(), state.brakes)):
        waits = partial(placing.await_missing, state, workload, counts, missing, moments.next())
        yield RoundStep(StepKind.WAITS_FOR_MISSING, guard(workload.key, waits), workload.key, replicas=counts)
