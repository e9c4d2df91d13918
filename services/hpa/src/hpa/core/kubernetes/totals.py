"""Computes the sums over pods that one metric needs. Pure.

The share of some pods can be replaced without summing over all other pods again.
Source of the rules: kubernetes v1.36.1, pkg/controller/podautoscaler/replica_calculator.go. As there, a sample of an
unknown pod counts as a sample but has no request.
"""

from typing import Final, NamedTuple

from msgspec import Struct

from hpa.core.kubernetes.go_numbers import truncated_quotient
from hpa.core.kubernetes.pods import (
    COUNTED,
    MISSING,
    UNREADY,
    ContainerNotFound,
    MissingRequest,
    Pods,
    PodsSeen,
    Readiness,
    Samples,
    pod_group_of,
    request_milli,
)


class NoPods(Exception):
    """Raised when there is no pod at all."""


class NoUsableMetrics(Exception):
    """Raised when all samples belong to pods that are ignored or not ready."""


class MetricRule(NamedTuple):
    """The parts of a metric that decide how a pod counts.

    resource: the resource; "" for a metric that is not of a resource.
    target_percent: the target of a utilization; None: an average, which needs no requests.
    """

    resource: str = ""
    container: str = ""
    target_percent: int | None = None
    pod_level_resources: bool = True


class Totals(Struct, frozen=True, gc=False):
    """The sums over pods.

    ready, missing, unready: the numbers of pods in these groups.
    samples, used_milli: the number of samples that count, and their sum.
    matched, matched_milli: the same for the samples of pods with requests.
    missing_assumed_milli: the usage that missing pods are assumed to have before a scale-in.
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

    def with_share_replaced(self, new: "Totals", old: "Totals") -> "Totals":
        """Returns the sums after replacing the share of some pods: old is subtracted, new is added."""
        return Totals(
            self.ready + new.ready - old.ready,
            self.samples + new.samples - old.samples,
            self.used_milli + new.used_milli - old.used_milli,
            self.matched + new.matched - old.matched,
            self.matched_milli + new.matched_milli - old.matched_milli,
            self.requested_milli + new.requested_milli - old.requested_milli,
            self.missing + new.missing - old.missing,
            self.missing_requested_milli + new.missing_requested_milli - old.missing_requested_milli,
            self.missing_assumed_milli + new.missing_assumed_milli - old.missing_assumed_milli,
            self.unready + new.unready - old.unready,
            self.unready_requested_milli + new.unready_requested_milli - old.unready_requested_milli,
        )


NO_TOTALS: Final = Totals()


class PodTotals(Struct, frozen=True, gc=False):
    """The sums over a number of pods. failure: the error of the first pod whose request is needed but unknown."""

    totals: Totals
    pods: int
    failure: Exception | None = None

    def usable_totals(self) -> Totals:
        """Returns the sums. Raises NoPods, NoUsableMetrics, MissingRequest or ContainerNotFound, in this order."""
        if not self.pods:
            raise NoPods("no pods returned by selector while calculating replica count")
        if not self.totals.samples:
            raise NoUsableMetrics("did not receive metrics for targeted pods (pods might be unready)")
        if self.failure is not None:
            raise self.failure
        return self.totals


def sum_over_pods(pods: Pods, samples: Samples, rule: MetricRule, readiness: Readiness, now_ms: int) -> PodTotals:
    """Returns the sums over these pods. Samples of other pods are not counted."""
    ready = used = matched = matched_used = requested = 0
    missing = missing_requested = missing_assumed = unready = unready_requested = 0
    failure: Exception | None = None
    for key, pod in pods.items():
        sample, request = samples.get(key), 0
        asked = rule.target_percent is not None
        if asked:
            try:
                request = request_milli(
                    key, pod, rule.resource, rule.container, pod_level_resources=rule.pod_level_resources
                )
            except (MissingRequest, ContainerNotFound) as error:
                failure, asked = failure or error, False
        group = pod_group_of(pod, sample, rule.resource, readiness, now_ms)
        if group == COUNTED and sample is not None:
            ready, used = ready + 1, used + sample.value_milli
            if asked:
                matched, matched_used = matched + 1, matched_used + sample.value_milli
                requested += request
        elif group == MISSING:
            missing += 1
            if asked and rule.target_percent is not None:
                missing_requested += request
                # Before a scale-in, a missing pod counts as busy: it uses its request, or the target if that is higher.
                missing_assumed += truncated_quotient(request * max(100, rule.target_percent), 100)
        elif group == UNREADY:
            unready, unready_requested = unready + 1, unready_requested + request
    totals = Totals(
        ready=ready,
        samples=ready,
        used_milli=used,
        matched=matched,
        matched_milli=matched_used,
        requested_milli=requested,
        missing=missing,
        missing_requested_milli=missing_requested,
        missing_assumed_milli=missing_assumed,
        unready=unready,
        unready_requested_milli=unready_requested,
    )
    return PodTotals(totals, len(pods), failure)


def totals_of(seen: PodsSeen, samples: Samples, rule: MetricRule, readiness: Readiness, now_ms: int) -> Totals:
    """Returns the sums over all pods, and over samples of unknown pods. Raises as PodTotals.usable_totals does."""
    known = seen.reachable_samples(samples)
    found = sum_over_pods(seen.pods, known, rule, readiness, now_ms)
    strays = [sample.value_milli for key, sample in known.items() if key not in seen.pods]
    totals = found.totals.with_share_replaced(Totals(samples=len(strays), used_milli=sum(strays)), NO_TOTALS)
    return PodTotals(totals, found.pods, found.failure).usable_totals()
