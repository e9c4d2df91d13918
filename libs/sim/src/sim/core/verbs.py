"""Writes through the API: create, replace, patch, apply and delete, with their rules."""

from dataclasses import dataclass
from typing import Any

from sim.core import ownership
from sim.core.admission import check_manifest, check_object, check_update, with_defaults
from sim.core.control_plane import ControlPlane
from sim.core.errors import (
    ApiError,
    already_exists,
    bad_request,
    conflict,
    forbidden,
    invalid,
    not_found,
    stale_version,
)
from sim.core.kinds import KIND_BY_PLURAL, Key, Kind, Object
from sim.core.node_lifecycle import NOT_READY
from sim.core.ownership import Manager
from sim.core.pod_admission import admitted_pod

# These objects are many and short-lived, or written by controllers. Their field owners are kept after a first apply.
_UNTRACKED = frozenset({"pods", "nodes", "events", "leases", "replicasets"})
_SERVER_METADATA = ("uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds")


@dataclass(frozen=True, slots=True)
class WriteOptions:
    dry_run: bool = False
    manager: str = "unknown"
    force: bool = False
    status: bool = False
    """True for a write through the status subresource, which changes nothing else."""


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    propagation: str = "Background"
    grace_seconds: int | None = None
    uid: str = ""
    resource_version: str = ""
    dry_run: bool = False


class Verbs:
    def __init__(self, control_plane: ControlPlane) -> None:
        self._control_plane = control_plane
        self._world = control_plane.world
        self._store = control_plane.world.store

    def get(self, kind: Kind, key: Key) -> Object:
        found = self._store.get_object(kind.plural, key)
        if found is None:
            raise not_found(kind, key[1])
        return found

    def create(self, kind: Kind, namespace: str, manifest: Object, options: WriteOptions) -> Object:
        check_manifest(kind, manifest)
        metadata = {**(manifest.get("metadata") or {})}
        for field in (*_SERVER_METADATA, "resourceVersion", "managedFields"):
            metadata.pop(field, None)
        if kind.namespaced:
            if metadata.get("namespace", namespace) != namespace:
                raise bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request"
                )
            metadata["namespace"] = namespace
            self._check_namespace(kind, namespace, metadata.get("name", ""))
        if not metadata.get("name"):
            metadata["name"] = self._generated_name(kind, namespace, metadata)
        key = (namespace, metadata["name"])
        if self._store.get_object(kind.plural, key):
            raise already_exists(kind, key[1])
        new = self._new_object(kind, {**manifest, "metadata": metadata})
        if kind.plural not in _UNTRACKED:
            owned = {Manager(options.manager, "Update"): ownership.field_paths_of(manifest)}
            self._set_managed_fields(kind, new, new, owned)
        return self._commit_new_object(kind, new, options)

    def replace(self, kind: Kind, key: Key, manifest: Object, options: WriteOptions) -> Object:
        check_manifest(kind, manifest)
        live = self.get(kind, key)
        metadata = manifest.get("metadata") or {}
        self._check_identity(kind, key, live, metadata)
        return self._update_object(kind, live, manifest, options)

    def merge(self, kind: Kind, key: Key, patch: Any, options: WriteOptions) -> Object:
        if not isinstance(patch, dict):
            raise bad_request("the patch must be a JSON object")
        live = self.get(kind, key)
        metadata = patch.get("metadata") or {}
        if metadata.get("uid", live["metadata"]["uid"]) != live["metadata"]["uid"]:
            why = f'Invalid value: "{metadata["uid"]}": field is immutable'
            raise invalid(kind, key[1], [("metadata.uid", "FieldValueInvalid", why)])
        self._check_identity(kind, key, live, metadata)
        return self._update_object(kind, live, _merge_patch_result(live, patch), options)

    def apply(self, kind: Kind, key: Key, manifest: Object, options: WriteOptions) -> tuple[Object, bool]:
        """Applies a manifest. Returns the object, and whether it was created."""
        check_manifest(kind, manifest)
        if not options.manager:
            message = "fieldManager is required for apply patch"
            raise invalid(kind, key[1], [("fieldManager", "FieldValueRequired", f"Required value: {message}")])
        manifest = {**manifest, "metadata": {**(manifest.get("metadata") or {}), "name": key[1]}}
        if kind.namespaced:
            manifest["metadata"]["namespace"] = key[0]
        manager = Manager(options.manager, "Apply")
        live = self._store.get_object(kind.plural, key)
        if live is None:
            return self._create_by_apply(kind, key, manifest, manager, options), True
        self._check_identity(kind, key, live, manifest["metadata"])
        if options.status:
            return self._update_object(kind, live, ownership.merged_value(live, manifest), options), False
        owned = ownership.read_managers(live)
        found = ownership.apply_conflicts(live, manifest, manager, owned)
        if found and not options.force:
            raise _apply_conflict(kind, found)
        declared = {field: value for field, value in manifest.items() if field not in ("apiVersion", "kind", "status")}
        result, owned = ownership.object_and_owners_after_apply(live, declared, manager, owned)
        return self._finish_update(kind, live, result, owned, options), False

    def delete(self, kind: Kind, key: Key, options: DeleteOptions) -> Object:
        """Deletes an object. Returns its last state, or its terminating state if it is not removed yet."""
        live = self.get(kind, key)
        metadata = live["metadata"]
        asked = (("UID", options.uid, "uid"), ("ResourceVersion", options.resource_version, "resourceVersion"))
        for label, wanted, field in asked:
            if wanted and wanted != metadata[field]:
                why = (
                    f"Precondition failed: {label} in precondition: {wanted}, {label} in object meta: {metadata[field]}"
                )
                raise conflict(kind, key[1], why)
        if not options.dry_run:
            self._control_plane.garbage.delete_object(kind.plural, live, options.propagation, options.grace_seconds)
        return self._store.get_object(kind.plural, key) or live

    def _create_by_apply(
        self, kind: Kind, key: Key, manifest: Object, manager: Manager, options: WriteOptions
    ) -> Object:
        # kube-apiserver 1.36 creates the object even if a resourceVersion is given, but not if a uid is.
        if manifest["metadata"].get("uid"):
            raise conflict(kind, key[1], "uid is given, but the object does not exist")
        if kind.namespaced:
            self._check_namespace(kind, key[0], key[1])
        metadata = {field: value for field, value in manifest["metadata"].items() if field != "resourceVersion"}
        new = self._new_object(kind, {**manifest, "metadata": metadata})
        self._set_managed_fields(kind, new, new, {manager: ownership.field_paths_of(manifest)})
        return self._commit_new_object(kind, new, options)

    def _check_namespace(self, kind: Kind, namespace: str, name: str) -> None:
        found = self._store.get_object("namespaces", ("", namespace))
        if found is None:
            raise not_found(KIND_BY_PLURAL["namespaces"], namespace)
        if "deletionTimestamp" in found["metadata"]:
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            raise forbidden(kind, name, why)

    def _check_identity(self, kind: Kind, key: Key, live: Object, metadata: Object) -> None:
        if metadata.get("name", key[1]) != key[1]:
            raise bad_request("the name of the object does not match the name on the URL")
        version = metadata.get("resourceVersion")
        if version and version != live["metadata"]["resourceVersion"]:
            raise stale_version(kind, key[1])
        uid = metadata.get("uid")
        if uid and uid != live["metadata"]["uid"]:
            why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {live['metadata']['uid']}"
            raise conflict(kind, key[1], why)

    def _generated_name(self, kind: Kind, namespace: str, metadata: Object) -> str:
        prefix = metadata.get("generateName")
        if not prefix:
            raise invalid(
                kind, "", [("metadata.name", "FieldValueRequired", "Required value: name or generateName is required")]
            )
        return self._world.unused_name(kind.plural, namespace, prefix)

    def _new_object(self, kind: Kind, manifest: Object) -> Object:
        """Returns a new object of the manifest, with the fields that the server adds."""
        new = {field: value for field, value in manifest.items() if field not in ("apiVersion", "kind")}
        new["metadata"] |= {"uid": self._world.new_uid(), "creationTimestamp": self._world.timestamp()}
        new = with_defaults(kind, new)
        if "spec" in new:
            new["metadata"]["generation"] = 1
        if kind.plural == "nodes":  # The taint stays until the node is ready.
            spec = new.get("spec") or {}
            taints = [one for one in spec.get("taints") or () if one != NOT_READY]
            new["spec"] = {**spec, "taints": [*taints, NOT_READY]}
        if kind.plural == "pods":
            new["status"] = {"phase": "Pending"}
        elif kind.plural == "namespaces":
            labels = {**(new["metadata"].get("labels") or {}), "kubernetes.io/metadata.name": new["metadata"]["name"]}
            new |= {"metadata": {**new["metadata"], "labels": labels}, "status": {"phase": "Active"}}
        elif kind.has_status and kind.plural != "nodes":
            new["status"] = {"replicas": 0} if kind.plural == "replicasets" else {}
        check_object(kind, new)
        return admitted_pod(self._world, new) if kind.plural == "pods" else new

    def _commit_new_object(self, kind: Kind, new: Object, options: WriteOptions) -> Object:
        if kind.plural == "pods":
            why = self._control_plane.quotas.pod_refusal_reason(self._control_plane.shapes.shape_of(new))
            if why:
                raise forbidden(kind, new["metadata"]["name"], why)
        return new if options.dry_run else self._store.put_object(kind.plural, new)

    def _update_object(self, kind: Kind, live: Object, wanted: Object, options: WriteOptions) -> Object:
        """Updates an object. A write to its status path changes only the status; another write, all other fields."""
        if options.status:
            new = {**live, "status": wanted.get("status") or {}}
            return self._finish_update(kind, live, new, None, options)
        new = {field: value for field, value in wanted.items() if field not in ("apiVersion", "kind")}
        if kind.has_status:
            new.pop("status", None)
            if "status" in live:
                new["status"] = live["status"]
        # A writer may send the owners of the object's fields itself. The fields that this write changes are then added.
        says = (wanted.get("metadata") or {}).get("managedFields")
        owned = ownership.read_managers(wanted if says else live)
        if kind.plural not in _UNTRACKED or owned:
            owned = ownership.owners_after_update(live, new, Manager(options.manager, "Update"), owned)
        return self._finish_update(kind, live, new, owned, options)

    def _finish_update(
        self, kind: Kind, live: Object, new: Object, owned: dict[Manager, frozenset[Any]] | None, options: WriteOptions
    ) -> Object:
        old_metadata = live["metadata"]
        kept = {field: old_metadata[field] for field in _SERVER_METADATA if field in old_metadata}
        metadata = {**new.get("metadata", {}), **kept, "name": old_metadata["name"]}
        metadata["resourceVersion"] = old_metadata["resourceVersion"]
        for field in ("namespace", "managedFields"):
            if field in old_metadata:
                metadata[field] = old_metadata[field]
        new = with_defaults(kind, {**new, "metadata": metadata})
        if owned:
            self._set_managed_fields(kind, live, new, owned)
        if new.get("spec") != live.get("spec"):
            metadata["generation"] = old_metadata.get("generation", 0) + 1
        else:
            if kind.plural == "deployments" and metadata.get("annotations") != old_metadata.get("annotations"):
                metadata["generation"] = old_metadata.get("generation", 0) + 1
            # The spec stays the same Python object, so that controllers see by identity that it has not changed.
            new = {**new, "spec": live["spec"]} if "spec" in live else new
        check_object(kind, new)
        check_update(kind, live, new)
        if new == live or options.dry_run:
            return new
        if self._control_plane.garbage.is_finalized(kind.plural, new):
            return self._store.remove_object(kind.plural, (metadata.get("namespace", ""), metadata["name"]))
        return self._store.put_object(kind.plural, new)

    def _set_managed_fields(self, kind: Kind, live: Object, new: Object, owned: dict[Manager, frozenset[Any]]) -> None:
        """Changes `new`, which nobody else has seen yet."""
        entries = ownership.managed_fields_entries(live, owned, kind.api_version, self._world.timestamp())
        if entries:
            new["metadata"]["managedFields"] = entries


def _merge_patch_result(live: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    result = dict(live) if isinstance(live, dict) else {}
    for field, value in patch.items():
        if value is None:
            result.pop(field, None)
        else:
            result[field] = _merge_patch_result(result.get(field), value)
    return result


def _apply_conflict(kind: Kind, found: dict[Manager, frozenset[Any]]) -> ApiError:
    causes = [
        {
            "reason": "FieldManagerConflict",
            "message": f'conflict with "{manager.name}" using {kind.api_version}',
            "field": ownership.dotted_path(path),
        }
        for manager, paths in found.items()
        for path in sorted(paths)
    ]
    count = f"{len(causes)} conflict{'s' if len(causes) > 1 else ''}"
    message = f"Apply failed with {count}: " + ", ".join(f"{one['message']}: {one['field']}" for one in causes)
    return ApiError(409, "Conflict", message, {"causes": causes})
