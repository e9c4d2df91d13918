"""The room beside what is reserved, for all kept shapes in all clusters: room.py's conditions, over arrays.

What is reserved changes with every plan, in the few clusters that it gives replicas to: what those cost the others
there is added, and nothing else is worked out anew. The functions of room.py are what tests compare this with.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from planner.core.feasibility.fit import Fit
from planner.core.feasibility.fleet_rooms import FleetRooms, Found, Places, not_all_bound_text, promised_text
from planner.core.feasibility.kept_fits import FitTable, KeptFits
from planner.core.feasibility.kept_groups import KeptGroups
from planner.core.feasibility.kept_shapes import KeptShapes
from planner.core.feasibility.node_match import Bools
from planner.core.feasibility.room import Room
from planner.core.fleet import ClusterView
from spillway.model import Int64s, Shape

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


class KeptRooms:
    """others, counts: [slots, places], the shapes that are reserved in a cluster, and the unbound replicas of each;
    where there is none both are 0, and so is most. unbound: [slots], all of them. reserved: [slots, shapes], as counts.

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
        self._places = Places(())
        self._sane: Bools = np.zeros(0, np.bool_)
        self._changes_of: list[int] = []
        self._repelling = False
        self._has_groups = False
        self._odd = 0
        self._used: int | None = 0
        self._others: Int64s = np.zeros((16, 8), np.int64)
        self._counts: Int64s = np.zeros((16, 8), np.int64)
        self._unbound: Int64s = np.zeros(16, np.int64)
        self._reserved: Int64s = np.zeros((16, len(shapes.kind)), np.int64)
        self._slack: Int64s = np.full((2, 16, 8), -1, np.int64)
        self._samples: npt.NDArray[np.uint64] = np.zeros((16, 8), np.uint64)
        self._most: Int64s = np.zeros((2, 16, 8), np.int64)
        self._waiting: dict[tuple[int, int], int] = {}
        self._texts: dict[int, dict[int, tuple[int, str]]] = {}
        self._changes = 0
        self._kept_at: dict[int, int] = {}

    # ── What is reserved ────────────────────────────────────────────────────────────────────────────────────────

    def reserve(self, cluster: str, shape: Shape, more: int) -> None:
        """So many more unbound replicas of a shape, or fewer, on the nodes of a cluster that exist."""
        slot, number = self._slot(cluster), self._shapes.number(shape)
        namespace, there = shape.namespace, slot.namespaces.get(shape.namespace, 0) + more
        if there:
            slot.namespaces[namespace] = there
        else:
            del slot.namespaces[namespace]
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
                self._unbound = np.pad(self._unbound, (0, index))
                self._reserved = np.pad(self._reserved, ((0, index), (0, 0)))
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

    def rooms(self, views: Mapping[str, ClusterView], number: int) -> FleetRooms:
        """Of all clusters; where not_plain says so, another room is to be put in place of it."""
        self._refresh(views)
        self._keep(number)
        certain, possible, bound_by = self._all(number)
        size, order = len(self._in_order), self._order
        when_empty = (self._table.total[order, number] > 0) & self._sane
        found = Found(
            certain=certain.tolist(),
            possible=possible.tolist(),
            bound_by=bound_by.tolist(),
            unbound=self._unbound[self._all_slots].tolist(),
            counts=self._table.counts[order, number],
            when_empty=when_empty.tolist(),
            changes=self._changes_of,
            first=size,
            alone=[(index, self._in_order[index].groups.room(number)) for index in self._with_groups],
            texts=self._texts.setdefault(number, {}),
            told=self._shapes.told,
        )
        for index in np.flatnonzero(~when_empty).tolist():
            found.when_empty[index] = self._in_order[index].fits.when_empty(number)
        beside = found.certain[size:]
        made = [
            min(alone.certain, max(0, left - found.certain[of]))
            for left, (of, alone) in zip(beside, found.alone, strict=True)
        ]
        return FleetRooms(self._places, [*found.certain[:size], *made], found.room)

    def not_plain(self, views: Mapping[str, ClusterView], shape: Shape) -> list[str]:
        """The clusters of rooms() where arrays do not tell of a shape."""
        if not (self._odd or self._repelling or [view for view in views.values() if view.quotas]):
            return []
        slots = zip(self._in_order, views.items(), strict=True)
        return [name for slot, (name, view) in slots if not slot.is_plain(view, shape)]

    def _limit(self, text: str, slot: int, not_all_bound: bool, bound_by: int) -> str:
        if bound_by >= 0:
            return promised_text(bound_by)
        return text + not_all_bound_text(int(self._unbound[slot])) if not_all_bound else text

    # ── Following nodes and reservations ────────────────────────────────────────────────────────────────────────

    def _refresh(self, views: Mapping[str, ClusterView]) -> None:
        """All that is kept is of these clusters as they are, in this order."""
        nodes = [view.nodes for view in views.values()]
        revisions = [entry.revision for entry in nodes]
        seen: tuple[list[object], ...] = (list(views), [*nodes], [*revisions], [view.joined for view in views.values()])
        if seen != self._seen:
            if not self._seen or seen[0] != self._seen[0]:
                self._in_order = [self._slot(name) for name in views]
                self._texts.clear()
            for slot, view in zip(self._in_order, views.values(), strict=True):
                self._follow(slot, view)
            self._order = np.array([slot.index for slot in self._in_order], np.int64)
            self._with_groups = [index for index, slot in enumerate(self._in_order) if slot.groups.remaining]
            self._all_slots = np.concatenate((self._order, self._order[self._with_groups]))
            self._layers = np.repeat((NODES, EVERYWHERE), (len(self._order), len(self._with_groups)))
            self._repelling = any(entry.pods.repelling for entry in nodes)
            names = list(views)
            with_groups = [(names[index], True) for index in self._with_groups]
            self._places = Places([*((name, False) for name in names), *with_groups])
            self._sane = np.array([slot.fits.is_sane for slot in self._in_order], np.bool_)
            self._changes_of = [slot.changes for slot in self._in_order]
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
            self._unbound[slot.index] += more
            self._reserved[slot.index, number] += more
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
        meets = self._meet(layer, slots, numbers)
        taken = self._taken_from(layer, slots, numbers, meets)
        self._slack[layer, slots, : meets.shape[1]] -= more[:, None] * taken
        self._slack[layer, slots, places] -= more
        if len(new):
            self._set_slack(new[:, 0], new[:, 1], new[:, 2], new[:, 4], meets[begun[:, 5] > 0])

    def _set_slack(self, layer: Int64s, slots: Int64s, numbers: Int64s, places: Int64s, meets: Bools) -> None:
        """In full, of pairs of cluster and a shape that is reserved there."""
        left = self._total(layer, slots, numbers) - self._lost(layer, slots, numbers, meets)
        self._slack[layer, slots, places] = left - self._reserved[slots, numbers]

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
            self._set_slack(layer, slots, numbers, places, self._meet(layer, slots, numbers))

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
        self._others[index, last] = self._counts[index, last] = self._samples[index, last] = 0
        self._most[:, index, last], self._slack[:, index, last] = 0, -1
        del slot.places[number]
        self._used = None if self._used == last + 1 else self._used
        if moved != number:
            slot.places[moved] = place

    # ── Working it out ──────────────────────────────────────────────────────────────────────────────────────────

    def _keep(self, number: int) -> None:
        """The fit of a shape in all clusters."""
        if self._kept_at.get(number) == self._changes:
            return
        self._table.grow(0, len(self._shapes.kinds))
        missing = ~self._table.kept[self._order, number]
        for index in np.flatnonzero(missing).tolist():
            slot = self._in_order[index]
            assert slot.view is not None
            slot.fits.keep(number, slot.view.nodes)
        for index in self._with_groups:
            self._in_order[index].groups.keep(number)
        self._kept_at[number] = self._changes

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
        certain, possible, promised = total.copy(), total.copy(), np.full(len(total), -1)
        some = np.flatnonzero(self._unbound[slots])
        if len(some):
            found = self._beside_some(layer[some], slots[some], numbers[some], total[some])
            certain[some], possible[some], promised[some] = found
        return certain, possible, promised

    def _beside_some(
        self, layer: Int64s, slots: Int64s, numbers: Int64s, total: Int64s
    ) -> tuple[Int64s, Int64s, Int64s]:
        """As _beside, where something is reserved."""
        meets = self._meet(layer, slots, numbers)
        own = self._reserved[slots, numbers]
        possible = np.maximum(total - own, 0)
        left = total - self._lost(layer, slots, numbers, meets)
        certain = np.minimum(possible, np.maximum(np.maximum(left, 0) - own, 0))
        onto = self._taken_from(layer, slots, numbers, meets)
        slack, promised = self._slack[layer, slots, : meets.shape[1]], np.full(len(total), -1)
        some = (slack >= 0) & (onto > 0)
        ratio = np.where(some, slack, _UNBOUNDED) / np.where(some, onto, 1)
        least = ratio.min(axis=1)
        # Wide of what a float may be off, so that whole numbers decide below.
        most = np.where(least <= certain + 1, least * (1 + 2**-40) + 2, -1)
        pairs, places = np.nonzero(ratio <= most[:, None])
        allowed = slack[pairs, places] // np.maximum(onto[pairs, places], 1)
        exact = np.full(len(total), _UNBOUNDED)
        np.minimum.at(exact, pairs, allowed)
        tight = (allowed == exact[pairs]) & (allowed < certain[pairs])
        pairs, places = pairs[tight], places[tight]
        np.maximum.at(promised, pairs, self._counts[slots[pairs], places])
        return np.minimum(certain, exact), possible, promised

    def _lost(self, layer: Int64s, slots: Int64s, numbers: Int64s, meets: Bools) -> Int64s:
        """[pairs]: what all others that are reserved cost the shape at the most."""
        wide = meets.shape[1]
        costs = self._shapes.losses_of(numbers, self._others[slots, :wide])
        np.minimum(costs, self._largest(layer, slots, numbers)[:, None], out=costs)
        costs *= meets
        lost: Int64s = np.einsum("ij,ij->i", self._counts[slots, :wide], costs)
        return lost

    def _taken_from(self, layer: Int64s, slots: Int64s, numbers: Int64s, meets: Bools) -> Int64s:
        """[pairs, places]: of each that is reserved, the most replicas that room for one of the shape costs it."""
        wide = meets.shape[1]
        onto = self._shapes.losses_by(numbers, self._others[slots, :wide])
        np.minimum(onto, self._most[layer, slots, :wide], out=onto)
        onto *= meets
        return onto

    def _meet(self, layer: Int64s, slots: Int64s, numbers: Int64s) -> Bools:
        """[pairs, places]: whether some node takes either of the shape and of another one that is reserved."""
        table, wide = self._table, self._wide()
        meets: Bools = (table.sample[slots, numbers][:, None] & self._samples[slots, :wide]) != 0
        at = np.flatnonzero(layer) if self._has_groups else ()
        if len(at):
            groups = table.groups[slots[at], numbers[at]][:, None]
            meets[at] |= (groups & table.groups[slots[at, None], self._others[slots[at], :wide]]) != 0
        unsure = self._most[NODES, slots, :wide] > 0
        unsure &= (table.total[slots, numbers] > 0)[:, None]
        unsure &= ~meets
        pairs, places = np.nonzero(unsure)
        if len(pairs):
            meets[pairs, places] = self._look_closer(slots[pairs], numbers[pairs], self._others[slots[pairs], places])
        same = np.flatnonzero(self._reserved[slots, numbers])
        if len(same):
            at_once = zip(slots[same].tolist(), numbers[same].tolist(), strict=True)
            meets[same, [self._by_index[slot].places[number] for slot, number in at_once]] = False
        return meets

    def _look_closer(self, slots: Int64s, ones: Int64s, others: Int64s) -> Bools:
        """[pairs]: of shapes that no node of the sample takes both."""
        table, kind, kinds = self._table, self._shapes.kind, len(self._shapes.kinds)
        table.grow(0, kinds)  # Some may have come since the last look.
        for index in set(slots[table.apart_of[slots] < kinds].tolist()):
            self._by_index[index].fits.find_apart()
        meets = ~table.apart[slots, kind[ones], kind[others]]
        unsure = np.flatnonzero(meets)
        here: dict[int, list[int]] = {}
        for at, index in zip(unsure.tolist(), slots[unsure].tolist(), strict=True):
            here.setdefault(index, []).append(at)
        for index, pairs in here.items():
            meets[pairs] = self._by_index[index].fits.take_both(ones[pairs], others[pairs])
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
