"""Limits on the number of terms of one pod: its conditions on nodes, on other pods and on resources.

Kubernetes limits only the size of an object, since its scheduler looks at one pod at a time. Here each term is compared
with all nodes of a cluster in one step. The planner refuses a template beyond these limits. Pods that exist in a
cluster cannot be refused. Beyond the limits, their shape or anti-affinity counts as unknown.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from spillway.model import PodTerm, Requirement, Shape

TERMS_MAX: Final = 100
"""Entries of each list: tolerations, spread constraints, terms of node affinity and of each kind of pod affinity."""
LABELS_MAX: Final = 1_000
"""The most labels and expressions in all lists together and in nodeSelector."""
VALUES_MAX: Final = 10_000
"""The most values in all expressions, namespaces and label keys of terms included. It is high because a template may
name each node on which its pods may run.
"""
RESOURCES_MAX: Final = 64
"""The most names of resources that a pod asks for. Each name is a column in an array of all shapes."""


def asks_too_many_terms(shape: Shape) -> bool:
    """Returns whether a shape is beyond TERMS_MAX, LABELS_MAX or VALUES_MAX."""
    lists = (shape.tolerations, shape.spread, shape.node_terms, shape.apart, shape.near)
    if any(len(entries) > TERMS_MAX for entries in lists):
        return True
    of_spread = (entry for spread in shape.spread for entry in spread.selector.requirements)
    return _is_beyond_bounds(
        (*_node_requirements(shape), *of_spread), (*shape.apart, *shape.near), len(shape.node_selector)
    )


def repels_too_much(terms: tuple[PodTerm, ...]) -> bool:
    """Returns whether the required anti-affinity of one pod is beyond the limits."""
    return len(terms) > TERMS_MAX or _is_beyond_bounds((), terms)


def requirements_of(terms: Iterable[PodTerm]) -> Iterator[Requirement]:
    """Yields the requirements of the terms' label selectors and namespace selectors."""
    for term in terms:
        yield from term.selector.requirements
        if term.namespace_selector is not None:
            yield from term.namespace_selector.requirements


def _is_beyond_bounds(requirements: Iterable[Requirement], terms: tuple[PodTerm, ...], labels: int = 0) -> bool:
    every = [*requirements, *requirements_of(terms)]
    values = sum(len(entry.values) for entry in every) + sum(len(term.namespaces) for term in terms)
    return len(every) + labels > LABELS_MAX or values > VALUES_MAX


def _node_requirements(shape: Shape) -> Iterator[Requirement]:
    for term in shape.node_terms:
        yield from term.labels
        yield from term.fields
