"""Runs `make demo`: starts the platform, tells the story, and verifies it from the members' own APIs."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import structlog

from planner.settings import PlannerSettings
from spillway.clusters.api import ClusterApi
from spillway.rpc.client import LendingClient, PlannerClient, ScalingClient
from spillway_local.in_process import SERVICES, InProcess, in_process_platform
from spillway_local.stack import Addresses, Stack, StackOptions
from spillway_local.story import Story

Say = Callable[[str], None]

# A silent cluster counts as stale sooner than in production, so that the story does not have to wait.
STORY_ENVIRONMENT = (("SPILLWAY_PLANNER_CAPACITY_AGE_MAX_SECONDS", "8"),)

RPC_OFFSET = 100
"""The offset from the ports of `make up`, which are the command's defaults, so that a demo does not take them."""

STORY_SERVICES = (*SERVICES, "hpa-1", "descheduler-1", "vk-bridge-1")


@dataclass(slots=True)
class StackMembers:
    """The members of a stack of processes, read with the same credentials as the services use."""

    stack: Stack
    apis: dict[str, ClusterApi] = field(default_factory=dict)

    def member_api(self, name: str) -> ClusterApi:
        if name not in self.apis:
            self.apis[name] = self.stack.connect_to_member(name)
        return self.apis[name]

    async def silence_member(self, name: str) -> None:
        await asyncio.to_thread(self.stack.silence_member, name)

    async def wake_member(self, name: str) -> None:
        await asyncio.to_thread(self.stack.wake_member, name)

    async def close(self) -> None:
        for api in self.apis.values():
            await api.close()


def story_options(folder: Path, members: Literal["sim", "kube"]) -> StackOptions:
    return StackOptions(folder, members, environment=STORY_ENVIRONMENT, outlives=False, rpc_offset=RPC_OFFSET)


def run_demo(bus: Literal["kafka", "memory"], members: Literal["sim", "kube"], folder: Path, say: Say) -> Sequence[str]:
    """Runs the story and returns the verified facts as texts. Raises StoryFailed, MissingTool and similar errors."""
    started = time.monotonic()
    if bus == "memory":
        say("BUS=memory: services, log and simulated members in this one process; no Java, Maven or Redis")
        return asyncio.run(_run_story_in_memory(say))
    stack = Stack(story_options(folder, members), say)
    stack.stop_and_delete_data()  # A story begins with an empty log; downloads and ports are kept.
    try:
        addresses = stack.start()
        say(f"the platform is up after {time.monotonic() - started:.0f} s; planners at {', '.join(addresses.planners)}")
        return asyncio.run(_run_story_on_stack(stack, addresses, say))
    except KeyboardInterrupt:
        say("interrupted: the started processes are being stopped, for up to half a minute; Ctrl-C again does not wait")
        raise
    finally:
        stack.stop()


async def _run_story_on_stack(stack: Stack, addresses: Addresses, say: Say) -> list[str]:
    async with AsyncExitStack() as exits:
        members = StackMembers(stack)
        exits.push_async_callback(members.close)
        planner = await exits.enter_async_context(PlannerClient(addresses.planners, fleet=addresses.fleet))
        scaling = await exits.enter_async_context(ScalingClient(addresses.hpas, fleet=addresses.fleet))
        lending = await exits.enter_async_context(LendingClient(addresses.deschedulers, fleet=addresses.fleet))
        return await Story(planner, scaling, lending, members, say).run_story()


async def _run_story_in_memory(say: Say) -> list[str]:
    # The services' logs would be mixed into the story. Services that run as processes have log files of their own.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    async with in_process_platform(
        services=STORY_SERVICES, planner_settings=PlannerSettings(capacity_age_max_seconds=8)
    ) as platform:
        return await run_story_in_process(platform, say)


async def run_story_in_process(platform: InProcess, say: Say) -> list[str]:
    """Runs the story on STORY_SERVICES, once each kind has an active instance. Returns the checks."""
    while not all(kind().is_active for kind in (platform.planner, platform.hpa, platform.descheduler)):
        await asyncio.sleep(0.05)
    return await Story(platform.planner(), platform.hpa(), platform.descheduler(), platform, say).run_story()
