"""A reader of whole topics on Kafka: its positions, its lag, and its reaction when records of the log are lost."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError, OffsetOutOfRangeError

from spillway.addresses import Topic
from spillway.bus import Bus, Offsets, OtherFleet, RecordBatch
from spillway.dead_letters import LetterReading, StoredRecord
from spillway.kafka.access import KafkaAccess
from spillway.kafka.fetch_sessions import SessionClient
from spillway.kafka.settings import KafkaSettings
from spillway.retention import skip_deleted_records

T = TypeVar("T")


class LogBus(Bus, Protocol):
    """The bus that a feed belongs to."""

    settings: KafkaSettings
    access: KafkaAccess
    source: str

    def topic_name(self, topic: Topic) -> str: ...

    def partition_count(self, topic: Topic) -> int: ...

    async def retry_until(self, seconds: float, attempt: Callable[[], Awaitable[T]]) -> T: ...


class KafkaFeed:
    """A reader of whole topics. sessions: the consumer's fetch sessions, or None. Only they count fetch answers."""

    def __init__(
        self, bus: LogBus, consumer: Any, uncommitted: Any, topics: Sequence[Topic], sessions: SessionClient | None
    ) -> None:
        self._bus = bus
        self._consumer = consumer
        self._uncommitted = uncommitted
        self._places = {
            TopicPartition(bus.topic_name(topic), partition): (topic.name, partition)
            for topic in topics
            for partition in range(bus.partition_count(topic))
        }
        self._positions: dict[tuple[str, int], int] = {}
        self._newest_ms: dict[str, int] = {}
        self._asked = self._fetched = 0.0
        self._sessions = sessions
        self._drained = False
        """True if the last fetch found no records."""
        self._settled = -1
        """The number of answered fetches when all positions were last read, with all fetched records taken."""
        settings = bus.settings
        self._reading = LetterReading(
            bus.fleet_id, bus.source, settings.dead_letters_per_minute_max, settings.open_letter_bounds
        )

    async def seek_to_start(self, start: Offsets | None) -> None:
        """Sets the first positions. Without start they are at the beginning of each partition.

        With it they are at the offsets in it, not before the beginning; partitions that it lacks are at their end.
        """
        begins = wanted = self._offsets_by_place(await self._consumer.beginning_offsets(self._places))
        if start is not None:
            ends = self._offsets_by_place(await self._consumer.end_offsets(self._places))
            wanted = {name: start.get(name, end) for name, end in ends.items()}
        self._positions = skip_deleted_records(wanted, begins)
        self._consumer.assign(list(self._places))
        for place, name in self._places.items():
            self._consumer.seek(place, self._positions[name])

    def _offsets_by_place(self, offsets: Mapping[TopicPartition, int]) -> dict[tuple[str, int], int]:
        return {self._places[place]: offset for place, offset in offsets.items()}

    async def end_offsets(self, topics: Sequence[Topic] = ()) -> Offsets:
        settings, names = self._bus.settings, {topic.name for topic in topics}
        places = {place: name for place, name in self._places.items() if not names or name[0] in names}
        if not places:
            return {}
        written = await self._bus.retry_until(settings.publish_seconds, lambda: self._uncommitted.end_offsets(places))
        deadline = time.monotonic() + settings.marks_seconds
        while True:
            ends = await self._bus.retry_until(settings.publish_seconds, lambda: self._consumer.end_offsets(places))
            if time.monotonic() > deadline or all(ends[place] >= written[place] for place in places):
                return {name: ends[place] for place, name in places.items()}
            await asyncio.sleep(settings.retry_seconds / 10)

    def lag_by_topic(self) -> dict[str, float]:
        """Returns the number of unread records for each topic, by the last answers of the brokers."""
        found: dict[str, float] = {}
        for place, name in self._places.items():
            end = self._consumer.highwater(place)
            if end is not None:
                found[name[0]] = found.get(name[0], 0) + max(0, end - self._positions[name])
        return found

    def age_seconds_by_topic(self) -> dict[str, float]:
        """Returns the age in seconds of the newest record read, for each topic."""
        now_ms = time.time() * 1000
        return {topic: max(0.0, now_ms - written_ms) / 1000 for topic, written_ms in self._newest_ms.items()}

    def stop_following(self, topics: Sequence[Topic]) -> None:
        names = {topic.name for topic in topics}
        gone = [place for place, (name, _) in self._places.items() if name in names]
        self._consumer.pause(*gone)
        self._places = {place: name for place, name in self._places.items() if place not in gone}
        self._newest_ms = {topic: written for topic, written in self._newest_ms.items() if topic not in names}

    async def __aiter__(self) -> AsyncIterator[RecordBatch]:
        settings = self._bus.settings
        yielded = time.monotonic()
        while True:
            answers = 0 if self._sessions is None else self._sessions.answers
            stored = await self._fetch_records()
            moved = await self._update_positions(stored, answers)
            records = self._reading.read_records(stored, time.monotonic())
            await self._reading.publish_pending(self._bus)
            if moved or time.monotonic() - yielded >= settings.idle_batch_seconds:
                yielded = time.monotonic()
                yield RecordBatch(records, dict(self._positions))

    async def _fetch_records(self) -> list[StoredRecord]:
        settings = self._bus.settings
        await asyncio.sleep(max(0.0, self._fetched + settings.batch_pause_seconds - time.monotonic()))
        self._fetched = time.monotonic()
        self._drained = False
        try:
            found: Mapping[TopicPartition, Sequence[Any]] = await self._consumer.getmany(
                timeout_ms=int(settings.poll_seconds * 1000), max_records=settings.batch_records_max
            )
        except OffsetOutOfRangeError as error:
            await self._return_into_range(error)
            return []
        except KafkaError as error:
            self._bus.access.check_allowed(error, "read")
            await asyncio.sleep(settings.retry_seconds)
            return []
        self._drained = not found
        for place, records in found.items():
            if place in self._places:
                topic, newest_ms = self._places[place][0], max(record.timestamp for record in records)
                self._newest_ms[topic] = max(newest_ms, self._newest_ms.get(topic, newest_ms))
        return [
            StoredRecord(*self._places[place], record.offset, record.key, record.value, tuple(record.headers))
            for place, records in found.items()
            if place in self._places
            for record in records
        ]

    async def _update_positions(self, stored: Sequence[StoredRecord], answers: int) -> bool:
        """Updates the positions, and returns whether one moved.

        A transaction's marker moves a position without a record. Reading the positions of hundreds of partitions from
        aiokafka takes a millisecond. So the positions of records are used at once, and those of all partitions are read
        at intervals, until nothing more was fetched. Without fetch sessions answers are not counted, and all are read
        each time. answers: the number of answered fetches when the last records were taken.
        """
        for record in stored:
            self._positions[record.topic, record.partition] = record.offset + 1
        if self._sessions is not None and self._drained and self._settled == self._sessions.answers:
            return False
        if stored and time.monotonic() - self._asked < self._bus.settings.poll_seconds:
            return True
        self._asked = time.monotonic()
        moved = bool(stored)
        for place, name in self._places.items():
            position = await self._consumer.position(place)
            moved = moved or position != self._positions[name]
            self._positions[name] = position
        self._settled = answers if self._drained else -1
        return moved

    async def _return_into_range(self, error: OffsetOutOfRangeError) -> None:
        """Moves a position to the beginning of its partition, if retention deleted the records before.

        Raises OtherFleet for a position past the end of the partition.
        """
        ((place, offset),) = error.args[0].items()
        seconds = self._bus.settings.start_seconds
        begin = (await self._bus.retry_until(seconds, lambda: self._consumer.beginning_offsets([place])))[place]
        if offset >= begin:
            raise OtherFleet(f"{place.topic}/{place.partition} ends before {offset}: the topic was created again")
        name = self._places.get(place)
        if name is not None:  # Otherwise it is no longer followed.
            self._positions |= skip_deleted_records({name: offset}, {name: begin})
            self._consumer.seek(place, begin)
