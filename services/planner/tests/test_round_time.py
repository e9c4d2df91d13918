"""How long a round works: each kind of work has its time, at least one workload, and the next round for the rest."""

from dataclasses import dataclass, replace
from typing import Any

import pytest

from planner.core.background import moves
from planner.core.background.overflow import overflow_of_workload
from planner.core.background.round import DecisionClock, RoundMemory, RoundStep, steps_before_requests, steps_of_round
from planner.core.knowledge.brakes import Brakes
from planner.core.knowledge.round_time import RoundTime
from planner.core.knowledge.rules import PlannerRules
from planner.core.knowledge.subject import Moment
from planner.core.manifests.cluster_index import ClusterIndex
from planner.core.placement.misplaced import replicas_ruled_out
from planner.core.requests import decisions
from planner.settings import PlannerSettings
from spillway.api import ApplyRequest, DeleteRequest
from spillway.events import PHASE_CORDONED, PHASE_DRAINING

from .builders import Fleet, apply_to_fleet, deployment, manifest_texts, node_row, placement_policy

SHORT = PlannerRules(round_seconds=0.25, round_kind_seconds=0.05, moves_per_minute=1e9)
NO_TIME = replace(SHORT, round_seconds=0, round_kind_seconds=0)
NAMES = ("a", "b", "c", "d", "e")


@dataclass
class SlowRounds:
    """Rounds of a planner whose every decision takes so many seconds."""

    fleet: Fleet
    memory: RoundMemory
    seconds: float = 0.0

    def next_moment(self) -> Moment:
        moment = self.fleet.next_moment()
        self.fleet.now += self.seconds
        return moment

    @property
    def clock(self) -> DecisionClock:
        return DecisionClock(lambda: self.fleet.now, self.next_moment)

    def run_round(self) -> list[RoundStep]:
        self.fleet.send_heartbeats()
        return self._applied(steps_of_round(self.fleet.state, self.memory, self.clock))

    def run_before_requests(self, lowest: int) -> list[RoundStep]:
        return self._applied(steps_before_requests(self.fleet.state, self.clock, lowest))

    def _applied(self, steps: object) -> list[RoundStep]:
        found = []
        for step in steps:  # type: ignore[attr-defined]
            apply_to_fleet(self.fleet, step.events)
            found.append(step)
        return found


def rounds_of(fleet: Fleet, rules: PlannerRules, seconds: float = 0.0) -> SlowRounds:
    fleet.state.rules, fleet.state.brakes = rules, Brakes(rules)
    return SlowRounds(fleet, RoundMemory(PlannerSettings().headroom_pace()), seconds)


def apply_named(fleet: Fleet, name: str, replicas: int = 1, namespace: str = "default", **policy: object) -> None:
    manifest = deployment(replicas, name)
    manifest["metadata"]["namespace"] = namespace
    request = ApplyRequest(manifest_texts(manifest, placement_policy(**policy)))
    apply_to_fleet(fleet, decisions.decide_apply(fleet.state, request, fleet.next_moment()).events)


def names_of(steps: list[RoundStep]) -> list[str]:
    """The workloads that steps are about."""
    return [step.subject[1] for step in steps if not isinstance(step.subject, str)]


def test_each_kind_of_work_has_what_is_left_of_the_round_and_at_least_a_time_of_its_own() -> None:
    now = 100.0
    time = RoundTime(lambda: now, SHORT)
    first = time.next_share()
    assert first.until == 100.25
    now = 100.24
    assert (first.is_over(), time.next_share().until) == (False, pytest.approx(100.29))
    now = 100.25
    assert (first.is_over(), time.next_share().is_over()) == (True, False)


@pytest.mark.parametrize(
    ("before_requests", "each_time"),
    [pytest.param(False, [2, 2, 2, 0], id="in-a-round"), pytest.param(True, [3, 3, 0], id="before-requests")],
)
def test_retries_end_with_their_time_and_the_next_round_goes_on(before_requests: bool, each_time: list[int]) -> None:
    """Fifty took 1.9 s, and every request waited for them. Namespaces keep their turns.

    In a round, the work before the retries has used up the round's time. The retries have a time of their own.
    """
    fleet = Fleet(own_1=[node_row("n", used=4000)])
    for namespace in ("mill", "shop"):
        for name in "abc":
            apply_named(fleet, f"{namespace}-{name}", namespace=namespace, priority=1)
    quick = rounds_of(fleet, SHORT)
    while names_of(quick.run_round()):
        pass
    fleet.report_change("own-1", [node_row("n", 16_000, used=4000)])
    slow = rounds_of(fleet, replace(SHORT, round_kind_seconds=0.15), 0.1)
    tried = [names_of(slow.run_before_requests(0) if before_requests else slow.run_round()) for _ in each_time]
    assert list(map(len, tried)) == each_time
    assert [name for names in tried for name in names] == [
        f"{namespace}-{name}" for name in "abc" for namespace in ("mill", "shop")
    ]


def test_with_no_time_at_all_each_kind_of_work_has_one_step() -> None:
    fleet = Fleet(own_1=[node_row("n", 8000)])
    for name in NAMES:
        apply_named(fleet, name)
        request = DeleteRequest("", name)
        apply_to_fleet(fleet, decisions.decide_delete(fleet.state, request, fleet.next_moment()).events)
    rounds = rounds_of(fleet, NO_TIME)
    tried = [names_of(rounds.run_round()) for _ in range(7)]
    assert tried == [["a"], ["b"], ["c"], ["d"], ["e"], ["a"], ["b"]], "who has nothing to settle yet keeps nobody away"


# ── The look for misplaced replicas ─────────────────────────────────────────────────────────────────────────────


def fleet_after_a_change(replicas: int = 4) -> Fleet:
    """Five workloads run in own-1. Its tier was changed, and another planner has the turn now."""
    fleet = Fleet(own_1=[node_row("n", 32_000, pods=100)])
    for name in NAMES:
        apply_named(fleet, name, replicas, tiers=[{"name": "own", "clusters": {"tiers": ["own"]}}])
    joined = fleet.state.clusters["own-1"].joined
    assert joined is not None
    fleet.state.apply_event(replace(joined, tier="edge"), fleet.now)
    other = Fleet(own_2=[node_row("n", 32_000, pods=100)])
    other_joined = other.state.clusters["own-2"].joined
    assert other_joined is not None
    fleet.state.apply_event(replace(other_joined, ordinal=7), fleet.now)
    fleet.report_full_block("own-2", [node_row("n", 32_000, pods=100)])
    fleet.state.misplaced.clear()
    fleet.state.to_look_through = None
    return fleet


def test_nothing_moves_before_all_workloads_were_looked_at() -> None:
    """The first few of them alone would be too few for a confirmation: 20 replicas would move unseen, 4 at a time."""
    fleet = fleet_after_a_change()
    rounds = rounds_of(fleet, NO_TIME)
    for _ in range(4):
        steps = rounds.run_round()
        assert (names_of(steps), fleet.state.brakes.asked) == ([], {})
    rounds.run_round()
    assert {scope: asked.replicas for scope, asked in fleet.state.brakes.asked.items()} == {"Policy/own-1": 20}
    for _ in range(9):
        rounds.run_round()
    assert all(set(workload.parts) == {"own-1"} for workload in fleet.state.workloads.values())


def test_a_look_goes_on_where_it_ended_and_each_workload_is_looked_at_once(calls_of: Any) -> None:
    fleet = fleet_after_a_change()
    rounds = rounds_of(fleet, NO_TIME)
    looked_at = []
    for _ in range(7):
        for workload in fleet.state.workloads.values():
            workload.ruled_out = ((), {}) if workload.workload_key not in fleet.state.misplaced else workload.ruled_out
        with calls_of(replicas_ruled_out) as calls:
            share = RoundTime(rounds.clock.now, NO_TIME).next_share()
            done = moves.look_for_moves(fleet.state, fleet.now, share)
        looked_at.append(([call["workload"].workload_key[1] for call in calls], done))
    each = [([name], name == "e") for name in NAMES]
    assert looked_at == [*each, ([], True), ([], True)]


def test_after_a_change_of_labels_who_may_have_to_move_is_looked_at_in_portions_too(calls_of: Any) -> None:
    fleet = fleet_after_a_change()
    rounds_of(fleet, SHORT).run_round()
    assert len(fleet.state.misplaced) == len(NAMES)
    joined = fleet.state.clusters["own-1"].joined
    assert joined is not None
    fleet.state.apply_event(replace(joined, labels=(("rack", "9"),)), fleet.now)
    computed = []
    for _ in range(6):
        with calls_of(replicas_ruled_out) as calls:
            share = RoundTime(lambda: fleet.now, NO_TIME).next_share()
            done = moves.look_for_moves(fleet.state, fleet.now, share)
        computed.append((len(calls), done))
    assert computed == [(1, False), (1, False), (1, False), (1, False), (1, True), (0, True)]


def test_with_time_for_all_a_round_looks_at_all() -> None:
    fleet = fleet_after_a_change()
    rounds_of(fleet, SHORT).run_round()
    assert list(fleet.state.brakes.asked) == ["Policy/own-1"]


def test_who_left_meanwhile_is_not_looked_at() -> None:
    fleet = fleet_after_a_change()
    rounds = rounds_of(fleet, NO_TIME)
    rounds.run_round()
    for name in "bcde":
        fleet.state.forget_workload(("default", name))
    for _ in range(5):
        rounds.run_round()
    assert list(fleet.state.misplaced) == [("default", "a")] or not fleet.state.misplaced
    assert fleet.state.to_look_through == []


def test_a_change_of_a_clusters_phase_leaves_what_policies_select_as_it_is(calls_of: Any) -> None:
    """All that was kept of hundreds of long policies was computed again in one step."""
    fleet = fleet_after_a_change()
    rounds = rounds_of(fleet, SHORT)
    rounds.run_round()
    joined = fleet.state.clusters["own-2"].joined
    assert joined is not None
    with calls_of(ClusterIndex.select_clusters, ClusterIndex.__init__) as calls:
        for phase in (PHASE_CORDONED, PHASE_DRAINING):
            fleet.state.apply_event(replace(joined, phase=phase), fleet.now)
            rounds.run_round()
    assert calls == []


# ── Overflow ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_no_overflow_goes_home_before_all_of_it_is_known(calls_of: Any) -> None:
    fleet = Fleet(own_1=[node_row("n", 4000)], cloud_1=[node_row("n", 32_000, pods=100)])
    for name in NAMES:
        apply_named(fleet, name, 4)
    homing = RoundMemory(PlannerSettings().headroom_pace()).homing
    found = []
    for _ in range(6):
        with calls_of(overflow_of_workload) as calls:
            homing.workloads_going_home(fleet.state, fleet.now, RoundTime(lambda: 0.0, NO_TIME).next_share())
        found.append((len(calls), len(homing.overflowed)))
    assert found == [(1, 0), (1, 0), (1, 0), (1, 0), (1, 4), (0, 4)]
