"""What cannot be read is set aside under words that fit, and no key reaches a reader that it cannot take apart."""

from contextlib import nullcontext
from dataclasses import is_dataclass
from typing import Any, get_args, get_type_hints

import pytest

from spillway.addresses import EVENT_TYPES, TOPICS
from spillway.bus import TooManyDeadLetters
from spillway.dead_letters import (
    REASON_CHARACTERS_MAX,
    RECORD_BYTES_MAX,
    LetterReading,
    StoredRecord,
    UnwritableEvent,
    outgoing_record,
    shape_fields,
)
from spillway.events import ClusterLeft, PodsUnschedulable
from spillway.model import Shape
from spillway.wire import encode_event, event_type

FLEET = (("fleet", b"f1"),)


def reading_after_record(topic: str, key: bytes, value: bytes | None, *headers: tuple[str, bytes]) -> LetterReading:
    reading = LetterReading("f1", "planner", 10)
    found = reading.read_records([StoredRecord(topic, 0, 7, key, value, (*FLEET, *headers))], 0.0)
    assert len(found) + len(reading.pending) == 1
    return reading


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param((("ce_type", b"\x00" * 900_000),), id="a type"),
        pytest.param((("fleet", b"\x07" * 900_000),), id="a fleet"),
    ],
)
def test_a_dead_letter_fits_into_a_record_however_long_a_header_was(headers: tuple[tuple[str, bytes], ...]) -> None:
    (letter,) = reading_after_record("spillway.load.v1", b"shop/web", b"x", *headers).pending
    assert len(letter.reason) == REASON_CHARACTERS_MAX
    assert outgoing_record(letter).value


HALF = RECORD_BYTES_MAX // 2


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param((("tracestate", b"x" * HALF), ("other", b"x" * HALF)), id="long ones"),
        pytest.param((("", b""),) * (RECORD_BYTES_MAX // 32), id="many empty ones"),
    ],
)
def test_the_headers_of_a_record_count_in_its_size(headers: tuple[tuple[str, bytes], ...]) -> None:
    (letter,) = reading_after_record("spillway.load.v1", b"shop/web", b"x", *headers).pending
    assert f"bytes: expected at most {RECORD_BYTES_MAX}" in letter.reason


def test_of_the_headers_of_a_record_those_of_its_trace_are_kept() -> None:
    trace = (("traceparent", b"a"), ("tracestate", b"b"))
    event = ClusterLeft("own-1")
    record_bytes = encode_event(event)
    kind = ("ce_type", event_type(event).encode())
    one = StoredRecord(
        "spillway.clusters.v1", 0, 7, b"own-1", record_bytes, (*FLEET, kind, ("other", b"x" * 1000), *trace)
    )
    (record,) = LetterReading("f1", "planner", 10).read_records([one], 0.0)
    assert record.headers == trace


def stored_record(kind: str, key: bytes, value: bytes = b"", offset: int = 7) -> StoredRecord:
    return StoredRecord("spillway.clusters.v1", 0, offset, key, value, (*FLEET, ("ce_type", kind.encode())))


def test_a_newer_versions_kind_ends_no_reading() -> None:
    """It stays in compacted topics, so that a reader of the version before would not come up again."""
    reading = LetterReading("f1", "planner", 10)
    newer = [stored_record("spillway.v1.ClusterMoved", b"own-1/a/new/form", b"\x07", offset) for offset in range(1_000)]
    known = ClusterLeft("own-1")
    found = reading.read_records([*newer, stored_record(event_type(known), b"own-1", encode_event(known))], 0.0)
    assert [record.event for record in found] == [known]
    (letter,) = reading.pending
    assert (letter.offset, letter.reason[:34]) == (0, "ce_type 'spillway.v1.ClusterMoved'")


@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param([f"spillway.v1.{'A' * (number + 1)}" for number in range(20)], id="of many kinds"),
        pytest.param(["spillway.v1.Cluster-Moved"] * 20, id="of no kind's form"),
        pytest.param(["x"] * 20, id="of somebody else's kind"),
    ],
)
def test_what_no_newer_version_says_ends_the_reading(kinds: list[str]) -> None:
    with pytest.raises(TooManyDeadLetters):
        LetterReading("f1", "planner", 10).read_records([stored_record(kind, b"own-1") for kind in kinds], 0.0)


@pytest.mark.parametrize(("requests", "letters"), [((), 1), ((("cpu", 100),), 1), ((("cpu", 100), ("pods", 1)), 0)])
def test_a_shape_that_asks_for_no_pods_place_is_set_aside_and_not_written(
    requests: tuple[tuple[str, int], ...], letters: int
) -> None:
    event = PodsUnschedulable("own-1", "ReplicaSet/shop/web", 1, 1, "", 1, "0/9 nodes", Shape("shop", requests))
    kind = ("ce_type", event_type(event).encode())
    assert (
        len(
            reading_after_record("spillway.pending.v1", b"own-1/ReplicaSet/shop/web", encode_event(event), kind).pending
        )
        == letters
    )
    with pytest.raises(UnwritableEvent, match="shape: requests") if letters else nullcontext():
        outgoing_record(event)


def can_hold_shapes(hint: Any) -> bool:
    """Whether values of this type have a shape in them, however deep."""
    if hint is Shape or any(map(can_hold_shapes, get_args(hint))):
        return True
    return is_dataclass(hint) and any(map(can_hold_shapes, get_type_hints(hint).values()))


def test_the_shapes_of_every_event_are_looked_at() -> None:
    """Also of one that is added: what is nested deeper would not be found."""
    fields = {event: shape_fields(event) for event in EVENT_TYPES if shape_fields(event)}
    assert fields.keys() == {event for event in EVENT_TYPES if can_hold_shapes(event)}
    for event, names in fields.items():
        assert set(names) == {name for name, hint in get_type_hints(event).items() if can_hold_shapes(hint)}


COMPACTED = [topic.name for topic in TOPICS if topic.is_compacted]
NO_KEYS = {
    "spillway.capacity.v1": (b"own-1", b"own-1/x", b"own-1/1/2", b"own-1/-1", b"own-1/99999999999", "own-1/²".encode()),
    "spillway.pods.v1": (b"shop/web", b"a/b/web/own-1"),
    "spillway.workloads.v1": (b"poison", b"a/b/c"),
    "spillway.placements.v1": (b"poison",),
    "spillway.workload-status.v1": (b"shop/web",),
    "spillway.pending.v1": (b"own-1",),
    "spillway.clusters.v1": (b"a/b",),
    "spillway.brakes.v1": (b"",),
}


@pytest.mark.parametrize(("topic", "key"), [(topic, key) for topic, keys in NO_KEYS.items() for key in keys])
def test_a_tombstone_of_a_key_that_no_event_has_is_set_aside(topic: str, key: bytes) -> None:
    (letter,) = reading_after_record(topic, key, None).pending
    assert "expected one that an event of" in letter.reason


KEYS = {
    "fleet": ("fleet",),
    "turns.planner": ("planner",),
    "turns.hpa": ("hpa",),
    "turns.descheduler": ("descheduler",),
    "clusters": ("own-1",),
    "capacity": ("own-1/0", "own-1/17"),
    "pending": ("own-1/shop/web", "own-1/ReplicaSet/shop/web-1"),
    "workloads": ("shop/web",),
    "dependencies": ("ConfigMap/shop/settings",),
    "placements": ("shop/web",),
    "capacity-needed": ("shop/web/own-1",),
    "workload-status": ("shop/web/own-1", "own-1"),
    "brakes": ("fleet", "cluster/own-1", "workload/shop/web", "Drain/own-1"),
    "shapes": ("0f3a/own-1",),
    "pods": ("shop/web/own-1",),
    "scale-policies": ("shop/web",),
    "scale-state": ("shop/web",),
    "scale": ("shop/web",),
    "lending-rules": ("own-1",),
    "lending": ("own-1/n1", "own-1"),
    "recalls": ("own-1/n1",),
}
"""Of each compacted topic, as its events have them; the claims of workload-status and lending among them."""


@pytest.mark.parametrize("topic", COMPACTED)
def test_a_tombstone_of_a_key_that_events_have_is_read(topic: str) -> None:
    for key in KEYS[topic.removeprefix("spillway.").removesuffix(".v1")]:
        assert not reading_after_record(topic, key.encode(), None).pending
