"""Requests that cannot be right, over gRPC: a code, a text that names the field, and nothing changed."""

import json
from typing import Any

import pytest

from spillway.api import ApplyRequest, JoinClusterRequest, RequestError, ScaleRequest
from spillway_local.fleet_plan import deployment

from .running import NAMESPACE, Platform

NO_CLUSTER = {
    "apiVersion": "spillway.io/v1",
    "kind": "PlacementPolicy",
    "spec": {"tiers": [{"name": "moon", "clusters": {"names": ["moon-1"]}}]},
}


def _with(replicas: int = 1, spec: dict[str, Any] | None = None, **requests: str) -> str:
    manifest = json.loads(deployment("bad", NAMESPACE, replicas))
    manifest["spec"] |= spec or {}
    manifest["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"] |= requests
    return json.dumps(manifest)


def _heavy(megabytes: int) -> str:
    manifest = json.loads(deployment("bad", NAMESPACE, 1))
    manifest["metadata"]["annotations"] = {"example.com/weight": "x" * (megabytes * 2**20)}
    return json.dumps(manifest)


@pytest.mark.parametrize(
    ("manifests", "code", "words"),
    [
        pytest.param((_heavy(10),), "INVALID_ARGUMENT", "request: 10486204 bytes", id="10-MB"),
        pytest.param((_heavy(2),), "INVALID_ARGUMENT", "bytes", id="2-MB"),
        pytest.param((_with(-1),), "INVALID_ARGUMENT", "Deployment.spec.replicas: -1", id="replicas-minus-1"),
        pytest.param((_with(10**9),), "INVALID_ARGUMENT", "Deployment.spec.replicas: 1000000000", id="replicas-10^9"),
        pytest.param((_with(spec={"replcas": 3}),), "INVALID_ARGUMENT", "replcas", id="unknown-field"),
        pytest.param((_with(spec={"selector": {"matchLabels": {"app": "x"}}}),), "INVALID_ARGUMENT", "selector",
                     id="selector-of-others"),
        pytest.param((_with(cpu="-5"),), "INVALID_ARGUMENT", "cpu", id="negative-quantity"),
        pytest.param((_with(memory="1e300"),), "INVALID_ARGUMENT", "memory", id="absurd-quantity"),
        pytest.param((_with(), json.dumps(NO_CLUSTER)), "INVALID_ARGUMENT", "'moon-1'", id="policy-of-no-cluster"),
        pytest.param(("{",), "INVALID_ARGUMENT", "manifests[0]", id="not-json"),
    ],
)  # fmt: skip
async def test_apply(platform: Platform, manifests: tuple[str, ...], code: str, words: str) -> None:
    """Apply refuses it with this code and these words, and declares nothing."""
    with pytest.raises(RequestError) as refused:
        await platform.planner.apply(ApplyRequest(manifests))
    print(f"{refused.value.code}: {refused.value.text}")
    assert (refused.value.code, words in refused.value.text) == (code, True), refused.value.text
    assert await platform.workloads() == []


@pytest.mark.parametrize("replicas", [-1, 10**9])
async def test_scale(platform: Platform, replicas: int) -> None:
    """Scale to a number that cannot be is refused and names it."""
    await platform.planner.apply(ApplyRequest((deployment("steady", NAMESPACE, 2),)))
    with pytest.raises(RequestError, match=str(replicas)) as refused:
        await platform.planner.scale(ScaleRequest(NAMESPACE, "steady", replicas))
    assert refused.value.code == "INVALID_ARGUMENT"
    await platform.running("steady", 2)


async def test_two_clusters_of_one_name(platform: Platform) -> None:
    """A name that another cluster has is refused, and so is a credential that another cluster uses."""
    with pytest.raises(RequestError, match="'own-1': a cluster of this name") as refused:
        await platform.planner.join_cluster(JoinClusterRequest("own-1", "own-9"))
    assert refused.value.code == "ALREADY_EXISTS"
    with pytest.raises(RequestError, match="cluster 'own-1' uses it"):
        await platform.planner.join_cluster(JoinClusterRequest("own-9", "own-1"))
