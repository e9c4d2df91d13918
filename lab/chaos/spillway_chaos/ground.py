"""Runs one platform for many rounds, with its load, its ledger and its audits."""

import asyncio
import json
import os
import random as chance
import signal
import socket
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from spillway.api import ApplyRequest, JoinClusterRequest, ListClustersRequest, ListRequest, RequestError
from spillway.rpc.client import LendingClient, PlannerClient, ScalingClient
from spillway_local.fleet_plan import deployment
from spillway_local.kafka_server import PORTS_PER_NODE, KafkaServer
from spillway_local.ports import PortBook, session_port
from spillway_local.stack import Stack, StackOptions

from .audit import NAMESPACE, Audit, Door, MemberAudit
from .ledger import Finding, Ledger, Placed
from .lending_audit import LendingAudit
from .lending_load import OWNERS, POOL, LendingLoad, run_lending_load
from .load import CPU, MEMORY, Load, Pulse
from .log_audit import LogAudit
from .proxy import Proxy

KINDS = ("planner", "snapshot", "propagator", "hpa")
LENDING_KINDS = ("descheduler", "vk-bridge")
SERVICES = tuple(f"{kind}-{number}" for kind in KINDS for number in (1, 2))
ALL_SERVICES = (*SERVICES, *(f"{kind}-{number}" for kind in LENDING_KINDS for number in (1, 2)))
PULSE = "pulse"
READY_SECONDS = 90.0
BROKER_READY_SECONDS = 300.0
"""The longest wait for a broker. Kafka alone starts in 5 s, with twenty processes for each core in 100 s."""
_QUORUM_NOTE = "data/__cluster_metadata-0/quorum-state"
_FAILED = '"event": "failed"'
_POLL_SECONDS, _LOOK_SECONDS = 0.1, 0.05


class NotSo(Exception):
    """Raised when a condition did not become true before its deadline."""


async def wait_until(what: str, holds: Callable[[], Awaitable[bool]], seconds: float = READY_SECONDS) -> None:
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + seconds
    while True:
        with suppress(RequestError):
            if await holds():
                return
        if loop.time() > ends_at:
            raise NotSo(f"not so within {seconds:.0f} s: {what}")
        await asyncio.sleep(_POLL_SECONDS)


async def wait_for_broker(broker: KafkaServer) -> None:
    async def is_listening() -> bool:
        return broker.is_ready()

    await wait_until(f"{broker.name} listens", is_listening, BROKER_READY_SECONDS)


@dataclass(slots=True)
class Ground:
    """A platform under load. client: for inspection; the load and the pulse have clients of their own."""

    stack: Stack
    client: PlannerClient
    load: Load
    pulse: Pulse
    audit: Audit
    proxies: Mapping[str, Proxy]
    ledger: Ledger
    log: LogAudit = field(default_factory=LogAudit)
    extra: list[Finding] = field(default_factory=list)
    """Findings of the faults themselves."""
    lending: LendingLoad | None = None
    """The load of lending; None if no nodes are lent."""
    stories: int = 0
    _loading: asyncio.Task[None] | None = None

    # ── Comparison with the ledger ──────────────────────────────────────────────────────────────────────────────

    async def find_unsettled(self) -> list[Finding]:
        """Returns the differences from the acknowledged requests, both not yet reached and lost again."""
        if not self.audit.is_fresh():
            return [Finding("lost", "a member cannot be read")]
        return list(self.ledger.find_unsettled(await self.placed_by_workload(), self.audit.seen_by_place()))

    async def wait_until_settled(self, seconds: float) -> list[Finding]:
        """Waits until there is no difference twice in a row. Returns the differences that remain after `seconds`."""
        loop = asyncio.get_running_loop()
        deadline, good = loop.time() + seconds, 0
        while True:
            try:
                wrong = await self.find_unsettled()
            except RequestError as error:
                wrong = [Finding("lost", f"the planner cannot be asked: {error.code} {error.text}")]
            good = 0 if wrong else good + 1
            if good > 1:
                return []
            if loop.time() > deadline:
                return wrong
            await asyncio.sleep(_LOOK_SECONDS)

    async def placed_by_workload(self) -> dict[str, Placed]:
        found: dict[str, Placed] = {}
        token = ""
        while True:
            reply = await self.client.list(ListRequest(NAMESPACE, 1000, token))
            for entry in reply.workloads:
                placement = entry.placement
                parts = {part.cluster: part.replicas for part in placement.parts if part.replicas}
                removing = frozenset(part.cluster for part in placement.parts if part.removing)
                found[placement.name] = Placed(
                    placement.replicas, placement.unplaced, parts, removing, placement.deleting
                )
            token = reply.next_page_token
            if not token:
                return found

    async def collect_evidence(self) -> list[Finding]:
        """Returns findings that are final at any time: unrequested deletions, contradictions and refusals."""
        found = list(self.ledger.find_unasked_deletions(self.audit.stopped_by_place()))
        found += self.audit.take_contradictions()
        found += self.ledger.take_refusals()
        if self.lending is not None:
            found += self.lending.audit.take_findings()
        found, self.extra = found + self.extra, []
        return found + await self.log.read_new_findings(self.stack.addresses().kafka)

    # ── The load ────────────────────────────────────────────────────────────────────────────────────────────────

    def begin_story(self, number: int) -> None:
        """Starts requests under new names. Earlier requests are forgotten, not undone."""
        self.stories = number
        self.ledger.forget_all()
        self.audit.forget_removals()
        self.log = LogAudit()
        load, story = self.load, f"story{number}"
        self.load = Load(
            load.client, load.scaling, self.ledger, load.seed, story, asks=load.asks, answered=load.answered
        )
        self._loading = asyncio.create_task(self.load.run())

    async def end_story(self) -> None:
        """Stops all requests; requests in flight are given up."""
        if self._loading is not None:
            self._loading.cancel()
            with suppress(asyncio.CancelledError):
                await self._loading

    # ── Processes ───────────────────────────────────────────────────────────────────────────────────────────────

    def pid_of_program(self, name: str) -> int:
        pids = self.stack.pids(name)
        if not pids:
            raise NotSo(f"{name} does not run")
        return pids[0]

    def send_signal(self, name: str, number: signal.Signals) -> int:
        pid = self.pid_of_program(name)
        os.kill(pid, number)
        return pid

    async def wait_for_restart(self, name: str, pid_before: int) -> None:
        """Waits until supervisor has restarted the program."""

        async def has_new_pid() -> bool:
            pids = self.stack.pids(name)
            return bool(pids) and pids[0] != pid_before

        await wait_until(f"{name} runs again", has_new_pid)

    async def ensure_running(self, name: str) -> None:
        """Waits until the program runs. Starts it if supervisor has given it up."""

        async def is_running() -> bool:
            states = {entry.name: entry.state for entry in await asyncio.to_thread(self.stack.status)}
            if states[name] in ("FATAL", "EXITED", "STOPPED"):
                await asyncio.to_thread(self.stack.supervision.start_program, name)
            return states[name] == "RUNNING"

        await wait_until(f"{name} runs", is_running)

    async def wait_until_ready(self, *names: str) -> None:
        async def is_every_service_ready() -> bool:
            pages = await asyncio.gather(*(self.read_health_page(name, "readyz") for name in names))
            return all(pages)

        await wait_until(f"{', '.join(names)} ready", is_every_service_ready)

    async def read_health_page(self, name: str, page: str) -> str:
        """Returns a page of a service's health server; empty when the answer is not 200."""
        return await asyncio.to_thread(_read_url, self.health_url(name, page))

    async def count_in_log(self, name: str, text: str) -> int:
        """Returns how often a program's log contains this text."""
        log = self.stack.supervision.log_file_of(name)
        return (await asyncio.to_thread(log.read_text, errors="replace")).count(text)

    async def failures_by_service(self) -> Counter[str]:
        """Returns how often an unexpected error, which is a bug, stopped each service."""
        return Counter({name: await self.count_in_log(name, _FAILED) for name in ALL_SERVICES})

    def health_url(self, name: str, page: str) -> str:
        port = PortBook(self.stack.folder / "ports.json").port_by_name()[f"{name}-health"]
        return f"http://127.0.0.1:{port}/{page}"

    async def find_active_instance(self, kind: str) -> str:
        """Returns the planner, hpa or descheduler that has the turn."""
        found: list[str] = []

        async def is_any_active() -> bool:
            names = (f"{kind}-1", f"{kind}-2")
            pages = [await self.read_health_page(name, "metrics") for name in names]
            found.extend(
                name for name, page in zip(names, pages, strict=True) if f"\nspillway_{kind}_active 1.0" in page
            )
            return bool(found)

        await wait_until(f"one {kind} is active", is_any_active)
        return found[0]

    async def instances_with_turns(self, kind: str) -> list[str]:
        """Returns the instances of a service that hold clusters."""
        held = f'\nspillway_turns_held{{service="{kind}"}} '
        names = (f"{kind}-1", f"{kind}-2")
        pages = [await self.read_health_page(name, "metrics") for name in names]
        found = [page.partition(held)[2].partition("\n")[0] for page in pages]
        return [name for name, turns in zip(names, found, strict=True) if float(turns or 0)]

    async def broker_roles(self) -> tuple[str, Counter[str]]:
        """Returns the controller of Kafka's quorum, and the number of partitions that each broker leads."""
        brokers = {broker.node_id: broker for broker in self.stack.brokers()}
        led = Counter({broker.name: 0 for broker in brokers.values()})
        leaders = (partition["leader"] for partition in await self._describe_partitions())
        led.update(brokers[leader].name for leader in leaders if leader in brokers)
        # Kafka names clients any broker as the controller. The nodes' own notes name the real one, in the newest epoch.
        notes = [json.loads((broker.folder / _QUORUM_NOTE).read_text()) for broker in brokers.values()]
        newest = max((note for note in notes if note["leaderId"] in brokers), key=lambda note: note["leaderEpoch"])
        return brokers[newest["leaderId"]].name, led

    async def is_kafka_in_sync(self) -> bool:
        """Returns whether every partition of Kafka has all its replicas in sync, as far as a broker knows."""
        try:
            partitions = await self._describe_partitions()
        except KafkaError:
            return False
        return all(len(partition["isr"]) == len(partition["replicas"]) for partition in partitions)

    async def _describe_partitions(self) -> list[dict[str, Any]]:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.stack.addresses().kafka)
        await admin.start()
        try:
            topics = await admin.describe_topics(None)
        finally:
            await admin.close()
        return [partition for topic in topics for partition in topic["partitions"]]

    async def send_redis_command(self, command: str) -> None:
        port = int(self.stack.addresses().redis.rpartition(":")[2].partition("/")[0])
        await asyncio.to_thread(_send_to_redis, port, command)

    async def join_clusters(self) -> None:
        """Joins the fleet's clusters and waits until all are Ready."""
        names = [member.name for member in self.stack.options.fleet]
        for member in self.stack.options.fleet:
            await self.client.join_cluster(JoinClusterRequest(member.name, member.name, tier=member.tier))

        async def is_every_cluster_ready() -> bool:
            clusters = {c.cluster: c.state for c in (await self.client.list_clusters(ListClustersRequest())).clusters}
            return all(clusters.get(name) == "Ready" for name in names)

        await wait_until("every cluster is Ready", is_every_cluster_ready)

    async def apply_pulse_workload(self) -> None:
        self.ledger.note_request(self.pulse.name, 1)
        await self.client.apply(ApplyRequest((deployment(self.pulse.name, NAMESPACE, 1, CPU, MEMORY),)))
        self.ledger.note_acknowledged(self.pulse.name, 1)


@asynccontextmanager
async def open_ground(
    stack: Stack, doors: Mapping[str, Door], proxies: Mapping[str, Proxy], seed: str, *, lends: bool = False
) -> AsyncIterator[Ground]:
    """Yields a running platform with joined clusters, load and audits. lends: with nodes that are lent and recalled."""
    planners, hpas = stack.addresses().planners, stack.addresses().hpas
    members = {name: MemberAudit(name, door) for name, door in doors.items()}
    ledger = Ledger()
    async with (
        PlannerClient(planners, timeout_seconds=30, retry_seconds=30) as client,
        PlannerClient(planners, timeout_seconds=30, retry_seconds=30) as asking,
        PlannerClient(planners, timeout_seconds=30, retry_seconds=30) as beating,
        ScalingClient(hpas, timeout_seconds=30, retry_seconds=30) as scaling,
        AsyncExitStack() as exits,
    ):
        load, pulse = Load(asking, scaling, ledger, seed, ""), Pulse(beating, PULSE)
        ground = Ground(stack, client, load, pulse, Audit(members), proxies, ledger)
        await ground.join_clusters()
        if lends:
            lender = await exits.enter_async_context(LendingClient(stack.addresses().deschedulers, retry_seconds=30))
            eyes = LendingAudit(doors, OWNERS, POOL)
            ground.lending = await exits.enter_async_context(
                run_lending_load(lender, stack.connect_to_member, eyes, seed)
            )
        tasks = [asyncio.create_task(work.run()) for work in (pulse, ground.audit)]
        ground.begin_story(1)
        await ground.apply_pulse_workload()
        await ground.collect_evidence()
        try:
            yield ground
        finally:
            await ground.end_story()
            for task in tasks:
                task.cancel()
            for outcome in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(outcome, Exception):
                    raise outcome


def choose_ports(options: StackOptions) -> None:
    """Chooses ports for a run folder that has none, from a random start, so that parallel stacks do not collide."""
    options.folder.mkdir(parents=True, exist_ok=True)
    ports = PortBook(options.folder.resolve() / "ports.json")
    base = session_port(count=PORTS_PER_NODE)
    for number in range(options.brokers):
        ports.assign_port("kafka" if options.brokers == 1 else f"kafka-{number + 1}", base, count=PORTS_PER_NODE)
    ports.assign_port("etcd", base + chance.randint(20, 40), count=2)
    names = [f"{service}-{part}" for service in ALL_SERVICES for part in ("health", "rpc")]
    names += [f"{kind}{member.name}" for member in options.fleet for kind in ("member-", "member/")]
    for name in (*names, "redis"):
        ports.assign_port(name, base)


def _read_url(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return str(answer.read().decode())
    except (urllib.error.URLError, OSError):
        return ""


def _send_to_redis(port: int, command: str) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(f"{command}\r\n".encode())
        answer = connection.recv(256)
    if not answer.startswith(b"+"):
        raise NotSo(f"redis answered {answer!r} to {command}")
