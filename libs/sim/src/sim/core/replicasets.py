"""The ReplicaSet controller: keeps the wanted number of pods, and writes the status."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any

from sim.core.errors import ApiError
from sim.core.garbage import Garbage
from sim.core.kinds import Key, Object
from sim.core.pods import is_active, is_ready, new_pod, scale_in_victims
from sim.core.quotas import Quotas, failed_create_condition, pod_refused_text
from sim.core.shape import ShapeBook
from sim.core.world import World, controller_of, find_condition

_PLURAL = "replicasets"


@dataclass(slots=True)
class Tally:
    """The pods of one ReplicaSet, counted as they change."""

    active: dict[Key, None] = field(default_factory=dict)
    ready: dict[Key, None] = field(default_factory=dict)
    available: dict[Key, None] = field(default_factory=dict)
    terminating: dict[Key, None] = field(default_factory=dict)


class ReplicaSets:
    def __init__(self, world: World, garbage: Garbage, quotas: Quotas, shapes: ShapeBook) -> None:
        self._world = world
        self._garbage = garbage
        self._quotas = quotas
        self._shapes = shapes
        self._tallies: dict[str, Tally] = {}
        self._refused_by_namespace: dict[str, dict[Key, None]] = {}
        self.dirty: dict[Key, None] = {}

    def tally_of(self, uid: str) -> Tally:
        return self._tallies.setdefault(uid, Tally())

    def on_replicaset(self, key: Key, old: Object | None, new: Object | None) -> None:
        if new is None and old is not None:
            self._tallies.pop(old["metadata"]["uid"], None)
            self.dirty.pop(key, None)
        elif new is not None and (old is None or old.get("spec") is not new.get("spec")):
            self.dirty[key] = None

    def on_pod(self, key: Key, old: Object | None, new: Object | None) -> None:
        owner = controller_of(new or old or {"metadata": {}})
        if owner is None or owner["kind"] != "ReplicaSet":
            return
        replicaset = self._world.store.get_object(_PLURAL, (key[0], owner["name"]))
        if replicaset is None or replicaset["metadata"]["uid"] != owner["uid"]:
            return
        tally = self.tally_of(owner["uid"])
        active = new is not None and is_active(new)
        ready = active and new is not None and is_ready(new)
        _set_membership(tally.active, key, active)
        _set_membership(tally.terminating, key, new is not None and "deletionTimestamp" in new["metadata"])
        was_ready = key in tally.ready
        _set_membership(tally.ready, key, ready)
        if not ready:
            tally.available.pop(key, None)
        elif not was_ready:
            self._make_available_later(replicaset, tally, key)
        self.dirty[(key[0], owner["name"])] = None

    def _make_available_later(self, replicaset: Object, tally: Tally, pod: Key) -> None:
        wait_seconds = replicaset["spec"].get("minReadySeconds", 0)
        if wait_seconds:
            name = replicaset["metadata"]["name"]
            self._world.run_after(wait_seconds, partial(self._mark_available, tally, pod, (pod[0], name)))
        else:
            tally.available[pod] = None

    def _mark_available(self, tally: Tally, pod: Key, replicaset: Key) -> None:
        if pod in tally.ready:
            tally.available[pod] = None
            self.dirty[replicaset] = None

    def retry_refused_owners(self, namespace: str) -> None:
        self.dirty.update(self._refused_by_namespace.pop(namespace, {}))

    def reconcile(self, limit: int) -> int:
        """Reconciles dirty ReplicaSets. Returns the approximate number of writes."""
        writes = 0
        while self.dirty and writes < limit:
            key = next(iter(self.dirty))
            del self.dirty[key]
            replicaset = self._world.store.get_object(_PLURAL, key)
            if replicaset and "deletionTimestamp" not in replicaset["metadata"]:
                writes += 1 + self._reconcile_replicaset(key, replicaset, limit - writes)
        return writes

    def _reconcile_replicaset(self, key: Key, replicaset: Object, limit: int) -> int:
        tally = self.tally_of(replicaset["metadata"]["uid"])
        missing = replicaset["spec"].get("replicas", 1) - len(tally.active)
        failure, writes = "", 0
        if missing > 0:
            writes, failure = self._create_pods(replicaset, min(missing, limit))
        elif missing < 0:
            writes = self._delete_pods(tally, min(-missing, limit))
        if failure:
            self.dirty.pop(key, None)
            self._refused_by_namespace.setdefault(key[0], {})[key] = None
        elif writes == abs(missing):
            self.dirty.pop(key, None)
        self._write_status(key, tally, failure)
        return writes

    def _create_pods(self, replicaset: Object, count: int) -> tuple[int, str]:
        metadata, template = replicaset["metadata"], replicaset["spec"]["template"]
        namespace, name = metadata["namespace"], metadata["name"]
        owners = [owner_reference("apps/v1", "ReplicaSet", metadata)]
        shape = None
        for made in range(count):
            pod_name = self._world.unused_name("pods", namespace, f"{name}-")
            try:
                pod = new_pod(self._world, pod_name, namespace, template, owners)
            except ApiError as error:
                return made, error.message
            shape = shape or self._shapes.shape_of(pod)
            why = self._quotas.pod_refusal_reason(shape)
            if why:
                return made, pod_refused_text(pod_name, why)
            self._world.store.put_object("pods", pod)
        return count, ""

    def _delete_pods(self, tally: Tally, count: int) -> int:
        pods = [self._world.store.tables["pods"][key] for key in tally.active]
        for pod in scale_in_victims(pods, count):
            self._garbage.delete_pod(pod)
        return count

    def _write_status(self, key: Key, tally: Tally, failure: str) -> None:
        replicaset = self._world.store.tables[_PLURAL][key]
        status: dict[str, Any] = {"replicas": len(tally.active)}
        counts = {
            "fullyLabeledReplicas": len(tally.active),
            "readyReplicas": len(tally.ready),
            "availableReplicas": len(tally.available),
            "terminatingReplicas": len(tally.terminating),
        }
        status |= {name: count for name, count in counts.items() if count}
        status["observedGeneration"] = replicaset["metadata"].get("generation", 1)
        known = find_condition(replicaset, "ReplicaFailure")
        if failure:
            since = known["lastTransitionTime"] if known else self._world.timestamp()
            # The refused pod has a random name, so the messages of two attempts would differ.
            same = known is not None and _refusal_text(known["message"]) == _refusal_text(failure)
            status["conditions"] = [known if known and same else failed_create_condition(failure, since)]
        self._world.put_status(_PLURAL, replicaset, status)


def owner_reference(api_version: str, kind: str, metadata: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _set_membership(keys: dict[Key, None], key: Key, present: bool) -> None:
    if present:
        keys[key] = None
    else:
        keys.pop(key, None)


def _refusal_text(message: str) -> str:
    return message.partition("is forbidden:")[2]
