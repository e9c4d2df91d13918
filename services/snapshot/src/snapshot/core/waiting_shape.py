"""Reads the shape of a pod that the scheduler could not place. Only the few waiting pods are read, not all pods."""

from dataclasses import replace
from typing import Any

import msgspec
from msgspec import Raw, Struct, field

from snapshot.core.pod_bounds import asks_for_too_much, has_too_many_containers
from spillway.amounts import clamp_amount
from spillway.api import RequestError
from spillway.kubernetes import objects
from spillway.kubernetes.pod_shape import shape_of, shape_without_notes
from spillway.kubernetes.term_bounds import TERMS_MAX, asks_too_many_terms
from spillway.model import Shape

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
Entries = tuple[Raw, ...] | None
"""List entries that are not decoded yet. They are counted first, because decoding 10,000 takes half a second."""


class _NodeSelector(Struct, rename="camel"):
    node_selector_terms: Entries = None


class _NodeAffinity(Struct):
    required: _NodeSelector | None = field(default=None, name=REQUIRED)


class _PodAffinity(Struct):
    required: Entries = field(default=None, name=REQUIRED)


class _Affinity(Struct, rename="camel"):
    node_affinity: _NodeAffinity | None = None
    pod_affinity: _PodAffinity | None = None
    pod_anti_affinity: _PodAffinity | None = None


class _Lists(Struct, rename="camel"):
    affinity: _Affinity | None = None
    tolerations: Entries = None
    topology_spread_constraints: Entries = None


def waiting_shape(pod: objects.Pod) -> Shape | None:
    """Returns the shape of a waiting pod; None when it cannot be read or is beyond the bounds."""
    if has_too_many_containers(pod.spec):
        return None
    said = msgspec.json.encode(pod.spec)
    if _has_long_lists(said):
        return None
    spec = _without_nulls(msgspec.json.decode(said))
    template = {"metadata": {"labels": pod.metadata.labels}, "spec": spec}
    try:
        shape = shape_without_notes(shape_of(template, pod.metadata.namespace, "pod"))
    except RequestError:
        return None
    too_much = asks_for_too_much(shape.requests) or asks_too_many_terms(shape)
    requests = tuple((name, clamp_amount(name, amount)) for name, amount in shape.requests)
    return None if too_much else replace(shape, requests=requests, template="")


def _has_long_lists(said: bytes) -> bool:
    try:
        spec = msgspec.json.decode(said, type=_Lists)
    except msgspec.ValidationError:
        return True
    affinity = spec.affinity or _Affinity()
    nodes = (affinity.node_affinity or _NodeAffinity()).required or _NodeSelector()
    kinds = (affinity.pod_affinity or _PodAffinity(), affinity.pod_anti_affinity or _PodAffinity())
    lists = (spec.tolerations, spec.topology_spread_constraints, nodes.node_selector_terms)
    return any(len(entries or ()) > TERMS_MAX for entries in (*lists, *(kind.required for kind in kinds)))


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(entry) for key, entry in value.items() if entry is not None}
    return value
