"""Makes a case smaller by removing the pods, nodes, labels and fields that the disagreement does not need."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

from .cases import Case

Path = tuple[str | int, ...]

NEEDED = frozenset(
    ("metadata", "name", "namespace", "uid", "nodes", "pods", "namespaces", "world", "template", "spec", "status",
     "containers", "image", "topologyKey", "whenUnsatisfiable", "maxSkew", "key", "operator", "required",
     "claimName", "persistentVolumeClaim", "nfs", "nodeSelectorTerms")
)  # fmt: skip
"""The fields that an object must keep to be valid."""


def pruned_case(case: Case, still: Callable[[Case], bool]) -> Case:
    """Returns the case without the parts that can be removed. still: returns whether a smaller case still differs."""
    best: Any = {"world": case.world, "template": case.template}
    smaller = True
    while smaller:
        smaller = False
        for path in sorted(_removable_paths(best), key=len):
            candidate = _without_part(best, path)
            if candidate is not None and still(_case_of_parts(candidate, case)):
                best, smaller = candidate, True
    return _case_of_parts(best, case)


def _case_of_parts(found: Any, case: Case) -> Case:
    return Case(found["world"], case.namespace, found["template"], case.features, case.name)


def _removable_paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """Yields the paths of removable parts. The last item of a list comes first, so that earlier paths stay valid."""
    if isinstance(value, dict):
        for key, part in value.items():
            if key not in NEEDED:
                yield (*path, key)
            yield from _removable_paths(part, (*path, key))
    elif isinstance(value, list):
        for index in reversed(range(len(value))):
            yield (*path, index)
            yield from _removable_paths(value[index], (*path, index))


def _without_part(value: Any, path: Path) -> Any:
    """Returns a copy without the part at the path; None when the path does not exist any more."""
    changed = deepcopy(value)
    at = changed
    try:
        for step in path[:-1]:
            at = at[step]
        del at[path[-1]]
    except (KeyError, IndexError):
        return None
    return changed
