"""Saves all objects of a control plane, and resumes with them in a new one, as after its machine was off."""

from typing import Any

from sim.core.control_plane import ControlPlane
from sim.core.kinds import KIND_BY_PLURAL, Object
from sim.core.pods import RUN_SECONDS, is_terminal
from sim.core.verbs import DeleteOptions
from sim.core.world import RandomSource

# Pods come last, because their nodes and owners must be known by then.
_ORDER = (*(plural for plural in KIND_BY_PLURAL if plural != "pods"), "pods")


def saved_state(control_plane: ControlPlane) -> dict[str, Any]:
    """Returns {version: the last resourceVersion, tables: {plural: [object, …]}}, without history, logs and loads."""
    store = control_plane.world.store
    return {
        "version": store.version,
        "tables": {plural: list(table.values()) for plural, table in store.tables.items()},
    }


def resume_state(control_plane: ControlPlane, content: dict[str, Any], random: RandomSource) -> None:
    """Puts saved objects into a control plane before its first step. Watches from earlier versions get 410.

    random: a source with other values than the first one, whose names and uids exist already.
    Work that was under way goes on, but its waiting times begin again.
    """
    world, ending = control_plane.world, list[Object]()
    world.random = random
    world.store.version = int(content["version"])
    for plural in _ORDER:
        for found in content["tables"].get(plural, ()):
            is_ending = plural == "namespaces" and "deletionTimestamp" in found["metadata"]
            put = world.store.put_object(
                plural, _namespace_before_deletion(found) if is_ending else _object_after_restart(plural, found)
            )
            if is_ending:
                ending.append(put)
    for namespace in ending:
        control_plane.garbage.delete_object("namespaces", namespace, DeleteOptions().propagation)
    world.store.expire_history()


def _namespace_before_deletion(namespace: Object) -> Object:
    metadata = {name: value for name, value in namespace["metadata"].items() if name != "deletionTimestamp"}
    return {**namespace, "metadata": metadata}


def _object_after_restart(plural: str, found: Object) -> Object:
    """Returns an object as after a restart.

    A pod that ends by itself becomes Pending and starts again, because its remaining seconds are not saved.
    """
    if plural != "pods" or is_terminal(found) or RUN_SECONDS not in (found["metadata"].get("annotations") or {}):
        return found
    return {**found, "status": {**found["status"], "phase": "Pending"}}
