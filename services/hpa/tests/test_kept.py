"""What a record takes while it waits for a decision is bounded, whatever its publisher put into it."""

import asyncio
import itertools
from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import replace as replace_struct

from hpa.core.heard.heard_record import FORGETTING, HeardRecord
from hpa.core.heard.inputs import BACKLOGS_MAX, SOURCE_MAX, TROUBLE_MAX
from hpa.core.heard.kept import (
    NAMES_BYTES_MAX,
    RECORD_BYTES,
    event_with_bounded_texts,
    has_long_names,
    record_memory_bytes,
)
from hpa.core.rules import HpaRules
from hpa.core.scaled import is_never_over
from hpa.core.state import HpaState
from hpa.log import ScalingIntake
from hpa.service import Hpa, HpaClocks
from hpa.settings import HpaSettings
from spillway.addresses import BACKLOG, LOAD, address_of_event
from spillway.bus import Record
from spillway.events import Event
from spillway.events_scaling import LoadObserved, PartitionBacklog, ScalePolicyDeclared, ScaleStateChanged
from spillway.local_bus import LocalBroker, LocalBus
from spillway.model import Generation
from spillway.running.request_queue import Decisions

from .world import (
    KAFKA,
    KEY,
    backlog_observed,
    external_metric,
    hpa_manifest,
    load_observed,
    ms_after_start,
    scaled_object_manifest,
    workload_declared,
    world_under_policy,
)

LONG = 2 * 1024 * 1024 * "x" + "\U0001f600"
"""Python keeps four bytes for each character of this."""
QUEUE = hpa_manifest([external_metric("queue", "10")])


def standby_state(manifest: dict[str, Any] = QUEUE, rules: HpaRules | None = None) -> HpaState:
    """A standby that has read one declared policy, and none of its state."""
    state = HpaState(rules or HpaRules(), lambda _: 0)
    for heard in world_under_policy(manifest, replicas=1).log:
        if not isinstance(heard.event, ScaleStateChanged):
            state.follow_record(heard)
    state.apply_early_records()
    return state


def heard_record(event: Event, offset: int = 0) -> HeardRecord:
    address = address_of_event(event)
    return HeardRecord(address.topic.name, 0, offset, address.key, event)


def feed_intake(intake: ScalingIntake, *events: Event) -> list[HeardRecord]:
    """The records of these events that the intake keeps."""
    for number, event in enumerate(events):
        address = address_of_event(event)
        intake.apply_record(Record(address.topic.name, 0, number, address.key, event), live=True)
    return waiting_values(intake.state)


def waiting_values(state: HpaState) -> list[HeardRecord]:
    """The values and backlogs that wait."""
    return [one for one in state.scaled[KEY].unseen if one.topic in FORGETTING]


def intake_into_state(state: HpaState) -> ScalingIntake:
    return ScalingIntake(lambda _: state)


def test_a_text_is_cut_before_its_record_is_kept() -> None:
    value, queue = (
        load_observed("queue", 1, ms_after_start(1)),
        replace(backlog_observed([1], ms_after_start(1)), group="g"),
    )
    kept = feed_intake(intake_into_state(standby_state()), replace(value, source=LONG), replace(value, trouble=LONG))
    assert [len(one.event.source) for one in kept if isinstance(one.event, LoadObserved)] == [SOURCE_MAX, 4]
    assert all(isinstance(one.event, LoadObserved) and len(one.event.trouble) <= TROUBLE_MAX for one in kept)
    both = scaled_object_manifest([KAFKA])
    (one,) = feed_intake(intake_into_state(standby_state(both)), replace(queue, source=LONG, trouble=LONG))
    assert record_memory_bytes(one) < 10_000
    assert event_with_bounded_texts(value) is value


@pytest.mark.parametrize("field", ["metric", "object", "series", "cluster", "pod"])
def test_a_value_with_long_names_is_not_kept(field: str) -> None:
    state = standby_state()
    long = replace(load_observed("queue", 1, ms_after_start(1)), **{field: "x" * NAMES_BYTES_MAX})
    assert feed_intake(intake_into_state(state), long, load_observed("queue", 2, ms_after_start(2))) == [
        heard_record(load_observed("queue", 2, ms_after_start(2)), 1)
    ]
    assert state.dropped == {"too long": 1}
    assert not has_long_names(replace(long, **{field: "ä" * 500}))
    assert has_long_names(replace(long, **{field: "ä" * (NAMES_BYTES_MAX // 2)}))
    assert not has_long_names(None)


def test_a_backlog_of_more_partitions_than_are_kept_has_none_and_says_why() -> None:
    rows = tuple(PartitionBacklog("orders", number, 1, 1, 0) for number in range(BACKLOGS_MAX // 48))
    many = replace(backlog_observed([1], ms_after_start(1)), partitions=rows)
    (one,) = feed_intake(intake_into_state(standby_state(scaled_object_manifest([KAFKA]))), many)
    assert one.event == replace(many, partitions=(), trouble=f"{len(rows)} partitions are more than is kept of one "
                                "workload's queues")  # fmt: skip
    assert event_with_bounded_texts(replace(many, trouble="no broker")) == replace(
        many, partitions=(), trouble="no broker"
    )


def test_a_standby_leaves_out_what_no_policy_names_and_its_position_passes_it() -> None:
    state = standby_state()
    for number, name in enumerate(("nobody-names-this", "queue", "nobody-names-this")):
        state.follow_record(heard_record(load_observed(name, 1, ms_after_start(number)), number))
    assert [one.offset for one in waiting_values(state)] == [1]
    assert state.positions.reached[LOAD.name, 0] == 3
    state.follow_record(heard_record(backlog_observed([5], ms_after_start(1))))
    assert [one.topic for one in waiting_values(state)] == [LOAD.name]
    assert state.positions.reached[BACKLOG.name, 0] == 1


def test_what_a_standby_keeps_is_bounded_by_bytes_and_the_newest_values_stay() -> None:
    most = 200 * RECORD_BYTES
    state = standby_state(rules=HpaRules(unseen_bytes_max=most))
    (declared,) = [one.event for one in world_under_policy(QUEUE).log if isinstance(one.event, ScalePolicyDeclared)]
    state.follow_record(heard_record(replace(declared, name="other", generation=Generation(1, 9))))
    other = heard_record(replace(load_observed("queue", 1, ms_after_start(0)), name="other"))
    state.follow_record(other)
    for number in range(1, 1_500):
        state.follow_record(heard_record(load_observed("queue", number, ms_after_start(number)), number))
        kept = itertools.chain.from_iterable(scaled.unseen for scaled in state.scaled.values())
        assert sum(map(record_memory_bytes, kept)) <= most + 2 * RECORD_BYTES
    unseen = waiting_values(state)
    assert [one.offset for one in unseen] == list(range(1_500 - len(unseen), 1_500))
    assert len(unseen) > 50
    assert state.dropped == {"too many": 1_499 - len(unseen)}
    assert state.scaled[KEY[0], "other"].unseen == [other]


def test_records_that_a_state_has_seen_are_dropped_before_any_other() -> None:
    """Of another workload of the partition: no state of their own workload follows what has no effect."""
    made = world_under_policy(QUEUE, replicas=1)
    made.publish_input(load_observed("queue", 40, ms_after_start(10)))
    (policy,) = [one.event for one in made.log if isinstance(one.event, ScalePolicyDeclared)]
    (*_, written) = [one.event for one in made.log if isinstance(one.event, ScaleStateChanged)]
    state = HpaState(HpaRules(unseen_bytes_max=200 * RECORD_BYTES), lambda _: 0)
    for heard in (*made.log, heard_record(replace(policy, name="other", generation=Generation(1, 9)))):
        state.follow_record(heard)
    state.apply_early_records()
    for number in range(1, 600):
        state.follow_record(heard_record(load_observed("queue", number, ms_after_start(9)), number))
        if number % 10 == 0:
            seen = ((f"{LOAD.name}/0", number),)
            told = replace(written, name="other", positions=seen, generation=Generation(9, number))
            state.follow_record(heard_record(told, number))
    assert state.dropped == {}
    assert len(waiting_values(state)) < 200


def test_a_declaration_and_pods_are_never_dropped() -> None:
    state = standby_state(rules=HpaRules(unseen_bytes_max=1))
    before = [one for one in state.scaled[KEY].unseen if one.topic != LOAD.name]
    for number in range(100):
        state.follow_record(heard_record(load_observed("queue", number, ms_after_start(number)), number))
    assert [one for one in state.scaled[KEY].unseen if one.topic != LOAD.name] == before


async def test_a_trace_is_kept_for_a_workload_with_a_policy_alone() -> None:
    bus, clocks = (
        LocalBus(LocalBroker(), "local-00000001", "spillway/hpa-1"),
        HpaClocks(lambda: ms_after_start(10), lambda: 0.0),
    )
    made = Hpa(bus, HpaSettings(), "hpa-1", clocks)
    made._state = world_under_policy(QUEUE, replicas=1).state
    trace, value = (("traceparent", b"a"),), load_observed("queue", 1, ms_after_start(1))
    for name in ("nobody", KEY[1]):
        await made._queue_records([replace_struct(heard_record(replace(value, name=name)), trace=trace)], {})
    made._decide_heard(Decisions(), is_never_over)
    assert (made._origins.find_origin(KEY), made._origins.find_origin((KEY[0], "nobody"))) == (trace, ())


async def test_what_waits_in_the_turn_is_bounded_by_bytes() -> None:
    """Declarations and pods are never dropped, so no more is read until some of them were decided on."""
    settings = HpaSettings(records_waiting_bytes_max=10 * RECORD_BYTES)
    bus, clocks = (
        LocalBus(LocalBroker(), "local-00000001", "spillway/hpa-1"),
        HpaClocks(lambda: ms_after_start(10), lambda: 0.0),
    )
    made = Hpa(bus, settings, "hpa-1", clocks)
    made._state = world_under_policy(QUEUE, replicas=1).state
    few = [heard_record(workload_declared(1), number) for number in range(8)]
    await asyncio.wait_for(made._queue_records(few, {}), 5)
    waits = asyncio.create_task(
        made._queue_records([heard_record(workload_declared(1), 8 + number) for number in range(8)], {})
    )
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not waits.done()
    made._decide_heard(Decisions(), is_never_over)
    await asyncio.wait_for(waits, 5)
    assert (len(made._heard), made._heard.bytes) == (0, 0)
