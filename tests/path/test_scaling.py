"""Decisions of scale policies on their way: from the log to placements and pods, over restarts and turns."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import looptime  # noqa: F401 - the plugin makes an hour of waiting take milliseconds
import pytest

from planner.settings import PlannerSettings
from spillway.addresses import SCALE_POLICIES, Tombstone, workload_address
from spillway.api import ApplyRequest, GetRequest, PlacementReply, RequestError, ScaleRequest
from spillway.bus import Writer
from spillway.events_scaling import ScaleDecided, ScalePolicyDeclared
from spillway.local_bus import LocalBus
from spillway.model import Generation
from spillway_local.fleet_plan import deployment
from spillway_local.in_process import FLEET_ID, InProcess, in_process_platform

from .platform_steps import NAMESPACE, bound_pods_by_cluster, join_members, wait_until

pytestmark = pytest.mark.looptime

KIND = "HorizontalPodAutoscaler"


class Scaler:
    """Writes to the log as hpa does in its turn: fenced, with rising generations."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.sequence = 0

    def next_generation(self) -> Generation:
        self.sequence += 1
        return Generation(self.writer.turn_epoch, self.sequence)

    async def attach_policies(self, *names: str) -> None:
        await self.writer.write_events(
            [ScalePolicyDeclared(NAMESPACE, name, self.next_generation(), KIND, name, b"{}", 0) for name in names]
        )

    async def detach_policy(self, name: str) -> None:
        await self.writer.write_events([Tombstone(workload_address(SCALE_POLICIES, NAMESPACE, name))])

    async def decide_replicas(self, replicas: int, *names: str) -> None:
        await self.writer.write_events(
            [ScaleDecided(NAMESPACE, name, self.next_generation(), name, KIND, replicas, 0, 0, "cpu") for name in names]
        )


@asynccontextmanager
async def open_scaler(platform: InProcess) -> AsyncIterator[Scaler]:
    bus = LocalBus(platform.broker, FLEET_ID, "spillway/hpa-1")
    async with bus.join_standby_group("hpa", "hpa-1@hpa-1") as turn:
        yield Scaler(await turn.wait_for_turn())
    await bus.__aexit__()


async def apply_deployment(platform: InProcess, name: str, replicas: int) -> PlacementReply:
    return await platform.planner().apply(ApplyRequest((deployment(name, NAMESPACE, replicas),)))


async def get_placement(platform: InProcess, name: str) -> PlacementReply:
    return (await platform.planner().get(GetRequest(NAMESPACE, name))).placement


async def wait_until_followed(platform: InProcess, replicas: int, *names: str) -> None:
    async def is_reached() -> bool:
        try:
            return all([(await get_placement(platform, name)).replicas == replicas for name in names])
        except RequestError:  # Between two planners nobody answers.
            return False

    await wait_until(is_reached, f"{names} have {replicas} replicas")


async def test_what_is_decided_is_placed_runs_goes_to_zero_and_comes_back() -> None:
    async with in_process_platform() as platform, open_scaler(platform) as hpa:
        await join_members(platform)
        await apply_deployment(platform, "web", 2)
        await hpa.attach_policies("web")
        await wait_until(lambda: platform.planner().state.scalings.policies, "the policy is known")
        for replicas in (9, 0, 4):
            await hpa.decide_replicas(replicas, "web")

            async def are_running(replicas: int = replicas) -> bool:
                return sum((await bound_pods_by_cluster(platform, "web")).values()) == replicas

            await wait_until(are_running, f"{replicas} run")
        history = (await platform.planner().get(GetRequest(NAMESPACE, "web", 10))).history
        assert {(record.cause, record.scaled_by) for record in history if record.replicas == 9} == {
            ("Autoscale", f"{KIND}/web")
        }
        with pytest.raises(RequestError) as refused:
            await platform.planner().scale(ScaleRequest(NAMESPACE, "web", 5))
        assert (refused.value.code, f"{KIND}/web" in refused.value.text) == ("FAILED_PRECONDITION", True)
        reply = await apply_deployment(platform, "web", 7)
        assert (reply.replicas, reply.scaled_by) == (4, f"{KIND}/web")
        await hpa.detach_policy("web")
        await wait_until(lambda: not platform.planner().state.scalings.policies, "the policy is gone")
        assert (await platform.planner().scale(ScaleRequest(NAMESPACE, "web", 5))).replicas == 5


@pytest.mark.parametrize("ends", ["stop", "kill"])
async def test_a_planner_that_takes_over_declares_what_was_not_and_nothing_twice(ends: str) -> None:
    services = ("snapshot-1", "planner-1", "planner-2", "propagator-1")
    async with in_process_platform(services=services) as platform, open_scaler(platform) as hpa:
        await join_members(platform)
        await apply_deployment(platform, "web", 2)
        await hpa.attach_policies("web")
        await hpa.decide_replicas(6, "web")
        await wait_until_followed(platform, 6, "web")
        generation = (await get_placement(platform, "web")).generation
        active = next(name for name, entry in platform.running.items() if entry.service is platform.planner())
        await (platform.stop_instance(active) if ends == "stop" else platform.kill_instance(active))
        await hpa.decide_replicas(8, "web")
        await wait_until(lambda: platform.planner().is_active, "the other planner is active")
        await wait_until_followed(platform, 8, "web")
        platform.start_instance(active)
        await asyncio.sleep(5)
        assert (await get_placement(platform, "web")).generation == generation + 1


async def test_many_decisions_at_once_are_declared_in_bounded_steps_and_no_request_waits_for_all() -> None:
    settings = PlannerSettings(scales_in_group_max=2)
    async with in_process_platform(services=("snapshot-1", "planner-1"), planner_settings=settings) as platform:
        await join_members(platform)
        names = [f"web-{number}" for number in range(30)]
        for name in names:
            await apply_deployment(platform, name, 1)
        async with open_scaler(platform) as hpa:
            await hpa.attach_policies(*names)
            await wait_until(lambda: len(platform.planner().state.scalings.policies) == 30, "all policies are known")
            await hpa.decide_replicas(3, *names)
            for _ in range(1000):  # Turns of the loop, in which no time passes: all of them are a moment's work.
                if platform.planner().state.scalings.due:
                    break
                await asyncio.sleep(0)
            await apply_deployment(platform, "other", 1)
            assert platform.planner().state.scalings.due, "the request waited for all decisions"
            await wait_until_followed(platform, 3, *names)
