"""Objects of ours that no placement lists: said, taken back when they are gone, never touched."""

import asyncio
import functools
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from prometheus_client import REGISTRY

from sim.manifests import deployment, statefulset
from spillway.addresses import PLACEMENTS
from spillway.clusters.api import CONFIG_MAPS, DEPLOYMENTS
from spillway.events import ClusterJoined, ClusterLeft, DependencyDeclared
from spillway.kubernetes.objects import STATEFULSETS, Kind
from spillway.model import Generation, ObjectReference

pytestmark = pytest.mark.looptime

Test = Callable[[Any], Awaitable[None]]


def run_with_orphan(test: Test) -> Test:
    """A workload of three in own-1 whose placement is forgotten by nobody's decision."""

    @functools.wraps(test)
    async def run_test(fleet: Any) -> None:
        async with fleet:
            await fleet.declare_workload()
            await fleet.publish_placement(1, {"own-1": 3})
            await fleet.start()
            await asyncio.sleep(5)
            await fleet.delete_placement()
            await asyncio.sleep(5)
            await test(fleet)

    return run_test


def tombstone_keys(fleet: Any) -> list[str]:
    return [record.key for record in fleet.said if record.event is None]


@run_with_orphan
async def test_it_is_said_and_left(fleet: Any) -> None:
    assert fleet.last_state_and_version() == ("Orphaned", "1.1", "")
    status = fleet.last_status()
    assert (status.spec_replicas, status.replicas, status.ready) == (3, 3, 3)
    writes, said = len(fleet.transports["own-1"].writes), len(fleet.said)
    await asyncio.sleep(600)
    assert len(fleet.transports["own-1"].writes) == writes
    assert len(fleet.said) == said
    assert fleet.deployment_replicas("own-1") == 3


@run_with_orphan
async def test_it_is_taken_back_when_the_object_is_gone(fleet: Any) -> None:
    before = len(tombstone_keys(fleet))
    await fleet.user_api("own-1").delete(DEPLOYMENTS, "default", "web", uid="", resource_version="")
    await asyncio.sleep(5)
    assert tombstone_keys(fleet)[before:] == ["default/web/own-1"]


@run_with_orphan
async def test_a_placement_that_lists_it_again_makes_it_an_ordinary_one(fleet: Any) -> None:
    await fleet.publish_placement(2, {"own-1": 3})
    await asyncio.sleep(5)
    assert fleet.last_state_and_version() == ("Present", "1.2", "")


@run_with_orphan
async def test_another_owner_says_it_as_well_and_what_went_meanwhile_is_taken_back(fleet: Any) -> None:
    await fleet.kill_instance()
    await fleet.user_api("own-1").delete(DEPLOYMENTS, "default", "web", uid="", resource_version="")
    before = len(tombstone_keys(fleet))
    await fleet.start("p2")
    await asyncio.sleep(60)
    assert tombstone_keys(fleet)[before:] == ["default/web/own-1"]


@run_with_orphan
async def test_a_cluster_that_left_takes_what_was_said_along_and_says_it_again_when_it_is_back(fleet: Any) -> None:
    before = len(tombstone_keys(fleet))
    await fleet.planner.publish(ClusterLeft("own-1"))
    await asyncio.sleep(5)
    assert tombstone_keys(fleet)[before:] == ["default/web/own-1"]
    await fleet.planner.publish(ClusterJoined("own-1", "own-1", "https://own-1", "own", "", "", (), ()))
    await asyncio.sleep(10)
    assert fleet.last_state_and_version() == ("Orphaned", "1.1", "")
    assert fleet.deployment_replicas("own-1") == 3


@run_with_orphan
async def test_what_could_not_be_taken_back_is_taken_back_once_the_log_takes_it(fleet: Any) -> None:
    before, bus = len(tombstone_keys(fleet)), fleet.buses["p1"]
    bus.takes_nothing = True
    await fleet.planner.publish(ClusterLeft("own-1"))
    await asyncio.sleep(5)
    assert tombstone_keys(fleet)[before:] == []
    bus.takes_nothing = False
    await asyncio.sleep(5)
    assert tombstone_keys(fleet)[before:] == ["default/web/own-1"]


@run_with_orphan
async def test_of_a_workload_that_is_placed_elsewhere_it_is_an_orphan_too(fleet: Any) -> None:
    """As after `cluster leave --lost`, when the cluster is back."""
    await fleet.publish_placement(2, {"own-2": 2})
    await asyncio.sleep(10)
    assert fleet.last_state_and_version("own-1") == ("Orphaned", "1.1", "")
    assert fleet.last_state_and_version("own-2") == ("Present", "1.2", "")
    assert fleet.last_status("own-1").version == Generation(1, 1)
    assert fleet.deployment_replicas("own-1") == 3


@run_with_orphan
async def test_a_cluster_that_left_takes_along_what_was_said_of_a_workload_placed_elsewhere(fleet: Any) -> None:
    """It was said as long as the workload was declared: an orphan of no cluster."""
    await fleet.publish_placement(2, {"own-2": 2})
    await asyncio.sleep(10)
    before = len(tombstone_keys(fleet))
    await fleet.planner.publish(ClusterLeft("own-1"))
    await asyncio.sleep(5)
    assert tombstone_keys(fleet)[before:] == ["default/web/own-1"]
    assert fleet.last_state_and_version("own-2") == ("Present", "1.2", "")


async def create_marked_object(fleet: Any, served: Kind, manifest: dict[str, Any], placement: str) -> None:
    """An object of ours, as the placement of that version left it."""
    metadata = {
        "name": manifest["metadata"]["name"],
        "namespace": "default",
        "labels": {"spillway.io/fleet": "f1", "spillway.io/workload": "web"},
        "annotations": {"spillway.io/placement": placement},
    }
    await fleet.user_api("own-1").create(served, manifest | {"metadata": metadata})


def config_map_manifest(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "1"}}


async def test_another_kind_of_the_same_name_hides_none(fleet: Any) -> None:
    beside = (ObjectReference("StatefulSet", "default", "web"),)
    async with fleet:
        await create_marked_object(fleet, STATEFULSETS, statefulset("web", 2), "1.1")
        await fleet.declare_workload()
        await fleet.publish_placement(2, {"own-1": 3})
        await fleet.start()
        await asyncio.sleep(10)
        assert fleet.last_state_and_version() == ("Present", "1.2", "")
        assert (fleet.last_status().kind, fleet.last_status().beside) == ("Deployment", beside)
        await fleet.delete_placement()
        await asyncio.sleep(5)
        assert (fleet.last_state_and_version(), fleet.last_status().kind) == (("Orphaned", "1.2", ""), "Deployment")
        assert fleet.last_status().beside == beside
        await fleet.user_api("own-1").delete(DEPLOYMENTS, "default", "web", uid="", resource_version="")
        await asyncio.sleep(5)
        assert (fleet.last_state_and_version(), fleet.last_status().kind) == (("Orphaned", "1.1", ""), "StatefulSet")
        assert fleet.last_status().beside == ()


@pytest.mark.parametrize("killed", [False, True], ids=["same owner", "another owner"])
async def test_a_removal_without_its_declaration_ends_the_newest_of_its_name_alone(fleet: Any, killed: bool) -> None:
    async with fleet:
        await create_marked_object(fleet, STATEFULSETS, statefulset("web", 2), "1.1")
        await create_marked_object(fleet, DEPLOYMENTS, deployment("web", 3), "1.3")
        await fleet.publish_placement(4, {}, removing=("own-1",))
        await fleet.start()
        await asyncio.sleep(30)
        if killed:
            await fleet.kill_instance()
            await fleet.start("p2")
        metadata = {"metadata": {"annotations": {"somebody": "touched it"}}}
        await fleet.user_api("own-1").patch(STATEFULSETS, "default", "web", metadata, resource_version="")
        await asyncio.sleep(60)
        assert fleet.deployment("own-1") is None
        assert await fleet.user_api("own-1").get(STATEFULSETS, "default", "web") is not None
        assert (fleet.last_state_and_version()[0], fleet.last_status().kind) == ("Absent", "Deployment")
        assert fleet.last_status().beside == (ObjectReference("StatefulSet", "default", "web"),)


@run_with_orphan
async def test_what_goes_along_is_said_with_it_and_after_it(fleet: Any) -> None:
    await create_marked_object(fleet, CONFIG_MAPS, config_map_manifest("conf"), "")
    await asyncio.sleep(5)
    beside = (ObjectReference("ConfigMap", "default", "conf"),)
    assert (fleet.last_state_and_version(), fleet.last_status().beside) == (("Orphaned", "1.1", ""), beside)
    await fleet.user_api("own-1").delete(DEPLOYMENTS, "default", "web", uid="", resource_version="")
    await asyncio.sleep(5)
    assert (fleet.last_state_and_version()[0], fleet.last_status().kind, fleet.last_status().beside) == (
        "Orphaned",
        "",
        beside,
    )
    before = len(tombstone_keys(fleet))
    await fleet.user_api("own-1").delete(CONFIG_MAPS, "default", "conf", uid="", resource_version="")
    await asyncio.sleep(5)
    assert tombstone_keys(fleet)[before:] == ["default/web/own-1"]


async def test_what_is_deleted_in_order_is_never_said_to_be_an_orphan(fleet: Any) -> None:
    async with fleet:
        conf = dependency_declared("conf")
        await fleet.declare_workload(dependencies=(conf,))
        await fleet.publish_placement(1, {"own-1": 3})
        await fleet.start()
        await asyncio.sleep(10)
        await fleet.publish_placement(2, {}, removing=("own-1",))
        await asyncio.sleep(10)
        assert fleet.last_state_and_version()[0] == "Absent"
        await fleet.publish_placement(3, {})
        await asyncio.sleep(30)
        assert {status.state for status in fleet.status_records()} == {"Present", "Absent"}
        assert all(status.beside == () for status in fleet.status_records())


def dependency_declared(name: str) -> DependencyDeclared:
    return DependencyDeclared(
        "ConfigMap", "default", name, "default/web", 1, json.dumps(config_map_manifest(name)).encode()
    )


async def test_what_is_seen_before_the_placement_that_lists_it_is_no_orphan(fleet: Any) -> None:
    """As a successor makes it: its placement stands in the log already, and is read later than the object is seen."""
    async with fleet:
        await fleet.declare_workload()
        await fleet.start()
        await asyncio.sleep(10)
        fleet.buses["p1"].lag_seconds = lambda topic, partition: 4 if topic == PLACEMENTS.name else 0
        await fleet.publish_placement(1, {"own-1": 3})
        await create_marked_object(fleet, DEPLOYMENTS, deployment("web", 3), "1.1")
        await asyncio.sleep(30)
        assert {status.state for status in fleet.status_records()} == {"Present"}


async def test_an_orphan_is_said_once_the_log_was_read_after_it_was_seen(fleet: Any) -> None:
    async with fleet:
        await fleet.declare_workload()
        await fleet.start()
        await asyncio.sleep(10)
        fleet.buses["p1"].lag_seconds = lambda topic, partition: 4
        await fleet.declare_workload(name="unread")
        await create_marked_object(fleet, DEPLOYMENTS, deployment("web", 3), "1.1")
        await asyncio.sleep(3)
        assert fleet.status_records() == []
        await asyncio.sleep(10)
        assert fleet.last_state_and_version() == ("Orphaned", "1.1", "")


@run_with_orphan
async def test_who_is_cut_off_says_nothing_of_orphans_and_goes_on_when_it_has_read_the_log_again(fleet: Any) -> None:
    """It could not know of a placement that lists them again."""
    before = len(fleet.said)
    fleet.buses["p1"].lag_seconds = lambda topic, partition: 10**6
    await fleet.declare_workload(name="unread")
    await asyncio.sleep(10)
    await create_marked_object(fleet, DEPLOYMENTS, deployment("late", 3), "1.1")
    await fleet.user_api("own-1").delete(DEPLOYMENTS, "default", "web", uid="", resource_version="")
    await asyncio.sleep(30)
    assert fleet.said[before:] == []
    fleet.buses["p1"].lag_seconds = lambda topic, partition: 0
    await asyncio.sleep(10)
    assert [record.key for record in fleet.said[before:]] == ["default/web/own-1", "default/late/own-1"]
    assert tombstone_keys(fleet)[-1:] == ["default/web/own-1"]


@run_with_orphan
async def test_a_new_owner_says_in_its_own_epoch_what_the_one_before_said_in_the_same_words(fleet: Any) -> None:
    """The words of a turn that is over settle nothing any more."""
    await fleet.publish_placement(2, {"own-2": 2}, name="other")
    await fleet.declare_workload(name="other")
    await asyncio.sleep(10)
    first = [fleet.last_status("own-1"), fleet.last_status("own-2", "other")]
    await fleet.kill_instance()
    await fleet.start("p2")
    await asyncio.sleep(60)
    again = [fleet.last_status("own-1"), fleet.last_status("own-2", "other")]
    assert [one.state for one in again] == ["Orphaned", "Present"]
    assert all(later.epoch > earlier.epoch for earlier, later in zip(first, again, strict=True))
    said = len(fleet.said)
    await asyncio.sleep(600)
    assert len(fleet.said) == said


def empty_log_gauge() -> float | None:
    return REGISTRY.get_sample_value("spillway_empty_log", {"cluster": "own-1"})


@run_with_orphan
async def test_a_log_that_places_nothing_where_our_objects_are_is_told(fleet: Any) -> None:
    """Until something is placed again; an alert is for a person."""
    await asyncio.sleep(120)
    assert empty_log_gauge() == 1
    await fleet.publish_placement(2, {"own-1": 3})
    await asyncio.sleep(120)
    assert empty_log_gauge() == 0
