"""The part of api.py that changes workloads, or says what a change would do."""

from dataclasses import dataclass

from spillway.api_workloads import PlacementReply
from spillway.model_basics import ClusterInput


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
class CapacityRequest:
    manifests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CapacityReply:
    clusters: tuple[ClusterInput, ...]
    unmodelled: tuple[str, ...]
    stale: bool


@dataclass(frozen=True, slots=True)
class ListOrphansRequest:
    namespace: str = ""


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
class RecoverFleetRequest:
    """confirmed: without it nothing is done, and the reply says what would be."""

    fleet_before: str
    confirmed: bool = False


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
