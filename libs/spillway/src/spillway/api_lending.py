"""The messages of the descheduler's gRPC API as values. Each call is described in proto/spillway/v1/lending.proto.

Times are whole milliseconds of Unix time. −1 means that a number is unknown.
"""

from dataclasses import dataclass

from spillway.events_lending import Amounts, LendingRule
from spillway.model import Generation


@dataclass(frozen=True, slots=True)
class DeclareLendingRequest:
    """Declares how a cluster lends nodes. A 0 means the default (docs/lending.md). plan_only: nothing is stored."""

    cluster: str
    pool: str
    rules: tuple[LendingRule, ...]
    grace_seconds: int = 0
    cooldown_seconds: int = 0
    recalls_per_minute: int = 0
    plan_only: bool = False


@dataclass(frozen=True, slots=True)
class WithdrawLendingRequest:
    cluster: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ListLendingRequest:
    """Asks how a cluster lends its nodes. cluster: empty means all clusters."""

    cluster: str = ""


@dataclass(frozen=True, slots=True)
class PauseLendingRequest:
    """Pauses lending. cluster: empty means all clusters that have declared lending."""

    cluster: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ResumeLendingRequest:
    """Resumes lending. cluster: as in PauseLendingRequest."""

    cluster: str = ""


@dataclass(frozen=True, slots=True)
class ClusterLending:
    """The lending of one cluster: its declaration, and what is lent now.

    nodes: the nodes of the cluster, −1 when its capacity is not known. cores_lent_milli: the milli-cores that its open
    virtual nodes offer.
    nodes_checking: nodes marked for lending. Each is lent once pods that were bound to it before had time to start.
    changed: True if this call changed the declaration. warnings: texts for the user.
    """

    cluster: str
    pool: str
    generation: Generation
    rules: tuple[LendingRule, ...]
    grace_seconds: int
    cooldown_seconds: int
    recalls_per_minute: int
    paused: bool
    withdrawing: bool
    by: str
    reason: str
    declared_ms: int
    nodes: int
    nodes_lent: int
    nodes_recalled: int
    cores_lent_milli: int
    changed: bool = False
    warnings: tuple[str, ...] = ()
    nodes_checking: int = 0


@dataclass(frozen=True, slots=True)
class LendingReply:
    """The lending of clusters, one entry per cluster. stale: the answer comes from a standby."""

    clusters: tuple[ClusterLending, ...]
    stale: bool = False


@dataclass(frozen=True, slots=True)
class ListLentRequest:
    """Asks for lent nodes. cluster, pool: empty means all."""

    cluster: str = ""
    pool: str = ""
    page_size: int = 0
    page_token: str = ""


@dataclass(frozen=True, slots=True)
class LentNode:
    """A lent node, with the fields of NodeLent. pods: how many pods run there. wanted_by: as in its NodeRecalled."""

    cluster: str
    node: str
    pool: str
    virtual_node: str
    loan: Generation
    rule: str
    supply_class: str
    state: str
    cause: str
    offered: Amounts
    pods: int
    lent_ms: int
    recalled_ms: int
    wanted_by: tuple[str, ...]
    waiting: str


@dataclass(frozen=True, slots=True)
class ListLentReply:
    nodes: tuple[LentNode, ...]
    next_page_token: str
    stale: bool = False


@dataclass(frozen=True, slots=True)
class RecallRequest:
    """Recalls lent nodes. To recall a node again has no effect, except that it can shorten the grace.

    nodes: names in the owner; empty means all nodes that the cluster has lent. grace_seconds: 0 means the cluster's
    own.
    plan_only: the reply names the nodes that would go back, and nothing changes.
    """

    cluster: str
    nodes: tuple[str, ...] = ()
    grace_seconds: int = 0
    reason: str = ""
    plan_only: bool = False


@dataclass(frozen=True, slots=True)
class RecallReply:
    """The recalled nodes.

    nodes: all nodes that are being recalled, also by earlier calls. changed: the number that this call recalled.
    """

    nodes: tuple[LentNode, ...]
    changed: int


@dataclass(frozen=True, slots=True)
class IdleReportRequest:
    """Asks for idle nodes. cluster: empty means all. hours: the length of the time until now; 0 means 72."""

    cluster: str = ""
    hours: int = 0
    page_size: int = 0
    page_token: str = ""


@dataclass(frozen=True, slots=True)
class IdleNode:
    """A node that was idle, the probable reason, and a suggestion.

    kind: Forgotten, LeftOver (of a release), Buffer. observed_ms: how long the node was observed, in milliseconds.
    used_max_milli: the highest use at a time in milli-cores; −1: only requests are known.
    last_pod_ms: the time at which its last own pod left; 0: unknown.
    """

    cluster: str
    node: str
    rule: str
    kind: str
    cores_milli: int
    observed_ms: int
    idle_ms: int
    lent_ms: int
    pods_max: int
    requested_max_milli: int
    used_max_milli: int
    last_pod_ms: int
    suggestion: str


@dataclass(frozen=True, slots=True)
class IdleReportReply:
    """One page of idle nodes, and sums over all nodes of the request, not of this page alone.

    from_ms, until_ms: the part of the requested time for which there is data.
    cores_lent_milli: the average number of lent milli-cores in that time. core_seconds_lent: the sum over that time.
    cores_milli: the milli-cores of all nodes. cores_idle_milli: the idle ones, on average while each was observed.
    requests_only: the number of nodes whose usage is unknown.
    """

    nodes: tuple[IdleNode, ...]
    nodes_observed: int
    requests_only: int
    cores_milli: int
    cores_idle_milli: int
    cores_lent_milli: int
    from_ms: int
    until_ms: int
    next_page_token: str
    stale: bool = False
    core_seconds_lent: int = 0
