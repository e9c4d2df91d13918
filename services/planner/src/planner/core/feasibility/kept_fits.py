"""Keeps the fits of many shapes in one cluster. When a node changes, only its own share of each fit is computed again.

The numbers are those of feasibility.fit, whose filters are used here, too. Only sums are carried over. A shape is
counted in full when it is first asked about, and again when more than CHANGED_MAX nodes have changed.
"""

from copy import copy

import numpy as np
import numpy.typing as npt

from planner.core.feasibility import kept_shapes
from planner.core.feasibility.kept_shapes import ABSENT, KINDS_WITH_BITS, OPEN, KeptShapes, bit_of_kind
from spillway.feasibility.fit import Fit, NodeLimit, fits_when_empty
from spillway.feasibility.node_match import (
    Bools,
    NodeFilters,
    filter_by_labels,
    filter_by_state,
    filter_by_taints,
    filter_by_volumes,
)
from spillway.feasibility.nodes import ClusterNodes
from spillway.model import Int64s, Shape

CHANGED_MAX = 256
"""The most nodes that may change at once. If more change, all kept fits are counted again."""
_NOTHING_ASKED = 2**62
_NARROW = 2**31
_MEBI = 2**20

ALL_BITS = np.uint64(2**64 - 1)

Bytes = npt.NDArray[np.uint8]
Counts = npt.NDArray[np.int32]
Codes = npt.NDArray[np.int32]


class _Codes(NodeFilters):
    """The filters' result for each row. codes: [rows], OPEN, ABSENT, or the number of the reason against the node."""

    def __init__(self, live: Bools, shapes: KeptShapes) -> None:
        super().__init__(live)
        self.codes: Codes = np.where(live, OPEN, ABSENT).astype(np.int32)
        self._shapes = shapes

    def exclude_nodes(self, mask: Bools, reason: str) -> None:
        hit = self.open & mask
        if hit.any():
            self.codes[hit] = self._shapes.number_of_reason(reason)
            self.open &= ~mask


def _filter_codes(shape: Shape, nodes: ClusterNodes, shapes: KeptShapes) -> Codes:
    verdict = _Codes(nodes.live_mask, shapes)
    filter_by_state(shape, nodes, verdict)
    filter_by_taints(shape, nodes, verdict)
    filter_by_labels(shape, nodes, verdict)
    filter_by_volumes(shape, nodes, verdict)
    return verdict.codes


class _Demand:
    """The filters' result for one set of selectors and tolerations.

    closed: (reasons, counts), the number of nodes that each reason excludes.
    """

    def __init__(self, codes: Codes) -> None:
        self.codes = codes
        self.open: Bools = codes == OPEN
        self.count = int(np.count_nonzero(self.open))
        counts = np.bincount(codes[codes >= 0])
        reasons = np.flatnonzero(counts)
        self.closed: tuple[Int64s, Int64s] = (reasons, counts[reasons])


class FitTable:
    """The kept fits of all clusters: [shapes, slots], with one slot for each cluster.

    total, largest: as in Fit.
    sample: a bit for each of 64 sample nodes, set if the node takes a replica.
    counts: [shapes, slots, reasons], the number of nodes that each reason limits.
    kept: whether the entry is known.
    more, more_largest: total and largest of nodes that node groups could still make.
    groups: a bit for each node group whose new nodes take a replica.
    apart: [slots, kinds, kinds], whether no node may take shapes of both kinds.
    apart_of: [slots], how many kinds were compared for `apart`.
    together: [kinds, slots], a bit for each kind that is not known to be apart from this one.
    """

    def __init__(self, slots: int = 1) -> None:
        size = (kept_shapes.SHAPES_MAX + 1, slots)
        self.total: Int64s = np.zeros(size, np.int64)
        self.largest: Int64s = np.zeros(size, np.int64)
        self.sample: npt.NDArray[np.uint64] = np.zeros(size, np.uint64)
        self.kept: Bools = np.zeros(size, np.bool_)
        self.more: Int64s = np.zeros(size, np.int64)
        self.more_largest: Int64s = np.zeros(size, np.int64)
        self.groups: Int64s = np.zeros(size, np.int64)
        self.counts: Counts = np.zeros((*size, 32), np.int32)
        self.apart: Bools = np.zeros((slots, 8, 8), np.bool_)
        self.apart_of: Int64s = np.zeros(slots, np.int64)
        self.together: npt.NDArray[np.uint64] = np.full((8, slots), ALL_BITS)

    def grow_slots_and_kinds(self, slots: int, kinds: int) -> None:
        """Makes the arrays large enough for so many slots and kinds."""
        there, wide = self.apart.shape[:2]
        if slots <= there and kinds <= wide:
            return
        more = ((0, 2 * slots - there if slots > there else 0), (0, 2 * kinds - wide if kinds > wide else 0))
        self.apart = np.pad(self.apart, (*more, more[1]))
        self.apart_of = np.pad(self.apart_of, more[0])
        self.together = np.pad(self.together, more[::-1], constant_values=ALL_BITS)
        known, wide = self._kept_shapes_end(), there + more[0][1]
        for name in ("total", "largest", "sample", "kept", "more", "more_largest", "groups"):
            before = getattr(self, name)
            setattr(self, name, np.zeros((len(before), wide), before.dtype))
            getattr(self, name)[:known, :there] = before[:known]
        self._grow_counts(known, wide, self.counts.shape[2])

    def grow_reasons(self, reasons: int) -> None:
        """Makes the array large enough for the counts of so many reasons."""
        if reasons > self.counts.shape[2]:
            self._grow_counts(self._kept_shapes_end(), self.counts.shape[1], 2 * reasons)

    def forget_apart_kinds(self, slot: int) -> None:
        """Forgets which kinds of shapes are apart in a slot."""
        self.apart_of[slot], self.apart[slot], self.together[:, slot] = 0, False, ALL_BITS

    def store_apart_kinds(self, slot: int, apart: Bools) -> None:
        """Stores which kinds of shapes are apart in a slot. apart: [kinds, kinds]."""
        kinds = len(apart)
        self.grow_slots_and_kinds(0, kinds)
        self.apart[slot, :kinds, :kinds], self.apart_of[slot] = apart, kinds
        known = bit_of_kind(np.arange(min(kinds, KINDS_WITH_BITS)))
        self.together[:kinds, slot] = ~np.bitwise_or.reduce(np.where(apart[:, : len(known)], known, 0), axis=1)

    def _kept_shapes_end(self) -> int:
        """Returns the index after the last kept shape.

        Copies end there, so that the zeros behind it are never written and take no memory.
        """
        return int(np.flatnonzero(self.kept.any(axis=1)).max(initial=-1)) + 1

    def _grow_counts(self, known: int, slots: int, reasons: int) -> None:
        before = self.counts
        self.counts = np.zeros((len(before), slots, reasons), np.int32)
        self.counts[:known, : before.shape[1], : before.shape[2]] = before[:known]


class KeptFits:
    """The fits of one cluster, by the number of a shape.

    total_by_shape, largest_by_shape: as in Fit.
    bits: for each node row, whether the node takes a replica, packed into bytes.
    at_largest: how many nodes take as many replicas as the node that takes most.
    revision: the revision of the nodes for which these numbers were computed.
    changes: how often any of the numbers changed.
    is_sane: whether no node has a negative requested amount.
    """

    def __init__(self, shapes: KeptShapes, table: FitTable | None = None, slot: int = 0) -> None:
        self._shapes = shapes
        self._table, self._slot = table or FitTable(), slot
        self._nodes: ClusterNodes | None = None
        self.revision = -1
        self.changes = 0
        self._forgotten = shapes.forgotten
        self._clear_fits()

    def _clear_fits(self) -> None:
        rows = 0 if self._nodes is None else len(self._nodes.block)
        self._table.kept[:, self._slot] = False
        self._table.forget_apart_kinds(self._slot)
        most = len(self.kept_shapes_mask)
        self.at_largest: Int64s = np.zeros(most, np.int64)
        self.bits: Bytes = np.zeros((most, 8 * max(1, -(-rows // 64))), np.uint8)
        self._limits: dict[int, NodeLimit] = {}
        self._when_empty: dict[int, bool] = {}
        self._demands: dict[int, _Demand] = {}

    @property
    def total_by_shape(self) -> Int64s:
        column: Int64s = self._table.total[:, self._slot]
        return column

    @property
    def largest_by_shape(self) -> Int64s:
        column: Int64s = self._table.largest[:, self._slot]
        return column

    @property
    def reason_counts_by_shape(self) -> Counts:
        columns: Counts = self._table.counts[:, self._slot]
        return columns

    @property
    def kept_shapes_mask(self) -> Bools:
        column: Bools = self._table.kept[:, self._slot]
        return column

    # ── What is asked ───────────────────────────────────────────────────────────────────────────────────────────

    def keep_shape(self, number: int, nodes: ClusterNodes) -> None:
        """Updates all kept fits to these nodes, and adds this shape."""
        self.follow_nodes(nodes)
        if not self._table.kept[number, self._slot]:
            self._count_shape(number)

    def can_fit_when_empty(self, number: int) -> bool:
        """Returns Fit.when_empty for the shape. A node that takes a replica now also takes one when it is empty."""
        if self.total_by_shape[number] > 0 and self.is_sane:
            return True
        known = self._when_empty.get(number)
        if known is None:
            assert self._nodes is not None
            known = self._when_empty[number] = fits_when_empty(self._shapes.shapes[number], self._nodes)
        return known

    def limit_of_shape(self, number: int) -> NodeLimit:
        """Returns Fit.node_limit() for the shape: why the nodes take no more replicas."""
        known = self._limits.get(number)
        if known is None:
            known = self._limits[number] = NodeLimit(self.reasons_of_shape(number))
        return known

    def fit_of_shape(self, number: int) -> Fit:
        """Returns a simplified fit of the shape that suffices for reservations.

        Its per_node is 1 for a node that takes any replicas, and it has no reasons.
        """
        takes = np.unpackbits(self.bits[number], count=len(self._live)).astype(np.int64)
        total = int(self.total_by_shape[number])
        return Fit(takes, total, total, int(self.largest_by_shape[number]), self.can_fit_when_empty(number), ())

    def reasons_of_shape(self, number: int) -> tuple[tuple[str, int], ...]:
        """Returns Fit.reasons for the shape: (reason, number of nodes that take none because of it)."""
        return self._shapes.nodes_by_reason(self.reason_counts_by_shape[number])

    def can_share_node(self, ones: Int64s, others: Int64s) -> Bools:
        """Returns [pairs]: whether there is a node that takes replicas of both shapes. Both shapes must be kept."""
        words = self.bits.view(np.uint64)
        meets: Bools = np.logical_or.reduce(words[ones] & words[others], axis=1)
        return meets

    def find_apart_kinds(self) -> None:
        """Finds pairs of kinds of shapes that no node can take together.

        A node that offers none of a resource takes no shape that requests it. That holds only while no node has a
        negative requested amount (is_sane), as such a node has more free than it offers.
        """
        kinds = self._shapes.kinds
        assert self._nodes is not None
        gives = (
            {name: self._allocatable[row] > 0 for name, row in self._nodes.resources.items()} if self.is_sane else {}
        )
        masks = []
        for demand, names in kinds:
            mask = self._filtered_demand(demand).open.copy()
            for name in names if self.is_sane else ():
                mask &= gives.get(name, False)
            masks.append(mask)
        may_be = np.stack(masks).astype(np.float32)
        common: npt.NDArray[np.float32] = may_be @ may_be.T
        self._table.store_apart_kinds(self._slot, common == 0)

    # ── Following the nodes ─────────────────────────────────────────────────────────────────────────────────────

    def is_current_for(self, nodes: ClusterNodes) -> bool:
        """Returns whether the kept fits were computed for these nodes in their present state."""
        same = nodes is self._nodes and nodes.revision == self.revision
        return same and self._forgotten == self._shapes.forgotten

    def follow_nodes(self, nodes: ClusterNodes) -> None:
        """Updates the fits for the nodes that have changed since the last call."""
        if self.is_current_for(nodes):
            return
        changed = None
        if nodes is self._nodes and self._forgotten == self._shapes.forgotten:
            changed = self._changed_rows(nodes)
        if changed is None or len(changed) > CHANGED_MAX:
            self._nodes, self._forgotten = nodes, self._shapes.forgotten
            self.changes += 1
            self._clear_fits()
            self._copy_nodes(nodes)
        elif len(changed):
            self.changes += 1
            self._apply_changed_rows(nodes, changed)
        self.revision = nodes.revision

    def _copy_nodes(self, nodes: ClusterNodes) -> None:
        self._allocatable, self._free = nodes.allocatable.copy(), nodes.allocatable - nodes.requested
        self._live, self._label_set, self._taint_set = nodes.live_mask, nodes.label_set.copy(), nodes.taint_set.copy()
        self._state, self._unschedulable = nodes.state.copy(), nodes.unschedulable.copy()
        self._unlent = nodes.unlent.copy()
        self._used = len(nodes.names)
        self._units = [_scale_to_units(free) for free in self._free]
        self.is_sane = bool((nodes.requested >= 0).all())

    def _changed_rows(self, nodes: ClusterNodes) -> Int64s | None:
        """Returns the rows that have changed; None when the arrays have another shape."""
        if self._allocatable.shape != nodes.allocatable.shape:
            return None
        differs = (self._free != nodes.allocatable - nodes.requested).any(axis=0)
        differs |= (self._allocatable != nodes.allocatable).any(axis=0)
        differs |= self._filter_changes(nodes)
        return np.flatnonzero(differs)

    def _filter_changes(self, nodes: ClusterNodes) -> Bools:
        """Returns [rows]: whether the filters may decide differently about a node than before."""
        differs: Bools = (
            (self._live != nodes.live_mask)
            | (self._label_set != nodes.label_set)
            | (self._taint_set != nodes.taint_set)
            | (self._state != nodes.state)
            | (self._unschedulable != nodes.unschedulable)
            | (self._unlent != nodes.unlent)
        )
        return differs

    def _apply_changed_rows(self, nodes: ClusterNodes, rows: Int64s) -> None:
        numbers = np.flatnonzero(self.kept_shapes_mask)
        before = self._replicas_and_reasons(numbers, rows)
        if (self._allocatable[:, rows] != nodes.allocatable[:, rows]).any() or self._filter_changes(nodes)[rows].any():
            self._when_empty.clear()
            self._table.forget_apart_kinds(self._slot)
            self._filter_rows_again(nodes, rows)
        self._allocatable[:, rows] = nodes.allocatable[:, rows]
        self._free[:, rows] = nodes.allocatable[:, rows] - nodes.requested[:, rows]
        self._used = max(self._used, len(nodes.names))
        for index, (unit, units) in enumerate(self._units):
            there = self._free[index, rows]
            if unit and abs(there).max(initial=0) // unit < _NARROW - 1:
                units[rows] = there // unit
            else:
                self._units[index] = (0, units)
        if self.is_sane and bool((nodes.requested[:, rows] < 0).any()):
            self.is_sane = False
            self._table.forget_apart_kinds(self._slot)
        for name in ("label_set", "taint_set", "state", "unschedulable", "unlent"):
            getattr(self, f"_{name}")[rows] = getattr(nodes, name)[rows]
        self._live[rows] = nodes.live_mask[rows]
        after = self._replicas_and_reasons(numbers, rows)
        self._add_differences(numbers, rows, before, after)

    def _filter_rows_again(self, nodes: ClusterNodes, rows: Int64s) -> None:
        part = _nodes_of_rows(nodes, rows)
        for index, demand in self._demands.items():
            demand.codes[rows] = _filter_codes(self._shapes.demands[index], part, self._shapes)
            self._demands[index] = _Demand(demand.codes)

    def _replicas_and_reasons(self, numbers: Int64s, rows: Int64s) -> tuple[Int64s, Int64s]:
        """Returns two arrays [shapes, rows]: the replicas that each node takes, and the limiting reason or ABSENT."""
        asked, free = self._shapes.requests[numbers], self._free[:, rows]
        assert self._nodes is not None
        least = np.full((len(numbers), len(rows)), _NOTHING_ASKED, np.int64)
        binds = np.zeros(least.shape, np.int64)
        for name, column in sorted(self._shapes.resources.items()):
            amounts = asked[:, column]
            wanted = amounts > 0
            if not wanted.any():
                continue
            row = self._nodes.resources.get(name)
            here = free[row] if row is not None else np.zeros(len(rows), np.int64)
            takes = np.where(wanted[:, None], here // np.where(wanted, amounts, 1)[:, None], _NOTHING_ASKED)
            binds = np.where(takes < least, self._shapes.resource_reason[column], binds)
            least = np.minimum(least, takes)
        codes = self._filter_codes_of(numbers, rows)
        is_open = codes == OPEN
        return np.where(is_open, np.maximum(least, 0), 0), np.where(is_open, binds, codes)

    def _filter_codes_of(self, numbers: Int64s, rows: Int64s) -> Codes:
        demands, which = np.unique(self._shapes.demand[numbers], return_inverse=True)
        if not len(demands):
            return np.zeros((0, len(rows)), np.int32)
        codes: Codes = np.stack([self._filtered_demand(index).codes[rows] for index in demands.tolist()])[which]
        return codes

    def _add_differences(
        self, numbers: Int64s, rows: Int64s, before: tuple[Int64s, Int64s], after: tuple[Int64s, Int64s]
    ) -> None:
        (old, bound_by), (new, binds) = before, after
        self.total_by_shape[numbers] += new.sum(axis=1) - old.sum(axis=1)
        largest, most = self.largest_by_shape[numbers], new.max(axis=1)
        left = self.at_largest[numbers] - np.count_nonzero(old == largest[:, None], axis=1)
        left = np.where(most > largest, 0, left) + np.count_nonzero(new == np.maximum(most, largest)[:, None], axis=1)
        takes = self.total_by_shape[numbers] > 0
        self.largest_by_shape[numbers], self.at_largest[numbers] = np.where(takes, np.maximum(most, largest), 0), left
        self.kept_shapes_mask[numbers[takes & (left <= 0)]] = (
            False  # The largest is no longer known, so these are counted again.
        )
        for index, row in enumerate(rows.tolist()):
            byte, bit = row >> 3, np.uint8(128 >> (row & 7))
            held = self.bits[numbers, byte]
            self.bits[numbers, byte] = np.where(new[:, index] > 0, held | bit, held & ~bit)
        self._table.sample[numbers, self._slot] = self._sample_words(numbers)
        other = bound_by != binds
        for sign, reasons in ((-1, bound_by), (1, binds)):
            counted = other & (reasons >= 0)
            self._table.grow_reasons(len(self._shapes.reasons))
            np.add.at(self.reason_counts_by_shape, (numbers[np.nonzero(counted)[0]], reasons[counted]), sign)
        for number in numbers[other.any(axis=1)].tolist():
            self._limits.pop(number, None)

    # ── Counting in full ────────────────────────────────────────────────────────────────────────────────────────

    def _filtered_demand(self, index: int) -> _Demand:
        known = self._demands.get(index)
        if known is None:
            assert self._nodes is not None
            known = self._demands[index] = _Demand(
                _filter_codes(self._shapes.demands[index], self._nodes, self._shapes)
            )
        return known

    def _count_shape(self, number: int) -> None:
        assert self._nodes is not None
        demand = self._filtered_demand(int(self._shapes.demand[number]))
        least, smaller = None, []
        for name, amount in self._shapes.shapes[number].requests:
            takes = self._replicas_by_row(name, amount)
            if least is None:
                least = takes
            else:
                smaller.append(takes < least)
                least = np.minimum(least, takes)
        assert least is not None
        takes = np.maximum(least, 0) * demand.open[: self._used]
        self._table.grow_reasons(len(self._shapes.reasons))
        some = takes > 0
        self.total_by_shape[number], largest = takes.sum(), takes.max(initial=0)
        self.largest_by_shape[number], self.at_largest[number] = largest, np.count_nonzero(takes == largest)
        packed = np.packbits(some)
        self.bits[number, : len(packed)] = packed
        self._table.sample[number, self._slot] = self._sample_words(number)
        self.reason_counts_by_shape[number] = 0
        self._count_reasons(number, demand, smaller)
        self._limits.pop(number, None)
        self._when_empty.pop(number, None)
        self.kept_shapes_mask[number] = True

    def _replicas_by_row(self, name: str, amount: int) -> npt.NDArray[np.int32] | Int64s:
        """Returns [rows]: how many replicas one resource allows on each node.

        If the amount is a multiple of the unit, it uses the free amounts in units: these arrays are smaller.
        """
        assert self._nodes is not None
        row = self._nodes.resources.get(name)
        if row is None:
            return np.zeros(self._used, np.int32)
        unit, units = self._units[row][0], self._units[row][1][: self._used]
        if unit and not amount % unit and amount // unit < _NARROW:
            return units if amount == unit else units // np.int32(amount // unit)
        free: Int64s = self._free[row, : self._used]
        return free if amount == 1 else free // amount

    def _count_reasons(self, number: int, demand: _Demand, smaller: list[Bools]) -> None:
        """Counts the nodes by the reason that limits them.

        smaller: for each request after the first, the nodes where it allows fewer replicas than all requests before.
        """
        reasons, nodes = demand.closed
        self.reason_counts_by_shape[number, reasons] = nodes
        names = [name for name, _ in self._shapes.shapes[number].requests]
        rest = demand.open[: self._used]
        for name, hits in zip(reversed(names[1:]), reversed(smaller), strict=True):
            bound = rest & hits
            count = int(np.count_nonzero(bound))
            if count:
                self.reason_counts_by_shape[number, self._shapes.number_of_reason(name)] = count
                rest = rest & ~hits
        self.reason_counts_by_shape[number, self._shapes.number_of_reason(names[0])] = np.count_nonzero(rest)

    def _sample_words(self, numbers: Int64s | int) -> npt.NDArray[np.uint64]:
        words = self.bits.view(np.uint64)
        found: npt.NDArray[np.uint64] = words[numbers, words.shape[1] // 2]
        return found


def _scale_to_units(free: Int64s) -> tuple[int, npt.NDArray[np.int32]]:
    """Returns the smallest unit in which the amounts fit 32 bits (0: none), and the amounts in it, rounded down."""
    most = int(abs(free).max(initial=0))
    unit = next((unit for unit in (1, _MEBI) if most // unit < _NARROW - 1), 0)
    return unit, (free // (unit or _NOTHING_ASKED)).astype(np.int32)


def _nodes_of_rows(nodes: ClusterNodes, rows: Int64s) -> ClusterNodes:
    """Returns a copy with some rows only. It holds just the columns that the filters of a kept shape read."""
    part = copy(nodes)
    used, part.label_set = np.unique(nodes.label_set[rows], return_inverse=True)
    part.label_sets = [nodes.label_sets[index] for index in used.tolist()] if nodes.label_sets else []
    part.block, part.taint_set = nodes.block[rows], nodes.taint_set[rows]
    part.state, part.unschedulable, part.unlent = nodes.state[rows], nodes.unschedulable[rows], nodes.unlent[rows]
    return part
