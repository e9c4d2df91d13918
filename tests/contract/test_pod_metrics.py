"""What is read of metrics.k8s.io, from the simulated cluster in memory and over HTTP; and where nobody serves it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sim.cluster import SimCluster
from sim.http import SimServer
from sim.manifests import deployment
from sim.rest import SimTransport
from sim.settings import Faults, NodeSpec, Settings
from spillway.clusters.api import DEPLOYMENTS, ClusterApi, ClusterApiSettings, ClusterUnreachable, make_cluster_api
from spillway.clusters.credentials import Endpoint, load_endpoint
from spillway.kubernetes.pod_metrics import duration_ms, unix_ms

pytest_plugins = ["spillway_local.pytest_infra"]

PATIENCE_SECONDS = 20.0
SETTINGS = ClusterApiSettings()


@pytest.fixture
async def cluster() -> AsyncIterator[SimCluster]:
    async with SimCluster("blue", Settings(start_delay_seconds=0)) as made:
        made.add_nodes([NodeSpec("node-")])
        yield made


@pytest.fixture(params=["sim", "sim-http"])
async def api(request: pytest.FixtureRequest, cluster: SimCluster) -> AsyncIterator[ClusterApi]:
    if request.param == "sim":
        yield ClusterApi(SimTransport(cluster), "blue", SETTINGS)
        return
    server = SimServer(cluster, token="sim")
    await server.start()
    opened = make_cluster_api(lambda: Endpoint(server=server.url, token="sim"), "blue", SETTINGS)
    yield opened
    await opened.close()
    await server.close()


async def test_samples_of_a_namespace(cluster: SimCluster, api: ClusterApi) -> None:
    manifest = deployment("web", 2)
    manifest["metadata"]["namespace"] = "default"
    await api.create(DEPLOYMENTS, manifest)
    cluster.set_load("default", "web", {"cpu": 500, "memory": 1 << 20})
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(await api.pod_metrics("default", 5.0)) < 2:
            await asyncio.sleep(0.05)
    first, second = await api.pod_metrics("default", 5.0)
    assert {first.metadata.name, second.metadata.name} == {one["metadata"]["name"] for one in cluster.objects("pods")}
    assert (first.containers[0].name, first.containers[0].usage) == ("main", {"cpu": "250m", "memory": "524288"})
    assert unix_ms(first.timestamp) >= cluster.settings.start_unix_seconds * 1000
    assert duration_ms(first.window) == 15_000
    assert await api.pod_metrics("elsewhere", 5.0) == ()


async def test_samples_of_nodes(cluster: SimCluster, api: ClusterApi) -> None:
    """Of everything that runs there; of nothing else is anything known."""
    assert await api.node_metrics(5.0) == ()
    manifest = deployment("web", 2)
    manifest["metadata"]["namespace"] = "default"
    await api.create(DEPLOYMENTS, manifest)
    cluster.set_load("default", "web", {"cpu": 500, "memory": 1 << 20})
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(await api.pod_metrics("default", 5.0)) < 2:
            await asyncio.sleep(0.05)
    (sample,) = await api.node_metrics(5.0)
    assert (sample.metadata.name, sample.usage) == ("node-0", {"cpu": "500m", "memory": "1048576"})
    assert unix_ms(sample.timestamp) >= cluster.settings.start_unix_seconds * 1000


@pytest.mark.parametrize(
    ("faults", "reason"),
    [
        pytest.param(Faults(metrics="absent"), "absent", id="nobody serves it"),
        pytest.param(Faults(metrics="unavailable"), "server", id="its server is away"),
        pytest.param(
            Faults(forbidden=("GET pods.metrics.k8s.io", "GET nodes.metrics.k8s.io")), "forbidden", id="no right"
        ),
        pytest.param(Faults(silent=True), "timeout", id="silence"),
        pytest.param(Faults(garbage=True), "garbage", id="garbage"),
    ],
)
async def test_why_there_are_none_is_named(cluster: SimCluster, api: ClusterApi, faults: Faults, reason: str) -> None:
    cluster.set_faults(faults)
    for ask in (api.pod_metrics("default", 0.5), api.node_metrics(0.5)):
        with pytest.raises(ClusterUnreachable) as trouble:
            await ask
        assert trouble.value.reason == reason


@pytest.mark.kube
def test_an_api_server_without_a_metrics_server_says_so(kube_members: dict[str, Path]) -> None:
    kubeconfig = next(iter(kube_members.values()))

    async def text_of_refusal() -> str:
        api = make_cluster_api(lambda: load_endpoint(kubeconfig.parent, kubeconfig.stem), kubeconfig.stem, SETTINGS)
        try:
            await api.node_metrics(5.0)
        except ClusterUnreachable as error:
            return error.reason
        finally:
            await api.close()
        return ""

    assert asyncio.run(text_of_refusal()) == "absent"
