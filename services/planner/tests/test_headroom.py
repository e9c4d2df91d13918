"""What is idle for work that follows it: no more than fits, the same whatever that does, said when it changes."""

import json
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.core.background import aftermath
from planner.core.background.headroom import HeadroomPace, Headrooms, IdleHeadroom, headroom_by_supply_class
from planner.core.requests import autoscaling, decisions, membership
from spillway.amounts import AMOUNT_MAX, INT64_MAX, PODS_MAX
from spillway.api import ApplyRequest, ScaleRequest, SetClusterPhaseRequest
from spillway.dead_letters import outgoing_record
from spillway.events_scaling import LoadObserved, ScaleDecided, ScalePolicyDeclared
from spillway.lending_marks import SUPPLY_CLASS
from spillway.model import Generation, NodeRow

from .builders import (
    Fleet,
    container_spec,
    deployment,
    joined_cluster,
    manifest_texts,
    node_row,
    placement_policy,
    pod_template,
)
from .member import MemberCluster

WEB = ("default", "web")
PACE = HeadroomPace(look=5.0, repeat=30.0, settle=10.0, looks_max=50)


class Ground:
    """Members that carry out what is decided, and workloads that follow what is idle."""

    def __init__(self, rows: dict[str, list[NodeRow]], seed: int = 1) -> None:
        self.fleet = Fleet(**rows)
        random = Random(seed)
        self.members = [MemberCluster(name.replace("_", "-"), list(nodes), random) for name, nodes in rows.items()]
        self.sequence = 0

    def apply_manifests(self, *manifests: dict[str, Any]) -> None:
        for event in decisions.decide_apply(
            self.fleet.state, ApplyRequest(manifest_texts(*manifests)), self.fleet.next_moment()
        ).events:
            self.fleet.state.apply_event(event, self.fleet.now)

    def scale_and_count_unplaced(self, replicas: int, name: str = "web") -> int:
        """How many have no place."""
        done = decisions.decide_scale(self.fleet.state, ScaleRequest("", name, replicas), self.fleet.next_moment())
        for event in done.events:
            self.fleet.state.apply_event(event, self.fleet.now)
        return done.reply.unplaced

    def decide_replicas_by_policy(self, replicas: int) -> None:
        """As the policy of web does."""
        self.sequence += 1
        decided = ScaleDecided(*WEB, Generation(3, self.sequence), "web-idle", "ScalePolicy", replicas, 0, 1, "")
        self.fleet.state.apply_event(decided, self.fleet.now)
        for event in autoscaling.declare_scale_decision(
            self.fleet.state, self.fleet.state.workloads[WEB], self.fleet.next_moment()
        ):
            self.fleet.state.apply_event(event, self.fleet.now)

    def declare_headroom_policy(self, *classes: str, name: str = "web") -> None:
        self.sequence += 1
        shares = [{"supplyClass": one, "percent": 50} for one in classes]
        manifest = json.dumps({"spec": {"headroom": shares}}).encode()
        generation = Generation(3, self.sequence)
        event = ScalePolicyDeclared("default", name, generation, "ScalePolicy", f"{name}-idle", manifest, 1)
        self.fleet.state.apply_event(event, self.fleet.now)

    def carry_out_decisions(self) -> None:
        for member in self.members:
            member.carry_out_all_versions(self.fleet)
        for key in list(self.fleet.state.leaving):
            for event in aftermath.settle_workload(self.fleet.state, key, self.fleet.next_moment()).events:
                self.fleet.state.apply_event(event, self.fleet.now)

    def bind_all_pods(self) -> None:
        for member in self.members:
            while member.bind_one_pod():
                pass

    def report_all_members(self) -> None:
        for member in self.members:
            member.report_full_block(self.fleet)

    def idle_by_supply_class(self, name: str = "web") -> dict[str, IdleHeadroom]:
        return headroom_by_supply_class(self.fleet.state, self.fleet.state.workloads["default", name], self.fleet.now)

    def set_phase(self, name: str, phase: str) -> None:
        done = membership.set_phase(self.fleet.state, SetClusterPhaseRequest(name, phase), self.fleet.next_moment())
        for event in done.events:
            self.fleet.state.apply_event(event, self.fleet.now)


def pod_template_with_cpu(cpu: str = "1", **spec: Any) -> dict[str, Any]:
    return pod_template(container_spec(cpu=cpu), **spec)


NODES = st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 5000)), min_size=1, max_size=3)


@given(
    nodes=st.fixed_dictionaries({"own_1": NODES, "own_2": NODES, "cloud_1": NODES}),
    cpu=st.sampled_from([900, 1000, 1700]),
    sizes=st.lists(st.integers(0, 20), min_size=1, max_size=4),
    other=st.integers(0, 4),
    seed=st.integers(0, 1000),
)
def test_what_is_idle_fits_and_is_the_same_whatever_the_workload_does(
    nodes: dict[str, list[tuple[int, int]]], cpu: int, sizes: list[int], other: int, seed: int
) -> None:
    rows = {
        name: [node_row(f"{name}-{number}", size, min(used, size)) for number, (size, used) in enumerate(shapes)]
        for name, shapes in nodes.items()
    }
    ground = Ground(rows, seed)
    random = Random(seed)
    ground.apply_manifests(deployment(0, pod=pod_template_with_cpu(f"{cpu}m")))
    ground.apply_manifests(deployment(0, "api", pod=pod_template_with_cpu("500m")))
    ground.scale_and_count_unplaced(other, "api")
    for step in (ground.carry_out_decisions, ground.bind_all_pods, ground.report_all_members):
        step()
    there = {name: idle.replicas for name, idle in ground.idle_by_supply_class().items()}
    most = sum(there.values())
    for size in sizes:
        ground.scale_and_count_unplaced(min(size, most))
        for step in (ground.carry_out_decisions, ground.bind_all_pods, ground.report_all_members)[
            : random.randrange(4)
        ]:
            step()
            assert {name: idle.replicas for name, idle in ground.idle_by_supply_class().items()} == there
    for step in (ground.carry_out_decisions, ground.bind_all_pods, ground.report_all_members):
        step()
    assert ground.scale_and_count_unplaced(most) == 0, "as many as are said to fit have a place"
    for step in (ground.carry_out_decisions, ground.bind_all_pods, ground.report_all_members):
        step()
    assert all(member.would_all_pods_bind(random) for member in ground.members)
    assert {name: idle.replicas for name, idle in ground.idle_by_supply_class().items()} == there


def test_the_class_is_the_label_of_the_cluster_else_its_tier() -> None:
    ground = Ground({"own_1": [node_row("a")], "cloud_1": [node_row("c", 8000)]})
    ground.fleet.join_cluster(joined_cluster("pool", **{SUPPLY_CLASS: "idle"}), [node_row("p", 3000)])
    ground.apply_manifests(deployment(1, pod=pod_template_with_cpu()))
    assert ground.idle_by_supply_class() == {
        "dedicated": IdleHeadroom(4),
        "cloud": IdleHeadroom(8),
        "idle": IdleHeadroom(3),
    }
    ground.apply_manifests(
        deployment(1, pod=pod_template_with_cpu()),
        placement_policy(tiers=[{"name": "own", "clusters": {"names": ["pool", "own-1"]}}]),
    )
    assert ground.idle_by_supply_class() == {"dedicated": IdleHeadroom(4), "idle": IdleHeadroom(3)}
    limits = [{"cluster": "own-1", "max": 2}]
    ground.apply_manifests(deployment(1, pod=pod_template_with_cpu()), placement_policy(limits=limits))
    assert ground.idle_by_supply_class()["dedicated"] == IdleHeadroom(2)


def test_a_cluster_that_is_left_has_nothing_and_one_that_is_silent_is_unknown() -> None:
    ground = Ground({"own_1": [node_row("a"), node_row("b")]})
    ground.apply_manifests(deployment(3, pod=pod_template_with_cpu()))
    for step in (ground.carry_out_decisions, ground.bind_all_pods, ground.report_all_members):
        step()
    assert ground.idle_by_supply_class() == {"dedicated": IdleHeadroom(8)}
    ground.set_phase("own-1", "Cordoned")
    assert ground.idle_by_supply_class() == {"dedicated": IdleHeadroom(3)}, "what runs there stays"
    ground.set_phase("own-1", "Draining")
    assert ground.idle_by_supply_class() == {"dedicated": IdleHeadroom(0)}
    ground.set_phase("own-1", "Active")
    ground.fleet.now += 3600
    idle = ground.idle_by_supply_class()["dedicated"]
    assert idle.trouble.startswith("own-1: capacity is 3600 s old")


def test_priorities_give_way_downwards() -> None:
    """What follows what is idle too, at a lower priority, is room; what waits at a higher one takes it."""
    ground = Ground({"own_1": [node_row("a"), node_row("b"), node_row("g", used=4000, labels={"gpu": "yes"})]})
    ground.apply_manifests(deployment(5, "low", pod=pod_template_with_cpu()), placement_policy(priority=-10))
    for step in (ground.carry_out_decisions, ground.bind_all_pods, ground.report_all_members):
        step()
    ground.apply_manifests(deployment(0, pod=pod_template_with_cpu()), placement_policy(priority=-5))
    assert ground.idle_by_supply_class() == {"dedicated": IdleHeadroom(3)}, (
        "low does not follow what is idle, and stays"
    )
    ground.declare_headroom_policy("dedicated", name="low")
    assert ground.idle_by_supply_class() == {"dedicated": IdleHeadroom(8)}
    assert ground.idle_by_supply_class("low") == {"dedicated": IdleHeadroom(8)}
    ground.apply_manifests(
        deployment(4, "models", pod=pod_template_with_cpu("2", nodeSelector={"gpu": "yes"})),
        placement_policy(priority=5),
    )
    assert ground.idle_by_supply_class("low") == {"dedicated": IdleHeadroom(8)}, (
        "who waits for other nodes takes nothing of these"
    )
    ground.apply_manifests(deployment(4, "online", pod=pod_template_with_cpu("2")), placement_policy(priority=5))
    waiting = ground.fleet.state.workloads["default", "online"].unplaced
    assert waiting == 3
    assert ground.idle_by_supply_class("low") == {"dedicated": IdleHeadroom(6 - 2 * waiting)}


class Telling:
    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self.headrooms = Headrooms(PACE)

    def reported_headroom_after(self, seconds: float) -> list[int]:
        """What is said then, of what the clusters show."""
        fleet = self.ground.fleet
        fleet.now += seconds
        fleet.send_heartbeats()
        return [
            event.value_milli // 1000 for event in self.headrooms.report_due_headroom(fleet.state, fleet.next_moment())
        ]


@pytest.fixture
def told() -> Telling:
    """A workload of two replicas with room for eight, in a turn that is old enough to know what went before."""
    ground = Ground({"own_1": [node_row("a"), node_row("b")]})
    ground.apply_manifests(deployment(2, pod=pod_template_with_cpu()))
    for step in (ground.carry_out_decisions, ground.bind_all_pods, ground.report_all_members):
        step()
    telling = Telling(ground)
    assert telling.reported_headroom_after(0) == []
    telling.reported_headroom_after(60)
    ground.declare_headroom_policy("dedicated", "idle")
    return telling


def test_what_is_idle_is_said_when_it_changes_and_now_and_then(told: Telling) -> None:
    assert told.reported_headroom_after(0) == [8, 0]
    assert told.reported_headroom_after(5) == []
    told.ground.members[0].rows.append(node_row("c", 3000))
    told.ground.report_all_members()
    assert told.reported_headroom_after(1) == [], "not looked at so soon"
    assert told.reported_headroom_after(4) == [11]
    told.ground.members[0].rows[2] = node_row("c", 3000, used=3000)  # Somebody else's pods.
    told.ground.report_all_members()
    assert told.reported_headroom_after(5) == [8]
    assert told.reported_headroom_after(20) == [0]
    assert told.reported_headroom_after(5) == []
    assert told.reported_headroom_after(5) == [8]


def test_nothing_is_said_of_who_does_not_ask(told: Telling) -> None:
    told.ground.declare_headroom_policy()
    assert told.reported_headroom_after(0) == []


def test_a_start_says_nothing_while_what_went_before_may_still_end() -> None:
    ground = Ground({"own_1": [node_row("a")]})
    ground.apply_manifests(deployment(1, pod=pod_template_with_cpu(terminationGracePeriodSeconds=50)))
    ground.declare_headroom_policy("dedicated")
    telling = Telling(ground)
    assert telling.reported_headroom_after(0) == []
    assert telling.reported_headroom_after(55) == []
    assert telling.reported_headroom_after(5) == [4]


def test_pods_that_end_are_no_less_room() -> None:
    """They are counted no more and still take their place: a size by percent would fall, and fall again."""
    ground = Ground({"own_1": [node_row("a"), node_row("b")]})
    ground.apply_manifests(deployment(6, pod=pod_template_with_cpu()))
    for step in (ground.carry_out_decisions, ground.bind_all_pods, ground.report_all_members):
        step()
    ground.declare_headroom_policy("dedicated")
    telling = Telling(ground)
    telling.reported_headroom_after(0)
    assert telling.reported_headroom_after(60) == [8]
    ground.decide_replicas_by_policy(4)
    ground.carry_out_decisions()
    member = ground.members[0]
    ending = [node_row("a", used=min(4000, member.rows[0].requested["cpu"] + 1000)), *member.rows[1:]]
    member.rows, kept = ending, member.rows
    ground.report_all_members()
    assert sum(idle.replicas for idle in ground.idle_by_supply_class().values()) == 7
    assert telling.reported_headroom_after(5) == []
    member.rows = kept
    ground.report_all_members()
    assert telling.reported_headroom_after(5) == []
    assert telling.reported_headroom_after(35) == [8], "said again, and the same"


def node_with_most_memory(name: str, cpu: int, pods: int) -> NodeRow:
    return replace(node_row(name), allocatable={"cpu": cpu, "memory": AMOUNT_MAX, "pods": pods})


def headroom_reported_of(rows: list[NodeRow]) -> list[LoadObserved]:
    """What is said of a workload that asks for a thousandth of a core."""
    ground = Ground({"own_1": rows, "own_2": rows})
    small = container_spec() | {"resources": {"requests": {"cpu": "1m"}}}
    ground.apply_manifests(deployment(0, pod=pod_template(small)))
    ground.declare_headroom_policy("dedicated")
    headrooms = Headrooms(PACE)
    headrooms.report_due_headroom(ground.fleet.state, ground.fleet.next_moment())
    ground.fleet.now += 60
    ground.fleet.send_heartbeats()
    return headrooms.report_due_headroom(ground.fleet.state, ground.fleet.next_moment())


@given(st.lists(st.tuples(st.integers(0, AMOUNT_MAX), st.integers(0, PODS_MAX)), min_size=1, max_size=3))
def test_what_is_idle_can_be_written_whatever_nodes_offer(nodes: list[tuple[int, int]]) -> None:
    events = headroom_reported_of(
        [node_with_most_memory(f"n{number}", cpu, pods) for number, (cpu, pods) in enumerate(nodes)]
    )
    assert [event.value_milli for event in events] == [2000 * sum(min(cpu, pods) for cpu, pods in nodes)]
    for event in events:
        outgoing_record(event)


def test_room_beyond_64_bits_is_said_as_the_most_that_they_hold() -> None:
    """A node of 9P cores and 9E pods: no record held it, and each step of the planner was lost with it."""
    (event,) = headroom_reported_of([node_with_most_memory("n1", INT64_MAX, INT64_MAX)])
    assert event.value_milli == INT64_MAX
    outgoing_record(event)
