"""Deletion: grace of pods, finalizers, cascades to owned objects, and emptying of namespaces."""

from functools import partial

from sim.core.kinds import KIND_BY_PLURAL, Key, Object
from sim.core.store import Change
from sim.core.world import World

_FOREGROUND = "foregroundDeletion"
Owned = dict[tuple[str, Key], None]


class Garbage:
    def __init__(self, world: World) -> None:
        self._world = world
        self._owned_by_uid: dict[str, Owned] = {}
        self._ownerless: list[str] = []
        """Uids of deleted owners whose objects are deleted too."""
        self._ending_namespaces: dict[str, None] = {}

    def delete_object(
        self, plural: str, found: Object, propagation: str = "Background", grace_seconds: int | None = None
    ) -> None:
        metadata = found["metadata"]
        if plural == "pods":
            self.delete_pod(found, grace_seconds)
        elif plural == "namespaces":
            self._terminate_namespace(found)
        elif propagation == "Foreground" and self._owned_by_uid.get(metadata["uid"]):
            self._mark_terminating(plural, found, [*(metadata.get("finalizers") or ()), _FOREGROUND])
            self._delete_owned_objects(metadata["uid"], "Foreground")
        else:
            if propagation == "Orphan":
                self._orphan_owned_objects(metadata["uid"])
            if metadata.get("finalizers"):
                self._mark_terminating(plural, found, metadata["finalizers"])
            else:
                self._world.store.remove_object(plural, (metadata.get("namespace", ""), metadata["name"]))

    def delete_pod(self, pod: Object, grace_seconds: int | None = None) -> None:
        metadata = pod["metadata"]
        asked = pod["spec"].get("terminationGracePeriodSeconds", 30)
        grace = asked if grace_seconds is None else grace_seconds
        bound = pod["spec"].get("nodeName")
        terminal = pod["status"].get("phase") in ("Succeeded", "Failed")
        if not metadata.get("finalizers") and (grace == 0 or not bound or terminal):
            self._world.store.remove_object("pods", (metadata["namespace"], metadata["name"]))
        elif "deletionTimestamp" not in metadata or grace < metadata.get("deletionGracePeriodSeconds", 0):
            until = self._world.timestamp(later_seconds=grace)
            ending = {**metadata, "deletionTimestamp": until, "deletionGracePeriodSeconds": grace}
            self._world.store.put_object("pods", {**pod, "metadata": ending})

    def is_finalized(self, plural: str, found: Object) -> bool:
        """Returns whether a deleted object has no finalizer any more. Pods and namespaces are removed in other ways."""
        metadata = found["metadata"]
        return (
            plural not in ("pods", "namespaces") and "deletionTimestamp" in metadata and not metadata.get("finalizers")
        )

    def on_change(self, change: Change) -> None:
        if change.old is None:
            for reference in change.new["metadata"].get("ownerReferences") or ():
                self._owned_by_uid.setdefault(reference["uid"], {})[change.plural, change.key] = None
        elif change.type == "DELETED":
            self._on_removed(change)

    def _on_removed(self, change: Change) -> None:
        metadata = change.new["metadata"]
        for reference in metadata.get("ownerReferences") or ():
            owned = self._owned_by_uid.get(reference["uid"])
            if owned is None:
                continue
            owned.pop((change.plural, change.key), None)
            if not owned:
                del self._owned_by_uid[reference["uid"]]
                self._world.run_after(0, partial(self._on_last_owned_gone, change.key[0], reference))
        if metadata["uid"] in self._owned_by_uid:
            self._ownerless.append(metadata["uid"])
        if change.key[0] in self._ending_namespaces:
            self._world.run_after(0, partial(self._remove_empty_namespace, change.key[0]))

    def collect_garbage(self, limit: int) -> int:
        """Deletes the objects of owners that are gone. Returns the approximate number of writes."""
        writes = 0
        while self._ownerless and writes < limit:
            uid = self._ownerless[-1]
            owned = self._owned_by_uid.get(uid, {})
            if not owned:
                self._ownerless.pop()
                self._owned_by_uid.pop(uid, None)
                continue
            plural, key = next(iter(owned))
            del owned[plural, key]
            found = self._world.store.get_object(plural, key)
            if found and "deletionTimestamp" not in found["metadata"]:
                self.delete_object(plural, found)
                writes += 1
        return writes

    @property
    def has_work(self) -> bool:
        return bool(self._ownerless)

    def _mark_terminating(self, plural: str, found: Object, finalizers: list[str]) -> None:
        metadata = {**found["metadata"], "finalizers": finalizers, "deletionGracePeriodSeconds": 0}
        metadata.setdefault("deletionTimestamp", self._world.timestamp())
        self._world.store.put_object(plural, {**found, "metadata": metadata})

    def _delete_owned_objects(self, uid: str, propagation: str) -> None:
        for plural, key in list(self._owned_by_uid.get(uid, ())):
            found = self._world.store.get_object(plural, key)
            if found and "deletionTimestamp" not in found["metadata"]:
                self.delete_object(plural, found, propagation)

    def _orphan_owned_objects(self, uid: str) -> None:
        for plural, key in list(self._owned_by_uid.pop(uid, ())):
            found = self._world.store.get_object(plural, key)
            if found:
                left = [one for one in found["metadata"]["ownerReferences"] if one["uid"] != uid]
                self._world.store.put_object(
                    plural, {**found, "metadata": {**found["metadata"], "ownerReferences": left}}
                )

    def _on_last_owned_gone(self, namespace: str, reference: dict[str, str]) -> None:
        plural = next((kind.plural for kind in KIND_BY_PLURAL.values() if kind.name == reference["kind"]), "")
        if not plural:
            return
        owner = self._world.object_with_uid(plural, (namespace, reference["name"]), reference["uid"])
        finalizers = (owner or {"metadata": {}})["metadata"].get("finalizers") or []
        if owner is None or _FOREGROUND not in finalizers:
            return
        left = [one for one in finalizers if one != _FOREGROUND]
        if left:
            self._mark_terminating(plural, owner, left)
        else:
            self._world.store.remove_object(plural, (namespace, reference["name"]))

    def _terminate_namespace(self, namespace: Object) -> None:
        name = namespace["metadata"]["name"]
        if "deletionTimestamp" in namespace["metadata"]:
            return
        metadata = {**namespace["metadata"], "deletionTimestamp": self._world.timestamp()}
        self._world.store.put_object(
            "namespaces", {**namespace, "metadata": metadata, "status": {"phase": "Terminating"}}
        )
        self._ending_namespaces[name] = None
        for kind in KIND_BY_PLURAL.values():
            for found in list(self._world.store.objects_in_namespace(kind.plural, name)):
                metadata = found["metadata"]
                # A cascade may have deleted it since the list was made.
                if self._world.store.get_object(kind.plural, (name, metadata["name"])) is found:
                    self.delete_object(kind.plural, found)
        self._remove_empty_namespace(name)

    def _remove_empty_namespace(self, name: str) -> None:
        if name not in self._ending_namespaces:
            return
        if all(
            next(iter(self._world.store.objects_in_namespace(plural, name)), None) is None for plural in KIND_BY_PLURAL
        ):
            del self._ending_namespaces[name]
            self._world.store.remove_object("namespaces", ("", name))
