"""Batches as brokers send them, with one record in place of those that aiokafka cannot take apart.

A header's name may be any bytes for a broker and for several clients; aiokafka takes it for UTF-8. A reader would end
at such a batch, and again at each start: one record of one publisher would be enough.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from spillway.dead_letters import UNREAD_HEADER
from spillway.kafka.internals import memory_records


@dataclass(frozen=True, slots=True)
class UnreadRest:
    """Of a batch, all records from the one on that cannot be read. Stands where the batch ends."""

    offset: int
    timestamp: int
    timestamp_type: int
    headers: tuple[tuple[str, bytes], ...]
    key: bytes | None = None
    value: bytes | None = None
    checksum: None = None


class Batch:
    """As aiokafka's, of which it asks everything."""

    def __init__(self, batch: Any) -> None:
        self._batch = batch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def __next__(self) -> Any:
        return next(self._batch)

    def __iter__(self) -> Iterator[Any]:
        batch = self._batch
        try:
            yield from batch
        except UnicodeDecodeError as error:
            reason = f"the name of a header: {error}; nothing behind it in its batch can be read".encode()
            headers = ((UNREAD_HEADER, reason),)
            yield UnreadRest(batch.next_offset - 1, batch.max_timestamp, batch.timestamp_type, headers)


class Batches:
    """What one fetch brought of a partition, as aiokafka's MemoryRecords."""

    def __init__(self, data: bytes) -> None:
        self._records = memory_records(data)

    def has_next(self) -> bool:
        return bool(self._records.has_next())

    def size_in_bytes(self) -> int:
        return int(self._records.size_in_bytes())

    def next_batch(self) -> Batch | None:
        batch = self._records.next_batch()
        return None if batch is None else Batch(batch)
