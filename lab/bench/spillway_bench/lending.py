"""Measures many lent nodes: the cost for the one bridge, and the times until pods run and until nodes are back.

Kafka is real. One collector, one descheduler and one bridge run as processes. The pool and its owners are simulated
clusters over HTTP. This process watches their APIs and takes all times from these watches. A lost pod, or a node
recalled without need, fails the measurement.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from spillway.addresses import LENDING, RECALLS
from spillway.api import JoinClusterRequest
from spillway.api_lending import DeclareLendingRequest
from spillway.bus import Feed
from spillway.clusters.credentials import load_endpoint
from spillway.events_lending import CAUSE_NEED, LendingRule, NodeRecalled, NodeReturned
from spillway.rpc.client import LendingClient, PlannerClient
from spillway_local.stack import Stack, StackOptions

from .big_member import NODE_PREFIX
from .figures import Measured, Unmeasured, percentile, percentile_in_ms
from .lent_fleet import (
    BARE_GRACE_SECONDS,
    GRACE_SECONDS,
    IGNORES_GRACE,
    NEED_CPU,
    NEVER_STARTS,
    POOL,
    POOL_POD,
    BarePods,
    Member,
    bare_lease_cpu_percent,
    open_member,
    owner_name,
    time_writes_until_seen,
    wait_until_all_seen,
)
from .lent_sights import NodeKey, Sights, watch_clusters
from .machine import memory_of
from .rig import Rig, Say, Sizes

FIGURES = (
    "lent_nodes_per_bridge",
    "lent_rest_cpu_percent",
    "lent_bridge_memory_mb",
    "bound_to_created_p50_ms",
    "bound_to_created_p99_ms",
    "status_to_mirrored_p50_ms",
    "status_to_mirrored_p99_ms",
    "return_of_1_over_grace_p50_s",
    "return_of_1_over_grace_p99_s",
    "return_of_100_over_grace_p50_s",
    "return_of_100_over_grace_p99_s",
    "return_over_grace_p50_s",
    "return_over_grace_p99_s",
)
SECONDS_MAX = 2_700.0
JOIN_SECONDS, LEND_SECONDS, FILL_SECONDS, TIMED_SECONDS, SETTLE_SECONDS = 60.0, 300.0, 900.0, 300.0, 900.0
RETURN_SECONDS = 600.0
"""The longest wait for returns, in seconds beyond the grace period."""
PODS_IN_DEPLOYMENT, PODS_IN_TIMED_DEPLOYMENT = 200, 10
UNDER_WAY_MAX = 1_000
"""The most pool pods that are requested and do not run yet, while the pool is filled."""
LOOK_SECONDS, COUNTED_SECONDS = 5.0, 15.0
LEASE_SECONDS, LEASE_LONGEST_SECONDS = 10.0, 40.0
"""The time between two renewals, and the age at which the pool gives a node up. Both are the bridge's defaults."""
NODE_CORES = 32
BETWEEN_SINGLES_SECONDS = 5.0
_BRIDGE = "vk-bridge-1"


@dataclass(frozen=True, slots=True)
class Plan:
    """The sizes of the measurement.

    nodes: the nodes of each owner.
    pods: the pods of the pool. The last `timed` of them are created at the rate per_second, and timed.
    The second owner first needs `singles` nodes, one after another, then `some` at once. The first needs all at once.
    """

    nodes: int
    pods: int
    timed: int
    per_second: float
    singles: int
    some: int
    rest_seconds: float
    owners: int = 2


FULL = Plan(nodes=1_000, pods=20_000, timed=2_000, per_second=50.0, singles=10, some=100, rest_seconds=60.0)
QUICK = Plan(nodes=20, pods=300, timed=40, per_second=20.0, singles=2, some=5, rest_seconds=15.0)


def measure_lending(folder: Path, sizes: Sizes, say: Say) -> Mapping[str, Measured]:
    """Measures on a stack of its own. Once the clusters have joined, only its log and the lending services go on."""
    stack = Stack(StackOptions(folder, fleet=(), instances=1, outlives=False), say)
    try:
        stack.stop_and_delete_data()
        stack.start()
        return asyncio.run(_measure_on_stack(stack, sizes, say))
    finally:
        stack.stop()


@dataclass(slots=True)
class Log:
    """The recalls and returns in the log."""

    recalled: list[NodeRecalled] = field(default_factory=list)
    returned: list[NodeReturned] = field(default_factory=list)

    async def follow_feed(self, feed: Feed) -> None:
        async for batch in feed:
            for record in batch.records:
                match record.event:
                    case NodeRecalled() as event:
                        self.recalled.append(event)
                    case NodeReturned() as event:
                        self.returned.append(event)


@dataclass(slots=True)
class Bench:
    """A pool and owners that have joined, and the observations of them."""

    rig: Rig
    plan: Plan
    pool: Member
    owners: Mapping[str, Member]
    sights: Sights
    log: Log
    asked_at: dict[str, float] = field(default_factory=dict)
    """The time at which each Deployment of an owner was sent, by its name."""
    asked: int = 0
    """The number of nodes that the owners' Deployments need together."""
    pods: int = 0

    async def wait_until(self, what: str, holds: Callable[[], bool], seconds: float) -> float:
        """Waits until the condition holds and returns the seconds that it took. Raises Unmeasured after `seconds`."""
        began = time.monotonic()

        async def is_condition_met() -> bool:
            return holds()

        await self.rig.wait_until(what, is_condition_met, seconds)
        return time.monotonic() - began


async def _measure_on_stack(stack: Stack, sizes: Sizes, say: Say) -> Mapping[str, Measured]:
    plan = QUICK if sizes.in_process_small else FULL
    addresses = stack.addresses()
    async with asyncio.timeout(SECONDS_MAX), AsyncExitStack() as open_:
        client = await open_.enter_async_context(PlannerClient(addresses.planners))
        rig = Rig(stack, addresses, sizes, client, say)
        names = [owner_name(number) for number in range(plan.owners)]
        await _start_members(rig, plan, names)
        pool, *owners = [
            await open_.enter_async_context(open_member(load_endpoint(stack.credentials, name)))
            for name in (POOL, *names)
        ]
        bus = await open_.enter_async_context(rig.new_bus())
        feed = await open_.enter_async_context(bus.follow_topics((RECALLS, LENDING)))
        group = await open_.enter_async_context(asyncio.TaskGroup())
        log = Log()
        following = group.create_task(log.follow_feed(feed))
        apis = {name: stack.connect_to_member(name) for name in (POOL, *names)}
        for api in apis.values():
            open_.push_async_callback(api.close)
        sights = await open_.enter_async_context(watch_clusters(apis[POOL], {name: apis[name] for name in names}))
        bench = Bench(rig, plan, pool, dict(zip(names, owners, strict=True)), sights, log)
        found = await _measure_phases(bench)
        following.cancel()
        return found


async def _measure_phases(bench: Bench) -> Mapping[str, Measured]:
    for one in (bench.pool, *bench.owners.values()):
        await one.create_namespace()
    bare = await _measure_bare_pods(bench)
    before = memory_of(bench.rig.pid_of_program(_BRIDGE)).resident_mb
    found: dict[str, Measured] = {}
    try:
        await _lend_nodes(bench)
        await _fill_pool(bench)
        created, mirrored = await _time_pods(bench)
        found |= _percentile_figures("bound_to_created", created, bare.created)
        found |= _percentile_figures("status_to_mirrored", mirrored, bare.started)
        found |= await _measure_rest(bench, before)
        async for returned in _measure_returns(bench, bare.returns):
            found |= returned
    except Unmeasured as error:
        raise Unmeasured(str(error), found) from None
    return found


def _percentile_figures(name: str, seconds: Sequence[float], bases: Sequence[float]) -> dict[str, Measured]:
    return {
        f"{name}_p{percent}_ms": Measured(percentile_in_ms(seconds, percent), percentile_in_ms(bases, percent))
        for percent in (50, 99)
    }


async def _start_members(rig: Rig, plan: Plan, owners: Sequence[str]) -> None:
    """Starts and joins the clusters, then stops the services that lending does not need."""
    rig.say(f"{len(owners)} owners with {plan.nodes} nodes each, and a pool, start and join")
    for name in owners:
        await asyncio.to_thread(rig.start_member, name, plan.nodes, 0)
    await asyncio.to_thread(rig.start_member, POOL, 1, 0)
    for name in (*owners, POOL):
        await rig.client.join_cluster(JoinClusterRequest(name, name, tier="own"))
    for name in (*owners, POOL):
        await rig.wait_until(f"{name} reports", lambda name=name: rig.is_cluster_ready(name), JOIN_SECONDS)  # type: ignore[misc]
    for service in ("planner-1", "propagator-1", "hpa-1"):
        await asyncio.to_thread(rig.stack.supervision.stop_program, service)


# ── Baselines without Spillway ──────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Bare:
    """Baselines of pods without Spillway, in seconds.

    created: until a watch shows the created pod. started: until a watch shows its written status.
    returns: from the end of its grace period until the pod is gone, by the number of pods deleted at once.
    """

    created: Sequence[float]
    started: Sequence[float]
    returns: Mapping[int, Sequence[float]]


async def _measure_bare_pods(bench: Bench) -> Bare:
    plan, sights = bench.plan, bench.sights
    name, owner = next(iter(bench.owners.items()))
    pods = BarePods(owner, plan.nodes)
    bench.rig.say(f"{plan.timed} pods by bare HTTP, {plan.per_second:g} a second, and their status")
    marks = [f"bare-{number}" for number in range(plan.timed)]

    async def create_pod(mark: str) -> None:
        await pods.create_pod(mark, NEVER_STARTS)

    created = await time_writes_until_seen(
        marks, plan.per_second, create_pod, lambda mark: sights.times_of_pod(mark).created
    )
    started = await time_writes_until_seen(
        marks, plan.per_second, pods.set_pod_running, lambda mark: sights.times_of_pod(mark).started
    )
    await asyncio.gather(*(pods.delete_pod(mark, 0) for mark in marks))
    gone = {count: await _time_bare_pod_ends(bench, name, pods, count) for count in (1, plan.some, plan.nodes)}
    await bench.wait_until("no bare pod is left", lambda: not sights.real, JOIN_SECONDS)
    return Bare(created, started, gone)


async def _time_bare_pod_ends(bench: Bench, cluster: str, pods: BarePods, count: int) -> list[float]:
    """Returns the seconds beyond the grace period from the deletion of pods until each one is gone.

    Each pod is on a node of its own and uses its whole grace period.
    """
    pods.made = 0
    marks = [f"ends-{count}-{number}" for number in range(count)]
    await asyncio.gather(*(pods.create_pod(mark, IGNORES_GRACE) for mark in marks))
    await wait_until_all_seen(marks, lambda mark: bench.sights.times_of_pod(mark).started)
    began = time.monotonic()
    await asyncio.gather(*(pods.delete_pod(mark, BARE_GRACE_SECONDS) for mark in marks))
    await bench.wait_until(f"{count} bare pods have ended", lambda: not bench.sights.real, RETURN_SECONDS)
    nodes = [(cluster, f"{NODE_PREFIX}{number % bench.plan.nodes}") for number in range(count)]
    return [bench.sights.emptied_at[node] - began - BARE_GRACE_SECONDS for node in nodes]


# ── Lending and pods ────────────────────────────────────────────────────────────────────────────────────────────────


async def _lend_nodes(bench: Bench) -> None:
    """Declares lending and waits until each node of the owners has an open virtual node."""
    rule = LendingRule("all", (), "idle", 100, 0, 1, 0.0)
    wanted = len(bench.owners) * bench.plan.nodes
    async with LendingClient(bench.rig.addresses.deschedulers) as client, _Spent(bench.rig) as spent:
        for name in bench.owners:
            await client.declare_lending(DeclareLendingRequest(name, POOL, (rule,), grace_seconds=GRACE_SECONDS))
        took = await bench.wait_until(
            f"{wanted} nodes are lent", lambda: len(bench.sights.ready) == wanted, LEND_SECONDS
        )
    bench.rig.say(f"{wanted} nodes were lent in {took:.1f} s; CPU seconds: {spent}")


async def _fill_pool(bench: Bench) -> None:
    """Creates the pool's pods as fast as possible, with at most UNDER_WAY_MAX that do not run yet."""
    wanted, began = bench.plan.pods - bench.plan.timed, time.monotonic()

    def has_room() -> bool:
        return bench.pods - len(bench.sights.running) < UNDER_WAY_MAX

    async with _Spent(bench.rig) as spent:
        while bench.pods < wanted:
            await bench.wait_until("the pool takes more", has_room, FILL_SECONDS)
            count = min(PODS_IN_DEPLOYMENT, wanted - bench.pods)
            bench.pods += count
            await bench.pool.create_deployment(f"fill-{bench.pods}", count, POOL_POD)
        await _wait_until_settled(bench, FILL_SECONDS)
    took = time.monotonic() - began
    bench.rig.say(f"{wanted} pods ran after {took:.1f} s, {wanted / took:.0f} a second; CPU seconds: {spent}")


async def _wait_until_settled(bench: Bench, seconds: float) -> float:
    """Waits until every pool pod runs and has exactly one real pod. Returns the seconds that it took."""
    pods, sights = bench.pods, bench.sights
    return await bench.wait_until(
        f"all {pods} pods run, of which there are {len(sights.pool_pods)} in the pool and {len(sights.real)} real ones",
        lambda: sights.settled_pod_count() == len(sights.pool_pods) == len(sights.real) == pods,
        seconds,
    )


async def _time_pods(bench: Bench) -> tuple[list[float], list[float]]:
    """Creates pods at the plan's rate. Returns two lists of seconds for the pods.

    The first is from the pool pod's binding to the real pod's creation. The second is from the real pod's start until
    the pool pod shows that it runs.
    """
    plan, sights = bench.plan, bench.sights
    before, begin, began = set(sights.times), time.monotonic() + 0.1, bench.pods
    async with _Spent(bench.rig) as spent:
        for number in range(plan.timed // PODS_IN_TIMED_DEPLOYMENT):
            await asyncio.sleep(max(0.0, begin + (bench.pods - began) / plan.per_second - time.monotonic()))
            bench.pods += PODS_IN_TIMED_DEPLOYMENT
            await bench.pool.create_deployment(f"timed-{number}", PODS_IN_TIMED_DEPLOYMENT, POOL_POD)
        await _wait_until_settled(bench, TIMED_SECONDS)
    timed = [times for uid, times in sights.times.items() if uid not in before]
    created = [times.created - times.bound for times in timed]
    mirrored = [times.mirrored - times.started for times in timed]
    bench.rig.say(f"{len(timed)} pods, {plan.per_second:g} a second; CPU seconds: {spent}")
    return created, mirrored


async def _measure_rest(bench: Bench, memory_before: float) -> dict[str, Measured]:
    """Measures a time without changes: how many nodes the bridge keeps alive, and its CPU and memory for that."""
    plan, rig = bench.plan, bench.rig
    wanted = len(bench.owners) * plan.nodes
    cpu, began, carried, oldest = rig.cpu_seconds_by_program()[_BRIDGE], time.monotonic(), wanted, 0.0
    async with _Spent(rig) as spent:
        while time.monotonic() - began < plan.rest_seconds:
            await asyncio.sleep(LOOK_SECONDS)
            renewed, now = await bench.pool.renewal_time_by_node(), datetime.now(UTC)
            ages = {name: (now - at).total_seconds() for name, at in renewed.items() if name in bench.sights.ready}
            carried = min(carried, sum(age < LEASE_LONGEST_SECONDS for age in ages.values()))
            oldest = max(oldest, *ages.values())
    passed = time.monotonic() - began
    percent = 100 * (rig.cpu_seconds_by_program()[_BRIDGE] - cpu) / passed
    rig.say(f"{passed:.0f} s at rest: the oldest Lease was of {oldest:.1f} s before; CPU seconds: {spent}")
    await _check_lent_nodes(bench, wanted)
    if bench.sights.lost_ready:
        raise Unmeasured(f"virtual nodes were not Ready for a while, {bench.sights.lost_ready} times")
    bare = await bare_lease_cpu_percent(bench.pool, wanted / LEASE_SECONDS, min(20.0, plan.rest_seconds))
    memory = memory_of(rig.pid_of_program(_BRIDGE))
    rig.say(f"the bridge's memory: {memory.resident_mb:.0f} MB, at most {memory.peak_mb:.0f} MB")
    return {
        "lent_nodes_per_bridge": Measured(carried, wanted),
        "lent_rest_cpu_percent": Measured(percent, bare),
        "lent_bridge_memory_mb": Measured(memory.resident_mb, memory_before),
    }


async def _check_lent_nodes(bench: Bench, nodes: int) -> None:
    """Raises Unmeasured unless the bridge soon counts the cores of exactly the lent nodes."""
    sights = bench.sights

    cores = 0.0

    async def is_every_node_counted() -> bool:
        nonlocal cores
        cores = await asyncio.to_thread(bench.rig.read_own_metric, _BRIDGE, "spillway_cores_lent")
        return len(sights.tainted) == len(sights.ready) == nodes and cores == nodes * NODE_CORES

    try:
        await bench.rig.wait_until(
            f"{nodes} nodes and the cores of as many are lent", is_every_node_counted, COUNTED_SECONDS
        )
    except Unmeasured as error:
        found = f"{len(sights.tainted)} have the taint, {len(sights.ready)} are Ready, {cores:g} cores are lent"
        raise Unmeasured(f"{error}: {found}") from None


# ── Returns ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def _measure_returns(bench: Bench, bare: Mapping[int, Sequence[float]]) -> AsyncIterator[dict[str, Measured]]:
    plan = bench.plan
    first, second = bench.owners
    rounds: list[tuple[str, str, list[int], int]] = [
        ("return_of_1_over_grace", second, [1] * plan.singles, 1),
        ("return_of_100_over_grace", second, [plan.some], plan.some),
        ("return_over_grace", first, [plan.nodes], plan.nodes),
    ]
    for name, cluster, needs, at_once in rounds:
        seconds = await _time_node_returns(bench, name, cluster, needs)
        yield {
            f"{name}_p{percent}_s": Measured(percentile(seconds, percent), percentile(bare[at_once], percent))
            for percent in (50, 99)
        }


async def _time_node_returns(bench: Bench, name: str, cluster: str, needs: Sequence[int]) -> list[float]:
    """Returns the seconds beyond the grace period from an owner's Deployment until the nodes it needs are usable."""
    rig, sights, count = bench.rig, bench.sights, sum(needs)
    known = len(bench.log.recalled)
    names = [f"{name.replace('_', '-')}-{number:02}" for number in range(len(needs))]
    async with _Spent(rig) as spent:
        for deployment, replicas in zip(names, needs, strict=True):
            if deployment != names[0]:
                await asyncio.sleep(BETWEEN_SINGLES_SECONDS)
            bench.asked_at[deployment] = time.monotonic()
            await bench.owners[cluster].create_deployment(deployment, replicas, {}, cpu=NEED_CPU)
        bench.asked += count

        def has_all_nodes_back() -> bool:
            recalled = bench.log.recalled[known:]
            return len(recalled) >= count and all(_recalled_usable_since(sights, one) is not None for one in recalled)

        await bench.wait_until(f"{count} nodes are back", has_all_nodes_back, GRACE_SECONDS + RETURN_SECONDS)
    recalled = bench.log.recalled[known:]
    seconds = [_seconds_over_grace(bench, one) for one in recalled]
    rig.say(
        f"{name}: {count} nodes, over the grace p50 {percentile(seconds, 50):.1f} s, "
        f"p99 {percentile(seconds, 99):.1f} s; CPU seconds: {spent}"
    )
    async with _Spent(rig) as spent:
        took = await _wait_until_settled(bench, SETTLE_SECONDS)
        await bench.wait_until(
            "each owner's pod runs on a node of its own", lambda: _is_each_owner_pod_running(bench), SETTLE_SECONDS
        )
        await bench.wait_until("the log has it", lambda: len(bench.log.returned) >= bench.asked, SETTLE_SECONDS)
    rig.say(f"{took:.1f} s later every evicted pod ran elsewhere; CPU seconds: {spent}")
    _say_return_steps(bench, names, count)
    await _check_recalls(bench)
    return seconds


def _recalled_usable_since(sights: Sights, recalled: NodeRecalled) -> float | None:
    return sights.node_usable_since((recalled.cluster, recalled.node))


def _seconds_over_grace(bench: Bench, recalled: NodeRecalled) -> float:
    usable = _recalled_usable_since(bench.sights, recalled)
    assert usable is not None
    asked = [at for name, at in bench.asked_at.items() if any(name in text for text in recalled.wanted_by)]
    if len(asked) != 1:
        raise Unmeasured(f"{recalled.node} was recalled for {recalled.wanted_by}: expected one Deployment of ours")
    return usable - asked[0] - GRACE_SECONDS


def _is_each_owner_pod_running(bench: Bench) -> bool:
    running = [key for key, phase in bench.sights.own.values() if phase == "Running"]
    return len(running) == len(set(running)) == bench.asked


def _say_return_steps(bench: Bench, names: Sequence[str], count: int) -> None:
    """Prints from the log how long each step of these returns took. names: the Deployments that needed the nodes."""
    last = bench.log.returned[-count:]
    first = min(bench.asked_at[name] for name in names) + time.time() - time.monotonic()
    asked = [one.at_ms / 1000 - first for one in bench.log.recalled[-count:]]
    marked = [one.recalled_ms / 1000 - first for one in last]
    bench.rig.say(
        f"after the first need: recalls were decided {min(asked):.1f} to {max(asked):.1f} s, "
        f"nodes marked {min(marked):.1f} to {max(marked):.1f} s"
    )
    steps: dict[str, Callable[[NodeReturned], int]] = {
        "closed": lambda one: one.closed_ms - one.recalled_ms,
        "emptied": lambda one: one.emptied_ms - one.recalled_ms,
        "deleted": lambda one: one.deleted_ms - one.recalled_ms,
        "returned": lambda one: one.returned_ms - one.recalled_ms,
    }
    told = ", ".join(
        f"{name} {percentile([of(one) / 1000 for one in last], 50):.1f} and "
        f"{percentile([of(one) / 1000 for one in last], 99):.1f} s"
        for name, of in steps.items()
    )
    bench.rig.say(f"since the mark, p50 and p99: {told}; {sum(one.forced for one in last)} pods forced")


async def _check_recalls(bench: Bench) -> None:
    """Raises Unmeasured unless exactly the needed nodes were recalled and returned, and each runs its owner's pod."""
    recalled: set[NodeKey] = {(one.cluster, one.node) for one in bench.log.recalled}
    used = {key for key, _ in bench.sights.own.values()}
    causes = {one.cause for one in bench.log.recalled} | {one.cause for one in bench.log.returned}
    counts = {len(bench.log.recalled), len(bench.log.returned), len(recalled), bench.asked}
    if len(counts) != 1 or causes != {CAUSE_NEED} or recalled != used:
        said = f"{len(bench.log.recalled)} recalls, {len(bench.log.returned)} returns for {sorted(causes)}"
        raise Unmeasured(f"{bench.asked} nodes were needed: {said}; {len(recalled - used)} stand empty")
    held = [one.node for one in bench.log.recalled if one.held_back_ms]
    if held or bench.sights.lost_ready:
        raise Unmeasured(f"{len(held)} recalls were held back; {bench.sights.lost_ready} virtual nodes lost Ready")
    await _check_lent_nodes(bench, len(bench.owners) * bench.plan.nodes - bench.asked)


class _Spent:
    """The CPU seconds of each program while the block runs, as text."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._text = ""

    async def __aenter__(self) -> "_Spent":
        self._before, self._own, self._began = self._rig.cpu_seconds_by_program(), time.process_time(), time.monotonic()
        return self

    async def __aexit__(self, *_: object) -> None:
        after = self._rig.cpu_seconds_by_program()
        spent = {name: seconds - self._before.get(name, 0.0) for name, seconds in after.items()}
        spent["this one"] = time.process_time() - self._own
        used = ", ".join(f"{name} {seconds:.1f}" for name, seconds in spent.items() if seconds > 0.1)
        self._text = f"{used}, in {time.monotonic() - self._began:.1f} s"

    def __str__(self) -> str:
        return self._text
