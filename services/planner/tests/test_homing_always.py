"""What holds of overflow that goes home whatever happens: losses, drains, brakes, loads that come and go, late news."""

from collections.abc import Callable, Mapping

from hypothesis import example, given, settings
from hypothesis import strategies as st

from planner.core.background.homing import LOOK_SECONDS, Homing
from planner.core.background.overflow import first_tier_by_cluster
from planner.core.background.round import RoundStep
from planner.core.knowledge.allowance import CAUSE_HOME
from planner.core.knowledge.round_time import UNLIMITED_TIME, TimeShare
from planner.core.knowledge.rules import PlannerRules
from planner.core.knowledge.state import PlannerState
from planner.core.knowledge.workload import Workload
from spillway.events import PHASE_ACTIVE, PHASE_DRAINING, BrakeReleased, BrakeSet, ConfirmationAsked, ConfirmationGiven
from spillway.model import Part

from .test_moves_always import CORES, STEPS, Key, World, take_story_step

RULES = PlannerRules(home_after=40, home_moves_per_minute=3, confirm_over_replicas=2)
SCOPES = ("fleet", "workload/default/web", *(f"cluster/{name}" for name in CORES))


class Watched(Homing):
    """Tells that it is about to look."""

    def __init__(self, tell: Callable[[], None]) -> None:
        super().__init__()
        self._tell = tell

    def workloads_going_home(self, state: PlannerState, now: float, time: TimeShare = UNLIMITED_TIME) -> list[Workload]:
        self._tell()
        return super().workloads_going_home(state, now, time)


class HomingAlways(World):
    """Every decision to go home is checked as it is made, against rooms and moves that are written down here."""

    def __init__(self) -> None:
        super().__init__(RULES)
        self.memory.homing = Watched(self.note_rooms)
        self.rooms: dict[tuple[str, Key], list[tuple[float, int]]] = {}
        self.went: list[tuple[float, int]] = []
        self.began = self.fleet.now
        self.confirmed = True

    def run_planner_round(self) -> int:
        """What happens is there at a look: a room that went and came back between two counts as having been there."""
        self.fleet.now += LOOK_SECONDS
        return super().run_planner_round()

    def check_and_apply_step(self, step: RoundStep) -> int:
        if step.cause != CAUSE_HOME or not step.events:
            count = super().check_and_apply_step(step)
            self.give_confirmations(step)
            return count
        assert not isinstance(step.subject, str)
        workload = self.fleet.state.workloads[step.subject]
        before = workload.parts
        self.check_before_move(workload)
        count = super().check_and_apply_step(step)
        self.check_after_move(workload, before)
        return count

    def give_confirmations(self, step: RoundStep) -> None:
        for event in step.events:
            if isinstance(event, ConfirmationAsked) and (self.confirmed or event.cause != CAUSE_HOME):
                self.apply_events((ConfirmationGiven(event.scope, "ann", 1),))

    def note_rooms(self) -> None:
        state, now = self.fleet.state, self.fleet.now
        for workload in self.known_workloads():
            for cluster in CORES:
                room = state.room_in_cluster(cluster, workload.replica_shape, False, now, workload.workload_key).certain
                self.rooms.setdefault((cluster, workload.workload_key), []).append((now, room))

    def least_room_held(self, cluster: str, key: Key) -> int:
        """The least room of the last home_after seconds; 0 when it is not known for so long."""
        seen, start = self.rooms[cluster, key], self.fleet.now - RULES.home_after
        first = max((at for at, _ in seen if at <= start), default=None)
        return 0 if first is None else min(room for at, room in seen if at >= first)

    def check_before_move(self, workload: Workload) -> None:
        assert not workload.unplaced
        for other in self.known_workloads():
            for cluster in CORES if other.unplaced else ():
                free = self.fleet.state.room_in_cluster(
                    cluster, other.replica_shape, False, self.fleet.now, other.workload_key
                ).certain
                limit = {entry.cluster: entry.replicas_max for entry in other.declared.policy.limits}.get(cluster, -1)
                full = 0 <= limit <= (other.parts[cluster].replicas_kept if cluster in other.parts else 0)
                assert not free or full, "who waits is placed before anybody goes home"

    def check_after_move(self, workload: Workload, before: Mapping[str, Part]) -> None:
        state, key, policy = self.fleet.state, workload.workload_key, workload.declared.policy
        kept = {name: part.replicas_kept for name, part in workload.parts.items()}
        was = {name: part.replicas_kept for name, part in before.items()}
        more = {name: count - was.get(name, 0) for name, count in kept.items() if count > was.get(name, 0)}
        fewer = {name: count - kept.get(name, 0) for name, count in was.items() if count > kept.get(name, 0)}
        (source, count), *others = fewer.items()
        assert not others
        assert sum(more.values()) == count
        assert workload.parts[source].replicas == before[source].replicas, "none leaves before it is replaced"
        tiers = first_tier_by_cluster(policy, state.joined_clusters())
        margin = max(1, -(-workload.declared.replicas // 10))
        assert sum(self.least_room_held(name, key) for name in tiers if tiers[name] < tiers[source]) >= count + margin
        for name, arrived in more.items():
            assert tiers[name] < tiers[source]
            assert state.clusters[name].phase == PHASE_ACTIVE
            assert self.least_room_held(name, key) >= arrived
        assert not any(state.brakes.is_frozen(name, key) for name in (*more, source))
        self.went.append((self.fleet.now, count))
        recent = sum(gone for at, gone in self.went if self.fleet.now - at < 60)
        assert recent <= RULES.home_moves_per_minute
        assert self.fleet.now >= self.began + 60

    def release_brakes(self) -> None:
        self.confirmed = True
        self.apply_events(tuple(BrakeReleased(scope, "ann", 1) for scope in SCOPES))
        for scope, asked in list(self.fleet.state.brakes.asked.items()):
            self.apply_events((ConfirmationGiven(scope, "ann", asked.at_ms),))

    def overflow_in_cloud(self) -> int:
        """How many kept replicas there are in the cloud, beyond minima."""
        return sum(
            max(0, part.replicas_kept - least)
            for workload in self.known_workloads()
            for part in workload.parts.values()
            for least in (1 if workload.workload_key[1] == "big" else 0,)
            if part.cluster == "cloud-1"
        )

    def free_home_rooms(self) -> list[int]:
        """Of each workload, how many more would fit at home beside the margin, were it to overflow."""
        found = []
        for workload in self.known_workloads():
            limits = {entry.cluster: entry.replicas_max for entry in workload.declared.policy.limits}
            free = 0
            for name in ("own-1", "own-2"):
                kept = workload.parts[name].replicas_kept if name in workload.parts else 0
                room = self.fleet.state.room_in_cluster(
                    name, workload.replica_shape, False, self.fleet.now, workload.workload_key
                ).certain
                free += min(room, max(0, limits.get(name, 99) - kept)) if limits.get(name, -1) >= 0 else room
            margin = max(1, -(-workload.declared.replicas // 10))
            least = 1 if workload.workload_key[1] == "big" else 0
            cloud = workload.parts["cloud-1"].replicas_kept - least if "cloud-1" in workload.parts else 0
            found.append(min(max(0, cloud), max(0, free - margin)))
        return found


MORE_STEPS = st.one_of(
    STEPS.filter(lambda step: step[0] != "freeze"),
    st.tuples(st.just("time"), st.integers(30, 120)),
    st.tuples(st.just("work"), st.sampled_from(tuple(CORES))),
    st.tuples(st.just("load"), st.sampled_from((2, 14, 16, 6)), st.sampled_from((0, 1, 4))),
    st.tuples(st.just("brake"), st.sampled_from(SCOPES), st.booleans()),
    st.tuples(st.just("confirm"), st.booleans()),
)


def take_homing_step(world: HomingAlways, step: tuple[object, ...]) -> None:
    match step:
        case ("load", int(web), int(big)):
            world.scale_workload(("default", "web"), web)
            world.scale_workload(("default", "big"), big)
            for cluster in CORES:
                world.run_cluster(cluster)
        case ("brake", str(scope), on):
            world.apply_events((BrakeSet(scope, "", "ann", 1) if on else BrakeReleased(scope, "ann", 1),))
        case ("confirm", on):
            world.confirmed = bool(on)
        case _:
            take_story_step(world, step)


OVERFLOW_BEFORE_A_MINIMUM = [
    ("silent", "own-1"),
    ("silent", "cloud-1"),
    ("phase", "own-1", "Draining"),
    ("time", 60),
    ("load", 16, 1),
]
"""Who lacks of its minimum in the cloud waits for room that the overflow of another has, which may go home."""
GONE_FOR_A_WHILE = [
    ("scale", ("default", "web"), 0),
    ("time", 1),
    ("time", 1),
    ("load", 14, 4),
    ("time", 73),
    ("load", 6, 0),
]
"""Room at home is gone for ten seconds, from a scale until clusters say that what it takes is gone, and back then."""

HELD_FROM_ONE_ALONE = [
    ("time", 1),
    ("scale", ("default", "big"), 0),
    ("phase", "own-1", PHASE_DRAINING),
    ("carry out", "own-2"),
    *[("time", 1)] * 6,
]
"""What was taken back at home is held from it there for a while, and not from others of its shape."""


@given(st.lists(MORE_STEPS, min_size=10, max_size=30))
@example([("time", 1)] * 5 + OVERFLOW_BEFORE_A_MINIMUM)
@example([("time", 1)] * 4 + GONE_FOR_A_WHILE)
@example(HELD_FROM_ONE_ALONE)
@settings(max_examples=max(1, settings().max_examples * 2 // 5))  # Each is a story of 30 steps at most, and then rest.
def test_whatever_happens_going_home_is_safe_and_ends(steps: list[tuple[object, ...]]) -> None:
    """Each decision is checked as it is made. Then, with the same load and room, at most as many more as there are
    overflowed replicas, and when none comes any more none could."""
    world = HomingAlways()
    for step in steps:
        take_homing_step(world, step)
        world.run_planner_round()
    world.release_brakes()
    world.run_until_settled()
    for name in CORES:
        world.set_phase(name, PHASE_ACTIVE)
    world.run_until_settled()
    assert not any(
        free
        for free, workload in zip(world.free_home_rooms(), world.known_workloads(), strict=True)
        if not workload.unplaced and workload.workload_key not in world.fleet.state.misplaced
    )
    before, steady = world.overflow_in_cloud(), len(world.went)
    events = 0
    for _ in range(30):
        for cluster in CORES:
            world.run_cluster(cluster)
        world.fleet.now += 10
        events += world.run_planner_round()
    assert (events, len(world.went), world.overflow_in_cloud()) == (0, steady, before)
