"""How many replicas of a shape each node of a cluster takes, and what binds it.

Models the kube-scheduler's default filters (v1.36): NodeResourcesFit, NodeAffinity and nodeSelector, TaintToleration,
NodeUnschedulable, NodePorts, and over hostnames InterPodAffinity (anti) and PodTopologySpread.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from planner.core.nodes import ClusterNodes
from planner.core.shape import matches_labels
from spillway.model import (
    HOSTNAME_LABEL,
    NODE_OWNED,
    HostPort,
    Int64s,
    NodeGroup,
    NodeTerm,
    PodSelector,
    Requirement,
    Shape,
    Taint,
    Toleration,
)

Bools = npt.NDArray[np.bool_]

UNSCHEDULABLE = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
ANY_IP = "0.0.0.0"
TRANSIENT_TAINTS = "node.kubernetes.io/"
"""Cordoned, not ready, under pressure: the cluster itself puts these on and takes them off."""
REASONS_SHOWN = 3


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """per_node: int64 [rows], replicas that each node takes; total: their sum, or less where a spread bounds it.

    largest: the most on one node. when_empty: whether some node would take one if nothing ran there.
    reasons: (what binds, nodes that it binds), most nodes first.
    """

    per_node: Int64s
    total: int
    largest: int
    when_empty: bool
    reasons: tuple[tuple[str, int], ...]

    def limited_by(self) -> str:
        """What binds, for people: "cpu (12 nodes), taint gpu=only:NoSchedule (4 nodes)"."""
        if not self.reasons:
            return "no nodes"
        shown = [
            f"{reason} ({nodes} node{'s' if nodes != 1 else ''})" for reason, nodes in self.reasons[:REASONS_SHOWN]
        ]
        rest = len(self.reasons) - REASONS_SHOWN
        return ", ".join(shown) + (f" and {rest} more" if rest > 0 else "")


class Verdict:
    """Nodes in question, and why others are out: each node is out for the first reason that met it."""

    def __init__(self, live: Bools) -> None:
        self.open = live.copy()
        self.reasons: dict[str, int] = {}

    def out(self, mask: Bools, reason: str) -> None:
        count = int(np.count_nonzero(self.open & mask))
        if count:
            self.reasons[reason] = self.reasons.get(reason, 0) + count
            self.open &= ~mask


def fit(shape: Shape, nodes: ClusterNodes) -> Fit:
    """The replicas of a shape that the nodes take as they are."""
    live = nodes.live
    verdict = Verdict(live)
    filter_by_state(shape, nodes, verdict)
    filter_by_labels(shape, nodes, verdict)
    filter_by_taints(shape, nodes, verdict)
    filter_by_pods(shape, nodes, verdict)
    per_node, binding = _by_resource(shape, nodes.resources, nodes.allocatable - nodes.requested)
    per_node = np.where(verdict.open, per_node, 0)
    if shape.host_ports or any(term.limits_itself for term in shape.apart):
        per_node = np.minimum(per_node, 1)
    _count_binding(shape, verdict, binding)
    total = int(per_node.sum())
    for spread in shape.spread:
        total = min(total, _spread_total(spread.selector, spread.max_skew, shape, nodes, per_node))
    reasons = tuple(sorted(verdict.reasons.items(), key=lambda entry: (-entry[1], entry[0])))
    return Fit(per_node, total, int(per_node.max(initial=0)), _fits_when_empty(shape, nodes), reasons)


def _fits_when_empty(shape: Shape, nodes: ClusterNodes) -> bool:
    """Whether a node would take one if nothing ran there and it were well: cordons and troubles pass."""
    verdict = Verdict(nodes.live)
    filter_by_labels(shape, nodes, verdict)
    for index, taints in enumerate(nodes.taint_sets):
        lasting = [taint for taint in taints if not taint.key.startswith(TRANSIENT_TAINTS)]
        if untolerated(lasting, shape.tolerations) is not None:
            verdict.open &= nodes.taint_set != index
    takes, _ = _by_resource(shape, nodes.resources, nodes.allocatable)
    return bool(np.any(takes[verdict.open] > 0))


def fit_of_group(shape: Shape, group: NodeGroup) -> int:
    """Replicas that one node of a node group would take."""
    labels = dict(group.labels)
    if not matches_labels(_selector_requirements(shape), labels):
        return 0
    if shape.node_terms and not any(
        not term.fields and matches_labels(term.labels, labels) for term in shape.node_terms
    ):
        return 0
    if untolerated(group.taints, shape.tolerations):
        return 0
    allocatable = dict(group.allocatable)
    takes = min(allocatable.get(name, 0) // amount for name, amount in shape.requests)
    return min(takes, 1) if shape.host_ports or any(term.limits_itself for term in shape.apart) else takes


def untolerated(taints: Sequence[Taint], tolerations: Sequence[Toleration]) -> Taint | None:
    """The first taint that keeps a pod away; PreferNoSchedule never does."""
    for taint in taints:
        if taint.effect in ("NoSchedule", "NoExecute") and not any(_tolerates(entry, taint) for entry in tolerations):
            return taint
    return None


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    return toleration.operator == "Exists" or (bool(toleration.key) and toleration.value == taint.value)


def filter_by_state(shape: Shape, nodes: ClusterNodes, verdict: Verdict) -> None:
    verdict.out(nodes.state != NODE_OWNED, "lent or recalled")
    if untolerated((UNSCHEDULABLE,), shape.tolerations):
        verdict.out(nodes.unschedulable != 0, "cordoned")


def _selector_requirements(shape: Shape) -> tuple[Requirement, ...]:
    return tuple(Requirement(key, "In", (value,)) for key, value in shape.node_selector)


def filter_by_labels(shape: Shape, nodes: ClusterNodes, verdict: Verdict) -> None:
    if shape.node_selector:
        matched = _nodes_matching((NodeTerm(_selector_requirements(shape), ()),), nodes)
        wanted = ", ".join(f"{key}={value}" for key, value in shape.node_selector)
        verdict.out(~matched, f"node selector {wanted}")
    if shape.node_terms:
        verdict.out(~_nodes_matching(shape.node_terms, nodes), "node affinity")


def _nodes_matching(terms: tuple[NodeTerm, ...], nodes: ClusterNodes) -> Bools:
    """[rows]: whether any term holds. Decided once per label set, except where a term asks for one node by name."""
    by_node = any(term.fields or any(entry.key == HOSTNAME_LABEL for entry in term.labels) for term in terms)
    if by_node:
        matched = np.zeros(nodes.block.shape, np.bool_)
        for row in np.flatnonzero(nodes.live).tolist():
            matched[row] = any(_term_holds(term, _labels(nodes, row), nodes.names[row]) for term in terms)
        return matched
    by_set = [any(matches_labels(term.labels, dict(labels)) for term in terms) for labels in nodes.label_sets]
    return np.array([*by_set, False], np.bool_)[nodes.label_set]


def _labels(nodes: ClusterNodes, row: int) -> Mapping[str, str]:
    """The labels of one node; a hostname label that is implied is put back, one that is marked absent is left out."""
    labels = dict(nodes.label_sets[int(nodes.label_set[row])])
    if labels.setdefault(HOSTNAME_LABEL, nodes.names[row]) == "":
        del labels[HOSTNAME_LABEL]
    return labels


def _term_holds(term: NodeTerm, labels: Mapping[str, str], name: str) -> bool:
    return matches_labels(term.labels, labels) and matches_labels(term.fields, {"metadata.name": name})


def filter_by_taints(shape: Shape, nodes: ClusterNodes, verdict: Verdict) -> None:
    for index, taints in enumerate(nodes.taint_sets):
        taint = untolerated(taints, shape.tolerations)
        if taint is not None:
            verdict.out(nodes.taint_set == index, f"taint {taint}")


def filter_by_pods(shape: Shape, nodes: ClusterNodes, verdict: Verdict) -> None:
    if shape.host_ports:
        taken = [row for row, ports in nodes.ports.items() if _clash(shape.host_ports, ports)]
        verdict.out(_rows(taken, nodes), "host port in use")
    for term in shape.apart:
        verdict.out(_pods_matching(term.selector, shape, nodes) > 0, "anti-affinity")


def _clash(wanted: Sequence[HostPort], taken: Sequence[HostPort]) -> bool:
    return any(
        one.port == other.port
        and one.protocol == other.protocol
        and (one.ip == other.ip or ANY_IP in (one.ip, other.ip))
        for one in wanted
        for other in taken
    )


def _rows(rows: Sequence[int], nodes: ClusterNodes) -> Bools:
    mask = np.zeros(nodes.block.shape, np.bool_)
    mask[list(rows)] = True
    return mask


def _pods_matching(selector: PodSelector, shape: Shape, nodes: ClusterNodes) -> Int64s:
    """[rows]: bound pods of the shape's namespace that a selector matches."""
    counts = np.zeros(nodes.block.shape, np.int64)
    for row, pods in nodes.pods.items():
        for (namespace, labels), count in pods:
            if namespace == shape.namespace and matches_labels(selector.requirements, dict(labels)):
                counts[row] += count
    return counts


def _by_resource(shape: Shape, resources: Mapping[str, int], free: Int64s) -> tuple[Int64s, Int64s]:
    """[rows] replicas by resources alone, and [rows] which of the shape's requests binds."""
    none = np.zeros(free.shape[1], np.int64)
    quotients = np.stack(
        [free[resources[name]] // amount if name in resources else none for name, amount in shape.requests]
    )
    return np.maximum(quotients.min(axis=0), 0), quotients.argmin(axis=0)


def _count_binding(shape: Shape, verdict: Verdict, binding: Int64s) -> None:
    counts = np.bincount(binding[verdict.open], minlength=len(shape.requests))
    for (name, _), count in zip(shape.requests, counts.tolist(), strict=True):
        if count:
            verdict.reasons[name] = verdict.reasons.get(name, 0) + count


def _spread_total(selector: PodSelector, max_skew: int, shape: Shape, nodes: ClusterNodes, per_node: Int64s) -> int:
    """New replicas under a hostname spread: no node ends more than max_skew above the emptiest node that counts.

    A node that counts but takes none holds all others down; which nodes count follows nodeAffinityPolicy and
    nodeTaintsPolicy. The emptiest node can rise to what it has and takes, and the others to max_skew above that.
    """
    counts = Verdict(nodes.live)
    spread = next(entry for entry in shape.spread if entry.selector == selector and entry.max_skew == max_skew)
    if spread.honor_affinity:
        filter_by_labels(shape, nodes, counts)
    if spread.honor_taints:
        filter_by_taints(shape, nodes, counts)
    if not counts.open.any():
        return 0
    present = _pods_matching(selector, shape, nodes)
    ceiling = int((present + per_node)[counts.open].min()) + max_skew
    return int(np.clip(ceiling - present, 0, per_node)[counts.open].sum())
