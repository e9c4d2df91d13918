"""Makes one decision after another. Each returns the state for the next one, and when the next one is due. Pure.

There are two modes. CONTROLLER decides at the instants of Kubernetes' controller, 15 s apart, and remembers the numbers
of those instants. EVENT decides when an input changed and when a decision is due. In EVENT mode, a number that was
asked for counts at every instant until another number is asked for. So further calls between would change nothing.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from hpa.core.kubernetes.behavior import WITHIN_RANGE
from hpa.core.kubernetes.deciding import (
    AutoscalerCondition,
    AutoscalerState,
    Decision,
    ScaleTargetSize,
    decide_replicas,
    decision_after_write,
)
from hpa.core.kubernetes.history import (
    NOTHING_KNOWN,
    ScalingHistory,
    Steps,
    extend_newest_step,
    highest_since,
    lowest_since,
)
from hpa.core.kubernetes.pods import CPU, PodsSeen, Readiness, readiness_due_ms
from hpa.core.kubernetes.policy import CONTAINER_RESOURCE, RESOURCE, Autoscaler, ControllerSettings, Metric
from hpa.core.kubernetes.proposals import Reading, TotalsReading

CONTROLLER: Final = "controller"
EVENT: Final = "event"
SYNC_PERIOD_MS: Final = 15_000


class ScalingState(Struct, frozen=True, gc=False):
    """The state on which later decisions depend in addition to their inputs.

    history: the numbers that were asked for, and the changes of the size.
    conditions, desired: those of the last decision.
    asking: True while the number of the newest step is still asked for.
    """

    history: ScalingHistory = NOTHING_KNOWN
    conditions: tuple[AutoscalerCondition, ...] = ()
    desired: int = 0
    asking: bool = False


NOTHING_DECIDED: Final = ScalingState()


class ObservedMetrics(Struct, frozen=True):
    """The inputs of a decision: the size, the pods of all clusters and the metrics.

    readings: one for each metric of the policy, in the same order.
    """

    scale: ScaleTargetSize
    seen: PodsSeen
    readings: Sequence[Reading]


class Evaluation(Struct, frozen=True):
    """The result of an evaluation.

    due_ms: the first instant at which the same inputs may give another decision; None: there is none.
    """

    decision: Decision
    state: ScalingState
    due_ms: int | None


def evaluate_autoscaler(
    policy: Autoscaler,
    observed: ObservedMetrics,
    state: ScalingState,
    settings: ControllerSettings,
    now_ms: int,
    mode: str = EVENT,
) -> Evaluation:
    """Returns the decision at now_ms, as if its size were written at once. now_ms must be later than all instants in
    `state`."""
    history, settings = state.history, settings_for_mode(mode, settings)
    if mode == EVENT and history.steps and state.asking:
        history = ScalingHistory(extend_newest_step(history.steps, now_ms - 1), history.ups, history.downs)
    known = AutoscalerState(history, state.conditions, state.desired)
    decided = decide_replicas(policy, observed.scale, observed.seen, observed.readings, known, settings, now_ms)
    decision = decision_after_write(decided, policy, settings, now_ms)
    after = ScalingState(decision.history, decision.conditions, decision.desired, asking=decision.asked is not None)
    if mode == CONTROLLER:
        return Evaluation(decision, after, now_ms + SYNC_PERIOD_MS)
    return Evaluation(decision, after, _due_ms(policy, observed, decision, settings, now_ms))


@lru_cache(maxsize=64)
def settings_for_mode(mode: str, settings: ControllerSettings) -> ControllerSettings:
    """Returns the settings for a mode. In EVENT mode, the doubling cap counts from the size one period ago."""
    return settings if mode == CONTROLLER else replace(settings, doubling_period_ms=SYNC_PERIOD_MS)


def _due_ms(
    policy: Autoscaler, observed: ObservedMetrics, decision: Decision, settings: ControllerSettings, now_ms: int
) -> int | None:
    """Returns the first instant at which the same inputs may give another decision; None: never.

    That is the end of a window or period, or when a new pod's cpu usage begins to count. After a change of the size it
    is 1 ms later.
    """
    if decision.replicas is not None:
        return now_ms + 1
    instants = []
    for metric, reading in zip(policy.metrics, observed.readings, strict=True):
        at = _cpu_initialized_ms(metric, reading, observed.seen, settings, now_ms)
        if at is not None:
            instants.append(at)
    if decision.asked is not None:
        instants += _window_ends_ms(policy, decision, decision.asked, settings, now_ms)
        if decision.limited_reason != WITHIN_RANGE:
            instants += _period_ends_ms(policy, decision.history, settings)
    return min([at for at in instants if at > now_ms], default=None)


def _cpu_initialized_ms(
    metric: Metric, reading: Reading, seen: PodsSeen, settings: ControllerSettings, now_ms: int
) -> int | None:
    if isinstance(reading, TotalsReading):
        return reading.due_ms
    if metric.source not in (RESOURCE, CONTAINER_RESOURCE) or metric.name != CPU:
        return None
    readiness = Readiness(settings.cpu_initialization_ms, settings.initial_readiness_delay_ms)
    return readiness_due_ms(seen.pods, readiness, now_ms)


def _window_ends_ms(
    policy: Autoscaler, decision: Decision, asked: int, settings: ControllerSettings, now_ms: int
) -> list[int]:
    """Returns the times at which an earlier number that limits the size leaves its window.

    A number that is still asked for never leaves it.
    """
    steps, behavior = decision.history.steps or (), policy.behavior
    down_ms = settings.downscale_stabilization_ms + 1 if behavior is None else behavior.down.stabilization_ms
    found = []
    highest = highest_since(steps, now_ms - down_ms, asked)
    if highest != asked:
        found.append(_last_asked_ms(steps, highest) + down_ms)
    if behavior is not None:
        lowest = lowest_since(steps, now_ms - behavior.up.stabilization_ms, asked)
        if lowest != asked:
            found.append(_last_asked_ms(steps, lowest) + behavior.up.stabilization_ms)
    return found


def _last_asked_ms(steps: Steps, replicas: int) -> int:
    return max([step.to_ms for step in steps if step.replicas == replicas])


def _period_ends_ms(policy: Autoscaler, history: ScalingHistory, settings: ControllerSettings) -> list[int]:
    if policy.behavior is None:
        return [change.at_ms + settings.doubling_period_ms for change in history.ups]
    periods = [one.period_ms for rules in (policy.behavior.up, policy.behavior.down) for one in rules.policies]
    return [change.at_ms + period_ms for period_ms in periods for change in (*history.ups, *history.downs)]
