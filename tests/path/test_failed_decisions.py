"""A bug of the planner's in what it does of itself: the workload that meets it keeps what it has, others are served."""

import looptime  # noqa: F401 - the plugin makes an hour of waiting take milliseconds
import pytest

from planner.core.background import aftermath
from planner.core.background.aftermath import Step
from planner.core.knowledge.state import PlannerState
from planner.core.knowledge.subject import Moment
from planner.core.knowledge.workload import Workload
from spillway import metrics
from spillway.api import ApplyRequest, GetRequest, ScaleRequest
from spillway_local.fleet_plan import deployment
from spillway_local.in_process import InProcess, in_process

from .platform_steps import NAMESPACE, join, until

pytestmark = pytest.mark.looptime


async def placed(platform: InProcess, name: str, replicas: int) -> int:
    return (await platform.planner().apply(ApplyRequest((deployment(name, NAMESPACE, replicas),)))).placed


async def kept(platform: InProcess, name: str) -> int:
    found = await platform.planner().get(GetRequest(NAMESPACE, name))
    assert found.placement is not None
    return found.placement.placed


async def test_a_bug_that_one_workload_meets_ends_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    try_again = aftermath.try_again

    def with_a_bug(state: PlannerState, workload: Workload, moment: Moment, *more: object) -> Step:
        return next(iter(())) if workload.key[1] == "broken" else try_again(state, workload, moment, *more)  # type: ignore[arg-type]

    async with in_process() as platform:
        await join(platform)
        room = await placed(platform, "room", 10_000)
        assert [await placed(platform, name, 1) for name in ("broken", "other")] == [0, 0]
        planner, turns, failed = platform.planner(), metrics.TURNS_TAKEN.labels("planner"), metrics.DECISIONS_FAILED
        before = turns._value.get(), failed._value.get()
        with monkeypatch.context() as patched:
            patched.setattr(aftermath, "try_again", with_a_bug)
            await planner.scale(ScaleRequest(NAMESPACE, "room", room - 2))
            await until(lambda: kept(platform, "other"), "the other one has a place")
        assert await kept(platform, "broken") == 0
        assert (planner.is_active, turns._value.get(), failed._value.get()) == (True, before[0], before[1] + 1)
        await until(lambda: kept(platform, "broken"), "a minute later it is tried again", 90)
