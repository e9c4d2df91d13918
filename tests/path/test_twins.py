"""One API server that joined under two names, in one process and virtual time."""

import asyncio
from dataclasses import replace

import pytest

from spillway.api import (
    ApplyRequest,
    GetRequest,
    JoinClusterRequest,
    LeaveClusterRequest,
    ListClustersRequest,
    ScaleRequest,
    SetClusterPhaseRequest,
)
from spillway.events import PHASE_DRAINING, PHASE_LEAVING
from spillway_local import member_nodes
from spillway_local.fleet_plan import GIB, MemberPlan, deployment
from spillway_local.in_process import InProcess, in_process_platform

from .platform_steps import NAMESPACE, list_pods, wait_until

pytestmark = pytest.mark.looptime

OWN = tuple(
    MemberPlan(name, "own", (member_nodes.MemberNodes(2, "n", 4_000, 16 * GIB),), room=16)
    for name in ("own-1", "own-2")
)

SLIP = MemberPlan("slip", "own", (), room=0)


async def states_by_cluster(platform: InProcess) -> dict[str, tuple[str, str]]:
    clusters = (await platform.planner().list_clusters(ListClustersRequest())).clusters
    return {one.cluster: (one.state, one.trouble) for one in clusters}


async def test_its_nodes_count_once_and_what_is_asked_runs() -> None:
    async with in_process_platform(OWN) as platform:
        await wait_until(lambda: platform.planner().is_active, "a planner is active")
        platform.members["a-twin"] = platform.members["own-1"]
        for name in ("own-1", "own-2", "a-twin"):
            await platform.planner().join_cluster(JoinClusterRequest(name, name, tier="own"))
        expected = {
            "own-1": ("Ready", ""),
            "own-2": ("Ready", ""),
            "a-twin": ("Duplicate", "the same API server as own-1"),
        }

        async def is_known() -> bool:
            return await states_by_cluster(platform) == expected

        await wait_until(is_known, "the twin is known")
        reply = await platform.planner().apply(ApplyRequest((deployment("web", NAMESPACE, 40, cpu="500m"),)))
        assert {part.cluster: part.replicas for part in reply.parts} == {"own-1": 16, "own-2": 16}
        assert reply.unplaced == 8

        async def are_running() -> bool:
            counts = [len(await list_pods(platform, name, "web")) for name in ("own-1", "own-2")]
            return counts == [16, 16]

        await wait_until(are_running, "what is placed runs")
        await platform.planner().leave_cluster(LeaveClusterRequest("a-twin", False))

        async def has_left() -> bool:
            return "a-twin" not in await states_by_cluster(platform)

        await wait_until(has_left, "the twin has left")
        await asyncio.sleep(60)
        assert await are_running(), "its leaving removes nothing"
        del platform.members["a-twin"]


async def pod_uids(platform: InProcess, name: str) -> set[str]:
    return {pod["metadata"]["uid"] for pod in await list_pods(platform, name, "web")}


async def placed_replicas_by_cluster(platform: InProcess) -> dict[str, int]:
    reply = await platform.planner().get(GetRequest(NAMESPACE, "web"))
    return {part.cluster: part.replicas for part in reply.placement.parts}


async def wait_until_found_out(platform: InProcess, replicas: int) -> None:
    """own-1 joined first, with a credential of no use; what its server has was placed under another name.

    The planner of that time wrote down of no cluster which API server it is, so the name that joined first counts.
    """
    await wait_until(lambda: platform.planner().is_active, "a planner is active")
    await platform.silence_member("slip")
    for name, credential in (("own-1", "slip"), ("own-2", "own-2"), ("a-twin", "own-1")):
        await platform.planner().join_cluster(JoinClusterRequest(name, credential, tier="own"))

    async def has_joined() -> bool:
        found = await states_by_cluster(platform)
        return found["own-2"][0] == found["a-twin"][0] == "Ready"

    await wait_until(has_joined, "two of three names answer")
    asked = ApplyRequest((deployment("web", NAMESPACE, replicas, cpu="500m"),))
    assert (await platform.planner().apply(asked)).unplaced == 0

    async def are_running() -> bool:
        return len(await pod_uids(platform, "own-1")) + len(await pod_uids(platform, "own-2")) == replicas

    await wait_until(are_running, "what is placed runs")
    platform.members["put-right"] = platform.members["own-1"]
    await platform.planner().join_cluster(JoinClusterRequest("own-1", "put-right", tier="own"))

    async def is_known(own_1: str, a_twin: str) -> bool:
        found = await states_by_cluster(platform)
        return (found["own-1"][0], found["a-twin"][0]) == (own_1, a_twin)

    await wait_until(lambda: is_known("Duplicate", "Ready"), "both names answer")
    joined = platform.planner().state.clusters["a-twin"].joined
    assert joined is not None
    await platform.running["planner-1"].bus.publish(replace(joined, api_server=""))
    await platform.stop_instance("planner-1")
    platform.start_instance("planner-1")
    await wait_until(lambda: platform.planner().is_active, "a planner is active")
    await wait_until(lambda: is_known("Ready", "Duplicate"), "the twin is known")


@pytest.mark.parametrize("phase", [PHASE_DRAINING, PHASE_LEAVING])
async def test_what_a_duplicate_has_goes_over_to_the_first_name_and_no_pod_ends(phase: str) -> None:
    async with in_process_platform((*OWN, SLIP)) as platform:
        await wait_until_found_out(platform, 20)
        before, ran = await placed_replicas_by_cluster(platform), await pod_uids(platform, "own-1")
        assert before.keys() == {"a-twin", "own-2"}
        assert len(ran) == before["a-twin"]
        reply = await platform.planner().set_cluster_phase(SetClusterPhaseRequest("a-twin", phase))
        assert (reply.replicas, reply.confirm) == (0, "")
        expected = {"own-1": before["a-twin"], "own-2": before["own-2"]}

        async def has_gone_over() -> bool:
            return await placed_replicas_by_cluster(platform) == expected

        await wait_until(has_gone_over, "the first name has them")
        await asyncio.sleep(60)
        assert await placed_replicas_by_cluster(platform) == expected
        assert await pod_uids(platform, "own-1") == ran
        assert ("a-twin" in await states_by_cluster(platform)) == (phase == PHASE_DRAINING)
        del platform.members["put-right"]


async def test_where_both_names_have_a_part_the_larger_one_is_kept_and_the_rest_has_another_place() -> None:
    async with in_process_platform((*OWN, SLIP)) as platform:
        await wait_until_found_out(platform, 20)
        await platform.planner().scale(ScaleRequest(NAMESPACE, "web", 24))
        before = await placed_replicas_by_cluster(platform)
        assert before["a-twin"] > before["own-1"] > 0
        await platform.planner().leave_cluster(LeaveClusterRequest("a-twin", False))

        async def has_left() -> bool:
            return "a-twin" not in await states_by_cluster(platform)

        await wait_until(has_left, "the twin has left")
        await asyncio.sleep(60)
        after = await placed_replicas_by_cluster(platform)
        assert sum(after.values()) == 24
        assert after["own-1"] >= before["a-twin"]
        assert {name: len(await pod_uids(platform, name)) for name in ("own-1", "own-2")} == after
        del platform.members["put-right"]


async def test_a_cluster_that_says_anothers_api_server_takes_nothing_from_it() -> None:
    """Also where it joined first, and with the next planner."""
    async with in_process_platform(OWN) as platform:
        await wait_until(lambda: platform.planner().is_active, "a planner is active")
        for name in ("own-1", "own-2"):
            await platform.planner().join_cluster(JoinClusterRequest(name, name, tier="own"))

        def has_records() -> bool:
            joined = platform.planner().state.joined_clusters()
            return len(joined) == 2 and all(one.api_server for one in joined)

        await wait_until(has_records, "each record has its API server")
        honest, liar = platform.members["own-2"], platform.members["own-1"]
        platform.members["own-1"] = honest
        await platform.planner().join_cluster(JoinClusterRequest("own-1", "own-1", tier="own", zone="z"))
        await platform.stop_instance("snapshot-1")
        platform.start_instance("snapshot-1")

        async def is_known() -> bool:
            found = await states_by_cluster(platform)
            return (found["own-1"][0], found["own-2"][0]) == ("Duplicate", "Ready")

        await wait_until(is_known, "the liar is not believed")
        await platform.stop_instance("planner-1")
        platform.start_instance("planner-1")
        await wait_until(lambda: platform.planner().is_active, "another planner is active")
        await wait_until(is_known, "nor by the next planner")
        platform.members["own-1"] = liar
