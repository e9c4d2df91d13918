"""A new template reaches one cluster after the other, and stops at the first that does not become available."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import looptime  # noqa: F401 - the plugin makes an hour of waiting take milliseconds
import pytest

from spillway.api import ApplyRequest, DeleteRequest, GetRequest, RequestError, ScaleRequest
from spillway_local import member_nodes
from spillway_local.fleet_plan import MemberPlan
from spillway_local.in_process import InProcess, in_process_platform

from .platform_steps import NAMESPACE, join_members, list_pods, wait_until

pytestmark = pytest.mark.looptime

GIB = 2**30
CLUSTERS = ("own-1", "own-2", "own-3")
FLEET = tuple(
    MemberPlan(name, "own", (member_nodes.MemberNodes(cores, "n", 1_000, 16 * GIB),), room=cores)
    for name, cores in zip(CLUSTERS, (12, 16, 20), strict=True)
)
ALL = {"apiVersion": "spillway.io/v1", "kind": "PlacementPolicy", "spec": {"rollout": "all"}}


def deployment_manifest(image: str, replicas: int = 12, start: str = "2", cpu: str = "500m") -> dict[str, Any]:
    """start: seconds until a pod is ready, or never."""
    labels = {"app": "web", "image": image}
    container = {"name": "main", "image": image, "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": NAMESPACE},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": labels, "annotations": {"sim/start-seconds": start}},
                "spec": {"containers": [container]},
            },
        },
    }


def apply_request(*manifests: dict[str, Any]) -> ApplyRequest:
    return ApplyRequest(tuple(json.dumps(entry) for entry in manifests))


async def pods_by_image(platform: InProcess, ready: bool = False) -> dict[str, Counter[str]]:
    """Pods by image, in every cluster."""
    found = {}
    for name in CLUSTERS:
        there = [pod for pod in await list_pods(platform, name, "web") if not ready or _is_pod_ready(pod)]
        found[name] = Counter(pod["metadata"]["labels"]["image"] for pod in there)
    return found


def _is_pod_ready(pod: dict[str, Any]) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(entry["type"] == "Ready" and entry["status"] == "True" for entry in conditions)


async def wait_until_run_everywhere(platform: InProcess, image: str, replicas: int, seconds: float = 120) -> None:
    async def is_reached() -> bool:
        total: Counter[str] = Counter()
        for counts in (await pods_by_image(platform, ready=True)).values():
            total += counts
        return total == {image: replicas}

    await wait_until(is_reached, f"{replicas} pods of {image} are ready and no others are there", seconds)


@asynccontextmanager
async def check_one_by_one(platform: InProcess) -> AsyncIterator[Callable[[], int]]:
    """Looks all the time: with an old image about, at most one cluster has pods of two. Gives how often it was one."""
    rolling: list[str] = []

    async def look_at_images() -> None:
        while True:
            mixed = [name for name, counts in (await pods_by_image(platform)).items() if len(counts) > 1]
            assert len(mixed) <= 1, f"{mixed} roll at the same time"
            rolling.extend(mixed)
            await asyncio.sleep(0.05)

    looking = asyncio.create_task(look_at_images())
    try:
        yield lambda: len(set(rolling))
    finally:
        looking.cancel()
        with suppress(asyncio.CancelledError):
            await looking


@asynccontextmanager
async def run_platform(*services: str, replicas: int = 12) -> AsyncIterator[InProcess]:
    """Three clusters, and 12 ready replicas of web:1 in all three."""
    async with in_process_platform(FLEET, services or ("snapshot-1", "planner-1", "propagator-1")) as platform:
        await join_members(platform)
        reply = await platform.planner().apply(apply_request(deployment_manifest("web:1", replicas)))
        assert {part.cluster: part.replicas for part in reply.parts} == {"own-1": 3, "own-2": 4, "own-3": 5}
        await wait_until_run_everywhere(platform, "web:1", replicas)
        yield platform


async def test_one_cluster_rolls_at_a_time_the_smallest_first() -> None:
    async with run_platform() as platform:
        async with check_one_by_one(platform) as rolled:
            reply = await platform.planner().apply(apply_request(deployment_manifest("web:2")))
            assert reply.waiting_for == "rollout 1 of 3 clusters: waits for own-1"
            await wait_until_run_everywhere(platform, "web:2", 12)
            assert rolled() == 3
        known = platform.planner().state.workloads[NAMESPACE, "web"]
        assert known.declared.earlier_templates == ()
        assert known.placement is not None
        assert known.placement.waiting_for == ""


async def test_a_template_that_never_gets_ready_stops_at_the_first_cluster() -> None:
    """The others keep what runs; a template that works then goes to that cluster first, and on to all."""
    async with run_platform() as platform:
        planner = platform.planner()
        async with check_one_by_one(platform) as rolled:
            await planner.apply(apply_request(deployment_manifest("web:bad", start="never")))
            await asyncio.sleep(120)
            assert rolled() == 1
            there = await pods_by_image(platform, ready=True)
            assert (there["own-2"], there["own-3"]) == ({"web:1": 4}, {"web:1": 5})
            reply = (await planner.get(GetRequest(NAMESPACE, "web"))).placement
            # 3 replicas: the surge is one pod, and none may be unavailable.
            assert reply.waiting_for == "rollout 1 of 3 clusters: waits for own-1: 1 of 3 updated, 3 available"
            await planner.apply(apply_request(deployment_manifest("web:3")))
            await wait_until_run_everywhere(platform, "web:3", 12)


async def test_rollout_all_rolls_all_clusters_at_once() -> None:
    async with run_platform() as platform:
        reply = await platform.planner().apply(apply_request(deployment_manifest("web:2", start="never"), ALL))
        assert reply.waiting_for == ""

        async def are_all_rolling() -> bool:
            return all(counts["web:2"] for counts in (await pods_by_image(platform)).values())

        await wait_until(are_all_rolling, "all clusters have pods of the new template")


async def test_rollout_all_in_the_middle_goes_to_the_rest_at_once() -> None:
    async with run_platform() as platform:
        await platform.planner().apply(apply_request(deployment_manifest("web:2", start="never")))
        reply = await platform.planner().apply(apply_request(deployment_manifest("web:2", start="never"), ALL))
        assert reply.waiting_for == ""
        assert platform.planner().state.workloads[NAMESPACE, "web"].declared.earlier_templates == ()


async def test_a_scale_in_the_middle_keeps_each_cluster_s_template() -> None:
    """While own-1 does not get ready, more replicas are asked for: the others make them of what they have."""
    async with run_platform() as platform:
        planner = platform.planner()
        await planner.apply(apply_request(deployment_manifest("web:2", start="20")))
        async with check_one_by_one(platform):
            reply = await planner.scale(ScaleRequest(NAMESPACE, "web", 30))
            assert reply.unplaced == 0

            async def has_grown() -> bool:
                counts = (await pods_by_image(platform)).values()
                return sum(sum(count.values()) for count in counts) >= 30

            await wait_until(has_grown, "all replicas are there")
            there = await pods_by_image(platform)
            assert there["own-2"].keys() | there["own-3"].keys() == {"web:1"}
            await wait_until_run_everywhere(platform, "web:2", 30, 600)


async def test_a_delete_in_the_middle_leaves_nothing() -> None:
    async with run_platform() as platform:
        planner = platform.planner()
        await planner.apply(apply_request(deployment_manifest("web:2")))
        await planner.delete(DeleteRequest(NAMESPACE, "web"))
        await wait_until(lambda: not planner.state.workloads[NAMESPACE, "web"].parts, "every cluster says absent")
        with pytest.raises(RequestError, match="not declared"):
            await planner.get(GetRequest(NAMESPACE, "web"))
        assert len(planner.state.rollouts) == 0


async def test_a_killed_planner_s_rollout_goes_on_under_the_next() -> None:
    async with run_platform("snapshot-1", "planner-1", "planner-2", "propagator-1") as platform:
        await platform.planner().apply(apply_request(deployment_manifest("web:2", start="10")))
        async with check_one_by_one(platform) as rolled:
            await wait_until(lambda: rolled() == 1, "the first cluster rolls")
            active = next(name for name, entry in platform.running.items() if entry.service is platform.planner())
            await platform.kill_instance(active)
            await wait_until_run_everywhere(platform, "web:2", 12, 600)
            assert rolled() == 3


async def test_a_killed_propagator_s_rollout_goes_on_under_the_next() -> None:
    async with run_platform() as platform:
        await platform.planner().apply(apply_request(deployment_manifest("web:2", start="10")))
        async with check_one_by_one(platform) as rolled:
            await wait_until(lambda: rolled() == 1, "the first cluster rolls")
            await platform.kill_instance("propagator-1")
            await asyncio.sleep(30)
            assert rolled() == 1
            platform.start_instance("propagator-2")
            await wait_until_run_everywhere(platform, "web:2", 12, 600)
            assert rolled() == 3


async def test_a_configmap_changes_in_a_cluster_when_its_turn_comes() -> None:
    async with run_platform() as platform:
        planner = platform.planner()

        def config_map_with(value: str) -> dict[str, Any]:
            metadata = {"name": "settings", "namespace": NAMESPACE}
            return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"mode": value}}

        def mode_in_cluster(cluster: str) -> str:
            found = platform.members[cluster].get_object("configmaps", "settings", NAMESPACE)
            return found["data"]["mode"] if found else ""

        await planner.apply(apply_request(deployment_manifest("web:1"), config_map_with("old")))
        await wait_until(
            lambda: {mode_in_cluster(name) for name in CLUSTERS} == {"old"}, "all clusters have the old one"
        )
        await planner.apply(apply_request(deployment_manifest("web:2", start="never"), config_map_with("new")))
        await wait_until(lambda: mode_in_cluster("own-1") == "new", "the first cluster has the new one")
        await asyncio.sleep(30)
        assert (mode_in_cluster("own-2"), mode_in_cluster("own-3")) == ("old", "old")
        await planner.apply(apply_request(deployment_manifest("web:3"), config_map_with("new")))
        await wait_until_run_everywhere(platform, "web:3", 12)
        assert {mode_in_cluster(name) for name in CLUSTERS} == {"new"}
