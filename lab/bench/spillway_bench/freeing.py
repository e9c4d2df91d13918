"""Measures the time from free capacity in a cluster until the log has the placement of a replica that waited for it."""

import asyncio
import json
import time
from collections.abc import Mapping
from random import Random
from typing import Any

import aiohttp

from spillway.addresses import PLACEMENTS
from spillway.api import ApplyRequest, DeleteRequest, RequestError
from spillway.bus import Feed
from spillway.events import PlacementDecided
from spillway_local.fleet_plan import deployment

from .asking import measure_kafka_round_trips
from .big_member import NODE_PREFIX
from .figures import Measured, Unmeasured, percentile_in_ms
from .rig import Rig

NAMESPACE = "bench-freed"
BLOCKER_CPU, REPLICA_CPU = "12", "20"
"""CPU requests in cores. Of a node's 32 cores 10 are in use. The replica fits only while the blocker is not there."""
SLOT_LABEL = "bench/slot"
"""The label with a node's name. The workload that waits for this node selects it by this label."""
PLACED_SECONDS = 10.0
PAUSE_LONGEST_SECONDS = 0.2
FULL_SECONDS = 20.0


async def measure_freed_capacity(rig: Rig) -> Mapping[str, Measured]:
    """Measures workloads that each wait for a node of their own, among others whose node never becomes free."""
    sizes, random = rig.sizes, Random(2)
    trips = await measure_kafka_round_trips(rig.addresses.kafka, sizes.round_trips, random)
    chosen = [f"{NODE_PREFIX}{number}" for number in random.sample(range(sizes.nodes), sizes.freed + 1)]
    nodes, kept = chosen[:-1], chosen[-1]
    rig.say(f"{len(chosen)} nodes are filled; {sizes.freed} replicas wait each for one, {sizes.hopeless} for the last")
    endpoint = rig.big_endpoint()
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {endpoint.token}"}) as session:
        member = _Member(session, endpoint.server)
        await member.create_namespace()
        for node in chosen:
            await member.fill_node(node)
        waiting = [(f"hopeless-{number}", kept) for number in range(sizes.hopeless)]
        waiting += [(f"waits-{node}", node) for node in nodes]
        await rig.wait_until("the last node is seen as full", lambda: _is_node_full(rig, kept), FULL_SECONDS)
        calls = (_apply_waiting_workload(rig, name, node, number) for number, (name, node) in enumerate(waiting))
        await asyncio.gather(*calls)
        seconds = await _time_freed_to_placed(rig, member, nodes, random)
        await asyncio.gather(*(rig.client.delete(DeleteRequest(NAMESPACE, name)) for name, _ in waiting))
        await member.free_node(kept)
    return {
        "freed_to_placed_p50_ms": Measured(percentile_in_ms(seconds, 50), percentile_in_ms(trips, 50)),
        "freed_to_placed_p99_ms": Measured(percentile_in_ms(seconds, 99), percentile_in_ms(trips, 99)),
    }


async def _time_freed_to_placed(rig: Rig, member: "_Member", nodes: list[str], random: Random) -> list[float]:
    """Returns for each node the seconds from just before its blocker's deletion until the placement is in the log."""
    seconds = []
    async with rig.new_bus() as bus, bus.follow_topics((PLACEMENTS,), {}) as feed:
        await feed.end_offsets()
        for node in nodes:
            await asyncio.sleep(random.uniform(0.0, PAUSE_LONGEST_SECONDS))
            started = time.perf_counter()
            await member.free_node(node)
            try:
                async with asyncio.timeout(PLACED_SECONDS):
                    await _wait_for_placement(feed, f"waits-{node}")
            except TimeoutError:
                raise Unmeasured(f"waits-{node} was not placed within {PLACED_SECONDS:.0f} s") from None
            seconds.append(time.perf_counter() - started)
    return seconds


async def _wait_for_placement(feed: Feed, name: str) -> None:
    async for batch in feed:
        for record in batch.records:
            event = record.event
            if (
                isinstance(event, PlacementDecided)
                and (event.namespace, event.name) == (NAMESPACE, name)
                and event.parts
            ):
                return


async def _is_node_full(rig: Rig, node: str) -> bool:
    try:
        return (await rig.client.plan(ApplyRequest((_manifest_for_node("probe", node, 0),)))).placed == 0
    except RequestError as error:
        if error.code != "FAILED_PRECONDITION":  # The planner does not know the node's label yet.
            raise
        return False


async def _apply_waiting_workload(rig: Rig, name: str, node: str, number: int) -> None:
    reply = await rig.client.apply(ApplyRequest((_manifest_for_node(name, node, number),), name))
    if reply.placed:
        raise Unmeasured(f"{name} does not wait: it was placed")


def _manifest_for_node(name: str, node: str, number: int) -> str:
    """Returns a Deployment with one replica that selects one node. Ten memory sizes make shapes for one node differ."""
    manifest: dict[str, Any] = json.loads(deployment(name, NAMESPACE, 1, REPLICA_CPU, f"{512 + number % 10}Mi"))
    manifest["spec"]["template"]["spec"]["nodeSelector"] = {SLOT_LABEL: node}
    return json.dumps(manifest)


class _Member:
    """The API of the big cluster, for changes that the platform does not make itself."""

    def __init__(self, session: aiohttp.ClientSession, server: str) -> None:
        self._session = session
        self._pods = f"{server}/api/v1/namespaces/{NAMESPACE}/pods"
        self._namespaces = f"{server}/api/v1/namespaces"
        self._nodes = f"{server}/api/v1/nodes"

    async def create_namespace(self) -> None:
        await self._post_manifest(
            self._namespaces, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        )

    async def fill_node(self, node: str) -> None:
        """Labels the node and creates the blocker there, a pod that Spillway does not own."""
        patch = {"metadata": {"labels": {SLOT_LABEL: node}}}
        headers = {"Content-Type": "application/merge-patch+json"}
        async with self._session.patch(f"{self._nodes}/{node}", json=patch, headers=headers) as answer:
            answer.raise_for_status()
        container = {"name": "app", "image": "registry.example/app:1", "resources": {"requests": {"cpu": BLOCKER_CPU}}}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"blocker-{node}", "namespace": NAMESPACE},
            "spec": {"nodeName": node, "containers": [container]},
        }
        await self._post_manifest(self._pods, pod)

    async def free_node(self, node: str) -> None:
        async with self._session.delete(f"{self._pods}/blocker-{node}?gracePeriodSeconds=0") as answer:
            answer.raise_for_status()

    async def _post_manifest(self, url: str, manifest: dict[str, Any]) -> None:
        async with self._session.post(url, json=manifest) as answer:
            answer.raise_for_status()
