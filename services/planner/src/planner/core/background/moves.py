"""Moves running replicas out of lost and draining clusters, and back again (README, "Moving what runs").

Also removes leaving replicas once their replacements are available.
"""

from collections.abc import Mapping
from dataclasses import replace

from planner.core.background.aftermath import AftermathStep
from planner.core.knowledge.allowance import (
    CAUSE_DRAIN,
    CAUSE_FAILOVER,
    CAUSE_LOST,
    CAUSE_POLICY,
    CAUSE_RETURN,
    CAUSE_SETTLED,
    Allowance,
)
from planner.core.knowledge.round_time import TimeShare
from planner.core.knowledge.state import PlannerState
from planner.core.knowledge.subject import Moment
from planner.core.knowledge.transfer import is_in_transfer
from planner.core.knowledge.workload import Workload
from planner.core.placement import placing
from planner.core.placement.misplaced import (
    find_all_misplaced,
    refresh_ruled_out,
    replicas_for_minima,
    replicas_ruled_out,
)
from planner.core.placement.outlook import rollout_stopped_in
from planner.core.placement.reasons import counts_to_move, hold_texts_by_cause, is_cluster_back, move_causes_by_cluster
from planner.core.placement.shares import is_done_in_cluster
from planner.core.requests.remembering import without_old_answers
from spillway.events import PHASE_LEAVING, PHASE_LOST, ClusterLeft, PlacementDecided, WorkloadObserved
from spillway.feasibility.cluster_view import ClusterView, WorkloadKey
from spillway.model import Part


def workloads_due_to_move(state: PlannerState, now: float, brakes: Allowance) -> list[Workload]:
    """Returns the workloads that can take a next step now, or whose reasons to wait have changed.

    A workload that only lacks room is not returned: it is due again when a cluster gets more room.
    """
    moved = [state.workloads[key] for key in state.to_look_at]
    found = {workload.workload_key: None for workload in moved if _may_settle_replicas(state, workload, now, brakes)}
    divisions = 0
    to_tell = []
    for key in _possibly_misplaced_workloads(state, now):
        workload = state.workloads[key]
        if divisions < state.rules.replans_max and _may_move(state, workload, now, brakes):
            found[key] = None
            divisions += 1
        elif _has_changed_move_waits(state, workload, now):
            to_tell.append(key)
    found.update((key, None) for key in to_tell[: max(0, state.rules.replans_max - divisions)])
    return [state.workloads[key] for key in found]


def next_move_step(state: PlannerState, workload: Workload, moment: Moment, brakes: Allowance) -> AftermathStep:
    """Returns the next step of one workload; without events when there is none."""
    step = _decide_move_step(state, workload, moment, brakes)
    placement = next((event for event in step.events if isinstance(event, PlacementDecided)), None)
    if placement is None:
        return step
    stopped = rollout_stopped_in(workload, workload.declared, placement.parts)
    if stopped == workload.declared.rollout_stopped_in:
        return step
    declared = without_old_answers(state.rules, workload.declared, moment)
    return replace(step, events=(replace(declared, rollout_stopped_in=stopped), *step.events))


def _decide_move_step(state: PlannerState, workload: Workload, moment: Moment, brakes: Allowance) -> AftermathStep:
    # A step makes one kind of change, and the most certain kind comes first: lost for good, back again, gone, moved.
    lost = _replicas_to_give_up(state, workload, moment.now, brakes)
    if lost:
        placed = placing.give_up_replicas(state, workload, lost, moment)
        _spend_budget(brakes, CAUSE_LOST, workload.workload_key, lost)
        return AftermathStep(workload.workload_key, placed.events, CAUSE_LOST)
    back = {
        cluster: count for cluster, count in _returning_replicas(state, workload, moment.now, brakes).items() if count
    }
    if back:
        placed = placing.return_lost_replicas(state, workload, back, moment)
        _spend_budget(brakes, CAUSE_RETURN, workload.workload_key, back)
        return AftermathStep(workload.workload_key, placed.events, CAUSE_RETURN)
    gone = _removable_leaving_replicas(state, workload, moment.now, brakes)
    if gone:
        placed = placing.remove_leaving_replicas(state, workload, gone, moment)
        return AftermathStep(workload.workload_key, placed.events, CAUSE_SETTLED)
    if workload.declared.deleting:
        return AftermathStep(workload.workload_key, (), "")
    return AftermathStep(
        workload.workload_key, placing.place_workload_again(state, workload, moment, brakes).events, ""
    )


def look_for_moves(state: PlannerState, now: float, time: TimeShare) -> bool:
    """Looks for replicas that should move, as long as there is time. Returns whether all workloads were looked at.

    Until then nobody knows how many replicas a cause would move, and whether it needs a confirmation. So the caller
    moves nothing, and the next call goes on.
    """
    return find_all_misplaced(state, time) and refresh_ruled_out(state, _possibly_misplaced_workloads(state, now), time)


def wanted_moves_by_cause(state: PlannerState, now: float) -> Mapping[tuple[str, str], int]:
    """Returns, by (cause, cluster), how many replicas would move if nothing held them back and there were room.

    A cause that goes on but has no replicas left to move is listed with 0.
    """
    found: dict[tuple[str, str], int] = {}
    find_all_misplaced(state)
    for key in state.misplaced:
        workload = state.workloads[key]
        over = replicas_ruled_out(state, workload)
        for cluster, why in move_causes_by_cluster(state, workload, now).items() if over else ():
            if why == CAUSE_POLICY:
                found[why, cluster] = found.get((why, cluster), 0) + over[cluster]
        for cluster, count in replicas_for_minima(state, workload).items():
            found[CAUSE_POLICY, cluster] = found.get((CAUSE_POLICY, cluster), 0) + count
    for cluster in _clusters_to_leave(state, now):
        found[_cause_of_cluster(state.clusters[cluster]), cluster] = 0
        for key in state.workload_keys_in(cluster):
            workload = state.workloads[key]
            cause = move_causes_by_cluster(state, workload, now).get(cluster)
            if cause and cause != CAUSE_POLICY:
                kept = workload.parts[cluster].replicas_kept
                found[cause, cluster] = found.get((cause, cluster), 0) + kept
    for key in state.moved:
        for part in state.workloads[key].parts.values():
            if part.replicas_lost and is_cluster_back(state, part.cluster, now):
                place = (CAUSE_RETURN, part.cluster)
                found[place] = found.get(place, 0) + part.replicas_lost
    return found


def _cause_of_cluster(view: ClusterView) -> str:
    if view.phase == PHASE_LOST:
        return CAUSE_LOST
    return CAUSE_DRAIN if view.must_hand_over else CAUSE_FAILOVER


def clusters_that_left(state: PlannerState) -> tuple[ClusterLeft, ...]:
    """Returns ClusterLeft for leaving or lost clusters that no placement lists any more.

    A leaving cluster stays until its loans are over; a lost one does not.
    """
    return tuple(
        ClusterLeft(view.name)
        for view in state.clusters.values()
        if (view.phase == PHASE_LOST or (view.phase == PHASE_LEAVING and not _is_in_a_loan(view)))
        and not any(True for _ in state.workload_keys_in(view.name))
    )


def _is_in_a_loan(view: ClusterView) -> bool:
    """Returns whether the cluster has lent or virtual nodes; always False for a second name of an API server."""
    return not view.twin_of and (view.nodes.has_lent_nodes or view.nodes.has_virtual_nodes)


# ── Who is due ──────────────────────────────────────────────────────────────────────────────────────────────────


def _clusters_to_leave(state: PlannerState, now: float) -> list[str]:
    """Returns the clusters that replicas may have to leave now."""
    age_max = state.rules.capacity_age_max
    return [
        view.name
        for view in state.clusters.values()
        if (view.must_hand_over and view.phase != PHASE_LOST)
        or state.is_lost_for_good(view.name, now)
        or view.lost_seconds(now, age_max) is not None
    ]


def _possibly_misplaced_workloads(state: PlannerState, now: float) -> dict[WorkloadKey, None]:
    keys = dict(state.misplaced)
    for cluster in _clusters_to_leave(state, now):
        keys.update((key, None) for key in state.workload_keys_in(cluster))
    return keys


def _may_move(state: PlannerState, workload: Workload, now: float, brakes: Allowance) -> bool:
    """Returns whether the workload has a new reason to be divided again, and no brake stops it."""
    if is_in_transfer(workload):
        return False
    if any(state.is_lost_for_good(cluster, now) for cluster in workload.parts):
        return bool(_replicas_to_give_up(state, workload, now, brakes))
    why = move_causes_by_cluster(state, workload, now)
    if workload.looked_at == (why, brakes.allowance_revision) or workload.declared.deleting:
        return False
    key, counts = workload.workload_key, counts_to_move(state, workload, why)
    minima = replicas_for_minima(state, workload)
    why, counts = {**dict.fromkeys(minima, CAUSE_POLICY), **why}, {**minima, **counts}
    if not why:
        return not any(brakes.is_frozen(cluster, key) for cluster in workload.parts)
    return any(brakes.allow_replicas(why[name], name, key, counts[name]) for name in why)


def _has_changed_move_waits(state: PlannerState, workload: Workload, now: float) -> bool:
    """Returns whether the workload's moves now wait for another brake or confirmation than its placement says."""
    if is_in_transfer(workload) or workload.declared.deleting:
        return False
    return workload.held_by != hold_texts_by_cause(state, workload, move_causes_by_cluster(state, workload, now), now)


def _may_settle_replicas(state: PlannerState, workload: Workload, now: float, brakes: Allowance) -> bool:
    """Returns whether lost replicas may count as kept again, or leaving replicas may be removed.

    If only a new status or a change of freshness can change the answer, the workload is not looked at again until then.
    """
    if is_in_transfer(workload):
        return False
    if any(_returning_replicas(state, workload, now, brakes).values()) or _removable_leaving_replicas(
        state, workload, now, brakes
    ):
        return True
    if _has_changed_move_waits(state, workload, now):
        return True
    held_up = any(
        (part.replicas_lost and state.is_fresh(part.cluster, now))
        or (part.replicas_leaving and (workload.workload_key, part.cluster) in state.timers)
        or brakes.is_frozen(part.cluster, workload.workload_key)
        for part in workload.parts.values()
    )
    if not held_up:
        state.to_look_at.pop(workload.workload_key, None)
    return False


# ── Out of clusters that will not return ────────────────────────────────────────────────────────────────────────


def _replicas_to_give_up(state: PlannerState, workload: Workload, now: float, brakes: Allowance) -> dict[str, int]:
    """Returns, by cluster that will not return, how many kept replicas are counted as lost now.

    The number is 0 for a part without kept replicas, which is then dropped.
    """
    found = {}
    for part in workload.parts.values():
        view = state.clusters.get(part.cluster)
        if view is None or view.hand_over_target or not state.is_lost_for_good(part.cluster, now):
            continue
        count = (
            brakes.allow_replicas(CAUSE_LOST, part.cluster, workload.workload_key, part.replicas_kept)
            if part.replicas_kept
            else 0
        )
        if count or not part.replicas_kept:  # A part without kept replicas moves none, so no brake holds it.
            found[part.cluster] = count
    return found


# ── Back from clusters that were lost ───────────────────────────────────────────────────────────────────────────


def _returning_replicas(state: PlannerState, workload: Workload, now: float, brakes: Allowance) -> dict[str, int]:
    """Returns, by cluster that is back, how many of the replicas lost there may count as kept again."""
    return {
        part.cluster: brakes.allow_replicas(CAUSE_RETURN, part.cluster, workload.workload_key, part.replicas_lost)
        for part in workload.parts.values()
        if part.replicas_lost and is_cluster_back(state, part.cluster, now)
    }


# ── Out once the others are available ───────────────────────────────────────────────────────────────────────────


def _removable_leaving_replicas(
    state: PlannerState, workload: Workload, now: float, brakes: Allowance
) -> dict[str, int]:
    """Returns, by cluster, how many leaving replicas may be removed.

    None may be removed while fewer replicas are available than are kept. That holds for unready replicas, too: a status
    may be a moment old, and these pods may be ready since. Otherwise, unready replicas may go at once, because a
    ReplicaSet that is scaled in removes unready pods first. During a rollout, only replicas that have been unbound for
    take_back_after count as unready.
    """
    parts = workload.parts.values()
    if not any(part.replicas_leaving for part in parts):
        return {}
    statuses = {
        part.cluster: status for part in parts if (status := _certain_status(state, workload, part, now)) is not None
    }
    available = sum(_available_replicas(part, statuses.get(part.cluster)) for part in parts)
    spare = available - sum(part.replicas_kept for part in parts)
    if spare < 0:
        return {}
    going = {}
    for part in parts:
        status = statuses.get(part.cluster)
        if not part.replicas_leaving or status is None or brakes.is_frozen(part.cluster, workload.workload_key):
            continue
        rolls = status.updated < status.replicas
        idle = part.replicas - min(part.replicas, max(status.ready, status.available))
        if rolls:
            idle = _unbound_for_long(state, workload, part, now)
        at_once = min(part.replicas_leaving, idle)
        running = min(part.replicas_leaving - at_once, spare)
        spare -= running
        going[part.cluster] = at_once + running
    return {cluster: count for cluster, count in going.items() if count}


def _unbound_for_long(state: PlannerState, workload: Workload, part: Part, now: float) -> int:
    """Returns how many replicas of the part have not bound for take_back_after.

    Returns 0 while no record shows the part as decided: then it is not known which of them have bound.
    """
    timer = state.timers.get((workload.workload_key, part.cluster))
    if (
        timer is None
        or not is_done_in_cluster(state, workload, part)
        or now - timer.since < state.rules.take_back_after
    ):
        return 0
    return min(timer.unbound, state.unbound_replicas(workload, part))


def _certain_status(state: PlannerState, workload: Workload, part: Part, now: float) -> WorkloadObserved | None:
    """Returns the status of a part if it is at the part's version, from a fresh cluster and from the newest turn.

    Returns None otherwise.
    """
    status = workload.statuses.get(part.cluster)
    if status is None or status.version != part.version or not state.is_fresh(part.cluster, now):
        return None
    if not state.owners.is_of_newest_turn(status):  # A removal is final, so the new owner must report first.
        return None
    return status


def _available_replicas(part: Part, status: WorkloadObserved | None) -> int:
    return min(part.replicas, status.available) if status is not None else 0


def _spend_budget(brakes: Allowance, cause: str, key: WorkloadKey, counts: Mapping[str, int]) -> None:
    for cluster, count in counts.items():
        brakes.spend_budget(cause, cluster, key, count)
