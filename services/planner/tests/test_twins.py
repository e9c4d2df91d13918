"""What a second name of an API server has goes over to the first when the second is emptied, or leaves."""

import pytest

from planner.core.background import moves, twins
from planner.core.requests import decisions, membership
from spillway.api import ApplyRequest, DeleteRequest, JoinClusterRequest, ScaleRequest
from spillway.events import PHASE_ACTIVE, PHASE_CORDONED, PHASE_DRAINING, PHASE_LEAVING, PHASE_LOST, BrakeSet
from spillway.model import Part

from .builders import (
    Fleet,
    apply_to_fleet,
    deployment,
    manifest_texts,
    node_row,
    placement_policy,
    pod_template,
    statefulset,
)


@pytest.fixture
def fleet() -> Fleet:
    """8 of web: 5 in a-twin, 3 in other, which is full. Then z-first answers: it joined first, and is a-twin."""
    fleet = Fleet()
    for name in ("z-first", "a-twin", "other"):
        joined, _ = membership.join_cluster(fleet.state, JoinClusterRequest(name, name))
        fleet.state.apply_event(joined, fleet.now)
    for name, server, cpu in (("a-twin", "u1", 5_000), ("other", "u2", 3_000)):
        fleet.report_full_block(name, [node_row("n", cpu)], api_server=server)
        fleet.send_heartbeats(name)
    apply_to_fleet(
        fleet,
        decisions.decide_apply(fleet.state, ApplyRequest(manifest_texts(deployment(8))), fleet.next_moment()).events,
    )
    assert replicas_by_cluster(fleet) == {"a-twin": 5, "other": 3}
    fleet.report_full_block("z-first", [node_row("n", 9_000)], api_server="u1")
    fleet.send_heartbeats("z-first")
    assert fleet.state.clusters["a-twin"].twin_of == "z-first"
    return fleet


def parts_by_cluster(fleet: Fleet, name: str = "web") -> dict[str, Part]:
    return dict(fleet.state.workloads["default", name].parts)


def replicas_by_cluster(fleet: Fleet, name: str = "web") -> dict[str, int]:
    return {cluster: part.replicas for cluster, part in parts_by_cluster(fleet, name).items()}


def change_phase(fleet: Fleet, phase: str, name: str = "a-twin") -> None:
    view = fleet.state.clusters[name]
    apply_to_fleet(fleet, membership._change_phase(fleet.state, view, phase, fleet.next_moment()).events)


def hand_over_due_workloads(fleet: Fleet) -> int:
    """All that is due; how many steps that took."""
    steps = 0
    for workload, duplicate in twins.workloads_to_hand_over(fleet.state):
        apply_to_fleet(fleet, twins.hand_over_step(fleet.state, workload, duplicate, fleet.next_moment()).events)
        steps += 1
    return steps


@pytest.mark.parametrize("phase", [PHASE_DRAINING, PHASE_LEAVING, PHASE_LOST])
def test_it_goes_over_as_it_is_and_nothing_else_moves(fleet: Fleet, phase: str) -> None:
    if phase == PHASE_LOST:
        fleet.now += 100
        fleet.send_heartbeats("z-first", "other")
    before = parts_by_cluster(fleet)["a-twin"].version
    change_phase(fleet, phase)
    assert not any(moves.wanted_moves_by_cause(fleet.state, fleet.now).values())
    for workload in moves.workloads_due_to_move(fleet.state, fleet.now, fleet.state.brakes):
        assert moves.next_move_step(fleet.state, workload, fleet.next_moment(), fleet.state.brakes).events == ()
    assert hand_over_due_workloads(fleet) == 1
    assert replicas_by_cluster(fleet) == {"z-first": 5, "other": 3}
    assert parts_by_cluster(fleet)["z-first"].version > before, "its object is the first name's to change from now on"
    assert [event.cluster for event in moves.clusters_that_left(fleet.state)] == (
        ["a-twin"] if phase != PHASE_DRAINING else []
    )


@pytest.mark.parametrize(
    ("phase", "of"),
    [(PHASE_ACTIVE, "a-twin"), (PHASE_CORDONED, "a-twin"), (PHASE_DRAINING, "z-first"), (PHASE_LEAVING, "z-first")],
)
def test_it_stays_until_the_second_name_is_emptied(fleet: Fleet, phase: str, of: str) -> None:
    change_phase(fleet, phase, of)
    assert hand_over_due_workloads(fleet) == 0


def test_a_statefulset_goes_over_too() -> None:
    """It moves nowhere by itself; this is no move."""
    fleet = Fleet()
    for name in ("z-first", "a-twin"):
        joined, _ = membership.join_cluster(fleet.state, JoinClusterRequest(name, name))
        fleet.state.apply_event(joined, fleet.now)
    fleet.report_full_block("a-twin", [node_row("n", 5_000)], api_server="u1")
    fleet.send_heartbeats("a-twin")
    apply_to_fleet(
        fleet,
        decisions.decide_apply(fleet.state, ApplyRequest(manifest_texts(statefulset(3))), fleet.next_moment()).events,
    )
    fleet.report_full_block("z-first", [node_row("n", 5_000)], api_server="u1")
    fleet.send_heartbeats("z-first")
    change_phase(fleet, PHASE_LEAVING)
    assert hand_over_due_workloads(fleet) == 1
    assert replicas_by_cluster(fleet, "db") == {"z-first": 3}


@pytest.mark.parametrize("scope", ["fleet", "cluster/a-twin", "cluster/z-first", "workload/default/web"])
def test_under_a_brake_it_waits(fleet: Fleet, scope: str) -> None:
    change_phase(fleet, PHASE_LEAVING)
    apply_to_fleet(fleet, [BrakeSet(scope, "audit", "ann", 0)])
    assert hand_over_due_workloads(fleet) == 0


def test_of_two_parts_the_larger_is_kept_and_the_rest_is_placed_anew(fleet: Fleet) -> None:
    apply_to_fleet(fleet, decisions.decide_scale(fleet.state, ScaleRequest("", "web", 10), fleet.next_moment()).events)
    assert replicas_by_cluster(fleet) == {"a-twin": 5, "other": 3, "z-first": 2}
    change_phase(fleet, PHASE_LEAVING)
    assert hand_over_due_workloads(fleet) == 1
    assert replicas_by_cluster(fleet) == {"other": 3, "z-first": 7}
    assert fleet.state.workloads["default", "web"].unplaced == 0


def test_it_bears_the_template_that_it_bore(fleet: Fleet) -> None:
    asked = ApplyRequest(manifest_texts(deployment(8, pod=pod_template(labels={"app": "web", "new": "one"}))))
    apply_to_fleet(fleet, decisions.decide_apply(fleet.state, asked, fleet.next_moment()).events)
    bears = parts_by_cluster(fleet)["a-twin"].template_generation
    assert bears < fleet.state.workloads["default", "web"].declared.template_generation
    change_phase(fleet, PHASE_LEAVING)
    hand_over_due_workloads(fleet)
    assert parts_by_cluster(fleet)["z-first"].template_generation == bears


@pytest.mark.parametrize(
    ("most", "expected"), [((0, 2), {"z-first": 2, "other": 1}), ((2, 0), {"a-twin": 2, "other": 1})]
)
def test_what_the_other_name_has_too_is_not_removed(
    fleet: Fleet, most: tuple[int, int], expected: dict[str, int]
) -> None:
    """It is one object: deleted under one name, it would take all that runs under the other with it."""
    apply_to_fleet(fleet, decisions.decide_scale(fleet.state, ScaleRequest("", "web", 10), fleet.next_moment()).events)
    assert replicas_by_cluster(fleet) == {"a-twin": 5, "other": 3, "z-first": 2}
    highest = max(part.version for part in parts_by_cluster(fleet).values())
    limits = [{"cluster": name, "max": bound} for name, bound in zip(("a-twin", "z-first"), most, strict=True)]
    asked = ApplyRequest(
        manifest_texts(deployment(3), placement_policy(limits=[*limits, {"cluster": "other", "max": 1}]))
    )
    apply_to_fleet(fleet, decisions.decide_apply(fleet.state, asked, fleet.next_moment()).events)
    assert replicas_by_cluster(fleet) == expected
    stays = next(part for name, part in parts_by_cluster(fleet).items() if name != "other")
    assert stays.version > highest, "above the object, whichever of them wrote it last"


def test_a_removal_under_way_goes_on_where_the_first_name_has_no_object(fleet: Fleet) -> None:
    most = placement_policy(limits=[{"cluster": name, "max": 0} for name in ("a-twin", "z-first")])
    apply_to_fleet(
        fleet,
        decisions.decide_apply(
            fleet.state, ApplyRequest(manifest_texts(deployment(3), most)), fleet.next_moment()
        ).events,
    )
    assert parts_by_cluster(fleet)["a-twin"].removing
    change_phase(fleet, PHASE_LEAVING)
    hand_over_due_workloads(fleet)
    assert parts_by_cluster(fleet).keys() == {"a-twin", "other"}


def test_what_is_being_deleted_is_deleted(fleet: Fleet) -> None:
    apply_to_fleet(fleet, decisions.decide_delete(fleet.state, DeleteRequest("", "web"), fleet.next_moment()).events)
    change_phase(fleet, PHASE_LEAVING)
    assert hand_over_due_workloads(fleet) == 0
    assert parts_by_cluster(fleet)["a-twin"].removing
