"""Learns arrivals and rates of a queue from offsets alone, and keeps its size from one decision to the next. Pure.

Arrivals and the rate of a replica are means over recent observations; newer ones count more. The size that
arrivals need is kept for the time of a start-up and a rebalance after it was last asked for, because replicas that
leave sooner cost more when they come back. Replicas that came for a backlog leave with it. But they stay for a while
if the last replicas that left had to come back so soon.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from hpa.core.kubernetes.history import Steps, highest_since, with_recommendation
from hpa.core.own.draining import (
    ConsumerGroup,
    DrainTarget,
    DrainWish,
    QueuePartitions,
    ServiceRate,
    replicas_to_drain,
    steady_size,
)

ARRIVALS_S: Final = 120.0
"""The number of seconds for which arrivals are kept."""
BURSTS_SHARE: Final = 1 / 3
"""The share of ARRIVALS_S that counts as bursts: in this busiest part, arrivals are cut to the highest rate of the
other part, because a burst is a backlog and not a rate."""
SHARES_MEAN_S: Final = 1800.0
RATE_MEAN_S: Final = 60.0
WAITING_MOST: Final = 0.1
"""The rate of replicas is learned only while at most this share of them may have waited for records."""
ASSUMED_RECORDS: Final = 10.0
RUED_MS: Final = 600_000
"""For this time after removed replicas had to come back too soon, replicas that came for a backlog stay longer, too."""
APART_MS: Final = 500
"""The least time between two observations. Sooner ones are skipped, so that few of them have to be kept."""


class Offsets(Struct, frozen=True):
    """The offsets of one partition: records written, records read (as committed), and how long the oldest unread one
    waits.

    never: True if the group has no offset. Then `committed` is the first unread record, and the reading is unknown.
    """

    latest: int
    committed: int
    waited_s: float = 0.0
    never: bool = False


class PartitionRun(Struct, frozen=True):
    """A run of consecutive partitions of a topic."""

    topic: str
    first: int
    count: int


class QueueObservation(Struct, frozen=True):
    """One observation of all partitions of a queue.

    wanted, reading: the size of the consumer group, and how many of these replicas read already.
    runs: the partitions, in the order of `offsets`. If empty, a partition is known only by its index.
    """

    at_ms: int
    offsets: tuple[Offsets, ...]
    wanted: int
    reading: int
    runs: tuple[PartitionRun, ...] = ()


class ArrivalRate(Struct, frozen=True):
    """The records a second that came to all partitions during `seconds` until at_ms."""

    at_ms: int
    seconds: float
    rate: float


class ReadingWork(Struct, frozen=True, gc=False):
    """The records that replicas read, and the replica-seconds for that, without waiting. Older work counts less."""

    records: float = 0.0
    seconds: float = 0.0


class QueueState(Struct, frozen=True, gc=False):
    """The state on which later decisions depend in addition to the observation.

    seen: the last observation; None: the queue was never seen.
    came: the arrivals, oldest first.
    counts: the number of records that came to each partition; older ones count less.
    steps: the sizes asked for, by which a size stays for a while.
    grown_ms, left_ms: the last time when more, or fewer, replicas were asked for.
    rued_ms: the last time when removed replicas had to come back sooner than replicas can start.
    """

    seen: QueueObservation | None = None
    came: tuple[ArrivalRate, ...] = ()
    counts: tuple[float, ...] = ()
    work: ReadingWork = ReadingWork()
    steps: Steps = ()
    grown_ms: int = 0
    left_ms: int = 0
    rued_ms: int = 0


NOTHING_SEEN: Final = QueueState()


def state_with_observation(state: QueueState, seen: QueueObservation) -> QueueState:
    """Returns the state with one more observation. Less than APART_MS after the last one, it changes nothing.

    But an observation of the same instant replaces the offsets of the last one.
    """
    last = state.seen
    if last is None:
        return replace(state, seen=seen)
    if seen.at_ms == last.at_ms and seen.runs == last.runs:
        return replace(state, seen=replace(last, offsets=seen.offsets))
    if seen.at_ms < last.at_ms + APART_MS:
        return state
    seconds = (seen.at_ms - last.at_ms) / 1000
    before, counts = _earlier_offsets_and_counts(last, state.counts, seen)
    pairs = zip(before, seen.offsets, strict=True)
    come = [0 if one is None else max(0, now.latest - one.latest) for one, now in pairs]
    kept = (one for one in state.came if one.at_ms > seen.at_ms - ARRIVALS_S * 1000)
    came = (*kept, ArrivalRate(seen.at_ms, seconds, sum(come) / seconds))
    weight = math.exp(-seconds / SHARES_MEAN_S)
    counts = tuple(weight * count + records for count, records in zip(counts, come, strict=True))
    return replace(
        state, seen=seen, came=came, counts=counts, work=_work_with_observation(state.work, last, seen, seconds)
    )


def _earlier_offsets_and_counts(
    last: QueueObservation, counts: Sequence[float], seen: QueueObservation
) -> tuple[Sequence[Offsets | None], Sequence[float]]:
    """Returns the earlier offsets and the count of each partition that is seen now.

    A new partition has the offsets None and the count 0, so that its present records do not count as arrivals.
    """
    size = len(seen.offsets)
    if last.runs == seen.runs or not last.runs:
        offsets = [*last.offsets[:size], *[None] * (size - len(last.offsets))]
        return offsets, [*counts[:size], *[0.0] * (size - len(counts))]
    offsets_before = dict(zip(_partitions_of_runs(last), last.offsets, strict=True))
    counts_before = dict(zip(_partitions_of_runs(last), counts, strict=False))
    places = list(_partitions_of_runs(seen))
    return [offsets_before.get(place) for place in places], [counts_before.get(place, 0.0) for place in places]


def partition_runs_of(places: Iterable[tuple[str, int]]) -> tuple[PartitionRun, ...]:
    """Joins pairs (topic, partition) into runs of consecutive partitions. The order is kept."""
    runs: list[PartitionRun] = []
    for topic, partition in places:
        last = runs[-1] if runs else None
        if last is not None and (last.topic, last.first + last.count) == (topic, partition):
            runs[-1] = PartitionRun(topic, last.first, last.count + 1)
        else:
            runs.append(PartitionRun(topic, partition, 1))
    return tuple(runs)


def _partitions_of_runs(seen: QueueObservation) -> Iterator[tuple[str, int]]:
    return ((run.topic, run.first + number) for run in seen.runs for number in range(run.count))


def arrival_shares(counts: Sequence[float], partitions: int) -> list[float]:
    """Returns each partition's share of the arrivals. While few records were seen, the shares are nearly even."""
    total = sum(counts) + partitions * ASSUMED_RECORDS
    return [(count + ASSUMED_RECORDS) / total for count in (*counts, *[0.0] * (partitions - len(counts)))]


def expected_arrival_rate(came: Sequence[ArrivalRate]) -> float:
    """Returns the records a second that are expected to come to all partitions. Bursts are cut (BURSTS_SHARE)."""
    left_s = BURSTS_SHARE * sum(one.seconds for one in came)
    slowest_first = sorted(came, key=lambda one: one.rate)
    while slowest_first and slowest_first[-1].seconds <= left_s + 1e-9:
        left_s -= slowest_first.pop().seconds
    if not slowest_first:
        return 0.0
    most = slowest_first[-1].rate
    return sum(min(one.rate, most) * one.seconds for one in came) / sum(one.seconds for one in came)


def _work_with_observation(
    work: ReadingWork, last: QueueObservation, seen: QueueObservation, seconds: float
) -> ReadingWork:
    """Returns the work with the records that replicas read without waiting. Replicas that may have waited are left out.

    The partitions of each replica are not known. So the share of empty partitions gives the share of replicas that, by
    chance, had only empty ones.
    """
    partitions = len(seen.offsets)
    readers = min(seen.reading, partitions)
    alike = last.runs == seen.runs or not last.runs
    if seen.reading != last.reading or readers <= 0 or not alike or len(last.offsets) != partitions:
        return work
    pairs = list(zip(last.offsets, seen.offsets, strict=True))
    empty = sum(1 for before, now in pairs if _is_partition_empty(before) or _is_partition_empty(now))
    waiting = (empty / partitions) ** (partitions // readers)
    if waiting > WAITING_MOST:
        return work
    weight = math.exp(-seconds / RATE_MEAN_S)
    known = (pair for pair in pairs if not (pair[0].never or pair[1].never))
    records = sum(max(0, now.committed - before.committed) for before, now in known)
    return ReadingWork(weight * work.records + records, weight * work.seconds + readers * (1 - waiting) * seconds)


def _is_partition_empty(offsets: Offsets) -> bool:
    return offsets.never or offsets.latest <= offsets.committed


def learned_replica_rate(work: ReadingWork, assumed: float) -> float:
    """Returns the records a second of one replica. The assumed rate counts as much as a few seen records."""
    seconds = ASSUMED_RECORDS / assumed
    return (work.records + ASSUMED_RECORDS) / (work.seconds + seconds)


def decide_drain_size(
    state: QueueState, service: ServiceRate, target: DrainTarget, bounds: tuple[int, int]
) -> tuple[DrainWish, QueueState]:
    """Returns the size that the last observation asks for, and the new state.

    Raises ValueError if the queue was never observed.
    service.rate: the rate that is assumed until it is learned.
    bounds: the least and the most replicas.
    """
    seen = state.seen
    if seen is None:
        raise ValueError("a queue that was never seen: expected an observation first")
    known = replace(service, rate=learned_replica_rate(state.work, service.rate))
    ready_in_s = max(0.0, service.start_s - (seen.at_ms - state.grown_ms) / 1000)
    group = ConsumerGroup(seen.wanted, min(seen.reading, seen.wanted), ready_in_s)
    partitions = queue_partitions_of(state, seen.offsets)
    wish = replicas_to_drain(group, partitions, known, target, bounds[1])
    asked = max(wish.replicas, bounds[0])
    window_ms = round(1000 * (service.start_s + service.rebalance_s))
    too_soon = asked > seen.wanted and state.left_ms and seen.at_ms < state.left_ms + window_ms
    rued_ms = seen.at_ms if too_soon else state.rued_ms
    # Normally only the size that the arrivals need is kept for a while. Replicas for a backlog leave with it.
    stays = asked
    if not rued_ms or seen.at_ms >= rued_ms + RUED_MS:
        stays = min(asked, max(steady_size(partitions, known, target, bounds[1]), 1))
    held = min(highest_since(state.steps, seen.at_ms - window_ms, asked), max(asked, seen.wanted))
    steps = with_recommendation(state.steps, stays, seen.at_ms, window_ms)
    left_ms = seen.at_ms if held < seen.wanted else state.left_ms
    grown_ms = seen.at_ms if held > seen.wanted else state.grown_ms
    state = replace(state, steps=steps, grown_ms=grown_ms, left_ms=left_ms, rued_ms=rued_ms)
    return replace(wish, replicas=held), state


def queue_partitions_of(state: QueueState, offsets: Sequence[Offsets]) -> QueuePartitions:
    """Returns the columns for draining.py: the lag, arrivals a second and waiting time of each partition."""
    lag = [max(0, one.latest - one.committed) for one in offsets]
    waited_s = [one.waited_s for one in offsets]
    shares = np.array(arrival_shares(state.counts, len(offsets)))
    return QueuePartitions(
        np.array(lag, np.float64), expected_arrival_rate(state.came) * shares, np.array(waited_s, np.float64)
    )
