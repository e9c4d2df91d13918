"""Keeps the newest state that the log has of clusters, workloads, dependencies, placements and statuses.

A record older than the known one is dropped. So records may come twice, and from owners that lost their turn.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from propagator.core.manifests import (
    BadManifest,
    NamedTemplate,
    earlier_manifest,
    has_earlier_template,
    template_digests_of,
    template_of_part,
    template_with_digest,
)
from spillway.addresses import (
    CLUSTERS,
    DEPENDENCIES,
    PLACEMENTS,
    SHAPES,
    WORKLOAD_STATUS,
    WORKLOADS,
    workload_key,
)
from spillway.events import (
    SHAPE_REFUSED,
    STATE_ORPHANED,
    ClusterJoined,
    ClusterLeft,
    DependencyDeclared,
    Event,
    PlacementDecided,
    ShapeAdmitted,
    WorkloadDeclared,
    WorkloadObserved,
)
from spillway.model import NO_GENERATION, Generation, Part


class PartTarget(NamedTuple):
    """One workload in one cluster."""

    cluster: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class WantedState:
    """The state that the log wants for one workload in one cluster.

    lacking: a text with the record that must be read before anybody may act; empty when no record is missing.
    joined_at: the generation at which the cluster joined.
    """

    target: PartTarget
    part: Part
    declaration: WorkloadDeclared | None
    dependencies: tuple[DependencyDeclared, ...]
    lacking: str
    joined_at: Generation = NO_GENERATION


@dataclass(frozen=True, slots=True)
class TouchedTargets:
    """The effect of one record.

    targets: the targets for which the log may want something else now.
    clusters: whether a cluster joined, left or has a new ClusterJoined.
    """

    targets: frozenset[PartTarget] = frozenset()
    clusters: bool = False


UNTOUCHED = TouchedTargets()


class DesiredState:
    """The newest state in the log. Its methods change only this state, and write nothing."""

    def __init__(self) -> None:
        self.clusters: dict[str, ClusterJoined] = {}
        self._workloads: dict[str, WorkloadDeclared] = {}
        self._dependencies: dict[str, DependencyDeclared] = {}
        self._placements: dict[str, PlacementDecided] = {}
        self._statuses: dict[PartTarget, WorkloadObserved] = {}
        self._parts: dict[PartTarget, Part] = {}
        self._targets_by_cluster: dict[str, set[PartTarget]] = {}
        self.shapes: dict[str, dict[str, ShapeAdmitted]] = {}
        """The last shape in the log, by cluster and by digest of the template."""

    def apply_record(self, topic: str, key: str, event: Event | None) -> TouchedTargets:
        """Applies one record. An event of None is a tombstone of that key."""
        match event:
            case ClusterJoined():
                return self._apply_cluster_joined(event)
            case ClusterLeft():
                return TouchedTargets(clusters=self.clusters.pop(event.cluster, None) is not None)
            case WorkloadDeclared():
                return self._apply_workload_declared(event)
            case DependencyDeclared():
                return self._apply_dependency_declared(key, event)
            case PlacementDecided():
                return self._apply_placement_decided(event)
            case WorkloadObserved():
                self._apply_workload_observed(event)
                return UNTOUCHED
            case ShapeAdmitted():
                self._apply_shape_admitted(event)
                return UNTOUCHED
            case None:
                return self._apply_tombstone(topic, key)
            case _:
                return UNTOUCHED

    @property
    def has_no_placements(self) -> bool:
        """Returns whether the log has no placement at all."""
        return not self._placements

    def targets_in_cluster(self, cluster: str) -> frozenset[PartTarget]:
        """Returns every workload that this cluster has or may still have."""
        return frozenset(self._targets_by_cluster.get(cluster, ()))

    def is_target_listed(self, target: PartTarget) -> bool:
        """Returns whether a placement lists the target."""
        return target in self._parts

    def logged_status(self, target: PartTarget) -> WorkloadObserved | None:
        """Returns the last status that the log has of the target."""
        return self._statuses.get(target)

    def wanted_state(self, target: PartTarget) -> WantedState | None:
        """Returns the state that the log wants for the target; None when no placement lists it.

        With None, nothing may be done for the target. Above all, no object may be deleted.
        """
        part = self._parts.get(target)
        if part is None:
            return None
        joined = self.clusters.get(target.cluster)
        joined_at = (joined.joined_at if joined is not None else None) or NO_GENERATION
        key = workload_key(target.namespace, target.name)
        placement = self._placements[key]
        declaration = self._workloads.get(key)
        if declaration is None or declaration.generation < placement.workload_generation:
            known = "none" if declaration is None else str(declaration.generation)
            lacking = f"the declaration of generation {placement.workload_generation} (known: {known})"
            return WantedState(target, part, declaration, (), lacking, joined_at)
        if has_earlier_template(declaration, part) and earlier_manifest(declaration, part) is None:
            lacking = f"the template of generation {part.template_generation}, which the declaration does not have"
            return WantedState(target, part, declaration, (), lacking, joined_at)
        found, lacking = self._dependencies_of(declaration)
        return WantedState(target, part, declaration, found, lacking, joined_at)

    def wanted_template(self, target: PartTarget) -> NamedTemplate | None:
        """Returns the pod template that should run at the target.

        Returns None when no pod should run there, or when the template cannot be read yet.
        """
        wanted = self.wanted_state(target)
        if wanted is None or wanted.declaration is None or wanted.part.removing or wanted.part.disowning:
            return None
        declaration, part = wanted.declaration, wanted.part
        if has_earlier_template(declaration, part) and earlier_manifest(declaration, part) is None:
            return None
        try:
            return template_of_part(declaration, part)
        except BadManifest:
            return None

    def declared_template_digests(self) -> frozenset[str]:
        """Returns the digests of every pod template that is declared."""
        return frozenset(digest for declared in self._workloads.values() for digest in template_digests_of(declared))

    def hindered_templates(self, cluster: str) -> Iterator[NamedTemplate]:
        """Yields the declared pod templates that are hindered in this cluster.

        By its last answer, the cluster refuses their pods or lacks an object that they name.
        """
        said = self.shapes.get(cluster, {}).values()
        wanted = {one.template for one in said if one.state == SHAPE_REFUSED or one.missing}
        for declared in self._workloads.values() if wanted else ():
            for digest in wanted & template_digests_of(declared):
                template = template_with_digest(digest, declared)
                if template is not None:
                    wanted.discard(digest)
                    yield template

    def targets_of_obsolete_statuses(self) -> frozenset[PartTarget]:
        """Returns the targets whose status must be deleted, because nobody will write one for them again.

        These are targets without a placement. The status of an orphan is deleted by the worker of its cluster, and here
        only once the cluster left.
        """
        return frozenset(
            target
            for target, status in self._statuses.items()
            if (
                target.cluster not in self.clusters
                if status.state == STATE_ORPHANED
                else workload_key(target.namespace, target.name) not in self._placements
            )
        )

    def obsolete_shapes(self) -> list[tuple[str, str]]:
        """Returns cluster and digest of the shapes that must be deleted, because their cluster left. Sorted."""
        gone = sorted(cluster for cluster in self.shapes if cluster not in self.clusters)
        return [(cluster, digest) for cluster in gone for digest in self.shapes[cluster]]

    def logged_orphans(self, cluster: str) -> frozenset[PartTarget]:
        """Returns the targets in this cluster whose last status in the log says that they are orphans."""
        return frozenset(
            target
            for target, status in self._statuses.items()
            if target.cluster == cluster and status.state == STATE_ORPHANED
        )

    def _dependencies_of(self, declaration: WorkloadDeclared) -> tuple[tuple[DependencyDeclared, ...], str]:
        """Returns the dependencies of the declaration, or the text of the first record that is still missing.

        A dependency keeps the generation in which it changed last, so an older generation than the declaration's is
        fine.
        """
        owner = workload_key(declaration.namespace, declaration.name)
        found = []
        for reference in declaration.dependencies:
            dependency = self._dependencies.get(f"{reference.kind}/{reference.namespace}/{reference.name}")
            if dependency is None or dependency.workload != owner or not dependency.manifest:  # No longer listed.
                return (), f"{reference.kind} {reference.namespace}/{reference.name}, which the declaration lists"
            if dependency.workload_generation > declaration.generation:
                return (
                    (),
                    f"the declaration of generation {dependency.workload_generation}, which changed {reference.kind}",
                )
            found.append(dependency)
        return tuple(found), ""

    def _apply_cluster_joined(self, event: ClusterJoined) -> TouchedTargets:
        changed = self.clusters.get(event.cluster) != event
        self.clusters[event.cluster] = event
        return TouchedTargets(clusters=changed)

    def _apply_workload_declared(self, event: WorkloadDeclared) -> TouchedTargets:
        key = workload_key(event.namespace, event.name)
        known = self._workloads.get(key)
        if known is not None and known.generation > event.generation:
            return UNTOUCHED
        self._workloads[key] = event
        return self._targets_of_workload(key) if known != event else UNTOUCHED

    def _apply_dependency_declared(self, key: str, event: DependencyDeclared) -> TouchedTargets:
        known = self._dependencies.get(key)
        if (
            known is not None
            and known.workload == event.workload
            and known.workload_generation > (event.workload_generation)
        ):
            return UNTOUCHED
        if known is not None and known.workload != event.workload and not event.manifest:
            return UNTOUCHED  # The two owners may be in different partitions.
        self._dependencies[key] = event
        if known == event:
            return UNTOUCHED
        before = self._targets_of_workload(known.workload).targets if known else frozenset()
        return TouchedTargets(before | self._targets_of_workload(event.workload).targets)

    def _apply_placement_decided(self, event: PlacementDecided) -> TouchedTargets:
        key = workload_key(event.namespace, event.name)
        known = self._placements.get(key)
        if known is not None and known.generation >= event.generation:
            return UNTOUCHED
        before = {_target_of_part(known, part): part for part in known.parts} if known else {}
        after = {_target_of_part(event, part): part for part in event.parts}
        self._placements[key] = event
        self._unlist_targets(before.keys() - after.keys())
        for target, part in after.items():
            self._parts[target] = part
            self._targets_by_cluster.setdefault(target.cluster, set()).add(target)
        # Parts that did not change are touched, too: they may have waited for this newer generation of the workload.
        return TouchedTargets(frozenset(before.keys() | after.keys()))

    def _apply_workload_observed(self, event: WorkloadObserved) -> None:
        target = PartTarget(event.cluster, event.namespace, event.name)
        known = self._statuses.get(target)
        if known is None or (known.epoch, known.sequence) <= (event.epoch, event.sequence):
            self._statuses[target] = event

    def _apply_shape_admitted(self, event: ShapeAdmitted) -> None:
        known = self.shapes.setdefault(event.cluster, {})
        before = known.get(event.template)
        if before is None or (before.epoch, before.sequence) <= (event.epoch, event.sequence):
            known[event.template] = event

    def _apply_tombstone(self, topic: str, key: str) -> TouchedTargets:
        if topic == PLACEMENTS.name:
            placement = self._placements.pop(key, None)
            gone = frozenset(_target_of_part(placement, part) for part in placement.parts) if placement else frozenset()
            self._unlist_targets(gone)
            return TouchedTargets(gone)
        if topic == WORKLOADS.name:
            self._workloads.pop(key, None)
            return self._targets_of_workload(key)
        if topic == DEPENDENCIES.name:
            dependency = self._dependencies.pop(key, None)
            return self._targets_of_workload(dependency.workload) if dependency else UNTOUCHED
        if topic == CLUSTERS.name:
            return TouchedTargets(clusters=self.clusters.pop(key, None) is not None)
        if topic == SHAPES.name:
            digest, _, cluster = key.partition("/")
            self.shapes.get(cluster, {}).pop(digest, None)
        if topic == WORKLOAD_STATUS.name and (target := target_of_status_key(key)) is not None:
            self._statuses.pop(target, None)
        return UNTOUCHED

    def _unlist_targets(self, targets: Iterable[PartTarget]) -> None:
        for target in targets:
            self._parts.pop(target, None)
            self._targets_by_cluster.get(target.cluster, set()).discard(target)

    def _targets_of_workload(self, workload: str) -> TouchedTargets:
        placement = self._placements.get(workload)
        return (
            TouchedTargets(frozenset(_target_of_part(placement, part) for part in placement.parts))
            if placement
            else UNTOUCHED
        )


def target_of_status_key(key: str) -> PartTarget | None:
    """Returns the target of a workload-status key; None for the key of a claim, which is a cluster's name."""
    if key.count("/") != 2:
        return None
    namespace, name, cluster = key.split("/")
    return PartTarget(cluster, namespace, name)


def is_from_former_turn(event: WorkloadObserved | ShapeAdmitted, epoch: int) -> bool:
    """Returns whether an instance wrote the record whose turn at the cluster was over, so that its words do not stand.

    epoch: of the present turn at the event's cluster. The present owner publishes its own record again behind this one.
    """
    return event.epoch < epoch


def _target_of_part(placement: PlacementDecided, part: Part) -> PartTarget:
    return PartTarget(part.cluster, placement.namespace, placement.name)
