"""Loops come to rest: constant load and capacity, with moves, partial placement, headroom, and a queue."""

import pytest

from .spillway_scaling.damping import RESTS_AFTER, last_change_of_queue, last_decision, made_up


@pytest.mark.parametrize("seed", range(12))
def test_nothing_is_decided_after_a_stated_number_of_steps(seed: int) -> None:
    assert last_decision(made_up(seed), seed, steps=RESTS_AFTER + 60) <= RESTS_AFTER


@pytest.mark.parametrize("work", [0.3, 1, 2.5, 7, 14, 20])
def test_a_queue_with_constant_arrivals_comes_to_rest(work: float) -> None:
    """Within five minutes, learning the rate on the way."""
    assert 0 < last_change_of_queue(work, 1, seconds=1200) <= 300
