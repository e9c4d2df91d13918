"""One decision on one workload, of whichever policy: what is known, what was decided before, an instant → a size. Pure.

A HorizontalPodAutoscaler is evaluating.evaluate. A ScaledObject is that with its triggers as external metrics, and
keda/executor between zero, idle and one. A ScalePolicy is that with bounds which its calendar, its queue and what is
idle move. No clock is read: an instant is an event's, or one that was said to be due.
"""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from hpa.core.heard.inputs import Inputs
from hpa.core.heard.readings import CRON, KAFKA, PROMETHEUS, Moment, Read, read_metric
from hpa.core.kubernetes.behavior import (
    SCALE_DOWN_STABILIZED,
    SCALE_UP_STABILIZED,
    TOO_FEW_REPLICAS,
    TOO_MANY_REPLICAS,
    WITHIN_RANGE,
)
from hpa.core.kubernetes.deciding import (
    Decision,
    Known,
    Scale,
    without_scale,
)
from hpa.core.kubernetes.evaluating import NOTHING_DECIDED, Evaluation, Observed, ScalingState, evaluate
from hpa.core.kubernetes.policy import CONTAINER_RESOURCE, EXTERNAL, OBJECT, PODS, RESOURCE, Autoscaler, Metric
from hpa.core.kubernetes.proposals import Reading
from hpa.core.manifests.attached import Attached
from hpa.core.own.queue_state import NOTHING_SEEN, QueueState
from hpa.core.rules import Rules
from spillway.api_scaling import ExplainedRule


class Remembered(Struct, frozen=True, gc=False):
    """All that later decisions depend on besides inputs. at_ms: the last instant that was decided for, 0: none.

    active: the triggers were, at at_ms. last_active_ms: when they last were; None: never. queue: of a time to drain.
    created_ms: when the policy was declared first; 0: as it is declared now.
    """

    scaling: ScalingState = NOTHING_DECIDED
    at_ms: int = 0
    active: bool = False
    last_active_ms: int | None = None
    queue: QueueState = NOTHING_SEEN
    created_ms: int = 0


NOTHING_REMEMBERED: Final = Remembered()
MEASURED: Final = {
    RESOURCE: "what its pods use",
    CONTAINER_RESOURCE: "what a container of its pods uses",
    PODS: "a metric of its pods",
    OBJECT: "a metric of an object",
    EXTERNAL: "an external metric",
    KAFKA: "its queue",
    PROMETHEUS: "what Prometheus knows",
}
"""For people, by the source of a metric or the kind of a trigger."""


class NextEvaluation(Struct, frozen=True, gc=False):
    at_ms: int
    why: str


class MetricRead(Struct, frozen=True, gc=False):
    """metric: of the autoscaler; None for a queue to drain and for headroom, named by name. replicas: asked for."""

    name: str
    read: Read
    metric: Metric | None = None
    replicas: int | None = None


class Sized(Struct, frozen=True, gc=False):
    """replicas: to scale to; None: as it is. asked: the most that was asked for. rules: what made another number of it.

    extra: conditions of a ScaledObject, (type, status, reason). failed: where an error stopped the decision, its trace.
    """

    current: int
    replicas: int | None
    remembered: Remembered
    due: NextEvaluation | None
    reason: str = ""
    asked: int | None = None
    asked_by: str = ""
    reads: tuple[MetricRead, ...] = ()
    rules: tuple[ExplainedRule, ...] = ()
    extra: tuple[tuple[str, str, str], ...] = ()
    failed: str = ""


class Case(Struct, frozen=True):
    """What one decision looks at. current: the size that was declared, or decided and not declared yet."""

    policy: Attached
    inputs: Inputs
    current: int
    before: Remembered
    moment: Moment

    @property
    def now_ms(self) -> int:
        return self.moment.now_ms

    @property
    def rules(self) -> Rules:
        return self.moment.rules


def compose_autoscaler(case: Case, autoscaler: Autoscaler) -> Sized:
    """As Kubernetes' controller."""
    reads = tuple([read_metric(metric, case.inputs, case.moment) for metric in autoscaler.metrics])
    return sized_by(case, autoscaler, reads)


def sized_by(case: Case, autoscaler: Autoscaler, reads: tuple[Read, ...]) -> Sized:
    """An autoscaler's decision over readings, one for each metric."""
    found = evaluation(case, autoscaler, tuple([read.reading for read in reads]))
    decision = found.decision
    return Sized(
        current=case.current,
        replicas=decision.replicas,
        remembered=replace(case.before, scaling=found.state, at_ms=case.now_ms),
        due=_first_due(case, found, reads),
        reason=decision.reason,
        asked=decision.asked,
        asked_by=decision.asked_by,
        reads=tuple(
            [MetricRead(metric.name, read, metric) for metric, read in zip(autoscaler.metrics, reads, strict=True)]
        ),
        rules=bound_rules(decision),
    )


def evaluation(case: Case, autoscaler: Autoscaler, readings: tuple[Reading, ...]) -> Evaluation:
    scale = Scale(case.current, case.inputs.status_replicas(case.current))
    observed = Observed(scale, case.inputs.clusters.seen(case.now_ms, case.rules), readings)
    rules = case.rules
    return evaluate(autoscaler, observed, case.before.scaling, rules.settings, case.now_ms, rules.mode)


def first_due(dues: Iterable[NextEvaluation], now_ms: int) -> NextEvaluation | None:
    first = None
    for due in dues:
        if due.at_ms > now_ms and (first is None or due.at_ms < first.at_ms):
            first = due
    return first


def _first_due(case: Case, found: Evaluation, reads: tuple[Read, ...]) -> NextEvaluation | None:
    """As first_due; only of the first it is said why, for every decision asks."""
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
    due = next((due for due in reads_due(reads) if due.at_ms == first_ms), None)
    return due or NextEvaluation(first_ms, f"cluster {clusters.lost_at(first_ms, case.rules)} counts as lost")


def reads_due(reads: Iterable[Read]) -> Iterable[NextEvaluation]:
    for read in reads:
        if read.due_ms is not None:
            said = MEASURED.get(read.source, read.source)
            why = "a schedule" if read.source == CRON else f"the last measurement of {said} is too old by then to count"
            yield NextEvaluation(read.due_ms, why)


def bound_rules(decision: Decision) -> tuple[ExplainedRule, ...]:
    """Which of an autoscaler's rules made another number of what was asked for, one after the other."""
    asked, left, desired = decision.asked, decision.stabilized, decision.desired
    if asked is None or left is None or asked == desired:
        return ()
    found = []
    if left != asked:
        found.append(
            ExplainedRule("window", asked, left, SCALE_DOWN_STABILIZED if left > asked else SCALE_UP_STABILIZED)
        )
    if left != desired:
        few = left < desired and decision.limited_reason == WITHIN_RANGE  # A size that left zero, below its minimum.
        why = TOO_FEW_REPLICAS if few else decision.limited_reason
        found.append(
            ExplainedRule("bounds" if why in (TOO_MANY_REPLICAS, TOO_FEW_REPLICAS) else "rate", left, desired, why)
        )
    return tuple(found)


def why_not_there(case: Case) -> str:
    """Why the workload cannot be scaled now; empty when it can."""
    declared, target = case.inputs.declared, case.policy.target
    if declared is None:
        return "no workload of that name is declared"
    if declared.deleting:
        return "the workload is being deleted"
    return "" if declared.kind == target.kind else f"the workload is a {declared.kind}, not a {target.kind}"


def not_there(case: Case, why: str) -> Sized:
    """Nothing is decided, and that is said."""
    known = case.before.scaling
    decided = without_scale(Known(known.history, known.conditions, known.desired), case.current, why)
    state = replace(known, conditions=decided.conditions, asking=False)
    return Sized(case.current, None, replace(case.before, scaling=state, at_ms=case.now_ms), None, why)
