"""Finds the clusters that a selector selects by looking up its entries, and not by comparing it with each cluster.

A policy may have 2,000 entries and a fleet 1,000 clusters. So a set of clusters is an integer here, in which each
cluster of the fleet has one bit. An entry of a selector costs one look-up, and one operation on integers.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import eq

from spillway.events import ClusterJoined
from spillway.kubernetes.pod_shape import matches_labels
from spillway.lending_marks import SUPPLY_CLASS
from spillway.model import (
    SUPPLY_CLOUD,
    SUPPLY_DEDICATED,
    TIER_CLOUD,
    ClusterSelector,
    ClusterWeight,
    Requirement,
)

ClusterBits = int
"""A set of clusters: bit n is set if the set has the n-th cluster of the fleet."""


def supply_class_of_cluster(cluster: ClusterJoined) -> str:
    """Returns the supply class in the cluster's label. Without the label, its tier decides: cloud or dedicated."""
    return dict(cluster.labels).get(SUPPLY_CLASS) or (SUPPLY_CLOUD if cluster.tier == TIER_CLOUD else SUPPLY_DEDICATED)


class ClusterIndex:
    """The clusters of a fleet by all that a selector can ask for.

    every, with_node_groups: all of them, and those that have node groups.
    """

    def __init__(self, clusters: Sequence[ClusterJoined]) -> None:
        """Reads each cluster once. If what a selector can ask for changes, another index is needed."""
        self._of = tuple(map(_selectable_facts, clusters))
        self.every: ClusterBits = (1 << len(clusters)) - 1
        self.with_node_groups: ClusterBits = sum(1 << place for place, one in enumerate(clusters) if one.node_groups)
        self._names = [cluster.cluster for cluster in clusters]
        self._by_name = _bits_by_value(self._names)
        self._by_tier = _bits_by_value(cluster.tier for cluster in clusters)
        self._by_region = _bits_by_value(cluster.region for cluster in clusters)
        self._by_zone = _bits_by_value(cluster.zone for cluster in clusters)
        self._by_supply_class = _bits_by_value(map(supply_class_of_cluster, clusters))
        self._by_label: dict[str, dict[str, ClusterBits]] = {}
        for place, cluster in enumerate(clusters):
            for key, value in dict(cluster.labels).items():
                by_value = self._by_label.setdefault(key, {})
                by_value[value] = by_value.get(value, 0) | 1 << place
        self._with_key = {key: _union_of(by_value, by_value) for key, by_value in self._by_label.items()}

    def is_index_of(self, clusters: Sequence[ClusterJoined]) -> bool:
        """Returns whether another index of these clusters would be equal: only their phases, say, have changed."""
        return len(self._of) == len(clusters) and all(map(eq, self._of, map(_selectable_facts, clusters)))

    def select_clusters(self, selector: ClusterSelector) -> ClusterBits:
        """Returns the clusters that the selector selects: those for which is_cluster_selected() is True."""
        found = self.every
        if selector.names:
            found &= _union_of(self._by_name, selector.names)
        if selector.tiers:
            found &= _union_of(self._by_tier, selector.tiers)
        if selector.regions:
            found &= _union_of(self._by_region, selector.regions)
        if selector.zones:
            found &= _union_of(self._by_zone, selector.zones)
        if selector.excluded:
            found &= ~_union_of(self._by_name, selector.excluded)
        if selector.supply_classes:
            found &= _union_of(self._by_supply_class, selector.supply_classes)
        for requirement in selector.labels:
            found &= self._meet_requirement(requirement)
        return found

    def select_weighted(self, weights: Iterable[ClusterWeight]) -> ClusterBits:
        """Returns the clusters that any weight above 0 selects."""
        found = 0
        for entry in weights:
            if entry.weight > 0:
                found |= self.select_clusters(entry.clusters)
        return found

    def largest_weights(self, weights: Iterable[ClusterWeight]) -> dict[str, int]:
        """Returns, for each cluster by name, the largest weight that selects it; 0 when none does."""
        found, rest = dict.fromkeys(self._names, 0), self.every
        for entry in sorted(weights, key=lambda entry: -entry.weight):
            if not rest or entry.weight <= 0:
                break
            new = self.select_clusters(entry.clusters) & rest
            if new:
                rest &= ~new
                found.update((name, entry.weight) for name in self.names_in(new))
        return found

    def bit_of(self, cluster: str) -> ClusterBits:
        """Returns the set of this cluster alone; the empty set if the fleet does not have it."""
        return self._by_name.get(cluster, 0)

    def names_in(self, clusters: ClusterBits) -> Iterator[str]:
        """Yields the names of a set's clusters, in the order of the fleet."""
        while clusters:
            lowest = clusters & -clusters
            yield self._names[lowest.bit_length() - 1]
            clusters ^= lowest

    def _meet_requirement(self, requirement: Requirement) -> ClusterBits:
        key = requirement.key
        by_value, present = self._by_label.get(key, {}), self._with_key.get(key, 0)
        match requirement.operator:
            case "In":
                return _union_of(by_value, requirement.values)
            case "NotIn":
                return self.every & ~_union_of(by_value, requirement.values)
            case "Exists":
                return present
            case "DoesNotExist":
                return self.every & ~present
        # A label selector has no other operator. So each value of the key may be compared here.
        return _union_of(by_value, (value for value in by_value if matches_labels((requirement,), {key: value})))


def _selectable_facts(cluster: ClusterJoined) -> tuple[object, ...]:
    return (cluster.cluster, cluster.tier, cluster.region, cluster.zone, cluster.labels, bool(cluster.node_groups))


def _bits_by_value(values: Iterable[str]) -> dict[str, ClusterBits]:
    """Returns the places of each value as bits."""
    found: dict[str, ClusterBits] = {}
    for place, value in enumerate(values):
        found[value] = found.get(value, 0) | 1 << place
    return found


def _union_of(bits_by_value: Mapping[str, ClusterBits], values: Iterable[str]) -> ClusterBits:
    found = 0
    for value in values:
        found |= bits_by_value.get(value, 0)
    return found
