"""Makes the pod that a dry run creates from a template, and compares the answer with the template.

Additions that the ReplicaSet controller and the API server make to any pod are no difference. Source: both in
Kubernetes v1.36.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from spillway.api import RequestError
from spillway.events import SHAPE_ADMITTED, SHAPE_FORBIDDEN, SHAPE_REFUSED, SHAPE_UNASKED
from spillway.kubernetes.pod_shape import TEMPLATE_HASH_LABELS, shape_of, shape_without_notes
from spillway.model import ObjectReference, Shape
from spillway.texts import cut_text

Manifest = dict[str, Any]

NAME_LENGTH_MAX = 58
"""The most characters of a pod's generateName. The server adds five characters."""
FORBIDDEN, NOT_FOUND = 403, 404
NO_RIGHT = 'cannot create resource "pods"'
"""A part of the message of the API server's authorizer. Admission that refuses a pod answers 403, too."""
QUOTA_USED_UP = "exceeded quota"
NO_ACCOUNT_YET = "serviceaccount"
ADMISSION_ASKS_FOR = frozenset(("ServiceAccount", "PriorityClass", "RuntimeClass"))
"""Kinds that must exist when a pod names one. Otherwise the API server's own admission refuses the pod."""
WORDS_MAX = 2_000
"""The most characters of the reason why a dry run cannot be read. It quotes what a webhook put into the pod."""
DEFAULT_TOLERATIONS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
"""Keys of the NoExecute tolerations that every pod gets for some minutes. Nodes with these taints have them as
NoSchedule, too."""


def pod_for_dry_run(template: Mapping[str, Any], namespace: str, name: str, digest: str) -> Manifest:
    """Returns the pod as the ReplicaSet controller makes it, but without an owner, because no ReplicaSet exists."""
    metadata = template.get("metadata") or {}
    labels = {**(metadata.get("labels") or {}), TEMPLATE_HASH_LABELS[0]: digest[:10]}
    made = {"generateName": f"{name}-"[:NAME_LENGTH_MAX], "namespace": namespace, "labels": labels}
    if metadata.get("annotations"):
        made["annotations"] = metadata["annotations"]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": made, "spec": template["spec"]}


def admitted_shape(pod: Manifest, template: Mapping[str, Any], namespace: str) -> Shape | None:
    """Returns the shape of the pod; None when it equals the template's. Raises RequestError when it cannot be read."""
    declared = shape_without_notes(shape_of(template, namespace, "template"))
    found = shape_without_notes(shape_of(_template_of_pod(pod, template), namespace, "pod"))
    same = found == declared and found.traits == declared.traits
    return None if same else replace(found, template=declared.template)


def outcome_of_refusal(status: int, message: str) -> str:
    """Returns the state after a refusal. Its cause is the template, our missing right, or a passing condition."""
    if status == FORBIDDEN and NO_RIGHT in message:
        return SHAPE_FORBIDDEN
    passing = QUOTA_USED_UP in message or (status == FORBIDDEN and NO_ACCOUNT_YET in message)
    return SHAPE_UNASKED if passing or status == NOT_FOUND else SHAPE_REFUSED


def shape_state_with_missing(state: str, missing: Iterable[ObjectReference] | None) -> str:
    """Returns the state of an answer when these objects are missing. None: they could not be looked up.

    A refused template that lacks an object which admission requires counts as unknown. It may be admitted once the
    object exists.
    """
    lacks = any(one.kind in ADMISSION_ASKS_FOR for one in missing or ())
    return SHAPE_UNASKED if state == SHAPE_REFUSED and lacks else state


def missing_namespace_text(namespace: str) -> str:
    """Returns the message with which a cluster refuses to create anything in a namespace that it lacks."""
    return f'namespaces "{namespace}" not found'


def refusal_without_pod_name(message: str, name: str) -> str:
    """Returns the cluster's message without the generated pod name. With that name, every refusal would look new."""
    prefix = f"{name}-"[:NAME_LENGTH_MAX]
    if f'"{prefix}' not in message:
        return message  # The search is cheaper than a pattern for each name.
    return re.sub(rf'"{re.escape(prefix)}[a-z0-9]+"', f'"{prefix}…"', message)


def read_dry_run_answer(pod: Manifest, template: Mapping[str, Any], namespace: str) -> tuple[str, str, Shape | None]:
    """Returns state, message and shape for the pod that a dry run returned."""
    try:
        return SHAPE_ADMITTED, "", admitted_shape(pod, template, namespace)
    except RequestError as error:
        return SHAPE_UNASKED, cut_text(f"what came back cannot be read: {error.text}", WORDS_MAX), None
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        return SHAPE_UNASKED, cut_text(f"what came back is no pod: {error!r}", WORDS_MAX), None


def _template_of_pod(pod: Manifest, template: Mapping[str, Any]) -> Manifest:
    """Returns the pod in the form of a template, without the parts that are added to any pod."""
    own = (template.get("metadata") or {}).get("labels") or {}
    labels = pod["metadata"].get("labels") or {}
    kept = {key: value for key, value in labels.items() if key in own or key not in TEMPLATE_HASH_LABELS}
    spec = dict(pod["spec"])
    tolerated = template["spec"].get("tolerations") or ()
    tolerations = [one for one in spec.get("tolerations") or () if one in tolerated or not _is_default_toleration(one)]
    spec |= {"tolerations": tolerations} if "tolerations" in spec else {}
    if "topologySpreadConstraints" in spec:
        spec["topologySpreadConstraints"] = [
            _term_without_merged_keys(one) for one in spec["topologySpreadConstraints"]
        ]
    if "affinity" in spec:
        spec["affinity"] = {kind: _affinity_without_merged_keys(terms) for kind, terms in spec["affinity"].items()}
    return {"metadata": {"labels": kept}, "spec": spec}


def _is_default_toleration(toleration: Mapping[str, Any]) -> bool:
    lasting = toleration.get("effect") != "NoExecute" or "tolerationSeconds" not in toleration
    return toleration.get("key") in DEFAULT_TOLERATIONS and not lasting


def _affinity_without_merged_keys(affinity: Mapping[str, Any]) -> dict[str, Any]:
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    if not isinstance(affinity.get(required), list):  # Node affinity is one selector, with nothing merged into it.
        return dict(affinity)
    return {**affinity, required: [_term_without_merged_keys(one) for one in affinity[required]]}


def _term_without_merged_keys(term: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the term without the requirements that the server made from (mis)matchLabelKeys.

    A selector may not use these keys otherwise, so every requirement on them is the server's.
    """
    merged = {*(term.get("matchLabelKeys") or ()), *(term.get("mismatchLabelKeys") or ())}
    selector = term.get("labelSelector") or {}
    if not merged or not selector.get("matchExpressions"):
        return dict(term)
    expressions = [one for one in selector["matchExpressions"] if one["key"] not in merged]
    rest = {field: value for field, value in selector.items() if field != "matchExpressions"}
    return {**term, "labelSelector": {**rest, "matchExpressions": expressions} if expressions else rest}
