"""How replicas are split inside one tier."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.core.division import apportion, divide, shrink
from spillway.model import SPLIT_PACK, SPLIT_SPREAD

AMOUNTS = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 60), max_size=8)
SPLITS = st.sampled_from((SPLIT_SPREAD, SPLIT_PACK))


def webster(seats: int, votes: dict[str, int]) -> dict[str, int]:
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
@settings(max_examples=150)
def test_apportion_is_webster_one_seat_at_a_time(votes: dict[str, int], seats: int) -> None:
    assert apportion(seats, votes) == webster(seats, votes)


@given(AMOUNTS, st.integers(0, 200))
@settings(max_examples=100)
def test_one_more_seat_takes_none_away(votes: dict[str, int], seats: int) -> None:
    before, after = apportion(seats, votes), apportion(seats + 1, votes)
    assert all(after.get(name, 0) >= count for name, count in before.items())


@given(AMOUNTS, st.data())
@settings(max_examples=100)
def test_nobody_gets_more_than_its_votes(votes: dict[str, int], data: st.DataObject) -> None:
    seats = data.draw(st.integers(0, sum(votes.values())))
    given_seats = apportion(seats, votes)
    assert sum(given_seats.values()) == seats
    assert all(count <= votes[name] for name, count in given_seats.items())


@given(AMOUNTS, st.integers(0, 200), st.randoms(use_true_random=False))
@settings(max_examples=50)
def test_the_order_of_the_parties_does_not_matter(votes: dict[str, int], seats: int, random: st.DrawFn) -> None:
    names = sorted(votes, reverse=True)
    assert apportion(seats, {name: votes[name] for name in names}) == apportion(seats, votes)


@given(st.lists(st.integers(1, 10**12), min_size=1, max_size=5), st.integers(0, 400))
@settings(max_examples=60)
def test_the_fast_start_is_exact_for_large_votes(amounts: list[int], seats: int) -> None:
    votes = {f"p{index}": amount for index, amount in enumerate(amounts)}
    assert apportion(seats, votes) == webster(seats, votes)


def test_a_hundred_thousand_seats_over_a_thousand_parties_come_to_the_sum() -> None:
    votes = {f"p{index:04}": 90 + index % 37 for index in range(1000)}
    given_seats = apportion(100_000, votes)
    assert sum(given_seats.values()) == 100_000
    assert all(given_seats[name] <= count for name, count in votes.items())


PACKS = {
    "the cluster that holds some comes before a larger one": (3, {"a": 9, "b": 5}, {"b": 1}, {"b": 3}),
    "the largest room first": (7, {"a": 4, "b": 5}, {}, {"b": 5, "a": 2}),
    "equal rooms by name": (1, {"b": 5, "a": 5}, {}, {"a": 1}),
    "more than all rooms": (20, {"a": 4, "b": 5}, {}, {"a": 4, "b": 5}),
    "no room": (3, {"a": 0}, {"a": 2}, {}),
}


@pytest.mark.parametrize(("replicas", "rooms", "held", "expected"), PACKS.values(), ids=PACKS)
def test_pack_fills_in_the_documented_order(
    replicas: int, rooms: dict[str, int], held: dict[str, int], expected: dict[str, int]
) -> None:
    assert divide(SPLIT_PACK, replicas, rooms, held) == expected


def test_spread_shares_in_proportion_to_room() -> None:
    assert divide(SPLIT_SPREAD, 60, {"a": 80, "b": 40}, {}) == {"a": 40, "b": 20}


def test_pack_empties_the_smallest_first() -> None:
    assert shrink(SPLIT_PACK, 4, {"a": 3, "b": 9, "c": 3}) == {"a": 3, "c": 1}


@given(SPLITS, st.integers(0, 600), AMOUNTS, AMOUNTS)
@settings(max_examples=150)
def test_what_is_given_is_what_there_is_room_for(
    split: str, replicas: int, rooms: dict[str, int], held: dict[str, int]
) -> None:
    given_replicas = divide(split, replicas, rooms, held)
    assert sum(given_replicas.values()) == min(replicas, sum(rooms.values()))
    assert all(0 < count <= rooms[name] for name, count in given_replicas.items())


@given(SPLITS, st.integers(0, 600), AMOUNTS)
@settings(max_examples=150)
def test_what_is_taken_is_what_is_held(split: str, surplus: int, held: dict[str, int]) -> None:
    taken = shrink(split, surplus, held)
    assert sum(taken.values()) == min(surplus, sum(held.values()))
    assert all(0 < count <= held[name] for name, count in taken.items())


def test_an_unknown_split_is_an_error() -> None:
    with pytest.raises(ValueError, match="split 'Even'"):
        divide("Even", 1, {"a": 1}, {})
