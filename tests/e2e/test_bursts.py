"""Two bursts of 200 calls at once that ask for more than there is: nothing pends, and what was refused is named."""

import asyncio
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

import pytest

from spillway.api import ApplyRequest, CapacityRequest, PlacementReply, RequestError
from spillway.clusters.api import ClusterUnreachable
from spillway.kubernetes.objects import NODES
from spillway_local.fleet_plan import deployment

from .running import NAMES, NAMESPACE, Platform, wait_until

CALLS = 200
REFUSING_POLICY = '{"apiVersion": "spillway.io/v1", "kind": "PlacementPolicy", "spec": {"unplaceable": "Refuse"}}'
TOO_LARGE = "64"
"""More CPU than any node has."""
CPU_MILLIS = {"100m": 100, "250m": 250, "500m": 500, "1": 1000, "1500m": 1500, TOO_LARGE: 64_000}
SHAPES: dict[str, tuple[str, str]] = {}
pytestmark = pytest.mark.timeout(900)


@dataclass(slots=True)
class Burst:
    placed: dict[str, PlacementReply] = field(default_factory=dict)
    refused: dict[str, RequestError] = field(default_factory=dict)


async def test_two_bursts_beyond_the_room_leave_nothing_pending(fleet: Platform) -> None:
    """Afterwards no pod pends, what runs is what was placed, no node is overfull, every refusal and wait has a text."""
    pended: set[str] = set()
    watching = asyncio.create_task(_collect_unschedulable_pods(fleet, pended))
    bursts = await asyncio.gather(_make_burst(fleet, "red", 11), _make_burst(fleet, "blue", 23))
    await _wait_until_filled(fleet)
    running = await _wait_until_settled(fleet)
    watching.cancel()

    replies = [reply for burst in bursts for reply in burst.placed.values()]
    refused = [error for burst in bursts for error in burst.refused.values()]
    workloads = await fleet.list_workloads()
    waiting = [workload.placement for workload in workloads if workload.placement.unplaced]
    asked = sum(workload.placement.replicas for workload in workloads)
    print(
        f"\n{2 * CALLS} calls: {len(replies)} taken with {asked} replicas, {sum(running.values())} run {running}, "
        f"{sum(placement.unplaced for placement in waiting)} replicas of {len(waiting)} workloads wait, "
        f"{len(refused)} refused {dict(Counter(error.code for error in refused))}; pods that pended: {len(pended)}"
    )
    print(f"the waits: {Counter(placement.waiting_for.partition(' ')[2] for placement in waiting).most_common(3)}")
    print(f"a refusal: {refused[-1].text}")
    assert len(replies) + len(refused) == 2 * CALLS
    assert len(workloads) == len(replies)
    assert waiting, "the bursts were to exceed the room"
    assert refused, "some were to be refused"
    assert all(placement.waiting_for for placement in waiting)
    assert {error.code for error in refused} <= {"FAILED_PRECONDITION"}
    for burst in bursts:
        assert [name for name, error in burst.refused.items() if f"{NAMESPACE}/{name}:" not in error.text] == []
    texts = {name: error.text for burst in bursts for name, error in burst.refused.items()}
    too_large = {name: text for name, text in texts.items() if SHAPES[name][0] == TOO_LARGE}
    assert too_large
    assert [text for text in too_large.values() if "fits no node" not in text or not names_all_clusters(text)] == []
    # On a busy machine a request with Refuse may come when the room is gone already.
    others = {name: text for name, text in texts.items() if name not in too_large}
    assert {name: text for name, text in others.items() if "the policy says Refuse" not in text} == {}
    assert [name for name in others if not has_refuse_policy(name)] == []
    for name in NAMES:
        await _assert_within_capacity(fleet, name)


def names_all_clusters(text: str) -> bool:
    return all(name in text for name in NAMES)


def has_refuse_policy(name: str) -> bool:
    """Whether this workload would rather be refused than wait: one of ten."""
    return int(name.rpartition("-")[2]) % 10 == 3


async def _make_burst(fleet: Platform, color: str, seed: int) -> Burst:
    """So many calls at once; a tenth would rather be refused than wait, a few fit no node anywhere."""
    random, burst = Random(seed), Burst()

    async def ask_to_place(name: str, manifests: tuple[str, ...]) -> None:
        try:
            burst.placed[name] = await fleet.planner.apply(ApplyRequest(manifests))
        except RequestError as error:
            burst.refused[name] = error

    calls = []
    for number in range(CALLS):
        cpu = TOO_LARGE if number % 50 == 7 else random.choice(("100m", "250m", "500m", "1", "1500m"))
        memory = random.choice(("128Mi", "512Mi", "1Gi", "2Gi"))
        name = f"{color}-{number}"
        manifest = deployment(name, NAMESPACE, random.randint(1, 4), cpu, memory)
        SHAPES[name] = (cpu, memory)
        calls.append(ask_to_place(name, (manifest, REFUSING_POLICY) if has_refuse_policy(name) else (manifest,)))
    await asyncio.gather(*calls)
    return burst


async def _wait_until_filled(fleet: Platform) -> None:
    """Nothing waits that would find room, and each wait says so."""
    room: dict[str, object] = {}

    async def is_full() -> bool:
        waiting = [w.placement for w in await fleet.list_workloads() if w.placement.unplaced]
        shapes = {SHAPES[placement.name] for placement in waiting}
        room.clear()
        other = {placement.waiting_for for placement in waiting if "room (" not in placement.waiting_for}
        if other:
            room["wait for something else"] = sorted(other)
            return False
        for cpu, memory in sorted(shapes):
            reply = await fleet.planner.capacity(CapacityRequest((deployment("any", NAMESPACE, 1, cpu, memory),)))
            room[f"{cpu} {memory}"] = sum(entry.certain for entry in reply.clusters)
        return bool(room) and not any(room.values())

    await wait_until("what waits has no room", is_full, 300, lambda: room)


async def _wait_until_settled(fleet: Platform) -> dict[str, int]:
    """Running pods by cluster, once they are those that were placed and no other is left."""
    seen: dict[str, object] = {}
    counts: dict[str, int] = {}

    async def is_as_placed() -> bool:
        placed = Counter(dict.fromkeys(NAMES, 0))
        for workload in await fleet.list_workloads():
            placed.update({part.cluster: part.replicas for part in workload.placement.parts})
        found = {name: await fleet.pod_counts(name) for name in NAMES}
        counts.update({name: pods.running for name, pods in found.items()})
        others = sum(pods.others for pods in found.values())
        seen.update(placed=dict(placed), running=dict(counts), others=others)
        return counts == dict(placed) and not others

    await wait_until("what runs is what was placed, and nothing pends", is_as_placed, 300, lambda: seen)
    return counts


async def _collect_unschedulable_pods(fleet: Platform, pended: set[str]) -> None:
    while True:
        for name in NAMES:
            with suppress(ClusterUnreachable):
                pended |= (await fleet.pod_counts(name)).unschedulable
        await asyncio.sleep(0.5)


async def _assert_within_capacity(fleet: Platform, cluster: str) -> None:
    """No node holds more CPU than it has, from the cluster's own words."""
    used: Counter[str] = Counter()
    for pod in (await fleet.pod_counts(cluster)).bound:
        (container,) = pod["spec"]["containers"]
        used[pod["spec"]["nodeName"]] += CPU_MILLIS[container["resources"]["requests"]["cpu"]]
    nodes = await fleet.members.member_api(cluster).list(NODES)
    room = {node["metadata"]["name"]: _cpu_millis(node["status"]["allocatable"]["cpu"]) for node in nodes}
    assert {name: (cpu, room[name]) for name, cpu in used.items() if cpu > room[name]} == {}


def _cpu_millis(cpu: str) -> int:
    return int(cpu[:-1]) if cpu.endswith("m") else 1000 * int(cpu)
