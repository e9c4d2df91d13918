"""Runs one instance of a service with one active instance. It follows the log, waits for its turn and serves in it.

After each turn it starts again with an empty state: a new life.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import structlog
from prometheus_client import Gauge

from spillway import metrics
from spillway.addresses import CLAIM_TOPIC_BY_SERVICE
from spillway.api import RequestError
from spillway.bus import Bus, BusUnavailable, Offsets, OutcomeUnknown, StandbyTurn, Writer
from spillway.dead_letters import UnwritableEvent
from spillway.model import Generation
from spillway.reasons import READING_THE_LOG, STANDBY
from spillway.running.following import Follower
from spillway.running.garbage_collection import delayed_collections
from spillway.running.request_queue import BugMet, Decide, Decisions, RequestQueue, RequestSettings, T, Written
from spillway.running.unproven_answers import UnprovenAnswers
from spillway.settings import constant
from spillway.waiting import is_set_within, loop_seconds

SILENCE_SECONDS = 2.0
"""The seconds without activity after which this process may have been frozen, so that another instance may have its
turn. They are well below a session's time-out."""
Beside = Callable[[], Coroutine[Any, Any, None]]
"""A coroutine that runs beside another one until it is cancelled."""
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class StandbySettings(RequestSettings):
    """The settings of every service with one active instance."""

    rebuild_wait_seconds: float = constant(
        1.0,
        "seconds of the pause after a failed write, before the state is rebuilt",
        "the pause keeps a failing log from endless requests, and no caller waits long for it",
    )
    turn_proven_seconds: float = constant(
        5.0,
        "seconds since the last proof that the log has no later turn, after which the active instance answers "
        "reads as stale; less than the log's session_seconds",
        "it must be less than the log's session_seconds, which is at least 6",
    )
    turn_asked_seconds: float = constant(
        1.0,
        "seconds between two proofs that the log has no later turn",
        "several proofs fit into turn_proven_seconds, and each one is a small request",
    )
    answers_unproven_max: int = constant(
        1_000,
        "largest number of answers without a change that wait for such a proof; further requests are UNAVAILABLE",
        "this bounds memory, and a proof comes every second",
    )


class WriterTurn:
    """This instance's right to write, and the generations of the events that it writes."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self._sequence = 0

    @property
    def epoch(self) -> int:
        return self.writer.turn_epoch

    def next_generation(self) -> Generation:
        self._sequence += 1
        return Generation(self.epoch, self._sequence)


class Decider(Protocol):
    """The functions that each service implements for its Standby. Only take_turn may await, because a step and its
    write must not be interrupted."""

    def begin_life(self) -> Follower:
        """Begins a life with an empty state. Returns the follower that reads the log into it."""
        ...

    def use_new_state(self) -> None:
        """Makes the new state the one that answers reads. It is called once the state has caught up with the log."""
        ...

    async def take_turn(self, turn: WriterTurn) -> None:
        """Begins the turn. The state holds everything that earlier turns wrote.

        Before it returns, it must ensure that this turn's own records are not read back into the state.
        """
        ...

    def pause_seconds(self) -> float:
        """Returns the seconds until the next step, if no request comes before."""
        ...

    def decide_step(self, turn: WriterTurn) -> Decisions:
        """Decides waiting requests, new records and due work. Applies the decisions to the state, and returns them."""
        ...

    def note_written_events(self, events: Sequence[Written]) -> None:
        """Is called after the step's events were written to the log, for metrics and follow-up work."""
        ...

    def step_down(self) -> None:
        """Ends the turn. The state may hold changes that are not in the log."""
        ...


@dataclass(frozen=True, slots=True)
class StandbyRole:
    """The names and tasks of a service for its Standby.

    service: its name, in turns and texts. retry: a text for callers without an answer, about what they may do. active:
    a gauge that is 1 during the turn. beside_life: tasks that run during the whole life. beside_turn: tasks that run
    during the turn, which ends when one of them ends.
    """

    service: str
    retry: str
    active: Gauge
    beside_life: tuple[Beside, ...] = ()
    beside_turn: tuple[Beside, ...] = ()


class Standby:
    """Runs the lives of one instance. Any number of instances follow the log; the one with the turn decides.

    After each turn, and after a write whose outcome is unknown, the next life reads the log again.

    ready: a function that is called with whether reads are answered, and with the reason if they are not.
    """

    def __init__(self, bus: Bus, role: StandbyRole, instance: str, settings: StandbySettings, decider: Decider) -> None:
        self.requests = RequestQueue(settings, role.retry)
        self.ready: Callable[[bool, str], None] = lambda ready, reason: None
        self._bus = bus
        self._role = role
        self._instance = instance
        self._settings = settings
        self._decider = decider
        self._follower: Follower | None = None
        self._turn: WriterTurn | None = None
        self._serving: asyncio.Task[None] | None = None
        self._ending = asyncio.Event()
        self._written = asyncio.Event()
        self._written.set()
        self._loaded = False
        self._awake_at = 0.0
        self._proven_at = -float("inf")
        self._unproven = UnprovenAnswers(settings.answers_unproven_max, role.retry)

    @property
    def is_active(self) -> bool:
        """Returns whether this instance has the turn, and had a recent proof of it.

        An instance that is cut off from the log does not learn of a later turn, so it answers as a standby does.
        """
        return self._turn is not None and loop_seconds() - self._proven_at <= self._settings.turn_proven_seconds

    @property
    def is_ending(self) -> bool:
        """Returns whether the step under way is the last one of this life."""
        return self._ending.is_set()

    @property
    def positions(self) -> Offsets:
        """Returns the offsets up to which this life has read the log."""
        return dict(self._follower.positions) if self._follower is not None else {}

    def active_instance_address(self) -> str:
        """Returns the address of the active instance as the log names it; "" when it is unknown."""
        turn = self._follower.turn if self._follower is not None else None
        return turn.instance.rpartition("@")[2] if turn is not None else ""

    async def run(self, stopping: asyncio.Event, *beside: Beside) -> None:
        """Follows the log until `stopping` is set, and decides during its turn. At the end waits for the last write.

        beside: tasks that run until they are cancelled. Raises the error of a task that fails, and RuntimeError when a
        task returns before stopping is set.
        """
        stop = asyncio.create_task(stopping.wait())
        self._awake_at = loop_seconds()
        others = [asyncio.create_task(one()) for one in (self._watch_for_freezes, *beside)]
        try:
            while not stopping.is_set():
                life = asyncio.create_task(self._run_life())
                await asyncio.wait({life, stop, *others}, return_when=asyncio.FIRST_COMPLETED)
                await self._end_life(life)
                _raise_task_errors(others)
                if not stopping.is_set():
                    _raise_if_any_returned(others)
                    await asyncio.sleep(self._settings.rebuild_wait_seconds)
        finally:
            for task in (stop, *others):
                task.cancel()
            self.requests.refuse_all(f"this {self._role.service} stops")

    async def _end_life(self, life: "asyncio.Task[None]") -> None:
        """Ends a life between two writes, never within one."""
        self._end_serving()
        if self._serving is not None:
            await asyncio.wait({self._serving})
        life.cancel()
        with suppress(asyncio.CancelledError):
            await life

    def _end_serving(self) -> None:
        self._ending.set()
        self.requests.asked.set()

    async def _run_life(self) -> None:
        """Runs one life: from an empty state to the end of the turn, or to a write whose outcome is unknown."""
        self._ending.clear()
        follower = self._follower = self._decider.begin_life()
        self.ready(False, "reading the log")
        try:
            async with asyncio.TaskGroup() as tasks:
                living = [tasks.create_task(one()) for one in (follower.run, *self._role.beside_life)]
                await follower.wait_until_caught_up()
                await follower.check_epochs()
                self._decider.use_new_state()
                self._loaded = True
                self.ready(True, "")
                async with self._bus.join_standby_group(self._role.service, self._instance) as turn:
                    await self._take_turn(turn, follower)
                for task in living:
                    task.cancel()
        except* (BugMet, UnwritableEvent) as bugs:
            log.error("a bug: this instance gives up its turn", exc_info=bugs.exceptions[0])
        except* OutcomeUnknown as unknown:
            log.warning(
                "the outcome of a write is unknown: this instance gives up its turn", error=str(unknown.exceptions[0])
            )
            metrics.TRANSACTIONS_UNKNOWN.inc()
        except* BusUnavailable as unavailable:
            log.warning("the log cannot be reached", error=str(unavailable.exceptions[0]))

    # ── The turn ────────────────────────────────────────────────────────────────────────────────────────────────

    async def _take_turn(self, standby_turn: StandbyTurn, follower: Follower) -> None:
        turn = WriterTurn(await standby_turn.wait_for_turn())
        self._proven_at = loop_seconds()
        # The earlier writer is fenced now, so the log has all its records. They must be in the state before a decision.
        await follower.wait_until_caught_up()
        await follower.check_epochs()
        await self._decider.take_turn(turn)
        self._turn = turn
        self._role.active.set(1)
        metrics.TURNS_TAKEN.labels(self._role.service).inc()
        lost = asyncio.create_task(standby_turn.wait_until_lost())
        overtaken = asyncio.create_task(follower.wait_until_overtaken(turn.epoch))
        self._serving = asyncio.create_task(self._run_steps(turn))
        proving: Beside = partial(self._prove_turn, turn, follower)
        beside = [asyncio.create_task(one()) for one in (proving, *self._role.beside_turn)]
        try:
            await asyncio.wait({lost, overtaken, self._serving, *beside}, return_when=asyncio.FIRST_COMPLETED)
            self._end_serving()
            await self._serving
            _raise_task_errors(beside)
        finally:
            for task in (lost, overtaken, self._serving, *beside):
                task.cancel()
            self._step_down()  # Leaving the group may take seconds; until then this state would count as active.
        # From now on other instances write. Their records are only in the log, so the state is rebuilt from it.
        log.info("turn over", epoch=turn.epoch)

    async def _prove_turn(self, turn: WriterTurn, follower: Follower) -> None:
        """Checks again and again that the log has no later turn. Returns when it has one.

        A check without a later turn proves that this turn still held when the check began. Answers that wait for a
        proof start the next check at once.
        """
        turns = CLAIM_TOPIC_BY_SERVICE[self._role.service]
        while True:
            asked_at = loop_seconds()
            self._unproven.note_proof_asked()
            try:
                await follower.wait_until_caught_up(turns)
            except BusUnavailable:  # Nothing is proven then.
                await asyncio.sleep(self._settings.turn_asked_seconds)
                continue
            if turn.epoch < follower.turn_epoch:
                return
            self._proven_at = asked_at
            self._unproven.send_proven_answers()
            await is_set_within(self._unproven.wanted, self._settings.turn_asked_seconds)

    def _step_down(self) -> None:
        self._stop_reads()
        self._written.set()
        self._role.active.set(0)
        metrics.TURNS_LOST.labels(self._role.service).inc()
        self._decider.step_down()
        why = f"this {self._role.service} gave up its turn; {self._role.retry}"
        self._unproven.refuse_all(why)
        self.requests.refuse_all(why)

    def _stop_reads(self) -> None:
        """Stops reads from this state. After the turn, both the state and the log may lack changes of the other."""
        self._turn, self._loaded = None, False
        self.ready(False, "the turn is over: the log is read again")

    async def _run_steps(self, turn: WriterTurn) -> None:
        """Runs steps: decides, writes all events in one transaction, answers. A step without events waits for a proof
        instead."""
        while not self._ending.is_set():
            await is_set_within(self.requests.asked, self._decider.pause_seconds())
            self.requests.asked.clear()
            with delayed_collections():
                decided = self._decider.decide_step(turn)
            if not decided.events:  # No transaction shows that this instance still has the turn.
                self._unproven.keep_answers(decided)
                if self.requests.asked.is_set():  # The next step begins at once, so let answers out first.
                    await asyncio.sleep(0)
                continue
            self._written.clear()
            try:
                await self._write_decisions(turn, decided)
            except BaseException:
                self._stop_reads()  # Before those go on who wait to read.
                decided.fail_requests(f"the outcome of the request is unknown: {self._role.retry}")
                raise
            finally:
                self._written.set()
            decided.send_answers()

    async def _write_decisions(self, turn: WriterTurn, decided: Decisions) -> None:
        requests, events = len(decided.answers), decided.events
        with metrics.TRANSACTION_SECONDS.time():
            await turn.writer.write_events(decided.records, decided.traces)
        metrics.TRANSACTION_EVENTS.observe(len(events))
        metrics.TRANSACTION_REQUESTS.observe(requests)
        self._decider.note_written_events(events)

    # ── Requests and reads ──────────────────────────────────────────────────────────────────────────────────────

    async def ask_for_decision(self, decide: Decide[T], verb: str = "request", caller: str = "") -> T:
        """Returns the answer once its events are in the log. An answer without events needs a proof of this turn.

        verb: the name of the request's span. Raises RequestError.
        """
        self.check_may_ask(1, caller)
        return await self.requests.wait_for_answer(self.requests.put_request(decide, verb, caller=caller))

    def check_may_ask(self, requests: int, caller: str = "") -> None:
        """Raises RequestError UNAVAILABLE on a standby, RESOURCE_EXHAUSTED if this caller may not add so many
        requests."""
        if self._turn is None:
            service, leader = self._role.service, self.active_instance_address() or "?"
            raise RequestError("UNAVAILABLE", f"this {service} is a standby; the active one is at {leader}", STANDBY)
        self.requests.check_room(requests, caller)

    async def wait_until_readable(self) -> None:
        """Waits for the write under way, so that no answer contains changes that are not in the log.

        After a long silence it first checks whether another instance has the turn. Raises RequestError UNAVAILABLE: the
        caller may ask another instance.
        """
        self._check_loaded()
        try:
            async with asyncio.timeout(self._settings.request_seconds):
                if self._was_silent():
                    await self._look_for_later_turn()
                await self._written.wait()
        except TimeoutError:
            raise RequestError("UNAVAILABLE", "a write to the log has not ended in time") from None
        except BusUnavailable as error:
            raise RequestError("UNAVAILABLE", f"the log cannot be reached: {error}") from None
        self._check_loaded()

    def _check_loaded(self) -> None:
        if not self._loaded:
            raise RequestError("UNAVAILABLE", f"this {self._role.service} still reads the log", READING_THE_LOG)

    def _was_silent(self) -> bool:
        return self._turn is not None and loop_seconds() - self._awake_at > SILENCE_SECONDS

    async def _watch_for_freezes(self) -> None:
        """Detects by the clock that this process was frozen or nearly frozen, and then looks for a later turn."""
        while True:
            await asyncio.sleep(SILENCE_SECONDS / 4)
            with suppress(BusUnavailable):  # Then a later turn is not ruled out, and the next round asks again.
                if self._was_silent():
                    await self._look_for_later_turn()
                self._awake_at = loop_seconds()

    async def _look_for_later_turn(self) -> None:
        """Stops reads from this state if the log has a later turn, even before this turn has ended here."""
        follower, turn = self._follower, self._turn
        assert follower is not None
        assert turn is not None
        await follower.wait_until_caught_up()
        if follower.turn_epoch > turn.epoch:
            # If the turn has ended meanwhile, the state may already be that of the next life, which stays readable.
            self._loaded = self._loaded and self._turn is not turn


def _raise_if_any_returned(others: "Sequence[asyncio.Task[None]]") -> None:
    """Raises RuntimeError if a task has returned: it would end each next life as soon as that begins."""
    for task in others:
        if task.done():
            raise RuntimeError(f"the task {task.get_coro()} has returned: expected it to run until it is cancelled")


def _raise_task_errors(tasks: "Sequence[asyncio.Task[None]]") -> None:
    """Raises the error of a task that has failed. These tasks end only with an error, which ends the caller too."""
    for task in tasks:
        if task.done():
            task.result()
