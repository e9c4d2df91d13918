"""Which questions are asked when, and what is published of their answers."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from hpa.core.questions import NOBODY_ASKS
from hpa.core.series import confine_query
from hpa.external_metrics.collecting import CollectingSettings, MetricCollection, find_unreadable_metrics
from hpa.external_metrics.connections import (
    IN_THE_LOG,
    NO_CREDENTIALS,
    KafkaConnection,
    NamedConnections,
    PrometheusConnection,
)
from spillway.bus import BusUnavailable
from spillway.events_scaling import BacklogObserved, LoadObserved, PartitionBacklog, ScalePolicyDeclared
from spillway.model import Generation

PATIENCE_SECONDS = 20.0
NOBODY = KafkaConnection(("127.0.0.1:1",))


class Prometheus:
    """answers: by query; a query that has none hangs. asked: how often, by query."""

    def __init__(self) -> None:
        self.answers: dict[str, str] = {}
        self.asked: dict[str, int] = {}
        self.at_once = self.most_at_once = 0
        self.url = ""

    async def answer_query(self, request: web.Request) -> web.StreamResponse:
        query = request.query["query"]
        self.asked[query] = self.asked.get(query, 0) + 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            if query not in self.answers:
                await asyncio.Event().wait()
            return web.Response(text=self.answers[query])
        finally:
            self.at_once -= 1

    def named_connections(self) -> NamedConnections:
        return NamedConnections(prometheus={"main": PrometheusConnection(self.url)})

    def set_query_values(self, query: str, *values: str) -> None:
        result = [{"metric": {}, "value": [1, value]} for value in values]
        self.answers[query] = json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}})


@pytest.fixture
async def prometheus() -> AsyncIterator[Prometheus]:
    made = Prometheus()
    app = web.Application()
    app.router.add_get("/api/v1/query", made.answer_query)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


def scaled_object_declared(name: str, *triggers: Any) -> ScalePolicyDeclared:
    spec = {"scaleTargetRef": {"name": name}, "pollingInterval": 1, "triggers": list(triggers)}
    manifest = {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": {"name": name}, "spec": spec}
    text = json.dumps(manifest).encode()
    return ScalePolicyDeclared("default", name, Generation(1, 1), "ScaledObject", name, text, 0)


def prometheus_trigger(address: str, text: str, **more: str) -> Any:
    return {"type": "prometheus", "metadata": {"serverAddress": address, "query": text, "threshold": "2", **more}}


def kafka_trigger(servers: str, topic: str = "t") -> Any:
    return {"type": "kafka", "metadata": {"bootstrapServers": servers, "consumerGroup": "g", "topic": topic}}


class Log:
    """What was published. down: it cannot be reached."""

    def __init__(self) -> None:
        self.events: list[BacklogObserved | LoadObserved] = []
        self.down = False
        self.tried = 0

    async def publish(self, event: BacklogObserved | LoadObserved) -> None:
        self.tried += 1
        if self.down:
            raise BusUnavailable("down")
        self.events.append(event)

    def events_of_workload(self, name: str) -> list[Any]:
        return [event for event in self.events if event.name == name]


@asynccontextmanager
async def run_collection(
    log: Log, connections: NamedConnections, *policies: ScalePolicyDeclared, **settings: Any
) -> AsyncIterator[MetricCollection]:
    collecting = MetricCollection(log.publish, connections, CollectingSettings(**settings), lambda: 5_000, Random(1))
    for one in policies:
        collecting.start_questions(one)
    task = asyncio.create_task(collecting.run())
    try:
        yield collecting
    finally:
        task.cancel()
        await asyncio.wait([task])


async def wait_until(condition: Any) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():
            await asyncio.sleep(0.02)


async def test_a_value_is_published_under_the_triggers_metric(prometheus: Prometheus) -> None:
    prometheus.set_query_values("up", "2.5")
    log = Log()
    async with run_collection(
        log,
        prometheus.named_connections(),
        scaled_object_declared("web", prometheus_trigger(prometheus.url, "up")),
    ):
        await wait_until(lambda: len(log.events) >= 2)
    expected = LoadObserved(
        "default", "web", "s0-prometheus", "", "", "", "", 2_500, 5_000, 0, "hpa: prometheus main", ""
    )
    assert log.events[0] == expected


async def test_an_empty_answer_is_zero_or_trouble_as_the_trigger_says(prometheus: Prometheus) -> None:
    prometheus.set_query_values("none")
    log = Log()
    triggers = (
        prometheus_trigger(prometheus.url, "none"),
        prometheus_trigger(prometheus.url, "none", ignoreNullValues="false"),
    )
    async with run_collection(log, prometheus.named_connections(), scaled_object_declared("web", *triggers)):
        await wait_until(lambda: len({event.metric for event in log.events_of_workload("web")}) == 2)
    told = {event.metric: (event.value_milli, event.trouble) for event in log.events_of_workload("web")}
    assert told == {"s0-prometheus": (0, ""), "s1-prometheus": (0, "prometheus main: the answer is empty")}


async def test_what_the_operator_did_not_name_is_not_asked(prometheus: Prometheus) -> None:
    log = Log()
    asks = scaled_object_declared("web", prometheus_trigger(prometheus.url, "up"), kafka_trigger("127.0.0.1:1"))
    async with run_collection(log, NamedConnections(), asks):
        await wait_until(lambda: len({type(event) for event in log.events}) == 2)
    assert prometheus.asked == {}
    for event in log.events:
        assert (
            "not among the connections that the operator named for namespace 'default', which are none" in event.trouble
        )


async def test_whose_series_are_asked_is_the_connections_to_say(prometheus: Prometheus) -> None:
    """A query of another namespace's series is not asked; one that names none is asked for its own."""
    forced = 'sum(up{namespace="default"})'
    prometheus.set_query_values(forced, "3")
    main = PrometheusConnection(prometheus.url, namespace_label="namespace")
    others = PrometheusConnection("http://127.0.0.1:1", namespaces=("bank",))
    orders = KafkaConnection(NOBODY.bootstrap_servers, namespaces=("bank",))
    connections = NamedConnections({"orders": orders}, {"others": others, "main": main})
    queries = (prometheus_trigger(prometheus.url, text) for text in ("sum(up)", 'sum(up{namespace="bank"})'))
    asks, log = scaled_object_declared("web", *queries, kafka_trigger("127.0.0.1:1")), Log()
    async with run_collection(log, connections, asks):
        await wait_until(lambda: len({getattr(event, "metric", "") for event in log.events}) == 3)
    refused = "query: namespace of 'bank': expected 'default', or no namespace at all, since the connection adds it"
    unnamed = "bootstrapServers '127.0.0.1:1': not among the connections that the operator named"
    assert set(prometheus.asked) == {forced}
    told = {getattr(one, "metric", "queue"): (getattr(one, "value_milli", 0), one.trouble) for one in log.events}
    assert told == {
        "s0-prometheus": (3_000, ""),
        "s1-prometheus": (0, f"prometheus main: {refused}"),
        "queue": (0, f"kafka: {unnamed} for namespace 'default', which are none"),
    }
    said = [text.split(": it is unknown until")[0] for text in await find_unreadable_metrics(connections, asks)]
    assert said == [refused, f"{unnamed} for namespace 'default', which are none"]


async def test_who_declares_it_hears_which_questions_nobody_asks() -> None:
    named = NamedConnections({"local": KafkaConnection(("127.0.0.1:1", "127.0.0.1:2"))}, {})
    policies = scaled_object_declared(
        "web",
        kafka_trigger("127.0.0.1:2"),
        kafka_trigger("127.0.0.1:3", "u"),
        prometheus_trigger("http://127.0.0.1:4", "up"),
    )
    nobody = "it is unknown until somebody reports it"
    ours = "not among the connections that the operator named for namespace 'default'"
    assert await find_unreadable_metrics(named, policies) == (
        f"bootstrapServers '127.0.0.1:3': {ours}, local (127.0.0.1:1,127.0.0.1:2): {nobody}",
        f"serverAddress 'http://127.0.0.1:4': {ours}, which are none: {nobody}",
    )
    assert await find_unreadable_metrics(named, scaled_object_declared("web", kafka_trigger("127.0.0.1:1"))) == ()


async def test_metrics_that_only_others_can_say_are_named() -> None:
    each = {"type": "AverageValue", "averageValue": "1"}
    of_object = {
        "describedObject": {"kind": "Ingress", "name": "front"},
        "metric": {"name": "requests"},
        "target": each,
    }
    metrics = [
        {"type": "Pods", "pods": {"metric": {"name": "busy"}, "target": each}},
        {"type": "Object", "object": of_object},
        {"type": "External", "external": {"metric": {"name": "queue"}, "target": each}},
        {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}},
    ]
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    found = {}
    for kind, version in (("HorizontalPodAutoscaler", "autoscaling/v2"), ("ScalePolicy", "spillway.io/v1")):
        spec = {"scaleTargetRef": reference, "maxReplicas": 5, "metrics": metrics}
        manifest = {"apiVersion": version, "kind": kind, "metadata": {"name": "p"}, "spec": spec}
        event = ScalePolicyDeclared("default", "web", Generation(1, 1), kind, "p", json.dumps(manifest).encode(), 0)
        found[kind] = await find_unreadable_metrics(NamedConnections(), event)
    named = [f"metrics: {one}: {NOBODY_ASKS}" for one in ("pods metric busy", "object metric requests")]
    expected = (*named, f"metrics: external metric queue: {NOBODY_ASKS}")
    assert found == {"HorizontalPodAutoscaler": expected, "ScalePolicy": expected}


async def test_a_queue_whose_broker_is_gone_is_unknown() -> None:
    log = Log()
    async with run_collection(
        log, NamedConnections(kafka={"orders": NOBODY}), scaled_object_declared("web", kafka_trigger("127.0.0.1:1"))
    ):
        await wait_until(lambda: log.events)
    (event, *_) = log.events_of_workload("web")
    assert (event.connection, event.group, event.topic, event.partitions, event.at_ms) == (
        "orders",
        "g",
        "t",
        (),
        5_000,
    )
    assert event.trouble.startswith("kafka orders: KafkaConnectionError")


SECRET = "/nowhere/secrets/of-the-operator"
USER = "internal-user"
WITH_SECRETS = NamedConnections(
    {"orders": KafkaConnection(("127.0.0.1:1",), "SASL_PLAINTEXT", "PLAIN", USER, SECRET)},
    {
        "token": PrometheusConnection("http://127.0.0.1:1", SECRET),
        "ca": PrometheusConnection("https://127.0.0.1:1", "", SECRET),
        "away": PrometheusConnection("http://127.0.0.1:2"),
    },
)


@pytest.mark.parametrize(
    ("address", "kind", "detail"),
    [
        pytest.param("127.0.0.1:1", f"kafka orders: {NO_CREDENTIALS}", SECRET, id="password"),
        pytest.param("http://127.0.0.1:1", f"prometheus token: {NO_CREDENTIALS}", SECRET, id="token"),
        pytest.param("https://127.0.0.1:1", f"prometheus ca: {NO_CREDENTIALS}", SECRET, id="CA"),
        pytest.param(
            "http://127.0.0.1:2",
            f"prometheus away: ClientConnectorError: the server cannot be reached: {IN_THE_LOG}",
            "Connect call failed",
            id="a server",
        ),
    ],
)
async def test_callers_read_what_kind_of_trouble_a_connection_has_and_the_log_has_the_rest(
    address: str, kind: str, detail: str
) -> None:
    """The paths of an operator's files, its users and its brokers are its own."""
    trigger = prometheus_trigger(address, "up") if address.startswith("http") else kafka_trigger(address)
    log = Log()
    with capture_logs() as logged:
        async with run_collection(log, WITH_SECRETS, scaled_object_declared("web", trigger)):
            await wait_until(lambda: len(log.events) >= 2)
    assert {event.trouble for event in log.events_of_workload("web")} == {kind}
    (line,) = [one for one in logged if one["event"] == "a connection cannot be asked"]
    assert detail in line["error"]


async def test_callers_do_not_read_which_user_and_broker_a_connection_has(
    prometheus: Prometheus, tmp_path: Path
) -> None:
    """What listens there speaks no Kafka, so it lets the user not in."""
    broker, password = prometheus.url.removeprefix("http://"), tmp_path / "password"
    password.write_text("word")
    named = KafkaConnection((broker,), "SASL_PLAINTEXT", "PLAIN", USER, str(password))
    log = Log()
    with capture_logs() as logged:
        async with run_collection(
            log, NamedConnections({"orders": named}), scaled_object_declared("web", kafka_trigger(broker))
        ):
            await wait_until(lambda: log.events)
    assert log.events[0].trouble == f"kafka orders: Kafka does not let the connection in: {IN_THE_LOG}"
    assert any(USER in one.get("error", "") for one in logged)


async def test_a_question_that_hangs_holds_up_no_other_and_is_unknown(prometheus: Prometheus) -> None:
    prometheus.set_query_values("up", "1")
    log = Log()
    policies = (
        scaled_object_declared("web", prometheus_trigger(prometheus.url, "up")),
        scaled_object_declared("slow", prometheus_trigger(prometheus.url, "hangs")),
    )
    connections = prometheus.named_connections()
    async with run_collection(log, connections, *policies, answer_seconds=0.5):
        await wait_until(lambda: log.events_of_workload("slow") and len(log.events_of_workload("web")) >= 2)
    assert log.events_of_workload("slow")[0].trouble == "prometheus main: no answer within 0.5 s"


async def test_one_policys_slow_questions_keep_no_others_value_waiting(prometheus: Prometheus) -> None:
    """64 of one policy hang for longer than this test is patient: a value that was told once is told again."""
    prometheus.set_query_values("up", "1")
    log = Log()
    slow = [prometheus_trigger(prometheus.url, f"hangs {index}") for index in range(64)]
    async with run_collection(
        log,
        prometheus.named_connections(),
        scaled_object_declared("web", prometheus_trigger(prometheus.url, "up")),
        answer_seconds=10 * PATIENCE_SECONDS,
    ) as collecting:
        await wait_until(lambda: log.events_of_workload("web"))
        collecting.start_questions(scaled_object_declared("slow", *slow))
        await wait_until(lambda: prometheus.at_once >= 6)
        told = len(log.events_of_workload("web"))
        await wait_until(lambda: len(log.events_of_workload("web")) >= told + 3)
    assert prometheus.most_at_once <= 8


async def test_questions_that_were_slow_leave_a_slot_free(prometheus: Prometheus) -> None:
    log = Log()
    asked = [f"hangs {index}" for index in range(4)]
    slow = scaled_object_declared("slow", *(prometheus_trigger(prometheus.url, one) for one in asked))
    bounds = {"at_once": 2, "slow_part": 0.5, "answer_seconds": 0.3, "slow_seconds": 0.1}
    async with run_collection(log, prometheus.named_connections(), slow, **bounds):
        await wait_until(lambda: all(prometheus.asked.get(one, 0) >= 2 for one in asked))
    assert prometheus.most_at_once == 1


async def test_no_more_questions_than_allowed_are_under_way_at_one_time(prometheus: Prometheus) -> None:
    log = Log()
    policies = [
        scaled_object_declared(f"w{index}", prometheus_trigger(prometheus.url, f"hangs {index}")) for index in range(9)
    ]
    connections = prometheus.named_connections()
    async with run_collection(log, connections, *policies, answer_seconds=0.2, at_once=3):
        await wait_until(lambda: len({event.name for event in log.events}) == 9)
    assert prometheus.most_at_once == 3


async def test_policies_come_change_and_go_while_it_runs(prometheus: Prometheus) -> None:
    for name in ("first", "second"):
        prometheus.set_query_values(name, "1")
    log = Log()
    async with run_collection(log, prometheus.named_connections()) as collecting:
        collecting.start_questions(scaled_object_declared("web", prometheus_trigger(prometheus.url, "first")))
        await wait_until(lambda: prometheus.asked.get("first"))
        collecting.start_questions(scaled_object_declared("web", prometheus_trigger(prometheus.url, "second")))
        await wait_until(lambda: prometheus.asked.get("second", 0) >= 2)
        asked = prometheus.asked["first"]
        collecting.start_questions(scaled_object_declared("other", prometheus_trigger(prometheus.url, "first")))
        collecting.stop_questions("default", "web")
        before = prometheus.asked["second"]
        await wait_until(lambda: prometheus.asked["first"] >= asked + 2)
        assert prometheus.asked["second"] <= before + 1


async def test_a_policy_that_is_declared_again_is_not_asked_again_at_once(prometheus: Prometheus) -> None:
    prometheus.set_query_values("up", "1")
    log = Log()
    asks = scaled_object_declared("web", prometheus_trigger(prometheus.url, "up"))
    async with run_collection(log, prometheus.named_connections(), asks) as collecting:
        await wait_until(lambda: log.events)
        for _ in range(20):
            collecting.start_questions(asks)
        await wait_until(lambda: len(log.events) >= 2)
    assert prometheus.asked["up"] <= 3


async def test_a_log_that_is_away_stops_nothing(prometheus: Prometheus) -> None:
    prometheus.set_query_values("up", "1")
    log = Log()
    log.down = True
    asks = scaled_object_declared("web", prometheus_trigger(prometheus.url, "up"))
    async with run_collection(log, prometheus.named_connections(), asks):
        await wait_until(lambda: log.tried >= 2)
        log.down = False
        await wait_until(lambda: log.events)


async def test_a_queue_of_more_partitions_than_a_record_holds_is_unknown() -> None:
    """The log refuses the record by its size: the collector goes on, and says so."""
    log = Log()

    async def publish_without_partitions(event: BacklogObserved | LoadObserved) -> None:
        if isinstance(event, BacklogObserved) and event.partitions:
            raise ValueError("3000000 bytes: expected at most 2097152")
        await log.publish(event)

    collecting = MetricCollection(
        publish_without_partitions, NamedConnections(), CollectingSettings(), lambda: 5_000, Random(1)
    )
    rows = (PartitionBacklog("t", 0, 5, 0, 0),)
    await collecting._publish_answer(BacklogObserved("default", "web", "local", "g", "t", rows, 5_000, "hpa", ""))
    (event,) = log.events_of_workload("web")
    assert (event.partitions, event.trouble) == ((), "kafka local: 3000000 bytes: expected at most 2097152")


async def test_an_answer_that_cannot_be_told_ends_no_other_question(prometheus: Prometheus) -> None:
    for name in ("large", "up"):
        prometheus.set_query_values(name, "1")
    log = Log()

    async def publish_unless_large(event: BacklogObserved | LoadObserved) -> None:
        if event.name == "large":
            raise ValueError("3000000 bytes: expected at most 2097152")
        await log.publish(event)

    collecting = MetricCollection(
        publish_unless_large, prometheus.named_connections(), CollectingSettings(), lambda: 5_000, Random(1)
    )
    for name in ("large", "up"):
        collecting.start_questions(scaled_object_declared(name, prometheus_trigger(prometheus.url, name)))
    task = asyncio.create_task(collecting.run())
    await wait_until(lambda: len(log.events_of_workload("up")) >= 2 and prometheus.asked["large"] >= 2)
    assert not task.done()
    task.cancel()
    await asyncio.wait([task])


async def test_it_can_run_again_after_the_turn_came_back(prometheus: Prometheus) -> None:
    prometheus.set_query_values("up", "1")
    log = Log()
    connections = prometheus.named_connections()
    collecting = MetricCollection(log.publish, connections, CollectingSettings(), lambda: 5_000, Random(1))
    collecting.start_questions(scaled_object_declared("web", prometheus_trigger(prometheus.url, "up")))
    for _ in range(2):
        count = len(log.events)
        task = asyncio.create_task(collecting.run())
        await wait_until(lambda count=count: len(log.events) > count)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()


async def test_what_may_not_be_asked_is_told_once_and_then_each_minute(prometheus: Prometheus) -> None:
    """A policy that is asked each second is told three times meanwhile."""
    prometheus.set_query_values("up", "1")
    prometheus.set_query_values('up{namespace="default"}', "1")
    main = PrometheusConnection(prometheus.url, namespace_label="namespace")
    refused = (
        prometheus_trigger("http://127.0.0.1:1", "up"),
        prometheus_trigger(prometheus.url, 'up{namespace="bank"}'),
        kafka_trigger("127.0.0.1:1"),
    )
    log = Log()
    policies = (
        scaled_object_declared("web", prometheus_trigger(prometheus.url, "up")),
        scaled_object_declared("refused", *refused),
    )
    async with run_collection(log, NamedConnections(prometheus={"main": main}), *policies):
        await wait_until(lambda: len(log.events_of_workload("web")) >= 3)
    assert len(log.events_of_workload("refused")) == 3
    assert all(event.trouble for event in log.events_of_workload("refused"))
    assert CollectingSettings().refused_seconds == 60.0


async def test_what_may_not_be_asked_is_told_again(prometheus: Prometheus) -> None:
    log = Log()
    refused = scaled_object_declared("web", prometheus_trigger("http://127.0.0.1:1", "up"))
    async with run_collection(log, prometheus.named_connections(), refused, refused_seconds=0.05):
        await wait_until(lambda: len(log.events) >= 3)


async def test_many_questions_of_one_namespace_are_asked_less_often(prometheus: Prometheus) -> None:
    """One question each second fits; those of another namespace are thirty times too many."""
    log = Log()
    for name in ("up", "many"):
        prometheus.set_query_values(name, "1")
    many = [
        replace(scaled_object_declared(f"w{index}", prometheus_trigger(prometheus.url, "many")), namespace="bank")
        for index in range(30)
    ]
    web = scaled_object_declared("web", prometheus_trigger(prometheus.url, "up"))
    async with run_collection(log, prometheus.named_connections(), web, *many, namespace_per_second=1) as collecting:
        await wait_until(lambda: len(log.events_of_workload("web")) >= 4)
        assert len(log.events) == len(log.events_of_workload("web")) + 30
        for one in many[1:]:
            collecting.stop_questions("bank", one.name)
        collecting.start_questions(replace(many[1], name="alone", namespace="third"))
        await wait_until(lambda: len(log.events_of_workload("alone")) >= 2)


async def test_between_two_queries_that_are_read_others_run(prometheus: Prometheus, calls_of: Any) -> None:
    """At a start all queries are new: they are not read in one piece, and each is read once."""
    main = PrometheusConnection(prometheus.url, namespace_label="namespace")
    asked = [f"up + {index}" for index in range(20)]
    for text in asked:
        prometheus.set_query_values(confine_query(text, "namespace", "default"), "1")
    log, turns = Log(), list[int]()
    triggers = [prometheus_trigger(prometheus.url, text) for text in asked]
    with calls_of(PrometheusConnection.confined_query) as calls:
        async with run_collection(
            log, NamedConnections(prometheus={"main": main}), scaled_object_declared("web", *triggers)
        ):
            while len(calls) < len(asked):
                turns.append(len(calls))
                await asyncio.sleep(0)
            turns.append(len(calls))
            await wait_until(lambda: len(log.events) >= 2 * len(asked))
    assert max(later - earlier for earlier, later in pairwise(turns)) <= 1
    assert len(calls) == len(asked)
