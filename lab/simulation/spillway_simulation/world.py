"""The platform of one seed: members, log, store, and every instance as a process that can freeze, die and come back."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from contextvars import Context
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import propagator.settings
import snapshot.settings
import vk_bridge.settings
from descheduler.settings import DeschedulerSettings
from hpa.service import CollectingOptions, Hpa
from hpa.settings import HpaSettings
from planner.service import Planner
from planner.settings import PlannerSettings
from sim.cluster import SimCluster
from sim.settings import NodeSpec
from sim.settings import Settings as SimSettings
from spillway.bus import Outgoing, Position
from spillway.clusters.api import ClusterApi, ClusterApiSettings, ClusterUnreachable
from spillway.events import ClusterJoined
from spillway.store import MemoryStore
from spillway_local.in_process import InProcess, RunningService
from spillway_simulation import members
from spillway_simulation.broker import SimBroker
from spillway_simulation.brownfield import NAMESPACE, TAKES_OVER, marks_and_spec_of, plant_deployment
from spillway_simulation.dependency_oracle import DependencyOracle
from spillway_simulation.lending_oracle import IN_FLIGHT_SECONDS, LendingOracle, find_nodes_counted_twice
from spillway_simulation.lending_script import POOL
from spillway_simulation.log_oracle import AGE_MAX_SECONDS
from spillway_simulation.loop import VirtualLoop
from spillway_simulation.network import Network, SimulatedTransport
from spillway_simulation.oracle import Oracle
from spillway_simulation.read_oracle import ReadOracle
from spillway_simulation.script import FLEET_MEMBERS, Script

SESSION_SECONDS = 6.0
"""Seconds without a heartbeat after which a member of a group is expelled."""
HEARTBEAT_SECONDS = 3.0
"""The most seconds after its wake-up until an expelled process learns that it was expelled."""
MISSING_SECONDS = 20.0
"""missing_after_seconds of scripts whose templates name objects that members lack. Other scripts keep theirs."""
STOP_SECONDS = 15.0
"""Seconds that SIGTERM may take before kill -9."""

# The same rules as in production on a shorter scale, so that one seed sees several rounds of each.
PLANNER = PlannerSettings(
    tick_seconds=0.5,
    hold_max_seconds=60.0,
    hold_not_owned_max_seconds=60.0,
    capacity_age_max_seconds=AGE_MAX_SECONDS,
    confirmation_kept_seconds=10.0,
    home_after_seconds=15.0,
    headroom_seconds=2.0,
    headroom_repeat_seconds=4.0,
    headroom_settle_seconds=3.0,
    lent_wait_seconds=10.0,
    lent_silence_seconds=40.0,
)
SNAPSHOT = snapshot.settings.SnapshotSettings(
    shrink_confirm_seconds=20.0, probe_seconds=4.0, heartbeat_seconds=3.0, reclaim_seconds=8.0, metrics_seconds=4.0
)
PROPAGATOR = propagator.settings.PropagatorSettings(window_seconds=60.0, retry_longest_seconds=20.0)
HPA = HpaSettings(
    downscale_stabilization_seconds=15.0,
    cpu_initialization_seconds=8.0,
    initial_readiness_delay_seconds=4.0,
    sample_age_max_seconds=20.0,
    pods_age_max_seconds=20.0,
    load_age_max_seconds=12.0,
    forgotten_seconds=30.0,
)


BRIDGE = vk_bridge.settings.VkBridgeSettings(
    in_flight_seconds=IN_FLIGHT_SECONDS,
    copies_seconds=5.0,
    copy_unused_seconds=10.0,
    left_virtual_nodes_seconds=4.0,
    log_away_seconds=6.0,
    refused_seconds=5.0,
    resync_seconds=60.0,
    retry_longest_seconds=10.0,
    reclaim_seconds=8.0,
)
DESCHEDULER = DeschedulerSettings(again_seconds=20.0, losses_kept_seconds=60.0, withdrawing_seconds=3.0)


class SimulatedPlatform(InProcess):
    """InProcess, but with connections to the members through the simulated network."""

    __slots__ = ("network", "seed")
    network: Network
    seed: int

    def collecting_options(self, name: str) -> CollectingOptions:
        """Returns a CollectingOptions that asks the same questions at the same instants in each run of this seed."""
        return CollectingOptions(random=Random(f"{self.seed}/asking/{name}"))

    def connect(self, service: str, joined: ClusterJoined) -> ClusterApi:
        member = self.members.get(joined.credential)
        if member is None:
            raise ClusterUnreachable(joined.cluster, "connection", f"no simulated member {joined.credential}")
        random = Random(self.network.random.getrandbits(32))
        transport = SimulatedTransport(self.network, member, self.account(service, joined.credential))
        return ClusterApi(transport, joined.cluster, ClusterApiSettings(), random=random)


@dataclass(slots=True)
class Process:
    """One life of one instance. hear: tells the instance that it was expelled, once that has happened."""

    name: str
    owner: str
    context: Context
    running: RunningService
    is_over: bool = False
    frozen: int = 0
    hear: Callable[[], None] | None = None
    began_at: float = 0.0


class World:
    """Everything of one seed. Its own code runs in the context of no process."""

    def __init__(self, script: Script, loop: VirtualLoop) -> None:
        self.script = script
        self.loop = loop
        self.random = Random(f"{script.seed}/world")
        self.clusters = {
            member.name: SimCluster(member.name, SimSettings(seed=script.seed)) for member in script.members
        }
        self.oracle = Oracle(self.clusters, self._has_planner_read_policy)
        if script.lending is not None:
            oracle = self.oracle
            oracle.lending = LendingOracle(
                script.lending, POOL, self.clusters, oracle.note_violation, oracle.needs.judge_node_taken
            )
        self.dependencies = DependencyOracle(self.oracle.note_violation)
        if script.is_read:
            self.oracle.reads = ReadOracle(self.oracle.note_violation)
        self.store = MemoryStore()
        self.broker = SimBroker(Random(f"{script.seed}/log"), self._on_records)
        self.network = Network(Random(f"{script.seed}/network"), loop.context_of(""))
        self.platform = SimulatedPlatform(self.broker, self.store, self.clusters, PLANNER, SNAPSHOT, PROPAGATOR, HPA)
        if script.dependencies is not None:
            self.platform.planner_settings = replace(PLANNER, missing_after_seconds=MISSING_SECONDS)
        if script.retention is not None:
            self.platform.snapshot_settings = replace(SNAPSHOT, full_seconds=script.retention.seconds / 3)
        self.platform.descheduler_settings, self.platform.bridge_settings = DESCHEDULER, BRIDGE
        self.platform.network, self.platform.seed = self.network, script.seed
        self.processes: dict[str, Process] = {}
        self.untouched: dict[tuple[str, str], str] = {}
        self.woken: Callable[[Process], None] = lambda _: None
        """Called with each process that goes on after it was frozen or cut off."""
        self._lives: Counter[str] = Counter()
        for member in script.members:
            cluster = self.clusters[member.name]
            cluster.add_nodes([NodeSpec(f"{member.name}-n", member.nodes, member.cpu_millis)])
            self.oracle.judge_writes_to(cluster)
            self._plant_found_objects(cluster)
            cluster.start()
        self.oracle.note_allocatable_cpu()

    def _on_records(self, records: Sequence[Outgoing], source: str, positions: Sequence[Position]) -> None:
        self.oracle.log.on_records(records, positions, source)
        self.oracle.on_records(records, source)

    def _plant_found_objects(self, cluster: SimCluster) -> None:
        """Creates the objects that a member has before the first request. Notes those that no user takes over."""
        for found in self.script.found:
            plant_deployment(cluster, found)
            planted = cluster.get_object("deployments", found.name, NAMESPACE)
            if planted is None or cluster.name not in dict(found.replicas):
                continue
            if members.is_of_our_fleet(planted):
                self.oracle.ownership.note_orphan(cluster.name, planted)
            if not any(ask.verb in TAKES_OVER for ask in self.script.asks.get(found.name, ())):
                self.untouched[cluster.name, found.name] = marks_and_spec_of(cluster, found.name)

    def start_all_instances(self) -> None:
        for name in self.script.instance_names:
            self.start_instance(name)

    def start_instance(self, name: str) -> None:
        """Starts a new life. A killed, not yet expelled instance leaves its group at once, as with static
        membership."""
        before = self.processes.get(name)
        if before is not None:
            if not before.is_over:  # Two faults ended one life, and the other one has begun the next life.
                return
            self._expire_session(before)
        self._lives[name] += 1
        owner = f"{name}#{self._lives[name]}"
        self.oracle.note_in_trace(f"start {owner}")
        context = self.loop.context_of(owner)
        running = context.run(self.platform.start_instance, name)
        process = Process(name, owner, context, running, began_at=self.loop.time())
        process.running.task.add_done_callback(
            lambda task: self._on_process_ended(process, task), context=self.network.world
        )
        self.processes[name] = process

    def _on_process_ended(self, process: Process, task: "asyncio.Task[None]") -> None:
        if not process.is_over:
            error = task.exception() if not task.cancelled() else "cancelled"
            self.oracle.note_violation(f"{process.owner} ended by itself: {error!r}")

    # ── What happens to processes ───────────────────────────────────────────────────────────────────────────────

    def kill_process(self, process: Process) -> None:
        if process.is_over:
            return
        self.oracle.note_in_trace(f"kill {process.owner}")
        process.is_over = True
        self.loop.kill_process(process.owner)
        self.loop.call_later(SESSION_SECONDS, self._expire_session, process)

    async def stop_process(self, process: Process) -> None:
        """Sends SIGTERM, then kill -9 when the process does not end."""
        if process.is_over:
            return
        self.oracle.note_in_trace(f"stop {process.owner}")
        process.is_over = True
        process.running.stopping.set()
        await asyncio.wait({process.running.task}, timeout=STOP_SECONDS)
        if process.running.task.done() and not process.running.task.cancelled():
            error = process.running.task.exception()
            if error is not None:
                self.oracle.note_violation(f"{process.owner} did not stop well: {error!r}")
        self.broker.remove_memberships(process.running.bus)
        self.loop.kill_process(process.owner)

    def freeze_process(self, process: Process, seconds: float) -> None:
        if process.is_over:
            return
        self.oracle.note_in_trace(f"freeze {process.owner} for {seconds:.3f} s")
        process.frozen += 1
        self.loop.freeze_process(process.owner)
        self.loop.call_later(SESSION_SECONDS, self._expire_session_if, process, lambda: process.frozen > 0)
        self.loop.call_later(seconds, self._wake_process, process, self.loop.time())

    def _wake_process(self, process: Process, since: float) -> None:
        process.frozen -= 1
        if process.frozen == 0 and not process.is_over:
            self.oracle.note_in_trace(f"wake {process.owner}")
            if isinstance(process.running.service, Planner):
                self.oracle.log.note_planner_frozen(since)
            self.loop.wake_process(process.owner)
            self._tell_of_expiry(process)
            self.woken(process)

    def cut_off_process(self, process: Process, seconds: float) -> None:
        if process.is_over:
            return
        bus = process.running.bus
        bus.unavailable = True
        self.loop.call_later(SESSION_SECONDS, self._expire_session_if, process, lambda: bus.unavailable)
        self.loop.call_later(seconds, self._reconnect_process, process)

    def _reconnect_process(self, process: Process) -> None:
        process.running.bus.unavailable = False
        self._tell_of_expiry(process)
        self.woken(process)

    def _expire_session_if(self, process: Process, still: Callable[[], bool]) -> None:
        if still():
            self._expire_session(process)

    def _expire_session(self, process: Process) -> None:
        hear = self.broker.end_sessions_unnoticed(process.running.bus)
        if process.hear is None:
            process.hear = hear

    def _tell_of_expiry(self, process: Process) -> None:
        if process.hear is not None:
            self.loop.call_later(self.random.uniform(0, HEARTBEAT_SECONDS), process.hear)
            process.hear = None

    # ── What users need ─────────────────────────────────────────────────────────────────────────────────────────

    def call_in_process(self, process: Process, coro: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Runs a call in the process that serves it: a frozen one answers when it wakes, a dead one never."""
        task: asyncio.Task[Any] = self.loop.create_task(coro, context=process.context.copy())
        task.add_done_callback(_retrieve_exception)
        return task

    def living_planners(self) -> list[tuple[Process, Planner]]:
        return [
            (process, process.running.service)
            for process in self.processes.values()
            if isinstance(process.running.service, Planner) and not process.is_over
        ]

    def living_hpas(self) -> list[tuple[Process, Hpa]]:
        return [
            (process, process.running.service)
            for process in self.processes.values()
            if isinstance(process.running.service, Hpa) and not process.is_over
        ]

    def living_instances_of(self, kind: str) -> list[tuple[Process, Any]]:
        """The instances of a service that may be called."""
        return [
            (process, process.running.service)
            for process in self.processes.values()
            if process.name.rpartition("-")[0] == kind and not process.is_over
        ]

    def active_planner(self) -> Planner | None:
        return next(
            (planner for process, planner in self.living_planners() if planner.is_active and not process.frozen), None
        )

    def active_hpa(self) -> Hpa | None:
        return next((hpa for process, hpa in self.living_hpas() if hpa.is_active and not process.frozen), None)

    def is_name_taken(self, cluster: str, name: str) -> bool:
        """Returns whether an object there has the name but is not of this fleet, or is in no placement any more."""
        found = self.clusters[cluster].get_object("deployments", name, NAMESPACE)
        return found is not None and (
            not members.is_of_our_fleet(found) or self.oracle.ownership.is_orphan(cluster, found)
        )

    def judge_counted_nodes(self) -> None:
        """Checks that no planner counts a node in two clusters, whatever it has read of each."""
        for process, planner in self.living_planners():
            for sentence in find_nodes_counted_twice(planner):
                self.oracle.note_violation(f"{process.owner}: {sentence}")

    def judge_reservations(self) -> None:
        """Checks that no planner reserves more than is requested or on its way.

        It also must not reserve for long for a workload that waits for something else.
        """
        now = self.loop.time()
        if len(self.clusters) < FLEET_MEMBERS:
            self.oracle.observe_members()
        for process, planner in self.living_planners():
            is_well = not (process.frozen or process.running.bus.unavailable or self.broker.unavailable)
            self.dependencies.judge_planner(process.owner, planner, now, is_well=is_well)

    def _has_planner_read_policy(self, source: str, key: tuple[str, str]) -> bool:
        """Returns whether the planner of this name knows the workload's policy and a decision of that policy."""
        service = self.processes[source.rpartition("/")[2]].running.service
        assert isinstance(service, Planner)
        return key in service.state.scalings.policies and key in service.state.scalings.decided


def _retrieve_exception(task: "asyncio.Task[Any]") -> None:
    if not task.cancelled():
        task.exception()
