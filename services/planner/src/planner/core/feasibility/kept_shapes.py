"""Numbers the shapes that are asked about, the same for all clusters, so that arrays can be kept over them.

Only shapes whose fit on a node depends on that node alone get a number. The others are computed each time.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import chain

import numpy as np
import numpy.typing as npt

from spillway.model import HOSTNAME_LABEL, Int64s, Shape

SHAPES_MAX = 4096
"""The most kept shapes. If there are more, all are forgotten, and each comes back when it is asked about."""
RESERVED_MAX = 3 * SHAPES_MAX // 4
"""The most reserved shapes for which rooms are kept. The rest of SHAPES_MAX is for shapes that are only asked about."""
RESOURCES_MAX = 256
"""The most names of resources. Each is a column in an array of all shapes. A shape with one more name is not kept.
If all shapes were forgotten instead, one caller's new names would have every caller's shapes counted again.
"""
REASONS_MAX = 1_024
"""The number of reasons why nodes take no more, above which no new one is added. Each node selector is such a reason,
and each reason has a count for every shape in every cluster. Beyond this number, a shape with a new node selector, node
affinity or toleration is not kept.
"""
CHARACTERS_MAX = 32_768
"""The most characters of a shape's selectors, tolerations, terms and names. A longer shape is not kept, to bound the
memory of SHAPES_MAX shapes."""
KINDS_WITH_BITS = 63
"""The number of kinds with a bit of their own. All further kinds share the last bit, which is never cleared."""
_TEXT_ITSELF = 50
"""Characters that each text counts for in addition to its own: about what its object takes in memory."""
NEW = -1
OPEN = -1
ABSENT = -2
"""NEW: a shape that has no number yet. The others are codes of a row, in addition to the numbers of reasons. OPEN:
labels, taints and state of the node admit the shape. ABSENT: the row has no node."""


class KeptShapes:
    """The numbered shapes. When there are too many, all are forgotten; then every number from here is invalid.

    This includes the numbers of resources and reasons. Callers compare `forgotten` to notice it.
    shapes: by number.
    requests: int64 [numbers, resources], 0 where nothing is requested.
    losses: float64 [numbers, numbers]. losses[a, b] is the most replicas of shape b that lose their room to one replica
    of shape a. losses[a, a] is 0, as a shape's own replicas are counted separately.
    costs: the transpose of losses, so that each question about one shape reads neighbouring values.
    demands: for each demand (selectors, tolerations, volume limits), a shape that has it. demand: [numbers].
    kinds: (demand, requested resources), which together decide on what nodes a shape may ever be. kind: [numbers].
    bit: [numbers], the bit of the shape's kind.
    reasons: texts by number.
    forgotten: how often all numbers became invalid.
    """

    def __init__(self) -> None:
        self.forgotten = 0
        self._clear_shapes()

    def _clear_shapes(self) -> None:
        self.reasons: list[str] = []
        self.resources: dict[str, int] = {}
        self.resource_reason: Int64s = np.zeros(0, np.int64)
        self._reason_ids: dict[str, int] = {}
        self.shapes: list[Shape] = []
        self.demands: list[Shape] = []
        self.kinds: list[tuple[int, tuple[str, ...]]] = []
        most = SHAPES_MAX + 1  # Zeros that nobody has touched take no memory: arrays for all shapes never grow.
        self.requests: Int64s = np.zeros((most, 8), np.int64)
        self.demand: Int64s = np.zeros(most, np.int64)
        self.kind: Int64s = np.zeros(most, np.int64)
        self.bit: npt.NDArray[np.uint64] = np.zeros(most, np.uint64)
        self.losses: npt.NDArray[np.float64] = np.zeros((most, most))
        self.costs: npt.NDArray[np.float64] = np.zeros((most, most))
        self._ids: dict[Shape, int | None] = {}
        self._last: tuple[Shape | None, int | None] = (None, None)
        self._demand_ids: dict[object, int] = {}
        self._kind_ids: dict[tuple[int, tuple[str, ...]], int] = {}

    def number_of_shape(self, shape: Shape) -> int | None:
        """Returns the shape's number; None for a shape that is not kept.

        It may invalidate all earlier numbers: see forgotten.
        """
        if shape is self._last[0]:  # The same caller often asks about one shape again.
            return self._last[1]
        known = self._ids.get(shape, NEW)
        if known != NEW:
            self._last = shape, known
            return known
        if has_too_long_texts(shape):
            return None
        if len(self._ids) >= SHAPES_MAX:
            self._clear_shapes()
            self.forgotten += 1
        number = self._ids[shape] = (
            self._add_shape(shape) if is_node_local(shape) and self._has_columns_left(shape) else None
        )
        return number

    def can_keep_shape(self, shape: Shape) -> bool:
        """Returns whether the shape can get a number without making other numbers invalid."""
        return shape in self._ids or len(self._ids) < SHAPES_MAX

    def _has_columns_left(self, shape: Shape) -> bool:
        if len(self.reasons) >= REASONS_MAX and _demand_key(shape) not in self._demand_ids:
            return False
        return len(self.resources.keys() | {name for name, _ in shape.requests}) <= RESOURCES_MAX

    def number_of_reason(self, text: str) -> int:
        known = self._reason_ids.get(text)
        if known is None:
            known = self._reason_ids[text] = len(self.reasons)
            self.reasons.append(text)
        return known

    def nodes_by_reason(self, counts: npt.NDArray[np.int32]) -> tuple[tuple[str, int], ...]:
        """Returns (text, nodes) for each reason, the most nodes first, like Fit.reasons. counts: [reasons], nodes."""
        found = [(self.reasons[index], int(counts[index])) for index in np.flatnonzero(counts).tolist()]
        return tuple(sorted(found, key=lambda entry: (-entry[1], entry[0])))

    def _add_shape(self, shape: Shape) -> int:
        number = len(self.shapes)
        self.shapes.append(shape)
        self._add_resource_columns(shape)
        for name, amount in shape.requests:
            self.requests[number, self.resources[name]] = amount
        self.demand[number] = self._number_of_demand(shape)
        self.kind[number] = self._number_of_kind(int(self.demand[number]), tuple(name for name, _ in shape.requests))
        self.bit[number] = bit_of_kind(self.kind[number])
        others, own = self.requests[:number], self.requests[number]
        of_own, of_others = _most_replicas_lost(others, own), _most_replicas_lost(own, others)
        self.losses[:number, number] = self.costs[number, :number] = of_own
        self.losses[number, :number] = self.costs[:number, number] = of_others
        return number

    def _add_resource_columns(self, shape: Shape) -> None:
        new = [name for name, _ in shape.requests if name not in self.resources]
        if not new:
            return
        self.resources |= {name: column for column, name in enumerate(new, len(self.resources))}
        self.resource_reason = np.append(self.resource_reason, [self.number_of_reason(name) for name in new])
        before = self.requests
        if len(self.resources) > before.shape[1]:
            self.requests = np.zeros((len(before), 2 * len(self.resources)), np.int64)
            self.requests[: len(self.shapes), : before.shape[1]] = before[: len(self.shapes)]

    def _number_of_kind(self, demand: int, names: tuple[str, ...]) -> int:
        known = self._kind_ids.get((demand, names))
        if known is None:
            known = self._kind_ids[demand, names] = len(self.kinds)
            self.kinds.append((demand, names))
        return known

    def _number_of_demand(self, shape: Shape) -> int:
        key = _demand_key(shape)
        known = self._demand_ids.get(key)
        if known is None:
            known = self._demand_ids[key] = len(self.demands)
            self.demands.append(shape)
        return known


def bit_of_kind(kind: Int64s) -> npt.NDArray[np.uint64]:
    bits: npt.NDArray[np.uint64] = np.left_shift(np.uint64(1), np.minimum(kind, KINDS_WITH_BITS).astype(np.uint64))
    return bits


def _demand_key(shape: Shape) -> object:
    return shape.node_selector, shape.node_terms, shape.tolerations, shape.volume_limits


def is_node_local(shape: Shape) -> bool:
    """Returns whether the shape's fit on a node depends on that node's amounts, labels, taints and state alone."""
    terms = (*shape.node_terms, *(term for limit in shape.volume_limits for term in limit.terms))
    named = any(term.fields or any(entry.key == HOSTNAME_LABEL for entry in term.labels) for term in terms) or any(
        key == HOSTNAME_LABEL for key, _ in shape.node_selector
    )
    in_order = [name for name, _ in shape.requests] == sorted({name for name, _ in shape.requests})
    asks = bool(shape.requests) and all(amount > 0 for _, amount in shape.requests)
    looks = shape.apart or shape.near or shape.spread or shape.host_ports or shape.node_name
    return in_order and asks and not (named or looks)


def has_too_long_texts(shape: Shape) -> bool:
    """Returns whether the shape's texts are longer than CHARACTERS_MAX."""
    left = CHARACTERS_MAX
    for text in _texts_of_shape(shape):
        left -= len(text) + _TEXT_ITSELF
        if left < 0:
            return True
    return False


def _texts_of_shape(shape: Shape) -> Iterator[str]:
    yield from chain.from_iterable(shape.node_selector)
    for toleration in shape.tolerations:
        yield toleration.key
        yield toleration.value
    for term in (*shape.node_terms, *(term for limit in shape.volume_limits for term in limit.terms)):
        for entry in (*term.labels, *term.fields):
            yield entry.key
            yield from entry.values
    yield from shape.volume_claims
    yield from (name for name, _ in shape.requests)


@lru_cache(maxsize=SHAPES_MAX)
def shape_without_pod_terms(shape: Shape) -> Shape:
    """Returns the shape without its terms about pods, host ports or the node's name.

    A node that takes no replica of the result takes no replica of the shape either.
    """
    return replace(shape, host_ports=(), apart=(), near=(), spread=(), node_name="", unmodelled=())


def _most_replicas_lost(taken: Int64s, asked: Int64s) -> Int64s:
    """Returns the largest ⌈taken/asked⌉ of the requested resources. The resources are the last axis of the arrays."""
    rounded_up = -(-taken // np.maximum(asked, 1))
    most: Int64s = np.where(asked > 0, rounded_up, 0).max(axis=-1)
    return most
