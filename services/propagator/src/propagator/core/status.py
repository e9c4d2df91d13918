"""Makes the status of a workload in a cluster. Decides whether it differs from the last one, and when to try again."""

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import Final

from propagator.core.desired import PartTarget
from propagator.core.live import DependencyReference, LiveWorkload
from spillway.events import (
    STATE_ABSENT,
    STATE_CONTESTED,
    STATE_DEPENDENCY_MISSING,
    STATE_DISOWNED,
    STATE_ENDED,
    STATE_ORPHANED,
    STATE_PRESENT,
    JobEnd,
    StatusDetails,
    WorkloadObserved,
)
from spillway.model import Generation, ObjectReference
from spillway.pauses import doubled_pause_seconds
from spillway.status_details import (
    NOTHING_TOLD,
    changed_field_text,
    details_of_status,
    hold_text,
    job_end_text,
    join_texts,
    message_without_hold,
)

SETTLED: Final = (STATE_ABSENT, STATE_DISOWNED, STATE_ENDED)
"""States with nothing left to do. They are neither counted as held back nor tried again."""

NOT_TRIED_AGAIN: Final = (*SETTLED, STATE_CONTESTED)
"""States without retries of their own. A contested object is tried again when its Report says so, in Report.seconds."""


@dataclass(frozen=True, slots=True)
class RetryRules:
    """The pauses in seconds between two tries at one object.

    first: the first pause; each further pause doubles. longest: the longest one. missing_longest: the longest one while
    the cluster lacks objects that the workload needs.
    """

    first: float
    longest: float
    missing_longest: float


def retry_seconds(state: str, retries: int, rules: RetryRules) -> float | None:
    """Returns the seconds until the next try after an attempt with this state; None: it has no retries.

    retries: the number of attempts in a row that had the same state before.
    """
    if state in NOT_TRIED_AGAIN:
        return None
    longest = rules.missing_longest if state == STATE_DEPENDENCY_MISSING else rules.longest
    return doubled_pause_seconds(rules.first, longest, retries)


@dataclass(frozen=True, slots=True)
class AttemptOutcome:
    """The result of the last attempt at a version, if it failed or the object is gone. missing, job: as in Report."""

    version: Generation
    state: str
    message: str
    missing: tuple[ObjectReference, ...] = ()
    job: JobEnd | None = None


_content = attrgetter(*(one.name for one in fields(WorkloadObserved) if one.name not in ("epoch", "sequence")))

BESIDE_MAX: Final = 100
"""The most other objects that a status names."""


def observed_status(
    target: PartTarget, found: LiveWorkload | None, outcome: AttemptOutcome | None, kind: str = ""
) -> WorkloadObserved | None:
    """Returns the status that a cluster shows now, without epoch and sequence.

    found: our object, never somebody else's.
    kind: the kind to report when there is no object.

    Returns None while the object is not there yet and no attempt has failed.
    """
    if outcome is None and found is None:
        return None
    state = outcome.state if outcome else STATE_PRESENT
    shown = None if state in (STATE_ABSENT, STATE_DISOWNED) else found
    job = outcome.job if outcome else found.job if found else None
    message = outcome.message if outcome else job_end_text(job)
    return WorkloadObserved(
        namespace=target.namespace,
        name=target.name,
        cluster=target.cluster,
        epoch=0,
        sequence=0,
        version=outcome.version if outcome else found.version if found else Generation(0, 0),
        state=state,
        message=message,
        spec_replicas=shown.spec_replicas if shown else 0,
        replicas=shown.replicas if shown else 0,
        updated=shown.updated if shown else 0,
        ready=shown.ready if shown else 0,
        available=shown.available if shown else 0,
        kind=found.kind if found is not None else kind,
        missing=outcome.missing if outcome else (),
        found_version=shown.version if outcome and shown else None,
        details=StatusDetails(job=job) if message else None,
    )


def status_with_changed_field(shown: WorkloadObserved | None, field: str) -> WorkloadObserved | None:
    """Returns the status with the field that somebody changed in the cluster.

    field: a field of the spec; empty for none.
    """
    if shown is None or shown.state != STATE_PRESENT or not field:
        return shown
    details = replace(shown.details or NOTHING_TOLD, changed_field=field)
    return replace(shown, message=join_texts(shown.message, changed_field_text(field)), details=details)


def status_on_hold(
    shown: WorkloadObserved | None, logged: WorkloadObserved | None, target: PartTarget, reason: str
) -> WorkloadObserved:
    """Returns the status of an object that has been on hold for long. shown: its status without the hold.

    The hold is appended to message and details only, because nobody decides by it. If the object does not exist, the
    status is the last one in the log, with no replicas.
    """
    if shown is None and logged is not None and logged.state != STATE_ORPHANED:
        nothing = replace(logged, spec_replicas=0, replicas=0, updated=0, ready=0, available=0, found_version=None)
        shown = replace(nothing, epoch=0, sequence=0)
    if shown is None:
        shown = observed_status(target, None, AttemptOutcome(Generation(0, 0), STATE_ABSENT, ""))
    assert shown is not None, f"{target}: an outcome is always shown"
    details = details_of_status(shown)
    message = join_texts(message_without_hold(shown.message, details), hold_text(reason))
    return replace(shown, message=message, details=replace(details, hold=reason))


def status_with_other_objects(
    shown: WorkloadObserved | None, others: Iterable[DependencyReference]
) -> WorkloadObserved | None:
    """Returns the status with the names of our other objects in the workload's namespace that no placement lists.

    others: these objects, without the one that the status is about.
    """
    named = sorted(others)[:BESIDE_MAX]
    if shown is None or not (named or shown.beside):
        return shown
    return replace(shown, beside=tuple(ObjectReference(one.kind, shown.namespace, one.name) for one in named))


def is_changed_status(current: WorkloadObserved, said: WorkloadObserved | None) -> bool:
    """Returns whether anything but the numbering differs from the last status."""
    return said is None or _content(said) != _content(current)


def has_vanished(*, all_listed: bool, log_read: bool, has_objects: bool, is_placed: bool) -> bool:
    """Returns whether an orphan is gone for certain, so that its status may be deleted.

    all_listed: whether the objects of every kind were listed in the cluster. log_read: whether it is proven that the
    log was read to its end lately. Without either, nothing is certain.
    has_objects: whether the cluster shows objects of the target. is_placed: whether a placement lists it there.
    """
    return all_listed and log_read and not has_objects and not is_placed
