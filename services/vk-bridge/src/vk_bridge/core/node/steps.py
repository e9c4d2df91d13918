"""Decides the next step of a node's loan, as a pure function of what was read. docs/lending.md numbers the steps.

Every write names the uid and resourceVersion that it was decided on. A late write is refused or does no harm.
"""

from dataclasses import dataclass, replace

from spillway.events_lending import (
    CAUSE_ASKED,
    CAUSE_LOG_AWAY,
    CAUSE_NEED,
    CAUSE_OCCUPIED,
    CAUSE_OPT_OUT,
    CAUSE_VIRTUAL_NODE_GONE,
)
from spillway.lending_marks import CHECKING, LENT, RECALLED
from spillway.model import Generation
from vk_bridge.core.node.loan import OWNED, Observation, OwnerNode, VirtualNode


@dataclass(frozen=True, slots=True)
class WriteTarget:
    """The object that a write is for, as it was read."""

    uid: str
    resource_version: str


@dataclass(frozen=True, slots=True)
class Mark:
    """Write the register: its state and the loan. State OWNED removes all our marks from the node.

    cause: why the node is recalled.
    pool: the pool of a loan that begins.
    """

    node: WriteTarget
    state: str
    loan: Generation | None
    cause: str = ""
    pool: str = ""


@dataclass(frozen=True, slots=True)
class CreateVirtual:
    """Create the virtual node, closed."""

    loan: Generation


@dataclass(frozen=True, slots=True)
class ShowVirtual:
    """Open the virtual node, or bring an open one up to date."""

    virtual: WriteTarget


@dataclass(frozen=True, slots=True)
class CloseVirtual:
    virtual: WriteTarget


@dataclass(frozen=True, slots=True)
class DeleteVirtual:
    virtual: WriteTarget


@dataclass(frozen=True, slots=True)
class SayLent:
    """Publish NodeLent. The virtual node opens only after this record is acknowledged."""

    loan: Generation


@dataclass(frozen=True, slots=True)
class SayReturned:
    """Publish NodeReturned for the loan that the log has as lent."""

    loan: Generation


@dataclass(frozen=True, slots=True)
class SayLeft:
    """Publish that a virtual node of this node may remain in the pool, with the loan for which it was created."""

    loan: Generation
    pool: str


@dataclass(frozen=True, slots=True)
class WaitUntil:
    """Do nothing before this time of the bridge's own clock."""

    seconds: float


Step = Mark | CreateVirtual | ShowVirtual | CloseVirtual | DeleteVirtual | SayLent | SayReturned | SayLeft | WaitUntil


@dataclass(frozen=True, slots=True)
class DesiredLoan:
    """The desired state of one node's loan.

    lend: whether the node should be, or stay, lent to the pool.
    recall: the cause of a recall; empty: there is none.
    frozen: whether a brake holds its cluster.
    logged: the loan that the log has as lent, acknowledged.
    loan: the generation for a new loan; never used twice.
    pool: the pool that the lending rules name; empty: it is not known.
    log_away: whether no record could be published for a while.
    left_in: pools where a virtual node of this node may remain, by the log or by a record that is not written yet.
    pool_joined: whether the pool that was read is in the fleet.
    """

    lend: bool
    loan: Generation
    recall: str = ""
    frozen: bool = False
    logged: Generation | None = None
    pool: str = ""
    log_away: bool = False
    left_in: tuple[str, ...] = ()
    pool_joined: bool = True


@dataclass(frozen=True, slots=True)
class NodeContext:
    """The node's state, as the decisions on its pods need it.

    takes: whether real pods may be created.
    leaving: whether all real pods have to go, within grace_seconds.
    owner_read, pool_read: whether the absence of a pod on that side means anything.
    node_gone: whether the node is gone, and its real pods with it.
    forces: whether a pod that outlives its grace is forced; false while a freeze holds the recall.
    """

    takes: bool
    leaving: bool
    grace_seconds: int
    owner_read: bool = True
    pool_read: bool = True
    node_gone: bool = False
    forces: bool = True


class FirstObservations:
    """Remembers since when this bridge has seen each register in its state, to time the in-flight time.

    After a restart the time begins again.
    """

    def __init__(self) -> None:
        self._since: dict[str, tuple[str, str, Generation | None, float]] = {}

    def first_read_at(self, name: str, node: OwnerNode | None, read_at: float) -> float:
        """Returns the time at which this (node, state, loan) was first read."""
        if node is None:
            self._since.pop(name, None)
            return read_at
        known = self._since.get(name)
        if known is not None and known[:3] == (node.uid, node.state, node.loan):
            return known[3]
        self._since[name] = (node.uid, node.state, node.loan, read_at)
        return read_at


def next_step(observation: Observation, desired: DesiredLoan, since: float, in_flight_seconds: float) -> Step | None:
    """Returns the next step of a node's loan. None: the loan is as desired, or pods have to go first (`node_context`).

    since: the time that FirstObservations has for this register. Raises nothing; every combination has an answer.
    """
    if not observation.owner_read:
        return _step_with_owner_unread(observation, desired)
    observation = _observation_of_loan_pool(observation)
    node = observation.node
    if node is None or (node.state == OWNED and not node.foreign):
        return _step_when_owned(observation, desired)
    # Only the other fleet's bridge may change a node that has that fleet's marks.
    if node.foreign:
        return None
    if not observation.pool_read:
        return _step_with_pool_unread(node, observation, desired)
    virtual = observation.virtual if observation.virtual is not None and observation.virtual.ours else None
    quiet_at = since + in_flight_seconds
    if node.state == CHECKING:
        return _step_when_checking(node, virtual, observation, desired, quiet_at)
    if node.state == LENT:
        return _step_when_lent(node, virtual, observation, desired)
    return _step_when_recalled(node, virtual, observation, desired, quiet_at)


def may_use_amended_reading(
    step: Step | None, observation: Observation, listed_at: float | None, quiet_at: float
) -> bool:
    """Returns whether a step may be carried out although the nodes in the reading are older, or amended by answers.

    A step that offers the node may not. A step that ends a recall may, if the pods were listed since.
    listed_at: the time at which the lists of pods began; None: one of the nodes was written after them.
    quiet_at: when the in-flight time is over. While the register keeps its version, no kubelet admits a further pod of
        the pool after that time. A later list therefore contains all pods.
    """
    listed = observation.node is not None and observation.node.state == RECALLED and listed_at is not None
    match step:
        case Mark(_, state):
            return state == RECALLED or (state == OWNED and listed and (listed_at or 0.0) >= quiet_at)
        case DeleteVirtual():
            return listed
        case CreateVirtual() | ShowVirtual():
            return False
    return True


def node_context(observation: Observation, desired: DesiredLoan, grace_seconds: int) -> NodeContext:
    """Returns the node's state for its pods: whether real pods may be created, and whether all have to go."""
    observation = _observation_of_loan_pool(observation)
    node = observation.node
    return NodeContext(
        takes=node is not None and node.state == LENT and not node.foreign and observation.owner_read,
        leaving=_needs_pods_to_leave(observation, desired),
        grace_seconds=grace_seconds,
        owner_read=observation.owner_read,
        pool_read=observation.pool_read,
        node_gone=observation.owner_read and node is None,
        forces=not _is_recall_held(node, desired),
    )


def _needs_pods_to_leave(observation: Observation, desired: DesiredLoan) -> bool:
    """Returns whether the real pods have to go. They stay while the node is lent.

    They also stay while a freeze holds a recall that nobody asked for by name.
    """
    node = observation.node
    if not observation.owner_read:
        return bool(desired.recall) and not (desired.frozen and desired.recall == CAUSE_NEED)
    if node is None or node.state in (OWNED, CHECKING):
        return node is None or not node.foreign
    if node.foreign or node.state == LENT:
        return False
    return not _is_recall_held(node, desired)


def _is_recall_held(node: OwnerNode | None, desired: DesiredLoan) -> bool:
    """Returns whether a freeze holds the recall of this node, because nobody asked for it by name."""
    needed = node is not None and node.state == RECALLED and node.cause == CAUSE_NEED
    return desired.frozen and needed and desired.recall in ("", CAUSE_NEED)


def _step_when_owned(observation: Observation, desired: DesiredLoan) -> Step | None:
    """Returns the step for a node without a loan. First it ends what an earlier loan left: the virtual node, pods (it
    waits for these), the loan in the log, our marks. Then a new loan may begin, if no pod of the owner is on the node.
    """
    node = observation.node
    if not observation.pool_read:
        return None
    virtual = observation.virtual if observation.virtual is not None and observation.virtual.ours else None
    if virtual is not None:
        return _step_to_remove_virtual_node(virtual, observation)
    if observation.real_pods or _has_pods_left(observation):
        return None
    if desired.logged is not None:
        return SayReturned(desired.logged)
    if node is None:
        return None
    if node.marked:
        return Mark(_write_target(node), OWNED, None)
    wanted = desired.lend and not (desired.frozen or desired.log_away or node.opted_out)
    if wanted and not observation.occupied and observation.virtual is None:
        return Mark(_write_target(node), CHECKING, desired.loan, pool=desired.pool)
    return None


def _step_when_checking(
    node: OwnerNode, virtual: VirtualNode | None, observation: Observation, desired: DesiredLoan, quiet_at: float
) -> Step | None:
    """Returns the step for a node in state checking. If the loan is not wanted any more, or anything is in the way,
    everything is undone. Else it waits until quiet_at, creates a closed virtual node, and marks the node lent.
    """
    stopped = not desired.lend or desired.frozen or desired.log_away or node.opted_out
    stopped = stopped or bool(desired.recall) or _is_lent_to_other_pool(node, desired)
    in_the_way = observation.occupied or bool(observation.real_pods) or _has_pods_left(observation)
    if stopped or in_the_way or (virtual is None and observation.virtual is not None):
        if virtual is not None:
            return _step_to_remove_virtual_node(virtual, observation)
        return None if observation.real_pods else _step_to_end_loan(node, observation, desired)
    if observation.read_at < quiet_at:
        return WaitUntil(quiet_at)
    assert node.loan is not None
    if virtual is None:
        return CreateVirtual(node.loan)
    if virtual.open or virtual.loan != node.loan:
        return _step_to_remove_virtual_node(virtual, observation)
    return Mark(_write_target(node), LENT, node.loan)


def _step_when_lent(
    node: OwnerNode, virtual: VirtualNode | None, observation: Observation, desired: DesiredLoan
) -> Step | None:
    cause = _recall_cause(node, virtual, observation, desired)
    if cause:
        return Mark(_write_target(node), RECALLED, node.loan, cause)
    assert node.loan is not None
    assert virtual is not None
    if desired.logged != node.loan:
        return SayLent(node.loan)
    if virtual.open and virtual.current and virtual.reachable:
        return None
    if not virtual.open and desired.frozen:
        return None
    return ShowVirtual(_write_target(virtual))


def _step_when_recalled(
    node: OwnerNode, virtual: VirtualNode | None, observation: Observation, desired: DesiredLoan, quiet_at: float
) -> Step | None:
    if virtual is not None:
        return _step_to_remove_virtual_node(virtual, observation)
    if observation.real_pods or _has_pods_left(observation):
        return None
    if observation.read_at < quiet_at:
        return WaitUntil(quiet_at)
    return _step_to_end_loan(node, observation, desired)


def _step_to_end_loan(node: OwnerNode, observation: Observation, desired: DesiredLoan) -> Step:
    """Returns the step that ends the loan.

    If the pool could not be searched for the virtual node, a record of that is published first.

    For a loan that the log has as lent, the NodeReturned that follows contains that the virtual node may remain.
    """
    looked = observation.pool_read and desired.pool_joined
    if looked or not node.pool or node.pool in desired.left_in or node.loan is None or node.loan == desired.logged:
        return Mark(_write_target(node), OWNED, None)
    return SayLeft(node.loan, node.pool)


def _recall_cause(node: OwnerNode, virtual: VirtualNode | None, observation: Observation, desired: DesiredLoan) -> str:
    """Returns the cause for which a lent node goes back, the most important first; empty: the node stays lent."""
    if desired.recall and not (desired.recall == CAUSE_NEED and desired.frozen):
        return desired.recall
    if _is_lent_to_other_pool(node, desired):
        return CAUSE_ASKED
    if node.opted_out:
        return CAUSE_OPT_OUT
    if observation.occupied:
        return CAUSE_OCCUPIED
    if observation.pool_read and (virtual is None or virtual.loan != node.loan):
        return CAUSE_VIRTUAL_NODE_GONE
    if desired.log_away and desired.logged != node.loan and virtual is not None and not virtual.open:
        return CAUSE_LOG_AWAY
    return ""


def _step_to_remove_virtual_node(virtual: VirtualNode, observation: Observation) -> Step | None:
    """Returns the next step to remove a virtual node: it is closed, then emptied, then deleted.

    Closing also writes this bridge's endpoint. So a node that names another bridge is closed again: the logs of its
    pods are still requested.
    """
    if virtual.open or not virtual.reachable:
        return CloseVirtual(_write_target(virtual))
    return None if observation.real_pods or _has_pods_left(observation) else DeleteVirtual(_write_target(virtual))


def _step_with_owner_unread(observation: Observation, desired: DesiredLoan) -> Step | None:
    """Returns CloseVirtual if the node is leaving; every other step waits until the register can be read."""
    virtual = observation.virtual
    if (
        _needs_pods_to_leave(observation, desired)
        and observation.pool_read
        and virtual is not None
        and virtual.ours
        and virtual.open
    ):
        return CloseVirtual(_write_target(virtual))
    return None


def _step_with_pool_unread(node: OwnerNode, observation: Observation, desired: DesiredLoan) -> Step | None:
    """Returns the step while the pool cannot be read: a recall is still marked.

    A node in state checking goes back; if it has a virtual node, that one never opened.
    """
    if node.state == CHECKING and not observation.real_pods:
        return _step_to_end_loan(node, observation, desired)
    cause = _recall_cause(node, None, observation, desired) if node.state == LENT else ""
    return Mark(_write_target(node), RECALLED, node.loan, cause) if cause else None


def _observation_of_loan_pool(observation: Observation) -> Observation:
    """Returns the observation without objects of the pool, if that pool is not the loan's pool."""
    node = observation.node
    if node is None or not node.pool or node.pool == observation.pool:
        return observation
    return replace(observation, virtual=None, pool_pods=(), pool_read=False)


def _is_lent_to_other_pool(node: OwnerNode, desired: DesiredLoan) -> bool:
    """Returns whether another pool has been declared since; the loan to the old pool has to end first."""
    return bool(node.pool and desired.pool) and node.pool != desired.pool


def _has_pods_left(observation: Observation) -> bool:
    return any(pod.is_blocking_return for pod in observation.pool_pods)


def is_loan_checked_for_pool(node: OwnerNode | None, pool: str) -> bool:
    """Returns whether the register has a loan to this pool in state checking.

    That loan's own step may end the loan by a reading from before the pool answered. Until then nothing else is done to
    the virtual node in this pool.
    """
    return node is not None and node.state == CHECKING and node.pool == pool


def has_nothing_left(observation: Observation) -> bool:
    """Returns whether the pool that was read has no virtual node of the node, and no pod that the node waits for."""
    ours = observation.virtual is not None and observation.virtual.ours
    return not (ours or observation.real_pods or _has_pods_left(observation))


def _write_target(thing: OwnerNode | VirtualNode) -> WriteTarget:
    return WriteTarget(thing.uid, thing.resource_version)


def step_text(step: Step) -> str:
    """Returns the text of a step for the log: its class, and the state of a Mark."""
    return f"{type(step).__name__} {step.state or 'owned'}" if isinstance(step, Mark) else type(step).__name__
