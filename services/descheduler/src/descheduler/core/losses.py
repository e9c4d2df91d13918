"""What would be lost if a lent node went back now: by the pods that its loan names."""

from collections import Counter
from dataclasses import dataclass

from spillway.events_lending import NodeLent

MILLI = 1000


@dataclass(frozen=True, slots=True, order=True)
class Loss:
    """In the order in which losses weigh. breaks_budget: a disruption budget, by the pods of this node alone.

    priority: the highest of its pods, 0 at least. core_seconds: run time × cores, which a restart does again.
    deletion_cost: the sum of what its pods say of themselves.
    """

    breaks_budget: bool
    priority: int
    core_seconds: int
    deletion_cost: int

    @property
    def rank(self) -> tuple[bool, int]:
        """All of a lower rank go before any of a higher one."""
        return self.breaks_budget, self.priority


def loss_of(loan: NodeLent, now_ms: int) -> Loss:
    by_group = Counter(pod.group for pod in loan.pods)
    return Loss(
        breaks_budget=any(0 <= pod.disruptions_allowed < by_group[pod.group] for pod in loan.pods),
        priority=max((pod.priority for pod in loan.pods), default=0) if loan.pods else 0,
        core_seconds=sum(
            max(now_ms - pod.started_ms, 0) // 1000 * dict(pod.requests).get("cpu", 0) // MILLI
            for pod in loan.pods
            if pod.started_ms
        ),
        deletion_cost=sum(pod.deletion_cost for pod in loan.pods),
    )
