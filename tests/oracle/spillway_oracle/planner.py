"""What the planner says of the same cluster, by the way that a cluster's objects take to it in production."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from planner.core.feasibility.fit import fit
from planner.core.feasibility.nodes import ClusterNodes
from planner.core.feasibility.room import room_on_nodes
from snapshot.core.cluster_state import ClusterState
from snapshot.settings import Settings
from spillway import wire
from spillway.api import RequestError
from spillway.columns import columns_of
from spillway.kubernetes import NAMESPACES, NODES, PODS, Kind, Manifest, page_decoder
from spillway.pod_shape import shape_of

_SETTINGS = Settings()
_ENCODER = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class PlannerAnswer:
    """certain: replicas that run whatever the scheduler chooses. possible: at the most. by_node: what each node takes.

    unmodelled: what the template asks for that is not computed. refused: why the template is not taken at all.
    """

    certain: int = 0
    possible: int = 0
    by_node: Mapping[str, int] = field(default_factory=dict)
    limited_by: str = ""
    unmodelled: tuple[str, ...] = ()
    refused: str = ""


def planner_answer(
    nodes: Sequence[Manifest],
    pods: Sequence[Manifest],
    namespaces: Sequence[Manifest],
    template: Manifest,
    namespace: str,
) -> PlannerAnswer:
    """Objects → the collector's state → columns packed as on the log → the planner's nodes; template → shape → room."""
    try:
        shape = shape_of(template, namespace, "template")
    except RequestError as error:
        return PlannerAnswer(refused=error.text)
    arrays = cluster_nodes(nodes, pods, namespaces)
    result = fit(shape, arrays)
    room = room_on_nodes(shape, result, ())
    by_node = {name: int(count) for name, count in zip(arrays.names, result.per_node, strict=False) if name and count}
    return PlannerAnswer(room.certain, room.possible, by_node, room.limited_by, shape.unmodelled)


def cluster_nodes(
    nodes: Sequence[Manifest], pods: Sequence[Manifest], namespaces: Sequence[Manifest] = ()
) -> ClusterNodes:
    state = ClusterState("oracle", _SETTINGS)
    state.listed(NODES, _decoded(NODES, nodes), 0.0)
    state.listed(PODS, _decoded(PODS, pods), 0.0)
    state.listed(NAMESPACES, _decoded(NAMESPACES, namespaces), 0.0)
    packed = wire.pack_columns(columns_of(state.whole().rows))
    arrays = ClusterNodes()
    arrays.replace_block(wire.unpack_columns(packed), 0)
    arrays.namespaces = {entry.name: dict(entry.labels) for entry in state.whole().namespaces}
    return arrays


def _decoded(kind: Kind, objects: Sequence[Manifest]) -> tuple[Any, ...]:
    """As a page of the cluster's list is decoded; the objects have a uid each, since an API server gives them one."""
    page = page_decoder(kind).decode(_ENCODER.encode({"metadata": {}, "items": objects}))
    return tuple(page.items or ())
