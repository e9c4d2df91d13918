"""A StatefulSet and a Job on real control planes: their own controllers, statuses and refusals."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from sim.manifests import job, statefulset
from spillway.api import ApplyRequest, DeleteRequest, GetRequest, ScaleRequest
from spillway.kubernetes.objects import JOBS, PODS, STATEFULSETS
from spillway_local.stack import Stack

from .running import NAMES, NAMESPACE, Platform, open_platform, wait_until

pytestmark = pytest.mark.kube


@pytest.fixture
async def fleet(kube_stack: Stack) -> AsyncIterator[Platform]:
    async with open_platform(kube_stack) as platform:
        await platform.join_fleet()
        await platform.delete_all_workloads()
        yield platform
        await platform.delete_all_workloads()


def apply_request(manifest: dict[str, Any]) -> ApplyRequest:
    return ApplyRequest((json.dumps(manifest | {"metadata": manifest["metadata"] | {"namespace": NAMESPACE}}),))


def database_manifest(image: str = "registry.example/db:1", replicas: int = 5) -> dict[str, Any]:
    return statefulset("db", replicas, image=image, podManagementPolicy="Parallel")


async def test_a_statefulset_runs_scales_and_rolls_in_its_one_cluster(fleet: Platform) -> None:
    (part,) = (await fleet.planner.apply(apply_request(database_manifest()))).parts
    home = part.cluster
    assert await fleet.wait_until_running("db", 5) == {home: 5}
    await fleet.planner.scale(ScaleRequest(NAMESPACE, "db", 8))
    assert await fleet.wait_until_running("db", 8) == {home: 8}

    await fleet.planner.apply(apply_request(database_manifest("registry.example/db:2", 8)))

    async def is_rolled_out() -> bool:
        pods = await fleet.members.member_api(home).list(PODS, NAMESPACE, label_selector="app=db")
        images = [pod["spec"]["containers"][0]["image"] for pod in pods]
        (status,) = (await fleet.planner.get(GetRequest(NAMESPACE, "db"))).statuses
        return images == ["registry.example/db:2"] * 8 and (status.updated, status.available) == (8, 8)

    await wait_until("every pod is of the new template, and said to be", is_rolled_out, 180)
    for name in NAMES:
        found = await fleet.members.member_api(name).get(STATEFULSETS, NAMESPACE, "db")
        assert (found is not None) == (name == home)
    await fleet.planner.delete(DeleteRequest(NAMESPACE, "db"))

    async def is_gone() -> bool:
        return await fleet.members.member_api(home).get(STATEFULSETS, NAMESPACE, "db") is None

    await wait_until("it is gone", is_gone)


async def test_a_job_runs_to_its_end_in_one_cluster(fleet: Platform) -> None:
    """kwok's stage pod-complete ends a Job's pods."""
    (part,) = (await fleet.planner.apply(apply_request(job("sum", 3, 7, image="registry.example/sum:1")))).parts
    home = part.cluster

    async def is_complete() -> bool:
        (status,) = (await fleet.planner.get(GetRequest(NAMESPACE, "sum"))).statuses
        return (status.state, status.message) == ("Present", "Complete: 7 succeeded")

    await wait_until("the Job is complete", is_complete, 180)
    found = await fleet.members.member_api(home).get(JOBS, NAMESPACE, "sum")
    assert found is not None
    assert (found["spec"]["parallelism"], found["spec"]["completions"], found["status"]["succeeded"]) == (3, 7, 7)
    again = await fleet.planner.apply(apply_request(job("sum", 2, 7, image="registry.example/sum:1")))
    assert [(one.cluster, one.replicas) for one in again.parts] == [(home, 2)]

    async def is_carried_out() -> bool:
        (status,) = (await fleet.planner.get(GetRequest(NAMESPACE, "sum"))).statuses
        return status.current and status.spec_replicas == 2

    await wait_until("a change of parallelism is carried out on the ended Job", is_carried_out)
