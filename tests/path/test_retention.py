"""What retention deletes ends no service: in one process and virtual time."""

import asyncio

import pytest

from hpa.service import Hpa
from hpa.settings import HpaSettings
from spillway.addresses import CAPACITY_CHANGES, LOAD
from spillway.api import ApplyRequest, ListClustersRequest
from spillway.api_scaling import ReportRequest
from spillway.bus import partition_of
from spillway.local_bus import LocalBus
from spillway_local.fleet_plan import deployment
from spillway_local.in_process import InProcess, in_process_platform

from .platform_steps import NAMESPACE, are_all_ready, bound_pods_by_cluster, join_members, wait_until
from .scaled_web import declare_policy, has_replicas, placed_replicas_by_cluster, requests_observed

pytestmark = pytest.mark.looptime


async def state_of_cluster(platform: InProcess, name: str) -> str:
    clusters = (await platform.planner().list_clusters(ListClustersRequest())).clusters
    return next(one.state for one in clusters if one.cluster == name)


async def test_all_start_anew_beside_a_cluster_that_does_not_answer_though_its_changes_are_gone() -> None:
    """Nothing new goes there until it answers, and what runs there stays."""
    starting = ("planner-1", "snapshot-1", "descheduler-1")
    async with in_process_platform(services=(*starting, "propagator-1", "hpa-1")) as platform:
        await join_members(platform)
        await platform.planner().apply(ApplyRequest((deployment("web", NAMESPACE, 40),)))
        await wait_until(lambda: are_bound(platform, "web", 40), "all of web runs")
        before = await placed_replicas_by_cluster(platform, "web")
        assert before["own-1"]
        await platform.silence_member("own-1")
        for name in starting:
            await platform.stop_instance(name)
        platform.start_instance("snapshot-2")
        await asyncio.sleep(60)
        place = partition_of("own-1", platform.broker.partition_count(CAPACITY_CHANGES))
        platform.broker.delete_records_before(
            CAPACITY_CHANGES, place, platform.broker.end_offset(CAPACITY_CHANGES.name, place)
        )
        for name in ("planner-2", "descheduler-2", "hpa-2"):
            platform.start_instance(name)
        await wait_until(lambda: platform.planner().is_active and platform.descheduler().is_active, "both are active")
        assert await state_of_cluster(platform, "own-1") in ("Stale", "Unreachable")
        await wait_until(lambda: has_state(platform, "cloud-1", "Ready"), "another cluster is ready")
        await platform.planner().apply(ApplyRequest((deployment("new", NAMESPACE, 10),)))
        assert "own-1" not in await placed_replicas_by_cluster(platform, "new")
        await asyncio.sleep(60)
        assert await placed_replicas_by_cluster(platform, "web") == before
        await platform.wake_member("own-1")
        await wait_until(lambda: are_all_ready(platform), "every cluster is ready again")
        assert (await bound_pods_by_cluster(platform, "web"))["own-1"] == before["own-1"]
        assert not [name for name, one in platform.running.items() if one.task.done()]


async def are_bound(platform: InProcess, service: str, replicas: int) -> bool:
    return sum((await bound_pods_by_cluster(platform, service)).values()) == replicas


async def has_state(platform: InProcess, name: str, state: str) -> bool:
    return await state_of_cluster(platform, name) == state


async def test_hpa_starts_anew_though_all_values_are_gone_and_scales_by_the_next_one() -> None:
    async with in_process_platform(services=("snapshot-1", "planner-1", "propagator-1", "hpa-1")) as platform:
        await join_members(platform)
        await wait_until(lambda: platform.hpa().is_active, "hpa is active")
        await platform.planner().apply(ApplyRequest((deployment("web", NAMESPACE, 2),)))
        await declare_policy(platform)
        await platform.hpa().report(ReportRequest((requests_observed(platform, "web", 40),)))
        await wait_until(lambda: has_replicas(platform, 4), "web has 4 replicas")
        await platform.stop_instance("hpa-1")
        place = partition_of(f"{NAMESPACE}/web", platform.broker.partition_count(LOAD))
        bus = LocalBus(platform.broker, platform.broker.fleet, "somebody")
        await bus.publish(*(requests_observed(platform, "web", 90) for _ in range(3)))
        platform.broker.delete_records_before(LOAD, place, platform.broker.end_offset(LOAD.name, place))
        platform.start_instance("hpa-2")
        await wait_until(lambda: platform.hpa().is_active, "the other hpa is active")
        assert await has_replicas(platform, 4)
        await platform.hpa().report(ReportRequest((requests_observed(platform, "web", 60),)))
        await wait_until(lambda: has_replicas(platform, 6), "web has 6 replicas")


async def test_a_start_reads_little_of_what_others_report_beside_a_quiet_policy() -> None:
    async with in_process_platform(
        services=("snapshot-1", "planner-1", "propagator-1", "hpa-1"), hpa_settings=HpaSettings(positions_behind_max=20)
    ) as platform:
        await join_members(platform)
        await wait_until(lambda: platform.hpa().is_active, "hpa is active")
        await platform.planner().apply(ApplyRequest((deployment("web", NAMESPACE, 2),)))
        await declare_policy(platform)
        count = platform.broker.partition_count(LOAD)
        place = partition_of(f"{NAMESPACE}/web", count)
        names = (f"other-{number}" for number in range(1_000))
        other = next(name for name in names if partition_of(f"{NAMESPACE}/{name}", count) == place)
        bus = LocalBus(platform.broker, platform.broker.fleet, "somebody")
        for _ in range(30):
            await bus.publish(*(requests_observed(platform, other, 35) for _ in range(10)))
            platform.broker.append_raw_record(LOAD, place, b"shop/web", b"nobody can read this", ())
            await asyncio.sleep(10)
        for _ in range(50):
            platform.broker.append_raw_record(LOAD, place, b"shop/web", b"nobody can read this", ())
        await asyncio.sleep(10)
        platform.start_instance("hpa-2")
        await asyncio.sleep(10)
        standby: Hpa = platform.running["hpa-2"].service
        end = platform.broker.end_offset(LOAD.name, place)
        assert end - standby.state.retained_start_offsets()[LOAD.name, place] <= 20 + 11
