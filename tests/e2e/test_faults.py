"""Parts that die in mid-story: the story still ends right."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from spillway.api import ApplyRequest, GetRequest, ScaleRequest
from spillway_local.fleet_plan import deployment

from .running import NAMES, NAMESPACE, SERVICES, Platform, wait_until

FULL = {"own-1": 96, "own-2": 192, "cloud-1": 112}
Fault = Callable[[Platform], Awaitable[object]]


async def _kill_program(platform: Platform, name: str) -> None:
    platform.kill_program(name)


async def _kill_active_planner(platform: Platform) -> None:
    platform.kill_program(await platform.active_planner())


async def _kill_standby_planner(platform: Platform) -> None:
    active = await platform.active_planner()
    platform.kill_program("planner-2" if active == "planner-1" else "planner-1")


async def _kill_both_instances(platform: Platform, kind: str) -> None:
    for number in (1, 2):
        platform.kill_program(f"{kind}-{number}")


async def _flush_redis(platform: Platform) -> None:
    platform.run_redis_command("FLUSHALL")


FAULTS: dict[str, Fault] = {
    "redis-flushed": _flush_redis,
    "redis-killed": lambda platform: _kill_program(platform, "redis"),
    "kafka-killed": lambda platform: _kill_program(platform, "kafka"),
    "active-planner-killed": _kill_active_planner,
    "standby-planner-killed": _kill_standby_planner,
    "snapshots-killed": lambda platform: _kill_both_instances(platform, "snapshot"),
    "propagators-killed": lambda platform: _kill_both_instances(platform, "propagator"),
}
BEFORE = "while it is asked for"
BROKEN_SECONDS = 180.0
"""A killed broker alone takes up to a minute to be back on a busy machine."""
AFTER = "once it is answered"


@pytest.mark.parametrize(
    ("fault", "moment"),
    [
        ("redis-flushed", AFTER),
        ("redis-killed", BEFORE),
        ("kafka-killed", AFTER),
        ("active-planner-killed", BEFORE),
        ("active-planner-killed", AFTER),
        ("standby-planner-killed", BEFORE),
        ("snapshots-killed", AFTER),
        ("propagators-killed", BEFORE),
        ("propagators-killed", AFTER),
    ],
)
async def test_the_story_ends_right_when(platform: Platform, fault: str, moment: str) -> None:
    """60 to 400 is under way when a part dies: each cluster takes exactly what fits, nothing pends or runs twice."""
    service = f"web-{fault}-{moment.split(maxsplit=1)[0]}"
    await platform.planner.apply(ApplyRequest((deployment(service, NAMESPACE, 60),)))
    await platform.wait_until_running(service, 60)
    pids = {name: platform.pid_of_program(name) for name in SERVICES}

    asked = asyncio.create_task(platform.planner.scale(ScaleRequest(NAMESPACE, service, 400)))
    if moment == AFTER:
        await asked
    await FAULTS[fault](platform)
    await asked

    assert await platform.wait_until_running(service, 400, BROKEN_SECONDS) == FULL
    await platform.wait_until_all_ready()
    for name in SERVICES:
        await platform.wait_until_up(name)
    await platform.planner.scale(ScaleRequest(NAMESPACE, service, 80))
    counts = await platform.wait_until_running(service, 80)
    assert "cloud-1" not in counts
    await wait_until("no other pod is left", lambda: _are_pods_left(platform, 80))
    await _wait_for_history(platform, service, [80, 400, 60])
    if fault.startswith(("redis", "kafka")):
        assert {name: platform.pid_of_program(name) for name in SERVICES} == pids, "services go on without it"


async def _are_pods_left(platform: Platform, pods: int) -> bool:
    """Whether there are so many pods in all clusters, terminating ones included."""
    return sum([len(await platform.list_pods(name)) for name in NAMES]) == pods


async def _wait_for_history(platform: Platform, service: str, replicas: list[int]) -> None:
    """What Redis lost is filled in again from the log."""
    found: list[int] = []

    async def is_complete() -> bool:
        reply = await platform.planner.get(GetRequest(NAMESPACE, service, history=50))
        found[:] = [entry.replicas for entry in reply.history]
        return [entry for at, entry in enumerate(found) if entry not in found[:at]] == replicas

    await wait_until(f"the history of {service} tells of {replicas}", is_complete, 60, lambda: found)
