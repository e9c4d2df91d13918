"""From requests to events: what is declared, where replicas go, what is answered and remembered."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.core.background import aftermath
from planner.core.knowledge.rules import PlannerRules
from planner.core.placement import placing
from planner.core.requests import answers, decisions
from planner.core.requests.decisions import DecidedRequest, UnheardRequest
from spillway.addresses import Tombstone
from spillway.api import (
    ApplyRequest,
    DeleteRequest,
    GetRequest,
    PlacementReply,
    RequestError,
    ScaleRequest,
)
from spillway.events import (
    STATE_ABSENT,
    CapacityNeeded,
    DecisionRecorded,
    DependencyDeclared,
    Event,
    PlacementDecided,
    WorkloadDeclared,
)
from spillway.model import Generation, NodeRow, Part, PodTable

from .builders import (
    Fleet,
    container_spec,
    deployment,
    joined_cluster,
    manifest_texts,
    node_group,
    node_row,
    placement_policy,
    pod_template,
    workload_facts,
)
from .member import MemberCluster, workload_observed

WEB = ("default", "web")


def apply_decision(fleet: Fleet, decided: DecidedRequest) -> PlacementReply:
    for event in decided.events:
        fleet.state.apply_event(event, fleet.now)
    return decided.reply


def apply_manifests(fleet: Fleet, *manifests: dict[str, Any], key: str = "") -> PlacementReply:
    return apply_decision(
        fleet, decisions.decide_apply(fleet.state, ApplyRequest(manifest_texts(*manifests), key), fleet.next_moment())
    )


def scale_workload(fleet: Fleet, replicas: Any, key: str = "", name: str = "web") -> PlacementReply:
    return apply_decision(
        fleet, decisions.decide_scale(fleet.state, ScaleRequest("", name, replicas, key), fleet.next_moment())
    )


def delete_workload(fleet: Fleet, key: str = "", name: str = "web") -> PlacementReply:
    return apply_decision(
        fleet, decisions.decide_delete(fleet.state, DeleteRequest("", name, key), fleet.next_moment())
    )


def assert_refused(action: Callable[[], object], code: str, text: str = "") -> None:
    with pytest.raises(RequestError) as caught:
        action()
    assert caught.value.code == code
    assert text in caught.value.text


def parts_by_cluster(fleet: Fleet, name: str = "web") -> dict[str, Part]:
    return fleet.state.workloads["default", name].parts


def placed_by_cluster(reply: PlacementReply) -> dict[str, int]:
    return {part.cluster: part.replicas for part in reply.parts}


def settle_leaving_workloads(fleet: Fleet) -> tuple[Event | Tombstone, ...]:
    events: list[Event | Tombstone] = []
    for key in list(fleet.state.leaving):
        events.extend(aftermath.settle_workload(fleet.state, key, fleet.next_moment()).events)
    for event in events:
        if not isinstance(event, Tombstone):
            fleet.state.apply_event(event, fleet.now)
    return tuple(events)


def report_absent(fleet: Fleet, *clusters: str) -> None:
    for name in clusters:
        fleet.state.apply_event(
            workload_observed(name, WEB, parts_by_cluster(fleet)[name].version, STATE_ABSENT, 9), fleet.now
        )


@pytest.fixture
def fleet() -> Fleet:
    """Two own clusters of 8 and 4 cores, one in the cloud of 100."""
    return Fleet(
        own_1=[node_row("a1"), node_row("a2")],
        own_2=[node_row("b1")],
        cloud_1=[node_row(f"c{index}", 10_000) for index in range(10)],
    )


def test_a_workload_goes_to_own_clusters_and_overflows_into_the_cloud(fleet: Fleet) -> None:
    assert placed_by_cluster(apply_manifests(fleet, deployment(6))) == {"own-1": 4, "own-2": 2}
    assert placed_by_cluster(scale_workload(fleet, 20)) == {"own-1": 8, "own-2": 4, "cloud-1": 8}
    assert placed_by_cluster(scale_workload(fleet, 6)) == {"own-1": 4, "own-2": 2, "cloud-1": 0}


def test_a_scale_in_takes_what_the_record_shows_as_not_ready(fleet: Fleet) -> None:
    apply_manifests(fleet, deployment(6))
    for name, ready in (("own-1", 2), ("own-2", 2)):
        part = parts_by_cluster(fleet)[name]
        shown = replace(workload_facts(part.version, part.replicas), ready_replicas=ready)
        fleet.report_change(name, shown=(shown,))
    assert placed_by_cluster(scale_workload(fleet, 4)) == {"own-1": 2, "own-2": 2}


def test_the_reply_names_what_bound_each_cluster(fleet: Fleet) -> None:
    reply = apply_manifests(fleet, deployment(13))
    assert [(entry.cluster, entry.certain, entry.after) for entry in reply.inputs] == [
        ("own-1", 8, 8),
        ("own-2", 4, 4),
        ("cloud-1", 100, 1),
    ]
    assert reply.inputs[1].limited_by == "cpu (1 node)"


def test_one_request_s_events_belong_together(fleet: Fleet) -> None:
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}
    decided = decisions.decide_apply(
        fleet.state, ApplyRequest(manifest_texts(deployment(2), config)), fleet.next_moment()
    )
    assert [type(event) for event in decided.events] == [
        WorkloadDeclared,
        DependencyDeclared,
        PlacementDecided,
        DecisionRecorded,
    ]


def test_the_record_says_what_was_decided_on(fleet: Fleet) -> None:
    decided = decisions.decide_apply(fleet.state, ApplyRequest(manifest_texts(deployment(2))), fleet.next_moment())
    record = decided.events[-1]
    assert isinstance(record, DecisionRecorded)
    assert (record.cause, record.replicas, record.at_ms, record.settings) == (
        "Apply",
        2,
        100_000,
        PlannerRules().to_text(),
    )
    assert dict(record.positions) == {
        "capacity-changes/own-1": 1,
        "capacity-changes/own-2": 1,
        "capacity-changes/cloud-1": 1,
    }


def test_deciding_changes_nothing(fleet: Fleet) -> None:
    decisions.decide_apply(fleet.state, ApplyRequest(manifest_texts(deployment(2))), fleet.next_moment())
    assert not fleet.state.workloads


def test_two_workloads_never_get_one_hole(fleet: Fleet) -> None:
    apply_manifests(fleet, deployment(10))
    reply = apply_manifests(fleet, deployment(10, "api"))
    assert placed_by_cluster(reply) == {"own-1": 1, "own-2": 1, "cloud-1": 8}


# ── Idempotency keys ────────────────────────────────────────────────────────────────────────────────────────────

VERBS: dict[str, Callable[[Fleet, str], PlacementReply]] = {
    "apply": lambda fleet, key: apply_manifests(fleet, deployment(3), key=key),
    "scale": lambda fleet, key: scale_workload(fleet, 5, key),
    "delete": delete_workload,
}


@pytest.mark.parametrize("verb", VERBS)
def test_the_same_key_gets_the_same_answer_and_changes_nothing(fleet: Fleet, verb: str) -> None:
    apply_manifests(fleet, deployment(1))
    first = VERBS[verb](fleet, "k")
    before = parts_by_cluster(fleet)
    assert VERBS[verb](fleet, "k") == replace(first, inputs=())
    assert parts_by_cluster(fleet) == before


def test_an_answer_is_remembered_though_other_requests_came_after(fleet: Fleet) -> None:
    apply_manifests(fleet, deployment(1))
    first = scale_workload(fleet, 5, "k")
    scale_workload(fleet, 7)
    assert scale_workload(fleet, 5, "k") == replace(first, inputs=())
    assert fleet.state.workloads[WEB].declared.replicas == 7


def test_a_deletion_s_answer_is_remembered_after_everything_is_gone(fleet: Fleet) -> None:
    apply_manifests(fleet, deployment(1))
    first = delete_workload(fleet, "k")
    report_absent(fleet, *parts_by_cluster(fleet))
    settle_leaving_workloads(fleet)
    assert delete_workload(fleet, "k") == first


def test_a_key_for_another_request_is_refused(fleet: Fleet) -> None:
    apply_manifests(fleet, deployment(1), key="k")
    for action in (
        lambda: scale_workload(fleet, 5, "k"),
        lambda: delete_workload(fleet, "k"),
        lambda: apply_manifests(fleet, deployment(2), key="k"),
    ):
        assert_refused(action, "INVALID_ARGUMENT", "idempotency_key: 'k': expected a new key")


def test_the_33rd_key_drops_the_oldest(fleet: Fleet) -> None:
    apply_manifests(fleet, deployment(1), key="k0")
    for index in range(1, 33):
        scale_workload(fleet, index % 3, f"k{index}")
    kept = [entry.key for entry in fleet.state.workloads[WEB].declared.answered]
    assert kept == [f"k{index}" for index in range(1, 33)]


def test_a_key_is_forgotten_after_an_hour(fleet: Fleet) -> None:
    apply_manifests(fleet, deployment(1), key="k")
    fleet.now += 3599
    assert_refused(lambda: scale_workload(fleet, 5, "k"), "INVALID_ARGUMENT")
    fleet.now += 1
    fleet.send_heartbeats()
    assert scale_workload(fleet, 5, "k").replicas == 5


def test_a_key_that_is_too_long_is_refused(fleet: Fleet) -> None:
    assert_refused(
        lambda: apply_manifests(fleet, deployment(), key="k" * 129), "INVALID_ARGUMENT", "at most 128 characters"
    )


def test_a_key_is_remembered_even_where_nothing_changed(fleet: Fleet) -> None:
    apply_manifests(fleet, deployment(1))
    first = apply_manifests(fleet, deployment(1), key="k")
    assert (first.generation, apply_manifests(fleet, deployment(1), key="k")) == (1, replace(first, inputs=()))
    assert_refused(lambda: scale_workload(fleet, 3, "k"), "INVALID_ARGUMENT")


# ── Generations, versions, ceilings ─────────────────────────────────────────────────────────────────────────────

CONFIG = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "1"}}
CHANGES: dict[str, tuple[tuple[dict[str, Any], ...], int, int]] = {
    "nothing": ((deployment(2), CONFIG), 1, 1),
    "replicas": ((deployment(3), CONFIG), 2, 1),
    "policy": ((deployment(2), CONFIG, placement_policy(ownFirst=False)), 2, 1),
    "template": ((deployment(2, pod=pod_template(container_spec(cpu="2"))), CONFIG), 2, 2),
    "another field": ((deployment(2, minReadySeconds=3), CONFIG), 2, 1),
    "a dependency's content": ((deployment(2), CONFIG | {"data": {"a": "2"}}), 2, 1),
    "a dependency less": ((deployment(2),), 2, 1),
}


@pytest.mark.parametrize(("manifests", "generation", "of_template"), CHANGES.values(), ids=CHANGES)
def test_a_generation_is_raised_by_a_change_only(
    fleet: Fleet, manifests: tuple[dict[str, Any], ...], generation: int, of_template: int
) -> None:
    apply_manifests(fleet, deployment(2), CONFIG)
    apply_manifests(fleet, *manifests)
    declared = fleet.state.workloads[WEB].declared
    assert (declared.generation, declared.template_generation) == (generation, of_template)


def test_what_changes_nothing_writes_nothing(fleet: Fleet) -> None:
    apply_manifests(fleet, deployment(2))
    assert (
        decisions.decide_apply(fleet.state, ApplyRequest(manifest_texts(deployment(2))), fleet.next_moment()).events
        == ()
    )
    assert decisions.decide_scale(fleet.state, ScaleRequest("", "web", 2), fleet.next_moment()).events == ()
    delete_workload(fleet)
    assert decisions.decide_delete(fleet.state, DeleteRequest("", "web"), fleet.next_moment()).events == ()


def test_a_version_is_raised_only_for_the_parts_that_change(fleet: Fleet) -> None:
    apply_manifests(fleet, deployment(12))
    before = parts_by_cluster(fleet)
    scale_workload(fleet, 15)
    after = parts_by_cluster(fleet)
    assert (after["own-1"], after["own-2"]) == (before["own-1"], before["own-2"])
    assert after["cloud-1"].version > before["own-1"].version


@pytest.mark.parametrize(
    "edited",
    [{"minReadySeconds": 5}, {"paused": True}, {"strategy": {"type": "Recreate"}}],
    ids=["minReadySeconds", "paused", "strategy"],
)
def test_what_a_manifest_says_outside_its_template_goes_to_every_cluster_at_once(
    fleet: Fleet, edited: dict[str, Any]
) -> None:
    """It restarts no pod: only the versions rise, so that the objects are written anew; once, not at every apply."""
    apply_manifests(fleet, deployment(12))
    before = parts_by_cluster(fleet)
    assert len(before) > 1
    apply_manifests(fleet, deployment(12, **edited))
    after = parts_by_cluster(fleet)
    assert {name: part.replicas for name, part in after.items()} == {n: part.replicas for n, part in before.items()}
    assert all(after[name].version > part.version for name, part in before.items())
    assert {part.template_generation for part in after.values()} == {1}
    apply_manifests(fleet, deployment(12, **edited))
    assert parts_by_cluster(fleet) == after


def test_a_template_that_goes_to_all_at_once_raises_every_part_s_version(fleet: Fleet) -> None:
    apply_manifests(fleet, deployment(12))
    before = parts_by_cluster(fleet)
    apply_manifests(
        fleet, deployment(12, pod=pod_template(container_spec(cpu="500m"))), placement_policy(rollout="all")
    )
    after = parts_by_cluster(fleet)
    assert all(after[name].version > before[name].version for name in before)
    assert {name: part.replicas for name, part in after.items()} == {
        name: part.replicas for name, part in before.items()
    }


def test_while_templates_roll_the_older_shapes_are_kept(fleet: Fleet) -> None:
    apply_manifests(fleet, deployment(4))
    first = fleet.state.workloads[WEB].replica_shape
    fleet.report_change("own-1", shown=(workload_facts(parts_by_cluster(fleet)["own-1"].version, 3),))
    apply_manifests(fleet, deployment(4, pod=pod_template(container_spec(cpu="2"))), placement_policy(rollout="all"))
    assert fleet.state.workloads[WEB].declared.rolling_from == (first,)
    second = fleet.state.workloads[WEB].replica_shape
    apply_manifests(fleet, deployment(4, pod=pod_template(container_spec(cpu="3"))))
    assert fleet.state.workloads[WEB].declared.rolling_from == (first, second)


def test_once_rolled_out_the_older_shapes_are_forgotten(fleet: Fleet) -> None:
    apply_manifests(fleet, deployment(2))
    apply_manifests(fleet, deployment(2, pod=pod_template(container_spec(cpu="2"))), placement_policy(rollout="all"))
    second = fleet.state.workloads[WEB].replica_shape
    for name, part in parts_by_cluster(fleet).items():
        fleet.report_change(name, shown=(workload_facts(part.version, part.replicas),))
    apply_manifests(fleet, deployment(2, pod=pod_template(container_spec(cpu="3"))))
    assert fleet.state.workloads[WEB].declared.rolling_from == (second,)


def test_the_ceiling_is_the_most_since_the_version_that_was_seen(fleet: Fleet) -> None:
    apply_manifests(fleet, deployment(12))
    scale_workload(fleet, 3)
    assert parts_by_cluster(fleet)["own-1"].ceiling == 8
    fleet.report_change("own-1", shown=(workload_facts(parts_by_cluster(fleet)["own-1"].version, 2),))
    scale_workload(fleet, 1)
    assert (parts_by_cluster(fleet)["own-1"].replicas, parts_by_cluster(fleet)["own-1"].ceiling) == (1, 2)


# ── Deleting ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_deleted_workload_s_parts_are_listed_as_removing_until_they_are_absent(fleet: Fleet) -> None:
    apply_manifests(fleet, deployment(12))
    reply = delete_workload(fleet)
    assert (reply.deleting, {part.removing for part in reply.parts}) == (True, {True})
    report_absent(fleet, "own-1")
    settle_leaving_workloads(fleet)
    assert set(parts_by_cluster(fleet)) == {"own-2"}


def test_absence_of_an_older_version_settles_nothing(fleet: Fleet) -> None:
    apply_manifests(fleet, deployment(2))
    old = parts_by_cluster(fleet)["own-1"].version
    delete_workload(fleet)
    fleet.state.apply_event(workload_observed("own-1", WEB, old, STATE_ABSENT), fleet.now)
    assert settle_leaving_workloads(fleet) == ()


def test_what_is_being_deleted_cannot_be_applied_or_scaled(fleet: Fleet) -> None:
    apply_manifests(fleet, deployment(12))
    delete_workload(fleet)
    for action in (lambda: apply_manifests(fleet, deployment(3)), lambda: scale_workload(fleet, 3)):
        assert_refused(action, "FAILED_PRECONDITION", "workload default/web: Deleting: still in own-1, own-2")


@pytest.mark.parametrize("key", ["", "k"])
def test_what_is_gone_is_not_found_and_can_be_applied_again(fleet: Fleet, key: str) -> None:
    apply_manifests(fleet, deployment(2), key=key)
    delete_workload(fleet)
    report_absent(fleet, *parts_by_cluster(fleet))
    settle_leaving_workloads(fleet)
    assert_refused(lambda: scale_workload(fleet, 3), "NOT_FOUND", "workload default/web: not declared")
    assert_refused(lambda: delete_workload(fleet), "NOT_FOUND", "workload default/web: not declared")
    assert_refused(lambda: answers.get_workload(fleet.state, GetRequest("", "web")), "NOT_FOUND")
    reply = apply_manifests(fleet, deployment(3))
    assert (reply.placed, reply.deleting) == (3, False)
    again = answers.get_workload(fleet.state, GetRequest("", "web")).placement
    assert (again.placed, again.deleting, fleet.state.workloads[WEB].declared.rolling_from) == (3, False, ())


def test_of_what_is_gone_its_history_is_answered_and_when_it_went(fleet: Fleet) -> None:
    """With no history asked for it is not found, and the answer says since when; with none kept it says so."""
    apply_manifests(fleet, deployment(2))
    delete_workload(fleet)
    report_absent(fleet, *parts_by_cluster(fleet))
    settle_leaving_workloads(fleet)
    deleted = DecisionRecorded("default", "web", Generation(9, 2), 1_795_280_869_000, "Delete", 0, 0, (), (), "", "")
    found = answers.get_workload(fleet.state, GetRequest("", "web", 5), (deleted,))
    assert (found.gone, found.history, found.placement.name, found.statuses) == (True, (deleted,), "web", ())
    asked = GetRequest("", "web"), GetRequest("", "web", 5)
    last = "was Delete, on 2026-11-21 at 17:07:49 UTC; ask with history for its past decisions"
    assert_refused(lambda: answers.get_workload(fleet.state, asked[0], (deleted,)), "NOT_FOUND", last)
    assert_refused(lambda: answers.get_workload(fleet.state, asked[1]), "NOT_FOUND", "no decision on it is kept")
    apply_manifests(fleet, deployment(3))
    again = answers.get_workload(fleet.state, asked[1], (deleted,))
    assert (again.gone, again.history, again.placement.placed) == (False, (deleted,), 3)


def test_an_emptied_cluster_s_part_stays_until_it_is_absent(fleet: Fleet) -> None:
    apply_manifests(fleet, deployment(13))
    scale_workload(fleet, 12)
    assert (parts_by_cluster(fleet)["cloud-1"].replicas, parts_by_cluster(fleet)["cloud-1"].removing) == (0, True)
    report_absent(fleet, "cloud-1")
    settle_leaving_workloads(fleet)
    assert "cloud-1" not in parts_by_cluster(fleet)


def test_an_emptied_cluster_can_be_used_again_before_it_is_absent(fleet: Fleet) -> None:
    apply_manifests(fleet, deployment(13))
    scale_workload(fleet, 12)
    removing = parts_by_cluster(fleet)["cloud-1"].version
    scale_workload(fleet, 14)
    part = parts_by_cluster(fleet)["cloud-1"]
    assert (part.replicas, part.removing, part.version > removing) == (2, False, True)


@pytest.mark.parametrize("action", [lambda fleet: scale_workload(fleet, 1), delete_workload], ids=["scale", "delete"])
def test_an_unknown_workload_is_not_found(fleet: Fleet, action: Callable[[Fleet], object]) -> None:
    assert_refused(lambda: action(fleet), "NOT_FOUND", "workload default/web: not declared")


@pytest.mark.parametrize("replicas", [-1, 10**9, True, "3", 2.5])
def test_a_number_of_replicas_that_is_none_is_refused(fleet: Fleet, replicas: object) -> None:
    apply_manifests(fleet, deployment(1))
    assert_refused(
        lambda: scale_workload(fleet, replicas), "INVALID_ARGUMENT", f"replicas: {replicas!r}: expected an integer"
    )


# ── What cannot be ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_shape_that_fits_nowhere_is_refused_and_nothing_changed(fleet: Fleet) -> None:
    huge = deployment(1, pod=pod_template(container_spec(cpu="11")))
    assert_refused(
        lambda: apply_manifests(fleet, huge),
        "FAILED_PRECONDITION",
        "fits no node, not even an empty one: own-1: cpu (2 nodes)",
    )
    assert not fleet.state.workloads


def test_a_cluster_that_was_not_heard_yet_may_have_room(fleet: Fleet) -> None:
    fleet.state.apply_event(joined_cluster("new", "cloud"), fleet.now)
    assert apply_manifests(fleet, deployment(1, pod=pod_template(container_spec(cpu="11")))).unplaced == 1


def test_refuse_means_all_or_nothing(fleet: Fleet) -> None:
    everything = (deployment(113), placement_policy(unplaceable="Refuse"))
    assert_refused(
        lambda: apply_manifests(fleet, *everything), "FAILED_PRECONDITION", "1 of 113 replicas have no place"
    )
    assert not fleet.state.workloads
    apply_manifests(fleet, deployment(112), placement_policy(unplaceable="Refuse"))
    assert_refused(lambda: scale_workload(fleet, 113), "FAILED_PRECONDITION")
    assert fleet.state.workloads[WEB].declared.replicas == 112


def test_who_may_still_hear_of_clusters_is_not_refused_yet_but_for_what_fits_nowhere(fleet: Fleet) -> None:
    listening = replace(fleet.next_moment(), listening=True)
    for key, manifests in (
        ("unheard", (deployment(113), placement_policy(unplaceable="Refuse"))),
        ("waits", (deployment(113),)),
    ):
        request = ApplyRequest(manifest_texts(*manifests), key)
        if key == "unheard":
            with pytest.raises(UnheardRequest, match="1 of 113 replicas have no place"):
                decisions.decide_apply(fleet.state, request, listening)
        else:
            assert decisions.decide_apply(fleet.state, request, listening).reply.unplaced == 1
    huge = manifest_texts(
        deployment(1, pod=pod_template(container_spec(cpu="11"))), placement_policy(unplaceable="Refuse")
    )
    with pytest.raises(RequestError, match="not even an empty one"):
        decisions.decide_apply(fleet.state, ApplyRequest(huge), listening)


def test_without_refuse_the_rest_waits(fleet: Fleet) -> None:
    reply = apply_manifests(fleet, deployment(113))
    assert (reply.placed, reply.unplaced) == (112, 1)
    assert reply.waiting_for.startswith("room (own-1: cpu (2 nodes)")


def test_a_policy_that_names_no_cluster_of_the_fleet_is_refused(fleet: Fleet) -> None:
    where = placement_policy(tiers=[{"name": "t", "clusters": {"names": ["own-9"]}}])
    text = (
        "PlacementPolicy.spec.tiers[0].clusters.names: 'own-9': expected a cluster of the fleet: cloud-1, own-1, own-2"
    )
    assert_refused(lambda: apply_manifests(fleet, deployment(), where), "INVALID_ARGUMENT", text)
    limits = placement_policy(limits=[{"cluster": "own-9"}])
    assert_refused(
        lambda: apply_manifests(fleet, deployment(), limits),
        "INVALID_ARGUMENT",
        "limits[0].cluster: 'own-9': expected a cluster",
    )


def test_a_policy_that_matches_no_cluster_is_refused(fleet: Fleet) -> None:
    nowhere = placement_policy(tiers=[{"name": "t", "clusters": {"regions": ["mars"]}}])
    assert_refused(
        lambda: apply_manifests(fleet, deployment(), nowhere), "FAILED_PRECONDITION", "no cluster of the fleet matches"
    )


def test_an_empty_fleet_is_named_as_such() -> None:
    assert_refused(lambda: apply_manifests(Fleet(), deployment()), "FAILED_PRECONDITION", "none has joined")


def test_a_dependency_goes_with_one_workload(fleet: Fleet) -> None:
    apply_manifests(fleet, deployment(1), CONFIG)
    text = "ConfigMap default/c: it belongs to workload default/web"
    assert_refused(lambda: apply_manifests(fleet, deployment(1, "api"), CONFIG), "FAILED_PRECONDITION", text)
    apply_manifests(fleet, deployment(1))
    apply_manifests(fleet, deployment(1, "api"), CONFIG)


def test_a_dependency_is_given_once(fleet: Fleet) -> None:
    assert_refused(
        lambda: apply_manifests(fleet, deployment(1), CONFIG, CONFIG), "INVALID_ARGUMENT", "ConfigMap c twice"
    )


def test_nothing_new_is_placed_on_old_capacity(fleet: Fleet) -> None:
    fleet.now += 31
    fleet.send_heartbeats("own-2")
    reply = apply_manifests(fleet, deployment(6))
    assert (placed_by_cluster(reply), reply.unplaced) == ({"own-2": 4}, 2)
    assert reply.inputs[0].limited_by == "capacity is 31 s old"


# ── Nodes that do not exist yet ─────────────────────────────────────────────────────────────────────────────────


def needed_new_by_cluster(fleet: Fleet) -> dict[str, int]:
    return {name: said.replicas_new for needs in fleet.state.needed.values() for name, said in needs.items()}


def test_the_need_for_new_nodes_is_written_and_set_back_to_none() -> None:
    fleet = Fleet()
    fleet.join_cluster(joined_cluster("c", "cloud", (node_group(cpu=4000, nodes_max=2),)), [node_row("n")])
    reply = apply_manifests(fleet, deployment(10))
    assert (placed_by_cluster(reply), parts_by_cluster(fleet)["c"].replicas_new, needed_new_by_cluster(fleet)) == (
        {"c": 10},
        6,
        {"c": 6},
    )
    decided = decisions.decide_scale(fleet.state, ScaleRequest("", "web", 4), fleet.next_moment())
    assert [event.replicas_new for event in decided.events if isinstance(event, CapacityNeeded)] == [0]
    apply_decision(fleet, decided)
    assert (parts_by_cluster(fleet)["c"].replicas_new, needed_new_by_cluster(fleet)) == (0, {"c": 0})


def test_a_deleted_workload_needs_no_nodes() -> None:
    fleet = Fleet()
    fleet.join_cluster(joined_cluster("c", "cloud", (node_group(),)), [])
    apply_manifests(fleet, deployment(3))
    delete_workload(fleet)
    assert needed_new_by_cluster(fleet) == {"c": 0}


# ── Never more than there is ────────────────────────────────────────────────────────────────────────────────────

PODS = (
    pod_template(container_spec(cpu="1")),
    pod_template(container_spec(cpu="3")),
    pod_template(container_spec(cpu="500m")),
)
ACTIONS = st.lists(
    st.tuples(st.sampled_from(("apply", "scale", "delete")), st.integers(0, 2), st.integers(0, 25), st.integers(0, 8)),
    min_size=1,
    max_size=12,
)


@given(ACTIONS, st.randoms(use_true_random=False))
def test_whatever_is_asked_and_wherever_pods_bind_all_that_is_placed_runs(
    actions: list[tuple[str, int, int, int]], random: Random
) -> None:
    """Members carry out every version late, bind and report at any time: no replica lacks a node, ever."""
    members = [
        MemberCluster("own-1", [node_row(f"a{index}", 4000, pods=6) for index in range(2)], random),
        MemberCluster("cloud-1", [node_row(f"c{index}", 5000, pods=9) for index in range(3)], random),
    ]
    fleet = Fleet()
    for member in members:
        fleet.join_cluster(joined_cluster(member.name, member.name.partition("-")[0]), member.rows)

    def run_members(steps: int) -> None:
        for _ in range(steps):
            member = random.choice(members)
            random.choice((member.carry_out_one_version, member.report_full_block, member.bind_pod_in_fleet))(fleet)
            assert member.would_all_pods_bind(random)
            settle_leaving_workloads(fleet)
            for each in members:
                each.queue_new_versions(fleet)

    for verb, which, replicas, steps in actions:
        name = f"w{which}"
        with suppress(RequestError):
            if verb == "apply":
                apply_manifests(fleet, deployment(replicas, name, PODS[which]))
            elif verb == "scale":
                scale_workload(fleet, replicas, name=name)
            else:
                delete_workload(fleet, name=name)
        for member in members:
            member.queue_new_versions(fleet)
        run_members(steps)
        for workload in list(aftermath.next_waiting_workloads(fleet.state, fleet.now)):
            for event in aftermath.retry_waiting_workload(fleet.state, workload, fleet.next_moment()).events:
                assert not isinstance(event, Tombstone)
                fleet.state.apply_event(event, fleet.now)
        for member in members:
            member.queue_new_versions(fleet)
    for member in members:
        member.carry_out_all_versions(fleet)
        while member.bind_one_pod():
            pass
        assert member.pending_pods() == 0
        assert not member.is_overcommitted()


def test_a_take_back_places_elsewhere_at_once(fleet: Fleet) -> None:
    apply_manifests(fleet, deployment(12))
    workload = fleet.state.workloads[WEB]
    aftermath.hold_clusters(fleet.state, workload, ["own-1"], fleet.now)
    result = placing.take_back_replicas(fleet.state, workload, {"own-1": 3}, fleet.next_moment())
    parts = result.placement.parts
    assert {part.cluster: part.replicas_kept for part in parts} == {"own-1": 5, "own-2": 4, "cloud-1": 3}
    assert {part.cluster: part.replicas_leaving for part in parts} == {"own-1": 3, "own-2": 0, "cloud-1": 0}


def test_a_manifest_without_replicas_leaves_them_as_they_are(fleet: Fleet) -> None:
    """1 for a new workload; what a scale made of it stays on the next apply."""
    manifest = deployment()
    del manifest["spec"]["replicas"]
    assert apply_manifests(fleet, manifest).replicas == 1
    scale_workload(fleet, 3)
    assert apply_manifests(fleet, manifest).replicas == 3


def test_a_node_that_is_only_cordoned_refuses_nobody_for_good() -> None:
    """A cordon passes: the workload waits for room instead of being refused."""
    fleet = Fleet(own_1=[node_row("a", unschedulable=True)])
    assert apply_manifests(fleet, deployment(1)).unplaced == 1


def _node_with_web_pods(name: str, cpu: int, pods: int, used: int) -> NodeRow:
    """A node on which so many pods of web run."""
    labels = (("app", "web"),)
    return replace(node_row(name, cpu, used=used), pods=((PodTable("default", labels), pods),) if pods else ())


def test_a_larger_template_keeps_only_what_fits_of_it() -> None:
    """4 replicas of 1 core fill a node of 4; of 2 cores 1 and its surge fit there, the others go elsewhere."""
    fleet = Fleet(own_1=[node_row("a")], cloud_1=[node_row("c", 100_000)])
    apply_manifests(fleet, deployment(4))
    version = parts_by_cluster(fleet)["own-1"].version
    fleet.report_change("own-1", [_node_with_web_pods("a", 4000, 4, 4000)], shown=(workload_facts(version, 4),))
    reply = apply_manifests(fleet, deployment(4, pod=pod_template(container_spec(cpu="2"))))
    assert placed_by_cluster(reply) == {"own-1": 4, "cloud-1": 3}
    assert parts_by_cluster(fleet)["own-1"].replicas_leaving == 3
    assert placed_by_cluster(scale_workload(fleet, 6)) == {"own-1": 4, "cloud-1": 5}
    assert parts_by_cluster(fleet)["own-1"].replicas_leaving == 3


def test_a_larger_template_that_has_room_moves_nothing() -> None:
    """Its own old pods make way for its new ones."""
    fleet = Fleet(own_1=[node_row("a", 8000)], cloud_1=[node_row("c", 100_000)])
    apply_manifests(fleet, deployment(4))
    version = parts_by_cluster(fleet)["own-1"].version
    fleet.report_change("own-1", [_node_with_web_pods("a", 8000, 4, 4000)], shown=(workload_facts(version, 4),))
    assert placed_by_cluster(apply_manifests(fleet, deployment(4, pod=pod_template(container_spec(cpu="2"))))) == {
        "own-1": 4
    }


def test_running_replicas_are_not_taken_on_a_guess() -> None:
    """Where the old pods cannot be told by their labels, nothing is taken away."""
    fleet = Fleet(own_1=[node_row("a")], cloud_1=[node_row("c", 100_000)])
    apply_manifests(fleet, deployment(4))
    version = parts_by_cluster(fleet)["own-1"].version
    fleet.report_change("own-1", [_node_with_web_pods("a", 4000, 5, 4000)], shown=(workload_facts(version, 4),))
    assert placed_by_cluster(apply_manifests(fleet, deployment(4, pod=pod_template(container_spec(cpu="2"))))) == {
        "own-1": 4
    }
