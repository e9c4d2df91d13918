"""What readers meet of retention, asked of the bus in memory and of Apache Kafka alike."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from aiokafka import TopicPartition

from planner.service import Planner, PlannerClocks
from planner.settings import PlannerSettings
from spillway.addresses import CAPACITY_CHANGES, CLUSTERS, Topic
from spillway.api import JoinClusterRequest, ListClustersRequest
from spillway.bus import Bus, OtherFleet, Position, has_reached_ends, partition_of
from spillway.columns import columns_of
from spillway.events import CapacityChanged, CapacityReported, ClusterLeft, TurnTaken
from spillway.store import MemoryStore
from spillway.wire import pack_columns
from tests.contract.bus_harness import (
    DEADLINE_SECONDS,
    Harness,
    KafkaHarness,
    LocalHarness,
    capacity_changed,
    collect_records,
    read_to_current_end,
)


@pytest.fixture(params=["local", pytest.param("kafka", marks=pytest.mark.kafka)])
async def harness(request: pytest.FixtureRequest) -> AsyncIterator[Harness]:
    if request.param == "local":
        yield LocalHarness()
        return
    harness = KafkaHarness(request.getfixturevalue("kafka_bootstrap"))
    await harness.form_log()
    yield harness
    await harness.close()


async def write_changes(bus: Bus, count: int) -> tuple[Position, ...]:
    """Of one partition of capacity-changes."""
    return await bus.publish(*(capacity_changed("x", sequence) for sequence in range(count)))


async def sequences_from(bus: Bus, topic: Topic, partition: int, offset: int) -> list[int]:
    """The sequences from there up to the end."""
    async with bus.follow_topics([topic], {(topic.name, partition): offset}) as feed:
        ends = await feed.end_offsets()
        records = await collect_records(feed, lambda _, batch: has_reached_ends(batch.positions, ends))
    return [record.event.sequence for record in records if isinstance(record.event, CapacityChanged)]


@pytest.mark.parametrize("start", ["the first record", "the last that is gone", "the first that is left"])
async def test_who_was_to_begin_at_what_retention_deleted_begins_with_what_is_left(
    harness: Harness, start: str
) -> None:
    bus = await harness.open_bus("a")
    positions = await write_changes(bus, 8)
    await harness.delete_records_before(CAPACITY_CHANGES, positions[0].partition, positions[5].offset)
    index = {"the first record": 0, "the last that is gone": 4, "the first that is left": 5}[start]
    assert await sequences_from(bus, CAPACITY_CHANGES, positions[0].partition, positions[index].offset) == [5, 6, 7]


async def test_where_retention_left_nothing_the_next_record_is_read(harness: Harness) -> None:
    bus = await harness.open_bus("a")
    positions = await write_changes(bus, 3)
    place = (CAPACITY_CHANGES.name, positions[0].partition)
    await harness.delete_records_before(CAPACITY_CHANGES, place[1], positions[2].offset + 1)
    async with bus.follow_topics([CAPACITY_CHANGES], {place: positions[0].offset}) as feed:
        ends = await feed.end_offsets()
        assert await collect_records(feed, lambda _, batch: has_reached_ends(batch.positions, ends)) == []
        await bus.publish(capacity_changed("x", 3))
        assert len(await collect_records(feed, lambda records, _: bool(records))) == 1


async def test_a_topic_is_read_whole_from_what_retention_left(harness: Harness) -> None:
    bus = await harness.open_bus("a")
    positions = await write_changes(bus, 8)
    await harness.delete_records_before(CAPACITY_CHANGES, positions[0].partition, positions[6].offset)
    assert [record.offset for record in await read_to_current_end(bus, [CAPACITY_CHANGES])] == [
        one.offset for one in positions[6:]
    ]


async def test_an_end_before_where_a_reader_was_to_begin_is_another_log(harness: Harness) -> None:
    """Also where retention deleted something."""
    bus = await harness.open_bus("a")
    positions = await write_changes(bus, 8)
    await harness.delete_records_before(CAPACITY_CHANGES, positions[0].partition, positions[6].offset)
    with pytest.raises(OtherFleet):
        await sequences_from(bus, CAPACITY_CHANGES, positions[0].partition, positions[7].offset + 2)


async def test_nothing_of_a_compacted_topic_can_be_deleted_so(harness: Harness) -> None:
    bus = await harness.open_bus("a")
    (position,) = await bus.publish(ClusterLeft("x"))
    with pytest.raises(ValueError, match=r"compacted|policy|Policy"):
        await harness.delete_records_before(CLUSTERS, position.partition, position.offset + 1)


async def test_a_reader_that_retention_overtook_goes_on_with_what_is_left(harness: Harness) -> None:
    """It was frozen for longer than the topic keeps its records."""
    bus = await harness.open_bus("a")
    place = (CAPACITY_CHANGES.name, partition_of("x", 4))
    async with bus.follow_topics([CAPACITY_CHANGES]) as feed:
        positions = await write_changes(bus, 8)
        if isinstance(harness, KafkaHarness):  # Its consumer fetches ahead, and would have all of it already.
            await collect_records(feed, lambda records, _: len(records) == 8)
        await harness.delete_records_before(CAPACITY_CHANGES, place[1], positions[5].offset)
        if isinstance(harness, KafkaHarness):
            feed._consumer.seek(TopicPartition(bus.topic_name(CAPACITY_CHANGES), place[1]), positions[0].offset)  # type: ignore[attr-defined]
        records = await collect_records(feed, lambda records, _: len(records) == 3)
    assert [record.event.sequence for record in records] == [5, 6, 7]  # type: ignore[union-attr]


async def test_what_a_topic_keeps_for_a_time_is_what_retention_deletes() -> None:
    """LocalBroker alone: nobody waits a day for Kafka."""
    harness = LocalHarness()
    bus = await harness.open_bus("a")
    await bus.publish(capacity_changed("x", 0), ClusterLeft("x"))
    harness.broker.apply_retention()
    assert len(await read_to_current_end(bus, [CAPACITY_CHANGES, CLUSTERS])) == 2
    harness.broker.apply_retention(seconds=0.0)
    assert [record.topic for record in await read_to_current_end(bus, [CAPACITY_CHANGES, CLUSTERS])] == [CLUSTERS.name]
    await bus.publish(*(capacity_changed("x", sequence) for sequence in range(10)))
    size = max(len(record.value) + len(record.key) for record in await read_to_current_end(bus, [CAPACITY_CHANGES]))
    harness.broker.apply_retention(bytes_max=4 * size)
    assert 3 <= len(await read_to_current_end(bus, [CAPACITY_CHANGES])) <= 4


async def test_a_planner_starts_whatever_retention_deleted_of_a_cluster_that_does_not_answer(harness: Harness) -> None:
    """Its collector was started again and hears nothing, so the last whole block stays as of a change that is gone."""
    async with run_active_planner(harness, "planner-1") as planner:
        await planner.join_cluster(JoinClusterRequest("gone-1", "gone-1", tier="own"))
    collector = await harness.open_bus("snapshot")
    nothing = pack_columns(columns_of([]))
    (claim,) = await collector.publish(TurnTaken("snapshot", "gone-1", "snapshot-1"))
    await collector.publish(CapacityReported("gone-1", claim.offset, 0, 1, 0, claim.offset, nothing, ()))

    def heartbeat(sequence: int) -> CapacityChanged:
        return CapacityChanged("gone-1", claim.offset, 0, sequence, 0, nothing, (), (), (), "")

    last = (await collector.publish(*map(heartbeat, range(1, 6))))[-1]
    await harness.delete_records_before(CAPACITY_CHANGES, last.partition, last.offset)
    for sequence, name in ((6, "planner-2"), (7, "planner-3")):
        async with run_active_planner(harness, name) as planner:
            assert await state_of_only_cluster(planner) == "Unknown"
            await collector.publish(heartbeat(sequence))
            async with asyncio.timeout(DEADLINE_SECONDS):
                while (
                    await state_of_only_cluster(planner) != "Stale"
                ):  # A change is missing, however fresh the last one is.
                    await asyncio.sleep(0.05)


async def state_of_only_cluster(planner: Planner) -> str:
    (cluster,) = (await planner.list_clusters(ListClustersRequest())).clusters
    return cluster.state


@contextlib.asynccontextmanager
async def run_active_planner(harness: Harness, name: str) -> AsyncIterator[Planner]:
    bus = await harness.open_bus(name)
    clocks = PlannerClocks(asyncio.get_running_loop().time, lambda: 0)
    planner, stopping = Planner(bus, MemoryStore(), PlannerSettings(), f"{name}@{name}", clocks), asyncio.Event()
    running = asyncio.create_task(planner.run(stopping))
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not planner.is_active and not running.done():
                await asyncio.sleep(0.05)
        yield planner
    finally:
        stopping.set()
        await running
        await harness.close_bus(bus)
