"""What cannot be read is set aside under words that fit, and no key reaches a reader that it cannot take apart."""

import pytest

from spillway.addresses import TOPICS
from spillway.dead_letters import REASON_CHARACTERS_MAX, Reading, Stored, outgoing
from spillway.events import PodsUnschedulable
from spillway.model import Shape
from spillway.wire import encode, event_type

FLEET = (("fleet", b"f1"),)


def read(topic: str, key: bytes, value: bytes | None, *headers: tuple[str, bytes]) -> Reading:
    reading = Reading("f1", "planner", 10)
    found = reading.read([Stored(topic, 0, 7, key, value, (*FLEET, *headers))], 0.0)
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
    (letter,) = read("spillway.load.v1", b"shop/web", b"x", *headers).pending
    assert len(letter.reason) == REASON_CHARACTERS_MAX
    assert outgoing(letter).value


@pytest.mark.parametrize(("requests", "letters"), [((), 1), ((("cpu", 100),), 1), ((("cpu", 100), ("pods", 1)), 0)])
def test_a_shape_that_asks_for_no_pods_place_is_set_aside(requests: tuple[tuple[str, int], ...], letters: int) -> None:
    event = PodsUnschedulable("own-1", "ReplicaSet/shop/web", 1, 1, "", 1, "0/9 nodes", Shape("shop", requests))
    kind = ("ce_type", event_type(event).encode())
    assert len(read("spillway.pending.v1", b"own-1/ReplicaSet/shop/web", encode(event), kind).pending) == letters


COMPACTED = [topic.name for topic in TOPICS if topic.compacted]
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
    (letter,) = read(topic, key, None).pending
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
        assert not read(topic, key.encode(), None).pending
