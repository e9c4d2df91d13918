"""Bounds for what a pod template says of nodes and of other pods: affinity, spread, tolerations.

The planner compares each term with each cluster in one step. Without bounds one request would hold up all others.
Kubernetes bounds only the size of an object: its scheduler looks at one pod at a time.
"""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, Final

from spillway.api import invalid
from spillway.kubernetes.pod_shape import convert
from spillway.kubernetes.scheduling_spec import Affinity, Expression, LabelSelector, SchedulingSpec

TERMS_MAX: Final = 100
"""Entries of each list: tolerations, spread constraints, terms of node affinity and of each kind of pod affinity."""
LABELS_MAX: Final = 1_000
"""Labels and expressions, in all lists together and in nodeSelector."""
VALUES_MAX: Final = 10_000
"""Values in all expressions. So many, because a template may name each node that its pods may run on."""
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def check_terms(spec: Mapping[str, Any], where: str) -> None:
    """spec: of a pod. Raises RequestError INVALID_ARGUMENT that names the field, its count and the bound."""
    scheduling = convert(spec, SchedulingSpec, where)
    for field, count in _lists(scheduling):
        if count > TERMS_MAX:
            raise invalid(f"{where}.{field}", f"{count} entries", f"at most {TERMS_MAX}")
    expressions = list(_expressions(scheduling))
    matched = sum(len(selector.match_labels) for selector in _selectors(scheduling))
    labels = len(expressions) + len(scheduling.node_selector) + matched
    values = sum(len(entry.values) for entry in expressions)
    for count, most, what in ((labels, LABELS_MAX, "labels and expressions"), (values, VALUES_MAX, "values")):
        if count > most:
            raise invalid(where, f"{count} {what} in node selector, affinity and spread", f"at most {most}")


def _lists(scheduling: SchedulingSpec) -> Iterator[tuple[str, int]]:
    affinity = scheduling.affinity
    yield "tolerations", len(scheduling.tolerations)
    yield "topologySpreadConstraints", len(scheduling.topology_spread_constraints)
    if affinity.node_affinity.required is not None:
        terms = affinity.node_affinity.required.node_selector_terms
        yield f"affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms", len(terms)
    yield f"affinity.podAffinity.{REQUIRED}", len(affinity.pod_affinity.required)
    yield f"affinity.podAntiAffinity.{REQUIRED}", len(affinity.pod_anti_affinity.required)


def _selectors(scheduling: SchedulingSpec) -> Iterator[LabelSelector]:
    pods = chain(scheduling.affinity.pod_affinity.required, scheduling.affinity.pod_anti_affinity.required)
    given = chain.from_iterable((term.label_selector, term.namespace_selector) for term in pods)
    spread = (constraint.label_selector for constraint in scheduling.topology_spread_constraints)
    return (selector for selector in chain(given, spread) if selector is not None)


def _expressions(scheduling: SchedulingSpec) -> Iterator[Expression]:
    for selector in _selectors(scheduling):
        yield from selector.match_expressions
    yield from _of_nodes(scheduling.affinity)


def _of_nodes(affinity: Affinity) -> Iterator[Expression]:
    required = affinity.node_affinity.required
    for term in required.node_selector_terms if required is not None else ():
        yield from chain(term.match_expressions, term.match_fields)
