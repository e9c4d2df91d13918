"""Types for the known state of one node and its loan: the register, the virtual node, and the pods on both sides.

The order of reading is: virtual node, real node, pool pods, real pods. A real pod may come without its pool pod. That
pool pod is then read by its name, because it may have come in between. docs/lending.md explains this order.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spillway.model import Generation

Manifest = Mapping[str, Any]

OWNED = ""
"""The state of a register without our taint."""


@dataclass(frozen=True, slots=True)
class OwnerNode:
    """The register on the owner's node.

    state: OWNED, checking, lent or recalled.
    marked: whether the node has any mark of ours, in any state.
    foreign: whether the marks are another fleet's.
    opted_out: whether a label of the owner's users forbids lending it.
    pool: the pool of the loan's virtual node; empty: the register does not name it.
    """

    uid: str
    resource_version: str
    state: str
    loan: Generation | None
    cause: str = ""
    marked: bool = False
    foreign: bool = False
    opted_out: bool = False
    pool: str = ""


@dataclass(frozen=True, slots=True)
class VirtualNode:
    """The virtual node of one lent node, as read in the pool.

    open: whether it takes pods.
    ours: whether it stands for this node; otherwise another node object has the name.
    current: whether its content equals the content that the bridge would write now.
    reachable: whether it names the kubelet API of the instance that has the owner's turn.
    """

    uid: str
    resource_version: str
    loan: Generation | None
    open: bool
    ours: bool = True
    current: bool = True
    reachable: bool = True


@dataclass(frozen=True, slots=True)
class PoolPod:
    """A pod that is bound to the virtual node.

    created: whether a real pod of it has existed.
    ended: whether its phase is Succeeded or Failed.
    grace_seconds: the rest of its grace while it is being deleted; otherwise its full grace.
    held: whether it is deleted with no grace left, and only a finalizer of the pool's users keeps it.
    """

    uid: str
    deleting: bool = False
    created: bool = False
    ended: bool = False
    grace_seconds: int = 30
    held: bool = False

    @property
    def is_blocking_return(self) -> bool:
        """Returns whether the node has to wait until this pod is gone.

        A pod that has ended holds nothing: its pool may keep it with its logs. A pod that never had a real pod holds
        nothing either, and a node that goes back gets no new real pods. Waiting for it could last for ever, because a
        creator that writes the node's name into pods creates further ones without end.
        """
        return self.created and not self.held and (self.deleting or not self.ended)


@dataclass(frozen=True, slots=True)
class RealPod:
    """A pod of the pool on the real node.

    overdue: whether its grace is over and it is still there.
    news: whether its status differs from the status that the pool pod shows.
    behind: whether the pool pod has changes that the real pod does not have yet.
    seconds_left: whole seconds left of its grace, counted from this bridge's first sight; 0 if it is not being deleted.
    grace_seconds: its own grace, which applies if a deletion names no other.
    """

    uid: str
    pool_uid: str
    deleting: bool = False
    ended: bool = False
    overdue: bool = False
    news: bool = False
    behind: bool = False
    seconds_left: int = 0
    grace_seconds: int = 30


@dataclass(frozen=True, slots=True)
class Observation:
    """The state of one node that one reading found.

    read_at: when reading began, in seconds of the bridge's own clock.
    node: the register; None: there is no such node.
    occupied: whether pods of the owner run there that are not daemons.
    owner_read, pool_read: whether that side could be read at all. Objects of an unread side are unknown, not gone.
    pool: the pool that was read.
    """

    read_at: float
    node: OwnerNode | None
    virtual: VirtualNode | None
    pool_pods: tuple[PoolPod, ...] = ()
    real_pods: tuple[RealPod, ...] = ()
    occupied: bool = False
    owner_read: bool = True
    pool_read: bool = True
    pool: str = ""
