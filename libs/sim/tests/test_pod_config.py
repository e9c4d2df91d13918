"""Pods that need ConfigMaps and Secrets: what waits for which, what it says meanwhile, and that it goes on."""

import asyncio
from typing import Any

import pytest

from sim.cluster import SimCluster
from sim.core.pod_config import Needed, config_needed_by_pod
from sim.core.pods import is_ready
from sim.manifests import deployment, pod
from sim.settings import NodeSpec

pytestmark = pytest.mark.looptime

CONFIGS, SECRETS = (f"/api/v1/namespaces/default/{plural}" for plural in ("configmaps", "secrets"))
FROM_SECRET = {"envFrom": [{"secretRef": {"name": "key"}}]}
FROM_CONFIG = {"envFrom": [{"configMapRef": {"name": "key"}}]}
ONE_OF_SECRET = {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "key", "key": "a"}}}]}
VOLUME = {"volumes": [{"name": "v", "secret": {"secretName": "key"}}]}
INIT = {"initContainers": [{"name": "before", "image": "app:1", **FROM_CONFIG}]}


def pod_spec_with(container: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """A pod spec with one container of these fields."""
    return {"containers": [{"name": "main", "image": "app:1", **container}], **spec}


NEEDS: dict[str, tuple[dict[str, Any], list[Needed]]] = {
    "nothing": (pod_spec_with({}), []),
    "all of a Secret": (pod_spec_with(FROM_SECRET), [Needed("secrets", "key", container="main")]),
    "all of a ConfigMap": (pod_spec_with(FROM_CONFIG), [Needed("configmaps", "key", container="main")]),
    "a key": (pod_spec_with(ONE_OF_SECRET), [Needed("secrets", "key", "a", "main")]),
    "a value": (pod_spec_with({"env": [{"name": "A", "value": "1"}]}), []),
    "an optional one": (pod_spec_with({"envFrom": [{"secretRef": {"name": "key", "optional": True}}]}), []),
    "a volume": (pod_spec_with({}, **VOLUME), [Needed("secrets", "key")]),
    "a projected volume": (
        pod_spec_with(
            {}, volumes=[{"name": "v", "projected": {"sources": [{"configMap": {"name": "key"}}, {"secret": {}}]}}]
        ),
        [Needed("configmaps", "key")],
    ),
    "before the others": (pod_spec_with({}, **INIT), [Needed("configmaps", "key", container="before")]),
}


@pytest.mark.parametrize(("spec", "needed"), NEEDS.values(), ids=NEEDS)
def test_what_a_pod_needs(spec: dict[str, Any], needed: list[Needed]) -> None:
    assert list(config_needed_by_pod(spec)) == needed


def pod_with_container(container: dict[str, Any], **spec: Any) -> dict[str, Any]:
    made = pod("web", **spec)
    made["spec"]["containers"][0] |= container
    return made


def phase_and_waiting_state(found: dict[str, Any], field: str = "containerStatuses") -> tuple[str, str, str]:
    """The pod's phase, and what its first container waits for."""
    waiting = found["status"][field][0]["state"]["waiting"]
    return found["status"]["phase"], waiting["reason"], waiting.get("message", "")


ERROR = "CreateContainerConfigError"
WAITS: dict[str, tuple[dict[str, Any], str, tuple[str, str, str]]] = {
    "a Secret": (pod_with_container(FROM_SECRET), "containerStatuses", ("Pending", ERROR, 'secret "key" not found')),
    "a ConfigMap": (
        pod_with_container(FROM_CONFIG),
        "containerStatuses",
        ("Pending", ERROR, 'configmap "key" not found'),
    ),
    "a volume": (pod_with_container({}, **VOLUME), "containerStatuses", ("Pending", "ContainerCreating", "")),
    "an init container": (pod_with_container({}, **INIT), "containerStatuses", ("Pending", "PodInitializing", "")),
    "the init container": (
        pod_with_container({}, **INIT),
        "initContainerStatuses",
        ("Pending", ERROR, 'configmap "key" not found'),
    ),
}


@pytest.mark.parametrize(("manifest", "field", "expected"), WAITS.values(), ids=WAITS)
async def test_who_lacks_something_waits_on_its_node_until_it_is_there(
    client_of: Any, manifest: dict[str, Any], field: str, expected: tuple[str, str, str]
) -> None:
    async with SimCluster("a") as cluster:
        cluster.add_nodes([NodeSpec("n", 1)])
        client = client_of(cluster)
        await client.create_pod(manifest)
        await asyncio.sleep(60)
        found = cluster.get_object("pods", "web", "default")
        assert found is not None
        assert phase_and_waiting_state(found, field) == expected
        assert found["spec"]["nodeName"]
        assert not is_ready(found)
        for path in (CONFIGS, SECRETS):
            await client.send_request("POST", path, {"metadata": {"name": "key"}})
        await asyncio.sleep(1)
        found = cluster.get_object("pods", "web", "default")
        assert found is not None
        assert is_ready(found)


async def test_a_key_that_is_not_in_it_is_waited_for_too(client_of: Any) -> None:
    async with SimCluster("a") as cluster:
        cluster.add_nodes([NodeSpec("n", 1)])
        client = client_of(cluster)
        await client.send_request("POST", SECRETS, {"metadata": {"name": "key"}, "data": {"b": ""}})
        await client.create_pod(pod_with_container(ONE_OF_SECRET))
        await asyncio.sleep(60)
        found = cluster.get_object("pods", "web", "default")
        assert found is not None
        assert phase_and_waiting_state(found) == ("Pending", ERROR, "couldn't find key a in Secret default/key")
        await client.merge_patch(f"{SECRETS}/key", {"data": {"a": ""}})
        await asyncio.sleep(1)
        found = cluster.get_object("pods", "web", "default")
        assert found is not None
        assert is_ready(found)


async def test_what_runs_goes_on_without_it_and_who_is_made_anew_waits(client_of: Any) -> None:
    async with SimCluster("a") as cluster:
        cluster.add_nodes([NodeSpec("n", 1)])
        client = client_of(cluster)
        await client.send_request("POST", SECRETS, {"metadata": {"name": "key"}})
        wanted = deployment("web", 2)
        wanted["spec"]["template"]["spec"]["containers"][0] |= FROM_SECRET
        await client.create_deployment(wanted)
        await asyncio.sleep(5)
        await client.send_request("DELETE", f"{SECRETS}/key")
        await asyncio.sleep(5)
        first, second = cluster.objects("pods")
        assert is_ready(first)
        assert is_ready(second)
        await client.send_request("DELETE", f"/api/v1/namespaces/default/pods/{first['metadata']['name']}")
        await asyncio.sleep(60)
        texts = sorted(found["status"]["phase"] for found in cluster.objects("pods"))
        assert texts == ["Pending", "Running"]
        await client.send_request("DELETE", "/apis/apps/v1/namespaces/default/deployments/web")
        await asyncio.sleep(60)
        assert cluster.objects("pods") == []
