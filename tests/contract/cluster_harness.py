"""One suite, three doors: the simulated cluster in memory, the same over HTTP, and a real kube-apiserver."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import Any, cast

import pytest

from spillway.clusters.api import (
    PODS,
    Change,
    ClusterApi,
    ClusterApiSettings,
    Kind,
    Manifest,
    ObjectRemoved,
    ObjectUpserted,
    make_cluster_api,
)
from spillway.clusters.credentials import Endpoint, load_endpoint

PATIENCE_SECONDS = 20.0
SETTINGS = ClusterApiSettings(page_objects=2, first_pause_seconds=0.05, longest_pause_seconds=0.2)


async def start_sim_in_memory(stack: AsyncExitStack) -> ClusterApi:
    from sim.cluster import SimCluster
    from sim.rest import SimTransport
    from sim.settings import NodeSpec

    cluster = await stack.enter_async_context(SimCluster("blue"))
    cluster.add_nodes([NodeSpec("node-", count=3)])
    return ClusterApi(SimTransport(cluster), "blue", SETTINGS)


async def start_sim_over_http(stack: AsyncExitStack) -> ClusterApi:
    from sim.cluster import SimCluster
    from sim.http import SimServer
    from sim.settings import NodeSpec

    cluster = await stack.enter_async_context(SimCluster("blue"))
    cluster.add_nodes([NodeSpec("node-", count=3)])
    server = SimServer(cluster, token="sim")
    await server.start()
    stack.push_async_callback(server.close)
    return make_cluster_api(lambda: Endpoint(server=server.url, token="sim"), "blue", SETTINGS)


async def kube_cluster_api(kubeconfig: Path) -> ClusterApi:
    return make_cluster_api(lambda: load_endpoint(kubeconfig.parent, kubeconfig.stem), kubeconfig.stem, SETTINGS)


DOORS = ["sim", "sim-http", pytest.param("kube", marks=pytest.mark.kube)]


def config_map(namespace: str, name: str, labels: dict[str, str] | None = None, **data: str) -> Manifest:
    metadata = {"name": name, "namespace": namespace, "labels": labels or {}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def deployment(namespace: str, name: str, replicas: int = 2) -> Manifest:
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template},
    }


def resource_version_of(thing: Manifest) -> str:
    return cast(str, thing["metadata"]["resourceVersion"])


async def changes_until(following: AsyncIterator[tuple[Change, ...]], enough: Callable[[Change], bool]) -> list[Change]:
    """Every change up to the one that is enough."""
    seen: list[Change] = []
    async with asyncio.timeout(PATIENCE_SECONDS):
        async for batch in following:
            for change in batch:
                seen.append(change)
                if enough(change):
                    return seen
    raise AssertionError(f"the stream ended after {seen}")


def is_change_of_name(kind: type[ObjectUpserted] | type[ObjectRemoved], name: str) -> Callable[[Change], bool]:
    return lambda change: isinstance(change, kind) and change.object.metadata.name == name


def follow_kind(api: ClusterApi, kind: Kind, **selectors: str) -> Any:
    return aclosing(cast(Any, api.follow_objects(kind, **selectors)))


async def wait_for_running_pods(api: ClusterApi, namespace: str, count: int) -> list[Manifest]:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            pods = await api.list(PODS, namespace)
            running = [one for one in pods if one.get("status", {}).get("phase") == "Running"]
            if len(running) == count:
                return running
            await asyncio.sleep(0.1)
