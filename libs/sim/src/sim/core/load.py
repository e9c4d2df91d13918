"""Bulk loading: nodes and running pods as the controllers would have left them, without their work."""

from collections.abc import Iterator, Sequence
from typing import Any

from sim.core.control_plane import ControlPlane
from sim.core.deployments import template_hash
from sim.core.filters import missing_resources
from sim.core.kinds import Object
from sim.core.node_table import NodeRecord
from sim.core.nodes import add_nodes
from sim.core.pods import bound_pod, new_pod, running_pod
from sim.core.quantity import quantity_text
from sim.core.replicasets import owner_reference
from sim.core.rollout import DESIRED_ANNOTATION
from sim.core.shape import PodShape
from sim.settings import LoadSpec, NodeSpec


def load_objects(control_plane: ControlPlane, nodes: Sequence[NodeSpec], pods: LoadSpec | None) -> None:
    """Adds nodes, and Deployments with running pods. Raises AssertionError when the pods do not fit the nodes."""
    names = add_nodes(control_plane.world, nodes)
    if pods is None:
        return
    records = [control_plane.table.record_by_name[name] for name in names]
    places = _round_robin(records)
    whole, more = divmod(pods.pods, pods.deployments)
    for index in range(pods.deployments):
        replicas = whole + (1 if index < more else 0)
        _load_deployment(control_plane, pods, f"{pods.name_prefix}{index}", replicas, places)
    # Everything is in its final state, so the controllers have no work.
    control_plane.deployments.dirty.clear()
    control_plane.replicasets.dirty.clear()


def _round_robin(records: Sequence[NodeRecord]) -> Iterator[NodeRecord]:
    while True:
        yield from records


def _load_deployment(
    control_plane: ControlPlane, spec: LoadSpec, name: str, replicas: int, places: Iterator[NodeRecord]
) -> None:
    world, store = control_plane.world, control_plane.world.store
    template = _pod_template(spec, name)
    pod_hash = template_hash(template)
    labels = {"app": name, "pod-template-hash": pod_hash}
    conditions = [
        {
            "type": "Available",
            "status": "True",
            "reason": "MinimumReplicasAvailable",
            "lastTransitionTime": world.timestamp(),
        },
        {
            "type": "Progressing",
            "status": "True",
            "reason": "NewReplicaSetAvailable",
            "lastTransitionTime": world.timestamp(),
        },
    ]
    counts = {"replicas": replicas, "readyReplicas": replicas, "availableReplicas": replicas, "observedGeneration": 1}
    deployment = store.put_object(
        "deployments",
        {
            "metadata": _object_metadata(control_plane, spec, name, {"app": name}),
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template},
            "status": {**counts, "updatedReplicas": replicas, "conditions": conditions},
        },
    )
    template = {**template, "metadata": {"labels": labels}}
    metadata = _object_metadata(control_plane, spec, f"{name}-{pod_hash}", labels)
    replicaset = store.put_object(
        "replicasets",
        {
            "metadata": metadata
            | {
                "annotations": {DESIRED_ANNOTATION: str(replicas), "deployment.kubernetes.io/revision": "1"},
                "ownerReferences": [owner_reference("apps/v1", "Deployment", deployment["metadata"])],
            },
            "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
            "status": {**counts, "fullyLabeledReplicas": replicas},
        },
    )
    _load_pods(control_plane, replicaset, replicas, places)


def _load_pods(control_plane: ControlPlane, replicaset: Object, count: int, places: Iterator[NodeRecord]) -> None:
    world, metadata = control_plane.world, replicaset["metadata"]
    owners = [owner_reference("apps/v1", "ReplicaSet", metadata)]
    status: dict[str, Any] | None = None
    shape = None
    for _ in range(count):
        pod_name = world.unused_name("pods", metadata["namespace"], f"{metadata['name']}-")
        pod = new_pod(world, pod_name, metadata["namespace"], replicaset["spec"]["template"], owners)
        shape = shape or control_plane.shapes.shape_of(pod)
        pod = bound_pod(pod, _next_node_with_room(control_plane, shape, places), world.timestamp())
        status = status or running_pod(pod, world.timestamp(), ready=True)["status"]
        world.store.put_object("pods", {**pod, "status": status})


def _next_node_with_room(control_plane: ControlPlane, shape: PodShape, places: Iterator[NodeRecord]) -> str:
    for _ in range(len(control_plane.table.record_by_name)):
        record = next(places)
        if not missing_resources(record, shape):
            return record.name
    raise AssertionError("the pods to load do not fit the nodes")


def _pod_template(spec: LoadSpec, name: str) -> dict[str, Any]:
    requests = {"cpu": quantity_text("cpu", spec.cpu_millis), "memory": str(spec.memory_bytes)}
    container = {"name": "main", "image": "registry.example/load:1", "resources": {"requests": requests}}
    return {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}


def _object_metadata(control_plane: ControlPlane, spec: LoadSpec, name: str, labels: dict[str, str]) -> dict[str, Any]:
    return {
        "name": name,
        "namespace": spec.namespace,
        "uid": control_plane.world.new_uid(),
        "creationTimestamp": control_plane.world.timestamp(),
        "generation": 1,
        "labels": labels,
    }
