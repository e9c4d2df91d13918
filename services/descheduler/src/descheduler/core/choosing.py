"""Chooses the lent nodes to take back so that the pending pods can run: few nodes, and little lost work.

The choice is a greedy covering (Chvátal, A greedy heuristic for the set-covering problem, 1979). It takes the node with
the most value for the cost of its return, again and again. A node's value never rises, so a node is computed again only
when it is at the top of the heap. Then the nodes are left out whose pods the other chosen nodes take, too.

Within a node, larger pods go first (first-fit decreasing). Where few nodes are lent, other orders are tried as well,
and the best choice wins. Pods that fit free nodes need no recall. Nodes that are on their way back stay reserved for
the pods that they were recalled for, so a second look finds the same.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import Final

import numpy as np
import numpy.typing as npt

from descheduler.core.losses import ReturnLoss, pods_over_budget
from descheduler.core.needs import PendingNeed
from spillway.feasibility.fit import Fit, compute_fit
from spillway.feasibility.nodes import ClusterNodes
from spillway.feasibility.topology import SpreadBound
from spillway.model import Int64s

SPARED_LOOKS_MAX = 64
"""The most chosen nodes for which it is tried whether the other nodes take their pods."""

TRIED_NODES_MAX = 64
TRIES_MAX = 8
"""The most orders of the needs that are tried, if at most TRIED_NODES_MAX nodes are lent."""
NEEDS_LEAST: Final = 20
NODES_TIMES_NEEDS_MAX: Final = 1_000_000
"""The most needs times nodes that one look compares, and the fewest needs: some 0.8 s with all orders. It is 200 needs
of a cluster with 5,000 nodes."""

_Place = tuple[tuple[bool, int], float, int, int]
"""The order in which nodes are taken: rank, value per cost (negative, so the best is first), deletion cost, row."""

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(slots=True)
class RecallChoice:
    """A lent node to recall, and the pending replicas that then fit on it.

    row: the node's row in ClusterNodes.
    replicas: the number of these replicas, by index of the need.
    """

    row: int
    replicas: dict[int, int]


@dataclass(frozen=True, slots=True)
class LentNodes:
    """The lent nodes of one cluster, and the limits of the choice.

    losses: the loss by node, for the nodes that may be taken back.
    return_cost: the cost of any return in addition to lost work, in core-seconds: the node is not lent for a while.
    limit: the most nodes that may be chosen.
    promised: the replicas by need, for each node that was recalled already.
    just_back: promised nodes whose row may already count the pods that they came back for, while these pods still seem
        to wait. Their promise is kept, whether or not the row shows room.
    """

    losses: Mapping[str, ReturnLoss]
    return_cost: int
    limit: int
    promised: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    just_back: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ChoiceResult:
    """The result of a choice.

    nodes: the replicas by need, for each node that goes back.
    unmet: how many replicas still find no place although they would find one if no others waited, and those of needs
        that the look had no time for.
    """

    nodes: Mapping[str, Mapping[str, int]]
    unmet: int


@dataclass(slots=True)
class _Domains:
    """The places left in each domain, for one ceiling on a need's replicas.

    domains: the domain of each row; -1: none.
    """

    domains: Int64s
    left: Int64s

    def places_left_at(self, row: int) -> int:
        return int(self.left[self.domains[row]]) if self.domains[row] >= 0 else np.iinfo(np.int64).max

    def take_places(self, row: int, replicas: int) -> None:
        if self.domains[row] >= 0:
            self.left[self.domains[row]] -= replicas


@dataclass(slots=True)
class _Field:
    """The present state of all needs and nodes while a choice is made.

    requests: [needs, resources]; the requests of one replica.
    takes: [needs, rows]; how many more replicas a node takes.
    room: [resources, rows]; the free amounts.
    left: [needs]; the replicas that still wait.
    weight: [needs]; the value of one replica.
    """

    requests: Int64s
    takes: Int64s
    room: Int64s
    left: Int64s
    weight: Floats
    ceilings: list[list[_Domains]] = field(default_factory=list)

    def plan_replicas(self, row: int, wanted: Mapping[int, int] | None = None) -> dict[int, int]:
        """Returns the replicas by need that a node takes now, larger ones first.

        wanted: by need, the most replicas to place; None: all replicas that wait.
        """
        room = self.room[:, row].copy()
        left = self.left
        if wanted is not None:
            left = np.zeros_like(self.left)
            for need, replicas in wanted.items():
                left[need] = min(replicas, int(self.left[need]))
        waiting = (left > 0) & (self.takes[:, row] > 0)
        planned: dict[int, int] = {}
        while True:
            able = waiting & (self.requests <= room).all(axis=1)
            need = int(able.argmax())
            if not able[need]:
                return planned
            waiting[: need + 1] = False
            asked = self.requests[need]
            some = asked > 0
            most = min(int((room[some] // asked[some]).min()), int(self.takes[need, row]), int(left[need]))
            most = min([most, *(ceiling.places_left_at(row) for ceiling in self.ceilings[need])])
            if most > 0:
                planned[need] = most
                room -= asked * most

    def rows_with_room(self, rows: Int64s, wanted: Mapping[int, int]) -> Bools:
        """Returns for each row whether it has room for at least one replica of any of these needs.

        Ceilings are ignored.
        """
        found = np.zeros(len(rows), np.bool_)
        for need in (need for need, replicas in wanted.items() if replicas > 0):
            fits = (self.requests[need][:, None] <= self.room[:, rows]).all(axis=0)
            found |= fits & (self.takes[need, rows] > 0)
        return found

    def value_of_replicas(self, planned: Mapping[int, int]) -> float:
        """Returns the total value of these replicas. planned: replicas by need."""
        return sum(float(self.weight[need]) * replicas for need, replicas in planned.items())

    def place_replicas(self, row: int, planned: Mapping[int, int]) -> None:
        """Places replicas on a row: they take its room, and wait no longer."""
        for need, replicas in planned.items():
            self.room[:, row] -= self.requests[need] * replicas
            self.takes[need, row] -= replicas
            self.left[need] -= replicas
            for ceiling in self.ceilings[need]:
                ceiling.take_places(row, replicas)

    def lift_replicas(self, row: int, planned: Mapping[int, int]) -> None:
        """Takes placed replicas off a row again."""
        self.place_replicas(row, {need: -replicas for need, replicas in planned.items()})

    def fill_nodes(self, rows: Int64s) -> None:
        """Places as many replicas as these nodes take, larger ones first.

        A need without ceilings is placed on all nodes in one step.
        """
        for need in range(len(self.left)):
            if self.left[need] <= 0 or not len(rows):
                continue
            asked = self.requests[need]
            wanted = asked > 0
            most = (self.room[np.ix_(wanted, rows)] // asked[wanted][:, None]).min(axis=0)
            most = np.maximum(np.minimum(most, self.takes[need, rows]), 0)
            if self.ceilings[need]:
                self._fill_one_by_one(need, rows[most > 0], most[most > 0])
                continue
            before = np.concatenate(([0], np.cumsum(most)[:-1]))
            taken = np.minimum(most, np.maximum(self.left[need] - before, 0))
            self.room[:, rows] -= asked[:, None] * taken
            self.takes[need, rows] -= taken
            self.left[need] -= int(taken.sum())

    def _fill_one_by_one(self, need: int, rows: Int64s, most: Int64s) -> None:
        for row, there in zip(rows.tolist(), most.tolist(), strict=True):
            replicas = min(
                [there, int(self.left[need]), *(ceiling.places_left_at(row) for ceiling in self.ceilings[need])]
            )
            if replicas > 0:
                self.place_replicas(row, {need: replicas})


def choose_nodes(
    needs: Sequence[PendingNeed], nodes: ClusterNodes, lent: LentNodes, compared_max: int = NODES_TIMES_NEEDS_MAX
) -> ChoiceResult:
    """Returns the lent nodes that go back.

    nodes: the cluster's nodes as they would be after a return. Nodes without a loss are free, or on their way back.
    compared_max: the most needs times nodes that are looked at.
    """
    rows = {nodes.row_of(name): name for name in lent.losses}
    candidates = {row: name for row, name in rows.items() if row is not None}
    ordered = sorted(needs, key=lambda need: -_share_of_largest_node(need, nodes))
    if not candidates or not ordered:
        return ChoiceResult({}, sum(need.replicas for need in ordered))
    looked_at = _needs_of_one_look(ordered, nodes, lent, compared_max)
    fits = {need.name: compute_fit(need.shape, nodes) for need in looked_at}
    first, *others = [
        _choose_in_order(order, fits, candidates, nodes, lent) for order in _orders_of_needs(looked_at, len(candidates))
    ]
    # The other orders count only if they leave no pod waiting. Where some pods wait whichever nodes go back, each look
    # could find a slightly better choice, and so recall nodes again and again.
    best = min((first, *(one for one in others if not one.unmet)), key=lambda choice: _rank_of_choice(choice, lent))
    left_out = sum(need.replicas for need in ordered) - sum(need.replicas for need in looked_at)
    return replace(best, unmet=best.unmet + left_out)


def _needs_of_one_look(
    ordered: Sequence[PendingNeed], nodes: ClusterNodes, lent: LentNodes, compared_max: int
) -> Sequence[PendingNeed]:
    """Returns the needs that one look has time for: those that nodes are on their way back for, then the larger ones.

    Needs that are larger than any node come last, because none is ever met. The others follow once these are met. An
    API server may list any number of nodes and of waiting pods, and the other clusters wait for this look.
    """
    most = max(NEEDS_LEAST, compared_max // max(1, len(nodes.live_mask)))
    if len(ordered) <= most:
        return ordered
    promised = {need for replicas in lent.promised.values() for need in replicas}

    def rank_of_need(need: PendingNeed) -> tuple[bool, bool]:
        return need.name not in promised, _share_of_largest_node(need, nodes) > 1

    chosen = {need.name for need in sorted(ordered, key=rank_of_need)[:most]}
    return [need for need in ordered if need.name in chosen]


def _orders_of_needs(needs: Sequence[PendingNeed], candidates: int) -> Iterable[Sequence[PendingNeed]]:
    """Yields the needs with larger ones first.

    For few nodes, it also yields orders with another need in front, to find the need that fills a node best.
    """
    yield needs
    if candidates <= TRIED_NODES_MAX:
        for first in needs[1:TRIES_MAX]:
            yield [first, *(need for need in needs if need is not first)]


def _rank_of_choice(choice: ChoiceResult, lent: LentNodes) -> tuple[int, int, Sequence[tuple[bool, int]], int]:
    """Returns the rank of a choice; the lowest is best, and of equal choices the first one is taken.

    It compares waiting replicas, then pods beyond budgets, then the highest ranks, then the total loss.
    """
    losses = [lent.losses[node] for node in choice.nodes]
    ranks = sorted((loss.rank for loss in losses), reverse=True)
    return (
        choice.unmet,
        pods_over_budget(losses),
        ranks,
        sum(loss.core_seconds + lent.return_cost + 1 for loss in losses),
    )


def _choose_in_order(
    ordered: Sequence[PendingNeed],
    fits: Mapping[str, Fit],
    candidates: Mapping[int, str],
    nodes: ClusterNodes,
    lent: LentNodes,
) -> ChoiceResult:
    """Returns the choice for this order of needs; on every node the first need comes first."""
    ground = _make_field(ordered, [fits[need.name] for need in ordered], nodes)
    kept = _keep_promises(ground, ordered, nodes, lent)
    free = nodes.live_mask.copy()
    free[[*candidates, *kept]] = False
    # The free nodes come first. So a second look fills them as they were filled before the promises were made.
    ground.fill_nodes(np.flatnonzero(free))
    ground.fill_nodes(np.array(kept, np.int64))
    taken = _cover_needs(
        ground, {row: (lent.losses[name], lent.return_cost) for row, name in candidates.items()}, lent.limit
    )
    _leave_out_spare_nodes(ground, taken, {row: lent.losses[name] for row, name in candidates.items()})
    named = {candidates[taking.row]: _replicas_by_need(taking, ordered) for taking in taken}
    return ChoiceResult(named, int(ground.left.sum()))


def _keep_promises(ground: _Field, needs: Sequence[PendingNeed], nodes: ClusterNodes, lent: LentNodes) -> list[int]:
    """Places on each node that is on its way back the replicas that it was recalled for.

    Returns the rows of these nodes.
    """
    index_of = {need.name: index for index, need in enumerate(needs)}
    kept = []
    for name, promised in lent.promised.items():
        row = nodes.row_of(name)
        if row is None or name in lent.losses:
            continue
        kept.append(row)
        wanted = {index_of[need]: replicas for need, replicas in promised.items() if need in index_of}
        planned = ground.plan_replicas(row, wanted)
        ground.place_replicas(row, planned)
        if name in lent.just_back:
            # The row may count the promised pods already. So all of them count as placed, even if no room is left.
            for need, replicas in wanted.items():
                ground.left[need] = max(0, ground.left[need] - replicas + planned.get(need, 0))
    return kept


def _cover_needs(ground: _Field, costs: Mapping[int, tuple[ReturnLoss, int]], limit: int) -> list[RecallChoice]:
    """Takes nodes rank by rank, and within a rank by value per cost. Each taken node uses up its disruption budgets."""
    taken: list[RecallChoice] = []
    spent = Counter[str]()

    def place_of(row: int, planned: Mapping[int, int]) -> _Place:
        loss = costs[row][0]
        breaks = loss.breaks_budget or any(spent[one.budget] + one.pods > one.allowed for one in loss.bounded)
        return (breaks, loss.priority), -_value_per_cost(ground, planned, costs[row]), loss.deletion_cost, row

    heap = [place_of(row, ground.plan_replicas(row)) for row in costs]
    heapq.heapify(heap)
    while heap and len(taken) < limit and (ground.left > 0).any():
        seen = heapq.heappop(heap)
        row = seen[-1]
        planned = ground.plan_replicas(row)
        if not planned:
            continue
        now = place_of(row, planned)
        # The value may have fallen since the row was put on the heap. If another node is better now, that one is next.
        if now > seen and heap and now > heap[0]:
            heapq.heappush(heap, now)
            continue
        ground.place_replicas(row, planned)
        taken.append(RecallChoice(row, planned))
        spent.update({one.budget: one.pods for one in costs[row][0].bounded})
    return taken


def _value_per_cost(ground: _Field, planned: Mapping[int, int], cost: tuple[ReturnLoss, int]) -> float:
    loss, of_return = cost
    return ground.value_of_replicas(planned) / (1 + of_return + loss.core_seconds)


def _leave_out_spare_nodes(ground: _Field, taken: list[RecallChoice], losses: Mapping[int, ReturnLoss]) -> None:
    """Leaves out the nodes whose pods the other nodes take, too.

    Nodes that break a disruption budget are tried first, then those with the pods of the highest priority, then those
    with the least value.
    """
    looks = sorted(
        taken, key=lambda taking: (_rank_of_spare_node(losses[taking.row]), ground.value_of_replicas(taking.replicas))
    )
    for taking in looks[:SPARED_LOOKS_MAX]:
        ground.lift_replicas(taking.row, taking.replicas)
        moved = _place_pods_on_other_nodes(ground, taking, [other for other in taken if other is not taking])
        if moved is None:
            ground.place_replicas(taking.row, taking.replicas)
            continue
        for other, planned in moved:
            for need, replicas in planned.items():
                other.replicas[need] = other.replicas.get(need, 0) + replicas
        taken.remove(taking)


def _place_pods_on_other_nodes(
    ground: _Field, taking: RecallChoice, others: Sequence[RecallChoice]
) -> list[tuple[RecallChoice, dict[int, int]]] | None:
    """Places all pods of a node on the others. If not all fit, nothing is changed and None is returned."""
    waiting = dict(taking.replicas)
    moved: list[tuple[RecallChoice, dict[int, int]]] = []
    able = ground.rows_with_room(np.array([other.row for other in others], np.int64), waiting)
    for other in compress(others, able):
        planned = ground.plan_replicas(other.row, waiting)
        if planned:
            ground.place_replicas(other.row, planned)
            moved.append((other, planned))
            for need, replicas in planned.items():
                waiting[need] -= replicas
        if not any(waiting.values()):
            return moved
    for other, planned in moved:
        ground.lift_replicas(other.row, planned)
    return None


def _rank_of_spare_node(loss: ReturnLoss) -> tuple[bool, int]:
    return not loss.breaks_budget, -loss.priority


def _replicas_by_need(taking: RecallChoice, needs: Sequence[PendingNeed]) -> dict[str, int]:
    return {needs[need].name: replicas for need, replicas in sorted(taking.replicas.items()) if replicas}


def _make_field(needs: Sequence[PendingNeed], fits: Sequence[Fit], nodes: ClusterNodes) -> _Field:
    requests = np.zeros((len(needs), len(nodes.resources)), np.int64)
    for index, need in enumerate(needs):
        for name, amount in need.shape.requests:
            if name in nodes.resources:
                requests[index, nodes.resources[name]] = amount
    return _Field(
        requests=requests,
        takes=np.stack([found.per_node for found in fits]),
        room=nodes.allocatable - nodes.requested,
        left=np.array([min(need.replicas, found.possible) for need, found in zip(needs, fits, strict=True)], np.int64),
        weight=np.array([_share_of_largest_node(need, nodes) for need in needs]),
        ceilings=[_ceilings_by_domain(found) for found in fits],
    )


def _ceilings_by_domain(found: Fit) -> list[_Domains]:
    """Returns the ceilings of topology spread and pod anti-affinity, as high as they are once all nodes are filled."""
    domains = []
    for bound in found.bounds:
        if not isinstance(bound, SpreadBound):
            continue
        for ceiling in bound.ceilings:
            height = ceiling.height_once_filled(ceiling.sums_by_domain(bound.takes))
            domains.append(_Domains(ceiling.domains, np.maximum(height - ceiling.present, 0)))
    return domains


def _share_of_largest_node(need: PendingNeed, nodes: ClusterNodes) -> float:
    """Returns the largest share of the largest node's amount, over all resources; 1 is a whole node."""
    if not nodes.allocatable.size:
        return 0.0
    largest = nodes.allocatable.max(axis=1)
    shares = [
        amount / max(int(largest[nodes.resources[name]]), 1)
        for name, amount in need.shape.requests
        if name in nodes.resources
    ]
    return max(shares, default=0.0)
