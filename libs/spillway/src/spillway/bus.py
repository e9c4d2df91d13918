"""The bus: what a service may ask of the log, whoever keeps it. kafka/bus.py and LocalBus (local_bus.py) answer."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol
from zlib import crc32

from spillway.addresses import Address, Tombstone, Topic
from spillway.events import Event

Offsets = Mapping[tuple[str, int], int]
"""(topic name, partition) → the offset of the next record to read."""

Headers = tuple[tuple[str, bytes], ...]
Traces = Mapping[int, Headers]
"""Of some of the events of one write, by their index: the headers of the trace that each belongs to."""


class BusUnavailable(Exception):
    """The log cannot be reached within the deadline; nothing was acknowledged, and may be written all the same."""


class OutcomeUnknown(Exception):
    """A write failed in a way that leaves open whether it is in the log. The writer must step down and rebuild."""


class TooManyDeadLetters(Exception):
    """So many records of our own services cannot be read that the fault is ours; the process stops."""


class NoLog(Exception):
    """The topics of this fleet are not there: the topics command has not run, or this is another broker."""


class OtherFleet(Exception):
    """The log belongs to another fleet than the one this process was started for."""


class OffsetsWentBack(OtherFleet):
    """Records bear epochs above the offset of every turn in the log: topics were made anew, or have lost their ends.

    An epoch is an offset. What would be written now would sort below what is there, and every reader would drop it.
    """


@dataclass(frozen=True, slots=True)
class Position:
    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One record to be written. value None is a tombstone. trace: the headers of the trace that it belongs to."""

    address: Address
    key: bytes
    value: bytes | None
    kind: str
    trace: Headers = ()


@dataclass(frozen=True, slots=True)
class Record:
    """One record that could be read. event None is a tombstone. headers: trace context for tracing.py.

    value: the event as the log has it.
    """

    topic: str
    partition: int
    offset: int
    key: str
    event: Event | None
    headers: Headers = ()
    value: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class Batch:
    """Records in the order of their partitions, and where the feed stands after them (may move with no record)."""

    records: tuple[Record, ...]
    positions: Offsets


class Feed(Protocol):
    """A reader of whole topics, in order per partition, without group offsets.

    Iterating gives a Batch at least every settings.idle_batch_seconds, also an empty one.
    Records that cannot be read are dead-lettered and left out; on topics that our services alone write, too many of
    them raise TooManyDeadLetters.
    """

    def __aiter__(self) -> AsyncIterator[Batch]: ...

    async def ends(self, topics: Sequence[Topic] = ()) -> Offsets:
        """Where the followed partitions end now, of these topics if any are named. BusUnavailable when that cannot be
        learnt in time."""
        ...

    def pass_over(self, topics: Sequence[Topic]) -> None:
        """From now on these are not followed: who alone writes them need not read what it wrote."""
        ...


def reached(positions: Offsets, ends: Offsets) -> bool:
    """Whether a feed that stands at positions has read everything before ends."""
    return all(positions.get(place, 0) >= end for place, end in ends.items())


@dataclass(frozen=True, slots=True)
class Assignment:
    """The partitions of the cluster scope that are this instance's turn, of partition_count."""

    partitions: frozenset[int]
    partition_count: int

    def holds(self, cluster: str) -> bool:
        return partition_of(cluster, self.partition_count) in self.partitions


def partition_of(name: str, partition_count: int) -> int:
    """The partition of a name. CRC-32, so that every language and every adapter agrees."""
    return crc32(name.encode()) % partition_count


class Writer(Protocol):
    """The one fenced writer of a standby service: opened by taking the turn, which fences the one before."""

    @property
    def epoch(self) -> int:
        """The offset of this writer's TurnTaken. Who follows the turns and reads one above it knows it to be fenced."""
        ...

    async def write(self, events: Sequence[Event | Tombstone | Outgoing], traces: Traces | None = None) -> None:
        """All in one transaction. OutcomeUnknown after any error or time-out: nothing more may be written."""
        ...


class StandbyTurn(Protocol):
    """The turn of a service of which one instance is active."""

    async def wait(self) -> Writer:
        """Returns when it is this instance's turn, with a writer that fenced the one before."""
        ...

    async def lost(self) -> None:
        """Returns when the turn is over: given to another instance, or this one no longer belongs to the group."""
        ...


class Bus(Protocol):
    @property
    def fleet(self) -> str:
        """The fleet id that every record of this bus bears."""
        ...

    async def fleet_changed(self) -> str:
        """Returns when the log is no longer this fleet's, or none, and says so."""
        ...

    async def publish(self, *events: Event | Tombstone, traces: Traces | None = None) -> tuple[Position, ...]:
        """Writes in order per partition, returns where each one stands. BusUnavailable past the deadline.

        traces None: all belong to the current one, if any.
        """
        ...

    def follow(self, topics: Sequence[Topic], start: Offsets | None = None) -> AbstractAsyncContextManager[Feed]:
        """Reads topics whole, then on. start: from these offsets instead, partitions that it lacks from the end;
        an empty mapping is therefore the end of everything. Topics that transactions write are read committed.

        What retention deleted is skipped (retention.py), at the start and later; where a topic ends before the reader
        stands, it is another log: OtherFleet."""
        ...

    def cluster_turns(self, service: str, instance: str) -> AbstractAsyncContextManager[AsyncIterator[Assignment]]:
        """Joins the instances that share the clusters; yields each new assignment, also an empty one."""
        ...

    def standby_turn(self, service: str, instance: str) -> AbstractAsyncContextManager[StandbyTurn]:
        """Joins the instances of which one is active."""
        ...
