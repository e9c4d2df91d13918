"""What crosses the wire comes back as it was, or is refused in words."""

import dataclasses
import typing
from typing import Any

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from spillway.addresses import EVENT_TYPES, EVENTS_BY_TOPIC
from spillway.columns import columns_of, rows_of
from spillway.compressed_text import NotPacked, unpack_text
from spillway.events import CapacityReported, ClusterLeft, Event, WorkloadDeclared
from spillway.model import (
    HOSTNAME_LABEL,
    ClusterLimit,
    Generation,
    HostPort,
    NodeColumns,
    NodeRow,
    PodTable,
    PodTerm,
    Policy,
    Taint,
)
from spillway.v1 import events_pb2
from spillway.wire import (
    COLUMNS_BYTES_MAX,
    COLUMNS_ENTRIES_MAX,
    POLICY_BYTES_KEPT_MAX,
    RECORD_ENTRIES_MAX,
    TYPE_PREFIX,
    UnreadableMessage,
    check_entry_count,
    decode_event,
    encode_event,
    event_type,
    pack_columns,
    unpack_columns,
)

TOPIC_BY_EVENT = {event: topic for topic, events in EVENTS_BY_TOPIC.items() for event in events}
WORDS = st.text(max_size=4)
COUNTS = st.integers(0, 2**31 - 1)

st.register_type_strategy(str, WORDS)
st.register_type_strategy(int, COUNTS)
st.register_type_strategy(float, st.floats(allow_nan=False))
st.register_type_strategy(Generation, st.builds(Generation, st.integers(-1, 2**40), st.integers(0, 2**40)))


def values_of_type(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a type, in which no list is longer than two: a workload holds lists of lists of lists."""
    if typing.get_origin(hint) is tuple:
        inner = typing.get_args(hint)
        if inner[-1] is Ellipsis:
            return st.lists(st.deferred(lambda: values_of_type(inner[0])), max_size=2).map(tuple)
        return st.tuples(*map(values_of_type, inner))
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return st.builds(hint, **{name: values_of_type(inner) for name, inner in typing.get_type_hints(hint).items()})
    return st.from_type(hint)


@pytest.mark.parametrize("kind", EVENT_TYPES, ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_an_event_comes_back_as_it_was(kind: type, data: st.DataObject) -> None:
    event = data.draw(values_of_type(kind))
    assert decode_event(TOPIC_BY_EVENT[kind], event_type(event), encode_event(event)) == event


def workload_with_policy(policy: Policy) -> WorkloadDeclared:
    record_bytes = encode_event(
        WorkloadDeclared("default", "web", "Deployment", 1, 1, b"{}", 2, policy, (), (), (), False)
    )
    found = decode_event(TOPIC_BY_EVENT[WorkloadDeclared], TYPE_PREFIX + "WorkloadDeclared", record_bytes)
    assert isinstance(found, WorkloadDeclared)
    return found


def test_equal_policies_are_read_once_and_large_ones_each_time() -> None:
    small, other = Policy((), (), "Wait"), Policy((), (), "Refuse")
    large = Policy((), (ClusterLimit("x" * POLICY_BYTES_KEPT_MAX, 1, 2),), "Wait")
    assert workload_with_policy(small).policy is workload_with_policy(small).policy
    assert [workload_with_policy(one).policy for one in (small, other, large)] == [small, other, large]
    assert workload_with_policy(large).policy is not workload_with_policy(large).policy


def test_every_event_type_has_a_topic() -> None:
    assert set(TOPIC_BY_EVENT) == set(EVENT_TYPES)


@pytest.mark.parametrize("kind", EVENT_TYPES, ids=lambda kind: kind.__name__)
def test_the_message_of_an_event_has_its_fields_and_no_others(kind: type) -> None:
    message = getattr(events_pb2, kind.__name__).DESCRIPTOR
    assert {field.name for field in message.fields} == {field.name for field in dataclasses.fields(kind)}


LABELS = st.dictionaries(st.sampled_from(["a", "b", "zone", HOSTNAME_LABEL]), WORDS, max_size=3).map(
    lambda labels: tuple(sorted(labels.items()))
)
AMOUNTS = st.dictionaries(
    st.sampled_from(["cpu", "memory", "pods", "nvidia.com/gpu"]), st.integers(0, 2**50), max_size=4
)
TERMS = st.deferred(lambda: st.lists(values_of_type(PodTerm), max_size=2).map(tuple))
TABLES = st.builds(PodTable, WORDS, LABELS, TERMS, st.booleans())


@st.composite
def node_rows(draw: st.DrawFn) -> list[NodeRow]:
    names = draw(st.lists(st.text("abc", min_size=1, max_size=3), unique=True, max_size=5))
    return [
        NodeRow(
            name=name,
            allocatable=draw(AMOUNTS) | {"pods": draw(st.integers(1, 500))},
            requested=draw(AMOUNTS),
            labels=draw(LABELS),
            taints=tuple(draw(st.lists(st.builds(Taint), max_size=2))),
            state=draw(st.integers(0, 2)),
            unschedulable=draw(st.booleans()),
            ports=tuple(draw(st.lists(st.builds(HostPort, port=st.integers(1, 65535)), max_size=2))),
            pods=tuple(draw(st.dictionaries(TABLES, st.integers(1, 200), max_size=2)).items()),
        )
        for name in names
    ]


def are_equal_columns(one: NodeColumns, other: NodeColumns) -> bool:
    pairs = [(getattr(one, field.name), getattr(other, field.name)) for field in dataclasses.fields(NodeColumns)]
    return all(np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b for a, b in pairs)


@given(node_rows())
def test_columns_come_back_as_they_were(rows: list[NodeRow]) -> None:
    columns = columns_of(rows)
    assert are_equal_columns(unpack_columns(pack_columns(columns)), columns)


@given(node_rows())
def test_rows_come_back_out_of_columns(rows: list[NodeRow]) -> None:
    """Amounts of 0 are left out, and so is an empty hostname label, which no kubelet writes."""

    def plain(row: NodeRow) -> Any:
        labels = {key: value for key, value in row.labels if (key, value) != (HOSTNAME_LABEL, "")}
        amounts = [
            {name: amount for name, amount in side.items() if amount} for side in (row.allocatable, row.requested)
        ]
        rest = dataclasses.replace(row, allocatable={}, requested={}, labels=())
        return amounts, sorted(labels.items()), rest

    assert [plain(row) for row in rows_of(columns_of(rows))] == [plain(row) for row in rows]


def test_no_nodes_are_no_bytes() -> None:
    assert pack_columns(columns_of([])) == b""
    assert unpack_columns(b"").names == ()


TWO = columns_of([NodeRow(name, {"cpu": 1}, {}) for name in ("n1", "n2")])


@pytest.mark.parametrize(
    ("topic", "kind", "record_bytes", "says"),
    [
        pytest.param("spillway.clusters.v1", "", b"", "expected one of", id="no type"),
        pytest.param("spillway.clusters.v1", "spillway.v1.Unheard", b"", "expected one of", id="unknown type"),
        pytest.param("spillway.clusters.v1", "spillway.v2.ClusterLeft", b"", "expected one of", id="other version"),
        pytest.param("spillway.clusters.v1", "spillway.v1.FleetFormed", b"", "does not belong", id="other topic"),
        pytest.param("spillway.clusters.v1", "spillway.v1.ClusterLeft", b"\xff\xff", "not protobuf", id="bad bytes"),
        pytest.param("spillway.clusters.v1", "spillway.v1.ClusterLeft", b"\x0a\x05ab", "not protobuf", id="cut"),
        pytest.param(
            "spillway.clusters.v1", "spillway.v1.ClusterLeft", b"\x0a\x01\xff", "not protobuf", id="not UTF-8"
        ),
    ],
)
def test_what_cannot_be_read_is_refused_in_words(topic: str, kind: str, record_bytes: bytes, says: str) -> None:
    with pytest.raises(UnreadableMessage, match=says):
        decode_event(topic, kind, record_bytes)


@pytest.mark.parametrize(
    "columns",
    [
        pytest.param(dataclasses.replace(TWO, state=np.zeros(3, np.int64)), id="a column too long"),
        pytest.param(dataclasses.replace(TWO, label_set=np.array([0, 7], np.int64)), id="an index past its table"),
        pytest.param(dataclasses.replace(TWO, taint_set=np.array([0, 1], np.int64)), id="an index just past its table"),
        pytest.param(dataclasses.replace(TWO, pod_rows=np.array([5], np.int64)), id="a pod on no node"),
    ],
)
def test_columns_that_do_not_fit_together_are_refused(columns: NodeColumns) -> None:
    with pytest.raises(UnreadableMessage):
        unpack_columns(pack_columns(columns))


@pytest.mark.parametrize(
    "columns_bytes", [b"x", pack_columns(TWO)[:-4], pack_columns(TWO)[4:]], ids=["short", "cut", "headless"]
)
def test_columns_that_were_damaged_are_refused(columns_bytes: bytes) -> None:
    with pytest.raises(UnreadableMessage):
        unpack_columns(columns_bytes)


def test_fields_of_a_later_version_are_passed_over() -> None:
    event: Event = ClusterLeft("x")
    assert (
        decode_event("spillway.clusters.v1", TYPE_PREFIX + "ClusterLeft", encode_event(event) + b"\xf8\x7c\x07")
        == event
    )


@pytest.mark.parametrize("says_its_size", [True, False])
def test_a_small_record_cannot_ask_for_all_memory(says_its_size: bool) -> None:
    """Whether or not the frame says how much it holds; and where it says more than there is."""
    compressor = zstandard.ZstdCompressor(write_content_size=says_its_size)
    bomb = compressor.compress(bytes(COLUMNS_BYTES_MAX + 1))
    assert len(bomb) < 10_000
    with pytest.raises(UnreadableMessage, match="columns"):
        unpack_columns(bomb)
    with pytest.raises(NotPacked):
        unpack_text(bomb)


def encoded_empty_entries(message: Any, field: str, count: int) -> bytes:
    """Empty ones, of two bytes each."""
    return bytes([message.DESCRIPTOR.fields_by_name[field].number << 3 | 2, 0]) * count


@pytest.mark.parametrize("field", ["facts", "namespaces"])
def test_more_entries_than_a_record_may_have_are_not_read(field: str) -> None:
    """Two bytes each, microseconds each of who makes values of them."""
    record = encoded_empty_entries(events_pb2.CapacityReported, field, RECORD_ENTRIES_MAX + 1)
    expected = f"{field}: {RECORD_ENTRIES_MAX + 1} entries: expected at most {RECORD_ENTRIES_MAX}"
    with pytest.raises(UnreadableMessage, match=expected):
        decode_event(TOPIC_BY_EVENT[CapacityReported], TYPE_PREFIX + CapacityReported.__name__, record)


@pytest.mark.parametrize("field", ["label_sets", "names", "pod_tables"])
def test_more_entries_than_a_block_may_have_are_not_read(field: str) -> None:
    packed = zstandard.ZstdCompressor().compress(
        encoded_empty_entries(events_pb2.NodeColumns, field, COLUMNS_ENTRIES_MAX + 1)
    )
    with pytest.raises(UnreadableMessage, match=f"{field}: {COLUMNS_ENTRIES_MAX + 1} entries"):
        unpack_columns(packed)


def test_entries_inside_entries_count_too() -> None:
    one = events_pb2.ClusterJoined()
    for _ in range(3):
        group = one.node_groups.add(name="big")
        for _ in range(3):
            group.taints.add()
    check_entry_count(one, 10_000, 12)
    with pytest.raises(UnreadableMessage, match=r"node_groups\.taints: 12 entries: expected at most 11"):
        check_entry_count(one, 10_000, 11)


def test_a_frame_that_says_it_holds_more_than_it_may_is_not_unpacked() -> None:
    claims = zstandard.ZstdCompressor().compress(bytes(300))[:4] + b"\xe0" + (2**62).to_bytes(8, "little") + b"\x00"
    with pytest.raises(NotPacked, match=f"{2**62} bytes once unpacked"):
        unpack_text(claims)
