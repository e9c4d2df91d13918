"""Reads the backlog of a consumer group from a Kafka cluster of users. It creates no topic and joins no group.

Requests are sent one by one, not through aiokafka's admin and consumer. Those ask for metadata in a way that creates a
missing topic. And they ignore an error of a whole group's offsets, so that the group would seem to have none.
"""

import asyncio
import struct
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaConnectionError, KafkaError, NodeNotReadyError, RequestTimedOutError, for_code
from aiokafka.protocol.commit import OffsetFetchRequest
from aiokafka.protocol.coordination import FindCoordinatorRequest
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.offset import OffsetRequest

from hpa.external_metrics.connections import IN_THE_LOG, NO_CREDENTIALS, KafkaConnection, MetricUnknown
from spillway.events_scaling import PartitionBacklog
from spillway.kafka.access import LetNotIn
from spillway.kafka.internals import FrameRefused, bound_frame_bytes, close_connections
from spillway.settings import OperatorError

T = TypeVar("T")
Place = tuple[str, int]
"""Topic and partition."""

UNKNOWN_TOPIC: Final = 3
END: Final = -1
NO_OFFSET: Final = -1
UNCOMMITTED: Final = 0
GROUP_COORDINATOR: Final = 0
BATCH_HEAD: Final = struct.Struct(">qiibIhiqq")
"""The head of a batch of records: offset, length, epoch, format, checksum, attributes, last offset, first time, last
time."""
STAMPED_BY_BROKER: Final = 0x08
FORMAT: Final = 2


class LagUnknown(MetricUnknown):
    """Raised when the backlog cannot be read."""


class NobodyAnswers(Exception):
    """Raised when no known broker answered. The text has the error of the last one."""


@dataclass(frozen=True, slots=True)
class LagSettings:
    answer_seconds: float = 5.0
    """The time for one whole question."""
    request_part: float = 0.4
    """The part of answer_seconds for one request, or for closing. So other brokers can be asked after a silent one."""
    frame_bytes_max: int = 1_114_112
    """The largest frame of a broker: a batch of Kafka's default message.max.bytes (1,048,588) and 64 KiB around it.

    The slowest kind of answer is decoded in 0.7 s for each MiB, in which the event loop does nothing else.
    """
    brokers_max: int = 1_000
    """The most brokers that an answer may name. The largest clusters have some hundreds."""
    partitions_max: int = 15_000
    """The most partitions in an answer, as in a record of a backlog."""
    leaders_at_once: int = 16
    """The most leaders that one question asks at the same time."""
    connections_max: int = 200
    """The most connections that are kept open: more than eight questions use at the same time."""
    oldest_partitions_max: int = 64
    """The most partitions of one question whose oldest record is read, those with most unread records first."""
    oldest_remembered_max: int = 100_000
    """The most partitions of all groups whose oldest record is remembered. Above it, all are forgotten."""


class KafkaLag:
    """Reads backlogs over one named connection.

    The connection is opened at the first question, and again after no broker answered or an answer was not readable.

    If a broker is silent, only the connection to it is closed. Questions to other brokers go on.
    """

    def __init__(self, connection: KafkaConnection, settings: LagSettings) -> None:
        self._connection = connection
        self._settings = settings
        self._request_seconds = settings.answer_seconds * settings.request_part
        self._client: Any = None
        self._answered: int | str = ""
        self._answers = 0
        self._opening = asyncio.Lock()
        self._oldest: dict[tuple[str, Place], tuple[int, int]] = {}

    async def backlog(self, group: str, topic: str) -> tuple[PartitionBacklog, ...]:
        """Returns every partition of the topic, or of all topics in which the group has offsets. Raises LagUnknown."""
        client: Any = None
        answers = self._answers
        try:
            with bound_frame_bytes(self._settings.frame_bytes_max):
                async with asyncio.timeout(self._settings.answer_seconds):
                    client = await self._open_client()
                    return await self._read_partitions(client, group, topic)
        except TimeoutError as error:
            if answers == self._answers:
                await self._drop_client(client)
            raise LagUnknown(f"no answer within {self._settings.answer_seconds:g} s") from error
        except LetNotIn as error:
            raise LagUnknown(error.args[0], f"Kafka does not let the connection in: {IN_THE_LOG}") from error
        except (RequestTimedOutError, NodeNotReadyError, KafkaConnectionError) as error:
            name = type(error).__name__
            if isinstance(error.__cause__, FrameRefused):
                raise LagUnknown(f"{name}: {error.__cause__}") from error
            raise LagUnknown(f"{name}: {error}", f"{name}: a broker does not answer: {IN_THE_LOG}") from error
        except LagUnknown:
            raise
        except OperatorError as error:
            raise LagUnknown(str(error), NO_CREDENTIALS) from error
        except Exception as error:  # Decoding the bytes of other systems may raise anything.
            await self._drop_client(client)
            name = type(error).__name__
            raise LagUnknown(f"{name}: {error}", f"{name}: {IN_THE_LOG}") from error

    async def close(self) -> None:
        await self._drop_client(self._client)

    async def _read_partitions(self, client: Any, group: str, topic: str) -> tuple[PartitionBacklog, ...]:
        committed = await self._read_committed_offsets(client, group)
        topics = [topic] if topic else sorted({of for of, _ in committed})
        leaders = await self._leader_by_partition(client, topics, asked_for=topic)
        latest = await self._read_latest_offsets(client, leaders)
        waiting = {
            place: committed[place]
            for place in leaders
            if committed.get(place, NO_OFFSET) >= 0 and committed[place] < latest[place]
        }
        oldest = await self._read_oldest_times(client, group, leaders, waiting, latest)
        return tuple(
            PartitionBacklog(*place, latest[place], committed.get(place, NO_OFFSET), oldest.get(place, 0))
            for place in sorted(leaders)
        )

    async def _read_committed_offsets(self, client: Any, group: str) -> dict[Place, int]:
        found = await self._send_to_any_broker(client, FindCoordinatorRequest(group, GROUP_COORDINATOR))
        _check_error_code(found.error_code, f"the coordinator of group {group}")
        answer = await self._send_to_broker(client, found.coordinator_id, OffsetFetchRequest(group, None))
        _check_error_code(answer.error_code, f"the offsets of group {group}")
        self._check_partitions(f"the offsets of group {group}", (len(partitions) for _, partitions in answer.topics))
        committed: dict[Place, int] = {}
        for topic, partitions in answer.topics:
            for partition, offset, _, error_code in partitions:
                _check_error_code(error_code, f"the offset of group {group} in {topic}/{partition}")
                committed[topic, partition] = offset
        return committed

    async def _leader_by_partition(self, client: Any, topics: Sequence[str], asked_for: str) -> dict[Place, int]:
        """Returns the leader of every partition. A missing topic is an error only when it was asked for by name."""
        if not topics:
            return {}
        metadata = await self._send_to_any_broker(
            client, MetadataRequest(list(topics), allow_auto_topic_creation=False)
        )
        self._check_brokers(len(metadata.brokers))
        told = metadata.to_object()["topics"]
        self._check_partitions("the metadata", (len(found["partitions"]) for found in told))
        client.cluster.update_metadata(metadata)
        leaders: dict[Place, int] = {}
        for found in told:
            topic = found["topic"]
            if found["error_code"] == UNKNOWN_TOPIC:
                if asked_for:
                    raise LagUnknown(f"topic {topic} does not exist")
                continue
            _check_error_code(found["error_code"], f"topic {topic}")
            for one in found["partitions"]:
                if one["leader"] < 0:
                    raise LagUnknown(f"partition {topic}/{one['partition']} has no leader")
                leaders[topic, one["partition"]] = one["leader"]
        return leaders

    async def _read_latest_offsets(self, client: Any, leaders: Mapping[Place, int]) -> dict[Place, int]:
        by_leader: dict[int, list[Place]] = defaultdict(list)
        for place, leader in leaders.items():
            by_leader[leader].append(place)
        asked = [partial(self._read_ends_of_leader, client, leader, places) for leader, places in by_leader.items()]
        latest: dict[Place, int] = {}
        for ends in await self._run_some_at_once(asked):
            latest |= ends
        missing = [place for place in leaders if place not in latest]
        if missing:
            raise LagUnknown(f"no answer for {missing[0][0]}/{missing[0][1]}")
        return latest

    async def _read_ends_of_leader(self, client: Any, leader: int, places: Sequence[Place]) -> dict[Place, int]:
        """Returns the end offsets of these partitions from their leader. Other partitions in the answer are ignored."""
        topics: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for topic, partition in places:
            topics[topic].append((partition, END))
        answer = await self._send_to_broker(client, leader, OffsetRequest(-1, UNCOMMITTED, list(topics.items())))
        self._check_partitions("the ends of partitions", (len(partitions) for _, partitions in answer.topics))
        ends: dict[Place, int] = {}
        wanted = frozenset(places)
        for topic, partitions in answer.topics:
            for partition, error_code, _, offset in partitions:
                if (topic, partition) in wanted:
                    _check_error_code(error_code, f"the end of {topic}/{partition}")
                    ends[topic, partition] = offset
        return ends

    async def _read_oldest_times(
        self,
        client: Any,
        group: str,
        leaders: Mapping[Place, int],
        waiting: Mapping[Place, int],
        latest: Mapping[Place, int],
    ) -> dict[Place, int]:
        """Returns the time of each partition's oldest unread record, cached until the group has read that record."""
        known = {place: self._oldest.get((group, place)) for place in waiting}
        oldest = {place: row[1] for place, row in known.items() if row is not None and row[0] == waiting[place]}
        # committed minus latest is negative, so that the partitions with most unread records come first.
        new = sorted(waiting.keys() - oldest.keys(), key=lambda place: (waiting[place] - latest[place], place))
        new = new[: self._settings.oldest_partitions_max]
        asked = [partial(self._read_written_ms, client, leaders[place], place, waiting[place]) for place in new]
        times = await self._run_some_at_once(asked)
        oldest |= dict(zip(new, times, strict=True))
        if len(self._oldest) > self._settings.oldest_remembered_max:
            self._oldest.clear()
        for place in leaders:
            self._oldest.pop((group, place), None)
        self._oldest |= {(group, place): (waiting[place], at_ms) for place, at_ms in oldest.items()}
        return oldest

    async def _read_written_ms(self, client: Any, leader: int, place: Place, offset: int) -> int:
        """Returns the time at which a record was written, in Unix milliseconds.

        0 if the record is deleted already, or if its batch is larger than a frame may be: a broker answers with one
        whole batch of any size. Such a frame closes the connection, so other times that are asked over it are 0 too.
        """
        topic, partition = place
        try:
            request = FetchRequest(0, 1, 1, UNCOMMITTED, [(topic, [(partition, offset, 1)])])
            answer = await self._send_to_broker(client, leader, request)
        except KafkaConnectionError as error:
            if isinstance(error.__cause__, FrameRefused):
                return 0
            raise
        for _, partitions in answer.topics:
            for _, error_code, *_, batches in partitions:
                return 0 if error_code else first_written_ms(batches or b"")
        return 0

    async def _send_to_any_broker(self, client: Any, request: Any) -> Any:
        """Sends to one broker after another until one answers, first to the last that did. Raises NobodyAnswers."""
        last: Exception | None = None
        nodes: list[int | str] = [broker.nodeId for broker in client.cluster.brokers()] or ["bootstrap"]
        if len(nodes) > self._settings.brokers_max:
            await self._drop_client(client)
            self._check_brokers(len(nodes))
        for node in sorted(nodes, key=lambda one: one != self._answered):
            try:
                answer = await self._send_to_broker(client, node, request)
            except KafkaError as error:
                last = error
            else:
                self._answered = node
                self._answers += 1
                return answer
        raise NobodyAnswers(f"{type(last).__name__}: {last}")

    async def _send_to_broker(self, client: Any, node: int | str, request: Any) -> Any:
        """Sends to one broker. Afterwards closes the connections beyond connections_max."""
        try:
            return await client.send(node, request)
        finally:
            close_connections(client, self._settings.connections_max)

    async def _run_some_at_once(self, asked: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
        """Runs these requests, at most leaders_at_once at a time. Returns all answers in order.

        The first error cancels the other requests, which would otherwise outlive their question.
        """
        turns = asyncio.Semaphore(self._settings.leaders_at_once)

        async def run_in_turn(one: Callable[[], Awaitable[T]]) -> T:
            async with turns:
                return await one()

        tasks = [asyncio.create_task(run_in_turn(one)) for one in asked]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    def _check_brokers(self, number: int) -> None:
        if number > self._settings.brokers_max:
            raise LagUnknown(f"the metadata names {number} brokers: expected at most {self._settings.brokers_max}")

    def _check_partitions(self, what: str, numbers: Iterable[int]) -> None:
        if (number := sum(numbers)) > self._settings.partitions_max:
            raise LagUnknown(f"{what}: {number} partitions: expected at most {self._settings.partitions_max}")

    async def _open_client(self) -> Any:
        async with self._opening:
            if self._client is None:
                access = await asyncio.to_thread(self._connection.read_access)
                milliseconds = int(self._request_seconds * 1000)
                made = AIOKafkaClient(request_timeout_ms=milliseconds, **await access.client_arguments())
                try:
                    await made.bootstrap()
                except BaseException as error:
                    await self._close_client(made)
                    await access.raise_known_reason(error, "use")
                    raise
                self._client = made
            return self._client

    async def _drop_client(self, client: Any) -> None:
        if client is not None and client is self._client:
            self._client = None
            await self._close_client(client)

    async def _close_client(self, client: Any) -> None:
        """Closes the client.

        Errors are ignored: its background task may have failed, and a silent broker does not answer.
        """
        with suppress(Exception):
            async with asyncio.timeout(self._request_seconds):
                await client.close()


def first_written_ms(batches: bytes) -> int:
    """Returns the Unix milliseconds of the first record in the first batch. The wanted record is in the same batch.

    Returns 0 for bytes that are not a batch of the present format.
    """
    if len(batches) < BATCH_HEAD.size:
        return 0
    _, _, _, kind, _, attributes, _, first_ms, last_ms = BATCH_HEAD.unpack_from(batches)
    written_ms: int = last_ms if attributes & STAMPED_BY_BROKER else first_ms
    return max(0, written_ms) if kind == FORMAT else 0


def _check_error_code(error_code: int, what: str) -> None:
    if error_code:
        raise LagUnknown(f"{what}: {for_code(error_code).__name__}")
