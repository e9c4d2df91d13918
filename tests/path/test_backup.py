"""The log is put back from a copy: what was placed goes on as it was; and nothing is deleted, however old the copy."""

import re
from collections.abc import Sequence

import pytest

from spillway.api import (
    AdoptRequest,
    ApplyRequest,
    DeleteRequest,
    GetRequest,
    ListOrphansRequest,
    ListRequest,
    ScaleRequest,
)
from spillway.kubernetes.objects import DEPLOYMENTS
from spillway_local.fleet_plan import deployment
from spillway_local.in_process import InProcess, in_process_platform

from .platform_steps import NAMESPACE, are_all_ready, bound_pods_by_cluster, join_members, list_pods, wait_until

pytestmark = pytest.mark.looptime

ABOVE = re.compile(r"on hold: the object is at \S+, above (\d+\.\d+)")
SERVICES = ("snapshot-1", "planner-1", "propagator-1")


async def stop_all_instances(platform: InProcess) -> None:
    for name in list(platform.running):
        await platform.stop_instance(name)


async def start_all_services(platform: InProcess, services: Sequence[str] = SERVICES) -> None:
    for name in services:
        platform.start_instance(name)
    await wait_until(lambda: platform.planner().is_active, "a planner is active")
    await wait_until(lambda: are_all_ready(platform), "every cluster is ready")


async def replicas_by_workload(platform: InProcess) -> dict[str, dict[str, int]]:
    """Replicas by cluster of each workload."""
    found = (await platform.planner().list(ListRequest())).workloads
    return {
        one.placement.name: {part.cluster: part.replicas for part in one.placement.parts if part.replicas}
        for one in found
    }


async def pod_uids(platform: InProcess, service: str) -> set[str]:
    return {pod["metadata"]["uid"] for name in platform.members for pod in await list_pods(platform, name, service)}


async def wait_until_running(platform: InProcess, service: str, replicas: int) -> None:
    async def has_replicas() -> bool:
        return sum((await bound_pods_by_cluster(platform, service)).values()) == replicas

    await wait_until(has_replicas, f"{replicas} replicas of {service} run", 120)


async def apply_deployment(platform: InProcess, name: str, replicas: int) -> None:
    await platform.planner().apply(ApplyRequest((deployment(name, NAMESPACE, replicas),)))
    await wait_until_running(platform, name, replicas)


async def test_a_copy_of_the_log_brings_the_same_placements_back_and_work_goes_on() -> None:
    """Services stopped, the log copied, lost, and put back; the store is empty."""
    async with in_process_platform(services=SERVICES) as platform:
        await join_members(platform)
        await apply_deployment(platform, "web", 40)
        await apply_deployment(platform, "api", 10)
        before, running = await replicas_by_workload(platform), await pod_uids(platform, "web")
        await stop_all_instances(platform)
        copied = platform.broker.copy_with_records()
        platform.broker = copied
        platform.store.flush_all()
        await start_all_services(platform)
        assert await replicas_by_workload(platform) == before
        assert await pod_uids(platform, "web") == running
        await platform.planner().scale(ScaleRequest(NAMESPACE, "web", 60))
        await wait_until_running(platform, "web", 60)
        assert await pod_uids(platform, "web") > running


async def test_an_older_copy_deletes_nothing_and_what_is_newer_in_clusters_waits_for_a_person() -> None:
    """Since it was made web grew, late was applied, old was deleted, and planners had their turns."""
    async with in_process_platform(services=SERVICES) as platform:
        await join_members(platform)
        await apply_deployment(platform, "web", 20)
        await apply_deployment(platform, "old", 5)
        await stop_all_instances(platform)
        copied = platform.broker.copy_with_records()
        for _ in range(3):
            await start_all_services(platform)
            await stop_all_instances(platform)
        await start_all_services(platform)
        await platform.planner().scale(ScaleRequest(NAMESPACE, "web", 50))
        await apply_deployment(platform, "late", 7)
        await platform.planner().delete(DeleteRequest(NAMESPACE, "old"))
        await wait_until_running(platform, "web", 50)
        await wait_until_running(platform, "old", 0)
        running = {name: await pod_uids(platform, name) for name in ("web", "late")}
        await stop_all_instances(platform)

        platform.broker = copied
        await start_all_services(platform)
        await wait_until_running(platform, "old", 5)  # Its deletion is not in the copy.
        await wait_until(lambda: _is_orphan(platform, "late"), "late is an orphan", 120)
        assert (await replicas_by_workload(platform)).keys() == {"web", "old"}

        await platform.planner().scale(ScaleRequest(NAMESPACE, "web", 50))
        await wait_until(
            lambda: _held_versions_by_cluster(platform, "web"), "it is said that objects are above what is placed", 900
        )
        assert {name: await pod_uids(platform, name) for name in running} == running

        await wait_until(lambda: _has_let_go(platform, "web"), "nothing is on hold", 3600)
        await wait_until_running(platform, "web", 50)
        clusters = tuple(name for name, count in (await bound_pods_by_cluster(platform, "late")).items() if count)
        await platform.planner().adopt(AdoptRequest(NAMESPACE, "late", "deployment", clusters))
        assert sum((await replicas_by_workload(platform))["late"].values()) == 7
        assert await pod_uids(platform, "late") == running["late"]
        await platform.planner().delete(DeleteRequest(NAMESPACE, "old"))
        await wait_until_running(platform, "old", 0)


async def _is_orphan(platform: InProcess, name: str) -> bool:
    found = (await platform.planner().list_orphans(ListOrphansRequest(NAMESPACE))).orphans
    return name in {one.name for one in found}


async def _held_versions_by_cluster(platform: InProcess, name: str) -> list[tuple[str, str]]:
    """By cluster: the version that is placed, where the object there is above it. As `spillway doctor` shows it."""
    found = await platform.planner().get(GetRequest(NAMESPACE, name))
    words = ((status.cluster, ABOVE.search(status.message)) for status in found.statuses)
    return [(cluster, said[1]) for cluster, said in words if said]


async def _has_let_go(platform: InProcess, name: str) -> bool:
    """What docs/operations.md has a person do: kubectl annotate … spillway.io/placement=VERSION, where one is held."""
    held = await _held_versions_by_cluster(platform, name)
    for cluster, version in held:
        found = await platform.member_api(cluster).get(DEPLOYMENTS, NAMESPACE, name)
        assert found is not None
        found["metadata"]["annotations"]["spillway.io/placement"] = version
        await platform.member_api(cluster).replace(DEPLOYMENTS, found)
    return not held
