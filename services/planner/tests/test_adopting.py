"""Adopting and disowning in the planner: what runs becomes the placement, and nothing is divided or scaled."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.core.background import aftermath, moves
from planner.core.explaining import explanation
from planner.core.knowledge.allowance import UnlimitedAllowance
from planner.core.knowledge.closing import orphan_command_texts, text_of_commands_to_keep
from planner.core.knowledge.workload import is_workload_gone
from planner.core.requests import adopting, autoscaling, decisions, disowning
from planner.core.requests.answers import get_workload, list_orphans
from spillway.addresses import WORKLOAD_STATUS, Tombstone
from spillway.api import (
    AdoptRequest,
    ApplyRequest,
    DeleteRequest,
    DisownRequest,
    ExplainReply,
    ExplainRequest,
    GetRequest,
    ListOrphansRequest,
    PlacementReply,
    RequestError,
    ScaleRequest,
)
from spillway.events import (
    FOUND,
    FOUND_NOTHING,
    FOUND_REFUSED,
    PHASE_ACTIVE,
    PHASE_CORDONED,
    PHASE_DRAINING,
    PHASE_LEAVING,
    PHASE_LOST,
    STATE_ABSENT,
    STATE_DISOWNED,
    STATE_NOT_OWNED,
    STATE_ORPHANED,
    STATE_PRESENT,
    STATE_REFUSED,
    AdoptionAsked,
    BrakeReleased,
    BrakeSet,
    CapacityNeeded,
    PlacementDecided,
    WorkloadFound,
    WorkloadObserved,
)
from spillway.events_scaling import ScaleDecided, ScalePolicyDeclared
from spillway.kubernetes.live_objects import manifest_of_live_object
from spillway.model import NO_GENERATION, Generation, ObjectReference, Part

from .builders import (
    Fleet,
    add_expired_answers,
    deployment,
    manifest_texts,
    node_row,
    placement_policy,
    statefulset,
    workload_facts,
)

KEY = ("default", "web")
ENDS = "an orphan of this name is there and is left as it is: `kubectl delete {} web -n default` there ends it"
REQUEST = AdoptRequest("", "web", "deployment", ("own-1", "own-2"), idempotency_key="k")


def fleet_of_two() -> Fleet:
    return Fleet(own_1=[node_row("a"), node_row("b")], own_2=[node_row("c"), node_row("d")])


def workload_found(cluster: str, replicas: int, image: str = "app:1", **more: Any) -> WorkloadFound:
    live = deployment(replicas)
    live["metadata"]["namespace"] = "default"
    live["spec"]["template"]["spec"]["containers"][0]["image"] = image
    manifest = json.dumps(manifest_of_live_object(live, "Deployment", "apps/v1")).encode()
    base = WorkloadFound(
        Generation(9, 1), *KEY, cluster, FOUND, "", f"uid-{cluster}", manifest, replicas, NO_GENERATION, (), 0
    )
    return replace(base, **more)


BOTH = {"own-1": workload_found("own-1", 3), "own-2": workload_found("own-2", 2)}


def decide_and_apply_adoption(
    fleet: Fleet, answers: dict[str, WorkloadFound] | None = None, request: AdoptRequest = REQUEST
) -> Any:
    answers = BOTH if answers is None else answers
    decided = adopting.decide_adoption(
        fleet.state, replace(request, clusters=tuple(answers)), answers, fleet.next_moment()
    )
    apply_events(fleet, decided.events)
    return decided


def apply_events(fleet: Fleet, events: Any) -> None:
    for event in events:
        if isinstance(event, Tombstone):
            fleet.state.forget_workload(KEY)
        else:
            fleet.state.apply_event(event, fleet.now)


def report_status(fleet: Fleet, cluster: str, state: str, replicas: int = 0, version: Generation | None = None) -> None:
    parts = fleet.state.workloads[KEY].parts if KEY in fleet.state.workloads else {}
    said = version or parts[cluster].version
    fleet.sequence += 1
    fleet.state.apply_event(
        WorkloadObserved(*KEY, cluster, 3, fleet.sequence, said, state, "", replicas, replicas, 0, 0, 0), fleet.now
    )


def settle_leaving_workloads(fleet: Fleet) -> None:
    for _ in range(5):
        for key in list(fleet.state.leaving):
            apply_events(fleet, aftermath.settle_workload(fleet.state, key, fleet.next_moment()).events)


def parts_by_cluster(fleet: Fleet) -> dict[str, tuple[int, bool]]:
    return {name: (part.replicas, part.adopting) for name, part in fleet.state.workloads[KEY].parts.items()}


def error_code_and_text(call: Any) -> tuple[str, str]:
    with pytest.raises(RequestError) as raised:
        call()
    return raised.value.code, raised.value.text


def test_what_runs_becomes_the_placement_and_nothing_is_held_for_it() -> None:
    own = fleet_of_two()
    asked = adopting.adoption_question(own.state, REQUEST, own.next_moment())
    assert isinstance(asked, AdoptionAsked)
    assert asked.clusters == ("own-1", "own-2")
    decided = decide_and_apply_adoption(own)
    assert parts_by_cluster(own) == {"own-1": (3, True), "own-2": (2, True)}
    part = own.state.workloads[KEY].parts["own-1"]
    assert (part.found_uid, part.ceiling) == ("uid-own-1", 0)
    assert own.state.reservation_of(KEY, "own-1").free == 0
    assert (decided.reply.replicas, decided.reply.unplaced) == (5, 0)
    again = adopting.adoption_question(own.state, REQUEST, own.next_moment())
    assert isinstance(again, PlacementReply)
    assert again == replace(decided.reply, inputs=())
    other = replace(REQUEST, clusters=("own-1",))
    assert (
        error_code_and_text(lambda: adopting.adoption_question(own.state, other, own.next_moment()))[0]
        == "INVALID_ARGUMENT"
    )


def test_an_adoption_that_was_carried_out_is_answered_again_though_its_clusters_are_silent_by_then() -> None:
    own = fleet_of_two()
    decided = decide_and_apply_adoption(own)
    own.now += 100
    assert adopting.adoption_question(own.state, REQUEST, own.next_moment()) == replace(decided.reply, inputs=())
    other = replace(REQUEST, idempotency_key="other")
    assert (
        error_code_and_text(lambda: adopting.adoption_question(own.state, other, own.next_moment()))[0]
        == "FAILED_PRECONDITION"
    )


def test_nothing_but_a_policy_comes_along() -> None:
    """A ConfigMap or a Service of the caller's would be made in the members without the checks of an Apply."""
    own = fleet_of_two()
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {}}
    with pytest.raises(RequestError, match=r"policy\.kind: 'Service': expected PlacementPolicy or PropagationPolicy"):
        decide_and_apply_adoption(own, request=replace(REQUEST, policy=manifest_texts(service)[0]))


def test_a_policy_comes_along() -> None:
    own = fleet_of_two()
    spec = placement_policy(tiers=[{"name": "one", "clusters": {"names": ["own-1"]}}])
    decide_and_apply_adoption(
        own, {"own-1": workload_found("own-1", 3)}, replace(REQUEST, policy=manifest_texts(spec)[0])
    )
    assert own.state.workloads[KEY].declared.policy.tiers[0].clusters.names == ("own-1",)


RULED_OUT = {
    "no tier": (
        {"tiers": [{"name": "one", "clusters": {"names": ["own-1"]}}]},
        ("own-2: the policy rules this cluster out: 2 replicas will leave once a person scales or applies it",),
    ),
    "a maximum": (
        {"limits": [{"cluster": "own-1", "max": 2}]},
        ("own-1: the policy says at most 2: 1 replica will leave once a person scales or applies it",),
    ),
    "neither": ({"limits": [{"cluster": "own-1", "max": 3}]}, ()),
}


@pytest.mark.parametrize(("spec", "warnings"), RULED_OUT.values(), ids=RULED_OUT)
def test_what_the_policy_would_have_otherwise_is_said_and_goes_with_the_next_scale(
    spec: dict[str, Any], warnings: tuple[str, ...]
) -> None:
    own = fleet_of_two()
    decided = decide_and_apply_adoption(
        own, request=replace(REQUEST, policy=manifest_texts(placement_policy(**spec))[0])
    )
    assert decided.reply.warnings == warnings
    for cluster, replicas in (("own-1", 3), ("own-2", 2)):
        report_status(own, cluster, STATE_PRESENT, replicas)
    settle_leaving_workloads(own)
    assert parts_by_cluster(own) == {"own-1": (3, False), "own-2": (2, False)}
    apply_events(own, decisions.decide_scale(own.state, ScaleRequest("", "web", 6), own.next_moment()).events)
    leave = sum(part.replicas_leaving for part in own.state.workloads[KEY].parts.values())
    assert (leave > 0) == bool(warnings)


@pytest.mark.parametrize(
    "spec",
    [{"tiers": [{"name": "one", "clusters": {"names": ["own-1"]}}]}, {"limits": [{"cluster": "own-2", "max": 1}]}],
)
def test_what_was_adopted_where_the_policy_rules_it_out_stays_when_its_scale_policy_decides(
    spec: dict[str, Any],
) -> None:
    own = fleet_of_two()
    decide_and_apply_adoption(own, request=replace(REQUEST, policy=manifest_texts(placement_policy(**spec))[0]))
    for cluster, replicas in (("own-1", 3), ("own-2", 2)):
        report_status(own, cluster, STATE_PRESENT, replicas)
    settle_leaving_workloads(own)
    own.state.apply_event(ScalePolicyDeclared(*KEY, Generation(5, 1), "ScalePolicy", "web", b'{"spec":{}}', 1), own.now)
    own.state.apply_event(ScaleDecided(*KEY, Generation(5, 2), "web", "ScalePolicy", 6, 5, 1, ""), own.now)
    apply_events(own, autoscaling.declare_scale_decision(own.state, own.state.workloads[KEY], own.next_moment()))
    assert parts_by_cluster(own) == {"own-1": (4, False), "own-2": (2, False)}
    apply_events(
        own,
        decisions.decide_apply(
            own.state, ApplyRequest(manifest_texts(deployment(6), placement_policy(**spec))), own.next_moment()
        ).events,
    )
    assert own.state.workloads[KEY].parts["own-2"].replicas_leaving > 0


@pytest.mark.parametrize("phase", [PHASE_CORDONED, PHASE_ACTIVE])
def test_what_was_adopted_where_the_policy_rules_it_out_stays_when_only_a_view_changes(phase: str) -> None:
    own = fleet_of_two()
    elsewhere = placement_policy(tiers=[{"name": "one", "clusters": {"names": ["own-2"]}}])
    decide_and_apply_adoption(
        own,
        {"own-1": workload_found("own-1", 3)},
        replace(REQUEST, clusters=("own-1",), policy=manifest_texts(elsewhere)[0]),
    )
    report_status(own, "own-1", STATE_PRESENT, 3)
    settle_leaving_workloads(own)
    joined = own.state.clusters["own-1"].joined
    assert joined is not None
    own.state.apply_event(replace(joined, phase=phase, region="said-anew"), own.now)
    for workload in moves.workloads_due_to_move(own.state, own.now, UnlimitedAllowance()):
        apply_events(own, moves.next_move_step(own.state, workload, own.next_moment(), UnlimitedAllowance()).events)
    (part,) = own.state.workloads[KEY].parts.values()
    assert (part.cluster, part.replicas_kept, part.replicas_leaving) == ("own-1", 3, 0)


def test_an_orphan_is_not_written_over_and_its_cluster_takes_more_once_it_is_gone() -> None:
    own = fleet_of_two()
    report_status(own, "own-1", STATE_ORPHANED, 6, Generation(4, 1))
    report_status(own, "own-2", STATE_ORPHANED, 6, Generation(4, 1))
    own.state.apply_tombstone(WORKLOAD_STATUS.name, "default/web/own-2")
    apply_events(
        own, decisions.decide_apply(own.state, ApplyRequest(manifest_texts(deployment(2))), own.next_moment()).events
    )
    assert parts_by_cluster(own) == {"own-2": (2, False)}
    apply_events(own, decisions.decide_scale(own.state, ScaleRequest("", "web", 12), own.next_moment()).events)
    assert list(parts_by_cluster(own)) == ["own-2"]
    placement = own.state.workloads[KEY].placement
    assert placement is not None
    ends = (
        "an orphan of this name is there and is left as it is: `kubectl delete deployment web -n default` there ends it"
    )
    assert f"own-1: {ends}" in placement.waiting_for
    said = explain_reply(own)
    disown = "`spillway disown deployment/web -n default --wait`"
    adoption = "`spillway adopt deployment/web -n default --cluster own-1 --cluster own-2`"
    keeps = f"{disown}, then {adoption} (with -f and its PlacementPolicy, if it has one) keep it as it runs"
    assert said.notes == (f"own-1: {ends}; {keeps}",)
    assert [(entry.cluster, entry.bound) for entry in said.clusters] == [("own-1", "Orphan"), ("own-2", "Room")]
    assert not any(change.cluster == "own-1" for change in said.changes), "more room there would change nothing"
    own.state.apply_tombstone(WORKLOAD_STATUS.name, "default/web/own-1")
    for workload in aftermath.next_waiting_workloads(own.state, own.now):
        apply_events(own, aftermath.retry_waiting_workload(own.state, workload, own.next_moment()).events)
    assert parts_by_cluster(own)["own-1"][0] > 0


def test_a_part_that_an_orphan_is_in_the_way_of_goes_elsewhere_and_is_not_removed() -> None:
    """The cluster was given it before it could say that the orphan is there; a status of before says nothing of it."""
    own = fleet_of_two()
    apply_events(
        own, decisions.decide_apply(own.state, ApplyRequest(manifest_texts(deployment(6))), own.next_moment()).events
    )
    before = parts_by_cluster(own)
    assert before == {"own-1": (3, False), "own-2": (3, False)}
    report_status(own, "own-1", STATE_ORPHANED, 6, Generation(0, 1))
    assert KEY not in own.state.leaving
    report_status(own, "own-1", STATE_ORPHANED, 6, own.state.workloads[KEY].parts["own-1"].version)
    apply_events(own, aftermath.settle_workload(own.state, KEY, own.next_moment()).events)
    assert parts_by_cluster(own) == {"own-2": (3, False)}
    assert own.state.workloads[KEY].unplaced == 3
    for workload in aftermath.next_waiting_workloads(own.state, own.now):
        apply_events(own, aftermath.retry_waiting_workload(own.state, workload, own.next_moment()).events)
    assert parts_by_cluster(own) == {"own-2": (6, False)}


KEEPS = "; `spillway adopt deployment/web -n default --cluster own-1 --cluster own-2` keeps it as it runs"
ORPHANS = {
    "Deployments": ("Deployment", "Deployment", f"own-1, own-2: {ENDS.format('deployment')}{KEEPS}"),
    "of a propagator of before, which says no kind": (
        "",
        "Deployment",
        f"own-1, own-2: {ENDS.format('deployment')}{KEEPS}",
    ),
    "of another kind": ("StatefulSet", "Deployment", f"own-1, own-2: {ENDS.format('statefulset')}"),
    "the declared one of another kind": ("Deployment", "StatefulSet", f"own-1, own-2: {ENDS.format('deployment')}"),
    "a Job of its own": ("Job", "Job", f"own-1, own-2: {ENDS.format('job')}"),
}


@pytest.mark.parametrize(("there", "kind", "expected"), ORPHANS.values(), ids=ORPHANS)
def test_what_ends_an_orphan_and_what_keeps_it_is_said(there: str, kind: str, expected: str) -> None:
    own = fleet_of_two()
    for cluster in ("own-1", "own-2"):
        report_objects_beside(own, cluster, STATE_ORPHANED, there)
    assert orphan_command_texts(own.state, KEY, kind, ()) == (expected,)
    assert orphan_command_texts(own.state, KEY, kind, ("own-1", "own-2")) == (), "what is placed is no orphan"


def test_a_command_that_would_be_long_names_some_clusters_and_says_how_many_more() -> None:
    said = text_of_commands_to_keep(KEY, [f"c-{number:03}" for number in range(30)], ())
    assert said.endswith("--cluster c-019` and 10 clusters more keeps")


def test_apply_says_at_once_which_commands_settle_an_orphan() -> None:
    own = fleet_of_two()
    report_objects_beside(own, "own-1", STATE_ORPHANED, "Deployment")
    reply = apply_workload(own, 2).reply
    assert [part.cluster for part in reply.parts] == ["own-2"]
    (warning,) = reply.warnings
    assert "`kubectl delete deployment web -n default` there ends it; `spillway disown deployment/web" in warning
    own.state.apply_tombstone(WORKLOAD_STATUS.name, "default/web/own-1")
    assert apply_workload(own, 3).reply.warnings == ()


def apply_workload(own: Fleet, replicas: int, *more: dict[str, Any]) -> Any:
    decided = decisions.decide_apply(
        own.state, ApplyRequest(manifest_texts(deployment(replicas), *more)), own.next_moment()
    )
    apply_events(own, decided.events)
    return decided


def fleet_waiting_for_orphans(replicas: int = 9, *more: dict[str, Any]) -> Fleet:
    """Its record was lost and it is applied again: nothing of it is placed."""
    own = fleet_of_two()
    for cluster in ("own-1", "own-2"):
        report_objects_beside(own, cluster, STATE_ORPHANED, "Deployment")
    apply_workload(own, replicas, *more)
    assert (parts_by_cluster(own), own.state.workloads[KEY].unplaced) == ({}, replicas)
    return own


@pytest.mark.parametrize("image", ["app:1", "app:2"])
def test_what_is_declared_and_placed_nowhere_takes_over_what_runs_as_it_runs(image: str) -> None:
    own = fleet_waiting_for_orphans()
    before = own.state.workloads[KEY].declared
    asked = adopting.adoption_question(own.state, REQUEST, own.next_moment())
    assert isinstance(asked, AdoptionAsked)
    decided = decide_and_apply_adoption(
        own, {"own-1": workload_found("own-1", 3, image), "own-2": workload_found("own-2", 2, image)}
    )
    workload = own.state.workloads[KEY]
    assert parts_by_cluster(own) == {"own-1": (3, True), "own-2": (2, True)}
    assert (workload.declared.replicas, workload.unplaced) == (5, 0)
    assert workload.declared.generation > before.generation
    assert image in workload.declared.manifest.decode()
    assert decided.reply.warnings == (
        "declared before, 9 replicas and none placed: what runs is declared in its stead; apply it again to have that",
    )
    assert list(aftermath.next_waiting_workloads(own.state, own.now)) == []
    assert adopting.adoption_question(own.state, REQUEST, own.next_moment()) == replace(decided.reply, inputs=())
    for cluster, replicas in (("own-1", 3), ("own-2", 2)):
        report_status(own, cluster, STATE_PRESENT, replicas)
    settle_leaving_workloads(own)
    assert parts_by_cluster(own) == {"own-1": (3, False), "own-2": (2, False)}
    assert apply_workload(own, 9).reply.unplaced == 0
    assert sum(replicas for replicas, _ in parts_by_cluster(own).values()) == 9


def test_what_was_needed_for_who_waited_is_needed_no_more() -> None:
    own = fleet_waiting_for_orphans()
    own.state.apply_event(CapacityNeeded(*KEY, "own-1", Generation(5, 1), 2, 3), own.now)
    decide_and_apply_adoption(own)
    needed = own.state.needed.get(KEY, {}).get("own-1")
    assert needed is None or (needed.replicas_lent, needed.replicas_new) == (0, 0)


def test_its_policy_stays_unless_another_is_given() -> None:
    only = placement_policy(tiers=[{"name": "mine", "clusters": {"names": ["own-1"]}}])
    other = placement_policy(tiers=[{"name": "other", "clusters": {"names": ["own-1", "own-2"]}}])
    for asked, name in (("", "mine"), (manifest_texts(other)[0], "other")):
        own = fleet_waiting_for_orphans(9, only)
        decided = decide_and_apply_adoption(own, request=replace(REQUEST, policy=asked))
        assert [tier.name for tier in own.state.workloads[KEY].declared.policy.tiers] == [name]
        assert any("own-2: the policy rules this cluster out" in one for one in decided.reply.warnings) == (not asked)


def test_what_was_placed_before_the_clusters_answered_is_not_adopted_over() -> None:
    own = fleet_waiting_for_orphans()
    assert isinstance(adopting.adoption_question(own.state, REQUEST, own.next_moment()), AdoptionAsked)
    own.state.apply_tombstone(WORKLOAD_STATUS.name, "default/web/own-1")
    for workload in aftermath.next_waiting_workloads(own.state, own.now):
        apply_events(own, aftermath.retry_waiting_workload(own.state, workload, own.next_moment()).events)
    before = parts_by_cluster(own)
    assert set(before) == {"own-1"}
    refusal, text = error_code_and_text(lambda: decide_and_apply_adoption(own, {"own-2": workload_found("own-2", 2)}))
    assert (refusal, parts_by_cluster(own)) == ("ALREADY_EXISTS", before)
    assert text == (
        "workload default/web: it is declared already, and placed: "
        "`spillway disown deployment/web -n default --wait`, then `spillway adopt deployment/web -n default "
        "--cluster own-1 --cluster own-2` (with -f and its PlacementPolicy, if it has one) keep the replicas in all "
        "clusters"
    )


NOT_ITS_OWN = {
    "another fleet's": (
        workload_found("own-1", 0, state=FOUND_REFUSED, message="it belongs to fleet f9"),
        "FAILED_PRECONDITION",
        "fleet f9",
    ),
    "being deleted": (
        workload_found("own-1", 0, state=FOUND_REFUSED, message="it is being deleted"),
        "FAILED_PRECONDITION",
        "being deleted",
    ),
    "a HorizontalPodAutoscaler's": (
        workload_found("own-1", 0, state=FOUND_REFUSED, message="HorizontalPodAutoscaler web scales it"),
        "FAILED_PRECONDITION",
        "web scales it",
    ),
    "gone meanwhile": (workload_found("own-1", 0, state=FOUND_NOTHING, message="none"), "NOT_FOUND", "none"),
}


@pytest.mark.parametrize(("there", "expected", "words"), NOT_ITS_OWN.values(), ids=NOT_ITS_OWN)
def test_what_is_refused_leaves_the_declaration_waiting(there: WorkloadFound, expected: str, words: str) -> None:
    own = fleet_waiting_for_orphans()
    before = own.state.workloads[KEY].declared
    refusal, text = error_code_and_text(lambda: decide_and_apply_adoption(own, {"own-1": there}))
    assert (refusal, own.state.workloads[KEY].declared, parts_by_cluster(own)) == (expected, before, {})
    assert words in text


def test_a_stateful_set_that_is_declared_becomes_no_deployment() -> None:
    own = fleet_of_two()
    for cluster in ("own-1", "own-2"):
        report_objects_beside(own, cluster, STATE_ORPHANED, "Deployment")
    request = ApplyRequest(manifest_texts(statefulset(2, "web")))
    apply_events(own, decisions.decide_apply(own.state, request, own.next_moment()).events)
    assert parts_by_cluster(own) == {}
    refusal, text = error_code_and_text(lambda: decide_and_apply_adoption(own))
    assert (refusal, "it is a StatefulSet: expected the same kind" in text) == ("FAILED_PRECONDITION", True)
    own.state.apply_tombstone(WORKLOAD_STATUS.name, "default/web/own-1")
    apply_events(own, decisions.decide_apply(own.state, request, own.next_moment()).events)
    assert error_code_and_text(lambda: decide_and_apply_adoption(own)) == (
        "ALREADY_EXISTS",
        "workload default/web: it is declared already, and placed: it is a StatefulSet: choose another name",
    )


def test_one_that_a_scale_policy_sizes_keeps_what_runs_until_the_policy_decides_anew() -> None:
    own = fleet_waiting_for_orphans()
    own.state.apply_event(ScalePolicyDeclared(*KEY, Generation(5, 1), "ScalePolicy", "web", b'{"spec":{}}', 1), own.now)
    own.state.apply_event(ScaleDecided(*KEY, Generation(5, 2), "web", "ScalePolicy", 20, 9, 1, ""), own.now)
    decided = decide_and_apply_adoption(own)
    assert any("nothing that it decided before" in one for one in decided.reply.warnings)
    for cluster, replicas in (("own-1", 3), ("own-2", 2)):
        report_status(own, cluster, STATE_PRESENT, replicas)
    settle_leaving_workloads(own)
    assert list(own.state.scalings.next_due_workloads(9)) == []
    assert parts_by_cluster(own) == {"own-1": (3, False), "own-2": (2, False)}
    own.state.apply_event(ScaleDecided(*KEY, Generation(5, 3), "web", "ScalePolicy", 6, 5, 1, ""), own.now)
    assert list(own.state.scalings.next_due_workloads(9)) == [KEY]


STEPS = st.one_of(
    st.tuples(st.sampled_from(["apply", "scale"]), st.integers(0, 12)),
    st.tuples(st.sampled_from(["orphan", "gone", "not owned", "adopt"]), st.sampled_from(["own-1", "own-2"])),
    st.tuples(st.sampled_from(["disown", "try again"]), st.none()),
)


@given(st.lists(STEPS, max_size=14))
def test_adopting_neither_loses_nor_doubles_whatever_was_asked_before(steps: list[tuple[str, Any]]) -> None:
    """An orphan is never placed over; taken over is what runs, only where nothing is listed, and nothing waits then."""
    own = fleet_of_two()
    for verb, what in steps:
        known = own.state.workloads.get(KEY)
        listed = dict(known.parts) if known is not None else {}
        orphans = {one.cluster for one in list_orphans(own.state, ListOrphansRequest()).orphans}
        refused = False
        try:
            if verb == "apply":
                apply_workload(own, what)
            elif verb == "scale":
                apply_events(
                    own, decisions.decide_scale(own.state, ScaleRequest("", "web", what), own.next_moment()).events
                )
            elif verb == "disown":
                apply_events(
                    own, disowning.decide_disown(own.state, DisownRequest("", "web"), own.next_moment()).events
                )
            elif verb == "try again":
                for workload in aftermath.next_waiting_workloads(own.state, own.now):
                    apply_events(own, aftermath.retry_waiting_workload(own.state, workload, own.next_moment()).events)
            elif verb == "orphan" and what not in listed:
                report_objects_beside(own, what, STATE_ORPHANED, "Deployment")
            elif verb == "gone" and what in orphans:
                own.state.apply_tombstone(WORKLOAD_STATUS.name, f"default/web/{what}")
            elif verb == "not owned" and what in listed:
                report_status(own, what, STATE_NOT_OWNED)
            elif verb == "adopt":
                decide_and_apply_adoption(own, {what: workload_found(what, 4)}, replace(REQUEST, idempotency_key=""))
                assert not listed
                assert parts_by_cluster(own) == {what: (4, True)}
                assert (own.state.workloads[KEY].declared.replicas, own.state.workloads[KEY].unplaced) == (4, 0)
                continue
        except RequestError:
            refused = True
        assert not (refused and verb == "adopt" and not listed)
        settle_leaving_workloads(own)
        after = own.state.workloads.get(KEY)
        new = set(after.parts) - set(listed) if after is not None else set()
        assert not new & {one for one in orphans if (verb, one) != ("gone", what)}


REFUSED = {
    "another template": (
        {"own-1": workload_found("own-1", 3), "own-2": workload_found("own-2", 2, "app:2")},
        "FAILED_PRECONDITION",
    ),
    "not there": ({"own-1": workload_found("own-1", 0, state=FOUND_NOTHING, message="none")}, "NOT_FOUND"),
    "refused there": (
        {"own-1": workload_found("own-1", 0, state=FOUND_REFUSED, message="HPA x")},
        "FAILED_PRECONDITION",
    ),
}


@pytest.mark.parametrize(("answers", "expected"), REFUSED.values(), ids=REFUSED)
def test_what_is_found_may_not_be_adopted(answers: dict[str, WorkloadFound], expected: str) -> None:
    own = fleet_of_two()
    assert error_code_and_text(lambda: decide_and_apply_adoption(own, answers))[0] == expected
    assert KEY not in own.state.workloads


BAD = {
    "a StatefulSet": (replace(REQUEST, kind="StatefulSet"), "INVALID_ARGUMENT", "cannot be adopted"),
    "no kind": (replace(REQUEST, kind="thing"), "INVALID_ARGUMENT", "expected deployment"),
    "no cluster": (replace(REQUEST, clusters=()), "INVALID_ARGUMENT", "clusters"),
    "one twice": (replace(REQUEST, clusters=("own-1", "own-1")), "INVALID_ARGUMENT", "each once"),
    "an unknown one": (replace(REQUEST, clusters=("mars",)), "INVALID_ARGUMENT", "own-1, own-2"),
    "a bad name": (replace(REQUEST, name="Web"), "INVALID_ARGUMENT", "name"),
}


@pytest.mark.parametrize(("request_", "expected", "words"), BAD.values(), ids=BAD)
def test_bad_requests(request_: AdoptRequest, expected: str, words: str) -> None:
    own = fleet_of_two()
    actual, text = error_code_and_text(lambda: adopting.adoption_question(own.state, request_, own.next_moment()))
    assert actual == expected
    assert words in text


def test_a_cluster_that_is_not_heard_and_a_name_that_is_taken_are_refused() -> None:
    own = fleet_of_two()
    own.now += 100
    assert (
        error_code_and_text(lambda: adopting.adoption_question(own.state, REQUEST, own.next_moment()))[0]
        == "FAILED_PRECONDITION"
    )
    own.send_heartbeats()
    decide_and_apply_adoption(own)
    assert error_code_and_text(
        lambda: adopting.adoption_question(own.state, replace(REQUEST, idempotency_key="x"), own.next_moment())
    )[0] == ("ALREADY_EXISTS")


def test_once_taken_over_the_part_is_an_ordinary_one_of_the_same_version() -> None:
    own = fleet_of_two()
    decide_and_apply_adoption(own)
    before = own.state.workloads[KEY].parts["own-1"].version
    report_status(own, "own-1", STATE_PRESENT, 3)
    settle_leaving_workloads(own)
    assert parts_by_cluster(own) == {"own-1": (3, False), "own-2": (2, True)}
    part = own.state.workloads[KEY].parts["own-1"]
    assert (part.version, part.ceiling, part.found_uid) == (before, 3, "")


def test_other_replicas_are_followed_and_never_scaled() -> None:
    own = fleet_of_two()
    decide_and_apply_adoption(own)
    report_status(own, "own-1", STATE_PRESENT, 7)
    report_status(own, "own-2", STATE_PRESENT, 2)
    settle_leaving_workloads(own)
    assert parts_by_cluster(own) == {"own-1": (7, True), "own-2": (2, False)}
    assert own.state.workloads[KEY].declared.replicas == 9
    report_status(own, "own-1", STATE_PRESENT, 7)
    settle_leaving_workloads(own)
    assert parts_by_cluster(own) == {"own-1": (7, False), "own-2": (2, False)}


def test_what_follows_an_adoption_bears_no_answer_whose_time_is_over() -> None:
    own = fleet_of_two()
    decide_and_apply_adoption(own)
    add_expired_answers(own, KEY)
    report_status(own, "own-1", STATE_PRESENT, 7)
    settle_leaving_workloads(own)
    declared = own.state.workloads[KEY].declared
    assert (declared.replicas, declared.answered) == (9, ())


@pytest.mark.parametrize("state", [STATE_NOT_OWNED, STATE_ABSENT])
def test_what_cannot_be_taken_over_is_given_up_and_placed_nowhere_else(state: str) -> None:
    own = fleet_of_two()
    decide_and_apply_adoption(own)
    report_status(own, "own-1", state)
    settle_leaving_workloads(own)
    assert parts_by_cluster(own) == {"own-2": (2, True)}
    workload = own.state.workloads[KEY]
    assert (workload.declared.replicas, workload.unplaced) == (2, 0)
    report_status(own, "own-2", state)
    settle_leaving_workloads(own)
    assert is_workload_gone(own.state.workloads[KEY])


def test_what_the_cluster_refuses_stays_adopting_and_nothing_is_taken_back() -> None:
    own = fleet_of_two()
    decide_and_apply_adoption(own)
    report_status(own, "own-1", STATE_REFUSED)
    for _ in range(40):
        own.now += 1
        own.send_heartbeats()
        aftermath.update_progress_timers(own.state, own.now)
        assert list(aftermath.workloads_to_take_back(own.state, own.next_moment())) == []
    settle_leaving_workloads(own)
    assert parts_by_cluster(own)["own-1"] == (3, True)


def test_while_it_changes_hands_nothing_else_may_be_asked() -> None:
    own = fleet_of_two()
    decide_and_apply_adoption(own)
    calls = {
        "Adopting": (
            lambda: decisions.decide_scale(own.state, ScaleRequest("", "web", 9), own.next_moment()),
            lambda: decisions.decide_delete(own.state, DeleteRequest("", "web"), own.next_moment()),
            lambda: decisions.decide_apply(own.state, ApplyRequest(manifest_texts(deployment(9))), own.next_moment()),
        )
    }
    for call in calls["Adopting"]:
        actual, text = error_code_and_text(call)
        assert (actual, "Adopting" in text) == ("FAILED_PRECONDITION", True)
    apply_events(own, disowning.decide_disown(own.state, DisownRequest("", "web"), own.next_moment()).events)
    for call in calls["Adopting"]:
        actual, text = error_code_and_text(call)
        assert (actual, "Disowning" in text) == ("FAILED_PRECONDITION", True)


def drain_cluster(own: Fleet, cluster: str) -> None:
    own.state.apply_event(replace(own.state.clusters[cluster].joined, phase=PHASE_DRAINING), own.now)  # type: ignore[type-var]


def waiting_reason(own: Fleet) -> str:
    return get_workload(own.state, GetRequest(*KEY)).placement.waiting_for


def test_what_is_adopted_in_a_draining_cluster_says_that_it_will_go_once_it_is_taken_over() -> None:
    own = fleet_of_two()
    drain_cluster(own, "own-1")
    decide_and_apply_adoption(own)
    assert waiting_reason(own) == "3 replicas of draining cluster own-1 wait until all are taken over"


def test_what_is_disowned_in_a_draining_cluster_says_that_it_stays() -> None:
    own = fleet_of_two()
    place_four_replicas(own)
    drain_cluster(own, "own-2")
    apply_events(own, disowning.decide_disown(own.state, DisownRequest("", "web"), own.next_moment()).events)
    assert waiting_reason(own) == "what is disowned in draining cluster own-2 stays there"


def place_four_replicas(own: Fleet) -> None:
    apply_events(
        own, decisions.decide_apply(own.state, ApplyRequest(manifest_texts(deployment(4))), own.next_moment()).events
    )


def test_disowning_goes_on_until_every_cluster_has_said_so() -> None:
    own = fleet_of_two()
    place_four_replicas(own)
    reply = disowning.decide_disown(own.state, DisownRequest("", "web", "k"), own.next_moment())
    apply_events(own, reply.events)
    assert reply.reply.disowning
    assert all(part.disowning and not part.removing for part in own.state.workloads[KEY].parts.values())
    assert disowning.decide_disown(own.state, DisownRequest("", "web", "k"), own.next_moment()).events == ()
    report_status(own, "own-1", STATE_DISOWNED)
    report_status(own, "own-2", STATE_ABSENT)
    settle_leaving_workloads(own)
    assert list(own.state.workloads[KEY].parts) == ["own-2"]
    report_status(own, "own-2", STATE_DISOWNED)
    settle_leaving_workloads(own)
    assert is_workload_gone(own.state.workloads[KEY])
    own.now += own.state.rules.forget_after + 1
    settle_leaving_workloads(own)
    assert KEY not in own.state.workloads


def test_an_old_version_disowns_nothing() -> None:
    own = fleet_of_two()
    place_four_replicas(own)
    before = own.state.workloads[KEY].parts["own-1"].version
    apply_events(own, disowning.decide_disown(own.state, DisownRequest("", "web"), own.next_moment()).events)
    report_status(own, "own-1", STATE_DISOWNED, version=before)
    settle_leaving_workloads(own)
    assert set(own.state.workloads[KEY].parts) == {"own-1", "own-2"}


def test_what_is_disowned_or_deleted_is_not_adopted_before_that_is_over() -> None:
    own = fleet_of_two()
    decide_and_apply_adoption(own)
    for cluster, count in (("own-1", 3), ("own-2", 2)):
        report_status(own, cluster, STATE_PRESENT, count)
    settle_leaving_workloads(own)
    apply_events(own, disowning.decide_disown(own.state, DisownRequest("", "web"), own.next_moment()).events)
    actual, words = error_code_and_text(
        lambda: adopting.adoption_question(own.state, replace(REQUEST, idempotency_key=""), own.next_moment())
    )
    assert actual == "FAILED_PRECONDITION"
    assert "Disowning: clusters own-1, own-2 still have Spillway's marks on it" in words
    deleted = fleet_of_two()
    decide_and_apply_adoption(deleted)
    for cluster, count in (("own-1", 3), ("own-2", 2)):
        report_status(deleted, cluster, STATE_PRESENT, count)
    settle_leaving_workloads(deleted)
    apply_events(
        deleted, decisions.decide_delete(deleted.state, DeleteRequest("", "web"), deleted.next_moment()).events
    )
    actual, words = error_code_and_text(
        lambda: adopting.adoption_question(deleted.state, replace(REQUEST, idempotency_key=""), deleted.next_moment())
    )
    assert actual == "FAILED_PRECONDITION"
    assert "Deleting: still in own-1, own-2: try again" in words


def test_deleting_is_not_disowned_and_disowning_is_not_deleted() -> None:
    own = fleet_of_two()
    place_four_replicas(own)
    apply_events(own, decisions.decide_delete(own.state, DeleteRequest("", "web"), own.next_moment()).events)
    actual, text = error_code_and_text(
        lambda: disowning.decide_disown(own.state, DisownRequest("", "web"), own.next_moment())
    )
    assert (actual, "Deleting" in text) == ("FAILED_PRECONDITION", True)


def test_once_it_is_disowned_the_name_may_be_adopted_or_applied_again() -> None:
    own = fleet_of_two()
    place_four_replicas(own)
    apply_events(own, disowning.decide_disown(own.state, DisownRequest("", "web"), own.next_moment()).events)
    for cluster in ("own-1", "own-2"):
        report_status(own, cluster, STATE_DISOWNED)
    settle_leaving_workloads(own)
    generation = own.state.workloads[KEY].declared.generation
    decide_and_apply_adoption(own)
    declared = own.state.workloads[KEY].declared
    assert (declared.generation > generation, declared.disowning, declared.replicas) == (True, False, 5)
    assert parts_by_cluster(own) == {"own-1": (3, True), "own-2": (2, True)}


def test_orphans_are_what_clusters_say_and_no_placement_lists() -> None:
    own = fleet_of_two()
    report_status(own, "own-1", STATE_ORPHANED, 3, Generation(4, 1))
    orphans = list_orphans(own.state, ListOrphansRequest()).orphans
    assert [(one.cluster, one.name, one.replicas, one.version) for one in orphans] == [("own-1", "web", 3, "4.1")]
    assert list_orphans(own.state, ListOrphansRequest("other")).orphans == ()
    decide_and_apply_adoption(own, {"own-1": workload_found("own-1", 3)})
    assert list_orphans(own.state, ListOrphansRequest()).orphans == ()


def report_objects_beside(own: Fleet, cluster: str, state: str, kind: str, *others: ObjectReference) -> None:
    """What a cluster says of an object, and of what is there beside it."""
    report_status(own, cluster, state, 3, Generation(4, 1))
    said = own.state.statuses_by_cluster(KEY)[cluster]
    own.state.apply_event(replace(said, sequence=said.sequence + 1, kind=kind, beside=others), own.now)


CONF = ObjectReference("ConfigMap", "default", "conf")
OTHER_KIND = ObjectReference("StatefulSet", "default", "web")


def test_orphans_have_a_kind_and_what_is_beside_is_listed_too() -> None:
    own = fleet_of_two()
    report_objects_beside(own, "own-1", STATE_ORPHANED, "Job", OTHER_KIND, CONF)
    report_objects_beside(own, "own-2", STATE_ORPHANED, "", CONF)
    orphans = list_orphans(own.state, ListOrphansRequest()).orphans
    assert [(one.cluster, one.kind, one.name, one.replicas, one.version) for one in orphans] == [
        ("own-1", "ConfigMap", "conf", 0, ""),
        ("own-1", "Job", "web", 3, "4.1"),
        ("own-1", "StatefulSet", "web", 0, ""),
        ("own-2", "ConfigMap", "conf", 0, ""),
    ]


def test_what_is_beside_an_object_that_is_placed_is_an_orphan() -> None:
    own = fleet_of_two()
    decide_and_apply_adoption(own)
    report_objects_beside(own, "own-1", STATE_PRESENT, "Deployment", OTHER_KIND)
    orphans = list_orphans(own.state, ListOrphansRequest()).orphans
    assert [(one.cluster, one.kind, one.name) for one in orphans] == [("own-1", "StatefulSet", "web")]


def test_a_config_map_that_was_left_keeps_no_cluster_closed() -> None:
    own = fleet_of_two()
    report_objects_beside(own, "own-1", STATE_ORPHANED, "", CONF)
    report_objects_beside(own, "own-2", STATE_ORPHANED, "StatefulSet")
    apply_events(
        own, decisions.decide_apply(own.state, ApplyRequest(manifest_texts(deployment(2))), own.next_moment()).events
    )
    assert parts_by_cluster(own) == {"own-1": (2, False)}


def test_an_orphan_outlives_the_tombstones_of_its_workload_and_goes_with_its_own() -> None:
    own = fleet_of_two()
    place_four_replicas(own)
    apply_events(
        own, [PlacementDecided(*KEY, Generation(9, 99), 1, (Part("own-2", Generation(9, 99), 4, 0, 4, False),), 0, "")]
    )
    report_status(own, "own-1", STATE_ORPHANED, 3, Generation(4, 1))
    assert len(list_orphans(own.state, ListOrphansRequest()).orphans) == 1
    own.state.forget_workload(KEY)
    assert len(list_orphans(own.state, ListOrphansRequest()).orphans) == 1
    own.state.apply_tombstone(WORKLOAD_STATUS.name, "default/web/own-1")
    assert list_orphans(own.state, ListOrphansRequest()).orphans == ()


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["own-1", "own-2"]),
            st.sampled_from([STATE_PRESENT, STATE_NOT_OWNED, STATE_ABSENT, STATE_REFUSED]),
            st.integers(0, 9),
            st.booleans(),
        ),
        max_size=12,
    )
)
def test_the_placement_is_always_what_was_said_last(said: list[tuple[str, str, int, bool]]) -> None:
    """Whatever clusters say and however often: Σ parts is the declared number, nothing waits, nothing is removed."""
    own = fleet_of_two()
    decide_and_apply_adoption(own)
    for cluster, state, replicas, current in said:
        known = own.state.workloads[KEY].parts.get(cluster)
        before = dict(own.state.workloads[KEY].parts)
        version = known.version if current and known is not None else Generation(1, 1)
        report_status(own, cluster, state, replicas, version)
        settle_leaving_workloads(own)
        workload = own.state.workloads[KEY]
        assert workload.declared.replicas == sum(part.replicas for part in workload.parts.values())
        assert workload.unplaced == 0
        assert not any(part.removing for part in workload.parts.values())
        if not current:
            assert workload.parts == before
        elif known is not None and known.adopting and state == STATE_PRESENT:
            assert workload.parts[cluster].replicas == replicas


def test_facts_of_an_adopted_object_reserve_what_is_not_bound() -> None:
    own = fleet_of_two()
    decide_and_apply_adoption(own, {"own-1": workload_found("own-1", 3)})
    version = own.state.workloads[KEY].parts["own-1"].version
    own.report_change("own-1", shown=[workload_facts(version, 1, spec=3, status=3)])
    assert own.state.reservation_of(KEY, "own-1").free == 2


def test_a_cluster_that_will_not_return_holds_nothing_open() -> None:
    own = fleet_of_two()
    decide_and_apply_adoption(own)
    lost = own.state.clusters["own-2"].joined
    assert lost is not None
    own.state.apply_event(replace(lost, phase=PHASE_LOST), own.now)
    settle_leaving_workloads(own)
    assert set(parts_by_cluster(own)) == {"own-1", "own-2"}, "it is there after all"
    own.now += 40
    own.send_heartbeats("own-1")
    settle_leaving_workloads(own)
    assert parts_by_cluster(own) == {"own-1": (3, True)}
    apply_events(own, disowning.decide_disown(own.state, DisownRequest("", "web"), own.next_moment()).events)
    own.state.apply_event(replace(own.state.clusters["own-1"].joined, phase=PHASE_LOST), own.now)  # type: ignore[type-var]
    own.now += 40
    settle_leaving_workloads(own)
    assert is_workload_gone(own.state.workloads[KEY])


def test_one_adopted_with_no_replicas_keeps_no_cluster_that_is_to_leave() -> None:
    own = fleet_of_two()
    decide_and_apply_adoption(own, {"own-1": workload_found("own-1", 0)})
    report_status(own, "own-1", STATE_PRESENT, 0)
    settle_leaving_workloads(own)
    own.state.apply_event(BrakeSet("cluster/own-1", "audit", "ann", 1), own.now)
    joined = own.state.clusters["own-1"].joined
    assert joined is not None
    for phase, removing in ((PHASE_DRAINING, False), (PHASE_LEAVING, False)):
        own.state.apply_event(replace(joined, phase=phase), own.now)
        take_due_moves(own)
        assert own.state.workloads[KEY].parts["own-1"].removing is removing
    placement = own.state.workloads[KEY].placement
    assert placement is not None
    assert (
        placement.waiting_for
        == "held: the object in own-1, of no replicas, waits for the brake of cluster/own-1: audit"
    )
    own.state.apply_event(BrakeReleased("cluster/own-1", "ann", 2), own.now)
    take_due_moves(own)
    assert own.state.workloads[KEY].parts["own-1"].removing
    report_status(own, "own-1", STATE_ABSENT)
    settle_leaving_workloads(own)
    assert [left.cluster for left in moves.clusters_that_left(own.state)] == ["own-1"]
    assert own.state.workloads[KEY].declared.replicas == 0


def explain_reply(fleet: Fleet) -> ExplainReply:
    steps = explanation.explain_placement(fleet.state, ExplainRequest("", "web"), fleet.next_moment(), None)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            reply: ExplainReply = done.value
            return reply


def take_due_moves(fleet: Fleet) -> None:
    for workload in moves.workloads_due_to_move(fleet.state, fleet.now, fleet.state.brakes):
        apply_events(fleet, moves.next_move_step(fleet.state, workload, fleet.next_moment(), fleet.state.brakes).events)


def test_nothing_moves_by_itself_while_it_changes_hands() -> None:
    own = fleet_of_two()
    decide_and_apply_adoption(own)
    draining = own.state.clusters["own-1"].joined
    assert draining is not None
    own.state.apply_event(replace(draining, phase=PHASE_DRAINING), own.now)
    assert moves.workloads_due_to_move(own.state, own.now, UnlimitedAllowance()) == []
    for cluster, replicas in (("own-1", 3), ("own-2", 2)):
        report_status(own, cluster, STATE_PRESENT, replicas)
    settle_leaving_workloads(own)
    assert [
        workload.workload_key for workload in moves.workloads_due_to_move(own.state, own.now, UnlimitedAllowance())
    ] == [KEY]
