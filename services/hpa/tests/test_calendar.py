"""Windows: open when they should be, whatever the clocks do and however long one was away; who has the last word."""

from datetime import datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpa.core.cron import parse_cron
from hpa.core.own.calendar import (
    BLACKOUT,
    CEILING,
    EXACT,
    FLOOR,
    CalendarBound,
    RecurringPeriod,
    SinglePeriod,
    Window,
    apply_open_windows,
    next_occurrence_s,
    unix_time_s,
    window_state_at,
)
from hpa.core.own.headroom import HeadroomShare, headroom_due_s, headroom_replicas

BERLIN = ZoneInfo("Europe/Berlin")


def unix_seconds_at(text: str, zone: ZoneInfo = BERLIN) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=zone).timestamp())


def recurring_period(start: str, end: str, zone: ZoneInfo = BERLIN) -> RecurringPeriod:
    return RecurringPeriod(parse_cron(start), parse_cron(end), zone)


DAY = recurring_period("0 8 * * 1-5", "0 18 * * 1-5")
NIGHT = recurring_period("30 2 * * *", "0 4 * * *")
SKIPPED = recurring_period("0 2 * * *", "0 3 * * *")
WEEKLY = recurring_period("0 2 * * 0", "0 3 * * 0")


@pytest.mark.parametrize(
    ("when", "now", "is_open", "due"),
    [
        pytest.param(DAY, "2026-11-20T07:59:59", False, "2026-11-20T08:00", id="a second before"),
        pytest.param(DAY, "2026-11-20T08:00", True, "2026-11-20T18:00", id="from its start on"),
        pytest.param(DAY, "2026-11-20T18:00", False, "2026-11-23T08:00", id="not at its end; then over the weekend"),
        pytest.param(NIGHT, "2026-03-29T01:59:59", False, "2026-03-29T03:00", id="skipped: opens when clocks change"),
        pytest.param(NIGHT, "2026-03-29T03:00", True, "2026-03-29T04:00", id="skipped: open from then"),
        pytest.param(SKIPPED, "2026-03-28T12:00", False, "2026-03-29T03:00", id="skipped whole: closed the day before"),
        pytest.param(SKIPPED, "2026-03-29T03:00", False, "2026-03-30T02:00", id="skipped whole: not open that day"),
        pytest.param(WEEKLY, "2026-03-25T12:00", False, "2026-03-29T03:00", id="skipped whole: closed the week before"),
        pytest.param(NIGHT, "2026-10-25T02:30", True, "2026-10-25T04:00", id="twice: from the first on"),
    ],
)
def test_when_a_window_is_open(when: RecurringPeriod, now: str, is_open: bool, due: str) -> None:
    found = window_state_at(when, unix_seconds_at(now))
    assert (found.is_open, found.due_s) == (is_open, unix_seconds_at(due))


def test_a_window_of_dates_is_open_once() -> None:
    once = SinglePeriod(100, 200)
    assert [window_state_at(once, now).is_open for now in (99, 100, 199, 200)] == [False, True, True, False]
    assert [window_state_at(once, now).due_s for now in (99, 100, 200)] == [100, 200, None]


ALWAYS = SinglePeriod(0, 10**10)


@pytest.mark.parametrize(
    ("windows", "asked", "expected"),
    [
        pytest.param([], 5, (5, ()), id="none"),
        pytest.param([(FLOOR, 8, 0)], 5, (8, ("0",)), id="at least"),
        pytest.param([(CEILING, 3, 0)], 5, (3, ("0",)), id="at most"),
        pytest.param([(FLOOR, 4, 0)], 5, (5, ()), id="a floor below what is asked for binds nothing"),
        pytest.param([(FLOOR, 8, 0), (CEILING, 3, 0)], 5, (3, ("0", "1")), id="of one precedence: the ceiling"),
        pytest.param([(FLOOR, 8, 1), (CEILING, 3, 0)], 5, (8, ("1", "0")), id="the higher precedence: the floor"),
        pytest.param([(EXACT, 6, 0), (CEILING, 3, 0)], 5, (6, ("1", "0")), id="exactly"),
        pytest.param([(BLACKOUT, 0, 0), (EXACT, 6, 0)], 5, (2, ("1", "0")), id="blackout: as it is"),
    ],
)
def test_who_has_the_last_word(
    windows: list[tuple[str, int, int]], asked: int, expected: tuple[int, tuple[str, ...]]
) -> None:
    listed = [Window(str(n), ALWAYS, *one) for n, one in enumerate(windows)]
    found = apply_open_windows(listed, asked, 2, 100)
    assert (found.replicas, found.by) == expected
    assert apply_open_windows(listed[::-1], asked, 2, 100) == found


ZONE_NAMES = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Sao_Paulo"]
ZONES = st.sampled_from(ZONE_NAMES)
YEARS = unix_seconds_at("2015-01-01"), unix_seconds_at("2025-01-01")
INSTANTS = st.integers(*YEARS)


@given(zone=ZONES, hour=st.integers(0, 23), minute=st.sampled_from([0, 15, 30, 45]), now_s=INSTANTS)
def test_a_daily_time_comes_once_on_every_day(zone: str, hour: int, minute: int, now_s: int) -> None:
    """Also on days on which the clocks change: ten of them in a row have ten different dates."""
    cron, tz = parse_cron(f"{minute} {hour} * * *"), ZoneInfo(zone)
    dates = []
    for _ in range(10):
        following = next_occurrence_s(cron, tz, now_s)
        assert following is not None
        dates.append(datetime.fromtimestamp(following, tz).date())
        now_s = following
    assert dates == [dates[0] + timedelta(days=n) for n in range(10)]


@given(
    zone=ZONES,
    line=st.sampled_from(["0 0 29 2 *", "30 2 29 2,3 *", "*/20 22-23 * * 6", "0,59 0,23 31 * *", "* 2 * 10,11 0"]),
    now_s=INSTANTS,
    share=st.floats(0, 1, exclude_max=True),
)
def test_until_it_comes_what_comes_next_stays_the_same(zone: str, line: str, now_s: int, share: float) -> None:
    """Whoever looks later, from another day or another part of it, finds neither an earlier nor a later one."""
    cron, tz = parse_cron(line), ZoneInfo(zone)
    coming = next_occurrence_s(cron, tz, now_s)
    assert coming is not None
    assert next_occurrence_s(cron, tz, now_s + int(share * (coming - now_s))) == coming
    following = next_occurrence_s(cron, tz, coming)
    assert following is not None
    assert following > coming


def test_a_leap_day_is_found_years_ahead() -> None:
    leap = recurring_period("0 0 29 2 *", "0 12 29 2 *")
    assert window_state_at(leap, unix_seconds_at("2024-02-29T06:00")).due_s == unix_seconds_at("2024-02-29T12:00")
    assert window_state_at(leap, unix_seconds_at("2024-02-29T12:00")).due_s == unix_seconds_at("2028-02-29")
    assert (
        window_state_at(leap, unix_seconds_at("2096-03-01")).due_s is None
    )  # 2100 is no leap year: not within five years.


@given(zone=ZONES, start=st.integers(0, 23), minutes=st.integers(1, 1_439), now_s=INSTANTS, days=st.integers(0, 400))
def test_whoever_was_away_finds_what_whoever_watched_has(
    zone: str, start: int, minutes: int, now_s: int, days: int
) -> None:
    """Following every due instant for a while, or looking once at the end: the same is open."""
    end = (60 * start + minutes) % 1_440
    when = recurring_period(f"0 {start} * * *", f"{end % 60} {end // 60} * * *", ZoneInfo(zone))
    end_s = now_s + (days % 7) * 86_400 + 12_345
    watched = window_state_at(when, now_s)
    while watched.due_s is not None and watched.due_s <= end_s:
        before, due_s = watched.is_open, watched.due_s
        assert window_state_at(when, due_s - 1).is_open == before
        watched = window_state_at(when, due_s)
    assert window_state_at(when, end_s).is_open == watched.is_open


def _clock_changes() -> list[tuple[ZoneInfo, int]]:
    """When the clocks of each zone change in ten years, to the half hour."""
    found = []
    for zone in ZONE_NAMES:
        tz = ZoneInfo(zone)
        offsets = [(at_s, datetime.fromtimestamp(at_s, tz).utcoffset()) for at_s in range(*YEARS, 86_400)]
        for (before_s, offset), (_, other) in pairwise(offsets):
            if offset != other:
                halves = range(before_s, before_s + 86_400, 1_800)
                found.append(
                    (tz, next(at_s for at_s in halves if datetime.fromtimestamp(at_s, tz).utcoffset() != offset))
                )
    return found


@given(
    change=st.sampled_from(_clock_changes()),
    start=st.integers(-100, 100),
    minutes=st.integers(1, 130) | st.integers(1, 1_439),
    days=st.sampled_from([1, 7]),
    seconds=st.integers(-8 * 86_400, 2 * 86_400),
)
def test_near_a_change_of_the_clocks_a_window_is_open_from_its_start_to_its_end(
    change: tuple[ZoneInfo, int], start: int, minutes: int, days: int, seconds: int
) -> None:
    """It is open if the last of all its starts and ends was a start. Their order: by instant, then by local time."""
    zone, change_s = change
    first = datetime.fromtimestamp(change_s - 60, zone).replace(tzinfo=None, fold=0) + timedelta(minutes=start)
    last = first + timedelta(minutes=minutes)
    week = [f"{one.isoweekday() % 7}" if days == 7 else "*" for one in (first, last)]
    when = recurring_period(
        *(f"{one.minute} {one.hour} * * {day}" for one, day in zip((first, last), week, strict=True)), zone=zone
    )
    shifts = [timedelta(days=days * number) for number in range(-10, 5)]
    events = sorted(
        (unix_time_s(one + shift, zone), one + shift, one == first) for one in (first, last) for shift in shifts
    )
    now_s = change_s + seconds
    *_, (_, _, is_open) = (event for event in events if event[0] <= now_s)
    share = HeadroomShare("idle", 100, when)
    assert window_state_at(when, now_s).is_open == is_open
    assert headroom_replicas([share], {"idle": 7}, now_s) == (7 if is_open else 0)


def test_bounds_say_when_they_may_change() -> None:
    windows = [
        Window("day", DAY, FLOOR, 9),
        Window("once", SinglePeriod(unix_seconds_at("2026-11-20T12:00"), unix_seconds_at("2026-11-21")), CEILING, 4),
    ]
    now_s = unix_seconds_at("2026-11-20T09:00")
    assert apply_open_windows(windows, 1, 1, now_s) == CalendarBound(9, ("day",), unix_seconds_at("2026-11-20T12:00"))


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        pytest.param([HeadroomShare("idle", 80)], 12, id="a share of what there is"),
        pytest.param([HeadroomShare("idle", 80), HeadroomShare("idle", 50)], 12, id="the largest of a class"),
        pytest.param([HeadroomShare("idle", 80), HeadroomShare("cloud", 10)], 13, id="classes add up"),
        pytest.param([HeadroomShare("colocated", 100)], 0, id="a class that has none"),
        pytest.param([HeadroomShare("idle", 80, DAY)], 12, id="while it is open"),
        pytest.param([HeadroomShare("idle", 80, NIGHT)], 0, id="not while it is closed"),
    ],
)
def test_work_follows_what_is_idle(shares: list[HeadroomShare], expected: int) -> None:
    idle = {"idle": 15, "cloud": 10}
    now_s = unix_seconds_at("2026-11-20T09:00")
    assert headroom_replicas(shares, idle, now_s) == expected
    due = headroom_due_s(shares, now_s)
    assert (due is None) == all(share.times is None for share in shares)
