"""Makes the answer for an object that somebody wants to adopt: its manifest as it would be declared, or a refusal."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from propagator.core.actions import is_owned_by_target
from propagator.core.desired import PartTarget
from propagator.core.kinds import DEPLOYMENT, KINDS
from propagator.core.live import (
    LABEL_FLEET,
    LABEL_WORKLOAD,
    ownership_labels_of,
    workload_from_manifest,
)
from spillway.events import FOUND, FOUND_NOTHING, FOUND_REFUSED, AdoptionAsked, WorkloadFound
from spillway.kubernetes.live_objects import manifest_of_live_object
from spillway.model import NO_GENERATION

Manifest = Mapping[str, Any]

RECORD_BYTES_MAX = 900 * 1024
"""The most bytes of an object and its dependencies, so that a record stays under 1 MiB."""


def adoption_answer(
    asked: AdoptionAsked,
    target: PartTarget,
    state: str,
    message: str = "",
    *,
    found: Manifest | None = None,
    dependencies: tuple[bytes, ...] = (),
    objects: int = 0,
) -> WorkloadFound:
    live = workload_from_manifest(found, kind_of_object(found)) if found is not None else None
    return WorkloadFound(
        asked=asked.generation,
        namespace=target.namespace,
        name=target.name,
        cluster=target.cluster,
        state=state,
        message=message,
        uid=live.marks.uid if live else "",
        manifest=_manifest_to_declare(found) if found and state == FOUND else b"",
        replicas=live.spec_replicas if live else 0,
        version=live.version if live else NO_GENERATION,
        dependencies=dependencies,
        objects=objects,
    )


def adoption_answer_for_object(
    asked: AdoptionAsked,
    target: PartTarget,
    fleet: str,
    found: Manifest | None,
    dependencies: Iterable[tuple[str, Manifest]],
    autoscalers: Iterable[Manifest],
    placed: bool,
) -> WorkloadFound:
    """Returns the answer for one object.

    dependencies: (kind, object) of candidates; only those with the object's own labels are in the answer.
    """
    if found is None:
        return adoption_answer(asked, target, FOUND_NOTHING, f"no {DEPLOYMENT} of this name")
    refusal = _reason_to_refuse(asked, target, fleet, found, autoscalers, placed)
    if refusal:
        return adoption_answer(asked, target, FOUND_REFUSED, refusal, found=found)
    along = tuple(
        _canonical_json(manifest_of_live_object(one, kind, "v1"))
        for kind, one in sorted(dependencies, key=lambda entry: (entry[0], entry[1]["metadata"]["name"]))
        if _has_labels_of_workload(found, one)
    )
    said = adoption_answer(asked, target, FOUND, found=found, dependencies=along)
    size = len(said.manifest) + sum(map(len, along))
    if size > RECORD_BYTES_MAX:
        text = f"the object and what goes along are {size} bytes: expected at most {RECORD_BYTES_MAX}"
        return adoption_answer(asked, target, FOUND_REFUSED, text, found=found)
    return said


def _manifest_to_declare(found: Manifest) -> bytes:
    kind = KINDS[kind_of_object(found)]
    return _canonical_json(manifest_of_live_object(found, kind_of_object(found), kind.api_version))


def kind_of_object(found: Manifest) -> str:
    return str(found.get("kind", DEPLOYMENT))


def has_scale_target(autoscaler: Manifest, name: str, kind: str = DEPLOYMENT) -> bool:
    """Returns whether this HorizontalPodAutoscaler scales the object of that kind and name."""
    reference = (autoscaler.get("spec") or {}).get("scaleTargetRef") or {}
    return (reference.get("kind"), reference.get("name")) == (kind, name)


def _reason_to_refuse(
    asked: AdoptionAsked, target: PartTarget, fleet: str, found: Manifest, autoscalers: Iterable[Manifest], placed: bool
) -> str:
    metadata = found["metadata"]
    marks = workload_from_manifest(found, kind_of_object(found)).marks
    owner = next((one for one in metadata.get("ownerReferences") or () if one.get("controller")), None)
    scaler = next(
        (one["metadata"]["name"] for one in autoscalers if has_scale_target(one, target.name, kind_of_object(found))),
        "",
    )
    foreign = marks.fleet not in ("", fleet, asked.fleet_before)
    if marks.deleting:
        return "it is being deleted"
    if foreign:
        return f"it belongs to fleet {marks.fleet}"
    if placed and is_owned_by_target(marks, target, fleet):
        return "a placement lists it already"
    if owner is not None:
        return f"{owner.get('kind')} {owner.get('name')} makes it, and would put back what is changed"
    if scaler:
        return f"HorizontalPodAutoscaler {scaler} scales it: two would set its replicas; remove that one first"
    return ""


def _has_labels_of_workload(found: Manifest, dependency: Manifest) -> bool:
    labels, others = ownership_labels_of(found), ownership_labels_of(dependency)
    return bool(labels[LABEL_FLEET]) and labels == others and bool(labels[LABEL_WORKLOAD])


def _canonical_json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
