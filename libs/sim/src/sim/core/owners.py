"""The common part of controllers that own pods directly: pods by owner, dirty owners, and owners refused by a quota."""

from collections.abc import Mapping
from typing import Any

from sim.core.errors import ApiError
from sim.core.garbage import Garbage
from sim.core.kinds import KIND_BY_PLURAL, Key, Object
from sim.core.pods import new_pod
from sim.core.quotas import Quotas
from sim.core.replicasets import owner_reference
from sim.core.shape import ShapeBook
from sim.core.world import World, controller_of


class Owners:
    """The objects of one kind and their pods. A controller derives from it and implements reconcile_owner."""

    plural = ""

    def __init__(self, world: World, garbage: Garbage, quotas: Quotas, shapes: ShapeBook) -> None:
        self._world = world
        self._garbage = garbage
        self._quotas = quotas
        self._shapes = shapes
        self._kind = KIND_BY_PLURAL[self.plural]
        self._pods_by_uid: dict[str, dict[Key, None]] = {}
        self._refused_by_namespace: dict[str, dict[Key, None]] = {}
        self.dirty: dict[Key, None] = {}

    def on_owner(self, key: Key, old: Object | None, new: Object | None) -> None:
        if new is None and old is not None:
            self._pods_by_uid.pop(old["metadata"]["uid"], None)
            self.dirty.pop(key, None)
        elif new is not None and (old is None or old.get("spec") is not new.get("spec")):
            self.dirty[key] = None

    def on_pod(self, key: Key, old: Object | None, new: Object | None) -> None:
        owner = controller_of(new or old or {"metadata": {}})
        if owner is None or owner["kind"] != self._kind.name:
            return
        if self._world.object_with_uid(self.plural, (key[0], owner["name"]), owner["uid"]) is None:
            return
        pods = self._pods_by_uid.setdefault(owner["uid"], {})
        if new is None:
            pods.pop(key, None)
        else:
            pods[key] = None
        self.dirty[key[0], owner["name"]] = None

    def retry_refused_owners(self, namespace: str) -> None:
        self.dirty.update(self._refused_by_namespace.pop(namespace, {}))

    def reconcile(self, limit: int) -> int:
        """Reconciles dirty owners. Returns the approximate number of writes."""
        writes = 0
        while self.dirty and writes < limit:
            key = next(iter(self.dirty))
            del self.dirty[key]
            found = self._world.store.get_object(self.plural, key)
            if found and "deletionTimestamp" not in found["metadata"]:
                writes += 1 + self.reconcile_owner(key, found, limit - writes)
        return writes

    def reconcile_owner(self, key: Key, found: Object, limit: int) -> int:
        """Brings one object nearer to its spec, and returns the number of writes.

        The controller calls it again after each change of the object's pods.
        """
        raise NotImplementedError

    def pods_of(self, found: Object) -> list[Object]:
        table = self._world.store.tables["pods"]
        return [table[key] for key in self._pods_by_uid.get(found["metadata"]["uid"], ())]

    def make_pod(self, found: Object, name: str, labels: Mapping[str, str]) -> bool:
        """Creates a pod of an owner. Returns False when the pod is refused.

        The owner is then tried again after a change that may lift the refusal.
        """
        metadata, template = found["metadata"], found["spec"]["template"]
        owner = owner_reference(self._kind.api_version, self._kind.name, metadata)
        try:
            pod: dict[str, Any] | None = new_pod(self._world, name, metadata["namespace"], template, [owner])
        except ApiError:
            pod = None
        if pod is not None:
            pod["metadata"]["labels"] = {**pod["metadata"]["labels"], **labels}
        if pod is None or self._quotas.pod_refusal_reason(self._shapes.shape_of(pod)):
            key = (metadata["namespace"], metadata["name"])
            self._refused_by_namespace.setdefault(key[0], {})[key] = None
            return False
        self._world.store.put_object("pods", pod)
        return True
