"""The demo's story on real parts."""

from spillway_local.story import Story

from .running import Platform


async def test_the_story_ends_right_twice_on_one_log(platform: Platform) -> None:
    """60, 400, 80, a refusal and a silent cluster: every check holds, and again with other names on the same log."""
    first = await Story(platform.planner, platform.members, print).tell()
    await platform.clear()
    second = await Story(platform.planner, platform.members, print, service="web-again", late="late-again").tell()
    assert len(first) == len(second) == 9
