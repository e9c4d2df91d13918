"""Failover, Return, Drain, Policy, Lost: who moves, what stays available meanwhile, and what is said of what waits."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from planner.core.background import aftermath, moves
from planner.core.knowledge.allowance import UnlimitedAllowance
from planner.core.knowledge.state import PlannerState
from planner.core.requests import braking, decisions
from spillway.addresses import Tombstone
from spillway.api import ApplyRequest, DeleteRequest, ScaleRequest
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
    ConfirmationGiven,
    DecisionRecorded,
    Event,
    WorkloadObserved,
)
from spillway.feasibility.cluster_view import WorkloadKey
from spillway.model import NO_GENERATION, Part

from .builders import Fleet, deployment, facts, node, policy, texts

WEB = ("default", "web")
TROUBLE = "probe: timeout: no answer within 5 s"
AFTER = 300.0


class Brakes(UnlimitedAllowance):
    """allowed: what may still move by cause and cluster, spent as it moves; all where nothing is said."""

    def __init__(self) -> None:
        self.allowed: dict[tuple[str, str], int] = {}
        self.frozen_clusters: set[str] = set()

    @property
    def revision(self) -> int:
        return hash(frozenset(self.frozen_clusters))

    def allow_replicas(self, cause: str, cluster: str, key: WorkloadKey, replicas: int) -> int:
        return 0 if cluster in self.frozen_clusters else min(replicas, self.allowed.get((cause, cluster), replicas))

    def spend_budget(self, cause: str, cluster: str, key: WorkloadKey, replicas: int) -> None:
        if (cause, cluster) in self.allowed:
            self.allowed[cause, cluster] -= replicas

    def is_frozen(self, cluster: str, key: WorkloadKey) -> bool:
        return cluster in self.frozen_clusters


class Members:
    """A fleet whose clusters carry out what is placed. silent: those that only their collectors speak of, in trouble.

    ready: how many pods of the workload run in a cluster; all that are asked for unless it is said.
    """

    def __init__(self, **clusters: int) -> None:
        self.fleet = Fleet(**{name: [node("a", cores * 1000)] for name, cores in clusters.items()})
        self.cores = {name.replace("_", "-"): cores for name, cores in clusters.items()}
        self.brakes = Brakes()
        self.silent: set[str] = set()
        self.ready: dict[str, int] = {}
        self.bound: dict[str, int] = dict.fromkeys(self.cores, 0)
        self.decided: list[DecisionRecorded] = []
        self.sequence = 0

    @property
    def state(self) -> PlannerState:
        return self.fleet.state

    def keep(self, events: tuple[Event | Tombstone, ...]) -> None:
        for event in events:
            assert not isinstance(event, Tombstone)
            if isinstance(event, DecisionRecorded):
                self.decided.append(event)
            self.state.apply_event(event, self.fleet.now)
        workload = self.state.workloads[WEB]
        kept = sum(part.replicas_kept for part in workload.parts.values())
        assert kept + workload.unplaced == workload.declared.replicas

    def apply(self, replicas: int, **spec: Any) -> None:
        request = ApplyRequest(texts(deployment(replicas), policy(**spec)))
        self.keep(decisions.decide_apply(self.state, request, self.fleet.moment()).events)

    def scale(self, replicas: int) -> None:
        self.keep(decisions.decide_scale(self.state, ScaleRequest("", "web", replicas), self.fleet.moment()).events)

    def phase(self, cluster: str, phase: str) -> None:
        joined = self.state.clusters[cluster].joined
        assert joined is not None
        self.state.apply_event(replace(joined, phase=phase), self.fleet.now)

    def carry_out(self) -> None:
        """Every cluster that answers has what its part says, and shows it."""
        workload = self.state.workloads[WEB]
        for cluster, part in workload.parts.items():
            if cluster in self.silent:
                continue
            running = min(part.replicas, self.ready.get(cluster, part.replicas))
            self.bound[cluster] = running
            self.observe(part, running)
            shown = () if part.removing else (facts(part.version, running, spec=part.replicas, status=part.replicas),)
            gone = (WEB,) if part.removing else ()
            rows = [node("a", self.cores[cluster] * 1000, used=running * 1000)]
            self.fleet.change(cluster, rows, shown=shown, facts_removed=gone)

    def observe(self, part: Part, running: int, updated: int | None = None) -> None:
        """updated: of the newest template; all but for a roll."""
        self.sequence += 1
        state = STATE_ABSENT if part.removing else STATE_PRESENT
        newest = part.replicas if updated is None else updated
        numbers = (part.replicas, part.replicas, newest, running, running)
        event = WorkloadObserved(*WEB, part.cluster, 1, self.sequence, part.version, state, "", *numbers)
        self.state.apply_event(event, self.fleet.now)

    def pass_time(self, seconds: float) -> None:
        """Time passes in steps with a heartbeat each; what is due is done."""
        steps = max(1, round(seconds / 10))
        for _ in range(steps):
            self.fleet.now += seconds / steps
            self.tick()

    def tick_heartbeats(self) -> None:
        for cluster in self.cores:
            if cluster in self.silent:
                age = self.state.clusters[cluster].age_seconds(self.fleet.now) or 0
                self.fleet.change(cluster, age_ms=int(age * 1000), trouble=TROUBLE)
            else:
                self.fleet.change(cluster)

    def tick(self) -> int:
        """One look of the planner. Returns the number of its events."""
        self.tick_heartbeats()
        count = 0
        aftermath.update_progress_timers(self.state, self.fleet.now)
        for workload in moves.workloads_due_to_move(self.state, self.fleet.now, self.brakes):
            step = moves.next_move_step(self.state, workload, self.fleet.moment(), self.brakes)
            self.keep(step.events)
            count += len(step.events)
        for workload in aftermath.next_waiting_workloads(self.state, self.fleet.now):
            again = aftermath.retry_waiting_workload(self.state, workload, self.fleet.moment(), self.brakes)
            self.keep(again.events)
            count += len(again.events)
        for key in list(self.state.leaving):
            settled = aftermath.settle_workload(self.state, key, self.fleet.moment())
            self.keep(settled.events)
            count += len(settled.events)
        return count

    def brake(self, scope: str, reason: str) -> None:
        self.state.apply_event(BrakeSet(scope, reason, "ann", 1), self.fleet.now)

    def lose(self, cluster: str) -> None:
        """Its time by the policy passes, with nobody moving anything."""
        self.brakes.frozen_clusters.update(self.cores)
        self.silent.add(cluster)
        self.pass_time(AFTER + 10)
        self.brakes.frozen_clusters.clear()

    def step_brakes(self) -> int:
        """One look of the planner with the brakes of its own state. Returns the number of its events."""
        self.tick_heartbeats()
        now, brakes = self.fleet.now, self.state.brakes
        aftermath.update_progress_timers(self.state, now)
        for event in brakes.update_confirmations(
            moves.wanted_moves_by_cause(self.state, now), self.state.fleet_replicas(), now, 1
        ):
            self.state.apply_event(event, now)
        count = 0
        for workload in moves.workloads_due_to_move(self.state, now, brakes):
            step = moves.next_move_step(self.state, workload, self.fleet.moment(), brakes)
            self.keep(step.events)
            count += len(step.events)
        return count

    def settle(self) -> None:
        """Until nothing follows any more, and then once more with nothing to do."""
        for _ in range(50):
            self.carry_out()
            if not self.tick():
                assert self.tick() == 0
                return
        raise AssertionError("the steps do not end")

    def parts(self) -> dict[str, tuple[int, int, int]]:
        """kept, lost and leaving by cluster, of the parts that have any."""
        return {
            name: (part.replicas_kept, part.replicas_lost, part.replicas_leaving)
            for name, part in self.state.workloads[WEB].parts.items()
            if part.replicas
        }

    def causes(self) -> list[str]:
        """Of the moves; that what left is gone is none."""
        return [record.cause for record in self.decided if record.cause != "Settled"]

    @property
    def waiting_for(self) -> str:
        placement = self.state.workloads[WEB].placement
        assert placement is not None
        return str(placement.waiting_for)

    def version(self, cluster: str) -> Any:
        return self.state.workloads[WEB].parts[cluster].version


@pytest.fixture
def members() -> Members:
    """Six replicas run in a cluster of one's own; another has room for them."""
    members = Members(own_1=6, own_2=10)
    members.apply(6, limits=[{"cluster": "own-2", "max": 0}])
    members.settle()
    members.apply(6)
    members.settle()
    assert members.parts() == {"own-1": (6, 0, 0)}
    members.decided.clear()
    return members


# ── A cluster is lost ───────────────────────────────────────────────────────────────────────────────────────────


def test_what_a_lost_cluster_kept_is_replaced_elsewhere_after_the_policy_s_time(members: Members) -> None:
    version = members.version("own-1")
    members.silent.add("own-1")
    members.pass_time(AFTER - 10)
    assert members.parts() == {"own-1": (6, 0, 0)}
    members.pass_time(20)
    assert members.parts() == {"own-1": (0, 6, 0), "own-2": (6, 0, 0)}
    assert members.causes() == ["Failover"]
    assert members.version("own-1") == version
    assert members.tick() == 0


def test_a_policy_that_says_never_replaces_nothing() -> None:
    members = Members(own_1=6, cloud_1=6)
    members.apply(6, onClusterLoss={"after": "never"})
    members.settle()
    members.silent.add("own-1")
    members.pass_time(3600)
    assert members.parts() == {"own-1": (6, 0, 0)}


NOT_LOST: dict[str, Callable[[Members], None]] = {
    "its collector says nothing": lambda members: None,
    "it does not know us": lambda members: beat(members, "nodes: unauthorized: who are you?"),
    "it forbids us to look": lambda members: beat(members, "probe: forbidden: no"),
    "our credential cannot be read": lambda members: beat(members, "connect: credential: no such file"),
    "trouble that passes": lambda members: beat(members, TROUBLE if members.fleet.now % 100 else "", 40_000),
}


def beat(members: Members, trouble: str, age_ms: int = 1000_000) -> None:
    members.fleet.change("own-1", age_ms=age_ms, trouble=trouble)


@pytest.mark.parametrize("speak", NOT_LOST.values(), ids=NOT_LOST)
def test_a_cluster_is_not_lost_when(members: Members, speak: Callable[[Members], None]) -> None:
    del members.cores["own-1"]
    for _ in range(100):
        members.fleet.now += 10
        speak(members)
        members.tick()
    assert members.parts() == {"own-1": (6, 0, 0)}


def test_a_planner_that_takes_over_counts_the_age_of_the_capacity(members: Members) -> None:
    """The trouble is new to it, the collector says for how long nothing was sure."""
    del members.cores["own-1"]
    beat(members, TROUBLE, int(AFTER * 1000) - 1000)
    members.tick()
    assert members.parts() == {"own-1": (6, 0, 0)}
    beat(members, TROUBLE, int(AFTER * 1000))
    members.tick()
    assert members.parts() == {"own-1": (0, 6, 0), "own-2": (6, 0, 0)}


def test_what_finds_no_room_stays_is_named_and_moves_when_room_comes_up() -> None:
    members = Members(own_1=6, cloud_1=2)
    members.apply(6)
    members.settle()
    members.silent.add("own-1")
    members.pass_time(AFTER + 10)
    assert members.parts() == {"own-1": (4, 2, 0), "cloud-1": (2, 0, 0)}
    assert members.waiting_for.startswith("4 replicas of lost cluster own-1 wait for room elsewhere (")
    members.settle()
    members.cores["cloud-1"] = 5
    members.settle()
    assert members.parts() == {"own-1": (1, 5, 0), "cloud-1": (5, 0, 0)}
    members.cores["cloud-1"] = 9
    members.settle()
    assert members.parts() == {"own-1": (0, 6, 0), "cloud-1": (6, 0, 0)}
    assert members.waiting_for == ""


def test_no_more_move_than_the_brakes_let() -> None:
    members = Members(own_1=6, cloud_1=9)
    members.apply(6)
    members.settle()
    members.brakes.allowed["Failover", "own-1"] = 0
    members.silent.add("own-1")
    members.pass_time(AFTER + 20)
    assert members.parts() == {"own-1": (6, 0, 0)}
    assert moves.wanted_moves_by_cause(members.state, members.fleet.now) == {("Failover", "own-1"): 6}
    members.brakes.allowed["Failover", "own-1"] = 4
    members.tick()
    assert members.parts() == {"own-1": (2, 4, 0), "cloud-1": (4, 0, 0)}
    assert members.tick() == 0
    members.brakes.allowed["Failover", "own-1"] = 4
    members.tick()
    assert members.parts() == {"own-1": (0, 6, 0), "cloud-1": (6, 0, 0)}
    assert members.brakes.allowed["Failover", "own-1"] == 2
    assert moves.wanted_moves_by_cause(members.state, members.fleet.now) == {("Failover", "own-1"): 0}


HELD_BY: dict[str, tuple[Callable[[Members], None], str]] = {
    "a confirmation": (
        lambda members: members.phase("own-1", PHASE_DRAINING),
        "held: 12 replicas kept in own-1 wait for the confirmation of Drain/own-1",
    ),
    "a brake of the fleet": (
        lambda members: (members.brake("fleet", "audit"), members.phase("own-1", PHASE_DRAINING))[-1],
        "held: 12 replicas kept in own-1 wait for the brake of fleet: audit",
    ),
    "a brake of the workload, with no reason": (
        lambda members: (members.brake("workload/default/web", ""), members.phase("own-1", PHASE_LEAVING))[-1],
        "held: 12 replicas kept in own-1 wait for the brake of workload/default/web: no reason given",
    ),
    "the confirmation of a failover": (
        lambda members: members.lose("own-1"),
        "held: 12 replicas kept in own-1 wait for the confirmation of Failover/own-1",
    ),
}


@pytest.mark.parametrize(("happens", "text"), HELD_BY.values(), ids=HELD_BY)
def test_what_moves_wait_for_beside_room_is_named_once(happens: Callable[[Members], None], text: str) -> None:
    members = Members(own_1=12, cloud_1=20)
    members.apply(12)
    members.settle()
    happens(members)
    members.step_brakes()
    assert (members.waiting_for, members.parts()) == (text, {"own-1": (12, 0, 0)})
    assert members.step_brakes() == 0, "it is said once"
    members.phase("own-1", PHASE_ACTIVE)
    members.silent.clear()
    members.step_brakes()
    members.step_brakes()
    assert (members.waiting_for, members.parts()) == ("", {"own-1": (12, 0, 0)})


def test_a_return_that_waits_for_its_confirmation_is_named() -> None:
    members = Members(own_1=12, cloud_1=20)
    members.apply(12)
    members.settle()
    members.silent.add("own-1")
    members.pass_time(AFTER + 10)
    assert members.parts() == {"own-1": (0, 12, 0), "cloud-1": (12, 0, 0)}
    members.silent.clear()
    members.step_brakes()
    assert members.waiting_for == "held: 12 replicas lost in own-1 wait for the confirmation of Return/own-1"
    members.state.apply_event(ConfirmationGiven("Return/own-1", "ann", 1), members.fleet.now)
    members.fleet.now += 60
    members.step_brakes()
    assert members.waiting_for == ""


def test_one_replica_that_waits_is_one() -> None:
    members = Members(own_1=1)
    members.apply(1)
    members.settle()
    members.phase("own-1", PHASE_DRAINING)
    members.settle()
    assert members.waiting_for.startswith("1 replica of draining cluster own-1 waits for room elsewhere (own-1: ")


def test_a_tier_without_a_cluster_is_named(members: Members) -> None:
    members.apply(30)
    assert "; tier cloud: no cluster of the fleet is in this tier" in members.waiting_for


def test_a_frozen_cluster_keeps_what_it_has(members: Members) -> None:
    members.brakes.frozen_clusters.add("own-1")
    members.phase("own-1", PHASE_DRAINING)
    members.settle()
    assert members.parts() == {"own-1": (6, 0, 0)}
    members.apply(6, limits=[{"cluster": "own-1", "max": 2}])
    members.brakes.frozen_clusters.clear()
    members.settle()
    assert members.parts() == {"own-2": (6, 0, 0)}


@pytest.mark.parametrize("kind", ["StatefulSet", "Job"])
def test_what_would_be_doubled_does_not_move_by_itself(members: Members, kind: str) -> None:
    """Not even out of a cluster that is lost or drained; out of one that will not return it does."""
    workload = members.state.workloads[WEB]
    workload.declared = replace(workload.declared, kind=kind)
    members.phase("own-1", PHASE_DRAINING)
    members.silent.add("own-1")
    members.pass_time(2 * AFTER)
    assert members.parts() == {"own-1": (6, 0, 0)}
    members.phase("own-1", PHASE_LOST)
    members.settle()
    assert members.parts() == {"own-2": (6, 0, 0)}


def test_nothing_is_taken_back_where_it_is_frozen(members: Members) -> None:
    members.scale(8)
    members.ready["own-1"] = 3
    members.carry_out()
    members.fleet.now += 60
    members.fleet.beat()
    aftermath.update_progress_timers(members.state, members.fleet.now)
    members.fleet.now += 60
    members.fleet.beat()
    members.brakes.frozen_clusters.add("own-1")
    assert list(aftermath.workloads_to_take_back(members.state, members.fleet.moment(), members.brakes)) == []
    members.brakes.frozen_clusters.clear()
    taken = [
        counts for _, counts in aftermath.workloads_to_take_back(members.state, members.fleet.moment(), members.brakes)
    ]
    assert taken == [{"own-1": 3}]


def test_a_freeze_holds_what_a_new_policy_would_move(members: Members) -> None:
    frozen = BrakeSet("cluster/own-1", "", "me", 0)
    members.state.apply_event(frozen, members.fleet.now)
    members.brakes.frozen_clusters.add("own-1")
    members.apply(6, limits=[{"cluster": "own-1", "max": 0}])
    members.settle()
    assert members.parts() == {"own-1": (6, 0, 0)}
    members.state.apply_event(BrakeReleased("cluster/own-1", "me", 0), members.fleet.now)
    members.brakes.frozen_clusters.clear()
    members.settle()
    assert members.parts() == {"own-2": (6, 0, 0)}


# ── A lost cluster is back ──────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def failed_over(members: Members) -> Members:
    """own-1 is lost; own-2 has its six replicas, of which none is ready yet."""
    members.silent.add("own-1")
    members.ready["own-2"] = 0
    members.pass_time(AFTER + 10)
    members.carry_out()
    assert members.parts() == {"own-1": (0, 6, 0), "own-2": (6, 0, 0)}
    members.silent.clear()
    return members


def available(members: Members) -> int:
    """What runs in clusters that answer."""
    return sum(count for cluster, count in members.bound.items() if cluster not in members.silent)


def test_back_with_its_pods_alive_the_surplus_goes_only_once_the_others_are_available(failed_over: Members) -> None:
    members = failed_over
    members.brakes.allowed["Return", "own-1"] = 0
    members.tick()
    assert moves.wanted_moves_by_cause(members.state, members.fleet.now) == {("Return", "own-1"): 6}
    members.brakes.allowed["Return", "own-1"] = 6
    for ready in range(7):
        members.ready["own-2"] = ready
        members.settle()
        assert available(members) >= 6
    assert sum(kept for kept, _, _ in members.parts().values()) == 6
    assert all(not lost and not leaving for _, lost, leaving in members.parts().values())
    assert members.causes() == ["Failover", "Return"]


def test_back_and_empty_the_others_stay(failed_over: Members) -> None:
    """Its pods died with it, and make way before those that run elsewhere do."""
    members = failed_over
    members.ready |= {"own-1": 0, "own-2": 6}
    members.settle()
    assert members.parts() == {"own-2": (6, 0, 0)}
    assert available(members) == 6


def test_back_with_too_few_replicas_all_are_kept(failed_over: Members) -> None:
    members = failed_over
    members.silent.add("own-1")
    members.scale(14)
    members.settle()
    assert members.parts() == {"own-1": (0, 6, 0), "own-2": (10, 0, 0)}
    assert members.state.workloads[WEB].unplaced == 4
    members.silent.clear()
    members.settle()
    assert members.parts() == {"own-1": (6, 0, 0), "own-2": (8, 0, 2)}
    members.ready.clear()
    members.settle()
    assert members.parts() == {"own-1": (6, 0, 0), "own-2": (8, 0, 0)}


def test_a_part_of_what_was_lost_returns_when_the_budget_bears_no_more(failed_over: Members) -> None:
    members = failed_over
    members.ready["own-2"] = 6
    members.carry_out()
    members.brakes.allowed["Return", "own-1"] = 2
    members.tick()
    assert members.parts()["own-1"][1] == 4
    members.settle()
    assert members.parts()["own-1"][1] == 4
    assert moves.wanted_moves_by_cause(members.state, members.fleet.now) == {("Return", "own-1"): 4}
    members.brakes.allowed["Return", "own-1"] = 9
    members.settle()
    assert all(not lost and not leaving for _, lost, leaving in members.parts().values())


def test_what_returns_lets_nothing_else_move_past_its_budget() -> None:
    members = Members(own_1=30, own_2=10)
    members.apply(6, limits=[{"cluster": "own-2", "max": 0}])
    members.settle()
    members.apply(6)
    members.silent.add("own-1")
    members.pass_time(AFTER + 10)
    members.scale(20)
    members.settle()
    assert members.parts() == {"own-1": (0, 6, 0), "own-2": (10, 0, 0)}
    members.brakes.allowed["Drain", "own-2"] = 0
    members.phase("own-2", PHASE_DRAINING)
    members.silent.clear()
    members.settle()
    assert members.parts() == {"own-1": (10, 0, 0), "own-2": (10, 0, 0)}


def test_trouble_that_goes_on_is_no_return(failed_over: Members) -> None:
    """Fresh capacity beside trouble: one of its streams fails while another is heard."""
    members = failed_over
    members.silent.add("own-1")
    members.fleet.change("own-1", age_ms=0, trouble=TROUBLE)
    for workload in moves.workloads_due_to_move(members.state, members.fleet.now, members.brakes):
        members.keep(moves.next_move_step(members.state, workload, members.fleet.moment(), members.brakes).events)
    assert members.parts()["own-1"] == (0, 6, 0)


def test_a_scale_to_nothing_while_a_cluster_is_lost_reaches_it_when_it_is_back(failed_over: Members) -> None:
    members = failed_over
    members.silent.add("own-1")
    members.scale(2)
    assert members.parts()["own-1"] == (0, 2, 0)
    members.scale(0)
    members.settle()
    assert [part.cluster for part in members.state.workloads[WEB].parts.values() if part.removing] == ["own-1"]
    members.brakes.allowed["Return", "own-1"] = 0
    members.silent.clear()
    members.settle()
    assert members.state.workloads[WEB].parts == {}
    assert members.bound == {"own-1": 0, "own-2": 0}


def test_a_delete_while_a_cluster_is_lost_lists_it_until_it_says_absent(failed_over: Members) -> None:
    members = failed_over
    members.silent.add("own-1")
    members.keep(decisions.decide_delete(members.state, DeleteRequest("", "web"), members.fleet.moment()).events)
    members.settle()
    members.pass_time(3600)
    parts = members.state.workloads[WEB].parts
    assert {name: (part.replicas, part.removing) for name, part in parts.items()} == {"own-1": (0, True)}
    members.silent.clear()
    members.settle()
    assert members.state.workloads[WEB].parts == {}


# ── A cluster hands over ────────────────────────────────────────────────────────────────────────────────────────


def test_a_drained_cluster_empties_as_its_replacements_become_available(members: Members) -> None:
    members.phase("own-1", PHASE_DRAINING)
    members.ready["own-2"] = 0
    assert moves.wanted_moves_by_cause(members.state, members.fleet.now) == {("Drain", "own-1"): 6}
    members.settle()
    assert members.parts() == {"own-1": (0, 0, 6), "own-2": (6, 0, 0)}
    members.ready["own-2"] = 2
    members.settle()
    assert members.parts() == {"own-1": (0, 0, 4), "own-2": (6, 0, 0)}
    members.ready["own-2"] = 6
    members.settle()
    assert members.parts() == {"own-2": (6, 0, 0)}
    assert members.causes() == ["Drain"]


def test_what_leaves_several_clusters_waits_together_for_the_replacements() -> None:
    """One that became available lets one go, not one of each cluster."""
    members = Members(own_1=2, own_2=2, own_3=10)
    members.apply(4, limits=[{"cluster": "own-3", "max": 0}])
    members.settle()
    members.apply(4)
    members.ready["own-3"] = 0
    for drained in ("own-1", "own-2"):
        members.phase(drained, PHASE_DRAINING)
    members.settle()
    assert members.parts() == {"own-1": (0, 0, 2), "own-2": (0, 0, 2), "own-3": (4, 0, 0)}
    members.ready["own-3"] = 1
    members.settle()
    assert members.parts() == {"own-1": (0, 0, 1), "own-2": (0, 0, 2), "own-3": (4, 0, 0)}


def test_that_what_left_is_gone_is_recorded(members: Members) -> None:
    members.phase("own-1", PHASE_DRAINING)
    members.settle()
    settled = [record for record in members.decided if record.cause == "Settled"]
    (entry,) = settled[-1].inputs
    assert (entry.cluster, entry.before, entry.after) == ("own-1", 6, 0)
    assert entry.limited_by == "as many as are kept are available"


def test_what_does_not_run_in_a_drained_cluster_leaves_only_with_the_others(members: Members) -> None:
    """That it does not was heard a moment ago; it goes as soon as it would not be missed if it did."""
    members.ready |= {"own-1": 4, "own-2": 0}
    members.carry_out()
    members.phase("own-1", PHASE_DRAINING)
    members.settle()
    assert members.parts() == {"own-1": (0, 0, 6), "own-2": (6, 0, 0)}
    members.ready["own-2"] = 2
    members.settle()
    assert members.parts() == {"own-1": (0, 0, 4), "own-2": (6, 0, 0)}


def test_what_rolls_leaves_at_once_only_as_far_as_a_record_shows_that_it_has_not_bound(members: Members) -> None:
    """A record without the object, as while a watch is silent, counts no pod: all run there all the same."""
    members.ready["own-2"] = 0
    members.phase("own-1", PHASE_DRAINING)
    members.settle()
    part = members.state.workloads[WEB].parts["own-1"]
    members.observe(part, 6, updated=0)
    members.fleet.change("own-1", [node("a", 6000, used=6000)], facts_removed=(WEB,))
    members.pass_time(60)
    assert members.parts() == {"own-1": (0, 0, 6), "own-2": (6, 0, 0)}
    shown = facts(part.version, 4, spec=6, status=6)
    members.fleet.change("own-1", [node("a", 6000, used=4000)], shown=(shown,))
    members.pass_time(10)
    assert members.parts() == {"own-1": (0, 0, 6), "own-2": (6, 0, 0)}, "they may bind in a moment"
    members.pass_time(60)
    assert members.parts() == {"own-1": (0, 0, 4), "own-2": (6, 0, 0)}


def test_a_scale_out_keeps_what_leaves_where_it_may() -> None:
    """Surplus of a return: it runs already. In a cluster that is drained it leaves all the same."""
    members = Members(own_1=6, own_2=10)
    members.apply(6, limits=[{"cluster": "own-2", "max": 0}])
    members.settle()
    members.ready["own-2"] = 0
    members.apply(6, limits=[{"cluster": "own-1", "max": 0}])
    members.settle()
    assert members.parts() == {"own-1": (0, 0, 6), "own-2": (6, 0, 0)}
    version = members.version("own-1")
    members.apply(11)
    assert members.parts() == {"own-1": (3, 0, 3), "own-2": (8, 0, 0)}
    assert members.version("own-1") == version
    members.phase("own-1", PHASE_DRAINING)
    members.scale(12)
    assert members.parts() == {"own-1": (3, 0, 3), "own-2": (9, 0, 0)}


def test_a_scale_in_takes_what_a_drained_cluster_keeps_first() -> None:
    members = Members(own_1=6, own_2=6)
    members.apply(10)
    members.settle()
    members.brakes.allowed["Drain", "own-1"] = 0
    members.phase("own-1", PHASE_DRAINING)
    members.scale(6)
    members.settle()
    assert members.parts() == {"own-1": (1, 0, 0), "own-2": (5, 0, 0)}


@pytest.mark.parametrize("phase", [PHASE_CORDONED, PHASE_DRAINING, PHASE_LEAVING, PHASE_LOST])
def test_a_cluster_out_of_use_takes_nothing_and_is_named_for_it(phase: str) -> None:
    members = Members(own_1=6)
    members.phase("own-1", phase)
    members.apply(1)
    assert members.parts() == {}
    assert f"the cluster is {phase.lower()}" in members.waiting_for
    members.phase("own-1", PHASE_ACTIVE)
    members.settle()
    assert members.parts() == {"own-1": (1, 0, 0)}


def test_a_drain_that_is_called_off_is_named_no_more() -> None:
    members = Members(own_1=6)
    members.apply(6)
    members.settle()
    members.phase("own-1", PHASE_DRAINING)
    members.settle()
    assert members.waiting_for.startswith("6 replicas of draining cluster own-1 wait for room elsewhere (")
    members.phase("own-1", PHASE_ACTIVE)
    members.settle()
    assert (members.waiting_for, members.parts()) == ("", {"own-1": (6, 0, 0)})


def test_uncordon_keeps_what_was_not_moved_and_calls_nothing_back(members: Members) -> None:
    """What has its replacement goes once that is available; it would move twice otherwise."""
    members.ready["own-2"] = 0
    members.brakes.allowed["Drain", "own-1"] = 2
    members.phase("own-1", PHASE_DRAINING)
    members.settle()
    assert members.parts() == {"own-1": (4, 0, 2), "own-2": (2, 0, 0)}
    members.phase("own-1", PHASE_ACTIVE)
    members.settle()
    assert members.parts() == {"own-1": (4, 0, 2), "own-2": (2, 0, 0)}
    members.ready.clear()
    members.settle()
    assert members.parts() == {"own-1": (4, 0, 0), "own-2": (2, 0, 0)}


def test_a_leaving_cluster_has_left_once_no_placement_lists_it(members: Members) -> None:
    members.phase("own-1", PHASE_LEAVING)
    assert moves.clusters_that_left(members.state) == ()
    members.settle()
    assert [event.cluster for event in moves.clusters_that_left(members.state)] == ["own-1"]
    assert moves.clusters_that_left(members.state) == moves.clusters_that_left(members.state)


def test_a_drained_cluster_does_not_leave(members: Members) -> None:
    members.phase("own-1", PHASE_DRAINING)
    members.settle()
    assert moves.clusters_that_left(members.state) == ()


def test_what_a_cluster_that_will_not_return_had_is_given_up_at_once() -> None:
    """Three of five find a place; the others wait for one. Nobody waits for the cluster to say anything."""
    members = Members(own_1=5, cloud_1=3)
    members.apply(5)
    members.settle()
    members.silent.add("own-1")
    members.pass_time(40)
    members.brakes.allowed["Lost", "own-1"] = 2
    members.phase("own-1", PHASE_LOST)
    members.tick()
    assert members.parts() == {"own-1": (3, 2, 0), "cloud-1": (2, 0, 0)}
    members.brakes.allowed["Lost", "own-1"] = 9
    members.settle()
    assert members.parts() == {"cloud-1": (3, 0, 0)}
    assert members.state.workloads[WEB].unplaced == 2
    assert [event.cluster for event in moves.clusters_that_left(members.state)] == ["own-1"]


@pytest.fixture
def half_given_up(members: Members) -> Members:
    """Of own-1 was said that it will not return; the budget let two of its six be replaced. It is back after all."""
    members.silent.add("own-1")
    members.pass_time(40)
    members.brakes.allowed["Lost", "own-1"] = 2
    members.phase("own-1", PHASE_LOST)
    members.tick()
    assert members.parts() == {"own-1": (4, 2, 0), "own-2": (2, 0, 0)}
    members.silent.clear()
    members.brakes.allowed.clear()
    return members


def test_what_was_not_given_up_yet_stays_when_the_cluster_is_back_after_all(half_given_up: Members) -> None:
    members, version = half_given_up, half_given_up.version("own-1")
    members.ready["own-2"] = 0
    members.settle()
    assert members.parts() == {"own-1": (4, 0, 2), "own-2": (2, 0, 0)}
    assert members.version("own-1") == version, "its pods run on until those that replace them are available"
    members.ready.clear()
    members.settle()
    assert members.parts() == {"own-1": (4, 0, 0), "own-2": (2, 0, 0)}
    assert moves.clusters_that_left(members.state) == ()
    members.scale(7)
    members.settle()
    assert members.parts() == {"own-1": (4, 0, 0), "own-2": (3, 0, 0)}


def test_what_had_no_other_place_runs_on_in_the_cluster_that_is_back() -> None:
    members = Members(own_1=5, cloud_1=1)
    members.apply(5)
    members.settle()
    members.silent.add("own-1")
    members.pass_time(40)
    members.brakes.allowed["Lost", "own-1"] = 3
    members.phase("own-1", PHASE_LOST)
    members.tick()
    assert (members.parts(), members.state.workloads[WEB].unplaced) == ({"own-1": (2, 3, 0), "cloud-1": (1, 0, 0)}, 2)
    members.silent.clear()
    members.settle()
    assert members.parts() == {"own-1": (4, 0, 0), "cloud-1": (1, 0, 0)}
    assert (members.waiting_for, members.state.workloads[WEB].unplaced) == ("", 0)


def test_what_is_silent_again_is_given_up_again(half_given_up: Members) -> None:
    members = half_given_up
    members.settle()
    members.silent.add("own-1")
    members.pass_time(40)
    assert members.parts() == {"own-2": (6, 0, 0)}
    assert [event.cluster for event in moves.clusters_that_left(members.state)] == ["own-1"]


@pytest.mark.parametrize("kind", ["StatefulSet", "Job"])
def test_what_is_whole_and_half_given_up_is_whole_again_when_its_cluster_is_back(members: Members, kind: str) -> None:
    workload = members.state.workloads[WEB]
    workload.declared = replace(workload.declared, kind=kind)
    members.silent.add("own-1")
    members.pass_time(40)
    members.brakes.allowed["Lost", "own-1"] = 2
    members.phase("own-1", PHASE_LOST)
    members.tick()
    assert (members.parts(), workload.unplaced) == ({"own-1": (4, 2, 0)}, 2)
    members.silent.clear()
    members.settle()
    assert (members.parts(), workload.unplaced) == ({"own-1": (6, 0, 0)}, 0)


def test_a_failover_under_way_ends_when_its_cluster_is_back(members: Members) -> None:
    """What the budget held back stays where it is; only what was replaced returns."""
    members.brakes.allowed["Failover", "own-1"] = 2
    members.silent.add("own-1")
    members.pass_time(AFTER + 10)
    assert members.parts() == {"own-1": (4, 2, 0), "own-2": (2, 0, 0)}
    members.silent.clear()
    members.brakes.allowed["Failover", "own-1"] = 9
    members.settle()
    kept = {cluster: count for cluster, (count, _, _) in members.parts().items()}
    assert sum(kept.values()) == 6
    assert kept["own-1"] >= 4
    assert members.waiting_for == ""


def test_what_was_lost_in_a_cluster_that_will_not_return_is_gone(failed_over: Members) -> None:
    failed_over.silent.add("own-1")
    failed_over.phase("own-1", PHASE_LOST)
    failed_over.settle()
    assert failed_over.parts() == {"own-2": (6, 0, 0)}
    assert set(failed_over.state.workloads[WEB].parts) == {"own-2"}


def test_a_deleted_workload_does_not_wait_for_a_cluster_that_will_not_return(failed_over: Members) -> None:
    members = failed_over
    members.silent.add("own-1")
    members.keep(decisions.decide_delete(members.state, DeleteRequest("", "web"), members.fleet.moment()).events)
    members.phase("own-1", PHASE_LOST)
    members.pass_time(40)
    members.settle()
    assert members.state.workloads[WEB].parts == {}


@pytest.mark.parametrize("scope", ["fleet", "cluster/own-1", "workload/default/web"])
def test_a_brake_keeps_no_deleted_workload_in_a_cluster_that_will_not_return(members: Members, scope: str) -> None:
    """Nothing moves when it is listed there no more: both were asked for by name."""
    members.brake(scope, "audit")
    members.silent.add("own-1")
    members.pass_time(40)
    members.keep(decisions.decide_delete(members.state, DeleteRequest("", "web"), members.fleet.moment()).events)
    members.phase("own-1", PHASE_LOST)
    members.step_brakes()
    assert members.state.workloads[WEB].parts == {}
    assert [event.cluster for event in moves.clusters_that_left(members.state)] == ["own-1"]


def test_the_brake_of_the_cluster_that_replicas_would_go_to_is_named_and_counted() -> None:
    members = Members(own_1=12, own_2=12, own_3=12)
    members.apply(10, limits=[{"cluster": "own-2", "max": 0}, {"cluster": "own-3", "max": 0}])
    members.apply(10, limits=[{"cluster": "own-2", "max": 4}])
    members.settle()
    assert members.parts() == {"own-1": (10, 0, 0)}
    for target in ("own-2", "own-3"):
        members.brake(f"cluster/{target}", "audit")
    members.step_brakes()
    members.fleet.now += 60
    members.phase("own-1", PHASE_DRAINING)
    members.step_brakes()
    assert members.step_brakes() == 0
    assert moves.workloads_due_to_move(members.state, members.fleet.now, members.state.brakes) == [], (
        "nothing to divide until it changes"
    )
    assert members.parts() == {"own-1": (10, 0, 0)}
    assert "own-2: frozen; own-3: frozen" in members.waiting_for
    assert members.waiting_for.endswith(
        "; held: 4 replicas kept in own-1 wait for the brake of cluster/own-2: audit, "
        "6 replicas kept in own-1 wait for the brake of cluster/own-3: audit"
    )
    listed = braking.list_brakes(members.state, members.fleet.now).brakes
    assert {brake.scope: brake.replicas for brake in listed} == {"cluster/own-2": 4, "cluster/own-3": 6}
    members.state.apply_event(BrakeReleased("cluster/own-2", "ann", 2), members.fleet.now)
    members.fleet.now += 60
    members.step_brakes()
    assert members.parts() == {"own-1": (6, 0, 4), "own-2": (4, 0, 0)}
    assert members.waiting_for.endswith("; held: 6 replicas kept in own-1 wait for the brake of cluster/own-3: audit")


# ── The policy ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_a_new_policy_rules_out_leaves_once_others_are_available(members: Members) -> None:
    members.ready["own-2"] = 0
    members.apply(6, limits=[{"cluster": "own-1", "max": 4}])
    members.settle()
    assert members.parts() == {"own-1": (4, 0, 2), "own-2": (2, 0, 0)}
    members.ready["own-2"] = 2
    members.settle()
    assert members.parts() == {"own-1": (4, 0, 0), "own-2": (2, 0, 0)}


def test_a_raised_minimum_moves_replicas_as_far_as_there_is_room() -> None:
    members = Members(own_1=10, cloud_1=3)
    members.apply(10)
    members.settle()
    members.ready["cloud-1"] = 0
    members.apply(10, limits=[{"cluster": "cloud-1", "min": 5}])
    members.settle()
    assert members.parts() == {"own-1": (7, 0, 3), "cloud-1": (3, 0, 0)}
    assert members.waiting_for == "room for 2 replicas that the minimum of cloud-1 lacks (cpu (1 node))"
    members.cores["cloud-1"] = 8
    del members.ready["cloud-1"]
    members.settle()
    assert (members.parts(), members.waiting_for) == ({"own-1": (5, 0, 0), "cloud-1": (5, 0, 0)}, "")
    assert members.causes()[-1] == "Policy"


def test_a_minimum_of_a_cluster_that_was_silent_is_filled_when_it_is_back() -> None:
    members = Members(own_1=12, own_2=12)
    members.silent.add("own-2")
    members.pass_time(40)
    members.apply(12, limits=[{"cluster": "own-2", "min": 6}])
    assert members.parts() == {"own-1": (12, 0, 0)}
    assert members.waiting_for.startswith("room for 6 replicas that the minimum of own-2 lacks")
    members.settle()
    members.silent.clear()
    members.settle()
    assert (members.parts(), members.waiting_for) == ({"own-1": (6, 0, 0), "own-2": (6, 0, 0)}, "")


def lacking_of_its_minimum() -> Members:
    """own-2 was silent when 24 replicas were placed, and lacks of its minimum now that it is back."""
    members = Members(own_1=24, own_2=24)
    members.silent.add("own-2")
    members.pass_time(40)
    members.apply(24, limits=[{"cluster": "own-2", "min": 16}])
    members.settle()
    members.silent.clear()
    return members


def test_what_a_minimum_lacks_moves_within_the_budget_when_nobody_asks_now() -> None:
    members = lacking_of_its_minimum()
    members.brakes.allowed["Policy", "own-1"] = 5
    members.settle()
    assert members.parts() == {"own-1": (19, 0, 0), "own-2": (5, 0, 0)}
    assert moves.wanted_moves_by_cause(members.state, members.fleet.now) == {("Policy", "own-1"): 11}
    members.apply(24, limits=[{"cluster": "own-2", "min": 15}])
    assert members.parts() == {"own-1": (9, 0, 10), "own-2": (15, 0, 0)}, "asked for by name"


@pytest.mark.parametrize("taken_over", [False, True], ids=["same turn", "another turn"])
def test_what_a_minimum_lacks_waits_for_its_confirmation_when_it_is_much_of_the_fleet(taken_over: bool) -> None:
    members = lacking_of_its_minimum()
    for _ in range(4):
        members.fleet.now += 60
        members.tick_heartbeats()
        aftermath.update_progress_timers(members.state, members.fleet.now)
        for one in aftermath.next_waiting_workloads(members.state, members.fleet.now):
            members.keep(
                aftermath.retry_waiting_workload(
                    members.state, one, members.fleet.moment(), members.state.brakes
                ).events
            )
        members.step_brakes()
    if taken_over:  # What a turn remembers of its own is gone.
        forget_turn(members)
        for _ in range(3):
            members.step_brakes()
    assert members.parts() == {"own-1": (24, 0, 0)}
    assert members.waiting_for == "held: 16 replicas kept in own-1 wait for the confirmation of Policy/own-1"
    assert moves.workloads_due_to_move(members.state, members.fleet.now, members.state.brakes) == [], (
        "until it is given"
    )
    members.state.apply_event(ConfirmationGiven("Policy/own-1", "ann", 1), members.fleet.now)
    members.fleet.now += 60
    members.step_brakes()
    assert members.parts() == {"own-1": (8, 0, 16), "own-2": (16, 0, 0)}
    members.carry_out()
    members.step_brakes()
    assert members.waiting_for == ""


def test_what_a_minimum_lacks_is_asked_about_no_more_once_it_was_asked_for_by_name() -> None:
    members = lacking_of_its_minimum()
    members.brakes.allowed["Policy", "own-1"] = 0
    members.settle()
    assert moves.wanted_moves_by_cause(members.state, members.fleet.now) == {("Policy", "own-1"): 16}
    members.apply(24, limits=[{"cluster": "own-2", "min": 1}])
    members.settle()
    assert moves.wanted_moves_by_cause(members.state, members.fleet.now) == {}


def forget_turn(members: Members) -> None:
    members.state.misplaced.clear()
    members.state.all_looked_through = False
    workload = members.state.workloads[WEB]
    workload.for_minima, workload.looked_at, workload.held_by = ((), {}), None, {}


def test_a_cluster_that_a_policy_no_longer_selects_is_left(members: Members) -> None:
    """Its tier was changed where it was declared."""
    members.apply(6, tiers=[{"name": "own", "clusters": {"tiers": ["own"]}}])
    members.settle()
    joined = members.state.clusters["own-1"].joined
    assert joined is not None
    members.state.apply_event(replace(joined, tier="edge"), members.fleet.now)
    members.settle()
    assert members.parts() == {"own-2": (6, 0, 0)}
    assert members.causes()[-1] == "Policy"


@pytest.mark.parametrize("taken_over", [False, True], ids=["same turn", "another turn"])
def test_what_a_join_rules_out_waits_for_its_confirmation(taken_over: bool) -> None:
    """Nobody asked for it by name: all twelve of the fleet would leave for a tier that was said otherwise."""
    members = Members(own_1=12, own_2=20)
    tiers = [{"name": "own", "clusters": {"tiers": ["own"]}}]
    members.apply(12, tiers=tiers, limits=[{"cluster": "own-2", "max": 0}])
    members.settle()
    members.apply(12, tiers=tiers)
    members.settle()
    joined = members.state.clusters["own-1"].joined
    members.state.apply_event(replace(joined, tier="edge"), members.fleet.now)
    if taken_over:  # What a turn remembers of its own is gone.
        members.state.misplaced.clear()
    for _ in range(3):
        members.fleet.now += 60
        members.step_brakes()
    assert members.parts() == {"own-1": (12, 0, 0)}
    assert members.waiting_for == "held: 12 replicas kept in own-1 wait for the confirmation of Policy/own-1"
    members.state.apply_event(ConfirmationGiven("Policy/own-1", "ann", 1), members.fleet.now)
    members.fleet.now += 60
    members.step_brakes()
    assert members.parts() == {"own-1": (0, 0, 12), "own-2": (12, 0, 0)}


def test_what_a_join_rules_out_moves_within_the_budget() -> None:
    members = Members(own_1=12, own_2=20)
    tiers = [{"name": "own", "clusters": {"tiers": ["own"]}}]
    members.apply(12, tiers=tiers, limits=[{"cluster": "own-2", "max": 0}])
    members.settle()
    members.apply(12, tiers=tiers)
    members.settle()
    joined = members.state.clusters["own-1"].joined
    members.brakes.allowed["Policy", "own-1"] = 5
    members.state.apply_event(replace(joined, tier="edge"), members.fleet.now)
    members.settle()
    assert members.parts() == {"own-1": (7, 0, 0), "own-2": (5, 0, 0)}


def test_another_policy_that_is_applied_moves_what_it_rules_out_at_once() -> None:
    """It was asked for by name: neither a budget nor a confirmation is."""
    members = Members(own_1=12, own_2=20)
    members.apply(12, limits=[{"cluster": "own-2", "max": 0}])
    members.settle()
    members.brakes.allowed["Policy", "own-1"] = 0
    members.apply(12, tiers=[{"name": "other", "clusters": {"names": ["own-2"]}}])
    assert members.parts() == {"own-1": (0, 0, 12), "own-2": (12, 0, 0)}


def test_what_was_said_of_an_earlier_version_lets_nothing_go(members: Members) -> None:
    """So many may have been available of more, or of an earlier template."""
    members.phase("own-1", PHASE_DRAINING)
    members.ready["own-2"] = 2
    members.settle()
    assert members.parts() == {"own-1": (0, 0, 4), "own-2": (6, 0, 0)}
    workload = members.state.workloads[WEB]
    said = workload.statuses["own-2"]
    members.state.apply_event(replace(said, sequence=said.sequence + 1, available=6, ready=6), members.fleet.now)
    assert moves._removable_leaving_replicas(members.state, workload, members.fleet.now, aftermath.NO_BRAKES) == {
        "own-1": 4
    }
    old = replace(said, sequence=said.sequence + 2, available=6, ready=6, version=NO_GENERATION)
    members.state.apply_event(old, members.fleet.now)
    assert moves._removable_leaving_replicas(members.state, workload, members.fleet.now, aftermath.NO_BRAKES) == {}
