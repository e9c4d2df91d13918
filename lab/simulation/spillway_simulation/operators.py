"""The operators of one seed: phases of clusters, freezes, and confirmations of what waits for one."""

import asyncio
from random import Random

from spillway.api import (
    ConfirmRequest,
    FreezeRequest,
    JoinClusterRequest,
    LeaveClusterRequest,
    RequestError,
    SetClusterPhaseRequest,
    UnfreezeRequest,
)
from spillway.events import PHASE_ACTIVE, PHASE_LEAVING
from spillway_simulation.brownfield_script import LOST, LOST_AND_BACK
from spillway_simulation.script import Order
from spillway_simulation.users import ask_until_answered
from spillway_simulation.world import World

CONFIRM_EVERY_SECONDS = 5.0


class Operators:
    """run() ends when every order was given and taken back; confirm_all_pending() goes on until it is cancelled."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = Random(f"{world.script.seed}/operators")

    async def run(self) -> None:
        begun = self._world.loop.time()
        async with asyncio.TaskGroup() as tasks:
            for order in self._world.script.orders:
                await asyncio.sleep(max(0.0, begun + order.at - self._world.loop.time()))
                tasks.create_task(self._carry_out_order(order))

    async def confirm_all_pending(self) -> None:
        """Says yes to all that waits for it, sooner or later."""
        while True:
            await asyncio.sleep(self._random.uniform(0, 2 * CONFIRM_EVERY_SECONDS))
            planner = self._world.active_planner()
            if planner is None:
                continue
            for scope in sorted(planner.state.brakes.asked):
                await self._ask_planner("confirm", ConfirmRequest(scope))

    async def _carry_out_order(self, order: Order) -> None:
        if order.verb == PHASE_LEAVING:
            await self._ask_planner("leave_cluster", LeaveClusterRequest(order.on))
            return
        if order.verb in (LOST, LOST_AND_BACK):
            await self._give_up_cluster(order)
            return
        if order.verb == "freeze":
            await self._ask_planner("freeze", FreezeRequest(order.on, "to see"))
            await asyncio.sleep(order.seconds)
            await self._ask_planner("unfreeze", UnfreezeRequest(order.on))
            return
        await self._ask_planner("set_cluster_phase", SetClusterPhaseRequest(order.on, order.verb))
        await asyncio.sleep(order.seconds)
        gone = (PHASE_LEAVING, LOST, LOST_AND_BACK)
        if not any(other.verb in gone and other.on == order.on for other in self._world.script.orders):
            await self._ask_planner("set_cluster_phase", SetClusterPhaseRequest(order.on, PHASE_ACTIVE))

    async def _give_up_cluster(self, order: Order) -> None:
        """Says that it is lost until that is believed; and joins it again once it is back, if that is the story."""
        until = self._world.loop.time() + order.seconds
        while self._world.loop.time() < until and not await self._ask_planner(
            "leave_cluster", LeaveClusterRequest(order.on, lost=True)
        ):
            await asyncio.sleep(3)
        await asyncio.sleep(max(0.0, until - self._world.loop.time()))
        if order.verb == LOST_AND_BACK:
            member = next(one for one in self._world.script.members if one.name == order.on)
            await self._ask_planner("join_cluster", JoinClusterRequest(member.name, member.name, tier=member.tier))
            await self._ask_planner("set_cluster_phase", SetClusterPhaseRequest(order.on, PHASE_ACTIVE))

    async def _ask_planner(self, verb: str, request: object) -> bool:
        """Whether it was done."""
        self._world.oracle.note_in_trace(f"order {verb} {request}")
        try:
            await ask_until_answered(self._world, self._random, verb, request)
        except RequestError:  # What it is about may not be there.
            return False
        return True
