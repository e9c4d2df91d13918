"""Keeps a workload's pods in all clusters, with running totals. Pure.

A record changes only the share of its own cluster.
"""

from collections.abc import Iterable, Iterator, Mapping, ValuesView
from dataclasses import dataclass, field, replace
from typing import Final

from hpa.core.heard.cluster_pods import NEVER, ClusterPods, ClusterShare, compute_cluster_share, left_out_cluster_name
from hpa.core.kubernetes.pods import CountedPod, PodKey, PodsSeen
from hpa.core.kubernetes.totals import NO_TOTALS, MetricRule, PodTotals, Totals
from hpa.core.rules import HpaRules

NO_SHARE: Final = ClusterShare(PodTotals(NO_TOTALS, 0), 0, 0, NEVER, (), NEVER, NEVER)
NOWHERE: Final[frozenset[str]] = frozenset()


@dataclass(slots=True)
class KeptTotals:
    """The running totals of one metric over all clusters.

    heard: clusters with new records since the last reading.
    shares: the share of each cluster, valid from since_ms on and before until_ms. The other fields are sums and minima
        of the shares. They are updated by one share at a time, because a loop over all shares is expensive.
    passed: True if a share with one of the minima was removed, so that the minima must be computed again.
    said: the clusters whose share has a failure or troubles to report.
    """

    heard: set[str] = field(default_factory=set)
    shares: dict[str, ClusterShare] = field(default_factory=dict)
    totals: Totals = NO_TOTALS
    pods: int = 0
    samples: int = 0
    used_milli: int = 0
    oldest_ms: int = NEVER
    initialized_ms: int = NEVER
    since_ms: int = NEVER
    until_ms: int = NEVER
    passed: bool = False
    said: set[str] = field(default_factory=set)

    def read_total_share(
        self, clusters: Mapping[str, ClusterPods], rule: MetricRule, rules: HpaRules, now_ms: int
    ) -> ClusterShare:
        """Returns the share of all clusters together at now_ms."""
        # While the kept shares are valid, only clusters with new records are computed again.
        for name in self.heard if self.since_ms <= now_ms < self.until_ms else {*clusters, *self.shares}:
            cluster = clusters.get(name)
            self._replace_share(name, None if cluster is None else compute_cluster_share(cluster, rule, rules, now_ms))
        self.heard.clear()
        if self.passed:
            self._compute_minima()
        self.since_ms = now_ms
        return self._sum_shares(clusters)

    def _replace_share(self, name: str, share: ClusterShare | None) -> None:
        """Replaces a cluster's share. None: the cluster has no pods any more."""
        old, new = self.shares.pop(name, NO_SHARE), NO_SHARE if share is None else share
        self.totals = self.totals.with_share_replaced(new.counted.totals, old.counted.totals)
        self.pods += new.counted.pods - old.counted.pods
        self.samples += new.samples - old.samples
        self.used_milli += new.used_milli - old.used_milli
        self.passed = self.passed or self._has_kept_minimum(old)
        self._lower_minima(new)
        self.said.discard(name)
        if share is not None:
            self.shares[name] = share
            if share.troubles or share.counted.failure is not None:
                self.said.add(name)

    def _has_kept_minimum(self, share: ClusterShare) -> bool:
        """Returns whether one of the kept minima comes from this share."""
        return (
            NEVER > share.oldest_ms == self.oldest_ms
            or NEVER > share.initialized_ms == self.initialized_ms
            or NEVER > share.until_ms == self.until_ms
        )

    def _lower_minima(self, share: ClusterShare) -> None:
        self.oldest_ms = min(self.oldest_ms, share.oldest_ms)
        self.initialized_ms = min(self.initialized_ms, share.initialized_ms)
        self.until_ms = min(self.until_ms, share.until_ms)

    def _compute_minima(self) -> None:
        shares = self.shares.values()
        self.oldest_ms = min([share.oldest_ms for share in shares], default=NEVER)
        self.initialized_ms = min([share.initialized_ms for share in shares], default=NEVER)
        self.until_ms = min([share.until_ms for share in shares], default=NEVER)
        self.passed = False

    def _sum_shares(self, clusters: Iterable[str]) -> ClusterShare:
        """Returns the sum of all shares. Of several failures, it reports the one of the first cluster in `clusters`."""
        shares = [self.shares[name] for name in clusters if name in self.said] if self.said else []
        failures = [share.counted.failure for share in shares if share.counted.failure is not None]
        return ClusterShare(
            counted=PodTotals(self.totals, self.pods, failures[0] if failures else None),
            samples=self.samples,
            used_milli=self.used_milli,
            oldest_ms=self.oldest_ms,
            troubles=tuple([trouble for share in shares for trouble in share.troubles]) if shares else (),
            initialized_ms=self.initialized_ms,
            until_ms=self.until_ms,
        )


@dataclass(slots=True)
class WorkloadClusters:
    """The pods of a workload in all clusters.

    standing: pods that have not ended and are not being deleted.
    sampled_ms: the time of the last record, for clusters with samples.
    first_ms: the earliest time in sampled_ms; NEVER if it is empty.
    left_out: the cluster names used for pods that did not fit into a record (left_out_cluster_name).
    kept: the running totals for each metric rule. Metrics that count pods in the same way share them.
    """

    by_name: dict[str, ClusterPods] = field(default_factory=dict)
    standing: int = 0
    sampled_ms: dict[str, int] = field(default_factory=dict)
    first_ms: int = NEVER
    left_out: frozenset[str] = NOWHERE
    kept: dict[MetricRule, KeptTotals] = field(default_factory=dict)

    def copy(self) -> "WorkloadClusters":
        """Returns a copy whose changes do not change the original. It computes its own totals when they are read."""
        return replace(self, by_name=dict(self.by_name), sampled_ms=dict(self.sampled_ms), kept={})

    def replace_cluster(self, name: str, cluster: ClusterPods | None) -> None:
        """Replaces a cluster's pods. None: it has no pods of the workload any more."""
        old = self.by_name.get(name)
        self.standing += (cluster.standing if cluster else 0) - (old.standing if old else 0)
        told_ms = self.sampled_ms.pop(name, None)
        if cluster is None:
            self.by_name.pop(name, None)
        else:
            self.by_name[name] = cluster
            if cluster.sampled:
                self.sampled_ms[name] = cluster.observed_ms
                self.first_ms = min(self.first_ms, cluster.observed_ms)
        # The record that is replaced had the earliest time, so the minimum is computed again.
        if told_ms == self.first_ms:
            self.first_ms = min(self.sampled_ms.values(), default=NEVER)
        if (old is not None and old.left_out) or (cluster is not None and cluster.left_out):
            self.left_out = frozenset(
                left_out_cluster_name(other) for other, one in self.by_name.items() if one.left_out
            )
        for kept in self.kept.values():
            kept.heard.add(name)

    def total_share(self, rule: MetricRule, rules: HpaRules, now_ms: int) -> ClusterShare:
        """Returns the share of all clusters in a metric."""
        kept = self.kept.get(rule)
        if kept is None:
            kept = self.kept[rule] = KeptTotals()
        return kept.read_total_share(self.by_name, rule, rules, now_ms)

    def lost_clusters(self, now_ms: int, rules: HpaRules) -> frozenset[str]:
        """Returns the clusters that sent samples, and then no record for too long."""
        before = now_ms - rules.pods_age_max_ms
        if self.first_ms >= before:
            return NOWHERE
        return frozenset(name for name, at_ms in self.sampled_ms.items() if at_ms < before)

    def next_lost_ms(self, now_ms: int, rules: HpaRules) -> int | None:
        """Returns when the next cluster counts as lost, in Unix milliseconds; None: no cluster will be lost."""
        since, first_ms = now_ms - rules.pods_age_max_ms, self.first_ms
        if first_ms < since:
            first_ms = min([at_ms for at_ms in self.sampled_ms.values() if at_ms >= since], default=NEVER)
        return None if first_ms == NEVER else first_ms + rules.pods_age_max_ms + 1

    def cluster_lost_at(self, at_ms: int, rules: HpaRules) -> str:
        """Returns the cluster that will be lost at that instant; of several, the first by name."""
        told_ms = at_ms - rules.pods_age_max_ms - 1
        return min(name for name, sampled_ms in self.sampled_ms.items() if sampled_ms == told_ms)

    def pods_seen(self, now_ms: int, rules: HpaRules) -> PodsSeen:
        """Returns all pods. Pods that did not fit into a record count as pods of a lost cluster."""
        return PodsSeen(AllPods(self.by_name), self.lost_clusters(now_ms, rules) | self.left_out)


class AllPods(Mapping[PodKey, CountedPod]):
    """The pods of several clusters. They are merged when they are first read, because few decisions need them."""

    __slots__ = ("_clusters", "_merged")

    def __init__(self, clusters: Mapping[str, ClusterPods]) -> None:
        self._clusters = clusters
        self._merged: dict[PodKey, CountedPod] | None = None

    def _merged_pods(self) -> dict[PodKey, CountedPod]:
        if self._merged is None:
            self._merged = {}
            for cluster in self._clusters.values():
                self._merged.update(cluster.pods)
        return self._merged

    def __getitem__(self, key: PodKey) -> CountedPod:
        return self._merged_pods()[key]

    def __iter__(self) -> Iterator[PodKey]:
        return iter(self._merged_pods())

    def __len__(self) -> int:
        return len(self._merged_pods())

    def values(self) -> ValuesView[CountedPod]:
        return self._merged_pods().values()
