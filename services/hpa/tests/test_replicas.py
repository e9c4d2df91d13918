"""Pods of several clusters count as one workload's; a cluster that is lost is missing, never gone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpa.core.kubernetes.pods import CountedPod, PodContainer, PodKey, PodsSeen, Sample
from hpa.core.kubernetes.policy import AVERAGE_VALUE, PODS, RESOURCE, UTILIZATION, Metric, TargetValue
from hpa.core.kubernetes.proposals import PodReading, propose_replicas
from hpa.core.kubernetes.replicas import Proposal, ReplicaContext, propose_by_external_average, propose_by_object_value
from hpa.core.kubernetes.totals import NoPods, NoUsableMetrics

RUNNING = CountedPod(
    ready="true", ready_changed_ms=-3_600_000, started_ms=-3_600_000, containers=(PodContainer("c", {"cpu": 100}),)
)


def pods_seen_in_clusters(counts: dict[str, int], lost: frozenset[str] = frozenset()) -> PodsSeen:
    """That many running pods in each cluster, with the same names in each."""
    pods = {PodKey(cluster, "shop", f"web-{n}"): RUNNING for cluster, count in counts.items() for n in range(count)}
    return PodsSeen(pods, lost)


def samples_by_pod(seen: PodsSeen, by_cluster: dict[str, int]) -> dict[PodKey, Sample]:
    return {key: Sample(by_cluster[key.cluster]) for key in seen.pods if key.cluster in by_cluster}


def propose_by_utilization(scene: ReplicaContext, samples: dict[PodKey, Sample], percent: int) -> Proposal:
    return propose_replicas(Metric(RESOURCE, "cpu", TargetValue(UTILIZATION, percent)), PodReading(samples), scene)


def propose_by_average(scene: ReplicaContext, samples: dict[PodKey, Sample], milli: int) -> Proposal:
    return propose_replicas(Metric(PODS, "load", TargetValue(AVERAGE_VALUE, milli)), PodReading(samples), scene)


def replica_context(seen: PodsSeen, current: int | None = None) -> ReplicaContext:
    count = len(seen.pods) if current is None else current
    return ReplicaContext(count, count, seen)


def test_pods_of_one_name_in_two_clusters_are_two_pods() -> None:
    seen = pods_seen_in_clusters({"one": 2, "two": 2})
    found = propose_by_utilization(replica_context(seen), samples_by_pod(seen, {"one": 100, "two": 50}), 50)
    assert (found.replicas, found.percent) == (6, 75)


@pytest.mark.parametrize(
    ("use", "target", "expected"),
    [
        pytest.param(90, 45, 4, id="up: the lost are assumed idle, so the others' load is none too much for all"),
        pytest.param(90, 30, 6, id="up: as far as the known load alone asks for"),
        pytest.param(10, 25, 4, id="down: the lost are assumed busy, so nothing goes"),
        pytest.param(25, 25, 4, id="on target"),
    ],
)
def test_a_lost_cluster_is_missing(use: int, target: int, expected: int) -> None:
    seen = pods_seen_in_clusters({"one": 2, "two": 2}, frozenset({"two"}))
    late = samples_by_pod(seen, {"one": use, "two": 1})
    assert propose_by_utilization(replica_context(seen), late, target).replicas == expected


def test_samples_of_a_lost_cluster_alone_are_no_metric() -> None:
    seen = pods_seen_in_clusters({"one": 2}, frozenset({"one"}))
    with pytest.raises(NoUsableMetrics):
        propose_by_average(replica_context(seen), samples_by_pod(seen, {"one": 5}), 10)


def test_without_pods_there_is_nothing_to_multiply() -> None:
    with pytest.raises(NoPods):
        propose_by_average(replica_context(pods_seen_in_clusters({}), 3), {}, 10)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param(30, 6, id="up: by the two that can be seen"),
        pytest.param(11, 4, id="a little up, by fewer than there are: as it is"),
        pytest.param(5, 2, id="down: by all four, as they were last seen"),
    ],
)
def test_a_value_for_all_pods_counts_lost_ones_where_that_is_careful(value: int, expected: int) -> None:
    seen = pods_seen_in_clusters({"one": 2, "two": 2}, frozenset({"two"}))
    assert propose_by_object_value(ReplicaContext(4, 4, seen), value, 10).replicas == expected


@given(
    uses=st.lists(st.integers(0, 300), min_size=2, max_size=12),
    lost=st.integers(1, 11),
    target=st.integers(1, 150),
)
def test_losing_a_cluster_never_turns_a_decision_round(uses: list[int], lost: int, target: int) -> None:
    """With some pods lost: no more than all idle would give, no fewer than all busy would."""
    lost = min(lost, len(uses) - 1)
    pods = {PodKey("two" if n < lost else "one", "shop", f"web-{n}"): RUNNING for n in range(len(uses))}
    samples = {key: Sample(use) for key, use in zip(pods, uses, strict=True)}
    known = replica_context(PodsSeen(pods, frozenset({"two"})))
    found = propose_by_utilization(known, samples, target).replicas

    def replicas_with_lost_cluster_at(value: int) -> int:
        told = {key: Sample(value) if key.cluster == "two" else sample for key, sample in samples.items()}
        return propose_by_utilization(replica_context(PodsSeen(pods)), told, target).replicas

    assert (
        min(replicas_with_lost_cluster_at(0), known.current)
        <= found
        <= max(replicas_with_lost_cluster_at(max(100, target)), known.current)
    )
    if found > known.current:
        assert found <= replicas_with_lost_cluster_at(0)
    if found < known.current:
        assert found >= replicas_with_lost_cluster_at(max(100, target))


@given(st.integers(1, 200), st.integers(10, 1000), st.floats(0.905, 1.095), st.floats(0.905, 1.095))
def test_a_load_that_is_measured_a_little_otherwise_moves_nothing(
    replicas: int, target: int, first: float, then: float
) -> None:
    """Within the tolerance of its target a load asks for the size that is there, however it is measured."""
    of_all = 1000 * target * replicas
    for part in (first, then):
        assert (
            propose_by_external_average(
                ReplicaContext(replicas, replicas, pods_seen_in_clusters({})), [round(of_all * part)], 1000 * target
            ).replicas
            == replicas
        )
        seen = pods_seen_in_clusters({"one": replicas})
        used = samples_by_pod(seen, {"one": round(1000 * target * part)})
        assert propose_by_average(replica_context(seen), used, 1000 * target).replicas == replicas


@pytest.mark.parametrize(("percent", "expected"), [(89, 9), (91, 10), (109, 10), (111, 12)])
def test_what_is_beyond_the_tolerance_moves_it(percent: int, expected: int) -> None:
    seen = pods_seen_in_clusters({"one": 10})
    assert (
        propose_by_average(replica_context(seen), samples_by_pod(seen, {"one": 10 * percent}), 1000).replicas
        == expected
    )
