"""Reads partitions over aiokafka's connections: a fetch costs as much as there is news, not as much as is followed.

aiokafka's own fetcher walks over all partitions of a consumer, hundreds of them, before and after each fetch and
several times a second in between. Here each broker is asked one thing after the other, in a session, for all that it
leads, and only what it answers is looked at. aiokafka reads the records, and leaves aborted transactions out.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiokafka import TopicPartition
from aiokafka.client import ConnectionGroup
from aiokafka.consumer.fetcher import READ_COMMITTED, READ_UNCOMMITTED, PartitionRecords
from aiokafka.errors import KafkaError, OffsetOutOfRangeError, TopicAuthorizationFailedError, for_code
from aiokafka.record.memory_records import MemoryRecords

from spillway.fetch_sessions import FetchSession, Partition, SessionFetch
from spillway.waiting import is_set_within

OWN_CONNECTION = ConnectionGroup.COORDINATION
"""A broker answers what comes over one connection in turn, and a fetch that waits would hold up who asks for ends. This
second connection is free in a client without a group."""
NO_LEADER = (None, -1)
ANSWERED_IN_11 = 5


@dataclass(frozen=True, slots=True)
class FetchRules:
    """wait_seconds: the longest that a broker waits for news. pause_seconds: from one fetch to the next at the least.

    retry_seconds: the same after trouble.
    """

    committed: bool
    bytes_max: int
    partition_bytes_max: int
    wait_seconds: float
    pause_seconds: float
    retry_seconds: float


@dataclass(frozen=True, slots=True)
class Taken:
    """records: aiokafka's. positions: of the partitions that moved, behind what was taken. Marks of transactions move
    one without any record."""

    records: list[Any]
    positions: dict[Partition, int]


@dataclass(slots=True, eq=False)
class _Broker:
    """wanted: of what it leads, from which offset, and how many bytes. waiting: partitions that it answered with news,
    which are not taken yet; it is asked again once there are none."""

    node: int
    session: FetchSession = field(default_factory=FetchSession)
    wanted: dict[Partition, tuple[int, int]] = field(default_factory=dict)
    waiting: int = 0
    taken: asyncio.Event = field(default_factory=asyncio.Event)
    asking: "asyncio.Task[None] | None" = None


class Fetcher:
    """client: aiokafka's, which knows the topics. Reads while it runs, from where it was told to begin.

    highwater: behind the last record that there was when a broker answered about a partition last.
    """

    def __init__(self, client: Any, rules: FetchRules) -> None:
        self.highwater: dict[Partition, int] = {}
        self._client = client
        self._rules = rules
        self._positions: dict[Partition, int] = {}
        self._brokers: dict[int, _Broker] = {}
        self._ready: deque[tuple[_Broker, Partition, Any]] = deque()
        self._heard = asyncio.Event()
        self._trouble: BaseException | None = None
        self._retry: asyncio.TimerHandle | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        cluster = self._client.cluster
        cluster.add_listener(self._divide)
        self._divide(cluster)
        try:
            yield
        finally:
            cluster.remove_listener(self._divide)
            if self._retry is not None:
                self._retry.cancel()
            for broker in self._brokers.values():
                if broker.asking is not None:
                    broker.asking.cancel()

    def seek(self, place: Partition, offset: int) -> None:
        """Where to begin, before it runs."""
        self._positions[place] = offset

    @property
    def sessions(self) -> list[FetchSession]:
        return [broker.session for broker in self._brokers.values()]

    def forget(self, places: Iterable[Partition]) -> None:
        """These are not read any more, nor is what of them was not taken yet."""
        for place in places:
            self._positions.pop(place, None)
            self.highwater.pop(place, None)
            for broker in self._brokers.values():
                broker.wanted.pop(place, None)

    async def take(self, seconds: float, records_max: int) -> Taken:
        """What is there; after so many seconds also nothing. Raises KafkaError: OffsetOutOfRangeError with the offset
        by partition, TopicAuthorizationFailedError with the topic; after another one it goes on."""
        if not self._ready and self._trouble is None:
            await is_set_within(self._heard, seconds)
        self._heard.clear()
        if self._trouble is not None:
            trouble, self._trouble = self._trouble, None
            raise trouble
        taken = Taken([], {})
        while self._ready and len(taken.records) < records_max:
            self._take_first(taken, records_max)
        return taken

    def _take_first(self, taken: Taken, records_max: int) -> None:
        broker, place, records = self._ready[0]
        ended = True
        if place in broker.wanted:  # Else forgotten, or another broker is asked for the same meanwhile.
            try:
                ended = _move(records, taken.records, records_max)
            except KafkaError as damaged:  # The rest is asked for again.
                self._note(damaged)
            if records.next_fetch_offset != self._positions[place]:
                self._positions[place] = taken.positions[place] = records.next_fetch_offset
                broker.wanted[place] = self._wanted(place)
        if ended:
            self._ready.popleft()
            broker.waiting -= 1
            if not broker.waiting:
                broker.taken.set()

    def _wanted(self, place: Partition) -> tuple[int, int]:
        return self._positions[place], self._rules.partition_bytes_max

    def _divide(self, cluster: Any) -> None:
        """Each broker is asked for what it leads now."""
        led: dict[int | None, dict[Partition, tuple[int, int]]] = {node: {} for node in self._brokers}
        for place in self._positions:
            led.setdefault(cluster.leader_for_partition(TopicPartition(*place)), {})[place] = self._wanted(place)
        lost = [place for node in NO_LEADER for place in led.pop(node, ())]
        if lost and self._retry is None:
            self._retry = asyncio.get_running_loop().call_later(self._rules.retry_seconds, self._look_again)
        for node, wanted in led.items():
            assert node is not None
            broker = self._brokers.setdefault(node, _Broker(node))
            broker.wanted = wanted
            if wanted and (broker.asking is None or broker.asking.done()):
                broker.asking = asyncio.create_task(self._ask_on(broker))
                broker.asking.add_done_callback(self._ended)

    def _look_again(self) -> None:
        self._retry = None
        self._client.force_metadata_update()

    def _ended(self, asking: "asyncio.Task[None]") -> None:
        """By itself only when its broker leads nothing any more; else by a bug."""
        if not asking.cancelled() and (bug := asking.exception()) is not None:
            self._note(bug)

    def _note(self, trouble: BaseException) -> None:
        self._trouble = trouble
        self._heard.set()

    async def _ask_on(self, broker: _Broker) -> None:
        rules, now = self._rules, asyncio.get_running_loop().time
        while broker.wanted:
            asked_at, asked = now(), dict(broker.wanted)
            try:
                answer = await self._client.send(broker.node, self._request(broker, asked), group=OWN_CONNECTION)
            except KafkaError:
                broker.session.failed()
                await asyncio.sleep(rules.retry_seconds)
                continue
            # Versions without sessions have neither field.
            broker.session.answered(asked, getattr(answer, "session_id", 0), getattr(answer, "error_code", 0))
            is_sound = self._hear(broker, asked, answer)
            if broker.waiting:
                broker.taken.clear()
                self._heard.set()
                await broker.taken.wait()
            await asyncio.sleep(max(0.0, asked_at + rules.pause_seconds - now()) if is_sound else rules.retry_seconds)

    def _request(self, broker: _Broker, asked: dict[Partition, tuple[int, int]]) -> SessionFetch:
        rules = self._rules
        isolation = READ_COMMITTED if rules.committed else READ_UNCOMMITTED
        return SessionFetch(broker.session, asked, int(rules.wait_seconds * 1000), rules.bytes_max, isolation)

    def _hear(self, broker: _Broker, asked: Mapping[Partition, tuple[int, int]], answer: Any) -> bool:
        """Whether the broker had no trouble with any partition."""
        is_sound = True
        for topic, partitions in answer.topics:
            for partition, code, highwater, *rest in partitions:
                place = topic, partition
                if place not in broker.wanted or broker.wanted[place] != asked[place]:
                    continue
                if code:
                    is_sound = False
                    self._note_refusal(place, code)
                    continue
                self.highwater[place] = highwater
                records = MemoryRecords(rest[-1] or b"")
                if records.has_next():
                    self._ready.append((broker, place, self._read(place, records, rest)))
                    broker.waiting += 1
        return is_sound

    def _note_refusal(self, place: Partition, code: int) -> None:
        error = for_code(code)
        if error is OffsetOutOfRangeError:
            self._note(OffsetOutOfRangeError({TopicPartition(*place): self._positions[place]}))
        elif error is TopicAuthorizationFailedError:
            self._note(TopicAuthorizationFailedError(place[0]))
        else:  # Another broker leads it, or will in a moment.
            self._client.force_metadata_update()

    def _read(self, place: Partition, records: Any, rest: list[Any]) -> Any:
        """rest: of the answer, behind the high watermark. Version 11 has a replica between aborted and records."""
        aborted = rest[2] if len(rest) == ANSWERED_IN_11 else rest[-2]
        isolation = READ_COMMITTED if self._rules.committed else READ_UNCOMMITTED
        start = self._positions[place]
        return PartitionRecords(TopicPartition(*place), records, aborted, start, None, None, True, isolation)


def _move(records: Any, into: list[Any], most: int) -> bool:
    """Whether there are no more."""
    while len(into) < most:
        record = next(records, None)
        if record is None:
            return True
        into.append(record)
    return False
