"""A platform of processes as the tests see it: asked over gRPC, observed in the members' own APIs, hurt by signals."""

import asyncio
import json
import os
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pytest

from spillway.addresses import CLAIM_TOPIC_BY_SERVICE, Topic
from spillway.api import (
    CapacityRequest,
    ClusterReply,
    DeleteRequest,
    GetRequest,
    JoinClusterRequest,
    ListClustersRequest,
    ListRequest,
    RequestError,
    WorkloadReply,
)
from spillway.bus import Record, has_reached_ends
from spillway.clusters.api import ClusterUnreachable, ListedObjects, ObjectUpserted
from spillway.events import TurnTaken
from spillway.kafka.bus import KafkaBus, KafkaSettings
from spillway.kubernetes.objects import PODS
from spillway.rpc.client import LendingClient, PlannerClient, ScalingClient
from spillway_local.demo import StackMembers
from spillway_local.fleet_plan import FLEET, deployment
from spillway_local.ports import PortBook
from spillway_local.stack import Stack

KINDS = ("snapshot", "propagator", "planner", "hpa", "descheduler", "vk-bridge")
SERVICES = tuple(f"{kind}-{number}" for kind in KINDS for number in (1, 2))
NAMES = tuple(member.name for member in FLEET)
NAMESPACE = "shop"
REAL_MEMBERS = pytest.mark.parametrize("members", [pytest.param("kube", marks=pytest.mark.kube)], indirect=True)
"""For what real members add: their own controllers, admission and clocks. tests/path tells it on simulated ones."""

Observed = Callable[[], Awaitable[bool]]


class NotSo(AssertionError):
    """A condition did not come true before its deadline."""


async def wait_until(what: str, holds: Observed, seconds: float = 60.0, so_far: Callable[[], object] = str) -> None:
    """Waits for a condition; what cannot be asked at this moment is asked again."""
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + seconds
    while True:
        with suppress(RequestError, ClusterUnreachable):
            if await holds():
                return
        if loop.time() > ends_at:
            raise NotSo(f"not so within {seconds:.0f} s: {what} {so_far()}")
        await asyncio.sleep(0.1)


@dataclass(frozen=True, slots=True)
class Pods:
    """The pods of one cluster that are not on their way out."""

    running: int
    others: int
    bound: tuple[Mapping[str, Any], ...]
    unschedulable: frozenset[str]
    """uids of pods that the member's scheduler could not place."""


@dataclass(slots=True)
class Watched:
    """fewest_ready: at once, in all members that answer. uids: of every pod that was there at any time, by cluster."""

    fewest_ready: int
    uids: dict[str, set[str]]


@dataclass(slots=True)
class Platform:
    """One running stack."""

    stack: Stack
    planner: PlannerClient
    scaling: ScalingClient
    lending: LendingClient
    members: StackMembers

    # ── What was decided ────────────────────────────────────────────────────────────────────────────────────────

    async def clusters_by_name(self) -> dict[str, ClusterReply]:
        reply = await self.planner.list_clusters(ListClustersRequest())
        return {cluster.cluster: cluster for cluster in reply.clusters}

    async def join_fleet(self) -> None:
        for member in FLEET:
            await self.planner.join_cluster(JoinClusterRequest(member.name, member.name, tier=member.tier))
        await self.wait_until_all_ready()

    async def wait_until_all_ready(self, names: Collection[str] = NAMES, seconds: float = 90.0) -> None:
        seen: dict[str, str] = {}

        async def are_all_ready() -> bool:
            clusters = await self.clusters_by_name()
            seen.update({name: f"{cluster.state} {cluster.trouble}" for name, cluster in clusters.items()})
            return all(name in clusters and clusters[name].state == "Ready" for name in names)

        await wait_until(f"{', '.join(names)} are Ready", are_all_ready, seconds, lambda: seen)

    async def list_workloads(self) -> list[WorkloadReply]:
        found: list[WorkloadReply] = []
        token = ""
        while True:
            reply = await self.planner.list(ListRequest(page_size=1000, page_token=token))
            found += reply.workloads
            token = reply.next_page_token
            if not token:
                return found

    async def placed_replicas_by_cluster(self, name: str) -> dict[str, int]:
        """Replicas by cluster as the planner has them; clusters without any are left out."""
        parts = (await self.planner.get(GetRequest(NAMESPACE, name))).placement.parts
        return {part.cluster: part.replicas for part in parts if part.replicas}

    async def wait_until_nothing_counted(self) -> None:
        """Waits until the planner has heard that all are empty: a collector that begins says so a moment late."""
        rooms = {member.name: member.room for member in FLEET}
        seen: dict[str, int] = {}

        async def is_nothing_counted() -> bool:
            reply = await self.planner.capacity(CapacityRequest((deployment("room", NAMESPACE, 1),)))
            seen.update({entry.cluster: entry.certain for entry in reply.clusters if entry.cluster in rooms})
            return seen == rooms

        await wait_until("nothing that ran before is counted any more", is_nothing_counted, 60, lambda: seen)

    async def delete_all_workloads(self) -> None:
        """Deletes every workload, and waits until no member has a pod."""

        seen: dict[str, object] = {}

        async def are_members_empty() -> bool:
            left = await self.list_workloads()
            keys = [(w.placement.namespace, w.placement.name) for w in left if not w.placement.deleting]
            await asyncio.gather(*(self.planner.delete(DeleteRequest(*key)) for key in keys))
            pods = {name: len(await self.list_pods(name)) for name in NAMES}
            listed = {w.placement.name: [part.cluster for part in w.placement.parts] for w in left}
            seen.update(workloads=dict(list(listed.items())[:10]), pods=pods)
            return not left and not sum(pods.values())

        await wait_until("every workload is gone from every member", are_members_empty, 120, lambda: seen)

    # ── What runs, from the members' own APIs ───────────────────────────────────────────────────────────────────

    async def list_pods(self, cluster: str, app: str = "") -> list[Mapping[str, Any]]:
        selector = f"app={app}" if app else ""
        return list(await self.members.member_api(cluster).list(PODS, NAMESPACE, label_selector=selector))

    async def pod_counts(self, cluster: str, app: str = "") -> Pods:
        alive = [pod for pod in await self.list_pods(cluster, app) if not pod["metadata"].get("deletionTimestamp")]
        bound = tuple(pod for pod in alive if pod["spec"].get("nodeName"))
        running = sum(1 for pod in bound if pod.get("status", {}).get("phase") == "Running")
        waiting = frozenset(pod["metadata"]["uid"] for pod in alive if _is_unschedulable(pod))
        return Pods(running, len(alive) - running, bound, waiting)

    async def ready_pods_by_cluster(self, app: str) -> dict[str, int]:
        """Pods that are ready, by cluster that answers; the cloud is asked first.

        Who goes home while this asks is counted twice, never missed.
        """
        found = {}
        for name in reversed(NAMES):
            with suppress(ClusterUnreachable):
                found[name] = sum(_is_ready(pod) for pod in await self.list_pods(name, app))
        return found

    @asynccontextmanager
    async def watch_pods_of_app(self, app: str) -> AsyncIterator[Watched]:
        """What is seen of an app's pods from when it is entered until it is left."""
        seen = Watched(sum((await self.ready_pods_by_cluster(app)).values()), {name: set() for name in NAMES})

        async def count_ready_pods() -> None:
            while True:
                seen.fewest_ready = min(seen.fewest_ready, sum((await self.ready_pods_by_cluster(app)).values()))
                await asyncio.sleep(0.1)

        async def collect_uids(name: str) -> None:
            async for changes in self.members.member_api(name).follow_objects(PODS, label_selector=f"app={app}"):
                for change in changes:
                    listed = change.objects if isinstance(change, ListedObjects) else ()
                    objects = (change.object,) if isinstance(change, ObjectUpserted) else listed
                    seen.uids[name] |= {pod.metadata.uid for pod in objects}

        tasks = [asyncio.create_task(task) for task in (count_ready_pods(), *(collect_uids(name) for name in NAMES))]
        try:
            yield seen
        finally:
            for task in tasks:
                task.cancel()
            for ended in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(ended, Exception):
                    raise ended

    async def wait_until_running(self, app: str, replicas: int, seconds: float = 90.0) -> dict[str, int]:
        """Waits until so many pods run, as many in each cluster as were placed there, and no other is left."""
        seen: dict[str, Any] = {}

        async def is_settled() -> bool:
            placed = await self.placed_replicas_by_cluster(app)
            found = {name: await self.pod_counts(name, app) for name in await self.clusters_by_name()}
            counts = {name: pods.running for name, pods in found.items() if pods.running}
            others = sum(pods.others for pods in found.values())
            seen.update(placed=placed, running=counts, others=others)
            return counts == placed and sum(counts.values()) == replicas and not others

        await wait_until(f"{replicas} replicas of {app} run where they were placed", is_settled, seconds, lambda: seen)
        return dict(seen["running"])

    # ── The log ─────────────────────────────────────────────────────────────────────────────────────────────────

    @asynccontextmanager
    async def open_log(self) -> AsyncIterator[KafkaBus]:
        async with KafkaBus(KafkaSettings(self.stack.addresses().kafka), "", "e2e") as bus:
            yield bus

    async def read_records(self, *topics: Topic) -> list[Record]:
        """Everything readable that stands on these topics now."""
        found: list[Record] = []
        async with self.open_log() as bus, bus.follow_topics(topics) as feed:
            ends = await feed.end_offsets()
            async for batch in feed:
                found += batch.records
                if has_reached_ends(batch.positions, ends):
                    break
        return found

    async def turn_holders_by_cluster(self, service: str) -> dict[str, str]:
        """Who last claimed each cluster."""
        records = await self.read_records(CLAIM_TOPIC_BY_SERVICE[service])
        turns = [record.event for record in records if isinstance(record.event, TurnTaken)]
        return {turn.cluster: turn.instance for turn in turns}

    # ── Processes ───────────────────────────────────────────────────────────────────────────────────────────────

    def pid_of_program(self, name: str) -> int:
        return self.stack.pids(name)[0]

    def kill_program(self, name: str) -> int:
        """Kills the program with SIGKILL. The supervisor starts it again."""
        pid = self.pid_of_program(name)
        os.kill(pid, signal.SIGKILL)
        return pid

    async def kill_program_for_good(self, name: str) -> None:
        """Kills the program with SIGKILL. It does not run again until `start_program`."""
        self.kill_program(name)
        await asyncio.to_thread(self.stack.supervision.stop_program, name)

    async def stop_program(self, name: str) -> None:
        """Stops the program with SIGTERM. It does not run again until `start_program`."""
        await asyncio.to_thread(self.stack.supervision.stop_program, name)

    async def start_program(self, name: str) -> None:
        if not self.stack.pids(name):
            await asyncio.to_thread(self.stack.supervision.start_program, name)
        await self.wait_until_up(name)

    async def wait_until_up(self, name: str) -> None:
        async def is_ready() -> bool:
            return (await self.get_health_page(name, "/readyz"))[0] == 200

        await wait_until(f"{name} is ready", is_ready, 90)

    async def get_health_page(self, name: str, path: str) -> tuple[int, str]:
        """Status and text of a page of a service's health port; 0 when nothing answers."""
        port = PortBook(self.stack.folder / "ports.json").port_by_name()[f"{name}-health"]
        return await asyncio.to_thread(_get_url, f"http://127.0.0.1:{port}{path}")

    async def counter_value(self, metric: str) -> float:
        """A counter with its labels, as both planners together have it."""
        pages = [await self.get_health_page(name, "/metrics") for name in ("planner-1", "planner-2")]
        lines = [line for _, text in pages for line in text.splitlines() if line.startswith(f"{metric} ")]
        return sum(float(line.rpartition(" ")[2]) for line in lines)

    async def active_planner(self) -> str:
        return await self.active_instance("planner")

    async def active_instance(self, kind: str) -> str:
        """The instance of planner or hpa whose turn it is."""
        found: list[str] = []

        async def is_known() -> bool:
            for name in (f"{kind}-1", f"{kind}-2"):
                _, text = await self.get_health_page(name, "/metrics")
                if f"\nspillway_{kind}_active 1.0" in text:
                    found.append(name)
            return bool(found)

        await wait_until(f"a {kind} is active", is_known)
        return found[0]

    def endpoint_of_planner(self, planner: str) -> str:
        return self.stack.addresses().planners[int(planner.rpartition("-")[2]) - 1]

    # ── Faults of simulated members ─────────────────────────────────────────────────────────────────────────────

    def post_to_simulated_member(self, cluster: str, door: str, **body: object) -> None:
        """Posts to a simulated member's door for tests: faults, expire-history, drop-watches."""
        config = json.loads((self.stack.credentials / f"{cluster}.kubeconfig").read_text())
        request = urllib.request.Request(
            f"{config['clusters'][0]['cluster']['server']}/sim/{door}",
            json.dumps(body).encode(),
            {"Authorization": f"Bearer {config['users'][0]['user']['token']}"},
        )
        with urllib.request.urlopen(request, timeout=10):
            pass

    def run_redis_command(self, *command: str) -> str:
        port = self.stack.addresses().redis.rpartition(":")[2].partition("/")[0]
        asked = ["redis-cli", "-p", port, *command]
        return subprocess.run(asked, capture_output=True, text=True, check=True, timeout=20).stdout.strip()


@asynccontextmanager
async def open_platform(stack: Stack) -> AsyncIterator[Platform]:
    members = StackMembers(stack)
    addresses = stack.addresses()
    async with (
        PlannerClient(addresses.planners, timeout_seconds=60, retry_seconds=60) as planner,
        ScalingClient(addresses.hpas, timeout_seconds=60, retry_seconds=60) as scaling,
        LendingClient(addresses.deschedulers, timeout_seconds=60, retry_seconds=60) as lending,
    ):
        try:
            yield Platform(stack, planner, scaling, lending, members)
        finally:
            await members.close()


def _is_ready(pod: Mapping[str, Any]) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    ready = any(entry["type"] == "Ready" and entry["status"] == "True" for entry in conditions)
    return ready and not pod["metadata"].get("deletionTimestamp")


def _is_unschedulable(pod: Mapping[str, Any]) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    return any(entry["type"] == "PodScheduled" and entry["status"] == "False" for entry in conditions)


def _get_url(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return int(answer.status), str(answer.read().decode())
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""
