"""Somebody else's object of a workload's name in a member: the workload goes elsewhere, and seldom there again."""

import asyncio
import json
from itertools import pairwise
from typing import Any

import pytest

from planner.settings import PlannerSettings
from spillway.api import ApplyRequest, ScaleRequest
from spillway.clusters.api import DEPLOYMENTS
from spillway.kubernetes.objects import NAMESPACES
from spillway_local import member_nodes
from spillway_local.fleet_plan import GIB, MemberPlan, deployment
from spillway_local.in_process import InProcess, in_process_platform

from .platform_steps import NAMESPACE, bound_pods_by_cluster, join_members, wait_until

pytestmark = pytest.mark.looptime

NODES = (member_nodes.MemberNodes(1, "n", 4_000, 16 * GIB),)
TWO = (MemberPlan("own-1", "own", NODES, room=8), MemberPlan("cloud-1", "cloud", NODES, room=8))
PAUSES = PlannerSettings(hold_max_seconds=60, hold_not_owned_max_seconds=240, home_after_seconds=5)
BLOCKED = "Deployment web exists and is not this fleet's"


async def test_a_name_that_is_taken_is_tried_again_seldom_until_it_is_free() -> None:
    """Its home is own-1, where it is tried again after a pause, and after twice that; then the object goes."""
    async with in_process_platform(TWO, planner_settings=PAUSES) as platform:
        await join_members(platform)
        theirs = await create_object_of_same_name(platform, "own-1")
        await platform.planner().apply(ApplyRequest((deployment("web", NAMESPACE, 2),)))
        tries = await times_of_tries(platform, 300)
        pauses = [later - earlier for earlier, later in pairwise(tries)]
        assert len(pauses) == 2
        assert pauses[0] > 60
        assert pauses[1] > 120
        assert (await platform.member_api("own-1").get(DEPLOYMENTS, NAMESPACE, "web"))["spec"] == theirs["spec"]
        reply = await platform.planner().scale(ScaleRequest(NAMESPACE, "web", 3))
        assert [(part.cluster, part.replicas) for part in reply.parts] == [("cloud-1", 3)]
        why = {entry.cluster: entry.limited_by for entry in reply.inputs}["own-1"]
        assert why.startswith("held for ")
        assert why.endswith(BLOCKED)
        await platform.member_api("own-1").delete(DEPLOYMENTS, NAMESPACE, "web", uid=theirs["metadata"]["uid"])

        async def is_home() -> bool:
            return await bound_pods_by_cluster(platform, "web") == {"own-1": 3, "cloud-1": 0}

        await wait_until(is_home, "it went home where its name is free", 400)


async def create_object_of_same_name(platform: InProcess, cluster: str) -> dict[str, Any]:
    api = platform.member_api(cluster)
    await api.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    return await api.create(DEPLOYMENTS, json.loads(deployment("web", NAMESPACE, 1)))


async def times_of_tries(platform: InProcess, seconds: float) -> list[float]:
    """When replicas began to be kept in own-1, by the test's clock."""
    loop, tries = asyncio.get_running_loop(), []
    until_then, was_there = loop.time() + seconds, False
    while loop.time() < until_then:
        state = platform.planner().state
        part = state.workloads[NAMESPACE, "web"].parts.get("own-1")
        is_there = part is not None and part.replicas_kept > 0
        if is_there and not was_there:
            tries.append(loop.time())
        was_there = is_there
        await asyncio.sleep(1)
    return tries
