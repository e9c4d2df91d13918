"""Moves of what runs, in one process and virtual time: a lost cluster and its return, a drain, a wait for room."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from planner.settings import PlannerSettings
from spillway.addresses import CAPACITY, PENDING
from spillway.api import (
    ApplyRequest,
    DeleteRequest,
    GetRequest,
    JoinClusterRequest,
    LeaveClusterRequest,
    ListClustersRequest,
    ScaleRequest,
    SetClusterPhaseRequest,
)
from spillway.clusters.api import DEPLOYMENTS
from spillway.events import PHASE_DRAINING
from spillway_local import member_nodes
from spillway_local.fleet_plan import GIB, MemberPlan, deployment
from spillway_local.in_process import InProcess, in_process_platform

from .platform_steps import NAMESPACE, bound_pods_by_cluster, join_members, wait_until

pytestmark = pytest.mark.looptime

SLOTS = 8
THREE = tuple(
    MemberPlan(name, tier, (member_nodes.MemberNodes(1, "n", SLOTS * 500, 16 * GIB),), room=SLOTS)
    for name, tier in (("own-1", "own"), ("own-2", "own"), ("cloud-1", "cloud"))
)
KEY = (NAMESPACE, "web")


def apply_request(replicas: int, name: str = "web", **spec: object) -> ApplyRequest:
    """A Deployment whose policy bears the loss of a cluster for half a minute."""
    policy = {"ownFirst": True, "onClusterLoss": {"after": "30s"}} | spec
    text = json.dumps({"apiVersion": "spillway.io/v1", "kind": "PlacementPolicy", "spec": policy})
    return ApplyRequest((deployment(name, NAMESPACE, replicas), text))


def ready_pods_by_cluster(platform: InProcess, name: str = "web") -> dict[str, int]:
    """Pods that are ready, by cluster, whether or not its API answers."""
    return {
        cluster: sum(
            any(entry["type"] == "Ready" and entry["status"] == "True" for entry in pod["status"].get("conditions", ()))
            for pod in member.objects("pods", NAMESPACE)
            if pod["metadata"]["labels"].get("app") == name and "deletionTimestamp" not in pod["metadata"]
        )
        for cluster, member in platform.members.items()
    }


def replicas_of_parts(platform: InProcess, name: str = "web") -> dict[str, tuple[int, int, int]]:
    """kept, lost and leaving by cluster."""
    return {
        cluster: (part.replicas_kept, part.replicas_lost, part.replicas_leaving)
        for cluster, part in platform.planner().state.workloads[NAMESPACE, name].parts.items()
    }


@dataclass
class Watched:
    """The fewest pods that were ready at once, in all clusters together."""

    fewest: int = 10_000
    seen: list[dict[str, int]] = field(default_factory=list)


@asynccontextmanager
async def watch_ready_pods(platform: InProcess) -> AsyncIterator[Watched]:
    found = Watched()

    async def note_ready_pods() -> None:
        while True:
            ready = ready_pods_by_cluster(platform)
            found.fewest = min(found.fewest, sum(ready.values()))
            if not found.seen or found.seen[-1] != ready:
                found.seen.append(ready)
            await asyncio.sleep(0.05)

    task = asyncio.create_task(note_ready_pods())
    try:
        yield found
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def run_six_replicas_in_own_1() -> AsyncIterator[InProcess]:
    """Six replicas run in own-1; the other clusters are empty."""
    settings = PlannerSettings(capacity_age_max_seconds=8)
    async with in_process_platform(THREE, planner_settings=settings) as platform:
        await join_members(platform)
        only = [{"cluster": name, "max": 0} for name in ("own-2", "cloud-1")]
        await platform.planner().apply(apply_request(6, limits=only))
        await wait_until(lambda: ready_pods_by_cluster(platform)["own-1"] == 6, "six replicas run in own-1")
        await platform.planner().apply(apply_request(6))
        yield platform


async def test_a_silent_cluster_is_replaced_and_on_its_return_nothing_dips() -> None:
    """After 30 s its replicas run elsewhere; awake, with its pods alive, the surplus goes only after."""
    async with run_six_replicas_in_own_1() as platform, watch_ready_pods(platform) as pods:
        version = platform.planner().state.workloads[KEY].parts["own-1"].version
        await platform.silence_member("own-1")
        await asyncio.sleep(25)
        assert replicas_of_parts(platform) == {"own-1": (6, 0, 0)}
        await wait_until(lambda: ready_pods_by_cluster(platform)["own-2"] == 6, "six replicas run elsewhere", 60)
        assert replicas_of_parts(platform) == {"own-1": (0, 6, 0), "own-2": (6, 0, 0)}
        assert platform.planner().state.workloads[KEY].parts["own-1"].version == version
        await platform.wake_member("own-1")
        await wait_until(lambda: sum(ready_pods_by_cluster(platform).values()) == 6, "the surplus is gone", 120)
        assert pods.fewest == 6
        assert all(not lost and not leaving for _, lost, leaving in replicas_of_parts(platform).values())
        settled = replicas_of_parts(platform)
        await asyncio.sleep(120)
        assert replicas_of_parts(platform) == settled
        assert sum((await bound_pods_by_cluster(platform, "web")).values()) == 6
        history = (await platform.planner().get(GetRequest(*KEY, history=20))).history
        causes = [record.cause for record in reversed(history)]
        assert causes[-3:] == ["Failover", "Return", "Settled"]


async def test_a_cluster_that_comes_back_empty_and_full_of_others_gets_nothing() -> None:
    """Its object and pods died with it, and its nodes are cordoned: what runs elsewhere stays there."""
    async with run_six_replicas_in_own_1() as platform:
        await platform.silence_member("own-1")
        await wait_until(lambda: ready_pods_by_cluster(platform)["own-2"] == 6, "six replicas run elsewhere", 90)
        member = platform.members["own-1"]
        member.advance_clock()
        for found in list(member.objects("deployments", NAMESPACE)):
            member.control_plane.garbage.delete_object("deployments", found, "Background")
        for node in list(member.objects("nodes")):
            member.cordon(node["metadata"]["name"])
        await wait_until(lambda: ready_pods_by_cluster(platform)["own-1"] == 0, "its pods are gone")
        async with watch_ready_pods(platform) as pods:
            await platform.wake_member("own-1")
            await wait_until(lambda: replicas_of_parts(platform) == {"own-2": (6, 0, 0)}, "own-1 holds nothing", 180)
            await asyncio.sleep(60)
            assert pods.fewest == 6
            assert replicas_of_parts(platform) == {"own-2": (6, 0, 0)}


async def test_a_drained_cluster_empties_without_a_dip_leaves_and_may_join_again() -> None:
    """Drain, leave: its collector and propagator let go, nothing of it stays in the log; joined again it takes more."""
    async with run_six_replicas_in_own_1() as platform, watch_ready_pods(platform) as pods:
        planner = platform.planner()
        await planner.set_cluster_phase(SetClusterPhaseRequest("own-1", PHASE_DRAINING))
        await wait_until(lambda: set(replicas_of_parts(platform)) == {"own-2"}, "own-1 is empty", 120)
        assert ready_pods_by_cluster(platform) == {"own-1": 0, "own-2": 6, "cloud-1": 0}
        assert pods.fewest == 6
        await planner.leave_cluster(LeaveClusterRequest("own-1", lost=False))

        async def has_left() -> bool:
            clusters = (await planner.list_clusters(ListClustersRequest())).clusters
            return "own-1" not in {cluster.cluster for cluster in clusters}

        await wait_until(has_left, "own-1 has left")
        await asyncio.sleep(15)
        assert "own-1" not in platform.running["snapshot-1"].service.collectors
        assert "own-1" not in platform.running["propagator-1"].service.clusters_worked_on
        assert keys_left_in_log(platform, "own-1") == set()
        await planner.join_cluster(JoinClusterRequest("own-1", "own-1", tier="own"))
        await wait_until(
            lambda: planner.state.is_fresh("own-1", asyncio.get_running_loop().time()), "own-1 is fresh", 60
        )
        await planner.scale(ScaleRequest(*KEY, 14))
        await wait_until(lambda: sum(ready_pods_by_cluster(platform).values()) == 14, "fourteen run")
        assert ready_pods_by_cluster(platform)["own-1"] + ready_pods_by_cluster(platform)["own-2"] == 14


async def test_a_leave_names_the_workload_that_holds_the_cluster_and_the_finalizer_that_keeps_it() -> None:
    """Somebody in the cluster put a finalizer on the object. Without it the object goes, and the cluster leaves."""
    async with run_six_replicas_in_own_1() as platform:
        planner, api = platform.planner(), platform.member_api("own-1")
        kept_by = {"metadata": {"finalizers": ["example.com/keep"]}}
        await api.patch(DEPLOYMENTS, NAMESPACE, "web", kept_by, resource_version="")
        await planner.delete(DeleteRequest(*KEY))
        (left,) = (await planner.leave_cluster(LeaveClusterRequest("own-1"))).cluster.left
        assert (left.namespace, left.name, left.state) == (*KEY, "Removing")

        async def is_named() -> bool:
            again = await planner.leave_cluster(LeaveClusterRequest("own-1"))
            reasons = [one.reason for one in again.cluster.left]
            return not again.changed and any("kept by its finalizers: example.com/keep" in one for one in reasons)

        await wait_until(is_named, "the leave names the finalizer", 60)
        freed = {"metadata": {"finalizers": None}}
        await api.patch(DEPLOYMENTS, NAMESPACE, "web", freed, resource_version="")

        async def has_left() -> bool:
            clusters = (await planner.list_clusters(ListClustersRequest())).clusters
            return "own-1" not in {cluster.cluster for cluster in clusters}

        await wait_until(has_left, "own-1 has left", 60)


def keys_left_in_log(platform: InProcess, cluster: str) -> set[str]:
    """Keys of a cluster's capacity and pending pods whose last record is not a tombstone."""
    last: dict[bytes, bool] = {}
    for topic in (CAPACITY, PENDING):
        for partition in range(platform.broker.partition_count(topic)):
            records, _ = platform.broker.read_records(topic.name, partition, 0, 100_000)
            last |= {record.key or b"": record.value is not None for record in records}
    return {key.decode() for key, there in last.items() if there and key.decode().startswith(f"{cluster}/")}


async def test_what_has_no_room_elsewhere_waits_is_named_and_moves_when_room_comes_up() -> None:
    """Two of six find a place; four move when another workload goes."""
    async with run_six_replicas_in_own_1() as platform:
        planner = platform.planner()
        only = [{"cluster": "own-1", "max": 0}]
        await planner.apply(apply_request(2 * SLOTS - 2, "others", limits=only, onClusterLoss={"after": "never"}))
        await wait_until(
            lambda: sum(ready_pods_by_cluster(platform, "others").values()) == 2 * SLOTS - 2, "all others run"
        )
        await platform.silence_member("own-1")
        await wait_until(lambda: replicas_of_parts(platform).get("own-1") == (4, 2, 0), "two have moved", 90)
        await asyncio.sleep(5)
        reply = (await planner.get(GetRequest(*KEY))).placement
        assert reply.waiting_for.startswith("4 replicas of lost cluster own-1 wait for room elsewhere (")
        assert (reply.placed, reply.unplaced) == (6, 0)
        await planner.scale(ScaleRequest(NAMESPACE, "others", 4))
        await wait_until(lambda: replicas_of_parts(platform).get("own-1") == (0, 6, 0), "all have moved", 30)
        await wait_until(
            lambda: sum(count for name, count in ready_pods_by_cluster(platform).items() if name != "own-1") == 6, "run"
        )
        assert (await planner.get(GetRequest(*KEY))).placement.waiting_for == ""
