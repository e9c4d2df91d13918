"""Defines the times and limits on which decisions depend."""

from dataclasses import dataclass


def is_recent(at_ms: int, now_ms: int, within_ms: int) -> bool:
    """Returns whether the time is less than within_ms away.

    A time far in the future, from a wrong clock, is not recent.
    """
    return abs(now_ms - at_ms) < within_ms


@dataclass(frozen=True, slots=True)
class LendingRules:
    """The limits of decisions.

    again_ms: how long after its return a node is not recalled for a need. Also the run time that an eviction costs a
        pod in addition to its own.
    losses_kept_ms: how long the losses of a controller's pods by recalls count.
    nodes_in_step_max: the nodes of a cluster that one step recalls for needs, at most.
    usage_hours: the hours of each node that are kept for reports.
    withdrawing_ms: how long withdrawn lending stays declared at least, so that a node that was just being marked is
        seen.
    bound_ms: how long after a node's return its pods count as bound there. The node's row, the pending pods and the end
        of the loan are three records, which come in any order.
    """

    again_ms: int = 600_000
    losses_kept_ms: int = 3_600_000
    nodes_in_step_max: int = 2_000
    usage_hours: int = 168
    withdrawing_ms: int = 5_000
    bound_ms: int = 5_000

    @property
    def settled_kept_ms(self) -> int:
        """Returns how long a settled recall has an effect."""
        return max(self.again_ms, self.losses_kept_ms)
