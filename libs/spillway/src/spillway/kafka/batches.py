"""Batches as brokers send them. Records that aiokafka cannot read are replaced by one record marked as unreadable.

Brokers and several clients allow any bytes as a header's name; aiokafka expects UTF-8. And aiokafka decompresses a
batch whole, however large it becomes. Without this module, one bad record of any publisher would end a reader at each
start.
"""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from spillway.dead_letters import RECORD_BYTES_MAX, UNREAD_HEADER, UNREAD_KIND_HEADER
from spillway.kafka.internals import memory_records
from spillway.kafka.unpacking import UNPACKED_BYTES_MAX, CannotUnpack, unpacked

UNPACKED_AT_ONCE_BYTES: Final = RECORD_BYTES_MAX
"""The decompressed bytes of one partition after which the rest of a fetch is dropped and fetched again.

Otherwise two thousand batches of one record, each within its bound, would be in memory together. A fetch of
uncompressed records brings as much of a partition.
"""

_LENGTH: Final = struct.Struct(">8xi")
"""The first fields of a batch of any version: the base offset, and the number of bytes that follow."""
_MAGIC_AT: Final = 16
_VERSION_2: Final = 2
_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
"""The header of a batch of version 2, as Kafka's documentation has it: base offset, length, leader epoch, magic, CRC,
attributes, last offset delta, first and last timestamp, producer id, producer epoch, base sequence, records."""
_ATTRIBUTES: Final = 5
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


class KafkaBatch:
    """A batch like aiokafka's, which it uses for all but compressed records. raw: the bytes with the header.

    count: called with the number of bytes that were decompressed.
    """

    def __init__(self, batch: Any, raw: memoryview, count: Callable[[int], None]) -> None:
        self._batch = batch
        self._raw = raw
        self._count = count

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def __next__(self) -> Any:
        """Returns the marker of a control batch. Brokers compress none, and accept none from producers."""
        return next(self._batch)

    def __iter__(self) -> Iterator[Any]:
        try:
            yield from self._plain()
        except CannotUnpack as error:
            self._count(UNPACKED_BYTES_MAX)  # So much may have been decompressed before the error.
            yield self._unread("size", f"{error}; nothing in its batch can be read")
        except UnicodeDecodeError as error:
            yield self._unread("headers", f"the name of a header: {error}; nothing behind it in its batch can be read")

    def _plain(self) -> Any:
        """Returns aiokafka's batch with uncompressed records. Raises CannotUnpack."""
        if self._raw[_MAGIC_AT] < _VERSION_2:
            # Such a batch is one record, or several that are compressed, perhaps twice. Brokers since 0.11 write none
            # to a topic that they have created, and send none to a client that fetches as ours does.
            if self._raw[_OLD_ATTRIBUTES_AT] & _CODEC:
                raise CannotUnpack("compressed records of a version that was replaced in Kafka 0.11")
            return self._batch
        fields = list(_HEADER.unpack_from(self._raw))
        codec = fields[_ATTRIBUTES] & _CODEC
        if not codec:
            return self._batch
        records = unpacked(codec, bytes(self._raw[_HEADER.size :]))
        self._count(len(records))
        fields[1] = _HEADER.size - _LENGTH.size + len(records)
        fields[_ATTRIBUTES] &= ~_CODEC
        return memory_records(_HEADER.pack(*fields) + records).next_batch()

    def _unread(self, kind: str, reason: str) -> UnreadRest:
        timestamp, timestamp_type = -1, 0
        if self._raw[_MAGIC_AT] >= _VERSION_2:
            timestamp, timestamp_type = self._batch.max_timestamp, self._batch.timestamp_type
        headers = ((UNREAD_KIND_HEADER, kind.encode()), (UNREAD_HEADER, reason.encode()))
        return UnreadRest(self._batch.next_offset - 1, timestamp, timestamp_type, headers)


class KafkaBatches:
    """The batches of one partition in one fetch, with the methods of aiokafka's MemoryRecords."""

    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)
        self._records = memory_records(data)
        self._at = 0
        self._unpacked_bytes = 0

    def has_next(self) -> bool:
        """Returns whether aiokafka gets another batch. Batches that are dropped here are fetched again."""
        return self._unpacked_bytes < UNPACKED_AT_ONCE_BYTES and bool(self._records.has_next())

    def size_in_bytes(self) -> int:
        return int(self._records.size_in_bytes())

    def next_batch(self) -> KafkaBatch | None:
        batch = self._records.next_batch()
        if batch is None:
            return None
        begin = self._at
        self._at += _LENGTH.size + _LENGTH.unpack_from(self._data, begin)[0]
        return KafkaBatch(batch, self._data[begin : self._at], self._count)

    def _count(self, unpacked_bytes: int) -> None:
        self._unpacked_bytes += unpacked_bytes
