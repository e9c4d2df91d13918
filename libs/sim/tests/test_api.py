"""The API's semantics through the in-memory door, in virtual time."""

import asyncio
import json
from typing import Any

import pytest

from sim.cluster import SimCluster
from sim.manifests import deployment, pod
from sim.rest import SimTransport
from sim.settings import Faults, NodeSpec, Settings
from spillway.clusters.api import ClusterUnreachable, Transport, TransportStatus

pytestmark = pytest.mark.looptime
DEPLOYMENT = "/apis/apps/v1/namespaces/default/deployments/web"
MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/pods"


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": data}, "data": data}


async def test_the_door_is_a_transport() -> None:
    async with SimCluster("a") as cluster:
        transport: Transport = SimTransport(cluster)
        assert (await transport.request("GET", "/readyz", {})).body == b"ok"


async def test_pages_come_from_one_moment_and_expire(client_of: Any) -> None:
    async with SimCluster("a") as cluster:
        client = client_of(cluster)
        for index in range(5):
            await client.send_request("POST", MAPS, config_map(f"m{index}"))
        _, first = await client.send_request("GET", "/api/v1/configmaps", limit="2")
        await client.send_request("DELETE", f"{MAPS}/m4")
        _, second = await client.send_request(
            "GET", "/api/v1/configmaps", limit="3", **{"continue": first["metadata"]["continue"]}
        )
        names = [one["metadata"]["name"] for one in first["items"] + second["items"]]
        assert names == ["m0", "m1", "m2", "m3", "m4"]
        assert first["metadata"]["remainingItemCount"] == 3
        assert first["metadata"]["resourceVersion"] == second["metadata"]["resourceVersion"]
        assert "continue" not in second["metadata"]
        cluster.expire_history()
        status, error = await client.send_request("GET", MAPS, **{"continue": first["metadata"]["continue"]})
        assert (status, error["reason"]) == (410, "Expired")


async def test_a_collection_as_of_a_version_is_what_was_there_then(client_of: Any) -> None:
    async with SimCluster("a") as cluster:
        client = client_of(cluster)
        for name in ("stays", "becomes", "goes", "no"):
            await client.send_request(
                "POST", MAPS, {**config_map(name), "metadata": {"name": name, "labels": {"a": name[0]}}}
            )
        _, listed = await client.send_request("GET", MAPS)
        merge = {"metadata": {"labels": {"a": "other"}}}
        await client.send_request("PATCH", f"{MAPS}/becomes", merge)
        await client.send_request("DELETE", f"{MAPS}/goes")
        await client.send_request(
            "POST", MAPS, {**config_map("late"), "metadata": {"name": "late", "labels": {"a": "s"}}}
        )
        exact = {"resourceVersion": listed["metadata"]["resourceVersion"], "resourceVersionMatch": "Exact"}
        _, deleted = await client.send_request("DELETE", MAPS, labelSelector="a in (s,b,g)", **exact)
        assert [one["metadata"]["name"] for one in deleted["items"]] == ["becomes", "goes", "stays"]
        _, left = await client.send_request("GET", MAPS)
        assert [one["metadata"]["name"] for one in left["items"]] == ["late", "no"]
        cluster.expire_history()
        status, error = await client.send_request("DELETE", MAPS, labelSelector="a=s", **exact)
        assert (status, error["reason"]) == (410, "Expired")
        too_new = {**exact, "resourceVersion": str(10**9)}
        assert (await client.send_request("DELETE", MAPS, labelSelector="a=s", **too_new))[0] == 504
        assert len((await client.send_request("GET", MAPS))[1]["items"]) == 2


async def test_selectors_choose(client_of: Any) -> None:
    async with SimCluster("a") as cluster:
        client = client_of(cluster)
        await client.create_pod(pod("a", labels={"app": "x"}))
        await client.create_pod(pod("b", labels={"app": "y"}, nodeName="n0"))
        rows = [
            ({"labelSelector": "app in (x)"}, ["a"]),
            ({"fieldSelector": "spec.nodeName="}, ["a"]),
            ({"fieldSelector": "spec.nodeName=n0"}, ["b"]),
            ({"fieldSelector": "metadata.name=b", "labelSelector": "app=x"}, []),
        ]
        for params, names in rows:
            _, found = await client.send_request("GET", PODS, **params)
            assert [one["metadata"]["name"] for one in found["items"]] == names
        assert (await client.send_request("GET", PODS, fieldSelector="spec.x=1"))[0] == 400


async def test_a_watch_says_what_happened_since(client_of: Any) -> None:
    async with SimCluster("a") as cluster:
        client = client_of(cluster)
        _, listed = await client.send_request("GET", MAPS)
        await client.send_request("POST", MAPS, config_map("m", team="x"))
        await client.merge_patch(f"{MAPS}/m", {"metadata": {"labels": {"team": "y"}}})
        await client.send_request("DELETE", f"{MAPS}/m")
        since = {"resourceVersion": listed["metadata"]["resourceVersion"], "timeoutSeconds": "5"}
        events = await client.watch_events(MAPS, **since)
        assert [one["type"] for one in events] == ["ADDED", "MODIFIED", "DELETED"]
        versions = [int(one["object"]["metadata"]["resourceVersion"]) for one in events]
        assert versions == sorted(set(versions))
        selected = await client.watch_events(MAPS, labelSelector="team=x", **since)
        assert [one["type"] for one in selected] == ["ADDED", "DELETED"]
        assert events[0]["object"]["kind"] == "ConfigMap"


async def test_a_watch_without_a_version_begins_with_the_state(client_of: Any) -> None:
    async with SimCluster("a") as cluster:
        client = client_of(cluster)
        await client.send_request("POST", MAPS, config_map("m"))
        assert [one["type"] for one in await client.watch_events(MAPS, timeoutSeconds="5")] == ["ADDED"]
        initial = await client.watch_events(
            MAPS, timeoutSeconds="5", sendInitialEvents="true", allowWatchBookmarks="true"
        )
        assert [one["type"] for one in initial] == ["ADDED", "BOOKMARK"]
        assert initial[1]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_quiet_watches_get_bookmarks_and_end_on_time(client_of: Any) -> None:
    async with SimCluster("a", Settings(bookmark_seconds=60)) as cluster:
        client = client_of(cluster)
        _, listed = await client.send_request("GET", "/api/v1/nodes")
        started = asyncio.get_running_loop().time()
        version = listed["metadata"]["resourceVersion"]
        events = await client.watch_events(
            "/api/v1/nodes", resourceVersion=version, allowWatchBookmarks="true", timeoutSeconds="310"
        )
        assert [one["type"] for one in events] == ["BOOKMARK"] * 5
        assert events[-1]["object"]["metadata"]["resourceVersion"] == version
        assert asyncio.get_running_loop().time() - started == pytest.approx(310, abs=1)


@pytest.mark.timeout(20)
async def test_a_watch_that_asked_for_no_bookmarks_waits_in_peace(client_of: Any) -> None:
    """The member once looked at the clock again and again after a bookmark was due, and virtual time stood still."""
    async with SimCluster("a", Settings(bookmark_seconds=60)) as cluster:
        started = asyncio.get_running_loop().time()
        assert await client_of(cluster).watch_events(MAPS, timeoutSeconds="310") == []
        assert asyncio.get_running_loop().time() - started == pytest.approx(310, abs=1)


async def test_forgotten_history_is_410_in_both_forms(client_of: Any) -> None:
    for form in ("event", "status"):
        async with SimCluster("a", Settings(history_changes=5, expired_watch_as=form)) as cluster:
            client = client_of(cluster)
            _, listed = await client.send_request("GET", MAPS)
            for index in range(12):
                await client.send_request("POST", MAPS, config_map(f"m{index}"))
            since = {"resourceVersion": listed["metadata"]["resourceVersion"], "timeoutSeconds": "5"}
            if form == "event":
                [event] = await client.watch_events(MAPS, **since)
                assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
            else:
                with pytest.raises(TransportStatus) as raised:
                    await client.watch_events(MAPS, **since)
                assert raised.value.status == 410


async def test_a_version_from_the_future_is_refused(client_of: Any) -> None:
    async with SimCluster("a") as cluster:
        status, error = await client_of(cluster).send_request("GET", PODS, resourceVersion="999999")
        assert (status, error["details"]["causes"][0]["reason"]) == (504, "ResourceVersionTooLarge")


async def test_a_watch_from_a_version_to_come_waits_for_it(client_of: Any) -> None:
    """Without a word, as API servers do that were restored from a backup."""
    async with SimCluster("a") as cluster:
        client = client_of(cluster)
        version = cluster.control_plane.world.store.version
        watch = asyncio.ensure_future(
            client.watch_events(MAPS, resourceVersion=str(version + 2), allowWatchBookmarks="true")
        )
        await asyncio.sleep(100)
        for name in ("a", "b", "c"):
            await client.send_request("POST", MAPS, {"metadata": {"name": name}})
        await asyncio.sleep(1)
        cluster.drop_watches()
        assert [event["object"]["metadata"]["name"] for event in await watch] == ["c"]


async def test_versions_that_begin_again_leave_everything_else_as_it_is(client_of: Any) -> None:
    """And end the watches: who comes back from a version of before hears nothing, who lists has it all."""
    async with SimCluster("a") as cluster:
        client = client_of(cluster)
        await client.send_request("POST", MAPS, {"metadata": {"name": "a"}})
        _, before = await client.send_request("GET", MAPS)
        since = {"resourceVersion": before["metadata"]["resourceVersion"], "allowWatchBookmarks": "true"}
        watch = asyncio.ensure_future(client.watch_events(MAPS, **since))
        await asyncio.sleep(1)
        cluster.restart_versions()
        assert await watch == []
        _, after = await client.send_request("GET", MAPS)
        assert int(after["metadata"]["resourceVersion"]) < int(before["metadata"]["resourceVersion"])
        assert [one["metadata"]["uid"] for one in after["items"]] == [one["metadata"]["uid"] for one in before["items"]]
        later = asyncio.ensure_future(client.watch_events(MAPS, **since))
        await client.send_request("POST", MAPS, {"metadata": {"name": "b"}})
        await asyncio.sleep(100)
        cluster.drop_watches()
        assert await later == []


async def events_of_broken_watch(client: Any, faults: Faults | None) -> list[Any]:
    """What a watch of pods still says when the fault begins."""
    _, listed = await client.send_request("GET", PODS)
    watch = asyncio.ensure_future(client.watch_events(PODS, resourceVersion=listed["metadata"]["resourceVersion"]))
    await asyncio.sleep(1)
    cluster = client.transport._cluster
    if faults:
        cluster.set_faults(faults)
    else:
        cluster.expire_history()
    events: list[Any] = await watch
    return events


async def test_running_watches_end_as_the_fault_says(client_of: Any) -> None:
    rows = [
        (Faults(drop_watches=True), []),
        (Faults(unauthorized=True), [401]),
        (Faults(expire_history="event"), [410]),
        (None, [410]),
    ]
    for faults, codes in rows:
        async with SimCluster("a") as cluster:
            events = await events_of_broken_watch(client_of(cluster), faults)
            assert [one["object"]["code"] for one in events] == codes


async def test_faults_at_requests(client_of: Any) -> None:
    async with SimCluster("a") as cluster:
        client = client_of(cluster)
        cluster.set_faults(Faults(unauthorized=True))
        assert (await client.send_request("GET", PODS))[0] == 401
        cluster.set_faults(Faults(garbage=True))
        with pytest.raises(json.JSONDecodeError):
            await client.send_request("GET", PODS)
        for faults in (Faults(silent=True), Faults(stall_list=True)):
            cluster.set_faults(faults)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.send_request("GET", PODS), 3600)
        assert (await client.send_request("GET", f"{PODS}/x"))[0] == 404
        cluster.set_faults(Faults(latency_seconds=7))
        started = asyncio.get_running_loop().time()
        await client.send_request("GET", PODS)
        assert asyncio.get_running_loop().time() - started == pytest.approx(7, abs=0.1)
        await client.transport.close()
        with pytest.raises(ClusterUnreachable):
            await client.send_request("GET", PODS)


async def test_a_silent_cluster_says_nothing_on_streams_and_then_goes_on(client_of: Any) -> None:
    async with SimCluster("a") as cluster:
        client = client_of(cluster)
        _, listed = await client.send_request("GET", MAPS)
        stream = client.transport.stream(
            MAPS, {"watch": "true", "resourceVersion": listed["metadata"]["resourceVersion"]}
        )
        assert await anext(stream) == b""
        cluster.set_faults(Faults(silent=True))
        pending = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(600)
        assert not pending.done()
        cluster.set_faults(Faults())
        await client.send_request("POST", MAPS, config_map("m"))
        assert json.loads(await pending)["type"] == "ADDED"
        await stream.aclose()


async def test_conflicts_and_preconditions(client_of: Any) -> None:
    async with SimCluster("a") as cluster:
        client = client_of(cluster)
        _, made = await client.send_request("POST", MAPS, config_map("m", a="1"))
        assert (await client.send_request("POST", MAPS, config_map("m")))[1]["reason"] == "AlreadyExists"
        assert (await client.send_request("PUT", f"{MAPS}/m", {**made, "data": {"a": "2"}}))[0] == 200
        status, error = await client.send_request("PUT", f"{MAPS}/m", {**made, "data": {"a": "3"}})
        assert (status, error["reason"]) == (409, "Conflict")
        assert "the object has been modified" in error["message"]
        for wrong in ({"uid": "x"}, {"resourceVersion": "1"}):
            assert (await client.send_request("DELETE", f"{MAPS}/m", {"preconditions": wrong}))[0] == 409
        assert (await client.send_request("DELETE", f"{MAPS}/m", {"preconditions": {"uid": made["metadata"]["uid"]}}))[
            0
        ] == 200
        assert (await client.send_request("GET", f"{MAPS}/m"))[0] == 404


async def test_nothing_changed_is_no_new_version(client_of: Any) -> None:
    async with SimCluster("a") as cluster:
        client = client_of(cluster)
        status, first = await client.apply_manifest(DEPLOYMENT, deployment("web", 1))
        assert status == 201
        await asyncio.sleep(3)
        _, settled = await client.send_request("GET", DEPLOYMENT)
        status, second = await client.apply_manifest(DEPLOYMENT, deployment("web", 1))
        assert (status, second["metadata"]["resourceVersion"]) == (200, settled["metadata"]["resourceVersion"])
        assert second["metadata"]["generation"] == first["metadata"]["generation"] == 1


async def test_apply_conflicts_name_the_other_manager(client_of: Any) -> None:
    async with SimCluster("a") as cluster:
        client = client_of(cluster)
        await client.apply_manifest(DEPLOYMENT, deployment("web", 1))
        await client.merge_patch(f"{DEPLOYMENT}/scale", {"spec": {"replicas": 4}}, fieldManager="kubectl")
        status, error = await client.apply_manifest(DEPLOYMENT, deployment("web", 2))
        assert status == 409
        assert error["message"] == 'Apply failed with 1 conflict: conflict with "kubectl" using apps/v1: .spec.replicas'
        status, found = await client.apply_manifest(DEPLOYMENT, deployment("web", 2), force="true")
        assert (status, found["spec"]["replicas"], found["metadata"]["generation"]) == (200, 2, 3)
        stale = deployment("web", 3) | {"metadata": {"name": "web", "resourceVersion": "1"}}
        assert (await client.apply_manifest(DEPLOYMENT, stale))[0] == 409


async def test_invalid_objects_say_which_field(client_of: Any) -> None:
    async with SimCluster("a") as cluster:
        client = client_of(cluster)
        wrong = deployment("web", 1)
        wrong["spec"]["selector"] = {"matchLabels": {"app": "other"}}
        rows = [
            (wrong, ('Deployment.apps "web" is invalid: spec.template.metadata.labels: Invalid value: '
                    '{"app":"web"}: `selector` does not match template `labels`')),
            (deployment("web", -1), ('Deployment.apps "web" is invalid: spec.replicas: Invalid value: -1: '
                                    "must be greater than or equal to 0")),
            (deployment("web", 1, image=""), ('Deployment.apps "web" is invalid: '
                                             "spec.template.spec.containers[0].image: Required value")),
        ]  # fmt: skip
        for manifest, message in rows:
            status, error = await client.apply_manifest(DEPLOYMENT, manifest)
            assert (status, error["reason"], error["message"]) == (422, "Invalid", message)
        status, error = await client.send_request("POST", "/api/v1/namespaces/none/configmaps", config_map("m"))
        assert (status, error["message"]) == (404, 'namespaces "none" not found')


async def test_a_dry_run_changes_nothing(client_of: Any) -> None:
    async with SimCluster("a") as cluster:
        client = client_of(cluster)
        assert (await client.apply_manifest(DEPLOYMENT, deployment("web", 1), dryRun="All"))[0] == 201
        assert (await client.send_request("GET", DEPLOYMENT))[0] == 404


async def test_generated_names_and_metadata_only_lists(client_of: Any) -> None:
    async with SimCluster("a") as cluster:
        client = client_of(cluster)
        manifest = config_map("x") | {"metadata": {"generateName": "x-"}}
        _, made = await client.send_request("POST", MAPS, manifest)
        assert made["metadata"]["name"].startswith("x-")
        accept = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
        response = await client.transport.request("GET", MAPS, {}, accept=accept)
        listed = json.loads(response.body)
        assert listed["kind"] == "PartialObjectMetadataList"
        assert [set(one) for one in listed["items"]] == [{"metadata"}]


async def test_eviction_heeds_budgets_and_binding_binds_once(client_of: Any) -> None:
    async with SimCluster("a") as cluster:
        cluster.add_nodes([NodeSpec("n")])
        client = client_of(cluster)
        path = "/api/v1/namespaces/default/pods/p"
        await client.create_pod(pod("p", labels={"app": "web"}, schedulerName="other"))
        assert (await client.send_request("POST", f"{path}/binding", {"target": {"name": "n0"}}))[0] == 201
        assert (await client.send_request("POST", f"{path}/binding", {"target": {"name": "n0"}}))[0] == 409
        await asyncio.sleep(1)
        budget = {"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}}
        budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
        await client.send_request("POST", budgets, budget)
        assert (await client.send_request("POST", f"{path}/eviction", {"metadata": {"name": "p"}}))[0] == 429
        await client.send_request("DELETE", f"{budgets}/b")
        assert (await client.send_request("POST", f"{path}/eviction", {"metadata": {"name": "p"}}))[0] == 201
        await asyncio.sleep(1)
        assert (await client.send_request("GET", path))[0] == 404
