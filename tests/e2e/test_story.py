"""The demo's story on real parts."""

from spillway_local.story import Story

from .running import Platform


async def test_the_story_ends_right_twice_on_one_log(platform: Platform) -> None:
    """60, 400, 80, a backlog, a refusal, a silent cluster: every check holds, and again with other names on one log."""
    first = await Story(platform.planner, platform.scaling, platform.members, print).tell()
    await platform.clear()
    again = Story(platform.planner, platform.scaling, platform.members, print, service="web-again", late="late-again")
    second = await again.tell()
    assert len(first) == len(second) == 11
