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

from .builders import Fleet, deployment, manifest_texts, node_row, placement_policy, workload_facts

WEB = ("default", "web")
TROUBLE = "probe: timeout: no answer within 5 s"
AFTER = 300.0


class Brakes(UnlimitedAllowance):
    """allowed: what may still move by cause and cluster, spent as it moves; all where nothing is said."""

    def __init__(self) -> None:
        self.allowed: dict[tuple[str, str], int] = {}
        self.frozen_clusters: set[str] = set()

    @property
    def allowance_revision(self) -> int:
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
        self.fleet = Fleet(**{name: [node_row("a", cores * 1000)] for name, cores in clusters.items()})
        self.cores = {name.replace("_", "-"): cores for name, cores in clusters.items()}
        self.brakes = Brakes()
        self.silent: set[str] = set()
        self.ready: dict[str, int] = {}
        self.bound: dict[str, int] = dict.fromkeys(self.cores, 0)
        self.decided: list[DecisionRecorded] = []
        self.sequence = 0

    @property
    def planner_state(self) -> PlannerState:
        return self.fleet.state

    def apply_events(self, events: tuple[Event | Tombstone, ...]) -> None:
        for event in events:
            assert not isinstance(event, Tombstone)
            if isinstance(event, DecisionRecorded):
                self.decided.append(event)
            self.planner_state.apply_event(event, self.fleet.now)
        workload = self.planner_state.workloads[WEB]
        kept = sum(part.replicas_kept for part in workload.parts.values())
        assert kept + workload.unplaced == workload.declared.replicas

    def apply_workload(self, replicas: int, **spec: Any) -> None:
        request = ApplyRequest(manifest_texts(deployment(replicas), placement_policy(**spec)))
        self.apply_events(decisions.decide_apply(self.planner_state, request, self.fleet.next_moment()).events)

    def scale_workload(self, replicas: int) -> None:
        self.apply_events(
            decisions.decide_scale(
                self.planner_state, ScaleRequest("", "web", replicas), self.fleet.next_moment()
            ).events
        )

    def set_phase(self, cluster: str, phase: str) -> None:
        joined = self.planner_state.clusters[cluster].joined
        assert joined is not None
        self.planner_state.apply_event(replace(joined, phase=phase), self.fleet.now)

    def carry_out_parts(self) -> None:
        """Every cluster that answers has what its part says, and shows it."""
        workload = self.planner_state.workloads[WEB]
        for cluster, part in workload.parts.items():
            if cluster in self.silent:
                continue
            running = min(part.replicas, self.ready.get(cluster, part.replicas))
            self.bound[cluster] = running
            self.report_status(part, running)
            shown = (
                ()
                if part.removing
                else (workload_facts(part.version, running, spec=part.replicas, status=part.replicas),)
            )
            gone = (WEB,) if part.removing else ()
            rows = [node_row("a", self.cores[cluster] * 1000, used=running * 1000)]
            self.fleet.report_change(cluster, rows, shown=shown, facts_removed=gone)

    def report_status(self, part: Part, running: int, updated: int | None = None) -> None:
        """updated: of the newest template; all but for a roll."""
        self.sequence += 1
        state = STATE_ABSENT if part.removing else STATE_PRESENT
        newest = part.replicas if updated is None else updated
        numbers = (part.replicas, part.replicas, newest, running, running)
        event = WorkloadObserved(*WEB, part.cluster, 1, self.sequence, part.version, state, "", *numbers)
        self.planner_state.apply_event(event, self.fleet.now)

    def pass_time(self, seconds: float) -> None:
        """Time passes in steps with a heartbeat each; what is due is done."""
        steps = max(1, round(seconds / 10))
        for _ in range(steps):
            self.fleet.now += seconds / steps
            self.look_once()

    def send_heartbeats(self) -> None:
        for cluster in self.cores:
            if cluster in self.silent:
                age = self.planner_state.clusters[cluster].age_seconds(self.fleet.now) or 0
                self.fleet.report_change(cluster, age_ms=int(age * 1000), trouble=TROUBLE)
            else:
                self.fleet.report_change(cluster)

    def look_once(self) -> int:
        """One look of the planner. Returns the number of its events."""
        self.send_heartbeats()
        count = 0
        aftermath.update_progress_timers(self.planner_state, self.fleet.now)
        for workload in moves.workloads_due_to_move(self.planner_state, self.fleet.now, self.brakes):
            step = moves.next_move_step(self.planner_state, workload, self.fleet.next_moment(), self.brakes)
            self.apply_events(step.events)
            count += len(step.events)
        for workload in aftermath.next_waiting_workloads(self.planner_state, self.fleet.now):
            again = aftermath.retry_waiting_workload(
                self.planner_state, workload, self.fleet.next_moment(), self.brakes
            )
            self.apply_events(again.events)
            count += len(again.events)
        for key in list(self.planner_state.leaving):
            settled = aftermath.settle_workload(self.planner_state, key, self.fleet.next_moment())
            self.apply_events(settled.events)
            count += len(settled.events)
        return count

    def set_brake(self, scope: str, reason: str) -> None:
        self.planner_state.apply_event(BrakeSet(scope, reason, "ann", 1), self.fleet.now)

    def lose_cluster(self, cluster: str) -> None:
        """Its time by the policy passes, with nobody moving anything."""
        self.brakes.frozen_clusters.update(self.cores)
        self.silent.add(cluster)
        self.pass_time(AFTER + 10)
        self.brakes.frozen_clusters.clear()

    def look_with_real_brakes(self) -> int:
        """One look of the planner with the brakes of its own state. Returns the number of its events."""
        self.send_heartbeats()
        now, brakes = self.fleet.now, self.planner_state.brakes
        aftermath.update_progress_timers(self.planner_state, now)
        for event in brakes.update_confirmations(
            moves.wanted_moves_by_cause(self.planner_state, now), self.planner_state.fleet_replicas(), now, 1
        ):
            self.planner_state.apply_event(event, now)
        count = 0
        for workload in moves.workloads_due_to_move(self.planner_state, now, brakes):
            step = moves.next_move_step(self.planner_state, workload, self.fleet.next_moment(), brakes)
            self.apply_events(step.events)
            count += len(step.events)
        return count

    def run_until_settled(self) -> None:
        """Until nothing follows any more, and then once more with nothing to do."""
        for _ in range(50):
            self.carry_out_parts()
            if not self.look_once():
                assert self.look_once() == 0
                return
        raise AssertionError("the steps do not end")

    def counts_by_cluster(self) -> dict[str, tuple[int, int, int]]:
        """kept, lost and leaving by cluster, of the parts that have any."""
        return {
            name: (part.replicas_kept, part.replicas_lost, part.replicas_leaving)
            for name, part in self.planner_state.workloads[WEB].parts.items()
            if part.replicas
        }

    def move_causes(self) -> list[str]:
        """Of the moves; that what left is gone is none."""
        return [record.cause for record in self.decided if record.cause != "Settled"]

    @property
    def waiting_reason(self) -> str:
        placement = self.planner_state.workloads[WEB].placement
        assert placement is not None
        return str(placement.waiting_for)

    def version_of_part(self, cluster: str) -> Any:
        return self.planner_state.workloads[WEB].parts[cluster].version


@pytest.fixture
def members() -> Members:
    """Six replicas run in a cluster of one's own; another has room for them."""
    members = Members(own_1=6, own_2=10)
    members.apply_workload(6, limits=[{"cluster": "own-2", "max": 0}])
    members.run_until_settled()
    members.apply_workload(6)
    members.run_until_settled()
    assert members.counts_by_cluster() == {"own-1": (6, 0, 0)}
    members.decided.clear()
    return members


# ── A cluster is lost ───────────────────────────────────────────────────────────────────────────────────────────


def test_what_a_lost_cluster_kept_is_replaced_elsewhere_after_the_policy_s_time(members: Members) -> None:
    version = members.version_of_part("own-1")
    members.silent.add("own-1")
    members.pass_time(AFTER - 10)
    assert members.counts_by_cluster() == {"own-1": (6, 0, 0)}
    members.pass_time(20)
    assert members.counts_by_cluster() == {"own-1": (0, 6, 0), "own-2": (6, 0, 0)}
    assert members.move_causes() == ["Failover"]
    assert members.version_of_part("own-1") == version
    assert members.look_once() == 0


def test_a_policy_that_says_never_replaces_nothing() -> None:
    members = Members(own_1=6, cloud_1=6)
    members.apply_workload(6, onClusterLoss={"after": "never"})
    members.run_until_settled()
    members.silent.add("own-1")
    members.pass_time(3600)
    assert members.counts_by_cluster() == {"own-1": (6, 0, 0)}


NOT_LOST: dict[str, Callable[[Members], None]] = {
    "its collector says nothing": lambda members: None,
    "it does not know us": lambda members: report_trouble(members, "nodes: unauthorized: who are you?"),
    "it forbids us to look": lambda members: report_trouble(members, "probe: forbidden: no"),
    "our credential cannot be read": lambda members: report_trouble(members, "connect: credential: no such file"),
    "trouble that passes": lambda members: report_trouble(members, TROUBLE if members.fleet.now % 100 else "", 40_000),
}


def report_trouble(members: Members, trouble: str, age_ms: int = 1000_000) -> None:
    members.fleet.report_change("own-1", age_ms=age_ms, trouble=trouble)


@pytest.mark.parametrize("speak", NOT_LOST.values(), ids=NOT_LOST)
def test_a_cluster_is_not_lost_when(members: Members, speak: Callable[[Members], None]) -> None:
    del members.cores["own-1"]
    for _ in range(100):
        members.fleet.now += 10
        speak(members)
        members.look_once()
    assert members.counts_by_cluster() == {"own-1": (6, 0, 0)}


def test_a_planner_that_takes_over_counts_the_age_of_the_capacity(members: Members) -> None:
    """The trouble is new to it, the collector says for how long nothing was sure."""
    del members.cores["own-1"]
    report_trouble(members, TROUBLE, int(AFTER * 1000) - 1000)
    members.look_once()
    assert members.counts_by_cluster() == {"own-1": (6, 0, 0)}
    report_trouble(members, TROUBLE, int(AFTER * 1000))
    members.look_once()
    assert members.counts_by_cluster() == {"own-1": (0, 6, 0), "own-2": (6, 0, 0)}


def test_what_finds_no_room_stays_is_named_and_moves_when_room_comes_up() -> None:
    members = Members(own_1=6, cloud_1=2)
    members.apply_workload(6)
    members.run_until_settled()
    members.silent.add("own-1")
    members.pass_time(AFTER + 10)
    assert members.counts_by_cluster() == {"own-1": (4, 2, 0), "cloud-1": (2, 0, 0)}
    assert members.waiting_reason.startswith("4 replicas of lost cluster own-1 wait for room elsewhere (")
    members.run_until_settled()
    members.cores["cloud-1"] = 5
    members.run_until_settled()
    assert members.counts_by_cluster() == {"own-1": (1, 5, 0), "cloud-1": (5, 0, 0)}
    members.cores["cloud-1"] = 9
    members.run_until_settled()
    assert members.counts_by_cluster() == {"own-1": (0, 6, 0), "cloud-1": (6, 0, 0)}
    assert members.waiting_reason == ""


def test_no_more_move_than_the_brakes_let() -> None:
    members = Members(own_1=6, cloud_1=9)
    members.apply_workload(6)
    members.run_until_settled()
    members.brakes.allowed["Failover", "own-1"] = 0
    members.silent.add("own-1")
    members.pass_time(AFTER + 20)
    assert members.counts_by_cluster() == {"own-1": (6, 0, 0)}
    assert moves.wanted_moves_by_cause(members.planner_state, members.fleet.now) == {("Failover", "own-1"): 6}
    members.brakes.allowed["Failover", "own-1"] = 4
    members.look_once()
    assert members.counts_by_cluster() == {"own-1": (2, 4, 0), "cloud-1": (4, 0, 0)}
    assert members.look_once() == 0
    members.brakes.allowed["Failover", "own-1"] = 4
    members.look_once()
    assert members.counts_by_cluster() == {"own-1": (0, 6, 0), "cloud-1": (6, 0, 0)}
    assert members.brakes.allowed["Failover", "own-1"] == 2
    assert moves.wanted_moves_by_cause(members.planner_state, members.fleet.now) == {("Failover", "own-1"): 0}


HELD_BY: dict[str, tuple[Callable[[Members], None], str]] = {
    "a confirmation": (
        lambda members: members.set_phase("own-1", PHASE_DRAINING),
        "held: 12 replicas kept in own-1 wait for the confirmation of Drain/own-1",
    ),
    "a brake of the fleet": (
        lambda members: (members.set_brake("fleet", "audit"), members.set_phase("own-1", PHASE_DRAINING))[-1],
        "held: 12 replicas kept in own-1 wait for the brake of fleet: audit",
    ),
    "a brake of the workload, with no reason": (
        lambda members: (members.set_brake("workload/default/web", ""), members.set_phase("own-1", PHASE_LEAVING))[-1],
        "held: 12 replicas kept in own-1 wait for the brake of workload/default/web: no reason given",
    ),
    "the confirmation of a failover": (
        lambda members: members.lose_cluster("own-1"),
        "held: 12 replicas kept in own-1 wait for the confirmation of Failover/own-1",
    ),
}


@pytest.mark.parametrize(("happens", "text"), HELD_BY.values(), ids=HELD_BY)
def test_what_moves_wait_for_beside_room_is_named_once(happens: Callable[[Members], None], text: str) -> None:
    members = Members(own_1=12, cloud_1=20)
    members.apply_workload(12)
    members.run_until_settled()
    happens(members)
    members.look_with_real_brakes()
    assert (members.waiting_reason, members.counts_by_cluster()) == (text, {"own-1": (12, 0, 0)})
    assert members.look_with_real_brakes() == 0, "it is said once"
    members.set_phase("own-1", PHASE_ACTIVE)
    members.silent.clear()
    members.look_with_real_brakes()
    members.look_with_real_brakes()
    assert (members.waiting_reason, members.counts_by_cluster()) == ("", {"own-1": (12, 0, 0)})


def test_a_return_that_waits_for_its_confirmation_is_named() -> None:
    members = Members(own_1=12, cloud_1=20)
    members.apply_workload(12)
    members.run_until_settled()
    members.silent.add("own-1")
    members.pass_time(AFTER + 10)
    assert members.counts_by_cluster() == {"own-1": (0, 12, 0), "cloud-1": (12, 0, 0)}
    members.silent.clear()
    members.look_with_real_brakes()
    assert members.waiting_reason == "held: 12 replicas lost in own-1 wait for the confirmation of Return/own-1"
    members.planner_state.apply_event(ConfirmationGiven("Return/own-1", "ann", 1), members.fleet.now)
    members.fleet.now += 60
    members.look_with_real_brakes()
    assert members.waiting_reason == ""


def test_one_replica_that_waits_is_one() -> None:
    members = Members(own_1=1)
    members.apply_workload(1)
    members.run_until_settled()
    members.set_phase("own-1", PHASE_DRAINING)
    members.run_until_settled()
    assert members.waiting_reason.startswith("1 replica of draining cluster own-1 waits for room elsewhere (own-1: ")


def test_a_tier_without_a_cluster_is_named(members: Members) -> None:
    members.apply_workload(30)
    assert "; tier cloud: no cluster of the fleet is in this tier" in members.waiting_reason


def test_a_frozen_cluster_keeps_what_it_has(members: Members) -> None:
    members.brakes.frozen_clusters.add("own-1")
    members.set_phase("own-1", PHASE_DRAINING)
    members.run_until_settled()
    assert members.counts_by_cluster() == {"own-1": (6, 0, 0)}
    members.apply_workload(6, limits=[{"cluster": "own-1", "max": 2}])
    members.brakes.frozen_clusters.clear()
    members.run_until_settled()
    assert members.counts_by_cluster() == {"own-2": (6, 0, 0)}


@pytest.mark.parametrize("kind", ["StatefulSet", "Job"])
def test_what_would_be_doubled_does_not_move_by_itself(members: Members, kind: str) -> None:
    """Not even out of a cluster that is lost or drained; out of one that will not return it does."""
    workload = members.planner_state.workloads[WEB]
    workload.declared = replace(workload.declared, kind=kind)
    members.set_phase("own-1", PHASE_DRAINING)
    members.silent.add("own-1")
    members.pass_time(2 * AFTER)
    assert members.counts_by_cluster() == {"own-1": (6, 0, 0)}
    members.set_phase("own-1", PHASE_LOST)
    members.run_until_settled()
    assert members.counts_by_cluster() == {"own-2": (6, 0, 0)}


def test_nothing_is_taken_back_where_it_is_frozen(members: Members) -> None:
    members.scale_workload(8)
    members.ready["own-1"] = 3
    members.carry_out_parts()
    members.fleet.now += 60
    members.fleet.send_heartbeats()
    aftermath.update_progress_timers(members.planner_state, members.fleet.now)
    members.fleet.now += 60
    members.fleet.send_heartbeats()
    members.brakes.frozen_clusters.add("own-1")
    assert (
        list(aftermath.workloads_to_take_back(members.planner_state, members.fleet.next_moment(), members.brakes)) == []
    )
    members.brakes.frozen_clusters.clear()
    taken = [
        counts
        for _, counts in aftermath.workloads_to_take_back(
            members.planner_state, members.fleet.next_moment(), members.brakes
        )
    ]
    assert taken == [{"own-1": 3}]


def test_a_freeze_holds_what_a_new_policy_would_move(members: Members) -> None:
    frozen = BrakeSet("cluster/own-1", "", "me", 0)
    members.planner_state.apply_event(frozen, members.fleet.now)
    members.brakes.frozen_clusters.add("own-1")
    members.apply_workload(6, limits=[{"cluster": "own-1", "max": 0}])
    members.run_until_settled()
    assert members.counts_by_cluster() == {"own-1": (6, 0, 0)}
    members.planner_state.apply_event(BrakeReleased("cluster/own-1", "me", 0), members.fleet.now)
    members.brakes.frozen_clusters.clear()
    members.run_until_settled()
    assert members.counts_by_cluster() == {"own-2": (6, 0, 0)}


# ── A lost cluster is back ──────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def members_after_failover(members: Members) -> Members:
    """own-1 is lost; own-2 has its six replicas, of which none is ready yet."""
    members.silent.add("own-1")
    members.ready["own-2"] = 0
    members.pass_time(AFTER + 10)
    members.carry_out_parts()
    assert members.counts_by_cluster() == {"own-1": (0, 6, 0), "own-2": (6, 0, 0)}
    members.silent.clear()
    return members


def available_replicas(members: Members) -> int:
    """What runs in clusters that answer."""
    return sum(count for cluster, count in members.bound.items() if cluster not in members.silent)


def test_back_with_its_pods_alive_the_surplus_goes_only_once_the_others_are_available(
    members_after_failover: Members,
) -> None:
    members = members_after_failover
    members.brakes.allowed["Return", "own-1"] = 0
    members.look_once()
    assert moves.wanted_moves_by_cause(members.planner_state, members.fleet.now) == {("Return", "own-1"): 6}
    members.brakes.allowed["Return", "own-1"] = 6
    for ready in range(7):
        members.ready["own-2"] = ready
        members.run_until_settled()
        assert available_replicas(members) >= 6
    assert sum(kept for kept, _, _ in members.counts_by_cluster().values()) == 6
    assert all(not lost and not leaving for _, lost, leaving in members.counts_by_cluster().values())
    assert members.move_causes() == ["Failover", "Return"]


def test_back_and_empty_the_others_stay(members_after_failover: Members) -> None:
    """Its pods died with it, and make way before those that run elsewhere do."""
    members = members_after_failover
    members.ready |= {"own-1": 0, "own-2": 6}
    members.run_until_settled()
    assert members.counts_by_cluster() == {"own-2": (6, 0, 0)}
    assert available_replicas(members) == 6


def test_back_with_too_few_replicas_all_are_kept(members_after_failover: Members) -> None:
    members = members_after_failover
    members.silent.add("own-1")
    members.scale_workload(14)
    members.run_until_settled()
    assert members.counts_by_cluster() == {"own-1": (0, 6, 0), "own-2": (10, 0, 0)}
    assert members.planner_state.workloads[WEB].unplaced == 4
    members.silent.clear()
    members.run_until_settled()
    assert members.counts_by_cluster() == {"own-1": (6, 0, 0), "own-2": (8, 0, 2)}
    members.ready.clear()
    members.run_until_settled()
    assert members.counts_by_cluster() == {"own-1": (6, 0, 0), "own-2": (8, 0, 0)}


def test_a_part_of_what_was_lost_returns_when_the_budget_bears_no_more(members_after_failover: Members) -> None:
    members = members_after_failover
    members.ready["own-2"] = 6
    members.carry_out_parts()
    members.brakes.allowed["Return", "own-1"] = 2
    members.look_once()
    assert members.counts_by_cluster()["own-1"][1] == 4
    members.run_until_settled()
    assert members.counts_by_cluster()["own-1"][1] == 4
    assert moves.wanted_moves_by_cause(members.planner_state, members.fleet.now) == {("Return", "own-1"): 4}
    members.brakes.allowed["Return", "own-1"] = 9
    members.run_until_settled()
    assert all(not lost and not leaving for _, lost, leaving in members.counts_by_cluster().values())


def test_what_returns_lets_nothing_else_move_past_its_budget() -> None:
    members = Members(own_1=30, own_2=10)
    members.apply_workload(6, limits=[{"cluster": "own-2", "max": 0}])
    members.run_until_settled()
    members.apply_workload(6)
    members.silent.add("own-1")
    members.pass_time(AFTER + 10)
    members.scale_workload(20)
    members.run_until_settled()
    assert members.counts_by_cluster() == {"own-1": (0, 6, 0), "own-2": (10, 0, 0)}
    members.brakes.allowed["Drain", "own-2"] = 0
    members.set_phase("own-2", PHASE_DRAINING)
    members.silent.clear()
    members.run_until_settled()
    assert members.counts_by_cluster() == {"own-1": (10, 0, 0), "own-2": (10, 0, 0)}


def test_trouble_that_goes_on_is_no_return(members_after_failover: Members) -> None:
    """Fresh capacity beside trouble: one of its streams fails while another is heard."""
    members = members_after_failover
    members.silent.add("own-1")
    members.fleet.report_change("own-1", age_ms=0, trouble=TROUBLE)
    for workload in moves.workloads_due_to_move(members.planner_state, members.fleet.now, members.brakes):
        members.apply_events(
            moves.next_move_step(members.planner_state, workload, members.fleet.next_moment(), members.brakes).events
        )
    assert members.counts_by_cluster()["own-1"] == (0, 6, 0)


def test_a_scale_to_nothing_while_a_cluster_is_lost_reaches_it_when_it_is_back(members_after_failover: Members) -> None:
    members = members_after_failover
    members.silent.add("own-1")
    members.scale_workload(2)
    assert members.counts_by_cluster()["own-1"] == (0, 2, 0)
    members.scale_workload(0)
    members.run_until_settled()
    assert [part.cluster for part in members.planner_state.workloads[WEB].parts.values() if part.removing] == ["own-1"]
    members.brakes.allowed["Return", "own-1"] = 0
    members.silent.clear()
    members.run_until_settled()
    assert members.planner_state.workloads[WEB].parts == {}
    assert members.bound == {"own-1": 0, "own-2": 0}


def test_a_delete_while_a_cluster_is_lost_lists_it_until_it_says_absent(members_after_failover: Members) -> None:
    members = members_after_failover
    members.silent.add("own-1")
    members.apply_events(
        decisions.decide_delete(members.planner_state, DeleteRequest("", "web"), members.fleet.next_moment()).events
    )
    members.run_until_settled()
    members.pass_time(3600)
    parts = members.planner_state.workloads[WEB].parts
    assert {name: (part.replicas, part.removing) for name, part in parts.items()} == {"own-1": (0, True)}
    members.silent.clear()
    members.run_until_settled()
    assert members.planner_state.workloads[WEB].parts == {}


# ── A cluster hands over ────────────────────────────────────────────────────────────────────────────────────────


def test_a_drained_cluster_empties_as_its_replacements_become_available(members: Members) -> None:
    members.set_phase("own-1", PHASE_DRAINING)
    members.ready["own-2"] = 0
    assert moves.wanted_moves_by_cause(members.planner_state, members.fleet.now) == {("Drain", "own-1"): 6}
    members.run_until_settled()
    assert members.counts_by_cluster() == {"own-1": (0, 0, 6), "own-2": (6, 0, 0)}
    members.ready["own-2"] = 2
    members.run_until_settled()
    assert members.counts_by_cluster() == {"own-1": (0, 0, 4), "own-2": (6, 0, 0)}
    members.ready["own-2"] = 6
    members.run_until_settled()
    assert members.counts_by_cluster() == {"own-2": (6, 0, 0)}
    assert members.move_causes() == ["Drain"]


def test_what_leaves_several_clusters_waits_together_for_the_replacements() -> None:
    """One that became available lets one go, not one of each cluster."""
    members = Members(own_1=2, own_2=2, own_3=10)
    members.apply_workload(4, limits=[{"cluster": "own-3", "max": 0}])
    members.run_until_settled()
    members.apply_workload(4)
    members.ready["own-3"] = 0
    for drained in ("own-1", "own-2"):
        members.set_phase(drained, PHASE_DRAINING)
    members.run_until_settled()
    assert members.counts_by_cluster() == {"own-1": (0, 0, 2), "own-2": (0, 0, 2), "own-3": (4, 0, 0)}
    members.ready["own-3"] = 1
    members.run_until_settled()
    assert members.counts_by_cluster() == {"own-1": (0, 0, 1), "own-2": (0, 0, 2), "own-3": (4, 0, 0)}


def test_that_what_left_is_gone_is_recorded(members: Members) -> None:
    members.set_phase("own-1", PHASE_DRAINING)
    members.run_until_settled()
    settled = [record for record in members.decided if record.cause == "Settled"]
    (entry,) = settled[-1].inputs
    assert (entry.cluster, entry.before, entry.after) == ("own-1", 6, 0)
    assert entry.limited_by == "as many as are kept are available"


def test_what_does_not_run_in_a_drained_cluster_leaves_only_with_the_others(members: Members) -> None:
    """That it does not was heard a moment ago; it goes as soon as it would not be missed if it did."""
    members.ready |= {"own-1": 4, "own-2": 0}
    members.carry_out_parts()
    members.set_phase("own-1", PHASE_DRAINING)
    members.run_until_settled()
    assert members.counts_by_cluster() == {"own-1": (0, 0, 6), "own-2": (6, 0, 0)}
    members.ready["own-2"] = 2
    members.run_until_settled()
    assert members.counts_by_cluster() == {"own-1": (0, 0, 4), "own-2": (6, 0, 0)}


def test_what_rolls_leaves_at_once_only_as_far_as_a_record_shows_that_it_has_not_bound(members: Members) -> None:
    """A record without the object, as while a watch is silent, counts no pod: all run there all the same."""
    members.ready["own-2"] = 0
    members.set_phase("own-1", PHASE_DRAINING)
    members.run_until_settled()
    part = members.planner_state.workloads[WEB].parts["own-1"]
    members.report_status(part, 6, updated=0)
    members.fleet.report_change("own-1", [node_row("a", 6000, used=6000)], facts_removed=(WEB,))
    members.pass_time(60)
    assert members.counts_by_cluster() == {"own-1": (0, 0, 6), "own-2": (6, 0, 0)}
    shown = workload_facts(part.version, 4, spec=6, status=6)
    members.fleet.report_change("own-1", [node_row("a", 6000, used=4000)], shown=(shown,))
    members.pass_time(10)
    assert members.counts_by_cluster() == {"own-1": (0, 0, 6), "own-2": (6, 0, 0)}, "they may bind in a moment"
    members.pass_time(60)
    assert members.counts_by_cluster() == {"own-1": (0, 0, 4), "own-2": (6, 0, 0)}


def test_a_scale_out_keeps_what_leaves_where_it_may() -> None:
    """Surplus of a return: it runs already. In a cluster that is drained it leaves all the same."""
    members = Members(own_1=6, own_2=10)
    members.apply_workload(6, limits=[{"cluster": "own-2", "max": 0}])
    members.run_until_settled()
    members.ready["own-2"] = 0
    members.apply_workload(6, limits=[{"cluster": "own-1", "max": 0}])
    members.run_until_settled()
    assert members.counts_by_cluster() == {"own-1": (0, 0, 6), "own-2": (6, 0, 0)}
    version = members.version_of_part("own-1")
    members.apply_workload(11)
    assert members.counts_by_cluster() == {"own-1": (3, 0, 3), "own-2": (8, 0, 0)}
    assert members.version_of_part("own-1") == version
    members.set_phase("own-1", PHASE_DRAINING)
    members.scale_workload(12)
    assert members.counts_by_cluster() == {"own-1": (3, 0, 3), "own-2": (9, 0, 0)}


def test_a_scale_in_takes_what_a_drained_cluster_keeps_first() -> None:
    members = Members(own_1=6, own_2=6)
    members.apply_workload(10)
    members.run_until_settled()
    members.brakes.allowed["Drain", "own-1"] = 0
    members.set_phase("own-1", PHASE_DRAINING)
    members.scale_workload(6)
    members.run_until_settled()
    assert members.counts_by_cluster() == {"own-1": (1, 0, 0), "own-2": (5, 0, 0)}


@pytest.mark.parametrize("phase", [PHASE_CORDONED, PHASE_DRAINING, PHASE_LEAVING, PHASE_LOST])
def test_a_cluster_out_of_use_takes_nothing_and_is_named_for_it(phase: str) -> None:
    members = Members(own_1=6)
    members.set_phase("own-1", phase)
    members.apply_workload(1)
    assert members.counts_by_cluster() == {}
    assert f"the cluster is {phase.lower()}" in members.waiting_reason
    members.set_phase("own-1", PHASE_ACTIVE)
    members.run_until_settled()
    assert members.counts_by_cluster() == {"own-1": (1, 0, 0)}


def test_a_drain_that_is_called_off_is_named_no_more() -> None:
    members = Members(own_1=6)
    members.apply_workload(6)
    members.run_until_settled()
    members.set_phase("own-1", PHASE_DRAINING)
    members.run_until_settled()
    assert members.waiting_reason.startswith("6 replicas of draining cluster own-1 wait for room elsewhere (")
    members.set_phase("own-1", PHASE_ACTIVE)
    members.run_until_settled()
    assert (members.waiting_reason, members.counts_by_cluster()) == ("", {"own-1": (6, 0, 0)})


def test_uncordon_keeps_what_was_not_moved_and_calls_nothing_back(members: Members) -> None:
    """What has its replacement goes once that is available; it would move twice otherwise."""
    members.ready["own-2"] = 0
    members.brakes.allowed["Drain", "own-1"] = 2
    members.set_phase("own-1", PHASE_DRAINING)
    members.run_until_settled()
    assert members.counts_by_cluster() == {"own-1": (4, 0, 2), "own-2": (2, 0, 0)}
    members.set_phase("own-1", PHASE_ACTIVE)
    members.run_until_settled()
    assert members.counts_by_cluster() == {"own-1": (4, 0, 2), "own-2": (2, 0, 0)}
    members.ready.clear()
    members.run_until_settled()
    assert members.counts_by_cluster() == {"own-1": (4, 0, 0), "own-2": (2, 0, 0)}


def test_a_leaving_cluster_has_left_once_no_placement_lists_it(members: Members) -> None:
    members.set_phase("own-1", PHASE_LEAVING)
    assert moves.clusters_that_left(members.planner_state) == ()
    members.run_until_settled()
    assert [event.cluster for event in moves.clusters_that_left(members.planner_state)] == ["own-1"]
    assert moves.clusters_that_left(members.planner_state) == moves.clusters_that_left(members.planner_state)


def test_a_drained_cluster_does_not_leave(members: Members) -> None:
    members.set_phase("own-1", PHASE_DRAINING)
    members.run_until_settled()
    assert moves.clusters_that_left(members.planner_state) == ()


def test_what_a_cluster_that_will_not_return_had_is_given_up_at_once() -> None:
    """Three of five find a place; the others wait for one. Nobody waits for the cluster to say anything."""
    members = Members(own_1=5, cloud_1=3)
    members.apply_workload(5)
    members.run_until_settled()
    members.silent.add("own-1")
    members.pass_time(40)
    members.brakes.allowed["Lost", "own-1"] = 2
    members.set_phase("own-1", PHASE_LOST)
    members.look_once()
    assert members.counts_by_cluster() == {"own-1": (3, 2, 0), "cloud-1": (2, 0, 0)}
    members.brakes.allowed["Lost", "own-1"] = 9
    members.run_until_settled()
    assert members.counts_by_cluster() == {"cloud-1": (3, 0, 0)}
    assert members.planner_state.workloads[WEB].unplaced == 2
    assert [event.cluster for event in moves.clusters_that_left(members.planner_state)] == ["own-1"]


@pytest.fixture
def half_given_up(members: Members) -> Members:
    """Of own-1 was said that it will not return; the budget let two of its six be replaced. It is back after all."""
    members.silent.add("own-1")
    members.pass_time(40)
    members.brakes.allowed["Lost", "own-1"] = 2
    members.set_phase("own-1", PHASE_LOST)
    members.look_once()
    assert members.counts_by_cluster() == {"own-1": (4, 2, 0), "own-2": (2, 0, 0)}
    members.silent.clear()
    members.brakes.allowed.clear()
    return members


def test_what_was_not_given_up_yet_stays_when_the_cluster_is_back_after_all(half_given_up: Members) -> None:
    members, version = half_given_up, half_given_up.version_of_part("own-1")
    members.ready["own-2"] = 0
    members.run_until_settled()
    assert members.counts_by_cluster() == {"own-1": (4, 0, 2), "own-2": (2, 0, 0)}
    assert members.version_of_part("own-1") == version, "its pods run on until those that replace them are available"
    members.ready.clear()
    members.run_until_settled()
    assert members.counts_by_cluster() == {"own-1": (4, 0, 0), "own-2": (2, 0, 0)}
    assert moves.clusters_that_left(members.planner_state) == ()
    members.scale_workload(7)
    members.run_until_settled()
    assert members.counts_by_cluster() == {"own-1": (4, 0, 0), "own-2": (3, 0, 0)}


def test_what_had_no_other_place_runs_on_in_the_cluster_that_is_back() -> None:
    members = Members(own_1=5, cloud_1=1)
    members.apply_workload(5)
    members.run_until_settled()
    members.silent.add("own-1")
    members.pass_time(40)
    members.brakes.allowed["Lost", "own-1"] = 3
    members.set_phase("own-1", PHASE_LOST)
    members.look_once()
    assert (members.counts_by_cluster(), members.planner_state.workloads[WEB].unplaced) == (
        {"own-1": (2, 3, 0), "cloud-1": (1, 0, 0)},
        2,
    )
    members.silent.clear()
    members.run_until_settled()
    assert members.counts_by_cluster() == {"own-1": (4, 0, 0), "cloud-1": (1, 0, 0)}
    assert (members.waiting_reason, members.planner_state.workloads[WEB].unplaced) == ("", 0)


def test_what_is_silent_again_is_given_up_again(half_given_up: Members) -> None:
    members = half_given_up
    members.run_until_settled()
    members.silent.add("own-1")
    members.pass_time(40)
    assert members.counts_by_cluster() == {"own-2": (6, 0, 0)}
    assert [event.cluster for event in moves.clusters_that_left(members.planner_state)] == ["own-1"]


@pytest.mark.parametrize("kind", ["StatefulSet", "Job"])
def test_what_is_whole_and_half_given_up_is_whole_again_when_its_cluster_is_back(members: Members, kind: str) -> None:
    workload = members.planner_state.workloads[WEB]
    workload.declared = replace(workload.declared, kind=kind)
    members.silent.add("own-1")
    members.pass_time(40)
    members.brakes.allowed["Lost", "own-1"] = 2
    members.set_phase("own-1", PHASE_LOST)
    members.look_once()
    assert (members.counts_by_cluster(), workload.unplaced) == ({"own-1": (4, 2, 0)}, 2)
    members.silent.clear()
    members.run_until_settled()
    assert (members.counts_by_cluster(), workload.unplaced) == ({"own-1": (6, 0, 0)}, 0)


def test_a_failover_under_way_ends_when_its_cluster_is_back(members: Members) -> None:
    """What the budget held back stays where it is; only what was replaced returns."""
    members.brakes.allowed["Failover", "own-1"] = 2
    members.silent.add("own-1")
    members.pass_time(AFTER + 10)
    assert members.counts_by_cluster() == {"own-1": (4, 2, 0), "own-2": (2, 0, 0)}
    members.silent.clear()
    members.brakes.allowed["Failover", "own-1"] = 9
    members.run_until_settled()
    kept = {cluster: count for cluster, (count, _, _) in members.counts_by_cluster().items()}
    assert sum(kept.values()) == 6
    assert kept["own-1"] >= 4
    assert members.waiting_reason == ""


def test_what_was_lost_in_a_cluster_that_will_not_return_is_gone(members_after_failover: Members) -> None:
    members_after_failover.silent.add("own-1")
    members_after_failover.set_phase("own-1", PHASE_LOST)
    members_after_failover.run_until_settled()
    assert members_after_failover.counts_by_cluster() == {"own-2": (6, 0, 0)}
    assert set(members_after_failover.planner_state.workloads[WEB].parts) == {"own-2"}


def test_a_deleted_workload_does_not_wait_for_a_cluster_that_will_not_return(members_after_failover: Members) -> None:
    members = members_after_failover
    members.silent.add("own-1")
    members.apply_events(
        decisions.decide_delete(members.planner_state, DeleteRequest("", "web"), members.fleet.next_moment()).events
    )
    members.set_phase("own-1", PHASE_LOST)
    members.pass_time(40)
    members.run_until_settled()
    assert members.planner_state.workloads[WEB].parts == {}


@pytest.mark.parametrize("scope", ["fleet", "cluster/own-1", "workload/default/web"])
def test_a_brake_keeps_no_deleted_workload_in_a_cluster_that_will_not_return(members: Members, scope: str) -> None:
    """Nothing moves when it is listed there no more: both were asked for by name."""
    members.set_brake(scope, "audit")
    members.silent.add("own-1")
    members.pass_time(40)
    members.apply_events(
        decisions.decide_delete(members.planner_state, DeleteRequest("", "web"), members.fleet.next_moment()).events
    )
    members.set_phase("own-1", PHASE_LOST)
    members.look_with_real_brakes()
    assert members.planner_state.workloads[WEB].parts == {}
    assert [event.cluster for event in moves.clusters_that_left(members.planner_state)] == ["own-1"]


def test_the_brake_of_the_cluster_that_replicas_would_go_to_is_named_and_counted() -> None:
    members = Members(own_1=12, own_2=12, own_3=12)
    members.apply_workload(10, limits=[{"cluster": "own-2", "max": 0}, {"cluster": "own-3", "max": 0}])
    members.apply_workload(10, limits=[{"cluster": "own-2", "max": 4}])
    members.run_until_settled()
    assert members.counts_by_cluster() == {"own-1": (10, 0, 0)}
    for target in ("own-2", "own-3"):
        members.set_brake(f"cluster/{target}", "audit")
    members.look_with_real_brakes()
    members.fleet.now += 60
    members.set_phase("own-1", PHASE_DRAINING)
    members.look_with_real_brakes()
    assert members.look_with_real_brakes() == 0
    assert moves.workloads_due_to_move(members.planner_state, members.fleet.now, members.planner_state.brakes) == [], (
        "nothing to divide until it changes"
    )
    assert members.counts_by_cluster() == {"own-1": (10, 0, 0)}
    assert "own-2: frozen; own-3: frozen" in members.waiting_reason
    assert members.waiting_reason.endswith(
        "; held: 4 replicas kept in own-1 wait for the brake of cluster/own-2: audit, "
        "6 replicas kept in own-1 wait for the brake of cluster/own-3: audit"
    )
    listed = braking.list_brakes(members.planner_state, members.fleet.now).brakes
    assert {brake.scope: brake.replicas for brake in listed} == {"cluster/own-2": 4, "cluster/own-3": 6}
    members.planner_state.apply_event(BrakeReleased("cluster/own-2", "ann", 2), members.fleet.now)
    members.fleet.now += 60
    members.look_with_real_brakes()
    assert members.counts_by_cluster() == {"own-1": (6, 0, 4), "own-2": (4, 0, 0)}
    assert members.waiting_reason.endswith(
        "; held: 6 replicas kept in own-1 wait for the brake of cluster/own-3: audit"
    )


# ── The policy ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_a_new_policy_rules_out_leaves_once_others_are_available(members: Members) -> None:
    members.ready["own-2"] = 0
    members.apply_workload(6, limits=[{"cluster": "own-1", "max": 4}])
    members.run_until_settled()
    assert members.counts_by_cluster() == {"own-1": (4, 0, 2), "own-2": (2, 0, 0)}
    members.ready["own-2"] = 2
    members.run_until_settled()
    assert members.counts_by_cluster() == {"own-1": (4, 0, 0), "own-2": (2, 0, 0)}


def test_a_raised_minimum_moves_replicas_as_far_as_there_is_room() -> None:
    members = Members(own_1=10, cloud_1=3)
    members.apply_workload(10)
    members.run_until_settled()
    members.ready["cloud-1"] = 0
    members.apply_workload(10, limits=[{"cluster": "cloud-1", "min": 5}])
    members.run_until_settled()
    assert members.counts_by_cluster() == {"own-1": (7, 0, 3), "cloud-1": (3, 0, 0)}
    assert members.waiting_reason == "room for 2 replicas that the minimum of cloud-1 lacks (cpu (1 node))"
    members.cores["cloud-1"] = 8
    del members.ready["cloud-1"]
    members.run_until_settled()
    assert (members.counts_by_cluster(), members.waiting_reason) == ({"own-1": (5, 0, 0), "cloud-1": (5, 0, 0)}, "")
    assert members.move_causes()[-1] == "Policy"


def test_a_minimum_of_a_cluster_that_was_silent_is_filled_when_it_is_back() -> None:
    members = Members(own_1=12, own_2=12)
    members.silent.add("own-2")
    members.pass_time(40)
    members.apply_workload(12, limits=[{"cluster": "own-2", "min": 6}])
    assert members.counts_by_cluster() == {"own-1": (12, 0, 0)}
    assert members.waiting_reason.startswith("room for 6 replicas that the minimum of own-2 lacks")
    members.run_until_settled()
    members.silent.clear()
    members.run_until_settled()
    assert (members.counts_by_cluster(), members.waiting_reason) == ({"own-1": (6, 0, 0), "own-2": (6, 0, 0)}, "")


def members_below_minimum() -> Members:
    """own-2 was silent when 24 replicas were placed, and lacks of its minimum now that it is back."""
    members = Members(own_1=24, own_2=24)
    members.silent.add("own-2")
    members.pass_time(40)
    members.apply_workload(24, limits=[{"cluster": "own-2", "min": 16}])
    members.run_until_settled()
    members.silent.clear()
    return members


def test_what_a_minimum_lacks_moves_within_the_budget_when_nobody_asks_now() -> None:
    members = members_below_minimum()
    members.brakes.allowed["Policy", "own-1"] = 5
    members.run_until_settled()
    assert members.counts_by_cluster() == {"own-1": (19, 0, 0), "own-2": (5, 0, 0)}
    assert moves.wanted_moves_by_cause(members.planner_state, members.fleet.now) == {("Policy", "own-1"): 11}
    members.apply_workload(24, limits=[{"cluster": "own-2", "min": 15}])
    assert members.counts_by_cluster() == {"own-1": (9, 0, 10), "own-2": (15, 0, 0)}, "asked for by name"


@pytest.mark.parametrize("taken_over", [False, True], ids=["same turn", "another turn"])
def test_what_a_minimum_lacks_waits_for_its_confirmation_when_it_is_much_of_the_fleet(taken_over: bool) -> None:
    members = members_below_minimum()
    for _ in range(4):
        members.fleet.now += 60
        members.send_heartbeats()
        aftermath.update_progress_timers(members.planner_state, members.fleet.now)
        for one in aftermath.next_waiting_workloads(members.planner_state, members.fleet.now):
            members.apply_events(
                aftermath.retry_waiting_workload(
                    members.planner_state, one, members.fleet.next_moment(), members.planner_state.brakes
                ).events
            )
        members.look_with_real_brakes()
    if taken_over:  # What a turn remembers of its own is gone.
        forget_turn_memory(members)
        for _ in range(3):
            members.look_with_real_brakes()
    assert members.counts_by_cluster() == {"own-1": (24, 0, 0)}
    assert members.waiting_reason == "held: 16 replicas kept in own-1 wait for the confirmation of Policy/own-1"
    assert moves.workloads_due_to_move(members.planner_state, members.fleet.now, members.planner_state.brakes) == [], (
        "until it is given"
    )
    members.planner_state.apply_event(ConfirmationGiven("Policy/own-1", "ann", 1), members.fleet.now)
    members.fleet.now += 60
    members.look_with_real_brakes()
    assert members.counts_by_cluster() == {"own-1": (8, 0, 16), "own-2": (16, 0, 0)}
    members.carry_out_parts()
    members.look_with_real_brakes()
    assert members.waiting_reason == ""


def test_what_a_minimum_lacks_is_asked_about_no_more_once_it_was_asked_for_by_name() -> None:
    members = members_below_minimum()
    members.brakes.allowed["Policy", "own-1"] = 0
    members.run_until_settled()
    assert moves.wanted_moves_by_cause(members.planner_state, members.fleet.now) == {("Policy", "own-1"): 16}
    members.apply_workload(24, limits=[{"cluster": "own-2", "min": 1}])
    members.run_until_settled()
    assert moves.wanted_moves_by_cause(members.planner_state, members.fleet.now) == {}


def forget_turn_memory(members: Members) -> None:
    members.planner_state.misplaced.clear()
    members.planner_state.to_look_through = None
    workload = members.planner_state.workloads[WEB]
    workload.for_minima, workload.looked_at, workload.held_by = ((), {}), None, {}


def test_a_cluster_that_a_policy_no_longer_selects_is_left(members: Members) -> None:
    """Its tier was changed where it was declared."""
    members.apply_workload(6, tiers=[{"name": "own", "clusters": {"tiers": ["own"]}}])
    members.run_until_settled()
    joined = members.planner_state.clusters["own-1"].joined
    assert joined is not None
    members.planner_state.apply_event(replace(joined, tier="edge"), members.fleet.now)
    members.run_until_settled()
    assert members.counts_by_cluster() == {"own-2": (6, 0, 0)}
    assert members.move_causes()[-1] == "Policy"


@pytest.mark.parametrize("taken_over", [False, True], ids=["same turn", "another turn"])
def test_what_a_join_rules_out_waits_for_its_confirmation(taken_over: bool) -> None:
    """Nobody asked for it by name: all twelve of the fleet would leave for a tier that was said otherwise."""
    members = Members(own_1=12, own_2=20)
    tiers = [{"name": "own", "clusters": {"tiers": ["own"]}}]
    members.apply_workload(12, tiers=tiers, limits=[{"cluster": "own-2", "max": 0}])
    members.run_until_settled()
    members.apply_workload(12, tiers=tiers)
    members.run_until_settled()
    joined = members.planner_state.clusters["own-1"].joined
    members.planner_state.apply_event(replace(joined, tier="edge"), members.fleet.now)
    if taken_over:  # What a turn remembers of its own is gone.
        members.planner_state.misplaced.clear()
    for _ in range(3):
        members.fleet.now += 60
        members.look_with_real_brakes()
    assert members.counts_by_cluster() == {"own-1": (12, 0, 0)}
    assert members.waiting_reason == "held: 12 replicas kept in own-1 wait for the confirmation of Policy/own-1"
    members.planner_state.apply_event(ConfirmationGiven("Policy/own-1", "ann", 1), members.fleet.now)
    members.fleet.now += 60
    members.look_with_real_brakes()
    assert members.counts_by_cluster() == {"own-1": (0, 0, 12), "own-2": (12, 0, 0)}


def test_what_a_join_rules_out_moves_within_the_budget() -> None:
    members = Members(own_1=12, own_2=20)
    tiers = [{"name": "own", "clusters": {"tiers": ["own"]}}]
    members.apply_workload(12, tiers=tiers, limits=[{"cluster": "own-2", "max": 0}])
    members.run_until_settled()
    members.apply_workload(12, tiers=tiers)
    members.run_until_settled()
    joined = members.planner_state.clusters["own-1"].joined
    members.brakes.allowed["Policy", "own-1"] = 5
    members.planner_state.apply_event(replace(joined, tier="edge"), members.fleet.now)
    members.run_until_settled()
    assert members.counts_by_cluster() == {"own-1": (7, 0, 0), "own-2": (5, 0, 0)}


def test_another_policy_that_is_applied_moves_what_it_rules_out_at_once() -> None:
    """It was asked for by name: neither a budget nor a confirmation is."""
    members = Members(own_1=12, own_2=20)
    members.apply_workload(12, limits=[{"cluster": "own-2", "max": 0}])
    members.run_until_settled()
    members.brakes.allowed["Policy", "own-1"] = 0
    members.apply_workload(12, tiers=[{"name": "other", "clusters": {"names": ["own-2"]}}])
    assert members.counts_by_cluster() == {"own-1": (0, 0, 12), "own-2": (12, 0, 0)}


def test_what_was_said_of_an_earlier_version_lets_nothing_go(members: Members) -> None:
    """So many may have been available of more, or of an earlier template."""
    members.set_phase("own-1", PHASE_DRAINING)
    members.ready["own-2"] = 2
    members.run_until_settled()
    assert members.counts_by_cluster() == {"own-1": (0, 0, 4), "own-2": (6, 0, 0)}
    workload = members.planner_state.workloads[WEB]
    said = workload.statuses["own-2"]
    members.planner_state.apply_event(
        replace(said, sequence=said.sequence + 1, available=6, ready=6), members.fleet.now
    )
    assert moves._removable_leaving_replicas(
        members.planner_state, workload, members.fleet.now, aftermath.NO_BRAKES
    ) == {"own-1": 4}
    old = replace(said, sequence=said.sequence + 2, available=6, ready=6, version=NO_GENERATION)
    members.planner_state.apply_event(old, members.fleet.now)
    assert (
        moves._removable_leaving_replicas(members.planner_state, workload, members.fleet.now, aftermath.NO_BRAKES) == {}
    )
