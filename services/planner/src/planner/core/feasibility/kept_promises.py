"""What is reserved in all clusters, as matrices: what it costs more of a shape there, and what those would cost it.

The conditions are those of room.py, whose functions are what tests compare this with. One shape is asked about in many
clusters, or many shapes in one: both are the same arithmetic over a matrix of those that are there by those that ask.
Numbers of replicas are floats, which are exact below 2⁵⁰.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from planner.core.feasibility.kept_fits import FitTable, KeptFits
from planner.core.feasibility.kept_shapes import KeptShapes
from spillway.feasibility.node_match import Bools
from spillway.model import Int64s

NODES, EVERYWHERE = 0, 1
"""Layers: the nodes that exist, and those together with all that node groups could still make."""

Floats = npt.NDArray[np.float64]
Array = npt.NDArray[Any]
Rows = int | slice | Int64s
Numbers = int | Int64s
Found = tuple[Int64s, Int64s, Int64s]
"""Certain, possible, and the promised replicas that bound certain, −1 where none do; of several the most."""


class _Layer:
    """[places, rows], of each that is reserved. most: replicas on one node at the most. slack: room that it can lose
    and still bind all of its own; negative: it cannot even now. spare: a little more, so that no quotient is rounded
    down too far; infinite where slack is negative, since that binds nobody.
    """

    def __init__(self, places: int, rows: int) -> None:
        self.most: Floats = np.zeros((places, rows))
        self.slack: Floats = np.full((places, rows), -1.0)
        self.spare: Floats = np.full((places, rows), np.inf)

    def put(self, places: int | slice | Int64s, rows: Rows, slack: Array) -> None:
        self.slack[places, rows] = slack
        self.spare[places, rows] = np.where(slack < 0, np.inf, slack + 0.25)


class _Scratch:
    """Arrays to compute in, [places, pairs]: kept, since memory that comes anew costs more than what is done in it."""

    def __init__(self) -> None:
        self._flat: tuple[Array, ...] = ()
        self._of = (0, 0)

    def fit(self, places: int, pairs: int) -> None:
        """From now on they are of this size, and hold anything."""
        if (places, pairs) == self._of:
            return
        size, self._of = places * pairs, (places, pairs)
        if not self._flat or size > len(self._flat[0]):
            kinds = (np.uint64, np.bool_, np.bool_, np.float64, np.float64, np.float64)
            self._flat = tuple(np.empty(2 * size, kind) for kind in kinds)
        shaped = [flat[:size].reshape(places, pairs) for flat in self._flat]
        self.words, self.meets, self.mask, self.factors, self.costs, self.onto = shaped


class _Asked:
    """One shape in some rows, or some shapes in one row: pairs of a row and a shape.

    slots, total, largest: [pairs], of the table, on the layer. work: meets of it is what it says: whether some node
    takes either of the shape and of another one that is reserved.
    """

    def __init__(
        self, table: FitTable, layer: int, rows: Rows, numbers: Numbers, slots: int | Int64s, work: _Scratch
    ) -> None:
        self.layer, self.rows, self.numbers, self.slots, self.work = layer, rows, numbers, slots, work
        self.total, self.largest = _of(table.total, numbers, slots), _of(table.largest, numbers, slots)
        self.takes_none: Bools = self.largest <= 0
        if layer == EVERYWHERE:
            self.total = self.total + _of(table.more, numbers, slots)
            self.largest = np.maximum(self.largest, _of(table.more_largest, numbers, slots))


class _Last(NamedTuple):
    """Of a shape in all rows, on the nodes that exist: what _Asked says, and what it loses there, until anything is
    other than it was. Who asked for its room mostly reserves some of it next.
    """

    number: int
    meets: Bools
    lost: Floats


def _of(array: Array, numbers: Numbers, slots: int | Int64s) -> Array:
    """[pairs], of an array over shapes and clusters."""
    found: Array = array[numbers].take(slots) if isinstance(numbers, int) else array[numbers, slots]
    return found


class KeptPromises:
    """places: by row, where each shape that is reserved there is. A row is of a cluster in which anything ever was.

    [places, rows]: others, counts: the shapes that are reserved and the unbound replicas of each; samples: of the
    table; takes: whether any node takes one. All are 0 where there is none. Rows are last, so that what is said by row
    is beside the same of the next one. unbound: [slots], all of them; reserved: [shapes, slots], as counts. fits: by
    slot.
    """

    def __init__(self, shapes: KeptShapes, table: FitTable, fits: Sequence[KeptFits]) -> None:
        self._shapes, self._table, self._fits = shapes, table, fits
        self.places: list[dict[int, int]] = []
        self.unbound: Int64s = np.zeros(16, np.int64)
        self.reserved: Int64s = np.zeros((len(shapes.kind), 16), np.int64)
        self._rows: dict[int, int] = {}
        self._slots: Int64s = np.zeros(16, np.int64)
        self._others: Int64s = np.zeros((8, 16), np.int64)
        self._counts: Floats = np.zeros((8, 16))
        self._samples: npt.NDArray[np.uint64] = np.zeros((8, 16), np.uint64)
        self._takes: Bools = np.zeros((8, 16), np.bool_)
        self._layers = [_Layer(8, 16), _Layer(8, 16)]
        self._most_places = 0
        self._scratch = [_Scratch(), _Scratch()]
        self._last: _Last | None = None

    def grow(self, slots: int) -> None:
        """Room for so many clusters."""
        more = 2 * slots - len(self.unbound)
        if slots > len(self.unbound):
            self.unbound = np.pad(self.unbound, (0, more))
            self.reserved = np.pad(self.reserved, ((0, 0), (0, more)))

    def _fit_in(self, places: int, rows: int) -> None:
        """Room for so many of each. Rows are few and stay: little is computed of such as are of no cluster."""
        deep, wide = self._others.shape
        if places <= deep and rows <= wide:
            return
        deep, wide = (2 * places if places > deep else deep), (rows + 8 if rows > wide else wide)
        for name in ("_others", "_counts", "_samples", "_takes"):
            before = getattr(self, name)
            setattr(self, name, _resized(before, np.zeros((deep, wide), before.dtype)))
        layers = [_Layer(deep, wide), _Layer(deep, wide)]
        for new, old in zip(layers, self._layers, strict=True):
            for name in ("most", "slack", "spare"):
                _resized(getattr(old, name), getattr(new, name))
        self._layers, self._slots = layers, _resized(self._slots, np.zeros(wide, np.int64))

    # ── What is reserved ────────────────────────────────────────────────────────────────────────────────────────

    def reserved_in(self, slot: int) -> Mapping[int, int]:
        """Where each shape that is reserved in a cluster is."""
        row = self._rows.get(slot)
        return {} if row is None else self.places[row]

    def take(self, number: int, slots: Sequence[int], more: Sequence[int], layers: Sequence[int]) -> None:
        """So many more unbound replicas of a shape in each of some clusters.

        layers: on how many of them what is kept is to follow; where any is, the shape is kept there.
        """
        rows = [self._rows[slot] if slot in self._rows else self._add_row(slot) for slot in slots]
        there = [self.places[row] for row in rows]
        is_new = [number not in places for places in there]
        at = [places.setdefault(number, len(places)) for places in there]
        self._most_places = max(self._most_places, 1 + max(at))
        self._fit_in(self._most_places, len(self.places))
        changes = np.array((rows, at, slots, more, is_new), np.int64)
        row, place, slot, count, _ = changes
        self._others[place, row] = number
        self._counts[place, row] += count
        self.unbound[slot] += count
        self.reserved[number][slot] += count
        for layer in range(max(layers)):
            self._shift(layer, number, changes if min(layers) > layer else changes[:, np.array(layers) > layer])
        self._last = None
        if min(more) < 0:
            for index, where in enumerate(at):
                if not self._counts[where, rows[index]]:
                    self._drop(rows[index], number, where)
            self._most_places = max(len(places) for places in self.places)

    def _add_row(self, slot: int) -> int:
        row = len(self.places)
        self.places.append({})
        self._fit_in(0, row + 1)
        self._slots[row], self._rows[slot], self._last = slot, row, None
        return row

    def _shift(self, layer: int, number: int, changes: Int64s) -> None:
        """What more of a shape in each row takes from the slack of the others there, and from its own."""
        rows, places, slots, more, is_new = changes
        kept, last = self._layers[layer], self._last
        new = slice(None) if is_new.all() else is_new.nonzero()[0]
        any_new = isinstance(new, slice) or len(new) > 0
        if layer == NODES and last is not None and last.number == number:
            meets, lost = last.meets.take(rows, axis=1), last.lost.take(rows)
        else:
            asked = self._asked(layer, rows, number)
            meets, lost = asked.work.meets, self._lost(asked) if any_new else np.zeros(0)
        there = len(meets)  # What has come since is the shape itself, which costs itself nothing.
        onto = self._shapes.losses[number].take(self._others[:there].take(rows, axis=1))
        np.minimum(onto, kept.most[:there].take(rows, axis=1), out=onto)
        onto *= meets
        onto *= more
        slack, each = kept.slack[: self._most_places].take(rows, axis=1), np.arange(len(rows))
        slack[:there] -= onto
        slack[places, each] -= more
        if any_new:
            self._note(layer, rows[new], number, places[new])
            total = _of(self._table.total, number, slots)
            if layer == EVERYWHERE:
                total = total + _of(self._table.more, number, slots)
            left = total - lost - _of(self.reserved, number, slots)
            slack[places[new], each[new]] = left[new]
        kept.put(slice(0, self._most_places), rows, slack)

    def _note(self, layer: int, rows: Rows, numbers: Numbers, places: Int64s) -> None:
        """What the table has of some that are reserved."""
        table, slots = self._table, self._slots[rows]
        largest = table.largest[numbers, slots]
        self._samples[places, rows], self._takes[places, rows] = table.sample[numbers, slots], largest > 0
        if layer == EVERYWHERE:
            largest = np.maximum(largest, table.more_largest[numbers, slots])
        self._layers[layer].most[places, rows] = largest

    def begin(self, slot: int, layers: int) -> None:
        """The slack of all that is reserved in a cluster, in full, on so many layers. All of it is kept there."""
        self._last, row = None, self._rows.get(slot, 0)
        there = len(self.reserved_in(slot))
        for layer, kept in enumerate(self._layers if there else ()):
            kept.put(slice(None), row, np.full(len(kept.slack), -1.0))
            if layer < layers:
                numbers = self._others[:there, row].copy()
                self._note(layer, row, numbers, np.arange(there))
                asked = self._asked(layer, row, numbers)
                kept.put(slice(0, there), row, asked.total - self._lost(asked) - self.reserved[numbers, slot])

    def _drop(self, row: int, number: int, place: int) -> None:
        """The last one takes its place."""
        places, last = self.places[row], len(self.places[row]) - 1
        moved = int(self._others[last, row])
        for array in (self._others, self._counts, self._samples, self._takes):
            array[place, row], array[last, row] = array[last, row], 0
        for kept in self._layers:
            for array, nothing in ((kept.most, 0), (kept.slack, -1), (kept.spare, np.inf)):
                array[place, row], array[last, row] = array[last, row], nothing
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
        if self.reserved_in(slot):
            return self._beside(NODES, self._rows[slot], numbers)
        total = self._table.total[numbers, slot]
        return total, total, np.full(len(numbers), -1)

    def _beside(self, layer: int, rows: Rows, numbers: Numbers) -> Found:
        asked = self._asked(layer, rows, numbers)
        left, lost = asked.total - _of(self.reserved, numbers, asked.slots), self._lost(asked)
        possible, certain = np.maximum(left, 0), np.maximum(left - lost, 0)
        promised = np.full(len(left), -1)
        if layer == NODES and isinstance(rows, slice) and isinstance(numbers, int):
            self._last = _Last(numbers, asked.work.meets, lost)
        allowed = self._allowed(asked)
        least = np.floor(np.minimum.reduce(allowed, axis=0, initial=np.inf))
        binds = least < certain
        if binds.any():
            tight = np.less(allowed, np.where(binds, least + 1, -1), out=asked.work.mask)
            pairs, at = self._flat(asked, tight)
            np.maximum.at(promised, pairs, self._counts.take(at).astype(np.int64))
            certain = np.minimum(certain, least)
        return certain.astype(np.int64), possible, promised

    def _asked(self, layer: int, rows: Rows, numbers: Numbers) -> _Asked:
        table, slots = self._table, int(self._slots[rows]) if isinstance(rows, int) else self._slots[rows]
        work = self._scratch[layer]
        asked = _Asked(table, layer, rows, numbers, slots, work)
        samples = self._at(self._samples, rows)
        work.fit(len(samples), len(asked.total))
        if layer == NODES:
            self._last = None
        np.bitwise_and(samples, _of(table.sample, numbers, slots), out=work.words)
        meets: Bools = np.not_equal(work.words, 0, out=work.meets)
        if layer == EVERYWHERE:
            in_groups = table.groups[self._at(self._others, rows), slots]
            meets |= (in_groups & _of(table.groups, numbers, slots)) != 0
        unsure: Bools = np.greater(self._at(self._takes, rows), meets, out=work.mask)
        if asked.takes_none.any():
            unsure &= ~asked.takes_none
        found = unsure.ravel().nonzero()[0]
        if len(found):
            pairs, at = self._flat(asked, found)
            ones = np.full(len(pairs), numbers) if isinstance(numbers, int) else numbers.take(pairs)
            where = np.full(len(pairs), slots) if isinstance(slots, int) else slots.take(pairs)
            meets.ravel()[found] = self._look_closer(where, ones, self._others.take(at))
        return asked

    def _at(self, array: Array, rows: Rows) -> Array:
        """[places, rows], or [places, 1] of one row, those that are used."""
        if isinstance(rows, int):
            return array[: len(self.places[rows]), rows, None]
        there = array[: self._most_places]
        return there[:, rows] if isinstance(rows, slice) else there.take(rows, axis=1)

    def _flat(self, asked: _Asked, found: Array) -> tuple[Int64s, Int64s]:
        """From a mask [places, pairs], or flat indices into one, to pairs, and flat indices into [places, rows]."""
        rows = asked.rows
        found = found.ravel().nonzero()[0] if found.dtype == np.bool_ else found
        places, pairs = np.divmod(found, len(asked.total))
        row = rows if isinstance(rows, int) else pairs if isinstance(rows, slice) else rows.take(pairs)
        return pairs, places * self._others.shape[1] + row

    def _lost(self, asked: _Asked) -> Floats:
        """[pairs]: what all others that are reserved cost the shape at the most."""
        others, numbers, costs = self._at(self._others, asked.rows), asked.numbers, asked.work.costs
        if isinstance(numbers, int):
            self._shapes.costs_of(numbers).take(others, out=costs, mode="clip")
        else:
            costs[:] = self._shapes.losses[others, numbers]
        np.minimum(costs, asked.largest.astype(np.float64), out=costs)
        np.copyto(asked.work.factors, asked.work.meets)
        costs *= asked.work.factors
        costs *= self._at(self._counts, asked.rows)
        lost: Floats = np.add.reduce(costs, axis=0)
        return lost

    def _allowed(self, asked: _Asked) -> Floats:
        """[places, pairs]: so many of a shape each that is reserved lets in, and a little more. After _lost."""
        kept, numbers, onto = self._layers[asked.layer], asked.numbers, asked.work.onto
        others = self._at(self._others, asked.rows)
        if isinstance(numbers, int):
            self._shapes.losses[numbers].take(others, out=onto, mode="clip")
        else:
            onto[:] = self._shapes.losses[numbers, others]
        np.minimum(onto, self._at(kept.most, asked.rows), out=onto)
        onto *= asked.work.factors
        with np.errstate(divide="ignore"):
            allowed: Floats = np.divide(self._at(kept.spare, asked.rows), onto, out=onto)
        return allowed

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


def _resized(before: Array, after: Array) -> Array:
    """The latter, with what there is of the former in it."""
    both = tuple(slice(min(one, other)) for one, other in zip(before.shape, after.shape, strict=True))
    after[both] = before[both]
    return after
