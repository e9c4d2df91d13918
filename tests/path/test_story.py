"""The whole story in one process: clusters report, a release is split own-first, its replicas run."""

import asyncio

import looptime  # noqa: F401 - the plugin makes an hour of waiting take milliseconds
import pytest

from spillway.api import PlacementReply, ScaleRequest
from spillway_local.in_process import SERVICES, InProcess, in_process
from spillway_local.story import NAMESPACE, SERVICE, Story


async def tell(platform: InProcess) -> list[str]:
    await until_active(platform)
    return await Story(platform.planner(), platform.hpa(), platform, print).tell()


async def until_active(platform: InProcess) -> None:
    async with asyncio.timeout(30):
        while not (platform.planner().is_active and platform.hpa().is_active):
            await asyncio.sleep(0.05)


@pytest.mark.looptime
async def test_the_story_ends_right() -> None:
    """60, 400 and 80 replicas, a backlog, a refusal and a silent cluster: every check of the story holds."""
    async with in_process(services=(*SERVICES, "hpa-1")) as platform:
        checks = await tell(platform)
    assert len(checks) == 11


@pytest.mark.looptime
async def test_a_scale_repeated_with_its_key_changes_nothing() -> None:
    """The same idempotency key gives the same answer."""
    async with in_process(services=(*SERVICES, "hpa-1")) as platform:
        await tell(platform)
        request = ScaleRequest(NAMESPACE, SERVICE, 70, "again")
        answers: list[PlacementReply] = [await platform.planner().scale(request) for _ in range(2)]
        assert answers[0] == answers[1]
