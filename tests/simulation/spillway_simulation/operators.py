"""The operators of one seed: phases of clusters, freezes, and confirmations of what waits for one."""

import asyncio
from contextlib import suppress
from random import Random

from spillway.api import (
    ConfirmRequest,
    FreezeRequest,
    LeaveClusterRequest,
    RequestError,
    SetClusterPhaseRequest,
    UnfreezeRequest,
)
from spillway.events import PHASE_ACTIVE, PHASE_LEAVING
from spillway_simulation.script import Order
from spillway_simulation.users import answered
from spillway_simulation.world import World

CONFIRM_EVERY_SECONDS = 5.0


class Operators:
    """run() ends when every order was given and taken back; confirm_all() goes on until it is cancelled."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = Random(f"{world.script.seed}/operators")

    async def run(self) -> None:
        begun = self._world.loop.time()
        async with asyncio.TaskGroup() as tasks:
            for order in self._world.script.orders:
                await asyncio.sleep(max(0.0, begun + order.at - self._world.loop.time()))
                tasks.create_task(self._carry_out(order))

    async def confirm_all(self) -> None:
        """Says yes to all that waits for it, sooner or later."""
        while True:
            await asyncio.sleep(self._random.uniform(0, 2 * CONFIRM_EVERY_SECONDS))
            planner = self._world.active()
            if planner is None:
                continue
            for scope in sorted(planner.state.brakes.asked):
                await self._ask("confirm", ConfirmRequest(scope))

    async def _carry_out(self, order: Order) -> None:
        if order.verb == PHASE_LEAVING:
            await self._ask("leave_cluster", LeaveClusterRequest(order.on))
            return
        if order.verb == "freeze":
            await self._ask("freeze", FreezeRequest(order.on, "to see"))
            await asyncio.sleep(order.seconds)
            await self._ask("unfreeze", UnfreezeRequest(order.on))
            return
        await self._ask("set_cluster_phase", SetClusterPhaseRequest(order.on, order.verb))
        await asyncio.sleep(order.seconds)
        if not any(other.verb == PHASE_LEAVING and other.on == order.on for other in self._world.script.orders):
            await self._ask("set_cluster_phase", SetClusterPhaseRequest(order.on, PHASE_ACTIVE))

    async def _ask(self, verb: str, request: object) -> None:
        self._world.oracle.note(f"order {verb} {request}")
        with suppress(RequestError):  # What it is about may not be there.
            await answered(self._world, self._random, verb, request)
