"""Decides the size of a workload with a ScalePolicy: metrics, within bounds of calendar, queue and headroom. Pure."""

from collections.abc import Iterator
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from hpa.core.heard.readings import MetricReading, read_kafka, read_one_series
from hpa.core.keda.kafka import PartitionOffsets, partition_lag
from hpa.core.kubernetes.behavior import TOO_FEW_REPLICAS, TOO_MANY_REPLICAS
from hpa.core.kubernetes.pods import count_ready_pods
from hpa.core.kubernetes.proposals import SeriesReading, UnavailableMetric
from hpa.core.manifests.scale_policy import Drain, ScalePolicy
from hpa.core.own.calendar import CalendarBound, apply_open_windows
from hpa.core.own.draining import DrainWish
from hpa.core.own.headroom import headroom_due_s, headroom_replicas, open_percents
from hpa.core.own.queue_state import (
    Offsets,
    QueueObservation,
    QueueState,
    decide_drain_size,
    learned_replica_rate,
    partition_runs_of,
    state_with_observation,
)
from hpa.core.sizing.composing import (
    MetricRead,
    NextEvaluation,
    SizingCase,
    SizingResult,
    decide_by_autoscaler,
    dues_of_readings,
    first_due,
)
from spillway.api_scaling import ExplainedRule

DRAIN: Final = "drain"
HEADROOM: Final = "headroom"
BOUNDS: Final = "bounds"


class SizeProposal(Struct, frozen=True):
    """The size that a queue or headroom asks for.

    replicas: the size asked for; the present size while it is unknown.
    said: the reading behind it, for the explanation.
    due_s: when a share of headroom opens or closes next, in Unix seconds; None: never.
    queue: the new state of the queue, for the next decision; None for headroom.
    """

    replicas: int
    said: MetricRead
    due_s: int | None = None
    queue: QueueState | None = None


def decide_by_scale_policy(case: SizingCase, policy: ScalePolicy) -> SizingResult:
    """Returns the decision for a ScalePolicy: the largest size that is asked for, within the bounds of the calendar."""
    wishes = list(_drain_and_headroom_wishes(case, policy))
    alone = policy.min_replicas if policy.autoscaler is None else policy.autoscaler.min_replicas
    asked = max((wish.replicas for wish in wishes), default=alone)
    now_s = case.now_ms // 1000
    bounded = min(max(asked, policy.min_replicas), policy.max_replicas)
    # The metrics may ask for a size between two bounds: the windows applied to the wished size, and to the maximum.
    least = apply_open_windows(policy.calendar, bounded, case.current, now_s)
    most = apply_open_windows(policy.calendar, policy.max_replicas, case.current, now_s)
    dues = [*_dues_of_wishes(wishes), *_dues_of_calendar(least)]
    if policy.autoscaler is None:
        found = _result_without_metrics(case, least.replicas)
    else:
        most = replace(most, replicas=max(most.replicas, least.replicas))
        bounds = replace(policy.autoscaler, min_replicas=least.replicas, max_replicas=most.replicas, from_zero=True)
        found = decide_by_autoscaler(case, bounds)
        # At zero the autoscaler may ask for nothing. The queue, headroom or a window still bring the first replicas.
        if case.current == 0 and found.replicas is None and least.replicas > 0:
            found = replace(found, replicas=least.replicas, reason="at least so many are asked for")
        dues += [found.due] if found.due is not None else []
    queue = next((wish.queue for wish in wishes if wish.queue is not None), found.remembered.queue)
    found = replace(found, remembered=replace(found.remembered, queue=queue), due=first_due(dues, case.now_ms))
    return _with_explanation(found, wishes, policy, (least, most))


def _with_explanation(
    found: SizingResult, wishes: list[SizeProposal], policy: ScalePolicy, bounds: tuple[CalendarBound, CalendarBound]
) -> SizingResult:
    """Returns the decision with its explanation: the largest number asked for, by whom, and the rules that changed it.

    bounds: the least and the most replicas that the calendar allows.
    """
    asked, asked_by = _largest_number_asked(found, wishes, policy)
    size = found.current if found.replicas is None else found.replicas
    least, most = bounds
    by = (least.by if size == least.replicas else ()) or (most.by if size == most.replicas else ())
    before = found.current if asked is None else asked
    rules: list[ExplainedRule] = []
    for one in found.rules:
        if not (by and one.rule == BOUNDS):
            rules.append(ExplainedRule(one.rule, before, one.after, one.why))
            before = one.after
    if by:
        rules.append(ExplainedRule("calendar", before, size, f"windows: {', '.join(by)}"))
    elif not rules and not policy.min_replicas <= before <= policy.max_replicas:
        rules.append(ExplainedRule(BOUNDS, before, size, TOO_MANY_REPLICAS if before > size else TOO_FEW_REPLICAS))
    reason = found.reason
    if found.replicas is not None and not found.asked_by:
        reason = f"windows {', '.join(by)} are open" if by else f"{asked_by} asks for {asked}" if asked_by else reason
    return replace(
        found,
        reads=(*(wish.said for wish in wishes), *found.reads),
        rules=tuple(rule for rule in rules if rule.before != rule.after),
        asked=asked,
        asked_by=asked_by,
        reason=reason,
    )


def _largest_number_asked(
    found: SizingResult, wishes: list[SizeProposal], policy: ScalePolicy
) -> tuple[int | None, str]:
    """Returns the largest number asked for, and by which metric, queue or headroom; (None, "") if all are unknown."""
    known = [(wish.said.replicas, wish.said.name) for wish in wishes if wish.said.replicas is not None]
    if found.asked is not None:
        known.append((found.asked, found.asked_by))
    if not wishes and policy.autoscaler is None:
        known.append((policy.min_replicas, "minReplicas"))
    return max(known, key=lambda one: one[0], default=(None, ""))


def _result_without_metrics(case: SizingCase, replicas: int) -> SizingResult:
    remembered = replace(case.before, at_ms=case.now_ms)
    if replicas == case.current:
        return SizingResult(case.current, None, remembered, None)
    return SizingResult(case.current, replicas, remembered, None, "between minReplicas and maxReplicas")


def _drain_and_headroom_wishes(case: SizingCase, policy: ScalePolicy) -> Iterator[SizeProposal]:
    if policy.drain is not None:
        yield _drain_wish(case, policy, policy.drain)
    if policy.headroom:
        yield _headroom_wish(case, policy)


def _dues_of_wishes(wishes: list[SizeProposal]) -> Iterator[NextEvaluation]:
    yield from dues_of_readings(wish.said.read for wish in wishes)
    for wish in wishes:
        if wish.due_s is not None:
            yield NextEvaluation(wish.due_s * 1000, f"the times of {wish.said.name}")


def _dues_of_calendar(bound: CalendarBound) -> Iterator[NextEvaluation]:
    if bound.due_s is not None:
        yield NextEvaluation(bound.due_s * 1000, "a window opens or closes")


def _drain_wish(case: SizingCase, policy: ScalePolicy, drain: Drain) -> SizeProposal:
    read = read_kafka(drain.queue, case.inputs, case.moment)
    if isinstance(read.reading, UnavailableMetric):
        return SizeProposal(case.current, MetricRead(DRAIN, read, replicas=None))
    state = state_with_observation(case.before.queue, _queue_observation(case, drain))
    wish, state = decide_drain_size(state, drain.service, drain.target, (policy.min_replicas, policy.max_replicas))
    read = replace(read, detail=_drain_detail(wish, learned_replica_rate(state.work, drain.service.rate)))
    return SizeProposal(wish.replicas, MetricRead(DRAIN, read, replicas=wish.replicas), queue=state)


def _queue_observation(case: SizingCase, drain: Drain) -> QueueObservation:
    """Returns a readable backlog as an observation, with the partitions in the order of their topics and numbers.

    A partition without a committed offset gets the lag that KEDA counts for it.
    """
    backlog = case.inputs.backlogs[drain.queue.group, drain.queue.topic]
    since = {row[:2]: oldest_ms for row, oldest_ms in zip(backlog.rows, backlog.oldest_ms, strict=True)}
    rows = [
        PartitionOffsets(topic, partition, None if latest < 0 else latest, None if committed < 0 else committed)
        for topic, partition, latest, committed in sorted(backlog.rows)
    ]
    found, chosen = [], [row for row in rows if drain.queue.has_partition(row.topic, row.partition)]
    for row in chosen:
        if row.latest is not None:
            waited_ms = max(0, backlog.at_ms - (since[row.topic, row.partition] or backlog.at_ms))
            never = row.committed is None
            lag = partition_lag(drain.queue, row, {})[1]
            found.append(Offsets(row.latest, row.latest - lag, waited_ms / 1000, never))
    pods = case.inputs.clusters.pods_seen(case.now_ms, case.rules).pods
    reading = count_ready_pods(pods) if pods else case.current
    runs = partition_runs_of((row.topic, row.partition) for row in chosen if row.latest is not None)
    return QueueObservation(backlog.at_ms, tuple(found), case.current, reading, runs)


def _drain_detail(wish: DrainWish, rate: float) -> str:
    hot = f", {wish.hot} partitions too slow for one replica" if wish.hot else ""
    return f"{wish.reason}: drained in {wish.drained_s:.0f} s at {rate:g} records a second of a replica{hot}"


def _headroom_wish(case: SizingCase, policy: ScalePolicy) -> SizeProposal:
    """Returns the size from the headroom of the supply classes with an open share; unknown when one of them is
    unknown."""
    now_s = case.now_ms // 1000
    due_s = headroom_due_s(policy.headroom, now_s)
    classes = sorted(open_percents(policy.headroom, now_s))
    reads = {name: read_one_series(HEADROOM, name, HEADROOM, case.inputs, case.moment) for name in classes}
    oldest_ms = min((read.oldest_ms for read in reads.values()), default=0)
    unknown = {name: read for name, read in reads.items() if read.value_milli is None}
    if unknown:
        why = "; ".join(f"{name}: {read.trouble}" for name, read in unknown.items())
        since_ms = min(read.failing_ms for read in unknown.values())
        read = MetricReading(UnavailableMetric(why), HEADROOM, oldest_ms=oldest_ms, failing_ms=since_ms, trouble=why)
        return SizeProposal(case.current, MetricRead(HEADROOM, read), due_s)
    idle = {name: (read.value_milli or 0) // 1000 for name, read in reads.items()}
    replicas = headroom_replicas(policy.headroom, idle, now_s)
    detail = ", ".join(f"{name}: room for {count} in all" for name, count in idle.items())
    total_milli = 1000 * sum(idle.values())
    due_ms = min((read.due_ms for read in reads.values() if read.due_ms is not None), default=None)
    read = MetricReading(SeriesReading((total_milli,)), HEADROOM, total_milli, oldest_ms, due_ms=due_ms, detail=detail)
    return SizeProposal(replicas, MetricRead(HEADROOM, read, replicas=replicas), due_s)
