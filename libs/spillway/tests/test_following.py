"""How a state is filled from the log: in which order, from where, and what becomes of records that do not fit."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from spillway.addresses import (
    BRAKES,
    CLUSTERS,
    DEAD_LETTERS,
    PLACEMENTS,
    TURNS_PLANNER,
    Tombstone,
    Topic,
    address_of_event,
)
from spillway.bus import Offsets, OffsetsWentBack, Record, RecordBatch
from spillway.events import BrakeReleased, BrakeSet, ClusterLeft, DeadLettered, PlacementDecided, TurnTaken
from spillway.local_bus import LocalBroker, LocalBus
from spillway.model import Generation
from spillway.running.following import FollowedTopics, Follower, TopicReader

pytestmark = pytest.mark.looptime

LAG = 4.0
"""Seconds after which somebody reads what is written, where a test says so."""


class Unfit(Exception):
    """A record that the state cannot be brought to."""


class Log:
    """An intake that keeps what it was given. closed: it takes no more; closed_to: the same of one topic's records."""

    def __init__(self, starts: Offsets) -> None:
        self.took: list[tuple[str, bool]] = []
        self.closed = False
        self.closed_to = ""
        self.opened = asyncio.Event()
        self._starts = starts

    def start_offsets(self, ends: Offsets) -> Offsets:
        assert ends[BRAKES.name, 0] >= len(self.took)
        self.took.append(("whole", False))
        return self._starts

    def apply_record(self, record: Record, live: bool) -> None:
        event = record.event
        if isinstance(event, BrakeSet):
            if event.scope == "bad":
                raise Unfit("bad: expected good")
            self.took.append((event.scope, live))
        elif isinstance(event, ClusterLeft):
            self.took.append((event.cluster, live))

    async def end_batch(self, batch: RecordBatch, positions: Offsets) -> None:
        assert all(positions[place] == offset for place, offset in batch.positions.items())
        if self.closed or any(record.topic == self.closed_to for record in batch.records):
            await self.opened.wait()


def placement_event(epoch: int) -> PlacementDecided:
    return PlacementDecided("default", "web", Generation(epoch, 1), 1, (), 0, "")


def brake_event(scope: str) -> BrakeSet:
    return BrakeSet(scope, "", "", 0)


@asynccontextmanager
async def run_follower(
    bus: LocalBus, intake: Log, last_only: Sequence[Topic] = (), whole: Sequence[Topic] = (BRAKES, TURNS_PLANNER)
) -> AsyncIterator[Follower]:
    follower = Follower(bus, FollowedTopics("planner", whole, (CLUSTERS,), (Unfit,), last_only), intake)
    running = asyncio.create_task(follower.run())
    await follower.wait_until_caught_up()
    yield follower
    running.cancel()
    await asyncio.wait({running})
    assert running.cancelled()


@pytest.fixture
def bus() -> LocalBus:
    return LocalBus(LocalBroker(), "f-1", "test")


async def test_whole_topics_come_first_then_later_ones_from_where_the_state_stands(bus: LocalBus) -> None:
    (passed,) = await bus.publish(ClusterLeft("seen"))
    (begun,) = await bus.publish(ClusterLeft("seen"))
    await bus.publish(brake_event("x"), brake_event("y"))
    assert (begun.topic, begun.partition) == (passed.topic, passed.partition)
    intake = Log({(begun.topic, begun.partition): begun.offset})
    await bus.publish(ClusterLeft("elsewhere"))  # In a partition of which the state knows nothing.
    async with run_follower(bus, intake) as follower:
        assert intake.took == [("x", False), ("y", False), ("whole", False), ("seen", False)]
        await bus.publish(brake_event("z"), ClusterLeft("gone"))
        await follower.wait_until_caught_up()
        assert sorted(intake.took[4:]) == [("gone", True), ("z", True)]


async def test_what_does_not_fit_is_a_dead_letter_and_the_rest_is_read(bus: LocalBus) -> None:
    await bus.publish(brake_event("x"), brake_event("bad"), brake_event("y"))
    intake = Log({})
    async with run_follower(bus, intake):
        assert intake.took == [("x", False), ("y", False), ("whole", False)]
    async with bus.follow_topics((DEAD_LETTERS,)) as feed:
        letters = [record.event for record in (await anext(aiter(feed))).records]
    assert letters == [DeadLettered(BRAKES.name, 0, 1, "planner", "bad: expected good", "bad", b"")]


async def test_where_the_last_record_of_a_key_says_all_no_earlier_one_is_looked_at(bus: LocalBus) -> None:
    """Neither one that does not fit, nor one whose key has a tombstone; once the end is reached each counts."""
    await bus.publish(*map(brake_event, ("bad", "x", "y", "gone", "x")), BrakeReleased("bad", "", 0))
    await bus.publish(Tombstone(address_of_event(brake_event("gone"))))
    intake = Log({})
    async with run_follower(bus, intake, last_only=(BRAKES,)) as follower:
        assert intake.took == [("x", False), ("y", False), ("whole", False)]
        await bus.publish(brake_event("z"), brake_event("z"))
        await follower.wait_until_caught_up()
        assert intake.took[3:] == [("z", True), ("z", True)]
    async with bus.follow_topics((DEAD_LETTERS,)) as feed:
        assert (await anext(aiter(feed))).records == ()


async def test_the_newest_turn_is_known_and_who_is_below_it_hears(bus: LocalBus) -> None:
    async with run_follower(bus, Log({})) as follower:
        assert (follower.turn, follower.turn_epoch) == (None, -1)
        async with bus.join_standby_group("planner", "a@b") as turn:
            writer = await turn.wait_for_turn()
            await follower.wait_until_overtaken(writer.turn_epoch - 1)
            assert follower.turn == TurnTaken("planner", "", "a@b")
            above = asyncio.create_task(follower.wait_until_overtaken(writer.turn_epoch))
            await follower.wait_until_caught_up()
            assert not above.done()
            above.cancel()


async def test_a_follower_that_lags_knows_the_whole_before_it_says_where_later_ones_begin(bus: LocalBus) -> None:
    """And it has caught up once it has read of both what was there when it was asked."""
    await bus.publish(brake_event("x"), ClusterLeft("gone"))
    (begun,) = await bus.publish(ClusterLeft("gone again"))
    bus.lag_seconds = lambda topic, partition: LAG
    intake = Log({(begun.topic, begun.partition): begun.offset})
    async with run_follower(bus, intake) as follower:
        assert intake.took == [("x", False), ("whole", False), ("gone again", False)]
        await bus.publish(ClusterLeft("later"))
        await follower.wait_until_caught_up()
        assert intake.took[3:] == [("later", True)]


async def test_who_asks_before_the_follower_has_begun_waits_for_it_as_well(bus: LocalBus) -> None:
    await bus.publish(brake_event("x"))
    intake = Log({})
    follower = Follower(bus, FollowedTopics("planner", (BRAKES, TURNS_PLANNER), (CLUSTERS,), (Unfit,)), intake)
    asked = asyncio.create_task(follower.wait_until_caught_up())
    await asyncio.sleep(60)
    assert not asked.done()
    running = asyncio.create_task(follower.run())
    await asked
    assert intake.took == [("x", False), ("whole", False)]
    running.cancel()


async def test_of_named_topics_it_waits_for_no_other(bus: LocalBus) -> None:
    async with run_follower(bus, Log({})) as follower:
        bus.lag_seconds = lambda topic, partition: 0 if topic == TURNS_PLANNER.name else LAG
        await bus.publish(brake_event("x"))
        asked_at = asyncio.get_running_loop().time()
        await bus.publish(TurnTaken("planner", "", "p1"))
        await follower.wait_until_caught_up(TURNS_PLANNER)
        assert follower.turn_epoch == 0
        assert asyncio.get_running_loop().time() - asked_at < LAG
        await follower.wait_until_caught_up()
        assert asyncio.get_running_loop().time() - asked_at >= LAG


@pytest.mark.parametrize("late", [BRAKES, TURNS_PLANNER])
async def test_a_decision_that_is_read_before_its_turn_is_no_sign_that_offsets_went_back(
    bus: LocalBus, late: Topic
) -> None:
    async with run_follower(bus, Log({}), whole=(BRAKES, PLACEMENTS, TURNS_PLANNER)) as follower:
        bus.lag_seconds = lambda topic, partition: LAG if topic == late.name else 0
        (turn,) = await bus.publish(TurnTaken("planner", "", "p1"))
        await bus.publish(placement_event(turn.offset))
        await follower.wait_until_caught_up(PLACEMENTS)
        assert (follower.written_epoch, follower.turn_epoch) == (0, -1 if late is TURNS_PLANNER else 0)
        await follower.check_epochs()
        assert follower.turn_epoch == 0
        await bus.publish(placement_event(turn.offset + 7))
        await follower.wait_until_caught_up(PLACEMENTS)
        with pytest.raises(OffsetsWentBack, match=r"planner bear epoch 7, and the last turn in .* is at offset 0"):
            await follower.check_epochs()


async def test_who_has_no_room_is_given_no_more(bus: LocalBus) -> None:
    intake = Log({})
    async with run_follower(bus, intake) as follower:
        intake.closed = True
        await bus.publish(brake_event("x"))
        await asyncio.sleep(1)
        await bus.publish(brake_event("y"))
        await asyncio.sleep(10)
        assert intake.took[1:] == [("x", True)]
        intake.opened.set()
        await follower.wait_until_caught_up()
        assert intake.took[1:] == [("x", True), ("y", True)]


async def test_who_is_asked_has_caught_up_once_all_topics_are_read(bus: LocalBus) -> None:
    """Not when those that are read whole are: what has just been decided may stand in the others."""
    intake = Log({})
    async with run_follower(bus, intake) as follower:
        intake.closed_to = CLUSTERS.name
        await bus.publish(ClusterLeft("gone"))
        await asyncio.sleep(1)
        await bus.publish(ClusterLeft("gone"), brake_event("x"))
        asked = asyncio.create_task(follower.wait_until_caught_up())
        await asyncio.sleep(10)
        assert (intake.took[1:], asked.done()) == ([("gone", True), ("x", True)], False)
        intake.opened.set()
        await asked
        assert intake.took[1:] == [("gone", True), ("x", True), ("gone", True)]


# ── One reader of whole topics ──────────────────────────────────────────────────────────────────────────────────────


@asynccontextmanager
async def run_topic_reader(bus: LocalBus, start: Offsets | None = None) -> AsyncIterator[tuple[TopicReader, list[str]]]:
    """With the scopes that were read."""
    read: list[str] = []

    def note_scope(record: Record) -> None:
        assert isinstance(record.event, BrakeSet)
        read.append(record.event.scope)

    reader = TopicReader(bus, (BRAKES,), note_scope, 1.0, start)
    running = asyncio.create_task(reader.run())
    yield reader, read
    running.cancel()
    await asyncio.wait({running})
    assert running.cancelled()


async def test_a_reader_has_caught_up_with_all_that_was_written_before_it_was_asked(bus: LocalBus) -> None:
    await bus.publish(brake_event("x"))
    async with run_topic_reader(bus) as (reader, read):
        await reader.wait_until_caught_up()
        assert read == ["x"]
        await bus.publish(brake_event("y"))
        await reader.wait_until_caught_up()
        assert read == ["x", "y"]


async def test_a_reader_from_the_end_has_caught_up_when_it_stands_there(bus: LocalBus) -> None:
    await bus.publish(brake_event("x"))
    async with run_topic_reader(bus, {}) as (reader, read):
        await reader.wait_until_caught_up()
        await bus.publish(brake_event("y"))
        await reader.wait_until_caught_up()
        assert read == ["y"]


async def test_who_asks_while_one_looks_is_answered_by_a_later_look_also_when_that_one_gives_up(bus: LocalBus) -> None:
    async with run_topic_reader(bus) as (reader, read):
        await reader.wait_until_caught_up()
        bus.unavailable = True
        first = asyncio.create_task(reader.wait_until_caught_up())
        await asyncio.sleep(1)
        others = [asyncio.create_task(reader.wait_until_caught_up()) for _ in range(3)]
        await asyncio.sleep(1)
        await LocalBus(bus.broker, "f-1", "other").publish(brake_event("x"))
        first.cancel()
        await asyncio.sleep(20)
        assert not any(other.done() for other in others)
        bus.unavailable = False
        await asyncio.gather(*others)
        assert read == ["x"]
