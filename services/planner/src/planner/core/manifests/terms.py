"""Limits the terms of a pod template about nodes and other pods: affinity, spread, tolerations.

The limits hold for requests only; records in a log are read without them. The planner compares each term with each
cluster in one step, so without limits one request could delay all others. Kubernetes limits only the size of an object,
as its scheduler looks at one pod at a time. The length of labels is Kubernetes' own limit: an API server refuses longer
ones.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from spillway.api import invalid_argument_error
from spillway.kubernetes.label_text import KEY_LENGTH_MAX, LABEL_LENGTH_MAX
from spillway.kubernetes.pod_shape import convert_manifest_part
from spillway.kubernetes.scheduling_spec import (
    Affinity,
    Expression,
    LabelSelector,
    PodAffinity,
    SchedulingSpec,
    SpreadConstraint,
)
from spillway.kubernetes.term_bounds import LABELS_MAX, TERMS_MAX, VALUES_MAX

NODE_NAME_LENGTH_MAX: Final = 253
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


Text = tuple[str, str, int]
"""A field, its text, and the most characters that the text may have."""


def check_terms(spec: Mapping[str, Any], where: str) -> None:
    """Raises RequestError (INVALID_ARGUMENT) for the first limit that a pod spec exceeds. It names field and limit."""
    scheduling = convert_manifest_part(spec, SchedulingSpec, where)
    for field, count in _list_lengths(scheduling):
        if count > TERMS_MAX:
            raise invalid_argument_error(f"{where}.{field}", f"{count} entries", f"at most {TERMS_MAX}")
    expressions = [entry for _, entry in _selector_expressions(scheduling)]
    matched = sum(len(selector.match_labels) for _, selector in _pod_affinity_selectors(scheduling))
    labels = len(expressions) + len(scheduling.node_selector) + matched
    values = sum(len(entry.values) for entry in expressions) + sum(1 for _ in _term_texts(scheduling))
    for count, most, what in ((labels, LABELS_MAX, "labels and expressions"), (values, VALUES_MAX, "values")):
        if count > most:
            raise invalid_argument_error(
                where, f"{count} {what} in node selector, affinity and spread", f"at most {most}"
            )
    for field, text, most in _bounded_texts(scheduling):
        check_length(text, f"{where}.{field}", most)


def check_length(text: str, where: str, most: int) -> None:
    if len(text) > most:
        raise invalid_argument_error(where, text, f"at most {most} characters, not {len(text)}")


def label_texts(labels: Mapping[str, str], field: str) -> Iterator[Text]:
    for key, value in labels.items():
        yield field, key, KEY_LENGTH_MAX
        yield f"{field}.{key}", value, LABEL_LENGTH_MAX


def _list_lengths(scheduling: SchedulingSpec) -> Iterator[tuple[str, int]]:
    affinity = scheduling.affinity
    yield "tolerations", len(scheduling.tolerations)
    yield "topologySpreadConstraints", len(scheduling.topology_spread_constraints)
    if affinity.node_affinity.required is not None:
        terms = affinity.node_affinity.required.node_selector_terms
        yield f"affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms", len(terms)
    for field, kind in _pod_affinities(affinity):
        yield field, len(kind.required)


def _bounded_texts(scheduling: SchedulingSpec) -> Iterator[Text]:
    yield from label_texts(scheduling.node_selector, "nodeSelector")
    for index, toleration in enumerate(scheduling.tolerations):
        yield f"tolerations[{index}].key", toleration.key, KEY_LENGTH_MAX
        yield f"tolerations[{index}].value", toleration.value, LABEL_LENGTH_MAX
    for field, selector in _pod_affinity_selectors(scheduling):
        yield from label_texts(selector.match_labels, f"{field}.matchLabels")
    for field, entry in _selector_expressions(scheduling):
        most = NODE_NAME_LENGTH_MAX if field.endswith(".matchFields") else LABEL_LENGTH_MAX
        yield f"{field}.key", entry.key, KEY_LENGTH_MAX
        yield from ((f"{field}.values", value, most) for value in entry.values)
    yield from _term_texts(scheduling)


def _pod_affinities(affinity: Affinity) -> tuple[tuple[str, PodAffinity], ...]:
    return (
        (f"affinity.podAffinity.{REQUIRED}", affinity.pod_affinity),
        (f"affinity.podAntiAffinity.{REQUIRED}", affinity.pod_anti_affinity),
    )


def _spread_constraints(scheduling: SchedulingSpec) -> Iterator[tuple[str, SpreadConstraint]]:
    for index, constraint in enumerate(scheduling.topology_spread_constraints):
        yield f"topologySpreadConstraints[{index}]", constraint


def _term_texts(scheduling: SchedulingSpec) -> Iterator[Text]:
    """Yields the topology keys and the namespaces of terms; the selectors are checked elsewhere."""
    for field, kind in _pod_affinities(scheduling.affinity):
        for index, term in enumerate(kind.required):
            at = f"{field}[{index}]"
            yield f"{at}.topologyKey", term.topology_key, KEY_LENGTH_MAX
            yield from ((f"{at}.namespaces", name, LABEL_LENGTH_MAX) for name in term.namespaces)
            yield from ((f"{at}.matchLabelKeys", key, KEY_LENGTH_MAX) for key in term.match_label_keys)
            yield from ((f"{at}.mismatchLabelKeys", key, KEY_LENGTH_MAX) for key in term.mismatch_label_keys)
    for at, constraint in _spread_constraints(scheduling):
        yield f"{at}.topologyKey", constraint.topology_key, KEY_LENGTH_MAX
        yield from ((f"{at}.matchLabelKeys", key, KEY_LENGTH_MAX) for key in constraint.match_label_keys)


def _pod_affinity_selectors(scheduling: SchedulingSpec) -> Iterator[tuple[str, LabelSelector]]:
    for field, kind in _pod_affinities(scheduling.affinity):
        for index, term in enumerate(kind.required):
            if term.label_selector is not None:
                yield f"{field}[{index}].labelSelector", term.label_selector
            if term.namespace_selector is not None:
                yield f"{field}[{index}].namespaceSelector", term.namespace_selector
    for at, constraint in _spread_constraints(scheduling):
        if constraint.label_selector is not None:
            yield f"{at}.labelSelector", constraint.label_selector


def _selector_expressions(scheduling: SchedulingSpec) -> Iterator[tuple[str, Expression]]:
    for field, selector in _pod_affinity_selectors(scheduling):
        yield from ((f"{field}.matchExpressions", entry) for entry in selector.match_expressions)
    required = scheduling.affinity.node_affinity.required
    for index, term in enumerate(required.node_selector_terms if required is not None else ()):
        at = f"affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[{index}]"
        yield from ((f"{at}.matchExpressions", entry) for entry in term.match_expressions)
        yield from ((f"{at}.matchFields", entry) for entry in term.match_fields)
