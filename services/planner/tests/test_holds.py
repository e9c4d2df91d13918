"""Holds: that they bar while their pause runs, are remembered for a while behind it, and that none stays for ever."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.core.background import aftermath
from planner.core.knowledge.holds import DECLARED, GONE, TRIED, Holds
from planner.core.knowledge.timers import PlacementHold
from planner.core.requests import decisions
from spillway.api import ApplyRequest, DeleteRequest
from spillway.events import STATE_ABSENT, ClusterLeft, PodsUnschedulable

from .builders import (
    Fleet,
    apply_to_fleet,
    container_spec,
    deployment,
    make_shape,
    manifest_texts,
    node_row,
    pod_template,
)
from .member import workload_observed

SHAPE, KEY = make_shape(1000), ("default", "web")
MEMORY = 300.0


def end_due_holds(holds: Holds, now: float, need: str = DECLARED) -> list[object]:
    return list(holds.end_due_holds(now, MEMORY, lambda cluster, hold: need))


def holds_on_shape(until: float = 100.0, seconds: float = 15.0) -> Holds:
    holds = Holds()
    holds["a", SHAPE] = PlacementHold(until, seconds)
    return holds


def test_a_hold_runs_until_its_pause_is_over_and_is_remembered_behind_it() -> None:
    holds = holds_on_shape()
    assert (end_due_holds(holds, 99), list(holds.clusters_of(SHAPE)), len(holds.running_holds())) == ([], ["a"], 1)
    assert end_due_holds(holds, 100) == [("a", SHAPE)]
    assert (list(holds.clusters_of(SHAPE)), len(holds.running_holds()), holds["a", SHAPE].seconds) == ([], 0, 15)
    assert (end_due_holds(holds, 399), len(holds)) == ([], 1)
    assert (end_due_holds(holds, 400), len(holds)) == ([], 0)


def test_a_longer_pause_is_remembered_for_as_long_as_it_was() -> None:
    holds = holds_on_shape(seconds=3600)
    end_due_holds(holds, 100)
    end_due_holds(holds, 3699)
    assert len(holds) == 1
    end_due_holds(holds, 3700)
    assert not holds


def test_of_a_workload_that_is_gone_nothing_is_remembered() -> None:
    holds = holds_on_shape()
    assert (end_due_holds(holds, 99, GONE), len(holds)) == ([], 1)
    assert (end_due_holds(holds, 100, GONE), len(holds)) == ([("a", SHAPE)], 0)


def test_while_replicas_wait_there_again_the_last_pause_is_remembered() -> None:
    """They may be promised nodes that take longer to be made than anything is remembered."""
    holds = holds_on_shape()
    for now in (100, 400, 700):
        end_due_holds(holds, now, TRIED)
        assert len(holds) == 1
    end_due_holds(holds, 1000)
    assert not holds


def test_a_hold_that_was_set_again_is_over_once_and_at_its_own_time() -> None:
    holds = holds_on_shape()
    holds["a", SHAPE] = PlacementHold(200.0, 30.0)
    assert (end_due_holds(holds, 150), end_due_holds(holds, 200), end_due_holds(holds, 201)) == ([], [("a", SHAPE)], [])


def test_what_has_bound_and_whose_cluster_left_is_held_no_more() -> None:
    holds = holds_on_shape()
    holds["b", SHAPE], holds["a", KEY] = PlacementHold(100.0, 15.0), PlacementHold(100.0, 15.0)
    holds.pop(("b", SHAPE))
    assert list(holds.clusters_of(SHAPE)) == ["a"]
    holds.drop_cluster("a")
    assert (len(holds), len(holds.running_holds()), list(holds.clusters_of(KEY)), end_due_holds(holds, 100)) == (
        0,
        0,
        [],
        [],
    )


# ── In a planner ────────────────────────────────────────────────────────────────────────────────────────────────────


class World:
    """One or two clusters, and workloads whose replicas do not bind."""

    def __init__(self) -> None:
        nodes = [node_row("n1", cpu=64_000), node_row("n2", cpu=64_000)]
        self.fleet = Fleet(own_1=nodes, own_2=nodes)

    def apply_events(self, events: Iterable[Any]) -> None:
        apply_to_fleet(self.fleet, events)

    def apply_workload(self, number: int, cpu: int) -> None:
        pod = pod_template(container_spec(cpu=f"{cpu}m"))
        request = ApplyRequest(manifest_texts(deployment(2, f"ci-{number}", pod)))
        self.apply_events(decisions.decide_apply(self.fleet.state, request, self.fleet.next_moment()).events)

    def take_back_workload(self, number: int, by_scheduler: bool) -> None:
        key = ("default", f"ci-{number}")
        workload = self.fleet.state.workloads.get(key)
        for cluster in list(workload.parts) if workload is not None else ():
            if by_scheduler:
                self.fleet.sequence += 1
                said = PodsUnschedulable(cluster, "/".join(key), 7, self.fleet.sequence, "/".join(key), 1, "cpu", None)
                self.fleet.state.cluster_view(cluster).pending["/".join(key)] = said
            aftermath.hold_clusters(self.fleet.state, self.fleet.state.workloads[key], [cluster], self.fleet.now)

    def delete_workload(self, number: int) -> None:
        key = ("default", f"ci-{number}")
        if key not in self.fleet.state.workloads or self.fleet.state.workloads[key].declared.deleting:
            return
        self.apply_events(
            decisions.decide_delete(self.fleet.state, DeleteRequest("", key[1]), self.fleet.next_moment()).events
        )
        for part in list(self.fleet.state.workloads[key].parts.values()):
            self.apply_events([replace(workload_observed(part.cluster, key, part.version), state=STATE_ABSENT)])
        self.apply_events(aftermath.settle_workload(self.fleet.state, key, self.fleet.next_moment()).events)

    def pass_time(self, seconds: float) -> None:
        self.fleet.now += seconds
        self.fleet.send_heartbeats()
        aftermath.update_progress_timers(self.fleet.state, self.fleet.now)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("apply"), st.integers(0, 2), st.integers(1, 4)),
        st.tuples(st.just("take back"), st.integers(0, 2), st.booleans()),
        st.tuples(st.just("delete"), st.integers(0, 2), st.just(0)),
        st.tuples(st.just("tick"), st.integers(1, 400), st.just(0)),
    ),
    max_size=25,
)


@given(STEPS)
def test_once_all_workloads_are_deleted_and_the_longest_pause_is_over_no_hold_remains(
    steps: list[tuple[str, int, int]],
) -> None:
    world = World()
    acts: dict[str, Callable[[int, int], None]] = {
        "apply": lambda number, cpu: (
            None if is_workload_deleting(world, number) else world.apply_workload(number, 100 * cpu)
        ),
        "take back": lambda number, by_scheduler: world.take_back_workload(number, bool(by_scheduler)),
        "delete": lambda number, _: world.delete_workload(number),
        "tick": lambda seconds, _: world.pass_time(seconds),
    }
    for number in range(3):
        world.apply_workload(number, 100 + number // 2)  # Two of one shape.
    for verb, number, more in steps:
        acts[verb](number, more)
    for number in range(3):
        world.delete_workload(number)
    state = world.fleet.state
    world.pass_time(max(state.rules.hold_max, state.rules.hold_not_owned_max))
    assert (len(state.holds), len(state.holds.running_holds())) == (0, 0)
    assert not any(state.holds.clusters_of(hold) for hold in (make_shape(100), ("default", "ci-0")))


def is_workload_deleting(world: World, number: int) -> bool:
    known = world.fleet.state.workloads.get(("default", f"ci-{number}"))
    return known is not None and known.declared.deleting


@pytest.mark.parametrize("by_scheduler", [False, True])
def test_a_workload_that_is_tried_again_and_again_is_held_for_longer_each_time(by_scheduler: bool) -> None:
    """Also where it is tried again a good while after its pause: that long its length is remembered."""
    world = World()
    world.apply_workload(0, 500)
    lengths = []
    for _ in range(4):
        world.take_back_workload(0, by_scheduler)
        lengths.append(max(hold.seconds for hold in world.fleet.state.holds.values()))
        world.pass_time(lengths[-1])
        world.pass_time(world.fleet.state.rules.hold_max - 1)
    assert lengths == [15, 30, 60, 120]


def test_a_decision_looks_at_the_holds_of_its_own_shape_and_workload_alone(calls_of: Any) -> None:
    """However many others there are."""
    world = World()
    world.apply_workload(0, 500)
    state = world.fleet.state
    whom = state.workloads["default", "ci-0"].replica_shape
    for index in range(200):
        state.holds["own-2", make_shape(10_000 + index)] = PlacementHold(world.fleet.now + 100, 15)
    state.holds["own-1", whom] = PlacementHold(world.fleet.now + 100, 15)
    with calls_of(Holds.clusters_of) as asked:
        rooms = state.rooms_of_fleet(whom, world.fleet.now, ("default", "ci-0"))
    assert [call["whom"] for call in asked] == [whom, ("default", "ci-0")]
    assert (rooms["own-1", False].certain, rooms["own-2", False].certain > 0) == (0, True)


def test_a_cluster_that_leaves_is_held_against_nobody() -> None:
    world = World()
    world.apply_workload(0, 500)
    world.take_back_workload(0, by_scheduler=False)
    assert len(world.fleet.state.holds) == len(world.fleet.state.workloads["default", "ci-0"].parts)
    for name in ("own-1", "own-2"):
        world.apply_events([ClusterLeft(name)])
    assert not world.fleet.state.holds
