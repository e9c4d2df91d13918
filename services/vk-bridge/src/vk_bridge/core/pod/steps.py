"""Decides the next step of one pool pod and its real pod. docs/lending.md has the table."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from spillway.events_lending import CAUSE_NODE_GONE
from vk_bridge.core.node.loan import PoolPod, RealPod
from vk_bridge.core.node.steps import NodeContext

GONE = "Gone"
"""The reason of a pool pod whose real pod somebody deleted. It is not started again without their knowledge."""


@dataclass(frozen=True, slots=True)
class CreateReal:
    """Create the real pod. A pool pod that cannot be converted, or that the owner refuses, fails with the reason."""

    pool_uid: str


@dataclass(frozen=True, slots=True)
class Mirror:
    """Write the real pod's status to the pool pod."""

    pool_uid: str


@dataclass(frozen=True, slots=True)
class UpdateReal:
    """Write to the real pod the changes that users have made to the pool pod."""

    pool_uid: str


@dataclass(frozen=True, slots=True)
class FailPool:
    pool_uid: str
    reason: str


@dataclass(frozen=True, slots=True)
class DeletePool:
    """Delete the pool pod with grace, so that its controller creates another.

    real_uid: the real pod, which is deleted first; empty: there is none, or its deletion was sent before.
    """

    pool_uid: str
    grace_seconds: int
    real_uid: str = ""


@dataclass(frozen=True, slots=True)
class LetGo:
    """Delete the pool pod with no grace, because the real pod is gone."""

    pool_uid: str


@dataclass(frozen=True, slots=True)
class DeleteReal:
    """Delete the real pod. grace_seconds 0 forces its end."""

    uid: str
    grace_seconds: int


PodStep = CreateReal | Mirror | UpdateReal | FailPool | DeletePool | LetGo | DeleteReal


def writes_of_step(step: PodStep) -> tuple[PodStep, ...]:
    """Returns the writes of a step, in order. Each is done only if the one before it was carried out.

    After a crash, the next reader of the two pods decides the missing write as a next step.
    """
    if isinstance(step, DeletePool) and step.real_uid:
        return (DeleteReal(step.real_uid, step.grace_seconds), step)
    return (step,)


def urgent_part_of_step(step: PodStep) -> PodStep | None:
    """Returns the part of a step that is done at once even while other owners wait for nodes: a real pod's deletion.

    The real pod's grace begins with it. The pool pod is deleted when no owner waits, or when the real pod has ended.
    That delays nothing.
    """
    if isinstance(step, DeletePool):
        return DeleteReal(step.real_uid, step.grace_seconds) if step.real_uid else None
    return step


def steps_while_others_wait(steps: Sequence[PodStep]) -> tuple[PodStep, ...]:
    """Returns the parts of these steps that are done now while other recalled nodes wait: deletions of real pods."""
    return tuple(one for one in map(urgent_part_of_step, steps) if one is not None)


def pod_step(pool: PoolPod | None, real: RealPod | None, context: NodeContext) -> PodStep | None:
    """Returns one step for a pair that belongs together (real.pool_uid is pool.uid). Either pod may be absent."""
    if real is not None and real.overdue and context.forces:
        return DeleteReal(real.uid, 0)
    if real is not None and context.leaving and real.deleting and real.seconds_left > context.grace_seconds:
        return DeleteReal(real.uid, context.grace_seconds)
    if pool is None:
        if real is None or real.deleting:
            return None
        # In a pool that was not read, the pool pod may still exist. On a leaving node the real pod goes in any case.
        unknown = not context.pool_read
        return None if unknown and not context.leaving else DeleteReal(real.uid, _shorter_grace_seconds(real, context))
    if real is None:
        return (
            _pod_step_without_real_pod(pool, context)
            if context.owner_read
            else _pod_step_with_owner_unread(pool, context)
        )
    return _pod_step_with_both_pods(pool, real, context)


Pair = tuple[PoolPod | None, RealPod | None]


def pod_pairs(pool_pods: Iterable[PoolPod], real_pods: Sequence[RealPod]) -> list[Pair]:
    """Returns each pool pod with its real pod, then the real pods that have no pool pod, in their order."""
    left = {real.pool_uid: real for real in real_pods}
    found: list[Pair] = [(pool, left.pop(pool.uid, None)) for pool in pool_pods]
    return [*found, *((None, real) for real in left.values())]


def _pod_step_without_real_pod(pool: PoolPod, context: NodeContext) -> PodStep | None:
    if pool.deleting:
        return None if pool.held else LetGo(pool.uid)
    if pool.ended:
        return None
    if context.node_gone:
        return FailPool(pool.uid, CAUSE_NODE_GONE) if pool.created else DeletePool(pool.uid, 0)
    if context.leaving:
        return LetGo(pool.uid) if pool.created else DeletePool(pool.uid, _shorter_grace_seconds(pool, context))
    if pool.created:
        return FailPool(pool.uid, GONE)
    return CreateReal(pool.uid) if context.takes else None


def _pod_step_with_owner_unread(pool: PoolPod, context: NodeContext) -> PodStep | None:
    """Returns the step while the owner cannot be read: a leaving pool pod is deleted with its grace.

    It is deleted without grace (LetGo) later, when its real pod is known to be gone.
    """
    going = context.leaving and not pool.deleting and not pool.ended
    return DeletePool(pool.uid, _shorter_grace_seconds(pool, context)) if going else None


def _pod_step_with_both_pods(pool: PoolPod, real: RealPod, context: NodeContext) -> PodStep | None:
    """Returns the step for two pods that both exist. In order: a deletion in the pool is carried to the real pod; a new
    status is mirrored; a leaving node's pods are deleted; changes of the pool pod are carried over.
    """
    if pool.deleting:
        grace_seconds = _shorter_grace_seconds(pool, context) if context.leaving else pool.grace_seconds
        return None if real.deleting else DeleteReal(real.uid, grace_seconds)
    # On a leaving node a status is mirrored only if it is the first one, or if the real pod has ended by itself.
    stays_so = context.leaving and pool.created and (real.deleting or not real.ended)
    if real.news and not pool.ended and not stays_so:
        return Mirror(pool.uid)
    if context.leaving:
        if not pool.ended:
            return DeletePool(pool.uid, _shorter_grace_seconds(pool, context), "" if real.deleting else real.uid)
        return None if real.deleting else DeleteReal(real.uid, _shorter_grace_seconds(real, context))
    if real.behind and not (real.deleting or real.ended or pool.ended):
        return UpdateReal(pool.uid)
    return None


def _shorter_grace_seconds(pod: PoolPod | RealPod, context: NodeContext) -> int:
    """Returns the grace to use: the node's, but never more than the pod's own."""
    return min(pod.grace_seconds, context.grace_seconds)
