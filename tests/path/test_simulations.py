"""An export of a running platform, and simulations on it against what the platform then does."""

import looptime  # noqa: F401 - the plugin makes an hour of waiting take milliseconds
import pytest

from planner.api import exports
from planner.core.explaining.simulating import Simulation
from spillway.api import ApplyRequest, BatchItem, ExportRequest, PlanBatchRequest
from spillway_local.fleet_plan import deployment
from spillway_local.in_process import InProcess, in_process_platform

from .platform_steps import NAMESPACE, bound_pods_by_cluster, join_members, wait_until

pytestmark = pytest.mark.looptime


def release_request(number: int) -> ApplyRequest:
    """Small and large ones; the last ones wait, or are refused."""
    cpu = ("500m", "3", "700m", "40")[number % 4]
    return ApplyRequest((deployment(f"web-{number}", NAMESPACE, 20 + 7 * number, cpu=cpu),))


async def start_releases(platform: InProcess) -> None:
    await join_members(platform)
    await platform.planner().apply(ApplyRequest((deployment("first", NAMESPACE, 60),)))

    async def are_all_running() -> bool:
        return sum((await bound_pods_by_cluster(platform)).values()) == 60

    await wait_until(are_all_running, "the first workload runs")
    state = platform.planner().state
    await wait_until(lambda: not state.unbound_places(), "the planner knows that it does")


async def test_a_simulation_says_what_a_batch_then_does() -> None:
    async with in_process_platform() as platform:
        await start_releases(platform)
        planner = platform.planner()
        replies = [reply async for reply in planner.export(ExportRequest())]
        simulation = Simulation(exports.read_state(replies), exports.NOW, replies[0].at_ms)
        asked = [release_request(number) for number in range(12)]
        for number, request in enumerate(asked):
            simulation.answer_request(f"web-{number}", request)
        done = await planner.plan_batch(PlanBatchRequest(tuple(BatchItem(apply=request) for request in asked)))
        assert [f"{answer.code}: {answer.error}" if answer.error else "" for answer in done.answers] == [
            answer.refused for answer in simulation.answers
        ]
        assert [answer.placement and answer.placement.parts for answer in done.answers] == [
            answer.placement and answer.placement.parts for answer in simulation.answers
        ]
        assert {answer.code for answer in done.answers} == {"OK", "FAILED_PRECONDITION"}
        assert any(answer.placement and answer.placement.unplaced for answer in done.answers)
