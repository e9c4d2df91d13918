"""What is said of a cluster whose nodes would take more, were all of it not promised already: to whom, and how much."""

from dataclasses import replace

from planner.core.division.situation import Division
from planner.core.feasibility.room import PROMISED
from planner.core.knowledge.state import PlannerState
from planner.core.knowledge.subject import Subject
from spillway.model import ClusterInput
from spillway.texts import counted

LOOKED_AT_MAX = 8
"""Clusters: as many as a text says of what a workload waits for."""
NAMES_MAX = 2
ALL_PROMISED = "room for {}, all of it promised and not bound yet: {}"


def with_promised(state: PlannerState, subject: Subject, division: Division) -> Division:
    """Said in place of what binds its nodes, which would read as if they were too small."""
    if not division.unplaced:
        return division
    said = [(index, _promised_in(state, subject, one)) for index, one in enumerate(division.inputs[:LOOKED_AT_MAX])]
    if not any(text for _, text in said):
        return division
    inputs = list(division.inputs)
    for index, text in said:
        if text:
            inputs[index] = replace(inputs[index], limited_by=text)
    return replace(division, inputs=tuple(inputs))


def _promised_in(state: PlannerState, subject: Subject, entry: ClusterInput) -> str:
    """Empty where others are not what leaves no room. Who may see the subject may not see other namespaces: no name."""
    if entry.certain or entry.cluster not in state.clusters or not state.reservations(entry.cluster):
        return ""
    total, limited_by = state.room_beside_nothing(entry.cluster, subject.shape)
    by_nodes = entry.limited_by.startswith(limited_by) or entry.limited_by.endswith(PROMISED.partition("{}")[2])
    if not total or not by_nodes:
        return ""
    reserved = ((key, reservation.free) for key, reservation in state.reservations(entry.cluster).items())
    others = {key: count for key, count in reserved if count and key != subject.key}
    if not others:
        return ""
    seen = sorted((key for key in others if key[0] == subject.key[0]), key=lambda key: (-others[key], key))[:NAMES_MAX]
    whose = [f"{'/'.join(key)} {others[key]}" for key in seen]
    rest = sum(others.values()) - sum(others[key] for key in seen)
    return ALL_PROMISED.format(counted(total), ", ".join([*whose, *([f"others {rest}"] if rest else [])]))
