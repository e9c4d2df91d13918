"""Computes how many replicas of a shape the nodes of a cluster take, and what limits the number.

Models the kube-scheduler's default filters (v1.36): NodeResourcesFit and NodePorts here; NodeUnschedulable, NodeName,
NodeAffinity, TaintToleration, VolumeBinding and VolumeZone in node_match.py; InterPodAffinity and PodTopologySpread in
pod_affinity.py and topology.py. Preemption is not counted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from spillway.feasibility.near import NearBound
from spillway.feasibility.node_match import (
    Bools,
    NodeFilters,
    filter_by_labels,
    filter_by_lasting_taints,
    filter_by_name,
    filter_by_state,
    filter_by_taints,
    filter_by_volumes,
    find_untolerated_taint,
    selector_requirements,
)
from spillway.feasibility.nodes import ClusterNodes
from spillway.feasibility.own_template import candidate_shapes
from spillway.feasibility.pod_affinity import (
    anti_affinity_ceilings,
    filter_by_other_pods,
    filter_by_spread,
    is_one_replica_per_node,
)
from spillway.feasibility.topology import SpreadBound
from spillway.kubernetes.pod_shape import matches_labels
from spillway.model import HOSTNAME_LABEL, HostPort, Int64s, NodeGroup, Shape, VolumeLimit

ANY_IP = "0.0.0.0"
REASONS_SHOWN = 3


@dataclass(frozen=True)
class NodeLimit:
    """The reasons why nodes take no more replicas. reasons, beyond: as in Fit.

    between: the least and the most replicas that may fit; None if they are equal.
    """

    reasons: tuple[tuple[str, int], ...]
    beyond: tuple[str, ...] = ()
    between: tuple[int, int] | None = None

    @cached_property
    def as_text(self) -> str:
        """Returns a text for people: "cpu (12 nodes), taint gpu=only:NoSchedule (4 nodes)"."""
        text = reasons_text(self.reasons)
        if not self.beyond:
            return text
        sure = f", {self.between[0]} to {self.between[1]} by what the scheduler picks" if self.between else ""
        return f"{', '.join(self.beyond)}{sure}; {text}"


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """The replicas of a shape that the nodes of a cluster take.

    per_node: int64 [rows], replicas that each node takes by itself. largest: the most on one node.
    total: the replicas that fit for any choice of nodes by the cluster's scheduler, in any order.
    possible: the most replicas that can be placed. It differs from total only for shapes whose replicas exclude nodes
    for each other; these shapes have `bounds`.
    when_empty: True if some node would take a replica if nothing ran there.
    reasons: (limit, number of nodes with this limit), most nodes first. beyond: limits of the sum, not of a node.
    """

    per_node: Int64s
    total: int
    possible: int
    largest: int
    when_empty: bool
    reasons: tuple[tuple[str, int], ...]
    beyond: tuple[str, ...] = ()
    bounds: tuple[SpreadBound | NearBound, ...] = ()

    def node_limit(self) -> NodeLimit:
        if not self.beyond or not self.reasons:
            return NodeLimit(self.reasons)
        return NodeLimit(self.reasons, self.beyond, (self.total, self.possible) if self.total < self.possible else None)

    def certain_replicas_after_loss(self, lost: int) -> int:
        """Returns how many replicas still certainly fit after room for `lost` replicas is gone, in the worst case."""
        if not self.bounds:
            return max(0, self.total - lost)
        return max(0, min(bound.certain_replicas(lost) for bound in self.bounds))

    def spare_replicas(self, wanted: int) -> int:
        """Returns how many replicas of room may be lost while `wanted` still fit; negative if they do not fit."""
        if not self.bounds:
            return self.total - wanted
        if self.total < wanted:
            return self.total - wanted
        # A lost place can cost more than one replica under ceilings, so the largest loss is found by bisection.
        least, most = 0, self.total
        while least < most:
            middle = (least + most + 1) // 2
            least, most = (middle, most) if self.certain_replicas_after_loss(middle) >= wanted else (least, middle - 1)
        return least

    @property
    def extra_places_per_pod(self) -> int:
        """Returns how many places one more pod may cost besides its own, if the ceilings count it like a replica."""
        return max((bound.extra_places_per_pod for bound in self.bounds), default=0)


def reasons_text(reasons: Sequence[tuple[str, int]]) -> str:
    """Returns (limit, nodes), most nodes first, as text: "cpu (12 nodes), taint gpu=only:NoSchedule (1 node)"."""
    if not reasons:
        return "no nodes"
    shown = [f"{reason} ({nodes} node{'s' if nodes != 1 else ''})" for reason, nodes in reasons[:REASONS_SHOWN]]
    rest = len(reasons) - REASONS_SHOWN
    return ", ".join(shown) + (f" and {rest} more" if rest > 0 else "")


def compute_fit(shape: Shape, nodes: ClusterNodes) -> Fit:
    """Returns the replicas of a shape that the nodes take in their present state.

    If its selectors match only the pods of its own template, it is unknown which pods these are. Then `total` is the
    least and `possible` the most over all possible cases.
    """
    fits = [_compute_candidate_fit(candidate, nodes) for candidate in candidate_shapes(shape, nodes)]
    if len(fits) == 1:
        return fits[0]
    least = min(fits, key=lambda found: found.total)
    return replace(
        least,
        per_node=np.maximum.reduce([found.per_node for found in fits]),
        possible=max(found.possible for found in fits),
        largest=max(found.largest for found in fits),
        beyond=least.beyond or ("which pods are of this template",),
        bounds=tuple(bound for found in fits for bound in found.bounds),
    )


def _compute_candidate_fit(shape: Shape, nodes: ClusterNodes) -> Fit:
    verdict = NodeFilters(nodes.live_mask)
    filter_by_state(shape, nodes, verdict)
    filter_by_name(shape, nodes, verdict)
    filter_by_taints(shape, nodes, verdict)
    filter_by_labels(shape, nodes, verdict)
    filter_by_ports(shape, nodes, verdict)
    filter_by_volumes(shape, nodes, verdict)
    groups = filter_by_other_pods(shape, nodes, verdict)
    ceilings = [*filter_by_spread(shape, nodes, verdict), *anti_affinity_ceilings(shape, nodes)]
    per_node, binding = _replicas_by_resources(shape, nodes.resources, nodes.allocatable - nodes.requested)
    per_node = np.where(verdict.open, per_node, 0)
    if is_one_replica_per_node(shape, nodes):
        per_node = np.minimum(per_node, 1)
    _count_binding(shape, verdict, binding)
    fits = Fit(
        per_node=per_node,
        total=int(per_node.sum()),
        possible=int(per_node.sum()),
        largest=int(per_node.max(initial=0)),
        when_empty=_has_taker_when_empty(per_node, nodes) or fits_when_empty(shape, nodes),
        reasons=tuple(sorted(verdict.reasons.items(), key=lambda entry: (-entry[1], entry[0]))),
    )
    if not ceilings and groups is None:
        return fits
    bound = SpreadBound(per_node, [ceiling for _, ceiling in ceilings])
    return _fit_within_bound(
        fits, bound if groups is None else NearBound(bound, groups), [text for text, _ in ceilings]
    )


def _fit_within_bound(fits: Fit, bound: SpreadBound | NearBound, texts: Sequence[str]) -> Fit:
    total = bound.certain_replicas()
    named = [*dict.fromkeys(texts), *(["affinity to its own first replica"] if isinstance(bound, NearBound) else [])]
    beyond = tuple(named) if total < fits.total else ()
    return replace(fits, total=total, possible=bound.possible, beyond=beyond, bounds=(bound,))


def _has_taker_when_empty(per_node: Int64s, nodes: ClusterNodes) -> bool:
    """Returns whether the first node that takes a replica now would also take it if nothing ran there.

    That is so if no requested amount is negative: an empty node then has at least as much room.
    """
    rows = np.flatnonzero(per_node)[:1]
    return len(rows) > 0 and bool((nodes.requested[:, rows] >= 0).all())


def fits_when_empty(shape: Shape, nodes: ClusterNodes) -> bool:
    """Returns whether some node would take a replica if nothing ran there.

    Cordons, troubles and loans of nodes are ignored, because they end.
    """
    verdict = NodeFilters(nodes.live_mask)
    filter_by_name(shape, nodes, verdict)
    filter_by_labels(shape, nodes, verdict)
    filter_by_lasting_taints(shape, nodes, verdict)
    filter_by_volumes(shape, nodes, verdict)
    takes, _ = _replicas_by_resources(shape, nodes.resources, nodes.allocatable)
    return bool(np.any(takes[verdict.open] > 0))


def replicas_on_group_node(shape: Shape, group: NodeGroup) -> int:
    """Returns the replicas that one node of a node group would take.

    Returns 0 if that depends on the domain of the node, which is unknown before the node exists.
    """
    return 0 if depends_on_domain(shape) else max_replicas_on_group_node(shape, group)


def depends_on_domain(shape: Shape) -> bool:
    return bool(shape.near or shape.spread) or any(
        term.topology_key_or_hostname != HOSTNAME_LABEL for term in shape.apart
    )


def max_replicas_on_group_node(shape: Shape, group: NodeGroup) -> int:
    """Returns the most replicas that one new node of a node group could take, for the best domain."""
    labels = dict(group.labels)
    if shape.node_name or not matches_labels(selector_requirements(shape), labels):
        return 0
    if shape.node_terms and not any(
        not term.fields and matches_labels(term.labels, labels) for term in shape.node_terms
    ):
        return 0
    if find_untolerated_taint(group.taints, shape.tolerations) or not all(
        _is_volume_limit_met(limit, labels) for limit in shape.volume_limits
    ):
        return 0
    allocatable = dict(group.allocatable)
    takes = min(allocatable.get(name, 0) // amount for name, amount in shape.requests)
    return min(takes, 1) if shape.host_ports or any(term.own for term in shape.apart) else takes


def _is_volume_limit_met(limit: VolumeLimit, labels: Mapping[str, str]) -> bool:
    """Returns whether the labels of a node group's template surely meet a volume limit.

    A new node may get further labels, so only terms with the operators In and Exists count.
    """
    sure = (term for term in limit.terms if all(entry.operator in ("In", "Exists") for entry in term.labels))
    return any(matches_labels(term.labels, labels) for term in sure)


def filter_by_ports(shape: Shape, nodes: ClusterNodes, verdict: NodeFilters) -> None:
    if shape.host_ports:
        taken = [row for row, ports in nodes.ports.items() if _has_port_clash(shape.host_ports, ports)]
        verdict.exclude_nodes(_mask_of_rows(taken, nodes), "host port in use")


def _has_port_clash(wanted: Sequence[HostPort], taken: Sequence[HostPort]) -> bool:
    return any(
        one.port == other.port
        and one.protocol == other.protocol
        and (one.ip == other.ip or ANY_IP in (one.ip, other.ip))
        for one in wanted
        for other in taken
    )


def _mask_of_rows(rows: Sequence[int], nodes: ClusterNodes) -> Bools:
    mask = np.zeros(nodes.block.shape, np.bool_)
    mask[list(rows)] = True
    return mask


def _replicas_by_resources(shape: Shape, resources: Mapping[str, int], free: Int64s) -> tuple[Int64s, Int64s]:
    """Returns two arrays [rows]: the replicas by resources alone, and the index of the request that limits them."""
    binding = np.zeros(free.shape[1], np.int64)
    least = None
    for index, (name, amount) in enumerate(shape.requests):
        takes = free[resources[name]] // amount if name in resources else np.zeros(free.shape[1], np.int64)
        if least is not None:
            binding[takes < least] = index
        least = takes if least is None else np.minimum(least, takes)
    assert least is not None, "a shape asks for something"
    return np.maximum(least, 0), binding


def _count_binding(shape: Shape, verdict: NodeFilters, binding: Int64s) -> None:
    counts = np.bincount(binding[verdict.open], minlength=len(shape.requests))
    for (name, _), count in zip(shape.requests, counts.tolist(), strict=True):
        if count:
            verdict.reasons[name] = verdict.reasons.get(name, 0) + count
