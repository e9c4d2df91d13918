"""What the vk-bridge relies on in a Kubernetes API: nodes, their Leases, pods and their ends.

Held against the simulated cluster and against a real one, as test_cluster_api.py.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from spillway.clusters.api import (
    CONFIG_MAPS,
    LEASES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    SECRETS,
    AlreadyExists,
    ClusterApi,
    Conflict,
    ListedObjects,
    Manifest,
    NotFound,
    ObjectUpserted,
    Refused,
)
from spillway.kubernetes.objects import ABSENT, NODE_LEASES
from tests.contract.cluster_harness import (
    PATIENCE_SECONDS,
    changes_until,
    config_map,
    resource_version_of,
    wait_for_running_pods,
)

pytest_plugins = ["spillway_local.pytest_infra"]

POOL_TAINT = "spillway.io/lent"
TOLERATIONS = [{"key": POOL_TAINT, "operator": "Exists"}]
READY = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastTransitionTime": "2026-01-01T00:00:00Z"}


def node_manifest(name: str, cpu: str = "2", pods: str = "10") -> Manifest:
    amounts = {"cpu": cpu, "memory": "4Gi", "pods": pods}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"type": "virtual-kubelet", "kubernetes.io/hostname": name, "ours": name},
            "annotations": {"spillway.io/loan": "7.1"},
        },
        "spec": {"taints": [{"key": POOL_TAINT, "value": "idle", "effect": "NoSchedule"}]},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [READY]},
    }


def pod_manifest(namespace: str, name: str, **spec: Any) -> Manifest:
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "1", "memory": "64Mi"}}}
    metadata = {"name": name, "namespace": namespace, "labels": {"app": namespace}, "annotations": {"note": "mine"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container], **spec}}


def status_of_running_pod(node: str) -> Manifest:
    state = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    entry = {"name": "main", "image": "none", "imageID": "", "ready": True, "restartCount": 2, "state": state}
    conditions = [{"type": one, "status": "True"} for one in ("PodScheduled", "Ready", "spillway.io/Created")]
    return {"phase": "Running", "podIP": "10.1.2.3", "conditions": conditions, "containerStatuses": [entry]}


@pytest.fixture
async def virtual(api: ClusterApi) -> AsyncIterator[Manifest]:
    """A node without a kubelet, gone after the test: other tests count nodes."""
    name = f"own-1.node-{uuid4().hex[:8]}"
    made = await api.create(NODES, node_manifest(name))
    yield made
    for one in await api.list(PODS, field_selector=f"spec.nodeName={name}"):
        place = (one["metadata"]["namespace"], one["metadata"]["name"])
        await api.delete(PODS, *place, uid=one["metadata"]["uid"], grace_seconds=0)
    await api.delete(NODES, "", name, uid=made["metadata"]["uid"])


async def create_bound_pod(api: ClusterApi, namespace: str, node: str, name: str = "p") -> Manifest:
    return await api.create(PODS, pod_manifest(namespace, name, nodeName=node, tolerations=TOLERATIONS))


def our_taints_of(node: Manifest) -> list[str]:
    """But for those that Kubernetes sets."""
    keys = [one["key"] for one in node["spec"].get("taints") or ()]
    return [key for key in keys if not key.startswith("node.kubernetes.io/")]


# ── Reads ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_read_is_never_older_than_a_write_before_it(api: ClusterApi, namespace: str, virtual: Manifest) -> None:
    """By name, by the node and by labels: what the bridge decides on."""
    node = virtual["metadata"]["name"]
    for number in range(5):
        made = await create_bound_pod(api, namespace, node, f"p{number}")
        by_node = await api.list(PODS, field_selector=f"spec.nodeName={node}")
        by_label = await api.list(PODS, label_selector=f"app={namespace}")
        assert len(by_node) == len(by_label) == number + 1
        assert resource_version_of(made) in [resource_version_of(one) for one in by_node]
        assert await api.get(PODS, namespace, f"p{number}") is not None


async def test_a_secret_is_read_with_what_it_holds(api: ClusterApi, namespace: str) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": namespace}}
    await api.create(SECRETS, {**secret, "data": {"password": "aHVudGVyMg=="}, "type": "Opaque"})
    found = await api.get(SECRETS, namespace, "s")
    assert found is not None
    assert found["data"] == {"password": "aHVudGVyMg=="}


async def test_the_pods_of_one_node_are_followed(api: ClusterApi, namespace: str, virtual: Manifest) -> None:
    node = virtual["metadata"]["name"]
    await create_bound_pod(api, namespace, node, "early")
    changes = api.follow_objects(PODS, field_selector=f"spec.nodeName={node}")
    (listed,) = await anext(changes)
    assert isinstance(listed, ListedObjects)
    assert [one.metadata.name for one in listed.objects] == ["early"]
    made = await create_bound_pod(api, namespace, node, "late")
    seen = (
        await changes_until(
            changes,
            lambda one: (
                isinstance(one, ObjectUpserted) and one.object.metadata.resource_version == resource_version_of(made)
            ),
        )
    )[-1]
    assert isinstance(seen, ObjectUpserted)
    assert seen.object.metadata.name == "late"
    await changes.aclose()  # type: ignore[attr-defined]


async def test_budgets_are_listed(api: ClusterApi, namespace: str) -> None:
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}
    kind = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget"}
    await api.create(POD_DISRUPTION_BUDGETS, {**kind, "metadata": {"name": "b", "namespace": namespace}, "spec": spec})
    (listed,) = await api.list(POD_DISRUPTION_BUDGETS, namespace)
    assert listed["spec"]["minAvailable"] == 1


# ── Writes of nodes ─────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_node_is_created_with_its_status_and_once(api: ClusterApi, virtual: Manifest) -> None:
    assert virtual["status"]["allocatable"]["cpu"] == "2"
    assert our_taints_of(virtual) == [POOL_TAINT]
    with pytest.raises(AlreadyExists):
        await api.create(NODES, node_manifest(virtual["metadata"]["name"]))


async def test_a_node_is_changed_only_at_the_version_that_was_read(api: ClusterApi, virtual: Manifest) -> None:
    """The register of a loan: of two writers that read the same, one writes."""
    name = virtual["metadata"]["name"]
    read = await api.get(NODES, "", name)
    assert read is not None
    taints = [{"key": "spillway.io/lending", "value": "checking", "effect": "NoSchedule"}]
    change = {"metadata": {"labels": {"ours": None, "new": "1"}}, "spec": {"taints": taints, "unschedulable": True}}
    changed = await patch_at_newest_version(api, name, change)
    assert changed["metadata"]["labels"].get("ours") is None
    assert changed["metadata"]["labels"]["new"] == "1"
    assert (our_taints_of(changed), changed["spec"]["unschedulable"]) == (["spillway.io/lending"], True)
    assert changed["status"]["allocatable"] == virtual["status"]["allocatable"]
    await assert_all_refused(
        Conflict,
        api.patch(NODES, "", name, change, resource_version=resource_version_of(read)),
        api.patch(NODES, "", name, {"status": {}}, resource_version=resource_version_of(read), subresource="status"),
        api.replace(NODES, read),
        api.delete(NODES, "", name, uid=read["metadata"]["uid"], resource_version=resource_version_of(read)),
    )


async def assert_all_refused(as_what: type[Exception], *calls: Awaitable[Any]) -> None:
    """Each of them, all asked at once, and by an error of exactly this type."""
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(answer) for answer in answers] == [as_what] * len(calls), answers


async def patch_at_newest_version(api: ClusterApi, name: str, change: Manifest, **more: Any) -> Manifest:
    """At a version that was just read: controllers of a real cluster write to nodes, too."""
    for _ in range(20):
        read = await api.get(NODES, "", name)
        assert read is not None
        try:
            return await api.patch(NODES, "", name, change, resource_version=resource_version_of(read), **more)
        except Conflict:
            continue
    raise AssertionError("a conflict each time")


async def test_the_status_and_the_rest_have_each_their_own_way(api: ClusterApi, virtual: Manifest) -> None:
    name = virtual["metadata"]["name"]
    amounts = {"cpu": "0", "memory": "0", "pods": "0"}
    both = {"metadata": {"labels": {"new": "1"}}, "status": {"allocatable": amounts, "capacity": amounts}}
    by_rest = await patch_at_newest_version(api, name, both)
    assert (by_rest["metadata"]["labels"]["new"], by_rest["status"]["allocatable"]["cpu"]) == ("1", "2")
    address = [{"type": "InternalIP", "address": "10.0.0.9"}]
    endpoint = {"kubeletEndpoint": {"Port": 10250}}
    status = {"allocatable": amounts, "capacity": amounts, "addresses": address, "daemonEndpoints": endpoint}
    by_status = await patch_at_newest_version(
        api, name, {"spec": {"unschedulable": True}, "status": status}, subresource="status"
    )
    assert by_status["status"]["allocatable"] == amounts
    assert (by_status["status"]["addresses"], by_status["status"]["daemonEndpoints"]) == (address, endpoint)
    assert not by_status["spec"].get("unschedulable")


async def test_a_node_is_replaced_whole(api: ClusterApi, virtual: Manifest) -> None:
    """Labels that are not in it are gone: what a merge patch cannot say of labels that it does not know."""
    for _ in range(20):
        read = await api.get(NODES, "", virtual["metadata"]["name"])
        assert read is not None
        wanted = {**read, "metadata": {**read["metadata"], "labels": {"kept": "yes"}}}
        try:
            replaced = await api.replace(NODES, wanted)
        except Conflict:  # A controller of a real cluster was quicker.
            continue
        assert replaced["metadata"]["labels"] == {"kept": "yes"}
        return
    raise AssertionError("a conflict each time")


async def test_another_uid_is_a_conflict(api: ClusterApi, namespace: str, virtual: Manifest) -> None:
    pod = await create_bound_pod(api, namespace, virtual["metadata"]["name"])
    other = str(uuid4())
    labels, status = {"metadata": {"labels": {"a": "b"}}}, {"status": status_of_running_pod("")}
    await assert_all_refused(
        Conflict,
        api.patch(PODS, namespace, "p", labels, resource_version="", uid=other),
        api.patch(PODS, namespace, "p", status, resource_version="", uid=other, subresource="status"),
        api.replace(PODS, {**pod, "metadata": {**pod["metadata"], "uid": other}}),
        api.delete(PODS, namespace, "p", uid=other, grace_seconds=0),
        api.delete(NODES, "", virtual["metadata"]["name"], uid=other),
    )
    assert await api.get(PODS, namespace, "p") is not None


async def test_what_is_not_there_is_not_found(api: ClusterApi, namespace: str) -> None:
    await assert_all_refused(
        NotFound,
        api.patch(NODES, "", "nothing", {"spec": {"unschedulable": True}}, resource_version=""),
        api.patch(PODS, namespace, "nothing", {"status": {}}, resource_version="", subresource="status"),
        api.patch(NODES, "", "nothing", {"spec": {"unschedulable": True}}, resource_version=ABSENT),
        api.replace(NODES, node_manifest("nothing") | {"metadata": {"name": "nothing", "resourceVersion": ABSENT}}),
        api.create(CONFIG_MAPS, config_map("no-such-namespace", "a")),
        api.create(PODS, pod_manifest("no-such-namespace", "a")),
    )
    await api.delete(NODES, "", "nothing", uid=str(uuid4()))
    with pytest.raises(Refused) as raised:
        await api.create(PODS, pod_manifest(namespace, "Not_A_Name"))
    assert not isinstance(raised.value, NotFound)


# ── Leases ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_nodes_lease_is_made_renewed_and_goes_with_its_node(api: ClusterApi) -> None:
    name = f"own-1.node-{uuid4().hex[:8]}"
    node = await api.create(NODES, node_manifest(name))
    uid = node["metadata"]["uid"]
    try:
        first = datetime(2026, 11, 22, 6, 0, 0, 5, tzinfo=UTC)
        made = await api.renew_node_lease(name, uid, "bridge-1", duration_seconds=40, renewed_at=first)
        again = await api.renew_node_lease(
            name, uid, "bridge-2", duration_seconds=50, renewed_at=first.replace(second=10)
        )
        assert again["metadata"]["uid"] == made["metadata"]["uid"]
        read = await api.get(LEASES, NODE_LEASES, name)
        assert read is not None
        assert read["spec"] == {
            "holderIdentity": "bridge-2",
            "leaseDurationSeconds": 50,
            "renewTime": "2026-11-22T06:00:10.000005Z",
        }
    finally:
        await api.delete(NODES, "", name, uid=uid)
    await wait_until_gone(api, LEASES, NODE_LEASES, name)


async def wait_until_gone(api: ClusterApi, kind: Any, namespace: str, name: str) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await api.get(kind, namespace, name) is not None:
            await asyncio.sleep(0.1)


# ── Pods ────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_pod_on_a_node_with_a_kubelet_ends_by_itself(api: ClusterApi, namespace: str) -> None:
    node = (await api.list(NODES))[0]["metadata"]["name"]
    made = await api.create(PODS, pod_manifest(namespace, "p", nodeName=node))
    await wait_for_running_pods(api, namespace, 1)
    await api.delete(PODS, namespace, "p", uid=made["metadata"]["uid"], grace_seconds=5)
    await wait_until_gone(api, PODS, namespace, "p")


async def test_a_pod_on_a_node_without_one_ends_when_it_is_let_go(
    api: ClusterApi, namespace: str, virtual: Manifest
) -> None:
    """A deleted pool pod is let go only when its real pod is gone; until then it stays, with its grace."""
    made = await create_bound_pod(api, namespace, virtual["metadata"]["name"])
    uid = made["metadata"]["uid"]
    before = datetime.now(UTC)
    await api.delete(PODS, namespace, "p", uid=uid, grace_seconds=60)
    ending = await api.get(PODS, namespace, "p")
    assert ending is not None
    assert ending["metadata"]["deletionGracePeriodSeconds"] == 60
    await api.delete(PODS, namespace, "p", uid=uid, grace_seconds=90)
    await api.delete(PODS, namespace, "p", uid=uid, grace_seconds=20)
    sooner = await api.get(PODS, namespace, "p")
    assert sooner is not None
    assert sooner["metadata"]["deletionGracePeriodSeconds"] == 20
    assert deletion_time_of(sooner) < deletion_time_of(ending)
    assert before < datetime.now(UTC)
    await api.delete(PODS, namespace, "p", uid=uid, grace_seconds=0)
    assert await api.get(PODS, namespace, "p") is None
    await api.delete(PODS, namespace, "p", uid=uid, grace_seconds=0)


def deletion_time_of(pod: Manifest) -> datetime:
    return datetime.fromisoformat(pod["metadata"]["deletionTimestamp"])


async def test_an_ending_pod_still_gets_its_status(api: ClusterApi, namespace: str, virtual: Manifest) -> None:
    made = await create_bound_pod(api, namespace, virtual["metadata"]["name"])
    uid = made["metadata"]["uid"]
    await api.delete(PODS, namespace, "p", uid=uid, grace_seconds=60)
    status = {"status": status_of_running_pod(virtual["metadata"]["name"])}
    await api.patch(PODS, namespace, "p", status, resource_version="", uid=uid, subresource="status")
    ending = await api.get(PODS, namespace, "p")
    assert ending is not None
    assert (ending["status"]["phase"], "deletionTimestamp" in ending["metadata"]) == ("Running", True)


async def test_a_pods_status_is_what_was_last_said_of_it(api: ClusterApi, namespace: str, virtual: Manifest) -> None:
    made = await create_bound_pod(api, namespace, virtual["metadata"]["name"])
    uid = made["metadata"]["uid"]
    wanted = status_of_running_pod(virtual["metadata"]["name"])
    shown = await api.patch(
        PODS, namespace, "p", {"status": wanted}, resource_version="", uid=uid, subresource="status"
    )
    assert (shown["status"]["phase"], shown["status"]["podIP"]) == ("Running", "10.1.2.3")
    assert shown["status"]["containerStatuses"][0]["restartCount"] == 2
    assert [one["type"] for one in shown["status"]["conditions"]] == ["PodScheduled", "Ready", "spillway.io/Created"]
    by_rest = await api.patch(PODS, namespace, "p", {"status": {"phase": "Failed"}}, resource_version="", uid=uid)
    assert by_rest["status"]["phase"] == "Running"
    failed = {"status": {"phase": "Failed"}}
    with pytest.raises(Conflict):
        await api.patch(PODS, namespace, "p", failed, resource_version=resource_version_of(made), subresource="status")


async def test_the_scheduler_puts_pods_on_a_virtual_node_as_on_others(
    api: ClusterApi, namespace: str, virtual: Manifest
) -> None:
    """Two cores take two of three pods that tolerate it, and none that does not; none is started by anybody."""
    name = virtual["metadata"]["name"]
    mine = {"nodeSelector": {"kubernetes.io/hostname": name}}
    await api.create(PODS, pod_manifest(namespace, "stranger", **mine))
    for number in range(3):
        await api.create(PODS, pod_manifest(namespace, f"p{number}", tolerations=TOLERATIONS, **mine))
    await wait_until_unschedulable(api, namespace, 2)
    bound = await api.list(PODS, field_selector=f"spec.nodeName={name}")
    assert len(bound) == 2
    assert "stranger" not in {one["metadata"]["name"] for one in bound}
    await api.create(PODS, pod_manifest(namespace, "real"))  # Bound after them, and it runs.
    assert [one["metadata"]["name"] for one in await wait_for_running_pods(api, namespace, 1)] == ["real"]


async def test_a_virtual_node_takes_pods_once_it_is_ready(api: ClusterApi, namespace: str, virtual: Manifest) -> None:
    """A node that says nothing, or that it is not ready, is tainted; only who tolerates everything would go there."""
    name = virtual["metadata"]["name"]
    status = {"conditions": [{**READY, "status": "False"}]}
    await patch_at_newest_version(api, name, {"status": status}, subresource="status")
    await wait_until_tainted(api, name, tainted=True)
    hostname = {"kubernetes.io/hostname": name}
    await api.create(PODS, pod_manifest(namespace, "p", tolerations=TOLERATIONS, nodeSelector=hostname))
    await wait_until_unschedulable(api, namespace, 1)
    await patch_at_newest_version(api, name, {"status": {"conditions": [READY]}}, subresource="status")
    await wait_until_tainted(api, name, tainted=False)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await api.list(PODS, field_selector=f"spec.nodeName={name}"):
            await asyncio.sleep(0.1)


async def wait_until_tainted(api: ClusterApi, name: str, *, tainted: bool) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            node = await api.get(NODES, "", name)
            assert node is not None
            if any(one["key"] == "node.kubernetes.io/not-ready" for one in node["spec"].get("taints") or ()) == tainted:
                return
            await asyncio.sleep(0.1)


async def test_a_closed_virtual_node_takes_no_pod(api: ClusterApi, namespace: str, virtual: Manifest) -> None:
    """Unschedulable is tolerated by who tolerates everything; no room is tolerated by nobody."""
    name = virtual["metadata"]["name"]
    none = {"cpu": "0", "memory": "0", "pods": "0"}
    await patch_at_newest_version(api, name, {"status": {"allocatable": none, "capacity": none}}, subresource="status")
    await patch_at_newest_version(api, name, {"spec": {"unschedulable": True}})
    everything = [{"operator": "Exists"}]
    hostname = {"kubernetes.io/hostname": name}
    await api.create(PODS, pod_manifest(namespace, "any", tolerations=everything, nodeSelector=hostname))
    await wait_until_unschedulable(api, namespace, 1)
    assert await api.list(PODS, field_selector=f"spec.nodeName={name}") == []


async def wait_until_unschedulable(api: ClusterApi, namespace: str, count: int) -> None:
    """So many pods have been looked at and found no node."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            pods = await api.list(PODS, namespace)
            conditions = [one for pod in pods for one in pod["status"].get("conditions") or ()]
            if sum(one.get("reason") == "Unschedulable" for one in conditions) == count and all(
                pod["spec"].get("nodeName") or pod["status"].get("conditions") for pod in pods
            ):
                return
            await asyncio.sleep(0.1)


# ── Many pods with one request ──────────────────────────────────────────────────────────────────────────────────────


async def create_labelled_pod(
    api: ClusterApi, namespace: str, node: str, name: str, label: str, **metadata: Any
) -> Manifest:
    manifest = pod_manifest(namespace, name, nodeName=node, tolerations=TOLERATIONS)
    return await api.create(
        PODS, {**manifest, "metadata": {**manifest["metadata"], "labels": {"ours": label}, **metadata}}
    )


async def grace_seconds_by_pod(api: ClusterApi, namespace: str) -> dict[str, int | None]:
    """The pods of a namespace, each with the seconds of grace with which it is being deleted."""
    return {
        one["metadata"]["name"]: one["metadata"].get("deletionGracePeriodSeconds")
        for one in await api.list(PODS, namespace)
    }


async def test_a_collection_is_what_both_selectors_name_in_one_namespace(
    api: ClusterApi, namespace: str, virtual: Manifest
) -> None:
    """Each is deleted with the grace that is named; the answer has them as they were."""
    node = virtual["metadata"]["name"]
    made = [await create_labelled_pod(api, namespace, node, f"p{number}", f"u{number}") for number in range(4)]
    await create_labelled_pod(api, namespace, "another-node", "elsewhere", "u0")
    deleted = await api.delete_collection(
        PODS,
        namespace,
        field_selector=f"spec.nodeName={node}",
        label_selector="ours in (u0,u1,u9)",
        grace_seconds=60,
    )
    assert {one["metadata"]["uid"] for one in deleted} == {one["metadata"]["uid"] for one in made[:2]}
    assert not any("deletionTimestamp" in one["metadata"] for one in deleted)
    assert await grace_seconds_by_pod(api, namespace) == {"p0": 60, "p1": 60, "p2": None, "p3": None, "elsewhere": None}


async def test_a_collection_shortens_a_grace_and_never_lengthens_one(
    api: ClusterApi, namespace: str, virtual: Manifest
) -> None:
    node = virtual["metadata"]["name"]
    for name, grace_seconds in (("long", 90), ("short", 20)):
        made = await create_labelled_pod(api, namespace, node, name, "u")
        await api.delete(PODS, namespace, name, uid=made["metadata"]["uid"], grace_seconds=grace_seconds)
    await api.delete_collection(PODS, namespace, field_selector=f"spec.nodeName={node}", grace_seconds=60)
    assert await grace_seconds_by_pod(api, namespace) == {"long": 60, "short": 20}


async def test_a_collection_as_of_a_version_has_nothing_that_came_since(
    api: ClusterApi, namespace: str, virtual: Manifest
) -> None:
    """With no grace they go at once, but for one that a finalizer keeps; what is gone by then is passed over."""
    node = virtual["metadata"]["name"]
    made = {name: await create_labelled_pod(api, namespace, node, name, "u") for name in ("gone", "there", "ended")}
    await create_labelled_pod(api, namespace, node, "kept", "u", finalizers=["example.org/keep"])
    uid = made["ended"]["metadata"]["uid"]
    over = {"status": {"phase": "Succeeded"}}
    await api.patch(PODS, namespace, "ended", over, resource_version="", uid=uid, subresource="status")
    selector = f"spec.nodeName={node},status.phase!=Succeeded,status.phase!=Failed"
    listed, version = await api.list_with_version(PODS, field_selector=f"spec.nodeName={node}")
    assert len(listed) == 4
    await create_labelled_pod(api, namespace, node, "later", "u")
    await api.delete(PODS, namespace, "gone", uid=made["gone"]["metadata"]["uid"], grace_seconds=0)
    deleted = await api.delete_collection(
        PODS, namespace, field_selector=selector, as_of_version=version, grace_seconds=0
    )
    assert {one["metadata"]["name"] for one in deleted} == {"gone", "there", "kept"}
    assert await grace_seconds_by_pod(api, namespace) == {"ended": None, "kept": 0, "later": None}
    await api.patch(PODS, namespace, "kept", {"metadata": {"finalizers": None}}, resource_version="")


async def test_a_collection_compares_no_uid_so_that_a_name_which_comes_again_is_hit(
    api: ClusterApi, namespace: str, virtual: Manifest
) -> None:
    """Why only pods whose names were drawn are deleted so."""
    node = virtual["metadata"]["name"]
    before = await create_labelled_pod(api, namespace, node, "web-0", "u")
    _, version = await api.list_with_version(PODS, field_selector=f"spec.nodeName={node}")
    await api.delete(PODS, namespace, "web-0", uid=before["metadata"]["uid"], grace_seconds=0)
    await create_labelled_pod(api, namespace, node, "web-0", "v")
    await api.delete_collection(
        PODS, namespace, field_selector=f"spec.nodeName={node}", as_of_version=version, grace_seconds=60
    )
    assert await grace_seconds_by_pod(api, namespace) == {"web-0": 60}


async def test_a_collection_of_nothing_is_well(api: ClusterApi, namespace: str, virtual: Manifest) -> None:
    node = virtual["metadata"]["name"]
    assert await api.delete_collection(PODS, namespace, field_selector=f"spec.nodeName={node}") == []
