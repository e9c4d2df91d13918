"""Reproduces KubeAdmiral's replica planner: weights, minima, maxima, capacities, and as little disruption as it makes.

Compatible to the replica, its oddities included (docs/strategies.md): overflow is counted twice, and may exceed the
replicas without a place. Source of the rules: KubeAdmiral's planner, read in November 2026.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from planner.core.compat.webster import fnv_1

EVERY_CLUSTER = "*"
UNBOUNDED = 2**63 - 1


@dataclass(frozen=True, slots=True)
class ClusterPreference:
    """The preference for one cluster: at least min replicas, at most max, beyond min in proportion to weight."""

    weight: int
    min: int = 0
    max: int = UNBOUNDED


@dataclass(frozen=True, slots=True)
class PlanInput:
    """The input of a plan.

    preferences: by cluster; EVERY_CLUSTER for clusters without one. A cluster with neither gets nothing.
    key: a text that, hashed with a cluster's name, orders clusters of equal weight.
    estimated: by cluster, the most replicas that are believed to fit in total; replicas above it become overflow.
    limited: by cluster, a hard bound of its replicas; replicas above it are not placed there.
    """

    replicas: int
    clusters: Sequence[str]
    preferences: Mapping[str, ClusterPreference]
    key: str = ""
    existing: Mapping[str, int] = field(default_factory=dict)
    estimated: Mapping[str, int] = field(default_factory=dict)
    limited: Mapping[str, int] = field(default_factory=dict)
    avoid_disruption: bool = False
    keep_unschedulable: bool = False


@dataclass(frozen=True, slots=True)
class PlanResult:
    """The plan: by cluster, the replicas that should run there.

    overflow: by cluster, further replicas above the estimate, which wait there in case they fit.
    """

    plan: Mapping[str, int]
    overflow: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _Entry:
    cluster: str
    preference: ClusterPreference


def plan_replicas(wish: PlanInput) -> PlanResult:
    """Returns the replicas by cluster, for all clusters with a preference."""
    entries = _sorted_entries(wish.key, _entries_with_preference(wish))
    desired, overflow, left = _distribute_replicas(wish, entries)
    if not wish.keep_unschedulable and wish.avoid_disruption:
        trimmed = {cluster: min(count, left) for cluster, count in overflow.items()}
        overflow = {cluster: count for cluster, count in trimmed.items() if count > 0}
    if not wish.avoid_disruption:
        return PlanResult(desired, overflow)
    current = {entry.cluster: _current_replicas(wish, entry.cluster) for entry in entries}
    return PlanResult(_least_disturbing_plan(wish, current, desired), overflow)


def _entries_with_preference(wish: PlanInput) -> Iterable[_Entry]:
    for cluster in wish.clusters:
        preference = wish.preferences.get(cluster, wish.preferences.get(EVERY_CLUSTER))
        if preference is not None:
            yield _Entry(cluster, preference)


def _sorted_entries(key: str, entries: Iterable[_Entry]) -> list[_Entry]:
    return sorted(entries, key=lambda entry: (-entry.preference.weight, fnv_1(entry.cluster + key)))


def _current_replicas(wish: PlanInput, cluster: str) -> int:
    count = wish.existing.get(cluster, 0)
    return min(count, wish.estimated.get(cluster, count), wish.limited.get(cluster, count))


def _distribute_replicas(wish: PlanInput, entries: Sequence[_Entry]) -> tuple[dict[str, int], dict[str, int], int]:
    """Gives each cluster its minimum first, and divides the rest by weight.

    Returns by cluster the replicas and the overflow above its estimate, then the number of replicas without a place.
    """
    given, overflow, left = dict[str, int](), dict[str, int](), wish.replicas
    for entry in entries:
        count = min(entry.preference.min, left)
        count = min(count, wish.limited.get(entry.cluster, count))
        fits = min(count, wish.estimated.get(entry.cluster, count))
        if fits < count:
            overflow[entry.cluster] = count - fits
        given[entry.cluster] = fits
        left -= fits
    left = _distribute_by_weight(wish, entries, given, overflow, left)
    return given, overflow, left


def _distribute_by_weight(
    wish: PlanInput, entries: Sequence[_Entry], given: dict[str, int], overflow: dict[str, int], left: int
) -> int:
    """Gives out the remaining replicas in loops over the clusters, each share rounded up.

    Returns the number of replicas without a place. It changes `given` and `overflow`.
    """
    open_entries = list(entries)
    placed = True
    while placed and left > 0:
        placed, total = False, sum(entry.preference.weight for entry in open_entries)
        to_share, still_open = left, []
        if total <= 0:
            break
        for entry in open_entries:
            extra = min(-(-to_share * entry.preference.weight // total), left)
            before = given.get(entry.cluster, 0)
            wanted = min(before + extra, entry.preference.max)
            wanted = min(wanted, wish.limited.get(entry.cluster, wanted))
            fits = min(wanted, wish.estimated.get(entry.cluster, wanted))
            if fits < wanted:
                overflow[entry.cluster] = overflow.get(entry.cluster, 0) + wanted - fits
            if fits >= before + extra:
                still_open.append(entry)
            given[entry.cluster] = fits
            left -= fits - before
            placed = placed or fits > before
        open_entries = still_open
    return left


def _least_disturbing_plan(wish: PlanInput, current: Mapping[str, int], desired: Mapping[str, int]) -> dict[str, int]:
    """Changes only clusters that must shrink, or only clusters that must grow, by the difference of the sums."""
    surplus = sum(current.values()) - sum(desired.values())
    if not surplus:
        return dict(current)
    distance = {cluster: count - desired[cluster] for cluster, count in current.items()}
    if surplus > 0:
        entries = [
            _Entry(cluster, ClusterPreference(count, 0, current[cluster]))
            for cluster, count in distance.items()
            if count > 0
        ]
        taken = _distribute_difference(wish, entries, surplus)
        return {cluster: count - taken.get(cluster, 0) for cluster, count in current.items()}
    entries = [
        _Entry(cluster, ClusterPreference(-count, 0, _room_below_maximum(wish, cluster, current)))
        for cluster, count in distance.items()
        if count < 0
    ]
    added = _distribute_difference(wish, entries, -surplus)
    return {cluster: count + added.get(cluster, 0) for cluster, count in current.items()}


def _room_below_maximum(wish: PlanInput, cluster: str, current: Mapping[str, int]) -> int:
    """Returns how many more replicas the cluster's own maximum allows. KubeAdmiral ignores EVERY_CLUSTER's here."""
    own = wish.preferences.get(cluster)
    return UNBOUNDED if own is None or own.max == UNBOUNDED else own.max - current[cluster]


def _distribute_difference(wish: PlanInput, entries: Iterable[_Entry], count: int) -> dict[str, int]:
    changed: dict[str, int] = {}
    bare = replace(wish, estimated={}, limited={})
    _distribute_by_weight(bare, _sorted_entries(wish.key, entries), changed, {}, count)
    return changed
