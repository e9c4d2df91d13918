"""Crashes the autoscaler at every record of a trace, and checks that later decisions are the same as without a crash.

A crash is before the record is read, or after its results are written. The next life knows only the log, whose
compacted topics have only the newest record of each key. After some records its persisted state must have the same
bytes as the state of the undisturbed run. Then no later decision can differ.
"""

from collections import Counter
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, field
from random import Random
from typing import Any

from world import (
    KAFKA,
    START_MS,
    World,
    backlog_observed,
    cpu_utilization_metric,
    external_metric,
    hpa_manifest,
    load_observed,
    pods_observed,
    scale_policy_manifest,
    scaled_object_manifest,
    workload_declared,
)

from hpa.core.heard.heard_record import FORGETTING, HeardRecord
from spillway.addresses import Tombstone, address_of_event
from spillway.events import Event
from spillway.events_scaling import ScaleDecided, ScaleStateChanged

QUICK = {"scaleDown": {"stabilizationWindowSeconds": 40}}
DRAIN = {"within": "60s", "startUp": "20s", "rebalance": "3s", "recordsPerSecond": 3, "kafka": KAFKA["metadata"]}
MANIFESTS: dict[str, dict[str, Any]] = {
    "HorizontalPodAutoscaler": hpa_manifest(
        [cpu_utilization_metric(50), external_metric("queue", "10")], behavior=QUICK
    ),
    "ScaledObject": scaled_object_manifest([KAFKA], cooldownPeriod=45, fallback={"failureThreshold": 2, "replicas": 3}),
    "ScalePolicy": scale_policy_manifest(drain=DRAIN, metrics=[external_metric("queue", "10")], behavior=QUICK),
}
GOES_ON = 40
"""The records that the next life reads before its state is compared."""


@dataclass
class Compacted(World):
    """A world whose log has the newest record of each key, and all records of topics that are not compacted."""

    offsets: Counter[str] = field(default_factory=Counter)

    def _append_record(self, event: Event | Tombstone) -> HeardRecord:
        address = event.address if isinstance(event, Tombstone) else address_of_event(event)
        topic = address.topic.name
        made = None if isinstance(event, Tombstone) else event
        record = HeardRecord(topic, 0, self.offsets[topic], address.key, made)
        self.offsets[topic] += 1
        if topic not in FORGETTING:
            self.log = [one for one in self.log if (one.topic, one.key) != (topic, address.key)]
        self.log.append(record)
        return record

    def copy_for_next_life(self) -> "Compacted":
        """Returns a copy with the present log, for another life."""
        other = copy(self)
        other.log, other.decided, other.offsets = list(self.log), [], Counter(self.offsets)
        return other

    def newest_stored_state(self) -> bytes:
        """Returns the newest stored state in the log; empty if there is none yet."""
        found = (one.event for one in reversed(self.log) if isinstance(one.event, ScaleStateChanged))
        return next((event.state for event in found), b"")


def random_events(records: int, seed: int) -> Iterator[Event]:
    """Yields every kind of input, some late, repeated or with a trouble, in bursts and with pauses."""
    chance, second, lag, latest = Random(seed), 10, 0, 0
    for number in range(records):
        second += chance.randrange(1, 9)
        at_ms = START_MS + 1000 * second
        busy = number // 60 % 3 == 0
        kind = chance.randrange(4)
        if kind == 0:
            used = [chance.randrange(700, 1000) if busy else chance.randrange(300) for _ in range(3)]
            yield pods_observed(chance.choice(("own-1", "own-2")), [*used, None], at_ms, sequence=number + 1)
        elif kind == 1:
            late_ms = chance.choice((0, 0, 0, 40_000))
            yield load_observed("queue", chance.randrange(60, 120) if busy else chance.randrange(6), at_ms - late_ms)
        else:
            lag = chance.randrange(40, 90) if busy else max(0, lag - 30)
            latest += lag
            yield backlog_observed([lag] * 5, at_ms, trouble="" if chance.randrange(12) else "slow")


def decision_fields(decided: list[ScaleDecided]) -> list[tuple[int, int, int, str]]:
    return [(one.at_ms, one.replicas_before, one.replicas, one.reason) for one in decided]


@dataclass(frozen=True, slots=True)
class Restarts:
    """The result of the crashes. differed: the records after which a decision or the state was different."""

    boundaries: int
    decisions: int
    differed: tuple[int, ...]


def crash_at_each_record(kind: str, records: int, seed: int = 1, every: int = 1) -> Restarts:
    """Crashes once at each record, in turn before the record is read and after its results are written."""
    trace = list(random_events(records + GOES_ON, seed))
    made = Compacted()
    made.publish_input(workload_declared(1))
    made.declare_policy(MANIFESTS[kind])
    lives, counts, states = [], [], []
    for record in trace:
        lives.append(made.copy_for_next_life())
        counts.append(len(made.decided))
        made.publish_input(record)
        states.append(made.newest_stored_state())
    expected, counts = decision_fields(made.decided), [*counts, len(made.decided)]
    differed = []
    boundaries = range(0, records, every)
    for index in boundaries:
        life, end = lives[index], index + GOES_ON
        _replay_after_crash(life, trace[index : end + 1], heard=bool(index // every % 2))
        same = decision_fields(life.decided) == expected[counts[index] : counts[end + 1]]
        if not same or life.newest_stored_state() != states[end]:
            differed.append(index)
    return Restarts(len(boundaries), len(expected), tuple(differed))


def _replay_after_crash(life: Compacted, records: list[Event], *, heard: bool) -> None:
    life.restart()
    life.publish_input(records[0], heard=heard)
    life.restart()
    for record in records[1:]:
        life.publish_input(record)
