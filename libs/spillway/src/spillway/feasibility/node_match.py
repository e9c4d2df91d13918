"""Decides which nodes a pod may run on by properties of the nodes: state, labels, names and taints.

Models the kube-scheduler's filters NodeUnschedulable, NodeName, NodeAffinity with nodeSelector, TaintToleration, and
for bound volumes VolumeBinding and VolumeZone.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from spillway.feasibility.nodes import ClusterNodes
from spillway.kubernetes.pod_shape import matches_labels
from spillway.lending_marks import LENDING
from spillway.model import (
    HOSTNAME_LABEL,
    NODE_OWNED,
    NodeTerm,
    Requirement,
    Shape,
    Taint,
    Toleration,
)

Bools = npt.NDArray[np.bool_]

NOT_READY_KEYS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
UNSCHEDULABLE = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
TRANSIENT_TAINTS = "node.kubernetes.io/"
"""The prefix of taints that the cluster itself adds and removes: cordoned, not ready, under pressure."""


class NodeFilters:
    """The nodes that are still open, and why the others are excluded. Of several reasons the first one is kept."""

    def __init__(self, live: Bools) -> None:
        self.open = live.copy()
        self.reasons: dict[str, int] = {}

    def exclude_nodes(self, mask: Bools, reason: str) -> None:
        count = int(np.count_nonzero(self.open & mask))
        if count:
            self.reasons[reason] = self.reasons.get(reason, 0) + count
            self.open &= ~mask


def filter_by_state(shape: Shape, nodes: ClusterNodes, verdict: NodeFilters) -> None:
    verdict.exclude_nodes(nodes.state != NODE_OWNED, "lent or recalled")
    verdict.exclude_nodes(nodes.unlent, "not lent by their owners' rows")
    if find_untolerated_taint((UNSCHEDULABLE,), shape.tolerations):
        verdict.exclude_nodes(nodes.unschedulable != 0, "cordoned")


def filter_by_name(shape: Shape, nodes: ClusterNodes, verdict: NodeFilters) -> None:
    if shape.node_name:
        verdict.exclude_nodes(~_nodes_named((shape.node_name,), nodes), f"node name {shape.node_name}")


def filter_by_labels(shape: Shape, nodes: ClusterNodes, verdict: NodeFilters) -> None:
    if shape.node_selector:
        matched = nodes_matching((NodeTerm(selector_requirements(shape), ()),), nodes)
        wanted = ", ".join(f"{key}={value}" for key, value in shape.node_selector)
        verdict.exclude_nodes(~matched, f"node selector {wanted}")
    if shape.node_terms:
        verdict.exclude_nodes(~nodes_matching(shape.node_terms, nodes), "node affinity")


def filter_by_taints(shape: Shape, nodes: ClusterNodes, verdict: NodeFilters) -> None:
    for index, taints in enumerate(nodes.taint_sets):
        taint = find_untolerated_taint(taints, shape.tolerations)
        if taint is not None:
            verdict.exclude_nodes(nodes.taint_set == index, f"taint {taint}")


def filter_by_volumes(shape: Shape, nodes: ClusterNodes, verdict: NodeFilters) -> None:
    """Excludes nodes by volume limits.

    These limits are not a part of node affinity, which also decides which nodes count for a topology spread.
    """
    for limit in shape.volume_limits:
        verdict.exclude_nodes(~nodes_matching(limit.terms, nodes), limit.reason)


def filter_by_lasting_taints(shape: Shape, nodes: ClusterNodes, verdict: NodeFilters) -> None:
    """Excludes nodes by lasting taints: not by the taint of lending, nor by taints that the cluster itself removes."""
    for index, taints in enumerate(nodes.taint_sets):
        lasting = [one for one in taints if one.key != LENDING and not one.key.startswith(TRANSIENT_TAINTS)]
        if find_untolerated_taint(lasting, shape.tolerations) is not None:
            verdict.open &= nodes.taint_set != index


def selector_requirements(shape: Shape) -> tuple[Requirement, ...]:
    return tuple(Requirement(key, "In", (value,)) for key, value in shape.node_selector)


def nodes_matching(terms: Sequence[NodeTerm], nodes: ClusterNodes) -> Bools:
    """Returns [rows]: True if at least one term matches the node. For speed, each label set is tested only once."""
    matched = np.zeros(nodes.block.shape, np.bool_)
    for term in terms:
        held = _nodes_meeting_requirements([entry for entry in term.labels if entry.key != HOSTNAME_LABEL], nodes)
        for entry in term.labels:
            if entry.key == HOSTNAME_LABEL:
                held &= _nodes_meeting_hostname(entry, nodes)
        for entry in term.fields:
            named = _nodes_named(entry.values, nodes)
            held &= named if entry.operator == "In" else ~named
        matched |= held
    return matched


def find_untolerated_taint(taints: Sequence[Taint], tolerations: Sequence[Toleration]) -> Taint | None:
    """Returns the first taint that keeps a pod away; PreferNoSchedule never does."""
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


def _nodes_meeting_requirements(requirements: Sequence[Requirement], nodes: ClusterNodes) -> Bools:
    """Returns [rows]: True if the node's labels meet all requirements.

    Each value of a label is tested once, because many label sets share it.
    """
    held = np.ones(len(nodes.label_sets) + 1, np.bool_)
    held[-1] = False
    for requirement in requirements:
        values = [dict(labels).get(requirement.key) for labels in nodes.label_sets]
        held_by = {value: _is_requirement_met(requirement, value) for value in set(values)}
        held[:-1] &= np.array([held_by[value] for value in values], np.bool_)
    matched: Bools = held[nodes.label_set]
    return matched


def _is_requirement_met(requirement: Requirement, value: str | None) -> bool:
    """Returns whether a label value meets a requirement. value: None if the label is missing."""
    return matches_labels((requirement,), {} if value is None else {requirement.key: value})


def _nodes_named(names: Sequence[str], nodes: ClusterNodes) -> Bools:
    mask = np.zeros(nodes.block.shape, np.bool_)
    mask[[row for row in map(nodes.row_of, names) if row is not None]] = True
    return mask


def _nodes_meeting_hostname(requirement: Requirement, nodes: ClusterNodes) -> Bools:
    """Returns [rows]: True if the node's hostname meets a requirement.

    The hostname is the node's name, unless its label set has another one.
    """
    explicit = nodes.explicit_hostnames()
    implied = ~np.isin(nodes.label_set, list(explicit))
    match requirement.operator:
        case "In":
            held = _nodes_named(requirement.values, nodes)
        case "NotIn":
            held = ~_nodes_named(requirement.values, nodes)
        case "Exists" | "DoesNotExist":
            held = np.full(implied.shape, requirement.operator == "Exists")
        case _:
            held = np.array([matches_labels((requirement,), {HOSTNAME_LABEL: name}) for name in nodes.names], np.bool_)
            held = np.pad(held, (0, len(implied) - len(held)))
    held &= implied
    for index, hostname in explicit.items():
        if matches_labels((requirement,), {HOSTNAME_LABEL: hostname} if hostname else {}):
            held |= nodes.label_set == index
    return held
