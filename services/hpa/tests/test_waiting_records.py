"""What waits for a decision: namespaces take turns, each has its share of the places, and what is beyond is dropped."""

from collections import Counter, defaultdict
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpa.core.heard.heard_record import FORGETTING, HeardRecord
from hpa.core.heard.kept import record_memory_bytes
from hpa.core.heard.waiting_records import WaitingBounds, WaitingRecords
from hpa.core.scaled import IsOver
from hpa.core.state import HpaState
from hpa.service import Hpa, HpaClocks
from hpa.settings import HpaSettings
from spillway.addresses import LOAD, PODS, address_of_event
from spillway.events import Event
from spillway.events_scaling import ScaleDecided, ScalePolicyDeclared, ScaleStateChanged
from spillway.local_bus import LocalBroker, LocalBus
from spillway.model import Generation
from spillway.running.standby import WriterTurn

from .world import (
    KEY,
    backlog_observed,
    external_metric,
    hpa_manifest,
    load_observed,
    ms_after_start,
    pods_observed,
    workload_declared,
    world_under_policy,
)

QUEUE = hpa_manifest([external_metric("queue", "10")])
ROOMY = WaitingBounds(records_max=100_000, bytes_max=10**9, for_each_free=1.0)


def heard_record(event: Event, offset: int = 0) -> HeardRecord:
    address = address_of_event(event)
    return HeardRecord(address.topic.name, 0, offset, address.key, event)


def value_of(namespace: str, second: int, name: str = "web", trouble: str = "") -> HeardRecord:
    event = load_observed("queue", second, ms_after_start(second), trouble=trouble)
    return heard_record(replace(event, namespace=namespace, name=name), second)


def tombstone_of(namespace: str, topic: str, offset: int) -> HeardRecord:
    return HeardRecord(topic, 0, offset, f"{namespace}/web/c0", None)


def take_all(waiting: WaitingRecords) -> list[HeardRecord]:
    taken = []
    while waiting:
        taken.append(waiting.next_record())
        waiting.remove_next_record()
    return taken


# ── Turns ───────────────────────────────────────────────────────────────────────────────────────────────────────────

TURNS = (
    # The namespaces of the records in the order of arrival, and the numbers of the records in the order of decisions.
    pytest.param("", [], id="nothing"),
    pytest.param("aaa", [0, 1, 2], id="one namespace: in the order of arrival"),
    pytest.param("aaab", [0, 3, 1, 2], id="the only one of another namespace comes second"),
    pytest.param("aabbc", [0, 2, 4, 1, 3], id="one of each, then one of each"),
    pytest.param("abababa", [0, 1, 2, 3, 4, 5, 6], id="as they come"),
)


@pytest.mark.parametrize(("namespaces", "expected"), TURNS)
def test_namespaces_take_turns(namespaces: str, expected: list[int]) -> None:
    waiting = WaitingRecords(ROOMY)
    records = [value_of(namespace, number) for number, namespace in enumerate(namespaces)]
    assert waiting.add_records(records) == []
    assert [one.offset for one in take_all(waiting)] == expected
    assert (len(waiting), waiting.bytes) == (0, 0)


def test_who_gives_the_turn_away_keeps_its_records_and_comes_again_after_the_others() -> None:
    waiting = WaitingRecords(ROOMY)
    waiting.add_records([value_of("shop", 0), value_of("bank", 1), value_of("shop", 2)])
    waiting.pass_turn(waiting.next_record().workload[0])
    assert [one.offset for one in take_all(waiting)] == [1, 0, 2]


# ── Shares ──────────────────────────────────────────────────────────────────────────────────────────────────────────

TEN = WaitingBounds(records_max=10, bytes_max=10**9, for_each_free=1.0)
DROPPED = (
    # What waits and comes, of ten places, and the offsets of the values that are dropped.
    pytest.param([value_of("shop", n, f"w{n}") for n in range(5)], [], id="half of the places"),
    pytest.param([value_of("shop", n, f"w{n}") for n in range(7)], [0, 1], id="beyond: its oldest"),
    pytest.param(
        [*(value_of("shop", n, f"w{n}") for n in range(4)), value_of("shop", 4, "w2"), value_of("shop", 5, "w5")],
        [2],
        id="first what a newer value of its names replaces",
    ),
    pytest.param(
        [*(value_of("shop", n, f"w{n}") for n in range(1, 5)), value_of("shop", 6, "w0"), value_of("shop", 5, "w0")],
        [5],
        id="also where the newer one came before",
    ),
    pytest.param(
        [*(value_of("shop", n, f"w{n}") for n in range(5)), value_of("shop", 5, "w3", "no answer")],
        [0],
        id="a report without a value replaces no value",
    ),
    pytest.param(
        [*(value_of("shop", n, "w0", "no") for n in (0, 1)), *(value_of("shop", n, f"w{n}") for n in (2, 3, 4, 5))],
        [0],
        id="of reports without a value the older one goes",
    ),
    pytest.param(
        [*(value_of("shop", n, f"w{n}") for n in range(5)), *(value_of(one, 5) for one in "abcde")],
        [],
        id="the first of each other namespace has a place",
    ),
    pytest.param(
        [*(value_of("shop", n, f"w{n}") for n in range(5)), *(value_of("bank", n, f"w{n}") for n in range(5, 9))],
        [5, 6],
        id="another namespace: half of what is left",
    ),
    pytest.param(
        [*(value_of("shop", n, f"w{n}") for n in range(5)), *(value_of(one, 5) for one in "abcdefg")],
        [0, 1],
        id="all are full: of the namespace that holds most",
    ),
    pytest.param(
        [value_of("shop", 0), *(tombstone_of("shop", PODS.name, n) for n in range(1, 9))],
        [0],
        id="pods are never dropped, and values beside them are",
    ),
    pytest.param(
        [tombstone_of("shop", LOAD.name, n) for n in range(7)],
        [0, 1],
        id="a tombstone of a value has no effect, and is dropped",
    ),
)


@pytest.mark.parametrize(("records", "expected"), DROPPED)
def test_what_is_dropped(records: list[HeardRecord], expected: list[int]) -> None:
    waiting = WaitingRecords(TEN)
    assert [one.offset for one in waiting.add_records(records)] == expected
    left = take_all(waiting)
    assert len(left) == len(records) - len(expected)
    assert (len(waiting), waiting.bytes) == (0, 0)


def test_backlogs_are_replaced_by_group_and_topic() -> None:
    waiting = WaitingRecords(replace(TEN, records_max=6))
    records = [
        heard_record(backlog_observed([1], ms_after_start(second), topic=topic), second)
        for second, topic in enumerate(("jobs", "orders", "mails", "orders"))
    ]
    assert [one.offset for one in waiting.add_records(records)] == [1]


def test_a_namespace_holds_no_more_bytes_than_it_leaves_free() -> None:
    large = heard_record(backlog_observed([1] * 1_000, ms_after_start(1)), 1)
    waiting = WaitingRecords(replace(ROOMY, bytes_max=3 * record_memory_bytes(large)))
    assert waiting.add_records([large]) == []
    assert waiting.add_records([replace_backlog(large, "jobs", 2)]) == [large]
    assert waiting.add_records([replace_backlog(large, "jobs", 3, "bank")]) == []
    assert not waiting.is_full


def replace_backlog(heard: HeardRecord, topic: str, offset: int, namespace: str = KEY[0]) -> HeardRecord:
    event = backlog_observed([1] * 1_000, ms_after_start(offset), topic=topic)
    return heard_record(replace(event, namespace=namespace), offset)


def test_pods_and_declarations_alone_fill_it() -> None:
    waiting = WaitingRecords(TEN)
    assert waiting.add_records([heard_record(workload_declared(1), number) for number in range(11)]) == []
    assert waiting.is_full
    waiting.remove_next_record()
    assert not waiting.is_full


# ── Whatever comes ──────────────────────────────────────────────────────────────────────────────────────────────────

ARRIVING = st.lists(
    st.tuples(
        st.sampled_from("aaaabbcdefgh"),
        st.sampled_from(["value", "value", "value", "trouble", "backlog", "pods", "declared", "tombstone"]),
        st.integers(0, 2),  # Which of its series.
        st.integers(0, 30),  # The second at which it was measured.
        st.integers(0, 2),  # How many records are taken before it comes.
        st.booleans(),  # Whether it comes together with the next one.
    ),
    max_size=60,
)


def arriving_record(namespace: str, kind: str, series: int, second: int, offset: int) -> HeardRecord:
    event: Any
    if kind == "tombstone":
        return tombstone_of(namespace, PODS.name, offset)
    if kind == "pods":
        event = pods_observed("c0", [10], ms_after_start(second))
    elif kind == "declared":
        event = workload_declared(1)
    elif kind == "backlog":
        event = backlog_observed([1] * second, ms_after_start(second), topic=f"t{series}")
    else:
        event = load_observed("queue", 1, ms_after_start(second), f"s{series}", "no" if kind == "trouble" else "")
    return heard_record(replace(event, namespace=namespace), offset)


@given(arriving=ARRIVING, records_max=st.integers(1, 12), bytes_max=st.sampled_from([4_000, 30_000, 10**9]))
def test_whatever_comes_bounds_and_order_hold_and_nothing_is_lost(
    arriving: list[tuple[str, str, int, int, int, bool]], records_max: int, bytes_max: int
) -> None:
    waiting = WaitingRecords(WaitingBounds(records_max, bytes_max, 1.0))
    there: list[HeardRecord] = []
    batch: list[HeardRecord] = []
    turns: list[str] = []
    for offset, (namespace, kind, series, second, takes, is_with_next) in enumerate(arriving):
        batch.append(arriving_record(namespace, kind, series, second, offset))
        if is_with_next:
            continue
        there += batch
        dropped, batch = waiting.add_records(batch), []
        assert all(one.topic in FORGETTING for one in dropped)
        there = [one for one in there if one not in dropped]
        check_bounds(waiting, there, records_max, bytes_max)
        for _ in range(min(takes, len(waiting))):
            taken = waiting.next_record()
            assert taken == next(one for one in there if one.workload[0] == taken.workload[0])
            there.remove(taken)
            waiting.remove_next_record()
            turns.append(taken.workload[0])
    waiting.add_records([])
    assert sorted(one.offset for one in take_all(waiting)) == sorted(one.offset for one in there)


def check_bounds(waiting: WaitingRecords, there: list[HeardRecord], records_max: int, bytes_max: int) -> None:
    all_bytes = sum(map(record_memory_bytes, there))
    assert (len(waiting), waiting.bytes) == (len(there), all_bytes)
    assert waiting.is_full == (len(there) > records_max or all_bytes > bytes_max)
    if waiting.is_full:
        assert not any(one.topic in FORGETTING for one in there)
    own, own_bytes = Counter[str](), Counter[str]()
    for one in there:
        own[one.workload[0]] += 1
        own_bytes[one.workload[0]] += record_memory_bytes(one)
    for namespace in {one.workload[0] for one in there if one.topic in FORGETTING}:
        # While it is alone: half of all. Others that come later may leave it less than it has.
        assert own[namespace] == 1 or own[namespace] <= max(1, records_max // 2)
        assert own[namespace] == 1 or own_bytes[namespace] <= bytes_max / 2


@given(namespaces=st.lists(st.sampled_from("abcde"), max_size=40))
def test_nobodys_second_record_comes_before_anybodys_first(namespaces: list[str]) -> None:
    waiting = WaitingRecords(ROOMY)
    waiting.add_records([value_of(namespace, number) for number, namespace in enumerate(namespaces)])
    turns, rounds = defaultdict[str, int](int), []
    for taken in take_all(waiting):
        turns[taken.workload[0]] += 1
        rounds.append(turns[taken.workload[0]])
    assert rounds == sorted(rounds)


# ── In the service ──────────────────────────────────────────────────────────────────────────────────────────────────

BANK = ("bank", "pay")


class NoWriter:
    """What a step may know of a writer, which it does not use."""

    turn_epoch = 1


class Steady:
    """A steady clock that the test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class SlowState(HpaState):
    """A decision takes 3 ms of the clock that counts. The first `late` calls use up the time of a step before it."""

    def __init__(self, *words: Any) -> None:
        super().__init__(*words)
        self.steady, self.asked, self.late = Steady(), list[tuple[str, str]](), 0

    def decide_on_record_in_time(self, heard: HeardRecord, now_ms: int, is_over: IsOver) -> tuple[list[Event], bool]:
        self.steady.now += 0.003
        self.asked.append(heard.workload)
        if len(self.asked) <= self.late:
            return [], False
        return super().decide_on_record_in_time(heard, now_ms, is_over)


def hpa_with_two_namespaces(settings: HpaSettings) -> tuple[Hpa, SlowState]:
    """In its turn, with one policy for shop/web and one for bank/pay."""
    world, numbers = world_under_policy(QUEUE, replicas=1, made_of=SlowState), count(1)
    state = world.state
    assert isinstance(state, SlowState)
    state._next = lambda: Generation(5, next(numbers))
    (policy,) = [one.event for one in world.log if isinstance(one.event, ScalePolicyDeclared)]
    state.decide_on_record(
        heard_record(replace(workload_declared(1), namespace=BANK[0], name=BANK[1]), 1), ms_after_start(0)
    )
    state.put_policy_in_force(
        replace(policy, namespace=BANK[0], name=BANK[1], policy="pay-hpa", generation=Generation(5, 0))
    )
    state.take_unwritten_states()
    state.asked.clear()
    bus = LocalBus(LocalBroker(), "local-00000001", "spillway/hpa-1")
    made = Hpa(bus, settings, "hpa-1", HpaClocks(lambda: ms_after_start(100), state.steady))
    made._state, made._has_begun = state, True
    return made, state


def value_of_bank(offset: int) -> HeardRecord:
    event = load_observed("queue", 90, ms_after_start(50))
    return heard_record(replace(event, namespace=BANK[0], name=BANK[1]), offset)


async def test_behind_3000_records_of_one_namespace_another_namespaces_record_is_decided_on_as_the_second() -> None:
    made, state = hpa_with_two_namespaces(HpaSettings())
    values = [heard_record(load_observed("queue", n % 50, ms_after_start(10 + n / 100)), n) for n in range(3_000)]
    await made._queue_records(values, {})
    await made._queue_records([value_of_bank(3_000)], {})
    step = made.decide_step(WriterTurn(NoWriter()))
    assert state.asked.index(BANK) == 1
    assert 80 < len(state.asked) < 90, "the step ends by its time"
    sizes = [one.replicas for one in step.events if isinstance(one, ScaleDecided) and one.namespace == BANK[0]]
    assert sizes == [4, 8, 9], "as fast as the policy's rates allow"
    assert len(made._heard) == 3_001 - len(state.asked)
    assert made.standby.requests.asked.is_set()


async def test_a_state_says_how_far_its_own_workload_came_and_up_to_where_nothing_waits() -> None:
    made, _ = hpa_with_two_namespaces(HpaSettings(records_in_group_max=2))
    values = [heard_record(load_observed("queue", n, ms_after_start(10 + n)), n) for n in range(6)]
    await made._queue_records([*values, value_of_bank(6)], {})
    written = {
        one.namespace: dict(one.positions)
        for one in made.decide_step(WriterTurn(NoWriter())).events
        if isinstance(one, ScaleStateChanged)
    }
    place = f"{LOAD.name}/0"
    assert {namespace: (found[place], found.get(f"{place}/own")) for namespace, found in written.items()} == {
        KEY[0]: (1, None),
        BANK[0]: (1, 7),
    }


async def test_values_that_wait_beyond_the_share_of_their_namespace_are_dropped_and_counted() -> None:
    made, state = hpa_with_two_namespaces(HpaSettings(records_waiting_max=10))
    values = [heard_record(load_observed("queue", 10 * n, ms_after_start(n)), n) for n in range(9)]
    await made._queue_records(values, {(LOAD.name, 0): 9})
    assert (len(made._heard), state.dropped) == (5, {"too many": 4})
    (written,) = [one for one in made.decide_step(WriterTurn(NoWriter())).events if isinstance(one, ScaleStateChanged)]
    assert dict(written.positions)[f"{LOAD.name}/0"] == 9
    assert state.current_replicas(KEY) == 8


async def test_who_needs_a_step_for_what_was_due_before_its_record_gives_the_turn_to_the_next() -> None:
    made, state = hpa_with_two_namespaces(HpaSettings())
    state.late = 1
    await made._queue_records([heard_record(load_observed("queue", 20, ms_after_start(50)), 1), value_of_bank(2)], {})
    made.decide_step(WriterTurn(NoWriter()))
    made.decide_step(WriterTurn(NoWriter()))
    assert state.asked == [KEY, BANK, KEY]
    assert not made._heard
