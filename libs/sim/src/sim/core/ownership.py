"""Server-side apply: the manager of each field, conflicts between managers, and the fields that an apply removes."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sim.core.kinds import Object

Path = tuple[str, ...]
"""Steps as in FieldsV1: `f:name`, `k:{"name":"x"}`. The step `.` is the list item itself."""

_KEYS_OF_LIST = {
    "containers": ("name",),
    "initContainers": ("name",),
    "env": ("name",),
    "volumes": ("name",),
    "imagePullSecrets": ("name",),
    "secrets": ("name",),
    "volumeMounts": ("mountPath",),
    "ports": ("containerPort", "port"),
    "conditions": ("type",),
    "ownerReferences": ("uid",),
}
_SYSTEM_METADATA = frozenset(
    {
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "managedFields",
        "selfLink",
        "generateName",
    }
)


@dataclass(frozen=True, slots=True)
class Manager:
    name: str
    operation: str
    """Apply or Update."""


def field_paths_of(declared: Object, *, status: bool = False) -> frozenset[Path]:
    """Returns the paths of an object's leaves, without fields that the server itself sets.

    status: True for the leaves of the status instead.
    """
    found: list[Path] = []
    for field, value in declared.items():
        if field == "metadata":
            own = {name: part for name, part in value.items() if name not in _SYSTEM_METADATA}
            _collect_paths(own, ("f:metadata",), found)
        elif field not in ("apiVersion", "kind") and (field == "status") == status:
            _collect_value_paths(field, value, (), found)
    return frozenset(found)


def _collect_paths(declared: Mapping[str, Any], path: Path, found: list[Path]) -> None:
    for field, value in declared.items():
        _collect_value_paths(field, value, path, found)


def _collect_value_paths(field: str, value: Any, path: Path, found: list[Path]) -> None:
    here = (*path, f"f:{field}")
    if isinstance(value, dict) and value:
        _collect_paths(value, here, found)
    elif isinstance(value, list) and value and all(item_step(field, item) for item in value):
        for item in value:
            step = item_step(field, item)
            found.append((*here, step, "."))
            _collect_paths(item, (*here, step), found)
    else:
        found.append(here)


def item_step(field: str, item: Any) -> str:
    """Returns how an item of a list of that name is addressed; empty when the list is one value."""
    if not isinstance(item, dict):
        return ""
    for key in _KEYS_OF_LIST.get(field, ()):
        if key in item:
            return "k:" + json.dumps({key: item[key]}, separators=(",", ":"))
    return ""


def value_at(found: Any, path: Path) -> Any:
    """Returns the value at a path; None when there is none."""
    value, field = found, ""
    for step in path:
        if step == ".":
            return True
        if step.startswith("f:"):
            field = step[2:]
            value = value.get(field) if isinstance(value, dict) else None
        else:
            items = value if isinstance(value, list) else ()
            value = next((item for item in items if item_step(field, item) == step), None)
        if value is None:
            return None
    return value


def merged_value(live: Any, declared: Any, field: str = "") -> Any:
    """Returns the live value with the declared one: maps and keyed lists are joined, everything else is replaced."""
    if isinstance(live, dict) and isinstance(declared, dict):
        return {**live, **{name: merged_value(live.get(name), value, name) for name, value in declared.items()}}
    keyed = isinstance(declared, list) and declared and all(item_step(field, item) for item in declared)
    if isinstance(live, list) and keyed:
        wanted = {item_step(field, item): item for item in declared}
        joined = [merged_value(item, wanted.pop(item_step(field, item), item), field) for item in live]
        return [*joined, *wanted.values()]
    return declared


def object_without_path(found: Any, path: Path, field: str = "") -> Any:
    """Returns the object without one leaf or list item. Maps that become empty are removed, too."""
    step, rest = path[0], path[1:]
    if isinstance(found, dict) and step.startswith("f:"):
        name = step[2:]
        if name not in found:
            return found
        left = object_without_path(found[name], rest, name) if rest else None
        kept = {key: value for key, value in found.items() if key != name}
        return {**kept, name: left} if left not in (None, {}, []) else kept
    if isinstance(found, list):
        items = []
        for item in found:
            if item_step(field, item) != step:
                items.append(item)
            elif rest != (".",):
                items.append(object_without_path(item, rest))
        return items
    return found


def read_managers(found: Object) -> dict[Manager, frozenset[Path]]:
    entries = found["metadata"].get("managedFields") or ()
    return {Manager(one["manager"], one["operation"]): frozenset(_decode_paths(one["fieldsV1"])) for one in entries}


def managed_fields_entries(
    found: Object, owned: Mapping[Manager, frozenset[Path]], api_version: str, stamp: str
) -> list[dict[str, Any]]:
    """Returns managedFields. An entry that does not change keeps its time."""
    known = {
        (one["manager"], one["operation"]): (one["fieldsV1"], one["time"])
        for one in found["metadata"].get("managedFields") or ()
    }
    entries = []
    for manager, paths in owned.items():
        if not paths:
            continue
        fields = _encode_paths(paths)
        before = known.get((manager.name, manager.operation))
        entries.append(
            {
                "manager": manager.name,
                "operation": manager.operation,
                "apiVersion": api_version,
                "time": before[1] if before and before[0] == fields else stamp,
                "fieldsType": "FieldsV1",
                "fieldsV1": fields,
            }
        )
    return entries


def apply_conflicts(
    live: Object, declared: Object, manager: Manager, owned: Mapping[Manager, frozenset[Path]]
) -> dict[Manager, frozenset[Path]]:
    """Returns the fields of other managers that this apply would change."""
    mine = field_paths_of(declared)
    found = {
        other: frozenset(path for path in paths & mine if value_at(live, path) != value_at(declared, path))
        for other, paths in owned.items()
        if other != manager
    }
    return {other: paths for other, paths in found.items() if paths}


def object_and_owners_after_apply(
    live: Object, declared: Object, manager: Manager, owned: Mapping[Manager, frozenset[Path]]
) -> tuple[Object, dict[Manager, frozenset[Path]]]:
    """Returns the object after the apply, and the owners of fields then. Fields in conflict are taken over."""
    mine = field_paths_of(declared)
    taken = apply_conflicts(live, declared, manager, owned)
    others = {other: paths - taken.get(other, frozenset()) for other, paths in owned.items() if other != manager}
    owned_by_others = frozenset().union(*others.values())
    gone = owned.get(manager, frozenset()) - mine - owned_by_others
    result: Object = merged_value(live, declared)
    # Items first: they are found by their key field, which is itself among the removed fields.
    for path in sorted(gone, key=lambda path: path[-1] != "."):
        if path[-1] != "." or not any(other[: len(path) - 1] == path[:-1] for other in owned_by_others):
            result = object_without_path(result, path)
    return result, {**others, manager: mine}


def owners_after_update(
    old: Object, new: Object, manager: Manager, owned: Mapping[Manager, frozenset[Path]]
) -> dict[Manager, frozenset[Path]]:
    """Returns the owners of fields after an update. The manager that changes a field becomes its only owner."""
    present = field_paths_of(new)
    changed = frozenset(path for path in present if value_at(old, path) != value_at(new, path))
    others = {other: (paths & present) - changed for other, paths in owned.items()}
    return {**others, manager: others.get(manager, frozenset()) | changed}


def dotted_path(path: Path) -> str:
    """Returns a path as conflict messages show it: `.spec.replicas`."""
    return "".join(f".{step[2:]}" if step.startswith("f:") else f"[{step[2:]}]" for step in path if step != ".")


def _encode_paths(paths: Iterable[Path]) -> dict[str, Any]:
    root: dict[str, Any] = {}
    for path in sorted(paths):
        place = root
        for step in path:
            place = place.setdefault(step, {})
    return root


def _decode_paths(fields: Mapping[str, Any], path: Path = ()) -> Iterable[Path]:
    for step, below in fields.items():
        if below:
            yield from _decode_paths(below, (*path, step))
        else:
            yield (*path, step)
