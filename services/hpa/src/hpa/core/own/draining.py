"""How many consumers drain a queue in time: one jump, from arrivals, rate, partitions, start-up and rebalances. Pure.

A queue is a fluid in partitions. A partition is read by one replica; partitions are dealt to replicas in turn, as
Kafka's round-robin assignor does, so with twenty partitions eleven replicas drain an even queue no sooner than ten. A
replica reads `rate` records a second; whenever the number of replicas changes nobody reads for `rebalance_s`.
"""

import math
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

NOTHING_TO_DO: Final = "NothingToDo"
WITHIN_TARGET: Final = "WithinTarget"
TO_DRAIN: Final = "ToDrain"
TOO_MANY: Final = "MoreThanTheWorkNeeds"
FOR_A_WHILE: Final = "EnoughForAWhile"
NOT_WORTH_IT: Final = "RebalanceCostsMore"

LEAST_SHARE_TO_WORK: Final = 0.25
"""However late it is: so much of the target time is counted for working, lest the size grow without bound."""
FLOODED_SHARE: Final = 0.75
"""Of a replica, kept for a partition into which more comes than one replica reads: no size drains it."""
WORTH_LEAVING: Final = 2.0
"""Who leaves for a while is to save so many times what coming back costs."""
ROUNDING: Final = 1e-9


class Partition(Struct, frozen=True):
    """lag: records to be read. arrivals: records a second that come. waited_s: how long the oldest has waited."""

    lag: float
    arrivals: float
    waited_s: float = 0.0


class Service(Struct, frozen=True):
    """rate: records a second of one replica that never waits, above 0."""

    rate: float
    start_s: float = 0.0
    rebalance_s: float = 0.0


class DrainTarget(Struct, frozen=True):
    """within_s: no record is to wait longer. margin: of each replica's rate, kept free in every size asked for.

    alternates: fewer than keep up may be asked for while those keep every record's time, and more again after it.
    """

    within_s: float
    margin: float = 0.1
    alternates: bool = False


class Group(Struct, frozen=True):
    """wanted: replicas asked for. reading: of them those that read already; the others join in ready_in_s."""

    wanted: int
    reading: int
    ready_in_s: float = 0.0


class DrainWish(Struct, frozen=True):
    """replicas: asked for. drained_s: how long it takes with them; infinity where arrivals are too many.

    hot: partitions that one replica alone cannot drain in time; more replicas do not help them.
    """

    replicas: int
    reason: str
    drained_s: float
    hot: int = 0


def replicas_to_drain(
    group: Group, partitions: Sequence[Partition], service: Service, target: DrainTarget, max_replicas: int
) -> DrainWish:
    """The size that drains in time, at most one replica for each partition. partitions: all, in their order.

    More are asked for once those there are would keep some record waiting too long; fewer once so many would idle that
    handing over partitions costs less, and those that stay drain it all in time, with a margin.
    """
    if not any(partition.lag > 0 or partition.arrivals > 0 for partition in partitions):
        return DrainWish(0, NOTHING_TO_DO, 0.0)
    most = min(len(partitions), max_replicas)
    kept = min(group.wanted, most)
    joined, delay_s = _joined(group, partitions, service)
    later = after(joined, kept, service, service.start_s, service.rebalance_s)
    late = target.alternates and _grows_late(joined, later, target)
    if late or not kept or not _fits(kept, [_to_keep_up(one, target) for one in later], service.rate):
        return _more(group, partitions, service, target, most)
    paused = [_aged(one, 0.0, service.rebalance_s) for one in joined]
    fewer, hot = _least(paused, service, target, most)
    if fewer < kept and _idle_s(kept, joined, service, target) > kept * service.rebalance_s:
        return DrainWish(fewer, TOO_MANY, delay_s + service.rebalance_s + drained_s(fewer, paused, service), hot)
    if target.alternates and group.reading >= kept:
        fewer = _for_a_while(kept, paused, service, target)
        if fewer < kept:
            return DrainWish(fewer, FOR_A_WHILE, service.rebalance_s + drained_s(fewer, paused, service), hot)
    return DrainWish(kept, WITHIN_TARGET, delay_s + drained_s(kept, joined, service), hot)


def _grows_late(now: Sequence[Partition], later: Sequence[Partition], target: DrainTarget) -> bool:
    """Whether some partition falls behind until the record that has waited longest, if all came evenly, is late."""
    return any(
        one.lag > before.lag and one.lag > one.arrivals * target.within_s > 0
        for before, one in zip(now, later, strict=True)
    )


def _for_a_while(kept: int, partitions: Sequence[Partition], service: Service, target: DrainTarget) -> int:
    """The size that saves most until all are needed again; kept where none saves enough. One for each even deal."""
    count, rate = len(partitions), service.rate * (1 - target.margin)
    back_s = service.start_s + service.rebalance_s
    needs = [_to_keep_up(one, target) for one in partitions]
    best, size = 0.0, kept
    for fewer in sorted({math.ceil(count / each) for each in range(1, count + 1)}):
        gone, lasts_s = kept - fewer, _keep_up_s(fewer, partitions, rate, target) - back_s
        price = gone * back_s + 2 * fewer * service.rebalance_s
        if gone <= 0 or gone * lasts_s <= WORTH_LEAVING * price or not _fits(fewer, needs, rate):
            continue
        saved = gone if lasts_s == math.inf else (gone * lasts_s - price) / (lasts_s + back_s)
        if saved > best:
            best, size = saved, fewer
    return size


def _keep_up_s(replicas: int, partitions: Sequence[Partition], rate: float, target: DrainTarget) -> float:
    """For how long none of so many replicas, at this rate, falls so far behind that what comes is late."""
    lasts_s = math.inf
    for replica in range(replicas):
        own = partitions[replica::replicas]
        grows = sum(one.arrivals for one in own) - rate
        if grows > 0:
            lasts_s = min(lasts_s, (rate * target.within_s - sum(one.lag for one in own)) / grows)
    return lasts_s


def _idle_s(replicas: int, partitions: Sequence[Partition], service: Service, target: DrainTarget) -> float:
    """For how long replicas would have nothing to read, in all, until others in their place could be ready."""
    until_s = max(service.start_s + service.rebalance_s, target.within_s * LEAST_SHARE_TO_WORK)
    idle_s = 0.0
    for replica in range(replicas):
        own = partitions[replica::replicas]
        left_s = until_s - min(until_s, _alone_s(own, service))
        idle_s += left_s * (1 - sum(one.arrivals for one in own) / service.rate)
    return idle_s


def _more(group: Group, partitions: Sequence[Partition], service: Service, target: DrainTarget, most: int) -> DrainWish:
    first_s = min(group.ready_in_s, service.start_s)
    left = after(partitions, group.reading, service, first_s)
    left = after(left, group.wanted, service, service.start_s - first_s, service.rebalance_s)
    wanted, hot = _least(left, service, target, most)
    kept = min(group.wanted, most)
    joined, delay_s = _joined(group, partitions, service)
    now_s = delay_s + drained_s(kept, joined, service)
    if wanted <= kept:
        return DrainWish(kept, WITHIN_TARGET, now_s, hot)
    then_s = service.start_s + service.rebalance_s + drained_s(wanted, left, service)
    if kept and then_s >= now_s and math.isfinite(now_s):
        return DrainWish(kept, NOT_WORTH_IT, now_s, hot)
    return DrainWish(wanted, TO_DRAIN, then_s, hot)


def _joined(group: Group, partitions: Sequence[Partition], service: Service) -> tuple[Sequence[Partition], float]:
    """What is left once all that were asked for read, and in how many seconds that is."""
    if group.reading >= group.wanted:
        return partitions, 0.0
    left = after(partitions, group.reading, service, group.ready_in_s, service.rebalance_s)
    return left, group.ready_in_s + service.rebalance_s


def after(
    partitions: Sequence[Partition], replicas: int, service: Service, seconds: float, pause_s: float = 0.0
) -> list[Partition]:
    """What is left when so many replicas have read for so long, and then nobody for a while."""
    come = [partition.lag + partition.arrivals * seconds for partition in partitions]
    dealt = [sum(come[replica::replicas]) for replica in range(replicas)]
    left = [max(0.0, 1 - service.rate * seconds / records) if records > 0 else 0.0 for records in dealt] or [1.0]
    return [
        _aged(Partition(come[index] * left[index % len(left)], one.arrivals, one.waited_s), seconds, pause_s)
        for index, one in enumerate(partitions)
    ]


def _aged(one: Partition, seconds: float, pause_s: float) -> Partition:
    """After seconds in which its lag already was counted, and a pause in which more comes."""
    waited_s = one.waited_s + seconds if one.lag > 0 else 0.0
    return Partition(one.lag + one.arrivals * pause_s, one.arrivals, waited_s + pause_s)


def _to_keep_up(one: Partition, target: DrainTarget) -> float:
    """Records a second that must be read lest any that waits now wait too long."""
    return max(one.lag / target.within_s, _backlog(one) / _left_s(one, target))


def _to_drain(one: Partition, target: DrainTarget) -> float:
    """Records a second that read those in time, and whatever comes meanwhile."""
    return one.arrivals + _to_keep_up(one, target)


def _backlog(one: Partition) -> float:
    """The part of the lag that did not come evenly while the oldest waited; it is taken to be as old as that."""
    return max(0.0, one.lag - one.arrivals * one.waited_s)


def _left_s(one: Partition, target: DrainTarget) -> float:
    return max(target.within_s - one.waited_s, target.within_s * LEAST_SHARE_TO_WORK)


def _least(partitions: Sequence[Partition], service: Service, target: DrainTarget, most: int) -> tuple[int, int]:
    """(replicas, hot): the fewest that drain in time with the margin; most where no size does."""
    rate = service.rate * (1 - target.margin)
    needs = [_to_drain(one, target) for one in partitions]
    hot = sum(1 for need in needs if need > rate)
    loads = [
        rate * FLOODED_SHARE if one.arrivals > service.rate else min(need, rate)
        for one, need in zip(partitions, needs, strict=True)
    ]
    first = max(1, math.ceil(sum(loads) / rate - ROUNDING))
    return next((size for size in range(first, most) if _fits(size, loads, rate)), most), hot


def _fits(size: int, loads: Sequence[float], rate: float) -> bool:
    """Whether no replica is asked for more than its rate when partitions are dealt in turn."""
    bound = rate * (1 + ROUNDING)
    return all(sum(loads[replica::size]) <= bound for replica in range(size))


def drained_s(replicas: int, partitions: Sequence[Partition], service: Service) -> float:
    """Until the last record that waits now, or comes meanwhile, is read by the busiest replica."""
    return max((_alone_s(partitions[replica::replicas], service) for replica in range(replicas)), default=math.inf)


def _alone_s(partitions: Sequence[Partition], service: Service) -> float:
    lag = sum(partition.lag for partition in partitions)
    spare = service.rate - sum(partition.arrivals for partition in partitions)
    if lag <= 0:
        return 0.0 if spare >= 0 else math.inf
    return lag / spare if spare > 0 else math.inf
