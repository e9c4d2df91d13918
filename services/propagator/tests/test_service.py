"""The whole service on the bus in memory and on simulated clusters, in virtual time."""

import asyncio
import functools
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from propagator.settings import PropagatorSettings
from sim.settings import Faults
from spillway.addresses import PLACEMENTS, Tombstone, status_address, workload_address
from spillway.clusters.api import CONFIG_MAPS, DEPLOYMENTS, NAMESPACES, Response
from spillway.events import ClusterJoined, DependencyDeclared, TurnTaken, WorkloadObserved
from spillway.local_bus import LocalBus
from spillway.model import Generation, ObjectReference

pytestmark = pytest.mark.looptime

SECRET_NEEDED = {"envFrom": [{"secretRef": {"name": "key"}}]}
NO_RIGHT = json.dumps(
    {
        "kind": "Status",
        "code": 403,
        "reason": "Forbidden",
        "message": 'x is forbidden: User "spillway" cannot list resource "x" in API group "" in the namespace "y"',
    }
).encode()
QUOTA = json.dumps(
    {"kind": "Status", "apiVersion": "v1", "reason": "Forbidden", "message": "exceeded quota: few", "code": 403}
).encode()


Test = Callable[..., Awaitable[None]]


def run_on_fleet(test: Test) -> Test:
    """Opens the fleet inside the test."""

    @functools.wraps(test)
    async def run_test(fleet: Any, **case: Any) -> None:
        async with fleet:
            await test(fleet, **case)

    return run_test


def config_map_declared(name: str, text: str = "one", generation: int = 1) -> DependencyDeclared:
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"text": text}}
    return DependencyDeclared("ConfigMap", "default", name, "default/web", generation, json.dumps(manifest).encode())


def service_declared(name: str, port: int, generation: int) -> DependencyDeclared:
    spec = {"selector": {"app": "web"}, "ports": [{"port": port}], "clusterIP": "10.9.8.7"}
    manifest = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}
    return DependencyDeclared("Service", "default", name, "default/web", generation, json.dumps(manifest).encode())


@run_on_fleet
async def test_create_scale_delete(fleet: Any) -> None:
    await fleet.declare_workload()
    await fleet.publish_placement(1, {"own-1": 3, "own-2": 2})
    await fleet.start()
    await asyncio.sleep(5)
    assert (fleet.deployment_replicas("own-1"), fleet.deployment_replicas("own-2")) == (3, 2)
    assert fleet.last_state_and_version("own-1") == ("Present", "1.1", "")
    status = fleet.last_status("own-1")
    assert (status.spec_replicas, status.replicas, status.updated, status.ready, status.available) == (3, 3, 3, 3, 3)

    await fleet.publish_placement(2, {"own-1": 7}, removing=("own-2",))
    await asyncio.sleep(5)
    assert (fleet.deployment_replicas("own-1"), fleet.deployment("own-2")) == (7, None)
    assert fleet.last_state_and_version("own-1") == ("Present", "1.2", "")
    assert fleet.last_state_and_version("own-2") == ("Absent", "1.2", "")
    assert fleet.last_status("own-2").replicas == 0

    await fleet.publish_placement(3, {}, removing=("own-1",))
    await asyncio.sleep(5)
    assert fleet.deployment("own-1") is None
    assert fleet.last_state_and_version("own-1") == ("Absent", "1.3", "")

    await fleet.delete_placement()
    await asyncio.sleep(2)
    tombstones = {record.key for record in fleet.said if record.event is None}
    assert tombstones == {"default/web/own-1", "default/web/own-2"}


@run_on_fleet
async def test_replicas_none_keeps_the_object(fleet: Any) -> None:
    await fleet.declare_workload()
    await fleet.publish_placement(1, {"own-1": 3})
    await fleet.start()
    await asyncio.sleep(5)
    await fleet.publish_placement(2, {"own-1": 0})
    await asyncio.sleep(5)
    assert fleet.deployment_replicas("own-1") == 0
    assert fleet.last_state_and_version() == ("Present", "1.2", "")


@run_on_fleet
async def test_nothing_is_asked_while_all_is_right(fleet: Any) -> None:
    await fleet.declare_workload()
    await fleet.publish_placement(1, {"own-1": 3})
    await fleet.start()
    await asyncio.sleep(10)
    reads, writes = fleet.transports["own-1"].reads, len(fleet.transports["own-1"].writes)
    said = len(fleet.said)
    await asyncio.sleep(100)
    assert (fleet.transports["own-1"].reads, len(fleet.transports["own-1"].writes)) == (reads, writes)
    assert len(fleet.said) == said


@run_on_fleet
async def test_marks_are_never_in_the_template(fleet: Any) -> None:
    await fleet.declare_workload()
    await fleet.publish_placement(1, {"own-1": 1})
    await fleet.start()
    await asyncio.sleep(5)
    found = fleet.deployment("own-1")
    assert found["metadata"]["labels"] == {"spillway.io/fleet": "f1", "spillway.io/workload": "web"}
    assert found["metadata"]["annotations"]["spillway.io/placement"] == "1.1"
    assert "spillway" not in str(found["spec"]["template"])


@run_on_fleet
async def test_a_placement_is_held_until_its_declaration_is_read(fleet: Any) -> None:
    await fleet.start()
    await fleet.publish_placement(1, {"own-1": 3})
    await asyncio.sleep(5)
    assert fleet.deployment("own-1") is None
    await fleet.declare_workload()
    await asyncio.sleep(2)
    assert fleet.deployment_replicas("own-1") == 3


async def overwrite_version_annotation(fleet: Any, version: str) -> None:
    """Somebody else's hand on our annotation."""
    found = await fleet.user_api("own-1").get(DEPLOYMENTS, "default", "web")
    marks = {"metadata": {"annotations": {"spillway.io/placement": version}}}
    await fleet.user_api("own-1").patch(
        DEPLOYMENTS, "default", "web", marks, resource_version=found["metadata"]["resourceVersion"]
    )


@run_on_fleet
async def test_that_an_object_is_above_its_placement_is_said_at_once_and_no_more_once_it_is_not(fleet: Any) -> None:
    await fleet.declare_workload()
    await fleet.publish_placement(1, {"own-1": 3})
    await fleet.start()
    await asyncio.sleep(5)
    await overwrite_version_annotation(fleet, "99.1")
    await asyncio.sleep(3)
    assert fleet.last_state_and_version() == ("Present", "99.1", "on hold: the object is at 99.1, above 1.1")
    await fleet.publish_placement(2, {"own-1": 2})
    await asyncio.sleep(3)
    above = "on hold: the object is at 99.1, above 1.2: it has 3 replicas, 2 decided"
    assert fleet.last_state_and_version() == ("Present", "99.1", above)
    said = len(fleet.said)
    await asyncio.sleep(5 * PropagatorSettings().hold_said_seconds)
    assert len(fleet.said) == said, "it is said once"
    await overwrite_version_annotation(fleet, "1.1")
    await asyncio.sleep(3)
    assert (fleet.deployment_replicas("own-1"), fleet.last_state_and_version()) == (2, ("Present", "1.2", ""))


@run_on_fleet
async def test_what_is_held_before_there_is_an_object_is_said_as_absent(fleet: Any) -> None:
    await fleet.start()
    await fleet.publish_placement(1, {"own-1": 3})
    await asyncio.sleep(PropagatorSettings().hold_said_seconds - 2)
    assert not any(isinstance(record.event, WorkloadObserved) for record in fleet.said), "it may pass"
    await asyncio.sleep(4)
    state, version, message = fleet.last_state_and_version()
    assert (state, version) == ("Absent", "0.0")
    assert message.startswith("on hold: waiting for ")
    await fleet.declare_workload()
    await asyncio.sleep(3)
    assert (fleet.deployment_replicas("own-1"), fleet.last_state_and_version()) == (3, ("Present", "1.1", ""))


@run_on_fleet
async def test_a_conflict_is_read_again_and_compared(fleet: Any) -> None:
    """Somebody changes the object between our read and our write."""
    await fleet.declare_workload()
    await fleet.publish_placement(1, {"own-1": 3})
    await fleet.start()
    await asyncio.sleep(5)
    transport = fleet.transports["own-1"]
    meddled: list[str] = []

    def change_labels_once(method: str, path: str, body: bytes | None) -> None:
        if method == "PATCH" and not meddled:
            meddled.append(path)
            cluster = fleet.clusters["own-1"]
            found = cluster.get_object("deployments", "web", "default")
            labels = {**found["metadata"]["labels"], "team": "a"}
            cluster.control_plane.world.store.put_object(
                "deployments", {**found, "metadata": {**found["metadata"], "labels": labels}}
            )

    transport.instead = change_labels_once
    await fleet.publish_placement(2, {"own-1": 5})
    await asyncio.sleep(5)
    assert meddled
    assert fleet.deployment_replicas("own-1") == 5
    assert fleet.deployment("own-1")["metadata"]["labels"]["team"] == "a"


@run_on_fleet
async def test_a_higher_version_is_never_written_over(fleet: Any) -> None:
    await fleet.declare_workload()
    await fleet.publish_placement(1, {"own-1": 3})
    await fleet.start()
    await asyncio.sleep(5)
    found = await fleet.user_api("own-1").get(DEPLOYMENTS, "default", "web")
    found["metadata"]["annotations"]["spillway.io/placement"] = "2.0"
    found["metadata"].pop("managedFields", None)
    found["spec"]["replicas"] = 9
    await fleet.user_api("own-1", "spillway").apply(
        DEPLOYMENTS, manifest_without_server_fields(found), resource_version="", force=True
    )
    await fleet.publish_placement(2, {"own-1": 4})
    await asyncio.sleep(5)
    assert fleet.deployment_replicas("own-1") == 9
    await fleet.publish_placement(3, {}, removing=("own-1",))
    await asyncio.sleep(5)
    assert fleet.deployment_replicas("own-1") == 9


@run_on_fleet
async def test_what_is_not_ours_is_not_touched(fleet: Any) -> None:
    manifest = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"a": "b"}},
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"containers": [{"name": "c", "image": "theirs"}]},
            },
        },
    }
    theirs = await fleet.user_api("own-1").create(DEPLOYMENTS, manifest)
    await fleet.declare_workload()
    await fleet.publish_placement(1, {"own-1": 3})
    await fleet.start()
    await asyncio.sleep(5)
    assert fleet.last_state_and_version() == ("NotOwned", "1.1", "Deployment web exists and is not this fleet's")
    await fleet.publish_placement(2, {}, removing=("own-1",))
    await asyncio.sleep(5)
    assert fleet.last_state_and_version()[:2] == ("Absent", "1.2")
    found = fleet.deployment("own-1")
    assert found["spec"] == theirs["spec"]
    assert found["metadata"]["managedFields"][0] == theirs["metadata"]["managedFields"][0]
    path = "/apis/apps/v1/namespaces/default/deployments/web"
    assert fleet.transports["own-1"].writes == [("PATCH", path)], "tried once, at the version of what is not there"


@run_on_fleet
async def test_what_goes_along_and_is_there_as_declared_is_used_and_left_to_whoever_made_it(fleet: Any) -> None:
    """Disowning leaves such ones, and people have them before they adopt: with the same content none is in the way."""
    theirs = json.loads(config_map_declared("web-config").manifest) | {"apiVersion": "v1", "kind": "ConfigMap"}
    theirs["metadata"]["namespace"] = "default"
    made = await fleet.user_api("own-1").create(CONFIG_MAPS, theirs)
    await fleet.declare_workload(dependencies=(config_map_declared("web-config"),))
    await fleet.publish_placement(1, {"own-1": 3})
    await fleet.start()
    await asyncio.sleep(5)
    assert fleet.last_state_and_version()[:2] == ("Present", "1.1")
    await fleet.publish_placement(2, {}, removing=("own-1",))
    await asyncio.sleep(5)
    assert fleet.last_state_and_version()[:2] == ("Absent", "1.2")
    left = await fleet.user_api("own-1").get(CONFIG_MAPS, "default", "web-config")
    assert left["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


HANDED_OVER = (
    "`kubectl label configmap web-config -n default spillway.io/fleet=f1 spillway.io/workload=web` there hands it over"
)


@run_on_fleet
async def test_what_a_person_labels_as_ours_is_taken_over_and_written_as_declared(fleet: Any) -> None:
    await fleet.add_config_map("own-1", "web-config")
    await fleet.declare_workload(dependencies=(config_map_declared("web-config"),))
    await fleet.publish_placement(1, {"own-1": 3})
    await fleet.start()
    await asyncio.sleep(5)
    assert fleet.last_state_and_version()[2].endswith(HANDED_OVER)
    labels = dict(part.split("=") for part in HANDED_OVER.split("`")[1].split(" -n default ")[1].split())
    api = fleet.user_api("own-1")
    found = await api.get(CONFIG_MAPS, "default", "web-config")
    change = {"metadata": {"labels": labels}}
    await api.patch(CONFIG_MAPS, "default", "web-config", change, resource_version=found["metadata"]["resourceVersion"])
    await asyncio.sleep(5)
    assert fleet.last_state_and_version() == ("Present", "1.1", "")
    written = await api.get(CONFIG_MAPS, "default", "web-config")
    assert written["metadata"]["uid"] == found["metadata"]["uid"]
    assert written["data"] == json.loads(config_map_declared("web-config").manifest)["data"]


@run_on_fleet
async def test_not_owned_passes_when_the_object_goes(fleet: Any) -> None:
    await fleet.add_config_map("own-1", "web-config")
    await fleet.declare_workload(dependencies=(config_map_declared("web-config"),))
    await fleet.publish_placement(1, {"own-1": 3})
    await fleet.start()
    await asyncio.sleep(5)
    assert fleet.last_state_and_version() == (
        "NotOwned",
        "1.1",
        f"ConfigMap web-config exists and is not this fleet's; declared otherwise: data; {HANDED_OVER}",
    )
    assert fleet.deployment("own-1") is None
    api = fleet.user_api("own-1")
    found = await api.get(CONFIG_MAPS, "default", "web-config")
    await api.delete(CONFIG_MAPS, "default", "web-config", uid=found["metadata"]["uid"], resource_version="")
    await asyncio.sleep(65)
    assert fleet.last_state_and_version() == ("Present", "1.1", "")


def manifest_without_server_fields(found: dict[str, Any]) -> dict[str, Any]:
    kept = ("name", "namespace", "labels", "annotations")
    metadata = {field: found["metadata"][field] for field in kept}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": found["spec"]}


@run_on_fleet
async def test_missing_secret_then_it_appears(fleet: Any) -> None:
    await fleet.declare_workload(pod=SECRET_NEEDED)
    await fleet.publish_placement(1, {"own-1": 3})
    await fleet.start()
    await asyncio.sleep(30)
    assert fleet.last_state_and_version() == ("DependencyMissing", "1.1", "missing: Secret default/key")
    assert fleet.deployment("own-1") is None
    await fleet.add_secret("own-1", "key")
    await asyncio.sleep(11)
    assert fleet.last_state_and_version() == ("Present", "1.1", "")


@run_on_fleet
async def test_fewer_replicas_do_not_wait_for_what_their_new_template_lacks(fleet: Any) -> None:
    await fleet.declare_workload()
    await fleet.publish_placement(1, {"own-1": 4})
    await fleet.start()
    await asyncio.sleep(10)
    assert fleet.deployment_replicas("own-1") == 4
    await fleet.declare_workload(pod=SECRET_NEEDED)
    await fleet.publish_placement(2, {"own-1": 3})
    await asyncio.sleep(10)
    found, status = fleet.deployment("own-1"), fleet.last_status()
    assert (status.state, str(status.version), status.spec_replicas) == ("DependencyMissing", "1.2", 3)
    assert found["spec"]["replicas"] == 3
    assert found["metadata"]["annotations"]["spillway.io/placement"] == "1.1"
    await fleet.add_secret("own-1", "key")
    await asyncio.sleep(11)
    assert fleet.last_state_and_version() == ("Present", "1.2", "")
    assert fleet.deployment("own-1")["metadata"]["annotations"]["spillway.io/placement"] == "1.2"


@run_on_fleet
async def test_what_is_missing_is_named_and_is_looked_for_where_no_replica_is_to_run_for_want_of_it(fleet: Any) -> None:
    await fleet.declare_workload(pod=SECRET_NEEDED)
    await fleet.publish_placement(1, {"own-1": 3})
    await fleet.start()
    await asyncio.sleep(30)
    key = ObjectReference("Secret", "default", "key")
    assert fleet.last_status().missing == (key,)
    await fleet.publish_placement(2, {"own-1": 0}, missing=(key,))
    await asyncio.sleep(1)
    assert fleet.last_state_and_version() == ("DependencyMissing", "1.2", "missing: Secret default/key")
    assert fleet.last_status().missing == (key,)
    assert fleet.deployment("own-1") is None
    await fleet.add_secret("own-1", "key")
    await asyncio.sleep(11)
    assert fleet.last_state_and_version() == ("Present", "1.2", "")
    assert fleet.last_status().missing == ()
    assert fleet.deployment_replicas("own-1") == 0


@run_on_fleet
async def test_what_may_not_be_looked_for_is_not_known_to_be_missing(fleet: Any) -> None:
    await fleet.declare_workload(pod={**SECRET_NEEDED, "priorityClassName": "high"})
    await fleet.start()
    await asyncio.sleep(1)
    transport = fleet.transports["own-1"]
    hidden = ("/secrets", "/priorityclasses/high")
    transport.instead = lambda method, path, body: Response(403, NO_RIGHT) if path.endswith(hidden) else None
    await fleet.publish_placement(1, {"own-1": 3})
    await asyncio.sleep(5)
    assert fleet.last_state_and_version() == ("Present", "1.1", "")


@run_on_fleet
async def test_a_namespace_that_may_not_be_made_is_missing(fleet: Any) -> None:
    await fleet.declare_workload(namespace="shop")
    await fleet.start()
    await asyncio.sleep(1)
    transport = fleet.transports["own-1"]
    transport.instead = lambda method, path, body: Response(403, NO_RIGHT) if method == "POST" else None
    await fleet.publish_placement(1, {"own-1": 3}, namespace="shop")
    await asyncio.sleep(5)
    status = fleet.last_status()
    assert (status.state, status.missing) == ("DependencyMissing", (ObjectReference("Namespace", "", "shop"),))


@run_on_fleet
async def test_refused_by_a_quota_then_allowed(fleet: Any) -> None:
    await fleet.declare_workload()
    await fleet.start()
    await asyncio.sleep(1)
    transport = fleet.transports["own-1"]
    transport.instead = lambda method, path, body: Response(403, QUOTA) if method == "PATCH" else None
    await fleet.publish_placement(1, {"own-1": 3})
    await asyncio.sleep(20)
    assert fleet.last_state_and_version() == ("Refused", "1.1", "403 Forbidden: exceeded quota: few")
    assert 3 <= len(transport.writes) <= 6
    transport.instead = lambda method, path, body: None
    await asyncio.sleep(60)
    assert fleet.last_state_and_version() == ("Present", "1.1", "")


@run_on_fleet
async def test_a_refusal_is_said_only_after_a_read(fleet: Any) -> None:
    """Planners hold no more than what a refusal shows to be there, and what is created first was not read."""
    await fleet.declare_workload()
    await fleet.start()
    await asyncio.sleep(1)
    asked: list[str] = []

    def refuse_patches(method: str, path: str, body: bytes) -> Response | None:
        if path.partition("?")[0].endswith("/deployments/web"):
            asked.append(method)
        return Response(403, QUOTA) if method == "PATCH" else None

    fleet.transports["own-1"].instead = refuse_patches
    await fleet.publish_placement(1, {"own-1": 3})
    while fleet.last_state_and_version()[0] != "Refused":
        await asyncio.sleep(0.1)
    assert asked[:3] == ["PATCH", "GET", "PATCH"]


@run_on_fleet
async def test_refused_is_tried_at_once_at_a_newer_version(fleet: Any) -> None:
    await fleet.declare_workload()
    await fleet.start()
    await asyncio.sleep(1)
    transport = fleet.transports["own-1"]
    transport.instead = lambda method, path, body: Response(403, QUOTA) if method == "PATCH" else None
    await fleet.publish_placement(1, {"own-1": 3})
    await asyncio.sleep(100)
    transport.instead = lambda method, path, body: None
    await fleet.publish_placement(2, {"own-1": 1})
    await asyncio.sleep(2)
    assert fleet.last_state_and_version() == ("Present", "1.2", "")


@run_on_fleet
async def test_a_namespace_is_created_and_never_deleted(fleet: Any) -> None:
    await fleet.declare_workload(namespace="shop")
    await fleet.publish_placement(1, {"own-1": 1}, namespace="shop")
    await fleet.start()
    await asyncio.sleep(5)
    namespace = await fleet.user_api("own-1").get(NAMESPACES, "", "shop")
    labels = namespace["metadata"]["labels"]
    assert (labels["spillway.io/fleet"], labels["pod-security.kubernetes.io/enforce"]) == ("f1", "baseline")
    await fleet.publish_placement(2, {}, removing=("own-1",), namespace="shop")
    await asyncio.sleep(5)
    assert fleet.last_state_and_version()[0] == "Absent"
    assert await fleet.user_api("own-1").get(NAMESPACES, "", "shop") is not None


@run_on_fleet
async def test_a_namespace_is_looked_for_once_and_created_again_when_it_is_gone(fleet: Any) -> None:
    await fleet.declare_workload(namespace="shop")
    await fleet.publish_placement(1, {"own-1": 1}, namespace="shop")
    await fleet.start()
    await asyncio.sleep(5)
    reads = fleet.transports["own-1"].reads
    await fleet.declare_workload(name="db", namespace="shop")
    await fleet.publish_placement(2, {"own-1": 1}, name="db", namespace="shop")
    await asyncio.sleep(5)
    assert fleet.deployment("own-1", "db", "shop") is not None
    assert fleet.transports["own-1"].reads == reads, "nor the Deployment: it is created where nothing was seen"
    found = await fleet.user_api("own-1").get(NAMESPACES, "", "shop")
    await fleet.user_api("own-1").delete(NAMESPACES, "", "shop", uid=found["metadata"]["uid"])
    await fleet.declare_workload(name="cache", namespace="shop")
    await fleet.publish_placement(3, {"own-1": 1}, name="cache", namespace="shop")
    await asyncio.sleep(5)
    assert fleet.deployment("own-1", "cache", "shop") is not None
    assert await fleet.user_api("own-1").get(NAMESPACES, "", "shop") is not None


@run_on_fleet
async def test_namespaces_may_be_forbidden(fleet: Any) -> None:
    await fleet.declare_workload(namespace="shop")
    await fleet.publish_placement(1, {"own-1": 1}, namespace="shop")
    await fleet.start(settings=PropagatorSettings(create_namespaces=False))
    await asyncio.sleep(5)
    assert fleet.last_state_and_version()[0] == "DependencyMissing"
    assert fleet.transports["own-1"].writes == []


@run_on_fleet
async def test_contested_replicas_are_put_right_three_times(fleet: Any) -> None:
    await fleet.declare_workload()
    await fleet.publish_placement(1, {"own-1": 3})
    await fleet.start()
    await asyncio.sleep(5)
    for replicas in (8, 9, 10):
        await fleet.scale_by_hand("own-1", replicas)
        await asyncio.sleep(2)
        assert fleet.deployment_replicas("own-1") == 3
    await fleet.scale_by_hand("own-1", 11)
    await asyncio.sleep(5)
    assert fleet.deployment_replicas("own-1") == 11
    assert fleet.last_state_and_version()[0] == "ReplicasContested"
    await asyncio.sleep(300)
    assert fleet.deployment_replicas("own-1") == 11
    await fleet.publish_placement(2, {"own-1": 4})
    await asyncio.sleep(200)
    assert fleet.deployment_replicas("own-1") == 11, "a new placement does not go on with the fight"
    assert fleet.last_state_and_version()[:2] == ("ReplicasContested", "1.2")
    await asyncio.sleep(200)
    assert fleet.deployment_replicas("own-1") == 4
    assert fleet.last_state_and_version() == ("Present", "1.2", "")


@run_on_fleet
async def test_what_somebody_changed_is_said_and_stays_when_replicas_change(fleet: Any) -> None:
    """Also over a new owner; a new template is written whole."""
    await fleet.declare_workload()
    await fleet.publish_placement(1, {"own-1": 3})
    await fleet.start()
    await asyncio.sleep(5)
    container = fleet.deployment("own-1")["spec"]["template"]["spec"]["containers"][0]
    template = {"metadata": {"annotations": {"restartedAt": "now"}}, "spec": {"containers": [container]}}
    await fleet.user_api("own-1").patch(
        DEPLOYMENTS, "default", "web", {"spec": {"template": template}}, resource_version=""
    )
    await asyncio.sleep(5)
    assert fleet.last_state_and_version() == ("Present", "1.1", "")
    template["spec"]["containers"] = [container | {"image": "hotfix:1"}]
    await fleet.user_api("own-1").patch(
        DEPLOYMENTS, "default", "web", {"spec": {"template": template}}, resource_version=""
    )
    await asyncio.sleep(5)
    changed = (
        "changed in the cluster: spec.template.spec.containers[0].image, which stays until another template is applied"
    )
    assert fleet.last_state_and_version() == ("Present", "1.1", changed)
    await fleet.publish_placement(2, {"own-1": 5})
    await asyncio.sleep(5)
    await fleet.kill_instance()
    await fleet.start("p2")
    await asyncio.sleep(60)
    assert fleet.last_state_and_version() == ("Present", "1.2", changed)
    found = fleet.deployment("own-1")["spec"]
    assert (found["replicas"], found["template"]["spec"]["containers"][0]["image"]) == (5, "hotfix:1")
    assert found["template"]["metadata"]["annotations"] == {"restartedAt": "now"}
    await fleet.declare_workload(pod={"image": "app:2"})
    await fleet.publish_placement(3, {"own-1": 5})
    await asyncio.sleep(5)
    assert fleet.last_state_and_version() == ("Present", "1.3", "")
    assert fleet.deployment("own-1")["spec"]["template"]["spec"]["containers"][0]["image"] == "app:2"


@run_on_fleet
async def test_a_deleted_object_is_created_again(fleet: Any) -> None:
    await fleet.declare_workload()
    await fleet.publish_placement(1, {"own-1": 3})
    await fleet.start()
    await asyncio.sleep(5)
    found = fleet.deployment("own-1")
    api = fleet.user_api("own-1")
    await api.delete(DEPLOYMENTS, "default", "web", uid=found["metadata"]["uid"], resource_version="")
    await asyncio.sleep(5)
    again = fleet.deployment("own-1")
    assert again["metadata"]["uid"] != found["metadata"]["uid"]
    assert fleet.last_state_and_version() == ("Present", "1.1", "")


@run_on_fleet
async def test_a_cluster_that_is_restored_from_a_backup_gets_what_was_decided_since(fleet: Any) -> None:
    """Its API server opens watches from later versions than it has, and says nothing there of what it is now."""
    for name in ("web", "old", "late"):
        await fleet.declare_workload(name=name)
    await fleet.publish_placement(1, {"own-1": 1})
    await fleet.publish_placement(1, {"own-1": 2}, name="old")
    await fleet.start()
    await asyncio.sleep(5)
    backup = fleet.clusters["own-1"].saved_state()
    await fleet.publish_placement(2, {"own-1": 3})
    await fleet.publish_placement(2, {"own-1": 2}, name="late")
    await fleet.publish_placement(2, {}, removing=("own-1",), name="old")
    await asyncio.sleep(5)
    await fleet.delete_placement("old")
    await asyncio.sleep(5)
    for count in range(100):
        await fleet.add_config_map("own-1", f"other-{count}")
    fleet.clusters["own-1"].restore_state(backup)
    assert [fleet.deployment_replicas("own-1", name) for name in ("web", "late", "old")] == [1, -1, 2]
    await asyncio.sleep(120)
    assert [fleet.deployment_replicas("own-1", name) for name in ("web", "late", "old")] == [3, 2, 2]
    assert fleet.last_state_and_version() == ("Present", "1.2", "")
    assert fleet.last_state_and_version(name="old") == ("Orphaned", "1.1", "")


@run_on_fleet
async def test_dependencies_go_along_change_and_go(fleet: Any) -> None:
    first = (config_map_declared("web-a"), config_map_declared("web-b"), service_declared("web", 80, 1))
    await fleet.declare_workload(dependencies=first)
    await fleet.publish_placement(1, {"own-1": 1})
    await fleet.start()
    await asyncio.sleep(5)
    cluster = fleet.clusters["own-1"]
    assert cluster.get_object("configmaps", "web-a", "default")["data"] == {"text": "one"}
    assert cluster.get_object("services", "web", "default")["spec"].get("clusterIP") != "10.9.8.7"

    # Only a ConfigMap's text changes, and another one is no longer listed: the part's version stays.
    await fleet.declare_workload(dependencies=(config_map_declared("web-a", "two", 2), first[2]))
    await asyncio.sleep(5)
    assert cluster.get_object("configmaps", "web-a", "default")["data"] == {"text": "two"}
    assert cluster.get_object("configmaps", "web-b", "default") is None

    await fleet.publish_placement(2, {}, removing=("own-1",))
    await asyncio.sleep(5)
    assert fleet.last_state_and_version()[0] == "Absent"
    assert cluster.get_object("configmaps", "web-a", "default") is None
    assert cluster.get_object("services", "web", "default") is None


@run_on_fleet
async def test_what_a_newer_template_leaves_out_is_gone(fleet: Any) -> None:
    await fleet.declare_workload(pod={"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]})
    await fleet.publish_placement(1, {"own-1": 1})
    await fleet.start()
    await asyncio.sleep(5)
    await fleet.declare_workload(pod={"env": [{"name": "B", "value": "2"}]})
    await fleet.publish_placement(2, {"own-1": 1})
    await asyncio.sleep(5)
    container = fleet.deployment("own-1")["spec"]["template"]["spec"]["containers"][0]
    assert container["env"] == [{"name": "B", "value": "2"}]


@run_on_fleet
async def test_orphans_are_left(fleet: Any) -> None:
    await fleet.declare_workload()
    await fleet.publish_placement(1, {"own-1": 3})
    await fleet.start()
    await asyncio.sleep(5)
    await fleet.planner.publish(Tombstone(workload_address(PLACEMENTS, "default", "web")))
    await asyncio.sleep(50)
    assert fleet.deployment_replicas("own-1") == 3


@run_on_fleet
async def test_an_empty_log_does_nothing(fleet: Any) -> None:
    await fleet.declare_workload()
    await fleet.publish_placement(1, {"own-1": 3})
    await fleet.start()
    await asyncio.sleep(5)
    await fleet.stop()
    fleet.broker.recreate_log("f1")
    await fleet.planner.publish(ClusterJoined("own-1", "own-1", "https://own-1", "own", "", "", (), ()))
    await fleet.start()
    await asyncio.sleep(50)
    assert fleet.deployment_replicas("own-1") == 3
    assert fleet.transports["own-1"].writes == []


@run_on_fleet
async def test_a_second_instance_takes_over(fleet: Any) -> None:
    await fleet.declare_workload()
    await fleet.publish_placement(1, {"own-1": 3, "own-2": 3})
    await fleet.start("p1")
    await fleet.start("p2")
    await asyncio.sleep(5)
    assert fleet.deployment_replicas("own-1") == fleet.deployment_replicas("own-2") == 3
    await fleet.kill_instance("p1")
    await fleet.publish_placement(2, {"own-1": 5, "own-2": 6})
    await asyncio.sleep(5)
    assert (fleet.deployment_replicas("own-1"), fleet.deployment_replicas("own-2")) == (5, 6)
    for cluster in ("own-1", "own-2"):
        statuses = fleet.status_records(cluster)
        assert [(s.epoch, s.sequence) for s in statuses] == sorted((s.epoch, s.sequence) for s in statuses)
        assert fleet.last_state_and_version(cluster) == ("Present", "1.2", "")


@run_on_fleet
async def test_what_a_frozen_owner_says_is_said_again(fleet: Any) -> None:
    await fleet.declare_workload()
    await fleet.publish_placement(1, {"own-1": 3})
    await fleet.start()
    await asyncio.sleep(5)
    right = fleet.last_status()
    old = LocalBus(fleet.broker, "f1", "frozen")
    await old.publish(replace(right, epoch=-1, sequence=9, state="Refused", message="long ago"))
    await asyncio.sleep(2)
    assert replace(fleet.last_status(), sequence=0) == replace(right, sequence=0)
    assert fleet.last_status().sequence > right.sequence


@pytest.mark.parametrize("removed", [False, True])
@run_on_fleet
async def test_what_a_frozen_owner_takes_back_is_said_again(fleet: Any, removed: bool) -> None:
    """It took what it saw for an orphan; a tombstone has no epoch, and planners wait for what stood before it."""
    await fleet.declare_workload()
    await fleet.publish_placement(1, {"own-1": 3})
    await fleet.start()
    await asyncio.sleep(5)
    if removed:
        await fleet.publish_placement(2, {}, removing=("own-1",))
        await asyncio.sleep(5)
    right = fleet.last_status()
    assert right.state == ("Absent" if removed else "Present")
    await LocalBus(fleet.broker, "f1", "frozen").publish(Tombstone(status_address("default", "web", "own-1")))
    await asyncio.sleep(2)
    assert fleet.said[-1].event == replace(right, sequence=right.sequence + 1)


@run_on_fleet
async def test_a_higher_epoch_ends_the_work(fleet: Any) -> None:
    await fleet.declare_workload()
    await fleet.publish_placement(1, {"own-1": 3})
    propagator = await fleet.start(settings=PropagatorSettings(reclaim_seconds=30))
    await asyncio.sleep(5)
    assert propagator.clusters_worked_on == {"own-1", "own-2"}
    await LocalBus(fleet.broker, "f1", "other").publish(TurnTaken("propagator", "own-1", "other"))
    await asyncio.sleep(1)
    assert propagator.clusters_worked_on == {"own-2"}
    await fleet.publish_placement(2, {"own-1": 4})
    await asyncio.sleep(5)
    assert fleet.deployment_replicas("own-1") == 3
    await asyncio.sleep(30)  # The group still says that it is ours.
    assert propagator.clusters_worked_on == {"own-1", "own-2"}
    assert fleet.deployment_replicas("own-1") == 4


@run_on_fleet
async def test_a_silent_cluster_delays_no_other(fleet: Any) -> None:
    await fleet.declare_workload()
    await fleet.publish_placement(1, {"own-1": 1, "own-2": 1})
    await fleet.start()
    await asyncio.sleep(5)
    fleet.clusters["own-2"].set_faults(Faults(silent=True))
    for sequence in range(2, 12):
        await fleet.publish_placement(sequence, {"own-1": sequence, "own-2": sequence})
        await asyncio.sleep(1)
        assert fleet.deployment_replicas("own-1") == sequence
    assert fleet.last_state_and_version("own-2") == ("Present", "1.1", "")
    fleet.clusters["own-2"].set_faults(Faults())
    await asyncio.sleep(60)
    assert fleet.deployment_replicas("own-2") == 11
    assert fleet.last_state_and_version("own-2") == ("Present", "1.11", "")


@run_on_fleet
async def test_an_unreachable_log_delays_only_the_status(fleet: Any) -> None:
    await fleet.declare_workload()
    await fleet.start()
    await asyncio.sleep(2)
    await fleet.publish_placement(1, {"own-1": 3})
    await asyncio.sleep(0.1)
    fleet.buses["p1"].unavailable = True
    await asyncio.sleep(20)
    assert fleet.last_status() is None or fleet.last_status().ready < 3
    fleet.buses["p1"].unavailable = False
    await asyncio.sleep(10)
    assert fleet.last_status().ready == 3
    assert fleet.last_status().version == Generation(1, 1)


@run_on_fleet
async def test_who_does_not_hear_the_log_leaves_clusters_alone(fleet: Any) -> None:
    """Cut off from the log but not from the cluster, an owner of the past does not bring back what was deleted."""
    await fleet.declare_workload()
    await fleet.publish_placement(1, {"own-1": 3, "own-2": 3})
    await fleet.start("p1")
    await asyncio.sleep(5)
    of_p1 = dict(fleet.transports)
    written = {name: list(transport.writes) for name, transport in of_p1.items()}
    fleet.buses["p1"].unavailable = True
    await asyncio.sleep(6)  # Its session.
    fleet.broker.end_sessions_unnoticed(fleet.buses["p1"])  # It does not hear of it.
    await fleet.start("p2")
    await asyncio.sleep(2)
    await fleet.publish_placement(2, {}, removing=("own-1", "own-2"))
    await asyncio.sleep(60)
    assert fleet.deployment("own-1") is None
    assert {name: transport.writes for name, transport in of_p1.items()} == written
    await fleet.publish_placement(3, {"own-1": 1})
    await asyncio.sleep(3)
    assert fleet.deployment_replicas("own-1") == 1


@run_on_fleet
async def test_a_write_that_was_decided_before_a_freeze_is_not_sent_after_it(fleet: Any) -> None:
    """It waits for a connection while its owner is cut off and another one deletes what it was to create."""
    await fleet.declare_workload(name="other")
    await fleet.declare_workload()
    await fleet.publish_placement(1, {"own-1": 1}, name="other")
    await fleet.start("p1")
    await asyncio.sleep(5)
    of_p1 = fleet.transports["own-1"]
    before = len(of_p1.writes)
    fleet.clusters["own-1"].set_faults(Faults(latency_seconds=20))
    await fleet.publish_placement(1, {"own-1": 3})
    await asyncio.sleep(0.5)
    assert len(of_p1.writes) == before + 1, "it is on its way"
    fleet.clusters["own-1"].set_faults(Faults())
    fleet.buses["p1"].unavailable = True
    await asyncio.sleep(6)  # Its session.
    fleet.broker.end_sessions_unnoticed(fleet.buses["p1"])
    await fleet.start("p2")
    await asyncio.sleep(2)
    await fleet.publish_placement(2, {}, removing=("own-1",))
    await asyncio.sleep(5)
    assert fleet.last_state_and_version("own-1") == ("Absent", "1.2", "")
    await fleet.delete_placement()
    await asyncio.sleep(20)
    assert fleet.deployment("own-1") is None
    fleet.buses["p1"].unavailable = False
    await asyncio.sleep(20)
    assert (fleet.deployment("own-1"), fleet.deployment_replicas("own-1", "other")) == (None, 1)
