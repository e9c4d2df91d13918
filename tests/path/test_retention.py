"""What retention deletes ends no service: in one process and virtual time."""

import asyncio
import sys
from pathlib import Path

import pytest

from spillway.addresses import CAPACITY_CHANGES
from spillway.api import ApplyRequest, GetRequest, ListClustersRequest
from spillway.bus import partition_of
from spillway_local.fleet_plan import deployment
from spillway_local.in_process import InProcess, in_process

sys.path.insert(0, str(Path(__file__).parent))
from platform_steps import NAMESPACE, all_ready, bound, join, until

pytestmark = pytest.mark.looptime


async def state_of(platform: InProcess, name: str) -> str:
    clusters = (await platform.planner().list_clusters(ListClustersRequest())).clusters
    return next(one.state for one in clusters if one.cluster == name)


async def placed(platform: InProcess, name: str) -> dict[str, int]:
    reply = await platform.planner().get(GetRequest(NAMESPACE, name))
    return {part.cluster: part.replicas for part in reply.placement.parts if part.replicas}


async def test_all_start_anew_beside_a_cluster_that_does_not_answer_though_its_changes_are_gone() -> None:
    """Nothing new goes there until it answers, and what runs there stays."""
    starting = ("planner-1", "snapshot-1", "descheduler-1")
    async with in_process(services=(*starting, "propagator-1", "hpa-1")) as platform:
        await join(platform)
        await platform.planner().apply(ApplyRequest((deployment("web", NAMESPACE, 40),)))
        await until(lambda: bound_of(platform, "web", 40), "all of web runs")
        before = await placed(platform, "web")
        assert before["own-1"]
        await platform.silence("own-1")
        for name in starting:
            await platform.stop(name)
        platform.start("snapshot-2")
        await asyncio.sleep(60)
        place = partition_of("own-1", platform.broker.partition_count(CAPACITY_CHANGES))
        platform.broker.delete_before(CAPACITY_CHANGES, place, platform.broker.end(CAPACITY_CHANGES.name, place))
        for name in ("planner-2", "descheduler-2", "hpa-2"):
            platform.start(name)
        await until(lambda: platform.planner().is_active and platform.descheduler().is_active, "both are active")
        assert await state_of(platform, "own-1") in ("Stale", "Unreachable")
        await until(lambda: state_is(platform, "cloud-1", "Ready"), "another cluster is ready")
        await platform.planner().apply(ApplyRequest((deployment("new", NAMESPACE, 10),)))
        assert "own-1" not in await placed(platform, "new")
        await asyncio.sleep(60)
        assert await placed(platform, "web") == before
        await platform.wake("own-1")
        await until(lambda: all_ready(platform), "every cluster is ready again")
        assert (await bound(platform, "web"))["own-1"] == before["own-1"]
        assert not [name for name, one in platform.running.items() if one.task.done()]


async def bound_of(platform: InProcess, service: str, replicas: int) -> bool:
    return sum((await bound(platform, service)).values()) == replicas


async def state_is(platform: InProcess, name: str, state: str) -> bool:
    return await state_of(platform, name) == state
