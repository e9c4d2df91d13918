"""The only door to a Kubernetes API: read, write, follow, probe; says values inward, named errors outward."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Literal, Protocol

from spillway.kubernetes import AnyObject, Deployment, Node, Pod, ReplicaSet, ResourceQuota

Manifest = dict[str, Any]
Manifests = list[Manifest]
UnreachableReason = Literal["unauthorized", "forbidden", "timeout", "connection", "garbage", "server", "closed"]


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    body: bytes


class TransportStatus(Exception):
    """A stream was answered with another status than 200."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"HTTP status {status}: {body[:500].decode(errors='replace')}")
        self.status = status
        self.body = body


class ClusterUnreachable(Exception):
    """The cluster told us nothing: what is known of it stands, and grows old."""

    def __init__(self, cluster: str, reason: UnreachableReason, detail: str) -> None:
        super().__init__(f"cluster {cluster} is unreachable ({reason}): {detail}")
        self.cluster = cluster
        self.reason = reason
        self.detail = detail


class Conflict(Exception):
    """409: the object exists already, or is not the version that the caller saw. Read again and compare."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message


class Refused(Exception):
    """The cluster answered, and will not do it: admission, quota, RBAC, an invalid object, a missing namespace."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message


class Transport(Protocol):
    """HTTP to one API server. Raises ClusterUnreachable when there is no answer; any status is an answer."""

    async def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        body: bytes | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> Response: ...

    def stream(self, path: str, params: Mapping[str, str], accept: str = "application/json") -> AsyncIterator[bytes]:
        """Raw chunks, cut anywhere; TransportStatus when the status is not 200.

        An empty chunk, first, says that the stream is open; the reader takes it as a sign of life.
        """
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Kind:
    group: str  # "" is the core group
    version: str
    plural: str
    type: type[Any]
    namespaced: bool = True
    metadata_only: bool = False  # follow and list ask for PartialObjectMetadata

    def path(self, namespace: str = "", name: str = "") -> str:
        """With no namespace: all namespaces, or a cluster-wide object."""
        raise NotImplementedError


NODES = Kind("", "v1", "nodes", Node, namespaced=False)
NAMESPACES = Kind("", "v1", "namespaces", AnyObject, namespaced=False)
PODS = Kind("", "v1", "pods", Pod)
CONFIG_MAPS = Kind("", "v1", "configmaps", AnyObject)
SECRETS = Kind("", "v1", "secrets", AnyObject, metadata_only=True)
SERVICES = Kind("", "v1", "services", AnyObject)
RESOURCE_QUOTAS = Kind("", "v1", "resourcequotas", ResourceQuota)
DEPLOYMENTS = Kind("apps", "v1", "deployments", Deployment)
REPLICASETS = Kind("apps", "v1", "replicasets", ReplicaSet, metadata_only=True)


@dataclass(frozen=True, slots=True)
class Listed:
    """Everything there is; what a reader knows and is not in it, is gone."""

    objects: tuple[Any, ...]
    resource_version: str


@dataclass(frozen=True, slots=True)
class Upserted:
    object: Any


@dataclass(frozen=True, slots=True)
class Removed:
    object: Any  # as it was last


@dataclass(frozen=True, slots=True)
class Alive:
    """Nothing changed, and the stream is known to live: a bookmark, or the stream opened."""


@dataclass(frozen=True, slots=True)
class Failed:
    """Said once when following begins to fail; any other change says that it is well again."""

    error: ClusterUnreachable


Change = Listed | Upserted | Removed | Alive | Failed


@dataclass(frozen=True, slots=True)
class Probe:
    nodes: int
    pods: int
    started_at: float  # the loop's monotonic clock, before the first of the two requests


@dataclass(frozen=True, slots=True)
class ClusterApiSettings:
    connect_timeout_seconds: float = 5.0
    request_timeout_seconds: float = 30.0
    """Of one request; a list is one request a page."""


class ClusterApi:
    """`probe_transport` lets the probe have a connection of its own; without it `transport` serves both."""

    def __init__(
        self,
        transport: Transport,
        name: str,
        settings: ClusterApiSettings,
        *,
        random: Random | None = None,
        probe_transport: Transport | None = None,
    ) -> None: ...

    def follow(
        self, kind: Kind, *, label_selector: str = "", field_selector: str = ""
    ) -> AsyncIterator[tuple[Change, ...]]:
        """Never ends and never raises but for a bug: failures are said as Failed and tried again."""
        raise NotImplementedError

    async def probe(self) -> Probe:
        raise NotImplementedError

    async def get(self, kind: Kind, namespace: str, name: str) -> Manifest | None:
        raise NotImplementedError

    async def list(
        self, kind: Kind, namespace: str = "", label_selector: str = "", field_selector: str = ""
    ) -> Manifests:
        raise NotImplementedError

    async def create(self, kind: Kind, manifest: Manifest) -> Manifest:
        raise NotImplementedError

    async def apply(self, kind: Kind, manifest: Manifest, *, resource_version: str, force: bool) -> Manifest:
        raise NotImplementedError

    async def delete(self, kind: Kind, namespace: str, name: str, *, uid: str, resource_version: str) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError
