"""What a plan looks at only when something of it changed is what is there, whatever happens in between."""

from dataclasses import replace
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from planner.core.explaining.supposing import IndistinguishablePods, Supposition
from planner.core.requests import decisions
from spillway.api import ApplyRequest, RequestError
from spillway.events import PHASE_ACTIVE, PHASE_CORDONED, ClusterLeft
from spillway.model import PodSelector, PodTable, Requirement, Shape, Spread

from .builders import (
    Fleet,
    container_spec,
    deployment,
    joined_cluster,
    make_shape,
    manifest_texts,
    node_group,
    node_row,
    pod_template,
    workload_facts,
)

NAMES = ("own-1", "own-2", "cloud-1")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["change", "beat", "report", "phase", "groups", "leave", "wait", "server"]),
        st.sampled_from(NAMES),
        st.integers(0, 4),
    ),
    max_size=10,
)

SPREAD = make_shape(500, spread=(Spread(PodSelector((Requirement("app", "In", ("web",)),)), 1),))


def take_story_step(fleet: Fleet, verb: str, name: str, number: int) -> None:
    if verb == "wait":
        fleet.now += 4 * number
        return
    joined = fleet.state.clusters[name].joined if name in fleet.state.clusters else None
    if joined is None:
        fleet.join_cluster(joined_cluster(name), [node_row("a")])
        return
    match verb:
        case "change":
            fleet.report_change(name, [node_row("a", used=1000 * number), node_row(f"b{number}")])
        case "beat":
            fleet.report_change(name, age_ms=3000 * number)
        case "report":
            fleet.report_full_block(name, [node_row("a"), node_row("b", cpu=1000 * number)])
        case "phase":
            fleet.state.apply_event(replace(joined, phase=PHASE_CORDONED if number % 2 else PHASE_ACTIVE), fleet.now)
        case "groups":
            fleet.state.apply_event(
                replace(joined, node_groups=(node_group(nodes_max=number),) if number else ()), fleet.now
            )
        case "leave":
            fleet.state.apply_event(ClusterLeft(name), fleet.now)
            fleet.sequences.pop(name)
        case "server":
            fleet.report_full_block(name, [node_row("a")], api_server=f"server-{number % 2}")


@given(steps=STEPS, wanted=st.sampled_from([make_shape(500), SPREAD]))
@example(steps=[("wait", "own-1", 0), ("leave", "own-1", 0), ("change", "own-1", 0)], wanted=SPREAD)
def test_what_is_looked_at_again_only_when_it_changed_is_what_is_there(steps: list[Any], wanted: Shape) -> None:
    """Also of a cluster that leaves, and joins again under its name with other nodes."""
    fleet = Fleet(own_1=[node_row("a", 8000)], own_2=[node_row("a", 8000)], cloud_1=[node_row("a")])
    for verb, name, number in steps:
        take_story_step(fleet, verb, name, number)
        anew = Supposition(
            fleet.state, None
        ).supposed_state()  # It has looked at nothing yet, and looks at all each time.
        assert fleet.state.rooms_of_fleet(wanted, fleet.now) == anew.rooms_of_fleet(wanted, fleet.now)
        assert fleet.state.joined_clusters() == anew.joined_clusters()
        assert fleet.state.ages_ms(fleet.now) == anew.ages_ms(fleet.now)


# ── What is supposed ────────────────────────────────────────────────────────────────────────────────────────────────

SUPPOSED_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["change", "report", "groups", "leave", "apply", "bind", "more nodes", "wider group"]),
        st.sampled_from(NAMES),
        st.integers(0, 4),
    ),
    max_size=10,
)
OWN = ("default", "web")


def apply_workload(fleet: Fleet, name: str, replicas: int, cpu: int) -> None:
    """Nothing happens where it is refused."""
    manifest = deployment(replicas, name, pod_template(container_spec(cpu=f"{cpu}m")))
    try:
        decided = decisions.decide_apply(fleet.state, ApplyRequest(manifest_texts(manifest)), fleet.next_moment())
    except RequestError:
        return
    for event in decided.events:
        fleet.state.apply_event(event, fleet.now)


def report_web_bound(fleet: Fleet, cluster_name: str) -> None:
    """All of web that is placed there runs there, on one node."""
    part = fleet.state.workloads[OWN].parts.get(cluster_name)
    if part is None or cluster_name not in fleet.sequences:
        return
    pods = ((PodTable("default", (("app", "web"),)), part.replicas),) if part.replicas else ()
    rows = [node_row("a", 8000, used=500 * part.replicas, rest={"pods": pods})]
    fleet.report_full_block(cluster_name, rows, [workload_facts(part.version, part.replicas)])


@given(steps=SUPPOSED_STEPS, wanted=st.sampled_from([make_shape(500), make_shape(700), SPREAD]))
def test_what_is_supposed_again_and_again_is_what_one_would_suppose_anew(
    steps: list[tuple[str, str, int]], wanted: Shape
) -> None:
    """Whatever happens between two questions, and whatever the one before supposed."""
    fleet = Fleet(own_1=[node_row("a", 8000)], own_2=[node_row("a", 8000)], cloud_1=[node_row("a")])
    apply_workload(fleet, "web", 20, 500)
    kept = Supposition(fleet.state, fleet.state.workloads[OWN])
    for verb, name, number in steps:
        if verb == "apply":
            apply_workload(fleet, f"other-{number % 2}", number, 300)
        elif verb == "bind":
            report_web_bound(fleet, name)
        elif verb not in ("more nodes", "wider group"):
            take_story_step(fleet, verb, name, number)
        try:
            anew = Supposition(fleet.state, fleet.state.workloads[OWN]).supposed_state()
        except IndistinguishablePods:
            continue
        again = kept.supposed_state()
        joined = fleet.state.clusters[name].joined if name in fleet.state.clusters else None
        if joined is not None and verb == "more nodes":
            rows = [node_row(f"more-{index}") for index in range(number)]
            again, anew = again.with_nodes(name, rows), anew.with_nodes(name, rows)
        if joined is not None and joined.node_groups and verb == "wider group":
            again, anew = again.with_wider_group(name, "burst", number), anew.with_wider_group(name, "burst", number)
        assert again.rooms_of_fleet(wanted, fleet.now) == anew.rooms_of_fleet(wanted, fleet.now)
