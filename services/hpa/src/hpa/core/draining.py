"""How many consumers drain a queue within a time: one jump, from arrivals, learned rate, start-up and rebalances. Pure.

The queue is a fluid: a replica works off `rate` records a second, a partition is worked on by one replica at a time.
New replicas work after `start_s`; whenever the number changes nobody works for `rebalance_s`. A partition that alone
would take longer than there is time takes one replica for itself; the others share the rest evenly.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

NOTHING_TO_DO: Final = "NothingToDo"
WITHIN_TARGET: Final = "WithinTarget"
TO_DRAIN: Final = "ToDrain"
TOO_MANY: Final = "MoreThanTheWorkNeeds"
NOT_WORTH_IT: Final = "RebalanceCostsMore"

LEAST_SHARE_TO_WORK: Final = 0.25
"""However long start-up takes: so much of the target time is counted for working, lest the size grow without bound."""
ROUNDING: Final = 1e-9
LEARNING_SHARE: Final = 0.2


@dataclass(frozen=True, slots=True)
class Partition:
    """lag: records to be read. arrivals: records a second that come."""

    lag: float
    arrivals: float


@dataclass(frozen=True, slots=True)
class Service:
    """rate: records a second of one replica that never waits, above 0."""

    rate: float
    start_s: float = 0.0
    rebalance_s: float = 0.0


@dataclass(frozen=True, slots=True)
class DrainTarget:
    """within_s: no record is to wait longer. margin: of each replica's rate, kept free before any of them goes."""

    within_s: float
    margin: float = 0.1


@dataclass(frozen=True, slots=True)
class DrainWish:
    """replicas: asked for. drained_s: how long it takes with them; infinity where arrivals are too many.

    hot: partitions that one replica alone cannot drain in time; more replicas do not help them.
    """

    replicas: int
    reason: str
    drained_s: float
    hot: int = 0


def replicas_to_drain(
    current: int, partitions: Sequence[Partition], service: Service, target: DrainTarget, max_replicas: int
) -> DrainWish:
    """The size that drains in time, at most one replica for each partition with work, and max_replicas.

    Nobody leaves while it is needed: fewer are asked for only when those that stay drain in time with a margin.
    """
    working = [partition for partition in partitions if partition.lag > 0 or partition.arrivals > 0]
    most = min(len(working), max_replicas)
    if not most:
        return DrainWish(0, NOTHING_TO_DO, 0.0)
    now_s = drained_s(current, working, service, 0.0)
    if current and now_s <= target.within_s:
        paused = [Partition(one.lag + one.arrivals * service.rebalance_s, one.arrivals) for one in working]
        fewer, hot = _size(paused, service, target, service.rebalance_s, 1 - target.margin)
        fewer = max(1, min(fewer, most))
        if fewer < current:
            return DrainWish(fewer, TOO_MANY, drained_s(fewer, working, service, service.rebalance_s), hot)
        return DrainWish(min(current, most), WITHIN_TARGET, now_s, hot)
    return _more(current, working, service, target, most, now_s)


def _more(
    current: int, working: Sequence[Partition], service: Service, target: DrainTarget, most: int, now_s: float
) -> DrainWish:
    delay_s = service.start_s + service.rebalance_s
    left = _after_delay(current, working, service)
    wanted, hot = _size(left, service, target, delay_s, 1.0)
    wanted = max(1, min(wanted, most))
    if wanted <= current:
        return DrainWish(min(current, most), WITHIN_TARGET, now_s, hot)
    then_s = delay_s + drained_s(wanted, left, service, 0.0)
    if then_s >= now_s and math.isfinite(now_s):
        return DrainWish(current, NOT_WORTH_IT, now_s, hot)
    return DrainWish(wanted, TO_DRAIN, then_s, hot)


def _after_delay(current: int, working: Sequence[Partition], service: Service) -> list[Partition]:
    """What is left when new replicas begin: those that run go on while they start, and stop for the rebalance."""
    lag = sum(partition.lag for partition in working)
    arrivals = sum(partition.arrivals for partition in working)
    come = lag + arrivals * (service.start_s + service.rebalance_s)
    started = max(0.0, lag + (arrivals - current * service.rate) * service.start_s)
    share = (started + arrivals * service.rebalance_s) / come if come else 0.0
    delay_s = service.start_s + service.rebalance_s
    return [
        Partition(share * (partition.lag + partition.arrivals * delay_s), partition.arrivals) for partition in working
    ]


def _size(
    partitions: Sequence[Partition], service: Service, target: DrainTarget, delay_s: float, usable: float
) -> tuple[int, int]:
    """(replicas, hot): how many work it off in what the delay leaves of the time. usable: share of the rate."""
    seconds = max(target.within_s - delay_s, target.within_s * LEAST_SHARE_TO_WORK)
    rate = service.rate * usable
    needs = [partition.arrivals + partition.lag / seconds for partition in partitions]
    hot = sum(1 for need in needs if need > rate)
    return hot + math.ceil(sum(need for need in needs if need <= rate) / rate - ROUNDING), hot


def drained_s(replicas: int, partitions: Sequence[Partition], service: Service, pause_s: float) -> float:
    """Until the last record that waits now is read, when all replicas share the work evenly after a pause."""
    lag = sum(partition.lag + partition.arrivals * pause_s for partition in partitions)
    if lag <= 0:
        return 0.0 if replicas * service.rate >= sum(partition.arrivals for partition in partitions) else math.inf
    spare = replicas * service.rate - sum(partition.arrivals for partition in partitions)
    return pause_s + lag / spare if spare > 0 else math.inf


def learned_rate(rate: float | None, records: float, replicas: int, seconds: float, *, busy: bool) -> float | None:
    """The rate of one replica, moved towards what was just seen; a replica that waited for records says nothing.

    records: read by the group in those seconds. busy: records were waiting all the while.
    """
    if not busy or replicas <= 0 or seconds <= 0 or records <= 0:
        return rate
    seen = records / seconds / replicas
    return seen if rate is None else rate + LEARNING_SHARE * (seen - rate)
