"""What is reported over gRPC: each item is taken or refused for itself. And policies in the log that cannot be read."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from hpa.core.requests import reporting
from hpa.core.requests.answers import explain_workload
from hpa.core.requests.reporting import ANSWER_BYTES_MAX, ITEMS_AT_ONCE, ReportCheck, check_report_count
from hpa.service import Hpa, HpaClocks
from hpa.settings import HpaSettings
from spillway.api import RequestError
from spillway.api_scaling import ReportRequest
from spillway.events_scaling import PartitionBacklog
from spillway.local_bus import LocalBroker, LocalBus
from spillway.rpc.calls import SCALING, message_bytes

from .world import (
    KAFKA,
    KEY,
    START_MS,
    World,
    backlog_observed,
    external_metric,
    hpa_manifest,
    load_observed,
    scaled_object_manifest,
    workload_declared,
)

PROMETHEUS = {"type": "prometheus", "metadata": {"serverAddress": "http://p", "query": "q", "threshold": "10"}}
OF_PODS = {
    "type": "Pods",
    "pods": {"metric": {"name": "busy"}, "target": {"type": "AverageValue", "averageValue": "1"}},
}
LOAD, BACKLOG = load_observed("s1-prometheus", 5, START_MS), backlog_observed([3], START_MS)


def world_with_policy() -> World:
    made = World()
    made.publish_input(workload_declared(1))
    made.declare_policy(scaled_object_manifest([KAFKA, PROMETHEUS]))
    return made


@pytest.mark.parametrize(
    ("report", "code", "words"),
    [
        pytest.param(LOAD, "OK", "", id="a value"),
        pytest.param(BACKLOG, "OK", "", id="a backlog"),
        pytest.param(replace(LOAD, at_ms=0), "OK", "", id="now"),
        pytest.param(replace(LOAD, name="other"), "NOT_FOUND", "shop/other", id="a workload without a policy"),
        pytest.param(replace(LOAD, value_milli=-1), "INVALID_ARGUMENT", "value_milli: -1", id="negative"),
        pytest.param(replace(LOAD, at_ms=START_MS + 60_000), "INVALID_ARGUMENT", "at_ms", id="from the future"),
        pytest.param(replace(BACKLOG, partitions=()), "INVALID_ARGUMENT", "partitions", id="no partition"),
        pytest.param(
            replace(BACKLOG, partitions=BACKLOG.partitions * 2),
            "INVALID_ARGUMENT",
            "orders/0 is told twice",
            id="twice",
        ),
        pytest.param(replace(BACKLOG, partitions=(), trouble="gone"), "OK", "", id="nothing known"),
        pytest.param(replace(LOAD, at_ms=START_MS // 1000), "INVALID_ARGUMENT", "at_ms: 1000000", id="in seconds"),
        pytest.param(replace(LOAD, metric=""), "INVALID_ARGUMENT", "metric", id="without a name"),
        pytest.param(replace(LOAD, trouble="x" * 2_000), "INVALID_ARGUMENT", "trouble", id="too long"),
        pytest.param(
            replace(LOAD, metric="x" * 3000), "INVALID_ARGUMENT", "metric: '3000 bytes'", id="too long: metric"
        ),
        pytest.param(replace(LOAD, series="x" * 254), "INVALID_ARGUMENT", "series: '254 bytes'", id="too long: series"),
        pytest.param(
            replace(LOAD, cluster="x" * 254), "INVALID_ARGUMENT", "cluster: '254 bytes'", id="too long: cluster"
        ),
        pytest.param(replace(LOAD, pod="x" * 254), "INVALID_ARGUMENT", "pod: '254 bytes'", id="too long: pod"),
        pytest.param(replace(LOAD, object="x" * 318), "INVALID_ARGUMENT", "object: '318 bytes'", id="too long: object"),
        pytest.param(replace(LOAD, source="x" * 254), "INVALID_ARGUMENT", "source: '254 bytes'", id="too long: source"),
        pytest.param(replace(BACKLOG, group="x" * 254), "INVALID_ARGUMENT", "group: '254 bytes'", id="too long: group"),
        pytest.param(replace(BACKLOG, topic="x" * 254), "INVALID_ARGUMENT", "topic: '254 bytes'", id="too long: topic"),
        pytest.param(replace(LOAD, metric="x" * 253), "NOT_FOUND", "s1-prometheus", id="as long as may be"),
        pytest.param(
            replace(BACKLOG, partitions=(PartitionBacklog("x" * 254, 0, 7, 0, 0),)),
            "INVALID_ARGUMENT",
            "partitions.topic",
            id="too long: a partition's topic",
        ),
        pytest.param(replace(BACKLOG, group=""), "INVALID_ARGUMENT", "group", id="without a group"),
        pytest.param(
            replace(BACKLOG, partitions=(PartitionBacklog("orders", 0, -7, 0, 0),)),
            "INVALID_ARGUMENT",
            "partitions",
            id="an offset that is none",
        ),
    ],
)
def test_each_report_is_answered_for_itself(report: Any, code: str, words: str) -> None:
    made = world_with_policy()
    taken, answers = ReportCheck(made.state, START_MS).accept_reports((report, LOAD))
    assert [answer.code for answer in answers] == [code, "OK"]
    assert words in answers[0].text
    assert len(taken) == (2 if code == "OK" else 1)
    assert all(one.at_ms == START_MS for one in taken)


@pytest.mark.parametrize(
    ("count", "refused"),
    [
        pytest.param(0, False, id="none"),
        pytest.param(5_000, False, id="as many as one request may have"),
        pytest.param(5_001, True, id="one more"),
    ],
)
def test_how_many_reports_one_request_may_have(count: int, refused: bool) -> None:
    if not refused:
        check_report_count(count)
        return
    with pytest.raises(RequestError, match=f"{count} reports: expected at most 5000") as error:
        check_report_count(count)
    assert error.value.code == "INVALID_ARGUMENT"


def test_the_answer_to_a_report_names_a_few_metrics_which_are_looked_for_once(calls_of: Any) -> None:
    """Else one request of 90 kB made an answer of 160 MiB."""
    made = World()
    made.declare_policy(hpa_manifest([external_metric(f"queue-{number:02}", "10") for number in range(20)]))
    with calls_of(reporting.input_names_of) as calls:
        _, answers = ReportCheck(made.state, START_MS).accept_reports([load_observed("other", 1, START_MS)] * 500)
    assert len(calls) == 1
    (text,) = {answer.text for answer in answers}
    assert text.endswith("; queue-06; queue-07; 12 more")


def test_the_answer_to_a_report_has_a_bound() -> None:
    made = World()
    made.declare_policy(hpa_manifest([external_metric(f"queue-{number:02}" + "x" * 200, "10") for number in range(8)]))
    _, answers = ReportCheck(made.state, START_MS).accept_reports((load_observed("other", 1, START_MS),))
    assert len(answers[0].text.encode()) <= ANSWER_BYTES_MAX


async def test_others_are_answered_between_some_reports_of_a_request() -> None:
    bus, stopping = LocalBus(LocalBroker(), "local-00000001", "spillway/hpa-1"), asyncio.Event()
    made = Hpa(bus, HpaSettings(), "hpa-1", HpaClocks(lambda: START_MS, asyncio.get_running_loop().time))
    running = asyncio.create_task(made.run(stopping))
    while not made.is_active:
        await asyncio.sleep(0.01)
    turns, asked = 0, ReportRequest((LOAD,) * ITEMS_AT_ONCE * 20, (BACKLOG,))
    asking = asyncio.create_task(made.report(asked))
    while not asking.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 20
    reply = asking.result()
    assert (len(reply.loads), len(reply.backlogs)) == (len(asked.loads), 1)
    with pytest.raises(RequestError, match="5001 reports"):  # Loads and backlogs together.
        await made.report(ReportRequest((LOAD,) * 5_000, (BACKLOG,)))
    stopping.set()
    await running


def test_an_explanation_can_be_said_whatever_was_reported() -> None:
    """A sum of series may be larger than a reply can say."""
    made = World()
    made.publish_input(workload_declared(1))
    made.declare_policy(hpa_manifest([external_metric("queue", "10")]))
    for series in ("a", "b"):
        made.publish_input(replace(load_observed("queue", 5, START_MS), series=series, value_milli=2**63 - 1))
    reply = explain_workload(made.state, made.state.scaled[KEY])
    (metric,) = reply.metrics
    assert metric.value_milli == 2**63 - 1
    assert message_bytes(reply, SCALING.calls["explain_policy"].reply_message())


@pytest.mark.parametrize(
    ("report", "words"),
    [
        pytest.param(
            load_observed("queues", 5, START_MS),
            "metric queues: HorizontalPodAutoscaler web-hpa does not use it; expected queue; busy of pods",
            id="another metric",
        ),
        pytest.param(replace(load_observed("queue", 5, START_MS), pod="web-0"), "metric queue of pods", id="of pods"),
        pytest.param(
            replace(load_observed("queue", 5, START_MS), object="Service/a"), "queue of Service/a", id="of an object"
        ),
        pytest.param(BACKLOG, "group g, topic orders: ", id="a backlog"),
        pytest.param(BACKLOG, "expected no report of that kind", id="a backlog, and there is no queue"),
    ],
)
def test_what_the_policy_does_not_look_at_is_not_taken_and_that_is_said(report: Any, words: str) -> None:
    made = World()
    made.declare_policy(hpa_manifest([external_metric("queue", "10"), OF_PODS]))
    taken, answers = ReportCheck(made.state, START_MS).accept_reports((report,))
    assert not taken
    assert answers[0].code == "NOT_FOUND"
    assert words in answers[0].text
