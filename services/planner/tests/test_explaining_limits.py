"""What an explanation says when no node's own size is the limit: spreads, anti-affinity, quotas, promises."""

from typing import Any

import pytest

from planner.core.explaining.witness import OTHERS, explain_node, node_reasons
from spillway.api import RequestError
from spillway.kubernetes.pod_shape import shape_of
from spillway.model import HOSTNAME_LABEL, NamespaceFacts, NodeRow, PodTable, Quota, Taint

from .builders import GI, Fleet, cluster, container, deployment, group, node, nodes_of, shape, template
from .test_explaining import applied, explained, pod, supposed

ZONE = "topology.kubernetes.io/zone"
OWN = {"labelSelector": {"matchLabels": {"app": "web"}}}


def spread(key: str = ZONE) -> dict[str, Any]:
    constraint = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule"} | OWN
    return {"topologySpreadConstraints": [constraint]}


def apart(key: str) -> dict[str, Any]:
    terms = [{"topologyKey": key} | OWN]
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


def zoned(name: str, zone: str, cpu: int = 64_000, running: int = 0, **more: Any) -> NodeRow:
    """running: pods of the workload web, of one core each."""
    pods = {"rest": {"pods": ((PodTable("default", (("app", "web"),)), running),)}} if running else {}
    labels = {ZONE: zone, HOSTNAME_LABEL: name}
    return node(name, cpu, used=1000 * running, labels=labels, **pods, **more)


def test_the_spread_bars_a_node_with_room_whose_domain_is_ahead_as_it_does_for_the_scheduler() -> None:
    """kube-scheduler v1.36 on these nodes: a0 "didn't match pod topology spread constraints", b0 "Insufficient cpu"."""
    nodes = nodes_of(zoned("a0", "a", running=3), zoned("b0", "b", 1000, running=1))
    wanted = shape_of(template(container(), **spread()), "default", "t")
    ahead, full = (explain_node(wanted, nodes, "own-1", name) for name in ("a0", "b0"))
    assert {entry.filter: entry.reason for entry in ahead.filters if not entry.passes} == {
        "PodTopologySpread": f"spread over {ZONE}: 3 there, now at most 2"
    }
    assert [entry.filter for entry in full.filters if not entry.passes] == ["NodeResourcesFit"]
    assert (ahead.takes, full.takes) == (0, 0)


def test_what_a_node_takes_ends_where_the_spread_would_bar_it() -> None:
    nodes = nodes_of(zoned("a0", "a"), zoned("b0", "b", 2000))
    wanted = shape_of(template(container(), **spread()), "default", "t")
    assert explain_node(wanted, nodes, "own-1", "a0").takes == 3
    assert explain_node(wanted, nodes, "own-1", "b0").takes == 2


def three_zones() -> Fleet:
    return Fleet(own_1=[zoned(f"n{number}", "abc"[number % 3]) for number in range(12)])


def zone_c_is_small() -> Fleet:
    rows = [zoned(f"{zone}{number}", zone) for zone in "ab" for number in range(3)]
    return Fleet(own_1=[*rows, zoned("c0", "c", 1000)])


def under_a_quota() -> Fleet:
    fleet = Fleet(own_1=[node(f"n{number}", 64_000) for number in range(4)])
    quota = Quota("compute", (("requests.memory", 3 * GI),), (("requests.memory", 0),))
    fleet.change("own-1", namespaces=[NamespaceFacts("default", (), (quota,))])
    return fleet


def wholly_promised() -> Fleet:
    fleet = Fleet(own_1=[node(f"n{number}", 4000) for number in range(4)])
    applied(fleet, deployment(16, "first"))
    return fleet


LIMITS = (
    pytest.param(
        three_zones(),
        apart(ZONE),
        f"own-1: anti-affinity over {ZONE} on 12 of 12 nodes",
        [(12, f"anti-affinity over {ZONE}", "InterPodAffinity")],
        id="anti-affinity over zones",
    ),
    pytest.param(
        zone_c_is_small(),
        spread(),
        f"own-1: spread over {ZONE} on 6 of 7 nodes",
        [(6, f"spread over {ZONE}", "PodTopologySpread"), (1, "cpu short by 1", "NodeResourcesFit")],
        id="spread, and the zone that holds the others down",
    ),
    pytest.param(
        under_a_quota(),
        {},
        "own-1: quota compute in default: requests.memory 3Gi left",
        [(4, "takes more by itself: quota compute in default: requests.memory 3Gi left", "")],
        id="quota",
    ),
    pytest.param(
        wholly_promised(),
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
    reply = explained(fleet, supposed(deployment(20, pod=pod(**spec))))
    assert f"({limit})" in reply.verdict
    (own,) = reply.clusters
    assert [(entry.nodes, entry.reason, entry.filter) for entry in own.reasons] == reasons


def test_reasons_that_are_too_many_are_counted_together() -> None:
    rows = [node(f"n{number}", taints=(Taint(f"team-{number}", "x", "NoSchedule"),)) for number in range(20)]
    found = node_reasons(shape(1000), nodes_of(*rows))
    assert len(found) == 12
    assert sum(entry.nodes for entry in found) == 20
    assert (found[-1].nodes, found[-1].reason) == (9, OTHERS)


def test_a_lower_request_is_offered_where_a_quota_is_the_limit_and_does_what_it_says() -> None:
    (change,) = explained(under_a_quota(), supposed(deployment(10))).changes
    assert (change.kind, change.subject, change.placed_before, change.placed_after) == ("Request", "memory", 3, 10)
    for memory, placed in ((change.after, 10), (change.after + 2**20, 9)):
        manifest = deployment(10, pod=template(container(memory=str(memory))))
        assert explained(under_a_quota(), supposed(manifest)).placed == placed


@pytest.mark.parametrize("hostname", ["n0", "n0.example.com"])
def test_more_nodes_have_hostnames_of_their_own(hostname: str) -> None:
    """A kubelet may label its node with another hostname than the node's name."""
    fleet = Fleet(own_1=[node("n0", labels={HOSTNAME_LABEL: hostname})])
    (change,) = explained(fleet, supposed(deployment(3, pod=pod(**apart(HOSTNAME_LABEL))))).changes
    assert (change.kind, change.after, change.placed_after) == ("Nodes", 2, 3)


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(spread(), id="spread over zones"),
        pytest.param(spread(HOSTNAME_LABEL), id="spread over hosts"),
        pytest.param(apart(ZONE), id="anti-affinity over zones"),
    ],
)
def test_what_only_nodes_to_come_could_take_waits_with_the_true_reason(spec: dict[str, Any]) -> None:
    fleet = Fleet(own_1=[node("a", 500)])
    fleet.join(cluster("cloud-1", "cloud", [group(cpu=8000, labels=((ZONE, "z1"),)), group("small", 500)]), [])
    record = applied(fleet, deployment(3, pod=pod("4", **spec)))
    assert record.unplaced == 3
    text = "nothing is promised on new nodes of node groups burst: what fits depends on their domains"
    assert [entry.limited_by for entry in record.inputs if entry.tier == "node-groups"][-1] == text


def test_what_no_node_of_a_group_could_take_is_refused_as_before() -> None:
    fleet = Fleet()
    fleet.join(cluster("cloud-1", "cloud", [group(cpu=500)]), [])
    with pytest.raises(RequestError, match="no node group has a node that takes it"):
        applied(fleet, deployment(3, pod=pod("4", **spread())))
