"""The bus in memory, for tests and simulation, in the loop's (virtual) time. It keeps the promises of kafka/bus.py."""

import asyncio
import contextlib
import copy
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from spillway.addresses import CLUSTERS, SCOPE_CLUSTER, SCOPE_WORKLOAD, TOPICS, Tombstone, Topic
from spillway.bus import (
    Assignment,
    BusUnavailable,
    Feed,
    Headers,
    NoLog,
    Offsets,
    OtherFleet,
    OutcomeUnknown,
    Outgoing,
    Position,
    RecordBatch,
    StandbyTurn,
    Traces,
    Writer,
    partition_of,
)
from spillway.dead_letters import LetterReading, StoredRecord, outgoing_record, record_headers, trace_sending
from spillway.events import Event, FleetFormed, TurnTaken
from spillway.letters_by_writer import DEFAULT_BOUNDS, LetterBounds
from spillway.local_log import PartitionLog
from spillway.retention import skip_deleted_records
from spillway.waiting import is_set_within, loop_seconds

RETRY_SECONDS = 0.1
"""The pause, in seconds, after which a bus that is cut off from the broker tries to reach it again."""


@dataclass(frozen=True, slots=True)
class LocalSettings:
    """Limits of the bus in memory. They have the names that the same limits have in KafkaSettings."""

    publish_seconds: float = 5.0
    """The seconds for which a publish is tried before it raises BusUnavailable."""
    write_seconds: float = 8.0
    """The seconds after which a transaction raises OutcomeUnknown."""
    idle_batch_seconds: float = 0.5
    """The longest time without a batch from a feed, in seconds."""
    batch_records_max: int = 2000
    """The most records of one batch."""
    dead_letters_per_minute_max: int = 100
    """The unreadable records of one feed in a minute above which it raises TooManyDeadLetters."""
    open_letters: LetterBounds = DEFAULT_BOUNDS
    """The limits of dead letters for topics that anyone may write to."""
    partitions_cluster: int = 64
    """Partitions of the topics of the cluster scope."""
    partitions_workload: int = 16
    """Partitions of the topics of the workload scope."""


@dataclass(slots=True)
class _Member:
    bus: "LocalBus"
    instance: str
    partitions: frozenset[int] = frozenset()
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    expelled: bool = False


class LocalBroker:
    """The log in one process, with consumer groups and fenced writers.

    Tests cause faults by `unavailable`, `next_write_late_seconds`, fail_next_write and end_sessions.
    """

    def __init__(self, settings: LocalSettings | None = None) -> None:
        self.settings = settings or LocalSettings()
        self.unavailable = False
        self.fleet = ""
        self._logs = {topic.name: [PartitionLog() for _ in range(self.partition_count(topic))] for topic in TOPICS}
        self._groups: dict[str, list[_Member]] = {}
        self._fences: dict[str, int] = {}
        self._failures: list[bool] = []
        self.next_write_late_seconds = 0.0
        # Feeds are woken in the order in which they began, so that a simulation is repeatable.
        self._feeds: dict[asyncio.Event, frozenset[str]] = {}
        self._serial = 0
        self.changes = 0
        """The number of writes so far. A feed that has read up to it need not look again."""
        self.reformed = asyncio.Event()

    def partition_count(self, topic: Topic) -> int:
        counts = {SCOPE_CLUSTER: self.settings.partitions_cluster, SCOPE_WORKLOAD: self.settings.partitions_workload}
        return counts.get(topic.scope, 1)

    # ── Hooks of tests and simulation ──

    def fail_next_write(self, *, written: bool) -> None:
        """Makes the next transaction raise OutcomeUnknown. written: True if its records reach the log nevertheless."""
        self._failures.append(written)

    def end_sessions(self, bus: "LocalBus") -> None:
        """Ends the sessions of a bus, as if its process froze, and tells the bus. Other buses get its turns."""
        self.end_sessions_unnoticed(bus)()

    def end_sessions_unnoticed(self, bus: "LocalBus") -> Callable[[], None]:
        """Ends the sessions of a bus as if it was disconnected. The returned function tells the bus."""
        expired = [
            (group, member) for group, members in self._groups.items() for member in members if member.bus is bus
        ]
        for group, member in expired:
            self._groups[group].remove(member)
            self._divide_partitions(group, sum(len(one.partitions) for one in (member, *self._groups[group])))

        def notice_expiry() -> None:
            for _, member in expired:
                member.partitions = frozenset()
                member.expelled = True
                member.changed.set()

        return notice_expiry

    def compact_topics(self, *, honour_lag: bool = True, drop_tombstones: bool = False) -> None:
        """Compacts every compacted topic at once. honour_lag: keep the records that min.compaction.lag would keep."""
        for topic in (topic for topic in TOPICS if topic.is_compacted):
            before = loop_seconds() - (topic.lag_ms / 1000 if honour_lag else 0.0)
            for log in self._logs[topic.name]:
                log.compact(before, drop_tombstones)

    def delete_records_before(self, topic: Topic, partition: int, offset: int) -> None:
        """Makes the partition begin at offset, like Kafka's delete_records. Raises ValueError for a compacted topic."""
        if topic.is_compacted:
            raise ValueError(f"{topic.name} is compacted: retention deletes nothing of it")
        self._logs[topic.name][partition].delete_records_before(offset)

    def apply_retention(self, seconds: float | None = None, bytes_max: int | None = None) -> None:
        """Deletes at once the records of every topic with retention that retention may have deleted by now.

        seconds: the age; None: as long as each topic keeps its records. bytes_max: of keys and values of one partition.
        """
        for topic in (topic for topic in TOPICS if not topic.is_compacted):
            kept_seconds = topic.retention_ms / 1000 if seconds is None else seconds
            for log in self._logs[topic.name]:
                log.apply_retention(loop_seconds() - kept_seconds, bytes_max)

    def append_raw_record(
        self, topic: Topic, partition: int, key: bytes | None, value: bytes | None, headers: Headers
    ) -> int:
        """Writes any bytes, also bytes that no reader can read."""
        offset = self._logs[topic.name][partition].append_record(key, value, headers)
        self.wake_feeds(frozenset({topic.name}))
        return offset

    def recreate_log(self, fleet: str) -> None:
        """Makes the log another fleet's, as if its topics had been created again."""
        self.fleet = fleet
        for logs in self._logs.values():
            for log in logs:
                log.records, log.begin, log.end = [], 0, 0
        self.append_records([outgoing_record(FleetFormed(fleet))], fleet, "topics")
        self.wake_feeds(frozenset(self._logs))
        self.reformed.set()

    def recreate_topic(self, topic: Topic) -> None:
        """Creates a topic again without its former offsets: they begin at 0. All other topics stay."""
        self._logs[topic.name] = [PartitionLog() for _ in self._logs[topic.name]]

    def copy_with_records(self) -> "LocalBroker":
        """Returns a copy without readers, like a copy of a broker's folder: the fleet, and all records with offsets."""
        other = LocalBroker(self.settings)
        other.fleet, other._logs = self.fleet, copy.deepcopy(self._logs)
        return other

    # ── Used by LocalBus ──

    def form_log(self, fleet: str) -> None:
        """Forms the log for a fleet, if it has none yet. The first bus with a fleet id does this."""
        if not self.fleet and fleet:
            self.fleet = fleet
            self.append_records([outgoing_record(FleetFormed(fleet))], fleet, "topics")

    def append_records(
        self, records: Sequence[Outgoing], fleet: str, source: str, marked: bool = False
    ) -> list[Position]:
        """Appends records. marked: as a transaction, whose end marker takes one offset in each of its partitions."""
        positions = []
        for record in records:
            self._serial += 1
            partition = partition_of(record.address.partition_by, self.partition_count(record.address.topic))
            moment = (datetime(2000, 1, 1, tzinfo=UTC) + timedelta(seconds=loop_seconds())).isoformat()
            headers = record_headers(record, fleet, source, f"local-{self._serial}", moment)
            offset = self._logs[record.address.topic.name][partition].append_record(record.key, record.value, headers)
            positions.append(Position(record.address.topic.name, partition, offset))
        if marked:
            for topic, partition in {(position.topic, position.partition) for position in positions}:
                self._logs[topic][partition].end += 1
        self.wake_feeds(frozenset(position.topic for position in positions))
        return positions

    def wake_feeds(self, topics: frozenset[str]) -> None:
        """Wakes the feeds of these topics, because there are new records."""
        self.changes += 1
        for feed, followed in self._feeds.items():
            if not topics.isdisjoint(followed):
                feed.set()

    def register_feed(self, feed: asyncio.Event, topics: Iterable[Topic]) -> None:
        self._feeds[feed] = frozenset(topic.name for topic in topics)

    def unregister_feed(self, feed: asyncio.Event) -> None:
        self._feeds.pop(feed, None)

    def end_offsets(self, topics: Iterable[Topic]) -> dict[tuple[str, int], int]:
        return {(t.name, index): log.end for t in topics for index, log in enumerate(self._logs[t.name])}

    def beginning_offsets(self, topics: Iterable[Topic]) -> dict[tuple[str, int], int]:
        return {(t.name, index): log.begin for t in topics for index, log in enumerate(self._logs[t.name])}

    def end_offset(self, topic: str, partition: int) -> int:
        return self._logs[topic][partition].end

    def count_written_until(self, topic: str, partition: int, offset: int, at: float, count: int) -> int:
        """Returns how many of the next `count` records were written until `at`; `count` if all of them were."""
        times = [kept.at for kept in self._logs[topic][partition].records_from(offset, count)]
        return count if not times or times[-1] <= at else sum(one <= at for one in times)

    def read_records(self, topic: str, partition: int, offset: int, count: int) -> tuple[list[StoredRecord], int]:
        """Returns the next records and the offset after them. Raises OtherFleet if the partition ends before offset."""
        log = self._logs[topic][partition]
        if offset < log.begin:
            offset = skip_deleted_records({(topic, partition): offset}, {(topic, partition): log.begin})[
                topic, partition
            ]
        if offset == log.end:
            return [], offset
        if offset > log.end:
            raise OtherFleet(f"{topic}/{partition} ends at {log.end}, before {offset}: the topic was created again")
        found = log.records_from(offset, count)
        stored = [StoredRecord(topic, partition, kept.offset, kept.key, kept.value, kept.headers) for kept in found]
        return stored, found[-1].offset + 1 if len(found) == count else log.end

    def remove_memberships(self, bus: "LocalBus") -> list[_Member]:
        """Removes every membership of a bus from its group, and returns them."""
        dropped = [
            (group, member) for group, members in self._groups.items() for member in members if member.bus is bus
        ]
        for group, member in dropped:
            self.leave_group(group, member)
        return [member for _, member in dropped]

    def join_group(self, group: str, member: _Member, partition_count: int) -> None:
        self._groups.setdefault(group, []).append(member)
        self._divide_partitions(group, partition_count)

    def leave_group(self, group: str, member: _Member) -> None:
        members = self._groups.get(group, [])
        if member in members:
            members.remove(member)
            count = len(member.partitions) + sum(len(other.partitions) for other in members)
            member.partitions = frozenset()
            member.changed.set()
            self._divide_partitions(group, count)

    def _divide_partitions(self, group: str, partition_count: int) -> None:
        """Divides the partitions evenly. Each member keeps as many of its partitions as its share allows."""
        members = self._groups[group]
        free = set(range(partition_count)).difference(*(member.partitions for member in members))
        shares = [partition_count // len(members)] * len(members) if members else []
        by_size = sorted(range(len(members)), key=lambda index: -len(members[index].partitions))
        for index in by_size[: partition_count % len(members) if members else 0]:
            shares[index] += 1
        kept = [set(sorted(member.partitions)[:share]) for member, share in zip(members, shares, strict=True)]
        for member, keeps in zip(members, kept, strict=True):
            free |= member.partitions - keeps
        left = sorted(free)
        for member, keeps, share in zip(members, kept, shares, strict=True):
            keeps.update(left[: share - len(keeps)])
            left = sorted(set(left) - keeps)
            member.partitions = frozenset(keeps)
            member.changed.set()

    def fence_earlier_writers(self, transactional_id: str) -> int:
        self._fences[transactional_id] = self._fences.get(transactional_id, 0) + 1
        return self._fences[transactional_id]

    def is_fenced(self, transactional_id: str, token: int) -> bool:
        return self._fences.get(transactional_id) != token

    def take_next_failure(self) -> bool | None:
        return self._failures.pop(0) if self._failures else None


class LocalBus:
    """Bus on a LocalBroker. It can be used at once, or as a context that leaves its groups at the end.

    unavailable: cuts this bus off from the broker; broker.unavailable cuts off all.
    lag_seconds: by topic name and partition, how long after its write this bus reads a record, as brokers differ.
    """

    def __init__(self, broker: LocalBroker, fleet: str, source: str) -> None:
        broker.form_log(fleet)
        if not broker.fleet:
            raise NoLog("no fleet was formed on this broker")
        if fleet and fleet != broker.fleet:
            raise OtherFleet(f"this log is of fleet {broker.fleet!r}, not of {fleet!r}")
        self.broker = broker
        self.source = source
        self.unavailable = False
        self.lag_seconds: Callable[[str, int], float] = lambda topic, partition: 0.0
        self._fleet = broker.fleet

    async def __aenter__(self) -> "LocalBus":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.broker.remove_memberships(self)

    @property
    def fleet_id(self) -> str:
        return self._fleet

    @property
    def is_cut_off(self) -> bool:
        return self.unavailable or self.broker.unavailable

    async def wait_for_fleet_change(self) -> str:
        await self.broker.reformed.wait()
        return f"the log is now of fleet {self.broker.fleet!r}, not of {self._fleet!r}"

    async def publish(self, *events: Event | Tombstone, traces: Traces | None = None) -> tuple[Position, ...]:
        with trace_sending([outgoing_record(event) for event in events], traces, self.source) as records:
            await self.wait_for_broker(self.broker.settings.publish_seconds)
            return tuple(self.broker.append_records(records, self._fleet, self.source))

    async def wait_for_broker(self, seconds: float) -> None:
        """Lets other tasks run, then waits for the broker. Raises BusUnavailable after `seconds`."""
        await asyncio.sleep(0)
        deadline = loop_seconds() + seconds
        while self.is_cut_off:
            if loop_seconds() >= deadline:
                raise BusUnavailable(f"no answer from the log within {seconds} s")
            await asyncio.sleep(min(RETRY_SECONDS, seconds))

    @contextlib.asynccontextmanager
    async def follow_topics(self, topics: Sequence[Topic], start: Offsets | None = None) -> AsyncIterator[Feed]:
        ends, begins = self.broker.end_offsets(topics), self.broker.beginning_offsets(topics)
        wanted = begins if start is None else ends | {k: v for k, v in start.items() if k in ends}
        positions = skip_deleted_records(wanted, begins)
        feed = _LocalFeed(self, tuple(topics), positions)
        try:
            yield feed
        finally:
            self.broker.unregister_feed(feed.changed)

    @contextlib.asynccontextmanager
    async def _hold_membership(self, group: str, instance: str, partition_count: int) -> AsyncIterator[_Member]:
        member = _Member(self, instance)
        self.broker.join_group(group, member, partition_count)
        try:
            yield member
        finally:
            self.broker.leave_group(group, member)

    @contextlib.asynccontextmanager
    async def join_cluster_group(self, service: str, instance: str) -> AsyncIterator[AsyncIterator[Assignment]]:
        count = self.broker.partition_count(CLUSTERS)
        async with self._hold_membership(f"{self._fleet}.{service}", instance, count) as member:
            yield _Assignments(self, f"{self._fleet}.{service}", member, count)

    @contextlib.asynccontextmanager
    async def join_standby_group(self, service: str, instance: str) -> AsyncIterator[StandbyTurn]:
        async with self._hold_membership(f"{self._fleet}.{service}.standby", instance, 1) as member:
            yield _LocalStandbyTurn(self, service, member)


class _Assignments:
    """The assignments of a member, one after each rebalance. A wait for the next one may be cancelled."""

    def __init__(self, bus: LocalBus, group: str, member: _Member, partition_count: int) -> None:
        self._bus = bus
        self._group = group
        self._member = member
        self._partition_count = partition_count

    def __aiter__(self) -> "_Assignments":
        return self

    async def __anext__(self) -> Assignment:
        """Returns the next assignment. An expelled member first gets an empty one, and joins again at its next call."""
        while not self._member.changed.is_set() and self._member.expelled:
            with contextlib.suppress(BusUnavailable):
                await self._bus.wait_for_broker(self._bus.broker.settings.publish_seconds)
                self._member.expelled = False
                self._bus.broker.join_group(self._group, self._member, self._partition_count)
        await self._member.changed.wait()
        self._member.changed.clear()
        return Assignment(self._member.partitions, self._partition_count)


class _LocalFeed:
    def __init__(self, bus: LocalBus, topics: tuple[Topic, ...], positions: dict[tuple[str, int], int]) -> None:
        bounds = bus.broker.settings
        self.changed = asyncio.Event()
        self._bus = bus
        self._topics = topics
        self._positions = positions
        self._places = list(positions)
        self._read_all_of = -1
        self._reading = LetterReading(bus.fleet_id, bus.source, bounds.dead_letters_per_minute_max, bounds.open_letters)
        bus.broker.register_feed(self.changed, topics)

    def __aiter__(self) -> AsyncIterator[RecordBatch]:
        return self._read_batches()

    async def end_offsets(self, topics: Sequence[Topic] = ()) -> Offsets:
        await self._bus.wait_for_broker(self._bus.broker.settings.publish_seconds)
        return self._bus.broker.end_offsets([topic for topic in self._topics if not topics or topic in topics])

    def stop_following(self, topics: Sequence[Topic]) -> None:
        self._topics = tuple(topic for topic in self._topics if topic not in topics)
        names = {topic.name for topic in self._topics}
        self._places = [place for place in self._places if place[0] in names]
        self._bus.broker.register_feed(self.changed, self._topics)

    async def _read_batches(self) -> AsyncIterator[RecordBatch]:
        idle_seconds = self._bus.broker.settings.idle_batch_seconds
        while True:
            self.changed.clear()
            before = dict(self._positions)
            stored = [] if self._bus.is_cut_off else self._fetch_records()
            records = self._reading.read_records(stored, loop_seconds())
            if not self._bus.is_cut_off:
                await self._reading.publish_pending(self._bus)
            if self._bus.is_cut_off:
                await asyncio.sleep(idle_seconds)
            elif before == self._positions and await is_set_within(self.changed, idle_seconds):
                continue
            await asyncio.sleep(0)
            yield RecordBatch(records, dict(self._positions))

    def _fetch_records(self) -> list[StoredRecord]:
        """Returns the records of one batch. The next call begins after the partition that filled this batch."""
        broker = self._bus.broker
        if self._read_all_of == broker.changes:
            return []
        changes, all_read = broker.changes, True
        room = broker.settings.batch_records_max
        stored: list[StoredRecord] = []
        for _ in range(len(self._places)):
            place = self._places[0]
            found: list[StoredRecord] = []
            count = min(room, self._readable_count(place))
            if count:
                found, self._positions[place] = broker.read_records(*place, self._positions[place], count)
            all_read = all_read and self._positions[place] == broker.end_offset(*place)
            self._places.append(self._places.pop(0))
            stored += found
            room -= len(found)
            if room == 0:
                return stored
        self._read_all_of = changes if all_read else -1
        return stored

    def _readable_count(self, place: tuple[str, int]) -> int:
        """Returns the most records that this bus may read from a partition now: those that are older than its lag."""
        lag = self._bus.lag_seconds(*place)
        most = self._bus.broker.settings.batch_records_max
        return (
            self._bus.broker.count_written_until(*place, self._positions[place], loop_seconds() - lag, most)
            if lag
            else most
        )


class _LocalWriter:
    """A fenced writer. It cannot be used again after it was fenced, or after a write failed or was cancelled."""

    def __init__(self, bus: LocalBus, transactional_id: str) -> None:
        self._bus = bus
        self._id = transactional_id
        self._token = bus.broker.fence_earlier_writers(transactional_id)
        self._over = ""
        self._epoch = -1

    @property
    def turn_epoch(self) -> int:
        return self._epoch

    def take_turn(self, turn: TurnTaken) -> None:
        self._epoch = self._bus.broker.append_records(
            [outgoing_record(turn)], self._bus.fleet_id, self._bus.source, True
        )[0].offset

    async def write_events(self, events: Sequence[Event | Tombstone | Outgoing], traces: Traces | None = None) -> None:
        if self._over:
            raise OutcomeUnknown(f"this writer is over: {self._over}")
        with trace_sending([outgoing_record(event) for event in events], traces, self._bus.source) as records:
            await self._write_transaction(records)

    async def _write_transaction(self, records: list[Outgoing]) -> None:
        broker = self._bus.broker
        self._over = "a write did not end"
        if late := broker.next_write_late_seconds:
            broker.next_write_late_seconds = 0.0
            await asyncio.sleep(late)
        try:
            await self._bus.wait_for_broker(broker.settings.write_seconds)
        except BusUnavailable as error:
            raise self._end_writer(str(error)) from error
        if broker.is_fenced(self._id, self._token):
            raise self._end_writer("another instance took the turn")
        failure = broker.take_next_failure()  # None: no fault. True, False: a fault, with or without the records.
        if failure is not False:
            broker.append_records(records, self._bus.fleet_id, self._bus.source, True)
        if failure is not None:
            raise self._end_writer("a fault was asked for")
        self._over = ""

    def _end_writer(self, reason: str) -> OutcomeUnknown:
        self._over = reason
        return OutcomeUnknown(reason)


class _LocalStandbyTurn:
    def __init__(self, bus: LocalBus, service: str, member: _Member) -> None:
        self._bus = bus
        self._service = service
        self._member = member

    async def wait_for_turn(self) -> Writer:
        await asyncio.sleep(0)
        while not self._member.partitions or self._bus.is_cut_off:
            self._rejoin_group()
            await self._wait_for_change()
        writer = _LocalWriter(self._bus, f"{self._bus.fleet_id}.{self._service}")
        writer.take_turn(TurnTaken(self._service, "", self._member.instance))
        return writer

    async def wait_until_lost(self) -> None:
        while self._member.partitions:
            await self._wait_for_change()

    def _rejoin_group(self) -> None:
        if self._member.expelled and not self._bus.is_cut_off:
            self._member.expelled = False
            self._bus.broker.join_group(f"{self._bus.fleet_id}.{self._service}.standby", self._member, 1)

    async def _wait_for_change(self) -> None:
        """Waits until this member's partitions may have changed, but not longer than idle_batch_seconds."""
        if await is_set_within(self._member.changed, self._bus.broker.settings.idle_batch_seconds):
            self._member.changed.clear()
