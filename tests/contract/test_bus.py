"""What a bus promises, asked of the bus in memory and of Apache Kafka alike."""

import asyncio
import contextlib
import dataclasses
import secrets
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.producer import message_accumulator, producer
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy
from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import REGISTRY

from spillway import tracing
from spillway.addresses import (
    BACKLOG,
    CAPACITY,
    CAPACITY_CHANGES,
    CLUSTERS,
    DEAD_LETTERS,
    EVENTS_BY_TOPIC,
    FLEET,
    LOAD,
    TOPICS,
    TURNS_PLANNER,
    WORKLOAD_STATUS,
    RecordAddress,
    Tombstone,
    Topic,
    address_of_event,
)
from spillway.bus import (
    Assignment,
    Bus,
    BusUnavailable,
    Headers,
    NoLog,
    OtherFleet,
    OutcomeUnknown,
    Record,
    RecordBatch,
    TooManyDeadLetters,
    Writer,
    has_reached_ends,
)
from spillway.events import CapacityChanged, CapacityReported, ClusterLeft, DeadLettered, FleetFormed, TurnTaken
from spillway.kafka.fetch_sessions import OPENS, FetchSession
from spillway.kafka.internals import POINTS
from spillway.kafka.topics import LogReader, ensure_topics
from spillway.kafka.unpacking import UNPACKED_BYTES_MAX
from spillway.local_bus import LocalBroker, LocalBus, LocalSettings
from spillway.wire import TYPE_PREFIX, encode_event
from spillway_local.kafka_server import PORTS_PER_NODE, KafkaServer
from spillway_local.ports import session_port
from spillway_local.programs import ChildProcess, start_child
from tests.contract.bus_harness import (
    DEADLINE_SECONDS,
    LETTERS_MAX,
    Harness,
    KafkaHarness,
    LocalHarness,
    any_event_on,
    capacity_changed,
    collect_records,
    read_to_current_end,
    record_headers,
)

LOCAL_AND_KAFKA = ["local", pytest.param("kafka", marks=pytest.mark.kafka)]


@pytest.fixture(params=[*LOCAL_AND_KAFKA, pytest.param("kafka without fetch sessions", marks=pytest.mark.kafka)])
async def harness(request: pytest.FixtureRequest) -> AsyncIterator[Harness]:
    if request.param == "local":
        yield LocalHarness()
        return
    harness = KafkaHarness(request.getfixturevalue("kafka_bootstrap"))
    harness.settings = dataclasses.replace(harness.settings, fetch_sessions=request.param == "kafka")
    await harness.form_log()
    yield harness
    await harness.close()


@pytest.fixture
async def kafka(kafka_bootstrap: str) -> AsyncIterator[KafkaHarness]:
    """For what the bus in memory has no counterpart of."""
    harness = KafkaHarness(kafka_bootstrap)
    await harness.form_log()
    yield harness
    await harness.close()


# ── Reading and writing ──


async def test_records_of_one_key_are_read_in_the_order_of_writing(harness: Harness) -> None:
    bus = await harness.open_bus("a")
    written = [capacity_changed(cluster, sequence) for sequence in range(100) for cluster in ("x", "y", "z")]
    for start in range(0, len(written), 10):
        await bus.publish(*written[start : start + 10])
    records = await read_to_current_end(bus, [CAPACITY_CHANGES])
    for cluster in ("x", "y", "z"):
        assert [r.event.sequence for r in records if r.key == cluster] == list(range(100))  # type: ignore[union-attr]


async def test_publish_says_where_each_record_stands(harness: Harness) -> None:
    bus = await harness.open_bus("a")
    positions = await bus.publish(ClusterLeft("x"), ClusterLeft("y"), ClusterLeft("x"))
    places = {(r.topic, r.partition, r.offset): r.key for r in await read_to_current_end(bus, [CLUSTERS])}
    assert [places[p.topic, p.partition, p.offset] for p in positions] == ["x", "y", "x"]


async def test_a_compacted_topic_tells_the_last_of_each_key_and_its_tombstones(harness: Harness) -> None:
    if isinstance(harness, KafkaHarness):
        configs = ("min.compaction.lag.ms=0", "segment.ms=1000", "min.cleanable.dirty.ratio=0.01")
        harness.topics = dataclasses.replace(
            harness.topics,
            topic_prefix=f"c{harness.topics.topic_prefix}",
            configs=(*configs, "max.compaction.lag.ms=1000"),
        )
        harness.settings = dataclasses.replace(harness.settings, topic_prefix=harness.topics.topic_prefix)
        await harness.form_log()
    bus = await harness.open_bus("a")
    await bus.publish(*[CapacityReported("a", 0, index, 1, 0, 0, b"", ()) for index in range(2)])
    await bus.publish(
        ClusterLeft("a"), ClusterLeft("a"), ClusterLeft("b"), Tombstone(RecordAddress(CLUSTERS, "b", "b"))
    )
    await bus.publish(ClusterLeft("a"))
    await harness.compact_log_once(bus)
    last = {record.key: record.event for record in await read_to_current_end(bus, [CLUSTERS, CAPACITY])}
    assert last.pop("b", None) is None
    assert {key for key in last if not key.startswith("filler")} == {"a", "a/0", "a/1"}
    assert last["a"] == ClusterLeft("a")


async def test_a_feed_starts_where_it_is_told_and_else_at_the_end(harness: Harness) -> None:
    bus = await harness.open_bus("a")
    positions = await bus.publish(*[capacity_changed("x", sequence) for sequence in range(5)])
    await bus.publish(ClusterLeft("x"))
    start = {(positions[3].topic, positions[3].partition): positions[3].offset}
    async with bus.follow_topics([CAPACITY_CHANGES, CLUSTERS], start) as feed:
        await bus.publish(ClusterLeft("y"))
        records = await collect_records(feed, lambda records, _: len(records) == 3)
    assert [r.event for r in records if r.topic == CAPACITY_CHANGES.name] == [
        capacity_changed("x", 3),
        capacity_changed("x", 4),
    ]
    assert [r.key for r in records if r.topic == CLUSTERS.name] == ["y"]


async def test_a_feed_passes_over_topics_when_it_is_told_to(harness: Harness) -> None:
    bus = await harness.open_bus("a")
    async with bus.follow_topics([CAPACITY_CHANGES, CLUSTERS]) as feed:
        await bus.publish(ClusterLeft("x"))
        assert len(await collect_records(feed, lambda records, _: bool(records))) == 1
        feed.stop_following([CLUSTERS])
        await bus.publish(ClusterLeft("y"))
        await bus.publish(capacity_changed("z", 1))
        ends = await feed.end_offsets()
        records = await collect_records(feed, lambda _, batch: has_reached_ends(batch.positions, ends))
    assert {topic for topic, _ in ends} == {CAPACITY_CHANGES.name}
    assert [record.key for record in records] == ["z"]


async def test_an_empty_start_is_the_end_of_everything(harness: Harness) -> None:
    bus = await harness.open_bus("a")
    await bus.publish(ClusterLeft("old"))
    async with bus.follow_topics([CLUSTERS], {}) as feed:
        await bus.publish(ClusterLeft("new"))
        assert [r.key for r in await collect_records(feed, lambda records, _: bool(records))] == ["new"]


async def test_an_idle_feed_yields_empty_batches(harness: Harness) -> None:
    bus = await harness.open_bus("a")
    async with bus.follow_topics([CLUSTERS]) as feed:
        batches = 0

        def is_third_empty_batch(_: list[Record], batch: RecordBatch) -> bool:
            nonlocal batches
            batches += not batch.records
            return batches == 3

        assert await collect_records(feed, is_third_empty_batch) == []


async def test_a_start_beyond_the_end_is_another_log(harness: Harness) -> None:
    bus = await harness.open_bus("a")
    async with bus.follow_topics([CLUSTERS], {(CLUSTERS.name, 0): 1000}) as feed:
        with pytest.raises(OtherFleet):
            await collect_records(feed, lambda *_: False)


async def test_a_value_of_one_mebibyte_passes(harness: Harness) -> None:
    bus = await harness.open_bus("a")
    event = capacity_changed("x", 0, secrets.token_bytes(1024 * 1024))
    await bus.publish(event)
    assert [record.event for record in await read_to_current_end(bus, [CAPACITY_CHANGES])] == [event]


async def test_a_value_over_the_bound_is_refused_before_it_is_sent(harness: Harness) -> None:
    bus = await harness.open_bus("a")
    with pytest.raises(ValueError, match="expected at most"):
        await bus.publish(capacity_changed("x", 0, bytes(3 * 1024 * 1024)))
    assert await read_to_current_end(bus, [CAPACITY_CHANGES]) == []


async def test_fields_of_a_later_version_do_not_hinder(harness: Harness) -> None:
    bus = await harness.open_bus("a")
    event = ClusterLeft("x")
    later = encode_event(event) + b"\xf8\x7c\x07" + b"\xfa\x7c\x03new"  # field 1999 as a number and as text
    await harness.write_raw_record(CLUSTERS, b"x", later, record_headers(event, harness.fleet))
    assert [record.event for record in await read_to_current_end(bus, [CLUSTERS])] == [event]


async def test_the_fleet_is_in_the_log(harness: Harness) -> None:
    bus = await harness.open_bus("a")
    assert bus.fleet_id == harness.fleet
    assert [record.event for record in await read_to_current_end(bus, [FLEET])] == [FleetFormed(harness.fleet)]


async def test_a_bus_of_another_fleet_does_not_open(harness: Harness) -> None:
    with pytest.raises(OtherFleet):
        await harness.open_bus("a", "other-1")


async def test_a_bus_learns_that_its_log_is_gone(harness: Harness) -> None:
    bus = await harness.open_bus("a")
    waiting = asyncio.create_task(bus.wait_for_fleet_change())
    await harness.form_log_again()
    async with asyncio.timeout(DEADLINE_SECONDS):
        assert await waiting


# ── Turns ──


async def open_standby_turn(stack: contextlib.AsyncExitStack, bus: Bus, instance: str) -> Any:
    return await stack.enter_async_context(bus.join_standby_group("planner", instance))


async def wait_for_turn(waiting: Any) -> Writer:
    async with asyncio.timeout(DEADLINE_SECONDS):
        return await waiting  # type: ignore[no-any-return]


async def test_a_feed_reaches_the_end_past_the_marks_of_transactions(harness: Harness) -> None:
    bus = await harness.open_bus("a")
    async with bus.join_standby_group("planner", "a") as standby:
        writer = await wait_for_turn(standby.wait_for_turn())
        for index in range(3):
            await writer.write_events([ClusterLeft(f"c{index}"), ClusterLeft("x")])
        async with bus.follow_topics([CLUSTERS, TURNS_PLANNER]) as feed:
            ends = await feed.end_offsets()
            records = await collect_records(feed, lambda _, batch: has_reached_ends(batch.positions, ends))
    assert len([record for record in records if record.topic == CLUSTERS.name]) == 6
    assert ends[TURNS_PLANNER.name, 0] > max(r.offset for r in records if r.topic == TURNS_PLANNER.name) + 1


async def test_a_record_bears_the_headers_of_the_trace_that_it_belongs_to(harness: Harness) -> None:
    """Of one write each record those of its own, in and outside of a transaction; none of any other."""
    trace = (("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),)
    bus = await harness.open_bus("a")
    tracing.use_provider(TracerProvider(shutdown_on_exit=False))
    try:
        await bus.publish(capacity_changed("x", 1), capacity_changed("y", 1), traces={1: trace})
        async with bus.join_standby_group("planner", "a") as standby:
            await (await wait_for_turn(standby.wait_for_turn())).write_events(
                [ClusterLeft("x"), ClusterLeft("y")], {0: trace}
            )
    finally:
        tracing.shutdown()
    found = await read_to_current_end(bus, [CAPACITY_CHANGES, CLUSTERS])
    borne = {(record.topic, record.key): set(trace) & set(record.headers) for record in found}
    told = {(CAPACITY_CHANGES.name, "y"), (CLUSTERS.name, "x")}
    assert {place for place, pairs in borne.items() if pairs} == told
    assert len(borne) == 4


async def test_a_turn_is_in_the_log_and_its_offset_is_the_epoch(harness: Harness) -> None:
    bus = await harness.open_bus("a")
    async with bus.join_standby_group("planner", "one") as standby:
        epochs = [(await wait_for_turn(standby.wait_for_turn())).turn_epoch for _ in range(3)]
    records = await read_to_current_end(bus, [TURNS_PLANNER])
    assert [record.offset for record in records] == epochs == sorted(set(epochs))
    assert {record.event for record in records} == {TurnTaken("planner", "", "one")}


async def test_the_writer_before_is_fenced_and_stays_so(harness: Harness) -> None:
    bus = await harness.open_bus("a")
    async with bus.join_standby_group("planner", "a") as standby:
        old = await wait_for_turn(standby.wait_for_turn())
        await old.write_events([ClusterLeft("before")])
        other = await harness.open_bus("b")
        async with contextlib.AsyncExitStack() as stack:
            # The same instance takes its turn again elsewhere, as after a restart that left a frozen process behind.
            again = await open_standby_turn(stack, other, "a")
            if isinstance(harness, LocalHarness):
                harness.broker.end_sessions(bus)
            new = await wait_for_turn(again.wait_for_turn())
            turns = [record.offset for record in await read_to_current_end(bus, [TURNS_PLANNER])]
            assert turns == [old.turn_epoch, new.turn_epoch], "who was fenced reads of it, though it writes nothing"
            for _ in range(2):
                with pytest.raises(OutcomeUnknown):
                    await old.write_events([ClusterLeft("late")])
            await new.write_events([ClusterLeft("after")])
    assert [record.key for record in await read_to_current_end(other, [CLUSTERS])] == ["before", "after"] or {
        record.key for record in await read_to_current_end(other, [CLUSTERS])
    } == {"before", "after"}


async def test_two_instances_share_the_clusters_and_one_takes_over_from_one_that_stops(harness: Harness) -> None:
    first, second = await harness.open_bus("a"), await harness.open_bus("b")
    everything = frozenset(range(4))
    async with second.join_cluster_group("snapshot", "b") as turns, asyncio.timeout(DEADLINE_SECONDS):
        async with first.join_cluster_group("snapshot", "a") as others:
            held, theirs = await wait_for_settled_division(turns, others)
            assert len(held) == len(theirs) == 2
            assert held | theirs == everything
        while held != everything:
            held = (await anext(turns)).partitions


async def wait_for_settled_division(
    one: AsyncIterator[Assignment], other: AsyncIterator[Assignment]
) -> tuple[frozenset[int], frozenset[int]]:
    """What both hold as soon as the one has nothing of the other's."""
    held: dict[int, frozenset[int]] = {0: frozenset(), 1: frozenset()}

    async def note_assignments(index: int, turns: AsyncIterator[Assignment]) -> None:
        async for assignment in turns:
            held[index] = assignment.partitions
            if len(held[0]) == len(held[1]) == 2 and not held[0] & held[1]:
                done.set()

    done = asyncio.Event()
    tasks = [asyncio.create_task(note_assignments(index, turns)) for index, turns in enumerate((one, other))]
    await done.wait()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return held[0], held[1]


async def test_a_standby_takes_over_from_one_that_stops(harness: Harness) -> None:
    first, second = await harness.open_bus("a"), await harness.open_bus("b")
    async with contextlib.AsyncExitStack() as stack:
        async with first.join_standby_group("planner", "a") as active:
            old = await wait_for_turn(active.wait_for_turn())
            waiting = asyncio.create_task((await open_standby_turn(stack, second, "b")).wait_for_turn())
            await old.write_events([ClusterLeft("x")])
            assert not waiting.done()
        new = await wait_for_turn(waiting)
        await new.write_events([ClusterLeft("y")])
        assert new.turn_epoch > old.turn_epoch
        with pytest.raises(OutcomeUnknown):
            await old.write_events([ClusterLeft("z")])


async def test_a_write_of_unknown_outcome_ends_the_writer() -> None:
    broker = LocalBroker()
    bus = LocalBus(broker, "f", "a")
    for written in (True, False):
        async with bus.join_standby_group("planner", "a") as standby:
            writer = await standby.wait_for_turn()
            broker.fail_next_write(written=written)
            for _ in range(2):
                with pytest.raises(OutcomeUnknown):
                    await writer.write_events([ClusterLeft(f"written {written}")])
    assert [record.key for record in await read_to_current_end(bus, [CLUSTERS])] == ["written True"]


async def test_a_log_that_does_not_answer_is_said_to_be_unavailable() -> None:
    bus = LocalBus(LocalBroker(LocalSettings(publish_seconds=0.2)), "f", "a")
    async with bus.follow_topics([CLUSTERS]) as feed:
        bus.broker.unavailable = True
        with pytest.raises(BusUnavailable):
            await bus.publish(ClusterLeft("x"))
        with pytest.raises(BusUnavailable):
            await feed.end_offsets()
        assert await collect_records(feed, lambda *_: True) == []
        bus.broker.unavailable = False
        await bus.publish(ClusterLeft("y"))
        assert [r.key for r in await collect_records(feed, lambda records, _: bool(records))] == ["y"]


# ── Transactions as only Kafka has them ──


@pytest.mark.kafka
async def test_aborted_and_open_transactions_are_hidden(kafka: KafkaHarness) -> None:
    bus = await kafka.open_bus("a")
    name = kafka.topics.topic_prefix + CLUSTERS.name
    producer = await kafka.open_raw_producer(transactional_id=f"{kafka.topics.topic_prefix}x")
    for key, commits in (("aborted", False), ("committed", True)):
        event = ClusterLeft(key)
        await producer.begin_transaction()
        await producer.send_and_wait(
            name, encode_event(event), key.encode(), 0, headers=list(record_headers(event, kafka.fleet))
        )
        await (producer.commit_transaction() if commits else producer.abort_transaction())
    await producer.begin_transaction()
    event = ClusterLeft("open")
    await producer.send_and_wait(
        name, encode_event(event), b"open", 0, headers=list(record_headers(event, kafka.fleet))
    )
    assert [record.key for record in await read_to_current_end(bus, [CLUSTERS])] == ["committed"]
    await producer.abort_transaction()


@pytest.mark.kafka
async def test_who_takes_the_turn_meets_no_open_transaction_and_misses_nothing(kafka: KafkaHarness) -> None:
    """The old writer's open transaction is ended by the take-over, so that what is written next is before the ends."""
    bus = await kafka.open_bus("a")
    abandoned = await kafka.open_raw_producer(transactional_id=f"{kafka.topics.topic_prefix}{kafka.fleet}.planner")
    await abandoned.begin_transaction()
    name, event = kafka.topics.topic_prefix + CLUSTERS.name, ClusterLeft("abandoned")
    for partition in range(4):
        given = list(record_headers(event, kafka.fleet))
        await abandoned.send_and_wait(name, encode_event(event), b"abandoned", partition, headers=given)
    async with bus.join_standby_group("planner", "a") as standby:
        writer = await wait_for_turn(standby.wait_for_turn())
        written = [ClusterLeft(f"c{index}") for index in range(20)]
        await writer.write_events(written)
        assert {record.event for record in await read_to_current_end(bus, [CLUSTERS])} == set(written)


# ── Dead letters ──


@pytest.mark.parametrize("harness", LOCAL_AND_KAFKA, indirect=True)  # How it is fetched is the same for all.
@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.name)
async def test_what_cannot_be_read_is_set_aside_and_the_rest_is_read(harness: Harness, topic: Topic) -> None:
    bus = await harness.open_bus("reader")
    kind = (TYPE_PREFIX + EVENTS_BY_TOPIC[topic.name][0].__name__).encode()
    good: Headers = (("ce_type", kind), ("fleet", harness.fleet.encode()))
    own = address_of_event(any_event_on(topic)).key.encode()
    another = own.replace(b"fine", b"another") if b"fine" in own else own + b"x"
    reasons = {
        "not protobuf": (own, b"\xff\xff\xff", good),
        "expected one of": (own, b"", (("ce_type", b"spillway.v1.Unheard"), good[1])),
        "this is": (own, b"", (good[0], ("fleet", b"other-1"))),
        "no header fleet": (own, b"", good[:1]),
        "key: ": (b"\xff", b"", good),
        "may have": (b"", b"", good),
        "belongs under": (another, encode_event(any_event_on(topic)), good),
    }
    for key, value, given in reasons.values():
        await harness.write_raw_record(topic, key, value, given)
    fine = any_event_on(topic)
    await harness.write_raw_record(topic, address_of_event(fine).key.encode(), encode_event(fine), good)
    assert fine in [record.event for record in await read_to_current_end(bus, [topic])]
    async with bus.follow_topics([DEAD_LETTERS]) as feed:
        letters = await collect_records(feed, lambda records, _: len(_dead_letters_of(topic, records)) >= len(reasons))
    assert {
        next((r for r in reasons if r in letter.reason), letter.reason) for letter in _dead_letters_of(topic, letters)
    } == set(reasons)
    assert {letter.reader for letter in _dead_letters_of(topic, letters)} == {"reader"}


def _dead_letters_of(topic: Topic, records: Sequence[Record]) -> list[DeadLettered]:
    return [r.event for r in records if isinstance(r.event, DeadLettered) and r.event.topic == topic.name]


async def test_a_dead_letter_keeps_no_more_than_64_kib(harness: Harness) -> None:
    bus = await harness.open_bus("a")
    await harness.write_raw_record(CLUSTERS, b"k", b"\xff" * 100_000, record_headers(ClusterLeft("x"), harness.fleet))
    await read_to_current_end(bus, [CLUSTERS])
    (letter,) = _dead_letters_of(CLUSTERS, await read_to_current_end(bus, [DEAD_LETTERS]))
    assert len(letter.value) == 64 * 1024


async def test_too_many_dead_letters_stop_the_reader(harness: Harness) -> None:
    bus = await harness.open_bus("a")
    for _ in range(LETTERS_MAX + 1):
        await harness.write_raw_record(WORKLOAD_STATUS, b"k", b"\xff", record_headers(None, harness.fleet))
    with pytest.raises(TooManyDeadLetters):
        await read_to_current_end(bus, [WORKLOAD_STATUS])


@pytest.mark.parametrize("topic", [LOAD, BACKLOG], ids=lambda topic: topic.name)
async def test_on_topics_that_anyone_may_write_no_number_of_them_stops_the_reader(
    harness: Harness, topic: Topic
) -> None:
    """One publisher that forgets the fleet, another that gives a header without a value: a letter each."""
    bus = await harness.open_bus("reader")
    empty: Any = None
    for _ in range(LETTERS_MAX):
        await harness.write_raw_record(topic, b"shop/web", b"\xff", ())
        await harness.write_raw_record(
            topic, b"shop/web", b"\xff", (("fleet", harness.fleet.encode()), ("ce_type", empty))
        )
    fine = any_event_on(topic)
    await bus.publish(fine)
    assert [record.event for record in await read_to_current_end(bus, [topic])] == [fine]
    async with bus.follow_topics([DEAD_LETTERS]) as feed:
        letters = _dead_letters_of(
            topic, await collect_records(feed, lambda records, _: len(_dead_letters_of(topic, records)) >= 2)
        )
    assert [(letter.writer, letter.reason.partition(" ")[0]) for letter in letters] == [
        ("key shop/web", "no"),
        ("key shop/web", "ce_type"),
    ]


class _Named(str):
    """A header's name that is no UTF-8, as other clients can write one."""

    __slots__ = ()

    def encode(self, *_: Any) -> bytes:
        return b"\xff\xfe"


async def test_a_header_whose_name_nobody_can_read_ends_no_reader(
    kafka: KafkaHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other clients can write one, and brokers keep it: it is a dead letter, for whoever reads and whoever starts."""
    bus = await kafka.open_bus("reader")
    await bus.publish(any_event_on(LOAD))
    with monkeypatch.context() as patched:
        for module in (message_accumulator, producer):
            patched.setattr(module, "DefaultRecordBatchBuilder", _DefaultRecordBatchBuilderPy)
        await kafka.write_raw_record(LOAD, b"shop/web", b"x", ((_Named("fleet"), b"v"),))
    fine = any_event_on(LOAD)
    await bus.publish(fine)
    for _ in range(2):
        assert [record.event for record in await read_to_current_end(bus, [LOAD])] == [fine, fine]
    letters = _dead_letters_of(LOAD, await read_to_current_end(bus, [DEAD_LETTERS]))
    assert {letter.reason.partition(":")[0] for letter in letters} == {"the name of a header"}


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
async def test_a_batch_that_unpacks_to_more_than_its_bound_ends_no_reader(kafka: KafkaHarness, codec: str) -> None:
    """It is a dead letter, and what stands before and behind it is read, by whoever reads and whoever starts."""
    bus = await kafka.open_bus("reader")
    kind = (TYPE_PREFIX + EVENTS_BY_TOPIC[LOAD.name][0].__name__).encode()
    given: Headers = (("ce_type", kind), ("fleet", kafka.fleet.encode()))
    fine, key = any_event_on(LOAD), address_of_event(any_event_on(LOAD)).key.encode()
    await kafka.write_raw_record(LOAD, key, encode_event(fine), given)
    whole_size = 2 * UNPACKED_BYTES_MAX
    async with AIOKafkaProducer(
        bootstrap_servers=kafka.settings.bootstrap, compression_type=codec, max_request_size=whole_size
    ) as producer:
        await producer.send_and_wait(bus.topic_name(LOAD), bytes(UNPACKED_BYTES_MAX), key, 0, headers=list(given))
        await producer.send_and_wait(bus.topic_name(LOAD), encode_event(fine) * 99, key, 0, headers=list(given))
    await kafka.write_raw_record(LOAD, key, encode_event(fine), given)
    for _ in range(2):
        assert [record.offset for record in await read_to_current_end(bus, [LOAD])] == [0, 2, 3]
    letters = _dead_letters_of(LOAD, await read_to_current_end(bus, [DEAD_LETTERS]))
    assert {(letter.offset, letter.writer, codec in letter.reason) for letter in letters} == {(1, "partition 0", True)}


# ── Topics and brokers ──


@pytest.mark.kafka
async def test_several_runs_of_the_topics_command_agree_on_one_fleet(kafka_bootstrap: str) -> None:
    kafka = KafkaHarness(kafka_bootstrap)
    runs = [ensure_topics(kafka.access, kafka.topics, "test") for _ in range(3)]
    fleets = set(await asyncio.gather(*runs))
    assert len(fleets) == 1
    said: list[str] = []
    wider = dataclasses.replace(kafka.topics, partitions_cluster=5)
    assert await ensure_topics(kafka.access, wider, "test", said.append) in fleets
    assert f"{kafka.topics.topic_prefix}{CLUSTERS.name}: 4 partitions, expected 5" in said
    await kafka.form_log_again()


@pytest.mark.kafka
async def test_who_closes_a_reader_that_has_just_begun_is_not_cancelled(kafka: KafkaHarness) -> None:
    """aiokafka passes the cancellation of its own task on to whoever stops a consumer as soon as it has started."""
    async with LogReader(kafka.access, kafka.topics.topic_prefix):
        pass


@pytest.mark.kafka
async def test_without_topics_there_is_no_log(kafka_bootstrap: str) -> None:
    with pytest.raises(NoLog, match="spillway topics"):
        await KafkaHarness(kafka_bootstrap).open_bus("a")


def _start_broker(folder: Path, server: KafkaServer) -> ChildProcess:
    child = start_child(server.prepare_program(), folder / "kafka.log")
    child.wait_ready(server.is_ready, 60)
    return child


@pytest.mark.kafka
async def test_a_broker_that_is_killed_loses_nothing_acknowledged_and_is_found_again(tmp_path: Path) -> None:
    server = KafkaServer(tmp_path, session_port(count=PORTS_PER_NODE))
    child = await asyncio.to_thread(_start_broker, tmp_path, server)
    kafka = KafkaHarness(server.bootstrap_servers)
    try:
        await kafka.form_log()
        bus = await kafka.open_bus("a")
        acknowledged: list[int] = []
        sent = 0
        async with bus.follow_topics([CAPACITY_CHANGES]) as feed, bus.join_standby_group("planner", "a") as standby:
            old = await wait_for_turn(standby.wait_for_turn())

            async def write_until(count: int) -> None:
                nonlocal sent
                async with asyncio.timeout(DEADLINE_SECONDS):
                    while len(acknowledged) < count:
                        sent += 1
                        with contextlib.suppress(BusUnavailable):
                            await bus.publish(capacity_changed("x", sent))
                            acknowledged.append(sent)

            await write_until(50)
            writing = asyncio.create_task(write_until(100))
            child.kill()
            with pytest.raises(OutcomeUnknown):
                await old.write_events([ClusterLeft("x")])
            child = await asyncio.to_thread(_start_broker, tmp_path, server)
            await writing
            new = await wait_for_turn(standby.wait_for_turn())
            await new.write_events([ClusterLeft("y")])
            last = acknowledged[-1]
            records = await collect_records(
                feed, lambda found, _: any(getattr(r.event, "sequence", 0) == last for r in found)
            )
        read = [r.event.sequence for r in records if isinstance(r.event, CapacityChanged)]
        assert set(acknowledged) <= set(read)
        assert new.turn_epoch > old.turn_epoch
        await kafka.close()
    finally:
        child.kill()


async def test_a_fetch_names_what_is_new_and_a_session_that_the_broker_lost_is_opened_again(
    kafka: KafkaHarness,
) -> None:
    """The broker answers with what is in the log whether it keeps the reader's session, never had it, or is ahead."""
    bus = await kafka.open_bus("a")
    topics = [CLUSTERS, WORKLOAD_STATUS]
    async with bus.follow_topics(topics) as feed:
        sessions = feed._sessions.sessions
        for name, spoil in (
            ("first", lambda one: None),
            ("unknown", _forget_session),
            ("behind", _repeat_session_epoch),
            ("last", _forget_session),
        ):
            for session in sessions.values():
                spoil(session)
            await bus.publish(ClusterLeft(name))
            await collect_records(feed, lambda records, _, name=name: any(record.key == name for record in records))
        (session,) = sessions.values()
        assert session.number > 0
        assert session.epoch > OPENS
        at = {(bus.topic_name(CLUSTERS), 0): (10**6, 1)}
        assert session.find_changes(session._known | at) == (at, [])


@pytest.mark.kafka
async def test_without_what_of_aiokafka_can_be_left_out_a_turn_is_taken_written_in_and_read(
    kafka: KafkaHarness,
) -> None:
    """As with another version of it, at whose start these points were found to differ."""
    bus = await kafka.open_bus("a")
    bus._usable = frozenset(point for point in POINTS if point.needed)
    async with bus.follow_topics([CLUSTERS]) as feed, bus.join_standby_group("planner", "a") as standby:
        writer = await wait_for_turn(standby.wait_for_turn())
        await writer.write_events([ClusterLeft("x")])
        assert [record.key for record in await collect_records(feed, lambda records, _: bool(records))] == ["x"]


@pytest.mark.kafka
async def test_how_far_behind_a_feed_is_and_how_old_what_it_read_is_are_told_while_it_is_open(
    kafka: KafkaHarness,
) -> None:
    def topic_gauge(name: str) -> float | None:
        return REGISTRY.get_sample_value(f"spillway_topic_{name}", {"topic": CLUSTERS.name})

    bus = await kafka.open_bus("a")
    async with bus.follow_topics([CLUSTERS]) as feed:
        await bus.publish(*(ClusterLeft(name) for name in "abc"))
        async with asyncio.timeout(DEADLINE_SECONDS):
            while topic_gauge("lag_records") != 3:
                await asyncio.sleep(0.05)
        assert topic_gauge("age_seconds") is None
        await collect_records(feed, lambda records, _: len(records) == 3)
        assert topic_gauge("lag_records") == 0
        assert 0 <= (topic_gauge("age_seconds") or 0) < DEADLINE_SECONDS
    assert topic_gauge("lag_records") is None


def _forget_session(session: FetchSession) -> None:
    session.number += 10**6


def _repeat_session_epoch(session: FetchSession) -> None:
    session.epoch = 1
