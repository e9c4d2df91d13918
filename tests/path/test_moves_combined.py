"""Moves that meet something else: a target that refuses or dies, an adopted object without replicas, a rollout."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from planner.core.knowledge.placement_waits import full_waits_text
from planner.settings import PlannerSettings
from spillway.api import (
    AdoptRequest,
    ApplyRequest,
    DisownRequest,
    LeaveClusterRequest,
    RequestError,
    ScaleRequest,
    SetClusterPhaseRequest,
)
from spillway.clusters.api import DEPLOYMENTS
from spillway.kubernetes.objects import RESOURCE_QUOTAS
from spillway_local import member_nodes
from spillway_local.fleet_plan import GIB, MemberPlan
from spillway_local.in_process import InProcess, in_process_platform

from .platform_steps import NAMESPACE, join_members, list_pods, wait_until
from .test_brownfield import deployment_manifest as running_manifest
from .test_brownfield import run_without_spillway
from .test_moves import ready_pods_by_cluster, replicas_of_parts, watch_ready_pods
from .test_rollout import deployment_manifest

pytestmark = pytest.mark.looptime

KEY = (NAMESPACE, "web")


def apply_request(replicas: int, image: str = "web:1", start: str = "2", **spec: Any) -> ApplyRequest:
    """start: seconds until a pod is ready."""
    policy = {"apiVersion": "spillway.io/v1", "kind": "PlacementPolicy", "spec": {"onClusterLoss": {"after": "30s"}}}
    policy["spec"] |= spec  # type: ignore[operator]
    return ApplyRequest((json.dumps(deployment_manifest(image, replicas, start)), json.dumps(policy)))


@asynccontextmanager
async def run_platform(*cores: int, request: ApplyRequest | None = None) -> AsyncIterator[InProcess]:
    """Clusters own-1, own-2, … of so many cores, in which what was asked for runs."""
    fleet = tuple(
        MemberPlan(f"own-{number}", "own", (member_nodes.MemberNodes(count, "n", 1_000, 16 * GIB),), room=2 * count)
        for number, count in enumerate(cores, 1)
    )
    async with in_process_platform(fleet, planner_settings=PlannerSettings(capacity_age_max_seconds=8)) as platform:
        await join_members(platform)
        if request is not None:
            replicas = (await platform.planner().apply(request)).replicas
            await wait_until(lambda: sum(ready_pods_by_cluster(platform).values()) == replicas, "it runs")
        yield platform


async def refuse_more_pods(platform: InProcess, cluster: str) -> None:
    """A quota of as many pods as there are."""
    hard = {"pods": str(ready_pods_by_cluster(platform)[cluster])}
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "few", "namespace": NAMESPACE},
        "spec": {"hard": hard},
    }
    await platform.member_api(cluster).create(RESOURCE_QUOTAS, quota)


async def test_a_drain_into_a_quota_stops_nothing_that_runs() -> None:
    """own-3 drains; own-2 has room by its nodes, its quota, not heard of yet, refuses the pods, own-1 is full."""
    async with run_platform(2, 12, 2, request=apply_request(8, limits=[{"cluster": "own-2", "max": 1}])) as platform:
        await platform.planner().apply(apply_request(8))
        await platform.stop_instance("snapshot-1")
        await refuse_more_pods(platform, "own-2")
        async with watch_ready_pods(platform) as seen:
            await platform.planner().set_cluster_phase(SetClusterPhaseRequest("own-3", "Draining"))
            await wait_until(lambda: replicas_of_parts(platform)["own-3"][2] == 3, "three leave own-3")
            platform.start_instance("snapshot-1")
            await wait_until(
                lambda: replicas_of_parts(platform)["own-3"][0] == 3,
                "they are kept again once own-2 refused the others",
            )
            await asyncio.sleep(200)
        assert seen.fewest == 8


async def test_a_policy_that_moves_into_a_quota_stops_nothing_that_runs() -> None:
    async with run_platform(2, 12, 2, request=apply_request(8, limits=[{"cluster": "own-2", "max": 1}])) as platform:
        await refuse_more_pods(platform, "own-2")
        async with watch_ready_pods(platform) as seen:
            await platform.planner().apply(apply_request(8, limits=[{"cluster": "own-3", "max": 0}]))
            await wait_until(lambda: replicas_of_parts(platform)["own-3"][2] == 3, "three leave own-3")
            await asyncio.sleep(60)
        assert seen.fewest == 8


async def test_a_target_that_is_given_up_stops_nothing_that_leaves() -> None:
    """own-3 drains into own-2, which dies and is declared lost before its pods are ready; own-1 is full."""
    request = apply_request(7, start="30", limits=[{"cluster": "own-2", "max": 0}])
    async with run_platform(2, 12, 2, request=request) as platform:
        await platform.planner().apply(apply_request(7, start="30"))
        await platform.planner().set_cluster_phase(SetClusterPhaseRequest("own-3", "Draining"))
        await wait_until(lambda: replicas_of_parts(platform)["own-3"][2] == 3, "three leave own-3")
        await platform.silence_member("own-2")
        await asyncio.sleep(15)
        async with watch_ready_pods(platform) as seen:
            await platform.planner().leave_cluster(LeaveClusterRequest("own-2", lost=True))
            await wait_until(lambda: "own-2" not in replicas_of_parts(platform), "own-2 is given up")
            await asyncio.sleep(120)
        assert min(sum(ready.values()) - ready["own-2"] for ready in seen.seen) == 7


@pytest.mark.parametrize("then", ["cordon", "scale"])
async def test_what_was_adopted_with_no_replicas_is_there_whatever_happens_elsewhere(then: str) -> None:
    async with run_platform(12, 16) as platform:
        await run_without_spillway(platform, "own-1", running_manifest())
        await run_without_spillway(platform, "own-2", running_manifest(replicas=0))
        await platform.planner().adopt(AdoptRequest(NAMESPACE, "web", "deployment", ("own-1", "own-2")))
        await asyncio.sleep(20)
        if then == "cordon":
            await platform.planner().set_cluster_phase(SetClusterPhaseRequest("own-1", "Cordoned"))
        else:
            await platform.planner().scale(ScaleRequest(*KEY, 2))
        await asyncio.sleep(60)
        assert await platform.member_api("own-2").get(DEPLOYMENTS, *KEY) is not None


async def test_a_workload_that_moves_is_not_disowned() -> None:
    """More runs of it than was asked for; nobody would take that away."""
    async with run_platform(12, 16, 20, request=apply_request(12)) as platform:
        await platform.planner().apply(apply_request(12, limits=[{"cluster": "own-2", "max": 0}]))
        await wait_until(lambda: replicas_of_parts(platform)["own-2"][2] > 0, "some leave own-2")
        leaving = replicas_of_parts(platform)["own-2"][2]
        with pytest.raises(RequestError, match=f"Moving: {leaving} leave own-2: disown it when that is over"):
            await platform.planner().disown(DisownRequest(*KEY))


async def test_a_silent_cluster_that_is_never_replaced_keeps_no_rollout_waiting() -> None:
    policy = {"onClusterLoss": {"after": "never"}}
    async with run_platform(12, 16, 20, request=apply_request(12, **policy)) as platform:
        await platform.silence_member("own-1")
        await asyncio.sleep(60)
        await platform.planner().apply(apply_request(12, "web:2", **policy))
        await wait_until(
            lambda: _are_all_of_image(platform, "web:2", ("own-2", "own-3")), "the others have the new template", 120
        )
        text = "rollout 2 of 3 clusters: waits for own-1 to be fresh"
        await wait_until(lambda: text in _waiting_text(platform), text)


def _waiting_text(platform: InProcess) -> str:
    placement = platform.planner().state.workloads[KEY].placement
    return full_waits_text(placement) if placement is not None else ""


async def _are_all_of_image(platform: InProcess, image: str, clusters: tuple[str, ...]) -> bool:
    found = [pod for cluster in clusters for pod in await list_pods(platform, cluster, "web")]
    return bool(found) and all(pod["metadata"]["labels"]["image"] == image for pod in found)
