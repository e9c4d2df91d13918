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
    above,
    hold_while_deleted,
    is_ours,
    owner_of,
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
from propagator.core.manifests import Manifest, dependency_declaration, manifest_digest, workload_label
from spillway.events import STATE_ABSENT, STATE_DISOWNED, STATE_NOT_OWNED
from spillway.kubernetes.live_objects import first_difference, with_spec_taken_over, without_nulls

FIELD_MANAGER = "spillway"
"""The field manager of our applies (ClusterApiSettings.field_manager)."""


def adopt(wanted: WantedState, live: LiveState, rules: PropagationRules) -> Action:
    """Returns the action of the first row that fits in the README's state table for an adopting part."""
    found, part = live.workload, wanted.part
    assert wanted.declaration is not None, f"{wanted.target}: acted on without its declaration"
    kind = wanted.declaration.kind
    if found is None and not live.read:
        return ReadAfresh(kind)
    if found is None or found.marks.deleting:
        return Report(STATE_ABSENT, "the object that was to be adopted is gone, or is being deleted")
    ours = is_ours(found.marks, wanted.target, rules.fleet)
    if found.marks.uid != part.found_uid:
        return Report(STATE_NOT_OWNED, f"{kind} {wanted.target.name} is another object than the one found")
    if not ours and found.marks.fleet != part.found_fleet:
        return Report(STATE_NOT_OWNED, f"{kind} {wanted.target.name} {owner_of(found.marks, rules)} by now")
    if ours and found.version > part.version:
        return above(found, part)
    if ours and found.version == part.version:
        return NOTHING
    if not live.read:
        return ReadAfresh(kind)
    changed = _changed_since(wanted, live)
    if changed:
        return Report(STATE_NOT_OWNED, f"changed since it was found, in {changed}: adopt it again")
    return _mark_dependency(wanted, live, rules) or _mark(wanted, live, found, rules)


def disown(wanted: WantedState, live: LiveState, rules: PropagationRules) -> Action:
    """Returns the action of the first row that fits in the README's state table for a disowning part."""
    found, version = live.workload, wanted.part.version
    ours = found is not None and is_ours(found.marks, wanted.target, rules.fleet)
    if found is not None and ours:
        if found.version > version:
            return above(found, wanted.part)
        if found.marks.deleting:
            return hold_while_deleted(found.marks, "the object")
    for reference, dependency in sorted(live.dependencies.items()):
        if is_ours(dependency.marks, wanted.target, rules.fleet) and not dependency.marks.deleting:
            return PatchDependencyMarks(reference, _unmarked(ANNOTATION_DECLARATION), dependency.marks.resource_version)
    if found is not None and ours:
        return PatchMarks(_unmarked(ANNOTATION_PLACEMENT, ANNOTATION_MANIFEST), found.marks.resource_version)
    return Report(STATE_DISOWNED, "")


def _changed_since(wanted: WantedState, live: LiveState) -> str:
    """Returns the first field of the spec, apart from replicas, that changed since the object was found, or ""."""
    assert wanted.declaration is not None, f"{wanted.target}: acted on without its declaration"
    counted = KINDS[wanted.declaration.kind].replicas
    declared = without_nulls(json.loads(wanted.declaration.manifest).get("spec") or {})
    one, other = ({key: value for key, value in spec.items() if key != counted} for spec in (declared, live.spec or {}))
    return first_difference(one, other, "spec")


def _mark(wanted: WantedState, live: LiveState, found: LiveWorkload, rules: PropagationRules) -> PatchMarks:
    assert wanted.declaration is not None, f"{wanted.target}: acted on without its declaration"
    digest = manifest_digest(wanted.declaration, wanted.part)
    marks = {ANNOTATION_PLACEMENT: str(wanted.part.version), ANNOTATION_MANIFEST: digest}
    change = _marked(wanted, rules, marks)
    managed = with_spec_taken_over(live.managed, FIELD_MANAGER, KINDS[found.kind].api_version)
    if managed is not None:
        change["metadata"]["managedFields"] = managed
    return PatchMarks(change, found.marks.resource_version)


def _mark_dependency(wanted: WantedState, live: LiveState, rules: PropagationRules) -> PatchDependencyMarks | None:
    """Returns the patch that marks the next dependency of the workload's former fleet; None when all are marked.

    Other dependencies that stand in the way are reported once the part is an ordinary one.
    """
    for declared in wanted.dependencies:
        reference = DependencyReference(declared.kind, declared.name)
        found = live.dependencies.get(reference)
        if found is None or found.marks.deleting or not _goes_along(found.marks, wanted, rules):
            continue
        generation, digest = dependency_declaration(declared)
        ours = is_ours(found.marks, wanted.target, rules.fleet)
        if not ours or found.declaration != (generation, digest):
            change = _marked(wanted, rules, {ANNOTATION_DECLARATION: f"{generation}.{digest}"})
            return PatchDependencyMarks(reference, change, found.marks.resource_version)
    return None


def _goes_along(marks: ObjectMarks, wanted: WantedState, rules: PropagationRules) -> bool:
    fleets = {rules.fleet, wanted.part.found_fleet} - {""}
    return marks.fleet in fleets and marks.workload == workload_label(wanted.target.name)


def _marked(wanted: WantedState, rules: PropagationRules, annotations: dict[str, str]) -> Manifest:
    labels = {LABEL_FLEET: rules.fleet, LABEL_WORKLOAD: workload_label(wanted.target.name)}
    return {"metadata": {"labels": labels, "annotations": annotations}}


def _unmarked(*annotations: str) -> Manifest:
    labels = (LABEL_FLEET, LABEL_WORKLOAD)
    return {"metadata": {"labels": dict.fromkeys(labels), "annotations": dict.fromkeys(annotations)}}
