"""What a simulation foretells of an export is what the platform comes to, whatever of these changes is made to both.

Equal are the replicas kept of each workload in each cluster, and how many have no place, once the platform is at rest.
Not promised, and so not asked here: who waits while something leaves a cluster that goes on. That has not left yet in a
simulation, and in the platform others get its room. They are only ever more than was foretold.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from planner.api import exports
from planner.core.explaining.simulating import Simulation, kept_replicas_by_cluster
from planner.core.knowledge.state import PlannerState
from planner.settings import PlannerSettings
from sim.settings import NodeSpec
from spillway.api import ApplyRequest, ExportRequest, LeaveClusterRequest, RequestError, SetClusterPhaseRequest
from spillway.events import PHASE_DRAINING
from spillway_local import member_nodes
from spillway_local.fleet_plan import GIB, MemberPlan, deployment
from spillway_local.in_process import InProcess, in_process_platform
from spillway_simulation.loop import VirtualLoop

from .platform_steps import NAMESPACE, join_members, wait_until

QUIET_SECONDS = 20
"""Longer than any wait for binds, and than overflow waits for room at home."""
HOME_MINUTE_SECONDS = 60
"""Of a turn, in which nothing goes home yet: what went before it is unknown."""
NODE_MILLIS = 2_000
"""Four places, as all replicas ask for as much: on which node one runs makes no difference."""
UNBOUND_MOVES = PlannerSettings(
    moves_per_minute=100_000,
    home_moves_per_minute=100_000,
    home_after_seconds=5,
    confirm_over_replicas=10_000,
)
Placed = Mapping[str, tuple[Mapping[str, int], int]]
"""By workload, the replicas kept by cluster, and how many have no place."""


@dataclass(frozen=True, slots=True)
class Change:
    """verb: drain, lose, add (so many nodes), or apply (so many replicas)."""

    verb: str
    cluster: str
    number: int

    def simulate_change(self, simulation: Simulation) -> None:
        match self.verb:
            case "drain":
                joined = simulation.state.clusters[self.cluster].joined
                assert joined is not None
                simulation.state.apply_event(replace(joined, phase=PHASE_DRAINING), exports.NOW)
            case "lose":
                simulation.lose_cluster(self.cluster)
            case "add":
                simulation.add_nodes(self.cluster, "n-0", self.number)
            case _:
                simulation.answer_request("late", apply_request("late", self.number))

    async def make_change(self, platform: InProcess) -> None:
        planner = platform.planner()
        match self.verb:
            case "drain":
                await planner.set_cluster_phase(SetClusterPhaseRequest(self.cluster, PHASE_DRAINING))
            case "lose":
                await platform.silence_member(self.cluster)
                await wait_until(
                    lambda: self.is_cluster_given_up(platform), f"{self.cluster} answered for long enough", 120
                )
            case "add":
                platform.members[self.cluster].add_nodes((NodeSpec("more-", self.number, NODE_MILLIS, 16 * GIB),))
            case _:
                await planner.apply(apply_request("late", self.number))

    async def is_cluster_given_up(self, platform: InProcess) -> bool:
        """Whether the cluster has not answered for so long that a person may say that it is lost."""
        try:
            await platform.planner().leave_cluster(LeaveClusterRequest(self.cluster, lost=True))
        except RequestError:
            return False
        return True


def apply_request(name: str, replicas: int) -> ApplyRequest:
    return ApplyRequest((deployment(name, NAMESPACE, replicas, cpu="500m"),))


def placed_replicas(state: PlannerState) -> Placed:
    return {
        key[1]: (kept_replicas_by_cluster(workload), workload.unplaced) for key, workload in state.workloads.items()
    }


def member_plans(nodes: Mapping[str, int]) -> tuple[MemberPlan, ...]:
    return tuple(
        MemberPlan(name, name[:-2], (member_nodes.MemberNodes(count, "n", NODE_MILLIS, 16 * GIB),), room=4 * count)
        for name, count in nodes.items()
    )


async def wait_until_at_rest(platform: InProcess) -> None:
    """Until nothing was decided for a while and nothing is on its way."""
    loop, state = asyncio.get_running_loop(), platform.planner().state
    seen, since = None, loop.time()
    deadline = since + 600
    while loop.time() - since < QUIET_SECONDS:
        await asyncio.sleep(1)
        now = (
            {key: workload.placement for key, workload in state.workloads.items()},
            bool(state.moved),
            phases_by_cluster(state),
        )
        if now != seen or state.moved or state.unbound_places():
            seen, since = now, loop.time()
        assert loop.time() < deadline, "the platform does not come to rest"


def phases_by_cluster(state: PlannerState) -> dict[str, str]:
    return {name: view.phase for name, view in state.clusters.items()}


async def compare_simulation_and_platform(
    nodes: Mapping[str, int], replicas: Mapping[str, int], change: Change
) -> tuple[Placed, Placed, Placed]:
    """What is placed before the change, what a simulation says of it, and what the platform comes to."""
    async with in_process_platform(member_plans(nodes), planner_settings=UNBOUND_MOVES) as platform:
        await join_members(platform)
        planner = platform.planner()
        for name, count in replicas.items():
            await planner.apply(apply_request(name, count))
        await asyncio.sleep(HOME_MINUTE_SECONDS)
        await wait_until_at_rest(platform)
        replies = [reply async for reply in planner.export(ExportRequest())]
        simulation = Simulation(exports.read_state(replies), exports.NOW, replies[0].at_ms)
        before = placed_replicas(simulation.state)
        change.simulate_change(simulation)
        assert simulation.run_until_quiet()
        await change.make_change(platform)
        await wait_until_at_rest(platform)
        return before, placed_replicas(simulation.state), placed_replicas(planner.state)


def compare_in_virtual_time(
    nodes: Mapping[str, int], replicas: Mapping[str, int], change: Change
) -> tuple[Placed, Placed, Placed]:
    loop = VirtualLoop()
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(compare_simulation_and_platform(nodes, replicas, change))
    finally:
        asyncio.set_event_loop(None)
        loop.close()


CLUSTERS = ("own-1", "own-2", "cloud-1")


@pytest.mark.parametrize("verb", ["drain", "lose", "add", "apply"])
@settings(max_examples=max(1, settings().max_examples // 5))  # Each is a platform of its own, and seconds.
@given(
    nodes=st.fixed_dictionaries({name: st.integers(1, 3) for name in CLUSTERS}),
    replicas=st.fixed_dictionaries({name: st.integers(3, 14) for name in ("web", "batch")}),
    cluster=st.sampled_from(CLUSTERS),
    number=st.integers(1, 6),
)
def test_what_is_foretold_comes_to_be(
    verb: str, nodes: Mapping[str, int], replicas: Mapping[str, int], cluster: str, number: int
) -> None:
    before, foretold, came = compare_in_virtual_time(nodes, replicas, Change(verb, cluster, number))
    event("moves" if before != foretold else "stays")
    assert foretold == came
