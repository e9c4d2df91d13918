"""Computes how many replicas nodes take together under ceilings on the pods of each domain: the least and the most.

A ceiling is a topology spread constraint (at most `skew` above the emptiest domain) or an anti-affinity of replicas to
each other (at most one in a domain). The cluster's scheduler picks any node that no ceiling bars, one pod at a time,
until all nodes are barred or full. Its picks may decide how many pods that are.

One ceiling: the number is the same for all picks. The emptiest domain rises until it is full, to m = min over domains
of (pods there + room); the others rise to m + skew.

Several ceilings over nested domains (hosts in zones): at the end, called a standstill here, each domain is full, or at
its ceiling, or barred by an outer domain. The sum over the domains, from the inner to the outer ones, is the least
number. The most is the same sum with the ceilings as high as they can get.

Domains that cross each other: each placed pod bars at most one place for each ceiling. So any order reaches 1/k of the
replicas that k ceilings let in.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from spillway.feasibility.nodes import NO_DOMAIN
from spillway.model import Int64s

Bools = npt.NDArray[np.bool_]

UNBOUNDED = 2**40
STEPS_MAX = 128
"""The most ranges of levels that are ruled out for the emptiest inner domain. After these steps the level that was
reached is used, which may be too low."""
ROUNDS = 4


@dataclass(frozen=True, slots=True, eq=False)
class Ceiling:
    """A limit on the pods of each domain.

    domains: [rows], NO_DOMAIN where the ceiling does not apply. present: [domains], pods that count already.
    counted: [domains], whether a domain counts when the emptiest one is sought; None: the ceiling is skew, independent
    of other domains.
    """

    domains: Int64s
    present: Int64s
    skew: int
    counted: Bools | None

    def sums_by_domain(self, amounts: Int64s) -> Int64s:
        """Returns [domains]: the sums of amounts [rows]."""
        return _sums_by_domain(self.domains, amounts, len(self.present))

    def height_once_filled(self, room: Int64s) -> int:
        """Returns the height of the ceiling once the emptiest domain has taken all that it can. room: [domains]."""
        if self.counted is None:
            return self.skew
        return self.skew + int((self.present + room)[self.counted].min(initial=UNBOUNDED))

    @property
    def lowest_height(self) -> int:
        return self.height_once_filled(np.zeros(len(self.present), np.int64))

    def sum_outside_domains(self, amounts: Int64s) -> int:
        """Returns the sum of amounts [rows] on nodes without a domain."""
        return int(amounts[self.domains == NO_DOMAIN].sum())


class SpreadBound:
    """The least and the most replicas under ceilings. takes: [rows], the replicas that each node takes by itself."""

    def __init__(self, takes: Int64s, ceilings: Sequence[Ceiling]) -> None:
        self.takes = takes
        self.ceilings = sorted(ceilings, key=lambda ceiling: -_domains_in_play(ceiling, takes))
        """The ceilings from the finest domains to the coarsest."""
        self._nested = _nested_ceilings(takes, self.ceilings)
        self._certain: dict[int, int] = {}
        self.possible = self._compute_possible_replicas()

    @property
    def extra_places_per_pod(self) -> int:
        """Returns how many places one more pod can cost besides its own, if every ceiling counts it."""
        return len(self.ceilings)

    def certain_replicas(self, lost: int = 0) -> int:
        """Returns the replicas that fit whatever the scheduler picks, after the worst loss of room for `lost` ones."""
        if lost not in self._certain:
            self._certain[lost] = max(0, min(self._find_certain_replicas(lost), self.possible))
        return self._certain[lost]

    def _find_certain_replicas(self, lost: int) -> int:
        if not self.ceilings:
            return int(self.takes.sum()) - lost
        if len(self.ceilings) == 1:
            (only,) = self.ceilings
            room = only.sums_by_domain(self.takes)
            height = only.height_once_filled(np.maximum(room - lost, 0))
            return int(np.clip(height - only.present, 0, room).sum()) + only.sum_outside_domains(self.takes) - lost
        if self._nested is None:
            # Domains that cross: 1/k of what k ceilings let in, rounded up (see the top of this module).
            return -(-max(0, self._packed_replicas() - lost) // len(self.ceilings))
        return self._nested.least_replicas(lost) - lost

    def _compute_possible_replicas(self) -> int:
        takes, most = self.takes, int(self.takes.sum())
        for _ in range(ROUNDS):
            before = most
            for ceiling in self.ceilings:
                room = ceiling.sums_by_domain(takes)
                allowed = np.clip(ceiling.height_once_filled(room) - ceiling.present, 0, room)
                most = min(most, int(allowed.sum()) + ceiling.sum_outside_domains(takes))
                bounded = ceiling.domains != NO_DOMAIN
                takes = np.where(bounded, np.minimum(takes, np.append(allowed, 0)[ceiling.domains]), takes)
            if most == before:
                break
        if self._nested is None:
            return most
        heights = [ceiling.height_once_filled(ceiling.sums_by_domain(self.takes)) for ceiling in self.ceilings]
        return min(most, self._nested.total_replicas(heights))

    def _packed_replicas(self) -> int:
        """Returns how many replicas one arrangement places with all ceilings at their lowest. Others may place more."""
        rows = np.flatnonzero(self.takes)
        keys = np.stack([ceiling.domains[rows] for ceiling in self.ceilings])
        kinds, kind_of_row = np.unique(keys, axis=1, return_inverse=True)
        takes = np.bincount(kind_of_row.reshape(-1), self.takes[rows]).astype(np.int64).tolist()
        left = [np.append(ceiling.lowest_height - ceiling.present, UNBOUNDED).tolist() for ceiling in self.ceilings]
        total = 0
        for kind, here in zip(kinds.T.tolist(), takes, strict=True):
            taken = max(0, min(here, *(places[domain] for places, domain in zip(left, kind, strict=True))))
            for places, domain in zip(left, kind, strict=True):
                places[domain] -= taken
            total += taken
        return total


class _Nested:
    """Ceilings whose domains lie within the domains of the next ceiling. parents: the outer domain of each domain."""

    def __init__(self, takes: Int64s, ceilings: Sequence[Ceiling], parents: Sequence[Int64s]) -> None:
        self.ceilings = ceilings
        self.parents = parents
        self.rooms = [ceiling.sums_by_domain(takes) for ceiling in ceilings]

    def _replicas_by_domain(self, heights: Sequence[int]) -> list[Int64s]:
        """Returns [domains] for each ceiling: the replicas when each domain is full, at its height, or barred."""
        inner = self.rooms[0]
        levels = []
        for index, (ceiling, height) in enumerate(zip(self.ceilings, heights, strict=True)):
            levels.append(np.clip(height - ceiling.present, 0, inner))
            if index < len(self.parents):
                inner = _sums_by_domain(self.parents[index], levels[-1], len(self.ceilings[index + 1].present))
        return levels

    def total_replicas(self, heights: Sequence[int]) -> int:
        return int(self._replicas_by_domain(heights)[-1].sum())

    def _inner_room(self, levels: Sequence[Int64s], index: int) -> Int64s:
        """Returns [domains] of a ceiling: the replicas that the ceilings within it let in."""
        if index == 0:
            return self.rooms[0]
        return _sums_by_domain(self.parents[index - 1], levels[index - 1], len(self.ceilings[index].present))

    def _heights_at_standstill(self, index: int, emptiest: int, lost: int) -> tuple[list[int], list[Int64s]]:
        """Returns the lowest heights at a standstill, and the replicas by domain that follow from them.

        emptiest: the number of pods in the emptiest domain of the ceiling `index`, also called its level.
        """
        heights = [ceiling.lowest_height for ceiling in self.ceilings]
        if self.ceilings[index].counted is not None:
            heights[index] = emptiest + self.ceilings[index].skew
        levels = self._replicas_by_domain(heights)
        # Nothing bars the outermost domains from above: the emptiest of them is full, or barred within.
        heights[-1] = self.ceilings[-1].height_once_filled(
            np.maximum(self._inner_room(levels, len(self.ceilings) - 1) - lost, 0)
        )
        return heights, self._replicas_by_domain(heights)

    def least_replicas(self, lost: int) -> int:
        """Returns the least replicas at a standstill, before `lost` is subtracted."""
        moving = [index for index, ceiling in enumerate(self.ceilings[:-1]) if ceiling.counted is not None]
        if not moving:
            return int(self._heights_at_standstill(0, 0, lost)[1][-1].sum())
        index = moving[0]
        ceiling = self.ceilings[index]
        assert ceiling.counted is not None
        emptiest = int(ceiling.present[ceiling.counted].min(initial=UNBOUNDED))
        if emptiest >= UNBOUNDED:
            return 0
        bends = self._bend_levels(index, emptiest)
        for _ in range(STEPS_MAX):
            if self._may_stand_at_level(index, emptiest, lost):
                break
            emptiest = self._next_level(index, emptiest, lost, bends)
        return int(self._heights_at_standstill(index, emptiest, lost)[1][-1].sum())

    def _may_stand_at_level(self, index: int, emptiest: int, lost: int) -> bool:
        heights, levels = self._heights_at_standstill(index, emptiest, lost)
        return self._may_stand_with_heights(index, emptiest, heights, levels, lost)

    def _bend_levels(self, index: int, emptiest: int) -> list[int]:
        """Returns the levels above `emptiest` at which a domain begins to fill, is full, or is as low as the emptiest.

        Between two of these levels, the replicas in the domains grow by the same number for each level. Heights are the
        smallest of such sums. The most that the other domains can fill is one sum minus the smallest of such
        differences. So the number that a domain lacks until a standstill is possible is concave in that range. If it
        is not negative at both ends, there is no standstill in between.
        """
        ceiling, room = self.ceilings[index], self.rooms[index]
        low = ceiling.present[ceiling.counted] if ceiling.counted is not None else ceiling.present
        begins = ceiling.present - ceiling.skew
        full = low + room[ceiling.counted] if ceiling.counted is not None else low + room
        found = np.unique(np.concatenate((low, begins, begins + room, full)))
        return [int(one) for one in found[found > emptiest]]

    def _has_bend_between(self, index: int, least: int, most: int, lost: int) -> bool:
        """Returns whether an outermost domain has room for less than `lost` at the level `least`, more at `most`."""
        if not lost:
            return False
        last = len(self.ceilings) - 1
        before, after = (
            self._inner_room(self._heights_at_standstill(index, one, lost)[1], last) for one in (least, most)
        )
        return bool(((before < lost) & (after > lost)).any())

    def _next_level(self, index: int, emptiest: int, lost: int, bends: list[int]) -> int:
        """Returns the next level with a possible standstill, or a level below it. The present level has none."""
        bend = next((one for one in bends if one > emptiest), emptiest + 1)
        least, most = emptiest + 1, bend - 1
        while most > least and self._has_bend_between(index, emptiest, most, lost):
            most = (least + most) // 2
        if most <= least:
            return least
        if not self._may_stand_at_level(index, most, lost):
            return most + 1
        while least < most:  # Above the first level with a standstill, each level up to `most` has one.
            middle = (least + most) // 2
            least, most = (least, middle) if self._may_stand_at_level(index, middle, lost) else (middle + 1, most)
        return least

    def _may_stand_with_heights(
        self, index: int, emptiest: int, heights: Sequence[int], levels: Sequence[Int64s], lost: int
    ) -> bool:
        """Returns whether a standstill is possible while the emptiest domain of a ceiling is at this level.

        That domain is below its own ceiling. So it is full, or inner ceilings bar it, or a domain around it is at its
        height and filled by the other domains within.
        """
        ceiling = self.ceilings[index]
        low = (ceiling.present <= emptiest) & (ceiling.counted if ceiling.counted is not None else True)
        if bool((low & (ceiling.present + self._inner_room(levels, index) <= emptiest + lost)).any()):
            return True
        room, full = self.rooms[index], emptiest + ceiling.skew
        most = np.clip(full - ceiling.present, 0, room)
        # For each domain that may be the emptiest: the pods that it could have above `emptiest`, which it has not.
        short = np.where(low & (ceiling.present + most >= emptiest), ceiling.present + most - emptiest, UNBOUNDED)
        domains = np.arange(len(ceiling.present))
        for outer in range(index, len(self.ceilings) - 1):
            domains = np.append(self.parents[outer], NO_DOMAIN)[domains]
            above, size = self.ceilings[outer + 1], len(self.ceilings[outer + 1].present)
            shortest = np.full(size + 1, UNBOUNDED, np.int64)
            np.minimum.at(shortest, domains, short)
            most_there = _sums_by_domain(domains, most, size) - shortest[:size]
            if bool((heights[outer + 1] - above.present <= most_there).any()):
                return True
        return False


def _nested_ceilings(takes: Int64s, ceilings: Sequence[Ceiling]) -> _Nested | None:
    """Returns the nested ceilings; None if domains cross, or for one ceiling. A node without a domain gets its own."""
    if len(ceilings) < 2:
        return None
    rows = np.flatnonzero(takes)
    levels = [_with_single_node_domains(ceiling, rows) for ceiling in ceilings]
    parents = []
    for inner, outer in pairwise(levels):
        parent = np.full(len(inner.present), NO_DOMAIN, np.int64)
        parent[inner.domains[rows]] = outer.domains[rows]
        if not np.array_equal(parent[inner.domains[rows]], outer.domains[rows]):
            return None
        parents.append(parent)
    return _Nested(takes, levels, parents)


def _domains_in_play(ceiling: Ceiling, takes: Int64s) -> int:
    domains = ceiling.domains[takes > 0]
    without = int(np.count_nonzero(domains == NO_DOMAIN))
    return int(np.count_nonzero(np.bincount(domains[domains != NO_DOMAIN]))) + (without + 1 if without else 0)


def _with_single_node_domains(ceiling: Ceiling, rows: Int64s) -> Ceiling:
    """Returns the ceiling with a domain of its own for each of these rows that has none. It limits none of these."""
    alone = rows[ceiling.domains[rows] == NO_DOMAIN]
    if not len(alone):
        return ceiling
    domains, count = ceiling.domains.copy(), len(ceiling.present)
    domains[alone] = count + np.arange(len(alone))
    counted = None if ceiling.counted is None else np.append(ceiling.counted, np.zeros(len(alone), np.bool_))
    return Ceiling(domains, np.append(ceiling.present, np.full(len(alone), -UNBOUNDED)), ceiling.skew, counted)


def _sums_by_domain(domains: Int64s, amounts: Int64s, size: int) -> Int64s:
    there = domains != NO_DOMAIN
    return np.bincount(domains[there], amounts[there], minlength=size).astype(np.int64)
