"""Events of lending: which idle nodes are lent, which go back and why, and what nodes are used for. docs/lending.md.

Amounts are milli-cores, bytes or counts by resource. Times are whole milliseconds of Unix time, 0 where there is none.
"""

from dataclasses import dataclass
from typing import Final

from spillway.model import Generation, Requirement

Amounts = tuple[tuple[str, int], ...]
"""Amounts by resource name, sorted."""


@dataclass(frozen=True, slots=True)
class LendingRule:
    """A rule for lending the nodes of one class: their labels meet all of `nodes`, and no earlier rule matches them.

    supply_class: idle or dedicated. share_percent: the most of the class that is lent.
    reserve_nodes: the number of idle nodes that are never lent. idle_seconds: how long a node must be idle before a
    loan.
    cost_per_hour: of one node.
    """

    name: str
    nodes: tuple[Requirement, ...]
    supply_class: str
    share_percent: int
    reserve_nodes: int
    idle_seconds: int
    cost_per_hour: float


@dataclass(frozen=True, slots=True)
class LendingDeclared:
    """The rules by which this cluster lends its nodes, and its pool cluster. Without this event no node is lent.

    generation: its sequence rises with every change.
    recalls_per_minute: the limit of recalls that nobody asked for by name; 0: no limit.
    paused: True if nothing new is lent. withdrawing: True if all lent nodes come back; then a tombstone follows.
    """

    cluster: str
    generation: Generation
    pool: str
    rules: tuple[LendingRule, ...]
    grace_seconds: int
    cooldown_seconds: int
    recalls_per_minute: int
    paused: bool
    withdrawing: bool
    by: str
    reason: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class LentPod:
    """A pool pod on a lent node that has not ended, with the cost of its loss.

    group: kind/namespace/name of its controller.
    requests: the resources of its real pod on the node, after the owner's admission; empty: there is no real pod yet.
    priority, deletion_cost: as in Kubernetes. started_ms: the start of its first container, 0 before.
    budgets: its disruption budgets by namespace/name, each with the number of pods that it allows to go.
    """

    namespace: str
    name: str
    uid: str
    group: str
    requests: Amounts
    priority: int
    deletion_cost: int
    started_ms: int
    budgets: Amounts = ()


LOAN_LENT: Final = "Lent"
LOAN_RECALLED: Final = "Recalled"

CAUSE_NEED: Final = "Need"
"""Pods of the owner wait for the node, so the descheduler asks for it."""
CAUSE_ASKED: Final = "Asked"
"""A person asked for the node by name."""
CAUSE_OPT_OUT: Final = "OptOut"
CAUSE_OCCUPIED: Final = "Occupied"
CAUSE_LOG_AWAY: Final = "LogAway"
"""The log did not accept the loan's record, so the virtual node never opened."""
CAUSE_VIRTUAL_NODE_GONE: Final = "VirtualNodeGone"
CAUSE_TAINT_REMOVED: Final = "TaintRemoved"
CAUSE_NODE_GONE: Final = "NodeGone"


@dataclass(frozen=True, slots=True)
class NodeLent:
    """The state of a loan. It is acknowledged before the virtual node opens, and sent again when pods or state change.

    loan: the epoch of the turn in which the loan began, and a sequence. rule: the name of the LendingRule.
    state: Lent or Recalled. cause: why it was recalled. waiting: for people, the reason why a recall waits.
    offered: the resources that the virtual node shows.
    left_in: pools in which a virtual node of this node may remain, because the pool was given up or silent when the
    node went back. It is removed there once the pool answers.
    """

    cluster: str
    node: str
    epoch: int
    sequence: int
    loan: Generation
    pool: str
    virtual_node: str
    rule: str
    supply_class: str
    state: str
    cause: str
    offered: Amounts
    pods: tuple[LentPod, ...]
    lent_ms: int
    recalled_ms: int
    waiting: str
    left_in: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeReturned:
    """The loan is over: the node belongs to its owner again, or is gone. The time of a step that nobody saw is 0.

    closed_ms: when the virtual node took no more pods. emptied_ms: when no pod was left in owner and pool.
    deleted_ms: when the virtual node was deleted. lost_core_seconds: run time × cores of the pods that were evicted.
    forced: the number of evicted pods that did not end within their grace and were killed.
    left_in: as in NodeLent. returned_ms is 0 if the event only changes left_in.
    """

    cluster: str
    node: str
    epoch: int
    sequence: int
    loan: Generation
    pool: str
    rule: str
    supply_class: str
    cause: str
    lent_ms: int
    recalled_ms: int
    closed_ms: int
    emptied_ms: int
    deleted_ms: int
    returned_ms: int
    evicted: int
    forced: int
    lost_core_seconds: int
    left_in: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeRecalled:
    """A lent node must go back. The recall lasts until RecallSettled, and belongs to this loan only.

    cause: Need or Asked. wanted_by: the workloads that need the node, cluster/namespace/name.
    wanted_replicas: the number of replicas for each of them; empty: unknown.
    grace_seconds: the time that its pods get to end. held_back_ms: how long the cluster's budget delayed the recall.
    lost_by_group: the core-seconds that its pods lose, by controller (`group` of LentPod): their run time and the cost
    of a new start.
    """

    cluster: str
    node: str
    generation: Generation
    loan: Generation
    cause: str
    wanted_by: tuple[str, ...]
    grace_seconds: int
    held_back_ms: int
    by: str
    reason: str
    at_ms: int
    wanted_replicas: tuple[int, ...] = ()
    lost_by_group: Amounts = ()


@dataclass(frozen=True, slots=True)
class RecallSettled:
    """The recalled loan is over: its NodeReturned was read. lost_by_group: as in the recall."""

    cluster: str
    node: str
    generation: Generation
    loan: Generation
    at_ms: int
    lost_by_group: Amounts = ()


@dataclass(frozen=True, slots=True)
class NodeUsed:
    """The use of a node within an hour, from from_ms to until_ms. Daemons count in used_average and used_max only.

    rule: the class of the node; empty when no rule matches.
    pods_max: the most pods at a time, without daemons and pool pods. requested_max: the most that these pods requested.
    last_pod_ms: when the last of these pods left; 0 when that is not within the known time.
    idle_ms: the time without such pods, also while the node was lent. lent_ms: the part of it while the node was lent.
    used_average, used_max: of the whole node while it was not lent, by metrics.k8s.io; empty when that is not known.
    """

    cluster: str
    node: str
    epoch: int
    sequence: int
    from_ms: int
    until_ms: int
    rule: str
    allocatable: Amounts
    requested_max: Amounts
    used_average: Amounts
    used_max: Amounts
    pods_max: int
    last_pod_ms: int
    idle_ms: int
    lent_ms: int


LendingEvent = LendingDeclared | NodeLent | NodeReturned | NodeRecalled | RecallSettled | NodeUsed
