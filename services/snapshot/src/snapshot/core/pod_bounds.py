"""Checks bounds for the pods that snapshot reads. No real pod comes near these bounds."""

from collections.abc import Sized

from spillway.kubernetes import objects
from spillway.kubernetes.term_bounds import RESOURCES_MAX

CONTAINERS_MAX = 1_000
"""The most containers and init containers of one pod, together."""


def has_too_many_containers(spec: objects.PodSpec) -> bool:
    """Returns whether a pod has more containers than are read. The requests of such a pod count as unknown."""
    return len(spec.containers) + len(spec.init_containers) > CONTAINERS_MAX


def asks_for_too_much(amounts: Sized) -> bool:
    """Returns whether a waiting pod asks for too many resources. amounts: by name of resource."""
    return len(amounts) > RESOURCES_MAX
