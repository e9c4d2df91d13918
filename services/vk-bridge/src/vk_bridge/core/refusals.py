"""Which pool pods are refused, and why: what reaches for a host, for what its owner has, or for the pool's API.

What is not known here is refused by name: a field that was passed on unread might reach for what is its owner's.
"""

from collections.abc import Iterator
from typing import Final

from vk_bridge.core.loan import Manifest

KEPT_SPEC: Final = frozenset(
    {
        "activeDeadlineSeconds",
        "dnsConfig",
        "dnsPolicy",
        "hostAliases",
        "hostUsers",
        "hostname",
        "os",
        "resources",
        "restartPolicy",
        "securityContext",
        "setHostnameAsFQDN",
        "shareProcessNamespace",
        "subdomain",
        "terminationGracePeriodSeconds",
    }
)
MADE_SPEC: Final = frozenset({"containers", "initContainers", "volumes", "imagePullSecrets", "tolerations"})
"""Which are made anew from what the pool pod says."""
LEFT_OUT_SPEC: Final = frozenset(
    {
        "affinity",
        "automountServiceAccountToken",
        "enableServiceLinks",
        "ephemeralContainers",
        "hostIPC",
        "hostNetwork",
        "hostPID",
        "nodeName",
        "nodeSelector",
        "overhead",
        "preemptionPolicy",
        "priority",
        "priorityClassName",
        "schedulerName",
        "schedulingGates",
        "serviceAccount",
        "serviceAccountName",
        "topologySpreadConstraints",
    }
)
"""Of which the pool's scheduler, the bridge or the owner decides."""
KEPT_CONTAINER: Final = frozenset(
    {
        "args",
        "command",
        "env",
        "envFrom",
        "image",
        "imagePullPolicy",
        "lifecycle",
        "livenessProbe",
        "name",
        "ports",
        "readinessProbe",
        "resizePolicy",
        "resources",
        "restartPolicy",
        "securityContext",
        "startupProbe",
        "stdin",
        "stdinOnce",
        "terminationMessagePath",
        "terminationMessagePolicy",
        "tty",
        "volumeMounts",
        "workingDir",
    }
)
KEPT_VOLUMES: Final = frozenset({"configMap", "secret", "projected", "downwardAPI", "emptyDir"})
KEPT_SOURCES: Final = frozenset({"configMapKeyRef", "secretKeyRef", "fieldRef", "resourceFieldRef"})
API_ACCESS_PREFIX: Final = "kube-api-access-"
"""Of the volume with a token that the pool's API server adds to every pod."""


def reasons_against(spec: Manifest) -> Iterator[str]:
    """Why a pod of this spec does not run on a lent node; each names the field. None: it does."""
    yield from (f"{field}: shares its host's" for field in ("hostNetwork", "hostPID", "hostIPC") if spec.get(field))
    if spec.get("automountServiceAccountToken"):
        yield "automountServiceAccountToken: asks for a token of the pool's API, which is not reachable there"
    if ((spec.get("securityContext") or {}).get("windowsOptions") or {}).get("hostProcess"):
        yield "securityContext: hostProcess"
    for field, value in spec.items():
        if value not in (None, [], {}) and field not in KEPT_SPEC | MADE_SPEC | LEFT_OUT_SPEC:
            yield f"{field}: is not carried over to a lent node"
    for kind in ("initContainers", "containers"):
        for container in spec.get(kind) or ():
            yield from (f"{kind} {container['name']}: {reason}" for reason in _container_reasons(container))
    for volume in spec.get("volumes") or ():
        yield from (f"volume {volume['name']}: {reason}" for reason in _volume_reasons(volume))


def _container_reasons(container: Manifest) -> Iterator[str]:
    security = container.get("securityContext") or {}
    if security.get("privileged"):
        yield "privileged"
    added = (security.get("capabilities") or {}).get("add") or ()
    if added:
        yield f"adds capabilities {', '.join(map(str, added))}"
    if security.get("procMount", "Default") != "Default":
        yield f"procMount {security['procMount']}"
    if (security.get("windowsOptions") or {}).get("hostProcess"):
        yield "hostProcess"
    for port in container.get("ports") or ():
        if port.get("hostPort"):
            yield f"hostPort {port['hostPort']}"
    for field, value in container.items():
        if value not in (None, [], {}) and field not in KEPT_CONTAINER:
            yield f"{field} is not carried over"
    if (container.get("resources") or {}).get("claims"):
        yield "resource claims"
    for variable in container.get("env") or ():
        unknown = (variable.get("valueFrom") or {}).keys() - KEPT_SOURCES
        yield from (f"env {variable['name']}: {source} is not carried over" for source in sorted(unknown))


def _volume_reasons(volume: Manifest) -> Iterator[str]:
    if is_api_access(volume):
        return
    kinds = volume.keys() - {"name"}
    yield from (f"{kind} is not carried over" for kind in sorted(kinds - KEPT_VOLUMES))
    for source in (volume.get("projected") or {}).get("sources") or ():
        if "serviceAccountToken" in source:
            yield "a token for the pool's API, which is not reachable there"
        unknown = source.keys() - {"configMap", "secret", "downwardAPI", "serviceAccountToken"}
        yield from (f"{kind} is not carried over" for kind in sorted(unknown))


def is_api_access(volume: Manifest) -> bool:
    """Whether this is the volume with a token that the pool's API server adds by itself: it is left out."""
    sources = (volume.get("projected") or {}).get("sources") or ()
    return volume["name"].startswith(API_ACCESS_PREFIX) and any("serviceAccountToken" in source for source in sources)
