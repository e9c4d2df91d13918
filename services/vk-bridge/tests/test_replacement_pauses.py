"""Which deletions and failures of pool pods wait, because a controller makes another pod of each at once."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vk_bridge.core.pod.replacement_pauses import ReplacementPauses, deletions_of_unbegun_pods
from vk_bridge.core.pod.steps import CreateReal, DeletePool, DeleteReal, LetGo, PodStep

PAUSE_SECONDS = 10.0
A, B, BEGUN = DeletePool("a", 0), DeletePool("b", 30), DeletePool("begun", 30, real_uid="r")
OTHERS = (CreateReal("c"), DeleteReal("r", 0), LetGo("d"), BEGUN)


@pytest.mark.parametrize(
    ("steps", "found"),
    [
        pytest.param([], set(), id="no step"),
        pytest.param(OTHERS, set(), id="other steps"),
        pytest.param([A, B], {A, B}, id="pods without a real pod"),
        pytest.param([A, *OTHERS], {A}, id="one of them beside other steps"),
    ],
)
def test_which_deletions_are_of_pods_that_never_began(steps: Sequence[PodStep], found: set[PodStep]) -> None:
    assert deletions_of_unbegun_pods(steps, {"begun"}) == found


@pytest.mark.parametrize(
    ("calls", "put_off"),
    [
        pytest.param([("n1", [A], 5.0)], set(), id="the first ones go"),
        pytest.param([("n1", [A], 0.0)], set(), id="the first ones go when the clock begins"),
        pytest.param([("n1", [A], 5.0), ("n1", [A, B], 14.9)], {A, B}, id="the next ones wait within the pause"),
        pytest.param([("n1", [A], 5.0), ("n1", [B], 15.0)], set(), id="they go after the pause"),
        pytest.param([("n1", [A], 5.0), ("n2", [B], 6.0)], set(), id="those of another node go"),
        pytest.param([("n1", OTHERS, 5.0), ("n1", [A], 6.0)], set(), id="other steps begin no pause"),
        pytest.param([("n1", [A], 5.0), ("n1", OTHERS, 6.0)], set(), id="other steps never wait"),
        pytest.param(
            [("n1", [A], 5.0), ("n1", [B], 14.0), ("n1", [B], 15.0)], set(), id="those that wait do not lengthen it"
        ),
        pytest.param(
            [("n1", [A], 5.0), ("n1", [B], 15.0), ("n1", [A], 24.0)], {A}, id="those that go begin the next pause"
        ),
    ],
)
def test_which_deletions_are_put_off(calls: list[tuple[str, Sequence[PodStep], float]], put_off: set[PodStep]) -> None:
    pauses = ReplacementPauses(PAUSE_SECONDS)
    answers = [pauses.deletions_to_put_off(node, steps, {"begun"}, now) for node, steps, now in calls]
    assert answers[-1] == put_off


@pytest.mark.parametrize(
    ("calls", "may"),
    [
        pytest.param([("n1", "shop", 5.0)], True, id="the first pod"),
        pytest.param([("n1", "shop", 5.0), ("n1", "shop", 14.9)], False, id="the next one within the pause"),
        pytest.param([("n1", "shop", 5.0), ("n1", "shop", 15.0)], True, id="the next one after the pause"),
        pytest.param([("n1", "shop", 5.0), ("n1", "bank", 6.0)], True, id="of another namespace"),
        pytest.param([("n1", "shop", 5.0), ("n2", "shop", 6.0)], True, id="on another node"),
        pytest.param(
            [("n1", "shop", 5.0), ("n1", "shop", 14.0), ("n1", "shop", 15.0)], True, id="who waits does not lengthen it"
        ),
    ],
)
def test_which_pods_may_fail(calls: list[tuple[str, str, float]], may: bool) -> None:
    pauses = ReplacementPauses(PAUSE_SECONDS)
    assert [pauses.may_fail_pod(*call) for call in calls][-1] is may


CALLS = st.lists(st.tuples(st.sampled_from(["n1", "n2"]), st.sampled_from(["shop", "bank"]), st.floats(0, 5)))


@given(CALLS)
def test_no_two_pods_of_a_namespace_fail_on_a_node_within_the_pause(calls: list[tuple[str, str, float]]) -> None:
    pauses, now = ReplacementPauses(PAUSE_SECONDS), 0.0
    failed_at: dict[tuple[str, str], float] = {}
    for node, namespace, later in calls:
        now += later
        due = now - failed_at.get((node, namespace), -PAUSE_SECONDS) >= PAUSE_SECONDS
        assert pauses.may_fail_pod(node, namespace, now) is due
        if due:
            failed_at[node, namespace] = now
