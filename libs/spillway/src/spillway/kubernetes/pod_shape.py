"""Reads the demands of one replica on a node from a pod template.

Source: the Kubernetes API (v1.36) and the kube-scheduler's default plugins NodeResourcesFit, NodeAffinity,
TaintToleration, NodePorts, InterPodAffinity and PodTopologySpread. Selectors get the pod's own labels for their
matchLabelKeys and mismatchLabelKeys here, as in the API server.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from spillway.api import RequestError, invalid_argument_error
from spillway.kubernetes import objects
from spillway.kubernetes.manifest_paths import path_with_real_key
from spillway.kubernetes.scheduling_spec import (
    Expression,
    LabelSelector,
    PodAffinity,
    SchedulingSpec,
    SpreadConstraint,
    TolerationSpec,
)
from spillway.model import (
    HostPort,
    NodeTerm,
    PodSelector,
    PodTerm,
    PodTraits,
    Requirement,
    Shape,
    Spread,
    Toleration,
)

OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
NODE_OPERATORS = (*OPERATORS, "Gt", "Lt")

TEMPLATE_HASH_LABELS = ("pod-template-hash", "controller-revision-hash")
OWN_TEMPLATE = ("",)
"""The placeholder for the value of these labels, which the cluster's controller will give to the replicas.

For any other label it means the empty value, which a label may have.
"""
LABELS_OF_ONE_POD = frozenset(
    ("statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index", "batch.kubernetes.io/controller-uid",
     "batch.kubernetes.io/job-completion-index", "batch.kubernetes.io/job-name", "controller-uid", "job-name")
)  # fmt: skip
ATTACHED_VOLUMES = frozenset(("awsElasticBlockStore", "azureDisk", "csi", "gcePersistentDisk", "iscsi", "rbd"))
INTEGER = re.compile(r"[+-]?[0-9]{1,63}", re.ASCII)  # A label's value has at most 63 characters.
NO_POD = PodSelector((Requirement("", "In", ()),))

INT32_MAX = 2**31 - 1
"""The largest value of most integer fields in the API."""
PORT_MAX = 65_535


class _ClaimSource(msgspec.Struct, frozen=True, rename="camel"):
    claim_name: str


class _Resources(msgspec.Struct, frozen=True):
    requests: dict[str, objects.Quantity] = {}
    limits: dict[str, objects.Quantity] = {}


class _ContainerAmounts(msgspec.Struct, frozen=True):
    resources: _Resources = _Resources()


class _Amounts(msgspec.Struct, frozen=True, rename="camel"):
    """The resources that a pod template asks for."""

    containers: tuple[_ContainerAmounts, ...] = ()
    init_containers: tuple[_ContainerAmounts, ...] = ()
    resources: _Resources = _Resources()
    overhead: dict[str, objects.Quantity] = {}


def shape_without_notes(shape: Shape) -> Shape:
    """Returns a shape without its notes, so that shapes with equal demands compare as equal."""
    return replace(shape, unmodelled=())


def shape_of(template: Mapping[str, Any], namespace: str, where: str) -> Shape:
    """Returns the shape of a pod template. where: its path in the manifest, for errors.

    Raises RequestError INVALID_ARGUMENT that names the field, the value and what was expected.
    """
    spec = template.get("spec") or {}
    labels = _template_labels(template, where)
    pod = convert_manifest_part(spec, objects.PodSpec, f"{where}.spec")
    _check_ports(pod, f"{where}.spec")
    scheduling = convert_manifest_part(spec, SchedulingSpec, f"{where}.spec")
    unmodelled: list[str] = []
    affinity, path, own = scheduling.affinity, f"{where}.spec.affinity", (namespace, labels)
    return Shape(
        namespace=namespace,
        requests=_resource_requests(spec, f"{where}.spec"),
        node_selector=tuple(sorted(scheduling.node_selector.items())),
        node_terms=_parse_node_terms(scheduling, f"{path}.nodeAffinity"),
        tolerations=tuple(_parse_toleration(entry, f"{where}.spec.tolerations") for entry in scheduling.tolerations),
        host_ports=tuple(sorted((HostPort(*port) for port in objects.host_ports(pod)), key=_port_order)),
        apart=tuple(
            term
            for term in _pod_terms(affinity.pod_anti_affinity, own, f"{path}.podAntiAffinity", unmodelled)
            if term.selector != NO_POD
        ),
        spread=tuple(_parse_spread_constraints(scheduling.topology_spread_constraints, labels, where, unmodelled)),
        unmodelled=(*unmodelled, *_other_unmodelled(scheduling)),
        near=tuple(_pod_terms(affinity.pod_affinity, own, f"{path}.podAffinity", unmodelled)),
        node_name=scheduling.node_name,
        overhead_of=scheduling.runtime_class_name,
        volume_claims=tuple(sorted(set(_volume_claims(scheduling, f"{where}.spec.volumes")))),
        traits=PodTraits(
            labels=tuple(sorted(labels.items())),
            limits=_resource_limits(spec, f"{where}.spec"),
            priority_class=scheduling.priority_class_name,
            terminating=scheduling.active_deadline_seconds is not None,
            names_namespaces=any(
                _names_namespaces(kind) for kind in (affinity.pod_affinity, affinity.pod_anti_affinity)
            ),
            best_effort=_is_best_effort(spec, f"{where}.spec"),
        ),
        template=template_digest(template, namespace),
    )


def declared_shape(manifest: bytes, namespace: str) -> Shape | None:
    """Returns the shape of a declared workload by its template, before any admission; None: it cannot be read."""
    try:
        shape = shape_of(json.loads(manifest)["spec"]["template"], namespace, "spec.template")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, RequestError):
        return None
    return replace(shape_without_notes(shape), template="")


def template_digest(template: Mapping[str, Any], namespace: str) -> str:
    """Returns a digest of a namespace and a whole pod template, as the template is before admission.

    It is the first 128 bits of SHA-256 over both as JSON with sorted keys. The workload's name is not part of it.
    """
    text = json.dumps([namespace, template], sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def convert_manifest_part(value: object, kind: Any, where: str) -> Any:
    """Returns a part of a manifest as a typed value. Raises RequestError that names the path and what was expected."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        text, _, path = str(error).partition(" - at `")
        path = path_with_real_key(value, path.rstrip("`").removeprefix("$"), text)
        raise RequestError("INVALID_ARGUMENT", f"{where}{path}: {text}") from None


def matches_labels(requirements: Iterable[Requirement], labels: Mapping[str, str]) -> bool:
    """Returns whether labels meet all requirements. Gt and Lt compare integers, as in node affinity."""
    return all(_meets_requirement(requirement, labels) for requirement in requirements)


def _meets_requirement(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    present = requirement.key in labels
    value = labels.get(requirement.key, "")
    match requirement.operator:
        case "In":
            return present and value in requirement.values
        case "NotIn":
            return not present or value not in requirement.values
        case "Exists":
            return present
        case "DoesNotExist":
            return not present
    if not present or not INTEGER.fullmatch(value):
        return False
    number, bound = int(value), int(requirement.values[0])
    return abs(number) < 2**63 and (number > bound if requirement.operator == "Gt" else number < bound)


def _resource_requests(spec: Mapping[str, Any], where: str) -> tuple[tuple[str, int], ...]:
    pod = convert_manifest_part(spec, _Amounts, where)
    if not pod.containers:
        raise invalid_argument_error(f"{where}.containers", [], "at least one container")
    for kind, containers in (("containers", pod.containers), ("initContainers", pod.init_containers)):
        for index, container in enumerate(containers):
            _check_resources(f"{where}.{kind}[{index}].resources", container.resources)
    _check_resources(f"{where}.resources", pod.resources)
    _check_quantities(f"{where}.overhead", pod.overhead)
    try:
        requests = objects.pod_requests(_admitted_pod_spec(spec, pod))
    except ValueError as error:
        raise RequestError("INVALID_ARGUMENT", f"{where}: {error}") from None
    amounts = {name: amount for name, amount in requests.items() if amount > 0} | {"pods": 1}
    return tuple(sorted(amounts.items()))


def _admitted_pod_spec(spec: Mapping[str, Any], amounts: "_Amounts") -> objects.PodSpec:
    """Returns the pod as the API server makes it: a resource with only a limit is requested at that limit.

    A limit of the pod as a whole becomes a request only for a resource that no container requests.
    """
    pod: objects.PodSpec = msgspec.convert(spec, objects.PodSpec)
    containers = _default_requests_to_limits(pod.containers, amounts.containers)
    init_containers = _default_requests_to_limits(pod.init_containers, amounts.init_containers)
    asked = {name for container in (*containers, *init_containers) for name in container.resources.requests}
    of_pod = {name: amount for name, amount in amounts.resources.limits.items() if name not in asked}
    resources = objects.Resources(of_pod | amounts.resources.requests)
    return msgspec.structs.replace(pod, containers=containers, init_containers=init_containers, resources=resources)


def _default_requests_to_limits(
    containers: tuple[objects.Container, ...], amounts: "tuple[_ContainerAmounts, ...]"
) -> tuple[objects.Container, ...]:
    return tuple(
        msgspec.structs.replace(
            container, resources=objects.Resources(given.resources.limits | given.resources.requests)
        )
        for container, given in zip(containers, amounts, strict=True)
    )


def _check_resources(path: str, resources: "_Resources") -> None:
    _check_quantities(f"{path}.requests", resources.requests)
    _check_quantities(f"{path}.limits", resources.limits)


def _check_quantities(path: str, amounts: Mapping[str, objects.Quantity]) -> None:
    for name, amount in amounts.items():
        _check_quantity(f"{path}.{name}", name, amount)


def _check_quantity(path: str, name: str, amount: objects.Quantity) -> None:
    try:
        parsed = objects.parse_quantity(amount, milli=name == "cpu")
    except ValueError as error:
        raise RequestError("INVALID_ARGUMENT", f"{path}: {error}") from None
    if parsed < 0:
        raise invalid_argument_error(path, amount, "0 or more")


def _parse_requirement(expression: Expression, where: str, operators: tuple[str, ...]) -> Requirement:
    if expression.operator not in operators:
        raise invalid_argument_error(f"{where}.operator", expression.operator, f"one of {', '.join(operators)}")
    if not expression.key:
        raise invalid_argument_error(f"{where}.key", expression.key, "a label key")
    count = len(expression.values)
    wanted = {"In": "at least one value", "NotIn": "at least one value", "Gt": "one integer", "Lt": "one integer"}
    if expression.operator in ("Exists", "DoesNotExist"):
        if count:
            raise invalid_argument_error(
                f"{where}.values", expression.values, f"none with operator {expression.operator}"
            )
    elif not count or (expression.operator in ("Gt", "Lt") and (count > 1 or not is_integer(expression.values[0]))):
        raise invalid_argument_error(f"{where}.values", expression.values, wanted[expression.operator])
    return Requirement(expression.key, expression.operator, expression.values)


def _template_labels(template: Mapping[str, Any], where: str) -> dict[str, str]:
    labels: dict[str, str] = convert_manifest_part(
        (template.get("metadata") or {}).get("labels") or {}, dict[str, str], f"{where}.metadata.labels"
    )
    return labels


def _resource_limits(spec: Mapping[str, Any], where: str) -> tuple[tuple[str, int], ...]:
    """Returns the limits that quotas count, by the rules of requests. Overhead is added only to an existing limit."""
    pod = convert_manifest_part(spec, _Amounts, where)
    limits = objects.pod_requests(
        msgspec.structs.replace(
            convert_manifest_part(spec, objects.PodSpec, where),
            containers=_limits_as_requests(spec.get("containers") or (), pod.containers),
            init_containers=_limits_as_requests(spec.get("initContainers") or (), pod.init_containers),
            resources=objects.Resources(pod.resources.limits),
        )
    )
    named = {
        name
        for resources in (pod.resources, *(entry.resources for entry in (*pod.containers, *pod.init_containers)))
        for name in resources.limits
    }
    return tuple(sorted((name, amount) for name, amount in limits.items() if name in named and amount > 0))


def _is_best_effort(spec: Mapping[str, Any], where: str) -> bool:
    """Returns whether quotas count the pod as BestEffort. The pod's overhead does not matter."""
    asked = objects.pod_requests(
        msgspec.structs.replace(_admitted_pod_spec(spec, convert_manifest_part(spec, _Amounts, where)), overhead={})
    )
    return not asked.get("cpu") and not asked.get("memory")


def _names_namespaces(affinity: PodAffinity) -> bool:
    preferred = affinity.preferred if isinstance(affinity.preferred, list) else ()
    terms = [entry.get("podAffinityTerm") for entry in preferred if isinstance(entry, dict)]
    return any(term.namespaces or term.namespace_selector is not None for term in affinity.required) or any(
        isinstance(term, dict) and (term.get("namespaces") or term.get("namespaceSelector") is not None)
        for term in terms
    )


def _limits_as_requests(containers: Any, amounts: "tuple[_ContainerAmounts, ...]") -> tuple[objects.Container, ...]:
    """Returns containers with their limits in place of their requests."""
    return tuple(
        msgspec.structs.replace(
            msgspec.convert(container, objects.Container), resources=objects.Resources(given.resources.limits)
        )
        for container, given in zip(containers, amounts, strict=True)
    )


def is_integer(text: str) -> bool:
    return INTEGER.fullmatch(text) is not None and abs(int(text)) < 2**63


def _parse_node_terms(spec: SchedulingSpec, where: str) -> tuple[NodeTerm, ...]:
    required = spec.affinity.node_affinity.required
    if required is None:
        return ()
    if not required.node_selector_terms:
        raise invalid_argument_error(f"{where}.nodeSelectorTerms", [], "at least one term")
    terms = []
    for index, term in enumerate(required.node_selector_terms):
        path = f"{where}.nodeSelectorTerms[{index}]"
        labels = tuple(
            _parse_requirement(entry, f"{path}.matchExpressions", NODE_OPERATORS) for entry in term.match_expressions
        )
        fields = tuple(_parse_requirement(entry, f"{path}.matchFields", ("In", "NotIn")) for entry in term.match_fields)
        if any(entry.key != "metadata.name" for entry in fields):
            raise invalid_argument_error(f"{path}.matchFields.key", fields[0].key, "metadata.name")
        if labels or fields:  # A term without requirements matches no node.
            terms.append(NodeTerm(labels, fields))
    return tuple(terms) or (NodeTerm((Requirement("", "In", ()),), ()),)


def _parse_toleration(spec: TolerationSpec, where: str) -> Toleration:
    if spec.operator not in ("Equal", "Exists", ""):
        raise invalid_argument_error(f"{where}.operator", spec.operator, "Equal or Exists")
    if spec.effect not in ("", "NoSchedule", "PreferNoSchedule", "NoExecute"):
        raise invalid_argument_error(f"{where}.effect", spec.effect, "NoSchedule, PreferNoSchedule or NoExecute")
    if not spec.key and spec.operator != "Exists":
        raise invalid_argument_error(f"{where}.operator", spec.operator, "Exists when the key is empty")
    return Toleration(spec.key, spec.operator or "Equal", spec.value, spec.effect)


def selector_of(selector: LabelSelector, where: str) -> PodSelector:
    """Returns a label selector as requirements, sorted so that equal selectors are equal values."""
    labels = [Requirement(key, "In", (value,)) for key, value in selector.match_labels.items()]
    expressions = [
        _parse_requirement(entry, f"{where}.matchExpressions", OPERATORS) for entry in selector.match_expressions
    ]
    return _sorted_selector((*labels, *expressions))


def _sorted_selector(requirements: Iterable[Requirement]) -> PodSelector:
    return PodSelector(tuple(sorted(requirements, key=lambda entry: (entry.key, entry.operator, entry.values))))


def _pod_terms(
    affinity: PodAffinity, replica: tuple[str, Mapping[str, str]], path: str, unmodelled: list[str]
) -> Iterator[PodTerm]:
    """Yields the required terms of an affinity. replica: the namespace and the labels of the replicas."""
    namespace, labels = replica
    for term in affinity.required:
        if not term.topology_key:
            raise invalid_argument_error(f"{path}.topologyKey", term.topology_key, "a label key")
        selector = _pod_selector(term.label_selector, f"{path}.labelSelector")
        if term.label_selector is not None:
            keys = _label_key_requirements(term.match_label_keys, "In", labels, path, unmodelled)
            others = _label_key_requirements(term.mismatch_label_keys, "NotIn", labels, path, unmodelled)
            selector = _sorted_selector((*selector.requirements, *keys, *others))
        everywhere = term.namespace_selector
        here = not term.namespaces or namespace in term.namespaces or everywhere is not None
        yield PodTerm(
            selector=selector,
            own=here and _is_selecting_itself(selector, labels),
            topology_key=term.topology_key,
            namespaces=term.namespaces,
            namespace_selector=None if everywhere is None else selector_of(everywhere, f"{path}.namespaceSelector"),
        )


def _pod_selector(selector: LabelSelector | None, where: str) -> PodSelector:
    return NO_POD if selector is None else selector_of(selector, where)


def _is_selecting_itself(selector: PodSelector, labels: Mapping[str, str]) -> bool:
    """Returns whether a selector matches pods with these labels and with the template hash that they will get."""
    known = [entry for entry in selector.requirements if not is_of_own_template(entry)]
    unknown = [entry for entry in selector.requirements if is_of_own_template(entry)]
    return matches_labels(known, labels) and all(entry.operator == "In" for entry in unknown)


def is_of_own_template(requirement: Requirement) -> bool:
    """Returns whether a requirement is about the template hash, which is not known yet."""
    return requirement.values == OWN_TEMPLATE and requirement.key in TEMPLATE_HASH_LABELS


def _label_key_requirements(
    keys: Iterable[str], operator: str, labels: Mapping[str, str], path: str, unmodelled: list[str]
) -> Iterator[Requirement]:
    """Yields requirements from matchLabelKeys. A key that the pods will not have adds none."""
    for key in keys:
        if key in labels:
            yield Requirement(key, operator, (labels[key],))
        elif key in TEMPLATE_HASH_LABELS:
            yield Requirement(key, operator, OWN_TEMPLATE)
        elif key in LABELS_OF_ONE_POD:
            unmodelled.append(f"{path.rpartition('.')[2]} by label key {key}")


def _parse_spread_constraints(
    constraints: tuple[SpreadConstraint, ...], labels: Mapping[str, str], where: str, unmodelled: list[str]
) -> Iterator[Spread]:
    path = f"{where}.spec.topologySpreadConstraints"
    for constraint in constraints:
        _check_spread(constraint, path)
        if constraint.when_unsatisfiable == "ScheduleAnyway":
            continue
        selector = PodSelector(())  # The scheduler counts no pod for it.
        if constraint.label_selector is not None:
            keys = _label_key_requirements(constraint.match_label_keys, "In", labels, path, unmodelled)
            selector = selector_of(constraint.label_selector, f"{path}.labelSelector")
            selector = _sorted_selector((*selector.requirements, *keys))
        yield Spread(
            selector=selector,
            max_skew=constraint.max_skew,
            honor_affinity=constraint.node_affinity_policy == "Honor",
            honor_taints=constraint.node_taints_policy == "Honor",
            topology_key=constraint.topology_key,
            min_domains=constraint.min_domains or 0,
            others_only=not _is_selecting_itself(selector, labels),
        )


def _check_spread(constraint: SpreadConstraint, path: str) -> None:
    if not 1 <= constraint.max_skew <= INT32_MAX:
        raise invalid_argument_error(f"{path}.maxSkew", constraint.max_skew, f"1 to {INT32_MAX}")
    if constraint.when_unsatisfiable not in ("DoNotSchedule", "ScheduleAnyway"):
        raise invalid_argument_error(
            f"{path}.whenUnsatisfiable", constraint.when_unsatisfiable, "DoNotSchedule or ScheduleAnyway"
        )
    if not constraint.topology_key:
        raise invalid_argument_error(f"{path}.topologyKey", constraint.topology_key, "a label key")
    if constraint.min_domains is not None and not 1 <= constraint.min_domains <= INT32_MAX:
        raise invalid_argument_error(f"{path}.minDomains", constraint.min_domains, f"1 to {INT32_MAX}")
    for field in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        policy = constraint.node_affinity_policy if field == "nodeAffinityPolicy" else constraint.node_taints_policy
        if policy not in ("Honor", "Ignore"):
            raise invalid_argument_error(f"{path}.{field}", policy, "Honor or Ignore")


def _check_ports(pod: objects.PodSpec, where: str) -> None:
    for _, _, port in objects.host_ports(pod):
        if not 1 <= port <= PORT_MAX:
            raise invalid_argument_error(f"{where}.containers.ports.hostPort", port, f"1 to {PORT_MAX}")


def _other_unmodelled(spec: SchedulingSpec) -> Iterator[str]:
    if spec.scheduler_name != "default-scheduler":
        yield f"schedulerName {spec.scheduler_name}"
    if spec.resource_claims:
        yield "resourceClaims"
    if spec.scheduling_gates:
        yield "schedulingGates: no pod is scheduled until they are removed"
    for field, value in (("workloadRef", spec.workload_ref), ("schedulingGroup", spec.scheduling_group)):
        if value:
            yield f"{field}: pods of a group are scheduled together or not at all"
    for volume in spec.volumes:
        if "ephemeral" in volume:
            yield f"volume {volume.get('name', '')}: on which nodes a claim made for it can be met"
        elif kind := next(iter(sorted(ATTACHED_VOLUMES & volume.keys())), ""):
            yield f"volume {volume.get('name', '')}: to which nodes its {kind} can be attached"


def _volume_claims(spec: SchedulingSpec, where: str) -> Iterator[str]:
    for index, volume in enumerate(spec.volumes):
        if volume.get("persistentVolumeClaim") is not None:
            source = convert_manifest_part(
                volume["persistentVolumeClaim"], _ClaimSource, f"{where}[{index}].persistentVolumeClaim"
            )
            yield source.claim_name


def _port_order(port: HostPort) -> tuple[str, str, int]:
    return port.ip, port.protocol, port.port
