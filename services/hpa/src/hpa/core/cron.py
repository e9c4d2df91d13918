"""Finds when a cron line comes next in a time zone, to the second as robfig/cron v3 does. Pure.

A line has five fields: minute, hour, day of month, month, day of week (0 is Sunday; 7 is not known). Fields have `*` or
`?`, numbers, names, ranges, steps and lists. If both days are given, one match is enough. A local time that a clock
change skips does not match on that day; a local time that comes twice matches only the first time. No maintained cron
library has these rules, but KEDA's users rely on them, so they are implemented here. The rules of time zones come from
the machine, or else from tzdata.
"""

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from msgspec import Struct

DAY: Final = 86_400
HOUR: Final = 3_600
MINUTE: Final = 60
YEARS_LOOKED_AHEAD: Final = 5
NEXTS_KEPT: Final = 4_096
"""The most results that are cached, for all lines together. A search begins at the start of a day or an hour, so that
results can be shared."""
MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
LINE_MAX: Final = 200
"""The most characters of a line."""
EXPECTED: Final = "five fields: minute hour day-of-month month day-of-week"


class InvalidCron(ValueError):
    """Raised for an invalid line or time zone. The text has the line or the zone, and the expected form."""


class CronField(Struct, frozen=True):
    """One field of a line.

    values: the numbers that match.
    any: True if written as `*` or `?`. For a day field, only the other day field decides then.
    """

    values: frozenset[int]
    any: bool = False


class CronSchedule(Struct, frozen=True):
    """A parsed cron line: the numbers that match, for each of its five fields."""

    minutes: CronField
    hours: CronField
    days: CronField
    months: CronField
    weekdays: CronField

    def matches_day(self, local: datetime) -> bool:
        in_month = local.day in self.days.values
        in_week = local.isoweekday() % 7 in self.weekdays.values
        # A day field written as `*` decides nothing, so the other must match. If both days are given, one is enough.
        return (in_month and in_week) if self.days.any or self.weekdays.any else (in_month or in_week)


class CronFieldBounds(Struct, frozen=True):
    name: str
    first: int
    last: int
    names: tuple[str, ...] = ()


FIELDS: Final = (
    CronFieldBounds("minute", 0, 59),
    CronFieldBounds("hour", 0, 23),
    CronFieldBounds("day of month", 1, 31),
    CronFieldBounds("month", 1, 12, MONTHS),
    CronFieldBounds("day of week", 0, 6, WEEKDAYS),
)


@lru_cache(maxsize=4096)
def parse_cron(line: str) -> CronSchedule:
    """Returns the schedule of a cron line. Raises InvalidCron."""
    if len(line) > LINE_MAX:
        raise InvalidCron(f"cron {line[:LINE_MAX]!r}…: {len(line)} characters: expected at most {LINE_MAX}")
    parts = line.split()
    if len(parts) != len(FIELDS):
        raise InvalidCron(f"cron {line!r}: expected {EXPECTED}")
    return CronSchedule(*(_parse_field(part, bounds, line) for part, bounds in zip(parts, FIELDS, strict=True)))


def _parse_field(text: str, bounds: CronFieldBounds, line: str) -> CronField:
    found: set[int] = set()
    every = False
    for item in text.split(","):
        values, stands_for_any = _parse_range(item, bounds, line)
        found |= values
        every = every or stands_for_any
    return CronField(frozenset(found), every)


def _parse_range(item: str, bounds: CronFieldBounds, line: str) -> tuple[set[int], bool]:
    span, slash, step_text = item.partition("/")
    first_text, dash, last_text = span.partition("-")
    every = first_text in ("*", "?") and not dash
    if every:
        first, last = bounds.first, bounds.last
    else:
        first = _parse_number_or_name(first_text, bounds, line)
        last = _parse_number_or_name(last_text, bounds, line) if dash else bounds.last if slash else first
    step = _parse_digits(step_text, bounds, line) if slash else 1
    if not bounds.first <= first <= last <= bounds.last or step == 0:
        expected = f"{bounds.first} to {bounds.last}, in rising order, by steps of at least 1"
        raise InvalidCron(f"cron {line!r}: {bounds.name} {item!r}: expected {expected}")
    return set(range(first, last + 1, step)), every and step == 1


def _parse_number_or_name(text: str, bounds: CronFieldBounds, line: str) -> int:
    if text.lower() in bounds.names:
        return bounds.names.index(text.lower()) + bounds.first
    return _parse_digits(text, bounds, line)


def _parse_digits(text: str, bounds: CronFieldBounds, line: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise InvalidCron(f"cron {line!r}: {bounds.name} {text!r}: expected a number")
    return int(text)


@lru_cache(maxsize=1024)
def parse_zone(name: str) -> ZoneInfo:
    """Returns the time zone of that name. Raises InvalidCron.

    zoneinfo reads the tz database, which stays the same while the process runs, and keeps each zone: so the result
    depends on the name alone, though this is a core.
    """
    try:
        return ZoneInfo(name or "UTC")
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidCron(f"time zone {name!r}: expected a name of the tz database, as Europe/Berlin") from error


def next_match_s(cron: CronSchedule, zone: ZoneInfo, now_s: int) -> int | None:
    """Returns the first second after now_s (Unix time) that matches the line; None: not within five years.

    The search does the same steps as robfig/cron's SpecSchedule.Next, because its results at clock changes follow from
    its steps.
    """
    at = now_s + 1
    limit = _local_time(at, zone).year + YEARS_LOOKED_AHEAD
    found, at, cut = _advance_search(cron, zone, at, cut=False)
    return at if found else _search_match_s(cron, zone, at, cut, limit)


@lru_cache(maxsize=NEXTS_KEPT)
def _search_match_s(cron: CronSchedule, zone: ZoneInfo, at: int, cut: bool, limit: int) -> int | None:
    """Continues the search from `at`, the Unix time that the first step of a search gave.

    Many instants lead to the same `at`, so that they share one cached result.
    limit: the last year to search.
    """
    while _local_time(at, zone).year <= limit:
        found, at, cut = _advance_search(cron, zone, at, cut)
        if found:
            return at
    return None


def _advance_search(cron: CronSchedule, zone: ZoneInfo, at: int, cut: bool) -> tuple[bool, int, bool]:
    """Moves `at` to the next month or day, or to the next match within its day. Returns (found, at, cut).

    found: `at` matches the line.
    cut: `at` is already the beginning of a month, day, hour or minute.
    """
    local = _local_time(at, zone)
    if local.month not in cron.months.values:
        return False, _next_month(local, zone, cut), True
    if not cron.matches_day(local):
        return False, _next_day(local, zone, cut), True
    while (local := _local_time(at, zone)).hour not in cron.hours.values:
        at = (at if cut else _go_unix_time_s(local.replace(minute=0, second=0), zone)) + HOUR
        cut = True
        if _local_time(at, zone).hour == 0:
            return False, at, cut
    while (local := _local_time(at, zone)).minute not in cron.minutes.values:
        at = (at if cut else at - at % MINUTE) + MINUTE
        cut = True
        if _local_time(at, zone).minute == 0:
            return False, at, cut
    second = _local_time(at, zone).second
    if second == 0:
        return True, at, cut
    at += MINUTE - second
    return _local_time(at, zone).minute != 0 and _local_time(at, zone).minute in cron.minutes.values, at, True


def _next_month(local: datetime, zone: ZoneInfo, cut: bool) -> int:
    beginning = local if cut else local.replace(day=1, hour=0, minute=0, second=0)
    year, month = (beginning.year + 1, 1) if beginning.month == 12 else (beginning.year, beginning.month + 1)
    return _go_unix_time_s(beginning.replace(year=year, month=month), zone)


def _next_day(local: datetime, zone: ZoneInfo, cut: bool) -> int:
    """Returns the Unix time of the next day's midnight, or of the nearest hour if a clock change skips midnight."""
    beginning = local if cut else local.replace(hour=0, minute=0, second=0)
    at = _go_unix_time_s(beginning + timedelta(days=1), zone)
    hour = _local_time(at, zone).hour
    if hour == 0:
        return at
    # Midnight does not exist on that day: the search may have landed before it (23:00) or after it (01:00).
    return at + (24 - hour if hour > 12 else -hour) * HOUR


def _local_time(at: int, zone: ZoneInfo) -> datetime:
    """Returns the local time in the zone, as a datetime without a time zone."""
    return datetime.fromtimestamp(at, zone).replace(tzinfo=None, fold=0)


def _utc_offset_seconds(at: int, zone: ZoneInfo) -> int:
    offset = datetime.fromtimestamp(at, zone).utcoffset()
    return int(offset.total_seconds()) if offset is not None else 0


def _go_unix_time_s(local: datetime, zone: ZoneInfo) -> int:
    """Returns the Unix time of a local time. One that exists twice or not at all is resolved as Go's time.Date does."""
    as_utc = int(local.replace(tzinfo=UTC).timestamp())
    return as_utc - _utc_offset_seconds(as_utc - _utc_offset_seconds(as_utc, zone), zone)
