"""Splits replicas among the clusters of one tier. Each split gives out the replicas one by one.

So no cluster gets fewer replicas when there is one more in total. Ties are decided by the clusters' names.
"""

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Protocol

from planner.core.division.votes import apportion_seats
from spillway.model import (
    SPLIT_CHEAPEST,
    SPLIT_EVEN,
    SPLIT_MOST_REMAINING,
    SPLIT_PACK,
    SPLIT_SOONEST,
    SPLIT_SPREAD,
    SPLIT_WEIGHTED,
)

Counts = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class TierStanding:
    """The state of a tier's clusters, by name.

    held: replicas that each has now. When replicas are added, only clusters that have any are listed.
    room: how many more replicas each takes. When replicas are taken away, it is given only for splits in BY_ROOM.
    weights: above 0, only for SPLIT_WEIGHTED and SPLITS_OF_NODE_GROUPS. For the latter they are places in an order.
    """

    held: Counts
    room: Counts
    weights: Counts = field(default_factory=dict)


class Split(Protocol):
    """One way to split. Callers never add more replicas than there is room, and never remove more than are spare."""

    def replicas_to_add(self, replicas: int, standing: TierStanding) -> dict[str, int]:
        """Returns the replicas to add by cluster, at most the room of each."""

    def replicas_to_remove(self, surplus: int, spare: Counts, standing: TierStanding) -> dict[str, int]:
        """Returns the replicas to take away by cluster, at most what each can spare."""


def divide_growth(split: str, replicas: int, standing: TierStanding) -> dict[str, int]:
    """Returns the replicas to add by cluster, without zeros. Replicas beyond the sum of rooms are not given out."""
    if min(standing.room.values(), default=1) <= 0:
        room = {name: count for name, count in standing.room.items() if count > 0}
        standing = TierStanding(standing.held, room, standing.weights)
    found = find_split(split).replicas_to_add(min(replicas, sum(standing.room.values())), standing)
    return {name: count for name, count in found.items() if count}


def divide_shrinkage(split: str, surplus: int, spare: Counts, standing: TierStanding) -> dict[str, int]:
    """Returns the replicas to take away by cluster, without zeros."""
    spare = {name: count for name, count in spare.items() if count > 0}
    found = find_split(split).replicas_to_remove(min(surplus, sum(spare.values())), spare, standing)
    return {name: count for name, count in found.items() if count}


def find_split(name: str) -> Split:
    if name not in _SPLITS:
        raise ValueError(f"split {name!r}: expected one of {', '.join(_SPLITS)}")
    return _SPLITS[name]


class _Spread:
    """Splits in proportion: adds by room, takes away by the present replicas."""

    def replicas_to_add(self, replicas: int, standing: TierStanding) -> dict[str, int]:
        return apportion_seats(replicas, standing.room)

    def replicas_to_remove(self, surplus: int, spare: Counts, standing: TierStanding) -> dict[str, int]:
        kept = apportion_seats(sum(spare.values()) - surplus, spare)
        return {name: count - kept.get(name, 0) for name, count in spare.items()}


class _Pack:
    """Fills one cluster after the other: clusters with replicas first, then the largest room.

    Empties the smallest first.
    """

    def replicas_to_add(self, replicas: int, standing: TierStanding) -> dict[str, int]:
        room, held = standing.room, standing.held
        order = sorted(room, key=lambda name: (held.get(name, 0) == 0, -room[name], name))
        return _fill_in_order(order, room, replicas)

    def replicas_to_remove(self, surplus: int, spare: Counts, standing: TierStanding) -> dict[str, int]:
        return _fill_in_order(sorted(spare, key=lambda name: (spare[name], name)), spare, surplus)


class _ByPlace:
    """Fills one cluster after the other, in the order of their weights, then names. Empties them in reverse order."""

    def replicas_to_add(self, replicas: int, standing: TierStanding) -> dict[str, int]:
        return _fill_in_order(self._clusters_in_order(standing.room, standing), standing.room, replicas)

    def replicas_to_remove(self, surplus: int, spare: Counts, standing: TierStanding) -> dict[str, int]:
        return _fill_in_order(self._clusters_in_order(spare, standing)[::-1], spare, surplus)

    def _clusters_in_order(self, names: Counts, standing: TierStanding) -> list[str]:
        return sorted(names, key=lambda name: (standing.weights[name], name))


def _fill_in_order(names: list[str], most: Counts, replicas: int) -> dict[str, int]:
    given: dict[str, int] = {}
    for name in names:
        given[name] = min(most[name], replicas)
        replicas -= given[name]
    return given


class Claims(Protocol):
    """The order in which the clusters of a tier get replicas, one by one.

    claim_to_next_replica: returns a cluster's claim when it has `held` replicas. The smallest claim of all clusters is
    served first; ties are decided by name.
    held_at_level: returns how many replicas a cluster has once all claims below a level are served. It grows with the
    level.
    """

    def claim_to_next_replica(self, cluster: str, held: int) -> int | Fraction: ...

    def held_at_level(self, cluster: str, level: int) -> int: ...


@dataclass(frozen=True, slots=True)
class _ByClaim:
    """Gives each next replica to the cluster with the smallest claim that has room; takes away in reverse."""

    claims_of: Callable[[TierStanding], Claims]

    def replicas_to_add(self, replicas: int, standing: TierStanding) -> dict[str, int]:
        held = {name: standing.held.get(name, 0) for name in standing.room}
        most = {name: held[name] + count for name, count in standing.room.items()}
        after = serve_claims(self.claims_of(standing), held, most, replicas)
        return {name: after[name] - held[name] for name in held}

    def replicas_to_remove(self, surplus: int, spare: Counts, standing: TierStanding) -> dict[str, int]:
        held = {name: standing.held[name] for name in spare}
        least = {name: held[name] - count for name, count in spare.items()}
        after = serve_claims(self.claims_of(standing), least, held, sum(spare.values()) - surplus)
        return {name: held[name] - after[name] for name in held}


@dataclass(frozen=True, slots=True)
class _Even:
    """Serves the cluster with the fewest replicas first."""

    standing: TierStanding

    def claim_to_next_replica(self, cluster: str, held: int) -> int:
        return held

    def held_at_level(self, cluster: str, level: int) -> int:
        return level


@dataclass(frozen=True, slots=True)
class _MostRemaining:
    """Serves the cluster with the most room left first.

    Its claim is minus the room left, as the smallest is served first.
    """

    standing: TierStanding

    def claim_to_next_replica(self, cluster: str, held: int) -> int:
        return held - self._held_and_room(cluster)

    def held_at_level(self, cluster: str, level: int) -> int:
        return self._held_and_room(cluster) + level

    def _held_and_room(self, cluster: str) -> int:
        return self.standing.held.get(cluster, 0) + self.standing.room.get(cluster, 0)


@dataclass(frozen=True, slots=True)
class _Weighted:
    """Serves clusters in proportion to their weights, by Webster's method.

    A claim is (2·held + 1) / weight, multiplied by the sum of the weights.
    """

    standing: TierStanding

    def claim_to_next_replica(self, cluster: str, held: int) -> Fraction:
        return Fraction((2 * held + 1) * self._sum_of_weights(), self.standing.weights[cluster])

    def held_at_level(self, cluster: str, level: int) -> int:
        """Returns the number of h ≥ 0 with (2h + 1) · sum < weight · level: one replica for each served claim."""
        reached = (self.standing.weights[cluster] * level - 1) // self._sum_of_weights()
        return max(0, (reached - 1) // 2 + 1)

    def _sum_of_weights(self) -> int:
        return sum(self.standing.weights.values())


BY_ROOM = (SPLIT_MOST_REMAINING,)
"""The splits that look at the clusters' room also when replicas are taken away."""

_SPLITS: dict[str, Split] = {
    SPLIT_SPREAD: _Spread(),
    SPLIT_PACK: _Pack(),
    SPLIT_EVEN: _ByClaim(_Even),
    SPLIT_MOST_REMAINING: _ByClaim(_MostRemaining),
    SPLIT_WEIGHTED: _ByClaim(_Weighted),
    SPLIT_CHEAPEST: _ByPlace(),
    SPLIT_SOONEST: _ByPlace(),
}


def serve_claims(claims: Claims, least: Counts, most: Counts, replicas: int) -> dict[str, int]:
    """Returns the replicas of each cluster after `replicas` more were given out, between its least and its most.

    Finds the highest level of claims that the replicas suffice for. Then gives out the rest one by one: about as many
    as there are clusters, at most.
    """
    names = sorted(most)
    wanted = sum(least[name] for name in names) + replicas

    def held_by_cluster_at(level: int) -> dict[str, int]:
        return {name: min(max(claims.held_at_level(name, level), least[name]), most[name]) for name in names}

    low, high = -_level_beyond_claims(claims, most), _level_beyond_claims(claims, most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if sum(held_by_cluster_at(middle).values()) <= wanted else (low, middle)
    held = held_by_cluster_at(low)
    queue = [(claims.claim_to_next_replica(name, held[name]), name) for name in names if held[name] < most[name]]
    heapq.heapify(queue)
    for _ in range(wanted - sum(held.values())):
        _, name = queue[0]
        held[name] += 1
        if held[name] < most[name]:
            heapq.heapreplace(queue, (claims.claim_to_next_replica(name, held[name]), name))
        else:
            heapq.heappop(queue)
    return held


def _level_beyond_claims(claims: Claims, most: Counts) -> int:
    """Returns a level past every possible claim."""
    largest = max((claims.claim_to_next_replica(name, count) for name, count in most.items()), default=0)
    smallest = min((claims.claim_to_next_replica(name, 0) for name in most), default=0)
    return int(max(largest, -smallest)) + 2
