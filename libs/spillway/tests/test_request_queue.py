"""In which order requests that wait are decided: by priority, none for ever, none before what it comes after."""

import asyncio
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.api import RequestError
from spillway.events import BrakeSet
from spillway.model import Generation
from spillway.reasons import TOO_MANY_WAIT
from spillway.running.request_queue import (
    BugMet,
    Decide,
    NotYet,
    RequestQueue,
    RequestSettings,
    WaitingCall,
)

GROUP, PASSED_OVER = 3, 2
BOUNDS = RequestSettings(
    requests_waiting_max=1000,
    requests_in_group_max=GROUP,
    group_seconds=inf,
    batch_seconds=inf,
    requests_passed_over_max=PASSED_OVER,
    request_seconds=1.0,
)
"""Without bounds of time: which requests are in a group does not depend on the machine."""


@dataclass(frozen=True)
class Asked:
    """number: in the order of asking. step: before which it is asked. batch: −1 of none. caller: empty: nobody's.
    seconds: what its decision takes, of a clock that only decisions move."""

    number: int
    step: int
    priority: int
    about: str
    batch: int = -1
    caller: str = ""
    seconds: float = 0.0


def numbers_decided_by_step(
    asked: list[Asked], bounds: RequestSettings = BOUNDS, put_off: frozenset[int] = frozenset()
) -> list[list[int]]:
    """The numbers that each step decides, until none waits. put_off: requests that are put off at their first look."""

    async def decide_all() -> list[list[int]]:
        steps, left, now = list[list[int]](), set(put_off), [0.0]
        queue = RequestQueue(bounds, "ask again", lambda: now[0])

        def deciding_number(number: int) -> Decide[None]:
            def decide(generation: Generation) -> tuple[list[object], None]:
                if number in left:
                    left.remove(number)
                    raise NotYet(None if number % 2 else lambda: True)
                steps[-1].append(number)
                now[0] += asked[number].seconds
                return [], None

            return decide  # type: ignore[return-value]

        waiting: list[WaitingCall[None]] = []
        batches: dict[int, object] = {}
        while len(waiting) < len(asked) or not all(one.answer.done() for one in waiting):
            for one in asked[len(waiting) :]:
                if one.step > len(steps):
                    break
                batch = batches.setdefault(one.batch, object()) if one.batch >= 0 else None
                about = one.about or None
                put = partial(queue.put_request, deciding_number(one.number), "sample", batch, one.priority, about)
                waiting.append(put(caller=one.caller))
            steps.append([])
            queue.decide_next_group(lambda: Generation(1, 1)).send_answers()
            queue.requeue_due_requests()
        return steps

    return asyncio.run(decide_all())


@st.composite
def requests(
    draw: st.DrawFn, about: tuple[str, ...] = ("",), batches: bool = False, callers: tuple[str, ...] = ("",)
) -> list[Asked]:
    found: list[Asked] = []
    step = 0
    for number in range(draw(st.integers(1, 15))):
        step += draw(st.sampled_from((0, 0, 0, 1, 2)))
        size = draw(st.sampled_from((1, 1, 2, 5))) if batches else 1
        caller = draw(st.sampled_from(callers))
        for _ in range(size):
            priority, whose = draw(st.integers(-2, 2)), draw(st.sampled_from(about))
            found.append(Asked(len(found), step, priority, whose, number if size > 1 else -1, caller))
    return found


@given(requests())
def test_no_request_waits_while_one_of_a_lower_priority_is_decided_but_for_those_that_waited_too_long(
    asked: list[Asked],
) -> None:
    steps = numbers_decided_by_step(asked)
    for step, numbers in enumerate(steps):
        left = {number for later in steps[step + 1 :] for number in later}
        there = [asked[number] for number in left if asked[number].step <= step]
        in_time = [asked[number] for number in numbers if step - asked[number].step < PASSED_OVER]
        for one in in_time:
            assert all(one.priority >= other.priority for other in there)
            assert all(one.number < other.number for other in there if one.priority == other.priority)


@given(requests(("", "web", "api"), batches=True, callers=("", "shop", "bank")))
def test_none_waits_for_ever(asked: list[Asked]) -> None:
    """Once so many groups went before, only earlier requests do, and those of others, since callers take turns: as many
    groups more as these fill.
    """
    steps = numbers_decided_by_step(asked)
    decided_at = {number: step for step, numbers in enumerate(steps) for number in numbers}
    for one in asked:
        before = sum(other.number < one.number or other.caller != one.caller for other in asked)
        assert decided_at[one.number] - one.step <= PASSED_OVER + before // GROUP


@given(requests(("", "web", "api"), batches=True, callers=("", "shop", "bank")))
def test_of_what_is_asked_about_one_workload_the_earlier_is_decided_first_and_batches_are_decided_whole(
    asked: list[Asked],
) -> None:
    steps = numbers_decided_by_step(asked)
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
    assert numbers_decided_by_step(found) == expected


@given(requests(callers=("", "shop", "bank", "toys")))
def test_callers_take_turns_also_from_one_group_to_the_next(asked: list[Asked]) -> None:
    """Over any steps in which two callers always have requests left, each has as many decided as the other, or two
    fewer: a request of each may be under way."""
    of_one_priority = [replace(one, priority=0) for one in asked]
    steps = numbers_decided_by_step(of_one_priority)
    decided = [Counter(asked[number].caller for number in numbers) for numbers in steps]
    step_of = {number: step for step, numbers in enumerate(steps) for number in numbers}
    left = [{one.caller for one in asked if one.step <= step < step_of[one.number]} for step in range(len(steps))]
    for first, last in combinations(range(len(steps) + 1), 2):
        always = frozenset.intersection(*map(frozenset, left[first:last]))
        taken = [sum(counts[caller] for counts in decided[first:last]) for caller in always]
        assert not taken or max(taken) - min(taken) <= 2


TURNS = (
    pytest.param("ssssb", [0, 0, 0, 0, 0], [[0, 4, 1], [2, 3]], id="one of another comes second"),
    pytest.param("sssbbb", [0] * 6, [[0, 3, 1], [4, 2, 5]], id="one each, also in the next group"),
    pytest.param("sssb", [0, 0, 5, 0], [[2, 3, 0], [1]], id="the higher first, and it was a turn of its caller"),
    pytest.param("----b", [0] * 5, [[0, 4, 1], [2, 3]], id="nobody's are as one caller's"),
)


@pytest.mark.parametrize(("callers", "priorities", "expected"), TURNS)
def test_whose_turn_it_is(callers: str, priorities: list[int], expected: list[list[int]]) -> None:
    whose = [caller.replace("-", "") for caller in callers]
    asked = [Asked(number, 0, priorities[number], "", -1, caller) for number, caller in enumerate(whose)]
    assert numbers_decided_by_step(asked) == expected


BACKLOGS = (
    # Of one caller, who sends all at once: runs, requests in a run, and seconds of a decision.
    pytest.param(1_000, 1, 0.003, id="single requests"),
    pytest.param(30, 1, 0.35, id="single requests of which each ends a group"),
    pytest.param(10, 90, 0.003, id="batches of which each ends a group"),
    pytest.param(18, 52, 0.005, id="more batches"),
    pytest.param(38, 26, 0.010, id="slow batches"),
    pytest.param(2, 450, 0.004, id="batches that go on in the next group"),
)


@pytest.mark.parametrize(("runs", "size", "seconds"), BACKLOGS)
@pytest.mark.parametrize("step", [1, 5, 11, 15])
def test_anothers_only_request_is_in_the_next_group_whatever_a_backlog_holds_and_however_long_it_waited(
    runs: int, size: int, seconds: float, step: int
) -> None:
    """A batch that had waited for ten groups was one turn, and turns began anew with each group: it took 3.5 s."""
    bounds = replace(RequestSettings(), requests_waiting_max=2_000, requests_in_group_max=200)
    backlog = [
        Asked(number, 0, 0, "", number // size if size > 1 else -1, "shop", seconds) for number in range(runs * size)
    ]
    steps = numbers_decided_by_step([*backlog, Asked(len(backlog), step, 0, "", -1, "bank", 0.003)], bounds)
    assert len(backlog) in steps[min(step, len(steps) - 1)]


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from((1, 1, 2, 5, 30)), st.sampled_from((0.0, 0.003, 0.02, 0.3))),
        min_size=1,
        max_size=30,
    ),
    st.integers(0, 12),
)
def test_at_most_one_run_of_each_other_caller_is_decided_before_anothers_only_request(
    backlog: list[tuple[str, int, float]], step: int
) -> None:
    bounds = replace(RequestSettings(), batch_seconds=inf)
    asked = [
        Asked(0, 0, 0, "", run, caller, seconds)
        for run, (caller, size, seconds) in enumerate(backlog)
        for _ in range(size)
    ]
    asked = [replace(one, number=number) for number, one in enumerate(asked)]
    only = Asked(len(asked), step, 0, "", -1, "only")
    steps = numbers_decided_by_step([*asked, only], bounds)
    since = [number for numbers in steps[step:] for number in numbers]
    before = [asked[number] for number in since[: since.index(only.number)]]
    runs = Counter(caller for caller, _ in {(one.caller, one.batch) for one in before})
    assert all(count == 1 for count in runs.values())


def test_a_batch_comes_after_a_single_request_of_another_caller() -> None:
    asked = [Asked(number, 0, 0, "", 0, "shop") for number in range(5)] + [Asked(5, 0, 0, "", -1, "bank")]
    assert numbers_decided_by_step(asked) == [[5, 0, 1, 2, 3, 4]]


def test_what_comes_before_anothers_request_about_the_same_takes_its_turn() -> None:
    about = ["", "", "", "web"]
    asked = [Asked(number, 0, 0, about[number], -1, "shop") for number in range(4)] + [
        Asked(4, 0, 0, "web", -1, "bank")
    ]
    assert numbers_decided_by_step(asked) == [[0, 3, 4], [1, 2]]


@given(st.integers(1, 300), st.lists(st.sampled_from("abcde"), max_size=600))
def test_whatever_the_others_ask_each_of_some_callers_gets_its_places(most: int, asking: list[str]) -> None:
    """Of k callers who ask one by one: as many as are left when k times half of what was free is taken, and one at
    least while there is one."""
    bounds = replace(BOUNDS, requests_waiting_max=most)
    callers = len(set(asking))

    async def body() -> None:
        queue, own = RequestQueue(bounds, "ask again"), Counter[str]()
        for caller in asking:
            try:
                queue.check_room(1, caller)
            except RequestError:
                assert own[caller] >= most // 2**callers
                assert own[caller] or own.total() == most
                continue
            queue.put_request(lambda generation: ([], None), "sample", caller=caller)
            own[caller] += 1
            assert own[caller] <= max(1, most // 2)

    asyncio.run(body())


def test_nobodys_requests_may_have_all_places_and_a_caller_is_told_how_many_it_has() -> None:
    async def body() -> None:
        queue = RequestQueue(replace(BOUNDS, requests_waiting_max=4), "ask again")
        for _ in range(2):
            queue.check_room(1, "shop")
            queue.put_request(lambda generation: ([], None), "sample", caller="shop")
        with pytest.raises(
            RequestError, match="2 requests of caller 'shop' wait already, and 2 places are free"
        ) as one:
            queue.check_room(1, "shop")
        assert (one.value.code, one.value.reason) == ("RESOURCE_EXHAUSTED", TOO_MANY_WAIT)
        queue.check_room(2)

    asyncio.run(body())


def test_a_low_priority_is_decided_at_last_while_higher_ones_go_on_coming() -> None:
    """Three a step, as many as a group takes: the first is passed over twice, and then it is its turn."""
    asked = [Asked(0, 0, 0, "")] + [Asked(1 + number, number // GROUP, 9, "") for number in range(15)]
    assert [0 in numbers for numbers in numbers_decided_by_step(asked)[:3]] == [False, False, True]


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
        waiting = [queue.put_request(deciding(name), "sample", batch, 0, about) for name, about in asked]
        while not all(one.answer.done() for one in waiting):
            queue.decide_next_group(lambda: Generation(1, 1)).send_answers()
            queue.requeue_due_requests()
        assert order == ["other", "apply", "scale"]

    asyncio.run(body())


def test_who_went_away_while_it_was_put_off_holds_nobody_up() -> None:
    async def body() -> None:
        queue = RequestQueue(BOUNDS, "ask again")

        def not_yet(generation: Generation) -> tuple[list[object], None]:
            raise NotYet(held_up="room")

        gone = queue.put_request(not_yet, "sample", about="web")  # type: ignore[arg-type, var-annotated]
        queue.decide_next_group(lambda: Generation(1, 1)).send_answers()
        assert queue.held_up == ["room"]
        gone.answer.cancel()
        assert queue.held_up == []
        later = queue.put_request(lambda generation: ([], "scaled"), "sample", about="web")
        queue.decide_next_group(lambda: Generation(1, 1)).send_answers()
        assert later.answer.result() == "scaled"

    asyncio.run(body())


@given(
    requests(("", "web", "api"), batches=True, callers=("", "shop", "bank")),
    st.frozensets(st.integers(0, 15)),
    st.integers(1, 4),
    st.booleans(),
)
def test_of_one_workload_the_earlier_is_decided_first_wherever_a_group_ends_and_whatever_was_put_off(
    asked: list[Asked], put_off: frozenset[int], group: int, ends_in_batches: bool
) -> None:
    """An Apply waits for binds, then a Scale comes: a group ended between them, and the Apply had the last word."""
    bounds = replace(BOUNDS, requests_in_group_max=group, batch_seconds=0.0 if ends_in_batches else inf)
    in_order = [number for numbers in numbers_decided_by_step(asked, bounds, put_off) for number in numbers]
    assert sorted(in_order) == [one.number for one in asked]
    for about in ("web", "api"):
        numbers = [number for number in in_order if asked[number].about == about]
        assert numbers == sorted(numbers)


def test_a_backlog_that_waited_for_long_does_not_come_before_another_callers_new_request() -> None:
    """After ten groups all of it went first: another caller's request took 3 s in place of 0.4."""
    backlog = [Asked(number, 0, 0, "", -1, "shop") for number in range(60)]
    asked = [*backlog[:50], Asked(50, 10, 0, "", -1, "bank")]
    steps = numbers_decided_by_step(asked)
    (decided,) = [step for step, numbers in enumerate(steps) if 50 in numbers]
    assert decided == 10
    assert len(steps) == 17


def test_a_large_batch_is_decided_though_another_caller_always_has_a_group_waiting() -> None:
    """A batch takes as many turns as it has requests, counted anew in each group: it was never its turn."""
    batch = [Asked(number, 0, 0, "", 1, "shop") for number in range(3 * GROUP)]
    stream = [Asked(0, step, 0, "", -1, "bank") for step in range(40) for _ in range(2 * GROUP if step == 0 else GROUP)]
    asked = [replace(one, number=number) for number, one in enumerate([*batch, *stream])]
    (decided,) = {step for step, numbers in enumerate(numbers_decided_by_step(asked)) if set(numbers) & {0, 1, 2}}
    assert decided <= PASSED_OVER + 1


@pytest.mark.parametrize("caller", ["shop", "bank"])
def test_what_is_put_off_has_a_place_in_the_queue(caller: str) -> None:
    """It comes back: one caller held 2,400 of 2,000 places, and others were refused."""

    async def body() -> None:
        queue = RequestQueue(replace(BOUNDS, requests_waiting_max=10), "ask again")

        def not_yet(generation: Generation) -> tuple[list[object], None]:
            raise NotYet(lambda: False)

        for _ in range(5):
            queue.put_request(not_yet, "sample", about="web", caller="shop")  # type: ignore[arg-type, var-annotated]
            queue.decide_next_group(lambda: Generation(1, 1))
        if caller == "shop":
            with pytest.raises(RequestError, match="5 requests of caller 'shop' wait already, and 5 places are free"):
                queue.check_room(1, caller)
        else:
            queue.check_room(1, caller)

    asyncio.run(body())


BATCH = object()
ENDS_OF_A_GROUP = (
    # What bounds the group, and the sizes of the groups of five single requests and a batch of three.
    pytest.param({}, [GROUP, 5], id="its number; a batch is not divided"),
    pytest.param({"group_seconds": 0.0}, [1, 1, 1, 1, 1, 3], id="its time"),
    pytest.param({"group_bytes_max": 1}, [1, 1, 1, 1, 1, 3], id="its bytes"),
    pytest.param({"group_bytes_max": 15_000}, [2, 2, 4], id="the bytes of two"),
    pytest.param({"group_seconds": 0.0, "batch_seconds": 0.0}, [1] * 8, id="the time of a batch, which goes on next"),
)


@pytest.mark.parametrize(("bounds", "sizes"), ENDS_OF_A_GROUP)
def test_a_group_ends_at_its_number_its_time_and_its_bytes(bounds: dict[str, float], sizes: list[int]) -> None:
    """Two hundred slow or large requests of one caller are not one step, for which all others wait."""

    async def decide_all() -> list[int]:
        queue, found = RequestQueue(replace(BOUNDS, **bounds), "ask again"), list[int]()  # type: ignore[arg-type]
        for number in range(8):
            event = BrakeSet(str(number), "r" * 10_000, "", number)
            batch = BATCH if number >= 5 else None
            queue.put_request(lambda _, event=event: ([event], None), "sample", batch)  # type: ignore[misc]
        queue.asked.set()
        while queue.asked.is_set():
            queue.asked.clear()
            found.append(queue.decide_next_group(lambda: Generation(1, 1)).answer_count)
        return found

    assert asyncio.run(decide_all()) == sizes


def test_a_bug_in_a_group_leaves_the_requests_after_it_in_the_queue() -> None:
    """They are refused when the turn ends, and their callers do not wait until their time is over."""

    async def body() -> None:
        queue = RequestQueue(BOUNDS, "ask again")

        def broken(generation: Generation) -> tuple[list[object], None]:
            raise ZeroDivisionError

        queue.put_request(broken, "sample")  # type: ignore[arg-type, var-annotated]
        later = queue.put_request(lambda generation: ([], "decided"), "sample")
        with pytest.raises(BugMet):
            queue.decide_next_group(lambda: Generation(1, 1))
        queue.refuse_all("the turn has ended")
        with pytest.raises(RequestError, match="the turn has ended"):
            await later.answer

    asyncio.run(body())
