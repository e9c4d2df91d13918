"""Finds overflow, which is replicas in a later tier than one that might take them, and its home clusters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from planner.core.knowledge.workload import Workload
from planner.core.manifests.policy import FleetClusters, bits_of_tiers
from planner.core.placement.reasons import may_move_by_itself
from spillway.events import ClusterJoined
from spillway.model import Policy


@dataclass(frozen=True, slots=True)
class Overflow:
    """Replicas in a cluster that may go home.

    homes: the clusters of earlier tiers, if these tiers use existing nodes.
    """

    cluster: str
    replicas: int
    homes: tuple[str, ...]


def overflow_of_workload(workload: Workload, clusters: FleetClusters) -> tuple[Overflow, ...]:
    """Returns a workload's overflow by cluster, the last tier first, with or without room at home.

    clusters: all clusters of the fleet.
    """
    declared = workload.declared
    policy = declared.policy
    if policy.overflow_stays or policy.strategy is not None or len(policy.tiers) < 2:
        return ()
    if declared.deleting or not may_move_by_itself(workload):
        return ()
    kept = {name: part for name, part in workload.parts.items() if part.replicas_kept}
    tier_by_cluster = first_tier_by_cluster(policy, clusters)
    homes = _homes_by_tier(policy, clusters, tier_by_cluster)
    least = {limit.cluster: limit.replicas_min for limit in policy.limits}
    found = []
    for name in sorted(kept, key=lambda name: (-tier_by_cluster.get(name, 0), name)):
        index, part = tier_by_cluster.get(name, len(policy.tiers)), kept[name]
        count = part.replicas_kept - max(least.get(name, 0), min(part.replicas_by_name, part.replicas_kept))
        earlier = tuple(home for tier in range(index) for home in homes.get(tier, ()))
        if index < len(policy.tiers) and count > 0 and earlier:
            found.append(Overflow(name, count, earlier))
    return tuple(found)


def first_tier_by_cluster(policy: Policy, clusters: FleetClusters) -> dict[str, int]:
    """Returns, by cluster, the index of the first tier that places on its existing nodes; else of one on its new nodes.

    It is the number of tiers if no tier has the cluster.
    """
    found = {cluster.cluster: len(policy.tiers) for cluster in clusters}
    bits = bits_of_tiers(policy.tiers, clusters.cluster_index)
    for index, _ in sorted(enumerate(policy.tiers), key=lambda entry: (not entry[1].node_groups, -entry[0])):
        found.update(dict.fromkeys(clusters.cluster_index.names_in(bits[index]), index))
    return found


def _homes_by_tier(
    policy: Policy, clusters: Sequence[ClusterJoined], tier_by_cluster: Mapping[str, int]
) -> dict[int, list[str]]:
    """Returns home clusters by tier. Only tiers before the first tier of node groups have some: no replica goes home
    to a new node."""
    found: dict[int, list[str]] = {}
    last = next((index for index, tier in enumerate(policy.tiers) if tier.node_groups), len(policy.tiers))
    for cluster in clusters:
        index = tier_by_cluster[cluster.cluster]
        if index < last:
            found.setdefault(index, []).append(cluster.cluster)
    return found
