"""The part of api.py that asks why, and what would be."""

from dataclasses import dataclass

from spillway.model import Shape


@dataclass(frozen=True, slots=True)
class ExplainRequest:
    """Of a declared workload by name, of manifests as in ApplyRequest, or of the first with a policy as manifest.

    replicas: instead of those that are asked for; −1 as they are. decision: "epoch.sequence" of a past one; empty: as
    things are now. cluster and node: why one replica goes there, or does not.
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
    """Nodes that take no replica more, alike in why. example: one of the nodes.

    filter: the kube-scheduler's plugin; empty where nodes have room that something else takes, and of other reasons.

    resource, lacks, lacks_most: what binds, and how much of it lacks for one more at the least and at the most of these
    nodes; empty and 0 for another reason.
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
    """bound: Enough, Maximum, Room, Binds, Held, Refused, Phase, Age, Leaving, Frozen, Orphan or Policy; why is for
    people.

    reserved: replicas by workload that are reserved there and not bound yet, the most first, the first few.
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
    """A change that alters the answer, while no smaller one of its kind does; it was planned.

    kind: Request, Toleration, Nodes, NodeGroup or Maximum. subject: the resource, the taint, the node that is copied,
    the node group. before, after: the amounts.
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
    """takes: how many replicas more the node takes by itself."""

    cluster: str
    node: str
    takes: int
    filters: tuple[NodeFilter, ...]


@dataclass(frozen=True, slots=True)
class ExplainReply:
    """decision, at_ms, cause: of the past decision that is explained; empty for what holds now."""

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
    """type: as ce_type in the log. value: as the record's value."""

    type: str
    value: bytes


@dataclass(frozen=True, slots=True)
class HeldBack:
    """A hold: a cluster gets no more replicas of a shape, or of one workload when namespace and name are set.

    left_ms: how long the hold still lasts. seconds: how long it lasts in all; the next hold is twice as long. why: the
    cluster's reason for not taking the replicas, for people; empty when the cluster gave none.
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
    """Of a type so many events are in the whole export."""

    type: str
    events: int


@dataclass(frozen=True, slots=True)
class ExportReply:
    """One of several. fleet, at_ms, code_version, settings (as in a decision's record), held_back, counted (whether
    the last one has counts): in the first one."""

    fleet: str = ""
    at_ms: int = 0
    code_version: str = ""
    settings: str = ""
    held_back: tuple[HeldBack, ...] = ()
    events: tuple[ExportedEvent, ...] = ()
    counted: bool = False
    counts: tuple[ExportedCount, ...] = ()
