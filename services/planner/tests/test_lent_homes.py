"""Overflow asks for what its homes have lent: for how many, and when it does not; and goes home once it is back."""

from typing import Any

import pytest

from planner.core.background.lent_homes import LentHomes
from planner.core.knowledge.rules import PlannerRules
from planner.core.requests import decisions
from spillway.api import DeleteRequest
from spillway.events import PHASE_CORDONED, BrakeReleased, BrakeSet, ClusterLeft
from spillway.model import NODE_LENT

from .homing_world import WEB, HomingWorld

AFTER = 60


def world_with_overflow(lent: int, cores: int = 8, replicas: int = 12, **spec: Any) -> HomingWorld:
    """web fills own-1, the rest of it is in cloud-1; then own-1 lends a node as soon as it has it."""
    rules = PlannerRules(**{name: spec.pop(name) for name in ("home_margin", "home_moves_per_minute") if name in spec})
    world = HomingWorld({"own-1": cores, "cloud-1": 20}, rules)
    world.apply_workload(replicas, **spec)
    world.run_seconds(5)
    assert world.kept_by_cluster() == {"own-1": cores, "cloud-1": replicas - cores}
    world.lent["own-1"] = lent
    world.run_seconds(3)
    return world


def test_it_needs_the_nodes_and_goes_home_once_they_are_back() -> None:
    """Two of twelve replicas are the margin. The need stands until they have gone: the nodes would be lent again."""
    world = world_with_overflow(16)
    assert world.lent_needs_by_cluster() == {"own-1": 6}
    world.run_seconds(AFTER + 10)
    assert (world.kept_by_cluster(), world.lent_needs_by_cluster()) == ({"own-1": 8, "cloud-1": 4}, {"own-1": 6})
    del world.lent["own-1"]
    world.set_cores("own-1", 24)
    world.run_seconds(3)
    assert world.lent_needs_by_cluster() == {"own-1": 6}
    world.run_seconds(AFTER + 10)
    assert (world.kept_by_cluster(), world.lent_needs_by_cluster()) == ({"own-1": 12}, {})
    assert world.fewest == 12


@pytest.mark.parametrize(
    ("cores", "needed"),
    [
        pytest.param(2, 0, id="all of it would be the margin"),
        pytest.param(3, 3, id="one goes home"),
        pytest.param(5, 5, id="three go home"),
        pytest.param(6, 6, id="all do"),
        pytest.param(30, 6, id="no more than do"),
    ],
)
def test_it_needs_what_lets_more_go_home_and_the_margin(cores: int, needed: int) -> None:
    assert world_with_overflow(cores).lent_needs_by_cluster() == ({"own-1": needed} if needed else {})


def test_what_is_free_at_home_is_in_the_number_since_who_recalls_counts_it_first() -> None:
    world = world_with_overflow(8)
    world.set_cores("own-1", 11)
    world.run_seconds(3)
    assert world.lent_needs_by_cluster() == {"own-1": 6}
    world.set_cores("own-1", 14)
    world.run_seconds(3)
    assert world.lent_needs_by_cluster() == {"own-1": 6}, "free room is enough: it is kept until they have gone"
    world.run_seconds(AFTER + 10)
    assert (world.kept_by_cluster(), world.lent_needs_by_cluster()) == ({"own-1": 12}, {})


def test_a_need_whose_room_nobody_uses_ends() -> None:
    """Its nodes may be lent again: what keeps the replicas away is none of the bridge's business."""
    world = world_with_overflow(16, home_moves_per_minute=0.001)
    del world.lent["own-1"]
    world.set_cores("own-1", 24)
    world.run_seconds(2 * AFTER)
    assert (world.kept_by_cluster(), world.lent_needs_by_cluster()) == ({"own-1": 8, "cloud-1": 4}, {"own-1": 6})
    world.run_seconds(20)
    assert world.lent_needs_by_cluster() == {}
    world.run_seconds(20)
    assert world.lent_needs_by_cluster() == {}, "and does not begin again while the room is there"


def test_what_others_take_of_the_room_that_came_is_needed_no_more() -> None:
    world = world_with_overflow(16)
    del world.lent["own-1"]
    world.set_cores("own-1", 12)
    world.run_seconds(3)
    assert world.lent_needs_by_cluster() == {"own-1": 4}
    world.set_cores("own-1", 8)
    world.run_seconds(3)
    assert world.lent_needs_by_cluster() == {}


@pytest.mark.parametrize(
    "spec",
    [{"overflow": "Stay"}, {"home_moves_per_minute": 0.0}],
    ids=["it is to stay", "nothing goes home"],
)
def test_what_does_not_go_home_needs_nothing(spec: dict[str, Any]) -> None:
    assert world_with_overflow(16, **spec).lent_needs_by_cluster() == {}


@pytest.mark.parametrize("scope", ["fleet", "cluster/own-1", "cluster/cloud-1", "workload/default/web"])
def test_a_brake_ends_the_need_until_it_is_released(scope: str) -> None:
    world = world_with_overflow(16)
    world.apply_events((BrakeSet(scope, "why", "ann", 1),))
    world.run_seconds(3)
    assert world.lent_needs_by_cluster() == {}
    world.apply_events((BrakeReleased(scope, "ann", 2),))
    world.run_seconds(3)
    assert world.lent_needs_by_cluster() == {"own-1": 6}


def test_a_home_that_takes_nothing_is_not_needed() -> None:
    world = world_with_overflow(16)
    world.set_phase("own-1", PHASE_CORDONED)
    world.run_seconds(3)
    assert world.lent_needs_by_cluster() == {}


def test_other_decisions_leave_the_need_as_it_is() -> None:
    world = world_with_overflow(16)
    world.scale_workload(11)
    assert world.lent_needs_by_cluster() == {"own-1": 6}
    world.run_seconds(3)
    assert world.lent_needs_by_cluster() == {"own-1": 5}
    world.scale_workload(8)
    world.run_seconds(3)
    assert (world.kept_by_cluster(), world.lent_needs_by_cluster()) == ({"own-1": 8}, {})


def test_deleting_ends_the_need() -> None:
    world = world_with_overflow(16)
    world.apply_events(
        decisions.decide_delete(world.fleet.state, DeleteRequest("", "web"), world.fleet.next_moment()).events
    )
    assert world.lent_needs_by_cluster() == {}
    world.run_seconds(3)
    assert world.lent_needs_by_cluster() == {}


def test_what_left_since_the_look_needs_nothing() -> None:
    """A home, and then the workload itself, are gone while the last look still names them."""
    world = world_with_overflow(16)
    state, named = world.fleet.state, world.memory.homing.overflowed
    world.apply_events((ClusterLeft("own-1"),))
    world.memory.lent_homes = LentHomes()
    world.apply_events(tuple(world.memory.lent_homes.update_home_needs(state, named, world.fleet.next_moment())))
    assert world.lent_needs_by_cluster() == {}
    del state.workloads[WEB]
    world.fleet.now += 2
    assert world.memory.lent_homes.update_home_needs(state, named, world.fleet.next_moment()) == []


def test_another_turn_finds_the_same() -> None:
    world = world_with_overflow(16)
    said = world.fleet.state.needed[WEB]["own-1"]
    world.memory.lent_homes = LentHomes()
    world.run_seconds(3)
    assert world.fleet.state.needed[WEB]["own-1"] is said
    assert world.fleet.state.clusters["own-1"].nodes.state.tolist().count(NODE_LENT) == 1


def test_while_some_have_no_place_at_all_their_need_counts() -> None:
    world = world_with_overflow(16)
    world.scale_workload(50)
    world.run_seconds(3)
    assert world.find_workload(WEB).unplaced == 22
    assert world.lent_needs_by_cluster() == {"own-1": 16}


NAMES = ("web", "big", "mid", "low", "end")


def test_an_old_need_is_not_said_again_once_what_waited_has_places() -> None:
    """Its homes lend nothing any more since replicas had begun to wait."""
    world = world_with_overflow(16)
    assert world.lent_needs_by_cluster() == {"own-1": 6}
    world.apply_workload(40)
    del world.lent["own-1"]
    world.run_seconds(10)
    assert world.lent_needs_by_cluster() == {}
    before = len(world.needs)
    world.apply_workload(12)
    world.run_seconds(10)
    assert (world.needs[before:], world.lent_needs_by_cluster()) == ([], {})


def world_with_many_overflows() -> HomingWorld:
    """Five of twelve replicas each, of which own-1 takes eight in all; its room is another one each second."""
    world = HomingWorld({"own-1": 8, "cloud-1": 80}, PlannerRules())
    for name in NAMES:
        world.apply_workload(12, name)
    world.run_seconds(5)
    world.lent["own-1"] = 80
    return world


def run_with_unsteady_room(world: HomingWorld, seconds: int) -> set[str]:
    """Whose need is said then."""
    for second in range(seconds):
        world.set_cores("own-1", 8 + second % 2)
        world.run_seconds(1)
    return {name for (_, name), needs in world.fleet.state.needed.items() if needs}


def test_each_is_looked_at_in_its_turn_however_often_those_before_it_change() -> None:
    """Two at a look, of five: three looks."""
    world = world_with_many_overflows()
    world.memory.lent_homes = LentHomes(looked_at_max=2)
    assert run_with_unsteady_room(world, 3) == set(NAMES)
    before = {name: world.find_workload(("default", name)).home_needs for name in NAMES}
    world.lent["own-1"] = 4
    run_with_unsteady_room(world, 3)
    after = {name: world.find_workload(("default", name)).home_needs for name in NAMES}
    assert all(after[name] != before[name] for name in NAMES)


def test_turns_of_one_look_each_begin_at_another_one() -> None:
    """As of a planner that is started again and again: what a turn knew of who waits is gone with it."""
    world = world_with_many_overflows()
    said: set[str] = set()
    for _ in range(3):
        world.memory.lent_homes = LentHomes(looked_at_max=2)
        world.fleet.state.needed.clear()
        world.fleet.epoch += 1
        said |= run_with_unsteady_room(world, 1)
    assert said == set(NAMES)
