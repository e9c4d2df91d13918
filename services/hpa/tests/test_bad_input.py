"""Bad input: the rows of the README, one after the other."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from hpa.core.requests.answers import explain_workload

from .world import (
    KAFKA,
    KEY,
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

BAD: list[Any] = [
    pytest.param(
        [load_observed("nobody asked for this", 900, ms_after_start(5))], [], id="a metric that no policy names"
    ),
    pytest.param([load_observed("queue", -5, ms_after_start(5))], [], id="negative"),
    pytest.param([load_observed("queue", 90, ms_after_start(5), trouble="no answer")], [], id="without a value"),
    pytest.param(
        [load_observed("queue", 90, ms_after_start(5)), load_observed("queue", 5, ms_after_start(4))],
        [9],
        id="older than what is known",
    ),
    pytest.param(
        [load_observed("queue", 90, ms_after_start(5)), load_observed("queue", 90, ms_after_start(5))], [9], id="twice"
    ),
    pytest.param(
        [load_observed("queue", 50, ms_after_start(5), "a"), load_observed("queue", 40, ms_after_start(6), "b")],
        [5, 9],
        id="two series",
    ),
    pytest.param(
        [
            load_observed("queue", 50, ms_after_start(5), "a"),
            load_observed("queue", 40, ms_after_start(6), "b"),
            load_observed("queue", 0, ms_after_start(400), "b"),
        ],
        [5, 9],
        id="a series that stops is not zero",
    ),
]


@pytest.mark.parametrize(("records", "expected"), BAD)
def test_bad_input_changes_nothing_that_it_should_not(records: list[Any], expected: list[int]) -> None:
    at_once = {"scaleUp": {"policies": [{"type": "Pods", "value": 99, "periodSeconds": 1}]}}
    made = world_under_policy(hpa_manifest([external_metric("queue", "10")], behavior=at_once), replicas=4)
    for record in records:
        made.publish_input(record)
    made.advance_to(ms_after_start(410))
    assert [replicas for _, replicas in decided_sizes(made)] == expected


def test_a_metric_of_an_unknown_workload_is_dropped_and_leaves_nothing() -> None:
    made = world_under_policy(hpa_manifest([external_metric("queue", "10")]), replicas=1)
    made._write_events(
        made.state.decide_on_record(
            made._append_record(replace(load_observed("queue", 90, ms_after_start(5)), name="nobody")),
            ms_after_start(5),
        )
    )
    made._write_events(
        made.state.decide_on_record(
            made._append_record(replace(backlog_observed([90], ms_after_start(6)), name="nobody")), ms_after_start(6)
        )
    )
    assert (decided_sizes(made), made.state.dropped, list(made.state.inputs)) == ([], {"unknown": 2}, [KEY])


ORDERS = backlog_observed([10] * 8, ms_after_start(35))


@pytest.mark.parametrize(
    ("partitions", "why"),
    [
        pytest.param((), "no partition of topic orders is told", id="none"),
        pytest.param(
            backlog_observed([0], ms_after_start(35), topic="others").partitions,
            "no partition of topic orders",
            id="of another",
        ),
        pytest.param(ORDERS.partitions * 2, "orders/0 is told twice", id="each twice"),
    ],
)
def test_a_backlog_that_cannot_be_so_is_unknown(partitions: Any, why: str) -> None:
    """A topic that exists has a partition: none of them is not an empty queue."""
    made = world_under_policy(scaled_object_manifest([KAFKA], cooldownPeriod=5, maxReplicaCount=50), replicas=0)
    made.publish_input(replace(ORDERS, at_ms=ms_after_start(5)))
    made.publish_input(replace(ORDERS, partitions=partitions))
    made.advance_to(ms_after_start(100))
    assert decided_sizes(made) == [(5_000, 8)]
    assert why in explain_workload(made.state, made.state.scaled[KEY]).metrics[0].trouble


def test_an_object_has_its_newest_value_whatever_its_series_is_called() -> None:
    described = {"kind": "Ingress", "name": "front"}
    target = {"type": "AverageValue", "averageValue": "10"}
    metric = {"type": "Object", "object": {"describedObject": described, "metric": {"name": "rq"}, "target": target}}
    made = world_under_policy(hpa_manifest([metric]), replicas=2)
    for second, series, value in ((5, "before", 30), (300, "now", 40), (310, "before", 50), (320, "now", 60)):
        made.publish_input(replace(load_observed("rq", value, ms_after_start(second), series), object="Ingress/front"))
        made.advance_to(ms_after_start(second + 1))
        assert made.current_replicas == value // 10


PROMETHEUS = {
    "type": "prometheus",
    "metadata": {"serverAddress": "http://p", "query": "q", "threshold": "10"},
}


@pytest.mark.parametrize("why", ["no answer within 5 s", "the value is NaN", "ClientConnectorError"])
def test_where_prometheus_cannot_say_the_size_stays_until_it_can_or_a_fallback_stands_in(why: str) -> None:
    for fallback, expected in ((None, 5), ({"failureThreshold": 3, "replicas": 7}, 7)):
        spec = {} if fallback is None else {"fallback": fallback}
        made = world_under_policy(
            scaled_object_manifest([PROMETHEUS], cooldownPeriod=1, pollingInterval=30, **spec), replicas=0
        )
        made.publish_input(load_observed("s0-prometheus", 50, ms_after_start(5)))
        for second in range(35, 700, 30):
            made.publish_input(load_observed("s0-prometheus", 0, ms_after_start(second), trouble=why))
        assert made.current_replicas == expected
        assert explain_workload(made.state, made.state.scaled[KEY]).metrics[0].trouble == why
        made.publish_input(load_observed("s0-prometheus", 80, ms_after_start(700)))
        assert made.current_replicas == 8


def test_a_value_from_the_future_is_dropped() -> None:
    made = world_under_policy(hpa_manifest([external_metric("queue", "10")]), replicas=1)
    made._write_events(
        made.state.decide_on_record(
            made._append_record(load_observed("queue", 90, ms_after_start(60))), ms_after_start(5)
        )
    )
    assert decided_sizes(made) == []
    assert made.state.dropped == {"future": 1}


def _hear_pods_with_clock_ahead(made: World, second: int, ahead: int, used: list[int | None]) -> None:
    """A record of a cluster whose clock is so many seconds ahead, heard at that second."""
    made.advance_to(ms_after_start(second))
    record = made._append_record(pods_observed("own-1", used, ms_after_start(second + ahead), sequence=second))
    made._write_events(made.state.decide_on_record(record, made.now_ms))


def _world_with_clock_ahead(ahead: int, killed: bool) -> World:
    """Two clusters, one of which falls silent after 400 s."""
    made = world_under_policy(hpa_manifest([cpu_utilization_metric(50)]), replicas=4)
    for second in range(10, 1_200, 15):
        if second < 400:
            _hear_pods_with_clock_ahead(made, second, ahead, [900 if second < 60 else 300] * 2)
        made.publish_input(
            pods_observed("own-2", [900 if second < 60 else 300] * 2, ms_after_start(second + 1), sequence=second)
        )
        if killed:
            made.restart()
    return made


def test_a_cluster_whose_clock_is_ahead_counts_as_of_when_it_is_heard() -> None:
    """In the turn and after a restart alike; and when it falls silent it is lost as soon as others are."""
    expected = decided_sizes(_world_with_clock_ahead(0, killed=False))
    assert len(expected) > 1
    for killed in (False, True):
        made = _world_with_clock_ahead(3_600, killed)
        assert decided_sizes(made) == expected
        assert made.state.dropped == {}
        told = {one.cluster: one for one in explain_workload(made.state, made.state.scaled[KEY]).pods}
        assert (told["own-1"].lost, told["own-1"].trouble) == (True, "its clock is 3600 s ahead")
        assert told["own-2"].trouble == ""


def test_a_clock_that_is_put_right_is_so_at_once() -> None:
    made = world_under_policy(hpa_manifest([cpu_utilization_metric(50)]), replicas=4)
    _hear_pods_with_clock_ahead(made, 10, 3_600, [500] * 2)
    made.restart()
    _hear_pods_with_clock_ahead(made, 25, 0, [500] * 2)
    made.restart()
    (told,) = explain_workload(made.state, made.state.scaled[KEY]).pods
    assert (told.trouble, told.age_ms) == ("", 0)


def test_pods_that_were_told_ahead_of_time_before_there_was_a_policy_count_as_of_its_declaration() -> None:
    made = World()
    made.publish_input(workload_declared(2))
    made.state.decide_on_record(
        made._append_record(pods_observed("own-1", [900] * 2, ms_after_start(3_600))), made.now_ms
    )
    made.restart()
    made.declare_policy(hpa_manifest([cpu_utilization_metric(50)]))
    first = explain_workload(made.state, made.state.scaled[KEY]).pods
    made.restart()
    assert explain_workload(made.state, made.state.scaled[KEY]).pods == first
    assert (first[0].trouble, first[0].age_ms) == ("its clock is 3600 s ahead", 0)


def test_a_series_that_stopped_long_ago_counts_no_more_where_others_go_on() -> None:
    made = world_under_policy(hpa_manifest([external_metric("queue", "10")]), replicas=1)
    made.publish_input(load_observed("queue", 30, ms_after_start(5), "a"))
    made.publish_input(load_observed("queue", 30, ms_after_start(6), "b"))
    for second in range(60, 1_500, 60):
        made.publish_input(load_observed("queue", 30, ms_after_start(second), "b"))
    assert [replicas for _, replicas in decided_sizes(made)] == [3, 4, 6, 3]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        pytest.param(lambda made: made.delete_workload(), "FailedGetScale", id="gone"),
        pytest.param(
            lambda made: made.publish_input(workload_declared(4, deleting=True)), "FailedGetScale", id="being deleted"
        ),
        pytest.param(
            lambda made: made.publish_input(workload_declared(4, kind="StatefulSet")),
            "FailedGetScale",
            id="of another kind",
        ),
    ],
)
def test_a_workload_that_cannot_be_scaled(change: Callable[[World], None], reason: str) -> None:
    made = world_under_policy(hpa_manifest([external_metric("queue", "10")]), replicas=1)
    made.publish_input(load_observed("queue", 40, ms_after_start(10)))
    change(made)
    made.publish_input(load_observed("queue", 90, ms_after_start(20)))
    assert [replicas for _, replicas in decided_sizes(made)] == [4]
    assert condition_of_policy(made, "AbleToScale") == ("False", reason)


def test_what_is_due_far_off_is_remembered_once() -> None:
    window = {"name": "late", "timeZone": "UTC", "from": "1971-01-01", "until": "1971-01-02", "floor": 9}
    made = world_under_policy(scale_policy_manifest(calendar=[window], minReplicas=2), replicas=2)
    for second in range(100):
        made.publish_input(backlog_observed([1], ms_after_start(10 + second)))
    assert len(made.state.dues) == 1
    made.advance_to(ms_after_start(400 * 86_400))
    assert [replicas for _, replicas in decided_sizes(made)] == [9, 2]
