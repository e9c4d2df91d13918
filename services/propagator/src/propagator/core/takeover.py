"""Adopts running objects and gives them back. Only marks in the metadata are written, never the pod template."""

import json

from propagator.core.actions import (
    NOTHING,
    Action,
    PatchDependencyMarks,
    PatchMarks,
    PropagationRules,
    ReadAfresh,
    Report,
    hold_for_newer_object,
    hold_while_deleted,
    is_owned_by_target,
    ownership_text,
)
from propagator.core.desired import WantedState
from propagator.core.kinds import KINDS
from propagator.core.live import (
    ANNOTATION_DECLARATION,
    ANNOTATION_MANIFEST,
    ANNOTATION_PLACEMENT,
    LABEL_FLEET,
    LABEL_WORKLOAD,
    DependencyReference,
    LiveState,
    LiveWorkload,
    ObjectMarks,
)
from propagator.core.manifests import Manifest, generation_and_digest_of, manifest_digest, workload_label
from spillway.events import STATE_ABSENT, STATE_DISOWNED, STATE_NOT_OWNED
from spillway.kubernetes.live_objects import first_difference, take_over_managed_fields, without_nulls

FIELD_MANAGER = "spillway"
"""The field manager of our applies (ClusterApiSettings.field_manager)."""


def adoption_action(wanted: WantedState, live: LiveState, rules: PropagationRules) -> Action:
    """Returns the action of the first row that fits in the README's state table for an adopting part."""
    found, part = live.workload, wanted.part
    assert wanted.declaration is not None, f"{wanted.target}: acted on without its declaration"
    kind = wanted.declaration.kind
    if found is None and not live.read:
        return ReadAfresh(kind)
    if found is None or found.marks.deleting:
        return Report(STATE_ABSENT, "the object that was to be adopted is gone, or is being deleted")
    ours = is_owned_by_target(found.marks, wanted.target, rules.fleet)
    if found.marks.uid != part.found_uid:
        return Report(STATE_NOT_OWNED, f"{kind} {wanted.target.name} is another object than the one found")
    if not ours and found.marks.fleet != part.found_fleet:
        return Report(STATE_NOT_OWNED, f"{kind} {wanted.target.name} {ownership_text(found.marks, rules)} by now")
    if ours and found.version > part.version:
        return hold_for_newer_object(found, part)
    if ours and found.version == part.version:
        return NOTHING
    if not live.read:
        return ReadAfresh(kind)
    changed = _find_changed_spec_field(wanted, live)
    if changed:
        return Report(STATE_NOT_OWNED, f"changed since it was found, in {changed}: adopt it again")
    return _dependency_marks_patch(wanted, live, rules) or _workload_marks_patch(wanted, live, found, rules)


def disowning_action(wanted: WantedState, live: LiveState, rules: PropagationRules) -> Action:
    """Returns the action of the first row that fits in the README's state table for a disowning part."""
    found, version = live.workload, wanted.part.version
    ours = found is not None and is_owned_by_target(found.marks, wanted.target, rules.fleet)
    if found is not None and ours:
        if found.version > version:
            return hold_for_newer_object(found, wanted.part)
        if found.marks.deleting:
            return hold_while_deleted(found.marks, "the object")
    for reference, dependency in sorted(live.dependencies.items()):
        if is_owned_by_target(dependency.marks, wanted.target, rules.fleet) and not dependency.marks.deleting:
            return PatchDependencyMarks(
                reference, _marks_removal_patch(ANNOTATION_DECLARATION), dependency.marks.resource_version
            )
    if found is not None and ours:
        return PatchMarks(_marks_removal_patch(ANNOTATION_PLACEMENT, ANNOTATION_MANIFEST), found.marks.resource_version)
    return Report(STATE_DISOWNED, "")


def _find_changed_spec_field(wanted: WantedState, live: LiveState) -> str:
    """Returns the first field of the spec, apart from replicas, that changed since the object was found, or ""."""
    assert wanted.declaration is not None, f"{wanted.target}: acted on without its declaration"
    counted = KINDS[wanted.declaration.kind].replicas
    declared = without_nulls(json.loads(wanted.declaration.manifest).get("spec") or {})
    one, other = ({key: value for key, value in spec.items() if key != counted} for spec in (declared, live.spec or {}))
    return first_difference(one, other, "spec")


def _workload_marks_patch(
    wanted: WantedState, live: LiveState, found: LiveWorkload, rules: PropagationRules
) -> PatchMarks:
    assert wanted.declaration is not None, f"{wanted.target}: acted on without its declaration"
    digest = manifest_digest(wanted.declaration, wanted.part)
    marks = {ANNOTATION_PLACEMENT: str(wanted.part.version), ANNOTATION_MANIFEST: digest}
    change = _marks_patch(wanted, rules, marks)
    managed = take_over_managed_fields(live.managed, FIELD_MANAGER, KINDS[found.kind].api_version)
    if managed is not None:
        change["metadata"]["managedFields"] = managed
    return PatchMarks(change, found.marks.resource_version)


def _dependency_marks_patch(
    wanted: WantedState, live: LiveState, rules: PropagationRules
) -> PatchDependencyMarks | None:
    """Returns the patch that marks the next dependency of the workload's former fleet; None when all are marked.

    Objects of other owners with a dependency's name are reported later, once the adoption is done.
    """
    for declared in wanted.dependencies:
        reference = DependencyReference(declared.kind, declared.name)
        found = live.dependencies.get(reference)
        if found is None or found.marks.deleting or not _is_dependency_of_workload(found.marks, wanted, rules):
            continue
        generation, digest = generation_and_digest_of(declared)
        ours = is_owned_by_target(found.marks, wanted.target, rules.fleet)
        if not ours or found.declaration != (generation, digest):
            change = _marks_patch(wanted, rules, {ANNOTATION_DECLARATION: f"{generation}.{digest}"})
            return PatchDependencyMarks(reference, change, found.marks.resource_version)
    return None


def _is_dependency_of_workload(marks: ObjectMarks, wanted: WantedState, rules: PropagationRules) -> bool:
    fleets = {rules.fleet, wanted.part.found_fleet} - {""}
    return marks.fleet in fleets and marks.workload == workload_label(wanted.target.name)


def _marks_patch(wanted: WantedState, rules: PropagationRules, annotations: dict[str, str]) -> Manifest:
    labels = {LABEL_FLEET: rules.fleet, LABEL_WORKLOAD: workload_label(wanted.target.name)}
    return {"metadata": {"labels": labels, "annotations": annotations}}


def _marks_removal_patch(*annotations: str) -> Manifest:
    labels = (LABEL_FLEET, LABEL_WORKLOAD)
    return {"metadata": {"labels": dict.fromkeys(labels), "annotations": dict.fromkeys(annotations)}}
