"""What a standby service does as a process, beside what test_standby.py has of it as a part."""

import gc
from collections.abc import Iterator

import pytest

from spillway.serving import COLLECTED_AFTER, set_aside_heap


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
