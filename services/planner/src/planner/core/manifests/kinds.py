"""Defines the kinds of workloads: the fields of their spec, where their replicas are, and which fields can change."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

DEPLOYMENT, STATEFULSET, JOB = "Deployment", "StatefulSet", "Job"


@dataclass(frozen=True, slots=True)
class WorkloadKind:
    """One kind of workload.

    replicas: the field of the spec with the number of pods.
    fields: the known fields of the spec.
    changeable: the fields of the spec that a cluster lets change.
    whole: whether all its replicas are in one cluster.
    """

    name: str
    api_version: str
    replicas: str
    fields: frozenset[str]
    changeable: frozenset[str]
    whole: bool = False


KINDS: Mapping[str, WorkloadKind] = {
    DEPLOYMENT: WorkloadKind(
        DEPLOYMENT,
        "apps/v1",
        "replicas",
        frozenset(
            ("minReadySeconds", "paused", "progressDeadlineSeconds", "replicas", "revisionHistoryLimit", "selector",
             "strategy", "template")
        ),
        changeable=frozenset(
            ("minReadySeconds", "paused", "progressDeadlineSeconds", "replicas", "revisionHistoryLimit", "strategy",
             "template")
        ),
    ),
    STATEFULSET: WorkloadKind(
        STATEFULSET,
        "apps/v1",
        "replicas",
        frozenset(
            ("minReadySeconds", "ordinals", "persistentVolumeClaimRetentionPolicy", "podManagementPolicy", "replicas",
             "revisionHistoryLimit", "selector", "serviceName", "template", "updateStrategy", "volumeClaimTemplates")
        ),
        whole=True,
        changeable=frozenset(
            ("minReadySeconds", "ordinals", "persistentVolumeClaimRetentionPolicy", "replicas", "revisionHistoryLimit",
             "template", "updateStrategy")
        ),
    ),
    JOB: WorkloadKind(
        JOB,
        "batch/v1",
        "parallelism",
        frozenset(
            ("activeDeadlineSeconds", "backoffLimit", "backoffLimitPerIndex", "completionMode", "completions",
             "maxFailedIndexes", "parallelism", "podFailurePolicy", "podReplacementPolicy", "successPolicy", "suspend",
             "template")
        ),
        whole=True,
        changeable=frozenset(("activeDeadlineSeconds", "backoffLimit", "parallelism", "suspend")),
    ),
}  # fmt: skip
KIND_NAMES = ", ".join(KINDS)

NOT_OURS_TO_SAY = {
    "manualSelector": "the cluster makes the selector",
    "selector": "the cluster makes it",
    "ttlSecondsAfterFinished": "the cluster would delete the finished Job, and it would be made and run again",
}
"""Fields of a Job that are refused, and the reasons."""

WHOLE = frozenset(name for name, kind in KINDS.items() if kind.whole)
"""Kinds that go whole to one cluster: a second cluster would double their identity or their work."""


def template_content(manifest: Mapping[str, Any]) -> Any:
    """Returns the part of a manifest whose change makes a new template.

    For StatefulSets and Jobs, that is the whole spec except the replicas.
    """
    kind, spec = KINDS[manifest["kind"]], manifest["spec"]
    if not kind.whole:
        return spec["template"]
    return {field: value for field, value in spec.items() if field != kind.replicas}


def first_unchangeable_field(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Returns the first field, by name, that differs between two manifests and cannot be changed in a cluster; else
    empty."""
    one, other = before["spec"], after["spec"]
    fields = sorted((one.keys() | other.keys()) - KINDS[after["kind"]].changeable)
    return next((field for field in fields if _comparable_field(field, one) != _comparable_field(field, other)), "")


def _comparable_field(field: str, spec: Mapping[str, Any]) -> Any:
    """Returns the field as an API server compares it: an empty part of a selector equals an absent one."""
    value = spec.get(field)
    if field == "selector" and isinstance(value, dict):
        return {name: part for name, part in value.items() if part}
    return value


def completions_of(manifest: Mapping[str, Any]) -> int | None:
    """Returns how many pods of a Job must succeed. None for other kinds, and where the pods share a work queue."""
    if manifest["kind"] != JOB:
        return None
    spec = manifest["spec"]
    found: int | None = spec.get("completions", None if "parallelism" in spec else 1)
    return found
