"""The demo's story on real parts."""

from spillway_local.story import Story

from .running import Platform


async def test_the_story_ends_right(platform: Platform) -> None:
    """Lent nodes, 60, 400, 80, a backlog, a refusal, a silent cluster: every check holds, also on a log that others
    have used before."""
    story = Story(platform.planner, platform.scaling, platform.lending, platform.members, print)
    assert len(await story.run_story()) == 12
