"""Test pods for the levels of Pod Security: for each field that a check reads, pods that pass or fail the check."""

from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from spillway.kubernetes.pod_security import BASELINE, RESTRICTED

Pod = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Case:
    """A pod and its verdict.

    level: the first level that the pod does not meet; empty when it meets all.
    check: the name of the check that refuses the pod there.
    """

    name: str
    level: str
    check: str
    pod: Pod


def restricted_pod() -> Pod:
    context = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    container = {"name": "c", "image": "registry.invalid/c:1", "securityContext": context}
    return {"metadata": {"name": "p"}, "spec": {"containers": [container]}}


def _pod_with_spec(**spec: Any) -> Pod:
    pod = restricted_pod()
    pod["spec"].update(spec)
    return pod


def _pod_with_container(kind: str = "containers", **fields: Any) -> Pod:
    pod = restricted_pod()
    container = deepcopy(pod["spec"]["containers"][0]) | {"name": "other"} | fields
    pod["spec"].setdefault(kind, []).append(container)
    return pod


def _secured_pod(kind: str = "containers", **context: Any) -> Pod:
    whole = restricted_pod()["spec"]["containers"][0]["securityContext"] | context
    return _pod_with_container(kind, securityContext={key: value for key, value in whole.items() if value is not None})


def _pod_with_apparmor(value: str) -> Pod:
    pod = restricted_pod()
    pod["metadata"]["annotations"] = {"container.apparmor.security.beta.kubernetes.io/c": value}
    return pod


def _pod_with_volume(**source: Any) -> Pod:
    return _pod_with_spec(volumes=[{"name": "v", **source}])


_NAMESPACES = ("hostNetwork", "hostPID", "hostIPC")
_NFS = {"server": "s", "path": "/"}
_PROBED = {"httpGet": {"port": 80, "host": "169.254.169.254"}}
_ADDED = {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}

CASES = (
    Case("nothing wrong", "", "", restricted_pod()),
    *(Case(name, BASELINE, "hostNamespaces", _pod_with_spec(**{name: True})) for name in _NAMESPACES),
    Case("hostNetwork is false", "", "", _pod_with_spec(hostNetwork=False)),
    Case("privileged", BASELINE, "privileged", _secured_pod(privileged=True, allowPrivilegeEscalation=None)),
    Case("privileged at its start", BASELINE, "privileged", _secured_pod(
        "initContainers", privileged=True, allowPrivilegeEscalation=None)),
    Case("a capability of the host", BASELINE, "capabilities_baseline", _secured_pod(
        capabilities={"drop": ["ALL"], "add": ["SYS_ADMIN"]})),
    Case("a capability that baseline lets in", RESTRICTED, "capabilities_restricted", _secured_pod(
        capabilities={"drop": ["ALL"], "add": ["CHOWN"]})),
    Case("the capability that restricted lets in", "", "", _secured_pod(capabilities=_ADDED)),
    Case("not all capabilities are dropped", RESTRICTED, "capabilities_restricted", _secured_pod(
        capabilities={"drop": ["NET_RAW"]})),
    Case("hostPath", BASELINE, "hostPathVolumes", _pod_with_volume(hostPath={"path": "/"})),
    Case("a volume that restricted has not", RESTRICTED, "restrictedVolumes", _pod_with_volume(nfs=_NFS)),
    Case("a volume without a source is an emptyDir", "", "", _pod_with_volume()),
    Case("a claim", "", "", _pod_with_volume(persistentVolumeClaim={"claimName": "c"})),
    Case("hostPort", BASELINE, "hostPorts", _pod_with_container(ports=[{"containerPort": 80, "hostPort": 80}])),
    Case("hostPort 0", "", "", _pod_with_container(ports=[{"containerPort": 80, "hostPort": 0}])),
    Case("a probe of another host", BASELINE, "hostProbesAndHostLifecycle", _pod_with_container(livenessProbe=_PROBED)),
    Case("a hook to another host", BASELINE, "hostProbesAndHostLifecycle", _pod_with_container(
        lifecycle={"preStop": {"tcpSocket": {"port": 80, "host": "10.0.0.1"}}})),
    Case("a probe of itself", "", "", _pod_with_container(readinessProbe={"httpGet": {"port": 80}})),
    Case("no AppArmor", BASELINE, "appArmorProfile", _secured_pod(appArmorProfile={"type": "Unconfined"})),
    Case("no AppArmor, as it was written before", BASELINE, "appArmorProfile", _pod_with_apparmor("unconfined")),
    Case("AppArmor as it was written before", "", "", _pod_with_apparmor("localhost/mine")),
    Case("another type of SELinux", BASELINE, "seLinuxOptions", _secured_pod(seLinuxOptions={"type": "spc_t"})),
    Case("a user of SELinux", BASELINE, "seLinuxOptions", _pod_with_spec(
        securityContext={"seLinuxOptions": {"user": "system_u"}})),
    Case("a type of SELinux that may be", "", "", _secured_pod(seLinuxOptions={"type": "container_t"})),
    Case("procMount", BASELINE, "procMount", _secured_pod(procMount="Unmasked")),
    Case("no seccomp", BASELINE, "seccompProfile", _secured_pod(seccompProfile={"type": "Unconfined"})),
    Case("seccomp is not named", RESTRICTED, "seccompProfile_restricted", _secured_pod(seccompProfile=None)),
    Case("a sysctl of the host", BASELINE, "sysctls", _pod_with_spec(
        securityContext={"sysctls": [{"name": "kernel.msgmax", "value": "65536"}]})),
    Case("a sysctl that is safe", "", "", _pod_with_spec(
        securityContext={"sysctls": [{"name": "net.ipv4.tcp_syncookies", "value": "1"}]})),
    Case("escalation", RESTRICTED, "allowPrivilegeEscalation", _secured_pod(allowPrivilegeEscalation=True)),
    Case(
        "escalation is not named", RESTRICTED, "allowPrivilegeEscalation", _secured_pod(allowPrivilegeEscalation=None)
    ),
    Case("root may be", RESTRICTED, "runAsNonRoot", _secured_pod(runAsNonRoot=None)),
    Case("root may be, says one", RESTRICTED, "runAsNonRoot", _secured_pod(runAsNonRoot=False)),
    Case("root", RESTRICTED, "runAsUser", _secured_pod(runAsUser=0)),
    Case("no root, says the pod", "", "", _pod_with_spec(securityContext={"runAsNonRoot": True})),
)  # fmt: skip
