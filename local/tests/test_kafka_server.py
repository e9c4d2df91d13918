"""A Kafka node's settings, and a real broker that keeps its log across a restart."""

import asyncio
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import UnknownTopicOrPartitionError

from spillway_local.kafka_server import PORTS_PER_NODE, KafkaServer, kafka_cluster
from spillway_local.ports import session_port
from spillway_local.programs import start_child


@pytest.mark.parametrize(
    ("nodes", "setting", "value"),
    [
        pytest.param(1, "controller.quorum.voters", "1@127.0.0.1:21001", id="one votes alone"),
        pytest.param(1, "min.insync.replicas", 1, id="one copy of one node"),
        pytest.param(1, "auto.create.topics.enable", "false", id="topics are made on purpose"),
        pytest.param(1, "message.max.bytes", 2097152, id="messages of 2 MiB"),
        pytest.param(1, "group.min.session.timeout.ms", 1000, id="short group sessions"),
        pytest.param(3, "node.id", 1, id="first of three"),
        pytest.param(
            3, "controller.quorum.voters", "1@127.0.0.1:21001,2@127.0.0.1:21011,3@127.0.0.1:21021", id="three vote"
        ),
        pytest.param(3, "offsets.topic.replication.factor", 3, id="three copies"),
        pytest.param(3, "min.insync.replicas", 2, id="one of three may fail"),
    ],
)
def test_settings(nodes: int, setting: str, value: str | int) -> None:
    ports = tuple(21000 + 10 * node for node in range(nodes))
    assert kafka_cluster(Path("/data"), ports)[0].settings()[setting] == value


def test_all_listeners_are_on_loopback() -> None:
    settings = KafkaServer(Path("/data"), 21000).settings()
    assert settings["listeners"] == "PLAINTEXT://127.0.0.1:21000,CONTROLLER://127.0.0.1:21001"


def test_clients_of_a_cluster_begin_at_every_node() -> None:
    assert [server.bootstrap_servers for server in kafka_cluster(Path("/data"), (21000, 21010))] == [
        "127.0.0.1:21000,127.0.0.1:21010"
    ] * 2


@pytest.mark.kafka
async def test_a_restart_after_kill_keeps_the_log(tmp_path: Path) -> None:
    server = KafkaServer(tmp_path / "kafka", session_port(count=PORTS_PER_NODE))
    child = start_child(server.prepare_program(), tmp_path / "kafka.log")
    try:
        child.wait_ready(server.is_ready, 30.0)
        await _create_topic(server.bootstrap_servers, "kept")
        await _send(server.bootstrap_servers, "kept", b"bread")
        child.kill()
        child = start_child(server.prepare_program(), tmp_path / "kafka.log")
        child.wait_ready(server.is_ready, 30.0)
        assert await _first_value(server.bootstrap_servers, "kept") == b"bread"
    finally:
        child.stop()


@pytest.mark.kafka
async def test_topics_are_not_made_by_asking(kafka_bootstrap: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka_bootstrap)
    await admin.start()
    try:
        described = await admin.describe_topics(["never-created"])
        assert described[0]["error_code"] == UnknownTopicOrPartitionError.errno
    finally:
        await admin.close()


async def _create_topic(bootstrap: str, topic: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])
    finally:
        await admin.close()


async def _send(bootstrap: str, topic: str, value: bytes) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all")
    await producer.start()
    try:
        await asyncio.wait_for(producer.send_and_wait(topic, value), 20)
    finally:
        await producer.stop()


async def _first_value(bootstrap: str, topic: str) -> bytes:
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    try:
        record = await asyncio.wait_for(consumer.getone(), 20)
        assert record.value is not None
        return record.value
    finally:
        await consumer.stop()
