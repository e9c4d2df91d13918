"""The next step of a node's loan: one pure function from what is read to what is written. docs/lending.md numbers them.

Every write names what it was decided on (uid, resourceVersion); done late, it is refused or does no harm.
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
class At:
    """The object that a write is for, as it was read."""

    uid: str
    resource_version: str


@dataclass(frozen=True, slots=True)
class Mark:
    """Write the register: its state, with the loan; OWNED takes everything of ours off. cause: of a recall.

    pool: of a loan that begins.
    """

    node: At
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

    virtual: At


@dataclass(frozen=True, slots=True)
class CloseVirtual:
    virtual: At


@dataclass(frozen=True, slots=True)
class DeleteVirtual:
    virtual: At


@dataclass(frozen=True, slots=True)
class SayLent:
    """Publish NodeLent; nothing opens before it is acknowledged."""

    loan: Generation


@dataclass(frozen=True, slots=True)
class SayReturned:
    """Publish NodeReturned of the loan that the log has as lent."""

    loan: Generation


@dataclass(frozen=True, slots=True)
class SayLeft:
    """Publish that a virtual node of this one may stay in the pool, with the loan for which it was made."""

    loan: Generation
    pool: str


@dataclass(frozen=True, slots=True)
class WaitUntil:
    """Nothing before this time of the bridge's own clock."""

    seconds: float


Step = Mark | CreateVirtual | ShowVirtual | CloseVirtual | DeleteVirtual | SayLent | SayReturned | SayLeft | WaitUntil


@dataclass(frozen=True, slots=True)
class DesiredLoan:
    """What is wanted of a node. lend: it is, or stays, wanted for the pool. recall: a cause, empty: none.

    frozen: a brake holds its cluster. logged: the loan that the log has as lent, acknowledged. loan: for a new one;
    never used twice. pool: where its nodes are lent to by what is declared; empty: that is not known. log_away: nothing
    could be said for a while. left_in: pools in which a virtual node of it may stay, as the log says, or while it is
    away as it is to be said. pool_joined: the pool that was read is in the fleet.
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
    """What the node means for its pods. takes: real pods may be created. leaving: they are to go, with that grace.

    owner_read, pool_read: whether the absence of a pod says anything. node_gone: so are its real pods. forces: what
    outlives its grace is forced; a freeze that holds the recall forces none.
    """

    takes: bool
    leaving: bool
    grace_seconds: int
    owner_read: bool = True
    pool_read: bool = True
    node_gone: bool = False
    forces: bool = True


class FirstObservations:
    """Since when this bridge has seen each register in the state that it is in. A restart forgets, and waits again."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[str, str, Generation | None, float]] = {}

    def see(self, name: str, node: OwnerNode | None, read_at: float) -> float:
        """The time at which this (node, state, loan) was first read."""
        if node is None:
            self._since.pop(name, None)
            return read_at
        known = self._since.get(name)
        if known is not None and known[:3] == (node.uid, node.state, node.loan):
            return known[3]
        self._since[name] = (node.uid, node.state, node.loan, read_at)
        return read_at


def next_step(observation: Observation, desired: DesiredLoan, since: float, in_flight_seconds: float) -> Step | None:
    """One step, or None: as it should be, or the pods have to go first (`node_context`).

    since: of FirstObservations, for this register. Raises nothing; every combination has a step.
    """
    if not observation.owner_read:
        return _with_owner_unread(observation, desired)
    observation = _of_its_pool(observation)
    node = observation.node
    if node is None or (node.state == OWNED and not node.foreign):
        return _owned(observation, desired)
    if node.foreign:
        return None
    if not observation.pool_read:
        return _with_pool_unread(node, observation, desired)
    virtual = observation.virtual if observation.virtual is not None and observation.virtual.ours else None
    quiet_at = since + in_flight_seconds
    if node.state == CHECKING:
        return _checking(node, virtual, observation, desired, quiet_at)
    if node.state == LENT:
        return _lent(node, virtual, observation, desired)
    return _recalled(node, virtual, observation, desired, quiet_at)


def bears_amendment(step: Step | None, observation: Observation, listed_at: float | None, quiet_at: float) -> bool:
    """Whether it may be carried out on nodes as they were read or answered before, at whose versions each write is.

    What offers may not; what ends a recall may, on pods that were listed since. listed_at: when these lists began;
    None: one of the nodes was written after them. quiet_at: the in-flight time is over. While the register has its
    version no kubelet lets a pool's pod in that was not let in by then, so that none comes after a later list.
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
    """What this node means for its pods: whether real ones may be created, whether all are to go."""
    observation = _of_its_pool(observation)
    node = observation.node
    return NodeContext(
        takes=node is not None and node.state == LENT and not node.foreign and observation.owner_read,
        leaving=_leaving(observation, desired),
        grace_seconds=grace_seconds,
        owner_read=observation.owner_read,
        pool_read=observation.pool_read,
        node_gone=observation.owner_read and node is None,
        forces=not _is_held(node, desired),
    )


def _leaving(observation: Observation, desired: DesiredLoan) -> bool:
    """Pods stay while the node is lent, and while a freeze holds a recall that nobody asked for by name."""
    node = observation.node
    if not observation.owner_read:
        return bool(desired.recall) and not (desired.frozen and desired.recall == CAUSE_NEED)
    if node is None or node.state in (OWNED, CHECKING):
        return node is None or not node.foreign
    if node.foreign or node.state == LENT:
        return False
    return not _is_held(node, desired)


def _is_held(node: OwnerNode | None, desired: DesiredLoan) -> bool:
    """Whether a freeze holds the recall of this node, since nobody asked for it by name."""
    needed = node is not None and node.state == RECALLED and node.cause == CAUSE_NEED
    return desired.frozen and needed and desired.recall in ("", CAUSE_NEED)


def _owned(observation: Observation, desired: DesiredLoan) -> Step | None:
    node = observation.node
    if not observation.pool_read:
        return None
    virtual = observation.virtual if observation.virtual is not None and observation.virtual.ours else None
    if virtual is not None:
        return _clear(virtual, observation)
    if observation.real_pods or _pods_left(observation):
        return None
    if desired.logged is not None:
        return SayReturned(desired.logged)
    if node is None:
        return None
    if node.marked:
        return Mark(_at(node), OWNED, None)
    wanted = desired.lend and not (desired.frozen or desired.log_away or node.opted_out)
    if wanted and not observation.occupied and observation.virtual is None:
        return Mark(_at(node), CHECKING, desired.loan, pool=desired.pool)
    return None


def _checking(
    node: OwnerNode, virtual: VirtualNode | None, observation: Observation, desired: DesiredLoan, quiet_at: float
) -> Step | None:
    stopped = not desired.lend or desired.frozen or desired.log_away or node.opted_out
    stopped = stopped or bool(desired.recall) or _is_elsewhere(node, desired)
    in_the_way = observation.occupied or bool(observation.real_pods) or _pods_left(observation)
    if stopped or in_the_way or (virtual is None and observation.virtual is not None):
        if virtual is not None:
            return _clear(virtual, observation)
        return None if observation.real_pods else _untaint(node, observation, desired)
    if observation.read_at < quiet_at:
        return WaitUntil(quiet_at)
    assert node.loan is not None
    if virtual is None:
        return CreateVirtual(node.loan)
    if virtual.open or virtual.loan != node.loan:
        return _clear(virtual, observation)
    return Mark(_at(node), LENT, node.loan)


def _lent(node: OwnerNode, virtual: VirtualNode | None, observation: Observation, desired: DesiredLoan) -> Step | None:
    cause = _recall_cause(node, virtual, observation, desired)
    if cause:
        return Mark(_at(node), RECALLED, node.loan, cause)
    assert node.loan is not None
    assert virtual is not None
    if desired.logged != node.loan:
        return SayLent(node.loan)
    if virtual.open and virtual.current and virtual.reachable:
        return None
    if not virtual.open and desired.frozen:
        return None
    return ShowVirtual(_at(virtual))


def _recalled(
    node: OwnerNode, virtual: VirtualNode | None, observation: Observation, desired: DesiredLoan, quiet_at: float
) -> Step | None:
    if virtual is not None:
        return _clear(virtual, observation)
    if observation.real_pods or _pods_left(observation):
        return None
    if observation.read_at < quiet_at:
        return WaitUntil(quiet_at)
    return _untaint(node, observation, desired)


def _untaint(node: OwnerNode, observation: Observation, desired: DesiredLoan) -> Step:
    """Where nobody could look for the virtual node, that it may be there is in the log first.

    Of a loan that the log has as lent its NodeReturned says so, which follows.
    """
    looked = observation.pool_read and desired.pool_joined
    if looked or not node.pool or node.pool in desired.left_in or node.loan is None or node.loan == desired.logged:
        return Mark(_at(node), OWNED, None)
    return SayLeft(node.loan, node.pool)


def _recall_cause(node: OwnerNode, virtual: VirtualNode | None, observation: Observation, desired: DesiredLoan) -> str:
    """Why a lent node goes back, the weightiest first; empty: it stays."""
    if desired.recall and not (desired.recall == CAUSE_NEED and desired.frozen):
        return desired.recall
    if _is_elsewhere(node, desired):
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


def _clear(virtual: VirtualNode, observation: Observation) -> Step | None:
    """Closed, then empty, then deleted. Closed again where it names another bridge: its pods' logs are asked for."""
    if virtual.open or not virtual.reachable:
        return CloseVirtual(_at(virtual))
    return None if observation.real_pods or _pods_left(observation) else DeleteVirtual(_at(virtual))


def _with_owner_unread(observation: Observation, desired: DesiredLoan) -> Step | None:
    """A recall closes the virtual node at once; all else waits for the register."""
    virtual = observation.virtual
    if (
        _leaving(observation, desired)
        and observation.pool_read
        and virtual is not None
        and virtual.ours
        and virtual.open
    ):
        return CloseVirtual(_at(virtual))
    return None


def _with_pool_unread(node: OwnerNode, observation: Observation, desired: DesiredLoan) -> Step | None:
    """A recall is marked. A node that is being checked goes back: its virtual node, if there is one, never opened."""
    if node.state == CHECKING and not observation.real_pods:
        return _untaint(node, observation, desired)
    cause = _recall_cause(node, None, observation, desired) if node.state == LENT else ""
    return Mark(_at(node), RECALLED, node.loan, cause) if cause else None


def _of_its_pool(observation: Observation) -> Observation:
    """What was read of another pool than the loan's says nothing of it."""
    node = observation.node
    if node is None or not node.pool or node.pool == observation.pool:
        return observation
    return replace(observation, virtual=None, pool_pods=(), pool_read=False)


def _is_elsewhere(node: OwnerNode, desired: DesiredLoan) -> bool:
    """Another pool is declared since: what is lent comes back first."""
    return bool(node.pool and desired.pool) and node.pool != desired.pool


def _pods_left(observation: Observation) -> bool:
    return any(pod.is_left for pod in observation.pool_pods)


def _at(thing: OwnerNode | VirtualNode) -> At:
    return At(thing.uid, thing.resource_version)
