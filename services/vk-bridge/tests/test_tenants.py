"""What one namespace of a pool takes from the others of that pool: tries at a node, copies."""

import asyncio
from typing import Any

import pytest

from sim.manifests import deployment, pod
from sim.settings import SidecarSpec
from spillway.lending_marks import virtual_node_name

from .lending_fleet import OWN, POOL, TOLERATES_LOANS, LendingFleet, run_on_fleet, wait_until

pytestmark = pytest.mark.looptime
VIRTUAL = virtual_node_name(OWN, "n0")


async def lend_node(fleet: LendingFleet, **settings: Any) -> None:
    """To a pool with the namespaces shop and bank."""
    for namespace in ("shop", "bank"):
        await fleet.send_request(POOL, "POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    await fleet.declare_lending()
    await fleet.start(**settings)
    await wait_until(fleet.is_virtual_node_open)


async def create_pool_pod(fleet: LendingFleet, namespace: str, name: str, **spec: Any) -> None:
    manifest = pod(name, tolerations=TOLERATES_LOANS, **spec)
    manifest["metadata"]["namespace"] = namespace
    await fleet.send_request(POOL, "POST", f"/api/v1/namespaces/{namespace}/pods", manifest)


async def run_deployment(fleet: LendingFleet, namespace: str, name: str, **spec: Any) -> None:
    manifest = deployment(name, 1, tolerations=TOLERATES_LOANS, **spec)
    manifest["metadata"]["namespace"] = namespace
    await fleet.send_request(POOL, "POST", f"/apis/apps/v1/namespaces/{namespace}/deployments", manifest)


def pool_pod_status(fleet: LendingFleet, namespace: str, name: str) -> dict[str, Any]:
    found = fleet.clusters[POOL].get_object("pods", name, namespace)
    assert found is not None
    return dict(found["status"])


def has_phase(fleet: LendingFleet, namespace: str, name: str, phase: str) -> bool:
    return pool_pod_status(fleet, namespace, name).get("phase") == phase


async def seconds_until_it_runs(fleet: LendingFleet, namespace: str, name: str, **spec: Any) -> float:
    await create_pool_pod(fleet, namespace, name, **spec)
    return await wait_until(lambda: has_phase(fleet, namespace, name, "Running"), 60)


@run_on_fleet()
async def test_a_pod_that_its_node_rejects_delays_nobody_elses(fleet: LendingFleet) -> None:
    """The owner adds a core to each pod, so the first does not fit, and others do."""
    fleet.clusters[OWN].inject_sidecar(SidecarSpec(cpu_millis=1000, memory_bytes=0))
    await lend_node(fleet)
    alone = await seconds_until_it_runs(fleet, "bank", "before", cpu="100m")
    for number in range(3):
        await create_pool_pod(fleet, "shop", f"large-{number}", cpu="6900m", nodeName=VIRTUAL)
        await wait_until(lambda number=number: has_phase(fleet, "shop", f"large-{number}", "Failed"))  # type: ignore[misc]
        assert await seconds_until_it_runs(fleet, "bank", f"pay-{number}", cpu="10m") < alone + 1
    assert pool_pod_status(fleet, "shop", "large-0")["reason"] == "OutOfcpu"


@run_on_fleet()
async def test_the_rejections_of_a_namespace_are_bounded_whatever_number_of_controllers_makes_its_pods(
    fleet: LendingFleet,
) -> None:
    """One of twelve runs. The others are rejected once each, and then four in ten seconds, not eleven."""
    fleet.clusters[OWN].inject_sidecar(SidecarSpec(cpu_millis=5000, memory_bytes=0))
    await lend_node(fleet)
    for number in range(12):
        await run_deployment(fleet, "shop", f"web-{number}", cpu="0")
    await asyncio.sleep(10)
    rejected = [phase for _, phase in fleet.pool_pod_phases()].count("Failed")
    await asyncio.sleep(60)
    more = [phase for _, phase in fleet.pool_pod_phases()].count("Failed") - rejected
    assert 8 <= more <= 28
    waiting = [one["status"] for one in fleet.clusters[POOL].objects("pods") if one["status"]["phase"] == "Pending"]
    reasons = {one["containerStatuses"][0]["state"]["waiting"]["reason"] for one in waiting}
    assert reasons == {"RefusedByNode"}


@run_on_fleet()
async def test_a_pod_that_asks_for_more_than_its_node_has_is_not_sent_there(fleet: LendingFleet) -> None:
    await lend_node(fleet)
    await create_pool_pod(fleet, "shop", "huge", cpu="1000", nodeName=VIRTUAL)
    await wait_until(lambda: has_phase(fleet, "shop", "huge", "Failed"))
    status = pool_pod_status(fleet, "shop", "huge")
    message = "cpu: 1000000m: expected at most 8000m, which its node has for pods of this cluster"
    assert (status["reason"], status["message"]) == ("NotLendable", message)
    assert fleet.real_pod_phases() == []


@run_on_fleet()
async def test_pods_that_cannot_be_lent_fail_at_a_pace_of_their_namespace(fleet: LendingFleet) -> None:
    """Those of one namespace wait for each other, and nobody else's for them."""
    await lend_node(fleet)
    for number in range(3):
        await create_pool_pod(fleet, "shop", f"odd-{number}", hostPID=True, nodeName=VIRTUAL)
    await create_pool_pod(fleet, "bank", "odd", hostPID=True, nodeName=VIRTUAL)
    assert await wait_until(lambda: has_phase(fleet, "bank", "odd", "Failed")) < 3
    failed = [has_phase(fleet, "shop", f"odd-{number}", "Failed") for number in range(3)]
    assert failed.count(True) == 1


async def create_secret(fleet: LendingFleet, namespace: str, name: str, count: int) -> None:
    """Its content is so many bytes as JSON."""
    data = {"k": "A" * (count - len('{"data":{"k":""}}'))}
    manifest = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data}
    await fleet.send_request(POOL, "POST", f"/api/v1/namespaces/{namespace}/secrets", manifest)


async def create_pod_with_secrets(fleet: LendingFleet, namespace: str, name: str, *counts: int) -> None:
    """A pod with Secrets of its own of these sizes in bytes."""
    names = [f"{name}-{number}" for number in range(len(counts))]
    for secret, count in zip(names, counts, strict=True):
        await create_secret(fleet, namespace, secret, count)
    volumes = [{"name": one, "secret": {"secretName": one}} for one in names]
    await create_pool_pod(fleet, namespace, name, nodeName=VIRTUAL, volumes=volumes)


def copy_count(fleet: LendingFleet, namespace: str) -> int:
    return len(fleet.clusters[OWN].objects("secrets", f"spillway-lent-{namespace}"))


@run_on_fleet()
async def test_a_namespace_leaves_others_as_much_of_an_owners_copies_as_it_has(fleet: LendingFleet) -> None:
    await lend_node(fleet, copies_bytes_max=1000)
    for number in range(4):
        await create_pod_with_secrets(fleet, "shop", f"p{number}", 250)
    running = [("n0", "Running")]
    await wait_until(lambda: fleet.real_pod_phases() == running * 2)
    await create_pod_with_secrets(fleet, "bank", "pay", 250)
    await wait_until(lambda: has_phase(fleet, "bank", "pay", "Running"))
    await asyncio.sleep(30)
    assert (copy_count(fleet, "shop"), copy_count(fleet, "bank")) == (2, 1)
    assert [has_phase(fleet, "shop", f"p{number}", "Pending") for number in range(4)].count(True) == 2


@run_on_fleet()
async def test_no_pod_holds_some_copies_while_it_waits_for_room_of_others(fleet: LendingFleet) -> None:
    """Else each of two pods could wait for what the other one holds."""
    await lend_node(fleet, copies_bytes_max=1000, copy_content_bytes_max=100)
    await create_pod_with_secrets(fleet, "shop", "one", 150, 150)
    await create_pod_with_secrets(fleet, "shop", "two", 150, 150)
    await wait_until(lambda: fleet.real_pod_phases() == [("n0", "Running")])
    await asyncio.sleep(30)
    assert (copy_count(fleet, "shop"), fleet.real_pod_phases()) == (2, [("n0", "Running")])
