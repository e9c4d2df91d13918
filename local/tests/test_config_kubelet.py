"""What is left to us of kwok's pods, and what becomes of them: on a simulated cluster whose own kubelet starts none."""

import asyncio
from typing import Any

import pytest

from sim.cluster import SimCluster
from sim.manifests import pod
from sim.rest import SimTransport
from sim.settings import NodeSpec
from spillway.clusters.api import CONFIG_MAPS, PODS, ClusterApi, ClusterApiSettings
from spillway_local.config_kubelet import stages_that_skip_config_pods, update_waiting_pods

STAMP = "2026-11-23T12:00:00Z"
STAGE = """kind: Stage
metadata:
  name: {name}
spec:
  selector:
    matchExpressions:
    - key: '.status.phase'
"""
NAMES_ONE = {"envFrom": [{"configMapRef": {"name": "key"}}]}


def test_the_stage_that_starts_pods_passes_over_those_that_need_something() -> None:
    stages = "\n---\n".join(STAGE.format(name=name) for name in ("pod-ready", "pod-delete"))
    ready, others = stages_that_skip_config_pods(stages).split("\n---\n")
    assert ready.index("matchExpressions") < ready.index("configMapRef") < ready.index(".status.phase")
    assert "operator: 'DoesNotExist'" in ready
    assert others == STAGE.format(name="pod-delete")


def test_stages_of_another_form_are_not_taken() -> None:
    with pytest.raises(ValueError, match="not enough values"):
        stages_that_skip_config_pods(STAGE.format(name="pod-delete"))
    with pytest.raises(AssertionError, match="no matchExpressions"):
        stages_that_skip_config_pods("metadata:\n  name: pod-ready\n")


@pytest.mark.looptime
async def test_a_pod_waits_says_why_and_starts() -> None:
    async with SimCluster("a") as cluster:
        cluster.add_nodes([NodeSpec("n", 1)])
        api = ClusterApi(SimTransport(cluster), "a", ClusterApiSettings())
        made = pod("web")
        made["metadata"] |= {"namespace": "default", "annotations": {"sim/start-seconds": "never"}}
        made["spec"]["containers"][0] |= NAMES_ONE
        await api.create(PODS, made)
        await asyncio.sleep(1)  # It is bound.
        found = await _pod_after_update(api)
        error = {"reason": "CreateContainerConfigError", "message": 'configmap "key" not found'}
        assert found["status"]["containerStatuses"][0]["state"] == {"waiting": error}
        assert (await _pod_after_update(api))["metadata"]["resourceVersion"] == found["metadata"]["resourceVersion"]
        metadata = {"name": "key", "namespace": "default"}
        await api.create(CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
        found = await _pod_after_update(api)
        assert found["status"]["phase"] == "Running"
        assert found["status"]["containerStatuses"][0]["state"] == {"running": {"startedAt": STAMP}}


async def _pod_after_update(api: ClusterApi) -> dict[str, Any]:
    await update_waiting_pods(api, STAMP)
    found = await api.get(PODS, "default", "web")
    assert found is not None
    return dict(found)
