"""Computes the number of replicas from one metric, as Kubernetes' replica calculator does. Pure.

Source: kubernetes v1.36.1, pkg/controller/podautoscaler/replica_calculator.go. Where a double or an integer overflows,
the result is as on linux/amd64.
"""

import math
from collections.abc import Sequence

from msgspec import Struct

from hpa.core.kubernetes.go_numbers import (
    INT32_MAX,
    INT64_MAX,
    ceiling,
    divide_doubles,
    int32_of_double,
    int64_of_double,
)
from hpa.core.kubernetes.pods import DEFAULT_READINESS, PodsSeen, Readiness, count_ready_pods
from hpa.core.kubernetes.totals import NoPods, Totals
from hpa.core.kubernetes.usage import DEFAULT_TOLERANCE, Tolerance, compute_utilization, ratio_and_average_use


class Proposal(Struct, frozen=True):
    """The number of replicas that one metric asks for.

    percent: the metric's value in percent of the requests; None if it is not a utilization.
    milli: the metric's value per pod or in all, in thousandths; None if it has none.
    """

    replicas: int
    percent: int | None = None
    milli: int | None = None


class ReplicaContext(Struct, frozen=True):
    """The values that every calculation needs. current: the replicas in the spec; status: the replicas that exist."""

    current: int
    status: int
    seen: PodsSeen
    tolerance: Tolerance = DEFAULT_TOLERANCE
    readiness: Readiness = DEFAULT_READINESS
    now_ms: int = 0
    pod_level_resources: bool = True


def propose_by_utilization(context: ReplicaContext, totals: Totals, target_percent: int) -> Proposal:
    """Returns the replicas that a resource's usage asks for, in percent of its requests. Raises NoMatchingMetrics."""
    found = compute_utilization(totals.matched_milli, totals.requested_milli, totals.matched, target_percent)
    with_unready = totals.unready > 0 and found.ratio > 1.0
    if not with_unready and not totals.missing:
        return Proposal(
            _replicas_unless_tolerated(context, found.ratio, totals.ready), found.percent, found.average_milli
        )
    # Missing pods count against the change: as idle when scaling out, as busy when scaling in.
    used, requested, pods = totals.matched_milli, totals.requested_milli, totals.samples
    if found.ratio != 1.0:
        requested, pods = requested + totals.missing_requested_milli, pods + totals.missing
    if found.ratio < 1.0:
        used += totals.missing_assumed_milli
    if with_unready:
        requested, pods = requested + totals.unready_requested_milli, pods + totals.unready
    again = compute_utilization(used, requested, pods, target_percent).ratio
    return Proposal(_replicas_with_missing_pods(context, found.ratio, again, pods), found.percent, found.average_milli)


def propose_by_average(context: ReplicaContext, totals: Totals, target_milli: int) -> Proposal:
    """Returns the replicas that a resource or a metric of pods asks for. target_milli: milli-units per pod."""
    ratio, average_milli = ratio_and_average_use(totals.used_milli, totals.samples, target_milli)
    with_unready = totals.unready > 0 and ratio > 1.0
    if not with_unready and not totals.missing:
        return Proposal(_replicas_unless_tolerated(context, ratio, totals.ready), milli=average_milli)
    used, pods = totals.used_milli, totals.samples
    if ratio != 1.0:
        pods += totals.missing
    if ratio < 1.0:
        used += target_milli * totals.missing
    if with_unready:
        pods += totals.unready
    again, _ = ratio_and_average_use(used, pods, target_milli)
    return Proposal(_replicas_with_missing_pods(context, ratio, again, pods), milli=average_milli)


def _replicas_unless_tolerated(context: ReplicaContext, ratio: float, pods: int) -> int:
    return context.current if context.tolerance.is_tolerated(ratio) else int32_of_double(ceiling(ratio * pods))


def _replicas_with_missing_pods(context: ReplicaContext, ratio: float, again: float, pods: int) -> int:
    """Returns the number of replicas with missing and unready pods counted in.

    They cannot reverse the direction, from scaling out to scaling in or back.
    ratio, again: usage to target without these pods, and with them.
    """
    turned = (ratio < 1.0 < again) or (again < 1.0 < ratio)
    if context.tolerance.is_tolerated(again) or turned:
        return context.current
    replicas = int32_of_double(ceiling(again * pods))
    if (again < 1.0 and replicas > context.current) or (again > 1.0 and replicas < context.current):
        return context.current
    return replicas


def propose_by_object_value(context: ReplicaContext, value_milli: int, target_milli: int) -> Proposal:
    """Returns the replicas that one object's value asks for. The target is for all pods together. Raises NoPods."""
    return Proposal(_replicas_for_value(context, value_milli, target_milli), milli=value_milli)


def propose_by_object_average(context: ReplicaContext, value_milli: int, target_milli: int) -> Proposal:
    """Returns the replicas that one object's value asks for. The target is per replica; the pods do not matter."""
    return _propose_by_average_value(context, value_milli, target_milli, capped=False)


def propose_by_external_value(context: ReplicaContext, values_milli: Sequence[int], target_milli: int) -> Proposal:
    """Returns the replicas that the sum of all series asks for. The target is for all pods together. Raises NoPods."""
    return propose_by_object_value(context, sum_series_milli(values_milli), target_milli)


def propose_by_external_average(context: ReplicaContext, values_milli: Sequence[int], target_milli: int) -> Proposal:
    """Returns the replicas that the sum of all series asks for. The target is per replica; the pods do not matter."""
    return _propose_by_average_value(context, sum_series_milli(values_milli), target_milli, capped=True)


def sum_series_milli(values_milli: Sequence[int]) -> int:
    """Returns the sum of a metric's series, at most the largest 64-bit number."""
    return min(sum(values_milli), INT64_MAX)


def _replicas_for_value(context: ReplicaContext, value_milli: int, target_milli: int) -> int:
    ratio = divide_doubles(float(value_milli), float(target_milli))
    if not context.current:
        return int32_of_double(ceiling(ratio))
    if context.tolerance.is_tolerated(ratio):
        return context.current
    if not context.seen.pods:
        raise NoPods("no pods returned by selector while calculating replica count")
    replicas = _replicas_of_ready_pods(ratio, count_ready_pods(context.seen.pods))
    if not context.seen.lost:
        return replicas
    # Nobody knows whether pods of lost clusters run. They count as ready when scaling in, and not when scaling out.
    if ratio < 1.0:
        return min(replicas, context.current)
    return max(_replicas_of_ready_pods(ratio, count_ready_pods(context.seen.reachable_pods())), context.current)


def _replicas_of_ready_pods(ratio: float, ready: int) -> int:
    return int32_of_double(min(ceiling(ratio * ready), float(INT32_MAX)))


def _propose_by_average_value(
    context: ReplicaContext, value_milli: int, target_milli: int, *, capped: bool
) -> Proposal:
    replicas, value = context.status, float(value_milli)
    if not context.tolerance.is_tolerated(divide_doubles(value, float(target_milli) * float(replicas))):
        wanted = ceiling(divide_doubles(value, float(target_milli)))
        replicas = int32_of_double(min(wanted, float(INT32_MAX)) if capped else wanted)
    average = ceiling(divide_doubles(value, float(context.status)))
    milli = INT64_MAX if capped and INT64_MAX <= average < math.inf else int64_of_double(average)
    return Proposal(replicas, milli=milli)
