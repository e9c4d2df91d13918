"""The straightforward calculator: everything from all pods of all clusters, each time it is asked. Nothing is kept."""

from dataclasses import dataclass

from hpa.core.heard.cluster_pods import NEVER, SUCCEEDED, ClusterShare, is_lost, left_out_cluster_name, usage_of
from hpa.core.heard.clusters import WorkloadClusters
from hpa.core.kubernetes.pods import CPU, FAILED, CountedPod, PodKey, PodsSeen, Readiness, Sample, readiness_due_ms
from hpa.core.kubernetes.totals import MetricRule, sum_over_pods
from hpa.core.rules import HpaRules


@dataclass(slots=True)
class WholeClusters(WorkloadClusters):
    """In the place of WorkloadClusters, of which only the records are taken over."""

    def total_share(self, rule: MetricRule, rules: HpaRules, now_ms: int) -> ClusterShare:
        samples: dict[PodKey, Sample] = {}
        troubles: list[str] = []
        for name, cluster in self.by_name.items():
            if cluster.troubles_text:
                troubles.append(f"{name}: {cluster.troubles_text}")
            if is_lost(cluster, now_ms, rules):
                troubles.append(f"{name}: silent")
            for key, pod in cluster.pods.items():
                sample = usage_of(pod, rule.resource, rule.container)
                if sample is not None and now_ms <= sample.at_ms + rules.sample_age_max_ms:
                    samples[key] = sample
        seen = self.pods_seen(now_ms, rules)
        readiness = Readiness(rules.settings.cpu_initialization_ms, rules.settings.initial_readiness_delay_ms)
        initialized_ms = readiness_due_ms(seen.pods, readiness, now_ms) if rule.resource == CPU else None
        return ClusterShare(
            counted=sum_over_pods(seen.pods, seen.reachable_samples(samples), rule, readiness, now_ms),
            samples=len(samples),
            used_milli=sum(sample.value_milli for sample in samples.values()),
            oldest_ms=min((sample.at_ms for sample in samples.values()), default=NEVER),
            troubles=tuple(troubles),
            initialized_ms=NEVER if initialized_ms is None else initialized_ms,
            until_ms=now_ms + 1,
        )

    @property
    def standing_pod_count(self) -> int:
        """What standing is to be."""
        pods = [pod for cluster in self.by_name.values() for pod in cluster.pods.values()]
        return sum(1 for pod in pods if not pod.deleting and pod.phase not in (FAILED, SUCCEEDED))

    def lost_clusters(self, now_ms: int, rules: HpaRules) -> frozenset[str]:
        return frozenset(name for name, cluster in self.by_name.items() if is_lost(cluster, now_ms, rules))

    def next_lost_ms(self, now_ms: int, rules: HpaRules) -> int | None:
        return min((at_ms for at_ms, _ in self._loss_times(rules) if at_ms > now_ms), default=None)

    def cluster_lost_at(self, at_ms: int, rules: HpaRules) -> str:
        return min(name for told_ms, name in self._loss_times(rules) if told_ms == at_ms)

    def _loss_times(self, rules: HpaRules) -> list[tuple[int, str]]:
        told = ((one.observed_ms, name) for name, one in self.by_name.items() if one.sampled)
        return [(at_ms + rules.pods_age_max_ms + 1, name) for at_ms, name in told]

    def pods_seen(self, now_ms: int, rules: HpaRules) -> PodsSeen:
        pods: dict[PodKey, CountedPod] = {key: pod for one in self.by_name.values() for key, pod in one.pods.items()}
        left_out = frozenset(left_out_cluster_name(name) for name, one in self.by_name.items() if one.left_out)
        return PodsSeen(pods, self.lost_clusters(now_ms, rules) | left_out)


def recomputed_clusters(clusters: WorkloadClusters) -> WholeClusters:
    """The same records, of which nothing is kept."""
    found = WholeClusters(dict(clusters.by_name))
    found.standing = found.standing_pod_count
    return found
