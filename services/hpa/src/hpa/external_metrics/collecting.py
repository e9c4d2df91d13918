"""Reads from Kafka and Prometheus the values that policies need. Publishes each value, or why there is none.

Each question is one task, and only the instance that has the turn runs it. hpa announces policies with start_questions
and stop_questions.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import structlog

from hpa.core.questions import (
    LEAST_MS,
    MOST_MS,
    LagQuestion,
    Question,
    ValueQuestion,
    metrics_reported_by_others,
    questions_of,
)
from hpa.core.series import QueryRefused
from hpa.core.slots import SlotQuestion
from hpa.external_metrics.connections import IN_THE_LOG, MetricUnknown, NamedConnections, NoConnection
from hpa.external_metrics.lag import KafkaLag, LagSettings
from hpa.external_metrics.prometheus import Prometheus, PrometheusSettings, ValueUnknown
from hpa.external_metrics.slot_queue import SlotQueue
from spillway import metrics, tracing
from spillway.bus import BusUnavailable
from spillway.events_scaling import BacklogObserved, LoadObserved, PartitionBacklog, ScalePolicyDeclared
from spillway.settings import constant, setting

Publish = Callable[[BacklogObserved | LoadObserved], Awaitable[Any]]

TROUBLE_CHARACTERS_MAX = 500
SOURCE = "hpa"


@dataclass(frozen=True, slots=True)
class CollectingSettings:
    """The settings SPILLWAY_COLLECTING_… of the environment."""

    connections: str = setting("", "YAML file of the Kafka and Prometheus connections that policies may use")
    answer_seconds: float = setting(5.0, "seconds that one request to a connection may take")
    answer_bytes_max: int = constant(
        1_000_000,
        "largest size in bytes of an answer of Prometheus",
        "an answer with one series for each replica is far smaller; a larger one comes from a wrong query",
    )
    at_once: int = setting(8, "number of requests to one connection at the same time; further requests wait", least=1)
    slow_seconds: float = constant(
        1.0,
        "seconds after which a request counts as slow; a request that could not be sent counts as slow, too",
        "it tells slow requests, which delay others, from fast ones; answer_seconds bounds both",
    )
    slow_part: float = constant(
        0.75,
        "share of at_once that slow requests may take; the rest is for fast requests",
        "a quarter of at_once is enough for fast requests",
    )
    drain_seconds: float = setting(2.0, "seconds between two requests for the queue length of a ScalePolicy")
    spread: float = constant(
        0.05,
        "share of an interval by which a random amount shortens it, so that requests spread over time",
        "the share is large enough that requests do not come together, and too small to be noticed",
    )
    refused_seconds: float = constant(
        60.0,
        "seconds between two records of a question that may not be asked: no connection fits, or its query is refused",
        "it is half of load_age_max, so the reason stays known; only a new policy or a restart changes the answer",
    )
    namespace_per_second: int = constant(
        100,
        "questions of one namespace per second; beyond them their intervals become longer, up to a minute",
        "each answer is a record and some 1 ms of decisions; 3,000 triggers of the usual 30 s fit",
    )


@dataclass(slots=True)
class _Pace:
    """The pace of a question.

    is_slow: True if its last answer was slow, or if there was none yet.
    is_refused: True if no connection may be asked this question.
    query: the query that is sent, with the label that the connection forces in; None: not computed yet.
    """

    is_slow: bool = True
    is_refused: bool = False
    query: str | None = None


class MetricCollection:
    """The questions of all declared policies.

    publish: writes to the log; raises BusUnavailable.
    wall_ms: returns Unix time in milliseconds, for the records.
    random: shortens each interval a little, so that questions do not come all at once.
    """

    def __init__(
        self,
        publish: Publish,
        connections: NamedConnections,
        settings: CollectingSettings,
        wall_ms: Callable[[], int],
        random: Random,
    ) -> None:
        self._publish = publish
        self._connections = connections
        self._settings = settings
        self._wall_ms = wall_ms
        self._random = random
        lag = LagSettings(answer_seconds=settings.answer_seconds)
        query = PrometheusSettings(settings.answer_seconds, settings.answer_bytes_max, settings.at_once)
        self._kafka = {name: KafkaLag(one, lag) for name, one in connections.kafka.items()}
        self._prometheus = {name: Prometheus(one, query) for name, one in connections.prometheus.items()}
        self._slot_queues: dict[str, SlotQueue] = {}
        self._questions: dict[tuple[str, str], tuple[Question, ...]] = {}
        self._asking: dict[Question, asyncio.Task[None]] = {}
        self._per_1000_s = Counter[str]()
        """The number of questions in 1,000 s that the policies of each namespace ask for."""
        self._confining = asyncio.Lock()
        self._log_again_at: dict[tuple[str, str], float] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._log: structlog.typing.FilteringBoundLogger = structlog.get_logger(service="hpa")

    def start_questions(self, policy: ScalePolicyDeclared) -> None:
        """Starts the questions of a policy. Questions that the earlier policy also had go on at their intervals."""
        self._replace_questions(
            (policy.namespace, policy.name), questions_of(policy, round(self._settings.drain_seconds * 1000))
        )

    def stop_questions(self, namespace: str, name: str) -> None:
        """Stops the questions of a workload, because its policy was deleted."""
        self._replace_questions((namespace, name), ())

    async def run(self) -> None:
        """Runs the questions of all policies until it is cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                for questions in self._questions.values():
                    self._start_tasks(questions)
                await asyncio.Event().wait()
        finally:
            self._tasks = None
            self._asking.clear()
            for kafka in self._kafka.values():
                await kafka.close()
            for prometheus in self._prometheus.values():
                await prometheus.close()

    def _replace_questions(self, key: tuple[str, str], questions: tuple[Question, ...]) -> None:
        before = self._questions.pop(key, ())
        self._per_1000_s[key[0]] += _questions_per_1000_s(questions) - _questions_per_1000_s(before)
        if not self._per_1000_s[key[0]]:
            del self._per_1000_s[key[0]]
        if questions:
            self._questions[key] = questions
        for question in before:
            if question not in questions and question in self._asking:
                self._asking.pop(question).cancel()
        self._start_tasks(questions)

    def _start_tasks(self, questions: tuple[Question, ...]) -> None:
        if self._tasks is None:
            return
        for question in questions:
            if question not in self._asking:
                self._asking[question] = self._tasks.create_task(self._ask_repeatedly(question))

    async def _ask_repeatedly(self, question: Question) -> None:
        """Asks the question at once and then at its interval.

        After a slow answer the next question is late, and missed ones are not made up.
        """
        loop = asyncio.get_running_loop()
        pace = _Pace()
        while True:
            started_at = loop.time()
            with tracing.begin_or_continue_trace(f"observe {_connection_kind(question)}", tracing.INTERNAL):
                event = await self._answer_question(question, pace)
                metrics.INPUTS_READ.labels(_connection_kind(question), "unknown" if event.trouble else "known").inc()
                try:
                    await self._publish_answer(event)
                except BusUnavailable as error:
                    self._log.warning("the log cannot be reached", error=str(error))
                except Exception:  # One unpublishable answer must not end other questions.
                    self._log.exception("an answer cannot be told", workload=f"{event.namespace}/{event.name}")
            await asyncio.sleep(max(0.0, started_at + self._seconds_until_next(question, pace) - loop.time()))

    def _seconds_until_next(self, question: Question, pace: _Pace) -> float:
        """Returns the seconds from the start of one question to its repetition."""
        bounds = self._settings
        spread = bounds.spread * self._random.random()
        if pace.is_refused:
            return bounds.refused_seconds * (1 + spread)
        times = max(1.0, self._per_1000_s[question.namespace] / (1000 * bounds.namespace_per_second))
        return min(question.every_ms * times, max(question.every_ms, MOST_MS)) / 1000 * (1 - spread)

    async def _answer_question(self, question: Question, pace: _Pace) -> BacklogObserved | LoadObserved:
        pace.is_refused = False
        if isinstance(question, LagQuestion):
            return await self._read_lag(question, pace)
        return await self._read_value(question, pace)

    async def _publish_answer(self, event: BacklogObserved | LoadObserved) -> None:
        try:
            await self._publish(event)
        except ValueError as error:
            if not isinstance(event, BacklogObserved) or not event.partitions:
                raise
            # The partitions are more than a record holds. So they are left out, and the backlog is unknown.
            await self._publish(
                replace(event, partitions=(), trouble=_format_trouble("kafka", event.connection, error))
            )

    async def _read_lag(self, question: LagQuestion, pace: _Pace) -> BacklogObserved:
        connection, trouble = "", ""
        partitions: tuple[PartitionBacklog, ...] = ()
        at_ms = self._wall_ms()
        try:
            connection = self._connections.kafka_connection_name(question.namespace, question.servers)
            async with self._hold_slot(f"kafka {connection}", question, pace):
                at_ms = self._wall_ms()
                partitions = await self._kafka[connection].backlog(question.group, question.topic)
        except Exception as error:
            pace.is_refused = isinstance(error, NoConnection)
            trouble = self._trouble_of_error("kafka", connection, error)
        place = question.namespace, question.name, connection, question.group, question.topic
        return BacklogObserved(*place, partitions, at_ms, SOURCE, trouble)

    async def _read_value(self, question: ValueQuestion, pace: _Pace) -> LoadObserved:
        connection, trouble, value = "", "", 0
        at_ms = self._wall_ms()
        try:
            connection = self._connections.prometheus_connection_name(question.namespace, question.address)
            query = await self._query_of(question, connection, pace)
            async with self._hold_slot(f"prometheus {connection}", question, pace):
                at_ms = self._wall_ms()
                found = await self._prometheus[connection].value_milli(query)
            if found is None and not question.empty_is_zero:
                raise ValueUnknown("the answer is empty")
            value = found or 0
        except Exception as error:
            pace.is_refused = isinstance(error, NoConnection | QueryRefused)
            trouble = self._trouble_of_error("prometheus", connection, error)
        source = f"{SOURCE}: prometheus {connection}".rstrip()
        return LoadObserved(
            question.namespace, question.name, question.metric, "", "", "", "", value, at_ms, 0, source, trouble
        )

    async def _query_of(self, question: ValueQuestion, connection: str, pace: _Pace) -> str:
        """Returns the query to send, with the label that the connection forces in. Raises QueryRefused.

        Queries are parsed one at a time, and other tasks run between two of them, because at a start all are new.
        """
        if pace.query is None:
            async with self._confining:
                await asyncio.sleep(0)
                pace.query = self._connections.prometheus[connection].confined_query(question.namespace, question.query)
        return pace.query

    def _trouble_of_error(self, kind: str, connection: str, error: Exception) -> str:
        """Returns the text to publish for a failed question. It has no detail that only the operator may read.

        Such a detail, and an unexpected error, are logged.
        """
        if isinstance(error, NoConnection | QueryRefused):
            return _format_trouble(kind, connection, error)
        if isinstance(error, MetricUnknown):
            if error.is_for_operator:
                self._log_detail(kind, connection, str(error))
            return _format_trouble(kind, connection, error.told)
        self._log.error("a question failed", kind=kind, connection=connection, exc_info=error)
        return _format_trouble(kind, connection, f"{type(error).__name__}: {IN_THE_LOG}")

    def _log_detail(self, kind: str, connection: str, detail: str) -> None:
        """Logs why a connection cannot be asked, once in refused_seconds: the questions of a connection are many."""
        now = asyncio.get_running_loop().time()
        if now >= self._log_again_at.get((kind, connection), now):
            self._log_again_at[kind, connection] = now + self._settings.refused_seconds
            self._log.warning("a connection cannot be asked", kind=kind, connection=connection, error=detail)

    @asynccontextmanager
    async def _hold_slot(self, connection: str, question: Question, pace: _Pace) -> AsyncIterator[None]:
        loop, bounds = asyncio.get_running_loop(), self._settings
        if connection not in self._slot_queues:
            self._slot_queues[connection] = SlotQueue(bounds.at_once, bounds.slow_part)
        async with self._slot_queues[connection].hold_slot(
            SlotQuestion(question.namespace, question.name, pace.is_slow)
        ):
            since = loop.time()
            try:
                yield
            finally:
                pace.is_slow = loop.time() - since > bounds.slow_seconds


async def find_unreadable_metrics(connections: NamedConnections, policy: ScalePolicyDeclared) -> tuple[str, ...]:
    """Returns the metrics that a policy needs but hpa cannot read, as texts for a warning: others must report them.

    Other tasks run between two of its questions, because reading a query takes some 2 ms.
    """
    found = list(metrics_reported_by_others(policy))
    for question in questions_of(policy, LEAST_MS):
        await asyncio.sleep(0)
        try:
            if isinstance(question, LagQuestion):
                connections.kafka_connection_name(policy.namespace, question.servers)
            else:
                connection = connections.prometheus_connection_name(policy.namespace, question.address)
                connections.prometheus[connection].confined_query(policy.namespace, question.query)
        except (NoConnection, QueryRefused) as error:
            found.append(f"{error}: it is unknown until somebody reports it")
    return tuple(found)


def _questions_per_1000_s(questions: tuple[Question, ...]) -> int:
    return sum(1_000_000 // question.every_ms for question in questions)


def _connection_kind(question: Question) -> str:
    return "kafka" if isinstance(question, LagQuestion) else "prometheus"


def _format_trouble(kind: str, connection: str, error: object) -> str:
    return f"{kind} {connection}: {error}".replace(" :", ":")[:TROUBLE_CHARACTERS_MAX]
