"""The required anti-affinity of running pods: its few fields that we read, and the terms made of them.

Fields that do not pass the API server's checks are ignored: no API server stores such an object.
"""

from collections.abc import Iterable
from typing import Final

from msgspec import Raw, Struct, field

from spillway.model import PodSelector, PodTerm, Requirement

UNREAD: Final = Raw(b"null")
"""The default of fields that are kept as raw JSON. They are parsed only for pods that wait, which are few."""

LABELS_UNKNOWN: Final = (("spillway.io/labels-unknown", ""),)
"""Replaces the labels of a pod that has more labels or terms than a record holds. This label is never read from a pod
itself."""


class SelectorExpression(Struct, frozen=True, gc=False):
    key: str
    operator: str
    values: tuple[str, ...] = ()


class PodTermSelector(Struct, frozen=True, gc=False, rename="camel"):
    match_labels: dict[str, str] = {}
    match_expressions: tuple[SelectorExpression, ...] = ()


class RequiredPodTerm(Struct, frozen=True, gc=False, rename="camel"):
    """A required term. matchLabelKeys are in the selector already: the API server puts them there."""

    topology_key: str
    label_selector: PodTermSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: PodTermSelector | None = None


class AntiAffinity(Struct, frozen=True, gc=False):
    required: tuple[RequiredPodTerm, ...] = field(default=(), name="requiredDuringSchedulingIgnoredDuringExecution")


class RequiredPodAffinity(Struct, frozen=True, gc=False, rename="camel"):
    pod_anti_affinity: AntiAffinity | None = None


class ObservedAffinity(RequiredPodAffinity, frozen=True, gc=False, rename="camel"):
    """An affinity whose fields are needed for few pods only, and are kept undecoded."""

    node_affinity: Raw = UNREAD
    pod_affinity: Raw = UNREAD


def count_of_terms(affinity: RequiredPodAffinity | None) -> int:
    if affinity is None or affinity.pod_anti_affinity is None:
        return 0
    return len(affinity.pod_anti_affinity.required)


def anti_affinity_terms(affinity: RequiredPodAffinity | None) -> tuple[PodTerm, ...]:
    """Returns the terms that keep other pods away from a pod. A term without a selector matches no pod."""
    if affinity is None or affinity.pod_anti_affinity is None:
        return ()
    return tuple(
        PodTerm(
            selector=_selector_from_term(term.label_selector),
            topology_key=term.topology_key,
            namespaces=tuple(sorted(term.namespaces)),
            namespace_selector=None
            if term.namespace_selector is None
            else _selector_from_term(term.namespace_selector),
        )
        for term in affinity.pod_anti_affinity.required
        if term.label_selector is not None
    )


def _selector_from_term(selector: PodTermSelector) -> PodSelector:
    return PodSelector(
        tuple(sorted(_requirements_from_term(selector), key=lambda one: (one.key, one.operator, one.values)))
    )


def _requirements_from_term(selector: PodTermSelector) -> Iterable[Requirement]:
    for key, value in selector.match_labels.items():
        yield Requirement(key, "In", (value,))
    for entry in selector.match_expressions:
        yield Requirement(entry.key, entry.operator, entry.values)
