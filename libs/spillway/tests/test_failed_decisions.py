"""An error in a decision that nobody asked for: its subject is left alone for a while, and no other one notices."""

from typing import NoReturn

import pytest

from spillway import metrics
from spillway.bus import NoLog
from spillway.running.failed_decisions import FailedDecisions

WEB, SHOP = ("default", "web"), ("default", "shop")


def decide_well() -> str:
    return "placed"


def raise_unexpected_error() -> NoReturn:
    next(iter(()))
    raise AssertionError


def test_it_is_counted_paused_and_tried_again() -> None:
    now = 100.0
    failed, before = FailedDecisions[object](lambda: now, 60.0), metrics.DECISIONS_FAILED._value.get()
    assert failed.decide_unless_paused(WEB, decide_well) == "placed"
    assert failed.decide_unless_paused(WEB, raise_unexpected_error) is None
    assert failed.decide_unless_paused(WEB, decide_well) is None, "it is not asked within its pause"
    assert failed.decide_unless_paused(SHOP, decide_well) == "placed"
    now += 59.0
    assert (failed.take_ended_pauses(), failed.decide_unless_paused(WEB, raise_unexpected_error)) == ([], None)
    assert metrics.DECISIONS_FAILED._value.get() == before + 1
    now += 1.0
    assert (failed.take_ended_pauses(), failed.take_ended_pauses()) == ([WEB], [])
    assert failed.decide_unless_paused(WEB, decide_well) == "placed"


def test_an_error_that_says_that_nothing_more_can_be_done_here_is_raised() -> None:
    def without_a_log() -> NoReturn:
        raise NoLog("gone")

    failed = FailedDecisions[object](lambda: 0.0, 60.0)
    with pytest.raises(NoLog):
        failed.decide_unless_paused("headroom", without_a_log)
    assert failed.decide_unless_paused("headroom", decide_well) == "placed"
