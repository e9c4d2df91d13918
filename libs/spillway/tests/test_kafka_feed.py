"""Where a feed stands, told by a consumer that answers what a broker can be made to say only by luck."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition

from spillway.addresses import PLACEMENTS, Topic
from spillway.kafka.feed import KafkaFeed
from spillway.kafka.settings import KafkaSettings

DEADLINE_SECONDS = 10.0
FIRST, SECOND = (TopicPartition(PLACEMENTS.name, partition) for partition in range(2))


class Log:
    """Stands in for the bus: has what a feed asks of it."""

    fleet_id, source, access = "f1", "test", None
    settings = KafkaSettings("nowhere:0", batch_pause_seconds=0.0, poll_seconds=0.01, idle_batch_seconds=0.05)

    def topic_name(self, topic: Topic) -> str:
        return topic.name

    def partition_count(self, _: Topic) -> int:
        return 2

    async def retry_until(self, seconds: float, attempt: Callable[[], Awaitable[Any]]) -> Any:
        return await attempt()


class Consumer:
    """Stands in for a consumer of two partitions without any record.

    answers: the number of answers to fetches, of which each may have brought a marker.
    """

    def __init__(self) -> None:
        self.positions = {FIRST: 4, SECOND: 0}
        self.client = SimpleNamespace(answers=1)

    async def beginning_offsets(self, places: Mapping[TopicPartition, object]) -> dict[TopicPartition, int]:
        return dict.fromkeys(places, 0)

    def assign(self, places: object) -> None:
        """To both, as it is from the beginning."""

    def seek(self, place: TopicPartition, offset: int) -> None:
        """To the beginning: `positions` says what was passed since."""

    async def getmany(self, **_: object) -> dict[TopicPartition, list[Any]]:
        await asyncio.sleep(0)
        return {}

    async def end_offsets(self, places: Mapping[TopicPartition, object]) -> dict[TopicPartition, int]:
        """One more each time that is asked."""
        self.positions[FIRST] += 1
        return {place: self.positions[place] for place in places}

    async def position(self, place: TopicPartition) -> int:
        """While the second partition is asked about the marker comes behind which the first one then stands."""
        if place == SECOND and self.client.answers == 1:
            self.client.answers, self.positions[FIRST] = 2, 5
        return self.positions[place]


@pytest.mark.parametrize("has_sessions", [True, False], ids=["with fetch sessions", "without"])
async def test_a_marker_that_comes_while_the_feed_is_asked_where_it_stands_moves_it(has_sessions: bool) -> None:
    """Nothing else comes after it: who waits to be caught up would wait for the next record of anybody."""
    consumer = Consumer()
    sessions: Any = consumer.client if has_sessions else None
    feed = KafkaFeed(Log(), consumer, None, [PLACEMENTS], sessions)  # type: ignore[arg-type]
    await feed.seek_to_start(None)
    async with asyncio.timeout(DEADLINE_SECONDS):
        async for batch in feed:
            if batch.positions[PLACEMENTS.name, 0] == 5:
                return


class Uncommitted:
    """Sees what is written before the marks of its transactions are."""

    async def end_offsets(self, places: Mapping[TopicPartition, object]) -> dict[TopicPartition, int]:
        return {place: 7 if place == FIRST else 0 for place in places}


async def test_the_ends_are_behind_what_was_committed_though_its_marks_are_not_all_written_yet() -> None:
    """Whoever takes a turn reads up to these ends. Lower ones would leave out the last commit of the turn before."""
    log = Log()
    log.settings = KafkaSettings("nowhere:0", marks_seconds=DEADLINE_SECONDS, retry_seconds=0.01)
    feed = KafkaFeed(log, Consumer(), Uncommitted(), [PLACEMENTS], None)  # type: ignore[arg-type]
    assert await feed.end_offsets() == {(PLACEMENTS.name, 0): 7, (PLACEMENTS.name, 1): 0}
