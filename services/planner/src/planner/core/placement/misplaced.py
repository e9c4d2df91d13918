"""Finds replicas that run in clusters where their policy does not want them.

That happens after a cluster joined, after its labels changed, and after an adoption.
"""

from collections.abc import Iterable, Mapping

from planner.core.division.situation import Division
from planner.core.division.tier_division import maximum_in_cluster
from planner.core.knowledge.round_time import UNLIMITED_TIME, TimeShare
from planner.core.knowledge.state import PlannerState
from planner.core.knowledge.workload import Workload
from planner.core.manifests.cluster_index import ClusterBits
from planner.core.manifests.policy import FleetClusters, allowed_bits, bits_of_tiers
from spillway.feasibility.cluster_view import WorkloadKey
from spillway.model import Policy


def allowed_maximum(policy: Policy, cluster: str, clusters: FleetClusters) -> int:
    """Returns the most replicas that a policy's tiers and limits allow in a cluster; 0 if no tier selects it.

    Limits that the policy's strategy sets are not included.
    """
    index = clusters.cluster_index
    if not allowed_bits(policy.tiers, bits_of_tiers(policy.tiers, index), index) & index.bit_of(cluster):
        return 0
    return maximum_in_cluster({limit.cluster: limit for limit in policy.limits}, cluster)


def tier_bits_of_workload(state: PlannerState, workload: Workload) -> tuple[ClusterBits, ...]:
    """Returns bits_of_tiers() of the workload's policy. It is computed again only when the policy or what selectors can
    ask of the fleet's clusters has changed, however many other policies there are."""
    tiers, index = workload.declared.policy.tiers, state.joined_clusters().cluster_index
    known, found = workload.tier_bits
    if not _is_same_input(known, (tiers, index)):
        found = bits_of_tiers(tiers, index)
        workload.tier_bits = (tiers, index), found
    return found


def may_use_cluster(state: PlannerState, workload: Workload, cluster: str) -> bool:
    """Returns whether any tier of the workload's policy may place in the cluster."""
    index, of_tiers = state.joined_clusters().cluster_index, tier_bits_of_workload(state, workload)
    return bool(allowed_bits(workload.declared.policy.tiers, of_tiers, index) & index.bit_of(cluster))


def replicas_ruled_out(state: PlannerState, workload: Workload) -> dict[str, int]:
    """Returns, by cluster, kept replicas that the policy wants elsewhere and that no person sent there by name.

    The result is computed again only when the placement, the policy or the fleet's clusters have changed. Callers must
    not change it.
    """
    as_of = _inputs_of_ruled_out(state, workload)
    known, found = workload.ruled_out
    if not _is_same_input(known, as_of):
        found = _compute_ruled_out(state, workload)
        workload.ruled_out = as_of, found
    return found


def replicas_for_minima(state: PlannerState, workload: Workload) -> Mapping[str, int]:
    """Returns, by cluster, replicas that must leave for other clusters' minima and that the last division did not
    move."""
    as_of, found = workload.for_minima
    return found if _is_same_input(as_of, (workload.declared, state.joined_clusters())) else {}


def keep_replicas_for_minima(state: PlannerState, workload: Workload, division: Division) -> None:
    """Stores the replicas that must leave for minima and that the division did not move."""
    wanted = division.basis.for_minima if division.basis is not None else {}
    left = {cluster: count - division.moved.get(cluster, 0) for cluster, count in wanted.items()}
    counts = {cluster: count for cluster, count in left.items() if count > 0}
    workload.for_minima = (workload.declared, state.joined_clusters()), counts


def find_all_misplaced(state: PlannerState, time: TimeShare = UNLIMITED_TIME) -> bool:
    """Searches all workloads for misplaced replicas, once for each state, and at least one in each call.

    The planner before may have written a join and ended before it looked at the workloads. Returns whether all were
    searched; otherwise the time was over, and the next call goes on.
    """
    if state.to_look_through is None:
        state.to_look_through = list(reversed(state.workloads))
    while state.to_look_through:
        key = state.to_look_through.pop()
        workload = state.workloads.get(key)
        if workload is not None and (replicas_ruled_out(state, workload) or _has_unmet_minimum(workload)):
            state.misplaced[key] = None
        if time.is_over():
            return not state.to_look_through
    return True


def refresh_ruled_out(state: PlannerState, keys: Iterable[WorkloadKey], time: TimeShare) -> bool:
    """Computes replicas_ruled_out() of these workloads where it is not known: at least one in each call.

    Returns whether all are known; otherwise the time was over, and the next call goes on.
    """
    is_over = False
    for key in keys:
        workload = state.workloads[key]
        if not _is_same_input(workload.ruled_out[0], _inputs_of_ruled_out(state, workload)):
            if is_over:
                return False
            replicas_ruled_out(state, workload)
            is_over = time.is_over()
    return True


def _inputs_of_ruled_out(state: PlannerState, workload: Workload) -> tuple[object, ...]:
    return workload.placement, workload.declared.policy, state.joined_clusters()


def _has_unmet_minimum(workload: Workload) -> bool:
    """Returns whether any cluster has fewer kept replicas than the policy's minimum for it."""
    if workload.declared.deleting or not workload.declared.policy.limits:
        return False
    kept = {name: part.replicas_kept for name, part in workload.parts.items()}
    return any(limit.replicas_min > kept.get(limit.cluster, 0) for limit in workload.declared.policy.limits)


def _is_same_input(known: tuple[object, ...], as_of: tuple[object, ...]) -> bool:
    return len(known) == len(as_of) and all(one is other for one, other in zip(known, as_of, strict=True))


def _compute_ruled_out(state: PlannerState, workload: Workload) -> dict[str, int]:
    policy, found = workload.declared.policy, {}
    limits = {limit.cluster: limit for limit in policy.limits}
    for name, part in workload.parts.items():
        kept = part.replicas_kept
        most = maximum_in_cluster(limits, name) if kept and may_use_cluster(state, workload, name) else 0
        if policy.strategy is not None and most:
            continue
        # Replicas that a person sent there by name stay, even above the policy's maximum.
        over = min(kept - most, kept - min(part.replicas_by_name, kept))
        if over > 0:
            found[name] = over
    return found
