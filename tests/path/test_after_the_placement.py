"""What happens after a placement, in one process and virtual time: late nodes, refused pods, bursts, lost instances."""

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace

import pytest

from planner.api.watches import position_token
from planner.settings import PlannerSettings
from propagator.core.live import ANNOTATION_PLACEMENT
from sim.settings import NodeGroupSpec, NodeSpec, Settings
from spillway.addresses import DECISIONS, WORKLOADS
from spillway.api import (
    ApplyRequest,
    BatchItem,
    DeleteRequest,
    GetRequest,
    PlacementReply,
    PlanBatchRequest,
    RequestError,
    ScaleRequest,
    WatchRequest,
)
from spillway.bus import has_reached_ends
from spillway.clusters.api import DEPLOYMENTS
from spillway.events import DecisionRecorded
from spillway.kubernetes.objects import NODES, RESOURCE_QUOTAS
from spillway.model import NodeGroup
from spillway_local import member_nodes
from spillway_local.fleet_plan import GIB, MemberPlan, deployment
from spillway_local.in_process import InProcess, in_process_platform

from .platform_steps import NAMESPACE, are_all_ready, bound_pods_by_cluster, join_members, unbound_pod_count, wait_until

pytestmark = pytest.mark.looptime

SMALL = (
    MemberPlan("own-1", "own", (member_nodes.MemberNodes(4, "n", 4_000, 16 * GIB),), room=32),
    MemberPlan("own-2", "own", (member_nodes.MemberNodes(4, "n", 4_000, 16 * GIB),), room=32),
    MemberPlan("cloud-1", "cloud", (member_nodes.MemberNodes(4, "n", 8_000, 32 * GIB),), room=64),
)


def apply_request(name: str, replicas: int, cpu: str = "500m", policy: str = "") -> ApplyRequest:
    return ApplyRequest((deployment(name, NAMESPACE, replicas, cpu=cpu), *((policy,) if policy else ())))


REFUSING_POLICY = '{"apiVersion": "spillway.io/v1", "kind": "PlacementPolicy", "spec": {"unplaceable": "Refuse"}}'
ONE_NODE = (MemberPlan("own-1", "own", (member_nodes.MemberNodes(1, "n", 4_000, 16 * GIB),), room=8),)


async def replace_placement_mark(platform: InProcess, cluster: str, version: str) -> str:
    """Replaces our annotation on web, as another person may do. Returns the former one."""
    api = platform.member_api(cluster)
    metadata = (await api.get(DEPLOYMENTS, NAMESPACE, "web"))["metadata"]
    marks = {"metadata": {"annotations": {ANNOTATION_PLACEMENT: version}}}
    await api.patch(DEPLOYMENTS, NAMESPACE, "web", marks, resource_version=metadata["resourceVersion"])
    return str(metadata["annotations"][ANNOTATION_PLACEMENT])


async def cordon_node(platform: InProcess, is_cordoned: bool) -> None:
    """The node of ONE_NODE."""
    api = platform.member_api("own-1")
    version = (await api.get(NODES, "", "n-0"))["metadata"]["resourceVersion"]
    await api.patch(NODES, "", "n-0", {"spec": {"unschedulable": is_cordoned}}, resource_version=version)


async def test_replicas_wait_for_nodes_that_arrive_late() -> None:
    """Past own and cloud nodes the cloud's node group is used: its nodes come after the lead time, all replicas run."""
    group = NodeGroup(
        "burst",
        (("pool", "burst"),),
        (("cpu", 8000), ("memory", 32 * GIB), ("pods", 110)),
        (("pool", "burst"),),
        (),
        3,
        40,
        1.0,
    )
    arriving = NodeGroupSpec(NodeSpec("burst-", 1, 8_000, 32 * GIB, labels={"pool": "burst"}), 3, 40)
    settings = {"cloud-1": Settings(node_groups=(arriving,))}
    async with in_process_platform(SMALL, sim_settings=lambda name: settings.get(name, Settings())) as platform:
        await join_members(platform, {"cloud-1": (group,)})
        reply = await platform.planner().apply(apply_request("web", 128 + 20))
        parts = {part.cluster: (part.replicas, part.replicas_new) for part in reply.parts}
        assert parts == {"own-1": (32, 0), "own-2": (32, 0), "cloud-1": (84, 20)}
        assert reply.unplaced == 0
        needed = platform.planner().state.needed[NAMESPACE, "web"]["cloud-1"]
        assert needed.replicas_new == 20

        async def are_all_running() -> bool:
            return sum((await bound_pods_by_cluster(platform)).values()) == 148

        await wait_until(are_all_running, "the late nodes took the rest", 120)
        await platform.planner().scale(ScaleRequest(NAMESPACE, "web", 10))
        await wait_until(lambda: (NAMESPACE, "web") in platform.planner().state.workloads, "it is known")
        assert platform.planner().state.needed[NAMESPACE, "web"]["cloud-1"].replicas_new == 0


def request_with_priority(name: str, replicas: int, cpu: str, priority: int) -> ApplyRequest:
    policy = {"apiVersion": "spillway.io/v1", "kind": "PlacementPolicy", "spec": {"priority": priority}}
    return apply_request(name, replicas, cpu, json.dumps(policy))


async def test_a_request_of_a_higher_priority_goes_before_those_that_were_asked_earlier() -> None:
    """Ten of one replica wait, two a step, where four fit; who scales one of them goes by its priority, too."""
    narrow = PlannerSettings(requests_in_group_max=2)
    async with in_process_platform(ONE_NODE, services=("snapshot-1", "planner-1"), planner_settings=narrow) as platform:
        await join_members(platform)
        planner = platform.planner()
        await planner.apply(request_with_priority("scaled", 0, "1", 7))
        low = [planner.apply(request_with_priority(f"low-{number}", 1, "1", 0)) for number in range(10)]
        high = planner.apply(request_with_priority("high", 2, "1", 5))
        replies = await asyncio.gather(*low, high, planner.scale(ScaleRequest(NAMESPACE, "scaled", 1)))
        assert [reply.placed for reply in replies] == [1] + 9 * [0] + [2, 1]


async def test_who_waits_with_a_higher_priority_gets_new_room_before_a_request_does() -> None:
    """Also where nobody has looked after who waits since the room came up."""
    rare = PlannerSettings(tick_seconds=30.0)

    async with in_process_platform(ONE_NODE, services=("snapshot-1", "planner-1"), planner_settings=rare) as platform:
        await join_members(platform)
        planner, newcomer = platform.planner(), request_with_priority("newcomer", 2, "2", -5)

        async def is_open(replicas: int) -> bool:
            return (await planner.plan(newcomer)).placed == replicas

        await cordon_node(platform, True)
        await wait_until(lambda: is_open(0), "the planner knows that the node is cordoned")
        assert (await planner.apply(request_with_priority("high", 2, "2", 10))).unplaced == 2
        await asyncio.sleep(45)
        await cordon_node(platform, False)
        await wait_until(lambda: is_open(2), "the planner knows that the node is free")
        assert (await planner.apply(newcomer)).unplaced == 2
        high = (await planner.get(GetRequest(NAMESPACE, "high"))).placement
        assert (high.placed, high.unplaced) == (2, 0)


async def test_pods_that_a_quota_refuses_end_up_elsewhere() -> None:
    """own-1 creates 5 pods of 20 and refuses the rest: they are taken back and run in own-2."""
    async with in_process_platform(SMALL) as platform:
        await join_members(platform)
        await platform.planner().apply(apply_request("first", 1))  # Makes the namespace exist.
        quota = {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "few", "namespace": NAMESPACE},
            "spec": {"hard": {"pods": "5"}},
        }
        await wait_until(lambda: _create_quota(platform, quota), "the quota is there")
        reply = await platform.planner().apply(apply_request("web", 40))
        assert reply.unplaced == 0

        async def are_all_running() -> bool:
            return sum((await bound_pods_by_cluster(platform, "web")).values()) == 40

        await wait_until(are_all_running, "all replicas run", 120)
        assert (await bound_pods_by_cluster(platform, "web"))["own-1"] <= 5
        assert await unbound_pod_count(platform) == 0


async def _create_quota(platform: object, quota: dict[str, object]) -> bool:
    api = platform.member_api("own-1")  # type: ignore[attr-defined]
    if await api.get(RESOURCE_QUOTAS, NAMESPACE, "few") is None:
        try:
            await api.create(RESOURCE_QUOTAS, quota)
        except Exception:
            return False
    return True


async def test_two_bursts_that_exceed_the_room_leave_nothing_pending() -> None:
    """400 Apply calls at once, more than fits: what is placed runs, what is not is named, no pod pends."""
    chance = random.Random(20261121)
    async with in_process_platform(SMALL) as platform:
        await join_members(platform)
        planner = platform.planner()
        requests = [
            apply_request(f"job-{n}", chance.randint(1, 4), cpu=f"{chance.choice((100, 250, 500, 1000, 1500))}m")
            for n in range(400)
        ]

        async def apply_at_once(part: list[ApplyRequest]) -> list[object]:
            return await asyncio.gather(*(planner.apply(entry) for entry in part), return_exceptions=True)

        answers = [*await apply_at_once(requests[:200]), *await apply_at_once(requests[200:])]
        unexpected = [
            answer for answer in answers if isinstance(answer, BaseException) and not isinstance(answer, RequestError)
        ]
        assert unexpected == []

        async def is_settled() -> bool:
            placed = sum(part.replicas for entry in planner.state.workloads.values() for part in entry.parts.values())
            return (
                await unbound_pod_count(platform) == 0
                and sum((await bound_pods_by_cluster(platform)).values()) == placed
            )

        await asyncio.sleep(40)  # Virtual: past every wait for binds and every take-back.
        await wait_until(is_settled, "what is placed runs and nothing pends", 120)
        waiting = [entry for entry in planner.state.workloads.values() if entry.unplaced]
        assert waiting
        assert all(entry.placement and entry.placement.waiting_for for entry in waiting)
        free = {name: view.nodes.allocatable_and_requested() for name, view in planner.state.clusters.items()}
        assert all(used["cpu"] <= there["cpu"] for there, used in free.values())


async def test_a_stopped_collectors_clusters_are_taken_over() -> None:
    """With two collectors, one stopped and later the other killed, capacity stays fresh and a scale is carried out."""
    services = ("snapshot-1", "snapshot-2", "planner-1", "propagator-1")
    async with in_process_platform(
        SMALL, services, planner_settings=PlannerSettings(capacity_age_max_seconds=8)
    ) as platform:
        await join_members(platform)
        await platform.planner().apply(apply_request("web", 10))
        await platform.stop_instance("snapshot-1")
        await asyncio.sleep(20)
        assert await are_all_ready(platform)
        platform.start_instance("snapshot-3")
        await asyncio.sleep(20)
        await platform.kill_instance("snapshot-2")
        await asyncio.sleep(20)
        assert await are_all_ready(platform)
        await platform.planner().scale(ScaleRequest(NAMESPACE, "web", 70))

        async def are_all_running() -> bool:
            return sum((await bound_pods_by_cluster(platform, "web")).values()) == 70

        await wait_until(are_all_running, "70 replicas run")


async def test_a_standby_goes_on_where_the_killed_planner_was() -> None:
    """The active planner is killed: the standby answers, with the same key the same answer, and places on."""
    services = ("snapshot-1", "planner-1", "planner-2", "propagator-1")
    async with in_process_platform(SMALL, services) as platform:
        await join_members(platform)
        first = await platform.planner().apply(ApplyRequest(apply_request("web", 20).manifests, "once"))
        active = next(name for name, entry in platform.running.items() if entry.service is platform.planner())
        await platform.kill_instance(active)
        await wait_until(lambda: platform.planner().is_active, "the standby is active")
        again = await platform.planner().apply(ApplyRequest(apply_request("web", 20).manifests, "once"))
        assert again == replace(first, inputs=())
        reply = await platform.planner().scale(ScaleRequest(NAMESPACE, "web", 64))
        assert reply.unplaced == 0

        async def are_all_running() -> bool:
            return sum((await bound_pods_by_cluster(platform, "web")).values()) == 64

        await wait_until(are_all_running, "64 replicas run")


async def test_deleting_is_a_state_until_every_cluster_says_absent() -> None:
    """Delete lists the clusters that still hold the object; a silent one keeps the workload in Deleting."""
    async with in_process_platform(SMALL) as platform:
        await join_members(platform)
        planner = platform.planner()
        await planner.apply(apply_request("web", 40))
        await wait_until(lambda: len(planner.state.workloads[NAMESPACE, "web"].statuses) == 2, "both clusters show it")
        await platform.silence_member("own-2")
        reply = await planner.delete(DeleteRequest(NAMESPACE, "web"))
        assert {part.cluster for part in reply.parts} == {"own-1", "own-2"}
        await wait_until(lambda: set(planner.state.workloads[NAMESPACE, "web"].parts) == {"own-2"}, "own-1 is done")
        with pytest.raises(RequestError, match="Deleting: still in own-2"):
            await planner.apply(apply_request("web", 1))
        await platform.wake_member("own-2")
        await wait_until(lambda: not planner.state.workloads[NAMESPACE, "web"].parts, "own-2 is done", 120)
        with pytest.raises(RequestError, match="not declared"):
            await planner.get(GetRequest(NAMESPACE, "web"))
        assert (await planner.apply(apply_request("web", 2))).placed == 2


async def test_a_watch_resumes_from_its_position() -> None:
    """What changed while nobody watched is told on resuming; what did not change is not."""
    async with in_process_platform(SMALL) as platform:
        await join_members(platform)
        planner = platform.planner()
        await planner.apply(apply_request("quiet", 1))
        await planner.apply(apply_request("web", 2))
        await asyncio.sleep(5)
        watch = planner.watch(WatchRequest())
        seen = [await anext(watch), await anext(watch)]
        await watch.aclose()  # type: ignore[attr-defined]
        await planner.scale(ScaleRequest(NAMESPACE, "web", 5))
        await asyncio.sleep(5)
        resumed = planner.watch(WatchRequest(position=seen[-1].position))
        first = await anext(resumed)
        await resumed.aclose()  # type: ignore[attr-defined]
        assert {reply.name for reply in seen} == {"quiet", "web"}
        assert first.name == "web"
        assert first.workload is not None
        assert first.workload.placement.replicas == 5


async def test_a_watch_from_a_position_of_another_log_is_refused_and_ends_nothing_else() -> None:
    async with in_process_platform(SMALL) as platform:
        await join_members(platform)
        planner = platform.planner()
        for elsewhere in ({(WORKLOADS.name, 0): 10**6}, {(WORKLOADS.name, 10**6): 0}):
            with pytest.raises(RequestError, match="expected a position of this log that Watch returned"):
                await anext(planner.watch(WatchRequest(position=position_token(elsewhere))))
        assert (await planner.apply(apply_request("web", 2))).placed == 2


async def test_a_watch_of_one_namespace_shows_its_workloads_alone() -> None:
    async with in_process_platform(SMALL) as platform:
        await join_members(platform)
        planner = platform.planner()
        await planner.apply(apply_request("web", 1))
        await planner.apply(ApplyRequest((deployment("api", "other", 1),)))
        watch = planner.watch(WatchRequest(NAMESPACE))
        first = await anext(watch)
        await planner.scale(ScaleRequest("other", "api", 2))
        await planner.scale(ScaleRequest(NAMESPACE, "web", 2))
        then = await anext(watch)
        await watch.aclose()  # type: ignore[attr-defined]
        assert {(reply.namespace, reply.name) for reply in (first, then)} == {(NAMESPACE, "web")}


async def test_a_long_history_comes_in_pages() -> None:
    settings = PlannerSettings(history_page_bytes=1)
    async with in_process_platform(SMALL, planner_settings=settings) as platform:
        await join_members(platform)
        planner = platform.planner()
        for replicas in (3, 5, 7):
            await planner.apply(apply_request("web", replicas))
        await asyncio.sleep(3)
        reply = await planner.get(GetRequest(NAMESPACE, "web", 10))
        found = [[one.replicas for one in reply.history]]
        while reply.history_next:
            reply = await planner.get(GetRequest(NAMESPACE, "web", 10, reply.history_next))
            found.append([one.replicas for one in reply.history])
        assert found == [[7], [5], [3]]


async def test_a_flushed_store_is_filled_again() -> None:
    """History survives a flush of the store: it comes back from the log."""
    async with in_process_platform(SMALL) as platform:
        await join_members(platform)
        planner = platform.planner()
        for replicas in (3, 5, 7):
            await planner.apply(apply_request("web", replicas))
        history = GetRequest(NAMESPACE, "web", history=10)
        await asyncio.sleep(3)
        before = (await planner.get(history)).history
        assert [entry.replicas for entry in before] == [7, 5, 3]
        platform.store.flush_all()
        assert (await planner.get(history)).history == ()
        await asyncio.sleep(3)
        assert (await planner.get(history)).history == before


@pytest.mark.parametrize("waiting_max", [1, 5000])
async def test_histories_are_as_the_log_whatever_the_store_misses(waiting_max: int) -> None:
    """Decisions go on while it is flushed, away and slower than they come, and while the turn changes."""
    settings = PlannerSettings(history_waiting_max=waiting_max)
    services = ("snapshot-1", "planner-1", "planner-2", "propagator-1")
    async with in_process_platform(SMALL, services, planner_settings=settings) as platform:
        await join_members(platform)
        store, done = platform.store, asyncio.Event()

        async def scale_until_done(name: str) -> None:
            for replicas in range(1, 1000):
                if done.is_set():
                    return
                with suppress(RequestError):
                    await platform.planner().apply(apply_request(name, 1 + replicas % 3, cpu="10m"))
                await asyncio.sleep(0.05)

        asking = [asyncio.create_task(scale_until_done(f"web-{number}")) for number in range(3)]
        for pause, store.seconds in ((1.2, 0), (0.6, 0.1), (1.2, 0.02), (1.2, 0)):
            await asyncio.sleep(pause)
            store.flush_all()
        store.available = False
        await asyncio.sleep(2)
        store.available = True
        await asyncio.sleep(1.3)
        active = next(name for name, entry in platform.running.items() if entry.service is platform.planner())
        await platform.stop_instance(active)
        await wait_until(lambda: platform.planner().is_active, "the standby is active")
        await asyncio.sleep(1.1)
        done.set()
        await asyncio.gather(*asking)
        written: dict[str, list[DecisionRecorded]] = {}
        async with platform.running["snapshot-1"].bus.follow_topics((DECISIONS,)) as feed:
            ends = await feed.end_offsets()
            async for batch in feed:
                for record in batch.records:
                    assert isinstance(record.event, DecisionRecorded)
                    written.setdefault(record.event.name, []).insert(0, record.event)
                if has_reached_ends(batch.positions, ends):
                    break
        assert min(map(len, written.values())) > 40
        for name, decisions in written.items():
            asked = GetRequest(NAMESPACE, name, history=200)

            async def is_whole(asked: GetRequest = asked, last: list[DecisionRecorded] = decisions[:200]) -> bool:
                with suppress(RequestError):
                    return list((await platform.planner().get(asked)).history) == last
                return False

            await wait_until(is_whole, f"{name}: its history is the log's")


@pytest.mark.parametrize("flushed", [False, True])
async def test_the_history_of_what_is_gone_ends_and_that_of_what_is_there_does_not(flushed: bool) -> None:
    """Also where all was written again meanwhile; who is declared again has its history for good."""
    soon = PlannerSettings(forget_after_seconds=5, history_gone_seconds=60)
    async with in_process_platform(SMALL, planner_settings=soon) as platform:
        await join_members(platform)
        planner = platform.planner()
        for name in ("stays", "goes", "again"):
            await planner.apply(apply_request(name, 1))
        for name in ("goes", "again"):
            await planner.delete(DeleteRequest(NAMESPACE, name))
        await wait_until(lambda: len(planner.state.workloads) == 1, "they are forgotten", 60)
        if flushed:
            platform.store.flush_all()
        await asyncio.sleep(5)

        async def causes_in_history(name: str) -> list[str]:
            with suppress(RequestError):
                return [entry.cause for entry in (await planner.get(GetRequest(NAMESPACE, name, history=9))).history]
            return []

        assert (await causes_in_history("goes"))[-1:] == (await causes_in_history("again"))[-1:] == ["Apply"]
        await planner.apply(apply_request("again", 1))
        await asyncio.sleep(65)
        assert await causes_in_history("goes") == []
        assert [(await causes_in_history(name))[-1:] for name in ("stays", "again")] == [["Apply"], ["Apply"]]
        assert len(await causes_in_history("again")) > 2


async def test_a_planner_under_traffic_ends_between_two_writes() -> None:
    """SIGTERM while requests come one after the other: the active planner ends, what it answered is in the log."""
    services = ("snapshot-1", "planner-1", "planner-2", "propagator-1")
    async with in_process_platform(SMALL, services) as platform:
        await join_members(platform)
        planner = platform.planner()
        active = next(name for name, entry in platform.running.items() if entry.service is planner)
        answered: list[str] = []

        async def apply_many() -> None:
            for n in range(1000):
                try:
                    await planner.apply(apply_request(f"web-{n}", 1, cpu="10m"))
                except RequestError:
                    return
                answered.append(f"web-{n}")
                await asyncio.sleep(0.002)  # Else all of them are asked before time moves on.

        asking = asyncio.create_task(apply_many())
        await wait_until(lambda: len(answered) > 20, "requests are answered")
        async with asyncio.timeout(5):
            await platform.stop_instance(active)
        await asking
        await wait_until(lambda: platform.planner().is_active, "the standby is active")
        known = {name for _, name in platform.planner().state.workloads}
        assert set(answered) <= known


async def test_refuse_does_not_refuse_what_a_moment_later_fits() -> None:
    """Promises that are not bound yet make room uncertain: a Refuse request waits for the binds, then is placed."""
    async with in_process_platform(SMALL) as platform:
        await join_members(platform)
        planner = platform.planner()
        first, second = await asyncio.gather(
            planner.apply(apply_request("small", 20, cpu="100m")),
            planner.apply(apply_request("large", 20, cpu="2", policy=REFUSING_POLICY)),
        )
        assert (first.unplaced, second.unplaced) == (0, 0)
        with pytest.raises(RequestError, match="the policy says Refuse"):
            await planner.apply(apply_request("huge", 500, cpu="2", policy=REFUSING_POLICY))


def confined_request(
    namespace: str, name: str, replicas: int, cpu: str, cluster: str, refuse: bool = False
) -> ApplyRequest:
    """A workload that may run in one cluster alone."""
    spec = {"tiers": [{"name": "one", "clusters": {"names": [cluster]}}]} | (
        {"unplaceable": "Refuse"} if refuse else {}
    )
    policy = {"apiVersion": "spillway.io/v1", "kind": "PlacementPolicy", "spec": spec}
    return ApplyRequest((deployment(name, namespace, replicas, cpu=cpu), json.dumps(policy)))


async def test_requests_that_wait_for_binds_in_one_cluster_keep_no_waiting_workload_from_room_in_another() -> None:
    """One tenant asks again and again for what only possibly fits; its own pod stays unbound without a scheduler."""
    two_clusters = (
        MemberPlan("own-1", "own", (member_nodes.MemberNodes(2, "n", 4_000, 16 * GIB),), room=8),
        MemberPlan("own-2", "own", (member_nodes.MemberNodes(1, "m", 4_000, 16 * GIB),), room=8),
    )
    async with in_process_platform(two_clusters, ("snapshot-1", "planner-1")) as platform:
        await join_members(platform)
        planner = platform.planner()
        await planner.apply(confined_request("shop", "big", 1, "3", "own-1"))
        assert (await planner.apply(confined_request("bank", "pay", 2, "3", "own-2"))).unplaced == 1

        async def ask_again_and_again(name: str) -> None:
            while True:
                with suppress(RequestError):
                    await planner.apply(confined_request("shop", name, 2, "2", "own-1", refuse=True))

        async with asyncio.TaskGroup() as group:
            asking = [group.create_task(ask_again_and_again(f"asked-{number}")) for number in range(4)]
            await wait_until(lambda: planner.standby.requests.held_up, "a request waits for binds")
            platform.members["own-2"].add_nodes([NodeSpec(name_prefix="late-", count=1, cpu_millis=4_000)])
            bank = ("bank", "pay")
            await wait_until(lambda: not planner.state.workloads[bank].unplaced, "bank has its room", seconds=1)
            for one in asking:
                one.cancel()


async def test_refuse_is_not_said_by_what_was_heard_before_the_request_came() -> None:
    """Room that came up before, and of which no record tells yet, is used; without any the answer comes soon."""
    async with in_process_platform(ONE_NODE) as platform:
        await join_members(platform)
        planner, now = platform.planner(), asyncio.get_running_loop().time
        await planner.apply(apply_request("web", 1, cpu="1"))

        async def is_open(replicas: int) -> bool:
            return (await planner.plan(apply_request("other", 1, cpu="1"))).placed == replicas

        await cordon_node(platform, True)
        await wait_until(lambda: is_open(0), "the planner knows that the node is cordoned")
        asked_at = now()
        with pytest.raises(RequestError, match="the policy says Refuse"):
            await planner.apply(apply_request("web", 2, cpu="1", policy=REFUSING_POLICY))
        assert 0 < now() - asked_at < 2 * PlannerSettings().refuse_after_seconds
        await cordon_node(platform, False)
        assert await is_open(0)
        assert (await planner.apply(apply_request("web", 2, cpu="1", policy=REFUSING_POLICY))).placed == 2


TWO_NODES = (MemberPlan("own-1", "own", (member_nodes.MemberNodes(2, "n", 4_000, 16 * GIB),), room=8),)
NOT_BOUND = PlannerSettings(request_seconds=5.0, bind_quiet_seconds=60.0, bind_wait_max_seconds=12.0)
"""Who is promised a node is bound by nobody, for want of a propagator, and is waited for."""


def request_with_key(name: str, key: str = "once") -> ApplyRequest:
    """Two of 2 cores: beside one of 3 that may go to either of TWO_NODES, they fit for sure once that is bound."""
    return replace(apply_request(name, 2, cpu="2", policy=REFUSING_POLICY), idempotency_key=key)


async def test_who_may_fit_is_not_refused_but_asks_again_until_binds_decide() -> None:
    async with in_process_platform(
        TWO_NODES, services=("snapshot-1", "planner-1"), planner_settings=NOT_BOUND
    ) as platform:
        await join_members(platform)
        planner = platform.planner()
        assert (await planner.apply(apply_request("big", 1, cpu="3"))).placed == 1
        for _ in range(2):
            with pytest.raises(RequestError, match="not refused yet: retry with the same idempotency key") as told:
                await planner.apply(request_with_key("web"))
            assert told.value.code == "UNAVAILABLE"
        platform.start_instance("propagator-1")
        assert (await planner.apply(request_with_key("web"))).placed == 2


async def test_who_asks_again_goes_on_with_its_wait_for_binds_which_ends() -> None:
    """In three calls of 5 s at the most, 12 s after the first; what is asked under another key waits for itself."""
    async with in_process_platform(
        TWO_NODES, services=("snapshot-1", "planner-1"), planner_settings=NOT_BOUND
    ) as platform:
        await join_members(platform)
        planner, now = platform.planner(), asyncio.get_running_loop().time
        await planner.apply(apply_request("big", 1, cpu="3"))
        asked_at, found = now(), list[str]()
        while "FAILED_PRECONDITION" not in found:
            with pytest.raises(RequestError, match="the policy says Refuse") as told:
                await planner.apply(request_with_key("web"))
            found.append(told.value.code)
        assert found == ["UNAVAILABLE", "UNAVAILABLE", "FAILED_PRECONDITION"]
        assert 12 <= now() - asked_at < 13
        for request_of_another in (request_with_key("web", "twice"), request_with_key("other")):
            with pytest.raises(RequestError, match="not refused yet"):
                await planner.apply(request_of_another)


async def call_until_answered(call: Callable[[], Awaitable[PlacementReply]]) -> PlacementReply:
    """As who asks again with its key does, at once."""
    while True:
        try:
            return await call()
        except RequestError as error:
            if error.code != "UNAVAILABLE":
                raise


async def test_what_was_asked_behind_one_that_is_not_refused_yet_stays_behind_it_when_both_are_asked_again() -> None:
    """A batch's Apply that waits for binds and its Scale of the same workload; then two calls, the later one sooner."""
    async with in_process_platform(
        TWO_NODES, services=("snapshot-1", "planner-1"), planner_settings=NOT_BOUND
    ) as platform:
        await join_members(platform)
        planner = platform.planner()
        await planner.apply(apply_request("web", 0, cpu="2"))
        await planner.apply(apply_request("big", 1, cpu="3"))
        scale = ScaleRequest(NAMESPACE, "web", 1, "later")
        batch = PlanBatchRequest((BatchItem(apply=request_with_key("web")), BatchItem(scale=scale)))
        with pytest.raises(RequestError, match="not refused yet"):
            await planner.plan_batch(batch)
        assert planner.state.workloads[NAMESPACE, "web"].declared.replicas == 0
        with pytest.raises(RequestError, match="asked before it and is not decided") as told:
            await planner.scale(scale)
        assert told.value.code == "UNAVAILABLE"
        later = asyncio.create_task(call_until_answered(lambda: planner.scale(scale)))
        first = asyncio.create_task(call_until_answered(lambda: planner.apply(request_with_key("web"))))
        platform.start_instance("propagator-1")
        assert ((await first).placed, (await later).placed) == (2, 1)
        assert planner.state.workloads[NAMESPACE, "web"].declared.replicas == 1


async def test_who_got_no_answer_in_time_keeps_its_turn() -> None:
    """A write takes longer than a call may. An Apply waits behind it and runs out of time, a Scale that came later does
    not: it was decided first, and the Apply undid it."""
    async with in_process_platform(TWO_NODES, services=("snapshot-1", "planner-1")) as platform:
        await join_members(platform)
        planner = platform.planner()
        await planner.apply(apply_request("web", 1, cpu="1"))
        seconds = planner._settings.request_seconds
        platform.broker.next_write_late_seconds = seconds + 2
        slow = asyncio.create_task(call_until_answered(lambda: planner.apply(apply_request("big", 1, cpu="1"))))
        await asyncio.sleep(1)
        first = asyncio.create_task(call_until_answered(lambda: planner.apply(request_with_key("web"))))
        await asyncio.sleep(seconds / 2)
        scale = ScaleRequest(NAMESPACE, "web", 3, "later")
        later = asyncio.create_task(call_until_answered(lambda: planner.scale(scale)))
        assert ((await first).replicas, (await later).replicas) == (2, 3)
        assert planner.state.workloads[NAMESPACE, "web"].declared.replicas == 3
        await slow


async def test_nobody_is_refused_for_a_promise_that_is_not_written() -> None:
    """One node and two who would fill it, decided in one step. The first is not in the log, so the second fits."""
    at_once = PlannerSettings(refuse_after_seconds=0)
    async with in_process_platform(
        ONE_NODE, services=("snapshot-1", "planner-1"), planner_settings=at_once
    ) as platform:
        await join_members(platform)
        planner = platform.planner()
        platform.broker.fail_next_write(written=False)
        asked = [planner.apply(apply_request(name, 4, cpu="1", policy=REFUSING_POLICY)) for name in ("first", "second")]
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert [one.code for one in found if isinstance(one, RequestError)] == ["UNAVAILABLE", "UNAVAILABLE"]
        await wait_until(lambda: planner.is_active, "the log is read again")
        assert (await planner.apply(apply_request("second", 4, cpu="1", policy=REFUSING_POLICY))).placed == 4
        with pytest.raises(RequestError, match="the policy says Refuse"):
            await planner.apply(apply_request("first", 4, cpu="1", policy=REFUSING_POLICY))


@pytest.mark.parametrize("known", [True, False], ids=["of the decision", "of the question about its template"])
@pytest.mark.parametrize("written", [True, False], ids=["it was written", "it was not written"])
async def test_a_write_of_unknown_outcome_is_retried_safely(written: bool, known: bool) -> None:
    """The caller is told to retry with its key; whichever outcome it was, the replicas are placed once."""
    async with in_process_platform(SMALL) as platform:
        await join_members(platform)
        planner = platform.planner()
        asked = ApplyRequest(apply_request("web", 20).manifests, "once")
        if known:
            await planner.apply(apply_request("web", 20))
            await planner.delete(DeleteRequest(NAMESPACE, "web"))
            await wait_until(lambda: not planner.state.workloads[NAMESPACE, "web"].parts, "it is gone")
        platform.broker.fail_next_write(written=written)
        with pytest.raises(RequestError, match="retry with the same idempotency key") as failed:
            await planner.apply(asked)
        assert failed.value.code == "UNAVAILABLE"
        answers: list[PlacementReply] = []

        async def is_retried() -> bool:
            with suppress(RequestError):
                answers.append(await planner.apply(asked))
            return bool(answers)

        await wait_until(is_retried, "the retry is answered")
        reply = answers[0]
        assert (reply.placed, reply.generation) == (20, 3 if known else 1)  # An apply and a delete before.
        assert await planner.apply(asked) == replace(reply, inputs=())

        async def are_all_running() -> bool:
            return sum((await bound_pods_by_cluster(platform, "web")).values()) == 20

        await wait_until(are_all_running, "20 replicas run")


async def test_a_part_that_its_propagator_holds_says_why() -> None:
    """Somebody wrote a higher version onto the object: it is left as it is, and the answer about it says so."""
    async with in_process_platform(SMALL) as platform:
        await join_members(platform)
        placed = await platform.planner().apply(apply_request("web", 8))

        async def is_running(count: int) -> bool:
            return sum((await bound_pods_by_cluster(platform, "web")).values()) == count

        await wait_until(lambda: is_running(8), "it runs")
        where = placed.parts[0].cluster
        before = await replace_placement_mark(platform, where, "99.1")
        await asyncio.sleep(5)
        await platform.planner().scale(ScaleRequest(NAMESPACE, "web", 20))

        async def is_silent() -> bool:
            return not await is_said("on hold: ")

        async def is_said(beginning: str) -> bool:
            reply = await platform.planner().get(GetRequest(NAMESPACE, "web"))
            return next(status.message for status in reply.statuses if status.cluster == where).startswith(beginning)

        await wait_until(lambda: is_said("on hold: the object is at 99.1, above "), "it is said")
        assert not await is_running(20), "what is on hold is left as it is"
        await replace_placement_mark(platform, where, before)
        await wait_until(lambda: is_running(20), "it is carried out")
        await wait_until(is_silent, "nothing is said any more")


async def test_who_waits_for_binds_to_be_answered_goes_before_who_waits_for_room() -> None:
    """Each bind makes one more place certain, and two are asked for: the other one would take them one by one."""
    large = member_nodes.MemberNodes(1, "large", 18_000, 64 * GIB)
    small = member_nodes.MemberNodes(2, "small", 4_000, 16 * GIB)
    slow = Settings(binds_per_second=2)
    async with in_process_platform(
        (MemberPlan("own-1", "own", (large, small), room=26),), sim_settings=lambda _: slow
    ) as platform:
        await join_members(platform)
        planner = platform.planner()
        await planner.apply(apply_request("first", 2, cpu="1"))
        waits = await planner.apply(apply_request("waits", 8, cpu="4"))
        assert (waits.placed, waits.unplaced) == (4, 4)
        asked = await planner.apply(apply_request("asked", 2, cpu="4", policy=REFUSING_POLICY))
        assert (asked.placed, asked.unplaced) == (2, 0)
        assert (await planner.get(GetRequest(NAMESPACE, "waits"))).placement.unplaced == 4
