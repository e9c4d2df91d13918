"""Batches as brokers send them. Records that aiokafka cannot read are replaced by one record marked as unreadable.

Brokers and several clients allow any bytes as a header's name; aiokafka expects UTF-8. And aiokafka decompresses a
batch whole, however large it becomes. Without this module, one bad record of any publisher would end a reader at each
start.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from spillway.dead_letters import RECORD_BYTES_MAX, UNREAD_HEADER, UNREAD_KIND_HEADER
from spillway.kafka.internals import memory_records
from spillway.kafka.unpacking import (
    UNPACKED_BYTES_MAX,
    CannotUnpack,
    StatesTooMuch,
    unpack_records,
    unpacked_bytes_bound,
)

UNPACKED_AT_ONCE_BYTES: Final = RECORD_BYTES_MAX
"""The decompressed bytes of one partition after which the rest of a fetch is dropped and fetched again.

Otherwise two thousand batches of one record, each within its bound, would be in memory together. A fetch of
uncompressed records brings as much of a partition. Only what is kept counts: a batch that is refused leaves nothing.
"""
PACKED_AT_ONCE_BYTES: Final = RECORD_BYTES_MAX
"""The compressed bytes of one partition after which the rest of a fetch is dropped and fetched again.

Decompression takes time for what it reads, even if it yields nothing. A batch that states too large a size is not read.
"""
VAIN_AT_ONCE_BYTES: Final = 8 * UNPACKED_BYTES_MAX
"""The bytes of one partition that may be decompressed in vain, after which the rest of a fetch is dropped.

A batch beyond its bound is decompressed up to the bound before the error. For the largest bound this takes up to 7 ms,
and nothing else has its turn meanwhile. If one such batch ended the fetch, thousands of small ones would be fetched
again for each. A batch that states its size is refused at once, and does not count.
"""
BATCH_RECORDS_MAX: Final = 50_000
"""The most records of one batch. The batch's header states the number, so a batch with more is not decompressed.

A record costs a reader 12 microseconds even if it is empty, and no other partition has its turn until the batch is
read. Our own producers write batches of 16 KiB without compression: a record has at least 75 bytes with the headers
that a reader needs, so such a batch has about 200 of them. A publisher's batch without compression has at most
28,000, in 2 MiB. A compressed batch within UNPACKED_BYTES_MAX reaches the bound only if its records have less than 167
bytes each.
"""
RECORDS_AT_ONCE: Final = BATCH_RECORDS_MAX
"""The number of records of one partition after which the rest of a fetch is dropped and fetched again.

Compressed to one byte each, millions of records would fit into one fetch. Other partitions have their turn before the
next fetch of this one is read.
"""

_LENGTH: Final = struct.Struct(">8xi")
"""The first fields of a batch of any version: the base offset, and the number of bytes that follow."""
_MAGIC_AT: Final = 16
_VERSION_2: Final = 2
_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
"""The header of a batch of version 2, as Kafka's documentation has it: base offset, length, leader epoch, magic, CRC,
attributes, last offset delta, first and last timestamp, producer id, producer epoch, base sequence, records."""
_ATTRIBUTES: Final = 5
_RECORDS: Final = 12
_OLD_ATTRIBUTES_AT: Final = 17
_CODEC: Final = 0b111


@dataclass(frozen=True, slots=True)
class UnreadRest:
    """Replaces all records of a batch from the first unreadable one on.

    It has the offset of the batch's last record.
    """

    offset: int
    timestamp: int
    timestamp_type: int
    headers: tuple[tuple[str, bytes], ...]
    key: bytes | None = None
    value: bytes | None = None
    checksum: None = None


@dataclass(slots=True)
class Taken:
    """Counts what the batches of one partition in one fetch have brought so far.

    unpacked_bytes: the decompressed bytes that are kept. packed_bytes: the compressed bytes that were decompressed.
    vain_bytes: the most that may have been decompressed for batches that were refused.
    """

    unpacked_bytes: int = 0
    packed_bytes: int = 0
    records: int = 0
    vain_bytes: int = 0

    def is_bound_reached(self) -> bool:
        return (
            self.unpacked_bytes >= UNPACKED_AT_ONCE_BYTES
            or self.packed_bytes >= PACKED_AT_ONCE_BYTES
            or self.records >= RECORDS_AT_ONCE
            or self.vain_bytes >= VAIN_AT_ONCE_BYTES
        )


class TooManyRecords(ValueError):
    """Raised if a batch's header states more records than BATCH_RECORDS_MAX."""


class KafkaBatch:
    """A batch with the methods of aiokafka's batch, which it calls. Only compressed records are read by our own code.

    raw: the bytes of the batch with its header. taken: the counts to which this batch adds its own.
    """

    def __init__(self, batch: Any, raw: memoryview, taken: Taken) -> None:
        self._batch = batch
        self._raw = raw
        self._taken = taken

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def __next__(self) -> Any:
        """Returns the marker of a control batch. Brokers compress none, and accept none from producers."""
        return next(self._batch)

    def __iter__(self) -> Iterator[Any]:
        try:
            yield from self._uncompressed_batch()
        except (CannotUnpack, TooManyRecords) as error:
            yield self._make_unread_rest("size", f"{error}; nothing in its batch can be read")
        except UnicodeDecodeError as error:
            yield self._make_unread_rest(
                "headers", f"the name of a header: {error}; nothing behind it in its batch can be read"
            )

    def _uncompressed_batch(self) -> Any:
        """Returns aiokafka's batch with uncompressed records. Raises CannotUnpack or TooManyRecords."""
        if self._raw[_MAGIC_AT] < _VERSION_2:
            # Such a batch is one record, or several that are compressed, perhaps twice. Brokers since 0.11 write none
            # to a topic that they have created, and send none to a client that fetches as ours does.
            if self._raw[_OLD_ATTRIBUTES_AT] & _CODEC:
                # aiokafka expects the version of the first batch in a whole fetch. So the rest is fetched again.
                self._taken.vain_bytes = VAIN_AT_ONCE_BYTES
                raise CannotUnpack("compressed records of a version that was replaced in Kafka 0.11")
            return self._batch
        fields = list(_HEADER.unpack_from(self._raw))
        if fields[_RECORDS] > BATCH_RECORDS_MAX:
            raise TooManyRecords(f"{fields[_RECORDS]} records: expected at most {BATCH_RECORDS_MAX}")
        codec = fields[_ATTRIBUTES] & _CODEC
        records = self._unpack_records(codec) if codec else b""
        self._taken.records += fields[_RECORDS]
        if not codec:
            return self._batch
        fields[1] = _HEADER.size - _LENGTH.size + len(records)
        fields[_ATTRIBUTES] &= ~_CODEC
        return memory_records(_HEADER.pack(*fields) + records).next_batch()

    def _unpack_records(self, codec: int) -> bytes:
        packed = bytes(self._raw[_HEADER.size :])
        bound = unpacked_bytes_bound(len(packed))
        try:
            records = unpack_records(codec, packed, bound)
        except StatesTooMuch:
            raise
        except CannotUnpack:
            self._taken.packed_bytes += len(packed)
            self._taken.vain_bytes += bound
            raise
        self._taken.packed_bytes += len(packed)
        self._taken.unpacked_bytes += len(records)
        return records

    def _make_unread_rest(self, kind: str, reason: str) -> UnreadRest:
        timestamp, timestamp_type = -1, 0
        if self._raw[_MAGIC_AT] >= _VERSION_2:
            timestamp, timestamp_type = self._batch.max_timestamp, self._batch.timestamp_type
        headers = ((UNREAD_KIND_HEADER, kind.encode()), (UNREAD_HEADER, reason.encode()))
        return UnreadRest(self._batch.next_offset - 1, timestamp, timestamp_type, headers)


class KafkaBatches:
    """The batches of one partition in one fetch, with the methods of aiokafka's MemoryRecords."""

    def __init__(self, fetched_bytes: bytes) -> None:
        self._fetched_bytes = memoryview(fetched_bytes)
        self._records = memory_records(fetched_bytes)
        self._at = 0
        self._taken = Taken()

    def has_next(self) -> bool:
        """Returns whether aiokafka gets another batch. Batches that are dropped here are fetched again."""
        return not self._taken.is_bound_reached() and bool(self._records.has_next())

    def size_in_bytes(self) -> int:
        return int(self._records.size_in_bytes())

    def next_batch(self) -> KafkaBatch | None:
        batch = self._records.next_batch()
        if batch is None:
            return None
        begin = self._at
        self._at += _LENGTH.size + _LENGTH.unpack_from(self._fetched_bytes, begin)[0]
        return KafkaBatch(batch, self._fetched_bytes[begin : self._at], self._taken)
