"""Offline work follows what is idle, end to end in virtual time: capacity → planner → load → hpa → planner → pods."""

import asyncio
import json

import looptime  # noqa: F401 - the plugin makes an hour of waiting take milliseconds
import pytest

from spillway.api import ApplyRequest, DeleteRequest
from spillway.api_scaling import DeclarePolicyRequest, ExplainPolicyRequest
from spillway_local.fleet_plan import GIB, MemberPlan, deployment
from spillway_local.in_process import SERVICES, InProcess, in_process_platform
from spillway_local.member_nodes import MemberNodes

from .platform_steps import NAMESPACE, bound_pods_by_cluster, join_members, wait_until

pytestmark = pytest.mark.looptime

FLEET = (MemberPlan("own-1", "own", (MemberNodes(2, "own-1-node", 4_000, 16 * GIB),), room=16),)
POLICY = json.dumps(
    {
        "apiVersion": "spillway.io/v1",
        "kind": "ScalePolicy",
        "metadata": {"name": "offline", "namespace": NAMESPACE},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "offline"},
            "maxReplicas": 100,
            "headroom": [{"supplyClass": "dedicated", "percent": 50}],
        },
    }
)


async def wait_until_running(platform: InProcess, replicas: int) -> None:
    async def has_replicas() -> bool:
        return sum((await bound_pods_by_cluster(platform, "offline")).values()) == replicas

    await wait_until(has_replicas, f"{replicas} offline replicas run", seconds=180)


async def test_offline_work_grows_into_idle_room_and_gives_way_to_its_owner() -> None:
    async with in_process_platform(FLEET, services=(*SERVICES, "hpa-1")) as platform:
        await join_members(platform)
        planner, hpa = platform.planner(), platform.hpa()
        await planner.apply(ApplyRequest((deployment("offline", NAMESPACE, 0),)))
        await wait_until(lambda: hpa.is_active, "an hpa is active")
        await hpa.declare_policy(DeclarePolicyRequest(POLICY))
        await wait_until_running(platform, 8)
        told = await hpa.explain_policy(ExplainPolicyRequest(NAMESPACE, "offline"))
        assert told.metrics[0].detail == "dedicated: room for 16 in all"
        await planner.apply(ApplyRequest((deployment("online", NAMESPACE, 8),)))
        await wait_until_running(platform, 4)
        told = await hpa.explain_policy(ExplainPolicyRequest(NAMESPACE, "offline"))
        await asyncio.sleep(300)
        later = await hpa.explain_policy(ExplainPolicyRequest(NAMESPACE, "offline"))
        assert later.changed_ms == told.changed_ms, "while load and capacity are constant nothing is decided"
        assert later.metrics[0].detail == "dedicated: room for 8 in all"
        await planner.delete(DeleteRequest(NAMESPACE, "online"))
        await wait_until_running(platform, 8)
