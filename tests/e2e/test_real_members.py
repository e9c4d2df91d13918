"""What only real control planes do: quotas and admission that refuse pods, a control plane that dies and comes back."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from spillway.api import ApplyRequest, ConfirmRequest, DeleteRequest, ListBrakesRequest
from spillway.clusters.api import ClusterApi, Conflict, Refused
from spillway.kubernetes.objects import NAMESPACES, PODS, RESOURCE_QUOTAS, AnyObject, Kind
from spillway_local.fleet_plan import deployment
from spillway_local.stack import Stack

from .running import NAMESPACE, Platform, open_platform, wait_until

pytestmark = pytest.mark.kube

POLICIES = Kind("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies", AnyObject, namespaced=False)
BINDINGS = Kind("admissionregistration.k8s.io", "v1", "validatingadmissionpolicybindings", AnyObject, namespaced=False)

QUOTA = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "few", "namespace": NAMESPACE},
    "spec": {"hard": {"pods": "5"}},
}
POLICY = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingAdmissionPolicy",
    "metadata": {"name": "no-web"},
    "spec": {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
            ]
        },
        "validations": [
            {
                "expression": "!has(object.metadata.labels) || !('app' in object.metadata.labels) || "
                "object.metadata.labels['app'] != 'web'",
                "message": "web is not allowed here",
            }
        ],
    },
}
BINDING = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingAdmissionPolicyBinding",
    "metadata": {"name": "no-web"},
    "spec": {"policyName": "no-web", "validationActions": ["Deny"]},
}

LIMIT_RANGES = Kind("", "v1", "limitranges", AnyObject)
LIMIT_RANGE = {
    "apiVersion": "v1",
    "kind": "LimitRange",
    "metadata": {"name": "cores", "namespace": NAMESPACE},
    "spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": "2"}}]},
}
OWN_1_THEN_CLOUD = json.dumps(
    {
        "apiVersion": "spillway.io/v1",
        "kind": "PlacementPolicy",
        "metadata": {"name": "web"},
        "spec": {
            "tiers": [{"name": name, "clusters": {"names": [name]}, "split": "Pack"} for name in ("own-1", "cloud-1")]
        },
    }
)

MEMBER_PARTS = ("apiserver", "scheduler", "controllers")
"""Not kwok: a new one waits until the leases of the one before have run out, and its pods never end until then."""
LOSS_POLICY = json.dumps(
    {
        "apiVersion": "spillway.io/v1",
        "kind": "PlacementPolicy",
        "metadata": {"name": "web"},
        "spec": {"onClusterLoss": {"after": "30s"}},
    }
)


@pytest.fixture
async def fleet(kube_stack: Stack) -> AsyncIterator[Platform]:
    async with open_platform(kube_stack) as platform:
        await platform.join_fleet()
        await platform.delete_all_workloads()
        yield platform
        await platform.delete_all_workloads()


async def test_pods_that_a_quota_and_an_admission_policy_refuse_run_elsewhere(fleet: Platform) -> None:
    """own-1's quota lets 5 pods in, own-2's admission none: of 40 replicas 35 end up in the cloud, none pends."""
    own_1, own_2 = fleet.members.member_api("own-1"), fleet.members.member_api("own-2")
    for api in (own_1, own_2):
        await _ensure_object(
            api, NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        )
    await _ensure_object(own_1, RESOURCE_QUOTAS, QUOTA)
    await _ensure_object(own_2, POLICIES, POLICY)
    await _ensure_object(own_2, BINDINGS, BINDING)
    try:
        await wait_until("the quota is counted", lambda: _quota_is_counted(own_1))
        await wait_until("the policy refuses", lambda: _refuses_pods(own_2))
        reply = await fleet.planner.apply(ApplyRequest((deployment("web", NAMESPACE, 40),)))
        assert reply.unplaced == 0  # Who was told of the refusals in time has planned with them.

        running = await fleet.wait_until_running("web", 40, seconds=180)
        assert running == {"own-1": 5, "cloud-1": 35}
        await fleet.planner.delete(DeleteRequest(NAMESPACE, "web"))
    finally:
        for api, kind, name in (
            (own_1, RESOURCE_QUOTAS, "few"),
            (own_2, BINDINGS, "no-web"),
            (own_2, POLICIES, "no-web"),
        ):
            await _remove_object(api, kind, name)


async def test_what_a_limit_range_gives_to_pods_is_planned_with(fleet: Platform) -> None:
    """In own-1 a pod asks for 2 cores that no manifest says: 24 fit its 12 nodes, and all run where they were put."""
    own_1 = fleet.members.member_api("own-1")
    for name in ("own-1", "cloud-1"):
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        await _ensure_object(fleet.members.member_api(name), NAMESPACES, namespace)
    await _ensure_object(own_1, LIMIT_RANGES, LIMIT_RANGE)
    try:
        manifest = json.loads(deployment("web", NAMESPACE, 40))
        del manifest["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"]
        reply = await fleet.planner.apply(ApplyRequest((json.dumps(manifest), OWN_1_THEN_CLOUD)))
        assert ({part.cluster: part.replicas for part in reply.parts}, reply.warnings) == (
            {"own-1": 24, "cloud-1": 16},
            (),
        )
        assert await fleet.wait_until_running("web", 40) == {"own-1": 24, "cloud-1": 16}
        await fleet.planner.delete(DeleteRequest(NAMESPACE, "web"))
    finally:
        await _remove_object(own_1, LIMIT_RANGES, "cores")


async def test_a_control_plane_that_dies_and_returns_costs_no_available_replica(fleet: Platform) -> None:
    """own-2 is lost with its share of 60: replaced once confirmed; on its return the surplus goes without a dip."""
    await wait_until(
        "own-2 lets such pods in", lambda: _is_cluster_used(fleet, "own-2"), 150
    )  # A test before made it refuse them.
    await fleet.planner.apply(ApplyRequest((deployment("web", NAMESPACE, 60), LOSS_POLICY)))
    before = await fleet.wait_until_running("web", 60)
    assert set(before) == {"own-1", "own-2"}
    uids = {pod["metadata"]["uid"] for pod in await fleet.list_pods("own-2", "web")}
    try:
        for part in MEMBER_PARTS:
            await fleet.kill_program_for_good(f"own-2-{part}")
        await wait_until(
            "the loss waits for a confirmation", lambda: _is_confirmation_asked(fleet, "Failover/own-2"), 120
        )
        assert await fleet.placed_replicas_by_cluster("web") == before
        await fleet.planner.confirm(ConfirmRequest("Failover/own-2"))
        await wait_until("all 60 are available elsewhere", lambda: _are_replicas_available(fleet, 60), 120)
        async with fleet.watch_pods_of_app("web") as seen:
            await _start_control_plane(fleet, "own-2")
            await wait_until(
                "the return waits for a confirmation", lambda: _is_confirmation_asked(fleet, "Return/own-2"), 120
            )
            await fleet.planner.confirm(ConfirmRequest("Return/own-2"))
            after = await fleet.wait_until_running("web", 60, seconds=180)
    finally:
        await _start_control_plane(fleet, "own-2")
    kept = {pod["metadata"]["uid"] for pod in await fleet.list_pods("own-2", "web")}
    print(f"\nbefore {before}, after {after}, fewest ready since the loss was made good: {seen.fewest_ready}")
    assert set(after) <= {"own-1", "own-2"}
    assert kept <= uids
    assert seen.fewest_ready >= 60


async def _start_control_plane(fleet: Platform, cluster: str) -> None:
    """Those parts of a control plane that do not run."""
    for program in (f"{cluster}-{part}" for part in MEMBER_PARTS):
        if not fleet.stack.pids(program):
            await asyncio.to_thread(fleet.stack.supervision.start_program, program)


async def _is_cluster_used(fleet: Platform, cluster: str) -> bool:
    plan = await fleet.planner.plan(ApplyRequest((deployment("web", NAMESPACE, 60), LOSS_POLICY)))
    return any(part.cluster == cluster and part.replicas for part in plan.parts)


async def _is_confirmation_asked(fleet: Platform, scope: str) -> bool:
    confirmations = (await fleet.planner.list_brakes(ListBrakesRequest())).confirmations
    return any(entry.scope == scope and not entry.given for entry in confirmations)


async def _are_replicas_available(fleet: Platform, replicas: int) -> bool:
    return sum((await fleet.ready_pods_by_cluster("web")).values()) >= replicas


async def _ensure_object(api: ClusterApi, kind: Kind, manifest: dict[str, Any]) -> None:
    metadata = manifest["metadata"]
    if await api.get(kind, metadata.get("namespace", ""), metadata["name"]) is None:
        await api.create(kind, manifest)


async def _remove_object(api: ClusterApi, kind: Kind, name: str) -> None:
    """Its controllers may write to it in between."""
    namespace = NAMESPACE if kind.namespaced else ""

    async def is_accepted() -> bool:
        found = await api.get(kind, namespace, name)
        if found is None:
            return True
        metadata = found["metadata"]
        try:
            await api.delete(kind, namespace, name, uid=metadata["uid"], resource_version=metadata["resourceVersion"])
        except Conflict:
            return False
        return True

    await wait_until(f"{kind.plural} {name} may go", is_accepted)


async def _quota_is_counted(api: ClusterApi) -> bool:
    quota = await api.get(RESOURCE_QUOTAS, NAMESPACE, "few")
    return bool(quota and quota.get("status", {}).get("hard"))


async def _refuses_pods(api: ClusterApi) -> bool:
    """A policy is in force a moment after it was created: a pod is tried until it is refused."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "probe", "namespace": NAMESPACE, "labels": {"app": "web"}},
        "spec": {
            "containers": [{"name": "app", "image": "registry.example/app:1"}],
            "nodeName": "nowhere",
            "terminationGracePeriodSeconds": 0,
        },
    }
    try:
        await api.create(PODS, pod)
    except Refused:
        return True
    await _remove_object(api, PODS, "probe")
    return False
