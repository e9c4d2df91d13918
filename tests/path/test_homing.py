"""Peak, overflow, quiet, home: in one process and virtual time, on simulated members."""

import asyncio

import pytest
from prometheus_client import REGISTRY

from planner.core.knowledge.allowance import CAUSE_HOME
from planner.settings import PlannerSettings
from spillway.api import GetRequest, ScaleRequest
from spillway_local.in_process import in_process_platform

from .platform_steps import NAMESPACE, join, until
from .test_moves import THREE, parts, ready_pods, request, watched

pytestmark = pytest.mark.looptime

AFTER = 60.0
FLEET = (THREE[0], THREE[2])
"""own-1 and cloud-1, of eight slots each."""


def moved() -> float:
    """Replicas sent home, as the metric counts them."""
    return REGISTRY.get_sample_value("spillway_replicas_moved_total", {"cause": CAUSE_HOME}) or 0.0


async def test_peak_overflow_quiet_home() -> None:
    """Six overflow while another workload has the room; it goes, and they are home a minute later, none missing
    meanwhile. Each moved once, and nothing is decided any more."""
    async with in_process_platform(FLEET, planner_settings=PlannerSettings(home_after_seconds=AFTER)) as platform:
        before = moved()
        await join(platform)
        planner = platform.planner()
        await planner.apply(request(6, "batch"))
        await planner.apply(request(6))
        await until(lambda: ready_pods(platform) == {"own-1": 2, "cloud-1": 4}, "web overflowed")
        await until(lambda: ready_pods(platform, "batch")["own-1"] == 6, "the room at home is another's")
        await asyncio.sleep(3 * AFTER)
        assert parts(platform) == {"own-1": (2, 0, 0), "cloud-1": (4, 0, 0)}
        async with watched(platform) as pods:
            await planner.scale(ScaleRequest(NAMESPACE, "batch", 0))
            await asyncio.sleep(AFTER - 5)
            assert parts(platform) == {"own-1": (2, 0, 0), "cloud-1": (4, 0, 0)}
            await until(lambda: ready_pods(platform) == {"own-1": 6, "cloud-1": 0}, "all are home", 60)
        assert pods.fewest == 6
        assert moved() - before == 4
        await asyncio.sleep(5 * AFTER)
        await until(lambda: parts(platform) == {"own-1": (6, 0, 0)}, "cloud-1 is listed no more")
        reply = await planner.get(GetRequest(NAMESPACE, "web", 20))
        assert [entry.cause for entry in reply.history].count(CAUSE_HOME) == 1
        assert moved() - before == 4
