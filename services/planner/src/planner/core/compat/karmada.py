"""Reproduces Karmada's assignment to selected clusters: duplicated, static and dynamic weight, aggregated, tiers.

Compatible to the replica, its oddities included (docs/strategies.md): all or nothing, capacity ignored when replicas
become fewer, sums that wrap at 32 bits. Source of the rules: Karmada v1.19, read in November 2026.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from planner.core.compat.webster import divide_seats, tie_order_of_uid

DUPLICATED = "duplicated"
STATIC_WEIGHT = "static_weight"
DYNAMIC_WEIGHT = "dynamic_weight"
AGGREGATED = "aggregated"

Counts = Sequence[tuple[str, int]]
"""(cluster, replicas), in an order that matters."""


class Unschedulable(Exception):
    """There is not enough room for all replicas. Karmada then changes nothing at all."""


@dataclass(frozen=True, slots=True)
class WeightRule:
    """A weight for the named clusters, or for every cluster (None)."""

    clusters: tuple[str, ...] | None
    weight: int


@dataclass(frozen=True, slots=True)
class AssignmentTask:
    """The input of an assignment: a strategy, the total replicas, and the uid that decides ties.

    fresh: whether to divide all replicas anew. Existing replicas then count only as room. rules: for STATIC_WEIGHT.
    """

    strategy: str
    replicas: int
    uid: str = ""
    fresh: bool = False
    rules: tuple[WeightRule, ...] | None = None


@dataclass(frozen=True, slots=True)
class CandidateCluster:
    """A selected cluster.

    capacity: how many more replicas fit. with_existing: how many replicas of this workload fit in total.
    tier: 0 is filled first.
    """

    cluster: str
    capacity: int
    with_existing: int
    tier: int = 0


def assign_replicas(
    task: AssignmentTask, candidates: Sequence[CandidateCluster], existing: Counts, *, overflow: bool = False
) -> dict[str, int]:
    """Returns the replicas of each cluster that gets some.

    Raises Unschedulable, or ValueError without clusters or for an unknown strategy.
    existing: the result of the assignment before, in its order. overflow: use the tiers in order, each as far as it has
    room.
    """
    names = [candidate.cluster for candidate in candidates]
    if not names:
        raise ValueError("no clusters to assign replicas to")
    if task.strategy == DUPLICATED:
        return assign_duplicated(names, task.replicas)
    if task.strategy == STATIC_WEIGHT:
        found = assign_by_static_weight(names, task.rules, task.replicas, task.uid)
    elif task.strategy in (DYNAMIC_WEIGHT, AGGREGATED):
        by_tier = _assign_tiers if overflow else assign_by_capacity
        found = by_tier(task, candidates, existing)
    else:
        raise ValueError(f"strategy {task.strategy!r}: expected one that assigns replicas")
    return {cluster: count for cluster, count in found.items() if count}


def _assign_tiers(task: AssignmentTask, candidates: Sequence[CandidateCluster], existing: Counts) -> dict[str, int]:
    found: dict[str, int] = {}
    left = task.replicas
    for tier in sorted({candidate.tier for candidate in candidates}):
        members = [candidate for candidate in candidates if candidate.tier == tier]
        share = min(left, sum(candidate.with_existing for candidate in members))
        part = AssignmentTask(task.strategy, share, task.uid, task.fresh, task.rules)
        found |= assign_by_capacity(part, members, existing)
        left -= share
    if left > 0:
        raise Unschedulable(f"{left} of {task.replicas} replicas have no room in any tier")
    return found


def assign_duplicated(clusters: Sequence[str], replicas: int) -> dict[str, int]:
    """Returns the number of all replicas for each cluster, as every cluster gets them all."""
    return dict.fromkeys(clusters, replicas)


def assign_by_static_weight(
    clusters: Sequence[str], rules: Sequence[WeightRule] | None, replicas: int, uid: str
) -> dict[str, int]:
    """Divides by fixed weights: a cluster has the largest weight of its rules.

    Existing replicas and room do not matter. Clusters without a weight get nothing. If none has a weight, all weigh the
    same.
    """
    weights = {cluster: _largest_weight(cluster, rules or ()) for cluster in clusters}
    weights = {cluster: weight for cluster, weight in weights.items() if weight > 0} or dict.fromkeys(clusters, 1)
    return divide_weighted(replicas, weights, {}, uid)


def _largest_weight(cluster: str, rules: Sequence[WeightRule]) -> int:
    meant = (rule.weight for rule in rules if rule.clusters is None or cluster in rule.clusters)
    return max(meant, default=0)


def assign_by_capacity(
    task: AssignmentTask, candidates: Sequence[CandidateCluster], existing: Counts
) -> dict[str, int]:
    """Divides by dynamic weight or aggregated.

    New replicas are added in proportion to room. Replicas are removed in proportion to the existing ones.
    """
    names = {candidate.cluster for candidate in candidates}
    kept = {cluster: count for cluster, count in existing if cluster in names}
    total = sum(kept.values())
    if task.fresh:
        weights = [(entry.cluster, entry.capacity + kept.get(entry.cluster, 0)) for entry in candidates]
        return divide_new_replicas(task.strategy, task.replicas, _largest_first(weights), {}, task.uid)
    if total > task.replicas:
        return divide_new_replicas(task.strategy, task.replicas, _largest_first(list(kept.items())), {}, task.uid)
    if total == task.replicas:
        return kept
    weights = [(entry.cluster, entry.capacity) for entry in candidates]
    added = divide_new_replicas(task.strategy, task.replicas - total, _largest_first(weights), kept, task.uid)
    return {cluster: kept.get(cluster, 0) + added.get(cluster, 0) for cluster in dict.fromkeys((*added, *kept))}


def _largest_first(weights: Counts) -> Counts:
    return sorted(weights, key=lambda entry: -entry[1])


def divide_new_replicas(
    strategy: str, replicas: int, weights: Counts, existing: Mapping[str, int], uid: str
) -> dict[str, int]:
    """Divides new replicas by weights in their order. Raises Unschedulable if the 32-bit sum of weights is too small.

    AGGREGATED uses only the first clusters that together have room for all replicas. Clusters with existing replicas
    come first.
    """
    total = _wrap_to_int32(sum(weight for _, weight in weights))
    if total < replicas:
        raise Unschedulable(f"room for {total} of {replicas} replicas")
    if strategy == AGGREGATED:
        weights = sorted(weights, key=lambda entry: existing.get(entry[0], 0) <= 0)
        reached = list(accumulate(weight for _, weight in weights))
        enough = next((place for place, total in enumerate(reached, 1) if total >= replicas), len(weights))
        weights = weights[:enough]
    return divide_weighted(replicas, dict(weights), {}, uid)


def divide_weighted(replicas: int, weights: Mapping[str, int], existing: Mapping[str, int], uid: str) -> dict[str, int]:
    """Adds new replicas to existing ones by weight. Without any weight nothing is added."""
    if (not replicas and existing) or not sum(weights.values()):
        return dict(existing)
    return divide_seats(replicas, weights, existing, tie_order_of_uid(uid))


def _wrap_to_int32(value: int) -> int:
    return (value + 2**31) % 2**32 - 2**31
