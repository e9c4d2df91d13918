"""Of what is told for one instant, the later record of the log counts, however often records are read again."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hpa.core.heard.inputs import MetricSeries, WorkloadInputs
from hpa.core.own.queue_state import NOTHING_SEEN, QueueObservation, state_with_observation
from hpa.core.own.queue_state import Offsets as QueueOffsets
from hpa.core.rules import DEFAULT_RULES
from hpa.core.stored import read_stored_state, stored_state_bytes, stored_state_of
from spillway.compressed_text import pack_text, unpack_text
from spillway.events_scaling import BacklogObserved, LoadObserved, PartitionBacklog

from .world import (
    KAFKA,
    backlog_observed,
    external_metric,
    hpa_manifest,
    load_observed,
    ms_after_start,
    scaled_object_manifest,
    world_under_policy,
)

PODS = {
    "type": "Pods",
    "pods": {"metric": {"name": "busy"}, "target": {"type": "AverageValue", "averageValue": "10"}},
}
OBJECT = {
    "type": "Object",
    "object": {
        "describedObject": {"kind": "Ingress", "name": "front"},
        "metric": {"name": "requests"},
        "target": {"type": "AverageValue", "averageValue": "10"},
    },
}


def load_of_object(value: float, at_ms: int, series: str = "") -> LoadObserved:
    return replace(load_observed("requests", value, at_ms, series), object="Ingress/front")


@pytest.mark.parametrize(
    ("manifest", "reports", "replicas"),
    [
        pytest.param(
            hpa_manifest([external_metric("queue", "10")]),
            [load_observed("queue", 60, ms_after_start(10)), load_observed("queue", 80, ms_after_start(10))],
            8,
            id="a value",
        ),
        pytest.param(
            hpa_manifest([external_metric("queue", "10")]),
            [
                load_observed("queue", 60, ms_after_start(10)),
                load_observed("queue", 60, ms_after_start(11)),
                load_observed("queue", 80, ms_after_start(11)),
            ],
            8,
            id="a repeat of the old value bears the time of the new one",
        ),
        pytest.param(
            hpa_manifest([external_metric("queue", "10")], behavior={"scaleDown": {"stabilizationWindowSeconds": 0}}),
            [load_observed("queue", 80, ms_after_start(10)), load_observed("queue", 40, ms_after_start(10))],
            4,
            id="the lower one comes later",
        ),
        pytest.param(
            hpa_manifest([OBJECT]),
            [load_of_object(60, ms_after_start(10)), load_of_object(80, ms_after_start(10))],
            8,
            id="an object's",
        ),
        pytest.param(
            hpa_manifest([OBJECT], behavior={"scaleDown": {"stabilizationWindowSeconds": 0}}),
            [
                load_of_object(40, ms_after_start(10), "b"),
                load_of_object(80, ms_after_start(10), "a"),
                load_of_object(60, ms_after_start(11), "b"),
                load_of_object(80, ms_after_start(11), "a"),
            ],
            8,
            id="an object's, under two series",
        ),
        pytest.param(
            hpa_manifest([OBJECT], behavior={"scaleDown": {"stabilizationWindowSeconds": 0}}),
            [
                load_of_object(80, ms_after_start(10), "a"),
                load_of_object(40, ms_after_start(10), "b"),
                load_of_object(70, ms_after_start(10), "a"),
            ],
            7,
            id="an object's, whose first series is told again",
        ),
        pytest.param(
            scaled_object_manifest([KAFKA], maxReplicaCount=30),
            [backlog_observed([10] * 6, ms_after_start(10)), backlog_observed([10] * 8, ms_after_start(10))],
            8,
            id="a backlog",
        ),
        pytest.param(
            hpa_manifest([external_metric("queue", "10")]),
            [
                load_observed("queue", 60, ms_after_start(10)),
                load_observed("queue", 0, ms_after_start(10), trouble="away"),
            ],
            6,
            id="no value takes none away",
        ),
        pytest.param(
            hpa_manifest([external_metric("queue", "10")]),
            [load_observed("queue", 60, ms_after_start(10)), load_observed("queue", -1, ms_after_start(10))],
            6,
            id="a negative one takes none away",
        ),
    ],
)
@pytest.mark.parametrize("killed", [False, True])
def test_of_one_instant_the_later_record_counts(
    manifest: dict[str, Any], reports: Sequence[LoadObserved | BacklogObserved], replicas: int, killed: bool
) -> None:
    made = world_under_policy(manifest, replicas=5)
    for report in reports:
        made.publish_input(report)
        if killed:
            made.restart()
    assert made.current_replicas == replicas


Reports = list[tuple[int, int, bool]]
"""Of each: its instant, value, and whether it is a report without one."""
REPORTS = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 4), st.booleans()), min_size=1, max_size=12)


def take_load_report(inputs: WorkloadInputs, told: int, instant: int, value: int, failed: bool) -> bool:
    return inputs.apply_load(
        load_observed("queue", value, ms_after_start(instant), trouble="away" * failed), told, DEFAULT_RULES
    )


def only_series(inputs: WorkloadInputs) -> MetricSeries:
    (known,) = inputs.loads.values()
    return known


@example(reports=[(1, 1, False), (1, 2, False)])
@example(reports=[(1, 1, False), (1, 2, True), (1, 3, False)])
@given(reports=REPORTS)
def test_records_that_are_read_twice_change_nothing(reports: Reports) -> None:
    inputs = WorkloadInputs()
    for offset, report in enumerate(reports):
        take_load_report(inputs, offset, *report)
    known = only_series(inputs)
    newest = max(instant for instant, _, _ in reports)
    values = [value for instant, value, failed in reports if instant == newest and not failed]
    assert known.heard_ms == ms_after_start(newest)
    assert (known.value_milli == values[-1] * 1000 and not known.failing_ms) if values else known.failing_ms
    for offset, report in enumerate(reports):
        assert not take_load_report(inputs, offset, *report)
        assert series_at_offset_zero(only_series(inputs)) == series_at_offset_zero(known)


def series_at_offset_zero(known: MetricSeries) -> MetricSeries:
    return msgspec.structs.replace(known, offset=0)


def test_a_negative_value_takes_none_of_the_same_instant_away() -> None:
    inputs = WorkloadInputs()
    assert take_load_report(inputs, 0, 1, 5, False)
    assert not take_load_report(inputs, 1, 1, -5, False)
    assert only_series(inputs).value_milli == 5_000


def backlog_of_rows(*offsets: tuple[int, int], at_ms: int) -> BacklogObserved:
    """(latest, committed) of each partition."""
    found = tuple(PartitionBacklog("orders", number, *one, 0) for number, one in enumerate(offsets))
    return replace(backlog_observed([], at_ms), partitions=found)


def test_ends_that_are_not_known_are_one_failure_of_one_instant() -> None:
    inputs = WorkloadInputs()
    for offset, committed in enumerate((7, 8, 9)):
        assert inputs.apply_backlog(backlog_of_rows((-1, committed), at_ms=ms_after_start(10)), offset, DEFAULT_RULES)
    (known,) = inputs.backlogs.values()
    assert known.failures == 1


def test_what_is_told_again_of_an_instant_is_no_poll_before() -> None:
    """A partition whose offset stays from one poll to the next may be left out of the lag."""
    inputs = WorkloadInputs()
    polls = (
        backlog_of_rows((10, 1), at_ms=ms_after_start(5)),
        backlog_of_rows((20, 2), at_ms=ms_after_start(10)),
        backlog_of_rows((30, 3), at_ms=ms_after_start(10)),
    )
    for offset, poll in enumerate(polls):
        assert inputs.apply_backlog(poll, offset, DEFAULT_RULES)
    (known,) = inputs.backlogs.values()
    assert (known.rows, known.committed) == ((("orders", 0, 30, 3),), (("orders", 0, 1),))
    assert not inputs.apply_backlog(polls[2], 3, DEFAULT_RULES)


def test_a_time_to_drain_is_of_the_later_backlog_of_one_instant() -> None:
    def queue_observation(latest: int, at_ms: int) -> QueueObservation:
        return QueueObservation(at_ms, (QueueOffsets(latest, 1000),), 2, 2)

    state = state_with_observation(
        state_with_observation(NOTHING_SEEN, queue_observation(1010, ms_after_start(1))),
        queue_observation(1090, ms_after_start(1)),
    )
    assert state.seen == queue_observation(1090, ms_after_start(1))
    assert state.came == ()


def test_where_a_value_stands_in_the_log_is_remembered_and_not_known_of_older_states() -> None:
    inputs = WorkloadInputs()
    take_load_report(inputs, 7, 1, 2, False)
    written = stored_state_bytes(stored_state_of(read_stored_state(b"").remembered, None, 0, inputs))
    assert dict(read_stored_state(written).loads) == inputs.loads
    older = msgspec.json.decode(unpack_text(written))
    for _, value in older["loads"]:
        del value["offset"]
    (known,) = dict(read_stored_state(pack_text(msgspec.json.encode(older))).loads).values()
    assert known.offset == -1
