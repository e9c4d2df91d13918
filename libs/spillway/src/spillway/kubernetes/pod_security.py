"""Kubernetes' Pod Security Standards: finds the fields of a pod that violate the levels baseline and restricted.

The checks, their names and the allowed values come from k8s.io/pod-security-admission v0.36.1, policy version v1.35.
The texts are our own.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

ANY: Final = "any"
BASELINE: Final = "baseline"
RESTRICTED: Final = "restricted"
LEVELS: Final = (ANY, BASELINE, RESTRICTED)
"""The levels, the least strict first. `any` is what Kubernetes calls privileged."""
ENFORCE_LABEL: Final = "pod-security.kubernetes.io/enforce"
"""A label of a namespace: pods that do not meet this level are rejected by its API server."""

ADDED_CAPABILITIES: Final = (
    "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP",
    "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
)  # fmt: skip
SYSCTLS: Final = (
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_wmem",
)
SELINUX_TYPES: Final = ("", "container_t", "container_init_t", "container_kvm_t", "container_engine_t")
PROFILE_TYPES: Final = ("RuntimeDefault", "Localhost")
VOLUMES: Final = (
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected", "secret",
)  # fmt: skip
APPARMOR_ANNOTATION: Final = "container.apparmor.security.beta.kubernetes.io/"
APPARMOR_DEFAULT, APPARMOR_LOCAL = "runtime/default", "localhost/"
CONTAINERS: Final = ("initContainers", "containers", "ephemeralContainers")
Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Violation:
    """A field that violates a level. check: Kubernetes' name of the check. expected: the allowed values, as text."""

    check: str
    field: str
    value: Any
    expected: str


Found = Iterator[Violation]


def violations(pod: Object, level: str) -> Found:
    """Yields the fields of a pod, or of a pod template, that violate a level. It reads `metadata` and `spec`.

    Fields that do not match the API's schema are ignored: the API server refuses them. Raises ValueError for an unknown
    level.
    """
    if level not in LEVELS:
        raise ValueError(f"level {level!r}: expected one of {', '.join(LEVELS)}")
    if level == ANY:
        return
    spec = _mapping_or_empty(pod.get("spec"))
    yield from _annotation_violations(_mapping_or_empty(pod.get("metadata")))
    for check in _BASELINE if level == BASELINE else (*_BASELINE, *_RESTRICTED):
        yield from check(spec)
    # Restricted checks procMount for every pod; baseline only for pods that share the node's user namespace.
    if level == BASELINE and not _has_user_namespace(spec):
        yield from _proc_mount_violations(spec)


# ── Baseline ────────────────────────────────────────────────────────────────────────────────────────────────────


def _annotation_violations(metadata: Object) -> Found:
    for key, value in _mapping_or_empty(metadata.get("annotations")).items():
        if not str(key).startswith(APPARMOR_ANNOTATION):
            continue
        if value not in ("", APPARMOR_DEFAULT) and not str(value).startswith(APPARMOR_LOCAL):
            where = f"metadata.annotations[{key}]"
            yield Violation("appArmorProfile", where, value, f"{APPARMOR_DEFAULT} or {APPARMOR_LOCAL}…")


def _host_namespace_violations(spec: Object) -> Found:
    for name in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(name):
            yield Violation("hostNamespaces", f"spec.{name}", spec[name], "false")


def _privileged_violations(spec: Object) -> Found:
    for where, context in _container_security_contexts(spec):
        if context.get("privileged"):
            yield Violation("privileged", f"{where}.privileged", context["privileged"], "false")


def _capability_violations(spec: Object) -> Found:
    for where, context in _container_security_contexts(spec):
        for added in _list_or_empty(_mapping_or_empty(context.get("capabilities")).get("add")):
            if added not in ADDED_CAPABILITIES:
                expected = f"some of {', '.join(ADDED_CAPABILITIES)}"
                yield Violation("capabilities_baseline", f"{where}.capabilities.add", added, expected)


def _host_path_violations(spec: Object) -> Found:
    for index, volume in enumerate(_list_or_empty(spec.get("volumes"))):
        if _mapping_or_empty(volume).get("hostPath") is not None:
            yield Violation(
                "hostPathVolumes", f"spec.volumes[{index}].hostPath", _name_of_mapping(volume), "another volume"
            )


def _host_port_violations(spec: Object) -> Found:
    for where, container in _containers(spec):
        for index, port in enumerate(_list_or_empty(container.get("ports"))):
            if found := _mapping_or_empty(port).get("hostPort"):
                yield Violation("hostPorts", f"{where}.ports[{index}].hostPort", found, "none")


def _probe_host_violations(spec: Object) -> Found:
    for where, container in _containers(spec):
        lifecycle = _mapping_or_empty(container.get("lifecycle"))
        handlers = [(name, container.get(name)) for name in ("livenessProbe", "readinessProbe", "startupProbe")]
        handlers += [(f"lifecycle.{name}", lifecycle.get(name)) for name in ("postStart", "preStop")]
        for handler, value in handlers:
            for way in ("httpGet", "tcpSocket"):
                if host := _mapping_or_empty(_mapping_or_empty(value).get(way)).get("host"):
                    yield Violation("hostProbesAndHostLifecycle", f"{where}.{handler}.{way}.host", host, "none")


def _apparmor_violations(spec: Object) -> Found:
    for where, context in _security_contexts(spec):
        profile = context.get("appArmorProfile")
        if profile is not None and _profile_type(profile) not in PROFILE_TYPES:
            yield _profile_violation("appArmorProfile", where, profile)


def _selinux_violations(spec: Object) -> Found:
    for where, context in _security_contexts(spec):
        options = _mapping_or_empty(context.get("seLinuxOptions"))
        if (options.get("type") or "") not in SELINUX_TYPES:
            expected = ", ".join(SELINUX_TYPES[1:])
            yield Violation("seLinuxOptions", f"{where}.seLinuxOptions.type", options["type"], expected)
        for name in ("user", "role"):
            if options.get(name):
                yield Violation("seLinuxOptions", f"{where}.seLinuxOptions.{name}", options[name], "none")


def _proc_mount_violations(spec: Object) -> Found:
    for where, context in _container_security_contexts(spec):
        if context.get("procMount") not in (None, "Default"):
            yield Violation("procMount", f"{where}.procMount", context["procMount"], "Default")


def _seccomp_violations(spec: Object) -> Found:
    for where, context in _security_contexts(spec):
        profile = context.get("seccompProfile")
        if profile is not None and _profile_type(profile) not in PROFILE_TYPES:
            yield _profile_violation("seccompProfile", where, profile)


def _sysctl_violations(spec: Object) -> Found:
    for index, one in enumerate(_list_or_empty(_mapping_or_empty(spec.get("securityContext")).get("sysctls"))):
        if _mapping_or_empty(one).get("name") not in SYSCTLS:
            yield Violation(
                "sysctls", f"spec.securityContext.sysctls[{index}]", _name_of_mapping(one), "a sysctl that is safe"
            )


def _host_process_violations(spec: Object) -> Found:
    for where, context in _security_contexts(spec):
        if found := _mapping_or_empty(context.get("windowsOptions")).get("hostProcess"):
            yield Violation("windowsHostProcess", f"{where}.windowsOptions.hostProcess", found, "false")


# ── Restricted ──────────────────────────────────────────────────────────────────────────────────────────────────


def _volume_type_violations(spec: Object) -> Found:
    """Yields volumes of a type that is not in VOLUMES. A volume without a source is an emptyDir, by default."""
    for index, volume in enumerate(_list_or_empty(spec.get("volumes"))):
        kinds = [kind for kind, source in _mapping_or_empty(volume).items() if kind != "name" and source is not None]
        if kinds and not any(kind in VOLUMES for kind in kinds):
            expected = f"one of {', '.join(VOLUMES)}"
            yield Violation("restrictedVolumes", f"spec.volumes[{index}]", _name_of_mapping(volume), expected)


def _escalation_violations(spec: Object) -> Found:
    for where, context in _container_security_contexts(spec) if not _is_windows(spec) else ():
        value = context.get("allowPrivilegeEscalation")
        if value is not False:
            yield Violation("allowPrivilegeEscalation", f"{where}.allowPrivilegeEscalation", value, "false")


def _dropped_capability_violations(spec: Object) -> Found:
    for where, context in _container_security_contexts(spec) if not _is_windows(spec) else ():
        capabilities = _mapping_or_empty(context.get("capabilities"))
        if "ALL" not in _list_or_empty(capabilities.get("drop")):
            where_dropped, value = f"{where}.capabilities.drop", capabilities.get("drop")
            yield Violation("capabilities_restricted", where_dropped, value, '["ALL"]')
        for added in _list_or_empty(capabilities.get("add")):
            if added != "NET_BIND_SERVICE":
                yield Violation("capabilities_restricted", f"{where}.capabilities.add", added, "NET_BIND_SERVICE alone")


def _non_root_violations(spec: Object) -> Found:
    if _has_user_namespace(spec):
        return
    of_pod = _mapping_or_empty(spec.get("securityContext")).get("runAsNonRoot")
    if of_pod is not None and of_pod is not True:
        yield Violation("runAsNonRoot", "spec.securityContext.runAsNonRoot", of_pod, "true")
    for where, context in _container_security_contexts(spec):
        value = context.get("runAsNonRoot")
        if value is not True and not (value is None and of_pod is True):
            yield Violation("runAsNonRoot", f"{where}.runAsNonRoot", value, "true, here or of the pod")


def _root_user_violations(spec: Object) -> Found:
    for where, context in _security_contexts(spec) if not _has_user_namespace(spec) else ():
        if context.get("runAsUser") == 0:
            yield Violation("runAsUser", f"{where}.runAsUser", 0, "another user than 0")


def _missing_seccomp_violations(spec: Object) -> Found:
    if (
        _is_windows(spec)
        or _profile_type(_mapping_or_empty(spec.get("securityContext")).get("seccompProfile")) in PROFILE_TYPES
    ):
        return
    for where, context in _container_security_contexts(spec):
        if context.get("seccompProfile") is None:
            expected = f"{' or '.join(PROFILE_TYPES)}, here or of the pod"
            yield Violation("seccompProfile_restricted", f"{where}.seccompProfile", None, expected)


_BASELINE: Final[Sequence[Callable[[Object], Found]]] = (
    _host_namespace_violations,
    _privileged_violations,
    _capability_violations,
    _host_path_violations,
    _host_port_violations,
    _probe_host_violations,
    _apparmor_violations,
    _selinux_violations,
    _seccomp_violations,
    _sysctl_violations,
    _host_process_violations,
)
_RESTRICTED: Final[Sequence[Callable[[Object], Found]]] = (
    _proc_mount_violations,
    _volume_type_violations,
    _escalation_violations,
    _dropped_capability_violations,
    _non_root_violations,
    _root_user_violations,
    _missing_seccomp_violations,
)


# ── Parts of a pod ──────────────────────────────────────────────────────────────────────────────────────────────


def _containers(spec: Object) -> Iterator[tuple[str, Object]]:
    for kind in CONTAINERS:
        for index, container in enumerate(_list_or_empty(spec.get(kind))):
            yield f"spec.{kind}[{index}]", _mapping_or_empty(container)


def _container_security_contexts(spec: Object) -> Iterator[tuple[str, Object]]:
    for where, container in _containers(spec):
        yield f"{where}.securityContext", _mapping_or_empty(container.get("securityContext"))


def _security_contexts(spec: Object) -> Iterator[tuple[str, Object]]:
    yield "spec.securityContext", _mapping_or_empty(spec.get("securityContext"))
    yield from _container_security_contexts(spec)


def _has_user_namespace(spec: Object) -> bool:
    """Returns whether the pod has its own user namespace. Then root in the pod has no rights on its node."""
    return spec.get("hostUsers") is False


def _is_windows(spec: Object) -> bool:
    return _mapping_or_empty(spec.get("os")).get("name") == "windows"


def _profile_violation(check: str, where: str, profile: object) -> Violation:
    return Violation(check, f"{where}.{check}.type", _profile_type(profile), " or ".join(PROFILE_TYPES))


def _profile_type(profile: object) -> object:
    return _mapping_or_empty(profile).get("type")


def _name_of_mapping(value: object) -> object:
    return _mapping_or_empty(value).get("name")


def _mapping_or_empty(value: object) -> Object:
    return value if isinstance(value, Mapping) else {}


def _list_or_empty(value: object) -> Iterable[Any]:
    return value if isinstance(value, list) else ()
