"""Decisions one after the other: what each leaves to the next, and when time alone may change it. Pure.

Two modes. CONTROLLER is asked at the instants of Kubernetes' controller, 15 s apart, and remembers the numbers of those
instants. EVENT is asked when something changed, and when it said that it was due; a number that was asked for counts at
every instant until another is. Asked at every instant, EVENT decides the same as when asked only then.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from hpa.core.behavior import WITHIN_RANGE
from hpa.core.deciding import Condition, Decision, Known, Scale, accepted, decide
from hpa.core.history import NOTHING_KNOWN, History, Steps, held, highest_since, lowest_since
from hpa.core.pods import CPU, PodsSeen, Readiness, readiness_due_ms
from hpa.core.policy import CONTAINER_RESOURCE, RESOURCE, Autoscaler, Metric, ScalingRules, Settings
from hpa.core.proposals import Reading, TotalsReading

CONTROLLER: Final = "controller"
EVENT: Final = "event"
SYNC_PERIOD_MS: Final = 15_000


class ScalingState(Struct, frozen=True, gc=False):
    """All that later decisions depend on besides their inputs. asking: the newest step's number is still asked for."""

    history: History = NOTHING_KNOWN
    conditions: tuple[Condition, ...] = ()
    desired: int = 0
    asking: bool = False


NOTHING_DECIDED: Final = ScalingState()


class Observed(Struct, frozen=True):
    """What a decision looks at. readings: one for each metric of the policy, in their order."""

    scale: Scale
    seen: PodsSeen
    readings: Sequence[Reading]


class Evaluation(Struct, frozen=True):
    """due_ms: the first instant at which the same inputs may give another decision; None: there is none."""

    decision: Decision
    state: ScalingState
    due_ms: int | None


def evaluate(
    policy: Autoscaler, observed: Observed, state: ScalingState, settings: Settings, now_ms: int, mode: str = EVENT
) -> Evaluation:
    """The decision at now_ms, taken as written. now_ms is after every earlier one of this state."""
    history, settings = state.history, settings_in(mode, settings)
    if mode == EVENT and history.steps and state.asking:
        history = History(held(history.steps, now_ms - 1), history.ups, history.downs)
    known = Known(history, state.conditions, state.desired)
    decided = decide(policy, observed.scale, observed.seen, observed.readings, known, settings, now_ms)
    decision = accepted(decided, policy, settings, now_ms)
    after = ScalingState(decision.history, decision.conditions, decision.desired, asking=decision.asked is not None)
    if mode == CONTROLLER:
        return Evaluation(decision, after, now_ms + SYNC_PERIOD_MS)
    instants = _instants(policy, observed, decision, settings, now_ms)
    return Evaluation(decision, after, min((at for at in instants if at > now_ms), default=None))


@lru_cache(maxsize=64)
def settings_in(mode: str, settings: Settings) -> Settings:
    return settings if mode == CONTROLLER else replace(settings, doubling_period_ms=SYNC_PERIOD_MS)


def _instants(
    policy: Autoscaler, observed: Observed, decision: Decision, settings: Settings, now_ms: int
) -> Iterator[int]:
    """When a window lets go, a period ends, or a pod's cpu begins to be believed; at once where the size changed."""
    if decision.replicas is not None:
        yield now_ms + 1
    for metric, reading in zip(policy.metrics, observed.readings, strict=True):
        at = _initialized_ms(metric, reading, observed.seen, settings, now_ms)
        if at is not None:
            yield at
    if decision.asked is None:
        return
    steps = decision.history.steps or ()
    if policy.behavior is None:
        yield from _let_go(steps, decision.asked, settings.downscale_stabilization_ms + 1, now_ms, down=True)
        if decision.limited_reason != WITHIN_RANGE:
            yield from (change.at_ms + settings.doubling_period_ms for change in decision.history.ups)
        return
    up, down = policy.behavior.up, policy.behavior.down
    yield from _let_go(steps, decision.asked, up.stabilization_ms, now_ms, down=False)
    yield from _let_go(steps, decision.asked, down.stabilization_ms, now_ms, down=True)
    if decision.limited_reason != WITHIN_RANGE:
        yield from _periods_end(decision.history, up)
        yield from _periods_end(decision.history, down)


def _initialized_ms(metric: Metric, reading: Reading, seen: PodsSeen, settings: Settings, now_ms: int) -> int | None:
    if isinstance(reading, TotalsReading):
        return reading.due_ms
    if metric.source not in (RESOURCE, CONTAINER_RESOURCE) or metric.name != CPU:
        return None
    readiness = Readiness(settings.cpu_initialization_ms, settings.initial_readiness_delay_ms)
    return readiness_due_ms(seen.pods, readiness, now_ms)


def _let_go(steps: Steps, asked: int, window_ms: int, now_ms: int, *, down: bool) -> Iterator[int]:
    """When the number that binds a window leaves it; what is still asked for does not leave."""
    since = now_ms - window_ms
    binding = highest_since(steps, since, asked) if down else lowest_since(steps, since, asked)
    if binding != asked:
        yield max(step.to_ms for step in steps if step.replicas == binding) + window_ms


def _periods_end(history: History, rules: ScalingRules) -> Iterator[int]:
    for policy in rules.policies:
        for change in (*history.ups, *history.downs):
            yield change.at_ms + policy.period_ms
