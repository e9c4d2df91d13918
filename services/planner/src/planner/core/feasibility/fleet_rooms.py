"""The rooms of all clusters at one moment: what is certain in each as numbers, the rest put together when looked at."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from planner.core.feasibility.room import Room

Place = tuple[str, bool]
"""A cluster; on the nodes that exist, or with True on those that its node groups could still make."""


class Places:
    """So many places in an order, which rooms found one after the other share."""

    def __init__(self, places: Sequence[Place]) -> None:
        self.index: Mapping[Place, int] = {place: index for index, place in enumerate(places)}
        self._indices: dict[tuple[tuple[str, ...], bool], list[int]] = {}

    def indices(self, clusters: tuple[str, ...], node_groups: bool) -> list[int]:
        """Where these clusters are. KeyError for one that is none of the places."""
        known = self._indices.get((clusters, node_groups))
        if known is None:
            known = self._indices[clusters, node_groups] = [self.index[name, node_groups] for name in clusters]
        return known


class FleetRooms(Mapping[Place, Room]):
    """certain: by index of a place, and changed by put(). make: the room of an index, as of when all were found."""

    def __init__(self, places: Places, certain: list[int], make: Callable[[int], Room]) -> None:
        self._places, self._certain, self._make = places, certain, make
        self._known: dict[Place, Room] = {}

    def __call__(self, cluster: str, node_groups: bool) -> Room:
        return self[cluster, node_groups]

    def __getitem__(self, place: Place) -> Room:
        known = self._known.get(place)
        if known is None:
            known = self._known[place] = self._make(self._places.index[place])
        return known

    def __contains__(self, place: object) -> bool:
        return place in self._places.index

    def __iter__(self) -> Iterator[Place]:
        return iter(self._places.index)

    def __len__(self) -> int:
        return len(self._places.index)

    def put(self, place: Place, room: Room) -> None:
        """In place of what was found there."""
        self._known[place] = room
        self._certain[self._places.index[place]] = room.certain

    def certain_in(self, clusters: tuple[str, ...], node_groups: bool) -> dict[str, int]:
        """By cluster, in this order."""
        certain = self._certain
        return dict(
            zip(clusters, [certain[index] for index in self._places.indices(clusters, node_groups)], strict=True)
        )


def rooms_of(rooms: Mapping[Place, Room]) -> FleetRooms:
    """Of rooms that were worked out one by one."""
    found = list(rooms.values())
    return FleetRooms(Places(list(rooms)), [room.certain for room in found], found.__getitem__)
