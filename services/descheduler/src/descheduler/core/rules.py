"""The numbers that decisions depend on."""

from dataclasses import dataclass


def is_recent(at_ms: int, now_ms: int, within_ms: int) -> bool:
    """Whether it is less than that ago. Of what a clock said that ran far ahead nobody waits until others are there."""
    return abs(now_ms - at_ms) < within_ms


@dataclass(frozen=True, slots=True)
class Rules:
    """again_ms: a node is not recalled for a need within so long after it came back; so much run time an evicted pod
    loses besides its own. losses_kept_ms: for how long what a controller's pods lost by recalls counts.
    nodes_in_step_max: of a cluster, recalled for needs in one step. usage_hours: of each node, kept for reports.
    withdrawing_ms: for how long at least lending that is withdrawn stays declared, so that a node is seen that was
    being marked meanwhile.
    bound_ms: for how long after a node is back whom it came back for is taken to be bound there, since its row, the
    pods that wait and the end of its loan come as three records in any order.
    """

    again_ms: int = 600_000
    losses_kept_ms: int = 3_600_000
    nodes_in_step_max: int = 2_000
    usage_hours: int = 168
    withdrawing_ms: int = 5_000
    bound_ms: int = 5_000

    @property
    def settled_kept_ms(self) -> int:
        """For how long a settled recall says anything."""
        return max(self.again_ms, self.losses_kept_ms)
