"""The room beside what is reserved, for all kept shapes in all clusters: room.py's conditions, over arrays.

What is reserved changes with every plan, in the few clusters that it gives replicas to: what those cost the others
there is added, and nothing else is worked out anew. The functions of room.py are what tests compare this with.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import numpy as np

from planner.core.fleet import ClusterView
from planner.core.kept_fits import FitTable, KeptFits
from planner.core.kept_groups import KeptGroups
from planner.core.kept_shapes import KeptShapes
from planner.core.node_match import Bools
from planner.core.room import NOT_ALL_BOUND, PROMISED, Room, nested
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


class KeptRooms:
    """others, counts: [slots, places], the shapes that are reserved in a cluster, and the unbound replicas of each.

    slack: [layers, slots, places], room that each of them can lose and still bind all of its own; negative: it cannot.
    Void when the shapes' numbers are.
    """

    def __init__(self, shapes: KeptShapes) -> None:
        self.forgotten = shapes.forgotten
        self._shapes = shapes
        self._table = FitTable(16)
        self._slots: dict[str, _Slot] = {}
        self._in_order: list[_Slot] = []
        self._seen: tuple[list[object], ...] = ()
        self._order: Int64s = np.zeros(0, np.int64)
        self._grouped: Int64s = np.zeros(0, np.int64)
        self._with_groups: list[int] = []
        self._places: list[tuple[str, bool]] = []
        self._repelling = False
        self._has_groups = False
        self._odd = 0
        self._used: int | None = 0
        self._others: Int64s = np.zeros((16, 8), np.int64)
        self._counts: Int64s = np.zeros((16, 8), np.int64)
        self._slack: Int64s = np.full((2, 16, 8), -1, np.int64)
        self._waiting: list[tuple[_Slot, int, int]] = []
        self._words: dict[int, tuple[list[int], list[str], list[bool]]] = {}

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
            self._waiting.append((slot, number, more))

    def reserve_odd(self, cluster: str, more: int) -> None:
        """So many more reservations, or fewer, of which arrays do not tell: of replicas that wait for new nodes."""
        self._slot(cluster).odd += more
        self._odd += more

    def _slot(self, cluster: str) -> _Slot:
        slot = self._slots.get(cluster)
        if slot is None:
            index = len(self._slots)
            self._table.grow(index + 1, len(self._shapes.shapes), len(self._shapes.kinds))
            if index >= len(self._others):
                self._others, self._counts = (np.pad(one, ((0, index), (0, 0))) for one in (self._others, self._counts))
                self._slack = np.pad(self._slack, ((0, 0), (0, index), (0, 0)), constant_values=-1)
            fits = KeptFits(self._shapes, self._table, index)
            slot = self._slots[cluster] = _Slot(index, fits, KeptGroups(self._shapes, self._table, index))
        return slot

    # ── What is asked ───────────────────────────────────────────────────────────────────────────────────────────

    def room(self, view: ClusterView, shape: Shape, number: int) -> Room | None:
        """On the nodes of one cluster that exist; None where arrays do not tell."""
        slot = self._slot(view.name)
        self._follow(slot, view)
        if not slot.is_plain(view, shape):
            return None
        self._take_waiting()
        if not slot.is_current:
            self._begin([slot])
        known = slot.rooms.get(number)
        if known is None:
            slot.fits.keep(number, view.nodes)
            if number not in slot.found:
                self._find_in(slot, number)
            certain, possible, bound_by = slot.found[number]
            limit = self._limit(slot.fits.limited_by(number), slot.index, certain != possible, bound_by)
            known = slot.rooms[number] = Room(certain, possible, limit, slot.fits.when_empty(number))
        return known

    def rooms(self, views: Mapping[str, ClusterView], shape: Shape, number: int) -> dict[tuple[str, bool], Room]:
        """By cluster, on the nodes that exist; with True, on those of its node groups. Where arrays tell."""
        self._refresh(views)
        self._keep(number)
        certain, possible, bound_by = self._all(number)
        texts, empties = self._words_of(number)
        limits = [*texts, *(texts[index] for index in self._with_groups)]
        unbound = self._counts[np.concatenate((self._order, self._grouped))].sum(axis=1).tolist()
        for index in np.flatnonzero(certain != possible).tolist():
            limits[index] += _not_all_bound(unbound[index])
        for index in np.flatnonzero(bound_by >= 0).tolist():
            limits[index] = _promised(int(bound_by[index]))
        whether = [*empties, *(empties[index] for index in self._with_groups)]
        rooms = list(map(Room, certain.tolist(), possible.tolist(), limits, whether))
        found = dict(zip(self._places, rooms, strict=False))
        for index, everywhere in zip(self._with_groups, rooms[len(texts) :], strict=True):
            slot, place = self._in_order[index], self._places[index]
            left = everywhere._replace(certain=max(0, everywhere.certain - rooms[index].certain))
            found[place[0], True] = nested(slot.groups.room(number), left)
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

    def _words_of(self, number: int) -> tuple[list[str], list[bool]]:
        """In order: what limits the shape on all nodes, and whether it would run where nothing else did."""
        changes = [slot.fits.changes for slot in self._in_order]
        known = self._words.get(number)
        if known is None or len(known[0]) != len(changes):
            known = self._words[number] = ([-1] * len(changes), [""] * len(changes), [False] * len(changes))
        if known[0] != changes:
            for index, slot in enumerate(self._in_order):
                if known[0][index] != changes[index]:
                    known[1][index], known[2][index] = slot.fits.limited_by(number), slot.fits.when_empty(number)
            known[0][:] = changes
        return known[1], known[2]

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
            self._grouped = self._order[self._with_groups]
            self._repelling = any(entry.pods.repelling for entry in nodes)
            self._places = [(name, False) for name in views]
            self._seen = seen
        self._take_waiting()
        late = [slot for slot in self._in_order if not slot.is_current]
        if late:
            self._begin(late)

    def _follow(self, slot: _Slot, view: ClusterView) -> None:
        slot.view = view
        slot.fits.follow(view.nodes)
        if slot.groups.follow(view) or slot.changes != slot.fits.changes:
            slot.changes = slot.fits.changes
            slot.is_current = False
            slot.changed()
            self._has_groups = self._has_groups or bool(slot.groups.remaining)

    def _take_waiting(self) -> None:
        """Each reservation that changed since the last time; of one cluster one after the other."""
        while self._waiting:
            now: dict[int, tuple[_Slot, int, int]] = {}
            later = []
            for entry in self._waiting:
                if entry[0].index in now:
                    later.append(entry)
                else:
                    now[entry[0].index] = entry
            self._waiting = later
            self._take([entry for entry in now.values() if entry[2]])

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
                begun.append((slot.index, number, more, place, is_new, bool(slot.groups.remaining)))
        if begun:
            self._shift(begun)
        for slot, number, _ in changes:
            place = slot.places[number]
            if not self._counts[slot.index, place]:
                self._drop_place(slot, number, place)

    def _shift(self, begun: Sequence[tuple[int, int, int, int, bool, bool]]) -> None:
        """What more of a shape in each of some clusters takes from the slack of the others there, and from its own."""
        layers = [NODES] * len(begun) + [EVERYWHERE] * sum(entry[5] for entry in begun)
        begun = (*begun, *(entry for entry in begun if entry[5]))
        slots, numbers, more, places = (np.array([entry[at] for entry in begun], np.int64) for at in range(4))
        layer = np.array(layers, np.int64)
        wide = self._wide()
        others, there = self._others[slots, :wide], self._counts[slots, :wide] > 0
        costs = self._costs(layer, slots, numbers, others, there, onto_others=True)
        self._slack[layer, slots, :wide] -= more[:, None] * costs
        self._slack[layer, slots, places] -= more
        new = np.flatnonzero(np.array([entry[4] for entry in begun]))
        if len(new):
            slack = self._slack_of(layer[new], slots[new], numbers[new])
            self._slack[layer[new], slots[new], places[new]] = slack

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
            layer, slots, numbers, places = np.array(pairs[start : start + 1024], np.int64).T
            self._slack[layer, slots, places] = self._slack_of(layer, slots, numbers)

    def _new_place(self, slot: _Slot, number: int) -> int:
        place = slot.places[number] = len(slot.places)
        wide = self._others.shape[1]
        if place >= wide:
            self._others, self._counts = (np.pad(one, ((0, 0), (0, wide))) for one in (self._others, self._counts))
            self._slack = np.pad(self._slack, ((0, 0), (0, 0), (0, wide)), constant_values=-1)
        self._others[slot.index, place] = number
        self._used = None if self._used is None else max(self._used, place + 1)
        return place

    def _drop_place(self, slot: _Slot, number: int, place: int) -> None:
        """The last one takes its place."""
        index, last = slot.index, len(slot.places) - 1
        moved = int(self._others[index, last])
        for array in (self._others, self._counts, *self._slack):
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
        self._table.grow(0, len(self._shapes.shapes), len(self._shapes.kinds))
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
        slots = np.concatenate((self._order, self._grouped))
        layer = np.repeat((NODES, EVERYWHERE), (len(self._order), len(self._grouped)))
        return self._beside(layer, slots, np.full(len(slots), number))

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
        there = counts > 0
        meets = self._meet(layer, slots, numbers, others, there)
        is_same = others == numbers[:, None]
        most = self._largest(layer, slots, numbers)[:, None]
        costs = np.minimum(self._shapes.losses[others, numbers[:, None]], most)
        lost = np.einsum("ij,ij,ij->i", counts, costs, meets)
        same = (counts * is_same).sum(axis=1)
        possible = np.maximum(total - same, 0)
        certain = np.minimum(possible, np.maximum(np.maximum(total - lost, 0) - same, 0))
        largest = self._largest(layer[:, None], slots[:, None], others)
        onto = np.where(meets, np.minimum(self._shapes.losses[numbers[:, None], others], largest), 0)
        bounds = (slack >= 0) & (onto > 0)
        allowed = np.where(bounds, slack // np.maximum(onto, 1), _UNBOUNDED)
        least = allowed.min(axis=1)
        bound_by = np.full(len(total), -1)
        for index in np.flatnonzero(least < certain).tolist():
            bound_by[index] = counts[index, allowed[index] == least[index]].max()
        return np.minimum(certain, least), possible, bound_by

    def _slack_of(self, layer: Int64s, slots: Int64s, numbers: Int64s) -> Int64s:
        """[pairs] of cluster and a shape that is reserved there."""
        wide = self._wide()
        others, counts = self._others[slots, :wide], self._counts[slots, :wide]
        costs = self._costs(layer, slots, numbers, others, counts > 0, onto_others=False)
        own = (counts * (others == numbers[:, None])).sum(axis=1)
        slack: Int64s = self._total(layer, slots, numbers) - own - (counts * costs).sum(axis=1)
        return slack

    def _costs(
        self, layer: Int64s, slots: Int64s, numbers: Int64s, others: Int64s, there: Bools, *, onto_others: bool
    ) -> Int64s:
        """[pairs, others]: what one replica of the other costs the shape at the most, or the shape the other."""
        meets = self._meet(layer, slots, numbers, others, there)
        ones = numbers[:, None]
        if onto_others:
            largest = self._largest(layer[:, None], slots[:, None], others)
            costs = np.minimum(self._shapes.losses[ones, others], largest)
        else:
            costs = np.minimum(self._shapes.losses[others, ones], self._largest(layer, slots, numbers)[:, None])
        return np.where(meets, costs, 0)

    def _meet(self, layer: Int64s, slots: Int64s, numbers: Int64s, others: Int64s, there: Bools) -> Bools:
        """[pairs, others]: whether some node takes either of two different shapes."""
        table, ones, at = self._table, numbers[:, None], slots[:, None]
        differs = there & (others != ones)
        meets: Bools = (table.sample[at, ones] & table.sample[at, others]) != 0
        if self._has_groups:
            meets |= (layer[:, None] * (table.groups[at, ones] & table.groups[at, others])) != 0
        unsure = ~meets & differs & (table.total[at, ones] > 0) & (table.total[at, others] > 0)
        if unsure.any():
            pairs, columns = np.nonzero(unsure)
            meets[pairs, columns] = self._look_closer(slots[pairs], numbers[pairs], others[pairs, columns])
        meets &= differs
        return meets

    def _look_closer(self, slots: Int64s, ones: Int64s, others: Int64s) -> Bools:
        """[pairs]: of shapes that no node of the sample takes both."""
        kind, meets = self._shapes.kind, np.zeros(len(slots), np.bool_)
        unsure = np.flatnonzero(~self._table.apart[slots, kind[ones], kind[others]])
        by_index = {slot.index: slot for slot in self._slots.values()} if len(unsure) else {}
        for index in np.unique(slots[unsure]).tolist():
            here = unsure[slots[unsure] == index]
            meets[here] = by_index[index].fits.take_both(ones[here], others[here])
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
