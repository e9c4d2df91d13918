"""The service hpa: one state that follows the log, a turn in which it decides, and the answers to requests."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from weakref import WeakValueDictionary

import structlog

from hpa.core.draft import Draft
from hpa.core.heard.heard_record import HeardRecord
from hpa.core.heard.waiting_records import WaitingRecords
from hpa.core.requests import answers, declaring, reporting
from hpa.core.scaled import IsOver
from hpa.core.state import HpaState
from hpa.external_metrics.collecting import CollectingSettings, MetricCollection, find_unreadable_metrics
from hpa.external_metrics.connections import NamedConnections
from hpa.log import OWN, ScalingIntake, follower_into
from hpa.settings import HpaSettings
from spillway import api_scaling as scaling
from spillway import metrics, tracing
from spillway.addresses import SCALE_POLICIES, Tombstone
from spillway.api import RequestError
from spillway.bus import Bus, Headers, Offsets
from spillway.dead_letters import UnwritableEvent
from spillway.events import Event
from spillway.events_scaling import ScaleDecided, ScalePolicyDeclared, ScaleStateChanged
from spillway.model import NO_GENERATION, Generation
from spillway.rpc.security import current_caller_name
from spillway.running.following import Follower
from spillway.running.request_queue import Decisions, NotYet, Written
from spillway.running.standby import Standby, StandbyRole, WriterTurn

Decide = Callable[[HpaState, Generation, int], declaring.PolicyDecision]
"""Decides a request from (state, generation, wall clock). Does not change the state. Raises RequestError."""
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class CollectingOptions:
    """The connections and settings with which hpa collects values. random: spreads the questions; tests pass a seeded
    one."""

    connections: NamedConnections = field(default_factory=NamedConnections)
    settings: CollectingSettings = field(default_factory=CollectingSettings)
    random: Random = field(default_factory=Random)


@dataclass(frozen=True, slots=True)
class HpaClocks:
    """The clocks of the service.

    wall_ms: milliseconds of Unix time. steady: seconds that only grow.
    """

    wall_ms: Callable[[], int]
    steady: Callable[[], float]


class Hpa:
    """Answers spillway.v1.Scaling. Any number of instances follow the log; the one that has the turn decides.

    clocks.wall_ms: to find due decisions and records from the future. clocks.steady: to limit the time of a step.
    """

    def __init__(
        self, bus: Bus, settings: HpaSettings, instance: str, clocks: HpaClocks, asking: CollectingOptions | None = None
    ) -> None:
        self._bus = bus
        self._settings = settings
        self._wall_ms = clocks.wall_ms
        self._steady = clocks.steady
        self._asking = asking or CollectingOptions()
        self._collecting: MetricCollection | None = None
        self._looking: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """The lock for checking the questions of a policy, by caller. An entry disappears when no task uses it."""
        self._intake = ScalingIntake(self._new_state)
        self._follower = follower_into(self._intake, bus)
        self._state = self._intake.state
        self._has_begun = False
        self._draft: Draft | None = None
        self._heard = WaitingRecords(settings.waiting_bounds())
        self._room = asyncio.Event()
        self._origins = tracing.Origins[tuple[str, str]]()
        role = StandbyRole("hpa", "ask again", metrics.HPA_ACTIVE, beside_turn=(self._collect_metrics,))
        self.standby = Standby(bus, role, instance, settings, self)

    @property
    def state(self) -> HpaState:
        """The state of this instance; for reading only."""
        return self._state

    @property
    def is_active(self) -> bool:
        return self.standby.is_active

    def active_instance_address(self) -> str:
        return self.standby.active_instance_address()

    async def run(self, stopping: asyncio.Event) -> None:
        """Follows the log until `stopping` is set, and decides during its turn. At the end waits for the last write."""
        await self.standby.run(stopping)

    def begin_life(self) -> Follower:
        self._heard.remove_all_records()
        self._intake = ScalingIntake(self._new_state)
        self._follower = follower_into(self._intake, self._bus)
        return self._follower

    def use_new_state(self) -> None:
        self._state = self._intake.state

    def _new_state(self, partition_of: Callable[[str], int]) -> HpaState:
        return HpaState(self._settings.rules(), partition_of)

    # ── The turn ────────────────────────────────────────────────────────────────────────────────────────────────

    async def take_turn(self, turn: WriterTurn) -> None:
        self._intake.hear = self._queue_records
        self._follower.stop_following(OWN)
        self._has_begun = False
        self.standby.requests.asked.set()
        log.info("turn taken", epoch=turn.epoch, policies=len(self._state.scaled))

    async def _collect_metrics(self) -> None:
        """Collects the external metrics of the declared policies while this instance has the turn."""
        asking = self._asking
        self._collecting = MetricCollection(
            self._bus.publish, asking.connections, asking.settings, self._wall_ms, asking.random
        )
        for scaled in self._state.scaled.values():
            self._collecting.start_questions(scaled.declared)
        await self._collecting.run()

    def _update_collection(self, event: Written) -> None:
        """Passes a declared or deleted policy to `MetricCollection` once its event is in the log."""
        if self._collecting is None:
            return
        if isinstance(event, ScalePolicyDeclared):
            self._collecting.start_questions(event)
        elif isinstance(event, Tombstone) and event.address.topic is SCALE_POLICIES:
            namespace, _, name = event.address.key.partition("/")
            self._collecting.stop_questions(namespace, name)

    def step_down(self) -> None:
        self._collecting = None
        self._room.set()
        metrics.SCALE_POLICIES.set(0)

    async def _queue_records(self, records: Sequence[HeardRecord], positions: Offsets) -> None:
        """Queues input records of the turn. Returns when more may be read. positions: the read offsets after them.

        Drops values where a namespace has more than its share, or where no place is free.
        """
        state = self._state
        for heard in records:
            state.positions.note_waiting_record(heard)
        state.positions.note_reached_offsets(positions.items())
        if not records:
            return
        dropped = self._heard.add_records(records)
        state.positions.note_dropped_records(dropped)
        if dropped:
            state.dropped["too many"] = state.dropped.get("too many", 0) + len(dropped)
        self.standby.requests.asked.set()
        while self._heard.is_full and not self.standby.is_ending:
            self._room.clear()
            await self._room.wait()

    def pause_seconds(self) -> float:
        """Returns the seconds until the next decision is due."""
        due_ms = self._state.next_due_ms()
        longest = self._settings.idle_seconds
        return longest if due_ms is None else min(max(due_ms - self._wall_ms(), 1) / 1000, longest)

    def decide_step(self, turn: WriterTurn) -> Decisions:
        """Decides requests, input records, due workloads, and records that the earlier turn left undecided.

        It stops after step_seconds; the next step goes on with the rest. A step longer than the transaction time-out
        would lose the turn, and the next active instance would lose it by the same records.
        """
        state, decided = self._state, Decisions()
        if not self._has_begun:
            state.take_turn(turn.next_generation, self._wall_ms(), 0)
        self._has_begun = True
        was_behind = state.is_behind
        self.standby.requests.requeue_due_requests()
        self.standby.requests.decide_next_group(turn.next_generation, decided, self._apply_draft)
        self._decide_heard(decided, self._make_time_limit())
        fired = state.make_due_decisions(self._wall_ms(), self._settings.dues_in_group_max, self._make_time_limit())
        self._add_events(decided, fired, tracing.clock_ns())
        if was_behind or state.is_behind:  # Requests that wait for the rest are decided again in the next step.
            self.standby.requests.asked.set()
        self._add_events(decided, state.take_unwritten_states(), tracing.clock_ns())
        return decided

    def _apply_draft(self, _: Sequence[Written]) -> None:
        """Applies the draft of the last decided request, once the records of its events have been built."""
        if self._draft is not None:
            self._draft.apply_to(self._state)
            self._draft = None

    def _make_time_limit(self) -> IsOver:
        """Returns a function that returns True once step_seconds have passed from now on."""
        until = self._steady() + self._settings.step_seconds
        return lambda: self._steady() >= until

    def _decide_heard(self, decided: Decisions, is_over: IsOver) -> None:
        """Decides records that wait. Namespaces take turns, so that the records of one do not delay the others."""
        for _ in range(min(len(self._heard), self._settings.records_in_group_max)):
            heard, started_ns = self._heard.next_record(), tracing.clock_ns()
            if heard.workload in self._state.scaled:
                self._origins.note_origin(heard.workload, heard.trace)
            events, is_heard = self._state.decide_on_record_in_time(heard, self._wall_ms(), is_over)
            self._add_events(decided, events, started_ns)
            if not is_heard:  # Decisions before this record used up the time.
                self._heard.pass_turn(heard.workload[0])
                break
            self._heard.remove_next_record()
            if is_over():
                break
        self._room.set()
        if self._heard:
            self.standby.requests.asked.set()

    def _add_events(self, decided: Decisions, events: Sequence[Event], started_ns: int) -> None:
        """Adds events to the decisions. A new size continues the newest trace among the inputs since the last size."""
        for event in events:
            trace: Headers = ()
            if isinstance(event, ScaleDecided):
                origin = self._origins.take_origin((event.namespace, event.name)) or None
                about = {"spillway.workload": f"{event.namespace}/{event.name}"}
                trace = tracing.record_decision("decide scale", origin, started_ns, about)
            try:
                decided.add_events((event,), trace)
            except UnwritableEvent as error:
                if not isinstance(event, ScaleDecided | ScaleStateChanged):
                    raise
                self._state.undo_unwritable_event(event, error)

    def note_written_events(self, events: Sequence[Written]) -> None:
        now_ms = self._wall_ms()
        for event in events:
            self._update_collection(event)
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
        failed, self._state.failed = self._state.failed, []
        metrics.SCALE_FAILED.inc(sum(1 for one in failed if not one.topic))
        for one in failed:
            if one.topic:
                why = "an input record was ignored: applying it failed because of a bug"
                log.error(why, workload="/".join(one.key), topic=one.topic, trace=one.trace)
            elif not one.again:
                log.error(
                    "a decision failed because of a bug: the workload keeps its size",
                    workload="/".join(one.key),
                    trace=one.trace,
                )

    # ── spillway.v1.Scaling ─────────────────────────────────────────────────────────────────────────────────────

    async def declare_policy(self, request: scaling.DeclarePolicyRequest) -> scaling.PolicyReply:
        if request.plan_only:
            await self.standby.wait_until_readable()
        warnings = await self._unreadable_metric_warnings(request)

        def known_warnings(_: ScalePolicyDeclared) -> tuple[str, ...]:
            return warnings

        if request.plan_only:
            planned = declaring.declare_policy(self._state, request, Generation(0, 0), self._wall_ms(), known_warnings)
            return replace(planned.reply, stale=not self.is_active)

        def decide_declaration(state: HpaState, generation: Generation, now_ms: int) -> declaring.PolicyDecision:
            try:
                return declaring.declare_policy(state, request, generation, now_ms, known_warnings)
            except declaring.LeftBefore as left:
                raise NotYet(partial(state.is_fully_decided, left.key)) from None

        return await self._submit_request("declare_policy", decide_declaration)

    async def _unreadable_metric_warnings(self, request: scaling.DeclarePolicyRequest) -> tuple[str, ...]:
        """Returns the warnings about metrics that the policy needs and hpa cannot read.

        Requests of one caller are checked one after another. So many requests delay only the caller that sent them.
        """
        async with self._looking.setdefault(current_caller_name(), asyncio.Lock()):
            await asyncio.sleep(0)
            try:
                _, policy = declaring.read_request(self._state, request, NO_GENERATION, self._wall_ms())
            except RequestError:  # The decision of the request reports this error.
                return ()
            return await find_unreadable_metrics(self._asking.connections, policy)

    async def delete_policy(self, request: scaling.DeletePolicyRequest) -> scaling.PolicyReply:
        return await self._submit_request(
            "delete_policy", lambda state, generation, now_ms: declaring.delete_policy(state, request)
        )

    async def get_policy(self, request: scaling.GetPolicyRequest) -> scaling.PolicyReply:
        await self.standby.wait_until_readable()
        reply = answers.policy_reply(self._state, answers.find_policy(self._state, request))
        return replace(reply, stale=not self.is_active)

    async def list_policies(self, request: scaling.ListPoliciesRequest) -> scaling.ListPoliciesReply:
        await self.standby.wait_until_readable()
        page = answers.PolicyPage(self._state, request)
        while page.add_next_policy():
            await asyncio.sleep(0)
        return replace(page.reply(), stale=not self.is_active)

    async def explain_policy(self, request: scaling.ExplainPolicyRequest) -> scaling.ExplainPolicyReply:
        await self.standby.wait_until_readable()
        reply = answers.explain_workload(self._state, answers.find_policy(self._state, request))
        return replace(reply, policy=replace(reply.policy, stale=not self.is_active))

    async def report(self, request: scaling.ReportRequest) -> scaling.ReportReply:
        """Publishes reported values to the log. Any instance can do this, as any service may publish them."""
        await self.standby.wait_until_readable()
        reports: tuple[reporting.Reported, ...] = (*request.loads, *request.backlogs)
        reporting.check_report_count(len(reports))
        check = reporting.ReportCheck(self._state, self._wall_ms())
        taken: list[reporting.Reported] = []
        answers: list[scaling.ReportAnswer] = []
        for begin in range(0, len(reports), reporting.ITEMS_AT_ONCE):
            some, of_some = check.accept_reports(reports[begin : begin + reporting.ITEMS_AT_ONCE])
            taken += some
            answers += of_some
            await asyncio.sleep(0)
        if taken:
            await self._bus.publish(*taken)
        loads = len(request.loads)
        return scaling.ReportReply(tuple(answers[:loads]), tuple(answers[loads:]))

    async def _submit_request(self, verb: str, decide: Decide) -> scaling.PolicyReply:
        def decide_request(generation: Generation) -> tuple[list[Written], scaling.PolicyReply]:
            events, reply, self._draft = decide(self._state, generation, self._wall_ms())
            return events, reply

        return await self.standby.ask_for_decision(decide_request, verb, current_caller_name())
