"""Every event, its topic and its key: the language of the platform. A fact in the past tense, one emitter each."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from spillway.model import (
    Answered,
    ClusterInput,
    EarlierTemplate,
    Generation,
    NodeGroup,
    ObjectReference,
    Part,
    Policy,
    Shape,
    WorkloadFacts,
)


@dataclass(frozen=True, slots=True)
class FleetFormed:
    """The topics were created: this log is this fleet's. Written once, by the topics command."""

    fleet: str


@dataclass(frozen=True, slots=True)
class TurnTaken:
    """An instance took its turn; the offset of this record is the epoch. cluster is empty for a standby's turn."""

    service: str
    cluster: str
    instance: str


PHASE_ACTIVE: Final = "Active"
PHASE_CORDONED: Final = "Cordoned"
PHASE_DRAINING: Final = "Draining"
PHASE_LEAVING: Final = "Leaving"
PHASE_LOST: Final = "Lost"


@dataclass(frozen=True, slots=True)
class ClusterJoined:
    """A cluster belongs to the fleet. credential names a file in the services' folder; it is never the content.

    phase: Active takes replicas; Cordoned no new ones; Draining hands over those it has; Leaving does too, and leaves
    when none is left; Lost will not return: what is listed there is given up.
    """

    cluster: str
    credential: str
    endpoint: str
    tier: str
    region: str
    zone: str
    labels: tuple[tuple[str, str], ...]
    node_groups: tuple[NodeGroup, ...]
    phase: str = PHASE_ACTIVE


@dataclass(frozen=True, slots=True)
class ClusterLeft:
    """A cluster no longer belongs to the fleet."""

    cluster: str


@dataclass(frozen=True, slots=True)
class CapacityReported:
    """A whole block of a cluster's nodes.

    index of count blocks; a new epoch takes effect when all its blocks are there.
    sequence: the last change that this block contains; as_of_offset: from where in the cluster's partition of
    capacity-changes a reader goes on. columns: wire.pack_columns, compressed. facts: of the workloads, in block 0 only.
    """

    cluster: str
    epoch: int
    index: int
    count: int
    sequence: int
    as_of_offset: int
    columns: bytes
    facts: tuple[WorkloadFacts, ...]


@dataclass(frozen=True, slots=True)
class CapacityChanged:
    """Rows of a block that changed, or a heartbeat of block 0.

    sequence: one more than the last of this (cluster, epoch, block). age_ms: of the cluster's watermark when this was
    sent, −1 before the first answered probe. trouble: why the cluster cannot be followed now, empty when it can.
    """

    cluster: str
    epoch: int
    index: int
    sequence: int
    age_ms: int
    columns: bytes
    removed: tuple[str, ...]
    facts: tuple[WorkloadFacts, ...]
    facts_removed: tuple[tuple[str, str], ...]
    trouble: str


@dataclass(frozen=True, slots=True)
class PodsUnschedulable:
    """Pods of one group (their controller) that the member's scheduler could not place, and what it said."""

    cluster: str
    group: str
    epoch: int
    sequence: int
    workload: str
    pods: int
    reason: str


@dataclass(frozen=True, slots=True)
class PodsScheduled:
    """No pod of this group is unschedulable any more."""

    cluster: str
    group: str
    epoch: int
    sequence: int


@dataclass(frozen=True, slots=True)
class WorkloadDeclared:
    """What a user asked for. manifest: the object as JSON, without replicas of ours in it.

    generation: raised by each change of template, replicas or policy; template_generation: of the template alone.
    rolling_from: the shapes of templates that may still have pods. answered: the last idempotency keys.
    earlier_templates: what clusters still hold whose turn at the new template has not come.
    deleting: the objects are to go. releasing: our marks on them are to go, the objects stay.
    """

    namespace: str
    name: str
    kind: str
    generation: int
    template_generation: int
    manifest: bytes
    replicas: int
    policy: Policy
    dependencies: tuple[ObjectReference, ...]
    rolling_from: tuple[Shape, ...]
    answered: tuple[Answered, ...]
    deleting: bool
    earlier_templates: tuple[EarlierTemplate, ...] = ()
    releasing: bool = False


@dataclass(frozen=True, slots=True)
class DependencyDeclared:
    """An object that goes where its workload goes, before it. workload: namespace/name of its only owner."""

    kind: str
    namespace: str
    name: str
    workload: str
    workload_generation: int
    manifest: bytes


@dataclass(frozen=True, slots=True)
class PlacementDecided:
    """Where the replicas of a workload go: every cluster that holds or may still hold the object.

    workload_generation: the declaration that a propagator must have before it acts.
    unplaced: replicas that wait; waiting_for: for people, what they wait for.
    """

    namespace: str
    name: str
    generation: Generation
    workload_generation: int
    parts: tuple[Part, ...]
    unplaced: int
    waiting_for: str


@dataclass(frozen=True, slots=True)
class CapacityNeeded:
    """Replicas that wait in this cluster for lent nodes, or for nodes that do not exist yet; 0 when none does."""

    namespace: str
    name: str
    cluster: str
    generation: Generation
    replicas_lent: int
    replicas_new: int


@dataclass(frozen=True, slots=True)
class DecisionRecorded:
    """What a placement was decided on. positions: (topic/partition, offset), the inputs read when deciding."""

    namespace: str
    name: str
    generation: Generation
    at_ms: int
    cause: str
    replicas: int
    unplaced: int
    inputs: tuple[ClusterInput, ...]
    positions: tuple[tuple[str, int], ...]
    settings: str
    code_version: str


@dataclass(frozen=True, slots=True)
class BrakeSet:
    """Nothing that nobody asked for by name is done in this scope: fleet, cluster/<name> or workload/<ns>/<name>."""

    scope: str
    reason: str
    by: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class BrakeReleased:
    """The brake of this scope is off."""

    scope: str
    by: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class ConfirmationAsked:
    """More than the fleet's bound would be moved: it waits until somebody confirms.

    scope: <cause>/<cluster>, cause one of Failover, Drain, Return. replicas: of fleet_replicas.
    """

    scope: str
    cause: str
    cluster: str
    replicas: int
    fleet_replicas: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class ConfirmationGiven:
    """What was asked may be done, until it is done or its cause is over (a tombstone of this scope)."""

    scope: str
    by: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class AdoptionAsked:
    """The owners of these clusters are to say what runs there under this name.

    fleet_before: with a fleet id and no name, all objects that bear its label (fleet recover). WorkloadFound answers,
    and names this generation.
    """

    generation: Generation
    namespace: str
    name: str
    clusters: tuple[str, ...]
    fleet_before: str


FOUND: Final = "Found"
FOUND_NOTHING: Final = "NotFound"
FOUND_REFUSED: Final = "Refused"


@dataclass(frozen=True, slots=True)
class WorkloadFound:
    """What a cluster has under a name that was asked for. Of a fleet: one per object, then one with no name.

    manifest: the object as JSON without what the server fills in; dependencies: the same of those that bear the
    fleet's label. version: of the placement that its annotation names. objects: in the nameless one, how many were
    found.
    """

    asked: Generation
    namespace: str
    name: str
    cluster: str
    state: str
    message: str
    uid: str
    manifest: bytes
    replicas: int
    version: Generation
    dependencies: tuple[bytes, ...]
    objects: int


STATE_PRESENT: Final = "Present"
STATE_ABSENT: Final = "Absent"
STATE_NOT_OWNED: Final = "NotOwned"
STATE_DEPENDENCY_MISSING: Final = "DependencyMissing"
STATE_REFUSED: Final = "Refused"
STATE_CONTESTED: Final = "ReplicasContested"
STATE_RELEASED: Final = "Released"
STATE_ORPHANED: Final = "Orphaned"
"""Our label, but no placement lists it: said for people, never acted on."""


@dataclass(frozen=True, slots=True)
class WorkloadObserved:
    """What a cluster shows of a workload's object.

    version: the placement version on the object, or the one that was tried when it is not Present.
    """

    namespace: str
    name: str
    cluster: str
    epoch: int
    sequence: int
    version: Generation
    state: str
    message: str
    spec_replicas: int
    replicas: int
    updated: int
    ready: int
    available: int


@dataclass(frozen=True, slots=True)
class DeadLettered:
    """A record that a reader could not read: the bytes, where they stood, and why."""

    topic: str
    partition: int
    offset: int
    reader: str
    reason: str
    key: str
    value: bytes


Event = (
    FleetFormed
    | TurnTaken
    | ClusterJoined
    | ClusterLeft
    | CapacityReported
    | CapacityChanged
    | PodsUnschedulable
    | PodsScheduled
    | WorkloadDeclared
    | DependencyDeclared
    | PlacementDecided
    | CapacityNeeded
    | DecisionRecorded
    | WorkloadObserved
    | BrakeSet
    | BrakeReleased
    | ConfirmationAsked
    | ConfirmationGiven
    | AdoptionAsked
    | WorkloadFound
    | DeadLettered
)

SCOPE_CLUSTER: Final = "cluster"
SCOPE_WORKLOAD: Final = "workload"
SCOPE_ONE: Final = "one"

DAY_MS: Final = 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic: its scope decides the number of partitions and by whose name a record is partitioned.

    retention_ms 0 keeps the last record per key (compacted). lag_ms: how long a record stays readable after a newer
    one of its key (min.compaction.lag). committed: only the planner's fenced transactions write it.
    """

    name: str
    scope: str
    retention_ms: int
    lag_ms: int
    committed: bool
    emitter: str
    readers: tuple[str, ...]

    @property
    def compacted(self) -> bool:
        return self.retention_ms == 0


def _topic(short: str, scope: str, kept: int, emitter: str, readers: str, committed: bool = False) -> Topic:
    lag_ms = 0 if kept else (DAY_MS if "planner" in readers.split() else 600_000)
    return Topic(f"spillway.{short}.v1", scope, kept, lag_ms, committed, emitter, tuple(readers.split()))


FLEET = _topic("fleet", SCOPE_ONE, 0, "topics", "snapshot planner propagator")
TURNS_PLANNER = _topic("turns.planner", SCOPE_ONE, 0, "planner", "planner", committed=True)
CLUSTERS = _topic("clusters", SCOPE_CLUSTER, 0, "planner", "snapshot planner propagator", committed=True)
CAPACITY = _topic("capacity", SCOPE_CLUSTER, 0, "snapshot", "planner snapshot")
CAPACITY_CHANGES = _topic("capacity-changes", SCOPE_CLUSTER, DAY_MS, "snapshot", "planner snapshot")
PENDING = _topic("pending", SCOPE_CLUSTER, 0, "snapshot", "planner snapshot")
WORKLOADS = _topic("workloads", SCOPE_WORKLOAD, 0, "planner", "planner propagator", committed=True)
DEPENDENCIES = _topic("dependencies", SCOPE_WORKLOAD, 0, "planner", "planner propagator", committed=True)
PLACEMENTS = _topic("placements", SCOPE_WORKLOAD, 0, "planner", "planner propagator", committed=True)
CAPACITY_NEEDED = _topic("capacity-needed", SCOPE_WORKLOAD, 0, "planner", "planner", committed=True)
DECISIONS = _topic("decisions", SCOPE_WORKLOAD, 7 * DAY_MS, "planner", "store", committed=True)
WORKLOAD_STATUS = _topic("workload-status", SCOPE_WORKLOAD, 0, "propagator", "planner propagator")
BRAKES = _topic("brakes", SCOPE_ONE, 0, "planner", "planner", committed=True)
ADOPTIONS = _topic("adoptions", SCOPE_WORKLOAD, DAY_MS, "planner", "propagator", committed=True)
FOUND_WORKLOADS = _topic("found-workloads", SCOPE_WORKLOAD, DAY_MS, "propagator", "planner")
DEAD_LETTERS = _topic("dead-letters", SCOPE_ONE, 7 * DAY_MS, "every reader", "operators")

TOPICS: Final = (
    FLEET,
    TURNS_PLANNER,
    CLUSTERS,
    CAPACITY,
    CAPACITY_CHANGES,
    PENDING,
    WORKLOADS,
    DEPENDENCIES,
    PLACEMENTS,
    CAPACITY_NEEDED,
    DECISIONS,
    WORKLOAD_STATUS,
    BRAKES,
    ADOPTIONS,
    FOUND_WORKLOADS,
    DEAD_LETTERS,
)

TOPIC_BY_NAME: Final = {topic.name: topic for topic in TOPICS}

# A claim goes into its owner's own stream, in the partition of the cluster's name: a reader of that stream meets the
# claim before the first record of the new epoch, and the offset orders all claims of one cluster.
CLAIM_TOPIC_BY_SERVICE: Final = {"snapshot": CAPACITY_CHANGES, "propagator": WORKLOAD_STATUS, "planner": TURNS_PLANNER}


@dataclass(frozen=True, slots=True)
class Address:
    """Where a record goes: its key, and the name whose hash chooses the partition."""

    topic: Topic
    key: str
    partition_by: str


@dataclass(frozen=True, slots=True)
class Tombstone:
    """Says of a compacted topic's key that nothing is known any more; never by itself a reason to delete anything."""

    address: Address


def workload_key(namespace: str, name: str) -> str:
    return f"{namespace}/{name}"


def capacity_address(cluster: str, index: int) -> Address:
    return Address(CAPACITY, f"{cluster}/{index}", cluster)


def pending_address(cluster: str, group: str) -> Address:
    return Address(PENDING, f"{cluster}/{group}", cluster)


def status_address(namespace: str, name: str, cluster: str) -> Address:
    return Address(WORKLOAD_STATUS, f"{namespace}/{name}/{cluster}", workload_key(namespace, name))


def dependency_address(workload: str, kind: str, namespace: str, name: str) -> Address:
    return Address(DEPENDENCIES, f"{kind}/{namespace}/{name}", workload)


def needed_address(namespace: str, name: str, cluster: str) -> Address:
    return Address(CAPACITY_NEEDED, f"{namespace}/{name}/{cluster}", workload_key(namespace, name))


def brake_address(scope: str) -> Address:
    return Address(BRAKES, scope, scope)


def workload_address(topic: Topic, namespace: str, name: str) -> Address:
    key = workload_key(namespace, name)
    return Address(topic, key, key)


def _turn_address(event: TurnTaken) -> Address:
    key = event.cluster or event.service
    return Address(CLAIM_TOPIC_BY_SERVICE[event.service], key, key)


_ADDRESS: Final[dict[type, Callable[..., Address]]] = {
    FleetFormed: lambda e: Address(FLEET, "fleet", "fleet"),
    TurnTaken: _turn_address,
    ClusterJoined: lambda e: Address(CLUSTERS, e.cluster, e.cluster),
    ClusterLeft: lambda e: Address(CLUSTERS, e.cluster, e.cluster),
    CapacityReported: lambda e: capacity_address(e.cluster, e.index),
    CapacityChanged: lambda e: Address(CAPACITY_CHANGES, e.cluster, e.cluster),
    PodsUnschedulable: lambda e: pending_address(e.cluster, e.group),
    PodsScheduled: lambda e: pending_address(e.cluster, e.group),
    WorkloadDeclared: lambda e: workload_address(WORKLOADS, e.namespace, e.name),
    DependencyDeclared: lambda e: dependency_address(e.workload, e.kind, e.namespace, e.name),
    PlacementDecided: lambda e: workload_address(PLACEMENTS, e.namespace, e.name),
    CapacityNeeded: lambda e: needed_address(e.namespace, e.name, e.cluster),
    DecisionRecorded: lambda e: workload_address(DECISIONS, e.namespace, e.name),
    WorkloadObserved: lambda e: status_address(e.namespace, e.name, e.cluster),
    BrakeSet: lambda e: brake_address(e.scope),
    BrakeReleased: lambda e: brake_address(e.scope),
    ConfirmationAsked: lambda e: brake_address(e.scope),
    ConfirmationGiven: lambda e: brake_address(e.scope),
    AdoptionAsked: lambda e: workload_address(ADOPTIONS, e.namespace, e.name),
    WorkloadFound: lambda e: Address(
        FOUND_WORKLOADS, f"{e.namespace}/{e.name}/{e.cluster}", workload_key(e.namespace, e.name)
    ),
    DeadLettered: lambda e: Address(DEAD_LETTERS, f"{e.topic}/{e.partition}/{e.offset}/{e.reader}", e.topic),
}

EVENT_TYPES: Final = tuple(_ADDRESS)


def address_of(event: Event) -> Address:
    """The topic, key and partitioning name of an event."""
    return _ADDRESS[type(event)](event)


EVENTS_BY_TOPIC: Final = {
    FLEET.name: (FleetFormed,),
    TURNS_PLANNER.name: (TurnTaken,),
    CLUSTERS.name: (ClusterJoined, ClusterLeft),
    CAPACITY.name: (CapacityReported,),
    CAPACITY_CHANGES.name: (CapacityChanged, TurnTaken),
    PENDING.name: (PodsUnschedulable, PodsScheduled),
    WORKLOADS.name: (WorkloadDeclared,),
    DEPENDENCIES.name: (DependencyDeclared,),
    PLACEMENTS.name: (PlacementDecided,),
    CAPACITY_NEEDED.name: (CapacityNeeded,),
    DECISIONS.name: (DecisionRecorded,),
    WORKLOAD_STATUS.name: (WorkloadObserved, TurnTaken),
    BRAKES.name: (BrakeSet, BrakeReleased, ConfirmationAsked, ConfirmationGiven),
    ADOPTIONS.name: (AdoptionAsked,),
    FOUND_WORKLOADS.name: (WorkloadFound,),
    DEAD_LETTERS.name: (DeadLettered,),
}
