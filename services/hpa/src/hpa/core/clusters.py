"""A workload's pods in all clusters, with kept totals: a record is worked out for its own cluster alone. Pure."""

from collections.abc import Iterator, Mapping, ValuesView
from dataclasses import dataclass, field
from typing import Final

from hpa.core.cluster_pods import NEVER, ClusterPods, Share, left_out_of, share_of
from hpa.core.pods import Pod, PodKey, PodsSeen
from hpa.core.rules import Rules
from hpa.core.totals import NO_TOTALS, Counted, MetricRule, Totals

NOTHING_COUNTED: Final = Counted(NO_TOTALS, 0)
NOWHERE: Final[frozenset[str]] = frozenset()


@dataclass(slots=True)
class KeptTotals:
    """One metric's. heard: clusters that said something new since the last reading.

    shares: of the others, as they are from since_ms on and before until_ms. totals, pods: their sums.
    """

    heard: set[str] = field(default_factory=set)
    shares: dict[str, Share] = field(default_factory=dict)
    totals: Totals = NO_TOTALS
    pods: int = 0
    since_ms: int = NEVER
    until_ms: int = NEVER

    def read(self, clusters: Mapping[str, ClusterPods], rule: MetricRule, rules: Rules, now_ms: int) -> Share:
        """What all clusters together add at now_ms."""
        for name in self.heard if self.since_ms <= now_ms < self.until_ms else {*clusters, *self.shares}:
            cluster = clusters.get(name)
            self._put(name, None if cluster is None else share_of(cluster, rule, rules, now_ms))
        self.heard.clear()
        together = self._together([self.shares[name] for name in clusters])
        self.since_ms, self.until_ms = now_ms, together.until_ms
        return together

    def _put(self, name: str, share: Share | None) -> None:
        """In the place of its share so far; None: the cluster has no pods any more."""
        old = self.shares.pop(name, None)
        gone = NOTHING_COUNTED if old is None else old.counted
        new = NOTHING_COUNTED if share is None else share.counted
        self.totals, self.pods = self.totals.changed(new.totals, gone.totals), self.pods + new.pods - gone.pods
        if share is not None:
            self.shares[name] = share

    def _together(self, shares: list[Share]) -> Share:
        """shares: in the order of their clusters, whose first failure it is."""
        failures = [share.counted.failure for share in shares if share.counted.failure is not None]
        return Share(
            counted=Counted(self.totals, self.pods, failures[0] if failures else None),
            samples=sum([share.samples for share in shares]),
            used_milli=sum([share.used_milli for share in shares]),
            oldest_ms=min([share.oldest_ms for share in shares], default=NEVER),
            troubles=tuple([trouble for share in shares for trouble in share.troubles]),
            initialized_ms=min([share.initialized_ms for share in shares], default=NEVER),
            until_ms=min([share.until_ms for share in shares], default=NEVER),
        )


@dataclass(slots=True)
class Clusters:
    """standing: pods that neither ended nor are being deleted. sampled_ms: when clusters with samples told their pods.

    left_out: names under which pods stand that records had no room for. kept: by what of a metric decides how a pod
    counts.
    """

    by_name: dict[str, ClusterPods] = field(default_factory=dict)
    standing: int = 0
    sampled_ms: dict[str, int] = field(default_factory=dict)
    left_out: frozenset[str] = NOWHERE
    kept: dict[MetricRule, KeptTotals] = field(default_factory=dict)

    def put(self, name: str, cluster: ClusterPods | None) -> None:
        """The cluster as it is now; None: it has none of the workload's pods any more."""
        old = self.by_name.get(name)
        self.standing += (cluster.standing if cluster else 0) - (old.standing if old else 0)
        self.sampled_ms.pop(name, None)
        if cluster is None:
            self.by_name.pop(name, None)
        else:
            self.by_name[name] = cluster
            if cluster.sampled:
                self.sampled_ms[name] = cluster.observed_ms
        if (old is not None and old.left_out) or (cluster is not None and cluster.left_out):
            self.left_out = frozenset(left_out_of(other) for other, one in self.by_name.items() if one.left_out)
        for kept in self.kept.values():
            kept.heard.add(name)

    def together(self, rule: MetricRule, rules: Rules, now_ms: int) -> Share:
        """What all of them add to a metric."""
        kept = self.kept.get(rule)
        if kept is None:
            kept = self.kept[rule] = KeptTotals()
        return kept.read(self.by_name, rule, rules, now_ms)

    def lost(self, now_ms: int, rules: Rules) -> frozenset[str]:
        """Those that told samples, and then nothing for too long."""
        before = now_ms - rules.pods_age_max_ms
        if not self.sampled_ms or min(self.sampled_ms.values()) >= before:
            return NOWHERE
        return frozenset(name for name, at_ms in self.sampled_ms.items() if at_ms < before)

    def next_lost(self, now_ms: int, rules: Rules) -> tuple[int, str] | None:
        """When the next one will be lost, and which; None: none will."""
        since = now_ms - rules.pods_age_max_ms
        first_ms = min([at_ms for at_ms in self.sampled_ms.values() if at_ms >= since], default=None)
        if first_ms is None:
            return None
        name = min([name for name, at_ms in self.sampled_ms.items() if at_ms == first_ms])
        return first_ms + rules.pods_age_max_ms + 1, name

    def seen(self, now_ms: int, rules: Rules) -> PodsSeen:
        """Pods that records had no room for count as those of a lost cluster."""
        return PodsSeen(AllPods(self.by_name), self.lost(now_ms, rules) | self.left_out)


class AllPods(Mapping[PodKey, Pod]):
    """The pods of several clusters, merged when they are first looked at, which few decisions do."""

    __slots__ = ("_clusters", "_merged")

    def __init__(self, clusters: Mapping[str, ClusterPods]) -> None:
        self._clusters = clusters
        self._merged: dict[PodKey, Pod] | None = None

    def _pods(self) -> dict[PodKey, Pod]:
        if self._merged is None:
            self._merged = {}
            for cluster in self._clusters.values():
                self._merged.update(cluster.pods)
        return self._merged

    def __getitem__(self, key: PodKey) -> Pod:
        return self._pods()[key]

    def __iter__(self) -> Iterator[PodKey]:
        return iter(self._pods())

    def __len__(self) -> int:
        return len(self._pods())

    def values(self) -> ValuesView[Pod]:
        return self._pods().values()
