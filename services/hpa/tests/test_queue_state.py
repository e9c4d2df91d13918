"""What is learned of a queue from offsets alone, and how long a size is kept."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpa.core.own.draining import DrainTarget, ServiceRate
from hpa.core.own.queue_state import (
    NOTHING_SEEN,
    ArrivalRate,
    Offsets,
    PartitionRun,
    QueueObservation,
    QueueState,
    decide_drain_size,
    expected_arrival_rate,
    learned_replica_rate,
    partition_runs_of,
    state_with_observation,
)

SERVICE = ServiceRate(50.0, 30.0, 5.0)
TARGET = DrainTarget(120.0)


def state_after_observations(
    rows: list[tuple[list[int], list[int]]], reading: int, state: QueueState = NOTHING_SEEN
) -> QueueState:
    """(latest, committed) of each partition, every 5 s."""
    for number, (latest, committed) in enumerate(rows):
        offsets = tuple(Offsets(*pair) for pair in zip(latest, committed, strict=True))
        state = state_with_observation(state, QueueObservation(5000 * number, offsets, reading, reading))
    return state


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        pytest.param([], 0.0, id="nothing was seen"),
        pytest.param([10.0] * 9, 10.0, id="steady"),
        pytest.param([10.0] * 8 + [5000.0], 10.0, id="a burst is no rate to come"),
        pytest.param([0.0] * 7 + [100.0] * 2, 0.0, id="nor are two"),
        pytest.param([100.0] * 9 + [0.0] * 3, 75.0, id="what ended counts less and less"),
        pytest.param([10.0, 20.0, 30.0], 50 / 3, id="the busiest third counts as the next"),
    ],
)
def test_arrivals_to_come(rates: list[float], expected: float) -> None:
    came = [ArrivalRate(5000 * number, 5.0, rate) for number, rate in enumerate(rates)]
    assert expected_arrival_rate(came) == pytest.approx(expected)


def test_the_rate_is_learned_from_replicas_that_never_waited() -> None:
    busy = [([100_000] * 4, [2000 * step] * 4) for step in range(12)]
    assert learned_replica_rate(state_after_observations(busy, 2).work, 50.0) == pytest.approx(800.0, rel=0.02)


def test_a_replica_that_waited_says_nothing_of_the_rate() -> None:
    idle = [([10 * step] * 4, [10 * step] * 4) for step in range(12)]
    assert learned_replica_rate(state_after_observations(idle, 2).work, 50.0) == 50.0


def test_what_was_assumed_gives_way_to_what_is_seen() -> None:
    few = [([1000] * 2, [step] * 2) for step in range(3)]
    assert 0.2 < learned_replica_rate(state_after_observations(few, 2).work, 4.0) < 2.0


def test_the_same_record_twice_changes_nothing() -> None:
    state = state_after_observations([([10, 10], [5, 5]), ([20, 20], [9, 9])], 1)
    assert state.seen is not None
    assert state_with_observation(state, state.seen) == state


def observation_of_topics(topics: dict[str, list[tuple[int, int]]], at_ms: int, reading: int = 2) -> QueueObservation:
    """By topic the (latest, committed) of its partitions."""
    rows = sorted((topic, number, *pair) for topic, pairs in topics.items() for number, pair in enumerate(pairs))
    offsets = tuple(Offsets(latest, committed) for *_, latest, committed in rows)
    return QueueObservation(
        at_ms, offsets, reading, reading, partition_runs_of((topic, number) for topic, number, *_ in rows)
    )


@pytest.mark.parametrize("topic", ["a", "z"], ids=["before the others", "behind them"])
def test_what_stands_in_a_topic_that_is_new_to_the_group_did_not_come_now(topic: str) -> None:
    """A million records of a topic that the group begins to read: what came to the others goes on being counted."""
    state = state_with_observation(NOTHING_SEEN, observation_of_topics({"m": [(100, 90), (200, 90)]}, 0))
    state = state_with_observation(state, observation_of_topics({"m": [(110, 90), (220, 90)]}, 5000))
    state = state_with_observation(
        state, observation_of_topics({"m": [(120, 90), (240, 90)], topic: [(10**6, 0)] * 3}, 10_000)
    )
    assert [one.rate for one in state.came] == [6.0, 6.0]
    assert sorted(state.counts) == pytest.approx([0, 0, 0, 20, 40], rel=0.01)
    assert state.counts[-1 if topic == "a" else 1] == pytest.approx(40, rel=0.01)
    state = state_with_observation(
        state, observation_of_topics({"m": [(130, 90), (260, 90)], topic: [(10**6 + 10, 0)] * 3}, 15_000)
    )
    assert state.came[-1].rate == 12.0


def test_a_topic_that_the_group_reads_no_more_is_forgotten() -> None:
    """And of the rate nothing is learned where other partitions are read than before."""
    state = state_with_observation(NOTHING_SEEN, observation_of_topics({"a": [(500, 400)], "m": [(100, 10)]}, 0))
    state = state_with_observation(state, observation_of_topics({"a": [(600, 400)], "m": [(110, 20)]}, 5000))
    work = state.work
    state = state_with_observation(state, observation_of_topics({"m": [(120, 30)]}, 10_000))
    assert (state.came[-1].rate, len(state.counts), state.work) == (2.0, 1, work)


def test_partitions_that_follow_each_other_are_one_run() -> None:
    places = [("a", 0), ("a", 1), ("a", 3), ("b", 4), ("b", 5)]
    assert partition_runs_of(places) == (PartitionRun("a", 0, 2), PartitionRun("a", 3, 1), PartitionRun("b", 4, 2))


def test_a_state_of_an_older_version_goes_on_by_place() -> None:
    """It did not say which partitions it had seen."""
    state = state_with_observation(NOTHING_SEEN, QueueObservation(0, (Offsets(10, 0), Offsets(20, 0)), 1, 1))
    state = state_with_observation(state, observation_of_topics({"m": [(20, 0), (40, 0)]}, 5000))
    assert state.came[-1].rate == 6.0


def test_nothing_is_decided_of_a_queue_that_was_never_seen() -> None:
    with pytest.raises(ValueError, match="never seen"):
        decide_drain_size(NOTHING_SEEN, SERVICE, TARGET, (0, 10))


def sizes_after_bursts(bursts: set[int], observations: int) -> list[int]:
    """Every 5 s; four partitions get 20,000 records each at the observations that are named, read before the next."""
    state, sizes, came = NOTHING_SEEN, [0], 0
    for number in range(observations):
        came += 20_000 * (number in bursts)
        offsets = (Offsets(came, came - 20_000 * (number in bursts)),) * 4
        state = state_with_observation(state, QueueObservation(5000 * (1 + number), offsets, sizes[-1], sizes[-1]))
        wish, state = decide_drain_size(state, SERVICE, TARGET, (0, 10))
        sizes.append(wish.replicas)
    return sizes[1:]


def test_one_stays_as_long_as_it_would_take_to_come_back() -> None:
    """Who came for a backlog leaves with it; the last one goes after start-up and rebalance, 35 s."""
    assert sizes_after_bursts({0}, 11) == [4] + [1] * 6 + [0] * 4


def test_who_was_called_back_too_soon_stays_the_next_time() -> None:
    """A burst every 20 s: they leave once, and then stay, for ten minutes after the last that left too soon."""
    assert sizes_after_bursts(set(range(0, 100, 4)), 100) == [4] + [1] * 3 + [4] * 96
    found = sizes_after_bursts({0, 4, 140}, 150)
    assert found[4:12] == [4] * 7 + [0]
    assert found[140:143] == [4, 1, 1]


@given(
    rows=st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500)), min_size=1, max_size=30),
    least=st.integers(0, 3),
)
def test_always_within_the_bounds(rows: list[tuple[int, int]], least: int) -> None:
    state, latest, committed, replicas = NOTHING_SEEN, 0, 0, 0
    for number, (come, read) in enumerate(rows):
        latest += come
        committed = min(latest, committed + read)
        seen = QueueObservation(5000 * number, (Offsets(latest, committed, 5.0),) * 12, replicas, replicas)
        wish, state = decide_drain_size(state_with_observation(state, seen), SERVICE, TARGET, (least, 9))
        assert least <= wish.replicas <= 9
        replicas = wish.replicas
