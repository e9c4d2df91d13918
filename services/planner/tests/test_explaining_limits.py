"""What an explanation says when no node's own size is the limit: spreads, anti-affinity, quotas, promises."""

from typing import Any

from planner.core.explaining.witness import explain_node
from spillway.model import HOSTNAME_LABEL, NodeRow, PodTable
from spillway.pod_shape import shape_of

from .builders import container, node, nodes_of, template

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
