"""What is decided on late, doubled and disordered samples, with one of ten clusters lost."""

import pytest

from spillway_scaling.faults import Faults, errors_by_way


@pytest.mark.parametrize("uneven", [0.3, 1.0, 1.5], ids=["idle", "even", "busy"])
def test_a_lost_cluster_takes_nothing_that_is_needed_and_adds_nothing_that_is_not(uneven: float) -> None:
    """Whether its pods are idler or busier than the others, which nobody can see."""
    found = errors_by_way(Faults(uneven=uneven, lost=range(60, 140)), seed=3, steps=160)
    mine = found["ours, one lost"]
    assert mine.steps == 80
    assert (mine.taken, mine.added) == (0, 0)


def test_without_faults_it_asks_for_what_the_all_knowing_one_does() -> None:
    found = errors_by_way(Faults(0.0, 0.0, range(0)), seed=3, steps=60)["ours, all clusters"]
    assert (found.steps, found.exact) == (55, 55)


def test_samples_out_of_order_do_not_take_the_place_of_newer_ones() -> None:
    """All doubled, some of them after newer ones, none late at first: as without faults."""
    found = errors_by_way(Faults(0.0, 1.0, range(0)), seed=3, steps=60)
    assert found["ours, all clusters"].exact == 55
    assert found["karmada, all clusters"].exact < 55
