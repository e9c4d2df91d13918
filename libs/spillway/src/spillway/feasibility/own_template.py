"""Handles selectors that match only pods of the replicas' own template (matchLabelKeys: pod-template-hash).

Only the cluster's controller knows the hash of a template. So every possible hash is tried: each one that an otherwise
matching pod has, and one that no pod has yet.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from spillway.feasibility.nodes import ClusterNodes
from spillway.feasibility.pod_affinity import namespaces_of
from spillway.kubernetes.pod_shape import is_of_own_template, matches_labels
from spillway.model import LabelSet, PodSelector, PodTerm, Requirement, Shape, Spread

T = TypeVar("T", Spread, PodTerm)


def candidate_shapes(shape: Shape, nodes: ClusterNodes) -> list[Shape]:
    """Returns the shape once for each possible hash. In the first one, no pod of its template runs yet."""
    meant: list[tuple[PodSelector, Iterable[str] | None]] = [
        (entry.selector, (shape.namespace,)) for entry in shape.spread
    ]
    meant += [(term.selector, namespaces_of(term, shape.namespace, nodes)) for term in (*shape.apart, *shape.near)]
    found: dict[tuple[str, str], None] = {}
    for selector, namespaces in meant:
        keys = {entry.key for entry in selector.requirements if is_of_own_template(entry)}
        others = [entry for entry in selector.requirements if not is_of_own_template(entry)]
        for labels in _labels_matching(others, namespaces, nodes) if keys else ():
            found |= dict.fromkeys(label for label in labels if label[0] in keys)
    return [shape, *(_with_hash(shape, label) for label in sorted(found))]


def _labels_matching(
    requirements: Sequence[Requirement], namespaces: Iterable[str] | None, nodes: ClusterNodes
) -> list[LabelSet]:
    tables = nodes.pods.tables_matching(namespaces, lambda table: matches_labels(requirements, dict(table.labels)))
    return [nodes.pods.tables[index].labels for index in tables]


def _with_hash(shape: Shape, label: tuple[str, str]) -> Shape:
    labels = tuple(sorted((dict(shape.traits.labels) | dict((label,))).items()))
    return replace(
        shape,
        spread=tuple(_entry_with_hash(entry, label) for entry in shape.spread),
        apart=tuple(_entry_with_hash(entry, label) for entry in shape.apart),
        near=tuple(_entry_with_hash(entry, label) for entry in shape.near),
        traits=replace(shape.traits, labels=labels),
    )


def _entry_with_hash(entry: T, label: tuple[str, str]) -> T:
    key, value = label
    requirements = (
        replace(one, values=(value,)) if one.key == key and is_of_own_template(one) else one
        for one in entry.selector.requirements
    )
    return replace(entry, selector=PodSelector(tuple(requirements)))
