"""Measures the time without an active planner, or without a collector, after the one with the turn was killed."""

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Mapping

from spillway.api import ApplyRequest
from spillway.rpc.client import PlannerClient
from spillway_local.fleet_plan import deployment

from .figures import Measured, Unmeasured
from .machine import is_process_gone
from .rig import BIG, Rig

DEADLINE_SECONDS = 45.0
RESPAWN_SECONDS = 10.0
READY_SECONDS = 40.0
AGE_MARGIN_SECONDS = 0.2
"""The error of an age: the time that its record needs through the log."""
_POLL_SECONDS = 0.05

Until = Callable[[str, int], Awaitable[None]]
"""Waits until another instance does the work of the program with this name and process id."""


async def measure_planner_takeover(rig: Rig) -> Mapping[str, Measured]:
    """Measures the time from the signal until another planner answers an Apply. The first is sent with the signal."""

    async def wait_for_other_planner(program: str, pid: int) -> None:
        seconds, endpoint = DEADLINE_SECONDS, rig.address_of_planner(program)
        async with PlannerClient(rig.addresses.planners, timeout_seconds=seconds, retry_seconds=seconds) as client:
            while True:
                was_gone, name = is_process_gone(pid), f"takeover-{time.monotonic_ns()}"
                await client.apply(ApplyRequest((deployment(name, "bench", 1),), name))
                # A planner that was asked to stop may still answer calls that it already has.
                if was_gone or client.active_instance_address() != endpoint:
                    return

    return {
        "planner_takeover_s": await _measure_stopped_and_killed(rig, rig.active_planner_program, wait_for_other_planner)
    }


async def measure_collector_takeover(rig: Rig) -> Mapping[str, Measured]:
    """Measures the time from the signal until a report of the big cluster is newer than the old collector's end."""

    async def wait_for_fresh_cluster(_: str, pid: int) -> None:
        while not is_process_gone(pid):
            await asyncio.sleep(_POLL_SECONDS)
        gone_at = time.monotonic()

        async def is_cluster_fresh() -> bool:
            found = await rig.find_cluster(BIG)
            since = time.monotonic() - gone_at - AGE_MARGIN_SECONDS
            return found is not None and found.state == "Ready" and 0 <= found.age_ms / 1000 < since

        await rig.wait_until(f"{BIG} is looked at again", is_cluster_fresh, DEADLINE_SECONDS)

    return {
        "collector_takeover_s": await _measure_stopped_and_killed(
            rig, lambda: rig.collector_of(BIG), wait_for_fresh_cluster
        )
    }


async def _measure_stopped_and_killed(rig: Rig, find: Callable[[], Awaitable[str]], until: Until) -> Measured:
    stopped = await _time_takeover(rig, await find(), find, until, clean=True)
    killed = await _time_takeover(rig, await find(), find, until, clean=False)
    return Measured(killed, stopped)


async def _time_takeover(
    rig: Rig, program: str, find: Callable[[], Awaitable[str]], until: Until, *, clean: bool
) -> float:
    """Returns the seconds from the signal until the takeover. The supervisor must not restart the program before."""
    rig.say(f"{program} {'is stopped' if clean else 'is killed with -9'}")
    pid = rig.pid_of_program(program)
    started = time.monotonic()
    if clean:
        ending = asyncio.create_task(asyncio.to_thread(rig.stack.supervision.stop_program, program))
    else:
        os.kill(pid, signal.SIGKILL)
        ending = asyncio.create_task(asyncio.to_thread(_keep_program_down, rig, program, pid))
    try:
        await until(program, pid)
        seconds = time.monotonic() - started
    finally:
        await ending
        await asyncio.to_thread(rig.stack.supervision.start_program, program)
    other = await find()
    rig.say(f"{other} took over after {seconds:.2f} s")
    await rig.wait_until(
        f"{program} is ready again", lambda: asyncio.to_thread(rig.is_program_ready, program), READY_SECONDS
    )
    return seconds


def _keep_program_down(rig: Rig, program: str, killed: int) -> None:
    """Stops the program as soon as the supervisor has restarted it, before it has read its settings."""
    deadline = time.monotonic() + RESPAWN_SECONDS
    while not (pids := rig.stack.pids(program)) or pids == [killed]:
        if time.monotonic() > deadline:
            raise Unmeasured(f"{program} was not started again")
        time.sleep(_POLL_SECONDS)
    rig.stack.supervision.stop_program(program)
