"""What is known of one node and its loan: the owner's register, the virtual node, the pods on both sides.

Read in this order: virtual node, real node, pool pods, real pods; then the pool pod of each real pod that came without
one, for that may have come in between. docs/lending.md says why.
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
    """The register. state: OWNED, checking, lent or recalled. marked: it bears something of ours, whatever its state.

    pool: where the loan's virtual node is; empty where the register does not say. foreign: the marks are
    another fleet's. opted_out: the owner's people say never.
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
    """open: it takes pods. ours: of this very node; else somebody has taken the name. current: shows what it should.

    reachable: it names the kubelet API of the instance whose turn its owner is.
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
    """A pod that is bound to the virtual node. created: a real pod of it was there once. ended: Succeeded or Failed.

    grace_seconds: once it is being deleted, those that are left of its grace; else its own. held: it is deleted with
    no grace left, and only a finalizer of the pool's people keeps it.
    """

    uid: str
    deleting: bool = False
    created: bool = False
    ended: bool = False
    grace_seconds: int = 30
    held: bool = False

    @property
    def is_left(self) -> bool:
        """Whether the node waits until it is gone.

        One that has ended holds nothing: its pool may keep it, and what it logged. Nor does one of which there never
        was a real pod, and on a node that goes back there will be none: who makes pods with the node's name in them
        makes others without end.
        """
        return self.created and not self.held and (self.deleting or not self.ended)


@dataclass(frozen=True, slots=True)
class RealPod:
    """A pod of the pool's on the real node. overdue: its grace is over, and it is still there.

    news: its status is not what the pool pod shows. behind: people have changed the pool pod since it was made.
    seconds_left: whole ones of its grace, which began when this bridge first saw it; 0 of one that nobody deletes.
    grace_seconds: its own, by which it ends when nobody names another.
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
    """All that was read of one node in one go; read_at: when reading began, in seconds of the bridge's own clock.

    node None: there is no such node. occupied: pods of the owner that are no daemons. owner_read, pool_read: whether
    that side could be read at all; what could not be read says nothing. pool: the one that was read.
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
