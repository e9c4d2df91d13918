"""The list of who waits: nobody is left out of a gain, whatever was tried in between."""

from hypothesis import given
from hypothesis import strategies as st

from planner.core.feasibility.room import Room
from planner.core.moving.waiting import Rooms, WaitingList
from spillway.model import Shape

SHAPE = Shape("shop", (("cpu", 1000), ("pods", 1)))
FIRST, SECOND = ("shop", "first"), ("shop", "second")


def rooms(certain: int) -> Rooms:
    return (Room(certain, certain, "cpu", when_empty=True),)


def listed(*keys: tuple[str, str]) -> WaitingList:
    waiting = WaitingList()
    for key in keys:
        waiting.put(key, SHAPE)
    waiting.touch("own-1")
    return waiting


def test_room_that_another_takes_and_gives_back_between_two_looks_is_a_gain() -> None:
    """Seed 197: the first takes all, the second finds none; when it is back at the next look, the second is due."""
    waiting = listed(FIRST, SECOND)
    waiting.look(lambda _cluster, _shape: rooms(4))
    assert waiting.due(9) == [FIRST, SECOND]
    waiting.tried(FIRST, lambda _cluster, _shape: rooms(4))
    waiting.touch("own-1")
    waiting.tried(SECOND, lambda _cluster, _shape: rooms(0))
    assert waiting.due(9) == []
    waiting.touch("own-1")
    waiting.look(lambda _cluster, _shape: rooms(4))
    assert SECOND in waiting.due(9)


def test_a_gain_that_one_try_sees_first_is_not_hidden_from_the_others() -> None:
    waiting = listed(FIRST, SECOND)
    waiting.look(lambda _cluster, _shape: rooms(0))
    for key in (FIRST, SECOND):
        waiting.done(key)
    waiting.touch("own-1")
    waiting.tried(FIRST, lambda _cluster, _shape: rooms(2))
    waiting.look(lambda _cluster, _shape: rooms(2))
    assert waiting.due(9) == [SECOND]


def test_a_higher_priority_is_due_first_then_who_has_waited_longest() -> None:
    waiting = listed(FIRST, SECOND)
    third = ("shop", "third")
    waiting.put(third, SHAPE, priority=5)
    waiting.look(lambda _cluster, _shape: rooms(4))
    assert waiting.due(9) == [third, FIRST, SECOND]
    waiting.put(SECOND, SHAPE, priority=9)
    assert waiting.due(2) == [SECOND, third]


@given(st.lists(st.tuples(st.sampled_from(("look", "first", "second")), st.integers(0, 3)), max_size=12))
def test_who_was_tried_on_less_than_there_is_becomes_due(steps: list[tuple[str, int]]) -> None:
    """Whatever happens in whatever order: after a look, each one was tried on at least this room, or is due."""
    waiting = listed(FIRST, SECOND)
    tried_on = {FIRST: 0, SECOND: 0}
    for what, certain in steps:
        waiting.touch("own-1")
        if what == "look":
            waiting.look(lambda _cluster, _shape, certain=certain: rooms(certain))
        else:
            key = FIRST if what == "first" else SECOND
            waiting.tried(key, lambda _cluster, _shape, certain=certain: rooms(certain))
            tried_on[key] = certain
    waiting.touch("own-1")
    waiting.look(lambda _cluster, _shape: rooms(2))
    due = waiting.due(9)
    assert [key for key, certain in tried_on.items() if certain < 2 and key not in due] == []
