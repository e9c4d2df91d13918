"""The part of api.py that shows workloads and follows them."""

from dataclasses import dataclass

from spillway.events_answered import DecisionRecorded, StatusDetails
from spillway.model_basics import ClusterInput, ObjectReference


@dataclass(frozen=True, slots=True)
class GetRequest:
    namespace: str
    name: str
    history: int = 0


@dataclass(frozen=True, slots=True)
class ListRequest:
    namespace: str = ""
    page_size: int = 0
    page_token: str = ""


@dataclass(frozen=True, slots=True)
class WatchRequest:
    namespace: str = ""
    name: str = ""
    position: str = ""


@dataclass(frozen=True, slots=True)
class PlacedPart:
    """replicas: all that the cluster is to run; replicas_lost and replicas_leaving of them do not count as placed.

    missing: what the template names and the cluster lacks, as far as it has said: no new pod starts there, and replicas
    wait that it would have.
    """

    cluster: str
    tier: str
    replicas: int
    replicas_new: int
    removing: bool
    replicas_lost: int = 0
    replicas_leaving: int = 0
    adopting: bool = False
    disowning: bool = False
    missing: tuple[ObjectReference, ...] = ()


@dataclass(frozen=True, slots=True)
class PlacementReply:
    """inputs: per cluster what it could take and the limit that bound it, empty when no division was made, and where
    the answer is one that was given before.

    warnings: what of the request has no effect, and where its pods are not known as the cluster will admit them.
    scaled_by: kind/name of the policy that says how many replicas; empty where who declares it does.
    """

    namespace: str
    name: str
    generation: int
    replicas: int
    placed: int
    unplaced: int
    waiting_for: str
    parts: tuple[PlacedPart, ...]
    inputs: tuple[ClusterInput, ...]
    unmodelled: tuple[str, ...]
    deleting: bool
    stale: bool
    disowning: bool = False
    warnings: tuple[str, ...] = ()
    scaled_by: str = ""


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """current: whether this is of the placement's own version for the cluster, not of an earlier one. missing: of the
    state DependencyMissing, what the cluster lacks. details: as in WorkloadObserved.
    """

    cluster: str
    state: str
    message: str
    spec_replicas: int
    replicas: int
    updated: int
    ready: int
    available: int
    unschedulable: int
    unschedulable_reason: str
    current: bool = True
    missing: tuple[ObjectReference, ...] = ()
    details: StatusDetails | None = None


@dataclass(frozen=True, slots=True)
class WorkloadReply:
    """history: newest first. gone: it is not declared any more, and nothing but its name and its history is said."""

    placement: PlacementReply
    kind: str
    statuses: tuple[ClusterStatus, ...]
    history: tuple[DecisionRecorded, ...]
    gone: bool = False


@dataclass(frozen=True, slots=True)
class ListReply:
    workloads: tuple[WorkloadReply, ...]
    next_page_token: str
    stale: bool


@dataclass(frozen=True, slots=True)
class WatchReply:
    """workload is None when the workload is gone."""

    position: str
    namespace: str
    name: str
    gone: bool
    workload: WorkloadReply | None
