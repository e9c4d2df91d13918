"""Shows the planner's answers for a healthy workload while another one waits for a missing Secret, on real clusters.

    make missing-secret [OLD=feaf307]   real Kafka and Redis, one instance of each service; OLD: run that version
80 replicas name the Secret. Every second the planner is asked where a healthy neighbour of 120 replicas would go (a dry
run), and how many of its replicas certainly fit. `tests/e2e/test_missing_secret.py` checks the same for this version.
"""

import argparse
import asyncio
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from versions import export_commit

from spillway.api import ApplyRequest, CapacityRequest, JoinClusterRequest, ListClustersRequest
from spillway.rpc.client import PlannerClient
from spillway_local.fleet_plan import GIB, MemberPlan, deployment
from spillway_local.member_nodes import MemberNodes
from spillway_local.stack import SERVICES, Stack, StackOptions

ROOT = Path(__file__).parents[2]
MANIFEST = ROOT.parent / "shared" / "data" / "manifests" / "missing-secret.yaml"
NAMESPACE, NAME, SECRET = "default", "sec3", "nosuch"
"""The namespace and the name of the waiting workload, and the name of the missing Secret."""
FLEET = (
    MemberPlan("own-1", "own", (MemberNodes(5, "own-1-node", 4_000, 16 * GIB),), room=40),
    MemberPlan("own-2", "own", (MemberNodes(5, "own-2-node", 4_000, 16 * GIB),), room=40),
    MemberPlan("cloud-1", "cloud", (MemberNodes(10, "cloud-1-node", 8_000, 32 * GIB),), room=160),
)
ASKED = 120
NEIGHBOUR = (deployment("shop", NAMESPACE, ASKED),)
READY_SECONDS, ASKED_SECONDS = 90.0, 1.0


@dataclass(frozen=True, slots=True)
class Told:
    """The planner's answers for the neighbour.

    rooms: its replicas that certainly fit, by cluster. placed: its replicas that would have a place now.
    """

    rooms: tuple[tuple[str, int], ...]
    placed: int

    @property
    def certain_in_own_clusters(self) -> int:
        return sum(room for cluster, room in self.rooms if cluster != "cloud-1")

    @property
    def certain_in_cloud(self) -> int:
        return dict(self.rooms)["cloud-1"]


EMPTY = Told(tuple(sorted((member.name, member.room) for member in FLEET)), ASKED)
"""The answers for the neighbour while no other workload reserves room."""


async def ask_neighbour_room(planner: PlannerClient) -> Told:
    """Returns the planner's present answers for the neighbour."""
    capacity = await planner.capacity(CapacityRequest(NEIGHBOUR))
    plan = await planner.plan(ApplyRequest(NEIGHBOUR))
    return Told(tuple(sorted((entry.cluster, entry.certain) for entry in capacity.clusters)), plan.placed)


@asynccontextmanager
async def joined_planner(stack: Stack) -> AsyncIterator[PlannerClient]:
    """Joins the stack's clusters and yields a client once the planner knows all their room."""
    async with PlannerClient(stack.addresses().planners, timeout_seconds=60, retry_seconds=60) as planner:
        for member in FLEET:
            await planner.join_cluster(JoinClusterRequest(member.name, member.name, tier=member.tier))
        async with asyncio.timeout(READY_SECONDS):
            while not await _is_ready(planner) or await ask_neighbour_room(planner) != EMPTY:
                await asyncio.sleep(0.2)
        yield planner


async def _is_ready(planner: PlannerClient) -> bool:
    clusters = (await planner.list_clusters(ListClustersRequest())).clusters
    return len(clusters) == len(FLEET) and all(cluster.state == "Ready" for cluster in clusters)


async def _observe_neighbour(stack: Stack, seconds: int) -> list[tuple[float, Told]]:
    """Returns (seconds since the apply, the answers for the neighbour) for each second after the apply."""
    loop = asyncio.get_running_loop()
    seen: list[tuple[float, Told]] = []
    async with joined_planner(stack) as planner:
        reply = await planner.apply(ApplyRequest((MANIFEST.read_text(),)))
        print(f"apply: {reply.placed} placed, {reply.unplaced} wait", flush=True)
        began = loop.time()
        while loop.time() - began < seconds:
            seen.append((loop.time() - began, await ask_neighbour_room(planner)))
            await asyncio.sleep(max(0.0, began + len(seen) * ASKED_SECONDS - loop.time()))
    return seen


def table_text(seen: list[tuple[float, Told]]) -> str:
    """Returns a table with a row for each period in which the answers stayed the same."""
    begins = [0] + [index for index, (before, after) in enumerate(pairwise(seen), 1) if before[1] != after[1]]
    lines = [f"| seconds since the apply | own / cloud | {ASKED} of the neighbour, if they came now |", "|---|---|---|"]
    for begin, end in pairwise([*begins, len(seen)]):
        (first, said), (last, _) = seen[begin], seen[end - 1]
        span = f"{first:.0f}" if end - begin == 1 else f"{first:.0f} to {last:.0f}"
        lines.append(
            f"| {span} | {said.certain_in_own_clusters} / {said.certain_in_cloud} "
            f"| {said.placed} placed, {ASKED - said.placed} wait |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--old", default="", help="commit of an older version, of which all services are")
    parser.add_argument("--seconds", type=int, default=150, help="how long the neighbour asks")
    parser.add_argument("--members", choices=("sim", "kube"), default="kube")
    asked = parser.parse_args()
    path = {}
    if asked.old:
        folder = ROOT / "build" / "versions" / asked.old
        export_commit(asked.old, folder)
        path = {"PYTHONPATH": os.pathsep.join(str(source) for source in sorted(folder.glob("*/*/src")))}
    with tempfile.TemporaryDirectory() as run:
        environment_of = {f"{service}-1": path for service in SERVICES}
        options = StackOptions(Path(run), asked.members, 1, FLEET, environment_of=environment_of, outlives=False)
        stack = Stack(options, lambda text: None)
        try:
            stack.start()
            print(table_text(asyncio.run(_observe_neighbour(stack, asked.seconds))))
        finally:
            stack.stop()


if __name__ == "__main__":
    main()
