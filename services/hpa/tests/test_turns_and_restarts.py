"""Namespaces take turns, and no size depends on it, wherever a step ends and whenever a process is killed."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hpa.core.heard.heard_record import FORGETTING, INPUTS, HeardRecord, WorkloadKey
from hpa.core.heard.waiting_records import WaitingBounds, WaitingRecords
from hpa.core.rules import HpaRules
from hpa.core.state import HpaState
from spillway.addresses import LOAD, address_of_event
from spillway.events import Event
from spillway.events_scaling import ScaleDecided, ScalePolicyDeclared, ScaleStateChanged
from spillway.model import Generation

from .world import (
    START_MS,
    cpu_utilization_metric,
    external_metric,
    hpa_manifest,
    load_observed,
    ms_after_start,
    pods_observed,
    workload_declared,
    world_under_policy,
)

WORKLOADS_IN: dict[WorkloadKey, int] = {
    ("noisy", "a"): 0,
    ("noisy", "b"): 1,
    ("quiet", "a"): 0,
    ("quiet", "b"): 0,
    ("calm", "a"): 1,
}
"""The partition of each workload."""
KEYS = list(WORKLOADS_IN)
NOW_MS = ms_after_start(10_000)
RULES = HpaRules(missed_ms=10**9, positions_behind_max=3)
ROOMY = WaitingBounds(1_000, 10**9, 1.0)
POLICY = hpa_manifest(
    [external_metric("queue", "10"), cpu_utilization_metric(50)],
    most=40,
    behavior={"scaleDown": {"stabilizationWindowSeconds": 0}},
)
OF_PARTITION = {"/".join(key): partition for key, partition in WORKLOADS_IN.items()}


@dataclass
class Log:
    """All records, each with the offset in its partition."""

    records: list[HeardRecord] = field(default_factory=list)
    ends: dict[tuple[str, int], int] = field(default_factory=lambda: defaultdict(int))

    def append_event(self, event: Any) -> HeardRecord:
        address = address_of_event(event)
        partition = WORKLOADS_IN[event.namespace, event.name]
        place = (address.topic.name, partition)
        record = HeardRecord(*place, self.ends[place], address.key, event)
        self.ends[place] += 1
        self.records.append(record)
        return record


class Process:
    """An hpa that has the turn. It reads the inputs of the log, and decides on some of what waits."""

    def __init__(self, log: Log, epoch: int, *, is_standby: bool = False) -> None:
        """is_standby: it has followed the log from its beginning. Otherwise it starts now."""
        self.log, self.epoch, self.numbers = log, epoch, 0
        self.state = HpaState(RULES, lambda key: OF_PARTITION[key])
        self.waiting = WaitingRecords(ROOMY)
        self.dropped: list[HeardRecord] = []
        if is_standby:
            self.state.apply_early_records()
            for heard in log.records:
                self.state.follow_record(heard)
        else:
            self._read_at_start()
        self.read = len(log.records)
        self.write_events(self.state.take_turn(self._next_generation, NOW_MS))

    def _read_at_start(self) -> None:
        retained = [one for one in self.log.records if one.topic in FORGETTING]
        for heard in self.log.records:
            if heard.topic not in FORGETTING:
                self.state.follow_record(heard)
        self.state.apply_early_records()
        starts = self.state.retained_start_offsets()
        for heard in retained:
            place = (heard.topic, heard.partition)
            if heard.offset >= starts.get(place, self.log.ends[place]):
                self.state.follow_record(heard)

    def declare_policies(self) -> None:
        (policy,) = [one.event for one in world_under_policy(POLICY).log if isinstance(one.event, ScalePolicyDeclared)]
        for namespace, name in KEYS:
            declared = replace(workload_declared(2), namespace=namespace, name=name)
            self.write_events(self.state.decide_on_record(self.log.append_event(declared), NOW_MS))
            event = replace(policy, namespace=namespace, name=name, generation=self._next_generation())
            self.write_events(self.state.put_policy_in_force(event))
        self.read = len(self.log.records)

    def read_records(self, most: int) -> None:
        """Reads up to so many input records."""
        news = [one for one in self.log.records[self.read :] if one.topic in INPUTS][:most]
        if not news:
            return
        self.read = self.log.records.index(news[-1]) + 1
        for heard in news:
            self.state.positions.note_waiting_record(heard)
        self.dropped += self.waiting.add_records(news)

    def decide_records(self, most: int) -> list[Event]:
        events: list[Event] = []
        for _ in range(min(most, len(self.waiting))):
            events += self.state.decide_on_record(self.waiting.next_record(), NOW_MS)
            self.waiting.remove_next_record()
        return events

    def write_events(self, events: Iterable[Event]) -> None:
        for event in (*events, *self.state.take_unwritten_states()):
            self.log.append_event(event)

    def _next_generation(self) -> Generation:
        self.numbers += 1
        return Generation(self.epoch, self.numbers)


def sizes_by_workload(log: Log) -> dict[WorkloadKey, list[tuple[int, int]]]:
    found = defaultdict(list)
    for one in log.records:
        if isinstance(one.event, ScaleDecided):
            found[one.workload].append((one.event.at_ms - START_MS, one.event.replicas))
    return dict(found)


def known_facts(state: HpaState) -> dict[WorkloadKey, Any]:
    """Returns all values that later decisions depend on, but not the offsets of records that changed nothing."""
    return {
        key: (
            state.current_replicas(key),
            scaled.remembered,
            scaled.due,
            state.inputs[key].loads,
            state.inputs[key].clusters.by_name,
        )
        for key, scaled in state.scaled.items()
    }


def input_event(number: int, kind: str, workload: int, value: int) -> Event:
    """The times of one workload rise with the numbers."""
    at_ms = ms_after_start(10 + number)
    if kind == "pods":
        event: Any = pods_observed(f"c{value % 2}", [50 * value] * 3, at_ms, number + 1)
    elif kind == "trouble":
        event = load_observed("queue", 0, at_ms, trouble="no answer")
    else:
        event = load_observed("queue", 10 * value, at_ms, f"s{value % 3}")
    namespace, name = KEYS[workload]
    return replace(event, namespace=namespace, name=name)


def decide_in_log_order(steps: list[tuple[str, int, int]]) -> Process:
    made = Process(Log(), 1)
    made.declare_policies()
    for number, (kind, workload, value) in enumerate(steps):
        if kind in PUBLISHED:
            heard = made.log.append_event(input_event(number, kind, workload, value))
            made.write_events(made.state.decide_on_record(heard, NOW_MS))
    made.read = len(made.log.records)
    return made


def decide_in_turns(steps: list[tuple[str, int, int]]) -> Process:
    """Reads, decides and is killed as the steps say; in the end all is decided on."""
    made = Process(Log(), 1)
    made.declare_policies()
    for number, (kind, workload, value) in enumerate(steps):
        if kind in PUBLISHED:
            made.log.append_event(input_event(number, kind, workload, value))
        elif kind == "read":
            made.read_records(value)
        elif kind == "decide":
            made.write_events(made.decide_records(value))
        else:
            if kind == "killed before the write":
                made.decide_records(value)
            made = Process(made.log, made.epoch + 1, is_standby=kind == "a standby goes on")
    made.read_records(1_000)
    while made.waiting:
        made.write_events(made.decide_records(2))
    assert made.dropped == []
    return made


PUBLISHED = ("value", "pods", "trouble")
KILLED = ("killed", "killed before the write", "a standby goes on")
STEPS = st.lists(
    st.tuples(
        st.sampled_from([*PUBLISHED, "value", "value", "pods", *2 * ["read", "decide"], *KILLED]),
        st.sampled_from([0, 0, 0, 1, 2, 2, 3, 4]),
        st.integers(1, 20),
    ),
    max_size=40,
)
PODS_BEHIND = [
    *(("pods", 0, 6) for _ in range(4)),
    ("value", 2, 1),
    ("pods", 2, 4),
    ("pods", 2, 19),
    ("read", 0, 20),
    ("decide", 0, 6),
    ("killed", 0, 1),
]
"""What waits of one namespace lies in the log before all records of another one, which were decided on."""


@given(steps=STEPS)
@example(steps=PODS_BEHIND)
@example(steps=[*PODS_BEHIND[:-1], ("a standby goes on", 0, 1)])
def test_the_sizes_are_those_of_the_order_of_the_log_wherever_a_step_ends_and_whoever_is_killed(
    steps: list[tuple[str, int, int]],
) -> None:
    """Of records that were not dropped."""
    whole, turns = decide_in_log_order(steps), decide_in_turns(steps)
    assert sizes_by_workload(turns.log) == sizes_by_workload(whole.log)
    assert known_facts(turns.state) == known_facts(whole.state)


@given(steps=STEPS)
def test_a_start_reads_from_no_later_than_the_first_record_that_waits_and_a_position_never_goes_back(
    steps: list[tuple[str, int, int]],
) -> None:
    made = Process(Log(), 1)
    made.declare_policies()
    starts = made.state.retained_start_offsets()
    for number, (kind, workload, value) in enumerate(steps):
        if kind in PUBLISHED:
            made.log.append_event(input_event(number, kind, workload, value))
        elif kind == "read":
            made.read_records(value)
        else:
            made.write_events(made.decide_records(value % 4))
        written = made.state.retained_start_offsets()
        assert all(written[place] >= start for place, start in starts.items())
        starts = written
        undecided = [one for one in made.log.records if one in _waiting_records(made)]
        assert all(starts[one.topic, one.partition] <= one.offset for one in undecided if one.topic == LOAD.name)
    _, end = made.read_records(1_000), made.decide_records(1_000)
    made.write_events(end)
    for place, start in made.state.retained_start_offsets().items():
        assert made.state.positions.reached.get(place, 0) - start <= RULES.positions_behind_max


def _waiting_records(made: Process) -> list[HeardRecord]:
    return [one.heard for own in made.waiting._turns.values() for one in own.records.values()]


@pytest.mark.parametrize("is_standby", [False, True])
@pytest.mark.parametrize("decided", range(10))
def test_who_goes_on_in_the_middle_of_turns_decides_on_nothing_twice_and_loses_nothing(
    decided: int, is_standby: bool
) -> None:
    """Eight values of noisy/a wait before the one value of quiet/a, which is decided on as the second."""
    made = Process(Log(), 1)
    made.declare_policies()
    for number in range(8):
        made.log.append_event(input_event(number, "value", 0, 3 * number + 3))
    made.log.append_event(input_event(8, "value", 2, 15))
    made.read_records(9)
    made.write_events(made.decide_records(decided))
    before = sizes_by_workload(made.log)
    states = [one.event for one in made.log.records if isinstance(one.event, ScaleStateChanged)]
    after = Process(made.log, 2, is_standby=is_standby)
    assert not after.waiting
    is_quiet_decided = decided >= 2
    assert (len(before.get(("quiet", "a"), [])) > 0) == is_quiet_decided
    news = [one.event for one in made.log.records if isinstance(one.event, ScaleStateChanged)][len(states) :]
    left = {("noisy", "a"): decided < 9, ("quiet", "a"): not is_quiet_decided}
    assert {(one.namespace, one.name) for one in news} == {key for key, is_left in left.items() if is_left}
    whole = decide_in_log_order([("value", 0, 3 * number + 3) for number in range(8)] + [("value", 2, 15)])
    assert sizes_by_workload(after.log) == sizes_by_workload(whole.log)
    assert known_facts(after.state) == known_facts(whole.state)
