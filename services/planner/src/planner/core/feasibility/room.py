"""How many more replicas a cluster certainly, and how many it possibly, takes beside what is reserved (P5).

The member's scheduler chooses the nodes. A promise must hold whatever it chooses, so every replica that is reserved but
not bound yet is counted at the most that it can cost.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from planner.core.feasibility.interplay import ALL, NODE, Effect, effects_of
from spillway.feasibility.fit import Fit, fit_of_group
from spillway.feasibility.node_match import Bools
from spillway.model import Int64s, NodeGroup, Shape
from spillway.texts import counted

NOT_ALL_BOUND = "; {} not bound yet"
PROMISED = "{} of another workload not bound yet"


class Room(NamedTuple):
    """certain: replicas that run whatever the member's scheduler chooses. possible: at the most, certain ≤ possible.

    limited_by: what bound certain, for people. when_empty: whether the shape would run here if nothing else did.
    """

    certain: int
    possible: int
    limited_by: str
    when_empty: bool


def loss(taken: Mapping[str, int], shape: Mapping[str, int], largest: int) -> int:
    """The most replicas of a shape that one pod with these requests can cost a cluster.

    On its node it takes room for at most ⌈taken/request⌉ of them in each resource, and never more than the node has.
    """
    most = max((-(-taken.get(name, 0) // amount) for name, amount in shape.items()), default=0)
    return min(most, largest)


def room_on_nodes(shape: Shape, fit: Fit, reserved: Sequence[tuple[Shape, int, Fit]]) -> Room:
    """Room on the nodes that exist.

    reserved: (shape, replicas not bound yet, its fit on the same nodes); equal shapes are one entry. Entries of
    shape itself are among them.
    """
    if not reserved:
        return Room(fit.total, fit.possible, fit.limited_by(), fit.when_empty)
    return _Meeting(shape, fit, reserved).room()


class _Meeting:
    """A shape among those that are reserved, as vectors over the latter."""

    def __init__(self, shape: Shape, fit: Fit, reserved: Sequence[tuple[Shape, int, Fit]]) -> None:
        self.shape, self.fit = shape, fit
        self.shapes = [other for other, _, _ in reserved]
        self.fits = [other for _, _, other in reserved]
        self.counts = np.array([count for _, count, _ in reserved], np.int64)
        names = sorted({name for other in (*self.shapes, shape) for name, _ in other.requests})
        self.requests = np.stack([_vector(other, names) for other in self.shapes])
        self.own = _vector(shape, names)
        self.largest = np.array([other.largest for other in self.fits], np.int64)
        self.takes = np.stack([other.per_node > 0 for other in self.fits])
        self.meets = self._meeting(fit)
        self.effects = effects_of((*self.shapes, shape))

    def room(self) -> Room:
        fit, counts = self.fit, self.counts
        same = np.array([self._is_same(index) for index in range(len(self.shapes))], np.bool_)
        costs = np.where(self.meets, np.minimum(_losses(self.requests, self.own), fit.largest), 0)
        self._add_effects(costs, len(self.shapes), fit, self.meets)
        possible = max(0, fit.possible - int(counts[same].sum()))
        left = fit.certain_without(int((counts * costs)[~same].sum())) - int(counts[same].sum())
        certain = min(possible, max(0, left))
        unbound = NOT_ALL_BOUND.format(counted(int(counts.sum())))
        limit = fit.limited_by() + ("" if certain == possible else unbound)
        slack = self._slack()
        costs_others = self._costs_others()
        bounds = np.flatnonzero((slack >= 0) & (costs_others > 0) & ~same).tolist()
        allowed = ((int(slack[index] // costs_others[index]), -int(counts[index])) for index in bounds)
        least, count = min(allowed, default=(certain, 0))
        if least < certain:
            certain, limit = least, PROMISED.format(counted(-count, "promised replica"))
        return Room(certain, possible, limit, fit.when_empty)

    def _is_same(self, index: int) -> bool:
        """Whether these are as our own replicas: pods that run may keep one of two equal shapes away by its labels."""
        other = self.shapes[index]
        labels = other.traits.labels == self.shape.traits.labels
        return other == self.shape and (labels or np.array_equal(self.fits[index].per_node, self.fit.per_node))

    def _costs_others(self) -> Int64s:
        """[k]: what one replica of the shape costs each of the others."""
        costs = np.where(self.meets, np.minimum(_losses_of(self.own, self.requests), self.largest), 0)
        for (victim, cause), effect in self.effects.items():
            if cause == len(self.shapes) != victim:
                costs[victim] = _cost(effect, int(costs[victim]), self.fits[victim], bool(self.meets[victim]))
        return costs

    def _slack(self) -> Int64s:
        """[k]: room that each reserved shape can lose and still bind all of its own; negative: it cannot even now."""
        meets = self._meeting_each_other()
        costs = np.where(meets, np.minimum(_losses_of_each_other(self.requests), self.largest[:, None]), 0)
        for index, fit in enumerate(self.fits):
            self._add_effects(costs[index], index, fit, meets[index])
        np.fill_diagonal(costs, 0)
        spare = [fit.spare(count) for fit, count in zip(self.fits, self.counts.tolist(), strict=True)]
        slack: Int64s = np.array(spare, np.int64) - (costs * self.counts).sum(axis=1)
        return slack

    def _meeting(self, fit: Fit) -> Bools:
        """[k]: which of the others may come to a node that takes one of these."""
        meets: Bools = np.logical_or.reduce(self.takes & (fit.per_node > 0), axis=1)
        return meets

    def _meeting_each_other(self) -> Bools:
        """[k, k]: as _meeting, of each of the others."""
        bits = np.packbits(self.takes, axis=1)
        words = np.pad(bits, ((0, 0), (0, -bits.shape[1] % 8))).view(np.uint64)
        return np.stack([(words & one).any(axis=1) for one in words])

    def _add_effects(self, costs: Int64s, victim: int, fit: Fit, meets: Bools) -> None:
        """Raises what replicas of each shape cost one of them by what they do beside taking room."""
        if not self.effects:
            return
        for cause in range(len(self.shapes)):
            effect = self.effects.get((victim, cause))
            if effect is not None:
                costs[cause] = _cost(effect, int(costs[cause]), fit, bool(meets[cause]))


def _cost(effect: Effect, loss: int, fit: Fit, meets: bool) -> int:
    """What one replica costs a shape at the most, in replicas. A node can be barred only where both may be."""
    if effect.bars == ALL:
        return fit.possible
    barred = fit.largest if effect.bars == NODE and meets else 0
    return max(loss, barred) + min(effect.marks, fit.marks_of_a_pod)


def _vector(shape: Shape, names: Sequence[str]) -> Int64s:
    amounts = dict(shape.requests)
    return np.array([amounts.get(name, 0) for name in names], np.int64)


def _losses(taken: Int64s, shape: Int64s) -> Int64s:
    """[k]: what one pod of each of taken [k, resources] costs a shape [resources] at the most."""
    asked = shape > 0
    result: Int64s = (-(-taken[:, asked] // shape[asked])).max(axis=1)
    return result


def _losses_of_each_other(requests: Int64s) -> Int64s:
    """[k, k]: what one pod of the second costs the first at the most; requests: [k, resources]."""
    most = np.zeros((len(requests), len(requests)), np.int64)
    for amounts in requests.T:
        asked = amounts[:, None] > 0
        np.maximum(most, np.where(asked, -(-amounts // np.where(asked, amounts[:, None], 1)), 0), out=most)
    return most


def _losses_of(taken: Int64s, shapes: Int64s) -> Int64s:
    """[k]: what one pod with these requests [resources] costs each of shapes [k, resources] at the most."""
    asked = np.where(shapes > 0, shapes, 1)
    result: Int64s = np.where(shapes > 0, -(-taken // asked), 0).max(axis=1)
    return result


def with_groups(fit: Fit, shape: Shape, groups: Sequence[tuple[NodeGroup, int]]) -> Fit:
    """The fit on the nodes that exist and all that the groups could still make: one column more for each group."""
    takes = [(fit_of_group(shape, group), max(0, group.nodes_max - existing)) for group, existing in groups]
    total = sum(per_node * nodes for per_node, nodes in takes)
    more = np.array([per_node if nodes else 0 for per_node, nodes in takes], np.int64)
    return replace(
        fit,
        per_node=np.concatenate((fit.per_node, more)),
        total=fit.total + total,
        possible=fit.possible + total,
        largest=max(fit.largest, int(more.max(initial=0))),
    )


def nested(inner: Room, outer: Room) -> Room:
    """The tighter of two rooms of which the outer counts more nodes and more that is promised on them."""
    if outer.certain >= inner.certain:
        return inner
    return inner._replace(certain=outer.certain, limited_by=outer.limited_by)


def room_in_groups(
    shape: Shape, groups: Sequence[tuple[NodeGroup, int]], reserved: Sequence[tuple[Shape, int]]
) -> Room:
    """Room on nodes that do not exist yet. groups: (node group, its nodes that exist); reserved: wait for new nodes."""
    takes = [(group, fit_of_group(shape, group), max(0, group.nodes_max - existing)) for group, existing in groups]
    total = sum(per_node * nodes for _, per_node, nodes in takes)
    largest = max((per_node for _, per_node, nodes in takes if nodes), default=0)
    requests = dict(shape.requests)
    used = sum(count * max(1, loss(dict(other.requests), requests, largest)) for other, count in reserved)
    certain = max(0, total - used)
    if not groups:
        return Room(0, 0, "no node groups", False)
    fitting = [group.name for group, per_node, _ in takes if per_node]
    limit = f"node groups {', '.join(fitting)} at their most" if fitting else "no node group has a node that takes it"
    return Room(certain, certain, limit, any(per_node > 0 for _, per_node, _ in takes))
