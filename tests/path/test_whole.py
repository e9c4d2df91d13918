"""StatefulSets and Jobs, in one process and virtual time: whole in one cluster, waiting, staying, run to their end."""

import asyncio
import json
from typing import Any

import pytest

from sim.manifests import job, statefulset
from spillway.api import ApplyRequest, DeleteRequest, GetRequest, PlacementReply, RequestError, ScaleRequest
from spillway.kubernetes.objects import PODS, STATEFULSETS
from spillway_local import member_nodes
from spillway_local.fleet_plan import GIB, MemberPlan, deployment
from spillway_local.in_process import InProcess, in_process_platform

from .platform_steps import NAMESPACE, bound_pods_by_cluster, join_members, wait_until

pytestmark = pytest.mark.looptime

FLEET = (
    MemberPlan("own-1", "own", (member_nodes.MemberNodes(4, "n", 4_000, 16 * GIB),), room=32),
    MemberPlan("own-2", "own", (member_nodes.MemberNodes(4, "n", 4_000, 16 * GIB),), room=32),
    MemberPlan("cloud-1", "cloud", (member_nodes.MemberNodes(6, "n", 4_000, 16 * GIB),), room=48),
)
LOSS_AFTER_30S = json.dumps(
    {"apiVersion": "spillway.io/v1", "kind": "PlacementPolicy", "spec": {"onClusterLoss": {"after": "30s"}}}
)


def apply_request(manifest: dict[str, Any], *others: str) -> ApplyRequest:
    metadata = manifest["metadata"] | {"namespace": NAMESPACE}
    return ApplyRequest((json.dumps(manifest | {"metadata": metadata}), *others))


def database_manifest(replicas: int, **more: Any) -> dict[str, Any]:
    return statefulset("db", replicas, cpu="500m", podManagementPolicy="Parallel", **more)


def placed_replicas_by_cluster(reply: PlacementReply) -> dict[str, int]:
    return {part.cluster: part.replicas for part in reply.parts}


async def running_pods_by_cluster(platform: InProcess, name: str) -> dict[str, int]:
    return {cluster: count for cluster, count in (await bound_pods_by_cluster(platform, name)).items() if count}


async def wait_until_running(platform: InProcess, name: str, expected: dict[str, int]) -> None:
    async def is_reached() -> bool:
        return await running_pods_by_cluster(platform, name) == expected

    await wait_until(is_reached, f"{name} runs as {expected}", 120)


async def test_a_statefulset_goes_whole_to_one_cluster() -> None:
    """Two own clusters would take 40 between them, but none alone: all 40 are in the cloud. Deleted, all go."""
    async with in_process_platform(FLEET) as platform:
        await join_members(platform)
        planner = platform.planner()
        assert placed_replicas_by_cluster(await planner.apply(apply_request(database_manifest(40)))) == {"cloud-1": 40}
        await wait_until_running(platform, "db", {"cloud-1": 40})
        await planner.delete(DeleteRequest(NAMESPACE, "db"))
        await wait_until_running(platform, "db", {})

        async def is_gone() -> bool:
            return await platform.member_api("cloud-1").get(STATEFULSETS, NAMESPACE, "db") is None

        await wait_until(is_gone, "the object is gone")


async def test_nowhere_whole_it_waits_until_one_cluster_takes_all() -> None:
    async with in_process_platform(FLEET) as platform:
        await join_members(platform)
        planner = platform.planner()
        await planner.apply(ApplyRequest((deployment("web", NAMESPACE, 100, cpu="500m"),)))
        await wait_until(lambda: _are_bound(platform, "web", 100), "the others run", 120)
        waits = await planner.apply(apply_request(database_manifest(20)))
        assert (placed_replicas_by_cluster(waits), waits.unplaced) == ({}, 20)

        async def is_said() -> bool:
            reply = (await planner.get(GetRequest(NAMESPACE, "db"))).placement
            return reply.waiting_for.startswith("a StatefulSet goes whole to one cluster (")

        await wait_until(is_said, "it says what it waits for, once binds are over")
        await planner.scale(ScaleRequest(NAMESPACE, "web", 64))
        await wait_until_running(platform, "db", {"cloud-1": 20})


async def _are_bound(platform: InProcess, name: str, count: int) -> bool:
    return sum((await running_pods_by_cluster(platform, name)).values()) == count


async def test_scale_out_beyond_its_cluster_waits_there() -> None:
    """While own-2 and the cloud have room for many: pods of one StatefulSet are not in two clusters."""
    async with in_process_platform(FLEET) as platform:
        await join_members(platform)
        planner = platform.planner()
        reply = await planner.apply(apply_request(database_manifest(20)))
        (home,) = placed_replicas_by_cluster(reply)
        await wait_until_running(platform, "db", {home: 20})
        more = await planner.scale(ScaleRequest(NAMESPACE, "db", 40))
        assert (placed_replicas_by_cluster(more), more.unplaced) == ({home: 32}, 8)
        await wait_until_running(platform, "db", {home: 32})
        waiting = (await planner.get(GetRequest(NAMESPACE, "db"))).placement.waiting_for
        assert f"is in {home}" in waiting
        await planner.scale(ScaleRequest(NAMESPACE, "db", 5))
        await wait_until_running(platform, "db", {home: 5})


async def test_a_lost_cluster_keeps_its_statefulset() -> None:
    """Ten minutes of silence, where Deployments are replaced after 30 s; on the return the same pods are there."""
    async with in_process_platform(FLEET) as platform:
        await join_members(platform)
        planner = platform.planner()
        (home,) = placed_replicas_by_cluster(await planner.apply(apply_request(database_manifest(6), LOSS_AFTER_30S)))
        await wait_until_running(platform, "db", {home: 6})
        before = {pod["metadata"]["uid"] for pod in await platform.member_api(home).list(PODS, NAMESPACE)}
        await platform.silence_member(home)
        others = [name for name in platform.members if name != home]
        for _ in range(60):
            await asyncio.sleep(10)
            for name in others:
                assert await platform.member_api(name).get(STATEFULSETS, NAMESPACE, "db") is None
        assert placed_replicas_by_cluster((await planner.get(GetRequest(NAMESPACE, "db"))).placement) == {home: 6}
        await platform.wake_member(home)
        await wait_until_running(platform, "db", {home: 6})
        assert {pod["metadata"]["uid"] for pod in await platform.member_api(home).list(PODS, NAMESPACE)} == before


async def test_a_new_template_reaches_the_statefulset_where_it_is() -> None:
    async with in_process_platform(FLEET) as platform:
        await join_members(platform)
        planner = platform.planner()
        (home,) = placed_replicas_by_cluster(await planner.apply(apply_request(database_manifest(4))))
        await wait_until_running(platform, "db", {home: 4})
        changed = database_manifest(4)
        changed["spec"]["template"]["spec"]["containers"][0]["image"] = "app:2"
        await planner.apply(apply_request(changed))

        async def is_rolled_out() -> bool:
            pods = await platform.member_api(home).list(PODS, NAMESPACE)
            return [pod["spec"]["containers"][0]["image"] for pod in pods] == ["app:2"] * 4

        await wait_until(is_rolled_out, "every pod is of the new template", 120)
        with pytest.raises(RequestError) as caught:
            await planner.apply(apply_request(changed | {"spec": changed["spec"] | {"serviceName": "other"}}))
        assert "serviceName cannot be changed in a cluster; delete it first" in caught.value.text


async def test_a_job_runs_to_its_end_and_its_room_is_free_again() -> None:
    """32 pods at a time fill an own cluster; when the Job is complete another StatefulSet fits there whole."""
    async with in_process_platform(FLEET[:1]) as platform:
        await join_members(platform)
        planner = platform.planner()
        work = job("sum", 32, 64, run_seconds=30, cpu="500m")
        assert placed_replicas_by_cluster(await planner.apply(apply_request(work))) == {"own-1": 32}
        await wait_until_running(platform, "sum", {"own-1": 32})
        await wait_until(lambda: not planner.state.unbound_places(), "all of them are counted")
        waits = await planner.apply(apply_request(database_manifest(30)))
        assert waits.unplaced == 30

        async def is_complete() -> bool:
            (status,) = (await planner.get(GetRequest(NAMESPACE, "sum"))).statuses
            return status.message == "Complete: 64 succeeded"

        await wait_until(is_complete, "the Job is complete", 300)
        assert planner.state.reservation_of((NAMESPACE, "sum"), "own-1").free == 0
        await wait_until(lambda: _are_running(platform, "db", 30), "the room of the Job is used", 120)
        assert placed_replicas_by_cluster((await planner.get(GetRequest(NAMESPACE, "sum"))).placement) == {"own-1": 32}


async def _are_running(platform: InProcess, name: str, count: int) -> bool:
    pods = await platform.member_api("own-1").list(PODS, NAMESPACE, label_selector=f"app={name}")
    return sum(1 for pod in pods if (pod.get("status") or {}).get("phase") == "Running") == count
