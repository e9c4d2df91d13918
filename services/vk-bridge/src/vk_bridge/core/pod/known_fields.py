"""Lists the fields of a pod, at every level, that a real pod may take from its pool pod. All others are refused."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

Fields = Mapping[str, Any]
"""By field name: the fields below it, also for each element of a list; None: any value is allowed."""


def _fields_named(names: str, **below: Fields) -> Fields:
    return {**dict.fromkeys(names.split()), **below}


_NAMED: Final = _fields_named("name optional")
_KEYED: Final = _fields_named("name key optional")
_ITEMS: Final = _fields_named("key path mode")
_SOURCES: Final = {
    "fieldRef": _fields_named("apiVersion fieldPath"),
    "resourceFieldRef": _fields_named("containerName resource divisor"),
}
_DOWNWARD: Final = _fields_named("defaultMode", items=_fields_named("path mode", **_SOURCES))
_HANDLER: Final = {
    "exec": _fields_named("command"),
    "httpGet": _fields_named("host path port scheme", httpHeaders=_fields_named("name value")),
    "tcpSocket": _fields_named("host port"),
}
_HOOK: Final = {**_HANDLER, "sleep": _fields_named("seconds")}
_PROBE: Final = _fields_named(
    "initialDelaySeconds timeoutSeconds periodSeconds successThreshold failureThreshold terminationGracePeriodSeconds",
    **_HANDLER,
    grpc=_fields_named("port service"),
)
_SECURITY: Final = _fields_named(
    "runAsGroup runAsNonRoot runAsUser",
    appArmorProfile=_fields_named("type localhostProfile"),
    seLinuxOptions=_fields_named("level role type user"),
    seccompProfile=_fields_named("type localhostProfile"),
    windowsOptions=_fields_named("hostProcess runAsUserName"),
)
KEPT_SPEC: Final[Fields] = _fields_named(
    "activeDeadlineSeconds dnsPolicy hostUsers hostname restartPolicy setHostnameAsFQDN shareProcessNamespace "
    "subdomain terminationGracePeriodSeconds",
    dnsConfig=_fields_named("nameservers searches", options=_fields_named("name value")),
    hostAliases=_fields_named("ip hostnames"),
    os=_fields_named("name"),
    resources=_fields_named("limits requests"),
    securityContext=_fields_named(
        "fsGroup fsGroupChangePolicy seLinuxChangePolicy supplementalGroups supplementalGroupsPolicy",
        **_SECURITY,
        sysctls=_fields_named("name value"),
    ),
)
"""Fields that are passed on as they are."""
MADE_SPEC: Final = _fields_named(
    "containers initContainers volumes",
    imagePullSecrets=_fields_named("name"),
    tolerations=_fields_named("key operator value effect tolerationSeconds"),
)
"""Fields that are made from the pool pod's values."""
LEFT_OUT_SPEC: Final = _fields_named(
    "affinity automountServiceAccountToken enableServiceLinks ephemeralContainers hostIPC hostNetwork hostPID nodeName "
    "nodeSelector overhead preemptionPolicy priority priorityClassName schedulerName schedulingGates serviceAccount "
    "serviceAccountName topologySpreadConstraints"
)
"""Fields that are left out, because the pool's scheduler, the bridge or the owner decides them."""
SPEC: Final[Fields] = {**KEPT_SPEC, **MADE_SPEC, **LEFT_OUT_SPEC}
CONTAINER: Final[Fields] = _fields_named(
    "args command image imagePullPolicy name restartPolicy stdin stdinOnce terminationMessagePath "
    "terminationMessagePolicy tty workingDir",
    env=_fields_named(
        "name value", valueFrom=_fields_named("", configMapKeyRef=_KEYED, secretKeyRef=_KEYED, **_SOURCES)
    ),
    envFrom=_fields_named("prefix", configMapRef=_NAMED, secretRef=_NAMED),
    lifecycle=_fields_named("stopSignal", postStart=_HOOK, preStop=_HOOK),
    livenessProbe=_PROBE,
    readinessProbe=_PROBE,
    startupProbe=_PROBE,
    ports=_fields_named("name containerPort hostIP hostPort protocol"),
    resizePolicy=_fields_named("resourceName restartPolicy"),
    resources=_fields_named("limits requests claims"),
    securityContext=_fields_named(
        "allowPrivilegeEscalation privileged procMount readOnlyRootFilesystem",
        **_SECURITY,
        capabilities=_fields_named("add drop"),
    ),
    volumeMounts=_fields_named("name mountPath mountPropagation readOnly recursiveReadOnly subPath subPathExpr"),
)
VOLUME: Final[Fields] = _fields_named(
    "name",
    configMap=_fields_named("name defaultMode optional", items=_ITEMS),
    secret=_fields_named("secretName defaultMode optional", items=_ITEMS),
    downwardAPI=_DOWNWARD,
    emptyDir=_fields_named("medium sizeLimit"),
    projected=_fields_named(
        "defaultMode",
        sources=_fields_named(
            "serviceAccountToken",
            configMap=_fields_named("name optional", items=_ITEMS),
            secret=_fields_named("name optional", items=_ITEMS),
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
