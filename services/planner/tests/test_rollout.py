"""A new template goes to one cluster after the other: whose turn it is, what it waits for, what stays as it is."""

from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.core.background import aftermath, moves
from planner.core.explaining import explanation
from planner.core.knowledge.allowance import UnlimitedAllowance
from planner.core.knowledge.rollout_list import RolloutList
from planner.core.knowledge.rollout_turns import RolloutPart, next_rollout_turn, rollout_progress_text
from planner.core.manifests.templates import read_template, template_number
from planner.core.requests import answers, autoscaling, decisions
from spillway.addresses import Tombstone
from spillway.api import (
    ApplyRequest,
    DeleteRequest,
    ExplainReply,
    ExplainRequest,
    GetRequest,
    PlacementReply,
    RequestError,
    ScaleRequest,
)
from spillway.events import (
    PHASE_CORDONED,
    PHASE_DRAINING,
    PHASE_LEAVING,
    PHASE_LOST,
    STATE_PRESENT,
    STATE_REFUSED,
    BrakeReleased,
    BrakeSet,
    StatusDetails,
    WorkloadObserved,
)
from spillway.events_scaling import ScaleDecided, ScalePolicyDeclared
from spillway.model import Generation, NodeRow, Part, PodTable, Shape

from .builders import (
    Fleet,
    add_expired_answers,
    cluster_nodes_of,
    container_spec,
    deployment,
    joined_cluster,
    manifest_texts,
    node_row,
    placement_policy,
    pod_template,
    workload_facts,
)

WEB = ("default", "web")
V1, V2 = Generation(9, 1), Generation(9, 2)
ALL = placement_policy(rollout="all")


# ── Whose turn it is ────────────────────────────────────────────────────────────────────────────────────────────


def status_of_part(part: Part, updated: int, available: int, **more: Any) -> WorkloadObserved:
    total = more.get("pods", part.replicas)
    version, state = more.get("version", part.version), more.get("state", STATE_PRESENT)
    return WorkloadObserved(
        *WEB, part.cluster, 3, more.get("sequence", 1), version, state, "", total, total, updated, available, available
    )


def rollout_part(
    name: str, replicas: int, number: int, shown: tuple[int, ...] | None = None, **more: Any
) -> RolloutPart:
    """A part of template `number` of 1 to 3; shown: updated, available, and pods at all."""
    part = Part(name, V1, replicas, 0, replicas, more.pop("removing", False), number, **more.pop("part", {}))
    lost = more.pop("lost", False)
    observed = status_of_part(part, *shown, **more) if shown is not None else None
    return RolloutPart(part, number, number == 3, lost, observed)


def test_a_cluster_whose_object_is_on_hold_is_not_merely_slow() -> None:
    part = Part("a", V2, 5, 0, 5, False, 1)
    slow = status_of_part(part, 5, 5, version=V1)
    assert rollout_progress_text(part, slow) == "not carried out yet"
    reason = "the object is at 99.1, above 9.2"
    held = replace(slow, message="a text", details=StatusDetails(hold=reason))
    assert rollout_progress_text(part, held) == f"not carried out yet, on hold: {reason}"
    assert (
        rollout_progress_text(part, replace(slow, message=f"on hold: {reason}"))
        == f"not carried out yet, on hold: {reason}"
    )


TURNS: dict[str, tuple[list[RolloutPart], tuple[str, str, int, int]]] = {
    "the fewest replicas first": (
        [rollout_part("a", 5, 1, (5, 5)), rollout_part("b", 2, 1, (2, 2)), rollout_part("c", 9, 1, (9, 9))],
        ("b", "", 0, 3),
    ),
    "then by name": ([rollout_part("b", 2, 1, (2, 2)), rollout_part("a", 2, 1, (2, 2))], ("a", "", 0, 2)),
    "the next, when the first is available in full": (
        [rollout_part("a", 5, 1, (5, 5)), rollout_part("b", 2, 3, (2, 2))],
        ("a", "", 1, 2),
    ),
    "nobody has said anything of the first": (
        [rollout_part("a", 5, 1, (5, 5)), rollout_part("b", 2, 3)],
        ("", "b", 1, 2),
    ),
    "the first was last seen at an older version": (
        [rollout_part("a", 5, 1, (5, 5)), rollout_part("b", 2, 3, (2, 2), version=Generation(8, 9))],
        ("", "b", 1, 2),
    ),
    "not all are updated": ([rollout_part("a", 5, 1, (5, 5)), rollout_part("b", 2, 3, (1, 2))], ("", "b", 1, 2)),
    "not all are available": ([rollout_part("a", 5, 1, (5, 5)), rollout_part("b", 2, 3, (2, 1))], ("", "b", 1, 2)),
    "pods of the old template are still there": (
        [rollout_part("a", 5, 1, (5, 5)), rollout_part("b", 2, 3, (2, 3), pods=3)],
        ("", "b", 1, 2),
    ),
    "fewer than decided": ([rollout_part("a", 5, 1, (5, 5)), rollout_part("b", 2, 3, (1, 1), pods=1)], ("", "b", 1, 2)),
    "refused by the cluster": (
        [rollout_part("a", 5, 1, (5, 5)), rollout_part("b", 2, 3, (2, 2), state=STATE_REFUSED)],
        ("", "b", 1, 2),
    ),
    "a lost cluster does not block once another one has it available": (
        [rollout_part("a", 5, 1, (5, 5)), rollout_part("b", 2, 3, (0, 0), lost=True), rollout_part("c", 2, 3, (2, 2))],
        ("a", "", 2, 3),
    ),
    "or was last heard of so itself": (
        [rollout_part("a", 5, 1, (5, 5)), rollout_part("b", 2, 3, (2, 2), lost=True)],
        ("a", "", 1, 2),
    ),
    "until then it is waited for": (
        [rollout_part("a", 5, 1, (5, 5)), rollout_part("b", 2, 3, (0, 0), lost=True)],
        ("", "b", 1, 2),
    ),
    "nor is it a lost cluster's turn": (
        [rollout_part("a", 5, 1, lost=True), rollout_part("b", 2, 3, (2, 2))],
        ("", "", 1, 2),
    ),
    "what is removed neither blocks nor rolls": (
        [
            rollout_part("a", 0, 1, removing=True),
            rollout_part("b", 0, 3, removing=True),
            rollout_part("c", 2, 1, (2, 2)),
        ],
        ("c", "", 0, 1),
    ),
    "what was replaced elsewhere is waited for, if nobody else has it": (
        [rollout_part("a", 4, 3, (0, 0), part={"replicas_lost": 4}), rollout_part("c", 5, 1, (5, 5))],
        ("", "a", 0, 1),
    ),
    "and so is what leaves a drained cluster": (
        [rollout_part("a", 4, 3, (4, 3), part={"replicas_leaving": 4}), rollout_part("c", 5, 1, (5, 5))],
        ("", "a", 0, 1),
    ),
    "until it was available there": (
        [rollout_part("a", 4, 3, (4, 4), part={"replicas_leaving": 4}), rollout_part("c", 5, 1, (5, 5))],
        ("c", "", 0, 1),
    ),
    "what leaves is not waited for where another one has it available": (
        [
            rollout_part("a", 4, 3, (0, 0), part={"replicas_leaving": 4}),
            rollout_part("b", 2, 3, (2, 2)),
            rollout_part("c", 5, 1, (5, 5)),
        ],
        ("c", "", 1, 2),
    ),
    "what rolls already comes first": (
        [rollout_part("a", 2, 1, (2, 2)), rollout_part("b", 9, 2, (3, 9), pods=11)],
        ("b", "", 0, 2),
    ),
    "and what was given an earlier template that is not available": (
        [rollout_part("a", 2, 1, (2, 2)), rollout_part("b", 9, 2, (9, 0))],
        ("b", "", 0, 2),
    ),
    "behind one that has pods of two templates": (
        [rollout_part("a", 2, 2, (2, 0)), rollout_part("b", 9, 1, (3, 9), pods=11)],
        ("b", "", 0, 2),
    ),
    "what lacks a pod for its own reasons does not": (
        [rollout_part("a", 2, 1, (2, 2)), rollout_part("b", 9, 1, (9, 8))],
        ("a", "", 0, 2),
    ),
    "what was not carried out yet may be about to roll": (
        [rollout_part("a", 2, 1, (2, 2)), rollout_part("b", 9, 1, (9, 9), version=Generation(8, 9))],
        ("b", "", 0, 2),
    ),
    "of two such, who knows which": (
        [
            rollout_part("a", 2, 1, (2, 2), version=Generation(8, 9)),
            rollout_part("b", 9, 1, (9, 9), version=Generation(8, 9)),
        ],
        ("", "a", 0, 2),
    ),
    "all have it": ([rollout_part("a", 5, 3, (5, 5)), rollout_part("b", 2, 3, (2, 2))], ("", "", 2, 2)),
}


@pytest.mark.parametrize(("standings", "expected"), TURNS.values(), ids=TURNS)
def test_whose_turn_it_is(standings: list[RolloutPart], expected: tuple[str, str, int, int]) -> None:
    turn = next_rollout_turn(standings)
    assert (next(iter(turn.candidates), ""), turn.blocked_by, turn.done, turn.total) == expected


def test_who_may_go_before_the_one_whose_turn_it_is() -> None:
    calm, other, rolling = (
        rollout_part("a", 5, 1, (5, 5)),
        rollout_part("b", 7, 1, (7, 7)),
        rollout_part("c", 9, 1, (4, 9)),
    )
    assert next_rollout_turn([other, calm]).candidates == ("a", "b")
    assert next_rollout_turn([other, calm, rolling]).candidates == ("c",)
    assert next_rollout_turn([other, rollout_part("d", 1, 3)]).candidates == ()


# ── Applying ────────────────────────────────────────────────────────────────────────────────────────────────────


def apply_events(fleet: Fleet, events: tuple[Any, ...]) -> None:
    for event in events:
        assert not isinstance(event, Tombstone)
        fleet.state.apply_event(event, fleet.now)


def apply_manifests(fleet: Fleet, *manifests: dict[str, Any]) -> PlacementReply:
    decided = decisions.decide_apply(fleet.state, ApplyRequest(manifest_texts(*manifests)), fleet.next_moment())
    apply_events(fleet, decided.events)
    return decided.reply


def web_deployment(image: str, replicas: int = 6, cpu: str = "1", **spec: Any) -> dict[str, Any]:
    return deployment(replicas, pod=pod_template(container_spec(cpu=cpu, image=image)), **spec)


def scale_web(fleet: Fleet, replicas: int) -> None:
    apply_events(
        fleet, decisions.decide_scale(fleet.state, ScaleRequest("", "web", replicas), fleet.next_moment()).events
    )


def continue_due_rollouts(fleet: Fleet) -> None:
    """What the planner does of itself about rollouts."""
    for key in fleet.state.rollouts.take_due_workloads(50):
        apply_events(
            fleet, aftermath.continue_rollout(fleet.state, fleet.state.workloads[key], fleet.next_moment()).events
        )


def parts_by_cluster(fleet: Fleet) -> dict[str, Part]:
    return fleet.state.workloads[WEB].parts


def template_number_by_cluster(fleet: Fleet) -> dict[str, int]:
    """Which template each cluster is to have."""
    declared = fleet.state.workloads[WEB].declared
    return {
        name: template_number(part, declared) for name, part in parts_by_cluster(fleet).items() if not part.removing
    }


def report_status(fleet: Fleet, name: str, updated: int | None = None, available: int | None = None) -> None:
    """The cluster says how its object is; by default all is well."""
    part = parts_by_cluster(fleet)[name]
    fleet.sequence += 1
    count = part.replicas
    shown = status_of_part(
        part,
        count if updated is None else updated,
        count if available is None else available,
        sequence=fleet.sequence,
    )
    fleet.state.apply_event(shown, fleet.now)


def notes_of_explanation(fleet: Fleet) -> tuple[str, ...]:
    steps = explanation.explain_placement(fleet.state, ExplainRequest("default", "web"), fleet.next_moment(), None)
    try:
        while True:
            next(steps)
    except StopIteration as done:
        reply: ExplainReply = done.value
        return reply.notes


def waiting_reason(fleet: Fleet) -> str:
    return answers.get_workload(fleet.state, GetRequest("default", "web")).placement.waiting_for


@pytest.fixture
def fleet() -> Fleet:
    """web:1 runs in three clusters: 1, 2 and 3 replicas of 6."""
    fleet = Fleet(own_1=[node_row("a", 3000)], own_2=[node_row("b", 6000)], own_3=[node_row("c", 9000)])
    apply_manifests(fleet, web_deployment("app:1"))
    assert {name: part.replicas for name, part in parts_by_cluster(fleet).items()} == {
        "own-1": 1,
        "own-2": 2,
        "own-3": 3,
    }
    for name in parts_by_cluster(fleet):
        report_status(fleet, name)
        fleet.report_change(
            name, shown=(workload_facts(parts_by_cluster(fleet)[name].version, parts_by_cluster(fleet)[name].replicas),)
        )
    return fleet


def test_one_cluster_gets_it_at_once_the_others_stay_as_they_are(fleet: Fleet) -> None:
    before = parts_by_cluster(fleet)
    reply = apply_manifests(fleet, web_deployment("app:2"))
    after = parts_by_cluster(fleet)
    assert template_number_by_cluster(fleet) == {"own-1": 2, "own-2": 1, "own-3": 1}
    assert after["own-1"].version > before["own-1"].version
    assert (after["own-2"], after["own-3"]) == (before["own-2"], before["own-3"])
    declared = fleet.state.workloads[WEB].declared
    assert [entry.template_generation for entry in declared.earlier_templates] == [1]
    assert b"app:1" in declared.earlier_templates[0].manifest
    assert reply.waiting_for == "rollout 1 of 3 clusters: waits for own-1"


def test_the_next_gets_it_when_the_last_is_available_in_full(fleet: Fleet) -> None:
    apply_manifests(fleet, web_deployment("app:2"))
    continue_due_rollouts(fleet)
    assert template_number_by_cluster(fleet) == {"own-1": 2, "own-2": 1, "own-3": 1}
    report_status(fleet, "own-1")
    continue_due_rollouts(fleet)
    assert template_number_by_cluster(fleet) == {"own-1": 2, "own-2": 2, "own-3": 1}
    report_status(fleet, "own-2", updated=1, available=2)
    continue_due_rollouts(fleet)
    assert template_number_by_cluster(fleet)["own-3"] == 1
    assert waiting_reason(fleet) == "rollout 2 of 3 clusters: waits for own-2: 1 of 2 updated, 2 available"
    report_status(fleet, "own-2")
    continue_due_rollouts(fleet)
    assert template_number_by_cluster(fleet) == {"own-1": 2, "own-2": 2, "own-3": 2}
    assert fleet.state.workloads[WEB].declared.earlier_templates == ()
    assert waiting_reason(fleet) == ""
    assert len(fleet.state.rollouts) == 0


def test_rollout_all_goes_everywhere_at_once(fleet: Fleet) -> None:
    before = parts_by_cluster(fleet)
    apply_manifests(fleet, web_deployment("app:2"), ALL)
    assert template_number_by_cluster(fleet) == {"own-1": 2, "own-2": 2, "own-3": 2}
    assert all(part.version > before[name].version for name, part in parts_by_cluster(fleet).items())
    assert fleet.state.workloads[WEB].declared.earlier_templates == ()


def test_another_template_in_the_middle_is_the_newest_then(fleet: Fleet) -> None:
    """Clusters keep what they have, each its own; the one that was rolling comes first again."""
    apply_manifests(fleet, web_deployment("app:2"))
    report_status(fleet, "own-1")
    continue_due_rollouts(fleet)
    report_status(fleet, "own-2", updated=1, available=1)
    apply_manifests(fleet, web_deployment("app:3"))
    assert template_number_by_cluster(fleet) == {"own-1": 2, "own-2": 3, "own-3": 1}
    borne = fleet.state.workloads[WEB].declared.earlier_templates
    assert [entry.template_generation for entry in borne] == [1, 2]


def test_a_scale_in_the_middle_changes_replicas_and_keeps_templates(fleet: Fleet) -> None:
    apply_manifests(fleet, web_deployment("app:2"))
    before = parts_by_cluster(fleet)
    scale_web(fleet, 12)
    after = parts_by_cluster(fleet)
    assert template_number_by_cluster(fleet) == {"own-1": 2, "own-2": 1, "own-3": 1}
    assert sum(part.replicas for part in after.values()) == 12
    assert after["own-3"].version > before["own-3"].version
    scale_web(fleet, 0)
    assert fleet.state.workloads[WEB].declared.earlier_templates == ()


def test_a_part_in_a_new_cluster_is_made_from_the_newest(fleet: Fleet) -> None:
    apply_manifests(fleet, web_deployment("app:2"))
    fleet.join_cluster(joined_cluster("cloud-1", "cloud"), [node_row("d", 90_000)])
    scale_web(fleet, 40)
    assert template_number_by_cluster(fleet)["cloud-1"] == 2
    report_status(fleet, "own-1")
    continue_due_rollouts(fleet)
    assert waiting_reason(fleet).startswith("rollout 2 of 4 clusters: waits for cloud-1: not carried out yet")


def test_a_template_that_is_taken_back_is_there_at_once_where_it_never_left(fleet: Fleet) -> None:
    """Seed 5363: nothing restarts there, so nothing has to wait for its turn."""
    apply_manifests(fleet, web_deployment("app:2"))
    before = parts_by_cluster(fleet)
    apply_manifests(fleet, web_deployment("app:1"))
    assert template_number_by_cluster(fleet) == {"own-1": 3, "own-2": 3, "own-3": 3}
    assert [name for name, part in parts_by_cluster(fleet).items() if part.version > before[name].version] == ["own-1"]
    assert fleet.state.workloads[WEB].declared.earlier_templates == ()
    assert len(fleet.state.rollouts) == 0


def test_one_that_is_taken_back_with_another_strategy_is_written_there(fleet: Fleet) -> None:
    """The strategy restarts no pod either, and belongs to the object."""
    apply_manifests(fleet, web_deployment("app:2"))
    before = parts_by_cluster(fleet)
    apply_manifests(fleet, web_deployment("app:1", strategy={"type": "Recreate"}))
    assert template_number_by_cluster(fleet) == {"own-1": 3, "own-2": 3, "own-3": 3}
    assert all(part.version > before[name].version for name, part in parts_by_cluster(fleet).items())


def test_while_another_cluster_is_to_roll_one_that_never_left_says_what_that_came_from(fleet: Fleet) -> None:
    """So the cluster in the middle of a roll comes first still, whether or not all is well in the others."""
    apply_manifests(fleet, web_deployment("app:2"))
    report_status(fleet, "own-1")
    continue_due_rollouts(fleet)
    report_status(fleet, "own-2", updated=1, available=1)
    report_status(fleet, "own-3", available=2)
    apply_manifests(fleet, web_deployment("app:1"))
    assert template_number_by_cluster(fleet) == {"own-1": 2, "own-2": 3, "own-3": 1}
    report_status(fleet, "own-2")
    continue_due_rollouts(fleet)
    assert template_number_by_cluster(fleet) == {"own-1": 3, "own-2": 3, "own-3": 3}


def test_a_template_that_is_applied_again_changes_nothing_in_the_middle(fleet: Fleet) -> None:
    apply_manifests(fleet, web_deployment("app:2"))
    before = parts_by_cluster(fleet)
    apply_manifests(fleet, web_deployment("app:2"))
    assert parts_by_cluster(fleet) == before


def test_deleting_in_the_middle_removes_all_parts(fleet: Fleet) -> None:
    apply_manifests(fleet, web_deployment("app:2"))
    apply_events(fleet, decisions.decide_delete(fleet.state, DeleteRequest("", "web"), fleet.next_moment()).events)
    assert all(part.removing for part in parts_by_cluster(fleet).values())
    assert len(fleet.state.rollouts) == 0


def set_phase(fleet: Fleet, name: str, phase: str) -> None:
    joined = fleet.state.clusters[name].joined
    assert joined is not None
    fleet.state.apply_event(replace(joined, phase=phase), fleet.now)


def move_and_roll(fleet: Fleet) -> None:
    """What the planner does of itself about moves and rollouts, each cluster carrying it out, own-1 never ready."""
    for _ in range(5):
        for workload in moves.workloads_due_to_move(fleet.state, fleet.now, UnlimitedAllowance()):
            apply_events(
                fleet, moves.next_move_step(fleet.state, workload, fleet.next_moment(), UnlimitedAllowance()).events
            )
        for name in parts_by_cluster(fleet):
            if name != "own-1":
                report_status(fleet, name, updated=None if template_number_by_cluster(fleet).get(name) == 2 else 0)
                fleet.report_change(
                    name,
                    shown=(
                        workload_facts(parts_by_cluster(fleet)[name].version, parts_by_cluster(fleet)[name].replicas),
                    ),
                )
        fleet.state.rollouts.retry_all()
        continue_due_rollouts(fleet)


@pytest.mark.parametrize("phase", [PHASE_CORDONED, PHASE_DRAINING, PHASE_LEAVING, PHASE_LOST])
def test_a_template_that_was_never_available_goes_no_further_when_its_cluster_is_out_of_use(
    fleet: Fleet, phase: str
) -> None:
    apply_manifests(fleet, web_deployment("app:2"))
    report_status(fleet, "own-1", available=0)
    set_phase(fleet, "own-1", phase)
    if phase == PHASE_LOST:
        fleet.now += 40
        fleet.send_heartbeats("own-2", "own-3")
    move_and_roll(fleet)
    assert {name: number for name, number in template_number_by_cluster(fleet).items() if name != "own-1"} == {
        "own-2": 1,
        "own-3": 1,
    }
    if phase == PHASE_CORDONED:
        assert waiting_reason(fleet) == "rollout 1 of 3 clusters: waits for own-1: 1 of 1 updated, 0 available"
        return
    assert sum(part.replicas_kept for name, part in parts_by_cluster(fleet).items() if name != "own-1") == 6
    stopped = "rollout 0 of 2 clusters: stopped: it left own-1 before it was available there; apply it again to go on"
    assert waiting_reason(fleet) == stopped
    scale_web(fleet, 7)
    move_and_roll(fleet)
    assert waiting_reason(fleet) == stopped
    apply_manifests(fleet, web_deployment("app:2", 7))
    assert sorted(number for name, number in template_number_by_cluster(fleet).items() if name != "own-1") == [1, 2]
    assert fleet.state.workloads[WEB].declared.rollout_stopped_in == ""


def test_what_a_rollout_declares_bears_no_answer_whose_time_is_over(fleet: Fleet) -> None:
    """Of a step of its own, and of a move that stops it."""
    apply_manifests(fleet, web_deployment("app:2"))
    add_expired_answers(fleet, WEB)
    for name in ("own-1", "own-2", "own-3"):
        report_status(fleet, name)
        continue_due_rollouts(fleet)
    declared = fleet.state.workloads[WEB].declared
    assert (set(template_number_by_cluster(fleet).values()), declared.earlier_templates, declared.answered) == (
        {2},
        (),
        (),
    )
    apply_manifests(fleet, web_deployment("app:3"))
    add_expired_answers(fleet, WEB)
    rolling = next(name for name, number in template_number_by_cluster(fleet).items() if number == 3)
    report_status(fleet, rolling, available=0)
    set_phase(fleet, rolling, PHASE_DRAINING)
    move_and_roll(fleet)
    declared = fleet.state.workloads[WEB].declared
    assert (declared.rollout_stopped_in, declared.answered) == (rolling, ())


def test_a_template_that_was_available_goes_on_when_its_cluster_is_drained(fleet: Fleet) -> None:
    apply_events(fleet, (BrakeSet("cluster/own-2", "a feast", "ann", 1),))
    apply_manifests(fleet, web_deployment("app:2"))
    report_status(fleet, "own-1")
    set_phase(fleet, "own-1", PHASE_DRAINING)
    move_and_roll(fleet)
    assert template_number_by_cluster(fleet) == {"own-2": 1, "own-3": 1}
    apply_events(fleet, (BrakeReleased("cluster/own-2", "ann", 2),))
    move_and_roll(fleet)
    assert 2 in template_number_by_cluster(fleet).values()


def test_a_rollout_that_stopped_is_over_with_the_next_template(fleet: Fleet) -> None:
    apply_manifests(fleet, web_deployment("app:2"))
    report_status(fleet, "own-1", available=0)
    set_phase(fleet, "own-1", PHASE_DRAINING)
    move_and_roll(fleet)
    apply_manifests(fleet, web_deployment("app:3"))
    assert sorted(template_number_by_cluster(fleet).values()) == [1, 3]
    assert fleet.state.workloads[WEB].declared.rollout_stopped_in == ""


def decide_scale_by_policy(fleet: Fleet, replicas: int) -> None:
    """By the workload's policy."""
    kind, generation = "HorizontalPodAutoscaler", Generation(5, replicas)
    fleet.state.apply_event(ScalePolicyDeclared(*WEB, Generation(5, 1), kind, "web-hpa", b"{}", 1000), fleet.now)
    fleet.state.apply_event(ScaleDecided(*WEB, generation, "web-hpa", kind, replicas, 0, 1000, "cpu"), fleet.now)
    apply_events(
        fleet, autoscaling.declare_scale_decision(fleet.state, fleet.state.workloads[WEB], fleet.next_moment())
    )


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_scale_in_by_its_policy_does_not_stop_it(fleet: Fleet, replicas: int) -> None:
    """Nobody is there to apply it again: it goes on with the new number, one cluster after the other as ever."""
    apply_manifests(fleet, web_deployment("app:2"))
    assert template_number_by_cluster(fleet)["own-1"] == 2
    decide_scale_by_policy(fleet, replicas)
    assert (
        set(template_number_by_cluster(fleet).values()),
        fleet.state.workloads[WEB].declared.rollout_stopped_in,
    ) == ({1}, "")
    for done in range(1, replicas + 1):
        for name in template_number_by_cluster(fleet):
            report_status(fleet, name)
        continue_due_rollouts(fleet)
        assert sorted(template_number_by_cluster(fleet).values()) == [1] * (replicas - done) + [2] * done
    assert sum(part.replicas_kept for part in parts_by_cluster(fleet).values()) == replicas


def test_what_is_stopped_stays_so_when_its_policy_scales_it(fleet: Fleet) -> None:
    apply_manifests(fleet, web_deployment("app:2"))
    report_status(fleet, "own-1", available=0)
    set_phase(fleet, "own-1", PHASE_DRAINING)
    move_and_roll(fleet)
    decide_scale_by_policy(fleet, 2)
    assert fleet.state.workloads[WEB].declared.rollout_stopped_in == "own-1"


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_scale_in_that_takes_the_only_one_that_was_given_a_template_stops_it(fleet: Fleet, replicas: int) -> None:
    """Said in the answer already; nothing goes on by itself, once all are carried out neither."""
    apply_manifests(fleet, web_deployment("app:2"))
    scale_web(fleet, replicas)
    assert set(template_number_by_cluster(fleet)) == {"own-2", "own-3"} - ({"own-2"} if replicas == 1 else set())
    total = "1 cluster" if replicas == 1 else "2 clusters"
    stopped = f"rollout 0 of {total}: stopped: it left own-1 before it was available there; apply it again to go on"
    assert waiting_reason(fleet) == stopped
    for name in template_number_by_cluster(fleet):
        report_status(fleet, name)
    continue_due_rollouts(fleet)
    assert (set(template_number_by_cluster(fleet).values()), waiting_reason(fleet)) == ({1}, stopped)
    apply_manifests(fleet, web_deployment("app:2", replicas))
    assert sorted(template_number_by_cluster(fleet).values()) == [1, 2][-replicas:]


@pytest.mark.parametrize("scope", ["fleet", "cluster/own-2", "workload/default/web"])
def test_frozen_it_waits_and_goes_on_when_released(fleet: Fleet, scope: str) -> None:
    apply_manifests(fleet, web_deployment("app:2"))
    apply_events(fleet, (BrakeSet(scope, "a feast", "ann", 1),))
    report_status(fleet, "own-1")
    continue_due_rollouts(fleet)
    assert template_number_by_cluster(fleet) == {"own-1": 2, "own-2": 1, "own-3": 1}
    assert waiting_reason(fleet) == f"rollout 1 of 3 clusters: {scope} is frozen by ann: a feast"
    apply_events(fleet, (BrakeReleased(scope, "ann", 2),))
    continue_due_rollouts(fleet)
    assert template_number_by_cluster(fleet) == {"own-1": 2, "own-2": 2, "own-3": 1}


@pytest.mark.parametrize(
    ("scope", "held"),
    [
        pytest.param("fleet", "own-2 and own-3 are", id="fleet"),
        pytest.param("cluster/own-3", "own-3 is", id="cluster"),
        pytest.param("workload/default/web", "own-2 and own-3 are", id="workload"),
    ],
)
def test_frozen_while_a_cluster_rolls_it_says_at_once_what_will_not_roll_after_that(
    fleet: Fleet, scope: str, held: str
) -> None:
    """Nothing is decided meanwhile: the brake is named as soon as it is set, and no more once it is released."""
    apply_manifests(fleet, web_deployment("app:2"))
    waits = "rollout 1 of 3 clusters: waits for own-1: not carried out yet"
    assert waiting_reason(fleet) == waits
    apply_events(fleet, (BrakeSet(scope, "a feast", "ann", 1),))
    assert waiting_reason(fleet) == f"{waits}; {held} held: {scope} is frozen by ann: a feast"
    assert waiting_reason(fleet) in notes_of_explanation(fleet)
    apply_events(fleet, (BrakeReleased(scope, "ann", 2),))
    assert "frozen" not in waiting_reason(fleet)


@pytest.mark.parametrize("scope", ["fleet", "cluster/own-2", "workload/default/web"])
def test_rollout_all_waits_where_it_is_frozen_and_goes_on_when_released(fleet: Fleet, scope: str) -> None:
    apply_events(fleet, (BrakeSet(scope, "a feast", "ann", 1),))
    before = parts_by_cluster(fleet)
    reply = apply_manifests(fleet, web_deployment("app:2"), ALL)
    held = {"own-2"} if scope == "cluster/own-2" else set(before)
    assert template_number_by_cluster(fleet) == {name: 1 if name in held else 2 for name in before}
    assert all(parts_by_cluster(fleet)[name] == before[name] for name in held)
    waits = f"rollout {3 - len(held)} of 3 clusters: {scope} is frozen by ann: a feast"
    assert (reply.waiting_for, waiting_reason(fleet)) == (waits, waits)
    continue_due_rollouts(fleet)
    assert template_number_by_cluster(fleet) == {name: 1 if name in held else 2 for name in before}
    apply_events(fleet, (BrakeReleased(scope, "ann", 2),))
    continue_due_rollouts(fleet)
    assert (template_number_by_cluster(fleet), waiting_reason(fleet)) == ({"own-1": 2, "own-2": 2, "own-3": 2}, "")


def test_it_does_not_begin_in_a_cluster_that_is_not_fresh(fleet: Fleet) -> None:
    fleet.now += 40
    apply_manifests(fleet, web_deployment("app:2"))
    assert template_number_by_cluster(fleet) == {"own-1": 1, "own-2": 1, "own-3": 1}
    assert waiting_reason(fleet) == "rollout 0 of 3 clusters: waits for own-1 to be fresh"
    aftermath.update_progress_timers(fleet.state, fleet.now)
    fleet.send_heartbeats()
    aftermath.update_progress_timers(fleet.state, fleet.now)
    continue_due_rollouts(fleet)
    assert template_number_by_cluster(fleet)["own-1"] == 2


def test_more_than_eight_templates_are_refused() -> None:
    """Each rollout is overtaken by the next one a cluster earlier, so that a cluster is left with every template."""
    fleet = Fleet(**{f"own_{n}": [node_row("a", 4000)] for n in range(9)})
    apply_manifests(fleet, web_deployment("app:1", 9))
    for index in range(2, 9):
        for name in parts_by_cluster(fleet):
            report_status(fleet, name)
        apply_manifests(fleet, web_deployment(f"app:{index}", 9))
        for _ in range(9 - index):
            for name in parts_by_cluster(fleet):
                report_status(fleet, name)
            continue_due_rollouts(fleet)
    assert sorted(set(template_number_by_cluster(fleet).values())) == list(range(1, 9))
    with pytest.raises(RequestError, match="earlier templates: expected fewer than 8"):
        apply_manifests(fleet, web_deployment("app:9", 9))
    apply_manifests(fleet, web_deployment("app:9", 9), ALL)


def test_manifests_too_large_for_one_record_are_refused(fleet: Fleet) -> None:
    notes = {"metadata": {"name": "web", "annotations": {"notes": "x" * 500_000}}}
    apply_manifests(fleet, web_deployment("app:2") | notes)
    report_status(fleet, "own-1")
    continue_due_rollouts(fleet)
    with pytest.raises(RequestError, match="wait for its rollout"):
        apply_manifests(fleet, web_deployment("app:3") | notes)
    apply_manifests(fleet, web_deployment("app:3") | notes, ALL)


# ── Room ────────────────────────────────────────────────────────────────────────────────────────────────────────


def rolling_update_strategy(surge: Any, unavailable: Any) -> dict[str, Any]:
    return {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}}


def fleet_with_full_cluster(replicas: int = 4, cpu: int = 4000, **spec: Any) -> Fleet:
    """One cluster, all its 4 cores taken by 4 replicas that run."""
    fleet = Fleet(own_1=[node_row("a", cpu)], cloud_1=[node_row("c", 100_000)])
    apply_manifests(fleet, web_deployment("app:1", replicas, **spec))
    report_running_replicas(fleet, replicas, cpu)
    return fleet


def report_running_replicas(fleet: Fleet, replicas: int, cpu: int) -> None:
    pods: NodeRow = replace(
        node_row("a", cpu, used=replicas * 1000), pods=((PodTable("default", (("app", "web"),)), replicas),)
    )
    fleet.report_change("own-1", [pods], shown=(workload_facts(parts_by_cluster(fleet)["own-1"].version, replicas),))
    report_status(fleet, "own-1")


def test_a_surge_without_room_waits_when_none_may_be_unavailable() -> None:
    fleet = fleet_with_full_cluster(**rolling_update_strategy(1, 0))
    apply_manifests(fleet, web_deployment("app:2", 4, **rolling_update_strategy(1, 0)))
    assert template_number_by_cluster(fleet) == {"own-1": 1}
    assert waiting_reason(fleet) == "rollout 0 of 1 cluster: waits for room for 1 surge pod in own-1"
    continue_due_rollouts(fleet)
    assert list(fleet.state.rollouts.take_due_workloads(9)) == []
    report_running_replicas(fleet, 4, 5000)
    continue_due_rollouts(fleet)
    assert template_number_by_cluster(fleet) == {"own-1": 2}


def test_a_template_without_room_that_is_taken_back_waits_for_nothing() -> None:
    fleet = fleet_with_full_cluster(**rolling_update_strategy(1, 0))
    apply_manifests(fleet, web_deployment("app:2", 4, **rolling_update_strategy(1, 0)))
    apply_manifests(fleet, web_deployment("app:1", 4, **rolling_update_strategy(1, 0)))
    assert template_number_by_cluster(fleet) == {"own-1": 3}
    assert waiting_reason(fleet) == ""


def test_a_surge_of_a_smaller_template_needs_its_own_room_alone() -> None:
    """Seed 5020: half a core is free, and half a core is what a new pod asks for."""
    fleet = fleet_with_full_cluster(cpu=4500, **rolling_update_strategy(1, 0))
    apply_manifests(fleet, web_deployment("app:2", 4, cpu="500m", **rolling_update_strategy(1, 0)))
    assert template_number_by_cluster(fleet)["own-1"] == 2


def report_part_bound(fleet: Fleet, name: str, row: str, allocatable: int, cpu: int) -> None:
    """All that a cluster was given runs there, on one node."""
    part = parts_by_cluster(fleet)[name]
    pods = ((PodTable("default", (("app", "web"),)), part.replicas),)
    on_node = replace(node_row(row, allocatable, used=part.replicas * cpu), pods=pods)
    fleet.report_change(name, [on_node], shown=(workload_facts(part.version, part.replicas),))
    report_status(fleet, name)


FULLEST = {
    "all of the new ones fit beside the old": (2, 3000, 500, "1", True),
    "it does not: the roll would stand half done (seed 1655)": (2, 2000, 500, "1", False),
    "one replica: all of the new ones fit beside the old one": (1, 1500, 500, "1", True),
    "as many as there are at once fit in the wider shape": (4, 5000, 500, "1", True),
    "that cannot be said of the last one": (4, 4500, 500, "1", False),
    "a smaller one needs room at its beginning alone": (2, 2500, 1000, "500m", True),
}


@pytest.mark.parametrize(("replicas", "cpu", "before", "after", "begins"), FULLEST.values(), ids=FULLEST)
def test_a_roll_begins_where_it_can_end(replicas: int, cpu: int, before: int, after: str, begins: bool) -> None:
    fleet = Fleet(own_1=[node_row("a", cpu)])
    apply_manifests(fleet, web_deployment("app:1", replicas, cpu=f"{before}m", **rolling_update_strategy(1, 0)))
    report_part_bound(fleet, "own-1", "a", cpu, before)
    apply_manifests(fleet, web_deployment("app:2", replicas, cpu=after, **rolling_update_strategy(1, 0)))
    assert template_number_by_cluster(fleet) == {"own-1": 2 if begins else 1}
    waits = "" if begins else "rollout 0 of 1 cluster: waits for room for 1 surge pod in own-1"
    assert waiting_reason(fleet) == waits


def test_who_has_no_room_for_its_surge_keeps_nobody_else_waiting() -> None:
    fleet = Fleet(own_1=[node_row("a", 1000)], own_2=[node_row("b", 2000)])
    spec = rolling_update_strategy(1, 0)
    apply_manifests(fleet, web_deployment("app:1", 3, **spec))
    report_part_bound(fleet, "own-1", "a", 1000, 1000)
    report_part_bound(fleet, "own-2", "b", 3000, 1000)
    apply_manifests(fleet, web_deployment("app:2", 3, **spec))
    assert template_number_by_cluster(fleet) == {"own-1": 1, "own-2": 2}
    report_status(fleet, "own-2")
    continue_due_rollouts(fleet)
    assert waiting_reason(fleet) == "rollout 1 of 2 clusters: waits for room for 1 surge pod in own-1"
    report_part_bound(fleet, "own-1", "a", 2000, 1000)
    continue_due_rollouts(fleet)
    assert template_number_by_cluster(fleet) == {"own-1": 2, "own-2": 2}


def test_who_waits_for_room_elsewhere_hears_of_it_though_it_is_not_named() -> None:
    """Six clusters that lack room for a surge are before it, and five are named."""
    small = {f"own_{index}": [node_row(f"n{index}", 1000)] for index in range(6)}
    fleet = Fleet(**small, own_6=[node_row("n6", 2000)], cloud_1=[node_row("c", 500)])
    apply_manifests(fleet, web_deployment("app:1", 8, **rolling_update_strategy(1, 0)))
    for index in range(7):
        report_part_bound(fleet, f"own-{index}", f"n{index}", 2000, 1000)
    apply_manifests(fleet, web_deployment("app:2", 8, cpu="1500m", **rolling_update_strategy(1, 0)))
    assert waiting_reason(fleet).endswith("1 surge pod in own-4 and in 2 more clusters")
    continue_due_rollouts(fleet)
    assert list(fleet.state.rollouts.take_due_workloads(9)) == []
    fleet.report_change("cloud-1", [node_row("c", 9000)])
    continue_due_rollouts(fleet)
    assert template_number_by_cluster(fleet)["own-6"] == 2


def test_what_no_longer_fits_and_has_no_room_elsewhere_is_not_given_up() -> None:
    """Seed 2631: running replicas went for a larger template, and nobody had room for it."""
    fleet = Fleet(own_1=[node_row("a", 4000)], cloud_1=[node_row("c", 1000)])
    spec = rolling_update_strategy(0, 1)
    apply_manifests(fleet, web_deployment("app:1", 4, **spec))
    report_part_bound(fleet, "own-1", "a", 4000, 1000)
    apply_manifests(fleet, web_deployment("app:2", 4, cpu="2", **spec))
    assert {name: part.replicas for name, part in parts_by_cluster(fleet).items()} == {"own-1": 4}
    assert waiting_reason(fleet) == "rollout 0 of 1 cluster: waits for room for 2 replicas that no longer fit in own-1"
    continue_due_rollouts(fleet)
    assert list(fleet.state.rollouts.take_due_workloads(9)) == []
    fleet.report_change("cloud-1", [node_row("c", 9000)])
    continue_due_rollouts(fleet)
    assert {name: part.replicas_kept for name, part in parts_by_cluster(fleet).items()} == {"own-1": 2, "cloud-1": 2}
    assert parts_by_cluster(fleet)["own-1"].replicas_leaving == 2


def test_who_waits_for_room_elsewhere_hears_of_a_cluster_that_joins() -> None:
    """Seed 41391: it waited for the clusters that there were when it was looked at, and for ever beside the new one."""
    fleet = Fleet(own_1=[node_row("a", 4000)])
    spec = rolling_update_strategy(0, 1)
    apply_manifests(fleet, web_deployment("app:1", 4, **spec))
    report_part_bound(fleet, "own-1", "a", 4000, 1000)
    apply_manifests(fleet, web_deployment("app:2", 4, cpu="2", **spec))
    continue_due_rollouts(fleet)
    assert waiting_reason(fleet) == "rollout 0 of 1 cluster: waits for room for 2 replicas that no longer fit in own-1"
    assert list(fleet.state.rollouts.take_due_workloads(9)) == []
    fleet.join_cluster(joined_cluster("cloud-1", "cloud"), [node_row("c", 9000)])
    continue_due_rollouts(fleet)
    assert {name: part.replicas_kept for name, part in parts_by_cluster(fleet).items()} == {"own-1": 2, "cloud-1": 2}


def test_of_no_node_there_is_nothing_to_take_away() -> None:
    """Seed 7127: where no node is left no resource is known either, and that ended the planner."""
    rest = cluster_nodes_of().without_workload_pods("default", {"app": "web"}, (("cpu", 1000),), 0)
    assert rest is not None
    assert not rest.live_mask.any()


def test_a_larger_template_waits_for_a_cluster_to_show_what_runs_there() -> None:
    """Seed 2868: it began where nothing was known yet, and stood half done."""
    fleet = Fleet(own_1=[node_row("a", 4000)])
    apply_manifests(fleet, web_deployment("app:1", 4, **rolling_update_strategy(1, 1)))
    apply_manifests(fleet, web_deployment("app:2", 4, cpu="2", **rolling_update_strategy(1, 1)))
    assert waiting_reason(fleet) == "rollout 0 of 1 cluster: waits for own-1 to show what runs there"
    report_status(fleet, "own-1", available=0)
    refused = replace(fleet.state.workloads[WEB].statuses["own-1"], state=STATE_REFUSED, sequence=9)
    fleet.state.apply_event(refused, fleet.now)
    continue_due_rollouts(fleet)
    assert template_number_by_cluster(fleet) == {"own-1": 2}


@pytest.mark.parametrize("surge", [5000, "9999%", 2**63, 10**400])
@pytest.mark.parametrize(
    ("cpu", "room"),
    [("1", "4 surge pods"), ("2", "3 replicas that no longer fit"), ("3", "4 replicas that no longer fit")],
)
def test_a_surge_is_never_more_than_the_replicas(surge: int | str, cpu: str, room: str) -> None:
    """A Deployment's controller makes no more new pods than these. The planner ended where no count of them went in."""
    fleet = Fleet(own_1=[node_row("a", 4000)])
    apply_manifests(fleet, web_deployment("app:1", 4, **rolling_update_strategy(1, 1)))
    report_part_bound(fleet, "own-1", "a", 4000, 1000)
    report_status(fleet, "own-1")
    apply_manifests(fleet, web_deployment("app:2", 4, cpu=cpu, **rolling_update_strategy(surge, 0)))
    for _ in range(3):
        continue_due_rollouts(fleet)
    asked = fleet.state.workloads[WEB].declared
    assert read_template(asked.manifest, "default").surge_of(4) == 4
    assert waiting_reason(fleet) == f"rollout 0 of 1 cluster: waits for room for {room} in own-1"


def test_with_fewer_replicas_in_the_same_apply_a_roll_needs_room_for_its_surge() -> None:
    """Seed 2553: one of 4 may be unavailable, and none of 3."""
    fleet = fleet_with_full_cluster(**rolling_update_strategy("25%", "25%"))
    apply_manifests(fleet, web_deployment("app:2", 3, **rolling_update_strategy("25%", "25%")))
    assert (template_number_by_cluster(fleet), parts_by_cluster(fleet)["own-1"].replicas) == ({"own-1": 1}, 3)


def test_all_that_have_no_room_are_named_and_waited_for() -> None:
    fleet = Fleet(own_1=[node_row("a", 1000)], own_2=[node_row("b", 2000)])
    apply_manifests(fleet, web_deployment("app:1", 3, **rolling_update_strategy(1, 0)))
    report_part_bound(fleet, "own-1", "a", 1000, 1000)
    report_part_bound(fleet, "own-2", "b", 2000, 1000)
    apply_manifests(fleet, web_deployment("app:2", 3, **rolling_update_strategy(1, 0)))
    continue_due_rollouts(fleet)
    named = "1 surge pod in own-1 and 1 surge pod in own-2"
    assert waiting_reason(fleet) == f"rollout 0 of 2 clusters: waits for room for {named}"
    report_part_bound(fleet, "own-2", "b", 3000, 1000)
    continue_due_rollouts(fleet)
    assert template_number_by_cluster(fleet) == {"own-1": 1, "own-2": 2}


def test_what_comes_on_top_leaves_room_for_the_surge() -> None:
    """Seed 40: two of the new template fit once the old pod is gone, which waits for the second to be available."""
    fleet = Fleet(own_1=[node_row("a", 2000)], cloud_1=[node_row("c", 100_000)])
    apply_manifests(fleet, web_deployment("app:1", 1, cpu="250m"))
    pods = replace(node_row("a", 2000, used=250), pods=((PodTable("default", (("app", "web"),)), 1),))
    fleet.report_change("own-1", [pods], shown=(workload_facts(parts_by_cluster(fleet)["own-1"].version, 1),))
    report_status(fleet, "own-1")
    apply_manifests(fleet, web_deployment("app:2", 9))
    assert {name: part.replicas for name, part in parts_by_cluster(fleet).items()} == {"own-1": 1, "cloud-1": 8}


GO_ON = {
    "one may be unavailable": rolling_update_strategy(1, 1),
    "a share that is one of four": rolling_update_strategy("25%", "25%"),
    "no surge at all": rolling_update_strategy(0, 1),
    "both are 0 when rounded: the controller takes one away": rolling_update_strategy(0, "10%"),
    "they are made anew": {"strategy": {"type": "Recreate"}},
}


@pytest.mark.parametrize("spec", GO_ON.values(), ids=GO_ON)
def test_it_goes_on_without_room_when_the_roll_may(spec: dict[str, Any]) -> None:
    fleet = fleet_with_full_cluster(**spec)
    apply_manifests(fleet, web_deployment("app:2", 4, **spec))
    assert template_number_by_cluster(fleet) == {"own-1": 2}


def test_a_larger_template_cuts_a_cluster_at_its_turn_and_not_before() -> None:
    """own-1 first: 1 of 2 cores fits there beside its surge, 1 goes elsewhere; own-2 keeps all 3 until its turn."""
    fleet = Fleet(own_1=[node_row("a", 2000)], own_2=[node_row("b", 3000)], cloud_1=[node_row("c", 100_000)])
    apply_manifests(fleet, web_deployment("app:1", 5, **rolling_update_strategy(0, 1)))

    def report_bound_on_node(name: str, row: str) -> None:
        part = parts_by_cluster(fleet)[name]
        labels = (("app", "web"),)
        pods = replace(
            node_row(row, part.replicas * 1000, used=part.replicas * 1000),
            pods=((PodTable("default", labels), part.replicas),),
        )
        fleet.report_change(name, [pods], shown=(workload_facts(part.version, part.replicas),))
        report_status(fleet, name)

    report_bound_on_node("own-1", "a")
    report_bound_on_node("own-2", "b")
    apply_manifests(fleet, web_deployment("app:2", 5, cpu="2", **rolling_update_strategy(0, 1)))
    assert {name: part.replicas_kept for name, part in parts_by_cluster(fleet).items()} == {
        "own-1": 1,
        "own-2": 3,
        "cloud-1": 1,
    }
    assert parts_by_cluster(fleet)["own-1"].replicas_leaving == 1  # It goes when its replacement is available.
    assert template_number_by_cluster(fleet) == {"own-1": 2, "own-2": 1, "cloud-1": 2}
    report_status(fleet, "own-1", updated=0)
    report_status(fleet, "cloud-1")
    continue_due_rollouts(fleet)
    assert template_number_by_cluster(fleet)["own-2"] == 1
    for workload in moves.workloads_due_to_move(fleet.state, fleet.now, UnlimitedAllowance()):
        apply_events(
            fleet, moves.next_move_step(fleet.state, workload, fleet.next_moment(), UnlimitedAllowance()).events
        )
    assert (parts_by_cluster(fleet)["own-1"].replicas, template_number_by_cluster(fleet)["own-1"]) == (1, 2)
    report_status(fleet, "own-1")
    continue_due_rollouts(fleet)
    assert {name: part.replicas_kept for name, part in parts_by_cluster(fleet).items()} == {
        "own-1": 1,
        "own-2": 1,
        "cloud-1": 3,
    }


def test_what_is_reserved_has_the_shape_that_each_cluster_bears(fleet: Fleet) -> None:
    one, two = (Shape("default", (("cpu", cpu), ("memory", 2**30), ("pods", 1))) for cpu in (1000, 2000))
    apply_manifests(fleet, web_deployment("app:2", cpu="2"))
    scale_web(fleet, 9)
    entries = {name: dict(fleet.state.reservation_of(WEB, name).entries) for name in parts_by_cluster(fleet)}
    assert two in entries["own-1"]
    assert one in entries["own-3"]
    assert two not in entries["own-3"]


# ── The index ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_rollout_is_looked_at_for_a_reason_only() -> None:
    rolling = RolloutList()
    web, api = WEB, ("default", "api")
    rolling.put_workload(web)
    rolling.put_workload(api)
    assert list(rolling.take_due_workloads(1)) == [web]
    assert list(rolling.take_due_workloads(9)) == [api]
    assert list(rolling.take_due_workloads(9)) == []
    rolling.set_awaited_clusters(web, ("own-1", "own-3"))
    rolling.retry_waiting_on("own-2")
    assert list(rolling.take_due_workloads(9)) == []
    rolling.retry_waiting_on("own-1")
    assert list(rolling.take_due_workloads(9)) == [web]
    rolling.retry_waiting_on("own-3")
    assert list(rolling.take_due_workloads(9)) == [web]
    rolling.set_awaited_clusters(web, ())
    rolling.retry_waiting_on("own-1")
    assert list(rolling.take_due_workloads(9)) == []
    rolling.retry_workload(api)
    rolling.drop_workload(api)
    assert list(rolling.take_due_workloads(9)) == []
    rolling.retry_all()
    assert list(rolling.take_due_workloads(9)) == [web]
    assert list(rolling) == [web]


def test_a_rollout_that_a_round_has_no_time_for_stays_due_in_its_place() -> None:
    rolling = RolloutList()
    keys = [("default", name) for name in "abc"]
    for key in keys:
        rolling.put_workload(key)
    assert next(rolling.take_due_workloads(9)) == keys[0]
    rolling.retry_workload(keys[0])
    due = rolling.take_due_workloads(9)
    assert next(due) == keys[1]
    rolling.drop_workload(keys[2])
    assert list(due) == [keys[0]], "who no longer rolls is not looked at"


# ── Whatever happens ────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Member:
    """One cluster's object: the part that it carries out, and its pods by template, told apart by its image."""

    part: Part
    template: int
    pods: dict[int, int] = field(default_factory=dict)
    working: bool = True

    def set_part(self, part: Part, image: int) -> None:
        self.part, self.template = part, image

    def roll_one_pod(self) -> None:
        """One pod more of what is wanted, or one fewer of what is not, never below the replicas."""
        wanted = self.pods.get(self.template, 0)
        old = [number for number, count in self.pods.items() if number != self.template and count]
        total = sum(self.pods.values())
        if wanted < self.part.replicas and (total <= self.part.replicas or not old):
            self.pods[self.template] = wanted + 1
        elif old and (self.working or total > self.part.replicas + 1):
            self.pods[old[0]] -= 1
        elif wanted > self.part.replicas:
            self.pods[self.template] = wanted - 1

    @property
    def has_mixed_templates(self) -> bool:
        return len([count for count in self.pods.values() if count]) > 1

    def reported_status(self, sequence: int) -> WorkloadObserved:
        total, updated = sum(self.pods.values()), self.pods.get(self.template, 0)
        available = total if self.working else total - updated
        return WorkloadObserved(
            *WEB, self.part.cluster, 3, sequence, self.part.version, STATE_PRESENT, "",
            self.part.replicas, total, updated, available, available,
        )  # fmt: skip


class World:
    def __init__(self, clusters: int) -> None:
        self.fleet = Fleet(**{f"own_{n}": [node_row("a", 20_000)] for n in range(clusters)})
        apply_manifests(self.fleet, web_deployment("app:1", clusters * 2))
        self.members = {
            name: Member(part, 1, {1: part.replicas}) for name, part in parts_by_cluster(self.fleet).items()
        }
        self.images = {1: 1}
        """By template generation."""

    def carry_out_part(self, name: str) -> None:
        declared = self.fleet.state.workloads[WEB].declared
        part = parts_by_cluster(self.fleet)[name]
        image = self.images[template_number(part, declared)]
        member = self.members.setdefault(name, Member(part, image))
        member.set_part(part, image)

    def report_status(self, name: str) -> None:
        self.fleet.sequence += 1
        self.fleet.state.apply_event(self.members[name].reported_status(self.fleet.sequence), self.fleet.now)

    def apply_image(self, image: int = 0) -> None:
        """image: one that was applied before; a new one by default."""
        image = image or max(self.images.values()) + 1
        self._check_parts_kept(
            lambda: apply_manifests(self.fleet, web_deployment(f"app:{image}", self._declared_replicas()))
        )
        self.images[self.fleet.state.workloads[WEB].declared.template_generation] = image

    def roll_and_check(self) -> None:
        self._check_parts_kept(lambda: continue_due_rollouts(self.fleet))

    def _declared_replicas(self) -> int:
        return self.fleet.state.workloads[WEB].declared.replicas

    def _check_parts_kept(self, act: Any) -> None:
        """Nothing but a turn at the newest template may change a part here."""
        before = parts_by_cluster(self.fleet)
        act()
        newest = self.fleet.state.workloads[WEB].declared.template_generation
        after = parts_by_cluster(self.fleet)
        for name, part in before.items():
            if template_number_by_cluster(self.fleet).get(name) != newest:
                assert after[name] == part

    def roll_once_everywhere(self) -> None:
        """A while in which nothing is late."""
        for name in self.members:
            self.carry_out_part(name)
        for name, member in self.members.items():
            member.roll_one_pod()
            self.check_one_cluster_rolls()
            self.report_status(name)
        self.roll_and_check()

    def check_one_cluster_rolls(self) -> None:
        assert len([name for name, member in self.members.items() if member.has_mixed_templates]) <= 1


STEPS = st.lists(
    st.sampled_from(
        ("apply", "revert", "scale", "tick", "carry", "step", "report", "break", "mend", *("advance",) * 8)
    ),
    max_size=80,
)


@given(st.integers(2, 4), STEPS, st.randoms(use_true_random=False))
def test_whatever_happens_one_cluster_rolls_at_a_time_and_in_the_end_all_have(
    clusters: int, steps: list[str], random: Random
) -> None:
    """Objects are written, pods made and statuses told at any time, templates break and mend; a rollout that stopped is
    applied again."""
    world = World(clusters)
    for verb in steps:
        name = random.choice(sorted(world.members))
        match verb:
            case "apply":
                world.apply_image()
            case "revert":
                world.apply_image(random.choice(list(world.images.values())))
            case "scale":
                scale_web(world.fleet, random.randint(clusters, clusters * 2))
            case "tick":
                world.roll_and_check()
            case "carry":
                world.carry_out_part(name)
            case "step":
                world.members[name].roll_one_pod()
            case "advance":
                world.roll_once_everywhere()
            case "report":
                world.report_status(name)
            case _:
                world.members[name].working = verb == "mend"
        world.check_one_cluster_rolls()
    for member in world.members.values():
        member.working = True
    declared = world.fleet.state.workloads[WEB].declared
    if declared.rollout_stopped_in:  # A scale-in took the last replica that had it, and may be followed by an Apply.
        world.apply_image(world.images[declared.template_generation])
    for _ in range(clusters * 40):
        world.roll_once_everywhere()
    assert set(template_number_by_cluster(world.fleet).values()) == {
        world.fleet.state.workloads[WEB].declared.template_generation
    }


@pytest.mark.parametrize(
    ("advances", "own_1"),
    [pytest.param(5, 2, id="its turn came, it was not heard of since"), pytest.param(7, 3, id="it was seen mixed")],
)
def test_a_template_that_comes_after_a_scale_in_mid_roll_goes_where_pods_are_mixed(advances: int, own_1: int) -> None:
    """After a scale no cluster is known to be in full: the one that was seen mixed is the one, else they are heard."""
    world = World(4)
    world.apply_image()
    for _ in range(advances):
        world.roll_once_everywhere()
    scale_web(world.fleet, 4)
    world.apply_image()
    assert template_number_by_cluster(world.fleet) == {"own-0": 2, "own-1": own_1, "own-2": 1, "own-3": 1}
    for _ in range(160):
        world.roll_once_everywhere()
    assert set(template_number_by_cluster(world.fleet).values()) == {3}
