"""Near-line and offline work that Spillway places on lent nodes, and where it is once their owner has them back."""

import asyncio
import json
from typing import Any

import pytest

from sim.manifests import deployment
from spillway.api import ApplyRequest, JoinClusterRequest
from spillway.api_lending import DeclareLendingRequest
from spillway.events_lending import LendingRule
from spillway.kubernetes.objects import DEPLOYMENTS, NAMESPACES
from spillway.lending_marks import LENDING, POOL_TAINT, SUPPLY_CLASS
from spillway.model import SUPPLY_IDLE
from spillway_local import member_nodes
from spillway_local.fleet_plan import GIB, MemberPlan
from spillway_local.in_process import InProcess, in_process_platform

from .platform_steps import NAMESPACE, are_all_ready, list_pods, wait_until

pytestmark = pytest.mark.looptime

OWNER, POOL, CLOUD = "own-1", "pool", "cloud-1"
FLEET = (
    MemberPlan(OWNER, "own", (member_nodes.MemberNodes(3, "n", 4_000, 16 * GIB),), room=24),
    MemberPlan(POOL, "own", (member_nodes.MemberNodes(1, "p", 100, GIB),), room=0),
    MemberPlan(CLOUD, "cloud", (member_nodes.MemberNodes(2, "c", 8_000, 32 * GIB),), room=32),
)
CLASSES = {OWNER: "reserved", POOL: SUPPLY_IDLE, CLOUD: "cloud"}
"""The owner's own machines are of no class that such work uses."""
SERVICES = ("snapshot-1", "planner-1", "propagator-1", "descheduler-1", "vk-bridge-1")


def deployment_of_2_cores(name: str, replicas: int, **spec: Any) -> dict[str, Any]:
    made = deployment(name, replicas, cpu="2", **spec)
    made["metadata"]["namespace"] = NAMESPACE
    return made


async def submit_work(platform: InProcess, name: str, replicas: int, work: str) -> None:
    policy = {"apiVersion": "spillway.io/v1", "kind": "PlacementPolicy", "spec": {"work": work}}
    workload = deployment_of_2_cores(name, replicas, tolerations=[{"key": POOL_TAINT, "operator": "Exists"}])
    await platform.planner().apply(ApplyRequest((json.dumps(workload), json.dumps(policy))))


async def running_pods_by_cluster(platform: InProcess, name: str) -> dict[str, int]:
    """Its running pods by cluster; the real ones of a pool's run in the owner and are not told here."""
    found = {}
    for cluster in (POOL, CLOUD):
        mine = await list_pods(platform, cluster, name)
        found[cluster] = len([pod for pod in mine if pod["status"].get("phase") == "Running"])
    return found


def lent_node_count(platform: InProcess) -> int:
    """The owner's nodes that bear our taint."""
    nodes = platform.members[OWNER].objects("nodes")
    return sum(any(taint["key"] == LENDING for taint in one["spec"].get("taints") or ()) for one in nodes)


def counted_virtual_nodes(platform: InProcess) -> int:
    """Virtual nodes on which the planner would place."""
    nodes = platform.planner().state.cluster_view(POOL).nodes
    open_ones = nodes.live_mask & ~nodes.unlent & (nodes.unschedulable == 0)
    return sum(nodes.names[row].startswith(f"{OWNER}.") for row in open_ones.nonzero()[0].tolist())


async def test_near_line_work_moves_on_in_minutes_and_offline_work_waits_for_idle_nodes() -> None:
    async with in_process_platform(FLEET, SERVICES) as platform:
        await wait_until(lambda: platform.planner().is_active, "a planner is active")
        for name, supply_class in CLASSES.items():
            tier = "cloud" if name == CLOUD else "own"
            labels = ((SUPPLY_CLASS, supply_class),)
            await platform.planner().join_cluster(JoinClusterRequest(name, name, tier=tier, labels=labels))
        await wait_until(lambda: are_all_ready(platform), "every cluster is ready")
        await wait_until(lambda: platform.descheduler().is_active, "a descheduler is active")
        rule = LendingRule("all", (), SUPPLY_IDLE, 100, 0, 30, 0.0)
        await platform.descheduler().declare_lending(
            DeclareLendingRequest(OWNER, POOL, (rule,), grace_seconds=10, cooldown_seconds=60)
        )
        await wait_until(
            lambda: counted_virtual_nodes(platform) == 3, "all of its nodes are lent, and the planner counts them", 120
        )
        await submit_work(platform, "stream", 4, "NearLine")
        await submit_work(platform, "train", 2, "Offline")

        async def are_on_lent_nodes() -> bool:
            near_line, offline = (
                await running_pods_by_cluster(platform, "stream"),
                await running_pods_by_cluster(platform, "train"),
            )
            return (near_line, offline) == ({POOL: 4, CLOUD: 0}, {POOL: 2, CLOUD: 0})

        await wait_until(are_on_lent_nodes, "all of it runs on idle nodes, though the cloud has room")

        api = platform.member_api(OWNER)
        await api.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        made = await api.create(DEPLOYMENTS, deployment_of_2_cores("web", 6))
        began = asyncio.get_running_loop().time()

        async def has_moved_on() -> bool:
            return await running_pods_by_cluster(platform, "stream") == {POOL: 0, CLOUD: 4}

        await wait_until(has_moved_on, "near-line work runs in the cloud", 180)
        assert asyncio.get_running_loop().time() - began < 180
        assert lent_node_count(platform) == 0
        assert await running_pods_by_cluster(platform, "train") == {POOL: 0, CLOUD: 0}

        await api.delete(DEPLOYMENTS, NAMESPACE, "web", uid=made["metadata"]["uid"])

        async def is_going_on() -> bool:
            return await running_pods_by_cluster(platform, "train") == {POOL: 2, CLOUD: 0}

        await wait_until(is_going_on, "offline work goes on where something is idle again", 300)
