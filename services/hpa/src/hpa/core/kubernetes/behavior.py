"""Limits the number that the metrics ask for by windows, rates and bounds. Pure.

Source: kubernetes v1.36.1, pkg/controller/podautoscaler/horizontal.go (normalizeDesiredReplicas,
normalizeDesiredReplicasWithBehaviors and what they call). The old end of a window or a period does not belong to it,
except for the window of the older rules.
"""

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from hpa.core.kubernetes.go_numbers import INT32_MAX, INT32_MIN, ceiling, int32_of_double
from hpa.core.kubernetes.history import (
    ScalingHistory,
    Steps,
    highest_since,
    lowest_since,
    replicas_changed_since,
    with_change,
    with_recommendation,
)
from hpa.core.kubernetes.policy import BY_PODS, SELECT_DISABLED, SELECT_MIN, Behavior, ControllerSettings, ScalingRules

READY_FOR_NEW_SCALE = "ReadyForNewScale"
SCALE_UP_STABILIZED = "ScaleUpStabilized"
SCALE_DOWN_STABILIZED = "ScaleDownStabilized"
SCALE_UP_LIMIT = "ScaleUpLimit"
SCALE_DOWN_LIMIT = "ScaleDownLimit"
TOO_MANY_REPLICAS = "TooManyReplicas"
TOO_FEW_REPLICAS = "TooFewReplicas"
WITHIN_RANGE = "DesiredWithinRange"


class ReplicaBounds(Struct, frozen=True):
    """The least and the most replicas that the policy allows."""

    least: int
    most: int


class LimitedProposal(Struct, frozen=True):
    """The number of replicas after all limits, with the reasons in Kubernetes' words.

    replicas: the number that is allowed now.
    stabilized: the number after the windows, before rates and bounds.
    """

    replicas: int
    stabilized: int
    stabilized_reason: str
    limited_reason: str
    steps: Steps

    @property
    def is_limited(self) -> bool:
        return self.replicas != self.stabilized


def limit_replicas_by_behavior(
    current: int, desired: int, bounds: ReplicaBounds, behavior: Behavior, history: ScalingHistory, now_ms: int
) -> LimitedProposal:
    """Returns the number of replicas that the behaviour allows. The steps in the result contain `desired`."""
    steps = history.steps or ()
    stabilized = stabilize_replicas(current, desired, steps, behavior, now_ms)
    direction = SCALE_UP_STABILIZED if desired >= current else SCALE_DOWN_STABILIZED
    reason = READY_FOR_NEW_SCALE if stabilized == desired else direction
    replicas, limited_reason = limit_rate(current, stabilized, bounds, behavior, history, now_ms)
    window_ms = max(behavior.up.stabilization_ms, behavior.down.stabilization_ms)
    return LimitedProposal(
        replicas, stabilized, reason, limited_reason, with_recommendation(steps, desired, now_ms, window_ms)
    )


def stabilize_replicas(current: int, desired: int, steps: Steps, behavior: Behavior, now_ms: int) -> int:
    """Returns current, raised to the lowest number in the up window and lowered to the highest in the down window."""
    up = lowest_since(steps, now_ms - behavior.up.stabilization_ms, desired)
    down = highest_since(steps, now_ms - behavior.down.stabilization_ms, desired)
    return min(max(current, up), down)


def limit_rate(
    current: int, desired: int, bounds: ReplicaBounds, behavior: Behavior, history: ScalingHistory, now_ms: int
) -> tuple[int, str]:
    """Returns (replicas, reason): desired, limited by the policies and the bounds, from current."""
    if desired > current:
        limit = max(up_limit(current, behavior.up, history, now_ms), current)
        most, reason = (limit, SCALE_UP_LIMIT) if bounds.most > limit else (bounds.most, TOO_MANY_REPLICAS)
        return (most, reason) if desired > most else (desired, WITHIN_RANGE)
    if desired < current:
        limit = min(down_limit(current, behavior.down, history, now_ms), current)
        least, reason = (limit, SCALE_DOWN_LIMIT) if bounds.least < limit else (bounds.least, TOO_FEW_REPLICAS)
        return (least, reason) if desired < least else (desired, WITHIN_RANGE)
    return desired, WITHIN_RANGE


def up_limit(current: int, rules: ScalingRules, history: ScalingHistory, now_ms: int) -> int:
    """Returns the most replicas that the policies allow, counted from the size at the start of each period."""

    def size_after_growing(start: int, kind: str, amount: int) -> int:
        return start + amount if kind == BY_PODS else int32_of_double(ceiling(float(start) * (1 + amount / 100)))

    # The start value loses against the number of any policy.
    chosen, least = (min, INT32_MAX) if rules.select == SELECT_MIN else (max, INT32_MIN)
    return _limit_of_policies(current, rules, history, now_ms, size_after_growing, chosen, least)


def down_limit(current: int, rules: ScalingRules, history: ScalingHistory, now_ms: int) -> int:
    """Returns the fewest replicas that the policies allow, counted from the size at the start of each period."""

    def size_after_shrinking(start: int, kind: str, amount: int) -> int:
        return start - amount if kind == BY_PODS else int32_of_double(float(start) * (1 - amount / 100))

    chosen, most = (max, INT32_MIN) if rules.select == SELECT_MIN else (min, INT32_MAX)
    return _limit_of_policies(current, rules, history, now_ms, size_after_shrinking, chosen, most)


def _limit_of_policies(
    current: int,
    rules: ScalingRules,
    history: ScalingHistory,
    now_ms: int,
    proposed: Callable[[int, str, int], int],
    chosen: Callable[[int, int], int],
    first: int,
) -> int:
    if rules.select == SELECT_DISABLED:
        return current
    result = first
    for policy in rules.policies:
        after_ms = now_ms - policy.period_ms
        start = (
            current - replicas_changed_since(history.ups, after_ms) + replicas_changed_since(history.downs, after_ms)
        )
        result = chosen(result, proposed(start, policy.kind, policy.amount))
    return result


def with_size_change(
    history: ScalingHistory,
    behavior: Behavior | None,
    before: int,
    after: int,
    now_ms: int,
    doubling_period_ms: int = 0,
) -> ScalingHistory:
    """Returns the history with one more change of the size.

    Without a behaviour, only scale-outs are kept, for the doubling cap.
    """
    if before == after or (behavior is None and not doubling_period_ms):
        return history
    up_ms = behavior.up.longest_period_ms() if behavior else doubling_period_ms
    if after > before:
        return replace(history, ups=with_change(history.ups, after - before, now_ms, up_ms))
    if behavior is None:
        return history
    downs = with_change(history.downs, before - after, now_ms, behavior.down.longest_period_ms())
    return replace(history, downs=downs)


def limit_replicas_without_behavior(
    current: int,
    desired: int,
    bounds: ReplicaBounds,
    history: ScalingHistory,
    settings: ControllerSettings,
    now_ms: int,
) -> LimitedProposal:
    """Returns the number that the older rules allow: one window against scaling in, and a doubling cap."""
    steps = history.steps or ()
    stabilized = stabilize_downscale(desired, steps, settings.downscale_stabilization_ms, now_ms)
    reason = READY_FOR_NEW_SCALE if stabilized == desired else SCALE_DOWN_STABILIZED
    start = current - replicas_changed_since(history.ups, now_ms - settings.doubling_period_ms)
    replicas, limited_reason = limit_doubling(current, stabilized, bounds, settings, start)
    steps = with_recommendation(steps, desired, now_ms, settings.downscale_stabilization_ms)
    return LimitedProposal(replicas, stabilized, reason, limited_reason, steps)


def stabilize_downscale(desired: int, steps: Steps, window_ms: int, now_ms: int) -> int:
    """Returns the highest number of replicas that was asked for within the window, both ends included."""
    return highest_since(steps, now_ms - window_ms - 1, desired)


def limit_doubling(
    current: int, desired: int, bounds: ReplicaBounds, settings: ControllerSettings, start: int | None = None
) -> tuple[int, str]:
    """Returns (replicas, reason): `desired`, limited by the bounds and by the doubling cap.

    start: the size that the doubling cap is computed from; None: the present size.
    """
    begun = current if start is None else start
    limit = max(int32_of_double(max(settings.scale_up_limit_factor * begun, settings.scale_up_limit_minimum)), current)
    most, reason = (limit, SCALE_UP_LIMIT) if bounds.most > limit else (bounds.most, TOO_MANY_REPLICAS)
    if desired < bounds.least:
        return bounds.least, TOO_FEW_REPLICAS
    return (most, reason) if desired > most else (desired, WITHIN_RANGE)
