"""Finds clusters whose nodes would take more replicas if their room were not promised to other workloads.

The text for the user then names the promises. Otherwise the nodes would seem to be too small.
"""

from dataclasses import replace

from planner.core.division.situation import Division
from planner.core.division.words import DivisionEntry
from planner.core.feasibility.limits import Limit, LimitCode
from planner.core.knowledge.state import PlannerState
from planner.core.knowledge.subject import PlacementSubject

LOOKED_AT_MAX = 8
"""The most clusters that are looked at. It is the number of clusters that a text about a waiting workload names."""
NAMES_MAX = 2


def with_promised_limits(state: PlannerState, subject: PlacementSubject, division: Division) -> Division:
    """Returns the division with ALL_PROMISED as the limit of clusters whose room is promised to other workloads."""
    if not division.unplaced:
        return division
    said = [
        (index, _promised_limit_in(state, subject, one)) for index, one in enumerate(division.inputs[:LOOKED_AT_MAX])
    ]
    if not any(limit for _, limit in said):
        return division
    inputs = list(division.inputs)
    for index, limit in said:
        if limit is not None:
            inputs[index] = inputs[index]._replace(limited_by=limit)
    return replace(division, inputs=tuple(inputs))


def _promised_limit_in(state: PlannerState, subject: PlacementSubject, entry: DivisionEntry) -> Limit | None:
    """Returns the limit if only promised replicas of other workloads leave no room; else None.

    It names workloads of the subject's namespace only: a reader may not see other namespaces.
    """
    if entry.certain or entry.cluster not in state.clusters or not state.reservations_in_cluster(entry.cluster):
        return None
    total, nodes = state.unreserved_room(entry.cluster, subject.replica_shape)
    by_nodes = entry.limited_by.nodes == nodes or entry.limited_by.code is LimitCode.PROMISED
    if not total or not by_nodes:
        return None
    reserved = ((key, reservation.free) for key, reservation in state.reservations_in_cluster(entry.cluster).items())
    others = {key: count for key, count in reserved if count and key != subject.workload_key}
    if not others:
        return None
    seen = sorted((key for key in others if key[0] == subject.workload_key[0]), key=lambda key: (-others[key], key))[
        :NAMES_MAX
    ]
    whose = [f"{'/'.join(key)} {others[key]}" for key in seen]
    rest = sum(others.values()) - sum(others[key] for key in seen)
    return Limit(LimitCode.ALL_PROMISED, total, (*whose, *([f"others {rest}"] if rest else [])))
