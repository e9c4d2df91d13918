"""Decides what KEDA does while a trigger cannot be read: counts its failures, and puts a fallback in its place. Pure.

Source: pkg/fallback/fallback.go. The fallback applies once the failures in a row are above the threshold. Until then
the failure is passed on, and nothing scales in.
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
"""The value that stands for a failed trigger. A formula must get nil in its place."""


class Fallback(Struct, frozen=True):
    """The replicas to use while a trigger fails. An empty behavior acts as STATIC once the current number is known."""

    replicas: int
    failure_threshold: int
    behavior: str = ""


class Composite(Struct, frozen=True):
    """The fields of scalingModifiers that a fallback uses.

    target: the manifest's text. If it is no whole number, it counts as 0, and the fallback is not used.
    by_value: the target is for all replicas together, not for each one.
    """

    target: str
    by_value: bool


class TriggerHealth(Struct, frozen=True):
    """The health of one trigger. failures: how many polls in a row have failed."""

    failures: int = 0
    status: str = HAPPY


class Trigger(Struct, frozen=True):
    """A trigger's target value in milli-units: per replica, or for all replicas together if by_value is set.

    composite: the formula that joins several triggers, if there is one.
    """

    target_milli: int
    by_value: bool
    composite: Composite | None = None


class ReplicaCounts(Struct, frozen=True):
    """The number of replicas that the workload asks for, and how many are ready; None: not known."""

    replicas: int | None
    ready: int | None


class TriggerMetric(Struct, frozen=True):
    """The answer of a trigger, or of the fallback that replaces it.

    values_milli: its values, or the fallback's, in thousandths; None: the trigger failed.
    reason: the reason of the condition Fallback; "" without one.
    active: True if a fallback replaces the trigger.
    of_composite: True if the values are for the formula's metric.
    failed: True if a fallback was needed but could not be computed.
    """

    values_milli: tuple[int, ...] | None
    health: TriggerHealth | None
    reason: str = ""
    active: bool = False
    of_composite: bool = False
    failed: bool = False


def answer_of_trigger(
    trigger: Trigger,
    values_milli: Sequence[int] | None,
    fallback: Fallback | None,
    health: TriggerHealth | None,
    now: ReplicaCounts,
) -> TriggerMetric:
    """Returns the values that KEDA would give the autoscaler for a trigger: its own, or those of the fallback.

    values_milli: the trigger's own values; None: it could not be read.
    health: the failures before this poll.
    """
    values = None if values_milli is None else tuple(values_milli)
    if fallback is None or not _is_fallback_valid(trigger, fallback):
        return TriggerMetric(values, health)
    if values is not None:
        return TriggerMetric(values, TriggerHealth(), NO_FALLBACK_FOUND)
    counted = TriggerHealth((health or TriggerHealth()).failures + 1, FAILING)
    if counted.failures <= fallback.failure_threshold:
        return TriggerMetric(None, counted, NO_FALLBACK_FOUND)
    if fallback.behavior == SCALING_MODIFIERS:
        return TriggerMetric((NOTHING_MILLI,), counted, FALLBACK_EXISTS)
    replicas = _fallback_replicas(fallback, now)
    milli = None if replicas is None else _metric_milli_for_replicas(trigger, replicas, now)
    if milli is None:
        return TriggerMetric(None, counted, FALLBACK_EXISTS, failed=True)
    return TriggerMetric((milli,), counted, FALLBACK_EXISTS, active=True, of_composite=trigger.composite is not None)


def _is_fallback_valid(trigger: Trigger, fallback: Fallback) -> bool:
    if fallback.failure_threshold < 0 or fallback.replicas < 0:
        return False
    return trigger.composite is None or parse_whole_number(trigger.composite.target) != 0


def parse_whole_number(text: str) -> int:
    """Returns the whole number of the text; 0 when it is no whole number, or has more than 19 digits."""
    return int(text) if re.fullmatch(r"[+-]?[0-9]{1,19}", text, re.ASCII) else 0


def _fallback_replicas(fallback: Fallback, now: ReplicaCounts) -> int | None:
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


def _metric_milli_for_replicas(trigger: Trigger, replicas: int, now: ReplicaCounts) -> int | None:
    """Returns the value for which Kubernetes' arithmetic gives exactly these replicas."""
    composite = trigger.composite
    target_milli = trigger.target_milli if composite is None else parse_whole_number(composite.target) * 1000
    by_value = trigger.by_value if composite is None else composite.by_value
    if not by_value:
        return target_milli * replicas
    return target_milli * replicas // now.ready if now.ready else None
