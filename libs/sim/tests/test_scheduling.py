"""The scheduler's filters and choices as tables, and what must hold whatever comes."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.core.node_table import NodeTable
from sim.core.scheduling import Scheduler
from sim.core.shape import ShapeBook
from sim.core.store import Store
from sim.core.volumes import volume_rules_of
from sim.manifests import pod

Labels = dict[str, str]


def node(name: str, *, cpu: str = "2", zone: str = "", labels: Labels | None = None, **spec: Any) -> dict[str, Any]:
    zones = {"topology.kubernetes.io/zone": zone} if zone else {}
    room = {"cpu": cpu, "memory": "8Gi", "pods": spec.pop("pods", "10"), **spec.pop("extended", {})}
    metadata = {"name": name, "labels": {"kubernetes.io/hostname": name, **zones, **(labels or {})}}
    return {"metadata": metadata, "spec": spec, "status": {"allocatable": room}}


def taint(key: str, value: str, effect: str = "NoSchedule") -> dict[str, str]:
    return {"key": key, "value": value, "effect": effect}


def affinity_to_nodes(operator: str, values: list[str], key: str = "disk") -> dict[str, Any]:
    expression = {"key": key, "operator": operator, "values": values}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def affinity_to_pods(kind: str, app: str, topology: str) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": topology}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def spread_constraints(topology: str, skew: int = 1, **more: Any) -> list[dict[str, Any]]:
    selector = {"matchLabels": {"app": "web"}}
    rule = {"topologyKey": topology, "maxSkew": skew, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
    return [{**rule, **more}]


ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
EXTENDED = {"containers": [{"name": "m", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}
PORT = {"containers": [{"name": "m", "image": "i", "ports": [{"containerPort": 80, "hostPort": 80}]}]}
PLUGS = "node(s) didn't match Pod's node affinity/selector"

TABLE: list[tuple[str, list[dict[str, Any]], dict[str, Any], str]] = [
    ("fits", [node("a")], {}, "a"),
    ("no nodes", [], {}, "no nodes available to schedule pods"),
    ("cpu", [node("a")], {"cpu": "2001m"}, "0/1 nodes are available: 1 Insufficient cpu."),
    ("cpu exactly", [node("a")], {"cpu": "2"}, "a"),
    ("pods count", [node("a", pods="0")], {}, "0/1 nodes are available: 1 Too many pods."),
    ("extended", [node("a"), node("b", extended={"nvidia.com/gpu": "1"})], EXTENDED, "b"),
    ("no extended", [node("a")], EXTENDED, "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."),
    (
        "taint and cpu",
        [node("a", taints=[taint("gpu", "only")]), node("b", cpu="1")],
        {"cpu": "1500m"},
        "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint {gpu: only}.",
    ),
    ("tolerated", [node("a", taints=[taint("gpu", "only")])], {"tolerations": [{"key": "gpu", "value": "only"}]}, "a"),
    (
        "tolerates all",
        [node("a", taints=[taint("k", "v", "NoExecute")])],
        {"tolerations": [{"operator": "Exists"}]},
        "a",
    ),
    ("prefer-taint", [node("a", taints=[taint("k", "v", "PreferNoSchedule")])], {}, "a"),
    ("cordoned", [node("a", unschedulable=True)], {}, "0/1 nodes are available: 1 node(s) were unschedulable."),
    ("node selector", [node("a"), node("b", labels={"disk": "ssd"})], {"nodeSelector": {"disk": "ssd"}}, "b"),
    ("selector misses", [node("a")], {"nodeSelector": {"x": "y"}}, f"0/1 nodes are available: 1 {PLUGS}."),
    ("In", [node("a"), node("b", labels={"disk": "ssd"})], {"affinity": affinity_to_nodes("In", ["ssd"])}, "b"),
    ("NotIn", [node("a", labels={"disk": "hdd"}), node("b")], {"affinity": affinity_to_nodes("NotIn", ["hdd"])}, "b"),
    ("Exists", [node("a"), node("b", labels={"disk": ""})], {"affinity": affinity_to_nodes("Exists", [])}, "b"),
    (
        "DoesNotExist",
        [node("a", labels={"disk": ""}), node("b")],
        {"affinity": affinity_to_nodes("DoesNotExist", [])},
        "b",
    ),
    (
        "Gt",
        [node("a", labels={"disk": "5"}), node("b", labels={"disk": "6"})],
        {"affinity": affinity_to_nodes("Gt", ["5"])},
        "b",
    ),
    (
        "Lt",
        [node("a", labels={"disk": "5"}), node("b", labels={"disk": "4"})],
        {"affinity": affinity_to_nodes("Lt", ["5"])},
        "b",
    ),
    (
        "affinity to nobody",
        [node("a")],
        {"affinity": affinity_to_pods("podAffinity", "db", HOST)},
        "0/1 nodes are available: 1 node(s) didn't match pod affinity rules.",
    ),
    (
        "spread without label",
        [node("a")],
        {"topologySpreadConstraints": spread_constraints(ZONE)},
        "0/1 nodes are available: 1 node(s) didn't match pod topology spread constraints (missing required label).",
    ),
]


@pytest.mark.parametrize(("nodes", "spec", "expected"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_one_pod_goes_where_kubernetes_would_put_it(
    nodes: list[dict[str, Any]], spec: dict[str, Any], expected: str
) -> None:
    cpu = spec.get("cpu", "100m")
    fields = {key: value for key, value in spec.items() if key not in ("cpu", "containers")}
    manifest = pod("p", cpu=cpu, **fields)
    manifest["spec"]["containers"] = spec.get("containers", manifest["spec"]["containers"])
    assert place_pods(nodes, [manifest])[0] == expected


SEVERAL: list[tuple[str, list[dict[str, Any]], dict[str, Any], list[str]]] = [
    ("least allocated in turn", [node("a"), node("b")], {}, ["a", "b", "a", "b"]),
    ("host port once a node", [node("a"), node("b")], PORT, ["a", "b", "-"]),
    (
        "anti-affinity by host",
        [node("a"), node("b")],
        {"affinity": affinity_to_pods("podAntiAffinity", "web", HOST)},
        ["a", "b", "-"],
    ),
    (
        "anti-affinity by zone",
        [node("a", zone="1"), node("b", zone="1"), node("c", zone="2")],
        {"affinity": affinity_to_pods("podAntiAffinity", "web", ZONE)},
        ["a", "c", "-"],
    ),
    (
        "affinity to itself stays in the first zone",
        [node("a", zone="1", cpu="200m"), node("b", zone="2", cpu="300m")],
        {"affinity": affinity_to_pods("podAffinity", "web", ZONE)},
        ["b", "b", "b", "-"],
    ),
    (
        "zone spread waits for the full zone",
        [node("a", zone="1", cpu="100m"), node("b", zone="2")],
        {"topologySpreadConstraints": spread_constraints(ZONE)},
        ["b", "a", "b", "-"],
    ),
    (
        "host spread with skew 2",
        [node("a", cpu="100m"), node("b")],
        {"topologySpreadConstraints": spread_constraints(HOST, 2)},
        ["b", "b", "a", "b", "-"],
    ),
    (
        "too few domains count as an empty one",
        [node("a", zone="1")],
        {"topologySpreadConstraints": spread_constraints(ZONE, 1, minDomains=2)},
        ["a", "-"],
    ),
]


@pytest.mark.parametrize(("nodes", "spec", "expected"), [row[1:] for row in SEVERAL], ids=[row[0] for row in SEVERAL])
def test_each_pod_sees_the_ones_before(nodes: list[dict[str, Any]], spec: dict[str, Any], expected: list[str]) -> None:
    manifest = pod("p", labels={"app": "web"})
    manifest["spec"] |= spec
    found = place_pods(nodes, [manifest] * len(expected))
    assert ["-" if name.startswith("0/") else name for name in found] == expected


def test_a_pod_that_refuses_others_keeps_them_away() -> None:
    jealous = pod("p", labels={"app": "db"}, affinity=affinity_to_pods("podAntiAffinity", "web", HOST))
    found = place_pods([node("a")], [jealous, pod("q", labels={"app": "web"})])
    assert found[1] == "0/1 nodes are available: 1 node(s) didn't satisfy existing pods anti-affinity rules."


def place_pods(nodes: list[dict[str, Any]], pods: list[dict[str, Any]]) -> list[str]:
    """Node names, or why nowhere."""
    table, book = NodeTable(), ShapeBook()
    for one in nodes:
        table.put_node(one)
    scheduler, found = Scheduler(table), []
    for one in pods:
        shape = book.shape_of({**one, "metadata": {**one["metadata"], "namespace": "default"}})
        view = scheduler.view_of(shape)
        name = view.choose_node()
        if name:
            table.add_pod(name, shape)
        found.append(name or view.why_no_node_fits())
    return found


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 4), st.integers(0, 0)),
        st.tuples(st.just("remove"), st.integers(0, 50), st.integers(0, 0)),
        st.tuples(st.just("node"), st.integers(0, 5), st.integers(0, 4)),
        st.tuples(st.just("lose"), st.integers(0, 5), st.integers(0, 0)),
    ),
    max_size=80,
)


@given(steps=STEPS, chosen_at_random=st.booleans())
def test_no_node_is_over_committed_and_the_views_stay_true(
    steps: list[tuple[str, int, int]], chosen_at_random: bool
) -> None:
    table, book = NodeTable(), ShapeBook()
    scheduler = Scheduler(table, random.Random(1).randrange if chosen_at_random else None)
    kinds = [
        pod("a", cpu="700m"),
        pod("b", cpu="300m", labels={"app": "web"}, topologySpreadConstraints=spread_constraints(ZONE)),
        pod("c", cpu="100m", labels={"app": "web"}, affinity=affinity_to_pods("podAntiAffinity", "web", HOST)),
        pod("d", cpu="200m", labels={"app": "web"}),
        pod("e", cpu="200m", labels={"app": "other"}),
    ]
    shapes = [book.shape_of(one) for one in kinds]
    bound: list[tuple[str, int]] = []
    for step, number, size in steps:
        if step == "node":
            held = sum((700, 300, 100, 200, 200)[kind] for name, kind in bound if name == f"n{number}")
            # A node never shrinks under its pods here: that over-commits it in Kubernetes as well.
            table.put_node(node(f"n{number}", cpu=f"{max(held, size * 500)}m", zone=str(number % 2), pods="50"))
        elif step == "lose" and f"n{number}" in table.record_by_name:
            table.remove_node(f"n{number}")
            bound = [entry for entry in bound if entry[0] != f"n{number}"]
        elif step == "remove" and bound:
            name, kind = bound.pop(number % len(bound))
            table.remove_pod(name, shapes[kind])
        elif step == "add":
            choice = scheduler.view_of(shapes[number]).choose_node()
            fresh = Scheduler(table).view_of(shapes[number])
            assert (choice is None) == (fresh.choose_node() is None)
            assert scheduler.view_of(shapes[number]).why_no_node_fits() == fresh.why_no_node_fits()
            if choice:
                table.add_pod(choice, shapes[number])
                bound.append((choice, number))
        for record in table.record_by_name.values():
            requested = sum((700, 300, 100, 200, 200)[kind] for name, kind in bound if name == record.name)
            assert record.allocatable["cpu"] - record.free["cpu"] == requested
            assert record.free["cpu"] >= 0


def test_shapes_that_differ_in_labels_alone_share_a_view_while_no_pod_refuses_others() -> None:
    table, book = NodeTable(), ShapeBook()
    table.put_node(node("a"))
    scheduler = Scheduler(table)
    web, api = (book.shape_of(pod("p", labels={"app": app})) for app in ("web", "api"))
    jealous = book.shape_of(pod("q", labels={"app": "db"}, affinity=affinity_to_pods("podAntiAffinity", "web", HOST)))
    assert scheduler.view_of(web) is scheduler.view_of(api)
    table.add_pod("a", jealous)
    assert (scheduler.view_of(web).choose_node(), scheduler.view_of(api).choose_node()) == (None, "a")
    table.remove_node("a")
    assert scheduler.view_of(web) is scheduler.view_of(api)


def volume(terms: list[dict[str, Any]] | None = None, **labels: str) -> dict[str, Any]:
    affinity = {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}} if terms is not None else {}
    return {"metadata": {"name": "pv", "labels": labels}, "spec": affinity}


def volume_claim(annotations: dict[str, str], **metadata: str) -> dict[str, Any]:
    named = {"name": "data", "namespace": "default", "annotations": annotations, **metadata}
    return {"metadata": named, "spec": {"volumeName": "pv"}}


BOUND = {"pv.kubernetes.io/bind-completed": "yes"}
ELSEWHERE = "0/2 nodes are available: 2 {}."
IN_ZONE = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["z2"]}]}
VOLUMES = {
    "no claim": (None, volume(), ELSEWHERE.format('persistentvolumeclaim "data" not found')),
    "not bound": (volume_claim({}), volume(), "a"),
    "bound, no limit": (volume_claim(BOUND), volume(), "a"),
    "by node affinity": (volume_claim(BOUND), volume([IN_ZONE]), "b"),
    "by its zone": (volume_claim(BOUND), volume(None, **{ZONE: "z2"}), "b"),
    "by its zone of old": (volume_claim(BOUND), volume(None, **{"failure-domain.beta.kubernetes.io/zone": "z2"}), "b"),
    "in a zone that is not here": (
        volume_claim(BOUND),
        volume(None, **{ZONE: "z3"}),
        ELSEWHERE.format("node(s) had no available volume zone"),
    ),
    "going": (
        volume_claim(BOUND, deletionTimestamp="2026-01-01T00:00:00Z"),
        volume(),
        ELSEWHERE.format('persistentvolumeclaim "data" is being deleted'),
    ),
    "its volume gone": (
        volume_claim(BOUND),
        None,
        ELSEWHERE.format("node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"),
    ),
}


@pytest.mark.parametrize(("bound", "of", "expected"), VOLUMES.values(), ids=VOLUMES)
def test_a_pod_goes_where_its_volume_is(bound: Any, of: Any, expected: str) -> None:
    table, store = NodeTable(), Store(1, 10)
    for one in (node("a", zone="z1", cpu="4"), node("b", zone="z2")):
        table.put_node(one)
    for plural, item in (("persistentvolumeclaims", bound), ("persistentvolumes", of)):
        if item is not None:
            store.put_object(plural, item)
    asked = pod("p")
    asked["metadata"]["namespace"] = "default"
    asked["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    shape = ShapeBook().shape_of(asked)
    view = Scheduler(table, volumes_of=lambda one: volume_rules_of(one, store)).view_of(shape)
    assert (view.choose_node() or view.why_no_node_fits()) == expected
