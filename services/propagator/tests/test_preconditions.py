"""A write is about the object that was seen: whatever came into its place meanwhile stays as it is."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from propagator.cluster.cluster_objects import ClusterObjects
from propagator.cluster.namespaces import ClusterNamespaces
from propagator.core.actions import Create, Delete
from propagator.core.desired import PartTarget
from propagator.core.live import LiveState
from propagator.settings import PropagatorSettings
from sim.cluster import SimCluster
from sim.manifests import deployment
from sim.rest import SimTransport
from spillway.clusters.api import DEPLOYMENTS, ClusterApi, ClusterApiSettings, Conflict

pytestmark = pytest.mark.looptime
WEB = PartTarget("own-1", "default", "web")


def web_deployment(replicas: int) -> dict[str, Any]:
    manifest = deployment("web", replicas)
    return {**manifest, "metadata": {**manifest["metadata"], "namespace": "default"}}


@asynccontextmanager
async def open_cluster_objects() -> AsyncIterator[tuple[ClusterApi, ClusterObjects]]:
    async with SimCluster("own-1") as cluster:
        api = ClusterApi(SimTransport(cluster), "own-1", ClusterApiSettings())
        clock = asyncio.get_running_loop().time
        yield api, ClusterObjects(api, "f1", clock, lambda: None, ClusterNamespaces(clock, 1.0), PropagatorSettings())


async def replicas_of_web(api: ClusterApi) -> int | None:
    found = await api.get(DEPLOYMENTS, "default", "web")
    return None if found is None else int(found["spec"]["replicas"])


async def live_state_and_delete(cluster_objects: ClusterObjects) -> tuple[LiveState, Delete]:
    """What is there, and a delete of it."""
    live = await cluster_objects.read_live_state(WEB, ())
    assert live.workload is not None
    return live, Delete(live.workload.marks.uid, live.workload.marks.resource_version)


async def test_what_is_to_be_created_is_not_written_over_what_somebody_made_meanwhile() -> None:
    async with open_cluster_objects() as (api, cluster_objects):
        nothing = await cluster_objects.read_live_state(WEB, ())
        await api.create(DEPLOYMENTS, web_deployment(1))
        with pytest.raises(Conflict):
            await cluster_objects.carry_out_action(Create(web_deployment(5)), WEB, nothing)
        assert await replicas_of_web(api) == 1


async def test_another_object_of_that_name_is_not_deleted() -> None:
    async with open_cluster_objects() as (api, cluster_objects):
        await api.create(DEPLOYMENTS, web_deployment(1))
        live, delete = await live_state_and_delete(cluster_objects)
        await api.delete(DEPLOYMENTS, "default", "web", uid="", resource_version="")
        await api.create(DEPLOYMENTS, web_deployment(2))
        with pytest.raises(Conflict):
            await cluster_objects.carry_out_action(delete, WEB, live)
        assert await replicas_of_web(api) == 2


async def test_what_somebody_changed_since_it_was_seen_is_not_deleted() -> None:
    async with open_cluster_objects() as (api, cluster_objects):
        await api.create(DEPLOYMENTS, web_deployment(1))
        live, delete = await live_state_and_delete(cluster_objects)
        await api.patch(DEPLOYMENTS, "default", "web", {"spec": {"replicas": 3}}, resource_version="")
        with pytest.raises(Conflict):
            await cluster_objects.carry_out_action(delete, WEB, live)
        assert await replicas_of_web(api) == 3
