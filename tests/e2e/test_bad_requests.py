"""Requests that cannot be right, over gRPC: a code, a text that names the field, and nothing changed."""

import pytest

from spillway.api import ApplyRequest, JoinClusterRequest, RequestError
from spillway_local.fleet_plan import deployment

from .running import NAMESPACE, Platform


async def test_apply(platform: Platform) -> None:
    """Apply refuses a number that cannot be, with a code and the name of its field, and declares nothing."""
    with pytest.raises(RequestError, match=r"Deployment\.spec\.replicas: -1") as refused:
        await platform.planner.apply(ApplyRequest((deployment("bad", NAMESPACE, -1),)))
    assert refused.value.code == "INVALID_ARGUMENT"
    assert await platform.list_workloads() == []


async def test_two_clusters_of_one_name(platform: Platform) -> None:
    """A name that another cluster has is refused, and so is a credential that another cluster uses."""
    with pytest.raises(RequestError, match="'own-1': a cluster of this name") as refused:
        await platform.planner.join_cluster(JoinClusterRequest("own-1", "own-9"))
    assert refused.value.code == "ALREADY_EXISTS"
    with pytest.raises(RequestError, match="cluster 'own-1' uses it"):
        await platform.planner.join_cluster(JoinClusterRequest("own-9", "own-1"))
