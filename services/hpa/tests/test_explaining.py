"""What people are told of a policy is what is so: values, conditions, rules."""

import pytest

from hpa.core.requests.answers import explain_workload, policy_reply

from .world import (
    KAFKA,
    KEY,
    World,
    backlog_observed,
    condition_of_policy,
    cpu_utilization_metric,
    external_metric,
    hpa_manifest,
    load_observed,
    ms_after_start,
    pods_observed,
    scale_policy_manifest,
    scaled_object_manifest,
    workload_declared,
    world_under_policy,
)


def explained_targets(made: World) -> str:
    return policy_reply(made.state, made.state.scaled[KEY]).targets


@pytest.mark.parametrize("lag", [0, 7])
def test_a_queue_that_is_known_at_no_replicas_is_not_unknown(lag: int) -> None:
    """Kubernetes' average over none is no number; then all of it is told."""
    paused = {"autoscaling.keda.sh/paused": "true"}
    made = world_under_policy(scaled_object_manifest([KAFKA], paused if lag else None), replicas=0)
    made.publish_input(backlog_observed([lag] + [0] * 7, ms_after_start(10)))
    assert explained_targets(made).endswith(f": {lag}/10 (avg)")
    assert [one.value for one in explain_workload(made.state, made.state.scaled[KEY]).metrics] == [str(lag)]


def test_partitions_that_a_trigger_does_not_mean_are_not_among_those_of_its_lag() -> None:
    some = {**KAFKA, "metadata": {**KAFKA["metadata"], "partitionLimitation": "0-1"}}
    made = world_under_policy(scaled_object_manifest([some]), replicas=0)
    made.publish_input(backlog_observed([5, 5, 90, 90], ms_after_start(10)))
    assert explain_workload(made.state, made.state.scaled[KEY]).metrics[0].detail == "true lag 10 in 2 partitions"


def test_a_queue_that_is_not_known_at_no_replicas_is_unknown() -> None:
    made = world_under_policy(scaled_object_manifest([KAFKA]), replicas=0)
    made.publish_input(backlog_observed([], ms_after_start(10), trouble="gone"))
    assert explained_targets(made).endswith(": <unknown>/10 (avg)")


@pytest.mark.parametrize("annotation", ["paused-replicas", "paused"])
@pytest.mark.parametrize("replicas", [3, 8])
def test_who_is_paused_says_so(annotation: str, replicas: int) -> None:
    made = world_under_policy(
        scaled_object_manifest([KAFKA], {f"autoscaling.keda.sh/{annotation}": "3"}), replicas=replicas
    )
    made.publish_input(backlog_observed([10] * 8, ms_after_start(10)))
    assert condition_of_policy(made, "Paused") == ("True", "ScaledObjectPaused")
    assert condition_of_policy(made, "Ready") == ("True", "ScaledObjectReady")


ALWAYS = {"name": "night", "timeZone": "UTC", "from": "1970-01-01", "until": "1971-01-01"}


@pytest.mark.parametrize(
    ("effect", "queue", "size", "rules"),
    [
        pytest.param({"ceiling": 3}, 90, 3, [("calendar", 9, 3)], id="a ceiling"),
        pytest.param({"exact": 4}, 90, 4, [("calendar", 9, 4)], id="exactly"),
        pytest.param({"blackout": True}, 90, 5, [("calendar", 9, 5)], id="a blackout"),
        pytest.param({"floor": 12}, 90, 12, [("calendar", 9, 12)], id="a floor"),
        pytest.param({"floor": 7}, 90, 9, [], id="a floor below what is asked for"),
        pytest.param({"ceiling": 30}, 900, 10, [("rate", 90, 10)], id="a rate below a ceiling"),
    ],
)
def test_the_window_that_binds_what_metrics_ask_for_is_named(
    effect: dict[str, object], queue: int, size: int, rules: list[tuple[str, int, int]]
) -> None:
    made = world_under_policy(
        scale_policy_manifest(calendar=[{**ALWAYS, **effect}], metrics=[external_metric("queue", "10")]), replicas=5
    )
    made.publish_input(load_observed("queue", queue, ms_after_start(10)))
    made.advance_to(ms_after_start(12))
    found = explain_workload(made.state, made.state.scaled[KEY])
    assert (made.current_replicas, found.asked, found.asked_by) == (size, queue // 10, "external metric queue")
    assert [(one.rule, one.before, one.after) for one in found.rules] == rules
    assert all("night" in one.why for one in found.rules if one.rule == "calendar")


def test_a_ceiling_takes_replicas_away_before_anybody_asks_for_any() -> None:
    made = world_under_policy(
        scale_policy_manifest(calendar=[{**ALWAYS, "ceiling": 3}], metrics=[external_metric("queue", "10")]), replicas=5
    )
    found = explain_workload(made.state, made.state.scaled[KEY])
    assert (made.current_replicas, found.asked, found.reason) == (3, -1, "windows night are open")
    assert [(one.rule, one.before, one.after) for one in found.rules] == [("calendar", 5, 3)]


def test_a_queue_of_which_nothing_is_known_asks_for_nothing() -> None:
    kafka = {"bootstrapServers": "kafka:9092", "consumerGroup": "g", "topic": "orders"}
    made = world_under_policy(
        scale_policy_manifest(drain={"within": "60s", "recordsPerSecond": 5, "kafka": kafka}), replicas=5
    )
    found = explain_workload(made.state, made.state.scaled[KEY])
    assert (made.current_replicas, found.asked, found.asked_by, found.rules) == (5, -1, "", ())


@pytest.mark.parametrize(
    "manifest", [scale_policy_manifest(calendar=[{**ALWAYS, "floor": 2}]), scaled_object_manifest([KAFKA])]
)
def test_that_there_was_no_workload_is_said_no_more_once_there_is(manifest: dict[str, object]) -> None:
    made = World()
    made.declare_policy(manifest)
    assert condition_of_policy(made, "AbleToScale") == ("False", "FailedGetScale")
    made.advance_to(ms_after_start(5))
    made.publish_input(workload_declared(0))
    made.publish_input(backlog_observed([10] * 8, ms_after_start(10)))
    assert made.current_replicas > 0
    assert condition_of_policy(made, "AbleToScale")[0] == "True"


def test_what_a_scaled_object_says_of_its_autoscaler_is_as_of_now_and_the_same_after_a_restart() -> None:
    made = world_under_policy(scaled_object_manifest([KAFKA]), replicas=3)
    assert condition_of_policy(made, "HPAActive") == ("False", "FailedGetExternalMetric")
    made.publish_input(backlog_observed([10] * 8, ms_after_start(10)))
    assert condition_of_policy(made, "HPAActive") == ("True", "HPAActive")
    before = explain_workload(made.state, made.state.scaled[KEY])
    made.restart()
    assert explain_workload(made.state, made.state.scaled[KEY]).conditions == before.conditions


def test_a_fallback_is_a_rule_between_two_sizes() -> None:
    made = world_under_policy(
        scaled_object_manifest([KAFKA], minReplicaCount=1, fallback={"failureThreshold": 1, "replicas": 6}), replicas=2
    )
    made.publish_input(backlog_observed([5], ms_after_start(5)))
    for second in (40, 80, 120):
        made.publish_input(backlog_observed([], ms_after_start(second), trouble="gone"))
        made.advance_to(ms_after_start(second + 1))
    rules = explain_workload(made.state, made.state.scaled[KEY]).rules
    assert made.current_replicas == 6
    assert [(one.before, one.after) for one in rules if one.rule == "fallback"] == [(6, 6)]
    assert all(one.before >= 0 for one in rules)


def test_at_none_the_autoscaler_of_a_scaled_object_rests_and_says_so() -> None:
    """As Kubernetes' controller does of the HorizontalPodAutoscaler that KEDA makes."""
    made = world_under_policy(scaled_object_manifest([KAFKA], cooldownPeriod=10), replicas=0)
    made.publish_input(backlog_observed([10] * 8, ms_after_start(10)))
    assert (made.current_replicas, condition_of_policy(made, "ScalingActive")) == (8, ("True", "ValidMetricFound"))
    made.publish_input(backlog_observed([0] * 8, ms_after_start(20)))
    made.advance_to(ms_after_start(60))
    assert (made.current_replicas, condition_of_policy(made, "ScalingActive")) == (0, ("False", "ScalingDisabled"))
    made.publish_input(backlog_observed([10] * 8, ms_after_start(70)))
    assert (made.current_replicas, condition_of_policy(made, "ScalingActive")) == (8, ("True", "ValidMetricFound"))


def test_a_size_that_a_window_keeps_at_the_maximum_is_told_by_the_window_and_then_the_maximum() -> None:
    """Of 400 cut to 20 the window knows 400; nobody is told that metrics are below target beside too many replicas."""
    made = world_under_policy(hpa_manifest([cpu_utilization_metric(50)]), replicas=400)
    made.publish_input(pods_observed("c", [10] * 20, ms_after_start(20), 2))
    made.advance_to(ms_after_start(30))
    found = explain_workload(made.state, made.state.scaled[KEY])
    assert made.current_replicas == 20
    assert [(one.rule, one.before, one.after, one.why) for one in found.rules] == [
        ("window", found.asked, 400, "ScaleDownStabilized"),
        ("bounds", 400, 20, "TooManyReplicas"),
    ]
    assert found.reason == ""


def test_when_time_alone_changes_a_size_it_is_said_what_is_too_old_then() -> None:
    made = world_under_policy(scale_policy_manifest(metrics=[external_metric("queue", "10")]), replicas=5)
    made.publish_input(load_observed("queue", 50, ms_after_start(10)))
    found = explain_workload(made.state, made.state.scaled[KEY])
    assert found.due_why == "the last measurement of an external metric is too old by then to count"
