"""A small sample of the suite, on made-up loads; `make scaling` is the whole."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpa.core.own.draining import DrainTarget, ServiceRate
from spillway_scaling.arrivals import load_in_steps, load_with_bursts, random_arrivals
from spillway_scaling.curves import Compared, Point, compare_curves, cost_curve
from spillway_scaling.curves import Run as OneRun
from spillway_scaling.queue import Consumers, Queue
from spillway_scaling.scalers import DEFAULT, TUNED, ByDrainTime, KedaWay
from spillway_scaling.trial import Outcome, Scene, drain_time_scaler, lag_scaler, play_scene

STEADY = Consumers(partitions=4, rate=10.0, spread=0.0, start_s=10.0, rebalance_s=5.0)
NOTHING = [0] * 4


def advance_queue(queue: Queue, seconds: int) -> None:
    for _ in range(seconds):
        queue.advance_second(NOTHING)


def test_a_replica_reads_once_it_has_started_and_partitions_were_handed_over() -> None:
    queue = Queue(Consumers(4, 10.0, 0.0, 10.0, 5.0), Random(1))
    queue.scale_group(1)
    queue.advance_second([100] * 4)
    advance_queue(queue, 12)
    assert queue.reading_replicas == 1
    assert sum(one.committed for one in queue.offsets()) == 0
    advance_queue(queue, 7)
    assert 0 < sum(one.committed for one in queue.offsets()) <= 80


def test_more_replicas_than_partitions_read_no_faster() -> None:
    read = []
    for replicas in (4, 8):
        queue = Queue(STEADY, Random(1))
        queue.scale_group(replicas)
        advance_queue(queue, 30)
        queue.advance_second([1000] * 4)
        advance_queue(queue, 9)
        read.append(sum(one.committed for one in queue.offsets()))
    assert read == [400, 400]


def test_an_even_queue_of_four_is_read_by_three_as_fast_as_by_two() -> None:
    drained = []
    for replicas in (2, 3, 4):
        queue = Queue(STEADY, Random(1))
        queue.scale_group(replicas)
        advance_queue(queue, 30)
        queue.advance_second([100] * 4)
        while any(queue.partition_lag(partition) > 0 for partition in range(4)):
            queue.advance_second(NOTHING)
        drained.append(queue.now_s - 30)
    assert drained == [20, 20, 10]


def test_starting_replicas_leave_first_and_disturb_nobody() -> None:
    queue = Queue(STEADY, Random(1))
    queue.scale_group(2)
    advance_queue(queue, 30)
    queue.scale_group(4)
    queue.advance_second([100] * 4)
    queue.scale_group(2)
    before = sum(one.committed for one in queue.offsets())
    queue.advance_second(NOTHING)
    assert (queue.reading_replicas, sum(one.committed for one in queue.offsets()) - before) == (2, 20)
    assert queue.busy_left == 0


@given(rows=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 6)), min_size=1, max_size=60), seed=st.integers(0, 9))
def test_records_are_read_in_order_and_once(rows: list[tuple[int, int]], seed: int) -> None:
    """Nothing is read that was not written; what is unread has waited since it came."""
    queue, written = Queue(Consumers(3, 7.0, 0.3, 4.0, 2.0), Random(seed)), 0
    for come, replicas in rows:
        before = [one.committed for one in queue.offsets()]
        waited_s = queue.advance_second([come, 0, come])
        queue.scale_group(replicas)
        written += 2 * come
        offsets = queue.offsets()
        assert sum(one.latest for one in offsets) == written
        assert all(was <= one.committed <= one.latest for was, one in zip(before, offsets, strict=True))
        assert waited_s <= queue.now_s
        lags = [queue.partition_lag(partition) > 1e-6 for partition in range(3)]
        assert [lag for lag, one in zip(lags, offsets, strict=True) if one.waited_s > 0 and not lag] == []
        assert not lags[1]


def test_arrivals_are_the_same_for_every_scaler() -> None:
    load = load_with_bursts("bursts", 3, 120.0, base=0.5, hours=1)
    assert list(random_arrivals(load, 5, 20.0, 7)) == list(random_arrivals(load, 5, 20.0, 7))


def make_outcome(late: float, cost: float) -> Outcome:
    return Outcome(late, cost, 0, 0, 0.0)


def test_what_is_compared_is_the_edge_of_each_curve() -> None:
    runs = [
        (OneRun("s", "ours", (1.0,), 1), make_outcome(5, 10)),
        (OneRun("s", "ours", (2.0,), 1), make_outcome(6, 11)),
        (OneRun("s", "ours", (3.0,), 1), make_outcome(0, 20)),
        (OneRun("s", "default", (0.1,), 1), make_outcome(10, 12)),
        (OneRun("s", "default", (0.2,), 1), make_outcome(0, 40)),
    ]
    mine, other = cost_curve(runs, "s", "ours"), cost_curve(runs, "s", "default")
    assert [point.setting for point in mine] == [(1.0,), (3.0,)]
    found = compare_curves(mine, other)
    assert [(one.is_lateness_halved, one.saved_share) for one in found] == [(True, pytest.approx(1 / 6)), (True, 0.5)]
    nothing = Compared(Point((0.0,), 3, 1, 0, 0), None, None)
    assert (nothing.is_lateness_halved, nothing.saved_share) == (False, None)


def test_both_scalers_come_from_zero_and_return_to_it() -> None:
    scene = Scene(load_with_bursts("once", 4, 120.0, base=0.0, hours=1), Consumers(partitions=8))
    for scaler in (drain_time_scaler(scene, 0.7, 0.1, 1), lag_scaler(scene, DEFAULT, 0.1, 1)):
        queue, sizes = Queue(scene.truth, Random(1)), []
        for come in random_arrivals(scene.load, 8, 100.0, 1):
            queue.advance_second(come)
            scaler.scale_queue(queue)
            sizes.append(queue.replicas)
        assert (sizes[0], max(sizes) > 1) == (0, True)
        assert 0 in sizes[sizes.index(max(sizes)) :]


@pytest.mark.parametrize("way", [DEFAULT, TUNED], ids=lambda way: way.name)
def test_who_is_never_late_costs_less_than_by_lag(way: KedaWay) -> None:
    """On steps of the load, beside the lag threshold with which that way is never late either."""
    scene = Scene(load_in_steps("steps", 1, hours=1), Consumers())
    mine, beside = (
        play_scene(scene, drain_time_scaler(scene, 0.85, 0.1, 1), 1),
        play_scene(scene, lag_scaler(scene, way, 0.05, 1), 1),
    )
    assert mine.late_minutes == beside.late_minutes == 0
    assert mine.core_hours < 0.9 * beside.core_hours
    assert mine.changes < beside.changes


def test_a_wrong_guess_of_the_rate_is_forgotten() -> None:
    """Five times too high: the first replicas do not keep up, and what they read says so."""
    scene = Scene(load_in_steps("steps", 5, hours=1), Consumers(), guess=5.0)
    scaler = ByDrainTime(ServiceRate(500.0, 30.0, 5.0), DrainTarget(100.0))
    assert play_scene(scene, scaler, 1).late_minutes < 3


def test_sizes_that_alternate_cost_less_and_are_as_seldom_late() -> None:
    """On steps of the load, half of which ask for more than half of the partitions and not for all."""
    scene = Scene(load_in_steps("steps", 5, hours=2), Consumers())
    resting = play_scene(scene, drain_time_scaler(scene, 0.7, 0.25, 5), 5)
    alternating = play_scene(scene, drain_time_scaler(scene, 0.7, 0.25, 5, alternates=True), 5)
    assert resting.late_minutes == alternating.late_minutes == 0
    assert alternating.core_hours < 0.95 * resting.core_hours
    assert alternating.changes > resting.changes
