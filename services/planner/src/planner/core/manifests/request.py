"""Reads the manifests of an Apply into a declaration. Raises RequestError that names the wrong field."""

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from planner.core.manifests import policy as policies
from planner.core.manifests import propagation
from planner.core.manifests.kinds import (
    JOB,
    KIND_NAMES,
    KINDS,
    NOT_OURS_TO_SAY,
    STATEFULSET,
    completions_of,
    template_content,
)
from planner.core.manifests.policy import REPLICAS_MAX
from planner.core.manifests.sizes import check_dependency_sizes, check_sizes
from planner.core.manifests.templates import KEPT_CHARACTERS_MAX, READ_KEPT_MAX, read_request_template
from planner.core.manifests.terms import check_terms
from spillway.api import RequestError, invalid_argument_error
from spillway.kubernetes.manifest_text import (
    LABEL_NAME,
    NAME,
    canonical_json,
    check_name,
    expanded_text_bytes,
    read_object,
)
from spillway.kubernetes.pod_shape import convert_manifest_part, matches_labels, selector_of, shape_of
from spillway.kubernetes.scheduling_spec import LabelSelector
from spillway.model import Policy, Shape

MANIFESTS_MAX = 64

POLICY_KINDS = (policies.KIND, propagation.KIND)
DEPENDENCY_KINDS = {"ConfigMap": "v1", "Service": "v1"}

MANIFEST = frozenset(("apiVersion", "kind", "metadata", "spec", "status"))
POD_SPEC = frozenset(
    ("activeDeadlineSeconds", "affinity", "automountServiceAccountToken", "containers", "dnsConfig", "dnsPolicy",
     "enableServiceLinks", "ephemeralContainers", "hostAliases", "hostIPC", "hostNetwork", "hostPID", "hostUsers",
     "hostname", "hostnameOverride", "imagePullSecrets", "initContainers", "nodeName", "nodeSelector", "os", "overhead",
     "preemptionPolicy", "priority", "priorityClassName", "readinessGates", "resourceClaims", "resources",
     "restartPolicy", "runtimeClassName", "schedulerName", "schedulingGates", "securityContext", "serviceAccount",
     "serviceAccountName", "setHostnameAsFQDN", "shareProcessNamespace", "subdomain", "terminationGracePeriodSeconds",
     "tolerations", "topologySpreadConstraints", "volumes", "workloadRef")
)  # fmt: skip
CONTAINER = frozenset(
    ("args", "command", "env", "envFrom", "image", "imagePullPolicy", "lifecycle", "livenessProbe", "name", "ports",
     "readinessProbe", "resizePolicy", "resources", "restartPolicy", "restartPolicyRules", "securityContext",
     "startupProbe", "stdin", "stdinOnce", "terminationMessagePath", "terminationMessagePolicy", "tty", "volumeDevices",
     "volumeMounts", "workingDir")
)  # fmt: skip

RESOURCES = frozenset(("claims", "limits", "requests"))
STRATEGY = frozenset(("rollingUpdate", "type"))
ROLLING_UPDATE = frozenset(("maxSurge", "maxUnavailable"))
STATEFUL_UPDATE = frozenset(("maxUnavailable", "partition"))

SERVER_FILLED = frozenset(
    ("creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "generation", "managedFields",
     "ownerReferences", "resourceVersion", "selfLink", "uid")
)  # fmt: skip
SERVER_ANNOTATIONS = frozenset(
    ("deployment.kubernetes.io/revision", "kubectl.kubernetes.io/last-applied-configuration")
)


@dataclass(frozen=True, slots=True)
class DependencyManifest:
    kind: str
    name: str
    manifest: bytes


@dataclass(frozen=True, slots=True)
class Declaration:
    """One workload as a request declares it.

    template: canonical bytes of the part of the manifest whose change makes pods roll.
    replicas: None if the manifest has no number. Then a known workload keeps its number, and a new one has 1.
    warnings: texts for users about parts of the manifests without effect.
    policy_words: translates an error text about its policy into a text that names the fields that the user wrote.
    """

    kind: str
    namespace: str
    name: str
    manifest: bytes
    template: bytes
    replicas: int | None
    surge: int | str
    shape: Shape
    policy: Policy
    dependencies: tuple[DependencyManifest, ...]
    warnings: tuple[str, ...] = ()
    policy_words: Callable[[str], str] = str


class ReadTexts(tuple[str, ...]):  # noqa: SLOT001 (a tuple has no room for slots)
    """Manifest texts together with the result of reading them, so that the texts of one request are read once.

    Exactly one field is set: the declaration, or the refusal when the manifests are wrong.
    """

    declaration: Declaration | None
    refusal: RequestError | None


def read_texts(texts: tuple[str, ...]) -> ReadTexts:
    """Reads the texts and returns them with the result. It raises no error; read_manifests() raises the refusal."""
    if isinstance(texts, ReadTexts):
        return texts
    read = ReadTexts(texts)
    read.declaration = read.refusal = None
    try:
        read.declaration = read_manifests(texts)
    except RequestError as error:
        read.refusal = error.with_text(error.text)  # Without its traceback, whose frames hold large values.
    return read


def read_manifests(texts: Sequence[str]) -> Declaration:
    """Returns the declaration in an Apply's manifests.

    Raises RequestError (INVALID_ARGUMENT) that names what is wrong.
    """
    if isinstance(texts, ReadTexts):
        if texts.declaration is None:
            assert texts.refusal is not None, "what was read says one of both"
            raise texts.refusal.with_text(texts.refusal.text)
        return texts.declaration
    if sum(map(len, texts)) > KEPT_CHARACTERS_MAX:
        return _read_declaration(_parse_objects(texts))
    kept = _kept_declaration(tuple(map(str, texts)))  # Plain strings only: a subclass of str may hold more data.
    if kept.declaration is not None:
        return kept.declaration
    objects = _parse_objects(texts)
    small = (
        sum(map(expanded_text_bytes, objects)) <= KEPT_CHARACTERS_MAX
    )  # A YAML alias can repeat a long text many times.
    declaration = _read_declaration(objects)
    if small:
        kept.declaration = declaration
    return declaration


@dataclass(slots=True)
class _KeptDeclaration:
    """The kept declaration of some texts. It is None if they are wrong or not read yet, or the declaration is large."""

    declaration: Declaration | None = None


@lru_cache(maxsize=READ_KEPT_MAX)
def _kept_declaration(_: tuple[str, ...]) -> _KeptDeclaration:
    return _KeptDeclaration()


def _read_declaration(objects: Sequence[dict[str, Any]]) -> Declaration:
    policy_manifests = [entry for entry in objects if entry.get("kind") in POLICY_KINDS]
    if len(policy_manifests) > 1:
        raise invalid_argument_error(
            "manifests", f"{len(policy_manifests)} {policies.KIND}", f"at most one {policies.KIND}"
        )
    dependencies = [entry for entry in objects if entry.get("kind") in DEPENDENCY_KINDS]
    workloads = [entry for entry in objects if entry.get("kind") not in (*POLICY_KINDS, *DEPENDENCY_KINDS)]
    if len(workloads) != 1:
        named = ", ".join(str(entry.get("kind")) for entry in workloads) or "none"
        raise invalid_argument_error("manifests", named, f"exactly one of {KIND_NAMES}")
    workload = _without_nulls(workloads[0])
    read = _policy_for_workload(policy_manifests, workload)
    dropped = [warning for manifest in (workload, *dependencies) for warning in _drop_finalizers(manifest)]
    declaration = _build_declaration(workload, dependencies, read.policy)
    return replace(declaration, warnings=(*read.warnings, *dropped), policy_words=read.words)


def _policy_for_workload(manifests: Sequence[dict[str, Any]], workload: dict[str, Any]) -> propagation.ReadPolicy:
    """Returns the policy for a workload: a PlacementPolicy, a PropagationPolicy, or the default policy."""
    if not manifests:
        return propagation.ReadPolicy(policies.DEFAULT_POLICY, ())
    manifest = _without_nulls(manifests[0])
    if manifest["kind"] == propagation.KIND:
        return propagation.read_propagation_policy(manifest, workload)
    if manifest.get("apiVersion") != policies.API_VERSION:
        raise invalid_argument_error(f"{policies.KIND}.apiVersion", manifest.get("apiVersion"), policies.API_VERSION)
    return propagation.ReadPolicy(policies.read_policy(manifest), ())


def _parse_objects(texts: Sequence[str]) -> list[dict[str, Any]]:
    if not texts:
        raise invalid_argument_error("manifests", [], f"one of {KIND_NAMES}")
    if len(texts) > MANIFESTS_MAX:
        raise invalid_argument_error("manifests", len(texts), f"at most {MANIFESTS_MAX} objects")
    return [read_object(text, f"manifests[{index}]") for index, text in enumerate(texts)]


def _without_nulls(value: Any) -> Any:
    """Returns the value without null fields, which the API server treats as absent."""
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [_without_nulls(inner) for inner in value] if isinstance(value, list) else value


def _build_declaration(workload: dict[str, Any], dependencies: Iterable[dict[str, Any]], policy: Policy) -> Declaration:
    kind = KINDS.get(str(workload.get("kind")))
    if kind is None:
        raise invalid_argument_error(
            "kind", workload.get("kind"), f"{KIND_NAMES}, ConfigMap, Service or PlacementPolicy"
        )
    if workload.get("apiVersion") != kind.api_version:
        raise invalid_argument_error(f"{kind.name}.apiVersion", workload.get("apiVersion"), kind.api_version)
    namespace, name = _namespace_and_name(workload, kind.name, NAME)
    _check_fields(workload, MANIFEST, kind.name)
    spec = workload.get("spec")
    if not isinstance(spec, dict):
        raise invalid_argument_error(f"{kind.name}.spec", spec, "an object")
    if kind.name == JOB:
        _check_job(spec)
    _check_fields(spec, kind.fields, f"{kind.name}.spec")
    replicas = _read_replicas(workload)
    _check_template(spec, kind.name)
    if kind.name == STATEFULSET:
        _check_statefulset(spec)
    elif kind.name != JOB:
        _check_strategy(spec)
    manifest = _canonical_manifest(workload, namespace)
    check_terms(spec["template"]["spec"], f"{kind.name}.spec.template.spec")
    pods = read_request_template(manifest, namespace)
    return Declaration(
        kind=kind.name,
        namespace=namespace,
        name=name,
        manifest=manifest,
        template=canonical_json(template_content(workload)),
        replicas=replicas,
        surge=pods.surge,
        shape=replace(pods.shape, unmodelled=(*pods.unmodelled, *_unmodelled_texts(spec))),
        policy=policy,
        dependencies=tuple(_read_dependency(entry, namespace) for entry in dependencies),
    )


def _canonical_manifest(workload: Mapping[str, Any], namespace: str) -> bytes:
    """Returns the canonical manifest. Raises RequestError for values that JSON does not have.

    If such a value is in the pod template, reading the template's shape raises an error that names the field.
    """
    try:
        return canonical_json(_without_status(workload, namespace))
    except RequestError:
        shape_of(workload["spec"]["template"], namespace, f"{workload['kind']}.spec.template")
        raise


def _read_replicas(workload: Mapping[str, Any]) -> int | None:
    """Returns the replicas of a manifest; None if it has none. For a Job: its parallelism, at most its completions."""
    kind, spec = KINDS[workload["kind"]], workload["spec"]
    given = spec.get(kind.replicas, 1 if kind.name == JOB else None)
    if given is None:
        return None
    replicas = check_replicas(given, f"{kind.name}.spec.{kind.replicas}")
    completions = completions_of(workload)
    return replicas if completions is None else min(replicas, completions)


def _unmodelled_texts(spec: Mapping[str, Any]) -> Iterable[str]:
    if spec.get("paused"):
        yield "paused: no pods are made until it is resumed"
    if spec.get("suspend"):
        yield "suspend: no pods are made until it is resumed"
    if spec.get("volumeClaimTemplates"):
        yield "volumeClaimTemplates: on which nodes its volumes can be"


def _check_statefulset(spec: Mapping[str, Any]) -> None:
    where = f"{STATEFULSET}.spec"
    policy = spec.get("podManagementPolicy", "OrderedReady")
    if policy not in ("OrderedReady", "Parallel"):
        raise invalid_argument_error(f"{where}.podManagementPolicy", policy, "OrderedReady or Parallel")
    strategy = spec.get("updateStrategy", {})
    if not isinstance(strategy, dict):
        raise invalid_argument_error(f"{where}.updateStrategy", strategy, "an object")
    _check_fields(strategy, STRATEGY, f"{where}.updateStrategy")
    if strategy.get("type", "RollingUpdate") not in ("RollingUpdate", "OnDelete"):
        raise invalid_argument_error(f"{where}.updateStrategy.type", strategy["type"], "RollingUpdate or OnDelete")
    if isinstance(strategy.get("rollingUpdate"), dict):
        _check_fields(strategy["rollingUpdate"], STATEFUL_UPDATE, f"{where}.updateStrategy.rollingUpdate")


def _check_job(spec: Mapping[str, Any]) -> None:
    for field, why in NOT_OURS_TO_SAY.items():
        if field in spec:
            raise invalid_argument_error(f"{JOB}.spec.{field}", spec[field], f"nothing: {why}")
    if "completions" in spec:
        check_replicas(spec["completions"], f"{JOB}.spec.completions")
    template = spec.get("template")
    pod = template.get("spec") if isinstance(template, dict) else None
    restarts = pod.get("restartPolicy", "Always") if isinstance(pod, dict) else "Never"
    if restarts not in ("Never", "OnFailure"):
        raise invalid_argument_error(f"{JOB}.spec.template.spec.restartPolicy", restarts, "Never or OnFailure")


def check_replicas(replicas: object, where: str) -> int:
    """Returns the number of replicas. Raises RequestError when it is no integer in range."""
    if isinstance(replicas, bool) or not isinstance(replicas, int) or not 0 <= replicas <= REPLICAS_MAX:
        raise invalid_argument_error(where, replicas, f"an integer, 0 to {REPLICAS_MAX}")
    return replicas


def _check_template(spec: Mapping[str, Any], kind: str) -> None:
    where = f"{kind}.spec.template"
    template = spec.get("template")
    if not isinstance(template, dict) or not isinstance(template.get("spec"), dict):
        raise invalid_argument_error(where, template, "a pod template with a spec")
    _check_fields(template, frozenset(("metadata", "spec")), where)
    if not isinstance(template.get("metadata") or {}, dict):
        raise invalid_argument_error(f"{where}.metadata", template["metadata"], "an object")
    _check_fields(template["spec"], POD_SPEC, f"{where}.spec")
    check_sizes(spec, kind)
    for field_name in ("containers", "initContainers"):
        for index, container in enumerate(_list_field(template["spec"], field_name, where)):
            path = f"{where}.spec.{field_name}[{index}]"
            if not isinstance(container, dict):
                raise invalid_argument_error(path, container, "an object")
            _check_fields(container, CONTAINER, path)
            for field in ("name", "image"):
                if not isinstance(container.get(field), str) or not container[field]:
                    raise invalid_argument_error(f"{path}.{field}", container.get(field), "a text")
            if isinstance(container.get("resources"), dict):
                _check_fields(container["resources"], RESOURCES, f"{path}.resources")
    if kind != JOB:  # The cluster makes a Job's selector.
        _check_selector(spec, template, kind)


def _check_strategy(spec: Mapping[str, Any]) -> None:
    where = "Deployment.spec.strategy"
    strategy = spec.get("strategy")
    if isinstance(strategy, dict):
        _check_fields(strategy, STRATEGY, where)
        if isinstance(strategy.get("rollingUpdate"), dict):
            _check_fields(strategy["rollingUpdate"], ROLLING_UPDATE, f"{where}.rollingUpdate")


def _list_field(spec: Mapping[str, Any], field: str, where: str) -> list[Any]:
    value = spec.get(field) or []
    if not isinstance(value, list):
        raise invalid_argument_error(f"{where}.spec.{field}", value, "a list")
    return value


def _check_selector(spec: Mapping[str, Any], template: Mapping[str, Any], kind: str) -> None:
    where = f"{kind}.spec.selector"
    metadata = template.get("metadata", {})
    if not isinstance(metadata, dict):
        raise invalid_argument_error(f"{kind}.spec.template.metadata", metadata, "an object")
    labels = convert_manifest_part(metadata.get("labels", {}), dict[str, str], f"{kind}.spec.template.metadata.labels")
    selector = selector_of(convert_manifest_part(spec.get("selector", {}), LabelSelector, where), where)
    if not selector.requirements:
        raise invalid_argument_error(where, spec.get("selector"), "at least one label")
    if not matches_labels(selector.requirements, labels):
        raise invalid_argument_error(where, spec["selector"], f"labels of the template, {labels}")


def _read_dependency(manifest: dict[str, Any], namespace: str) -> DependencyManifest:
    kind = manifest["kind"]
    if manifest.get("apiVersion") != DEPENDENCY_KINDS[kind]:
        raise invalid_argument_error(f"{kind}.apiVersion", manifest.get("apiVersion"), DEPENDENCY_KINDS[kind])
    check_dependency_sizes(manifest)
    own_namespace, name = _namespace_and_name(manifest, kind, NAME)
    given = (manifest.get("metadata") or {}).get("namespace")
    if given and own_namespace != namespace:
        raise invalid_argument_error(f"{kind}.metadata.namespace", own_namespace, f"the workload's, {namespace}")
    return DependencyManifest(kind, name, canonical_json(_without_status(manifest, namespace)))


def _namespace_and_name(manifest: Mapping[str, Any], where: str, pattern: re.Pattern[str]) -> tuple[str, str]:
    metadata = manifest.get("metadata")
    if not isinstance(metadata, dict):
        raise invalid_argument_error(f"{where}.metadata", metadata, "an object with a name")
    return (
        check_name(metadata.get("namespace") or "default", f"{where}.metadata.namespace", LABEL_NAME, 63),
        check_name(metadata.get("name"), f"{where}.metadata.name", pattern, 253),
    )


def _check_fields(value: Mapping[str, Any], known: frozenset[str], where: str) -> None:
    for field in value:
        if field not in known:
            close = difflib.get_close_matches(str(field), known, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise RequestError("INVALID_ARGUMENT", f"{where}.{field}: unknown field{hint}")


def _drop_finalizers(manifest: dict[str, Any]) -> Iterable[str]:
    """Removes finalizers, also from pods and volume claims, and yields warnings.

    An object with a finalizer stays when it is deleted, until somebody removes the finalizer. One such workload would
    keep its cluster from leaving.
    """
    spec = manifest.get("spec")
    made = spec if isinstance(spec, dict) else {}
    claims = made.get("volumeClaimTemplates")
    places = [("", manifest), (".spec.template", made.get("template"))]
    places += [(".spec.volumeClaimTemplates", claim) for claim in (claims if isinstance(claims, list) else ())]
    for where, place in places:
        metadata = place.get("metadata") if isinstance(place, dict) else None
        if isinstance(metadata, dict) and metadata.pop("finalizers", None):
            field = f"{manifest['kind']}{where}.metadata.finalizers"
            yield f"{field} is left out: what carries one stays when it is deleted"


def _without_status(manifest: Mapping[str, Any], namespace: str) -> dict[str, Any]:
    """Returns the manifest without fields that a server sets, so that a copy of a live object is a valid manifest."""
    metadata = {key: value for key, value in manifest["metadata"].items() if key not in SERVER_FILLED}
    if isinstance(metadata.get("annotations"), dict):
        annotations = metadata["annotations"].items()
        metadata["annotations"] = {key: value for key, value in annotations if key not in SERVER_ANNOTATIONS}
    kept = {key: value for key, value in manifest.items() if key != "status"}
    return kept | {"metadata": metadata | {"namespace": namespace}}
