"""Events of lending: which idle nodes are lent, which go back and why, and what nodes are used for. docs/lending.md.

Amounts are milli-cores, bytes or counts by resource, times whole milliseconds of Unix time; 0 where there is none.
"""

from dataclasses import dataclass
from typing import Final

from spillway.model import Generation, Requirement

Amounts = tuple[tuple[str, int], ...]
"""By resource, sorted."""


@dataclass(frozen=True, slots=True)
class LendingRule:
    """How nodes of one class are lent: those on whose labels all of `nodes` holds, and no earlier rule's.

    supply_class: idle or dedicated. share_percent: at most so many of the class are lent. reserve_nodes: idle ones that
    never are. idle_seconds: idle for so long. cost_per_hour: of one node.
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
    """How the nodes of this cluster are lent, and to which pool cluster. Without it none is.

    paused: nothing new is lent. withdrawing: what is lent comes back, then a tombstone follows. recalls_per_minute: a
    bound on recalls that nobody asked for by name, 0 none. sequence of the generation rises with every change.
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
    """A pool pod on a lent node that has not ended, with what its loss would cost.

    group: kind/namespace/name of its controller. requests: what its real pod holds of the node, as its owner's
    admission made it; none before there is one. priority and deletion_cost as Kubernetes has them.
    started_ms: of its first container, 0 before. budgets: the disruption budgets that it is under, namespace/name, with
    how many of all their pods each allows to go.
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
"""Pods of the owner wait for the node: the descheduler asks for it."""
CAUSE_ASKED: Final = "Asked"
"""A person asked for it, by name."""
CAUSE_OPT_OUT: Final = "OptOut"
CAUSE_OCCUPIED: Final = "Occupied"
CAUSE_LOG_AWAY: Final = "LogAway"
"""The log did not take its record, so that it never opened."""
CAUSE_VIRTUAL_NODE_GONE: Final = "VirtualNodeGone"
CAUSE_TAINT_REMOVED: Final = "TaintRemoved"
CAUSE_NODE_GONE: Final = "NodeGone"


@dataclass(frozen=True, slots=True)
class NodeLent:
    """A loan as it stands: acknowledged before its virtual node opens, said again when pods or state change.

    loan: the epoch of the claim under which it began, and a sequence. rule: of LendingRule. state: Lent or Recalled;
    cause: why it was recalled. offered: what the virtual node shows. waiting: what a recall waits for, for people.
    left_in: pools in which a virtual node of this one may stay, given up or silent when the node went back; each is
    cleared of it once it answers.
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
    """The loan is over: the node is its owner's again, or is gone. Times of the steps, 0 of one nobody saw.

    closed_ms: the virtual node took no more pods. emptied_ms: no pod was left on either side. deleted_ms: the virtual
    node was. lost_core_seconds: run time × cores of the pods that were evicted; forced: of them, those that outlived
    their grace. left_in: as of NodeLent; where nothing but it is to be said of a node, returned_ms is 0.
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
    """A lent node is to go back. It stands until RecallSettled, and has no effect on another loan than its own.

    cause: Need or Asked. wanted_by: for whom, cluster/namespace/name; wanted_replicas: for how many of
    each, none where that is not known. grace_seconds: of its pods. held_back_ms: for how
    long the cluster's budget delayed it. lost_by_group: by controller, as LentPod has it, core-seconds that its pods
    lose: their run time, and what it costs to begin anew.
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
    """The recalled loan is over: its NodeReturned was read. lost_by_group: as the recall said."""

    cluster: str
    node: str
    generation: Generation
    loan: Generation
    at_ms: int
    lost_by_group: Amounts = ()


@dataclass(frozen=True, slots=True)
class NodeUsed:
    """What a node was used for within an hour, from from_ms to until_ms. Daemons are told apart; their use counts.

    rule: the class, empty when no rule matches. pods_max: most pods at a time that are no daemons and not the pool's.
    last_pod_ms: when the last of those left, 0 not within what is known. idle_ms: within the hour, without any of
    those, also while it was lent; lent_ms: of it.
    requested_max: of those pods. used_average, used_max: of the whole node while it was not lent, by metrics.k8s.io;
    empty when that is not known.
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
