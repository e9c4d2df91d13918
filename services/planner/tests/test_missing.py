"""What a template names and a cluster lacks is no lack of room: it reserves for a minute, then waits for that (P6)."""

from dataclasses import replace

import pytest

from planner.core.explaining.explanation import MISSING as BOUND
from planner.core.requests import decisions
from planner.core.requests.answers import workload_reply
from spillway.api import (
    ApplyRequest,
    DeleteRequest,
    ExplainRequest,
    MigrateRequest,
    PlacementReply,
    RequestError,
    ScaleRequest,
)
from spillway.events import PHASE_DRAINING, PHASE_LEAVING, STATE_PRESENT, BrakeReleased, BrakeSet, ShapeAdmitted
from spillway.model import NO_GENERATION, ObjectReference
from spillway.scopes import FLEET_SCOPE

from .builders import deployment, job, manifest_texts, pod_template, statefulset
from .missing_world import KEY, SHOP, TICK, WEB, WITH_KEY, MissingWorld, Object
from .test_explaining import explain_reply

MISSING = "Secret default/key, missing in own-1, own-2"


@pytest.fixture
def world() -> MissingWorld:
    """Eight cores of one's own, eight in the cloud. web wants six, and the Secret that it names is nowhere."""
    world = MissingWorld(own_1=4, own_2=4, cloud_1=8)
    world.apply_workload(SHOP, 0)
    world.apply_workload(WEB, 6, WITH_KEY)
    return world


def test_it_reserves_for_a_minute_and_then_waits_where_it_is_and_nothing_is_reserved(world: MissingWorld) -> None:
    placed = world.kept_by_cluster()
    assert sum(placed.values()) == 6
    for _ in range(0, 60 - TICK, TICK):
        world.run_seconds(TICK)
        assert world.kept_by_cluster() == placed, "it is placed nowhere else"
        assert world.reserved_and_counted() == 6
        assert sum(world.certain_room_by_cluster().values()) == 10
    world.run_seconds(3 * TICK)
    assert world.kept_by_cluster() == {}
    assert world.find_workload().unplaced == 6
    assert world.reserved_and_counted() == 0
    assert world.certain_room_by_cluster() == {"own-1": 4, "own-2": 4, "cloud-1": 8}
    parts = world.find_workload().parts
    assert {name: (part.replicas, part.removing, part.missing) for name, part in parts.items()} == {
        "own-1": (0, False, (KEY,)),
        "own-2": (0, False, (KEY,)),
    }
    world.run_seconds(600)
    assert world.reserved_and_counted() == 0
    assert world.find_workload().parts == parts, "nothing is decided again"
    assert world.causes.count("DependencyMissing") == 1
    assert "TakeBack" not in world.causes


def test_a_neighbour_is_told_of_its_room_and_gets_it(world: MissingWorld) -> None:
    world.run_seconds(90)
    world.scale_workload(SHOP, 16)
    assert world.find_workload(SHOP).unplaced == 0
    world.run_seconds(TICK)
    assert world.kept_by_cluster(SHOP) == {"own-1": 4, "own-2": 4, "cloud-1": 8}


def test_what_waits_is_named_with_the_clusters(world: MissingWorld) -> None:
    world.run_seconds(90)
    placement = world.find_workload().placement
    assert placement is not None
    assert placement.waiting_for == MISSING
    reply = workload_reply(world.fleet.state, world.find_workload())
    assert reply.placement.waiting_for == MISSING
    assert {part.cluster: part.missing for part in reply.placement.parts} == {"own-1": (KEY,), "own-2": (KEY,)}
    assert {status.cluster: (status.state, status.missing) for status in reply.statuses} == {
        "own-1": ("DependencyMissing", (KEY,)),
        "own-2": ("DependencyMissing", (KEY,)),
    }


def test_what_waits_is_named_too_once_others_have_the_room(world: MissingWorld) -> None:
    """Whoever made room would wait on."""
    world.run_seconds(90)
    world.scale_workload(SHOP, 16)
    world.scale_workload(WEB, 7)
    placement = world.find_workload().placement
    assert placement is not None
    assert placement.waiting_for.startswith("room (own-1: ")
    assert placement.waiting_for.endswith(f"); and then {MISSING}")


def test_explain_names_it_in_the_first_minute_and_after(world: MissingWorld) -> None:
    for seconds in (2 * TICK, 90):
        world.run_seconds(seconds)
        found = explain_reply(world.fleet, ExplainRequest("", "web"))
        bound = {entry.cluster: (entry.bound, entry.why) for entry in found.clusters if entry.cluster != "cloud-1"}
        why = (BOUND, "Secret default/key is missing there")
        assert bound == {"own-1": why, "own-2": why}
    assert "6 of them until Secret default/key, missing in own-1, own-2, is there" in found.verdict


def test_once_it_is_there_it_is_planned_again(world: MissingWorld) -> None:
    world.run_seconds(90)
    for name in ("own-1", "own-2"):
        world.members[name].has = True
    world.run_seconds(2 * TICK)
    assert sum(world.kept_by_cluster().values()) == 6
    assert "cloud-1" not in world.kept_by_cluster()
    world.run_seconds(2 * TICK)
    assert world.reserved_and_counted() == 6
    assert not any(part.missing for part in world.find_workload().parts.values())


def test_where_it_is_there_comes_first_within_a_tier(world: MissingWorld) -> None:
    """And what it has no room for waits for the other of the tier, though there is room in the next one."""
    world.run_seconds(90)
    world.members["own-2"].has = world.members["cloud-1"].has = True
    world.run_seconds(4 * TICK)
    assert world.kept_by_cluster() == {"own-2": 4}
    assert world.find_workload().unplaced == 2
    assert world.find_workload().parts["own-1"].missing == (KEY,)
    world.members["own-1"].has = True
    world.run_seconds(4 * TICK)
    assert world.kept_by_cluster() == {"own-1": 2, "own-2": 4}


def test_what_is_known_to_lack_it_comes_last_in_its_tier_from_the_start() -> None:
    world = MissingWorld(own_1=8, own_2=4, cloud_1=8)
    world.members["own-2"].has = True
    world.apply_workload(WEB, 0, WITH_KEY)
    for name in world.members:
        world.report_admitted_shape(name)
    world.scale_workload(WEB, 3)
    assert world.kept_by_cluster() == {"own-2": 3}
    world.scale_workload(WEB, 6)
    assert world.kept_by_cluster() == {"own-1": 2, "own-2": 4}, "never before an earlier tier"


@pytest.mark.parametrize("told", [True, False], ids=["by its template", "by its part alone"])
def test_a_minimum_where_it_is_missing_keeps_nobody_from_the_cluster_of_the_tier_that_has_it(told: bool) -> None:
    """As a minimum without room does. Once it is there the minimum is filled, out of what is above the others'."""
    world = MissingWorld(own_1=4, own_2=8, cloud_1=8)
    world.apply_workload(SHOP, 0)
    world.members["own-2"].has = True
    world.apply_workload(WEB, 6, WITH_KEY, limits=[{"cluster": "own-1", "min": 2}])
    for name in world.members if told else ():
        world.report_admitted_shape(name)
    world.run_seconds(90)
    placement, decided = world.find_workload().placement, len(world.causes)
    assert placement is not None
    assert (world.kept_by_cluster(), placement.unplaced) == ({"own-2": 6}, 0)
    assert placement.waiting_for == (
        "room for 2 replicas that the minimum of own-1 lacks (Secret default/key is missing there)"
    )
    assert world.find_workload().parts["own-1"].missing == (KEY,)
    assert world.reserved_and_counted() == 6
    world.run_seconds(300)
    assert len(world.causes) == decided, "nothing is decided again"
    world.members["own-1"].has = True
    if told:
        world.report_admitted_shape("own-1")
    world.run_seconds(60)
    assert world.kept_by_cluster() == {"own-1": 2, "own-2": 4}
    assert world.find_workload().parts["own-1"].missing == ()
    assert world.reserved_and_counted() == 6


def test_once_all_have_a_place_only_the_cluster_of_a_minimum_stays_listed_for_what_is_missing() -> None:
    world = MissingWorld(own_1=4, own_2=4, own_3=8)
    world.apply_workload(SHOP, 8, limits=[{"cluster": name, "max": 0} for name in ("own-1", "own-2")])
    world.apply_workload(WEB, 6, WITH_KEY, limits=[{"cluster": "own-1", "min": 2}])
    world.run_seconds(90)
    listed = {name: part.missing for name, part in world.find_workload().parts.items()}
    assert (listed, world.find_workload().unplaced) == ({"own-1": (KEY,), "own-2": (KEY,)}, 6)
    world.members["own-3"].has = True
    world.report_admitted_shape("own-3")
    world.scale_workload(SHOP, 0)
    world.run_seconds(90)
    assert (world.kept_by_cluster(), world.find_workload().unplaced) == ({"own-3": 6}, 0)
    waits = {name: part.missing for name, part in world.find_workload().parts.items() if part.missing}
    assert waits == {"own-1": (KEY,)}


def test_a_minimum_where_it_is_missing_waits_there_when_no_other_of_the_tier_has_it(world: MissingWorld) -> None:
    """It goes to no later tier, whose clusters lack nothing."""
    world.apply_workload(WEB, 6, WITH_KEY, limits=[{"cluster": "own-2", "min": 2}])
    world.members["cloud-1"].has = True
    world.run_seconds(90)
    assert (world.kept_by_cluster(), world.find_workload().unplaced) == ({}, 6)
    world.members["own-2"].has = True
    world.run_seconds(90)
    assert (world.kept_by_cluster(), world.find_workload().unplaced) == ({"own-2": 4}, 2)


def test_what_is_known_to_be_missing_is_said_in_the_answer_with_object_and_clusters() -> None:
    """Of the clusters that get replicas alone; what a cluster was not asked yet is not said of it."""
    world = MissingWorld(own_1=4, own_2=4, cloud_1=8)
    first = apply_and_keep_reply(world, 0)
    assert (first.warnings, [part.missing for part in first.parts]) == ((), [])
    for name in ("own-1", "cloud-1"):
        world.report_admitted_shape(name)
    reply = apply_and_keep_reply(world, 6)
    (said,) = reply.warnings
    assert said.startswith("DependencyMissing: Secret default/key, missing in own-1: no new pod starts there before ")
    assert {part.cluster: part.missing for part in reply.parts} == {"own-1": (KEY,), "own-2": ()}
    world.report_admitted_shape("own-2")
    state, moment = world.fleet.state, world.fleet.next_moment()
    scaled = decisions.decide_scale(state, ScaleRequest(*WEB, 7), moment).reply
    assert [text.partition(": no new")[0] for text in scaled.warnings] == [f"DependencyMissing: {MISSING}"]
    for name in world.members:
        world.members[name].has = True
        world.report_admitted_shape(name)
    assert apply_and_keep_reply(world, 6).warnings == ()


def apply_and_keep_reply(world: MissingWorld, replicas: int) -> PlacementReply:
    """What an Apply of web is answered; it is kept."""
    request = ApplyRequest(manifest_texts(deployment(replicas, "web", WITH_KEY)))
    decided = decisions.decide_apply(world.fleet.state, request, world.fleet.next_moment())
    world.apply_events(decided.events)
    return decided.reply


def test_what_goes_beyond_the_room_of_those_that_lack_it_goes_to_the_next_tier() -> None:
    world = MissingWorld(own_1=4, cloud_1=8)
    world.members["cloud-1"].has = True
    world.apply_workload(WEB, 6, WITH_KEY)
    world.run_seconds(120)
    assert world.kept_by_cluster() == {"cloud-1": 2}
    assert world.find_workload().unplaced == 4


def test_of_what_runs_already_nothing_is_taken(world: MissingWorld) -> None:
    for name in world.members:
        world.members[name].has = True
    world.run_seconds(2 * TICK)
    running = world.kept_by_cluster()
    for name in world.members:
        world.members[name].has = False
    world.run_seconds(300)
    assert world.kept_by_cluster() == running
    assert world.reserved_and_counted() == 6


def test_a_scale_that_comes_after_waits_with_the_others_and_reserves_nothing(world: MissingWorld) -> None:
    world.run_seconds(90)
    world.scale_workload(WEB, 8)
    assert world.kept_by_cluster() == {}
    assert world.reserved_and_counted() == 0
    assert world.find_workload().unplaced == 8


def test_scaling_again_and_again_reserves_no_longer(world: MissingWorld) -> None:
    """An autoscaler changes parts more often than once a minute."""
    for _ in range(8):
        world.run_seconds(10)
        world.scale_workload(WEB, 13 - world.find_workload().declared.replicas)
    assert world.reserved_and_counted() == 0


def test_another_planner_knows_it_and_begins_no_chase(world: MissingWorld) -> None:
    world.run_seconds(90)
    for _ in range(3):
        world.start_another_planner()
        world.run_seconds(30)
        assert world.kept_by_cluster() == {}
        assert world.reserved_and_counted() == 0
    world.members["own-1"].has = True
    world.run_seconds(2 * TICK)
    assert world.kept_by_cluster() == {"own-1": 4}


def test_another_template_is_placed_anew(world: MissingWorld) -> None:
    world.run_seconds(90)
    world.apply_workload(WEB, 6, pod_template())
    assert sum(world.kept_by_cluster().values()) == 6
    assert not any(part.missing for part in world.find_workload().parts.values())


def test_the_same_declaration_again_changes_nothing(world: MissingWorld) -> None:
    world.run_seconds(90)
    parts = world.find_workload().parts
    world.apply_workload(WEB, 6, WITH_KEY)
    assert world.find_workload().parts == parts


def test_a_frozen_workload_keeps_what_it_was_given(world: MissingWorld) -> None:
    placed = world.kept_by_cluster()
    world.apply_events((BrakeSet(FLEET_SCOPE, "", "ann", 1),))
    world.run_seconds(90)
    assert world.kept_by_cluster() == placed
    world.apply_events((BrakeReleased(FLEET_SCOPE, "ann", 2),))
    world.run_seconds(TICK)
    assert world.kept_by_cluster() == {}


def test_what_the_declaration_brings_is_not_missing() -> None:
    """The cluster is asked of the template before what goes along with it is there."""
    world = MissingWorld(own_1=4, own_2=8)
    pod = pod_template(volumes=[{"name": "c", "configMap": {"name": "c"}}])
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {}}
    for given, expected in (((config,), {"own-2": 1}), ((), {"own-1": 1})):
        request = ApplyRequest(manifest_texts(deployment(0, "web", pod), *given))
        world.apply_events(decisions.decide_apply(world.fleet.state, request, world.fleet.next_moment()).events)
        lacks = ObjectReference("ConfigMap", "default", "c")
        digest = world.find_workload().replica_shape.template
        said = ShapeAdmitted(digest, "own-2", 3, 1, "default", "Admitted", "", None, (lacks,))
        world.fleet.state.apply_event(said, world.fleet.now)
        world.scale_workload(WEB, 1)
        assert world.kept_by_cluster() == expected
        world.scale_workload(WEB, 0)


def test_what_leaves_a_draining_cluster_passes_over_those_that_lack_it(world: MissingWorld) -> None:
    """It would leave for replicas that never run; and it comes back to no such cluster either."""
    world.members["own-1"].has = world.members["cloud-1"].has = True
    world.scale_workload(WEB, 0)
    world.run_seconds(2 * TICK)
    for name in world.members:
        world.report_admitted_shape(name)
    world.scale_workload(WEB, 2)
    world.run_seconds(2 * TICK)
    assert world.kept_by_cluster() == {"own-1": 2}
    world.set_phase("own-1", PHASE_DRAINING)
    world.run_seconds(4 * TICK)
    assert world.kept_by_cluster() == {"cloud-1": 2}
    world.run_seconds(300)
    assert world.kept_by_cluster() == {"cloud-1": 2}


def test_a_request_that_is_refused_where_there_is_no_room_says_what_is_missing() -> None:
    world = MissingWorld(own_1=4)
    world.apply_workload(WEB, 2, WITH_KEY, unplaceable="Refuse")
    world.run_seconds(90)
    with pytest.raises(RequestError, match="Secret default/key, missing in own-1") as refused:
        world.scale_workload(WEB, 3)
    assert (refused.value.code, refused.value.reason) == ("FAILED_PRECONDITION", "DEPENDENCY_MISSING")


@pytest.mark.parametrize("kind", ["StatefulSet", "Job"])
def test_what_goes_whole_to_one_cluster_waits_there(kind: str) -> None:
    world = MissingWorld(own_1=4, cloud_1=8)
    pod = pod_template(volumes=WITH_KEY["spec"]["volumes"], restartPolicy="Never" if kind == "Job" else "Always")
    manifest = job(2, "web", pod) if kind == "Job" else statefulset(2, "web", pod)
    world.apply_events(
        decisions.decide_apply(
            world.fleet.state, ApplyRequest(manifest_texts(manifest)), world.fleet.next_moment()
        ).events
    )
    world.run_seconds(120)
    assert world.kept_by_cluster() == {}
    assert world.reserved_and_counted() == 0
    assert world.find_workload().parts["own-1"].missing == (KEY,)
    for replicas in (0, 2) if kind == "StatefulSet" else ():  # A Job is not scaled.
        world.scale_workload(WEB, replicas)
        world.run_seconds(30)
    assert world.reserved_and_counted() == 0
    (waits,) = (part for part in world.find_workload().parts.values() if part.missing)
    world.members[waits.cluster].has = True
    world.run_seconds(4 * TICK)
    assert world.kept_by_cluster() == {waits.cluster: 2}


def test_a_cluster_that_leaves_has_no_part_that_waits(world: MissingWorld) -> None:
    world.run_seconds(90)
    world.set_phase("own-1", PHASE_LEAVING)
    world.run_seconds(4 * TICK)
    parts = {name: part.missing for name, part in world.find_workload().parts.items()}
    assert parts == {"own-2": (KEY,), "cloud-1": (KEY,)}, "what had no room in own-2 goes on, and waits there, too"
    assert world.find_workload().unplaced == 6
    assert world.reserved_and_counted() == 0, "with no minute of its own"


def test_who_is_deleted_waits_no_more(world: MissingWorld) -> None:
    world.run_seconds(90)
    world.apply_events(
        decisions.decide_delete(world.fleet.state, DeleteRequest("", "web"), world.fleet.next_moment()).events
    )
    world.run_seconds(2 * TICK)
    assert world.find_workload().parts == {}


def test_a_change_of_size_that_its_cluster_has_not_answered_yet_begins_no_new_minute() -> None:
    """An autoscaler's, every ten seconds: the status of the version before stands when the planner looks."""
    world = MissingWorld(own_1=8, cloud_1=8)
    world.apply_workload(SHOP, 0)
    world.apply_workload(WEB, 6, WITH_KEY)
    world.run_seconds(10)
    for _ in range(20):
        world.scale_workload(WEB, 13 - world.find_workload().declared.replicas)
        world.fleet.now += 0.1
        world.run_planner_round()
        world.run_seconds(10)
    assert world.reserved_and_counted() == 0
    assert world.certain_room_by_cluster() == {"own-1": 8, "cloud-1": 8}


def test_who_waits_reserves_nowhere_else_when_one_of_its_clusters_gets_what_was_missing() -> None:
    """Where it waited is full then, and it fits in another cluster that lacks it, too."""
    world = MissingWorld(own_1=4, cloud_1=8)
    world.apply_workload(SHOP, 4)
    world.run_seconds(10)
    world.apply_workload(WEB, 6, WITH_KEY)
    world.run_seconds(90)
    world.report_admitted_shape("own-1")
    world.report_admitted_shape("cloud-1")
    world.run_seconds(10)
    world.scale_workload(SHOP, 0)
    world.run_seconds(30)
    world.members["cloud-1"].has = True
    world.report_admitted_shape("cloud-1")
    for _ in range(20):
        world.run_seconds(TICK)
        assert world.kept_by_cluster().get("own-1", 0) == 0
        assert world.certain_room_by_cluster()["own-1"] == 4
    assert "own-1" in world.find_workload().parts, "somebody looks whether it is there"
    world.members["own-1"].has = True
    world.run_seconds(30)
    assert sum(world.kept_by_cluster().values()) == 6
    assert world.find_workload().unplaced == 0


def test_a_status_of_an_earlier_version_ends_no_wait_and_hides_no_end_of_one(world: MissingWorld) -> None:
    """A propagator whose watch is late says of an object that it has just written first how that was before."""
    world.run_seconds(90)
    parts = {name: world.find_workload().parts[name] for name in ("own-1", "own-2")}
    for name, part in parts.items():
        world.members[name].has = True
        world.members[name].objects[WEB] = Object(part.version)
        world.report_change(name)
        world.report_status(name, WEB, NO_GENERATION, STATE_PRESENT)
    for _ in range(3):
        world.fleet.now += TICK
        world.run_planner_round()
    assert world.find_workload().unplaced == 6
    for name, part in parts.items():
        world.report_status(name, WEB, part.version, STATE_PRESENT)
    world.run_planner_round()
    assert world.find_workload().unplaced == 0


@pytest.mark.parametrize("told", [True, False], ids=["its clusters said so of the template", "they did not"])
def test_who_is_scaled_to_nothing_and_back_begins_no_new_minute(world: MissingWorld, told: bool) -> None:
    world.run_seconds(90)
    for name in world.members if told else ():
        world.report_admitted_shape(name)
    world.scale_workload(WEB, 0)
    world.run_seconds(30)
    assert world.find_workload().parts == {}
    world.scale_workload(WEB, 6)
    world.run_seconds(2 * TICK)
    for _ in range(12):
        world.run_seconds(TICK)
        assert world.reserved_and_counted() == 0
        assert world.certain_room_by_cluster() == {"own-1": 4, "own-2": 4, "cloud-1": 8}
    assert world.find_workload().unplaced == 6
    assert {name for name, part in world.find_workload().parts.items() if part.missing} == {"own-1", "own-2"}
    world.members["own-2"].has = True
    world.run_seconds(2 * TICK)
    assert world.kept_by_cluster() == {"own-2": 4}


def test_another_planner_of_an_earlier_version_left_the_wait_in_the_parts_alone(world: MissingWorld) -> None:
    world.run_seconds(90)
    placement = world.find_workload().placement
    assert placement is not None
    assert placement.missing_template == world.find_workload().replica_shape.template
    world.apply_events((replace(placement, missing_template=""),))
    world.start_another_planner()
    world.scale_workload(WEB, 8)
    assert world.reserved_and_counted() == 0
    placement = world.find_workload().placement
    assert placement is not None
    assert placement.missing_template == world.find_workload().replica_shape.template


def test_a_template_that_comes_back_after_another_has_a_minute_of_its_own(world: MissingWorld) -> None:
    world.run_seconds(90)
    world.apply_workload(WEB, 6, pod_template())
    world.run_seconds(10)
    world.apply_workload(WEB, 0, WITH_KEY)
    world.run_seconds(10)
    world.apply_workload(WEB, 6, WITH_KEY)
    assert sum(world.kept_by_cluster().values()) == 6


def test_replicas_that_stay_since_those_that_were_to_replace_them_lack_something_wait_for_nothing() -> None:
    """All have a place again, so no text names the object, and no cluster is listed for it."""
    world = MissingWorld(own_1=4, cloud_1=8)
    world.members["cloud-1"].has = True
    world.apply_workload(SHOP, 4)
    world.run_seconds(2 * TICK)
    world.apply_workload(WEB, 2, WITH_KEY)
    world.run_seconds(2 * TICK)
    assert world.kept_by_cluster() == {"cloud-1": 2}
    world.scale_workload(SHOP, 0)
    world.run_seconds(2 * TICK)
    request = MigrateRequest(*WEB, from_cluster="cloud-1", to_cluster="own-1", replicas=2)
    world.apply_events(decisions.decide_migrate(world.fleet.state, request, world.fleet.next_moment()).events)
    assert world.kept_by_cluster() == {"own-1": 2}
    world.run_seconds(120)
    assert world.kept_by_cluster() == {"cloud-1": 2}
    workload = world.find_workload()
    assert (workload.unplaced, workload.placement and workload.placement.waiting_for) == (0, "")
    assert [part.cluster for part in workload.parts.values() if part.missing] == []
