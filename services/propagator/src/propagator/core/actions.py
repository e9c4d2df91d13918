"""Defines the actions that are possible for one workload in one cluster, and the rules that choose between them."""

from collections.abc import Iterable
from dataclasses import dataclass

from propagator.core.desired import PartTarget
from propagator.core.kinds import refused_write_text
from propagator.core.live import DependencyReference, LiveWorkload, ObjectMarks
from propagator.core.manifests import Manifest, workload_label
from spillway.events import STATE_DEPENDENCY_MISSING, STATE_REFUSED, JobEnd
from spillway.model import ObjectReference, Part
from spillway.texts import counted_noun, object_name

ERROR_CHARACTERS_MAX = 300
FINALIZERS_SHOWN = 3
FINALIZER_CHARACTERS = 100


@dataclass(frozen=True, slots=True)
class PropagationRules:
    """The choices of the fleet's operator about writes to clusters.

    corrections_max: the most corrections of one object within the window.
    creations_max: the most creations of one version of an object within the window.
    """

    fleet: str
    create_namespaces: bool = True
    corrections_max: int = 3
    creations_max: int = 10
    window_seconds: float = 600.0


@dataclass(frozen=True, slots=True)
class Create:
    """Creates the workload's object."""

    manifest: Manifest


@dataclass(frozen=True, slots=True)
class Apply:
    """Applies the manifest.

    corrects: True if the object was right at this version, and somebody else has changed it since.
    """

    manifest: Manifest
    resource_version: str
    corrects: bool


@dataclass(frozen=True, slots=True)
class PatchReplicas:
    """Patches only the replicas and the version of an object that was written with this manifest already.

    corrects: as for Apply.
    """

    change: Manifest
    resource_version: str
    corrects: bool


@dataclass(frozen=True, slots=True)
class ScaleDown:
    """Lowers the replicas of an object that keeps its template, and changes nothing else.

    The object stays at its version, because its part is not carried out yet.
    corrects: somebody has changed its replicas since we wrote them.
    """

    change: Manifest
    resource_version: str
    corrects: bool


@dataclass(frozen=True, slots=True)
class Delete:
    """Deletes the workload's object, if it is still the one with this uid and resource version."""

    uid: str
    resource_version: str


@dataclass(frozen=True, slots=True)
class EnsureNamespace:
    """Creates the namespace unless it exists."""

    name: str


@dataclass(frozen=True, slots=True)
class ApplyDependency:
    """Applies a dependency. An empty resource_version means that it does not exist yet."""

    reference: DependencyReference
    manifest: Manifest
    resource_version: str


@dataclass(frozen=True, slots=True)
class DeleteDependency:
    """Deletes a dependency, if it is still the object with this uid and resource version."""

    reference: DependencyReference
    uid: str
    resource_version: str


@dataclass(frozen=True, slots=True)
class Look:
    """Looks up which of these objects exist; the action is chosen again after that."""

    references: frozenset[DependencyReference]


@dataclass(frozen=True, slots=True)
class Report:
    """Does nothing but publish the state and the message. A state that can pass by itself is tried again later.

    seconds: the time until the next try, for a state that has no retry of its own; 0: no try.
    missing: the objects that the cluster lacks.
    job: how the Job ended, for the state Ended.
    """

    state: str
    message: str
    seconds: float = 0.0
    missing: tuple[ObjectReference, ...] = ()
    job: JobEnd | None = None


def missing_objects_report(missing: Iterable[DependencyReference], namespace: str, note: str = "") -> Report:
    """Returns the report for missing objects. note: the reason, for users, why one of them cannot be created."""
    named = tuple(one.to_object_reference(namespace) for one in sorted(missing))
    return Report(STATE_DEPENDENCY_MISSING, f"missing: {', '.join(map(object_name, named))}{note}", missing=named)


@dataclass(frozen=True, slots=True)
class Hold:
    """Waits for a record or an event, or for `seconds` at most if that is not 0.

    lasting: whether the reason cannot pass by itself; then it is published at once. Other reasons are published once
        they have lasted a while.
    """

    reason: str
    seconds: float = 0.0
    lasting: bool = False


def hold_while_deleted(marks: ObjectMarks, what: str) -> Hold:
    """Returns a hold until the object is gone. Its text names, for users, the first finalizers that keep it."""
    kept_by = ", ".join(name[:FINALIZER_CHARACTERS] for name in marks.finalizers[:FINALIZERS_SHOWN])
    return Hold(f"{what} is being deleted" + (f", and kept by its finalizers: {kept_by}" if kept_by else ""))


def hold_for_newer_object(found: LiveWorkload, part: Part) -> Hold:
    """Returns the hold for an object with a higher version than its part. The log lacks the newer placement."""
    differs = found.spec_replicas != part.replicas and not part.adopting and not part.disowning
    numbers = f": it has {counted_noun(found.spec_replicas)}, {part.replicas} decided" if differs else ""
    return Hold(f"the object is at {found.version}, above {part.version}{numbers}", lasting=True)


def hold_after_error(error: str) -> Hold:
    """Returns the hold after an unexpected error of ours: the object stays as it is and is tried again."""
    return Hold(f"propagator met an error of its own at it: {error[:ERROR_CHARACTERS_MAX]}", lasting=True)


@dataclass(frozen=True, slots=True)
class Nothing:
    """Does nothing, because the cluster is as it should be."""


@dataclass(frozen=True, slots=True)
class PatchMarks:
    """Patches labels and annotations of the object and nothing else. A null removes one."""

    change: Manifest
    resource_version: str


@dataclass(frozen=True, slots=True)
class PatchDependencyMarks:
    """Patches labels and annotations of a dependency and nothing else."""

    reference: DependencyReference
    change: Manifest
    resource_version: str


@dataclass(frozen=True, slots=True)
class ReadAfresh:
    """Reads the object of this kind from the cluster, because the watch does not deliver all fields that are needed."""

    kind: str


@dataclass(frozen=True, slots=True)
class LookForRivals:
    """Looks up who else sets the replicas; the action is chosen again after that."""


ObjectWrite = Create | Apply | PatchReplicas | ScaleDown | PatchMarks | Delete
DependencyWrite = ApplyDependency | PatchDependencyMarks | DeleteDependency
Write = ObjectWrite | DependencyWrite | EnsureNamespace
Question = Look | LookForRivals | ReadAfresh
Action = Write | Question | Report | Hold | Nothing
Creation = Look | EnsureNamespace | ApplyDependency | Create
"""The actions that are allowed for an object that was not read, because they cannot change an existing object."""

NOTHING = Nothing()


def needs_read_object(action: Action) -> bool:
    """Returns whether the action is allowed only for an object that was read. If it was not, it is read first."""
    return not isinstance(action, Creation)


def refused_action_report(action: Action, kind: str, words: str) -> Report:
    """Returns the report for a refused write. A namespace that may not be created counts as a missing dependency.

    kind: of the workload. words: the refusal of the cluster's API server.
    """
    if isinstance(action, EnsureNamespace):
        missing = (DependencyReference("Namespace", action.name),)
        return missing_objects_report(missing, action.name, f"; it cannot be created: {words}")
    return Report(STATE_REFUSED, refused_write_text(kind, words))


def is_owned_by_target(marks: ObjectMarks, target: PartTarget, fleet: str) -> bool:
    """Returns whether the marks name this fleet and the target's workload."""
    return marks.fleet == fleet and marks.workload == workload_label(target.name)


def ownership_text(marks: ObjectMarks, rules: PropagationRules) -> str:
    if not marks.fleet:
        return "is not this fleet's"
    if marks.fleet != rules.fleet:
        return f"belongs to fleet {marks.fleet}"
    return f"belongs to workload {marks.workload or '(none)'}"
