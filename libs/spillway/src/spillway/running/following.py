"""Reads the log into a service's state: some topics whole, then others from the state's position, then new records."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog

from spillway.addresses import CLAIM_TOPIC_BY_SERVICE, TOPIC_BY_NAME, Topic
from spillway.bus import Bus, BusUnavailable, Feed, Offsets, OffsetsWentBack, Record, RecordBatch, has_reached_ends
from spillway.dead_letters import dead_letter
from spillway.events import TurnTaken
from spillway.model import Generation

log = structlog.get_logger()


class FollowedIntake(Protocol):
    """The part of a service that applies the records of followed topics."""

    def start_offsets(self, ends: Offsets) -> Offsets:
        """Returns the start offsets in the `later` topics. A partition without one is read from its end.

        ends: the end offsets of the `whole` topics. All records before them have been applied.
        """
        ...

    def apply_record(self, record: Record, live: bool) -> None:
        """Applies one record. live: False for records that were in the topic when the reader opened it.

        Raises one of FollowedTopics.unfit for a record that becomes a dead letter.
        """
        ...

    async def end_batch(self, batch: RecordBatch, positions: Offsets) -> None:
        """Is called after each batch, also an empty one, and before the next is read. positions: of all topics."""
        ...


@dataclass(frozen=True, slots=True)
class FollowedTopics:
    """The topics that a service follows.

    whole: topics that are read from their beginnings, the topic of its turns included. later: topics that are read
    after them.
    unfit: the errors of FollowedIntake.apply_record for a record that becomes a dead letter and is left out.
    last_only: the `whole` topics whose records are large and replace earlier records of their key. At the start
    only the last record of each key is applied, after all other records: compaction leaves days of older ones.
    """

    service: str
    whole: Sequence[Topic]
    later: Sequence[Topic]
    unfit: tuple[type[Exception], ...]
    last_only: Sequence[Topic] = ()


class Follower:
    """Keeps the state of one life of a service up to date with the log.

    turn: the last TurnTaken, whose instance is the active one. turn_epoch: its offset, -1 before the first.
    written_epoch: the highest epoch in records that the service itself writes.
    positions: the offset after the last applied record, by partition.
    """

    def __init__(self, bus: Bus, followed: FollowedTopics, intake: FollowedIntake) -> None:
        self.turn: TurnTaken | None = None
        self.turn_epoch = -1
        self.written_epoch = -1
        self.positions: dict[tuple[str, int], int] = {}
        self._bus = bus
        self._followed = followed
        self._intake = intake
        self._last_only = {topic.name for topic in followed.last_only}
        self._turns = CLAIM_TOPIC_BY_SERVICE[followed.service].name
        self._moved = asyncio.Condition()
        self._feeds: list[Feed] = []

    async def run(self) -> None:
        """Reads until cancelled."""
        async with self._bus.follow_topics(self._followed.whole) as whole:
            batches = aiter(whole)
            starts = self._intake.start_offsets(await self._read_to_the_end(whole, batches))
            async with self._bus.follow_topics(self._followed.later, starts) as later:
                newer = aiter(later)
                await self._read_to_the_end(later, newer)
                async with asyncio.TaskGroup() as tasks:
                    self._feeds = [whole, later]
                    tasks.create_task(self._follow_batches(batches))
                    tasks.create_task(self._follow_batches(newer))

    async def wait_until_caught_up(self, *topics: Topic) -> None:
        """Returns when all records that were in the log at the call are applied. topics: only their records, if any."""
        while len(self._feeds) < 2:
            async with self._moved:
                await self._moved.wait()
        ends = [await feed.end_offsets(topics) for feed in self._feeds]
        async with self._moved:
            await self._moved.wait_for(lambda: all(has_reached_ends(self.positions, end) for end in ends))

    async def check_epochs(self) -> None:
        """Raises OffsetsWentBack if a record of the service has a higher epoch than every turn in the log."""
        written = self.written_epoch
        if written > self.turn_epoch:
            await self.wait_until_caught_up()  # Its turn is before it in the log, but may be read later.
        if written > self.turn_epoch:
            raise OffsetsWentBack(
                f"records of {self._followed.service} bear epoch {written}, and the last turn in {self._turns} is at "
                f"offset {self.turn_epoch}: its topics were made anew or have lost their ends; nothing is decided"
            )

    async def wait_until_overtaken(self, epoch: int) -> None:
        """Returns when the log has a later turn than the turn with this epoch.

        By then the earlier turn's writer is fenced, even if it has not tried to write.
        """
        async with self._moved:
            await self._moved.wait_for(lambda: self.turn_epoch > epoch)

    def stop_following(self, topics: Sequence[Topic]) -> None:
        """Stops following these topics: the active instance knows its own records."""
        for feed in self._feeds:
            feed.stop_following(topics)

    async def _read_to_the_end(self, feed: Feed, batches: AsyncIterator[RecordBatch]) -> Offsets:
        ends = await feed.end_offsets()
        last: dict[tuple[str, str], Record] = {}
        while not has_reached_ends(self.positions, ends):
            await self._apply_batch(await anext(batches), last)
        for record in last.values():
            await self._apply_record(record, live=False)
            await asyncio.sleep(0)  # Each may be large, so other tasks get a turn.
        return ends

    async def _follow_batches(self, batches: AsyncIterator[RecordBatch]) -> None:
        async for batch in batches:
            await self._apply_batch(batch)

    async def _apply_batch(self, batch: RecordBatch, last: dict[tuple[str, str], Record] | None = None) -> None:
        """Applies a batch. last: records to apply when the end is reached, by topic and key; None after that."""
        for record in batch.records:
            if last is not None and record.topic in self._last_only:
                last[record.topic, record.key] = record
            else:
                await self._apply_record(record, live=last is None)
        self.positions.update(batch.positions)
        await self._intake.end_batch(batch, self.positions)
        async with self._moved:
            self._moved.notify_all()

    async def _apply_record(self, record: Record, live: bool) -> None:
        event = record.event
        if isinstance(event, TurnTaken) and record.topic == self._turns and record.offset > self.turn_epoch:
            self.turn, self.turn_epoch = event, record.offset
        generation = getattr(event, "generation", None)
        if isinstance(generation, Generation) and self._followed.service in TOPIC_BY_NAME[record.topic].emitters:
            self.written_epoch = max(self.written_epoch, generation.epoch)
        try:
            self._intake.apply_record(record, live)
        except self._followed.unfit as error:
            await self._set_record_aside(record, str(error))

    async def _set_record_aside(self, record: Record, reason: str) -> None:
        log.warning(
            "a record was set aside: it cannot be applied", topic=record.topic, offset=record.offset, reason=reason
        )
        place = (record.topic, record.partition, record.offset)
        await self._bus.publish(dead_letter(place, self._followed.service, reason, record.key.encode()))


class TopicReader:
    """Applies every record of some topics for as long as it runs. start: as in Bus.follow_topics.

    If the log does not answer, it tries again after retry_seconds.
    """

    def __init__(
        self,
        bus: Bus,
        topics: Sequence[Topic],
        take: Callable[[Record], None],
        retry_seconds: float,
        start: Offsets | None = None,
    ) -> None:
        self._bus = bus
        self._topics = topics
        self._take = take
        self._retry_seconds = retry_seconds
        self._positions = start
        self._feed: Feed | None = None
        self._moved = asyncio.Condition()
        self._looking = asyncio.Lock()
        self._asked = 0
        self._answered = 0

    async def run(self) -> None:
        """Reads until cancelled."""
        while True:
            try:
                async with self._bus.follow_topics(self._topics, self._positions) as self._feed:
                    await self._follow_feed(self._feed)
            except BusUnavailable as error:
                self._feed = None
                names = [topic.name for topic in self._topics]
                log.warning("the log cannot be read", error=str(error), topics=names)
                await asyncio.sleep(self._retry_seconds)

    async def wait_until_caught_up(self) -> None:
        """Returns when all records that were in the log at the call have been applied.

        Calls that wait at the same time share one question for the ends of the log.
        """
        self._asked += 1
        number = self._asked
        async with self._looking:
            if self._answered < number:  # Otherwise an earlier call asked for the ends after this call had begun.
                asked = self._asked
                ends = await self._read_end_offsets()
                async with self._moved:
                    await self._moved.wait_for(lambda: has_reached_ends(self._positions or {}, ends))
                self._answered = asked

    async def _follow_feed(self, feed: Feed) -> None:
        await self._notify_progress()
        async for batch in feed:
            for record in batch.records:
                self._take(record)
            self._positions = batch.positions
            await self._notify_progress()

    async def _notify_progress(self) -> None:
        async with self._moved:
            self._moved.notify_all()

    async def _read_end_offsets(self) -> Offsets:
        while True:
            async with self._moved:
                await self._moved.wait_for(lambda: self._feed is not None)
            try:
                if self._feed is not None:
                    return await self._feed.end_offsets()
            except BusUnavailable as error:
                log.warning("the log's end offsets are not known yet", error=str(error))
                await asyncio.sleep(self._retry_seconds)
