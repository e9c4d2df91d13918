"""Keeps the pods of a workload in one cluster, and computes their share of a metric's totals. Pure.

Time alone changes the share when a sample is too old, a pod's initialization ends, or the cluster is lost.
"""

from collections.abc import Mapping
from functools import lru_cache
from sys import intern
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from hpa.core.kubernetes.pods import (
    CPU,
    FAILED,
    READY,
    RUNNING,
    Amounts,
    CountedPod,
    PodContainer,
    PodKey,
    Readiness,
    Sample,
    readiness_due_ms,
)
from hpa.core.kubernetes.totals import MetricRule, PodTotals, sum_over_pods
from hpa.core.rules import HpaRules
from spillway.events_scaling import PodRequests, PodsObserved

SUCCEEDED: Final = "Succeeded"
ENDED: Final = (FAILED, SUCCEEDED)
KINDS_KEPT: Final = 4_096
"""The most container requests that are cached and shared by pods. Others are created again for each record."""
LEFT_OUT_MAX: Final = 100_000
"""The most left-out pods that are taken from a record. A larger number is cut to it: no workload has more replicas."""
LEFT_OUT: Final[Mapping[str, Any]] = {
    "phase": RUNNING,
    "deleting": False,
    "started_ms": None,
    "ready": READY,
    "ready_changed_ms": None,
    "usage": (),
    "sampled_ms": 0,
    "window_ms": 0,
}
"""The assumed fields of a pod that did not fit into the record. It gets the requests of the last pod that did fit."""
NEVER: Final = 2**62
"""An instant after all others, in milliseconds."""


class ClusterShare(Struct, frozen=True, gc=False):
    """The share of one cluster in a metric. Without a new record it stays valid until until_ms (NEVER: for ever).

    counted: the totals over the pods that count.
    samples: the number of samples that are not too old, also of pods that do not count.
    used_milli, oldest_ms: the total of those samples, in thousandths, and the time of the oldest one.
    troubles: texts for users about pods without samples, a wrong clock or a silent cluster.
    initialized_ms: the time at which the cpu usage of the next pod begins to count; NEVER: no such pod, or not cpu.
    """

    counted: PodTotals
    samples: int
    used_milli: int
    oldest_ms: int
    troubles: tuple[str, ...]
    initialized_ms: int
    until_ms: int


class ClusterPods(Struct, frozen=True, gc=False):
    """The pods of one cluster, as of the record (epoch, sequence).

    observed_ms: the time of the record, corrected by ahead_ms.
    sampled: True if at least one pod had a sample.
    standing: pods that have not ended and are not being deleted.
    trouble: the collector's reason why there are no samples; "" when there are.
    ahead_ms: how far the cluster's clock was ahead of ours when the record was read.
    left_out: the number of pods that did not fit into the record. `pods` contains them too, without samples and under
        a cluster name of their own.
    """

    cluster: str
    pods: Mapping[PodKey, CountedPod]
    epoch: int
    sequence: int
    observed_ms: int
    sampled: bool
    standing: int
    trouble: str
    ahead_ms: int = 0
    left_out: int = 0

    @property
    def troubles_text(self) -> str:
        """Returns the troubles of the record as a text for users."""
        clock = f"its clock is {self.ahead_ms / 1000:g} s ahead" if self.ahead_ms else ""
        missing = f"{self.left_out} pods more than a record takes: they count as missing" if self.left_out else ""
        return "; ".join(filter(None, (self.trouble, clock, missing)))

    def with_clock_ahead(self, ahead_ms: int) -> "ClusterPods":
        return replace(self, observed_ms=self.observed_ms + self.ahead_ms - ahead_ms, ahead_ms=ahead_ms)


def is_lost(cluster: ClusterPods, now_ms: int, rules: HpaRules) -> bool:
    """Returns whether the cluster sent samples, and then no record for longer than pods_age_max_ms.

    A cluster that never sent samples does not become lost when it is silent.
    """
    return cluster.sampled and now_ms > cluster.observed_ms + rules.pods_age_max_ms


def cluster_pods(event: PodsObserved) -> ClusterPods:
    """Returns the pods of a record. Repeated values, such as names of containers, are shared."""
    kinds = [_read_requests(requests) for requests in event.requests]
    cluster, namespace = intern(event.cluster), intern(event.namespace)
    pods: dict[PodKey, CountedPod] = {}
    sampled, standing = False, 0
    for one in event.pods:
        known = 0 <= one.requests < len(kinds)
        containers, init_containers, pod_requests = kinds[one.requests] if known else NO_REQUESTS
        pods[PodKey(cluster, namespace, one.name)] = CountedPod(  # Positional, because keywords are slower.
            intern(one.phase),
            one.deleting,
            one.started_ms or None,
            intern(one.ready) if one.ready else None,
            one.ready_changed_ms or None,
            containers,
            init_containers,
            pod_requests,
            tuple([(intern(used.name), _interned_amounts(used.usage)) for used in one.usage]),
            one.sampled_ms,
            one.window_ms,
        )
        sampled = sampled or bool(one.usage)
        standing += not one.deleting and one.phase not in ENDED
    left_out = min(max(event.left_out, 0), LEFT_OUT_MAX)
    if left_out:
        alike = replace(next(reversed(pods.values()), CountedPod()), **LEFT_OUT)
        unseen = intern(left_out_cluster_name(cluster))
        pods |= {PodKey(unseen, namespace, str(number)): alike for number in range(left_out)}
    return ClusterPods(
        cluster=cluster,
        pods=pods,
        epoch=event.epoch,
        sequence=event.sequence,
        observed_ms=event.observed_ms,
        sampled=sampled,
        standing=standing + left_out,
        trouble=event.trouble,
        left_out=left_out,
    )


def left_out_cluster_name(cluster: str) -> str:
    """Returns the cluster name used as key for pods that did not fit into the cluster's record."""
    return f"{cluster}, left out"


Kind = tuple[tuple[PodContainer, ...], tuple[PodContainer, ...], Mapping[str, int] | None]
NO_REQUESTS: Final[Kind] = ((), (), None)


def _read_requests(requests: PodRequests) -> Kind:
    made = [(one.init, _interned_container(one.name, one.requests, one.restartable)) for one in requests.containers]
    return (
        tuple([container for init, container in made if not init]),
        tuple([container for init, container in made if init]),
        dict(requests.pod) if requests.pod else None,
    )


@lru_cache(maxsize=KINDS_KEPT)
def _interned_container(name: str, requests: Amounts, restartable: bool) -> PodContainer:
    return PodContainer(name, {intern(resource): milli for resource, milli in requests}, restartable)


def _interned_amounts(amounts: Amounts) -> Amounts:
    return tuple([(intern(resource), milli) for resource, milli in amounts])


def usage_of(pod: CountedPod, resource: str, container: str) -> Sample | None:
    """Returns how much of a resource a pod or one of its containers uses.

    Returns None if a container that counts has no sample.
    """
    total, found = 0, False
    for name, amounts in pod.usage:
        if container and name != container:
            continue
        for used, milli in amounts:
            if used == resource:
                total, found = total + milli, True
                break
        else:
            return None
    return Sample(total, pod.sampled_ms, pod.window_ms) if found else None


def compute_cluster_share(cluster: ClusterPods, rule: MetricRule, rules: HpaRules, now_ms: int) -> ClusterShare:
    """Returns the cluster's share in the metric at now_ms. It is valid until its until_ms."""
    samples: dict[PodKey, Sample] = {}
    used_milli, oldest_ms, since_ms = 0, NEVER, now_ms - rules.sample_age_max_ms
    for key, pod in cluster.pods.items():
        sample = usage_of(pod, rule.resource, rule.container) if pod.sampled_ms >= since_ms else None
        if sample is not None:
            samples[key] = sample
            used_milli += sample.value_milli
            oldest_ms = min(oldest_ms, sample.at_ms)
    lost = is_lost(cluster, now_ms, rules)
    readiness = Readiness(rules.settings.cpu_initialization_ms, rules.settings.initial_readiness_delay_ms)
    initialized_ms = readiness_due_ms(cluster.pods, readiness, now_ms) if rule.resource == CPU else None
    lost_ms = cluster.observed_ms + rules.pods_age_max_ms + 1 if cluster.sampled and not lost else NEVER
    return ClusterShare(
        counted=sum_over_pods(cluster.pods, {} if lost else samples, rule, readiness, now_ms),
        samples=len(samples),
        used_milli=used_milli,
        oldest_ms=oldest_ms,
        troubles=_trouble_texts(cluster, lost),
        initialized_ms=NEVER if initialized_ms is None else initialized_ms,
        until_ms=min(
            NEVER if initialized_ms is None else initialized_ms, oldest_ms + rules.sample_age_max_ms + 1, lost_ms
        ),
    )


def _trouble_texts(cluster: ClusterPods, lost: bool) -> tuple[str, ...]:
    told = (f"{cluster.cluster}: {cluster.troubles_text}",) if cluster.troubles_text else ()
    return (*told, f"{cluster.cluster}: silent") if lost else told
