"""Decides which pool pods are refused and why: pods that need a host, the owner's objects, or the pool's API.

A field that is not known here is refused by its name, because it might give access to the owner's machines or objects.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from spillway.kubernetes import objects
from vk_bridge.core.node.loan import Manifest
from vk_bridge.core.pod.known_fields import CONTAINER, SPEC, VOLUME, WHOLE, misshapen_paths, unknown_fields

API_ACCESS_PREFIX: Final = "kube-api-access-"
"""The name prefix of the token volume that the pool's API server adds to every pod."""
API_ACCESS_SOURCES: Final[list[dict[str, Any]]] = [
    {"serviceAccountToken": {"path": "token"}},
    {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
    {
        "downwardAPI": {
            "items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]
        }
    },
]
"""The sources of that volume, without the time for which the token is valid."""
HANDLERS: Final = ("httpGet", "tcpSocket")


def reasons_against_spec(spec: Manifest, operating_system: str = "") -> Iterator[str]:
    """Yields the reasons why a pod of this spec does not run on a lent node; each names the field.

    No reason: it may run.
    operating_system: the node's; empty: it is not known.
    """
    odd = tuple(misshapen_paths(spec, WHOLE))
    if odd:
        yield from (f"{field}: is no object" for field in odd)
        return
    yield from (f"{field}: shares its host's" for field in ("hostNetwork", "hostPID", "hostIPC") if spec.get(field))
    wanted = (spec.get("os") or {}).get("name") or operating_system
    if operating_system and wanted != operating_system:
        yield f"os: {wanted}: expected {operating_system}, which its node has"
    if spec.get("automountServiceAccountToken"):
        yield "automountServiceAccountToken: asks for a token of the pool's API, which is not reachable there"
    if ((spec.get("securityContext") or {}).get("windowsOptions") or {}).get("hostProcess"):
        yield "securityContext: hostProcess"
    yield from (f"{field}: is not carried over to a lent node" for field in unknown_fields(spec, SPEC))
    yield from _resource_reasons(spec)
    for kind in ("initContainers", "containers"):
        for container in spec.get(kind) or ():
            yield from (f"{kind} {container['name']}: {reason}" for reason in _container_reasons(container))
    for volume in spec.get("volumes") or ():
        yield from (f"volume {volume['name']}: {reason}" for reason in _volume_reasons(volume))


def _resource_reasons(spec: Manifest) -> Iterator[str]:
    """Yields amounts that an API server admits and that cannot be counted."""
    try:
        objects.pod_requests(msgspec.convert(spec, objects.PodSpec))
    except ValueError as error:
        yield f"resources: {error}"


def _container_reasons(container: Manifest) -> Iterator[str]:
    """Yields the fields of one container that no pod on a lent node may have: more rights, host ports, unknown fields,
    claims, and handlers that name a host."""
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
    yield from (f"{field} is not carried over" for field in unknown_fields(container, CONTAINER))
    if (container.get("resources") or {}).get("claims"):
        yield "resource claims"
    yield from _host_reasons(container)


def _host_reasons(container: Manifest) -> Iterator[str]:
    """Yields handlers that name a host.

    A kubelet calls them from its node's own network, like a pod with hostNetwork.
    """
    lifecycle = container.get("lifecycle") or {}
    asking = {name: container.get(name) for name in ("livenessProbe", "readinessProbe", "startupProbe")}
    asking |= {f"lifecycle.{name}": lifecycle.get(name) for name in ("postStart", "preStop")}
    for where, found in asking.items():
        for handler in HANDLERS:
            if ((found or {}).get(handler) or {}).get("host"):
                yield f"{where}.{handler}.host: the owner's kubelet would ask that host"


def _volume_reasons(volume: Manifest) -> Iterator[str]:
    if is_api_access(volume):
        return
    yield from (f"{field} is not carried over" for field in unknown_fields(volume, VOLUME))
    sources = (volume.get("projected") or {}).get("sources") or ()
    if any("serviceAccountToken" in source for source in sources):
        yield "a token for the pool's API, which is not reachable there"


def is_api_access(volume: Manifest) -> bool:
    """Returns whether this is the token volume that the pool's API server adds by itself. It is left out."""
    return volume["name"].startswith(API_ACCESS_PREFIX) and _projected_sources(volume) == API_ACCESS_SOURCES


def _projected_sources(volume: Manifest) -> list[dict[str, Any]]:
    """Returns the volume's sources, in the form of API_ACCESS_SOURCES."""
    return [
        {
            kind: {key: value for key, value in (one or {}).items() if key != "expirationSeconds"}
            for kind, one in source.items()
        }
        for source in (volume.get("projected") or {}).get("sources") or ()
    ]
