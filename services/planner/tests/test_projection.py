"""Histories in the store: each decision once, in the log's order, whoever told it first."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from planner.api.past_decisions import PastDecisions
from planner.core.knowledge.rules import PlannerRules
from planner.core.knowledge.state import PlannerState
from planner.log.projection import HistoryBounds, Projection
from spillway.bus import Writer
from spillway.events import DecisionRecorded
from spillway.local_bus import LocalBroker, LocalBus
from spillway.model import Generation
from spillway.store import MemoryStore

pytestmark = pytest.mark.looptime

SETTLED = 5
"""Seconds, in virtual time, in which all is written that is to be written."""
BOUNDS = HistoryBounds(kept_max=5, gone_seconds=600, waiting_max=3)


def decision_recorded(sequence: int, name: str = "web") -> DecisionRecorded:
    return DecisionRecorded("shop", name, Generation(1, sequence), sequence, "Apply", sequence, 0, (), (), "", "")


@asynccontextmanager
async def running_projection() -> AsyncIterator[tuple[Projection, MemoryStore, Writer]]:
    bus, store = LocalBus(LocalBroker(), "fleet", "test"), MemoryStore()
    projection = Projection(bus, store, lambda: PlannerState(PlannerRules()), BOUNDS)
    async with bus.join_standby_group("planner", "a") as turn:
        running = asyncio.create_task(projection.run(lambda: True))
        yield projection, store, await turn.wait_for_turn()
        running.cancel()
        await asyncio.wait({running})


async def recorded_replicas(store: MemoryStore, name: str = "web") -> list[int]:
    await asyncio.sleep(SETTLED)
    return [event.replicas for event in await PastDecisions(store, 1, 1).read_all("shop", name, 9)]


async def test_what_was_read_is_not_added_when_it_is_told() -> None:
    """A commit may be read before who wrote it goes on."""
    async with running_projection() as (projection, store, writer):
        await writer.write_events([decision_recorded(1), decision_recorded(2), decision_recorded(3)])
        assert await recorded_replicas(store) == [3, 2, 1]
        projection.queue_decisions([decision_recorded(2), decision_recorded(3)])
        await writer.write_events([decision_recorded(4)])
        projection.queue_decisions([decision_recorded(4)])
        assert await recorded_replicas(store) == [4, 3, 2, 1]


async def test_what_is_told_is_not_read_back() -> None:
    """It is in the store though no log has it, and the newest are kept."""
    async with running_projection() as (projection, store, _):
        await asyncio.sleep(SETTLED)
        for sequence in range(1, 7):
            projection.queue_decisions([decision_recorded(sequence)])
            await asyncio.sleep(0.01)
        assert await recorded_replicas(store) == [6, 5, 4, 3, 2]


async def test_more_than_may_wait_is_read_from_the_log() -> None:
    async with running_projection() as (projection, store, writer):
        await asyncio.sleep(SETTLED)
        events = [decision_recorded(sequence) for sequence in range(1, 6)]
        await writer.write_events(events)
        projection.queue_decisions(events[:1])
        projection.queue_decisions(events[1:])
        assert await recorded_replicas(store) == [5, 4, 3, 2, 1]


async def test_a_turn_reads_all_again() -> None:
    """Others wrote meanwhile, and this instance was told of none of it."""
    async with running_projection() as (projection, store, writer):
        await writer.write_events([decision_recorded(1)])
        assert await recorded_replicas(store) == [1]
        await writer.write_events([decision_recorded(2)])
        assert await recorded_replicas(store) == [1]
        projection.begin_turn()
        assert await recorded_replicas(store) == [2, 1]


async def test_a_store_that_is_back_has_what_it_missed() -> None:
    async with running_projection() as (projection, store, writer):
        await asyncio.sleep(SETTLED)
        store.available = False
        await writer.write_events([decision_recorded(1)])
        projection.queue_decisions([decision_recorded(1)])
        await asyncio.sleep(2)
        store.available = True
        assert await recorded_replicas(store) == [1]
