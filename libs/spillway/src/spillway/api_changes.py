"""The part of api.py for requests that change workloads, or that ask what a change would do."""

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
    """One item of a batch. Exactly one of the two fields is set."""

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
    """Moves replicas of a workload to a cluster.

    replicas: the number to move; 0: all.
    from_cluster: the cluster to take them from; empty: all others, beginning with the last tier of the policy.
    """

    namespace: str
    name: str
    to_cluster: str
    from_cluster: str = ""
    replicas: int = 0
    idempotency_key: str = ""


@dataclass(frozen=True, slots=True)
class AdoptRequest:
    """Takes over a workload as it runs.

    kind: only deployment can be adopted so far. policy: a PlacementPolicy as JSON or YAML; empty: the default policy.
    """

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
    """The answer to one item of a batch.

    code: the name of a gRPC status. With OK there is a placement. Otherwise error and reason are the text and reason
    of a RequestError.
    """

    code: str
    error: str
    placement: PlacementReply | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PlanBatchReply:
    """The answers to a batch, in the order of its items."""

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
    """An object of this fleet that no placement lists. version: the placement version that last wrote it.

    kind: a kind of workload, ConfigMap or Service. replicas, ready and version are set for at most one object of a
    name, which is a workload. They are not set for its ConfigMaps and Services, nor for further kinds of that name.
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
    """Takes over all objects of a former fleet. Without `confirmed` nothing changes, and the reply is a plan."""

    fleet_before: str
    confirmed: bool = False


@dataclass(frozen=True, slots=True)
class RecoveredWorkload:
    """One workload of a former fleet.

    state: Found, Recovering (declared, being taken over) or Refused. replicas: by cluster.
    message: why it is refused, or the changes that its policies will make once it is taken over.
    """

    namespace: str
    name: str
    state: str
    message: str
    replicas: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class RecoverFleetReply:
    """The workloads of a former fleet.

    remaining: how many workloads were found but not declared in this call. The caller must call again for them.
    notes: texts for the user about other objects with the fleet's label.
    """

    fleet_before: str
    workloads: tuple[RecoveredWorkload, ...]
    remaining: int
    notes: tuple[str, ...]
