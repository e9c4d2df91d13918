"""Loops come to rest: constant load and capacity, with moves, partial placement, headroom, lending, and a queue."""

from itertools import pairwise

import pytest

from hpa.core.kubernetes.evaluating import CONTROLLER, EVENT
from spillway_scaling.damping import (
    RESTS_AFTER,
    STEP_MS,
    TARGET_PERCENT,
    Damping,
    last_decision_step,
    last_queue_change_s,
    random_ground,
    sizes_after_steps,
)
from spillway_scaling.lending import LENDING_RESTS_AFTER, last_lending_step, play_lending, random_lent_ground


@pytest.mark.parametrize("seed", range(12))
def test_nothing_is_decided_after_a_stated_number_of_steps(seed: int) -> None:
    assert last_decision_step(random_ground(seed), seed, steps=RESTS_AFTER + 60) <= RESTS_AFTER


@pytest.mark.parametrize("mode", [EVENT, CONTROLLER])
@pytest.mark.parametrize("seed", [32, 43, 296])
def test_without_a_window_as_long_as_a_new_pod_takes_to_count_it_may_decide_for_ever(seed: int, mode: str) -> None:
    """Kubernetes' arithmetic: who just came relieves the others, and is not counted when these ask for fewer."""
    sizes = sizes_after_steps(random_ground(seed), seed, damping=Damping(0, mode=mode))[RESTS_AFTER:]
    assert len(set(sizes)) == 2
    assert all(before != after for before, after in pairwise(sizes))
    counted = Damping(2 * STEP_MS, mode=mode)
    assert last_decision_step(random_ground(seed), seed, RESTS_AFTER + 60, counted) <= RESTS_AFTER


def test_a_tolerance_below_one_percent_of_use_may_decide_for_ever() -> None:
    """Use is in whole percents, cut off: at a size it may look lower than it is, and at the one below it higher."""
    below = Damping(tolerance=0.01)
    assert below.tolerance < 1 / TARGET_PERCENT < 0.017
    assert last_decision_step(random_ground(198), 198, damping=below) > RESTS_AFTER + 60
    assert last_decision_step(random_ground(198), 198, damping=Damping(tolerance=0.017)) <= RESTS_AFTER


@pytest.mark.parametrize("work", [0.3, 1, 2.5, 7, 14, 20])
def test_a_queue_with_constant_arrivals_comes_to_rest(work: float) -> None:
    """Within five minutes, learning the rate on the way."""
    assert 0 < last_queue_change_s(work, 1, seconds=1200) <= 300


def test_nothing_is_decided_lent_or_recalled_after_a_stated_number_of_steps() -> None:
    """With moves, partial placement, headroom and lending all on; each of them happens."""
    found = [play_lending(random_lent_ground(seed), seed, LENDING_RESTS_AFTER + 60) for seed in range(24)]
    assert all(one.last_change_step <= LENDING_RESTS_AFTER for one in found)
    assert any(one.lent_at for one in found)
    assert any(one.waiting for one in found)
    assert any(one.lent_at and one.recalled_at and max(one.recalled_at) > min(one.lent_at) for one in found)
    assert any(len(set(one.offline)) > 1 for one in found)


def test_without_a_window_lending_does_not_bring_it_to_rest_either() -> None:
    assert last_lending_step(55, Damping(0)) > LENDING_RESTS_AFTER
    assert last_lending_step(55) <= LENDING_RESTS_AFTER
