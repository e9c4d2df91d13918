"""Measures the planner's core on a big fleet, without log and gRPC, and prints the figures as JSON.

Each figure comes with two others of the same run: the time of a plain NumPy computation, and the time that memory
bandwidth alone would need. Times are CPU times of this one thread, so other programs disturb them little.
"""

import argparse
import gc
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from planner.core.explaining import explanation
from planner.core.knowledge.rules import PlannerRules
from planner.core.knowledge.state import PlannerState
from planner.core.knowledge.subject import Moment, PlacementSubject
from planner.core.manifests.request import read_manifests
from planner.core.manifests.templates import read_template
from planner.core.placement import placing
from planner.core.requests import declaring
from spillway.api import ExplainReply, ExplainRequest
from spillway.columns import NO_NODES
from spillway.events import CapacityChanged, CapacityReported, PlacementDecided
from spillway.model import Generation, NodeColumns, Part, Shape, WorkloadFacts
from spillway.running.garbage_collection import delayed_collections, set_aside_heap
from spillway.wire import unpack_columns

from .big_fleet import (
    APART_KINDS,
    EPOCH,
    FULL_FLEET,
    KINDS,
    NAMESPACE,
    QUICK_FLEET,
    FleetSize,
    capacity_reported_event,
    cluster_joined_event,
    cluster_name,
    deployment_manifest,
    make_node_columns,
    random_deployment_manifests,
)
from .machine import MEGABYTE, memory_of
from .plain import Plain, measure_copy_bytes_per_second

NOW = 1_000.0
UNBOUND_OF = 20
"""One of this many workloads at the start is not bound yet."""
LOOP_SECONDS = 20.0
"""The time after which a loop of samples ends, once it has SAMPLES_MIN samples."""
SAMPLES_MIN = 3
PLAIN_SAMPLES = 30
REPLICAS_EXPLAINED = 20_000
"""The replicas of the explained workload. Each needs nearly a whole large node, so not all of them have a place."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Counts:
    known: int = 300
    new: int = 60
    burst: int = 1_000
    changes: int = 40
    explained: int = 20


@dataclass(slots=True)
class Bench:
    """A planner's state with the fleet, and the sequences and shapes that further records need."""

    size: FleetSize
    state: PlannerState = field(default_factory=lambda: PlannerState(PlannerRules(capacity_age_max=1e9)))
    shapes: dict[str, Shape] = field(default_factory=dict)
    sequences: dict[str, int] = field(default_factory=dict)
    decided: int = 0

    def next_moment(self) -> Moment:
        """Returns the moment of the next decision, one millisecond after the last one."""
        self.decided += 1
        now_ms = int(NOW * 1000) + self.decided
        return Moment(now_ms / 1000, now_ms, Generation(9, self.decided))

    def apply_capacity_change(
        self, cluster: str, rows: NodeColumns = NO_NODES, facts: Sequence[WorkloadFacts] = ()
    ) -> None:
        self.sequences[cluster] = self.sequences.get(cluster, 0) + 1
        event = CapacityChanged(cluster, EPOCH, 0, self.sequences[cluster], 0, b"", (), tuple(facts), (), "")
        self.state.apply_event(event, NOW, self.sequences[cluster], rows)

    def plan_workload(self, manifest: str) -> tuple[float, PlacementDecided]:
        """Plans a workload and applies its placement. Returns (CPU seconds of division and reservation, placement)."""
        declaration = read_manifests((manifest,))
        declared = declaring.next_declaration(self.state, declaration, None)
        subject = PlacementSubject(declared, read_template(declared.manifest, declared.namespace), None)
        moment = self.next_moment()
        with delayed_collections():
            started = time.thread_time()
            placed = placing.place_workload(self.state, subject, moment, "Apply")
            seconds = time.thread_time() - started
            self.state.apply_event(declared, NOW)
            started = time.thread_time()
            self.state.apply_event(placed.placement, NOW)
            return seconds + time.thread_time() - started, placed.placement

    def bind_replicas(self, placement: PlacementDecided) -> None:
        """Applies reports in which the clusters show all replicas of the placement as bound."""
        for part in placement.parts:
            self.apply_capacity_change(part.cluster, facts=(facts_of_part(placement.name, part),))


class Collected:
    """The CPU seconds of Python's garbage collections in the block, also of those outside measured parts."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __enter__(self) -> "Collected":
        gc.callbacks.append(self._note_collection)
        return self

    def __exit__(self, *_: object) -> None:
        gc.callbacks.remove(self._note_collection)

    def _note_collection(self, phase: str, _: Mapping[str, int]) -> None:
        self.seconds += time.thread_time() * (1 if phase == "stop" else -1)


def facts_of_part(name: str, part: Part) -> WorkloadFacts:
    count = part.replicas
    return WorkloadFacts(NAMESPACE, name, part.version, name, count, True, count, count, count, (("hash", count),))


def percentile_ms(seconds: Sequence[float], percent: float) -> float:
    return float(np.percentile(np.array(seconds) * 1000, percent, method="higher"))


def entries_within_time(entries: Iterable[T]) -> Iterator[T]:
    """Yields entries until LOOP_SECONDS are over, but at least SAMPLES_MIN of them."""
    started = time.monotonic()
    for number, entry in enumerate(entries):
        if number >= SAMPLES_MIN and time.monotonic() - started > LOOP_SECONDS:
            return
        yield entry


Found = Iterator[tuple[str, float, float, float]]
"""(name, value, value of plain NumPy, value that memory bandwidth alone would allow)"""


def measure_fleet(size: FleetSize, counts: Counts, parts: Sequence[str]) -> Found:
    """Yields the figures of the fleet itself, and then those of `parts`, which are names in PARTS."""
    bench = Bench(size)
    blocks = [capacity_reported_event(index, size.nodes) for index in range(size.clusters)]
    refresh_seconds = _refresh_fleet(bench, blocks)
    _place_known_workloads(bench)
    memory_mb = memory_of(os.getpid()).resident_mb - sum(len(block.columns) for block in blocks) / MEGABYTE
    plain, bandwidth = (
        Plain([make_node_columns(index, size.nodes) for index in range(size.clusters)]),
        measure_copy_bytes_per_second(),
    )
    started = time.thread_time()
    plain.parse_records([block.columns for block in blocks])
    yield "fleet_refresh_cpu_s", refresh_seconds, time.thread_time() - started, plain.amount_bytes / bandwidth
    yield "planner_memory_mb", memory_mb, plain.amount_bytes / MEGABYTE, plain.amount_bytes / MEGABYTE
    del blocks
    for name, part in PARTS.items():
        if name in parts:
            yield from part(bench, plain, bandwidth, counts)


def _refresh_fleet(bench: Bench, blocks: Sequence[CapacityReported]) -> float:
    """Returns the CPU seconds to turn packed records of whole blocks into arrays that replace those of older blocks."""
    for index in range(bench.size.clusters):
        bench.state.apply_event(cluster_joined_event(index), NOW)
    for block in blocks:
        bench.state.apply_event(block, NOW, columns=unpack_columns(block.columns))
    started = time.thread_time()
    for block in blocks:
        bench.state.apply_event(block, NOW, columns=unpack_columns(block.columns))
    return time.thread_time() - started


def _place_known_workloads(bench: Bench) -> None:
    """Places a workload for each shape and binds most of them. The heap is then as after a planner's start."""
    for index in range(bench.size.clusters):
        bench.apply_capacity_change(cluster_name(index))
    for number, manifest in enumerate(random_deployment_manifests(bench.size.shapes, KINDS, "known")):
        _, placement = bench.plan_workload(manifest)
        bench.shapes[manifest] = bench.state.workloads[NAMESPACE, placement.name].replica_shape
        if number % UNBOUND_OF:
            bench.bind_replicas(placement)
    set_aside_heap(loaded=True)


def _measure_node_change_cost(bench: Bench, plain: Plain, bandwidth: float, counts: Counts) -> Found:
    """Measures the time from one more pod on a node until the room of every shape in its cluster is known again."""
    random = np.random.default_rng(1)
    seconds, plainly = [], []
    shapes = list(bench.shapes.values())
    for _ in entries_within_time(range(counts.changes)):
        index = int(random.integers(bench.size.clusters))
        rows = plain.add_or_remove_pod(index, int(random.integers(bench.size.nodes)))
        seconds.append(_time_node_change(bench, index, rows, shapes))
        plainly.append(_time_plain_change(plain, index, shapes))
    floor_ms = 1000 * plain.amount_bytes / bench.size.clusters / 2 / bandwidth
    for name, percent in (("node_change_1000_shapes_ms", 50), ("node_change_1000_shapes_p99_ms", 99)):
        yield name, percentile_ms(seconds, percent), percentile_ms(plainly, percent), floor_ms


def _time_node_change(bench: Bench, index: int, rows: NodeColumns, shapes: Sequence[Shape]) -> float:
    name = cluster_name(index)
    for shape in shapes:  # Earlier changes must not count for this one.
        bench.state.room_in_cluster(name, shape, False, NOW)
    started = time.thread_time()
    bench.apply_capacity_change(name, rows)
    for shape in shapes:
        bench.state.room_in_cluster(name, shape, False, NOW)
    return time.thread_time() - started


def _time_plain_change(plain: Plain, index: int, shapes: Sequence[Shape]) -> float:
    started = time.thread_time()
    for shape in shapes:
        plain.replicas_in_cluster(index, shape)
    return time.thread_time() - started


def _measure_plans(bench: Bench, plain: Plain, bandwidth: float, counts: Counts) -> Found:
    random = np.random.default_rng(2)
    known = list(bench.shapes)
    floor_ms = 1000 * plain.bytes_of_one_pass / bandwidth
    plainly = [_time_plain_totals(plain, bench.shapes[known[number % len(known)]]) for number in range(PLAIN_SAMPLES)]
    chosen = (known[int(random.integers(len(known)))] for _ in range(counts.known))
    again = [_rename_manifest(manifest, f"again-{number:05}") for number, manifest in enumerate(chosen)]
    for kind, asked in (("known", again), ("new", list(random_deployment_manifests(counts.new, KINDS, "new")))):
        seconds = []
        for manifest in entries_within_time(asked):
            taken, placement = bench.plan_workload(manifest)
            seconds.append(taken)
            bench.bind_replicas(placement)
        for percent in (50, 99):
            name = f"plan_{kind}_shape_p{percent}_ms"
            yield name, percentile_ms(seconds, percent), percentile_ms(plainly, percent), floor_ms
    chosen = (known[int(random.integers(len(known)))] for _ in range(counts.burst))
    burst = [_rename_manifest(manifest, f"burst-{number:05}") for number, manifest in enumerate(chosen)]
    with Collected() as collected:
        seconds = [bench.plan_workload(manifest)[0] for manifest in entries_within_time(burst)]
    per_second = len(seconds) / (sum(seconds) + collected.seconds)
    yield "plans_per_second", per_second, len(plainly) / sum(plainly), bandwidth / plain.bytes_of_one_pass


def _measure_plans_apart(bench: Bench, plain: Plain, bandwidth: float, counts: Counts) -> Found:
    """Measures plans of shapes with rules about other pods: topology spread and anti-affinity over hostnames."""
    seconds, shapes = [], []
    for manifest in entries_within_time(random_deployment_manifests(bench.size.shapes_apart, APART_KINDS, "apart")):
        taken, placement = bench.plan_workload(manifest)
        seconds.append(taken)
        shapes.append(bench.state.workloads[NAMESPACE, placement.name].replica_shape)
        bench.bind_replicas(placement)
    plainly = [_time_plain_totals(plain, shape) for shape in shapes[:PLAIN_SAMPLES]]
    floor_ms = 1000 * plain.bytes_of_one_pass / bandwidth
    for percent in (50, 99):
        name = f"plan_new_spread_shape_p{percent}_ms"
        yield name, percentile_ms(seconds, percent), percentile_ms(plainly, percent), floor_ms
    random = np.random.default_rng(3)
    seconds = []
    for _ in entries_within_time(range(max(1, counts.changes // 4))):
        index = int(random.integers(bench.size.clusters))
        seconds.append(_time_node_change(bench, index, plain.add_or_remove_pod(index, 7), shapes))
    plain_ms = 1000 * _time_plain_change(plain, 0, shapes)
    name, cluster_bytes = "node_change_100_spread_shapes_ms", plain.amount_bytes / bench.size.clusters / 2
    yield name, percentile_ms(seconds, 50), plain_ms, 1000 * cluster_bytes / bandwidth


def _measure_explanations(bench: Bench, plain: Plain, bandwidth: float, counts: Counts) -> Found:
    """Measures explanations of large undeclared workloads. Not all their replicas fit; explained changes would help."""
    wholes, longest, offered = [], [], 0
    plainly = []
    for number in entries_within_time(range(counts.explained)):
        manifest = deployment_manifest(
            f"large-{number}", "plain", REPLICAS_EXPLAINED, 80_000 + 500 * number, 1024 + number
        )
        request = ExplainRequest(manifests=(manifest,))
        steps, reply = _time_explanation(bench, request)
        assert reply.unplaced, "what has a place needs no change"
        offered += len(reply.changes)
        wholes.append(sum(steps))
        longest.append(max(steps))
        plainly.append(_time_plain_totals(plain, bench.shapes[next(iter(bench.shapes))]))
    assert offered, "a search that finds nothing is another one"
    floor_ms = 1000 * plain.bytes_of_one_pass / bandwidth
    for name, seconds, percent in (
        ("explain_p50_ms", wholes, 50),
        ("explain_p99_ms", wholes, 99),
        ("explain_step_max_ms", longest, 100),
    ):
        yield name, percentile_ms(seconds, percent), percentile_ms(plainly, percent), floor_ms


def _time_explanation(bench: Bench, request: ExplainRequest) -> tuple[list[float], ExplainReply]:
    """Returns (CPU seconds of each step of an explanation, its reply). Between steps a planner serves other callers."""
    steps = explanation.explain_placement(bench.state, request, bench.next_moment(), None)
    seconds: list[float] = []
    while True:
        started = time.thread_time()
        try:
            next(steps)
        except StopIteration as done:
            reply: ExplainReply = done.value
            return [*seconds, time.thread_time() - started], reply
        seconds.append(time.thread_time() - started)


def _time_plain_totals(plain: Plain, shape: Shape) -> float:
    started = time.thread_time()
    plain.replicas_in_each_cluster(shape)
    return time.thread_time() - started


def _rename_manifest(manifest: str, name: str) -> str:
    """Returns the manifest with another name and the same pods."""
    parsed = json.loads(manifest)
    parsed["metadata"]["name"] = name
    return json.dumps(parsed)


PARTS: Mapping[str, Callable[[Bench, Plain, float, Counts], Found]] = {
    "changes": _measure_node_change_cost,
    "plans": _measure_plans,
    "apart": _measure_plans_apart,
    "explain": _measure_explanations,
}
"""The parts, in the order in which they run. Reservations of one part are still there in the next."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--part", action="append", choices=list(PARTS), help="only this one; may be given again")
    asked = parser.parse_args()
    size, counts = (QUICK_FLEET, Counts(20, 10, 50, 5, 3)) if asked.quick else (FULL_FLEET, Counts())
    for name, value, plainly, floor in measure_fleet(size, counts, asked.part or list(PARTS)):
        print(json.dumps({"name": name, "value": value, "baseline": plainly, "floor": floor}), flush=True)


if __name__ == "__main__":
    main()
