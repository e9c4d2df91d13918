"""When garbage is looked for."""

import gc
from collections.abc import Iterator

import pytest

from spillway.running.heap import COLLECTED_AFTER, NEW_OBJECTS_MAX, set_aside_heap, uncollected


@pytest.fixture
def as_before() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


@pytest.mark.usefixtures("as_before")
def test_what_was_read_is_no_more_collected_until_the_next_state_is_read() -> None:
    state = [[index] for index in range(1000)]
    set_aside_heap(loaded=True)
    assert gc.get_freeze_count() > len(state)
    assert gc.get_threshold() == COLLECTED_AFTER
    assert not any(found is state for found in gc.get_objects())
    set_aside_heap(loaded=False)
    assert gc.get_freeze_count() == 0
    assert any(found is state for found in gc.get_objects())


@pytest.mark.usefixtures("as_before")
def test_while_something_is_decided_only_very_many_new_objects_are_looked_at() -> None:
    gc.set_threshold(*COLLECTED_AFTER)
    gc.collect()
    youngest, kept = gc.get_stats()[0]["collections"], []
    with uncollected():
        kept += [[index] for index in range(NEW_OBJECTS_MAX // 2)]
        assert gc.get_stats()[0]["collections"] == youngest
        kept += [[index] for index in range(NEW_OBJECTS_MAX)]
        assert gc.get_stats()[0]["collections"] > youngest
    assert gc.get_threshold() == COLLECTED_AFTER


@pytest.mark.usefixtures("as_before")
def test_a_step_that_fails_leaves_the_thresholds_as_they_were() -> None:
    gc.set_threshold(*COLLECTED_AFTER)
    with pytest.raises(ValueError, match="step"), uncollected():
        raise ValueError("step")
    assert gc.get_threshold() == COLLECTED_AFTER
