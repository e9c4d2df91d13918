"""Objects of ours that no placement lists: said, taken back when they are gone, never touched."""

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from spillway.cluster_api import DEPLOYMENTS
from spillway.events import ClusterJoined, ClusterLeft
from spillway.model import Generation

pytestmark = pytest.mark.looptime

Test = Callable[[Any], Awaitable[None]]


def with_orphan(test: Test) -> Test:
    """A workload of three in own-1 whose placement is forgotten by nobody's decision."""

    @functools.wraps(test)
    async def run(fleet: Any) -> None:
        async with fleet:
            await fleet.declare()
            await fleet.place(1, {"own-1": 3})
            await fleet.start()
            await asyncio.sleep(5)
            await fleet.forget_placement()
            await asyncio.sleep(5)
            await test(fleet)

    return run


def tombstones(fleet: Any) -> list[str]:
    return [record.key for record in fleet.said if record.event is None]


@with_orphan
async def test_it_is_said_and_left(fleet: Any) -> None:
    assert fleet.state() == ("Orphaned", "1.1", "")
    status = fleet.status()
    assert (status.spec_replicas, status.replicas, status.ready) == (3, 3, 3)
    writes, said = len(fleet.transports["own-1"].writes), len(fleet.said)
    await asyncio.sleep(600)
    assert len(fleet.transports["own-1"].writes) == writes
    assert len(fleet.said) == said
    assert fleet.replicas("own-1") == 3


@with_orphan
async def test_it_is_taken_back_when_the_object_is_gone(fleet: Any) -> None:
    before = len(tombstones(fleet))
    await fleet.api("own-1").delete(DEPLOYMENTS, "default", "web", uid="", resource_version="")
    await asyncio.sleep(5)
    assert tombstones(fleet)[before:] == ["default/web/own-1"]


@with_orphan
async def test_a_placement_that_lists_it_again_makes_it_an_ordinary_one(fleet: Any) -> None:
    await fleet.place(2, {"own-1": 3})
    await asyncio.sleep(5)
    assert fleet.state() == ("Present", "1.2", "")


@with_orphan
async def test_another_owner_says_it_as_well_and_what_went_meanwhile_is_taken_back(fleet: Any) -> None:
    await fleet.kill()
    await fleet.api("own-1").delete(DEPLOYMENTS, "default", "web", uid="", resource_version="")
    before = len(tombstones(fleet))
    await fleet.start("p2")
    await asyncio.sleep(60)
    assert tombstones(fleet)[before:] == ["default/web/own-1"]


@with_orphan
async def test_a_cluster_that_left_takes_what_was_said_along_and_says_it_again_when_it_is_back(fleet: Any) -> None:
    before = len(tombstones(fleet))
    await fleet.planner.publish(ClusterLeft("own-1"))
    await asyncio.sleep(5)
    assert tombstones(fleet)[before:] == ["default/web/own-1"]
    await fleet.planner.publish(ClusterJoined("own-1", "own-1", "https://own-1", "own", "", "", (), ()))
    await asyncio.sleep(10)
    assert fleet.state() == ("Orphaned", "1.1", "")
    assert fleet.replicas("own-1") == 3


@with_orphan
async def test_of_a_workload_that_is_placed_elsewhere_it_is_an_orphan_too(fleet: Any) -> None:
    """As after `cluster leave --lost`, when the cluster is back."""
    await fleet.place(2, {"own-2": 2})
    await asyncio.sleep(10)
    assert fleet.state("own-1") == ("Orphaned", "1.1", "")
    assert fleet.state("own-2") == ("Present", "1.2", "")
    assert fleet.status("own-1").version == Generation(1, 1)
    assert fleet.replicas("own-1") == 3


@with_orphan
async def test_a_cluster_that_left_takes_along_what_was_said_of_a_workload_placed_elsewhere(fleet: Any) -> None:
    """It was said as long as the workload was declared: an orphan of no cluster."""
    await fleet.place(2, {"own-2": 2})
    await asyncio.sleep(10)
    before = len(tombstones(fleet))
    await fleet.planner.publish(ClusterLeft("own-1"))
    await asyncio.sleep(5)
    assert tombstones(fleet)[before:] == ["default/web/own-1"]
    assert fleet.state("own-2") == ("Present", "1.2", "")
