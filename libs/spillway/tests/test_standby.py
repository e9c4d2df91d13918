"""Whoever has the turn decides; nothing is answered or read as decided that is not in the log; the rest is rebuilt."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import REGISTRY

from spillway import metrics
from spillway.addresses import BRAKES, CLUSTERS, PLACEMENTS, TURNS_PLANNER
from spillway.api import RequestError
from spillway.bus import Offsets, OffsetsWentBack, Record, RecordBatch
from spillway.dead_letters import RECORD_BYTES_MAX
from spillway.events import BrakeSet, ClusterLeft, PlacementDecided
from spillway.local_bus import LocalBroker, LocalBus
from spillway.model import Generation
from spillway.running.following import FollowedTopics, Follower
from spillway.running.request_queue import SPARE_BYTES, Decide, Decisions, NotYet, RequestQueue, Written
from spillway.running.standby import Standby, StandbyRole, StandbySettings, WriterTurn
from spillway.running.unproven_answers import UnprovenAnswers

pytestmark = pytest.mark.looptime

FLEET = "f-1"
TICK = 0.1
LAG = 4.0
"""Seconds after which somebody reads what is written, where a test says so."""


BOUNDS = StandbySettings(requests_waiting_max=3, requests_in_group_max=2, group_seconds=inf, batch_seconds=inf)


class Brakes:
    """The smallest service: a state is the scopes that are frozen, a request freezes one."""

    def __init__(
        self,
        broker: LocalBroker,
        name: str,
        *beside_turn: Callable[[], Any],
        lag_seconds: float = 0.0,
        bounds: StandbySettings = BOUNDS,
    ) -> None:
        self.bus = LocalBus(broker, FLEET, name)
        self.bus.lag_seconds = lambda topic, partition: lag_seconds
        self.scopes: list[str] = []
        self.left: list[str] = []
        self.steps: list[list[str]] = []
        self.told: list[tuple[bool, str]] = []
        self._being_read: list[str] = []
        self._writing = False
        role = StandbyRole("planner", "ask again", metrics.PLANNER_ACTIVE, beside_turn=beside_turn)
        self.standby = Standby(self.bus, role, f"{name}@{name}", bounds, self)
        self.standby.ready = lambda ready, reason: self.told.append((ready, reason))
        self.stopping = asyncio.Event()
        self.task = asyncio.create_task(self.standby.run(self.stopping))

    # ── As a service's log ──

    def start_offsets(self, ends: Offsets) -> Offsets:
        return {}

    def apply_record(self, record: Record, live: bool) -> None:
        if isinstance(record.event, BrakeSet) and not self._writing:
            self._being_read.append(record.event.scope)
        if isinstance(record.event, ClusterLeft):
            self.left.append(record.event.cluster)

    async def end_batch(self, batch: RecordBatch, positions: Offsets) -> None:
        pass

    # ── As a service ──

    def begin_life(self) -> Follower:
        self._being_read, self._writing = [], False
        return Follower(self.bus, FollowedTopics("planner", (BRAKES, PLACEMENTS, TURNS_PLANNER), (CLUSTERS,), ()), self)

    def use_new_state(self) -> None:
        self.scopes = self._being_read

    async def take_turn(self, turn: WriterTurn) -> None:
        self._writing = True

    def pause_seconds(self) -> float:
        return TICK

    def decide_step(self, turn: WriterTurn) -> Decisions:
        decided = self.standby.requests.decide_next_group(turn.next_generation)
        if decided.answers:
            self.steps.append([reply for _, reply in decided.answers])
        return decided

    def note_written_events(self, events: Sequence[Written]) -> None:
        pass

    def step_down(self) -> None:
        pass

    # ── What tests ask ──

    def deciding_to_freeze(self, scope: str) -> Decide[str]:
        def decide(generation: Generation) -> tuple[list[Written], str]:
            self.scopes.append(scope)
            return [BrakeSet(scope, "", str(generation.sequence), 0)], scope

        return decide

    async def freeze_scope(self, scope: str) -> str:
        return await self.standby.ask_for_decision(self.deciding_to_freeze(scope))

    async def freeze_scope_again(self, scope: str) -> str:
        """Changes nothing: the answer is that it is frozen. Raises RequestError NOT_FOUND where it is not."""

        def decide(generation: Generation) -> tuple[list[Written], str]:
            if scope not in self.scopes:
                raise RequestError("NOT_FOUND", f"{scope} is not frozen")
            return [], scope

        return await self.standby.ask_for_decision(decide)

    async def place_workload(self, name: str) -> str:
        """Writes something that bears the generation of its decision."""
        return await self.standby.ask_for_decision(lambda generation: ([placement_event(name, generation)], name))

    async def read_frozen_scopes(self) -> tuple[list[str], bool]:
        """What is frozen, and whether the active one says so."""
        await self.standby.wait_until_readable()
        return list(self.scopes), self.standby.is_active

    async def stop(self) -> None:
        self.stopping.set()
        await self.task


def placement_event(name: str, generation: Generation) -> PlacementDecided:
    return PlacementDecided("default", name, generation, 1, (), 0, "")


@dataclass(slots=True)
class Fleet:
    broker: LocalBroker
    running: list[Brakes] = field(default_factory=list)

    @property
    def bus_of_another_writer(self) -> LocalBus:
        """Whoever else writes to this log."""
        return LocalBus(self.broker, FLEET, "other")

    def start_instance(
        self, name: str, *beside_turn: Callable[[], Any], lag_seconds: float = 0.0, bounds: StandbySettings = BOUNDS
    ) -> Brakes:
        self.running.append(Brakes(self.broker, name, *beside_turn, lag_seconds=lag_seconds, bounds=bounds))
        return self.running[-1]

    async def start_active_instance(
        self, name: str, *beside_turn: Callable[[], Any], bounds: StandbySettings = BOUNDS
    ) -> Brakes:
        one = self.start_instance(name, *beside_turn, bounds=bounds)
        await wait_until(lambda: one.standby.is_active)
        return one

    async def overtake_instance(self, one: Brakes) -> tuple[Brakes, Callable[[], None]]:
        """one is cut off from the log, and its successor has frozen z. Returns the successor, and what lets one hear
        that its session is over."""
        second = self.start_instance("b")
        await wait_until(lambda: second.told and second.told[-1] == (True, ""))
        one.bus.unavailable = True
        hear = self.broker.end_sessions_unnoticed(one.bus)
        await wait_until(lambda: second.standby.is_active)
        await second.freeze_scope("z")
        return second, hear


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    made = Fleet(LocalBroker())
    yield made
    for one in made.running:
        if not one.task.done():
            await one.stop()


async def wait_until(holds: Callable[[], object], seconds: float = 30.0) -> None:
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(TICK)


async def refusal_of(asked: Any) -> RequestError:
    with pytest.raises(RequestError) as refused:
        await asked
    return refused.value


# ── Turns ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_standby_reads_refuses_and_goes_on_where_the_one_before_was(fleet: Fleet) -> None:
    first = await fleet.start_active_instance("a")
    second = fleet.start_instance("b")
    assert await first.freeze_scope("x") == "x"
    await wait_until(lambda: second.scopes == ["x"])
    assert await second.read_frozen_scopes() == (["x"], False)
    refused = await refusal_of(second.freeze_scope("y"))
    assert (refused.code, str(refused)) == ("UNAVAILABLE", "this planner is a standby; the active one is at a")
    await first.stop()
    await wait_until(lambda: second.standby.is_active)
    assert await second.freeze_scope("y") == "y"
    assert await second.read_frozen_scopes() == (["x", "y"], True)
    assert second.standby.active_instance_address() == "b"


async def test_who_has_just_started_refuses_to_answer_and_says_why(fleet: Fleet) -> None:
    fleet.broker.form_log(FLEET)
    fleet.broker.unavailable = True
    one = fleet.start_instance("a")
    await asyncio.sleep(TICK)
    assert "still reads the log" in str(await refusal_of(one.read_frozen_scopes()))
    await wait_until(lambda: one.told.count((False, "reading the log")) == 2)  # The second life.
    fleet.broker.unavailable = False
    await wait_until(lambda: one.told[-1] == (True, ""))
    assert (await one.read_frozen_scopes())[0] == []


async def test_turns_are_counted_as_they_are_taken_and_as_they_end(fleet: Fleet) -> None:
    def turn_counts() -> list[float]:
        names = ("spillway_turns_taken_total", "spillway_turns_lost_total")
        return [REGISTRY.get_sample_value(name, {"service": "planner"}) or 0 for name in names]

    taken, lost = turn_counts()
    first = await fleet.start_active_instance("a")
    assert turn_counts() == [taken + 1, lost]
    await first.stop()
    assert turn_counts() == [taken + 1, lost + 1]


async def test_who_is_fenced_with_nothing_to_write_steps_down_and_reads_the_log_again(fleet: Fleet) -> None:
    one = await fleet.start_active_instance("a")
    other = LocalBus(fleet.broker, FLEET, "b")
    async with other.join_standby_group("planner", "b@b") as turn:
        hear = fleet.broker.end_sessions_unnoticed(one.bus)
        writer = await turn.wait_for_turn()
        await wait_until(lambda: not one.standby.is_active)  # By the log alone.
        await writer.write_events([BrakeSet("z", "", "", 0)])
        hear()
    await wait_until(lambda: one.standby.is_active)
    assert await one.read_frozen_scopes() == (["z"], True)


async def test_who_was_frozen_and_overtaken_answers_nobody_from_what_it_knew(fleet: Fleet) -> None:
    """The first that it hears when it wakes is a question: it looks into the log before it answers."""
    one = await fleet.start_active_instance("a")
    await one.freeze_scope("x")
    other = LocalBus(fleet.broker, FLEET, "b")
    async with other.join_standby_group("planner", "b@b") as turn:
        hear = fleet.broker.end_sessions_unnoticed(one.bus)
        writer = await turn.wait_for_turn()
        await writer.write_events([BrakeSet("z", "", "", 0)])
        one.standby._awake_at -= 10  # Its loop stood still.
        assert one.standby.is_active
        assert "still reads the log" in str(await refusal_of(one.read_frozen_scopes()))
        hear()
    await wait_until(lambda: not one.standby.is_active)
    await wait_until(lambda: one.standby.is_active)
    assert await one.read_frozen_scopes() == (["x", "z"], True)


async def test_between_the_end_of_a_turn_and_the_end_of_the_log_nothing_is_read(fleet: Fleet) -> None:
    """A state whose turn is over hears nothing of its successor's writes; the other instances are asked."""
    one = await fleet.start_active_instance("a")
    await one.freeze_scope("x")
    fleet.broker.end_sessions(one.bus)
    await wait_until(lambda: not one.standby.is_active)
    assert "still reads the log" in str(await refusal_of(one.read_frozen_scopes()))
    await wait_until(lambda: one.told[-1] == (True, ""))
    assert (await one.read_frozen_scopes())[0] == ["x"]


async def test_who_is_cut_off_with_nothing_to_write_answers_as_stale_until_the_log_is_heard_again(fleet: Fleet) -> None:
    """It hears neither of the turn of its successor nor of the end of its own."""
    one = await fleet.start_active_instance("a")
    await one.freeze_scope("x")
    await asyncio.sleep(60)
    assert await one.read_frozen_scopes() == (["x"], True)
    one.bus.unavailable = True
    await asyncio.sleep(BOUNDS.turn_proven_seconds + BOUNDS.turn_asked_seconds)
    assert await one.read_frozen_scopes() == (["x"], False)
    await asyncio.sleep(600)
    assert await one.read_frozen_scopes() == (["x"], False)
    one.bus.unavailable = False
    await asyncio.sleep(2 * BOUNDS.turn_asked_seconds)
    assert await one.read_frozen_scopes() == (["x"], True)
    assert await one.freeze_scope("y") == "y"


async def test_who_is_cut_off_and_overtaken_never_answers_as_active_beside_its_successor_for_longer(
    fleet: Fleet,
) -> None:
    one = await fleet.start_active_instance("a")
    second, hear = await fleet.overtake_instance(one)
    await asyncio.sleep(BOUNDS.turn_proven_seconds + BOUNDS.turn_asked_seconds)
    assert await one.read_frozen_scopes() == ([], False)
    assert await second.read_frozen_scopes() == (["z"], True)
    one.bus.unavailable = False
    hear()
    await wait_until(lambda: one.scopes == ["z"])
    assert await one.read_frozen_scopes() == (["z"], False)


# ── Answers that no write stands behind ─────────────────────────────────────────────────────────────────────────────


async def test_what_changes_nothing_and_what_is_refused_is_answered_without_waiting_for_the_next_proof(
    fleet: Fleet,
) -> None:
    one = await fleet.start_active_instance("a", bounds=replace(BOUNDS, turn_asked_seconds=3600.0))
    await one.freeze_scope("x")
    for _ in range(3):
        assert await one.freeze_scope_again("x") == "x"
        assert (await refusal_of(one.freeze_scope_again("y"))).code == "NOT_FOUND"


async def test_who_is_cut_off_answers_nothing_that_changes_nothing_and_refuses_nothing(fleet: Fleet) -> None:
    """Nothing to write, so no transaction fails; and its successor has decided otherwise."""
    one = await fleet.start_active_instance("a")
    await one.freeze_scope("x")
    _, hear = await fleet.overtake_instance(one)
    refused = [await refusal_of(one.freeze_scope_again(scope)) for scope in ("x", "z")]
    assert [error.code for error in refused] == ["UNAVAILABLE", "UNAVAILABLE"]
    asked = [asyncio.create_task(one.freeze_scope_again(scope)) for scope in ("x", "z")]
    await asyncio.sleep(2 * TICK)
    one.bus.unavailable = False  # Now it is asked, and hears of its successor.
    assert [(await refusal_of(one)).code for one in asked] == ["UNAVAILABLE", "UNAVAILABLE"]
    hear()


async def test_who_is_cut_off_for_a_moment_answers_once_the_log_has_said_that_it_still_is_its_turn(
    fleet: Fleet,
) -> None:
    one = await fleet.start_active_instance("a")
    await one.freeze_scope("x")
    one.bus.unavailable = True
    asked = [asyncio.create_task(one.freeze_scope_again("x")) for _ in range(2)]
    refused = asyncio.create_task(one.freeze_scope_again("y"))
    await asyncio.sleep(BOUNDS.request_seconds / 2)
    assert not any(task.done() for task in (*asked, refused))
    one.bus.unavailable = False
    assert await asyncio.gather(*asked) == ["x", "x"]
    assert (await refusal_of(refused)).code == "NOT_FOUND"


async def test_who_waits_for_a_proof_when_the_turn_ends_is_told_to_ask_again(fleet: Fleet) -> None:
    one = await fleet.start_active_instance("a")
    await one.freeze_scope("x")
    one.bus.unavailable = True
    asked = asyncio.create_task(one.freeze_scope_again("x"))
    await asyncio.sleep(2 * TICK)
    one.stopping.set()
    error = await refusal_of(asked)
    assert (error.code, str(error)) == ("UNAVAILABLE", "this planner gave up its turn; ask again")


async def test_no_more_answers_wait_for_a_proof_than_may(fleet: Fleet) -> None:
    one = await fleet.start_active_instance("a", bounds=replace(BOUNDS, answers_unproven_max=2))
    await one.freeze_scope("x")
    one.bus.unavailable = True
    asked = [asyncio.create_task(one.freeze_scope_again(scope)) for scope in "xy"]
    await asyncio.sleep(2 * TICK)
    error = await refusal_of(one.freeze_scope_again("x"))
    assert error.code == "UNAVAILABLE"
    assert str(error) == "2 answers already wait for the log to confirm this turn; ask again"
    asked[0].cancel()  # Whoever went away makes room.
    await asyncio.sleep(0)
    asked.append(asyncio.create_task(one.freeze_scope_again("x")))
    await asyncio.sleep(2 * TICK)
    one.bus.unavailable = False
    assert await asked[2] == "x"
    assert (await refusal_of(asked[1])).code == "NOT_FOUND"


async def test_a_proof_that_was_asked_for_before_a_decision_says_nothing_of_it() -> None:
    unproven, queue = UnprovenAnswers(10, "ask again"), RequestQueue(BOUNDS, "ask again")
    asked = [queue.put_request(lambda generation: ([], "x"), "sample") for _ in range(3)]
    unproven.keep_answers(queue.decide_next_group(lambda: Generation(1, 1)))  # Two at a time.
    assert unproven.wanted.is_set()
    unproven.note_proof_asked()
    unproven.keep_answers(queue.decide_next_group(lambda: Generation(1, 2)))
    unproven.send_proven_answers()
    assert [waiting.answer.done() for waiting in asked] == [True, True, False]
    assert unproven.wanted.is_set()
    unproven.note_proof_asked()  # This one is not answered by the log, and the next one is.
    unproven.note_proof_asked()
    unproven.send_proven_answers()
    assert [waiting.answer.done() for waiting in asked] == [True, True, True]
    assert not unproven.wanted.is_set()


# ── Starts ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_start_is_not_read_before_it_has_read_the_log(fleet: Fleet) -> None:
    first = await fleet.start_active_instance("a")
    await first.freeze_scope("x")
    second = fleet.start_instance("b", lag_seconds=LAG)
    for _ in range(int(LAG / TICK) - 2):
        await asyncio.sleep(TICK)
        assert "still reads the log" in str(await refusal_of(second.read_frozen_scopes()))
        assert second.told == [(False, "reading the log")]
    await wait_until(lambda: second.told[-1] == (True, ""))
    assert await second.read_frozen_scopes() == (["x"], False)


async def test_who_takes_a_turn_has_read_all_that_stood_in_the_log_before_it(fleet: Fleet) -> None:
    """What the one before wrote last is there already, and is read seconds later: until then nothing is decided."""
    first = await fleet.start_active_instance("a")
    second = fleet.start_instance("b", lag_seconds=LAG)
    await wait_until(lambda: second.told and second.told[-1] == (True, ""))
    await first.freeze_scope("x")
    await first.stop()
    await wait_until(lambda: second.standby.is_active)
    assert second.scopes == ["x"]
    assert await second.freeze_scope("y") == "y"


async def test_who_takes_a_turn_has_read_what_it_follows_from_the_end_alone_as_well(fleet: Fleet) -> None:
    first = await fleet.start_active_instance("a")
    second = fleet.start_instance("b")
    second.bus.lag_seconds = lambda topic, partition: LAG if topic == CLUSTERS.name else 0
    await wait_until(lambda: second.told and second.told[-1] == (True, ""))
    await fleet.bus_of_another_writer.publish(ClusterLeft("own-1"))
    await first.stop()
    await wait_until(lambda: second.standby.is_active)
    assert second.left == ["own-1"]


# ── Offsets ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def take_turns(fleet: Fleet, *names: str) -> None:
    """One turn after the other, each with a decision of its own in the log."""
    for name in names:
        one = await fleet.start_active_instance(name)
        await one.place_workload(name)
        await one.stop()


async def test_where_offsets_went_back_nobody_takes_a_turn(fleet: Fleet) -> None:
    """The topic of turns was made anew: what is in the log bears epochs that it will have again."""
    await take_turns(fleet, "a", "b", "c")
    fleet.broker.recreate_topic(TURNS_PLANNER)
    late = fleet.start_instance("d")
    with pytest.RaisesGroup(pytest.RaisesExc(OffsetsWentBack, match="records of planner bear epoch 4")):
        await late.task
    assert fleet.broker.end_offsets([TURNS_PLANNER]) == {(TURNS_PLANNER.name, 0): 0}
    assert late.told == [(False, "reading the log")]


async def test_a_standby_that_gets_its_turn_where_offsets_went_back_stops_as_well(fleet: Fleet) -> None:
    """It had begun before anything of a turn that the topic has lost was written."""
    late = fleet.start_instance("d")
    other = LocalBus(fleet.broker, FLEET, "e")
    async with other.join_standby_group("planner", "e@e"):
        await wait_until(lambda: late.told and late.told[-1] == (True, ""))
        fleet.broker.end_sessions(late.bus)
        await fleet.bus_of_another_writer.publish(placement_event("lost", Generation(40, 1)))
        await asyncio.sleep(1)
    with pytest.RaisesGroup(pytest.RaisesExc(OffsetsWentBack, match="records of planner bear epoch 40")):
        await late.task
    assert not late.standby.is_active


async def test_a_turn_has_generations_of_its_own(fleet: Fleet) -> None:
    one = await fleet.start_active_instance("a")
    seen: list[Generation] = []

    def decide(generation: Generation) -> tuple[list[Written], None]:
        seen.append(generation)
        return [], None

    await one.standby.ask_for_decision(decide)
    await one.standby.ask_for_decision(decide)
    fleet.broker.end_sessions(one.bus)
    await wait_until(lambda: not one.standby.is_active)
    await wait_until(lambda: one.standby.is_active)
    await one.standby.ask_for_decision(decide)
    first, second, third = seen
    assert (first.epoch, first.sequence, second.sequence, third.sequence) == (second.epoch, 1, 2, 1)
    assert third > second


# ── Writes ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("written", [False, True])
async def test_after_a_write_with_an_unknown_outcome_the_log_alone_says_what_it_was(
    fleet: Fleet, written: bool
) -> None:
    one = await fleet.start_active_instance("a")
    await one.freeze_scope("x")
    fleet.broker.fail_next_write(written=written)
    refused = await refusal_of(one.freeze_scope("y"))
    assert (refused.code, str(refused)) == ("UNAVAILABLE", "the outcome of the request is unknown: ask again")
    assert not one.standby.is_active
    await wait_until(lambda: one.standby.is_active)
    assert (await one.read_frozen_scopes())[0] == ["x", "y"][: 1 + written]


@pytest.mark.parametrize("written", [False, True])
async def test_of_one_request_all_events_are_in_the_log_or_none(fleet: Fleet, written: bool) -> None:
    """Whatever becomes of the write: half of what was asked for is nothing that anybody decided."""
    one = await fleet.start_active_instance("a")
    scopes = ["x", "y", "z"]

    def decide(generation: Generation) -> tuple[list[Written], str]:
        return [BrakeSet(scope, "", "", generation.sequence) for scope in scopes], ""

    fleet.broker.fail_next_write(written=written)
    await refusal_of(one.standby.ask_for_decision(decide))
    await wait_until(lambda: one.standby.is_active)
    assert (await one.read_frozen_scopes())[0] == (scopes if written else [])


async def test_a_refusal_goes_out_with_what_was_decided_before_it(fleet: Fleet) -> None:
    """Refused for what the same step promised to another, and that is not in the log yet, and then never."""
    one = await fleet.start_active_instance("a")

    def refuse_a_second(generation: Generation) -> tuple[list[Written], str]:
        if one.scopes:
            raise RequestError("RESOURCE_EXHAUSTED", f"one scope at most: {one.scopes}")
        return one.deciding_to_freeze("y")(generation)

    one.bus.unavailable = True
    first = asyncio.create_task(one.freeze_scope("x"))
    second = asyncio.create_task(one.standby.ask_for_decision(refuse_a_second))
    await asyncio.sleep(2 * TICK)
    assert one.scopes == ["x"]
    assert not second.done()
    assert [(await refusal_of(asked)).code for asked in (first, second)] == ["UNAVAILABLE", "UNAVAILABLE"]
    one.bus.unavailable = False
    await wait_until(lambda: one.standby.is_active)
    assert await one.standby.ask_for_decision(refuse_a_second) == "y"
    refused = await refusal_of(one.standby.ask_for_decision(refuse_a_second))
    assert (refused.code, str(refused)) == ("RESOURCE_EXHAUSTED", "one scope at most: ['y']")


async def test_who_reads_while_a_write_is_under_way_waits_and_is_told_when_it_failed(fleet: Fleet) -> None:
    one = await fleet.start_active_instance("a")
    one.bus.unavailable = True
    asked = asyncio.create_task(one.freeze_scope("x"))
    await asyncio.sleep(2 * TICK)
    reading = asyncio.create_task(one.read_frozen_scopes())
    await asyncio.sleep(2 * TICK)
    assert not reading.done()
    assert "still reads the log" in str(await refusal_of(reading))
    assert "outcome of the request is unknown" in str(await refusal_of(asked))
    one.bus.unavailable = False
    await wait_until(lambda: one.standby.is_active)
    assert await one.read_frozen_scopes() == ([], True)


async def test_a_stop_lets_the_write_under_way_end(fleet: Fleet) -> None:
    one = await fleet.start_active_instance("a")
    one.bus.unavailable = True
    asked = asyncio.create_task(one.freeze_scope("x"))
    await asyncio.sleep(2 * TICK)
    one.stopping.set()
    await asyncio.sleep(2 * TICK)
    assert not one.task.done()
    one.bus.unavailable = False
    assert await asked == "x"
    await one.task
    assert (await (await fleet.start_active_instance("b")).read_frozen_scopes())[0] == ["x"]


async def test_who_waits_when_the_turn_is_given_up_is_refused(fleet: Fleet) -> None:
    one = await fleet.start_active_instance("a")
    one.bus.unavailable = True
    first = asyncio.create_task(one.freeze_scope("x"))
    await asyncio.sleep(2 * TICK)
    second = asyncio.create_task(one.freeze_scope("y"))
    assert "outcome of the request is unknown" in str(await refusal_of(first))
    assert str(await refusal_of(second)) == "this planner gave up its turn; ask again"


# ── Errors ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_bad_request_is_refused_alone(fleet: Fleet) -> None:
    def bad(generation: Generation) -> tuple[list[Written], str]:
        raise RequestError("INVALID_ARGUMENT", "x: expected y")

    one = await fleet.start_active_instance("a")
    refused, kept = await asyncio.gather(refusal_of(one.standby.ask_for_decision(bad)), one.freeze_scope("x"))
    assert (str(refused), kept) == ("x: expected y", "x")


async def test_what_runs_beside_a_turn_ends_it_with_its_error(fleet: Fleet) -> None:
    async def beside() -> None:
        await asyncio.sleep(5)
        raise ZeroDivisionError

    one = await fleet.start_active_instance("a", beside)
    await one.freeze_scope("x")
    with pytest.RaisesGroup(ZeroDivisionError):
        await one.task
    assert not one.standby.is_active


async def test_what_runs_beside_the_service_ends_it_between_two_writes() -> None:
    failing = asyncio.Event()

    async def beside() -> None:
        await failing.wait()
        raise ZeroDivisionError

    one = Brakes(LocalBroker(), "a")
    one.task.cancel()
    running = asyncio.create_task(one.standby.run(one.stopping, beside))
    await wait_until(lambda: one.standby.is_active)
    asked = asyncio.create_task(one.freeze_scope("x"))
    await wait_until(lambda: one.steps)
    failing.set()
    with pytest.raises(ZeroDivisionError):
        await running
    assert await asked == "x"


async def test_what_runs_beside_the_service_and_returns_ends_it_with_an_error() -> None:
    """Else each life would end as it begins, and the process serve nobody for ever."""

    async def beside() -> None:
        await asyncio.sleep(5)

    one = Brakes(LocalBroker(), "a")
    one.task.cancel()
    with pytest.raises(RuntimeError, match=r"beside .* has returned: expected it to run until it is cancelled"):
        async with asyncio.timeout(60):
            await one.standby.run(one.stopping, beside)
    assert not one.standby.is_active


async def test_what_returns_as_the_service_is_to_stop_is_no_error() -> None:
    one = Brakes(LocalBroker(), "a")
    one.task.cancel()

    async def beside() -> None:
        await one.stopping.wait()

    running = asyncio.create_task(one.standby.run(one.stopping, beside))
    await wait_until(lambda: one.standby.is_active)
    one.stopping.set()
    await running


# ── The queue ───────────────────────────────────────────────────────────────────────────────────────────────────────


class Busy(Brakes):
    """Decides nothing in its next `left_to_do` steps, each of which leaves something for the step after it."""

    left_to_do = 0

    def decide_step(self, turn: WriterTurn) -> Decisions:
        if self.left_to_do:
            self.left_to_do -= 1
            self.standby.requests.asked.set()
        return Decisions()


async def test_between_steps_that_write_nothing_and_leave_something_to_decide_others_are_answered() -> None:
    made = Busy(LocalBroker(), "planner-1")
    answered = 0

    async def answer() -> None:
        nonlocal answered
        while made.left_to_do:
            answered += 1
            await asyncio.sleep(0)

    while not made.standby.is_active:
        await asyncio.sleep(TICK)
    made.left_to_do = 100
    made.standby.requests.asked.set()
    async with asyncio.timeout(10):
        await answer()
    await made.stop()
    assert answered > 90


async def test_a_group_is_bounded_and_a_batch_is_decided_whole(fleet: Fleet) -> None:
    one = await fleet.start_active_instance("a")
    requests, batch = one.standby.requests, object()
    asked = [
        requests.put_request(one.deciding_to_freeze(name), "freeze", batch if name in "bcd" else None)
        for name in ("a", "b", "c", "d", "e", "f")
    ]
    assert await asyncio.gather(*map(requests.wait_for_answer, asked)) == ["a", "b", "c", "d", "e", "f"]
    assert one.steps == [["a", "b", "c", "d"], ["e", "f"]]


async def test_more_requests_than_may_wait_are_refused(fleet: Fleet) -> None:
    one = await fleet.start_active_instance("a")
    asked = [asyncio.create_task(one.freeze_scope(name)) for name in "abcd"]
    refused = await refusal_of(asked.pop())
    assert (refused.code, str(refused)) == ("RESOURCE_EXHAUSTED", "3 requests wait already; ask again")
    assert await asyncio.gather(*asked) == ["a", "b", "c"]
    one.standby.check_may_ask(3)
    with pytest.raises(RequestError, match="0 requests wait already"):
        one.standby.check_may_ask(4)


async def test_what_is_put_off_is_decided_when_it_is_asked_again() -> None:
    queue, ready = RequestQueue(BOUNDS, "ask again"), False
    generations = iter(range(1, 10))

    def decide(generation: Generation) -> tuple[list[Written], int]:
        if not ready:
            raise NotYet(held_up="own-1")
        return [], generation.sequence

    def step() -> Decisions:
        return queue.decide_next_group(lambda: Generation(1, next(generations)))

    waiting = queue.put_request(decide, "sample")
    assert step().answers == []
    ready = True
    assert (step().answers, queue.held_up) == ([], ["own-1"])
    queue.requeue_due_requests()
    assert queue.held_up == []
    step().send_answers()
    assert await queue.wait_for_answer(waiting) == 2


async def test_what_is_put_off_until_something_is_so_is_not_asked_before_and_holds_nobody_up() -> None:
    queue, due, asked = RequestQueue(BOUNDS, "ask again"), False, list[int]()

    def decide(generation: Generation) -> tuple[list[Written], int]:
        asked.append(generation.sequence)
        if len(asked) == 1:
            raise NotYet(lambda: due)
        return [], generation.sequence

    def step() -> Decisions:
        return queue.decide_next_group(lambda: Generation(1, len(asked)))

    waiting = queue.put_request(decide, "sample")
    for _ in range(3):
        assert step().answers == []
        queue.requeue_due_requests()
        assert (queue.held_up, len(asked)) == ([], 1)
    due = True
    queue.requeue_due_requests()
    step().send_answers()
    assert await queue.wait_for_answer(waiting) == 1
    other = queue.put_request(lambda _generation: _put_off_for_ever(), "sample")
    step()
    queue.refuse_all("it ends")
    with pytest.raises(RequestError, match="it ends"):
        await queue.wait_for_answer(other)


def _put_off_for_ever() -> tuple[list[Written], int]:
    raise NotYet(lambda: False)


async def test_a_bug_in_a_decision_that_changes_nothing_by_itself_costs_its_request_alone() -> None:
    queue, state = RequestQueue(BOUNDS, "ask again"), list[Sequence[Written]]()

    def decide(scope: str) -> Decide[str]:
        return lambda generation: ([BrakeSet(scope, "", "", 0)], scope)

    def bug(generation: Generation) -> tuple[list[Written], str]:
        raise OverflowError("too large")

    waiting = [queue.put_request(one, "sample") for one in (decide("a"), bug, decide("b"))]
    for _ in range(2):  # Two at a time.
        queue.decide_next_group(lambda: Generation(1, 1), apply=state.append).send_answers()
    assert (await queue.wait_for_answer(waiting[0]), await queue.wait_for_answer(waiting[2])) == ("a", "b")
    error = await refusal_of(queue.wait_for_answer(waiting[1]))
    assert (error.code, "OverflowError: too large" in str(error)) == ("INTERNAL", True)
    assert [[event.scope for event in events if isinstance(event, BrakeSet)] for events in state] == [["a"], ["b"]]


async def test_who_asks_for_what_no_record_holds_is_told_so_with_the_answers_of_the_step() -> None:
    """Which wait for the log: the state that it was decided in may be out of date."""
    queue = RequestQueue(BOUNDS, "ask again")
    waiting = queue.put_request(lambda generation: ([BrakeSet("a", "", "", 2**70)], "a"), "freeze")
    decided = queue.decide_next_group(lambda: Generation(1, 1), apply=lambda events: None)
    assert (waiting.answer.done(), decided.events, decided.answer_count) == (False, [], 1)
    decided.send_answers()
    assert (await refusal_of(queue.wait_for_answer(waiting))).code == "INTERNAL"


async def test_a_bug_that_may_have_left_half_in_the_state_ends_the_turn_and_the_log_is_read_again(
    fleet: Fleet,
) -> None:
    one = await fleet.start_active_instance("one")
    assert await one.freeze_scope("a") == "a"

    def bug(generation: Generation) -> tuple[list[Written], str]:
        one.scopes.append("half")
        raise KeyError("x")

    before, after = (
        one.standby.requests.put_request(one.deciding_to_freeze("b"), "freeze"),
        one.standby.requests.put_request(bug, "freeze"),
    )
    assert (await refusal_of(one.standby.requests.wait_for_answer(after))).code == "INTERNAL"
    assert (await refusal_of(one.standby.requests.wait_for_answer(before))).code == "UNAVAILABLE"
    await wait_until(lambda: not one.standby.is_active)
    await wait_until(lambda: one.standby.is_active)
    assert await one.freeze_scope("c") == "c"
    assert await one.read_frozen_scopes() == (["a", "c"], True)


TOO_LARGE: dict[str, tuple[list[BrakeSet], tuple[str, ...]]] = {
    "too many bytes": (
        [BrakeSet("x", "r" * RECORD_BYTES_MAX, "", 0)],
        ("FAILED_PRECONDITION", "BrakeSet x: 2097", "bytes, 2097", "of them in reason: expected at most 20"),
    ),
    "what follows needs no more": (
        [BrakeSet("x", "r" * (RECORD_BYTES_MAX - SPARE_BYTES), "", 0)],
        ("FAILED_PRECONDITION", "in reason: expected at most 20"),
    ),
    "one of several": (
        [BrakeSet("x", "", "", 0), BrakeSet("y", "", "b" * RECORD_BYTES_MAX, 0)],
        ("FAILED_PRECONDITION", "BrakeSet y", "of them in by:"),
    ),
    "a number that no record has": ([BrakeSet("x", "", "", 2**70)], ("INTERNAL", "BrakeSet x")),
}


@pytest.mark.parametrize(("events", "words"), TOO_LARGE.values(), ids=TOO_LARGE)
async def test_what_no_record_can_hold_is_refused_by_itself_and_names_field_size_and_limit(
    events: list[BrakeSet], words: tuple[str, ...]
) -> None:
    queue, state = RequestQueue(BOUNDS, "ask again"), list[Sequence[Written]]()
    waiting = queue.put_request(lambda generation: (events, "x"), "sample")
    decided = queue.decide_next_group(lambda: Generation(1, 1), apply=state.append)
    decided.send_answers()
    error = await refusal_of(queue.wait_for_answer(waiting))
    assert error.code == words[0]
    assert [word for word in words[1:] if word not in str(error)] == []
    assert (state, decided.events, decided.answers) == ([], [], [])


@given(st.lists(st.sampled_from(("small", "no record", "too large")), min_size=1, max_size=12), st.integers(1, 5))
def test_whatever_a_group_is_of_each_request_gets_its_own_answer_and_the_rest_is_written(
    asked: list[str], in_group: int
) -> None:
    """One request never ends a turn for others: what it would write is looked at before it is in the group."""
    queue = RequestQueue(replace(BOUNDS, requests_in_group_max=in_group), "ask again")
    written, applied = list[str](), list[Sequence[Written]]()

    def deciding(index: int, what: str) -> Decide[int]:
        reason, at_ms = "r" * RECORD_BYTES_MAX if what == "too large" else "", 2**70 if what == "no record" else index
        return lambda generation: ([BrakeSet(str(index), "", "", index), BrakeSet("", reason, "", at_ms)], index)

    async def run() -> list[object]:
        waiting = [queue.put_request(deciding(index, what), "sample") for index, what in enumerate(asked)]
        while queue.asked.is_set():
            queue.asked.clear()
            decided = queue.decide_next_group(lambda: Generation(1, 1), apply=applied.append)
            written.extend(record.address.key for record in decided.records)
            decided.send_answers()
        return await asyncio.gather(*map(queue.wait_for_answer, waiting), return_exceptions=True)

    answers = asyncio.run(run())
    codes = {"too large": "FAILED_PRECONDITION", "no record": "INTERNAL"}
    assert [one.code if isinstance(one, RequestError) else one for one in answers] == [
        codes.get(what, index) for index, what in enumerate(asked)
    ]
    healthy = [str(index) for index, what in enumerate(asked) if what == "small"]
    assert [key for key in written if key] == healthy
    assert len(applied) == len(healthy)


async def test_where_deciding_has_changed_the_state_what_cannot_be_written_ends_the_turn(fleet: Fleet) -> None:
    one = await fleet.start_active_instance("one")

    def too_large(generation: Generation) -> tuple[list[Written], str]:
        one.scopes.append("x")
        return [BrakeSet("x", "", "", 2**70)], "x"

    before, after = (
        one.standby.requests.put_request(one.deciding_to_freeze("b"), "freeze"),
        one.standby.requests.put_request(too_large, "freeze"),
    )
    error = await refusal_of(one.standby.requests.wait_for_answer(after))
    assert (error.code, "BrakeSet" in str(error)) == ("INTERNAL", True)
    assert (await refusal_of(one.standby.requests.wait_for_answer(before))).code == "UNAVAILABLE"
    await wait_until(lambda: not one.standby.is_active)
    await wait_until(lambda: one.standby.is_active)
    assert await one.freeze_scope("c") == "c"
    assert await one.read_frozen_scopes() == (["c"], True)


async def test_whose_caller_went_away_is_not_decided() -> None:
    queue = RequestQueue(replace(BOUNDS, request_seconds=1.0), "ask again")
    waiting = queue.put_request(lambda generation: ([BrakeSet("x", "", "", 0)], None), "sample")
    assert str(await refusal_of(queue.wait_for_answer(waiting))) == "no answer from the log in time: ask again"
    assert queue.decide_next_group(lambda: Generation(1, 1)).events == []
