"""Overflow goes home: when, how many, what holds it, and what stays because a person said so."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.core.background import aftermath, homing
from planner.core.background.overflow import Overflow, overflow_of_workload
from planner.core.background.round import steps_of_round
from planner.core.background.steady import SteadyRoom
from planner.core.knowledge.allowance import CAUSE_HOME, CAUSE_SETTLED, CAUSE_TAKE_BACK
from planner.core.knowledge.brakes import RecentMoves
from planner.core.knowledge.rules import PlannerRules
from planner.core.manifests.policy import FleetClusters, read_policy
from planner.core.requests import decisions
from spillway.api import ApplyRequest, MigrateRequest
from spillway.events import (
    PHASE_ACTIVE,
    PHASE_CORDONED,
    PHASE_DRAINING,
    BrakeSet,
    ClusterLeft,
    ConfirmationGiven,
    PlacementDecided,
)
from spillway.model import NO_GENERATION, Part

from .builders import (
    container_spec,
    deployment,
    joined_cluster,
    manifest_texts,
    placement_policy,
    pod_template,
    statefulset,
)
from .homing_world import BIG, WEB, HomingWorld

AFTER = 60


def world_after_peak(**rules: Any) -> HomingWorld:
    """web has 8 replicas in own-1 and 4 in cloud-1; then 8 more cores of own-1 are there."""
    world = HomingWorld({"own-1": 8, "cloud-1": 20}, PlannerRules(**rules))
    world.apply_workload(12)
    world.run_seconds(5)
    assert world.kept_by_cluster() == {"own-1": 8, "cloud-1": 4}
    world.set_cores("own-1", 16)
    return world


def test_it_goes_home_once_there_has_been_room_for_so_long_and_not_before() -> None:
    world = world_after_peak()
    world.run_seconds(AFTER)
    assert world.kept_by_cluster() == {"own-1": 8, "cloud-1": 4}
    world.run_seconds(5)
    assert world.kept_by_cluster() == {"own-1": 12}
    assert [record.cause for record in world.decided if record.cause != "Settled"] == ["Apply", CAUSE_HOME]
    assert world.fewest == 12, "all of them were available all the time"


def test_it_leaves_once_those_at_home_are_available_and_not_before() -> None:
    world = world_after_peak()
    world.unready.add("own-1")
    world.run_seconds(AFTER + 30)
    part = world.web_part_in("cloud-1")
    assert (part.replicas, part.replicas_leaving, world.kept_by_cluster()) == (4, 4, {"own-1": 12})
    world.unready.clear()
    world.run_seconds(5)
    assert world.kept_by_cluster() == {"own-1": 12}


@pytest.mark.parametrize(
    ("cores", "home"),
    [
        pytest.param(9, 0, id="room for one: it is the margin"),
        pytest.param(10, 0, id="room for two: a tenth of twelve, rounded up"),
        pytest.param(11, 1, id="room for three"),
        pytest.param(13, 3, id="room for five"),
        pytest.param(16, 4, id="room for more than all"),
    ],
)
def test_the_margin_stays_free(cores: int, home: int) -> None:
    world = world_after_peak()
    world.set_cores("own-1", cores)
    world.run_seconds(2 * AFTER)
    assert world.kept_by_cluster() == {"own-1": 8 + home} | ({"cloud-1": 4 - home} if home < 4 else {})


def test_room_that_was_gone_for_a_moment_counts_from_then() -> None:
    world = world_after_peak()
    world.run_seconds(AFTER - 10)
    world.set_cores("own-1", 8)
    world.run_seconds(2)
    world.set_cores("own-1", 16)
    world.run_seconds(AFTER - 5)
    assert world.kept_by_cluster()["cloud-1"] == 4
    world.run_seconds(10)
    assert world.kept_by_cluster() == {"own-1": 12}


def test_of_room_that_shrinks_what_is_left_has_held() -> None:
    world = world_after_peak()
    world.run_seconds(AFTER - 10)
    world.set_cores("own-1", 12)
    world.run_seconds(15)
    assert world.kept_by_cluster() == {"own-1": 10, "cloud-1": 2}


def test_of_more_homes_than_one_step_takes_each_counts_from_when_it_was_looked_at() -> None:
    """Ten overflow, and two homes have room for five each."""
    world = HomingWorld({"own-1": 1, "own-2": 1, "own-3": 1, "cloud-1": 20}, PlannerRules())
    world.apply_workload(13)
    world.run_seconds(5)
    fleet, turn = world.fleet, homing.Homing(new_places_max=1)
    for name in ("own-1", "own-2"):
        world.set_cores(name, 6)
    world.run_seconds(1)
    wanted = []
    for step in (0.0, 0.1, 0.1, AFTER - 0.2, 0.1, 1.0):
        fleet.now += step
        fleet.send_heartbeats("own-1", "own-2", "cloud-1")
        turn.workloads_going_home(fleet.state, fleet.now)
        wanted.append(sum(turn.wanted.values()))
        fleet.state.apply_event(ClusterLeft("own-3"), fleet.now)
    assert wanted == [0, 0, 0, 3, 3, 8], "the margin is two of thirteen; between two looks nothing is found"


def test_no_more_go_in_a_minute_than_its_budget() -> None:
    world = world_after_peak(home_moves_per_minute=2, home_after=10)
    world.run_seconds(15)
    assert world.kept_by_cluster()["cloud-1"] == 4, "the first minute of a turn has none"
    world.run_seconds(AFTER - 10)
    assert world.kept_by_cluster() == {"own-1": 10, "cloud-1": 2}
    world.run_seconds(AFTER - 10)
    assert world.kept_by_cluster() == {"own-1": 10, "cloud-1": 2}
    world.run_seconds(15)
    assert world.kept_by_cluster() == {"own-1": 12}


@pytest.mark.parametrize("scope", ["fleet", "cluster/own-1", "cluster/cloud-1", "workload/default/web"])
def test_a_brake_stops_it(scope: str) -> None:
    world = world_after_peak()
    world.apply_events((BrakeSet(scope, "audit", "ann", 1),))
    world.run_seconds(3 * AFTER)
    assert world.kept_by_cluster() == {"own-1": 8, "cloud-1": 4}


@pytest.mark.parametrize("phase", [PHASE_CORDONED, PHASE_DRAINING])
def test_a_home_that_takes_nothing_gets_none_and_counts_from_when_it_does(phase: str) -> None:
    world = world_after_peak(confirm_over_replicas=100)
    world.set_phase("own-1", PHASE_CORDONED)
    world.run_seconds(3 * AFTER)
    assert world.kept_by_cluster() == {"own-1": 8, "cloud-1": 4}
    if phase == PHASE_DRAINING:
        world.set_phase("own-1", phase)
        world.run_seconds(3 * AFTER)
        assert world.kept_by_cluster() == {"cloud-1": 12}
    world.set_phase("own-1", PHASE_ACTIVE)
    world.run_seconds(AFTER - 5)
    assert world.kept_by_cluster()["cloud-1"] >= 4
    world.run_seconds(20)
    assert world.kept_by_cluster() == {"own-1": 12}


def test_what_would_move_much_of_the_fleet_waits_for_a_confirmation() -> None:
    world = world_after_peak(confirm_over_replicas=2)
    world.run_seconds(2 * AFTER)
    assert world.kept_by_cluster()["cloud-1"] == 4
    asked = world.fleet.state.brakes.asked["Home/cloud-1"]
    assert (asked.replicas, asked.fleet_replicas) == (4, 12)
    world.apply_events((ConfirmationGiven("Home/cloud-1", "ann", 1),))
    world.run_seconds(5)
    assert world.kept_by_cluster() == {"own-1": 12}


def test_what_is_asked_for_is_what_has_room_and_not_all_that_overflows() -> None:
    """Two workloads hope for the same room: it is counted once."""
    world = HomingWorld({"own-1": 8, "cloud-1": 40}, PlannerRules(confirm_over_replicas=1))
    world.apply_workload(8)
    world.apply_workload(20, name="api")
    world.run_seconds(5)
    world.apply_workload(13)
    world.run_seconds(5)
    world.set_cores("own-1", 16)
    world.run_seconds(AFTER + 5)
    assert world.fleet.state.brakes.asked["Home/cloud-1"].replicas <= 8


def test_what_waits_goes_before_what_goes_home() -> None:
    """The cloud is full and somebody waits: the room at home is theirs, also while it holds only part of them."""
    world = HomingWorld({"own-1": 8, "cloud-1": 4}, PlannerRules())
    world.apply_workload(12)
    world.apply_workload(
        6, name="big", pod=pod_template(container_spec(cpu="2")), limits=[{"cluster": "own-1", "max": 2}]
    )
    world.run_seconds(5)
    assert world.find_workload(BIG).unplaced == 6
    world.set_cores("own-1", 16)
    world.run_seconds(AFTER - 10)
    assert (world.kept_by_cluster(BIG), world.find_workload(BIG).unplaced) == ({"own-1": 2}, 4)
    world.run_seconds(AFTER)
    assert world.kept_by_cluster() == {"own-1": 10, "cloud-1": 2}, (
        "four waited at a bound of their own, not for this room"
    )


@pytest.mark.parametrize("cores", [8, 40], ids=["room for those held alone", "more of them than are looked at"])
def test_who_is_held_keeps_nobody_else_from_going_home(cores: int) -> None:
    """Those in cloud-1 are held by a brake: neither the room that they hope for nor their number keeps web away."""
    world = HomingWorld(
        {"own-1": 4, "cloud-1": 20, "cloud-2": 20}, PlannerRules(replans_max=2, confirm_over_replicas=100)
    )
    for name, replicas, cloud in (("big", 4, 1), ("a", 1, 1), ("b", 1, 1), ("c", 1, 1), ("web", 1, 2)):
        clouds = {"name": "cloud", "clusters": {"names": [f"cloud-{cloud}"]}}
        world.apply_workload(replicas, name, tiers=[{"name": "own", "clusters": {"names": ["own-1"]}}, clouds])
    world.run_seconds(5)
    world.apply_events((BrakeSet("cluster/cloud-1", "audit", "ann", 1),))
    world.set_cores("own-1", cores)
    world.run_seconds(AFTER + 10)
    assert world.kept_by_cluster() == {"own-1": 1}
    assert [world.kept_by_cluster(("default", name)) for name in "abc"] == [{"cloud-1": 1}] * 3


def test_who_is_looked_at_are_others_each_time_where_there_are_more() -> None:
    world = HomingWorld({"own-1": 4, "cloud-1": 20}, PlannerRules(replans_max=2, home_moves_per_minute=0))
    for name, replicas in (("big", 4), ("a", 1), ("b", 1), ("web", 1)):
        world.apply_workload(replicas, name)
    world.set_cores("own-1", 40)
    world.run_seconds(AFTER + 10)
    seen = set()
    for _ in range(2):
        world.fleet.now += 1
        for workload in world.memory.homing.workloads_going_home(world.fleet.state, world.fleet.now):
            world.memory.homing.note_tried(workload.workload_key)
            seen.add(workload.workload_key)
    assert seen == {WEB, ("default", "a"), ("default", "b")}


def test_who_is_tried_when_a_round_has_time_for_one_are_others_each_time() -> None:
    """No budget lets any of them go, so the first one stays the first."""
    rules = PlannerRules(round_seconds=0, round_kind_seconds=0, home_moves_per_minute=0)
    world = HomingWorld({"own-1": 4, "cloud-1": 20}, rules)
    for name, replicas in (("big", 4), ("a", 1), ("b", 1), ("web", 1)):
        world.apply_workload(replicas, name)
    world.set_cores("own-1", 40)
    world.run_seconds(AFTER + 10)
    tried = []
    for _ in range(3):
        world.fleet.now += 1
        steps = list(steps_of_round(world.fleet.state, world.memory, world.fleet.decision_clock()))
        tried.append([step.subject for step in steps if step.cause == CAUSE_HOME])
    assert sorted(tried) == [[("default", "a")], [("default", "b")], [WEB]]


def test_while_somebody_waits_who_may_get_the_room_nobody_goes_home() -> None:
    world = world_after_peak()
    world.run_seconds(AFTER - 1)
    request = ApplyRequest(manifest_texts(deployment(2, "api")))
    declared, placement = decisions.decide_apply(world.fleet.state, request, world.fleet.next_moment()).events[:2]
    assert isinstance(placement, PlacementDecided)
    world.apply_events((declared, replace(placement, parts=(), unplaced=2)))
    state, now = world.fleet.state, world.fleet.now + 3
    assert [workload.workload_key for workload in aftermath.next_waiting_workloads(state, now)] == [("default", "api")]
    assert world.memory.homing.workloads_going_home(state, now) == []
    world.fleet.now = now
    world.run_seconds(3)
    assert (world.kept_by_cluster(("default", "api")), world.kept_by_cluster()) == ({"own-1": 2}, {"own-1": 12})


def test_a_policy_may_say_that_it_stays() -> None:
    world = world_after_peak()
    world.apply_workload(12, overflow="Stay")
    world.run_seconds(3 * AFTER)
    assert world.kept_by_cluster() == {"own-1": 8, "cloud-1": 4}
    world.apply_workload(12)
    world.run_seconds(3 * AFTER)
    assert world.kept_by_cluster() == {"own-1": 12}


def test_what_a_person_sent_away_by_name_stays_until_another_policy_is_applied() -> None:
    world = HomingWorld({"own-1": 16, "cloud-1": 16}, PlannerRules())
    world.apply_workload(8)
    world.run_seconds(5)
    request = MigrateRequest("", "web", "cloud-1", "own-1", 3)
    world.apply_events(decisions.decide_migrate(world.fleet.state, request, world.fleet.next_moment()).events)
    world.run_seconds(3 * AFTER)
    assert world.kept_by_cluster() == {"own-1": 5, "cloud-1": 3}
    world.scale_workload(6)
    world.run_seconds(3 * AFTER)
    assert world.kept_by_cluster() == {"own-1": 5, "cloud-1": 1}
    world.apply_workload(6, overflow="GoHome", limits=[{"cluster": "own-1", "max": 50}])
    world.run_seconds(3 * AFTER)
    assert world.kept_by_cluster() == {"own-1": 6}


def test_what_a_person_sent_away_stays_by_name_when_others_leave_from_beside_it() -> None:
    """Four overflow, two more were sent there: the four go home, and leave, and the two stay."""
    world = HomingWorld({"own-1": 8, "cloud-1": 20}, PlannerRules())
    world.apply_workload(12)
    world.run_seconds(5)
    world.apply_events(
        decisions.decide_migrate(
            world.fleet.state, MigrateRequest("", "web", "cloud-1", "own-1", 2), world.fleet.next_moment()
        ).events
    )
    world.run_seconds(5)
    assert world.kept_by_cluster() == {"own-1": 6, "cloud-1": 6}
    world.set_cores("own-1", 20)
    world.run_seconds(5 * AFTER)
    assert world.kept_by_cluster() == {"own-1": 10, "cloud-1": 2}
    assert world.web_part_in("cloud-1").replicas_by_name == 2


def test_what_did_not_bind_at_home_is_kept_where_it_was() -> None:
    world = world_after_peak()
    world.unbound.add("own-1")
    world.run_seconds(AFTER + 40)
    assert world.kept_by_cluster() == {"own-1": 8, "cloud-1": 4}
    assert [record.cause for record in world.decided[-3:]] == [CAUSE_HOME, CAUSE_TAKE_BACK, CAUSE_SETTLED]
    assert world.web_part_in("cloud-1").replicas_leaving == 0
    assert world.fewest == 12


def test_overflow_that_did_not_bind_at_home_goes_again_after_the_hold_and_the_home_time() -> None:
    """The hold after a take-back is against this workload alone: the shape has had room there all the time."""
    world = world_after_peak()
    world.unbound.add("own-1")
    world.run_seconds(AFTER + 20)
    ends = next(iter(world.fleet.state.holds.values())).until
    world.run_seconds(int(ends - world.fleet.now) + AFTER)
    assert [record.cause for record in world.decided].count(CAUSE_HOME) == 1
    world.run_seconds(5)
    assert [record.cause for record in world.decided].count(CAUSE_HOME) == 2


def test_a_replay_of_its_record_gives_the_same_division() -> None:
    """keep() replays each record; here that it has the figures of before and after."""
    world = world_after_peak()
    world.run_seconds(AFTER + 5)
    record = next(record for record in world.decided if record.cause == CAUSE_HOME)
    assert {entry.cluster: (entry.before, entry.after) for entry in record.inputs} == {
        "own-1": (8, 12),
        "cloud-1": (4, 0),
    }


def test_a_statefulset_never_goes() -> None:
    world = HomingWorld({"own-1": 1, "cloud-1": 20}, PlannerRules())
    request = ApplyRequest(manifest_texts(statefulset(4, "web")))
    world.apply_events(decisions.decide_apply(world.fleet.state, request, world.fleet.next_moment()).events)
    world.run_seconds(5)
    world.set_cores("own-1", 16)
    world.run_seconds(3 * AFTER)
    assert world.kept_by_cluster() == {"cloud-1": 4}


# ── What overflow is ────────────────────────────────────────────────────────────────────────────────────────────

THREE = (joined_cluster("own-1"), joined_cluster("own-2"), joined_cluster("cloud-1", "cloud"))
NAMED = [{"name": name, "clusters": {"names": [name]}} for name in ("cloud-1", "own-2", "own-1")]
NODES_FIRST = [{"name": "new", "nodeGroups": True}, *NAMED]


@pytest.mark.parametrize(
    ("spec", "kept", "by_name", "expected"),
    [
        pytest.param({}, {"own-1": 3, "cloud-1": 2}, 0, [("cloud-1", 2, ("own-1", "own-2"))], id="own first"),
        pytest.param({}, {"own-1": 3}, 0, [], id="none in a later tier"),
        pytest.param({"ownFirst": False}, {"own-1": 3, "cloud-1": 2}, 0, [], id="all clusters alike"),
        pytest.param({"overflow": "Stay"}, {"cloud-1": 2}, 0, [], id="it stays"),
        pytest.param({"strategy": {"name": "Duplicated"}}, {"cloud-1": 2}, 0, [], id="a strategy without tiers"),
        pytest.param({}, {"cloud-1": 5}, 2, [("cloud-1", 3, ("own-1", "own-2"))], id="some were sent there by name"),
        pytest.param({}, {"cloud-1": 5}, 7, [], id="all were"),
        pytest.param(
            {"limits": [{"cluster": "cloud-1", "min": 3}]},
            {"cloud-1": 5},
            2,
            [("cloud-1", 2, ("own-1", "own-2"))],
            id="a minimum",
        ),
        pytest.param(
            {"tiers": NAMED},
            {"own-1": 1, "own-2": 1, "cloud-1": 1},
            0,
            [("own-1", 1, ("cloud-1", "own-2")), ("own-2", 1, ("cloud-1",))],
            id="the last tier first, each to all before it",
        ),
        pytest.param({"tiers": NAMED[:1]}, {"own-1": 1}, 0, [], id="what no tier has is ruled out, no overflow"),
        pytest.param({"tiers": NODES_FIRST}, {"own-1": 1}, 0, [], id="nobody goes home past nodes still to be made"),
    ],
)
def test_overflow(spec: dict[str, Any], kept: dict[str, int], by_name: int, expected: list[Any]) -> None:
    world = HomingWorld({"own-1": 1, "cloud-1": 1}, PlannerRules())
    world.apply_workload(1)
    workload = world.find_workload(WEB)
    workload.declared = replace(workload.declared, policy=read_policy(placement_policy(**spec)))
    parts = tuple(
        Part(name, NO_GENERATION, count, 0, count, removing=False, replicas_by_name=by_name)
        for name, count in kept.items()
    )
    assert workload.placement is not None
    workload.placement = replace(workload.placement, parts=parts)
    assert overflow_of_workload(workload, FleetClusters(THREE)) == tuple(Overflow(*entry) for entry in expected)


# ── How long, how many ──────────────────────────────────────────────────────────────────────────────────────────


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 30)), min_size=1, max_size=40), st.integers(1, 90))
def test_steady_room_is_the_least_of_the_last_seconds(rooms: list[tuple[int, int]], seconds: int) -> None:
    steady, now, seen = SteadyRoom(), 0, list[tuple[int, int]]()
    for room, then in rooms:
        steady.note_room(room, now)
        seen.append((now, room))
        now += then
        start = max((at for at, _ in seen if at <= now - seconds), default=None)
        least = min(size for at, size in seen if start is not None and at >= start) if start is not None else 0
        assert steady.lasting_room(seconds, now) == least


@given(st.lists(st.tuples(st.floats(0.1, 50), st.integers(0, 9)), max_size=60), st.integers(0, 12))
def test_in_any_minute_at_most_the_budget_and_in_the_first_none(steps: list[tuple[float, int]], budget: int) -> None:
    recent, now, moved = RecentMoves(budget), 0.0, list[tuple[float, int]]()
    recent.forget_old_moves(now)
    for then, wanted in steps:
        now += then
        recent.forget_old_moves(now)
        count = min(wanted, recent.whole_replicas)
        recent.note_moves(count, now)
        moved.append((now, count))
        assert sum(done for at, done in moved if now - at < 60) <= budget
        assert now >= 60 or count == 0
