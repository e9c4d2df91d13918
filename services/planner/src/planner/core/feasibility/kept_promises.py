"""Keeps the reservations of all clusters as matrices.

Computes the room that reserved replicas cost a shape, and the room that the shape would cost them. The conditions are
those of room.py, and tests compare with its functions. One shape in many clusters and many shapes in one cluster are
the same arithmetic over a matrix of reserved shapes by asking shapes. Numbers of replicas are floats, which are exact
below 2⁵⁰.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from planner.core.feasibility.kept_fits import FitTable, KeptFits
from planner.core.feasibility.kept_shapes import KeptShapes
from spillway.feasibility.node_match import Bools
from spillway.model import Int64s

NODES, EVERYWHERE = 0, 1
"""Layers: the existing nodes; or the existing nodes together with all nodes that node groups can still make."""

Floats = npt.NDArray[np.float64]
Array = npt.NDArray[Any]
Row = int | None
"""One row, or None for all rows. Unused rows, without reservations, are included, so that arrays are used whole."""
Numbers = int | Int64s
Found = tuple[Int64s, Int64s, Int64s]
"""(certain, possible, promised). promised: the unbound replicas of the reserved shape that limits the certain room. It
is the largest number if several shapes limit it, and −1 if none does."""


class _Layer:
    """Numbers of each reserved shape, [places, rows].

    most: the most replicas that one node takes.
    slack: how many replicas' room the shape can lose and still bind all its replicas. It is negative if the shape
    cannot bind them all even now.
    spare: slack plus 0.25, so that no quotient is rounded down too far. It is infinite where slack is negative: a shape
    that cannot bind anyway limits no other shape.
    """

    def __init__(self, places: int, rows: int) -> None:
        self.most: Floats = np.zeros((places, rows))
        self.slack: Floats = np.full((places, rows), -1.0)
        self.spare: Floats = np.full((places, rows), np.inf)

    def set_slack(self, rows: int | Int64s, slack: Floats) -> None:
        """Sets the slack of rows. slack: [places, rows] or, for one row, [places]."""
        self.slack[: len(slack), rows] = slack
        self.spare[: len(slack), rows] = np.where(slack < 0, np.inf, slack + 0.25)


class _Scratch:
    """Arrays for intermediate results, [places, pairs]. They are kept: new memory costs more than the computation."""

    def __init__(self) -> None:
        self._flat: tuple[Array, ...] = ()
        self._of = (0, 0)

    def resize_arrays(self, places: int, pairs: int) -> None:
        """Makes the arrays this size. Their content is undefined afterwards."""
        if (places, pairs) == self._of:
            return
        size, self._of = places * pairs, (places, pairs)
        if not self._flat or size > len(self._flat[0]):
            kinds = (np.uint64, np.bool_, np.bool_, np.float64, np.float64, np.float64)
            self._flat = tuple(np.empty(2 * size, kind) for kind in kinds)
        shaped = [flat[:size].reshape(places, pairs) for flat in self._flat]
        self.words, self.meets, self.mask, self.factors, self.costs, self.onto = shaped


class _AskedShapes:
    """One shape in all rows, or some shapes in one row. Each (row, shape) is one pair.

    slots, total, largest: [pairs], from the table, for the layer.
    together: [pairs], a bit for each kind of shapes that may share a node with the shape.
    lost: [pairs], the most that all reserved replicas cost the shape.
    onto: [places, pairs], the most that one replica of the shape costs each reserved shape.
    """

    lost: Floats
    onto: Floats

    def __init__(self, table: FitTable, kind: Numbers, layer: int, row: Row, numbers: Numbers, slots: Array) -> None:
        self.layer, self.row, self.numbers, self.slots = layer, row, numbers, slots
        self.total, self.largest = self.values_of_pairs(table.total), self.values_of_pairs(table.largest)
        self.together = _values_at(table.together, kind, slots) * (self.largest > 0)
        if layer == EVERYWHERE:
            self.total = self.total + self.values_of_pairs(table.more)
            self.largest = np.maximum(self.largest, self.values_of_pairs(table.more_largest))

    def values_of_pairs(self, array: Array) -> Array:
        """Returns [pairs]: the values that an array [shapes, slots] has for these pairs."""
        return _values_at(array, self.numbers, self.slots)


class KeptPromises:
    """All reservations, with a row for each cluster that ever had any.

    places: by row, the place of each shape that is reserved there.
    unbound: [slots], all unbound replicas of each cluster.
    reserved: [shapes, slots], the unbound replicas of each shape.
    Private arrays over [places, rows] are 0 where no shape is reserved. _others: the reserved shapes. _counts: their
    unbound replicas. _samples: FitTable.sample. _kinds: the bit of the shape's kind, if any node takes the shape.
    Rows are the last axis, so that values of neighbouring rows are neighbours in memory.
    _last: the numbers of one shape in all rows on existing nodes, kept until anything changes. A workload that asks for
    room usually reserves some of it next, which needs the same numbers.
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
        self._kinds: npt.NDArray[np.uint64] = np.zeros((8, 16), np.uint64)
        self._layers = [_Layer(8, 16), _Layer(8, 16)]
        self._most_places = 0
        self._positions: dict[int, tuple[Int64s, int, Int64s, Int64s]] = {}
        self._scratch = [_Scratch(), _Scratch()]
        self._last: _AskedShapes | None = None

    def grow_slots(self, slots: int) -> None:
        """Makes the arrays large enough for so many slots (clusters)."""
        more = 2 * slots - len(self.unbound)
        if slots > len(self.unbound):
            self.unbound = np.pad(self.unbound, (0, more))
            self.reserved = np.pad(self.reserved, ((0, 0), (0, more)))

    def _grow_places_and_rows(self, places: int, rows: int) -> None:
        """Makes the arrays large enough for so many places and rows.

        It adds few spare rows, so that little is computed for rows without a cluster.
        """
        deep, wide = self._others.shape
        if places <= deep and rows <= wide:
            return
        deep, wide = (2 * places if places > deep else deep), (rows + 8 if rows > wide else wide)
        for name in ("_others", "_counts", "_samples", "_kinds"):
            before = getattr(self, name)
            setattr(self, name, _copy_values_into(before, np.zeros((deep, wide), before.dtype)))
        layers = [_Layer(deep, wide), _Layer(deep, wide)]
        for new, old in zip(layers, self._layers, strict=True):
            for name in ("most", "slack", "spare"):
                _copy_values_into(getattr(old, name), getattr(new, name))
        self._layers, self._slots = layers, _copy_values_into(self._slots, np.zeros(wide, np.int64))

    # ── What is reserved ────────────────────────────────────────────────────────────────────────────────────────

    def places_by_shape(self, slot: int) -> Mapping[int, int]:
        """Returns the place of each shape that is reserved in a cluster."""
        row = self._rows.get(slot)
        return {} if row is None else self.places[row]

    def add_reservations(self, number: int, slots: Sequence[int], more: Sequence[int], layers: Sequence[int]) -> None:
        """Adds unbound replicas of a shape in several clusters (negative: removes them).

        layers: for each cluster, how many layers to update. Where it is above 0, the shape's fit must be kept.
        """
        rows = [self._rows[slot] if slot in self._rows else self._add_row(slot) for slot in slots]
        there = [self.places[row] for row in rows]
        is_new = [number not in places for places in there]
        at = [places.setdefault(number, len(places)) for places in there]
        self._most_places = max(self._most_places, 1 + max(at))
        self._grow_places_and_rows(self._most_places, len(self.places))
        row, place, slot, count = np.array((rows, at, slots, more), np.int64)
        where = place * self._others.shape[1] + row
        self._others.ravel()[where] = number
        self._counts.ravel()[where] += count
        self.unbound[slot] += count
        self.reserved[number][slot] += count
        for layer in range(max(layers)):
            some = [index for index, layers_there in enumerate(layers) if layers_there > layer]
            if len(some) == len(slots):
                self._shift_slack(layer, number, row, place, count, np.array(is_new))
            else:
                self._shift_slack(layer, number, row[some], place[some], count[some], np.array(is_new)[some])
        self._last = None
        if min(more) < 0:
            for index, at_place in enumerate(at):
                if not self._counts[at_place, rows[index]]:
                    self._remove_shape(rows[index], number, at_place)
            self._most_places = max(len(places) for places in self.places)

    def _add_row(self, slot: int) -> int:
        row = len(self.places)
        self.places.append({})
        self._grow_places_and_rows(0, row + 1)
        self._slots[row], self._rows[slot], self._last = slot, row, None
        return row

    def _shift_slack(self, layer: int, number: int, rows: Int64s, places: Int64s, more: Int64s, is_new: Bools) -> None:
        """Subtracts the room of more replicas of a shape from the slack of the other reserved shapes and from its own.

        rows, places, more, is_new: one entry for each cluster.
        """
        asked = self._last if layer == NODES else None
        if asked is None or asked.numbers != number:
            asked = self._compute_costs(layer, None, number)
        kept, each = self._layers[layer], np.arange(len(rows))
        slack = kept.slack[: self._most_places].take(rows, axis=1)
        slack[: len(asked.onto)] -= asked.onto.take(rows, axis=1) * more  # Shapes added since cost themselves nothing.
        own = slack[places, each] - more
        if is_new.any():
            left = asked.total - asked.lost - asked.values_of_pairs(self.reserved)
            own = np.where(is_new, left.take(rows), own)
            where = (places * self._others.shape[1] + rows)[is_new]
            self._copy_table_values(layer, where, number, self._slots.take(rows[is_new]))
        slack[places, each] = own
        kept.set_slack(rows, slack)

    def _copy_table_values(self, layer: int, where: Int64s, numbers: Numbers, slots: Array) -> None:
        """Copies the table's values of some reserved shapes. where: flat indices into [places, rows]."""
        table, largest = self._table, _values_at(self._table.largest, numbers, slots)
        self._samples.ravel()[where] = _values_at(table.sample, numbers, slots)
        self._kinds.ravel()[where] = self._shapes.bit[numbers] * (largest > 0)
        if layer == EVERYWHERE:
            largest = np.maximum(largest, _values_at(table.more_largest, numbers, slots))
        self._layers[layer].most.ravel()[where] = largest

    def compute_slack(self, slot: int, layers: int) -> None:
        """Computes the slack of all reserved shapes in a cluster, on so many layers. Their fits must be kept."""
        self._last, row = None, self._rows.get(slot, 0)
        there = len(self.places_by_shape(slot))
        for layer, kept in enumerate(self._layers if there else ()):
            kept.set_slack(row, np.full(len(kept.slack), -1.0))
            if layer < layers:
                numbers = self._others[:there, row].copy()
                where = np.arange(there) * self._others.shape[1] + row
                self._copy_table_values(layer, where, numbers, np.full(there, slot))
                asked = self._compute_costs(layer, row, numbers)
                kept.set_slack(row, asked.total - asked.lost - self.reserved[numbers, slot])

    def _remove_shape(self, row: int, number: int, place: int) -> None:
        """Removes a shape from a row. The last shape of the row takes its place."""
        places, last = self.places[row], len(self.places[row]) - 1
        moved = int(self._others[last, row])
        for array in (self._others, self._counts, self._samples, self._kinds):
            array[place, row], array[last, row] = array[last, row], 0
        for kept in self._layers:
            for array, nothing in ((kept.most, 0), (kept.slack, -1), (kept.spare, np.inf)):
                array[place, row], array[last, row] = array[last, row], nothing
        del places[number]
        if moved != number:
            places[moved] = place

    # ── The room beside it ──────────────────────────────────────────────────────────────────────────────────────

    def rooms_in_clusters(self, layer: int, number: int, positions: Int64s) -> tuple[Int64s, Found]:
        """Returns the room of a shape in all asked clusters that ever had a reservation, with their positions.

        positions: [slots], negative where the cluster is not asked about.
        """
        some, at = self._rows_with_position(layer, positions)
        if not len(some):
            return some, (some, some, some)
        certain, possible, promised = self._rooms_beside_reserved(layer, None, number)
        return at, (certain.take(some), possible.take(some), promised.take(some))

    def _rows_with_position(self, layer: int, positions: Int64s) -> tuple[Int64s, Int64s]:
        """Returns the rows with a position, and these positions.

        Kept until the positions or the number of rows change.
        """
        known = self._positions.get(layer)
        if known is None or known[0] is not positions or known[1] != len(self.places):
            at = positions.take(self._slots[: len(self.places)])
            some = (at >= 0).nonzero()[0]
            known = self._positions[layer] = positions, len(self.places), some, at[some]
        return known[2:]

    def rooms_in_cluster(self, slot: int, numbers: Int64s) -> Found:
        """Returns [numbers]: the rooms of several shapes on the existing nodes of one cluster."""
        if self.places_by_shape(slot):
            return self._rooms_beside_reserved(NODES, self._rows[slot], numbers)
        total = self._table.total[numbers, slot]
        return total, total, np.full(len(numbers), -1)

    def _rooms_beside_reserved(self, layer: int, row: Row, numbers: Numbers) -> Found:
        asked, work = self._compute_costs(layer, row, numbers), self._scratch[layer]
        if layer == NODES and row is None:
            self._last = asked
        left = asked.total - asked.values_of_pairs(self.reserved)
        possible, certain = np.maximum(left, 0), np.maximum(left - asked.lost, 0)
        promised = np.full(len(left), -1)
        with np.errstate(divide="ignore"):
            allowed = np.divide(self._used_part_of_array(self._layers[layer].spare, row), asked.onto, out=work.costs)
        least = np.floor(np.minimum.reduce(allowed, axis=0, initial=np.inf))
        binds = least < certain
        if binds.any():
            np.copyto(work.factors, np.less(allowed, least + 1, out=work.mask))
            np.multiply(work.factors, self._used_part_of_array(self._counts, row), out=work.factors)
            promised = np.where(binds, np.maximum.reduce(work.factors, axis=0), -1).astype(np.int64)
            certain = np.minimum(certain, least)
        return certain.astype(np.int64), possible, promised

    def _compute_costs(self, layer: int, row: Row, numbers: Numbers) -> _AskedShapes:
        """Computes how many replicas the asked shapes and the reserved shapes cost each other.

        The result uses arrays of the layer's scratch, so it is valid only until the next call for this layer.
        """
        table, shapes, work = self._table, self._shapes, self._scratch[layer]
        table.grow_slots_and_kinds(0, len(shapes.kinds))  # Kinds may have been added since the last call.
        slots = self._slots if row is None else np.full(np.size(numbers), self._slots[row])
        asked = _AskedShapes(table, shapes.kind[numbers], layer, row, numbers, slots)
        others = self._used_part_of_array(self._others, row)
        work.resize_arrays(len(others), len(asked.total))
        if layer == NODES:
            self._last = None
        np.copyto(work.factors, self._shapes_meeting(asked, others))
        costs, onto = work.costs, work.onto
        if isinstance(numbers, int):
            shapes.costs[numbers].take(others, out=costs, mode="clip")
            shapes.losses[numbers].take(others, out=onto, mode="clip")
        else:
            costs[:], onto[:] = shapes.losses[others, numbers], shapes.losses[numbers, others]
        np.minimum(costs, asked.largest.astype(np.float64), out=costs)
        costs *= work.factors
        costs *= self._used_part_of_array(self._counts, row)
        asked.lost = np.add.reduce(costs, axis=0)
        np.minimum(onto, self._used_part_of_array(self._layers[layer].most, row), out=onto)
        onto *= work.factors
        asked.onto = onto
        return asked

    def _shapes_meeting(self, asked: _AskedShapes, others: Int64s) -> Bools:
        """Returns [places, pairs]: whether some node takes replicas of the shape and of the reserved shape."""
        table, row, numbers, work = self._table, asked.row, asked.numbers, self._scratch[asked.layer]
        np.bitwise_and(
            self._used_part_of_array(self._samples, row), asked.values_of_pairs(table.sample), out=work.words
        )
        meets = np.not_equal(work.words, 0, out=work.meets)
        if asked.layer == EVERYWHERE:
            meets |= (table.groups[others, asked.slots] & asked.values_of_pairs(table.groups)) != 0
        np.bitwise_and(self._used_part_of_array(self._kinds, row), asked.together, out=work.words)
        unsure = np.greater(np.not_equal(work.words, 0, out=work.mask), meets, out=work.mask)
        found = unsure.ravel().nonzero()[0]
        if len(found):
            pairs, at = self._flat_indices(asked, found)
            ones = np.full(len(pairs), numbers) if isinstance(numbers, int) else numbers.take(pairs)
            meets.ravel()[found] = self._pairs_sharing_node(asked.slots.take(pairs), ones, self._others.take(at))
        return meets

    def _used_part_of_array(self, array: Array, row: Row) -> Array:
        """Returns the used part of an array: [places, rows], or [places, 1] for one row."""
        if row is None:
            return array[: self._most_places]
        return array[: len(self.places[row]), row, None]

    def _flat_indices(self, asked: _AskedShapes, found: Int64s) -> tuple[Int64s, Int64s]:
        """Turns flat indices into [places, pairs] into pairs, and into flat indices into [places, rows]."""
        places, pairs = np.divmod(found, len(asked.total))
        return pairs, places * self._others.shape[1] + (pairs if asked.row is None else asked.row)

    def _pairs_sharing_node(self, slots: Int64s, ones: Int64s, others: Int64s) -> Bools:
        """Returns [pairs]: whether any node takes both shapes. Looks at all nodes, since no sample node takes both."""
        table, kind, kinds = self._table, self._shapes.kind, len(self._shapes.kinds)
        late = slots[table.apart_of.take(slots) < kinds]
        for index in set(late.tolist()) if len(late) else ():
            self._fits[index].find_apart_kinds()
        meets = ~table.apart[slots, kind.take(ones), kind.take(others)]
        unsure = meets.nonzero()[0]
        here: dict[int, list[int]] = {}
        for at, index in zip(unsure.tolist(), slots[unsure].tolist(), strict=True):
            here.setdefault(index, []).append(at)
        for index, pairs in here.items():
            meets[pairs] = self._fits[index].can_share_node(ones[pairs], others[pairs])
        return meets


def _values_at(array: Array, ones: Numbers, slots: Array) -> Array:
    """Returns [pairs] from an array over shapes or kinds, and clusters."""
    found: Array = array[ones, slots] if isinstance(ones, np.ndarray) else array[ones].take(slots)
    return found


def _copy_values_into(before: Array, after: Array) -> Array:
    """Copies the values of the first array into the second, and returns it."""
    both = tuple(slice(min(one, other)) for one, other in zip(before.shape, after.shape, strict=True))
    after[both] = before[both]
    return after
