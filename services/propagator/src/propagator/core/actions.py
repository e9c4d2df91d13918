"""What can be done next about one workload in one cluster, and the rules that choose it."""

from collections.abc import Iterable
from dataclasses import dataclass

from propagator.core.desired import Target
from propagator.core.live import LiveWorkload, Marks, Reference
from propagator.core.manifests import Manifest, workload_label
from spillway.events import STATE_DEPENDENCY_MISSING, JobEnd
from spillway.model import ObjectReference, Part
from spillway.texts import counted, object_name

ERROR_CHARACTERS_MAX = 300
FINALIZERS_SHOWN = 3
FINALIZER_CHARACTERS = 100


@dataclass(frozen=True, slots=True)
class Rules:
    """What the owner of this fleet has chosen.

    The maxima are of one part within the window, creations_max of one version.
    """

    fleet: str
    create_namespaces: bool = True
    corrections_max: int = 3
    creations_max: int = 10
    window_seconds: float = 600.0


@dataclass(frozen=True, slots=True)
class Create:
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class Apply:
    """corrects: somebody else had changed it since it was right at this version."""

    manifest: Manifest
    resource_version: str
    corrects: bool


@dataclass(frozen=True, slots=True)
class PatchReplicas:
    """As Apply, of an object that was written with this manifest already: its replicas and its version, alone."""

    change: Manifest
    resource_version: str
    corrects: bool


@dataclass(frozen=True, slots=True)
class ScaleDown:
    """Fewer replicas of the template that the object has, and nothing else: it stays at its version, for its part is
    not carried out. corrects: somebody had changed its replicas since we wrote them."""

    change: Manifest
    resource_version: str
    corrects: bool


@dataclass(frozen=True, slots=True)
class Delete:
    uid: str
    resource_version: str


@dataclass(frozen=True, slots=True)
class EnsureNamespace:
    name: str


@dataclass(frozen=True, slots=True)
class ApplyDependency:
    """resource_version empty: it is to be created."""

    reference: Reference
    manifest: Manifest
    resource_version: str


@dataclass(frozen=True, slots=True)
class DeleteDependency:
    reference: Reference
    uid: str
    resource_version: str


@dataclass(frozen=True, slots=True)
class Look:
    """Find out which of these exist, then ask again."""

    references: frozenset[Reference]


@dataclass(frozen=True, slots=True)
class Report:
    """Nothing is done; the state and message are said, and what can pass by itself is tried again later.

    seconds: after which what is not tried again by its state is; 0: never. missing: what the cluster lacks.
    job: of Ended, how the Job ended.
    """

    state: str
    message: str
    seconds: float = 0.0
    missing: tuple[ObjectReference, ...] = ()
    job: JobEnd | None = None


def lacks(missing: Iterable[Reference], namespace: str, note: str = "") -> Report:
    """What the template names, or its namespace, is not there. note: for people, why it does not come about."""
    named = tuple(one.within(namespace) for one in sorted(missing))
    return Report(STATE_DEPENDENCY_MISSING, f"missing: {', '.join(map(object_name, named))}{note}", missing=named)


@dataclass(frozen=True, slots=True)
class Hold:
    """Nothing is done until something is read, or for at most this long when seconds is not 0.

    lasting: it does not pass by itself, so it is said at once; others are said once they last.
    """

    reason: str
    seconds: float = 0.0
    lasting: bool = False


def hold_while_deleted(marks: Marks, what: str) -> Hold:
    """Until it is gone; for people with the first of the finalizers that keep it."""
    kept_by = ", ".join(name[:FINALIZER_CHARACTERS] for name in marks.finalizers[:FINALIZERS_SHOWN])
    return Hold(f"{what} is being deleted" + (f", and kept by its finalizers: {kept_by}" if kept_by else ""))


def above(found: LiveWorkload, part: Part) -> Hold:
    """Of an object that bears a higher version than its part: a newer placement, of which the log does not tell."""
    differs = found.spec_replicas != part.replicas and not part.adopting and not part.disowning
    numbers = f": it has {counted(found.spec_replicas)}, {part.replicas} decided" if differs else ""
    return Hold(f"the object is at {found.version}, above {part.version}{numbers}", lasting=True)


def bug_met(error: str) -> Hold:
    """The action for an object at which an error of our own was met: leave it as it is and try again."""
    return Hold(f"propagator met an error of its own at it: {error[:ERROR_CHARACTERS_MAX]}", lasting=True)


@dataclass(frozen=True, slots=True)
class Nothing:
    """All is as it should be."""


@dataclass(frozen=True, slots=True)
class PatchMarks:
    """Labels and annotation of the object, and nothing else of it; null removes one."""

    change: Manifest
    resource_version: str


@dataclass(frozen=True, slots=True)
class PatchDependencyMarks:
    reference: Reference
    change: Manifest
    resource_version: str


@dataclass(frozen=True, slots=True)
class ReadAfresh:
    """What is known came from a watch of labelled objects, and that is not enough. kind: of the object to be read."""

    kind: str


@dataclass(frozen=True, slots=True)
class LookForRivals:
    """Find out who else sets the replicas, then ask again."""


ObjectWrite = Create | Apply | PatchReplicas | ScaleDown | PatchMarks | Delete
DependencyWrite = ApplyDependency | PatchDependencyMarks | DeleteDependency
Write = ObjectWrite | DependencyWrite | EnsureNamespace
Question = Look | LookForRivals | ReadAfresh
Action = Write | Question | Report | Hold | Nothing

NOTHING = Nothing()


def is_ours(marks: Marks, target: Target, fleet: str) -> bool:
    return marks.fleet == fleet and marks.workload == workload_label(target.name)


def owner_of(marks: Marks, rules: Rules) -> str:
    if not marks.fleet:
        return "is not this fleet's"
    if marks.fleet != rules.fleet:
        return f"belongs to fleet {marks.fleet}"
    return f"belongs to workload {marks.workload or '(none)'}"
