"""Makes the Kubernetes objects of a member in the form in which its collector reads them."""

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from spillway.kubernetes.objects import Deployment, Kind, Manifest, Pod, ReplicaSet
from spillway.model import Generation

T = TypeVar("T")
FLEET_LABEL, PLACEMENT_ANNOTATION = "spillway.io/fleet", "spillway.io/placement"


def decode_objects(kind: Kind, objects: Sequence[Manifest]) -> tuple[Any, ...]:
    return tuple(_decode_as_listed(manifest, kind.type) for manifest in objects)


def make_deployment(fleet: str, uid: str, version: Generation, replicas: int, pods: int, ready: int) -> Deployment:
    """Returns a Deployment that its controller has seen. uid: namespace/name."""
    namespace, _, name = uid.partition("/")
    metadata = {
        "name": name,
        "namespace": namespace,
        "uid": uid,
        "generation": 1,
        "labels": {FLEET_LABEL: fleet},
        "annotations": {PLACEMENT_ANNOTATION: f"{version.epoch}.{version.sequence}"},
    }
    counts = {"replicas": pods, "updatedReplicas": pods, "readyReplicas": ready, "availableReplicas": ready}
    status = {"observedGeneration": 1} | counts
    return msgspec.convert({"metadata": metadata, "spec": {"replicas": replicas}, "status": status}, Deployment)


def make_replica_set(uid: str) -> ReplicaSet:
    """Returns the only ReplicaSet of the Deployment with this uid."""
    namespace, _, name = uid.partition("/")
    owner = {"kind": "Deployment", "name": name, "uid": uid, "controller": True}
    metadata = {"name": f"{name}-h0", "namespace": namespace, "uid": f"rs/{uid}", "ownerReferences": [owner]}
    return msgspec.convert({"metadata": metadata}, ReplicaSet)


def make_pod(name: str, uid: str, template: Manifest, node: str) -> Pod:
    """Returns a pod of the Deployment with this uid. node: empty when the scheduler found none."""
    namespace, _, owner_name = uid.partition("/")
    owner = {"kind": "ReplicaSet", "name": f"{owner_name}-h0", "uid": f"rs/{uid}", "controller": True}
    metadata = template["metadata"] | {"name": name, "namespace": namespace, "uid": name, "ownerReferences": [owner]}
    refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no node"}
    status = {"phase": "Running"} if node else {"phase": "Pending", "conditions": [refused]}
    return _decode_as_listed(
        {"metadata": metadata, "spec": template["spec"] | {"nodeName": node}, "status": status}, Pod
    )


def _decode_as_listed(manifest: Manifest, kind: type[T]) -> T:
    """Decodes an object from its JSON, because some fields keep the API server's text."""
    return msgspec.json.decode(msgspec.json.encode(manifest), type=kind)
