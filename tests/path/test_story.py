"""The whole story in one process: clusters report, a release is split own-first, its replicas run."""

import asyncio
from dataclasses import replace

import looptime  # noqa: F401 - the plugin makes an hour of waiting take milliseconds
import pytest

from spillway.api import PlacementReply, ScaleRequest
from spillway_local.demo import STORY_SERVICES, run_story_in_process
from spillway_local.in_process import InProcess, in_process_platform
from spillway_local.story import NAMESPACE, SERVICE


async def run_story(platform: InProcess) -> list[str]:
    async with asyncio.timeout(600):
        return await run_story_in_process(platform, print)


@pytest.mark.looptime
async def test_the_story_ends_right() -> None:
    """Lent nodes, 60, 400 and 80 replicas, a backlog, a refusal, a silent cluster: every check of the story holds."""
    async with in_process_platform(services=STORY_SERVICES) as platform:
        checks = await run_story(platform)
    assert len(checks) == 12


@pytest.mark.looptime
async def test_a_scale_repeated_with_its_key_changes_nothing() -> None:
    """The same idempotency key gives the same answer. What the division was made of stands in the decision's record."""
    async with in_process_platform(services=STORY_SERVICES) as platform:
        await run_story(platform)
        request = ScaleRequest(NAMESPACE, SERVICE, 70, "again")
        answers: list[PlacementReply] = [await platform.planner().scale(request) for _ in range(2)]
        assert answers[0].inputs
        assert answers[1] == replace(answers[0], inputs=())
