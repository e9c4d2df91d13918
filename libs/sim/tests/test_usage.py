"""metrics.k8s.io: what pods use, as it is set, in virtual time."""

import asyncio
from typing import Any

import pytest

from sim.cluster import SimCluster
from sim.manifests import deployment, statefulset
from sim.settings import Faults, NodeSpec, Settings

pytestmark = pytest.mark.looptime
METRICS = "/apis/metrics.k8s.io/v1beta1"
SAMPLES = f"{METRICS}/namespaces/default/pods"


def usage_by_pod(answer: dict[str, Any]) -> dict[str, list[dict[str, str]]]:
    """Usage by container, by pod."""
    return {one["metadata"]["name"]: [container["usage"] for container in one["containers"]] for one in answer["items"]}


async def test_a_load_is_shared_by_the_ready_pods(client_of: Any) -> None:
    async with SimCluster("a") as cluster:
        client = client_of(cluster)
        cluster.add_nodes([NodeSpec("n")])
        await client.create_deployment(deployment("web", 3))
        cluster.set_load("default", "web", {"cpu": 900, "memory": 3 << 20})
        await asyncio.sleep(0.1)
        assert usage_by_pod((await client.send_request("GET", SAMPLES))[1]) == {}
        await asyncio.sleep(5)
        status, answer = await client.send_request("GET", SAMPLES)
        assert (status, answer["kind"], answer["apiVersion"]) == (200, "PodMetricsList", "metrics.k8s.io/v1beta1")
        assert list(usage_by_pod(answer).values()) == [[{"cpu": "300m", "memory": str(1 << 20)}]] * 3
        assert answer["items"][0]["window"] == "15s"
        assert answer["items"][0]["timestamp"].endswith("Z")


async def test_a_pod_can_be_set_apart_and_asked_for_alone(client_of: Any) -> None:
    async with SimCluster("a") as cluster:
        client = client_of(cluster)
        cluster.add_nodes([NodeSpec("n")])
        await client.send_request("POST", "/apis/apps/v1/namespaces/default/statefulsets", statefulset("db", 2))
        await asyncio.sleep(10)
        cluster.set_pod_usage("default", "db-1", {"cpu": 2000})
        assert usage_by_pod((await client.send_request("GET", f"{METRICS}/pods"))[1]) == {"db-1": [{"cpu": "2"}]}
        assert (await client.send_request("GET", f"{SAMPLES}/db-1"))[1]["containers"][0]["name"] == "main"
        assert (await client.send_request("GET", f"{SAMPLES}/db-0"))[0] == 404
        cluster.set_pod_usage("default", "db-1", None)
        assert usage_by_pod((await client.send_request("GET", SAMPLES))[1]) == {}


async def test_a_pod_of_which_nothing_was_set_uses_the_share_of_its_requests_that_settings_say(client_of: Any) -> None:
    async with SimCluster("a", Settings(usage_of_requests=0.2)) as cluster:
        client = client_of(cluster)
        cluster.add_nodes([NodeSpec("n")])
        for name, resources in (("web", {"requests": {"cpu": "500m", "memory": "10Mi"}}), ("bare", {}), ("busy", {})):
            manifest = deployment(name, 1)
            manifest["spec"]["template"]["spec"]["containers"][0]["resources"] = resources
            await client.create_deployment(manifest)
        cluster.set_load("default", "busy", {"cpu": 700})
        await asyncio.sleep(5)
        found = {
            pod.split("-")[0]: usage
            for pod, usage in usage_by_pod((await client.send_request("GET", SAMPLES))[1]).items()
        }
        assert found == {"web": [{"cpu": "100m", "memory": str(2 << 20)}], "busy": [{"cpu": "700m"}]}


async def test_containers_share_what_their_pod_uses(client_of: Any) -> None:
    async with SimCluster("a") as cluster:
        client = client_of(cluster)
        cluster.add_nodes([NodeSpec("n")])
        manifest = deployment("web", 1)
        manifest["spec"]["template"]["spec"]["containers"].append({"name": "second", "image": "i"})
        await client.create_deployment(manifest)
        cluster.set_load("default", "web", {"cpu": 101})
        await asyncio.sleep(5)
        assert list(usage_by_pod((await client.send_request("GET", SAMPLES))[1]).values()) == [
            [{"cpu": "50m"}, {"cpu": "51m"}]
        ]


@pytest.mark.parametrize(
    ("faults", "status"),
    [
        pytest.param(Faults(metrics="absent"), 404, id="nobody serves it"),
        pytest.param(Faults(metrics="unavailable"), 503, id="its server does not answer"),
        pytest.param(Faults(forbidden=("GET pods.metrics.k8s.io",)), 403, id="no right to it"),
        pytest.param(Faults(forbidden=("GET pods",)), 200, id="no right to something else"),
    ],
)
async def test_it_can_be_away_while_all_else_answers(client_of: Any, faults: Faults, status: int) -> None:
    async with SimCluster("a") as cluster:
        client = client_of(cluster)
        cluster.set_faults(faults)
        assert (await client.send_request("GET", SAMPLES))[0] == status
        assert (await client.send_request("GET", "/api/v1/nodes"))[0] == 200


async def test_what_it_does_not_have_is_not_found(client_of: Any) -> None:
    async with SimCluster("a") as cluster:
        assert (await client_of(cluster).send_request("GET", f"{METRICS}/nodes/n0"))[0] == 404
