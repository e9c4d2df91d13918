"""Finds why running replicas must move without a request by name: the state of their clusters, or the policy."""

from collections.abc import Iterable, Mapping

from planner.core.division.situation import Division
from planner.core.division.tier_division import maximum_in_cluster
from planner.core.feasibility.limits import LimitCode
from planner.core.knowledge.allowance import CAUSE_DRAIN, CAUSE_FAILOVER, CAUSE_LOST, CAUSE_POLICY, CAUSE_RETURN
from planner.core.knowledge.state import PlannerState
from planner.core.knowledge.transfer import is_in_transfer
from planner.core.knowledge.workload import Workload
from planner.core.manifests.kinds import WHOLE
from planner.core.placement.misplaced import replicas_for_minima, replicas_ruled_out
from spillway.events import PHASE_LEAVING, PHASE_LOST
from spillway.feasibility.cluster_view import ClusterView
from spillway.model import Part
from spillway.texts import waiting_text


def may_move_by_itself(workload: Workload) -> bool:
    """Returns whether Spillway may move the workload without a person.

    A whole workload does not move by itself: a move that nobody watches could run it twice.
    """
    return workload.declared.kind not in WHOLE


def move_causes_by_cluster(state: PlannerState, workload: Workload, now: float) -> dict[str, str]:
    """Returns, for each cluster where kept replicas must go elsewhere, the cause."""
    found: dict[str, str] = {}
    if is_in_transfer(workload):
        return found
    over = replicas_ruled_out(state, workload) if may_move_by_itself(workload) else {}
    for part in workload.placement.parts if workload.placement is not None else ():
        view = state.clusters.get(part.cluster)
        if part.replicas_kept and view is not None:
            cause = _cause_to_leave(state, workload, view, now) or (CAUSE_POLICY if part.cluster in over else "")
            if cause:
                found[part.cluster] = cause
    return found


def counts_to_move(state: PlannerState, workload: Workload, why: Mapping[str, str]) -> dict[str, int]:
    """Returns, for each cluster with a cause, how many of its kept replicas the cause applies to.

    why: from move_causes_by_cluster().
    """
    over, parts = replicas_ruled_out(state, workload), workload.parts
    return {name: over[name] if cause == CAUSE_POLICY else parts[name].replicas_kept for name, cause in why.items()}


def is_cluster_back(state: PlannerState, cluster: str, now: float) -> bool:
    """Returns whether a cluster that was lost is fresh again and reports no trouble."""
    return state.is_fresh(cluster, now) and not state.clusters[cluster].trouble


def hold_texts_by_cause(
    state: PlannerState, workload: Workload, why: Mapping[str, str], now: float
) -> dict[tuple[str, str], str]:
    """Returns, by (cause, cluster), a text for users: the reason why replicas do not yet move, return or leave.

    The reason is a brake, a confirmation, the budget, or that a person must move them.
    why: from move_causes_by_cluster().
    """
    causes = list(why.items())
    for part in workload.placement.parts if workload.placement is not None else ():
        if part.replicas_lost and is_cluster_back(state, part.cluster, now):
            causes.append((part.cluster, CAUSE_RETURN))
        if part.replicas_leaving:
            causes.append((part.cluster, ""))
    causes += [(cluster, CAUSE_POLICY) for cluster in replicas_for_minima(state, workload) if cluster not in why]
    causes += [(cluster, CAUSE_DRAIN) for cluster in leaving_clusters_without_replicas(state, workload)]
    held = {(cause, cluster): state.brakes.why_held(cause, cluster, workload.workload_key) for cluster, cause in causes}
    for part in workload.parts.values() if not may_move_by_itself(workload) and not is_in_transfer(workload) else ():
        view = state.clusters.get(part.cluster)
        if view is None or view.hand_over_target:
            continue
        empty = view.phase == PHASE_LEAVING and is_empty_part(part)
        if (part.replicas_kept and view.must_hand_over and view.phase != PHASE_LOST) or empty:
            held[CAUSE_DRAIN, part.cluster] = f"a person: a {workload.declared.kind} does not move by itself"
    return {place: text for place, text in held.items() if text}


def held_moves_text(
    state: PlannerState,
    workload: Workload | None,
    parts: Iterable[Part],
    now: float,
    barred: Mapping[tuple[str, str], int],
) -> str:
    """Returns a text for users with the brakes and confirmations that moves wait for; empty when there are none.

    parts: the parts as they will be. barred: by (source, target), replicas that would move if the target were not
    frozen.
    """
    if workload is None:
        return ""
    there = {part.cluster: part for part in parts}
    texts = []
    why = move_causes_by_cluster(state, workload, now)
    counts = {**replicas_for_minima(state, workload), **counts_to_move(state, workload, why)}
    for (cause, cluster), what in sorted(hold_texts_by_cause(state, workload, why, now).items()):
        if cluster not in there:
            continue
        part = there[cluster]
        count, whose = min(part.replicas_kept, counts.get(cluster, part.replicas_kept)), f"kept in {cluster}"
        if cause == CAUSE_RETURN:
            count, whose = part.replicas_lost, f"lost in {cluster}"
        elif not cause:
            count, whose = part.replicas_leaving, f"leaving {cluster}"
        if count:
            texts.append(f"{waiting_text(count, whose)} for {what}")
        elif is_empty_part(part):
            texts.append(f"the object in {cluster}, of no replicas, waits for {what}")
    for (cluster, target), count in barred.items():
        texts.append(
            f"{waiting_text(count, f'kept in {cluster}')} "
            f"for {state.brakes.why_held('', target, workload.workload_key)}"
        )
    return f"held: {', '.join(texts)}" if texts else ""


def replicas_barred_by_freeze(division: Division) -> dict[tuple[str, str], int]:
    """Returns how many replicas stay because the only clusters with room for them are frozen.

    The key is (the cluster that they must leave, the frozen cluster that has room).
    """
    if division.basis is None or not any(division.stays.values()):
        return {}
    situation, rooms = division.basis.situation, dict[str, int]()
    limits = {limit.cluster: limit for limit in situation.policy.limits}
    for entry in division.inputs:
        if entry.limited_by.code is LimitCode.FROZEN:
            room = min(entry.certain, maximum_in_cluster(limits, entry.cluster) - entry.before)
            rooms[entry.cluster] = max(room, rooms.get(entry.cluster, 0))
    found = {}
    for cluster, count in division.stays.items():
        left = count if cluster not in situation.fixed else 0
        for target in sorted(rooms):
            taken = min(left, rooms[target])
            rooms[target], left = rooms[target] - taken, left - taken
            if taken:
                found[cluster, target] = taken
    return found


def is_empty_part(part: Part) -> bool:
    """Returns whether a part's object stays with 0 replicas: a StatefulSet's, or one adopted with 0 replicas."""
    return not part.replicas and not part.removing and not part.adopting and not part.disowning


def leaving_clusters_without_replicas(state: PlannerState, workload: Workload) -> list[str]:
    """Returns the leaving clusters where only an object without replicas is left, and that object may be removed."""
    if not may_move_by_itself(workload) or is_in_transfer(workload):
        return []
    clusters = state.clusters
    return [
        name
        for name, part in workload.parts.items()
        if is_empty_part(part)
        and name in clusters
        and clusters[name].phase == PHASE_LEAVING
        and not clusters[name].hand_over_target
    ]


def is_lost(state: PlannerState, workload: Workload, view: ClusterView, now: float) -> bool:
    """Returns whether the cluster has been lost for as long as the workload's policy allows."""
    after = workload.declared.policy.on_cluster_loss_seconds
    lost = view.lost_seconds(now, state.rules.capacity_age_max)
    return bool(after) and lost is not None and lost >= after


def _cause_to_leave(state: PlannerState, workload: Workload, view: ClusterView, now: float) -> str:
    """Returns the cause for which kept replicas must leave the cluster; empty when there is none."""
    if view.hand_over_target:
        return ""
    if view.phase == PHASE_LOST:
        return CAUSE_LOST if state.is_lost_for_good(view.name, now) else ""
    if not may_move_by_itself(workload):
        return ""
    if is_lost(state, workload, view, now):
        return CAUSE_FAILOVER
    return CAUSE_DRAIN if view.must_hand_over else ""
