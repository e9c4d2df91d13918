"""What a pod asks for that the scheduler could not place: read of the few that wait, not of all."""

from dataclasses import replace
from typing import Any

import msgspec

from snapshot.core.pod_bounds import asks_for_too_much, has_too_many_containers
from spillway.api import RequestError
from spillway.kubernetes import objects
from spillway.kubernetes.pod_shape import bare, shape_of
from spillway.kubernetes.term_bounds import asks_too_many_terms
from spillway.model import Shape


def waiting_shape(pod: objects.Pod) -> Shape | None:
    """None where it cannot be read, or says more than its readers compare with a cluster in a moment."""
    if has_too_many_containers(pod.spec):
        return None
    spec = _without_nulls(msgspec.json.decode(msgspec.json.encode(pod.spec)))
    template = {"metadata": {"labels": pod.metadata.labels}, "spec": spec}
    try:
        shape = bare(shape_of(template, pod.metadata.namespace, "pod"))
    except RequestError:
        return None
    too_much = asks_for_too_much(shape.requests) or asks_too_many_terms(shape)
    return None if too_much else replace(shape, template="")


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(entry) for key, entry in value.items() if entry is not None}
    return value
