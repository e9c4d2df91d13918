"""Which way a workload is divided: all of them stand behind one interface, placement.Divide."""

from planner.core.compat.compatible import divide_by_strategy
from planner.core.division.placement import divide_workload
from planner.core.division.situation import Divide, Situation
from planner.core.placement.whole import divide_whole


def divider(situation: Situation) -> Divide:
    """By its kind, the strategy of its policy, or its policy's tiers."""
    if situation.whole:
        return divide_whole
    return divide_workload if situation.policy.strategy is None else divide_by_strategy
