"""Where a caller's next request starts, by what was served before."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.running.caller_turns import LEAST_SECONDS, CallerTurns

STARTS = (
    # What was served: caller, requests, seconds. Then who has the next turn of a, b and a caller that is new.
    pytest.param([], ["a", "b", "new"], id="nobody was served: all start now"),
    pytest.param([("a", 1, 0.3)], ["b", "new", "a"], id="who was served starts later"),
    pytest.param([("a", 1, 0.3), ("b", 1, 0.1)], ["new", "b", "a"], id="who took longer starts latest"),
    pytest.param([("a", 2, 0.0), ("b", 1, 0.0)], ["new", "b", "a"], id="requests that take no time count by number"),
    pytest.param([("a", 1, 0.3), ("b", 1, 0.1), ("b", 1, 0.3)], ["new", "a", "b"], id="turns are remembered"),
)


@pytest.mark.parametrize(("served", "order"), STARTS)
def test_whose_request_starts_first(served: list[tuple[str, int, float]], order: list[str]) -> None:
    turns = CallerTurns()
    for caller, requests, seconds in served:
        turns.note_served_requests(caller, requests, seconds)
    assert sorted(("a", "b", "new"), key=lambda caller: (turns.next_start(caller), caller)) == order


def test_a_request_is_expected_to_take_as_long_as_the_last_one_of_its_caller() -> None:
    turns = CallerTurns()
    assert turns.expected_seconds("a") == LEAST_SECONDS
    turns.note_served_requests("a", 4, 0.2)
    assert (turns.expected_seconds("a"), turns.expected_seconds("b")) == (0.05, LEAST_SECONDS)


SERVED = st.lists(
    st.tuples(st.sampled_from("abcd"), st.integers(1, 5), st.sampled_from((0.0, 0.003, 0.5))), max_size=60
)


@given(SERVED)
def test_who_always_takes_the_earliest_start_gives_each_caller_the_same_time(
    costs: list[tuple[str, int, float]],
) -> None:
    """Among callers who always have requests, by at most one run of each."""
    turns, taken = CallerTurns(), dict.fromkeys("abcd", 0.0)
    longest = max((max(seconds, requests * LEAST_SECONDS) for _, requests, seconds in costs), default=0.0)
    for _, requests, seconds in costs:
        caller = min(taken, key=lambda one: (turns.next_start(one), one))
        turns.note_served_requests(caller, requests, seconds)
        taken[caller] += max(seconds, requests * LEAST_SECONDS)
        assert max(taken.values()) - min(taken.values()) <= 2 * longest + 1e-9


@given(SERVED)
def test_what_is_forgotten_changes_no_start(served: list[tuple[str, int, float]]) -> None:
    forgets, keeps = CallerTurns(), CallerTurns()
    for caller, requests, seconds in served:
        forgets.note_served_requests(caller, requests, seconds)
        keeps.note_served_requests(caller, requests, seconds)
        forgets.forget_past_ends()
        assert [forgets.next_start(one) for one in "abcd"] == [keeps.next_start(one) for one in "abcd"]
