"""In which order requests that wait are decided: by priority, none for ever, none before what it comes after."""

import asyncio
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.model import Generation
from spillway.running.request_queue import Decide, NotYet, RequestQueue, RequestSettings, Waiting

GROUP, PASSED_OVER = 3, 2
BOUNDS = RequestSettings(
    requests_waiting_max=1000, requests_in_group_max=GROUP, requests_passed_over_max=PASSED_OVER, request_seconds=1.0
)


@dataclass(frozen=True)
class Asked:
    """number: in the order of asking. step: before which it is asked. batch: −1 of none."""

    number: int
    step: int
    priority: int
    about: str
    batch: int = -1


def decided(asked: list[Asked], bounds: RequestSettings = BOUNDS) -> list[list[int]]:
    """The numbers that each step decides, until none waits."""

    async def body() -> list[list[int]]:
        queue, steps = RequestQueue(bounds, "ask again"), list[list[int]]()

        def deciding(number: int) -> Decide[None]:
            def decide(generation: Generation) -> tuple[list[object], None]:
                steps[-1].append(number)
                return [], None

            return decide  # type: ignore[return-value]

        waiting: list[Waiting[None]] = []
        batches: dict[int, object] = {}
        while len(waiting) < len(asked) or not all(one.answer.done() for one in waiting):
            for one in asked[len(waiting) :]:
                if one.step > len(steps):
                    break
                batch = batches.setdefault(one.batch, object()) if one.batch >= 0 else None
                about = one.about or None
                waiting.append(queue.put(deciding(one.number), "sample", batch, one.priority, about))
            steps.append([])
            queue.decide(lambda: Generation(1, 1)).answer()
        return steps

    return asyncio.run(body())


@st.composite
def requests(draw: st.DrawFn, about: tuple[str, ...] = ("",), batches: bool = False) -> list[Asked]:
    found: list[Asked] = []
    step = 0
    for number in range(draw(st.integers(1, 15))):
        step += draw(st.sampled_from((0, 0, 0, 1, 2)))
        size = draw(st.sampled_from((1, 1, 2, 5))) if batches else 1
        for _ in range(size):
            priority, whose = draw(st.integers(-2, 2)), draw(st.sampled_from(about))
            found.append(Asked(len(found), step, priority, whose, number if size > 1 else -1))
    return found


@given(requests())
def test_no_request_waits_while_one_of_a_lower_priority_is_decided_but_for_those_that_waited_too_long(
    asked: list[Asked],
) -> None:
    steps = decided(asked)
    for step, numbers in enumerate(steps):
        left = {number for later in steps[step + 1 :] for number in later}
        there = [asked[number] for number in left if asked[number].step <= step]
        in_time = [asked[number] for number in numbers if step - asked[number].step < PASSED_OVER]
        for one in in_time:
            assert all(one.priority >= other.priority for other in there)
            assert all(one.number < other.number for other in there if one.priority == other.priority)


@given(requests(("", "web", "api"), batches=True))
def test_none_waits_for_ever(asked: list[Asked]) -> None:
    """Once so many groups went before, only what was asked earlier does: as many groups more as that fills."""
    steps = decided(asked)
    decided_at = {number: step for step, numbers in enumerate(steps) for number in numbers}
    for one in asked:
        earlier = one.number
        assert decided_at[one.number] - one.step <= PASSED_OVER + earlier // GROUP


@given(requests(("", "web", "api"), batches=True))
def test_of_what_is_asked_about_one_workload_the_earlier_is_decided_first_and_batches_are_decided_whole(
    asked: list[Asked],
) -> None:
    steps = decided(asked)
    in_order = [asked[number] for numbers in steps for number in numbers]
    assert len(in_order) == len(asked)
    for about in ("web", "api"):
        numbers = [one.number for one in in_order if one.about == about]
        assert numbers == sorted(numbers)
    step_of = {number: step for step, numbers in enumerate(steps) for number in numbers}
    for batch in {one.batch for one in asked if one.batch >= 0}:
        assert len({step_of[one.number] for one in asked if one.batch == batch}) == 1


ORDERS = (
    pytest.param([(0, ""), (5, ""), (0, ""), (7, "")], [[3, 1, 0], [2]], id="the higher first"),
    pytest.param([(0, "web"), (0, ""), (5, "web"), (1, "")], [[0, 2, 3], [1]], id="what comes before it goes with it"),
    pytest.param([(5, "web"), (0, "web"), (1, ""), (1, "")], [[0, 2, 3], [1]], id="what comes after it does not"),
)


@pytest.mark.parametrize(("asked", "expected"), ORDERS)
def test_who_is_decided_first(asked: list[tuple[int, str]], expected: list[list[int]]) -> None:
    found = [Asked(number, 0, priority, about) for number, (priority, about) in enumerate(asked)]
    assert decided(found) == expected


def test_a_low_priority_is_decided_at_last_while_higher_ones_go_on_coming() -> None:
    """Three a step, as many as a group takes: the first is passed over twice, and then it is its turn."""
    asked = [Asked(0, 0, 0, "")] + [Asked(1 + number, number // GROUP, 9, "") for number in range(15)]
    assert [0 in numbers for numbers in decided(asked)[:3]] == [False, False, True]


@pytest.mark.parametrize("holds_up", [True, False])
@pytest.mark.parametrize("of_one_batch", [True, False])
def test_none_about_the_same_is_decided_before_one_that_was_put_off(holds_up: bool, of_one_batch: bool) -> None:
    """An Apply that waits for binds, then a Scale of the same workload: the later one has the last word."""

    async def body() -> None:
        queue, order, looks = RequestQueue(BOUNDS, "ask again"), list[str](), iter((False, True) * 3)
        undecided, batch = [1, 2, 3], object() if of_one_batch else None

        def deciding(name: str) -> Decide[None]:
            def decide(generation: Generation) -> tuple[list[object], None]:
                if name == "apply" and undecided:
                    undecided.pop()
                    raise NotYet(None if holds_up else lambda: next(looks))
                order.append(name)
                return [], None

            return decide  # type: ignore[return-value]

        asked = [("apply", "web"), ("scale", "web"), ("other", "api")]
        waiting = [queue.put(deciding(name), "sample", batch, 0, about) for name, about in asked]
        while not all(one.answer.done() for one in waiting):
            queue.decide(lambda: Generation(1, 1)).answer()
            queue.ask_again()
        assert order == ["other", "apply", "scale"]

    asyncio.run(body())


def test_who_went_away_while_it_was_put_off_holds_nobody_up() -> None:
    async def body() -> None:
        queue = RequestQueue(BOUNDS, "ask again")

        def not_yet(generation: Generation) -> tuple[list[object], None]:
            raise NotYet(lambda: False)

        gone = queue.put(not_yet, "sample", about="web")  # type: ignore[arg-type, var-annotated]
        queue.decide(lambda: Generation(1, 1)).answer()
        gone.answer.cancel()
        later = queue.put(lambda generation: ([], "scaled"), "sample", about="web")
        queue.decide(lambda: Generation(1, 1)).answer()
        assert later.answer.result() == "scaled"

    asyncio.run(body())
