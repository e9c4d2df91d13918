"""Holds the state of all workloads with their policies, and makes hpa's decisions: a state machine over records. Pure.

A standby reads what the active instance wrote, and keeps the inputs that the active instance has not decided on yet.
When it takes the turn, it first decides on these inputs in the order of their times. Then it decides at each record for
its workload, at the record's instant, and whenever a decision is due. So decisions depend only on records and their
times, never on when or how often a process was killed.
"""

import heapq
from collections import deque
from collections.abc import Callable

from msgspec.structs import replace

from hpa.core.heard.heard_record import FORGETTING, INPUTS, HeardRecord, WorkloadKey, records_in_time_order
from hpa.core.heard.inputs import WorkloadInputs
from hpa.core.heard.readings import ReadingMoment
from hpa.core.kubernetes.evaluating import CONTROLLER
from hpa.core.manifests.attached import read_attached
from hpa.core.named_inputs import (
    forget_inputs_of_changed_queries,
    forget_unnamed_inputs,
    is_input_named,
    sizing_state_after_change,
)
from hpa.core.policies import Policies
from hpa.core.positions import Positions
from hpa.core.rules import HpaRules
from hpa.core.scaled import BadPolicy, FailedDecision, IsOver, RefusedPolicy, ScaledWorkload, is_never_over
from hpa.core.sizing.composing import NextEvaluation, SizingCase, SizingResult
from hpa.core.sizing.sizing import decide_size, error_text, error_traceback
from hpa.core.stored import fit_stored_state, read_stored_state, stored_state_of
from hpa.core.unseen import UnseenRecords
from spillway.addresses import SCALE, SCALE_POLICIES, SCALE_STATE, WORKLOADS
from spillway.api import RequestError
from spillway.events import Event
from spillway.events_scaling import ScaleDecided, ScalePolicyDeclared, ScaleStateChanged
from spillway.kubernetes.manifest_text import read_object
from spillway.model import NO_GENERATION, Generation

ALL = 2**62
"""The limit on decisions in one call for callers that want no limit."""


class HpaState:
    """All workloads as one instance knows them. partition_of: the partition of a workload's key in input topics.

    dropped: the ignored input records, by reason. failed: errors of decisions and records. The service empties both.
    failing: each workload and topic with an error. dues: a heap of instants at which a workload may need a decision.
    changed: workloads whose state must be written."""

    def __init__(self, rules: HpaRules, partition_of: Callable[[str], int]) -> None:
        self.rules = rules
        self.policies = Policies()
        self.scaled, self.refused = self.policies.scaled, self.policies.refused
        self.inputs: dict[WorkloadKey, WorkloadInputs] = {}
        self.decided: dict[WorkloadKey, ScaleDecided] = {}
        self.states: dict[WorkloadKey, ScaleStateChanged] = {}
        self.positions = Positions()
        self._unseen = UnseenRecords(self.positions, rules.unseen_bytes_max)
        self.dropped: dict[str, int] = {}
        self.failed: list[FailedDecision] = []
        self.failing: set[tuple[WorkloadKey, str]] = set()
        self._partition_of = partition_of
        self._reading = True
        self._early: dict[WorkloadKey, list[HeardRecord]] = {}
        self._next: Callable[[], Generation] = lambda: NO_GENERATION
        self.dues: list[tuple[int, WorkloadKey]] = []
        self._returned: deque[WorkloadKey] = deque()
        self._turn_ms = self._told_ms = 0
        self.changed: dict[WorkloadKey, None] = {}

    # ── A standby ───────────────────────────────────────────────────────────────────────────────────────────────

    def follow_record(self, heard: HeardRecord) -> None:
        """Applies a record without a decision, on a standby. Raises BadPolicy, UnreadableState."""
        key, event = heard.workload, heard.event
        self.positions.note_applied_record(heard)
        if heard.topic in INPUTS:
            self._keep_input(key, heard)
        elif event is None:
            self._apply_tombstone(heard.topic, key)
        elif isinstance(event, ScalePolicyDeclared):
            self._attach_policy(event)
            self._restore_state_again(key)
        elif isinstance(event, ScaleDecided):
            known = self.decided.get(key)
            if known is None or event.generation > known.generation:
                self.decided[key] = event
        elif isinstance(event, ScaleStateChanged):
            before = self.states.get(key)
            if before is None or event.generation > before.generation:
                self.states[key] = event
                self._restore_state(key)

    def apply_early_records(self) -> None:
        """Applies the input records that were kept until the compacted topics were read to their end. Called once."""
        self._reading = False
        for key, records in self._early.items():
            for heard in records:
                self._keep_input(key, heard)
        self._early.clear()

    def retained_start_offsets(self) -> dict[tuple[str, int], int]:
        """Returns the offsets from which to read topics with retention: the states contain all earlier records."""
        return dict(self.positions.told)

    def _keep_input(self, key: WorkloadKey, heard: HeardRecord) -> None:
        """Keeps an input record for a later decision. Applies it at once if it was decided on or has no policy."""
        if self._reading:
            self._early.setdefault(key, []).append(heard)
            return
        scaled = self.scaled.get(key)
        if scaled is None:
            if heard.topic not in FORGETTING:
                self._apply_input(key, heard)
                self._forget_unneeded_inputs(key)
        elif not scaled.has_decided_on(f"{heard.topic}/{heard.partition}", heard.offset):
            if is_input_named(scaled.policy, heard.event):  # The active instance drops others, too.
                self._count_dropped("too many", self._unseen.keep_record(scaled, heard, self.scaled.values()))
        elif heard.topic not in FORGETTING:
            self._apply_input(key, heard)

    def _attach_policy(self, event: ScalePolicyDeclared) -> None:
        key = (event.namespace, event.name)
        known, newest = self.scaled.get(key), self.policies.policy_of(key)
        if newest is not None and newest.declared.generation >= event.generation:
            return
        try:
            manifest = read_object(event.manifest.decode(), "manifest")
            policy = read_attached(manifest, self.rules.settings.downscale_stabilization_ms)
        except Exception as error:
            why = str(error)
            if not isinstance(error, RequestError | UnicodeDecodeError):
                why = f"an error in hpa itself: {error_text(error)}"
                self.note_failure(key, SCALE_POLICIES.name, error)
            self._refuse_policy(event, why)
            raise BadPolicy(why) from error
        if known is not None:
            known.declared, known.policy = event, policy
            self.policies.put_policy(known)
            self._ensure_inputs(key).clusters.kept.clear()
            forget_unnamed_inputs(policy, self._ensure_inputs(key))
        else:
            self.policies.put_policy(ScaledWorkload(event, policy))
            self._restore_state(key)

    def _refuse_policy(self, event: ScalePolicyDeclared, why: str) -> None:
        """Stores a policy as refused. Drops the former one: nobody wants it, and a restart would lose it."""
        key = (event.namespace, event.name)
        self._detach_policy(key)
        self.policies.put_policy(RefusedPolicy(event, why))

    def _detach_policy(self, key: WorkloadKey) -> None:
        """Ends decisions for a policy. Applies its undecided records of compacted topics."""
        gone = self.policies.remove_policy(key)
        self.changed.pop(key, None)
        for heard in gone.unseen if isinstance(gone, ScaledWorkload) else ():
            self._keep_input(key, heard)

    def _restore_state_again(self, key: WorkloadKey) -> None:
        """Restores the written state again after its policy was read. It was first read under the former policy."""
        scaled = self.scaled.get(key)
        if scaled is not None:
            scaled.generation = NO_GENERATION
            self._restore_state(key)

    def _restore_state(self, key: WorkloadKey) -> None:
        scaled, written = self.scaled.get(key), self.states.get(key)
        if scaled is None or written is None or written.generation <= scaled.generation:
            return
        stored = read_stored_state(written.state)
        scaled.generation, scaled.positions = written.generation, dict(written.positions)
        self.positions.note_written_offsets(scaled.positions)
        scaled.remembered, scaled.due, scaled.changed_ms = stored.remembered, stored.due, stored.changed_ms
        scaled.last = None
        inputs = self._ensure_inputs(key)
        stored.restore_inputs(inputs)
        forget_unnamed_inputs(scaled.policy, inputs)
        for heard in self._unseen.release_records(scaled):
            self._keep_input(key, heard)

    def _apply_tombstone(self, topic: str, key: WorkloadKey) -> None:
        if topic == SCALE_POLICIES.name:
            self._detach_policy(key)
            self._forget_values(key)
            self._forget_unneeded_inputs(key)
        elif topic == SCALE.name:
            self.decided.pop(key, None)
        elif topic == SCALE_STATE.name:
            self.states.pop(key, None)

    def _forget_unneeded_inputs(self, key: WorkloadKey) -> None:
        """Drops the inputs of a workload without a policy. If it is declared or has pods, a later policy needs them."""
        inputs = self.inputs.get(key)
        if inputs is not None and key not in self.scaled and inputs.declared is None and not inputs.clusters.by_name:
            del self.inputs[key]

    def _forget_values(self, key: WorkloadKey) -> None:
        inputs = self.inputs.get(key, WorkloadInputs())
        for values in (inputs.loads, inputs.backlogs, inputs.loads_from_ms, inputs.backlogs_from_ms):
            values.clear()

    # ── The turn ────────────────────────────────────────────────────────────────────────────────────────────────

    def take_turn(self, next_generation: Callable[[], Generation], now_ms: int, most: int = ALL) -> list[Event]:
        """Begins a turn: decides on the records that the former turn left undecided, in the order of their times.

        It makes `most` decisions at most. Calls of make_due_decisions make the others.
        """
        self._next, self._turn_ms = next_generation, now_ms
        for scaled in self.scaled.values():
            if scaled.has_undecided_record(self._ensure_inputs(scaled.key).applied) and not scaled.is_due_by(now_ms):
                # The former turn declared the policy before it read those records.
                self._postpone_decision(scaled, now_ms)
            elif scaled.due is not None:
                heapq.heappush(self.dues, (scaled.due.at_ms, scaled.key))
            if scaled.unseen:
                self._returned.append(scaled.key)
                scaled.unseen = records_in_time_order(scaled.unseen)
            self.positions.mark_undecided_records(scaled.unseen)
        return self._decide_left_records(most, is_never_over)[0]

    def decide_on_record(self, heard: HeardRecord, now_ms: int) -> list[Event]:
        """Decides on an input record during the turn. now_ms: the wall clock, to recognize records from the future."""
        return self.decide_on_record_in_time(heard, now_ms, is_never_over)[0]

    def decide_on_record_in_time(self, heard: HeardRecord, now_ms: int, is_over: IsOver) -> tuple[list[Event], bool]:
        """Decides as `decide_on_record` does. Returns (events, False) if is_over ended the step before the record. The
        caller must then pass the record again."""
        scaled, events = self.scaled.get(heard.workload), list[Event]()
        if scaled is not None and scaled.unseen:
            events, _ = self._decide_unseen_records(scaled, ALL, is_over)
            if scaled.unseen:
                return events, False
        if heard.topic in INPUTS:
            more, is_heard = self._decide_on_input(heard, now_ms, is_over)
        else:
            more, is_heard = [], True
        if is_heard:
            self.positions.note_applied_record(heard)
        return events + more, is_heard

    def is_fully_decided(self, key: WorkloadKey) -> bool:
        """Returns whether take_turn and make_due_decisions have left nothing to decide for a workload."""
        scaled = self.scaled.get(key)
        return scaled is None or not (scaled.unseen or scaled.is_due_by(self._told_ms))

    def make_due_decisions(self, now_ms: int, most: int = ALL, is_over: IsOver = is_never_over) -> list[Event]:
        """Makes the decisions that are due by now_ms, each for its own instant; an instant too long ago becomes now_ms.

        After `most` decisions, or when the time is over, later calls make the others. Decisions left of a workload are
        made before any newer one of it. So these limits do not change decisions, except at an instant too long ago.
        """
        self._told_ms = now_ms
        events, most = self._decide_left_records(most, is_over)
        while most > 0 and (scaled := self._next_due_workload()) is not None:
            events += self._evaluate_due(scaled)
            most = 0 if is_over() else most - 1
        return events

    @property
    def is_behind(self) -> bool:
        """Returns whether take_turn and make_due_decisions have left something to decide."""
        return bool(self._returned) or self._next_due_workload() is not None

    def _decide_left_records(self, most: int, is_over: IsOver) -> tuple[list[Event], int]:
        """Returns the decisions on records that the former turn left undecided, and how many more may be made."""
        events: list[Event] = []
        while most > 0 and self._returned:
            scaled = self.scaled.get(self._returned[0])
            made, most = (
                self._decide_unseen_records(scaled, most, is_over)
                if scaled is not None and scaled.unseen
                else ([], most)
            )
            events += made
            if scaled is None or not scaled.unseen:
                self._returned.popleft()
        if not self._returned:
            self.positions.clear_undecided_marks()
        return events, most

    def _decide_unseen_records(self, scaled: ScaledWorkload, most: int, is_over: IsOver) -> tuple[list[Event], int]:
        """Returns decisions on a workload's undecided records, and how many more may be made: 0 once time is over."""
        events: list[Event] = []
        unseen, scaled.unseen = scaled.unseen, []  # So that _decide_on_input does not decide on them first.
        for number, heard in enumerate(unseen, 1):
            made, is_heard = self._decide_on_input(heard, self._turn_ms, is_over)
            events += made
            most = 0 if not is_heard or is_over() else most - 1
            if most <= 0:
                scaled.unseen = unseen[number if is_heard else number - 1 :]
                break
        return events, most

    def _next_due_workload(self) -> ScaledWorkload | None:
        """Returns the workload with the earliest decision due by the now_ms of the last make_due_decisions; None:
        nothing is due."""
        while self.dues and self.dues[0][0] <= self._told_ms:
            at_ms, key = self.dues[0]
            scaled = self.scaled.get(key)
            if scaled is not None and scaled.due is not None and scaled.due.at_ms == at_ms:
                return scaled
            heapq.heappop(self.dues)
        return None

    def _evaluate_due(self, scaled: ScaledWorkload) -> list[Event]:
        assert scaled.due is not None
        at_ms = scaled.due.at_ms
        return self._evaluate_workload(
            scaled, self._told_ms if self._is_instant_missed(at_ms, self._told_ms) else at_ms
        )

    def _make_left_decisions(self, scaled: ScaledWorkload, is_over: IsOver) -> list[Event]:
        """Makes the decisions that take_turn and make_due_decisions left undone for one workload, as far as there is
        time."""
        events = self._decide_unseen_records(scaled, ALL, is_over)[0] if scaled.unseen else []
        while not scaled.unseen and scaled.is_due_by(self._told_ms):
            events += self._evaluate_due(scaled)
            if is_over():
                break
        return events

    def next_due_ms(self) -> int | None:
        return self.dues[0][0] if self.dues else None

    def put_policy_in_force(self, event: ScalePolicyDeclared) -> list[Event]:
        """Puts a new policy in force. Returns decisions left undone before it, the given event, and its decision."""
        key = (event.namespace, event.name)
        known = self.scaled.get(key)
        rest = self._make_left_decisions(known, is_never_over) if known is not None else []
        before = known.policy if known is not None else None
        same = before is not None and (before.kind, before.name) == (event.kind, event.policy)
        first_ms = known.declared.declared_ms if known is not None and same else event.declared_ms
        self._attach_policy(event)
        scaled = self.scaled[key]
        if before is None:  # After a refused policy, the last state is older than the inputs.
            scaled.due = None
            self._forget_values(key)
        else:
            forget_inputs_of_changed_queries(before, scaled.policy, self._ensure_inputs(key), event.declared_ms)
            scaled.remembered = sizing_state_after_change(before, scaled.policy, scaled.remembered)
        scaled.remembered = replace(scaled.remembered, created_ms=scaled.remembered.created_ms or first_ms)
        inputs = self._ensure_inputs(key)
        inputs.correct_clocks(inputs.clock_ahead_ms_by_cluster(event.declared_ms, self.rules))
        if before is not None and self._needs_to_wait(scaled):
            scaled.last = None
            return [*rest, event]
        return [*rest, event, *self._evaluate_workload(scaled, max(scaled.remembered.at_ms + 1, event.declared_ms))]

    def forget_policy(self, key: WorkloadKey) -> None:
        """Removes a policy, its decision and its state. The caller writes their tombstones to the log."""
        for topic in (SCALE_POLICIES, SCALE, SCALE_STATE):
            self._apply_tombstone(topic.name, key)

    def take_unwritten_states(self) -> list[Event]:
        """Returns the states to write: of workloads decided on, and one for each partition with a written offset that
        lags too far behind."""
        for partition in (
            self.positions.partitions_behind(self.rules.positions_behind_max) if not self._returned else ()
        ):
            self._mark_state_of_partition(partition)
        keys, self.changed = self.changed, {}
        return [self._make_state_event(self.scaled[key]) for key in keys]

    def _mark_state_of_partition(self, partition: int) -> None:
        key = next((key for key in self.scaled if self._partition_of("/".join(key)) == partition), None)
        if key is None:
            self.positions.forget_partition(partition)
        else:
            self.changed[key] = None

    def last_sizing_result(self, scaled: ScaledWorkload) -> SizingResult:
        """Returns the last decision, for explanations. After a restart it is computed again for the same instant."""
        if scaled.last is None:
            return decide_size(self.sizing_case(scaled, max(scaled.remembered.at_ms, scaled.declared.declared_ms)))
        return scaled.last

    def current_replicas(self, key: WorkloadKey) -> int:
        """Returns the decided size, or the declared one if that is newer; -1 if there is no such workload."""
        known, decided = self.inputs.get(key), self.decided.get(key)
        declared = known.declared if known is not None else None
        if declared is None:
            return -1
        if decided is not None and decided.generation > declared.scaled:
            return decided.replicas
        return declared.replicas

    def sizing_case(self, scaled: ScaledWorkload, at_ms: int) -> SizingCase:
        moment = ReadingMoment(scaled.key[0], scaled.declared.declared_ms, at_ms, self.rules)
        inputs = self.inputs.get(scaled.key, WorkloadInputs())
        return SizingCase(scaled.policy, inputs, self.current_replicas(scaled.key), scaled.remembered, moment)

    # ── Deciding ────────────────────────────────────────────────────────────────────────────────────────────────

    def _decide_on_input(self, heard: HeardRecord, now_ms: int, is_over: IsOver) -> tuple[list[Event], bool]:
        """Returns the decisions, and whether the record was applied: not if is_over ends the earlier decisions."""
        key, at_ms, ahead_ms = heard.workload, heard.at_ms, 0
        scaled = self.scaled.get(key)
        if at_ms > now_ms + self.rules.future_max_ms:
            if heard.topic in FORGETTING:
                self._count_dropped("future")
                return [], True
            at_ms, ahead_ms = now_ms, at_ms - now_ms
        if scaled is None:
            if heard.topic in FORGETTING:
                self._count_dropped("unknown")
            else:
                self._apply_input(key, heard, ahead_ms)
                self._forget_unneeded_inputs(key)
            return [], True
        if not is_input_named(scaled.policy, heard.event):
            self._count_dropped("unnamed")
            return [], True
        events, is_all = self._make_decisions_before(scaled, at_ms, now_ms, is_over)
        if not is_all:
            return events, False
        return events + self._apply_and_decide(scaled, heard, now_ms, at_ms, ahead_ms), True

    def _apply_and_decide(
        self, scaled: ScaledWorkload, heard: HeardRecord, now_ms: int, at_ms: int, ahead_ms: int
    ) -> list[Event]:
        """Applies a record and decides. at_ms: the record's instant. ahead_ms: how far its writer's clock is ahead."""
        key = scaled.key
        before = self._declared_facts(key) if heard.topic == WORKLOADS.name else None
        taken = self._apply_input(key, heard, ahead_ms)
        if not taken:
            self._count_dropped("known", int(taken is False))
            return []
        is_confirmed = before is not None and scaled.remembered.at_ms and self._declared_facts(key) == before
        if is_confirmed or self._needs_to_wait(scaled):  # The planner only confirms our decision.
            return []
        if self._is_instant_missed(at_ms, now_ms) if at_ms else scaled.remembered.at_ms and scaled.due is None:
            self._postpone_decision(scaled, now_ms)
            return []
        return self._evaluate_workload(scaled, max(scaled.remembered.at_ms + 1, at_ms))

    def _apply_input(self, key: WorkloadKey, heard: HeardRecord, ahead_ms: int | None = None) -> bool | None:
        """Applies a record. Returns whether it changed anything; None: an unexpected error, and it has no effect."""
        scaled = self.scaled.get(key)
        polling_ms = scaled.policy.polling_ms if scaled is not None else 0
        try:
            return self._ensure_inputs(key).apply_record(heard, self.rules, polling_ms, ahead_ms)
        except Exception as error:
            self._count_dropped("error")
            self.note_failure(key, heard.topic, error)
            return None

    def undo_unwritable_event(self, event: ScaleDecided | ScaleStateChanged, error: Exception) -> None:
        """Undoes a decision that is too large for a record. So only its workload keeps its old size."""
        if isinstance(event, ScaleDecided):
            self.decided.pop((event.namespace, event.name), None)
        self.note_failure((event.namespace, event.name), "", error)

    def note_failure(self, key: WorkloadKey, topic: str, error: Exception) -> None:
        """Adds an error to `failed`, once for each workload and topic ("" for a decision). The turn reports it."""
        if (key, topic) not in self.failing:
            self.failing.add((key, topic))
            self.failed.append(FailedDecision(key, error_traceback(error), again=False, topic=topic))

    def _needs_to_wait(self, scaled: ScaledWorkload) -> bool:
        """Returns whether a decision must wait: CONTROLLER mode decides only at the controller's next instant."""
        if self.rules.mode != CONTROLLER or scaled.due is None:
            return False
        self.changed[scaled.key] = None
        return True

    def _is_instant_missed(self, at_ms: int, now_ms: int) -> bool:
        """Returns whether an instant is too long ago. Then the decision is made for the present time instead."""
        return at_ms < now_ms - self.rules.missed_ms

    def _postpone_decision(self, scaled: ScaledWorkload, now_ms: int) -> None:
        """Schedules a decision for now, but at least 1 ms after the last one: a state's time never goes back."""
        due_ms = max(now_ms, scaled.remembered.at_ms + 1)
        scaled.due = NextEvaluation(due_ms, "what was heard late")
        heapq.heappush(self.dues, (due_ms, scaled.key))
        self.changed[scaled.key] = None

    def _make_decisions_before(
        self, scaled: ScaledWorkload, at_ms: int, now_ms: int, is_over: IsOver
    ) -> tuple[list[Event], bool]:
        """Makes the decisions that were due before at_ms. Returns them, and whether these were all."""
        events = self._make_left_decisions(scaled, is_over)
        is_all = not (scaled.unseen or scaled.is_due_by(self._told_ms))
        while is_all and (due_ms := self._due_ms_before(scaled, at_ms, now_ms)) is not None:
            events += self._evaluate_workload(scaled, due_ms)
            is_all = not is_over() or self._due_ms_before(scaled, at_ms, now_ms) is None
        return events, is_all

    def _due_ms_before(self, scaled: ScaledWorkload, at_ms: int, now_ms: int) -> int | None:
        due_ms = scaled.due.at_ms if scaled.due is not None else None
        return None if due_ms is None or due_ms >= at_ms or self._is_instant_missed(due_ms, now_ms) else due_ms

    def _evaluate_workload(self, scaled: ScaledWorkload, at_ms: int) -> list[Event]:
        key = scaled.key
        case = self.sizing_case(scaled, at_ms)
        sized = decide_size(case)
        if sized.failed:
            self.failed.append(
                FailedDecision(key, sized.failed, again=scaled.last is not None and bool(scaled.last.failed))
            )
        told_ms = scaled.due.at_ms if scaled.due is not None else None
        scaled.remembered, scaled.last, scaled.due = sized.remembered, sized, sized.due
        if sized.due is not None and sized.due.at_ms != told_ms:  # Otherwise the heap has it already.
            heapq.heappush(self.dues, (sized.due.at_ms, key))
        self.changed[key] = None
        if sized.replicas is None or sized.replicas == case.current:
            return []
        scaled.changed_ms = at_ms
        decided = ScaleDecided(
            namespace=key[0],
            name=key[1],
            generation=self._next(),
            policy=scaled.policy.name,
            policy_kind=scaled.policy.kind,
            replicas=sized.replicas,
            replicas_before=case.current,
            at_ms=at_ms,
            reason=sized.reason,
        )
        self.decided[key] = decided
        return [decided]

    def _declared_facts(self, key: WorkloadKey) -> tuple[int, str, bool]:
        """Returns (size, kind, is being deleted) of a declared workload: the fields that decisions depend on."""
        declared = self._ensure_inputs(key).declared
        return (
            (self.current_replicas(key), declared.kind, declared.deleting) if declared is not None else (-1, "", False)
        )

    def _make_state_event(self, scaled: ScaledWorkload) -> ScaleStateChanged:
        partition = self._partition_of("/".join(scaled.key))
        scaled.positions = self.positions.offsets_to_write(scaled.key[0], partition, scaled.unseen)
        scaled.generation = self._next()
        inputs = self._ensure_inputs(scaled.key)
        stored, packed = fit_stored_state(stored_state_of(scaled.remembered, scaled.due, scaled.changed_ms, inputs))
        if stored.remembered is not scaled.remembered:
            self._count_dropped("too large")
            stored.restore_inputs(inputs)
            scaled.remembered, scaled.last = stored.remembered, None
        return ScaleStateChanged(
            namespace=scaled.key[0],
            name=scaled.key[1],
            generation=scaled.generation,
            policy_generation=scaled.declared.generation,
            at_ms=scaled.remembered.at_ms,
            positions=tuple(scaled.positions.items()),
            state=packed,
        )

    def _ensure_inputs(self, key: WorkloadKey) -> WorkloadInputs:
        inputs = self.inputs.get(key)
        if inputs is None:
            inputs = self.inputs[key] = WorkloadInputs()
        return inputs

    def _count_dropped(self, why: str, count: int = 1) -> None:
        if count:
            self.dropped[why] = self.dropped.get(why, 0) + count
