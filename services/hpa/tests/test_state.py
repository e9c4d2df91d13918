"""Policies, inputs and instants to decisions: what is decided when, by whom it is bound, and what a restart changes."""

import json
from dataclasses import replace
from typing import Any

import pytest

from hpa.core.requests import declaring
from hpa.core.requests.answers import explain_workload
from hpa.core.rules import HpaRules
from hpa.core.state import HpaState
from spillway.addresses import SCALE_POLICIES, WORKLOADS, Tombstone, pods_address, workload_address
from spillway.api_scaling import DeclarePolicyRequest
from spillway.model import NO_GENERATION

from .world import (
    KAFKA,
    KEY,
    START_MS,
    World,
    backlog_observed,
    condition_of_policy,
    cpu_utilization_metric,
    decided_sizes,
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

# ── A HorizontalPodAutoscaler ───────────────────────────────────────────────────────────────────────────────────────


def test_cpu_above_target_in_two_clusters_scales_out_at_the_samples_instant() -> None:
    made = world_under_policy(hpa_manifest([cpu_utilization_metric(50)]), replicas=4)
    made.publish_input(pods_observed("own-1", [900, 900], ms_after_start(20)))
    made.publish_input(pods_observed("own-2", [900, 900], ms_after_start(21)))
    assert made.decided[-1].replicas == 8
    assert made.decided[-1].at_ms == ms_after_start(21)
    assert made.decided[-1].replicas_before == 4
    assert made.decided[-1].policy_kind == "HorizontalPodAutoscaler"


def test_a_lost_cluster_is_not_gone() -> None:
    """Its pods are missing: as busy as they may be while fewer would follow."""
    made = world_under_policy(hpa_manifest([cpu_utilization_metric(50)]), replicas=4)
    made.publish_input(pods_observed("own-1", [500, 500], ms_after_start(20)))
    made.publish_input(pods_observed("own-2", [500, 500], ms_after_start(20)))
    for second in range(30, 900, 15):
        made.publish_input(pods_observed("own-1", [300, 300], ms_after_start(second), sequence=second))
    assert [replicas for _, replicas in decided_sizes(made)] == []
    told = {one.cluster: one for one in explain_workload(made.state, made.state.scaled[KEY]).pods}
    assert told["own-2"].lost
    assert not told["own-1"].lost


def test_pods_that_came_and_went_before_a_take_over_are_gone() -> None:
    """Their tombstone has no time; before their last record it ended nothing, and they were missing for ever."""
    made = world_under_policy(hpa_manifest([cpu_utilization_metric(50)]), replicas=4)
    made.publish_input(pods_observed("own-1", [500, 500], ms_after_start(20)))
    made.publish_input(pods_observed("own-2", [500, 500], ms_after_start(21)), heard=False)
    made._append_record(Tombstone(pods_address(*KEY, "own-2")))
    made.restart()
    assert list(made.state.inputs[KEY].clusters.by_name) == ["own-1"]


def test_a_tombstone_in_the_millisecond_of_two_values_is_decided_on_after_both() -> None:
    """The second value is decided on a millisecond later than it bears; the time of a state never goes back."""
    shares = [{"supplyClass": one, "percent": 50} for one in ("idle", "cloud")]
    made = world_under_policy(scale_policy_manifest(minReplicas=0, maxReplicas=5, headroom=shares), replicas=2)
    made.publish_input(pods_observed("own-1", [500, 500], ms_after_start(20)))
    for supply_class in ("idle", "cloud"):
        made.publish_input(load_observed("headroom", 0, ms_after_start(30), series=supply_class, trouble="unknown"))
    before_ms = made.state.scaled[KEY].remembered.at_ms
    assert before_ms > ms_after_start(30)
    made.delete_pods_record("own-1")
    made.advance_to(ms_after_start(31))
    assert made.state_times_ms == sorted(made.state_times_ms)
    assert made.state_times_ms[-1] > before_ms


OBJECT = {
    "type": "Object",
    "object": {
        "describedObject": {"kind": "Ingress", "name": "front"},
        "metric": {"name": "requests"},
        "target": {"type": "Value", "value": "100"},
    },
}
AT_ONCE = {
    "scaleUp": {"policies": [{"type": "Pods", "value": 99, "periodSeconds": 1}]},
    "scaleDown": {"stabilizationWindowSeconds": 0},
}


@pytest.mark.parametrize(
    ("metric", "used", "requests", "expected"),
    [
        pytest.param(cpu_utilization_metric(50), 100, 0, 4, id="cpu: those that are not seen may be busy"),
        pytest.param(cpu_utilization_metric(50), 520, 0, 4, id="cpu: they may be idle"),
        pytest.param(cpu_utilization_metric(50), 900, 0, 4, id="cpu: scaled out as far as idle ones allow"),
        pytest.param(OBJECT, 100, 50, 2, id="of an object: they share the value"),
        pytest.param(OBJECT, 100, 300, 6, id="of an object: scaled out by those that are seen"),
    ],
)
def test_pods_that_a_record_has_no_room_for_are_missing_and_not_gone(
    metric: dict[str, Any], used: int, requests: int, expected: int
) -> None:
    made = world_under_policy(hpa_manifest([metric], behavior=AT_ONCE), replicas=4)
    made.publish_input(replace(pods_observed("own-1", [used] * 2, ms_after_start(20)), left_out=2))
    if requests:
        made.publish_input(replace(load_observed("requests", requests, ms_after_start(21)), object="Ingress/front"))
    assert made.current_replicas == expected
    (told,) = explain_workload(made.state, made.state.scaled[KEY]).pods
    assert (told.pods, told.ready, told.sampled) == (4, 2, 2)
    assert told.trouble == "2 pods more than a record takes: they count as missing"


def test_a_record_that_leaves_out_more_than_can_be_is_not_believed() -> None:
    made = world_under_policy(hpa_manifest([cpu_utilization_metric(50)]), replicas=4)
    made.publish_input(replace(pods_observed("own-1", [500] * 2, ms_after_start(20)), left_out=2**60))
    assert explain_workload(made.state, made.state.scaled[KEY]).pods[0].pods == 100_002


def test_scaling_in_waits_for_its_window_and_then_happens_by_itself() -> None:
    made = world_under_policy(hpa_manifest([external_metric("queue", "10")]), replicas=1)
    made.publish_input(load_observed("queue", 40, ms_after_start(10)))
    made.publish_input(load_observed("queue", 10, ms_after_start(20)))
    assert decided_sizes(made) == [(10_000, 4)]
    told = explain_workload(made.state, made.state.scaled[KEY])
    assert [(one.rule, one.before, one.after) for one in told.rules] == [("window", 1, 4)]
    for second in (100, 180, 260):
        made.publish_input(load_observed("queue", 10, ms_after_start(second)))
    made.advance_to(ms_after_start(330))
    assert decided_sizes(made) == [(10_000, 4), (320_000, 1)]
    assert explain_workload(made.state, made.state.scaled[KEY]).metrics[0].replicas == 1


def test_the_planner_that_has_not_followed_yet_is_not_asked_twice() -> None:
    made = world_under_policy(hpa_manifest([external_metric("queue", "10")]), replicas=1, follows=False)
    made.publish_input(load_observed("queue", 40, ms_after_start(10)))
    made.publish_input(workload_declared(1))
    made.publish_input(load_observed("queue", 40, ms_after_start(20)))
    assert decided_sizes(made) == [(10_000, 4)]


def test_a_size_that_a_person_changed_is_put_right() -> None:
    made = world_under_policy(hpa_manifest([external_metric("queue", "10")]), replicas=1)
    made.publish_input(load_observed("queue", 40, ms_after_start(10)))
    made.publish_input(workload_declared(2, scale_generation=made.decided[-1].generation))
    assert [replicas for _, replicas in decided_sizes(made)] == [4, 4]


# ── A ScaledObject ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_backlog_takes_none_to_many_in_one_step_and_back_to_none() -> None:
    made = world_under_policy(scaled_object_manifest([KAFKA], cooldownPeriod=60), replicas=0)
    made.publish_input(backlog_observed([40, 40, 40, 40, 40, 40, 40, 40], ms_after_start(5)))
    assert decided_sizes(made) == [(5_000, 8)]
    for second in (20, 40, 60):
        made.publish_input(backlog_observed([0] * 8, ms_after_start(second)))
    made.advance_to(ms_after_start(100))
    assert decided_sizes(made) == [(5_000, 8), (79_999 + 1, 0)]
    assert condition_of_policy(made, "Active") == ("False", "ScalerNotActive")


def test_rates_that_a_person_gave_hold_from_none_too() -> None:
    behavior = {"scaleUp": {"policies": [{"type": "Pods", "value": 2, "periodSeconds": 60}]}}
    advanced = {"horizontalPodAutoscalerConfig": {"behavior": behavior}}
    made = world_under_policy(scaled_object_manifest([KAFKA], advanced=advanced), replicas=0)
    made.publish_input(backlog_observed([100] * 8, ms_after_start(5)))
    assert decided_sizes(made) == [(5_000, 2)]
    made.advance_to(ms_after_start(70))
    assert decided_sizes(made) == [(5_000, 2), (65_000, 4)]


def test_a_lag_that_is_not_known_is_not_zero() -> None:
    made = world_under_policy(scaled_object_manifest([KAFKA], cooldownPeriod=30), replicas=0)
    made.publish_input(backlog_observed([10] * 5, ms_after_start(5)))
    made.publish_input(backlog_observed([], ms_after_start(10), trouble="broker gone"))
    made.advance_to(ms_after_start(3_000))
    assert decided_sizes(made) == [(5_000, 5)]
    told = explain_workload(made.state, made.state.scaled[KEY])
    assert told.metrics[0].trouble == "broker gone"
    assert told.metrics[0].value == ""
    assert condition_of_policy(made, "Ready") == ("False", "TriggerError")


def test_one_who_cannot_see_a_queue_takes_nothing_from_what_another_one_told() -> None:
    made = world_under_policy(scaled_object_manifest([KAFKA], cooldownPeriod=30), replicas=0)
    made.publish_input(backlog_observed([10] * 5, ms_after_start(5)))
    made.publish_input(replace(backlog_observed([], ms_after_start(10), trouble="no connection"), source="another"))
    assert explain_workload(made.state, made.state.scaled[KEY]).metrics[0].trouble == ""


FALLS_BACK = scaled_object_manifest([KAFKA], fallback={"failureThreshold": 3, "replicas": 7}, pollingInterval=30)


def test_after_so_many_failures_the_fallback_stands_in() -> None:
    """Reports closer together than polls are count as one."""
    made = world_under_policy(FALLS_BACK, replicas=2)
    made.publish_input(backlog_observed([20], ms_after_start(5)))
    for second in range(35, 300, 10):
        made.publish_input(backlog_observed([], ms_after_start(second), trouble="broker gone"))
    assert decided_sizes(made) == [(125_000, 4), (140_000, 7)]
    assert condition_of_policy(made, "Fallback") == ("True", "FallbackExists")
    told = explain_workload(made.state, made.state.scaled[KEY]).metrics[0]
    assert told.detail.startswith("fallback")


def _restart_after_absence(made: World, seconds: int) -> None:
    """Nobody asks for so long; then another process takes the turn."""
    made.now_ms += seconds * 1000
    made.restart()
    made.advance_to(made.now_ms)


def test_while_nobody_asked_nothing_failed() -> None:
    made = world_under_policy(FALLS_BACK, replicas=2)
    made.publish_input(backlog_observed([20], ms_after_start(5)))
    made.publish_input(backlog_observed([], ms_after_start(35), trouble="broker gone"))
    for hour in range(1, 3):
        _restart_after_absence(made, 3_600)
        made.publish_input(backlog_observed([], made.now_ms, trouble="broker gone"))
        told = explain_workload(made.state, made.state.scaled[KEY]).metrics[0]
        assert (told.trouble, told.detail) == ("broker gone", f"failures in a row: {hour + 1}")
    assert decided_sizes(made) == []
    made.publish_input(backlog_observed([], made.now_ms + 30_000, trouble="broker gone"))
    assert [replicas for _, replicas in decided_sizes(made)] == [4]


@pytest.mark.parametrize("threshold", [0, 3])
def test_a_value_that_grew_old_while_hpa_was_away_is_no_failure(threshold: int) -> None:
    """With a fallback to none KEDA scales to none at once, whatever its threshold: here not unseen."""
    fallback = {"failureThreshold": threshold, "replicas": 0}
    made = world_under_policy(scaled_object_manifest([KAFKA], fallback=fallback, cooldownPeriod=0), replicas=2)
    made.publish_input(backlog_observed([10, 10], ms_after_start(5)))
    _restart_after_absence(made, 3_600)
    assert decided_sizes(made) == []
    assert condition_of_policy(made, "Ready") == ("False", "TriggerError")
    assert condition_of_policy(made, "Fallback") == ("False", "NoFallbackFound")
    made.publish_input(backlog_observed([], made.now_ms, trouble="broker gone"))
    assert [replicas for _, replicas in decided_sizes(made)] == [0]


def test_what_nobody_reports_any_more_is_heard_to_fail_of_those_who_cannot_see_it() -> None:
    made = world_under_policy(FALLS_BACK, replicas=2)
    made.publish_input(replace(backlog_observed([20], ms_after_start(5)), source="another"))
    for second in range(30, 400, 30):
        made.publish_input(backlog_observed([], ms_after_start(second), trouble="no connection"))
    assert decided_sizes(made)[-1][1] == 7


def test_a_schedule_opens_and_closes_with_no_record() -> None:
    cron = {
        "type": "cron",
        "metadata": {"timezone": "UTC", "start": "0 14 * * *", "end": "0 15 * * *", "desiredReplicas": "3"},
    }
    made = world_under_policy(scaled_object_manifest([cron], cooldownPeriod=0), replicas=0)
    made.advance_to(ms_after_start(2 * 86_400))
    midnight = START_MS - START_MS % 86_400_000 - START_MS
    hours = [((when - midnight) / 3_600_000, replicas) for when, replicas in decided_sizes(made)]
    assert [(round(hour, 3), replicas) for hour, replicas in hours] == [(14, 3), (15, 0), (38, 3), (39, 0)]


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        pytest.param({"autoscaling.keda.sh/paused": "true"}, [], id="paused"),
        pytest.param({"autoscaling.keda.sh/paused-replicas": "3"}, [3], id="paused at a size"),
        pytest.param({"autoscaling.keda.sh/paused-scale-out": "true"}, [1], id="no scaling out"),
        pytest.param({"autoscaling.keda.sh/paused-scale-in": "true"}, [6, 8], id="no scaling in"),
    ],
)
def test_annotations_pause(annotations: dict[str, str], expected: list[int]) -> None:
    made = world_under_policy(scaled_object_manifest([KAFKA], annotations, minReplicaCount=1), replicas=2)
    made.publish_input(backlog_observed([40] * 8, ms_after_start(5)))
    made.publish_input(backlog_observed([1] * 8, ms_after_start(1_000)))
    made.advance_to(ms_after_start(1_100))
    assert [replicas for _, replicas in decided_sizes(made)] == expected


def test_a_formula_takes_the_place_of_its_triggers() -> None:
    named = [KAFKA | {"name": "one"}, {**KAFKA, "name": "two", "metadata": KAFKA["metadata"] | {"topic": "more"}}]
    modifiers = {"formula": "one + two", "target": "20"}
    made = world_under_policy(scaled_object_manifest(named, advanced={"scalingModifiers": modifiers}), replicas=1)
    made.publish_input(backlog_observed([30] * 2, ms_after_start(5)))
    made.publish_input(backlog_observed([30] * 2, ms_after_start(6), topic="more"))
    assert [replicas for _, replicas in decided_sizes(made)] == [2]


@pytest.mark.parametrize("fallback", [None, *({"failureThreshold": 1, "replicas": number} for number in (0, 9))])
def test_a_formula_over_an_empty_queue_is_unknown_and_not_zero(fallback: dict[str, int] | None) -> None:
    """No trigger failed, so no fallback stands in either."""
    named = [KAFKA | {"name": "a"}, {**KAFKA, "name": "b", "metadata": KAFKA["metadata"] | {"topic": "more"}}]
    modifiers = {"scalingModifiers": {"formula": "ceil(a / b)", "target": "3"}}
    spec = {} if fallback is None else {"fallback": fallback}
    made = world_under_policy(scaled_object_manifest(named, advanced=modifiers, cooldownPeriod=1, **spec), replicas=1)
    made.publish_input(backlog_observed([3], ms_after_start(5), topic="more"))
    made.publish_input(backlog_observed([10] * 3, ms_after_start(6)))
    for second in range(10, 400, 30):
        made.publish_input(backlog_observed([10] * 3, ms_after_start(second)))
        made.publish_input(backlog_observed([0], ms_after_start(second + 1), topic="more"))
    assert [replicas for _, replicas in decided_sizes(made)] == [4]
    told = explain_workload(made.state, made.state.scaled[KEY]).metrics[0]
    assert (told.value, told.trouble) == ("", "formula 'ceil(a / b)': its result is inf")
    assert condition_of_policy(made, "Ready") == ("False", "TriggerError")
    made.publish_input(backlog_observed([2], ms_after_start(401), topic="more"))
    assert [replicas for _, replicas in decided_sizes(made)] == [4, 5]


@pytest.mark.parametrize(
    ("target", "expected"), [("10", 6), ("999999", 6), ("1000000", 6), ("12345678", 6), ("2.5", 1), ("10.0", 1)]
)
def test_a_fallback_stands_in_for_a_formula_whose_target_is_written_as_a_whole_number(
    target: str, expected: int
) -> None:
    """As in KEDA; that it never does for another target is said as a warning."""
    modifiers = {"scalingModifiers": {"formula": "one * 1", "target": target}}
    fallback = {"failureThreshold": 1, "replicas": 6, "behavior": "static"}
    manifest = scaled_object_manifest(
        [KAFKA | {"name": "one"}], minReplicaCount=1, fallback=fallback, advanced=modifiers
    )
    made = world_under_policy(manifest, replicas=1)
    made.publish_input(backlog_observed([1], ms_after_start(5)))
    for second in range(40, 280, 40):
        made.publish_input(backlog_observed([], ms_after_start(second), trouble="gone"))
    assert made.current_replicas == expected
    warned = [one for one in made.state.scaled[KEY].policy.warnings if one.startswith("fallback: no effect")]
    assert bool(warned) == (expected == 1)


# ── A ScalePolicy ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_window_opens_and_closes_by_itself_and_bounds_what_metrics_ask_for() -> None:
    window = {"name": "day", "timeZone": "UTC", "from": "1970-01-12T14:00", "until": "1970-01-12T15:00", "floor": 6}
    made = world_under_policy(scale_policy_manifest(calendar=[window], minReplicas=2), replicas=2)
    made.advance_to(ms_after_start(7_200))
    assert decided_sizes(made) == [(14 * 3_600_000 - 13 * 3_600_000 - 46 * 60_000 - 40_000, 6), (4_400_000, 2)]
    assert made.decided[0].reason == "windows day are open"


def test_a_queue_is_drained_in_time_with_one_jump() -> None:
    drain = {"within": "60s", "recordsPerSecond": 10, "kafka": KAFKA["metadata"]}
    made = world_under_policy(scale_policy_manifest(drain=drain), replicas=0)
    made.publish_input(backlog_observed([600] * 4, ms_after_start(5)))
    assert [replicas for _, replicas in decided_sizes(made)] == [4]
    made.publish_input(backlog_observed([], ms_after_start(10), trouble="broker gone"))
    made.advance_to(ms_after_start(400))
    assert [replicas for _, replicas in decided_sizes(made)] == [4]


def test_metrics_and_a_calendar_in_one_policy() -> None:
    window = {"name": "sale", "timeZone": "UTC", "from": "1970-01-12", "until": "1970-01-14", "ceiling": 5}
    made = world_under_policy(
        scale_policy_manifest(metrics=[external_metric("queue", "10")], calendar=[window], minReplicas=1), replicas=1
    )
    made.publish_input(load_observed("queue", 300, ms_after_start(5)))
    made.advance_to(ms_after_start(60))
    assert [replicas for _, replicas in decided_sizes(made)] == [4, 5]


# ── Restarts ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _records_of_every_kind() -> list[Any]:
    """Every kind of input, with lateness and repetition."""
    records: list[Any] = []
    for step in range(40):
        second = 10 + 15 * step
        busy = step % 30 >= 20 or step < 8
        records.append(
            pods_observed("own-1", [900 if busy else 200] * 3, ms_after_start(second), sequence=2 * step + 1)
        )
        records.append(load_observed("queue", 80 if busy else 5, ms_after_start(second + 2)))
        if step % 3 == 0:
            records.append(load_observed("queue", 999, ms_after_start(second - 60)))
        if step % 5 == 0:
            records.append(pods_observed("own-2", [None, 300], ms_after_start(second + 3), sequence=2 * step + 2))
        records.append(
            backlog_observed([70 if busy else 0] * 5, ms_after_start(second + 4), trouble="" if step % 7 else "slow")
        )
    return records


QUICK = {"scaleDown": {"stabilizationWindowSeconds": 40}}
FALLBACK = {"failureThreshold": 2, "replicas": 3}
DRAIN = {"within": "30s", "recordsPerSecond": 3, "kafka": KAFKA["metadata"]}
TRACED = [
    pytest.param(
        hpa_manifest([cpu_utilization_metric(50), external_metric("queue", "10")], behavior=QUICK),
        id="HorizontalPodAutoscaler",
    ),
    pytest.param(scaled_object_manifest([KAFKA], cooldownPeriod=45, fallback=FALLBACK), id="ScaledObject"),
    pytest.param(
        scale_policy_manifest(drain=DRAIN, metrics=[external_metric("queue", "10")], behavior=QUICK), id="ScalePolicy"
    ),
]


def _decided_sizes(made: World) -> list[tuple[int, int, int, str]]:
    return [(one.at_ms, one.replicas_before, one.replicas, one.reason) for one in made.decided]


@pytest.mark.parametrize("manifest", TRACED)
def test_a_crash_at_any_record_changes_no_later_decision(manifest: dict[str, Any]) -> None:
    """Before the record was read, and after what followed from it was written; once at every record of the trace."""
    records = _records_of_every_kind()
    undisturbed = world_under_policy(manifest, replicas=1)
    for record in records:
        undisturbed.publish_input(record)
    expected = _decided_sizes(undisturbed)
    assert len(expected) > 3
    for boundary in range(0, len(records), 5):
        for heard in (False, True):
            made = world_under_policy(manifest, replicas=1)
            for index, record in enumerate(records):
                made.publish_input(record, heard=heard or index != boundary)
                if index == boundary:
                    made.restart()
            assert _decided_sizes(made) == expected, f"killed at record {boundary}, read: {heard}"


def test_killed_at_every_record_it_decides_the_same() -> None:
    records = _records_of_every_kind()
    manifest = hpa_manifest([cpu_utilization_metric(50), external_metric("queue", "10")], behavior=QUICK)
    undisturbed, killed = world_under_policy(manifest, replicas=1), world_under_policy(manifest, replicas=1)
    for record in records:
        undisturbed.publish_input(record)
        killed.publish_input(record)
        killed.restart()
    assert _decided_sizes(killed) == _decided_sizes(undisturbed)


def test_a_standby_knows_what_the_active_one_knows() -> None:
    made = world_under_policy(hpa_manifest([external_metric("queue", "10")]), replicas=1)
    made.publish_input(load_observed("queue", 40, ms_after_start(10)))
    before = explain_workload(made.state, made.state.scaled[KEY])
    made.restart()
    after = explain_workload(made.state, made.state.scaled[KEY])
    assert after.policy == before.policy
    assert after.metrics == before.metrics
    assert (after.decided_ms, after.due_ms, after.changed_ms) == (before.decided_ms, before.due_ms, before.changed_ms)


# ── The controller's instants ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("manifest", TRACED)
@pytest.mark.parametrize("killed", [False, True])
def test_controller_mode_decides_at_its_instants_only(manifest: dict[str, Any], killed: bool) -> None:
    """15 s apart from the declaration on, whatever comes between; also if it is killed at every record."""
    made = world_under_policy(manifest, replicas=1, rules=HpaRules(mode="controller"))
    instants = set()
    for record in _records_of_every_kind():
        made.publish_input(record)
        instants.add(made.state.scaled[KEY].remembered.at_ms)
        if killed:
            made.restart()
    undisturbed = world_under_policy(manifest, replicas=1, rules=HpaRules(mode="controller"))
    for record in _records_of_every_kind():
        undisturbed.publish_input(record)
    assert len(made.decided) > 3
    assert {(one - START_MS) % 15_000 for one in (*instants, *(one.at_ms for one in made.decided))} == {0}
    assert _decided_sizes(made) == _decided_sizes(undisturbed)


def test_in_controller_mode_a_policy_that_is_declared_anew_waits_for_the_next_instant() -> None:
    made = world_under_policy(
        hpa_manifest([external_metric("queue", "10")]), replicas=1, rules=HpaRules(mode="controller")
    )
    made.publish_input(load_observed("queue", 80, ms_after_start(10)))
    made.advance_to(ms_after_start(20))
    made.declare_policy(hpa_manifest([external_metric("queue", "5")]))
    assert explain_workload(made.state, made.state.scaled[KEY]).metrics[0].replicas == 16
    made.restart()
    made.advance_to(ms_after_start(50))
    assert decided_sizes(made) == [(15_000, 4), (30_000, 8), (45_000, 16)]
    assert explain_workload(made.state, made.state.scaled[KEY]).due_why == "the controller looks again"


# ── What is kept of workloads without a policy ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("active", [True, False], ids=["in its turn", "a standby"])
def test_of_workloads_that_are_gone_and_have_no_policy_nothing_is_kept(active: bool) -> None:
    made = World()
    for number in range(100):
        name = f"web-{number}"
        records = [
            made._append_record(replace(workload_declared(3), name=name)),
            made._append_record(replace(pods_observed("own-1", [500], ms_after_start(1)), name=name)),
            made._append_record(Tombstone(pods_address(KEY[0], name, "own-1"))),
            made._append_record(Tombstone(workload_address(WORKLOADS, KEY[0], name))),
        ]
        for record in records:
            if active:
                made.state.decide_on_record(record, made.now_ms)
    if not active:
        made.restart()
    assert made.state.inputs == {}


def test_a_policy_that_is_deleted_leaves_the_size_of_its_workload_and_no_value() -> None:
    made = world_under_policy(hpa_manifest([external_metric("queue", "10")]), replicas=1)
    made.publish_input(load_observed("queue", 40, ms_after_start(10)))
    made.state.forget_policy(KEY)
    kept = made.state.inputs[KEY]
    assert (kept.declared is not None, kept.loads, made.current_replicas) == (True, {}, 4)


def test_a_standby_hears_of_a_workload_whose_policy_is_deleted_before_anything_is_decided_on_it() -> None:
    made = world_under_policy(hpa_manifest([external_metric("queue", "10")]), replicas=1)
    standby = HpaState(made.rules, lambda _: 0)
    for heard in made.log:
        standby.follow_record(heard)
    standby.apply_early_records()
    for record in (workload_declared(7, generation=2), Tombstone(workload_address(SCALE_POLICIES, *KEY))):
        standby.follow_record(made._append_record(record))
    assert standby.current_replicas(KEY) == 7


def test_who_only_plans_leaves_nothing_behind() -> None:
    made = World()
    request = DeclarePolicyRequest(json.dumps(hpa_manifest([external_metric("queue", "10")])), plan_only=True)
    declaring.declare_policy(made.state, request, NO_GENERATION, made.now_ms, lambda _: ())
    assert made.state.inputs == {}


def test_a_scale_policy_leaves_zero_by_its_metrics_whoever_scaled_to_zero() -> None:
    made = world_under_policy(
        scale_policy_manifest(minReplicas=0, metrics=[external_metric("queue", "10")]), replicas=0
    )
    made.publish_input(load_observed("queue", 30, ms_after_start(5)))
    assert made.current_replicas == 3


def test_who_is_scaled_from_zero_by_a_person_is_scaled_by_its_policy_again() -> None:
    """As kubectl scale does for an autoscaler that rests because the target has no replicas."""
    made = world_under_policy(hpa_manifest([external_metric("queue", "10")]), replicas=0)
    made.publish_input(load_observed("queue", 30, ms_after_start(5)))
    assert (made.current_replicas, condition_of_policy(made, "ScalingActive")) == (0, ("False", "ScalingDisabled"))
    made.publish_input(workload_declared(1, generation=2))
    made.publish_input(load_observed("queue", 30, ms_after_start(20)))
    assert made.current_replicas == 3


def test_what_is_known_already_changes_nothing_and_is_not_written() -> None:
    """A repeat, as of a record that was sent twice: neither a decision nor a state follows."""
    made = world_under_policy(hpa_manifest([external_metric("queue", "10")]), replicas=1)
    made.publish_input(load_observed("queue", 40, ms_after_start(10)))
    before = len(made.log)
    said = made.state.decide_on_record(made._append_record(load_observed("queue", 40, ms_after_start(10))), made.now_ms)
    assert (said, made.state.take_unwritten_states(), len(made.log)) == ([], [], before + 1)
