"""Answers kept with their keys: how many, how long, how large; and that none makes a record too large."""

import hashlib
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.core.knowledge.rules import PlannerRules
from planner.core.knowledge.subject import Moment
from planner.core.requests import autoscaling, decisions, disowning
from planner.core.requests.remembering import PLAIN_BYTES_MAX, remembered_answer, with_answer_added, without_old_answers
from spillway.api import ApplyRequest, DeleteRequest, DisownRequest, PlacementReply, RequestError, ScaleRequest
from spillway.dead_letters import outgoing_record
from spillway.events import WorkloadDeclared
from spillway.events_scaling import ScaleDecided, ScalePolicyDeclared
from spillway.model import NO_GENERATION, Answered, ClusterInput, Generation
from spillway.running.request_queue import SPARE_BYTES

from .builders import Fleet, add_expired_answers, deployment, joined_cluster, manifest_texts, node_row

WEB = ("default", "web")
HOUR_MS = 3_600_000


def moment_at(wall_ms: int) -> Moment:
    return Moment(0.0, wall_ms, NO_GENERATION)


@pytest.fixture
def declared() -> WorkloadDeclared:
    fleet = Fleet(own_1=[node_row("n1")])
    return next(
        event
        for event in decisions.decide_apply(
            fleet.state, ApplyRequest(manifest_texts(deployment(1))), fleet.next_moment()
        ).events
        if isinstance(event, WorkloadDeclared)
    )


@pytest.fixture
def fleet_of_web() -> Fleet:
    fleet = Fleet(own_1=[node_row("n1")])
    apply_decision(
        fleet,
        decisions.decide_apply(
            fleet.state, ApplyRequest(manifest_texts(deployment(1))), fleet.next_moment()
        ).events_and_reply,
    )
    return fleet


ENTRIES = st.lists(st.tuples(st.integers(0, 2 * HOUR_MS), st.integers(0, 500)), max_size=12)


@given(entries=ENTRIES, keys_max=st.integers(1, 8), bytes_max=st.integers(0, 2000))
def test_what_is_kept_is_the_newest_within_both_bounds_and_the_newest_in_any_case(
    entries: list[tuple[int, int]], keys_max: int, bytes_max: int
) -> None:
    fleet = Fleet(own_1=[node_row("n1")])
    (first, *_) = decisions.decide_apply(
        fleet.state, ApplyRequest(manifest_texts(deployment(1))), fleet.next_moment()
    ).events
    assert isinstance(first, WorkloadDeclared)
    entries.sort()
    answered = tuple(Answered(f"k{index}", "", at_ms, bytes(size)) for index, (at_ms, size) in enumerate(entries))
    rules = replace(PlannerRules(), keys_kept_max=keys_max, answers_bytes_max=bytes_max)
    kept = without_old_answers(rules, replace(first, answered=answered), moment_at(2 * HOUR_MS)).answered
    fresh = [entry for entry in answered if entry.at_ms > HOUR_MS]
    assert list(kept) == fresh[len(fresh) - len(kept) :]
    assert (len(kept) <= keys_max, bool(kept)) == (True, bool(fresh))
    assert len(kept) <= 1 or sum(len(entry.key) + len(entry.answer) for entry in kept) <= bytes_max
    more = fresh[: len(fresh) - len(kept)]
    if more and len(kept) < keys_max:
        assert sum(len(entry.key) + len(entry.answer) + 96 for entry in (more[-1], *kept)) > bytes_max


@pytest.mark.parametrize(
    ("bytes_max", "kept"),
    [(10_000, 8), (2_000, 3), (597, 1), (0, 1)],
    ids=["all", "three of 598 bytes", "less than one", "nothing"],
)
def test_answers_beyond_their_bytes_go_the_oldest_first(declared: WorkloadDeclared, bytes_max: int, kept: int) -> None:
    """Each is 500 bytes, a key of 2, and 96 beside."""
    answered = tuple(Answered(f"k{index}", "", 1, bytes(500)) for index in range(8))
    found = without_old_answers(
        replace(PlannerRules(), answers_bytes_max=bytes_max), replace(declared, answered=answered), moment_at(2)
    )
    assert found.answered == answered[8 - kept :]


@pytest.mark.parametrize("clusters", [1, 1000], ids=["kept plain", "compressed"])
def test_an_answer_comes_back_whole_but_for_its_inputs(declared: WorkloadDeclared, clusters: int) -> None:
    fleet = Fleet(own_1=[node_row("n1")])
    names = [f"prod-eu-central-1-cluster-{index:04d}" for index in range(clusters)]
    fleet.report_full_block("own-1", [node_row("n1", cpu=64_000)])
    reply = decisions.decide_apply(fleet.state, ApplyRequest(manifest_texts(deployment(2))), fleet.next_moment()).reply
    parts = tuple(replace(reply.parts[0], cluster=name) for name in names)
    inputs = tuple(ClusterInput(name, "own", 1, 1, 0, 0, 1, "cpu", 0) for name in names)
    reply = replace(reply, parts=parts, inputs=inputs, warnings=("a warning",))
    kept = with_answer_added(PlannerRules(), declared, "k", "digest", reply, moment_at(1))
    (entry,) = kept.answered
    assert entry.answer.startswith(b"{") == (len(entry.answer) <= PLAIN_BYTES_MAX and clusters == 1)
    assert len(entry.answer) < 20 * clusters + PLAIN_BYTES_MAX
    known = fleet.state
    for event in decisions.decide_apply(known, ApplyRequest(manifest_texts(deployment(2))), fleet.next_moment()).events:
        known.apply_event(event, fleet.now)
    known.workloads[WEB].declared = kept
    assert remembered_answer(PlannerRules(), known.workloads[WEB], "k", "digest", moment_at(2)) == replace(
        reply, inputs=()
    )


def test_an_answer_of_a_version_before_which_kept_the_inputs_is_read(declared: WorkloadDeclared) -> None:
    fleet = Fleet(own_1=[node_row("n1")])
    decided = decisions.decide_apply(fleet.state, ApplyRequest(manifest_texts(deployment(1))), fleet.next_moment())
    for event in decided.events:
        fleet.state.apply_event(event, fleet.now)
    assert decided.reply.inputs
    old = Answered("k", "digest", 1, msgspec.json.encode(decided.reply))
    fleet.state.workloads[WEB].declared = replace(declared, answered=(old,))
    again = remembered_answer(PlannerRules(), fleet.state.workloads[WEB], "k", "digest", moment_at(2))
    assert again == replace(decided.reply, inputs=())


def test_an_answer_that_was_given_when_disown_was_called_release_is_given_again(fleet_of_web: Fleet) -> None:
    decided = disowning.decide_disown(fleet_of_web.state, DisownRequest(*WEB, "k"), fleet_of_web.next_moment())
    apply_decision(fleet_of_web, decided.events_and_reply)
    workload = fleet_of_web.state.workloads[WEB]
    (kept,) = workload.declared.answered
    answer = kept.answer.replace(b'"disowning":true', b'"releasing":true')
    assert answer != kept.answer
    former = replace(kept, request_digest=hashlib.sha256(b"release").hexdigest(), answer=answer)
    workload.declared = replace(workload.declared, answered=(former,))
    again = disowning.decide_disown(fleet_of_web.state, DisownRequest(*WEB, "k"), fleet_of_web.next_moment())
    assert (again.events, again.reply) == ((), replace(decided.reply, inputs=()))
    assert (again.reply.disowning, all(part.disowning for part in again.reply.parts)) == (True, True)
    with pytest.raises(RequestError, match="a new key: this key was used for another request"):
        decisions.decide_delete(fleet_of_web.state, DeleteRequest(*WEB, "k"), fleet_of_web.next_moment())


def test_what_a_policy_decides_is_declared_without_answers_whose_time_is_over() -> None:
    fleet = Fleet(own_1=[node_row("n1")])
    apply_decision(
        fleet,
        decisions.decide_apply(
            fleet.state, ApplyRequest(manifest_texts(deployment(1))), fleet.next_moment()
        ).events_and_reply,
    )
    kind = "HorizontalPodAutoscaler"
    fleet.state.apply_event(ScalePolicyDeclared(*WEB, Generation(5, 1), kind, "web", b"{}", 0), fleet.now)
    for sequence, replicas in ((1, 2), (2, 2)):  # Another number, then the same one.
        add_expired_answers(fleet, WEB)
        decided = ScaleDecided(*WEB, Generation(5, sequence), "web", kind, replicas, 1, 0, "cpu")
        fleet.state.apply_event(decided, fleet.now)
        first, *_ = autoscaling.declare_scale_decision(fleet.state, fleet.state.workloads[WEB], fleet.next_moment())
        assert isinstance(first, WorkloadDeclared)
        assert (first.scale_generation, first.answered) == (Generation(5, sequence), ())
        fleet.state.apply_event(first, fleet.now)


def test_a_large_fleet_s_records_stay_small_however_many_keys_come() -> None:
    """Every record of a keyed request over 300 clusters, beside what requests may not use of it."""
    fleet = Fleet()
    for index in range(300):
        fleet.join_cluster(joined_cluster(f"prod-eu-central-1-cluster-{index:04d}", "own"), [node_row("n1")])
    apply_decision(
        fleet,
        decisions.decide_apply(
            fleet.state, ApplyRequest(manifest_texts(deployment(900)), "k"), fleet.next_moment()
        ).events_and_reply,
    )
    sizes = []
    for index in range(40):
        request = ScaleRequest("", "web", 900 - index % 2, f"key-{index}")
        events, _ = decisions.decide_scale(fleet.state, request, fleet.next_moment()).events_and_reply
        sizes += [len(outgoing_record(event, SPARE_BYTES).value or b"") for event in events]
        apply_decision(fleet, (events, None))
    assert len(fleet.state.workloads[WEB].declared.answered) == 32
    assert max(sizes) < 150 * 300, "150 bytes a cluster"


def apply_decision(fleet: Fleet, decided: tuple[tuple[object, ...], PlacementReply | None]) -> None:
    for event in decided[0]:
        fleet.state.apply_event(event, fleet.now)  # type: ignore[arg-type]
