"""One node, its virtual node and their pods as two API servers keep them, and bridges that act on what they last read.

A bridge's turn is a generator that stops before every call: who goes on, and when, is the test's to say. One that is
never let go on is frozen, or dead.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from spillway.lending_marks import CHECKING, LENT, RECALLED
from spillway.model import Generation
from vk_bridge.core.node.loan import OWNED, Observation, OwnerNode, PoolPod, RealPod, VirtualNode
from vk_bridge.core.node.steps import (
    CloseVirtual,
    CreateVirtual,
    DeleteVirtual,
    DesiredLoan,
    FirstObservations,
    Mark,
    SayLent,
    SayReturned,
    ShowVirtual,
    Step,
    WaitUntil,
    WriteTarget,
    may_use_amended_reading,
    next_step,
    node_context,
)
from vk_bridge.core.pod.delete_collections import (
    CollectionBounds,
    DeleteCollection,
    ListedPod,
    pool_pod_collections,
    real_pod_collections,
)
from vk_bridge.core.pod.deletion import PodDeletion
from vk_bridge.core.pod.parsing import read_deletion
from vk_bridge.core.pod.steps import (
    CreateReal,
    DeletePool,
    DeleteReal,
    FailPool,
    LetGo,
    Mirror,
    PodStep,
    pod_pairs,
    pod_step,
    steps_while_others_wait,
    writes_of_step,
)

IN_FLIGHT_SECONDS = 5.0
GRACE_SECONDS = 3
SIZES = CollectionBounds(least=2, most=2)
NAMESPACE = "a"
ORDINAL = "web-0"
"""A name that comes again; all others are drawn."""


@dataclass
class Real:
    """A real pod. running: its kubelet has let it in. stubborn: it ignores its grace. finalizer: it stays when ended.

    grace_seconds: its own. deletion_seconds: the shortest with which it was deleted.
    """

    pool_uid: str
    grace_seconds: int = GRACE_SECONDS
    deletion_seconds: int = GRACE_SECONDS
    finalizer: bool = False
    running: bool = False
    failed: bool = False
    stubborn: bool = False
    deleted_at: float | None = None
    news: bool = True


@dataclass
class World:
    """What the two API servers hold, the log, and what people and the descheduler want."""

    now: float = 100.0
    node: OwnerNode | None = field(default_factory=lambda: OwnerNode("node-1", "1", OWNED, None))
    virtual: VirtualNode | None = None
    pool_pods: dict[str, PoolPod] = field(default_factory=dict)
    real_pods: dict[str, Real] = field(default_factory=dict)
    own_grace_seconds: dict[str, int] = field(default_factory=dict)
    """Of pool pods."""
    pool_finalizers: set[str] = field(default_factory=set)
    ordinal_uid: str = ""
    """Of the pool pod that bears the name ORDINAL."""
    deletions_left: int | None = None
    """A server refuses a collection after so many; None: it refuses none."""
    owner_pods: int = 0
    log: list[tuple[str, Generation]] = field(default_factory=list)
    lend: bool = True
    frozen: bool = False
    recall: tuple[Generation, str] | None = None
    owner_up: bool = True
    pool_up: bool = True
    log_up: bool = True
    tampered_at: float | None = None
    writes: int = 0
    states: list[tuple[float, str]] = field(default_factory=lambda: [(0.0, OWNED)])
    _made: int = 1

    def next_id(self) -> str:
        self._made += 1
        return str(self._made)

    # ── What others do ──────────────────────────────────────────────────────────────────────────────────────────

    def may_be_seen_in(self, states: tuple[str, ...]) -> bool:
        """Whether the register may look to somebody as if it were in one of these: within the in-flight time."""
        recent = [state for at, state in self.states if at > self.now - IN_FLIGHT_SECONDS]
        before = [state for at, state in self.states if at <= self.now - IN_FLIGHT_SECONDS][-1:]
        return any(state in states for state in (*before, *recent))

    def bind_owner_pod(self) -> None:
        if self.node is not None and self.may_be_seen_in((OWNED,)):
            self.owner_pods += 1

    def bind_pool_pod(
        self, uid: str, grace_seconds: int = GRACE_SECONDS, *, finalizer: bool = False, ordinal: bool = False
    ) -> None:
        """Also to a virtual node that has closed or gone since: the pool's scheduler is late, without a bound."""
        if any(state == LENT for _, state in self.states):
            if ordinal and self.ordinal_uid not in self.pool_pods:
                self.ordinal_uid = uid
            self.pool_pods[uid] = PoolPod(uid, grace_seconds=grace_seconds)
            self.own_grace_seconds[uid] = grace_seconds
            self.pool_finalizers |= {uid} if finalizer else set()

    def delete_pool_pod(self, uid: str, grace_seconds: int | None = None) -> None:
        """None: with its own grace. One that is being deleted already is so no later."""
        pod = self.pool_pods[uid]
        grace = pod.grace_seconds if grace_seconds is None else min(pod.grace_seconds, grace_seconds)
        if grace == 0 and uid not in self.pool_finalizers:
            del self.pool_pods[uid]
        else:
            self.pool_pods[uid] = replace(pod, deleting=True, grace_seconds=grace, held=grace == 0)

    def pool_pod_name(self, uid: str) -> str:
        """The pool pod's name."""
        return ORDINAL if uid == self.ordinal_uid else uid

    def pool_pod_uid(self, name: str) -> str:
        """The uid of the pool pod that has it now; empty: none."""
        uid = self.ordinal_uid if name == ORDINAL else name
        return uid if uid in self.pool_pods else ""

    def refuses_next_deletion(self) -> bool:
        """A server that has deleted some of a collection."""
        if self.deletions_left is None:
            return False
        self.deletions_left -= 1
        return self.deletions_left < 0

    def delete_real_pod(self, uid: str, grace_seconds: int) -> None:
        pod = self.real_pods[uid]
        if pod.deleted_at is None or grace_seconds < pod.deletion_seconds:
            self.writes += 1
            pod.deleted_at = self.now if pod.deleted_at is None else pod.deleted_at
            pod.deletion_seconds = grace_seconds
        if grace_seconds == 0:
            self.end_real_pod(uid)

    def end_real_pod(self, uid: str) -> None:
        """Of a real pod that is being deleted: nothing of it runs any more."""
        pod = self.real_pods[uid]
        pod.running = False
        if not pod.finalizer:
            del self.real_pods[uid]

    def remove_finalizers(self) -> None:
        """In the owner."""
        for uid, pod in list(self.real_pods.items()):
            ended = pod.finalizer and pod.deleted_at is not None and not pod.running
            pod.finalizer = False
            if ended:
                self.end_real_pod(uid)

    def admit_real_pod(self, uid: str) -> None:
        """The kubelet: the node must have the label that the pod selects, as it sees the node."""
        pod = self.real_pods[uid]
        if not pod.running and not pod.failed and pod.deleted_at is None:
            pod.running = self.node is not None and self.may_be_seen_in((LENT,))
            pod.failed, pod.news = not pod.running, True

    def stop_deleted_real_pod(self, uid: str) -> None:
        """The kubelet ends a pod that is being deleted."""
        pod = self.real_pods[uid]
        if pod.deleted_at is not None and not (pod.stubborn and pod.running):
            self.end_real_pod(uid)

    # ── Writes ──────────────────────────────────────────────────────────────────────────────────────────────────

    def mark_node(self, at: WriteTarget, state: str, loan: Generation | None, cause: str) -> bool:
        node = self.node
        if not self.owner_up or node is None or (node.uid, node.resource_version) != (at.uid, at.resource_version):
            return False
        marked = replace(
            node, resource_version=self.next_id(), state=state, loan=loan, cause=cause, marked=state != OWNED
        )
        self.put_node(marked)
        return True

    def put_node(self, node: OwnerNode | None) -> None:
        self.writes += 1
        self.node = node
        self.states.append((self.now, node.state if node is not None else "gone"))

    def put_virtual_node(self, virtual: VirtualNode | None) -> None:
        self.writes += 1
        self.virtual = virtual

    def has_unchanged_virtual_node(self, at: WriteTarget) -> bool:
        found = self.virtual
        return (
            self.pool_up and found is not None and (found.uid, found.resource_version) == (at.uid, at.resource_version)
        )


Written = Step | PodStep | DeleteCollection


class Bridge:
    """An instance that believes that it has the turn."""

    def __init__(self, world: World, epoch: int) -> None:
        self.world = world
        self.epoch = epoch
        self.sequence = 0
        self.sights = FirstObservations()
        self.deleting: dict[str, PodDeletion] = {}
        self.known: tuple[OwnerNode | None, VirtualNode | None] | None = None
        """The nodes as they were read, or answered to a write, last."""
        self.read_log = len(world.log)

    def read_log_to_end(self) -> None:
        self.read_log = len(self.world.log)

    def writes_of_turn(self, *, pods_alone: bool = False, busy: bool = False) -> Iterator[Written | None]:
        """Reads, decides, writes; stops before each call, and says which write it is about to make.

        pods_alone: the nodes are taken for what they were when this bridge knew of them last, however long ago. busy:
        others wait for it, and what can wait of the pods is not done.
        """
        world = self.world
        read_at, known = world.now, self.known if pods_alone else None
        self.known = None
        if known is None:
            yield None
            virtual, pool_read = world.virtual, world.pool_up
            yield None
            node, owner_read = world.node, world.owner_up
        else:
            (node, virtual), pool_read, owner_read = known, True, True
        yield None
        pool_pods, pool_read = tuple(world.pool_pods.values()), pool_read and world.pool_up
        listed = {
            pod.uid: ListedPod(NAMESPACE, pod.ended, world.pool_pod_name(pod.uid) == ORDINAL) for pod in pool_pods
        }
        names = {pod.uid: world.pool_pod_name(pod.uid) for pod in pool_pods}
        yield None
        found, owner_read = dict(world.real_pods), owner_read and world.owner_up
        occupied = world.owner_pods > 0
        uids = {pod.uid for pod in pool_pods}
        for pod in list(found.values()):
            if pod.pool_uid not in uids:
                yield None
                pool_read = pool_read and world.pool_up
                again = world.pool_pods.get(pod.pool_uid)
                pool_pods += (again,) if again is not None else ()
        observation = Observation(
            read_at,
            node if owner_read else None,
            virtual if pool_read else None,
            pool_pods if pool_read else (),
            tuple(self._observed_real_pod(uid, pod) for uid, pod in found.items()) if owner_read else (),
            occupied=occupied and owner_read,
            owner_read=owner_read,
            pool_read=pool_read,
        )
        desired = self._desired_loan(observation)
        since = self.sights.first_read_at("n", observation.node, read_at) if owner_read else read_at
        step = next_step(observation, desired, since, IN_FLIGHT_SECONDS)
        quiet_at = since + IN_FLIGHT_SECONDS
        if known is not None and not may_use_amended_reading(step, observation, read_at, quiet_at):
            return
        context = node_context(observation, desired, GRACE_SECONDS)
        pod_steps = [
            pod_step(pool, real, context) for pool, real in pod_pairs(observation.pool_pods, observation.real_pods)
        ]
        refused, answered = False, (node, virtual)
        if step is not None and not isinstance(step, WaitUntil):
            yield step
            refused = not self._carry_out_step(step)
            answered = _nodes_after_write(step, node, virtual, world)
        todo = [one for one in pod_steps if one is not None]
        chosen = steps_while_others_wait(todo) if busy else todo
        leaving = observation.node is not None and observation.node.state == RECALLED
        yield from self._write_pod_steps(chosen, listed if leaving else {}, names, leaving=leaving)
        if refused or not observation.owner_read or not observation.pool_read:
            return
        self.known = answered
        if isinstance(step, DeleteVirtual):
            observation = replace(observation, virtual=None, read_at=world.now)
            step = next_step(observation, desired, since, IN_FLIGHT_SECONDS)
            if isinstance(step, Mark) and may_use_amended_reading(step, observation, read_at, quiet_at):
                yield step
                self._carry_out_step(step)

    def _write_pod_steps(
        self, steps: Sequence[PodStep], listed: Mapping[str, ListedPod], names: Mapping[str, str], *, leaving: bool
    ) -> Iterator[Written]:
        """As pod_writer.py: first what goes together, of the owner and then of the pool, and all else one by one."""
        settled, by_step = set[PodStep](), [writes_of_step(step) for step in steps]
        real = [write for written in by_step for write in written if isinstance(write, DeleteReal)]
        for many in real_pod_collections(real, {one.uid: NAMESPACE for one in real}, SIZES, leaving=leaving):
            yield from self._delete_real_collection(many, settled)
        ready = (written[-1] for written in by_step if settled.issuperset(written[:-1]))
        pool = [write for write in ready if isinstance(write, DeletePool | LetGo)]
        for many in pool_pod_collections(pool, listed, SIZES, leaving=leaving):
            yield from self._delete_pool_collection(many, listed, names, settled)
        for written in by_step:
            for write in written:
                if write not in settled:
                    yield write
                    self._carry_out_pod_step(write)

    def _delete_real_collection(self, many: DeleteCollection, settled: set[PodStep]) -> Iterator[Written]:
        """A list of real pods by their pool pods, then each by its name, which is made of the pool pod's uid."""
        world = self.world
        uids = {world.real_pods[one.uid].pool_uid for one in many.steps if one.uid in world.real_pods}  # type: ignore[union-attr]
        yield many
        for pool_uid in [pod.pool_uid for pod in world.real_pods.values() if pod.pool_uid in uids]:
            yield many
            if not world.owner_up or world.refuses_next_deletion():
                return
            for uid in [uid for uid, pod in world.real_pods.items() if pod.pool_uid == pool_uid]:
                check_real_pod_may_go(world, pool_uid)
                self._carry_out_pod_step(DeleteReal(uid, many.grace_seconds))
        settled.update(many.steps)

    def _delete_pool_collection(
        self, many: DeleteCollection, listed: Mapping[str, ListedPod], names: Mapping[str, str], settled: set[PodStep]
    ) -> Iterator[Written]:
        """The list as of the version that was read, then each by its name, whoever bears that by then."""
        world = self.world
        to_go = {step.pool_uid for step in many.steps}  # type: ignore[union-attr]
        for name in [names[uid] for uid, pod in listed.items() if not pod.ended]:
            yield many
            if not world.pool_up or world.refuses_next_deletion():
                return
            uid = world.pool_pod_uid(name)
            if uid:
                assert uid in to_go, "a collection hits another pod"
                self._carry_out_pod_step(DeletePool(uid, many.grace_seconds) if many.grace_seconds else LetGo(uid))
        settled.update(many.steps)

    def _observed_real_pod(self, uid: str, pod: Real) -> RealPod:
        found = RealPod(uid, pod.pool_uid, ended=pod.failed, news=pod.news, grace_seconds=pod.grace_seconds)
        if pod.deleted_at is None:
            return found
        metadata = {"deletionGracePeriodSeconds": pod.deletion_seconds}
        ending = self.deleting[uid] = read_deletion({"metadata": metadata}, self.deleting.get(uid), self.world.now)
        left = ending.over_at - self.world.now
        return replace(found, deleting=True, overdue=left <= 0, seconds_left=max(0, math.floor(left)))

    def _desired_loan(self, observation: Observation) -> DesiredLoan:
        world = self.world
        self.sequence += 1
        about = (
            observation.node.loan
            if observation.node is not None
            else observation.virtual.loan
            if observation.virtual is not None
            else None
        )
        kind, loan = world.log[self.read_log - 1] if self.read_log else ("", None)
        return DesiredLoan(
            lend=world.lend,
            loan=Generation(self.epoch, self.sequence),
            recall=world.recall[1] if world.recall is not None and world.recall[0] == about else "",
            frozen=world.frozen,
            logged=loan if kind == "lent" else None,
            log_away=not world.log_up,
        )

    def _carry_out_step(self, step: Step) -> bool:
        """Whether it was not refused."""
        world = self.world
        match step:
            case Mark(at, state, loan, cause):
                return world.mark_node(at, state, loan, cause)
            case CreateVirtual(loan):
                if world.pool_up and world.virtual is None:
                    world.put_virtual_node(VirtualNode(f"virtual-{world.next_id()}", world.next_id(), loan, open=False))
            case ShowVirtual(at) if world.has_unchanged_virtual_node(at):
                assert world.virtual is not None
                world.put_virtual_node(
                    replace(world.virtual, resource_version=world.next_id(), open=True, current=True)
                )
            case CloseVirtual(at) if world.has_unchanged_virtual_node(at):
                assert world.virtual is not None
                world.put_virtual_node(replace(world.virtual, resource_version=world.next_id(), open=False))
            case DeleteVirtual(at) if world.has_unchanged_virtual_node(at):
                world.put_virtual_node(None)
            case SayLent(loan) | SayReturned(loan) if world.log_up:
                world.writes += 1
                world.log.append(("lent" if isinstance(step, SayLent) else "returned", loan))
                self.read_log_to_end()
            case ShowVirtual() | CloseVirtual() | DeleteVirtual():
                return False
        return True

    def _carry_out_pod_step(self, step: PodStep) -> None:
        world = self.world
        match step:
            case CreateReal(uid) if world.owner_up:
                # Named by (pool id, uid): there is never a second one of a pool pod.
                if all(pod.pool_uid != uid for pod in world.real_pods.values()):
                    world.writes += 1
                    own = world.own_grace_seconds[uid]
                    world.real_pods[f"real-{world.next_id()}"] = Real(uid, own, own)
            case Mirror(uid) if world.pool_up:
                real = next((pod for pod in world.real_pods.values() if pod.pool_uid == uid), None)
                if uid in world.pool_pods and real is not None:
                    world.writes += 1
                    real.news = False
                    pool = world.pool_pods[uid]
                    world.pool_pods[uid] = replace(pool, created=True, ended=pool.ended or real.failed)
            case FailPool(uid) if world.pool_up and uid in world.pool_pods:
                world.writes += 1
                world.pool_pods[uid] = replace(world.pool_pods[uid], ended=True)
            case DeletePool(uid, grace_seconds, _) if world.pool_up and uid in world.pool_pods:
                world.writes += 1
                world.delete_pool_pod(uid, grace_seconds)
            case LetGo(uid) if world.pool_up and uid in world.pool_pods:
                world.writes += 1
                world.delete_pool_pod(uid, 0)
            case DeleteReal(uid, grace_seconds) if world.owner_up and uid in world.real_pods:
                assert grace_seconds <= world.real_pods[uid].grace_seconds, "a pod's own grace is lengthened"
                world.delete_real_pod(uid, grace_seconds)


def _nodes_after_write(
    step: Step | None, node: OwnerNode | None, virtual: VirtualNode | None, world: World
) -> tuple[OwnerNode | None, VirtualNode | None]:
    """The nodes as they were read, but for the one that was just written."""
    if isinstance(step, Mark):
        return world.node, virtual
    return node, world.virtual if isinstance(step, ShowVirtual | CloseVirtual | DeleteVirtual) else virtual


def check_real_pod_may_go(world: World, pool_uid: str) -> None:
    """Of a real pod that a collection of its owner hits, however late."""
    pool, node = world.pool_pods.get(pool_uid), world.node
    if pool is not None and pool.created and not pool.deleting and not pool.ended:
        assert node is None or node.state != LENT, "a real pod is told to go that was to stay"


def check_invariants(world: World) -> None:
    """What must hold at every instant; after a person has taken the taint off, once it is put right.

    No bridge waited for that person: until the in-flight time is over, a kubelet may still see the label.
    """
    if world.tampered_at is not None:
        seen_by_all = world.now > world.tampered_at + IN_FLIGHT_SECONDS
        if world.virtual is not None or world.real_pods or not seen_by_all:
            return
        world.tampered_at = None
    state = world.node.state if world.node is not None else OWNED
    is_open = world.virtual is not None and world.virtual.open
    running = [pod for pod in world.real_pods.values() if pod.running]
    assert not (is_open and state in (OWNED, CHECKING)), "owned and open to the pool at once"
    assert not (running and state in (OWNED, CHECKING)), "a pool pod runs on an owned node"
    if is_open:
        assert world.virtual is not None
        assert ("lent", world.virtual.loan) in world.log, "open, and the log does not say so"
        assert world.owner_pods == 0 or state == RECALLED, "open, and an owner's pod is on it"
