"""What holds of moves whatever happens: losses, returns, drains, scales, late news, pods that come and go."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from hypothesis import given
from hypothesis import strategies as st

from planner.core.background.round import RoundMemory, RoundStep, steps_of_round
from planner.core.knowledge.brakes import Brakes
from planner.core.knowledge.rules import PlannerRules
from planner.core.knowledge.workload import Workload
from planner.core.placement.replaying import replay_division
from planner.core.requests import decisions
from planner.settings import PlannerSettings
from spillway.addresses import Tombstone
from spillway.api import ApplyRequest, ScaleRequest
from spillway.events import (
    PHASE_ACTIVE,
    PHASE_CORDONED,
    PHASE_DRAINING,
    PHASE_LEAVING,
    PHASE_LOST,
    STATE_ABSENT,
    STATE_PRESENT,
    BrakeReleased,
    BrakeSet,
    ClusterLeft,
    DecisionRecorded,
    Event,
    WorkloadObserved,
)
from spillway.model import Generation, Part, WorkloadFacts
from spillway.scopes import cluster_scope

from .builders import Fleet, container, deployment, node, policy, template, texts
from .test_moves import TROUBLE

Key = tuple[str, str]
CORES = {"own-1": 8, "own-2": 6, "cloud-1": 12}
SIZES = {("default", "web"): 1, ("default", "big"): 2}
UNBOUND = PlannerRules(moves_per_minute=1e12, home_moves_per_minute=1e12, confirm_over_replicas=2**31)
"""As many moves at once as there are, without confirmations."""


@dataclass
class Object:
    """What a cluster has of a workload: ready ≤ bound ≤ replicas."""

    version: Generation
    replicas: int = 0
    bound: int = 0
    ready: int = 0

    def scale(self, replicas: int) -> None:
        """Of too many, a ReplicaSet removes those that are not bound first, then those that are not ready."""
        self.replicas = replicas
        self.bound = min(self.bound, replicas)
        self.ready = min(self.ready, replicas)


@dataclass
class Member:
    cores: int
    silent: bool = False
    objects: dict[Key, Object] = field(default_factory=dict)

    def bind(self) -> None:
        for key, known in self.objects.items():
            free = self.cores - sum(other.bound * SIZES[name] for name, other in self.objects.items())
            known.bound += min(known.replicas - known.bound, max(0, free // SIZES[key]))


class World:
    """Members, and a planner that knows of them what they said last. Every step of the planner is checked.

    That pods are ready may be heard late, that they are not is heard at once: against that nothing helps.
    """

    def __init__(self, rules: PlannerRules = UNBOUND) -> None:
        self.fleet = Fleet(own_1=[node("a", 8000)], own_2=[node("a", 6000)], cloud_1=[node("a", 12_000)])
        self.members = {name: Member(cores) for name, cores in CORES.items()}
        self.fleet.state.rules, self.fleet.state.brakes = rules, Brakes(rules)
        self.memory = RoundMemory(PlannerSettings().pace())
        self.sequence = 0
        limits = {"web": [{"cluster": "own-2", "max": 4}], "big": [{"cluster": "cloud-1", "min": 1}]}
        for (_, name), size in SIZES.items():
            manifest = deployment(4, name, template(container(cpu=str(size))))
            loss = {"after": "60s"}
            request = ApplyRequest(texts(manifest, policy(limits=limits[name], onClusterLoss=loss)))
            self.keep(decisions.decide_apply(self.fleet.state, request, self.fleet.moment()).events)
        for cluster in CORES:
            self.work(cluster)

    def work(self, cluster: str) -> None:
        """A cluster does what it was told, and says so."""
        self.carry_out(cluster)
        self.ready(cluster, 99)
        self.report(cluster)

    def keep(self, events: Iterable[Event | Tombstone]) -> None:
        """What leaves joins again at once: the world goes on with the clusters that it has."""
        for event in events:
            if isinstance(event, Tombstone):
                self.fleet.state.apply_tombstone(event.address.topic.name, event.address.key)
                continue
            if isinstance(event, ClusterLeft):
                continue
            if isinstance(event, DecisionRecorded) and event.division:
                assert replay_division(event).differences == (), "a recorded division comes out again"
            self.fleet.state.apply_event(event, self.fleet.now)

    def workloads(self) -> list[Workload]:
        return list(self.fleet.state.workloads.values())

    # ── What happens ────────────────────────────────────────────────────────────────────────────────────────────

    def scale(self, key: Key, replicas: int) -> None:
        self.keep(decisions.decide_scale(self.fleet.state, ScaleRequest(*key, replicas), self.fleet.moment()).events)

    def set_phase(self, cluster: str, phase: str) -> None:
        joined = self.fleet.state.clusters[cluster].joined
        assert joined is not None
        self.keep((replace(joined, phase=phase),))

    def freeze(self, cluster: str, *, on: bool) -> None:
        scope = cluster_scope(cluster)
        self.keep((BrakeSet(scope, "", "ann", 1) if on else BrakeReleased(scope, "ann", 1),))

    def carry_out(self, cluster: str) -> None:
        member = self.members[cluster]
        if member.silent:
            return
        for workload in self.workloads():
            part = workload.parts.get(cluster)
            if part is None:
                continue
            known = member.objects.setdefault(workload.key, Object(part.version))
            known.version = part.version
            known.scale(part.replicas)

    def report(self, cluster: str) -> None:
        """One record of this instant, then the statuses."""
        member = self.members[cluster]
        if member.silent:
            return
        used = sum(known.bound * SIZES[key] for key, known in member.objects.items())
        shown = [_facts(key, known) for key, known in member.objects.items() if known.replicas]
        gone = [key for key, known in member.objects.items() if not known.replicas]
        rows = [node("a", member.cores * 1000, used=used * 1000)]
        self.fleet.change(cluster, rows, shown=shown, facts_removed=gone)
        for key, known in member.objects.items():
            self.sequence += 1
            state = STATE_PRESENT if known.replicas else STATE_ABSENT
            numbers = (known.replicas, known.replicas, known.replicas, known.ready, known.ready)
            self.keep((WorkloadObserved(*key, cluster, 1, self.sequence, known.version, state, "", *numbers),))

    def beat(self, cluster: str) -> None:
        if self.members[cluster].silent:
            age = self.fleet.state.clusters[cluster].age_seconds(self.fleet.now) or 0
            self.fleet.change(cluster, age_ms=int(age * 1000), trouble=TROUBLE)
        else:
            self.fleet.change(cluster)

    def ready(self, cluster: str, more: int) -> None:
        member = self.members[cluster]
        if not member.silent:
            member.bind()
        for known in member.objects.values():
            known.ready = max(0, min(known.bound, known.ready + more))
        if more < 0:
            self.report(cluster)

    def come_back_empty(self, cluster: str) -> None:
        for known in self.members[cluster].objects.values():
            known.bound = known.ready = 0

    def pass_time(self, seconds: float) -> None:
        """Collectors speak every few seconds."""
        steps = int(seconds) // 20 + 1
        for _ in range(steps):
            self.fleet.now += seconds / steps
            for cluster in CORES:
                self.report(cluster)
            self.tick()

    # ── The planner's look ──────────────────────────────────────────────────────────────────────────────────────

    def tick(self) -> int:
        """Returns how many events there were."""
        for cluster in CORES:
            self.beat(cluster)
        return sum(map(self.step, steps_of_round(self.fleet.state, self.memory, self.fleet.moments())))

    def step(self, step: RoundStep) -> int:
        events = [event for event in step.events if not isinstance(event, ClusterLeft)]
        if not events:
            return 0
        before = {workload.key: self.available(workload) for workload in self.workloads()}
        kept_before = {workload.key: _kept(workload) for workload in self.workloads()}
        self.keep(events)
        for workload in self.workloads():
            kept = _kept(workload)
            leaving = sum(self.leaving_bound(workload, part) for part in workload.parts.values())
            assert kept >= kept_before[workload.key] or not leaving, "what leaves has lost its replacement"
            assert kept + workload.unplaced == workload.declared.replicas
            for part in workload.parts.values():
                assert min(part.replicas_kept, part.replicas_lost, part.replicas_leaving) >= 0
                assert part.removing == (part.replicas == 0)
            if not self.is_given_up(workload):
                assert self.available(workload) >= min(kept, before[workload.key])
        for cluster, member in self.members.items():
            promised = sum(
                workload.parts[cluster].replicas * SIZES[workload.key]
                for workload in self.workloads()
                if cluster in workload.parts
            )
            assert promised <= member.cores
        return len(events)

    def leaving_bound(self, workload: Workload, part: Part) -> int:
        return max(0, part.replicas_leaving - self.fleet.state.unbound_replicas(workload, part))

    def available(self, workload: Workload) -> int:
        """What would be ready in clusters that answer, were the placement carried out now."""
        return sum(
            min(self.ready_pods(workload, part), part.replicas)
            for part in workload.parts.values()
            if self.fleet.state.is_fresh(part.cluster, self.fleet.now)
        )

    def ready_pods(self, workload: Workload, part: Part) -> int:
        known = self.members[part.cluster].objects.get(workload.key)
        return known.ready if known is not None else 0

    def is_given_up(self, workload: Workload) -> bool:
        """A person said of a cluster that it will not return: what is there counts no more."""
        return any(view.phase == PHASE_LOST for view in self.fleet.state.clusters.values())

    def run_out(self) -> None:
        """All members answer and do what they are told: the steps end, and nothing is on its way."""
        for cluster, member in self.members.items():
            member.silent = False
            if self.fleet.state.clusters[cluster].phase == PHASE_LOST:
                self.set_phase(cluster, PHASE_ACTIVE)
                for key in member.objects.keys() - set(self.fleet.state.workload_keys_in(cluster)):
                    member.objects[key].scale(0)  # Somebody removed what was left there.
                self.report(cluster)
        for cluster in CORES:
            self.freeze(cluster, on=False)
        quiet = 0
        for _ in range(400):
            for cluster in CORES:
                self.work(cluster)
            self.fleet.now += 10
            quiet = 0 if self.tick() else quiet + 1
            if quiet > 40:  # Longer than any hold.
                return
        raise AssertionError("the steps do not end")


def _facts(key: Key, known: Object) -> WorkloadFacts:
    counted = (("h", known.bound),) if known.bound else ()
    return WorkloadFacts(
        *key, known.version, "u", known.replicas, True, known.replicas, known.replicas, known.ready, counted
    )


CLUSTERS = st.sampled_from(tuple(CORES))
STEPS = st.one_of(
    st.tuples(st.just("time"), st.integers(1, 90)),
    st.tuples(st.just("silent"), CLUSTERS),
    st.tuples(st.just("back"), CLUSTERS, st.booleans()),
    st.tuples(
        st.just("phase"), CLUSTERS, st.sampled_from((PHASE_ACTIVE, PHASE_CORDONED, PHASE_DRAINING, PHASE_LEAVING))
    ),
    st.tuples(st.just("phase"), CLUSTERS, st.just(PHASE_LOST)),
    st.tuples(st.just("freeze"), CLUSTERS, st.booleans()),
    st.tuples(st.just("scale"), st.sampled_from(tuple(SIZES)), st.integers(0, 16)),
    st.tuples(st.just("phase"), CLUSTERS, st.just(PHASE_DRAINING)),
    st.tuples(st.just("work"), CLUSTERS),
    st.tuples(st.just("carry out"), CLUSTERS),
    st.tuples(st.just("report"), CLUSTERS),
    st.tuples(st.just("ready"), CLUSTERS, st.integers(-3, 9)),
)


def happen(world: World, step: tuple[object, ...]) -> None:
    match step:
        case ("time", int(seconds)):
            world.pass_time(seconds)
        case ("silent", str(cluster)):
            world.members[cluster].silent = True
        case ("back", str(cluster), empty):
            if world.members[cluster].silent and empty:
                world.come_back_empty(cluster)
            world.members[cluster].silent = False
            world.report(cluster)
        case ("phase", str(cluster), str(phase)):
            if phase != PHASE_LOST or world.members[cluster].silent:  # Refused of a cluster that answers.
                world.set_phase(cluster, phase)
        case ("freeze", str(cluster), on):
            world.freeze(cluster, on=bool(on))
        case ("scale", tuple(key), int(replicas)):
            world.scale((str(key[0]), str(key[1])), replicas)
        case ("work", str(cluster)):
            world.work(cluster)
        case ("carry out", str(cluster)):
            world.carry_out(cluster)
        case ("report", str(cluster)):
            world.report(cluster)
        case ("ready", str(cluster), int(more)):
            world.ready(cluster, more)


@given(st.lists(STEPS, min_size=10, max_size=30))
def test_whatever_happens_nothing_is_doubled_lost_or_left_hanging(steps: list[tuple[object, ...]]) -> None:
    """All that is kept or waits is what was asked for, no cluster is promised more than it has, what is available does
    not fall below what is kept. When all is well again the steps end, with as many ready as have a place."""
    world = World()
    for step in steps:
        happen(world, step)
        world.tick()
    world.run_out()
    for workload in world.workloads():
        phases = {name: view.phase for name, view in world.fleet.state.clusters.items()}
        for part in workload.parts.values():
            assert part.replicas_lost == 0
            assert part.replicas_leaving == 0 or workload.unplaced, phases
        ready = world.available(workload)
        assert ready == workload.declared.replicas - workload.unplaced


def _kept(workload: Workload) -> int:
    return sum(part.replicas_kept for part in workload.parts.values())
