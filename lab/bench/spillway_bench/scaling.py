"""Measures the autoscaler's code alone, with the records that hpa reads, and prints the figures as JSON.

Each record has the newest samples of a workload in one cluster, and leads to one decision. Before the timed part each
workload is decided on once, as when its policy is declared: the first decision looks at all its clusters. The baseline
computes every decision anew from all pods of the workload, on the same records. Both must make the same decisions and
keep the same states. Times are CPU times of this one thread.
"""

import argparse
import gc
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from hpa.core.heard.heard_record import HeardRecord
from hpa.core.heard.inputs import WorkloadInputs
from hpa.core.rules import DEFAULT_RULES
from hpa.core.sizing.composing import SizingState
from hpa.core.state import HpaState
from spillway.addresses import address_of_event
from spillway.bus import Outgoing, partition_of
from spillway.dead_letters import outgoing_record
from spillway.events import Event
from spillway.kafka.topics import TopicSettings
from spillway.model import Generation
from spillway.wire import decode_event

from .machine import memory_of
from .scaled_fleet import (
    CPU,
    QUICK,
    Size,
    pod_sample_events,
    pods_events_of_workload,
    policy_declared_event,
    workload_declared_event,
)

sys.path.append(str(Path(__file__).resolve().parents[3] / "services" / "hpa" / "tests"))
from whole_clusters import WholeClusters

PARTITIONS = TopicSettings().partitions_workload
NOW_MS = 1_000_000_000
GROUP = 200
"""The number of records whose states are written together, as hpa does under load."""
Events = list[Event]


@dataclass(frozen=True, slots=True)
class Written:
    """A record with its place in the log and its bytes."""

    heard: HeardRecord
    kind: str
    record_bytes: bytes

    def decode_record(self) -> HeardRecord:
        """Returns the record, decoded from its bytes as when it is consumed."""
        heard = self.heard
        event = decode_event(heard.topic, self.kind, self.record_bytes)
        return HeardRecord(heard.topic, heard.partition, heard.offset, heard.key, event)


class Log:
    """Gives each record its partition and offset."""

    def __init__(self) -> None:
        self._ends: dict[tuple[str, int], int] = {}

    def append_event(self, event: Event) -> Written:
        record, address = outgoing_record(event), address_of_event(event)
        place = (address.topic.name, partition_of(address.partition_by, PARTITIONS))
        offset = self._ends[place] = self._ends.get(place, -1) + 1
        return Written(HeardRecord(*place, offset, address.key, event), record.kind, record.value or b"")


def make_state(size: Size, log: Log, make_inputs: Callable[[], WorkloadInputs]) -> HpaState:
    """Returns the state of an active hpa with all workloads, pods and policies, before its first decision."""
    state = HpaState(DEFAULT_RULES, lambda key: partition_of(key, PARTITIONS))
    state.apply_early_records()
    for number in range(size.workloads):
        workload = log.append_event(workload_declared_event(number)).decode_record()
        state.inputs[workload.workload] = make_inputs()
        state.follow_record(workload)
        for one in pods_events_of_workload(number, NOW_MS - 1_000):
            state.follow_record(log.append_event(one).decode_record())
        state.follow_record(
            log.append_event(
                policy_declared_event(number, CPU, Generation(1, number + 1), NOW_MS - 1_000)
            ).decode_record()
        )
    sequence = count(1)
    state.take_turn(lambda: Generation(2, next(sequence)), NOW_MS)
    return state


def decide_on_group(state: HpaState, group: Sequence[HeardRecord]) -> Events:
    """Returns the decisions on a group of records, in the same steps as hpa's service."""
    events: Events = []
    for heard in group:
        events += state.decide_on_record(heard, heard.at_ms)
    return [*events, *state.make_due_decisions(group[-1].at_ms)]


def split_into_groups(records: Sequence[Written]) -> list[Sequence[Written]]:
    return [records[at : at + GROUP] for at in range(0, len(records), GROUP)]


def decide_on_records(state: HpaState, records: Sequence[Written]) -> tuple[float, Events]:
    """Returns (CPU seconds of the decisions alone, their events)."""
    seconds, decided = 0.0, []
    for group in split_into_groups(records):
        heard = [record.decode_record() for record in group]
        began = time.process_time()
        decided += decide_on_group(state, heard)
        seconds += time.process_time() - began
        state.take_unwritten_states()
    return seconds, decided


def time_whole_processing(state: HpaState, records: Sequence[Written]) -> tuple[float, float]:
    """Returns two CPU times in seconds.

    The first is from the bytes of records to the bytes of decisions and states. The second is of decoding and encoding
    the same bytes alone.
    """
    whole = alone = 0.0
    for group in split_into_groups(records):
        began = time.process_time()
        heard = [record.decode_record() for record in group]
        read = time.process_time()
        events = [*decide_on_group(state, heard), *state.take_unwritten_states()]
        decided = time.process_time()
        encode_events(events)
        ended = time.process_time()
        whole += ended - began
        alone += (read - began) + (ended - decided)
    return whole, alone


def encode_events(events: Events) -> list[Outgoing]:
    return [outgoing_record(event) for event in events]


def sizing_states(state: HpaState) -> list[SizingState]:
    return [scaled.remembered for scaled in state.scaled.values()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    size = QUICK if parser.parse_args().quick else Size()
    stream = list(pod_sample_events(size, NOW_MS))
    empty = memory_of(os.getpid())
    log = Log()
    state = make_state(size, log, WorkloadInputs)
    records = [log.append_event(event) for event in stream]
    half = (size.workloads + size.records) // 2
    first, measured, again = records[: size.workloads], records[size.workloads : half], records[half:]
    decide_on_records(state, first)
    gc.collect()
    full = memory_of(os.getpid())
    gc.disable()
    seconds, decided = decide_on_records(state, measured)
    kept = sizing_states(state)
    whole, alone = time_whole_processing(state, again)
    del state
    gc.collect()
    plain = make_state(size, Log(), lambda: WorkloadInputs(clusters=WholeClusters()))
    decide_on_records(plain, first)
    plain_seconds, plain_decided = decide_on_records(plain, measured)
    if decided != plain_decided or kept != sizing_states(plain):
        raise SystemExit("kept totals decided otherwise than all pods")
    print_figure("hpa_decisions_per_second", len(measured) / seconds, len(measured) / plain_seconds)
    print_figure("hpa_records_per_second", len(again) / whole, len(again) / alone)
    print_figure("hpa_memory_mb", full.resident_mb - empty.resident_mb, empty.resident_mb)


def print_figure(name: str, value: float, baseline: float) -> None:
    print(json.dumps({"name": name, "value": value, "baseline": baseline, "floor": None}), flush=True)


if __name__ == "__main__":
    main()
