"""Runs everything in one process, for BUS=memory and tests: services, a bus in memory, simulated members.

The simulation tests use it, too.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import hpa.service
import propagator.settings
import snapshot.settings
import vk_bridge.settings
from descheduler.service import Descheduler, DeschedulerClocks
from descheduler.settings import DeschedulerSettings
from hpa.service import CollectingOptions, Hpa
from hpa.settings import HpaSettings
from planner.service import Planner, PlannerClocks
from planner.settings import PlannerSettings
from propagator.service import Propagator
from sim.cluster import SimCluster
from sim.core.rights import Account
from sim.rest import SimTransport
from sim.settings import Faults, NodeSpec, Taint
from sim.settings import Settings as SimSettings
from snapshot.service import Snapshot
from spillway.clusters.api import ClusterApi, ClusterApiSettings, ClusterUnreachable
from spillway.clusters.rights import ROLES, Right
from spillway.events import ClusterJoined
from spillway.local_bus import LocalBroker, LocalBus
from spillway.store import MemoryStore
from spillway_local.fleet_plan import FLEET, MemberPlan
from vk_bridge.service import Bridge

FLEET_ID = "local-00000001"


@dataclass(slots=True)
class RunningService:
    """One instance of a service, and the means to stop it."""

    name: str
    service: Any
    bus: LocalBus
    stopping: asyncio.Event
    task: "asyncio.Task[None]"


@dataclass(slots=True)
class InProcess:
    """The parts of one small platform. Instances are started and stopped by name; members go on."""

    broker: LocalBroker
    store: MemoryStore
    members: dict[str, SimCluster]
    planner_settings: PlannerSettings = field(default_factory=PlannerSettings)
    snapshot_settings: snapshot.settings.SnapshotSettings = field(default_factory=snapshot.settings.SnapshotSettings)
    propagator_settings: propagator.settings.PropagatorSettings = field(
        default_factory=propagator.settings.PropagatorSettings
    )
    hpa_settings: HpaSettings = field(default_factory=HpaSettings)
    descheduler_settings: DeschedulerSettings = field(default_factory=DeschedulerSettings)
    bridge_settings: vk_bridge.settings.VkBridgeSettings = field(default_factory=vk_bridge.settings.VkBridgeSettings)
    running: dict[str, RunningService] = field(default_factory=dict)
    apis: dict[str, ClusterApi] = field(default_factory=dict)
    accounts: dict[tuple[str, str], Account] = field(default_factory=dict)
    started_at: float = 0.0

    def wall_ms(self) -> int:
        """Returns the Unix time in milliseconds by the loop's (virtual) clock, as the members' objects have it."""
        return round((SimSettings().start_unix_seconds + asyncio.get_running_loop().time() - self.started_at) * 1000)

    def connect(self, service: str, joined: ClusterJoined) -> ClusterApi:
        """Connects with a service's account in a member. The account may do what deploy/rbac gives it, and no more."""
        member = self.members.get(joined.credential)
        if member is None:
            raise ClusterUnreachable(joined.cluster, "connection", f"no simulated member {joined.credential}")
        account = self.account(service, joined.credential)
        return ClusterApi(SimTransport(member, account=account), joined.cluster, ClusterApiSettings())

    def collecting_options(self, _name: str) -> CollectingOptions:
        """Returns the connections that an hpa instance may read: none here. Its policies warn about that."""
        return CollectingOptions()

    def account(self, service: str, member: str) -> Account:
        """Returns the account of a service in a member. Change its `may` to give it other rights from now on."""
        rights = frozenset[Right]().union(*(role.rights() for role in ROLES if role.service == service))
        name = f"system:serviceaccount:spillway:spillway-{service}"
        return self.accounts.setdefault((service, member), Account(name, rights))

    def start_instance(self, name: str) -> RunningService:
        """Starts an instance, such as planner-1, snapshot-2 or hpa-1."""
        kind = name.rpartition("-")[0]
        bus = LocalBus(self.broker, FLEET_ID, f"spillway/{name}")
        loop, connect = asyncio.get_running_loop(), partial(self.connect, kind)
        service: Planner | Snapshot | Propagator | Hpa | Descheduler | Bridge
        if kind == "planner":
            clocks = PlannerClocks(loop.time, self.wall_ms)
            service = Planner(bus, self.store, self.planner_settings, f"{name}@{name}", clocks)
        elif kind == "snapshot":
            service = Snapshot(bus, connect, self.snapshot_settings, name, wall_ms=self.wall_ms)
        elif kind == "hpa":
            service = Hpa(
                bus,
                self.hpa_settings,
                f"{name}@{name}",
                hpa.service.HpaClocks(self.wall_ms, loop.time),
                self.collecting_options(name),
            )
        elif kind == "descheduler":
            steady_and_wall = DeschedulerClocks(loop.time, self.wall_ms)
            service = Descheduler(bus, self.descheduler_settings, f"{name}@{name}", steady_and_wall)
        elif kind == "vk-bridge":
            service = Bridge(bus, connect, self.bridge_settings, name, self.wall_ms)
        else:
            service = Propagator(bus, connect, self.propagator_settings, name)
        stopping = asyncio.Event()
        task = asyncio.create_task(service.run(stopping), name=name)
        self.running[name] = RunningService(name, service, bus, stopping, task)
        return self.running[name]

    async def stop_instance(self, name: str) -> None:
        """Ends an instance as SIGTERM does."""
        running = self.running.pop(name)
        running.stopping.set()
        await running.task
        await running.bus.__aexit__()

    async def kill_instance(self, name: str) -> None:
        """Ends an instance as kill -9 does: nothing is finished, and its consumer group has to expel it."""
        running = self.running.pop(name)
        running.bus.unavailable = True
        self.broker.end_sessions(running.bus)
        running.task.cancel()
        await asyncio.gather(running.task, return_exceptions=True)

    def planner(self) -> Planner:
        """Returns the active planner; if there is none, any planner."""
        planners = [entry.service for entry in self.running.values() if isinstance(entry.service, Planner)]
        return next((entry for entry in planners if entry.is_active), planners[0])

    def hpa(self) -> Hpa:
        """Returns the active hpa; if there is none, any hpa."""
        hpas = [entry.service for entry in self.running.values() if isinstance(entry.service, Hpa)]
        return next((entry for entry in hpas if entry.is_active), hpas[0])

    def descheduler(self) -> Descheduler:
        """Returns the active descheduler; if there is none, any descheduler."""
        found = [entry.service for entry in self.running.values() if isinstance(entry.service, Descheduler)]
        return next((entry for entry in found if entry.is_active), found[0])

    # ── Members: the methods that the story calls ───────────────────────────────────────────────────────────────

    def member_api(self, name: str) -> ClusterApi:
        if name not in self.apis:
            self.apis[name] = ClusterApi(SimTransport(self.members[name]), name, ClusterApiSettings())
        return self.apis[name]

    async def silence_member(self, name: str) -> None:
        self.members[name].set_faults(Faults(silent=True))

    async def wake_member(self, name: str) -> None:
        self.members[name].set_faults(Faults())


SERVICES = ("snapshot-1", "planner-1", "propagator-1")


@asynccontextmanager
async def in_process_platform(
    fleet: Sequence[MemberPlan] = FLEET,
    services: Sequence[str] = SERVICES,
    sim_settings: Callable[[str], SimSettings] = lambda name: SimSettings(),
    **settings: Any,
) -> AsyncIterator[InProcess]:
    """Starts members and services, which run until the block ends."""
    members = {member.name: _simulated_member(member, sim_settings(member.name)) for member in fleet}
    started_at = asyncio.get_running_loop().time()
    platform = InProcess(LocalBroker(), MemoryStore(), members, started_at=started_at, **settings)
    for member in members.values():
        member.start()
    try:
        for name in services:
            platform.start_instance(name)
        yield platform
    finally:
        for name in list(platform.running):
            await platform.kill_instance(name) if platform.running[name].task.done() else await platform.stop_instance(
                name
            )
        for api in platform.apis.values():
            await api.close()
        for member in members.values():
            await member.close()


def _simulated_member(plan: MemberPlan, settings: SimSettings) -> SimCluster:
    cluster = SimCluster(plan.name, settings)
    cluster.add_nodes(
        NodeSpec(
            name_prefix=f"{node.name_prefix}-",
            count=node.count,
            cpu_millis=node.cpu_millis,
            memory_bytes=node.memory_bytes,
            pods=node.pods,
            labels=dict(node.labels),
            taints=tuple(Taint(taint.key, taint.value, taint.effect) for taint in node.taints),
        )
        for node in plan.nodes
    )
    return cluster
