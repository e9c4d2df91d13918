"""Runs the planner: reads the log into one state, decides while it has the turn, and answers after the write."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

import structlog

from planner.api import batches, exports
from planner.api.admissions import Admissions
from planner.api.adoption_inquiries import AdoptionQuestions
from planner.api.adoptions import Adoptions
from planner.api.answer_call import Decide, T
from planner.api.confined import clusters_seen_by
from planner.api.explanations import Explanations
from planner.api.past_decisions import DecisionsPage, PastDecisions
from planner.api.prepared import prepare_request
from planner.api.watches import CurrentState, Watches
from planner.core.background.round import (
    DecisionClock,
    RoundMemory,
    RoundStep,
    StepKind,
    Subject,
    apply_events,
    retry_workloads,
    steps_before_requests,
    steps_of_round,
)
from planner.core.knowledge.all_clusters import has_unheard_cluster
from planner.core.knowledge.state import PlannerState
from planner.core.knowledge.subject import Moment
from planner.core.requests import answers, autoscaling, braking, decisions, disowning, membership, node_list
from planner.core.requests.decisions import UndecidedRequest, UnheardRequest
from planner.core.requests.patience import BindWait, UndecidedRequests, highest_priority_by_cluster
from planner.core.requests.queueing import (
    ANY,
    FIRST,
    QueuedRequest,
    QueuePlace,
    declaration_bytes_written,
    queue_place_of,
)
from planner.log.intake import PlannerIntake, follower_into
from planner.log.projection import Projection, Store
from planner.metrics import age_seconds_by_cluster, hide_gauges, show_brakes, show_state
from planner.settings import PlannerSettings
from spillway import api, metrics, reasons, tracing
from spillway.addresses import CAPACITY_CHANGES, SCALE, WORKLOAD_STATUS
from spillway.api import RequestError
from spillway.bus import Bus, BusUnavailable, Headers, Offsets, Record
from spillway.dead_letters import UnwritableEvent
from spillway.events import PlacementDecided
from spillway.feasibility.cluster_view import WorkloadKey
from spillway.model import Generation
from spillway.rpc.security import CALLER, count_further_calls, current_caller_name
from spillway.running.failed_decisions import FailedDecisions
from spillway.running.following import Follower
from spillway.running.request_queue import Decisions, NotYet, WaitingCall, Written
from spillway.running.standby import Standby, StandbyRole, WriterTurn
from spillway.store import StoreUnavailable

log = structlog.get_logger()

RETRY = "retry with the same idempotency key"


@dataclass(frozen=True, slots=True)
class PlannerClocks:
    """The clocks of the planner.

    steady: seconds that only grow, for ages and timers.
    wall_ms: milliseconds of the calendar clock, for the times in records and for tombstones, never for order.
    """

    steady: Callable[[], float]
    wall_ms: Callable[[], int]


class Planner:
    """Answers spillway.v1.Planner. Any number of instances follow; the one whose turn it is decides."""

    def __init__(
        self,
        bus: Bus,
        store: Store,
        settings: PlannerSettings,
        instance: str,
        clocks: PlannerClocks,
        reader: Store | None = None,
    ) -> None:
        """Begins without state. reader: the store for callers' reads, if it is not the one for writes."""
        self._bus = bus
        self._settings = settings
        self._clocks = clocks
        self._current = CurrentState(PlannerState(settings.rules()))
        self._intake = PlannerIntake(self.state, clocks.steady, self._on_records)
        self._watches = Watches(bus, settings.watches_max, settings.watch_events_waiting_max, clocks.steady)
        self._questions = AdoptionQuestions(bus)
        role = StandbyRole(
            "planner",
            RETRY,
            metrics.PLANNER_ACTIVE,
            beside_life=(self._questions.run, self._note_caught_up),
            beside_turn=(self._prove_statuses,),
        )
        self.standby = Standby(bus, role, instance, settings, self)
        self._adoptions = Adoptions(
            self._questions,
            self._queue_and_answer,
            lambda: bus.fleet_id,
            settings.find_seconds,
            settings.recover_events_max,
        )
        self._admissions = Admissions(lambda: self.state, self._queue_and_answer, settings.shape_wait_seconds)
        self._looked_at = 0.0
        self._lowest_asked: int | None = None
        self._scaled_by = tracing.Origins[WorkloadKey]()
        self._memory = RoundMemory(settings.headroom_pace())
        self._failed = FailedDecisions[Subject](clocks.steady, settings.failed_pause_seconds)
        self._patience = UndecidedRequests(
            settings.rules(),
            settings.request_seconds,
            settings.asked_again_seconds,
            settings.requests_waiting_max,
            settings.refuse_after_seconds,
        )
        self._projection = Projection(bus, store, lambda: self.state, settings.history_bounds())
        self._past_decisions = PastDecisions(
            reader or store, settings.history_reads_caller_max, settings.history_page_bytes
        )
        self._explanations = Explanations(self._past_decisions.read_all, settings.history_kept_max)

    @property
    def state(self) -> PlannerState:
        """Returns the state that this instance has read so far. Callers must not change it."""
        return self._current.state

    @property
    def is_active(self) -> bool:
        return self.standby.is_active

    def active_instance_address(self) -> str:
        return self.standby.active_instance_address()

    async def run(self, stopping: asyncio.Event) -> None:
        """Follows the log until `stopping` is set, and decides while this instance has the turn.

        At the end it waits for the write that is under way.
        """
        with metrics.CAPACITY_AGE.collecting_values_from(
            lambda: age_seconds_by_cluster(self.state, self._clocks.steady())
        ):
            await self.standby.run(stopping, lambda: self._projection.run(lambda: self.is_active))

    def begin_life(self) -> Follower:
        self._intake = PlannerIntake(PlannerState(self._settings.rules()), self._clocks.steady, self._on_records)
        self._follower = follower_into(self._intake, self._bus)
        return self._follower

    def use_new_state(self) -> None:
        self._current.state = self._intake.state

    def _on_records(self, records: tuple[Record, ...], positions: Offsets) -> None:
        self._admissions.note_admission_answers(records)
        self._watches.publish_changes(records, positions)
        self._projection.note_records(records, positions)
        for record in records if tracing.is_on() else ():
            if record.topic == SCALE.name:
                namespace, _, name = record.key.partition("/")
                self._scaled_by.note_origin((namespace, name), tracing.select_trace_headers(record.headers))
        if self.is_active and self.state.scalings.due:
            self.standby.requests.asked.set()

    # ── The turn ────────────────────────────────────────────────────────────────────────────────────────────────

    async def take_turn(self, turn: WriterTurn) -> None:
        await self._await_cluster_reports()
        self._intake.writing = True
        self._projection.begin_turn()
        self._memory = RoundMemory(self._settings.headroom_pace())
        log.info("turn taken", epoch=turn.epoch, workloads=len(self.state.workloads))

    async def _prove_statuses(self) -> None:
        """Reads workload-status to its end whenever a decision that cannot be undone needs proven statuses."""
        while True:
            await asyncio.sleep(self._settings.tick_seconds)
            asked = self.state.owners.take_statuses_to_prove()
            if asked:
                with suppress(BusUnavailable):  # Without the bus nothing is proven; the statuses are asked about again.
                    await self._follower.wait_until_caught_up(WORKLOAD_STATUS)
                    self.state.owners.mark_proven(asked)

    async def _note_caught_up(self) -> None:
        """Proves periodically that all capacity changes were read. No unread change is older than the last proof."""
        while True:
            asked_at = self._clocks.steady()
            with suppress(BusUnavailable):  # Records read next may then be as old as the last proof.
                await self._follower.wait_until_caught_up(CAPACITY_CHANGES)
                self._intake.caught_up_at = asked_at
            await asyncio.sleep(self._settings.turn_asked_seconds)

    async def _await_cluster_reports(self) -> None:
        """Waits, at most hear_seconds_max, for a message of each cluster. Without one, a cluster's age is unknown."""
        until = self._clocks.steady() + self._settings.hear_seconds_max
        while self._clocks.steady() < until and has_unheard_cluster(self.state.clusters):
            await asyncio.sleep(self._settings.tick_seconds)

    def pause_seconds(self) -> float:
        return self._settings.tick_seconds

    def decide_step(self, turn: WriterTurn) -> Decisions:
        """Decides queued requests, declares decisions of scale policies, and takes the steps of a round that is due."""
        decided = Decisions()
        self._serve_before_requests(turn, decided)
        self.standby.requests.decide_next_group(turn.next_generation, decided, self._apply_events)
        self._lowest_asked = self.standby.requests.lowest_priority
        self._declare_scale_decisions(turn, decided)
        if self._clocks.steady() - self._looked_at >= self._settings.tick_seconds:
            self._looked_at = self._clocks.steady()
            self._run_round(turn, decided)
        return decided

    def _serve_before_requests(self, turn: WriterTurn, decided: Decisions) -> None:
        """Retries waiting workloads of a higher priority than the queued requests, so that they get free room first."""
        lowest, self._lowest_asked = self._lowest_asked, None
        awaited = highest_priority_by_cluster(self.standby.requests.held_up)
        moments = DecisionClock(self._clocks.steady, lambda: self._next_moment(turn))
        for step in steps_before_requests(self.state, moments, lowest, self._failed.decide_unless_paused, awaited):
            self._apply_round_step(step, decided)

    def _apply_round_step(self, step: RoundStep, decided: Decisions) -> None:
        if self._apply_decision(step.events, step.subject, decided):
            _log_step(step)

    def _apply_decision(
        self, events: Sequence[Written], subject: Subject, decided: Decisions, trace: Headers = ()
    ) -> bool:
        """Applies a decision made without a request.

        Returns False if no record can hold one of the events. Then nothing changes, and the planner makes no decision
        about this subject for a while.
        """
        try:
            decided.add_events(events, trace)
        except UnwritableEvent as error:
            self._failed.note_failure(subject, error)
            return False
        self._apply_events(events)
        return True

    def note_written_events(self, events: Sequence[Written]) -> None:
        """Passes written events to the store's projection. The state has had these events since the decision."""
        self._projection.queue_decisions(events)

    def step_down(self) -> None:
        """Hides this instance's gauges: only the leader shows the state."""
        hide_gauges()

    def _declare_scale_decisions(self, turn: WriterTurn, decided: Decisions) -> None:
        """Declares the sizes that scale policies decided, in the same transaction.

        The number of sizes in one step is bounded, so that requests do not wait long.
        """
        for key in self.state.scalings.next_due_workloads(self._settings.scales_in_group_max):
            started, started_ns = self._clocks.steady(), tracing.clock_ns()
            declare = partial(
                autoscaling.declare_scale_decision, self.state, self.state.workloads[key], self._next_moment(turn)
            )
            events = self._failed.decide_unless_paused(key, declare)
            trace = tracing.record_decision("decide autoscale", self._scaled_by.take_origin(key), started_ns)
            if events is None or not self._apply_decision(events, key, decided, trace):
                self.state.scalings.put_off_workload(key)
            self._count_decision("autoscale", started)
        if self.state.scalings.due:
            self.standby.requests.asked.set()

    def _count_decision(self, verb: str, started: float) -> None:
        metrics.DECISIONS.labels(verb).inc()
        metrics.DECISION_SECONDS.observe(self._clocks.steady() - started)

    def _run_round(self, turn: WriterTurn, decided: Decisions) -> None:
        """Takes the steps of a round: decisions without a request, because the fleet changed or time has passed."""
        before, started_ns = len(decided.events), tracing.clock_ns()
        awaited = highest_priority_by_cluster(self.standby.requests.held_up)
        self.standby.requests.requeue_due_requests()
        retry_workloads(self.state, self._failed.take_ended_pauses())
        moments = DecisionClock(self._clocks.steady, lambda: self._next_moment(turn))
        for step in steps_of_round(self.state, self._memory, moments, self._failed.decide_unless_paused, awaited):
            self._apply_round_step(step, decided)
        if tracing.is_on() and any(isinstance(event, PlacementDecided) for event in decided.events[before:]):
            decided.set_trace_from(before, tracing.record_decision("decide afterwards", None, started_ns))
        show_state(self.state)
        show_brakes(self.state.brakes)

    def _apply_events(self, events: Sequence[Written]) -> None:
        apply_events(self.state, events, self._clocks.steady())

    def _next_moment(self, turn: WriterTurn) -> Moment:
        return Moment(self._clocks.steady(), self._clocks.wall_ms(), turn.next_generation())

    # ── spillway.v1.Planner ─────────────────────────────────────────────────────────────────────────────────────

    def prepare_request(self, request: T) -> T:
        """Returns the request with its manifests parsed. The server calls it in a thread when manifests are long."""
        return cast(T, prepare_request(request, self._settings.batch_items_max))

    async def apply(self, request: api.ApplyRequest) -> api.PlacementReply:
        request = self.prepare_request(request)
        await self._admissions.await_admitted_shapes((request,))
        place = self._note_priority(self._counted_place(request))
        return await self._queue_and_answer(
            "apply", lambda state, moment: decisions.decide_apply(state, request, moment).events_and_reply, place
        )

    async def scale(self, request: api.ScaleRequest) -> api.PlacementReply:
        place = self._note_priority(self._counted_place(request))
        return await self._queue_and_answer(
            "scale", lambda state, moment: decisions.decide_scale(state, request, moment).events_and_reply, place
        )

    async def plan_batch(self, request: api.PlanBatchRequest) -> api.PlanBatchReply:
        request = self.prepare_request(request)
        asked = batches.read_batch(request, self._settings.batch_items_max)
        self.standby.check_may_ask(len(asked), current_caller_name())  # Again below: the wait may have ended the turn.
        await self._admissions.await_admitted_shapes([item.apply for item in request.items if item.apply is not None])
        self.standby.check_may_ask(len(asked), current_caller_name())
        sizes = batches.checked_sizes(self.state, asked, self._settings.batch_bytes_max)
        count_further_calls(sum(size // self._settings.call_bytes for size in sizes), taken=len(asked))
        places = [self._note_priority(queue_place_of(self.state, item.asked)) for item in asked]
        waiting = [
            self._queue_request(item.verb, item.decide, of, request) for item, of in zip(asked, places, strict=True)
        ]
        answers = map(self.standby.requests.wait_for_answer, waiting)
        return batches.batch_reply(await asyncio.gather(*answers, return_exceptions=True), CALLER.get())

    async def delete(self, request: api.DeleteRequest) -> api.PlacementReply:
        place = self._counted_place(request)
        return await self._queue_and_answer(
            "delete", lambda state, moment: decisions.decide_delete(state, request, moment).events_and_reply, place
        )

    async def migrate(self, request: api.MigrateRequest) -> api.PlacementReply:
        place = self._counted_place(request)
        return await self._queue_and_answer(
            "migrate", lambda state, moment: decisions.decide_migrate(state, request, moment).events_and_reply, place
        )

    async def adopt(self, request: api.AdoptRequest) -> api.PlacementReply:
        return await self._adoptions.adopt(request)

    async def disown(self, request: api.DisownRequest) -> api.PlacementReply:
        place = self._counted_place(request)
        return await self._queue_and_answer(
            "disown", lambda state, moment: disowning.decide_disown(state, request, moment).events_and_reply, place
        )

    async def list_orphans(self, request: api.ListOrphansRequest) -> api.ListOrphansReply:
        await self.standby.wait_until_readable()
        return replace(answers.list_orphans(self.state, request), stale=not self.is_active)

    async def recover_fleet(self, request: api.RecoverFleetRequest) -> api.RecoverFleetReply:
        return await self._adoptions.recover_fleet(request)

    async def join_cluster(self, request: api.JoinClusterRequest) -> api.ClusterReply:
        def decide_join(state: PlannerState, moment: Moment) -> tuple[tuple[Written, ...], tuple[str, tuple[str, ...]]]:
            joined, changed = membership.join_cluster(state, request, moment.generation)
            return (joined,) if changed else (), (joined.cluster, membership.tier_warnings(state, joined))

        name, warnings = await self._queue_and_answer("join_cluster", decide_join)
        view = self.state.clusters.get(name)
        if view is None:  # The turn ended meanwhile, and the log is read again from its beginning.
            raise RequestError(
                "UNAVAILABLE", f"cluster {name} has joined, and the planner reads the log again: repeat the request"
            )
        return replace(answers.cluster_reply(self.state, view, self._clocks.steady()), warnings=warnings)

    async def set_cluster_phase(self, request: api.SetClusterPhaseRequest) -> api.ClusterMovesReply:
        def decide_phase(state: PlannerState, moment: Moment) -> tuple[tuple[Written, ...], api.ClusterMovesReply]:
            decided = membership.set_phase(state, request, moment)
            return decided.events, decided.reply

        return await self._queue_and_answer("set_cluster_phase", decide_phase)

    async def leave_cluster(self, request: api.LeaveClusterRequest) -> api.ClusterMovesReply:
        def decide_leave(state: PlannerState, moment: Moment) -> tuple[tuple[Written, ...], api.ClusterMovesReply]:
            decided = membership.leave_cluster(state, request, moment)
            return decided.events, decided.reply

        return await self._queue_and_answer("leave_cluster", decide_leave)

    async def freeze(self, request: api.FreezeRequest) -> api.Brake:
        by = CALLER.get().name
        return await self._queue_and_answer(
            "freeze", lambda state, moment: braking.decide_freeze(state, request, by, moment), FIRST
        )

    async def unfreeze(self, request: api.UnfreezeRequest) -> api.Brake:
        by = CALLER.get().name
        return await self._queue_and_answer(
            "unfreeze", lambda state, moment: braking.decide_unfreeze(state, request, by, moment)
        )

    async def confirm(self, request: api.ConfirmRequest) -> api.Confirmation:
        by = CALLER.get().name
        return await self._queue_and_answer(
            "confirm", lambda state, moment: braking.decide_confirm(state, request, by, moment)
        )

    async def list_brakes(self, request: api.ListBrakesRequest) -> api.ListBrakesReply:
        await self.standby.wait_until_readable()
        return replace(braking.list_brakes(self.state, self._clocks.steady()), stale=not self.is_active)

    async def plan(self, request: api.ApplyRequest) -> api.PlacementReply:
        await self.standby.wait_until_readable()
        moment = Moment(self._clocks.steady(), self._clocks.wall_ms(), Generation(0, 0))
        reply = decisions.decide_apply(self.state, replace(request, idempotency_key=""), moment).reply
        return replace(reply, stale=not self.is_active)

    async def explain(self, request: api.ExplainRequest) -> api.ExplainReply:
        await self.standby.wait_until_readable()
        record = await self._explanations.find_decision(request) if request.decision else None
        moment = Moment(self._clocks.steady(), self._clocks.wall_ms(), Generation(0, 0))
        reply = await self._explanations.explain_placement(self.state, request, moment, record)
        return replace(reply, stale=not self.is_active)

    async def export(self, request: api.ExportRequest) -> AsyncIterator[api.ExportReply]:
        await self.standby.wait_until_readable()
        for reply in exports.export_state(
            self.state, self._clocks.steady(), self._clocks.wall_ms(), self._bus.fleet_id
        ):
            yield reply
            await self.standby.wait_until_readable()

    async def get(self, request: api.GetRequest) -> api.WorkloadReply:
        await self.standby.wait_until_readable()
        page = await self._decisions_page(request)
        reply = answers.get_workload(self.state, request, page.records)
        placement = replace(reply.placement, stale=not self.is_active)
        return replace(reply, placement=placement, history_next=page.next_from)

    async def _decisions_page(self, request: api.GetRequest) -> DecisionsPage:
        """Returns the past decisions that the reply shows.

        Raises StoreUnavailable only if the caller asked for the history. Otherwise the reply goes without it.
        """
        count = answers.history_count(self.state, request, self._settings.history_kept_max)
        if not count:
            return DecisionsPage()
        try:
            return await self._past_decisions.read_page(*answers.workload_key(request), count, request.history_from)
        except StoreUnavailable:
            if request.history:
                raise
            return DecisionsPage()

    async def list(self, request: api.ListRequest) -> api.ListReply:
        await self.standby.wait_until_readable()
        return replace(answers.list_workloads(self.state, request), stale=not self.is_active)

    async def capacity(self, request: api.CapacityRequest) -> api.CapacityReply:
        await self.standby.wait_until_readable()
        reply = answers.capacity_reply(self.state, request, self._clocks.steady())
        return replace(reply, stale=not self.is_active)

    async def list_clusters(self, request: api.ListClustersRequest) -> api.ListClustersReply:
        await self.standby.wait_until_readable()
        reply = answers.list_clusters(self.state, self._clocks.steady())
        return clusters_seen_by(CALLER.get(), replace(reply, stale=not self.is_active))

    async def list_nodes(self, request: api.ListNodesRequest) -> api.ListNodesReply:
        await self.standby.wait_until_readable()
        reply = node_list.list_nodes(self.state, request, self._clocks.steady())
        return replace(reply, stale=not self.is_active)

    async def watch(self, request: api.WatchRequest) -> AsyncIterator[api.WatchReply]:
        await self.standby.wait_until_readable()
        async for reply in self._watches.watch(request, self._current, self.standby.positions):
            yield reply

    def _counted_place(self, request: QueuedRequest) -> QueuePlace:
        """Returns a request's place. Raises TooManyCalls if what it writes is beyond its caller's rate."""
        count_further_calls(declaration_bytes_written(self.state, request) // self._settings.call_bytes)
        return queue_place_of(self.state, request)

    def _note_priority(self, place: QueuePlace) -> QueuePlace:
        """Lowers `_lowest_asked`, the lowest priority of the requests that are decided next. Returns the place."""
        lowest = self._lowest_asked
        self._lowest_asked = place.priority if lowest is None else min(lowest, place.priority)
        return place

    async def _queue_and_answer(self, verb: str, decide: Decide[T], place: QueuePlace = ANY) -> T:
        """Queues a request. Returns its answer once the answer is in the log. Raises RequestError."""
        self.standby.check_may_ask(1, current_caller_name())
        return await self.standby.requests.wait_for_answer(self._queue_request(verb, decide, place))

    def _queue_request(self, verb: str, decide: Decide[T], place: QueuePlace, batch: object = None) -> WaitingCall[T]:
        # The order of requests about a workload is fixed here, when a call arrives. The request itself is decided in a
        # later step, perhaps several times: it goes back to the queue as long as it waits for binds.
        asked = self._patience.begin_request(place, self._clocks.steady())
        listening = self._settings.refuse_after_seconds > 0

        def decide_in_step(generation: Generation) -> tuple[Sequence[Written], T]:
            nonlocal listening
            now = self._clocks.steady()
            if not self._patience.try_take_up(asked, now):
                raise _not_decided_error("another request was asked before it and is not decided")
            patient = self._patience.may_wait_for_binds(asked, self.state.clusters, now)
            onward = self._patience.may_use_later_tiers(asked, now)
            moment = Moment(now, self._clocks.wall_ms(), generation, patient, listening, onward)
            try:
                events, reply = decide(self.state, moment)
            except UnheardRequest:
                listening = False  # The request is decided once more, without waiting.
                raise NotYet(
                    lambda: not self._patience.may_await_clusters(asked, self.state.clusters, self._clocks.steady())
                ) from None
            except UndecidedRequest as undecided:
                if self._patience.put_off_request(asked, now):
                    raise NotYet(held_up=BindWait(undecided.clusters, place.priority)) from None
                raise _not_decided_error(f"{undecided}: not refused yet") from None
            except RequestError:
                self._patience.note_decided(asked)
                raise
            self._patience.note_decided(asked)
            metrics.DECISION_WAIT_SECONDS.observe(now - asked.since)
            self._count_decision(verb, now)
            return events, reply

        waiting = self.standby.requests.put_request(
            decide_in_step, verb, batch, place.priority, place.about, current_caller_name()
        )
        waiting.late = lambda: self._patience.note_ran_out(asked, self._clocks.steady())
        return waiting


def _not_decided_error(why: str) -> RequestError:
    return RequestError("UNAVAILABLE", f"{why}: {RETRY}", reasons.NOT_DECIDED_YET)


def _log_step(step: RoundStep) -> None:
    """Logs and counts a step that no request asked for."""
    if not step.events or step.kind is StepKind.OTHER:
        return
    workload, replicas = "/".join(step.subject), dict(step.replicas)
    match step.kind:
        case StepKind.TAKEN_BACK:
            log.info("replicas taken back", workload=workload, replicas=replicas)
            for cluster, count in replicas.items():
                metrics.TAKE_BACKS.labels(cluster).inc(count)
        case StepKind.WAITS_FOR_MISSING:
            log.info("replicas wait for what is missing", workload=workload, replicas=replicas)
        case StepKind.MOVED:
            log.info("replicas moved", workload=workload, cause=step.cause)
