"""Idle nodes are lent, a pool's pods run there, and the owner's own pods get them back: all services in one process."""

import asyncio
from typing import Any

import pytest

import vk_bridge.settings
from sim.manifests import deployment, pod
from sim.settings import SidecarSpec
from spillway.api_lending import DeclareLendingRequest
from spillway.events_lending import LendingRule
from spillway.kubernetes.objects import DEPLOYMENTS, NAMESPACES, PODS
from spillway.lending_marks import LENDING, POOL_TAINT
from spillway_local import member_nodes
from spillway_local.fleet_plan import GIB, MemberPlan
from spillway_local.in_process import InProcess, in_process_platform

from .platform_steps import NAMESPACE, join_members, wait_until

pytestmark = pytest.mark.looptime

OWNER, POOL = "own-1", "own-2"
FLEET = (
    MemberPlan(OWNER, "own", (member_nodes.MemberNodes(4, "n", 4_000, 16 * GIB),), room=32),
    MemberPlan(POOL, "own", (member_nodes.MemberNodes(1, "n", 4_000, 16 * GIB),), room=8),
)
SERVICES = ("snapshot-1", "planner-1", "descheduler-1", "vk-bridge-1", "vk-bridge-2")
GRACE_SECONDS = 10
DAEMON_SET = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "agent", "controller": True}
TOLERATIONS = [{"key": POOL_TAINT, "operator": "Exists"}]
ONE_NODE = (
    MemberPlan(OWNER, "own", (member_nodes.MemberNodes(1, "n", 4_000, 16 * GIB),), room=8),
    MemberPlan(POOL, "own", (member_nodes.MemberNodes(1, "n", 100, 16 * GIB),), room=0),
)


def deployment_of_2_cores(name: str, replicas: int, **spec: Any) -> dict[str, Any]:
    made = deployment(name, replicas, cpu="2", **spec)
    made["metadata"]["namespace"] = NAMESPACE
    return made


async def create_pod(platform: InProcess, cluster: str, name: str, **spec: Any) -> None:
    """One pod, of 2 cores unless it says otherwise."""
    made = pod(name, **{"cpu": "2", **spec})
    made["metadata"]["namespace"] = NAMESPACE
    await platform.member_api(cluster).create(PODS, made)


def phase_of_pod(platform: InProcess, cluster: str, name: str) -> str:
    found = platform.members[cluster].get_object("pods", name, NAMESPACE)
    return str(found["status"].get("phase", "")) if found is not None else ""


async def declare_lending(platform: InProcess, reserve_nodes: int = 1) -> None:
    rule = LendingRule("all", (), "idle", 100, reserve_nodes, 30, 0.0)
    await wait_until(lambda: platform.descheduler().is_active, "a descheduler is active")
    await platform.descheduler().declare_lending(
        DeclareLendingRequest(OWNER, POOL, (rule,), grace_seconds=GRACE_SECONDS, cooldown_seconds=600)
    )


async def join_with_namespaces(platform: InProcess) -> None:
    """Both have joined, and have the tests' namespace."""
    await join_members(platform)
    for name in (OWNER, POOL):
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        await platform.member_api(name).create(NAMESPACES, namespace)


def nodes_on_loan(platform: InProcess) -> list[str]:
    """The owner's nodes that bear our taint."""
    nodes = platform.members[OWNER].objects("nodes")
    return [
        one["metadata"]["name"]
        for one in nodes
        if any(taint["key"] == LENDING for taint in one["spec"].get("taints") or ())
    ]


def nodes_with_running_pods(platform: InProcess, cluster: str, app: str) -> list[str]:
    """The nodes on which pods of an app run."""
    return sorted(
        one["spec"]["nodeName"]
        for one in platform.members[cluster].objects("pods")
        if one["metadata"].get("labels", {}).get("app") == app and one["status"]["phase"] == "Running"
    )


def virtual_node_names(platform: InProcess) -> list[str]:
    names = (one["metadata"]["name"] for one in platform.members[POOL].objects("nodes"))
    return sorted(name for name in names if name.startswith(f"{OWNER}."))


async def test_idle_nodes_are_lent_and_come_back_when_their_owner_scales_up() -> None:
    async with in_process_platform(FLEET, SERVICES, bridge_settings=vk_bridge.settings.VkBridgeSettings()) as platform:
        await join_with_namespaces(platform)
        await declare_lending(platform)
        await wait_until(lambda: len(virtual_node_names(platform)) == 3, "all but the reserve are lent", 120)
        await platform.member_api(POOL).create(DEPLOYMENTS, deployment_of_2_cores("encode", 8, tolerations=TOLERATIONS))
        await wait_until(
            lambda: len(nodes_with_running_pods(platform, POOL, "encode")) == 8, "offline pods run in the pool"
        )
        assert set(virtual_node_names(platform)) <= set(nodes_with_running_pods(platform, POOL, "encode"))
        assert len(nodes_with_running_pods(platform, OWNER, "encode")) == 6

        await platform.member_api(OWNER).create(DEPLOYMENTS, deployment_of_2_cores("web", 4))
        began = asyncio.get_running_loop().time()
        await wait_until(lambda: len(nodes_with_running_pods(platform, OWNER, "web")) == 4, "the owner's pods run")
        assert asyncio.get_running_loop().time() - began <= GRACE_SECONDS + 15
        assert len(nodes_on_loan(platform)) == 2, "one node came back for two pods, no more than were needed"
        assert set(nodes_with_running_pods(platform, OWNER, "web")).isdisjoint(
            nodes_with_running_pods(platform, OWNER, "encode")
        )
        await wait_until(lambda: len(virtual_node_names(platform)) == 2, "its virtual node is gone")
        await wait_until(
            lambda: len(nodes_with_running_pods(platform, POOL, "encode")) == 6,
            "offline pods that lost their place wait",
        )


async def test_no_node_goes_back_to_a_pod_for_which_its_daemons_leave_no_room() -> None:
    """Though on it a pool's pod has ended, and another one waits for its Secret: neither holds anything there."""
    settings = vk_bridge.settings.VkBridgeSettings(carried_prefixes=("sim/",))
    async with in_process_platform(ONE_NODE, SERVICES, bridge_settings=settings) as platform:
        await join_with_namespaces(platform)
        (node,) = (one["metadata"]["name"] for one in platform.members[OWNER].objects("nodes"))
        daemon = pod("agent", cpu="1", nodeName=node)
        daemon["metadata"] |= {"namespace": NAMESPACE, "ownerReferences": [DAEMON_SET]}
        await platform.member_api(OWNER).create(PODS, daemon)
        await declare_lending(platform, reserve_nodes=0)
        await wait_until(lambda: len(virtual_node_names(platform)) == 1, "the node is lent", 120)
        over = pod("over", cpu="2", tolerations=TOLERATIONS, restartPolicy="Never")
        over["metadata"] |= {"namespace": NAMESPACE, "annotations": {"sim/run-seconds": "5"}}
        await platform.member_api(POOL).create(PODS, over)
        await wait_until(lambda: phase_of_pod(platform, POOL, "over") == "Succeeded", "a pool's pod has ended there")
        volumes = [{"name": "key", "secret": {"secretName": "key"}}]
        await create_pod(platform, POOL, "waits", tolerations=TOLERATIONS, volumes=volumes)
        await create_pod(platform, OWNER, "large", cpu="3500m")
        for _ in range(60):
            await asyncio.sleep(1)
            assert nodes_on_loan(platform) == [node]
            assert len(virtual_node_names(platform)) == 1, "taken back for a pod that does not fit it"
        assert phase_of_pod(platform, OWNER, "large") == "Pending"


async def test_a_node_goes_back_to_a_pod_that_needs_all_of_it_though_its_owner_makes_pods_larger() -> None:
    """The pool's pod asks for 2 cores, and holds 3."""
    async with in_process_platform(
        ONE_NODE, SERVICES, bridge_settings=vk_bridge.settings.VkBridgeSettings()
    ) as platform:
        await join_with_namespaces(platform)
        await declare_lending(platform, reserve_nodes=0)
        await wait_until(lambda: len(virtual_node_names(platform)) == 1, "the node is lent", 120)
        platform.members[OWNER].inject_sidecar(SidecarSpec(cpu_millis=1000, memory_bytes=0))
        await create_pod(platform, POOL, "work", tolerations=TOLERATIONS)
        await wait_until(lambda: phase_of_pod(platform, POOL, "work") == "Running", "a pool's pod runs there")
        platform.members[OWNER].inject_sidecar(None)
        await create_pod(platform, OWNER, "large", cpu="4")
        await wait_until(lambda: phase_of_pod(platform, OWNER, "large") == "Running", "it has the node")
