"""Chooses the replicas that a requested migration takes from each cluster, or refuses it with the reason."""

from collections.abc import Callable

from planner.core.division.words import limit_text
from planner.core.knowledge.state import PlannerState
from planner.core.knowledge.workload import Workload
from planner.core.manifests.request import check_replicas
from planner.core.placement.growth import growth_room
from planner.core.placement.reasons import may_move_by_itself
from planner.core.placement.shares import held_by_cluster
from planner.core.requests.answers import find_cluster_view
from spillway.api import MigrateRequest, RequestError, invalid_argument_error
from spillway.events import PHASE_ACTIVE
from spillway.feasibility.cluster_view import ClusterView
from spillway.texts import counted_noun


def replicas_by_source(state: PlannerState, workload: Workload, request: MigrateRequest, now: float) -> dict[str, int]:
    """Returns how many replicas leave each cluster for request.to_cluster; empty when all are there already.

    Raises RequestError when a cluster is unknown, stale or not active, when a brake holds, when the policy would move
    the replicas back, or when it is not certain that they all fit there.
    """
    key = workload.workload_key
    if not may_move_by_itself(workload):
        raise _refusal_error(
            key, f"a {workload.declared.kind} is not migrated: two clusters would have it at the same time"
        )
    strategy = workload.declared.policy.strategy
    if strategy is not None:
        raise _refusal_error(
            key, f"its policy's strategy, {strategy.name}, says what each cluster has: apply another policy"
        )
    target = find_cluster_view(state, request.to_cluster, "to_cluster")
    if request.from_cluster:
        find_cluster_view(state, request.from_cluster, "from_cluster")
        if request.from_cluster == request.to_cluster:
            raise invalid_argument_error("from_cluster", request.from_cluster, "a cluster other than to_cluster")
    counts = _replicas_to_take(state, workload, request)
    for cluster in (request.to_cluster, *counts):
        frozen = state.brakes.why_frozen(cluster, key)
        if frozen:
            raise _refusal_error(key, frozen)
        not_fresh = state.clusters[cluster].staleness_reason(now, state.rules.capacity_age_max)
        if not_fresh:
            raise _refusal_error(key, f"cluster {cluster!r}: {not_fresh}")
    if target.phase != PHASE_ACTIVE:
        raise _refusal_error(key, f"to_cluster: {target.name!r} is {target.phase}: expected an active cluster")
    if target.twin_reason:
        raise _refusal_error(key, f"to_cluster: {target.name!r}: {target.twin_reason}")
    _check_policy(state, workload, target, counts)
    _check_room(state, workload, target.name, sum(counts.values()), now)
    return counts


def _replicas_to_take(state: PlannerState, workload: Workload, request: MigrateRequest) -> dict[str, int]:
    kept = {
        part.cluster: part.replicas_kept
        for part in workload.parts.values()
        if part.replicas_kept
        and part.cluster != request.to_cluster
        and request.from_cluster in ("", part.cluster)
        and part.cluster in state.clusters
    }
    most = sum(kept.values())
    wanted = check_replicas(request.replicas, "replicas") or most
    if wanted > most:
        where = ", ".join(f"{cluster} {count}" for cluster, count in sorted(kept.items())) or "no replica runs there"
        raise invalid_argument_error("replicas", request.replicas, f"at most {most} ({where})")
    counts: dict[str, int] = {}
    tiers = _first_tiers(state, workload)
    for cluster in sorted(kept, key=lambda name: (-tiers(name), name)):
        counts[cluster] = min(kept[cluster], wanted - sum(counts.values()))
    return {cluster: count for cluster, count in counts.items() if count}


def _first_tiers(state: PlannerState, workload: Workload) -> Callable[[str], int]:
    """Returns a function from a cluster to the index of the policy's first tier that has it; the number of tiers when
    none has it. Weights of tiers do not count."""
    index, tiers = state.joined_clusters().cluster_index, workload.declared.policy.tiers
    selected = [index.select_clusters(tier.clusters) for tier in tiers]
    return lambda cluster: next((n for n, bits in enumerate(selected) if bits & index.bit_of(cluster)), len(tiers))


def _check_policy(state: PlannerState, workload: Workload, target: ClusterView, counts: dict[str, int]) -> None:
    """Raises RequestError if the policy's tiers or limits do not allow the move: replicas would move back at once."""
    parts, policy = workload.parts, workload.declared.policy
    if _first_tiers(state, workload)(target.name) == len(policy.tiers):
        raise _refusal_error(
            workload.workload_key, f"to_cluster: {target.name!r}: no tier of its policy has this cluster"
        )
    after = {cluster: parts[cluster].replicas_kept - count for cluster, count in counts.items()}
    there = parts[target.name].replicas_kept if target.name in parts else 0
    after[target.name] = there + sum(counts.values())
    for limit in policy.limits:
        count = after.get(limit.cluster, limit.replicas_min)
        too_many = 0 <= limit.replicas_max < count
        if count < limit.replicas_min or too_many:
            bound = f"at most {limit.replicas_max}" if too_many else f"at least {limit.replicas_min}"
            raise _refusal_error(
                workload.workload_key, f"{limit.cluster} would have {counted_noun(count)}: its policy says {bound}"
            )


def _check_room(state: PlannerState, workload: Workload, cluster: str, wanted: int, now: float) -> None:
    there = held_by_cluster(state, workload, now).get(cluster)
    room = growth_room(state, cluster, workload.possible_shapes_in(cluster), False, now, workload.workload_key)
    most = room.certain + (there.may_keep if there is not None else 0)
    if wanted > most:
        raise _refusal_error(
            workload.workload_key,
            f"only {most} of {wanted} replicas certainly fit in {cluster!r} ({limit_text(room.limited_by)})",
        )


def _refusal_error(key: tuple[str, str], why: str) -> RequestError:
    return RequestError("FAILED_PRECONDITION", f"workload {'/'.join(key)}: {why}")
