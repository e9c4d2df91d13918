"""A lent node under crash, freeze, lost and late messages, with bridges that do not know of each other."""

from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from spillway.events_lending import CAUSE_ASKED, CAUSE_NEED
from spillway.lending_marks import LENT, RECALLED
from vk_bridge.core.node.loan import OWNED, OwnerNode

from .lending_world import GRACE_SECONDS, IN_FLIGHT_SECONDS, Bridge, Real, World, check_invariants

BRIDGES = st.integers(0, 1)
SETTLING_ROUNDS = 60
LONG_GRACE_SECONDS = 3600
"""Longer than all rounds of settling."""


class LentNode(RuleBasedStateMachine):
    """Two bridges at one node: each goes on by single calls, and may be started anew at any of them."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.epoch = 0
        self.bridges: list[Bridge] = []
        self.turns: list[Any] = []

    @initialize(pods=st.integers(-1, 3), slow=st.sampled_from([False, False, True]))
    def start(self, pods: int, slow: bool) -> None:
        """Most runs begin at an open virtual node with pods on it, since few steps alone lead there.

        slow: they are on their way out, and take their long grace whole.
        """
        for _ in range(2):
            self.epoch += 1
            self.bridges.append(Bridge(self.world, self.epoch))
            self.turns.append(None)
        if pods >= 0:
            self.run_turns_with_kubelet(0, 7, IN_FLIGHT_SECONDS / 2)
            for _ in range(pods):
                self.pool_pod_comes(LONG_GRACE_SECONDS if slow else GRACE_SECONDS)
            self.run_turns_with_kubelet(0, 3, 0.0)
        if slow:
            for real in self.world.real_pods.values():
                real.stubborn = True
            for uid in list(self.world.pool_pods):
                self.world.delete_pool_pod(uid)
            self.run_turns_with_kubelet(0, 2, 0.0)

    # ── Bridges ─────────────────────────────────────────────────────────────────────────────────────────────────

    @rule(index=BRIDGES, calls=st.integers(1, 9), pods_alone=st.booleans(), busy=st.booleans())
    def continue_turn(self, index: int, calls: int, pods_alone: bool, busy: bool) -> None:
        for _ in range(calls):
            if self.turns[index] is None:
                self.turns[index] = self.bridges[index].writes_of_turn(pods_alone=pods_alone, busy=busy)
            if next(self.turns[index], self) is self:
                self.turns[index] = None
            check_invariants(self.world)

    @rule(index=BRIDGES, pods_alone=st.booleans(), busy=st.booleans())
    def run_whole_turn(self, index: int, pods_alone: bool = False, busy: bool = False) -> None:
        """The other one is frozen meanwhile, wherever it stands."""
        if self.turns[index] is not None:
            for _ in self.turns[index]:
                check_invariants(self.world)
        self.turns[index] = None
        for _ in self.bridges[index].writes_of_turn(pods_alone=pods_alone, busy=busy):
            check_invariants(self.world)

    @rule(
        index=BRIDGES,
        turns=st.integers(2, 12),
        pace_seconds=st.sampled_from([0.0, 0.3, IN_FLIGHT_SECONDS / 2]),
        pods_alone=st.booleans(),
    )
    def run_turns_with_kubelet(self, index: int, turns: int, pace_seconds: float, pods_alone: bool = False) -> None:
        """For long enough to end what it is at, and to begin something else."""
        for _ in range(turns):
            self.run_whole_turn(index, pods_alone)
            self.bridges[index].read_log_to_end()
            self.kubelet_handles_all_pods()
            self.world.now += pace_seconds

    @rule(index=BRIDGES)
    def crash_bridge(self, index: int) -> None:
        self.epoch += 1
        self.bridges[index], self.turns[index] = Bridge(self.world, self.epoch), None

    @rule(index=BRIDGES)
    def read_log_to_end(self, index: int) -> None:
        self.bridges[index].read_log_to_end()

    # ── The world ───────────────────────────────────────────────────────────────────────────────────────────────

    @rule(seconds=st.sampled_from([1.0, GRACE_SECONDS, IN_FLIGHT_SECONDS, 2 * IN_FLIGHT_SECONDS]))
    def time_passes(self, seconds: float) -> None:
        self.world.now += seconds

    @rule()
    def owner_pod_comes(self) -> None:
        self.world.bind_owner_pod()

    @precondition(lambda self: self.world.owner_pods)
    @rule()
    def owner_pod_goes(self) -> None:
        self.world.owner_pods -= 1

    @rule(
        grace_seconds=st.sampled_from([GRACE_SECONDS, GRACE_SECONDS, LONG_GRACE_SECONDS, 1]),
        finalizer=st.sampled_from([False, False, True]),
        ordinal=st.booleans(),
    )
    def pool_pod_comes(
        self, grace_seconds: int = GRACE_SECONDS, finalizer: bool = False, ordinal: bool = False
    ) -> None:
        uid = f"pool-{self.world.next_id()}"
        self.world.bind_pool_pod(uid, grace_seconds, finalizer=finalizer, ordinal=ordinal)

    @precondition(lambda self: self.world.ordinal_uid in self.world.pool_pods)
    @rule()
    def ordinal_is_made_again(self) -> None:
        """Somebody takes the pod away by force, and its controller makes another of its name."""
        self.world.pool_finalizers.discard(self.world.ordinal_uid)
        self.world.delete_pool_pod(self.world.ordinal_uid, 0)
        self.pool_pod_comes(ordinal=True)

    @rule(deletions_left=st.sampled_from([None, None, 0, 1, 2]))
    def servers_refuse_collections(self, deletions_left: int | None) -> None:
        """After so many of their pods."""
        self.world.deletions_left = deletions_left

    @precondition(lambda self: self.world.pool_pods)
    @rule(data=st.data())
    def pool_pod_is_deleted(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(sorted(self.world.pool_pods)))
        by_force = data.draw(st.booleans())
        self.world.delete_pool_pod(uid, 0 if by_force else None)

    @precondition(lambda self: self.world.real_pods)
    @rule(data=st.data(), stubborn=st.booleans())
    def kubelet_handles_one_pod(self, data: st.DataObject, stubborn: bool) -> None:
        uid = data.draw(st.sampled_from(sorted(self.world.real_pods)))
        self.world.real_pods[uid].stubborn |= stubborn
        self.world.admit_real_pod(uid)
        self.world.stop_deleted_real_pod(uid)

    @precondition(lambda self: self.world.real_pods)
    @rule(data=st.data())
    def finalizer_is_put_on(self, data: st.DataObject) -> None:
        self.world.real_pods[data.draw(st.sampled_from(sorted(self.world.real_pods)))].finalizer = True

    @rule()
    def finalizers_are_taken_off(self) -> None:
        self.world.remove_finalizers()

    @rule()
    def kubelet_handles_all_pods(self) -> None:
        for uid in list(self.world.real_pods):
            self.world.admit_real_pod(uid)
            self.world.stop_deleted_real_pod(uid)
            check_invariants(self.world)

    @rule(lend=st.booleans(), frozen=st.sampled_from([False, False, True]))
    def people_set_lending_and_freeze(self, lend: bool, frozen: bool) -> None:
        self.world.lend, self.world.frozen = lend, frozen

    @rule(cause=st.sampled_from([CAUSE_NEED, CAUSE_ASKED]))
    def last_loan_is_recalled(self, cause: str) -> None:
        """Of whatever loan the log told of last, which may be over."""
        if self.world.log:
            self.world.recall = self.world.log[-1][1], cause

    @rule(down=st.sampled_from(["", "", "", "owner", "pool", "log"]))
    def reachability_changes(self, down: str) -> None:
        self.world.owner_up, self.world.pool_up, self.world.log_up = (down != name for name in ("owner", "pool", "log"))

    @precondition(lambda self: self.world.node is not None)
    @rule()
    def nodes_are_written_by_others(self) -> None:
        """Somebody else writes the nodes: what was read before is old."""
        world = self.world
        assert world.node is not None
        world.node = replace(world.node, resource_version=world.next_id())
        if world.virtual is not None:
            world.virtual = replace(world.virtual, resource_version=world.next_id(), current=False)

    @invariant()
    def invariants_hold(self) -> None:
        check_invariants(self.world)

    # ── After the faults ────────────────────────────────────────────────────────────────────────────────────────

    def teardown(self) -> None:
        world = self.world
        world.owner_up = world.pool_up = world.log_up = True
        world.remove_finalizers()
        for turn in self.turns:
            for _ in turn or ():  # A frozen one finishes what it had begun, on what it knew then.
                check_invariants(world)
        quiet = 0
        for _ in range(SETTLING_ROUNDS):
            before = world.writes
            for bridge in self.bridges:
                bridge.read_log_to_end()
                for _ in bridge.writes_of_turn():
                    check_invariants(world)
                world.now += IN_FLIGHT_SECONDS
            self.kubelet_handles_all_pods()
            quiet = quiet + 1 if world.writes == before else 0
            if quiet == 3:
                break
        assert quiet == 3, f"not stable after {SETTLING_ROUNDS} rounds: {world}"
        check_settled_world(world)


def check_settled_world(world: World) -> None:
    """Nothing is forgotten on either side, and the node is where it is wanted."""
    state = world.node.state if world.node is not None else OWNED
    real_of = {pod.pool_uid: pod for pod in world.real_pods.values()}
    assert len(real_of) == len(world.real_pods)
    held = state == RECALLED and world.frozen
    unforced = {
        uid for uid, real in real_of.items() if real.stubborn and (held or (state == LENT and _has_long_grace(real)))
    }
    for uid, real in real_of.items():
        if uid in unforced:
            continue  # A freeze that holds a recall forces none; and on a lent node each has its own grace.
        assert uid in world.pool_pods, "a real pod without a pool pod"
        assert real.deleted_at is None, "a real pod that never goes"
    for uid, pool in world.pool_pods.items():
        assert not pool.deleting or pool.held or uid in unforced, "a pool pod that never goes"
        assert pool.ended or pool.held or uid in real_of or held, "a pool pod that nobody runs"
    if state == OWNED:
        assert world.virtual is None
        assert not world.real_pods
        assert not world.log or world.log[-1][0] == "returned"
    recall = world.recall[1] if world.recall and world.node and world.recall[0] == world.node.loan else ""
    if world.node is not None and world.lend and not world.frozen and not recall and not world.owner_pods:
        assert state == LENT
        assert world.virtual is not None
        assert world.virtual.open
        assert world.log[-1] == ("lent", world.node.loan)
    if not world.lend or world.owner_pods or (recall and not world.frozen):
        assert state in ((OWNED, LENT) if not recall and not world.owner_pods else (OWNED,)) or world.frozen


def _has_long_grace(real: Real) -> bool:
    return real.deletion_seconds == LONG_GRACE_SECONDS


class LentNodeAmongPeople(LentNode):
    """People do as they please with what is ours."""

    @precondition(lambda self: self.world.node is not None)
    @rule()
    def taint_is_taken_off(self) -> None:
        node = self.world.node
        assert node is not None
        if node.state != OWNED:
            self.world.tampered_at = self.world.now
            self.world.put_node(replace(node, resource_version=self.world.next_id(), state=OWNED))

    @precondition(lambda self: self.world.virtual is not None)
    @rule()
    def virtual_node_is_deleted(self) -> None:
        self.world.put_virtual_node(None)

    @precondition(lambda self: self.world.real_pods)
    @rule(data=st.data())
    def real_pod_is_deleted(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(sorted(self.world.real_pods)))
        self.world.delete_real_pod(uid, self.world.real_pods[uid].grace_seconds)

    @rule()
    def node_goes_or_comes(self) -> None:
        world = self.world
        if world.node is not None:
            world.owner_pods, world.tampered_at = 0, world.now
            world.put_node(None)
        else:
            world.put_node(OwnerNode(f"node-{world.next_id()}", world.next_id(), OWNED, None))


FEW = settings(stateful_step_count=25, suppress_health_check=list(HealthCheck))
TestLentNode = LentNode.TestCase
TestLentNode.settings = FEW
TestLentNodeAmongPeople = LentNodeAmongPeople.TestCase
TestLentNodeAmongPeople.settings = FEW
