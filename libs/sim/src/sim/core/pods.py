"""The states of a pod. The functions that change the state return a new object and leave the old one as it is."""

from collections.abc import Mapping, Sequence
from typing import Any

from sim.core.kinds import Object
from sim.core.pod_admission import admitted_pod
from sim.core.world import World

_TERMINAL = frozenset({"Succeeded", "Failed"})
START_SECONDS = "sim/start-seconds"
"""Annotation: this pod's own start-up time, or `never`."""
RUN_SECONDS = "sim/run-seconds"
"""Annotation: the seconds from the pod's start to its end, unless its restartPolicy is Always. Without it the pod runs
on."""
STOP_SECONDS = "sim/stop-seconds"
"""Annotation: the seconds from this pod's deletion to its end, if its grace period is not shorter."""
PROGRAM = "sim/program"
"""Annotation: the program that runs as long as this pod, by its name among the allowed programs."""
NODE_AFFINITY = "NodeAffinity"
"""The reason of a kubelet that rejects a pod because the pod's node affinity does not match the node."""
ENDS_AS = "sim/ends-as"
"""Annotation: the phase in which the pod ends, Succeeded or Failed. The default is Succeeded."""


def is_terminal(pod: Object) -> bool:
    return pod["status"].get("phase") in _TERMINAL


def is_active(pod: Object) -> bool:
    return "deletionTimestamp" not in pod["metadata"] and not is_terminal(pod)


def node_of(pod: Object) -> str:
    """Returns the node where the pod uses resources; empty for none."""
    return "" if is_terminal(pod) else pod["spec"].get("nodeName", "")


def is_ready(pod: Object) -> bool:
    for one in pod["status"].get("conditions") or ():
        if one["type"] == "Ready":
            return bool(one["status"] == "True")
    return False


def ready_since(pod: Object) -> str:
    for one in pod["status"].get("conditions") or ():
        if one["type"] == "Ready" and one["status"] == "True":
            return str(one.get("lastTransitionTime") or "")
    return ""


def new_pod(
    world: World,
    name: str,
    namespace: str,
    template: Mapping[str, Any],
    owner_references: Sequence[Mapping[str, Any]],
) -> Object:
    """Returns a new pod. Raises ApiError when it is refused.

    Labels, annotations and spec are the template's own objects: nothing here changes them. generateName is set for each
    pod of an owner, as Kubernetes' controllers do, also if the name has an ordinal.
    """
    declared = template.get("metadata") or {}
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": namespace,
        "uid": world.new_uid(),
        "creationTimestamp": world.timestamp(),
        "labels": declared.get("labels") or {},
        "ownerReferences": owner_references,
    }
    if owner_references:
        metadata["generateName"] = f"{owner_references[0]['name']}-"
    if declared.get("annotations"):
        metadata["annotations"] = declared["annotations"]
    return admitted_pod(world, {"metadata": metadata, "spec": template["spec"], "status": {"phase": "Pending"}})


def bound_pod(pod: Object, node: str, stamp: str) -> Object:
    status = {**pod["status"], "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": stamp}]}
    return {**pod, "spec": {**pod["spec"], "nodeName": node}, "status": status}


def unschedulable_pod(pod: Object, message: str, stamp: str) -> Object:
    since = next(
        (one["lastTransitionTime"] for one in pod["status"].get("conditions") or () if one["type"] == "PodScheduled"),
        stamp,
    )
    refusal = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": message,
        "lastTransitionTime": since,
    }
    return {**pod, "status": {**pod["status"], "conditions": [refusal]}}


def running_pod(pod: Object, stamp: str, *, ready: bool) -> Object:
    return {**pod, "status": running_status(pod["status"], stamp, ready=ready)}


def running_status(status: Mapping[str, Any], stamp: str, *, ready: bool) -> dict[str, Any]:
    scheduled = [one for one in status.get("conditions") or () if one["type"] == "PodScheduled"]
    text = "True" if ready else "False"
    others = [
        {"type": kind, "status": text if kind in ("Ready", "ContainersReady") else "True", "lastTransitionTime": stamp}
        for kind in ("Initialized", "Ready", "ContainersReady")
    ]
    return {"phase": "Running", "startTime": stamp, "conditions": [*others, *scheduled]}


def ended_pod(pod: Object) -> Object:
    """Returns the pod after its run time: not ready, and without resources on its node."""
    scheduled = [one for one in pod["status"].get("conditions") or () if one["type"] == "PodScheduled"]
    phase = (pod["metadata"].get("annotations") or {}).get(ENDS_AS, "Succeeded")
    return {**pod, "status": {"phase": phase, "conditions": scheduled}}


def pod_refused_by_kubelet(pod: Object, resource: str) -> Object:
    names = {"cpu": "OutOfcpu", "memory": "OutOfmemory", "pods": "OutOfpods", "hostport": "NodePorts"}
    reason = names.get(resource, f"OutOf{resource}")
    message = f"Pod was rejected: Node didn't have enough resource: {resource}"
    if resource == NODE_AFFINITY:
        reason, text = NODE_AFFINITY, "node(s) didn't match Pod's node affinity/selector"
        message = f"Pod was rejected: Predicate NodeAffinity failed: {text}"
    return {**pod, "status": {"phase": "Failed", "reason": reason, "message": message}}


def scale_in_rank(pod: Object, beside: int) -> tuple[int, int, int, int, int]:
    """Returns the ReplicaSet controller's sort key. Pods with the lowest key are deleted first.

    beside: the number of the pods on this pod's node. The caller has sorted the pods by age before.
    """
    phases = {"Pending": 0, "Unknown": 1, "Running": 2}
    cost = (pod["metadata"].get("annotations") or {}).get("controller.kubernetes.io/pod-deletion-cost", "0")
    return (
        1 if pod["spec"].get("nodeName") else 0,
        phases.get(pod["status"].get("phase", "Pending"), 0),
        1 if is_ready(pod) else 0,
        int(cost) if cost.lstrip("+-").isdigit() else 0,
        -beside,  # More pods on the node mean a lower key, so crowded nodes lose pods first.
    )


def scale_in_victims(pods: Sequence[Object], count: int) -> list[Object]:
    """Returns the pods to delete: unscheduled, pending, not ready, cheap, crowded and new ones first, in this order."""
    pods_by_node: dict[str, int] = {}
    for pod in pods:
        node = pod["spec"].get("nodeName", "")
        pods_by_node[node] = pods_by_node.get(node, 0) + 1
    newest_first = sorted(pods, key=_youth_key, reverse=True)
    # The sort is stable, so among pods with an equal rank the newest stays first.
    newest_first.sort(key=lambda pod: scale_in_rank(pod, pods_by_node[pod["spec"].get("nodeName", "")]))
    return newest_first[:count]


def _youth_key(pod: Object) -> tuple[str, str, str]:
    return ready_since(pod), pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]
