"""What is placed under a second name of an API server goes over to the first when the second is emptied, or leaves.

Both names mean the same objects, so nothing is to move and nothing to be removed.
"""

from dataclasses import replace
from itertools import islice

from planner.core.background.aftermath import Step
from planner.core.knowledge.allowance import CAUSE_DUPLICATE, Allowance
from planner.core.knowledge.state import PlannerState
from planner.core.knowledge.subject import Moment
from planner.core.knowledge.transfer import is_in_transfer
from planner.core.knowledge.workload import Workload
from planner.core.placement import placing
from planner.core.placement.shares import held_by_cluster
from spillway.model import Part


def due(state: PlannerState) -> list[tuple[Workload, str]]:
    """Returns a bounded number of workloads that a duplicate is to hand over, each with the name of the duplicate."""
    found = (
        (state.workloads[key], view.name)
        for view in state.clusters.values()
        if view.hands_to
        for key in state.keys_in(view.name)
        if _may_go(state.workloads[key], view.name, view.hands_to, state.brakes)
    )
    return list(islice(found, state.rules.replans_max))


def next_step(state: PlannerState, workload: Workload, duplicate: str, moment: Moment) -> Step:
    """The placement in which the first name has what the duplicate had.

    Where both had a part, one object bore the number of one of them: the larger one is kept, so that none that runs is
    ended, and as many as the other one said are placed anew.
    """
    to = state.clusters[duplicate].hands_to
    held = held_by_cluster(state, workload, moment.now)
    base = _larger(workload, duplicate, to)
    taken = held[base.cluster]
    held.pop(duplicate, None)
    held[to] = replace(taken, may_keep=0)
    why = placing.Why(CAUSE_DUPLICATE, frozenset((duplicate,)), taken={to: replace(base, cluster=to)})
    return Step(workload.key, placing.take_over(state, workload, held, why, moment).events, CAUSE_DUPLICATE)


def _may_go(workload: Workload, duplicate: str, to: str, brakes: Allowance) -> bool:
    """Not what is only being deleted there, nor what changes hands, nor what is frozen."""
    if is_in_transfer(workload) or not _live(workload, duplicate, to):
        return False
    return not any(brakes.frozen(cluster, workload.key) for cluster in (duplicate, to))


def _larger(workload: Workload, duplicate: str, to: str) -> Part:
    return max(_live(workload, duplicate, to), key=lambda part: part.replicas)


def _live(workload: Workload, duplicate: str, to: str) -> list[Part]:
    """The parts under both names that are not being removed, the first name's first."""
    parts = (workload.parts.get(name) for name in (to, duplicate))
    return [part for part in parts if part is not None and not part.removing]
