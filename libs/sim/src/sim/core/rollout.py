"""Computes the number of replicas that each ReplicaSet of a Deployment should have now."""

from collections.abc import Sequence
from dataclasses import dataclass

_DESIRED = "deployment.kubernetes.io/desired-replicas"
DESIRED_ANNOTATION = _DESIRED


@dataclass(frozen=True, slots=True)
class SetCount:
    """One ReplicaSet: its wanted, existing and available pods. Lists of old sets begin with the oldest."""

    name: str
    replicas: int
    actual: int
    available: int


@dataclass(frozen=True, slots=True)
class Limits:
    replicas: int
    surge: int
    unavailable: int


def resolve_limits(replicas: int, surge: int | str, unavailable: int | str) -> Limits:
    """Returns the limits, from percentages of the replicas: surge rounds up, unavailable down.

    If both are 0, unavailable becomes 1, because otherwise the rollout would never proceed.
    """
    more = _resolve_percentage(surge, replicas, up=True)
    fewer = _resolve_percentage(unavailable, replicas, up=False)
    if more == 0 and fewer == 0:
        fewer = 1
    return Limits(replicas, more, min(fewer, replicas))


def _resolve_percentage(declared: int | str, whole: int, *, up: bool) -> int:
    if isinstance(declared, int):
        return declared
    # Integers divide exactly. `-(-a // b)` rounds up.
    hundredfold = int(declared.rstrip("%")) * whole
    return -(-hundredfold // 100) if up else hundredfold // 100


def rolled_replicas_by_name(limits: Limits, new: SetCount, old: Sequence[SetCount]) -> dict[str, int]:
    """Returns the changed replica counts of one round of a rolling update: first up, and down when nothing goes up."""
    grown = _grown_replicas(limits, new, sum(one.replicas for one in old))
    if grown != new.replicas:
        return {new.name: grown}
    return _shrunk_replicas_by_name(limits, new, old)


def _grown_replicas(limits: Limits, new: SetCount, old_replicas: int) -> int:
    if new.replicas >= limits.replicas:
        return limits.replicas
    room = limits.replicas + limits.surge - new.replicas - old_replicas
    return new.replicas + max(0, min(room, limits.replicas - new.replicas))


def _shrunk_replicas_by_name(limits: Limits, new: SetCount, old: Sequence[SetCount]) -> dict[str, int]:
    total = new.replicas + sum(one.replicas for one in old)
    floor = limits.replicas - limits.unavailable
    # New pods that are not available yet are not counted on. Old ones that are not available go first, as they serve
    # nobody.
    may_go = total - floor - (new.replicas - new.available)
    left = {one.name: one.replicas for one in old}
    for one in old:
        sick = max(0, min(one.replicas - one.available, may_go))
        left[one.name] -= sick
        may_go -= sick
    available = new.available + sum(one.available for one in old)
    may_go = min(may_go, available - floor)
    for one in old:
        healthy = max(0, min(left[one.name], may_go))
        left[one.name] -= healthy
        may_go -= healthy
    return {one.name: left[one.name] for one in old if left[one.name] != one.replicas}


def recreated_replicas_by_name(replicas: int, new: SetCount, old: Sequence[SetCount]) -> dict[str, int]:
    """Returns changed replica counts: all old pods go before a new one comes.

    `actual` of old sets includes terminating pods.
    """
    stopped = {one.name: 0 for one in old if one.replicas}
    if stopped:
        return stopped
    if any(one.actual for one in old) or new.replicas == replicas:
        return {}
    return {new.name: replicas}


def resized_replicas_by_name(limits: Limits, new: SetCount | None, old: Sequence[SetCount]) -> dict[str, int]:
    """Returns the changed replica counts after a change of the Deployment's replicas.

    A single live ReplicaSet takes the whole change. Several live ones share it in proportion to their replicas.
    """
    every = [*old, *([new] if new else [])]
    live = [one for one in every if one.replicas > 0]
    if len(live) <= 1:
        target = live[0] if live else every[-1]
        return {target.name: limits.replicas} if target.replicas != limits.replicas else {}
    total = sum(one.replicas for one in live)
    allowed = limits.replicas + limits.surge if limits.replicas else 0
    to_add = allowed - total
    counts = {one.name: one.replicas for one in live}
    largest_first = sorted(live, key=lambda one: -one.replicas)
    for one in largest_first:
        share = one.replicas * allowed // total - one.replicas
        share = max(min(share, to_add), 0) if to_add > 0 else min(max(share, to_add), 0)
        counts[one.name] += share
        to_add -= share
    # Rounding leaves a rest. As in Kubernetes, the largest ReplicaSet takes it.
    first = largest_first[0].name
    counts[first] = max(0, counts[first] + to_add)
    return {one.name: counts[one.name] for one in live if counts[one.name] != one.replicas}
