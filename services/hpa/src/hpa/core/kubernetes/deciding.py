"""Decides how many replicas a workload gets now, with conditions and reasons. Pure.

Source: kubernetes v1.36.1, pkg/controller/podautoscaler/horizontal.go (reconcileAutoscaler). decide_replicas decides.
Two other functions complete the decision after the write of the new size: decision_after_write and
decision_after_failed_write. Conditions keep their order, and a new kind is appended.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from hpa.core.kubernetes.behavior import (
    ReplicaBounds,
    limit_replicas_by_behavior,
    limit_replicas_without_behavior,
    with_size_change,
)
from hpa.core.kubernetes.history import NOTHING_KNOWN, ScalingHistory, with_recommendation
from hpa.core.kubernetes.pods import PodsSeen, Readiness
from hpa.core.kubernetes.policy import Autoscaler, ControllerSettings
from hpa.core.kubernetes.proposals import MetricProposal, MetricStatus, Reading, largest_proposal
from hpa.core.kubernetes.replicas import ReplicaContext
from hpa.core.kubernetes.usage import Tolerance
from spillway.texts import cut_text_to_bytes

ABLE_TO_SCALE: Final = "able_to_scale"
SCALING_ACTIVE: Final = "scaling_active"
SCALING_LIMITED: Final = "scaling_limited"
SCALED_TO_ZERO: Final = "scaled_to_zero"

NORMAL: Final = "normal"
WARNING: Final = "warning"

ABOVE_MAX: Final = "Current number of replicas above Spec.MaxReplicas"
BELOW_MIN: Final = "Current number of replicas below Spec.MinReplicas"

FAILED_GET_SCALE: Final = "FailedGetScale"
SELECTOR_REQUIRED: Final = "SelectorRequired"
INVALID_SELECTOR: Final = "InvalidSelector"
AMBIGUOUS_SELECTOR: Final = "AmbiguousSelector"
MESSAGE_MAX: Final = 1024
"""The most bytes of a condition's message. It is written with every state and may contain text from elsewhere."""


class AutoscalerCondition(Struct, frozen=True, gc=False):
    kind: str
    status: bool
    reason: str
    message: str = ""


DISABLED: Final = AutoscalerCondition(
    SCALING_ACTIVE, False, "ScalingDisabled", "scaling is disabled since the replica count of the target is zero"
)


class AutoscalerNotice(Struct, frozen=True):
    """A message that Kubernetes publishes as an event of the autoscaler."""

    kind: str
    reason: str
    message: str = ""


class ScaleTargetSize(Struct, frozen=True):
    """The target's size.

    replicas: the number of replicas in the target's spec.
    status_replicas: the number of replicas that exist.
    pods_unclear: the reason why it is not known which pods belong to the target; "" if it is known. One of
        SELECTOR_REQUIRED, INVALID_SELECTOR, AMBIGUOUS_SELECTOR.
    """

    replicas: int
    status_replicas: int
    pods_unclear: str = ""


class AutoscalerState(Struct, frozen=True):
    """The state that the previous decision left: its history, its conditions and its desired number."""

    history: ScalingHistory = NOTHING_KNOWN
    conditions: tuple[AutoscalerCondition, ...] = ()
    desired: int = 0


class Decision(Struct, frozen=True):
    """One decision.

    replicas: the size to scale to; None: nothing has to be written.
    desired: the desired number in the status.
    reason: the reason for `replicas`, in Kubernetes' words.
    failed: True if no decision was possible, or not from all metrics.
    asked: the number that the metrics asked for; None: they were not read, or allow no conclusion.
    asked_by: the metric that asked for the most replicas.
    stabilized: the number after the windows, before rates and bounds.
    limited_reason: the reason of the limit on the stabilized number.
    """

    current: int
    desired: int
    replicas: int | None
    reason: str
    history: ScalingHistory
    conditions: tuple[AutoscalerCondition, ...]
    statuses: tuple[MetricStatus, ...] = ()
    notices: tuple[AutoscalerNotice, ...] = ()
    failed: bool = False
    asked: int | None = None
    stabilized: int | None = None
    limited_reason: str = ""
    asked_by: str = ""


def with_conditions(
    conditions: tuple[AutoscalerCondition, ...], *new: AutoscalerCondition
) -> tuple[AutoscalerCondition, ...]:
    """Returns the conditions with the new ones. Each replaces the condition of its kind; a new kind is appended."""
    by_kind = {condition.kind: condition for condition in conditions}
    for condition in new:
        message = cut_text_to_bytes(condition.message, MESSAGE_MAX)
        by_kind[condition.kind] = condition if message == condition.message else replace(condition, message=message)
    return tuple(by_kind.values())


GOT_SCALE: Final = AutoscalerCondition(ABLE_TO_SCALE, True, "SucceededGetScale", "the target's current scale is known")


@lru_cache(maxsize=1024)
def _cached_condition(kind: str, status: bool, reason: str, message: str = "") -> AutoscalerCondition:
    """Returns a condition from a cache, so that equal conditions are the same object in memory."""
    return AutoscalerCondition(kind, status, reason, message)


@lru_cache(maxsize=1024)
def _valid_metric_condition(metric: str) -> AutoscalerCondition:
    message = f"the HPA was able to successfully calculate a replica count from {metric}"
    return AutoscalerCondition(SCALING_ACTIVE, True, "ValidMetricFound", message)


def decision_without_scale(known: AutoscalerState, current: int, message: str) -> Decision:
    """Returns the decision for a target that cannot be read: the size stays, and a condition gives the message."""
    condition = AutoscalerCondition(ABLE_TO_SCALE, False, FAILED_GET_SCALE, message)
    notices = (AutoscalerNotice(WARNING, FAILED_GET_SCALE, message),)
    conditions = with_conditions(known.conditions, condition)
    return Decision(current, known.desired, None, "", known.history, conditions, notices=notices, failed=True)


def decide_replicas(
    policy: Autoscaler,
    scale: ScaleTargetSize,
    seen: PodsSeen,
    readings: Sequence[Reading],
    known: AutoscalerState,
    settings: ControllerSettings,
    now_ms: int,
) -> Decision:
    """Returns the decision for the workload at now_ms. readings: one for each metric, in the same order.

    The caller must complete it with decision_after_write() or decision_after_failed_write().
    """
    current = scale.replicas
    history = known.history
    # Before a first decision, the current size counts as asked for, so that the size does not shrink at once.
    if history.steps is None:
        history = replace(
            history, steps=with_recommendation((), current, now_ms, _stabilization_window_ms(policy, settings))
        )
    said = known.conditions
    if not settings.scale_to_zero:
        said = tuple(one for one in said if one.kind != SCALED_TO_ZERO)
    first = bool(said) and said[0].kind == ABLE_TO_SCALE  # This is the order after a first decision with a scale.
    said = (GOT_SCALE, *said[1:]) if first else with_conditions(said, GOT_SCALE)
    begun = Decision(current, current, None, "", history, said)
    if current == 0 and not _needs_metrics_at_zero(policy, known, settings):
        return _disabled_decision(begun)
    if current > policy.max_replicas:
        return replace(begun, desired=policy.max_replicas, replicas=policy.max_replicas, reason=ABOVE_MAX)
    if 0 < current < policy.min_replicas:
        return replace(begun, desired=policy.min_replicas, replicas=policy.min_replicas, reason=BELOW_MIN)
    if scale.pods_unclear:
        return _decision_with_unclear_pods(begun, scale.pods_unclear, known.desired)
    found = largest_proposal(policy.metrics, readings, replica_context_of(policy, scale, seen, settings, now_ms))
    if found.replicas is None:
        return _decision_without_proposal(begun, found, known.desired)
    return _normalized_decision(begun, policy, found, settings, now_ms)


def _needs_metrics_at_zero(policy: Autoscaler, known: AutoscalerState, settings: ControllerSettings) -> bool:
    """Returns whether metrics are read while the workload has zero replicas.

    Two conditions must hold: hpa itself scaled to zero, or from_zero is set. And the minimum is above zero, or some
    metric has a value without pods.
    """
    if not settings.scale_to_zero:
        return False
    by_us = policy.from_zero or any(
        condition.kind == SCALED_TO_ZERO and condition.status for condition in known.conditions
    )
    return by_us and (policy.min_replicas != 0 or policy.has_metric_without_pods())


def _disabled_decision(begun: Decision) -> Decision:
    return replace(begun, conditions=with_conditions(begun.conditions, DISABLED))


def _decision_with_unclear_pods(begun: Decision, why: str, desired: int) -> Decision:
    reason = AMBIGUOUS_SELECTOR if why == AMBIGUOUS_SELECTOR else INVALID_SELECTOR
    condition = AutoscalerCondition(SCALING_ACTIVE, False, reason, "it is not clear which pods are the target's")
    notices = (AutoscalerNotice(WARNING, why), AutoscalerNotice(WARNING, "FailedComputeMetricsReplicas"))
    conditions = with_conditions(begun.conditions, condition)
    return replace(begun, desired=desired, conditions=conditions, notices=notices, failed=True)


def _decision_without_proposal(begun: Decision, found: MetricProposal, desired: int) -> Decision:
    first = found.failures[0]
    conditions = with_conditions(
        begun.conditions, AutoscalerCondition(SCALING_ACTIVE, False, first.reason, first.message)
    )
    notices = (*_failure_warnings(found), AutoscalerNotice(WARNING, "FailedComputeMetricsReplicas", first.message))
    return replace(begun, desired=desired, conditions=conditions, statuses=found.statuses, notices=notices, failed=True)


def _normalized_decision(
    begun: Decision, policy: Autoscaler, found: MetricProposal, settings: ControllerSettings, now_ms: int
) -> Decision:
    current, history = begun.current, begun.history
    wanted = max(found.replicas or 0, 0)
    metric = found.metric if wanted > 0 else ""
    bounds = ReplicaBounds(policy.min_replicas, policy.max_replicas)
    if policy.behavior is None:
        left = limit_replicas_without_behavior(current, wanted, bounds, history, settings, now_ms)
    else:
        left = limit_replicas_by_behavior(current, wanted, bounds, policy.behavior, history, now_ms)
    conditions = with_conditions(
        begun.conditions,
        _valid_metric_condition(found.metric),
        _cached_condition(ABLE_TO_SCALE, True, left.stabilized_reason),
        _cached_condition(SCALING_LIMITED, left.is_limited, left.limited_reason),
    )
    reason = f"{metric} above target" if wanted > current else "All metrics below target" if wanted < current else ""
    replicas = max(left.replicas, policy.min_replicas)  # A size that left zero may still be limited below the minimum.
    if replicas != left.replicas and not reason:
        reason = BELOW_MIN
    return Decision(
        current=current,
        desired=replicas,
        replicas=replicas if replicas != current else None,
        reason=reason,
        history=ScalingHistory(left.steps, history.ups, history.downs),
        conditions=conditions,
        statuses=found.statuses,
        notices=_failure_warnings(found) if found.failures else (),
        failed=bool(found.failures),
        asked=wanted,
        stabilized=left.stabilized,
        limited_reason=left.limited_reason,
        asked_by=found.metric,
    )


def _failure_warnings(found: MetricProposal) -> tuple[AutoscalerNotice, ...]:
    return tuple(AutoscalerNotice(WARNING, failure.reason, failure.message) for failure in found.failures)


def decision_after_write(decision: Decision, policy: Autoscaler, settings: ControllerSettings, now_ms: int) -> Decision:
    """Returns the decision after the new size was written.

    Adds the conditions, and the change of the size, which limits later changes by rate.
    """
    if decision.replicas is None:
        return decision
    message = f"New size: {decision.replicas}; reason: {decision.reason}"
    condition = AutoscalerCondition(ABLE_TO_SCALE, True, "SucceededRescale", f"scaled to {decision.replicas}")
    conditions = with_conditions(decision.conditions, condition)
    if settings.scale_to_zero:
        conditions = _with_zero_condition(conditions, decision.replicas, policy.min_replicas)
    sizes, period_ms = (decision.current, decision.replicas), settings.doubling_period_ms
    history = with_size_change(decision.history, policy.behavior, *sizes, now_ms, period_ms)
    notices = (*decision.notices, AutoscalerNotice(NORMAL, "SuccessfulRescale", message))
    return replace(decision, conditions=conditions, history=history, notices=notices)


def decision_after_failed_write(decision: Decision, known: AutoscalerState, message: str) -> Decision:
    """Returns the decision after the new size could not be written: the earlier number stays desired."""
    condition = AutoscalerCondition(ABLE_TO_SCALE, False, "FailedUpdateScale", message)
    notices = (*decision.notices, AutoscalerNotice(WARNING, "FailedRescale", message))
    conditions = with_conditions(decision.conditions, condition)
    return replace(decision, desired=known.desired, replicas=None, conditions=conditions, notices=notices, failed=True)


def _with_zero_condition(
    conditions: tuple[AutoscalerCondition, ...], replicas: int, least: int
) -> tuple[AutoscalerCondition, ...]:
    if replicas == 0 and least == 0:
        return with_conditions(conditions, AutoscalerCondition(SCALED_TO_ZERO, True, "ScaledToZero"))
    return with_conditions(conditions, AutoscalerCondition(SCALED_TO_ZERO, False, "NotScaledToZero"))


def replica_context_of(
    policy: Autoscaler, scale: ScaleTargetSize, seen: PodsSeen, settings: ControllerSettings, now_ms: int
) -> ReplicaContext:
    """Returns the values that the calculation of every metric of a policy needs."""
    return ReplicaContext(
        current=scale.replicas,
        status=scale.status_replicas,
        seen=seen,
        tolerance=_tolerance_of_policy(policy, settings),
        readiness=Readiness(settings.cpu_initialization_ms, settings.initial_readiness_delay_ms),
        now_ms=now_ms,
        pod_level_resources=settings.pod_level_resources,
    )


def _tolerance_of_policy(policy: Autoscaler, settings: ControllerSettings) -> Tolerance:
    if policy.behavior is None or not settings.configurable_tolerance:
        return Tolerance(settings.tolerance, settings.tolerance)
    down, up = policy.behavior.down.tolerance, policy.behavior.up.tolerance
    return Tolerance(settings.tolerance if down is None else down, settings.tolerance if up is None else up)


def _stabilization_window_ms(policy: Autoscaler, settings: ControllerSettings) -> int:
    if policy.behavior is None:
        return settings.downscale_stabilization_ms
    return max(policy.behavior.up.stabilization_ms, policy.behavior.down.stabilization_ms)
