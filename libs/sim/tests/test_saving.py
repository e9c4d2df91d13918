"""A cluster that goes on where another one of its name was stopped, in virtual time."""

import asyncio
import json
from typing import Any

import pytest

from sim.cluster import SimCluster
from sim.core.pods import is_ready
from sim.manifests import deployment, job
from sim.settings import NodeSpec, Taint

pytestmark = pytest.mark.looptime
NODES = [NodeSpec("n", 2)]


def uids_by_name(cluster: SimCluster, plural: str) -> dict[str, str]:
    """uid by name."""
    return {one["metadata"]["name"]: one["metadata"]["uid"] for one in cluster.objects(plural)}


def resumed_copy(cluster: SimCluster) -> SimCluster:
    """Saved as a file has it; to be entered by the caller."""
    content = json.loads(json.dumps(cluster.saved_state()))
    other = SimCluster(cluster.name)
    other.resume_state(content)
    return other


async def test_what_ran_runs_on_with_its_nodes_and_taints(client_of: Any) -> None:
    async with SimCluster("a") as cluster:
        cluster.add_nodes(NODES)
        cluster.taint("n0", Taint("lent", "x"))
        await client_of(cluster).create_deployment(deployment("web", 3))
        await asyncio.sleep(5)
        async with resumed_copy(cluster) as after:
            assert all(is_ready(pod) for pod in after.objects("pods"))
            await asyncio.sleep(60)
            for plural in ("nodes", "namespaces", "deployments", "replicasets", "pods"):
                assert uids_by_name(after, plural) == uids_by_name(cluster, plural)
            assert (after.get_object("nodes", "n0") or {})["spec"]["taints"] == [
                {"key": "lent", "value": "x", "effect": "NoSchedule"}
            ]


async def test_it_works_on_with_names_of_its_own_and_newer_versions(client_of: Any) -> None:
    async with SimCluster("a") as cluster:
        cluster.add_nodes(NODES)
        await client_of(cluster).create_deployment(deployment("web", 3))
        await asyncio.sleep(5)
        async with resumed_copy(cluster) as after:
            client = client_of(after)
            assert after.control_plane.world.store.version > cluster.control_plane.world.store.version
            await client.merge_patch("/apis/apps/v1/namespaces/default/deployments/web", {"spec": {"replicas": 5}})
            await asyncio.sleep(5)
            assert len([pod for pod in after.objects("pods") if is_ready(pod)]) == 5
            assert uids_by_name(cluster, "pods").items() < uids_by_name(after, "pods").items()
            (gone,) = await client.watch_events(
                "/api/v1/pods", resourceVersion=str(cluster.control_plane.world.store.version)
            )
            assert (gone["type"], gone["object"]["code"]) == ("ERROR", 410)


async def test_pods_that_take_room_still_do(client_of: Any) -> None:
    async with SimCluster("a") as cluster:
        cluster.add_nodes([NodeSpec("n", 1, cpu_millis=1000)])
        await client_of(cluster).create_deployment(deployment("web", 2, cpu="500m"))
        await asyncio.sleep(5)
        async with resumed_copy(cluster) as after:
            await client_of(after).create_deployment(deployment("late", 1, cpu="500m"))
            await asyncio.sleep(5)
            late = [pod for pod in after.objects("pods") if pod["metadata"]["name"].startswith("late")]
            assert [pod["spec"].get("nodeName") for pod in late] == [None]


async def test_what_was_about_to_end_ends(client_of: Any) -> None:
    """A pod and a namespace that are being deleted, and a Job that runs."""
    async with SimCluster("a") as cluster:
        cluster.add_nodes(NODES)
        client = client_of(cluster)
        await client.send_request("POST", "/api/v1/namespaces", {"metadata": {"name": "going"}})
        await client.create_deployment(deployment("web", 1), namespace="going")
        await client.send_request("POST", "/apis/batch/v1/namespaces/default/jobs", job("sum", 1, 1, run_seconds=30))
        await asyncio.sleep(5)
        await client.send_request("DELETE", "/api/v1/namespaces/going")
        async with resumed_copy(cluster) as after:
            await asyncio.sleep(60)
            assert "going" not in uids_by_name(after, "namespaces")
            assert not after.objects("deployments")
            assert [pod["status"]["phase"] for pod in after.objects("pods")] == ["Succeeded"]
            assert (after.get_object("jobs", "sum", "default") or {})["status"]["succeeded"] == 1
