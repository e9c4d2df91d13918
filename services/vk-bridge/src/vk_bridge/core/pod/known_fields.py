"""Lists the fields of a pod, at every level, that a real pod may take from its pool pod. All others are refused."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

Fields = Mapping[str, Any]
"""By field name: the fields below it, also for each element of a list; None: any value is allowed."""


def _fields(names: str, **below: Fields) -> Fields:
    return {**dict.fromkeys(names.split()), **below}


_NAMED: Final = _fields("name optional")
_KEYED: Final = _fields("name key optional")
_ITEMS: Final = _fields("key path mode")
_SOURCES: Final = {
    "fieldRef": _fields("apiVersion fieldPath"),
    "resourceFieldRef": _fields("containerName resource divisor"),
}
_DOWNWARD: Final = _fields("defaultMode", items=_fields("path mode", **_SOURCES))
_HANDLER: Final = {
    "exec": _fields("command"),
    "httpGet": _fields("host path port scheme", httpHeaders=_fields("name value")),
    "tcpSocket": _fields("host port"),
}
_HOOK: Final = {**_HANDLER, "sleep": _fields("seconds")}
_PROBE: Final = _fields(
    "initialDelaySeconds timeoutSeconds periodSeconds successThreshold failureThreshold terminationGracePeriodSeconds",
    **_HANDLER,
    grpc=_fields("port service"),
)
_SECURITY: Final = _fields(
    "runAsGroup runAsNonRoot runAsUser",
    appArmorProfile=_fields("type localhostProfile"),
    seLinuxOptions=_fields("level role type user"),
    seccompProfile=_fields("type localhostProfile"),
    windowsOptions=_fields("hostProcess runAsUserName"),
)
KEPT_SPEC: Final[Fields] = _fields(
    "activeDeadlineSeconds dnsPolicy hostUsers hostname restartPolicy setHostnameAsFQDN shareProcessNamespace "
    "subdomain terminationGracePeriodSeconds",
    dnsConfig=_fields("nameservers searches", options=_fields("name value")),
    hostAliases=_fields("ip hostnames"),
    os=_fields("name"),
    resources=_fields("limits requests"),
    securityContext=_fields(
        "fsGroup fsGroupChangePolicy seLinuxChangePolicy supplementalGroups supplementalGroupsPolicy",
        **_SECURITY,
        sysctls=_fields("name value"),
    ),
)
"""Fields that are passed on as they are."""
MADE_SPEC: Final = _fields(
    "containers initContainers volumes",
    imagePullSecrets=_fields("name"),
    tolerations=_fields("key operator value effect tolerationSeconds"),
)
"""Fields that are made from the pool pod's values."""
LEFT_OUT_SPEC: Final = _fields(
    "affinity automountServiceAccountToken enableServiceLinks ephemeralContainers hostIPC hostNetwork hostPID nodeName "
    "nodeSelector overhead preemptionPolicy priority priorityClassName schedulerName schedulingGates serviceAccount "
    "serviceAccountName topologySpreadConstraints"
)
"""Fields that are left out, because the pool's scheduler, the bridge or the owner decides them."""
SPEC: Final[Fields] = {**KEPT_SPEC, **MADE_SPEC, **LEFT_OUT_SPEC}
CONTAINER: Final[Fields] = _fields(
    "args command image imagePullPolicy name restartPolicy stdin stdinOnce terminationMessagePath "
    "terminationMessagePolicy tty workingDir",
    env=_fields("name value", valueFrom=_fields("", configMapKeyRef=_KEYED, secretKeyRef=_KEYED, **_SOURCES)),
    envFrom=_fields("prefix", configMapRef=_NAMED, secretRef=_NAMED),
    lifecycle=_fields("stopSignal", postStart=_HOOK, preStop=_HOOK),
    livenessProbe=_PROBE,
    readinessProbe=_PROBE,
    startupProbe=_PROBE,
    ports=_fields("name containerPort hostIP hostPort protocol"),
    resizePolicy=_fields("resourceName restartPolicy"),
    resources=_fields("limits requests claims"),
    securityContext=_fields(
        "allowPrivilegeEscalation privileged procMount readOnlyRootFilesystem",
        **_SECURITY,
        capabilities=_fields("add drop"),
    ),
    volumeMounts=_fields("name mountPath mountPropagation readOnly recursiveReadOnly subPath subPathExpr"),
)
VOLUME: Final[Fields] = _fields(
    "name",
    configMap=_fields("name defaultMode optional", items=_ITEMS),
    secret=_fields("secretName defaultMode optional", items=_ITEMS),
    downwardAPI=_DOWNWARD,
    emptyDir=_fields("medium sizeLimit"),
    projected=_fields(
        "defaultMode",
        sources=_fields(
            "serviceAccountToken",
            configMap=_fields("name optional", items=_ITEMS),
            secret=_fields("name optional", items=_ITEMS),
            downwardAPI=_DOWNWARD,
        ),
    ),
)
WHOLE: Final[Fields] = {**SPEC, "containers": CONTAINER, "initContainers": CONTAINER, "volumes": VOLUME}
"""All fields that are checked below a pod's spec."""


def misshapen_paths(found: object, known: Fields, where: str = "") -> Iterator[str]:
    """Yields the paths of values that should be an object, or a list of objects, and are not.

    A pod with such a value cannot be read.
    """
    if not isinstance(found, Mapping):
        yield where
        return
    for name, value in found.items():
        below, at = known.get(name), f"{where}.{name}" if where else str(name)
        if below is None or value is None:
            continue
        if isinstance(value, list):
            for index, one in enumerate(value):
                yield from misshapen_paths(one, below, f"{at}[{index}]")
        else:
            yield from misshapen_paths(value, below, at)


def unknown_fields(found: Mapping[str, Any], known: Fields, where: str = "") -> Iterator[str]:
    """Yields the paths of fields in `found` that are not known, as `lifecycle.preStop.new` or `envFrom[0].new`."""
    for name, value in found.items():
        if value is None or value == []:
            continue
        if name not in known:
            yield f"{where}{name}"
        elif known[name] is not None and isinstance(value, list):
            for index, one in enumerate(value):
                yield from unknown_fields(one, known[name], f"{where}{name}[{index}].")
        elif known[name] is not None:
            yield from unknown_fields(value, known[name], f"{where}{name}.")
