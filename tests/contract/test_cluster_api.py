"""What Spillway relies on in a Kubernetes API, held against the simulated cluster and against a real one.

One suite, three doors: the simulated cluster in memory, the same over HTTP, and a real kube-apiserver.
"""

import asyncio
from typing import Any, cast
from uuid import uuid4

import pytest

from spillway.clusters.api import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    HORIZONTAL_POD_AUTOSCALERS,
    NAMESPACES,
    NODES,
    PODS,
    REPLICASETS,
    SECRETS,
    Change,
    ClusterApi,
    ClusterApiSettings,
    Conflict,
    Kind,
    ListedObjects,
    Manifest,
    ObjectRemoved,
    ObjectUpserted,
    Refused,
    StreamAlive,
)
from spillway.kubernetes.objects import ABSENT, AnyObject
from tests.contract.cluster_harness import (
    changes_until,
    config_map,
    deployment,
    follow_kind,
    is_change_of_name,
    resource_version_of,
    wait_for_running_pods,
)

pytest_plugins = ["spillway_local.pytest_infra"]


async def test_the_system_namespace_tells_api_servers_apart(api: ClusterApi) -> None:
    """The collector knows by its uid whether two names of the fleet are one API server."""
    first = await api.get(NAMESPACES, "", "kube-system")
    listed = {one["metadata"]["name"]: one["metadata"]["uid"] for one in await api.list(NAMESPACES)}
    again = await api.get(NAMESPACES, "", "kube-system")
    assert first["metadata"]["uid"] == again["metadata"]["uid"] == listed["kube-system"] != ""


async def test_simulated_api_servers_differ_by_their_names_and_stay_who_they_are() -> None:
    from sim.cluster import SimCluster

    uids = []
    for name in ("blue", "green", "blue"):
        async with SimCluster(name) as cluster:
            uids.append(cluster.get_object("namespaces", "kube-system", "")["metadata"]["uid"])
    assert uids[0] == uids[2] != uids[1]


async def test_what_is_created_can_be_read(api: ClusterApi, namespace: str) -> None:
    made = await api.create(CONFIG_MAPS, config_map(namespace, "a", color="blue"))
    read = await api.get(CONFIG_MAPS, namespace, "a")
    assert read is not None
    assert read["data"] == {"color": "blue"}
    assert resource_version_of(read) == resource_version_of(made)
    assert read["metadata"]["uid"] == made["metadata"]["uid"]


async def test_what_is_absent_is_none(api: ClusterApi, namespace: str) -> None:
    assert await api.get(CONFIG_MAPS, namespace, "nothing") is None
    assert await api.get(CONFIG_MAPS, "no-such-namespace", "nothing") is None
    assert await api.get(NODES, "", "nothing") is None


async def test_creating_twice_is_a_conflict(api: ClusterApi, namespace: str) -> None:
    await api.create(CONFIG_MAPS, config_map(namespace, "a"))
    with pytest.raises(Conflict) as raised:
        await api.create(CONFIG_MAPS, config_map(namespace, "a"))
    assert raised.value.reason == "AlreadyExists"


async def test_a_missing_namespace_refuses_what_is_created_in_it(api: ClusterApi) -> None:
    with pytest.raises(Refused) as raised:
        await api.create(CONFIG_MAPS, config_map("no-such-namespace", "a"))
    assert (raised.value.status, raised.value.reason) == (404, "NotFound")
    assert "no-such-namespace" in raised.value.message


async def test_a_missing_namespace_lists_as_empty(api: ClusterApi) -> None:
    assert await api.list(CONFIG_MAPS, "no-such-namespace") == []


async def test_an_invalid_object_is_refused(api: ClusterApi, namespace: str) -> None:
    with pytest.raises(Refused) as raised:
        await api.create(DEPLOYMENTS, {**deployment(namespace, "d"), "spec": {"replicas": 1}})
    assert (raised.value.status, raised.value.reason) == (422, "Invalid")


LIMIT_RANGES = Kind("", "v1", "limitranges", AnyObject)
RUNTIME_CLASSES = Kind("node.k8s.io", "v1", "runtimeclasses", AnyObject, namespaced=False)


def limit_range(namespace: str, **item: Any) -> Manifest:
    metadata, limits = {"name": "defaults", "namespace": namespace}, [{"type": "Container", **item}]
    return {"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata, "spec": {"limits": limits}}


def pod_with_resources(name: str, resources: dict[str, Any], **spec: Any) -> Manifest:
    """A pod as a controller makes it of its template."""
    container = {"name": "main", "image": "none", "resources": resources}
    metadata = {"generateName": f"{name}-", "labels": {"app": name}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container], **spec}}


DEFAULTED: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, str]]] = {
    "a request for who says nothing": ({"defaultRequest": {"cpu": "100m"}}, {}, {"cpu": "100m"}),
    "a limit is the request, too": ({"default": {"cpu": "1"}}, {}, {"cpu": "1"}),
    "a maximum is a limit": ({"max": {"cpu": "2"}}, {}, {"cpu": "2"}),
    "a minimum is a request": ({"min": {"cpu": "50m"}}, {}, {"cpu": "50m"}),
    "what is said stands": ({"default": {"cpu": "1"}}, {"requests": {"cpu": "300m"}}, {"cpu": "300m"}),
    "a limit of its own": ({"defaultRequest": {"cpu": "1"}}, {"limits": {"cpu": "2"}}, {"cpu": "2"}),
}


@pytest.mark.parametrize(("item", "resources", "requests"), DEFAULTED.values(), ids=DEFAULTED)
async def test_a_dry_run_shows_the_defaults_of_limit_ranges(
    api: ClusterApi, namespace: str, item: dict[str, Any], resources: dict[str, Any], requests: dict[str, str]
) -> None:
    await api.create(LIMIT_RANGES, limit_range(namespace, **item))
    made = await api.dry_run_create(PODS, namespace, pod_with_resources("web", resources))
    assert made["spec"]["containers"][0]["resources"]["requests"] == requests
    assert await api.list(PODS, namespace) == []


async def test_a_dry_run_shows_the_overhead_of_a_runtime_class(api: ClusterApi, namespace: str) -> None:
    metadata = {"name": namespace}  # Of all the cluster, so that it bears a name of this test alone.
    overhead, selector = {"podFixed": {"cpu": "250m", "memory": "120Mi"}}, {"sandbox": "yes"}
    found = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": metadata, "handler": "box"}
    scheduling = {"nodeSelector": selector, "tolerations": [{"key": "sandbox", "operator": "Exists"}]}
    await api.create(RUNTIME_CLASSES, {**found, "overhead": overhead, "scheduling": scheduling})
    asked = pod_with_resources("web", {"requests": {"cpu": "1"}}, runtimeClassName=namespace)
    made = await api.dry_run_create(PODS, namespace, asked)
    assert made["spec"]["overhead"] == overhead["podFixed"]
    assert made["spec"]["nodeSelector"] == selector
    assert {"key": "sandbox", "operator": "Exists"} in made["spec"]["tolerations"]
    assert made["metadata"]["name"].startswith("web-")


async def test_a_dry_run_of_what_is_refused_says_why(api: ClusterApi, namespace: str) -> None:
    with pytest.raises(Refused) as raised:
        await api.dry_run_create(PODS, namespace, pod_with_resources("web", {}, runtimeClassName="no-such-class"))
    assert (raised.value.status, raised.value.reason) == (403, "Forbidden")
    assert 'RuntimeClass "no-such-class" not found' in raised.value.message
    with pytest.raises(Refused) as raised:
        await api.dry_run_create(PODS, "no-such-namespace", pod_with_resources("web", {}))
    assert (raised.value.status, raised.value.reason) == (404, "NotFound")


async def test_a_dry_run_says_what_the_pods_of_a_deployment_become(api: ClusterApi, namespace: str) -> None:
    await api.create(LIMIT_RANGES, limit_range(namespace, default={"cpu": "200m"}))
    wanted = deployment(namespace, "web")
    wanted["spec"]["template"]["spec"]["containers"].append({"name": "more", "image": "none"})
    template = wanted["spec"]["template"]
    asked = {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "web-", **template["metadata"]}}
    made = await api.dry_run_create(PODS, namespace, {**asked, "spec": template["spec"]})
    await api.create(DEPLOYMENTS, wanted)
    for found in await wait_for_running_pods(api, namespace, 2):
        resources = [one["resources"] for one in found["spec"]["containers"]]
        assert resources == [one["resources"] for one in made["spec"]["containers"]]


async def test_an_apply_at_the_version_seen_changes_the_object(api: ClusterApi, namespace: str) -> None:
    made = await api.create(CONFIG_MAPS, config_map(namespace, "a", color="blue"))
    wanted = config_map(namespace, "a", color="red")
    uid = made["metadata"]["uid"]
    changed = await api.apply(CONFIG_MAPS, wanted, resource_version=resource_version_of(made), force=True, uid=uid)
    assert changed["data"] == {"color": "red"}
    assert changed["metadata"]["uid"] == uid
    assert resource_version_of(changed) != resource_version_of(made)


async def test_an_apply_at_a_stale_version_is_a_conflict(api: ClusterApi, namespace: str) -> None:
    made = await api.create(CONFIG_MAPS, config_map(namespace, "a", color="blue"))
    await api.apply(
        CONFIG_MAPS, config_map(namespace, "a", color="red"), resource_version=resource_version_of(made), force=True
    )
    with pytest.raises(Conflict) as raised:
        await api.apply(
            CONFIG_MAPS,
            config_map(namespace, "a", color="green"),
            resource_version=resource_version_of(made),
            force=True,
        )
    assert raised.value.reason == "Conflict"
    read = await api.get(CONFIG_MAPS, namespace, "a")
    assert read is not None
    assert read["data"] == {"color": "red"}


async def test_an_apply_that_names_its_object_never_brings_a_deleted_one_back(api: ClusterApi, namespace: str) -> None:
    made = await api.create(CONFIG_MAPS, config_map(namespace, "a"))
    uid, version = made["metadata"]["uid"], resource_version_of(made)
    await api.delete(CONFIG_MAPS, namespace, "a", uid=uid, resource_version=version)
    with pytest.raises(Conflict):
        await api.apply(CONFIG_MAPS, config_map(namespace, "a"), resource_version=version, force=True, uid=uid)
    assert await api.get(CONFIG_MAPS, namespace, "a") is None


async def test_an_apply_of_an_absent_object_creates_it_once(api: ClusterApi, namespace: str) -> None:
    await api.apply(CONFIG_MAPS, config_map(namespace, "a", color="blue"), resource_version=ABSENT, force=True)
    with pytest.raises(Conflict):
        await api.apply(CONFIG_MAPS, config_map(namespace, "a", color="red"), resource_version=ABSENT, force=True)


async def test_what_a_later_apply_leaves_out_is_removed(api: ClusterApi, namespace: str) -> None:
    wanted = config_map(namespace, "a", color="blue", size="big")
    made = await api.apply(CONFIG_MAPS, wanted, resource_version=ABSENT, force=True)
    changed = await api.apply(
        CONFIG_MAPS, config_map(namespace, "a", color="blue"), resource_version=resource_version_of(made), force=True
    )
    assert changed["data"] == {"color": "blue"}


async def test_what_was_created_by_post_is_not_removed_by_a_later_apply(api: ClusterApi, namespace: str) -> None:
    """The trap behind ABSENT: a POST's fields belong to another entry of the same manager."""
    made = await api.create(CONFIG_MAPS, config_map(namespace, "a", color="blue", size="big"))
    changed = await api.apply(
        CONFIG_MAPS, config_map(namespace, "a", color="blue"), resource_version=resource_version_of(made), force=True
    )
    assert changed["data"] == {"color": "blue", "size": "big"}


async def test_a_patch_touches_what_it_names_and_nothing_else(api: ClusterApi, namespace: str) -> None:
    made = await api.create(DEPLOYMENTS, deployment(namespace, "web"))
    pods = await wait_for_running_pods(api, namespace, 2)
    read = await api.get(DEPLOYMENTS, namespace, "web")
    assert read is not None
    marks = {"metadata": {"labels": {"ours": "yes"}, "annotations": {"note": "1"}}}
    changed = await _patch_until_written(api, namespace, marks)
    assert changed["metadata"]["labels"] == {"ours": "yes"}
    assert changed["spec"] == read["spec"]
    # An annotation counts as a change of a Deployment, so that its controller has to look at it again.
    assert changed["metadata"]["generation"] == read["metadata"]["generation"] + 1
    assert changed["metadata"]["uid"] == made["metadata"]["uid"]
    unmarked = await _patch_until_written(
        api, namespace, {"metadata": {"labels": {"ours": None}, "annotations": {"note": None}}}
    )
    assert "ours" not in (unmarked["metadata"].get("labels") or {})
    assert "note" not in (unmarked["metadata"].get("annotations") or {})
    assert {one["metadata"]["uid"] for one in await wait_for_running_pods(api, namespace, 2)} == {
        one["metadata"]["uid"] for one in pods
    }


async def _patch_until_written(api: ClusterApi, namespace: str, change: Manifest) -> Manifest:
    """Tried again while a controller writes the status in between."""
    for _ in range(20):
        read = await api.get(DEPLOYMENTS, namespace, "web")
        assert read is not None
        try:
            return await api.patch(DEPLOYMENTS, namespace, "web", change, resource_version=resource_version_of(read))
        except Conflict:
            continue
    raise AssertionError("always a conflict")


async def test_a_patch_at_a_stale_version_is_a_conflict(api: ClusterApi, namespace: str) -> None:
    made = await api.create(CONFIG_MAPS, config_map(namespace, "a", color="blue"))
    red = {"data": {"color": "red"}}
    await api.patch(CONFIG_MAPS, namespace, "a", red, resource_version=resource_version_of(made))
    with pytest.raises(Conflict):
        await api.patch(
            CONFIG_MAPS, namespace, "a", {"data": {"color": "green"}}, resource_version=resource_version_of(made)
        )
    read = await api.get(CONFIG_MAPS, namespace, "a")
    assert read is not None
    assert read["data"] == {"color": "red"}


async def test_a_patch_never_creates(api: ClusterApi, namespace: str) -> None:
    with pytest.raises(Refused) as raised:
        await api.patch(CONFIG_MAPS, namespace, "nothing", {"data": {}}, resource_version=ABSENT)
    assert raised.value.status == 404


async def test_an_apply_of_a_live_object_cleaned_changes_nothing_but_what_it_says(
    api: ClusterApi, namespace: str
) -> None:
    """What adopting relies on: every default that the server filled in may come back, and no pod rolls."""
    await api.create(DEPLOYMENTS, deployment(namespace, "web"))
    await wait_for_running_pods(api, namespace, 2)
    read = await api.get(DEPLOYMENTS, namespace, "web")
    assert read is not None
    declared = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": namespace},
        "spec": read["spec"] | {"replicas": 3},
    }
    changed = await api.apply(DEPLOYMENTS, declared, resource_version="", force=True)
    assert changed["spec"] == read["spec"] | {"replicas": 3}
    await wait_for_running_pods(api, namespace, 3)
    assert len(await api.list(REPLICASETS, namespace)) == 1


async def test_autoscalers_are_listed_with_what_they_scale(api: ClusterApi, namespace: str) -> None:
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    metadata = {"name": "web-hpa", "namespace": namespace}
    spec = {"scaleTargetRef": reference, "minReplicas": 1, "maxReplicas": 4}
    kind = "HorizontalPodAutoscaler"
    manifest = {"apiVersion": "autoscaling/v2", "kind": kind, "metadata": metadata, "spec": spec}
    await api.create(HORIZONTAL_POD_AUTOSCALERS, manifest)
    listed = await api.list(HORIZONTAL_POD_AUTOSCALERS, namespace)
    assert [one["spec"]["scaleTargetRef"] for one in listed] == [reference]


async def test_a_delete_compares_its_preconditions(api: ClusterApi, namespace: str) -> None:
    made = await api.create(CONFIG_MAPS, config_map(namespace, "a"))
    uid, version = made["metadata"]["uid"], resource_version_of(made)
    with pytest.raises(Conflict):
        await api.delete(CONFIG_MAPS, namespace, "a", uid=str(uuid4()), resource_version=version)
    with pytest.raises(Conflict):
        await api.delete(CONFIG_MAPS, namespace, "a", uid=uid, resource_version=ABSENT)
    assert await api.get(CONFIG_MAPS, namespace, "a") is not None
    await api.delete(CONFIG_MAPS, namespace, "a", uid=uid, resource_version=version)
    assert await api.get(CONFIG_MAPS, namespace, "a") is None


async def test_deleting_what_is_absent_is_well(api: ClusterApi, namespace: str) -> None:
    await api.delete(CONFIG_MAPS, namespace, "nothing", uid=str(uuid4()), resource_version="7")


async def test_a_list_has_every_page_and_only_its_namespace(api: ClusterApi, namespace: str) -> None:
    names = [f"map-{number}" for number in range(5)]
    for name in names:
        await api.create(CONFIG_MAPS, config_map(namespace, name))
    listed = await api.list(CONFIG_MAPS, namespace)
    ours = [one["metadata"]["name"] for one in listed if one["metadata"]["name"].startswith("map-")]
    assert sorted(ours) == names
    assert {one["metadata"]["namespace"] for one in listed} == {namespace}


SELECTORS = {
    "equal": ("tier=own", {"a", "b"}),
    "not equal": ("tier,tier!=own", {"c"}),
    "one of": ("size in (big,small)", {"a", "b", "c"}),
    "none of": ("tier,size notin (big)", {"b", "c"}),
    "has": ("odd", {"c"}),
    "has not": ("tier,!odd", {"a", "b"}),
    "several": ("tier=own,size=big", {"a"}),
}


@pytest.mark.parametrize(("selector", "expected"), SELECTORS.values(), ids=SELECTORS)
async def test_label_selectors(api: ClusterApi, namespace: str, selector: str, expected: set[str]) -> None:
    labels = {"a": {"tier": "own", "size": "big"}, "b": {"tier": "own", "size": "small"}}
    labels["c"] = {"tier": "cloud", "size": "small", "odd": "yes"}
    for name, own in labels.items():
        await api.create(CONFIG_MAPS, config_map(namespace, name, own))
    listed = await api.list(CONFIG_MAPS, namespace, label_selector=selector)
    assert {one["metadata"]["name"] for one in listed} == expected


async def test_following_tells_what_is_there_and_then_what_becomes_of_it(api: ClusterApi, namespace: str) -> None:
    for number in range(3):
        await api.create(CONFIG_MAPS, config_map(namespace, f"early-{number}", {"ours": namespace}))
    async with follow_kind(api, CONFIG_MAPS, label_selector=f"ours={namespace}") as changes:
        (listed,) = await anext(changes)
        assert isinstance(listed, ListedObjects)
        assert sorted(one.metadata.name for one in listed.objects) == ["early-0", "early-1", "early-2"]
        made = await api.create(CONFIG_MAPS, config_map(namespace, "late", {"ours": namespace}))
        seen = (await changes_until(changes, is_change_of_name(ObjectUpserted, "late")))[-1]
        assert isinstance(seen, ObjectUpserted)
        assert seen.object.metadata.resource_version == resource_version_of(made)
        await api.delete(CONFIG_MAPS, namespace, "late", uid=made["metadata"]["uid"], resource_version="")
        await changes_until(changes, is_change_of_name(ObjectRemoved, "late"))


async def test_what_leaves_the_selection_is_removed(api: ClusterApi, namespace: str) -> None:
    made = await api.create(CONFIG_MAPS, config_map(namespace, "a", {"ours": namespace}))
    async with follow_kind(api, CONFIG_MAPS, label_selector=f"ours={namespace}") as changes:
        await anext(changes)
        other = config_map(namespace, "a", {"ours": "no-more"})
        await api.apply(CONFIG_MAPS, other, resource_version=resource_version_of(made), force=True)
        await changes_until(changes, is_change_of_name(ObjectRemoved, "a"))


async def test_a_quiet_stream_says_that_it_is_open(api: ClusterApi, namespace: str) -> None:
    async with follow_kind(api, CONFIG_MAPS, label_selector=f"ours={namespace}") as changes:
        await anext(changes)
        await changes_until(changes, lambda change: isinstance(change, StreamAlive))


async def test_following_resumes_where_the_server_ended_the_watch(api: ClusterApi, namespace: str) -> None:
    """With watches of a second, nothing is listed twice and nothing is missed or told twice."""
    short = ClusterApiSettings(watch_shortest_seconds=1, watch_longest_seconds=1, first_pause_seconds=0.05)
    api.settings = short
    wanted = [f"map-{number}" for number in range(8)]
    seen: list[Change] = []
    async with follow_kind(api, CONFIG_MAPS, label_selector=f"ours={namespace}") as changes:
        await anext(changes)
        for name in wanted:
            await api.create(CONFIG_MAPS, config_map(namespace, name, {"ours": namespace}))
            seen.extend(await changes_until(changes, is_change_of_name(ObjectUpserted, name)))
            await asyncio.sleep(0.3)
    assert [one.object.metadata.name for one in seen if isinstance(one, ObjectUpserted)] == wanted
    assert not [one for one in seen if isinstance(one, ListedObjects)]


async def test_a_field_selector_finds_the_pods_of_a_node(api: ClusterApi, namespace: str) -> None:
    await api.create(DEPLOYMENTS, deployment(namespace, "web", replicas=3))
    bound = await wait_for_running_pods(api, namespace, 3)
    node = bound[0]["spec"]["nodeName"]
    found = await api.list(PODS, namespace, field_selector=f"spec.nodeName={node}")
    assert {one["metadata"]["name"] for one in found} == {
        one["metadata"]["name"] for one in bound if one["spec"]["nodeName"] == node
    }


async def test_pods_lead_to_their_deployment_by_owner_references(api: ClusterApi, namespace: str) -> None:
    made = await api.create(DEPLOYMENTS, deployment(namespace, "web"))
    await wait_for_running_pods(api, namespace, 2)
    async with follow_kind(api, PODS) as changes:
        (pods,) = await anext(changes)
    async with follow_kind(api, REPLICASETS) as changes:
        (replica_sets,) = await anext(changes)
    owners = {one.metadata.uid: one.metadata.owner_references[0].uid for one in replica_sets.objects}
    ours = [one for one in pods.objects if one.metadata.namespace == namespace]
    assert len(ours) == 2
    assert {owners[one.metadata.owner_references[0].uid] for one in ours} == {made["metadata"]["uid"]}
    assert all(one.spec.node_name and one.status.phase == "Running" for one in ours)


async def test_a_deployment_reports_what_it_has(api: ClusterApi, namespace: str) -> None:
    await api.create(DEPLOYMENTS, deployment(namespace, "web"))
    async with follow_kind(api, DEPLOYMENTS) as changes:
        (listed,) = await anext(changes)
        known = [one for one in listed.objects if one.metadata.namespace == namespace]

        def is_ready(change: Change) -> bool:
            mine = isinstance(change, ObjectUpserted) and change.object.metadata.namespace == namespace
            return mine and cast(ObjectUpserted, change).object.status.ready_replicas == 2

        if not any(one.status.ready_replicas == 2 for one in known):
            await changes_until(changes, is_ready)


async def test_secrets_are_followed_without_what_they_hold(api: ClusterApi, namespace: str) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": namespace}}
    await api.create(SECRETS, {**secret, "stringData": {"password": "hunter2"}})
    listed = await api.list(SECRETS, namespace)
    assert [one["metadata"]["name"] for one in listed] == ["s"]
    assert "data" not in listed[0]
    async with follow_kind(api, SECRETS) as changes:
        (known,) = await anext(changes)
    assert ("s", namespace) in {(one.metadata.name, one.metadata.namespace) for one in known.objects}


async def test_a_probe_counts_nodes_and_pods(api: ClusterApi, namespace: str) -> None:
    await api.create(DEPLOYMENTS, deployment(namespace, "web", replicas=4))
    await wait_for_running_pods(api, namespace, 4)
    probe = await api.count_nodes_and_pods()
    assert probe.nodes == len(await api.list(NODES)) == 3
    assert probe.pods == len(await api.list(PODS)) >= 4
    assert probe.started_at <= asyncio.get_running_loop().time()
