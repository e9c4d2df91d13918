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


def next_step(sight: Observation, wish: DesiredLoan, since: float, in_flight_seconds: float) -> Step | None:
    """One step, or None: as it should be, or the pods have to go first (`node_context`).

    since: of FirstObservations, for this register. Raises nothing; every combination has a step.
    """
    if not sight.owner_read:
        return _with_owner_unread(sight, wish)
    sight = _of_its_pool(sight)
    node = sight.node
    if node is None or (node.state == OWNED and not node.foreign):
        return _owned(sight, wish)
    if node.foreign:
        return None
    if not sight.pool_read:
        return _with_pool_unread(node, sight, wish)
    virtual = sight.virtual if sight.virtual is not None and sight.virtual.ours else None
    quiet_at = since + in_flight_seconds
    if node.state == CHECKING:
        return _checking(node, virtual, sight, wish, quiet_at)
    if node.state == LENT:
        return _lent(node, virtual, sight, wish)
    return _recalled(node, virtual, sight, wish, quiet_at)


def bears_amendment(step: Step | None, sight: Observation, listed_at: float | None, quiet_at: float) -> bool:
    """Whether it may be carried out on nodes as they were read or answered before, at whose versions each write is.

    What offers may not; what ends a recall may, on pods that were listed since. listed_at: when these lists began;
    None: one of the nodes was written after them. quiet_at: the in-flight time is over. While the register has its
    version no kubelet lets a pool's pod in that was not let in by then, so that none comes after a later list.
    """
    listed = sight.node is not None and sight.node.state == RECALLED and listed_at is not None
    match step:
        case Mark(_, state):
            return state == RECALLED or (state == OWNED and listed and (listed_at or 0.0) >= quiet_at)
        case DeleteVirtual():
            return listed
        case CreateVirtual() | ShowVirtual():
            return False
    return True


def node_context(sight: Observation, wish: DesiredLoan, grace_seconds: int) -> NodeContext:
    """What this node means for its pods: whether real ones may be created, whether all are to go."""
    sight = _of_its_pool(sight)
    node = sight.node
    return NodeContext(
        takes=node is not None and node.state == LENT and not node.foreign and sight.owner_read,
        leaving=_leaving(sight, wish),
        grace_seconds=grace_seconds,
        owner_read=sight.owner_read,
        pool_read=sight.pool_read,
        node_gone=sight.owner_read and node is None,
        forces=not _is_held(node, wish),
    )


def _leaving(sight: Observation, wish: DesiredLoan) -> bool:
    """Pods stay while the node is lent, and while a freeze holds a recall that nobody asked for by name."""
    node = sight.node
    if not sight.owner_read:
        return bool(wish.recall) and not (wish.frozen and wish.recall == CAUSE_NEED)
    if node is None or node.state in (OWNED, CHECKING):
        return node is None or not node.foreign
    if node.foreign or node.state == LENT:
        return False
    return not _is_held(node, wish)


def _is_held(node: OwnerNode | None, wish: DesiredLoan) -> bool:
    """Whether a freeze holds the recall of this node, since nobody asked for it by name."""
    needed = node is not None and node.state == RECALLED and node.cause == CAUSE_NEED
    return wish.frozen and needed and wish.recall in ("", CAUSE_NEED)


def _owned(sight: Observation, wish: DesiredLoan) -> Step | None:
    node = sight.node
    if not sight.pool_read:
        return None
    virtual = sight.virtual if sight.virtual is not None and sight.virtual.ours else None
    if virtual is not None:
        return _clear(virtual, sight)
    if sight.real_pods or _pods_left(sight):
        return None
    if wish.logged is not None:
        return SayReturned(wish.logged)
    if node is None:
        return None
    if node.marked:
        return Mark(_at(node), OWNED, None)
    wanted = wish.lend and not (wish.frozen or wish.log_away or node.opted_out)
    if wanted and not sight.occupied and sight.virtual is None:
        return Mark(_at(node), CHECKING, wish.loan, pool=wish.pool)
    return None


def _checking(
    node: OwnerNode, virtual: VirtualNode | None, sight: Observation, wish: DesiredLoan, quiet_at: float
) -> Step | None:
    stopped = not wish.lend or wish.frozen or wish.log_away or node.opted_out
    stopped = stopped or bool(wish.recall) or _is_elsewhere(node, wish)
    in_the_way = sight.occupied or bool(sight.real_pods) or _pods_left(sight)
    if stopped or in_the_way or (virtual is None and sight.virtual is not None):
        if virtual is not None:
            return _clear(virtual, sight)
        return None if sight.real_pods else _untaint(node, sight, wish)
    if sight.read_at < quiet_at:
        return WaitUntil(quiet_at)
    assert node.loan is not None
    if virtual is None:
        return CreateVirtual(node.loan)
    if virtual.open or virtual.loan != node.loan:
        return _clear(virtual, sight)
    return Mark(_at(node), LENT, node.loan)


def _lent(node: OwnerNode, virtual: VirtualNode | None, sight: Observation, wish: DesiredLoan) -> Step | None:
    cause = _recall_cause(node, virtual, sight, wish)
    if cause:
        return Mark(_at(node), RECALLED, node.loan, cause)
    assert node.loan is not None
    assert virtual is not None
    if wish.logged != node.loan:
        return SayLent(node.loan)
    if virtual.open and virtual.current and virtual.reachable:
        return None
    if not virtual.open and wish.frozen:
        return None
    return ShowVirtual(_at(virtual))


def _recalled(
    node: OwnerNode, virtual: VirtualNode | None, sight: Observation, wish: DesiredLoan, quiet_at: float
) -> Step | None:
    if virtual is not None:
        return _clear(virtual, sight)
    if sight.real_pods or _pods_left(sight):
        return None
    if sight.read_at < quiet_at:
        return WaitUntil(quiet_at)
    return _untaint(node, sight, wish)


def _untaint(node: OwnerNode, sight: Observation, wish: DesiredLoan) -> Step:
    """Where nobody could look for the virtual node, that it may be there is in the log first.

    Of a loan that the log has as lent its NodeReturned says so, which follows.
    """
    looked = sight.pool_read and wish.pool_joined
    if looked or not node.pool or node.pool in wish.left_in or node.loan is None or node.loan == wish.logged:
        return Mark(_at(node), OWNED, None)
    return SayLeft(node.loan, node.pool)


def _recall_cause(node: OwnerNode, virtual: VirtualNode | None, sight: Observation, wish: DesiredLoan) -> str:
    """Why a lent node goes back, the weightiest first; empty: it stays."""
    if wish.recall and not (wish.recall == CAUSE_NEED and wish.frozen):
        return wish.recall
    if _is_elsewhere(node, wish):
        return CAUSE_ASKED
    if node.opted_out:
        return CAUSE_OPT_OUT
    if sight.occupied:
        return CAUSE_OCCUPIED
    if sight.pool_read and (virtual is None or virtual.loan != node.loan):
        return CAUSE_VIRTUAL_NODE_GONE
    if wish.log_away and wish.logged != node.loan and virtual is not None and not virtual.open:
        return CAUSE_LOG_AWAY
    return ""


def _clear(virtual: VirtualNode, sight: Observation) -> Step | None:
    """Closed, then empty, then deleted. Closed again where it names another bridge: its pods' logs are asked for."""
    if virtual.open or not virtual.reachable:
        return CloseVirtual(_at(virtual))
    return None if sight.real_pods or _pods_left(sight) else DeleteVirtual(_at(virtual))


def _with_owner_unread(sight: Observation, wish: DesiredLoan) -> Step | None:
    """A recall closes the virtual node at once; all else waits for the register."""
    virtual = sight.virtual
    if _leaving(sight, wish) and sight.pool_read and virtual is not None and virtual.ours and virtual.open:
        return CloseVirtual(_at(virtual))
    return None


def _with_pool_unread(node: OwnerNode, sight: Observation, wish: DesiredLoan) -> Step | None:
    """A recall is marked. A node that is being checked goes back: its virtual node, if there is one, never opened."""
    if node.state == CHECKING and not sight.real_pods:
        return _untaint(node, sight, wish)
    cause = _recall_cause(node, None, sight, wish) if node.state == LENT else ""
    return Mark(_at(node), RECALLED, node.loan, cause) if cause else None


def _of_its_pool(sight: Observation) -> Observation:
    """What was read of another pool than the loan's says nothing of it."""
    node = sight.node
    if node is None or not node.pool or node.pool == sight.pool:
        return sight
    return replace(sight, virtual=None, pool_pods=(), pool_read=False)


def _is_elsewhere(node: OwnerNode, wish: DesiredLoan) -> bool:
    """Another pool is declared since: what is lent comes back first."""
    return bool(node.pool and wish.pool) and node.pool != wish.pool


def _pods_left(sight: Observation) -> bool:
    return any(pod.is_left for pod in sight.pool_pods)


def _at(thing: OwnerNode | VirtualNode) -> At:
    return At(thing.uid, thing.resource_version)
