"""Instances that stop, die or freeze: another takes over what was theirs."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest

from spillway.addresses import PLACEMENTS
from spillway.api import ApplyRequest, RequestError, ScaleRequest
from spillway.events import PlacementDecided
from spillway.rpc.client import PlannerClient
from spillway_local.fleet_plan import deployment

from .running import NAMES, NAMESPACE, SERVICES, Platform, wait_until


class Unled(PlannerClient):
    """Asks the one planner that it is told, and does not follow to the leader that this one names."""

    def _note_trailer(self, endpoint: str, trailer: Any) -> str:
        return ""


@pytest.fixture(autouse=True)
async def _all_run(platform: Platform) -> AsyncIterator[None]:
    yield
    for name in SERVICES:
        await platform.start_program(name)


@pytest.mark.parametrize("way", ["SIGTERM", "SIGKILL"])
@pytest.mark.parametrize("kind", ["snapshot", "propagator"])
async def test_clusters_of_an_instance_that_ends_are_taken_over(platform: Platform, kind: str, way: str) -> None:
    """The other instance claims every cluster, capacity stays fresh, and a scale is carried out in all of them."""
    owners = {
        cluster: owner for cluster, owner in (await platform.turn_holders_by_cluster(kind)).items() if cluster in NAMES
    }
    assert set(owners) == set(NAMES)
    ended = min(owners.values())
    other = f"{kind}-2" if ended.endswith("1") else f"{kind}-1"
    await (platform.stop_program(ended) if way == "SIGTERM" else platform.kill_program_for_good(ended))

    async def are_taken_over() -> bool:
        now = await platform.turn_holders_by_cluster(kind)
        return {now[name] for name in NAMES} == {other}

    await wait_until(f"{other} has every cluster", are_taken_over)
    await platform.wait_until_all_ready()
    service = f"after-{kind}-{way.lower()}"
    await platform.planner.apply(ApplyRequest((deployment(service, NAMESPACE, 30),)))
    await platform.planner.scale(ScaleRequest(NAMESPACE, service, 300))
    assert set(await platform.wait_until_running(service, 300)) == set(NAMES)


async def test_the_standby_takes_over_from_a_dead_planner(platform: Platform) -> None:
    """The active planner dies for good: the other one decides, from the same log."""
    active = await platform.active_planner()
    await platform.planner.apply(ApplyRequest((deployment("heir", NAMESPACE, 10),)))
    await platform.kill_program_for_good(active)
    await platform.planner.scale(ScaleRequest(NAMESPACE, "heir", 40))
    assert await platform.active_planner() != active
    await platform.wait_until_running("heir", 40)


async def test_a_frozen_planner_that_wakes_writes_nothing(platform: Platform) -> None:
    """The standby's placement stands; what the frozen one was asked it answers with UNAVAILABLE; it is a standby."""
    active = await platform.active_planner()
    pid = platform.pid_of_program(active)
    await platform.planner.apply(ApplyRequest((deployment("thaw", NAMESPACE, 10),)))
    await platform.wait_until_running("thaw", 10)
    async with Unled((platform.endpoint_of_planner(active),), timeout_seconds=60, retry_seconds=0.1) as frozen:
        await frozen.scale(ScaleRequest(NAMESPACE, "thaw", 11))
        os.kill(pid, signal.SIGSTOP)
        try:
            asked = asyncio.create_task(frozen.scale(ScaleRequest(NAMESPACE, "thaw", 99)))
            await platform.planner.scale(ScaleRequest(NAMESPACE, "thaw", 40))
            await platform.wait_until_running("thaw", 40)
        finally:
            os.kill(pid, signal.SIGCONT)
        with pytest.raises(RequestError) as answered:
            await asked
        assert answered.value.code in ("UNAVAILABLE", "DEADLINE_EXCEEDED")
        await platform.wait_until_up(active)
        with pytest.raises(RequestError, match="standby") as refused:
            await frozen.scale(ScaleRequest(NAMESPACE, "thaw", 99))
        assert refused.value.code == "UNAVAILABLE"
    assert platform.pid_of_program(active) == pid
    _, shown = await platform.get_health_page(active, "/metrics")
    assert "\nspillway_workloads 0.0\n" in shown, "it counts nothing that another counts now"
    assert "\nspillway_clusters{" not in shown
    await platform.wait_until_running("thaw", 40)
    decided = [
        record.event.generation
        for record in await platform.read_records(PLACEMENTS)
        if isinstance(record.event, PlacementDecided) and record.event.name == "thaw"
    ]
    assert decided == sorted(decided)
