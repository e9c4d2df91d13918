"""Keeps the reservations of each cluster, and computes the room that they leave for more replicas."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from planner.core.feasibility.fleet_rooms import FleetRooms, Place, rooms_of
from planner.core.feasibility.kept_rooms import KeptRooms
from planner.core.feasibility.kept_shapes import RESERVED_MAX, KeptShapes, shape_without_pod_terms
from planner.core.feasibility.label_effects import has_pod_terms
from planner.core.feasibility.quota import quota_allowance
from planner.core.feasibility.reservation import NOTHING_RESERVED, Reservation
from planner.core.feasibility.room import (
    NodeReservations,
    Room,
    fit_with_node_groups,
    room_in_groups,
    room_on_nodes,
    room_within,
)
from spillway.feasibility.after_return import nodes_after_return
from spillway.feasibility.cluster_view import ClusterView, WorkloadKey
from spillway.feasibility.fit import Fit, NodeLimit, compute_fit
from spillway.feasibility.nodes import ClusterNodes
from spillway.model import LabelSet, PodTraits, Shape

ROOMS_KEPT_MAX = 65_536
FitOf = Callable[[Shape], Fit]
"""A function that returns the fit of a reserved shape in one cluster."""


class _Sides:
    """The reservations of one cluster, prepared for questions about its existing nodes and about its node groups.

    free: (shape, replicas) promised on existing nodes. new: (shape, replicas) promised on new nodes.
    """

    def __init__(
        self, view: ClusterView, entries: Sequence[Reservation], by_label: Callable[[Shape], bool], fit_of: FitOf
    ) -> None:
        self._view, self._fit_of = view, fit_of
        self.free = _summed_by_shape((entry.entries for entry in entries), by_label)
        self.new = _summed_by_shape((entry.new_entries for entry in entries), by_label)
        self._both = _summed_by_shape((tuple(self.free), tuple(self.new)), by_label)
        self._on_nodes: NodeReservations | None = None
        self._everywhere: NodeReservations | None = None

    def reservations_on_nodes(self) -> NodeReservations:
        if self._on_nodes is None:
            of = self._fit_of
            fits = [(other, count, of(other)) for other, count in self.free]
            self._on_nodes = NodeReservations(fits, lambda other: of(other).per_node)
        return self._on_nodes

    def reservations_everywhere(self) -> NodeReservations:
        if self._everywhere is None:
            of, groups = self._fit_of, self._view.node_groups()
            fits = [(other, count, fit_with_node_groups(of(other), other, groups)) for other, count in self._both]
            self._everywhere = NodeReservations(
                fits, lambda other: fit_with_node_groups(of(other), other, groups).per_node
            )
        return self._everywhere


class ClusterReservations:
    """Keeps reservations by cluster and workload. A computed room is kept until they or the cluster change."""

    def __init__(self) -> None:
        self._reserved: dict[str, dict[WorkloadKey, Reservation]] = {}
        self._revisions: dict[str, int] = {}
        self._rooms: dict[tuple[str, Shape, PodTraits, bool], tuple[tuple[int, int, int], Room]] = {}
        self._looked_at: dict[str, tuple[int, bool]] = {}
        self._sides: dict[str, tuple[tuple[object, ...], _Sides]] = {}
        self._shapes = KeptShapes()
        self._shapes_reserved: dict[Shape, list[int]] = {}
        self._last: tuple[Shape | None, list[int]] = (None, [])
        self._kept: KeptRooms | None = None
        self._returned: dict[str, tuple[ClusterNodes, int, ClusterView]] = {}
        self._followed: dict[str, int] = {}

    def reservation_of(self, key: WorkloadKey, cluster: str) -> Reservation:
        return self._reserved.get(cluster, {}).get(key, NOTHING_RESERVED)

    def reservations_in_cluster(self, cluster: str) -> Mapping[WorkloadKey, Reservation]:
        return self._reserved.get(cluster, {})

    def copy_reservations(self, other: "ClusterReservations", apart_from: WorkloadKey | None) -> None:
        """Copies the reservations of `other` except those of one workload.

        Only clusters that changed since the last call are copied, and everything else that is kept here stays.
        """
        for cluster, revision in other._revisions.items():  # noqa: SLF001 - its own class
            if self._followed.get(cluster) == revision:
                continue
            self._followed[cluster] = revision
            entries = {key: entry for key, entry in other.reservations_in_cluster(cluster).items() if key != apart_from}
            gone = [key for key in self.reservations_in_cluster(cluster) if key not in entries]
            for key, entry in (*entries.items(), *((key, NOTHING_RESERVED) for key in gone)):
                self.set_reservation(cluster, key, entry)

    def reserved_places(self) -> Iterator[tuple[WorkloadKey, str]]:
        """Yields each (workload, cluster) pair with a reservation."""
        return ((key, cluster) for cluster, entries in self._reserved.items() for key in entries)

    def set_reservation(self, cluster: str, key: WorkloadKey, reservation: Reservation) -> bool:
        """Sets one reservation. Returns whether this changes the room of others."""
        return bool(self.set_reservations(key, {cluster: reservation}))

    def set_reservations(self, key: WorkloadKey, reservations: Mapping[str, Reservation]) -> list[str]:
        """Sets reservations by cluster. Returns the clusters where this changes the room of others."""
        changed = []
        for cluster, reservation in reservations.items():
            reserved = self._reserved.get(cluster)
            if reserved is None:
                reserved = self._reserved[cluster] = {}
            before = reserved.get(key, NOTHING_RESERVED)
            if reservation == NOTHING_RESERVED:
                reserved.pop(key, None)
            else:
                reserved[key] = reservation
            if before.entries == reservation.entries and before.new_entries == reservation.new_entries:
                continue
            changed.append(cluster)
            self._revisions[cluster] = self._revisions.get(cluster, 0) + 1
            if before is not NOTHING_RESERVED:
                self._add_reservation(cluster, before, -1)
            if reservation is not NOTHING_RESERVED:
                self._add_reservation(cluster, reservation, 1)
        return changed

    def _add_reservation(self, cluster: str, reservation: Reservation, sign: int) -> None:
        kept = self._kept
        for shape, count in reservation.entries:
            self._count_reserved_shape(shape, sign * count)
            if kept is not None:
                kept.add_reservation(cluster, shape, sign * count)
        if kept is not None and reservation.new_entries:
            kept.add_odd_reservation(cluster, sign)

    def _count_reserved_shape(self, shape: Shape, more: int) -> None:
        """Adds to the number of reserved replicas of a shape, over all clusters."""
        last, total = self._last  # A placement often has the same shape in every cluster, so the last one is kept.
        if last is not shape:
            total = self._shapes_reserved.setdefault(shape, [0])
            self._last = shape, total
        total[0] += more
        if not total[0]:
            del self._shapes_reserved[shape]
            self._last = None, []

    def revision_of_cluster(self, cluster: str) -> int:
        """Returns a number that grows with each change that set_reservations() reports for the cluster."""
        return self._revisions.get(cluster, 0)

    def rooms_of_fleet(self, views: Mapping[str, ClusterView], shape: Shape, seen: int | None = None) -> FleetRooms:
        """Returns the room by (cluster, node_groups): on existing nodes (False), or on new nodes of node groups (True).

        seen: a number that changes whenever the clusters or their nodes change; None: changes are not counted.
        """
        kept, number = self._kept_rooms_and_number(shape)
        if kept is None or number is None:
            return rooms_of(
                {place: self.room_in_cluster(views[place[0]], shape, place[1]) for place in _places_of_clusters(views)}
            )
        rooms = kept.rooms_of_fleet(views, number, seen)
        odd = kept.clusters_without_arrays(views, shape)
        for place in _places_of_clusters({name: views[name] for name in odd}) if odd else ():
            rooms.replace_room(place, self.room_in_cluster(views[place[0]], shape, place[1]))
        return rooms

    def _kept_rooms_and_number(self, shape: Shape) -> tuple[KeptRooms | None, int | None]:
        """Returns the kept rooms and the shape's number in them.

        The rooms are None when too many shapes are reserved. The number is None for a shape that is not kept.
        """
        if len(self._shapes_reserved) > RESERVED_MAX:
            self._kept = None
            return None, None
        number = self._shapes.number_of_shape(shape)
        if self._kept is None or self._kept.forgotten != self._shapes.forgotten:
            self._kept = KeptRooms(self._shapes)
            for cluster, entries in self._reserved.items():
                for reservation in entries.values():
                    self._reserve_in_kept(self._kept, cluster, reservation)
            number = self._shapes.number_of_shape(shape)  # The reserved shapes may have made the first number invalid.
        return self._kept, number

    def _reserve_in_kept(self, kept: KeptRooms, cluster: str, reservation: Reservation) -> None:
        for shape, count in reservation.entries:
            kept.add_reservation(cluster, shape, count)
        if reservation.new_entries:
            kept.add_odd_reservation(cluster, 1)

    def room_in_cluster(self, view: ClusterView, shape: Shape, node_groups: bool) -> Room:
        if not node_groups:
            rooms, number = self._kept_rooms_and_number(shape)
            kept_room = rooms.room_in_cluster(view, shape, number) if rooms is not None and number is not None else None
            if kept_room is not None:
                return kept_room
        of = view.serial, view.revision, self._revisions.get(view.name, 0)
        place = (view.name, shape, self._relevant_traits(view, shape), node_groups)
        kept = self._rooms.get(place)
        if kept is not None and kept[0] == of:
            return kept[1]
        room = self._room_within_quotas(view, shape, node_groups, None, self._kept_sides(view, shape))
        if len(self._rooms) > ROOMS_KEPT_MAX:
            self._rooms.clear()
        self._rooms[place] = of, room
        return room

    def has_no_fitting_node(self, view: ClusterView, shape: Shape) -> bool:
        """Returns whether the arrays show at once that no node takes a replica. False does not mean that one does.

        Many workloads may wait with shapes that are costly to fit, so this check comes first.
        """
        seen = shape_without_pod_terms(shape)
        kept, number = self._kept_rooms_and_number(seen) if self._shapes.can_keep_shape(seen) else (None, None)
        return kept is not None and number is not None and kept.has_no_fitting_node(view, number)

    def unreserved_room(self, view: ClusterView, shape: Shape) -> tuple[int, NodeLimit]:
        """Returns how many more replicas existing nodes take if nothing is reserved there, and what limits them."""
        kept, number = self._kept_rooms_and_number(shape)
        if kept is None or number is None or view.nodes.pods.may_repel_pods_of(shape.namespace):
            found = view.fit_of_shape(shape)
            return found.total, found.node_limit()
        return kept.unreserved_room(view, number)

    def do_labels_matter(self, view: ClusterView, shape: Shape) -> bool:
        """Returns whether pods in a cluster, bound or reserved, may look at the labels of the shape's replicas."""
        revision = self._revisions.get(view.name, 0)
        kept = self._looked_at.get(view.name)
        if kept is None or kept[0] != revision:
            looks = any(
                has_pod_terms(one)
                for entry in self._reservations_of_others(view.name)
                for one, _ in _all_reserved_entries(entry)
            )
            kept = self._looked_at[view.name] = (revision, looks)
        return kept[1] or has_pod_terms(shape) or view.nodes.pods.may_repel_pods_of(shape.namespace)

    def _label_test(self, view: ClusterView, shape: Shape) -> Callable[[Shape], bool]:
        """Returns a function that tells whether a reserved shape's labels matter for this shape.

        If they do, reserved shapes that are equal except for their labels must not be summed.
        """
        looked_at, repels = self.do_labels_matter(view, shape), view.nodes.pods.may_repel_pods_of
        return lambda other: looked_at or repels(other.namespace)

    def do_traits_matter(self, view: ClusterView, shape: Shape) -> bool:
        """Returns whether equal shapes may have different rooms in this cluster because of their labels or quotas."""
        return bool(view.quotas.get(shape.namespace)) or self.do_labels_matter(view, shape)

    def _relevant_traits(self, view: ClusterView, shape: Shape) -> PodTraits:
        return shape.traits if self.do_traits_matter(view, shape) else PodTraits()

    def room_without_workload(
        self, view: ClusterView, shape: Shape, node_groups: bool, without: WorkloadKey | None = None
    ) -> Room:
        """Returns the room, within nodes and quotas, as if nothing were reserved for the workload `without`."""
        entries = list(self._reservations_of_others(view.name, without))
        sides = _Sides(view, entries, self._label_test(view, shape), view.fit_of_shape)
        return self._room_within_quotas(view, shape, node_groups, without, sides)

    def _kept_sides(self, view: ClusterView, shape: Shape) -> _Sides:
        """Returns the prepared reservations of the cluster. They are kept until its nodes or reservations change."""
        matter, revision = self.do_labels_matter(view, shape), self._revisions.get(view.name, 0)
        of = (view, view.nodes, view.nodes.revision, view.joined, revision, matter)
        known = self._sides.get(view.name)
        if known is None or known[0] != of:
            entries, by_label = list(self._reservations_of_others(view.name)), self._label_test(view, shape)
            known = self._sides[view.name] = (
                of,
                _Sides(view, entries, by_label, lambda other: self._fit_of_reserved(view, other)),
            )
        return known[1]

    def _fit_of_reserved(self, view: ClusterView, shape: Shape) -> Fit:
        """Returns the fit of a reserved shape, from the kept arrays where they suffice."""
        kept, number = self._kept_rooms_and_number(shape)
        if kept is None or number is None or view.nodes.pods.may_repel_pods_of(shape.namespace):
            return view.fit_of_shape(shape)
        return kept.fit_of_shape(view, number)

    def _room_within_quotas(
        self, view: ClusterView, shape: Shape, node_groups: bool, without: WorkloadKey | None, sides: _Sides
    ) -> Room:
        room = self._room_of_nodes(view, shape, node_groups, sides)
        quotas = view.quotas.get(shape.namespace, ())
        if not quotas:
            return room
        entries = [
            entry
            for reserved in self._reservations_of_others(view.name, without)
            for entry in _all_reserved_entries(reserved)
        ]
        lets_in = quota_allowance(shape, quotas, entries)
        if node_groups:  # A part may use both, so what existing nodes certainly take is subtracted.
            taken = self._room_of_nodes(view, shape, False, sides).certain
            lets_in = replace(lets_in, certain=max(0, lets_in.certain - taken))
        certain, possible = min(room.certain, lets_in.certain), min(room.possible, lets_in.possible)
        limited_by = lets_in.limited_by if certain < room.certain or possible < room.possible else room.limited_by
        return Room(certain, possible, limited_by, room.when_empty)

    def _room_of_nodes(self, view: ClusterView, shape: Shape, node_groups: bool, sides: _Sides) -> Room:
        """Returns the room that the promised replicas leave.

        The replicas promised on existing nodes must fit there, and all promised replicas must fit on all nodes.
        """
        free, new = sides.free, sides.new
        if node_groups and not free and not new:
            return room_in_groups(shape, view.node_groups(), ())
        on_nodes = room_on_nodes(shape, view.fit_of_shape(shape), sides.reservations_on_nodes())
        if not new and not node_groups:
            return on_nodes
        groups = view.node_groups()
        everywhere = room_on_nodes(
            shape, fit_with_node_groups(view.fit_of_shape(shape), shape, groups), sides.reservations_everywhere()
        )
        if not node_groups:
            return room_within(on_nodes, everywhere)
        # A part may use both, so what the free nodes certainly take is subtracted.
        left = everywhere._replace(certain=max(0, everywhere.certain - on_nodes.certain))
        return room_within(room_in_groups(shape, groups, new), left)

    def room_on_future_nodes(self, view: ClusterView, shape: Shape, nodes: ClusterNodes, without: WorkloadKey) -> Room:
        """Returns the room on nodes in a state that the caller assumes for the future, `nodes`.

        The reservations of all workloads but `without` are subtracted.
        """
        others = (entry.entries for entry in self._reservations_of_others(view.name, without))
        reserved = _summed_by_shape(others, self._label_test(view, shape))
        return room_on_nodes(
            shape, compute_fit(shape, nodes), [(other, count, view.fit_of_shape(other)) for other, count in reserved]
        )

    def room_on_lent_nodes(self, view: ClusterView, shape: Shape) -> int:
        """Returns how many more replicas the cluster certainly takes once all nodes that it has lent are back."""
        back = self._view_with_returned_nodes(view)
        if back is None:
            return 0
        sides = _Sides(
            back, list(self._reservations_of_others(view.name)), self._label_test(view, shape), back.fit_of_shape
        )
        then = self._room_within_quotas(back, shape, False, None, sides).certain
        return max(0, then - self.room_in_cluster(view, shape, False).certain)

    def _view_with_returned_nodes(self, view: ClusterView) -> ClusterView | None:
        """Returns the cluster as if all lent nodes were back (nodes_after_return); None when no node is lent."""
        nodes = view.nodes
        if not nodes.has_lent_nodes:
            self._returned.pop(view.name, None)
            return None
        known = self._returned.get(view.name)
        if known is None or known[0] is not nodes or known[1] != nodes.revision:
            known = self._returned[view.name] = nodes, nodes.revision, view.with_nodes(nodes_after_return(nodes))
        return known[2]

    def _reservations_of_others(self, cluster: str, without: WorkloadKey | None = None) -> Iterator[Reservation]:
        return (entry for key, entry in self.reservations_in_cluster(cluster).items() if key != without)


def _places_of_clusters(views: Mapping[str, ClusterView]) -> Iterator[Place]:
    for name, view in views.items():
        yield name, False
        if view.joined is not None and view.joined.node_groups:
            yield name, True


def _all_reserved_entries(reservation: Reservation) -> Iterator[tuple[Shape, int]]:
    yield from reservation.entries
    yield from reservation.new_entries


def _summed_by_shape(
    groups: Iterable[tuple[tuple[Shape, int], ...]], by_label: Callable[[Shape], bool]
) -> list[tuple[Shape, int]]:
    """Sums equal shapes into one entry, in the order of first occurrence.

    by_label: returns whether shapes equal to this one are summed only if their labels are equal, too.
    """
    shapes: dict[tuple[Shape, LabelSet], Shape] = {}
    counts: Counter[tuple[Shape, LabelSet]] = Counter()
    for entries in groups:
        for shape, count in entries:
            key = (shape, shape.traits.labels if by_label(shape) else ())
            shapes.setdefault(key, shape)
            counts[key] += count
    return [(shapes[key], count) for key, count in counts.items()]
