"""Other people's brokers that are silent or odd: their queues are unknown, and known again, and no other is."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace

import pytest
from aiokafka.client import AIOKafkaClient
from aiokafka.conn import AIOKafkaConnection
from aiokafka.errors import NotLeaderForPartitionError

from hpa.external_metrics.connections import KafkaConnection
from hpa.external_metrics.lag import KafkaLag, LagSettings, LagUnknown
from spillway.events_scaling import PartitionBacklog

from .odd_kafka import (
    COMMITTED,
    COORDINATOR,
    FETCH,
    GROUP_OFFSETS,
    HEAD,
    LATEST,
    METADATA,
    OFFSETS,
    SPOKEN,
    run_odd_kafka,
)

SETTINGS = LagSettings(answer_seconds=2.5)
FLOOD_MOST = 32 * 2**20
"""The most bytes that a flooding broker of these tests sends."""


@dataclass
class Flood:
    """A broker that announces a frame of some size for each request, and sends zeros. taken: bytes that were taken."""

    size: int
    port: int = 0
    taken: int = 0

    async def serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        zeros = bytes(2**16)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            _, _, correlation = HEAD.unpack_from(await reader.readexactly(size))
            writer.write(struct.pack(">ii", self.size, correlation))
            while self.taken < FLOOD_MOST:
                writer.write(zeros)
                await writer.drain()
                self.taken += len(zeros)
        writer.close()


@asynccontextmanager
async def run_flood(size: int) -> AsyncIterator[Flood]:
    flood = Flood(size)
    async with await asyncio.start_server(flood.serve_connection, "127.0.0.1", 0) as server:
        flood.port = server.sockets[0].getsockname()[1]
        yield flood


def expected_backlog(topic: str) -> tuple[PartitionBacklog, ...]:
    return (PartitionBacklog(topic, 0, LATEST, COMMITTED, 0),)


async def test_a_connection_that_went_dead_is_opened_anew() -> None:
    """Nobody says that it is dead: no packet comes."""
    async with run_odd_kafka() as kafka:
        door = KafkaLag(KafkaConnection(kafka.bootstrap_servers), SETTINGS)
        assert await door.backlog("g", "t1") == expected_backlog("t1")
        kafka.nodes[0].go_silent()
        with pytest.raises(LagUnknown, match="RequestTimedOut"):
            await door.backlog("g", "t1")
        assert await door.backlog("g", "t1") == expected_backlog("t1")
        await door.close()


@pytest.mark.parametrize("request_key", [COORDINATOR, GROUP_OFFSETS, METADATA, OFFSETS, FETCH])
async def test_a_broker_of_other_versions_is_unknown_until_it_speaks_ours(request_key: int) -> None:
    async with run_odd_kafka() as kafka:
        door = KafkaLag(KafkaConnection(kafka.bootstrap_servers), SETTINGS)
        kafka.spoken = SPOKEN | {request_key: (90, 99)}
        for _ in range(2):
            with pytest.raises(LagUnknown):
                await door.backlog("g", "t1")
        kafka.spoken = SPOKEN
        assert await door.backlog("g", "t1") == expected_backlog("t1")
        await door.close()


async def test_a_broker_that_says_a_port_that_no_machine_has_is_unknown() -> None:
    async with run_odd_kafka() as kafka:
        door = KafkaLag(KafkaConnection(kafka.bootstrap_servers), SETTINGS)
        kafka.port_said = 99_999
        with pytest.raises(LagUnknown, match="OverflowError"):
            await door.backlog("g", "t1")
        await door.close()


async def test_a_silent_broker_takes_no_other_brokers_queues_away() -> None:
    async with run_odd_kafka(nodes=2) as kafka:
        door = KafkaLag(KafkaConnection(kafka.bootstrap_servers), SETTINGS)
        assert await door.backlog("g", "t1") == expected_backlog("t1")
        assert await door.backlog("g", "t2") == expected_backlog("t2")
        opened = kafka.nodes[0].opened
        kafka.nodes[1].silent_to = 1_000
        for _ in range(2):
            found = await asyncio.gather(door.backlog("g", "t2"), door.backlog("g", "t1"), return_exceptions=True)
            assert isinstance(found[0], LagUnknown)
            assert found[1] == expected_backlog("t1")
        assert kafka.nodes[0].opened == opened
        await door.close()


@pytest.mark.parametrize("size", [2**31 - 1, SETTINGS.frame_bytes_max + 1, -1, -(2**31)])
async def test_a_frame_outside_its_bound_is_not_read(size: int) -> None:
    """What was taken of it lies in buffers of sockets: a few MiB on loopback, for two connections."""
    async with run_flood(size) as flood:
        door = KafkaLag(KafkaConnection((f"127.0.0.1:{flood.port}",)), SETTINGS)
        with pytest.raises(LagUnknown, match=f"a frame of {size} bytes: expected 0 to {SETTINGS.frame_bytes_max}"):
            await door.backlog("g", "t1")
        assert flood.taken < FLOOD_MOST / 2
        await door.close()


async def test_frames_of_other_clients_keep_their_size() -> None:
    """The bound is for other people's Kafka alone, not for the log in the same process."""
    async with run_odd_kafka() as kafka:
        door = KafkaLag(KafkaConnection(kafka.bootstrap_servers), LagSettings(answer_seconds=2.5, frame_bytes_max=10))
        with pytest.raises(LagUnknown, match="expected 0 to 10"):
            await door.backlog("g", "t1")
        client = AIOKafkaClient(bootstrap_servers=kafka.bootstrap_servers[0])
        await client.bootstrap()
        await client.close()
        await door.close()


async def test_a_kafka_is_unknown_and_not_asked_where_its_frames_cannot_be_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As with another version of aiokafka, whose connections do not read by the function that is replaced."""
    monkeypatch.setattr(AIOKafkaConnection, "_create_reader_task", lambda _: None)
    async with run_odd_kafka() as kafka:
        door = KafkaLag(KafkaConnection(kafka.bootstrap_servers), SETTINGS)
        with pytest.raises(LagUnknown, match="point 8 of docs/adr/0036"):
            await door.backlog("g", "t1")
        assert kafka.nodes[0].opened == 0
        await door.close()


async def test_a_batch_larger_than_a_frame_costs_its_time_alone() -> None:
    async with run_odd_kafka() as kafka:
        door = KafkaLag(
            KafkaConnection(kafka.bootstrap_servers), LagSettings(answer_seconds=2.5, frame_bytes_max=1_000)
        )
        kafka.batch = bytes(1_000)
        assert await door.backlog("g", "t1") == expected_backlog("t1")
        await door.close()


async def test_some_leaders_are_asked_at_the_same_time_and_few_connections_are_kept() -> None:
    settings = LagSettings(answer_seconds=10.0, connections_max=20)
    async with run_odd_kafka() as kafka:
        kafka.more_brokers = kafka.partitions = 48
        kafka.slow_seconds = 0.2
        door = KafkaLag(KafkaConnection(kafka.bootstrap_servers), settings)
        assert len(await door.backlog("g", "t1")) == kafka.partitions
        assert 1 < kafka.asked_at_once <= settings.leaders_at_once
        async with asyncio.timeout(5.0):
            while kafka.open_now > settings.connections_max:
                await asyncio.sleep(0.01)
        assert await door.backlog("g", "t1")
        await door.close()


async def test_nobody_more_is_asked_once_one_leader_failed() -> None:
    async with run_odd_kafka() as kafka:
        kafka.more_brokers = kafka.partitions = 48
        door = KafkaLag(KafkaConnection(kafka.bootstrap_servers), SETTINGS)
        kafka.end_error = NotLeaderForPartitionError.errno
        with pytest.raises(LagUnknown, match="NotLeaderForPartition"):
            await door.backlog("g", "t1")
        await asyncio.sleep(0.5)
        assert kafka.nodes[0].opened < kafka.partitions
        await door.close()


@pytest.mark.parametrize("is_known_before", [True, False])
@pytest.mark.parametrize(
    ("said", "number", "text"),
    [
        ("more_brokers", SETTINGS.brokers_max, "names 1001 brokers: expected at most 1000"),
        ("partitions", SETTINGS.partitions_max + 1, "the metadata: 15001 partitions: expected at most 15000"),
        ("offsets", SETTINGS.partitions_max + 1, "the offsets of group g: 15001 partitions: expected at most 15000"),
        ("ends", SETTINGS.partitions_max + 1, "the ends of partitions: 15001 partitions: expected at most 15000"),
    ],
)
async def test_an_answer_that_names_too_many_is_unknown_until_it_names_fewer(
    said: str, number: int, text: str, is_known_before: bool
) -> None:
    async with run_odd_kafka() as kafka:
        settings = replace(SETTINGS, answer_seconds=30.0)  # Answers of 15,000 partitions take long on a busy machine.
        door = KafkaLag(KafkaConnection(kafka.bootstrap_servers), settings)
        if is_known_before:
            assert await door.backlog("g", "t1") == expected_backlog("t1")
        usual = getattr(kafka, said)
        setattr(kafka, said, number)
        with pytest.raises(LagUnknown, match=text):
            await door.backlog("g", "t1")
        setattr(kafka, said, usual)
        assert await door.backlog("g", "t1") == expected_backlog("t1")
        await door.close()
