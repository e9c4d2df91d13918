"""Near-line and offline work: supply classes in their order, the cloud for near-line work alone, and where a lost place
goes."""

import json
from typing import Any

import pytest

from planner.core.background.round import RoundMemory, steps_of_round
from planner.core.manifests.policy import read_policy
from planner.core.requests import decisions
from planner.settings import PlannerSettings
from spillway.api import ApplyRequest, RequestError
from spillway.lending_marks import LENT_CLUSTER, LENT_NODE, POOL_TAINT, SUPPLY_CLASS, virtual_node_name
from spillway.model import NODE_LENT, NODE_OWNED, NODE_RECALLED, NodeRow, Policy, Taint

from .builders import (
    Fleet,
    apply_to_fleet,
    deployment,
    joined_cluster,
    manifest_texts,
    node_row,
    placement_policy,
    pod_template,
    workload_facts,
)

KEY = ("default", "web")
TOLERANT = [{"key": POOL_TAINT, "operator": "Exists"}]


def apply_workload(fleet: Fleet, replicas: int, **spec: Any) -> None:
    pod = pod_template(tolerations=TOLERANT)
    request = ApplyRequest(manifest_texts(deployment(replicas, pod=pod), placement_policy(**spec)))
    apply_to_fleet(fleet, decisions.decide_apply(fleet.state, request, fleet.next_moment()).events)


def placed_by_cluster(fleet: Fleet) -> dict[str, int]:
    workload = fleet.state.workloads[KEY]
    kept = {name: part.replicas_kept for name, part in workload.parts.items() if part.replicas_kept}
    return kept | ({"": workload.unplaced} if workload.unplaced else {})


def virtual_node(name: str) -> NodeRow:
    labels = {LENT_CLUSTER: "own", LENT_NODE: name, SUPPLY_CLASS: "idle"}
    return node_row(virtual_node_name("own", name), labels=labels, taints=(Taint(POOL_TAINT, "idle", "NoSchedule"),))


@pytest.fixture
def fleet() -> Fleet:
    """Four cores of each class; the idle ones are lent nodes of `own`, which is of no class that such work uses."""
    fleet = Fleet()
    fleet.join_cluster(joined_cluster("batch"), [node_row("b")])
    fleet.join_cluster(joined_cluster("own", **{SUPPLY_CLASS: "reserved"}), [node_row("n1", state=NODE_LENT)])
    fleet.join_cluster(joined_cluster("pool", **{SUPPLY_CLASS: "idle"}), [virtual_node("n1")])
    fleet.join_cluster(joined_cluster("shared", **{SUPPLY_CLASS: "colocated"}), [node_row("s")])
    fleet.join_cluster(joined_cluster("cloud-1", "cloud"), [node_row("c")])
    return fleet


@pytest.mark.parametrize(
    ("work", "replicas", "where"),
    [
        ("NearLine", 3, {"batch": 3}),
        ("NearLine", 6, {"batch": 4, "pool": 2}),
        ("NearLine", 11, {"batch": 4, "pool": 4, "shared": 3}),
        ("NearLine", 14, {"batch": 4, "pool": 4, "shared": 4, "cloud-1": 2}),
        ("Offline", 11, {"batch": 4, "pool": 4, "shared": 3}),
        ("Offline", 14, {"batch": 4, "pool": 4, "shared": 4, "": 2}),
    ],
)
def test_classes_are_used_in_their_order_and_offline_work_never_the_last(
    fleet: Fleet, work: str, replicas: int, where: dict[str, int]
) -> None:
    apply_workload(fleet, replicas, work=work)
    assert placed_by_cluster(fleet) == where


def test_what_fits_nothing_that_is_idle_now_is_not_refused_but_waits() -> None:
    """By day no node is lent: a job for the night is declared all the same."""
    fleet = Fleet()
    fleet.join_cluster(joined_cluster("own", **{SUPPLY_CLASS: "reserved"}), [node_row("n1")])
    fleet.join_cluster(joined_cluster("pool", **{SUPPLY_CLASS: "idle"}), [node_row("small", 100)])
    apply_workload(fleet, 2, work="Offline")
    assert placed_by_cluster(fleet) == {"": 2}
    fleet.report_change("own", [node_row("n1", state=NODE_LENT)])
    fleet.report_change("pool", [virtual_node("n1")])
    pass_time(fleet, 1)
    assert placed_by_cluster(fleet) == {"pool": 2}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"work": "Batch"}, "PlacementPolicy.spec.work: 'Batch': expected one of Online, NearLine, Offline"),
        ({"work": "Offline", "tiers": [{"name": "own"}]}, "spec.tiers: ['own']: expected no tiers: work Offline has"),
        ({"work": "NearLine", "strategy": {"name": "Duplicated"}}, "spec.strategy: 'Duplicated': expected no strategy"),
        (
            {"tiers": [{"name": "idle", "clusters": {"supplyClasses": ["spare"]}}]},
            "supplyClasses[0]: 'spare': expected one of dedicated, idle, colocated, cloud",
        ),
    ],
)
def test_a_refusal_of_work_or_supply_classes_names_the_value_and_what_was_expected(
    spec: dict[str, Any], message: str
) -> None:
    with pytest.raises(RequestError) as refused:
        read_policy(placement_policy(**spec))
    assert message in refused.value.text


def test_a_tier_may_name_supply_classes(fleet: Fleet) -> None:
    apply_workload(fleet, 6, tiers=[{"name": "spare", "clusters": {"supplyClasses": ["idle", "colocated"]}}])
    assert placed_by_cluster(fleet) == {"pool": 3, "shared": 3}


def test_without_a_word_work_is_online() -> None:
    assert read_policy(placement_policy()) == Policy(read_policy(placement_policy()).tiers, (), "Wait", work="Online")
    assert read_policy(json.loads(json.dumps(placement_policy(work="Online")))) == read_policy(placement_policy())


# ── A lent node goes back, and who ran there has lost the place ─────────────────────────────────────────────────────


def report_bound_pods(fleet: Fleet, count: int) -> None:
    """The pool shows so many of its pods bound, of all that its object has."""
    part = fleet.state.workloads[KEY].parts["pool"]
    shown = workload_facts(part.version, count, spec=part.replicas, status=part.replicas, updated=part.replicas)
    fleet.report_change("pool", shown=(shown,))


def pass_time(fleet: Fleet, seconds: int) -> None:
    """As the planner does it, second by second."""
    memory = RoundMemory(PlannerSettings().headroom_pace())
    for _ in range(seconds):
        fleet.now += 1
        fleet.send_heartbeats()
        for step in steps_of_round(fleet.state, memory, fleet.decision_clock()):
            apply_to_fleet(fleet, step.events)


def recall_node(fleet: Fleet) -> None:
    """The owner takes its node, and the pods that ran there are made again and find no node."""
    report_bound_pods(fleet, 4)
    pass_time(fleet, 1)
    fleet.report_change("own", [node_row("n1", state=NODE_RECALLED)])
    fleet.report_change("pool", removed=(virtual_node("n1").name,))
    report_bound_pods(fleet, 0)
    fleet.report_change("own", [node_row("n1", state=NODE_OWNED)])


def test_near_line_work_that_lost_its_place_has_another_within_a_minute(fleet: Fleet) -> None:
    apply_workload(fleet, 8, work="NearLine")
    assert placed_by_cluster(fleet) == {"batch": 4, "pool": 4}
    recall_node(fleet)
    pass_time(fleet, 60)
    assert placed_by_cluster(fleet) == {"batch": 4, "shared": 4}


def test_offline_work_that_lost_its_place_waits_and_goes_on_where_something_is_idle_again(fleet: Fleet) -> None:
    apply_workload(fleet, 12, work="Offline")
    assert placed_by_cluster(fleet) == {"batch": 4, "pool": 4, "shared": 4}
    recall_node(fleet)
    pass_time(fleet, 60)
    assert placed_by_cluster(fleet) == {"batch": 4, "shared": 4, "": 4}, "the cloud has room for it"
    fleet.report_change("own", [node_row("n1", state=NODE_LENT)])
    fleet.report_change("pool", [virtual_node("n1")])
    report_bound_pods(
        fleet, 4
    )  # Its pods wait there still, and the pool's scheduler finds the node before the planner does.
    pass_time(fleet, 1)
    assert placed_by_cluster(fleet) == {"batch": 4, "pool": 4, "shared": 4}
