"""Chooses the next step that brings a cluster to the state that a part of a placement asks for, by the README's table.

Rows that forbid come before rows that act. So no order of events leads to a write that a later row would refuse.
"""

from dataclasses import dataclass

from propagator.core.actions import (
    NOTHING,
    Action,
    Apply,
    ApplyDependency,
    Create,
    Delete,
    DeleteDependency,
    EnsureNamespace,
    Hold,
    Look,
    LookForRivals,
    Nothing,
    PatchMarks,
    PatchReplicas,
    PropagationRules,
    ReadAfresh,
    Report,
    ScaleDown,
    hold_for_newer_object,
    hold_while_deleted,
    is_owned_by_target,
    missing_objects_report,
    ownership_text,
)
from propagator.core.desired import WantedState
from propagator.core.kinds import KIND_NAMES, KINDS
from propagator.core.live import (
    LABEL_FLEET,
    LABEL_WORKLOAD,
    DependencyReference,
    LiveDependency,
    LiveState,
    LiveWorkload,
    ObjectMarks,
)
from propagator.core.manifests import (
    DEPENDENCY_KINDS,
    BadManifest,
    Manifest,
    declared_spec,
    dependency_manifest,
    generation_and_digest_of,
    has_earlier_template,
    manifest_digest,
    needed_references,
    replicas_and_version_patch,
    replicas_patch,
    workload_label,
    workload_manifest,
)
from propagator.core.status import SETTLED, AttemptOutcome
from propagator.core.takeover import adoption_action, disowning_action
from spillway.events import (
    STATE_ABSENT,
    STATE_CONTESTED,
    STATE_ENDED,
    STATE_NOT_OWNED,
    STATE_ORPHANED,
    STATE_REFUSED,
    DependencyDeclared,
    JobEnd,
    WorkloadObserved,
)
from spillway.kubernetes.live_objects import first_field_not_as_declared
from spillway.model import NO_GENERATION, Generation, Part
from spillway.status_details import details_of_status, is_job_over, job_end_text

_NOT_CONTENT = frozenset({"metadata", "status"})
LEFT_BEHIND = "an object of this name is left from before the cluster joined; it is left as it is"
NOT_RUN_AGAIN = "; somebody deleted the Job, and it is not run again: delete and apply it to run it anew"


@dataclass(frozen=True, slots=True)
class WriteHistory:
    """The writes made for one part of a placement. All times are seconds of one monotonic clock.

    These three are about one version, and begin again with the next one:
    version: the version.
    written: whether the object was seen or made right at this version.
    creations: the times at which the object was created.

    The others are kept for all versions:
    corrections: the times at which the object was corrected.
    right: the replicas that the object had, or was given, when it was last right; None before.
    highest: the highest version known of the object from any source.
    ended: how the object's Job ended; None when it did not.
    changed: the first field of the object's spec that somebody changed since it was written.
    compared: the generation of the object for which `changed` is known.
    """

    version: Generation = NO_GENERATION
    written: bool = False
    creations: tuple[float, ...] = ()
    corrections: tuple[float, ...] = ()
    right: int | None = None
    highest: Generation = NO_GENERATION
    ended: JobEnd | None = None
    changed: str = ""
    compared: int = 0


def next_action(
    wanted: WantedState, live: LiveState, history: WriteHistory, now: float, rules: PropagationRules
) -> Action:
    """Returns the action of the first row of the state table that fits."""
    if wanted.part.removing:
        return _removal_action(wanted, live, rules)
    if wanted.part.disowning:
        return disowning_action(wanted, live, rules)
    if wanted.lacking:
        return Hold(f"waiting for {wanted.lacking}")
    unsupported = _refusal_if_unsupported(wanted)
    if unsupported is not None:
        return unsupported
    try:
        if wanted.part.adopting:
            return adoption_action(wanted, live, rules)
        return (
            _action_if_write_forbidden(wanted, live, history, rules)
            or _dependency_action(wanted, live, rules)
            or _workload_action(wanted, live, history, now, rules)
        )
    except BadManifest as error:
        return Report(STATE_REFUSED, str(error))


def is_attempt_needed(outcome: AttemptOutcome | None, version: Generation, errors: int, *, asked: bool) -> bool:
    """Returns whether an attempt at a part must begin now, if next_action() has work for it.

    An attempt that failed at this version, or met unexpected errors, is not repeated before its pause is over.
    outcome: of the last attempt. version: of the part. errors: the number of unexpected errors in a row.
    asked: whether the log may want something else now. Then the pause is not waited for.
    """
    is_paused = outcome is not None and outcome.version == version and outcome.state not in SETTLED
    return asked or not (is_paused or errors)


def history_after_action(
    history: WriteHistory, wanted: WantedState, live: LiveState, action: Action, now: float, rules: PropagationRules
) -> WriteHistory:
    """Returns the history after an action was chosen (Report, Hold, Nothing) or carried out (all others)."""
    version = wanted.part.version
    found, highest = live.workload, history.highest
    ended = None if wanted.part.removing else history.ended
    if found is not None and is_owned_by_target(found.marks, wanted.target, rules.fleet):
        highest = max(highest, found.version)
        ended = found.job if is_job_over(found.job) else None
    changed, compared = _find_changed_field(history, wanted, live, rules)
    known = history.version == version
    written, right = known and history.written, history.right
    creations, corrections = history.creations if known else (), history.corrections
    if isinstance(action, Apply | PatchReplicas | Create | Nothing | PatchMarks):
        written, right = True, None if wanted.part.adopting else wanted.part.replicas
    elif isinstance(action, ScaleDown):
        right = wanted.part.replicas
    match action:
        case Apply(corrects=True) | PatchReplicas(corrects=True) | ScaleDown(corrects=True):
            corrections = (*_times_in_window(corrections, now, rules), now)
        case Create():
            creations = (*_times_in_window(creations, now, rules), now)
    return WriteHistory(version, written, creations, corrections, right, highest, ended, changed, compared)


def history_from_status(status: WorkloadObserved | None, now: float, rules: PropagationRules) -> WriteHistory:
    """Returns the history that a new owner starts with, from the last status of the owner before.

    For a contested part the window starts again.
    """
    if status is None:
        return WriteHistory()
    contested = status.state == STATE_CONTESTED
    details = details_of_status(status)
    return WriteHistory(
        version=status.version,
        written=contested,
        corrections=(now,) * rules.corrections_max if contested else (),
        highest=status.version,
        ended=details.job if is_job_over(details.job) else None,
        changed=details.changed_field,
    )


def _find_changed_field(
    history: WriteHistory, wanted: WantedState, live: LiveState, rules: PropagationRules
) -> tuple[str, int]:
    """Returns the first field that somebody changed since the last write, and the generation of the object compared."""
    found, declaration, part = live.workload, wanted.declaration, wanted.part
    gone = found is None or not is_owned_by_target(found.marks, wanted.target, rules.fleet)
    if found is None or gone or declaration is None or part.removing or wanted.lacking:
        return "", 0
    if live.spec is None:
        return history.changed, history.compared or found.generation
    try:
        same = found.manifest == manifest_digest(declaration, part)
        return first_field_not_as_declared(
            declared_spec(declaration, part), live.spec, "spec"
        ) if same else "", found.generation
    except BadManifest:
        return "", found.generation


def _removal_action(wanted: WantedState, live: LiveState, rules: PropagationRules) -> Action:
    found = live.workload
    if found is not None and is_owned_by_target(found.marks, wanted.target, rules.fleet):
        if _is_left_behind(found, wanted):
            return Report(STATE_ABSENT, LEFT_BEHIND)
        if found.version > wanted.part.version:
            return hold_for_newer_object(found, wanted.part)
        if found.marks.deleting:
            return hold_while_deleted(found.marks, "the object")
        return Delete(found.marks.uid, found.marks.resource_version)
    deletion = _dependency_deletion(wanted, live, frozenset(), rules)
    if deletion is not None:
        return deletion
    message = "" if found is None else "an object of this name is there and is not ours; it is left as it is"
    return Report(STATE_ABSENT, message)


def _is_left_behind(found: LiveWorkload, wanted: WantedState) -> bool:
    """Returns whether a placement wrote the object before the cluster joined. Such a placement was given up."""
    return NO_GENERATION < found.version < wanted.joined_at


def _refusal_if_unsupported(wanted: WantedState) -> Report | None:
    """Returns a refusal when this version of the service cannot carry out the declaration at all; None when it can."""
    declaration = wanted.declaration
    if declaration is not None and declaration.kind not in KINDS:
        return Report(STATE_REFUSED, f"kind {declaration.kind}: only {KIND_NAMES} can be placed")
    for dependency in wanted.dependencies:
        name = f"{dependency.kind} {dependency.namespace}/{dependency.name}"
        if dependency.kind not in DEPENDENCY_KINDS:
            return Report(STATE_REFUSED, f"{name}: only {' and '.join(DEPENDENCY_KINDS)} go along with a workload")
        if dependency.namespace != wanted.target.namespace:
            return Report(STATE_REFUSED, f"{name}: expected the workload's namespace {wanted.target.namespace}")
    return None


def _action_if_write_forbidden(
    wanted: WantedState, live: LiveState, history: WriteHistory, rules: PropagationRules
) -> Action | None:
    """Returns the action when the object itself forbids any write for it; None when it does not."""
    found, version = live.workload, wanted.part.version
    if found is None:
        if history.highest > version:
            return Hold(f"version {history.highest} was seen, above {version}")
        ended = history.ended
        return Report(STATE_ENDED, f"{job_end_text(ended)}{NOT_RUN_AGAIN}", job=ended) if ended is not None else None
    if not is_owned_by_target(found.marks, wanted.target, rules.fleet):
        return Report(
            STATE_NOT_OWNED, f"{found.kind} {wanted.target.name} exists and {ownership_text(found.marks, rules)}"
        )
    if _is_left_behind(found, wanted):
        return Report(STATE_ORPHANED, LEFT_BEHIND)
    if found.version > version:
        return hold_for_newer_object(found, wanted.part)
    if found.marks.deleting:
        return hold_while_deleted(found.marks, "the object")
    return None


def _dependency_action(wanted: WantedState, live: LiveState, rules: PropagationRules) -> Action | None:
    for dependency in wanted.dependencies:
        reference = DependencyReference(dependency.kind, dependency.name)
        found = live.dependencies.get(reference)
        if found is None:
            return _namespace_action(wanted, live, rules) or _dependency_creation(dependency, rules)
        if not is_owned_by_target(found.marks, wanted.target, rules.fleet):
            other = _find_differing_field(dependency, found)
            if not other and not found.marks.deleting:
                continue  # The content that was asked for exists; the owner does not matter.
            text = f"{reference} exists and {ownership_text(found.marks, rules)}"
            if found.manifest and other:
                text += f"; declared otherwise: {other}; {_hand_over_command(reference, wanted, rules)}"
            return Report(STATE_NOT_OWNED, text)
        if found.marks.deleting:
            return hold_while_deleted(found.marks, str(reference))
        if _is_at_earlier_template(wanted):
            continue
        declared = generation_and_digest_of(dependency)
        if _must_apply(found, declared):
            manifest = _manifest_with_uid(dependency_manifest(dependency, rules.fleet), found.marks)
            return ApplyDependency(reference, manifest, found.marks.resource_version)
    return None


def _hand_over_command(reference: DependencyReference, wanted: WantedState, rules: PropagationRules) -> str:
    """Returns the command that hands an unowned object to us, so that we may overwrite it with the declared one."""
    target = wanted.target
    marks = f"{LABEL_FLEET}={rules.fleet} {LABEL_WORKLOAD}={workload_label(target.name)}"
    label = f"kubectl label {reference.kind.lower()} {reference.name} -n {target.namespace} {marks}"
    return f"`{label}` there hands it over"


def _find_differing_field(dependency: DependencyDeclared, found: LiveDependency) -> str:
    """Returns the first field, apart from metadata and status, that differs from the declared one, or an empty text.

    A ConfigMap also differs by fields that only the object has, because a pod may take all its keys.
    """
    if found.manifest is None:
        return "marks"
    declared = {key: value for key, value in dependency_manifest(dependency, "").items() if key not in _NOT_CONTENT}
    there = {key: value for key, value in found.manifest.items() if key not in _NOT_CONTENT}
    unlike = first_field_not_as_declared(declared, there, "")
    return (
        unlike or (first_field_not_as_declared(there, declared, "") if dependency.kind == "ConfigMap" else "")
    ).removeprefix(".")


def _is_at_earlier_template(wanted: WantedState) -> bool:
    """Returns whether the cluster still has an earlier template.

    The dependencies already belong to the newest template, so they stay as they are there.
    """
    return wanted.declaration is not None and has_earlier_template(wanted.declaration, wanted.part)


def _must_apply(found: LiveDependency, declared: tuple[int, str]) -> bool:
    """Returns whether the declaration is newer than the applied one, or another text at the same generation."""
    return found.declaration[0] < declared[0] or (
        found.declaration[0] == declared[0] and found.declaration[1] != declared[1]
    )


def _dependency_creation(dependency: DependencyDeclared, rules: PropagationRules) -> ApplyDependency:
    manifest = dependency_manifest(dependency, rules.fleet)
    return ApplyDependency(DependencyReference(dependency.kind, dependency.name), manifest, "")


def _workload_action(
    wanted: WantedState, live: LiveState, history: WriteHistory, now: float, rules: PropagationRules
) -> Action:
    """Returns the action for the object itself. The checks come in this order.

    An object with the right version and replicas needs nothing, but dependencies that are not listed any more go.
    A missing object is created, at most creations_max times in the window.
    After too many corrections in the window, the object is contested and left alone.
    While a reference is missing, a new template waits, and only the replicas may fall.
    Otherwise the replicas alone are written, or the whole object.
    """
    found, part = live.workload, wanted.part
    if found is not None and found.version == part.version and found.spec_replicas == part.replicas:
        if history.compared not in (0, found.generation) and not live.read:
            return ReadAfresh(found.kind)
        if _is_at_earlier_template(wanted):
            return NOTHING
        listed = frozenset(DependencyReference(dependency.kind, dependency.name) for dependency in wanted.dependencies)
        return _dependency_deletion(wanted, live, listed, rules) or NOTHING
    assert wanted.declaration is not None, f"{wanted.target}: acted on without its declaration"
    if found is None:
        manifest = workload_manifest(wanted.declaration, part, rules.fleet)
        blocked = _namespace_action(wanted, live, rules) or _missing_references_action(wanted, live)
        if blocked is not None:
            return blocked
        creations = _times_in_window(history.creations, now, rules) if history.version == part.version else ()
        if len(creations) >= rules.creations_max:
            seconds = creations[0] + rules.window_seconds - now
            return Hold(f"created {len(creations)} times at {part.version} and gone again", seconds)
        return Create(manifest)
    known = history.version == part.version
    corrects = found.version == part.version or (known and history.written)
    # alone: the object has this manifest already, so that at most its replicas and version are written.
    alone = found.manifest == manifest_digest(wanted.declaration, part)
    fought = alone and found.spec_replicas not in (part.replicas, history.right)
    corrections = _times_in_window(history.corrections, now, rules)
    if len(corrections) >= rules.corrections_max and (corrects or fought):
        oldest = corrections[0] if corrections else now
        return _contested_action(live, rules, oldest + rules.window_seconds - now)
    if not corrects and not (alone and found.spec_replicas > 0):
        blocked = _missing_references_action(wanted, live)
        if blocked is not None:
            fewer = _scale_down_action(part, found, history, len(corrections) < rules.corrections_max)
            return fewer if fewer is not None and isinstance(blocked, Report) else blocked
    if alone:
        return PatchReplicas(replicas_and_version_patch(part, found.kind), found.marks.resource_version, corrects)
    manifest = _manifest_with_uid(workload_manifest(wanted.declaration, part, rules.fleet), found.marks)
    return Apply(manifest, found.marks.resource_version, corrects)


def _namespace_action(wanted: WantedState, live: LiveState, rules: PropagationRules) -> Action | None:
    reference = DependencyReference("Namespace", wanted.target.namespace)
    match live.looked.get(reference):
        case True:
            return None
        case None:
            return Look(frozenset({reference}))
        case _ if rules.create_namespaces:
            return EnsureNamespace(reference.name)
        case _:
            return missing_objects_report((reference,), reference.name, "; the settings say that none is created")


def _missing_references_action(wanted: WantedState, live: LiveState) -> Action | None:
    """Returns a look-up or a report for the objects that the template needs; None when nothing is missing.

    Without replicas nothing is needed. But a part that has no replicas because something is missing still looks for it,
    so that its replicas come once it exists.
    """
    assert wanted.declaration is not None
    if wanted.part.replicas == 0 and not wanted.part.missing:
        return None
    needed = needed_references(wanted.declaration, wanted.part)
    unknown = needed - live.looked.keys()
    if unknown:
        return Look(unknown)
    missing = [reference for reference in needed if not live.looked[reference]]
    return missing_objects_report(missing, wanted.target.namespace) if missing else None


def _scale_down_action(part: Part, found: LiveWorkload, history: WriteHistory, may_correct: bool) -> ScaleDown | None:
    """Returns a scale-down to the part's replicas while a new template waits for missing objects.

    The object keeps its own template. A part that waits for the objects itself is not scaled down. Its replicas are
    those that were counted there (docs/adr/0026): nobody asked for fewer, and more pods may run since.
    """
    if part.missing or found.spec_replicas <= part.replicas:
        return None
    corrects = history.right not in (None, found.spec_replicas)
    if corrects and not may_correct:
        return None
    return ScaleDown(replicas_patch(part, found.kind), found.marks.resource_version, corrects)


def _dependency_deletion(
    wanted: WantedState, live: LiveState, listed: frozenset[DependencyReference], rules: PropagationRules
) -> Action | None:
    """Returns the deletion of a dependency of ours that is not listed any more; None when there is none.

    A dependency that is being deleted is waited for only when the whole part is removed.
    """
    for reference, found in sorted(live.dependencies.items()):
        if reference in listed or not is_owned_by_target(found.marks, wanted.target, rules.fleet):
            continue
        if not found.marks.deleting:
            return DeleteDependency(reference, found.marks.uid, found.marks.resource_version)
        if wanted.part.removing:
            return hold_while_deleted(found.marks, str(reference))
    return None


def _manifest_with_uid(manifest: Manifest, marks: ObjectMarks) -> Manifest:
    """Returns the manifest with the uid that was seen. Without it, an apply would create a deleted object again."""
    return {**manifest, "metadata": {**manifest["metadata"], "uid": marks.uid}}


def _contested_action(live: LiveState, rules: PropagationRules, seconds: float) -> Action:
    if live.read and live.rivals is None:
        return LookForRivals()
    by = f" by {', '.join(live.rivals)}" if live.rivals else " by somebody else"
    return Report(
        STATE_CONTESTED,
        f"changed{by} after being put right {rules.corrections_max} times "
        f"within {rules.window_seconds:.0f} s; left alone until these are over",
        seconds,
    )


def _times_in_window(times: tuple[float, ...], now: float, rules: PropagationRules) -> tuple[float, ...]:
    return tuple(time for time in times if time > now - rules.window_seconds)
