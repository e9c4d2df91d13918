"""Changes pods as an API server's admission plugins do before it stores a pod, whoever created the pod.

Source: the plugins ServiceAccount, Priority, RuntimeClass and LimitRanger of Kubernetes v1.36. As there, the last two
run after mutating webhooks. Only the refusals of the first two are modelled: nobody here reads what they add to a pod.
Only a LimitRange's defaults for containers are modelled; its minima and maxima refuse nothing.
"""

from collections.abc import Mapping
from typing import Any

from sim.core.errors import ApiError, forbidden
from sim.core.kinds import KIND_BY_PLURAL, Object
from sim.core.quantity import quantity_text
from sim.core.world import World
from sim.settings import SidecarSpec

Amounts = Mapping[str, Any]

_DEFAULT_ACCOUNT = "default"
"""The name of the service account that a controller creates in every namespace."""
_SYSTEM_CLASSES = frozenset({"system-cluster-critical", "system-node-critical"})
"""The priority classes that an API server creates when it starts."""


def admitted_pod(world: World, pod: Object) -> Object:
    """Returns the pod as it is stored; the same object if nothing is added. Raises ApiError 403 when it is refused."""
    spec = pod["spec"]
    _check_service_account(world, pod["metadata"], spec.get("serviceAccountName") or _DEFAULT_ACCOUNT)
    _check_priority_class(world, pod["metadata"], spec.get("priorityClassName") or "")
    if world.sidecar is not None:
        spec = _spec_with_sidecar(spec, world.sidecar)
    if spec.get("runtimeClassName"):
        spec = _spec_with_overhead(world, pod["metadata"], spec)
    defaults = _container_defaults(world, pod["metadata"]["namespace"])
    if defaults != ({}, {}):
        spec = _spec_with_defaults(spec, *defaults)
    return pod if spec is pod["spec"] else {**pod, "spec": spec}


def _check_service_account(world: World, metadata: Object, name: str) -> None:
    namespace = metadata["namespace"]
    if name != _DEFAULT_ACCOUNT and world.store.get_object("serviceaccounts", (namespace, name)) is None:
        why = f'error looking up service account {namespace}/{name}: serviceaccount "{name}" not found'
        raise _admission_refusal(metadata, why)


def _check_priority_class(world: World, metadata: Object, name: str) -> None:
    if name and name not in _SYSTEM_CLASSES and world.store.get_object("priorityclasses", ("", name)) is None:
        raise _admission_refusal(metadata, f"no PriorityClass with name {name} was found")


def _spec_with_sidecar(spec: Object, sidecar: SidecarSpec) -> Object:
    requests = {
        "cpu": quantity_text("cpu", sidecar.cpu_millis),
        "memory": quantity_text("memory", sidecar.memory_bytes),
    }
    container = {"name": sidecar.name, "image": "sidecar:1", "resources": {"requests": requests}}
    if not sidecar.as_init:
        return {**spec, "containers": [*spec["containers"], container]}
    container["restartPolicy"] = "Always"
    return {**spec, "initContainers": [container, *(spec.get("initContainers") or ())]}


def _spec_with_overhead(world: World, metadata: Object, spec: Object) -> Object:
    """Returns the spec with the overhead, node selector and tolerations of its RuntimeClass."""
    name = spec["runtimeClassName"]
    found = world.store.get_object("runtimeclasses", ("", name))
    if found is None:
        raise _admission_refusal(metadata, f'pod rejected: RuntimeClass "{name}" not found')
    overhead = (found.get("overhead") or {}).get("podFixed") or {}
    if spec.get("overhead", overhead) != overhead:
        raise _admission_refusal(metadata, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
    scheduling = found.get("scheduling") or {}
    own, wanted = spec.get("nodeSelector") or {}, scheduling.get("nodeSelector") or {}
    if any(own.get(key, value) != value for key, value in wanted.items()):
        raise _admission_refusal(metadata, "conflict: runtimeClass.scheduling.nodeSelector and pod.spec.nodeSelector")
    tolerations = [*(spec.get("tolerations") or ())]
    tolerations += [one for one in scheduling.get("tolerations") or () if one not in tolerations]
    more = {"overhead": overhead, "nodeSelector": {**own, **wanted}, "tolerations": tolerations}
    return {**spec, **{field: value for field, value in more.items() if value}}


def _admission_refusal(metadata: Object, why: str) -> ApiError:
    return forbidden(KIND_BY_PLURAL["pods"], metadata["name"], why)


def _container_defaults(world: World, namespace: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns by resource the default limits and requests of containers in the namespace."""
    limits: dict[str, Any] = {}
    requests: dict[str, Any] = {}
    for (place, _), found in world.store.tables["limitranges"].items():
        for item in (found.get("spec") or {}).get("limits") or () if place == namespace else ():
            if item.get("type") == "Container":
                limit = {**(item.get("max") or {}), **(item.get("default") or {})}
                limits |= limit
                requests |= {**(item.get("min") or {}), **limit, **(item.get("defaultRequest") or {})}
    return limits, requests


def _spec_with_defaults(spec: Object, limits: Amounts, requests: Amounts) -> Object:
    filled = {
        field: [_container_with_defaults(one, limits, requests) for one in spec[field]]
        for field in _CONTAINERS
        if field in spec
    }
    return {**spec, **filled}


_CONTAINERS = ("initContainers", "containers")


def _container_with_defaults(container: Object, limits: Amounts, requests: Amounts) -> Object:
    """Returns a container with defaults.

    A container with a limit and no request for a resource requests that limit, as before any plugin of an API server.
    """
    resources = container.get("resources") or {}
    own_limits, own_requests = resources.get("limits") or {}, resources.get("requests") or {}
    asked = {**requests, **own_limits, **own_requests}
    return {**container, "resources": {**resources, "limits": {**limits, **own_limits}, "requests": asked}}
