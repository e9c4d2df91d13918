"""Turns a live object into a manifest that a user could declare: without the server's fields and without our marks."""

from collections.abc import Mapping, Sequence
from typing import Any

from spillway.kubernetes.quantities import nanos_of

Manifest = dict[str, Any]

MARK_PREFIX = "spillway.io/"
SERVER_METADATA = frozenset(
    ("creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "generateName", "generation",
     "managedFields", "ownerReferences", "resourceVersion", "selfLink", "uid")
)  # fmt: skip
SERVER_ANNOTATIONS = frozenset(
    ("deployment.kubernetes.io/revision", "kubectl.kubernetes.io/last-applied-configuration")
)
JOB_LABELS = frozenset(
    ("batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name", "controller-uid", "job-name")
)
"""The labels that a cluster adds to a Job's pods and to the Job's selector."""
SERVICE_SPEC_OF_ONE_CLUSTER = frozenset(
    ("clusterIP", "clusterIPs", "healthCheckNodePort", "ipFamilies", "ipFamilyPolicy")
)


def manifest_of_live_object(live: Mapping[str, Any], kind: str, api_version: str) -> Manifest:
    """Returns a manifest whose apply changes nothing. A Deployment's and a StatefulSet's replicas are left out.

    Also left out are a Job's selector and labels from the cluster, the status in volumeClaimTemplates, and the values
    that the cluster allocated to a Service: addresses, address families, node ports. "None" (headless) stays.
    """
    kept: Manifest = {key: value for key, value in live.items() if key != "status"}
    kept = without_nulls(kept) | {"apiVersion": api_version, "kind": kind}
    kept["metadata"] = _declarable_metadata(kept["metadata"])
    spec = kept.get("spec")
    if isinstance(spec, dict) and kind in ("Deployment", "StatefulSet"):
        kept["spec"] = _without_claim_status(without_replicas(spec))
    if isinstance(spec, dict) and kind == "Job":
        kept["spec"] = _job_spec(spec)
    if isinstance(spec, dict) and kind == "Service":
        kept["spec"] = _service_spec(spec)
    return kept


def without_replicas(spec: Mapping[str, Any]) -> Manifest:
    return {key: value for key, value in spec.items() if key != "replicas"}


def without_nulls(value: Any) -> Any:
    """Returns a value without fields that are null. The API server treats them as absent, too."""
    if isinstance(value, dict):
        return {key: without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [without_nulls(inner) for inner in value] if isinstance(value, list) else value


def first_difference(one: Any, other: Any, path: str = "") -> str:
    """Returns the path of the first field, by name, in which two manifests differ; empty when they are equal."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(one.keys() | other.keys()):
            here = f"{path}.{key}" if path else str(key)
            if key not in one or key not in other:
                return here
            found = first_difference(one[key], other[key], here)
            if found:
                return found
        return ""
    if isinstance(one, list) and isinstance(other, list):
        for index, (left, right) in enumerate(zip(one, other, strict=False)):
            found = first_difference(left, right, f"{path}[{index}]")
            if found:
                return found
        return "" if len(one) == len(other) else f"{path}[{min(len(one), len(other))}]"
    return "" if one == other and type(one) is type(other) else path or "(the whole)"


def first_field_not_as_declared(declared: Any, live: Any, path: str) -> str:
    """Returns the path of the first declared field whose value differs in a live object; empty if there is none.

    The live object may have more fields, such as defaults and fields of others. An empty value may be absent. Amounts
    may be written in another form.
    """
    if isinstance(declared, dict) and isinstance(live, dict):
        fields = ((f"{path}.{key}", declared[key], live.get(key)) for key in sorted(declared))
    elif isinstance(declared, list) and isinstance(live, list) and len(declared) == len(live):
        fields = ((f"{path}[{at}]", *both) for at, both in enumerate(zip(declared, live, strict=True)))
    else:
        alike = declared == live or not (declared or live) or _is_same_amount(declared, live, path)
        return "" if alike else path
    return next((found for here, one, other in fields if (found := first_field_not_as_declared(one, other, here))), "")


def _is_same_amount(one: Any, other: Any, path: str) -> bool:
    if ".resources." not in path and not path.endswith((".sizeLimit", ".divisor")):
        return False
    try:
        return nanos_of(one) == nanos_of(other)
    except ValueError:
        return False


def take_over_managed_fields(
    managed: Sequence[Mapping[str, Any]], manager: str, api_version: str
) -> list[Manifest] | None:
    """Returns managedFields in which only `manager` owns the spec, by apply; None if that is so already.

    Otherwise a field that another manager's update set would stay when a later apply leaves it out. Subresources keep
    their owners.
    """
    ours = (manager, "Apply")
    kept, taken, changed = list[Manifest](), Manifest(), False
    for entry in managed:
        fields = entry.get("fieldsV1") or {}
        mine = (entry.get("manager"), entry.get("operation")) == ours and not entry.get("subresource")
        if mine:
            taken = _merge_fields(taken, fields)
        elif "f:spec" in fields and not entry.get("subresource"):
            changed = True
            taken = _merge_fields(taken, {"f:spec": fields["f:spec"]})
            left = {key: value for key, value in fields.items() if key != "f:spec"}
            kept += [{**entry, "fieldsV1": left}] if left else []
        else:
            kept.append(dict(entry))
    if not changed:
        return None
    entry = {"manager": manager, "operation": "Apply", "apiVersion": api_version, "fieldsType": "FieldsV1"}
    return [*kept, {**entry, "fieldsV1": taken}]


def _merge_fields(one: Mapping[str, Any], other: Mapping[str, Any]) -> Manifest:
    return {**one, **{key: _merge_fields(one.get(key) or {}, value) for key, value in other.items()}}


def _declarable_metadata(metadata: Mapping[str, Any]) -> Manifest:
    kept = {key: value for key, value in metadata.items() if key not in SERVER_METADATA}
    for field, dropped in (("labels", frozenset[str]()), ("annotations", SERVER_ANNOTATIONS)):
        said = kept.pop(field, None) or {}
        left = {key: value for key, value in said.items() if key not in dropped and not key.startswith(MARK_PREFIX)}
        if left:
            kept[field] = left
    return kept


def _without_claim_status(spec: Manifest) -> Manifest:
    claims = spec.get("volumeClaimTemplates")
    if not isinstance(claims, list):
        return spec
    stripped = [{key: value for key, value in claim.items() if key != "status"} for claim in claims]
    return {**spec, "volumeClaimTemplates": stripped}


def _job_spec(spec: Mapping[str, Any]) -> Manifest:
    kept = {key: value for key, value in spec.items() if key != "selector"}
    template = dict(kept.get("template") or {})
    metadata = dict(template.get("metadata") or {})
    labels = {key: value for key, value in (metadata.pop("labels", None) or {}).items() if key not in JOB_LABELS}
    metadata |= {"labels": labels} if labels else {}
    template.pop("metadata", None)
    return {**kept, "template": template | ({"metadata": metadata} if metadata else {})}


def _service_spec(spec: Mapping[str, Any]) -> Manifest:
    headless = spec.get("clusterIP") == "None"
    kept = {key: value for key, value in spec.items() if key not in SERVICE_SPEC_OF_ONE_CLUSTER}
    if headless:
        kept["clusterIP"] = "None"
    if isinstance(kept.get("ports"), list):
        kept["ports"] = [{key: value for key, value in port.items() if key != "nodePort"} for port in kept["ports"]]
    return kept
