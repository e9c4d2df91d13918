"""The lanes ask as a careful client does: what they do wrong would be counted as the platform's loss."""

import itertools
import time
from random import Random
from typing import Any

import pytest

from spillway.api import RequestError
from spillway.api_scaling import ReportAnswer, ReportReply, ReportRequest
from spillway_chaos import load
from spillway_chaos.ledger import Ledger

KEPT_MS = 120_000
"""How old hpa lets a report be: `load_age_max_ms`."""


class _Outage:
    """An hpa that cannot be reached at first, and then refuses what is from before that."""

    def __init__(self) -> None:
        self.asked: list[ReportRequest] = []

    async def report(self, request: ReportRequest) -> ReportReply:
        self.asked.append(request)
        if len(self.asked) == 1:
            raise RequestError("UNAVAILABLE", "no hpa")
        (one,) = request.loads
        code = "OK" if one.at_ms > KEPT_MS else "INVALID_ARGUMENT"
        return ReportReply((ReportAnswer(code),), ())


async def test_a_report_after_an_outage_says_the_time_of_its_own_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was counted as lost when the outage was longer than a report may be old."""
    now_ms = itertools.count(KEPT_MS, KEPT_MS)
    monkeypatch.setattr(time, "time_ns", lambda: next(now_ms) * 1_000_000)
    monkeypatch.setattr(load, "_AGAIN_SECONDS", 0.0)
    scaling: Any = _Outage()
    ledger = Ledger()
    lanes = load.Load(scaling, scaling, ledger, "1", "story")
    await lanes._report_load("web", Random(1))
    assert len(scaling.asked) == 2
    assert ledger.take_refusals() == []
