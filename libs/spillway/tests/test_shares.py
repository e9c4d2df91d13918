"""What is computed for a caller at one time, beside what is computed for others."""

import asyncio
from itertools import pairwise

import pytest

from spillway.rpc.callers import Caller
from spillway.rpc.shares import COMPUTED, CallerShare, Shares

SHOP, BANK = Caller("shop"), Caller("bank")
ASKED = 20


@pytest.mark.parametrize("verb", ["list", "list_clusters", "list_nodes", "list_orphans", "list_policies", "plan"])
async def test_of_many_that_come_at_once_a_turn_of_the_loop_computes_a_share(verb: str) -> None:
    """Each is computed in one piece. Else whoever comes next waits for all of them."""
    shares, computed = Shares(CallerShare(calls=500, watches=1, computations=2)), 0

    async def compute() -> None:
        nonlocal computed
        async with shares.computing(SHOP, verb):
            computed += 1

    calls, at_each_turn = [asyncio.create_task(compute()) for _ in range(ASKED)], [0]
    while computed < ASKED:
        await asyncio.sleep(0)
        at_each_turn.append(computed)
    turns = [after - before for before, after in pairwise(at_each_turn)]
    assert max(turns) <= 2, turns
    await asyncio.gather(*calls)


async def test_another_caller_waits_for_none_of_them() -> None:
    shares, order = Shares(CallerShare(calls=500, watches=1, computations=1)), list[str]()

    async def compute(caller: Caller) -> None:
        async with shares.computing(caller, "list"):
            order.append(caller.name)

    calls = [asyncio.create_task(compute(caller)) for caller in [SHOP] * ASKED + [BANK]]
    await asyncio.gather(*calls)
    assert order.index("bank") <= 1


async def test_what_is_not_computed_waits_for_nothing() -> None:
    shares = Shares(CallerShare(calls=500, watches=1, computations=1))
    assert not {"get", "apply", "watch"} & COMPUTED
    async with shares.computing(SHOP, "list"), shares.computing(SHOP, "get"):
        pass
