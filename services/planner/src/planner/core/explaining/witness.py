"""Explains why nodes take no replica: runs the filters node by node and names them as the kube-scheduler does."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from planner.core.feasibility.quantities import quantity_text
from spillway.api import ExplainedNode, NodeFilter, NodeReason, RequestError
from spillway.feasibility.fit import compute_fit, filter_by_ports
from spillway.feasibility.node_match import (
    Bools,
    NodeFilters,
    filter_by_labels,
    filter_by_name,
    filter_by_state,
    filter_by_taints,
    filter_by_volumes,
)
from spillway.feasibility.nodes import NO_DOMAIN, ClusterNodes
from spillway.feasibility.own_template import candidate_shapes
from spillway.feasibility.pod_affinity import anti_affinity_ceilings, filter_by_other_pods, filter_by_spread
from spillway.feasibility.topology import Ceiling
from spillway.model import Int64s, Shape

Filter = Callable[[Shape, ClusterNodes, NodeFilters], object]
OF_NODES: tuple[tuple[str, Filter], ...] = (
    ("NodeUnschedulable", filter_by_state),
    ("NodeName", filter_by_name),
    ("TaintToleration", filter_by_taints),
    ("NodeAffinity", filter_by_labels),
    ("NodePorts", filter_by_ports),
)
RESOURCES = "NodeResourcesFit"
OF_OTHERS: tuple[tuple[str, Filter], ...] = (
    ("VolumeBinding, VolumeZone", filter_by_volumes),
    ("PodTopologySpread", filter_by_spread),
    ("InterPodAffinity", filter_by_other_pods),
)
"""Filters that look at other pods or volumes. With RESOURCES between these two lists, the order is as in the
kube-scheduler: the first filter that bars a node is its reason."""
ONE_A_NODE = "NodePorts, InterPodAffinity"
AMOUNTS_APART_MAX = 3
"""The most groups of nodes by the amount that they lack. With more different amounts, they form one group."""
REASONS_MAX = 12
OTHERS = "other reasons"
TAKES_MORE = "takes more by itself: "


class Witness(NodeFilters):
    """Records, for each node, the first filter that excluded it and the reason."""

    def __init__(self, live: Bools) -> None:
        super().__init__(live)
        self.filter = ""
        self.found: list[tuple[str, str, Bools]] = []

    def exclude_nodes(self, mask: Bools, reason: str) -> None:
        met = self.open & mask
        if met.any():
            self.found.append((self.filter, reason, met))
        super().exclude_nodes(mask, reason)


def node_reasons(shape: Shape, nodes: ClusterNodes, beyond: str = "") -> tuple[NodeReason, ...]:
    """Returns the reasons why nodes take no further replica. Each node is in the group of one reason.

    First come groups of nodes that would take more by themselves, but not together with others. Then come the other
    groups, the largest first. beyond: a text for users with the limit of the whole cluster; empty without one.
    """
    witness = Witness(nodes.live_mask)
    for name, apply in OF_NODES:
        witness.filter = name
        apply(shape, nodes, witness)
    short = witness.open & (_replicas_of_free_amounts(shape, nodes) <= 0)
    witness.open &= ~short
    ceilings = []
    for name, apply in OF_OTHERS:
        witness.filter = name
        ceilings += [(name, *found) for found in _ceilings_of_filter(apply(shape, nodes, witness))]
    ceilings += [("InterPodAffinity", *found) for found in anti_affinity_ceilings(shape, nodes)]
    barred, found = len(witness.found), compute_fit(shape, nodes)
    for name, text, ceiling in ceilings:
        witness.filter = name
        room = ceiling.sums_by_domain(found.per_node)
        capped = np.append(room > np.maximum(0, ceiling.height_once_filled(room) - ceiling.present), False)
        witness.exclude_nodes((found.per_node > 0) & capped[ceiling.domains], text)
    if beyond:
        witness.filter = ""
        witness.exclude_nodes(found.per_node > 0, TAKES_MORE + beyond)
    singly, together = (
        [NodeReason(int(met.sum()), name, reason, example=_example_node_name(nodes, met)) for name, reason, met in part]
        for part in (witness.found[:barred], witness.found[barred:])
    )
    singly += _shortage_reasons(shape, nodes, witness.open | short)
    return (*_sorted_by_nodes(together), *_limit_reasons(_sorted_by_nodes(singly), REASONS_MAX - len(together)))


def _sorted_by_nodes(reasons: Iterable[NodeReason]) -> list[NodeReason]:
    return sorted(reasons, key=lambda entry: (-entry.nodes, entry.reason, entry.lacks))


def _limit_reasons(reasons: Sequence[NodeReason], most: int) -> Sequence[NodeReason]:
    """Returns at most `most` reasons. The nodes of the last ones are counted together."""
    if len(reasons) <= most:
        return reasons
    rest = reasons[most - 1 :]
    return (*reasons[: most - 1], NodeReason(sum(entry.nodes for entry in rest), "", OTHERS, example=rest[0].example))


def _example_node_name(nodes: ClusterNodes, met: Bools) -> str:
    return nodes.names[int(np.flatnonzero(met)[0])]


def explain_node(shape: Shape, nodes: ClusterNodes, cluster: str, node: str) -> ExplainedNode:
    """Returns each filter's answer for the next replica on one node.

    Raises RequestError (NOT_FOUND) for an unknown node.
    """
    row = nodes.row_of(node)
    if row is None:
        raise RequestError("NOT_FOUND", f"node {node!r}: cluster {cluster} has no node of this name")
    alike = candidate_shapes(shape, nodes)

    def explained_filters(filters: Iterable[tuple[str, Filter]]) -> Iterator[NodeFilter]:
        for name, apply in filters:
            bars = [_bar_reason(apply, one, nodes, row) for one in alike]
            yield NodeFilter(name, not all(bars), bars[0] if all(bars) else "")

    lacks = [_lack_text(name, lack) for name, lack in _lacking_resources(shape, nodes, row)]
    resources = NodeFilter(RESOURCES, not lacks, ", ".join(lacks))
    filters = (*explained_filters(OF_NODES), resources, *explained_filters(OF_OTHERS))
    takes = max(_replicas_on_node(one, nodes, row) for one in alike) if all(entry.passes for entry in filters) else 0
    return ExplainedNode(cluster, node, takes, filters)


def _bar_reason(apply: Filter, shape: Shape, nodes: ClusterNodes, row: int) -> str:
    """Returns the first reason for which a filter excludes the node for the next replica; empty if it does not."""
    witness = Witness(nodes.live_mask)

    def first_found_reason() -> str:
        return next((text for _, text, met in witness.found if met[row]), "")

    found = apply(shape, nodes, witness)
    for text, ceiling in found if isinstance(found, Iterator) else ():
        if reason := first_found_reason():
            return reason
        domain = int(ceiling.domains[row])
        if domain != NO_DOMAIN and ceiling.present[domain] >= ceiling.lowest_height:
            return f"{text}: {int(ceiling.present[domain])} there, now at most {ceiling.lowest_height}"
    return first_found_reason()


def _replicas_on_node(shape: Shape, nodes: ClusterNodes, row: int) -> int:
    """Returns the most replicas that one node takes, with its domain's ceilings."""
    per_node = compute_fit(shape, nodes).per_node
    takes = int(per_node[row])
    for _, ceiling in (
        *_ceilings_of_filter(filter_by_spread(shape, nodes, Witness(nodes.live_mask))),
        *anti_affinity_ceilings(shape, nodes),
    ):
        domain = int(ceiling.domains[row])
        if domain != NO_DOMAIN:
            takes = min(
                takes, ceiling.height_once_filled(ceiling.sums_by_domain(per_node)) - int(ceiling.present[domain])
            )
    return max(0, takes)


def _ceilings_of_filter(found: object) -> list[tuple[str, Ceiling]]:
    """Returns the ceilings of a filter. Some filters are generators, which run only while their ceilings are read."""
    return list(found) if isinstance(found, Iterator) else []


@dataclass(frozen=True, slots=True)
class _ResourceLack:
    """Nodes that lack the same resources: the rows, and how much of the first resource each lacks."""

    resources: tuple[str, ...]
    rows: Int64s
    amounts: Int64s


def _shortage_reasons(shape: Shape, nodes: ClusterNodes, open_: Bools) -> Iterator[NodeReason]:
    """Yields reasons for nodes that no filter excludes: the resource that one more replica lacks, and the amount."""
    per_node = compute_fit(shape, nodes).per_node
    free = {name: _free_amounts(nodes, name) for name, _ in shape.requests}
    most = np.maximum(0, _replicas_of_free_amounts(shape, nodes))
    single = open_ & (per_node < most)
    if single.any():
        text = f"takes {int(per_node[single].max())}, whatever its size"
        yield NodeReason(int(single.sum()), ONE_A_NODE, text, example=_example_node_name(nodes, single))
    rows = np.flatnonzero(open_ & ~single)
    lacking = np.stack([amount * (most[rows] + 1) - free[name][rows] for name, amount in shape.requests])
    short = lacking > 0
    names = [name for name, _ in shape.requests]
    for which in np.unique(short, axis=1).T:
        if not which.any():
            continue
        here = np.flatnonzero((short == which[:, None]).all(axis=0))
        first = int(np.argmax(which))
        resources = tuple(name for name, lacks in zip(names, which.tolist(), strict=True) if lacks)
        yield from _group_shortages(nodes, _ResourceLack(resources, rows[here], lacking[first, here]))


def _group_shortages(nodes: ClusterNodes, lack: _ResourceLack) -> Iterator[NodeReason]:
    amounts = np.unique(lack.amounts)
    groups = amounts.tolist() if len(amounts) <= AMOUNTS_APART_MAX else [None]
    beside = "".join(f", and {name} too" for name in lack.resources[1:])
    for amount in groups:
        member = lack.amounts == amount if amount is not None else np.ones(len(lack.rows), np.bool_)
        least, most = int(lack.amounts[member].min()), int(lack.amounts[member].max())
        example = nodes.names[int(lack.rows[member][np.argmin(lack.amounts[member])])]
        text = _lack_text(lack.resources[0], least)
        text += f" to {quantity_text(lack.resources[0], most)}" if most > least else ""
        yield NodeReason(int(member.sum()), RESOURCES, text + beside, lack.resources[0], least, most, example)


def _replicas_of_free_amounts(shape: Shape, nodes: ClusterNodes) -> Int64s:
    """Returns [rows]: replicas that the free amounts of each node suffice for; negative where they are below zero."""
    takes: Int64s = np.stack([_free_amounts(nodes, name) // amount for name, amount in shape.requests]).min(axis=0)
    return takes


def _free_amounts(nodes: ClusterNodes, resource: str) -> Int64s:
    index = nodes.resources.get(resource)
    if index is None:
        return np.zeros(nodes.block.shape, np.int64)
    free: Int64s = nodes.allocatable[index] - nodes.requested[index]
    return free


def _lacking_resources(shape: Shape, nodes: ClusterNodes, row: int) -> Iterator[tuple[str, int]]:
    for name, amount in shape.requests:
        lack = amount - int(_free_amounts(nodes, name)[row])
        if lack > 0:
            yield name, lack


def _lack_text(resource: str, lack: int) -> str:
    return f"{resource} short by {quantity_text(resource, lack)}"
