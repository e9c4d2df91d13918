"""The ConfigMaps and Secrets that a pod's containers need, and the status of a pod that waits for them.

Source: makeEnvironmentVariables and the status of containers in the kubelet of Kubernetes v1.36. If an object of its
environment is missing, a container waits with the reason CreateContainerConfigError. If an object of its volumes is
missing, no container of the pod is created, and all wait with ContainerCreating.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sim.core.kinds import KIND_BY_PLURAL, Key, Object

CONFIG_ERROR = "CreateContainerConfigError"
CREATING, INITIALIZING = "ContainerCreating", "PodInitializing"


@dataclass(frozen=True, slots=True)
class Needed:
    """A ConfigMap or Secret that a pod needs.

    plural: configmaps or secrets.
    key: the key that the object must have; empty: it needs no certain key.
    container: the container whose environment names the object; empty: a volume names it.
    """

    plural: str
    name: str
    key: str = ""
    container: str = ""


def config_needed_by_pod(spec: Mapping[str, Any]) -> Iterator[Needed]:
    """Yields the objects that are not optional: of volumes first, then of containers in the order of their start."""
    for volume in spec.get("volumes") or ():
        sources = [volume, *((volume.get("projected") or {}).get("sources") or ())]
        for source in sources:
            yield from _needed_object("configmaps", source.get("configMap"))
            yield from _needed_object(
                "secrets", source.get("secret"), name="secretName" if source is volume else "name"
            )
    for field in ("initContainers", "containers"):
        for container in spec.get(field) or ():
            yield from _config_needed_by_container(container)


def _config_needed_by_container(container: Mapping[str, Any]) -> Iterator[Needed]:
    whose = container.get("name", "")
    for source in container.get("envFrom") or ():
        yield from _needed_object("configmaps", source.get("configMapRef"), whose)
        yield from _needed_object("secrets", source.get("secretRef"), whose)
    for variable in container.get("env") or ():
        source = variable.get("valueFrom") or {}
        yield from _needed_object("configmaps", source.get("configMapKeyRef"), whose)
        yield from _needed_object("secrets", source.get("secretKeyRef"), whose)


def _needed_object(
    plural: str, source: Mapping[str, Any] | None, container: str = "", name: str = "name"
) -> Iterator[Needed]:
    if source and source.get(name) and not source.get("optional"):
        yield Needed(plural, source[name], source.get("key", ""), container)


def missing_config_by_container(
    get: Callable[[str, Key], Object | None], namespace: str, needed: Iterable[Needed]
) -> dict[str, str]:
    """Returns by container the reason why it is not created. The empty name has the reason of an unmounted volume.

    get: returns the object of a plural and a key; None where there is none.
    """
    found: dict[str, str] = {}
    for one in needed:
        why = _missing_reason(get(one.plural, (namespace, one.name)), one, (namespace, one.name))
        if why:
            found.setdefault(one.container, why)
    return found


def _missing_reason(found: Object | None, needed: Needed, key: Key) -> str:
    kind = KIND_BY_PLURAL[needed.plural].name
    if found is None:
        return f'{kind.lower()} "{needed.name}" not found'
    if needed.key and not any(needed.key in (found.get(field) or ()) for field in ("data", "stringData")):
        return f"couldn't find key {needed.key} in {kind} {'/'.join(key)}"
    return ""


def waiting_pod(pod: Object, lacks: Mapping[str, str], stamp: str) -> Object:
    """Returns the pod as it waits: Pending on its node, with a reason for each container.

    Containers that could run wait too.
    """
    scheduled = [one for one in pod["status"].get("conditions") or () if one["type"] == "PodScheduled"]
    spec = pod["spec"]
    inits, mains = ([one["name"] for one in spec.get(field) or ()] for field in ("initContainers", "containers"))
    initialized = "" not in lacks and not any(name in lacks for name in inits)
    texts = {"Initialized": "True" if initialized else "False", "Ready": "False", "ContainersReady": "False"}
    conditions = [{"type": kind, "status": text, "lastTransitionTime": stamp} for kind, text in texts.items()]
    rest = CREATING if initialized or "" in lacks else INITIALIZING
    status = {
        "phase": "Pending",
        "startTime": stamp,
        "conditions": [*conditions, *scheduled],
        "containerStatuses": [_waiting_container_status(name, lacks, rest) for name in mains],
    }
    if inits:
        status["initContainerStatuses"] = [_waiting_container_status(name, lacks, rest) for name in inits]
    return {**pod, "status": status}


def _waiting_container_status(name: str, lacks: Mapping[str, str], rest: str) -> dict[str, Any]:
    state: dict[str, Any] = {"reason": rest}
    if name in lacks and "" not in lacks:
        state = {"reason": CONFIG_ERROR, "message": lacks[name]}
    return {"name": name, "ready": False, "restartCount": 0, "started": False, "state": {"waiting": state}}
