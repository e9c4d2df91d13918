"""Converts the manifest of an autoscaling/v2 HorizontalPodAutoscaler into an Autoscaler. Pure.

The checks are the same as in the API server (kubernetes v1.36.1, pkg/apis/autoscaling/validation). An error names the
field, its value and the expected value.
"""

import json
from typing import Any, Final

import msgspec
from msgspec import Struct

from hpa.core.kubernetes.policy import (
    AVERAGE_VALUE,
    BY_PERCENT,
    BY_PODS,
    CONTAINER_RESOURCE,
    DOWNSCALE_STABILIZATION_MS,
    EXTERNAL,
    OBJECT,
    PODS,
    RESOURCE,
    SELECT_DISABLED,
    SELECT_MAX,
    SELECT_MIN,
    UTILIZATION,
    VALUE,
    Autoscaler,
    Behavior,
    GivenRules,
    Metric,
    ScalingPolicy,
    TargetValue,
    behavior_with_defaults,
)
from spillway.api import RequestError, invalid_argument_error
from spillway.kubernetes.manifest_text import LABEL_NAME, check_name
from spillway.kubernetes.pod_shape import convert_manifest_part
from spillway.kubernetes.quantities import NANOS_PER_UNIT, Quantity, nanos_of, parse_quantity
from spillway.kubernetes.scheduling_spec import LabelSelector

API_VERSION: Final = "autoscaling/v2"
KIND: Final = "HorizontalPodAutoscaler"
METRICS_MAX: Final = 64
POLICIES_MAX: Final = 16
STABILIZATION_SECONDS_MAX: Final = 3600
PERIOD_SECONDS_MAX: Final = 1800
REPLICAS_MAX: Final = 100_000
NAME_MAX: Final = 253
"""The most bytes of the name of a metric, an object or a container. Names are in reports, states and decisions."""
PERCENT_MAX: Final = 2**31 - 1
"""The highest percentage of a target, as in Kubernetes' API."""

TARGET_KINDS: Final = {"Utilization": UTILIZATION, "AverageValue": AVERAGE_VALUE, "Value": VALUE}
SELECTS: Final = {"Max": SELECT_MAX, "Min": SELECT_MIN, "Disabled": SELECT_DISABLED}
POLICY_KINDS: Final = {"Pods": BY_PODS, "Percent": BY_PERCENT}
TARGETS: Final = {
    RESOURCE: ("Utilization", "AverageValue"),
    CONTAINER_RESOURCE: ("Utilization", "AverageValue"),
    PODS: ("AverageValue",),
    OBJECT: ("Value", "AverageValue"),
    EXTERNAL: ("Value", "AverageValue"),
}


class CrossReference(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    kind: str
    name: str
    api_version: str = ""


class MetricTarget(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    type: str
    value: Quantity | None = None
    average_value: Quantity | None = None
    average_utilization: int | None = None


class MetricIdentifier(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    name: str
    selector: LabelSelector | None = None


class ResourceSource(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    name: str
    target: MetricTarget
    container: str = ""


class MetricSource(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    metric: MetricIdentifier
    target: MetricTarget
    described_object: CrossReference | None = None


class MetricSpec(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    type: str
    resource: ResourceSource | None = None
    container_resource: ResourceSource | None = None
    pods: MetricSource | None = None
    object: MetricSource | None = None
    external: MetricSource | None = None


class MetricPolicySpec(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    type: str
    value: int
    period_seconds: int


class RulesSpec(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    stabilization_window_seconds: int | None = None
    select_policy: str | None = None
    policies: tuple[MetricPolicySpec, ...] | None = None
    tolerance: Quantity | None = None


class BehaviorSpec(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    scale_up: RulesSpec | None = None
    scale_down: RulesSpec | None = None


class AutoscalerSpec(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    scale_target_ref: CrossReference
    max_replicas: int
    min_replicas: int | None = None
    metrics: tuple[MetricSpec, ...] | None = None
    behavior: BehaviorSpec | None = None


class ManifestMetadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    namespace: str = "default"
    annotations: dict[str, str] = {}


class AutoscalerManifest(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    api_version: str
    kind: str
    metadata: ManifestMetadata
    spec: AutoscalerSpec
    status: Any = None


class ScaleTarget(Struct, frozen=True):
    """The workload whose size is decided."""

    kind: str
    namespace: str
    name: str


class AttachedAutoscaler(Struct, frozen=True):
    """An autoscaler and its workload. name: the manifest's own name."""

    name: str
    target: ScaleTarget
    autoscaler: Autoscaler


def read_autoscaler(manifest: dict[str, Any], window_ms: int = DOWNSCALE_STABILIZATION_MS) -> AttachedAutoscaler:
    """Returns the autoscaler of a manifest, which is not changed.

    Raises RequestError with the field, the value and what was expected.

    window_ms: the stabilization window for scaling in, if the behavior sets none.
    """
    check_kind(manifest, API_VERSION, KIND)
    read: AutoscalerManifest = convert_manifest_part(manifest, AutoscalerManifest, KIND)
    spec, where = read.spec, f"{KIND}.spec"
    metrics = read_metrics(spec.metrics or (), f"{where}.metrics")
    least = 1 if spec.min_replicas is None else spec.min_replicas
    default = Metric(RESOURCE, "cpu", TargetValue(UTILIZATION, 80))
    wanted = Autoscaler(
        max_replicas=checked_number(spec.max_replicas, 1, REPLICAS_MAX, f"{where}.maxReplicas"),
        metrics=metrics or (default,),
        min_replicas=checked_number(least, 0, spec.max_replicas, f"{where}.minReplicas"),
        behavior=read_behavior(spec.behavior, window_ms, f"{where}.behavior"),
    )
    if least == 0 and not wanted.has_metric_without_pods():
        raise invalid_argument_error(f"{where}.minReplicas", 0, "1 or more, or a metric of type Object or External")
    return AttachedAutoscaler(read.metadata.name, scale_target_of(read.metadata, spec.scale_target_ref), wanted)


def read_metrics(specs: tuple[MetricSpec, ...], where: str) -> tuple[Metric, ...]:
    found = checked_entries(specs, METRICS_MAX, where)
    return tuple(_read_metric(metric, f"{where}[{index}]") for index, metric in enumerate(found))


def scale_target_of(metadata: ManifestMetadata, reference: CrossReference) -> ScaleTarget:
    """Returns the workload that a policy scales. Raises RequestError for a name that no Kubernetes object can have."""
    check_name(metadata.name, "metadata.name")
    namespace = check_name(metadata.namespace or "default", "metadata.namespace", LABEL_NAME, 63)
    return ScaleTarget(reference.kind, namespace, check_name(reference.name, "spec.scaleTargetRef.name"))


def check_kind(manifest: dict[str, Any], api_version: str, kind: str) -> None:
    found = (manifest.get("apiVersion"), manifest.get("kind"))
    if found != (api_version, kind):
        raise invalid_argument_error("apiVersion, kind", found, f"{api_version} and {kind}")


def checked_entries(entries: tuple[Any, ...], most: int, where: str) -> tuple[Any, ...]:
    if len(entries) > most:
        raise invalid_argument_error(where, len(entries), f"at most {most} entries")
    return entries


def checked_number(value: int, least: int, most: int, where: str) -> int:
    if not least <= value <= most:
        raise invalid_argument_error(where, value, f"{least} to {most}")
    return value


def read_behavior(spec: BehaviorSpec | None, window_ms: int, where: str) -> Behavior | None:
    """Returns the behavior with its defaults; None (the older rules) stays None. window_ms: as for read_autoscaler."""
    if spec is None:
        return None
    up, down = _read_rules(spec.scale_up, f"{where}.scaleUp"), _read_rules(spec.scale_down, f"{where}.scaleDown")
    return behavior_with_defaults(up, down, window_ms)


def _read_rules(spec: RulesSpec | None, where: str) -> GivenRules | None:
    if spec is None:
        return None
    seconds = spec.stabilization_window_seconds
    if seconds is not None:
        checked_number(seconds, 0, STABILIZATION_SECONDS_MAX, f"{where}.stabilizationWindowSeconds")
    select = (
        None if spec.select_policy is None else checked_choice(spec.select_policy, SELECTS, f"{where}.selectPolicy")
    )
    tolerance = None if spec.tolerance is None else _parse_double(spec.tolerance, f"{where}.tolerance")
    if tolerance is not None and tolerance < 0:
        raise invalid_argument_error(f"{where}.tolerance", spec.tolerance, "at least 0")
    policies = checked_entries(spec.policies or (), POLICIES_MAX, f"{where}.policies")
    if spec.policies == ():
        raise invalid_argument_error(
            f"{where}.policies", [], "at least one policy, or no field policies for the default policies"
        )
    return GivenRules(
        policies=tuple(
            _read_scaling_policy(policy, f"{where}.policies[{index}]") for index, policy in enumerate(policies)
        )
        or None,
        select=select,
        stabilization_ms=None if seconds is None else seconds * 1000,
        tolerance=tolerance,
    )


def _read_scaling_policy(spec: MetricPolicySpec, where: str) -> ScalingPolicy:
    kind = checked_choice(spec.type, POLICY_KINDS, f"{where}.type")
    amount = checked_number(spec.value, 1, 2**31 - 1, f"{where}.value")
    return ScalingPolicy(
        kind, amount, checked_number(spec.period_seconds, 1, PERIOD_SECONDS_MAX, f"{where}.periodSeconds") * 1000
    )


def checked_choice(value: str, known: dict[str, str], where: str) -> str:
    if value not in known:
        raise invalid_argument_error(where, value, " or ".join(known))
    return known[value]


def parse_quantity_milli(quantity: Quantity, where: str) -> int:
    try:
        return parse_quantity(quantity, milli=True)
    except ValueError as error:
        raise RequestError("INVALID_ARGUMENT", f"{where}: {error}") from None


def _parse_double(quantity: Quantity, where: str) -> float:
    try:
        return nanos_of(quantity) / NANOS_PER_UNIT
    except ValueError as error:
        raise RequestError("INVALID_ARGUMENT", f"{where}: {error}") from None


def checked_percent(amount: int, where: str) -> int:
    if amount > PERCENT_MAX:
        raise invalid_argument_error(where, amount, f"at most {PERCENT_MAX}")
    return amount


def _read_metric(spec: MetricSpec, where: str) -> Metric:
    sources: dict[str, tuple[str, str, ResourceSource | MetricSource | None]] = {
        "Resource": (RESOURCE, "resource", spec.resource),
        "ContainerResource": (CONTAINER_RESOURCE, "containerResource", spec.container_resource),
        "Pods": (PODS, "pods", spec.pods),
        "Object": (OBJECT, "object", spec.object),
        "External": (EXTERNAL, "external", spec.external),
    }
    if spec.type not in sources:
        raise invalid_argument_error(f"{where}.type", spec.type, " or ".join(sources))
    source, field, given = sources[spec.type]
    if given is None or sum(1 for _, _, one in sources.values() if one is not None) != 1:
        raise invalid_argument_error(where, spec.type, f"{field}, and no other source")
    target = _read_target(given.target, source, f"{where}.{field}.target")
    if isinstance(given, ResourceSource):
        return _metric_of_resource(given, source, target, f"{where}.{field}")
    return _metric_of_identifier(given, source, target, f"{where}.{field}")


def checked_name(name: str, where: str) -> str:
    """Returns the name unchanged. Raises RequestError if it is longer than NAME_MAX."""
    if (length := len(name.encode())) > NAME_MAX:
        raise invalid_argument_error(where, f"{length} bytes", f"at most {NAME_MAX}")
    return name


def _required_name(name: str, where: str) -> str:
    if not name:
        raise invalid_argument_error(where, name, "a name")
    return checked_name(name, where)


def _metric_of_resource(given: ResourceSource, source: str, target: TargetValue, where: str) -> Metric:
    if (source == CONTAINER_RESOURCE) != bool(given.container):
        raise invalid_argument_error(
            f"{where}.container", given.container, "a container's name for ContainerResource, and none for Resource"
        )
    return Metric(
        source,
        _required_name(given.name, f"{where}.name"),
        target,
        container=checked_name(given.container, f"{where}.container"),
    )


def _metric_of_identifier(given: MetricSource, source: str, target: TargetValue, where: str) -> Metric:
    described = given.described_object
    if (source == OBJECT) != (described is not None):
        raise invalid_argument_error(
            f"{where}.describedObject",
            None if described is None else described.name,
            "a described object for type Object, and none for other types",
        )
    for field in ("kind", "name") if described is not None else ():
        _required_name(getattr(described, field), f"{where}.describedObject.{field}")
    selector, name = given.metric.selector, given.metric.name
    if _required_name(name, f"{where}.metric.name") in (".", "..") or set(name) & {"/", "%"}:
        raise invalid_argument_error(
            f"{where}.metric.name", name, "a name without / and %, because it is part of an API path"
        )
    return Metric(
        source,
        name,
        target,
        object_kind=described.kind if described else "",
        object_name=described.name if described else "",
        selector="" if selector is None else json.dumps(msgspec.to_builtins(selector), sort_keys=True),
    )


def _read_target(given: MetricTarget, source: str, where: str) -> TargetValue:
    if given.type not in TARGETS[source]:
        raise invalid_argument_error(f"{where}.type", given.type, " or ".join(TARGETS[source]))
    amounts = {
        "Utilization": ("averageUtilization", given.average_utilization),
        "AverageValue": ("averageValue", given.average_value),
        "Value": ("value", given.value),
    }
    if [kind for kind, (_, amount) in amounts.items() if amount is not None] != [given.type]:
        raise invalid_argument_error(where, given.type, f"{amounts[given.type][0]}, and no other amount")
    field, written = amounts[given.type]
    assert written is not None
    amount = (
        checked_percent(int(written), f"{where}.{field}")
        if given.type == "Utilization"
        else parse_quantity_milli(written, f"{where}.{field}")
    )
    if amount <= 0:
        raise invalid_argument_error(f"{where}.{field}", written, "more than 0")
    return TargetValue(TARGET_KINDS[given.type], amount)
