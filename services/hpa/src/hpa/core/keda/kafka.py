"""Computes the metric of KEDA's Kafka trigger from a consumer group's lag. Pure.

Source: pkg/scalers/kafka_scaler.go (getLagForPartition, getTotalLag, FindFactors, getNextFactorThatBalancesConsumers…).
Lags are numbers of records. The true lag is always returned together with KEDA's value.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from hpa.core.kubernetes.go_numbers import INT32_MAX, truncated_quotient

LATEST: Final = "latest"
EARLIEST: Final = "earliest"


class KafkaTrigger(Struct, frozen=True):
    """The settings of a Kafka trigger, which compares a consumer group's lag with a threshold per replica.

    topic: the topic; "" for all topics in which the group has offsets.
    partitions: ranges (first, last), merged and rising; None: all partitions.
    allow_idle: the lag is not capped at the number of partitions.
    limit_to_lagging: the cap counts only partitions with lag.
    even: the number of replicas is a divisor of the number of partitions.
    exclude_persistent: a partition whose committed offset has not changed since the last poll counts for activity only.
    zero_on_invalid: a partition without a committed offset has no lag.
    full_metadata: KEDA's fullMetadata. False is valid only with a topic, and changes nothing else here.
    exact: our own setting. The cap is exactly one threshold for each partition. KEDA's cap allows almost one more.
    """

    group: str
    brokers: tuple[str, ...] = ()
    topic: str = ""
    lag_threshold: int = 10
    activation_lag_threshold: int = 0
    offset_reset: str = LATEST
    partitions: tuple[tuple[int, int], ...] | None = None
    allow_idle: bool = False
    limit_to_lagging: bool = False
    even: bool = False
    exclude_persistent: bool = False
    zero_on_invalid: bool = False
    full_metadata: bool = True
    exact: bool = False

    def has_partition(self, topic: str, partition: int) -> bool:
        """Returns whether the trigger counts the lag of a partition."""
        if not self.topic or self.partitions is None:
            return not self.topic or topic == self.topic
        at = bisect_right(self.partitions, (partition, INT32_MAX)) - 1
        return topic == self.topic and at >= 0 and partition <= self.partitions[at][1]


class PartitionOffsets(Struct, frozen=True):
    """The offsets of one partition. committed: None without one; latest: None when the broker did not answer for it."""

    topic: str
    partition: int
    latest: int | None
    committed: int | None


Committed = Mapping[tuple[str, int], int]
"""The committed offsets at the previous poll, by (topic, partition)."""


class Lag(Struct, frozen=True):
    """The lag of a group in the counted partitions, in records.

    total: the capped value that KEDA publishes.
    true: the lag of all partitions, with no exclusion or cap.
    committed: the offsets to remember for the next poll.
    """

    total: int
    true: int
    active: bool
    committed: Committed

    @property
    def metric_milli(self) -> int:
        return max(self.total, 0) * 1000


def lag_of_partitions(chosen: Sequence[PartitionOffsets], trigger: KafkaTrigger, before: Committed) -> Lag:
    """Returns the lag of these partitions.

    chosen: all partitions that the trigger counts, and no others. before: the committed offsets of the last poll.
    """
    lags = [(row, *partition_lag(trigger, row, before)) for row in chosen]
    total = sum(lag for _, lag, _ in lags)
    true = sum(with_persistent for _, _, with_persistent in lags)
    answered = sum(1 for row in chosen if row.latest is not None)
    lagging = sum(1 for _, lag, _ in lags if lag > 0)
    committed = dict(before)
    if trigger.exclude_persistent:
        known = (row for row in chosen if row.committed is not None and row.latest is not None)
        committed |= {(row.topic, row.partition): row.committed for row in known if row.committed is not None}
    return Lag(capped_lag(trigger, total, answered, lagging), true, true > trigger.activation_lag_threshold, committed)


def partition_lag(trigger: KafkaTrigger, row: PartitionOffsets, before: Committed) -> tuple[int, int]:
    """Returns (lag for scaling, lag for activity) of one partition. Only exclude_persistent makes them differ."""
    if row.latest is None:
        return 0, 0
    if row.committed is None:
        first = 1 if trigger.offset_reset == LATEST else row.latest
        lag = 0 if trigger.zero_on_invalid else first
        return lag, lag
    lag = row.latest - row.committed
    stands = trigger.exclude_persistent and before.get((row.topic, row.partition)) == row.committed
    return (0 if stands else lag), lag


def capped_lag(trigger: KafkaTrigger, total: int, partitions: int, lagging: int) -> int:
    """Returns the lag to publish: at most one threshold for each partition on which a consumer could work.

    KEDA's cap compares whole thresholds. So it allows almost one threshold more, unless the trigger is exact.
    """
    if trigger.allow_idle and not trigger.limit_to_lagging and not trigger.even:
        return total
    threshold = trigger.lag_threshold
    if trigger.even:
        total = threshold * balancing_factor(total, partitions, threshold)
    bound = lagging if trigger.limit_to_lagging else partitions
    over = total > bound * threshold if trigger.exact else truncated_quotient(total, threshold) > bound
    return bound * threshold if over else total


def divisors_of(number: int) -> list[int]:
    """Returns the divisors, ascending; none for 0."""
    return [candidate for candidate in range(1, number + 1) if number % candidate == 0]


def balancing_factor(total: int, partitions: int, threshold: int) -> int:
    """Returns the smallest divisor of `partitions` that is enough consumers for the lag; if none is, `partitions`.

    total: the lag, in records.
    threshold: the lag that one consumer may have.
    """
    return next((factor for factor in divisors_of(partitions) if factor * threshold >= total), partitions)
