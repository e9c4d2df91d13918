"""Measures a PlanBatch in the planner's code, without Kafka and gRPC, and prints the figures as JSON.

The measured work goes from the bytes of batches to the bytes of records and replies. Every template is new, so the
clusters are asked for its admitted shape, and each answers with the template unchanged. Then everything is decided,
applied and written. The baseline reads and writes the same bytes and decides nothing. Times are CPU times of this one
thread, for one workload.
"""

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass

from planner.core.knowledge.state import PlannerState
from planner.core.requests import decisions, shape_questions
from spillway.addresses import Tombstone
from spillway.api import ApplyRequest, BatchAnswer, BatchItem, PlanBatchReply, PlanBatchRequest
from spillway.dead_letters import outgoing_record
from spillway.events import SHAPE_ADMITTED, Event, ShapeAdmitted, ShapeAsked
from spillway.v1 import planner_pb2
from spillway.wire import fill_message, unpack_columns, value_from_message
from spillway_local.fleet_plan import deployment

from .big_fleet import FleetSize, capacity_reported_event, cluster_joined_event, cluster_name
from .planning import NOW, Bench

ITEMS = 100
REPLICAS = 2
WARM_BATCHES = 3
UNLIKE = 500
"""The number of different cpu requests, used in turn. The planner keeps arrays for far more shapes."""
MICRO = 1e6


@dataclass(frozen=True, slots=True)
class Case:
    """One measured case. unlike: True if the workloads of a batch have different requests; else all have the same."""

    name: str
    clusters: int
    nodes: int
    unlike: bool = False


CASES = (
    Case("batched_plan_us", 2, 1_000),
    Case("batched_plan_unlike_us", 2, 1_000, unlike=True),
    Case("batched_plan_100_clusters_us", 100, 200),
)


class Spent:
    """CPU seconds so far. whole: of all work. alone: of reading and writing bytes only."""

    def __init__(self) -> None:
        self.whole = self.alone = 0.0
        self._since = time.thread_time()

    def note_time_spent(self, *, alone: bool) -> None:
        """Adds the CPU time since the last call. alone: True if that time was spent only on reading or writing."""
        now = time.thread_time()
        self.whole += now - self._since
        self.alone += (now - self._since) * alone
        self._since = time.thread_time()


def make_bench(case: Case) -> Bench:
    """Returns a planner's state with the case's clusters. A propagator has each turn and asks the clusters."""
    bench = Bench(FleetSize(case.clusters, case.nodes, 0))
    for index in range(case.clusters):
        bench.state.apply_event(cluster_joined_event(index), NOW)
        block = capacity_reported_event(index, case.nodes)
        bench.state.apply_event(block, NOW, columns=unpack_columns(block.columns))
        bench.apply_capacity_change(cluster_name(index))
        bench.state.admitted.note_claim(cluster_name(index))
    return bench


def batch_bytes(number: int, unlike: bool) -> bytes:
    items = []
    for index in range(number * ITEMS, (number + 1) * ITEMS):
        name = f"batched-{index:05}"
        manifest = deployment(name, "bench", REPLICAS, cpu=f"{100 + index % UNLIKE if unlike else 500}m")
        items.append(BatchItem(ApplyRequest((manifest,), name)))
    message = planner_pb2.PlanBatchRequest()
    fill_message(PlanBatchRequest(tuple(items)), message)
    return message.SerializeToString()


def plan_batch(bench: Bench, encoded_request: bytes) -> Spent:
    """Plans one batch in the same steps as the planner's service, and returns the CPU time that it took."""
    state, spent = bench.state, Spent()
    read = value_from_message(planner_pb2.PlanBatchRequest.FromString(encoded_request), PlanBatchRequest)
    requests = [item.apply for item in read.items if item.apply is not None]
    spent.note_time_spent(alone=True)
    new = {shape_questions.template_digest(request): request for request in requests}
    asked = [found.event for found in shape_questions.shape_questions(state, new.values(), bench.next_moment())]
    for digest in new:
        state.admitted.note_declared(digest)
    spent.note_time_spent(alone=False)
    write_events(asked)
    spent.note_time_spent(alone=True)
    admit_asked_shapes(state, asked)
    events, answers = list[Event | Tombstone](), []
    for request in requests:
        decided, reply = decisions.decide_apply(state, request, bench.next_moment()).events_and_reply
        for event in decided:
            state.apply_event(event, NOW)
        events += decided
        answers.append(BatchAnswer("OK", "", reply))
    spent.note_time_spent(alone=False)
    write_events(events)
    fill_message(PlanBatchReply(tuple(answers)), message := planner_pb2.PlanBatchReply())
    message.SerializeToString()
    spent.note_time_spent(alone=True)
    return spent


def admit_asked_shapes(state: PlannerState, asked: Sequence[ShapeAsked]) -> None:
    """Records that each cluster admits the asked templates unchanged."""
    for event in asked:
        for cluster in event.clusters:
            said = ShapeAdmitted(event.template, cluster, 1, 1, event.namespace, SHAPE_ADMITTED, "", None)
            state.apply_event(said, NOW)


def write_events(events: Sequence[Event | Tombstone]) -> None:
    for event in events:
        outgoing_record(event)


def measure_case(case: Case, batches: int) -> tuple[float, float]:
    """Returns microseconds for one workload: (of all work, of reading and writing bytes only)."""
    bench = make_bench(case)
    found = [plan_batch(bench, batch_bytes(number, case.unlike)) for number in range(WARM_BATCHES + batches)][
        WARM_BATCHES:
    ]
    planned = ITEMS * len(found)
    return MICRO * sum(one.whole for one in found) / planned, MICRO * sum(one.alone for one in found) / planned


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    batches = 2 if parser.parse_args().quick else 10
    for case in CASES:
        value, baseline = measure_case(case, batches)
        print(json.dumps({"name": case.name, "value": value, "baseline": baseline, "floor": None}), flush=True)


if __name__ == "__main__":
    main()
