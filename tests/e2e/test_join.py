"""A cluster that joins while the platform runs."""

import asyncio
import json

from spillway.api import ApplyRequest, CapacityRequest, JoinClusterRequest
from spillway_local.fleet_plan import GIB, deployment
from spillway_local.member_nodes import NodeSpec
from spillway_local.members import MemberSpec, sim_member_program
from spillway_local.ports import session_port

from .running import NAMESPACE, Platform, until


async def test_a_cluster_joined_at_run_time_is_planned_on(platform: Platform) -> None:
    """It reports its capacity, and a placement lands on it."""
    stack = platform.stack
    spec = MemberSpec("edge-1", (NodeSpec(2, "edge-1-node", 8_000, 32 * GIB),))
    program = sim_member_program(spec, session_port(), stack.folder / "members", stack.credentials)
    await asyncio.to_thread(stack.supervision.add, [program])
    await platform.planner.join_cluster(JoinClusterRequest("edge-1", "edge-1", tier="edge"))
    manifest = deployment("near", NAMESPACE, 10)

    async def has_room() -> bool:
        reply = await platform.planner.capacity(CapacityRequest((manifest,)))
        return {entry.cluster: entry.certain for entry in reply.clusters}["edge-1"] == 32

    await until("edge-1 takes 32 replicas", has_room)
    policy = {
        "apiVersion": "spillway.io/v1",
        "kind": "PlacementPolicy",
        "spec": {"tiers": [{"name": "edge", "clusters": {"names": ["edge-1"]}}]},
    }
    await platform.planner.apply(ApplyRequest((manifest, json.dumps(policy))))
    assert await platform.running("near", 10) == {"edge-1": 10}
