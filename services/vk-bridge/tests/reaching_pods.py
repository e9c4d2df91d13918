"""Pool pods that reach for their host, one for each way to say so, beside ways that are harmless.

Each is said by a pod that is otherwise within Pod Security restricted, and by one that says nothing else.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from sim.pods_by_level import restricted_pod
from spillway.kubernetes.pod_security import ADDED_CAPABILITIES, APPARMOR_ANNOTATION, SYSCTLS

Pod = dict[str, Any]
Said = Mapping[str, Any]
_SECCOMP: Final = "seccomp.security.alpha.kubernetes.io/"
SECURITY_ANNOTATIONS: Final = (APPARMOR_ANNOTATION, _SECCOMP, f"container.{_SECCOMP}")
"""By which security was said before there were fields."""
_ELSEWHERE: Final = {"httpGet": {"host": "10.0.0.1", "port": 80}}, {"tcpSocket": {"host": "10.0.0.1", "port": 80}}
_HANDLERS: Final = (*_ELSEWHERE, {"httpGet": {"port": 80}}, {"tcpSocket": {"port": 80}}, {"exec": {"command": ["a"]}})
_PROFILES: Final = {"type": "Unconfined"}, {"type": "RuntimeDefault"}, {"type": "Localhost", "localhostProfile": "p"}
_SELINUX: Final = (
    *({"type": name} for name in ("spc_t", "container_t", "container_init_t", "container_kvm_t", "unconfined_t")),
    *({"user": "system_u"}, {"role": "system_r"}, {"level": "s0:c1"}),
)
_WINDOWS: Final = (
    *({"hostProcess": True}, {"hostProcess": False}, {"runAsUserName": "ContainerAdministrator"}),
    *({"gmsaCredentialSpecName": "g"}, {"gmsaCredentialSpec": "{}"}),
)
_IDENTITIES: Final[Sequence[Said]] = (
    *({field: one} for field in ("seccompProfile", "appArmorProfile") for one in _PROFILES),
    *({"seLinuxOptions": one} for one in _SELINUX),
    *({"windowsOptions": one} for one in _WINDOWS),
    *({"runAsUser": 0}, {"runAsUser": 1000}, {"runAsGroup": 0}, {"runAsNonRoot": False}, {"runAsNonRoot": True}),
)
_CAPABILITIES: Final = ("ALL", "NET_RAW", "NET_ADMIN", "SYS_ADMIN", "SYS_PTRACE", "BPF", *ADDED_CAPABILITIES)
_CONTEXTS: Final[Sequence[Said]] = (
    *_IDENTITIES,
    *({"capabilities": {"drop": ["ALL"], "add": [one]}} for one in _CAPABILITIES),
    *({"capabilities": {}}, {"capabilities": {"drop": ["NET_RAW"]}}),
    *({"privileged": True, "allowPrivilegeEscalation": True}, {"privileged": False}),
    *({"allowPrivilegeEscalation": True}, {"procMount": "Unmasked"}, {"procMount": "Default"}),
    {"readOnlyRootFilesystem": False},
)
_PORTS: Final = {"hostPort": 80}, {"hostIP": "10.0.0.1"}, {"hostPort": 0}
_CONTAINERS: Final[Sequence[Said]] = (
    *({"securityContext": context} for context in _CONTEXTS),
    *({"ports": [{"containerPort": 80, **one}]} for one in _PORTS),
    *({"tty": True, "stdin": True}, {"volumeDevices": [{"name": "claim", "devicePath": "/dev/x"}]}),
)
_RUNNING: Final[Sequence[Said]] = (
    *({f"{name}Probe": one} for name in ("liveness", "readiness", "startup") for one in _HANDLERS),
    *({"lifecycle": {name: one}} for name in ("postStart", "preStop") for one in _HANDLERS),
    {"livenessProbe": {"grpc": {"port": 80}}},
)
"""Which containers that come to an end by themselves cannot say."""
_SYSCTLS: Final = (*SYSCTLS, "kernel.msgmax", "fs.mqueue.msg_max", "net.core.somaxconn", "vm.swappiness")
_POD_CONTEXTS: Final[Sequence[Said]] = (
    *_IDENTITIES,
    *({"sysctls": [{"name": name, "value": "1"}]} for name in _SYSCTLS),
    *({"fsGroup": 0}, {"supplementalGroups": [0]}, {"seLinuxChangePolicy": "Recursive"}),
)
_CLAIM: Final = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
_VOLUMES: Final[Said] = {
    "awsElasticBlockStore": {"volumeID": "v"},
    "azureDisk": {"diskName": "d", "diskURI": "https://blob.invalid/d", "kind": "Dedicated"},
    "azureFile": {"secretName": "s", "shareName": "s"},
    "cephfs": {"monitors": ["m"]},
    "cinder": {"volumeID": "v"},
    "configMap": {"name": "c"},
    "csi": {"driver": "csi.invalid"},
    "downwardAPI": {},
    "emptyDir": {"medium": "Memory"},
    "ephemeral": {"volumeClaimTemplate": {"spec": _CLAIM}},
    "fc": {"targetWWNs": ["w"], "lun": 0},
    "flexVolume": {"driver": "a/b"},
    "flocker": {"datasetName": "d"},
    "gcePersistentDisk": {"pdName": "p"},
    "gitRepo": {"repository": "https://git.invalid/r"},
    "glusterfs": {"endpoints": "e", "path": "p"},
    "hostPath": {"path": "/"},
    "image": {"reference": "registry.invalid/i:1"},
    "iscsi": {"targetPortal": "10.0.0.1:3260", "iqn": "iqn.2001-04.com.example:storage", "lun": 0},
    "nfs": {"server": "s", "path": "/"},
    "persistentVolumeClaim": {"claimName": "c"},
    "photonPersistentDisk": {"pdID": "p"},
    "portworxVolume": {"volumeID": "v"},
    "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]},
    "quobyte": {"registry": "r:1", "volume": "v"},
    "rbd": {"monitors": ["m"], "image": "i"},
    "scaleIO": {"gateway": "g", "system": "s", "secretRef": {"name": "s"}, "volumeName": "v"},
    "secret": {"secretName": "s"},
    "storageos": {"volumeName": "v"},
    "vsphereVolume": {"volumePath": "v"},
}
"""Every kind that API servers know, and a source that they let in."""
_HOST_PROCESS: Final = {"windowsOptions": {"hostProcess": True, "runAsUserName": "NT AUTHORITY\\SYSTEM"}}
_SPECS: Final[Sequence[Said]] = (
    *({field: value} for field in ("hostNetwork", "hostPID", "hostIPC", "hostUsers") for value in (True, False)),
    *({"securityContext": context} for context in _POD_CONTEXTS),
    *({"volumes": [{"name": "v", kind: source}]} for kind, source in _VOLUMES.items()),
    *({"shareProcessNamespace": True}, {"automountServiceAccountToken": True}, {"serviceAccountName": "default"}),
    *({"runtimeClassName": "r"}, {"priorityClassName": "system-node-critical"}, {"nodeName": "n"}),
    *({"hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a"]}]}, {"dnsPolicy": "ClusterFirstWithHostNet"}),
    *({"tolerations": [{"operator": "Exists"}]}, {"os": {"name": "linux"}}, {"os": {"name": "windows"}}),
    {"os": {"name": "windows"}, "hostNetwork": True, "securityContext": _HOST_PROCESS},
    {"hostNetwork": True, "securityContext": _HOST_PROCESS},
)
_ANNOTATIONS: Final[Sequence[Said]] = (
    *({f"{APPARMOR_ANNOTATION}c": value} for value in ("unconfined", "runtime/default", "localhost/p")),
    *({f"{_SECCOMP}pod": "unconfined"}, {f"container.{_SECCOMP}c": "unconfined"}),
)
EPHEMERAL: Final = "all of it by ephemeral containers"
"""One pod: they are left out, whatever they say."""
_SIDECAR: Final = {"restartPolicy": "Always"}
_PLACES: Final = (
    ("container", "containers", {}, (*_CONTAINERS, *_RUNNING)),
    ("init container", "initContainers", {}, _CONTAINERS),
    ("sidecar", "initContainers", _SIDECAR, (*_CONTAINERS, *_RUNNING)),
)


def pod_without_security_context() -> Pod:
    pod = restricted_pod()
    del pod["spec"]["containers"][0]["securityContext"]
    return pod


def pods_reaching_for_host() -> Iterator[tuple[str, Pod]]:
    """What each says, and the pod: some say what no API server lets in."""
    for base, make in (("restricted", restricted_pod), ("bare", pod_without_security_context)):
        for annotations in _ANNOTATIONS:
            pod = make()
            pod["metadata"]["annotations"] = dict(annotations)
            yield f"{base}: {json.dumps(annotations)}", pod
        for said in _SPECS:
            pod = make()
            pod["spec"] |= said
            yield f"{base}: {json.dumps(said)}", pod
        for place, kind, more, ways in _PLACES:
            for said in ways:
                yield f"{base} {place}: {json.dumps(said)}", _add_container(make(), kind, {**more, **said})
        pod = make()
        for said in _CONTAINERS:
            pod = _add_container(pod, "ephemeralContainers", said)
        yield f"{base}: {EPHEMERAL}", pod
        unmasked = _add_container(make(), "containers", {"securityContext": {"procMount": "Unmasked"}})
        unmasked["spec"]["hostUsers"] = False
        yield f"{base}: procMount with users of its own", unmasked


def _add_container(pod: Pod, kind: str, said: Said) -> Pod:
    """Its one container is first, so that all containers of a pod are looked at."""
    container = pod["spec"]["containers"][0] | {"name": "other"}
    context = container.get("securityContext", {}) | said.get("securityContext", {})
    made = {**container, **said, **({"securityContext": context} if context else {})}
    pod["spec"].setdefault(kind, []).append(made)
    return pod
