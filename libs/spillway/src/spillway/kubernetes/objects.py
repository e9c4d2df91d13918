"""The few fields of Kubernetes' objects that we read, and Kubernetes' sums over them.

Pure: no IO, no clock. Unknown fields are skipped by the decoder. `gc=False` because these values have no cycles, and
the cyclic collector is most of the cost of decoding many of them.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Annotated, Any, Final, Literal, NamedTuple
from urllib.parse import quote

from msgspec import Meta as Bounds
from msgspec import Raw, Struct, field, json

from spillway.kubernetes import quantities
from spillway.kubernetes.pod_terms import UNREAD, ObservedAffinity, RequiredPodAffinity
from spillway.kubernetes.quantities import nanos_of, units_of_nanos
from spillway.kubernetes.specs import ClaimSpec, ClaimStatus, ResourceQuotaSpec, ResourceQuotaStatus, VolumeSpec
from spillway.lending_marks import POOL_CLUSTER

Quantity = quantities.Quantity
parse_quantity = quantities.parse_quantity
Manifest = dict[str, Any]
Manifests = list[Manifest]
JSON: Final = "application/json"
Subresource = Literal["", "status", "log"]
Int32 = Annotated[int, Bounds(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, Bounds(ge=-(2**63), le=2**63 - 1)]
"""An integer of 64 bits, as Kubernetes uses. Sums of larger numbers would not fit our arrays and records."""
_OBJECT_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", re.ASCII)


class OwnerReference(Struct, frozen=True, gc=False, rename="camel"):
    kind: str
    name: str
    uid: str
    controller: bool = False


class Meta(Struct, frozen=True, gc=False, rename="camel"):
    """Metadata without annotations, which are large and not needed for most pods and nodes."""

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: Int64 = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()


class NodeAnnotations(Struct, frozen=True, gc=False):
    """The only annotation of a node that is read. pool_cluster: the pool that a lent node is lent to."""

    pool_cluster: str = field(default="", name=POOL_CLUSTER)


class NodeMeta(Meta, frozen=True, gc=False, rename="camel"):
    annotations: NodeAnnotations = NodeAnnotations()


class AnnotatedMeta(Struct, frozen=True, gc=False, rename="camel"):
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: Int64 = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()


class AnyObject(Struct, frozen=True, gc=False, rename="camel"):
    """An object whose metadata alone is read."""

    metadata: AnnotatedMeta


class ObjectCondition(Struct, frozen=True, gc=False, rename="camel"):
    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class ApiTaint(Struct, frozen=True, gc=False, rename="camel"):
    key: str
    effect: str
    value: str = ""


class NodeSpec(Struct, frozen=True, gc=False, rename="camel"):
    unschedulable: bool = False
    taints: tuple[ApiTaint, ...] = ()


class NodeStatus(Struct, frozen=True, gc=False, rename="camel"):
    allocatable: dict[str, Quantity] = {}
    conditions: tuple[ObjectCondition, ...] = ()


class Node(Struct, frozen=True, gc=False, rename="camel"):
    metadata: NodeMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class Resources(Struct, frozen=True, gc=False, rename="camel"):
    requests: dict[str, Quantity] = {}


class ContainerPort(Struct, frozen=True, gc=False, rename="camel"):
    container_port: Int32 = 0
    host_port: Int32 = 0
    host_ip: str = field(default="", name="hostIP")
    protocol: str = "TCP"


class Container(Struct, frozen=True, gc=False, rename="camel"):
    name: str = ""
    resources: Resources = Resources()
    restart_policy: str | None = None  # "Always" makes an init container a sidecar
    ports: tuple[ContainerPort, ...] = ()


class PodSpec(Struct, frozen=True, gc=False, rename="camel"):
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    node_name: str = ""
    priority: Int32 = 0
    scheduler_name: str = "default-scheduler"
    host_network: bool = False
    overhead: dict[str, Quantity] = {}
    resources: Resources | None = None
    affinity: RequiredPodAffinity | None = None


class ObservedPodSpec(PodSpec, frozen=True, gc=False, rename="camel"):
    affinity: ObservedAffinity | None = None
    node_selector: Raw = UNREAD
    tolerations: Raw = UNREAD
    topology_spread_constraints: Raw = UNREAD
    volumes: Raw = UNREAD


class ContainerStatus(Struct, frozen=True, gc=False, rename="camel"):
    """The status of a container. resources: the resources that it runs with now.

    allocated_resources: the resources that its node has promised it.
    """

    name: str = ""
    resources: Resources | None = None
    allocated_resources: dict[str, Quantity] = {}


class PodStatus(Struct, frozen=True, gc=False, rename="camel"):
    phase: str = "Pending"
    start_time: str | None = None
    conditions: tuple[ObjectCondition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    resources: Resources | None = None
    allocated_resources: dict[str, Quantity] = {}


class Pod(Struct, frozen=True, gc=False, rename="camel"):
    metadata: Meta
    spec: ObservedPodSpec = ObservedPodSpec()
    status: PodStatus = PodStatus()


class ReplicaSet(Struct, frozen=True, gc=False, rename="camel"):
    metadata: Meta


class RollingUpdate(Struct, frozen=True, gc=False, rename="camel"):
    max_surge: int | str = "25%"
    max_unavailable: int | str = "25%"


class DeploymentStrategy(Struct, frozen=True, gc=False, rename="camel"):
    type: str = "RollingUpdate"
    rolling_update: RollingUpdate | None = None


class DeploymentSpec(Struct, frozen=True, gc=False, rename="camel"):
    replicas: Int32 = 1
    paused: bool = False
    strategy: DeploymentStrategy = DeploymentStrategy()


class DeploymentStatus(Struct, frozen=True, gc=False, rename="camel"):
    observed_generation: Int64 = 0
    replicas: Int32 = 0
    updated_replicas: Int32 = 0
    ready_replicas: Int32 = 0
    available_replicas: Int32 = 0
    unavailable_replicas: Int32 = 0
    terminating_replicas: Int32 = 0
    conditions: tuple[ObjectCondition, ...] = ()


class Deployment(Struct, frozen=True, gc=False, rename="camel"):
    metadata: AnnotatedMeta
    spec: DeploymentSpec = DeploymentSpec()
    status: DeploymentStatus = DeploymentStatus()


class StatefulSetSpec(Struct, frozen=True, gc=False, rename="camel"):
    replicas: Int32 = 1


class StatefulSetStatus(Struct, frozen=True, gc=False, rename="camel"):
    observed_generation: Int64 = 0
    replicas: Int32 = 0
    updated_replicas: Int32 = 0
    ready_replicas: Int32 = 0
    available_replicas: Int32 = 0


class StatefulSet(Struct, frozen=True, gc=False, rename="camel"):
    metadata: AnnotatedMeta
    spec: StatefulSetSpec = StatefulSetSpec()
    status: StatefulSetStatus = StatefulSetStatus()


class JobSpec(Struct, frozen=True, gc=False, rename="camel"):
    parallelism: Int32 = 1


class JobStatus(Struct, frozen=True, gc=False, rename="camel"):
    active: Int32 = 0
    ready: Int32 = 0
    succeeded: Int32 = 0
    conditions: tuple[ObjectCondition, ...] = ()


class Job(Struct, frozen=True, gc=False, rename="camel"):
    metadata: AnnotatedMeta
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


JOB_COMPLETE: Final = "Complete"
JOB_OVER: Final = (JOB_COMPLETE, "Failed")
"""Conditions after which a Job never creates pods again."""
JOB_ENDS: Final = (*JOB_OVER, "Suspended")
"""Conditions in which a Job creates no pods."""


def job_end_condition(conditions: Iterable[tuple[str, str]]) -> str:
    """Returns the condition of JOB_ENDS that is true, from (type, status) of the conditions; empty while it runs."""
    return next((kind for kind, status in conditions if kind in JOB_ENDS and status == "True"), "")


class ResourceQuota(Struct, frozen=True, gc=False, rename="camel"):
    metadata: AnnotatedMeta
    spec: ResourceQuotaSpec = ResourceQuotaSpec()
    status: ResourceQuotaStatus = ResourceQuotaStatus()


class PersistentVolumeClaim(Struct, frozen=True, gc=False, rename="camel"):
    metadata: AnnotatedMeta
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()


class PersistentVolume(Struct, frozen=True, gc=False, rename="camel"):
    metadata: Meta
    spec: VolumeSpec = VolumeSpec()


def is_object_name(text: object) -> bool:
    """Returns whether Kubernetes allows this name for an object. An allowed name is safe in the path of a request."""
    return isinstance(text, str) and _OBJECT_NAME.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Kind:
    group: str  # An empty text is the core group.
    version: str
    plural: str
    type: type[Any]
    namespaced: bool = True
    metadata_only: bool = False  # Lists and watches ask for PartialObjectMetadata.

    def path(self, namespace: str = "", name: str = "", subresource: Subresource = "") -> str:
        """Returns the path of a request. Without a namespace: all namespaces, or a cluster-wide object."""
        if any(part in (".", "..") for part in (namespace, name)):
            raise ValueError(f"namespace {namespace!r}, name {name!r}: expected names, not a path")
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        place = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
        one = f"/{quote(name, safe='')}" if name else ""
        return f"{root}{place}/{self.plural}{one}" + (f"/{subresource}" if subresource else "")

    def accept_header(self, suffix: str = "") -> str:
        if not self.metadata_only:
            return JSON
        return f"{JSON};as=PartialObjectMetadata{suffix};g=meta.k8s.io;v=v1"

    def namespace_and_name(self, manifest: Manifest) -> tuple[str, str]:
        """Returns namespace and name. Raises ValueError when the namespace is missing, or is there and must not be."""
        metadata = manifest["metadata"]
        namespace: str = metadata.get("namespace", "")
        if bool(namespace) != self.namespaced:
            raise ValueError(f"{self.plural} {metadata['name']}: {namespace=}, expected {self.namespaced=}")
        return namespace, metadata["name"]


NODES = Kind("", "v1", "nodes", Node, namespaced=False)
NAMESPACES = Kind("", "v1", "namespaces", AnyObject, namespaced=False)
PODS = Kind("", "v1", "pods", Pod)
CONFIG_MAPS = Kind("", "v1", "configmaps", AnyObject)
SECRETS = Kind("", "v1", "secrets", AnyObject, metadata_only=True)
SERVICES = Kind("", "v1", "services", AnyObject)
SERVICE_ACCOUNTS = Kind("", "v1", "serviceaccounts", AnyObject)
PRIORITY_CLASSES = Kind("scheduling.k8s.io", "v1", "priorityclasses", AnyObject, namespaced=False)
RUNTIME_CLASSES = Kind("node.k8s.io", "v1", "runtimeclasses", AnyObject, namespaced=False)
RESOURCE_QUOTAS = Kind("", "v1", "resourcequotas", ResourceQuota)
VOLUME_CLAIMS = Kind("", "v1", "persistentvolumeclaims", PersistentVolumeClaim)
VOLUMES = Kind("", "v1", "persistentvolumes", PersistentVolume, namespaced=False)
LEASES = Kind("coordination.k8s.io", "v1", "leases", AnyObject)
POD_DISRUPTION_BUDGETS = Kind("policy", "v1", "poddisruptionbudgets", AnyObject)
HORIZONTAL_POD_AUTOSCALERS = Kind("autoscaling", "v2", "horizontalpodautoscalers", AnyObject)
DEPLOYMENTS = Kind("apps", "v1", "deployments", Deployment)
STATEFULSETS = Kind("apps", "v1", "statefulsets", StatefulSet)
JOBS = Kind("batch", "v1", "jobs", Job)
REPLICASETS = Kind("apps", "v1", "replicasets", ReplicaSet, metadata_only=True)


def selector_params(label_selector: str, field_selector: str) -> dict[str, str]:
    given = {"labelSelector": label_selector, "fieldSelector": field_selector}
    return {key: value for key, value in given.items() if value}


ABSENT: Final = "1"
"""A resourceVersion that no object has, since etcd's first write is 2. An apply with it creates the object, or
conflicts with one that exists. After such an apply, and unlike after a POST, a later apply removes the fields that it
leaves out."""


def manifest_at_version(manifest: Manifest, uid: str, resource_version: str) -> Manifest:
    """Returns a manifest with this uid and resourceVersion. The server then compares both with its object."""
    known = {"uid": uid, "resourceVersion": resource_version}
    metadata = manifest.get("metadata") or {}
    return manifest | {"metadata": metadata | {key: value for key, value in known.items() if value}}


def delete_options(uid: str, resource_version: str, grace_seconds: int | None = None) -> Manifest:
    """Returns the body of a delete. grace_seconds: of a pod; None means the pod's own."""
    preconditions = {"uid": uid, "resourceVersion": resource_version}
    return {
        **({} if grace_seconds is None else {"gracePeriodSeconds": grace_seconds}),
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": "Background",
        "preconditions": {key: value for key, value in preconditions.items() if value},
    }


@lru_cache(maxsize=256)
def object_decoder(kind: Kind) -> json.Decoder[Any]:
    return json.Decoder(kind.type)


NODE_LEASES: Final = "kube-node-lease"
"""The namespace in which each node has its Lease."""


def node_lease(node: str, node_uid: str, holder: str, duration_seconds: int, renewed_at: datetime) -> Manifest:
    """Returns the Lease that is a node's heartbeat, as a kubelet writes it. It is deleted with its node.

    Raises ValueError for a time without a zone.
    """
    if renewed_at.tzinfo is None:
        raise ValueError(f"renewed_at {renewed_at}: expected a time with its zone")
    owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node_uid}
    renewed = renewed_at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": node, "namespace": NODE_LEASES, "ownerReferences": [owner]},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": duration_seconds, "renewTime": renewed},
    }


ANY_HOST_IP: Final = "0.0.0.0"

RESIZE_PENDING: Final = "PodResizePending"

HostPort = tuple[str, str, int]


def pod_requests(spec: PodSpec, status: PodStatus | None = None) -> dict[str, int]:
    """Returns the amounts that the kube-scheduler subtracts from a node for a pod: cpu in thousandths, others in units.

    The sum is exact and rounded once, as in the scheduler. The pod's own place (`pods`: 1) is not in it.
    status: of a pod on a node. During a resize in place, the largest of the requested, actual and allocated amounts
    counts.
    """
    running = _running_pod(spec, status) if status is not None else None
    nanos: dict[str, int] = {}
    for container in spec.containers:
        _add_amounts(nanos, _effective_requests(container, running))
    sidecars: dict[str, int] = {}
    highest: dict[str, int] = {}
    for container in spec.init_containers:
        # A sidecar ("Always") runs beside all later containers. Any other one runs alone with the sidecars before it.
        if container.restart_policy == "Always":
            own = _effective_requests(container, running)
            _add_amounts(nanos, own)
            _add_amounts(sidecars, own)
            _raise_to_floor(highest, {name: sidecars[name] for name in own})  # Other resources do not change.
        else:
            own = _sum_nanos((container.resources.requests,))
            _raise_to_floor(highest, {name: amount + sidecars.get(name, 0) for name, amount in own.items()})
    _raise_to_floor(nanos, highest)
    if spec.resources is not None:
        _apply_pod_level_requests(nanos, spec.resources, running)
    _add_amounts(nanos, _sum_nanos((spec.overhead,)))
    return {name: units_of_nanos(amount, milli=name == "cpu", source=name) for name, amount in nanos.items()}


def pod_requests_or_none(spec: PodSpec, status: PodStatus | None = None) -> dict[str, int] | None:
    """Returns the result of pod_requests; None for amounts beyond 64 bits, which an API server accepts."""
    try:
        return pod_requests(spec, status)
    except ValueError:
        return None


def host_ports(spec: PodSpec) -> frozenset[HostPort]:
    """Returns (address, protocol, port) that the pod takes on its node. 0.0.0.0 clashes with every address."""
    lasting = (*spec.containers, *(c for c in spec.init_containers if c.restart_policy == "Always"))
    return frozenset(
        (port.host_ip or ANY_HOST_IP, port.protocol or "TCP", taken)
        for container in lasting
        for port in container.ports
        # In the host's network the API server fills in hostPort; a template that it has not seen yet has none.
        if (taken := port.host_port or (port.container_port if spec.host_network else 0)) > 0
    )


class _RunningPod(NamedTuple):
    """A pod on a node. infeasible: the node can never do the requested resize, so the request does not count."""

    containers: Mapping[str, ContainerStatus]
    status: PodStatus
    infeasible: bool


def _running_pod(spec: PodSpec, status: PodStatus) -> _RunningPod | None:
    """Returns the reported state of a pod on a node; None if its amounts cannot differ from its requests."""
    reported = (*status.container_statuses, *status.init_container_statuses)
    if spec.resources is None and not any(entry.resources for entry in reported):
        return None
    pending = next((condition for condition in status.conditions if condition.type == RESIZE_PENDING), None)
    infeasible = pending is not None and pending.reason == "Infeasible"
    return _RunningPod({entry.name: entry for entry in reported}, status, infeasible)


def _effective_requests(container: Container, running: _RunningPod | None) -> dict[str, int]:
    asked = container.resources.requests
    entry = running and running.containers.get(container.name)
    if not running or not entry or entry.resources is None:
        return _sum_nanos((asked,))
    if entry.resources.requests == asked and entry.allocated_resources in (asked, {}):  # The usual case, and faster.
        return _sum_nanos((asked,))
    return _largest_amounts(running, asked, entry.resources.requests, entry.allocated_resources)


def _largest_amounts(
    running: _RunningPod,
    asked: Mapping[str, Quantity],
    actual: Mapping[str, Quantity],
    promised: Mapping[str, Quantity],
) -> dict[str, int]:
    most: dict[str, int] = {}
    for amounts in (actual, promised) if running.infeasible else (asked, actual, promised):
        _raise_to_floor(most, _sum_nanos((amounts,)))
    return most


def _apply_pod_level_requests(nanos: dict[str, int], own: Resources, running: _RunningPod | None) -> None:
    """Replaces the sum over the containers by the requests of the pod as a whole."""
    amounts = _sum_nanos((own.requests,))
    status = running and running.status
    if running and status and status.resources is not None:
        most = _largest_amounts(running, own.requests, status.resources.requests, status.allocated_resources)
        amounts = {name: most.get(name, 0) for name in amounts}
    nanos.update(
        (name, amount) for name, amount in amounts.items() if name in ("cpu", "memory") or name.startswith("hugepages-")
    )


def _sum_nanos(lists: Iterable[Mapping[str, Quantity]]) -> dict[str, int]:
    nanos: dict[str, int] = {}
    for requests in lists:
        for name, amount in requests.items():
            nanos[name] = nanos.get(name, 0) + nanos_of(amount)
    return nanos


def _add_amounts(into: dict[str, int], more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        into[name] = into.get(name, 0) + amount


def _raise_to_floor(into: dict[str, int], floor: Mapping[str, int]) -> None:
    for name, amount in floor.items():
        if name not in into or into[name] < amount:
            into[name] = amount
