"""What KEDA does while a trigger cannot be read: how often it failed, and what stands in for it. Pure.

Source: pkg/fallback/fallback.go. Applied when the failures in a row are more than the threshold; until then the failure
is passed on, and nothing scales in.
"""

import re
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

STATIC: Final = "static"
CURRENT: Final = "currentReplicas"
CURRENT_IF_HIGHER: Final = "currentReplicasIfHigher"
CURRENT_IF_LOWER: Final = "currentReplicasIfLower"
SCALING_MODIFIERS: Final = "scalingModifiers"

HAPPY: Final = "happy"
FAILING: Final = "failing"

FALLBACK_EXISTS: Final = "FallbackExists"
NO_FALLBACK_FOUND: Final = "NoFallbackFound"

NOTHING_MILLI: Final = -1000
"""Stands for a trigger's value that a formula is to see as nil."""


class Fallback(Struct, frozen=True):
    """behavior "": the fixed number, as STATIC, but not before the current number could be read."""

    replicas: int
    failure_threshold: int
    behavior: str = ""


class Composite(Struct, frozen=True):
    """What of scalingModifiers a fallback looks at. target: as written; a fallback knows whole numbers only."""

    target: str
    by_value: bool


class Health(Struct, frozen=True):
    """failures: in a row."""

    failures: int = 0
    status: str = HAPPY


class Trigger(Struct, frozen=True):
    """The metric's target, in milli-units per replica, or in all (by_value). composite: of a formula over triggers."""

    target_milli: int
    by_value: bool
    composite: Composite | None = None


class Now(Struct, frozen=True):
    """Replicas as asked for, and ready; None: not known."""

    replicas: int | None
    ready: int | None


class Answer(Struct, frozen=True):
    """values_milli None: the trigger failed. active: a fallback stands in. of_composite: for the formula's metric.

    reason: of the condition Fallback; "": there is none. failed: a fallback was due, and could not be computed.
    """

    values_milli: tuple[int, ...] | None
    health: Health | None
    reason: str = ""
    active: bool = False
    of_composite: bool = False
    failed: bool = False


def answer(
    trigger: Trigger, values_milli: Sequence[int] | None, fallback: Fallback | None, health: Health | None, now: Now
) -> Answer:
    """What the trigger's metric is now. values_milli None: it could not be read."""
    values = None if values_milli is None else tuple(values_milli)
    if fallback is None or not _valid(trigger, fallback):
        return Answer(values, health)
    if values is not None:
        return Answer(values, Health(), NO_FALLBACK_FOUND)
    counted = Health((health or Health()).failures + 1, FAILING)
    if counted.failures <= fallback.failure_threshold:
        return Answer(None, counted, NO_FALLBACK_FOUND)
    if fallback.behavior == SCALING_MODIFIERS:
        return Answer((NOTHING_MILLI,), counted, FALLBACK_EXISTS)
    replicas = _replicas(fallback, now)
    milli = None if replicas is None else _metric_milli(trigger, replicas, now)
    if milli is None:
        return Answer(None, counted, FALLBACK_EXISTS, failed=True)
    return Answer((milli,), counted, FALLBACK_EXISTS, active=True, of_composite=trigger.composite is not None)


def _valid(trigger: Trigger, fallback: Fallback) -> bool:
    if fallback.failure_threshold < 0 or fallback.replicas < 0:
        return False
    return trigger.composite is None or whole(trigger.composite.target) != 0


def whole(text: str) -> int:
    """The number that is written; 0 where that is none that is whole."""
    return int(text) if re.fullmatch(r"[+-]?[0-9]+", text, re.ASCII) else 0


def _replicas(fallback: Fallback, now: Now) -> int | None:
    if fallback.behavior == STATIC:
        return fallback.replicas
    if now.replicas is None:
        return None
    if fallback.behavior == CURRENT:
        return now.replicas
    if fallback.behavior == CURRENT_IF_HIGHER:
        return max(now.replicas, fallback.replicas)
    if fallback.behavior == CURRENT_IF_LOWER:
        return min(now.replicas, fallback.replicas)
    return fallback.replicas


def _metric_milli(trigger: Trigger, replicas: int, now: Now) -> int | None:
    """The value with which Kubernetes' arithmetic gives just these replicas."""
    composite = trigger.composite
    target_milli = trigger.target_milli if composite is None else whole(composite.target) * 1000
    by_value = trigger.by_value if composite is None else composite.by_value
    if not by_value:
        return target_milli * replicas
    return target_milli * replicas // now.ready if now.ready else None
