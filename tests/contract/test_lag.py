"""What waits for a consumer group, as a real Kafka tells it; and that what is not told is unknown, never empty."""

import asyncio
import json
import secrets
import signal
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from hpa.external_metrics.collecting import CollectingSettings, MetricCollection
from hpa.external_metrics.connections import KafkaConnection, NamedConnections
from hpa.external_metrics.lag import KafkaLag, LagSettings, LagUnknown
from spillway.events_scaling import BacklogObserved, PartitionBacklog, ScalePolicyDeclared
from spillway.model import Generation
from spillway_local.kafka_server import PORTS_PER_NODE, KafkaServer
from spillway_local.ports import session_port
from spillway_local.programs import ChildProcess, start_child

pytest_plugins = ["spillway_local.pytest_infra"]
pytestmark = pytest.mark.kafka

AT_MS = 1_767_225_600_000
PATIENCE_SECONDS = 60.0


class OtherKafka:
    """Somebody's topics, records and groups, under names of their own."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.prefix = secrets.token_hex(4)

    def prefixed_name(self, name: str) -> str:
        return f"{self.prefix}.{name}"

    async def create_topic(self, topic: str, partitions: int = 3) -> str:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        await admin.start()
        try:
            await admin.create_topics([NewTopic(self.prefixed_name(topic), partitions, 1)])
        finally:
            await admin.close()
        return self.prefixed_name(topic)

    async def existing_topics(self) -> set[str]:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        await admin.start()
        try:
            return {topic for topic in await admin.list_topics() if topic.startswith(self.prefix)}
        finally:
            await admin.close()

    async def write_records_at(self, topic: str, partition: int, *at_ms: int) -> None:
        """One record, in a batch of its own, for each time."""
        producer = AIOKafkaProducer(bootstrap_servers=self.bootstrap)
        await producer.start()
        try:
            for moment in at_ms:
                await producer.send_and_wait(topic, b"x", partition=partition, timestamp_ms=moment)
        finally:
            await producer.stop()

    async def commit_offsets(self, group: str, topic: str, **offsets: int) -> None:
        """offsets: p<partition>=<the next to be read>."""
        consumer = AIOKafkaConsumer(bootstrap_servers=self.bootstrap, group_id=group, enable_auto_commit=False)
        await consumer.start()
        try:
            places = {TopicPartition(topic, int(name[1:])): offset for name, offset in offsets.items()}
            consumer.assign(list(places))
            await consumer.commit(places)
        finally:
            await consumer.stop()


@pytest.fixture
def kafka(kafka_bootstrap: str) -> OtherKafka:
    return OtherKafka(kafka_bootstrap)


@pytest.fixture
async def door(kafka: OtherKafka) -> AsyncIterator[KafkaLag]:
    made = KafkaLag(KafkaConnection(tuple(kafka.bootstrap.split(","))), LagSettings(answer_seconds=20.0))
    yield made
    await made.close()


async def test_each_partition_tells_its_ends_and_its_oldest_unread_record(kafka: OtherKafka, door: KafkaLag) -> None:
    topic, group = await kafka.create_topic("t"), kafka.prefixed_name("g")
    await kafka.write_records_at(topic, 0, AT_MS, AT_MS + 1_000, AT_MS + 2_000)
    await kafka.write_records_at(topic, 1, AT_MS + 5_000)
    await kafka.commit_offsets(group, topic, p0=1, p1=1)
    assert await door.backlog(group, topic) == (
        PartitionBacklog(topic, 0, 3, 1, AT_MS + 1_000),
        PartitionBacklog(topic, 1, 1, 1, 0),
        PartitionBacklog(topic, 2, 0, -1, 0),
    )
    await kafka.commit_offsets(group, topic, p0=2)
    await kafka.write_records_at(topic, 1, AT_MS + 9_000)
    assert (await door.backlog(group, topic))[:2] == (
        PartitionBacklog(topic, 0, 3, 2, AT_MS + 2_000),
        PartitionBacklog(topic, 1, 2, 1, AT_MS + 9_000),
    )


async def test_records_of_one_batch_are_as_old_as_its_first(kafka: OtherKafka, door: KafkaLag) -> None:
    """The price of reading no record: an age is at most a batch too high."""
    topic, group = await kafka.create_topic("t", 1), kafka.prefixed_name("g")
    producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap)
    await producer.start()
    batch = producer.create_batch()
    for after_ms in (0, 10, 20):
        batch.append(key=None, value=b"x", timestamp=AT_MS + after_ms)
    await (await producer.send_batch(batch, topic, partition=0))
    await producer.stop()
    await kafka.commit_offsets(group, topic, p0=2)
    assert await door.backlog(group, topic) == (PartitionBacklog(topic, 0, 3, 2, AT_MS),)


async def test_a_group_without_offsets_has_none(kafka: OtherKafka, door: KafkaLag) -> None:
    topic = await kafka.create_topic("t", 2)
    await kafka.write_records_at(topic, 1, AT_MS)
    found = await door.backlog(kafka.prefixed_name("nobody"), topic)
    assert found == (PartitionBacklog(topic, 0, 0, -1, 0), PartitionBacklog(topic, 1, 1, -1, 0))


async def test_without_a_topic_all_that_the_group_has_read_count(kafka: OtherKafka, door: KafkaLag) -> None:
    first, second, group = await kafka.create_topic("a", 1), await kafka.create_topic("b", 1), kafka.prefixed_name("g")
    await kafka.create_topic("c", 1)
    await kafka.commit_offsets(group, first, p0=0)
    await kafka.commit_offsets(group, second, p0=0)
    await kafka.write_records_at(second, 0, AT_MS)
    found = await door.backlog(group, "")
    assert found == (PartitionBacklog(first, 0, 0, 0, 0), PartitionBacklog(second, 0, 1, 0, AT_MS))
    assert await door.backlog(kafka.prefixed_name("nobody"), "") == ()


async def test_a_record_that_was_deleted_unread_has_no_age(kafka: OtherKafka, door: KafkaLag) -> None:
    from aiokafka.admin import RecordsToDelete

    topic, group = await kafka.create_topic("t", 1), kafka.prefixed_name("g")
    await kafka.write_records_at(topic, 0, AT_MS, AT_MS, AT_MS)
    await kafka.commit_offsets(group, topic, p0=0)
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    await admin.start()
    await admin.delete_records({TopicPartition(topic, 0): RecordsToDelete(before_offset=2)})
    await admin.close()
    assert await door.backlog(group, topic) == (PartitionBacklog(topic, 0, 3, 0, 0),)


async def test_questions_at_one_time_do_not_mix(kafka: OtherKafka, door: KafkaLag) -> None:
    topics = [await kafka.create_topic(f"t{index}", 1) for index in range(6)]
    for index, topic in enumerate(topics):
        await kafka.write_records_at(topic, 0, *[AT_MS] * index)
    found = await asyncio.gather(*(door.backlog(kafka.prefixed_name("g"), topic) for topic in topics))
    assert [rows[0].latest for rows in found] == list(range(6))


async def test_a_policys_queue_is_published_with_its_partitions(kafka: OtherKafka) -> None:
    topic, group = await kafka.create_topic("t", 2), kafka.prefixed_name("g")
    await kafka.write_records_at(topic, 1, AT_MS)
    await kafka.commit_offsets(group, topic, p1=0)
    servers = tuple(kafka.bootstrap.split(","))
    trigger = {"bootstrapServers": kafka.bootstrap, "consumerGroup": group, "topic": topic}
    spec = {"scaleTargetRef": {"name": "web"}, "triggers": [{"type": "kafka", "metadata": trigger}]}
    manifest = {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": {"name": "p"}, "spec": spec}
    text = json.dumps(manifest).encode()
    published: asyncio.Queue[object] = asyncio.Queue()
    connections = NamedConnections(kafka={"orders": KafkaConnection(servers)})
    collecting = MetricCollection(
        published.put, connections, CollectingSettings(answer_seconds=20.0), lambda: 7, Random(1)
    )
    collecting.start_questions(ScalePolicyDeclared("default", "web", Generation(1, 1), "ScaledObject", "p", text, 0))
    running = asyncio.create_task(collecting.run())
    async with asyncio.timeout(PATIENCE_SECONDS):
        first = await published.get()
    running.cancel()
    await asyncio.wait([running])
    partitions = PartitionBacklog(topic, 0, 0, -1, 0), PartitionBacklog(topic, 1, 1, 0, AT_MS)
    assert first == BacklogObserved("default", "web", "orders", group, topic, partitions, 7, "hpa", "")


async def test_a_broker_that_is_not_there_is_unknown() -> None:
    door = KafkaLag(KafkaConnection(("127.0.0.1:1",)), LagSettings(answer_seconds=20.0))
    with pytest.raises(LagUnknown, match="Unable to bootstrap"):
        await door.backlog("g", "t")


@pytest.mark.parametrize(
    ("connection", "why"),
    [
        pytest.param(
            KafkaConnection(("127.0.0.1:1",), "SASL_PLAINTEXT", password_file="/nowhere/secret"),
            "/nowhere/secret",
            id="password",
        ),
        pytest.param(KafkaConnection(("127.0.0.1:1",), "SSL", ca_file="/nowhere/ca"), "No such file", id="ca"),
    ],
)
async def test_a_file_that_is_missing_is_named(connection: KafkaConnection, why: str) -> None:
    with pytest.raises(LagUnknown, match=why):
        await KafkaLag(connection, LagSettings()).backlog("g", "t")


# ── A broker that can be hurt, and that would make a topic for whoever asks for one ─────────────────────────────────


@dataclass(frozen=True, slots=True)
class Generous(KafkaServer):
    def settings(self) -> dict[str, str | int]:
        return {**KafkaServer.settings(self), "auto.create.topics.enable": "true"}


class Broker:
    def __init__(self, folder: Path) -> None:
        self.server = Generous(folder, session_port(count=PORTS_PER_NODE))
        self.process = self._start_process()

    def _start_process(self) -> ChildProcess:
        child = start_child(self.server.prepare_program(), self.server.folder / "kafka.log")
        child.wait_ready(self.server.is_ready, 60.0)
        return child

    def stop(self) -> None:
        self.process.stop(30.0)

    def start_again(self) -> None:
        self.process = self._start_process()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    made = Broker(tmp_path)
    yield made
    made.process.process.send_signal(signal.SIGCONT)
    made.stop()


async def first_backlogs(door: KafkaLag, group: str, topic: str) -> tuple[PartitionBacklog, ...]:
    """The first answer; a broker that just started does not know its groups for a while, and says so."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                return await door.backlog(group, topic)
            except LagUnknown:
                await asyncio.sleep(0.2)


async def test_a_broker_that_goes_is_unknown_and_known_again(broker: Broker) -> None:
    """Stopped, frozen and back: never an empty queue, never another offset; and no topic is made by asking."""
    kafka = OtherKafka(broker.server.bootstrap_servers)
    topic, group = await kafka.create_topic("t", 1), kafka.prefixed_name("g")
    await kafka.write_records_at(topic, 0, AT_MS, AT_MS + 1_000)
    await kafka.commit_offsets(group, topic, p0=1)
    waiting = (PartitionBacklog(topic, 0, 2, 1, AT_MS + 1_000),)
    door = KafkaLag(KafkaConnection((kafka.bootstrap,)), LagSettings(answer_seconds=3.0))
    assert await first_backlogs(door, group, topic) == waiting
    with pytest.raises(LagUnknown, match="does not exist"):
        await door.backlog(group, kafka.prefixed_name("missing"))
    assert await kafka.existing_topics() == {topic}

    await asyncio.to_thread(broker.stop)
    for _ in range(3):
        with pytest.raises(LagUnknown):
            await door.backlog(group, topic)
    await asyncio.to_thread(broker.start_again)
    assert await first_backlogs(door, group, topic) == waiting

    broker.process.process.send_signal(signal.SIGSTOP)
    with pytest.raises(LagUnknown):
        await door.backlog(group, topic)
    broker.process.process.send_signal(signal.SIGCONT)
    assert await first_backlogs(door, group, topic) == waiting
    await door.close()
