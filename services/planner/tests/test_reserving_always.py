"""Whatever is written, said and shown late: room is held for every pod that decisions have made in a cluster."""

from dataclasses import dataclass, field, replace

from hypothesis import given
from hypothesis import strategies as st

from planner.core.knowledge.workload import NOT_CREATED
from planner.core.placement.shares import ceiling_before_change
from spillway.events import STATE_PRESENT, PlacementDecided, TurnTaken, WorkloadObserved
from spillway.model import Generation, Part

from .builders import Fleet, node_row, workload_facts
from .test_aftermath import WEB, apply_to_fleet, apply_workload

CLUSTER = "own-1"


@dataclass
class Object:
    """pods: there are as many as its controller made when it looked last, none of them bound."""

    version: Generation
    spec: int
    pods: int = 0
    observed: bool = False


@dataclass
class Owner:
    """A propagator. read: the place of the newest placement that it knows. found: the object as it read it last."""

    epoch: int
    read: int = 0
    sequence: int = 0
    found: Object | None = None


@dataclass
class World:
    """One part of web, the object that propagators make of it, and what the planner hears of both, and when.

    words: what was said, and that the planner has yet to read, in the order of the log.
    """

    fleet: Fleet = field(default_factory=lambda: Fleet(own_1=[node_row("n1", cpu=64000)]))
    placements: list[Part] = field(default_factory=list)
    object: Object | None = None
    owners: list[Owner] = field(default_factory=lambda: [Owner(2)])
    words: list[WorkloadObserved] = field(default_factory=list)

    def __post_init__(self) -> None:
        apply_workload(self.fleet, 3)
        self.placements.append(self.newest_part)

    @property
    def newest_part(self) -> Part:
        return self.fleet.state.workloads[WEB].parts[CLUSTER]

    def decide_replicas(self, replicas: int) -> None:
        before, version = self.newest_part, self.fleet.next_moment().generation
        ceiling = max(replicas, ceiling_before_change(self.fleet.state, WEB, before, CLUSTER))
        part = replace(before, version=version, replicas=replicas, ceiling=ceiling)
        placed = self.fleet.state.workloads[WEB].placement
        assert placed is not None
        apply_to_fleet(self.fleet, [PlacementDecided(*WEB, version, placed.workload_generation, (part,), 0, "")])
        self.placements.append(part)

    def write_object(self, behind: int) -> None:
        """The present owner makes the object as it knows the part: so many decisions behind, never behind itself."""
        owner, part = self.owners[-1], self._known_part(self.owners[-1], behind)
        if self.object is not None and self.object.version >= part.version:
            return
        self.object = Object(part.version, part.replicas, self.object.pods if self.object is not None else 0)
        self._send_status(owner, part, STATE_PRESENT)

    def refuse_object(self, state: str, behind: int) -> None:
        """The present owner reads the object, and then says why it is not made."""
        self._send_status(self.owners[-1], self._known_part(self.owners[-1], behind), state)

    def send_late_status(self, state: str) -> None:
        """An owner whose turn is over knows every decision, and the object as it was in its turn."""
        if len(self.owners) > 1:
            self._send_status(self.owners[0], self.placements[-1], state)

    def take_over_turn(self) -> None:
        """Whoever takes over has read all that was decided; the claim comes to the planner before what follows it."""
        owner = Owner(self.owners[-1].epoch + 10, len(self.placements) - 1)
        self.owners = [self.owners[-1], owner]
        self.fleet.state.apply_event(TurnTaken("propagator", CLUSTER, "next"), self.fleet.now, offset=owner.epoch)

    def make_pods(self) -> None:
        if self.object is not None:
            self.object.pods, self.object.observed = self.object.spec, True

    def report_object(self) -> None:
        found = self.object
        if found is not None:
            shown = workload_facts(found.version, spec=found.spec, status=found.pods, observed=found.observed)
            self.fleet.report_change(CLUSTER, shown=[shown])

    def read_statuses(self) -> None:
        apply_to_fleet(self.fleet, self.words)
        self.words.clear()

    def check_reservation(self) -> None:
        found = self.fleet.state.reservation_of(WEB, CLUSTER)
        assert found.free + found.new >= self.newest_part.replicas or self.object is not None
        if self.object is not None:
            assert found.free + found.new >= max(self.object.pods, self.object.spec), (self.object, self.newest_part)

    def _known_part(self, owner: Owner, behind: int) -> Part:
        owner.read = max(owner.read, len(self.placements) - 1 - behind)
        return self.placements[owner.read]

    def _send_status(self, owner: Owner, part: Part, state: str) -> None:
        if owner is self.owners[-1]:
            owner.found = replace(self.object) if self.object is not None else None
        owner.sequence += 1
        found = owner.found
        spec, pods = (found.spec, found.pods) if found is not None else (0, 0)
        said = WorkloadObserved(
            *WEB, CLUSTER, owner.epoch, owner.sequence, part.version, state, "", spec, pods, 0, 0, 0
        )
        version = found.version if found is not None and state != STATE_PRESENT else None
        self.words.append(replace(said, found_version=version))


STATES = st.sampled_from(NOT_CREATED)
DECIDE, BEHIND = st.tuples(st.just("decide_replicas"), st.sampled_from((1, 2, 9))), st.sampled_from((0, 0, 1))
STEPS = st.one_of(
    DECIDE,
    st.tuples(st.just("write_object"), BEHIND),
    st.tuples(st.just("refuse_object"), STATES, st.just(0)),
    *(st.tuples(st.just(name)) for name in ("make_pods", "report_object", "read_statuses")),
)
"""What happens in one owner's turn."""
TAKEN_OVER = st.tuples(st.just("take_over_turn"))
LATE = st.one_of(DECIDE, st.tuples(st.just("send_late_status"), STATES), STEPS)
STORIES = st.one_of(
    st.lists(STEPS, min_size=6, max_size=20),
    st.builds(lambda one, over, other: [*one, over, *other], st.lists(STEPS, max_size=5), TAKEN_OVER, st.lists(LATE)),
)


@given(STORIES)
def test_room_is_held_for_every_pod_that_a_decision_made(steps: list[tuple[object, ...]]) -> None:
    world = World()
    for name, *arguments in steps:
        getattr(world, str(name))(*arguments)
        world.check_reservation()


@given(STORIES, STATES)
def test_once_all_is_heard_and_shown_a_refusal_leaves_what_is_there(
    steps: list[tuple[object, ...]], state: str
) -> None:
    world = World()
    for name, *arguments in steps:
        getattr(world, str(name))(*arguments)
    world.refuse_object(state, 0)
    world.make_pods()
    world.report_object()
    world.words = world.words[-1:]
    world.read_statuses()
    found = world.fleet.state.reservation_of(WEB, CLUSTER)
    expected = max(world.newest_part.replicas, world.object.spec if world.object is not None else 0)
    assert found.free + found.new == expected
