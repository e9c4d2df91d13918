"""The planner meets an error in a decision without a request: it leaves that workload or step alone, and serves on."""

from collections.abc import Callable
from typing import NoReturn

import looptime  # noqa: F401 - the plugin makes an hour of waiting take milliseconds
import pytest

from planner.core.background import aftermath, moves, twins
from planner.core.background.aftermath import AftermathStep
from planner.core.background.headroom import Headrooms
from planner.core.knowledge.state import PlannerState
from planner.core.knowledge.subject import Moment
from planner.core.knowledge.workload import Workload
from spillway import metrics
from spillway.api import ApplyRequest, GetRequest, ScaleRequest
from spillway.events import BrakeSet
from spillway_local.fleet_plan import deployment
from spillway_local.in_process import InProcess, in_process_platform

from .platform_steps import NAMESPACE, join_members, wait_until

pytestmark = pytest.mark.looptime


async def apply_deployment(platform: InProcess, name: str, replicas: int) -> int:
    return (await platform.planner().apply(ApplyRequest((deployment(name, NAMESPACE, replicas),)))).placed


async def placed_replicas(platform: InProcess, name: str) -> int:
    found = await platform.planner().get(GetRequest(NAMESPACE, name))
    assert found.placement is not None
    return found.placement.placed


def step_with_bug(workload: Workload) -> AftermathStep:
    return next(iter(()))


def step_too_large_for_record(workload: Workload) -> AftermathStep:
    return AftermathStep(workload.workload_key, (BrakeSet("", "", "", 2**70),), "")


@pytest.mark.parametrize("fault", [step_with_bug, step_too_large_for_record])
async def test_an_error_that_one_workload_meets_ends_no_turn(
    monkeypatch: pytest.MonkeyPatch, fault: Callable[[Workload], AftermathStep]
) -> None:
    try_again = aftermath.retry_waiting_workload

    def step_with_fault(state: PlannerState, workload: Workload, moment: Moment, *more: object) -> AftermathStep:
        return fault(workload) if workload.workload_key[1] == "broken" else try_again(state, workload, moment, *more)  # type: ignore[arg-type]

    async with in_process_platform() as platform:
        await join_members(platform)
        room = await apply_deployment(platform, "room", 10_000)
        assert [await apply_deployment(platform, name, 1) for name in ("broken", "other")] == [0, 0]
        planner, turns, failed = platform.planner(), metrics.TURNS_TAKEN.labels("planner"), metrics.DECISIONS_FAILED
        before = turns._value.get(), failed._value.get()
        with monkeypatch.context() as patched:
            patched.setattr(aftermath, "retry_waiting_workload", step_with_fault)
            await planner.scale(ScaleRequest(NAMESPACE, "room", room - 2))
            await wait_until(lambda: placed_replicas(platform, "other"), "the other one has a place")
        assert await placed_replicas(platform, "broken") == 0
        assert (planner.is_active, turns._value.get(), failed._value.get()) == (True, before[0], before[1] + 1)
        await wait_until(lambda: placed_replicas(platform, "broken"), "a minute later it is tried again", 90)


async def test_an_error_in_a_step_about_the_fleet_stops_this_step_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them is broken in turn, and a workload that waits gets its place in the same round."""

    def raise_error(*_: object) -> NoReturn:
        raise ZeroDivisionError

    async with in_process_platform() as platform:
        await join_members(platform)
        room = await apply_deployment(platform, "room", 10_000)
        assert await apply_deployment(platform, "other", 1) == 0
        planner, turns, failed = platform.planner(), metrics.TURNS_TAKEN.labels("planner"), metrics.DECISIONS_FAILED
        before = turns._value.get(), failed._value.get()
        with monkeypatch.context() as patched:
            steps = (
                (aftermath, "update_progress_timers"),
                (moves, "workloads_due_to_move"),
                (moves, "clusters_that_left"),
                (twins, "workloads_to_hand_over"),
                (Headrooms, "report_due_headroom"),
            )
            for owner, name in steps:
                patched.setattr(owner, name, raise_error)
            await planner.scale(ScaleRequest(NAMESPACE, "room", room - 2))
            await wait_until(lambda: placed_replicas(platform, "other"), "it has a place")
        assert (planner.is_active, turns._value.get()) == (True, before[0])
        assert failed._value.get() == before[1] + len(steps), "each is left alone for a minute after its error"
