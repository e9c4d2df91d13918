"""The fetcher against brokers that lead partitions, lose sessions and connections, and pass partitions on."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest
from aiokafka.client import ConnectionGroup
from aiokafka.errors import (
    CorruptRecordException,
    KafkaConnectionError,
    NotLeaderForPartitionError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
)
from aiokafka.protocol.fetch import FetchRequest_v11, FetchResponse_v11
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c
from aiokafka.structs import TopicPartition

from spillway.fetching import Fetcher, FetchRules

RULES = FetchRules(True, 1 << 20, 1 << 20, wait_seconds=0.01, pause_seconds=0.0, retry_seconds=0.0)
DEADLINE_SECONDS = 20.0
SESSION_NOT_FOUND = 70
CHECKSUM, ATTRIBUTES, CONTROL = 17, 21, 0x20
"""Where they are in a batch of records, and what attributes say that it is a mark."""
ABORTED = bytes(4)
"""The key of such a mark."""
A, B = ("a", 0), ("b", 0)


class Cluster:
    """aiokafka's client and what it knows of the cluster, in one. told: who leads what, as clients know it.

    batches: by partition, (first offset, offset after it, bytes). refusals: by partition, what fetches of it get.
    """

    def __init__(self, *places: tuple[str, int]) -> None:
        self.cluster = self
        self.leaders = dict.fromkeys(places, 1)
        self.told = dict(self.leaders)
        self.batches: dict[tuple[str, int], list[tuple[int, int, bytes]]] = {place: [] for place in places}
        self.refusals: dict[tuple[str, int], type[Exception]] = {}
        self.cut = False
        self.asked = 0
        self.listeners: list[Callable[[Any], None]] = []
        self._sessions: dict[int, dict[tuple[str, int], int]] = {}
        self._numbers = 0
        self._changed = asyncio.Condition()

    # ── What happens to it ──

    async def append(
        self, place: tuple[str, int], *values: bytes, damaged: bool = False, control: bool = False
    ) -> None:
        start = self.batches[place][-1][1] if self.batches[place] else 0
        builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
        for index, value in enumerate(values):
            builder.append(index, timestamp=1, key=value, value=value, headers=[])
        data = bytearray(builder.build())
        data[:8] = start.to_bytes(8, "big")  # The broker numbers it; its checksum begins behind that.
        if control:
            data[ATTRIBUTES + 1] |= CONTROL
            data[CHECKSUM:ATTRIBUTES] = calc_crc32c(data[ATTRIBUTES:]).to_bytes(4, "big")
        if damaged:
            data[-1] ^= 1
        self.batches[place].append((start, start + len(values), bytes(data)))
        await self._tell()

    async def change(self, **state: Any) -> None:
        vars(self).update(state)
        await self._tell()

    async def forget_sessions(self) -> None:
        self._sessions.clear()
        await self._tell()

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    # ── What the fetcher asks of it ──

    def add_listener(self, listener: Callable[[Any], None]) -> None:
        self.listeners.append(listener)

    def remove_listener(self, listener: Callable[[Any], None]) -> None:
        self.listeners.remove(listener)

    def leader_for_partition(self, place: TopicPartition) -> int | None:
        return self.told[place]

    def force_metadata_update(self) -> None:
        self.told = dict(self.leaders)
        for listener in self.listeners:
            listener(self)

    async def send(self, node: int, request: Any, group: ConnectionGroup) -> Any:
        assert group != ConnectionGroup.DEFAULT
        self.asked += 1
        asked = request.build(FetchRequest_v11)
        wanted = {(topic, one): at for topic, there in asked.topics for one, _, at, _, _ in there}
        number = asked.session_id
        if asked.session_epoch == 0:
            number = self._numbers = self._numbers + 1
            self._sessions[number] = wanted
        elif number in self._sessions:
            wanted = self._sessions[number] = self._sessions[number] | wanted
            for topic, there in asked.forgotten_topics_data:
                for one in there:
                    del wanted[topic, one]
        while True:
            await asyncio.sleep(0)
            if self.cut:
                raise KafkaConnectionError
            if asked.session_epoch > 0 and number not in self._sessions:
                return FetchResponse_v11(0, SESSION_NOT_FOUND, 0, [])
            if found := self._answers(node, wanted):
                return FetchResponse_v11(0, 0, number, found)
            try:
                async with asyncio.timeout(asked.max_wait_time / 1000), self._changed:
                    await self._changed.wait()
            except TimeoutError:
                return FetchResponse_v11(0, 0, number, [])

    def _answers(self, node: int, wanted: dict[tuple[str, int], int]) -> list[Any]:
        found = []
        for place, offset in wanted.items():
            refusal = self.refusals.get(place) or (NotLeaderForPartitionError if self.leaders[place] != node else None)
            end = self.batches[place][-1][1] if self.batches[place] else 0
            data = b"".join(data for _, after, data in self.batches[place] if after > offset)
            if data or refusal:
                code = 0 if refusal is None else refusal.errno  # type: ignore[attr-defined]
                found.append((place[0], [(place[1], code, end, end, 0, [], -1, b"" if code else data)]))
        return found


@asynccontextmanager
async def reading(cluster: Cluster, rules: FetchRules = RULES) -> AsyncIterator[Fetcher]:
    fetcher = Fetcher(cluster, rules)
    for place in cluster.leaders:
        fetcher.seek(place, 0)
    async with asyncio.timeout(DEADLINE_SECONDS):
        with fetcher.running():
            yield fetcher
    assert cluster.listeners == []


async def some(fetcher: Fetcher, count: int, records_max: int = 100) -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    while len(found) < count:
        taken = await fetcher.take(DEADLINE_SECONDS, records_max)
        assert len(taken.records) <= records_max
        found += [(record.topic, record.value) for record in taken.records]
    return found


async def test_whatever_happens_to_brokers_each_record_is_taken_once_and_in_order() -> None:
    chance = Random(1)
    places = [(topic, one) for topic in "ab" for one in range(3)]
    cluster = Cluster(*places)
    sent: dict[tuple[str, int], list[bytes]] = {place: [] for place in places}
    taken: dict[tuple[str, int], list[bytes]] = {place: [] for place in places}
    positions: dict[tuple[str, int], int] = {}
    async with reading(cluster) as fetcher:
        for step in range(300):
            place = chance.choice(places)
            values = [b"%d.%d" % (step, one) for one in range(chance.randint(1, 5))]
            sent[place] += values
            await cluster.append(place, *values)
            match chance.randrange(6):
                case 0:
                    cluster.leaders[chance.choice(places)] = chance.choice([1, 2, 3])
                    await cluster.change()
                case 1:
                    await cluster.forget_sessions()
                case 2:
                    await cluster.change(cut=True)
                    await asyncio.sleep(0)
                    await cluster.change(cut=False)
                case 3:
                    cluster.told[place] = -1
                    for listener in cluster.listeners:
                        listener(cluster)
            while chance.randrange(3) or (step == 299 and taken != sent):
                found = await fetcher.take(0.001, chance.randint(1, 7))
                positions |= found.positions
                for record in found.records:
                    taken[record.topic, record.partition].append(record.value)
    assert taken == sent
    assert positions == {place: len(values) for place, values in sent.items()}
    assert fetcher.highwater == positions


async def test_the_mark_of_a_transaction_moves_the_position_without_a_record() -> None:
    cluster = Cluster(A)
    await cluster.append(A, ABORTED, control=True)
    async with reading(cluster) as fetcher:
        taken = await fetcher.take(DEADLINE_SECONDS, 10)
        assert (taken.records, taken.positions) == ([], {A: 1})


async def test_what_is_forgotten_is_not_taken_even_if_it_was_answered() -> None:
    cluster = Cluster(A, B)
    async with reading(cluster) as fetcher:
        await cluster.append(A, b"1", b"2")
        assert await some(fetcher, 1, records_max=1) == [("a", b"1")]
        fetcher.forget([A])
        await cluster.append(A, b"3")
        await cluster.append(B, b"4")
        assert await some(fetcher, 1) == [("b", b"4")]
        assert A not in fetcher.highwater


async def test_a_broker_is_asked_again_once_what_it_answered_is_taken() -> None:
    cluster = Cluster(A)
    async with reading(cluster) as fetcher:
        await cluster.append(A, b"1", b"2")
        assert await some(fetcher, 1, records_max=1) == [("a", b"1")]
        await cluster.append(A, b"3")
        assert fetcher.highwater == {A: 2}
        assert cluster.asked == 1
        assert await some(fetcher, 2) == [("a", b"2"), ("a", b"3")]
        assert cluster.asked >= 2


@pytest.mark.parametrize("refusal", [OffsetOutOfRangeError, TopicAuthorizationFailedError])
async def test_what_a_broker_refuses_for_good_is_raised(refusal: type[Exception]) -> None:
    cluster = Cluster(A, B)
    cluster.refusals[A] = refusal
    async with reading(cluster) as fetcher:
        with pytest.raises(refusal) as met:
            await fetcher.take(DEADLINE_SECONDS, 10)
        assert met.value.args[0] == ({A: 0} if refusal is OffsetOutOfRangeError else "a")


async def test_a_damaged_batch_is_asked_for_again_and_the_others_go_on() -> None:
    cluster = Cluster(A, B)
    await cluster.append(A, b"1")
    await cluster.append(A, b"2", damaged=True)
    await cluster.append(B, b"3")
    async with reading(cluster) as fetcher:
        assert sorted(await some(fetcher, 2)) == [("a", b"1"), ("b", b"3")]
        with pytest.raises(CorruptRecordException):
            await fetcher.take(DEADLINE_SECONDS, 10)
        cluster.batches[A].pop()
        await cluster.append(A, b"2")
        while not (taken := [record async for record in _next(fetcher)]):
            pass
        assert [record.value for record in taken] == [b"2"]


async def _next(fetcher: Fetcher) -> AsyncIterator[Any]:
    try:
        taken = await fetcher.take(DEADLINE_SECONDS, 10)
    except CorruptRecordException:
        return
    for record in taken.records:
        yield record


async def test_a_bug_of_ours_is_not_swallowed() -> None:
    cluster = Cluster(A)

    async def send(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError

    cluster.send = send  # type: ignore[method-assign]
    async with reading(cluster) as fetcher:
        with pytest.raises(ZeroDivisionError):
            await fetcher.take(DEADLINE_SECONDS, 10)
