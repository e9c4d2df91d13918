"""Chooses the function that divides a workload. All such functions have one interface, situation.Divide."""

from planner.core.compat.strategies import divide_by_strategy
from planner.core.division.situation import Divide, Situation
from planner.core.division.tier_division import divide_workload
from planner.core.placement.whole import divide_whole


def division_function(situation: Situation) -> Divide:
    """Returns the division function by the workload's kind, its policy's strategy, or its policy's tiers."""
    if situation.whole:
        return divide_whole
    return divide_workload if situation.policy.strategy is None else divide_by_strategy
