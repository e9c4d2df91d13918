"""What a cluster still has that is to leave: each row of the table in the planner's README, and how many are named."""

from dataclasses import replace
from typing import Any

import pytest

from planner.core.placement.workloads_left import LEFT_SHOWN, workloads_left_in
from planner.core.requests import answers, braking, decisions, membership
from spillway.api import ApplyRequest, DeleteRequest, FreezeRequest, LeaveClusterRequest, WorkloadLeft
from spillway.events import (
    PHASE_ACTIVE,
    PHASE_CORDONED,
    PHASE_DRAINING,
    PHASE_LEAVING,
    PHASE_LOST,
    STATE_PRESENT,
    PlacementDecided,
    WorkloadObserved,
)

from .builders import Fleet, apply_to_fleet, deployment, manifest_texts, node_row, statefulset

KEPT_BY = "on hold: the object is being deleted, and kept by its finalizers: evil/forever"


@pytest.fixture
def fleet() -> Fleet:
    """20 of web and 2 of db, all in own-1: nothing else takes them."""
    fleet = Fleet(own_1=[node_row("a", 60_000)])
    for manifests in (manifest_texts(deployment(20)), manifest_texts(statefulset(2))):
        apply_to_fleet(fleet, decisions.decide_apply(fleet.state, ApplyRequest(manifests), fleet.next_moment()).events)
    return fleet


def left_by_workload(fleet: Fleet, phase: str = PHASE_LEAVING) -> dict[str, WorkloadLeft]:
    return {one.name: one for one in workloads_left_in(fleet.state, fleet.state.clusters["own-1"], phase)}


def test_the_answer_to_a_leave_names_what_holds_the_cluster(fleet: Fleet) -> None:
    decided = membership.leave_cluster(fleet.state, LeaveClusterRequest("own-1"), fleet.next_moment())
    assert [(one.name, one.replicas, one.state) for one in decided.reply.cluster.left] == [
        ("db", 2, "Held"),
        ("web", 20, "Waiting"),
    ]
    apply_to_fleet(fleet, decided.events)
    (listed,) = answers.list_clusters(fleet.state, fleet.now).clusters
    assert listed.left == decided.reply.cluster.left
    assert (listed.workloads, listed.phase) == (2, PHASE_LEAVING)


@pytest.mark.parametrize("phase", [PHASE_ACTIVE, PHASE_CORDONED])
def test_a_cluster_that_keeps_what_it_has_is_held_by_nothing(fleet: Fleet, phase: str) -> None:
    assert left_by_workload(fleet, phase) == {}


@pytest.mark.parametrize("phase", [PHASE_DRAINING, PHASE_LEAVING])
def test_what_does_not_move_by_itself_waits_for_a_person(fleet: Fleet, phase: str) -> None:
    found = left_by_workload(fleet, phase)["db"]
    assert (found.state, found.reason) == ("Held", "a person: a StatefulSet does not move by itself")


def test_what_is_given_up_waits_for_nobody(fleet: Fleet) -> None:
    assert left_by_workload(fleet, PHASE_LOST)["db"].state == "Waiting"


def test_what_is_deleted_is_said_with_what_its_cluster_says_of_it(fleet: Fleet) -> None:
    apply_to_fleet(
        fleet, decisions.decide_delete(fleet.state, DeleteRequest("default", "web"), fleet.next_moment()).events
    )
    assert (left_by_workload(fleet)["web"].state, left_by_workload(fleet)["web"].reason) == ("Removing", "")
    fleet.state.apply_event(status_with_message(fleet, KEPT_BY), fleet.now)
    assert (left_by_workload(fleet)["web"].state, left_by_workload(fleet)["web"].reason) == ("Removing", KEPT_BY)


def status_with_message(fleet: Fleet, message: str) -> WorkloadObserved:
    version = fleet.state.workloads["default", "web"].parts["own-1"].version
    return WorkloadObserved("default", "web", "own-1", 1, 1, version, STATE_PRESENT, message, *[20] * 5)


def test_a_brake_is_named(fleet: Fleet) -> None:
    apply_to_fleet(
        fleet,
        braking.decide_freeze(fleet.state, FreezeRequest("cluster/own-1", "audit"), "ann", fleet.next_moment())[0],
    )
    assert (left_by_workload(fleet)["web"].state, left_by_workload(fleet)["web"].reason) == (
        "Held",
        "the brake of cluster/own-1: audit",
    )


def test_what_has_no_room_elsewhere_says_what_it_waits_for(fleet: Fleet) -> None:
    change_placement(fleet, waiting_for="room elsewhere for 20 replicas")
    assert (left_by_workload(fleet)["web"].state, left_by_workload(fleet)["web"].reason) == (
        "Waiting",
        "room elsewhere for 20 replicas",
    )


def test_what_leaves_waits_for_others_to_be_available(fleet: Fleet) -> None:
    part = fleet.state.workloads["default", "web"].parts["own-1"]
    change_placement(fleet, parts=(replace(part, replicas_leaving=part.replicas),))
    assert left_by_workload(fleet)["web"].state == "Leaving"


def change_placement(fleet: Fleet, **changes: Any) -> None:
    """The placement of web, said otherwise."""
    before = fleet.state.workloads["default", "web"].placement
    assert isinstance(before, PlacementDecided)
    fleet.state.apply_event(replace(before, generation=fleet.next_moment().generation, **changes), fleet.now)


def test_what_is_under_a_second_name_goes_over_to_the_first(fleet: Fleet) -> None:
    fleet.state.clusters["own-1"].twin_of = "a-first"
    assert left_by_workload(fleet)["db"].reason == "goes over to a-first"


def test_of_many_the_first_are_named_and_those_that_hang_come_first(fleet: Fleet) -> None:
    for number in range(LEFT_SHOWN + 3):
        manifests = manifest_texts(deployment(1, f"w{number:02}"))
        apply_to_fleet(fleet, decisions.decide_apply(fleet.state, ApplyRequest(manifests), fleet.next_moment()).events)
    apply_to_fleet(
        fleet, decisions.decide_delete(fleet.state, DeleteRequest("default", "w12"), fleet.next_moment()).events
    )
    found = workloads_left_in(fleet.state, fleet.state.clusters["own-1"], PHASE_LEAVING)
    names = [one.name for one in found]
    assert names[:3] == ["db", "w12", "w00"]
    assert len(names) == LEFT_SHOWN
