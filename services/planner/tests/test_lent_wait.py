"""A service that finds no free node waits for those that its own clusters have lent before it goes to the cloud."""

from typing import Any

import pytest

from planner.core.background import aftermath
from planner.core.knowledge.rules import PlannerRules
from planner.core.placement.replaying import replay_division
from planner.core.requests import braking, decisions
from spillway.api import ApplyRequest, DeleteRequest, FreezeRequest, RequestError, ScaleRequest
from spillway.api_questions import ExplainRequest
from spillway.events import CapacityNeeded, DecisionRecorded
from spillway.lending_marks import LENDING, POD_NAMESPACE_PREFIX
from spillway.model import NODE_LENT, NODE_RECALLED, NamespaceFacts, NodeRow, PodTable, Quota, Taint

from .builders import Fleet, deployment, joined_cluster, manifest_texts, node_row, placement_policy
from .test_explaining import explain_reply

KEY = ("default", "web")
WAIT = PlannerRules().lent_wait


def lent_node(name: str, value: str = "lent", **more: Any) -> NodeRow:
    state = NODE_RECALLED if value == "recalled" else NODE_LENT
    return node_row(name, state=state, taints=(Taint(LENDING, value, "NoSchedule"),), labels={LENDING: value}, **more)


def apply_and_list_events(fleet: Fleet, events: Any) -> list[Any]:
    for event in events:
        fleet.state.apply_event(event, fleet.now)
    return list(events)


def apply_workload(fleet: Fleet, replicas: int, pod: dict[str, Any] | None = None, **spec: Any) -> list[Any]:
    request = ApplyRequest(manifest_texts(deployment(replicas, pod=pod), placement_policy(**spec)))
    return apply_and_list_events(fleet, decisions.decide_apply(fleet.state, request, fleet.next_moment()).events)


def placed_by_cluster(fleet: Fleet) -> dict[str, int]:
    workload = fleet.state.workloads[KEY]
    kept = {name: part.replicas_kept for name, part in workload.parts.items() if part.replicas_kept}
    return kept | ({"": workload.unplaced} if workload.unplaced else {})


def lent_needs_by_cluster(fleet: Fleet) -> dict[str, int]:
    return {
        cluster: said.replicas_lent for cluster, said in fleet.state.needed.get(KEY, {}).items() if said.replicas_lent
    }


def pass_time(fleet: Fleet, seconds: float) -> list[Any]:
    """As the planner's turn does it. What is promised binds."""
    events: list[Any] = []
    for _ in range(round(seconds)):
        fleet.now += 1
        fleet.send_heartbeats()
        aftermath.update_progress_timers(fleet.state, fleet.now)
        for workload in aftermath.next_waiting_workloads(fleet.state, fleet.now):
            events += apply_and_list_events(
                fleet, aftermath.retry_waiting_workload(fleet.state, workload, fleet.next_moment()).events
            )
    return events


@pytest.fixture
def fleet() -> Fleet:
    """Half of own-1 is lent."""
    return Fleet(own_1=[node_row("a"), lent_node("b")], cloud_1=[node_row("c", 8000)])


def test_a_service_that_scales_up_runs_on_returned_nodes_and_none_of_it_in_the_cloud(fleet: Fleet) -> None:
    apply_workload(fleet, 8)
    assert (placed_by_cluster(fleet), lent_needs_by_cluster(fleet)) == ({"own-1": 4, "": 4}, {"own-1": 4})
    assert fleet.state.workloads[KEY].placement.waiting_for == "nodes that own-1 has lent"  # type: ignore[union-attr]
    pass_time(fleet, WAIT / 2)
    fleet.report_change("own-1", [lent_node("b", "recalled")])
    pass_time(fleet, WAIT / 4)
    assert (placed_by_cluster(fleet), lent_needs_by_cluster(fleet)) == ({"own-1": 4, "": 4}, {"own-1": 4})
    fleet.report_change("own-1", [node_row("b")])
    pass_time(fleet, 1)
    assert (placed_by_cluster(fleet), lent_needs_by_cluster(fleet)) == ({"own-1": 8}, {})


def test_who_would_run_on_lent_nodes_alone_is_not_refused_but_waits_for_them() -> None:
    fleet = Fleet(own_1=[lent_node("a", cpu=8000), node_row("b", 500)], cloud_1=[node_row("c", 500)])
    apply_workload(fleet, 6)
    assert (placed_by_cluster(fleet), lent_needs_by_cluster(fleet)) == ({"": 6}, {"own-1": 6})
    with pytest.raises(RequestError, match="fits no node, not even an empty one: own-1"):
        apply_workload(Fleet(own_1=[lent_node("a", cpu=500)]), 6)


def test_as_nodes_come_back_one_by_one_fewer_wait() -> None:
    fleet = Fleet(own_1=[lent_node("a"), lent_node("b")], cloud_1=[node_row("c", 8000)])
    apply_workload(fleet, 6)
    assert (placed_by_cluster(fleet), lent_needs_by_cluster(fleet)) == ({"": 6}, {"own-1": 6})
    fleet.report_change("own-1", [node_row("a")])
    pass_time(fleet, 1)
    assert (placed_by_cluster(fleet), lent_needs_by_cluster(fleet)) == ({"own-1": 4, "": 2}, {"own-1": 2})


def test_what_does_not_come_back_in_time_is_waited_for_no_longer(fleet: Fleet) -> None:
    apply_workload(fleet, 8)
    pass_time(fleet, WAIT - 1)
    assert placed_by_cluster(fleet) == {"own-1": 4, "": 4}
    pass_time(fleet, 3)
    assert (placed_by_cluster(fleet), lent_needs_by_cluster(fleet)) == ({"own-1": 4, "cloud-1": 4}, {})


def test_scaling_on_and_on_prolongs_no_wait(fleet: Fleet) -> None:
    apply_workload(fleet, 6)
    for replicas in (7, 8, 9):
        pass_time(fleet, WAIT / 3 + 1)
        apply_and_list_events(
            fleet, decisions.decide_scale(fleet.state, ScaleRequest("", "web", replicas), fleet.next_moment()).events
        )
    assert placed_by_cluster(fleet) == {"own-1": 4, "cloud-1": 5}, "nothing came while they waited: no wait begins anew"


def test_who_has_no_place_in_the_cloud_either_needs_lent_nodes_for_as_long_as_that_is_so(fleet: Fleet) -> None:
    apply_workload(fleet, 20)
    assert (placed_by_cluster(fleet), lent_needs_by_cluster(fleet)) == ({"own-1": 4, "cloud-1": 8, "": 8}, {"own-1": 4})
    pass_time(fleet, WAIT + 10)
    assert (placed_by_cluster(fleet), lent_needs_by_cluster(fleet)) == ({"own-1": 4, "cloud-1": 8, "": 8}, {"own-1": 4})
    apply_and_list_events(
        fleet, decisions.decide_scale(fleet.state, ScaleRequest("", "web", 12), fleet.next_moment()).events
    )
    assert (placed_by_cluster(fleet), lent_needs_by_cluster(fleet)) == ({"own-1": 4, "cloud-1": 8}, {})


def scale_workload(fleet: Fleet, replicas: int) -> dict[str, int]:
    apply_and_list_events(
        fleet, decisions.decide_scale(fleet.state, ScaleRequest("", "web", replicas), fleet.next_moment()).events
    )
    return placed_by_cluster(fleet)


@pytest.fixture
def unanswered() -> Fleet:
    """Half of own-1 is lent, and a service has waited for it in vain: its bridge is away."""
    fleet = Fleet(own_1=[node_row("a"), lent_node("b")], cloud_1=[node_row("c", 64_000)])
    apply_workload(fleet, 8)
    pass_time(fleet, WAIT + 1)
    assert placed_by_cluster(fleet) == {"own-1": 4, "cloud-1": 4}
    return fleet


def test_where_nobody_answered_the_next_burst_waits_no_more(unanswered: Fleet) -> None:
    assert (scale_workload(unanswered, 10), lent_needs_by_cluster(unanswered)) == ({"own-1": 4, "cloud-1": 6}, {})


def test_once_a_lent_node_moves_it_is_waited_for_again(unanswered: Fleet) -> None:
    unanswered.report_change("own-1", [lent_node("b", "recalled")])
    assert (scale_workload(unanswered, 10), lent_needs_by_cluster(unanswered)) == (
        {"own-1": 4, "cloud-1": 4, "": 2},
        {"own-1": 2},
    )


def test_after_a_while_it_is_tried_again_though_nothing_moved(unanswered: Fleet) -> None:
    pass_time(unanswered, PlannerRules().lent_silence - 2)
    assert scale_workload(unanswered, 9) == {"own-1": 4, "cloud-1": 5}
    pass_time(unanswered, 2)
    assert scale_workload(unanswered, 10) == {"own-1": 4, "cloud-1": 5, "": 1}


def test_where_one_cluster_answers_nothing_the_other_is_waited_for(unanswered: Fleet) -> None:
    unanswered.join_cluster(joined_cluster("own-2"), [lent_node("d")])
    assert (scale_workload(unanswered, 10), lent_needs_by_cluster(unanswered)) == (
        {"own-1": 4, "cloud-1": 4, "": 2},
        {"own-2": 2},
    )


def test_a_node_that_comes_back_in_time_leaves_nobody_unanswered(fleet: Fleet) -> None:
    fleet.report_change("own-1", [lent_node("e")])
    apply_workload(fleet, 12)
    pass_time(fleet, WAIT / 2)
    fleet.report_change("own-1", [lent_node("b", "recalled")])
    pass_time(fleet, WAIT / 2 + 1)
    assert placed_by_cluster(fleet) == {"own-1": 4, "cloud-1": 8}
    assert scale_workload(fleet, 14) == {"own-1": 4, "cloud-1": 8, "": 2}


def test_what_has_no_place_in_the_cloud_needs_also_who_did_not_answer(unanswered: Fleet) -> None:
    assert (scale_workload(unanswered, 70), lent_needs_by_cluster(unanswered)) == (
        {"own-1": 4, "cloud-1": 64, "": 2},
        {"own-1": 2},
    )


NOT_WAITING: dict[str, tuple[NodeRow, dict[str, Any]]] = {
    "near-line work": (lent_node("b"), {"work": "NearLine"}),
    "who is refused where there is no room": (lent_node("b"), {"unplaceable": "Refuse"}),
    "a strategy for the whole policy": (lent_node("b"), {"strategy": {"name": "KarmadaDynamicWeight"}}),
    "a lent node too small": (lent_node("b", cpu=500), {}),
    "what an owner's pods take of it": (lent_node("b", used=3500), {}),
}


@pytest.mark.parametrize("name", NOT_WAITING)
def test_who_waits_for_no_lent_node(name: str) -> None:
    row, spec = NOT_WAITING[name]
    fleet = Fleet(own_1=[node_row("a"), row], cloud_1=[node_row("c", 8000)])
    apply_workload(fleet, 8, **spec)
    assert (
        sum(placed_by_cluster(fleet).values()),
        placed_by_cluster(fleet).get("", 0),
        lent_needs_by_cluster(fleet),
    ) == (8, 0, {})


def test_a_pools_pods_on_a_lent_node_take_none_of_what_it_has_once_it_is_back_but_its_daemons_do() -> None:
    pods = ((PodTable(POD_NAMESPACE_PREFIX + "batch", ()), 7), (PodTable("kube-system", ()), 1))
    fleet = Fleet(own_1=[node_row("a"), lent_node("b", used=1000, rest={"pods": pods})], cloud_1=[node_row("c", 8000)])
    apply_workload(fleet, 8)
    assert lent_needs_by_cluster(fleet) == {"own-1": 3}


def test_what_a_quota_lets_in_is_all_that_waits(fleet: Fleet) -> None:
    quota = Quota("q", (("requests.cpu", 6000),), (("requests.cpu", 0),))
    fleet.report_change("own-1", namespaces=(NamespaceFacts("default", (), (quota,)),))
    apply_workload(fleet, 8)
    assert (placed_by_cluster(fleet), lent_needs_by_cluster(fleet)) == ({"own-1": 4, "cloud-1": 2, "": 2}, {"own-1": 2})


@pytest.mark.parametrize("scope", ["fleet", "cluster/own-1"])
def test_where_a_brake_keeps_nodes_from_coming_back_nobody_waits(fleet: Fleet, scope: str) -> None:
    apply_and_list_events(
        fleet, braking.decide_freeze(fleet.state, FreezeRequest(scope, "why"), "ann", fleet.next_moment())[0]
    )
    apply_workload(fleet, 8)
    assert (placed_by_cluster(fleet), lent_needs_by_cluster(fleet)) == ({"own-1": 4, "cloud-1": 4}, {})


def test_a_record_says_what_was_waited_for_and_can_be_replayed(fleet: Fleet) -> None:
    events = apply_workload(fleet, 8) + pass_time(fleet, WAIT + 5)
    records = [event for event in events if isinstance(event, DecisionRecorded)]
    assert len(records) == 2
    assert all(replay_division(record).is_same for record in records)
    assert [replay_division(record).situation.lent for record in records] == [{"own-1": 4}, {"own-1": 4}]
    said = [event for event in events if isinstance(event, CapacityNeeded)]
    assert [event.replicas_lent for event in said] == [4, 0]


def test_deleting_ends_the_need(fleet: Fleet) -> None:
    apply_workload(fleet, 8)
    apply_and_list_events(
        fleet, decisions.decide_delete(fleet.state, DeleteRequest("", "web"), fleet.next_moment()).events
    )
    assert lent_needs_by_cluster(fleet) == {}


def test_explain_says_who_waits_for_what(fleet: Fleet) -> None:
    apply_workload(fleet, 8)
    reply = explain_reply(fleet, ExplainRequest("default", "web"))
    assert "4 of 8 replicas have no place, 4 of them until own-1 has lent nodes back" in reply.verdict
