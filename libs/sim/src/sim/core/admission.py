"""The defaults that the API server fills in, and the objects that it refuses, before an object is stored."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from sim.core.errors import ApiError, bad_request, invalid
from sim.core.kinds import Kind, Object
from sim.core.quantity import parse_quantity
from sim.core.selectors import matches_labels, selector_of

Cause = tuple[str, str, str]
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_NAME_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character"
)
_OF_DEPLOYMENT = {"replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600}
_OF_STATEFULSET = {
    "replicas": 1,
    "podManagementPolicy": "OrderedReady",
    "revisionHistoryLimit": 10,
    "updateStrategy": {"type": "RollingUpdate"},
}
_OF_JOB = {"parallelism": 1, "backoffLimit": 6, "completionMode": "NonIndexed", "suspend": False}
_CHANGEABLE_IN_STATEFULSETS = (
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
)
_FIXED_IN_JOBS = ("completions", "selector", "template", "completionMode", "podFailurePolicy")
_CHANGEABLE_IN_PODS = frozenset({"tolerations", "activeDeadlineSeconds", "schedulingGates"})


def with_defaults(kind: Kind, found: Object) -> Object:
    if kind.plural == "deployments":
        spec = {**_OF_DEPLOYMENT, **(found.get("spec") or {})}
        strategy = spec.get("strategy") or {}
        if strategy.get("type", "RollingUpdate") == "RollingUpdate":
            rolling = {"maxSurge": "25%", "maxUnavailable": "25%", **(strategy.get("rollingUpdate") or {})}
            strategy = {"type": "RollingUpdate", "rollingUpdate": rolling}
        return {**found, "spec": {**spec, "strategy": strategy}}
    if kind.plural == "statefulsets":
        return {**found, "spec": {**_OF_STATEFULSET, **(found.get("spec") or {})}}
    if kind.plural == "jobs":
        return {**found, "spec": _job_spec(found)}
    if kind.plural == "replicasets":
        return {**found, "spec": {"replicas": 1, **(found.get("spec") or {})}}
    return found


def _job_spec(found: Object) -> dict[str, Any]:
    """Returns the spec with the selector and the template's labels that the server makes of the Job's uid."""
    declared = found.get("spec") or {}
    alone = {} if "completions" in declared or "parallelism" in declared else {"completions": 1}
    spec = {**_OF_JOB, **alone, **declared}
    if "selector" in spec or "template" not in spec:
        return spec
    metadata, template = found["metadata"], spec["template"]
    ours = {"batch.kubernetes.io/controller-uid": metadata["uid"], "batch.kubernetes.io/job-name": metadata["name"]}
    pod = template.get("metadata") or {}
    labelled = {**template, "metadata": {**pod, "labels": {**(pod.get("labels") or {}), **ours}}}
    selector = {"matchLabels": {"batch.kubernetes.io/controller-uid": metadata["uid"]}}
    return {**spec, "template": labelled, "selector": selector}


def check_object(kind: Kind, found: Object) -> None:
    """Raises ApiError 422 with every cause."""
    name = found["metadata"].get("name", "")
    causes: list[Cause] = []
    if not isinstance(name, str) or len(name) > 253 or not _NAME.fullmatch(name):
        causes.append(("metadata.name", "FieldValueInvalid", f'Invalid value: "{name}": {_NAME_RULE}'))
    if kind.plural in ("deployments", "replicasets", "statefulsets"):
        causes += _workload_causes(found.get("spec") or {})
    elif kind.plural == "jobs":
        causes += _job_causes(found.get("spec") or {})
    elif kind.plural == "pods":
        causes += _pod_spec_causes(found.get("spec") or {}, "spec")
    elif kind.plural == "resourcequotas":
        causes += _quantity_causes((found.get("spec") or {}).get("hard"), "spec.hard")
    elif kind.plural == "nodes":
        causes += _quantity_causes((found.get("status") or {}).get("allocatable"), "status.allocatable")
    if causes:
        raise invalid(kind, str(name), causes)


def check_update(kind: Kind, old: Object, new: Object) -> None:
    name = new["metadata"]["name"]
    before, after = old.get("spec") or {}, new.get("spec") or {}
    if kind.plural in ("deployments", "replicasets") and before.get("selector") != after.get("selector"):
        text = _text_as_go_prints(after.get("selector"))
        raise invalid(
            kind, name, [("spec.selector", "FieldValueInvalid", f"Invalid value: {text}: field is immutable")]
        )
    if kind.plural == "statefulsets" and _fixed_statefulset_fields(before) != _fixed_statefulset_fields(after):
        names = ", ".join(f"'{field}'" for field in _CHANGEABLE_IN_STATEFULSETS)
        why = f"Forbidden: updates to statefulset spec for fields other than {names} are forbidden"
        raise invalid(kind, name, [("spec", "FieldValueForbidden", why)])
    if kind.plural == "jobs":
        changed = [field for field in _FIXED_IN_JOBS if before.get(field) != after.get(field)]
        if changed:
            causes = [(f"spec.{field}", "FieldValueInvalid", "field is immutable") for field in changed]
            raise invalid(kind, name, causes)
    if kind.plural == "pods" and _fixed_pod_fields(before) != _fixed_pod_fields(after):
        why = "Forbidden: pod updates may not change fields other than `spec.containers[*].image`, `spec.tolerations`"
        raise invalid(kind, name, [("spec", "FieldValueForbidden", why)])


def check_manifest(kind: Kind, manifest: Any) -> None:
    """Raises ApiError 400 when the manifest is not an object of that kind at all."""
    if not isinstance(manifest, dict) or not isinstance(manifest.get("metadata", {}), dict):
        raise bad_request("the body of the request was not a Kubernetes object")
    declared = (manifest.get("apiVersion", kind.api_version), manifest.get("kind", kind.name))
    if declared != (kind.api_version, kind.name):
        message = f"{declared[1]} in version {declared[0]!r} cannot be handled as a {kind.name}"
        raise ApiError(400, "BadRequest", message)


def _fixed_pod_fields(spec: Mapping[str, Any]) -> dict[str, Any]:
    kept = {field: value for field, value in spec.items() if field not in _CHANGEABLE_IN_PODS}
    for field in ("containers", "initContainers"):
        kept[field] = [{**one, "image": ""} for one in spec.get(field) or ()]
    return kept


def _fixed_statefulset_fields(spec: Mapping[str, Any]) -> dict[str, Any]:
    return {field: value for field, value in spec.items() if field not in _CHANGEABLE_IN_STATEFULSETS}


def _job_causes(spec: Mapping[str, Any]) -> Iterable[Cause]:
    for field in ("parallelism", "completions"):
        if not isinstance(spec.get(field, 0), int) or spec.get(field, 0) < 0:
            yield f"spec.{field}", "FieldValueInvalid", "Invalid value: must be greater than or equal to 0"
    pod = (spec.get("template") or {}).get("spec") or {}
    if pod.get("restartPolicy") not in ("Never", "OnFailure"):
        why = f'Required value: valid values: "OnFailure", "Never", not "{pod.get("restartPolicy", "Always")}"'
        yield "spec.template.spec.restartPolicy", "FieldValueRequired", why
    yield from _pod_spec_causes(pod, "spec.template.spec")


def _workload_causes(spec: Mapping[str, Any]) -> Iterable[Cause]:
    replicas = spec.get("replicas", 1)
    if not isinstance(replicas, int) or replicas < 0:
        why = f"Invalid value: {replicas}: must be greater than or equal to 0"
        yield "spec.replicas", "FieldValueInvalid", why
    template = spec.get("template") or {}
    labels = (template.get("metadata") or {}).get("labels") or {}
    selector = spec.get("selector") or {}
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        yield "spec.selector", "FieldValueRequired", "Required value"
    elif not matches_labels(selector_of(selector), labels):
        why = f"Invalid value: {_text_as_go_prints(labels)}: `selector` does not match template `labels`"
        yield "spec.template.metadata.labels", "FieldValueInvalid", why
    yield from _pod_spec_causes(template.get("spec") or {}, "spec.template.spec")


def _pod_spec_causes(spec: Mapping[str, Any], path: str) -> Iterable[Cause]:
    if not spec.get("containers"):
        yield f"{path}.containers", "FieldValueRequired", "Required value"
    for field in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(field) or ()):
            here = f"{path}.{field}[{index}]"
            for needed in ("name", "image"):
                if not container.get(needed):
                    yield f"{here}.{needed}", "FieldValueRequired", "Required value"
            for part in ("requests", "limits"):
                declared = (container.get("resources") or {}).get(part)
                yield from _quantity_causes(declared, f"{here}.resources.{part}")


def _quantity_causes(declared: Any, path: str) -> Iterable[Cause]:
    for name, text in (declared or {}).items():
        try:
            below_zero = parse_quantity(text) < 0
        except (ValueError, TypeError):
            rule = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
            yield f"{path}[{name}]", "FieldValueInvalid", f'Invalid value: "{text}": {rule}'
            continue
        if below_zero:
            rule = "must be greater than or equal to 0"
            yield f"{path}[{name}]", "FieldValueInvalid", f'Invalid value: "{text}": {rule}'


def _text_as_go_prints(value: Any) -> str:
    return str(value).replace("'", '"').replace(": ", ":").replace(", ", ", ")
