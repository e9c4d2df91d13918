"""Simulates a queue of partitions with a consumer group, second by second: start-up, rebalances, skew and waiting.

Records are a fluid in each partition, read in order. During a rebalance no replica reads; each join or leave starts the
rebalance again. Afterwards the partitions are dealt to the reading replicas in turn. A replica with too much work reads
its partitions at equal speed, as a consumer's fetches do.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from hpa.core.own.queue_state import Offsets

EMPTY = 1e-6
"""The number of records below which a difference is only rounding."""


@dataclass(frozen=True, slots=True)
class Consumers:
    """The properties of a group. rate: records per second of a replica. spread: the share by which rates differ."""

    partitions: int = 24
    rate: float = 100.0
    spread: float = 0.2
    start_s: float = 30.0
    rebalance_s: float = 5.0


@dataclass(slots=True)
class Consumer:
    rate: float
    ready_s: float
    reads: bool = False


class Queue:
    """A queue and its group. now_s: whole seconds since the beginning. The other public fields are counters."""

    def __init__(self, truth: Consumers, chance: Random) -> None:
        self.truth = truth
        self.now_s = 0
        self.replica_seconds = 0.0
        self.changes = 0
        self.busy_left = 0
        self._chance = chance
        self._written = [0.0] * truth.partitions
        self._read = [0.0] * truth.partitions
        self._marks: list[deque[tuple[int, float]]] = [deque() for _ in range(truth.partitions)]
        self._group: list[Consumer] = []
        self._dealt: list[tuple[float, range]] = []
        self._paused_until_s = 0.0

    @property
    def replicas(self) -> int:
        return len(self._group)

    @property
    def reading_replicas(self) -> int:
        return sum(1 for one in self._group if one.reads)

    def scale_group(self, replicas: int) -> None:
        """Adds or removes replicas. Those that do not read yet are removed first, then the newest ones."""
        if replicas == len(self._group):
            return
        self.changes += 1
        while len(self._group) < replicas:
            spread = self.truth.spread
            rate = self.truth.rate * self._chance.uniform(1 - spread, 1 + spread)
            takes_s = self.truth.start_s * self._chance.uniform(0.8, 1.2)
            self._group.append(Consumer(rate, self.now_s + takes_s))
        while len(self._group) > replicas:
            place = max(range(len(self._group)), key=lambda index: (not self._group[index].reads, index))
            gone = self._group.pop(place)
            if gone.reads:
                self.busy_left += any(
                    self.partition_lag(partition) > EMPTY for partition in self._partitions_of_replica(place)
                )
                self._start_rebalance()

    def _partitions_of_replica(self, place: int) -> range:
        readers = len(self._dealt)
        return range(place, self.truth.partitions, readers) if place < readers else range(0)

    def _start_rebalance(self) -> None:
        self._paused_until_s = self.now_s + self.truth.rebalance_s
        rates = [one.rate for one in self._group if one.reads]
        partitions = self.truth.partitions
        self._dealt = [(rate, range(place, partitions, len(rates))) for place, rate in enumerate(rates)]

    def advance_second(self, come: Sequence[int]) -> float:
        """Plays one second. come: the records that arrive in each partition.

        Returns the seconds that the oldest unread record has waited then.
        """
        written, now_s = self._written, self.now_s + 1
        for partition, records in enumerate(come):
            if records:
                written[partition] += records
                self._marks[partition].append((now_s, written[partition]))
        for one in self._group:
            if not one.reads and one.ready_s <= self.now_s:
                one.reads = True
                self._start_rebalance()
        if self.now_s >= self._paused_until_s:
            for rate, partitions in self._dealt:
                self._consume_partitions(rate, partitions)
        self.now_s = now_s
        self.replica_seconds += len(self._group)
        return max(map(self.oldest_wait_s, range(len(written))))

    def _consume_partitions(self, rate: float, partitions: range) -> None:
        written, read = self._written, self._read
        full = [partition for partition in partitions if written[partition] - read[partition] > EMPTY]
        while full and rate > EMPTY:
            share = rate / len(full)
            short = [partition for partition in full if written[partition] - read[partition] <= share]
            if not short:
                for partition in full:
                    read[partition] += share
                return
            for partition in short:
                rate -= written[partition] - read[partition]
                read[partition] = written[partition]
            full = [partition for partition in full if partition not in short]

    def partition_lag(self, partition: int) -> float:
        return self._written[partition] - self._read[partition]

    def oldest_wait_s(self, partition: int) -> int:
        """Returns the seconds that the oldest unread record of a partition has waited; 0 without one."""
        marks, read = self._marks[partition], self._read[partition] + EMPTY
        while marks and marks[0][1] <= read:
            marks.popleft()
        return self.now_s - marks[0][0] if marks else 0

    def offsets(self) -> tuple[Offsets, ...]:
        """Returns the offsets that a collector sees."""
        return tuple(
            Offsets(int(written), int(read + EMPTY), self.oldest_wait_s(partition))
            for partition, (written, read) in enumerate(zip(self._written, self._read, strict=True))
        )
