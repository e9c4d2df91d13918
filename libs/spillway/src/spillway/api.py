"""What is asked of the planner over gRPC, as values; proto/spillway/v1/planner.proto says what each call means."""

from collections.abc import Mapping
from dataclasses import dataclass

from spillway.api_clusters import ClusterMovesReply, ClusterReply, ListClustersReply, WorkloadLeft
from spillway.api_questions import (
    ExplainedChange,
    ExplainedCluster,
    ExplainedNode,
    ExplainReply,
    ExplainRequest,
    ExportedCount,
    ExportedEvent,
    ExportReply,
    ExportRequest,
    HeldBack,
    NodeFilter,
    NodeReason,
)
from spillway.events import DecisionRecorded, StatusDetails
from spillway.model import ClusterInput, NodeGroup, ObjectReference

__all__ = [
    "ClusterMovesReply",
    "ClusterReply",
    "ExplainReply",
    "ExplainRequest",
    "ExplainedChange",
    "ExplainedCluster",
    "ExplainedNode",
    "ExportReply",
    "ExportRequest",
    "ExportedCount",
    "ExportedEvent",
    "HeldBack",
    "ListClustersReply",
    "NodeFilter",
    "NodeReason",
    "WorkloadLeft",
]


class RequestError(Exception):
    """A request that cannot be done. Nothing was changed.

    code: the name of a gRPC status (INVALID_ARGUMENT, NOT_FOUND, FAILED_PRECONDITION, …).
    The text names the field, the value and what was expected, and is for people. reason: for programs, where the code
    alone does not say what to do; a word of reasons.py, empty where it does. details: to the reason.
    """

    def __init__(self, code: str, text: str, reason: str = "", details: Mapping[str, str] | None = None) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.reason = reason
        self.details = dict(details or {})

    def in_words(self, text: str) -> "RequestError":
        """The same refusal, said otherwise."""
        return RequestError(self.code, text, self.reason, self.details)


def invalid(field: str, value: object, expected: str) -> RequestError:
    """An INVALID_ARGUMENT in the one form that all of them have; long values are cut."""
    shown = repr(value)
    return RequestError(
        "INVALID_ARGUMENT", f"{field}: {shown[:120]}{'…' if len(shown) > 120 else ''}: expected {expected}"
    )


@dataclass(frozen=True, slots=True)
class ApplyRequest:
    manifests: tuple[str, ...]
    idempotency_key: str = ""


@dataclass(frozen=True, slots=True)
class ScaleRequest:
    namespace: str
    name: str
    replicas: int
    idempotency_key: str = ""


@dataclass(frozen=True, slots=True)
class BatchItem:
    """One of a batch: exactly one of the two."""

    apply: ApplyRequest | None = None
    scale: ScaleRequest | None = None


@dataclass(frozen=True, slots=True)
class PlanBatchRequest:
    items: tuple[BatchItem, ...]


@dataclass(frozen=True, slots=True)
class DeleteRequest:
    namespace: str
    name: str
    idempotency_key: str = ""


@dataclass(frozen=True, slots=True)
class MigrateRequest:
    """replicas: how many; 0 is all. from_cluster: empty is every other cluster, the last tier of the policy first."""

    namespace: str
    name: str
    to_cluster: str
    from_cluster: str = ""
    replicas: int = 0
    idempotency_key: str = ""


@dataclass(frozen=True, slots=True)
class AdoptRequest:
    """kind: deployment. policy: a PlacementPolicy as JSON or YAML, empty for the default one."""

    namespace: str
    name: str
    kind: str
    clusters: tuple[str, ...]
    policy: str = ""
    idempotency_key: str = ""


@dataclass(frozen=True, slots=True)
class DisownRequest:
    namespace: str
    name: str
    idempotency_key: str = ""


@dataclass(frozen=True, slots=True)
class ListOrphansRequest:
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class RecoverFleetRequest:
    """confirmed: without it nothing is done, and the reply says what would be."""

    fleet_before: str
    confirmed: bool = False


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
class CapacityRequest:
    manifests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JoinClusterRequest:
    """known_tier: refuse a tier that no cluster of the fleet has and no policy names."""

    name: str
    credential: str
    endpoint: str = ""
    tier: str = ""
    region: str = ""
    zone: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    node_groups: tuple[NodeGroup, ...] = ()
    known_tier: bool = False


@dataclass(frozen=True, slots=True)
class ListClustersRequest:
    pass


@dataclass(frozen=True, slots=True)
class ListNodesRequest:
    """page_size 0: the planner's own; page_token: of the page before."""

    cluster: str
    page_size: int = 0
    page_token: str = ""


@dataclass(frozen=True, slots=True)
class SetClusterPhaseRequest:
    """phase: Active, Cordoned, Draining or Leaving (events.py)."""

    name: str
    phase: str


@dataclass(frozen=True, slots=True)
class LeaveClusterRequest:
    """lost: the cluster will not return; what is listed there is given up."""

    name: str
    lost: bool = False


@dataclass(frozen=True, slots=True)
class FreezeRequest:
    """scope: fleet, cluster/<name> or workload/<namespace>/<name>."""

    scope: str
    reason: str


@dataclass(frozen=True, slots=True)
class UnfreezeRequest:
    scope: str


@dataclass(frozen=True, slots=True)
class ConfirmRequest:
    """scope: <cause>/<cluster>, as ListBrakes names it."""

    scope: str


@dataclass(frozen=True, slots=True)
class ListBrakesRequest:
    pass


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
class BatchAnswer:
    """code: the name of a gRPC status. OK with a placement; else error is the text of a RequestError, reason its
    reason."""

    code: str
    error: str
    placement: PlacementReply | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PlanBatchReply:
    """answers: in the order of the items."""

    answers: tuple[BatchAnswer, ...]


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
class Orphan:
    """An object of this fleet that no placement lists. version: of the placement that last wrote it.

    kind: of a workload, or ConfigMap or Service; those, and others of one name, have neither counts nor version here.
    """

    cluster: str
    namespace: str
    name: str
    replicas: int
    ready: int
    version: str
    kind: str = ""


@dataclass(frozen=True, slots=True)
class ListOrphansReply:
    orphans: tuple[Orphan, ...]
    stale: bool


@dataclass(frozen=True, slots=True)
class RecoveredWorkload:
    """state: Found, Recovering (declared, being taken over) or Refused. replicas: by cluster.

    message: why it is refused, or what its policies will change once it is taken over.
    """

    namespace: str
    name: str
    state: str
    message: str
    replicas: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class RecoverFleetReply:
    """remaining: found, and not declared in this call: ask again. notes: what else bears the label, for people."""

    fleet_before: str
    workloads: tuple[RecoveredWorkload, ...]
    remaining: int
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WatchReply:
    """workload is None when the workload is gone."""

    position: str
    namespace: str
    name: str
    gone: bool
    workload: WorkloadReply | None


@dataclass(frozen=True, slots=True)
class CapacityReply:
    clusters: tuple[ClusterInput, ...]
    unmodelled: tuple[str, ...]
    stale: bool


@dataclass(frozen=True, slots=True)
class Brake:
    """frozen: whether the brake is on. replicas: what it holds back now. at_ms: wall time at which it was set."""

    scope: str
    frozen: bool
    reason: str
    by: str
    at_ms: int
    replicas: int


@dataclass(frozen=True, slots=True)
class Confirmation:
    """replicas: of the fleet's fleet_replicas, those that the cause would still move. by: who gave it."""

    scope: str
    cause: str
    cluster: str
    replicas: int
    fleet_replicas: int
    given: bool
    by: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class ListBrakesReply:
    """moves_per_minute: the budget of moves that nobody asked for by name; over_budget: replicas that wait for it.

    moved_last_minute: those that it let go, as far as the planner that is active now knows.
    """

    brakes: tuple[Brake, ...]
    confirmations: tuple[Confirmation, ...]
    moves_per_minute: float
    over_budget: int
    stale: bool
    moved_last_minute: int = 0


@dataclass(frozen=True, slots=True)
class ListedNode:
    """ready: tainted neither not-ready nor unreachable. loan: empty, lent or recalled. taints: as kubectl shows them.

    stands_for: of a virtual node, cluster/node of the one that is lent, as its labels name it; of any other empty.
    """

    name: str
    ready: bool
    cordoned: bool
    loan: str
    stands_for: str
    allocatable: tuple[tuple[str, int], ...]
    requested: tuple[tuple[str, int], ...]
    taints: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ListNodesReply:
    """In the order of their names; age_ms: of what is known of the cluster, -1 when nothing ever was."""

    nodes: tuple[ListedNode, ...]
    next_page_token: str
    age_ms: int
    stale: bool
