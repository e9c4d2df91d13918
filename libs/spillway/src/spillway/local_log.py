"""One partition of the log in memory: what it holds, and what compaction and retention leave of it."""

import asyncio
from bisect import bisect_left
from dataclasses import dataclass, field

from spillway.bus import Headers


@dataclass(frozen=True, slots=True)
class Kept:
    """One record. at: when it was written, by now()."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    at: float

    @property
    def size(self) -> int:
        """Bytes of key and value."""
        return len(self.key or b"") + len(self.value or b"")


@dataclass(slots=True)
class PartitionLog:
    """One partition. Offsets have gaps where a transaction ended or compaction took a record. begin: the first offset
    that can be read."""

    records: list[Kept] = field(default_factory=list)
    begin: int = 0
    end: int = 0

    def append(self, key: bytes | None, value: bytes | None, headers: Headers) -> int:
        offset, self.end = self.end, self.end + 1
        self.records.append(Kept(offset, key, value, headers, now()))
        return offset

    def since(self, offset: int, count: int) -> list[Kept]:
        first = self._first(offset)
        return self.records[first : first + count]

    def compact(self, before: float, drop_tombstones: bool) -> None:
        """Keeps the last record per key among those written up to before, and all later ones."""
        old = [record for record in self.records if record.at <= before]
        last = {record.key: record.offset for record in old}
        kept = [r for r in old if last[r.key] == r.offset and not (drop_tombstones and r.value is None)]
        self.records = kept + self.records[len(old) :]

    def begin_at(self, offset: int) -> None:
        """Deletes the records before offset, for good."""
        self.begin = min(max(self.begin, offset), self.end)
        del self.records[: self._first(self.begin)]

    def retain(self, before: float, bytes_max: int | None) -> None:
        """Deletes the records written up to before, then the oldest ones until the rest weighs at most bytes_max.

        This deletes record by record and may delete the newest one. Kafka deletes whole segments, but it also rolls a
        segment in which nothing is written any more, so an idle partition is emptied there, too.
        """
        first = next((index for index, one in enumerate(self.records) if one.at > before), len(self.records))
        weight = sum(one.size for one in self.records[first:])
        while bytes_max is not None and weight > bytes_max:
            weight -= self.records[first].size
            first += 1
        if first > 0:
            self.begin_at(self.records[first].offset if first < len(self.records) else self.end)

    def _first(self, offset: int) -> int:
        return bisect_left(self.records, offset, key=lambda record: record.offset)


def now() -> float:
    """The loop's clock, which a simulation makes virtual; 0 where no loop runs yet."""
    try:
        return asyncio.get_running_loop().time()
    except RuntimeError:
        return 0.0
