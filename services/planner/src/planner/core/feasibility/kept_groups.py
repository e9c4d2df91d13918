"""Keeps the room on new nodes that the node groups of one cluster can still make, for many shapes."""

from planner.core.feasibility.kept_fits import FitTable
from planner.core.feasibility.kept_shapes import KeptShapes
from planner.core.feasibility.room import Room, room_in_groups
from spillway.feasibility.cluster_view import ClusterView
from spillway.feasibility.fit import replicas_on_group_node
from spillway.model import NodeGroup


class KeptGroups:
    """The node groups of one cluster. The numbers by shape are in the FitTable.

    remaining: (node group, number of its existing nodes), as of the last call of `follow_cluster`.
    """

    def __init__(self, shapes: KeptShapes, table: FitTable, slot: int) -> None:
        self._shapes, self._table, self._slot = shapes, table, slot
        self._of: tuple[object, int, object] = (None, -1, None)
        self.remaining: list[tuple[NodeGroup, int]] = []
        self._rooms: dict[int, Room] = {}

    def follow_cluster(self, view: ClusterView) -> bool:
        """Reads the cluster's node groups. Returns whether the new nodes that they can still make have changed."""
        of = (view.nodes, view.nodes.revision, view.joined)
        if of == self._of:
            return False
        self._of = of
        before, self.remaining = self.remaining, view.node_groups()
        if before == self.remaining:
            return False
        self._rooms.clear()
        return True

    def keep_shape(self, number: int) -> None:
        """Computes the numbers of a shape. They equal those of fit_with_node_groups and room_in_groups (room.py)."""
        if not self.remaining or number in self._rooms:
            return
        shape, table, slot = self._shapes.shapes[number], self._table, self._slot
        takes = [
            replicas_on_group_node(shape, group) if group.nodes_max > existing else 0
            for group, existing in self.remaining
        ]
        self._rooms[number] = room = room_in_groups(shape, self.remaining, ())
        table.more[number, slot] = room.possible
        table.more_largest[number, slot] = max(takes)
        table.groups[number, slot] = sum(1 << index for index, count in enumerate(takes) if count)

    def room_of_shape(self, number: int) -> Room:
        """Returns the room of a kept shape when nothing is reserved."""
        return self._rooms[number]
