"""Past decisions are read in pages and in pieces, and few histories of one caller at one time."""

import asyncio
from itertools import pairwise

import pytest

from planner.api.past_decisions import PastDecisions
from planner.log.projection import history_key
from spillway.events import DecisionRecorded
from spillway.model import Generation
from spillway.rpc.callers import Caller
from spillway.rpc.security import CALLER
from spillway.store import MemoryStore
from spillway.wire import encode_event

DECISIONS = 7
PAGE_BYTES = 350
"""Three of the records below, or a part of a fourth."""


def decision_recorded(sequence: int) -> DecisionRecorded:
    return DecisionRecorded(
        "shop", "web", Generation(1, sequence), sequence, "Apply", sequence, 0, (), (), "x" * 80, ""
    )


async def store_with_decisions() -> MemoryStore:
    store = MemoryStore()
    entries = [(history_key("shop", "web"), encode_event(decision_recorded(number))) for number in range(DECISIONS)]
    await store.append_histories(entries, 100)
    return store


async def read_pages(past: PastDecisions, limit: int) -> list[list[int]]:
    """The replicas of each page, newest first, until the last one."""
    page = await past.read_page("shop", "web", limit)
    found = [[record.replicas for record in page.records]]
    while page.next_from:
        page = await past.read_page("shop", "web", limit, page.next_from)
        found.append([record.replicas for record in page.records])
    return found


@pytest.mark.parametrize(
    ("page_bytes", "limit", "pages"),
    [
        pytest.param(PAGE_BYTES, 100, [[6, 5, 4], [3, 2, 1], [0]], id="all of them, three a page"),
        pytest.param(PAGE_BYTES, 4, [[6, 5, 4], [3]], id="the last four"),
        pytest.param(PAGE_BYTES, 3, [[6, 5, 4]], id="one page has room for all that are asked for"),
        pytest.param(1, 2, [[6], [5]], id="a record that is larger than a page"),
        pytest.param(10**6, 100, [[6, 5, 4, 3, 2, 1, 0]], id="one page"),
    ],
)
async def test_pages_have_each_decision_once_newest_first(page_bytes: int, limit: int, pages: list[list[int]]) -> None:
    assert await read_pages(PastDecisions(await store_with_decisions(), 1, page_bytes), limit) == pages


async def test_a_page_begins_at_its_decision_though_newer_ones_came_meanwhile() -> None:
    store = await store_with_decisions()
    past = PastDecisions(store, 1, PAGE_BYTES)
    first = await past.read_page("shop", "web", 100)
    await store.append_histories([(history_key("shop", "web"), encode_event(decision_recorded(9)))], 100)
    second = await past.read_page("shop", "web", 100, first.next_from)
    assert [record.replicas for record in second.records] == [3, 2, 1]


async def test_a_decision_that_is_kept_no_more_begins_an_empty_page() -> None:
    past = PastDecisions(await store_with_decisions(), 1, PAGE_BYTES)
    assert (await past.read_page("shop", "web", 100, "7.7")).records == ()


async def test_others_have_their_turn_between_two_records() -> None:
    """Two hundred records of 300 clusters take 0.4 s to decode."""
    past, turns, done = PastDecisions(await store_with_decisions(), 1, 10**6), 0, False

    async def count_turns() -> None:
        nonlocal turns
        while not done:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_turns())
    await past.read_page("shop", "web", 100)
    in_a_page = turns
    await past.read_all("shop", "web", 100)
    done = True
    await counting
    assert [after - before >= DECISIONS for before, after in pairwise([0, in_a_page, turns])] == [True, True]


class CountingStore(MemoryStore):
    """Counts the histories that are read at one time, by caller."""

    def __init__(self) -> None:
        super().__init__()
        self.reading: dict[str, int] = {}
        self.most: dict[str, int] = {}

    async def read_history(self, key: str, limit: int) -> list[bytes]:
        caller = CALLER.get().name
        self.reading[caller] = self.reading.get(caller, 0) + 1
        self.most[caller] = max(self.most.get(caller, 0), self.reading[caller])
        await asyncio.sleep(0)
        self.reading[caller] -= 1
        return await super().read_history(key, limit)


async def test_of_one_caller_few_histories_are_read_at_one_time_and_others_wait_for_none_of_them() -> None:
    """Sixty questions of one caller took all connections to Redis."""
    store = CountingStore()
    past, order = PastDecisions(store, 4, PAGE_BYTES), list[str]()

    async def read_as(name: str) -> None:
        CALLER.set(Caller(name))
        await past.read_page("shop", "web", 1)
        order.append(name)

    async with asyncio.TaskGroup() as tasks:
        for name in ["shop"] * 60 + ["bank"]:
            tasks.create_task(read_as(name))
    assert store.most == {"shop": 4, "bank": 1}
    assert order.index("bank") <= 4
