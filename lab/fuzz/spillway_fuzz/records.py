"""Fuzzes the readers of records of every type and topic, and of the columns and states that records contain."""

from functools import partial
from random import Random
from typing import Any, Final

import zstandard

from hpa.core.stored import UnreadableState, read_stored_state
from planner.core.placement.replaying import NotReplayable, read_division, replay_division
from spillway.addresses import EVENT_TYPES, EVENTS_BY_TOPIC, TOPICS, address_of_event
from spillway.columns import columns_of, rows_of
from spillway.compressed_text import NotPacked, pack_text, unpack_text
from spillway.dead_letters import LetterReading, StoredRecord, outgoing_record
from spillway.events import (
    CapacityChanged,
    CapacityReported,
    DecisionRecorded,
    PlacementDecided,
    PodsUnschedulable,
    ShapeAdmitted,
    WorkloadDeclared,
)
from spillway.events_lending import LendingDeclared
from spillway.model import Generation
from spillway.v1 import events_pb2
from spillway.wire import TYPE_PREFIX, UnreadableMessage, decode_event, event_type, unpack_columns
from spillway_fuzz.mutation import mutated_bytes, mutated_message, random_bytes
from spillway_fuzz.target import Input, Target, acceptance_check
from spillway_fuzz.values import random_division, random_encodable_event, random_packed_columns, random_stored_state

FLEET: Final = "fuzz-1a2b3c4d"
TYPES: Final = tuple(TYPE_PREFIX + kind.__name__ for kind in EVENT_TYPES)
RAW: Final = tuple(sorted(EVENTS_BY_TOPIC))
LARGE: Final = frozenset(
    (CapacityReported, CapacityChanged, PodsUnschedulable, WorkloadDeclared, PlacementDecided, DecisionRecorded,
     ShapeAdmitted, LendingDeclared)
)  # fmt: skip
"""The types whose inputs cost as much as ten inputs of other types, so that fewer are made."""


def targets() -> list[Target]:
    records = [
        Target(
            f"record {kind.__name__}", partial(_mutated_record, kind), _read_record, share=6 if kind in LARGE else 20
        )
        for kind in EVENT_TYPES
    ]
    return [
        *records,
        Target("tombstones", _random_tombstone, _read_record, share=15),
        Target("columns", _mutated_columns, acceptance_check(_read_columns, UnreadableMessage), share=50),
        Target("packed text", _mutated_packed_text, acceptance_check(unpack_text, NotPacked), share=60),
        Target(
            "hpa's stored state", _mutated_stored_state, acceptance_check(read_stored_state, UnreadableState), share=70
        ),
        Target(
            "recorded division", _mutated_division, acceptance_check(_replay_recorded_division, NotReplayable), share=15
        ),
    ]


# ── Records ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _mutated_record(kind: type, chance: Random) -> Input:
    """Returns a mutated record as (topic, key, ce_type, fleet, value)."""
    event, value, address = random_encodable_event(kind, chance)
    how, topic, name, fleet = chance.random(), address.topic.name, event_type(event).encode(), FLEET.encode()
    if how < 0.35:
        value = mutated_bytes(value, chance)
    elif how < 0.75:
        value = mutated_message(getattr(events_pb2, kind.__name__).FromString(value), chance)
    key = _key_for_value(topic, name.decode(), value) or address.key.encode()
    if 0.75 < how < 0.8:
        key = mutated_bytes(key, chance)
    elif 0.8 < how < 0.84:
        name = mutated_bytes(chance.choice(TYPES).encode(), chance)
    elif 0.84 < how < 0.86:
        topic = chance.choice(RAW)
    elif 0.86 < how < 0.87:
        fleet = mutated_bytes(fleet, chance)
    elif 0.87 < how < 0.875:
        name, fleet = b"\x00" * chance.choice((10, 600_000)), chance.choice((fleet, b"\x07" * 600_000))
    elif 0.875 < how < 0.885:
        value = random_bytes(chance)
    return topic, key, name, fleet, value


def forged_record(kind: type, fleet: str, chance: Random) -> tuple[bytes, list[tuple[str, bytes]], bytes | None]:
    """Returns (key, headers, value) of a mutated record or a tombstone for the log of this fleet."""
    if chance.random() < 0.05:
        _, key, name, of, _ = _random_tombstone(chance)
        value = None
    else:
        _, key, name, of, value = _mutated_record(kind, chance)
    return key, [("fleet", fleet.encode() if of == FLEET.encode() else of), ("ce_type", name)], value


def _key_for_value(topic: str, name: str, value: bytes) -> bytes:
    """Returns the key that a reader expects for this value; empty for an unreadable value."""
    try:
        return address_of_event(decode_event(topic, name, value)).key.encode()
    except (UnreadableMessage, KeyError, UnicodeEncodeError):
        return b""


def _random_tombstone(chance: Random) -> Input:
    topic = chance.choice(TOPICS).name
    _, _, address = random_encodable_event(chance.choice(EVENTS_BY_TOPIC[topic]), chance)
    key = address.key.encode() if chance.random() < 0.3 else mutated_bytes(address.key.encode(), chance)
    return topic, key, b"", FLEET.encode(), None


def _read_record(given: Input) -> bool:
    """Reads a record as every service does. Writes each unreadable record as a dead letter, which must not fail."""
    topic, key, name, fleet, value = given
    reading = LetterReading(FLEET, "fuzz", 10)
    headers = (("fleet", fleet), ("ce_type", name))
    found = reading.read_records([StoredRecord(topic, 0, 7, key, value, headers)], 0.0)
    for letter in reading.pending:
        outgoing_record(letter)
    return bool(found)


# ── Packed columns, texts and states ────────────────────────────────────────────────────────────────────────────────


def _mutated_columns(chance: Random) -> Input:
    columns_bytes, how = random_packed_columns(chance), chance.random()
    if how < 0.3 or not columns_bytes:
        return mutated_bytes(columns_bytes, chance)
    if how > 0.995:
        return decompression_bomb(chance)
    message = events_pb2.NodeColumns.FromString(zstandard.decompress(columns_bytes))
    return zstandard.compress(mutated_message(message, chance))


def decompression_bomb(chance: Random) -> bytes:
    """Returns a zstd frame whose content is far larger, or whose header says so. The header may have no size."""
    if chance.random() < 0.5:
        small = bytearray(zstandard.compress(bytes(300)))
        # A frame with 8 bytes of content size: 0xe0 in the descriptor, which has a single segment (RFC 8878, 3.1.1.1).
        return (
            bytes(small[:4]) + b"\xe0" + chance.choice((2**31, 2**40, 2**62)).to_bytes(8, "little") + bytes(small[6:])
        )
    writes_size = chance.random() < 0.5
    compressor = zstandard.ZstdCompressor(write_content_size=writes_size)
    return compressor.compress(bytes(chance.choice((2**20, 70 * 2**20, 200 * 2**20))))


def _read_columns(columns_bytes: bytes) -> None:
    columns = unpack_columns(columns_bytes)
    columns_of(rows_of(columns))


def _mutated_packed_text(chance: Random) -> Input:
    if chance.random() < 0.005:
        return decompression_bomb(chance)
    return mutated_bytes(pack_text(random_bytes(chance, 2_000)), chance)


def _mutated_stored_state(chance: Random) -> Input:
    state_bytes = random_stored_state(chance)
    return mutated_bytes(state_bytes, chance) if chance.random() < 0.2 else state_bytes


def _mutated_division(chance: Random) -> Input:
    division_bytes = random_division(chance)
    return mutated_bytes(division_bytes, chance) if chance.random() < 0.1 else division_bytes


def _replay_recorded_division(division_bytes: bytes) -> Any:
    place = ("shop", "web", Generation(1, 1), 5, "Apply", 4, 0)
    record = DecisionRecorded(*place, inputs=(), positions=(), settings="", code_version="1", division=division_bytes)
    read_division(record)
    return replay_division(record)
