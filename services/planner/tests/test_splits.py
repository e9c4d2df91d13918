"""How replicas are split inside one tier."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.core.division.splits import TierStanding, divide_growth, divide_shrinkage
from spillway.model import (
    SPLIT_CHEAPEST,
    SPLIT_EVEN,
    SPLIT_MOST_REMAINING,
    SPLIT_PACK,
    SPLIT_SOONEST,
    SPLIT_SPREAD,
    SPLIT_WEIGHTED,
    SPLITS,
    SPLITS_OF_NODE_GROUPS,
)

NAMES = "abcdefgh"
AMOUNTS = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 60), max_size=8)
ANY_SPLIT = st.sampled_from(SPLITS)
ONE_BY_ONE = st.sampled_from((SPLIT_EVEN, SPLIT_MOST_REMAINING, SPLIT_WEIGHTED, *SPLITS_OF_NODE_GROUPS))


@st.composite
def tier_standings(draw: st.DrawFn) -> TierStanding:
    """Every cluster holds some or none, has room or none, and a weight."""
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=8))
    counts = st.integers(0, 60)
    return TierStanding(
        {name: draw(counts) for name in names},
        {name: draw(counts) for name in names},
        {name: draw(st.integers(1, 9)) for name in names},
    )


GIVEN = {
    "spread: in proportion to room": (SPLIT_SPREAD, 60, {}, {"a": 80, "b": 40}, {"a": 40, "b": 20}),
    "pack: who holds some comes before a larger one": (SPLIT_PACK, 3, {"b": 1}, {"a": 9, "b": 5}, {"b": 3}),
    "pack: the largest room first": (SPLIT_PACK, 7, {}, {"a": 4, "b": 5}, {"b": 5, "a": 2}),
    "pack: equal rooms by name": (SPLIT_PACK, 1, {}, {"b": 5, "a": 5}, {"a": 1}),
    "pack: more than all rooms": (SPLIT_PACK, 20, {}, {"a": 4, "b": 5}, {"a": 4, "b": 5}),
    "pack: no room": (SPLIT_PACK, 3, {"a": 2}, {"a": 0}, {}),
    "even: what is there counts": (SPLIT_EVEN, 4, {"a": 5, "b": 2}, {"a": 9, "b": 9, "c": 9}, {"c": 3, "b": 1}),
    "even: who is full is passed over": (SPLIT_EVEN, 6, {}, {"a": 1, "b": 9, "c": 9}, {"a": 1, "b": 3, "c": 2}),
    "even: ties by name": (SPLIT_EVEN, 2, {}, {"c": 9, "b": 9, "a": 9}, {"a": 1, "b": 1}),
    "most remaining: until rooms are level": (SPLIT_MOST_REMAINING, 7, {}, {"a": 10, "b": 6, "c": 3}, {"a": 6, "b": 1}),
    "most remaining: what is there is no room": (SPLIT_MOST_REMAINING, 2, {"a": 9}, {"a": 5, "b": 3}, {"a": 2}),
    "weighted: towards the weights": (SPLIT_WEIGHTED, 5, {"a": 1}, {"a": 9, "b": 9, "c": 9}, {"a": 2, "b": 2, "c": 1}),
    "weighted: who is full is passed over": (SPLIT_WEIGHTED, 6, {}, {"a": 2, "b": 9, "c": 9}, {"a": 2, "b": 3, "c": 1}),
    "cheapest: the first place first": (
        SPLIT_CHEAPEST,
        7,
        {"a": 4},
        {"a": 9, "b": 3, "c": 2},
        {"c": 2, "b": 3, "a": 2},
    ),
    "soonest: whoever holds some": (SPLIT_SOONEST, 3, {"a": 9, "b": 1}, {"a": 9, "b": 9, "c": 2}, {"c": 2, "b": 1}),
}
WEIGHTS = {"a": 3, "b": 2, "c": 1}


@pytest.mark.parametrize(("split", "replicas", "held", "room", "expected"), GIVEN.values(), ids=GIVEN)
def test_more(split: str, replicas: int, held: dict[str, int], room: dict[str, int], expected: dict[str, int]) -> None:
    weights = {name: WEIGHTS[name] for name in room}
    assert divide_growth(split, replicas, TierStanding(held, room, weights)) == expected


TAKEN = {
    "pack: the smallest first": (SPLIT_PACK, 4, {"a": 3, "b": 9, "c": 3}, {}, {"a": 3, "c": 1}),
    "spread: in proportion to what is there": (SPLIT_SPREAD, 3, {"a": 6, "b": 3}, {}, {"a": 2, "b": 1}),
    "even: from the fullest": (SPLIT_EVEN, 5, {"a": 6, "b": 3, "c": 1}, {}, {"a": 4, "b": 1}),
    "most remaining: where the least is left": (SPLIT_MOST_REMAINING, 3, {"a": 6, "b": 6}, {"a": 0, "b": 9}, {"a": 3}),
    "weighted: who is furthest above its weight": (SPLIT_WEIGHTED, 4, {"a": 3, "b": 5, "c": 2}, {}, {"b": 3, "c": 1}),
    "cheapest: the last place first": (SPLIT_CHEAPEST, 5, {"a": 3, "b": 9, "c": 3}, {}, {"a": 3, "b": 2}),
}


@pytest.mark.parametrize(("split", "surplus", "held", "room", "expected"), TAKEN.values(), ids=TAKEN)
def test_fewer(split: str, surplus: int, held: dict[str, int], room: dict[str, int], expected: dict[str, int]) -> None:
    weights = {name: WEIGHTS[name] for name in held}
    assert divide_shrinkage(split, surplus, held, TierStanding(held, room, weights)) == expected


def test_what_must_stay_counts_though_it_may_not_go() -> None:
    standing = TierStanding({"a": 9, "b": 5}, {})
    assert divide_shrinkage(SPLIT_EVEN, 3, {"a": 1, "b": 5}, standing) == {"a": 1, "b": 2}


@given(ANY_SPLIT, st.integers(0, 600), tier_standings())
def test_what_is_given_is_what_there_is_room_for(split: str, replicas: int, standing: TierStanding) -> None:
    found = divide_growth(split, replicas, standing)
    assert sum(found.values()) == min(replicas, sum(standing.room.values()))
    assert all(0 < count <= standing.room[name] for name, count in found.items())


@given(ANY_SPLIT, st.integers(0, 600), tier_standings(), st.data())
def test_what_is_taken_is_what_can_be_spared(
    split: str, surplus: int, standing: TierStanding, data: st.DataObject
) -> None:
    spare = {name: data.draw(st.integers(0, count)) for name, count in standing.held.items()}
    taken = divide_shrinkage(split, surplus, spare, standing)
    assert sum(taken.values()) == min(surplus, sum(spare.values()))
    assert all(0 < count <= spare[name] for name, count in taken.items())


@given(ANY_SPLIT, st.integers(0, 300), tier_standings())
def test_one_replica_more_leaves_no_cluster_with_fewer(split: str, replicas: int, standing: TierStanding) -> None:
    fewer, more = divide_growth(split, replicas, standing), divide_growth(split, replicas + 1, standing)
    assert all(more.get(name, 0) >= count for name, count in fewer.items())
    kept, left = (
        divide_shrinkage(split, replicas, standing.held, standing),
        divide_shrinkage(split, replicas + 1, standing.held, standing),
    )
    if split != SPLIT_PACK or sum(standing.held.values()) > replicas:
        assert all(left.get(name, 0) >= count for name, count in kept.items())


@given(ANY_SPLIT, st.integers(0, 300), tier_standings(), st.integers(0, 1000))
def test_the_order_of_the_clusters_does_not_matter(
    split: str, replicas: int, standing: TierStanding, seed: int
) -> None:
    names = list(standing.held)
    random.Random(seed).shuffle(names)
    other = TierStanding(
        {name: standing.held[name] for name in names},
        {name: standing.room[name] for name in names},
        {name: standing.weights[name] for name in names},
    )
    assert divide_growth(split, replicas, other) == divide_growth(split, replicas, standing)
    assert divide_shrinkage(split, replicas, other.held, other) == divide_shrinkage(
        split, replicas, standing.held, standing
    )


@given(ONE_BY_ONE, st.integers(0, 80), st.integers(0, 80), tier_standings())
def test_all_at_once_is_what_one_after_the_other_gives(
    split: str, first: int, then: int, standing: TierStanding
) -> None:
    at_once = divide_growth(split, first + then, standing)
    some = divide_growth(split, first, standing)
    after = TierStanding(
        {name: count + some.get(name, 0) for name, count in standing.held.items()},
        {name: count - some.get(name, 0) for name, count in standing.room.items()},
        standing.weights,
    )
    others = divide_growth(split, then, after)
    assert {name: some.get(name, 0) + others.get(name, 0) for name in at_once} == at_once


def test_a_hundred_thousand_replicas_over_a_thousand_clusters() -> None:
    names = [f"c{number:04}" for number in range(1000)]
    standing = TierStanding(
        dict.fromkeys(names, 3), {name: 90 + int(name[1:]) % 37 for name in names}, dict.fromkeys(names, 7)
    )
    for split in SPLITS:
        assert sum(divide_growth(split, 100_000, standing).values()) == 100_000


def test_an_unknown_split_is_an_error() -> None:
    with pytest.raises(ValueError, match="split 'Odd'"):
        divide_growth("Odd", 1, TierStanding({}, {"a": 1}))
