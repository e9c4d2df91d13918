"""Every event: the language of the platform. A fact in the past tense, one emitter each.

Where each goes, and under which key: addresses.py. Those of scaling and lending: events_scaling.py, events_lending.py.
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
    """The topics were created: this log is this fleet's. Written once, by the topics command."""

    fleet: str


@dataclass(frozen=True, slots=True)
class TurnTaken:
    """An instance took its turn; the offset of this record is the epoch. cluster is empty for a standby's turn."""

    service: str
    cluster: str
    instance: str


@dataclass(frozen=True, slots=True)
class ClusterJoined:
    """A cluster belongs to the fleet. credential names a file in the services' folder; it is never the content.

    phase: Active takes replicas; Cordoned no new ones; Draining hands over those it has; Leaving does too, and leaves
    when none is left; Lost will not return: what is listed there is given up. ordinal: higher than of all that were
    in the fleet when it joined; 0 of those that joined before this was counted. joined_at: below every version that is
    placed there from then on, and above those of before; joining again while it is in the fleet does not change it.
    api_server: as the cluster said it (CapacityReported) when no other cluster of the fleet did; empty until then. Of
    two clusters that say the same one later, the one that has it here is believed.
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
    """A whole block of a cluster's nodes.

    index of count blocks; a new epoch takes effect when all its blocks are there.
    sequence: the last change that this block contains; as_of_offset: from where in the cluster's partition of
    capacity-changes a reader goes on. columns: wire.pack_columns, compressed. In block 0 only: facts of our workloads,
    namespaces with labels or quotas, and api_server: the uid of the namespace kube-system, by which API servers are
    told apart; empty when it is not known.
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

    sequence: one more than the last of this (cluster, epoch, block). age_ms: of the cluster's watermark when this was
    sent, −1 before the first answered probe. trouble: why the cluster cannot be followed now, empty when it can.
    trouble_code: the troubles.TroubleCode of that trouble, or the number of a newer version; 0 without trouble. Records
    of older versions have 0 and the text: read both by troubles.code_of_record.
    unread: the resources that our account may not read, so that the cluster's volumes are unknown; empty when none.
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
    """Pods of one group (their controller) that the member's scheduler could not place, and what it said.

    shape: what one of them asks for, of most of them where they differ; None where it cannot be read.
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
    """What a user asked for. manifest: the object as JSON, without replicas of ours in it.

    generation: raised by each change of template, replicas or policy; template_generation: of the template alone.
    rolling_from: the shapes of templates that may still have pods. answered: the last idempotency keys,
    with their answers.
    earlier_templates: what clusters still hold whose turn at the new template has not come.
    deleting: the objects are to go. disowning: our marks on them are to go, the objects stay.
    rollout_stopped_in: the cluster that the new template has left without having been available there, while no other
    one has it: it goes to no other one until it is applied again. scale_generation: of the ScaleDecided that was
    declared last, or was the newest known when this was adopted: only a later one counts. None where there was none.
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
    """An object that goes where its workload goes, before it. workload: namespace/name of its only owner.

    manifest: empty once the workload lists it no more; it has no tombstone then, since another may have its name.
    """

    kind: str
    namespace: str
    name: str
    workload: str
    workload_generation: int
    manifest: bytes


@dataclass(frozen=True, slots=True)
class PlacementWaits:
    """What a placement waits for, as decisions read it.

    room: whether replicas wait for more than brakes, confirmations and the rollout.
    rollout: for people, what the rollout waits for; empty: for nothing.
    rollout_cluster: the cluster that must be available before the rollout goes on; empty: none.
    rollout_frozen: whether rollout names the brake that holds the rollout.
    digest: of all that is waited for, without figures that change with every node.
    """

    room: bool = False
    rollout: str = ""
    rollout_cluster: str = ""
    rollout_frozen: bool = False
    digest: str = ""


@dataclass(frozen=True, slots=True)
class PlacementDecided:
    """Where the replicas of a workload go: every cluster that holds or may still hold the object.

    workload_generation: the declaration that a propagator must have before it acts.
    unplaced: replicas that wait. waiting_for: for people, what replicas wait for. waits: the same as codes, and what
    the rollout waits for; None: for nothing, or an older version wrote all of it into waiting_for.
    missing_template: digest of the pod template that reserved its minute where a cluster lacks what it names; its
    replicas reserve nothing so again.
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
    """Replicas that wait in this cluster for lent nodes, or for nodes that do not exist yet; 0 when none does."""

    namespace: str
    name: str
    cluster: str
    generation: Generation
    replicas_lent: int
    replicas_new: int


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


@dataclass(frozen=True, slots=True)
class WorkloadObserved:
    """What a cluster shows of a workload's object.

    version: the placement version on the object, or the one that was tried when it is not Present. kind: of the object;
    empty where only ConfigMaps and Services of an orphan are left. beside: objects of ours there that no placement
    lists and that the rest does not speak of: other kinds of the name, and of an orphan those ConfigMaps and Services.
    missing: of DependencyMissing, what the template names and the cluster has not. found_version: the placement
    version on our object where the state is not Present; None where there is none, and in records of before.
    details: with every message; programs read them through spillway.status_details.details_of, which knows records of
    before.
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
    """The owners of these clusters are to say what a pod of this template becomes there, before anything is declared.

    template: pod_shape.template_digest; pod: the pod template as JSON. namespace, name: of the workload that it is for.
    ShapeAdmitted answers. What placements list is asked without it.
    """

    template: str
    namespace: str
    name: str
    clusters: tuple[str, ...]
    pod: bytes


SHAPE_ADMITTED: Final = "Admitted"
SHAPE_REFUSED: Final = "Refused"
"""Pods of the template are not let in: message has the cluster's words."""
SHAPE_FORBIDDEN: Final = "Forbidden"
"""Our account there has no right to create pods, which a dry run needs."""
SHAPE_UNASKED: Final = "Unasked"
"""It could not be asked: no answer in time, no namespace yet, a quota that is used up, too many questions."""


@dataclass(frozen=True, slots=True)
class ShapeAdmitted:
    """What a cluster's API makes of a pod of this template, by a dry run: nothing was created.

    state: Admitted, Refused, Forbidden or Unasked, message for people. shape: of Admitted, what the pod asks for once
    defaults, overhead and injected containers are in it; None: what its template says. missing: what the template
    names and the cluster has not, as far as the account may know; what goes along with a workload may be among it.
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
    """A record that a reader could not read: the bytes, where they stood, and why.

    Of a topic that anyone may write: writer, as far as the record tells, and left_out: how many more of that writer's,
    for the same kind of reason, stood between the letter before and this one.
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
