"""Scale, eviction and binding."""

from typing import Any

from sim.core.control_plane import ControlPlane
from sim.core.errors import ApiError, bad_request, conflict, not_found
from sim.core.kinds import KIND_BY_PLURAL, Key, Kind, Object
from sim.core.pods import bound_pod, is_active, is_ready
from sim.core.rollout import resolve_limits
from sim.core.selectors import matches_labels, selector_of
from sim.core.verbs import DeleteOptions, Verbs, WriteOptions

_PODS = KIND_BY_PLURAL["pods"]


def scale_of(found: Object) -> dict[str, Any]:
    metadata, spec = found["metadata"], found.get("spec") or {}
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    selector = ",".join(
        f"{key}={value}" for key, value in ((spec.get("selector") or {}).get("matchLabels") or {}).items()
    )
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {field: metadata[field] for field in kept if field in metadata},
        "spec": {"replicas": spec.get("replicas", 0)},
        "status": {"replicas": (found.get("status") or {}).get("replicas", 0), "selector": selector},
    }


def write_scale(verbs: Verbs, kind: Kind, key: Key, scale: Any, options: WriteOptions) -> dict[str, Any]:
    """Writes the scale of an object. scale: a whole Scale or a patch of one."""
    replicas = ((scale if isinstance(scale, dict) else {}).get("spec") or {}).get("replicas")
    if not isinstance(replicas, int):
        raise bad_request("spec.replicas must be a number")
    patch: dict[str, Any] = {"spec": {"replicas": replicas}}
    version = (scale.get("metadata") or {}).get("resourceVersion")
    if version:
        patch["metadata"] = {"resourceVersion": version}
    return scale_of(verbs.merge(kind, key, patch, options))


def evict_pod(control_plane: ControlPlane, verbs: Verbs, key: Key, options: DeleteOptions) -> None:
    pod = verbs.get(_PODS, key)
    if is_active(pod) and is_ready(pod):
        _check_disruption_budgets(control_plane, pod)
    verbs.delete(_PODS, key, options)


def _check_disruption_budgets(control_plane: ControlPlane, pod: Object) -> None:
    namespace, labels = pod["metadata"]["namespace"], pod["metadata"].get("labels") or {}
    for budget in control_plane.world.store.objects_in_namespace("poddisruptionbudgets", namespace):
        spec = budget.get("spec") or {}
        selector = selector_of(spec.get("selector") or {})
        if not matches_labels(selector, labels):
            continue
        pods = [
            one
            for one in control_plane.world.store.objects_in_namespace("pods", namespace)
            if is_active(one) and matches_labels(selector, one["metadata"].get("labels") or {})
        ]
        healthy = sum(1 for one in pods if is_ready(one))
        if healthy - 1 < _needed_healthy_pods(spec, len(pods)):
            message = "Cannot evict pod as it would violate the pod's disruption budget."
            raise ApiError(429, "TooManyRequests", message, {"causes": [{"reason": "DisruptionBudget"}]})


def _needed_healthy_pods(spec: dict[str, Any], pods: int) -> int:
    # Kubernetes rounds both percentages up, as resolve_limits rounds a surge.
    if "maxUnavailable" in spec:
        return pods - resolve_limits(pods, spec["maxUnavailable"], 0).surge
    return resolve_limits(pods, spec.get("minAvailable", 0), 0).surge


def bind_pod(control_plane: ControlPlane, verbs: Verbs, key: Key, binding: Any) -> None:
    node = ((binding if isinstance(binding, dict) else {}).get("target") or {}).get("name")
    if not node:
        raise bad_request("target.name is required")
    pod = verbs.get(_PODS, key)
    if pod["spec"].get("nodeName"):
        raise conflict(_PODS, key[1], f'pod {key[1]} is already assigned to node "{pod["spec"]["nodeName"]}"')
    if control_plane.world.store.get_object("nodes", ("", node)) is None:
        raise not_found(KIND_BY_PLURAL["nodes"], node)
    control_plane.world.store.put_object("pods", bound_pod(pod, node, control_plane.world.timestamp()))
