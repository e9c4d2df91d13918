"""Cron lines: what cannot be understood, and that no time is invented or left out."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpa.core.cron import CronSchedule, InvalidCron, next_match_s, parse_cron, parse_zone


@pytest.mark.parametrize(
    ("line", "said"),
    [
        pytest.param("* * * *", "expected five fields", id="too few fields"),
        pytest.param("60 * * * *", "expected 0 to 59", id="out of range"),
        pytest.param("0 0 * * 7", "expected 0 to 6", id="Sunday is 0"),
        pytest.param("5-1 * * * *", "in rising order", id="a range that falls"),
        pytest.param("*/0 * * * *", "steps of at least 1", id="no step"),
        pytest.param("0," * 100 + "0 * * * *", "209 characters: expected at most 200", id="too long"),
        pytest.param("0 0 L * *", "expected a number", id="last day"),
    ],
)
def test_a_cron_that_cannot_be_understood(line: str, said: str) -> None:
    with pytest.raises(InvalidCron, match=said):
        parse_cron(line)


def test_a_cron_that_never_comes_has_no_next() -> None:
    assert next_match_s(parse_cron("0 0 31 2 *"), parse_zone("UTC"), 0) is None


FIELDS = st.tuples(
    st.sampled_from(["*", "0", "30", "*/15", "7,37"]),
    st.sampled_from(["*", "0", "2", "3", "*/6", "22-23"]),
    st.sampled_from(["*", "1", "29", "*/10"]),
    st.sampled_from(["*", "3", "10", "Oct"]),
    st.sampled_from(["*", "0", "Mon-Fri"]),
).map(" ".join)
ZONES = st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Sao_Paulo"])
INSTANTS = st.integers(1_500_000_000, 1_800_000_000)


def matches_cron_schedule(cron: CronSchedule, local: datetime) -> bool:
    return (
        local.minute in cron.minutes.values
        and local.hour in cron.hours.values
        and local.month in cron.months.values
        and cron.matches_day(local)
    )


@given(line=FIELDS, zone=ZONES, now_s=INSTANTS)
def test_the_next_time_is_one_that_the_line_means_and_none_is_left_out(line: str, zone: str, now_s: int) -> None:
    """It matches, lies ahead, and no minute of the next two days before it matches in a clock that only runs on."""
    cron, tz = parse_cron(line), ZoneInfo(zone)
    found = next_match_s(cron, tz, now_s)
    assert found is None or found > now_s
    local = None if found is None else datetime.fromtimestamp(found, tz)
    if local is not None:
        assert local.minute in cron.minutes.values
        assert local.month in cron.months.values
        assert local.second == 0
    horizon = now_s + 2 * 86_400 if found is None else min(found, now_s + 2 * 86_400)
    if datetime.fromtimestamp(now_s, tz).utcoffset() != datetime.fromtimestamp(horizon, tz).utcoffset():
        return
    for minute in range(now_s // 60 + 1, horizon // 60):
        assert not matches_cron_schedule(cron, datetime.fromtimestamp(minute * 60, tz))
