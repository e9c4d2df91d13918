"""Simulations: an export is the state again, and what is decided on it is what the planner would decide."""

import gzip
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.api import exports
from planner.core.background.round import steps_of_round
from planner.core.division.words import limit_text
from planner.core.explaining import simulating
from planner.core.explaining.simulating import Simulation, kept_replicas_by_cluster
from planner.core.feasibility.limits import LimitCode
from planner.core.knowledge.rules import PlannerRules
from planner.core.knowledge.state import PlannerState
from planner.core.knowledge.timers import PlacementHold
from planner.core.requests import decisions
from spillway.api import ApplyRequest, ExportedEvent, ExportReply, RequestError, ScaleRequest
from spillway.columns import NO_NODES
from spillway.events import BrakeSet
from spillway.model import NamespaceFacts, PodTable, Quota, Taint
from spillway.wire import encode_event, event_type

from .builders import (
    Fleet,
    capacity_changed,
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
from .test_moves_always import CORES, World

FLEET_ID = "test-1"


def export_fleet(fleet: Fleet) -> list[ExportReply]:
    return list(exports.export_state(fleet.state, fleet.now, 12, FLEET_ID))


def simulation_of(fleet: Fleet) -> Simulation:
    return Simulation(exports.read_state(export_fleet(fleet)), exports.NOW, 12)


def deployment_with_cpu(name: str, replicas: int, cpu: str = "1") -> dict[str, Any]:
    return deployment(replicas, name, pod_template(container_spec(cpu=cpu)))


def apply_and_place(fleet: Fleet, *manifests: dict[str, Any]) -> dict[str, int]:
    decided = decisions.decide_apply(fleet.state, ApplyRequest(manifest_texts(*manifests)), fleet.next_moment())
    for event in decided.events:
        fleet.state.apply_event(event, fleet.now)
    return {part.cluster: part.replicas for part in decided.reply.parts}


def fleet_of_three() -> Fleet:
    taint = (Taint("gpu", "only", "NoSchedule"),)
    rest = {"pods": ((PodTable("default", (("app", "x"),)), 2),), "ports": ()}
    fleet = Fleet(
        own_1=[node_row("a", 4000, used=500, rest=rest), node_row("g", taints=taint)], own_2=[node_row("b", 6000)]
    )
    fleet.join_cluster(
        joined_cluster("cloud-1", "cloud", [node_group()]),
        [node_row("c", 3000, labels={"zone": "z"}, unschedulable=True)],
    )
    return fleet


# ── The state ───────────────────────────────────────────────────────────────────────────────────────────────────────


def placement_inputs(state: PlannerState, now: float) -> object:
    """What a placement may depend on."""
    shapes = (make_shape(300), make_shape(1000), make_shape(1000, tolerations=()), make_shape(5000))
    names = [joined.cluster for joined in state.joined_clusters()]
    rooms = [
        state.room_in_cluster(name, one, groups, now) for name in names for one in shapes for groups in (False, True)
    ]
    placements = {key: (workload.placement, workload.declared.policy) for key, workload in state.workloads.items()}
    statuses = {key: workload.statuses for key, workload in state.workloads.items()}
    return rooms, placements, statuses, state.brakes.brakes, set(state.declared.dependencies)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("scale"), st.sampled_from(("web", "big")), st.integers(0, 14)),
        st.tuples(st.just("work"), st.sampled_from(sorted(CORES)), st.just(0)),
        st.tuples(st.just("pass"), st.just(""), st.integers(1, 90)),
        st.tuples(st.just("silent"), st.sampled_from(sorted(CORES)), st.just(0)),
    ),
    max_size=12,
)


@given(steps)
def test_an_export_is_the_state_again_after_any_story(story: list[tuple[str, str, int]]) -> None:
    """Every room, placement, status and brake; of the holds those that go on."""
    world = World()
    for verb, name, number in story:
        match verb:
            case "scale":
                world.scale_workload(("default", name), number)
            case "work":
                world.run_cluster(name)
            case "pass":
                world.pass_time(number)
            case "silent":
                world.members[name].silent = True
    world.apply_events((BrakeSet("cluster/own-1", "audit", "ann", 5),))
    fleet = world.fleet
    copy = exports.read_state(list(exports.export_state(fleet.state, fleet.now, 12, FLEET_ID)))
    assert placement_inputs(copy, exports.NOW) == placement_inputs(fleet.state, fleet.now)


def test_holds_go_on_in_an_export() -> None:
    fleet = fleet_of_three()
    fleet.state.holds["own-2", make_shape(1000)] = PlacementHold(fleet.now + 40, 60)
    fleet.state.holds["own-1", ("default", "web")] = PlacementHold(fleet.now - 1, 60)
    fleet.state.holds["own-2", ("default", "web")] = PlacementHold(fleet.now + 90, 300, why="the object is helm's")
    copy = exports.read_state(export_fleet(fleet))
    assert copy.holds == {
        ("own-2", make_shape(1000)): PlacementHold(exports.NOW + 40, 60),
        ("own-2", ("default", "web")): PlacementHold(exports.NOW + 90, 300, why="the object is helm's"),
    }
    assert copy.room_in_cluster("own-2", make_shape(1000), False, exports.NOW).limited_by[:2] == (LimitCode.HELD, 40)
    waits = copy.room_in_cluster("own-2", make_shape(7), False, exports.NOW, ("default", "web"))
    assert (
        limit_text(waits.limited_by)
        == "held for 90 s more: replicas of this workload were taken back: the object is helm's"
    )


def test_quotas_and_labels_of_namespaces_are_in_an_export() -> None:
    fleet = fleet_of_three()
    quota = Quota("compute", (("requests.cpu", 3000),), (("requests.cpu", 1000),))
    said = NamespaceFacts("default", (("team", "a"),), (quota,))
    view = fleet.state.clusters["own-2"]
    event = replace(capacity_changed("own-2", fleet.sequences["own-2"] + 1), namespaces=(said,))
    fleet.state.apply_event(event, fleet.now, 9, NO_NODES)
    copy = exports.read_state(export_fleet(fleet)).clusters["own-2"]
    assert copy.quotas == view.quotas == {"default": (quota,)}
    assert copy.nodes.namespaces == view.nodes.namespaces


def test_an_export_has_no_credential_and_no_content_of_dependencies() -> None:
    fleet = fleet_of_three()
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"password": "hush"}}
    fleet.join_cluster(joined_cluster("own-3"), [node_row("d")])
    apply_and_place(fleet, deployment_with_cpu("web", 1), config_map)
    values = b"".join(entry.value for reply in export_fleet(fleet) for entry in reply.events)
    assert b"hush" not in values
    joined = exports.read_state(export_fleet(fleet)).joined_clusters()
    assert {(entry.credential, entry.endpoint) for entry in joined} == {("", "")}


def test_a_file_has_what_was_saved(tmp_path: Path) -> None:
    replies = export_fleet(fleet_of_three())
    exports.save_export(replies, tmp_path / "fleet.gz")
    assert exports.load_export(tmp_path / "fleet.gz") == replies


def incomplete_exports(replies: list[ExportReply]) -> list[list[ExportReply]]:
    """Without each of its events in turn, without its last answer, and without all but its first."""
    fewer = [
        [
            *replies[:place],
            replace(reply, events=reply.events[:index] + reply.events[index + 1 :]),
            *replies[place + 1 :],
        ]
        for place, reply in enumerate(replies)
        for index in range(len(reply.events))
    ]
    return [*fewer, replies[:-1], replies[:1]]


def test_an_export_from_which_a_record_is_missing_or_that_has_one_twice_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exports, "EVENTS_AT_ONCE_MAX", 3)
    fleet = fleet_of_three()
    apply_and_place(fleet, deployment_with_cpu("web", 3))
    replies = export_fleet(fleet)
    assert len(replies) > 3
    for fewer in incomplete_exports(replies):
        with pytest.raises(exports.NotAnExport, match=r"records are missing|its end is missing"):
            exports.read_state(fewer)
    with pytest.raises(exports.NotAnExport, match=r"\d+ of \d+ are there; .*ClusterJoined: [3-9], expected 3"):
        exports.read_state([replies[0], *(replies[1], *replies[1:])])


def test_an_export_of_a_version_that_did_not_count_is_read() -> None:
    old = [replace(reply, counted=False, counts=()) for reply in export_fleet(fleet_of_three())]
    assert not exports.has_event_counts(old)
    assert set(exports.read_state(old).clusters) == {"own-1", "own-2", "cloud-1"}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param(b"", "it is empty", id="empty"),
        pytest.param(gzip.compress(b""), "it is empty", id="nothing compressed"),
        pytest.param(b"text", "Not a gzipped file", id="text"),
        pytest.param(b"\x1f\x8b\x08", "Compressed file ended", id="cut"),
        pytest.param(gzip.compress(b"[]\n"), "Expected `object`, got `array`", id="another document"),
    ],
)
def test_a_file_that_is_none_is_said(content: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "fleet.gz"
    path.write_bytes(content)
    with pytest.raises(exports.NotAnExport, match=words):
        exports.load_export(path)
    with pytest.raises(exports.NotAnExport, match=f"^{tmp_path}: Is a directory$"):
        exports.load_export(tmp_path)


def test_of_a_file_that_is_cut_off_it_is_said_after_how_many_records_of_how_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two lines, in a line, and in the compressed bytes; of an older version, which did not say how many."""
    monkeypatch.setattr(exports, "EVENTS_AT_ONCE_MAX", 3)
    fleet = fleet_of_three()
    apply_and_place(fleet, deployment_with_cpu("web", 3))
    path = tmp_path / "fleet.gz"
    replies = export_fleet(fleet)
    total = sum(len(reply.events) for reply in replies)
    exports.save_export(replies, path)
    whole = path.read_bytes()
    lines = gzip.decompress(whole).splitlines(keepends=True)
    for count, line in enumerate(lines[1:], start=1):
        read = sum(len(reply.events) for reply in replies[:count])
        for begun in (b"", line[: len(line) // 2]):
            path.write_bytes(gzip.compress(b"".join(lines[:count]) + begun))
            with pytest.raises(exports.NotAnExport, match=f"it is cut off after {read} of {total} records"):
                exports.load_export(path)
    path.write_bytes(whole[:-9])
    with pytest.raises(exports.NotAnExport, match=rf"it is cut off after \d+ of {total} records"):
        exports.load_export(path)
    old = msgspec.json.encode(replace(replies[0], counted=False)) + b"\n"
    path.write_bytes(gzip.compress(old + lines[1][:40]))
    with pytest.raises(exports.NotAnExport, match="it is cut off after 0 records"):
        exports.load_export(path)


def test_a_file_with_a_damaged_byte_is_said(tmp_path: Path) -> None:
    path = tmp_path / "fleet.gz"
    exports.save_export(export_fleet(fleet_of_three()), path)
    saved = path.read_bytes()
    for place in range(20, len(saved), 97):
        path.write_bytes(saved[:place] + bytes((saved[place] ^ 0xFF,)) + saved[place + 1 :])
        with pytest.raises(exports.NotAnExport):
            exports.load_export(path)


@pytest.mark.parametrize(
    ("manifest", "split"), [(b"no JSON", "Spread"), (None, "Newest")], ids=["manifest", "a split of a later version"]
)
def test_a_declaration_that_cannot_be_decided_on_is_said(manifest: bytes | None, split: str) -> None:
    fleet = Fleet(own_1=[node_row("a")])
    apply_and_place(fleet, deployment(2))
    declared = fleet.state.workloads["default", "web"].declared
    tiers = tuple(replace(tier, split=split) for tier in declared.policy.tiers)
    broken = replace(declared, manifest=manifest or declared.manifest, policy=replace(declared.policy, tiers=tiers))
    event = ExportedEvent(event_type(broken), encode_event(broken))
    with pytest.raises(exports.NotAnExport, match="an event of it cannot be read by this version"):
        exports.read_state([ExportReply(settings=PlannerRules().to_text(), events=(event,))])


def test_settings_are_read_back_from_a_record() -> None:
    rules = PlannerRules(capacity_age_max=7.5, keys_kept_max=3)
    assert PlannerRules.from_text(rules.to_text() + " unknown_to_us=4") == rules


# ── What would be ───────────────────────────────────────────────────────────────────────────────────────────────────

requests = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 12), st.sampled_from(("300m", "1", "2500m", "9"))),
    min_size=1,
    max_size=8,
)


@given(requests)
def test_a_simulation_answers_as_apply_then_does(wanted: list[tuple[int, int, str]]) -> None:
    """One after another, on a fleet where something is promised already; refused where Apply refuses."""
    fleet = fleet_of_three()
    apply_and_place(fleet, deployment_with_cpu("before", 3))
    simulation = simulation_of(fleet)
    for number, replicas, cpu in wanted:
        asked = deployment_with_cpu(f"web-{number}", replicas, cpu)
        answer = simulation.answer_request(f"web-{number}", ApplyRequest(manifest_texts(asked)))
        if answer.placement is None:
            with pytest.raises(RequestError) as refused:
                apply_and_place(fleet, asked)
            assert answer.refused == f"{refused.value.code}: {refused.value.text}"
        else:
            parts = apply_and_place(fleet, asked)
            assert {part.cluster: part.replicas for part in answer.placement.parts} == parts


def test_nothing_of_the_planner_changes() -> None:
    fleet = fleet_of_three()
    apply_and_place(fleet, deployment_with_cpu("web", 5))
    before = placement_inputs(fleet.state, fleet.now)
    simulation = simulation_of(fleet)
    simulation.answer_request("api", ApplyRequest(manifest_texts(deployment_with_cpu("api", 4))))
    simulation.lose_cluster("own-1")
    simulation.add_nodes("own-2", "b", 3)
    assert simulation.run_until_quiet()
    assert placement_inputs(fleet.state, fleet.now) == before


def test_what_was_in_a_cluster_that_is_gone_goes_elsewhere_or_waits() -> None:
    fleet = Fleet(own_1=[node_row("a", 8000)], own_2=[node_row("b", 6000)])
    rule = placement_policy(tiers=[{"name": "all", "clusters": {}, "split": "Spread"}])
    apply_and_place(fleet, deployment_with_cpu("web", 12), rule)
    simulation = simulation_of(fleet)
    simulation.lose_cluster("own-1")
    assert simulation.run_until_quiet()
    (outcome,) = simulation.placement_outcomes()
    assert (outcome.before, outcome.after, outcome.unplaced) == ({"own-1": 7, "own-2": 5}, {"own-2": 6}, 6)


@pytest.mark.parametrize(
    ("place", "like", "count", "placed"),
    [
        pytest.param("own-1", "a", 2, 8, id="like a node"),
        pytest.param("cloud-1", "burst", 1, 4, id="of a node group"),
    ],
)
def test_more_nodes_let_in_what_waits(place: str, like: str, count: int, placed: int) -> None:
    fleet = Fleet(own_1=[node_row("a", 4000, used=3500)])
    fleet.join_cluster(joined_cluster("cloud-1", "cloud", [node_group(nodes_max=0)]), [node_row("c", 500)])
    apply_and_place(fleet, deployment_with_cpu("web", 10))
    simulation = simulation_of(fleet)
    simulation.add_nodes(place, like, count)
    assert simulation.run_until_quiet()
    (outcome,) = simulation.placement_outcomes()
    assert (outcome.before, outcome.after) == ({}, {place: placed})


def test_more_nodes_that_are_asked_for_twice_come_twice() -> None:
    fleet = Fleet(own_1=[node_row("a", 4000, used=3500)])
    apply_and_place(fleet, deployment_with_cpu("web", 20))
    simulation = simulation_of(fleet)
    for count in (1, 2):
        simulation.add_nodes("own-1", "a", count)
    assert simulation.run_until_quiet()
    (outcome,) = simulation.placement_outcomes()
    assert outcome.after == {"own-1": 12}


# ── What follows is what the planner does unasked, in its order ─────────────────────────────────────────────────────


def fleet_with_overflow(rules: PlannerRules | None = None) -> Fleet:
    """web has 4 at home and 6 in the cloud, all bound."""
    fleet = Fleet(own_1=[node_row("a", 4000)], cloud_1=[node_row("c", 20_000)])
    fleet.state.rules = rules or PlannerRules()
    apply_and_place(fleet, deployment_with_cpu("web", 10))
    for name, cores in (("own-1", 4), ("cloud-1", 20)):
        part = fleet.state.workloads["default", "web"].parts[name]
        bound = workload_facts(
            part.version, part.replicas, spec=part.replicas, status=part.replicas, updated=part.replicas
        )
        fleet.report_change(name, [node_row("ac"[cores > 4], cores * 1000, used=part.replicas * 1000)], shown=(bound,))
    return fleet


def simulation_with_nodes(fleet: Fleet, count: int) -> Simulation:
    simulation = simulation_of(fleet)
    simulation.add_nodes("own-1", "a", count)
    assert simulation.run_until_quiet()
    return simulation


def test_overflow_goes_home_where_nodes_are_added_less_the_margin_that_stays_free() -> None:
    (outcome,) = simulation_with_nodes(fleet_with_overflow(), 1).placement_outcomes()
    assert (outcome.before, outcome.after) == ({"own-1": 4, "cloud-1": 6}, {"own-1": 7, "cloud-1": 3})
    (outcome,) = simulation_with_nodes(fleet_with_overflow(), 2).placement_outcomes()
    assert outcome.after == {"own-1": 10}


@pytest.mark.parametrize("never", [{"home_moves_per_minute": 0.0}, {"moves_per_minute": 0.0}])
def test_a_planner_that_sends_none_home_does_not_do_so_in_a_simulation(never: dict[str, float]) -> None:
    assert simulation_with_nodes(fleet_with_overflow(PlannerRules(**never)), 2).placement_outcomes() == []  # type: ignore[arg-type]


def test_nothing_goes_home_through_the_brake_of_a_person() -> None:
    fleet = fleet_with_overflow()
    fleet.state.apply_event(BrakeSet("cluster/own-1", "audit", "ann", 5), fleet.now)
    assert simulation_with_nodes(fleet, 2).placement_outcomes() == []


def test_a_cluster_that_is_gone_is_listed_no_more_once_nothing_is_left_there() -> None:
    fleet = fleet_of_three()
    apply_and_place(fleet, deployment_with_cpu("web", 5))
    simulation = simulation_of(fleet)
    simulation.lose_cluster("own-1")
    assert simulation.run_until_quiet()
    assert "own-1" not in simulation.state.clusters


def test_no_time_passes_so_nothing_is_taken_back_and_pauses_go_on() -> None:
    """Two that have not bound stay, though a planner would take them back a while later."""
    fleet = fleet_with_overflow()
    fleet.state.holds["cloud-1", ("default", "new")] = PlacementHold(fleet.now + 1.5, 60)
    part = fleet.state.workloads["default", "web"].parts["own-1"]
    fleet.report_change("own-1", shown=(workload_facts(part.version, 2, spec=4, status=4, updated=4),))
    simulation = simulation_of(fleet)
    simulation.answer_request("new", ApplyRequest(manifest_texts(deployment_with_cpu("new", 3))))
    assert simulation.run_until_quiet()
    (outcome,) = simulation.placement_outcomes()
    assert (outcome.workload, outcome.after, outcome.unplaced) == ("default/new", {}, 3)


def test_the_steps_of_what_follows_are_those_of_a_round(calls_of: Any) -> None:
    """Each is applied before the next is asked for, until a round changes nothing."""
    with calls_of(Simulation._run_round, steps_of_round, Simulation._apply_events, PlannerState.apply_event) as calls:
        simulation_with_nodes(fleet_with_overflow(), 1)
    rounds: list[list[str]] = []
    for call in calls:
        if call.of == "_run_round":
            rounds.append([])
        elif rounds:
            rounds[-1].append(call.of)
    applied_events = [names.count("apply_event") for names in rounds]
    assert [count > 0 for count in applied_events] == [False, True, False, False], "found, gone, and twice nothing"
    for names in rounds:
        asked_and_kept = [name for name in names if name != "apply_event"]
        assert asked_and_kept == ["steps_of_round", *["_apply_events", "steps_of_round"] * (len(asked_and_kept) // 2)]


def test_a_simulation_that_does_not_end_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulating, "ROUNDS_MAX", 3)
    simulation = simulation_of(fleet_with_overflow())
    simulation.add_nodes("own-1", "a", 1)
    assert not simulation.run_until_quiet()


def test_what_is_only_possible_is_not_used_in_the_end() -> None:
    """A promise of 1 core may cost either node a place of 3 cores: one is certain."""
    fleet = Fleet(own_1=[node_row("a", 3000), node_row("b", 3000)])
    apply_and_place(fleet, deployment_with_cpu("small", 1))
    simulation = simulation_of(fleet)
    simulation.answer_request("large", ApplyRequest(manifest_texts(deployment_with_cpu("large", 2, "3"))))
    assert simulation.run_until_quiet()
    workload = simulation.state.workloads["default", "large"]
    assert (kept_replicas_by_cluster(workload), workload.unplaced) == ({"own-1": 1}, 1)


@pytest.mark.parametrize(
    ("place", "like", "count", "words"),
    [
        ("own-9", "a", 1, "a cluster of the fleet"),
        ("own-1", "x", 1, "a node group of own-1"),
        ("own-1", "a", 0, "1 to 10000"),
    ],
    ids=["cluster", "node", "count"],
)
def test_what_cannot_be_supposed_is_said(place: str, like: str, count: int, words: str) -> None:
    with pytest.raises(RequestError, match=words):
        simulation_of(fleet_of_three()).add_nodes(place, like, count)


def test_a_scale_after_a_simulation_is_as_before_it() -> None:
    """The generations of a simulation are beyond all that are known, and stay in it."""
    fleet = fleet_of_three()
    apply_and_place(fleet, deployment_with_cpu("web", 2))
    simulation_of(fleet).answer_request("web", ApplyRequest(manifest_texts(deployment_with_cpu("web", 5))))
    scaled = decisions.decide_scale(fleet.state, ScaleRequest("default", "web", 3), fleet.next_moment())
    assert scaled.reply.placed == 3
