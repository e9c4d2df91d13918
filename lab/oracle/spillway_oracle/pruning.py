"""Makes a case smaller by leaving out what the disagreement does not need: pods, nodes, labels, fields."""

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
"""What an object is not one without."""


def pruned_case(case: Case, still: Callable[[Case], bool]) -> Case:
    """The case without every part that can go, one after the other, while `still` holds of it."""
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
    """Paths of what may be left out; of a list the last first, so that the others keep their places."""
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
    """None when the path is not there any more."""
    changed = deepcopy(value)
    at = changed
    try:
        for step in path[:-1]:
            at = at[step]
        del at[path[-1]]
    except (KeyError, IndexError):
        return None
    return changed
