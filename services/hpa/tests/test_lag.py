"""Other people's brokers that are silent or odd: their queues are unknown, and known again, and no other is."""

import asyncio

import pytest

from hpa.external_metrics.connections import KafkaConnection
from hpa.external_metrics.lag import KafkaLag, LagSettings, LagUnknown
from spillway.events_scaling import PartitionBacklog

from .odd_kafka import COMMITTED, COORDINATOR, FETCH, GROUP_OFFSETS, LATEST, METADATA, OFFSETS, SPOKEN, odd_kafka

SETTINGS = LagSettings(answer_seconds=2.5)


def waiting(topic: str) -> tuple[PartitionBacklog, ...]:
    return (PartitionBacklog(topic, 0, LATEST, COMMITTED, 0),)


async def test_a_connection_that_went_dead_is_opened_anew() -> None:
    """Nobody says that it is dead: no packet comes."""
    async with odd_kafka() as kafka:
        door = KafkaLag(KafkaConnection(kafka.bootstrap), SETTINGS)
        assert await door.backlog("g", "t1") == waiting("t1")
        kafka.nodes[0].go_silent()
        with pytest.raises(LagUnknown, match="RequestTimedOut"):
            await door.backlog("g", "t1")
        assert await door.backlog("g", "t1") == waiting("t1")
        await door.close()


@pytest.mark.parametrize("request_key", [COORDINATOR, GROUP_OFFSETS, METADATA, OFFSETS, FETCH])
async def test_a_broker_of_other_versions_is_unknown_until_it_speaks_ours(request_key: int) -> None:
    async with odd_kafka() as kafka:
        door = KafkaLag(KafkaConnection(kafka.bootstrap), SETTINGS)
        kafka.spoken = SPOKEN | {request_key: (90, 99)}
        for _ in range(2):
            with pytest.raises(LagUnknown):
                await door.backlog("g", "t1")
        kafka.spoken = SPOKEN
        assert await door.backlog("g", "t1") == waiting("t1")
        await door.close()


async def test_a_broker_that_says_a_port_that_no_machine_has_is_unknown() -> None:
    async with odd_kafka() as kafka:
        door = KafkaLag(KafkaConnection(kafka.bootstrap), SETTINGS)
        kafka.port_said = 99_999
        with pytest.raises(LagUnknown, match="OverflowError"):
            await door.backlog("g", "t1")
        await door.close()


async def test_a_silent_broker_takes_no_other_brokers_queues_away() -> None:
    async with odd_kafka(nodes=2) as kafka:
        door = KafkaLag(KafkaConnection(kafka.bootstrap), SETTINGS)
        assert await door.backlog("g", "t1") == waiting("t1")
        assert await door.backlog("g", "t2") == waiting("t2")
        opened = kafka.nodes[0].opened
        kafka.nodes[1].silent_to = 1_000
        for _ in range(2):
            found = await asyncio.gather(door.backlog("g", "t2"), door.backlog("g", "t1"), return_exceptions=True)
            assert isinstance(found[0], LagUnknown)
            assert found[1] == waiting("t1")
        assert kafka.nodes[0].opened == opened
        await door.close()
