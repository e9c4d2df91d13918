"""What is computed for a caller at one time, beside what is computed for others."""

import asyncio
from itertools import pairwise

import pytest

from spillway import api
from spillway.api import RequestError
from spillway.api_scaling import DeclarePolicyRequest
from spillway.reasons import TOO_MANY_RUN
from spillway.rpc.callers import Caller
from spillway.rpc.shares import COMPUTED, CallerShare, Shares

SHOP, BANK = Caller("shop"), Caller("bank")
ONE = CallerShare(calls=500, watches=1, computations=1, messages=1, unsent_bytes=100)
ASKED = 20


@pytest.mark.parametrize("verb", ["list", "list_clusters", "list_nodes", "list_orphans", "list_policies", "plan"])
async def test_of_many_that_come_at_once_a_turn_of_the_loop_computes_a_share(verb: str) -> None:
    """Each is computed in one piece. Else whoever comes next waits for all of them."""
    shares, computed = Shares(ONE._replace(computations=2)), 0

    async def compute() -> None:
        nonlocal computed
        async with shares.computation_place(SHOP, verb):
            computed += 1

    calls, at_each_turn = [asyncio.create_task(compute()) for _ in range(ASKED)], [0]
    while computed < ASKED:
        await asyncio.sleep(0)
        at_each_turn.append(computed)
    turns = [after - before for before, after in pairwise(at_each_turn)]
    assert max(turns) <= 2, turns
    await asyncio.gather(*calls)


COMPUTED_BY_REQUEST = (
    pytest.param("get", api.GetRequest("shop", "web"), False, id="a workload"),
    pytest.param("get", api.GetRequest("shop", "web", 200), True, id="past decisions"),
    pytest.param("declare_policy", DeclarePolicyRequest("{}"), False, id="a policy"),
    pytest.param("declare_policy", DeclarePolicyRequest("{}", plan_only=True), True, id="a dry run of a policy"),
)


@pytest.mark.parametrize(("verb", "request_", "is_computed"), COMPUTED_BY_REQUEST)
async def test_a_request_is_computed_if_its_answer_takes_long(verb: str, request_: object, is_computed: bool) -> None:
    shares, running = Shares(ONE), list[int]()

    async def answer(number: int) -> None:
        async with shares.computation_place(SHOP, verb, request_):
            running.append(number)
            await asyncio.sleep(0)
            running.append(-number)

    await asyncio.gather(answer(1), answer(2))
    assert (running == [1, -1, 2, -2]) == is_computed


async def test_another_caller_waits_for_none_of_them() -> None:
    shares, order = Shares(ONE), list[str]()

    async def compute(caller: Caller) -> None:
        async with shares.computation_place(caller, "list"):
            order.append(caller.name)

    calls = [asyncio.create_task(compute(caller)) for caller in [SHOP] * ASKED + [BANK]]
    await asyncio.gather(*calls)
    assert order.index("bank") <= 1


async def test_what_is_not_computed_waits_for_nothing() -> None:
    shares = Shares(ONE)
    assert not {"get", "apply", "watch"} & COMPUTED
    async with shares.computation_place(SHOP, "list"), shares.computation_place(SHOP, "get"):
        pass


@pytest.mark.parametrize(
    ("unsent", "size", "is_sent"),
    [
        pytest.param(0, 100, True, id="it fits"),
        pytest.param(60, 40, True, id="both fit"),
        pytest.param(60, 41, False, id="a byte too many"),
    ],
)
def test_unsent_answers_of_a_caller_are_bounded_and_free_again_once_sent(unsent: int, size: int, is_sent: bool) -> None:
    shares = Shares(ONE)

    def send(caller: Caller, size: int) -> None:
        with shares.counted_unsent_answer(caller, "get", size):
            pass

    for _ in range(2):
        with shares.counted_unsent_answer(SHOP, "get", unsent):
            send(BANK, 100)
            if is_sent:
                send(SHOP, size)
            else:
                with pytest.raises(RequestError, match="expected at most 100 with this one of 41") as refused:
                    send(SHOP, size)
                assert (refused.value.code, refused.value.reason) == ("RESOURCE_EXHAUSTED", TOO_MANY_RUN)
        send(SHOP, 100)


def test_an_answer_beyond_the_whole_share_is_refused_before_it_is_made() -> None:
    with pytest.raises(RequestError, match="an answer of 101 bytes: expected at most 100") as refused:
        Shares(ONE).counted_unsent_answer(SHOP, "list", 101).__enter__()
    assert refused.value.code == "FAILED_PRECONDITION"


async def test_messages_of_a_caller_are_received_a_few_at_a_time() -> None:
    shares = Shares(ONE)
    async with shares.message_place(SHOP), shares.message_place(BANK):
        assert shares.message_place(SHOP).locked()
    assert not shares.message_place(SHOP).locked()
