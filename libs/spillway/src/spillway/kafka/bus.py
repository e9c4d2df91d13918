"""The bus on Apache Kafka. Only this package uses aiokafka, and hpa where it reads the Kafka of other people.

The end of a partition is its last stable offset. A commit is acknowledged a moment before its mark lets readers pass.
So the ends are read again until they are after all earlier writes, but only for marks_seconds: an abandoned
transaction must not keep a process from becoming ready. No committed record is behind such a transaction, because its
topics have one writer, and taking the turn ends the transaction of the previous writer. Group members are static. A
restart within the session keeps its clusters. A stop leaves the group and so gives them away at once. After a kill they
are given away at the end of the session.
"""

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from typing import Any, TypeVar

import structlog
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaConnectionError, KafkaError

from spillway import metrics
from spillway.addresses import CLAIM_TOPIC_BY_SERVICE, CLUSTERS, TOPICS, Tombstone, Topic
from spillway.bus import (
    Assignment,
    BusUnavailable,
    Feed,
    Offsets,
    OtherFleet,
    OutcomeUnknown,
    Outgoing,
    Position,
    StandbyTurn,
    Traces,
    Writer,
    partition_of,
)
from spillway.dead_letters import RECORD_BYTES_MAX, outgoing_record, record_headers, trace_sending
from spillway.events import Event, TurnTaken
from spillway.kafka import internals
from spillway.kafka.access import WORLD, keep_trying, load_kafka_access
from spillway.kafka.feed import KafkaFeed
from spillway.kafka.fetch_sessions import SessionClient
from spillway.kafka.member import GroupMember, GroupSeat
from spillway.kafka.settings import KafkaSettings, cluster_group, standby_group, transactional_id
from spillway.kafka.topics import (
    LogReader,
    TopicsState,
    find_unmarked_partitions,
    tune_aiokafka,
    wait_for_hidden_partitions,
    wait_for_log_change,
)

__all__ = ["KafkaBus", "KafkaFeed", "KafkaSettings", "KafkaStandbyTurn", "KafkaWriter"]

T = TypeVar("T")

log = structlog.get_logger()

_NEVER_IDLE_MS = 10**15
"""A time that never passes. aiokafka leaves a group that fetches nothing for max_poll_interval; we join a group only to
learn our turns and fetch nothing through it."""


class KafkaBus:
    """Bus on Kafka, open within its context. fleet: the expected fleet id; "" accepts the log of any fleet."""

    def __init__(self, settings: KafkaSettings, fleet: str, source: str) -> None:
        self.settings = settings
        self.source = source
        self.access = load_kafka_access(settings.bootstrap, settings.security)
        self._wanted_fleet = fleet
        self._state = TopicsState("", {})
        self._usable: frozenset[internals.PrivatePoint] = frozenset()
        self._producer: Any = None
        self._opening = asyncio.Lock()
        self._in_flight = asyncio.Semaphore(settings.publishes_in_flight_max)
        self._change: asyncio.Future[str] = asyncio.Future()
        self._closing: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "KafkaBus":
        self._usable = internals.usable_points()
        does_retry = internals.TRANSACTION_RETRY in self._usable
        tune_aiokafka(self.settings.transaction_retry_seconds if does_retry else None)
        self._state = await self.retry_until(self.settings.start_seconds, self._read_log)
        if self._wanted_fleet and self._wanted_fleet != self.fleet_id:
            raise OtherFleet(f"this log is of fleet {self.fleet_id!r}, not of {self._wanted_fleet!r}")
        times = (self.settings.fleet_check_seconds, self.settings.request_seconds)
        self._change = asyncio.create_task(wait_for_log_change(self._state, self._read_log, *times))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._change.cancel()
        if self._producer is not None:
            self.close_later(self._producer.stop())
        if self._closing:
            await asyncio.wait(self._closing, timeout=self.settings.close_seconds)

    @property
    def fleet_id(self) -> str:
        return self._state.fleet

    async def wait_for_fleet_change(self) -> str:
        """Waits until the log belongs to another fleet or to none; returns the reason. The process must then stop."""
        return await asyncio.shield(self._change)

    def partition_count(self, topic: Topic) -> int:
        return self._state.partition_counts[topic.name]

    def topic_name(self, topic: Topic) -> str:
        return self.settings.topic_prefix + topic.name

    # ── Writing ──

    async def publish(self, *events: Event | Tombstone, traces: Traces | None = None) -> tuple[Position, ...]:
        records = [outgoing_record(event) for event in events]
        started = time.monotonic()
        producer: Any = None
        try:
            async with asyncio.timeout(self.settings.publish_seconds), self._in_flight:
                producer = await self.retry_until(self.settings.publish_seconds, self._open_producer)
                with trace_sending(records, traces, self.source) as told:
                    positions = await self.send_records(producer, told)
        except TimeoutError as error:
            # The producer is kept: records that it already has are written before later ones.
            raise BusUnavailable(f"not acknowledged within {self.settings.publish_seconds} s") from error
        except (KafkaError, OSError, AssertionError) as error:
            # After any other error aiokafka's producer cannot be used any more.
            if producer is not None and producer is self._producer:
                self._producer = None
                self.close_later(producer.stop())
            self.access.check_allowed(error, "write")
            raise BusUnavailable(f"not acknowledged: {error!r}") from error
        metrics.PUBLISH_SECONDS.observe(time.monotonic() - started)
        for position in positions:
            metrics.EVENTS_PUBLISHED.labels(position.topic).inc()
        return positions

    async def send_records(self, producer: Any, records: Sequence[Outgoing]) -> tuple[Position, ...]:
        """Sends all records in order, then waits for all acknowledgements. Raises aiokafka's errors. No deadline."""
        places = [(r, partition_of(r.address.partition_by, self.partition_count(r.address.topic))) for r in records]
        moment = datetime.now(UTC).isoformat()
        waiting = []
        for record, partition in places:
            headers = record_headers(record, self.fleet_id, self.source, str(uuid.uuid4()), moment)
            name = self.topic_name(record.address.topic)
            sent = await producer.send(name, record.value, record.key, partition, headers=list(headers))
            sent.add_done_callback(lambda done: done.cancelled() or done.exception())  # Else asyncio warns.
            waiting.append(sent)
        return tuple(
            Position(record.address.topic.name, partition, metadata.offset)
            for (record, partition), metadata in zip(places, await asyncio.gather(*waiting), strict=True)
        )

    async def _open_producer(self) -> Any:
        async with self._opening:
            if self._producer is None:
                self._producer = await self.start_producer(enable_idempotence=True)
            return self._producer

    async def start_producer(self, **options: Any) -> Any:
        producer = AIOKafkaProducer(
            **await self.access.client_arguments(),
            acks="all",
            linger_ms=0,
            max_request_size=RECORD_BYTES_MAX,
            request_timeout_ms=int(self.settings.request_seconds * 1000),
            **options,
        )
        return await self._start_client(producer)

    async def _start_client(self, client: Any) -> Any:
        try:
            await client.start()
        except BaseException as error:
            self.close_later(client.stop())
            if isinstance(error, AssertionError):
                # A broker that comes back lists no broker, not even itself, until it is admitted. aiokafka asserts that
                # there is one.
                raise KafkaConnectionError(str(error)) from error
            await self.access.raise_known_reason(error, "use")
            raise
        return client

    # ── Reading ──

    @contextlib.asynccontextmanager
    async def follow_topics(self, topics: Sequence[Topic], start: Offsets | None = None) -> AsyncIterator[Feed]:
        isolation = "read_committed" if any(topic.committed for topic in topics) else "read_uncommitted"
        async with (
            self._open_reader(isolation, topics) as consumer,
            self._open_reader("read_uncommitted", topics) as uncommitted,
        ):
            feed = KafkaFeed(self, consumer, uncommitted, topics, self._fetch_sessions_of(consumer))
            await self.retry_until(self.settings.start_seconds, lambda: feed.seek_to_start(start))
            with (
                metrics.TOPIC_LAG.collecting_values_from(feed.lag_by_topic),
                metrics.TOPIC_AGE.collecting_values_from(feed.age_seconds_by_topic),
            ):
                yield feed

    @contextlib.asynccontextmanager
    async def _open_reader(self, isolation: str, topics: Sequence[Topic]) -> AsyncIterator[Any]:
        consumer = await self.retry_until(self.settings.start_seconds, lambda: self._start_reader(isolation, topics))
        try:
            yield consumer
        finally:
            self.close_later(consumer.stop())

    async def _start_reader(self, isolation: str, topics: Sequence[Topic]) -> Any:
        consumer = AIOKafkaConsumer(
            **await self.access.client_arguments(),
            isolation_level=isolation,
            enable_auto_commit=False,
            auto_offset_reset="none",
            fetch_max_bytes=self.settings.fetch_bytes_max,
            max_partition_fetch_bytes=RECORD_BYTES_MAX,
            request_timeout_ms=int(self.settings.request_seconds * 1000),
            consumer_timeout_ms=int(
                self.settings.idle_fetch_seconds * 1000
            ),  # The longest wait of the fetching task before it looks at all partitions again.
        )
        await self._start_client(consumer)
        if internals.TOPICS_AT_ONCE in self._usable:
            await internals.request_topic_metadata(consumer, [self.topic_name(topic) for topic in topics])
        return consumer

    def _fetch_sessions_of(self, consumer: Any) -> SessionClient | None:
        """Returns the fetch sessions of a consumer. None if they are switched off, or not usable with this aiokafka."""
        if not self.settings.fetch_sessions or internals.FETCH_SESSIONS not in self._usable:
            return None
        idle_ms = int(self.settings.idle_fetch_seconds * 1000)
        sessions: SessionClient = internals.replace_fetch_client(
            consumer, lambda client: SessionClient(client, idle_ms, lambda place: place not in consumer.paused())
        )
        return sessions

    async def find_unmarked_partitions(self, topics: Sequence[Topic]) -> list[TopicPartition]:
        """Returns the partitions of a fenced writer's topics that end in records without a transaction mark."""
        async with self._open_both_readers(topics) as (committed, written):
            return await find_unmarked_partitions(
                committed, written, self._partitions_of(topics), self.settings.marks_seconds
            )

    async def wait_for_hidden_partitions(self, topics: Sequence[Topic]) -> list[TopicPartition]:
        """Waits until a writer's commits lack their marks for longer than hidden_seconds. Returns these partitions."""
        async with self._open_both_readers(topics) as (committed, written):
            return await wait_for_hidden_partitions(
                committed, written, self._partitions_of(topics), self.settings.hidden_seconds
            )

    @contextlib.asynccontextmanager
    async def _open_both_readers(self, topics: Sequence[Topic]) -> AsyncIterator[tuple[Any, Any]]:
        """Opens a reader of committed records and a reader of all records."""
        async with (
            self._open_reader("read_committed", topics) as committed,
            self._open_reader("read_uncommitted", topics) as written,
        ):
            yield committed, written

    def _partitions_of(self, topics: Sequence[Topic]) -> list[TopicPartition]:
        return [TopicPartition(self.topic_name(one), n) for one in topics for n in range(self.partition_count(one))]

    # ── Turns ──

    def join_cluster_group(self, service: str, instance: str) -> AbstractAsyncContextManager[AsyncIterator[Assignment]]:
        group = cluster_group(self.fleet_id, service)
        return self._hold_membership(group, CLUSTERS, instance, self.settings.cluster_session_seconds)

    @contextlib.asynccontextmanager
    async def join_standby_group(self, service: str, instance: str) -> AsyncIterator[StandbyTurn]:
        topic = CLAIM_TOPIC_BY_SERVICE[service]
        group, session_seconds = standby_group(self.fleet_id, service), self.settings.session_seconds
        async with self._hold_membership(group, topic, instance, session_seconds) as member:
            turn = KafkaStandbyTurn(self, service, instance, member)
            try:
                yield turn
            finally:
                turn.close_writer("the turn was given up")

    @contextlib.asynccontextmanager
    async def _hold_membership(
        self, group: str, topic: Topic, instance: str, session_seconds: float
    ) -> AsyncIterator[GroupMember]:
        async def join(seat: GroupSeat) -> None:
            await self.retry_until(
                self.settings.start_seconds, lambda: self._join_group(seat, group, topic, instance, session_seconds)
            )

        settings, says_good_bye = self.settings, internals.GOOD_BYE in self._usable
        member = GroupMember(group, self.partition_count(topic), settings.let_go_seconds, join)
        await member.join_group()
        staying = asyncio.create_task(
            member.stay_in_group(settings.heartbeat_seconds, settings.retry_seconds_max, self.close_later)
        )
        try:
            yield member
        finally:
            staying.cancel()
            member.set_partitions(frozenset())
            if member.seat is not None and member.seat.consumer is not None:
                # Leaving gives its turns away at once, also when this instance joins again as a new life.
                leaving = self.close_later(member.seat.leave_group(says_good_bye))
                await asyncio.wait([leaving], timeout=self.settings.close_seconds)

    async def _join_group(
        self, seat: GroupSeat, group: str, topic: Topic, instance: str, session_seconds: float
    ) -> None:
        seat.consumer = consumer = AIOKafkaConsumer(
            **await self.access.client_arguments(),
            group_id=group,
            group_instance_id=instance,
            session_timeout_ms=int(session_seconds * 1000),
            heartbeat_interval_ms=int(self.settings.heartbeat_seconds * 1000),
            max_poll_interval_ms=_NEVER_IDLE_MS,
            enable_auto_commit=False,
            auto_offset_reset="latest",
            partition_assignment_strategy=(seat.assignor,),
            request_timeout_ms=int((session_seconds + self.settings.request_seconds) * 1000),  # A join waits so long.
        )
        consumer.subscribe([self.topic_name(topic)], listener=seat)
        await self._start_client(consumer)

    # ── The log itself ──

    async def _read_log(self) -> TopicsState:
        async with LogReader(self.access, self.settings.topic_prefix) as reader:
            return await reader.read_topics_state()

    async def retry_until(self, seconds: float, attempt: Callable[[], Awaitable[T]]) -> T:
        """Calls attempt until it succeeds and returns its answer. Raises BusUnavailable after `seconds`."""
        return await keep_trying(attempt, seconds, self.settings.retry_seconds, self.settings.retry_seconds_max)

    def close_later(self, stop: Awaitable[None]) -> asyncio.Task[None]:
        async def stop_quietly() -> None:
            with contextlib.suppress(*WORLD, AssertionError):
                await stop

        task = asyncio.create_task(stop_quietly())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        return task


class KafkaWriter:
    """One transactional producer. It cannot be used after its first error."""

    def __init__(self, bus: KafkaBus, producer: Any) -> None:
        self._bus = bus
        self._producer = producer
        self._one_at_a_time = asyncio.Lock()
        self._over = ""
        self.turn_epoch = -1

    async def take_turn(self, turn: TurnTaken, unmarked: Sequence[TopicPartition]) -> None:
        """Writes the claim of a turn. unmarked: partitions whose open end gets the mark of this transaction, too."""
        self.turn_epoch = (await self._write_transaction([outgoing_record(turn)], unmarked))[0].offset

    async def write_events(self, events: Sequence[Event | Tombstone | Outgoing], traces: Traces | None = None) -> None:
        """Writes events in one transaction. Raises ValueError for an event that is too large; then nothing is sent."""
        with trace_sending([outgoing_record(event) for event in events], traces, self._bus.source) as records:
            await self._write_transaction(records)

    async def _write_transaction(
        self, records: Sequence[Outgoing], unmarked: Sequence[TopicPartition] = ()
    ) -> tuple[Position, ...]:
        async with self._one_at_a_time:
            if self._over:
                raise OutcomeUnknown(f"this writer is over: {self._over}")
            self._over = "a write did not end"
            try:
                async with asyncio.timeout(self._bus.settings.write_seconds):
                    await self._producer.begin_transaction()
                    internals.add_partitions_to_transaction(self._producer, unmarked)
                    positions = await self._bus.send_records(self._producer, records)
                    await self._producer.commit_transaction()
            except Exception as error:
                self._over = repr(error)
                self._bus.access.check_allowed(error, "write")
                raise OutcomeUnknown(self._over) from error
            self._over = ""
            return positions

    def close(self, reason: str) -> None:
        self._over = self._over or reason
        self._bus.close_later(self._producer.stop())


class KafkaStandbyTurn:
    """The turn of a standby service: the one partition of its turns topic, and the writer that belongs to it."""

    def __init__(self, bus: KafkaBus, service: str, instance: str, member: GroupMember) -> None:
        self._bus = bus
        self._service = service
        self._instance = instance
        self._member = member
        self._writer: KafkaWriter | None = None

    async def wait_for_turn(self) -> Writer:
        while True:
            self.close_writer("the turn is taken anew")
            await self._member.wait_until_holding(holds=True)
            with contextlib.suppress(OutcomeUnknown, *WORLD):
                return await self._take_turn()
            await asyncio.sleep(self._bus.settings.retry_seconds)

    async def wait_until_lost(self) -> None:
        """Returns when the turn is over. Hidden commits also end it, because the next writer writes their marks.

        A commit is hidden when its mark is missing: readers of committed records stop before it.
        """
        ends = {
            asyncio.create_task(self._member.wait_until_holding(holds=False)),
            asyncio.create_task(self._wait_for_hidden_commits()),
        }
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()

    async def _wait_for_hidden_commits(self) -> None:
        while True:
            try:
                places = await self._bus.wait_for_hidden_partitions(self._topics_of_service())
            except (BusUnavailable, *WORLD):
                await asyncio.sleep(self._bus.settings.retry_seconds_max)
            else:
                log.warning(
                    "commits are hidden for too long: this instance gives up its turn",
                    places=[f"{one[0]}/{one[1]}" for one in places],
                )
                return

    def _topics_of_service(self) -> list[Topic]:
        return [topic for topic in TOPICS if topic.emitter == self._service]

    async def _take_turn(self) -> Writer:
        async with asyncio.timeout(self._bus.settings.write_seconds):
            producer = await self._bus.start_producer(
                transactional_id=transactional_id(self._bus.settings.topic_prefix, self._bus.fleet_id, self._service),
                transaction_timeout_ms=int(self._bus.settings.transaction_seconds * 1000),
            )
        self._writer = KafkaWriter(self._bus, producer)
        # Before anything is read: commits without a mark become visible now, and not at some later commit.
        unmarked = await self._bus.find_unmarked_partitions(self._topics_of_service())
        await self._writer.take_turn(TurnTaken(self._service, "", self._instance), unmarked)
        return self._writer

    def close_writer(self, reason: str) -> None:
        if self._writer is not None:
            self._writer.close(reason)
            self._writer = None
