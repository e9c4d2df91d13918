"""How many places a holder may have, of places that many holders share."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.places import SharedPlaces, leaves_as_much_free, may_take_places

ROOM = (
    # own, taken, asked, for each free, and whether they may be taken: of 100 places
    pytest.param(0, 0, 100, 1.0, True, id="all are free: all of them"),
    pytest.param(0, 0, 101, 1.0, False, id="more than there are"),
    pytest.param(49, 49, 1, 1.0, True, id="as many as are left free"),
    pytest.param(50, 50, 1, 1.0, False, id="more than are left free"),
    pytest.param(49, 50, 1, 1.0, False, id="one more than would be left free"),
    pytest.param(0, 99, 1, 1.0, True, id="the first needs a place alone"),
    pytest.param(0, 100, 1, 1.0, False, id="there is none"),
    pytest.param(0, 99, 2, 1.0, False, id="more than one are not the first"),
    pytest.param(0, 50, 25, 1.0, True, id="half of what others left"),
    pytest.param(0, 50, 26, 1.0, False, id="more than half of what others left"),
    pytest.param(1, 75, 12, 1.0, True, id="with what it has"),
    pytest.param(1, 75, 13, 1.0, False, id="too many with what it has"),
    pytest.param(89, 89, 1, 9.0, True, id="nine for each free one"),
    pytest.param(90, 90, 1, 9.0, False, id="more than nine for each free one"),
)


@pytest.mark.parametrize(("own", "taken", "asked", "for_each_free", "expected"), ROOM)
def test_who_may_take_places(own: int, taken: int, asked: int, for_each_free: float, expected: bool) -> None:
    assert may_take_places(own, taken, asked, 100, for_each_free) == expected


@pytest.mark.parametrize(
    ("own", "taken", "asked", "may"),
    [
        pytest.param(0, 0, 4, True, id="half of all"),
        pytest.param(0, 0, 5, False, id="more than half"),
        pytest.param(3, 3, 1, True, id="one more, up to half"),
        pytest.param(4, 4, 1, False, id="one more than half"),
        pytest.param(0, 4, 2, True, id="half of what another left"),
        pytest.param(0, 4, 3, False, id="more than half of it"),
    ],
)
def test_what_leaves_as_much_free(own: int, taken: int, asked: int, may: bool) -> None:
    assert leaves_as_much_free(own, taken, asked, 8) is may


@given(st.integers(1, 40), st.lists(st.tuples(st.booleans(), st.sampled_from("abcd")), max_size=200))
def test_a_place_that_is_given_back_is_free_again(most: int, steps: list[tuple[bool, str]]) -> None:
    """A holder is refused a place only while it has half of what the others leave, or while none is free."""
    places, own = SharedPlaces(most, 1.0), Counter[str]()
    for takes, holder in steps:
        if not takes and own[holder]:
            places.give_back_place(holder)
            own[holder] -= 1
        elif takes and places.take_place(holder):
            own[holder] += 1
            assert own[holder] <= max(1, most // 2)
        elif takes:
            others = own.total() - own[holder]
            assert own.total() == most or (own[holder] and 2 * (own[holder] + 1) > most - others)
    for holder in own.elements():
        places.give_back_place(holder)
    assert [places.take_place("late") for _ in range(most // 2)] == [True] * (most // 2)
