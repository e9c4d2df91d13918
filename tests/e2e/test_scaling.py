"""Manifests of scale policies as people have them, on real parts: what is measured is scaled, placed, and runs."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from spillway.addresses import SCALE
from spillway.api import ApplyRequest, GetRequest
from spillway.api_scaling import DeletePolicyRequest, ListPoliciesRequest, ReportRequest
from spillway.events_scaling import BacklogObserved, PartitionBacklog, ScaleDecided
from spillway_local.fleet_plan import deployment
from spillway_local.story import BROKER, LAG_OF_ONE, scaled_object

from .command import Command
from .running import NAMESPACE, Platform, until


@pytest.fixture(autouse=True)
async def _no_policies(platform: Platform) -> AsyncIterator[None]:
    """No policy outlives its test, and both instances of hpa run."""
    yield
    for name in ("hpa-1", "hpa-2"):
        await platform.start(name)
    for policy in (await platform.scaling.list_policies(ListPoliciesRequest())).policies:
        await platform.scaling.delete_policy(DeletePolicyRequest(policy.namespace, policy.name))


async def scaled(platform: Platform, name: str) -> int:
    return (await platform.planner.get(GetRequest(NAMESPACE, name))).placement.replicas


def backlog(name: str, partitions: int, lag: int) -> BacklogObserved:
    rows = tuple(PartitionBacklog(name, number, 500 + lag, 500, 0) for number in range(partitions))
    return BacklogObserved(NAMESPACE, name, BROKER, name, name, rows, 0, "e2e", "")


async def report(platform: Platform, name: str, partitions: int, lag: int) -> None:
    reply = await platform.scaling.report(ReportRequest(backlogs=(backlog(name, partitions, lag),)))
    assert [answer.code for answer in reply.backlogs] == ["OK"], reply


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
    await report(platform, name, 12, LAG_OF_ONE)
    await _has(platform, name, 12)
    print(f"{1000 * (loop.time() - started):.0f} ms from the backlog to the replicas")
    await platform.running(name, 12)

    ended = await platform.active(kind)
    await platform.kill_for_good(ended)
    try:
        await report(platform, name, 30, LAG_OF_ONE)
        await _has(platform, name, 30)
        await platform.running(name, 30)
    finally:
        await platform.start(ended)
    await report(platform, name, 30, 0)
    await _has(platform, name, 0)
    await platform.running(name, 0)
    decided = [
        record.event
        for record in await platform.records(SCALE)
        if isinstance(record.event, ScaleDecided) and record.event.name == name
    ]
    assert [one.generation for one in decided] == sorted(one.generation for one in decided)
    history = (await platform.planner.get(GetRequest(NAMESPACE, name, 50))).history
    numbers = [record.replicas for record in reversed(history) if record.cause == "Autoscale"]
    assert numbers == [one.replicas for one in decided], "each decision is declared once, in its order"


async def _has(platform: Platform, name: str, replicas: int) -> None:
    async def reached() -> bool:
        return await scaled(platform, name) == replicas

    await until(f"{name} has {replicas} replicas", reached, 90)
