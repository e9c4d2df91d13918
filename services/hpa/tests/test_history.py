"""Steps answer what all instants would: windows over steps equal windows over a list of every instant's number."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpa.core.kubernetes.behavior import ReplicaBounds, limit_replicas_by_behavior, with_size_change
from hpa.core.kubernetes.history import (
    Recommendation,
    ScaleChange,
    ScalingHistory,
    extend_newest_step,
    highest_since,
    lowest_since,
    with_change,
    with_recommendation,
)
from hpa.core.kubernetes.policy import BY_PERCENT, BY_PODS, Behavior, ScalingPolicy, ScalingRules

NUMBERS = st.lists(st.integers(0, 6), min_size=1, max_size=60)
WINDOWS = st.integers(0, 20)


@given(numbers=NUMBERS, window=WINDOWS, narrower=WINDOWS)
def test_extremes_over_steps_are_those_over_every_instant(numbers: list[int], window: int, narrower: int) -> None:
    """At each instant, for the window that is kept and any narrower one; and never more steps than numbers can bind."""
    narrower = min(narrower, window)
    steps: tuple[Recommendation, ...] = ()
    for now, number in enumerate(numbers):
        steps = with_recommendation(steps, number, now, window)
        for width in (window, narrower):
            inside = numbers[max(0, now - width + 1) : now + 1]
            assert highest_since(steps, now - width, number) == max([*inside, number])
            assert lowest_since(steps, now - width, number) == min([*inside, number])
        assert len(steps) <= 2 * len(set(numbers))


@given(changes=st.lists(st.tuples(st.integers(1, 9), st.integers(0, 6)), min_size=1, max_size=20), window=WINDOWS)
def test_a_number_that_holds_until_the_next_event_counts_at_every_instant(
    changes: list[tuple[int, int]], window: int
) -> None:
    """Told only at its changes, the steps say what a list of every instant says."""
    steps: tuple[Recommendation, ...] = ()
    numbers: list[int] = []
    for gap, number in changes:
        numbers += [numbers[-1] if numbers else number] * (gap if numbers else 0)
        now = len(numbers)
        numbers.append(number)
        steps = with_recommendation(extend_newest_step(steps, now - 1), number, now, window)
        inside = numbers[max(0, now - window + 1) : now + 1]
        assert highest_since(steps, now - window, number) == max([*inside, number])
        assert lowest_since(steps, now - window, number) == min([*inside, number])


RULES = st.builds(
    ScalingRules,
    policies=st.lists(
        st.builds(ScalingPolicy, st.sampled_from([BY_PODS, BY_PERCENT]), st.integers(1, 200), st.integers(1, 12)),
        min_size=1,
        max_size=3,
    ).map(tuple),
    select=st.sampled_from(["max", "min", "disabled"]),
    stabilization_ms=st.integers(0, 20),
)


@given(rules=st.tuples(RULES, RULES), wanted=st.lists(st.integers(0, 40), min_size=1, max_size=40))
def test_what_behaviour_allows_keeps_its_promises(rules: tuple[ScalingRules, ScalingRules], wanted: list[int]) -> None:
    """Within the bounds, in the direction asked for, and not at all where a direction is disabled."""
    behavior, bounds, current, history = Behavior(*rules), ReplicaBounds(1, 30), 10, ScalingHistory()
    for now, desired in enumerate(wanted):
        left = limit_replicas_by_behavior(current, desired, bounds, behavior, history, now)
        assert min(current, desired) <= left.stabilized <= max(current, desired)
        assert min(current, left.stabilized, 30) <= left.replicas <= max(current, left.stabilized)
        assert left.replicas <= current or rules[0].select != "disabled"
        assert left.replicas >= current or rules[1].select != "disabled"
        history = with_size_change(
            ScalingHistory(left.steps, history.ups, history.downs), behavior, current, left.replicas, now
        )
        current = left.replicas


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param((), (ScaleChange(2, 100),), id="the first"),
        pytest.param((ScaleChange(1, 95),), (ScaleChange(1, 95), ScaleChange(2, 100)), id="beside one that counts"),
        pytest.param((ScaleChange(1, 90),), (ScaleChange(1, 90), ScaleChange(2, 100)), id="as old as the period"),
        pytest.param((ScaleChange(1, 89),), (ScaleChange(2, 100),), id="in the place of an older one"),
        pytest.param(
            (ScaleChange(1, 80), ScaleChange(3, 85)),
            (ScaleChange(1, 80, outdated=True), ScaleChange(2, 100)),
            id="of two that are older, in the place of the last",
        ),
    ],
)
def test_a_change_takes_the_place_of_an_outdated_one(
    changes: tuple[ScaleChange, ...], expected: tuple[ScaleChange, ...]
) -> None:
    assert with_change(changes, 2, 100, 10) == expected
