"""Holds, for one moment, how many more replicas each cluster takes.

The certain numbers are computed at once. The possible numbers and the limits are computed when they are read.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from planner.core.feasibility.kept_fits import Counts
from planner.core.feasibility.limits import Limit, limit_by_nodes, limit_by_promised
from planner.core.feasibility.room import Room
from spillway.feasibility.fit import NodeLimit
from spillway.feasibility.node_match import Bools
from spillway.model import Int64s

Place = tuple[str, bool]
"""(cluster, False) means the cluster's existing nodes; (cluster, True) the new nodes that its node groups can make."""


class Places:
    """An ordered list of places that several FleetRooms share."""

    def __init__(self, places: Sequence[Place]) -> None:
        self.index: Mapping[Place, int] = {place: index for index, place in enumerate(places)}
        self._indices: dict[tuple[tuple[str, ...], bool], list[int]] = {}

    def indices_of_clusters(self, clusters: tuple[str, ...], node_groups: bool) -> list[int]:
        """Returns the indices of these clusters. Raises KeyError for a cluster that is not listed."""
        known = self._indices.get((clusters, node_groups))
        if known is None:
            known = self._indices[clusters, node_groups] = [self.index[name, node_groups] for name in clusters]
        return known


class Rooms(Protocol):
    """The rooms as they were computed, by index of a place."""

    def room_at(self, index: int) -> Room: ...

    def fits_when_empty(self, index: int) -> bool: ...


class FleetRooms(Mapping[Place, Room]):
    """The rooms of all clusters by place.

    certain: certain replicas by index of a place; replace_room() changes them. found: the rooms as they were computed.
    """

    def __init__(self, places: Places, certain: list[int], found: Rooms) -> None:
        self._places, self._certain, self._found = places, certain, found
        self._known: dict[Place, Room] = {}

    def __call__(self, cluster: str, node_groups: bool) -> Room:
        return self[cluster, node_groups]

    def __getitem__(self, place: Place) -> Room:
        known = self._known.get(place)
        if known is None:
            known = self._known[place] = self._found.room_at(self._places.index[place])
        return known

    def __contains__(self, place: object) -> bool:
        return place in self._places.index

    def __iter__(self) -> Iterator[Place]:
        return iter(self._places.index)

    def __len__(self) -> int:
        return len(self._places.index)

    def fits_when_empty(self, place: Place) -> bool:
        """Returns whether a replica would run at this place if nothing else did (Room.when_empty)."""
        known = self._known.get(place)
        return self._found.fits_when_empty(self._places.index[place]) if known is None else known.when_empty

    def replace_room(self, place: Place, room: Room) -> None:
        """Replaces the computed room at this place."""
        self._known[place] = room
        self._certain[self._places.index[place]] = room.certain

    def replace_rooms(self, other: "FleetRooms", clusters: frozenset[str]) -> None:
        """Replaces the rooms of these clusters with the rooms for another shape."""
        for place in [place for place in self if place[0] in clusters]:
            self.replace_room(place, other[place])

    def certain_by_cluster(self, clusters: tuple[str, ...], node_groups: bool) -> dict[str, int]:
        """Returns the certain room of each cluster, in this order."""
        certain = self._certain
        return dict(
            zip(
                clusters,
                [certain[index] for index in self._places.indices_of_clusters(clusters, node_groups)],
                strict=True,
            )
        )


class FoundRooms(NamedTuple):
    """The rooms of one shape as arrays, by index of a place; unbound, when_empty and changes by index of a cluster.

    counts: nodes by slot and reason. slots: the slot of each cluster.
    first: the index of the first place on node groups.
    alone: for each place from `first` on, the cluster's index and its groups' room if nothing is reserved.
    limits: by cluster, (changes, limit): its nodes' limit if nothing is reserved, and the `changes` it was computed at.
    """

    certain: list[int]
    possible: Int64s
    bound_by: Int64s
    unbound: Int64s
    counts: Counts
    slots: Sequence[int]
    when_empty: Bools
    changes: list[int]
    first: int
    alone: list[tuple[int, Room]]
    limits: dict[int, tuple[int, Limit]]
    told: Callable[[Counts], tuple[tuple[str, int], ...]]

    def room_at(self, index: int) -> Room:
        certain = self.certain[index]
        if index < self.first:
            return Room(certain, int(self.possible[index]), self._limit_at(index, index), bool(self.when_empty[index]))
        # A part may use both kinds of nodes, so what the existing nodes certainly take is subtracted.
        of, alone = self.alone[index - self.first]
        left = max(0, certain - self.certain[of])
        return (
            alone if left >= alone.certain else Room(left, alone.possible, self._limit_at(index, of), alone.when_empty)
        )

    def fits_when_empty(self, index: int) -> bool:
        if index >= self.first:
            return self.alone[index - self.first][1].when_empty
        return bool(self.when_empty[index])

    def _limit_at(self, index: int, of: int) -> Limit:
        bound_by = int(self.bound_by[index])
        if bound_by >= 0:
            return limit_by_promised(bound_by)
        known = self.limits.get(of)
        if known is None or known[0] != self.changes[of]:
            known = self.changes[of], limit_by_nodes(NodeLimit(self.told(self.counts[self.slots[of]])))
            self.limits[of] = known
        alone = known[1]
        if self.certain[index] == self.possible[index]:
            return alone
        return Limit(alone.code, int(self.unbound[of]), (), alone.nodes)


class _ListedRooms(list[Room]):
    """Rooms that were computed one by one."""

    def room_at(self, index: int) -> Room:
        return self[index]

    def fits_when_empty(self, index: int) -> bool:
        return self[index].when_empty


def rooms_of(rooms: Mapping[Place, Room]) -> FleetRooms:
    """Returns the FleetRooms of rooms that were computed one by one."""
    return FleetRooms(Places(list(rooms)), [room.certain for room in rooms.values()], _ListedRooms(rooms.values()))
