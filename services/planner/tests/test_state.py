"""The planner's state is a function of its events, whatever is delivered twice or in another order."""

from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from planner.core.background import aftermath
from planner.core.division.words import limit_text
from planner.core.knowledge.rules import PlannerRules
from planner.core.knowledge.state import PlannerState
from planner.core.requests import answers, decisions
from spillway.api import ApplyRequest, DeleteRequest, ListRequest, RequestError, ScaleRequest
from spillway.columns import columns_of
from spillway.events import (
    STATE_ABSENT,
    STATE_PRESENT,
    CapacityNeeded,
    ClusterLeft,
    DependencyDeclared,
    Event,
    PlacementDecided,
    PodsUnschedulable,
    WorkloadDeclared,
)
from spillway.model import NO_GENERATION, Generation, NodeColumns, NodeRow

from .builders import (
    Fleet,
    capacity_reported,
    container_spec,
    deployment,
    joined_cluster,
    manifest_texts,
    node_group,
    node_row,
    pod_template,
    workload_facts,
)
from .member import MemberCluster, workload_observed

WEB = ("default", "web")
Delivered = tuple[Event, NodeColumns | None]


class Log(PlannerState):
    """A planner's state that keeps what it was told and what was decided on it, in order."""

    def __init__(self, fleet: Fleet) -> None:
        super().__init__(fleet.state.rules)
        self.fleet = fleet
        self.events: list[Delivered] = []
        fleet.state = self

    def apply_event(self, event: Event, now: float, offset: int = -1, columns: NodeColumns | None = None) -> None:
        self.events.append((event, columns))
        super().apply_event(event, now, offset, columns)


def observable_state(state: PlannerState) -> object:
    """What anybody can ask, and what everything else is decided on."""
    reserved = {
        (key, name): state.reservation_of(key, name)
        for key, workload in state.workloads.items()
        for name in workload.parts
    }
    listed = answers.list_workloads(state, ListRequest())
    return listed, reserved, set(state.waiting), set(state.leaving), state.needed, state.declared.dependencies


def replay_events(events: list[Delivered], now: float = 100.0) -> PlannerState:
    state = PlannerState(PlannerRules())
    for event, columns in events:
        state.apply_event(event, now, -1, columns)
    return state


ACTIONS = st.lists(
    st.tuples(st.sampled_from(("apply", "config", "scale", "delete", "live")), st.integers(0, 1), st.integers(0, 20)),
    min_size=1,
    max_size=12,
)


def run_actions(actions: list[tuple[str, int, int]], random: Random) -> Log:
    fleet = Fleet()
    log = Log(fleet)
    members = [
        MemberCluster("own-1", [node_row("a1"), node_row("a2")], random),
        MemberCluster("cloud-1", [node_row("c1", 9000)], random),
    ]
    for member in members:
        fleet.join_cluster(joined_cluster(member.name, member.name.partition("-")[0], (node_group(),)), member.rows)
    for verb, which, replicas in actions:
        name = f"w{which}"
        try:
            for event in decide_verb(fleet, verb, name, replicas):
                fleet.state.apply_event(event, fleet.now)
        except RequestError:
            continue
        if verb == "live":
            for member in members:
                member.carry_out_all_versions(fleet)
                member.bind_one_pod()
                member.report_full_block(fleet)
            for key in list(fleet.state.leaving):
                for gone in aftermath.settle_workload(fleet.state, key, fleet.next_moment()).events:
                    fleet.state.apply_event(gone, fleet.now)  # type: ignore[arg-type]
    return log


def decide_verb(fleet: Fleet, verb: str, name: str, replicas: int) -> tuple[Event, ...]:
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"n": str(replicas)}}
    pod = pod_template(container_spec(cpu=str(1 + replicas % 2)))
    given: dict[str, tuple[dict[str, Any], ...]] = {
        "apply": (deployment(replicas, name, pod),),
        "config": (deployment(replicas, name), config),
    }
    if verb in given:
        return decisions.decide_apply(
            fleet.state, ApplyRequest(manifest_texts(*given[verb])), fleet.next_moment()
        ).events
    if verb == "scale":
        return decisions.decide_scale(fleet.state, ScaleRequest("", name, replicas), fleet.next_moment()).events
    if verb == "delete":
        return decisions.decide_delete(fleet.state, DeleteRequest("", name), fleet.next_moment()).events
    return ()


@given(ACTIONS, st.randoms(use_true_random=False), st.data())
def test_duplicates_and_repeated_prefixes_change_nothing(
    actions: list[tuple[str, int, int]], random: Random, data: st.DataObject
) -> None:
    log = run_actions(actions, random)
    events = log.events
    prefix = data.draw(st.integers(0, len(events)))
    expected = observable_state(log.fleet.state)
    assert observable_state(replay_events(events)) == expected
    assert observable_state(replay_events([event for event in events for _ in range(2)])) == expected
    assert observable_state(replay_events(events + events[:prefix])) == expected


@given(ACTIONS, st.randoms(use_true_random=False))
def test_the_order_of_topics_does_not_matter(actions: list[tuple[str, int, int]], random: Random) -> None:
    """After a restart whole topics are read one by one, each in its own order."""
    log = run_actions(actions, random)
    topics = (PlacementDecided, CapacityNeeded, DependencyDeclared, WorkloadDeclared)
    by_topic = sorted(log.events, key=lambda entry: topics.index(type(entry[0])) if type(entry[0]) in topics else -1)
    assert observable_state(replay_events(by_topic)) == observable_state(log.fleet.state)


def fleet_with_web(replicas: int = 3) -> Fleet:
    fleet = Fleet(own_1=[node_row("a"), node_row("b")])
    for event in decisions.decide_apply(
        fleet.state, ApplyRequest(manifest_texts(deployment(replicas))), fleet.next_moment()
    ).events:
        fleet.state.apply_event(event, fleet.now)
    return fleet


def version_of_part(fleet: Fleet) -> Generation:
    return fleet.state.workloads[WEB].parts["own-1"].version


def free_room(fleet: Fleet) -> int:
    shape = fleet.state.workloads[WEB].replica_shape
    return fleet.state.room_in_cluster("own-1", shape, node_groups=False, now=fleet.now).certain


def test_what_is_decided_is_reserved_until_the_cluster_counts_it() -> None:
    fleet = fleet_with_web(3)
    assert free_room(fleet) == 5
    fleet.report_change("own-1", [node_row("a", used=2000)], shown=(workload_facts(version_of_part(fleet), 2, spec=3),))
    assert (free_room(fleet), fleet.state.reservation_of(WEB, "own-1").free) == (5, 1)
    fleet.report_change("own-1", [node_row("a", used=3000)], shown=(workload_facts(version_of_part(fleet), 3),))
    assert (free_room(fleet), fleet.state.reservation_of(WEB, "own-1").free) == (5, 0)


def test_facts_that_vanish_reserve_again() -> None:
    fleet = fleet_with_web(3)
    fleet.report_change("own-1", [node_row("a", used=3000)], shown=(workload_facts(version_of_part(fleet), 3),))
    fleet.report_change("own-1", [node_row("a")], facts_removed=(WEB,))
    assert (free_room(fleet), fleet.state.reservation_of(WEB, "own-1").free) == (5, 3)


def test_facts_that_came_before_the_workload_count() -> None:
    fleet = fleet_with_web(3)
    entry = fleet.state.workloads[WEB]
    assert entry.placement is not None
    other = Fleet(own_1=[node_row("a"), node_row("b")])
    other.report_change("own-1", [node_row("a", used=3000)], shown=(workload_facts(version_of_part(fleet), 3),))
    other.state.apply_event(entry.placement, other.now)
    other.state.apply_event(entry.declared, other.now)
    assert other.state.reservation_of(WEB, "own-1").free == 0


def test_room_is_none_while_held_and_says_so() -> None:
    fleet = fleet_with_web(1)
    workload = fleet.state.workloads[WEB]
    fleet.state.apply_event(PodsUnschedulable("own-1", "default/web", 7, 1, "default/web", 1, "0/2 nodes"), fleet.now)
    aftermath.hold_clusters(fleet.state, workload, ["own-1"], fleet.now)
    room = fleet.state.room_in_cluster("own-1", workload.replica_shape, node_groups=False, now=fleet.now + 5)
    assert (room.certain, limit_text(room.limited_by)) == (
        0,
        "held for 10 s more: replicas of this shape were taken back",
    )
    fleet.now += 15
    assert free_room(fleet) == 7


def test_an_older_status_is_dropped() -> None:
    fleet = fleet_with_web()
    fleet.state.apply_event(workload_observed("own-1", WEB, NO_GENERATION, STATE_PRESENT, 5), fleet.now)
    fleet.state.apply_event(workload_observed("own-1", WEB, NO_GENERATION, STATE_ABSENT, 4), fleet.now)
    assert fleet.state.workloads[WEB].statuses["own-1"].state == STATE_PRESENT


def test_what_is_forgotten_leaves_nothing() -> None:
    fleet = Fleet()
    fleet.join_cluster(joined_cluster("c", "cloud", (node_group(),)), [node_row("n")])
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}
    decided = decisions.decide_apply(
        fleet.state, ApplyRequest(manifest_texts(deployment(6), config)), fleet.next_moment()
    )
    for event in decided.events:
        fleet.state.apply_event(event, fleet.now)
    fleet.state.forget_workload(WEB)
    assert observable_state(fleet.state) == observable_state(PlannerState(PlannerRules()))
    assert fleet.state.unbound_places() == set()


def test_a_cluster_that_left_has_no_room_and_stops_nothing() -> None:
    """Its parts stay listed; nothing is taken back from what cannot be seen, and nothing fails."""
    fleet = fleet_with_web(3)
    fleet.report_change("own-1", shown=(workload_facts(version_of_part(fleet), spec=3),))
    aftermath.update_progress_timers(fleet.state, fleet.now)
    fleet.state.apply_event(ClusterLeft("own-1"), fleet.now)
    fleet.now += 100
    aftermath.update_progress_timers(fleet.state, fleet.now)
    assert list(aftermath.workloads_to_take_back(fleet.state, fleet.next_moment())) == []
    assert set(fleet.state.workloads[WEB].parts) == {"own-1"}


def test_a_full_block_of_a_cluster_that_did_not_join_yet_is_kept() -> None:
    rows: list[NodeRow] = [node_row("a")]
    fleet = Fleet()
    fleet.state.apply_event(capacity_reported("own-1", rows), fleet.now, columns=columns_of(rows))
    fleet.state.apply_event(joined_cluster("own-1"), fleet.now)
    fleet.sequences["own-1"] = 0
    fleet.send_heartbeats("own-1")
    assert fleet.state.clusters["own-1"].fit_of_shape(apply_and_find_shape(fleet)).total == 4


def apply_and_find_shape(fleet: Fleet) -> Any:
    for event in decisions.decide_apply(
        fleet.state, ApplyRequest(manifest_texts(deployment(1))), fleet.next_moment()
    ).events:
        fleet.state.apply_event(event, fleet.now)
    return fleet.state.workloads[WEB].replica_shape
