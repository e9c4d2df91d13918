"""Converts a pool pod to its real pod, or gives the reasons against it.

The rules are in the table "Pool pod → real pod" of docs/lending.md.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from spillway.kubernetes.objects import is_object_name
from spillway.kubernetes.pod_security import BASELINE, violations
from spillway.lending_marks import (
    COPIES,
    COPY_BYTES,
    COPY_VERSION,
    GIVEN,
    LENDING,
    LENT,
    POOL,
    POOL_POD,
    POOL_TAINT,
    POOL_UID,
    namespace_in_owner,
    object_name_in_owner,
)
from spillway.texts import violation_text
from vk_bridge.core.node.loan import Manifest
from vk_bridge.core.pod.downward_api import downward_annotations, translated_field
from vk_bridge.core.pod.known_fields import KEPT_SPEC
from vk_bridge.core.pod.propagated_metadata import CARRIED, carried_annotations, carried_labels
from vk_bridge.core.pod.refusals import is_api_access, reasons_against_spec
from vk_bridge.core.pod.update import mutable_fields_text

CONTENT: Final = ("data", "binaryData", "stringData")
BYTES_DIGITS_MAX: Final = 12
CONFIG_MAP, SECRET = "ConfigMap", "Secret"
ANNOTATIONS_BYTES_MAX: Final = 256 * 1024
"""The most bytes of all annotation keys and values of an object: TotalAnnotationSizeLimitB of Kubernetes."""
REFERENCES_MAX: Final = 100
"""The most ConfigMaps and Secrets of one pod. Each is read before the pod is created, and the owner may be waiting."""
HOST_NAME_CHARACTERS_MAX: Final = 63
NAME_CHARACTERS_SHOWN: Final = 80
NO_EXECUTE: Final = "NoExecute"
WITH_DOWNWARD: Final = "with what the downward API is to tell of the pool's pod"


@dataclass(frozen=True, slots=True)
class PoolSide:
    """The place of a pool pod: the pool's id, and the name and address of the virtual node that it is bound to.

    carried: the prefixes of the labels and annotations that reach the owner.
    operating_system: the real node's, as `linux`; empty: it is not known.
    """

    pool_id: str
    virtual_node: str
    address: str
    carried: tuple[str, ...] = CARRIED
    operating_system: str = ""


@dataclass(frozen=True, slots=True, order=True)
class ConfigReference:
    """A ConfigMap or Secret of the pool that a pod needs. optional: the pod can start without it."""

    kind: str
    namespace: str
    name: str
    optional: bool


@dataclass(frozen=True, slots=True)
class CopyPlace:
    """The kind, namespace and name that the copy of a ConfigMap or Secret has in the owner."""

    kind: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class ConvertedPod:
    """A converted pod. pod: the manifest for the owner. references: the objects to copy before it is created."""

    pod: dict[str, Any]
    references: tuple[ConfigReference, ...]


@dataclass(frozen=True, slots=True)
class ConversionRefused:
    """The reasons why a pod or an object cannot be on a lent node; each names the field or the object."""

    reasons: tuple[str, ...]


def convert_pod(pod: Manifest, node: str, side: PoolSide) -> ConvertedPod | ConversionRefused:
    """Returns the pod that runs on `node` for this pool pod, or the reasons against it.

    The result meets Pod Security baseline. The owner's namespace enforces that if the owner's API server checks it.
    """
    reasons = tuple(dict.fromkeys(reasons_against_spec(pod["spec"], side.operating_system)))
    if reasons:
        return ConversionRefused(reasons)
    translation = _Translation(pod, side)
    spec = translation.real_pod_spec(node)
    if translation.no_names:
        return ConversionRefused(tuple(translation.no_names))
    if len(translation.references) > REFERENCES_MAX:
        return ConversionRefused(
            (f"{len(translation.references)} ConfigMaps and Secrets: at most {REFERENCES_MAX} are copied",)
        )
    metadata = pod["metadata"]
    annotations = {
        **carried_annotations(pod, side.carried),
        **downward_annotations(pod, side.virtual_node, translation.fields),
        POOL_POD: f"{metadata['namespace']}/{metadata['name']}",
        GIVEN: mutable_fields_text(pod, side.carried),
        **_copies_annotation(translation.references.values()),
    }
    total = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
    if total > ANNOTATIONS_BYTES_MAX:
        return ConversionRefused(
            (f"annotations: {total} bytes {WITH_DOWNWARD}; at most {ANNOTATIONS_BYTES_MAX} are possible",)
        )
    namespace, name = real_pod_place(pod, side.pool_id)
    made = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": namespace,
            "name": name,
            "labels": {**carried_labels(pod, side.carried), POOL: side.pool_id, POOL_UID: metadata["uid"]},
            "annotations": annotations,
        },
        "spec": spec,
    }
    beyond = tuple(violation_text(one) for one in violations(made, BASELINE))
    return ConversionRefused(beyond) if beyond else ConvertedPod(made, tuple(sorted(translation.references.values())))


def host_name(pod_name: str) -> str:
    """Returns the host name that a kubelet gives a pod of this name.

    Returns "" if it has a dot, because no pod may ask for such a host name.
    """
    name = pod_name[:HOST_NAME_CHARACTERS_MAX].rstrip("-.")
    return "" if "." in name else name


def real_pod_place(pool_pod: Manifest, pool_id: str) -> tuple[str, str]:
    """Returns the namespace and name of a pool pod's real pod."""
    metadata = pool_pod["metadata"]
    return namespace_in_owner(metadata["namespace"]), object_name_in_owner(pool_id, metadata["name"], metadata["uid"])


def make_copy(found: Manifest, kind: str, side: PoolSide) -> dict[str, Any] | ConversionRefused:
    """Returns the owner's copy of a pool's ConfigMap or Secret. A token for the pool's API is never copied."""
    metadata = found["metadata"]
    if kind == SECRET and found.get("type") == "kubernetes.io/service-account-token":
        return ConversionRefused(
            (f"Secret {metadata['name']}: it has a token for the pool's API, which is not copied",)
        )
    return {
        "apiVersion": "v1",
        "kind": kind,
        "metadata": {
            "namespace": namespace_in_owner(metadata["namespace"]),
            "name": copy_name(ConfigReference(kind, metadata["namespace"], metadata["name"], False), side.pool_id),
            "labels": {POOL: side.pool_id},
            "annotations": {COPY_VERSION: copy_version(found), COPY_BYTES: str(content_bytes(found))},
        },
        **{key: found[key] for key in (*CONTENT, "type", "immutable") if key in found},
    }


def content_bytes(found: Manifest) -> int:
    """Returns the size of a ConfigMap's or Secret's content, in bytes of JSON."""
    return len(msgspec.json.encode({key: found[key] for key in CONTENT if key in found}))


def annotated_copy_bytes(copy: Manifest) -> int | None:
    """Returns the size in the copy's own annotation; None if a bridge that did not count wrote the copy."""
    told = (copy["metadata"].get("annotations") or {}).get(COPY_BYTES, "")
    return int(told) if told.isascii() and told.isdecimal() and len(told) <= BYTES_DIGITS_MAX else None


def copy_version(found: Manifest) -> str:
    """Returns a text that changes when the original of a copy changes."""
    return f"{found['metadata'].get('uid', '')}/{found['metadata'].get('resourceVersion', '')}"


def copy_places_in_annotations(pool_id: str, annotations: Mapping[str, str]) -> frozenset[CopyPlace]:
    """Returns the copies that a real pod's annotations name.

    These names only keep existing copies from being removed. Nothing is copied because of them.
    """
    namespace = annotations.get(POOL_POD, "").partition("/")[0]
    named = (text.partition("/") for text in annotations.get(COPIES, "").split())
    references = (
        ConfigReference(kind, namespace, name, True) for kind, _, name in named if kind in (CONFIG_MAP, SECRET)
    )
    return frozenset(copy_place(reference, pool_id) for reference in references)


def copy_place(reference: ConfigReference, pool_id: str) -> CopyPlace:
    return CopyPlace(reference.kind, namespace_in_owner(reference.namespace), copy_name(reference, pool_id))


def copy_name(reference: ConfigReference, pool_id: str) -> str:
    return object_name_in_owner(pool_id, reference.name, reference.namespace, reference.kind, reference.name)


def _copies_annotation(references: Iterable[ConfigReference]) -> dict[str, str]:
    named = sorted(f"{reference.kind}/{reference.name}" for reference in references)
    return {COPIES: " ".join(named)} if named else {}


# ── What is translated ──────────────────────────────────────────────────────────────────────────────────────────────


class _Translation:
    """Translates the spec of one pod, and collects the objects that it refers to.

    fields: the downward API fields that annotations carry.
    no_names: reasons against references whose names no object can have. An API server admits such a reference, but a
        request for that name would go to another path.
    """

    def __init__(self, pod: Manifest, side: PoolSide) -> None:
        self._spec = pod["spec"]
        self._namespace: str = pod["metadata"]["namespace"]
        self._host_name = host_name(pod["metadata"]["name"])
        self._side = side
        self.references: dict[tuple[str, str], ConfigReference] = {}
        self.fields: dict[str, None] = {}
        self.no_names: dict[str, None] = {}
        self._dropped = {volume["name"] for volume in self._spec.get("volumes") or () if is_api_access(volume)}

    def real_pod_spec(self, node: str) -> dict[str, Any]:
        """Returns the real pod's spec. Known fields are kept, then containers, volumes and pull secrets are translated.

        Last come the fields that the pool pod must not choose: node, selector, tolerations, no token of the owner.
        """
        spec: dict[str, Any] = {key: value for key, value in self._spec.items() if key in KEPT_SPEC}
        for kind in ("containers", "initContainers"):
            if self._spec.get(kind):
                spec[kind] = [self._translate_container(container) for container in self._spec[kind]]
        volumes = [
            self._translate_volume(one) for one in self._spec.get("volumes") or () if one["name"] not in self._dropped
        ]
        # An API server admits entries without a name, and a kubelet ignores them.
        named = [one["name"] for one in self._spec.get("imagePullSecrets") or () if one.get("name")]
        pulls = [{"name": self._add_copy_reference(SECRET, name, True)} for name in named]
        return {
            **({"hostname": self._host_name} if self._host_name else {}),
            **spec,
            **({"volumes": volumes} if volumes else {}),
            **({"imagePullSecrets": pulls} if pulls else {}),
            "nodeName": node,
            "nodeSelector": {LENDING: LENT},
            "tolerations": self._real_pod_tolerations(),
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
        }

    def _real_pod_tolerations(self) -> list[dict[str, Any]]:
        """Returns the real pod's tolerations: of the lending taint, and the pool pod's own for NoExecute.

        A kubelet checks no other effect. A toleration without an effect covers every effect, so it is kept.
        """
        theirs = [entry for entry in self._spec.get("tolerations") or () if entry.get("key") != POOL_TAINT]
        kept = [{**entry, "effect": NO_EXECUTE} for entry in theirs if entry.get("effect", "") in ("", NO_EXECUTE)]
        return [{"key": LENDING, "operator": "Exists", "effect": "NoSchedule"}, *kept]

    def _translate_container(self, container: Manifest) -> dict[str, Any]:
        made = dict(container)
        if container.get("env"):
            made["env"] = [self._translate_variable(variable) for variable in container["env"]]
        if container.get("envFrom"):
            made["envFrom"] = [self._translate_env_from(source) for source in container["envFrom"]]
        if container.get("volumeMounts"):
            made["volumeMounts"] = [one for one in container["volumeMounts"] if one["name"] not in self._dropped]
        return made

    def _translate_variable(self, variable: Manifest) -> dict[str, Any]:
        source = variable.get("valueFrom")
        return {**variable, "valueFrom": self._translate_value_source(source)} if source else dict(variable)

    def _translate_value_source(self, source: Manifest) -> dict[str, Any]:
        made = dict(source)
        for field, kind in (("configMapKeyRef", CONFIG_MAP), ("secretKeyRef", SECRET)):
            if source.get(field):
                made[field] = self._translate_object_reference(kind, source[field], "name")
        if source.get("fieldRef"):
            made["fieldRef"] = self._translate_field_reference(source["fieldRef"])
        return made

    def _translate_env_from(self, source: Manifest) -> dict[str, Any]:
        made = dict(source)
        for field, kind in (("configMapRef", CONFIG_MAP), ("secretRef", SECRET)):
            if source.get(field):
                made[field] = self._translate_object_reference(kind, source[field], "name")
        return made

    def _translate_volume(self, volume: Manifest) -> dict[str, Any]:
        made = dict(volume)
        if volume.get("configMap"):
            made["configMap"] = self._translate_object_reference(CONFIG_MAP, volume["configMap"], "name")
        if volume.get("secret"):
            made["secret"] = self._translate_object_reference(SECRET, volume["secret"], "secretName")
        if volume.get("downwardAPI"):
            made["downwardAPI"] = self._translate_downward_items(volume["downwardAPI"])
        if volume.get("projected"):
            sources = [self._translate_projected_source(source) for source in volume["projected"].get("sources") or ()]
            made["projected"] = {**volume["projected"], "sources": sources}
        return made

    def _translate_projected_source(self, source: Manifest) -> dict[str, Any]:
        made = dict(source)
        for field, kind in (("configMap", CONFIG_MAP), ("secret", SECRET)):
            if source.get(field):
                made[field] = self._translate_object_reference(kind, source[field], "name")
        if source.get("downwardAPI"):
            made["downwardAPI"] = self._translate_downward_items(source["downwardAPI"])
        return made

    def _translate_downward_items(self, downward: Manifest) -> dict[str, Any]:
        items: Sequence[Mapping[str, Any]] = downward.get("items") or ()
        told = [
            {**item, "fieldRef": self._translate_field_reference(item["fieldRef"])}
            if item.get("fieldRef")
            else dict(item)
            for item in items
        ]
        return {**downward, "items": told}

    def _translate_field_reference(self, reference: Manifest) -> dict[str, Any]:
        path, told = translated_field(reference["fieldPath"], self._side.carried)
        if told:
            self.fields[reference["fieldPath"]] = None
        return {**reference, "fieldPath": path}

    def _translate_object_reference(self, kind: str, reference: Manifest, field: str) -> dict[str, Any]:
        return {
            **reference,
            field: self._add_copy_reference(kind, reference.get(field, ""), bool(reference.get("optional"))),
        }

    def _add_copy_reference(self, kind: str, name: str, optional: bool) -> str:
        if not is_object_name(name):
            self.no_names[f"{kind} {str(name)[:NAME_CHARACTERS_SHOWN]!r}: no object can have this name"] = None
            return ""
        known = self.references.get((kind, name))
        needed = ConfigReference(kind, self._namespace, name, optional and (known is None or known.optional))
        self.references[kind, name] = needed
        return copy_name(needed, self._side.pool_id)
