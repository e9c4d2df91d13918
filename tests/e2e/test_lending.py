"""Idle nodes of two owners run a third member's pods, and come back for who needs them: asked of their own APIs."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from typing import Any

import pytest

from sim.manifests import deployment
from spillway.api import ApplyRequest, ScaleRequest
from spillway.api_lending import DeclareLendingRequest, ListLendingRequest, WithdrawLendingRequest
from spillway.clusters.api import DEPLOYMENTS, NAMESPACES, NODES, PODS, AlreadyExists, LogOptions
from spillway.events_lending import LendingRule
from spillway.lending_marks import LENDING, LENT_CLUSTER, POOL_TAINT, POOL_UID, SUPPLY_CLASS, virtual_node_name
from spillway.model import HOSTNAME_LABEL, Requirement
from spillway_local import fleet_plan

from .running import NAMESPACE, REAL_MEMBERS, Platform, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

OWNER, OTHER_OWNER, POOL = "own-1", "own-2", "cloud-1"
NODES_OF_OWNER = 12
"""Of 4 cores each: one pod of 3."""
ROOM_AT_HOME = NODES_OF_OWNER + 6 * 5
"""Pods of 3 cores in both owners; the other one has 6 nodes of 16 cores, and two that want a GPU."""
GRACE_SECONDS = 5
Manifest = dict[str, Any]


def deployment_of_3_cores(name: str, replicas: int, **spec: Any) -> Manifest:
    """One on each of the owner's nodes, which have 4."""
    made = deployment(name, replicas, cpu="3", terminationGracePeriodSeconds=2, **spec)
    made["metadata"]["namespace"] = NAMESPACE
    return made


def offline_deployment(name: str, replicas: int) -> Manifest:
    """On virtual nodes alone."""
    tolerations = [{"key": POOL_TAINT, "operator": "Exists"}]
    return deployment_of_3_cores(name, replicas, tolerations=tolerations, nodeSelector={SUPPLY_CLASS: "dedicated"})


@asynccontextmanager
async def lend_nodes(platform: Platform, owner: str, nodes: Sequence[str]) -> AsyncIterator[None]:
    """The owner lends these nodes to the pool, and no other; afterwards they are back."""
    rule = LendingRule("few", (Requirement(HOSTNAME_LABEL, "In", tuple(nodes)),), "dedicated", 100, 0, 1, 0.0)
    await platform.lending.declare_lending(
        DeclareLendingRequest(owner, POOL, (rule,), grace_seconds=GRACE_SECONDS, cooldown_seconds=3600)
    )
    try:
        yield
    finally:
        await platform.lending.withdraw_lending(WithdrawLendingRequest(owner, "the test is over"))

        async def is_over() -> bool:
            declared = (await platform.lending.list_lending(ListLendingRequest())).clusters
            left = await nodes_on_loan(platform, owner) | await virtual_nodes_of(platform, owner)
            return owner not in [one.cluster for one in declared] and not left

        await wait_until("every node is back, and nothing is declared", is_over, 90)


async def node_names_of(platform: Platform, cluster: str) -> list[str]:
    return sorted(one["metadata"]["name"] for one in await platform.members.member_api(cluster).list(NODES))


async def nodes_on_loan(platform: Platform, owner: str) -> set[str]:
    """The owner's nodes that bear our taint."""
    nodes = await platform.members.member_api(owner).list(NODES)
    return {
        one["metadata"]["name"]
        for one in nodes
        if any(taint["key"] == LENDING for taint in one["spec"].get("taints") or ())
    }


async def virtual_nodes_of(platform: Platform, owner: str) -> set[str]:
    """Of this owner in the pool."""
    found = await platform.members.member_api(POOL).list(NODES, label_selector=f"{LENT_CLUSTER}={owner}")
    return {one["metadata"]["name"] for one in found}


async def nodes_with_running_pods(platform: Platform, cluster: str, app: str) -> list[str]:
    """The nodes on which pods of an app run, in whatever namespace."""
    pods = await platform.members.member_api(cluster).list(PODS, label_selector=f"app={app}")
    return sorted(
        one["spec"]["nodeName"]
        for one in pods
        if one["status"].get("phase") == "Running" and not one["metadata"].get("deletionTimestamp")
    )


async def log_of_first_pod(platform: Platform, app: str, cluster: str = POOL) -> bytes:
    """What the pod of that app with the first node's name has written; in a pool its bridge is asked for it."""
    api = platform.members.member_api(cluster)
    pods = await api.list(PODS, label_selector=f"app={app}")
    metadata = min(pods, key=lambda one: str(one["spec"]["nodeName"]))["metadata"]
    async with aclosing(api.container_log_chunks(metadata["namespace"], metadata["name"], LogOptions())) as chunks:
        return b"".join([chunk async for chunk in chunks])


@asynccontextmanager
async def deploy_by_hand(platform: Platform, cluster: str, manifest: Manifest) -> AsyncIterator[None]:
    """By its own people, not by us; afterwards it is gone."""
    api = platform.members.member_api(cluster)
    with suppress(AlreadyExists):
        await api.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    made = await api.create(DEPLOYMENTS, manifest)
    try:
        yield
    finally:
        metadata = made["metadata"]
        await api.delete(DEPLOYMENTS, NAMESPACE, metadata["name"], uid=metadata["uid"])


async def test_offline_pods_run_on_lent_nodes_and_elsewhere_when_an_owner_scales_up(fleet: Platform) -> None:
    """A pool and two owners, with a bridge that is killed in the recall. At the end each pod has its place."""
    lent = (await node_names_of(fleet, OWNER))[:2]
    lent_elsewhere = [name for name in await node_names_of(fleet, OTHER_OWNER) if "gpu" not in name][:2]
    async with AsyncExitStack() as exits:
        await exits.enter_async_context(lend_nodes(fleet, OWNER, lent))
        await exits.enter_async_context(deploy_by_hand(fleet, POOL, offline_deployment("encode", 3)))

        async def is_working() -> bool:
            return (
                await nodes_with_running_pods(fleet, OWNER, "encode")
                == lent
                == sorted(await nodes_on_loan(fleet, OWNER))
            )

        await wait_until("two of three offline pods run on the lent nodes", is_working, 90)
        await exits.enter_async_context(lend_nodes(fleet, OTHER_OWNER, lent_elsewhere))

        async def are_all_running() -> bool:
            real = [await nodes_with_running_pods(fleet, owner, "encode") for owner in (OWNER, OTHER_OWNER)]
            virtual = [virtual_node_name(OWNER, node) for node in real[0]]
            virtual += [virtual_node_name(OTHER_OWNER, node) for node in real[1]]
            mirrored = await nodes_with_running_pods(fleet, POOL, "encode") == sorted(virtual)
            return (real[0], len(real[1])) == (lent, 1) and set(real[1]) <= set(lent_elsewhere) and mirrored

        await wait_until(
            "the third one runs on nodes of the other owner, and the pool says where all are", are_all_running, 90
        )
        if fleet.stack.options.members == "sim":  # Real members' nodes are kwok's, which write no logs.
            assert await log_of_first_pod(fleet, "encode") == await log_of_first_pod(fleet, "encode", OWNER)
        fleet.kill_program((await fleet.turn_holders_by_cluster("vk-bridge"))[OWNER])
        await exits.enter_async_context(deploy_by_hand(fleet, OWNER, deployment_of_3_cores("web", NODES_OF_OWNER)))

        async def is_owner_back() -> bool:
            return len(set(await nodes_with_running_pods(fleet, OWNER, "web"))) == NODES_OF_OWNER

        await wait_until("the owner's pods run, each on a node of its own", is_owner_back, 120)
        assert await nodes_on_loan(fleet, OWNER) == set()
        assert await nodes_with_running_pods(fleet, OWNER, "encode") == []

        async def is_elsewhere() -> bool:
            real = await nodes_with_running_pods(fleet, OTHER_OWNER, "encode")
            shown = await nodes_with_running_pods(fleet, POOL, "encode")
            at = sorted(virtual_node_name(OTHER_OWNER, node) for node in real)
            return len(real) == 3 and set(real) <= set(lent_elsewhere) and shown == at

        await wait_until("all offline pods run on nodes of the other owner", is_elsewhere, 90)
        assert await virtual_nodes_of(fleet, OWNER) == set()
        assert await nodes_on_loan(fleet, OTHER_OWNER) == set(lent_elsewhere), "of who needs nothing, nothing goes back"


@REAL_MEMBERS
async def test_a_service_that_scales_up_runs_on_returned_nodes_and_none_of_it_in_the_cloud(fleet: Platform) -> None:
    """Half of an owner is lent, and works. No pod of the service is ever in the cloud."""
    lent = (await node_names_of(fleet, OWNER))[NODES_OF_OWNER // 2 :]
    async with lend_nodes(fleet, OWNER, lent), deploy_by_hand(fleet, POOL, offline_deployment("encode", len(lent))):

        async def is_working() -> bool:
            return (
                await nodes_with_running_pods(fleet, OWNER, "encode")
                == lent
                == sorted(await nodes_on_loan(fleet, OWNER))
            )

        await wait_until("offline pods run on half of the owner's nodes", is_working, 90)
        async with fleet.watch_pods_of_app("web") as seen:
            await fleet.planner.apply(ApplyRequest((fleet_plan.deployment("web", NAMESPACE, 6, cpu="3"),)))
            await fleet.wait_until_running("web", 6)
            await fleet.planner.scale(ScaleRequest(NAMESPACE, "web", ROOM_AT_HOME))
            counts = await fleet.wait_until_running("web", ROOM_AT_HOME, 120)
        assert counts == {OWNER: NODES_OF_OWNER, OTHER_OWNER: ROOM_AT_HOME - NODES_OF_OWNER}
        assert seen.uids[POOL] == set(), "none was ever there"
        assert await nodes_with_running_pods(fleet, OWNER, "web") == await node_names_of(fleet, OWNER)
        assert await nodes_on_loan(fleet, OWNER) == set()
        assert await nodes_with_running_pods(fleet, OWNER, "encode") == []


UNREACHABLE = "node.kubernetes.io/unreachable"
READY_UNKNOWN = {
    "type": "Ready",
    "status": "Unknown",
    "reason": "NodeStatusUnknown",
    "message": "nobody posts its status",
}


@REAL_MEMBERS
async def test_pods_that_their_pool_evicts_while_no_bridge_lives_are_let_go_and_run_once(fleet: Platform) -> None:
    """The pool says Unknown of a node 200 s after its last Lease, and evicts after 300 s more: here both at once."""
    lent = (await node_names_of(fleet, OWNER))[2:3]
    manifest = offline_deployment("encode", 1)
    manifest["spec"]["template"]["spec"]["tolerations"].append(
        {"key": UNREACHABLE, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0}
    )
    async with lend_nodes(fleet, OWNER, lent), deploy_by_hand(fleet, POOL, manifest):
        await wait_until("an offline pod runs", lambda: _runs_once(fleet, set()), 90)
        given_up = {pod["metadata"]["uid"] for pod in await list_pods_of_app(fleet, POOL, "encode")}
        async with stop_bridges(fleet):
            virtual = virtual_node_name(OWNER, lent[0])
            silent = {"status": {"conditions": [READY_UNKNOWN]}}
            await fleet.members.member_api(POOL).patch(
                NODES, "", virtual, silent, resource_version="", subresource="status"
            )
            await wait_until("the pool evicts it", lambda: _is_replaced(fleet, given_up), 90)
            (real,) = await list_pods_of_app(fleet, OWNER, "encode")
            assert real["metadata"]["labels"][POOL_UID] in given_up, "nobody has ended it, and nobody runs another"
        await wait_until(
            "the one that was given up is gone, and another one runs", lambda: _runs_once(fleet, given_up), 120
        )
        assert not given_up & {pod["metadata"]["uid"] for pod in await list_pods_of_app(fleet, POOL, "encode")}


@asynccontextmanager
async def stop_bridges(platform: Platform) -> AsyncIterator[None]:
    for name in ("vk-bridge-1", "vk-bridge-2"):
        await platform.kill_program_for_good(name)
    try:
        yield
    finally:
        for name in ("vk-bridge-1", "vk-bridge-2"):
            await platform.start_program(name)


async def list_pods_of_app(platform: Platform, cluster: str, app: str) -> list[Manifest]:
    """Also those that are being deleted, in whatever namespace."""
    return list(await platform.members.member_api(cluster).list(PODS, label_selector=f"app={app}"))


async def _is_replaced(platform: Platform, given_up: set[str]) -> bool:
    """Those are being deleted, and are not let go; others wait."""
    pods = await list_pods_of_app(platform, POOL, "encode")
    deleting = {pod["metadata"]["uid"] for pod in pods if pod["metadata"].get("deletionTimestamp")}
    return deleting == given_up and len(pods) == 2


async def _runs_once(platform: Platform, given_up: set[str]) -> bool:
    """One pod on each side, that belong together."""
    pooled, real = await list_pods_of_app(platform, POOL, "encode"), await list_pods_of_app(platform, OWNER, "encode")
    shown = [pod["metadata"]["uid"] for pod in pooled if pod["status"].get("phase") == "Running"]
    run = [pod["metadata"]["labels"][POOL_UID] for pod in real if pod["status"].get("phase") == "Running"]
    return len(pooled) == len(real) == 1 and shown == run and not given_up & set(run)
