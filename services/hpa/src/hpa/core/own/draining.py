"""Computes how many consumers drain a queue in time, in one step. Pure.

It uses arrivals, rates, partitions, start-up and rebalances. The records of a queue are treated as a continuous fluid,
not one by one. Each partition is read by one replica. Partitions are assigned to replicas in turn, as by Kafka's
round-robin assignor. So with twenty partitions, eleven replicas drain an even queue no sooner than ten. A replica reads
`rate` records a second. Whenever the number of replicas changes, nobody reads for `rebalance_s` seconds.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

NOTHING_TO_DO: Final = "NothingToDo"
WITHIN_TARGET: Final = "WithinTarget"
TO_DRAIN: Final = "ToDrain"
TOO_MANY: Final = "MoreThanTheWorkNeeds"
FOR_A_WHILE: Final = "EnoughForAWhile"
NOT_WORTH_IT: Final = "RebalanceCostsMore"

LEAST_SHARE_TO_WORK: Final = 0.25
"""The least part of the target time that is assumed to remain for reading, even if records are already late. Without
it, the size could grow without bound."""
FLOODED_SHARE: Final = 0.75
"""The share of a replica's rate reserved for a partition with more arrivals than one replica can read."""
HOT_SHARE: Final = 0.9
"""The same for a partition that one replica cannot drain in time. The rest is enough for one with few arrivals."""
WORTH_LEAVING: Final = 2.0
"""Replicas are removed for a while only if that saves at least this many times the cost of starting them again."""
ROUNDING: Final = 1e-9
MANY_SIZES: Final = 100
HEAVIEST: Final = 8
"""With MANY_SIZES sizes or more, this many of the heaviest partitions first exclude sizes that cannot fit. That is
quicker, and the result is the same."""

Column = NDArray[np.float64]
"""One number for each partition in their order, or for each replica."""


@dataclass(frozen=True, slots=True, eq=False)
class QueuePartitions:
    """All partitions of a queue, in their order, as columns that are never changed in place.

    lag: unread records.
    arrivals: new records a second.
    waited_s: how long the partition's oldest unread record has waited, in seconds.
    """

    lag: Column
    arrivals: Column
    waited_s: Column

    def __len__(self) -> int:
        return len(self.lag)


class ServiceRate(Struct, frozen=True):
    """The speed of replicas.

    rate: records a second that one replica reads if it never waits for records; above 0.
    start_s: seconds from a decision until new replicas read.
    rebalance_s: seconds for which no replica reads after a change of the size.
    """

    rate: float
    start_s: float = 0.0
    rebalance_s: float = 0.0


class DrainTarget(Struct, frozen=True):
    """The target of a drain.

    within_s: the longest time that a record may wait, in seconds.
    margin: the share of each replica's rate that stays unused in every size (0.1: one tenth).
    alternates: True if the size may fall for a while below the size that keeps up, while every record is in time.
    """

    within_s: float
    margin: float = 0.1
    alternates: bool = False


class ConsumerGroup(Struct, frozen=True):
    """The replicas of a consumer group.

    wanted: the present size.
    reading: the number of replicas that read already; the others join in ready_in_s seconds.
    """

    wanted: int
    reading: int
    ready_in_s: float = 0.0


class DrainWish(Struct, frozen=True):
    """The size that a drain asks for.

    drained_s: the seconds until the queue is drained with this size; infinity if too many records arrive.
    hot: the number of partitions that a replica of their own cannot drain in time. More replicas do not help them.
    """

    replicas: int
    reason: str
    drained_s: float
    hot: int = 0


def replicas_to_drain(
    group: ConsumerGroup, partitions: QueuePartitions, service: ServiceRate, target: DrainTarget, max_replicas: int
) -> DrainWish:
    """Returns the size that drains in time, at most one replica for each partition.

    More replicas are asked for once the present ones would keep some record waiting too long. Fewer are asked for once
    the idle time saved is worth a rebalance, and the remaining replicas drain everything in time, with a margin. If the
    queue is late and more replicas do not help, replicas are removed only if at most half of them remain, because each
    pause makes the queue later.
    """
    if not (partitions.lag.any() or partitions.arrivals.any()):
        return DrainWish(0, NOTHING_TO_DO, 0.0)
    most = min(len(partitions), max_replicas)
    kept = min(group.wanted, most)
    joined, delay_s = _queue_when_all_read(group, partitions, service)
    later = queue_after_reading(joined, kept, service, service.start_s, service.rebalance_s)
    behind = not kept or not _is_rate_enough(kept, _rates_to_keep_up(later, target), service.rate)
    behind = behind or (target.alternates and _has_growing_late_lag(joined, later, target))
    if behind:
        more = _wish_for_more_replicas(group, partitions, service, target, most)
        if more.reason != WITHIN_TARGET:
            return more
        # More replicas do not help here. A rebalance makes late records later, so only a large scale-in is worth it.
    paused = _age_queue(joined, 0.0, service.rebalance_s)
    fewer, hot = _fewest_replicas_in_time(paused, service, target, most)
    many = fewer < kept if not behind else fewer <= kept // 2
    if (
        many
        and _is_removal_worthwhile(kept, joined, service, target)
        and _is_removal_harmless(kept, fewer, joined, service, target)
    ):
        return DrainWish(fewer, TOO_MANY, delay_s + service.rebalance_s + seconds_to_drain(fewer, paused, service), hot)
    if target.alternates and not behind and group.reading >= kept:
        fewer = _best_temporary_size(kept, paused, service, target)
        if fewer < kept:
            return DrainWish(fewer, FOR_A_WHILE, service.rebalance_s + seconds_to_drain(fewer, paused, service), hot)
    return DrainWish(kept, WITHIN_TARGET, delay_s + seconds_to_drain(kept, joined, service), hot)


def _is_removal_worthwhile(kept: int, partitions: QueuePartitions, service: ServiceRate, target: DrainTarget) -> bool:
    """Returns whether removing idle replicas saves more replica-seconds than the pause of a rebalance costs.

    Idle time counts until new replicas could start. If all replicas are done before that, it counts until then.
    """
    until_s = max(service.start_s + service.rebalance_s, target.within_s * LEAST_SHARE_TO_WORK)
    alone_s = _replica_drain_times_s(kept, partitions, service)
    if alone_s.max() > service.rebalance_s:
        until_s = min(until_s, float(alone_s.max()))
    left_s = until_s - np.minimum(until_s, alone_s)
    idle_s = float((left_s * (1 - sums_by_replica(partitions.arrivals, kept) / service.rate)).sum())
    return idle_s > kept * service.rebalance_s


def _is_removal_harmless(
    kept: int, fewer: int, partitions: QueuePartitions, service: ServiceRate, target: DrainTarget
) -> bool:
    """Returns whether `fewer` replicas drain the queue before its oldest record is late.

    If they do not, they may take at most 1 / HOT_SHARE of the time that all replicas need.
    """
    paused = _age_queue(partitions, 0.0, service.rebalance_s)
    oldest_s = float(np.where(partitions.lag > 0, paused.waited_s, 0.0).max())
    then_s, now_s = seconds_to_drain(fewer, paused, service), seconds_to_drain(kept, partitions, service)
    return then_s <= max(target.within_s - oldest_s, now_s / HOT_SHARE)


def _has_growing_late_lag(now: QueuePartitions, later: QueuePartitions, target: DrainTarget) -> bool:
    """Returns whether some partition's lag grows and already exceeds the records that arrive there in within_s."""
    evenly = later.arrivals * target.within_s
    return bool(((later.lag > now.lag) & (later.lag > evenly) & (evenly > 0)).any())


def _best_temporary_size(kept: int, partitions: QueuePartitions, service: ServiceRate, target: DrainTarget) -> int:
    """Returns the size that saves most until all replicas are needed again; `kept` if no size saves enough.

    It tries only the smallest size for each number of partitions per replica.
    """
    count, rate = len(partitions), service.rate * (1 - target.margin)
    back_s = service.start_s + service.rebalance_s
    needs = _rates_to_keep_up(partitions, target)
    best, size = 0.0, kept
    for fewer in sorted({math.ceil(count / each) for each in range(1, count + 1)}):
        if fewer >= kept:
            break
        # price: replica-seconds until the removed replicas read again, and for the others' two rebalances.
        gone, lasts_s = kept - fewer, _seconds_until_late(fewer, partitions, rate, target) - back_s
        price = gone * back_s + 2 * fewer * service.rebalance_s
        if gone * lasts_s <= WORTH_LEAVING * price or not _is_rate_enough(fewer, needs, rate):
            continue
        saved = gone if lasts_s == math.inf else (gone * lasts_s - price) / (lasts_s + back_s)
        if saved > best:
            best, size = saved, fewer
    return size


def _seconds_until_late(replicas: int, partitions: QueuePartitions, rate: float, target: DrainTarget) -> float:
    """Returns for how many seconds so many replicas read at this rate before records become late."""
    grows = sums_by_replica(partitions.arrivals, replicas) - rate
    room = rate * target.within_s - sums_by_replica(partitions.lag, replicas)
    return float((room[grows > 0] / grows[grows > 0]).min(initial=math.inf))


def _wish_for_more_replicas(
    group: ConsumerGroup, partitions: QueuePartitions, service: ServiceRate, target: DrainTarget, most: int
) -> DrainWish:
    first_s = min(group.ready_in_s, service.start_s)
    left = queue_after_reading(partitions, group.reading, service, first_s)
    left = queue_after_reading(left, group.wanted, service, service.start_s - first_s, service.rebalance_s)
    wanted, hot = _fewest_replicas_in_time(left, service, target, most)
    kept = min(group.wanted, most)
    joined, delay_s = _queue_when_all_read(group, partitions, service)
    now_s = delay_s + seconds_to_drain(kept, joined, service)
    if wanted <= kept:
        return DrainWish(kept, WITHIN_TARGET, now_s, hot)
    then_s = service.start_s + service.rebalance_s + seconds_to_drain(wanted, left, service)
    # The pause of the rebalance may take longer than the new replicas save.
    if kept and then_s >= now_s and math.isfinite(now_s):
        return DrainWish(kept, NOT_WORTH_IT, now_s, hot)
    return DrainWish(wanted, TO_DRAIN, then_s, hot)


def _queue_when_all_read(
    group: ConsumerGroup, partitions: QueuePartitions, service: ServiceRate
) -> tuple[QueuePartitions, float]:
    """Returns the queue as it is once all wanted replicas have begun to read, and the seconds until then."""
    if group.reading >= group.wanted:
        return partitions, 0.0
    left = queue_after_reading(partitions, group.reading, service, group.ready_in_s, service.rebalance_s)
    return left, group.ready_in_s + service.rebalance_s


def queue_after_reading(
    partitions: QueuePartitions, replicas: int, service: ServiceRate, seconds: float, pause_s: float = 0.0
) -> QueuePartitions:
    """Returns the queue after `replicas` replicas have read for `seconds`, and then no replica for `pause_s`."""
    come = partitions.lag + partitions.arrivals * seconds
    if replicas:
        records, read = sums_by_replica(come, replicas), service.rate * seconds
        left = np.divide(records - read, records, out=np.zeros(replicas), where=records > read)
        come = come * np.resize(left, len(come))
    return _age_queue(QueuePartitions(come, partitions.arrivals, partitions.waited_s), seconds, pause_s)


def _age_queue(queue: QueuePartitions, seconds: float, pause_s: float) -> QueuePartitions:
    """Returns the queue as it is `seconds` later, and then after a pause of pause_s in which no replica reads.

    The lag must already contain the arrivals of `seconds`. Those of the pause are added.
    """
    waited_s = np.where(queue.lag > 0, queue.waited_s + seconds, 0.0) + pause_s
    return QueuePartitions(queue.lag + queue.arrivals * pause_s, queue.arrivals, waited_s)


def _rates_to_keep_up(queue: QueuePartitions, target: DrainTarget) -> Column:
    """Returns for each partition how many records a second must be read so that no unread record waits too long.

    Records beyond those that steady arrivals explain are assumed to be as old as the oldest one.
    """
    backlog = np.maximum(0.0, queue.lag - queue.arrivals * queue.waited_s)
    left_s = np.maximum(target.within_s - queue.waited_s, target.within_s * LEAST_SHARE_TO_WORK)
    needed: Column = np.maximum(queue.lag / target.within_s, backlog / left_s)
    return needed


def _fewest_replicas_in_time(
    partitions: QueuePartitions, service: ServiceRate, target: DrainTarget, most: int
) -> tuple[int, int]:
    """Returns (replicas, hot): the fewest replicas that drain in time with the margin, and the hot partitions' number.

    The replicas also read the arrivals. Returns `most` if no size drains in time.
    """
    rate = service.rate * (1 - target.margin)
    needs = partitions.arrivals + _rates_to_keep_up(partitions, target)
    hot = int((needs > rate).sum())
    # A partition that one replica cannot drain in time counts as most of one replica, because more do not help it.
    most_of_one = np.where(partitions.arrivals > service.rate, rate * FLOODED_SHARE, rate * HOT_SHARE)
    loads = np.where(needs > rate, most_of_one, needs)
    first = max(1, math.ceil(float(loads.sum()) / rate - ROUNDING))
    sizes = range(first, most) if most - first < MANY_SIZES else _sizes_that_may_fit(first, most, loads, rate)
    return next((size for size in sizes if _is_rate_enough(size, loads, rate)), most), hot


def _sizes_that_may_fit(first: int, most: int, loads: Column, rate: float) -> list[int]:
    """Returns the sizes with which the loads may fit.

    A size is excluded if one replica would read one of the heaviest partitions and its next partition, `size` places
    away, and both together need more than its rate.
    """
    sizes = np.arange(first, most)
    fit = np.ones(len(sizes), dtype=bool)
    for heavy in np.argsort(loads)[-HEAVIEST:]:
        for place in (heavy - sizes, heavy + sizes):
            inside = (place >= 0) & (place < len(loads))
            fit[inside] &= loads[heavy] + loads[place[inside]] <= rate * (1 + ROUNDING)
    return [int(size) for size in sizes[fit]]


def steady_size(partitions: QueuePartitions, service: ServiceRate, target: DrainTarget, most: int) -> int:
    """Returns the size that the arrivals need when no record waits; 0 without arrivals."""
    if not partitions.arrivals.any():
        return 0
    nothing = np.zeros(len(partitions))
    return _fewest_replicas_in_time(
        QueuePartitions(nothing, partitions.arrivals, nothing), service, target, min(most, len(partitions))
    )[0]


def sums_by_replica(values: Column, replicas: int) -> Column:
    """Returns for each replica the sum of the values of its partitions. There must be at least one replica."""
    rows = -(-len(values) // replicas)
    padded = np.zeros(rows * replicas)
    padded[: len(values)] = values
    sums: Column = padded.reshape(rows, replicas).sum(axis=0)
    return sums


def _is_rate_enough(size: int, loads: Column, rate: float) -> bool:
    """Returns whether no replica needs more than its rate when partitions are assigned to replicas in turn."""
    return bool(sums_by_replica(loads, size).max() <= rate * (1 + ROUNDING))


def seconds_to_drain(replicas: int, partitions: QueuePartitions, service: ServiceRate) -> float:
    """Returns the seconds until the busiest replica has read all present records and those that arrive meanwhile."""
    return float(_replica_drain_times_s(replicas, partitions, service).max()) if replicas else math.inf


def _replica_drain_times_s(replicas: int, partitions: QueuePartitions, service: ServiceRate) -> Column:
    """Returns, for each replica, the seconds until it has read its present records and those that arrive meanwhile."""
    lag, spare = (
        sums_by_replica(partitions.lag, replicas),
        service.rate - sums_by_replica(partitions.arrivals, replicas),
    )
    took_s = np.where((lag <= 0) & (spare >= 0), 0.0, math.inf)
    np.divide(lag, spare, out=took_s, where=(lag > 0) & (spare > 0))
    return took_s
