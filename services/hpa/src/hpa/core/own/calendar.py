"""Applies the windows of a calendar: floor, ceiling, exact number or no change of the size at stated times. Pure.

A window is open if its next end comes no later than its next start. So when hpa was down, only the windows open now
apply afterwards, and a missed one is not applied late. A local time that a clock change skips counts as the moment of
the change, so that a window that lasts beyond the change still opens. Two such times keep the order of their local
times. A local time that comes twice counts at its first occurrence.
"""

from bisect import bisect_right
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

from msgspec import Struct

from hpa.core.cron import NEXTS_KEPT, YEARS_LOOKED_AHEAD, CronSchedule

FLOOR: Final = "floor"
CEILING: Final = "ceiling"
EXACT: Final = "exact"
BLACKOUT: Final = "blackout"
RANKS: Final = {FLOOR: 0, CEILING: 1, EXACT: 2, BLACKOUT: 3}
"""Open windows with the same precedence apply in this order; the last one decides."""
DAY: Final = timedelta(days=1)
DAYS_LOOKED_AHEAD: Final = 366 * YEARS_LOOKED_AHEAD * DAY


class RecurringPeriod(Struct, frozen=True):
    """Times that recur: from each time of `start` to the next time of `end`, in the zone."""

    start: CronSchedule
    end: CronSchedule
    zone: ZoneInfo


class SinglePeriod(Struct, frozen=True):
    """A single period in Unix time. from_s is in it, until_s is not."""

    from_s: int
    until_s: int


class Window(Struct, frozen=True):
    """A window of a calendar.

    effect: one of the four effects.
    replicas: for all effects but BLACKOUT.
    precedence: windows apply in this order; the one with the highest precedence decides last.
    """

    name: str
    times: RecurringPeriod | SinglePeriod
    effect: str
    replicas: int = 0
    precedence: int = 0


class WindowState(Struct, frozen=True):
    """The state of a window. due_s: when it opens or closes next; None: never again."""

    is_open: bool
    due_s: int | None


class CalendarBound(Struct, frozen=True):
    """The effect of the open windows.

    replicas: the number of replicas after the windows changed the number asked for.
    by: the names of the windows that changed it, in their order.
    due_s: the time at which it may change without a new record, in Unix seconds; None: never.
    """

    replicas: int
    by: tuple[str, ...]
    due_s: int | None


def window_state_at(times: RecurringPeriod | SinglePeriod, now_s: int) -> WindowState:
    """Returns whether a window with these times is open at now_s, and when it opens or closes next."""
    if isinstance(times, SinglePeriod):
        is_open = times.from_s <= now_s < times.until_s
        return WindowState(is_open, next((at for at in (times.from_s, times.until_s) if at > now_s), None))
    start, end = _next_occurrence(times.start, times.zone, now_s), _next_occurrence(times.end, times.zone, now_s)
    comes = [coming.at_s for coming in (start, end) if coming is not None]
    return WindowState(end is not None and (start is None or end <= start), min(comes, default=None))


def apply_open_windows(windows: Sequence[Window], asked: int, current: int, now_s: int) -> CalendarBound:
    """Applies all open windows to `asked`, the lowest precedence first.

    due_s of the result: the time at which it may change without a new record.
    """
    openings = [(window, window_state_at(window.times, now_s)) for window in windows]
    replicas, by = asked, []
    for window in sorted((one for one, found in openings if found.is_open), key=_window_order):
        left = _apply_window(window, replicas, current)
        if left != replicas:
            by.append(window.name)
        replicas = left
    due = (found.due_s for _, found in openings if found.due_s is not None)
    return CalendarBound(replicas, tuple(by), min(due, default=None))


def _window_order(window: Window) -> tuple[int, int, str]:
    return window.precedence, RANKS[window.effect], window.name


def _apply_window(window: Window, replicas: int, current: int) -> int:
    if window.effect == FLOOR:
        return max(replicas, window.replicas)
    if window.effect == CEILING:
        return min(replicas, window.replicas)
    return window.replicas if window.effect == EXACT else current


class NextOccurrence(NamedTuple):
    """The next time of a line. at_s: Unix time; local: the local time of the line, even if the clocks skip it."""

    at_s: int
    local: datetime


def next_occurrence_s(cron: CronSchedule, zone: ZoneInfo, now_s: int) -> int | None:
    """Returns the first instant after now_s (Unix time) that matches the line; None: not within five years."""
    coming = _next_occurrence(cron, zone, now_s)
    return coming.at_s if coming is not None else None


def _next_occurrence(cron: CronSchedule, zone: ZoneInfo, now_s: int) -> NextOccurrence | None:
    today = datetime.fromtimestamp(now_s, zone).replace(hour=0, minute=0, second=0, tzinfo=None, fold=0)
    for day in (today, today + DAY):  # Where the clocks go back over midnight, times of tomorrow may be over, too.
        coming = _first_occurrence_from(cron, zone, day)
        if coming is not None and coming.at_s <= now_s:
            coming = _next_occurrence_on_day(coming.local, cron, zone, now_s)
            if coming is None:
                continue
        return coming
    return _first_occurrence_from(cron, zone, today + 2 * DAY)


@lru_cache(maxsize=NEXTS_KEPT)
def _first_occurrence_from(cron: CronSchedule, zone: ZoneInfo, day: datetime) -> NextOccurrence | None:
    """Returns the first time on that day or later. It is cached, so that years are searched only once a day."""
    end = day + DAYS_LOOKED_AHEAD
    while day < end:
        if day.month not in cron.months.values:
            day = (day.replace(day=1) + 31 * DAY).replace(day=1)
        elif cron.matches_day(day):
            local = day.replace(hour=min(cron.hours.values), minute=min(cron.minutes.values))
            return NextOccurrence(unix_time_s(local, zone), local)
        else:
            day += DAY
    return None


def _next_occurrence_on_day(day: datetime, cron: CronSchedule, zone: ZoneInfo, now_s: int) -> NextOccurrence | None:
    """Returns the first time after now_s on a day that matches the line; None: all its times are over.

    Bisection finds it, because a later local time is never an earlier instant.
    """
    hours, minutes = sorted(cron.hours.values), sorted(cron.minutes.values)
    past = bisect_right(hours, now_s, key=lambda hour: unix_time_s(day.replace(hour=hour, minute=minutes[-1]), zone))
    if past == len(hours):
        return None
    in_hour = day.replace(hour=hours[past])
    past = bisect_right(minutes, now_s, key=lambda minute: unix_time_s(in_hour.replace(minute=minute), zone))
    local = in_hour.replace(minute=minutes[past])
    return NextOccurrence(unix_time_s(local, zone), local)


def unix_time_s(local: datetime, zone: ZoneInfo) -> int:
    """Returns the Unix time of a local time in a zone.

    If the local time exists twice, it is the first one. If a clock change skips it, it is the moment of the change.
    """
    first = int(local.replace(tzinfo=zone, fold=0).timestamp())
    if datetime.fromtimestamp(first, zone).replace(tzinfo=None, fold=0) == local:
        return first
    after = int(local.replace(tzinfo=zone, fold=1).timestamp())
    return _clock_change_s(min(first, after), max(first, after), zone)


def _clock_change_s(low: int, high: int, zone: ZoneInfo) -> int:
    """Returns the first second in (low, high] whose offset from UTC differs from that at low."""
    offset = datetime.fromtimestamp(low, zone).utcoffset()
    while high - low > 1:
        middle = (low + high) // 2
        if datetime.fromtimestamp(middle, zone).utcoffset() == offset:
            low = middle
        else:
            high = middle
    return high


def parse_unix_time_s(text: str, zone: ZoneInfo) -> int:
    """Returns the Unix time of a date or time in the zone, as 2026-11-27 or 2026-11-27T08:00. One with Z is in UTC.

    Raises ValueError, also for a time that is before the year 1 or after the year 9999 in UTC.
    """
    written = datetime.fromisoformat(text)
    try:
        if written.tzinfo is not None:
            return int(written.astimezone(UTC).timestamp())
        return unix_time_s(written, zone)
    except OverflowError as error:
        raise ValueError(str(error)) from error
