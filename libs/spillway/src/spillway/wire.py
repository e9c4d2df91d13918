"""Converts events to protobuf bytes and back, by the rule of messages.py, and packs the columns of nodes."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import zstandard
from google.protobuf.message import DecodeError, Message

from spillway import columns as column_values
from spillway.addresses import EVENT_TYPES, EVENTS_BY_TOPIC
from spillway.compressed_text import NotPacked, decompress_bounded
from spillway.events import Event
from spillway.events_scaling import BacklogObserved
from spillway.former_words import with_words_of_today
from spillway.messages import (
    TooManyEntries,
    UnreadableMessage,
    check_entry_count,
    fill_message,
    register_reader,
    register_writer,
    value_from_message,
)
from spillway.model import HostPort, Int64s, LabelSet, NodeColumns, PodTable, PodTerm, Policy, Taint
from spillway.v1 import events_pb2

__all__ = ["TooManyEntries", "UnreadableMessage", "check_entry_count", "fill_message", "value_from_message"]

TYPE_PREFIX = "spillway.v1."

_MESSAGE_BY_EVENT: dict[type, type[Message]] = {event: getattr(events_pb2, event.__name__) for event in EVENT_TYPES}
_EVENT_BY_TYPE = {TYPE_PREFIX + event.__name__: event for event in EVENT_TYPES}

COLUMNS_BYTES_MAX = 64 * 1024 * 1024
"""The most bytes of a block after decompression, so that a small record cannot demand all memory."""
COLUMNS_ENTRIES_MAX = 500_000
"""The most messages and texts in a block. Each costs two bytes in the block and some microseconds of the reader."""
RECORD_ENTRIES_MAX = 200_000
"""The most messages and texts in any other record."""
BACKLOG_ENTRIES_MAX = 15_000
"""The most entries of a backlog, which anybody may publish. It is about the number of partitions that hpa keeps for one
workload."""
_ENTRIES_MAX: dict[type, int] = {BacklogObserved: BACKLOG_ENTRIES_MAX}


POLICIES_KEPT_MAX, POLICY_BYTES_KEPT_MAX = 256, 8192
"""The number of recently read policies, and the largest size of one, for which equal policies share one value in
memory."""
POLICIES_WRITTEN_MAX = 64
"""The number of recently written policies whose bytes are kept."""


class UnknownKind(UnreadableMessage):
    """Raised for a record of an unknown type. kind: the type. If it has our form, a newer version may have it."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"ce_type {kind!r}: expected one of {', '.join(sorted(_EVENT_BY_TYPE))}")
        self.kind = kind


def event_type(event: Event) -> str:
    """Returns the CloudEvents type of an event."""
    return TYPE_PREFIX + type(event).__name__


def encode_event(event: Event) -> bytes:
    message = _MESSAGE_BY_EVENT[type(event)]()
    fill_message(event, message)
    return message.SerializeToString()


def encode_bounded_event(event: Event) -> bytes:
    """Returns the bytes of an event. Raises TooManyEntries for more entries than `decode_event` accepts."""
    message = _MESSAGE_BY_EVENT[type(event)]()
    fill_message(event, message)
    record_bytes = message.SerializeToString()
    check_entry_count(message, len(record_bytes), _ENTRIES_MAX.get(type(event), RECORD_ENTRIES_MAX))
    return record_bytes


def largest_field(event: Event) -> tuple[str, int]:
    """Returns the field of an event that takes the most bytes of its record, and the number of these bytes."""
    message = _MESSAGE_BY_EVENT[type(event)]()
    fill_message(event, message)
    sizes = {}
    for field, _ in message.ListFields():
        alone = type(message)()
        alone.MergeFrom(message)
        for other, _ in message.ListFields():
            if other.name != field.name:
                alone.ClearField(other.name)
        sizes[field.name] = alone.ByteSize()
    return max(sizes.items(), key=lambda entry: entry[1], default=("", 0))


def event_class_of(kind: str) -> type[Event]:
    """Returns the event class of a type. Raises UnknownKind."""
    event = _EVENT_BY_TYPE.get(kind)
    if event is None:
        raise UnknownKind(kind)
    return event


def decode_event(topic: str, kind: str, record_bytes: bytes) -> Event:
    """Returns the event in a record.

    Raises UnreadableMessage for an unknown kind, a kind of another topic, or bad bytes.
    """
    event = event_class_of(kind)
    if event not in EVENTS_BY_TOPIC[topic]:
        raise UnreadableMessage(f"ce_type {kind!r} does not belong on topic {topic}")
    message = _MESSAGE_BY_EVENT[event]()
    try:
        message.ParseFromString(record_bytes)
    except DecodeError as error:
        raise UnreadableMessage(f"{kind}: not protobuf of that type: {error}") from error
    check_entry_count(message, len(record_bytes), _ENTRIES_MAX.get(event, RECORD_ENTRIES_MAX))
    return with_words_of_today(value_from_message(message, event))


def _decode_policy(policy_bytes: bytes) -> Policy:
    return value_from_message(events_pb2.Policy.FromString(policy_bytes), Policy)


_kept_policy = lru_cache(maxsize=POLICIES_KEPT_MAX)(_decode_policy)


def _shared_policy(policy_bytes: bytes) -> Policy:
    """Returns a policy, from a cache if it is small. Workloads share few policies, and a policy is slow to decode."""
    return _kept_policy(policy_bytes) if len(policy_bytes) <= POLICY_BYTES_KEPT_MAX else _decode_policy(policy_bytes)


@lru_cache(maxsize=POLICIES_WRITTEN_MAX)
def _encode_policy(policy: Policy) -> bytes:
    """Returns a policy's bytes. Each change of a workload's size writes its policy again, which may be long."""
    message = events_pb2.Policy()
    fill_message(policy, message)
    return message.SerializeToString()


register_reader(Policy, lambda message: _shared_policy(message.SerializeToString()))
register_writer(Policy, _encode_policy)


# ── Columns ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class _Strings:
    """The string table of one message: each text once, with its index."""

    def __init__(self) -> None:
        self.index: dict[str, int] = {}

    def index_of(self, text: str) -> int:
        return self.index.setdefault(text, len(self.index))


def pack_columns(columns: NodeColumns) -> bytes:
    """Returns columns as a compressed protobuf; b"" for no nodes."""
    if not columns.names:
        return b""
    message = events_pb2.NodeColumns(names=columns.names)
    strings = _Strings()
    for index, resource in enumerate(columns.resources):
        message.resources.add(
            name=strings.index_of(resource),
            allocatable=columns.allocatable[index].tolist(),
            requested=columns.requested[index].tolist(),
        )
    for labels in columns.label_sets:
        _fill_labels(message.label_sets.add(), labels, strings)
    for taints in columns.taint_sets:
        message.taint_sets.add(
            keys=[strings.index_of(taint.key) for taint in taints],
            values=[strings.index_of(taint.value) for taint in taints],
            effects=[strings.index_of(taint.effect) for taint in taints],
        )
    _fill_pod_tables(message, columns.pod_tables, strings)
    for name in ("label_set", "taint_set", "state", "unschedulable", "pod_rows", "pod_sets", "pod_counts"):
        getattr(message, name).extend(getattr(columns, name).tolist())
    for row, port in columns.ports:
        message.port_rows.append(row)
        message.ports.add(ip=port.ip, protocol=port.protocol, port=port.port)
    message.strings.extend(strings.index)
    return zstandard.ZstdCompressor(level=3).compress(message.SerializeToString())


def unpack_columns(packed: bytes) -> NodeColumns:
    """Returns the columns that pack_columns compressed.

    Raises UnreadableMessage for bytes that are not columns, and for lengths or ids that do not fit together.
    """
    if not packed:
        return column_values.NO_NODES
    try:
        unpacked = decompress_bounded(packed, COLUMNS_BYTES_MAX)
        message = events_pb2.NodeColumns.FromString(unpacked)
        check_entry_count(message, len(unpacked), COLUMNS_ENTRIES_MAX)
        columns = _columns_from(message)
    except (NotPacked, DecodeError, IndexError, ValueError) as error:
        raise UnreadableMessage(f"columns: {error}") from error
    trouble = column_values.inconsistency(columns)
    if trouble:
        raise UnreadableMessage(f"columns: {trouble}")
    return columns


def _columns_from(message: events_pb2.NodeColumns) -> NodeColumns:
    strings = list(message.strings)
    return NodeColumns(
        names=tuple(message.names),
        resources=tuple(strings[resource.name] for resource in message.resources),
        allocatable=_matrix_from_rows([resource.allocatable for resource in message.resources], len(message.names)),
        requested=_matrix_from_rows([resource.requested for resource in message.resources], len(message.names)),
        label_sets=tuple(_labels_from(labels, strings) for labels in message.label_sets),
        label_set=_int64_array(message.label_set),
        taint_sets=tuple(
            tuple(
                Taint(strings[key], strings[value], strings[effect])
                for key, value, effect in zip(taints.keys, taints.values, taints.effects, strict=True)
            )
            for taints in message.taint_sets
        ),
        taint_set=_int64_array(message.taint_set),
        state=_int64_array(message.state),
        unschedulable=_int64_array(message.unschedulable),
        ports=tuple(
            (row, HostPort(port.ip, port.protocol, port.port))
            for row, port in zip(message.port_rows, message.ports, strict=True)
        ),
        pod_tables=_pod_tables_from(message, strings),
        pod_rows=_int64_array(message.pod_rows),
        pod_sets=_int64_array(message.pod_sets),
        pod_counts=_int64_array(message.pod_counts),
    )


def _matrix_from_rows(rows: Sequence[Any], width: int) -> Int64s:
    if not rows:
        return np.zeros((0, width), np.int64)
    return np.stack([_int64_array(row) for row in rows])


def _int64_array(repeated: Any) -> Int64s:
    """Returns an array of a repeated field. upb converts its scalars at once; a loop over them is 27 times slower."""
    return np.asarray(repeated).astype(np.int64, copy=False)


def _fill_labels(message: Any, labels: LabelSet, strings: _Strings) -> None:
    message.keys.extend(strings.index_of(key) for key, _ in labels)
    message.values.extend(strings.index_of(value) for _, value in labels)


def _fill_pod_tables(message: Any, tables: Sequence[PodTable], strings: _Strings) -> None:
    terms: dict[PodTerm, int] = {}
    for table in tables:
        filled = message.pod_tables.add(namespace=strings.index_of(table.namespace), terminating=table.terminating)
        filled.labels.SetInParent()
        _fill_labels(filled.labels, table.labels, strings)
        filled.apart.extend(terms.setdefault(term, len(terms)) for term in table.apart)
    for term in terms:
        fill_message(term, message.pod_terms.add())


def _pod_tables_from(message: Any, strings: list[str]) -> tuple[PodTable, ...]:
    terms = [value_from_message(term, PodTerm) for term in message.pod_terms]
    return tuple(
        PodTable(
            namespace=strings[table.namespace],
            labels=_labels_from(table.labels, strings),
            apart=tuple(map(terms.__getitem__, table.apart)),
            terminating=table.terminating,
        )
        for table in message.pod_tables
    )


def _labels_from(message: Any, strings: list[str]) -> LabelSet:
    known = strings.__getitem__
    return tuple(zip(map(known, message.keys), map(known, message.values), strict=True))
