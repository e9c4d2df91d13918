"""Kubernetes' times and durations, as milliseconds."""

import pytest

from spillway.kubernetes.pod_metrics import duration_ms, unix_ms


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:00:01Z", 1_000),
        ("2026-01-01T00:00:00Z", 1_767_225_600_000),
        ("2026-01-01T00:00:00.123456Z", 1_767_225_600_123),
        ("2026-01-01T01:00:00+01:00", 1_767_225_600_000),
        ("2026-01-01T00:00:00", 0),
        ("yesterday", 0),
        ("2026-01-01T00:00:00" + "0" * 1_000 + "Z", 0),
        ("", 0),
        (None, 0),
    ],
)
def test_times(text: str | None, expected: int) -> None:
    assert unix_ms(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("15s", 15_000),
        ("15.034s", 15_034),
        ("1m0s", 60_000),
        ("1h2m3.5s", 3_723_500),
        ("500ms", 500),
        ("0s", 0),
        ("", 0),
        ("15", 0),
        ("15s more", 0),
        ("-15s", 0),
        ("9" * 400 + "h", 0),
        ("9" * 40 + "h", 2**63 - 1),
        ("1s" * 1_000, 0),
    ],
)
def test_durations(text: str, expected: int) -> None:
    assert duration_ms(text) == expected
