"""Watches: positions, what each watch is told of a change, and how much of the loop all watches take."""

import asyncio
import base64
import time
import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest

from planner.api.shared_replies import (
    REPLIES_BYTES_MAX,
    REPLIES_MAX,
    REPLY_SECONDS,
    SharedReplies,
)
from planner.api.watches import REPLIES_OF_AN_ITERATION, CurrentState, Watches, position_token, read_position
from planner.core.knowledge.rules import PlannerRules
from planner.core.knowledge.state import PlannerState
from planner.core.requests import decisions
from planner.core.requests.answers import workload_reply
from services.planner.tests.builders import Fleet, apply_to_fleet, deployment, manifest_texts, node_row
from spillway.addresses import WORKLOADS, Topic
from spillway.api import ApplyRequest, RequestError, WatchReply, WatchRequest
from spillway.bus import Feed, Offsets, Record
from spillway.local_bus import LocalBroker, LocalBus
from spillway.messages import fill_message
from spillway.rpc.callers import Caller
from spillway.rpc.calls import PLANNER, message_bytes
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
    watches, current = Watches(bus, 100, 10, time.monotonic), CurrentState(PlannerState(PlannerRules()))
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


def make_fleet() -> Fleet:
    return Fleet(own=[node_row("n", cpu=64_000)])


def declare_workload(fleet: Fleet, namespace: str, name: str, replicas: int) -> None:
    manifest = deployment(replicas, name) | {"metadata": {"name": name, "namespace": namespace}}
    request = ApplyRequest(manifest_texts(manifest))
    apply_to_fleet(fleet, decisions.decide_apply(fleet.state, request, fleet.next_moment()).events)


def records_of(*keys: str) -> tuple[Record, ...]:
    return tuple(Record(WORKLOADS.name, 0, offset, key, None) for offset, key in enumerate(keys))


class Watched:
    """A fleet whose changes are published to watches, of which each notes what it is told."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.now = 0.0
        self.watches = Watches(CountingBus(), 200, 10_000, lambda: self.now)
        self.current = CurrentState(fleet.state)
        self.offset = 0

    async def note_replies(self, request: WatchRequest, into: list[WatchReply]) -> None:
        watch = self.watches.watch(request, self.current, {})
        while True:
            into.append(await anext(watch))

    def publish(self, *keys: str) -> None:
        self.offset += 1
        self.watches.publish_changes(records_of(*keys), {(WORKLOADS.name, 0): self.offset})


@asynccontextmanager
async def watching(watched: Watched, *requests: WatchRequest) -> AsyncIterator[list[list[WatchReply]]]:
    """Has the replies of each watch, which have all begun; those of their beginning are left out."""
    told: list[list[WatchReply]] = [[] for _ in requests]
    tasks = [asyncio.create_task(watched.note_replies(*one)) for one in zip(requests, told, strict=True)]
    await some_turns()
    for one in told:
        one.clear()
    try:
        yield told
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def some_turns(count: int = 400) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_change_is_made_and_packed_once_for_all_watches(calls_of: Any) -> None:
    fleet = make_fleet()
    declare_workload(fleet, "shop", "web", 3)
    watched = Watched(fleet)
    async with watching(watched, *[WatchRequest("shop")] * 100) as told:
        with calls_of(workload_reply, fill_message) as calls:
            watched.publish("shop/web")
            await some_turns()
    assert [len(one) for one in told] == [1] * 100
    assert [call.of for call in calls].count("workload_reply") == 1
    assert len([call for call in calls if call.get("value") is told[0][0].workload]) == 1


async def test_no_watch_is_told_of_another_namespace_or_name_than_its_own() -> None:
    fleet = make_fleet()
    keys = [("bank", "web"), ("shop", "api"), ("shop", "web")]
    for key in keys:
        declare_workload(fleet, *key, 1)
    watched = Watched(fleet)
    requests = [WatchRequest(*key) for key in (("shop", ""), ("bank", ""), ("", ""), ("shop", "web"), ("other", ""))]
    async with watching(watched, *requests) as told:
        watched.publish(*map("/".join, keys))
        await some_turns()
    assert [[(reply.namespace, reply.name) for reply in one] for one in told] == [
        keys[1:],
        keys[:1],
        keys,
        keys[2:],
        [],
    ]
    for reply in (reply for one in told for reply in one):
        assert reply.workload is not None
        assert (reply.workload.placement.namespace, reply.workload.placement.name) == (reply.namespace, reply.name)


async def test_whoever_goes_on_from_a_position_misses_nothing_that_was_not_told_yet() -> None:
    """Only the last reply of those that go together has their position."""
    watched = Watched(make_fleet())
    for name in ("a", "b"):
        declare_workload(watched.fleet, "shop", name, 1)
    from_a_position = WatchRequest("shop", position=position_token({}))
    for request in (WatchRequest("shop"), from_a_position):
        watch = watched.watches.watch(request, watched.current, {})
        first = [(await anext(watch)).position for _ in range(2)] if not request.position else []
        waiting = asyncio.ensure_future(anext(watch))
        await some_turns()
        watched.publish("shop/a", "shop/b")
        changes = [(await waiting).position, (await anext(watch)).position]
        await watch.aclose()  # type: ignore[attr-defined]
        assert first in ([], ["", position_token({})])
        assert changes == [position_token({}), position_token({(WORKLOADS.name, 0): watched.offset})]


async def test_each_change_is_told_as_the_workload_is_then() -> None:
    fleet = make_fleet()
    declare_workload(fleet, "shop", "web", 1)
    watched = Watched(fleet)
    async with watching(watched, WatchRequest("shop"), WatchRequest()) as told:
        for replicas in (2, 5):
            declare_workload(fleet, "shop", "web", replicas)
            watched.publish("shop/web")
            await some_turns()
    assert [[reply.workload.placement.replicas for reply in one if reply.workload] for one in told] == [[2, 5], [2, 5]]


def test_the_bytes_of_a_reply_are_those_that_the_server_would_pack() -> None:
    fleet, call = make_fleet(), PLANNER.calls["watch"]
    declare_workload(fleet, "shop", "web", 3)
    replies = SharedReplies(lambda: 0.0)
    for name, position in (("web", "x" * 300), ("web", ""), ("web", "y"), ("gone", "z")):
        reply = replies.reply_about(fleet.state, ("shop", name), position)
        values = reply.position, reply.namespace, reply.name, reply.gone, reply.workload
        assert values[:4] == (position, "shop", name, name == "gone")
        assert call.reply_bytes(reply) == reply.packed == message_bytes(WatchReply(*values), call.reply_message())
        assert call.read_reply(reply.packed) == WatchReply(*values)


def test_a_reply_is_kept_until_its_workload_changes_or_its_time_is_over_or_the_state_is_another_one(
    calls_of: Any,
) -> None:
    fleet, now = make_fleet(), 0.0
    declare_workload(fleet, "shop", "web", 3)
    replies = SharedReplies(lambda: now)

    def count_made(state: PlannerState = fleet.state) -> int:
        with calls_of(workload_reply) as made:
            replies.reply_about(state, ("shop", "web"), "p")
        return len(made)

    assert [count_made(), count_made()] == [1, 0]
    replies.forget_replies([("bank", "web")])
    assert count_made() == 0
    replies.forget_replies([("shop", "web")])
    assert [count_made(), count_made()] == [1, 0]
    now += REPLY_SECONDS
    assert count_made() == 0
    now += 0.001
    assert [count_made(), count_made()] == [1, 0]
    assert replies.reply_about(PlannerState(PlannerRules()), ("shop", "web"), "p").gone


def test_replies_are_kept_within_their_bounds() -> None:
    fleet = make_fleet()
    replies = SharedReplies(lambda: 0.0)
    for number in range(REPLIES_MAX + 50):
        replies.reply_about(fleet.state, ("shop", f"web-{number}"), "p")
    assert replies.kept_count == REPLIES_MAX
    for number in range(200):
        replies.reply_about(fleet.state, ("shop", "x" * 20_000 + str(number)), "p")
    assert 2**20 < replies.kept_bytes <= REPLIES_BYTES_MAX
    assert replies.kept_count < 200


async def test_others_have_their_turn_while_many_watches_are_told_of_many_changes() -> None:
    fleet = make_fleet()
    watched = Watched(fleet)
    async with watching(watched, *[WatchRequest("shop")] * 100) as told:
        watched.publish(*(f"shop/gone-{number}" for number in range(50)))
        counts = [0]
        while counts[-1] < 100 * 50:
            await asyncio.sleep(0)
            counts.append(sum(map(len, told)))
    assert max(after - before for before, after in pairwise(counts)) <= REPLIES_OF_AN_ITERATION
