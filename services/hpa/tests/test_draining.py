"""A queue is drained in time by one jump, and nobody leaves who is needed."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpa.core.draining import (
    NOT_WORTH_IT,
    NOTHING_TO_DO,
    TO_DRAIN,
    TOO_MANY,
    WITHIN_TARGET,
    DrainTarget,
    DrainWish,
    Partition,
    Service,
    drained_s,
    learned_rate,
    replicas_to_drain,
)

FAST = Service(rate=10.0)


@pytest.mark.parametrize(
    ("current", "partitions", "service", "within_s", "expected"),
    [
        pytest.param(3, [(0, 0)] * 8, FAST, 60, (0, NOTHING_TO_DO, 0), id="nothing waits and nothing comes"),
        pytest.param(
            1, [(1000, 0)] * 8, FAST, 100, (8, TO_DRAIN, 0), id="8,000 records, 10 a second, 100 s: eight at once"
        ),
        pytest.param(1, [(1000, 0)] * 8, FAST, 200, (4, TO_DRAIN, 0), id="in twice the time by half as many"),
        pytest.param(4, [(1000, 0)] * 8, FAST, 200, (4, WITHIN_TARGET, 0), id="as many as are needed stay"),
        pytest.param(0, [(1, 0)] * 8, FAST, 60, (1, TO_DRAIN, 0), id="from zero for a single record"),
        pytest.param(8, [(0, 5)] * 8, FAST, 60, (5, TOO_MANY, 0), id="a margin stays: 40 a second by five, not four"),
        pytest.param(
            1,
            [(6000, 0), *[(10, 0)] * 7],
            FAST,
            100,
            (2, TO_DRAIN, 1),
            id="a hot partition takes one, the rest share one",
        ),
        pytest.param(
            1,
            [(1000, 0)] * 8,
            Service(10.0, 50.0),
            100,
            (8, TO_DRAIN, 8),
            id="half the time goes in starting: all partitions",
        ),
        pytest.param(
            7, [(100, 0)] * 8, Service(10.0, 0.0, 60.0), 11, (7, NOT_WORTH_IT, 8), id="the rebalance would take longer"
        ),
        pytest.param(
            2, [(0, 30)] * 2, FAST, 60, (2, WITHIN_TARGET, 2), id="no more than partitions, though it never drains"
        ),
    ],
)
def test_the_size_asked_for(
    current: int,
    partitions: list[tuple[float, float]],
    service: Service,
    within_s: float,
    expected: tuple[int, str, int],
) -> None:
    found = replicas_to_drain(current, [Partition(*one) for one in partitions], service, DrainTarget(within_s), 100)
    assert (found.replicas, found.reason, found.hot) == expected


EVEN = st.builds(
    lambda count, lag, arrivals: [Partition(lag, arrivals)] * count,
    st.integers(1, 40),
    st.floats(0, 5000),
    st.floats(0, 20),
)
SKEWED = st.lists(st.builds(Partition, st.floats(0, 5000), st.floats(0, 20)), min_size=1, max_size=40)
SERVICES = st.builds(Service, st.floats(1, 50), st.floats(0, 60), st.floats(0, 10))
TARGETS = st.builds(DrainTarget, st.floats(30, 600), st.floats(0, 0.5))


def ask(current: int, partitions: list[Partition], service: Service, target: DrainTarget) -> DrainWish:
    return replicas_to_drain(current, partitions, service, target, 30)


@given(current=st.integers(0, 30), partitions=SKEWED, service=SERVICES, target=TARGETS)
def test_never_more_than_can_work_and_never_zero_with_work(
    current: int, partitions: list[Partition], service: Service, target: DrainTarget
) -> None:
    found = ask(current, partitions, service, target)
    working = sum(1 for one in partitions if one.lag > 0 or one.arrivals > 0)
    assert min(working, 1) <= found.replicas <= min(working, 30)


def simulated_s(current: int, wanted: int, partitions: list[Partition], service: Service) -> float:
    """In small steps: who runs works while others start, nobody during the rebalance, then all; an hour at most."""
    lag = sum(one.lag for one in partitions)
    arrivals = sum(one.arrivals for one in partitions)
    if wanted * service.rate < arrivals:
        return math.inf
    for seconds, workers in ((service.start_s, current), (service.rebalance_s, 0)):
        for _ in range(100):
            lag = max(0.0, lag + (arrivals - workers * service.rate) * seconds / 100)
    at_s = service.start_s + service.rebalance_s
    while lag > 0 and at_s < 3600:
        lag += (arrivals - wanted * service.rate) * 0.5
        at_s += 0.5
    return at_s if lag <= 0 else math.inf


@given(
    current=st.integers(0, 3),
    rate=st.floats(1, 50),
    within_s=st.floats(60, 600),
    load=st.floats(4, 18),
    coming=st.floats(0, 0.5),
    delays=st.tuples(st.floats(0, 0.3), st.floats(0, 0.1)),
)
def test_one_jump_drains_in_time_and_one_replica_fewer_would_not(
    current: int, rate: float, within_s: float, load: float, coming: float, delays: tuple[float, float]
) -> None:
    """By a simulation. load, coming: what waits and what comes, as the work of so many replicas for all of the time."""
    service = Service(rate, delays[0] * within_s, delays[1] * within_s)
    partitions = [Partition(load * rate * within_s / 40, coming * load * rate / 40)] * 40
    found = replicas_to_drain(current, partitions, service, DrainTarget(within_s), 100)
    assert (found.reason, found.hot) == (TO_DRAIN, 0)
    took_s = simulated_s(current, found.replicas, partitions, service)
    assert took_s == pytest.approx(found.drained_s, abs=1)
    if found.replicas < 40:
        assert took_s <= within_s + 1
    assert found.replicas - 1 <= current or simulated_s(current, found.replicas - 1, partitions, service) > within_s - 1


@given(
    current=st.integers(12, 30),
    rate=st.floats(1, 50),
    load=st.lists(st.tuples(st.floats(0, 3), st.floats(0, 0.2)), min_size=30, max_size=30),
    margin=st.floats(0, 0.5),
    rebalance_s=st.floats(0, 10),
)
def test_who_is_needed_stays(
    current: int, rate: float, load: list[tuple[float, float]], margin: float, rebalance_s: float
) -> None:
    """After a scale-in those that stay drain in time, the pause included, and nobody is called back or sent after."""
    partitions = [Partition(lag * rate, arrivals * rate) for lag, arrivals in load]
    service, target = Service(rate, 20.0, rebalance_s), DrainTarget(60.0, margin)
    found = ask(current, partitions, service, target)
    assert found.replicas <= current or found.reason == TO_DRAIN
    if found.reason == TOO_MANY:
        assert found.drained_s <= target.within_s + 1e-6
        assert ask(found.replicas, partitions, service, target).replicas == found.replicas


@given(current=st.integers(1, 30), partitions=EVEN, service=SERVICES, target=TARGETS, more=st.floats(1, 1000))
def test_a_longer_queue_never_asks_for_fewer(
    current: int, partitions: list[Partition], service: Service, target: DrainTarget, more: float
) -> None:
    longer = [Partition(one.lag + more, one.arrivals) for one in partitions]
    here, there = ask(current, partitions, service, target), ask(current, longer, service, target)
    if NOT_WORTH_IT not in (here.reason, there.reason):
        assert there.replicas >= here.replicas


def test_what_never_drains_takes_for_ever() -> None:
    assert drained_s(1, [Partition(0, 20)], FAST, 0) == math.inf
    assert drained_s(1, [Partition(5, 10)], FAST, 0) == math.inf


@pytest.mark.parametrize(
    ("rate", "records", "busy", "expected"),
    [
        pytest.param(None, 100, True, 5.0, id="the first that is seen"),
        pytest.param(10.0, 100, True, 9.0, id="a fifth of the way"),
        pytest.param(10.0, 1, False, 10.0, id="who waits for records says nothing"),
        pytest.param(None, 0, True, None, id="nothing was read"),
    ],
)
def test_the_rate_of_a_replica_is_learned_from_busy_ones(
    rate: float | None, records: float, busy: bool, expected: float | None
) -> None:
    assert learned_rate(rate, records, 2, 10.0, busy=busy) == expected
