"""How many more replicas a cluster certainly, and how many it possibly, takes beside what is reserved (P5).

The member's scheduler chooses the nodes. A promise must hold whatever it chooses, so every replica that is reserved but
not bound yet is counted at the most that it can cost.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner.core.feasibility import Bools, Fit, fit_of_group
from planner.core.texts import counted
from spillway.model import Int64s, NodeGroup, Shape


@dataclass(frozen=True, slots=True)
class Room:
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
        return Room(fit.total, fit.total, fit.limited_by(), fit.when_empty)
    counts = np.array([count for _, count, _ in reserved], np.int64)
    names = sorted({name for other, _, _ in reserved for name, _ in other.requests} | {n for n, _ in shape.requests})
    requests = np.stack([_vector(other, names) for other, _, _ in reserved])
    own = _vector(shape, names)
    largest = np.array([other.largest for _, _, other in reserved], np.int64)
    takes = np.stack([other.per_node > 0 for _, _, other in reserved])
    meets_own = (takes & (fit.per_node > 0)).any(axis=1)

    whole = np.array([_keeps_away(shape, other) for other, _, _ in reserved], np.bool_)
    costs_own = np.where(meets_own, np.where(whole, fit.largest, np.minimum(_losses(requests, own), fit.largest)), 0)
    used = int((counts * costs_own).sum())
    same = sum(count for other, count, _ in reserved if other == shape)
    possible = max(0, fit.total - same)
    certain = min(possible, max(0, fit.total - used))
    limit = (
        fit.limited_by() if certain == possible else f"{fit.limited_by()}; {counted(int(counts.sum()))} not bound yet"
    )

    slack = _slack(reserved, counts, requests, takes)
    whole = np.array([_keeps_away(other, shape) for other, _, _ in reserved], np.bool_)
    costs_others = np.where(meets_own, np.where(whole, largest, np.minimum(_losses_of(own, requests), largest)), 0)
    for index in np.flatnonzero((slack >= 0) & (costs_others > 0)).tolist():
        allowed = int(slack[index] // costs_others[index])
        if allowed < certain:
            promised = counted(int(counts[index]), "promised replica")
            certain, limit = allowed, f"{promised} of another workload not bound yet"
    return Room(certain, possible, limit, fit.when_empty)


def _keeps_away(shape: Shape, other: Shape) -> bool:
    """Whether one replica of other may take a whole node from shape: its anti-affinity may match it.

    A shape does not bear its pods' labels, so every other shape of the namespace may be meant.
    """
    apart = any(not term.limits_itself for term in shape.apart)
    return apart and shape != other and shape.namespace == other.namespace


def _vector(shape: Shape, names: Sequence[str]) -> Int64s:
    amounts = dict(shape.requests)
    return np.array([amounts.get(name, 0) for name in names], np.int64)


def _losses(taken: Int64s, shape: Int64s) -> Int64s:
    """[k]: what one pod of each of taken [k, resources] costs a shape [resources] at the most."""
    asked = shape > 0
    result: Int64s = (-(-taken[:, asked] // shape[asked])).max(axis=1)
    return result


def _losses_of(taken: Int64s, shapes: Int64s) -> Int64s:
    """[k]: what one pod with these requests [resources] costs each of shapes [k, resources] at the most."""
    asked = np.where(shapes > 0, shapes, 1)
    result: Int64s = np.where(shapes > 0, -(-taken // asked), 0).max(axis=1)
    return result


def _slack(
    reserved: Sequence[tuple[Shape, int, Fit]],
    counts: Int64s,
    requests: Int64s,
    takes: Bools,
) -> Int64s:
    """[k]: replicas that each reserved shape could lose and still bind all of its own; negative: it cannot even now."""
    slack = np.empty(len(reserved), np.int64)
    for index, (shape, count, fit) in enumerate(reserved):
        meets = (takes & takes[index]).any(axis=1)
        whole = np.array([_keeps_away(shape, other) for other, _, _ in reserved], np.bool_)
        most = np.where(whole, fit.largest, np.minimum(_losses(requests, requests[index]), fit.largest))
        costs = np.where(meets, most, 0)
        costs[index] = 0
        slack[index] = fit.total - count - int((counts * costs).sum())
    return slack


def with_groups(fit: Fit, shape: Shape, groups: Sequence[tuple[NodeGroup, int]]) -> Fit:
    """The fit on the nodes that exist and all that the groups could still make: one column more for each group."""
    takes = [(fit_of_group(shape, group), max(0, group.nodes_max - existing)) for group, existing in groups]
    more = np.array([per_node if nodes else 0 for per_node, nodes in takes], np.int64)
    return replace(
        fit,
        per_node=np.concatenate((fit.per_node, more)),
        total=fit.total + sum(per_node * nodes for per_node, nodes in takes),
        largest=max(fit.largest, int(more.max(initial=0))),
    )


def nested(inner: Room, outer: Room) -> Room:
    """The tighter of two rooms of which the outer counts more nodes and more that is promised on them."""
    if outer.certain >= inner.certain:
        return inner
    return replace(inner, certain=outer.certain, limited_by=outer.limited_by)


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
