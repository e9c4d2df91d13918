"""What holds of moves whatever happens: losses, returns, drains, scales, late news, pods that come and go."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import pytest
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

from .builders import Fleet, container_spec, deployment, manifest_texts, node_row, placement_policy, pod_template
from .test_moves import TROUBLE

Key = tuple[str, str]
CORES = {"own-1": 8, "own-2": 6, "cloud-1": 12}
SIZES = {("default", "web"): 1, ("default", "big"): 2}
UNBOUND = PlannerRules(moves_per_minute=1e12, home_moves_per_minute=1e12, confirm_over_replicas=2**31)
"""As many moves at once as there are, without confirmations."""
ONE_AT_A_TIME = replace(UNBOUND, round_seconds=0, round_kind_seconds=0)
"""A round has time for one workload of each kind of work."""


@dataclass
class Object:
    """What a cluster has of a workload: ready ≤ bound ≤ replicas."""

    version: Generation
    replicas: int = 0
    bound: int = 0
    ready: int = 0

    def scale_object(self, replicas: int) -> None:
        """Of too many, a ReplicaSet removes those that are not bound first, then those that are not ready."""
        self.replicas = replicas
        self.bound = min(self.bound, replicas)
        self.ready = min(self.ready, replicas)


@dataclass
class Member:
    cores: int
    silent: bool = False
    objects: dict[Key, Object] = field(default_factory=dict)

    def bind_pods(self) -> None:
        for key, known in self.objects.items():
            free = self.cores - sum(other.bound * SIZES[name] for name, other in self.objects.items())
            known.bound += min(known.replicas - known.bound, max(0, free // SIZES[key]))


class World:
    """Members, and a planner that knows of them what they said last. Every step of the planner is checked.

    That pods are ready may be heard late, that they are not is heard at once: against that nothing helps.
    """

    def __init__(self, rules: PlannerRules = UNBOUND) -> None:
        self.fleet = Fleet(own_1=[node_row("a", 8000)], own_2=[node_row("a", 6000)], cloud_1=[node_row("a", 12_000)])
        self.members = {name: Member(cores) for name, cores in CORES.items()}
        self.fleet.state.rules, self.fleet.state.brakes = rules, Brakes(rules)
        self.memory = RoundMemory(PlannerSettings().headroom_pace())
        self.sequence = 0
        limits = {"web": [{"cluster": "own-2", "max": 4}], "big": [{"cluster": "cloud-1", "min": 1}]}
        for (_, name), size in SIZES.items():
            manifest = deployment(4, name, pod_template(container_spec(cpu=str(size))))
            loss = {"after": "60s"}
            request = ApplyRequest(manifest_texts(manifest, placement_policy(limits=limits[name], onClusterLoss=loss)))
            self.apply_events(decisions.decide_apply(self.fleet.state, request, self.fleet.next_moment()).events)
        for cluster in CORES:
            self.run_cluster(cluster)

    def run_cluster(self, cluster: str) -> None:
        """A cluster does what it was told, and says so."""
        self.carry_out_parts(cluster)
        self.change_ready_pods(cluster, 99)
        self.report_cluster(cluster)

    def apply_events(self, events: Iterable[Event | Tombstone]) -> None:
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

    def known_workloads(self) -> list[Workload]:
        return list(self.fleet.state.workloads.values())

    # ── What happens ────────────────────────────────────────────────────────────────────────────────────────────

    def scale_workload(self, key: Key, replicas: int) -> None:
        self.apply_events(
            decisions.decide_scale(self.fleet.state, ScaleRequest(*key, replicas), self.fleet.next_moment()).events
        )

    def set_phase(self, cluster: str, phase: str) -> None:
        joined = self.fleet.state.clusters[cluster].joined
        assert joined is not None
        self.apply_events((replace(joined, phase=phase),))

    def set_freeze(self, cluster: str, *, on: bool) -> None:
        scope = cluster_scope(cluster)
        self.apply_events((BrakeSet(scope, "", "ann", 1) if on else BrakeReleased(scope, "ann", 1),))

    def carry_out_parts(self, cluster: str) -> None:
        member = self.members[cluster]
        if member.silent:
            return
        for workload in self.known_workloads():
            part = workload.parts.get(cluster)
            if part is None:
                continue
            known = member.objects.setdefault(workload.workload_key, Object(part.version))
            known.version = part.version
            known.scale_object(part.replicas)

    def report_cluster(self, cluster: str) -> None:
        """One record of this instant, then the statuses."""
        member = self.members[cluster]
        if member.silent:
            return
        used = sum(known.bound * SIZES[key] for key, known in member.objects.items())
        shown = [_workload_facts(key, known) for key, known in member.objects.items() if known.replicas]
        gone = [key for key, known in member.objects.items() if not known.replicas]
        rows = [node_row("a", member.cores * 1000, used=used * 1000)]
        self.fleet.report_change(cluster, rows, shown=shown, facts_removed=gone)
        for key, known in member.objects.items():
            self.sequence += 1
            state = STATE_PRESENT if known.replicas else STATE_ABSENT
            numbers = (known.replicas, known.replicas, known.replicas, known.ready, known.ready)
            self.apply_events((WorkloadObserved(*key, cluster, 1, self.sequence, known.version, state, "", *numbers),))

    def send_heartbeat(self, cluster: str) -> None:
        if self.members[cluster].silent:
            age = self.fleet.state.clusters[cluster].age_seconds(self.fleet.now) or 0
            self.fleet.report_change(cluster, age_ms=int(age * 1000), trouble=TROUBLE)
        else:
            self.fleet.report_change(cluster)

    def change_ready_pods(self, cluster: str, more: int) -> None:
        member = self.members[cluster]
        if not member.silent:
            member.bind_pods()
        for known in member.objects.values():
            known.ready = max(0, min(known.bound, known.ready + more))
        if more < 0:
            self.report_cluster(cluster)

    def empty_cluster(self, cluster: str) -> None:
        for known in self.members[cluster].objects.values():
            known.bound = known.ready = 0

    def pass_time(self, seconds: float) -> None:
        """Collectors speak every few seconds."""
        steps = int(seconds) // 20 + 1
        for _ in range(steps):
            self.fleet.now += seconds / steps
            for cluster in CORES:
                self.report_cluster(cluster)
            self.run_planner_round()

    # ── The planner's look ──────────────────────────────────────────────────────────────────────────────────────

    def run_planner_round(self) -> int:
        """Returns how many events there were."""
        for cluster in CORES:
            self.send_heartbeat(cluster)
        return sum(
            map(self.check_and_apply_step, steps_of_round(self.fleet.state, self.memory, self.fleet.decision_clock()))
        )

    def check_and_apply_step(self, step: RoundStep) -> int:
        events = [event for event in step.events if not isinstance(event, ClusterLeft)]
        if not events:
            return 0
        before = {workload.workload_key: self.available_replicas(workload) for workload in self.known_workloads()}
        kept_before = {workload.workload_key: _kept_replicas(workload) for workload in self.known_workloads()}
        self.apply_events(events)
        for workload in self.known_workloads():
            kept = _kept_replicas(workload)
            leaving = sum(self.bound_leaving_replicas(workload, part) for part in workload.parts.values())
            assert kept >= kept_before[workload.workload_key] or not leaving, "what leaves has lost its replacement"
            assert kept + workload.unplaced == workload.declared.replicas
            for part in workload.parts.values():
                assert min(part.replicas_kept, part.replicas_lost, part.replicas_leaving) >= 0
                assert part.removing == (part.replicas == 0)
            if not self.has_lost_cluster(workload):
                assert self.available_replicas(workload) >= min(kept, before[workload.workload_key])
        for cluster, member in self.members.items():
            promised = sum(
                workload.parts[cluster].replicas * SIZES[workload.workload_key]
                for workload in self.known_workloads()
                if cluster in workload.parts
            )
            assert promised <= member.cores
        return len(events)

    def bound_leaving_replicas(self, workload: Workload, part: Part) -> int:
        return max(0, part.replicas_leaving - self.fleet.state.unbound_replicas(workload, part))

    def available_replicas(self, workload: Workload) -> int:
        """What would be ready in clusters that answer, were the placement carried out now."""
        return sum(
            min(self.ready_pods(workload, part), part.replicas)
            for part in workload.parts.values()
            if self.fleet.state.is_fresh(part.cluster, self.fleet.now)
        )

    def ready_pods(self, workload: Workload, part: Part) -> int:
        known = self.members[part.cluster].objects.get(workload.workload_key)
        return known.ready if known is not None else 0

    def has_lost_cluster(self, workload: Workload) -> bool:
        """A person said of a cluster that it will not return: what is there counts no more."""
        return any(view.phase == PHASE_LOST for view in self.fleet.state.clusters.values())

    def run_until_settled(self) -> None:
        """All members answer and do what they are told: the steps end, and nothing is on its way."""
        for cluster, member in self.members.items():
            member.silent = False
            if self.fleet.state.clusters[cluster].phase == PHASE_LOST:
                self.set_phase(cluster, PHASE_ACTIVE)
                for key in member.objects.keys() - set(self.fleet.state.workload_keys_in(cluster)):
                    member.objects[key].scale_object(0)  # Somebody removed what was left there.
                self.report_cluster(cluster)
        for cluster in CORES:
            self.set_freeze(cluster, on=False)
        quiet = 0
        for _ in range(400):
            for cluster in CORES:
                self.run_cluster(cluster)
            self.fleet.now += 10
            quiet = 0 if self.run_planner_round() else quiet + 1
            if quiet > 40:  # Longer than any hold.
                return
        raise AssertionError("the steps do not end")


def _workload_facts(key: Key, known: Object) -> WorkloadFacts:
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


def take_story_step(world: World, step: tuple[object, ...]) -> None:
    match step:
        case ("time", int(seconds)):
            world.pass_time(seconds)
        case ("silent", str(cluster)):
            world.members[cluster].silent = True
        case ("back", str(cluster), empty):
            if world.members[cluster].silent and empty:
                world.empty_cluster(cluster)
            world.members[cluster].silent = False
            world.report_cluster(cluster)
        case ("phase", str(cluster), str(phase)):
            if phase != PHASE_LOST or world.members[cluster].silent:  # Refused of a cluster that answers.
                world.set_phase(cluster, phase)
        case ("freeze", str(cluster), on):
            world.set_freeze(cluster, on=bool(on))
        case ("scale", tuple(key), int(replicas)):
            world.scale_workload((str(key[0]), str(key[1])), replicas)
        case ("work", str(cluster)):
            world.run_cluster(cluster)
        case ("carry out", str(cluster)):
            world.carry_out_parts(cluster)
        case ("report", str(cluster)):
            world.report_cluster(cluster)
        case ("ready", str(cluster), int(more)):
            world.change_ready_pods(cluster, more)


@pytest.mark.parametrize("rules", [UNBOUND, ONE_AT_A_TIME], ids=["time-for-all", "time-for-one-of-each-kind"])
@given(steps=st.lists(STEPS, min_size=10, max_size=30))
def test_whatever_happens_nothing_is_doubled_lost_or_left_hanging(
    rules: PlannerRules, steps: list[tuple[object, ...]]
) -> None:
    """All that is kept or waits is what was asked for, no cluster is promised more than it has, what is available does
    not fall below what is kept. When all is well again the steps end, with as many ready as have a place."""
    world = World(rules)
    for step in steps:
        take_story_step(world, step)
        world.run_planner_round()
    world.run_until_settled()
    for workload in world.known_workloads():
        phases = {name: view.phase for name, view in world.fleet.state.clusters.items()}
        for part in workload.parts.values():
            assert part.replicas_lost == 0
            assert part.replicas_leaving == 0 or workload.unplaced, phases
        ready = world.available_replicas(workload)
        assert ready == workload.declared.replicas - workload.unplaced


def _kept_replicas(workload: Workload) -> int:
    return sum(part.replicas_kept for part in workload.parts.values())
