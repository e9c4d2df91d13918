"""How much a pod may hold so that it is read: more than any real one has, and no more than is read in a moment."""

from collections.abc import Sized

from spillway.kubernetes import objects

CONTAINERS_MAX = 1_000
"""Of all kinds together."""
RESOURCES_MAX = 64
"""Names of resources that a pod which waits asks for. As many may a template name (the planner's bounds)."""


def has_too_many_containers(spec: objects.PodSpec) -> bool:
    """Then nothing is read of what they ask for."""
    return len(spec.containers) + len(spec.init_containers) > CONTAINERS_MAX


def asks_for_too_much(amounts: Sized) -> bool:
    """amounts: by name of resource. Of a pod that runs those alone are said that its node offers."""
    return len(amounts) > RESOURCES_MAX
