"""The part of api.py for requests that show workloads and watch them."""

from dataclasses import dataclass

from spillway.events_answered import DecisionRecorded, StatusDetails
from spillway.model_basics import ClusterInput, ObjectReference


@dataclass(frozen=True, slots=True)
class GetRequest:
    """Asks for a workload. history: the number of its past decisions to add, the newest ones.

    history_from: of these, only this decision and older ones. Empty: all.
    """

    namespace: str
    name: str
    history: int = 0
    history_from: str = ""


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
    """One cluster's part of a placement.

    replicas: all replicas for this cluster. replicas_lost and replicas_leaving of them do not count as placed.
    missing: objects that the template names and the cluster lacks, as far as it has reported. No new pod starts there
    without them, and replicas for this cluster wait.
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
    """The placement of a workload.

    inputs: for each cluster, how many replicas it could take and the limit for that. Empty if no division was made, or
    if the answer repeats an earlier one.
    warnings: fields of the request without effect, and clusters that may refuse its pods because they did not answer.
    scaled_by: kind/name of the scale policy that sets the replicas; empty when the user who declares the workload does.
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
    """The status of a workload in one cluster.

    current: True if the status is about the placement's present version for the cluster, not an earlier one.
    missing: for the state DependencyMissing, the objects that the cluster lacks. details: as in WorkloadObserved.
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
    """A workload. history: newest first. gone: True if it is no longer declared; then only name and history are set.

    history_next: the history_from of a request for the decisions that this answer has no room for. Empty: none is left.
    """

    placement: PlacementReply
    kind: str
    statuses: tuple[ClusterStatus, ...]
    history: tuple[DecisionRecorded, ...]
    gone: bool = False
    history_next: str = ""


@dataclass(frozen=True, slots=True)
class ListReply:
    workloads: tuple[WorkloadReply, ...]
    next_page_token: str
    stale: bool


@dataclass(frozen=True, slots=True)
class WatchReply:
    """A change of a workload. workload: None when the workload is gone."""

    position: str
    namespace: str
    name: str
    gone: bool
    workload: WorkloadReply | None
