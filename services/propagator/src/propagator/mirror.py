"""Our objects of one cluster as its watches tell them."""

from collections.abc import Iterable
from typing import Final, NamedTuple, TypeVar

from propagator.core.desired import Target
from propagator.core.live import (
    Live,
    LiveDependency,
    LiveWorkload,
    Marks,
    Reference,
    dependency_from_struct,
    workload_from_struct,
)
from propagator.core.manifests import workload_label
from spillway.kubernetes import AnyObject, Deployment, Job, StatefulSet

Workload = Deployment | StatefulSet | Job
Found = TypeVar("Found", LiveWorkload, LiveDependency)

VERSION_DIGITS_MAX: Final = 20
"""Of a resource version, as many as a uint64 has."""


class Place(NamedTuple):
    """Where a dependency is."""

    namespace: str
    reference: Reference


class Owner(NamedTuple):
    """Whose it says it is: a namespace, and the workload's label in it."""

    namespace: str
    label: str


class Mirror:
    """May be older than the cluster, never younger; answers to our own requests are put in as they come."""

    def __init__(self, cluster: str) -> None:
        self.workloads: dict[Target, LiveWorkload] = {}
        self._cluster = cluster
        self._dependencies: dict[Place, LiveDependency] = {}
        self._references_by_owner: dict[Owner, set[Reference]] = {}

    def live(self, target: Target) -> Live:
        owner = Owner(target.namespace, workload_label(target.name))
        references = self._references_by_owner.get(owner, ())
        return Live(
            workload=self.workloads.get(target),
            dependencies={ref: self._dependencies[Place(target.namespace, ref)] for ref in references},
        )

    def list_workloads(self, kind: str, objects: Iterable[Workload]) -> frozenset[Target]:
        """Takes the whole list of one kind; returns all of it that were or are known."""
        before = {target for target, known in self.workloads.items() if known.kind == kind}
        listed = {self._target(found): workload_from_struct(found) for found in objects}
        others = {target: known for target, known in self.workloads.items() if target not in before}
        self.workloads = others | listed
        return frozenset(before | listed.keys())

    def upsert_workload(self, found: Workload) -> Target:
        target = self._target(found)
        self.put_workload(target, workload_from_struct(found))
        return target

    def remove_workload(self, found: Workload) -> Target:
        target = self._target(found)
        known = self.workloads.get(target)
        if known is not None and known.marks.uid == found.metadata.uid:
            del self.workloads[target]
        return target

    def put_workload(self, target: Target, found: LiveWorkload | None) -> None:
        if found is None:
            self.workloads.pop(target, None)
        else:
            self.workloads[target] = _newer(found, self.workloads.get(target))

    def list_dependencies(self, kind: str, objects: Iterable[AnyObject]) -> frozenset[Owner]:
        """Takes the whole list of one kind; returns the owners of all that were or are known."""
        gone = [place for place in self._dependencies if place.reference.kind == kind]
        owners = {owner for place in gone for owner in self._put_dependency(place, None)}
        for found in objects:
            owners |= self.upsert_dependency(kind, found)
        return frozenset(owners)

    def upsert_dependency(self, kind: str, found: AnyObject) -> frozenset[Owner]:
        place = Place(found.metadata.namespace, Reference(kind, found.metadata.name))
        return self._put_dependency(place, dependency_from_struct(found))

    def remove_dependency(self, kind: str, found: AnyObject) -> frozenset[Owner]:
        place = Place(found.metadata.namespace, Reference(kind, found.metadata.name))
        known = self._dependencies.get(place)
        if known is None or known.marks.uid != found.metadata.uid:
            return frozenset()
        return self._put_dependency(place, None)

    def put_dependency(self, namespace: str, reference: Reference, found: LiveDependency | None) -> None:
        self._put_dependency(Place(namespace, reference), found)

    def _put_dependency(self, place: Place, found: LiveDependency | None) -> frozenset[Owner]:
        owners = set()
        known = self._dependencies.pop(place, None)
        if known is not None:
            owner = Owner(place.namespace, known.marks.workload)
            owners.add(owner)
            references = self._references_by_owner[owner]
            references.discard(place.reference)
            if not references:
                del self._references_by_owner[owner]
        if found is not None:
            kept = _newer(found, known)
            self._dependencies[place] = kept
            owner = Owner(place.namespace, kept.marks.workload)
            owners.add(owner)
            self._references_by_owner.setdefault(owner, set()).add(place.reference)
        return frozenset(owners)

    def _target(self, found: Workload) -> Target:
        return Target(self._cluster, found.metadata.namespace, found.metadata.name)


def _newer(found: Found, known: Found | None) -> Found:
    """A watch may still tell what our own request has overtaken."""
    if known is None or known.marks.uid != found.marks.uid:
        return found
    return known if _order(known.marks) > _order(found.marks) else found


def _order(marks: Marks) -> int:
    """Resource versions of one resource are numbers that rise; what is none orders nothing."""
    version = marks.resource_version
    return int(version) if version.isascii() and version.isdigit() and len(version) <= VERSION_DIGITS_MAX else 0
