"""The bus: the operations of the log that services use. kafka/bus.py and LocalBus (local_bus.py) implement it."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol
from zlib import crc32

from spillway.addresses import RecordAddress, Tombstone, Topic
from spillway.events import Event

Offsets = Mapping[tuple[str, int], int]
"""The offset of the next record to read, by (topic name, partition)."""

Headers = tuple[tuple[str, bytes], ...]
Traces = Mapping[int, Headers]
"""The trace headers of events, by the event's index in its write. Events without a trace have no entry."""


class BusUnavailable(Exception):
    """Raised if the log does not answer within the deadline. Records may have been written without acknowledgement."""


class OutcomeUnknown(Exception):
    """Raised if a write failed but may be in the log. The writer must step down and read its state from the log."""


class TooManyDeadLetters(Exception):
    """Raised if too many records of our own services cannot be read. Our code must be wrong, so the process stops."""


class NoLog(Exception):
    """Raised if the topics of this fleet are missing: the topics command has not run, or this is another broker."""


class OtherFleet(Exception):
    """Raised if the log does not belong to the fleet for which this process was started."""


class OffsetsWentBack(OtherFleet):
    """Raised if records have epochs above the offset of every turn: topics were created again, or lost their ends.

    An epoch is an offset. New records would have lower epochs than existing ones, and all readers would drop them.
    """


@dataclass(frozen=True, slots=True)
class Position:
    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One record to be written. value None is a tombstone. trace: the headers of the record's trace."""

    address: RecordAddress
    key: bytes
    value: bytes | None
    kind: str
    trace: Headers = ()


@dataclass(frozen=True, slots=True)
class Record:
    """One record that could be read. event None is a tombstone.

    headers: trace context for tracing.py. value: the event's bytes in the log.
    """

    topic: str
    partition: int
    offset: int
    key: str
    event: Event | None
    headers: Headers = ()
    value: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """Records, in order per partition, and the read offsets after them. Offsets may advance without any record."""

    records: tuple[Record, ...]
    positions: Offsets


class Feed(Protocol):
    """A reader of whole topics, in order per partition, without group offsets.

    Iterating gives a RecordBatch, which may be empty, at least every settings.idle_batch_seconds.
    Records that cannot be read become dead letters and are left out. Too many of them raise TooManyDeadLetters, on
    topics that only our services write.
    """

    def __aiter__(self) -> AsyncIterator[RecordBatch]: ...

    async def end_offsets(self, topics: Sequence[Topic] = ()) -> Offsets:
        """Returns the current end offsets of the followed partitions. topics: only of these topics; empty: of all.

        Raises BusUnavailable when the ends cannot be read in time.
        """
        ...

    def stop_following(self, topics: Sequence[Topic]) -> None:
        """Stops following these topics. The only writer of a topic does so, because it knows its own records."""
        ...


def has_reached_ends(positions: Offsets, ends: Offsets) -> bool:
    """Returns whether a feed with these read offsets has read all records before these ends."""
    return all(positions.get(place, 0) >= end for place, end in ends.items())


@dataclass(frozen=True, slots=True)
class Assignment:
    """The partitions that a group assigns to this instance, which may take the turns of all clusters in them.

    partition_count: the number of partitions that the group divides.
    """

    partitions: frozenset[int]
    partition_count: int

    def has_cluster(self, cluster: str) -> bool:
        return partition_of(cluster, self.partition_count) in self.partitions


def partition_of(name: str, partition_count: int) -> int:
    """Returns the partition of a name, by CRC-32, so that every language and every adapter agrees."""
    return crc32(name.encode()) % partition_count


class Writer(Protocol):
    """The one fenced writer of a standby service. Taking the turn opens it and fences the previous writer."""

    @property
    def turn_epoch(self) -> int:
        """The offset of this writer's TurnTaken. A TurnTaken at a higher offset shows that this writer is fenced."""
        ...

    async def write_events(self, events: Sequence[Event | Tombstone | Outgoing], traces: Traces | None = None) -> None:
        """Writes all events in one transaction. Raises OutcomeUnknown for any error: do not use the writer after it."""
        ...


class StandbyTurn(Protocol):
    """The turn of a service with one active instance."""

    async def wait_for_turn(self) -> Writer:
        """Returns when it is this instance's turn, with a writer that fenced the previous one."""
        ...

    async def wait_until_lost(self) -> None:
        """Returns when the turn is over: another instance has it, or this instance is no longer in the group."""
        ...


class Bus(Protocol):
    @property
    def fleet_id(self) -> str:
        """The id of the fleet, which is in every record of this bus."""
        ...

    async def wait_for_fleet_change(self) -> str:
        """Waits until the log belongs to another fleet or to none, and returns the reason."""
        ...

    async def publish(self, *events: Event | Tombstone, traces: Traces | None = None) -> tuple[Position, ...]:
        """Writes events in order per partition, and returns their positions. Raises BusUnavailable past the deadline.

        traces: by the index of an event; None: all events belong to the current trace, if any.
        """
        ...

    def follow_topics(self, topics: Sequence[Topic], start: Offsets | None = None) -> AbstractAsyncContextManager[Feed]:
        """Reads topics from the beginning, then goes on with new records.

        Topics that transactions write are read committed.
        start: the offsets to start from. Partitions without an entry start at their end, so an empty mapping starts all
        partitions at the end. Records that retention deleted are skipped (retention.py), at the start and later. Raises
        OtherFleet if a topic ends before the reader's position: then it is another log.
        """
        ...

    def join_cluster_group(self, service: str, instance: str) -> AbstractAsyncContextManager[AsyncIterator[Assignment]]:
        """Joins the group in which the instances of a service share the clusters. Yields each new assignment."""
        ...

    def join_standby_group(self, service: str, instance: str) -> AbstractAsyncContextManager[StandbyTurn]:
        """Joins the group of a service with one active instance. Yields this instance's turn, to wait for."""
        ...
