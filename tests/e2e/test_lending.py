"""Idle nodes of one member run another one's pods, and come back for their owner's: asked of the members' own APIs."""

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any

import pytest

from sim.manifests import deployment
from spillway.api_lending import DeclareLendingRequest, ListLendingRequest, WithdrawLendingRequest
from spillway.cluster_api import DEPLOYMENTS, NAMESPACES, NODES, PODS, AlreadyExists, LogOptions
from spillway.events_lending import LendingRule
from spillway.lending_marks import LENDING, LENT_CLUSTER, POOL_TAINT, SUPPLY_CLASS

from .running import NAMESPACE, Platform, until

pytestmark = pytest.mark.e2e

OWNER, POOL = "own-1", "own-2"
NODES_OF_OWNER, SHARE_PERCENT, LENT_NODES = 12, 20, 2
GRACE_SECONDS = 5
Manifest = dict[str, Any]


def of_3_cores(name: str, replicas: int, **spec: Any) -> Manifest:
    """One on each of the owner's nodes, which have 4."""
    made = deployment(name, replicas, cpu="3", terminationGracePeriodSeconds=2, **spec)
    made["metadata"]["namespace"] = NAMESPACE
    return made


@asynccontextmanager
async def lending(platform: Platform) -> AsyncIterator[None]:
    """The owner lends two of its nodes; afterwards all are back."""
    rule = LendingRule("few", (), "dedicated", SHARE_PERCENT, 0, 1, 0.0)
    await platform.lending.declare_lending(
        DeclareLendingRequest(OWNER, POOL, (rule,), grace_seconds=GRACE_SECONDS, cooldown_seconds=3600)
    )
    try:
        yield
    finally:
        await platform.lending.withdraw_lending(WithdrawLendingRequest(OWNER, "the test is over"))

        async def over() -> bool:
            declared = (await platform.lending.list_lending(ListLendingRequest())).clusters
            return not declared and not await on_loan(platform) and not await virtual_nodes(platform)

        await until("every node is back, and nothing is declared", over, 90)


async def on_loan(platform: Platform) -> set[str]:
    """The owner's nodes that bear our taint."""
    nodes = await platform.members.api(OWNER).list(NODES)
    return {
        one["metadata"]["name"]
        for one in nodes
        if any(taint["key"] == LENDING for taint in one["spec"].get("taints") or ())
    }


async def virtual_nodes(platform: Platform) -> list[Manifest]:
    return list(await platform.members.api(POOL).list(NODES, label_selector=LENT_CLUSTER))


async def running_on(platform: Platform, cluster: str, app: str) -> list[str]:
    """The nodes on which pods of an app run, in whatever namespace."""
    pods = await platform.members.api(cluster).list(PODS, label_selector=f"app={app}")
    return sorted(
        one["spec"]["nodeName"]
        for one in pods
        if one["status"].get("phase") == "Running" and not one["metadata"].get("deletionTimestamp")
    )


async def log_of_one(platform: Platform, app: str, cluster: str = POOL) -> bytes:
    """What the pod of that app with the first node's name has written; in a pool its bridge is asked for it."""
    api = platform.members.api(cluster)
    pods = await api.list(PODS, label_selector=f"app={app}")
    metadata = min(pods, key=lambda one: str(one["spec"]["nodeName"]))["metadata"]
    async with aclosing(api.logs(metadata["namespace"], metadata["name"], LogOptions())) as chunks:
        return b"".join([chunk async for chunk in chunks])


@asynccontextmanager
async def deployed(platform: Platform, cluster: str, manifest: Manifest) -> AsyncIterator[None]:
    """By its own people, not by us; afterwards it is gone."""
    api = platform.members.api(cluster)
    with suppress(AlreadyExists):
        await api.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    made = await api.create(DEPLOYMENTS, manifest)
    try:
        yield
    finally:
        metadata = made["metadata"]
        await api.delete(DEPLOYMENTS, NAMESPACE, metadata["name"], uid=metadata["uid"])


async def test_lent_nodes_run_offline_pods_and_come_back_when_their_owner_scales_up(fleet: Platform) -> None:
    """With a bridge that is killed between. At the end each of the owner's pods has a node of its own."""
    spec = {
        "tolerations": [{"key": POOL_TAINT, "operator": "Exists"}],
        "nodeSelector": {SUPPLY_CLASS: "dedicated"},
    }
    async with lending(fleet), deployed(fleet, POOL, of_3_cores("encode", LENT_NODES, **spec)):

        async def works() -> bool:
            real = await running_on(fleet, OWNER, "encode")
            return len(real) == LENT_NODES and set(real) == await on_loan(fleet)

        await until("offline pods run on lent nodes", works, 90)
        names = [one["metadata"]["name"] for one in await virtual_nodes(fleet)]

        async def mirrored() -> bool:
            return await running_on(fleet, POOL, "encode") == sorted(names)

        await until("their pool says that they run", mirrored)
        if fleet.stack.options.members == "sim":  # Real members' nodes are kwok's, which write no logs.
            assert await log_of_one(fleet, "encode") == await log_of_one(fleet, "encode", OWNER)
        fleet.kill((await fleet.owners("vk-bridge"))[OWNER])
        async with deployed(fleet, OWNER, of_3_cores("web", NODES_OF_OWNER)):

            async def back() -> bool:
                return len(set(await running_on(fleet, OWNER, "web"))) == NODES_OF_OWNER

            await until("the owner's pods run, each on a node of its own", back, 120)
            assert await on_loan(fleet) == set()
            assert await running_on(fleet, OWNER, "encode") == []

            async def gone() -> bool:
                return not await virtual_nodes(fleet)

            await until("no virtual node is left", gone)
