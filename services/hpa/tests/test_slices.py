"""What is due together, or left from before a turn, is decided on in slices: no decision depends on their size."""

from collections import defaultdict
from dataclasses import replace
from itertools import count
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hpa.core.heard.heard import Heard
from hpa.core.rules import Rules
from hpa.core.state import ALL, HpaState
from hpa.service import Hpa
from hpa.settings import HpaSettings
from spillway.addresses import LOAD, address_of
from spillway.events import Event
from spillway.events_scaling import LoadObserved, ScaleDecided, ScalePolicyDeclared, ScaleStateChanged
from spillway.local_bus import LocalBroker, LocalBus
from spillway.model import Generation
from spillway.running.standby import Turn

from .world import KAFKA, at, begun, declared, external, hpa, load, own, scaled_object

RULES = Rules(missed_ms=10**9)
"""What was missed is decided on as things are when its slice comes."""
NAMES = [f"web-{number}" for number in range(4)]
WINDOW = {"name": "day", "timeZone": "UTC", "start": "*/2 * * * *", "end": "1-59/2 * * * *", "floor": 6}
POLICIES = [
    hpa([external("queue", "10")], behavior={"scaleDown": {"stabilizationWindowSeconds": 20}}),
    own(minReplicas=2, calendar=[WINDOW], metrics=[external("queue", "10")]),
    own(minReplicas=1, calendar=[WINDOW | {"floor": 9}]),
    scaled_object([KAFKA], minReplicaCount=1),
]


class Process:
    """An hpa that makes so many decisions between two looks at what is new; log: what all processes wrote and read."""

    def __init__(self, most: int, log: list[Heard]) -> None:
        self.most, self.log = most, log
        self.state = HpaState(RULES, lambda _: 0)
        for heard in log:
            self.state.follow(heard)
        self.state.read_whole()
        turns = sum(1 for one in log if isinstance(one.event, ScalePolicyDeclared))
        sequence = count(len(log))
        self._next = lambda: Generation(1 + turns, next(sequence))

    def take_turn(self, now_ms: int) -> None:
        self._write(self.state.take_turn(self._next, now_ms, 0))
        self.step(now_ms)

    def declare(self, name: str, manifest: dict[str, Any], now_ms: int) -> None:
        made = begun(manifest)
        (event,) = [one.event for one in made.log if isinstance(one.event, ScalePolicyDeclared)]
        policy = replace(event, name=name, policy=name, generation=self._next(), declared_ms=now_ms)
        self._write(self.state.declare(policy))

    def hear(self, event: Event, now_ms: int) -> None:
        self._write(self.state.hear(self.append(event), now_ms))

    def step(self, now_ms: int) -> None:
        self._write(self.state.fire(now_ms, self.most))

    def finish(self, now_ms: int) -> None:
        self._write(self.state.fire(now_ms))

    def append(self, event: Event) -> Heard:
        address = address_of(event)
        offset = sum(1 for one in self.log if one.topic == address.topic.name)
        self.log.append(Heard(address.topic.name, 0, offset, address.key, event))
        return self.log[-1]

    def _write(self, events: list[Event]) -> None:
        for event in (*events, *self.state.unwritten()):
            self.append(event)


def decisions(log: list[Heard]) -> dict[str, list[tuple[int, int, int, str]]]:
    found = defaultdict(list)
    for one in log:
        event = one.event
        if isinstance(event, ScaleDecided):
            found[event.name].append((event.at_ms, event.replicas_before, event.replicas, event.reason))
    return dict(found)


def last_states(log: list[Heard]) -> dict[str, bytes]:
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


def said(kind: str, number: int, value: int, at_ms: int) -> Event | None:
    if kind == "load":
        return replace(load("queue", value, at_ms), name=NAMES[number])
    return replace(declared(value % 12), name=NAMES[number]) if kind == "declared" else None


def told(most: int, steps: list[tuple[int, str, int, int, int]]) -> list[Heard]:
    """All that was written and read, by one that looks at what is new between so many decisions."""
    now_ms = at(0)
    made = Process(most, [])
    made.take_turn(now_ms)
    for name, manifest in zip(NAMES, POLICIES, strict=True):
        made.hear(replace(declared(2), name=name), now_ms)
        made.declare(name, manifest, now_ms)
    for after_ms, kind, number, value, late_ms in steps:
        now_ms += after_ms
        event = said(kind, number, value, max(now_ms - late_ms, at(0)))
        if kind == "policy":
            made.declare(NAMES[number], POLICIES[value % 4], now_ms)
        elif event is not None:
            made.hear(event, now_ms)
        made.step(now_ms)
    made.finish(now_ms)
    return made.log


@given(steps=STEPS, most=st.integers(0, 3))
def test_no_decision_and_no_state_depends_on_how_many_are_made_at_once(
    steps: list[tuple[int, str, int, int, int]], most: int
) -> None:
    whole, sliced = told(ALL, steps), told(most, steps)
    assert decisions(sliced) == decisions(whole)
    assert last_states(sliced) == last_states(whole)


@given(
    values=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 200)), min_size=1, max_size=8), steps=st.integers(0, 4)
)
def test_who_is_killed_between_two_slices_loses_no_value_that_others_have_not_seen(
    values: list[tuple[int, int]], steps: int
) -> None:
    """A state says how far its partition was read, and the next instance reads no value before."""
    before = Process(ALL, [])
    before.take_turn(at(0))
    for name in NAMES:
        before.hear(replace(declared(2), name=name), at(0))
        before.declare(name, POLICIES[0], at(0))
    for second, (number, value) in enumerate(values):
        event = said("load", number, value, at(second))
        assert event is not None
        before.append(event)  # Nobody had read it when that process was killed.
    logs = [list(before.log), list(before.log)]
    whole, killed = Process(ALL, logs[0]), Process(1, _kept(logs[1]))
    whole.take_turn(at(20))
    killed.state.take_turn(killed._next, at(20), 0)
    for _ in range(steps):
        killed.step(at(20))
    after = Process(ALL, _kept(killed.log))
    after.take_turn(at(20))
    assert {name: found[-1][2] for name, found in decisions(after.log).items()} == {
        name: found[-1][2] for name, found in decisions(whole.log).items()
    }


def _kept(log: list[Heard]) -> list[Heard]:
    """What a new instance reads of the log: of values only those from where the states stand."""
    state = HpaState(RULES, lambda _: 0)
    for heard in log:
        if not isinstance(heard.event, LoadObserved):
            state.follow(heard)
    state.read_whole()
    start = state.load_starts().get((LOAD.name, 0), 0)
    return [one for one in log if not isinstance(one.event, LoadObserved) or one.offset >= start]


async def test_what_is_new_is_decided_on_between_slices_of_what_is_due() -> None:
    """Ten thousand workloads whose values came together are due together."""
    bus = LocalBus(LocalBroker(), "local-00000001", "spillway/hpa-1")
    clock = [at(0)]
    made = Hpa(bus, HpaSettings(dues_in_group_max=2), "hpa-1", lambda: clock[0])
    async with bus.standby_turn("hpa", "hpa-1") as waiting:
        turn = Turn(await waiting.wait())
        made.state.read_whole()
        made.step(turn)
        offsets = count()
        for name in NAMES:
            await made._hear([_record(replace(declared(2), name=name), next(offsets))], {})
            (policy,) = [one for one in begun(POLICIES[0]).log if isinstance(one.event, ScalePolicyDeclared)]
            assert isinstance(policy.event, ScalePolicyDeclared)
            made.state.declare(replace(policy.event, name=name, policy=name, generation=turn.next_generation()))
            await made._hear([_record(replace(load("queue", 20, at(0)), name=name), next(offsets))], {})
        made.step(turn)
        clock[0] = at(130)  # All of their values are too old.
        made.standby.requests.asked.clear()
        first = made.step(turn)
        assert made.standby.requests.asked.is_set()
        await made._hear([_record(replace(load("queue", 90, at(130)), name=NAMES[3]), next(offsets))], {})
        second, third = made.step(turn), made.step(turn)
        made.standby.requests.asked.clear()
        clock[0] = at(131)
        last = made.step(turn)
        at_rest = not made.standby.requests.asked.is_set()
    states = [[one.name for one in step.events if isinstance(one, ScaleStateChanged)] for step in (first, second)]
    assert states == [NAMES[:2], [NAMES[3], NAMES[2]]]
    assert [one.replicas for one in second.events if isinstance(one, ScaleDecided)] == [6]
    assert (at_rest, third.events, [one.name for one in last.events]) == (True, [], [NAMES[3]])


def _record(event: Event, offset: int) -> Heard:
    address = address_of(event)
    return Heard(address.topic.name, 0, offset, address.key, event)
