"""Brakes in one process and virtual time: in force when answered, kept over a killed planner, seen by people."""

import asyncio
import sys
from pathlib import Path

import pytest

from spillway.api import (
    ApplyRequest,
    DeleteRequest,
    FreezeRequest,
    JoinClusterRequest,
    ListBrakesRequest,
    ListClustersRequest,
    ScaleRequest,
    SetClusterPhaseRequest,
    UnfreezeRequest,
)
from spillway_local import member_nodes
from spillway_local.fleet_plan import GIB, MemberPlan, deployment
from spillway_local.in_process import InProcess, in_process

sys.path.insert(0, str(Path(__file__).parent))
from platform_steps import NAMESPACE, bound, join, until

pytestmark = pytest.mark.looptime

SMALL = (
    MemberPlan("own-1", "own", (member_nodes.NodeSpec(4, "n", 4_000, 16 * GIB),), room=32),
    MemberPlan("own-2", "own", (member_nodes.NodeSpec(4, "n", 4_000, 16 * GIB),), room=32),
)
TWO_PLANNERS = ("snapshot-1", "planner-1", "planner-2", "propagator-1")


def request(name: str, replicas: int) -> ApplyRequest:
    return ApplyRequest((deployment(name, NAMESPACE, replicas, cpu="500m"),))


async def kill_active(platform: InProcess) -> None:
    """The active planner is gone at once; returns when another has the turn."""
    active = next(name for name, entry in platform.running.items() if entry.service is platform.planner())
    await platform.kill(active)
    await until(lambda: platform.planner().is_active, "another planner is active")


async def test_a_brake_is_in_force_when_it_is_answered_and_outlives_the_planner() -> None:
    """freeze, kill the planner: the next one holds what the first held, until somebody says unfreeze."""
    async with in_process(SMALL, TWO_PLANNERS) as platform:
        await join(platform)
        await platform.planner().apply(request("web", 20))
        scopes = ("fleet", "cluster/own-1", f"workload/{NAMESPACE}/web")
        for scope in scopes:
            assert (await platform.planner().freeze(FreezeRequest(scope, "audit"))).frozen
            assert scope in platform.planner().state.brakes.brakes
        await kill_active(platform)
        shown = await platform.planner().list_brakes(ListBrakesRequest())
        assert [(brake.scope, brake.reason, brake.by) for brake in shown.brakes] == [
            (scope, "audit", "local") for scope in ("cluster/own-1", "fleet", f"workload/{NAMESPACE}/web")
        ]
        assert not shown.stale
        assert platform.planner().state.brakes.frozen("own-2", ("other", "one"))
        for scope in scopes:
            await platform.planner().unfreeze(UnfreezeRequest(scope))
        platform.start("planner-3")
        await asyncio.sleep(5)
        await kill_active(platform)
        assert (await platform.planner().list_brakes(ListBrakesRequest())).brakes == ()


async def test_under_a_frozen_fleet_people_still_get_what_they_ask_for() -> None:
    """Apply, Scale and Delete are carried out in a frozen fleet."""
    async with in_process(SMALL) as platform:
        await join(platform)
        planner = platform.planner()
        await planner.freeze(FreezeRequest("fleet", "audit"))
        await planner.apply(request("web", 20))

        async def running(replicas: int) -> bool:
            return sum((await bound(platform, "web")).values()) == replicas

        await until(lambda: running(20), "20 replicas run")
        await planner.scale(ScaleRequest(NAMESPACE, "web", 40))
        await until(lambda: running(40), "40 replicas run")
        await planner.delete(DeleteRequest(NAMESPACE, "web"))
        await until(lambda: running(0), "none runs")


async def test_a_clusters_phase_outlives_the_planner_and_a_join() -> None:
    """Cordon, kill the planner, join again: the cluster stays cordoned."""
    async with in_process(SMALL, TWO_PLANNERS) as platform:
        await join(platform)
        await platform.planner().set_cluster_phase(SetClusterPhaseRequest("own-1", "Cordoned"))
        await kill_active(platform)
        await platform.planner().join_cluster(JoinClusterRequest("own-1", "own-1", tier="own", region="eu"))
        clusters = (await platform.planner().list_clusters(ListClustersRequest())).clusters
        assert [(entry.cluster, entry.phase, entry.region) for entry in clusters] == [
            ("own-1", "Cordoned", "eu"),
            ("own-2", "Active", ""),
        ]
