"""Asks the planner about the same cluster. The objects reach it by the same code as in production."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from planner.core.feasibility.admitted import unmodelled_with_overhead
from planner.core.feasibility.room import room_on_nodes
from snapshot.core.cluster_state import ClusterState
from snapshot.core.rules import SnapshotRules
from spillway import wire
from spillway.api import RequestError
from spillway.clusters.answers import page_decoder
from spillway.columns import columns_of
from spillway.events import CapacityReported
from spillway.feasibility.cluster_view import ClusterView
from spillway.feasibility.fit import compute_fit
from spillway.feasibility.volumes import NO_CLAIMS, volume_claim_warnings, with_volume_limits
from spillway.kubernetes.objects import NAMESPACES, NODES, PODS, VOLUME_CLAIMS, VOLUMES, Kind, Manifest
from spillway.kubernetes.pod_shape import shape_of
from spillway.model import Shape

CLUSTER = "cluster"
_KINDS = ((NODES, "nodes"), (PODS, "pods"), (NAMESPACES, "namespaces"), (VOLUMES, "volumes"), (VOLUME_CLAIMS, "claims"))
_RULES = SnapshotRules()
_ENCODER = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class PlannerAnswer:
    """The planner's answer. certain: replicas that run with any choice of the scheduler. possible: the most replicas.

    by_node: replicas by node. unmodelled: parts of the template that are not computed. refused: why it is refused.
    """

    certain: int = 0
    possible: int = 0
    by_node: Mapping[str, int] = field(default_factory=dict)
    limited_by: str = ""
    unmodelled: tuple[str, ...] = ()
    refused: str = ""


def planner_answer(world: Mapping[str, Any], template: Manifest, namespace: str) -> PlannerAnswer:
    """Objects → the collector's state → columns packed as on the log → the planner's view; template → shape → room."""
    try:
        declared = shape_of(template, namespace, "template")
    except RequestError as error:
        return PlannerAnswer(refused=error.text)
    view = cluster_view(world)
    shape, unknown = shape_in_cluster(declared, view)
    result = compute_fit(shape, view.nodes)
    room = room_on_nodes(shape, result, ())
    rows = zip(view.nodes.names, result.per_node, strict=False)
    by_node = {name: int(count) for name, count in rows if name and count}
    unmodelled = (*unmodelled_with_overhead(declared.unmodelled, declared), *unknown)
    return PlannerAnswer(room.certain, room.possible, by_node, result.node_limit().as_text, unmodelled)


def shape_in_cluster(declared: Shape, view: ClusterView) -> tuple[Shape, tuple[str, ...]]:
    """Returns the shape for that cluster, and the parts of its volume claims that are not computed there."""
    claims = view.claims.get(declared.namespace, NO_CLAIMS)
    shape = with_volume_limits(declared, claims)
    return shape, volume_claim_warnings(((view.name, shape, claims),))


def cluster_view(world: Mapping[str, Any]) -> ClusterView:
    """Returns the view of a cluster of these objects: nodes, pods, namespaces, and perhaps volumes and claims."""
    state = ClusterState("oracle", _RULES)
    for kind, name in _KINDS:
        state.replace_objects(kind, _decoded_objects(kind, world.get(name, ())), 0.0)
    whole = state.whole_state()
    view = ClusterView(CLUSTER)
    report = CapacityReported(CLUSTER, 1, 0, 1, 0, 0, b"", (), whole.namespaces)
    view.apply_capacity_reported(report, wire.unpack_columns(wire.pack_columns(columns_of(whole.rows))))
    return view


def _decoded_objects(kind: Kind, objects: Sequence[Manifest]) -> tuple[Any, ...]:
    """Returns the objects decoded like a page of a list. Gives each a uid, as an API server does."""
    page = page_decoder(kind).decode(_ENCODER.encode({"metadata": {}, "items": objects}))
    return tuple(page.items or ())
