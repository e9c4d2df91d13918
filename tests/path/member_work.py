"""All that services do in members: placing, reading, scaling, adopting, lending and back, told in one go.

What it asks for is each right of spillway.clusters.rights; the members are simulated or real.
"""

import base64
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from sim.manifests import job, statefulset
from spillway.api import (
    AdoptRequest,
    ApplyRequest,
    DeleteRequest,
    DisownRequest,
    GetRequest,
    RequestError,
    ScaleRequest,
)
from spillway.api_lending import DeclareLendingRequest, WithdrawLendingRequest
from spillway.api_scaling import DeclarePolicyRequest, DeletePolicyRequest
from spillway.clusters.api import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    NAMESPACES,
    NODES,
    PODS,
    SECRETS,
    ClusterUnreachable,
    LogOptions,
    Manifest,
)
from spillway.events_lending import LendingRule
from spillway.kubernetes.objects import Kind
from spillway.lending_marks import FLEET as FLEET_LABEL
from spillway.lending_marks import LENDING, LENT_CLUSTER, POD_NAMESPACE_PREFIX, POOL_TAINT, SUPPLY_CLASS
from spillway_local import member_nodes
from spillway_local.fleet_plan import GIB, MemberPlan, deployment
from spillway_local.in_process import FLEET_ID, SERVICES, InProcess

from .platform_steps import NAMESPACE, join_members, wait_until

OWNER, POOL = "own-1", "own-2"
HOSTNAME = "kubernetes.io/hostname"
WHOLE_SECRETS = replace(SECRETS, metadata_only=False)
FLEET = tuple(
    MemberPlan(name, "own", (member_nodes.MemberNodes(3, f"{name}-n", 4_000, 16 * GIB),), room=24)
    for name in (OWNER, POOL)
)
ALL_SERVICES = (*SERVICES, "hpa-1", "descheduler-1", "vk-bridge-1")
BY_CPU = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
}


@dataclass(frozen=True, slots=True)
class Confidential:
    """What people keep in Secrets of members, for workloads that we place and for pods on lent nodes."""

    of_workload: str = "workload-key"
    of_pool_pod: str = "pool-key"


async def do_everything(platform: InProcess, confidential: Confidential | None = None, patience: float = 120) -> None:
    """Afterwards all is as it was: nothing placed, nothing lent. The platform has ALL_SERVICES. patience: seconds."""
    kept = confidential or Confidential()
    await join_members(platform)
    await wait_until(lambda: platform.hpa().is_active and platform.descheduler().is_active, "both are active", patience)
    await _place_workloads(platform, kept, patience)
    await _adopt_workload(platform, patience)
    await _lend_nodes(platform, kept, patience)


async def _place_workloads(platform: InProcess, kept: Confidential, patience: float) -> None:
    planner = platform.planner()
    batch = [job("sums", 1), statefulset("db", 1)]
    for manifest in batch:
        manifest["metadata"]["namespace"] = "batch"
        await planner.apply(ApplyRequest((json.dumps(manifest),)))
    for name in (OWNER, POOL):
        await _create_namespace(platform, name, NAMESPACE)
        await _create_object(platform, name, SECRETS, "web-key", data=_secret_data(kept.of_workload))
    scaler = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": NAMESPACE},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": 1,
            "maxReplicas": 8,
            "metrics": [BY_CPU],
        },
    }
    await planner.apply(ApplyRequest(_web_manifests(4, "blue")))
    await platform.hpa().declare_policy(DeclarePolicyRequest(json.dumps(scaler)))
    await wait_until(lambda: _are_pods_running(platform, "web", 4), "web runs", patience)
    await planner.apply(ApplyRequest(_web_manifests(4, "green")))
    await wait_until(lambda: _are_pods_coloured(platform, "green"), "what goes with it is new", patience)
    await platform.hpa().delete_policy(DeletePolicyRequest(NAMESPACE, "web"))
    for name, namespace, pods in (("sums", "batch", 1), ("db", "batch", 1), ("web", NAMESPACE, 4)):
        await _wait_for_run_and_delete(platform, name, namespace, pods, patience)
    await _check_missing_is_named(platform, patience)


async def _check_missing_is_named(platform: InProcess, patience: float) -> None:
    """It waits, and is deleted."""
    lacking = json.loads(deployment("lacking", NAMESPACE, 1))
    names = {"serviceAccountName": "none", "priorityClassName": "none", "runtimeClassName": "none"}
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "none"}}
    lacking["spec"]["template"]["spec"] |= {**names, "volumes": [claim]}
    await platform.planner().apply(ApplyRequest((json.dumps(lacking),)))

    async def is_missing_said() -> bool:
        found = await platform.planner().get(GetRequest(NAMESPACE, "lacking"))
        kinds = ["PersistentVolumeClaim", "PriorityClass", "RuntimeClass", "ServiceAccount"]
        return any([one.kind for one in status.missing] == kinds for status in found.statuses)

    await wait_until(is_missing_said, "what is missing is said", patience)
    await platform.planner().delete(DeleteRequest(NAMESPACE, "lacking"))
    await wait_until(lambda: _is_workload_gone(platform, "lacking", NAMESPACE), "it is gone", patience)


async def _wait_for_run_and_delete(platform: InProcess, name: str, namespace: str, pods: int, patience: float) -> None:
    await wait_until(lambda: _are_pods_running(platform, name, pods), f"{name} runs", patience)
    await platform.planner().delete(DeleteRequest(namespace, name))
    await wait_until(lambda: _is_workload_gone(platform, name, namespace), f"{name} is gone", patience)


async def _are_pods_coloured(platform: InProcess, colour: str) -> bool:
    found = [await platform.member_api(name).get(CONFIG_MAPS, NAMESPACE, "web-settings") for name in platform.members]
    return [one["data"]["colour"] for one in found if one] == [colour] * len(found)


def _web_manifests(replicas: int, colour: str) -> tuple[str, ...]:
    web = json.loads(deployment("web", NAMESPACE, replicas))
    container = web["spec"]["template"]["spec"]["containers"][0]
    container["envFrom"] = [{"secretRef": {"name": "web-key"}}, {"configMapRef": {"name": "web-settings"}}]
    metadata = {"name": "web-settings", "namespace": NAMESPACE}
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"colour": colour}}
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web", "namespace": NAMESPACE},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
    }
    return tuple(map(json.dumps, (settings, service, web)))


async def _adopt_workload(platform: InProcess, patience: float) -> None:
    planner, api = platform.planner(), platform.member_api(POOL)
    await api.create(DEPLOYMENTS, json.loads(deployment("old", NAMESPACE, 2)))
    await wait_until(lambda: _are_all_running(platform, POOL, "app=old", 2), "what is to be adopted runs", patience)
    await planner.adopt(AdoptRequest(NAMESPACE, "old", "deployment", (POOL,)))
    await wait_until(lambda: _is_ours(platform, "old"), "it is taken over", patience)
    await planner.scale(ScaleRequest(NAMESPACE, "old", 3))
    await wait_until(lambda: _are_pods_running(platform, "old", 3), "it grows", patience)
    await planner.disown(DisownRequest(NAMESPACE, "old"))
    await wait_until(lambda: _is_workload_gone(platform, "old", NAMESPACE), "it is not ours any more", patience)
    for name in platform.members:
        found = await platform.member_api(name).get(DEPLOYMENTS, NAMESPACE, "old")
        if found is not None:
            await platform.member_api(name).delete(DEPLOYMENTS, NAMESPACE, "old", uid=found["metadata"]["uid"])


async def _lend_nodes(platform: InProcess, kept: Confidential, patience: float) -> None:
    await _create_object(platform, POOL, SECRETS, "encode-key", data=_secret_data(kept.of_pool_pod))
    settings = await _create_object(platform, POOL, CONFIG_MAPS, "encode-settings", data={"codec": "av1"})
    await _create_namespace(platform, OWNER, f"{POD_NAMESPACE_PREFIX}{NAMESPACE}", {FLEET_LABEL: FLEET_ID})
    rule = LendingRule("all", (), "dedicated", 100, 0, 1, 0.0)
    lending = platform.descheduler()
    await lending.declare_lending(DeclareLendingRequest(OWNER, POOL, (rule,), grace_seconds=1, cooldown_seconds=1))
    await wait_until(
        lambda: _has_open_nodes(platform, 3), "all nodes of the owner are virtual ones in the pool", patience
    )
    async with _deployed_on_virtual_nodes(platform, "encode", 2, "3"):
        await wait_until(
            lambda: _are_all_running(platform, OWNER, "app=encode", 2), "real pods run on lent nodes", patience
        )
        await wait_until(lambda: _are_all_running(platform, POOL, "app=encode", 2), "their pool pods say so", patience)
        assert [copy["data"] for copy in await _list_copies(platform, WHOLE_SECRETS)] == [
            _secret_data(kept.of_pool_pod)
        ]
        await _read_log_of_virtual_node(platform)
        (pool_pod, _) = await platform.member_api(POOL).list(PODS, NAMESPACE, "app=encode")
        place, image = (NAMESPACE, pool_pod["metadata"]["name"]), {"spec": {"containers": [{"image": "encode:2"}]}}
        changed = json.loads(json.dumps(pool_pod["spec"]["containers"]))
        changed[0]["image"] = image["spec"]["containers"][0]["image"]
        await platform.member_api(POOL).patch(PODS, *place, {"spec": {"containers": changed}}, resource_version="")
        await wait_until(
            lambda: _has_image_in_real_pods(platform, "encode:2"), "the change reaches its real pod", patience
        )
        change, version = {"data": {"codec": "h264"}}, settings["metadata"]["resourceVersion"]
        await platform.member_api(POOL).patch(
            CONFIG_MAPS, NAMESPACE, "encode-settings", change, resource_version=version
        )
        await wait_until(lambda: _is_codec_in_copies(platform, "h264"), "the change reaches the copy", patience)
    await wait_until(lambda: _are_all_running(platform, OWNER, "app=encode", 0), "no real pod is left", patience)
    await wait_until(lambda: _has_no_copies(platform), "unused copies and their namespace are removed", 3 * patience)
    (full, *_) = await platform.member_api(POOL).list(NODES, label_selector=LENT_CLUSTER)
    async with _deployed_on_virtual_nodes(platform, "many", 5, "100m", full["metadata"]["labels"][HOSTNAME]):
        await wait_until(
            lambda: _are_all_running(platform, OWNER, "app=many", 5), "many real pods run on one node", patience
        )
        await lending.withdraw_lending(WithdrawLendingRequest(OWNER, "done"))
        await wait_until(lambda: _are_all_nodes_returned(platform), "each node is back", patience)


@asynccontextmanager
async def _deployed_on_virtual_nodes(
    platform: InProcess, name: str, replicas: int, cpu: str, hostname: str = ""
) -> AsyncIterator[None]:
    """Deploys pods that only virtual nodes take. hostname: of the node that all of them must use; empty: of any."""
    deployed = json.loads(deployment(name, NAMESPACE, replicas, cpu=cpu))
    pod = deployed["spec"]["template"]["spec"]
    pod |= {
        "terminationGracePeriodSeconds": 2,
        "tolerations": [{"key": POOL_TAINT, "operator": "Exists"}],
        "nodeSelector": {SUPPLY_CLASS: "dedicated", **({HOSTNAME: hostname} if hostname else {})},
    }
    pod["containers"][0]["envFrom"] = [{"secretRef": {"name": "encode-key"}}]
    pod["volumes"] = [{"name": "settings", "configMap": {"name": "encode-settings"}}]
    api = platform.member_api(POOL)
    made = await api.create(DEPLOYMENTS, deployed)
    yield
    await api.delete(DEPLOYMENTS, NAMESPACE, name, uid=made["metadata"]["uid"])


async def _read_log_of_virtual_node(platform: InProcess) -> None:
    """As the kubelet API does. kwok has no kubelet that would answer: that its API server asks for one, is enough."""
    (lent,) = platform.running["vk-bridge-1"].service.lent_pods()
    pool = lent.find_pool(POOL)
    name = (await platform.member_api(POOL).list(PODS, NAMESPACE, "app=encode"))[0]["metadata"]["name"]
    assert pool is not None
    pool_pod = await pool.api.get(PODS, NAMESPACE, name)
    assert pool_pod is not None
    real = await lent.find_real_pod(POOL, pool_pod)
    assert real is not None
    try:
        async with aclosing(lent.stream_pod_logs(real, LogOptions())) as chunks:
            async for _ in chunks:
                pass
    except ClusterUnreachable as error:
        if error.reason != "server":
            raise


async def _create_object(platform: InProcess, cluster: str, kind: Kind, name: str, **fields: Any) -> Manifest:
    singular = {"secrets": "Secret", "configmaps": "ConfigMap"}[kind.plural]
    metadata = {"name": name, "namespace": NAMESPACE}
    return await platform.member_api(cluster).create(
        kind, {"apiVersion": "v1", "kind": singular, "metadata": metadata} | fields
    )


def _secret_data(token: str) -> dict[str, str]:
    return {"token": base64.b64encode(token.encode()).decode()}


async def _create_namespace(platform: InProcess, cluster: str, name: str, labels: dict[str, str] | None = None) -> None:
    metadata = {"name": name, "labels": labels or {}}
    await platform.member_api(cluster).create(
        NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    )


async def _are_pods_running(platform: InProcess, name: str, pods: int) -> bool:
    """Or ran to their end, as those of a Job."""
    found = [
        pod for cluster in platform.members for pod in await platform.member_api(cluster).list(PODS, "", f"app={name}")
    ]
    return len([pod for pod in found if _is_pod_running(pod) or pod["status"].get("phase") == "Succeeded"]) == pods


async def _is_ours(platform: InProcess, name: str) -> bool:
    reply = await platform.planner().get(GetRequest(NAMESPACE, name))
    return not any(part.adopting for part in reply.placement.parts) and all(one.current for one in reply.statuses)


async def _is_workload_gone(platform: InProcess, name: str, namespace: str) -> bool:
    try:
        await platform.planner().get(GetRequest(namespace, name))
    except RequestError as error:
        return error.code == "NOT_FOUND"
    return False


async def _are_all_running(platform: InProcess, cluster: str, selector: str, replicas: int) -> bool:
    pods = await platform.member_api(cluster).list(PODS, label_selector=selector)
    return len(pods) == replicas and all(_is_pod_running(pod) for pod in pods)


def _is_pod_running(pod: Mapping[str, Any]) -> bool:
    return (pod.get("status") or {}).get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]


async def _has_open_nodes(platform: InProcess, count: int) -> bool:
    virtual = await platform.member_api(POOL).list(NODES, label_selector=LENT_CLUSTER)
    return len([node for node in virtual if not node["spec"].get("unschedulable")]) == count


async def _has_image_in_real_pods(platform: InProcess, image: str) -> bool:
    pods = await platform.member_api(OWNER).list(PODS, label_selector="app=encode")
    return image in [pod["spec"]["containers"][0]["image"] for pod in pods]


async def _list_copies(platform: InProcess, kind: Kind) -> list[Manifest]:
    return [*await platform.member_api(OWNER).list(kind, label_selector="spillway.io/pool")]


async def _is_codec_in_copies(platform: InProcess, codec: str) -> bool:
    return [copy["data"]["codec"] for copy in await _list_copies(platform, CONFIG_MAPS)] == [codec]


async def _has_no_copies(platform: InProcess) -> bool:
    names = [one["metadata"]["name"] for one in await platform.member_api(OWNER).list(NAMESPACES)]
    return not any(name.startswith(POD_NAMESPACE_PREFIX) for name in names)


async def _are_all_nodes_returned(platform: InProcess) -> bool:
    nodes = await platform.member_api(OWNER).list(NODES)
    marked = [node for node in nodes if any(one["key"] == LENDING for one in node["spec"].get("taints") or ())]
    return not marked and not await platform.member_api(POOL).list(NODES, label_selector=LENT_CLUSTER)
