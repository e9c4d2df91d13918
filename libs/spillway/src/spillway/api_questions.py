"""The part of api.py for questions: why a placement is as it is, and what a change would give."""

from dataclasses import dataclass

from spillway.model import Shape


@dataclass(frozen=True, slots=True)
class ExplainRequest:
    """Asks about a declared workload by name, or about manifests as in ApplyRequest.

    With a name, a manifest is another policy for that workload.
    replicas: the number to explain; −1: the declared number.
    decision: "epoch.sequence" of a past decision; empty: the present state.
    cluster, node: if set, explain why one replica goes to this node, or does not.
    """

    namespace: str = ""
    name: str = ""
    manifests: tuple[str, ...] = ()
    replicas: int = -1
    decision: str = ""
    cluster: str = ""
    node: str = ""


@dataclass(frozen=True, slots=True)
class NodeReason:
    """Nodes that take no more replicas, for the same reason. example: one of the nodes.

    filter: the kube-scheduler's plugin that excludes the nodes; empty for other reasons.
    resource: the resource that the nodes lack for one more replica; empty for other reasons.
    lacks, lacks_most: the least and the largest amount of this resource that one of these nodes lacks; 0 without one.
    """

    nodes: int
    filter: str
    reason: str
    resource: str = ""
    lacks: int = 0
    lacks_most: int = 0
    example: str = ""


@dataclass(frozen=True, slots=True)
class ExplainedCluster:
    """One cluster in an explanation.

    bound: Enough, Maximum, Room, Binds, Held, Refused, Phase, Age, Leaving, Frozen, Orphan or Policy. why: its text.
    reserved: the first few workloads with replicas that are reserved there and not bound yet, the most replicas first.
    """

    cluster: str
    tier: str
    node_groups: bool
    certain: int
    possible: int
    before: int
    after: int
    bound: str
    why: str
    nodes: int
    reasons: tuple[NodeReason, ...]
    reserved_replicas: int
    reserved: tuple[tuple[str, int], ...]
    age_ms: int


@dataclass(frozen=True, slots=True)
class ExplainedChange:
    """The smallest change of its kind that alters the answer. The planner found it by planning with the change.

    kind: Request, Toleration, Nodes, NodeGroup or Maximum. before, after: the amounts.
    subject: the resource, the taint, the node that is copied, or the node group.
    """

    kind: str
    cluster: str
    subject: str
    before: int
    after: int
    placed_before: int
    placed_after: int
    text: str


@dataclass(frozen=True, slots=True)
class NodeFilter:
    filter: str
    passes: bool
    reason: str


@dataclass(frozen=True, slots=True)
class ExplainedNode:
    """One node in an explanation. takes: how many more replicas this node alone takes."""

    cluster: str
    node: str
    takes: int
    filters: tuple[NodeFilter, ...]


@dataclass(frozen=True, slots=True)
class ExplainReply:
    """The answer to Explain. decision, at_ms, cause: of the explained past decision; empty for the present state."""

    namespace: str
    name: str
    decision: str
    at_ms: int
    cause: str
    replicas: int
    placed: int
    unplaced: int
    verdict: str
    clusters: tuple[ExplainedCluster, ...]
    changes: tuple[ExplainedChange, ...]
    node: ExplainedNode | None
    unmodelled: tuple[str, ...]
    notes: tuple[str, ...]
    stale: bool


@dataclass(frozen=True, slots=True)
class ExportRequest:
    pass


@dataclass(frozen=True, slots=True)
class ExportedEvent:
    """One event of an export. type: as ce_type in the log. value: as the record's value."""

    type: str
    value: bytes


@dataclass(frozen=True, slots=True)
class HeldBack:
    """A hold: a cluster gets no more replicas of a shape, or of one workload when namespace and name are set.

    left_ms: the rest of the hold. seconds: its whole length; the next hold is twice as long. why: the cluster's reason
    for not taking the replicas, a text for people; empty: the cluster gave no reason.
    """

    cluster: str
    namespace: str
    name: str
    shape: Shape | None
    left_ms: int
    seconds: float
    why: str = ""


@dataclass(frozen=True, slots=True)
class ExportedCount:
    """The number of events of one type in the whole export."""

    type: str
    events: int


@dataclass(frozen=True, slots=True)
class ExportReply:
    """One of several messages of an export.

    Only the first one has fleet, at_ms, code_version, settings (as in a decision's record), held_back and counted.
    counted: whether the last message has counts.
    """

    fleet: str = ""
    at_ms: int = 0
    code_version: str = ""
    settings: str = ""
    held_back: tuple[HeldBack, ...] = ()
    events: tuple[ExportedEvent, ...] = ()
    counted: bool = False
    counts: tuple[ExportedCount, ...] = ()
