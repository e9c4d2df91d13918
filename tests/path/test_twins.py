"""One API server that joined under two names, in one process and virtual time."""

import asyncio
import sys
from pathlib import Path

import pytest

from spillway.api import ApplyRequest, JoinClusterRequest, LeaveClusterRequest, ListClustersRequest
from spillway_local import member_nodes
from spillway_local.fleet_plan import GIB, MemberPlan, deployment
from spillway_local.in_process import InProcess, in_process

sys.path.insert(0, str(Path(__file__).parent))
from platform_steps import NAMESPACE, pods, until

pytestmark = pytest.mark.looptime

OWN = tuple(
    MemberPlan(name, "own", (member_nodes.NodeSpec(2, "n", 4_000, 16 * GIB),), room=16) for name in ("own-1", "own-2")
)


async def shown(platform: InProcess) -> dict[str, tuple[str, str]]:
    clusters = (await platform.planner().list_clusters(ListClustersRequest())).clusters
    return {one.cluster: (one.state, one.trouble) for one in clusters}


async def test_its_nodes_count_once_and_what_is_asked_runs() -> None:
    async with in_process(OWN) as platform:
        await until(lambda: platform.planner().is_active, "a planner is active")
        platform.members["a-twin"] = platform.members["own-1"]
        for name in ("own-1", "own-2", "a-twin"):
            await platform.planner().join_cluster(JoinClusterRequest(name, name, tier="own"))
        expected = {
            "own-1": ("Ready", ""),
            "own-2": ("Ready", ""),
            "a-twin": ("Duplicate", "the same API server as own-1"),
        }

        async def is_known() -> bool:
            return await shown(platform) == expected

        await until(is_known, "the twin is known")
        reply = await platform.planner().apply(ApplyRequest((deployment("web", NAMESPACE, 40, cpu="500m"),)))
        assert {part.cluster: part.replicas for part in reply.parts} == {"own-1": 16, "own-2": 16}
        assert reply.unplaced == 8

        async def run() -> bool:
            counts = [len(await pods(platform, name, "web")) for name in ("own-1", "own-2")]
            return counts == [16, 16]

        await until(run, "what is placed runs")
        await platform.planner().leave_cluster(LeaveClusterRequest("a-twin", False))

        async def has_left() -> bool:
            return "a-twin" not in await shown(platform)

        await until(has_left, "the twin has left")
        await asyncio.sleep(60)
        assert await run(), "its leaving removes nothing"
        del platform.members["a-twin"]
