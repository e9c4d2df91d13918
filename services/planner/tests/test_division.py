"""Seats by votes."""

from hypothesis import given
from hypothesis import strategies as st

from planner.core.division.votes import apportion_seats

AMOUNTS = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 60), max_size=8)


def webster_seat_by_seat(seats: int, votes: dict[str, int]) -> dict[str, int]:
    """One seat at a time to the largest votes / (2·seats + 1), the first by name among equals."""
    given: dict[str, int] = {}
    parties = sorted(name for name, count in votes.items() if count)
    for _ in range(seats if parties else 0):
        best = parties[0]
        for name in parties[1:]:
            if votes[name] * (2 * given.get(best, 0) + 1) > votes[best] * (2 * given.get(name, 0) + 1):
                best = name
        given[best] = given.get(best, 0) + 1
    return given


@given(AMOUNTS, st.integers(0, 300))
def test_apportion_is_webster_one_seat_at_a_time(votes: dict[str, int], seats: int) -> None:
    assert apportion_seats(seats, votes) == webster_seat_by_seat(seats, votes)


@given(AMOUNTS, st.integers(0, 200))
def test_one_more_seat_takes_none_away(votes: dict[str, int], seats: int) -> None:
    before, after = apportion_seats(seats, votes), apportion_seats(seats + 1, votes)
    assert all(after.get(name, 0) >= count for name, count in before.items())


@given(AMOUNTS, st.data())
def test_nobody_gets_more_than_its_votes(votes: dict[str, int], data: st.DataObject) -> None:
    seats = data.draw(st.integers(0, sum(votes.values())))
    given_seats = apportion_seats(seats, votes)
    assert sum(given_seats.values()) == seats
    assert all(count <= votes[name] for name, count in given_seats.items())


@given(AMOUNTS, st.integers(0, 200), st.randoms(use_true_random=False))
def test_the_order_of_the_parties_does_not_matter(votes: dict[str, int], seats: int, random: st.DrawFn) -> None:
    names = sorted(votes, reverse=True)
    assert apportion_seats(seats, {name: votes[name] for name in names}) == apportion_seats(seats, votes)


@given(st.lists(st.integers(1, 10**12), min_size=1, max_size=5), st.integers(0, 400))
def test_the_fast_start_is_exact_for_large_votes(amounts: list[int], seats: int) -> None:
    votes = {f"p{index}": amount for index, amount in enumerate(amounts)}
    assert apportion_seats(seats, votes) == webster_seat_by_seat(seats, votes)


def test_a_hundred_thousand_seats_over_a_thousand_parties_come_to_the_sum() -> None:
    votes = {f"p{index:04}": 90 + index % 37 for index in range(1000)}
    given_seats = apportion_seats(100_000, votes)
    assert sum(given_seats.values()) == 100_000
    assert all(given_seats[name] <= count for name, count in votes.items())
