"""Manifests of scale policies as people have them, on real parts: what is measured is scaled, placed, and runs."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from spillway.addresses import SCALE
from spillway.api import ApplyRequest, GetRequest
from spillway.api_scaling import DeletePolicyRequest, ListPoliciesRequest, ReportRequest
from spillway.events_scaling import BacklogObserved, PartitionBacklog, ScaleDecided
from spillway_local.fleet_plan import deployment
from spillway_local.story import BROKER, LAG_OF_ONE, scaled_object

from .command import Command
from .running import NAMESPACE, Platform, wait_until

HPA = """
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: shop-front
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: front}
  minReplicas: 2
  maxReplicas: 30
  metrics:
  - type: Resource
    resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}
"""
LOAD_SECONDS = 150.0
"""Samples of 15 s are taken every 15 s, and believed once all of one lies after the pod's start."""


@pytest.fixture(autouse=True)
async def _no_policies(platform: Platform) -> AsyncIterator[None]:
    """No policy outlives its test, and both instances of hpa run."""
    yield
    for name in ("hpa-1", "hpa-2"):
        await platform.start_program(name)
    for policy in (await platform.scaling.list_policies(ListPoliciesRequest())).policies:
        await platform.scaling.delete_policy(DeletePolicyRequest(policy.namespace, policy.name))


async def declared_replicas(platform: Platform, name: str) -> int:
    return (await platform.planner.get(GetRequest(NAMESPACE, name))).placement.replicas


async def wait_for_more_than(platform: Platform, name: str, replicas: int) -> int:
    """Waits until a workload has more replicas, and until they run; gives how many."""

    async def has_grown() -> bool:
        return await declared_replicas(platform, name) > replicas

    await wait_until(f"{name} has more than {replicas} replicas", has_grown, LOAD_SECONDS)
    await wait_until_all_run(platform, name)
    return await declared_replicas(platform, name)


async def wait_until_all_run(platform: Platform, name: str) -> None:
    """However often it is scaled meanwhile."""

    async def is_settled() -> bool:
        wanted, placed = await declared_replicas(platform, name), await platform.placed_replicas_by_cluster(name)
        found = {cluster: await platform.pod_counts(cluster, name) for cluster in await platform.clusters_by_name()}
        counts = {cluster: pods.running for cluster, pods in found.items() if pods.running}
        return counts == placed and sum(counts.values()) == wanted and not any(pods.others for pods in found.values())

    await wait_until(f"{name} runs as it was decided", is_settled, 90)


def set_load(platform: Platform, name: str, cpu: int) -> None:
    """What its pods in each cluster use together, in thousandths of a core."""
    for cluster in ("own-1", "own-2", "cloud-1"):
        platform.post_to_simulated_member(cluster, "load", namespace=NAMESPACE, workload=name, amounts={"cpu": cpu})


def backlog_observed(name: str, partitions: int, lag: int) -> BacklogObserved:
    rows = tuple(PartitionBacklog(name, number, 500 + lag, 500, 0) for number in range(partitions))
    return BacklogObserved(NAMESPACE, name, BROKER, name, name, rows, 0, "e2e", "")


async def report_backlog(platform: Platform, name: str, partitions: int, lag: int) -> None:
    reply = await platform.scaling.report(ReportRequest(backlogs=(backlog_observed(name, partitions, lag),)))
    assert [answer.code for answer in reply.backlogs] == ["OK"], reply


@pytest.mark.timeout(600)
async def test_an_unchanged_hpa_scales_by_the_cpu_that_pods_use_and_its_successor_goes_on(
    platform: Platform, spillway: Command, tmp_path: Path
) -> None:
    """One file with the Deployment and its HPA; the active hpa is killed while it grows."""
    file = tmp_path / "front.yaml"
    file.write_text(f"{deployment('front', NAMESPACE, 2)}\n---\n{HPA}")
    said = await spillway("apply", "-f", str(file))
    assert f"HorizontalPodAutoscaler {NAMESPACE}/shop-front declared: {NAMESPACE}/front, 2 to 30 replicas" in said
    await platform.wait_until_running("front", 2)
    set_load(platform, "front", 1000)
    first = await wait_for_more_than(platform, "front", 2)

    refused = await spillway("scale", "front", "--replicas", "9", code=1)
    assert "HorizontalPodAutoscaler/shop-front scales it" in refused
    file.write_text(deployment("front", NAMESPACE, 1))
    kept = await spillway.run_for_json("apply", "-f", str(file))
    assert kept["replicas"] >= first, kept
    assert "Deployment.spec.replicas: 1 is ignored: HorizontalPodAutoscaler/shop-front set " in kept["warnings"][0]

    await platform.kill_program_for_good(await platform.active_instance("hpa"))
    set_load(platform, "front", 4000)
    assert await wait_for_more_than(platform, "front", first) <= 30
    shown: dict[str, Any] = await spillway.run_for_json("explain", "hpa/shop-front")
    assert shown["metrics"][0]["target"] == "50%"
    assert sum(entry["pods"] for entry in shown["pods"]) >= first
    told = await spillway("explain", "hpa/shop-front")
    print(told)
    assert "cpu" in told
    listed = (await spillway("get", "hpa")).splitlines()
    assert listed[0].split()[:6] == ["NAME", "REFERENCE", "TARGETS", "MINPODS", "MAXPODS", "REPLICAS"]
    assert listed[1].split()[:2] == ["shop-front", "workload/front"]
    history = (await platform.planner.get(GetRequest(NAMESPACE, "front", 50))).history
    by = {record.scaled_by for record in history if record.cause == "Autoscale"}
    assert by == {"HorizontalPodAutoscaler/shop-front"}
    assert "is gone" in await spillway("delete", "hpa/shop-front")
    assert (await spillway.run_for_json("scale", "front", "--replicas", "3"))["replicas"] == 3


@pytest.mark.parametrize("kind", ["hpa", "planner"])
async def test_a_backlog_goes_from_zero_to_many_to_zero_though_the_active_instance_dies(
    platform: Platform, spillway: Command, tmp_path: Path, kind: str
) -> None:
    """Whoever takes over loses no decision and repeats none."""
    name = f"orders-{kind}"
    file = tmp_path / "orders.json"
    file.write_text(scaled_object(name, NAMESPACE))
    await platform.planner.apply(ApplyRequest((deployment(name, NAMESPACE, 0),)))
    await spillway("apply", "-f", str(file))
    loop = asyncio.get_running_loop()
    started = loop.time()
    await report_backlog(platform, name, 12, LAG_OF_ONE)
    await _wait_until_scaled(platform, name, 12)
    print(f"{1000 * (loop.time() - started):.0f} ms from the backlog to the replicas")
    await platform.wait_until_running(name, 12)

    ended = await platform.active_instance(kind)
    await platform.kill_program_for_good(ended)
    try:
        await report_backlog(platform, name, 30, LAG_OF_ONE)
        await _wait_until_scaled(platform, name, 30)
        await platform.wait_until_running(name, 30)
    finally:
        await platform.start_program(ended)
    await report_backlog(platform, name, 30, 0)
    await _wait_until_scaled(platform, name, 0)
    await platform.wait_until_running(name, 0)
    decided = [
        record.event
        for record in await platform.read_records(SCALE)
        if isinstance(record.event, ScaleDecided) and record.event.name == name
    ]
    assert [one.generation for one in decided] == sorted(one.generation for one in decided)
    history = (await platform.planner.get(GetRequest(NAMESPACE, name, 50))).history
    numbers = [record.replicas for record in reversed(history) if record.cause == "Autoscale"]
    assert numbers == [one.replicas for one in decided], "each decision is declared once, in its order"


async def _wait_until_scaled(platform: Platform, name: str, replicas: int) -> None:
    async def is_reached() -> bool:
        return await declared_replicas(platform, name) == replicas

    await wait_until(f"{name} has {replicas} replicas", is_reached, 90)
