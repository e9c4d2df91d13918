"""What is asked of the descheduler over gRPC, as values; proto/spillway/v1/lending.proto says what each call means.

Times are whole milliseconds of Unix time. −1 stands for a number that there is not.
"""

from dataclasses import dataclass

from spillway.events_lending import Amounts, LendingRule
from spillway.model import Generation


@dataclass(frozen=True, slots=True)
class DeclareLendingRequest:
    """0 of a number is its default (docs/lending.md). plan_only: nothing is kept."""

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
    """cluster: empty is all."""

    cluster: str = ""


@dataclass(frozen=True, slots=True)
class PauseLendingRequest:
    """cluster: empty is all that have declared lending."""

    cluster: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ResumeLendingRequest:
    """As PauseLendingRequest."""

    cluster: str = ""


@dataclass(frozen=True, slots=True)
class ClusterLending:
    """How a cluster lends, and how much is lent now. nodes: of the cluster, −1 when its capacity is not known.

    cores_lent_milli: what its open virtual nodes show. changed: by this call. warnings: for people. nodes_checking:
    that are marked, and lent once what was bound to them before has had its time to come.
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
    """By cluster. stale: from a standby."""

    clusters: tuple[ClusterLending, ...]
    stale: bool = False


@dataclass(frozen=True, slots=True)
class ListLentRequest:
    """cluster, pool: empty is all."""

    cluster: str = ""
    pool: str = ""
    page_size: int = 0
    page_token: str = ""


@dataclass(frozen=True, slots=True)
class LentNode:
    """As NodeLent; pods: how many. wanted_by: of its recall."""

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
    """nodes: names in the owner; empty is all that the cluster has lent. grace_seconds: 0 is the cluster's.

    plan_only: say which would go back. Recalling a node again changes nothing, but to shorten its grace.
    """

    cluster: str
    nodes: tuple[str, ...] = ()
    grace_seconds: int = 0
    reason: str = ""
    plan_only: bool = False


@dataclass(frozen=True, slots=True)
class RecallReply:
    """nodes: that are being recalled, with those that were before. changed: how many by this call."""

    nodes: tuple[LentNode, ...]
    changed: int


@dataclass(frozen=True, slots=True)
class IdleReportRequest:
    """cluster: empty is all. hours: how far back, 0 is 72."""

    cluster: str = ""
    hours: int = 0
    page_size: int = 0
    page_token: str = ""


@dataclass(frozen=True, slots=True)
class IdleNode:
    """A node that was idle, why it probably is, and what could be done.

    kind: Forgotten, LeftOver (of a release), Buffer. observed_ms: how long of the time was observed. used_max_milli:
    most cores used at a time, −1 when only requests are known. last_pod_ms: when its last own pod left, 0 not known.
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
    """Of all nodes asked about, not of this page alone. from_ms, until_ms: within what was asked for, the time of which
    anything is known. cores_lent_milli: on average in it, which core_seconds_lent is the sum of. cores_milli: of all
    nodes; cores_idle_milli: of them, each on average while it was observed. requests_only: nodes of unknown use.
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
