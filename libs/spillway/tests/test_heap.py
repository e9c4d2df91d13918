"""When garbage is looked for."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from spillway.running.garbage_collection import (
    ALL_SECONDS,
    COLLECTED_AFTER,
    NEW_OBJECTS_MAX,
    delayed_collections,
    set_aside_heap,
    survivors_set_aside,
)


class Circle:
    """Freed by no last reference."""

    def __init__(self) -> None:
        self.itself = self


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
    with delayed_collections():
        kept += [[index] for index in range(NEW_OBJECTS_MAX // 2)]
        assert gc.get_stats()[0]["collections"] == youngest
        kept += [[index] for index in range(NEW_OBJECTS_MAX)]
        assert gc.get_stats()[0]["collections"] > youngest
    assert gc.get_threshold() == COLLECTED_AFTER


@pytest.mark.usefixtures("as_before")
def test_a_step_that_fails_leaves_the_thresholds_as_they_were() -> None:
    gc.set_threshold(*COLLECTED_AFTER)
    with pytest.raises(ValueError, match="step"), delayed_collections():
        raise ValueError("step")
    assert gc.get_threshold() == COLLECTED_AFTER


@pytest.mark.usefixtures("as_before")
def test_what_outlives_a_full_collection_is_not_looked_at_by_the_next_one() -> None:
    kept = [[index] for index in range(1000)]
    with survivors_set_aside(lambda: 0.0):
        gc.collect()
        assert gc.get_freeze_count() > len(kept)
        assert not any(found is kept for found in gc.get_objects())
        new = Circle()
        was_there = weakref.ref(new)
        del new
        gc.collect()
        assert was_there() is None
    assert gc.get_freeze_count() == 0


@pytest.mark.usefixtures("as_before")
def test_what_was_set_aside_and_died_in_a_cycle_is_found_once_all_is_looked_at() -> None:
    now = 0.0
    with survivors_set_aside(lambda: now):
        circle = Circle()
        was_there = weakref.ref(circle)
        gc.collect()
        del circle
        gc.collect()
        assert was_there() is not None
        now = ALL_SECONDS
        gc.collect()
        assert was_there() is None
        assert gc.get_freeze_count() > 0


@pytest.mark.usefixtures("as_before")
def test_collections_of_new_objects_alone_set_nothing_aside() -> None:
    with survivors_set_aside(lambda: 0.0):
        gc.collect(1)
        assert gc.get_freeze_count() == 0
