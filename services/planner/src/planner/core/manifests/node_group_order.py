"""Orders clusters for new nodes: by the price of their node groups, or by how soon nodes are ready."""

from collections.abc import Iterable
from math import inf

from spillway.events import ClusterJoined
from spillway.model import SPLIT_CHEAPEST, NodeGroup

Claim = tuple[float, float]


def places_by_cluster(split: str, clusters: Iterable[ClusterJoined]) -> dict[str, int]:
    """Returns each cluster's place in the order of SPLIT_CHEAPEST or SPLIT_SOONEST, from 1; equal clusters share one.

    A cluster's place is that of its best node group. Unknown values (0) come last. Among groups with the same price the
    sooner one is first. Among groups that are ready equally soon the cheaper one is first.
    """
    claims = {
        cluster.cluster: min((_order_claim(split, group) for group in cluster.node_groups), default=(inf, inf))
        for cluster in clusters
    }
    order = {claim: place for place, claim in enumerate(sorted(set(claims.values())), start=1)}
    return {name: order[claim] for name, claim in claims.items()}


def _order_claim(split: str, group: NodeGroup) -> Claim:
    price, seconds = _price_per_core(group), float(group.lead_time_seconds) or inf
    return (price, seconds) if split == SPLIT_CHEAPEST else (seconds, price)


def _price_per_core(group: NodeGroup) -> float:
    """Returns the price per core, so that a large node does not count as expensive because of its size."""
    cores = dict(group.allocatable).get("cpu", 0) / 1000
    return group.cost_per_hour / cores if cores and 0 < group.cost_per_hour < inf else inf
