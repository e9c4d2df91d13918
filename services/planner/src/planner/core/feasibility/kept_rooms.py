"""The room beside what is reserved, for all kept shapes in all clusters: room.py's conditions, over arrays.

What is reserved changes with every plan, in the few clusters that it gives replicas to: what those cost the others
there is added, and nothing else is worked out anew. The functions of room.py are what tests compare this with.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from planner.core.feasibility.fit import Fit
from planner.core.feasibility.kept_fits import FitTable, KeptFits
from planner.core.feasibility.kept_groups import KeptGroups
from planner.core.feasibility.kept_shapes import KeptShapes
from planner.core.feasibility.node_match import Bools
from planner.core.feasibility.room import NOT_ALL_BOUND, PROMISED, Room
from planner.core.fleet import ClusterView
from spillway.model import Int64s, Shape
from spillway.texts import counted

ONE_BY_ONE = 2
"""Shapes that are worked out when they are asked for in a cluster; after so many, all that are kept are, in one go."""
PAIRS_MAX = 50_000
"""Of shapes and reservations that are worked out in one go."""
GROUPS_MAX = 62
"""Of one cluster: as many as there are bits."""
NODES, EVERYWHERE = 0, 1
"""Layers: the nodes that exist, and those together with all that node groups could still make."""
_UNBOUNDED = 2**62


class _Slot:
    """One cluster. places: by the number of a shape, where it is among those that are reserved.

    is_current: whether slack is of the nodes as they are. odd: reservations of which arrays do not tell.
    found, rooms: by shape, until something changes here.
    """

    def __init__(self, index: int, fits: KeptFits, groups: KeptGroups) -> None:
        self.index, self.fits, self.groups = index, fits, groups
        self.view: ClusterView | None = None
        self.joined: object = None
        self.changes = -1
        self.is_current = False
        self.places: dict[int, int] = {}
        self.namespaces: Counter[str] = Counter()
        self.odd = 0
        self.found: dict[int, tuple[int, int, int]] = {}
        self.rooms: dict[int, Room] = {}

    def changed(self) -> None:
        self.found.clear()
        self.rooms.clear()

    def is_plain(self, view: ClusterView, shape: Shape) -> bool:
        """Whether neither quotas, nor pods that run, nor odd reservations say anything of the shape here."""
        if self.odd or view.quotas.get(shape.namespace) or len(self.groups.remaining) > GROUPS_MAX:
            return False
        pods = view.nodes.pods
        return not pods.repelling or not any(pods.repels(name) for name in (shape.namespace, *self.namespaces))


@dataclass(slots=True)
class _Words:
    """In order: what limits a shape on all nodes, whether it would run where nothing else did, and of what nodes."""

    changes: int
    of: list[int]
    limits: list[str]
    when_empty: list[bool]


class KeptRooms:
    """others, counts: [slots, places], the shapes that are reserved in a cluster, and the unbound replicas of each.

    slack: [layers, slots, places], room that each of them can lose and still bind all of its own; negative: it cannot.
    samples, most: what the table has of each of them. Void when the shapes' numbers are.
    """

    def __init__(self, shapes: KeptShapes) -> None:
        self.forgotten = shapes.forgotten
        self._shapes = shapes
        self._table = FitTable(16)
        self._slots: dict[str, _Slot] = {}
        self._by_index: list[_Slot] = []
        self._in_order: list[_Slot] = []
        self._seen: tuple[list[object], ...] = ()
        self._order: Int64s = np.zeros(0, np.int64)
        self._all_slots: Int64s = np.zeros(0, np.int64)
        self._layers: Int64s = np.zeros(0, np.int64)
        self._with_groups: list[int] = []
        self._places: list[tuple[str, bool]] = []
        self._repelling = False
        self._has_groups = False
        self._odd = 0
        self._used: int | None = 0
        self._others: Int64s = np.zeros((16, 8), np.int64)
        self._counts: Int64s = np.zeros((16, 8), np.int64)
        self._slack: Int64s = np.full((2, 16, 8), -1, np.int64)
        self._samples: npt.NDArray[np.uint64] = np.zeros((16, 8), np.uint64)
        self._most: Int64s = np.zeros((2, 16, 8), np.int64)
        self._waiting: dict[tuple[int, int], int] = {}
        self._words: dict[int, _Words] = {}
        self._changes = 0

    # ── What is reserved ────────────────────────────────────────────────────────────────────────────────────────

    def reserve(self, cluster: str, shape: Shape, more: int) -> None:
        """So many more unbound replicas of a shape, or fewer, on the nodes of a cluster that exist."""
        slot, number = self._slot(cluster), self._shapes.number(shape)
        slot.namespaces[shape.namespace] += more
        if not slot.namespaces[shape.namespace]:
            del slot.namespaces[shape.namespace]
        if number is None:
            slot.odd, self._odd = slot.odd + more, self._odd + more
        else:
            place = (slot.index, number)
            self._waiting[place] = self._waiting.get(place, 0) + more

    def reserve_odd(self, cluster: str, more: int) -> None:
        """So many more reservations, or fewer, of which arrays do not tell: of replicas that wait for new nodes."""
        self._slot(cluster).odd += more
        self._odd += more

    def _slot(self, cluster: str) -> _Slot:
        slot = self._slots.get(cluster)
        if slot is None:
            index = len(self._slots)
            self._table.grow(index + 1, len(self._shapes.kinds))
            if index >= len(self._others):
                self._others, self._counts = (np.pad(one, ((0, index), (0, 0))) for one in (self._others, self._counts))
                self._samples = np.pad(self._samples, ((0, index), (0, 0)))
                self._most = np.pad(self._most, ((0, 0), (0, index), (0, 0)))
                self._slack = np.pad(self._slack, ((0, 0), (0, index), (0, 0)), constant_values=-1)
            fits = KeptFits(self._shapes, self._table, index)
            slot = self._slots[cluster] = _Slot(index, fits, KeptGroups(self._shapes, self._table, index))
            self._by_index.append(slot)
        return slot

    # ── What is asked ───────────────────────────────────────────────────────────────────────────────────────────

    def room(self, view: ClusterView, shape: Shape, number: int) -> Room | None:
        """On the nodes of one cluster that exist; None where arrays do not tell."""
        slot = self._slot(view.name)
        self._follow(slot, view)
        if not slot.is_plain(view, shape):
            return None
        if self._waiting:
            self._take_waiting()
        if not slot.is_current:
            self._begin([slot])
        known = slot.rooms.get(number)
        if known is None:
            if number not in slot.found:
                slot.fits.keep(number, view.nodes)
                self._find_in(slot, number)
            certain, possible, bound_by = slot.found[number]
            limit = self._limit(slot.fits.limited_by(number), slot.index, certain != possible, bound_by)
            known = slot.rooms[number] = Room(certain, possible, limit, slot.fits.when_empty(number))
        return known

    def fit(self, view: ClusterView, number: int) -> Fit:
        """Of a reserved shape, as far as others look at it."""
        slot = self._slot(view.name)
        self._follow(slot, view)
        slot.fits.keep(number, view.nodes)
        return slot.fits.fit(number)

    def rooms(self, views: Mapping[str, ClusterView], shape: Shape, number: int) -> dict[tuple[str, bool], Room]:
        """By cluster, on the nodes that exist; with True, on those of its node groups. Where arrays tell."""
        self._refresh(views)
        self._keep(number)
        certain, possible, bound_by = self._all(number)
        words = self._words_of(number)
        limits = [*words.limits, *(words.limits[index] for index in self._with_groups)]
        unbound = self._counts[self._all_slots].sum(axis=1).tolist()
        for index in np.flatnonzero(certain != possible).tolist():
            limits[index] += _not_all_bound(unbound[index])
        for index in np.flatnonzero(bound_by >= 0).tolist():
            limits[index] = _promised(int(bound_by[index]))
        beside = certain.tolist()
        rooms = map(Room, beside, possible.tolist(), limits, words.when_empty)
        found = dict(zip(self._places, rooms, strict=True))
        for at, index in enumerate(self._with_groups, len(self._in_order)):
            alone, left = self._in_order[index].groups.room(number), max(0, beside[at] - beside[index])
            room = alone if left >= alone.certain else Room(left, alone.possible, limits[at], alone.when_empty)
            found[self._places[index][0], True] = room
        if self._odd or self._repelling or any(view.quotas for view in views.values()):
            for slot, (name, view) in zip(self._in_order, views.items(), strict=True):
                if not slot.is_plain(view, shape):
                    del found[name, False]
                    found.pop((name, True), None)
        return found

    def _limit(self, text: str, slot: int, not_all_bound: bool, bound_by: int) -> str:
        if bound_by >= 0:
            return _promised(bound_by)
        return text + _not_all_bound(int(self._counts[slot].sum())) if not_all_bound else text

    def _words_of(self, number: int) -> _Words:
        known = self._words.get(number)
        if known is None:
            size = len(self._in_order)
            known = self._words[number] = _Words(-1, [-1] * size, [""] * size, [False] * size)
        if known.changes != self._changes:
            known.changes = self._changes
            for index, slot in enumerate(self._in_order):
                if known.of[index] != slot.changes:
                    known.of[index] = slot.changes
                    known.limits[index] = slot.fits.limited_by(number)
                    known.when_empty[index] = slot.fits.when_empty(number)
        return known

    # ── Following nodes and reservations ────────────────────────────────────────────────────────────────────────

    def _refresh(self, views: Mapping[str, ClusterView]) -> None:
        """All that is kept is of these clusters as they are, in this order."""
        nodes = [view.nodes for view in views.values()]
        revisions = [entry.revision for entry in nodes]
        seen: tuple[list[object], ...] = (list(views), [*nodes], [*revisions], [view.joined for view in views.values()])
        if seen != self._seen:
            if not self._seen or seen[0] != self._seen[0]:
                self._in_order = [self._slot(name) for name in views]
                self._words.clear()
            for slot, view in zip(self._in_order, views.values(), strict=True):
                self._follow(slot, view)
            self._order = np.array([slot.index for slot in self._in_order], np.int64)
            self._with_groups = [index for index, slot in enumerate(self._in_order) if slot.groups.remaining]
            self._all_slots = np.concatenate((self._order, self._order[self._with_groups]))
            self._layers = np.repeat((NODES, EVERYWHERE), (len(self._order), len(self._with_groups)))
            self._repelling = any(entry.pods.repelling for entry in nodes)
            self._places = [(name, False) for name in views]
            self._seen = seen
        self._take_waiting()
        late = [slot for slot in self._in_order if not slot.is_current]
        if late:
            self._begin(late)

    def _follow(self, slot: _Slot, view: ClusterView) -> None:
        is_same = slot.view is view and slot.joined is view.joined and slot.fits.is_of(view.nodes)
        if is_same and slot.changes == slot.fits.changes:  # Else they were followed for what is reserved there.
            return
        slot.view, slot.joined = view, view.joined
        slot.fits.follow(view.nodes)
        if slot.groups.follow(view) or slot.changes != slot.fits.changes:
            slot.changes = slot.fits.changes
            slot.is_current = False
            slot.changed()
            self._changes += 1
            self._has_groups = self._has_groups or bool(slot.groups.remaining)

    def _take_waiting(self) -> None:
        """Each reservation that changed since the last time; of one cluster one after the other."""
        waiting = [(index, number, more) for (index, number), more in self._waiting.items() if more]
        self._waiting.clear()
        while waiting:
            now = {entry[0]: entry for entry in reversed(waiting)}
            waiting = [entry for entry in waiting if now[entry[0]] is not entry]
            self._take([(self._by_index[index], number, more) for index, number, more in now.values()])

    def _take(self, changes: Sequence[tuple[_Slot, int, int]]) -> None:
        """changes: (where, of which shape, how many more), no two of one cluster."""
        begun = []
        for slot, number, more in changes:
            slot.changed()
            place = slot.places.get(number)
            is_new = place is None
            if place is None:
                place = self._new_place(slot, number)
            self._counts[slot.index, place] += more
            if slot.is_current and slot.view is not None:
                slot.fits.keep(number, slot.view.nodes)
                slot.groups.keep(number)
                begun.append((NODES, slot.index, number, more, place, is_new))
                if slot.groups.remaining:
                    begun.append((EVERYWHERE, slot.index, number, more, place, is_new))
        if begun:
            self._shift(np.array(begun, np.int64))
        for slot, number, _ in changes:
            place = slot.places[number]
            if not self._counts[slot.index, place]:
                self._drop_place(slot, number, place)

    def _shift(self, begun: Int64s) -> None:
        """What more of a shape in each of some clusters takes from the slack of the others there, and from its own.

        begun: [clusters, 6]: layer, slot, number, how many more, place, whether it is new there.
        """
        new = begun[begun[:, 5] > 0]
        self._note_places(*new[:, [0, 1, 2, 4]].T)
        layer, slots, numbers, more, places, _ = begun.T
        wide = self._wide()
        others, there = self._others[slots, :wide], self._counts[slots, :wide] > 0
        losses = np.minimum(self._losses(numbers, others), self._most[layer, slots, :wide])
        costs = np.where(self._meet(layer, slots, numbers, others, there), losses, 0)
        self._slack[layer, slots, :wide] -= more[:, None] * costs
        self._slack[layer, slots, places] -= more
        if len(new):
            layer, slots, numbers, _, places, _ = new.T
            self._slack[layer, slots, places] = self._slack_of(layer, slots, numbers)

    def _note_places(self, layer: Int64s, slots: Int64s, numbers: Int64s, places: Int64s) -> None:
        self._most[layer, slots, places] = self._largest(layer, slots, numbers)
        self._samples[slots, places] = self._table.sample[slots, numbers]

    def _begin(self, late: Iterable[_Slot]) -> None:
        """The slack of all that is reserved in some clusters, in full."""
        pairs = []
        for slot in late:
            slot.is_current = True
            self._slack[:, slot.index] = -1
            assert slot.view is not None
            for number, place in slot.places.items():
                slot.fits.keep(number, slot.view.nodes)
                slot.groups.keep(number)
                pairs.append((NODES, slot.index, number, place))
                if slot.groups.remaining:
                    pairs.append((EVERYWHERE, slot.index, number, place))
        for start in range(0, len(pairs), 1024):
            self._note_places(*np.array(pairs[start : start + 1024], np.int64).T)
        for start in range(0, len(pairs), 1024):
            layer, slots, numbers, places = np.array(pairs[start : start + 1024], np.int64).T
            self._slack[layer, slots, places] = self._slack_of(layer, slots, numbers)

    def _new_place(self, slot: _Slot, number: int) -> int:
        place = slot.places[number] = len(slot.places)
        wide = self._others.shape[1]
        if place >= wide:
            self._others, self._counts = (np.pad(one, ((0, 0), (0, wide))) for one in (self._others, self._counts))
            self._samples = np.pad(self._samples, ((0, 0), (0, wide)))
            self._most = np.pad(self._most, ((0, 0), (0, 0), (0, wide)))
            self._slack = np.pad(self._slack, ((0, 0), (0, 0), (0, wide)), constant_values=-1)
        self._others[slot.index, place] = number
        self._used = None if self._used is None else max(self._used, place + 1)
        return place

    def _drop_place(self, slot: _Slot, number: int, place: int) -> None:
        """The last one takes its place."""
        index, last = slot.index, len(slot.places) - 1
        moved = int(self._others[index, last])
        for array in (self._others, self._counts, self._samples, *self._most, *self._slack):
            array[index, place] = array[index, last]
        self._others[index, last] = self._counts[index, last] = 0
        self._slack[:, index, last] = -1
        del slot.places[number]
        self._used = None if self._used == last + 1 else self._used
        if moved != number:
            slot.places[moved] = place

    # ── Working it out ──────────────────────────────────────────────────────────────────────────────────────────

    def _keep(self, number: int) -> None:
        """The fit of a shape in all clusters."""
        self._table.grow(0, len(self._shapes.kinds))
        missing = ~self._table.kept[self._order, number]
        for index in np.flatnonzero(missing).tolist():
            slot = self._in_order[index]
            assert slot.view is not None
            slot.fits.keep(number, slot.view.nodes)
        for slot in self._in_order:
            if slot.groups.remaining:
                slot.groups.keep(number)

    def _all(self, number: int) -> tuple[Int64s, Int64s, Int64s]:
        """As _beside: in order, and then on all nodes of each cluster with node groups."""
        return self._beside(self._layers, self._all_slots, np.full(len(self._all_slots), number))

    def _find_in(self, slot: _Slot, number: int) -> None:
        asked = np.array([number])
        kept = np.flatnonzero(slot.fits.kept)
        if len(slot.found) >= ONE_BY_ONE and len(kept) * max(1, len(slot.places)) <= PAIRS_MAX:
            asked = kept
        slots = np.full(len(asked), slot.index)
        found = self._beside(np.full(len(asked), NODES), slots, asked)
        slot.found.update(zip(asked.tolist(), zip(*(one.tolist() for one in found), strict=True), strict=True))

    def _beside(self, layer: Int64s, slots: Int64s, numbers: Int64s) -> tuple[Int64s, Int64s, Int64s]:
        """[pairs] of cluster and shape: certain, possible, and the promised replicas that bound certain; −1 for none.

        Of several that bound it alike the most replicas.
        """
        total = self._total(layer, slots, numbers)
        wide = self._wide()
        if not wide:
            return total, total, np.full(len(total), -1)
        others, counts = self._others[slots, :wide], self._counts[slots, :wide]
        slack = self._slack[layer, slots, :wide]
        meets = self._meet(layer, slots, numbers, others, counts > 0)
        lost = (counts * np.where(meets, self._costs(layer, slots, numbers, others), 0)).sum(axis=1)
        same = (counts * (others == numbers[:, None])).sum(axis=1)
        possible = np.maximum(total - same, 0)
        certain = np.minimum(possible, np.maximum(np.maximum(total - lost, 0) - same, 0))
        onto = np.where(meets, np.minimum(self._losses(numbers, others), self._most[layer, slots, :wide]), 0)
        bounds = (slack >= 0) & (slack < certain[:, None] * onto)  # As slack // onto < certain, where that is divided.
        if not bounds.any():
            return certain, possible, np.full(len(total), -1)
        allowed = np.full(bounds.shape, _UNBOUNDED)
        np.floor_divide(slack, onto, out=allowed, where=bounds)
        least = allowed.min(axis=1)
        promised = np.where(bounds & (allowed == least[:, None]), counts, -1).max(axis=1)
        return np.minimum(certain, least), possible, promised

    def _slack_of(self, layer: Int64s, slots: Int64s, numbers: Int64s) -> Int64s:
        """[pairs] of cluster and a shape that is reserved there."""
        wide = self._wide()
        others, counts = self._others[slots, :wide], self._counts[slots, :wide]
        meets = self._meet(layer, slots, numbers, others, counts > 0)
        costs = np.where(meets, self._costs(layer, slots, numbers, others), 0)
        own = (counts * (others == numbers[:, None])).sum(axis=1)
        slack: Int64s = self._total(layer, slots, numbers) - own - (counts * costs).sum(axis=1)
        return slack

    def _costs(self, layer: Int64s, slots: Int64s, numbers: Int64s, others: Int64s) -> Int64s:
        """[pairs, others]: what one replica of the other costs the shape at the most, where they meet."""
        ones = numbers[:, None]
        same = len(numbers) and bool((numbers == numbers[0]).all())
        losses = self._shapes.losses[:, numbers[0]][others] if same else self._shapes.losses[others, ones]
        return np.minimum(losses, self._largest(layer, slots, numbers)[:, None])

    def _losses(self, numbers: Int64s, others: Int64s) -> Int64s:
        """[pairs, others]: the most replicas of the other that room for one of the shape is taken from."""
        same = len(numbers) and bool((numbers == numbers[0]).all())
        losses: Int64s = (
            self._shapes.losses[numbers[0]][others] if same else self._shapes.losses[numbers[:, None], others]
        )
        return losses

    def _meet(self, layer: Int64s, slots: Int64s, numbers: Int64s, others: Int64s, there: Bools) -> Bools:
        """[pairs, others]: whether some node takes either of two different shapes; others: of the places of a slot."""
        table, wide = self._table, others.shape[1]
        differs = there & (others != numbers[:, None])
        meets: Bools = (table.sample[slots, numbers][:, None] & self._samples[slots, :wide]) != 0
        if self._has_groups:
            groups = (layer * table.groups[slots, numbers])[:, None]
            meets |= (groups & table.groups[slots[:, None], others]) != 0
        unsure = differs & ~meets & (self._most[NODES, slots, :wide] > 0) & (table.total[slots, numbers] > 0)[:, None]
        if unsure.any():
            pairs, columns = np.nonzero(unsure)
            meets[pairs, columns] = self._look_closer(slots[pairs], numbers[pairs], others[pairs, columns])
        meets &= differs
        return meets

    def _look_closer(self, slots: Int64s, ones: Int64s, others: Int64s) -> Bools:
        """[pairs]: of shapes that no node of the sample takes both."""
        kind, meets = self._shapes.kind, np.zeros(len(slots), np.bool_)
        self._table.grow(0, len(self._shapes.kinds))  # Some may have come since the last look.
        unsure = np.flatnonzero(~self._table.apart[slots, kind[ones], kind[others]])
        for index in np.unique(slots[unsure]).tolist():
            here = unsure[slots[unsure] == index]
            meets[here] = self._by_index[index].fits.take_both(ones[here], others[here])
        return meets

    def _wide(self) -> int:
        """The most places that are used in any cluster."""
        if self._used is None:
            self._used = max((len(slot.places) for slot in self._slots.values()), default=0)
        return self._used

    def _total(self, layer: Int64s, slots: Int64s, numbers: Int64s) -> Int64s:
        total: Int64s = self._table.total[slots, numbers]
        return total + layer * self._table.more[slots, numbers] if self._has_groups else total

    def _largest(self, layer: Int64s, slots: Int64s, numbers: Int64s) -> Int64s:
        largest: Int64s = self._table.largest[slots, numbers]
        if not self._has_groups:
            return largest
        widest: Int64s = np.maximum(largest, layer * self._table.more_largest[slots, numbers])
        return widest


@lru_cache(maxsize=4096)
def _not_all_bound(count: int) -> str:
    return NOT_ALL_BOUND.format(counted(count))


@lru_cache(maxsize=4096)
def _promised(count: int) -> str:
    return PROMISED.format(counted(count, "promised replica"))
