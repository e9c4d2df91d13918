"""Keeps our objects of one cluster as its watches deliver them."""

from collections.abc import Iterable
from typing import NamedTuple, TypeVar

from propagator.core.desired import PartTarget
from propagator.core.live import (
    DependencyReference,
    LiveDependency,
    LiveState,
    LiveWorkload,
    ObjectMarks,
    dependency_from_struct,
    workload_from_struct,
)
from propagator.core.manifests import LABEL_VALUE_LENGTH_MAX, workload_label
from spillway.kubernetes.objects import AnyObject, Deployment, Job, StatefulSet
from spillway.kubernetes.resource_versions import version_number

Workload = Deployment | StatefulSet | Job
Found = TypeVar("Found", LiveWorkload, LiveDependency)


class DependencyPlace(NamedTuple):
    """The place of a dependency: its namespace, kind and name."""

    namespace: str
    reference: DependencyReference


class DependencyOwner(NamedTuple):
    """The owner that a dependency's marks name: a namespace, and the workload's label in it."""

    namespace: str
    label: str


class ObjectMirror:
    """Our objects of one cluster. The mirror may be older than the cluster, never newer.

    Answers to our own requests are stored at once, without waiting for the watch.
    workloads: the objects of each target by kind, because objects of several kinds may have one name.
    """

    def __init__(self, cluster: str) -> None:
        self.workloads: dict[PartTarget, dict[str, LiveWorkload]] = {}
        self._cluster = cluster
        self._long_by_owner: dict[DependencyOwner, dict[PartTarget, None]] = {}
        self._dependencies: dict[DependencyPlace, LiveDependency] = {}
        self._references_by_owner: dict[DependencyOwner, set[DependencyReference]] = {}

    def workload_of_kind(self, target: PartTarget, kind: str) -> LiveWorkload | None:
        return self.workloads.get(target, {}).get(kind)

    def newest_workload(self, target: PartTarget) -> LiveWorkload | None:
        """Returns the object that the newest placement wrote, of all kinds with this name; None without an object."""
        return max(self.workloads.get(target, {}).values(), key=lambda one: (one.version, one.kind), default=None)

    def has_objects_of_target(self, target: PartTarget) -> bool:
        """Returns whether the cluster has an object or a dependency of this target."""
        return target in self.workloads or bool(self.dependency_references_of(target))

    def live_state_of(self, target: PartTarget, kind: str) -> LiveState:
        return LiveState(
            workload=self.workload_of_kind(target, kind),
            dependencies={
                ref: self._dependencies[DependencyPlace(target.namespace, ref)]
                for ref in self.dependency_references_of(target)
            },
        )

    def dependency_references_of(self, target: PartTarget) -> frozenset[DependencyReference]:
        """Returns the ConfigMaps and Services whose marks name this workload."""
        return frozenset(self._references_by_owner.get(_dependency_owner_of(target), ()))

    def unlisted_targets(self, owners: Iterable[DependencyOwner]) -> frozenset[PartTarget]:
        """Returns the targets of these owners. The caller passes owners that no placement lists.

        A label may be a shortened name. Then the target is the object with that label, if there is one. Otherwise the
        target has the label as its name.
        """
        return frozenset(self._target_of_owner(owner) for owner in owners if owner.label)

    def targets_with_objects(self) -> frozenset[PartTarget]:
        """Returns all targets that have an object or a dependency in the cluster."""
        return frozenset(self.workloads) | self.unlisted_targets(self._references_by_owner)

    def replace_workloads(self, kind: str, objects: Iterable[Workload]) -> frozenset[PartTarget]:
        """Replaces all objects of one kind. Returns the targets that had one before or have one now."""
        before = frozenset(target for target, known in self.workloads.items() if kind in known)
        for target in before:
            self.put_workload(target, kind, None)
        listed = [(self._target_of_object(found), workload_from_struct(found)) for found in objects]
        for target, shown in listed:
            self.put_workload(target, shown.kind, shown)
        return before | {target for target, _ in listed}

    def upsert_workload(self, found: Workload) -> PartTarget | None:
        """Stores a changed object and returns its target; None if an answer to our own request had this state."""
        target, shown = self._target_of_object(found), workload_from_struct(found)
        if self.workload_of_kind(target, shown.kind) == shown:
            return None
        self.put_workload(target, shown.kind, shown)
        return target

    def remove_workload(self, found: Workload) -> PartTarget:
        target, kind = self._target_of_object(found), workload_from_struct(found).kind
        known = self.workload_of_kind(target, kind)
        if known is not None and known.marks.uid == found.metadata.uid:
            self.put_workload(target, kind, None)
        return target

    def put_workload(self, target: PartTarget, kind: str, found: LiveWorkload | None) -> None:
        if target not in self.workloads:
            self._note_label(target)
        by_kind = self.workloads.setdefault(target, {})
        if found is None:
            by_kind.pop(kind, None)
        else:
            by_kind[kind] = _newer_state(found, by_kind.get(kind))
        if not by_kind:
            del self.workloads[target]
            self._drop_label(target)

    def replace_dependencies(self, kind: str, objects: Iterable[AnyObject]) -> frozenset[DependencyOwner]:
        """Replaces all dependencies of one kind. Returns the owners that had one before or have one now."""
        gone = [place for place in self._dependencies if place.reference.kind == kind]
        owners = {owner for place in gone for owner in self._put_dependency(place, None)}
        for found in objects:
            owners |= self.upsert_dependency(kind, found)
        return frozenset(owners)

    def upsert_dependency(self, kind: str, found: AnyObject) -> frozenset[DependencyOwner]:
        place = DependencyPlace(found.metadata.namespace, DependencyReference(kind, found.metadata.name))
        return self._put_dependency(place, dependency_from_struct(found))

    def remove_dependency(self, kind: str, found: AnyObject) -> frozenset[DependencyOwner]:
        place = DependencyPlace(found.metadata.namespace, DependencyReference(kind, found.metadata.name))
        known = self._dependencies.get(place)
        if known is None or known.marks.uid != found.metadata.uid:
            return frozenset()
        return self._put_dependency(place, None)

    def put_dependency(self, namespace: str, reference: DependencyReference, found: LiveDependency | None) -> None:
        self._put_dependency(DependencyPlace(namespace, reference), found)

    def _put_dependency(self, place: DependencyPlace, found: LiveDependency | None) -> frozenset[DependencyOwner]:
        owners = set()
        known = self._dependencies.pop(place, None)
        if known is not None:
            owner = DependencyOwner(place.namespace, known.marks.workload)
            owners.add(owner)
            references = self._references_by_owner[owner]
            references.discard(place.reference)
            if not references:
                del self._references_by_owner[owner]
        if found is not None:
            kept = _newer_state(found, known)
            self._dependencies[place] = kept
            owner = DependencyOwner(place.namespace, kept.marks.workload)
            owners.add(owner)
            self._references_by_owner.setdefault(owner, set()).add(place.reference)
        return frozenset(owners)

    def _note_label(self, target: PartTarget) -> None:
        """Stores which workload has this label, if the name is so long that the label may be a shortened one.

        A shorter label is the workload's name itself.
        """
        if len(target.name) >= LABEL_VALUE_LENGTH_MAX:
            self._long_by_owner.setdefault(_dependency_owner_of(target), {})[target] = None

    def _drop_label(self, target: PartTarget) -> None:
        if len(target.name) >= LABEL_VALUE_LENGTH_MAX:
            owner = _dependency_owner_of(target)
            del self._long_by_owner[owner][target]
            if not self._long_by_owner[owner]:
                del self._long_by_owner[owner]

    def _target_of_owner(self, owner: DependencyOwner) -> PartTarget:
        """Returns the workload of a label.

        The cost does not grow with the number of workloads, because users of a cluster may write many labels.
        """
        first = next(iter(self._long_by_owner.get(owner, ())), None)
        return first if first is not None else PartTarget(self._cluster, owner.namespace, owner.label)

    def _target_of_object(self, found: Workload) -> PartTarget:
        return PartTarget(self._cluster, found.metadata.namespace, found.metadata.name)


def _dependency_owner_of(target: PartTarget) -> DependencyOwner:
    return DependencyOwner(target.namespace, workload_label(target.name))


def _newer_state(found: Found, known: Found | None) -> Found:
    """Returns the newer of two states of one object. A watch may still deliver a state from before our own request."""
    if known is None or known.marks.uid != found.marks.uid:
        return found
    return known if _resource_version_number(known.marks) > _resource_version_number(found.marks) else found


def _resource_version_number(marks: ObjectMarks) -> int:
    """Returns the resource version as a number that rises with each change; 0 for one that is no number."""
    return version_number(marks.resource_version) or 0
