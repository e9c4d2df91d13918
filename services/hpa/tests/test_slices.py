"""What is due together, or left from before a turn, is decided on in slices: no decision depends on their size."""

import asyncio
import json
from collections import defaultdict
from dataclasses import replace
from itertools import count, cycle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpa.core.heard.heard_record import HeardRecord
from hpa.core.requests import declaring
from hpa.core.rules import HpaRules
from hpa.core.state import ALL, HpaState
from hpa.service import Hpa, HpaClocks
from hpa.settings import HpaSettings
from spillway.addresses import LOAD, address_of_event, pods_address
from spillway.api_scaling import DeclarePolicyRequest
from spillway.events import Event
from spillway.events_scaling import LoadObserved, ScaleDecided, ScalePolicyDeclared, ScaleStateChanged
from spillway.local_bus import LocalBroker, LocalBus
from spillway.model import Generation
from spillway.running.standby import WriterTurn

from .world import (
    KAFKA,
    KEY,
    START_MS,
    cpu_utilization_metric,
    external_metric,
    hpa_manifest,
    load_observed,
    ms_after_start,
    pods_observed,
    scale_policy_manifest,
    scaled_object_manifest,
    workload_declared,
    world_under_policy,
)

RULES = HpaRules(missed_ms=10**9)
"""What was missed is decided on as things are when its slice comes."""
NAMES = [f"web-{number}" for number in range(4)]
WINDOW = {"name": "day", "timeZone": "UTC", "start": "*/2 * * * *", "end": "1-59/2 * * * *", "floor": 6}
POLICIES = [
    hpa_manifest([external_metric("queue", "10")], behavior={"scaleDown": {"stabilizationWindowSeconds": 20}}),
    scale_policy_manifest(minReplicas=2, calendar=[WINDOW], metrics=[external_metric("queue", "10")]),
    scale_policy_manifest(minReplicas=1, calendar=[WINDOW | {"floor": 9}]),
    scaled_object_manifest([KAFKA], minReplicaCount=1),
]
POLICIES_OF_PODS = hpa_manifest([external_metric("queue", "10"), cpu_utilization_metric(50)])


class Process:
    """An hpa that makes so many decisions between two looks at what is new; log: what all processes wrote and read."""

    def __init__(self, most: int, log: list[HeardRecord]) -> None:
        self.most, self.log = most, log
        self.state = HpaState(RULES, lambda _: 0)
        for heard in log:
            self.state.follow_record(heard)
        self.state.apply_early_records()
        turns = sum(1 for one in log if isinstance(one.event, ScalePolicyDeclared))
        sequence = count(len(log))
        self._next = lambda: Generation(1 + turns, next(sequence))

    def take_turn(self, now_ms: int) -> None:
        self._append_events(self.state.take_turn(self._next, now_ms, 0))
        self.make_limited_decisions(now_ms)

    def declare_policy(self, name: str, manifest: dict[str, Any], now_ms: int) -> None:
        made = world_under_policy(manifest)
        (event,) = [one.event for one in made.log if isinstance(one.event, ScalePolicyDeclared)]
        policy = replace(event, name=name, policy=name, generation=self._next(), declared_ms=now_ms)
        self._append_events(self.state.put_policy_in_force(policy))

    def hear_event(self, event: Event, now_ms: int) -> None:
        self._append_events(self.state.decide_on_record(self.append_event(event), now_ms))

    def make_limited_decisions(self, now_ms: int) -> None:
        self._append_events(self.state.make_due_decisions(now_ms, self.most))

    def make_all_decisions(self, now_ms: int) -> None:
        self._append_events(self.state.make_due_decisions(now_ms))

    def append_event(self, event: Event) -> HeardRecord:
        address = address_of_event(event)
        offset = sum(1 for one in self.log if one.topic == address.topic.name)
        self.log.append(HeardRecord(address.topic.name, 0, offset, address.key, event))
        return self.log[-1]

    def append_pods_tombstone(self, cluster: str) -> None:
        address = pods_address(*KEY, cluster)
        offset = sum(1 for one in self.log if one.topic == address.topic.name)
        self.log.append(HeardRecord(address.topic.name, 0, offset, address.key, None))

    def _append_events(self, events: list[Event]) -> None:
        for event in (*events, *self.state.take_unwritten_states()):
            self.append_event(event)


def decisions_by_workload(log: list[HeardRecord]) -> dict[str, list[tuple[int, int, int, str]]]:
    found = defaultdict(list)
    for one in log:
        event = one.event
        if isinstance(event, ScaleDecided):
            found[event.name].append((event.at_ms, event.replicas_before, event.replicas, event.reason))
    return dict(found)


def last_state_by_workload(log: list[HeardRecord]) -> dict[str, bytes]:
    return {one.event.name: one.event.state for one in log if isinstance(one.event, ScaleStateChanged)}


STEPS = st.lists(
    st.tuples(
        st.sampled_from([0, 1_000, 7_000, 25_000]),  # Milliseconds since the step before.
        st.sampled_from(["load", "load", "nothing", "declared", "policy"]),
        st.integers(0, 3),
        st.integers(0, 200),
        st.sampled_from([0, 2_000, 20_000]),  # Milliseconds that a value is late.
    ),
    max_size=25,
)


def event_of_kind(kind: str, number: int, value: int, at_ms: int) -> Event | None:
    if kind == "load":
        return replace(load_observed("queue", value, at_ms), name=NAMES[number])
    return replace(workload_declared(value % 12), name=NAMES[number]) if kind == "declared" else None


def log_after_steps(most: int, steps: list[tuple[int, str, int, int, int]]) -> list[HeardRecord]:
    """All that was written and read, by one that looks at what is new between so many decisions."""
    now_ms = ms_after_start(0)
    made = Process(most, [])
    made.take_turn(now_ms)
    for name, manifest in zip(NAMES, POLICIES, strict=True):
        made.hear_event(replace(workload_declared(2), name=name), now_ms)
        made.declare_policy(name, manifest, now_ms)
    for after_ms, kind, number, value, late_ms in steps:
        now_ms += after_ms
        event = event_of_kind(kind, number, value, max(now_ms - late_ms, ms_after_start(0)))
        if kind == "policy":
            made.declare_policy(NAMES[number], POLICIES[value % 4], now_ms)
        elif event is not None:
            made.hear_event(event, now_ms)
        made.make_limited_decisions(now_ms)
    made.make_all_decisions(now_ms)
    return made.log


@given(steps=STEPS, most=st.integers(0, 3))
def test_no_decision_and_no_state_depends_on_how_many_are_made_at_once(
    steps: list[tuple[int, str, int, int, int]], most: int
) -> None:
    whole, sliced = log_after_steps(ALL, steps), log_after_steps(most, steps)
    assert decisions_by_workload(sliced) == decisions_by_workload(whole)
    assert last_state_by_workload(sliced) == last_state_by_workload(whole)


@given(
    values=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 200)), min_size=1, max_size=8), steps=st.integers(0, 4)
)
def test_who_is_killed_between_two_slices_loses_no_value_that_others_have_not_seen(
    values: list[tuple[int, int]], steps: int
) -> None:
    """A state says how far its partition was read, and the next instance reads no value before."""
    before = Process(ALL, [])
    before.take_turn(ms_after_start(0))
    for name in NAMES:
        before.hear_event(replace(workload_declared(2), name=name), ms_after_start(0))
        before.declare_policy(name, POLICIES[0], ms_after_start(0))
    for second, (number, value) in enumerate(values):
        event = event_of_kind("load", number, value, ms_after_start(second))
        assert event is not None
        before.append_event(event)  # Nobody had read it when that process was killed.
    logs = [list(before.log), list(before.log)]
    whole, killed = Process(ALL, logs[0]), Process(1, _records_read_at_start(logs[1]))
    whole.take_turn(ms_after_start(20))
    killed.state.take_turn(killed._next, ms_after_start(20), 0)
    for _ in range(steps):
        killed.make_limited_decisions(ms_after_start(20))
    after = Process(ALL, _records_read_at_start(killed.log))
    after.take_turn(ms_after_start(20))
    assert {name: found[-1][2] for name, found in decisions_by_workload(after.log).items()} == {
        name: found[-1][2] for name, found in decisions_by_workload(whole.log).items()
    }


def _records_read_at_start(log: list[HeardRecord]) -> list[HeardRecord]:
    """What a new instance reads of the log: of values only those from where the states stand."""
    state = HpaState(RULES, lambda _: 0)
    for heard in log:
        if not isinstance(heard.event, LoadObserved):
            state.follow_record(heard)
    state.apply_early_records()
    start = state.retained_start_offsets().get((LOAD.name, 0), 0)
    return [one for one in log if not isinstance(one.event, LoadObserved) or one.offset >= start]


async def test_what_is_new_is_decided_on_between_slices_of_what_is_due() -> None:
    """Ten thousand workloads whose values came together are due together."""
    bus = LocalBus(LocalBroker(), "local-00000001", "spillway/hpa-1")
    clock = [ms_after_start(0)]
    made = Hpa(bus, HpaSettings(dues_in_group_max=2), "hpa-1", HpaClocks(lambda: clock[0], lambda: 0.0))
    async with bus.join_standby_group("hpa", "hpa-1") as waiting:
        turn = WriterTurn(await waiting.wait_for_turn())
        made.state.apply_early_records()
        made.decide_step(turn)
        offsets = count()
        for name in NAMES:
            await made._queue_records([_heard_record(replace(workload_declared(2), name=name), next(offsets))], {})
            (policy,) = [
                one for one in world_under_policy(POLICIES[0]).log if isinstance(one.event, ScalePolicyDeclared)
            ]
            assert isinstance(policy.event, ScalePolicyDeclared)
            made.state.put_policy_in_force(
                replace(policy.event, name=name, policy=name, generation=turn.next_generation())
            )
            await made._queue_records(
                [_heard_record(replace(load_observed("queue", 20, ms_after_start(0)), name=name), next(offsets))], {}
            )
        made.decide_step(turn)
        clock[0] = ms_after_start(130)  # All of their values are too old.
        made.standby.requests.asked.clear()
        first = made.decide_step(turn)
        assert made.standby.requests.asked.is_set()
        await made._queue_records(
            [_heard_record(replace(load_observed("queue", 90, ms_after_start(130)), name=NAMES[3]), next(offsets))], {}
        )
        second, third = made.decide_step(turn), made.decide_step(turn)
        made.standby.requests.asked.clear()
        clock[0] = ms_after_start(131)
        last = made.decide_step(turn)
        at_rest = not made.standby.requests.asked.is_set()
    states = [[one.name for one in step.events if isinstance(one, ScaleStateChanged)] for step in (first, second)]
    assert states == [NAMES[:2], [NAMES[3], NAMES[2]]]
    assert [one.replicas for one in second.events if isinstance(one, ScaleDecided)] == [6]
    assert (at_rest, third.events, [one.name for one in last.events]) == (True, [], [NAMES[3]])


def _heard_record(event: Event, offset: int) -> HeardRecord:
    address = address_of_event(event)
    return HeardRecord(address.topic.name, 0, offset, address.key, event)


# ── Bounded by time ─────────────────────────────────────────────────────────────────────────────────────────────────


class Slow:
    """A steady clock on which each reading takes the same number of seconds."""

    def __init__(self, seconds: float) -> None:
        self.now, self.seconds = 0.0, seconds

    def __call__(self) -> float:
        self.now += self.seconds
        return self.now


def numbered_load(number: int) -> LoadObserved:
    return load_observed("queue", 10 * number, ms_after_start(number / 100))


async def test_records_that_take_long_are_decided_on_in_steps_each_of_which_writes_how_far_it_came() -> None:
    """Else their step takes longer than a transaction may, and whoever has the next turn begins with them again."""
    bus = LocalBus(LocalBroker(), "local-00000001", "spillway/hpa-1")
    made = Hpa(bus, HpaSettings(step_seconds=0.25), "hpa-1", HpaClocks(lambda: ms_after_start(10), Slow(0.1)))
    world = world_under_policy(POLICIES[0])
    made._state, made._has_begun = world.state, True
    await made._queue_records([_heard_record(numbered_load(number), number) for number in range(1, 10)], {})
    reached = []
    while made._heard:
        made.standby.requests.asked.clear()
        decided = made.decide_step(WriterTurn(NoWriter()))
        (written,) = [one for one in decided.events if isinstance(one, ScaleStateChanged)]
        reached.append(dict(written.positions)[f"{LOAD.name}/0"])
        assert made.standby.requests.asked.is_set() == bool(made._heard)
    assert reached == [4, 6, 8, 10]
    at_once = world_under_policy(POLICIES[0])
    for number in range(1, 10):
        at_once.state.decide_on_record(_heard_record(numbered_load(number), number), ms_after_start(10))
    assert made.state.decided[KEY].replicas == at_once.state.decided[KEY].replicas > 1


async def test_what_a_turn_before_left_of_one_workload_is_decided_on_in_steps_and_before_what_is_new_of_it() -> None:
    log = [
        *world_under_policy(POLICIES[0]).log,
        *(_heard_record(numbered_load(number), number) for number in range(1, 8)),
    ]
    state = Process(ALL, log).state
    bus = LocalBus(LocalBroker(), "local-00000001", "spillway/hpa-1")
    made = Hpa(bus, HpaSettings(step_seconds=0.05), "hpa-1", HpaClocks(lambda: ms_after_start(10), Slow(0.1)))
    made._state = state
    await made._queue_records([_heard_record(numbered_load(8), 8)], {})
    left = []
    while made._heard:
        made.decide_step(WriterTurn(NoWriter()))
        left.append((len(state.scaled[KEY].unseen), len(made._heard)))
    assert left == [(5, 1), (3, 1), (1, 1), (0, 0)]
    assert state.inputs[KEY].loads["queue", "", "", "", ""].value_milli == 80_000


async def test_a_policy_that_is_declared_anew_waits_for_what_is_left_of_its_workload() -> None:
    """It would be decided on within the request, all at once."""
    log = [
        *world_under_policy(POLICIES[0]).log,
        *(_heard_record(numbered_load(number), number) for number in range(300)),
    ]
    state = Process(ALL, log).state
    state.take_turn(lambda: Generation(9, 1), ms_after_start(10), 0)
    request = DeclarePolicyRequest(json.dumps(hpa_manifest([external_metric("jobs", "10")])))
    with pytest.raises(declaring.LeftBefore):
        declaring.declare_policy(state, request, Generation(9, 2), ms_after_start(10), lambda _: ())
    bus = LocalBus(LocalBroker(), "local-00000001", "spillway/hpa-1")
    made = Hpa(bus, HpaSettings(dues_in_group_max=200), "hpa-1", HpaClocks(lambda: ms_after_start(10), lambda: 0.0))
    turn = WriterTurn(NoWriter())
    made._state, made._has_begun, made.standby._turn = state, True, turn
    made.standby.requests.asked.clear()
    asking = asyncio.create_task(made.declare_policy(request))
    await asyncio.wait_for(made.standby.requests.asked.wait(), 20)
    decided = []
    for _ in range(3):
        made.standby.requests.asked.clear()
        decided.append(made.decide_step(turn))
        assert made.standby.requests.asked.is_set() == (len(decided) < 3)
    asking.cancel()
    declares = [any(isinstance(one, ScalePolicyDeclared) for one in step.events) for step in decided]
    assert declares == [False, False, True]
    assert [len(step.answers) for step in decided] == [0, 0, 1]


LEFT = st.lists(
    st.tuples(st.sampled_from(["queue", "pods", "gone", "declared"]), st.integers(0, 60), st.integers(0, 20)),
    min_size=1,
    max_size=12,
)


@given(left=LEFT, overs=st.lists(st.booleans(), min_size=1, max_size=8), most=st.integers(1, 3))
def test_no_decision_depends_on_when_the_time_for_what_a_turn_before_left_is_over(
    left: list[tuple[str, int, int]], overs: list[bool], most: int
) -> None:
    whole, sliced = (process_taking_over(left) for _ in range(2))
    whole.make_all_decisions(ms_after_start(70))
    asked = cycle([*overs, True])
    while sliced.state.is_behind:
        sliced._append_events(sliced.state.make_due_decisions(ms_after_start(70), most, lambda: next(asked)))
    assert decisions_by_workload(sliced.log) == decisions_by_workload(whole.log)
    assert known_facts_of_process(sliced) == known_facts_of_process(whole)


def test_what_a_turn_before_left_is_decided_on_by_its_times() -> None:
    made = process_taking_over([("pods", 9, 1), ("queue", 5, 1)])
    made.state.make_due_decisions(ms_after_start(9), 1)
    assert made.state.scaled[KEY].remembered.at_ms == ms_after_start(5)
    made.state.make_due_decisions(ms_after_start(9), 1)
    assert made.state.scaled[KEY].remembered.at_ms == ms_after_start(9)


@given(left=LEFT, slices=st.integers(0, 6))
def test_who_is_killed_within_a_workload_leaves_the_rest_of_it_to_the_next(
    left: list[tuple[str, int, int]], slices: int
) -> None:
    """A state that is written in between says of no record that is still to be decided on that it was."""
    killed = process_taking_over(left)
    for _ in range(slices):
        killed._append_events(killed.state.make_due_decisions(ms_after_start(70), ALL, lambda: True))
    scaled = killed.state.scaled[KEY]
    still = {(one.topic, one.offset) for one in scaled.unseen}
    after = HpaState(RULES, lambda _: 0)
    for heard in killed.log:
        after.follow_record(heard)
    after.apply_early_records()
    assert still <= {(one.topic, one.offset) for one in after.scaled[KEY].unseen}


def known_facts_of_process(made: Process) -> tuple[object, ...]:
    """All that decisions go on from; what is written says the same once anything of it is news."""
    scaled, inputs = made.state.scaled[KEY], made.state.inputs[KEY]
    return scaled.remembered, scaled.due, inputs.loads, inputs.declared, inputs.clusters.by_name


def process_taking_over(left: list[tuple[str, int, int]]) -> Process:
    """One that begins its turn with so much of one workload that nobody has decided on."""
    before = Process(ALL, list(world_under_policy(POLICIES_OF_PODS).log))
    for number, (kind, second, value) in enumerate(left):
        if kind == "queue":
            before.append_event(load_observed("queue", 10 * value, ms_after_start(second)))
        elif kind == "pods":
            before.append_event(pods_observed(f"c{value % 2}", [50 * value] * 3, ms_after_start(second), number + 2))
        elif kind == "gone":
            before.append_pods_tombstone(f"c{value % 2}")
        else:
            before.append_event(workload_declared(value + 1))
    after = Process(ALL, before.log)
    after.state.take_turn(after._next, ms_after_start(70), 0)
    return after


# ── Instants before one record ──────────────────────────────────────────────────────────────────────────────────────

OF_PODS = {
    "type": "Pods",
    "pods": {"metric": {"name": "busy"}, "target": {"type": "AverageValue", "averageValue": "1"}},
}


def load_of_pod(number: int, value: float, at_ms: int) -> LoadObserved:
    return replace(load_observed("busy", value, at_ms), pod=f"p{number}")


async def test_what_is_due_before_one_record_is_decided_on_in_steps_and_the_record_after_it() -> None:
    """Each sample grows too old at an instant of its own, and each of those is a decision."""
    world = world_under_policy(hpa_manifest([OF_PODS]))
    for number in range(20):
        world.publish_input(load_of_pod(number, 2, START_MS + number))
    bus = LocalBus(LocalBroker(), "local-00000001", "spillway/hpa-1")
    made = Hpa(bus, HpaSettings(step_seconds=0.25), "hpa-1", HpaClocks(lambda: ms_after_start(119), Slow(0.1)))
    state = made._state = world.state
    made._has_begun = True
    await made._queue_records(
        [
            _heard_record(load_of_pod(0, 7, ms_after_start(128)), 20),
            _heard_record(load_of_pod(1, 8, ms_after_start(128)), 21),
        ],
        {},
    )
    steps = []
    while made._heard:
        made.standby.requests.asked.clear()
        decided = made.decide_step(WriterTurn(NoWriter()))
        (written,) = [one for one in decided.events if isinstance(one, ScaleStateChanged)]
        value = state.inputs[KEY].loads["busy", "", "", "", "p0"].value_milli
        steps.append((written.at_ms, dict(written.positions)[f"{LOAD.name}/0"], value))
        assert made.standby.requests.asked.is_set() == bool(made._heard)
    before = [step for step in steps if step[0] < ms_after_start(121)]
    assert len(before) >= 5
    assert [(reached, value) for _, reached, value in before] == [(20, 2_000)] * len(before)
    assert [at_ms for at_ms, _, _ in before] == sorted({at_ms for at_ms, _, _ in before})
    assert steps[-1][1:] == (22, 7_000)


SAMPLES = st.lists(
    st.tuples(
        st.sampled_from([0, 1, 5, 700, 119_000, 130_000]), st.integers(0, 4), st.integers(0, 9), st.integers(0, 9)
    ),
    min_size=1,
    max_size=12,
)
POLICIES_OF_SAMPLES = [
    hpa_manifest([OF_PODS]),
    hpa_manifest([OF_PODS, external_metric("queue", "10")], behavior={"scaleDown": {"stabilizationWindowSeconds": 20}}),
]


@given(
    samples=SAMPLES,
    manifest=st.sampled_from(POLICIES_OF_SAMPLES),
    overs=st.lists(st.booleans(), min_size=1, max_size=8),
    killed=st.integers(0, 12),
)
def test_no_decision_depends_on_when_the_time_for_what_is_due_before_a_record_is_over(
    samples: list[tuple[int, int, int, int]], manifest: dict[str, Any], overs: list[bool], killed: int
) -> None:
    whole, sliced = (Process(ALL, list(world_under_policy(manifest).log)) for _ in range(2))
    whole.take_turn(ms_after_start(0))
    sliced.take_turn(ms_after_start(0))
    asked, now_ms = cycle([*overs, True]), ms_after_start(0)
    for number, (after_ms, pod, value, ahead_s) in enumerate(samples):
        now_ms += after_ms
        event = (
            load_of_pod(pod, value, now_ms + 1_000 * ahead_s)
            if pod
            else load_observed("queue", value, now_ms + 1_000 * ahead_s)
        )
        whole.hear_event(event, now_ms)
        heard = sliced.append_event(event)
        while True:
            events, is_heard = sliced.state.decide_on_record_in_time(heard, now_ms, lambda: next(asked))
            sliced._append_events(events)
            if is_heard:
                break
            if number == killed:  # What was not taken in is heard by the next instance.
                sliced = Process(ALL, sliced.log)
                sliced.state.take_turn(sliced._next, now_ms, 0)
                break
    whole.make_all_decisions(now_ms)
    sliced.make_all_decisions(now_ms)
    assert decisions_by_workload(sliced.log) == decisions_by_workload(whole.log)
    assert known_facts_of_process(sliced) == known_facts_of_process(whole)


class NoWriter:
    """What a step may know of a writer, which it does not use."""

    turn_epoch = 1
