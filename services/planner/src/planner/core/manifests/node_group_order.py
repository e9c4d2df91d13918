"""In which order clusters are asked to make nodes: by what these cost, or by how soon they are there."""

from collections.abc import Iterable
from math import inf

from spillway.events import ClusterJoined
from spillway.model import SPLIT_CHEAPEST, NodeGroup

Claim = tuple[float, float]


def places(split: str, clusters: Iterable[ClusterJoined]) -> dict[str, int]:
    """By cluster, its place in the order of SPLIT_CHEAPEST or SPLIT_SOONEST, from 1; equals share one.

    A cluster stands where the best of its node groups does. What is not known of a group (0) comes last; among equally
    cheap ones the sooner is first, and the other way round.
    """
    claims = {
        cluster.cluster: min((_claim(split, group) for group in cluster.node_groups), default=(inf, inf))
        for cluster in clusters
    }
    order = {claim: place for place, claim in enumerate(sorted(set(claims.values())), start=1)}
    return {name: order[claim] for name, claim in claims.items()}


def _claim(split: str, group: NodeGroup) -> Claim:
    price, seconds = _price_of_a_core(group), float(group.lead_time_seconds) or inf
    return (price, seconds) if split == SPLIT_CHEAPEST else (seconds, price)


def _price_of_a_core(group: NodeGroup) -> float:
    """A large node is not dear because it is large."""
    cores = dict(group.allocatable).get("cpu", 0) / 1000
    return group.cost_per_hour / cores if cores and 0 < group.cost_per_hour < inf else inf
