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

from .builders import Fleet, deployment, job, node, policy, statefulset, texts
from .member import observed

WEB = ("default", "web")
HPA = "HorizontalPodAutoscaler/web-hpa"


def attached(name: str = "web", sequence: int = 1) -> ScalePolicyDeclared:
    return ScalePolicyDeclared(
        "default", name, Generation(5, sequence), "HorizontalPodAutoscaler", "web-hpa", b"{}", 1000
    )


def decided(replicas: int, sequence: int, name: str = "web", epoch: int = 5) -> ScaleDecided:
    generation = Generation(epoch, sequence)
    kind = "HorizontalPodAutoscaler"
    return ScaleDecided("default", name, generation, "web-hpa", kind, replicas, 0, 1000, "cpu at 80 % of 50 %")


class Scaled:
    """A fleet that is told of policies and decisions, and a log of what its planner said."""

    def __init__(self) -> None:
        self.fleet = Fleet(own_1=[node("a1"), node("a2")], own_2=[node("b1")], cloud_1=[node("c1", 10_000)])
        self.said: list[Event] = []
        self.told: list[Event] = []

    @property
    def state(self) -> PlannerState:
        return self.fleet.state

    def hear(self, *events: Event) -> None:
        for event in events:
            self.told.append(event)
            self.state.apply_event(event, self.fleet.now)

    def detach(self, name: str = "web") -> None:
        self.state.apply_tombstone(SCALE_POLICIES.name, f"default/{name}")
        self.told = [one for one in self.told if not isinstance(one, ScalePolicyDeclared) or one.name != name]

    def keep(self, events: Any) -> None:
        for event in events:
            self.said.append(event)
            self.state.apply_event(event, self.fleet.now)

    def apply(self, *manifests: dict[str, Any]) -> PlacementReply:
        done = decisions.decide_apply(self.state, ApplyRequest(texts(*manifests)), self.fleet.moment())
        self.keep(done.events)
        return done.reply

    def scale(self, replicas: int, name: str = "web") -> PlacementReply:
        done = decisions.decide_scale(self.state, ScaleRequest("", name, replicas), self.fleet.moment())
        self.keep(done.events)
        return done.reply

    def delete(self) -> None:
        self.keep(decisions.decide_delete(self.state, DeleteRequest("", "web"), self.fleet.moment()).events)

    def gone(self) -> None:
        """Deleted, and all clusters said so."""
        self.delete()
        for name, part in self.state.workloads[WEB].parts.items():
            self.state.apply_event(observed(name, WEB, part.version, STATE_ABSENT, 9), self.fleet.now)
        self.settle()

    def settle(self) -> None:
        for key in list(self.state.leaving):
            self.keep(aftermath.settle_workload(self.state, key, self.fleet.moment()).events)

    def step(self) -> tuple[Event, ...]:
        """What the planner declares by itself of what policies decided."""
        events: list[Event] = []
        for key in self.state.scalings.next_due(50):
            found = autoscaling.declare_scale_decision(self.state, self.state.workloads[key], self.fleet.moment())
            self.keep(found)
            events.extend(found)
        return tuple(events)

    def restart(self, last_first: bool = False) -> None:
        """The state again, from what clusters and policies say, and what this planner and others before it said.

        One topic after the other, in either order of their names; within a topic the log keeps the order.
        """
        state = PlannerState(PlannerRules())
        for event, columns in list(exported_events(self.state, self.fleet.now)):
            if not isinstance(event, ScaleDecided | ScalePolicyDeclared | WorkloadDeclared | PlacementDecided):
                state.apply_event(event, self.fleet.now, -1, columns)
        told = [*self.said, *self.told]
        for event in sorted(told, key=lambda event: address_of_event(event).topic.name, reverse=last_first):
            state.apply_event(event, self.fleet.now)
        self.fleet.state = state

    @property
    def declared(self) -> WorkloadDeclared:
        return self.state.workloads[WEB].declared

    @property
    def replicas(self) -> int:
        return self.declared.replicas

    @property
    def placed(self) -> dict[str, int]:
        return {name: part.replicas for name, part in self.state.workloads[WEB].parts.items() if part.replicas}


@pytest.fixture
def web() -> Scaled:
    """Three replicas under a policy."""
    scaled = Scaled()
    scaled.apply(deployment(3))
    scaled.hear(attached())
    return scaled


def test_a_decision_is_declared_and_placed_and_its_record_names_the_policy(web: Scaled) -> None:
    web.hear(decided(7, 1))
    events = web.step()
    assert (web.replicas, web.placed) == (7, {"own-1": 5, "own-2": 2})
    assert web.declared.scale_generation == Generation(5, 1)
    (record,) = [event for event in events if isinstance(event, DecisionRecorded)]
    assert (record.cause, record.scaled_by, record.replicas) == ("Autoscale", HPA, 7)
    assert web.step() == ()


@pytest.mark.parametrize(
    ("heard", "replicas"),
    [
        pytest.param([decided(7, 2), decided(5, 1)], 7, id="an older one after a newer one"),
        pytest.param([decided(7, 2), decided(7, 2)], 7, id="the same one twice"),
        pytest.param([decided(7, 9), decided(5, 1, epoch=6)], 5, id="another turn of hpa's"),
        pytest.param([decided(7, 1), decided(5, 2), decided(6, 3)], 6, id="several before the next step"),
        pytest.param([], 3, id="none"),
    ],
)
def test_only_the_newest_is_declared_and_once(web: Scaled, heard: list[Event], replicas: int) -> None:
    web.hear(*heard)
    web.step()
    assert web.replicas == replicas
    web.hear(*heard)
    assert web.step() == ()
    web.restart()
    assert (web.step(), web.replicas) == ((), replicas)


def test_the_number_that_is_declared_already_places_nothing(web: Scaled) -> None:
    web.hear(decided(3, 1))
    (only,) = web.step()
    assert only == web.declared
    assert web.declared.scale_generation == Generation(5, 1)


def test_a_decision_that_was_not_declared_before_a_restart_is_declared_after_it(web: Scaled) -> None:
    web.hear(decided(7, 1))
    web.restart()
    web.step()
    assert web.replicas == 7


@pytest.mark.parametrize("last_first", [False, True])
def test_topics_are_read_in_any_order(web: Scaled, last_first: bool) -> None:
    """What is told of a workload that is not known yet waits for it."""
    web.hear(decided(7, 1))
    web.step()
    web.hear(decided(5, 2))
    web.restart(last_first)
    web.step()
    assert web.replicas == 5


# ── Requests ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_number_that_none_can_be_is_refused_as_such_before_the_policy_is_looked_at(web: Scaled) -> None:
    web.hear(decided(7, 1))
    web.step()
    with pytest.raises(RequestError, match="replicas: -1: expected an integer, 0 to"):
        web.scale(-1)


def test_a_person_may_scale_from_none_where_a_policy_may_rest_and_no_other_size(web: Scaled) -> None:
    web.hear(decided(7, 1))
    web.step()
    with pytest.raises(RequestError, match=f"{HPA} scales it: change the bounds"):
        web.scale(3)
    web.hear(decided(0, 2))
    web.step()
    assert web.replicas == 0
    assert web.scale(3).replicas == 3
    with pytest.raises(RequestError, match=f"{HPA} scales it"):
        web.scale(4)
    web.restart()
    web.step()
    assert web.replicas == 3
    web.hear(decided(5, 3))
    web.step()
    assert web.replicas == 5


def test_an_apply_with_another_number_keeps_what_was_decided_and_says_so(web: Scaled) -> None:
    web.hear(decided(7, 1))
    web.step()
    reply = web.apply(deployment(2))
    assert (reply.replicas, reply.scaled_by) == (7, HPA)
    assert reply.warnings == (f"Deployment.spec.replicas: 2 is ignored: {HPA} set 7",)
    assert web.apply(deployment(None)).warnings == ()


def test_an_apply_declares_a_decision_that_nobody_had_declared_yet(web: Scaled) -> None:
    web.hear(decided(7, 1))
    assert web.apply(deployment(2)).replicas == 7
    assert web.step() == ()


def test_the_manifest_seeds_until_something_is_decided(web: Scaled) -> None:
    assert web.apply(deployment(4)).replicas == 4
    assert web.apply(deployment(5)).warnings == ()
    assert web.replicas == 5


def test_scale_is_refused_and_names_the_policy(web: Scaled) -> None:
    with pytest.raises(RequestError) as refused:
        web.scale(9)
    assert (refused.value.code, HPA in refused.value.text) == ("FAILED_PRECONDITION", True)


def test_without_the_policy_the_last_value_stays_and_is_a_persons_again(web: Scaled) -> None:
    web.hear(decided(7, 1))
    web.step()
    web.detach()
    assert (web.step(), web.replicas) == ((), 7)
    assert web.scale(4).scaled_by == ""
    web.hear(attached(sequence=9))
    assert (web.step(), web.replicas) == ((), 4)
    web.hear(decided(6, 10))
    web.step()
    assert web.replicas == 6


def test_what_is_decided_with_no_policy_attached_waits_for_one(web: Scaled) -> None:
    """The topics of policies and of decisions are read side by side."""
    web.detach()
    web.hear(decided(7, 2))
    assert web.step() == ()
    web.hear(attached(sequence=2))
    web.step()
    assert web.replicas == 7


def test_a_decision_from_before_the_workload_is_taken_by_the_apply_that_declares_it() -> None:
    early = Scaled()
    early.hear(decided(7, 1), attached())
    assert early.step() == ()
    reply = early.apply(deployment(2))
    assert (reply.replicas, reply.scaled_by) == (7, HPA)
    assert early.declared.scale_generation == Generation(5, 1)


def test_what_is_deleted_stays_deleted_and_begins_anew_with_what_was_decided_last(web: Scaled) -> None:
    web.hear(decided(7, 1))
    web.step()
    web.delete()
    web.hear(decided(9, 2))
    assert (web.step(), web.replicas) == ((), 0)
    web.gone()
    assert web.step() == ()
    assert web.apply(deployment(2)).replicas == 9
    assert web.step() == ()


# ── Zero, what fits nowhere, brakes, kinds ──────────────────────────────────────────────────────────────────────────


def test_to_zero_and_back(web: Scaled) -> None:
    web.hear(decided(0, 1))
    web.step()
    assert (web.replicas, web.placed) == (0, {})
    for name, part in web.state.workloads[WEB].parts.items():
        web.state.apply_event(observed(name, WEB, part.version, STATE_ABSENT, 9), web.fleet.now)
    web.settle()
    assert web.state.workloads[WEB].parts == {}
    web.restart()
    web.hear(decided(2, 2))
    web.step()
    assert (web.replicas, sum(web.placed.values())) == (2, 2)


@pytest.mark.parametrize("unplaceable", ["Wait", "Refuse"])
def test_what_does_not_fit_waits(unplaceable: str) -> None:
    web = Scaled()
    web.apply(deployment(3), policy(unplaceable=unplaceable))
    web.hear(attached(), decided(40, 1))
    web.step()
    workload = web.state.workloads[WEB]
    assert (web.replicas, sum(web.placed.values()), workload.unplaced) == (40, 22, 18)


@pytest.mark.parametrize("scope", ["fleet", "cluster/own-1", "workload/default/web"])
def test_no_brake_holds_what_a_policy_decides(web: Scaled, scope: str) -> None:
    events, _ = braking.decide_freeze(web.state, FreezeRequest(scope, "audit"), "ann", web.fleet.moment())
    web.keep(events)
    web.hear(decided(6, 1))
    web.step()
    assert sum(web.placed.values()) == 6
    web.hear(decided(1, 2))
    web.step()
    assert sum(web.placed.values()) == 1


OWN_FIRST = policy(
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
    web.apply(deployment(10), OWN_FIRST)
    web.hear(attached())
    assert web.placed == {"own-1": 7, "own-2": 3}
    joined = web.state.clusters["own-2"].joined
    assert joined is not None
    web.state.apply_event(replace(joined, tier="edge"), web.fleet.now)
    web.hear(decided(replicas, 1))
    web.step()
    parts = web.state.workloads[WEB].parts
    assert {name: part.replicas_kept for name, part in parts.items()} == kept
    assert sum(part.replicas_leaving for part in parts.values()) == 0


def test_a_statefulset_grows_where_it_is() -> None:
    web = Scaled()
    web.apply(statefulset(1, "web"))
    (where,) = web.placed
    web.hear(attached(), decided(3, 1))
    web.step()
    assert web.placed == {where: 3}
    web.hear(decided(0, 2))
    web.step()
    assert (web.placed, list(web.state.workloads[WEB].parts)) == ({}, [where])


def test_a_job_is_never_scaled() -> None:
    web = Scaled()
    web.hear(attached(), decided(5, 1))
    reply = web.apply(job(2, "web"))
    assert (reply.replicas, reply.scaled_by, reply.warnings) == (2, "", ())
    web.hear(decided(6, 2))
    assert web.step() == ()


@pytest.mark.parametrize("replicas", [-1, 100_001])
def test_a_number_that_nobody_may_ask_for_is_set_aside(web: Scaled, replicas: int) -> None:
    with pytest.raises(BadDeclaration):
        web.hear(decided(replicas, 1))
    assert (web.step(), web.replicas) == ((), 3)


# ── Changing hands ──────────────────────────────────────────────────────────────────────────────────────────────────


FOUND_BY_HAND = WorkloadFound(
    Generation(9, 1),
    "default",
    "web",
    "own-1",
    FOUND,
    "",
    "uid",
    texts(deployment(2))[0].encode(),
    2,
    Generation(0, 0),
    (),
    1,
)


def adopted(web: Scaled) -> PlacementReply:
    request = AdoptRequest("default", "web", "deployment", ("own-1",))
    done = adopting.decide_adoption(web.state, request, {"own-1": FOUND_BY_HAND}, web.fleet.moment())
    web.keep(done.events)
    return done.reply


def taken_over(web: Scaled) -> None:
    part = web.state.workloads[WEB].parts["own-1"]
    shown = observed("own-1", WEB, part.version, STATE_PRESENT, 9)
    web.state.apply_event(replace(shown, spec_replicas=2), web.fleet.now)
    web.settle()


STILL_SCALED = f"scaled by {HPA}: what it decides from now on counts, nothing that it decided before"


def test_what_is_adopted_is_scaled_by_what_is_decided_from_then_on_once_it_is_taken_over() -> None:
    web = Scaled()
    web.hear(attached(), decided(6, 1))
    assert adopted(web).warnings == (STILL_SCALED,)
    assert (web.step(), web.replicas) == ((), 2)
    taken_over(web)
    assert (web.step(), web.replicas) == ((), 2)
    web.restart()
    assert (web.step(), web.replicas) == ((), 2)
    assert notes(web) == (f"scaled by {HPA}, which has not decided on 2",)
    assert web.apply(deployment(4)).replicas == 2
    web.hear(decided(7, 2))
    web.step()
    assert web.replicas == 7


def test_what_is_decided_while_it_is_being_adopted_is_declared_once_it_is_taken_over() -> None:
    web = Scaled()
    web.hear(attached(), decided(6, 1))
    adopted(web)
    web.hear(decided(7, 2))
    assert (web.step(), web.replicas) == ((), 2)
    taken_over(web)
    web.step()
    assert web.replicas == 7


def test_an_old_decision_does_not_scale_what_ran_by_hand_after_disowning(web: Scaled) -> None:
    web.hear(decided(9, 1))
    web.step()
    web.keep(disowning.decide_disown(web.state, DisownRequest("", "web"), web.fleet.moment()).events)
    for name, part in web.state.workloads[WEB].parts.items():
        web.state.apply_event(observed(name, WEB, part.version, STATE_DISOWNED, 9), web.fleet.now)
    web.settle()
    assert adopted(web).warnings == (STILL_SCALED,)
    taken_over(web)
    assert (web.step(), web.replicas, web.placed) == ((), 2, {"own-1": 2})


def test_an_old_decision_does_not_scale_what_is_recovered() -> None:
    web = Scaled()
    web.hear(attached(), decided(6, 1))
    end = replace(FOUND_BY_HAND, namespace="", name="", uid="", manifest=b"", replicas=0)
    request = RecoverFleetRequest("f0", confirmed=True)
    found = [replace(FOUND_BY_HAND, version=Generation(90, 1))]
    done = recovering.decide_recovery(web.state, request, found, {"own-1": end}, web.fleet.moment(), 100)
    assert [one.message for one in done.reply.workloads] == [STILL_SCALED]
    web.keep(done.events)
    taken_over(web)
    assert (web.step(), web.replicas) == ((), 2)


def test_what_is_disowned_is_not_scaled(web: Scaled) -> None:
    web.keep(disowning.decide_disown(web.state, DisownRequest("", "web"), web.fleet.moment()).events)
    web.hear(decided(7, 1))
    assert (web.step(), web.replicas) == ((), 3)


# ── What is shown ───────────────────────────────────────────────────────────────────────────────────────────────────


def notes(web: Scaled) -> tuple[str, ...]:
    steps = explain_placement(web.state, ExplainRequest("", "web"), web.fleet.moment(), None)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return tuple(done.value.notes)


def test_who_scales_it_is_shown(web: Scaled) -> None:
    assert answers.get_workload(web.state, GetRequest("", "web")).placement.scaled_by == HPA
    assert notes(web) == (f"scaled by {HPA}, which has decided nothing that is declared yet",)
    web.hear(decided(7, 1))
    web.step()
    assert notes(web) == (f"scaled by {HPA}: 7: cpu at 80 % of 50 %",)
    web.detach()
    assert notes(web) == ()


def test_a_simulation_knows_who_scales_what(web: Scaled) -> None:
    web.hear(decided(7, 1))
    web.step()
    web.hear(decided(8, 2))
    simulation = Simulation(
        exports.read_state(list(exports.export_state(web.state, web.fleet.now, 12, "f"))), exports.NOW, 12
    )
    assert simulation.run_until_quiet()
    answer = simulation.answer_request("default/web", ApplyRequest(texts(deployment(1))))
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

    def settle(self) -> None:
        if self.replicas is not None and self.attached and self.newest and self.newest.generation > self.last:
            self.replicas, self.last = self.newest.replicas, self.newest.generation

    def apply(self, replicas: int) -> None:
        if self.replicas is None and self.attached and self.newest is not None:
            self.replicas, self.last = self.newest.replicas, self.newest.generation
        elif not (self.attached and self.replicas is not None and self.last.epoch >= 0):
            self.replicas = replicas
        self.settle()


@given(ACTIONS)
def test_the_replicas_are_those_of_the_newest_decision_while_a_policy_is_attached(
    actions: list[tuple[str, int]],
) -> None:
    """Duplicates, late ones, restarts in any order of topics, requests in between: nothing is lost or repeated."""
    web, expected, sent = Scaled(), Expected(), list[ScaleDecided]()
    for verb, number in actions:
        if verb == "decide":
            sent.append(decided(number, len(sent) + 1))
            web.hear(sent[-1])
            expected.newest = sent[-1]
        elif verb == "late" and sent:
            web.hear(sent[number % len(sent)])
        elif verb == "apply":
            web.apply(deployment(number))
            expected.apply(number)
        elif verb == "scale":
            resumes = expected.replicas == 0 and number > 0
            refused = expected.replicas is None or (expected.attached and not resumes)
            try:
                web.scale(number)
                assert not refused
                expected.replicas = number
            except RequestError:
                assert refused
        elif verb == "attach":
            web.hear(attached(sequence=1 + len(web.told)))
            expected.attached = True
        elif verb == "detach":
            web.detach()
            expected.attached = False
        elif verb == "gone" and expected.replicas is not None:
            web.gone()
            expected.replicas = None
        elif verb in ("restart", "backwards"):
            web.restart(verb == "backwards")
        if verb in ("step", "restart", "backwards", "apply", "scale", "gone"):
            web.step()
            expected.settle()
            if expected.replicas is not None:
                assert web.replicas == expected.replicas
                assert sum(web.placed.values()) + web.state.workloads[WEB].unplaced == expected.replicas
        assert not expected.attached or web.state.scalings.policies
