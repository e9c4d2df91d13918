"""What is reserved in all clusters, as matrices: what it costs more of a shape there, and what those would cost it.

The conditions are those of room.py, whose functions are what tests compare this with. One shape is asked about in many
clusters, or many shapes in one: both are the same arithmetic over a matrix of those that ask by those that are there.
"""

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

import numpy as np
import numpy.typing as npt

from planner.core.feasibility.kept_fits import FitTable, KeptFits
from planner.core.feasibility.kept_shapes import KeptShapes
from spillway.feasibility.node_match import Bools
from spillway.model import Int64s

NODES, EVERYWHERE = 0, 1
"""Layers: the nodes that exist, and those together with all that node groups could still make."""
UNBOUNDED = 2**62
WIDER, NARROWER = 1 + 2**-20, 1 - 2**-20
"""By more than what narrow floats may be off: they only say where whole numbers are to be looked at."""

Floats = npt.NDArray[np.float32]
Array = npt.NDArray[Any]
Rows = int | slice | Int64s
Numbers = int | Int64s
Found = tuple[Int64s, Int64s, Int64s]
"""Certain, possible, and the promised replicas that bound certain, −1 where none do; of several the most."""


class _Layer:
    """[rows, places], of each that is reserved. most: replicas on one node at the most. slack: room that it can lose
    and still bind all of its own; negative: it cannot even now. Of both as narrow floats: most_narrow; spare, which is
    above 0, and infinite where slack is negative.
    """

    def __init__(self, rows: int, places: int) -> None:
        self.most: Int64s = np.zeros((rows, places), np.int64)
        self.slack: Int64s = np.full((rows, places), -1, np.int64)
        self.most_narrow: Floats = np.zeros((rows, places), np.float32)
        self.spare: Floats = np.full((rows, places), np.inf, np.float32)

    def move(self, row: int, place: int, last: int) -> None:
        """The last takes that place."""
        for array, nothing in ((self.most, 0), (self.slack, -1), (self.most_narrow, 0), (self.spare, np.inf)):
            array[row, place], array[row, last] = array[row, last], nothing


class _Scratch:
    """Arrays to compute in, [pairs, places]: kept, since memory that comes anew costs more than what is done in it."""

    def __init__(self, pairs: int, places: int) -> None:
        self.words: npt.NDArray[np.uint64] = np.empty((pairs, places), np.uint64)
        self.meets: Bools = np.empty((pairs, places), np.bool_)
        self.mask: Bools = np.empty((pairs, places), np.bool_)
        self.wide_meets: npt.NDArray[np.float64] = np.empty((pairs, places), np.float64)
        self.wide: npt.NDArray[np.float64] = np.empty((pairs, places), np.float64)
        self.narrow_meets: Floats = np.empty((pairs, places), np.float32)
        self.narrow: Floats = np.empty((pairs, places), np.float32)

    def first(self, pairs: int) -> "_Scratch":
        """Of so many pairs."""
        some = copy(self)
        for name, array in vars(self).items():
            setattr(some, name, array[:pairs])
        return some


class _Asked:
    """One shape in some rows, or some shapes in one row: pairs of a row and a shape.

    total, largest: [pairs], of the table, on the layer. there: to compute in; meets of it is what it says: whether some
    node takes either of the shape and of another one that is reserved.
    """

    def __init__(self, table: FitTable, layer: int, rows: Rows, numbers: Numbers, slots: int | Int64s) -> None:
        self.layer, self.rows, self.numbers, self.slots = layer, rows, numbers, slots
        self.total, self.largest = _of(table.total, numbers, slots), _of(table.largest, numbers, slots)
        self.takes_none: Bools = self.largest <= 0
        if layer == EVERYWHERE:
            self.total = self.total + _of(table.more, numbers, slots)
            self.largest = np.maximum(self.largest, _of(table.more_largest, numbers, slots))


def _of(array: Array, numbers: Numbers, slots: int | Int64s) -> Array:
    """[pairs], of an array over shapes and clusters."""
    found: Array = array[numbers].take(slots) if isinstance(numbers, int) else array[numbers, slots]
    return found


class KeptPromises:
    """places: by row, where each shape that is reserved there is. A row is of a cluster in which anything ever was.

    [rows, places]: others, counts: the shapes that are reserved and the unbound replicas of each; samples: of the
    table; takes: whether any node takes one. All are 0 where there is none. unbound: [slots], all of them; reserved:
    [shapes, slots], as counts. fits: by slot.
    """

    def __init__(self, shapes: KeptShapes, table: FitTable, fits: Sequence[KeptFits]) -> None:
        self._shapes, self._table, self._fits = shapes, table, fits
        self.places: list[dict[int, int]] = []
        self.unbound: Int64s = np.zeros(16, np.int64)
        self.reserved: Int64s = np.zeros((len(shapes.kind), 16), np.int64)
        self._row_of: Int64s = np.full(16, -1)
        self._slots: Int64s = np.zeros(16, np.int64)
        self._others: Int64s = np.zeros((16, 8), np.int64)
        self._counts: npt.NDArray[np.float64] = np.zeros((16, 8), np.float64)
        self._samples: npt.NDArray[np.uint64] = np.zeros((16, 8), np.uint64)
        self._takes: Bools = np.zeros((16, 8), np.bool_)
        self._layers = [_Layer(16, 8), _Layer(16, 8)]
        self._all, self._some = _Scratch(16, 8), dict[int, _Scratch]()

    def grow(self, slots: int) -> None:
        """Room for so many clusters."""
        more = 2 * slots - len(self.unbound)
        if slots > len(self.unbound):
            self.unbound = np.pad(self.unbound, (0, more))
            self.reserved = np.pad(self.reserved, ((0, 0), (0, more)))
            self._row_of = np.pad(self._row_of, (0, more), constant_values=-1)

    def _fit_in(self) -> None:
        """Not much wider than the most places that are used: little is computed of places without any."""
        rows, wide = self._others.shape
        most = max((len(places) for places in self.places), default=0)
        if len(self.places) > rows or most > wide or 2 * (most + 16) < wide:
            self._resize(max(rows, 2 * len(self.places)), 8 * (most // 8 + 2))

    def _resize(self, rows: int, wide: int) -> None:
        for name in ("_others", "_counts", "_samples", "_takes"):
            before = getattr(self, name)
            setattr(self, name, _resized(before, np.zeros((rows, wide), before.dtype)))
        layers = [_Layer(rows, wide), _Layer(rows, wide)]
        for new, old in zip(layers, self._layers, strict=True):
            for name in ("most", "slack", "most_narrow", "spare"):
                _resized(getattr(old, name), getattr(new, name))
        self._layers, self._slots = layers, _resized(self._slots, np.zeros(rows, np.int64))
        self._all, self._some = _Scratch(rows, wide), {}

    # ── What is reserved ────────────────────────────────────────────────────────────────────────────────────────

    def reserved_in(self, slot: int) -> Mapping[int, int]:
        """Where each shape that is reserved in a cluster is."""
        row = int(self._row_of[slot])
        return self.places[row] if row >= 0 else {}

    def take(self, number: int, slots: Int64s, more: Int64s, layers: Int64s) -> None:
        """So many more unbound replicas of a shape in each of some clusters.

        layers: on how many of them what is kept is to follow; where any is, the shape is kept there.
        """
        rows = self._row_of.take(slots)
        if (rows < 0).any():
            self._add_rows(slots[rows < 0])
            rows = self._row_of.take(slots)
        there = [self.places[row] for row in rows.tolist()]
        is_new = np.array([number not in places for places in there], np.bool_)
        at = [places.setdefault(number, len(places)) for places in there]
        if max(at) >= self._others.shape[1]:
            self._fit_in()
        places = np.array(at, np.int64)
        self._others[rows, places] = number
        self._counts[rows, places] += more
        self.unbound[slots] += more
        self.reserved[number][slots] += more
        for layer in range(int(layers.max())):
            if bool((layers > layer).all()):
                self._shift(layer, rows, number, more, places, is_new)
            else:
                some = layers > layer
                self._shift(layer, rows[some], number, more[some], places[some], is_new[some])
        if bool((more < 0).any()):
            for row, place in zip(rows.tolist(), at, strict=True):
                if not self._counts[row, place]:
                    self._drop(row, number, place)
            self._fit_in()

    def _add_rows(self, slots: Int64s) -> None:
        for slot in slots.tolist():
            row = len(self.places)
            self.places.append({})
            if row >= len(self._slots):
                self._fit_in()
            self._slots[row], self._row_of[slot] = slot, row

    def _shift(self, layer: int, rows: Int64s, number: int, more: Int64s, places: Int64s, is_new: Bools) -> None:
        """What more of a shape in each row takes from the slack of the others there, and from its own."""
        if is_new.any():
            self._note(layer, rows[is_new], number, places[is_new])
        (asked, work), kept = self._asked(layer, rows, number), self._layers[layer]
        onto = np.minimum(self._shapes.losses[number].take(self._others[rows]), kept.most[rows])
        onto *= work.meets
        slack, each = kept.slack[rows], np.arange(len(rows))
        slack -= onto * more[:, None]
        slack[each, places] -= more
        if is_new.any():
            left = asked.total - self._lost(asked, work) - self.reserved[number].take(asked.slots)
            slack[each[is_new], places[is_new]] = left[is_new]
        kept.slack[rows], kept.spare[rows] = slack, _spare(slack)

    def _note(self, layer: int, rows: Rows, numbers: Numbers, places: Int64s) -> None:
        """What the table has of some that are reserved."""
        kept, table, slots = self._layers[layer], self._table, self._slots[rows]
        largest = table.largest[numbers, slots]
        self._samples[rows, places], self._takes[rows, places] = table.sample[numbers, slots], largest > 0
        if layer == EVERYWHERE:
            largest = np.maximum(largest, table.more_largest[numbers, slots])
        kept.most[rows, places] = kept.most_narrow[rows, places] = largest

    def begin(self, slot: int, layers: int) -> None:
        """The slack of all that is reserved in a cluster, in full, on so many layers. All of it is kept there."""
        row = int(self._row_of[slot])
        there = len(self.places[row]) if row >= 0 else 0
        for layer, kept in enumerate(self._layers if there else ()):
            kept.slack[row], kept.spare[row] = -1, np.inf
            if layer < layers:
                numbers = self._others[row, :there].copy()
                self._note(layer, row, numbers, np.arange(there))
                asked, work = self._asked(layer, row, numbers)
                left = asked.total - self._lost(asked, work) - self.reserved[numbers, slot]
                kept.slack[row, :there], kept.spare[row, :there] = left, _spare(left)

    def _drop(self, row: int, number: int, place: int) -> None:
        """The last one takes its place."""
        places, last = self.places[row], len(self.places[row]) - 1
        moved = int(self._others[row, last])
        for array in (self._others, self._counts, self._samples, self._takes):
            array[row, place], array[row, last] = array[row, last], 0
        for kept in self._layers:
            kept.move(row, place, last)
        del places[number]
        if moved != number:
            places[moved] = place

    # ── The room beside it ──────────────────────────────────────────────────────────────────────────────────────

    def in_all(self, layer: int, number: int, positions: Int64s) -> tuple[Int64s, Found]:
        """positions: [slots], negative where one is not asked about. Those of clusters in which anything ever was."""
        at = positions.take(self._slots[: len(self.places)])
        some = (at >= 0).nonzero()[0]
        if not len(some):
            return some, (some, some, some)
        if len(some) == len(at):
            return at, self._beside(layer, slice(0, len(at)), number)
        return at[some], self._beside(layer, some, number)

    def in_one(self, slot: int, numbers: Int64s) -> Found:
        """[numbers]: on the nodes of a cluster that exist."""
        row = int(self._row_of[slot])
        if row >= 0 and self.places[row]:
            return self._beside(NODES, row, numbers)
        total = self._table.total[numbers, slot]
        return total, total, np.full(len(numbers), -1)

    def _beside(self, layer: int, rows: Rows, numbers: Numbers) -> Found:
        asked, work = self._asked(layer, rows, numbers)
        left = asked.total - _of(self.reserved, numbers, asked.slots)
        possible = np.maximum(left, 0)
        left -= self._lost(asked, work)
        certain, promised = np.maximum(left, 0), np.full(len(left), -1)
        pairs, at = self._near(asked, work, certain)
        if len(pairs):
            one = numbers if isinstance(numbers, int) else numbers.take(pairs)
            onto = np.minimum(self._shapes.losses[one, self._others.take(at)], self._layers[layer].most.take(at))
            allowed = self._layers[layer].slack.take(at) // onto
            exact = np.full(len(left), UNBOUNDED)
            np.minimum.at(exact, pairs, allowed)
            tight = (allowed == exact.take(pairs)) & (allowed < certain.take(pairs))
            np.maximum.at(promised, pairs[tight], self._counts.take(at[tight]).astype(np.int64))
            certain = np.minimum(certain, exact)
        return certain, possible, promised

    def _asked(self, layer: int, rows: Rows, numbers: Numbers) -> tuple[_Asked, _Scratch]:
        table, slots = self._table, int(self._slots[rows]) if isinstance(rows, int) else self._slots[rows]
        asked = _Asked(table, layer, rows, numbers, slots)
        work = self._scratch(asked)
        np.bitwise_and(self._at(self._samples, rows), _of(table.sample, numbers, slots)[:, None], out=work.words)
        meets: Bools = np.not_equal(work.words, 0, out=work.meets)
        if layer == EVERYWHERE:
            others = self._at(self._others, rows)
            in_groups = table.groups[others, slots if isinstance(slots, int) else slots[:, None]]
            meets |= (in_groups & _of(table.groups, numbers, slots)[:, None]) != 0
        unsure: Bools = np.greater(self._at(self._takes, rows), meets, out=work.mask)
        if asked.takes_none.any():
            unsure &= ~asked.takes_none[:, None]
        found = unsure.ravel().nonzero()[0]
        if len(found):
            pairs, at = self._flat(asked, found, unsure.shape[1])
            ones = np.full(len(pairs), numbers) if isinstance(numbers, int) else numbers.take(pairs)
            where = np.full(len(pairs), slots) if isinstance(slots, int) else slots.take(pairs)
            meets.ravel()[found] = self._look_closer(where, ones, self._others.take(at))
        return asked, work

    def _scratch(self, asked: _Asked) -> _Scratch:
        if isinstance(asked.rows, int):
            return _Scratch(len(asked.total), len(self.places[asked.rows]))
        pairs = len(asked.total)
        if pairs not in self._some:
            self._some[pairs] = self._all.first(pairs)
        return self._some[pairs]

    def _at(self, array: Array, rows: Rows) -> Array:
        """[rows, places], or [places] of one row, those that are used."""
        return array[rows, : len(self.places[rows])] if isinstance(rows, int) else array[rows]

    def _flat(self, asked: _Asked, found: Int64s, wide: int) -> tuple[Int64s, Int64s]:
        """From flat indices into [pairs, places] to pairs, and flat indices into [rows, places]."""
        rows = asked.rows
        if isinstance(rows, slice):
            return found // wide, found
        pairs, places = np.divmod(found, wide)
        return pairs, (rows if isinstance(rows, int) else rows.take(pairs)) * self._others.shape[1] + places

    def _lost(self, asked: _Asked, work: _Scratch) -> Int64s:
        """[pairs]: what all others that are reserved cost the shape at the most. Exact below 2⁵³."""
        others, numbers, costs = self._at(self._others, asked.rows), asked.numbers, work.wide
        if isinstance(numbers, int):
            self._shapes.costs_of(numbers).take(others, out=costs, mode="clip")
        else:
            costs[:] = self._shapes.losses[others, numbers[:, None]]
        np.minimum(costs, asked.largest.astype(np.float64)[:, None], out=costs)
        np.copyto(work.wide_meets, work.meets)
        costs *= work.wide_meets
        lost: Int64s = np.vecdot(costs, self._at(self._counts, asked.rows)).astype(np.int64)
        return lost

    def _near(self, asked: _Asked, work: _Scratch, certain: Int64s) -> tuple[Int64s, Int64s]:
        """As _flat: of those that bound what is certain the most, and of some that almost do."""
        kept = self._layers[asked.layer]
        others, numbers, onto = self._at(self._others, asked.rows), asked.numbers, work.narrow
        if isinstance(numbers, int):
            self._shapes.losses[numbers].astype(np.float32).take(others, out=onto, mode="clip")
        else:
            onto[:] = self._shapes.losses[numbers[:, None], others]
        np.minimum(onto, self._at(kept.most_narrow, asked.rows), out=onto)
        np.copyto(work.narrow_meets, work.meets)
        onto *= work.narrow_meets
        onto /= self._at(kept.spare, asked.rows)
        most = np.maximum.reduce(onto, axis=1, initial=0)
        # Slack by what one takes of it, which is 1 / onto, up to that of the least, rounded down as it is.
        near = np.where(most * (certain + 2.0) >= NARROWER, most / (WIDER + 2 * most), np.inf).astype(np.float32)
        found = np.greater_equal(onto, near[:, None], out=work.mask).ravel().nonzero()[0]
        return self._flat(asked, found, onto.shape[1])

    def _look_closer(self, slots: Int64s, ones: Int64s, others: Int64s) -> Bools:
        """[pairs]: of shapes that no node of the sample takes both."""
        table, kind, kinds = self._table, self._shapes.kind, len(self._shapes.kinds)
        table.grow(0, kinds)  # Some may have come since the last look.
        late = slots[table.apart_of.take(slots) < kinds]
        for index in set(late.tolist()) if len(late) else ():
            self._fits[index].find_apart()
        meets = ~table.apart[slots, kind.take(ones), kind.take(others)]
        unsure = meets.nonzero()[0]
        here: dict[int, list[int]] = {}
        for at, index in zip(unsure.tolist(), slots[unsure].tolist(), strict=True):
            here.setdefault(index, []).append(at)
        for index, pairs in here.items():
            meets[pairs] = self._fits[index].take_both(ones[pairs], others[pairs])
        return meets


def _spare(slack: Int64s) -> Array:
    return np.where(slack < 0, np.inf, slack + 0.25)


def _resized(before: Array, after: Array) -> Array:
    """The latter, with what there is of the former in it."""
    both = tuple(slice(min(one, other)) for one, other in zip(before.shape, after.shape, strict=True))
    after[both] = before[both]
    return after
