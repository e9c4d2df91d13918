"""The platform under measurement: a stack of its own with an empty cluster and a big one, and helpers to query them."""

import asyncio
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from spillway.addresses import CAPACITY_CHANGES
from spillway.api import ClusterReply, ListClustersRequest
from spillway.bus import has_reached_ends, partition_of
from spillway.clusters.credentials import Endpoint, load_endpoint
from spillway.events import TurnTaken
from spillway.kafka.bus import KafkaBus, KafkaSettings
from spillway.kafka.topics import TopicSettings
from spillway.rpc.client import PlannerClient
from spillway_local.fleet_plan import GIB, MemberPlan
from spillway_local.member_nodes import MemberNodes
from spillway_local.ports import PortBook
from spillway_local.programs import Program
from spillway_local.stack import SIM_PORT, Addresses, Stack, StackOptions

from .figures import Unmeasured
from .machine import cpu_seconds_of

Say = Callable[[str], None]

BIG = "big-1"
_POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of the fleet and the numbers of samples."""

    nodes: int = 1_000
    pods: int = 20_000
    node_changes: int = 200
    round_trips: int = 300
    calls: int = 300
    applies_per_second: float = 20.0
    apply_seconds: float = 30.0
    burst: int = 500
    batched: int = 4_000
    freed: int = 200
    hopeless: int = 300
    in_process_small: bool = False


FULL = Sizes()
LARGE = Sizes(nodes=5_000, pods=100_000)
QUICK = Sizes(
    50,
    500,
    node_changes=10,
    round_trips=30,
    calls=30,
    apply_seconds=3.0,
    burst=50,
    batched=400,
    freed=10,
    hopeless=10,
    in_process_small=True,
)


def empty_cluster_name() -> str:
    """Returns a cluster name in the big cluster's partition, so that one collector follows both clusters.

    The collector's memory with the empty cluster alone is then the baseline of its memory with both.
    """
    count = TopicSettings().partitions_cluster
    names = (f"empty-{number}" for number in range(100_000))
    return next(name for name in names if partition_of(name, count) == partition_of(BIG, count))


EMPTY = empty_cluster_name()


def new_stack(folder: Path, say: Say) -> Stack:
    """Returns a stack whose empty cluster has one node: a cluster without nodes never counts as ready."""
    empty = MemberPlan(EMPTY, "own", (MemberNodes(1, "only", 4_000, 16 * GIB),), room=8)
    return Stack(StackOptions(folder, fleet=(empty,), outlives=False), say)


@dataclass(frozen=True, slots=True)
class Rig:
    """A running stack. The first measurement joins the clusters."""

    stack: Stack
    addresses: Addresses
    sizes: Sizes
    client: PlannerClient
    say: Say

    # ── The parts ───────────────────────────────────────────────────────────────────────────────────────────────

    def new_bus(self) -> KafkaBus:
        return KafkaBus(KafkaSettings(bootstrap=self.addresses.kafka), "", "spillway/bench/1")

    def start_big_member(self) -> None:
        self.start_member(BIG, self.sizes.nodes, self.sizes.pods)

    def start_member(self, name: str, nodes: int, pods: int) -> None:
        port = self._port_book.assign_port(f"member-{name}", SIM_PORT)
        flags = {
            "name": name,
            "port": port,
            "credentials-folder": self.stack.credentials,
            "nodes": nodes,
            "pods": pods,
        }
        arguments = [part for flag, value in flags.items() for part in (f"--{flag}", str(value))]
        script = Path(__file__).with_name("big_member.py")
        folder = self.stack.folder / "members"
        kubeconfig = self.stack.credentials / f"{name}.kubeconfig"
        kubeconfig.unlink(missing_ok=True)
        command = (sys.executable, str(script), *arguments)
        self.stack.supervision.add_programs([Program(f"member-{name}", command, folder)])
        deadline = time.monotonic() + 30
        while not kubeconfig.exists():
            if time.monotonic() > deadline:
                raise Unmeasured(f"the member {name} did not write its kubeconfig; see its log")
            time.sleep(_POLL_SECONDS)

    def big_endpoint(self) -> Endpoint:
        return load_endpoint(self.stack.credentials, BIG)

    def pid_of_program(self, program: str) -> int:
        pids = self.stack.pids(program)
        if not pids:
            raise Unmeasured(f"{program} does not run")
        return pids[0]

    def cpu_seconds_by_program(self) -> dict[str, float]:
        """Returns the CPU seconds that each program has used so far, by its name."""
        return {entry.name: cpu_seconds_of(entry.pid) for entry in self.stack.status() if entry.pid}

    def is_program_ready(self, program: str) -> bool:
        port = self._port_book.port_by_name()[f"{program}-health"]
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def read_own_metric(self, program: str, name: str) -> float:
        """Returns a metric from the program's own metrics page, summed over its labels."""
        port = self._port_book.port_by_name()[f"{program}-health"]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith((f"{name} ", f"{name}{{")))

    # ── Answers of the platform ─────────────────────────────────────────────────────────────────────────────────

    async def active_planner_address(self) -> str:
        """Returns host:port of the active planner. Raises Unmeasured if none is active."""
        await self.client.list_clusters(ListClustersRequest())
        if not self.client.active_instance_address():
            raise Unmeasured("no planner says which one is active")
        return self.client.active_instance_address()

    async def active_planner_program(self) -> str:
        """Returns the program name of the active planner, as planner-1."""
        return f"planner-{self.addresses.planners.index(await self.active_planner_address()) + 1}"

    def address_of_planner(self, planner: str) -> str:
        """Returns host:port of a planner by its program name, as planner-1."""
        return self.addresses.planners[int(planner.rpartition("-")[2]) - 1]

    async def collector_of(self, cluster: str) -> str:
        """Returns the collector program that took the cluster's turn last, from the log."""
        holder = ""
        async with self.new_bus() as bus, bus.follow_topics((CAPACITY_CHANGES,)) as feed:
            ends = await feed.end_offsets()
            async for batch in feed:
                for record in batch.records:
                    if isinstance(record.event, TurnTaken) and record.event.cluster == cluster:
                        holder = record.event.instance
                if has_reached_ends(batch.positions, ends):
                    break
        if not holder:
            raise Unmeasured(f"no collector ever took {cluster}")
        return holder

    async def find_cluster(self, name: str) -> ClusterReply | None:
        clusters = (await self.client.list_clusters(ListClustersRequest())).clusters
        return next((entry for entry in clusters if entry.cluster == name), None)

    async def is_cluster_ready(self, name: str) -> bool:
        found = await self.find_cluster(name)
        return found is not None and found.state == "Ready" and found.nodes > 0

    async def wait_until(self, what: str, holds: Callable[[], Awaitable[bool]], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not await holds():
            if time.monotonic() > deadline:
                raise Unmeasured(f"after {seconds:.0f} s it is not so that {what}")
            await asyncio.sleep(_POLL_SECONDS)

    @property
    def _port_book(self) -> PortBook:
        return PortBook(self.stack.folder / "ports.json")
