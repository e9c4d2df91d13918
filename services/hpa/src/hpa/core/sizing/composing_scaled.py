"""Decides the size of a workload with a ScaledObject, as KEDA does together with its HorizontalPodAutoscaler. Pure."""

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from hpa.core.heard.readings import MetricReading, read_metric, read_trigger
from hpa.core.keda.executor import (
    AUTOSCALER_ACTIVE,
    FORCE_ACTIVATION,
    PAUSED,
    PAUSED_REPLICAS,
    PAUSED_SCALE_IN,
    PAUSED_SCALE_OUT,
    PolledTriggers,
    PollOutcome,
    autoscaler_active_condition,
    decide_poll_outcome,
)
from hpa.core.keda.fallback import (
    FAILING,
    NO_FALLBACK_FOUND,
    Composite,
    ReplicaCounts,
    Trigger,
    TriggerHealth,
    TriggerMetric,
    answer_of_trigger,
)
from hpa.core.keda.formula import composite_milli
from hpa.core.keda.functions import ExpressionFailed
from hpa.core.kubernetes.behavior import ReplicaBounds, limit_rate, with_size_change
from hpa.core.kubernetes.deciding import DISABLED, SCALING_ACTIVE, AutoscalerCondition, with_conditions
from hpa.core.kubernetes.evaluating import SYNC_PERIOD_MS, ScalingState
from hpa.core.kubernetes.history import with_recommendation
from hpa.core.kubernetes.pods import count_ready_pods
from hpa.core.kubernetes.policy import EXTERNAL, SELECT_DISABLED, VALUE, Autoscaler, Metric, behavior_with_defaults
from hpa.core.kubernetes.proposals import MetricProposal, SeriesReading, UnavailableMetric, largest_proposal
from hpa.core.kubernetes.replicas import ReplicaContext
from hpa.core.manifests.scaled_object import COMPOSITE, ComposedMetric, ScaledObject
from hpa.core.sizing.composing import (
    MetricRead,
    NextEvaluation,
    SizingCase,
    SizingResult,
    SizingState,
    decide_by_readings,
    dues_of_readings,
    first_due,
)
from spillway.api_scaling import ExplainedRule

FORMULA: Final = "formula"


class Polls(Struct, frozen=True):
    """The results of one poll of all triggers.

    reads: one reading for each metric of the autoscaler.
    active, failed: True if at least one trigger is active, or has no value.
    fallback: the reason of the condition Fallback; "" without a fallback.
    seen: True if every failed trigger has a reported failure. Without a report, for example while hpa was down, or if a
        formula over good values failed, no fallback rule applies.
    """

    reads: tuple[MetricReading, ...]
    active: bool
    failed: bool
    seen: bool
    fallback: str
    dues: tuple[NextEvaluation, ...]


def decide_by_scaled_object(case: SizingCase, scaled: ScaledObject) -> SizingResult:
    """Returns the decision of one KEDA polling interval. hpa makes it when an input changed or when it is due."""
    polls = _poll_triggers(case, scaled)
    before = _state_until_now(case, scaled)
    wanted = scaled.activation
    if not polls.seen:
        wanted = replace(wanted, fallback_replicas=None)
    outcome = decide_poll_outcome(wanted, _executor_input(case, before, polls, scaled), case.now_ms)
    if PAUSED_REPLICAS in wanted.annotations:
        paused = int(wanted.annotations[PAUSED_REPLICAS])
        return _complete_result(
            case, scaled, polls, _resize_without_limits(case, before, paused, "paused-replicas"), outcome
        )
    remembered = _state_after_poll(
        before, polls.active or wanted.has_true_annotation(FORCE_ACTIVATION), outcome, case.now_ms
    )
    case = replace(case, before=remembered)
    if wanted.has_true_annotation(PAUSED):
        found = _unchanged_result(case)
    elif outcome.replicas is not None and case.current == 0 and outcome.replicas > 0:
        found = _scale_from_zero(case, scaled.autoscaler, polls.reads, outcome.replicas)
    elif outcome.replicas is not None:
        found = _resize_without_limits(
            case, remembered, outcome.replicas, "triggers" if polls.active else "no trigger is active"
        )
    elif not (polls.active or polls.failed) and case.current <= (wanted.idle_replicas or 0):
        found = _unchanged_result(case)
    else:
        found = decide_by_readings(case, _autoscaler_with_pauses(case, scaled), polls.reads)
    return _complete_result(case, scaled, polls, found, outcome)


def _unchanged_result(case: SizingCase) -> SizingResult:
    """Returns a decision that changes nothing, because neither the triggers nor the autoscaler ask for anything.

    At zero replicas, the autoscaler's condition says that scaling is disabled.
    """
    scaling = case.before.scaling
    if case.current == 0:
        scaling = replace(scaling, conditions=with_conditions(scaling.conditions, DISABLED))
    return SizingResult(case.current, None, replace(case.before, scaling=scaling, at_ms=case.now_ms), None)


def _state_until_now(case: SizingCase, scaled: ScaledObject) -> SizingState:
    """Returns the earlier state, up to now. No input changed since, so triggers active then were active until now."""
    before = case.before
    return replace(before, last_active_ms=case.now_ms - 1) if before.active else before


def _state_after_poll(before: SizingState, active: bool, outcome: PollOutcome, now_ms: int) -> SizingState:
    if outcome.renewed:
        return replace(before, active=active, last_active_ms=now_ms)
    return replace(before, active=False)


def _executor_input(case: SizingCase, before: SizingState, polls: Polls, scaled: ScaledObject) -> PolledTriggers:
    return PolledTriggers(
        active=polls.active or scaled.is_always_active,
        failed=polls.failed,
        replicas=case.current,
        created_ms=before.created_ms or case.moment.since_ms,
        last_active_ms=before.last_active_ms,
    )


# ── Triggers ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _poll_triggers(case: SizingCase, scaled: ScaledObject) -> Polls:
    """Reads all triggers and all other metrics of a ScaledObject, as one poll of KEDA does."""
    reads = [read_trigger(named, case.inputs, case.moment) for named in scaled.triggers]
    answers = [_trigger_answer(case, scaled, index, read) for index, read in enumerate(reads)]
    failed = any(read.failing_ms for read in reads)
    seen = all(read.failures for read in reads if read.failing_ms)
    fallback = "" if scaled.fallback is None or not failed else "FallbackExists"
    dues = tuple(dues_of_readings(reads))
    active = any(read.active for read in reads)
    external = [_reading_with_fallback(read, found) for read, found in zip(reads, answers, strict=True)]
    if scaled.composed is not None:
        composed = _composite_reading(scaled, scaled.composed, reads, answers, case)
        active, external = composed.active, [composed]
        if not failed and isinstance(composed.reading, UnavailableMetric):
            # The formula itself failed. No trigger has a failure to report, so no fallback rule may apply.
            failed, seen = True, False
    others = [metric for metric in scaled.autoscaler.metrics if metric.source != EXTERNAL]
    found = {metric.name: read for metric, read in zip(_external_metrics(scaled), external, strict=True)}
    by_pods = {id(metric): read_metric(metric, case.inputs, case.moment) for metric in others}
    in_order = (
        found[metric.name] if metric.source == EXTERNAL else by_pods[id(metric)] for metric in scaled.autoscaler.metrics
    )
    return Polls(tuple(in_order), active, failed, seen, fallback if any(one.active for one in answers) else "", dues)


def _external_metrics(scaled: ScaledObject) -> list[Metric]:
    return [metric for metric in scaled.autoscaler.metrics if metric.source == EXTERNAL]


def _trigger_answer(case: SizingCase, scaled: ScaledObject, index: int, read: MetricReading) -> TriggerMetric:
    composed = scaled.composed
    name = scaled.triggers[index].metric if composed is None else COMPOSITE
    metric = next(one for one in scaled.autoscaler.metrics if one.name == name)
    composite = None if composed is None else Composite(composed.target, composed.by_value)
    trigger = Trigger(metric.target.amount or 0, metric.target.kind == VALUE, composite)
    # A value is missing, but nobody reported a failure. So the failure threshold of the fallback does not count it.
    if read.failing_ms and not read.failures:
        return TriggerMetric(None, None, "" if scaled.fallback is None else NO_FALLBACK_FOUND)
    # answer_of_trigger counts the last failure itself.
    health = TriggerHealth(read.failures - 1, FAILING) if read.failing_ms else None
    values = read.reading.values_milli if isinstance(read.reading, SeriesReading) else None
    ready = count_ready_pods(case.inputs.clusters.pods_seen(case.now_ms, case.rules).pods)
    return answer_of_trigger(trigger, values, scaled.fallback, health, ReplicaCounts(case.current, ready))


def _reading_with_fallback(read: MetricReading, found: TriggerMetric) -> MetricReading:
    """Returns the reading of the trigger's metric, with its own value or the fallback's."""
    if not read.failing_ms or found.values_milli is None:
        return read
    return replace(read, reading=SeriesReading(found.values_milli), detail=f"fallback: {read.trouble}")


def _composite_reading(
    scaled: ScaledObject,
    composed: ComposedMetric,
    reads: list[MetricReading],
    answers: list[TriggerMetric],
    case: SizingCase,
) -> MetricReading:
    """Returns the reading of the one metric that the formula computes from all triggers.

    If a fallback replaces a trigger, the fallback's value is the value of the reading. The reading has no value if a
    trigger has none, or if the formula fails.
    """
    instead = next((one.values_milli for one in answers if one.active and one.of_composite), None)
    oldest = min((read.oldest_ms for read in reads), default=0)
    failing = min((read.failing_ms for read in reads if read.failing_ms), default=0)
    trouble = "; ".join(read.trouble for read in reads if read.trouble)
    if instead is not None:
        reading = SeriesReading(instead)
        return MetricReading(reading, FORMULA, instead[0], oldest, failing, trouble=trouble, detail="fallback")
    values = {
        named.name: found.values_milli[0]
        for named, found in zip(scaled.triggers, answers, strict=True)
        if found.values_milli is not None
    }
    if len(values) < len(scaled.triggers):
        return MetricReading(UnavailableMetric(trouble), FORMULA, oldest_ms=oldest, failing_ms=failing, trouble=trouble)
    failures = {
        named.name: read.failures for named, read in zip(scaled.triggers, reads, strict=True) if read.failing_ms
    }
    try:
        milli = composite_milli(composed.formula, values, failures, scaled.fallback, composed.target_milli / 1000)
    except ExpressionFailed as error:
        return MetricReading(
            UnavailableMetric(str(error)), FORMULA, oldest_ms=oldest, failing_ms=case.now_ms, trouble=str(error)
        )
    active = milli > composed.activation_milli
    return MetricReading(SeriesReading((milli,)), FORMULA, milli, oldest, active=active, trouble=trouble)


# ── Sizes ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _resize_without_limits(case: SizingCase, before: SizingState, replicas: int, reason: str) -> SizingResult:
    """Returns a decision for this size without rates and windows. The change counts for later rates."""
    at_ms, scaling = case.now_ms, before.scaling
    behavior = case.policy.autoscaler.behavior if case.policy.autoscaler is not None else None
    history = with_size_change(scaling.history, behavior, case.current, replicas, at_ms, SYNC_PERIOD_MS)
    scaling = replace(scaling, history=history, desired=replicas, asking=False)
    remembered = replace(before, scaling=scaling, at_ms=at_ms)
    if replicas == case.current:
        return SizingResult(case.current, None, remembered, None, reason)
    return SizingResult(
        case.current, replicas, remembered, NextEvaluation(at_ms + 1, "the size has just changed"), reason
    )


def _scale_from_zero(
    case: SizingCase, autoscaler: Autoscaler, reads: tuple[MetricReading, ...], least: int
) -> SizingResult:
    """Returns the decision to go from zero to the size that the triggers ask for, in one step, within the rates."""
    before, now_ms = case.before, case.now_ms
    context = ReplicaContext(0, 0, case.inputs.clusters.pods_seen(now_ms, case.rules), now_ms=now_ms)
    found = largest_proposal(autoscaler.metrics, [read.reading for read in reads], context)
    wanted = max(found.replicas or 0, least)
    replicas, rules = min(wanted, autoscaler.max_replicas), []
    if wanted != replicas:
        rules.append(ExplainedRule("bounds", wanted, replicas, "TooManyReplicas"))
    history = before.scaling.history
    if autoscaler.behavior is not None:
        bounds = ReplicaBounds(least, autoscaler.max_replicas)
        limited, why = limit_rate(0, replicas, bounds, autoscaler.behavior, history, now_ms)
        limited = max(limited, least)
        if limited != replicas:
            rules.append(ExplainedRule("rate", replicas, limited, why))
        replicas = limited
    sized = _resize_without_limits(case, before, replicas, f"{found.metric or 'a trigger'} is active")
    scaling = _state_with_number_asked(sized.remembered.scaling, autoscaler, wanted, found, case)
    reads_said = tuple(MetricRead(one.name, read, one) for one, read in zip(autoscaler.metrics, reads, strict=True))
    return replace(
        sized,
        remembered=replace(sized.remembered, scaling=scaling),
        asked=wanted,
        asked_by=found.metric,
        reads=reads_said,
        rules=tuple(rules),
    )


def _state_with_number_asked(
    scaling: ScalingState, autoscaler: Autoscaler, wanted: int, found: MetricProposal, case: SizingCase
) -> ScalingState:
    """Returns the state with the number asked for as its newest step, so that the down-scale window begins with it."""
    window_ms = case.rules.settings.downscale_stabilization_ms
    if autoscaler.behavior is not None:
        window_ms = max(autoscaler.behavior.up.stabilization_ms, autoscaler.behavior.down.stabilization_ms)
    steps = with_recommendation(scaling.history.steps or (), wanted, case.now_ms, window_ms)
    conditions = scaling.conditions
    if found.replicas is not None:
        message = f"the HPA was able to successfully calculate a replica count from {found.metric}"
        conditions = with_conditions(conditions, AutoscalerCondition(SCALING_ACTIVE, True, "ValidMetricFound", message))
    history = replace(scaling.history, steps=steps)
    return replace(scaling, history=history, conditions=conditions, asking=found.replicas is not None)


def _autoscaler_with_pauses(case: SizingCase, scaled: ScaledObject) -> Autoscaler:
    """Returns the autoscaler without its paused directions. The other directions keep their windows and rates."""
    autoscaler = scaled.autoscaler
    no_in, no_out = (
        scaled.activation.has_true_annotation(PAUSED_SCALE_IN),
        scaled.activation.has_true_annotation(PAUSED_SCALE_OUT),
    )
    if not no_in and not no_out:
        return autoscaler
    window_ms = case.rules.settings.downscale_stabilization_ms
    behavior = autoscaler.behavior or behavior_with_defaults(None, None, window_ms)
    if no_in:
        behavior = replace(behavior, down=replace(behavior.down, select=SELECT_DISABLED))
    if no_out:
        behavior = replace(behavior, up=replace(behavior.up, select=SELECT_DISABLED))
    return replace(autoscaler, behavior=behavior)


def _complete_result(
    case: SizingCase, scaled: ScaledObject, polls: Polls, sized: SizingResult, outcome: PollOutcome
) -> SizingResult:
    """Returns the result with the parts that only a ScaledObject has: cooldown, KEDA's conditions, and their rules."""
    dues = [*polls.dues, *([sized.due] if sized.due is not None else [])]
    if outcome.due_ms is not None:
        dues.append(NextEvaluation(outcome.due_ms, "the cooldown ends"))
    reads = sized.reads or tuple(
        MetricRead(one.name, read, one) for one, read in zip(scaled.autoscaler.metrics, polls.reads, strict=True)
    )
    extra = [(kind, *said) for kind, said in outcome.conditions.items()]
    scaling = next((one for one in sized.remembered.scaling.conditions if one.kind == SCALING_ACTIVE), None)
    if scaling is not None and "paused" not in outcome.conditions:
        extra.append((AUTOSCALER_ACTIVE, *autoscaler_active_condition(scaling.status, scaling.reason)))
    if scaled.fallback is not None:
        extra.append(("fallback", "true" if polls.fallback else "false", polls.fallback or "NoFallbackFound"))
    rules = list(sized.rules)
    if outcome.due_ms is not None and sized.replicas is None:
        rules.append(ExplainedRule("cooldown", scaled.activation.idle_replicas or 0, case.current, "ScalerCooldown"))
    if polls.fallback:
        replicas = case.current if sized.replicas is None else sized.replicas
        rules.append(ExplainedRule("fallback", case.current, replicas, "a trigger has no value"))
    return replace(sized, due=first_due(dues, case.now_ms), reads=reads, extra=tuple(extra), rules=tuple(rules))
