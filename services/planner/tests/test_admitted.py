"""Rooms, reservations and answers by what clusters make of a template's pods, not by what its template says."""

import json
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.core.background import aftermath
from planner.core.division.words import WORDS_MAX, limit_text
from planner.core.explaining import explanation
from planner.core.feasibility.admitted import NOT_ASKED_YET, AdmittedShapes
from planner.core.knowledge import closing
from planner.core.placement import placing
from planner.core.requests import decisions, shape_questions
from planner.core.requests.answers import capacity_reply
from spillway.addresses import SHAPES
from spillway.api import ApplyRequest, CapacityRequest, ExplainReply, ExplainRequest, RequestError
from spillway.events import (
    SHAPE_ADMITTED,
    SHAPE_FORBIDDEN,
    SHAPE_REFUSED,
    SHAPE_UNASKED,
    ClusterLeft,
    ShapeAdmitted,
    TurnTaken,
)
from spillway.kubernetes.manifest_text import MANIFEST_BYTES_MAX
from spillway.kubernetes.pod_shape import shape_of, template_digest
from spillway.model import Shape, Toleration

from .builders import (
    Fleet,
    apply_to_fleet,
    container_spec,
    deployment,
    manifest_texts,
    node_row,
    placement_policy,
    pod_template,
    workload_facts,
)

WEB = pod_template(container_spec(cpu="1"))
DIGEST = template_digest(WEB, "default")
DECLARED = shape_of(WEB, "default", "t")
SEQUENCES = iter(range(10**9))


def shape_with_cpu(cpu: int, base: Shape = DECLARED) -> Shape:
    return replace(base, requests=tuple(sorted((dict(base.requests) | {"cpu": cpu}).items())))


def shape_admitted(
    cluster: str, shape: Shape | None = None, state: str = SHAPE_ADMITTED, message: str = "", digest: str = DIGEST
) -> ShapeAdmitted:
    return ShapeAdmitted(digest, cluster, 1, next(SEQUENCES), "default", state, message, shape)


def apply_events(fleet: Fleet, *events: Any) -> None:
    for event in events:
        fleet.state.apply_event(event, fleet.now)


def apply_workload(fleet: Fleet, replicas: int, name: str = "web", **pod: Any) -> Any:
    request = ApplyRequest(manifest_texts(deployment(replicas, name, pod or WEB)))
    decided = decisions.decide_apply(fleet.state, request, fleet.next_moment())
    apply_to_fleet(fleet, decided.events)
    return decided.reply


def placed_by_cluster(reply: Any) -> dict[str, int]:
    return {part.cluster: part.replicas for part in reply.parts if part.replicas}


# ── One door ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_shape_is_a_clusters_own_only_where_that_said_so() -> None:
    shapes = AdmittedShapes()
    assert shapes.apply_record(shape_admitted("a", shape_with_cpu(1500)))
    assert not shapes.apply_record(shape_admitted("b")), "as declared"
    in_a = shapes.shape_in("a", DECLARED)
    assert (dict(in_a.requests)["cpu"], shapes.shape_in("b", DECLARED)) == (1500, DECLARED)
    assert shapes.shape_in("a", in_a) == in_a, "asked with what it gave, it gives the same"
    other = replace(DECLARED, template="another digest")
    assert shapes.shape_in("a", other) is other
    assert (shapes.has_changes_in("a"), shapes.has_changes_in("b")) == (True, False)


def test_what_is_older_than_known_changes_nothing() -> None:
    shapes = AdmittedShapes()
    old, new = shape_admitted("a", shape_with_cpu(1500)), shape_admitted("a", shape_with_cpu(2000))
    assert shapes.apply_record(new)
    assert not shapes.apply_record(old)
    assert not shapes.apply_record(new)
    assert not shapes.apply_record(replace(old, sequence=10**9, epoch=0))
    assert dict(shapes.shape_in("a", DECLARED).requests)["cpu"] == 2000


def test_a_tombstone_and_a_cluster_that_left_are_forgotten() -> None:
    fleet = Fleet(a=[node_row("n")], b=[node_row("n")])
    apply_events(
        fleet, shape_admitted("a", shape_with_cpu(1500)), shape_admitted("b", shape_with_cpu(1500)), ClusterLeft("b")
    )
    assert fleet.state.shape_in("b", DECLARED) is DECLARED
    fleet.state.apply_tombstone(SHAPES.name, f"{DIGEST}/a")
    assert fleet.state.shape_in("a", DECLARED) is DECLARED
    assert not fleet.state.admitted.has_changes_in("a")


# ── Rooms and placements ────────────────────────────────────────────────────────────────────────────────────────────


ROOMS = {
    "larger": ((shape_with_cpu(2000), 2), {"a": 2, "b": 4}),
    "smaller": ((shape_with_cpu(500), 8), {"a": 6}),
    "where only another node may take it": (
        (replace(DECLARED, node_selector=(("sandbox", "yes"),)), 0),
        {"b": 4},
    ),
}


@pytest.mark.parametrize(("there", "expected"), ROOMS.values(), ids=ROOMS)
def test_replicas_go_by_what_each_cluster_makes_of_them(there: tuple[Shape, int], expected: dict[str, int]) -> None:
    """Two clusters with a node of 4 cores each; what is asked for is 6 replicas of 1 core, packed."""
    shape, takes = there
    fleet = Fleet(a=[node_row("n")], b=[node_row("n")])
    apply_events(fleet, shape_admitted("a", shape), shape_admitted("b"))
    assert fleet.state.room_in_cluster("a", DECLARED, False, fleet.now).certain == takes
    tiers = [{"name": "all", "clusters": {"names": ["a", "b"]}, "split": "Pack"}]
    request = ApplyRequest(manifest_texts(deployment(6, pod=WEB), placement_policy(tiers=tiers)))
    reply = decisions.decide_apply(fleet.state, request, fleet.next_moment()).reply
    assert placed_by_cluster(reply) == expected
    assert reply.unplaced == 6 - sum(expected.values())


def test_what_is_promised_is_held_in_the_shape_that_the_cluster_makes_of_it() -> None:
    fleet = Fleet(a=[node_row("n", 8000)])
    apply_events(fleet, shape_admitted("a", shape_with_cpu(1500)))
    apply_workload(fleet, 2)
    other = pod_template(container_spec(cpu="1"), labels={"app": "web", "of": "other"})
    assert fleet.state.room_in_cluster("a", shape_of(other, "default", "t"), False, fleet.now).certain == 3
    assert fleet.state.reservation_of(("default", "web"), "a").entries[0][0].requests == shape_with_cpu(1500).requests


def test_what_turns_out_larger_is_taken_back_where_it_does_not_bind() -> None:
    """Planned as declared: 4 of 1 core. They are of 2 cores each: two bind, and two are placed elsewhere."""
    fleet = Fleet(a=[node_row("n")], cloud=[node_row("n")])
    assert placed_by_cluster(apply_workload(fleet, 4)) == {"a": 4}
    apply_events(fleet, shape_admitted("a", shape_with_cpu(2000)), shape_admitted("cloud", shape_with_cpu(2000)))
    workload = fleet.state.workloads["default", "web"]
    version = workload.parts["a"].version
    fleet.report_change("a", [node_row("n", used=4000)], shown=[workload_facts(version, 2, spec=4, status=4)])
    aftermath.update_progress_timers(fleet.state, fleet.now)
    fleet.now += fleet.state.rules.take_back_after + 1
    fleet.send_heartbeats()
    ((found, counts),) = aftermath.workloads_to_take_back(fleet.state, fleet.next_moment())
    assert (found, counts) == (workload, {"a": 2})
    aftermath.hold_clusters(fleet.state, workload, counts, fleet.now)
    apply_to_fleet(fleet, placing.take_back_replicas(fleet.state, workload, counts, fleet.next_moment()).events)
    kept = {part.cluster: part.replicas_kept for part in workload.parts.values()}
    assert kept == {"a": 2, "cloud": 2}


def test_who_waits_is_due_when_a_shape_turns_out_smaller() -> None:
    fleet = Fleet(a=[node_row("n")])
    assert apply_workload(fleet, 6).unplaced == 2
    workload = fleet.state.workloads["default", "web"]
    for _ in range(2):
        for due in aftermath.next_waiting_workloads(fleet.state, fleet.now):
            apply_to_fleet(fleet, aftermath.retry_waiting_workload(fleet.state, due, fleet.next_moment()).events)
    assert list(aftermath.next_waiting_workloads(fleet.state, fleet.now)) == []
    apply_events(fleet, shape_admitted("a", shape_with_cpu(500)))
    assert list(aftermath.next_waiting_workloads(fleet.state, fleet.now)) == [workload]


def test_equal_declared_shapes_may_be_admitted_differently() -> None:
    """Two templates that differ by an annotation alone; one of them is injected into."""
    fleet = Fleet(a=[node_row("n")])
    injected = {**WEB, "metadata": {**WEB["metadata"], "annotations": {"inject": "yes"}}}
    shape = shape_of(injected, "default", "t")
    assert (shape, shape.template == DIGEST) == (DECLARED, False)
    apply_events(fleet, shape_admitted("a", shape_with_cpu(4000), digest=shape.template))
    assert fleet.state.room_in_cluster("a", shape, False, fleet.now).certain == 1
    assert fleet.state.room_in_cluster("a", DECLARED, False, fleet.now).certain == 4
    found = {text: _certain_capacity(fleet, pod) for text, pod in (("declared", WEB), ("injected", injected))}
    assert found == {"declared": 4, "injected": 1}


def _certain_capacity(fleet: Fleet, pod: dict[str, Any]) -> int:
    return (
        capacity_reply(fleet.state, CapacityRequest(manifest_texts(deployment(1, pod=pod))), fleet.now)
        .clusters[0]
        .certain
    )


AMOUNTS = st.one_of(st.none(), st.integers(100, 4000))
WORKLOADS = st.tuples(st.integers(100, 3000), st.integers(1, 12), st.lists(AMOUNTS, min_size=3, max_size=3))


@given(
    st.lists(st.lists(st.integers(500, 8000), min_size=1, max_size=3), min_size=1, max_size=3),
    st.lists(
        st.tuples(st.integers(100, 3000), st.integers(1, 12), st.lists(AMOUNTS, min_size=3, max_size=3)), max_size=5
    ),
)
def test_never_over_capacity_with_admitted_shapes_larger_or_smaller(
    nodes: list[list[int]], workloads: list[tuple[int, int, list[int | None]]]
) -> None:
    """What is placed fits the nodes in the shapes that the clusters make of it: each on its own, and all in sum."""
    names = ["a", "b", "c"][: len(nodes)]
    sizes = dict(zip(names, nodes, strict=True))
    fleet = Fleet(**{name: [node_row(f"n{i}", cpu) for i, cpu in enumerate(of)] for name, of in sizes.items()})
    used = dict.fromkeys(names, 0)
    for index, (cpu, replicas, there) in enumerate(workloads):
        pod = pod_template(container_spec(cpu=f"{cpu}m"), labels={"app": "web", "of": f"w{index}"})
        digest, declared = template_digest(pod, "default"), shape_of(pod, "default", "t")
        cpus = {name: own or cpu for name, own in zip(names, there, strict=False)}
        for name, own in zip(names, there, strict=False):
            apply_events(fleet, shape_admitted(name, shape_with_cpu(own, declared) if own else None, digest=digest))
        counts: dict[str, int] = {}
        with suppress(RequestError):  # It fits no node, not even an empty one.
            counts = placed_by_cluster(apply_workload(fleet, replicas, f"w{index}", **pod))
        for name, count in counts.items():
            used[name] += count * cpus[name]
            fits = sum(size // cpus[name] for size in sizes[name])
            assert count <= fits
    assert all(used[name] <= sum(of) for name, of in sizes.items())


# ── What is asked ───────────────────────────────────────────────────────────────────────────────────────────────────


def take_propagator_turns(fleet: Fleet, *clusters: str) -> None:
    apply_events(fleet, *(TurnTaken("propagator", cluster, "p1") for cluster in clusters))


def shape_question_for(fleet: Fleet, replicas: int = 2, pod: dict[str, Any] = WEB, *policies: dict[str, Any]) -> Any:
    request = ApplyRequest(manifest_texts(deployment(replicas, pod=pod), *policies))
    return shape_questions.shape_question(fleet.state, request, fleet.next_moment())


def test_all_clusters_of_the_policy_are_asked_and_those_that_are_used_are_waited_for() -> None:
    fleet = Fleet(a=[node_row("n")], b=[node_row("n")], cloud=[node_row("n")])
    assert shape_question_for(fleet) is None, "no propagator holds any"
    take_propagator_turns(fleet, "a", "cloud")
    asked = shape_question_for(fleet, 8)
    assert asked.event.clusters == ("a", "cloud")
    assert asked.awaited == {"a"}, "b, which is used too, is nobody's"
    assert (asked.event.template, asked.event.namespace, asked.event.name) == (DIGEST, "default", "web")
    only = placement_policy(tiers=[{"name": "cloud", "clusters": {"names": ["cloud"]}, "split": "Pack"}])
    assert shape_question_for(fleet, 2, WEB, only).event.clusters == ("cloud",)


def test_many_are_asked_about_together_as_each_is_alone() -> None:
    """Those that ask for the same are planned once; another shape, number, policy or workload that is there is not."""
    fleet = Fleet(a=[node_row("n", cpu=4000)], b=[node_row("n", cpu=2000)], cloud=[node_row("n", cpu=64000)])
    take_propagator_turns(fleet, "a", "b", "cloud")
    apply_workload(fleet, 1, "there")
    only = placement_policy(tiers=[{"name": "cloud", "clusters": {"names": ["cloud"]}, "split": "Pack"}])
    asks = (("w0", 1, "1"), ("w1", 1, "1"), ("w2", 40, "1"), ("w3", 1, "3"), ("there", 3, "1"), ("w5", 40, "1"))
    requests = [
        ApplyRequest(manifest_texts(deployment(replicas, name, _own_template(name, cpu)), *policies))
        for policies in ((), (only,))
        for name, replicas, cpu in asks
    ]
    together = list(shape_questions.shape_questions(fleet.state, requests, fleet.next_moment()))
    assert together == [
        shape_questions.shape_question(fleet.state, request, fleet.next_moment()) for request in requests
    ]
    assert len({asked.awaited for asked in together}) > 2


@pytest.mark.parametrize(
    "answer", [shape_admitted("a", shape_with_cpu(4000)), shape_admitted("a", state=SHAPE_REFUSED, message="no")]
)
def test_who_is_used_only_by_what_others_answered_is_waited_for_next(answer: ShapeAdmitted) -> None:
    """As declared all 8 fit in a; by what a makes of them, or lets in, some go to the cloud."""
    fleet = Fleet(a=[node_row("n", cpu=8000)], cloud=[node_row("n", cpu=64000)])
    take_propagator_turns(fleet, "a", "cloud")
    request = ApplyRequest(manifest_texts(deployment(8, pod=WEB)))
    assert shape_questions.shape_question(fleet.state, request, fleet.next_moment()).awaited == {"a"}
    apply_events(fleet, answer)
    assert dict(shape_questions.unheard_clusters_by_template(fleet.state, [request], fleet.next_moment())) == {
        DIGEST: {"cloud"}
    }
    apply_events(fleet, shape_admitted("cloud"))
    assert dict(shape_questions.unheard_clusters_by_template(fleet.state, [request], fleet.next_moment())) == {
        DIGEST: frozenset()
    }


def test_equal_shapes_that_a_cluster_made_unlike_are_planned_each_for_itself() -> None:
    fleet = Fleet(a=[node_row("n", cpu=8000)], cloud=[node_row("n", cpu=64000)])
    take_propagator_turns(fleet, "a", "cloud")
    digests = {name: template_digest(_own_template(name, "1"), "default") for name in ("as-is", "larger")}
    apply_events(
        fleet,
        shape_admitted("a", digest=digests["as-is"]),
        shape_admitted("a", shape_with_cpu(4000), digest=digests["larger"]),
    )
    requests = [ApplyRequest(manifest_texts(deployment(8, name, _own_template(name, "1")))) for name in digests]
    found = dict(shape_questions.unheard_clusters_by_template(fleet.state, requests, fleet.next_moment()))
    assert found == {digests["as-is"]: frozenset(), digests["larger"]: {"cloud"}}


def _own_template(name: str, cpu: str) -> dict[str, Any]:
    return pod_template(container_spec(cpu=cpu), labels={"app": "web", "of": name})


KNOWN = {
    "a workload has the template": lambda fleet: apply_workload(fleet, 1),
    "a workload had it, and is scaled": lambda fleet: (
        apply_workload(fleet, 1),
        apply_workload(fleet, 2, "web", **pod_template()),
    ),
    "a cluster said something of it": lambda fleet: apply_events(fleet, shape_admitted("cloud", state=SHAPE_UNASKED)),
    "it was asked before": lambda fleet: fleet.state.admitted.note_declared(DIGEST),
}


@pytest.mark.parametrize("before", KNOWN.values(), ids=KNOWN)
def test_a_template_that_was_answered_before_never_waits_again(before: Any) -> None:
    fleet = Fleet(a=[node_row("n")], cloud=[node_row("n")])
    take_propagator_turns(fleet, "a", "cloud")
    assert shape_question_for(fleet) is not None
    before(fleet)
    assert shape_question_for(fleet) is None


def test_who_let_a_question_pass_is_asked_and_not_waited_for_until_heard() -> None:
    fleet = Fleet(a=[node_row("n")])
    take_propagator_turns(fleet, "a")
    fleet.state.admitted.note_unanswered(["a"])
    other = pod_template(labels={"app": "web", "of": "other"})
    assert shape_question_for(fleet, 2, other).awaited == frozenset()
    apply_events(fleet, shape_admitted("a"))
    assert shape_question_for(fleet, 2, other).awaited == {"a"}
    fleet.state.admitted.note_unanswered(["a"])
    take_propagator_turns(fleet, "a")
    assert shape_question_for(fleet, 2, other).awaited == {"a"}, "claimed anew"


# ── What is said ────────────────────────────────────────────────────────────────────────────────────────────────────


WARNED = {
    "nobody holds the cluster": ([], ()),
    "not known yet": (
        [TurnTaken("propagator", "a", "p")],
        (f"a: {NOT_ASKED_YET}",),
    ),
    "known": ([shape_admitted("a", shape_with_cpu(1500))], ()),
    "no right": (
        [shape_admitted("a", state=SHAPE_FORBIDDEN)],
        ("a: planned as declared: our account there may not create pods, which a dry run needs",),
    ),
    "not asked": (
        [shape_admitted("a", state=SHAPE_UNASKED, message="no answer within 2 s")],
        ("a: planned as declared: it could not be asked: no answer within 2 s",),
    ),
}


@pytest.mark.parametrize(("events", "expected"), WARNED.values(), ids=WARNED)
def test_an_answer_says_where_it_was_planned_as_declared(events: list[Any], expected: tuple[str, ...]) -> None:
    fleet = Fleet(a=[node_row("n")])
    apply_events(fleet, *events)
    assert apply_workload(fleet, 1).warnings == expected


REFUSED = "pods of this template are refused there: violates PodSecurity"


def shape_refused(cluster: str = "a") -> ShapeAdmitted:
    return shape_admitted(cluster, state=SHAPE_REFUSED, message="violates PodSecurity")


def test_where_pods_are_refused_there_is_no_room_until_they_are_let_in() -> None:
    """For that template alone, whatever else has an equal shape; who waited is placed once the refusal ends."""
    fleet = Fleet(a=[node_row("n")], b=[node_row("n", cpu=2000)])
    apply_events(fleet, shape_refused())
    reply = apply_workload(fleet, 4)
    assert (placed_by_cluster(reply), reply.unplaced) == ({"b": 2}, 2)
    assert {entry.cluster: entry.limited_by for entry in reply.inputs}["a"] == REFUSED
    rooms = {entry.cluster: entry.certain for entry in capacity_reply_for(fleet, WEB).clusters}
    others = {
        entry.cluster: entry.certain
        for entry in capacity_reply_for(fleet, pod_template(container_spec(image="b"))).clusters
    }
    assert (rooms, others) == ({"a": 0, "b": 0}, {"a": 4, "b": 0})
    (there,) = [
        entry for entry in explain_reply(fleet, ExplainRequest("default", "web")).clusters if entry.cluster == "a"
    ]
    assert (there.bound, there.why) == ("Refused", REFUSED)
    apply_events(fleet, shape_admitted("a"))
    (due,) = aftermath.next_waiting_workloads(fleet.state, fleet.now)
    apply_to_fleet(fleet, aftermath.retry_waiting_workload(fleet.state, due, fleet.next_moment()).events)
    assert {part.cluster: part.replicas for part in due.parts.values()} == {"a": 2, "b": 2}


def test_equal_shapes_of_two_templates_wait_for_their_own_rooms() -> None:
    """One is refused where the other has room: who waits with the other hopes for that."""
    fleet = Fleet(a=[node_row("n", cpu=1000)])
    apply_events(fleet, shape_refused())
    apply_workload(fleet, 2, "refused")
    apply_workload(fleet, 2, "let-in", **pod_template(container_spec(image="b")))
    assert [room.certain for room in fleet.state.rooms_for_waiting("a", DECLARED, fleet.now)] == [0]
    apply_events(fleet, shape_admitted("a"))
    assert not fleet.state.admitted.has_changes_in("a")


def test_the_words_of_a_cluster_s_refusal_are_cut() -> None:
    """They stand in the record of every decision, once for each cluster."""
    fleet = Fleet(a=[node_row("n")])
    long = replace(shape_refused(), message="violates " + "x" * 5000)
    apply_events(fleet, long)
    view = fleet.state.clusters["a"]
    closed = closing.why_closed(fleet.state, view, DECLARED, fleet.now, None)
    why = limit_text(closed) if closed is not None else ""
    assert (len(why), why.startswith(REFUSED[:40])) == (WORDS_MAX, True)


def test_what_is_there_stays_when_it_is_refused_later_and_the_answer_says_so() -> None:
    fleet = Fleet(a=[node_row("n")], b=[node_row("n")])
    apply_workload(fleet, 2)
    apply_events(fleet, shape_refused())
    reply = apply_workload(fleet, 2)
    assert (placed_by_cluster(reply), reply.warnings) == ({"a": 1, "b": 1}, (f"a: {REFUSED}",))
    assert placed_by_cluster(apply_workload(fleet, 5)) == {"a": 1, "b": 4}


def test_a_refusal_ends_with_its_tombstone_and_its_cluster() -> None:
    fleet = Fleet(a=[node_row("n")], b=[node_row("n")])
    apply_events(fleet, shape_refused("a"), shape_refused("b"))
    assert placed_by_cluster(apply_workload(fleet, 1)) == {}
    fleet.state.apply_tombstone(SHAPES.name, f"{DIGEST}/a")
    apply_events(fleet, ClusterLeft("b"))
    assert [fleet.state.admitted.refusal_message(name, DECLARED) for name in ("a", "b")] == [None, None]
    assert fleet.state.room_in_cluster("a", DECLARED, False, fleet.now).certain == 4


def capacity_reply_for(fleet: Fleet, pod: dict[str, Any]) -> Any:
    return capacity_reply(fleet.state, CapacityRequest(manifest_texts(deployment(1, "any", pod))), fleet.now)


def test_overhead_is_computed_once_the_cluster_showed_it() -> None:
    fleet = Fleet(a=[node_row("n")])
    pod = pod_template(container_spec(cpu="1"), runtimeClassName="box")
    digest = template_digest(pod, "default")
    assert apply_workload(fleet, 1, "web", **pod).unmodelled == ("overhead of runtimeClassName box",)
    apply_events(fleet, shape_admitted("a", shape_with_cpu(1250), digest=digest))
    assert apply_workload(fleet, 1, "web", **pod).unmodelled == ()


def explain_reply(fleet: Fleet, request: ExplainRequest) -> ExplainReply:
    steps = explanation.explain_placement(fleet.state, request, fleet.next_moment(), None)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            reply: ExplainReply = done.value
            return reply


def test_explain_says_what_clusters_make_of_it() -> None:
    fleet = Fleet(a=[node_row("n")], b=[node_row("n")])
    there = replace(
        shape_with_cpu(2500), tolerations=(Toleration("box", "Exists", "", ""),), node_selector=(("box", "yes"),)
    )
    apply_events(fleet, shape_admitted("a", there), shape_admitted("b"))
    reply = explain_reply(fleet, ExplainRequest(manifests=manifest_texts(deployment(9, pod=WEB))))
    assert reply.notes == ("admitted in a: cpu 2500m instead of 1, nodes with box=yes, tolerates box",)


def test_a_smaller_request_is_tried_with_what_the_cluster_adds_to_it() -> None:
    """A node of 4 cores takes 2 of 1 + 1 cores, 4 of 0 + 1 (a request is never below a milli-core): three at 333m."""
    fleet = Fleet(a=[node_row("n")])
    apply_events(fleet, shape_admitted("a", shape_with_cpu(2000)))
    reply = explain_reply(fleet, ExplainRequest(manifests=manifest_texts(deployment(3, pod=WEB))))
    assert reply.placed == 2
    (change,) = [entry for entry in reply.changes if entry.kind == "Request"]
    assert (change.subject, change.placed_after) == ("cpu", 3)
    assert change.after <= 333


def test_a_template_that_is_too_large_for_a_question_is_not_asked_about() -> None:
    """Questions of many requests are written together: one that no record holds would be refused for all of them."""
    fleet = Fleet(a=[node_row("n")])
    apply_events(fleet, TurnTaken("propagator", "a", "propagator-1"))
    large = deployment(
        2, pod=pod_template(container_spec(env=[{"name": "A", "value": "é" * (MANIFEST_BYTES_MAX // 6)}]))
    )
    request = ApplyRequest((json.dumps(large, ensure_ascii=False),))
    assert shape_question_for(fleet) is not None
    assert shape_questions.shape_question(fleet.state, request, fleet.next_moment()) is None
