"""Why replicas that run are to go elsewhere with nobody having asked for it by name: lost and draining clusters."""

from planner.core.allowance import CAUSE_DRAIN, CAUSE_FAILOVER, CAUSE_LOST
from planner.core.fleet import ClusterView
from planner.core.kinds import WHOLE
from planner.core.state import PlannerState, Workload
from planner.core.transfer import is_in_transfer
from spillway.events import PHASE_LOST


def moves_by_itself(workload: Workload) -> bool:
    """Not what goes whole to one cluster: it would be doubled by a move that nobody watches."""
    return workload.declared.kind not in WHOLE


def reasons(state: PlannerState, workload: Workload, now: float) -> dict[str, str]:
    """By cluster in which replicas are kept, the cause for which they are to go elsewhere."""
    found: dict[str, str] = {}
    if is_in_transfer(workload):
        return found
    for part in workload.placement.parts if workload.placement is not None else ():
        view = state.clusters.get(part.cluster)
        if part.replicas_kept and view is not None:
            cause = _cause(state, workload, view, now)
            if cause:
                found[part.cluster] = cause
    return found


def is_lost(state: PlannerState, workload: Workload, view: ClusterView, now: float) -> bool:
    """Whether the cluster is lost for as long as the workload's policy bears."""
    after = workload.declared.policy.on_cluster_loss_seconds
    lost = view.lost_seconds(now, state.rules.capacity_age_max)
    return bool(after) and lost is not None and lost >= after


def _cause(state: PlannerState, workload: Workload, view: ClusterView, now: float) -> str:
    if view.phase == PHASE_LOST:
        return CAUSE_LOST if state.is_lost_for_good(view.name, now) else ""
    if not moves_by_itself(workload):
        return ""
    if is_lost(state, workload, view, now):
        return CAUSE_FAILOVER
    return CAUSE_DRAIN if view.hands_over else ""
