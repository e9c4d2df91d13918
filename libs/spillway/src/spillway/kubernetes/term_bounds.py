"""How much a pod may say of nodes and of other pods, so that it is compared with a cluster in a moment.

Kubernetes bounds only the size of an object: its scheduler looks at one pod at a time. Here each term is compared with
all nodes of a cluster in one step. The planner refuses templates that say more; of pods of a cluster nobody asks us, so
what such a one asks for is not known then.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from spillway.model import PodTerm, Requirement, Shape

TERMS_MAX: Final = 100
"""Entries of each list: tolerations, spread constraints, terms of node affinity and of each kind of pod affinity."""
LABELS_MAX: Final = 1_000
"""Labels and expressions, in all lists together and in nodeSelector."""
VALUES_MAX: Final = 10_000
"""Values in all expressions, and namespaces and label keys of terms. So many, because a template may name each node
that its pods may run on.
"""


def asks_too_many_terms(shape: Shape) -> bool:
    lists = (shape.tolerations, shape.spread, shape.node_terms, shape.apart, shape.near)
    if any(len(entries) > TERMS_MAX for entries in lists):
        return True
    terms = (*shape.apart, *shape.near)
    requirements = [*_of_nodes(shape), *(entry for spread in shape.spread for entry in spread.selector.requirements)]
    requirements += requirements_of(terms)
    if len(requirements) + len(shape.node_selector) > LABELS_MAX:
        return True
    return sum(len(entry.values) for entry in requirements) + _names(terms) > VALUES_MAX


def repels_too_much(terms: tuple[PodTerm, ...]) -> bool:
    """terms: of one pod."""
    if len(terms) > TERMS_MAX:
        return True
    requirements = list(requirements_of(terms))
    values = sum(len(entry.values) for entry in requirements) + _names(terms)
    return len(requirements) > LABELS_MAX or values > VALUES_MAX


def requirements_of(terms: Iterable[PodTerm]) -> Iterator[Requirement]:
    for term in terms:
        yield from term.selector.requirements
        if term.namespace_selector is not None:
            yield from term.namespace_selector.requirements


def _names(terms: Iterable[PodTerm]) -> int:
    return sum(len(term.namespaces) for term in terms)


def _of_nodes(shape: Shape) -> Iterator[Requirement]:
    for term in shape.node_terms:
        yield from term.labels
        yield from term.fields
