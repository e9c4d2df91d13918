"""What a member makes of a template's pods, from its API to the placement: in one process and virtual time."""

import asyncio
import json
from typing import Any

import pytest

from planner.core.manifests.request import _read_declaration
from planner.settings import PlannerSettings
from sim.settings import Faults, SidecarSpec
from spillway import metrics
from spillway.api import ApplyRequest, BatchItem, PlanBatchRequest, ScaleRequest
from spillway.clusters.api import NAMESPACES
from spillway_local import member_nodes
from spillway_local.fleet_plan import GIB, MemberPlan, deployment
from spillway_local.in_process import InProcess, in_process_platform

from .platform_steps import NAMESPACE, bound_pods_by_cluster, join_members, unbound_pod_count, wait_until

pytestmark = pytest.mark.looptime

NOT_KNOWN = "planned as declared: what pods of this template become there"
SMALL = (
    MemberPlan("own-1", "own", (member_nodes.MemberNodes(4, "n", 4_000, 16 * GIB),), room=32),
    MemberPlan("cloud-1", "cloud", (member_nodes.MemberNodes(4, "n", 8_000, 32 * GIB),), room=64),
)
MOMENT = PlannerSettings().shape_wait_seconds
SIDECAR = SidecarSpec(cpu_millis=500, memory_bytes=1 << 20)
"""With it a replica of half a core takes a whole one."""


def apply_request(name: str, replicas: int, image: str = "app:1") -> ApplyRequest:
    return ApplyRequest((deployment(name, NAMESPACE, replicas, cpu="500m").replace("app:1", image),))


def namespace_manifest(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


async def join_with_namespace(platform: InProcess) -> None:
    """The namespace is there already, so that the members can be asked."""
    await join_members(platform)
    for name in platform.members:
        await platform.member_api(name).create(NAMESPACES, namespace_manifest(NAMESPACE))
    held = platform.planner().state.admitted.held
    await wait_until(lambda: held.keys() == platform.members.keys(), "a propagator holds every cluster")


async def answer_with_seconds(
    platform: InProcess, asked: ApplyRequest
) -> tuple[float, dict[str, int], tuple[str, ...]]:
    """How long the answer took in virtual time, what it places, and what it warns of."""
    began = asyncio.get_running_loop().time()
    reply = await platform.planner().apply(asked)
    placed = {part.cluster: part.replicas for part in reply.parts}
    return asyncio.get_running_loop().time() - began, placed, reply.warnings


async def test_a_new_template_is_placed_by_what_its_pods_become() -> None:
    """Of 32 replicas 16 fit the own nodes with what is injected there; every one of them binds at once."""
    async with in_process_platform(SMALL) as platform:
        await join_with_namespace(platform)
        platform.members["own-1"].inject_sidecar(SIDECAR)
        seconds, placed, warnings = await answer_with_seconds(platform, apply_request("web", 32))
        assert (placed, warnings) == ({"own-1": 16, "cloud-1": 16}, ())
        assert seconds < MOMENT
        await wait_until(lambda: _are_all_bound(platform, 32), "all of them run where they were placed")
        counts = await bound_pods_by_cluster(platform)
        assert counts == {"own-1": 16, "cloud-1": 16}
        # Scaling waits for nothing, and goes by the same.
        began = asyncio.get_running_loop().time()
        reply = await platform.planner().scale(ScaleRequest(NAMESPACE, "web", 40))
        assert {part.cluster: part.replicas for part in reply.parts} == {"own-1": 16, "cloud-1": 24}
        assert asyncio.get_running_loop().time() - began < MOMENT


@pytest.mark.parametrize("as_batch", [False, True], ids=["alone", "in a batch"])
async def test_long_manifests_are_read_once_until_they_are_answered(as_batch: bool, calls_of: Any) -> None:
    """Before its template is asked about, while that is asked, for its turn, and when it is decided."""
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "long"}, "data": {"a": "x" * 20_000}}
    asked = ApplyRequest((*apply_request("web", 2).manifests, json.dumps(config)))
    async with in_process_platform(SMALL) as platform:
        await join_with_namespace(platform)
        awaited = metrics.SHAPES_AWAITED.labels("answered")
        before = awaited._value.get()
        with calls_of(_read_declaration) as readings:
            if as_batch:
                (answer,) = (await platform.planner().plan_batch(PlanBatchRequest((BatchItem(asked),)))).answers
                assert answer.placement is not None
                assert answer.placement.placed == 2
            else:
                assert (await platform.planner().apply(asked)).placed == 2
        assert awaited._value.get() == before + 1, "its template was asked about"
    assert [len(call["objects"]) for call in readings] == [2]


async def _are_all_bound(platform: InProcess, count: int) -> bool:
    return sum((await bound_pods_by_cluster(platform)).values()) == count and not await unbound_pod_count(platform)


async def test_who_does_not_answer_is_waited_for_once_and_for_a_moment_and_take_back_corrects() -> None:
    """own-1 answers its dry runs too late: planned as declared, said so, and what does not bind moves to the cloud."""
    async with in_process_platform(SMALL) as platform:
        await join_with_namespace(platform)
        platform.members["own-1"].inject_sidecar(SIDECAR)
        platform.members["own-1"].set_faults(Faults(latency_seconds=MOMENT))
        seconds, placed, warnings = await answer_with_seconds(platform, apply_request("web", 32))
        assert placed == {"own-1": 32}
        assert MOMENT <= seconds < MOMENT + 0.2
        assert [text.partition(" is not known yet, ")[0] for text in warnings] == [f"own-1: {NOT_KNOWN}"]
        again, _, _ = await answer_with_seconds(platform, apply_request("web", 32))
        assert again < MOMENT, "what was answered before does not wait again"
        platform.members["own-1"].set_faults(Faults())
        await wait_until(lambda: _are_all_bound(platform, 32), "what did not bind runs elsewhere", 120)
        assert await bound_pods_by_cluster(platform) == {"own-1": 16, "cloud-1": 16}


async def test_a_cluster_that_is_busy_with_many_questions_of_others_is_waited_for() -> None:
    """A batch of another namespace is not answered in time. That does not make own-1 silent: it answers some of it."""
    async with in_process_platform(SMALL) as platform:
        await join_with_namespace(platform)
        platform.members["own-1"].inject_sidecar(SIDECAR)
        platform.members["own-1"].set_faults(Faults(latency_seconds=0.3 * MOMENT))
        await platform.member_api("own-1").create(NAMESPACES, namespace_manifest("bank"))
        many = (deployment(f"many-{number}", "bank", 1, cpu=f"{number + 1}m") for number in range(20))
        await platform.planner().plan_batch(PlanBatchRequest(tuple(BatchItem(ApplyRequest((one,))) for one in many)))
        assert "own-1" not in platform.planner().state.admitted.silent
        seconds, _, warnings = await answer_with_seconds(platform, apply_request("web", 4))
        assert (seconds < MOMENT, warnings) == (True, ()), "it is placed by the answer of own-1"


async def test_who_is_used_only_by_what_another_answered_is_waited_for_in_the_same_moment() -> None:
    """As declared all 32 fit own-1, which answers that 16 do not; the cloud takes its time, within the moment."""
    async with in_process_platform(SMALL) as platform:
        await join_with_namespace(platform)
        for name in platform.members:
            platform.members[name].inject_sidecar(SIDECAR)
        platform.members["cloud-1"].set_faults(Faults(latency_seconds=MOMENT / 3))
        seconds, placed, warnings = await answer_with_seconds(platform, apply_request("web", 32))
        assert (placed, warnings) == ({"own-1": 16, "cloud-1": 16}, ())
        assert MOMENT / 3 < seconds < MOMENT


async def test_one_moment_is_all_that_is_waited_for_whoever_is_used_next() -> None:
    async with in_process_platform(SMALL) as platform:
        await join_with_namespace(platform)
        platform.members["own-1"].inject_sidecar(SIDECAR)
        platform.members["cloud-1"].set_faults(Faults(latency_seconds=MOMENT))
        seconds, placed, warnings = await answer_with_seconds(platform, apply_request("web", 32))
        assert placed == {"own-1": 16, "cloud-1": 16}
        assert MOMENT <= seconds < MOMENT + 0.2
        assert [text.partition(" is not known yet, ")[0] for text in warnings] == [f"cloud-1: {NOT_KNOWN}"]


async def test_who_waits_for_answers_gets_them_when_the_caller_that_asked_goes_away() -> None:
    async with in_process_platform(SMALL) as platform:
        await join_with_namespace(platform)
        platform.members["own-1"].inject_sidecar(SIDECAR)
        platform.members["own-1"].set_faults(Faults(latency_seconds=MOMENT / 2))
        first = asyncio.create_task(platform.planner().apply(apply_request("web", 8)))
        at_once = asyncio.create_task(answer_with_seconds(platform, apply_request("web", 32)))
        await asyncio.sleep(MOMENT / 20)
        second = asyncio.create_task(answer_with_seconds(platform, apply_request("web", 32)))
        await asyncio.sleep(MOMENT / 20)
        first.cancel()
        assert (await at_once)[1:] == ({"own-1": 16, "cloud-1": 16}, ())
        seconds, placed, warnings = await second
        assert (placed, warnings) == ({"own-1": 16, "cloud-1": 16}, ())
        assert seconds < MOMENT


async def test_an_account_that_may_not_create_pods_is_named_and_costs_no_time() -> None:
    async with in_process_platform(SMALL) as platform:
        await join_with_namespace(platform)
        platform.members["own-1"].set_faults(Faults(forbidden=("POST pods",)))
        seconds, placed, warnings = await answer_with_seconds(platform, apply_request("web", 8))
        assert (seconds < MOMENT, placed) == (True, {"own-1": 8})
        assert warnings == ("own-1: planned as declared: our account there may not create pods, which a dry run needs",)


async def test_a_planner_that_starts_knows_what_was_admitted() -> None:
    """The shapes are read from the log with all else: the first decision after a restart goes by them."""
    async with in_process_platform(SMALL) as platform:
        await join_with_namespace(platform)
        platform.members["own-1"].inject_sidecar(SIDECAR)
        await platform.planner().apply(apply_request("web", 1))
        await platform.stop_instance("propagator-1")
        await platform.stop_instance("planner-1")
        platform.start_instance("planner-1")
        await wait_until(lambda: platform.planner().is_active, "the planner is active")
        seconds, placed, _ = await answer_with_seconds(platform, apply_request("web", 20))
        assert placed == {"own-1": 16, "cloud-1": 4}
        assert seconds < MOMENT
