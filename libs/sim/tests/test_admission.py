"""What a pod becomes before it is stored: defaults, overhead, what is injected; and that a dry run stores nothing."""

import asyncio
from typing import Any

import pytest

from sim.cluster import SimCluster
from sim.manifests import deployment, pod
from sim.settings import Faults, NodeSpec, Settings, SidecarSpec

pytestmark = pytest.mark.looptime
RUNTIME_CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"
LIMIT_RANGES = "/api/v1/namespaces/default/limitranges"
PODS = "/api/v1/namespaces/default/pods"


def bare_pod(**resources: Any) -> dict[str, Any]:
    found = pod("p")
    found["spec"]["containers"][0]["resources"] = resources
    return found


def limit_range(**item: Any) -> dict[str, Any]:
    return {"metadata": {"name": "defaults"}, "spec": {"limits": [{"type": "Container", **item}]}}


CONTAINERS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "a request for who says nothing": (
        {"defaultRequest": {"cpu": "100m"}},
        {},
        {"limits": {}, "requests": {"cpu": "100m"}},
    ),
    "a limit is the request, too": (
        {"default": {"cpu": "1"}},
        {},
        {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}},
    ),
    "what is said stands": (
        {"default": {"cpu": "1"}, "defaultRequest": {"cpu": "100m"}},
        {"requests": {"cpu": "2"}},
        {"limits": {"cpu": "1"}, "requests": {"cpu": "2"}},
    ),
    "a limit of its own is its request": (
        {"defaultRequest": {"cpu": "100m"}},
        {"limits": {"cpu": "2"}},
        {"limits": {"cpu": "2"}, "requests": {"cpu": "2"}},
    ),
}


@pytest.mark.parametrize(("item", "asked", "expected"), CONTAINERS.values(), ids=CONTAINERS)
async def test_limit_ranges_give_defaults(
    client_of: Any, item: dict[str, Any], asked: dict[str, Any], expected: dict[str, Any]
) -> None:
    async with SimCluster("a") as cluster:
        client = client_of(cluster)
        await client.send_request("POST", LIMIT_RANGES, limit_range(**item))
        status, made = await client.create_pod(bare_pod(**asked))
        assert (status, made["spec"]["containers"][0]["resources"]) == (201, expected)


async def test_a_runtime_class_adds_its_overhead_and_where_its_pods_may_go(client_of: Any) -> None:
    async with SimCluster("a") as cluster:
        client = client_of(cluster)
        scheduling = {"nodeSelector": {"sandbox": "yes"}, "tolerations": [{"key": "sandbox", "operator": "Exists"}]}
        found = {"metadata": {"name": "box"}, "handler": "box", "overhead": {"podFixed": {"cpu": "250m"}}}
        await client.send_request("POST", RUNTIME_CLASSES, {**found, "scheduling": scheduling})
        _, made = await client.create_pod(pod("p", runtimeClassName="box"))
        assert made["spec"]["overhead"] == {"cpu": "250m"}
        assert made["spec"]["nodeSelector"] == {"sandbox": "yes"}
        assert made["spec"]["tolerations"] == scheduling["tolerations"]
        status, refusal = await client.create_pod(pod("q", runtimeClassName="none"))
        assert (status, refusal["reason"]) == (403, "Forbidden")
        assert 'RuntimeClass "none" not found' in refusal["message"]


@pytest.mark.parametrize("as_init", [False, True], ids=["container", "native sidecar"])
async def test_a_dry_run_says_what_the_pods_of_a_deployment_become(client_of: Any, as_init: bool) -> None:
    """The same requests as those that its pods then hold, and nothing is stored by asking."""
    async with SimCluster("a", Settings(sidecar=SidecarSpec(cpu_millis=400, as_init=as_init))) as cluster:
        client = client_of(cluster)
        cluster.add_nodes([NodeSpec("n", cpu_millis=1000)])
        template = deployment("web", 3)["spec"]["template"]
        asked = {"metadata": {"generateName": "web-", **template["metadata"]}, "spec": template["spec"]}
        status, made = await client.send_request("POST", PODS, asked, dryRun="All")
        assert status == 201
        assert cluster.objects("pods") == []
        await client.create_deployment(deployment("web", 3))
        await asyncio.sleep(5)
        pods = cluster.objects("pods")
        field = "initContainers" if as_init else "containers"
        assert all(one["spec"][field] == made["spec"][field] for one in pods)
        assert len([one for one in pods if one["spec"].get("nodeName")]) == 2, "500m each on a node of 1000m"


async def test_who_may_not_create_pods_is_told_so(client_of: Any) -> None:
    async with SimCluster("a") as cluster:
        client = client_of(cluster)
        cluster.set_faults(Faults(forbidden=("POST pods",)))
        status, refusal = await client.send_request("POST", PODS, pod("p"), dryRun="All")
        assert (status, refusal["reason"]) == (403, "Forbidden")
        assert 'cannot create resource "pods"' in refusal["message"]
        assert (await client.send_request("GET", PODS))[0] == 200
