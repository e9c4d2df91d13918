"""A fleet for the bridge's tests: the bus in memory, an owner and a pool as simulated clusters, virtual time."""

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any, Self

from sim.cluster import SimCluster
from sim.core.rights import Account
from sim.manifests import deployment
from sim.rest import SimTransport
from sim.settings import NodeSpec
from sim.settings import Settings as SimSettings
from spillway.addresses import LENDING, LENDING_RULES, RecordAddress, Tombstone
from spillway.bus import Record
from spillway.clusters.api import ClusterApi, ClusterApiSettings, Response
from spillway.events import PHASE_ACTIVE, BrakeReleased, BrakeSet, ClusterJoined, TurnTaken
from spillway.events_lending import (
    CAUSE_NEED,
    LendingDeclared,
    LendingRule,
    NodeLent,
    NodeRecalled,
    NodeReturned,
)
from spillway.lending_marks import LENDING as LENDING_KEY
from spillway.lending_marks import POOL_TAINT, virtual_node_name
from spillway.local_bus import LocalBroker, LocalBus
from spillway.model import Generation
from vk_bridge.service import Bridge
from vk_bridge.settings import VkBridgeSettings

FLEET, OWN, OTHER, POOL = "f1", "own-1", "own-2", "pool"
IDLE_SECONDS = 30
GRACE_SECONDS = 10
WALL_MS = 497_223 * 3_600_000 - 150_000
"""Short of a full hour, which only the records of use know of."""
TOLERATES_LOANS = [{"key": POOL_TAINT, "operator": "Exists"}]
ABSENT = {"daemonEndpoints": {"kubeletEndpoint": {"Port": 0}}}
REFUSAL = Response(
    403, b'{"kind":"Status","reason":"Forbidden","code":403,"message":"admission webhook denied the request"}'
)
Check = Callable[[], bool]
Asked = tuple[str, str, str]
"""Cluster, method, path."""


class CountingTransport(SimTransport):
    """Of a bridge: what it asks is counted by cluster, method and path, and told once it is answered."""

    def __init__(
        self,
        cluster: SimCluster,
        asked: Counter[Asked],
        when_answered: list[Callable[[Asked], object]],
        refused: Callable[[Asked], bool | None],
        ignored: Callable[[Asked], bool],
        account: Account,
    ) -> None:
        super().__init__(cluster, account=account)
        self._refused = refused
        self._ignored = ignored
        self._asked = asked
        self._when_answered = when_answered

    async def request(self, method: str, path: str, *args: Any, **named: Any) -> Response:
        asked = self._cluster.name, method, path
        self._asked[asked] += 1
        refused = self._refused(asked)
        if self._ignored(asked):
            return await super().request("GET", path.removesuffix("/status"), {})
        answer = REFUSAL if refused is False else await super().request(method, path, *args, **named)
        answer = REFUSAL if refused else answer
        for tell in self._when_answered:
            tell(asked)
        return answer


class LendingFleet:
    """Owners with nodes of 8 cores, and pools without any of their own. No bridge yet."""

    broker: LocalBroker
    bus: LocalBus

    def __init__(self, nodes: int = 1, pools: Sequence[str] = (POOL,), owners: Sequence[str] = (OWN,)) -> None:
        self.nodes = nodes
        self.pools = pools
        self.owners = owners
        self.clusters: dict[str, SimCluster] = {}
        self.said: list[Record] = []
        self.asked = Counter[Asked]()
        self.when_answered: list[Callable[[Asked], object]] = []
        self.refused: Callable[[Asked], bool | None] = lambda _: None
        """Whether a server refuses this, as a webhook's word: True, having done it all the same; False; None: not."""
        self.ignored: Callable[[Asked], bool] = lambda _: False
        """Whether a server answers this with the object as it is, and does nothing."""
        self.accounts: dict[str, Account] = {}
        """Of bridges, by cluster; one that is not there may do everything."""
        self._buses: dict[str, LocalBus] = {}
        self._instances: dict[str, tuple[Bridge, asyncio.Event, asyncio.Task[None]]] = {}
        self._sequence = 0
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        self.broker = LocalBroker()
        self.bus = LocalBus(self.broker, FLEET, "planner")
        for name, count in (*((owner, self.nodes) for owner in self.owners), *((pool, 0) for pool in self.pools)):
            settings = SimSettings(start_delay_seconds=0.5, delete_delay_seconds=1.0)
            cluster = await self._stack.enter_async_context(SimCluster(name, settings))
            cluster.add_nodes([NodeSpec("n", count, cpu_millis=8000)])
            self.clusters[name] = cluster
            await self.publish_cluster_joined(name)
        listener = asyncio.create_task(self._collect_records())
        self._stack.callback(listener.cancel)
        return self

    async def __aexit__(self, *_: object) -> None:
        for instance in tuple(self._instances):
            await self.stop(instance)
        await self._stack.aclose()

    # ── Bridges ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def start(self, instance: str = "b1", broker: LocalBroker | None = None, **settings: Any) -> Bridge:
        """broker: another log, of which this fleet knows nothing: a bridge that was started by mistake."""
        bus = self._buses[instance] = LocalBus(broker or self.broker, FLEET, instance)
        loop = asyncio.get_running_loop()
        carried = ("sim/", "app.kubernetes.io/")  # By the first the simulation is told how long a pod runs.
        chosen = VkBridgeSettings(
            **{"copies_seconds": 5.0, "copy_unused_seconds": 60.0, "carried_prefixes": carried, **settings}
        )
        bridge = Bridge(bus, self.connect_cluster, chosen, instance, lambda: WALL_MS + round(loop.time() * 1000))
        stopping = asyncio.Event()
        self._instances[instance] = bridge, stopping, asyncio.create_task(bridge.run(stopping))
        return bridge

    async def stop(self, instance: str = "b1") -> None:
        _, stopping, task = self._instances.pop(instance)
        stopping.set()
        await task

    async def kill_instance(self, instance: str = "b1") -> None:
        """As a crash: nothing is finished, and its turns go to others."""
        _, _, task = self._instances.pop(instance)
        task.cancel()
        await asyncio.wait([task])
        bus = self._buses[instance]
        bus.broker.remove_memberships(bus)

    def cut_off_from_log(self, instance: str, *, unavailable: bool = True) -> None:
        """From the log."""
        self._buses[instance].unavailable = unavailable

    def connect_cluster(self, joined: ClusterJoined) -> ClusterApi:
        return ClusterApi(
            CountingTransport(
                self.clusters[joined.cluster],
                self.asked,
                self.when_answered,
                self._is_refused,
                self._is_ignored,
                self.accounts.get(joined.cluster) or Account(),
            ),
            joined.cluster,
            ClusterApiSettings(),
            random=Random(0),
        )

    def _is_refused(self, asked: Asked) -> bool | None:
        """By what the test says now, which a bridge that was connected before must hear, too."""
        return self.refused(asked)

    def _is_ignored(self, asked: Asked) -> bool:
        return self.ignored(asked)

    # ── The planner, the descheduler, people ────────────────────────────────────────────────────────────────────

    async def publish_cluster_joined(self, name: str, phase: str = PHASE_ACTIVE) -> None:
        joined = ClusterJoined(name, name, f"https://{name}", "own", "", "", (), ())
        await self.bus.publish(replace(joined, phase=phase))

    async def declare_lending(
        self, *, withdrawing: bool = False, pool: str = POOL, owner: str = OWN, **changes: Any
    ) -> None:
        self._sequence += 1
        rule = LendingRule("all", (), "idle", 100, 0, IDLE_SECONDS, 0.5)
        bus = changes.get("bus", self.bus)
        await bus.publish(
            LendingDeclared(
                cluster=owner,
                generation=Generation(3, self._sequence),
                pool=pool,
                rules=changes.get("rules", (rule,)),
                grace_seconds=GRACE_SECONDS,
                cooldown_seconds=changes.get("cooldown_seconds", 600),
                recalls_per_minute=0,
                paused=changes.get("paused", False),
                withdrawing=withdrawing,
                by="",
                reason="",
                at_ms=0,
            )
        )

    async def create_wrong_log(self) -> LocalBus:
        """A second log of the same fleet, as an old Kafka that somebody started again: it says the same."""
        bus = LocalBus(LocalBroker(), FLEET, "planner")
        for name in (OWN, POOL):
            await bus.publish(ClusterJoined(name, name, f"https://{name}", "own", "", "", (), ()))
        return bus

    async def recall_node(self, node: str = "n0", cause: str = CAUSE_NEED, owner: str = OWN) -> None:
        """Of the loan that the log has."""
        self._sequence += 1
        loan = self.record_of_open_loan(node, owner)
        assert loan is not None
        number, wanted_by = Generation(3, self._sequence), (f"{owner}/default/web",)
        await self.bus.publish(
            NodeRecalled(owner, node, number, loan.loan, cause, wanted_by, GRACE_SECONDS, 0, "", "", 0)
        )

    async def freeze_fleet(self) -> None:
        await self.bus.publish(BrakeSet("fleet", "", "", 0))

    async def unfreeze_fleet(self) -> None:
        await self.bus.publish(BrakeReleased("fleet", "", 0))

    async def publish_lending_tombstone(self) -> None:
        """As the descheduler does once everything is back."""
        await self.bus.publish(Tombstone(RecordAddress(LENDING_RULES, OWN, OWN)))

    async def send_request(self, cluster: str, method: str, path: str, body: Any = None) -> Any:
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        data = None if body is None else json.dumps(body).encode()
        answer = await SimTransport(self.clusters[cluster]).request(method, path, {}, data, kind)
        assert answer.status < 300, answer.body
        return json.loads(answer.body)

    async def run_deployment_in_pool(
        self, name: str = "encode", replicas: int = 2, cpu: str = "2", **spec: Any
    ) -> None:
        """A Deployment of offline pods, which the pool's own scheduler places."""
        manifest = deployment(name, replicas, cpu=cpu, tolerations=TOLERATES_LOANS, **spec)
        await self.send_request(POOL, "POST", "/apis/apps/v1/namespaces/default/deployments", manifest)

    # ── What the APIs and the log show ──────────────────────────────────────────────────────────────────────────

    def register_state(self, node: str = "n0", owner: str = OWN) -> str:
        """The state of the register; empty: owned."""
        found = self.clusters[owner].get_object("nodes", node)
        taints = (found or {}).get("spec", {}).get("taints") or ()
        return next((one["value"] for one in taints if one["key"] == LENDING_KEY), "")

    def virtual_node(self, node: str = "n0", owner: str = OWN) -> dict[str, Any] | None:
        return self.clusters[POOL].get_object("nodes", virtual_node_name(owner, node))

    def kubelet_port(self, node: str = "n0") -> int:
        """That the virtual node names; 0: none, or there is no virtual node."""
        port: int = ((self.virtual_node(node) or {}).get("status") or ABSENT)["daemonEndpoints"]["kubeletEndpoint"][
            "Port"
        ]
        return port

    def is_virtual_node_open(self, node: str = "n0", owner: str = OWN) -> bool:
        found = self.virtual_node(node, owner)
        return (
            found is not None
            and not found["spec"].get("unschedulable")
            and found["status"]["allocatable"]["cpu"] != "0"
        )

    def real_pod_phases(self, owner: str = OWN) -> list[tuple[str, str]]:
        """Node and phase of the pool's pods in the owner."""
        return sorted(
            (one["spec"]["nodeName"], one["status"]["phase"])
            for one in self.clusters[owner].objects("pods")
            if one["metadata"]["namespace"].startswith("spillway-lent-")
        )

    def pool_pod_phases(self) -> list[tuple[str, str]]:
        """Node and phase of the pool's pods."""
        pods = self.clusters[POOL].objects("pods")
        return sorted((one["spec"].get("nodeName", ""), one["status"]["phase"]) for one in pods)

    def loan_records(self, node: str = "n0", owner: str = OWN) -> list[NodeLent | NodeReturned]:
        loans = [record.event for record in self.said if isinstance(record.event, NodeLent | NodeReturned)]
        return [one for one in loans if (one.cluster, one.node) == (owner, node)]

    def record_of_open_loan(self, node: str = "n0", owner: str = OWN) -> NodeLent | None:
        last = (self.loan_records(node, owner) or [None])[-1]  # type: ignore[list-item]
        return last if isinstance(last, NodeLent) else None

    def turn_claims(self) -> list[TurnTaken]:
        return [record.event for record in self.said if isinstance(record.event, TurnTaken)]

    async def _collect_records(self) -> None:
        async with LocalBus(self.broker, FLEET, "listener").follow_topics((LENDING,)) as feed:
            async for batch in feed:
                self.said += batch.records


async def wait_until(holds: Check, seconds: float = 120.0) -> float:
    """The virtual seconds that it took; fails when it does not come to hold."""
    began = asyncio.get_running_loop().time()
    while not holds():
        assert asyncio.get_running_loop().time() < began + seconds, "it did not come about"
        await asyncio.sleep(0.05)
    return asyncio.get_running_loop().time() - began


async def assert_holds_for(holds: Check, seconds: float) -> None:
    end = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < end:
        assert holds()
        await asyncio.sleep(0.05)


Story = Callable[[LendingFleet], Awaitable[None]]


def run_on_fleet(
    nodes: int = 1, pools: Sequence[str] = (POOL,), owners: Sequence[str] = (OWN,)
) -> Callable[[Story], Callable[[], Awaitable[None]]]:
    """Opens the fleet inside the test, so that all of its time is the test's."""

    def wrap_story(story: Story) -> Callable[[], Awaitable[None]]:
        async def run_story() -> None:
            async with LendingFleet(nodes, pools, owners) as fleet:
                await story(fleet)

        run_story.__name__, run_story.__doc__ = story.__name__, story.__doc__
        return run_story

    return wrap_story
