"""The room beside what is reserved in one cluster, for all kept shapes at once: room.room_on_nodes, over arrays."""

from collections.abc import Sequence

import numpy as np

from planner.core.kept_fits import KeptFits
from planner.core.kept_shapes import KeptShapes
from planner.core.room import NOT_ALL_BOUND, PROMISED, Room
from spillway.model import Int64s
from spillway.texts import counted

ONE_BY_ONE = 2
"""Shapes that are worked out when they are asked for; after so many, all that are kept are, in one go."""
PAIRS_MAX = 50_000
"""Of shapes and reservations that are worked out in one go."""
_UNBOUNDED = 2**62


class KeptRooms:
    """entries: (number of a shape, unbound replicas), each shape once. Void once nodes or reservations change."""

    def __init__(self, shapes: KeptShapes, fits: KeptFits, entries: Sequence[tuple[int, int]]) -> None:
        self._shapes, self._fits = shapes, fits
        self._others = np.array([number for number, _ in entries], np.int64)
        self._counts = np.array([count for _, count in entries], np.int64)
        self._slack = self._find_slack() if entries else self._counts
        self._found: dict[int, tuple[int, int, int]] = {}
        self._rooms: dict[int, Room] = {}

    def known(self, number: int) -> Room | None:
        """Of a shape that was asked about before."""
        return self._rooms.get(number)

    def room(self, number: int) -> Room:
        """Of a shape that is kept."""
        known = self._rooms.get(number)
        if known is None:
            known = self._rooms[number] = self._room(number)
        return known

    def _room(self, number: int) -> Room:
        fits = self._fits
        if not len(self._others):
            total = int(fits.total[number])
            return Room(total, total, fits.limited_by(number), fits.when_empty(number))
        if number not in self._found:
            self._find(number)
        certain, possible, bound_by = self._found[number]
        limit = fits.limited_by(number)
        if bound_by >= 0:
            limit = PROMISED.format(counted(int(self._counts[bound_by]), "promised replica"))
        elif certain != possible:
            limit += NOT_ALL_BOUND.format(counted(int(self._counts.sum())))
        return Room(certain, possible, limit, fits.when_empty(number))

    def _find(self, number: int) -> None:
        asked = np.array([number])
        if len(self._found) >= ONE_BY_ONE and len(self._fits.kept) * len(self._others) <= PAIRS_MAX:
            missing = self._fits.kept.copy()
            missing[list(self._found)] = False
            asked = np.flatnonzero(missing)
        found = self._find_all(asked)
        self._found.update(zip(asked.tolist(), zip(*(one.tolist() for one in found), strict=True), strict=True))

    def _find_slack(self) -> Int64s:
        """[k]: room that each reserved shape can lose and still bind all of its own."""
        others, counts = self._others, self._counts
        losses = np.minimum(self._shapes.losses[np.ix_(others, others)], self._fits.largest[others])
        costs = np.where(self._fits.meeting(others, others), losses, 0)
        np.fill_diagonal(costs, 0)
        slack: Int64s = self._fits.total[others] - counts - counts @ costs
        return slack

    def _find_all(self, asked: Int64s) -> tuple[Int64s, Int64s, Int64s]:
        """[asked]: certain, possible, and which reservation bounds the former; -1 for none."""
        fits, others, counts = self._fits, self._others, self._counts[:, None]
        differs = others[:, None] != asked
        meets = fits.meeting(others, asked) & differs
        costs = np.where(meets, np.minimum(self._shapes.losses[np.ix_(others, asked)], fits.largest[asked]), 0)
        total, same = fits.total[asked], (counts * ~differs).sum(axis=0)
        possible = np.maximum(total - same, 0)
        certain = np.minimum(possible, np.maximum(np.maximum(total - (counts * costs).sum(axis=0), 0) - same, 0))
        largest = fits.largest[others][:, None]
        costs_others = np.where(meets, np.minimum(self._shapes.losses[np.ix_(asked, others)].T, largest), 0)
        bounds = (self._slack >= 0)[:, None] & (costs_others > 0)
        allowed = np.where(bounds, self._slack[:, None] // np.maximum(costs_others, 1), _UNBOUNDED)
        which, least = allowed.argmin(axis=0), allowed.min(axis=0)
        return np.minimum(certain, least), possible, np.where(least < certain, which, -1)
