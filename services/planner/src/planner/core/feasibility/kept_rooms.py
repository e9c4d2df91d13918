"""Computes the room that reservations leave, for all kept shapes in all clusters. It applies room.py to whole arrays.

Reservations change with every plan, but only in the few clusters that get replicas. So only their cost to other shapes
in these clusters is added, and nothing else is computed again. Tests compare with the functions of room.py.
"""

from collections import Counter
from collections.abc import Mapping
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from planner.core.feasibility.fleet_rooms import FleetRooms, FoundRooms, Places
from planner.core.feasibility.kept_fits import FitTable, KeptFits
from planner.core.feasibility.kept_groups import KeptGroups
from planner.core.feasibility.kept_promises import KeptPromises
from planner.core.feasibility.kept_shapes import KeptShapes
from planner.core.feasibility.limits import Limit, limit_by_nodes, limit_by_promised
from planner.core.feasibility.room import Room
from spillway.feasibility.cluster_view import ClusterView
from spillway.feasibility.fit import Fit, NodeLimit
from spillway.feasibility.node_match import Bools
from spillway.model import Int64s, Shape

ONE_BY_ONE = 2
"""The most shapes of a cluster that are computed one by one. The next question computes all kept shapes at once."""
PAIRS_MAX = 50_000
"""The most pairs of shapes and reservations that are computed at once."""
GROUPS_MAX = 62
"""The most node groups of a cluster for which arrays are used. Each group is a bit of a 64-bit number."""
_quotas = attrgetter("quotas")


class _RoomsAlone(NamedTuple):
    """The rooms of a shape in all clusters if nothing is reserved, by index of a place.

    changes: KeptRooms._changes when they were computed.
    total: first the replicas on existing nodes of each cluster. Then, for each cluster with node groups, the replicas
    on all its nodes, new ones included.
    when_empty: by cluster, as in Room.
    groups: FoundRooms.alone. of: the indices of the clusters in `groups`. made: the certain rooms in `groups`.
    """

    changes: int
    total: Int64s
    when_empty: Bools
    groups: list[tuple[int, Room]]
    of: Int64s
    made: Int64s


class _Slot:
    """The values that are kept for one cluster.

    is_current: whether the slack was computed for the nodes in their present state.
    odd: the number of reservations that arrays cannot hold.
    found, rooms: the computed numbers and rooms by shape; they are dropped when anything changes in the cluster.
    """

    def __init__(self, index: int, fits: KeptFits, groups: KeptGroups) -> None:
        self.index, self.fits, self.groups = index, fits, groups
        self.view: ClusterView | None = None
        self.joined: object = None
        self.changes = -1
        self.is_current = False
        self.namespaces: Counter[str] = Counter()
        self.odd = 0
        self.found: dict[int, tuple[int, int, int]] = {}
        self.rooms: dict[int, Room] = {}

    def forget_computed(self) -> None:
        self.found.clear()
        self.rooms.clear()

    def count_namespace(self, namespace: str, more: int) -> None:
        """Counts more reserved replicas of a namespace in this cluster (negative: fewer)."""
        there = self.namespaces.get(namespace, 0) + more
        if there:
            self.namespaces[namespace] = there
        else:
            del self.namespaces[namespace]
        self.forget_computed()

    @property
    def layer_count(self) -> int:
        return 2 if self.groups.remaining else 1

    def can_use_arrays(self, view: ClusterView, shape: Shape) -> bool:
        """Returns whether no quotas, running pods or odd reservations affect the shape here, so that arrays suffice."""
        if self.odd or view.quotas.get(shape.namespace) or len(self.groups.remaining) > GROUPS_MAX:
            return False
        pods = view.nodes.pods
        return not pods.has_repelling_pods or not any(
            pods.may_repel_pods_of(name) for name in (shape.namespace, *self.namespaces)
        )


class KeptRooms:
    """Keeps the rooms of kept shapes in all clusters, and the reservations that they depend on.

    forgotten: KeptShapes.forgotten at the start. If it has changed, this object is invalid and must be replaced.
    """

    def __init__(self, shapes: KeptShapes) -> None:
        self.forgotten = shapes.forgotten
        self._shapes = shapes
        self._table = FitTable(16)
        self._slots: dict[str, _Slot] = {}
        self._fits: list[KeptFits] = []
        self._promises = KeptPromises(shapes, self._table, self._fits)
        self._in_order: list[_Slot] = []
        self._seen: tuple[list[object], ...] = ()
        self._seen_number: int | None = None
        self._order: Int64s = np.zeros(0, np.int64)
        self._slots_in_order: list[int] = []
        self._with_groups: list[int] = []
        self._positions: tuple[Int64s, ...] = ()
        self._places = Places(())
        self._sane: Bools = np.zeros(0, np.bool_)
        self._changes_of: list[int] = []
        self._repelling = False
        self._odd = 0
        self._waiting: dict[int, dict[str, int]] = {}
        self._limits: dict[int, dict[int, tuple[int, Limit]]] = {}
        self._changes = 0
        self._alone: dict[int, _RoomsAlone] = {}

    # ── What is reserved ────────────────────────────────────────────────────────────────────────────────────────

    def add_reservation(self, cluster: str, shape: Shape, more: int) -> None:
        """Adds unbound replicas of a shape on existing nodes of a cluster (negative: removes them)."""
        number = self._shapes.number_of_shape(shape)
        if number is None:
            self.add_odd_reservation(cluster, more)
            return
        waiting = self._waiting.get(number)
        if waiting is None:
            waiting = self._waiting[number] = {}
        waiting[cluster] = waiting.get(cluster, 0) + more

    def add_odd_reservation(self, cluster: str, more: int) -> None:
        """Adds reservations that arrays cannot hold, such as replicas for new nodes (negative: removes them)."""
        self._slot_of_cluster(cluster).odd += more
        self._odd += more

    def _slot_of_cluster(self, cluster: str) -> _Slot:
        slot = self._slots.get(cluster)
        if slot is None:
            index = len(self._slots)
            self._table.grow_slots_and_kinds(index + 1, len(self._shapes.kinds))
            self._promises.grow_slots(index + 1)
            fits = KeptFits(self._shapes, self._table, index)
            slot = self._slots[cluster] = _Slot(index, fits, KeptGroups(self._shapes, self._table, index))
            self._fits.append(fits)
        return slot

    # ── What is asked ───────────────────────────────────────────────────────────────────────────────────────────

    def room_in_cluster(self, view: ClusterView, shape: Shape, number: int) -> Room | None:
        """Returns the room on the existing nodes of one cluster; None if arrays do not suffice.

        They do not where quotas, pods that repel others or odd reservations matter. room.py computes the room then.
        """
        slot = self._slot_of_cluster(view.name)
        self._follow_cluster(slot, view)
        if self._waiting:
            self._apply_waiting_reservations()
        if not slot.can_use_arrays(view, shape):
            return None
        if not slot.is_current:
            self._compute_slack(slot)
        known = slot.rooms.get(number)
        if known is None:
            if number not in slot.found:
                slot.fits.keep_shape(number, view.nodes)
                self._find_rooms_in_slot(slot, number)
            certain, possible, bound_by = slot.found[number]
            limit = self._limit_in_slot(slot.fits.limit_of_shape(number), slot.index, certain != possible, bound_by)
            known = slot.rooms[number] = Room(certain, possible, limit, slot.fits.can_fit_when_empty(number))
        return known

    def fit_of_shape(self, view: ClusterView, number: int) -> Fit:
        """Returns the fit of a reserved shape for other shapes' rooms."""
        return self._fits_of(view, number).fit_of_shape(number)

    def has_no_fitting_node(self, view: ClusterView, number: int) -> bool:
        """Returns whether no node of a cluster takes a replica, even if nothing is reserved there."""
        return not self._fits_of(view, number).total_by_shape[number]

    def unreserved_room(self, view: ClusterView, number: int) -> tuple[int, NodeLimit]:
        """Returns how many replicas the nodes take if nothing is reserved there, and what limits them."""
        fits = self._fits_of(view, number)
        return int(fits.total_by_shape[number]), fits.limit_of_shape(number)

    def _fits_of(self, view: ClusterView, number: int) -> KeptFits:
        slot = self._slot_of_cluster(view.name)
        self._follow_cluster(slot, view)
        slot.fits.keep_shape(number, view.nodes)
        return slot.fits

    def rooms_of_fleet(self, views: Mapping[str, ClusterView], number: int, seen: int | None) -> FleetRooms:
        """Returns the rooms of all clusters. seen: as in ClusterReservations.rooms_of_fleet().

        They are wrong in the clusters of clusters_without_arrays(). The caller must replace these rooms.
        """
        if seen is None or seen != self._seen_number:
            self._refresh_clusters(views)
            self._seen_number = seen
        elif self._waiting:
            self._apply_waiting_reservations()
        alone, size, table, order = self._keep_shape(number), len(self._in_order), self._table, self._order
        certain, possible, bound_by = self._rooms_of_shape(number, alone.total)
        found = FoundRooms(
            certain=certain.tolist(),
            possible=possible,
            bound_by=bound_by,
            unbound=self._promises.unbound.take(order),
            counts=table.counts[number].copy(),
            slots=self._slots_in_order,
            when_empty=alone.when_empty,
            changes=self._changes_of,
            first=size,
            alone=alone.groups,
            limits=self._limits.setdefault(number, {}),
            told=self._shapes.nodes_by_reason,
        )
        made = np.minimum(alone.made, np.maximum(certain[size:] - certain.take(alone.of), 0))
        return FleetRooms(self._places, [*found.certain[:size], *made.tolist()], found)

    def clusters_without_arrays(self, views: Mapping[str, ClusterView], shape: Shape) -> list[str]:
        """Returns the clusters of rooms_of_fleet() where arrays do not suffice for a shape."""
        if not (self._odd or self._repelling or any(map(_quotas, views.values()))):
            return []
        slots = zip(self._in_order, views.items(), strict=True)
        return [name for slot, (name, view) in slots if not slot.can_use_arrays(view, shape)]

    def _limit_in_slot(self, nodes: NodeLimit, slot: int, not_all_bound: bool, bound_by: int) -> Limit:
        if bound_by >= 0:
            return limit_by_promised(bound_by)
        return limit_by_nodes(nodes, int(self._promises.unbound[slot]) if not_all_bound else 0)

    # ── Following nodes and reservations ────────────────────────────────────────────────────────────────────────

    def _refresh_clusters(self, views: Mapping[str, ClusterView]) -> None:
        """Updates all kept numbers to the present state of these clusters. Places get the order of `views`."""
        nodes = [view.nodes for view in views.values()]
        revisions = [entry.revision for entry in nodes]
        seen: tuple[list[object], ...] = (list(views), [*nodes], [*revisions], [view.joined for view in views.values()])
        if seen != self._seen:
            if not self._seen or seen[0] != self._seen[0]:
                self._in_order = [self._slot_of_cluster(name) for name in views]
                self._limits.clear()
                self._alone.clear()
            for slot, view in zip(self._in_order, views.values(), strict=True):
                self._follow_cluster(slot, view)
            self._slots_in_order = [slot.index for slot in self._in_order]
            self._order = np.array(self._slots_in_order, np.int64)
            self._with_groups = [index for index, slot in enumerate(self._in_order) if slot.groups.remaining]
            on_nodes, everywhere = np.full((2, len(self._promises.unbound)), -1)
            on_nodes[self._order] = np.arange(len(views))
            everywhere[self._order[self._with_groups]] = len(views) + np.arange(len(self._with_groups))
            self._positions = (on_nodes, everywhere) if self._with_groups else (on_nodes,)
            self._repelling = any(entry.pods.has_repelling_pods for entry in nodes)
            names = list(views)
            with_groups = [(names[index], True) for index in self._with_groups]
            self._places = Places([*((name, False) for name in names), *with_groups])
            self._sane = np.array([slot.fits.is_sane for slot in self._in_order], np.bool_)
            self._changes_of = [slot.changes for slot in self._in_order]
            self._seen = seen
        self._apply_waiting_reservations()
        for slot in [slot for slot in self._in_order if not slot.is_current]:
            self._compute_slack(slot)

    def _follow_cluster(self, slot: _Slot, view: ClusterView) -> None:
        is_same = slot.view is view and slot.joined is view.joined and slot.fits.is_current_for(view.nodes)
        if is_same and slot.changes == slot.fits.changes:  # Else a reservation followed the nodes.
            return
        slot.view, slot.joined = view, view.joined
        slot.fits.follow_nodes(view.nodes)
        if slot.groups.follow_cluster(view) or slot.changes != slot.fits.changes:
            slot.changes = slot.fits.changes
            slot.is_current = False
            slot.forget_computed()
            self._changes += 1

    def _apply_waiting_reservations(self) -> None:
        """Applies each reservation that changed since the last call."""
        waiting, self._waiting = self._waiting, {}
        for number, more_in in waiting.items():
            changes = [(self._slot_of_cluster(name), more) for name, more in more_in.items() if more]
            alone, namespace = self._alone.get(number), self._shapes.shapes[number].namespace
            is_kept = alone is not None and alone.changes == self._changes
            for slot, more in changes:
                slot.count_namespace(namespace, more)
                if slot.is_current and slot.view is not None and not is_kept:
                    slot.fits.keep_shape(number, slot.view.nodes)
                    slot.groups.keep_shape(number)
            if changes:
                layers = [slot.layer_count * slot.is_current for slot, _ in changes]
                self._promises.add_reservations(
                    number, [slot.index for slot, _ in changes], [more for _, more in changes], layers
                )

    def _compute_slack(self, slot: _Slot) -> None:
        """Computes the slack of all reservations in a cluster."""
        slot.is_current = True
        assert slot.view is not None
        for number in self._promises.places_by_shape(slot.index):
            slot.fits.keep_shape(number, slot.view.nodes)
            slot.groups.keep_shape(number)
        self._promises.compute_slack(slot.index, slot.layer_count)

    # ── Working it out ──────────────────────────────────────────────────────────────────────────────────────────

    def _keep_shape(self, number: int) -> _RoomsAlone:
        """Returns the rooms of a shape in all clusters if nothing is reserved. Computes them again after a change."""
        known = self._alone.get(number)
        if known is not None and known.changes == self._changes:
            return known
        self._table.grow_slots_and_kinds(0, len(self._shapes.kinds))
        missing = ~self._table.kept[number, self._order]
        for index in np.flatnonzero(missing).tolist():
            slot = self._in_order[index]
            assert slot.view is not None
            slot.fits.keep_shape(number, slot.view.nodes)
        for index in self._with_groups:
            self._in_order[index].groups.keep_shape(number)
        total, of = self._table.total[number].take(self._order), np.array(self._with_groups, np.int64)
        when_empty = (total > 0) & self._sane
        for index in (~when_empty).nonzero()[0].tolist():
            when_empty[index] = self._in_order[index].fits.can_fit_when_empty(number)
        groups = [(index, self._in_order[index].groups.room_of_shape(number)) for index in self._with_groups]
        made = np.array([room.certain for _, room in groups], np.int64)
        everywhere = total.take(of) + self._table.more[number].take(self._order.take(of))
        known = _RoomsAlone(self._changes, np.concatenate((total, everywhere)), when_empty, groups, of, made)
        self._alone[number] = known
        return known

    def _rooms_of_shape(self, number: int, total: Int64s) -> tuple[Int64s, Int64s, Int64s]:
        """Returns three arrays by index of a place: certain, possible, and the promised replicas that limit certain.

        total: the room by place if nothing is reserved.
        """
        certain, possible, bound_by = total.copy(), total.copy(), np.full(len(total), -1)
        for layer, positions in enumerate(self._positions):
            at, found = self._promises.rooms_in_clusters(layer, number, positions)
            if len(at):
                certain[at], possible[at], bound_by[at] = found
        return certain, possible, bound_by

    def _find_rooms_in_slot(self, slot: _Slot, number: int) -> None:
        # Many questions about one cluster are answered together, as long as the arrays stay small.
        asked = np.array([number])
        kept, places = np.flatnonzero(slot.fits.kept_shapes_mask), len(self._promises.places_by_shape(slot.index))
        if len(slot.found) >= ONE_BY_ONE and len(kept) * max(1, places) <= PAIRS_MAX:
            asked = kept
        found = self._promises.rooms_in_cluster(slot.index, asked)
        slot.found.update(zip(asked.tolist(), zip(*(one.tolist() for one in found), strict=True), strict=True))
