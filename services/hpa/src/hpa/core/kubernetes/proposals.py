"""Combines all metrics of a policy into one number, with a status for each metric. Pure.

Source: kubernetes v1.36.1, pkg/controller/podautoscaler/horizontal.go (computeReplicasForMetrics and what it calls).
"""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from hpa.core.kubernetes import replicas
from hpa.core.kubernetes.pods import ContainerNotFound, MissingRequest, Samples
from hpa.core.kubernetes.policy import (
    AVERAGE_VALUE,
    CONTAINER_RESOURCE,
    EXTERNAL,
    OBJECT,
    PODS,
    RESOURCE,
    UTILIZATION,
    VALUE,
    Metric,
)
from hpa.core.kubernetes.replicas import Proposal, ReplicaContext
from hpa.core.kubernetes.totals import MetricRule, NoPods, NoUsableMetrics, PodTotals, totals_of
from hpa.core.kubernetes.usage import NO_TOLERANCE, NoMatchingMetrics

INVALID_SOURCE: Final = "InvalidMetricSourceType"
FAILED_REASONS: Final = {
    RESOURCE: "FailedGetResourceMetric",
    CONTAINER_RESOURCE: "FailedGetContainerResourceMetric",
    PODS: "FailedGetPodsMetric",
    OBJECT: "FailedGetObjectMetric",
    EXTERNAL: "FailedGetExternalMetric",
}


class InvalidTarget(Exception):
    """Raised when a metric's target has a kind that its source does not allow."""


class PodReading(Struct, frozen=True, gc=False):
    """A metric's samples by pod. There is at least one."""

    samples: Samples


class SeriesReading(Struct, frozen=True, gc=False):
    """A metric's values that belong to no pod: one value of an object, or one of each series of an external metric."""

    values_milli: tuple[int, ...]


class UnavailableMetric(Struct, frozen=True, gc=False):
    """The result for a metric that cannot be read now."""

    message: str


class TotalsReading(Struct, frozen=True, gc=False):
    """A metric's sums over all pods, counted by metric_rule_of(metric). due_ms: when the next pod's initialization
    ends."""

    counted: PodTotals
    due_ms: int | None = None


Reading = PodReading | TotalsReading | SeriesReading | UnavailableMetric
FAILURES: Final = (NoPods, NoUsableMetrics, NoMatchingMetrics, MissingRequest, ContainerNotFound, InvalidTarget)


class MetricStatus(Struct, frozen=True):
    """The value that was found for a metric, in the unit of its target. An empty source means that it is unknown."""

    source: str = ""
    name: str = ""
    container: str = ""
    percent: int | None = None
    average_milli: int | None = None
    value_milli: int | None = None


class MetricFailure(Struct, frozen=True):
    """A metric that asks for no number, with the reason. reason: Kubernetes' word for it."""

    reason: str
    message: str


class MetricProposal(Struct, frozen=True):
    """The number that all metrics together ask for.

    replicas: the number; None: the metrics that could be read do not allow a conclusion.
    metric: the metric that asked for the most replicas.
    """

    replicas: int | None
    metric: str
    statuses: tuple[MetricStatus, ...]
    failures: tuple[MetricFailure, ...]


def largest_proposal(metrics: Sequence[Metric], readings: Sequence[Reading], context: ReplicaContext) -> MetricProposal:
    """Returns the largest number that any metric asks for.

    If some metrics failed, a largest number below the current size is no conclusion, because a failed metric might ask
    for more.
    readings: one for each metric, in the same order.
    """
    most, name = 0, ""
    statuses: list[MetricStatus] = []
    failures: list[MetricFailure] = []
    for metric, reading in zip(metrics, readings, strict=True):
        try:
            found = propose_replicas(metric, reading, context)
        except FAILURES as error:
            failures.append(MetricFailure(FAILED_REASONS.get(metric.source, INVALID_SOURCE), str(error)))
            statuses.append(MetricStatus())
            continue
        statuses.append(metric_status_of(metric, found))
        if not name or found.replicas > most:
            most, name = found.replicas, describe_metric(metric)
    if len(failures) >= len(metrics) or (failures and most < context.current):
        return MetricProposal(None, "", tuple(statuses), tuple(failures))
    return MetricProposal(most, name, tuple(statuses), tuple(failures))


def propose_replicas(metric: Metric, reading: Reading, context: ReplicaContext) -> Proposal:
    """Returns the number that one metric asks for. Raises one of FAILURES."""
    if metric.source not in FAILED_REASONS:
        raise InvalidTarget(f"unknown metric source type {metric.source!r}")
    if metric.target.amount is None or metric.target.kind not in _TARGETS[metric.source]:
        raise InvalidTarget(f"invalid {metric.source} metric source: its target is {metric.target.kind}")
    if isinstance(reading, UnavailableMetric):
        raise NoUsableMetrics(f"unable to get {describe_metric(metric)}: {reading.message}")
    if not metric.tolerant:
        context = replace(context, tolerance=NO_TOLERANCE)
    if isinstance(reading, SeriesReading):
        return _propose_from_series(metric, reading, context, metric.target.amount)
    return _propose_from_pods(metric, reading, context, metric.target.amount)


_TARGETS: Final = {
    RESOURCE: (UTILIZATION, AVERAGE_VALUE),
    CONTAINER_RESOURCE: (UTILIZATION, AVERAGE_VALUE),
    PODS: (AVERAGE_VALUE,),
    OBJECT: (VALUE, AVERAGE_VALUE),
    EXTERNAL: (VALUE, AVERAGE_VALUE),
}


def _propose_from_pods(
    metric: Metric, reading: PodReading | TotalsReading, context: ReplicaContext, amount: int
) -> Proposal:
    if isinstance(reading, TotalsReading):
        totals = reading.counted.usable_totals()
    else:
        rule = metric_rule_of(metric, pod_level_resources=context.pod_level_resources)
        totals = totals_of(context.seen, reading.samples, rule, context.readiness, context.now_ms)
    if metric.target.kind == UTILIZATION:
        return replicas.propose_by_utilization(context, totals, amount)
    return replicas.propose_by_average(context, totals, amount)


def metric_rule_of(metric: Metric, *, pod_level_resources: bool = True) -> MetricRule:
    """Returns the rule that decides how each pod counts for a valid metric of source PODS or of a resource."""
    if metric.source == PODS:
        return MetricRule()
    percent = metric.target.amount if metric.target.kind == UTILIZATION else None
    return MetricRule(metric.name, metric.container, percent, pod_level_resources)


def _propose_from_series(metric: Metric, reading: SeriesReading, context: ReplicaContext, amount: int) -> Proposal:
    if metric.source == OBJECT:
        (value_milli,) = reading.values_milli
        by_object = (
            replicas.propose_by_object_value if metric.target.kind == VALUE else replicas.propose_by_object_average
        )
        return by_object(context, value_milli, amount)
    by_series = (
        replicas.propose_by_external_value if metric.target.kind == VALUE else replicas.propose_by_external_average
    )
    return by_series(context, reading.values_milli, amount)


def metric_status_of(metric: Metric, found: Proposal) -> MetricStatus:
    if metric.target.kind == VALUE:
        return MetricStatus(metric.source, metric.name, value_milli=found.milli)
    return MetricStatus(metric.source, metric.name, metric.container, found.percent, found.milli)


def describe_metric(metric: Metric) -> str:
    """Returns the metric in the words of Kubernetes' events."""
    if metric.source in (RESOURCE, CONTAINER_RESOURCE):
        if metric.target.kind != UTILIZATION:
            return f"{metric.name} resource"
        of_container = " container" if metric.source == CONTAINER_RESOURCE else ""
        return f"{metric.name}{of_container} resource utilization (percentage of request)"
    if metric.source == OBJECT:
        # Kubernetes calls an object's metric external where its target is an average.
        return f"{metric.object_kind if metric.target.kind == VALUE else EXTERNAL} metric {metric.name}"
    return f"{metric.source} metric {metric.name}"
