"""Makes the objects that are written to a cluster: the user's manifests with our marks and that cluster's replicas."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Any

from propagator.core.kinds import KINDS
from propagator.core.live import (
    ANNOTATION_DECLARATION,
    ANNOTATION_MANIFEST,
    ANNOTATION_PLACEMENT,
    LABEL_FLEET,
    LABEL_WORKLOAD,
    DependencyReference,
)
from spillway.events import DependencyDeclared, WorkloadDeclared
from spillway.kubernetes.pod_shape import template_digest
from spillway.model import Part

Manifest = dict[str, Any]

DEPENDENCY_KINDS = ("ConfigMap", "Service")

DEFAULT_ACCOUNT = "default"
LABEL_VALUE_LENGTH_MAX = 63
HASH_LENGTH = 10

# Fields that a server fills in, or that have a meaning only in the cluster from which the manifest was read.
SERVER_METADATA = (
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generateName",
    "managedFields",
    "ownerReferences",
    "selfLink",
)


@dataclass(frozen=True, slots=True)
class NamedTemplate:
    """A pod template, named by its digest. name: a workload that has this template."""

    digest: str
    namespace: str
    name: str
    pod: Mapping[str, Any]


class BadManifest(Exception):
    """Raised for a declaration whose manifest cannot be written to a cluster. The text gives the fault."""


def workload_label(name: str) -> str:
    """Returns the workload's name as a label's value.

    A name that is too long is cut, and a hash of the whole name follows.
    """
    if len(name) <= LABEL_VALUE_LENGTH_MAX:
        return name
    digest = sha256(name.encode()).hexdigest()[:HASH_LENGTH]
    return f"{name[: LABEL_VALUE_LENGTH_MAX - HASH_LENGTH - 1]}-{digest}"


def has_earlier_template(declaration: WorkloadDeclared, part: Part) -> bool:
    """Returns whether the part still has an earlier template, because the cluster's turn at the newest has not come."""
    return part.template_generation not in (0, declaration.template_generation)


def earlier_manifest(declaration: WorkloadDeclared, part: Part) -> bytes | None:
    """Returns the manifest of the earlier template that a part has; None when the declaration does not contain it."""
    known = {entry.template_generation: entry.manifest for entry in declaration.earlier_templates}
    return known.get(part.template_generation)


def _declared_manifest(declaration: WorkloadDeclared, part: Part) -> bytes:
    if not has_earlier_template(declaration, part):
        return declaration.manifest
    manifest = earlier_manifest(declaration, part)
    assert manifest is not None, f"{declaration.name}: acted on without template {part.template_generation}"
    return manifest


def workload_manifest(declaration: WorkloadDeclared, part: Part, fleet: str) -> Manifest:
    """Returns the workload's object for this part, with our marks and the part's replicas. Raises BadManifest."""
    kind = declaration.kind
    manifest = _cleaned_manifest(_declared_manifest(declaration, part), kind, declaration.namespace, declaration.name)
    spec = manifest.get("spec")
    if not isinstance(spec, dict):
        raise BadManifest(f"{kind} {declaration.name}: spec is {type(spec).__name__}, expected an object")
    spec[KINDS[kind].replicas] = part.replicas
    marks = {ANNOTATION_PLACEMENT: str(part.version), ANNOTATION_MANIFEST: manifest_digest(declaration, part)}
    _add_marks(manifest, declaration.name, fleet, marks)
    return manifest


def manifest_digest(declaration: WorkloadDeclared, part: Part) -> str:
    """Returns a digest of the part's manifest that does not depend on its replicas. Raises BadManifest."""
    manifest_bytes = _declared_manifest(declaration, part)
    return _digest_but_for_replicas(manifest_bytes, declaration.kind, declaration.namespace, declaration.name)


def declared_spec(declaration: WorkloadDeclared, part: Part) -> Mapping[str, Any]:
    """Returns the spec of the part's manifest, without replicas. Raises BadManifest."""
    spec = _mapping_or_empty(
        _parse_manifest(_declared_manifest(declaration, part), declaration.kind, declaration.name).get("spec")
    )
    return {field: value for field, value in spec.items() if field != KINDS[declaration.kind].replicas}


def replicas_and_version_patch(part: Part, kind: str) -> Manifest:
    """Returns a merge patch with this cluster's replicas and the version, and no other field of the object."""
    marks = {"annotations": {ANNOTATION_PLACEMENT: str(part.version)}}
    return {"metadata": marks, "spec": {KINDS[kind].replicas: part.replicas}}


def replicas_patch(part: Part, kind: str) -> Manifest:
    """Returns a merge patch with the replicas only, for an object that keeps an earlier template for now."""
    return {"spec": {KINDS[kind].replicas: part.replicas}}


def template_of_part(declaration: WorkloadDeclared, part: Part) -> NamedTemplate:
    """Returns the pod template of a part. Raises BadManifest."""
    manifest = _parse_manifest(_declared_manifest(declaration, part), declaration.kind, declaration.name)
    return _template_in_manifest(manifest, declaration.namespace, declaration.name)


def template_digests_of(declaration: WorkloadDeclared) -> frozenset[str]:
    """Returns the digests of the newest pod template and of the earlier ones that clusters still have.

    A template that cannot be read has an empty digest.
    """
    manifests = (declaration.manifest, *(entry.manifest for entry in declaration.earlier_templates))
    return frozenset(
        _template_digest_in_manifest(one, declaration.kind, declaration.namespace, declaration.name)
        for one in manifests
    )


def template_with_digest(digest: str, declaration: WorkloadDeclared) -> NamedTemplate | None:
    """Returns the declaration's pod template that has this digest; None when none has it or it cannot be read."""
    for manifest_bytes in (declaration.manifest, *(entry.manifest for entry in declaration.earlier_templates)):
        if (
            digest
            and _template_digest_in_manifest(manifest_bytes, declaration.kind, declaration.namespace, declaration.name)
            == digest
        ):
            manifest = _parse_manifest(manifest_bytes, declaration.kind, declaration.name)
            return _template_in_manifest(manifest, declaration.namespace, declaration.name)
    return None


@lru_cache(maxsize=4096)
def _template_digest_in_manifest(manifest_bytes: bytes, kind: str, namespace: str, name: str) -> str:
    try:
        return _template_in_manifest(_parse_manifest(manifest_bytes, kind, name), namespace, name).digest
    except BadManifest:
        return ""


def _template_in_manifest(manifest: Mapping[str, Any], namespace: str, name: str) -> NamedTemplate:
    pod = _mapping_or_empty(_mapping_or_empty(manifest.get("spec")).get("template"))
    if not isinstance(pod.get("spec"), dict):
        raise BadManifest(f"{name}: no pod template with a spec")
    return NamedTemplate(template_digest(pod, namespace), namespace, name, pod)


def dependency_manifest(dependency: DependencyDeclared, fleet: str) -> Manifest:
    """Returns the dependency's object with our marks. Raises BadManifest."""
    manifest = _cleaned_manifest(dependency.manifest, dependency.kind, dependency.namespace, dependency.name)
    if dependency.kind == "Service":
        spec = manifest.get("spec")
        # A cluster IP has no meaning in another cluster. But "None" (headless) is the user's choice and stays.
        if isinstance(spec, dict) and spec.get("clusterIP") != "None":
            spec.pop("clusterIP", None)
            spec.pop("clusterIPs", None)
    generation, digest = generation_and_digest_of(dependency)
    owner = dependency.workload.partition("/")[2]
    _add_marks(manifest, owner, fleet, {ANNOTATION_DECLARATION: f"{generation}.{digest}"})
    return manifest


def generation_and_digest_of(dependency: DependencyDeclared) -> tuple[int, str]:
    """Returns (generation, digest) to compare with the annotation of the live object.

    The generation gives the order. The digest shows whether two texts of one generation differ.
    """
    return dependency.workload_generation, _digest_of_bytes(dependency.manifest)


def needed_references(declaration: WorkloadDeclared, part: Part) -> frozenset[DependencyReference]:
    """Returns the objects that the part's template needs and that the workload does not bring as dependencies."""
    manifest = _parse_manifest(_declared_manifest(declaration, part), declaration.kind, declaration.name)
    given = {DependencyReference(dependency.kind, dependency.name) for dependency in declaration.dependencies}
    return template_references(manifest) - given


def template_references(manifest: Mapping[str, Any]) -> frozenset[DependencyReference]:
    """Returns the objects that the pod template names and without which its pods do not start."""
    return pod_references(_mapping_or_empty(_mapping_or_empty(manifest.get("spec")).get("template")))


def pod_references(template: Mapping[str, Any]) -> frozenset[DependencyReference]:
    """Returns the objects that a pod template names and without which its pods do not start.

    Three things are left out: optional references; imagePullSecrets, because pods may start without them; and the
    service account `default`, which every cluster creates in every namespace.
    """
    return frozenset(_references_of_pod_spec(_mapping_or_empty(template.get("spec"))))


def _references_of_pod_spec(pod: Mapping[str, Any]) -> Iterator[DependencyReference]:
    for field in ("initContainers", "containers"):
        for container in _mappings_in_list(pod.get(field)):
            yield from _references_of_container(container)
    for volume in _mappings_in_list(pod.get("volumes")):
        yield from _reference_in_selector("ConfigMap", volume.get("configMap"))
        yield from _reference_in_selector("Secret", volume.get("secret"), "secretName")
        for source in _mappings_in_list(_mapping_or_empty(volume.get("projected")).get("sources")):
            yield from _reference_in_selector("ConfigMap", source.get("configMap"))
            yield from _reference_in_selector("Secret", source.get("secret"))
        yield from _reference_in_selector("PersistentVolumeClaim", volume.get("persistentVolumeClaim"), "claimName")
    if pod.get("serviceAccountName") != DEFAULT_ACCOUNT:
        yield from _reference_in_selector("ServiceAccount", pod, "serviceAccountName")
    yield from _reference_in_selector("PriorityClass", pod, "priorityClassName")
    yield from _reference_in_selector("RuntimeClass", pod, "runtimeClassName")


def _references_of_container(container: Mapping[str, Any]) -> Iterator[DependencyReference]:
    for source in _mappings_in_list(container.get("envFrom")):
        yield from _reference_in_selector("ConfigMap", source.get("configMapRef"))
        yield from _reference_in_selector("Secret", source.get("secretRef"))
    for variable in _mappings_in_list(container.get("env")):
        source = _mapping_or_empty(variable.get("valueFrom"))
        yield from _reference_in_selector("ConfigMap", source.get("configMapKeyRef"))
        yield from _reference_in_selector("Secret", source.get("secretKeyRef"))


def _reference_in_selector(kind: str, selector: object, field: str = "name") -> Iterator[DependencyReference]:
    chosen = _mapping_or_empty(selector)
    name = chosen.get(field)
    if isinstance(name, str) and name and chosen.get("optional") is not True:
        yield DependencyReference(kind, name)


def _mapping_or_empty(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _mappings_in_list(value: object) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _add_marks(manifest: Manifest, workload: str, fleet: str, annotations: Mapping[str, str]) -> None:
    meta = manifest["metadata"]
    meta["labels"] = {
        **_mapping_or_empty(meta.get("labels")),
        LABEL_FLEET: fleet,
        LABEL_WORKLOAD: workload_label(workload),
    }
    meta["annotations"] = {**_mapping_or_empty(meta.get("annotations")), **annotations}


def _cleaned_manifest(manifest_bytes: bytes, kind: str, namespace: str, name: str) -> Manifest:
    """Returns the manifest with the declared name and namespace, and without the fields that a server fills in.

    The manifest, its metadata and its spec are copies that the caller may change. Deeper values are shared.
    """
    manifest: Manifest = {**_parse_manifest(manifest_bytes, kind, name)}
    metadata = _mapping_or_empty(manifest.get("metadata")).items()
    manifest["metadata"] = {field: value for field, value in metadata if field not in SERVER_METADATA}
    manifest["metadata"].update(namespace=namespace, name=name)
    if isinstance(manifest.get("spec"), dict):
        manifest["spec"] = {**manifest["spec"]}
    manifest.pop("status", None)
    return manifest


@lru_cache(maxsize=512)
def _parse_manifest(manifest_bytes: bytes, kind: str, name: str) -> Manifest:
    try:
        manifest = json.loads(manifest_bytes)
    except (ValueError, RecursionError) as error:
        raise BadManifest(f"{kind} {name}: the manifest is not JSON: {error}") from error
    if not isinstance(manifest, dict) or manifest.get("kind") != kind:
        found = manifest.get("kind") if isinstance(manifest, dict) else type(manifest).__name__
        raise BadManifest(f"{kind} {name}: the manifest is of kind {found!r}")
    return manifest


@lru_cache(maxsize=4096)
def _digest_of_bytes(manifest_bytes: bytes) -> str:
    return sha256(manifest_bytes).hexdigest()[:HASH_LENGTH]


@lru_cache(maxsize=4096)
def _digest_but_for_replicas(manifest_bytes: bytes, kind: str, namespace: str, name: str) -> str:
    manifest = _cleaned_manifest(manifest_bytes, kind, namespace, name)
    spec, replicas = _mapping_or_empty(manifest.get("spec")), KINDS[kind].replicas
    manifest["spec"] = {field: value for field, value in spec.items() if field != replicas}
    return _digest_of_bytes(json.dumps(manifest, sort_keys=True).encode())
