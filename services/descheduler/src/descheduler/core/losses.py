"""Computes the loss if a lent node went back now, from the pods in its loan."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from descheduler.core.rules import is_recent
from descheduler.core.state import DeschedulerState
from spillway.amounts import clamp_to_int64
from spillway.events_lending import Amounts, LentPod, NodeLent

MILLI = 1000


class BudgetedPods(NamedTuple):
    """The pods of a node under one disruption budget.

    budget: pool/namespace/name.
    allowed: the evictions still allowed.
    """

    budget: str
    pods: int
    allowed: int


@dataclass(frozen=True, slots=True, order=True)
class ReturnLoss:
    """The loss of a node's return. The fields are in the order in which losses are compared.

    breaks_budget: the pods of this node alone exceed a disruption budget.
    priority: the highest priority of its pods. Without pods, the lowest of any pod, and at most 0.
    core_seconds: run time × requested cores of its pods, which restarts repeat, plus their controllers' recent losses.
    deletion_cost: the sum of its pods' deletion costs.
    bounded: the pods by disruption budget; not compared.
    """

    breaks_budget: bool
    priority: int
    core_seconds: int
    deletion_cost: int
    bounded: tuple[BudgetedPods, ...] = field(default=(), compare=False)

    @property
    def rank(self) -> tuple[bool, int]:
        """Returns the rank. All nodes of a lower rank go before any of a higher one."""
        return self.breaks_budget, self.priority


LostLately = Mapping[tuple[str, str], int]
"""Core-seconds that each pod of a controller has lost lately, by (pool, controller)."""

Budgets = Mapping[str, int]
"""The number of evictions that a disruption budget still allows, by pool/namespace/name."""


def budgets_left(state: DeschedulerState) -> Budgets:
    """Returns the evictions left by disruption budget, from each owner's newest record; of several owners, the fewest.

    Pods on nodes that are already on their way back are subtracted, for any cause of the return. A record may have
    subtracted some of them before. So the result may be too small, but never too large.
    """
    newest: dict[tuple[str, str], tuple[tuple[int, int], int]] = {}
    going = Counter[str]()
    for cluster in state.loans:
        for loan in state.open_loans_by_node(cluster).values():
            returning = state.is_returning(cluster, loan)
            for budget, allowed in ((f"{loan.pool}/{name}", most) for pod in loan.pods for name, most in pod.budgets):
                going[budget] += returning
                said = (loan.epoch, loan.sequence), allowed
                newest[cluster, budget] = max(newest.get((cluster, budget), said), said)
    left: dict[str, int] = {}
    for (_, budget), (_, allowed) in newest.items():
        left[budget] = min(left.get(budget, allowed), max(0, allowed - going[budget]))
    return left


def least_priority(loans: Iterable[NodeLent]) -> int:
    """Returns the lowest priority of all pods on these loans, at most 0.

    A node without pods gets this priority, so that it goes back among the first.
    """
    return min((0, *(pod.priority for loan in loans for pod in loan.pods)))


def loss_of(loan: NodeLent, now_ms: int, lost_lately: LostLately, budgets: Budgets, least: int = 0) -> ReturnLoss:
    """Returns the loss if the node of this loan went back now. least: the result of `least_priority`."""
    under = Counter(f"{loan.pool}/{name}" for pod in loan.pods for name, _ in pod.budgets)
    return ReturnLoss(
        breaks_budget=any(pods > budgets[budget] for budget, pods in under.items()),
        priority=max((pod.priority for pod in loan.pods), default=least),
        core_seconds=sum(
            _core_seconds(pod, _run_time_ms(pod, now_ms)) + lost_lately.get((loan.pool, pod.group), 0)
            for pod in loan.pods
        ),
        deletion_cost=sum(pod.deletion_cost for pod in loan.pods),
        bounded=tuple(BudgetedPods(budget, pods, budgets[budget]) for budget, pods in sorted(under.items())),
    )


def pods_over_budget(losses: Iterable[ReturnLoss]) -> int:
    """Returns how many pods leave in excess of their disruption budgets if all these nodes go back together."""
    pods, allowed = Counter[str](), dict[str, int]()
    for bounded in (one for loss in losses for one in loss.bounded):
        pods[bounded.budget] += bounded.pods
        allowed[bounded.budget] = bounded.allowed
    return sum(max(0, pods[budget] - most) for budget, most in allowed.items())


def lost_by_group(loan: NodeLent, now_ms: int, restart_ms: int) -> Amounts:
    """Returns for each controller the core-seconds that its pods lose: their run time, and the time of a restart.

    Each amount is at most what 64 bits hold, because a record has to hold it.
    """
    lost = Counter[str]()
    for pod in loan.pods:
        if pod.group:
            lost[pod.group] += _core_seconds(pod, _run_time_ms(pod, now_ms) + restart_ms)
    return tuple(sorted((group, clamp_to_int64(amount)) for group, amount in lost.items() if amount))


def recent_loss_by_controller(state: DeschedulerState, now_ms: int) -> LostLately:
    """Returns the recent losses of each controller with pods on lent nodes, shared equally among these pods.

    Without them, a pod that was evicted and has just started again would be the cheapest to evict next.
    """
    lost, pods = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for cluster, recalls in state.recalls.items():
        for node, recall in recalls.items():
            loan = state.loans.get(cluster, {}).get(node)
            if loan is not None and is_recent(recall.at_ms, now_ms, state.rules.losses_kept_ms):
                lost.update({(loan.pool, group): amount for group, amount in recall.lost_by_group})
    if lost:
        loans = (loan for cluster in state.loans for loan in state.open_loans_by_node(cluster).values())
        pods.update((loan.pool, pod.group) for loan in loans for pod in loan.pods)
    return {key: amount // pods[key] for key, amount in lost.items() if pods[key]}


def _run_time_ms(pod: LentPod, now_ms: int) -> int:
    return max(now_ms - pod.started_ms, 0) if pod.started_ms else 0


def _core_seconds(pod: LentPod, ran_ms: int) -> int:
    return ran_ms // 1000 * max(0, dict(pod.requests).get("cpu", 0)) // MILLI
