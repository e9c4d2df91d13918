"""Explanations: what binds in each cluster, node by node; and that each change that is offered does what it says."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.api.confined import OTHERS, explanation_seen_by
from planner.core.explaining import explanation
from planner.core.explaining.explanation import AGE, BINDS, ENOUGH, HELD, LEAVING, MAXIMUM, PHASE, POLICY, ROOM
from planner.core.explaining.witness import node_reasons
from planner.core.knowledge.timers import PlacementHold
from planner.core.requests import answers, decisions
from spillway.api import (
    ApplyRequest,
    CapacityRequest,
    DeleteRequest,
    ExplainedChange,
    ExplainReply,
    ExplainRequest,
    RequestError,
)
from spillway.events import PHASE_CORDONED, PHASE_DRAINING, DecisionRecorded
from spillway.feasibility.fit import compute_fit
from spillway.model import NodeRow, PodTable, Taint
from spillway.rpc.callers import Caller

from .builders import (
    Fleet,
    cluster_nodes_of,
    container_spec,
    deployment,
    joined_cluster,
    make_shape,
    manifest_texts,
    node_group,
    node_row,
    placement_policy,
    pod_template,
    workload_facts,
)

GPU = Taint("gpu", "only", "NoSchedule")


def explain_reply(fleet: Fleet, request: ExplainRequest, record: DecisionRecorded | None = None) -> ExplainReply:
    steps = explanation.explain_placement(fleet.state, request, fleet.next_moment(), record)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            reply: ExplainReply = done.value
            return reply


def explain_request(*manifests: dict[str, Any], **more: Any) -> ExplainRequest:
    return ExplainRequest(manifests=manifest_texts(*manifests), **more)


def apply_and_record(fleet: Fleet, *manifests: dict[str, Any]) -> DecisionRecorded:
    decided = decisions.decide_apply(fleet.state, ApplyRequest(manifest_texts(*manifests)), fleet.next_moment())
    for event in decided.events:
        fleet.state.apply_event(event, fleet.now)
    return next(event for event in decided.events if isinstance(event, DecisionRecorded))


def pod_template_with_cpu(cpu: str = "1", **more: Any) -> dict[str, Any]:
    return pod_template(container_spec(cpu=cpu), **more)


# ── Nodes ───────────────────────────────────────────────────────────────────────────────────────────────────────────

NODES = (
    pytest.param(
        [node_row("a", 4000, used=3300), node_row("b", 4000, used=3300)],
        [(2, "NodeResourcesFit", "cpu short by 300m", 300)],
        id="equal amounts are one group",
    ),
    pytest.param(
        [node_row(f"n{number}", 4000, used=3100 + 100 * number) for number in range(6)],
        [(6, "NodeResourcesFit", "cpu short by 100m to 600m", 100)],
        id="many amounts are a range",
    ),
    pytest.param([node_row("a", 4000)], [(1, "NodeResourcesFit", "cpu short by 1", 1000)], id="one more than it takes"),
    pytest.param(
        [node_row("a", 500, pods=0)],
        [(1, "NodeResourcesFit", "cpu short by 500m, and pods too", 500)],
        id="two resources",
    ),
    pytest.param(
        [node_row("a", taints=(GPU,)), node_row("b", taints=(GPU,)), node_row("c", unschedulable=True)],
        [
            (2, "TaintToleration", "taint gpu=only:NoSchedule", 0),
            (1, "NodeUnschedulable", "cordoned", 0),
        ],
        id="what bars a node is asked before its size",
    ),
)


@pytest.mark.parametrize(("rows", "expected"), NODES)
def test_nodes_are_counted_by_what_binds_them(rows: list[NodeRow], expected: list[tuple[int, str, str, int]]) -> None:
    found = node_reasons(make_shape(1000), cluster_nodes_of(*rows))
    assert [(entry.nodes, entry.filter, entry.reason, entry.lacks) for entry in found] == expected
    assert all(entry.example in {row.name for row in rows} for entry in found)


@st.composite
def node_rows(draw: st.DrawFn, name: str = "n") -> list[NodeRow]:
    def drawn_node(number: int) -> NodeRow:
        cpu = draw(st.sampled_from((2000, 4000, 8000)))
        return node_row(
            f"{name}{number}",
            cpu,
            used=draw(st.integers(0, cpu // 100)) * 100,
            pods=draw(st.sampled_from((1, 110))),
            taints=draw(st.sampled_from(((), (), (GPU,)))),
            unschedulable=draw(st.sampled_from((False, False, False, True))),
        )

    return [drawn_node(number) for number in range(draw(st.integers(0, 5)))]


@given(node_rows(), st.sampled_from((100, 700, 1000, 3000)))
def test_every_node_has_one_reason_and_it_is_the_one_that_feasibility_counts(rows: list[NodeRow], cpu: int) -> None:
    """The groups' sum is all nodes; what bars nodes is counted alike."""
    wanted, nodes = make_shape(cpu), cluster_nodes_of(*rows)
    found = node_reasons(wanted, nodes)
    assert sum(entry.nodes for entry in found) == len(rows)
    counted = dict(compute_fit(wanted, nodes).reasons)
    assert {entry.reason: entry.nodes for entry in found if not entry.resource} == {
        reason: count for reason, count in counted.items() if reason not in dict(wanted.requests)
    }


def test_a_node_is_explained_filter_by_filter() -> None:
    fleet = Fleet(own_1=[node_row("a", 4000, used=3500, taints=(GPU,), unschedulable=True), node_row("b")])
    found = explain_reply(fleet, explain_request(deployment(1), cluster="own-1", node="a")).node
    assert found is not None
    barred = {entry.filter: entry.reason for entry in found.filters if not entry.passes}
    assert barred == {
        "NodeUnschedulable": "cordoned",
        "TaintToleration": "taint gpu=only:NoSchedule",
        "NodeResourcesFit": "cpu short by 500m",
    }
    assert found.takes == 0
    free = explain_reply(fleet, explain_request(deployment(1), cluster="own-1", node="b")).node
    assert free is not None
    assert (free.takes, all(entry.passes for entry in free.filters)) == (4, True)


# ── Clusters ────────────────────────────────────────────────────────────────────────────────────────────────────────


def fleet_of_three() -> Fleet:
    fleet = Fleet(own_1=[node_row("a", 4000)], own_2=[node_row("b", 6000)])
    fleet.join_cluster(joined_cluster("cloud-1", "cloud", [node_group()]), [node_row("c", 3000)])
    return fleet


def bound_by_cluster(reply: ExplainReply) -> dict[str, str]:
    return {f"{entry.cluster}{'+' if entry.node_groups else ''}": entry.bound for entry in reply.clusters}


def test_each_tier_says_what_it_got_and_why_not_more() -> None:
    reply = explain_reply(
        fleet_of_three(), explain_request(deployment(23), placement_policy(limits=[{"cluster": "own-2", "max": 2}]))
    )
    assert {(entry.cluster, entry.node_groups): entry.after for entry in reply.clusters} == {
        ("own-1", False): 4,
        ("own-2", False): 2,
        ("cloud-1", False): 3,
        ("cloud-1", True): 8,
    }
    assert bound_by_cluster(reply) == {"own-1": ROOM, "own-2": MAXIMUM, "cloud-1": ROOM, "cloud-1+": ROOM}
    assert (reply.replicas, reply.placed, reply.unplaced) == (23, 17, 6)
    assert reply.verdict.startswith("6 of 23 replicas have no place (own-1: cpu short by 1 on 1 of 1 nodes;")


def test_what_has_a_place_says_how_much_more_would() -> None:
    reply = explain_reply(fleet_of_three(), explain_request(deployment(5)))
    assert reply.verdict == "all 5 replicas have a place: own-1 2, own-2 3"
    assert set(bound_by_cluster(reply).values()) == {ENOUGH}
    assert reply.clusters[0].why == "all have a place; room for 2 more, after that the limit is cpu (1 node)"
    assert reply.changes == ()


def test_a_cluster_that_no_tier_selects_says_so() -> None:
    only = placement_policy(tiers=[{"name": "one", "clusters": {"names": ["own-1"]}}])
    reply = explain_reply(fleet_of_three(), explain_request(deployment(5), only))
    assert bound_by_cluster(reply) == {"own-1": ROOM, "own-2": POLICY, "cloud-1": POLICY}


def set_phase(fleet: Fleet, name: str, phase: str) -> None:
    joined = fleet.state.clusters[name].joined
    assert joined is not None
    fleet.state.apply_event(replace(joined, phase=phase), fleet.now)


def test_holds_phases_age_and_drains_are_told_from_want_of_room() -> None:
    fleet = fleet_of_three()
    apply_and_record(fleet, deployment(13))
    set_phase(fleet, "own-1", PHASE_DRAINING)
    set_phase(fleet, "cloud-1", PHASE_CORDONED)
    key = ("default", "web")
    fleet.state.holds["own-2", key] = PlacementHold(fleet.now + 12, 15)
    reply = explain_reply(fleet, ExplainRequest(*key, replicas=40))
    assert bound_by_cluster(reply) == {"own-1": LEAVING, "own-2": HELD, "cloud-1": PHASE, "cloud-1+": PHASE}
    assert "held for 12 s more" in reply.verdict
    fleet.now += 60
    assert bound_by_cluster(explain_reply(fleet, ExplainRequest(*key, replicas=40)))["own-2"] == AGE


def test_what_is_reserved_is_shown_by_whom_and_waits_for_binds() -> None:
    """A replica of 1 core reserved and not bound may cost a place of 3 cores on any node."""
    fleet = Fleet(own_1=[node_row("a", 3000), node_row("b", 3000)])
    apply_and_record(fleet, deployment(1, "small"))
    reply = explain_reply(fleet, explain_request(deployment(2, "large", pod_template_with_cpu("3"))))
    (own,) = reply.clusters
    assert (own.reserved_replicas, own.reserved) == (1, (("default/small", 1),))
    assert (own.certain, own.possible, own.bound) == (1, 2, BINDS)


@pytest.mark.parametrize(
    ("pattern", "shown"), [("*", "default/small"), ("def*", "default/small"), ("shop", OTHERS)], ids=str
)
def test_who_reserved_is_shown_to_those_who_may_see_it(pattern: str, shown: str) -> None:
    fleet = Fleet(own_1=[node_row("a", 3000), node_row("b", 3000)])
    apply_and_record(fleet, deployment(1, "small"))
    reply = explain_reply(fleet, explain_request(deployment(2, "large", pod_template_with_cpu("3"))))
    (own,) = explanation_seen_by(Caller("ann", namespaces=frozenset({pattern})), reply).clusters
    assert own.reserved == ((shown, 1),)


def test_capacity_says_as_many_reserved_as_explain_on_nodes_and_on_those_of_groups() -> None:
    fleet = Fleet()
    fleet.join_cluster(joined_cluster("own-1", node_groups=(node_group(cpu=2000, nodes_max=1),)), [node_row("a", 3000)])
    apply_and_record(fleet, deployment(5, "small"))
    asked = manifest_texts(deployment(1, "large"))
    told = answers.capacity_reply(fleet.state, CapacityRequest(asked), fleet.now)
    reply = explain_reply(fleet, ExplainRequest(manifests=asked))
    by_capacity = {(one.cluster, one.tier == "node-groups"): one.reserved for one in told.clusters}
    assert by_capacity == {(one.cluster, one.node_groups): one.reserved_replicas for one in reply.clusters}
    assert by_capacity == {("own-1", False): 3, ("own-1", True): 2}


def test_a_past_decision_is_explained_from_its_record() -> None:
    """With what was known then: the room that came up since is not in it."""
    fleet = fleet_of_three()
    record = apply_and_record(fleet, deployment(30))
    fleet.report_full_block("own-1", [node_row("a", 40_000)])
    reply = explain_reply(fleet, ExplainRequest("default", "web", decision=str(record.generation)), record)
    assert (reply.decision, reply.cause, reply.unplaced) == (str(record.generation), "Apply", 9)
    assert {entry.cluster: entry.certain for entry in reply.clusters if not entry.node_groups} == {
        "own-1": 4,
        "own-2": 6,
        "cloud-1": 3,
    }


@pytest.mark.parametrize("forgotten", [False, True])
def test_a_past_decision_on_what_was_deleted_since_is_explained(forgotten: bool) -> None:
    fleet = fleet_of_three()
    record = apply_and_record(fleet, deployment(30))
    for event in decisions.decide_delete(fleet.state, DeleteRequest("default", "web"), fleet.next_moment()).events:
        fleet.state.apply_event(event, fleet.now)
    if forgotten:
        fleet.state.workloads.clear()
    request = ExplainRequest("default", "web", decision=str(record.generation))
    reply = explain_reply(fleet, request, record)
    assert (reply.namespace, reply.name, reply.replicas, reply.placed, reply.unplaced) == ("default", "web", 30, 21, 9)
    with pytest.raises(RequestError, match="not declared"):
        explain_reply(fleet, ExplainRequest("default", "web"))


def test_another_policy_can_be_supposed_for_what_is_declared() -> None:
    fleet = fleet_of_three()
    apply_and_record(fleet, deployment(4))
    limits = placement_policy(limits=[{"cluster": "own-2", "max": 0}])
    reply = explain_reply(fleet, ExplainRequest("default", "web", manifest_texts(limits)))
    assert {entry.cluster: entry.after for entry in reply.clusters if entry.after} == {"own-1": 4}
    assert fleet.state.workloads["default", "web"].declared.policy.limits == ()


def test_copies_in_every_cluster_are_counted_as_such() -> None:
    reply = explain_reply(
        fleet_of_three(), explain_request(deployment(5), placement_policy(strategy={"name": "Duplicated"}))
    )
    assert reply.verdict.startswith("3 of 15 replicas have no place")
    assert (reply.replicas, reply.placed, reply.unplaced) == (5, 12, 3)
    kinds = {change.kind: (change.placed_before, change.placed_after) for change in reply.changes}
    assert kinds["Request"] == (12, 15)


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        pytest.param(ExplainRequest("default", "nobody"), "NOT_FOUND", id="not declared"),
        pytest.param(explain_request(deployment(1), cluster="own-9", node="a"), "NOT_FOUND", id="no such cluster"),
        pytest.param(explain_request(deployment(1), cluster="own-1", node="x"), "NOT_FOUND", id="no such node"),
        pytest.param(explain_request(deployment(1), deployment(1, "api")), "INVALID_ARGUMENT", id="two workloads"),
    ],
)
def test_what_cannot_be_explained_is_refused(request_: ExplainRequest, code: str) -> None:
    with pytest.raises(RequestError) as refused:
        explain_reply(fleet_of_three(), request_)
    assert refused.value.code == code


# ── Changes ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_runs_already_is_thought_away_before_a_change_is_tried() -> None:
    """Its own three pods count towards the five that a lower request lets in."""
    fleet = Fleet(own_1=[node_row("a", 4000)])
    record = apply_and_record(fleet, deployment(3, pod=pod_template_with_cpu("1")))
    part = fleet.state.workloads["default", "web"].parts["own-1"]
    pods = {"rest": {"pods": ((PodTable("default", (("app", "web"),)), 3),)}}
    shown = [workload_facts(part.version, 3)]
    fleet.report_full_block(
        "own-1", [node_row("a", 4000, used=3000, requested={"pods": 3, "memory": 3 * 2**30}, **pods)], shown
    )
    assert record.unplaced == 0
    reply = explain_reply(fleet, ExplainRequest("default", "web", replicas=5))
    (change,) = [entry for entry in reply.changes if entry.kind == "Request"]
    assert (change.before, change.after, change.placed_before, change.placed_after) == (1000, 800, 4, 5)


@pytest.mark.parametrize(("priority", "goes_before"), [(10, True), (0, True), (-1, False)])
def test_who_is_served_first_is_said_where_nodes_would_help(priority: int, goes_before: bool) -> None:
    """Of equal priority the one that waits longer."""
    fleet = Fleet(own_1=[node_row("a", 4000, used=4000)])
    apply_and_record(fleet, deployment(4, "first"), placement_policy(priority=priority))
    fleet.now += 1
    apply_and_record(fleet, deployment(4))
    reply = explain_reply(fleet, ExplainRequest("default", "web"))
    assert [(change.kind, change.after) for change in reply.changes] == [("Nodes", 1)]
    note = "4 replicas of 1 other workload with no place go before it: they may take what more nodes bring"
    assert (note in reply.notes) == goes_before


def copied_node_rows(rows: Iterable[NodeRow], like: str, count: int) -> list[NodeRow]:
    original = next(row for row in rows if row.name == like)
    cpu, pods = original.allocatable["cpu"], original.allocatable["pods"]
    return [node_row(f"more-{number}", cpu, pods=pods, taints=original.taints) for number in range(count)]


@dataclass
class World:
    """A fleet with the nodes that it began with, and what is to be applied."""

    fleet: Fleet
    rows: dict[str, list[NodeRow]]
    manifest: dict[str, Any]
    rule: dict[str, Any]

    def count_placed(self) -> int:
        """What Apply places; 0 when it is refused, as what fits nowhere is."""
        request = ApplyRequest(manifest_texts(self.manifest, self.rule))
        try:
            return decisions.decide_apply(self.fleet.state, request, self.fleet.next_moment()).reply.placed
        except RequestError:
            return 0


def count_placed_with_change(world: World, change: ExplainedChange, after: int) -> int:
    """What is placed with a change made for good, to this amount: in the fleet, or in what is applied."""
    fleet, manifest, rule = world.fleet, world.manifest, world.rule
    spec = manifest["spec"]["template"]["spec"]
    match change.kind:
        case "Request":
            amount = f"{after}m" if change.subject == "cpu" else str(after)
            spec["containers"][0]["resources"]["requests"][change.subject] = amount
        case "Toleration":
            if after:
                spec["tolerations"] = [{"key": "gpu", "operator": "Equal", "value": "only", "effect": "NoSchedule"}]
        case "Maximum":
            rule["spec"]["limits"][0]["max"] = after
        case "NodeGroup":
            joined = fleet.state.clusters[change.cluster].joined
            assert joined is not None
            groups = tuple(replace(entry, nodes_max=after) for entry in joined.node_groups)
            fleet.state.apply_event(replace(joined, node_groups=groups), fleet.now)
        case "Nodes":
            fleet.report_change(change.cluster, copied_node_rows(world.rows[change.cluster], change.subject, after))
    return world.count_placed()


@given(st.data())
def test_each_change_does_what_it_says_and_a_little_less_does_not(data: st.DataObject) -> None:
    """Made for good, and applied: as many are placed as was said. With one step less of it, not as many."""
    rows = {name: data.draw(node_rows(letter)) for name, letter in (("own-1", "a"), ("own-2", "b"), ("cloud-1", "c"))}
    nodes_max = data.draw(st.sampled_from((None, 0, 2)))
    cpu = data.draw(st.sampled_from(("250m", "700m", "1", "1500m", "3")))
    replicas = data.draw(st.integers(1, 30))
    limit = data.draw(st.sampled_from((None, 0, 2)))

    def fresh_world() -> World:
        fleet = Fleet(own_1=list(rows["own-1"]), own_2=list(rows["own-2"]))
        groups = [node_group(nodes_max=nodes_max)] if nodes_max is not None else []
        fleet.join_cluster(joined_cluster("cloud-1", "cloud", groups), list(rows["cloud-1"]))
        limits = [] if limit is None else [{"cluster": "own-1", "max": limit}]
        return World(fleet, rows, deployment(replicas, pod=pod_template_with_cpu(cpu)), placement_policy(limits=limits))

    world = fresh_world()
    reply = explain_reply(world.fleet, explain_request(world.manifest, world.rule))
    assert fresh_world().count_placed() in (reply.placed, 0)
    for change in reply.changes:
        assert count_placed_with_change(fresh_world(), change, change.after) == change.placed_after
        if change.placed_after == change.placed_before:  # It brings replicas to the first tier.
            continue
        step = {"Request": 2**20 if change.subject == "memory" else 1}.get(change.kind, -1)
        assert count_placed_with_change(fresh_world(), change, change.after + step) < change.placed_after
