"""The planner's shell: one state that follows the log, one turn at writing it, answers once they are in it."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import structlog

from planner import batches, exports
from planner.admissions import Admissions
from planner.adoptions import Adoptions
from planner.core import placing
from planner.core.fleet import NEVER
from planner.core.moving import aftermath, duplicates, moves
from planner.core.moving.aftermath import Step
from planner.core.moving.homing import Homing
from planner.core.requests import answers, autoscaling, braking, decisions, membership, releasing
from planner.core.requests.decisions import Undecided
from planner.core.state import PlannerState
from planner.core.subject import Moment
from planner.explanations import Explanations
from planner.gauges import show_brakes, show_state
from planner.log import Follower
from planner.projection import Projection, Store
from planner.questions import Questions
from planner.settings import PlannerSettings
from planner.watches import CurrentState, Watches
from spillway import api, metrics, tracing
from spillway.addresses import Tombstone
from spillway.api import RequestError
from spillway.bus import Bus, BusUnavailable, Offsets, OutcomeUnknown, Record, StandbyTurn, Writer
from spillway.events import Event
from spillway.model import Generation
from spillway.rpc_security import CALLER
from spillway.waiting import is_set_within

Written = Event | Tombstone
Decide = Callable[[PlannerState, Moment], tuple[tuple[Written, ...], Any]]
"""Raises RequestError; gives events and the answer."""
T = TypeVar("T")
log = structlog.get_logger()

RETRY = "retry with the same idempotency key"
PATIENCE = 0.8
"""Of a request's time, how much it may wait for binds before it is refused."""


@dataclass(frozen=True, slots=True)
class Clocks:
    """steady: seconds that only grow, for ages and timers. wall_ms: for records and forgetting, never for order."""

    steady: Callable[[], float]
    wall_ms: Callable[[], int]


@dataclass(slots=True)
class Waiting:
    """A request on its way into the log.

    trace: the context of the call; one transaction belongs to the trace of the first request in it.
    batch: what is of one batch is decided in one step.
    """

    decide: Decide
    answer: "asyncio.Future[Any]"
    verb: str
    trace: list[tuple[str, bytes]]
    since: float
    batch: object = None


class Planner:
    """Answers spillway.v1.Planner. Any number of instances follow; the one whose turn it is decides."""

    def __init__(self, bus: Bus, store: Store, settings: PlannerSettings, instance: str, clocks: Clocks) -> None:
        self._bus = bus
        self._settings = settings
        self._instance = instance
        self._clocks = clocks
        self._current = CurrentState(PlannerState(settings.rules()))
        self._watches = Watches(bus, settings.watches_max, settings.watch_events_waiting_max)
        self._questions = Questions(bus)
        self._adoptions = Adoptions(
            self._questions, self._ask, lambda: bus.fleet, settings.find_seconds, settings.recover_events_max
        )
        self._admissions = Admissions(lambda: self.state, self._ask, settings.shape_wait_seconds)
        self._follower: Follower | None = None
        self._writer: Writer | None = None
        self._sequence = 0
        self._waiting: deque[Waiting] = deque()
        self._undecided: list[Waiting] = []
        self._asked = asyncio.Event()
        self._written = asyncio.Event()
        self._written.set()
        self._ending = asyncio.Event()
        self._serving: asyncio.Task[None] | None = None
        self._looked_at = 0.0
        self._homing = Homing()
        self._loaded = False
        self._projection = Projection(bus, store, lambda: self.state, settings.history_kept_max)
        self._explanations = Explanations(self._projection.history, settings.history_kept_max)
        self.ready: Callable[[bool, str], None] = lambda ready, reason: None

    @property
    def state(self) -> PlannerState:
        """What this instance knows now; read only."""
        return self._current.state

    @property
    def is_active(self) -> bool:
        return self._writer is not None

    async def run(self, stopping: asyncio.Event) -> None:
        """Follows and, in its turn, decides, until stopping; then finishes the write under way."""
        stop = asyncio.create_task(stopping.wait())
        projecting = asyncio.create_task(self._projection.run(lambda: self.is_active))
        try:
            while not stopping.is_set():
                life = asyncio.create_task(self._live())
                await asyncio.wait({life, stop, projecting}, return_when=asyncio.FIRST_COMPLETED)
                await self._end(life)
                if projecting.done():
                    projecting.result()
                if not stopping.is_set():
                    await asyncio.sleep(self._settings.rebuild_wait_seconds)
        finally:
            stop.cancel()
            projecting.cancel()
            self._refuse_waiting("this planner stops")

    async def _end(self, life: "asyncio.Task[None]") -> None:
        """Ends a life between two writes, never within one."""
        self._ending.set()
        self._asked.set()
        if self._serving is not None:
            await asyncio.wait({self._serving})
        life.cancel()
        with suppress(asyncio.CancelledError):
            await life

    async def _live(self) -> None:
        """One state, from an empty one to the end of the turn or the write whose outcome is unknown."""
        self._ending.clear()
        state = PlannerState(self._settings.rules())
        follower = Follower(self._bus, state, self._clocks.steady, self._on_records)
        self._follower = follower
        self.ready(False, "reading the log")
        try:
            async with asyncio.TaskGroup() as tasks:
                following = tasks.create_task(follower.run())
                questions = tasks.create_task(self._questions.run())
                await follower.caught_up()
                self._current.state = state
                self._loaded = True
                self.ready(True, "")
                async with self._bus.standby_turn("planner", self._instance) as turn:
                    await self._take_turn(turn, follower)
                following.cancel()
                questions.cancel()
        except* OutcomeUnknown as unknown:
            log.warning("outcome of a write unknown: stepping down", error=str(unknown.exceptions[0]))
            metrics.TRANSACTIONS_UNKNOWN.inc()
        except* BusUnavailable as unavailable:
            log.warning("the log cannot be reached", error=str(unavailable.exceptions[0]))

    def _on_records(self, records: tuple[Record, ...], positions: Offsets) -> None:
        self._admissions.hear(records)
        self._watches.publish(records, positions)
        self._projection.observe(records, positions)
        if self.is_active and self.state.scalings.due:
            self._asked.set()

    # ── The turn ────────────────────────────────────────────────────────────────────────────────────────────────

    async def _take_turn(self, turn: StandbyTurn, follower: Follower) -> None:
        writer = await turn.wait()
        await follower.caught_up()
        await self._hear_clusters()
        follower.writing = True
        self._writer, self._sequence = writer, 0
        self._homing = Homing()
        metrics.PLANNER_ACTIVE.set(1)
        log.info("turn taken", epoch=writer.epoch, workloads=len(self.state.workloads))
        lost = asyncio.create_task(turn.lost())
        overtaken = asyncio.create_task(follower.overtaken(writer.epoch))
        self._serving = asyncio.create_task(self._serve(writer))
        try:
            await asyncio.wait({lost, overtaken, self._serving}, return_when=asyncio.FIRST_COMPLETED)
            self._ending.set()
            self._asked.set()
            await self._serving
        finally:
            for task in (lost, overtaken, self._serving):
                task.cancel()
            self._step_down()  # Leaving the group may take seconds, in which this state would pass for the active one.
        # What others write from now on is only in the log: the state is built again from there.
        log.info("turn over", epoch=writer.epoch)

    async def _hear_clusters(self) -> None:
        """A start reads capacity of unknown age; the first heartbeats tell it, and decisions wait for them."""
        until = self._clocks.steady() + self._settings.hear_seconds_max
        while self._clocks.steady() < until and any(
            view.joined is not None and view.heard_at == NEVER for view in self.state.clusters.values()
        ):
            await asyncio.sleep(self._settings.tick_seconds)

    def _step_down(self) -> None:
        self._writer = None
        self._written.set()
        metrics.PLANNER_ACTIVE.set(0)
        self._refuse_waiting(f"this planner gave up its turn; {RETRY}")

    def _refuse_waiting(self, why: str) -> None:
        self._waiting.extend(self._undecided)
        self._undecided.clear()
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.answer.done():
                waiting.answer.set_exception(RequestError("UNAVAILABLE", why))

    async def _serve(self, writer: Writer) -> None:
        """Decides what was asked, looks after what was placed, writes both, answers."""
        while not self._ending.is_set():
            await is_set_within(self._asked, self._settings.tick_seconds)
            self._asked.clear()
            events, answered = self._decide_waiting(writer)
            events.extend(self._autoscale(writer))
            if self._clocks.steady() - self._looked_at >= self._settings.tick_seconds:
                self._looked_at = self._clocks.steady()
                events.extend(self._look_after(writer))
            self._written.clear()
            try:
                if events:
                    await self._write(writer, events, [waiting for waiting, _ in answered])
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

    async def _write(self, writer: Writer, events: list[Written], requests: list[Waiting]) -> None:
        started = self._clocks.steady()
        context = tracing.extract(requests[0].trace) if requests else None
        with tracing.span("planner.write", context, events=len(events), requests=len(requests)):
            await writer.write(events)
        metrics.TRANSACTION_SECONDS.observe(self._clocks.steady() - started)
        metrics.TRANSACTION_EVENTS.observe(len(events))
        metrics.TRANSACTION_REQUESTS.observe(len(requests))

    def _decide_waiting(self, writer: Writer) -> tuple[list[Written], list[tuple[Waiting, Any]]]:
        events: list[Written] = []
        answered: list[tuple[Waiting, Any]] = []
        for waiting in self._next_group():
            if waiting.answer.done():  # Its caller went away before anything was decided.
                continue
            started = self._clocks.steady()
            try:
                decided, reply = waiting.decide(self.state, self._moment(writer, self._is_patient(waiting)))
            except Undecided:
                self._undecided.append(waiting)
                continue
            except RequestError as error:
                _fail(waiting, error)
                continue
            self._apply(decided)
            metrics.DECISIONS.labels(waiting.verb).inc()
            metrics.DECISION_SECONDS.observe(self._clocks.steady() - started)
            events.extend(decided)
            answered.append((waiting, reply))
        if self._waiting:
            self._asked.set()
        return events, answered

    def _autoscale(self, writer: Writer) -> list[Written]:
        """What policies decided, in the same transaction; a bounded number, so that no request waits for them all."""
        events: list[Written] = []
        for key in self.state.scalings.next_due(self._settings.scales_in_group_max):
            started = self._clocks.steady()
            decided = autoscaling.declare(self.state, self.state.workloads[key], self._moment(writer))
            events.extend(self._apply(decided))
            metrics.DECISIONS.labels("autoscale").inc()
            metrics.DECISION_SECONDS.observe(self._clocks.steady() - started)
        if self.state.scalings.due:
            self._asked.set()
        return events

    def _next_group(self) -> list[Waiting]:
        """The requests of the next step: at most requests_in_group_max, and the rest of the last one's batch."""
        group: list[Waiting] = []
        while self._waiting and (
            len(group) < self._settings.requests_in_group_max
            or (self._waiting[0].batch is not None and self._waiting[0].batch is group[-1].batch)
        ):
            group.append(self._waiting.popleft())
        return group

    def _is_patient(self, waiting: Waiting) -> bool:
        """Whether a request may still wait for binds: so long as they come, and its caller has time."""
        rules, now = self.state.rules, self._clocks.steady()
        longest = min(rules.bind_wait_max, self._settings.request_seconds * PATIENCE)
        bound_at = max((view.bound_at for view in self.state.clusters.values()), default=0.0)
        return now - max(bound_at, waiting.since) < rules.bind_quiet and now - waiting.since < longest

    def _look_after(self, writer: Writer) -> list[Written]:
        """What follows from the fleet and from time, with no request."""
        state = self.state
        events: list[Written] = []
        undecided, self._undecided = self._undecided, []
        self._waiting.extend(undecided)
        aftermath.watch(state, self._clocks.steady())
        events.extend(self._move(writer))
        for workload, counts in list(aftermath.take_backs(state, self._moment(writer), state.brakes)):
            moment = self._moment(writer)
            aftermath.hold(state, workload, counts, moment.now)
            placed = placing.take_back(state, workload, counts, moment)
            log.info("replicas taken back", workload="/".join(workload.key), replicas=counts)
            for cluster, count in counts.items():
                metrics.TAKE_BACKS.labels(cluster).inc(count)
            events.extend(self._apply(placed.events))
        for workload in aftermath.next_waiting(state, self._clocks.steady(), bool(undecided)):
            events.extend(self._apply(aftermath.try_again(state, workload, self._moment(writer), state.brakes).events))
        for key in state.rollouts.due(state.rules.replans_max):
            events.extend(self._apply(aftermath.roll_on(state, state.workloads[key], self._moment(writer)).events))
        for workload in self._homing.due(state, self._clocks.steady()):
            events.extend(self._moved(self._homing.next_step(state, workload, self._moment(writer), state.brakes)))
        events.extend(self._apply(aftermath.needs_met(state, self._moment(writer))))
        for key in list(state.leaving):
            events.extend(self._apply(aftermath.settle(state, key, self._moment(writer)).events))
        events.extend(self._apply(moves.left(state)))
        show_state(state)
        show_brakes(state.brakes)
        return events

    def _move(self, writer: Writer) -> list[Written]:
        """What is to move that nobody asked to move by name, as far as the brakes let it."""
        state, moment = self.state, self._moment(writer)
        events = [one for step in duplicates.steps(state, lambda: self._moment(writer)) for one in self._moved(step)]
        wanted = {**moves.wanted(state, moment.now), **self._homing.wanted}
        asked = state.brakes.step(wanted, state.fleet_replicas() if wanted else 0, moment.now, moment.wall_ms)
        events.extend(self._apply(asked))
        for workload in moves.due(state, moment.now, state.brakes):
            step = moves.next_step(state, workload, self._moment(writer), state.brakes)
            events.extend(self._moved(step))
        return events

    def _moved(self, step: Step) -> tuple[Written, ...]:
        if step.events:
            log.info("replicas moved", workload="/".join(step.key), cause=step.cause)
        return self._apply(step.events)

    def _apply(self, events: tuple[Written, ...]) -> tuple[Written, ...]:
        for event in events:
            if isinstance(event, Tombstone):
                self.state.apply_tombstone(event.address.topic.name, event.address.key)
            else:
                self.state.apply(event, self._clocks.steady())
        return events

    def _moment(self, writer: Writer, patient: bool = False) -> Moment:
        self._sequence += 1
        generation = Generation(writer.epoch, self._sequence)
        return Moment(self._clocks.steady(), self._clocks.wall_ms(), generation, patient)

    # ── spillway.v1.Planner ─────────────────────────────────────────────────────────────────────────────────────

    async def apply(self, request: api.ApplyRequest) -> api.PlacementReply:
        await self._admissions.learn((request,))
        return await self._ask("apply", lambda state, moment: decisions.apply(state, request, moment).both)

    async def scale(self, request: api.ScaleRequest) -> api.PlacementReply:
        return await self._ask("scale", lambda state, moment: decisions.scale(state, request, moment).both)

    async def plan_batch(self, request: api.PlanBatchRequest) -> api.PlanBatchReply:
        asked = batches.read_batch(request, self._settings.batch_items_max)
        self._refuse_unless_able(len(asked))
        await self._admissions.learn([item.apply for item in request.items if item.apply is not None])
        self._refuse_unless_able(len(asked))
        waiting = [self._put(item.verb, item.decide, request) for item in asked]
        return batches.reply_of(await asyncio.gather(*map(self._answered, waiting), return_exceptions=True))

    async def delete(self, request: api.DeleteRequest) -> api.PlacementReply:
        return await self._ask("delete", lambda state, moment: decisions.delete(state, request, moment).both)

    async def migrate(self, request: api.MigrateRequest) -> api.PlacementReply:
        return await self._ask("migrate", lambda state, moment: decisions.migrate(state, request, moment).both)

    async def adopt(self, request: api.AdoptRequest) -> api.PlacementReply:
        return await self._adoptions.adopt(request)

    async def release(self, request: api.ReleaseRequest) -> api.PlacementReply:
        return await self._ask("release", lambda state, moment: releasing.release(state, request, moment).both)

    async def list_orphans(self, request: api.ListOrphansRequest) -> api.ListOrphansReply:
        await self._readable()
        return replace(answers.list_orphans(self.state, request), stale=not self.is_active)

    async def recover_fleet(self, request: api.RecoverFleetRequest) -> api.RecoverFleetReply:
        return await self._adoptions.recover_fleet(request)

    async def join_cluster(self, request: api.JoinClusterRequest) -> api.ClusterReply:
        def decide(state: PlannerState, moment: Moment) -> tuple[tuple[Written, ...], str]:
            joined, changed = membership.join_cluster(state, request)
            return (joined,) if changed else (), joined.cluster

        name = await self._ask("join_cluster", decide)
        return answers.cluster_reply(self.state, self.state.clusters[name], self._clocks.steady())

    async def set_cluster_phase(self, request: api.SetClusterPhaseRequest) -> api.ClusterMovesReply:
        def decide(state: PlannerState, moment: Moment) -> tuple[tuple[Written, ...], api.ClusterMovesReply]:
            decided = membership.set_phase(state, request, moment)
            return decided.events, decided.reply

        return await self._ask("set_cluster_phase", decide)

    async def leave_cluster(self, request: api.LeaveClusterRequest) -> api.ClusterMovesReply:
        def decide(state: PlannerState, moment: Moment) -> tuple[tuple[Written, ...], api.ClusterMovesReply]:
            decided = membership.leave(state, request, moment)
            return decided.events, decided.reply

        return await self._ask("leave_cluster", decide)

    async def freeze(self, request: api.FreezeRequest) -> api.Brake:
        by = CALLER.get().name
        return await self._ask("freeze", lambda state, moment: braking.freeze(state, request, by, moment))

    async def unfreeze(self, request: api.UnfreezeRequest) -> api.Brake:
        by = CALLER.get().name
        return await self._ask("unfreeze", lambda state, moment: braking.unfreeze(state, request, by, moment))

    async def confirm(self, request: api.ConfirmRequest) -> api.Confirmation:
        by = CALLER.get().name
        return await self._ask("confirm", lambda state, moment: braking.confirm(state, request, by, moment))

    async def list_brakes(self, request: api.ListBrakesRequest) -> api.ListBrakesReply:
        await self._readable()
        return replace(braking.list_brakes(self.state, self._clocks.steady()), stale=not self.is_active)

    async def plan(self, request: api.ApplyRequest) -> api.PlacementReply:
        await self._readable()
        moment = Moment(self._clocks.steady(), self._clocks.wall_ms(), Generation(0, 0))
        reply = decisions.apply(self.state, replace(request, idempotency_key=""), moment).reply
        return replace(reply, stale=not self.is_active)

    async def explain(self, request: api.ExplainRequest) -> api.ExplainReply:
        await self._readable()
        record = await self._explanations.recorded(request) if request.decision else None
        moment = Moment(self._clocks.steady(), self._clocks.wall_ms(), Generation(0, 0))
        reply = await self._explanations.explain(self.state, request, moment, record)
        return replace(reply, stale=not self.is_active)

    async def export(self, request: api.ExportRequest) -> AsyncIterator[api.ExportReply]:
        await self._readable()
        for reply in exports.export(self.state, self._clocks.steady(), self._clocks.wall_ms(), self._bus.fleet):
            yield reply
            await self._readable()

    async def get(self, request: api.GetRequest) -> api.WorkloadReply:
        await self._readable()
        reply = answers.get_workload(self.state, request)
        if request.history:
            key = (reply.placement.namespace, reply.placement.name)
            history = await self._projection.history(*key, min(request.history, self._settings.history_kept_max))
            reply = replace(reply, history=history)
        return replace(reply, placement=replace(reply.placement, stale=not self.is_active))

    async def list(self, request: api.ListRequest) -> api.ListReply:
        await self._readable()
        return replace(answers.list_workloads(self.state, request), stale=not self.is_active)

    async def capacity(self, request: api.CapacityRequest) -> api.CapacityReply:
        await self._readable()
        reply = answers.capacity(self.state, request, self._clocks.steady())
        return replace(reply, stale=not self.is_active)

    async def list_clusters(self, request: api.ListClustersRequest) -> api.ListClustersReply:
        await self._readable()
        return replace(answers.list_clusters(self.state, self._clocks.steady()), stale=not self.is_active)

    async def watch(self, request: api.WatchRequest) -> AsyncIterator[api.WatchReply]:
        await self._readable()
        positions = dict(self._follower.positions) if self._follower is not None else {}
        async for reply in self._watches.watch(request, self._current, positions):
            yield reply

    def leader(self) -> str:
        turn = self._follower.turn if self._follower is not None else None
        return turn.instance.rpartition("@")[2] if turn is not None else ""

    async def _ask(self, verb: str, decide: Callable[[PlannerState, Moment], tuple[tuple[Written, ...], T]]) -> T:
        self._refuse_unless_able(1)
        answer: T = await self._answered(self._put(verb, decide))
        return answer

    def _refuse_unless_able(self, requests: int) -> None:
        if not self.is_active:
            raise RequestError("UNAVAILABLE", f"this planner is a standby; the active one is at {self.leader() or '?'}")
        if len(self._waiting) + requests > self._settings.requests_waiting_max:
            raise RequestError("RESOURCE_EXHAUSTED", f"{len(self._waiting)} requests wait already; {RETRY}")

    def _put(self, verb: str, decide: Decide, batch: object = None) -> Waiting:
        waiting = Waiting(
            decide, asyncio.get_running_loop().create_future(), verb, tracing.inject(), self._clocks.steady(), batch
        )
        self._waiting.append(waiting)
        self._asked.set()
        return waiting

    async def _answered(self, waiting: Waiting) -> Any:
        try:
            async with asyncio.timeout(self._settings.request_seconds):
                return await waiting.answer
        except TimeoutError:
            raise RequestError("UNAVAILABLE", f"no answer from the log in time: {RETRY}") from None

    async def _readable(self) -> None:
        """Waits out a write under way, so that nothing is answered that is not in the log."""
        if not self._loaded:
            raise RequestError("UNAVAILABLE", "this planner has just started and still reads the log")
        try:
            async with asyncio.timeout(self._settings.request_seconds):
                await self._written.wait()
        except TimeoutError:
            raise RequestError("UNAVAILABLE", "a write to the log does not end") from None


def _fail(waiting: Waiting, error: RequestError) -> None:
    if not waiting.answer.done():
        waiting.answer.set_exception(error)
