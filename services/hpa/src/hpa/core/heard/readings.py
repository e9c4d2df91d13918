"""Makes one reading for each metric from a workload's inputs. A value that is too old is unknown, never zero. Pure."""

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from hpa.core.cron import InvalidCron
from hpa.core.heard.cluster_pods import NEVER
from hpa.core.heard.inputs import MetricSeries, WorkloadInputs, pod_loads
from hpa.core.keda.cron_trigger import CronTrigger, cron_activity_at
from hpa.core.keda.kafka import KafkaTrigger, PartitionOffsets, lag_of_partitions
from hpa.core.kubernetes.pods import PodKey, Sample
from hpa.core.kubernetes.policy import EXTERNAL, OBJECT, PODS, Metric
from hpa.core.kubernetes.proposals import (
    PodReading,
    Reading,
    SeriesReading,
    TotalsReading,
    UnavailableMetric,
    metric_rule_of,
)
from hpa.core.manifests.scaled_object import NamedTrigger, PrometheusTrigger
from hpa.core.rules import HpaRules

KAFKA: Final = "kafka"
CRON: Final = "cron"
PROMETHEUS: Final = "prometheus"
TROUBLES_TOLD: Final = 5
"""The most troubles of a metric's pods that one message lists. Without a limit, there may be one for each pod."""


class ReadingMoment(Struct, frozen=True):
    """The workload's namespace and the time for which metrics are read.

    namespace: the workload's namespace.
    since_ms: when the policy was declared. Before that time, no collector had to report a value.
    """

    namespace: str
    since_ms: int
    now_ms: int
    rules: HpaRules


class MetricReading(Struct, frozen=True, gc=False):
    """The reading of a metric, with its details.

    source: the source of the metric, or the kind of the trigger.
    value_milli: the total over all pods or series, in thousandths; None if there is none.
    oldest_ms: the time of its oldest sample.
    failing_ms: the time since which it has no value; 0: it has one.
    failures: how many reports in a row had no value; 0 while nobody reports.
    due_ms: the time at which it may change without a new record; None: never.
    active: for a trigger, True if there is work.
    detail: a text for the user.
    """

    reading: Reading
    source: str
    value_milli: int | None = None
    oldest_ms: int = 0
    failing_ms: int = 0
    failures: int = 0
    due_ms: int | None = None
    active: bool = False
    trouble: str = ""
    detail: str = ""


def read_metric(metric: Metric, inputs: WorkloadInputs, moment: ReadingMoment) -> MetricReading:
    """Returns the reading of an autoscaler's metric: the answer that Kubernetes' metrics APIs would give."""
    if metric.source == PODS:
        samples, old = {}, []
        for key, load, trouble in pod_loads(inputs, metric.name):
            fresh = not trouble and moment.now_ms <= load.at_ms + moment.rules.sample_age_max_ms
            if fresh:
                samples[key._replace(namespace=moment.namespace)] = Sample(load.value_milli, load.at_ms, load.window_ms)
            else:
                old.append(trouble or "its samples are too old")
        return _reading_of_samples(metric.source, samples, old, moment)
    if metric.source in (OBJECT, EXTERNAL):
        wanted = f"{metric.object_kind}/{metric.object_name}" if metric.source == OBJECT else ""
        return read_series(metric.name, wanted, metric.source, inputs, moment)
    return _read_resource(metric, inputs, moment)


def _read_resource(metric: Metric, inputs: WorkloadInputs, moment: ReadingMoment) -> MetricReading:
    rule = metric_rule_of(metric, pod_level_resources=moment.rules.settings.pod_level_resources)
    found = inputs.clusters.total_share(rule, moment.rules, moment.now_ms)
    trouble = "; ".join(found.troubles)
    if not found.samples:
        return _reading_without_samples(metric.source, trouble, moment)
    reading = TotalsReading(found.counted, found.initialized_ms if found.initialized_ms != NEVER else None)
    due_ms = found.oldest_ms + moment.rules.sample_age_max_ms + 1
    return MetricReading(reading, metric.source, found.used_milli, found.oldest_ms, due_ms=due_ms, trouble=trouble)


def _reading_without_samples(source: str, trouble: str, moment: ReadingMoment) -> MetricReading:
    why = trouble or "no pod has a sample"
    return MetricReading(UnavailableMetric(why), source, failing_ms=moment.now_ms, trouble=why)


def _reading_of_samples(
    source: str, samples: dict[PodKey, Sample], troubles: Sequence[str], moment: ReadingMoment
) -> MetricReading:
    told = list(dict.fromkeys(troubles))
    more = (f"{len(told) - TROUBLES_TOLD} more",) if len(told) > TROUBLES_TOLD else ()
    trouble = "; ".join((*told[:TROUBLES_TOLD], *more))
    if not samples:
        return _reading_without_samples(source, trouble, moment)
    oldest = min(sample.at_ms for sample in samples.values())
    due = oldest + moment.rules.sample_age_max_ms + 1
    total = sum(sample.value_milli for sample in samples.values())
    return MetricReading(PodReading(samples), source, total, oldest, due_ms=due, trouble=trouble)


def read_series(
    metric: str, of_object: str, source: str, inputs: WorkloadInputs, moment: ReadingMoment
) -> MetricReading:
    """Returns the reading of all series of a metric.

    A series that stops makes the metric unknown. After `forgotten_ms` the stopped series is ignored, unless all series
    of the metric have stopped.
    """
    found = [
        (series, load)
        for (name, described, series, _, pod), load in inputs.loads.items()
        if name == metric and described == of_object and not pod
    ]
    if source == OBJECT and found:  # An object has one value: the newest one of any series.
        found = [max(found, key=lambda one: (one[1].at_ms, one[1].heard_ms, one[1].offset))]
    going_on = [one for one in found if moment.now_ms <= one[1].heard_ms + moment.rules.forgotten_ms]
    return _reading_of_series(source, going_on or found, moment)


def read_one_series(
    metric: str, series: str, source: str, inputs: WorkloadInputs, moment: ReadingMoment
) -> MetricReading:
    """Returns the reading of one series of a metric."""
    load = inputs.loads.get((metric, "", series, "", ""))
    return _reading_of_series(source, [("", load)] if load is not None else [], moment)


def _reading_of_series(source: str, found: Iterable[tuple[str, MetricSeries]], moment: ReadingMoment) -> MetricReading:
    found = list(found)
    age_max = moment.rules.load_age_max_ms
    if not found:
        return _unreported_reading(source, moment)
    failing = [(_failing_ms(load, age_max, moment), series, load) for series, load in found]
    bad = [one for one in failing if one[0]]
    oldest = min(load.at_ms for _, load in found)
    if bad:
        since, series, load = min(bad, key=lambda one: one[0])
        why = load.trouble or "its last value is too old"
        why = f"series {series}: {why}" if series else why
        failures = max(load.failures for _, _, load in bad)
        return _with_failure_count(
            MetricReading(UnavailableMetric(why), source, oldest_ms=oldest, failing_ms=since, trouble=why), failures
        )
    values = tuple(load.value_milli for _, load in found)
    return MetricReading(SeriesReading(values), source, sum(values), oldest, due_ms=oldest + age_max + 1)


def _with_failure_count(read: MetricReading, failures: int) -> MetricReading:
    return replace(read, failures=failures, detail=f"failures in a row: {failures}" if failures else "")


def _unreported_reading(source: str, moment: ReadingMoment) -> MetricReading:
    """Returns the reading of a metric that nobody has reported since the policy was declared."""
    why = "nobody has reported it"
    return MetricReading(UnavailableMetric(why), source, failing_ms=moment.since_ms, trouble=why)


def _failing_ms(load: MetricSeries, age_max_ms: int, moment: ReadingMoment) -> int:
    """Returns the time since which a series has no value, in Unix milliseconds; 0 if it has one."""
    if load.failing_ms:
        return load.failing_ms
    return load.at_ms + age_max_ms if moment.now_ms > load.at_ms + age_max_ms else 0


def read_trigger(named: NamedTrigger, inputs: WorkloadInputs, moment: ReadingMoment) -> MetricReading:
    """Returns the reading of a ScaledObject's trigger, as its scaler would answer."""
    trigger = named.source
    if isinstance(trigger, KafkaTrigger):
        return read_kafka(trigger, inputs, moment)
    if isinstance(trigger, CronTrigger):
        return _read_cron(trigger, moment)
    return _read_prometheus(trigger, named.metric, inputs, moment)


def read_kafka(trigger: KafkaTrigger, inputs: WorkloadInputs, moment: ReadingMoment) -> MetricReading:
    """Returns the lag of the consumer group in the partitions that the trigger counts.

    The lag is unknown while the end offset of one of them is unknown. KEDA would count that partition's lag as 0.
    """
    backlog = inputs.backlogs.get((trigger.group, trigger.topic))
    if backlog is None:
        return _unreported_reading(KAFKA, moment)
    age_max = moment.rules.load_age_max_ms
    too_old = moment.now_ms > backlog.at_ms + age_max
    if backlog.failing_ms or too_old:
        why = backlog.trouble or "the last backlog is too old"
        since = backlog.failing_ms or backlog.at_ms + age_max
        read = MetricReading(UnavailableMetric(why), KAFKA, oldest_ms=backlog.at_ms, failing_ms=since, trouble=why)
        return _with_failure_count(read, backlog.failures)
    chosen = [
        PartitionOffsets(topic, partition, None if latest < 0 else latest, None if committed < 0 else committed)
        for topic, partition, latest, committed in backlog.rows
        if trigger.has_partition(topic, partition)
    ]
    endless = [f"{row.topic}/{row.partition}" for row in chosen if row.latest is None]
    if endless:
        why = f"{len(endless)} partitions whose end is not known, the first is {endless[0]}"
        read = MetricReading(
            UnavailableMetric(why), KAFKA, oldest_ms=backlog.at_ms, failing_ms=backlog.endless_ms, trouble=why
        )
        return _with_failure_count(read, backlog.failures)
    compared = backlog.committed if trigger.exclude_persistent else ()
    lag = lag_of_partitions(chosen, trigger, {(topic, partition): place for topic, partition, place in compared})
    detail = f"true lag {lag.true} in {len(chosen)} partitions"
    milli = lag.metric_milli
    due = backlog.at_ms + age_max + 1
    reading = SeriesReading((milli,))
    return MetricReading(reading, KAFKA, milli, backlog.at_ms, due_ms=due, active=lag.active, detail=detail)


def _read_cron(trigger: CronTrigger, moment: ReadingMoment) -> MetricReading:
    try:
        found = cron_activity_at(trigger, moment.now_ms // 1000)
    except InvalidCron as error:
        return MetricReading(
            UnavailableMetric(str(error)), CRON, failing_ms=moment.since_ms, failures=1, trouble=str(error)
        )
    reading = SeriesReading((found.metric_milli,))
    due, at = found.due_s * 1000, moment.now_ms
    return MetricReading(reading, CRON, found.metric_milli, at, due_ms=due, active=found.active)


def _read_prometheus(
    trigger: PrometheusTrigger, metric: str, inputs: WorkloadInputs, moment: ReadingMoment
) -> MetricReading:
    read = read_series(metric, "", PROMETHEUS, inputs, moment)
    active = read.value_milli is not None and read.value_milli > trigger.activation_milli
    return replace(read, active=active)
