"""Describes one workload as a cluster has it: its object, its dependencies, and which other objects were looked up."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from propagator.core.kinds import DEPLOYMENT, JOB, KINDS, STATEFULSET
from spillway.events import JobEnd
from spillway.kubernetes.objects import AnyObject, Deployment, Job, StatefulSet, job_end_condition
from spillway.model import NO_GENERATION, Generation, ObjectReference

LABEL_FLEET = "spillway.io/fleet"
LABEL_WORKLOAD = "spillway.io/workload"
ANNOTATION_PLACEMENT = "spillway.io/placement"
ANNOTATION_MANIFEST = "spillway.io/manifest"
ANNOTATION_DECLARATION = "spillway.io/declaration"

COUNTER_DIGITS_MAX: Final = 18
COUNTER_MAX: Final = 10**COUNTER_DIGITS_MAX - 1
"""The largest number that is read from an annotation. It fits into an int64, and no real number of ours reaches it."""


IN_NO_NAMESPACE: Final = frozenset(("Namespace", "PriorityClass", "RuntimeClass"))


class DependencyReference(NamedTuple):
    """The kind and name of an object in a cluster. It is in the workload's namespace or, for some kinds, in none."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"

    def to_object_reference(self, namespace: str) -> ObjectReference:
        """Returns the reference with its namespace: the workload's, or none for kinds without one."""
        return ObjectReference(self.kind, "" if self.kind in IN_NO_NAMESPACE else namespace, self.name)


@dataclass(frozen=True, slots=True)
class ObjectMarks:
    """The owner and the identity of an object. Without fleet and workload, the object has no owner that we know.

    finalizers: the finalizers that must be removed before a deleted object disappears.
    """

    uid: str
    resource_version: str
    fleet: str
    workload: str
    deleting: bool
    finalizers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LiveWorkload:
    """A workload's object as the cluster has it.

    spec_replicas: its replicas; the parallelism of a Job.
    updated: the replicas with the newest template; 0 until the controller has observed the current generation. For a
        Job, all active pods.
    job: how the Job ended.
    manifest: the digest of the manifest written last; empty when unknown.
    generation: metadata.generation.
    """

    marks: ObjectMarks
    version: Generation
    spec_replicas: int
    replicas: int
    updated: int
    ready: int
    available: int
    kind: str = DEPLOYMENT
    job: JobEnd | None = None
    manifest: str = ""
    generation: int = 0


@dataclass(frozen=True, slots=True)
class LiveDependency:
    """A workload's ConfigMap or Service as the cluster has it.

    declaration: (workload generation, digest) that was applied, from the annotation; (-1, "") when unreadable.
    manifest: the whole object, if it was read and belongs to no fleet.
    """

    marks: ObjectMarks
    declaration: tuple[int, str]
    manifest: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class LiveState:
    """The known state of one workload in one cluster.

    looked: for each reference that was looked up, whether the object exists.
    read: True if it was read from the cluster for this purpose, and not from a watch of labelled objects.
    spec: the object's spec without replicas; known only when read.
    managed: the object's managedFields; known only when read.
    replicas_managers: the field managers of spec.replicas; known only when read.
    rivals: the names of others that set the replicas, as texts for users; None before they were looked for.
    """

    workload: LiveWorkload | None = None
    dependencies: Mapping[DependencyReference, LiveDependency] = field(default_factory=dict)
    looked: Mapping[DependencyReference, bool] = field(default_factory=dict)
    read: bool = False
    spec: Mapping[str, Any] | None = None
    managed: tuple[Mapping[str, Any], ...] = ()
    replicas_managers: tuple[str, ...] = ()
    rivals: tuple[str, ...] | None = None

    def with_dependency(self, reference: DependencyReference, dependency: LiveDependency | None) -> "LiveState":
        others = {known: value for known, value in self.dependencies.items() if known != reference}
        return replace(self, dependencies=others if dependency is None else {**others, reference: dependency})

    def with_lookup_results(self, looked: Mapping[DependencyReference, bool]) -> "LiveState":
        return replace(self, looked={**self.looked, **looked})


def parse_version_annotation(annotation: str) -> Generation:
    """Returns the version that an annotation has, or NO_GENERATION when it is unreadable.

    Anybody may write annotations. A number above every real one becomes COUNTER_MAX: the object is then above its part,
    and is left alone like any other such object.
    """
    epoch, _, sequence = map(_parse_counter, annotation.partition("."))
    return NO_GENERATION if epoch is None or sequence is None else Generation(epoch, sequence)


def _parse_counter(text: str) -> int | None:
    """Returns the number, COUNTER_MAX at most; None for a text that is no number."""
    if not (text.isascii() and text.isdigit()):
        return None
    digits = text.lstrip("0") or "0"
    return int(digits) if len(digits) <= COUNTER_DIGITS_MAX else COUNTER_MAX


def workload_from_struct(found: Deployment | StatefulSet | Job) -> LiveWorkload:
    """Reads an object that a watch delivered."""
    meta = found.metadata
    marks = ObjectMarks(
        uid=meta.uid,
        resource_version=meta.resource_version,
        fleet=meta.labels.get(LABEL_FLEET, ""),
        workload=meta.labels.get(LABEL_WORKLOAD, ""),
        deleting=meta.deletion_timestamp is not None,
        finalizers=tuple(meta.finalizers),
    )
    version = parse_version_annotation(meta.annotations.get(ANNOTATION_PLACEMENT, ""))
    manifest = meta.annotations.get(ANNOTATION_MANIFEST, "")
    if isinstance(found, Job):
        end = job_end_condition((one.type, one.status) for one in found.status.conditions)
        counts = (found.status.active, found.status.ready, found.status.succeeded)
        job = _live_job(marks, version, found.spec.parallelism, counts, end)
        return replace(job, manifest=manifest, generation=meta.generation)
    status = found.status
    return LiveWorkload(
        marks=marks,
        version=version,
        spec_replicas=found.spec.replicas,
        replicas=status.replicas,
        updated=status.updated_replicas if status.observed_generation >= meta.generation else 0,
        ready=status.ready_replicas,
        available=status.available_replicas,
        kind=STATEFULSET if isinstance(found, StatefulSet) else DEPLOYMENT,
        manifest=manifest,
        generation=meta.generation,
    )


def workload_from_manifest(manifest: Mapping[str, Any], kind: str) -> LiveWorkload:
    """Reads an object from the answer to a request.

    kind: the kind that was asked for; the answer may name another one.
    """
    status = manifest.get("status") or {}
    given = (manifest.get("spec") or {}).get(KINDS[kind].replicas)
    replicas = 1 if given is None else int(given)
    marks, version = (
        _marks_from_manifest(manifest),
        parse_version_annotation(_read_annotation(manifest, ANNOTATION_PLACEMENT)),
    )
    written, generation = (
        _read_annotation(manifest, ANNOTATION_MANIFEST),
        int(manifest["metadata"].get("generation", 0)),
    )
    if kind == JOB:
        end = job_end_condition((one["type"], one["status"]) for one in status.get("conditions") or ())
        active, ready, succeeded = (int(status.get(field, 0)) for field in ("active", "ready", "succeeded"))
        job = _live_job(marks, version, replicas, (active, ready, succeeded), end)
        return replace(job, manifest=written, generation=generation)
    seen = int(status.get("observedGeneration", 0)) >= generation
    return LiveWorkload(
        marks=marks,
        version=version,
        spec_replicas=replicas,
        replicas=int(status.get("replicas", 0)),
        updated=int(status.get("updatedReplicas", 0)) if seen else 0,
        ready=int(status.get("readyReplicas", 0)),
        available=int(status.get("availableReplicas", 0)),
        kind=kind,
        manifest=written,
        generation=generation,
    )


def _live_job(
    marks: ObjectMarks, version: Generation, parallelism: int, counts: tuple[int, int, int], end: str
) -> LiveWorkload:
    active, ready, succeeded = counts
    job = JobEnd(end, succeeded) if end else None
    return LiveWorkload(marks, version, parallelism, active, active, ready, ready, JOB, job)


def ownership_labels_of(manifest: Mapping[str, Any]) -> dict[str, str]:
    """Returns our two labels of an object, with an empty value for one that is not there."""
    labels = manifest["metadata"].get("labels") or {}
    return {name: str(labels.get(name, "")) for name in (LABEL_FLEET, LABEL_WORKLOAD)}


def managed_fields(manifest: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """Returns the entries of managedFields that can be read."""
    entries = manifest["metadata"].get("managedFields")
    return tuple(entry for entry in entries if isinstance(entry, dict)) if isinstance(entries, list) else ()


def replicas_managers(manifest: Mapping[str, Any], kind: str) -> tuple[str, ...]:
    """Returns the field managers that own the number of replicas, as "manager" or "manager (subresource)"."""
    found = set()
    field = f"f:{KINDS[kind].replicas}"
    for entry in managed_fields(manifest):
        owned = entry.get("fieldsV1")
        fields = owned.get("f:spec") if isinstance(owned, dict) else None
        if isinstance(fields, dict) and field in fields:
            through = entry.get("subresource", "")
            found.add(f"{entry.get('manager', '?')} ({through})" if through else str(entry.get("manager", "?")))
    return tuple(sorted(found))


def dependency_from_struct(found: AnyObject) -> LiveDependency:
    meta = found.metadata
    return LiveDependency(
        marks=ObjectMarks(
            uid=meta.uid,
            resource_version=meta.resource_version,
            fleet=meta.labels.get(LABEL_FLEET, ""),
            workload=meta.labels.get(LABEL_WORKLOAD, ""),
            deleting=meta.deletion_timestamp is not None,
            finalizers=tuple(meta.finalizers),
        ),
        declaration=_parse_declaration_annotation(meta.annotations.get(ANNOTATION_DECLARATION, "")),
    )


def dependency_from_manifest(manifest: Mapping[str, Any]) -> LiveDependency:
    marks = _marks_from_manifest(manifest)
    declaration = _parse_declaration_annotation(_read_annotation(manifest, ANNOTATION_DECLARATION))
    return LiveDependency(marks, declaration, None if marks.fleet else manifest)


def _marks_from_manifest(manifest: Mapping[str, Any]) -> ObjectMarks:
    meta = manifest["metadata"]
    labels = meta.get("labels") or {}
    return ObjectMarks(
        uid=meta.get("uid", ""),
        resource_version=meta.get("resourceVersion", ""),
        fleet=labels.get(LABEL_FLEET, ""),
        workload=labels.get(LABEL_WORKLOAD, ""),
        deleting=bool(meta.get("deletionTimestamp")),
        finalizers=tuple(str(name) for name in meta.get("finalizers") or ()),
    )


def _read_annotation(manifest: Mapping[str, Any], name: str) -> str:
    return str((manifest["metadata"].get("annotations") or {}).get(name, ""))


def _parse_declaration_annotation(annotation: str) -> tuple[int, str]:
    text, _, digest = annotation.partition(".")
    generation = _parse_counter(text)
    return (-1, "") if generation is None else (generation, digest)
