"""The two logs that the promises of the bus are asked of, and how to read one whole."""

import asyncio
import contextlib
import dataclasses
import secrets
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.errors import PolicyViolationError

from spillway.addresses import CLUSTERS, EVENTS_BY_TOPIC, TOPICS, Topic
from spillway.bus import (
    Bus,
    Feed,
    Headers,
    Record,
    RecordBatch,
    has_reached_ends,
    partition_of,
)
from spillway.events import CapacityChanged, ClusterLeft, Event, TurnTaken
from spillway.kafka.access import load_kafka_access
from spillway.kafka.bus import KafkaBus, KafkaSettings
from spillway.kafka.topics import TopicSettings, ensure_topics
from spillway.local_bus import LocalBroker, LocalBus, LocalSettings
from spillway.wire import TYPE_PREFIX, decode_event, event_type

DEADLINE_SECONDS = 60.0
LETTERS_MAX = 20


class Harness(Protocol):
    """Opens buses on one log, and reaches behind them."""

    fleet: str

    async def open_bus(self, source: str, fleet: str = "") -> Any: ...
    async def close_bus(self, bus: Any) -> None: ...
    async def write_raw_record(
        self, topic: Topic, key: bytes | None, value: bytes | None, headers: Headers
    ) -> None: ...
    async def compact_log_once(self, bus: Bus) -> None: ...
    async def delete_records_before(self, topic: Topic, partition: int, offset: int) -> None: ...
    async def form_log_again(self) -> None: ...


class LocalHarness:
    def __init__(self) -> None:
        self.fleet = "test-00000001"
        self.broker = LocalBroker(
            LocalSettings(partitions_cluster=4, partitions_workload=2, dead_letters_per_minute_max=LETTERS_MAX)
        )
        self.broker.form_log(self.fleet)

    async def open_bus(self, source: str, fleet: str = "") -> LocalBus:
        return LocalBus(self.broker, fleet, source)

    async def close_bus(self, bus: LocalBus) -> None:
        await bus.__aexit__(None, None, None)

    async def write_raw_record(self, topic: Topic, key: bytes | None, value: bytes | None, headers: Headers) -> None:
        self.broker.append_raw_record(topic, 0, key, value, headers)

    async def compact_log_once(self, bus: Bus) -> None:
        self.broker.compact_topics(honour_lag=False)

    async def delete_records_before(self, topic: Topic, partition: int, offset: int) -> None:
        self.broker.delete_records_before(topic, partition, offset)

    async def form_log_again(self) -> None:
        self.broker.recreate_log("other-00000002")


class KafkaHarness:
    def __init__(self, bootstrap: str) -> None:
        self.topics = TopicSettings(
            topic_prefix=f"{secrets.token_hex(4)}.", partitions_cluster=4, partitions_workload=2
        )
        self.settings = KafkaSettings(
            bootstrap=bootstrap,
            topic_prefix=self.topics.topic_prefix,
            dead_letters_per_minute_max=LETTERS_MAX,
            heartbeat_seconds=0.3,
            fleet_check_seconds=0.5,
        )
        self.access = load_kafka_access(bootstrap, self.settings.security)
        self.stack = contextlib.AsyncExitStack()
        self.fleet = ""
        self.buses: list[KafkaBus] = []

    async def form_log(self) -> None:
        self.fleet = await ensure_topics(self.access, self.topics, "test")

    async def open_bus(self, source: str, fleet: str = "") -> KafkaBus:
        bus = KafkaBus(self.settings, fleet, source)
        await bus.__aenter__()
        self.buses.append(bus)
        return bus

    async def close_bus(self, bus: KafkaBus) -> None:
        self.buses.remove(bus)
        await bus.__aexit__(None, None, None)

    async def open_raw_producer(self, **options: Any) -> Any:
        producer = AIOKafkaProducer(bootstrap_servers=self.settings.bootstrap, max_request_size=4_000_000, **options)
        return await self.stack.enter_async_context(producer)

    async def write_raw_record(self, topic: Topic, key: bytes | None, value: bytes | None, headers: Headers) -> None:
        producer = await self.open_raw_producer()
        await producer.send_and_wait(self.topics.topic_prefix + topic.name, value, key, 0, headers=list(headers))

    async def compact_log_once(self, bus: Bus) -> None:
        """Compaction spares the newest segment, so it needs writes that go on in the same partition."""
        place = partition_of("a", self.topics.partitions_cluster)
        names = (f"filler{index}" for index in range(1000))
        filler = next(name for name in names if partition_of(name, self.topics.partitions_cluster) == place)
        async with asyncio.timeout(DEADLINE_SECONDS):
            while len([record for record in await read_to_current_end(bus, [CLUSTERS]) if record.key == "a"]) > 1:
                await bus.publish(ClusterLeft(filler))

    async def delete_records_before(self, topic: Topic, partition: int, offset: int) -> None:
        """As retention does it, only at once. ValueError: the broker refuses it."""
        place = TopicPartition(self.topics.topic_prefix + topic.name, partition)
        admin = AIOKafkaAdminClient(bootstrap_servers=self.settings.bootstrap)
        await admin.start()
        try:
            await admin.delete_records({place: RecordsToDelete(before_offset=offset)})
        except PolicyViolationError as error:
            raise ValueError(str(error)) from error
        finally:
            await admin.close()

    async def form_log_again(self) -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.settings.bootstrap)
        await admin.start()
        await admin.delete_topics([self.topics.topic_prefix + topic.name for topic in TOPICS])
        await admin.close()

    async def close(self) -> None:
        for bus in list(self.buses):
            await self.close_bus(bus)
        await self.stack.aclose()
        await self.form_log_again()


async def collect_records(feed: Feed, enough: Callable[[list[Record], RecordBatch], bool]) -> list[Record]:
    records: list[Record] = []
    async with asyncio.timeout(DEADLINE_SECONDS):
        async for batch in feed:
            records += batch.records
            if enough(records, batch):
                break
    return records


async def read_to_current_end(bus: Bus, topics: Sequence[Topic]) -> list[Record]:
    async with bus.follow_topics(topics) as feed:
        ends = await feed.end_offsets()
        return await collect_records(feed, lambda _, batch: has_reached_ends(batch.positions, ends))


def record_headers(event: Event | None, fleet: str) -> Headers:
    kind = (("ce_type", event_type(event).encode()),) if event else ()
    return (*kind, ("fleet", fleet.encode()))


def capacity_changed(cluster: str, sequence: int, columns: bytes = b"") -> CapacityChanged:
    return CapacityChanged(cluster, 0, 0, sequence, -1, columns, (), (), (), "")


def any_event_on(topic: Topic) -> Event:
    """One that can be read on the topic, with a word in every text."""
    kind = EVENTS_BY_TOPIC[topic.name][0]
    if kind is TurnTaken:
        return TurnTaken(topic.emitter, "", "fine")
    empty = decode_event(topic.name, TYPE_PREFIX + kind.__name__, b"")
    words = {field.name: "fine" for field in dataclasses.fields(empty) if field.type is str}
    return dataclasses.replace(empty, **words)  # type: ignore[arg-type]
