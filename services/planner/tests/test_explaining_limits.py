"""What an explanation says when no node's own size is the limit: spreads, anti-affinity, quotas, promises."""

from typing import Any

import pytest

from planner.core.explaining.witness import OTHERS, explain_node, node_reasons
from spillway.api import RequestError
from spillway.kubernetes.pod_shape import shape_of
from spillway.model import HOSTNAME_LABEL, NamespaceFacts, NodeRow, PodTable, Quota, Taint

from .builders import (
    GI,
    Fleet,
    cluster_nodes_of,
    container_spec,
    deployment,
    joined_cluster,
    make_shape,
    node_group,
    node_row,
    pod_template,
)
from .test_explaining import apply_and_record, explain_reply, explain_request, pod_template_with_cpu

ZONE = "topology.kubernetes.io/zone"
OWN = {"labelSelector": {"matchLabels": {"app": "web"}}}


def spread_constraint(key: str = ZONE) -> dict[str, Any]:
    constraint = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule"} | OWN
    return {"topologySpreadConstraints": [constraint]}


def anti_affinity(key: str) -> dict[str, Any]:
    terms = [{"topologyKey": key} | OWN]
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


def node_in_zone(name: str, zone: str, cpu: int = 64_000, running: int = 0, **more: Any) -> NodeRow:
    """running: pods of the workload web, of one core each."""
    pods = {"rest": {"pods": ((PodTable("default", (("app", "web"),)), running),)}} if running else {}
    labels = {ZONE: zone, HOSTNAME_LABEL: name}
    return node_row(name, cpu, used=1000 * running, labels=labels, **pods, **more)


def test_the_spread_bars_a_node_with_room_whose_domain_is_ahead_as_it_does_for_the_scheduler() -> None:
    """kube-scheduler v1.36 on these nodes: a0 "didn't match pod topology spread constraints", b0 "Insufficient cpu"."""
    nodes = cluster_nodes_of(node_in_zone("a0", "a", running=3), node_in_zone("b0", "b", 1000, running=1))
    wanted = shape_of(pod_template(container_spec(), **spread_constraint()), "default", "t")
    ahead, full = (explain_node(wanted, nodes, "own-1", name) for name in ("a0", "b0"))
    assert {entry.filter: entry.reason for entry in ahead.filters if not entry.passes} == {
        "PodTopologySpread": f"spread over {ZONE}: 3 there, now at most 2"
    }
    assert [entry.filter for entry in full.filters if not entry.passes] == ["NodeResourcesFit"]
    assert (ahead.takes, full.takes) == (0, 0)


def test_what_a_node_takes_ends_where_the_spread_would_bar_it() -> None:
    nodes = cluster_nodes_of(node_in_zone("a0", "a"), node_in_zone("b0", "b", 2000))
    wanted = shape_of(pod_template(container_spec(), **spread_constraint()), "default", "t")
    assert explain_node(wanted, nodes, "own-1", "a0").takes == 3
    assert explain_node(wanted, nodes, "own-1", "b0").takes == 2


def fleet_with_three_zones() -> Fleet:
    return Fleet(own_1=[node_in_zone(f"n{number}", "abc"[number % 3]) for number in range(12)])


def fleet_with_small_zone_c() -> Fleet:
    rows = [node_in_zone(f"{zone}{number}", zone) for zone in "ab" for number in range(3)]
    return Fleet(own_1=[*rows, node_in_zone("c0", "c", 1000)])


def fleet_under_quota() -> Fleet:
    fleet = Fleet(own_1=[node_row(f"n{number}", 64_000) for number in range(4)])
    quota = Quota("compute", (("requests.memory", 3 * GI),), (("requests.memory", 0),))
    fleet.report_change("own-1", namespaces=[NamespaceFacts("default", (), (quota,))])
    return fleet


def fleet_wholly_reserved() -> Fleet:
    fleet = Fleet(own_1=[node_row(f"n{number}", 4000) for number in range(4)])
    apply_and_record(fleet, deployment(16, "first"))
    return fleet


LIMITS = (
    pytest.param(
        fleet_with_three_zones(),
        anti_affinity(ZONE),
        f"own-1: anti-affinity over {ZONE} on 12 of 12 nodes",
        [(12, f"anti-affinity over {ZONE}", "InterPodAffinity")],
        id="anti-affinity over zones",
    ),
    pytest.param(
        fleet_with_small_zone_c(),
        spread_constraint(),
        f"own-1: spread over {ZONE} on 6 of 7 nodes",
        [(6, f"spread over {ZONE}", "PodTopologySpread"), (1, "cpu short by 1", "NodeResourcesFit")],
        id="spread, and the zone that holds the others down",
    ),
    pytest.param(
        fleet_under_quota(),
        {},
        "own-1: quota compute in default: requests.memory 3Gi left",
        [(4, "takes more by itself: quota compute in default: requests.memory 3Gi left", "")],
        id="quota",
    ),
    pytest.param(
        fleet_wholly_reserved(),
        {},
        "own-1: cpu (4 nodes); 16 replicas reserved, not bound yet",
        [(4, "takes more by itself: 16 replicas reserved, not bound yet", "")],
        id="promised",
    ),
)


@pytest.mark.parametrize(("fleet", "spec", "limit", "reasons"), LIMITS)
def test_nodes_with_room_are_not_said_to_be_too_small(
    fleet: Fleet, spec: dict[str, Any], limit: str, reasons: list[tuple[int, str, str]]
) -> None:
    reply = explain_reply(fleet, explain_request(deployment(20, pod=pod_template_with_cpu(**spec))))
    assert f"({limit})" in reply.verdict
    (own,) = reply.clusters
    assert [(entry.nodes, entry.reason, entry.filter) for entry in own.reasons] == reasons


def test_reasons_that_are_too_many_are_counted_together() -> None:
    rows = [node_row(f"n{number}", taints=(Taint(f"team-{number}", "x", "NoSchedule"),)) for number in range(20)]
    found = node_reasons(make_shape(1000), cluster_nodes_of(*rows))
    assert len(found) == 12
    assert sum(entry.nodes for entry in found) == 20
    assert (found[-1].nodes, found[-1].reason) == (9, OTHERS)


def test_a_lower_request_is_offered_where_a_quota_is_the_limit_and_does_what_it_says() -> None:
    (change,) = explain_reply(fleet_under_quota(), explain_request(deployment(10))).changes
    assert (change.kind, change.subject, change.placed_before, change.placed_after) == ("Request", "memory", 3, 10)
    for memory, placed in ((change.after, 10), (change.after + 2**20, 9)):
        manifest = deployment(10, pod=pod_template(container_spec(memory=str(memory))))
        assert explain_reply(fleet_under_quota(), explain_request(manifest)).placed == placed


@pytest.mark.parametrize("hostname", ["n0", "n0.example.com"])
def test_more_nodes_have_hostnames_of_their_own(hostname: str) -> None:
    """A kubelet may label its node with another hostname than the node's name."""
    fleet = Fleet(own_1=[node_row("n0", labels={HOSTNAME_LABEL: hostname})])
    (change,) = explain_reply(
        fleet, explain_request(deployment(3, pod=pod_template_with_cpu(**anti_affinity(HOSTNAME_LABEL))))
    ).changes
    assert (change.kind, change.after, change.placed_after) == ("Nodes", 2, 3)


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(spread_constraint(), id="spread over zones"),
        pytest.param(spread_constraint(HOSTNAME_LABEL), id="spread over hosts"),
        pytest.param(anti_affinity(ZONE), id="anti-affinity over zones"),
    ],
)
def test_what_only_nodes_to_come_could_take_waits_with_the_true_reason(spec: dict[str, Any]) -> None:
    fleet = Fleet(own_1=[node_row("a", 500)])
    fleet.join_cluster(
        joined_cluster("cloud-1", "cloud", [node_group(cpu=8000, labels=((ZONE, "z1"),)), node_group("small", 500)]), []
    )
    record = apply_and_record(fleet, deployment(3, pod=pod_template_with_cpu("4", **spec)))
    assert record.unplaced == 3
    text = "nothing is promised on new nodes of node groups burst: what fits depends on their domains"
    assert [entry.limited_by for entry in record.inputs if entry.tier == "node-groups"][-1] == text


def test_what_no_node_of_a_group_could_take_is_refused_as_before() -> None:
    fleet = Fleet()
    fleet.join_cluster(joined_cluster("cloud-1", "cloud", [node_group(cpu=500)]), [])
    with pytest.raises(RequestError, match="no node group has a node that takes it"):
        apply_and_record(fleet, deployment(3, pod=pod_template_with_cpu("4", **spread_constraint())))
