"""What pods ask for that wait: all that decides on which nodes they would fit."""

from typing import Any

from snapshot.core.cluster_state import ClusterState
from snapshot.settings import Settings
from spillway.kubernetes.objects import PODS
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


def shape_said(objects: Any, *pods: Any) -> Shape | None:
    state = ClusterState("f1", Settings())
    for pod in pods:
        state.upserted(PODS, pod)
    (group,) = state.groups().values()
    return group.shape


def test_a_waiting_pod_says_on_which_nodes_it_would_fit(objects: Any) -> None:
    shape = shape_said(objects, objects.pod("p1", owner="rs1", said="0/3 nodes", ports=[80], spec=SPEC))
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
    shape = shape_said(objects, *waiting)
    assert shape is not None
    assert dict(shape.requests)["cpu"] == 500


def test_a_pod_that_cannot_be_read_is_counted_without_a_shape(objects: Any) -> None:
    unreadable = {"topologySpreadConstraints": [{"maxSkew": "some"}]}
    assert shape_said(objects, objects.pod("p1", owner="rs1", said="0/3 nodes", spec=unreadable)) is None
