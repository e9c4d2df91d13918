"""Computes the room for more replicas of a workload when some of them may get an earlier template."""

from collections.abc import Sequence

from planner.core.feasibility.room import Room
from planner.core.knowledge.state import PlannerState
from planner.core.manifests.templates import widest_shape
from spillway.feasibility.cluster_view import WorkloadKey
from spillway.model import Shape


def growth_room(
    state: PlannerState, cluster: str, shapes: Sequence[Shape], node_groups: bool, now: float, key: WorkloadKey
) -> Room:
    """Returns the room for replicas, each of which may have any of these shapes. So the smallest room counts.

    The first shape alone decides whether a replica fits in an empty cluster.
    """
    shapes = [state.shape_in(cluster, shape) for shape in shapes]
    first = state.room_in_cluster(cluster, shapes[0], node_groups, now, key)
    others = [widest_shape(shape, shapes) for shape in shapes] if len(set(shapes)) > 1 else []
    different = {(shape, shape.traits): shape for shape in (*others, *shapes)} if others else {}
    different |= {(shape, shape.traits): shape for shape in shapes if shape.traits != shapes[0].traits}
    rooms = [first, *(state.room_in_cluster(cluster, shape, node_groups, now, key) for shape in different.values())]
    tightest = min(rooms, key=lambda room: room.certain)
    possible = min(room.possible for room in rooms)
    return Room(tightest.certain, possible, tightest.limited_by, first.when_empty)
