"""What is known of one workload: its declared size, its pods in every cluster, values of metrics, backlogs. Pure.

Each take_… applies one event, is idempotent, drops what is older than is known, and says whether anything changed. Of
values and backlogs of one instant the one that stands later in the log counts; offset: where an event stands there.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from hpa.core.heard.cluster_pods import cluster_pods
from hpa.core.heard.clusters import Clusters
from hpa.core.heard.heard import Heard
from hpa.core.kubernetes.pods import PodKey
from hpa.core.rules import Rules
from spillway.addresses import PODS, WORKLOADS
from spillway.events import WorkloadDeclared
from spillway.events_scaling import BacklogObserved, LoadObserved, PodsObserved
from spillway.model import NO_GENERATION, Generation
from spillway.texts import cut_bytes

TEXTS_MAX = 500_000
"""Bytes of the names, sources and troubles of one workload's series. All of them are written into one record with every
state."""
BACKLOGS_MAX = 700_000
"""Bytes of all partitions of one workload's queues, likewise; some 13,000 of a topic with a short name."""
PARTITION_BYTES = 48
"""Of the numbers of one partition, at the most, in a record."""
SOURCE_MAX, TROUBLE_MAX = 253, 200
"""Bytes that are kept of a source and of a trouble."""
FAILURES_APART: Final = 0.75
"""Of a polling interval: so long after the failure that was counted last the next one counts."""

LoadKey = tuple[str, str, str, str, str]
"""Metric, object, series, cluster, pod."""
LoadName = tuple[str, str, bool]
"""Metric, object, whether it is of pods: what a policy names."""
BacklogKey = tuple[str, str]
"""Group, topic."""


class Declared(Struct, frozen=True, gc=False):
    """A workload as the planner declared it. scaled: the last decision of ours that is in replicas."""

    kind: str
    replicas: int
    scaled: Generation
    deleting: bool


def declared_of(event: WorkloadDeclared) -> Declared:
    return Declared(event.kind, event.replicas, event.scale_generation or NO_GENERATION, event.deleting)


class Load(Struct, frozen=True, gc=False):
    """A series. value_milli: its newest value, of at_ms (0: never). failing_ms: the first report without one since.

    failures: reports without one in a row, one a polling interval; counted_ms: the last of them. Silence is none.
    offset: of its record, -1: not known.
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
    """A group's newest backlog. rows: (topic, partition, latest, committed). committed: of the poll before.

    oldest_ms: for each row, when the oldest record that is not read was written; 0: not known, or none.
    endless_ms: the first report since which the end of some partition is not known; 0: all are. failures, counted_ms:
    as of Load, with those reports. offset: as of Load.
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


Reported = TypeVar("Reported", Load, Backlog)
Key = TypeVar("Key", LoadKey, BacklogKey)


@dataclass(slots=True)
class Inputs:
    """Of one workload. declared None: the planner knows none of that name.

    loads_from_ms, backlogs_from_ms: of what the policy names, since when it stands for another question than before;
    what was measured earlier answers that one. ahead_ms: clusters whose clock was ahead when they were heard last.
    Who takes series away puts another dict in the place of loads, or clears it.
    """

    declared: Declared | None = None
    clusters: Clusters = field(default_factory=Clusters)
    loads: dict[LoadKey, Load] = field(default_factory=dict)
    backlogs: dict[BacklogKey, Backlog] = field(default_factory=dict)
    loads_from_ms: dict[LoadName, int] = field(default_factory=dict)
    backlogs_from_ms: dict[BacklogKey, int] = field(default_factory=dict)
    ahead_ms: dict[str, int] = field(default_factory=dict)
    _summed: dict[LoadKey, Load] | None = field(default=None, init=False, compare=False, repr=False)
    """The loads whose bytes of texts are kept. The bytes of another dict are summed when they are asked for."""
    _texts_bytes: int = field(default=0, init=False, compare=False, repr=False)

    @property
    def texts_bytes(self) -> int:
        """Bytes of the texts of all series: a running sum of texts_size."""
        if self._summed is not self.loads or not self.loads:
            self._summed, self._texts_bytes = self.loads, texts_size(self.loads.items())
        return self._texts_bytes

    def copy(self) -> "Inputs":
        """Returns inputs that change apart from these."""
        return Inputs(
            self.declared,
            self.clusters.copy(),
            dict(self.loads),
            dict(self.backlogs),
            dict(self.loads_from_ms),
            dict(self.backlogs_from_ms),
            dict(self.ahead_ms),
        )

    def take(self, heard: Heard, rules: Rules, polling_ms: int, ahead_ms: int | None) -> bool:
        """Any input record. polling_ms: as of take_load; ahead_ms: as of take_pods."""
        event = heard.event
        if isinstance(event, PodsObserved):
            return self.take_pods(event, ahead_ms)
        if isinstance(event, WorkloadDeclared):
            return self.take_declared(declared_of(event))
        if isinstance(event, LoadObserved):
            self.forget_old(event.at_ms, rules)
            return self.take_load(event, heard.offset, rules, polling_ms)
        if isinstance(event, BacklogObserved):
            return self.take_backlog(event, heard.offset, rules, polling_ms)
        if event is None and heard.topic == WORKLOADS.name:
            return self.take_declared(None)
        if event is None and heard.topic == PODS.name:
            return self.forget_pods(heard.key.rpartition("/")[2])
        return False

    def take_declared(self, declared: Declared | None) -> bool:
        changed, self.declared = declared != self.declared, declared
        return changed

    def take_pods(self, event: PodsObserved, ahead_ms: int | None = None) -> bool:
        """ahead_ms: how far the cluster's clock is; None: as far as is remembered."""
        known = self.clusters.by_name.get(event.cluster)
        if known is not None and (known.epoch, known.sequence) >= (event.epoch, event.sequence):
            return False
        self.clusters.put(event.cluster, cluster_pods(event))
        ahead_ms = self.ahead_ms.get(event.cluster, 0) if ahead_ms is None else ahead_ms
        if ahead_ms or event.cluster in self.ahead_ms:
            self.correct({event.cluster: ahead_ms})
        return True

    def correct(self, ahead_ms: Mapping[str, int]) -> None:
        """Clusters whose clocks are so far ahead."""
        for name, ahead in ahead_ms.items():
            self.ahead_ms.pop(name, None)
            if ahead:
                self.ahead_ms[name] = ahead
            cluster = self.clusters.by_name.get(name)
            if cluster is not None and cluster.ahead_ms != ahead:
                self.clusters.put(name, cluster.ahead(ahead))

    def ahead_of(self, at_ms: int, rules: Rules) -> dict[str, int]:
        """Clusters that said something later than can be believed at that instant, and how far."""
        told = ((name, one.observed_ms + one.ahead_ms - at_ms) for name, one in self.clusters.by_name.items())
        return {name: ahead for name, ahead in told if ahead > rules.future_max_ms}

    def forget_pods(self, cluster: str) -> bool:
        self.ahead_ms.pop(cluster, None)
        known = cluster in self.clusters.by_name
        self.clusters.put(cluster, None)
        return known

    def take_load(self, event: LoadObserved, offset: int, rules: Rules, polling_ms: int = 0) -> bool:
        """What is negative is a report without a value. What is beyond what is kept of one workload is not taken.

        polling_ms: how often it is to be asked for, to count failures.
        """
        key = (event.metric, event.object, event.series, event.cluster, event.pod)
        known = self.loads.get(key)
        if known is None and len(self.loads) >= rules.series_max:
            return False
        before_bytes = 0 if known is None else texts_size([(key, known)])
        known = known or Load()
        if event.at_ms < self.loads_from_ms.get(name_of(key), 0):
            return False
        trouble = event.trouble or (f"negative value {event.value_milli / 1000:g}" if event.value_milli < 0 else "")
        if is_known(known, event, offset, trouble, rules):
            return False
        if trouble:
            new = _failed(known, trouble, known.failing_ms or event.at_ms, event.at_ms, polling_ms)
        else:
            new = Load(event.value_milli, event.at_ms, event.window_ms, event.at_ms, source=_source(event))
        after_bytes = texts_size([(key, new)])
        all_bytes = self.texts_bytes - before_bytes + after_bytes
        if after_bytes > before_bytes and all_bytes > TEXTS_MAX:
            return False
        self._texts_bytes = all_bytes
        return _put(self.loads, key, known, replace(new, offset=offset))

    def take_backlog(self, event: BacklogObserved, offset: int, rules: Rules, polling_ms: int = 0) -> bool:
        """polling_ms: as of take_load."""
        key = (event.group, event.topic)
        known = self.backlogs.get(key, Backlog())
        if event.at_ms < self.backlogs_from_ms.get(key, 0):
            return False
        trouble = event.trouble or odd_partitions(event) or self._too_large(key, event)
        if is_known(known, event, offset, trouble, rules):
            return False
        if trouble:
            failing_ms = known.failing_ms or known.endless_ms or event.at_ms
            new = _failed(known, trouble, failing_ms, event.at_ms, polling_ms)
        else:
            new = _next_backlog(known, event, polling_ms)
        return _put(self.backlogs, key, known, replace(new, offset=offset))

    def _too_large(self, key: BacklogKey, event: BacklogObserved) -> str:
        others = sum(row_size(row[0]) for one, kept in self.backlogs.items() if one != key for row in kept.rows)
        if others + backlog_size(event) <= BACKLOGS_MAX:
            return ""
        return f"{len(event.partitions)} partitions are more than is kept of one workload's queues"

    def forget_old(self, now_ms: int, rules: Rules) -> None:
        """Pods' own metrics and series that stopped long ago; what is looked at is unknown by then, not gone."""
        if len(self.loads) < rules.series_max // 2:
            return
        since = now_ms - rules.forgotten_ms
        old = [(key, load) for key, load in self.loads.items() if load.heard_ms <= since]
        if old:
            self._texts_bytes = self.texts_bytes - texts_size(old)
        for key, _ in old:
            del self.loads[key]

    def status_replicas(self, current: int) -> int:
        """Pods that there are, without what a move or a rollout doubles; current where no cluster was heard of."""
        return min(self.clusters.standing, current) if self.clusters.by_name else current


def is_known(
    known: Load | Backlog, event: LoadObserved | BacklogObserved, offset: int, trouble: str, rules: Rules
) -> bool:
    """Whether an event is not newer, or somebody cannot see what another one has told, which takes nothing from it.

    If that one stops, what it told grows too old; from then on those are heard who cannot see. Of one instant a value
    counts more than none, and of two values the later one in the log, also where records are read twice. trouble: why
    the event has no value.
    """
    if event.at_ms < known.heard_ms:
        return True
    if event.at_ms == known.heard_ms:
        return bool(trouble) or (not known.failing_ms and offset <= known.offset)
    fresh = not known.failing_ms and event.at_ms <= known.at_ms + rules.load_age_max_ms
    return bool(event.trouble and known.at_ms and fresh and _source(event) != known.source)


def _put(kept: dict[Key, Reported], key: Key, known: Reported, new: Reported) -> bool:
    """Whether it says more than the same again."""
    kept[key] = new
    return replace(new, offset=known.offset) != known


def _failed(known: Reported, trouble: str, failing_ms: int, at_ms: int, polling_ms: int) -> Reported:
    """With a report without a value. failing_ms: since when there is none."""
    failures, counted_ms = failures_with(known, at_ms, polling_ms)
    told = replace(known, heard_ms=at_ms, failing_ms=failing_ms, trouble=cut_bytes(trouble, TROUBLE_MAX))
    return replace(told, failures=failures, counted_ms=counted_ms)


def failures_with(known: Load | Backlog, at_ms: int, polling_ms: int) -> tuple[int, int]:
    """(failures, the last that was counted) with a report without a value: as KEDA counts them, one at each poll."""
    if known.failures and (at_ms == known.counted_ms or at_ms < known.counted_ms + FAILURES_APART * polling_ms):
        return known.failures, known.counted_ms
    return known.failures + 1, at_ms


def odd_partitions(event: BacklogObserved) -> str:
    """Why a backlog cannot be believed; "" where it can. A topic that exists has a partition, and each of them once."""
    if event.topic and not any(one.topic == event.topic for one in event.partitions):
        return f"no partition of topic {event.topic} is told"
    places: set[tuple[str, int]] = set()
    for one in event.partitions:
        if (one.topic, one.partition) in places:
            return f"{one.topic}/{one.partition} is told twice"
        places.add((one.topic, one.partition))
    return ""


def name_of(key: LoadKey) -> LoadName:
    metric, described, _, _, pod = key
    return metric, described, bool(pod)


def backlog_size(event: BacklogObserved) -> int:
    """Bytes of its partitions, at the most."""
    return sum(row_size(one.topic) for one in event.partitions)


def row_size(topic: str) -> int:
    """Bytes of one partition, at the most."""
    return PARTITION_BYTES + len(topic.encode())


def texts_size(loads: Iterable[tuple[LoadKey, Load]]) -> int:
    """Bytes of the names, sources and troubles of these loads."""
    return sum(len(text.encode()) for key, load in loads for text in (*key, load.source, load.trouble))


def _source(event: LoadObserved | BacklogObserved) -> str:
    """Returns as much of a source as is kept."""
    return cut_bytes(event.source, SOURCE_MAX)


def pod_loads(inputs: Inputs, metric: str) -> Iterator[tuple[PodKey, Load, str]]:
    """Values of a metric of pods; the namespace is the caller's to fill in."""
    for (name, _, _, cluster, pod), load in inputs.loads.items():
        if name == metric and pod:
            yield PodKey(cluster, "", pod), load, load.trouble


def _next_backlog(known: Backlog, event: BacklogObserved, polling_ms: int) -> Backlog:
    """What is told of the same instant again is the same poll, whose offsets are no poll before."""
    again = event.at_ms == known.at_ms
    before = tuple((topic, partition, place) for topic, partition, _, place in known.rows if place >= 0)
    endless = any(one.latest < 0 for one in event.partitions)
    failures, counted_ms = failures_with(known, event.at_ms, polling_ms) if endless else (0, 0)
    return Backlog(
        rows=tuple((one.topic, one.partition, one.latest, one.committed) for one in event.partitions),
        oldest_ms=tuple(one.oldest_ms for one in event.partitions),
        at_ms=event.at_ms,
        heard_ms=event.at_ms,
        source=_source(event),
        committed=known.committed if again else before,
        endless_ms=(known.failing_ms or known.endless_ms or event.at_ms) if endless else 0,
        failures=failures,
        counted_ms=counted_ms,
    )
