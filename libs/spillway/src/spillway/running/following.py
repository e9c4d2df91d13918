"""Reads the log into a service's state: some topics whole, then others from where the state stands, then all live."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog

from spillway.addresses import CLAIM_TOPIC_BY_SERVICE, TOPIC_BY_NAME, Topic
from spillway.bus import Batch, Bus, BusUnavailable, Feed, Offsets, OffsetsWentBack, Record, reached
from spillway.dead_letters import dead_letter
from spillway.events import TurnTaken
from spillway.model import Generation

log = structlog.get_logger()


class Intake(Protocol):
    """What a service makes of the records that it follows."""

    def starts(self, ends: Offsets) -> Offsets:
        """Where to begin in the later topics; one that is not named begins at its end. ends: of the whole topics, all
        records before which have been taken in."""
        ...

    def take(self, record: Record, live: bool) -> None:
        """Takes in one record. live: False for records that stood in the topic when the reader opened it. Raises
        Followed.unfit."""
        ...

    async def taken(self, batch: Batch, positions: Offsets) -> None:
        """Called after each batch, also after an empty one. positions: in all topics. The reader goes on once this
        returns."""
        ...


@dataclass(frozen=True, slots=True)
class Followed:
    """What a service follows. whole: topics that are read from their beginnings, the one of its turns among them.
    later: topics that are read after those.

    unfit: what Intake.take raises for a record that becomes a dead letter and is left out. last_only: those of the
    whole topics whose records are large and each say everything of their key. At the start the reader takes only the
    last record of each key there, after all other records: compaction leaves days of older ones.
    """

    service: str
    whole: Sequence[Topic]
    later: Sequence[Topic]
    unfit: tuple[type[Exception], ...]
    last_only: Sequence[Topic] = ()


class Follower:
    """Keeps one state up to date.

    turn: the last TurnTaken, whose instance names the active one; turn_epoch: its offset, -1 before the first.
    written_epoch: the highest epoch in records that the service itself writes. positions: in each partition, the offset
    after the last record that was taken in.
    """

    def __init__(self, bus: Bus, followed: Followed, intake: Intake) -> None:
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
        async with self._bus.follow(self._followed.whole) as whole:
            batches = aiter(whole)
            starts = self._intake.starts(await self._read_to_the_end(whole, batches))
            async with self._bus.follow(self._followed.later, starts) as later:
                newer = aiter(later)
                await self._read_to_the_end(later, newer)
                async with asyncio.TaskGroup() as tasks:
                    self._feeds = [whole, later]
                    tasks.create_task(self._follow(batches))
                    tasks.create_task(self._follow(newer))

    async def caught_up(self, *topics: Topic) -> None:
        """Returns when all records that stood in the log at the call have been taken in. topics: look at these
        alone."""
        while len(self._feeds) < 2:
            async with self._moved:
                await self._moved.wait()
        ends = [await feed.ends(topics) for feed in self._feeds]
        async with self._moved:
            await self._moved.wait_for(lambda: all(reached(self.positions, end) for end in ends))

    async def check_epochs(self) -> None:
        """Raises OffsetsWentBack when the service's own records bear a higher epoch than any turn in the log."""
        written = self.written_epoch
        if written > self.turn_epoch:
            await self.caught_up()  # Its turn stands before it in the log, and may be read later.
        if written > self.turn_epoch:
            raise OffsetsWentBack(
                f"records of {self._followed.service} bear epoch {written}, and the last turn in {self._turns} is at "
                f"offset {self.turn_epoch}: its topics were made anew or have lost their ends; nothing is decided"
            )

    async def overtaken(self, epoch: int) -> None:
        """Returns when the log has a later turn than this one. The writer of this one is fenced by then, even if it has
        not tried to write."""
        async with self._moved:
            await self._moved.wait_for(lambda: self.turn_epoch > epoch)

    def pass_over(self, topics: Sequence[Topic]) -> None:
        """From now on these topics are not read: the active instance knows what it writes."""
        for feed in self._feeds:
            feed.pass_over(topics)

    async def _read_to_the_end(self, feed: Feed, batches: AsyncIterator[Batch]) -> Offsets:
        ends = await feed.ends()
        last: dict[tuple[str, str], Record] = {}
        while not reached(self.positions, ends):
            await self._take(await anext(batches), last)
        for record in last.values():
            await self._take_one(record, live=False)
            await asyncio.sleep(0)  # Each may be large, and others are to be answered.
        return ends

    async def _follow(self, batches: AsyncIterator[Batch]) -> None:
        async for batch in batches:
            await self._take(batch)

    async def _take(self, batch: Batch, last: dict[tuple[str, str], Record] | None = None) -> None:
        """last: records to take in when the end is reached, by topic and key; None after that."""
        for record in batch.records:
            if last is not None and record.topic in self._last_only:
                last[record.topic, record.key] = record
            else:
                await self._take_one(record, live=last is None)
        self.positions.update(batch.positions)
        await self._intake.taken(batch, self.positions)
        async with self._moved:
            self._moved.notify_all()

    async def _take_one(self, record: Record, live: bool) -> None:
        event = record.event
        if isinstance(event, TurnTaken) and record.topic == self._turns and record.offset > self.turn_epoch:
            self.turn, self.turn_epoch = event, record.offset
        generation = getattr(event, "generation", None)
        if isinstance(generation, Generation) and self._followed.service in TOPIC_BY_NAME[record.topic].emitters:
            self.written_epoch = max(self.written_epoch, generation.epoch)
        try:
            self._intake.take(record, live)
        except self._followed.unfit as error:
            await self._set_aside(record, str(error))

    async def _set_aside(self, record: Record, reason: str) -> None:
        log.warning(
            "a record was set aside: it cannot be applied", topic=record.topic, offset=record.offset, reason=reason
        )
        place = (record.topic, record.partition, record.offset)
        await self._bus.publish(dead_letter(place, self._followed.service, reason, record.key.encode()))


class TopicReader:
    """Takes in every record of some topics, whole or from start on (as Bus.follow says), for as long as it runs.

    What the log does not answer is asked again after retry_seconds.
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
                async with self._bus.follow(self._topics, self._positions) as self._feed:
                    await self._follow(self._feed)
            except BusUnavailable as error:
                self._feed = None
                names = [topic.name for topic in self._topics]
                log.warning("the log cannot be read", error=str(error), topics=names)
                await asyncio.sleep(self._retry_seconds)

    async def caught_up(self) -> None:
        """Returns when all records that stood in the log at the call have been taken in.

        Calls that wait at the same time share one question for the ends of the log.
        """
        self._asked += 1
        number = self._asked
        async with self._looking:
            if self._answered < number:
                asked = self._asked
                ends = await self._ends()
                async with self._moved:
                    await self._moved.wait_for(lambda: reached(self._positions or {}, ends))
                self._answered = asked

    async def _follow(self, feed: Feed) -> None:
        await self._tell()
        async for batch in feed:
            for record in batch.records:
                self._take(record)
            self._positions = batch.positions
            await self._tell()

    async def _tell(self) -> None:
        async with self._moved:
            self._moved.notify_all()

    async def _ends(self) -> Offsets:
        while True:
            async with self._moved:
                await self._moved.wait_for(lambda: self._feed is not None)
            try:
                if self._feed is not None:
                    return await self._feed.ends()
            except BusUnavailable as error:
                log.warning("the log's end offsets are not known yet", error=str(error))
                await asyncio.sleep(self._retry_seconds)
