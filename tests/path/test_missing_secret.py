"""A Secret that is nowhere, in virtual time: what a neighbour is told, and what happens once it is there."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from spillway.api import ApplyRequest, CapacityRequest, GetRequest
from spillway.kubernetes.objects import NAMESPACES, SECRETS
from spillway_local import member_nodes
from spillway_local.fleet_plan import GIB, MemberPlan, deployment
from spillway_local.in_process import InProcess, in_process_platform

from .platform_steps import NAMESPACE, bound_pods_by_cluster, join_members, wait_until

pytestmark = pytest.mark.looptime

FLEET = (
    MemberPlan("own-1", "own", (member_nodes.MemberNodes(5, "n", 4_000, 16 * GIB),), room=40),
    MemberPlan("own-2", "own", (member_nodes.MemberNodes(5, "n", 4_000, 16 * GIB),), room=40),
    MemberPlan("cloud-1", "cloud", (member_nodes.MemberNodes(10, "n", 8_000, 32 * GIB),), room=160),
)
SHOP = ApplyRequest((deployment("shop", NAMESPACE, 60, cpu="500m"),))
NOWHERE_SECONDS = 120


PUBLISHED = Path(__file__).resolve().parents[3] / "shared" / "data" / "manifests" / "missing-secret.yaml"
IN_REACH = pytest.mark.skipif(not PUBLISHED.is_file(), reason=f"{PUBLISHED.name} lies in ../shared/data, not here")


def deployment_with_secret() -> str:
    """80 replicas whose environment is all of the Secret."""
    manifest = json.loads(deployment("sec", NAMESPACE, 80, cpu="500m"))
    manifest["spec"]["template"]["spec"]["containers"][0]["envFrom"] = [{"secretRef": {"name": "nosuch"}}]
    return json.dumps(manifest)


def published_manifest() -> str:
    """As many replicas of the same size, in the namespace of whoever names none."""
    return PUBLISHED.read_text()


async def room_by_cluster(platform: InProcess) -> dict[str, int]:
    """Returns the room that another workload is told of, by cluster."""
    reply = await platform.planner().capacity(CapacityRequest(SHOP.manifests))
    return {entry.cluster: entry.certain for entry in reply.clusters}


async def make_secret(platform: InProcess, cluster: str, namespace: str) -> None:
    metadata = {"name": "nosuch", "namespace": namespace}
    await platform.member_api(cluster).create(SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": metadata})


@pytest.mark.parametrize("manifest", [deployment_with_secret, pytest.param(published_manifest, marks=IN_REACH)])
async def test_a_missing_secret_takes_a_neighbours_room_for_a_minute_and_no_longer(
    manifest: Callable[[], str],
) -> None:
    """What it prints (`-s`) is the table of docs/quality.md."""
    async with in_process_platform(FLEET) as platform:
        await join_members(platform)
        for cluster in platform.members:
            made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
            await platform.member_api(cluster).create(NAMESPACES, made)
        before = await room_by_cluster(platform)
        assert sum(before.values()) == 240
        applied = await platform.planner().apply(ApplyRequest((manifest(),)))
        namespace, name = applied.namespace, applied.name
        told = []
        for second in range(0, NOWHERE_SECONDS, 5):
            told.append((second, await room_by_cluster(platform)))
            print(f"{second:4} s: {told[-1][1]}, {sum(told[-1][1].values())} in all")
            await asyncio.sleep(5)
        assert all(sum(rooms.values()) >= 160 and rooms["cloud-1"] == 160 for _, rooms in told), "it reserves once"
        assert all(rooms == before for second, rooms in told if second >= 70), "and for a minute"
        reply = await platform.planner().get(GetRequest(namespace, name))
        assert reply.placement.waiting_for == f"Secret {namespace}/nosuch, missing in cloud-1, own-1, own-2"
        assert {status.state for status in reply.statuses} == {"DependencyMissing"}
        shop = await platform.planner().apply(SHOP)
        assert shop.placed == 60
        await wait_until(lambda: _has_bound_pods(platform, "shop", 60), "the neighbour runs")
        for cluster in ("own-1", "own-2", "cloud-1"):
            await make_secret(platform, cluster, namespace)
        await wait_until(lambda: _has_bound_pods(platform, name, 80), "all run once the Secret is there")


async def _has_bound_pods(platform: InProcess, name: str, pods: int) -> bool:
    return sum((await bound_pods_by_cluster(platform, name)).values()) == pods
