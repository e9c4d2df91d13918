"""Computes KEDA's cron trigger: a number of replicas between a start and an end. Pure.

Source: pkg/scalers/cron_scaler.go. The trigger is active while the next end comes no later than the next start.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from hpa.core.cron import InvalidCron, next_match_s, parse_cron, parse_zone
from hpa.core.kubernetes.go_numbers import DIGITS, INT32_MAX

REPLACED: Final = ((" ", ""), ("*", "x"), ("/", "Sl"), ("?", "Qm"), (",", "Cm"))


class CronTrigger(Struct, frozen=True):
    """A cron trigger. start, end: cron lines; zone: the name of a time zone, which is checked when it is used."""

    start: str
    end: str
    zone: str
    desired_replicas: int

    def metric_name(self, index: int) -> str:
        lines = "-".join(_line_in_metric_name(line) for line in (self.start, self.end))
        return f"s{index}-cron-{self.zone.replace('/', '-')}-{lines}"


class CronActivity(Struct, frozen=True):
    """The state of a cron trigger. next_start_s, next_end_s: Unix time; the earlier one is the next change."""

    active: bool
    metric_milli: int
    next_start_s: int
    next_end_s: int

    @property
    def due_s(self) -> int:
        return min(self.next_start_s, self.next_end_s)


def read_cron_trigger(metadata: Mapping[str, str]) -> CronTrigger:
    """Returns the cron trigger that the metadata in a manifest describes. Raises InvalidCron."""
    for name in ("start", "end", "timezone", "desiredReplicas"):
        if not metadata.get(name):
            raise InvalidCron(f"{name}: missing; a cron trigger needs start, end, timezone and desiredReplicas")
    start, end, desired = metadata["start"], metadata["end"], metadata["desiredReplicas"]
    for name in ("start", "end"):
        try:
            parse_cron(metadata[name])
        except InvalidCron as error:
            raise InvalidCron(f"{name}: {error}") from None
    if start == end:
        raise InvalidCron(f"end {end!r}: expected a cron line other than start")
    if not DIGITS.fullmatch(desired) or not 1 <= int(desired) <= INT32_MAX:
        raise InvalidCron(f"desiredReplicas {desired[:40]!r}: expected a number from 1 to {INT32_MAX}")
    return CronTrigger(start, end, metadata["timezone"], int(desired))


def cron_activity_at(trigger: CronTrigger, now_s: int) -> CronActivity:
    """Returns whether the trigger is active at now_s.

    Raises InvalidCron for an unknown zone or a line that never matches.
    """
    try:
        zone = parse_zone(trigger.zone)
    except InvalidCron as error:
        raise InvalidCron(f"timezone: {error}") from None
    start, end = (next_match_s(parse_cron(line), zone, now_s) for line in (trigger.start, trigger.end))
    if start is None or end is None:
        name, line = ("start", trigger.start) if start is None else ("end", trigger.end)
        raise InvalidCron(f"{name}: cron {line!r}: expected a time that comes")
    active = end <= start
    return CronActivity(active, trigger.desired_replicas * 1000 if active else 0, start, end)


def _line_in_metric_name(line: str) -> str:
    for written, short in REPLACED:
        line = line.replace(written, short)
    return line
