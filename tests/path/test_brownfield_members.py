"""Taking over and giving back on real control planes: the services in one process, real members, real time."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from spillway.api import (
    AdoptRequest,
    ApplyRequest,
    DisownRequest,
    GetRequest,
    JoinClusterRequest,
    ListClustersRequest,
    RecoverFleetRequest,
    RequestError,
    ScaleRequest,
)
from spillway.clusters.api import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    NAMESPACES,
    PODS,
    REPLICASETS,
    SERVICES,
    ClusterApi,
)
from spillway.local_bus import LocalBroker
from spillway.store import MemoryStore
from spillway_local.in_process import FLEET_ID
from spillway_local.in_process import SERVICES as INSTANCES

from .real_members import OnRealMembers

pytest_plugins = ["spillway_local.pytest_infra"]
pytestmark = pytest.mark.kube

PATIENCE_SECONDS = 60.0
NAMESPACE_PREFIX = "brownfield"


@asynccontextmanager
async def open_platform_on(kubeconfigs: dict[str, Path]) -> AsyncIterator[OnRealMembers]:
    platform = OnRealMembers(LocalBroker(), MemoryStore(), {}, kubeconfigs=kubeconfigs)
    try:
        for name in INSTANCES:
            platform.start_instance(name)
        await wait_until(lambda: _return_value(platform.planner().is_active), "a planner is active")
        for name in kubeconfigs:
            await platform.planner().join_cluster(JoinClusterRequest(name, name, tier="own"))
        await wait_until(lambda: _are_all_ready(platform), "every cluster is ready")
        yield platform
    finally:
        for name in list(platform.running):
            await platform.stop_instance(name)
        for api in platform.apis.values():
            await api.close()


async def wait_until(reached: Callable[[], Awaitable[bool]], what: str) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await reached():
            await asyncio.sleep(0.1)
    assert await reached(), what


async def _return_value(value: bool) -> bool:
    return value


async def _are_all_ready(platform: OnRealMembers) -> bool:
    clusters = (await platform.planner().list_clusters(ListClustersRequest())).clusters
    return bool(clusters) and all(cluster.state == "Ready" for cluster in clusters)


def rich_manifest(namespace: str) -> dict[str, Any]:
    """With much of what a server fills in by default, so that all of it comes back in what is declared."""
    probe = {"httpGet": {"path": "/", "port": "http"}}
    container = {
        "name": "main",
        "image": "app:1",
        "ports": [{"containerPort": 80, "name": "http"}, {"containerPort": 81, "protocol": "UDP"}],
        "env": [
            {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
        ],
        "resources": {"requests": {"cpu": "0.05", "memory": "32Mi"}, "limits": {"cpu": "1"}},
        "livenessProbe": probe,
        "readinessProbe": {"exec": {"command": ["true"]}},
        "startupProbe": {"grpc": {"port": 80}},
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", "1"]}}},
        "volumeMounts": [{"name": "scratch", "mountPath": "/tmp"}, {"name": "conf", "mountPath": "/etc/conf"}],
        "securityContext": {"runAsNonRoot": True, "capabilities": {"drop": ["ALL"]}},
    }
    side = {"name": "side", "image": "side:1", "restartPolicy": "Always"}
    downward = {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]}
    volumes = [
        {"name": "scratch", "emptyDir": {}},
        {"name": "conf", "configMap": {"name": "conf", "optional": True}},
        {"name": "keys", "secret": {"secretName": "keys", "optional": True}},
        {"name": "all", "projected": {"sources": [{"downwardAPI": downward}]}},
    ]
    alike = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}
    apart = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": alike}]}
    pod = {
        "containers": [container],
        "initContainers": [side, {"name": "once", "image": "once:1"}],
        "volumes": volumes,
        "affinity": {"podAntiAffinity": apart},
        "topologySpreadConstraints": [{"maxSkew": 3, "whenUnsatisfiable": "ScheduleAnyway", **alike}],
        "tolerations": [{"key": "a", "operator": "Exists"}],
        "securityContext": {"fsGroup": 1},
    }
    template = {"metadata": {"labels": {"app": "web"}, "annotations": {"a": "b"}}, "spec": pod}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": namespace, "labels": {"team": "a"}, "annotations": {"note": "1"}},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template},
    }


async def _uids_by_kind(api: ClusterApi, namespace: str) -> dict[str, set[str]]:
    kinds = {"deployments": DEPLOYMENTS, "replicasets": REPLICASETS, "pods": PODS}
    return {name: {one["metadata"]["uid"] for one in await api.list(kind, namespace)} for name, kind in kinds.items()}


async def _pod_template_hashes(api: ClusterApi, namespace: str) -> set[str]:
    return {one["metadata"]["labels"]["pod-template-hash"] for one in await api.list(PODS, namespace)}


async def _are_running(api: ClusterApi, namespace: str, count: int) -> bool:
    pods = await api.list(PODS, namespace)
    return [one.get("status", {}).get("phase") for one in pods] == ["Running"] * count


async def _is_rolled_out(api: ClusterApi, namespace: str, count: int) -> bool:
    """Whether the newest template runs so many times and no other one does: its controller has no more to do."""
    found = await _live_deployment(api, namespace)
    status = found.get("status", {})
    done = (status.get("updatedReplicas"), status.get("replicas"), status.get("availableReplicas")) == (count,) * 3
    seen = status.get("observedGeneration") == found["metadata"]["generation"]
    return done and seen and await _are_running(api, namespace, count)


async def _live_deployment(api: ClusterApi, namespace: str) -> dict[str, Any]:
    found = await api.get(DEPLOYMENTS, namespace, "web")
    assert found is not None
    return found


async def _has_environment(api: ClusterApi, namespace: str, names: list[str]) -> bool:
    container = (await _live_deployment(api, namespace))["spec"]["template"]["spec"]["containers"][0]
    return [one["name"] for one in container["env"]] == names


async def _is_settled(platform: OnRealMembers, namespace: str) -> bool:
    reply = await platform.planner().get(GetRequest(namespace, "web"))
    return not any(part.adopting for part in reply.placement.parts) and all(
        status.state == "Present" and status.current for status in reply.statuses
    )


async def _is_workload_gone(platform: OnRealMembers, namespace: str) -> bool:
    try:
        await platform.planner().get(GetRequest(namespace, "web"))
    except RequestError as error:
        return error.code == "NOT_FOUND"
    return False


async def test_a_running_deployment_is_adopted_scaled_and_disowned(kube_members: dict[str, Path]) -> None:
    name = next(iter(kube_members))
    async with open_platform_on({name: kube_members[name]}) as platform:
        planner, api, namespace = platform.planner(), platform.member_api(name), f"{NAMESPACE_PREFIX}-{uuid4().hex[:8]}"
        await api.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        await api.create(DEPLOYMENTS, rich_manifest(namespace))
        await wait_until(lambda: _are_running(api, namespace, 3), "three run")
        before, spec, hashes = (
            await _uids_by_kind(api, namespace),
            (await _live_deployment(api, namespace))["spec"],
            await _pod_template_hashes(api, namespace),
        )

        reply = await planner.adopt(AdoptRequest(namespace, "web", "deployment", (name,)))
        assert [(part.cluster, part.replicas) for part in reply.parts] == [(name, 3)]
        await wait_until(lambda: _is_settled(platform, namespace), "it is taken over")
        found = await _live_deployment(api, namespace)
        marks = {"spillway.io/fleet": FLEET_ID, "spillway.io/workload": "web", "team": "a"}
        assert found["metadata"]["labels"] == marks
        assert found["spec"] == spec
        assert await _uids_by_kind(api, namespace) == before

        await planner.scale(ScaleRequest(namespace, "web", 5))
        await wait_until(lambda: _are_running(api, namespace, 5), "five run")
        await wait_until(lambda: _is_settled(platform, namespace), "it is said")
        scaled = await _uids_by_kind(api, namespace)
        assert scaled["pods"] > before["pods"]
        assert (scaled["deployments"], scaled["replicasets"]) == (before["deployments"], before["replicasets"])
        assert await _pod_template_hashes(api, namespace) == hashes
        assert (await _live_deployment(api, namespace))["spec"] == spec | {"replicas": 5}

        declared = rich_manifest(namespace)
        declared["spec"]["replicas"] = 5
        declared["spec"]["template"]["spec"]["containers"][0]["env"].pop()
        await planner.apply(ApplyRequest((json.dumps(declared),)))
        await wait_until(lambda: _has_environment(api, namespace, ["POD"]), "what the manifest leaves out is gone")
        await wait_until(lambda: _is_rolled_out(api, namespace, 5), "five of the new template run, and no other")
        scaled, spec = await _uids_by_kind(api, namespace), (await _live_deployment(api, namespace))["spec"]

        await planner.disown(DisownRequest(namespace, "web"))
        await wait_until(lambda: _is_workload_gone(platform, namespace), "it is disowned")
        found = await _live_deployment(api, namespace)
        assert found["metadata"]["labels"] == {"team": "a"}
        assert not [key for key in found["metadata"]["annotations"] if key.startswith("spillway.io/")]
        assert found["spec"] == spec | {"replicas": 5}
        assert await _uids_by_kind(api, namespace) == scaled
        assert json.dumps(found["spec"]["template"]) == json.dumps(spec["template"])


async def test_what_a_former_fleet_left_in_two_clusters_is_recovered(kube_members: dict[str, Path]) -> None:
    """Services differ in what each cluster allocated, and in nothing that would be declared."""
    async with open_platform_on(kube_members) as platform:
        namespace, former = f"{NAMESPACE_PREFIX}-{uuid4().hex[:8]}", f"former-{uuid4().hex[:8]}"
        labels = {"spillway.io/fleet": former, "spillway.io/workload": "web"}
        metadata = {"name": "web", "namespace": namespace, "labels": labels}
        ports = {"type": "NodePort", "selector": {"app": "web"}, "ports": [{"port": 80}]}
        service = {"metadata": metadata, "spec": ports}
        config = {"metadata": metadata, "data": {"a": "1"}}
        for name in kube_members:
            api = platform.member_api(name)
            await api.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
            await api.create(SERVICES, {"apiVersion": "v1", "kind": "Service", **service})
            await api.create(CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", **config})
            marked = rich_manifest(namespace)
            marked["metadata"]["labels"] |= labels
            marked["metadata"]["annotations"]["spillway.io/placement"] = "900.7"
            await api.create(DEPLOYMENTS, marked)
        for name in kube_members:
            await wait_until(lambda name=name: _are_running(platform.member_api(name), namespace, 3), "three run")  # type: ignore[misc]
        before = {name: await _uids_by_kind(platform.member_api(name), namespace) for name in kube_members}
        services = {name: await platform.member_api(name).get(SERVICES, namespace, "web") for name in kube_members}

        planner = platform.planner()
        shown = await planner.recover_fleet(RecoverFleetRequest(former))
        assert [(one.name, one.state, one.message) for one in shown.workloads] == [("web", "Found", "")]
        await planner.recover_fleet(RecoverFleetRequest(former, confirmed=True))
        await wait_until(lambda: _is_settled(platform, namespace), "it is taken over")
        assert (await planner.recover_fleet(RecoverFleetRequest(former, confirmed=True))).workloads == ()
        await planner.scale(ScaleRequest(namespace, "web", 8))
        for name in kube_members:
            await wait_until(lambda name=name: _are_running(platform.member_api(name), namespace, 4), "four run")  # type: ignore[misc]
        for name in kube_members:
            after = await _uids_by_kind(platform.member_api(name), namespace)
            assert after["pods"] > before[name]["pods"]
            assert after["replicasets"] == before[name]["replicasets"]
            found, known = await platform.member_api(name).get(SERVICES, namespace, "web"), services[name]
            assert found is not None
            assert known is not None
            assert found["metadata"]["labels"]["spillway.io/fleet"] == FLEET_ID
            assert found["spec"] == known["spec"]
