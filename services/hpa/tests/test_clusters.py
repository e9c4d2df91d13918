"""What is kept of pods, samples and clusters as they change says what all pods say, worked out anew each time."""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as with_fields

from hpa.core.heard.cluster_pods import cluster_pods
from hpa.core.heard.clusters import WorkloadClusters
from hpa.core.kubernetes.policy import ControllerSettings
from hpa.core.kubernetes.totals import MetricRule
from hpa.core.rules import HpaRules
from hpa.core.scaled import ScaledWorkload
from hpa.core.sizing.sizing import decide_size
from hpa.core.state import HpaState
from spillway.events import Event
from spillway.events_scaling import ContainerRequests, ContainerUsage, ObservedPod, PodRequests, PodsObserved

from .whole_clusters import recomputed_clusters
from .world import (
    KEY,
    START_MS,
    World,
    cpu_utilization_metric,
    external_metric,
    hpa_manifest,
    load_observed,
    scale_policy_manifest,
    scaled_object_manifest,
    workload_declared,
)

RULES = HpaRules(
    settings=ControllerSettings(cpu_initialization_ms=20, initial_readiness_delay_ms=5, downscale_stabilization_ms=15),
    sample_age_max_ms=12,
    pods_age_max_ms=9,
    load_age_max_ms=15,
)
METRICS = [
    MetricRule("cpu", "", 60),
    MetricRule("cpu", "app", 150),
    MetricRule("cpu"),
    MetricRule("memory", "", 80),
    MetricRule("cpu", "", 60, pod_level_resources=False),
]
TIMES = st.integers(0, 60)
USAGE = st.builds(
    ContainerUsage,
    st.sampled_from(["app", "log"]),
    st.sampled_from([(("cpu", 30),), (("cpu", 500), ("memory", 8)), (("memory", 3),), ()]),
)
PODS = st.builds(
    ObservedPod,
    name=st.sampled_from(["a", "b", "c"]),
    phase=st.sampled_from(["Running", "Running", "Running", "Pending", "Failed", "Succeeded"]),
    deleting=st.sampled_from([False, False, True]),
    started_ms=TIMES,
    ready=st.sampled_from(["true", "true", "false", "unknown", ""]),
    ready_changed_ms=TIMES,
    requests=st.integers(0, 3),
    sampled_ms=TIMES,
    window_ms=st.integers(0, 9),
    usage=st.lists(USAGE, max_size=2).map(tuple),
)
REQUESTS = (
    PodRequests((ContainerRequests("app", (("cpu", 100), ("memory", 5))),)),
    PodRequests((ContainerRequests("app", (("cpu", 100),)), ContainerRequests("log", (("cpu", 20),), True, True))),
    PodRequests((ContainerRequests("app", ()),), (("cpu", 70),)),
)
CLUSTERS = st.sampled_from(["one", "two", "three"])
RECORDS = st.builds(
    PodsObserved,
    namespace=st.just(KEY[0]),
    name=st.just(KEY[1]),
    cluster=CLUSTERS,
    epoch=st.just(1),
    sequence=st.integers(1, 9),
    observed_ms=TIMES,
    trouble=st.sampled_from(["", "", "forbidden"]),
    requests=st.just(REQUESTS),
    pods=st.lists(PODS, max_size=3, unique_by=lambda pod: pod.name).map(tuple),
    left_out=st.sampled_from([0, 0, 0, 2]),
)
GONE = st.tuples(st.just("gone"), CLUSTERS)


@given(steps=st.lists(st.tuples(st.integers(-2, 9), RECORDS | GONE | st.none()), max_size=25))
def test_kept_totals_are_those_over_all_pods(steps: list[tuple[int, Any]]) -> None:
    """Also where an instant lies before the one that was asked for last, as for Explain after a decision."""
    clusters, now_ms = WorkloadClusters(), 30
    for passed_ms, record in steps:
        now_ms += passed_ms
        if isinstance(record, PodsObserved):
            clusters.replace_cluster(record.cluster, cluster_pods(record))
        elif record is not None:
            clusters.replace_cluster(record[1], None)
        anew = recomputed_clusters(clusters)
        for rule in METRICS:
            found, expected = clusters.total_share(rule, RULES, now_ms), anew.total_share(rule, RULES, now_ms)
            assert text_of_fields(found, until_ms=0) == text_of_fields(expected, until_ms=0)
            assert found.until_ms > now_ms
        assert clusters.standing == anew.standing
        losing_ms = clusters.next_lost_ms(now_ms, RULES)
        assert losing_ms == anew.next_lost_ms(now_ms, RULES)
        assert losing_ms is None or clusters.cluster_lost_at(losing_ms, RULES) == anew.cluster_lost_at(losing_ms, RULES)
        seen, whole_seen = clusters.pods_seen(now_ms, RULES), anew.pods_seen(now_ms, RULES)
        assert (dict(seen.pods), seen.lost) == (whole_seen.pods, whole_seen.lost)


def text_of_fields(value: Any, **fields: Any) -> str:
    """With the failures in it, which equal no others."""
    return repr(with_fields(value, **fields))


class Beside(HpaState):
    """Whatever it decides, it decides again from all pods, and that must be the same."""

    decisions = 0

    def _evaluate_workload(self, scaled: ScaledWorkload, at_ms: int) -> list[Event]:
        case = self.sizing_case(scaled, at_ms)
        expected = decide_size(
            with_fields(case, inputs=replace(case.inputs, clusters=recomputed_clusters(case.inputs.clusters)))
        )
        events = super()._evaluate_workload(scaled, at_ms)
        assert repr(scaled.last) == repr(expected)
        Beside.decisions += 1
        return events


POLICIES = [
    hpa_manifest([cpu_utilization_metric(50)]),
    hpa_manifest(
        [cpu_utilization_metric(50), external_metric("queue", "10")],
        behavior={"scaleDown": {"stabilizationWindowSeconds": 40}},
    ),
    scale_policy_manifest(metrics=[cpu_utilization_metric(50)]),
    scaled_object_manifest([{"type": "cpu", "metricType": "Utilization", "metadata": {"value": "50"}}]),
]
"""Each looks at pods."""
MOVES = st.tuples(st.integers(0, 5), RECORDS | st.integers(1, 90))


@given(policy=st.sampled_from(POLICIES), moves=st.lists(MOVES, max_size=15), restarts=st.sets(st.integers(0, 14)))
def test_every_decision_is_that_over_all_pods(
    policy: dict[str, Any], moves: list[tuple[int, Any]], restarts: set[int]
) -> None:
    made, decisions = World(rules=RULES, made_of=Beside), Beside.decisions
    made.publish_input(workload_declared(4))
    made.declare_policy(policy)
    at_ms = START_MS
    for number, (passed_ms, move) in enumerate(moves):
        if number in restarts:
            made.restart()
        at_ms += passed_ms
        if isinstance(move, PodsObserved):
            shift = {"observed_ms": at_ms, "sequence": number + 1}
            pods = tuple(
                replace(
                    pod,
                    started_ms=at_ms - pod.started_ms,
                    ready_changed_ms=at_ms - pod.ready_changed_ms,
                    sampled_ms=at_ms - pod.sampled_ms // 6,
                )
                for pod in move.pods
            )
            made.publish_input(replace(move, pods=pods, **shift))
        else:
            made.publish_input(load_observed("queue", move, at_ms))
    assert Beside.decisions > decisions
