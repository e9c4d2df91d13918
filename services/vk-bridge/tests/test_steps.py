"""Steps of a loan where it matters that somebody froze between two calls, and of registers that make no sense."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from spillway.events_lending import (
    CAUSE_ASKED,
    CAUSE_NEED,
    CAUSE_OCCUPIED,
    CAUSE_OPT_OUT,
    CAUSE_VIRTUAL_NODE_GONE,
)
from spillway.lending_marks import CHECKING, LENT, RECALLED
from spillway.model import Generation
from vk_bridge.core.node.loan import OWNED, Observation, OwnerNode, PoolPod, RealPod, VirtualNode
from vk_bridge.core.node.steps import (
    CloseVirtual,
    CreateVirtual,
    DeleteVirtual,
    DesiredLoan,
    Mark,
    SayLent,
    ShowVirtual,
    WriteTarget,
    has_nothing_left,
    is_loan_checked_for_pool,
    may_use_amended_reading,
    next_step,
    node_context,
)
from vk_bridge.core.pod.steps import CreateReal, LetGo

from .lending_world import IN_FLIGHT_SECONDS, Bridge, World, check_invariants

LOAN_1 = Generation(7, 1)


def run_turns(world: World, bridge: Bridge, turns: int = 8, pace_seconds: float = IN_FLIGHT_SECONDS / 2) -> None:
    for _ in range(turns):
        for _ in bridge.writes_of_turn():
            check_invariants(world)
        check_invariants(world)
        for uid in list(world.real_pods):
            world.admit_real_pod(uid)
            world.stop_deleted_real_pod(uid)
            check_invariants(world)
        world.now += pace_seconds


def turn_stopped_before_write(
    world: World, bridge: Bridge, kind: type, state: str = "", pace_seconds: float = IN_FLIGHT_SECONDS / 2
) -> Iterator[Any]:
    """A turn that is frozen just before a write of that kind (of a Mark: into that state)."""
    for _ in range(40):
        turn = bridge.writes_of_turn()
        for step in turn:
            if isinstance(step, kind) and (not isinstance(step, Mark) or step.state == state):
                return turn
        for uid in list(world.real_pods):
            world.admit_real_pod(uid)
            world.stop_deleted_real_pod(uid)
        world.now += pace_seconds
    raise AssertionError(f"no {kind.__name__} came")


def finish_turn(world: World, turn: Iterator[Any]) -> None:
    for _ in turn:
        check_invariants(world)
    check_invariants(world)


def world_with_lent_node(pods: int = 0) -> tuple[World, Bridge]:
    world = World()
    bridge = Bridge(world, 1)
    run_turns(world, bridge)
    assert world.virtual is not None
    assert world.virtual.open
    for number in range(pods):
        world.bind_pool_pod(f"pool-{number}")
    run_turns(world, bridge, 2)
    return world, bridge


def register_state(world: World) -> str:
    assert world.node is not None
    return world.node.state


def recall_lent_node(world: World, cause: str = CAUSE_ASKED) -> None:
    assert world.node is not None
    assert world.node.loan is not None
    world.recall = world.node.loan, cause
    world.lend = False


def test_in_a_freeze_no_node_is_lent_and_after_it_it_is() -> None:
    world = World()
    bridge = Bridge(world, 1)
    world.frozen = True
    for _ in range(8):  # Nor marked and given back again and again, which keeps its owner's own pods away.
        assert [step for step in bridge.writes_of_turn() if isinstance(step, Mark)] == []
        world.now += IN_FLIGHT_SECONDS / 2
    assert (register_state(world), world.virtual) == (OWNED, None)
    world.frozen = False
    run_turns(world, bridge)
    assert register_state(world) == LENT
    assert world.virtual is not None


def test_an_idle_node_is_lent_and_comes_back() -> None:
    world, bridge = world_with_lent_node(pods=2)
    assert [pod.running for pod in world.real_pods.values()] == [True, True]
    recall_lent_node(world)
    run_turns(world, bridge, 20)
    assert (register_state(world), world.virtual, world.real_pods, world.pool_pods) == (OWNED, None, {}, {})
    assert [kind for kind, _ in world.log] == ["lent", "returned"]


@pytest.mark.parametrize(
    ("kind", "state"),
    [(Mark, CHECKING), (CreateVirtual, ""), (Mark, LENT), (SayLent, ""), (ShowVirtual, "")],
    ids=["taint", "create", "mark lent", "say", "open"],
)
def test_a_bridge_that_froze_on_the_way_out_opens_nothing_after_the_return(kind: type, state: str) -> None:
    """What it had begun was given up by another one; it goes on with what it knew."""
    world = World()
    frozen, other = Bridge(world, 1), Bridge(world, 2)
    turn = turn_stopped_before_write(world, frozen, kind, state)
    world.lend = False
    if world.node is not None and world.node.loan is not None:
        recall_lent_node(world)
    run_turns(world, other)
    finish_turn(world, turn)
    check_invariants(world)
    run_turns(world, other)
    run_turns(world, frozen)
    assert (register_state(world), world.virtual) == (OWNED, None)


@pytest.mark.parametrize("pace_seconds", [0.0, IN_FLIGHT_SECONDS / 2])
def test_a_pod_created_after_the_return_never_runs(pace_seconds: float) -> None:
    """The kubelet may see the label for the in-flight time after it went; the node is not untainted before."""
    world, frozen = world_with_lent_node()
    world.bind_pool_pod("pool-1")
    turn = turn_stopped_before_write(world, frozen, CreateReal)
    recall_lent_node(world)
    other = Bridge(world, 2)
    for _ in range(60):
        run_turns(world, other, 1, pace_seconds)
        if register_state(world) == OWNED:
            break
        world.now += 0.2
    assert register_state(world) == OWNED
    finish_turn(world, turn)
    assert len(world.real_pods) == 1
    for uid in list(world.real_pods):
        world.admit_real_pod(uid)
        check_invariants(world)
    assert [pod.running for pod in world.real_pods.values()] == [False]
    run_turns(world, other)
    assert world.real_pods == {}


def test_the_taint_stays_until_all_is_gone_and_kubelets_have_seen_the_label_go() -> None:
    world, bridge = world_with_lent_node(pods=1)
    recall_lent_node(world)
    frozen = turn_stopped_before_write(world, bridge, Mark, OWNED, 1.0)
    assert (register_state(world), world.virtual, world.real_pods, world.pool_pods) == (RECALLED, None, {}, {})
    marked = next(at for at, state in world.states if state == RECALLED)
    assert world.now >= marked + IN_FLIGHT_SECONDS
    finish_turn(world, frozen)
    assert register_state(world) == OWNED


def test_a_pod_that_its_owner_was_binding_keeps_the_node() -> None:
    """It is bound within the in-flight time: the list after it finds it."""
    world = World()
    bridge = Bridge(world, 1)
    turn_stopped_before_write(world, bridge, CreateVirtual)
    bridge = Bridge(world, 2)
    tainted = next(at for at, state in world.states if state == CHECKING)
    assert world.now >= tainted + IN_FLIGHT_SECONDS
    world.owner_pods = 1
    run_turns(world, bridge, 3)
    assert (register_state(world), world.virtual) == (OWNED, None)


def test_what_reads_a_virtual_node_that_came_after_the_register_was_read_does_not_open_it() -> None:
    """The virtual node is read before the register: were it the other way round, this one would be opened."""
    world = World()
    creating = turn_stopped_before_write(world, Bridge(world, 1), CreateVirtual)
    world.lend = True
    second = Bridge(world, 2)
    run_turns(world, second)
    reader = second.writes_of_turn()
    for _ in range(2):  # One of the two is read, the other is not.
        next(reader)
    assert world.node is not None
    world.put_node(replace(world.node, resource_version=world.next_id(), opted_out=True))
    run_turns(world, Bridge(world, 3), 12)
    assert (register_state(world), world.virtual) == (OWNED, None)
    finish_turn(world, creating)
    finish_turn(world, reader)
    check_invariants(world)


def test_a_pool_pod_that_came_while_others_were_read_is_no_orphan() -> None:
    world, slow = world_with_lent_node()
    turn = slow.writes_of_turn()
    for _ in range(4):  # Virtual node, register and pool pods are read; the real pods are not.
        next(turn)
    world.bind_pool_pod("pool-1")
    run_turns(world, Bridge(world, 2), 2)
    finish_turn(world, turn)
    assert [(pod.running, pod.deleted_at) for pod in world.real_pods.values()] == [(True, None)]


def test_a_deleted_pool_pod_is_let_go_only_when_its_real_pod_is_gone() -> None:
    world, bridge = world_with_lent_node(pods=1)
    world.pool_pods["pool-0"] = replace(world.pool_pods["pool-0"], deleting=True)
    (real,) = world.real_pods.values()
    real.stubborn = True
    for _ in range(2):
        for step in bridge.writes_of_turn():
            assert not isinstance(step, LetGo)
    assert real.deleted_at is not None
    run_turns(world, bridge, 8)
    assert (world.real_pods, world.pool_pods) == ({}, {})


def test_a_freeze_holds_the_pods_of_a_recall_that_nobody_asked_for() -> None:
    world, bridge = world_with_lent_node(pods=1)
    recall_lent_node(world, CAUSE_NEED)
    turn_stopped_before_write(world, bridge, CloseVirtual)
    world.frozen = True
    run_turns(world, bridge)
    assert register_state(world) == RECALLED
    assert [pod.running for pod in world.real_pods.values()] == [True]
    recall_lent_node(world, CAUSE_ASKED)
    run_turns(world, bridge, 12)
    assert (register_state(world), world.real_pods) == (OWNED, {})


def test_a_freeze_forces_no_pod_of_a_recall_that_nobody_asked_for() -> None:
    world, bridge = world_with_lent_node(pods=1)
    (real,) = world.real_pods.values()
    real.stubborn = True
    recall_lent_node(world, CAUSE_NEED)
    run_turns(world, bridge, 4, pace_seconds=0.1)
    assert real.deleted_at is not None
    world.frozen = True
    run_turns(world, bridge, 12)
    assert list(world.real_pods.values()) == [real]
    recall_lent_node(world, CAUSE_ASKED)
    run_turns(world, bridge, 12)
    assert (register_state(world), world.real_pods) == (OWNED, {})


def test_while_the_pool_is_away_real_pods_leave_and_the_node_waits() -> None:
    world, bridge = world_with_lent_node(pods=2)
    world.pool_up = False
    recall_lent_node(world)
    run_turns(world, bridge, 10)
    assert (register_state(world), world.real_pods) == (RECALLED, {})
    assert world.virtual is not None
    world.pool_up = True
    run_turns(world, bridge, 10)
    assert (register_state(world), world.virtual) == (OWNED, None)


def test_while_the_owner_is_away_the_virtual_node_closes_and_no_pod_is_let_go() -> None:
    world, bridge = world_with_lent_node(pods=2)
    recall_lent_node(world)
    world.owner_up = False
    run_turns(world, bridge)
    assert world.virtual is not None
    assert not world.virtual.open
    assert [pod.deleting for pod in world.pool_pods.values()] == [True, True]
    world.owner_up = True
    run_turns(world, bridge, 12)
    assert (register_state(world), world.pool_pods) == (OWNED, {})


def test_nothing_opens_while_the_log_is_away() -> None:
    world = World(log_up=False)
    bridge = Bridge(world, 1)
    run_turns(world, bridge, 12)
    assert (register_state(world), world.virtual) == (OWNED, None)


def test_what_cannot_open_since_the_log_went_away_goes_back() -> None:
    world = World()
    bridge = Bridge(world, 1)
    turn_stopped_before_write(world, bridge, SayLent)
    world.log_up = False
    run_turns(world, bridge, 12)
    assert (register_state(world), world.virtual, world.log) == (OWNED, None, [])


def test_what_is_open_stays_so_while_the_log_is_away() -> None:
    world, bridge = world_with_lent_node(pods=1)
    world.log_up = False
    run_turns(world, bridge, 12)
    assert world.virtual is not None
    assert (register_state(world), world.virtual.open, len(world.pool_pods)) == (LENT, True, 1)


def test_a_node_that_is_being_checked_goes_back_while_its_pool_is_away() -> None:
    world = World()
    bridge = Bridge(world, 1)
    turn_stopped_before_write(world, bridge, CreateVirtual)
    world.pool_up = False
    run_turns(world, bridge, 12)
    assert register_state(world) == OWNED
    world.pool_up = True
    run_turns(world, bridge, 12)
    assert world.virtual is not None
    assert (register_state(world), world.virtual.open) == (LENT, True)


NODE = OwnerNode("n", "5", LENT, LOAN_1, marked=True)
VIRTUAL = VirtualNode("v", "6", LOAN_1, open=True)
WISH = DesiredLoan(lend=True, loan=Generation(9, 9), logged=LOAN_1)


@pytest.mark.parametrize(
    ("observation", "desired", "cause"),
    [
        pytest.param(Observation(0, NODE, VIRTUAL), replace(WISH, recall=CAUSE_NEED), CAUSE_NEED, id="needed"),
        pytest.param(
            Observation(0, NODE, VIRTUAL), replace(WISH, recall=CAUSE_NEED, frozen=True), "", id="needed, frozen"
        ),
        pytest.param(
            Observation(0, NODE, VIRTUAL),
            replace(WISH, recall=CAUSE_ASKED, frozen=True),
            CAUSE_ASKED,
            id="asked, frozen",
        ),
        pytest.param(Observation(0, replace(NODE, opted_out=True), VIRTUAL), WISH, CAUSE_OPT_OUT, id="opted out"),
        pytest.param(Observation(0, NODE, VIRTUAL, occupied=True), WISH, CAUSE_OCCUPIED, id="a pod of the owner"),
        pytest.param(Observation(0, NODE, None), WISH, CAUSE_VIRTUAL_NODE_GONE, id="virtual node deleted by others"),
        pytest.param(
            Observation(0, NODE, replace(VIRTUAL, ours=False)),
            WISH,
            CAUSE_VIRTUAL_NODE_GONE,
            id="another's of that name",
        ),
        pytest.param(
            Observation(0, NODE, replace(VIRTUAL, loan=Generation(1, 1))),
            WISH,
            CAUSE_VIRTUAL_NODE_GONE,
            id="another loan's",
        ),
        pytest.param(Observation(0, NODE, VIRTUAL), replace(WISH, lend=False), "", id="no longer wanted: it stays"),
        pytest.param(Observation(0, NODE, None, pool_read=False), WISH, "", id="the pool cannot be read"),
    ],
)
def test_why_a_lent_node_goes_back(observation: Observation, desired: DesiredLoan, cause: str) -> None:
    step = next_step(observation, desired, 0, IN_FLIGHT_SECONDS)
    assert (step.state, step.cause) == (RECALLED, cause) if isinstance(step, Mark) else not cause


def test_a_virtual_node_that_shows_what_is_not_so_is_brought_up_to_date() -> None:
    step = next_step(Observation(0, NODE, replace(VIRTUAL, current=False)), WISH, 0, IN_FLIGHT_SECONDS)
    assert isinstance(step, ShowVirtual)
    assert next_step(Observation(0, NODE, VIRTUAL), WISH, 0, IN_FLIGHT_SECONDS) is None


def test_a_virtual_node_of_a_vanished_node_is_closed_emptied_and_deleted() -> None:
    assert isinstance(next_step(Observation(0, None, VIRTUAL), WISH, 0, 5), CloseVirtual)
    assert isinstance(next_step(Observation(0, None, replace(VIRTUAL, open=False)), WISH, 0, 5), DeleteVirtual)
    assert node_context(Observation(0, None, VIRTUAL), WISH, 30).node_gone


@pytest.mark.parametrize(
    "left",
    [{"real_pods": (RealPod("r", "p"),)}, {"pool_pods": (PoolPod("p", created=True),)}],
    ids=["real pod", "pool pod"],
)
def test_a_virtual_node_is_not_deleted_and_a_node_not_untainted_while_a_pod_is_left(left: dict[str, Any]) -> None:
    recalled, closed = replace(NODE, state=RECALLED), replace(VIRTUAL, open=False)
    assert next_step(Observation(9, recalled, closed, **left), WISH, 0, 5) is None
    assert next_step(Observation(9, recalled, None, **left), WISH, 0, 5) is None
    assert isinstance(next_step(Observation(9, recalled, closed), WISH, 0, 5), DeleteVirtual)
    assert isinstance(next_step(Observation(9, recalled, None), WISH, 0, 5), Mark)


@pytest.mark.parametrize("deleting", [False, True])
def test_a_pool_pod_that_has_not_begun_holds_nothing(deleting: bool) -> None:
    recalled, closed = replace(NODE, state=RECALLED), replace(VIRTUAL, open=False)
    pods = (PoolPod("p", deleting=deleting),)
    assert next_step(Observation(9, recalled, closed, pods), WISH, 0, 5) == DeleteVirtual(WriteTarget("v", "6"))
    assert next_step(Observation(9, recalled, None, pods), WISH, 0, 5) == Mark(WriteTarget("n", "5"), OWNED, None)


def test_what_has_ended_in_the_pool_holds_nothing() -> None:
    recalled = replace(NODE, state=RECALLED)
    assert isinstance(next_step(Observation(9, recalled, None, (PoolPod("p", ended=True),)), WISH, 0, 5), Mark)


def test_what_only_a_finalizer_keeps_in_the_pool_holds_nothing_until_its_real_pod_is_there() -> None:
    recalled, held = replace(NODE, state=RECALLED), (PoolPod("p", deleting=True, held=True),)
    assert isinstance(next_step(Observation(9, recalled, None, held), WISH, 0, 5), Mark)
    assert next_step(Observation(9, recalled, None, held, (RealPod("r", "p", deleting=True),)), WISH, 0, 5) is None


def test_a_recalled_node_takes_no_pod_even_while_a_freeze_holds_it() -> None:
    recalled = Observation(0, replace(NODE, state=RECALLED, cause=CAUSE_NEED), VIRTUAL)
    held = node_context(recalled, replace(WISH, frozen=True), 30)
    assert (held.takes, held.leaving, held.forces) == (False, False, False)
    assert node_context(Observation(0, NODE, VIRTUAL), WISH, 30).takes


CLOSED = replace(VIRTUAL, open=False)


@pytest.mark.parametrize(
    ("state", "virtual", "listed_at", "bears"),
    [
        pytest.param(RECALLED, CLOSED, 0.0, True, id="the virtual node goes"),
        pytest.param(RECALLED, CLOSED, None, False, id="not after a write to a node"),
        pytest.param(RECALLED, None, IN_FLIGHT_SECONDS, True, id="the node goes back"),
        pytest.param(RECALLED, None, IN_FLIGHT_SECONDS - 0.1, False, id="not on a list within the in-flight time"),
        pytest.param(RECALLED, None, None, False, id="nor on one that is older than a write"),
        pytest.param(CHECKING, CLOSED, IN_FLIGHT_SECONDS, False, id="nothing is lent on it"),
        pytest.param(CHECKING, None, IN_FLIGHT_SECONDS, False, id="nor made"),
        pytest.param(LENT, CLOSED, IN_FLIGHT_SECONDS, False, id="nor opened"),
        pytest.param(LENT, None, None, True, id="a recall is marked"),
        pytest.param(RECALLED, VIRTUAL, None, True, id="a virtual node is closed"),
    ],
)
def test_what_may_follow_on_nodes_as_they_were_known(
    state: str, virtual: VirtualNode | None, listed_at: float | None, bears: bool
) -> None:
    observation = Observation(9, replace(NODE, state=state), virtual)
    step = next_step(observation, WISH, 0, IN_FLIGHT_SECONDS)
    assert step is not None
    assert may_use_amended_reading(step, observation, listed_at, IN_FLIGHT_SECONDS) is bears


def test_another_fleets_node_is_left_alone() -> None:
    observation = Observation(0, replace(NODE, foreign=True), VIRTUAL)
    assert next_step(observation, WISH, 0, IN_FLIGHT_SECONDS) is None
    assert not node_context(observation, WISH, 30).leaving
    assert not node_context(observation, WISH, 30).takes


def test_a_loan_is_ended_in_the_pool_where_it_began() -> None:
    """Another pool is declared since: the node is not untainted by what that one shows."""
    there, declared = replace(NODE, pool="pool-1"), replace(WISH, pool="pool-2")
    step = next_step(Observation(9, there, VIRTUAL, pool="pool-1"), declared, 0, 5)
    assert isinstance(step, Mark)
    assert (step.state, step.cause) == (RECALLED, CAUSE_ASKED)
    recalled = replace(there, state=RECALLED)
    assert next_step(Observation(9, recalled, None, pool="pool-2"), declared, 0, 5) is None
    assert not node_context(Observation(9, recalled, None, pool="pool-2"), declared, 30).pool_read
    assert isinstance(next_step(Observation(9, recalled, VIRTUAL, pool="pool-1"), declared, 0, 5), CloseVirtual)
    assert isinstance(next_step(Observation(9, recalled, None, pool="pool-1"), declared, 0, 5), Mark)
    assert next_step(Observation(9, there, VIRTUAL, pool="pool-1"), replace(WISH, pool="pool-1"), 0, 5) is None
    checking = replace(there, state=CHECKING)
    given_up = next_step(Observation(9, checking, None, pool="pool-1"), declared, 0, 5)
    assert isinstance(given_up, Mark)
    assert given_up.state == OWNED


@pytest.mark.parametrize(
    ("node", "checked"),
    [
        pytest.param(None, False, id="no such node"),
        pytest.param(replace(NODE, state=CHECKING, pool="pool-1"), True, id="checking for this pool"),
        pytest.param(replace(NODE, state=CHECKING, pool="pool-2"), False, id="checking for another pool"),
        pytest.param(replace(NODE, state=CHECKING, pool=""), False, id="checking for a pool that is not named"),
        pytest.param(replace(NODE, state=LENT, pool="pool-1"), False, id="lent to this pool"),
        pytest.param(replace(NODE, state=RECALLED, pool="pool-1"), False, id="recalled from this pool"),
        pytest.param(replace(NODE, state=OWNED, loan=None), False, id="not on loan"),
    ],
)
def test_which_loans_end_by_their_own_step(node: OwnerNode | None, checked: bool) -> None:
    assert is_loan_checked_for_pool(node, "pool-1") is checked


@pytest.mark.parametrize(
    ("observation", "nothing_left"),
    [
        pytest.param(Observation(0, NODE, None), True, id="neither node nor pods"),
        pytest.param(Observation(0, None, None), True, id="the owner's node is gone, too"),
        pytest.param(Observation(0, NODE, VIRTUAL), False, id="the virtual node"),
        pytest.param(Observation(0, NODE, replace(VIRTUAL, ours=False)), True, id="another node of that name"),
        pytest.param(Observation(0, NODE, None, real_pods=(RealPod("r", "p"),)), False, id="a real pod"),
        pytest.param(Observation(0, NODE, None, (PoolPod("p", created=True),)), False, id="a pool pod that ran"),
        pytest.param(Observation(0, NODE, None, (PoolPod("p"),)), True, id="a pool pod that never ran"),
        pytest.param(
            Observation(0, NODE, None, (PoolPod("p", created=True, ended=True),)), True, id="a pool pod that ended"
        ),
    ],
)
def test_when_a_pool_has_nothing_of_a_node_left(observation: Observation, nothing_left: bool) -> None:
    assert has_nothing_left(observation) is nothing_left
