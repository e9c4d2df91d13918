"""Keeps the inputs of one workload: its declared size, its pods, values of metrics, and backlogs. Pure.

Each take_… function applies one event. Applying it twice changes nothing. It drops events that are older than the known
ones, and returns whether anything changed. Of two values or backlogs of one instant, the later one in the log counts.
offset: the offset of the event's record.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from hpa.core.heard.cluster_pods import cluster_pods
from hpa.core.heard.clusters import WorkloadClusters
from hpa.core.heard.heard_record import HeardRecord
from hpa.core.kubernetes.pods import PodKey
from hpa.core.rules import HpaRules
from spillway.addresses import PODS, WORKLOADS
from spillway.events import WorkloadDeclared
from spillway.events_scaling import BacklogObserved, LoadObserved, PodsObserved
from spillway.model import NO_GENERATION, Generation
from spillway.texts import cut_text_to_bytes

TEXTS_MAX = 500_000
"""The most bytes of the names, sources and troubles of one workload's series. All of them are written into one record
with every state."""
BACKLOGS_MAX = 700_000
"""The most bytes of all partitions of one workload's queues. They are in the same record. This is enough for some
13,000 partitions of a topic with a short name."""
PARTITION_BYTES = 48
"""The most bytes that the numbers of one partition take in a record."""
SOURCE_MAX, TROUBLE_MAX = 253, 200
"""The most bytes that are kept of a source text, and of a trouble text."""
FAILURES_APART: Final = 0.75
"""The part of a polling interval that must pass after a counted failure before the next one counts."""

LoadKey = tuple[str, str, str, str, str]
"""The key of a series: metric, object, series, cluster, pod."""
LoadName = tuple[str, str, bool]
"""The key of a metric in a policy: metric, object, and whether it is a metric of pods."""
BacklogKey = tuple[str, str]
"""Group, topic."""


class DeclaredWorkload(Struct, frozen=True, gc=False):
    """A workload as the planner declared it.

    scaled: the generation of hpa's newest decision that the planner has applied to `replicas`.
    """

    kind: str
    replicas: int
    scaled: Generation
    deleting: bool


def declared_workload_of(event: WorkloadDeclared) -> DeclaredWorkload:
    return DeclaredWorkload(event.kind, event.replicas, event.scale_generation or NO_GENERATION, event.deleting)


class MetricSeries(Struct, frozen=True, gc=False):
    """A series of a metric.

    value_milli: its newest value, in thousandths.
    at_ms: the time of that value, in Unix milliseconds; 0: never.
    window_ms: the length of the time over which that value was measured.
    heard_ms: the time of the newest report, with or without a value.
    failing_ms: the time of the first report without a value after the last value; 0: none.
    failures: how many reports in a row had no value, counted once for each polling interval. Silence is no failure.
    counted_ms: the time of the last report that was counted as a failure.
    offset: the offset of its record; -1: not known.
    """

    value_milli: int = 0
    at_ms: int = 0
    window_ms: int = 0
    heard_ms: int = 0
    failing_ms: int = 0
    trouble: str = ""
    source: str = ""
    failures: int = 0
    counted_ms: int = 0
    offset: int = -1


class Backlog(Struct, frozen=True, gc=False):
    """The newest backlog of a consumer group.

    rows: (topic, partition, latest, committed).
    committed: (topic, partition, committed offset) of the poll before.
    oldest_ms: for each row, when its oldest unread record was written; 0: not known, or no such record.
    endless_ms: the time since which the end offset of some partition is unknown; 0: all are known.
    failures, counted_ms: as for MetricSeries. A report without some partition's end offset counts as a failure, too.
    offset: as for MetricSeries.
    """

    rows: tuple[tuple[str, int, int, int], ...] = ()
    oldest_ms: tuple[int, ...] = ()
    at_ms: int = 0
    heard_ms: int = 0
    failing_ms: int = 0
    trouble: str = ""
    source: str = ""
    committed: tuple[tuple[str, int, int], ...] = ()
    endless_ms: int = 0
    failures: int = 0
    counted_ms: int = 0
    offset: int = -1


Reported = TypeVar("Reported", MetricSeries, Backlog)
Key = TypeVar("Key", LoadKey, BacklogKey)


@dataclass(slots=True)
class WorkloadInputs:
    """The inputs of one workload. A caller that removes series must replace or clear the dict `loads`.

    Otherwise the running sum of texts_bytes becomes wrong.

    declared: None while the planner knows no workload of that name.
    loads_from_ms, backlogs_from_ms: for each name in the policy, the time since which the policy has its present
        query. Earlier measurements answer another query and are dropped.
    ahead_ms: for each cluster, how far its clock was ahead of ours at its last record.
    applied: for each "topic/partition", the offset of the last record that was applied.
    """

    declared: DeclaredWorkload | None = None
    clusters: WorkloadClusters = field(default_factory=WorkloadClusters)
    loads: dict[LoadKey, MetricSeries] = field(default_factory=dict)
    backlogs: dict[BacklogKey, Backlog] = field(default_factory=dict)
    loads_from_ms: dict[LoadName, int] = field(default_factory=dict)
    backlogs_from_ms: dict[BacklogKey, int] = field(default_factory=dict)
    ahead_ms: dict[str, int] = field(default_factory=dict)
    applied: dict[str, int] = field(default_factory=dict)
    _summed: dict[LoadKey, MetricSeries] | None = field(default=None, init=False, compare=False, repr=False)
    """The dict for which _texts_bytes is valid. For another dict, the bytes are summed again at the next read."""
    _texts_bytes: int = field(default=0, init=False, compare=False, repr=False)

    @property
    def texts_bytes(self) -> int:
        """Returns the bytes of the texts of all series, as a running sum of texts_bytes_of_loads."""
        if self._summed is not self.loads or not self.loads:
            self._summed, self._texts_bytes = self.loads, texts_bytes_of_loads(self.loads.items())
        return self._texts_bytes

    def copy(self) -> "WorkloadInputs":
        """Returns a copy. Changes of the copy do not change the original."""
        return WorkloadInputs(
            self.declared,
            self.clusters.copy(),
            dict(self.loads),
            dict(self.backlogs),
            dict(self.loads_from_ms),
            dict(self.backlogs_from_ms),
            dict(self.ahead_ms),
            dict(self.applied),
        )

    def apply_record(self, heard: HeardRecord, rules: HpaRules, polling_ms: int, ahead_ms: int | None) -> bool:
        """Applies any input record. polling_ms: as for apply_load; ahead_ms: as for apply_pods."""
        event = heard.event
        self.applied[f"{heard.topic}/{heard.partition}"] = heard.offset
        if isinstance(event, PodsObserved):
            return self.apply_pods(event, ahead_ms)
        if isinstance(event, WorkloadDeclared):
            return self.apply_declared(declared_workload_of(event))
        if isinstance(event, LoadObserved):
            self.forget_old_series(event.at_ms, rules)
            return self.apply_load(event, heard.offset, rules, polling_ms)
        if isinstance(event, BacklogObserved):
            return self.apply_backlog(event, heard.offset, rules, polling_ms)
        if event is None and heard.topic == WORKLOADS.name:
            return self.apply_declared(None)
        if event is None and heard.topic == PODS.name:
            return self.forget_pods(heard.key.rpartition("/")[2])
        return False

    def apply_declared(self, declared: DeclaredWorkload | None) -> bool:
        changed, self.declared = declared != self.declared, declared
        return changed

    def apply_pods(self, event: PodsObserved, ahead_ms: int | None = None) -> bool:
        """Applies a record of pods. ahead_ms: how far the cluster's clock is ahead; None: as remembered."""
        known = self.clusters.by_name.get(event.cluster)
        if known is not None and (known.epoch, known.sequence) >= (event.epoch, event.sequence):
            return False
        self.clusters.replace_cluster(event.cluster, cluster_pods(event))
        ahead_ms = self.ahead_ms.get(event.cluster, 0) if ahead_ms is None else ahead_ms
        if ahead_ms or event.cluster in self.ahead_ms:
            self.correct_clocks({event.cluster: ahead_ms})
        return True

    def correct_clocks(self, ahead_ms: Mapping[str, int]) -> None:
        """Stores how far these clusters' clocks are ahead of ours, and corrects the times of their pods by that."""
        for name, ahead in ahead_ms.items():
            self.ahead_ms.pop(name, None)
            if ahead:
                self.ahead_ms[name] = ahead
            cluster = self.clusters.by_name.get(name)
            if cluster is not None and cluster.ahead_ms != ahead:
                self.clusters.replace_cluster(name, cluster.with_clock_ahead(ahead))

    def clock_ahead_ms_by_cluster(self, at_ms: int, rules: HpaRules) -> dict[str, int]:
        """Returns how far clocks are ahead, for clusters whose last record is more than future_max_ms after at_ms."""
        told = ((name, one.observed_ms + one.ahead_ms - at_ms) for name, one in self.clusters.by_name.items())
        return {name: ahead for name, ahead in told if ahead > rules.future_max_ms}

    def forget_pods(self, cluster: str) -> bool:
        self.ahead_ms.pop(cluster, None)
        known = cluster in self.clusters.by_name
        self.clusters.replace_cluster(cluster, None)
        return known

    def apply_load(self, event: LoadObserved, offset: int, rules: HpaRules, polling_ms: int = 0) -> bool:
        """Applies a report of a value.

        A negative value counts as no value. A report beyond the bounds of one workload is dropped.

        polling_ms: the polling interval, by which failures are counted.
        """
        key = (event.metric, event.object, event.series, event.cluster, event.pod)
        known = self.loads.get(key)
        if known is None and len(self.loads) >= rules.series_max:
            return False
        before_bytes = 0 if known is None else texts_bytes_of_loads([(key, known)])
        known = known or MetricSeries()
        if event.at_ms < self.loads_from_ms.get(load_name_of(key), 0):
            return False
        trouble = event.trouble or (f"negative value {event.value_milli / 1000:g}" if event.value_milli < 0 else "")
        if is_without_effect(known, event, offset, trouble, rules):
            return False
        if trouble:
            new = _with_failed_report(known, trouble, known.failing_ms or event.at_ms, event.at_ms, polling_ms)
        else:
            new = MetricSeries(
                event.value_milli, event.at_ms, event.window_ms, event.at_ms, source=_bounded_source(event)
            )
        after_bytes = texts_bytes_of_loads([(key, new)])
        all_bytes = self.texts_bytes - before_bytes + after_bytes
        if after_bytes > before_bytes and all_bytes > TEXTS_MAX:
            return False
        self._texts_bytes = all_bytes
        return _store_report(self.loads, key, known, replace(new, offset=offset))

    def apply_backlog(self, event: BacklogObserved, offset: int, rules: HpaRules, polling_ms: int = 0) -> bool:
        """Applies a report of a backlog. polling_ms: as for apply_load."""
        key = (event.group, event.topic)
        known = self.backlogs.get(key, Backlog())
        if event.at_ms < self.backlogs_from_ms.get(key, 0):
            return False
        trouble = event.trouble or find_partitions_fault(event) or self._size_trouble(key, event)
        if is_without_effect(known, event, offset, trouble, rules):
            return False
        if trouble:
            failing_ms = known.failing_ms or known.endless_ms or event.at_ms
            new = _with_failed_report(known, trouble, failing_ms, event.at_ms, polling_ms)
        else:
            new = _next_backlog(known, event, polling_ms)
        return _store_report(self.backlogs, key, known, replace(new, offset=offset))

    def _size_trouble(self, key: BacklogKey, event: BacklogObserved) -> str:
        others = sum(
            partition_bytes_max(row[0]) for one, kept in self.backlogs.items() if one != key for row in kept.rows
        )
        if others + backlog_bytes_max(event) <= BACKLOGS_MAX:
            return ""
        return too_many_partitions(event)

    def forget_old_series(self, now_ms: int, rules: HpaRules) -> None:
        """Removes series without a report for forgotten_ms, once half of series_max series are kept.

        A metric of a policy that needs such a series is unknown then.
        """
        if len(self.loads) < rules.series_max // 2:
            return
        since = now_ms - rules.forgotten_ms
        old = [(key, load) for key, load in self.loads.items() if load.heard_ms <= since]
        if old:
            self._texts_bytes = self.texts_bytes - texts_bytes_of_loads(old)
        for key, _ in old:
            del self.loads[key]

    def status_replicas(self, current: int) -> int:
        """Returns the number of existing pods, but at most `current`, because a move or a rollout doubles some pods.

        Returns `current` as long as no cluster has reported pods.
        """
        return min(self.clusters.standing, current) if self.clusters.by_name else current


def is_without_effect(
    known: MetricSeries | Backlog, event: LoadObserved | BacklogObserved, offset: int, trouble: str, rules: HpaRules
) -> bool:
    """Returns True if a report changes nothing: it is not newer, or it is another source's failure to read it.

    A failure of one source does not replace a fresh value of another. Once that value is too old, the failure counts.
    At one instant, a report with a value wins over one without. Of two values, the later one in the log counts, also
    when records are read twice. trouble: the reason why the event has no value.
    """
    if event.at_ms < known.heard_ms:
        return True
    if event.at_ms == known.heard_ms:
        return bool(trouble) or (not known.failing_ms and offset <= known.offset)
    fresh = not known.failing_ms and event.at_ms <= known.at_ms + rules.load_age_max_ms
    return bool(event.trouble and known.at_ms and fresh and _bounded_source(event) != known.source)


def _store_report(kept: dict[Key, Reported], key: Key, known: Reported, new: Reported) -> bool:
    """Stores the new report. Returns whether it differs from the known one in more than its offset."""
    kept[key] = new
    return replace(new, offset=known.offset) != known


def _with_failed_report(known: Reported, trouble: str, failing_ms: int, at_ms: int, polling_ms: int) -> Reported:
    """Returns the known state after one more report without a value. failing_ms: the time of the first such report."""
    failures, counted_ms = failures_in_row(known, at_ms, polling_ms)
    told = replace(known, heard_ms=at_ms, failing_ms=failing_ms, trouble=cut_text_to_bytes(trouble, TROUBLE_MAX))
    return replace(told, failures=failures, counted_ms=counted_ms)


def failures_in_row(known: MetricSeries | Backlog, at_ms: int, polling_ms: int) -> tuple[int, int]:
    """Returns (failures in a row, time of the last) after a report without a value.

    Several failed reports of one poll count once, as in KEDA.
    """
    if known.failures and (at_ms == known.counted_ms or at_ms < known.counted_ms + FAILURES_APART * polling_ms):
        return known.failures, known.counted_ms
    return known.failures + 1, at_ms


def find_partitions_fault(event: BacklogObserved) -> str:
    """Returns the reason why a backlog cannot be right, or "".

    The event must have at least one partition of its topic, and each partition only once.
    """
    if event.topic and not any(one.topic == event.topic for one in event.partitions):
        return f"no partition of topic {event.topic} is told"
    places: set[tuple[str, int]] = set()
    for one in event.partitions:
        if (one.topic, one.partition) in places:
            return f"{one.topic}/{one.partition} is told twice"
        places.add((one.topic, one.partition))
    return ""


def load_name_of(key: LoadKey) -> LoadName:
    metric, described, _, _, pod = key
    return metric, described, bool(pod)


def backlog_bytes_max(event: BacklogObserved) -> int:
    """Returns an upper bound for the bytes of the event's partitions in a record."""
    return sum(partition_bytes_max(one.topic) for one in event.partitions)


def too_many_partitions(event: BacklogObserved) -> str:
    """Returns the message for a backlog with too many partitions. hpa keeps none of them."""
    return f"{len(event.partitions)} partitions are more than is kept of one workload's queues"


def partition_bytes_max(topic: str) -> int:
    """Returns an upper bound for the bytes of one partition of the topic in a record."""
    return PARTITION_BYTES + len(topic.encode())


def texts_bytes_of_loads(loads: Iterable[tuple[LoadKey, MetricSeries]]) -> int:
    """Returns the bytes of the names, sources and troubles of these loads."""
    return sum(len(text.encode()) for key, load in loads for text in (*key, load.source, load.trouble))


def _bounded_source(event: LoadObserved | BacklogObserved) -> str:
    """Returns the source, cut to the length that is kept."""
    return cut_text_to_bytes(event.source, SOURCE_MAX)


def pod_loads(inputs: WorkloadInputs, metric: str) -> Iterator[tuple[PodKey, MetricSeries, str]]:
    """Yields (pod, series, trouble) for each pod's value of a metric. The namespace in the key is left empty."""
    for (name, _, _, cluster, pod), load in inputs.loads.items():
        if name == metric and pod:
            yield PodKey(cluster, "", pod), load, load.trouble


def _next_backlog(known: Backlog, event: BacklogObserved, polling_ms: int) -> Backlog:
    """Returns the backlog after a report.

    A second report of the same instant is the same poll, so `committed` stays.
    """
    again = event.at_ms == known.at_ms
    before = tuple((topic, partition, place) for topic, partition, _, place in known.rows if place >= 0)
    endless = any(one.latest < 0 for one in event.partitions)
    failures, counted_ms = failures_in_row(known, event.at_ms, polling_ms) if endless else (0, 0)
    return Backlog(
        rows=tuple((one.topic, one.partition, one.latest, one.committed) for one in event.partitions),
        oldest_ms=tuple(one.oldest_ms for one in event.partitions),
        at_ms=event.at_ms,
        heard_ms=event.at_ms,
        source=_bounded_source(event),
        committed=known.committed if again else before,
        endless_ms=(known.failing_ms or known.endless_ms or event.at_ms) if endless else 0,
        failures=failures,
        counted_ms=counted_ms,
    )
