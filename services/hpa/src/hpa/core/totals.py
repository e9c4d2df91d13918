"""The sums over pods that one metric is decided from: worked out from all pods, or kept as they change. Pure.

Source of the rules: kubernetes v1.36.1, pkg/controller/podautoscaler/replica_calculator.go. A sample of a pod that is
not known counts as a sample, as there, and matches no request.
"""

from dataclasses import dataclass

from hpa.core.go_numbers import quotient
from hpa.core.pods import (
    COUNTED,
    CPU,
    MISSING,
    UNREADY,
    ContainerNotFound,
    MissingRequest,
    Pod,
    PodKey,
    PodsSeen,
    Readiness,
    Sample,
    Samples,
    group_of,
    readiness_due_ms,
    request_milli,
)


class NoPods(Exception):
    """There is no pod at all."""


class NoUsableMetrics(Exception):
    """All samples belong to pods that are not ready, or are ignored."""


@dataclass(frozen=True, slots=True)
class MetricRule:
    """What of a metric decides how a pod counts. resource: "" for what is none.

    target_percent: of a utilization, which alone needs requests; None: an average.
    """

    resource: str = ""
    container: str = ""
    target_percent: int | None = None
    pod_level_resources: bool = True


@dataclass(slots=True)
class Totals:
    """ready, missing, unready: pods. samples, used_milli: those that count, and their sum; matched: with requests.

    assumed: what missing pods are taken to use where fewer replicas would follow.
    """

    ready: int = 0
    samples: int = 0
    used_milli: int = 0
    matched: int = 0
    matched_milli: int = 0
    requested_milli: int = 0
    missing: int = 0
    missing_requested_milli: int = 0
    missing_assumed_milli: int = 0
    unready: int = 0
    unready_requested_milli: int = 0

    def count(self, group: str, value_milli: int, request: int | None, rule: MetricRule, sign: int = 1) -> None:
        """One pod more, or with sign −1 one less, that counts as group. request None: it is not known, or not asked."""
        if group == COUNTED:
            self.ready += sign
            self.samples += sign
            self.used_milli += sign * value_milli
            if request is not None:
                self.matched += sign
                self.matched_milli += sign * value_milli
                self.requested_milli += sign * request
        elif group == MISSING:
            self.missing += sign
            if request is not None and rule.target_percent is not None:
                self.missing_requested_milli += sign * request
                self.missing_assumed_milli += sign * quotient(request * max(100, rule.target_percent), 100)
        elif group == UNREADY:
            self.unready += sign
            self.unready_requested_milli += sign * (request or 0)

    def stray(self, value_milli: int, sign: int = 1) -> None:
        """A sample more, or less, of a pod that is not known."""
        self.samples += sign
        self.used_milli += sign * value_milli


def totals_of(seen: PodsSeen, samples: Samples, rule: MetricRule, readiness: Readiness, now_ms: int) -> Totals:
    """Over all pods. Raises NoPods, NoUsableMetrics, MissingRequest, ContainerNotFound, in this order."""
    known, totals = seen.samples(samples), Totals()
    failure: Exception | None = None
    for key, pod in seen.pods.items():
        sample, request = known.get(key), None
        try:
            request = requested(key, pod, rule)
        except (MissingRequest, ContainerNotFound) as error:
            failure = failure or error
        group = group_of(pod, sample, rule.resource, readiness, now_ms)
        totals.count(group, sample.value_milli if sample else 0, request, rule)
    for key, sample in known.items():
        if key not in seen.pods:
            totals.stray(sample.value_milli)
    check_usable(totals, len(seen.pods))
    if failure is not None:
        raise failure
    return totals


def check_usable(totals: Totals, pods: int) -> None:
    """Raises NoPods, NoUsableMetrics."""
    if not pods:
        raise NoPods("no pods returned by selector while calculating replica count")
    if not totals.samples:
        raise NoUsableMetrics("did not receive metrics for targeted pods (pods might be unready)")


def requested(key: PodKey, pod: Pod, rule: MetricRule) -> int | None:
    """What a pod requests where the metric needs that. Raises MissingRequest, ContainerNotFound."""
    if rule.target_percent is None:
        return None
    return request_milli(key, pod, rule.resource, rule.container, pod_level_resources=rule.pod_level_resources)


@dataclass(frozen=True, slots=True)
class Share:
    """What one pod adds to the totals."""

    group: str
    value_milli: int
    request: int | None


class KeptTotals:
    """The totals of a workload's metric, kept as pods, samples and clusters change: one pod's share is worked out anew.

    Time alone changes a share only when a pod leaves its initialization; then all are worked out anew.
    """

    def __init__(self, rule: MetricRule, readiness: Readiness, now_ms: int) -> None:
        self._rule = rule
        self._readiness = readiness
        self._now_ms = now_ms
        self._due_ms: int | None = None
        self._pods: dict[PodKey, Pod] = {}
        self._samples: dict[PodKey, Sample] = {}
        self._lost: frozenset[str] = frozenset()
        self._shares: dict[PodKey, Share] = {}
        self._strays: dict[PodKey, int] = {}
        self._failures: dict[PodKey, Exception] = {}
        self._totals = Totals()

    @property
    def due_ms(self) -> int | None:
        """When time alone may change the totals that were read last."""
        return self._due_ms

    def put_pod(self, key: PodKey, pod: Pod | None) -> None:
        """The pod as it is now; None: it is gone."""
        if pod is None:
            self._pods.pop(key, None)
        else:
            self._pods[key] = pod
            if self._rule.resource == CPU:
                self._due_ms = self._now_ms  # Its own end of initialization is found with the next reading.
        self._count_anew(key)

    def put_sample(self, key: PodKey, sample: Sample | None) -> None:
        """The pod's newest sample; None: it has none any more."""
        if sample is None:
            self._samples.pop(key, None)
        else:
            self._samples[key] = sample
        self._count_anew(key)

    def lose(self, lost: frozenset[str]) -> None:
        """The clusters that are lost now: their samples count no more, their pods stay."""
        changed, self._lost = self._lost ^ lost, lost
        for key in {*self._pods, *self._samples}:
            if key.cluster in changed:
                self._count_anew(key)

    def read(self, now_ms: int) -> Totals:
        """The totals at now_ms, which does not go back. Raises as totals_of."""
        self._now_ms = now_ms
        if self._due_ms is not None and self._due_ms <= now_ms:
            for key in self._pods:
                self._count_anew(key)
            self._due_ms = readiness_due_ms(self._pods, self._readiness, now_ms)
        check_usable(self._totals, len(self._pods))
        if self._failures:
            raise next(self._failures[key] for key in self._pods if key in self._failures)
        return self._totals

    def _count_anew(self, key: PodKey) -> None:
        old = self._shares.pop(key, None)
        if old is not None:
            self._totals.count(old.group, old.value_milli, old.request, self._rule, -1)
        if key in self._strays:
            self._totals.stray(self._strays.pop(key), -1)
        self._failures.pop(key, None)
        pod, sample = self._pods.get(key), self._samples.get(key)
        if key.cluster in self._lost:
            sample = None
        if pod is not None:
            self._count(key, pod, sample)
        elif sample is not None:
            self._strays[key] = sample.value_milli
            self._totals.stray(sample.value_milli)

    def _count(self, key: PodKey, pod: Pod, sample: Sample | None) -> None:
        request = None
        try:
            request = requested(key, pod, self._rule)
        except (MissingRequest, ContainerNotFound) as error:
            self._failures[key] = error
        group = group_of(pod, sample, self._rule.resource, self._readiness, self._now_ms)
        share = Share(group, sample.value_milli if sample else 0, request)
        self._shares[key] = share
        self._totals.count(share.group, share.value_milli, share.request, self._rule)
