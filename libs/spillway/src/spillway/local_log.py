"""One partition of the log in memory, with compaction and retention."""

from bisect import bisect_left
from dataclasses import dataclass, field

from spillway.bus import Headers
from spillway.waiting import loop_seconds


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """One record. at: the time of its write, by loop_seconds()."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    at: float

    @property
    def size_bytes(self) -> int:
        """Returns the number of bytes of key and value."""
        return len(self.key or b"") + len(self.value or b"")


@dataclass(slots=True)
class PartitionLog:
    """One partition. begin: the first offset that can be read. end: the offset of the next record.

    Offsets have gaps where a transaction ended, or where compaction removed a record.
    """

    records: list[StoredEntry] = field(default_factory=list)
    begin: int = 0
    end: int = 0

    def append_record(self, key: bytes | None, value: bytes | None, headers: Headers) -> int:
        offset, self.end = self.end, self.end + 1
        self.records.append(StoredEntry(offset, key, value, headers, loop_seconds()))
        return offset

    def records_from(self, offset: int, count: int) -> list[StoredEntry]:
        first = self._index_of_offset(offset)
        return self.records[first : first + count]

    def compact(self, before: float, drop_tombstones: bool) -> None:
        """Keeps the last record of each key among those written until `before`, and all later records."""
        old = [record for record in self.records if record.at <= before]
        last = {record.key: record.offset for record in old}
        kept = [r for r in old if last[r.key] == r.offset and not (drop_tombstones and r.value is None)]
        self.records = kept + self.records[len(old) :]

    def delete_records_before(self, offset: int) -> None:
        """Deletes the records before offset permanently."""
        self.begin = min(max(self.begin, offset), self.end)
        del self.records[: self._index_of_offset(self.begin)]

    def apply_retention(self, before: float, bytes_max: int | None) -> None:
        """Deletes the records written until `before`, then the oldest ones until the rest has at most bytes_max bytes.

        This deletes record by record and may delete the newest one. Kafka deletes whole segments, but it also rolls a
        segment that nothing is written to any more, so an idle partition becomes empty there, too.
        """
        first = next((index for index, one in enumerate(self.records) if one.at > before), len(self.records))
        weight = sum(one.size_bytes for one in self.records[first:])
        while bytes_max is not None and weight > bytes_max:
            weight -= self.records[first].size_bytes
            first += 1
        if first > 0:
            self.delete_records_before(self.records[first].offset if first < len(self.records) else self.end)

    def _index_of_offset(self, offset: int) -> int:
        return bisect_left(self.records, offset, key=lambda record: record.offset)
