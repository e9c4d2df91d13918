"""Hands parts over from a second name of an API server to its first name when the second is drained or leaves.

Both names mean the same objects. So only the placement changes; no replica moves and no object is removed.
"""

from dataclasses import replace
from itertools import islice

from planner.core.background.aftermath import AftermathStep
from planner.core.knowledge.allowance import CAUSE_DUPLICATE, Allowance
from planner.core.knowledge.state import PlannerState
from planner.core.knowledge.subject import Moment
from planner.core.knowledge.transfer import is_in_transfer
from planner.core.knowledge.workload import Workload
from planner.core.placement import placing
from planner.core.placement.shares import held_by_cluster
from spillway.model import Part


def workloads_to_hand_over(state: PlannerState) -> list[tuple[Workload, str]]:
    """Returns workloads that a twin must hand over, each with the twin's name; a bounded number."""
    found = (
        (state.workloads[key], view.name)
        for view in state.clusters.values()
        if view.hand_over_target
        for key in state.workload_keys_in(view.name)
        if _may_be_handed_over(state.workloads[key], view.name, view.hand_over_target, state.brakes)
    )
    return list(islice(found, state.rules.replans_max))


def hand_over_step(state: PlannerState, workload: Workload, twin: str, moment: Moment) -> AftermathStep:
    """Returns the step that gives the twin's part to the first name of its API server.

    If both names had a part, their common object had the replicas of only one part. The larger part is kept, so that no
    running replica is ended, and the replicas of the other part are placed again.
    """
    to = state.clusters[twin].hand_over_target
    held = held_by_cluster(state, workload, moment.now)
    base = _larger_part(workload, twin, to)
    taken = held[base.cluster]
    held.pop(twin, None)
    held[to] = replace(taken, may_keep=0)
    why = placing.PlacementCause(CAUSE_DUPLICATE, frozenset((twin,)), taken={to: replace(base, cluster=to)})
    return AftermathStep(
        workload.workload_key, placing.take_over_parts(state, workload, held, why, moment).events, CAUSE_DUPLICATE
    )


def _may_be_handed_over(workload: Workload, twin: str, to: str, brakes: Allowance) -> bool:
    """Returns whether the workload may be handed over: it has a part that stays, is not in transfer and not frozen."""
    if is_in_transfer(workload) or not _live_parts(workload, twin, to):
        return False
    return not any(brakes.is_frozen(cluster, workload.workload_key) for cluster in (twin, to))


def _larger_part(workload: Workload, twin: str, to: str) -> Part:
    return max(_live_parts(workload, twin, to), key=lambda part: part.replicas)


def _live_parts(workload: Workload, twin: str, to: str) -> list[Part]:
    """Returns the parts under both names that are not being removed, the first name's part first."""
    parts = (workload.parts.get(name) for name in (to, twin))
    return [part for part in parts if part is not None and not part.removing]
