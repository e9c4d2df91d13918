"""Makes one decision for one workload from its inputs, the state before, and an instant. Pure.

kubernetes/evaluating.py decides for all three kinds of policy. The triggers of a ScaledObject are external metrics
there, and keda/executor.py decides between zero, idle and one. A ScalePolicy's calendar, queue and headroom set bounds.
No clock is read: an instant is the time of a record, or the due time that an earlier decision returned.
"""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from hpa.core.heard.inputs import WorkloadInputs
from hpa.core.heard.readings import CRON, KAFKA, PROMETHEUS, MetricReading, ReadingMoment, read_metric
from hpa.core.kubernetes.behavior import (
    SCALE_DOWN_STABILIZED,
    SCALE_UP_STABILIZED,
    TOO_FEW_REPLICAS,
    TOO_MANY_REPLICAS,
    WITHIN_RANGE,
)
from hpa.core.kubernetes.deciding import (
    AutoscalerState,
    Decision,
    ScaleTargetSize,
    decision_without_scale,
)
from hpa.core.kubernetes.evaluating import (
    NOTHING_DECIDED,
    Evaluation,
    ObservedMetrics,
    ScalingState,
    evaluate_autoscaler,
)
from hpa.core.kubernetes.policy import CONTAINER_RESOURCE, EXTERNAL, OBJECT, PODS, RESOURCE, Autoscaler, Metric
from hpa.core.kubernetes.proposals import Reading
from hpa.core.manifests.attached import AttachedPolicy
from hpa.core.own.queue_state import NOTHING_SEEN, QueueState
from hpa.core.rules import HpaRules
from spillway.api_scaling import ExplainedRule


class SizingState(Struct, frozen=True, gc=False):
    """The state on which later decisions depend in addition to inputs.

    at_ms: the instant of the last decision; 0: none.
    active: True if the triggers were active at at_ms.
    last_active_ms: when the triggers were last active; None: never.
    queue: the state of a queue with a time to drain.
    created_ms: the time of the policy's first declaration; 0: its present declaration is the first.
    """

    scaling: ScalingState = NOTHING_DECIDED
    at_ms: int = 0
    active: bool = False
    last_active_ms: int | None = None
    queue: QueueState = NOTHING_SEEN
    created_ms: int = 0


NOTHING_REMEMBERED: Final = SizingState()
MEASURED: Final = {
    RESOURCE: "what its pods use",
    CONTAINER_RESOURCE: "what a container of its pods uses",
    PODS: "a metric of its pods",
    OBJECT: "a metric of an object",
    EXTERNAL: "an external metric",
    KAFKA: "its queue",
    PROMETHEUS: "what Prometheus knows",
}
"""A text for the user, for each source of a metric and each kind of trigger."""


class NextEvaluation(Struct, frozen=True, gc=False):
    at_ms: int
    why: str


class MetricRead(Struct, frozen=True, gc=False):
    """A metric with its reading, or the drain or headroom of a ScalePolicy.

    name: the metric's name, "drain" or "headroom".
    metric: the autoscaler's metric; None for drain and headroom.
    replicas: the number of replicas that drain or headroom asks for; None for metrics, or if it is unknown.
    """

    name: str
    read: MetricReading
    metric: Metric | None = None
    replicas: int | None = None


class SizingResult(Struct, frozen=True, gc=False):
    """The result of a decision.

    replicas: the size to scale to; None: no change.
    asked: the highest number of replicas that was asked for. asked_by: the metric, drain or headroom that asked for it.
    rules: the rules that changed that number, in their order.
    extra: conditions of a ScaledObject, (type, status, reason).
    failed: the trace of an error that stopped the decision; else "".
    """

    current: int
    replicas: int | None
    remembered: SizingState
    due: NextEvaluation | None
    reason: str = ""
    asked: int | None = None
    asked_by: str = ""
    reads: tuple[MetricRead, ...] = ()
    rules: tuple[ExplainedRule, ...] = ()
    extra: tuple[tuple[str, str, str], ...] = ()
    failed: str = ""


class SizingCase(Struct, frozen=True):
    """The inputs of one decision. current: the declared size, or our decided size that is not declared yet."""

    policy: AttachedPolicy
    inputs: WorkloadInputs
    current: int
    before: SizingState
    moment: ReadingMoment

    @property
    def now_ms(self) -> int:
        return self.moment.now_ms

    @property
    def rules(self) -> HpaRules:
        return self.moment.rules


def decide_by_autoscaler(case: SizingCase, autoscaler: Autoscaler) -> SizingResult:
    """Returns the decision that Kubernetes' controller makes for this autoscaler."""
    reads = tuple([read_metric(metric, case.inputs, case.moment) for metric in autoscaler.metrics])
    return decide_by_readings(case, autoscaler, reads)


def decide_by_readings(case: SizingCase, autoscaler: Autoscaler, reads: tuple[MetricReading, ...]) -> SizingResult:
    """Returns an autoscaler's decision from readings, one for each metric."""
    found = evaluate_case(case, autoscaler, tuple([read.reading for read in reads]))
    decision = found.decision
    return SizingResult(
        current=case.current,
        replicas=decision.replicas,
        remembered=replace(case.before, scaling=found.state, at_ms=case.now_ms),
        due=_first_due_of_evaluation(case, found, reads),
        reason=decision.reason,
        asked=decision.asked,
        asked_by=decision.asked_by,
        reads=tuple(
            [MetricRead(metric.name, read, metric) for metric, read in zip(autoscaler.metrics, reads, strict=True)]
        ),
        rules=rules_in_effect(decision),
    )


def evaluate_case(case: SizingCase, autoscaler: Autoscaler, readings: tuple[Reading, ...]) -> Evaluation:
    scale = ScaleTargetSize(case.current, case.inputs.status_replicas(case.current))
    observed = ObservedMetrics(scale, case.inputs.clusters.pods_seen(case.now_ms, case.rules), readings)
    rules = case.rules
    return evaluate_autoscaler(autoscaler, observed, case.before.scaling, rules.settings, case.now_ms, rules.mode)


def first_due(dues: Iterable[NextEvaluation], now_ms: int) -> NextEvaluation | None:
    """Returns the earliest instant after now_ms; None without one."""
    first = None
    for due in dues:
        if due.at_ms > now_ms and (first is None or due.at_ms < first.at_ms):
            first = due
    return first


def _first_due_of_evaluation(
    case: SizingCase, found: Evaluation, reads: tuple[MetricReading, ...]
) -> NextEvaluation | None:
    """Returns the first due instant, as first_due does.

    It builds the text of the reason only for that instant, because every decision calls this function.
    """
    now_ms, clusters = case.now_ms, case.inputs.clusters
    lost_ms = clusters.next_lost_ms(now_ms, case.rules)
    instants = [
        at for at in (found.due_ms, lost_ms, *[read.due_ms for read in reads]) if at is not None and at > now_ms
    ]
    if not instants:
        return None
    first_ms = min(instants)
    if first_ms == found.due_ms:
        scaled = found.decision.replicas is not None
        why = "the size has just changed" if scaled else "a window or a period ends, or a new pod's cpu begins to count"
        return NextEvaluation(first_ms, why)
    due = next((due for due in dues_of_readings(reads) if due.at_ms == first_ms), None)
    return due or NextEvaluation(first_ms, f"cluster {clusters.cluster_lost_at(first_ms, case.rules)} counts as lost")


def dues_of_readings(reads: Iterable[MetricReading]) -> Iterable[NextEvaluation]:
    """Yields the times at which these readings may change without a new record, each with the reason."""
    for read in reads:
        if read.due_ms is not None:
            said = MEASURED.get(read.source, read.source)
            why = "a schedule" if read.source == CRON else f"the last measurement of {said} is too old by then to count"
            yield NextEvaluation(read.due_ms, why)


def rules_in_effect(decision: Decision) -> tuple[ExplainedRule, ...]:
    """Returns the autoscaler's rules that changed the number asked for, in their order."""
    asked, left, desired = decision.asked, decision.stabilized, decision.desired
    if asked is None or left is None or asked == desired:
        return ()
    found = []
    if left != asked:
        found.append(
            ExplainedRule("window", asked, left, SCALE_DOWN_STABILIZED if left > asked else SCALE_UP_STABILIZED)
        )
    if left != desired:
        few = left < desired and decision.limited_reason == WITHIN_RANGE  # The size left zero and is below its minimum.
        why = TOO_FEW_REPLICAS if few else decision.limited_reason
        found.append(
            ExplainedRule("bounds" if why in (TOO_MANY_REPLICAS, TOO_FEW_REPLICAS) else "rate", left, desired, why)
        )
    return tuple(found)


def reason_not_scalable(case: SizingCase) -> str:
    """Returns the reason why the workload cannot be scaled now, for the user; empty if it can."""
    declared, target = case.inputs.declared, case.policy.target
    if declared is None:
        return "no workload of that name is declared"
    if declared.deleting:
        return "the workload is being deleted"
    return "" if declared.kind == target.kind else f"the workload is a {declared.kind}, not a {target.kind}"


def result_not_scalable(case: SizingCase, why: str) -> SizingResult:
    """Returns a decision that changes nothing and gives the reason in a condition."""
    known = case.before.scaling
    decided = decision_without_scale(AutoscalerState(known.history, known.conditions, known.desired), case.current, why)
    state = replace(known, conditions=decided.conditions, asking=False)
    return SizingResult(case.current, None, replace(case.before, scaling=state, at_ms=case.now_ms), None, why)
