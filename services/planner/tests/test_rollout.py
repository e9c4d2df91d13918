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
from planner.core.knowledge.turns import RolloutPart, next_rollout_turn, rollout_progress_text
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
    cluster,
    container,
    deployment,
    facts,
    node,
    nodes_of,
    policy,
    remember_old,
    template,
    texts,
)

WEB = ("default", "web")
V1, V2 = Generation(9, 1), Generation(9, 2)
ALL = policy(rollout="all")


# ── Whose turn it is ────────────────────────────────────────────────────────────────────────────────────────────


def seen(part: Part, updated: int, available: int, **more: Any) -> WorkloadObserved:
    total = more.get("pods", part.replicas)
    version, state = more.get("version", part.version), more.get("state", STATE_PRESENT)
    return WorkloadObserved(
        *WEB, part.cluster, 3, more.get("sequence", 1), version, state, "", total, total, updated, available, available
    )


def stands(name: str, replicas: int, number: int, shown: tuple[int, ...] | None = None, **more: Any) -> RolloutPart:
    """A part of template `number` of 1 to 3; shown: updated, available, and pods at all."""
    part = Part(name, V1, replicas, 0, replicas, more.pop("removing", False), number, **more.pop("part", {}))
    lost = more.pop("lost", False)
    observed = seen(part, *shown, **more) if shown is not None else None
    return RolloutPart(part, number, number == 3, lost, observed)


def test_a_cluster_whose_object_is_on_hold_is_not_merely_slow() -> None:
    part = Part("a", V2, 5, 0, 5, False, 1)
    slow = seen(part, 5, 5, version=V1)
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
        [stands("a", 5, 1, (5, 5)), stands("b", 2, 1, (2, 2)), stands("c", 9, 1, (9, 9))],
        ("b", "", 0, 3),
    ),
    "then by name": ([stands("b", 2, 1, (2, 2)), stands("a", 2, 1, (2, 2))], ("a", "", 0, 2)),
    "the next, when the first is available in full": (
        [stands("a", 5, 1, (5, 5)), stands("b", 2, 3, (2, 2))],
        ("a", "", 1, 2),
    ),
    "nobody has said anything of the first": ([stands("a", 5, 1, (5, 5)), stands("b", 2, 3)], ("", "b", 1, 2)),
    "the first was last seen at an older version": (
        [stands("a", 5, 1, (5, 5)), stands("b", 2, 3, (2, 2), version=Generation(8, 9))],
        ("", "b", 1, 2),
    ),
    "not all are updated": ([stands("a", 5, 1, (5, 5)), stands("b", 2, 3, (1, 2))], ("", "b", 1, 2)),
    "not all are available": ([stands("a", 5, 1, (5, 5)), stands("b", 2, 3, (2, 1))], ("", "b", 1, 2)),
    "pods of the old template are still there": (
        [stands("a", 5, 1, (5, 5)), stands("b", 2, 3, (2, 3), pods=3)],
        ("", "b", 1, 2),
    ),
    "fewer than decided": ([stands("a", 5, 1, (5, 5)), stands("b", 2, 3, (1, 1), pods=1)], ("", "b", 1, 2)),
    "refused by the cluster": (
        [stands("a", 5, 1, (5, 5)), stands("b", 2, 3, (2, 2), state=STATE_REFUSED)],
        ("", "b", 1, 2),
    ),
    "a lost cluster does not block once another one has it available": (
        [stands("a", 5, 1, (5, 5)), stands("b", 2, 3, (0, 0), lost=True), stands("c", 2, 3, (2, 2))],
        ("a", "", 2, 3),
    ),
    "or was last heard of so itself": (
        [stands("a", 5, 1, (5, 5)), stands("b", 2, 3, (2, 2), lost=True)],
        ("a", "", 1, 2),
    ),
    "until then it is waited for": (
        [stands("a", 5, 1, (5, 5)), stands("b", 2, 3, (0, 0), lost=True)],
        ("", "b", 1, 2),
    ),
    "nor is it a lost cluster's turn": ([stands("a", 5, 1, lost=True), stands("b", 2, 3, (2, 2))], ("", "", 1, 2)),
    "what is removed neither blocks nor rolls": (
        [stands("a", 0, 1, removing=True), stands("b", 0, 3, removing=True), stands("c", 2, 1, (2, 2))],
        ("c", "", 0, 1),
    ),
    "what was replaced elsewhere is waited for, if nobody else has it": (
        [stands("a", 4, 3, (0, 0), part={"replicas_lost": 4}), stands("c", 5, 1, (5, 5))],
        ("", "a", 0, 1),
    ),
    "and so is what leaves a drained cluster": (
        [stands("a", 4, 3, (4, 3), part={"replicas_leaving": 4}), stands("c", 5, 1, (5, 5))],
        ("", "a", 0, 1),
    ),
    "until it was available there": (
        [stands("a", 4, 3, (4, 4), part={"replicas_leaving": 4}), stands("c", 5, 1, (5, 5))],
        ("c", "", 0, 1),
    ),
    "what leaves is not waited for where another one has it available": (
        [stands("a", 4, 3, (0, 0), part={"replicas_leaving": 4}), stands("b", 2, 3, (2, 2)), stands("c", 5, 1, (5, 5))],
        ("c", "", 1, 2),
    ),
    "what rolls already comes first": (
        [stands("a", 2, 1, (2, 2)), stands("b", 9, 2, (3, 9), pods=11)],
        ("b", "", 0, 2),
    ),
    "and what was given an earlier template that is not available": (
        [stands("a", 2, 1, (2, 2)), stands("b", 9, 2, (9, 0))],
        ("b", "", 0, 2),
    ),
    "behind one that has pods of two templates": (
        [stands("a", 2, 2, (2, 0)), stands("b", 9, 1, (3, 9), pods=11)],
        ("b", "", 0, 2),
    ),
    "what lacks a pod for its own reasons does not": (
        [stands("a", 2, 1, (2, 2)), stands("b", 9, 1, (9, 8))],
        ("a", "", 0, 2),
    ),
    "what was not carried out yet may be about to roll": (
        [stands("a", 2, 1, (2, 2)), stands("b", 9, 1, (9, 9), version=Generation(8, 9))],
        ("b", "", 0, 2),
    ),
    "of two such, who knows which": (
        [stands("a", 2, 1, (2, 2), version=Generation(8, 9)), stands("b", 9, 1, (9, 9), version=Generation(8, 9))],
        ("", "a", 0, 2),
    ),
    "all have it": ([stands("a", 5, 3, (5, 5)), stands("b", 2, 3, (2, 2))], ("", "", 2, 2)),
}


@pytest.mark.parametrize(("standings", "expected"), TURNS.values(), ids=TURNS)
def test_whose_turn_it_is(standings: list[RolloutPart], expected: tuple[str, str, int, int]) -> None:
    turn = next_rollout_turn(standings)
    assert (next(iter(turn.candidates), ""), turn.blocked_by, turn.done, turn.total) == expected


def test_who_may_go_before_the_one_whose_turn_it_is() -> None:
    calm, other, rolling = stands("a", 5, 1, (5, 5)), stands("b", 7, 1, (7, 7)), stands("c", 9, 1, (4, 9))
    assert next_rollout_turn([other, calm]).candidates == ("a", "b")
    assert next_rollout_turn([other, calm, rolling]).candidates == ("c",)
    assert next_rollout_turn([other, stands("d", 1, 3)]).candidates == ()


# ── Applying ────────────────────────────────────────────────────────────────────────────────────────────────────


def keep(fleet: Fleet, events: tuple[Any, ...]) -> None:
    for event in events:
        assert not isinstance(event, Tombstone)
        fleet.state.apply_event(event, fleet.now)


def ask(fleet: Fleet, *manifests: dict[str, Any]) -> PlacementReply:
    decided = decisions.decide_apply(fleet.state, ApplyRequest(texts(*manifests)), fleet.moment())
    keep(fleet, decided.events)
    return decided.reply


def web(image: str, replicas: int = 6, cpu: str = "1", **spec: Any) -> dict[str, Any]:
    return deployment(replicas, pod=template(container(cpu=cpu, image=image)), **spec)


def scale(fleet: Fleet, replicas: int) -> None:
    keep(fleet, decisions.decide_scale(fleet.state, ScaleRequest("", "web", replicas), fleet.moment()).events)


def tick(fleet: Fleet) -> None:
    """What the planner does of itself about rollouts."""
    for key in fleet.state.rollouts.take_due_workloads(50):
        keep(fleet, aftermath.continue_rollout(fleet.state, fleet.state.workloads[key], fleet.moment()).events)


def parts(fleet: Fleet) -> dict[str, Part]:
    return fleet.state.workloads[WEB].parts


def numbers(fleet: Fleet) -> dict[str, int]:
    """Which template each cluster is to have."""
    declared = fleet.state.workloads[WEB].declared
    return {name: template_number(part, declared) for name, part in parts(fleet).items() if not part.removing}


def show(fleet: Fleet, name: str, updated: int | None = None, available: int | None = None) -> None:
    """The cluster says how its object is; by default all is well."""
    part = parts(fleet)[name]
    fleet.sequence += 1
    count = part.replicas
    shown = seen(
        part,
        count if updated is None else updated,
        count if available is None else available,
        sequence=fleet.sequence,
    )
    fleet.state.apply_event(shown, fleet.now)


def explained(fleet: Fleet) -> tuple[str, ...]:
    """The notes of Explain."""
    steps = explanation.explain_placement(fleet.state, ExplainRequest("default", "web"), fleet.moment(), None)
    try:
        while True:
            next(steps)
    except StopIteration as done:
        reply: ExplainReply = done.value
        return reply.notes


def waiting_for(fleet: Fleet) -> str:
    return answers.get_workload(fleet.state, GetRequest("default", "web")).placement.waiting_for


@pytest.fixture
def fleet() -> Fleet:
    """web:1 runs in three clusters: 1, 2 and 3 replicas of 6."""
    fleet = Fleet(own_1=[node("a", 3000)], own_2=[node("b", 6000)], own_3=[node("c", 9000)])
    ask(fleet, web("app:1"))
    assert {name: part.replicas for name, part in parts(fleet).items()} == {"own-1": 1, "own-2": 2, "own-3": 3}
    for name in parts(fleet):
        show(fleet, name)
        fleet.change(name, shown=(facts(parts(fleet)[name].version, parts(fleet)[name].replicas),))
    return fleet


def test_one_cluster_gets_it_at_once_the_others_stay_as_they_are(fleet: Fleet) -> None:
    before = parts(fleet)
    reply = ask(fleet, web("app:2"))
    after = parts(fleet)
    assert numbers(fleet) == {"own-1": 2, "own-2": 1, "own-3": 1}
    assert after["own-1"].version > before["own-1"].version
    assert (after["own-2"], after["own-3"]) == (before["own-2"], before["own-3"])
    declared = fleet.state.workloads[WEB].declared
    assert [entry.template_generation for entry in declared.earlier_templates] == [1]
    assert b"app:1" in declared.earlier_templates[0].manifest
    assert reply.waiting_for == "rollout 1 of 3 clusters: waits for own-1"


def test_the_next_gets_it_when_the_last_is_available_in_full(fleet: Fleet) -> None:
    ask(fleet, web("app:2"))
    tick(fleet)
    assert numbers(fleet) == {"own-1": 2, "own-2": 1, "own-3": 1}
    show(fleet, "own-1")
    tick(fleet)
    assert numbers(fleet) == {"own-1": 2, "own-2": 2, "own-3": 1}
    show(fleet, "own-2", updated=1, available=2)
    tick(fleet)
    assert numbers(fleet)["own-3"] == 1
    assert waiting_for(fleet) == "rollout 2 of 3 clusters: waits for own-2: 1 of 2 updated, 2 available"
    show(fleet, "own-2")
    tick(fleet)
    assert numbers(fleet) == {"own-1": 2, "own-2": 2, "own-3": 2}
    assert fleet.state.workloads[WEB].declared.earlier_templates == ()
    assert waiting_for(fleet) == ""
    assert len(fleet.state.rollouts) == 0


def test_rollout_all_goes_everywhere_at_once(fleet: Fleet) -> None:
    before = parts(fleet)
    ask(fleet, web("app:2"), ALL)
    assert numbers(fleet) == {"own-1": 2, "own-2": 2, "own-3": 2}
    assert all(part.version > before[name].version for name, part in parts(fleet).items())
    assert fleet.state.workloads[WEB].declared.earlier_templates == ()


def test_another_template_in_the_middle_is_the_newest_then(fleet: Fleet) -> None:
    """Clusters keep what they have, each its own; the one that was rolling comes first again."""
    ask(fleet, web("app:2"))
    show(fleet, "own-1")
    tick(fleet)
    show(fleet, "own-2", updated=1, available=1)
    ask(fleet, web("app:3"))
    assert numbers(fleet) == {"own-1": 2, "own-2": 3, "own-3": 1}
    borne = fleet.state.workloads[WEB].declared.earlier_templates
    assert [entry.template_generation for entry in borne] == [1, 2]


def test_a_scale_in_the_middle_changes_replicas_and_keeps_templates(fleet: Fleet) -> None:
    ask(fleet, web("app:2"))
    before = parts(fleet)
    scale(fleet, 12)
    after = parts(fleet)
    assert numbers(fleet) == {"own-1": 2, "own-2": 1, "own-3": 1}
    assert sum(part.replicas for part in after.values()) == 12
    assert after["own-3"].version > before["own-3"].version
    scale(fleet, 0)
    assert fleet.state.workloads[WEB].declared.earlier_templates == ()


def test_a_part_in_a_new_cluster_is_made_from_the_newest(fleet: Fleet) -> None:
    ask(fleet, web("app:2"))
    fleet.join(cluster("cloud-1", "cloud"), [node("d", 90_000)])
    scale(fleet, 40)
    assert numbers(fleet)["cloud-1"] == 2
    show(fleet, "own-1")
    tick(fleet)
    assert waiting_for(fleet).startswith("rollout 2 of 4 clusters: waits for cloud-1: not carried out yet")


def test_a_template_that_is_taken_back_is_there_at_once_where_it_never_left(fleet: Fleet) -> None:
    """Seed 5363: nothing restarts there, so nothing has to wait for its turn."""
    ask(fleet, web("app:2"))
    before = parts(fleet)
    ask(fleet, web("app:1"))
    assert numbers(fleet) == {"own-1": 3, "own-2": 3, "own-3": 3}
    assert [name for name, part in parts(fleet).items() if part.version > before[name].version] == ["own-1"]
    assert fleet.state.workloads[WEB].declared.earlier_templates == ()
    assert len(fleet.state.rollouts) == 0


def test_one_that_is_taken_back_with_another_strategy_is_written_there(fleet: Fleet) -> None:
    """The strategy restarts no pod either, and belongs to the object."""
    ask(fleet, web("app:2"))
    before = parts(fleet)
    ask(fleet, web("app:1", strategy={"type": "Recreate"}))
    assert numbers(fleet) == {"own-1": 3, "own-2": 3, "own-3": 3}
    assert all(part.version > before[name].version for name, part in parts(fleet).items())


def test_while_another_cluster_is_to_roll_one_that_never_left_says_what_that_came_from(fleet: Fleet) -> None:
    """So the cluster in the middle of a roll comes first still, whether or not all is well in the others."""
    ask(fleet, web("app:2"))
    show(fleet, "own-1")
    tick(fleet)
    show(fleet, "own-2", updated=1, available=1)
    show(fleet, "own-3", available=2)
    ask(fleet, web("app:1"))
    assert numbers(fleet) == {"own-1": 2, "own-2": 3, "own-3": 1}
    show(fleet, "own-2")
    tick(fleet)
    assert numbers(fleet) == {"own-1": 3, "own-2": 3, "own-3": 3}


def test_a_template_that_is_applied_again_changes_nothing_in_the_middle(fleet: Fleet) -> None:
    ask(fleet, web("app:2"))
    before = parts(fleet)
    ask(fleet, web("app:2"))
    assert parts(fleet) == before


def test_deleting_in_the_middle_removes_all_parts(fleet: Fleet) -> None:
    ask(fleet, web("app:2"))
    keep(fleet, decisions.decide_delete(fleet.state, DeleteRequest("", "web"), fleet.moment()).events)
    assert all(part.removing for part in parts(fleet).values())
    assert len(fleet.state.rollouts) == 0


def set_phase(fleet: Fleet, name: str, phase: str) -> None:
    joined = fleet.state.clusters[name].joined
    assert joined is not None
    fleet.state.apply_event(replace(joined, phase=phase), fleet.now)


def move(fleet: Fleet) -> None:
    """What the planner does of itself about moves and rollouts, each cluster carrying it out, own-1 never ready."""
    for _ in range(5):
        for workload in moves.workloads_due_to_move(fleet.state, fleet.now, UnlimitedAllowance()):
            keep(fleet, moves.next_move_step(fleet.state, workload, fleet.moment(), UnlimitedAllowance()).events)
        for name in parts(fleet):
            if name != "own-1":
                show(fleet, name, updated=None if numbers(fleet).get(name) == 2 else 0)
                fleet.change(name, shown=(facts(parts(fleet)[name].version, parts(fleet)[name].replicas),))
        fleet.state.rollouts.retry_all()
        tick(fleet)


@pytest.mark.parametrize("phase", [PHASE_CORDONED, PHASE_DRAINING, PHASE_LEAVING, PHASE_LOST])
def test_a_template_that_was_never_available_goes_no_further_when_its_cluster_is_out_of_use(
    fleet: Fleet, phase: str
) -> None:
    ask(fleet, web("app:2"))
    show(fleet, "own-1", available=0)
    set_phase(fleet, "own-1", phase)
    if phase == PHASE_LOST:
        fleet.now += 40
        fleet.beat("own-2", "own-3")
    move(fleet)
    assert {name: number for name, number in numbers(fleet).items() if name != "own-1"} == {"own-2": 1, "own-3": 1}
    if phase == PHASE_CORDONED:
        assert waiting_for(fleet) == "rollout 1 of 3 clusters: waits for own-1: 1 of 1 updated, 0 available"
        return
    assert sum(part.replicas_kept for name, part in parts(fleet).items() if name != "own-1") == 6
    stopped = "rollout 0 of 2 clusters: stopped: it left own-1 before it was available there; apply it again to go on"
    assert waiting_for(fleet) == stopped
    scale(fleet, 7)
    move(fleet)
    assert waiting_for(fleet) == stopped
    ask(fleet, web("app:2", 7))
    assert sorted(number for name, number in numbers(fleet).items() if name != "own-1") == [1, 2]
    assert fleet.state.workloads[WEB].declared.rollout_stopped_in == ""


def test_what_a_rollout_declares_bears_no_answer_whose_time_is_over(fleet: Fleet) -> None:
    """Of a step of its own, and of a move that stops it."""
    ask(fleet, web("app:2"))
    remember_old(fleet, WEB)
    for name in ("own-1", "own-2", "own-3"):
        show(fleet, name)
        tick(fleet)
    declared = fleet.state.workloads[WEB].declared
    assert (set(numbers(fleet).values()), declared.earlier_templates, declared.answered) == ({2}, (), ())
    ask(fleet, web("app:3"))
    remember_old(fleet, WEB)
    rolling = next(name for name, number in numbers(fleet).items() if number == 3)
    show(fleet, rolling, available=0)
    set_phase(fleet, rolling, PHASE_DRAINING)
    move(fleet)
    declared = fleet.state.workloads[WEB].declared
    assert (declared.rollout_stopped_in, declared.answered) == (rolling, ())


def test_a_template_that_was_available_goes_on_when_its_cluster_is_drained(fleet: Fleet) -> None:
    keep(fleet, (BrakeSet("cluster/own-2", "a feast", "ann", 1),))
    ask(fleet, web("app:2"))
    show(fleet, "own-1")
    set_phase(fleet, "own-1", PHASE_DRAINING)
    move(fleet)
    assert numbers(fleet) == {"own-2": 1, "own-3": 1}
    keep(fleet, (BrakeReleased("cluster/own-2", "ann", 2),))
    move(fleet)
    assert 2 in numbers(fleet).values()


def test_a_rollout_that_stopped_is_over_with_the_next_template(fleet: Fleet) -> None:
    ask(fleet, web("app:2"))
    show(fleet, "own-1", available=0)
    set_phase(fleet, "own-1", PHASE_DRAINING)
    move(fleet)
    ask(fleet, web("app:3"))
    assert sorted(numbers(fleet).values()) == [1, 3]
    assert fleet.state.workloads[WEB].declared.rollout_stopped_in == ""


def decide(fleet: Fleet, replicas: int) -> None:
    """By the workload's policy."""
    kind, generation = "HorizontalPodAutoscaler", Generation(5, replicas)
    fleet.state.apply_event(ScalePolicyDeclared(*WEB, Generation(5, 1), kind, "web-hpa", b"{}", 1000), fleet.now)
    fleet.state.apply_event(ScaleDecided(*WEB, generation, "web-hpa", kind, replicas, 0, 1000, "cpu"), fleet.now)
    keep(fleet, autoscaling.declare_scale_decision(fleet.state, fleet.state.workloads[WEB], fleet.moment()))


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_scale_in_by_its_policy_does_not_stop_it(fleet: Fleet, replicas: int) -> None:
    """Nobody is there to apply it again: it goes on with the new number, one cluster after the other as ever."""
    ask(fleet, web("app:2"))
    assert numbers(fleet)["own-1"] == 2
    decide(fleet, replicas)
    assert (set(numbers(fleet).values()), fleet.state.workloads[WEB].declared.rollout_stopped_in) == ({1}, "")
    for done in range(1, replicas + 1):
        for name in numbers(fleet):
            show(fleet, name)
        tick(fleet)
        assert sorted(numbers(fleet).values()) == [1] * (replicas - done) + [2] * done
    assert sum(part.replicas_kept for part in parts(fleet).values()) == replicas


def test_what_is_stopped_stays_so_when_its_policy_scales_it(fleet: Fleet) -> None:
    ask(fleet, web("app:2"))
    show(fleet, "own-1", available=0)
    set_phase(fleet, "own-1", PHASE_DRAINING)
    move(fleet)
    decide(fleet, 2)
    assert fleet.state.workloads[WEB].declared.rollout_stopped_in == "own-1"


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_scale_in_that_takes_the_only_one_that_was_given_a_template_stops_it(fleet: Fleet, replicas: int) -> None:
    """Said in the answer already; nothing goes on by itself, once all are carried out neither."""
    ask(fleet, web("app:2"))
    scale(fleet, replicas)
    assert set(numbers(fleet)) == {"own-2", "own-3"} - ({"own-2"} if replicas == 1 else set())
    total = "1 cluster" if replicas == 1 else "2 clusters"
    stopped = f"rollout 0 of {total}: stopped: it left own-1 before it was available there; apply it again to go on"
    assert waiting_for(fleet) == stopped
    for name in numbers(fleet):
        show(fleet, name)
    tick(fleet)
    assert (set(numbers(fleet).values()), waiting_for(fleet)) == ({1}, stopped)
    ask(fleet, web("app:2", replicas))
    assert sorted(numbers(fleet).values()) == [1, 2][-replicas:]


@pytest.mark.parametrize("scope", ["fleet", "cluster/own-2", "workload/default/web"])
def test_frozen_it_waits_and_goes_on_when_released(fleet: Fleet, scope: str) -> None:
    ask(fleet, web("app:2"))
    keep(fleet, (BrakeSet(scope, "a feast", "ann", 1),))
    show(fleet, "own-1")
    tick(fleet)
    assert numbers(fleet) == {"own-1": 2, "own-2": 1, "own-3": 1}
    assert waiting_for(fleet) == f"rollout 1 of 3 clusters: {scope} is frozen by ann: a feast"
    keep(fleet, (BrakeReleased(scope, "ann", 2),))
    tick(fleet)
    assert numbers(fleet) == {"own-1": 2, "own-2": 2, "own-3": 1}


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
    ask(fleet, web("app:2"))
    waits = "rollout 1 of 3 clusters: waits for own-1: not carried out yet"
    assert waiting_for(fleet) == waits
    keep(fleet, (BrakeSet(scope, "a feast", "ann", 1),))
    assert waiting_for(fleet) == f"{waits}; {held} held: {scope} is frozen by ann: a feast"
    assert waiting_for(fleet) in explained(fleet)
    keep(fleet, (BrakeReleased(scope, "ann", 2),))
    assert "frozen" not in waiting_for(fleet)


@pytest.mark.parametrize("scope", ["fleet", "cluster/own-2", "workload/default/web"])
def test_rollout_all_waits_where_it_is_frozen_and_goes_on_when_released(fleet: Fleet, scope: str) -> None:
    keep(fleet, (BrakeSet(scope, "a feast", "ann", 1),))
    before = parts(fleet)
    reply = ask(fleet, web("app:2"), ALL)
    held = {"own-2"} if scope == "cluster/own-2" else set(before)
    assert numbers(fleet) == {name: 1 if name in held else 2 for name in before}
    assert all(parts(fleet)[name] == before[name] for name in held)
    waits = f"rollout {3 - len(held)} of 3 clusters: {scope} is frozen by ann: a feast"
    assert (reply.waiting_for, waiting_for(fleet)) == (waits, waits)
    tick(fleet)
    assert numbers(fleet) == {name: 1 if name in held else 2 for name in before}
    keep(fleet, (BrakeReleased(scope, "ann", 2),))
    tick(fleet)
    assert (numbers(fleet), waiting_for(fleet)) == ({"own-1": 2, "own-2": 2, "own-3": 2}, "")


def test_it_does_not_begin_in_a_cluster_that_is_not_fresh(fleet: Fleet) -> None:
    fleet.now += 40
    ask(fleet, web("app:2"))
    assert numbers(fleet) == {"own-1": 1, "own-2": 1, "own-3": 1}
    assert waiting_for(fleet) == "rollout 0 of 3 clusters: waits for own-1 to be fresh"
    aftermath.update_progress_timers(fleet.state, fleet.now)
    fleet.beat()
    aftermath.update_progress_timers(fleet.state, fleet.now)
    tick(fleet)
    assert numbers(fleet)["own-1"] == 2


def test_more_than_eight_templates_are_refused() -> None:
    """Each rollout is overtaken by the next one a cluster earlier, so that a cluster is left with every template."""
    fleet = Fleet(**{f"own_{n}": [node("a", 4000)] for n in range(9)})
    ask(fleet, web("app:1", 9))
    for index in range(2, 9):
        for name in parts(fleet):
            show(fleet, name)
        ask(fleet, web(f"app:{index}", 9))
        for _ in range(9 - index):
            for name in parts(fleet):
                show(fleet, name)
            tick(fleet)
    assert sorted(set(numbers(fleet).values())) == list(range(1, 9))
    with pytest.raises(RequestError, match="earlier templates: expected fewer than 8"):
        ask(fleet, web("app:9", 9))
    ask(fleet, web("app:9", 9), ALL)


def test_manifests_too_large_for_one_record_are_refused(fleet: Fleet) -> None:
    notes = {"metadata": {"name": "web", "annotations": {"notes": "x" * 500_000}}}
    ask(fleet, web("app:2") | notes)
    show(fleet, "own-1")
    tick(fleet)
    with pytest.raises(RequestError, match="wait for its rollout"):
        ask(fleet, web("app:3") | notes)
    ask(fleet, web("app:3") | notes, ALL)


# ── Room ────────────────────────────────────────────────────────────────────────────────────────────────────────


def rolling_update(surge: Any, unavailable: Any) -> dict[str, Any]:
    return {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}}


def full(replicas: int = 4, cpu: int = 4000, **spec: Any) -> Fleet:
    """One cluster, all its 4 cores taken by 4 replicas that run."""
    fleet = Fleet(own_1=[node("a", cpu)], cloud_1=[node("c", 100_000)])
    ask(fleet, web("app:1", replicas, **spec))
    run(fleet, replicas, cpu)
    return fleet


def run(fleet: Fleet, replicas: int, cpu: int) -> None:
    pods: NodeRow = replace(
        node("a", cpu, used=replicas * 1000), pods=((PodTable("default", (("app", "web"),)), replicas),)
    )
    fleet.change("own-1", [pods], shown=(facts(parts(fleet)["own-1"].version, replicas),))
    show(fleet, "own-1")


def test_a_surge_without_room_waits_when_none_may_be_unavailable() -> None:
    fleet = full(**rolling_update(1, 0))
    ask(fleet, web("app:2", 4, **rolling_update(1, 0)))
    assert numbers(fleet) == {"own-1": 1}
    assert waiting_for(fleet) == "rollout 0 of 1 cluster: waits for room for 1 surge pod in own-1"
    tick(fleet)
    assert fleet.state.rollouts.take_due_workloads(9) == []
    run(fleet, 4, 5000)
    tick(fleet)
    assert numbers(fleet) == {"own-1": 2}


def test_a_template_without_room_that_is_taken_back_waits_for_nothing() -> None:
    fleet = full(**rolling_update(1, 0))
    ask(fleet, web("app:2", 4, **rolling_update(1, 0)))
    ask(fleet, web("app:1", 4, **rolling_update(1, 0)))
    assert numbers(fleet) == {"own-1": 3}
    assert waiting_for(fleet) == ""


def test_a_surge_of_a_smaller_template_needs_its_own_room_alone() -> None:
    """Seed 5020: half a core is free, and half a core is what a new pod asks for."""
    fleet = full(cpu=4500, **rolling_update(1, 0))
    ask(fleet, web("app:2", 4, cpu="500m", **rolling_update(1, 0)))
    assert numbers(fleet)["own-1"] == 2


def bind(fleet: Fleet, name: str, row: str, allocatable: int, cpu: int) -> None:
    """All that a cluster was given runs there, on one node."""
    part = parts(fleet)[name]
    pods = ((PodTable("default", (("app", "web"),)), part.replicas),)
    on_node = replace(node(row, allocatable, used=part.replicas * cpu), pods=pods)
    fleet.change(name, [on_node], shown=(facts(part.version, part.replicas),))
    show(fleet, name)


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
    fleet = Fleet(own_1=[node("a", cpu)])
    ask(fleet, web("app:1", replicas, cpu=f"{before}m", **rolling_update(1, 0)))
    bind(fleet, "own-1", "a", cpu, before)
    ask(fleet, web("app:2", replicas, cpu=after, **rolling_update(1, 0)))
    assert numbers(fleet) == {"own-1": 2 if begins else 1}
    waits = "" if begins else "rollout 0 of 1 cluster: waits for room for 1 surge pod in own-1"
    assert waiting_for(fleet) == waits


def test_who_has_no_room_for_its_surge_keeps_nobody_else_waiting() -> None:
    fleet = Fleet(own_1=[node("a", 1000)], own_2=[node("b", 2000)])
    spec = rolling_update(1, 0)
    ask(fleet, web("app:1", 3, **spec))
    bind(fleet, "own-1", "a", 1000, 1000)
    bind(fleet, "own-2", "b", 3000, 1000)
    ask(fleet, web("app:2", 3, **spec))
    assert numbers(fleet) == {"own-1": 1, "own-2": 2}
    show(fleet, "own-2")
    tick(fleet)
    assert waiting_for(fleet) == "rollout 1 of 2 clusters: waits for room for 1 surge pod in own-1"
    bind(fleet, "own-1", "a", 2000, 1000)
    tick(fleet)
    assert numbers(fleet) == {"own-1": 2, "own-2": 2}


def test_who_waits_for_room_elsewhere_hears_of_it_though_it_is_not_named() -> None:
    """Six clusters that lack room for a surge are before it, and five are named."""
    small = {f"own_{index}": [node(f"n{index}", 1000)] for index in range(6)}
    fleet = Fleet(**small, own_6=[node("n6", 2000)], cloud_1=[node("c", 500)])
    ask(fleet, web("app:1", 8, **rolling_update(1, 0)))
    for index in range(7):
        bind(fleet, f"own-{index}", f"n{index}", 2000, 1000)
    ask(fleet, web("app:2", 8, cpu="1500m", **rolling_update(1, 0)))
    assert waiting_for(fleet).endswith("1 surge pod in own-4 and in 2 more clusters")
    tick(fleet)
    assert fleet.state.rollouts.take_due_workloads(9) == []
    fleet.change("cloud-1", [node("c", 9000)])
    tick(fleet)
    assert numbers(fleet)["own-6"] == 2


def test_what_no_longer_fits_and_has_no_room_elsewhere_is_not_given_up() -> None:
    """Seed 2631: running replicas went for a larger template, and nobody had room for it."""
    fleet = Fleet(own_1=[node("a", 4000)], cloud_1=[node("c", 1000)])
    spec = rolling_update(0, 1)
    ask(fleet, web("app:1", 4, **spec))
    bind(fleet, "own-1", "a", 4000, 1000)
    ask(fleet, web("app:2", 4, cpu="2", **spec))
    assert {name: part.replicas for name, part in parts(fleet).items()} == {"own-1": 4}
    assert waiting_for(fleet) == "rollout 0 of 1 cluster: waits for room for 2 replicas that no longer fit in own-1"
    tick(fleet)
    assert fleet.state.rollouts.take_due_workloads(9) == []
    fleet.change("cloud-1", [node("c", 9000)])
    tick(fleet)
    assert {name: part.replicas_kept for name, part in parts(fleet).items()} == {"own-1": 2, "cloud-1": 2}
    assert parts(fleet)["own-1"].replicas_leaving == 2


def test_who_waits_for_room_elsewhere_hears_of_a_cluster_that_joins() -> None:
    """Seed 41391: it waited for the clusters that there were when it was looked at, and for ever beside the new one."""
    fleet = Fleet(own_1=[node("a", 4000)])
    spec = rolling_update(0, 1)
    ask(fleet, web("app:1", 4, **spec))
    bind(fleet, "own-1", "a", 4000, 1000)
    ask(fleet, web("app:2", 4, cpu="2", **spec))
    tick(fleet)
    assert waiting_for(fleet) == "rollout 0 of 1 cluster: waits for room for 2 replicas that no longer fit in own-1"
    assert fleet.state.rollouts.take_due_workloads(9) == []
    fleet.join(cluster("cloud-1", "cloud"), [node("c", 9000)])
    tick(fleet)
    assert {name: part.replicas_kept for name, part in parts(fleet).items()} == {"own-1": 2, "cloud-1": 2}


def test_of_no_node_there_is_nothing_to_take_away() -> None:
    """Seed 7127: where no node is left no resource is known either, and that ended the planner."""
    rest = nodes_of().without_workload_pods("default", {"app": "web"}, (("cpu", 1000),), 0)
    assert rest is not None
    assert not rest.live_mask.any()


def test_a_larger_template_waits_for_a_cluster_to_show_what_runs_there() -> None:
    """Seed 2868: it began where nothing was known yet, and stood half done."""
    fleet = Fleet(own_1=[node("a", 4000)])
    ask(fleet, web("app:1", 4, **rolling_update(1, 1)))
    ask(fleet, web("app:2", 4, cpu="2", **rolling_update(1, 1)))
    assert waiting_for(fleet) == "rollout 0 of 1 cluster: waits for own-1 to show what runs there"
    show(fleet, "own-1", available=0)
    refused = replace(fleet.state.workloads[WEB].statuses["own-1"], state=STATE_REFUSED, sequence=9)
    fleet.state.apply_event(refused, fleet.now)
    tick(fleet)
    assert numbers(fleet) == {"own-1": 2}


@pytest.mark.parametrize("surge", [5000, "9999%", 2**63, 10**400])
@pytest.mark.parametrize(
    ("cpu", "room"),
    [("1", "4 surge pods"), ("2", "3 replicas that no longer fit"), ("3", "4 replicas that no longer fit")],
)
def test_a_surge_is_never_more_than_the_replicas(surge: int | str, cpu: str, room: str) -> None:
    """A Deployment's controller makes no more new pods than these. The planner ended where no count of them went in."""
    fleet = Fleet(own_1=[node("a", 4000)])
    ask(fleet, web("app:1", 4, **rolling_update(1, 1)))
    bind(fleet, "own-1", "a", 4000, 1000)
    show(fleet, "own-1")
    ask(fleet, web("app:2", 4, cpu=cpu, **rolling_update(surge, 0)))
    for _ in range(3):
        tick(fleet)
    asked = fleet.state.workloads[WEB].declared
    assert read_template(asked.manifest, "default").surge_of(4) == 4
    assert waiting_for(fleet) == f"rollout 0 of 1 cluster: waits for room for {room} in own-1"


def test_with_fewer_replicas_in_the_same_apply_a_roll_needs_room_for_its_surge() -> None:
    """Seed 2553: one of 4 may be unavailable, and none of 3."""
    fleet = full(**rolling_update("25%", "25%"))
    ask(fleet, web("app:2", 3, **rolling_update("25%", "25%")))
    assert (numbers(fleet), parts(fleet)["own-1"].replicas) == ({"own-1": 1}, 3)


def test_all_that_have_no_room_are_named_and_waited_for() -> None:
    fleet = Fleet(own_1=[node("a", 1000)], own_2=[node("b", 2000)])
    ask(fleet, web("app:1", 3, **rolling_update(1, 0)))
    bind(fleet, "own-1", "a", 1000, 1000)
    bind(fleet, "own-2", "b", 2000, 1000)
    ask(fleet, web("app:2", 3, **rolling_update(1, 0)))
    tick(fleet)
    named = "1 surge pod in own-1 and 1 surge pod in own-2"
    assert waiting_for(fleet) == f"rollout 0 of 2 clusters: waits for room for {named}"
    bind(fleet, "own-2", "b", 3000, 1000)
    tick(fleet)
    assert numbers(fleet) == {"own-1": 1, "own-2": 2}


def test_what_comes_on_top_leaves_room_for_the_surge() -> None:
    """Seed 40: two of the new template fit once the old pod is gone, which waits for the second to be available."""
    fleet = Fleet(own_1=[node("a", 2000)], cloud_1=[node("c", 100_000)])
    ask(fleet, web("app:1", 1, cpu="250m"))
    pods = replace(node("a", 2000, used=250), pods=((PodTable("default", (("app", "web"),)), 1),))
    fleet.change("own-1", [pods], shown=(facts(parts(fleet)["own-1"].version, 1),))
    show(fleet, "own-1")
    ask(fleet, web("app:2", 9))
    assert {name: part.replicas for name, part in parts(fleet).items()} == {"own-1": 1, "cloud-1": 8}


GO_ON = {
    "one may be unavailable": rolling_update(1, 1),
    "a share that is one of four": rolling_update("25%", "25%"),
    "no surge at all": rolling_update(0, 1),
    "both are 0 when rounded: the controller takes one away": rolling_update(0, "10%"),
    "they are made anew": {"strategy": {"type": "Recreate"}},
}


@pytest.mark.parametrize("spec", GO_ON.values(), ids=GO_ON)
def test_it_goes_on_without_room_when_the_roll_may(spec: dict[str, Any]) -> None:
    fleet = full(**spec)
    ask(fleet, web("app:2", 4, **spec))
    assert numbers(fleet) == {"own-1": 2}


def test_a_larger_template_cuts_a_cluster_at_its_turn_and_not_before() -> None:
    """own-1 first: 1 of 2 cores fits there beside its surge, 1 goes elsewhere; own-2 keeps all 3 until its turn."""
    fleet = Fleet(own_1=[node("a", 2000)], own_2=[node("b", 3000)], cloud_1=[node("c", 100_000)])
    ask(fleet, web("app:1", 5, **rolling_update(0, 1)))

    def bind(name: str, row: str) -> None:
        part = parts(fleet)[name]
        labels = (("app", "web"),)
        pods = replace(
            node(row, part.replicas * 1000, used=part.replicas * 1000),
            pods=((PodTable("default", labels), part.replicas),),
        )
        fleet.change(name, [pods], shown=(facts(part.version, part.replicas),))
        show(fleet, name)

    bind("own-1", "a")
    bind("own-2", "b")
    ask(fleet, web("app:2", 5, cpu="2", **rolling_update(0, 1)))
    assert {name: part.replicas_kept for name, part in parts(fleet).items()} == {"own-1": 1, "own-2": 3, "cloud-1": 1}
    assert parts(fleet)["own-1"].replicas_leaving == 1  # It goes when its replacement is available.
    assert numbers(fleet) == {"own-1": 2, "own-2": 1, "cloud-1": 2}
    show(fleet, "own-1", updated=0)
    show(fleet, "cloud-1")
    tick(fleet)
    assert numbers(fleet)["own-2"] == 1
    for workload in moves.workloads_due_to_move(fleet.state, fleet.now, UnlimitedAllowance()):
        keep(fleet, moves.next_move_step(fleet.state, workload, fleet.moment(), UnlimitedAllowance()).events)
    assert (parts(fleet)["own-1"].replicas, numbers(fleet)["own-1"]) == (1, 2)
    show(fleet, "own-1")
    tick(fleet)
    assert {name: part.replicas_kept for name, part in parts(fleet).items()} == {"own-1": 1, "own-2": 1, "cloud-1": 3}


def test_what_is_reserved_has_the_shape_that_each_cluster_bears(fleet: Fleet) -> None:
    one, two = (Shape("default", (("cpu", cpu), ("memory", 2**30), ("pods", 1))) for cpu in (1000, 2000))
    ask(fleet, web("app:2", cpu="2"))
    scale(fleet, 9)
    entries = {name: dict(fleet.state.reservation(WEB, name).entries) for name in parts(fleet)}
    assert two in entries["own-1"]
    assert one in entries["own-3"]
    assert two not in entries["own-3"]


# ── The index ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_rollout_is_looked_at_for_a_reason_only() -> None:
    rolling = RolloutList()
    web, api = WEB, ("default", "api")
    rolling.put_workload(web)
    rolling.put_workload(api)
    assert rolling.take_due_workloads(1) == [web]
    assert rolling.take_due_workloads(9) == [api]
    assert rolling.take_due_workloads(9) == []
    rolling.set_awaited_clusters(web, ("own-1", "own-3"))
    rolling.retry_waiting_on("own-2")
    assert rolling.take_due_workloads(9) == []
    rolling.retry_waiting_on("own-1")
    assert rolling.take_due_workloads(9) == [web]
    rolling.retry_waiting_on("own-3")
    assert rolling.take_due_workloads(9) == [web]
    rolling.set_awaited_clusters(web, ())
    rolling.retry_waiting_on("own-1")
    assert rolling.take_due_workloads(9) == []
    rolling.retry_workload(api)
    rolling.drop_workload(api)
    assert rolling.take_due_workloads(9) == []
    rolling.retry_all()
    assert rolling.take_due_workloads(9) == [web]
    assert list(rolling) == [web]


# ── Whatever happens ────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Member:
    """One cluster's object: the part that it carries out, and its pods by template, told apart by its image."""

    part: Part
    template: int
    pods: dict[int, int] = field(default_factory=dict)
    working: bool = True

    def carry_out(self, part: Part, image: int) -> None:
        self.part, self.template = part, image

    def step(self) -> None:
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
    def mixed(self) -> bool:
        return len([count for count in self.pods.values() if count]) > 1

    def says(self, sequence: int) -> WorkloadObserved:
        total, updated = sum(self.pods.values()), self.pods.get(self.template, 0)
        available = total if self.working else total - updated
        return WorkloadObserved(
            *WEB, self.part.cluster, 3, sequence, self.part.version, STATE_PRESENT, "",
            self.part.replicas, total, updated, available, available,
        )  # fmt: skip


class World:
    def __init__(self, clusters: int) -> None:
        self.fleet = Fleet(**{f"own_{n}": [node("a", 20_000)] for n in range(clusters)})
        ask(self.fleet, web("app:1", clusters * 2))
        self.members = {name: Member(part, 1, {1: part.replicas}) for name, part in parts(self.fleet).items()}
        self.images = {1: 1}
        """By template generation."""

    def carry_out(self, name: str) -> None:
        declared = self.fleet.state.workloads[WEB].declared
        part = parts(self.fleet)[name]
        image = self.images[template_number(part, declared)]
        member = self.members.setdefault(name, Member(part, image))
        member.carry_out(part, image)

    def report(self, name: str) -> None:
        self.fleet.sequence += 1
        self.fleet.state.apply_event(self.members[name].says(self.fleet.sequence), self.fleet.now)

    def apply(self, image: int = 0) -> None:
        """image: one that was applied before; a new one by default."""
        image = image or max(self.images.values()) + 1
        self._keeping_running(lambda: ask(self.fleet, web(f"app:{image}", self._replicas())))
        self.images[self.fleet.state.workloads[WEB].declared.template_generation] = image

    def tick(self) -> None:
        self._keeping_running(lambda: tick(self.fleet))

    def _replicas(self) -> int:
        return self.fleet.state.workloads[WEB].declared.replicas

    def _keeping_running(self, act: Any) -> None:
        """Nothing but a turn at the newest template may change a part here."""
        before = parts(self.fleet)
        act()
        newest = self.fleet.state.workloads[WEB].declared.template_generation
        after = parts(self.fleet)
        for name, part in before.items():
            if numbers(self.fleet).get(name) != newest:
                assert after[name] == part

    def advance(self) -> None:
        """A while in which nothing is late."""
        for name in self.members:
            self.carry_out(name)
        for name, member in self.members.items():
            member.step()
            self.check()
            self.report(name)
        self.tick()

    def check(self) -> None:
        assert len([name for name, member in self.members.items() if member.mixed]) <= 1


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
                world.apply()
            case "revert":
                world.apply(random.choice(list(world.images.values())))
            case "scale":
                scale(world.fleet, random.randint(clusters, clusters * 2))
            case "tick":
                world.tick()
            case "carry":
                world.carry_out(name)
            case "step":
                world.members[name].step()
            case "advance":
                world.advance()
            case "report":
                world.report(name)
            case _:
                world.members[name].working = verb == "mend"
        world.check()
    for member in world.members.values():
        member.working = True
    declared = world.fleet.state.workloads[WEB].declared
    if declared.rollout_stopped_in:  # A scale-in took the last replica that had it, and may be followed by an Apply.
        world.apply(world.images[declared.template_generation])
    for _ in range(clusters * 40):
        world.advance()
    assert set(numbers(world.fleet).values()) == {world.fleet.state.workloads[WEB].declared.template_generation}


@pytest.mark.parametrize(
    ("advances", "own_1"),
    [pytest.param(5, 2, id="its turn came, it was not heard of since"), pytest.param(7, 3, id="it was seen mixed")],
)
def test_a_template_that_comes_after_a_scale_in_mid_roll_goes_where_pods_are_mixed(advances: int, own_1: int) -> None:
    """After a scale no cluster is known to be in full: the one that was seen mixed is the one, else they are heard."""
    world = World(4)
    world.apply()
    for _ in range(advances):
        world.advance()
    scale(world.fleet, 4)
    world.apply()
    assert numbers(world.fleet) == {"own-0": 2, "own-1": own_1, "own-2": 1, "own-3": 1}
    for _ in range(160):
        world.advance()
    assert set(numbers(world.fleet).values()) == {3}
