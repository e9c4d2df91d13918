"""A bug in a decision that nobody asked for: its workload is left alone for a while, and no other one notices."""

from dataclasses import dataclass
from typing import NoReturn

from planner.failed_decisions import FailedDecisions
from spillway import metrics
from spillway.events import ClusterLeft

WEB, SHOP = ("default", "web"), ("default", "shop")
EVENTS = (ClusterLeft("own-1"),)


@dataclass
class Step:
    events: tuple[ClusterLeft, ...] = EVENTS


def broken() -> NoReturn:
    next(iter(()))
    raise AssertionError


def test_it_is_counted_paused_and_tried_again() -> None:
    now = 100.0
    failed, before = FailedDecisions(lambda: now, 60.0), metrics.DECISIONS_FAILED._value.get()
    assert failed.events_of(WEB, Step) == EVENTS
    assert failed.events_of(WEB, broken) == ()
    assert failed.events_of(WEB, Step) == (), "it is not asked within its pause"
    assert failed.events_of(SHOP, Step) == EVENTS
    now += 59.0
    assert (failed.ended(), failed.events_of(WEB, broken)) == ([], ())
    assert metrics.DECISIONS_FAILED._value.get() == before + 1
    now += 1.0
    assert (failed.ended(), failed.ended()) == ([WEB], [])
    assert failed.events_of(WEB, Step) == EVENTS
