"""Waiting and looking, shared by the path tests."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from spillway.api import JoinClusterRequest, ListClustersRequest
from spillway.kubernetes.objects import PODS
from spillway.model import NodeGroup
from spillway_local.in_process import InProcess

NAMESPACE = "shop"


async def wait_until(reached: Callable[[], Any], what: str, seconds: float = 60) -> None:
    """Polls a condition, sync or async, until it holds."""
    deadline = asyncio.get_running_loop().time() + seconds
    while True:
        found = reached()
        if await found if isinstance(found, Awaitable) else found:
            return
        assert asyncio.get_running_loop().time() < deadline, f"after {seconds} s it is not so that {what}"
        await asyncio.sleep(0.1)


async def join_members(platform: InProcess, groups: dict[str, tuple[NodeGroup, ...]] | None = None) -> None:
    """Every member joins; own by its name, else cloud. Returns when all of them are ready."""
    await wait_until(lambda: platform.planner().is_active, "a planner is active")
    for name in platform.members:
        tier = "own" if name.startswith("own") else "cloud"
        await platform.planner().join_cluster(
            JoinClusterRequest(name, name, tier=tier, node_groups=(groups or {}).get(name, ()))
        )
    await wait_until(lambda: are_all_ready(platform), "every cluster is ready")


async def are_all_ready(platform: InProcess) -> bool:
    clusters = (await platform.planner().list_clusters(ListClustersRequest())).clusters
    return all(cluster.state == "Ready" for cluster in clusters)


async def bound_pods_by_cluster(platform: InProcess, service: str | None = None) -> dict[str, int]:
    """Pods on nodes by cluster, from the members' own APIs."""
    return {
        name: len([pod for pod in await list_pods(platform, name, service) if is_bound(pod)])
        for name in platform.members
    }


async def unbound_pod_count(platform: InProcess) -> int:
    return sum(
        [len([pod for pod in await list_pods(platform, name) if not is_bound(pod)]) for name in platform.members]
    )


async def list_pods(platform: InProcess, name: str, service: str | None = None) -> list[dict[str, Any]]:
    selector = f"app={service}" if service else ""
    found = await platform.member_api(name).list(PODS, label_selector=selector)
    return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]


def is_bound(pod: dict[str, Any]) -> bool:
    return bool(pod["spec"].get("nodeName"))
