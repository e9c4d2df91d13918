"""Scale policies: which decision is declared, when, and that none is lost or declared twice."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.api import exports
from planner.core.background import aftermath
from planner.core.explaining.explanation import explain_placement
from planner.core.explaining.exporting import exported_events
from planner.core.explaining.simulating import Simulation
from planner.core.knowledge.rules import PlannerRules
from planner.core.knowledge.state import PlannerState
from planner.core.manifests.templates import BadDeclaration
from planner.core.requests import adopting, answers, autoscaling, braking, decisions, disowning, recovering
from spillway.addresses import SCALE_POLICIES, address_of_event
from spillway.api import (
    AdoptRequest,
    ApplyRequest,
    DeleteRequest,
    DisownRequest,
    ExplainRequest,
    FreezeRequest,
    GetRequest,
    PlacementReply,
    RecoverFleetRequest,
    RequestError,
    ScaleRequest,
)
from spillway.events import (
    FOUND,
    STATE_ABSENT,
    STATE_DISOWNED,
    STATE_PRESENT,
    DecisionRecorded,
    Event,
    PlacementDecided,
    WorkloadDeclared,
    WorkloadFound,
)
from spillway.events_scaling import ScaleDecided, ScalePolicyDeclared
from spillway.model import Generation

from .builders import Fleet, deployment, job, manifest_texts, node_row, placement_policy, statefulset
from .member import workload_observed

WEB = ("default", "web")
HPA = "HorizontalPodAutoscaler/web-hpa"


def scale_policy_attached(name: str = "web", sequence: int = 1) -> ScalePolicyDeclared:
    return ScalePolicyDeclared(
        "default", name, Generation(5, sequence), "HorizontalPodAutoscaler", "web-hpa", b"{}", 1000
    )


def scale_decided(replicas: int, sequence: int, name: str = "web", epoch: int = 5) -> ScaleDecided:
    generation = Generation(epoch, sequence)
    kind = "HorizontalPodAutoscaler"
    return ScaleDecided("default", name, generation, "web-hpa", kind, replicas, 0, 1000, "cpu at 80 % of 50 %")


class Scaled:
    """A fleet that is told of policies and decisions, and a log of what its planner said."""

    def __init__(self) -> None:
        self.fleet = Fleet(
            own_1=[node_row("a1"), node_row("a2")], own_2=[node_row("b1")], cloud_1=[node_row("c1", 10_000)]
        )
        self.said: list[Event] = []
        self.told: list[Event] = []

    @property
    def planner_state(self) -> PlannerState:
        return self.fleet.state

    def tell_events(self, *events: Event) -> None:
        for event in events:
            self.told.append(event)
            self.planner_state.apply_event(event, self.fleet.now)

    def detach_scale_policy(self, name: str = "web") -> None:
        self.planner_state.apply_tombstone(SCALE_POLICIES.name, f"default/{name}")
        self.told = [one for one in self.told if not isinstance(one, ScalePolicyDeclared) or one.name != name]

    def apply_own_events(self, events: Any) -> None:
        for event in events:
            self.said.append(event)
            self.planner_state.apply_event(event, self.fleet.now)

    def apply_manifests(self, *manifests: dict[str, Any]) -> PlacementReply:
        done = decisions.decide_apply(
            self.planner_state, ApplyRequest(manifest_texts(*manifests)), self.fleet.next_moment()
        )
        self.apply_own_events(done.events)
        return done.reply

    def scale_workload(self, replicas: int, name: str = "web") -> PlacementReply:
        done = decisions.decide_scale(self.planner_state, ScaleRequest("", name, replicas), self.fleet.next_moment())
        self.apply_own_events(done.events)
        return done.reply

    def delete_web(self) -> None:
        self.apply_own_events(
            decisions.decide_delete(self.planner_state, DeleteRequest("", "web"), self.fleet.next_moment()).events
        )

    def remove_web(self) -> None:
        """Deleted, and all clusters said so."""
        self.delete_web()
        for name, part in self.planner_state.workloads[WEB].parts.items():
            self.planner_state.apply_event(workload_observed(name, WEB, part.version, STATE_ABSENT, 9), self.fleet.now)
        self.settle_leaving_workloads()

    def settle_leaving_workloads(self) -> None:
        for key in list(self.planner_state.leaving):
            self.apply_own_events(aftermath.settle_workload(self.planner_state, key, self.fleet.next_moment()).events)

    def declare_due_scalings(self) -> tuple[Event, ...]:
        """What the planner declares by itself of what policies decided."""
        events: list[Event] = []
        for key in self.planner_state.scalings.next_due_workloads(50):
            found = autoscaling.declare_scale_decision(
                self.planner_state, self.planner_state.workloads[key], self.fleet.next_moment()
            )
            self.apply_own_events(found)
            events.extend(found)
        return tuple(events)

    def replay_log(self, last_first: bool = False) -> None:
        """The state again, from what clusters and policies say, and what this planner and others before it said.

        One topic after the other, in either order of their names; within a topic the log keeps the order.
        """
        state = PlannerState(PlannerRules())
        for event, columns in list(exported_events(self.planner_state, self.fleet.now)):
            if not isinstance(event, ScaleDecided | ScalePolicyDeclared | WorkloadDeclared | PlacementDecided):
                state.apply_event(event, self.fleet.now, -1, columns)
        told = [*self.said, *self.told]
        for event in sorted(told, key=lambda event: address_of_event(event).topic.name, reverse=last_first):
            state.apply_event(event, self.fleet.now)
        self.fleet.state = state

    @property
    def web_declaration(self) -> WorkloadDeclared:
        return self.planner_state.workloads[WEB].declared

    @property
    def declared_replicas(self) -> int:
        return self.web_declaration.replicas

    @property
    def placed_by_cluster(self) -> dict[str, int]:
        return {name: part.replicas for name, part in self.planner_state.workloads[WEB].parts.items() if part.replicas}


@pytest.fixture
def web() -> Scaled:
    """Three replicas under a policy."""
    scaled = Scaled()
    scaled.apply_manifests(deployment(3))
    scaled.tell_events(scale_policy_attached())
    return scaled


def test_a_decision_is_declared_and_placed_and_its_record_names_the_policy(web: Scaled) -> None:
    web.tell_events(scale_decided(7, 1))
    events = web.declare_due_scalings()
    assert (web.declared_replicas, web.placed_by_cluster) == (7, {"own-1": 5, "own-2": 2})
    assert web.web_declaration.scale_generation == Generation(5, 1)
    (record,) = [event for event in events if isinstance(event, DecisionRecorded)]
    assert (record.cause, record.scaled_by, record.replicas) == ("Autoscale", HPA, 7)
    assert web.declare_due_scalings() == ()


@pytest.mark.parametrize(
    ("heard", "replicas"),
    [
        pytest.param([scale_decided(7, 2), scale_decided(5, 1)], 7, id="an older one after a newer one"),
        pytest.param([scale_decided(7, 2), scale_decided(7, 2)], 7, id="the same one twice"),
        pytest.param([scale_decided(7, 9), scale_decided(5, 1, epoch=6)], 5, id="another turn of hpa's"),
        pytest.param(
            [scale_decided(7, 1), scale_decided(5, 2), scale_decided(6, 3)], 6, id="several before the next step"
        ),
        pytest.param([], 3, id="none"),
    ],
)
def test_only_the_newest_is_declared_and_once(web: Scaled, heard: list[Event], replicas: int) -> None:
    web.tell_events(*heard)
    web.declare_due_scalings()
    assert web.declared_replicas == replicas
    web.tell_events(*heard)
    assert web.declare_due_scalings() == ()
    web.replay_log()
    assert (web.declare_due_scalings(), web.declared_replicas) == ((), replicas)


def test_the_number_that_is_declared_already_places_nothing(web: Scaled) -> None:
    web.tell_events(scale_decided(3, 1))
    (only,) = web.declare_due_scalings()
    assert only == web.web_declaration
    assert web.web_declaration.scale_generation == Generation(5, 1)


def test_a_decision_that_was_not_declared_before_a_restart_is_declared_after_it(web: Scaled) -> None:
    web.tell_events(scale_decided(7, 1))
    web.replay_log()
    web.declare_due_scalings()
    assert web.declared_replicas == 7


@pytest.mark.parametrize("last_first", [False, True])
def test_topics_are_read_in_any_order(web: Scaled, last_first: bool) -> None:
    """What is told of a workload that is not known yet waits for it."""
    web.tell_events(scale_decided(7, 1))
    web.declare_due_scalings()
    web.tell_events(scale_decided(5, 2))
    web.replay_log(last_first)
    web.declare_due_scalings()
    assert web.declared_replicas == 5


# ── Requests ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_number_that_none_can_be_is_refused_as_such_before_the_policy_is_looked_at(web: Scaled) -> None:
    web.tell_events(scale_decided(7, 1))
    web.declare_due_scalings()
    with pytest.raises(RequestError, match="replicas: -1: expected an integer, 0 to"):
        web.scale_workload(-1)


def test_a_person_may_scale_from_none_where_a_policy_may_rest_and_no_other_size(web: Scaled) -> None:
    web.tell_events(scale_decided(7, 1))
    web.declare_due_scalings()
    with pytest.raises(RequestError, match=f"{HPA} scales it: change the bounds"):
        web.scale_workload(3)
    web.tell_events(scale_decided(0, 2))
    web.declare_due_scalings()
    assert web.declared_replicas == 0
    assert web.scale_workload(3).replicas == 3
    with pytest.raises(RequestError, match=f"{HPA} scales it"):
        web.scale_workload(4)
    web.replay_log()
    web.declare_due_scalings()
    assert web.declared_replicas == 3
    web.tell_events(scale_decided(5, 3))
    web.declare_due_scalings()
    assert web.declared_replicas == 5


def test_an_apply_with_another_number_keeps_what_was_decided_and_says_so(web: Scaled) -> None:
    web.tell_events(scale_decided(7, 1))
    web.declare_due_scalings()
    reply = web.apply_manifests(deployment(2))
    assert (reply.replicas, reply.scaled_by) == (7, HPA)
    assert reply.warnings == (f"Deployment.spec.replicas: 2 is ignored: {HPA} set 7",)
    assert web.apply_manifests(deployment(None)).warnings == ()


def test_an_apply_declares_a_decision_that_nobody_had_declared_yet(web: Scaled) -> None:
    web.tell_events(scale_decided(7, 1))
    assert web.apply_manifests(deployment(2)).replicas == 7
    assert web.declare_due_scalings() == ()


def test_the_manifest_seeds_until_something_is_decided(web: Scaled) -> None:
    assert web.apply_manifests(deployment(4)).replicas == 4
    assert web.apply_manifests(deployment(5)).warnings == ()
    assert web.declared_replicas == 5


def test_scale_is_refused_and_names_the_policy(web: Scaled) -> None:
    with pytest.raises(RequestError) as refused:
        web.scale_workload(9)
    assert (refused.value.code, HPA in refused.value.text) == ("FAILED_PRECONDITION", True)


def test_without_the_policy_the_last_value_stays_and_is_a_persons_again(web: Scaled) -> None:
    web.tell_events(scale_decided(7, 1))
    web.declare_due_scalings()
    web.detach_scale_policy()
    assert (web.declare_due_scalings(), web.declared_replicas) == ((), 7)
    assert web.scale_workload(4).scaled_by == ""
    web.tell_events(scale_policy_attached(sequence=9))
    assert (web.declare_due_scalings(), web.declared_replicas) == ((), 4)
    web.tell_events(scale_decided(6, 10))
    web.declare_due_scalings()
    assert web.declared_replicas == 6


def test_what_is_decided_with_no_policy_attached_waits_for_one(web: Scaled) -> None:
    """The topics of policies and of decisions are read side by side."""
    web.detach_scale_policy()
    web.tell_events(scale_decided(7, 2))
    assert web.declare_due_scalings() == ()
    web.tell_events(scale_policy_attached(sequence=2))
    web.declare_due_scalings()
    assert web.declared_replicas == 7


def test_a_decision_from_before_the_workload_is_taken_by_the_apply_that_declares_it() -> None:
    early = Scaled()
    early.tell_events(scale_decided(7, 1), scale_policy_attached())
    assert early.declare_due_scalings() == ()
    reply = early.apply_manifests(deployment(2))
    assert (reply.replicas, reply.scaled_by) == (7, HPA)
    assert early.web_declaration.scale_generation == Generation(5, 1)


def test_what_is_deleted_stays_deleted_and_begins_anew_with_what_was_decided_last(web: Scaled) -> None:
    web.tell_events(scale_decided(7, 1))
    web.declare_due_scalings()
    web.delete_web()
    web.tell_events(scale_decided(9, 2))
    assert (web.declare_due_scalings(), web.declared_replicas) == ((), 0)
    web.remove_web()
    assert web.declare_due_scalings() == ()
    assert web.apply_manifests(deployment(2)).replicas == 9
    assert web.declare_due_scalings() == ()


# ── Zero, what fits nowhere, brakes, kinds ──────────────────────────────────────────────────────────────────────────


def test_to_zero_and_back(web: Scaled) -> None:
    web.tell_events(scale_decided(0, 1))
    web.declare_due_scalings()
    assert (web.declared_replicas, web.placed_by_cluster) == (0, {})
    for name, part in web.planner_state.workloads[WEB].parts.items():
        web.planner_state.apply_event(workload_observed(name, WEB, part.version, STATE_ABSENT, 9), web.fleet.now)
    web.settle_leaving_workloads()
    assert web.planner_state.workloads[WEB].parts == {}
    web.replay_log()
    web.tell_events(scale_decided(2, 2))
    web.declare_due_scalings()
    assert (web.declared_replicas, sum(web.placed_by_cluster.values())) == (2, 2)


@pytest.mark.parametrize("unplaceable", ["Wait", "Refuse"])
def test_what_does_not_fit_waits(unplaceable: str) -> None:
    web = Scaled()
    web.apply_manifests(deployment(3), placement_policy(unplaceable=unplaceable))
    web.tell_events(scale_policy_attached(), scale_decided(40, 1))
    web.declare_due_scalings()
    workload = web.planner_state.workloads[WEB]
    assert (web.declared_replicas, sum(web.placed_by_cluster.values()), workload.unplaced) == (40, 22, 18)


@pytest.mark.parametrize("scope", ["fleet", "cluster/own-1", "workload/default/web"])
def test_no_brake_holds_what_a_policy_decides(web: Scaled, scope: str) -> None:
    events, _ = braking.decide_freeze(web.planner_state, FreezeRequest(scope, "audit"), "ann", web.fleet.next_moment())
    web.apply_own_events(events)
    web.tell_events(scale_decided(6, 1))
    web.declare_due_scalings()
    assert sum(web.placed_by_cluster.values()) == 6
    web.tell_events(scale_decided(1, 2))
    web.declare_due_scalings()
    assert sum(web.placed_by_cluster.values()) == 1


OWN_FIRST = placement_policy(
    tiers=[{"name": "own", "clusters": {"tiers": ["own"]}}, {"name": "rest", "clusters": {"tiers": ["cloud"]}}]
)


@pytest.mark.parametrize(
    ("replicas", "kept"),
    [
        pytest.param(12, {"own-1": 8, "own-2": 3, "cloud-1": 1}, id="more"),
        pytest.param(8, {"own-1": 7, "own-2": 1}, id="fewer"),
    ],
)
def test_a_decision_does_not_move_what_the_policy_came_to_rule_out(replicas: int, kept: dict[str, int]) -> None:
    """That is for the budget and a confirmation as before: the decision gives or takes the difference alone."""
    web = Scaled()
    web.apply_manifests(deployment(10), OWN_FIRST)
    web.tell_events(scale_policy_attached())
    assert web.placed_by_cluster == {"own-1": 7, "own-2": 3}
    joined = web.planner_state.clusters["own-2"].joined
    assert joined is not None
    web.planner_state.apply_event(replace(joined, tier="edge"), web.fleet.now)
    web.tell_events(scale_decided(replicas, 1))
    web.declare_due_scalings()
    parts = web.planner_state.workloads[WEB].parts
    assert {name: part.replicas_kept for name, part in parts.items()} == kept
    assert sum(part.replicas_leaving for part in parts.values()) == 0


def test_a_statefulset_grows_where_it_is() -> None:
    web = Scaled()
    web.apply_manifests(statefulset(1, "web"))
    (where,) = web.placed_by_cluster
    web.tell_events(scale_policy_attached(), scale_decided(3, 1))
    web.declare_due_scalings()
    assert web.placed_by_cluster == {where: 3}
    web.tell_events(scale_decided(0, 2))
    web.declare_due_scalings()
    assert (web.placed_by_cluster, list(web.planner_state.workloads[WEB].parts)) == ({}, [where])


def test_a_job_is_never_scaled() -> None:
    web = Scaled()
    web.tell_events(scale_policy_attached(), scale_decided(5, 1))
    reply = web.apply_manifests(job(2, "web"))
    assert (reply.replicas, reply.scaled_by, reply.warnings) == (2, "", ())
    web.tell_events(scale_decided(6, 2))
    assert web.declare_due_scalings() == ()


@pytest.mark.parametrize("replicas", [-1, 100_001])
def test_a_number_that_nobody_may_ask_for_is_set_aside(web: Scaled, replicas: int) -> None:
    with pytest.raises(BadDeclaration):
        web.tell_events(scale_decided(replicas, 1))
    assert (web.declare_due_scalings(), web.declared_replicas) == ((), 3)


# ── Changing hands ──────────────────────────────────────────────────────────────────────────────────────────────────


FOUND_BY_HAND = WorkloadFound(
    Generation(9, 1),
    "default",
    "web",
    "own-1",
    FOUND,
    "",
    "uid",
    manifest_texts(deployment(2))[0].encode(),
    2,
    Generation(0, 0),
    (),
    1,
)


def adopt_web(web: Scaled) -> PlacementReply:
    request = AdoptRequest("default", "web", "deployment", ("own-1",))
    done = adopting.decide_adoption(web.planner_state, request, {"own-1": FOUND_BY_HAND}, web.fleet.next_moment())
    web.apply_own_events(done.events)
    return done.reply


def finish_adoption(web: Scaled) -> None:
    part = web.planner_state.workloads[WEB].parts["own-1"]
    shown = workload_observed("own-1", WEB, part.version, STATE_PRESENT, 9)
    web.planner_state.apply_event(replace(shown, spec_replicas=2), web.fleet.now)
    web.settle_leaving_workloads()


STILL_SCALED = f"scaled by {HPA}: what it decides from now on counts, nothing that it decided before"


def test_what_is_adopted_is_scaled_by_what_is_decided_from_then_on_once_it_is_taken_over() -> None:
    web = Scaled()
    web.tell_events(scale_policy_attached(), scale_decided(6, 1))
    assert adopt_web(web).warnings == (STILL_SCALED,)
    assert (web.declare_due_scalings(), web.declared_replicas) == ((), 2)
    finish_adoption(web)
    assert (web.declare_due_scalings(), web.declared_replicas) == ((), 2)
    web.replay_log()
    assert (web.declare_due_scalings(), web.declared_replicas) == ((), 2)
    assert notes_of_explanation(web) == (f"scaled by {HPA}, which has not decided on 2",)
    assert web.apply_manifests(deployment(4)).replicas == 2
    web.tell_events(scale_decided(7, 2))
    web.declare_due_scalings()
    assert web.declared_replicas == 7


def test_what_is_decided_while_it_is_being_adopted_is_declared_once_it_is_taken_over() -> None:
    web = Scaled()
    web.tell_events(scale_policy_attached(), scale_decided(6, 1))
    adopt_web(web)
    web.tell_events(scale_decided(7, 2))
    assert (web.declare_due_scalings(), web.declared_replicas) == ((), 2)
    finish_adoption(web)
    web.declare_due_scalings()
    assert web.declared_replicas == 7


def test_an_old_decision_does_not_scale_what_ran_by_hand_after_disowning(web: Scaled) -> None:
    web.tell_events(scale_decided(9, 1))
    web.declare_due_scalings()
    web.apply_own_events(
        disowning.decide_disown(web.planner_state, DisownRequest("", "web"), web.fleet.next_moment()).events
    )
    for name, part in web.planner_state.workloads[WEB].parts.items():
        web.planner_state.apply_event(workload_observed(name, WEB, part.version, STATE_DISOWNED, 9), web.fleet.now)
    web.settle_leaving_workloads()
    assert adopt_web(web).warnings == (STILL_SCALED,)
    finish_adoption(web)
    assert (web.declare_due_scalings(), web.declared_replicas, web.placed_by_cluster) == ((), 2, {"own-1": 2})


def test_an_old_decision_does_not_scale_what_is_recovered() -> None:
    web = Scaled()
    web.tell_events(scale_policy_attached(), scale_decided(6, 1))
    end = replace(FOUND_BY_HAND, namespace="", name="", uid="", manifest=b"", replicas=0)
    request = RecoverFleetRequest("f0", confirmed=True)
    found = [replace(FOUND_BY_HAND, version=Generation(90, 1))]
    done = recovering.decide_recovery(web.planner_state, request, found, {"own-1": end}, web.fleet.next_moment(), 100)
    assert [one.message for one in done.reply.workloads] == [STILL_SCALED]
    web.apply_own_events(done.events)
    finish_adoption(web)
    assert (web.declare_due_scalings(), web.declared_replicas) == ((), 2)


def test_what_is_disowned_is_not_scaled(web: Scaled) -> None:
    web.apply_own_events(
        disowning.decide_disown(web.planner_state, DisownRequest("", "web"), web.fleet.next_moment()).events
    )
    web.tell_events(scale_decided(7, 1))
    assert (web.declare_due_scalings(), web.declared_replicas) == ((), 3)


# ── What is shown ───────────────────────────────────────────────────────────────────────────────────────────────────


def notes_of_explanation(web: Scaled) -> tuple[str, ...]:
    steps = explain_placement(web.planner_state, ExplainRequest("", "web"), web.fleet.next_moment(), None)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return tuple(done.value.notes)


def test_who_scales_it_is_shown(web: Scaled) -> None:
    assert answers.get_workload(web.planner_state, GetRequest("", "web")).placement.scaled_by == HPA
    assert notes_of_explanation(web) == (f"scaled by {HPA}, which has decided nothing that is declared yet",)
    web.tell_events(scale_decided(7, 1))
    web.declare_due_scalings()
    assert notes_of_explanation(web) == (f"scaled by {HPA}: 7: cpu at 80 % of 50 %",)
    web.detach_scale_policy()
    assert notes_of_explanation(web) == ()


def test_a_simulation_knows_who_scales_what(web: Scaled) -> None:
    web.tell_events(scale_decided(7, 1))
    web.declare_due_scalings()
    web.tell_events(scale_decided(8, 2))
    simulation = Simulation(
        exports.read_state(list(exports.export_state(web.planner_state, web.fleet.now, 12, "f"))), exports.NOW, 12
    )
    assert simulation.run_until_quiet()
    answer = simulation.answer_request("default/web", ApplyRequest(manifest_texts(deployment(1))))
    assert answer.placement is not None
    assert (answer.placement.replicas, answer.placement.scaled_by) == (8, HPA)


# ── Always ──────────────────────────────────────────────────────────────────────────────────────────────────────────

ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("decide"), st.integers(0, 9)),
        st.tuples(st.just("late"), st.integers(0, 20)),
        st.tuples(st.sampled_from(("apply", "scale")), st.integers(0, 9)),
        st.tuples(st.sampled_from(("step", "restart", "attach", "detach", "gone")), st.just(0)),
        st.tuples(st.just("backwards"), st.just(0)),
    ),
    max_size=25,
)


class Expected:
    """How many replicas there are to be, from what was asked and decided alone."""

    def __init__(self) -> None:
        self.replicas: int | None = None
        self.attached = False
        self.newest: ScaleDecided | None = None
        self.last = Generation(-1, 0)

    def use_newest_decision(self) -> None:
        if self.replicas is not None and self.attached and self.newest and self.newest.generation > self.last:
            self.replicas, self.last = self.newest.replicas, self.newest.generation

    def apply_replicas(self, replicas: int) -> None:
        if self.replicas is None and self.attached and self.newest is not None:
            self.replicas, self.last = self.newest.replicas, self.newest.generation
        elif not (self.attached and self.replicas is not None and self.last.epoch >= 0):
            self.replicas = replicas
        self.use_newest_decision()


@given(ACTIONS)
def test_the_replicas_are_those_of_the_newest_decision_while_a_policy_is_attached(
    actions: list[tuple[str, int]],
) -> None:
    """Duplicates, late ones, restarts in any order of topics, requests in between: nothing is lost or repeated."""
    web, expected, sent = Scaled(), Expected(), list[ScaleDecided]()
    for verb, number in actions:
        if verb == "decide":
            sent.append(scale_decided(number, len(sent) + 1))
            web.tell_events(sent[-1])
            expected.newest = sent[-1]
        elif verb == "late" and sent:
            web.tell_events(sent[number % len(sent)])
        elif verb == "apply":
            web.apply_manifests(deployment(number))
            expected.apply_replicas(number)
        elif verb == "scale":
            resumes = expected.replicas == 0 and number > 0
            refused = expected.replicas is None or (expected.attached and not resumes)
            try:
                web.scale_workload(number)
                assert not refused
                expected.replicas = number
            except RequestError:
                assert refused
        elif verb == "attach":
            web.tell_events(scale_policy_attached(sequence=1 + len(web.told)))
            expected.attached = True
        elif verb == "detach":
            web.detach_scale_policy()
            expected.attached = False
        elif verb == "gone" and expected.replicas is not None:
            web.remove_web()
            expected.replicas = None
        elif verb in ("restart", "backwards"):
            web.replay_log(verb == "backwards")
        if verb in ("step", "restart", "backwards", "apply", "scale", "gone"):
            web.declare_due_scalings()
            expected.use_newest_decision()
            if expected.replicas is not None:
                assert web.declared_replicas == expected.replicas
                assert (
                    sum(web.placed_by_cluster.values()) + web.planner_state.workloads[WEB].unplaced == expected.replicas
                )
        assert not expected.attached or web.planner_state.scalings.policies
