"""The log with what may go wrong between it and one process: late, again, unavailable, and outcomes nobody learns."""

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Sequence
from random import Random

from spillway.addresses import TOPICS
from spillway.bus import BusUnavailable, Outgoing, Position
from spillway.dead_letters import StoredRecord
from spillway.local_bus import LocalBroker, LocalSettings
from spillway_simulation.loop import OWNER

SETTINGS = LocalSettings(partitions_cluster=3, partitions_workload=2, idle_batch_seconds=2.0)

Observe = Callable[[Sequence[Outgoing], str, Sequence[Position]], None]


class SimBroker(LocalBroker):
    """Who reads is known by the context that reads. observe(records, source, positions) hears all that was appended."""

    def __init__(self, random: Random, observe: Observe) -> None:
        super().__init__(SETTINGS)
        self._random = random
        self._observe = observe
        self._late: dict[tuple[str, int], float] = {}
        self._again: dict[str, int] = {}
        self._publish_failures: list[bool] = []

    # ── Faults ──────────────────────────────────────────────────────────────────────────────────────────────────

    def delay_partitions(self, reader: str, partitions: Sequence[int], until: float) -> None:
        """These partitions of every topic bring this reader nothing until then; the order inside each one holds."""
        for partition in partitions:
            self._late[reader, partition] = until

    def deliver_records_again(self, reader: str, fetches: int) -> None:
        """The next fetches of this reader begin some records before the place where it stands."""
        self._again[reader] = fetches

    def fail_next_publish(self, *, written: bool) -> None:
        """The next publish raises BusUnavailable, written or not."""
        self._publish_failures.append(written)

    def compact_records_older_than(self, seconds: float) -> None:
        """Compacts what is older, as if that were the compaction lag of every topic."""
        before = asyncio.get_running_loop().time() - seconds
        for topic in (topic for topic in TOPICS if topic.is_compacted):
            for log in self._logs[topic.name]:
                log.compact(before, False)

    # ── What LocalBus asks ──────────────────────────────────────────────────────────────────────────────────────

    def append_records(
        self, records: Sequence[Outgoing], fleet: str, source: str, marked: bool = False
    ) -> list[Position]:
        failure = self._publish_failures.pop(0) if self._publish_failures and not marked else None
        if failure is False:
            raise BusUnavailable("a fault was asked for")
        positions = super().append_records(records, fleet, source, marked)
        self._observe(records, source, positions)
        if failure:
            raise BusUnavailable("a fault was asked for, after the write")
        return positions

    def read_records(
        self, topic: str, partition: int, offset: int, count: int, *lag_seconds: float
    ) -> tuple[list[StoredRecord], int]:
        if not (self._late or self._again):
            return super().read_records(topic, partition, offset, count, *lag_seconds)
        reader = OWNER.get()
        if self._late and asyncio.get_running_loop().time() < self._late.get((reader, partition), 0.0):
            return [], offset
        stored, position = super().read_records(topic, partition, offset, count, *lag_seconds)
        if self._again.get(reader, 0) > 0:
            self._again[reader] -= 1
            if not self._again[reader]:
                del self._again[reader]
            stored = self._records_before(topic, partition, offset) + stored
        return stored, position

    def _records_before(self, topic: str, partition: int, offset: int) -> list[StoredRecord]:
        records = self._logs[topic][partition].records
        end = bisect_left(records, offset, key=lambda record: record.offset)
        first = max(0, end - self._random.randint(1, 8))
        return [StoredRecord(topic, partition, r.offset, r.key, r.value, r.headers) for r in records[first:end]]
