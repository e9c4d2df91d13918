"""A workload web whose replicas follow the metric requests, shared by path tests."""

import json

from spillway.api import GetRequest
from spillway.api_scaling import DeclarePolicyRequest
from spillway.events_scaling import LoadObserved
from spillway_local.in_process import InProcess

from .platform_steps import NAMESPACE

QUEUE = {
    "type": "External",
    "external": {"metric": {"name": "requests"}, "target": {"type": "AverageValue", "averageValue": "10"}},
}


async def declare_policy(platform: InProcess) -> None:
    """Of web, whose replicas follow requests."""
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    spec = {"scaleTargetRef": reference, "minReplicas": 1, "maxReplicas": 12, "metrics": [QUEUE]}
    metadata = {"name": "web", "namespace": NAMESPACE}
    manifest = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": metadata, "spec": spec}
    await platform.hpa().declare_policy(DeclarePolicyRequest(json.dumps(manifest)))


def requests_observed(platform: InProcess, name: str, count: int) -> LoadObserved:
    return LoadObserved(NAMESPACE, name, "requests", "", "", "", "", count * 1000, platform.wall_ms(), 0, "test", "")


async def has_replicas(platform: InProcess, wanted: int) -> bool:
    return sum((await placed_replicas_by_cluster(platform, "web")).values()) == wanted


async def placed_replicas_by_cluster(platform: InProcess, name: str) -> dict[str, int]:
    reply = await platform.planner().get(GetRequest(NAMESPACE, name))
    return {part.cluster: part.replicas for part in reply.placement.parts if part.replicas}
