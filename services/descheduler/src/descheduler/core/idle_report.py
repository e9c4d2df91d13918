"""Reports nodes that were idle: forgotten, left over from a release, or a buffer. Suggests what to do with each."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from descheduler.core.recalls_by_name import PAGE_SIZE_MAX, check_known
from descheduler.core.state import DeschedulerState
from spillway import api_lending as lending
from spillway.amounts import clamp_to_int64
from spillway.api import invalid_argument_error
from spillway.events_lending import NodeUsed

TOKEN = re.compile(r"[0-9]{0,9}", re.ASCII)
HOUR_MS = 3_600_000
HOURS = 72
HOURS_MAX = 7 * 24
IDLE_SHARE = 0.5
"""The least share of the observed time for which a reported node was idle or lent."""
FORGOTTEN, LEFT_OVER, BUFFER = "Forgotten", "LeftOver", "Buffer"
SURE_MS = 24 * HOUR_MS
"""A node without pods for a shorter time is not certainly forgotten or left over."""
SUGGESTIONS = {
    FORGOTTEN: "no pod of its own in all the time: give it back, or lend it as dedicated",
    LEFT_OVER: "its pods left and none came back: lend it, or give it back",
    BUFFER: "used at times: lend it between, with a reserve if that is too slow",
}
NOT_SURE = "no pod of its own so far, but seen for less than a day: look again before you give it back"


@dataclass(frozen=True, slots=True)
class _Sum:
    """The sums over the hours of one node.

    idle_ms: the idle time, including the time when it was lent.
    quiet_ms: the observed time since it last had a pod of its own.
    """

    newest: NodeUsed
    from_ms: int
    observed_ms: int
    idle_ms: int
    lent_ms: int
    pods_max: int
    requested_max_milli: int
    used_max_milli: int
    last_pod_ms: int
    quiet_ms: int

    @property
    def cores_milli(self) -> int:
        return dict(self.newest.allocatable).get("cpu", 0)

    @property
    def unused_ms(self) -> int:
        return max(self.idle_ms, self.lent_ms)


def make_idle_report(
    state: DeschedulerState, request: lending.IdleReportRequest, now_ms: int
) -> lending.IdleReportReply:
    """Returns the idle nodes, the most idle cores first. Raises RequestError NOT_FOUND for an unknown cluster.

    page_token: the end of the page before.
    """
    if request.cluster and all(owner != request.cluster for owner, _ in state.used):
        check_known(state, "cluster", request.cluster)
    if not 0 <= request.hours <= HOURS_MAX:
        raise invalid_argument_error("hours", request.hours, f"0 to {HOURS_MAX}; 0 is {HOURS}")
    if request.page_size < 0:
        raise invalid_argument_error("page_size", request.page_size, "0 or more")
    if not TOKEN.fullmatch(request.page_token):
        raise invalid_argument_error("page_token", request.page_token, "a token that IdleReport returned")
    from_ms = now_ms - (request.hours or HOURS) * HOUR_MS
    sums = list(_sum_of_each_node(state, request.cluster, from_ms))
    from_ms = max(from_ms, min((one.from_ms for one in sums), default=from_ms))
    until_ms = max((one.newest.until_ms for one in sums), default=now_ms)
    lent_core_ms = sum(one.cores_milli * one.lent_ms for one in sums) // 1000
    idle = sorted(
        (one for one in sums if one.unused_ms >= IDLE_SHARE * one.observed_ms),
        key=lambda one: (-one.cores_milli * one.unused_ms, one.newest.cluster, one.newest.node),
    )
    begin = int(request.page_token or 0)
    end = begin + min(request.page_size or PAGE_SIZE_MAX, PAGE_SIZE_MAX)
    return lending.IdleReportReply(
        nodes=tuple(_make_idle_node(one) for one in idle[begin:end]),
        nodes_observed=len(sums),
        requests_only=sum(one.used_max_milli < 0 for one in sums),
        cores_milli=clamp_to_int64(sum(one.cores_milli for one in sums)),
        cores_idle_milli=clamp_to_int64(_average_milli_cores(sums, [one.idle_ms for one in sums])),
        cores_lent_milli=clamp_to_int64(lent_core_ms * 1000 // max(until_ms - from_ms, 1)),
        from_ms=from_ms,
        until_ms=until_ms,
        next_page_token=str(end) if end < len(idle) else "",
        core_seconds_lent=clamp_to_int64(lent_core_ms // 1000),
    )


def _sum_of_each_node(state: DeschedulerState, cluster: str, from_ms: int) -> Iterable[_Sum]:
    for (of_cluster, _), by_hour in sorted(state.used.items()):
        hours = _hours_without_overlap(hour for _, hour in sorted(by_hour.items()) if hour.until_ms > from_ms)
        if hours and cluster in ("", of_cluster):
            yield _sum_of_hours(hours)


def _hours_without_overlap(hours: Iterable[NodeUsed]) -> list[NodeUsed]:
    """Returns the hours in order of time. Of two that overlap, e.g. of two bridges, the later record counts."""
    kept: list[NodeUsed] = []
    for hour in hours:
        if not kept or hour.from_ms >= kept[-1].until_ms:
            kept.append(hour)
        elif (hour.epoch, hour.sequence) > (kept[-1].epoch, kept[-1].sequence):
            kept[-1] = hour
    return kept


def _sum_of_hours(hours: Sequence[NodeUsed]) -> _Sum:
    busy_until_ms = max((hour.until_ms for hour in hours if hour.pods_max), default=0)
    used = [dict(hour.used_max).get("cpu", 0) for hour in hours if hour.used_max]
    return _Sum(
        newest=hours[-1],
        from_ms=hours[0].from_ms,
        observed_ms=sum(hour.until_ms - hour.from_ms for hour in hours),
        idle_ms=sum(hour.idle_ms for hour in hours),
        lent_ms=sum(hour.lent_ms for hour in hours),
        pods_max=max(hour.pods_max for hour in hours),
        requested_max_milli=max(dict(hour.requested_max).get("cpu", 0) for hour in hours),
        used_max_milli=max(used, default=-1),
        last_pod_ms=max(hour.last_pod_ms for hour in hours),
        quiet_ms=sum(hour.until_ms - hour.from_ms for hour in hours if hour.from_ms >= busy_until_ms),
    )


def _average_milli_cores(sums: Sequence[_Sum], times_ms: Sequence[int]) -> int:
    """Returns milli-cores, averaged over the time for which each node was observed."""
    return sum(
        one.cores_milli * time_ms // one.observed_ms
        for one, time_ms in zip(sums, times_ms, strict=True)
        if one.observed_ms
    )


def _make_idle_node(one: _Sum) -> lending.IdleNode:
    kind = _kind_of_idle_node(one)
    return lending.IdleNode(
        cluster=one.newest.cluster,
        node=one.newest.node,
        rule=one.newest.rule,
        kind=kind,
        cores_milli=one.cores_milli,
        observed_ms=one.observed_ms,
        idle_ms=one.idle_ms,
        lent_ms=one.lent_ms,
        pods_max=one.pods_max,
        requested_max_milli=one.requested_max_milli,
        used_max_milli=one.used_max_milli,
        last_pod_ms=one.last_pod_ms,
        suggestion=NOT_SURE if kind == FORGOTTEN and one.observed_ms < SURE_MS else SUGGESTIONS[kind],
    )


def _kind_of_idle_node(one: _Sum) -> str:
    """Returns the kind: Forgotten without any pod, LeftOver if it had pods but none for the last day, else Buffer.

    The day is counted in hours in which a bridge observed the node. The last pod may have left while no bridge did.
    """
    if one.pods_max == 0:
        return FORGOTTEN
    return LEFT_OVER if one.quiet_ms >= SURE_MS else BUFFER
