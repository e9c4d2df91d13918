"""What would be lost if a lent node went back now: by the pods that its loan names."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from descheduler.core.rules import is_recent
from descheduler.core.state import DeschedulerState
from spillway.amounts import saturated
from spillway.events_lending import Amounts, LentPod, NodeLent

MILLI = 1000


class Bounded(NamedTuple):
    """Pods of a node under one disruption budget, and how many it still lets go. budget: pool/namespace/name."""

    budget: str
    pods: int
    allowed: int


@dataclass(frozen=True, slots=True, order=True)
class Loss:
    """In the order in which losses weigh. breaks_budget: a disruption budget, by the pods of this node alone.

    priority: the highest of its pods; without any as low as that of any pod, 0 at most. core_seconds: run time × cores,
    which a restart does again, and what recalls took from its pods' controllers lately.
    deletion_cost: the sum of what its pods say of themselves. bounded: by disruption budget.
    """

    breaks_budget: bool
    priority: int
    core_seconds: int
    deletion_cost: int
    bounded: tuple[Bounded, ...] = field(default=(), compare=False)

    @property
    def rank(self) -> tuple[bool, int]:
        """All of a lower rank go before any of a higher one."""
        return self.breaks_budget, self.priority


LostLately = Mapping[tuple[str, str], int]
"""By pool and controller, core-seconds by pod."""

Budgets = Mapping[str, int]
"""By pool/namespace/name, how many more pods a disruption budget lets go."""


def budgets_left(state: DeschedulerState) -> Budgets:
    """As the newest record of an owner says, the fewest of several owners; less all that are on their way already.

    Whoever sent these: a need of any owner, a person, the bridge. Some of them a record may count already: then less is
    left here than the budget has, never more.
    """
    newest: dict[tuple[str, str], tuple[tuple[int, int], int]] = {}
    going = Counter[str]()
    for cluster in state.loans:
        for loan in state.lent(cluster).values():
            returning = state.returning(cluster, loan)
            for budget, allowed in ((f"{loan.pool}/{name}", most) for pod in loan.pods for name, most in pod.budgets):
                going[budget] += returning
                said = (loan.epoch, loan.sequence), allowed
                newest[cluster, budget] = max(newest.get((cluster, budget), said), said)
    left: dict[str, int] = {}
    for (_, budget), (_, allowed) in newest.items():
        left[budget] = min(left.get(budget, allowed), max(0, allowed - going[budget]))
    return left


def least_priority(loans: Iterable[NodeLent]) -> int:
    """Of all their pods, 0 at most: a node without any is given back no later than one whose pods weigh least."""
    return min((0, *(pod.priority for loan in loans for pod in loan.pods)))


def loss_of(loan: NodeLent, now_ms: int, lost_lately: LostLately, budgets: Budgets, least: int = 0) -> Loss:
    """least: of `least_priority`."""
    under = Counter(f"{loan.pool}/{name}" for pod in loan.pods for name, _ in pod.budgets)
    return Loss(
        breaks_budget=any(pods > budgets[budget] for budget, pods in under.items()),
        priority=max((pod.priority for pod in loan.pods), default=least),
        core_seconds=sum(
            _core_seconds(pod, _ran_ms(pod, now_ms)) + lost_lately.get((loan.pool, pod.group), 0) for pod in loan.pods
        ),
        deletion_cost=sum(pod.deletion_cost for pod in loan.pods),
        bounded=tuple(Bounded(budget, pods, budgets[budget]) for budget, pods in sorted(under.items())),
    )


def over_budget(losses: Iterable[Loss]) -> int:
    """How many more pods than budgets allow go with all of these nodes together."""
    pods, allowed = Counter[str](), dict[str, int]()
    for bounded in (one for loss in losses for one in loss.bounded):
        pods[bounded.budget] += bounded.pods
        allowed[bounded.budget] = bounded.allowed
    return sum(max(0, pods[budget] - most) for budget, most in allowed.items())


def lost_by_group(loan: NodeLent, now_ms: int, restart_ms: int) -> Amounts:
    """By controller, core-seconds that its pods lose: their run time, and as much as it costs to begin anew.

    A record bears them, so each is at most what 64 bits hold.
    """
    lost = Counter[str]()
    for pod in loan.pods:
        if pod.group:
            lost[pod.group] += _core_seconds(pod, _ran_ms(pod, now_ms) + restart_ms)
    return tuple(sorted((group, saturated(amount)) for group, amount in lost.items() if amount))


def lost_lately(state: DeschedulerState, now_ms: int) -> LostLately:
    """What recalls took of each controller that has pods on lent nodes, shared among these.

    So who was evicted is not the cheapest to evict again because it has just begun anew.
    """
    lost, pods = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for cluster, recalls in state.recalls.items():
        for node, recall in recalls.items():
            loan = state.loans.get(cluster, {}).get(node)
            if loan is not None and is_recent(recall.at_ms, now_ms, state.rules.losses_kept_ms):
                lost.update({(loan.pool, group): amount for group, amount in recall.lost_by_group})
    if lost:
        loans = (loan for cluster in state.loans for loan in state.lent(cluster).values())
        pods.update((loan.pool, pod.group) for loan in loans for pod in loan.pods)
    return {key: amount // pods[key] for key, amount in lost.items() if pods[key]}


def _ran_ms(pod: LentPod, now_ms: int) -> int:
    return max(now_ms - pod.started_ms, 0) if pod.started_ms else 0


def _core_seconds(pod: LentPod, ran_ms: int) -> int:
    return ran_ms // 1000 * max(0, dict(pod.requests).get("cpu", 0)) // MILLI
