"""A template that asks for more waits for an earlier change, while that decides whether there is room (README)."""

from dataclasses import replace
from typing import Any

import pytest

from planner.core.background import aftermath
from spillway.events import STATE_REFUSED
from spillway.model import PodTable

from .builders import Fleet, node_row, workload_facts
from .test_rollout import (
    WEB,
    apply_manifests,
    continue_due_rollouts,
    parts_by_cluster,
    report_status,
    rolling_update_strategy,
    template_number_by_cluster,
    waiting_reason,
    web_deployment,
)

STEP = rolling_update_strategy(1, 0)
WAITS = "rollout 0 of 1 cluster: waits for the earlier change in own-1 to end"
LACKS = "rollout 0 of 1 cluster: waits for room for 1 surge pod in own-1"
STANDS_SECONDS = 60.0


def report_bound_pods(
    fleet: Fleet, *counted: int, used: int, cpu: int = 6000, terminating: int = 0, **more: Any
) -> None:
    """own-1 has one node with so many pods by template. used: requests in millicores, of terminating pods, too."""
    labels = (("app", "web"),)
    pods = [(PodTable("default", labels), sum(counted))]
    if terminating:
        pods.append((PodTable("default", labels, terminating=True), terminating))
    row = replace(node_row("a", cpu, used=used), pods=tuple(pods))
    fleet.report_change(
        "own-1", [row], shown=(workload_facts(parts_by_cluster(fleet)["own-1"].version, *counted, **more),)
    )
    report_status(fleet, "own-1", more.get("updated"))


def fleet_running_in_own_1(replicas: int = 4, cpu: int = 6000) -> Fleet:
    """All replicas run in own-1, 500m each."""
    fleet = Fleet(own_1=[node_row("a", cpu)])
    apply_manifests(fleet, web_deployment("app:1", replicas, cpu="500m", **STEP))
    report_bound_pods(fleet, replicas, used=replicas * 500, cpu=cpu)
    return fleet


def fleet_halfway_in_rollout(cpu: int = 6000, second: str = "1") -> Fleet:
    """Two of four pods are of the second template."""
    fleet = fleet_running_in_own_1(cpu=cpu)
    apply_manifests(fleet, web_deployment("app:2", 4, cpu=second, **STEP))
    assert template_number_by_cluster(fleet) == {"own-1": 2}
    report_bound_pods(fleet, 2, 2, used=1000 + (2000 if second == "1" else 1000), cpu=cpu, updated=2)
    return fleet


def fleet_with_terminating_pod(used: int) -> Fleet:
    """Four replicas of 500m, and a fifth that terminates; then a template of 1500m is applied."""
    fleet = fleet_running_in_own_1(replicas=5)
    apply_manifests(fleet, web_deployment("app:1", 4, cpu="500m", **STEP))
    report_bound_pods(fleet, 4, used=used, terminating=1)
    apply_manifests(fleet, web_deployment("app:2", 4, cpu="1500m", **STEP))
    return fleet


def pass_time(fleet: Fleet, seconds: float) -> None:
    """Time in which the cluster is heard of, and the planner looks each second."""
    for _ in range(round(seconds)):
        fleet.now += 1
        fleet.send_heartbeats()
        aftermath.update_progress_timers(fleet.state, fleet.now)
        continue_due_rollouts(fleet)


def test_it_waits_for_the_roll_under_way_and_is_judged_by_what_that_leaves() -> None:
    """Seed 790300: it began in the middle, and stood half done for ever."""
    fleet = fleet_halfway_in_rollout()
    reply = apply_manifests(fleet, web_deployment("app:3", 4, cpu="1500m", **STEP))
    assert (reply.waiting_for, template_number_by_cluster(fleet)) == (WAITS, {"own-1": 2})
    continue_due_rollouts(fleet)
    report_bound_pods(fleet, 4, used=4000)
    continue_due_rollouts(fleet)
    assert (waiting_reason(fleet), template_number_by_cluster(fleet)) == (LACKS, {"own-1": 2})
    report_bound_pods(fleet, 4, used=4000, cpu=7500)
    continue_due_rollouts(fleet)
    assert template_number_by_cluster(fleet) == {"own-1": 3}


def test_it_waits_for_pods_that_are_terminating() -> None:
    """Seed 851454: a scale-in, and right after it a larger template whose roll stood half done."""
    fleet = fleet_with_terminating_pod(used=2500)
    assert (waiting_reason(fleet), template_number_by_cluster(fleet)) == (WAITS, {"own-1": 1})
    continue_due_rollouts(fleet)
    report_bound_pods(fleet, 4, used=2000)
    continue_due_rollouts(fleet)
    assert (waiting_reason(fleet), template_number_by_cluster(fleet)) == (LACKS, {"own-1": 1})


def test_a_roll_that_stands_is_replaced() -> None:
    fleet = fleet_halfway_in_rollout()
    apply_manifests(fleet, web_deployment("app:3", 4, cpu="1500m", **STEP))
    pass_time(fleet, STANDS_SECONDS - 1)
    assert template_number_by_cluster(fleet) == {"own-1": 2}
    report_bound_pods(fleet, 1, 3, used=3500, updated=3)
    pass_time(fleet, STANDS_SECONDS - 1)
    assert (waiting_reason(fleet), template_number_by_cluster(fleet)) == (WAITS, {"own-1": 2})
    pass_time(fleet, 2)
    assert template_number_by_cluster(fleet) == {"own-1": 3}


def test_one_that_stands_is_not_waited_for_again_while_room_is_missing() -> None:
    fleet = fleet_with_terminating_pod(used=6000)
    pass_time(fleet, STANDS_SECONDS + 1)
    assert waiting_reason(fleet) == LACKS
    continue_due_rollouts(fleet)
    assert list(fleet.state.rollouts.take_due_workloads(9)) == []
    fleet.state.rollouts.retry_workload(WEB)
    continue_due_rollouts(fleet)
    assert waiting_reason(fleet) == LACKS


AT_ONCE = {
    "all of the new ones fit beside what is there": (fleet_halfway_in_rollout, {"cpu": 10_500}, "1500m"),
    "it asks for no more than the one that rolls": (fleet_halfway_in_rollout, {}, "1"),
    "all pods there ask for the same, and the new ones have room": (
        fleet_halfway_in_rollout,
        {"cpu": 7500, "second": "500m"},
        "1500m",
    ),
}


@pytest.mark.parametrize(("begin", "given", "cpu"), AT_ONCE.values(), ids=AT_ONCE)
def test_it_waits_for_no_roll_whose_end_decides_nothing(begin: Any, given: dict[str, Any], cpu: str) -> None:
    fleet = begin(**given)
    apply_manifests(fleet, web_deployment("app:3", 4, cpu=cpu, **STEP))
    assert template_number_by_cluster(fleet) == {"own-1": 3}


def test_where_all_pods_ask_for_the_same_it_is_known_in_the_middle_that_room_is_missing() -> None:
    fleet = fleet_halfway_in_rollout(second="500m")
    apply_manifests(fleet, web_deployment("app:3", 4, cpu="1500m", **STEP))
    assert (waiting_reason(fleet), template_number_by_cluster(fleet)) == (LACKS, {"own-1": 2})


def test_nobody_rolls_what_the_api_refused() -> None:
    fleet = fleet_running_in_own_1()
    apply_manifests(fleet, web_deployment("app:2", 4, cpu="1", **STEP))
    ran = parts_by_cluster(fleet)["own-1"].version
    fleet.report_change("own-1", shown=(workload_facts(ran._replace(sequence=ran.sequence - 1), 4),))
    report_status(fleet, "own-1")
    refused = replace(fleet.state.workloads[WEB].statuses["own-1"], state=STATE_REFUSED, sequence=99)
    fleet.state.apply_event(refused, fleet.now)
    apply_manifests(fleet, web_deployment("app:3", 4, cpu="1500m", **STEP))
    assert template_number_by_cluster(fleet) == {"own-1": 3}


def test_of_what_was_never_there_as_many_stay_as_fit() -> None:
    """Seed 856998: the API refused all eight replicas. They got the larger template, for which there was no room."""
    update = rolling_update_strategy("25%", "25%")
    fleet = Fleet(own_1=[node_row("a", 4000)], cloud_1=[node_row("c", 100_000)])
    apply_manifests(fleet, web_deployment("app:1", 8, cpu="500m", **update))
    report_status(fleet, "own-1")
    nothing = {"spec_replicas": 0, "replicas": 0, "updated": 0, "ready": 0, "available": 0}
    refused = replace(fleet.state.workloads[WEB].statuses["own-1"], state=STATE_REFUSED, sequence=99, **nothing)
    fleet.state.apply_event(refused, fleet.now)
    apply_manifests(fleet, web_deployment("app:2", 8, cpu="1500m", **update))
    assert {name: part.replicas_kept for name, part in parts_by_cluster(fleet).items()} == {"own-1": 1, "cloud-1": 7}
