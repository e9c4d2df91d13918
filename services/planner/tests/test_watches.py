"""Watches: a position is one that was given, or INVALID_ARGUMENT; one watch of each caller begins at a time."""

import asyncio
import base64
import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from planner.api.watches import CurrentState, Watches, position_token, read_position
from planner.core.knowledge.rules import PlannerRules
from planner.core.knowledge.state import PlannerState
from spillway.addresses import WORKLOADS, Topic
from spillway.api import RequestError, WatchRequest
from spillway.bus import Feed, Offsets
from spillway.local_bus import LocalBroker, LocalBus
from spillway.rpc.callers import Caller
from spillway.rpc.security import CALLER


def packed_token(text: str) -> str:
    return base64.urlsafe_b64encode(zlib.compress(text.encode())).decode()


def test_a_position_is_read_as_it_was_given() -> None:
    positions = {(WORKLOADS.name, 0): 17, (WORKLOADS.name, 1): 2**63 - 1}
    assert read_position(position_token(positions)) == positions


@pytest.mark.parametrize(
    "token",
    [
        "x",
        "x" * 20_000,
        packed_token("[" * 200_000),
        packed_token("{" * 10),
        packed_token('{"a": 1}'),
        packed_token("[1]"),
        packed_token("[" + ",".join(["[]"] * 330_000) + "]"),
        packed_token("[" + ",".join([f'["{WORKLOADS.name}", 0, 1]'] * 10_000) + "]"),
        packed_token(f'[["{WORKLOADS.name}", 0, Infinity]]'),
        packed_token(f'[["{WORKLOADS.name}", -Infinity, 1]]'),
        packed_token(f'[["{WORKLOADS.name}", 0, NaN]]'),
        packed_token(f'[["{WORKLOADS.name}", 0, 1e999]]'),
        packed_token(f'[["{WORKLOADS.name}", 0, -1]]'),
        packed_token(f'[["{WORKLOADS.name}", 0, {2**63}]]'),
        packed_token(f'[["{WORKLOADS.name}", {2**31}, 1]]'),
        packed_token(f'[["{WORKLOADS.name}", 0, {"9" * 10_000}]]'),
        packed_token('[["another", 0, 1]]'),
    ],
    ids=lambda token: token[:24],
)
def test_whatever_else_is_sent_is_refused(token: str) -> None:
    with pytest.raises(RequestError, match=r"position: .*expected a position that Watch returned") as refused:
        read_position(token)
    assert refused.value.code == "INVALID_ARGUMENT"


class CountingBus(LocalBus):
    """Counts the feeds that are open at one time, by caller."""

    def __init__(self) -> None:
        super().__init__(LocalBroker(), "fleet", "test")
        self.open: dict[str, int] = {}
        self.most: dict[str, int] = {}

    @asynccontextmanager
    async def follow_topics(self, topics: Sequence[Topic], start: Offsets | None = None) -> AsyncIterator[Feed]:
        caller = CALLER.get().name
        async with super().follow_topics(topics, start) as feed:
            self.open[caller] = self.open.get(caller, 0) + 1
            self.most[caller] = max(self.most.get(caller, 0), self.open[caller])
            await asyncio.sleep(0)
            try:
                yield feed
            finally:
                self.open[caller] -= 1


async def test_of_one_caller_one_watch_at_a_time_reads_the_log() -> None:
    """A hundred watches, each from the beginning of the log, would be a hundred readers of all of it."""
    bus = CountingBus()
    watches, current = Watches(bus, 100, 10), CurrentState(PlannerState(PlannerRules()))
    from_its_beginning = WatchRequest(position=position_token({(WORKLOADS.name, 0): 0}))

    async def watch_as(name: str) -> None:
        CALLER.set(Caller(name))
        watch = watches.watch(from_its_beginning, current, {})
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await anext(watch)

    async with asyncio.TaskGroup() as tasks:
        for name in ["shop"] * 20 + ["bank"]:
            tasks.create_task(watch_as(name))
    assert bus.most == {"shop": 1, "bank": 1}
