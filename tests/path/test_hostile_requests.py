"""What is wrong with a request is said to its caller by the name of its field, and no planner ends for it."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from spillway.api import ApplyRequest, CapacityRequest, RequestError
from spillway_local.fleet_plan import deployment
from spillway_local.in_process import in_process_platform

from .platform_steps import NAMESPACE, join_members

pytestmark = pytest.mark.looptime

Manifest = Mapping[str, Any]


def deployment_manifest(name: str = "web", **pod: Any) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads(deployment(name, NAMESPACE, 2))
    manifest["spec"]["template"]["spec"] |= pod
    return manifest


def deployment_with_spread(**amounts: int) -> Manifest:
    constraint = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", **amounts}
    return deployment_manifest(topologySpreadConstraints=[constraint])


def deployment_with_host_port(port: int) -> Manifest:
    return deployment_manifest(
        containers=[{"name": "app", "image": "app:1", "ports": [{"containerPort": 80, "hostPort": port}]}]
    )


def policy_manifest(**spec: Any) -> Manifest:
    return {"apiVersion": "spillway.io/v1", "kind": "PlacementPolicy", "metadata": {"name": "p"}, "spec": spec}


def propagation_manifest(key: object) -> Manifest:
    expression = {"key": key, "operator": "In", "values": ["r"]}
    affinity = {"fieldSelector": {"matchExpressions": [expression]}}
    selectors = [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}]
    spec = {"resourceSelectors": selectors, "placement": {"clusterAffinity": affinity}}
    head = {"apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy", "metadata": {"name": "p"}}
    return {**head, "spec": spec}


JOB_SPEC = {
    "template": {"metadata": "x", "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
}
JOB = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "web", "namespace": NAMESPACE}, "spec": JOB_SPEC}
STATIC = {"name": "Duplicated", "spread": [{"by": "cluster", "min": 1, "max": 2**63}]}

CASES = {
    "metadata of a Job's pods": ((JOB,), "Job.spec.template.metadata"),
    "maxSkew": ((deployment_with_spread(maxSkew=2**63),), "maxSkew"),
    "minDomains": ((deployment_with_spread(minDomains=2**31),), "minDomains"),
    "hostPort": ((deployment_with_host_port(2**31),), "hostPort"),
    "limits": ((deployment_manifest(), policy_manifest(limits=[{"cluster": "own-1", "max": 2**63}])), "limits[0].max"),
    "spread": ((deployment_manifest(), policy_manifest(strategy=STATIC)), "spread[0].max"),
    "key of a selector": ((deployment_manifest(), propagation_manifest(["region"])), "matchExpressions[0].key"),
}


@pytest.mark.parametrize("case", CASES)
async def test_it_is_refused_by_the_name_of_its_field_and_all_planners_live(case: str) -> None:
    manifests, field = CASES[case]
    texts = tuple(map(json.dumps, manifests))
    async with in_process_platform(services=("snapshot-1", "planner-1", "planner-2")) as platform:
        await join_members(platform)
        for ask in (
            lambda: platform.planner().apply(ApplyRequest(texts)),
            lambda: platform.planner().plan(ApplyRequest(texts)),
            lambda: platform.planner().capacity(CapacityRequest(texts)),
        ):
            with pytest.raises(RequestError) as refused:
                await ask()
            assert refused.value.code == "INVALID_ARGUMENT"
            assert field in refused.value.text
        assert not any(entry.task.done() for entry in platform.running.values())
