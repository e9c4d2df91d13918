"""Reproduces Karmada's selection of the clusters that take part, by their order and the spread constraints.

Compatible, its oddities included (docs/strategies.md): the set of regions is chosen without regard to their room.
Source of the rules: Karmada v1.19, read in November 2026. Karmada's search tries every set of regions; ours does not.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from planner.core.compat.karmada import DUPLICATED, STATIC_WEIGHT

BY_CLUSTER = "cluster"
BY_REGION = "region"
BY_ZONE = "zone"
BY_PROVIDER = "provider"
SCORE_WEIGHT = 1000
"""The weight of one replica in the score of a region, against the score of its clusters."""


class NotSelectable(Exception):
    """The clusters cannot meet the spread constraints."""


@dataclass(frozen=True, slots=True)
class SelectionSpread:
    """A spread constraint: at least and at most so many groups. Selection uses BY_CLUSTER and BY_REGION only."""

    by: str
    min_groups: int
    max_groups: int


@dataclass(frozen=True, slots=True)
class FeasibleCluster:
    """A feasible cluster.

    available: how many replicas of this workload it takes in total. score: 100 if it has some already, else 0.
    """

    cluster: str
    available: int
    score: int = 0
    tier: int = 0
    region: str = ""
    zones: tuple[str, ...] = ()
    provider: str = ""

    def group_names(self, by: str) -> tuple[str, ...]:
        """Returns the names of the cluster's groups of this kind. A cluster can be in several zones."""
        names = {BY_REGION: (self.region,), BY_ZONE: self.zones, BY_PROVIDER: (self.provider,)}[by]
        return tuple(name for name in names if name)


@dataclass(frozen=True, slots=True)
class ClusterGroup:
    """A region, zone or provider: its clusters in their order, and its score."""

    name: str
    clusters: tuple[FeasibleCluster, ...]
    score: int

    @property
    def available_replicas(self) -> int:
        return sum(place.available for place in self.clusters)


@dataclass(frozen=True, slots=True)
class SelectionRequest:
    """The input of a selection, in addition to the clusters."""

    strategy: str
    replicas: int
    spreads: tuple[SelectionSpread, ...] = ()

    def find_spread(self, by: str) -> SelectionSpread | None:
        return next((spread for spread in self.spreads if spread.by == by), None)


def select_clusters(request: SelectionRequest, places: Sequence[FeasibleCluster]) -> list[FeasibleCluster]:
    """Returns the clusters that take part, in the order of use. Raises NotSelectable.

    With static weights the constraints are ignored.
    """
    ordered = sort_clusters(places)
    if not request.spreads or request.strategy == STATIC_WEIGHT:
        return ordered
    if request.find_spread(BY_REGION) is not None:
        return select_by_region(request, group_clusters(request, ordered, BY_REGION))
    if request.find_spread(BY_CLUSTER) is not None:
        return select_best(request, ordered)
    raise NotSelectable("spread constraints are supported by cluster and by region only")


def sort_clusters(places: Sequence[FeasibleCluster], *, by_available: bool = True) -> list[FeasibleCluster]:
    """Sorts by tier ascending, score descending, room descending, name ascending."""
    return sorted(
        places, key=lambda place: (place.tier, -place.score, -place.available if by_available else 0, place.cluster)
    )


# ── By clusters ─────────────────────────────────────────────────────────────────────────────────────────────────


def select_best(request: SelectionRequest, ordered: Sequence[FeasibleCluster]) -> list[FeasibleCluster]:
    """Returns the first max_groups clusters. If their room is not enough, larger clusters replace some of them."""
    spread = request.find_spread(BY_CLUSTER)
    if spread is None or request.strategy == STATIC_WEIGHT:
        return list(ordered)
    if len(ordered) < spread.min_groups:
        raise NotSelectable(f"{len(ordered)} clusters can take the workload: minGroups asks for {spread.min_groups}")
    count = min(len(ordered), spread.max_groups)
    chosen, rest = list(ordered[:count]), list(ordered[count:])
    if request.strategy == DUPLICATED:
        return chosen
    for place in reversed(range(count)):
        if _total_available(chosen) >= request.replicas:
            break
        best = max(rest, key=lambda other: other.available, default=None)
        if best is not None and best.available > chosen[place].available:
            index = rest.index(best)
            chosen[place], rest[index] = best, chosen[place]
    if _total_available(chosen) < request.replicas:
        raise NotSelectable(f"no {count} clusters have room for {request.replicas} replicas")
    return chosen


def _total_available(places: Sequence[FeasibleCluster]) -> int:
    return sum(place.available for place in places)


# ── By regions ──────────────────────────────────────────────────────────────────────────────────────────────────


def group_clusters(request: SelectionRequest, ordered: Sequence[FeasibleCluster], by: str) -> list[ClusterGroup]:
    """Returns the groups by name; none without a spread constraint by that field."""
    spread = request.find_spread(by)
    if spread is None:
        return []
    members: dict[str, list[FeasibleCluster]] = {}
    for place in ordered:
        for name in place.group_names(by):
            members.setdefault(name, []).append(place)
    return [
        ClusterGroup(name, tuple(members[name]), score_of_group(request, members[name], spread.min_groups))
        for name in sorted(members)
    ]


def score_of_group(request: SelectionRequest, places: Sequence[FeasibleCluster], min_groups: int) -> int:
    """Returns the score of a group. The replicas that it can take of its share weigh SCORE_WEIGHT each.

    The mean score of its clusters is added. With DUPLICATED, the clusters that can take all replicas weigh as much.
    """
    if request.strategy == DUPLICATED:
        fitting = [place for place in places if place.available >= request.replicas]
        return len(fitting) * SCORE_WEIGHT + _mean_score(fitting, len(fitting)) if fitting else 0
    share = -(-request.replicas // min_groups) if min_groups else request.replicas
    by_cluster = request.find_spread(BY_CLUSTER)
    least = max(min_groups, by_cluster.min_groups if by_cluster is not None else 0)
    total = 0
    for count, place in enumerate(places, 1):
        total += place.available
        if count >= least and total >= share:
            return share * SCORE_WEIGHT + _mean_score(places[:count], count)
    if total < share:
        return total * SCORE_WEIGHT + _mean_score(places, len(places))
    return share * SCORE_WEIGHT + _mean_score(places, len(places))


def _mean_score(places: Sequence[FeasibleCluster], count: int) -> int:
    return sum(place.score for place in places) // count if count else 0


def select_by_region(request: SelectionRequest, regions: Sequence[ClusterGroup]) -> list[FeasibleCluster]:
    """Returns the first cluster of every chosen region, then the best other clusters of these regions.

    Raises NotSelectable.
    """
    by_region, by_cluster = request.find_spread(BY_REGION), request.find_spread(BY_CLUSTER)
    assert by_region is not None
    if len(regions) < by_region.min_groups:
        raise NotSelectable(f"{len(regions)} regions can take the workload: minGroups asks for {by_region.min_groups}")
    sizes = [RegionSize(region.name, len(region.clusters), region.score) for region in regions]
    least = by_cluster.min_groups if by_cluster is not None else 0
    names = select_groups(sizes, by_region.min_groups, by_region.max_groups, least)
    if not names:
        raise NotSelectable(f"no set of regions has {least} clusters")
    by_name = {region.name: region for region in regions}
    chosen = [by_name[name].clusters[0] for name in names]
    rest = sort_clusters([place for name in names for place in by_name[name].clusters[1:]])
    most = by_cluster.max_groups if by_cluster is not None else 0
    count = len(chosen) + len(rest)
    if most:
        count = min(count, most)
    return chosen + rest[: max(0, count - len(chosen))]


@dataclass(frozen=True, slots=True)
class RegionSize:
    """A region with the values that the search for a set of regions needs. clusters: their number."""

    name: str
    clusters: int
    score: int


Path = tuple[RegionSize, ...]
Worth = tuple[int, int]
"""(score, number of clusters) of a set. Sets are compared by it."""
State = tuple[int, int]
"""(number of groups, number of their clusters) of a set so far. The search needs no more of the set."""


def select_groups(groups: Sequence[RegionSize], min_groups: int, max_groups: int, min_clusters: int) -> list[str]:
    """Returns the names of the best set of groups, best first; empty when there is none.

    The best set has the largest score, then the most clusters, then it is the one that Karmada's search finds first.
    The result is the shortest prefix of that set, by score, that still meets the constraints. Karmada tries every set,
    depth first in the order of `groups_in_order`, and adds no group to a set that is large enough. This function finds
    the same set without trying all sets.
    """
    if len(groups) < min_groups:
        return []
    if len(groups) == min_groups:
        winner = _groups_by_score(groups) if sum(group.clusters for group in groups) >= min_clusters else ()
        return [group.name for group in winner]
    ordered = sorted(groups, key=lambda group: (group.clusters, -group.score, group.name))
    search = _Search(ordered, min_groups, max_groups, min_clusters)
    winner = _groups_by_score(search.find_best_set())
    beginnings = (winner[:count] for count in range(1, len(winner)))
    return [group.name for group in next(filter(search.is_complete_set, beginnings), winner)]


def _groups_by_score(path: Sequence[RegionSize]) -> Path:
    return tuple(sorted(path, key=lambda group: (-group.score, group.name)))


@dataclass(frozen=True, slots=True)
class _Search:
    """Searches sets of groups that are large enough, and too small without their last group in the groups' order."""

    groups_in_order: Sequence[RegionSize]
    min_groups: int
    max_groups: int
    min_clusters: int

    def is_complete_set(self, path: Path) -> bool:
        inner = sorted(path, key=self.groups_in_order.index)
        states = [(count, sum(group.clusters for group in inner[:count])) for count in range(len(inner) + 1)]
        return (
            len(inner) <= self.max_groups
            and self._is_large_enough(states[-1])
            and not self._is_large_enough(states[-2])
        )

    def find_best_set(self) -> Path:
        """Returns the best set that a depth-first search finds first; empty when no set is large enough."""
        worths = self._best_worths_by_state()
        path, state = list[RegionSize](), (0, 0)
        for index, group in enumerate(self.groups_in_order):
            if worths[index][state] is None:
                return ()
            if self._worth_with_group(group, state, worths[index + 1]) == worths[index][state]:
                path.append(group)
                state = self._state_with_group(group, state)
                if self._is_large_enough(state):
                    break
        return tuple(path)

    def _best_worths_by_state(self) -> list[dict[State, Worth | None]]:
        """Returns, for each index in the order and each State before that index, the best Worth that can be added.

        None: no set that continues from there is large enough.
        """
        reached: list[set[State]] = [{(0, 0)}]
        for group in self.groups_in_order:
            more = (self._state_with_group(group, state) for state in reached[-1])
            reached.append(reached[-1] | {state for state in more if self._may_add_group(state)})
        worths: list[dict[State, Worth | None]] = [dict.fromkeys(reached[-1])]
        for group, states in zip(reversed(self.groups_in_order), reversed(reached[:-1]), strict=True):
            after = worths[-1]
            worths.append(
                {state: _better_worth(self._worth_with_group(group, state, after), after[state]) for state in states}
            )
        return worths[::-1]

    def _worth_with_group(self, group: RegionSize, state: State, after: dict[State, Worth | None]) -> Worth | None:
        """Returns the best Worth that a set can still add if it takes this group; None if no set follows."""
        then = self._state_with_group(group, state)
        rest = (0, 0) if self._is_large_enough(then) and then[0] <= self.max_groups else after.get(then)
        return None if rest is None else (group.score + rest[0], group.clusters + rest[1])

    def _state_with_group(self, group: RegionSize, state: State) -> State:
        return state[0] + 1, min(state[1] + group.clusters, max(self.min_clusters, 0))

    def _is_large_enough(self, state: State) -> bool:
        return state[0] >= max(1, self.min_groups) and state[1] >= self.min_clusters

    def _may_add_group(self, state: State) -> bool:
        return state[0] < self.max_groups and not self._is_large_enough(state)


def _better_worth(one: Worth | None, other: Worth | None) -> Worth | None:
    return max((worth for worth in (one, other) if worth is not None), default=None)
