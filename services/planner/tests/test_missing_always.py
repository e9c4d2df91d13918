"""What holds of workloads whose Secret is missing, late or deleted, whatever else happens."""

from hypothesis import given
from hypothesis import strategies as st

from spillway.events import PHASE_ACTIVE, PHASE_CORDONED, PHASE_DRAINING

from .missing_world import SHOP, TICK, WEB, WITH_KEY, Key, MissingWorld

CORES = {"own_1": 6, "own_2": 4, "cloud_1": 10}
CLUSTERS = st.sampled_from(tuple(name.replace("_", "-") for name in CORES))
STEPS = st.one_of(
    st.tuples(st.just("time"), st.integers(1, 40)),
    st.tuples(st.just("time"), st.just(70)),
    st.tuples(st.just("secret"), CLUSTERS, st.booleans()),
    st.tuples(st.just("told"), CLUSTERS),
    st.tuples(st.just("work"), CLUSTERS),
    st.tuples(st.just("silent"), CLUSTERS, st.booleans()),
    st.tuples(st.just("scale"), st.sampled_from((WEB, SHOP)), st.integers(0, 14)),
    st.tuples(st.just("phase"), CLUSTERS, st.sampled_from((PHASE_ACTIVE, PHASE_CORDONED, PHASE_DRAINING))),
    st.tuples(st.just("another planner")),
)


class AlwaysMissing(MissingWorld):
    """Checks every look of the planner. lacking_since: of each cluster that reserves for what it lacks, since when.
    waited: the template's one minute is over: no cluster reserves for it again, whichever, whoever plans.
    """

    def __init__(self) -> None:
        super().__init__(**CORES)
        self.lacking_since: dict[str, float] = {}
        self.waited = False
        self.apply_workload(SHOP, 4)
        self.apply_workload(WEB, 8, WITH_KEY)

    def run_planner_round(self) -> None:
        super().run_planner_round()
        self.check_placements()

    def check_placements(self) -> None:
        for key in (WEB, SHOP):
            workload = self.find_workload(key)
            kept = sum(part.replicas_kept for part in workload.parts.values())
            assert kept + workload.unplaced == workload.declared.replicas
            assert self.reserved_and_counted(key) <= workload.declared.replicas + self.replicas_on_their_way(key), (
                key,
                workload.placement,
            )
        self._check_reserved_time()
        self.waited = self.waited or "DependencyMissing" in self.causes

    def _check_reserved_time(self) -> None:
        state = self.fleet.state
        for name, member in self.members.items():
            said = self.find_workload().statuses.get(name)
            waits = said is not None and said.state == "DependencyMissing" and not member.silent
            if not waits or not state.reservation_of(WEB, name).free:
                self.lacking_since.pop(name, None)
                continue
            since = self.lacking_since.setdefault(name, self.fleet.now)
            most = 0.0 if self.waited else state.rules.missing_after
            assert self.fleet.now - since <= most + 2 * TICK, name

    def start_another_planner(self) -> None:
        super().start_another_planner()
        self.lacking_since.clear()
        self.check_placements()


def take_story_step(world: AlwaysMissing, step: tuple[object, ...]) -> None:
    match step:
        case ("time", int(seconds)):
            world.run_seconds(seconds)
        case ("secret", str(cluster), there):
            world.members[cluster].has = bool(there)
        case ("told", str(cluster)):
            world.report_admitted_shape(cluster)
        case ("work", str(cluster)):
            world.run_cluster(cluster)
        case ("silent", str(cluster), silent):
            world.members[cluster].silent = bool(silent)
        case ("scale", tuple(key), int(replicas)):
            world.scale_workload((str(key[0]), str(key[1])), replicas)
        case ("phase", str(cluster), str(phase)):
            world.set_phase(cluster, phase)
        case ("another planner",):
            world.start_another_planner()
    world.check_placements()


@given(st.lists(STEPS, min_size=4, max_size=16))
def test_what_is_missing_takes_no_room_for_long_and_all_run_once_it_is_there(steps: list[tuple[object, ...]]) -> None:
    world = AlwaysMissing()
    for step in steps:
        take_story_step(world, step)
    for name, member in world.members.items():
        member.has, member.silent = True, False
        world.set_phase(name, PHASE_ACTIVE)
        world.report_admitted_shape(name)
    world.run_seconds(400)
    _assert_all_run(world)


def _assert_all_run(world: AlwaysMissing) -> None:
    keys: tuple[Key, ...] = (WEB, SHOP)
    room = sum(CORES.values())
    asked = sum(world.find_workload(key).declared.replicas for key in keys)
    assert sum(sum(world.kept_by_cluster(key).values()) for key in keys) == min(room, asked)
    for member in world.members.values():
        for known in member.objects.values():
            assert known.bound == known.replicas
    for key in keys:
        assert not any(part.missing for part in world.find_workload(key).parts.values())
