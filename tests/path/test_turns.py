"""Which planner answers as the active one, in one process and virtual time."""

import asyncio
import sys
from pathlib import Path

import pytest

from planner.service import Planner
from spillway.api import ApplyRequest, ListBrakesRequest, ListRequest, RequestError
from spillway.events import BrakeSet
from spillway.local_bus import LocalBus
from spillway_local import member_nodes
from spillway_local.fleet_plan import GIB, MemberPlan, deployment
from spillway_local.in_process import FLEET_ID, in_process

sys.path.insert(0, str(Path(__file__).parent))
from platform_steps import NAMESPACE, join, until

pytestmark = pytest.mark.looptime

SMALL = (MemberPlan("own-1", "own", (member_nodes.NodeSpec(2, "n", 4_000, 16 * GIB),), room=16),)


async def brakes(planner: Planner) -> tuple[bool, list[str]]:
    """Whether the answer is stale, and the scopes that are frozen."""
    shown = await planner.list_brakes(ListBrakesRequest())
    return shown.stale, [brake.scope for brake in shown.brakes]


async def test_who_is_fenced_with_nothing_to_write_steps_down_and_answers_from_the_log_again() -> None:
    """A standby that froze was given the turn and lost it. It wakes, takes it all the same, and decides."""
    async with in_process(SMALL) as platform:
        await join(platform)
        active = platform.running["planner-1"]
        planner: Planner = active.service
        woken = LocalBus(platform.broker, FLEET_ID, "woken")
        async with woken.standby_turn("planner", "woken@woken") as turn:
            hear = platform.broker.expire(active.bus)
            platform.broker.expire(woken)
            hear()
            await until(lambda: not planner.is_active, "the planner has heard that it was expelled")
            await until(lambda: planner.is_active, "the planner is active again")
            writer = await turn.wait()
            await writer.write([BrakeSet("fleet", "audit", "woken", 0)])
            await until(lambda: not planner.is_active, "the planner is fenced and knows it")
            with pytest.raises(RequestError, match="still reads the log"):
                await brakes(planner)
            assert planner.leader() == "woken"
            await until(lambda: planner.is_active, "the planner takes its turn again")
        assert await brakes(planner) == (False, ["fleet"])
        assert planner.leader() == "planner-1"


async def test_who_reads_while_a_write_fails_is_told_to_ask_another_planner() -> None:
    """What the write held stands in the state, and perhaps not in the log."""
    async with in_process(SMALL) as platform:
        await join(platform)
        active = platform.running["planner-1"]
        active.bus.unavailable = True
        asked = asyncio.create_task(active.service.apply(ApplyRequest((deployment("web", NAMESPACE, 4),))))
        await asyncio.sleep(1)
        with pytest.raises(RequestError, match="still reads the log"):
            await active.service.list(ListRequest())
        with pytest.raises(RequestError, match="retry with the same idempotency key"):
            await asked
