"""An owner's own pods wait, and the nodes that they need are recalled: from the member's API to the log."""

from typing import Any

import pytest

from sim.settings import Taint
from spillway.api import ApplyRequest, LeaveClusterRequest, ListClustersRequest, ScaleRequest
from spillway.api_lending import (
    DeclareLendingRequest,
    ListLendingRequest,
    ListLentRequest,
    RecallRequest,
    WithdrawLendingRequest,
)
from spillway.events_lending import LOAN_LENT, LendingRule, NodeLent
from spillway.kubernetes.objects import DEPLOYMENTS, NAMESPACES, NODES
from spillway.lending_marks import LENDING, LENT, LENT_CLUSTER, virtual_node_name
from spillway.local_bus import LocalBus
from spillway.model import Generation
from spillway_local import member_nodes
from spillway_local.fleet_plan import GIB, MemberPlan, deployment
from spillway_local.in_process import FLEET_ID, InProcess, in_process_platform

from .platform_steps import NAMESPACE, bound_pods_by_cluster, join_members, wait_until

pytestmark = pytest.mark.looptime

OWNER = "own-1"
FLEET = (
    MemberPlan(OWNER, "own", (member_nodes.MemberNodes(4, "n", 4_000, 16 * GIB),), room=32),
    MemberPlan("own-2", "own", (member_nodes.MemberNodes(1, "n", 4_000, 16 * GIB),), room=8),
)
CLOUD = MemberPlan("cloud-1", "cloud", (member_nodes.MemberNodes(4, "n", 8_000, 32 * GIB),), room=64)
LENT_NODES = ("n-2", "n-3")


def deployment_of_2_cores(replicas: int) -> dict[str, Any]:
    container = {"name": "main", "image": "app:1", "resources": {"requests": {"cpu": "2"}}}
    template = {"metadata": {"labels": {"app": "batch"}}, "spec": {"containers": [container]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "batch", "namespace": NAMESPACE},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "batch"}}, "template": template},
    }


async def lend_nodes(platform: InProcess) -> None:
    """As a bridge does it: the owner's nodes bear the mark, and the log names each loan."""
    bridge = LocalBus(platform.broker, FLEET_ID, "bridge")
    for sequence, node in enumerate(LENT_NODES):
        platform.members[OWNER].taint(node, Taint(LENDING, LENT, "NoSchedule"))
        await bridge.publish(
            NodeLent(
                cluster=OWNER,
                node=node,
                epoch=1,
                sequence=sequence,
                loan=Generation(1, sequence),
                pool="own-2",
                virtual_node=virtual_node_name(OWNER, node),
                rule="all",
                supply_class="idle",
                state=LOAN_LENT,
                cause="",
                offered=(("cpu", 4000),),
                pods=(),
                lent_ms=platform.wall_ms(),
                recalled_ms=0,
                waiting="",
            )
        )


async def recalls_in_log(platform: InProcess) -> list[tuple[str, tuple[str, ...]]]:
    reply = await platform.descheduler().list_lent(ListLentRequest(OWNER))
    return [(node.node, node.wanted_by) for node in reply.nodes if node.state == "Recalled"]


async def test_who_finds_no_free_node_gets_one_back_and_who_finds_one_does_not() -> None:
    services = ("snapshot-1", "planner-1", "descheduler-1", "descheduler-2")
    async with in_process_platform(FLEET, services) as platform:
        await join_members(platform)
        await lend_nodes(platform)
        await wait_until(lambda: platform.descheduler().is_active, "a descheduler is active")
        api = platform.member_api(OWNER)
        await api.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        await api.create(DEPLOYMENTS, deployment_of_2_cores(6))
        await wait_until(lambda: _is_one_recalled(platform), "one of the two nodes is recalled")
        ((node, wanted_by),) = await recalls_in_log(platform)
        assert wanted_by[0].startswith(f"{OWNER}/ReplicaSet/{NAMESPACE}/")
        platform.members[OWNER].untaint(node, LENDING)
        await wait_until(lambda: _are_bound_in_owner(platform, 6), "its pods run")
        assert len(await recalls_in_log(platform)) == 1, "the other node stays lent"
        reply = await platform.descheduler().recall(RecallRequest(OWNER, reason="all of them"))
        assert (reply.changed, len(reply.nodes)) == (2, 2), "a recall for a need becomes one by name"


async def test_a_service_that_scales_up_runs_on_returned_nodes_and_none_of_it_in_the_cloud() -> None:
    """Planner → CapacityNeeded → descheduler → recalls; the nodes are back → planner → pods."""
    services = ("snapshot-1", "planner-1", "propagator-1", "descheduler-1")
    async with in_process_platform((*FLEET, CLOUD), services) as platform:
        await join_members(platform)
        await lend_nodes(platform)
        await wait_until(lambda: platform.descheduler().is_active, "a descheduler is active")
        await platform.planner().apply(ApplyRequest((deployment("web", NAMESPACE, 4, cpu="2"),)))
        await wait_until(
            lambda: _are_bound_as(platform, {"own-1": 3, "own-2": 1, "cloud-1": 0}), "it runs on free nodes"
        )
        await platform.planner().scale(ScaleRequest(NAMESPACE, "web", 10))
        await wait_until(
            lambda: _are_both_recalled(platform), "both nodes are recalled for the four that have no place"
        )
        assert {name for _, names in await recalls_in_log(platform) for name in names} == {f"{OWNER}/{NAMESPACE}/web"}
        for node in LENT_NODES:
            platform.members[OWNER].untaint(node, LENDING)
        await wait_until(lambda: _are_bound_as(platform, {"own-1": 8, "own-2": 2, "cloud-1": 0}), "all run at home")


async def test_what_overflowed_to_the_cloud_asks_lent_nodes_home_and_follows_them() -> None:
    """Nodes that are lent the moment that they are idle: at home there is never room for as long as homing waits."""
    services = ("snapshot-1", "planner-1", "propagator-1", "descheduler-1")
    async with in_process_platform((*FLEET, CLOUD), services) as platform:
        await join_members(platform)
        for node in LENT_NODES:
            platform.members[OWNER].taint(node, Taint("repair", "", "NoSchedule"))
        await wait_until(lambda: platform.descheduler().is_active, "a descheduler is active")
        await wait_until(lambda: _are_nodes_free(platform, 2), "the planner sees that two nodes are not to be used")
        await platform.planner().apply(ApplyRequest((deployment("web", NAMESPACE, 9, cpu="2"),)))
        await wait_until(
            lambda: _are_bound_as(platform, {"own-1": 4, "own-2": 2, "cloud-1": 3}), "three are in the cloud"
        )
        await lend_nodes(platform)
        for node in LENT_NODES:
            platform.members[OWNER].untaint(node, "repair")
        await wait_until(lambda: _are_both_recalled(platform), "both nodes are recalled for them")
        assert {name for _, names in await recalls_in_log(platform) for name in names} == {f"{OWNER}/{NAMESPACE}/web"}
        for node in LENT_NODES:
            platform.members[OWNER].untaint(node, LENDING)
        await wait_until(
            lambda: _are_bound_as(platform, {"own-1": 7, "own-2": 2, "cloud-1": 0}), "all run at home", 150
        )


async def _are_nodes_free(platform: InProcess, nodes: int) -> bool:
    """That many of the owner's nodes bear no taint, as the planner knows them."""
    rows = platform.planner().state.cluster_view(OWNER).nodes
    return sum(not rows.taint_sets[found] for found in rows.taint_set[rows.live_mask].tolist()) == nodes


async def _declare_lending(platform: InProcess) -> None:
    """The owner lends all that it has."""
    await join_members(platform)
    await wait_until(lambda: platform.descheduler().is_active, "a descheduler is active")
    rule = LendingRule("all", (), "dedicated", 100, 0, 1, 0.0)
    await platform.descheduler().declare_lending(DeclareLendingRequest(OWNER, "own-2", (rule,)))


@pytest.mark.parametrize("leaving", [OWNER, "own-2"])
async def test_a_cluster_that_is_to_leave_has_left_once_what_was_lent_is_back(leaving: str) -> None:
    services = ("snapshot-1", "planner-1", "descheduler-1", "vk-bridge-1")
    async with in_process_platform(FLEET, services) as platform:
        await _declare_lending(platform)
        await wait_until(
            lambda: _has_marked_and_virtual_nodes(platform, (4, 4)),
            "all nodes of the owner are virtual ones in the pool",
        )
        await platform.planner().leave_cluster(LeaveClusterRequest(leaving))
        await wait_until(lambda: _has_left(platform, leaving), "it has left")
        assert not await platform.member_api("own-2").list(NODES, label_selector=LENT_CLUSTER)
        assert leaving != OWNER or await _has_marked_and_virtual_nodes(platform, (0, 0)), (
            "an owner leaves with untainted nodes"
        )
        await wait_until(
            lambda: _has_marked_and_virtual_nodes(platform, (0, 0)), "what is left of a loan ends without its pool"
        )


async def test_lending_that_is_withdrawn_while_nodes_are_checked_leaves_none_of_them_marked() -> None:
    """No loan is in the log yet: what was declared stays until the owner's nodes are seen without our mark."""
    services = ("snapshot-1", "planner-1", "descheduler-1", "vk-bridge-1")
    async with in_process_platform(FLEET, services) as platform:
        await _declare_lending(platform)
        await wait_until(
            lambda: _has_marked_and_virtual_nodes(platform, (4, 0)),
            "all nodes of the owner are checked, and none is lent yet",
        )
        await platform.descheduler().withdraw_lending(WithdrawLendingRequest(OWNER, "not after all"))
        await wait_until(lambda: _has_no_declaration(platform), "it is withdrawn")
        assert await _has_marked_and_virtual_nodes(platform, (0, 0))


async def _has_no_declaration(platform: InProcess) -> bool:
    return not (await platform.descheduler().list_lending(ListLendingRequest())).clusters


async def _has_marked_and_virtual_nodes(platform: InProcess, marked_and_virtual: tuple[int, int]) -> bool:
    """The owner's nodes with our taint, and open virtual nodes in the pool."""
    marked = [node for node in await platform.member_api(OWNER).list(NODES) if node["spec"].get("taints")]
    virtual = await platform.member_api("own-2").list(NODES, label_selector=LENT_CLUSTER)
    opened = [node for node in virtual if not node["spec"].get("unschedulable")]
    return (len(marked), len(opened)) == marked_and_virtual and len(opened) == len(virtual)


async def _has_left(platform: InProcess, name: str) -> bool:
    listed = (await platform.planner().list_clusters(ListClustersRequest())).clusters
    return name not in [one.cluster for one in listed]


async def _are_both_recalled(platform: InProcess) -> bool:
    return len(await recalls_in_log(platform)) == len(LENT_NODES)


async def _are_bound_as(platform: InProcess, pods: dict[str, int]) -> bool:
    return await bound_pods_by_cluster(platform) == pods


async def _is_one_recalled(platform: InProcess) -> bool:
    return len(await recalls_in_log(platform)) == 1


async def _are_bound_in_owner(platform: InProcess, pods: int) -> bool:
    return (await bound_pods_by_cluster(platform))[OWNER] == pods
