"""What is kept of one workload fits the log: reports, and the state that is written with every decision."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from hpa.core.heard.inputs import BACKLOGS_MAX, backlog_bytes_max, partition_bytes_max
from hpa.core.requests.reporting import NAME_MAX, ReportCheck
from spillway import wire
from spillway.addresses import BACKLOG
from spillway.dead_letters import UnwritableEvent, outgoing_record
from spillway.events_scaling import BacklogObserved, PartitionBacklog, ScaleStateChanged
from spillway.v1 import events_pb2
from spillway.wire import value_from_message

from .world import (
    KAFKA,
    KEY,
    START_MS,
    World,
    backlog_observed,
    scale_policy_manifest,
    scaled_object_manifest,
    workload_declared,
)

MEBIBYTE = 1024 * 1024
DRAIN_POLICY = scale_policy_manifest(
    drain={"within": "5m", "recordsPerSecond": 1, "kafka": {**KAFKA["metadata"], "topic": ""}}
)
TRIGGER_POLICY = scaled_object_manifest([{"type": "kafka", "metadata": {**KAFKA["metadata"], "topic": ""}}])


def largest_backlog(topics: list[str], at_ms: int, random: Random, more: int = 0) -> BacklogObserved:
    """As many partitions as are taken, and more; of numbers that nothing makes shorter."""
    rows = []
    for number in range(BACKLOGS_MAX):
        topic = topics[number % len(topics)]
        if more + BACKLOGS_MAX < (len(rows) + 1) * partition_bytes_max(topic):
            break
        committed = random.randrange(2**62)
        rows.append(
            PartitionBacklog(topic, number, committed + random.randrange(2**61), committed, random.randrange(2**41))
        )
    return BacklogObserved(*KEY, "kafka", "g", "", tuple(rows), at_ms, "test", "")


NAMES = [
    pytest.param(["orders"], id="one short name"),
    pytest.param([bytes(Random(n).choices(range(97, 123), k=NAME_MAX)).decode() for n in range(400)], id="long names"),
]


@pytest.mark.parametrize("topics", NAMES)
@pytest.mark.parametrize(
    "manifest", [pytest.param(TRIGGER_POLICY, id="ScaledObject"), pytest.param(DRAIN_POLICY, id="drain")]
)
def test_the_largest_backlog_and_the_state_with_it_fit_a_mebibyte(manifest: dict[str, Any], topics: list[str]) -> None:
    made, random = World(), Random(7)
    made.publish_input(workload_declared(1))
    made.declare_policy(manifest)
    for second in (1, 3, 5):
        report = largest_backlog(topics, START_MS + 1000 * second, random)
        taken, answers = ReportCheck(made.state, START_MS + 1000 * second).accept_reports((report,))
        assert [answer.code for answer in answers] == ["OK"]
        assert len(outgoing_record(taken[0]).value or b"") < MEBIBYTE
        made.publish_input(report)
    last = made.state.scaled[KEY].last
    assert last is not None
    assert last.reads[0].read.trouble == ""
    state = next(heard.event for heard in reversed(made.log) if isinstance(heard.event, ScaleStateChanged))
    assert len(made.state.inputs[KEY].backlogs["g", ""].rows) == len(report.partitions) > 2_000
    assert len(outgoing_record(state).value or b"") < MEBIBYTE


def backlog_message_of_partitions(count: int) -> events_pb2.BacklogObserved:
    """Each is an empty message of two bytes."""
    message = events_pb2.BacklogObserved(namespace=KEY[0], name=KEY[1], group="g")
    for _ in range(count):
        message.partitions.add()
    return message


def test_a_backlog_of_more_partitions_than_are_kept_is_not_read(calls_of: Any) -> None:
    """Each would become a value before anybody asks whether a policy names the queue."""
    record_bytes = backlog_message_of_partitions(wire.BACKLOG_ENTRIES_MAX + 1).SerializeToString()
    with calls_of(value_from_message) as read:
        with pytest.raises(wire.TooManyEntries, match="partitions: 15001"):
            wire.decode_event(BACKLOG.name, wire.TYPE_PREFIX + "BacklogObserved", record_bytes)
        assert not read
        record_bytes = backlog_message_of_partitions(wire.BACKLOG_ENTRIES_MAX).SerializeToString()
        found = wire.decode_event(BACKLOG.name, wire.TYPE_PREFIX + "BacklogObserved", record_bytes)
    assert len(read) == wire.BACKLOG_ENTRIES_MAX + 1
    assert isinstance(found, BacklogObserved)
    assert len(found.partitions) == wire.BACKLOG_ENTRIES_MAX
    with pytest.raises(UnwritableEvent, match="partitions: 15001"):
        outgoing_record(replace(found, partitions=(*found.partitions, found.partitions[0])))


def test_a_backlog_that_is_kept_can_be_read() -> None:
    assert partition_bytes_max("x") * wire.BACKLOG_ENTRIES_MAX > BACKLOGS_MAX


@pytest.mark.parametrize("topics", NAMES)
def test_a_larger_backlog_is_refused_and_unknown(topics: list[str]) -> None:
    made = World()
    made.publish_input(workload_declared(1))
    made.declare_policy(TRIGGER_POLICY)
    report = largest_backlog(topics, START_MS + 1_000, Random(7), more=2 * NAME_MAX)
    assert backlog_bytes_max(report) > BACKLOGS_MAX
    taken, (answer,) = ReportCheck(made.state, START_MS + 1_000).accept_reports((report,))
    assert (taken, answer.code) == ([], "INVALID_ARGUMENT")
    assert f"{len(report.partitions)} partitions, {backlog_bytes_max(report)} bytes" in answer.text
    made.publish_input(report)
    last = made.state.scaled[KEY].last
    assert last is not None
    assert last.reads[0].read.trouble.endswith("more than is kept of one workload's queues")


def test_all_queues_of_a_workload_together_are_bounded() -> None:
    metadata = {**KAFKA["metadata"], "topic": ""}
    made = World()
    made.publish_input(workload_declared(1))
    made.declare_policy(scaled_object_manifest([KAFKA, {"type": "kafka", "metadata": metadata}]))
    made.publish_input(largest_backlog(["orders"], START_MS + 1_000, Random(7)))
    made.publish_input(backlog_observed([1], START_MS + 2_000))
    assert made.state.inputs[KEY].backlogs["g", "orders"].trouble
    made.publish_input(replace(backlog_observed([1], START_MS + 3_000), topic=""))
    made.publish_input(backlog_observed([1], START_MS + 4_000))
    assert not made.state.inputs[KEY].backlogs["g", "orders"].trouble


def test_a_queue_that_is_told_at_any_rate_leaves_a_small_state() -> None:
    made = World()
    made.publish_input(workload_declared(1))
    made.declare_policy(
        scale_policy_manifest(drain={"within": "5m", "recordsPerSecond": 1, "kafka": KAFKA["metadata"]})
    )
    for number in range(1_500):
        made.state.decide_on_record(
            made._append_record(backlog_observed([number], START_MS + number)), START_MS + number
        )
    assert len(made.state.scaled[KEY].remembered.queue.came) < 5


def test_a_drain_of_all_topics_takes_a_new_one_for_a_backlog_and_not_for_arrivals() -> None:
    made = World()
    made.publish_input(workload_declared(1))
    made.declare_policy(DRAIN_POLICY)
    for second in range(4):
        topics = {"orders": 100 * second} | ({"bills": 10**6} if second > 1 else {})
        rows = tuple(PartitionBacklog(topic, 0, latest, 0, 0) for topic, latest in topics.items())
        made.publish_input(BacklogObserved(*KEY, "kafka", "g", "", rows, START_MS + 1000 * (second + 1), "test", ""))
    assert [one.rate for one in made.state.scaled[KEY].remembered.queue.came] == [100.0] * 3
