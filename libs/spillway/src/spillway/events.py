"""The events of clusters, workloads and placements.

An event is a fact, so its name is in the past tense; PodsUnschedulable bears Kubernetes' word for the state. One
service emits it; ARCHITECTURE.md names the exceptions. addresses.py says on which topic and under which key each event
goes. The events of scaling and of lending are in events_scaling.py and events_lending.py: these areas change on their
own, and one file would have 1,000 lines. events_answered.py has what answers to commands contain.
"""

from dataclasses import dataclass
from typing import Final

from spillway.events_answered import (
    PHASE_ACTIVE,
    PHASE_CORDONED,
    PHASE_DRAINING,
    PHASE_LEAVING,
    PHASE_LOST,
    STATE_ABSENT,
    STATE_CONTESTED,
    STATE_DEPENDENCY_MISSING,
    STATE_DISOWNED,
    STATE_ENDED,
    STATE_NOT_OWNED,
    STATE_ORPHANED,
    STATE_PRESENT,
    STATE_REFUSED,
    DecisionRecorded,
    JobEnd,
    StatusDetails,
)
from spillway.events_lending import LendingEvent
from spillway.events_scaling import ScalingEvent
from spillway.model import (
    Answered,
    EarlierTemplate,
    Generation,
    NamespaceFacts,
    NodeGroup,
    ObjectReference,
    Part,
    Policy,
    Shape,
    WorkloadFacts,
)

__all__ = [
    "PHASE_ACTIVE",
    "PHASE_CORDONED",
    "PHASE_DRAINING",
    "PHASE_LEAVING",
    "PHASE_LOST",
    "STATE_ABSENT",
    "STATE_CONTESTED",
    "STATE_DEPENDENCY_MISSING",
    "STATE_DISOWNED",
    "STATE_ENDED",
    "STATE_NOT_OWNED",
    "STATE_ORPHANED",
    "STATE_PRESENT",
    "STATE_REFUSED",
    "DecisionRecorded",
    "JobEnd",
    "StatusDetails",
]


@dataclass(frozen=True, slots=True)
class FleetFormed:
    """The topics were created, and this log belongs to this fleet. The topics command writes this record once."""

    fleet: str


@dataclass(frozen=True, slots=True)
class TurnTaken:
    """An instance took its turn; the offset of this record is the epoch. cluster: empty for a standby's turn."""

    service: str
    cluster: str
    instance: str


@dataclass(frozen=True, slots=True)
class ClusterJoined:
    """A cluster belongs to the fleet.

    credential: the name of a file in the services' folder; never its content.
    phase: Active takes replicas. Cordoned takes no new ones. Draining hands over its replicas to others. Leaving does
    so too, and leaves the fleet when no replica is left. Lost will not return: its replicas are given up.
    ordinal: higher than the ordinal of each cluster in the fleet at the join; 0 for clusters that joined in old
    versions.
    joined_at: lower than all placement versions after the join, and higher than all earlier ones. Another join of a
    cluster that is in the fleet does not change it.
    api_server: the id that the cluster reported (CapacityReported) when no other cluster of the fleet had it; empty
    until then. If two clusters report the same id later, it belongs to the cluster that has it in this field.
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
    ordinal: int = 0
    joined_at: Generation | None = None
    api_server: str = ""


@dataclass(frozen=True, slots=True)
class ClusterLeft:
    """A cluster no longer belongs to the fleet."""

    cluster: str


@dataclass(frozen=True, slots=True)
class CapacityReported:
    """One block of a cluster's nodes, complete.

    index, count: this block is number `index` of `count` blocks. A new epoch takes effect when all its blocks are
    there.
    sequence: the number of the last change that this block contains.
    as_of_offset: the offset in the cluster's partition of capacity-changes at which a reader continues.
    columns: the nodes as wire.pack_columns makes them, compressed.
    facts, namespaces, api_server: in block 0 only. facts: of our workloads. namespaces: those with labels or quotas.
    api_server: the uid of the namespace kube-system, which identifies an API server; empty when it is not known.
    """

    cluster: str
    epoch: int
    index: int
    count: int
    sequence: int
    as_of_offset: int
    columns: bytes
    facts: tuple[WorkloadFacts, ...]
    namespaces: tuple[NamespaceFacts, ...] = ()
    api_server: str = ""


@dataclass(frozen=True, slots=True)
class CapacityChanged:
    """Rows of a block that changed, or a heartbeat of block 0.

    sequence: one more than the last sequence of this (cluster, epoch, block).
    age_ms: the age of the cluster's watermark when this was sent; −1 before the first answered probe.
    trouble: the reason why the cluster cannot be followed now; empty: there is none.
    trouble_code: the troubles.TroubleCode of that trouble, or the number of a newer version; 0 without trouble. Records
    of older versions have 0 and the text: read both by troubles.code_of_record.
    unread: the resources that our account may not read; then the cluster's volumes are unknown. Empty: it may read
    all.
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
    namespaces: tuple[NamespaceFacts, ...] = ()
    namespaces_removed: tuple[str, ...] = ()
    unread: str = ""
    trouble_code: int = 0


@dataclass(frozen=True, slots=True)
class PodsUnschedulable:
    """The cluster's scheduler could not place some pods of one group: the pods of one controller.

    reason: the text of the scheduler.
    shape: the demands of one of these pods. If they differ, of most of them. None: it cannot be read.
    """

    cluster: str
    group: str
    epoch: int
    sequence: int
    workload: str
    pods: int
    reason: str
    shape: Shape | None = None


@dataclass(frozen=True, slots=True)
class PodsScheduled:
    """No pod of this group is unschedulable any more."""

    cluster: str
    group: str
    epoch: int
    sequence: int


@dataclass(frozen=True, slots=True)
class WorkloadDeclared:
    """A user declared a workload, or changed its declaration.

    manifest: the object as the user gave it, as JSON, without the replicas that Spillway decided.
    generation: rises with each change of template, replicas or policy. template_generation: rises with the template
    alone.
    rolling_from: the shapes of earlier templates that may still have pods.
    answered: the last idempotency keys, with the answers to them.
    earlier_templates: the templates of clusters that do not have the new template yet.
    deleting: the objects are being removed. disowning: our marks on them are being removed, the objects stay.
    rollout_stopped_in: the cluster that the new template left before it was available there, while no other cluster has
    it. The template goes to no other cluster until it is applied again.
    scale_generation: the generation of the last ScaleDecided in this declaration, or of the newest one at an adoption.
    Only a later ScaleDecided counts. None if there was none.
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
    disowning: bool = False
    rollout_stopped_in: str = ""
    scale_generation: Generation | None = None


@dataclass(frozen=True, slots=True)
class DependencyDeclared:
    """An object goes where its workload goes, before the workload. workload: namespace/name of its only owner.

    manifest: empty once the workload does not list the object any more. No tombstone is written then, because another
    object may have this name.
    """

    kind: str
    namespace: str
    name: str
    workload: str
    workload_generation: int
    manifest: bytes


@dataclass(frozen=True, slots=True)
class PlacementWaits:
    """The reasons why a placement waits, for programs.

    room: True if replicas wait for anything besides brakes, confirmations and the rollout.
    rollout: a text for people, why the rollout waits; empty if it does not wait.
    rollout_cluster: the cluster that must be available before the rollout goes on; empty if there is none.
    rollout_frozen: True if a brake holds the rollout; `rollout` names it.
    digest: a digest of all these reasons, without the numbers that change with every node.
    """

    room: bool = False
    rollout: str = ""
    rollout_cluster: str = ""
    rollout_frozen: bool = False
    digest: str = ""


@dataclass(frozen=True, slots=True)
class PlacementDecided:
    """The replicas of a workload by cluster. Every cluster that holds or may still hold the object is listed.

    workload_generation: the declaration that a propagator must have before it acts.
    unplaced: the number of replicas that wait. waiting_for: a text for people, why they wait.
    waits: the same reasons as codes, and the reason why the rollout waits. None when nothing waits, or when an older
    version wrote all of it into waiting_for.
    missing_template: digest of the pod template whose replicas reserved room for a minute in a cluster without an
    object that the template names. They do not reserve room in this way again.
    """

    namespace: str
    name: str
    generation: Generation
    workload_generation: int
    parts: tuple[Part, ...]
    unplaced: int
    waiting_for: str
    missing_template: str = ""
    waits: PlacementWaits | None = None


@dataclass(frozen=True, slots=True)
class CapacityNeeded:
    """Replicas wait in this cluster for lent nodes, or for nodes that do not exist yet.

    replicas_lent, replicas_new: the numbers of such replicas. When no replica waits any more, both are 0.
    """

    namespace: str
    name: str
    cluster: str
    generation: Generation
    replicas_lent: int
    replicas_new: int


@dataclass(frozen=True, slots=True)
class BrakeSet:
    """A brake was set: in its scope, only moves that somebody asked for by name are done.

    scope: fleet, cluster/<name> or workload/<namespace>/<name>.
    """

    scope: str
    reason: str
    by: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class BrakeReleased:
    """The brake of this scope was released."""

    scope: str
    by: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class ConfirmationAsked:
    """A cause would move more replicas than its bound, and waits until a person confirms it.

    scope: <cause>/<cluster>. cause: Failover, Drain or Return. replicas: the number to move, out of fleet_replicas.
    """

    scope: str
    cause: str
    cluster: str
    replicas: int
    fleet_replicas: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class ConfirmationGiven:
    """A person confirmed a scope. This holds until the moves are done or their cause is over (a tombstone)."""

    scope: str
    by: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class AdoptionAsked:
    """The propagators of these clusters are asked which object runs there under this name. WorkloadFound answers.

    generation: of the question; each answer names it.
    fleet_before: a fleet id. With it and no name, the question is for all objects with its label (fleet recover).
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
    """A cluster answers AdoptionAsked. For a fleet there is one event per object, then one without a name.

    asked: the generation of the question. version: the placement version in the object's annotation.
    manifest: the object as JSON, without the fields that the server fills in.
    dependencies: the dependencies with the fleet's label, in the same form.
    objects: the number of objects found; only in the event without a name.
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


@dataclass(frozen=True, slots=True)
class WorkloadObserved:
    """The state of a workload's object in one cluster.

    version: the placement version on the object, or the version that was tried when the state is not Present.
    kind: the kind of the object; empty if only ConfigMaps and Services of an orphan are left.
    beside: our other objects there that no placement lists: objects of other kinds with this name, and for an orphan
    also its ConfigMaps and Services.
    missing: for DependencyMissing, the objects that the template names and the cluster lacks.
    found_version: the placement version on our object when the state is not Present; None when there is no object, and
    in records of older versions.
    details: set with every message. Programs read them by status_details.details_of_status, which also reads records of
    older versions.
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
    kind: str = ""
    beside: tuple[ObjectReference, ...] = ()
    missing: tuple[ObjectReference, ...] = ()
    found_version: Generation | None = None
    details: StatusDetails | None = None


@dataclass(frozen=True, slots=True)
class ShapeAsked:
    """The planner asks these clusters to try a pod of this template by a dry run, before anything is declared.

    template: pod_shape.template_digest. pod: the pod template as JSON. namespace, name: of the workload that it is for.
    ShapeAdmitted answers. Clusters that the workload's placement lists are asked without this event.
    """

    template: str
    namespace: str
    name: str
    clusters: tuple[str, ...]
    pod: bytes


SHAPE_ADMITTED: Final = "Admitted"
SHAPE_REFUSED: Final = "Refused"
"""The cluster refuses the template's pods. The message has the cluster's words."""
SHAPE_FORBIDDEN: Final = "Forbidden"
"""Our account in the cluster has no right to create pods, which a dry run needs."""
SHAPE_UNASKED: Final = "Unasked"
"""The cluster could not be asked: it did not answer in time, the namespace does not exist yet, a quota is used up, or
too many questions wait."""


@dataclass(frozen=True, slots=True)
class ShapeAdmitted:
    """The answer of a cluster's API to a dry run with a pod of this template. Nothing was created.

    state: Admitted, Refused, Forbidden or Unasked. message: the reason as a text for people.
    shape: for Admitted, the demands of the pod with defaults, overhead and injected containers; None: the same as in
    the template.
    missing: the objects that the template names and the cluster lacks, as far as the account may know. Dependencies
    that go there with the workload may be among them.
    """

    template: str
    cluster: str
    epoch: int
    sequence: int
    namespace: str
    state: str
    message: str
    shape: Shape | None
    missing: tuple[ObjectReference, ...] = ()


@dataclass(frozen=True, slots=True)
class DeadLettered:
    """A reader could not read a record. This event has the record's bytes, its position and the reason.

    writer, left_out: only for topics that anyone may write. writer: the record's writer, as far as it is known.
    left_out: how many further records of that writer were refused for the same kind of reason since its last letter.
    """

    topic: str
    partition: int
    offset: int
    reader: str
    reason: str
    key: str
    value: bytes
    writer: str = ""
    left_out: int = 0


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
    | ShapeAsked
    | ShapeAdmitted
    | DeadLettered
    | ScalingEvent
    | LendingEvent
)
