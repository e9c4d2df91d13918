"""What others write into load and backlog ends nothing: in one process and virtual time."""

import asyncio

import pytest

from spillway.addresses import BACKLOG, DEAD_LETTERS, LOAD
from spillway.api import ApplyRequest
from spillway.api_scaling import ReportRequest
from spillway_local.fleet_plan import deployment
from spillway_local.in_process import in_process_platform

from .platform_steps import NAMESPACE, join_members, wait_until
from .scaled_web import declare_policy, has_replicas, requests_observed

pytestmark = pytest.mark.looptime


@pytest.mark.parametrize("per_second", [5, 50])
async def test_a_publisher_that_forgets_the_fleet_ends_no_hpa_and_hides_no_value(per_second: int) -> None:
    async with in_process_platform(services=("snapshot-1", "planner-1", "propagator-1", "hpa-1", "hpa-2")) as platform:
        await join_members(platform)
        await wait_until(lambda: platform.hpa().is_active, "hpa is active")
        await platform.planner().apply(ApplyRequest((deployment("web", NAMESPACE, 2),)))
        await declare_policy(platform)
        active = platform.hpa()
        for minute in range(5):
            for _ in range(60):
                for number in range(per_second):
                    platform.broker.append_raw_record((LOAD, BACKLOG)[number % 2], number % 4, b"shop/web", b"42", ())
                await asyncio.sleep(1)
            await platform.hpa().report(ReportRequest((requests_observed(platform, "web", 30 + 10 * minute),)))
            await wait_until(lambda minute=minute: has_replicas(platform, 3 + minute), f"web has {3 + minute} replicas")
        assert platform.hpa() is active
        assert not [name for name, one in platform.running.items() if one.task.done()]
        assert platform.broker.end_offset(DEAD_LETTERS.name, 0) <= 4  # Of each topic, by each hpa.
        platform.start_instance("hpa-3")
        await asyncio.sleep(30)
        assert not platform.running["hpa-3"].task.done()
