"""Lists the workloads that a draining, leaving or lost cluster still has, and why each of them is still there."""

from collections.abc import Iterator
from heapq import nsmallest
from typing import Final

from planner.core.knowledge.allowance import CAUSE_DRAIN, CAUSE_LOST
from planner.core.knowledge.placement_waits import full_waits_text
from planner.core.knowledge.state import PlannerState
from planner.core.knowledge.transfer import is_in_transfer
from planner.core.knowledge.workload import Workload
from planner.core.placement.reasons import is_empty_part, may_move_by_itself
from spillway.api import WorkloadLeft
from spillway.api_clusters import LEFT_HELD, LEFT_LEAVING, LEFT_REMOVING, LEFT_WAITING
from spillway.events import PHASE_ACTIVE, PHASE_CORDONED, PHASE_LOST
from spillway.feasibility.cluster_view import ClusterView, WorkloadKey

LEFT_SHOWN: Final = 10
"""The number of workloads that are shown. Stuck workloads come first; if others are shown, they soon move on."""


def workloads_left_in(state: PlannerState, view: ClusterView, phase: str) -> tuple[WorkloadLeft, ...]:
    """Returns the first LEFT_SHOWN workloads of the cluster: first stuck ones, then ones with kept replicas.

    phase: the cluster's phase, now or from now on. A cluster that keeps its replicas (Active, Cordoned) has none.
    """
    if phase in (PHASE_ACTIVE, PHASE_CORDONED):
        return ()
    first = nsmallest(
        LEFT_SHOWN, state.workload_keys_in(view.name), key=lambda key: _stuck_rank(state.workloads[key], view.name)
    )
    return tuple(_workload_left(state, state.workloads[key], view, phase) for key in first)


def _stuck_rank(workload: Workload, cluster: str) -> tuple[int, WorkloadKey]:
    part = workload.parts[cluster]
    # A stuck workload will not leave by a move: its removal or transfer is awaited, or a person must move it.
    stuck = part.removing or is_in_transfer(workload) or not may_move_by_itself(workload)
    return 0 if stuck else 1 if part.replicas_kept else 2, workload.workload_key


def _workload_left(state: PlannerState, workload: Workload, view: ClusterView, phase: str) -> WorkloadLeft:
    part, said = workload.parts[view.name], workload.statuses.get(view.name)
    of_it = (*workload.workload_key, part.replicas)
    if part.removing:
        return WorkloadLeft(*of_it, LEFT_REMOVING, said.message if said is not None else "")
    if view.twin_of:
        return WorkloadLeft(*of_it, LEFT_WAITING, f"goes over to {view.twin_of}")
    if held := next(_hold_texts(state, workload, view.name, phase), ""):
        return WorkloadLeft(*of_it, LEFT_HELD, held)
    if part.replicas_kept or is_empty_part(part):
        waits = full_waits_text(workload.placement) if workload.placement is not None else ""
        return WorkloadLeft(*of_it, LEFT_WAITING, waits)
    return WorkloadLeft(*of_it, LEFT_LEAVING, "as many must be available elsewhere first")


def _hold_texts(state: PlannerState, workload: Workload, cluster: str, phase: str) -> Iterator[str]:
    """Yields texts for users: the reasons, other than room and the order of moves, why the workload stays there."""
    part = workload.parts[cluster]
    if workload.declared.disowning:
        yield "Disowning: our marks are still on it"
    elif is_in_transfer(workload):
        yield "Adopting: it is being taken over"
    stays = part.replicas_kept or is_empty_part(part)
    if stays and phase != PHASE_LOST and not may_move_by_itself(workload):
        yield f"a person: a {workload.declared.kind} does not move by itself"
    cause = (CAUSE_LOST if phase == PHASE_LOST else CAUSE_DRAIN) if stays else ""
    if held := state.brakes.why_held(cause, cluster, workload.workload_key):
        yield held
