"""What is kept of values and backlogs: what the policy names, within bounds; and what an unknown end makes of a lag."""

import base64
import os
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpa.core.heard import inputs
from hpa.core.heard.inputs import TEXTS_MAX, texts_bytes_of_loads
from hpa.core.manifests.attached import read_attached
from hpa.core.named_inputs import forget_inputs_of_changed_queries, forget_unnamed_inputs
from hpa.core.requests.answers import explain_workload
from hpa.core.rules import HpaRules
from hpa.core.stored import StoredState, read_stored_state, stored_state_bytes
from spillway.api import RequestError
from spillway.dead_letters import outgoing_record
from spillway.events_scaling import (
    BacklogObserved,
    LoadObserved,
    PartitionBacklog,
    ScalePolicyDeclared,
    ScaleStateChanged,
)

from .world import (
    KAFKA,
    KEY,
    START_MS,
    World,
    backlog_observed,
    decided_sizes,
    external_metric,
    hpa_manifest,
    load_observed,
    scale_policy_manifest,
    scaled_object_manifest,
    workload_declared,
)

DRAIN = {"within": "5m", "recordsPerSecond": 1, "kafka": KAFKA["metadata"]}
PROMETHEUS = {"type": "prometheus", "metadata": {"serverAddress": "http://p", "query": "q", "threshold": "1"}}
HEADROOM = [{"supplyClass": "idle", "percent": 100}]
PODS = {
    "type": "Pods",
    "pods": {"metric": {"name": "busy"}, "target": {"type": "AverageValue", "averageValue": "1"}},
}
OBJECT = {
    "type": "Object",
    "object": {
        "describedObject": {"kind": "Ingress", "name": "front"},
        "metric": {"name": "requests"},
        "target": {"type": "Value", "value": "1"},
    },
}


def world_with_policy(manifest: dict[str, Any], replicas: int = 1) -> World:
    made = World()
    made.publish_input(workload_declared(replicas))
    made.declare_policy(manifest)
    return made


def backlog_with_end_offsets(latest: list[int], at_ms: int) -> BacklogObserved:
    rows = tuple(PartitionBacklog("orders", number, end, 1000, 0) for number, end in enumerate(latest))
    return BacklogObserved(*KEY, "kafka", "g", "orders", rows, at_ms, "test", "")


@pytest.mark.parametrize(
    ("manifest", "report", "kept"),
    [
        pytest.param(
            hpa_manifest([external_metric("queue", "1")]), load_observed("queue", 1, START_MS), True, id="external"
        ),
        pytest.param(
            hpa_manifest([external_metric("queue", "1")]),
            load_observed("other", 1, START_MS),
            False,
            id="another metric",
        ),
        pytest.param(
            hpa_manifest([external_metric("queue", "1")]),
            replace(load_observed("queue", 1, START_MS), pod="web-0"),
            False,
            id="of a pod",
        ),
        pytest.param(
            hpa_manifest([external_metric("queue", "1")]),
            backlog_observed([1], START_MS),
            False,
            id="a queue, and none is named",
        ),
        pytest.param(
            hpa_manifest([PODS]), replace(load_observed("busy", 1, START_MS), cluster="c", pod="web-0"), True, id="pods"
        ),
        pytest.param(
            hpa_manifest([OBJECT]),
            replace(load_observed("requests", 1, START_MS), object="Ingress/front"),
            True,
            id="object",
        ),
        pytest.param(
            hpa_manifest([OBJECT]),
            replace(load_observed("requests", 1, START_MS), object="Ingress/back"),
            False,
            id="another object",
        ),
        pytest.param(
            scaled_object_manifest([PROMETHEUS]), load_observed("s0-prometheus", 1, START_MS), True, id="a query"
        ),
        pytest.param(
            scaled_object_manifest([PROMETHEUS]), load_observed("s1-prometheus", 1, START_MS), False, id="another query"
        ),
        pytest.param(scaled_object_manifest([KAFKA]), backlog_observed([1], START_MS), True, id="a trigger's queue"),
        pytest.param(
            scaled_object_manifest([KAFKA]),
            replace(backlog_observed([1], START_MS), group="h"),
            False,
            id="another group",
        ),
        pytest.param(
            scaled_object_manifest([KAFKA]), backlog_observed([1], START_MS, topic="paid"), False, id="another topic"
        ),
        pytest.param(
            scale_policy_manifest(drain=DRAIN), backlog_observed([1], START_MS), True, id="the queue of a drain"
        ),
        pytest.param(
            scale_policy_manifest(headroom=HEADROOM),
            load_observed("headroom", 1, START_MS, series="idle"),
            True,
            id="headroom",
        ),
        pytest.param(
            scale_policy_manifest(drain=DRAIN),
            load_observed("headroom", 1, START_MS, series="idle"),
            False,
            id="no headroom",
        ),
    ],
)
def test_only_what_the_policy_names_is_kept(
    manifest: dict[str, Any], report: LoadObserved | BacklogObserved, kept: bool
) -> None:
    made = world_with_policy(manifest)
    made.publish_input(report)
    known = made.state.inputs[KEY]
    assert bool(known.loads or known.backlogs) == kept
    assert made.state.dropped == ({} if kept else {"unnamed": 1})


def test_long_names_that_nobody_asked_for_leave_a_state_that_can_be_written() -> None:
    made = world_with_policy(hpa_manifest([external_metric("queue", "1")]))
    for number in range(700):
        name = base64.b64encode(os.urandom(2_250)).decode()
        made.state.decide_on_record(made._append_record(load_observed(name, 1, START_MS + number)), START_MS + 1_000)
    made.publish_input(load_observed("queue", 3, START_MS + 2_000))
    assert made.current_replicas == 3
    states = [heard.event for heard in made.log if isinstance(heard.event, ScaleStateChanged)]
    assert len(outgoing_record(states[-1]).value or b"") < 10_000


def test_the_names_of_all_series_are_bounded() -> None:
    made = world_with_policy(hpa_manifest([external_metric("queue", "1")]))
    for number in range(3 * TEXTS_MAX // 2_000):
        made.state.decide_on_record(
            made._append_record(load_observed("queue", 1, START_MS + number, f"{number:02000}")), START_MS + 1_000
        )
    kept = made.state.inputs[KEY].loads
    assert TEXTS_MAX - 3_000 < texts_bytes_of_loads(kept.items()) < TEXTS_MAX + 3_000
    made.state.decide_on_record(
        made._append_record(load_observed("queue", 2, START_MS + 900, f"{0:02000}")), START_MS + 1_000
    )
    assert next(iter(kept.values())).value_milli == 2_000


def test_a_new_series_does_not_count_the_names_of_all_others_again(calls_of: Any) -> None:
    """One of 1,990 long names that finds no room took 5 ms; a report has 5,000 of them."""
    made = world_with_policy(hpa_manifest([external_metric("queue", "1")]))
    for number in range(100):
        made.state.decide_on_record(
            made._append_record(load_observed("queue", 1, START_MS + number, f"{number:04990}")), START_MS + 1_000
        )
    with calls_of(texts_bytes_of_loads) as counted:
        for number in range(100, 200):
            made.state.decide_on_record(
                made._append_record(load_observed("queue", 1, START_MS + number, f"{number:04990}")), START_MS + 1_000
            )
    assert 0 < len(made.state.inputs[KEY].loads) <= 100
    assert 0 < sum(len(call["loads"]) for call in counted) <= 100


NAMES = st.builds(
    lambda metric, series, pod: (metric, series, pod),
    st.sampled_from(["queue", "jobs", "größe"]),
    st.sampled_from(["", "a", "ä", "x" * 9, "…" * 3]),
    st.sampled_from(["", "web-0"]),
)
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("take"), NAMES, st.sampled_from([0, 10, 50])),
        st.tuples(st.just("take"), NAMES, st.sampled_from([0, 10, 50])),
        st.tuples(st.just("old"), st.none(), st.sampled_from([25, 60])),
        st.tuples(st.sampled_from(["unnamed", "changed", "restored", "cleared", "asked"]), st.none(), st.just(0)),
    ),
    max_size=40,
)


@given(OPERATIONS)
def test_the_bytes_of_names_that_are_kept_are_those_of_the_series_whatever_comes_and_goes(
    operations: list[tuple[str, tuple[str, str, str] | None, int]],
) -> None:
    jobs = read_attached(hpa_manifest([external_metric("jobs", "1")]), 0)
    before, after = (read_attached(hpa_manifest([external_metric_of_queue("jobs", one)]), 0) for one in "ab")
    kept, rules = inputs.WorkloadInputs(), HpaRules(series_max=6, forgotten_ms=20)
    for offset, (what, name, at_ms) in enumerate(operations):
        if what == "take" and name is not None:
            metric, series, pod = name
            kept.apply_load(replace(load_observed(metric, 1, at_ms, series), pod=pod), offset, rules)
        elif what == "old":
            kept.forget_old_series(at_ms, rules)
        elif what == "unnamed":
            forget_unnamed_inputs(jobs, kept)
        elif what == "changed":
            forget_inputs_of_changed_queries(before, after, kept, 0)
        elif what == "restored":
            read_stored_state(stored_state_bytes(StoredState(loads=tuple(kept.loads.items())[1:]))).restore_inputs(kept)
        elif what == "cleared":
            kept.loads.clear()
        if what != "asked" and offset % 3:  # It is right also where nobody asked for long.
            continue
        assert kept.texts_bytes == texts_bytes_of_loads(kept.loads.items())
    assert kept.texts_bytes == texts_bytes_of_loads(kept.loads.items())


def external_metric_of_queue(metric: str, queue: str) -> dict[str, Any]:
    made = external_metric(metric, "1")
    made["external"]["metric"]["selector"] = {"matchLabels": {"queue": queue}}
    return made


def test_another_policy_forgets_what_only_the_one_before_named() -> None:
    made = world_with_policy(hpa_manifest([external_metric("queue", "1"), external_metric("jobs", "1")]))
    made.publish_input(load_observed("queue", 1, START_MS + 1))
    made.publish_input(load_observed("jobs", 1, START_MS + 2))
    made.declare_policy(hpa_manifest([external_metric("jobs", "1")]))
    names = [key[0] for key in made.state.inputs[KEY].loads]
    made.restart()
    assert names == ["jobs"] == [key[0] for key in made.state.inputs[KEY].loads]


def prometheus_trigger(text: str, threshold: str) -> dict[str, Any]:
    metadata = {"serverAddress": "http://p", "query": text, "threshold": threshold}
    return {"type": "prometheus", "metadata": metadata}


def queue_metric_of_queue(queue: str) -> dict[str, Any]:
    return external_metric_of_queue("queue", queue)


def kafka_trigger_of_servers(servers: str) -> dict[str, Any]:
    return {"type": "kafka", "metadata": {**KAFKA["metadata"], "lagThreshold": "5", "bootstrapServers": servers}}


ORDERED = load_observed("s0-prometheus", 3, START_MS + 1), load_observed("s1-prometheus", 30, START_MS + 2)
CHANGED = [
    pytest.param(
        scaled_object_manifest([prometheus_trigger("few", "1"), prometheus_trigger("many", "10")]),
        scaled_object_manifest([prometheus_trigger("many", "10"), prometheus_trigger("few", "1")]),
        ORDERED,
        id="triggers in another order",
    ),
    pytest.param(
        scaled_object_manifest([prometheus_trigger("a", "10")]),
        scaled_object_manifest([prometheus_trigger("b", "1")]),
        (load_observed("s0-prometheus", 30, START_MS + 1),),
        id="another query",
    ),
    pytest.param(
        scaled_object_manifest([KAFKA]),
        scaled_object_manifest([kafka_trigger_of_servers("other:9092")]),
        (backlog_observed([5] * 6, START_MS + 1),),
        id="brokers",
    ),
    pytest.param(
        hpa_manifest([external_metric("queue", "10")]),
        hpa_manifest([queue_metric_of_queue("paid")]),
        (load_observed("queue", 30, START_MS + 1),),
        id="another selector",
    ),
]


@pytest.mark.parametrize(("before", "after", "reports"), CHANGED)
def test_an_answer_to_the_question_of_the_policy_before_is_not_decided_on(
    before: dict[str, Any], after: dict[str, Any], reports: tuple[LoadObserved | BacklogObserved, ...]
) -> None:
    """Neither what is known, nor what was measured before and comes later; also not after a restart."""
    made = world_with_policy(before)
    for report in reports:
        made.publish_input(report)
    decided = decided_sizes(made)
    made.advance_to(START_MS + 5_000)
    made.declare_policy(after)
    made.restart()
    for report in reports:
        made.state.decide_on_record(made._append_record(replace(report, at_ms=START_MS + 4_000)), START_MS + 6_000)
    assert decided_sizes(made) == decided
    for report in reports:
        made.publish_input(replace(report, at_ms=START_MS + 7_000))
    assert decided_sizes(made) != decided


def test_a_policy_that_asks_as_before_keeps_what_is_known() -> None:
    made = world_with_policy(scaled_object_manifest([KAFKA]))
    made.publish_input(backlog_observed([30] * 4, START_MS + 1))
    made.advance_to(START_MS + 5_000)
    made.declare_policy(scaled_object_manifest([KAFKA], maxReplicaCount=3))
    assert made.current_replicas == 3


def test_a_state_that_is_read_before_its_policy_keeps_what_that_names() -> None:
    made = world_with_policy(hpa_manifest([external_metric("queue", "10")]))
    made.advance_to(START_MS + 1_000)
    made.declare_policy(hpa_manifest([external_metric("jobs", "10")]))
    made.publish_input(load_observed("jobs", 20, START_MS + 2_000))
    policies = [heard for heard in made.log if isinstance(heard.event, ScalePolicyDeclared)]
    made.log.remove(policies[1])
    made.log.append(policies[1])
    made.restart()
    assert [key[0] for key in made.state.inputs[KEY].loads] == ["jobs"]


def test_another_queue_is_not_drained_at_the_rate_that_was_learned_of_one_before() -> None:
    made = world_with_policy(scale_policy_manifest(drain=DRAIN))
    for second in range(1, 60, 2):
        made.publish_input(backlog_observed([100, 100], START_MS + 1000 * second))
    made.declare_policy(scale_policy_manifest(drain={**DRAIN, "kafka": {**KAFKA["metadata"], "topic": "paid"}}))
    made.publish_input(backlog_observed([5], START_MS + 60_000, topic="paid"))
    queue = made.state.scaled[KEY].remembered.queue
    assert (len(queue.came), len(queue.counts), queue.work.seconds) == (0, 0, 0)


OTHER = {**KAFKA["metadata"], "bootstrapServers": "other:9092"}


@pytest.mark.parametrize(
    ("metadata", "refused"),
    [
        pytest.param(OTHER, True, id="other brokers"),
        pytest.param(KAFKA["metadata"], False, id="the same"),
        pytest.param({**OTHER, "topic": "paid"}, False, id="another topic"),
        pytest.param({**OTHER, "consumerGroup": "h"}, False, id="another group"),
    ],
)
def test_a_queue_of_one_name_on_two_brokers_is_refused(metadata: dict[str, str], refused: bool) -> None:
    manifest = scaled_object_manifest([KAFKA, {"type": "kafka", "metadata": metadata}])
    if not refused:
        assert read_attached(manifest).kind == "ScaledObject"
        return
    with pytest.raises(RequestError) as error:
        read_attached(manifest)
    assert error.value.code == "INVALID_ARGUMENT"
    for word in ("triggers[1].metadata.bootstrapServers", "other:9092", "kafka:9092", "'orders'"):
        assert word in error.value.text


LIMITED = {"type": "kafka", "metadata": {**KAFKA["metadata"], "partitionLimitation": "0"}}


@pytest.mark.parametrize(
    ("manifest", "latest", "known"),
    [
        pytest.param(scaled_object_manifest([KAFKA], minReplicaCount=1), [-1, -1], False, id="no end is known"),
        pytest.param(scaled_object_manifest([KAFKA], minReplicaCount=1), [1000, -1], False, id="one end is not known"),
        pytest.param(scaled_object_manifest([KAFKA], minReplicaCount=1), [1000, 1000], True, id="all are known"),
        pytest.param(scaled_object_manifest([LIMITED], minReplicaCount=1), [1000, -1], True, id="of another partition"),
        pytest.param(scale_policy_manifest(drain=DRAIN, minReplicas=1), [1000, -1], False, id="of a drain"),
    ],
)
def test_a_lag_without_every_end_is_unknown(manifest: dict[str, Any], latest: list[int], known: bool) -> None:
    made = world_with_policy(manifest, replicas=5)
    for second in range(1, 1000, 10):
        made.publish_input(backlog_with_end_offsets(latest, START_MS + 1000 * second))
    assert (made.current_replicas < 5) == known
    last = made.state.scaled[KEY].last
    assert last is not None
    read = last.reads[0].read
    assert (read.value_milli is not None) == known
    if not known:
        assert "orders/" in read.trouble
        assert read.failing_ms == START_MS + 1000


def test_a_fallback_stands_in_where_ends_stay_unknown() -> None:
    fallback = {"failureThreshold": 3, "replicas": 7}
    made = world_with_policy(
        scaled_object_manifest([KAFKA], minReplicaCount=1, pollingInterval=10, fallback=fallback), replicas=2
    )
    for second in range(1, 100, 10):
        made.publish_input(backlog_with_end_offsets([-1], START_MS + 1000 * second))
    assert decided_sizes(made)[-1][1] == 7


def backlog_with_commit(latest: int, at_ms: int, committed: int = -1) -> BacklogObserved:
    rows = tuple(PartitionBacklog("orders", number, latest, committed, 0) for number in range(4))
    return BacklogObserved(*KEY, "kafka", "g", "orders", rows, at_ms, "test", "")


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        pytest.param({}, 1, id="latest: one record, as KEDA counts"),
        pytest.param({"offsetResetPolicy": "earliest"}, 4, id="earliest: all of them"),
        pytest.param({"offsetResetPolicy": "earliest", "scaleToZeroOnInvalidOffset": "true"}, 0, id="none"),
    ],
)
def test_what_a_drain_takes_for_waiting_where_the_group_has_no_offset(metadata: dict[str, str], expected: int) -> None:
    made = world_with_policy(
        scale_policy_manifest(drain={**DRAIN, "kafka": {**KAFKA["metadata"], **metadata}}), replicas=0
    )
    made.publish_input(backlog_with_commit(1000, START_MS + 1_000))
    assert made.current_replicas == expected


def test_records_that_come_to_a_group_without_offsets_were_not_read() -> None:
    """What is learned of a replica's rate begins with the first offset."""
    made = world_with_policy(scale_policy_manifest(drain=DRAIN, minReplicas=1))
    for second in range(1, 60, 2):
        made.publish_input(backlog_with_commit(1000 + 100 * second, START_MS + 1000 * second))
    made.publish_input(backlog_with_commit(7000, START_MS + 61_000, committed=6990))
    assert made.state.scaled[KEY].remembered.queue.work.records == 0


def test_what_of_a_trigger_has_no_effect_is_said_by_name() -> None:
    metadata = {**KAFKA["metadata"], "excludePersistentLag": "true", "limitToPartitionsWithLag": "true"}
    drained = read_attached(scale_policy_manifest(drain={**DRAIN, "kafka": metadata})).warnings
    for name in ("excludePersistentLag", "lagThreshold", "limitToPartitionsWithLag"):
        assert any(text.startswith(f"drain.kafka.{name}: no effect") for text in drained)
    assert len(drained) == 3
    asked = read_attached(
        scaled_object_manifest([{"type": "kafka", "metadata": {**metadata, "tls": "enable", "lagTreshold": "5"}}])
    )
    assert [text.partition(":")[0] for text in asked.warnings] == [
        "triggers[0].metadata.lagTreshold",
        "triggers[0].metadata.tls",
    ]


IDLE, CLOUD = {"supplyClass": "idle", "percent": 50}, {"supplyClass": "cloud", "percent": 100}


def headroom_observed(value: int, second: int, supply_class: str = "idle") -> LoadObserved:
    return load_observed("headroom", value, START_MS + 1000 * second, series=supply_class)


@pytest.mark.parametrize(
    ("shares", "reports", "expected", "trouble"),
    [
        pytest.param([IDLE], [headroom_observed(10, 1)], 5, "", id="known"),
        pytest.param([IDLE], [], 3, "idle: nobody", id="never reported"),
        pytest.param(
            [IDLE],
            [headroom_observed(9, 1), headroom_observed(9, 150, "cloud")],
            4,
            "idle: its last value is too old",
            id="too old",
        ),
        pytest.param(
            [IDLE], [headroom_observed(10, 1), headroom_observed(9, 1, "cloud")], 5, "", id="of a class without a share"
        ),
        pytest.param([IDLE, CLOUD], [headroom_observed(10, 1)], 3, "cloud: nobody", id="one class of two is not known"),
    ],
)
def test_idle_capacity_of_which_a_part_is_unknown_asks_for_nothing(
    shares: list[dict[str, Any]], reports: list[LoadObserved], expected: int, trouble: str
) -> None:
    made = world_with_policy(scale_policy_manifest(headroom=shares), replicas=3)
    for report in reports:
        made.publish_input(report)
    assert made.current_replicas == expected
    told = explain_workload(made.state, made.state.scaled[KEY]).metrics[0]
    assert told.trouble.startswith(trouble)
    assert (told.trouble == "", told.replicas) == (not trouble, -1 if trouble else expected)


def test_a_share_that_is_closed_needs_no_value() -> None:
    night = {**IDLE, "start": "0 22 * * *", "end": "0 23 * * *"}
    made = world_with_policy(scale_policy_manifest(headroom=[night], minReplicas=1), replicas=3)
    made.advance_to(START_MS + 1_000)
    assert made.current_replicas == 1
