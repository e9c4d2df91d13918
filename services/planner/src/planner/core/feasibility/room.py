"""Computes how many more replicas a cluster certainly and possibly takes in addition to reserved ones.

The cluster's scheduler chooses the nodes. A promise must hold for any choice. So every reserved, unbound replica
counts at the most that it can cost.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from planner.core.feasibility.label_effects import (
    ALL,
    NODE,
    ByLabel,
    Effect,
    effects_between_shapes,
    effects_with_shape,
)
from planner.core.feasibility.limits import NO_LIMIT, Limit, LimitCode, limit_by_nodes, limit_by_promised
from spillway.feasibility.fit import Fit, depends_on_domain, max_replicas_on_group_node, replicas_on_group_node
from spillway.feasibility.node_match import Bools
from spillway.model import Int64s, NodeGroup, Shape


class Room(NamedTuple):
    """The room for more replicas in one cluster.

    certain: the number of replicas that run no matter which nodes the cluster's scheduler chooses.
    possible: the most replicas that can run if the scheduler chooses well; certain ≤ possible.
    limited_by: the reason why `certain` is not larger.
    when_empty: whether the shape would run here if nothing else did.
    """

    certain: int
    possible: int
    limited_by: Limit
    when_empty: bool


NO_ROOM = Room(0, 0, NO_LIMIT, when_empty=False)
"""A room without replicas, for callers that read only the numbers."""


def replicas_lost_to_pod(taken: Mapping[str, int], shape: Mapping[str, int], largest: int) -> int:
    """Returns the most replicas of a shape that lose their room to one pod.

    On its node the pod takes room for at most ⌈taken/request⌉ replicas in each resource, and never for more than the
    node takes. taken: the pod's requests. shape: the requests of the shape. largest: the most that one node takes.
    """
    most = max((-(-taken.get(name, 0) // amount) for name, amount in shape.items()), default=0)
    return min(most, largest)


Fits = Sequence[tuple[Shape, int, Fit]]
"""(shape, unbound replicas, its fit on the same nodes). Equal shapes are one entry."""


class FitLimits(NamedTuple):
    """The parts of a Fit on which the effects of labels depend; see Fit. marks: as in Effect, for one pod."""

    possible: int
    largest: int
    marks: int


class NodeReservations:
    """The reservations on some nodes as vectors over k reserved shapes, computed once for all shapes that ask for room.

    counts: [k], unbound replicas. limits: the FitLimits of each. requests: [k, names].
    words: for each, one bit a node: whether the node takes a replica.
    slack: [k], the places that each shape can lose before one of its unbound replicas has none; negative: one has none
        already.
    """

    def __init__(self, reserved: Fits, per_node_of: Callable[[Shape], Int64s] | None = None) -> None:
        """Makes the vectors. reserved: equal shapes must be one entry.

        per_node_of: returns Fit.per_node of a shape; None: it is read from the fits in `reserved`.
        """
        fits = [other for _, _, other in reserved]
        self.shapes = [other for other, _, _ in reserved]
        self.counts = np.array([count for _, count, _ in reserved], np.int64)
        self.limits = [_limits_of_fit(other) for other in fits]
        self.largest = np.array([other.largest for other in fits], np.int64)
        self.names = sorted({name for other in self.shapes for name, _ in other.requests})
        self.requests = np.array([_request_vector(other, self.names) for other in self.shapes], np.int64)
        self.indices: dict[Shape, list[int]] = {}
        for index, other in enumerate(self.shapes):
            self.indices.setdefault(other, []).append(index)
        self.others = ByLabel(self.shapes)
        self.words = np.stack([_node_bits(other) for other in fits]) if fits else np.zeros((0, 0), np.uint64)
        self.slack = self._compute_slack(fits) if fits else self.counts
        self._fits = fits if per_node_of is None else []
        self._per_node_of = per_node_of

    def replicas_per_node(self, index: int) -> Int64s:
        return self._fits[index].per_node if self._per_node_of is None else self._per_node_of(self.shapes[index])

    def shapes_sharing_nodes(self, words: npt.NDArray[np.uint64]) -> Bools:
        """Returns [k]: whether the reserved shape fits on any of these nodes. words: one bit a node."""
        meets: Bools = np.logical_or.reduce(self.words & words, axis=1)
        return meets

    def _compute_slack(self, fits: Sequence[Fit]) -> Int64s:
        meets = np.stack([self.shapes_sharing_nodes(one) for one in self.words])
        costs = np.where(meets, np.minimum(_mutual_losses(self.requests), self.largest[:, None]), 0)
        for (victim, cause), effect in effects_between_shapes(self.shapes).items():
            costs[victim, cause] = _replicas_cost(
                effect, int(costs[victim, cause]), self.limits[victim], bool(meets[victim, cause])
            )
        np.fill_diagonal(costs, 0)
        spare = [fit.spare_replicas(count) for fit, count in zip(fits, self.counts.tolist(), strict=True)]
        slack: Int64s = np.array(spare, np.int64) - (costs * self.counts).sum(axis=1)
        return slack


def room_on_nodes(shape: Shape, fit: Fit, reserved: Fits | NodeReservations) -> Room:
    """Returns the room for a shape on the existing nodes. `reserved` includes unbound replicas of the shape itself."""
    there = reserved if isinstance(reserved, NodeReservations) else NodeReservations(reserved)
    if not there.shapes:
        return Room(fit.total, fit.possible, limit_by_nodes(fit.node_limit()), fit.when_empty)
    own, counts, size = _request_vector(shape, there.names), there.counts, len(there.shapes)
    meets = there.shapes_sharing_nodes(_node_bits(fit))
    same = np.zeros(size, np.bool_)
    same[[index for index in there.indices.get(shape, ()) if _is_own_shape(shape, fit, there, index)]] = True
    costs = np.where(meets, np.minimum(_losses_of_shape(there.requests, own), fit.largest), 0)
    costs_others = np.where(meets, np.minimum(_losses_by_shape(own, there.requests), there.largest), 0)
    for (victim, cause), effect in effects_with_shape(shape, there.others).items():
        if victim == size:
            costs[cause] = _replicas_cost(effect, int(costs[cause]), _limits_of_fit(fit), bool(meets[cause]))
        else:
            loss = int(costs_others[victim])
            costs_others[victim] = _replicas_cost(effect, loss, there.limits[victim], bool(meets[victim]))
    # Each unbound replica of the shape itself takes exactly one place, so these are subtracted as a number.
    of_own = int(counts[same].sum())
    possible = max(0, fit.possible - of_own)
    certain = min(possible, max(0, fit.certain_replicas_after_loss(int((counts * costs)[~same].sum())) - of_own))
    limit = limit_by_nodes(fit.node_limit(), 0 if certain == possible else int(counts.sum()))
    # More replicas must also leave each reserved shape enough room for all its replicas. Negative slack limits nothing.
    bounds = np.flatnonzero((there.slack >= 0) & (costs_others > 0) & ~same).tolist()
    allowed = ((int(there.slack[index] // costs_others[index]), -int(counts[index])) for index in bounds)
    least, count = min(allowed, default=(certain, 0))
    if least < certain:
        certain, limit = least, limit_by_promised(-count)
    return Room(certain, possible, limit, fit.when_empty)


def _is_own_shape(shape: Shape, fit: Fit, there: NodeReservations, index: int) -> bool:
    """Returns whether reserved replicas of an equal shape count as replicas of this shape.

    With other labels they do so only if they fit on the same nodes: running pods may keep one of the two away.
    """
    labels = there.shapes[index].traits.labels == shape.traits.labels
    return labels or np.array_equal(there.replicas_per_node(index), fit.per_node)


def _limits_of_fit(fit: Fit) -> FitLimits:
    return FitLimits(fit.possible, fit.largest, fit.extra_places_per_pod)


def _node_bits(fit: Fit) -> npt.NDArray[np.uint64]:
    """Returns one bit for each node: whether it takes a replica. The bits are packed into words of 64."""
    bits = np.packbits(fit.per_node > 0)
    return np.pad(bits, (0, -len(bits) % 8)).view(np.uint64)


def _replicas_cost(effect: Effect, loss: int, limits: FitLimits, meets: bool) -> int:
    """Returns the most replicas of a shape that lose their room to one replica of another shape.

    loss: by requests alone. meets: whether both shapes fit on a common node; only such a node can be closed.
    """
    if effect.bars == ALL:
        return limits.possible
    barred = limits.largest if effect.bars == NODE and meets else 0
    return max(loss, barred) + min(effect.marks, limits.marks)


def _request_vector(shape: Shape, names: Sequence[str]) -> Int64s:
    amounts = dict(shape.requests)
    return np.array([amounts.get(name, 0) for name in names], np.int64)


def _losses_of_shape(taken: Int64s, shape: Int64s) -> Int64s:
    """Returns [k]: the most that one pod of each of taken [k, resources] costs a shape [resources]."""
    asked = shape > 0
    result: Int64s = (-(-taken[:, asked] // shape[asked])).max(axis=1, initial=0)
    return result


def _mutual_losses(requests: Int64s) -> Int64s:
    """Returns [k, k]: the most that one pod of the second costs the first. requests: [k, resources]."""
    most = np.zeros((len(requests), len(requests)), np.int64)
    for amounts in requests.T:
        asked = amounts[:, None] > 0
        np.maximum(most, np.where(asked, -(-amounts // np.where(asked, amounts[:, None], 1)), 0), out=most)
    return most


def _losses_by_shape(taken: Int64s, shapes: Int64s) -> Int64s:
    """Returns [k]: the most that one pod with these requests [resources] costs each of shapes [k, resources]."""
    asked = np.where(shapes > 0, shapes, 1)
    result: Int64s = np.where(shapes > 0, -(-taken // asked), 0).max(axis=1)
    return result


def fit_with_node_groups(fit: Fit, shape: Shape, groups: Sequence[tuple[NodeGroup, int]]) -> Fit:
    """Returns the fit on the existing nodes and on all nodes that the groups can still make.

    Fit.per_node gets one more entry for each group: the replicas on one of its new nodes.
    """
    takes = [(replicas_on_group_node(shape, group), max(0, group.nodes_max - existing)) for group, existing in groups]
    total = sum(per_node * nodes for per_node, nodes in takes)
    more = np.array([per_node if nodes else 0 for per_node, nodes in takes], np.int64)
    return replace(
        fit,
        per_node=np.concatenate((fit.per_node, more)),
        total=fit.total + total,
        possible=fit.possible + total,
        largest=max(fit.largest, int(more.max(initial=0))),
    )


def room_within(inner: Room, outer: Room) -> Room:
    """Returns the inner room, with the certain number of the outer room if that is smaller.

    The outer room has more nodes, but more promises count there. A replica is certain only if it is so in both.
    """
    if outer.certain >= inner.certain:
        return inner
    return inner._replace(certain=outer.certain, limited_by=outer.limited_by)


def room_in_groups(
    shape: Shape, groups: Sequence[tuple[NodeGroup, int]], reserved: Sequence[tuple[Shape, int]]
) -> Room:
    """Returns the room on nodes that do not exist yet.

    groups: (node group, its existing nodes). reserved: replicas that wait for new nodes.
    """
    takes = [
        (group, replicas_on_group_node(shape, group), max(0, group.nodes_max - existing)) for group, existing in groups
    ]
    total = sum(per_node * nodes for _, per_node, nodes in takes)
    largest = max((per_node for _, per_node, nodes in takes if nodes), default=0)
    requests = dict(shape.requests)
    used = sum(
        count * max(1, replicas_lost_to_pod(dict(other.requests), requests, largest)) for other, count in reserved
    )
    certain = max(0, total - used)
    if not groups:
        return Room(0, 0, Limit(LimitCode.NO_NODE_GROUPS), False)
    fitting = [group.name for group, per_node, _ in takes if per_node]
    if depends_on_domain(shape):
        large = [group.name for group, _, _ in takes if max_replicas_on_group_node(shape, group)]
        return Room(certain, certain, _limit_by_groups(LimitCode.NODE_GROUPS_BY_DOMAIN, large), bool(large))
    return Room(certain, certain, _limit_by_groups(LimitCode.NODE_GROUPS_FULL, fitting), bool(fitting))


def _limit_by_groups(code: LimitCode, names: Sequence[str]) -> Limit:
    return Limit(code, names=tuple(names)) if names else Limit(LimitCode.NODE_GROUPS_TAKE_NONE)
