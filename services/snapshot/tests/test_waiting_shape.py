"""What pods ask for that wait: all that decides on which nodes they would fit."""

from typing import Any

import pytest

from snapshot.core.cluster_state import ClusterState
from snapshot.core.rules import SnapshotRules
from spillway.kubernetes.objects import PODS
from spillway.kubernetes.pod_shape import shape_of
from spillway.kubernetes.term_bounds import LABELS_MAX, TERMS_MAX, VALUES_MAX
from spillway.model import HOSTNAME_LABEL, NodeTerm, PodSelector, PodTerm, Requirement, Shape, Toleration

SPEC = {
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
            }
        },
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": HOSTNAME_LABEL, "labelSelector": {"matchLabels": {"app": "db"}}}
            ]
        },
    },
    "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}, {"name": "token", "projected": {}}],
}


def shape_of_waiting_pods(objects: Any, *pods: Any) -> Shape | None:
    state = ClusterState("f1", SnapshotRules())
    for pod in pods:
        state.upsert_object(PODS, pod)
    (group,) = (state.take_waiting_groups() or {}).values()
    return group.shape


def test_a_waiting_pod_says_on_which_nodes_it_would_fit(objects: Any) -> None:
    shape = shape_of_waiting_pods(objects, objects.pod("p1", owner="rs1", said="0/3 nodes", ports=[80], spec=SPEC))
    assert shape is not None
    assert shape.requests == (("cpu", 500), ("pods", 1))
    assert shape.node_selector == (("disk", "ssd"),)
    assert shape.node_terms == (NodeTerm((Requirement("zone", "In", ("a",)),), ()),)
    assert shape.tolerations == (Toleration("gpu", "Exists", "", "NoSchedule"),)
    assert shape.apart == (PodTerm(PodSelector((Requirement("app", "In", ("db",)),)), topology_key=HOSTNAME_LABEL),)
    assert [port.port for port in shape.host_ports] == [80]
    assert shape.volume_claims == ("data",)
    assert shape.template == ""


def test_of_pods_that_differ_most_speak(objects: Any) -> None:
    """A group in the middle of a rollout waits with two templates."""
    waiting = [objects.pod(f"p{n}", cpu="500m" if n else "2", owner="rs1", said="0/3 nodes") for n in range(3)]
    shape = shape_of_waiting_pods(objects, *waiting)
    assert shape is not None
    assert dict(shape.requests)["cpu"] == 500


def test_a_pod_that_cannot_be_read_is_counted_without_a_shape(objects: Any) -> None:
    unreadable = {"topologySpreadConstraints": [{"maxSkew": "some"}]}
    assert shape_of_waiting_pods(objects, objects.pod("p1", owner="rs1", said="0/3 nodes", spec=unreadable)) is None


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
SELECTOR = {"matchLabels": {"app": "web"}}


def spec_with_node_terms(count: int, labels: int = 1, values: int = 1) -> dict[str, Any]:
    expressions = [{"key": f"k{n}", "operator": "In", "values": ["a"] * values} for n in range(labels)]
    terms = [{"matchExpressions": expressions}] * count
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}}


def spec_with_pod_terms(kind: str, count: int, namespaces: int = 1) -> dict[str, Any]:
    names = [f"n{number}" for number in range(namespaces)]
    term = {"topologyKey": "zone", "labelSelector": SELECTOR, "namespaces": names}
    return {"affinity": {kind: {REQUIRED: [term] * count}}}


def spec_with_spread(count: int) -> dict[str, Any]:
    keys = [f"k{number}" for number in range(count)]
    said = {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": SELECTOR}
    return {"topologySpreadConstraints": [{**said, "topologyKey": key} for key in keys]}


def spec_with_tolerations(count: int) -> dict[str, Any]:
    return {"tolerations": [{"key": f"k{number}", "operator": "Exists"} for number in range(count)]}


@pytest.mark.parametrize(
    ("most", "beyond"),
    [
        pytest.param(
            spec_with_pod_terms("podAntiAffinity", TERMS_MAX),
            spec_with_pod_terms("podAntiAffinity", TERMS_MAX + 1),
            id="anti",
        ),
        pytest.param(
            spec_with_pod_terms("podAffinity", TERMS_MAX),
            spec_with_pod_terms("podAffinity", TERMS_MAX + 1),
            id="affinity",
        ),
        pytest.param(spec_with_spread(TERMS_MAX), spec_with_spread(TERMS_MAX + 1), id="spread"),
        pytest.param(spec_with_node_terms(TERMS_MAX), spec_with_node_terms(TERMS_MAX + 1), id="node terms"),
        pytest.param(spec_with_tolerations(TERMS_MAX), spec_with_tolerations(TERMS_MAX + 1), id="tolerations"),
        pytest.param(spec_with_node_terms(1, LABELS_MAX), spec_with_node_terms(1, LABELS_MAX + 1), id="expressions"),
        pytest.param(spec_with_node_terms(1, 1, VALUES_MAX), spec_with_node_terms(1, 1, VALUES_MAX + 1), id="values"),
        pytest.param(
            spec_with_pod_terms("podAffinity", 1, VALUES_MAX - 1),
            spec_with_pod_terms("podAffinity", 1, VALUES_MAX),
            id="namespaces",
        ),
    ],
)
def test_what_a_pod_asks_for_that_says_too_many_terms_is_not_known(objects: Any, most: Any, beyond: Any) -> None:
    """8,000 terms of one pod stopped the descheduler for 38 s at each look."""
    assert shape_of_waiting_pods(objects, objects.pod("p1", owner="rs1", said="0/3 nodes", spec=most)) is not None
    assert shape_of_waiting_pods(objects, objects.pod("p1", owner="rs1", said="0/3 nodes", spec=beyond)) is None


def test_terms_are_counted_before_they_are_read(objects: Any, calls_of: Any) -> None:
    """Reading 10,000 took half a second of the loop, for each pod anew."""
    with calls_of(shape_of) as readings:
        for spec in (
            spec_with_pod_terms("podAntiAffinity", TERMS_MAX + 1),
            spec_with_node_terms(TERMS_MAX + 1),
            spec_with_spread(TERMS_MAX + 1),
        ):
            assert shape_of_waiting_pods(objects, objects.pod("p1", owner="rs1", said="0/3 nodes", spec=spec)) is None
        assert readings == []
        assert shape_of_waiting_pods(objects, objects.pod("p1", owner="rs1", said="0/3 nodes", spec=SPEC)) is not None
    assert len(readings) == 1
