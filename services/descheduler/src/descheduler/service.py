"""Runs the descheduler: follows the log, decides while it has the turn, and answers requests once they are written."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf
from time import perf_counter
from typing import Final, TypeVar

import structlog

from descheduler.core import declaring, idle_report, recalling, recalls_by_name
from descheduler.core.declaring import LendingRequest
from descheduler.core.state import DeschedulerState
from descheduler.log import LendingIntake, follower_into
from descheduler.settings import DeschedulerSettings
from spillway import api_lending as lending
from spillway import metrics, tracing
from spillway.bus import Bus, Headers
from spillway.dead_letters import UnwritableEvent
from spillway.events_lending import NodeRecalled, RecallSettled
from spillway.model import NO_GENERATION, Generation
from spillway.rpc.security import CALLER, current_caller_name
from spillway.running.failed_decisions import FailedDecisions
from spillway.running.following import Follower
from spillway.running.request_queue import Decisions, Written
from spillway.running.standby import Standby, StandbyRole, WriterTurn

T = TypeVar("T")
Decide = Callable[[DeschedulerState, LendingRequest], tuple[Sequence[Written], T]]
"""Decides on a request: returns its events and its answer, and changes no state. Raises RequestError."""
FAILED_PAUSE_SECONDS: Final = 30.0
"""The time for which nothing is decided for a cluster after an error in its decision. A repetition costs little then,
and the end of the error is noticed soon. Requests are still decided."""
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class DeschedulerClocks:
    """The clocks of the descheduler. steady: seconds that only grow. wall_ms: the milliseconds of Unix time."""

    steady: Callable[[], float]
    wall_ms: Callable[[], int]


class Descheduler:
    """Answers spillway.v1.Lending. Any number of instances follow the log; the one that has the turn decides."""

    def __init__(self, bus: Bus, settings: DeschedulerSettings, instance: str, clocks: DeschedulerClocks) -> None:
        self._bus = bus
        self._settings = settings
        self._clocks = clocks
        self._intake = LendingIntake(DeschedulerState(settings.rules()))
        self._state = self._intake.state
        self._reviewed_at = -inf
        self._failed = FailedDecisions[str](lambda: asyncio.get_running_loop().time(), FAILED_PAUSE_SECONDS)
        role = StandbyRole("descheduler", "ask again", metrics.DESCHEDULER_ACTIVE)
        self.standby = Standby(bus, role, instance, settings, self)

    @property
    def state(self) -> DeschedulerState:
        """Returns the state of this instance. Callers only read it."""
        return self._state

    @property
    def is_active(self) -> bool:
        return self.standby.is_active

    def active_instance_address(self) -> str:
        return self.standby.active_instance_address()

    async def run(self, stopping: asyncio.Event) -> None:
        """Follows the log and decides in its turn until stopping is set.

        Then it finishes the write that is under way.
        """
        await self.standby.run(stopping)

    def begin_life(self) -> Follower:
        self._intake = LendingIntake(DeschedulerState(self._settings.rules()))
        return follower_into(self._intake, self._bus)

    def use_new_state(self) -> None:
        self._state = self._intake.state

    # ── The turn ────────────────────────────────────────────────────────────────────────────────────────────────

    async def take_turn(self, turn: WriterTurn) -> None:
        self._intake.writing = True
        self._reviewed_at = -inf
        log.info(
            "turn taken",
            epoch=turn.epoch,
            lent=sum(len(self._state.open_loans_by_node(one)) for one in self._state.loans),
        )

    def pause_seconds(self) -> float:
        return self._settings.look_seconds

    def decide_step(self, turn: WriterTurn) -> Decisions:
        """Decides on the requests first, then on the clusters that changed."""
        decided = self.standby.requests.decide_next_group(turn.next_generation, apply=self._apply_events)
        now_ms, now = self._clocks.wall_ms(), self._clocks.steady()
        if now - self._reviewed_at >= self._settings.review_seconds:
            self._reviewed_at = now
            self._state.mark_all_dirty()
        self._state.dirty.update(self._failed.take_ended_pauses())
        if self._state.dirty:
            began, began_ns = perf_counter(), tracing.clock_ns()
            for cluster, events in recalling.decide_dirty_clusters(
                self._state, turn.next_generation, now_ms, self._failed.decide_unless_paused
            ):
                self._apply_cluster_events(cluster, events, decided, began_ns)
            metrics.RECALL_LOOK_SECONDS.observe(perf_counter() - began)
            self._update_gauges()
        return decided

    def _apply_cluster_events(self, cluster: str, events: Sequence[Written], decided: Decisions, began_ns: int) -> None:
        """Applies the events that are due for a cluster.

        If no record can hold one of them, nothing changes, and only this cluster is left alone for a while.

        A cluster's recalls join the trace of the pods that wait there. The end of a recall joins the trace of its loan.
        """
        first = len(decided.events)
        try:
            decided.add_events(events)
        except UnwritableEvent as error:
            self._failed.note_failure(cluster, error)
            return
        self._apply_events(events)
        recall: Headers = ()
        for index, event in enumerate(events, first):
            if isinstance(event, NodeRecalled):
                if not recall:
                    origin = self._intake.origins.take_origin(cluster) or None
                    recall = tracing.record_decision("decide recall", origin, began_ns, {"k8s.cluster.name": cluster})
                decided.traces[index] = recall
            elif isinstance(event, RecallSettled):
                origin = self._intake.origins.take_origin(f"{cluster}/{event.node}")
                decided.traces[index] = tracing.record_decision(
                    "decide settled", origin, began_ns, {"k8s.node.name": event.node}
                )

    def _apply_events(self, events: Sequence[Written]) -> None:
        recalling.apply_events(self._state, events)

    def note_written_events(self, events: Sequence[Written]) -> None:
        for event in events:
            if isinstance(event, NodeRecalled):
                loan = self._state.loans.get(event.cluster, {}).get(event.node)
                supply_class = loan.supply_class if loan is not None else ""
                metrics.RECALLS.labels(event.cluster, supply_class, event.cause).inc()
                metrics.RECALL_HELD_SECONDS.observe(event.held_back_ms / 1000)
                log.info("recalled", cluster=event.cluster, node=event.node, cause=event.cause, why=event.wanted_by)
            elif isinstance(event, RecallSettled):
                log.info("settled", cluster=event.cluster, node=event.node)

    def step_down(self) -> None:
        """Sets the gauges to 0, because only the active instance counts recalls and lent nodes."""
        for gauge in (metrics.RECALLS_STANDING, metrics.RECALLS_HELD, metrics.NODES_LENT):
            gauge.set(0)

    def _update_gauges(self) -> None:
        metrics.RECALLS_STANDING.set(sum(1 for _ in self._state.open_recalls()))
        metrics.RECALLS_HELD.set(len(self._state.held_since_ms))
        metrics.NODES_LENT.set(sum(len(self._state.open_loans_by_node(cluster)) for cluster in self._state.loans))

    # ── spillway.v1.Lending ─────────────────────────────────────────────────────────────────────────────────────

    async def declare_lending(self, request: lending.DeclareLendingRequest) -> lending.LendingReply:
        if request.plan_only:
            return await self._read_answer(
                lambda state: declaring.declare_lending(state, request, self._lending_request_of_caller())[1]
            )
        return await self._submit_request(
            "declare_lending", lambda state, asked: declaring.declare_lending(state, request, asked)
        )

    async def withdraw_lending(self, request: lending.WithdrawLendingRequest) -> lending.LendingReply:
        return await self._submit_request(
            "withdraw_lending", lambda state, asked: declaring.withdraw_lending(state, request, asked)
        )

    async def list_lending(self, request: lending.ListLendingRequest) -> lending.LendingReply:
        return await self._read_answer(lambda state: declaring.list_declared(state, request))

    async def pause_lending(self, request: lending.PauseLendingRequest) -> lending.LendingReply:
        return await self._submit_request(
            "pause_lending", lambda state, asked: declaring.pause_lending(state, request, asked)
        )

    async def resume_lending(self, request: lending.ResumeLendingRequest) -> lending.LendingReply:
        return await self._submit_request(
            "resume_lending", lambda state, asked: declaring.resume_lending(state, request, asked)
        )

    async def list_lent(self, request: lending.ListLentRequest) -> lending.ListLentReply:
        await self.standby.wait_until_readable()
        return replace(recalls_by_name.list_lent(self._state, request), stale=not self.is_active)

    async def recall(self, request: lending.RecallRequest) -> lending.RecallReply:
        if request.plan_only:
            await self.standby.wait_until_readable()
            return recalls_by_name.recall_named_nodes(self._state, request, self._lending_request_of_caller())[1]
        return await self._submit_request(
            "recall", lambda state, asked: recalls_by_name.recall_named_nodes(state, request, asked)
        )

    async def idle_report(self, request: lending.IdleReportRequest) -> lending.IdleReportReply:
        await self.standby.wait_until_readable()
        return replace(
            idle_report.make_idle_report(self._state, request, self._clocks.wall_ms()), stale=not self.is_active
        )

    async def _read_answer(self, answer: Callable[[DeschedulerState], lending.LendingReply]) -> lending.LendingReply:
        await self.standby.wait_until_readable()
        return replace(answer(self._state), stale=not self.is_active)

    async def _submit_request(self, verb: str, decide: Decide[T]) -> T:
        by = CALLER.get().name

        def decide_with_generation(generation: Generation) -> tuple[Sequence[Written], T]:
            return decide(self._state, LendingRequest(by, generation, self._clocks.wall_ms()))

        return await self.standby.ask_for_decision(decide_with_generation, verb, current_caller_name())

    def _lending_request_of_caller(self) -> LendingRequest:
        return LendingRequest(CALLER.get().name, NO_GENERATION, self._clocks.wall_ms())
