"""Which planner answers as the active one, in one process and virtual time."""

import asyncio

import pytest

from planner.service import Planner, PlannerClocks
from planner.settings import PlannerSettings
from spillway.addresses import TURNS_PLANNER
from spillway.api import (
    ApplyRequest,
    CapacityRequest,
    DeleteRequest,
    ExplainRequest,
    FreezeRequest,
    GetRequest,
    ListBrakesRequest,
    ListClustersRequest,
    ListNodesRequest,
    ListOrphansRequest,
    ListRequest,
    RequestError,
    ScaleRequest,
)
from spillway.bus import OffsetsWentBack
from spillway.events import STATE_ORPHANED, BrakeSet, TurnTaken, WorkloadObserved
from spillway.local_bus import LocalBus
from spillway.store import MemoryStore
from spillway_local import member_nodes
from spillway_local.fleet_plan import GIB, MemberPlan, deployment
from spillway_local.in_process import FLEET_ID, in_process_platform

from .platform_steps import NAMESPACE, join_members, wait_until

pytestmark = pytest.mark.looptime

SMALL = (MemberPlan("own-1", "own", (member_nodes.MemberNodes(2, "n", 4_000, 16 * GIB),), room=16),)


async def list_frozen_scopes(planner: Planner) -> tuple[bool, list[str]]:
    """Returns whether the answer is stale, and the frozen scopes."""
    shown = await planner.list_brakes(ListBrakesRequest())
    return shown.stale, [brake.scope for brake in shown.brakes]


async def staleness_by_question(planner: Planner) -> dict[str, bool]:
    """Of each question that changes nothing, whether its answer says so."""
    manifest = deployment("web", NAMESPACE, 4)
    return {
        "get": (await planner.get(GetRequest(NAMESPACE, "web"))).placement.stale,
        "list": (await planner.list(ListRequest())).stale,
        "explain": (await planner.explain(ExplainRequest(NAMESPACE, "web"))).stale,
        "plan": (await planner.plan(ApplyRequest((manifest,)))).stale,
        "capacity": (await planner.capacity(CapacityRequest((manifest,)))).stale,
        "clusters": (await planner.list_clusters(ListClustersRequest())).stale,
        "nodes": (await planner.list_nodes(ListNodesRequest("own-1"))).stale,
        "orphans": (await planner.list_orphans(ListOrphansRequest())).stale,
        "brakes": (await planner.list_brakes(ListBrakesRequest())).stale,
    }


async def test_who_is_fenced_with_nothing_to_write_steps_down_and_answers_from_the_log_again() -> None:
    """A standby that froze was given the turn and lost it. It wakes, takes it all the same, and decides."""
    async with in_process_platform(SMALL) as platform:
        await join_members(platform)
        active = platform.running["planner-1"]
        planner: Planner = active.service
        woken = LocalBus(platform.broker, FLEET_ID, "woken")
        async with woken.join_standby_group("planner", "woken@woken") as turn:
            hear = platform.broker.end_sessions_unnoticed(active.bus)
            platform.broker.end_sessions_unnoticed(woken)
            hear()
            await wait_until(lambda: not planner.is_active, "the planner has heard that it was expelled")
            await wait_until(lambda: planner.is_active, "the planner is active again")
            writer = await turn.wait_for_turn()
            await writer.write_events([BrakeSet("fleet", "audit", "woken", 0)])
            await wait_until(lambda: not planner.is_active, "the planner is fenced and knows it")
            with pytest.raises(RequestError, match="still reads the log"):
                await list_frozen_scopes(planner)
            assert planner.active_instance_address() == "woken"
            await wait_until(lambda: planner.is_active, "the planner takes its turn again")
        assert await list_frozen_scopes(planner) == (False, ["fleet"])
        assert planner.active_instance_address() == "planner-1"


async def test_who_reads_while_a_write_fails_is_told_to_ask_another_planner() -> None:
    """What the write held stands in the state, and perhaps not in the log."""
    async with in_process_platform(SMALL) as platform:
        await join_members(platform)
        active = platform.running["planner-1"]
        active.bus.unavailable = True
        asked = asyncio.create_task(active.service.apply(ApplyRequest((deployment("web", NAMESPACE, 4),))))
        await asyncio.sleep(1)
        with pytest.raises(RequestError, match="still reads the log"):
            await active.service.list(ListRequest())
        with pytest.raises(RequestError, match="retry with the same idempotency key"):
            await asked


async def test_a_planner_that_is_cut_off_from_the_log_says_that_its_answers_are_stale() -> None:
    """It runs on, has nothing to write and hears of nobody: its successor decides, and it must not pass for it."""
    async with in_process_platform(SMALL) as platform:
        await join_members(platform)
        first = platform.running["planner-1"]
        platform.start_instance("planner-2")
        await asyncio.sleep(5)
        first.bus.unavailable = True
        hear = platform.broker.end_sessions_unnoticed(first.bus)
        second = platform.running["planner-2"].service
        await wait_until(lambda: second.is_active, "the other planner is active")
        await second.freeze(FreezeRequest("fleet", "audit"))
        settings = PlannerSettings()
        await asyncio.sleep(settings.turn_proven_seconds + settings.turn_asked_seconds)
        assert await list_frozen_scopes(first.service) == (True, [])
        assert await list_frozen_scopes(second) == (False, ["fleet"])
        first.bus.unavailable = False
        hear()
        await wait_until(lambda: "fleet" in first.service.state.brakes.brakes, "it has read what was decided")
        assert await list_frozen_scopes(first.service) == (True, ["fleet"])


async def test_a_planner_that_is_cut_off_refuses_nothing_and_answers_nothing_as_done() -> None:
    """Its successor has deleted one workload and declared another; it knows of neither, and has nothing to write."""
    kept, web, gone = (deployment(name, NAMESPACE, 2) for name in ("kept", "web", "gone"))
    async with in_process_platform(SMALL) as platform:
        await join_members(platform)
        first = platform.running["planner-1"]
        asked = ApplyRequest((gone,), idempotency_key="once")
        await first.service.apply(asked)
        await first.service.apply(ApplyRequest((kept,)))
        platform.start_instance("planner-2")
        await asyncio.sleep(5)
        assert (await first.service.apply(asked)).name == "gone"  # Answered from what is kept: nothing is written.
        first.bus.unavailable = True
        hear = platform.broker.end_sessions_unnoticed(first.bus)
        second = platform.running["planner-2"].service
        await wait_until(lambda: second.is_active, "the other planner is active")
        await second.delete(DeleteRequest(NAMESPACE, "gone"))
        await second.apply(ApplyRequest((web,)))
        again = asyncio.create_task(first.service.apply(asked))
        unknown = asyncio.create_task(first.service.scale(ScaleRequest(NAMESPACE, "web", 3)))
        for one in (again, unknown):
            with pytest.raises(RequestError) as refused:
                await one
            assert refused.value.code == "UNAVAILABLE"
        first.bus.unavailable = False
        hear()


async def test_a_standby_answers_what_changes_nothing_and_says_of_each_answer_that_it_is_stale() -> None:
    async with in_process_platform(SMALL) as platform:
        await join_members(platform)
        await platform.planner().apply(ApplyRequest((deployment("web", NAMESPACE, 2),)))
        platform.start_instance("planner-2")
        standby: Planner = platform.running["planner-2"].service
        await wait_until(lambda: (NAMESPACE, "web") in standby.state.workloads, "it has read what was decided")
        assert {what for what, stale in (await staleness_by_question(platform.planner())).items() if stale} == set()
        assert {what for what, stale in (await staleness_by_question(standby)).items() if not stale} == set()


async def test_where_the_offsets_of_turns_went_back_no_planner_decides_anything() -> None:
    """What it decided would sort below what is there: it would be acknowledged, and carried out by nobody."""
    async with in_process_platform(SMALL) as platform:
        await join_members(platform)
        await platform.planner().apply(ApplyRequest((deployment("web", NAMESPACE, 2),)))
        await platform.stop_instance("planner-1")
        platform.broker.recreate_topic(TURNS_PLANNER)
        planner = Planner(
            LocalBus(platform.broker, FLEET_ID, "planner-3"),
            MemoryStore(),
            PlannerSettings(),
            "planner-3@planner-3",
            PlannerClocks(asyncio.get_running_loop().time, lambda: 0),
        )
        with pytest.RaisesGroup(OffsetsWentBack, flatten_subgroups=True):
            await planner.run(asyncio.Event())
        with pytest.raises(RequestError, match="this planner"):
            await planner.scale(ScaleRequest(NAMESPACE, "web", 1))


async def test_a_word_of_a_turn_that_is_over_makes_no_part_forgotten_also_where_it_is_read_before_the_next_claim() -> (
    None
):
    """The claim that ended it is in the log already, in another partition, and the planner reads it seconds later."""
    async with in_process_platform(SMALL, services=("snapshot-1", "planner-1")) as platform:
        await join_members(platform)
        log = LocalBus(platform.broker, FLEET_ID, "propagators")
        (first,) = await log.publish(TurnTaken("propagator", "own-1", "propagator-2"))
        await platform.planner().apply(ApplyRequest((deployment("web", NAMESPACE, 2),)))
        bus, claims = platform.running["planner-1"].bus, (first.topic, first.partition)
        bus.lag_seconds = lambda topic, partition: 10 if (topic, partition) == claims else 0
        (second,) = await log.publish(TurnTaken("propagator", "own-1", "propagator-1"))
        (word,) = await log.publish(orphaned_status(platform.planner(), first.offset))
        assert (word.topic, word.partition) != claims
        for _ in range(20):
            await asyncio.sleep(1)
            assert clusters_with_parts(platform.planner()) == {"own-1"}
        await log.publish(orphaned_status(platform.planner(), second.offset))
        await wait_until(lambda: not clusters_with_parts(platform.planner()), "what the present owner says counts")


def clusters_with_parts(planner: Planner) -> set[str]:
    return set(planner.state.workloads[NAMESPACE, "web"].parts)


def orphaned_status(planner: Planner, epoch: int) -> WorkloadObserved:
    version = planner.state.workloads[NAMESPACE, "web"].parts["own-1"].version
    return WorkloadObserved(
        NAMESPACE, "web", "own-1", epoch, 1, version, STATE_ORPHANED, "", 2, 2, 2, 2, 2, "Deployment"
    )
