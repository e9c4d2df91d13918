"""hpa's shell: one state that follows the log, one turn at deciding, answers once what they say is in the log."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import structlog

from hpa.collecting import Collecting, CollectingSettings, unasked
from hpa.connections import Connections
from hpa.core import answers, declaring, reporting
from hpa.core.declaring import Written
from hpa.core.state import Heard, HpaState
from hpa.log import Follower
from hpa.settings import HpaSettings
from spillway import api_scaling as scaling
from spillway import metrics
from spillway.addresses import SCALE_POLICIES, Tombstone
from spillway.api import RequestError
from spillway.bus import Bus, BusUnavailable, OutcomeUnknown, StandbyTurn, Writer
from spillway.events_scaling import ScaleDecided, ScalePolicyDeclared
from spillway.model import Generation
from spillway.waiting import is_set_within

Decide = Callable[[HpaState, Generation, int], tuple[list[Written], Any]]
"""Of a request: (state, generation, wall clock) → events and the answer. Raises RequestError."""
log = structlog.get_logger()

RETRY = "ask again"


@dataclass(slots=True)
class Waiting:
    """A request on its way into the log."""

    decide: Decide
    answer: "asyncio.Future[Any]"


@dataclass(frozen=True, slots=True)
class Asking:
    """Whom hpa asks what policies need to know."""

    connections: Connections = field(default_factory=Connections)
    settings: CollectingSettings = field(default_factory=CollectingSettings)


class Hpa:
    """Answers spillway.v1.Scaling. Any number of instances follow; the one whose turn it is decides.

    wall_ms: milliseconds of Unix time, to say when something is due, and what is from the future.
    """

    def __init__(
        self, bus: Bus, settings: HpaSettings, instance: str, wall_ms: Callable[[], int], asking: Asking | None = None
    ) -> None:
        self._bus = bus
        self._settings = settings
        self._instance = instance
        self._wall_ms = wall_ms
        self._asking = asking or Asking()
        self._collecting: Collecting | None = None
        self._state = self._new_state(lambda _: 0)
        self._follower: Follower | None = None
        self._writer: Writer | None = None
        self._sequence = 0
        self._heard: deque[Heard] = deque()
        self._room = asyncio.Event()
        self._waiting: deque[Waiting] = deque()
        self._asked = asyncio.Event()
        self._written = asyncio.Event()
        self._written.set()
        self._ending = asyncio.Event()
        self._serving: asyncio.Task[None] | None = None
        self._loaded = False
        self.ready: Callable[[bool, str], None] = lambda ready, reason: None

    @property
    def state(self) -> HpaState:
        """What this instance knows now; read only."""
        return self._state

    @property
    def is_active(self) -> bool:
        return self._writer is not None

    async def run(self, stopping: asyncio.Event) -> None:
        """Follows and, in its turn, decides, until stopping; then finishes the write under way."""
        stop = asyncio.create_task(stopping.wait())
        try:
            while not stopping.is_set():
                life = asyncio.create_task(self._live())
                await asyncio.wait({life, stop}, return_when=asyncio.FIRST_COMPLETED)
                await self._end(life)
                if not stopping.is_set():
                    await asyncio.sleep(self._settings.rebuild_wait_seconds)
        finally:
            stop.cancel()
            self._refuse_waiting("this hpa stops")

    async def _end(self, life: "asyncio.Task[None]") -> None:
        """Ends a life between two writes, never within one."""
        self._ending.set()
        self._asked.set()
        if self._serving is not None:
            await asyncio.wait({self._serving})
        life.cancel()
        with suppress(asyncio.CancelledError):
            await life

    def _new_state(self, partition_of: Callable[[str], int]) -> HpaState:
        return HpaState(self._settings.rules(), partition_of)

    async def _live(self) -> None:
        """One state, from an empty one to the end of the turn or the write whose outcome is unknown."""
        self._ending.clear()
        self._heard.clear()
        follower = self._follower = Follower(self._bus, self._new_state)
        self.ready(False, "reading the log")
        try:
            async with asyncio.TaskGroup() as tasks:
                following = tasks.create_task(follower.run())
                await follower.caught_up()
                self._state, self._loaded = follower.state, True
                self.ready(True, "")
                async with self._bus.standby_turn("hpa", self._instance) as turn:
                    await self._take_turn(turn, follower)
                following.cancel()
        except* OutcomeUnknown as unknown:
            log.warning("outcome of a write unknown: stepping down", error=str(unknown.exceptions[0]))
            metrics.TRANSACTIONS_UNKNOWN.inc()
        except* BusUnavailable as unavailable:
            log.warning("the log cannot be reached", error=str(unavailable.exceptions[0]))

    # ── The turn ────────────────────────────────────────────────────────────────────────────────────────────────

    async def _take_turn(self, turn: StandbyTurn, follower: Follower) -> None:
        writer = await turn.wait()
        await follower.caught_up()
        follower.hear = self._hear
        self._sequence = 0
        metrics.HPA_ACTIVE.set(1)
        log.info("turn taken", epoch=writer.epoch, policies=len(self._state.scaled))
        lost = asyncio.create_task(turn.lost())
        overtaken = asyncio.create_task(follower.overtaken(writer.epoch))
        self._serving = asyncio.create_task(self._serve(writer))
        collecting = asyncio.create_task(self._collect())
        try:
            await asyncio.wait({lost, overtaken, collecting, self._serving}, return_when=asyncio.FIRST_COMPLETED)
            self._ending.set()
            self._asked.set()
            await self._serving
            if collecting.done():
                collecting.result()
        finally:
            for task in (lost, overtaken, collecting, self._serving):
                task.cancel()
            self._step_down()
        log.info("turn over", epoch=writer.epoch)

    async def _collect(self) -> None:
        """Asks what the declared policies need to know, while this instance has the turn."""
        asking = self._asking
        self._collecting = Collecting(self._bus.publish, asking.connections, asking.settings, self._wall_ms)
        for scaled in self._state.scaled.values():
            self._collecting.declare(scaled.declared)
        await self._collecting.run()

    def _tell_collecting(self, event: Written) -> None:
        """A policy that was declared or deleted, once that is in the log."""
        if self._collecting is None:
            return
        if isinstance(event, ScalePolicyDeclared):
            self._collecting.declare(event)
        elif isinstance(event, Tombstone) and event.address.topic is SCALE_POLICIES:
            namespace, _, name = event.address.key.partition("/")
            self._collecting.withdraw(namespace, name)

    def _step_down(self) -> None:
        self._collecting = None
        self._writer = None
        self._written.set()
        self._room.set()
        metrics.HPA_ACTIVE.set(0)
        self._refuse_waiting(f"this hpa gave up its turn; {RETRY}")

    def _refuse_waiting(self, why: str) -> None:
        while self._waiting:
            _fail(self._waiting.popleft(), RequestError("UNAVAILABLE", why))

    async def _hear(self, records: Sequence[Heard]) -> None:
        """Input records of the turn, as they come; returns when there is room for more."""
        self._heard.extend(records)
        self._asked.set()
        while len(self._heard) > self._settings.records_waiting_max and not self._ending.is_set():
            self._room.clear()
            await self._room.wait()

    async def _serve(self, writer: Writer) -> None:
        """Decides on what was heard, asked, and due; writes all of it at once; answers."""
        state = self._state
        events: list[Written] = [*state.take_turn(lambda: self._generation(writer), self._wall_ms())]
        self._writer = writer
        while not self._ending.is_set():
            answered = self._decide_waiting(writer, events)
            events += self._decide_heard()
            events += state.fire(self._wall_ms())
            events += state.unwritten()
            self._written.clear()
            try:
                if events:
                    await self._write(writer, events)
            except BaseException:
                self._writer = None  # Before those go on who wait to read: what they read may not be in the log.
                for waiting, _ in answered:
                    _fail(waiting, RequestError("UNAVAILABLE", f"outcome unknown: {RETRY}"))
                raise
            finally:
                self._written.set()
            for waiting, reply in answered:
                if not waiting.answer.done():
                    waiting.answer.set_result(reply)
            events = []
            if not self._heard and not self._waiting:
                await is_set_within(self._asked, self._seconds_until_due())
                self._asked.clear()

    def _seconds_until_due(self) -> float:
        due_ms = self._state.next_due_ms()
        longest = self._settings.idle_seconds
        return longest if due_ms is None else min(max(due_ms - self._wall_ms(), 1) / 1000, longest)

    def _decide_waiting(self, writer: Writer, events: list[Written]) -> list[tuple[Waiting, Any]]:
        """What was asked, with its answer; its events are added."""
        answered = []
        while self._waiting:
            waiting = self._waiting.popleft()
            if waiting.answer.done():  # Its caller went away before anything was decided.
                continue
            try:
                decided, reply = waiting.decide(self._state, self._generation(writer), self._wall_ms())
            except RequestError as error:
                _fail(waiting, error)
                continue
            events += decided
            answered.append((waiting, reply))
        return answered

    def _decide_heard(self) -> list[Written]:
        events: list[Written] = []
        for _ in range(min(len(self._heard), self._settings.records_in_group_max)):
            events += self._state.hear(self._heard.popleft(), self._wall_ms())
        self._room.set()
        return events

    async def _write(self, writer: Writer, events: list[Written]) -> None:
        with metrics.TRANSACTION_SECONDS.time():
            await writer.write(events)
        metrics.TRANSACTION_EVENTS.observe(len(events))
        now_ms = self._wall_ms()
        for event in events:
            self._tell_collecting(event)
            if isinstance(event, ScaleDecided):
                metrics.SCALE_DECISIONS.labels(event.policy_kind).inc()
                metrics.SCALE_DELAY_SECONDS.observe(max(now_ms - event.at_ms, 0) / 1000)
                log.info(
                    "scaled", workload=f"{event.namespace}/{event.name}", replicas=event.replicas, why=event.reason
                )
        metrics.SCALE_POLICIES.set(len(self._state.scaled))
        dropped, self._state.dropped = self._state.dropped, {}
        for why, count in dropped.items():
            metrics.SCALE_INPUTS_DROPPED.labels(why).inc(count)

    def _generation(self, writer: Writer) -> Generation:
        self._sequence += 1
        return Generation(writer.epoch, self._sequence)

    # ── spillway.v1.Scaling ─────────────────────────────────────────────────────────────────────────────────────

    async def declare_policy(self, request: scaling.DeclarePolicyRequest) -> scaling.PolicyReply:
        nobody_asks = partial(unasked, self._asking.connections)
        if request.plan_only:
            await self._readable()
            _, reply = declaring.declare(self._state, request, Generation(0, 0), self._wall_ms(), nobody_asks)
            return replace(reply, stale=not self.is_active)

        def decide(state: HpaState, generation: Generation, now_ms: int) -> tuple[list[Written], scaling.PolicyReply]:
            return declaring.declare(state, request, generation, now_ms, nobody_asks)

        return _checked(await self._ask(decide))

    async def delete_policy(self, request: scaling.DeletePolicyRequest) -> scaling.PolicyReply:
        return _checked(await self._ask(lambda state, generation, now_ms: declaring.delete(state, request)))

    async def get_policy(self, request: scaling.GetPolicyRequest) -> scaling.PolicyReply:
        await self._readable()
        reply = answers.policy_reply(self._state, answers.find(self._state, request))
        return replace(reply, stale=not self.is_active)

    async def list_policies(self, request: scaling.ListPoliciesRequest) -> scaling.ListPoliciesReply:
        await self._readable()
        return replace(answers.list_policies(self._state, request), stale=not self.is_active)

    async def explain_policy(self, request: scaling.ExplainPolicyRequest) -> scaling.ExplainPolicyReply:
        await self._readable()
        reply = answers.explain(self._state, answers.find(self._state, request))
        return replace(reply, policy=replace(reply.policy, stale=not self.is_active))

    async def report(self, request: scaling.ReportRequest) -> scaling.ReportReply:
        """Any instance takes it: what is reported goes into the log as everybody's reports do."""
        await self._readable()
        reports = (*request.loads, *request.backlogs)
        if len(reports) > reporting.ITEMS_MAX:
            raise RequestError("INVALID_ARGUMENT", f"{len(reports)} reports: expected at most {reporting.ITEMS_MAX}")
        loads, of_loads = reporting.accepted(self._state, request.loads, self._wall_ms())
        backlogs, of_backlogs = reporting.accepted(self._state, request.backlogs, self._wall_ms())
        if loads or backlogs:
            await self._bus.publish(*loads, *backlogs)
        return scaling.ReportReply(of_loads, of_backlogs)

    def leader(self) -> str:
        turn = self._follower.turn if self._follower is not None else None
        return turn.instance.rpartition("@")[2] if turn is not None else ""

    async def _ask(self, decide: Decide) -> Any:
        if not self.is_active:
            raise RequestError("UNAVAILABLE", f"this hpa is a standby; the active one is at {self.leader() or '?'}")
        if len(self._waiting) >= self._settings.requests_waiting_max:
            raise RequestError("RESOURCE_EXHAUSTED", f"{len(self._waiting)} requests wait already; {RETRY}")
        waiting = Waiting(decide, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._asked.set()
        try:
            async with asyncio.timeout(self._settings.request_seconds):
                return await waiting.answer
        except TimeoutError:
            raise RequestError("UNAVAILABLE", f"no answer from the log in time: {RETRY}") from None

    async def _readable(self) -> None:
        """Waits out a write under way, so that nothing is answered that is not in the log."""
        if not self._loaded:
            raise RequestError("UNAVAILABLE", "this hpa has just started and still reads the log")
        try:
            async with asyncio.timeout(self._settings.request_seconds):
                await self._written.wait()
        except TimeoutError:
            raise RequestError("UNAVAILABLE", "a write to the log does not end") from None


def _checked(reply: Any) -> scaling.PolicyReply:
    assert isinstance(reply, scaling.PolicyReply)
    return reply


def _fail(waiting: Waiting, error: RequestError) -> None:
    if not waiting.answer.done():
        waiting.answer.set_exception(error)
