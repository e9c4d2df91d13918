"""Sums up how nodes are used: one NodeUsed record for each node and hour. The idle report reads these records."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from spillway.amounts import clamp_to_int64
from spillway.events_lending import Amounts, NodeUsed
from spillway.kubernetes.quantities import Quantity, parse_quantity
from spillway.model import Generation

HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class NodeUse:
    """The use of a node at an instant. Amounts are in the units of Shape's requests.

    own_pods, requested: the number and the total requests of the owner's pods, daemons left out.
    lent: whether the node is lent.
    used: the measured use by all its pods; None: not known, or the node is lent and others use it.
    """

    rule: str
    allocatable: Mapping[str, int]
    requested: Mapping[str, int]
    own_pods: int
    lent: bool
    used: Mapping[str, int] | None = None


@dataclass(slots=True)
class _Hour:
    """The sums of one node since from_ms, for its NodeUsed. Times are in milliseconds.

    last: the use since last_ms.
    used_ms: the time for which the measured use was known.
    used_sum: for each resource, the sum of amount × milliseconds.
    """

    from_ms: int
    last_ms: int
    last: NodeUse
    pods_max: int = 0
    idle_ms: int = 0
    lent_ms: int = 0
    used_ms: int = 0
    requested_max: dict[str, int] = field(default_factory=dict)
    used_max: dict[str, int] = field(default_factory=dict)
    used_sum: dict[str, int] = field(default_factory=dict)


class ClusterUsage:
    """The use of one cluster's nodes, in hours of Unix time. Times that this instance did not observe are left out.

    quiet_ms_max: the longest time between two calls of `note_use` for a node that still counts as observed, in
    milliseconds.
    """

    def __init__(self, quiet_ms_max: int) -> None:
        self._quiet_ms_max = quiet_ms_max
        self._hours: dict[str, _Hour] = {}
        self._over: list[tuple[str, _Hour]] = []
        self._last_pod_ms: dict[str, int] = {}

    def note_use(self, name: str, use: NodeUse, at_ms: int) -> None:
        """Sets the use of a node from at_ms (Unix time) on. Call it at each change, and at least every quiet_ms_max."""
        self._end_hour_if_over(name, at_ms)
        hour = self._hours.get(name)
        if hour is None or at_ms - hour.last_ms > self._quiet_ms_max or at_ms < hour.last_ms:
            hour = self._hours[name] = _Hour(at_ms, at_ms, use)
        else:
            _add_time_to_sums(hour, at_ms)
            if hour.last.own_pods and not use.own_pods:
                self._last_pod_ms[name] = at_ms
            hour.last = use
        _raise_peaks(hour)

    def forget_node(self, name: str) -> None:
        self._hours.pop(name, None)
        self._last_pod_ms.pop(name, None)

    def take_hours(self, cluster: str, at_ms: int, next_generation: Callable[[], Generation]) -> list[NodeUsed]:
        """Returns the records of the hours that are over. Each hour is returned once."""
        for name in sorted(self._hours):
            self._end_hour_if_over(name, at_ms)
        over, self._over = self._over, []
        return [self._usage_record(cluster, name, hour, next_generation()) for name, hour in over]

    def _end_hour_if_over(self, name: str, at_ms: int) -> None:
        """Ends the node's hour if it is over, and keeps it for take_hours().

        The next hour begins at once if the node was observed until the end; else it begins with the next note_use().
        """
        hour = self._hours.get(name)
        if hour is None or at_ms < _hour_end_ms(hour):
            return
        end_ms, seen_ms = _hour_end_ms(hour), hour.last_ms + self._quiet_ms_max
        _add_time_to_sums(hour, min(end_ms, seen_ms))
        self._over.append((name, hour))
        del self._hours[name]
        if seen_ms >= end_ms:
            self._hours[name] = _Hour(end_ms, end_ms, hour.last)
            _raise_peaks(self._hours[name])

    def _usage_record(self, cluster: str, name: str, hour: _Hour, number: Generation) -> NodeUsed:
        return NodeUsed(
            cluster=cluster,
            node=name,
            epoch=number.epoch,
            sequence=number.sequence,
            from_ms=hour.from_ms,
            until_ms=hour.last_ms,
            rule=hour.last.rule,
            allocatable=_sorted_amounts(hour.last.allocatable),
            requested_max=_sorted_amounts(hour.requested_max),
            used_average=_sorted_amounts({key: value // hour.used_ms for key, value in hour.used_sum.items()}),
            used_max=_sorted_amounts(hour.used_max),
            pods_max=hour.pods_max,
            last_pod_ms=self._last_pod_ms.get(name, 0),
            idle_ms=hour.idle_ms,
            lent_ms=hour.lent_ms,
        )


def measured_amounts(usage: Mapping[str, Quantity]) -> dict[str, int] | None:
    """Returns the amounts of a sample, in the units of Shape's requests; None if an amount cannot be read."""
    try:
        return {name: parse_quantity(amount, milli=name == "cpu") for name, amount in usage.items()}
    except ValueError:
        return None


def _hour_end_ms(hour: _Hour) -> int:
    return (hour.from_ms // HOUR_MS + 1) * HOUR_MS


def _add_time_to_sums(hour: _Hour, at_ms: int) -> None:
    """Adds the time since the last change to the sums, with the use that held until now."""
    passed_ms, use = at_ms - hour.last_ms, hour.last
    hour.last_ms = at_ms
    hour.idle_ms += passed_ms if not use.own_pods else 0
    hour.lent_ms += passed_ms if use.lent else 0
    if use.used is not None and passed_ms:
        hour.used_ms += passed_ms
        for name, amount in use.used.items():
            hour.used_sum[name] = hour.used_sum.get(name, 0) + amount * passed_ms


def _raise_peaks(hour: _Hour) -> None:
    use = hour.last
    hour.pods_max = max(hour.pods_max, use.own_pods)
    for peaks, amounts in ((hour.requested_max, use.requested), (hour.used_max, use.used or {})):
        for name, amount in amounts.items():
            peaks[name] = max(peaks.get(name, 0), amount)


def _sorted_amounts(amounts: Mapping[str, int]) -> Amounts:
    return tuple(sorted((name, clamp_to_int64(amount)) for name, amount in amounts.items()))
