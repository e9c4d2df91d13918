"""Peak, overflow, quiet, home: in one process and virtual time, on simulated members."""

import asyncio

import pytest
from prometheus_client import REGISTRY

from planner.core.knowledge.allowance import CAUSE_HOME
from planner.settings import PlannerSettings
from spillway.api import GetRequest, ScaleRequest
from spillway_local.in_process import in_process_platform

from .platform_steps import NAMESPACE, join_members, wait_until
from .test_moves import THREE, apply_request, ready_pods_by_cluster, replicas_of_parts, watch_ready_pods

pytestmark = pytest.mark.looptime

AFTER = 60.0
FLEET = (THREE[0], THREE[2])
"""own-1 and cloud-1, of eight slots each."""


def replicas_sent_home() -> float:
    """Replicas sent home, as the metric counts them."""
    return REGISTRY.get_sample_value("spillway_replicas_moved_total", {"cause": CAUSE_HOME}) or 0.0


async def test_peak_overflow_quiet_home() -> None:
    """Six overflow while another workload has the room; it goes, and they are home a minute later, none missing
    meanwhile. Each moved once, and nothing is decided any more."""
    async with in_process_platform(FLEET, planner_settings=PlannerSettings(home_after_seconds=AFTER)) as platform:
        before = replicas_sent_home()
        await join_members(platform)
        planner = platform.planner()
        await planner.apply(apply_request(6, "batch"))
        await planner.apply(apply_request(6))
        await wait_until(lambda: ready_pods_by_cluster(platform) == {"own-1": 2, "cloud-1": 4}, "web overflowed")
        await wait_until(
            lambda: ready_pods_by_cluster(platform, "batch")["own-1"] == 6, "the room at home is another's"
        )
        await asyncio.sleep(3 * AFTER)
        assert replicas_of_parts(platform) == {"own-1": (2, 0, 0), "cloud-1": (4, 0, 0)}
        async with watch_ready_pods(platform) as pods:
            await planner.scale(ScaleRequest(NAMESPACE, "batch", 0))
            await asyncio.sleep(AFTER - 5)
            assert replicas_of_parts(platform) == {"own-1": (2, 0, 0), "cloud-1": (4, 0, 0)}
            await wait_until(lambda: ready_pods_by_cluster(platform) == {"own-1": 6, "cloud-1": 0}, "all are home", 60)
        assert pods.fewest == 6
        assert replicas_sent_home() - before == 4
        await asyncio.sleep(5 * AFTER)
        await wait_until(lambda: replicas_of_parts(platform) == {"own-1": (6, 0, 0)}, "cloud-1 is listed no more")
        reply = await planner.get(GetRequest(NAMESPACE, "web", 20))
        assert [entry.cause for entry in reply.history].count(CAUSE_HOME) == 1
        assert replicas_sent_home() - before == 4
