"""Reads the manifest of a KEDA ScaledObject: its triggers, the autoscaler, and scaling to zero or idle. Pure.

Source of defaults and checks: kedacore/keda 8b4f083c, apis/keda/v1alpha1 and pkg/scalers. An unknown trigger is
refused. A field without effect here gives a warning.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hpa.core.cron import InvalidCron
from hpa.core.keda.cron_trigger import CronTrigger, cron_activity_at, read_cron_trigger
from hpa.core.keda.executor import COOLDOWN_MS, PAUSED_REPLICAS, Activation
from hpa.core.keda.expressions import InvalidExpression
from hpa.core.keda.fallback import (
    CURRENT,
    CURRENT_IF_HIGHER,
    CURRENT_IF_LOWER,
    SCALING_MODIFIERS,
    STATIC,
    Fallback,
    parse_whole_number,
)
from hpa.core.keda.formula import Formula, compile_formula, is_name_used
from hpa.core.keda.kafka import KafkaTrigger
from hpa.core.keda.kafka_metadata import BOOLEANS, InvalidTrigger, read_kafka_trigger
from hpa.core.kubernetes.go_numbers import DIGITS, INT64_MAX
from hpa.core.kubernetes.policy import (
    AVERAGE_VALUE,
    CONTAINER_RESOURCE,
    DOWNSCALE_STABILIZATION_MS,
    EXTERNAL,
    RESOURCE,
    UTILIZATION,
    VALUE,
    Autoscaler,
    Metric,
    TargetValue,
)
from hpa.core.manifests.manifests import (
    REPLICAS_MAX,
    BehaviorSpec,
    CrossReference,
    ManifestMetadata,
    ScaleTarget,
    check_kind,
    checked_choice,
    checked_entries,
    checked_name,
    checked_number,
    checked_percent,
    parse_quantity_milli,
    read_behavior,
    scale_target_of,
)
from spillway.api import RequestError, invalid_argument_error
from spillway.kubernetes.pod_shape import convert_manifest_part

API_VERSION: Final = "keda.sh/v1alpha1"
KIND: Final = "ScaledObject"
TRIGGERS_MAX: Final = 64
TRIGGERS_OF_A_QUEUE_MAX: Final = 8
SECONDS_MAX: Final = 7 * 24 * 3600
FALLBACK_BEHAVIORS: Final = {
    name: name for name in ("", STATIC, CURRENT, CURRENT_IF_HIGHER, CURRENT_IF_LOWER, SCALING_MODIFIERS)
}
METRIC_TYPES: Final = {"AverageValue": AVERAGE_VALUE, "Value": VALUE}
RESOURCE_TYPES: Final = {"Utilization": UTILIZATION, "AverageValue": AVERAGE_VALUE}
EXACT_LAG: Final = "spillway.io/exact-lag"
"""An annotation. With it, kafka triggers are capped exactly, and no tolerance keeps the last consumers from
starting."""
CONFIG: Final = "horizontalPodAutoscalerConfig"
COMPOSITE: Final = "composite-metric"
HONOURED: Final[Mapping[str, frozenset[str]]] = {
    "kafka": frozenset(
        {
            "bootstrapServers",
            "consumerGroup",
            "topic",
            "partitionLimitation",
            "lagThreshold",
            "activationLagThreshold",
            "offsetResetPolicy",
            "allowIdleConsumers",
            "limitToPartitionsWithLag",
            "ensureEvenDistributionOfPartitions",
            "excludePersistentLag",
            "scaleToZeroOnInvalidOffset",
        }
    ),
    "cron": frozenset({"timezone", "start", "end", "desiredReplicas"}),
    "prometheus": frozenset({"serverAddress", "query", "threshold", "activationThreshold", "ignoreNullValues"}),
}
"""The metadata fields that are used, for each type of trigger. KEDA ignores unknown fields, too."""
OTHER_ANSWERS: Final = frozenset({"namespace", "queryParameters", "customHeaders", "cortexOrgID"})
"""Fields of a prometheus trigger that are refused: they would change the answer, and only the operator may do so."""


class TriggerSpec(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    type: str
    metadata: dict[str, str] = {}
    name: str = ""
    metric_type: str = ""
    use_cached_metrics: bool = False
    authentication_ref: Any = None


class ModifiersSpec(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    formula: str = ""
    target: str = ""
    activation_target: str = ""
    metric_type: str = ""


class AutoscalerConfig(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    name: str = ""
    behavior: BehaviorSpec | None = None


class AdvancedSpec(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    restore_to_original_replica_count: bool = False
    horizontal_pod_autoscaler_config: AutoscalerConfig = AutoscalerConfig()
    scaling_modifiers: ModifiersSpec = ModifiersSpec()


class FallbackSpec(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    failure_threshold: int
    replicas: int
    behavior: str = ""


class TargetReference(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    name: str
    kind: str = "Deployment"
    api_version: str = "apps/v1"
    env_source_container_name: str = ""


class ScaledObjectSpec(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    scale_target_ref: TargetReference
    triggers: tuple[TriggerSpec, ...]
    polling_interval: int = 30
    cooldown_period: int | None = None
    initial_cooldown_period: int = 0
    idle_replica_count: int | None = None
    min_replica_count: int = 0
    max_replica_count: int = 100
    advanced: AdvancedSpec = AdvancedSpec()
    fallback: FallbackSpec | None = None


class ScaledObjectManifest(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    api_version: str
    kind: str
    metadata: ManifestMetadata
    spec: ScaledObjectSpec
    status: Any = None


class PrometheusTrigger(Struct, frozen=True):
    """A query and its threshold. empty_is_zero: True if an answer without a value counts as 0, and not as a failure."""

    address: str
    query: str
    threshold_milli: int
    activation_milli: int = 0
    empty_is_zero: bool = True


class NamedTrigger(Struct, frozen=True):
    """A trigger with its names. metric: its name among the autoscaler's metrics; name: its name in a formula, or ""."""

    name: str
    metric: str
    source: KafkaTrigger | CronTrigger | PrometheusTrigger


class ComposedMetric(Struct, frozen=True):
    """The one metric that replaces the metrics of all triggers.

    target: the text in the manifest.
    activation_milli: the metric is active above this value, in thousandths.
    """

    formula: Formula
    target: str
    target_milli: int
    activation_milli: int
    by_value: bool


class ScaledObject(Struct, frozen=True):
    """A ScaledObject. autoscaler: decides from max(1, min) up; activation: decides between zero, idle and min."""

    name: str
    target: ScaleTarget
    autoscaler: Autoscaler
    triggers: tuple[NamedTrigger, ...]
    activation: Activation
    polling_ms: int
    fallback: Fallback | None = None
    composed: ComposedMetric | None = None
    warnings: tuple[str, ...] = ()

    @property
    def is_always_active(self) -> bool:
        """Returns whether it has only cpu and memory triggers, which are never inactive."""
        return not self.triggers


def read_scaled_object(manifest: dict[str, Any], window_ms: int = DOWNSCALE_STABILIZATION_MS) -> ScaledObject:
    """Returns the ScaledObject of a manifest, which is not changed. window_ms and errors: as for read_autoscaler."""
    check_kind(manifest, API_VERSION, KIND)
    read: ScaledObjectManifest = convert_manifest_part(manifest, ScaledObjectManifest, KIND)
    spec, where = read.spec, f"{KIND}.spec"
    least = checked_number(spec.min_replica_count, 0, REPLICAS_MAX, f"{where}.minReplicaCount")
    most = checked_number(spec.max_replica_count, max(least, 1), REPLICAS_MAX, f"{where}.maxReplicaCount")
    if spec.idle_replica_count is not None and not 0 <= spec.idle_replica_count < least:
        raise invalid_argument_error(
            f"{where}.idleReplicaCount", spec.idle_replica_count, f"0 up to minReplicaCount, {least}"
        )
    triggers, metrics = _read_triggers(spec, where)
    if read.metadata.annotations.get(EXACT_LAG) == "true":
        triggers, metrics = _with_exact_lag(triggers, metrics)
    composed = _read_composed_metric(spec.advanced.scaling_modifiers, triggers, f"{where}.advanced.scalingModifiers")
    if composed is not None:
        kind = VALUE if composed.by_value else AVERAGE_VALUE
        resources = [metric for metric in metrics if metric.source != EXTERNAL]
        metrics = [Metric(EXTERNAL, COMPOSITE, TargetValue(kind, composed.target_milli)), *resources]
    fallback = _read_fallback(spec.fallback, bool(triggers), f"{where}.fallback")
    behavior, config = spec.advanced.horizontal_pod_autoscaler_config.behavior, f"{where}.advanced.{CONFIG}"
    reference = CrossReference(spec.scale_target_ref.kind, spec.scale_target_ref.name)
    return ScaledObject(
        name=read.metadata.name,
        target=scale_target_of(read.metadata, reference),
        autoscaler=Autoscaler(
            most, tuple(metrics), max(least, 1), read_behavior(behavior, window_ms, f"{config}.behavior")
        ),
        triggers=tuple(triggers),
        activation=_read_activation(spec, read.metadata, fallback, where),
        polling_ms=checked_number(spec.polling_interval, 1, SECONDS_MAX, f"{where}.pollingInterval") * 1000,
        fallback=fallback,
        composed=composed,
        warnings=tuple(_ineffective_field_warnings(spec)),
    )


def _read_activation(
    spec: ScaledObjectSpec, metadata: ManifestMetadata, fallback: Fallback | None, where: str
) -> Activation:
    _check_paused(metadata.annotations.get(PAUSED_REPLICAS))
    cooldown_s = COOLDOWN_MS // 1000 if spec.cooldown_period is None else spec.cooldown_period
    first_s = checked_number(spec.initial_cooldown_period, 0, SECONDS_MAX, f"{where}.initialCooldownPeriod")
    return Activation(
        min_replicas=spec.min_replica_count,
        idle_replicas=spec.idle_replica_count,
        cooldown_ms=checked_number(cooldown_s, 0, SECONDS_MAX, f"{where}.cooldownPeriod") * 1000,
        initial_cooldown_ms=first_s * 1000,
        fallback_replicas=None if fallback is None else fallback.replicas,
        annotations=metadata.annotations,
    )


def _check_paused(written: str | None) -> None:
    if written is not None and not (DIGITS.fullmatch(written) and int(written) <= REPLICAS_MAX):
        raise invalid_argument_error(
            f"metadata.annotations[{PAUSED_REPLICAS}]", written, f"a number from 0 to {REPLICAS_MAX}"
        )


def _read_triggers(spec: ScaledObjectSpec, where: str) -> tuple[list[NamedTrigger], list[Metric]]:
    if not spec.triggers:
        raise invalid_argument_error(f"{where}.triggers", [], "at least one trigger")
    named: list[NamedTrigger] = []
    metrics: list[Metric] = []
    for index, trigger in enumerate(checked_entries(spec.triggers, TRIGGERS_MAX, f"{where}.triggers")):
        path = f"{where}.triggers[{index}]"
        checked_name(trigger.name, f"{path}.name")
        if trigger.name and is_name_used([one.name for one in named], trigger.name):
            raise invalid_argument_error(
                f"{path}.name", trigger.name, "a name that no other trigger has, also in other case"
            )
        if trigger.type in ("cpu", "memory"):
            metrics.append(_read_resource_trigger(trigger, path))
            continue
        if trigger.type not in _READERS:
            known = ", ".join((*_READERS, "cpu", "memory"))
            raise invalid_argument_error(f"{path}.type", trigger.type, f"a supported trigger: {known}")
        try:
            source, name, target_milli = _READERS[trigger.type](trigger.metadata, index)
        except (InvalidTrigger, InvalidCron) as error:
            raise RequestError("INVALID_ARGUMENT", f"{path}.metadata.{error}") from None
        _check_queue(source, named, path)
        kind = checked_choice(trigger.metric_type or "AverageValue", METRIC_TYPES, f"{path}.metricType")
        named.append(NamedTrigger(trigger.name, name, source))
        metrics.append(Metric(EXTERNAL, name, TargetValue(kind, target_milli)))
    return named, metrics


def _check_queue(source: KafkaTrigger | CronTrigger | PrometheusTrigger, named: list[NamedTrigger], where: str) -> None:
    """Refuses too many triggers for one queue, and other brokers for the same group and topic.

    Backlogs are stored by group and topic only. And each trigger reads all its partitions at each decision.
    """
    if not isinstance(source, KafkaTrigger):
        return
    kafka = [one.source for one in named if isinstance(one.source, KafkaTrigger)]
    alike = [one for one in kafka if (one.group, one.topic) == (source.group, source.topic)]
    if len(alike) >= TRIGGERS_OF_A_QUEUE_MAX:
        expected = f"at most {TRIGGERS_OF_A_QUEUE_MAX} triggers of one group and topic"
        raise invalid_argument_error(f"{where}.metadata", f"{source.group}, topic {source.topic!r}", expected)
    for other in alike:
        if set(other.brokers) != set(source.brokers):
            expected = (
                f"{','.join(other.brokers)}, as of the other trigger of {source.group} and topic {source.topic!r}"
            )
            raise invalid_argument_error(f"{where}.metadata.bootstrapServers", ",".join(source.brokers), expected)


def _with_exact_lag(triggers: list[NamedTrigger], metrics: list[Metric]) -> tuple[list[NamedTrigger], list[Metric]]:
    kafka = {one.metric for one in triggers if isinstance(one.source, KafkaTrigger)}
    exact = [
        replace(one, source=replace(one.source, exact=True)) if isinstance(one.source, KafkaTrigger) else one
        for one in triggers
    ]
    return exact, [replace(one, tolerant=one.source != EXTERNAL or one.name not in kafka) for one in metrics]


def _read_kafka_metadata(metadata: Mapping[str, str], index: int) -> tuple[KafkaTrigger, str, int]:
    trigger = read_kafka_trigger(metadata)
    about = trigger.topic or f"{trigger.group}-topics"
    return trigger, f"s{index}-{_normal_metric_name(f'kafka-{about}')}", trigger.lag_threshold * 1000


def _read_cron_metadata(metadata: Mapping[str, str], index: int) -> tuple[CronTrigger, str, int]:
    trigger = read_cron_trigger(metadata)
    # This refuses an unknown time zone, and a cron line that never matches.
    cron_activity_at(trigger, 0)
    return trigger, trigger.metric_name(index), 1000


def _read_prometheus_metadata(metadata: Mapping[str, str], index: int) -> tuple[PrometheusTrigger, str, int]:
    for name in ("serverAddress", "query", "threshold"):
        if not metadata.get(name):
            raise InvalidTrigger(f"{name}: missing; a prometheus trigger needs serverAddress, query and threshold")
    other = sorted(metadata.keys() & OTHER_ANSWERS)
    if other:
        expected = ", ".join(sorted(HONOURED["prometheus"]))
        raise InvalidTrigger(f"{other[0]} {metadata[other[0]]!r}: not supported; expected {expected}")
    empty = metadata.get("ignoreNullValues", "true")
    if empty not in BOOLEANS:
        raise InvalidTrigger(f"ignoreNullValues {empty!r}: expected true or false")
    threshold_milli = _parse_thousandths(metadata["threshold"], "threshold")
    if threshold_milli <= 0:
        raise InvalidTrigger(f"threshold {metadata['threshold']!r}: expected more than 0")
    activation_milli = _parse_thousandths(metadata.get("activationThreshold") or "0", "activationThreshold")
    found = PrometheusTrigger(
        metadata["serverAddress"], metadata["query"], threshold_milli, activation_milli, BOOLEANS[empty]
    )
    return found, f"s{index}-prometheus", threshold_milli


Reader = Callable[[Mapping[str, str], int], tuple[KafkaTrigger | CronTrigger | PrometheusTrigger, str, int]]
_READERS: Final[Mapping[str, Reader]] = {
    "kafka": _read_kafka_metadata,
    "cron": _read_cron_metadata,
    "prometheus": _read_prometheus_metadata,
}


def _parse_thousandths(text: str, name: str) -> int:
    if not re.fullmatch(r"[+-]?(\d{1,15}(\.\d*)?|\.\d+)([eE][+-]?\d{1,2})?", text, re.ASCII):
        raise InvalidTrigger(f"{name} {text!r}: expected a number, as 2.5")
    if abs(milli := float(text) * 1000) > INT64_MAX:
        raise InvalidTrigger(f"{name} {text!r}: expected a number of 64 bits in thousandths")
    return int(milli)


def _normal_metric_name(name: str) -> str:
    return re.sub(r"[/.:%()]", "-", name)


def _read_resource_trigger(trigger: TriggerSpec, where: str) -> Metric:
    kind = checked_choice(
        trigger.metric_type or trigger.metadata.get("type", ""), RESOURCE_TYPES, f"{where}.metricType"
    )
    written = trigger.metadata.get("value", "")
    container = checked_name(trigger.metadata.get("containerName", ""), f"{where}.metadata.containerName")
    if kind == UTILIZATION and not DIGITS.fullmatch(written):
        raise invalid_argument_error(f"{where}.metadata.value", written, "a percentage, as 60")
    path = f"{where}.metadata.value"
    amount = checked_percent(int(written), path) if kind == UTILIZATION else parse_quantity_milli(written, path)
    if amount <= 0:
        raise invalid_argument_error(f"{where}.metadata.value", written, "more than 0")
    source = CONTAINER_RESOURCE if container else RESOURCE
    return Metric(source, trigger.type, TargetValue(kind, amount), container=container)


def _read_composed_metric(spec: ModifiersSpec, triggers: list[NamedTrigger], where: str) -> ComposedMetric | None:
    if not spec.formula:
        return None
    unnamed = [one.metric for one in triggers if not one.name]
    if unnamed:
        raise invalid_argument_error(
            f"{where}.formula", spec.formula, f"a name for every trigger; trigger {unnamed[0]} has no name"
        )
    try:
        formula = compile_formula(spec.formula, [one.name for one in triggers])
        target_milli = _parse_thousandths(spec.target, "target")
        activation_milli = _parse_thousandths(spec.activation_target or "0", "activationTarget")
    except (InvalidExpression, InvalidTrigger) as error:
        raise RequestError("INVALID_ARGUMENT", f"{where}: {error}") from None
    if target_milli <= 0:
        raise invalid_argument_error(f"{where}.target", spec.target, "more than 0")
    kind = checked_choice(spec.metric_type or "AverageValue", METRIC_TYPES, f"{where}.metricType")
    return ComposedMetric(formula, spec.target, target_milli, activation_milli, kind == VALUE)


def _read_fallback(spec: FallbackSpec | None, external: bool, where: str) -> Fallback | None:
    if spec is None:
        return None
    if not external:
        raise invalid_argument_error(where, spec.replicas, "a trigger other than cpu and memory beside the fallback")
    return Fallback(
        replicas=checked_number(spec.replicas, 0, REPLICAS_MAX, f"{where}.replicas"),
        failure_threshold=checked_number(spec.failure_threshold, 0, 2**31 - 1, f"{where}.failureThreshold"),
        behavior=checked_choice(spec.behavior, FALLBACK_BEHAVIORS, f"{where}.behavior"),
    )


def _ineffective_field_warnings(spec: ScaledObjectSpec) -> list[str]:
    """Returns warnings about fields that have no effect here. Each one names the rule that applies instead."""
    found = [
        f"triggers[{index}].metadata.{name}: no effect on this {trigger.type} trigger here"
        for index, trigger in enumerate(spec.triggers)
        for name in sorted(trigger.metadata.keys() - HONOURED.get(trigger.type, trigger.metadata.keys()))
    ]
    if any(trigger.authentication_ref is not None for trigger in spec.triggers):
        found.append("triggers.authenticationRef: connections are those that the operator named")
    if any(trigger.use_cached_metrics for trigger in spec.triggers):
        found.append("triggers.useCachedMetrics: a metric is read once, for all that look at it")
    if spec.advanced.restore_to_original_replica_count:
        found.append("advanced.restoreToOriginalReplicaCount: without the policy the last size stays")
    if spec.advanced.horizontal_pod_autoscaler_config.name:
        found.append("advanced.horizontalPodAutoscalerConfig.name: no other object is made")
    modifiers = spec.advanced.scaling_modifiers
    if modifiers.formula and spec.fallback is not None and not parse_whole_number(modifiers.target):
        found.append(f"fallback: no effect: beside a formula it needs a target that is whole, not {modifiers.target}")
    if spec.scale_target_ref.env_source_container_name:
        found.append("scaleTargetRef.envSourceContainerName: triggers read no environment of containers")
    return found
