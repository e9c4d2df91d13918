"""Brakes in one process and virtual time: in force when answered, kept over a killed planner, seen by people."""

import asyncio

import pytest

from planner.settings import PlannerSettings
from spillway.api import (
    ApplyRequest,
    ClusterReply,
    ConfirmRequest,
    DeleteRequest,
    FreezeRequest,
    GetRequest,
    JoinClusterRequest,
    LeaveClusterRequest,
    ListBrakesRequest,
    ListClustersRequest,
    MigrateRequest,
    RequestError,
    ScaleRequest,
    SetClusterPhaseRequest,
    UnfreezeRequest,
)
from spillway.kubernetes.objects import NAMESPACES, RESOURCE_QUOTAS
from spillway_local import member_nodes
from spillway_local.fleet_plan import GIB, MemberPlan, deployment
from spillway_local.in_process import InProcess, in_process_platform

from .platform_steps import NAMESPACE, bound_pods_by_cluster, join_members, unbound_pod_count, wait_until

pytestmark = pytest.mark.looptime

SMALL = (
    MemberPlan("own-1", "own", (member_nodes.MemberNodes(4, "n", 4_000, 16 * GIB),), room=32),
    MemberPlan("own-2", "own", (member_nodes.MemberNodes(4, "n", 4_000, 16 * GIB),), room=32),
)
TWO_PLANNERS = ("snapshot-1", "planner-1", "planner-2", "propagator-1")


def apply_request(name: str, replicas: int) -> ApplyRequest:
    return ApplyRequest((deployment(name, NAMESPACE, replicas, cpu="500m"),))


async def kill_active_planner(platform: InProcess) -> None:
    """The active planner is gone at once; returns when another has the turn."""
    active = next(name for name, entry in platform.running.items() if entry.service is platform.planner())
    await platform.kill_instance(active)
    await wait_until(lambda: platform.planner().is_active, "another planner is active")


async def test_a_brake_is_in_force_when_it_is_answered_and_outlives_the_planner() -> None:
    """freeze, kill the planner: the next one holds what the first held, until somebody says unfreeze."""
    async with in_process_platform(SMALL, TWO_PLANNERS) as platform:
        await join_members(platform)
        await platform.planner().apply(apply_request("web", 20))
        scopes = ("fleet", "cluster/own-1", f"workload/{NAMESPACE}/web")
        for scope in scopes:
            assert (await platform.planner().freeze(FreezeRequest(scope, "audit"))).frozen
            assert scope in platform.planner().state.brakes.brakes
        await kill_active_planner(platform)
        shown = await platform.planner().list_brakes(ListBrakesRequest())
        assert [(brake.scope, brake.reason, brake.by) for brake in shown.brakes] == [
            (scope, "audit", "local") for scope in ("cluster/own-1", "fleet", f"workload/{NAMESPACE}/web")
        ]
        assert not shown.stale
        assert platform.planner().state.brakes.is_frozen("own-2", ("other", "one"))
        for scope in scopes:
            await platform.planner().unfreeze(UnfreezeRequest(scope))
        platform.start_instance("planner-3")
        await asyncio.sleep(5)
        await kill_active_planner(platform)
        assert (await platform.planner().list_brakes(ListBrakesRequest())).brakes == ()


async def test_under_a_frozen_fleet_people_still_get_what_they_ask_for() -> None:
    """Apply, Scale and Delete are carried out in a frozen fleet."""
    async with in_process_platform(SMALL) as platform:
        await join_members(platform)
        planner = platform.planner()
        await planner.freeze(FreezeRequest("fleet", "audit"))
        await planner.apply(apply_request("web", 20))

        async def is_running(replicas: int) -> bool:
            return sum((await bound_pods_by_cluster(platform, "web")).values()) == replicas

        await wait_until(lambda: is_running(20), "20 replicas run")
        await planner.scale(ScaleRequest(NAMESPACE, "web", 40))
        await wait_until(lambda: is_running(40), "40 replicas run")
        await planner.delete(DeleteRequest(NAMESPACE, "web"))
        await wait_until(lambda: is_running(0), "none runs")


async def clusters_by_name(platform: InProcess) -> dict[str, ClusterReply]:
    found = (await platform.planner().list_clusters(ListClustersRequest())).clusters
    return {cluster.cluster: cluster for cluster in found}


def replicas_kept_in(platform: InProcess, cluster: str) -> int:
    workloads = platform.planner().state.workloads.values()
    return sum(part.replicas_kept for entry in workloads for name, part in entry.parts.items() if name == cluster)


async def test_a_drain_waits_for_the_brake_and_the_confirmation_over_a_killed_planner() -> None:
    """Frozen, then unconfirmed, with the planner killed in each: nothing moves. Confirmed: all does, none is missed."""
    async with in_process_platform(SMALL, (*TWO_PLANNERS, "planner-3")) as platform:
        await join_members(platform)
        await platform.planner().apply(apply_request("web", 30))
        await wait_until(lambda: are_all_bound(platform, 30), "30 replicas run")
        there = (await bound_pods_by_cluster(platform))["own-1"]
        assert there > 10
        await platform.planner().freeze(FreezeRequest("fleet", "audit"))
        reply = await platform.planner().set_cluster_phase(SetClusterPhaseRequest("own-1", "Draining"))
        assert (reply.replicas, reply.confirm) == (there, "Drain/own-1")
        assert "fleet is frozen by local: audit" in reply.frozen
        await asyncio.sleep(30)
        await kill_active_planner(platform)
        await asyncio.sleep(30)
        assert (replicas_kept_in(platform, "own-1"), (await bound_pods_by_cluster(platform))["own-1"]) == (there, there)
        await platform.planner().unfreeze(UnfreezeRequest("fleet"))
        await asyncio.sleep(30)
        await kill_active_planner(platform)
        await asyncio.sleep(30)
        (asked,) = (await platform.planner().list_brakes(ListBrakesRequest())).confirmations
        assert (asked.scope, asked.replicas, asked.fleet_replicas, asked.given) == ("Drain/own-1", there, 30, False)
        assert (replicas_kept_in(platform, "own-1"), (await bound_pods_by_cluster(platform))["own-1"]) == (there, there)
        await platform.planner().confirm(ConfirmRequest("Drain/own-1"))
        fewest = 30

        async def is_drained() -> bool:
            nonlocal fewest
            fewest = min(fewest, sum((await bound_pods_by_cluster(platform)).values()))
            return (await clusters_by_name(platform))["own-1"].workloads == 0

        await wait_until(is_drained, "own-1 is empty", 120)
        assert fewest == 30
        assert (await bound_pods_by_cluster(platform)) == {"own-1": 0, "own-2": 30}
        await platform.planner().set_cluster_phase(SetClusterPhaseRequest("own-1", "Active"))
        assert (await platform.planner().list_brakes(ListBrakesRequest())).confirmations == ()


async def are_all_bound(platform: InProcess, replicas: int) -> bool:
    return sum((await bound_pods_by_cluster(platform)).values()) == replicas


async def test_moves_keep_to_the_budget() -> None:
    """60 a minute: at no second has more left than seconds have passed since the turn began to count."""
    settings = PlannerSettings(moves_per_minute=60, confirm_over_fraction=1)
    async with in_process_platform(SMALL, planner_settings=settings) as platform:
        await join_members(platform)
        for number in range(5):
            await platform.planner().apply(apply_request(f"web-{number}", 6))
        await wait_until(lambda: are_all_bound(platform, 30), "30 replicas run")
        await platform.planner().set_cluster_phase(SetClusterPhaseRequest("own-2", "Cordoned"))
        there = replicas_kept_in(platform, "own-1")
        await platform.planner().freeze(FreezeRequest("cluster/own-1", "until the bucket is measured"))
        await platform.planner().set_cluster_phase(SetClusterPhaseRequest("own-2", "Active"))
        await platform.planner().set_cluster_phase(SetClusterPhaseRequest("own-1", "Draining"))
        bucket = platform.planner().state.brakes._budget.left
        await platform.planner().unfreeze(UnfreezeRequest("cluster/own-1"))
        loop = asyncio.get_running_loop()
        began, moved = loop.time(), 0
        while moved < there:
            await asyncio.sleep(0.5)
            moved = there - replicas_kept_in(platform, "own-1")
            assert moved <= bucket + (loop.time() - began) + 1
            assert loop.time() - began < 120
        assert replicas_kept_in(platform, "own-2") == 30


async def test_a_drain_that_has_no_budget_says_so() -> None:
    async with in_process_platform(SMALL, planner_settings=PlannerSettings(moves_per_minute=0)) as platform:
        await join_members(platform)
        await platform.planner().apply(apply_request("web", 6))
        await wait_until(lambda: are_all_bound(platform, 6), "6 replicas run")
        await platform.planner().set_cluster_phase(SetClusterPhaseRequest("own-1", "Draining"))
        text = "held: 3 replicas kept in own-1 wait for the budget: moves_per_minute is 0"

        async def is_said() -> bool:
            return (await platform.planner().get(GetRequest(NAMESPACE, "web"))).placement.waiting_for == text

        await wait_until(is_said, "what it waits for is said")


async def test_a_frozen_cluster_neither_gives_nor_takes_what_nobody_asked_to_move() -> None:
    """own-1 is drained while own-2 is frozen: nothing moves until own-2 is released, and then all of it."""
    async with in_process_platform(SMALL) as platform:
        await join_members(platform)
        planner = platform.planner()
        await planner.apply(apply_request("web", 20))
        await wait_until(lambda: are_all_bound(platform, 20), "20 replicas run")
        before = await bound_pods_by_cluster(platform)
        assert 0 < before["own-1"] <= 10
        await planner.freeze(FreezeRequest("cluster/own-2", "audit"))
        await planner.set_cluster_phase(SetClusterPhaseRequest("own-1", "Draining"))
        await asyncio.sleep(30)
        assert await bound_pods_by_cluster(platform) == before
        await planner.unfreeze(UnfreezeRequest("cluster/own-2"))

        async def is_drained() -> bool:
            return await bound_pods_by_cluster(platform) == {"own-1": 0, "own-2": 20}

        await wait_until(is_drained, "all are in own-2", 120)


async def test_a_frozen_fleet_takes_nothing_back() -> None:
    """Pods that a quota refuses stay where they were placed for as long as the fleet is frozen, and then go."""
    async with in_process_platform(SMALL) as platform:
        await join_members(platform)
        planner = platform.planner()
        await planner.apply(apply_request("first", 1))  # Makes the namespace exist.
        quota = {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "few", "namespace": NAMESPACE},
            "spec": {"hard": {"pods": "5"}},
        }
        await wait_until(lambda: create_quota(platform, quota), "the quota is there")
        await planner.freeze(FreezeRequest("fleet", "audit"))
        await planner.apply(apply_request("web", 20))
        before = replicas_kept_in(platform, "own-1")
        assert before > 5
        await asyncio.sleep(120)
        assert replicas_kept_in(platform, "own-1") == before
        await planner.unfreeze(UnfreezeRequest("fleet"))
        await wait_until(lambda: are_all_bound(platform, 21), "all run elsewhere", 120)
        assert replicas_kept_in(platform, "own-1") <= 5
        assert await unbound_pod_count(platform) == 0


async def create_quota(platform: InProcess, quota: dict[str, object]) -> bool:
    api = platform.member_api("own-1")
    if NAMESPACE not in [entry["metadata"]["name"] for entry in await api.list(NAMESPACES)]:
        return False
    await api.create(RESOURCE_QUOTAS, quota)
    return True


async def test_a_migration_is_carried_out_without_a_dip() -> None:
    """All of a workload goes to another cluster by name, with a frozen other cluster beside; then it is refused."""
    async with in_process_platform(SMALL) as platform:
        await join_members(platform)
        planner = platform.planner()
        await planner.apply(apply_request("web", 20))
        await wait_until(lambda: are_all_bound(platform, 20), "20 replicas run")
        reply = await planner.migrate(MigrateRequest(NAMESPACE, "web", "own-2"))
        assert reply.placed == 20
        fewest = 20

        async def is_moved() -> bool:
            nonlocal fewest
            there = await bound_pods_by_cluster(platform)
            fewest = min(fewest, sum(there.values()))
            return there == {"own-1": 0, "own-2": 20}

        await wait_until(is_moved, "all are in own-2", 120)
        assert fewest == 20
        await planner.freeze(FreezeRequest("cluster/own-1", "audit"))
        with pytest.raises(RequestError, match="cluster/own-1 is frozen by local: audit"):
            await planner.migrate(MigrateRequest(NAMESPACE, "web", "own-1"))
        await planner.unfreeze(UnfreezeRequest("cluster/own-1"))
        await planner.apply(apply_request("large", 30))
        with pytest.raises(RequestError, match="of 20 replicas certainly fit in 'own-1'"):
            await planner.migrate(MigrateRequest(NAMESPACE, "web", "own-1"))


async def test_a_cluster_leaves_when_nothing_is_left_and_is_unknown_then() -> None:
    """leave: what runs goes elsewhere, then the cluster is gone; leave --lost is refused while it answers."""
    async with in_process_platform(SMALL) as platform:
        await join_members(platform)
        planner = platform.planner()
        await planner.apply(apply_request("web", 20))
        await wait_until(lambda: are_all_bound(platform, 20), "20 replicas run")
        with pytest.raises(RequestError, match="cluster 'own-1' answered"):
            await planner.leave_cluster(LeaveClusterRequest("own-1", lost=True))
        assert (await planner.leave_cluster(LeaveClusterRequest("own-1"))).changed

        async def is_gone() -> bool:
            return "own-1" not in await clusters_by_name(platform)

        await wait_until(is_gone, "own-1 has left", 120)
        assert (await bound_pods_by_cluster(platform))["own-2"] == 20
        with pytest.raises(RequestError, match="no cluster has this name; the fleet has own-2"):
            await planner.leave_cluster(LeaveClusterRequest("own-1"))


async def test_a_clusters_phase_outlives_the_planner_and_a_join() -> None:
    """Cordon, kill the planner, join again: the cluster stays cordoned."""
    async with in_process_platform(SMALL, TWO_PLANNERS) as platform:
        await join_members(platform)
        await platform.planner().set_cluster_phase(SetClusterPhaseRequest("own-1", "Cordoned"))
        await kill_active_planner(platform)
        await platform.planner().join_cluster(JoinClusterRequest("own-1", "own-1", tier="own", region="eu"))
        clusters = (await platform.planner().list_clusters(ListClustersRequest())).clusters
        assert [(entry.cluster, entry.phase, entry.region) for entry in clusters] == [
            ("own-1", "Cordoned", "eu"),
            ("own-2", "Active", ""),
        ]
