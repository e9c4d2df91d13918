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

from .platform_steps import NAMESPACE, all_ready, bound, join, pods, until

pytestmark = pytest.mark.looptime

ABOVE = re.compile(r"on hold: the object is at \S+, above (\d+\.\d+)")
SERVICES = ("snapshot-1", "planner-1", "propagator-1")


async def stop_all(platform: InProcess) -> None:
    for name in list(platform.running):
        await platform.stop_instance(name)


async def start_all(platform: InProcess, services: Sequence[str] = SERVICES) -> None:
    for name in services:
        platform.start_instance(name)
    await until(lambda: platform.planner().is_active, "a planner is active")
    await until(lambda: all_ready(platform), "every cluster is ready")


async def placements(platform: InProcess) -> dict[str, dict[str, int]]:
    """Replicas by cluster of each workload."""
    found = (await platform.planner().list(ListRequest())).workloads
    return {
        one.placement.name: {part.cluster: part.replicas for part in one.placement.parts if part.replicas}
        for one in found
    }


async def uids(platform: InProcess, service: str) -> set[str]:
    return {pod["metadata"]["uid"] for name in platform.members for pod in await pods(platform, name, service)}


async def runs(platform: InProcess, service: str, replicas: int) -> None:
    async def so() -> bool:
        return sum((await bound(platform, service)).values()) == replicas

    await until(so, f"{replicas} replicas of {service} run", 120)


async def apply(platform: InProcess, name: str, replicas: int) -> None:
    await platform.planner().apply(ApplyRequest((deployment(name, NAMESPACE, replicas),)))
    await runs(platform, name, replicas)


async def test_a_copy_of_the_log_brings_the_same_placements_back_and_work_goes_on() -> None:
    """Services stopped, the log copied, lost, and put back; the store is empty."""
    async with in_process_platform(services=SERVICES) as platform:
        await join(platform)
        await apply(platform, "web", 40)
        await apply(platform, "api", 10)
        before, running = await placements(platform), await uids(platform, "web")
        await stop_all(platform)
        copied = platform.broker.copy_with_records()
        platform.broker = copied
        platform.store.flush_all()
        await start_all(platform)
        assert await placements(platform) == before
        assert await uids(platform, "web") == running
        await platform.planner().scale(ScaleRequest(NAMESPACE, "web", 60))
        await runs(platform, "web", 60)
        assert await uids(platform, "web") > running


async def test_an_older_copy_deletes_nothing_and_what_is_newer_in_clusters_waits_for_a_person() -> None:
    """Since it was made web grew, late was applied, old was deleted, and planners had their turns."""
    async with in_process_platform(services=SERVICES) as platform:
        await join(platform)
        await apply(platform, "web", 20)
        await apply(platform, "old", 5)
        await stop_all(platform)
        copied = platform.broker.copy_with_records()
        for _ in range(3):
            await start_all(platform)
            await stop_all(platform)
        await start_all(platform)
        await platform.planner().scale(ScaleRequest(NAMESPACE, "web", 50))
        await apply(platform, "late", 7)
        await platform.planner().delete(DeleteRequest(NAMESPACE, "old"))
        await runs(platform, "web", 50)
        await runs(platform, "old", 0)
        running = {name: await uids(platform, name) for name in ("web", "late")}
        await stop_all(platform)

        platform.broker = copied
        await start_all(platform)
        await runs(platform, "old", 5)  # Its deletion is not in the copy.
        await until(lambda: _is_orphan(platform, "late"), "late is an orphan", 120)
        assert (await placements(platform)).keys() == {"web", "old"}

        await platform.planner().scale(ScaleRequest(NAMESPACE, "web", 50))
        await until(lambda: _held(platform, "web"), "it is said that objects are above what is placed", 900)
        assert {name: await uids(platform, name) for name in running} == running

        await until(lambda: _let_go(platform, "web"), "nothing is on hold", 3600)
        await runs(platform, "web", 50)
        clusters = tuple(name for name, count in (await bound(platform, "late")).items() if count)
        await platform.planner().adopt(AdoptRequest(NAMESPACE, "late", "deployment", clusters))
        assert sum((await placements(platform))["late"].values()) == 7
        assert await uids(platform, "late") == running["late"]
        await platform.planner().delete(DeleteRequest(NAMESPACE, "old"))
        await runs(platform, "old", 0)


async def _is_orphan(platform: InProcess, name: str) -> bool:
    found = (await platform.planner().list_orphans(ListOrphansRequest(NAMESPACE))).orphans
    return name in {one.name for one in found}


async def _held(platform: InProcess, name: str) -> list[tuple[str, str]]:
    """By cluster: the version that is placed, where the object there is above it. As `spillway doctor` shows it."""
    found = await platform.planner().get(GetRequest(NAMESPACE, name))
    words = ((status.cluster, ABOVE.search(status.message)) for status in found.statuses)
    return [(cluster, said[1]) for cluster, said in words if said]


async def _let_go(platform: InProcess, name: str) -> bool:
    """What docs/operations.md has a person do: kubectl annotate … spillway.io/placement=VERSION, where one is held."""
    held = await _held(platform, name)
    for cluster, version in held:
        found = await platform.member_api(cluster).get(DEPLOYMENTS, NAMESPACE, name)
        assert found is not None
        found["metadata"]["annotations"]["spillway.io/placement"] = version
        await platform.member_api(cluster).replace(DEPLOYMENTS, found)
    return not held
