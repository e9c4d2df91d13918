"""A queue is drained in time by one jump, and nobody leaves who is needed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpa.core.own.draining import (
    FOR_A_WHILE,
    NOT_WORTH_IT,
    NOTHING_TO_DO,
    TO_DRAIN,
    TOO_MANY,
    WITHIN_TARGET,
    ConsumerGroup,
    DrainTarget,
    DrainWish,
    QueuePartitions,
    ServiceRate,
    queue_after_reading,
    replicas_to_drain,
    seconds_to_drain,
)

FAST = ServiceRate(rate=10.0)


@dataclass(frozen=True)
class QueuePartition:
    """One row of the columns in QueuePartitions."""

    lag: float
    arrivals: float
    waited_s: float = 0.0


def queue_of(rows: Sequence[QueuePartition]) -> QueuePartitions:
    columns = ([one.lag for one in rows], [one.arrivals for one in rows], [one.waited_s for one in rows])
    return QueuePartitions(*(np.array(column, dtype=np.float64) for column in columns))


def drain_wish(
    group: ConsumerGroup, partitions: list[QueuePartition], service: ServiceRate, target: DrainTarget, max_replicas: int
) -> DrainWish:
    return replicas_to_drain(group, queue_of(partitions), service, target, max_replicas)


def group_of_size(replicas: int) -> ConsumerGroup:
    return ConsumerGroup(replicas, replicas)


@pytest.mark.parametrize(
    ("current", "partitions", "service", "within_s", "expected"),
    [
        pytest.param(3, [(0, 0)] * 8, FAST, 60, (0, NOTHING_TO_DO, 0), id="nothing waits and nothing comes"),
        pytest.param(
            1, [(990, 0)] * 8, FAST, 110, (8, TO_DRAIN, 0), id="7,920 records, nine a second, 110 s: eight at once"
        ),
        pytest.param(1, [(990, 0)] * 8, FAST, 220, (4, TO_DRAIN, 0), id="in twice the time by half as many"),
        pytest.param(
            1, [(990, 0)] * 8, FAST, 200, (8, TO_DRAIN, 0), id="five drain eight partitions no sooner than four"
        ),
        pytest.param(4, [(990, 0)] * 8, FAST, 220, (4, WITHIN_TARGET, 0), id="as many as are needed stay"),
        pytest.param(0, [(1, 0)] * 8, FAST, 60, (1, TO_DRAIN, 0), id="from zero for a single record"),
        pytest.param(8, [(0, 4)] * 8, FAST, 60, (4, TOO_MANY, 0), id="a margin stays: two partitions of four a second"),
        pytest.param(8, [(0, 5)] * 8, FAST, 60, (8, WITHIN_TARGET, 0), id="two partitions of five leave no margin"),
        pytest.param(
            8, [(1490, 0)] * 8, ServiceRate(10.0, 30.0, 2.0), 600, (8, WITHIN_TARGET, 0), id="who is busy for now stays"
        ),
        pytest.param(
            1,
            [(6000, 0), *[(200, 0)] * 7],
            FAST,
            100,
            (8, TO_DRAIN, 1),
            id="a hot partition is to have a replica for itself, which only as many as partitions give it",
        ),
        pytest.param(
            1,
            [(6000, 0), *[(10, 0)] * 7],
            FAST,
            100,
            (1, WITHIN_TARGET, 1),
            id="but for those with hardly any work, which take a tenth of it at the most",
        ),
        pytest.param(
            8,
            [(0, 30), *[(0, 0)] * 7],
            FAST,
            60,
            (1, TOO_MANY, 1),
            id="which does not help where more comes than one reads",
        ),
        pytest.param(
            1,
            [(1000, 0)] * 8,
            ServiceRate(10.0, 50.0),
            100,
            (8, TO_DRAIN, 8),
            id="half the time goes in starting: all partitions",
        ),
        pytest.param(
            4,
            [(100, 0)] * 8,
            ServiceRate(10.0, 0.0, 60.0),
            11,
            (4, NOT_WORTH_IT, 8),
            id="the rebalance would take longer",
        ),
        pytest.param(
            2, [(0, 30)] * 2, FAST, 60, (2, WITHIN_TARGET, 2), id="no more than partitions, though it never drains"
        ),
    ],
)
def test_the_size_asked_for(
    current: int,
    partitions: list[tuple[float, float]],
    service: ServiceRate,
    within_s: float,
    expected: tuple[int, str, int],
) -> None:
    found = drain_wish(
        group_of_size(current), [QueuePartition(*one) for one in partitions], service, DrainTarget(within_s), 100
    )
    assert (found.replicas, found.reason, found.hot) == expected


@pytest.mark.parametrize(
    ("waited_s", "expected"),
    [
        pytest.param(0, 4, id="just come: all the time is left"),
        pytest.param(60, 8, id="half the time is gone"),
        pytest.param(10_000, 16, id="too late: as in a quarter of the time"),
    ],
)
def test_a_burst_that_has_waited_is_read_sooner(waited_s: float, expected: int) -> None:
    partitions = [QueuePartition(270, 0, waited_s)] * 16
    assert drain_wish(group_of_size(1), partitions, FAST, DrainTarget(120), 100).replicas == expected


def test_what_came_evenly_is_not_as_old_as_its_oldest() -> None:
    """A lag that arrivals explain is in time though its oldest record has waited for most of the time."""
    evenly = [QueuePartition(100, 1, 100)] * 8
    assert drain_wish(group_of_size(1), evenly, FAST, DrainTarget(120), 100).reason == WITHIN_TARGET
    at_once = [QueuePartition(100, 0, 100)] * 8
    assert drain_wish(group_of_size(1), at_once, FAST, DrainTarget(120), 100).reason == TO_DRAIN


@pytest.mark.parametrize(
    ("lags", "waited_s", "expected"),
    [
        pytest.param([0] * 24, 0, (2, TOO_MANY), id="drained: all that are too many leave together"),
        pytest.param([100] * 24, 60, (24, WITHIN_TARGET), id="ten seconds of work for each: nobody idles before"),
        pytest.param([40] * 24, 20, (3, TOO_MANY), id="nearly drained, and fewer do the rest in time"),
        pytest.param([40] * 24, 100, (24, WITHIN_TARGET), id="which would be late with fewer"),
        pytest.param([2000] + [0] * 23, 200, (12, TOO_MANY), id="one is late whatever the size: half of them leave"),
        pytest.param([2000] * 13 + [0] * 11, 200, (24, WITHIN_TARGET), id="not a few: each pause makes them later"),
    ],
)
def test_they_leave_together_and_make_nothing_late(
    lags: list[float], waited_s: float, expected: tuple[int, str]
) -> None:
    """24 replicas for 24 partitions, ten records a second each, to which half of one comes."""
    partitions = [QueuePartition(lag, 0.5, waited_s if lag else 0.0) for lag in lags]
    service = ServiceRate(10.0, 30.0, 5.0)
    found = drain_wish(group_of_size(24), partitions, service, DrainTarget(120), 24)
    assert (found.replicas, found.reason) == expected


def test_who_starts_counts_from_when_it_is_ready() -> None:
    """After a jump the size stays while its replicas start; a longer queue makes it jump again."""
    service, target = ServiceRate(10.0, 40.0, 5.0), DrainTarget(120)
    found = drain_wish(group_of_size(1), [QueuePartition(150, 0.5)] * 40, service, target, 100)
    assert found.reason == TO_DRAIN
    for gone_s in (10, 30):
        group = ConsumerGroup(found.replicas, 1, 40.0 - gone_s)
        then = queue_after_reading(queue_of([QueuePartition(150, 0.5)] * 40), 1, service, gone_s)
        assert replicas_to_drain(group, then, service, target, 100).replicas == found.replicas
    more = [QueuePartition(280, 0.5)] * 40
    assert drain_wish(ConsumerGroup(found.replicas, 1, 30.0), more, service, target, 100).replicas > found.replicas


@pytest.mark.parametrize(
    ("wanted", "reading", "work", "lag", "expected"),
    [
        pytest.param(24, 24, 13, 0, (12, FOR_A_WHILE), id="twelve fall behind slowly"),
        pytest.param(24, 24, 13, 500, (24, WITHIN_TARGET), id="what waits is read first"),
        pytest.param(24, 12, 13, 0, (24, WITHIN_TARGET), id="who was called is awaited"),
        pytest.param(24, 24, 23, 0, (24, WITHIN_TARGET), id="twelve would be called back too soon"),
        pytest.param(24, 24, 10, 0, (12, TOO_MANY), id="twelve keep up"),
        pytest.param(12, 12, 13, 300, (12, WITHIN_TARGET), id="there is time left"),
        pytest.param(12, 12, 13, 600, (24, TO_DRAIN), id="and in time all come back"),
    ],
)
def test_fewer_for_a_while(wanted: int, reading: int, work: float, lag: float, expected: tuple[int, str]) -> None:
    """24 partitions, 10 records a second each at most; work: what comes, in replicas."""
    service, target = ServiceRate(10.0, 30.0, 5.0), DrainTarget(120, 0.1, alternates=True)
    waited_s = lag / work * 2.4
    partitions = [QueuePartition(lag, work * 10 / 24, waited_s)] * 24
    found = drain_wish(ConsumerGroup(wanted, reading), partitions, service, target, 100)
    assert (found.replicas, found.reason) == expected
    resting = drain_wish(ConsumerGroup(wanted, reading), partitions, service, DrainTarget(120, 0.1), 100)
    assert resting.reason == (WITHIN_TARGET if found.reason == FOR_A_WHILE else found.reason)


EVEN = st.builds(
    lambda count, lag, arrivals: [QueuePartition(lag, arrivals)] * count,
    st.integers(1, 40),
    st.floats(0, 5000),
    st.floats(0, 20),
)
SKEWED = st.lists(
    st.builds(QueuePartition, st.floats(0, 5000), st.floats(0, 20), st.floats(0, 900)), min_size=1, max_size=40
)
SERVICES = st.builds(ServiceRate, st.floats(1, 50), st.floats(0, 60), st.floats(0, 10))
TARGETS = st.builds(DrainTarget, st.floats(30, 600), st.floats(0, 0.5), st.booleans())
GROUPS = st.builds(lambda wanted, starting, ready_s: ConsumerGroup(wanted, max(0, wanted - starting), ready_s),
                   st.integers(0, 30), st.integers(0, 30), st.floats(0, 60))  # fmt: skip


def drain_wish_of_at_most_30(
    group: ConsumerGroup, partitions: list[QueuePartition], service: ServiceRate, target: DrainTarget
) -> DrainWish:
    return drain_wish(group, partitions, service, target, 30)


@given(group=GROUPS, partitions=SKEWED, service=SERVICES, target=TARGETS)
def test_never_more_than_can_work_and_never_zero_with_work(
    group: ConsumerGroup, partitions: list[QueuePartition], service: ServiceRate, target: DrainTarget
) -> None:
    found = drain_wish_of_at_most_30(group, partitions, service, target)
    work = any(one.lag > 0 or one.arrivals > 0 for one in partitions)
    assert min(work, 1) <= found.replicas <= min(len(partitions), 30)


@given(group=GROUPS, partitions=SKEWED, service=SERVICES, target=TARGETS)
def test_each_reason_says_its_direction(
    group: ConsumerGroup, partitions: list[QueuePartition], service: ServiceRate, target: DrainTarget
) -> None:
    found = drain_wish_of_at_most_30(group, partitions, service, target)
    kept = min(group.wanted, len(partitions), 30)
    direction = {TO_DRAIN: 1, TOO_MANY: -1, FOR_A_WHILE: -1, WITHIN_TARGET: 0, NOT_WORTH_IT: 0}
    if found.reason != NOTHING_TO_DO:
        assert (found.replicas > kept) - (found.replicas < kept) == direction[found.reason]


def simulated_drain_seconds(current: int, wanted: int, partitions: list[QueuePartition], service: ServiceRate) -> float:
    """In small steps: who runs reads while others start, nobody during the rebalance, then all; partitions in turn."""

    def lags_after_step(lags: list[float], readers: int, seconds: float) -> list[float]:
        come = [lag + one.arrivals * seconds for lag, one in zip(lags, partitions, strict=True)]
        for reader in range(readers):
            total, can = sum(come[reader::readers]), service.rate * seconds
            come[reader::readers] = [max(0.0, 1 - can / total) * lag if total else 0.0 for lag in come[reader::readers]]
        return come

    lags = [one.lag for one in partitions]
    for _ in range(100):
        lags = lags_after_step(lags, current, service.start_s / 100)
    lags = lags_after_step(lags, 0, service.rebalance_s)
    at_s = service.start_s + service.rebalance_s
    while sum(lags) > 1e-6 * service.rate and at_s < 3600:
        lags = lags_after_step(lags, wanted, 0.5)
        at_s += 0.5
    return at_s


@given(
    current=st.integers(0, 3),
    rate=st.floats(1, 50),
    within_s=st.floats(60, 600),
    load=st.floats(4, 18),
    coming=st.floats(0, 0.4),
    delays=st.tuples(st.floats(0, 0.3), st.floats(0, 0.1)),
)
def test_one_jump_drains_in_time(
    current: int, rate: float, within_s: float, load: float, coming: float, delays: tuple[float, float]
) -> None:
    """By a simulation. load, coming: what waits and what comes, as the work of so many replicas for all of the time."""
    service = ServiceRate(rate, delays[0] * within_s, delays[1] * within_s)
    partitions = [QueuePartition(load * rate * within_s / 40, coming * load * rate / 40)] * 40
    found = drain_wish(group_of_size(current), partitions, service, DrainTarget(within_s), 100)
    assert found.reason == TO_DRAIN
    took_s = simulated_drain_seconds(current, found.replicas, partitions, service)
    assert took_s == pytest.approx(found.drained_s, abs=1)
    if not found.hot:
        assert took_s <= within_s + 1


@given(
    current=st.integers(12, 30),
    rate=st.floats(1, 50),
    load=st.lists(st.tuples(st.floats(0, 3), st.floats(0, 0.2)), min_size=16, max_size=16),
    margin=st.floats(0, 0.5),
    rebalance_s=st.floats(0, 10),
)
def test_who_is_needed_stays(
    current: int, rate: float, load: list[tuple[float, float]], margin: float, rebalance_s: float
) -> None:
    """After a scale-in those that stay drain in time what waits, and nobody is called back."""
    partitions = [QueuePartition(lag * rate, arrivals * rate) for lag, arrivals in load]
    service, target = ServiceRate(rate, 20.0, rebalance_s), DrainTarget(60.0, margin)
    found = drain_wish_of_at_most_30(group_of_size(current), partitions, service, target)
    if found.reason == TOO_MANY:
        assert found.drained_s <= target.within_s + service.rebalance_s + 1e-6
        assert (
            drain_wish_of_at_most_30(group_of_size(found.replicas), partitions, service, target).replicas
            <= found.replicas
        )


@given(replicas=st.integers(1, 30), partitions=EVEN, service=SERVICES, more=st.floats(1, 1000))
def test_a_longer_queue_is_never_drained_sooner(
    replicas: int, partitions: list[QueuePartition], service: ServiceRate, more: float
) -> None:
    longer = [QueuePartition(one.lag + more, one.arrivals) for one in partitions]
    assert seconds_to_drain(replicas, queue_of(longer), service) >= seconds_to_drain(
        replicas, queue_of(partitions), service
    )


def test_what_never_drains_takes_for_ever() -> None:
    assert seconds_to_drain(1, queue_of([QueuePartition(0, 20)]), FAST) == math.inf
    assert seconds_to_drain(1, queue_of([QueuePartition(5, 10)]), FAST) == math.inf
