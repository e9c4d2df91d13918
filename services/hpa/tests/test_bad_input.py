"""Bad input: the rows of the README, one after the other."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from hpa.core.requests.answers import explain

from .world import (
    KAFKA,
    KEY,
    World,
    at,
    backlog,
    begun,
    condition,
    cpu_at,
    declared,
    external,
    hpa,
    load,
    own,
    pods,
    scaled_object,
    sizes,
)

BAD: list[Any] = [
    pytest.param([load("nobody asked for this", 900, at(5))], [], id="a metric that no policy names"),
    pytest.param([load("queue", -5, at(5))], [], id="negative"),
    pytest.param([load("queue", 90, at(5), trouble="no answer")], [], id="without a value"),
    pytest.param([load("queue", 90, at(5)), load("queue", 5, at(4))], [9], id="older than what is known"),
    pytest.param([load("queue", 90, at(5)), load("queue", 90, at(5))], [9], id="twice"),
    pytest.param([load("queue", 50, at(5), "a"), load("queue", 40, at(6), "b")], [5, 9], id="two series"),
    pytest.param(
        [load("queue", 50, at(5), "a"), load("queue", 40, at(6), "b"), load("queue", 0, at(400), "b")],
        [5, 9],
        id="a series that stops is not zero",
    ),
]


@pytest.mark.parametrize(("records", "expected"), BAD)
def test_bad_input_changes_nothing_that_it_should_not(records: list[Any], expected: list[int]) -> None:
    at_once = {"scaleUp": {"policies": [{"type": "Pods", "value": 99, "periodSeconds": 1}]}}
    made = begun(hpa([external("queue", "10")], behavior=at_once), replicas=4)
    for record in records:
        made.say(record)
    made.until(at(410))
    assert [replicas for _, replicas in sizes(made)] == expected


def test_a_metric_of_an_unknown_workload_is_dropped_and_leaves_nothing() -> None:
    made = begun(hpa([external("queue", "10")]), replicas=1)
    made._written(made.state.decide_on_record(made._append(replace(load("queue", 90, at(5)), name="nobody")), at(5)))
    made._written(made.state.decide_on_record(made._append(replace(backlog([90], at(6)), name="nobody")), at(6)))
    assert (sizes(made), made.state.dropped, list(made.state.inputs)) == ([], {"unknown": 2}, [KEY])


ORDERS = backlog([10] * 8, at(35))


@pytest.mark.parametrize(
    ("partitions", "why"),
    [
        pytest.param((), "no partition of topic orders is told", id="none"),
        pytest.param(backlog([0], at(35), topic="others").partitions, "no partition of topic orders", id="of another"),
        pytest.param(ORDERS.partitions * 2, "orders/0 is told twice", id="each twice"),
    ],
)
def test_a_backlog_that_cannot_be_so_is_unknown(partitions: Any, why: str) -> None:
    """A topic that exists has a partition: none of them is not an empty queue."""
    made = begun(scaled_object([KAFKA], cooldownPeriod=5, maxReplicaCount=50), replicas=0)
    made.say(replace(ORDERS, at_ms=at(5)))
    made.say(replace(ORDERS, partitions=partitions))
    made.until(at(100))
    assert sizes(made) == [(5_000, 8)]
    assert why in explain(made.state, made.state.scaled[KEY]).metrics[0].trouble


def test_an_object_has_its_newest_value_whatever_its_series_is_called() -> None:
    described = {"kind": "Ingress", "name": "front"}
    target = {"type": "AverageValue", "averageValue": "10"}
    metric = {"type": "Object", "object": {"describedObject": described, "metric": {"name": "rq"}, "target": target}}
    made = begun(hpa([metric]), replicas=2)
    for second, series, value in ((5, "before", 30), (300, "now", 40), (310, "before", 50), (320, "now", 60)):
        made.say(replace(load("rq", value, at(second), series), object="Ingress/front"))
        made.until(at(second + 1))
        assert made.replicas == value // 10


PROMETHEUS = {
    "type": "prometheus",
    "metadata": {"serverAddress": "http://p", "query": "q", "threshold": "10"},
}


@pytest.mark.parametrize("why", ["no answer within 5 s", "the value is NaN", "ClientConnectorError"])
def test_where_prometheus_cannot_say_the_size_stays_until_it_can_or_a_fallback_stands_in(why: str) -> None:
    for fallback, expected in ((None, 5), ({"failureThreshold": 3, "replicas": 7}, 7)):
        spec = {} if fallback is None else {"fallback": fallback}
        made = begun(scaled_object([PROMETHEUS], cooldownPeriod=1, pollingInterval=30, **spec), replicas=0)
        made.say(load("s0-prometheus", 50, at(5)))
        for second in range(35, 700, 30):
            made.say(load("s0-prometheus", 0, at(second), trouble=why))
        assert made.replicas == expected
        assert explain(made.state, made.state.scaled[KEY]).metrics[0].trouble == why
        made.say(load("s0-prometheus", 80, at(700)))
        assert made.replicas == 8


def test_a_value_from_the_future_is_dropped() -> None:
    made = begun(hpa([external("queue", "10")]), replicas=1)
    made._written(made.state.decide_on_record(made._append(load("queue", 90, at(60))), at(5)))
    assert sizes(made) == []
    assert made.state.dropped == {"future": 1}


def _ahead(made: World, second: int, ahead: int, used: list[int | None]) -> None:
    """A record of a cluster whose clock is so many seconds ahead, heard at that second."""
    made.until(at(second))
    record = made._append(pods("own-1", used, at(second + ahead), sequence=second))
    made._written(made.state.decide_on_record(record, made.now_ms))


def _by_clock(ahead: int, killed: bool) -> World:
    """Two clusters, one of which falls silent after 400 s."""
    made = begun(hpa([cpu_at(50)]), replicas=4)
    for second in range(10, 1_200, 15):
        if second < 400:
            _ahead(made, second, ahead, [900 if second < 60 else 300] * 2)
        made.say(pods("own-2", [900 if second < 60 else 300] * 2, at(second + 1), sequence=second))
        if killed:
            made.restart()
    return made


def test_a_cluster_whose_clock_is_ahead_counts_as_of_when_it_is_heard() -> None:
    """In the turn and after a restart alike; and when it falls silent it is lost as soon as others are."""
    expected = sizes(_by_clock(0, killed=False))
    assert len(expected) > 1
    for killed in (False, True):
        made = _by_clock(3_600, killed)
        assert sizes(made) == expected
        assert made.state.dropped == {}
        told = {one.cluster: one for one in explain(made.state, made.state.scaled[KEY]).pods}
        assert (told["own-1"].lost, told["own-1"].trouble) == (True, "its clock is 3600 s ahead")
        assert told["own-2"].trouble == ""


def test_a_clock_that_is_put_right_is_so_at_once() -> None:
    made = begun(hpa([cpu_at(50)]), replicas=4)
    _ahead(made, 10, 3_600, [500] * 2)
    made.restart()
    _ahead(made, 25, 0, [500] * 2)
    made.restart()
    (told,) = explain(made.state, made.state.scaled[KEY]).pods
    assert (told.trouble, told.age_ms) == ("", 0)


def test_pods_that_were_told_ahead_of_time_before_there_was_a_policy_count_as_of_its_declaration() -> None:
    made = World()
    made.say(declared(2))
    made.state.decide_on_record(made._append(pods("own-1", [900] * 2, at(3_600))), made.now_ms)
    made.restart()
    made.policy(hpa([cpu_at(50)]))
    first = explain(made.state, made.state.scaled[KEY]).pods
    made.restart()
    assert explain(made.state, made.state.scaled[KEY]).pods == first
    assert (first[0].trouble, first[0].age_ms) == ("its clock is 3600 s ahead", 0)


def test_a_series_that_stopped_long_ago_counts_no_more_where_others_go_on() -> None:
    made = begun(hpa([external("queue", "10")]), replicas=1)
    made.say(load("queue", 30, at(5), "a"))
    made.say(load("queue", 30, at(6), "b"))
    for second in range(60, 1_500, 60):
        made.say(load("queue", 30, at(second), "b"))
    assert [replicas for _, replicas in sizes(made)] == [3, 4, 6, 3]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        pytest.param(lambda made: made.gone(), "FailedGetScale", id="gone"),
        pytest.param(lambda made: made.say(declared(4, deleting=True)), "FailedGetScale", id="being deleted"),
        pytest.param(lambda made: made.say(declared(4, kind="StatefulSet")), "FailedGetScale", id="of another kind"),
    ],
)
def test_a_workload_that_cannot_be_scaled(change: Callable[[World], None], reason: str) -> None:
    made = begun(hpa([external("queue", "10")]), replicas=1)
    made.say(load("queue", 40, at(10)))
    change(made)
    made.say(load("queue", 90, at(20)))
    assert [replicas for _, replicas in sizes(made)] == [4]
    assert condition(made, "AbleToScale") == ("False", reason)


def test_what_is_due_far_off_is_remembered_once() -> None:
    window = {"name": "late", "timeZone": "UTC", "from": "1971-01-01", "until": "1971-01-02", "floor": 9}
    made = begun(own(calendar=[window], minReplicas=2), replicas=2)
    for second in range(100):
        made.say(backlog([1], at(10 + second)))
    assert len(made.state.dues) == 1
    made.until(at(400 * 86_400))
    assert [replicas for _, replicas in sizes(made)] == [9, 2]
