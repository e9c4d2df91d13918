"""What the log says of a target in the end, whoever else writes, and whatever becomes of our own writes."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import looptime
import pytest
from hypothesis import given
from hypothesis import strategies as st

from propagator.core.desired import DesiredState, PartTarget
from propagator.log.reporter import Reporter
from propagator.settings import PropagatorSettings
from spillway.addresses import WORKLOAD_STATUS, Tombstone, status_address
from spillway.bus import Bus, BusUnavailable, Position, Traces
from spillway.dead_letters import outgoing_record
from spillway.events import STATE_ORPHANED, STATE_PRESENT, StatusDetails, WorkloadObserved
from spillway.model import Generation

OWN = PartTarget("own-1", "shop", "web")
OURS, THEIRS = 7, 6
GONE = Tombstone(status_address("shop", "web", "own-1"))
KEY = GONE.address.key
SETTINGS = PropagatorSettings()

Said = WorkloadObserved | Tombstone

BEFORE, BEHIND = "before ours", "behind ours, before it is acknowledged"
LOST, UNKNOWN = "not written", "written, and nobody learns it"


def shown_status(ready: int, state: str = STATE_PRESENT) -> WorkloadObserved:
    return WorkloadObserved("shop", "web", "own-1", 0, 0, Generation(5, 1), state, "", 9, 9, 9, ready, ready)


class OneTarget:
    """One key of the log, who reads it at once, and a bus on which others come before us or behind us."""

    def __init__(self) -> None:
        self.desired = DesiredState()
        self.shown: WorkloadObserved | None = None
        self.log: list[Said] = []
        self.happens: dict[str, list[Said]] = {}
        self.fails: str = ""
        self.reporter = Reporter(
            cast(Bus, self),
            OURS,
            SETTINGS,
            lambda _: self.shown,
            self.desired.logged_status,
            lambda _: self.shown is None,
        )

    async def publish(self, *events: Said, traces: Traces | None = None) -> tuple[Position, ...]:
        for event in events:
            outgoing_record(event)
        failure, self.fails = self.fails, ""
        self.append_records(self.happens.pop(BEFORE, ()))
        places = [Position("", 0, len(self.log) + index) for index in range(len(events))]
        if failure != LOST:
            self.append_records(events)
        self.append_records(self.happens.pop(BEHIND, ()))
        await asyncio.sleep(0)
        if failure:
            raise BusUnavailable(failure)
        return tuple(places)

    def append_records(self, said: Sequence[Said]) -> None:
        """As Propagator reads it."""
        for one in said:
            offset = len(self.log)
            self.log.append(one)
            self.desired.apply_record(WORKLOAD_STATUS.name, KEY, None if isinstance(one, Tombstone) else one)
            if isinstance(one, Tombstone) or one.epoch < OURS:
                self.reporter.republish_status(OWN, offset)

    async def show_status(self, shown: WorkloadObserved | None) -> None:
        self.shown = shown
        self.reporter.queue_status(OWN)
        await self.reporter.flush()

    @property
    def last_record(self) -> Said | None:
        """What stands there in the end, without its number."""
        last = self.log[-1] if self.log else None
        return replace(last, sequence=0) if isinstance(last, WorkloadObserved) else last


def status_of_our_epoch(said: WorkloadObserved) -> WorkloadObserved:
    return replace(said, epoch=OURS)


@pytest.mark.looptime
@pytest.mark.parametrize("theirs", [replace(shown_status(1), epoch=THEIRS), GONE], ids=["status", "tombstone"])
async def test_what_comes_behind_ours_while_it_is_on_its_way_is_contradicted(theirs: Said) -> None:
    one = OneTarget()
    one.happens = {BEHIND: [theirs]}
    await one.show_status(shown_status(3))
    assert one.last_record == status_of_our_epoch(shown_status(3))
    assert len(one.log) == 3


@pytest.mark.looptime
@pytest.mark.parametrize("theirs", [replace(shown_status(1), epoch=THEIRS), GONE], ids=["status", "tombstone"])
async def test_what_comes_before_ours_needs_no_answer(theirs: Said) -> None:
    one = OneTarget()
    one.happens = {BEFORE: [theirs]}
    await one.show_status(shown_status(3))
    assert one.last_record == status_of_our_epoch(shown_status(3))
    assert len(one.log) == 2


@pytest.mark.looptime
async def test_words_that_no_record_can_hold_are_left_out_and_said_once() -> None:
    one, long = OneTarget(), replace(shown_status(3), message="x" * (3 * 1024 * 1024))
    await one.show_status(long)
    await one.show_status(long)
    assert len(one.log) == 1
    told = cast(WorkloadObserved, one.last_record).message
    assert one.last_record == replace(status_of_our_epoch(shown_status(3)), message=told, details=StatusDetails())
    assert "3145" in told
    await one.show_status(shown_status(3))
    assert one.last_record == status_of_our_epoch(shown_status(3))


@pytest.mark.looptime
async def test_what_no_record_can_hold_at_all_is_not_said_until_it_shows_something_else() -> None:
    one = OneTarget()
    await one.show_status(shown_status(2**64))
    assert one.log == []
    await one.show_status(shown_status(3))
    assert one.last_record == status_of_our_epoch(shown_status(3))


@pytest.mark.looptime
async def test_what_was_written_and_nobody_learnt_of_is_taken_back_by_what_is_shown_now() -> None:
    """It shows again what was said before that: without a word the log would keep the one in between."""
    one = OneTarget()
    await one.show_status(shown_status(3))
    one.fails, one.shown = UNKNOWN, shown_status(2)
    one.reporter.queue_status(OWN)
    flushing = asyncio.create_task(one.reporter.flush())
    await asyncio.sleep(0.5)
    one.shown = shown_status(3)
    await flushing
    assert one.last_record == status_of_our_epoch(shown_status(3))


SHOWN = st.sampled_from([None, shown_status(1), shown_status(2), shown_status(1, STATE_ORPHANED)])
OLD = [replace(shown_status(ready), epoch=THEIRS) for ready in (1, 2)]
FOREIGN = st.lists(st.sampled_from([*OLD, GONE]), max_size=2)
STEPS = st.lists(
    st.tuples(SHOWN, FOREIGN, FOREIGN, FOREIGN, st.sampled_from(["", "", LOST, UNKNOWN])), min_size=1, max_size=6
)


@given(STEPS)
def test_the_log_says_in_the_end_what_is_shown(
    steps: list[tuple[WorkloadObserved | None, list[Said], list[Said], list[Said], str]],
) -> None:
    async def run_steps() -> None:
        one = OneTarget()
        for shown, first, before, behind, fails in steps:
            one.append_records(first)
            one.happens, one.fails = {BEFORE: before, BEHIND: behind}, fails
            await one.show_status(shown)
            if shown is not None:
                assert one.last_record == status_of_our_epoch(shown), one.log

    with asyncio.Runner(loop_factory=looptime.new_event_loop) as runner:
        runner.run(run_steps())
