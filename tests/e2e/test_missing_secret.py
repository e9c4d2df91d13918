"""A Secret that is nowhere, on real control planes: what a neighbour is told, what is said of it, and what ends it."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from missing_secret import (
    ASKED,
    EMPTY,
    FLEET,
    MANIFEST,
    NAME,
    NAMESPACE,
    NEIGHBOUR,
    SECRET,
    ask_neighbour_room,
    joined_planner,
)

from spillway.api import ApplyRequest, DeleteRequest, GetRequest
from spillway.clusters.api import PODS, SECRETS
from spillway.model import ObjectReference
from spillway_local.stack import Stack

from .command import Command
from .running import Platform, open_platform, wait_until

pytestmark = [
    pytest.mark.kube,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not MANIFEST.is_file(), reason=f"{MANIFEST.name} lies in ../shared/data, which is not here"),
]

CLUSTERS = sorted(member.name for member in FLEET)
LACKED = ObjectReference("Secret", NAMESPACE, SECRET)
LOOKS_AFTER = 45
"""One a second: three times as long as what has no room waits before it is placed elsewhere."""


@pytest.fixture
async def missing(missing_stack: Stack) -> AsyncIterator[Platform]:
    async with joined_planner(missing_stack), open_platform(missing_stack) as platform:
        yield platform


async def test_a_missing_secret_takes_a_neighbours_room_for_a_while_and_is_named(
    missing: Platform, tmp_path: Path
) -> None:
    spillway = Command(missing, tmp_path)
    reply = await missing.planner.apply(ApplyRequest((MANIFEST.read_text(),)))
    assert (reply.placed, reply.unplaced) == (80, 0)
    assert sum(room for _, room in (await ask_neighbour_room(missing.planner)).rooms) == 160, (
        "it reserves what it is to run"
    )

    seen = [await ask_neighbour_room(missing.planner)]
    async with asyncio.timeout(120):
        while seen[-1] != EMPTY:
            await asyncio.sleep(1)
            seen.append(await ask_neighbour_room(missing.planner))
    assert all(look.certain_in_cloud == 160 and look.placed == ASKED for look in seen), "once, and where it was placed"
    for _ in range(LOOKS_AFTER):
        await asyncio.sleep(1)
        assert await ask_neighbour_room(missing.planner) == EMPTY

    await _assert_secret_is_named(missing, spillway)
    await _run_neighbour(missing)
    await _run_where_the_secret_is(missing)
    await _restart_without_secret(missing)


async def _assert_secret_is_named(platform: Platform, spillway: Command) -> None:
    """With its kind, namespace and name, and the clusters: to who asks for the workload, explains it, or waits."""
    reply = await platform.planner.get(GetRequest(NAMESPACE, NAME))
    assert (reply.placement.placed, reply.placement.unplaced) == (0, 80)
    assert reply.placement.waiting_for == f"Secret {NAMESPACE}/{SECRET}, missing in {', '.join(CLUSTERS)}"
    assert {(status.cluster, status.state) for status in reply.statuses} >= {
        (part.cluster, "DependencyMissing") for part in reply.placement.parts
    }
    assert {status.missing for status in reply.statuses} == {(LACKED,)}
    assert {part.missing for part in reply.placement.parts} == {(LACKED,)}

    explained = await spillway.run_for_json("explain", NAME, "-n", NAMESPACE)
    told_of = {cluster["cluster"]: cluster["bound"] for cluster in explained["clusters"]}
    assert told_of == dict.fromkeys(CLUSTERS, "DependencyMissing")

    waited = await spillway("apply", "-f", str(MANIFEST), "-n", NAMESPACE, "--wait", "--timeout", "3", code=5)
    assert f"80 replicas wait for Secret {NAMESPACE}/{SECRET}, missing in {', '.join(CLUSTERS)}" in waited

    (spillway.folder / "run").mkdir()
    shutil.copy(platform.stack.folder / "addresses.json", spillway.folder / "run")
    found: list[dict[str, Any]] = await spillway.run_for_json("doctor", code=1)
    checks = {check["name"]: check for check in found if check["name"].startswith("workload ")}
    said = [check["text"] for name, check in checks.items() if " in " in name and check["outcome"] == "failed"]
    assert said == [f"DependencyMissing: missing: Secret {NAMESPACE}/{SECRET}"] * len(reply.statuses)


async def _run_neighbour(platform: Platform) -> None:
    """Where there is room, and goes again."""
    await platform.planner.apply(ApplyRequest(NEIGHBOUR))
    await wait_until(
        "the neighbour runs", lambda: _are_running(platform, "shop", {"own-1": 40, "own-2": 40, "cloud-1": 40})
    )
    await platform.planner.delete(DeleteRequest(NAMESPACE, "shop"))

    async def is_gone() -> bool:
        return await ask_neighbour_room(platform.planner) == EMPTY

    await wait_until("its room is free again", is_gone)


async def _run_where_the_secret_is(platform: Platform) -> None:
    """As many as one cluster has room for run there; the others wait for the next one, not in the cloud."""
    await _make_secret(platform, "own-1")
    await wait_until("what own-1 has room for runs there", lambda: _are_running(platform, NAME, {"own-1": 40}))
    reply = await platform.planner.get(GetRequest(NAMESPACE, NAME))
    assert reply.placement.waiting_for == f"Secret {NAMESPACE}/{SECRET}, missing in cloud-1, own-2"
    await _make_secret(platform, "own-2")
    await wait_until("all run", lambda: _are_running(platform, NAME, {"own-1": 40, "own-2": 40}))


async def _restart_without_secret(platform: Platform) -> None:
    """The Secret goes, and a pod: the new one waits on its node, holds its room and is placed nowhere else."""
    api = platform.members.member_api("own-1")
    found = await api.get(SECRETS, NAMESPACE, SECRET)
    assert found is not None
    await api.delete(SECRETS, NAMESPACE, SECRET, uid=found["metadata"]["uid"])
    pods = await api.list(PODS, NAMESPACE, label_selector=f"app={NAME}")
    await api.delete(PODS, NAMESPACE, pods[0]["metadata"]["name"], uid=pods[0]["metadata"]["uid"])

    async def is_waiting() -> bool:
        pods = await api.list(PODS, NAMESPACE, label_selector=f"app={NAME}")
        return sum(map(_lacks_secret, pods)) == 1

    await wait_until("its kubelet says what is not there", is_waiting)
    placed = {"own-1": 40, "own-2": 40}
    for _ in range(LOOKS_AFTER):
        await asyncio.sleep(1)
        parts = (await platform.planner.get(GetRequest(NAMESPACE, NAME))).placement.parts
        assert {part.cluster: part.replicas for part in parts if part.replicas} == placed
        assert (await ask_neighbour_room(platform.planner)).certain_in_cloud == 160
    await _make_secret(platform, "own-1")
    await wait_until("all run again", lambda: _are_running(platform, NAME, placed))


def _lacks_secret(pod: Mapping[str, Any]) -> bool:
    statuses = pod["status"].get("containerStatuses") or ()
    error = {"reason": "CreateContainerConfigError", "message": f'secret "{SECRET}" not found'}
    return any(one["state"].get("waiting") == error for one in statuses) and bool(pod["spec"]["nodeName"])


async def _make_secret(platform: Platform, cluster: str) -> None:
    metadata = {"name": SECRET, "namespace": NAMESPACE}
    await platform.members.member_api(cluster).create(
        SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": metadata}
    )


async def _are_running(platform: Platform, name: str, wanted: dict[str, int]) -> bool:
    """As the members' own APIs show it."""
    found = {}
    for cluster in CLUSTERS:
        pods = await platform.members.member_api(cluster).list(PODS, NAMESPACE, label_selector=f"app={name}")
        running = sum(pod["status"].get("phase") == "Running" for pod in pods)
        found |= {cluster: running} if pods else {}
    return found == wanted
