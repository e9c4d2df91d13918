"""The demo's story on real parts."""

from spillway_local.story import Story

from .running import Platform


async def test_the_story_ends_right_twice_on_one_log(platform: Platform) -> None:
    """Lent nodes, 60, 400, 80, a backlog, a refusal, a silent cluster: every check holds, twice on one log."""
    parts = (platform.planner, platform.scaling, platform.lending, platform.members, print)
    first = await Story(*parts).run_story()
    await platform.delete_all_workloads()
    second = await Story(*parts, service="web-again", late="late-again").run_story()
    assert len(first) == len(second) == 12
