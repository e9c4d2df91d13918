"""Compares the reasons why a node takes no more replicas: those of `explain`, and the words of the scheduler's plugins.

The cluster has the oracle's first placement, and one more replica has found no node. For every node, the first filter
that bars it by `explain` must be the plugin that the scheduler names. Both reasons must mean the same.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from planner.core.explaining.witness import explain_node
from spillway.api import NodeFilter
from spillway.feasibility.own_template import candidate_shapes
from spillway.kubernetes.objects import Manifest
from spillway.kubernetes.pod_shape import shape_of

from .cases import Case
from .planner import CLUSTER, cluster_view, shape_in_cluster

Refused = tuple[str, str, tuple[str, ...]]
"""(node, plugin that refused one more replica, its sorted words). Plugins name lacking resources in any order."""

SAID_OF_THE_POD = "the scheduler refuses the pod before it looks at any node"
HASH_UNKNOWN = "the planner does not know which hash the template gets"
ALIKE = "alike"

OURS_BY_WORDS: tuple[tuple[str, str], ...] = (
    (r"node\(s\) were unschedulable", r"cordoned"),
    (r"node\(s\) didn't match the requested node name", r"node name "),
    (r"node\(s\) had untolerated taint\(s\)", r"taint "),
    (r"node\(s\) didn't match Pod's node affinity/selector", r"node (selector|affinity)"),
    (r"not among the nodes that are named|pod affinity terms conflict", r"node (selector|affinity)"),
    (r"node\(s\) didn't have free ports for the requested pod ports", r"host port in use"),
    (r"node\(s\) didn't match PersistentVolume's node affinity", r"volume of claim "),
    (r"node\(s\) had no available volume zone", r"volume of claim "),
    (r"persistentvolumeclaim .* bound to non-existent persistentvolume", r"volume claim .* has lost its volume"),
    (r"persistentvolumeclaim .* is being deleted", r"volume claim .*"),
    (r".* \(missing required label\)", r"no label .*, over which it spreads"),
    (r"node\(s\) didn't match pod topology spread constraints$", r"spread over .* there, now at most "),
    (r"node\(s\) didn't match pod affinity rules", r"affinity"),
    (r"node\(s\) didn't match pod anti-affinity rules", r"anti-affinity(?! of pods that run)"),
    (r"node\(s\) didn't satisfy existing pods anti-affinity rules", r"anti-affinity of pods that run"),
)
"""(the scheduler's words, the beginning of explain's reason with the same meaning), as regular expressions."""
OF_THE_POD = r"persistentvolumeclaim |not among the nodes that are named|pod affinity terms conflict"


@dataclass(frozen=True, slots=True)
class Compared:
    """The comparison for one node. kind: ALIKE, a known deviation, or the texts of both sides."""

    node: str
    plugin: str
    kind: str

    @property
    def is_deviation(self) -> bool:
        return self.kind not in (ALIKE, SAID_OF_THE_POD, HASH_UNKNOWN)


def compare_reasons(
    case: Case, nodes: Mapping[str, int], refused: tuple[Refused, ...], pod: Manifest
) -> Iterator[Compared]:
    """Yields the comparison for each refused node.

    nodes: the placed replicas of each node. pod: one of these replicas, as the API server stored it.
    """
    view = cluster_view({**case.world, "pods": [*case.world["pods"], *_placed_pods(nodes, pod)]})
    shape, _ = shape_in_cluster(shape_of(case.template, case.namespace, "template"), view)
    is_hash_unknown = len(candidate_shapes(shape, view.nodes)) > 1
    for node, plugin, words in refused:
        filters = explain_node(shape, view.nodes, CLUSTER, node).filters
        yield Compared(node, plugin, _kind_of_comparison(filters, plugin, words, is_hash_unknown))


def _kind_of_comparison(
    filters: tuple[NodeFilter, ...], plugin: str, words: tuple[str, ...], is_hash_unknown: bool
) -> str:
    barring = [entry for entry in filters if not entry.passes]
    first = barring[0] if barring else NodeFilter("no filter", True, "")
    if plugin in first.filter.split(", ") and _has_same_meaning(first.reason, plugin, words):
        return ALIKE
    if is_hash_unknown and plugin in ("PodTopologySpread", "InterPodAffinity"):
        return HASH_UNKNOWN
    named = [entry for entry in barring if plugin in entry.filter.split(", ")]
    if named and any(re.match(OF_THE_POD, text) for text in words):
        return SAID_OF_THE_POD
    said = "; ".join(f"{entry.filter}: {entry.reason}" for entry in barring)
    return f"scheduler: {plugin}: {', '.join(words)}; explain: {said or 'no filter bars it'}"


def _has_same_meaning(reason: str, plugin: str, words: tuple[str, ...]) -> bool:
    if plugin == "NodeResourcesFit":
        theirs = {"pods" if text == "Too many pods" else text.removeprefix("Insufficient ") for text in words}
        return theirs == {text.partition(" short by ")[0] for text in reason.split(", ")}
    ours = [mine for theirs, mine in OURS_BY_WORDS for text in words if re.match(theirs, text)]
    return len(ours) == len(words) and all(re.match(mine, reason) for mine in ours)


def _placed_pods(nodes: Mapping[str, int], pod: Manifest) -> Iterator[dict[str, Any]]:
    for node, count in nodes.items():
        for number in range(count):
            name = f"placed-{node}-{number}"
            metadata = {**pod["metadata"], "name": name, "uid": name}
            yield {"metadata": metadata, "spec": {**pod["spec"], "nodeName": node}, "status": {"phase": "Running"}}
