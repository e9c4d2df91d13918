"""The sums over pods, as Kubernetes counts them; further cases are in tests/vectors."""

import pytest

from hpa.core.kubernetes.pods import CountedPod, PodContainer, PodKey, PodsSeen, Readiness, Sample
from hpa.core.kubernetes.totals import MetricRule, NoPods, NoUsableMetrics, totals_of

READINESS = Readiness(cpu_initialization_ms=20, initial_delay_ms=5)


def test_what_is_missing_is_assumed_by_the_larger_of_its_requests_and_the_target() -> None:
    pods = {PodKey("one", "shop", "a"): CountedPod(containers=(PodContainer("app", {"memory": 100}),))}
    stray = {PodKey("one", "shop", "gone"): Sample(5)}
    found = totals_of(PodsSeen(pods), stray, MetricRule("memory", "", 150), READINESS, 0)
    assert (found.missing, found.missing_requested_milli, found.missing_assumed_milli) == (1, 100, 150)
    assert (found.samples, found.used_milli, found.matched) == (1, 5, 0)


def test_without_a_pod_or_a_usable_sample_there_is_nothing_to_read() -> None:
    key = PodKey("one", "shop", "a")
    with pytest.raises(NoPods):
        totals_of(PodsSeen({}), {key: Sample(5)}, MetricRule(), READINESS, 0)
    with pytest.raises(NoUsableMetrics):
        totals_of(PodsSeen({key: CountedPod()}), {}, MetricRule(), READINESS, 0)
