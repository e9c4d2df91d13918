"""Measures a planner's start from the log of a big fleet, and Capacity calls for new shapes there, over gRPC.

The log is a real Kafka, and the planner is a process of its own. This process plays the collectors: it writes their
blocks once, and their heartbeats all the time.
"""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from planner.core.knowledge.rules import PlannerRules
from planner.core.knowledge.state import PlannerState
from planner.core.manifests.request import read_manifests
from planner.core.requests import declaring
from planner.log.intake import WHOLE
from spillway.addresses import Tombstone
from spillway.api import CapacityRequest, ListBrakesRequest
from spillway.bus import has_reached_ends
from spillway.events import CapacityChanged, Event, PlacementDecided, WorkloadDeclared
from spillway.kafka.bus import KafkaBus
from spillway.model import Generation, Part, WorkloadFacts
from spillway.rpc.client import PlannerClient
from spillway_local.stack import Stack, StackOptions

from .big_fleet import (
    EPOCH,
    FULL_FLEET,
    KINDS,
    NAMESPACE,
    QUICK_FLEET,
    FleetSize,
    cluster_joined_event,
    cluster_name,
    random_deployment_manifests,
)
from .big_fleet import capacity_reported_event as block_of
from .calls import EmptyCalls, time_calls_one_by_one
from .figures import Measured, Unmeasured, percentile_in_ms
from .planning import facts_of_part
from .rig import Rig, Say, Sizes

FIGURES = ("start_from_log_s", "capacity_new_shape_p50_ms", "capacity_new_shape_p99_ms")
SECONDS_MAX = 300.0
STARTS_SECONDS = 90.0
HEARTBEAT_SECONDS = 2.0
FRESH_MS = 10_000
NEW_SHAPES = 200
NEW_SHAPES_QUICK = 20
EVENTS_IN_TRANSACTION = 200
_PLANNER = "planner-1"
_BEATS: Iterator[int] = itertools.count(1)
"""The sequence numbers of the heartbeats. The blocks have sequence 0."""

Known = tuple[WorkloadDeclared, PlacementDecided, WorkloadFacts]


def measure_from_log(folder: Path, sizes: Sizes, say: Say) -> Mapping[str, Measured]:
    """Measures on a stack of its own. Only its log, its store and one planner go on running."""
    stack = Stack(StackOptions(folder, fleet=(), instances=1, outlives=False), say)
    try:
        stack.stop_and_delete_data()
        stack.start()
        for service in ("snapshot-1", "propagator-1", _PLANNER):
            stack.supervision.stop_program(service)
        return asyncio.run(_measure_on_stack(stack, sizes, say))
    finally:
        stack.stop()


async def _measure_on_stack(stack: Stack, sizes: Sizes, say: Say) -> Mapping[str, Measured]:
    size = QUICK_FLEET if sizes.in_process_small else FULL_FLEET
    addresses = stack.addresses()
    async with asyncio.timeout(SECONDS_MAX), PlannerClient(addresses.planners) as client:
        rig = Rig(stack, addresses, sizes, client, say)
        async with rig.new_bus() as bus:
            say(f"{size.clusters} clusters of {size.nodes} nodes and {size.shapes} workloads are written to the log")
            await _write_fleet(bus, size)
            async with _send_heartbeats(bus, size):
                started = await _time_planner_start(rig, size)
                spent = rig.cpu_seconds_by_program()[_PLANNER]
                read = await _time_log_reading(bus)
                say(f"the planner began in {started:.1f} s ({spent:.1f} of its CPU), reading alone takes {read:.1f} s")
                return {"start_from_log_s": Measured(started, read), **await _measure_new_shapes(rig, size)}


async def _write_fleet(bus: KafkaBus, size: FleetSize) -> None:
    """Writes the records of a fleet whose workloads are all placed and bound, as planner and collectors would."""
    async with bus.join_standby_group("planner", "bench") as turn:
        writer = await turn.wait_for_turn()
        known = [*_placed_workloads(size, writer.turn_epoch)]
        events: list[Event | Tombstone] = [cluster_joined_event(index) for index in range(size.clusters)]
        events += [event for declared, placed, _ in known for event in (declared, placed)]
        for at in range(0, len(events), EVENTS_IN_TRANSACTION):
            await writer.write_events(events[at : at + EVENTS_IN_TRANSACTION])
    for index in range(size.clusters):
        facts = tuple(facts for number, (_, _, facts) in enumerate(known) if number % size.clusters == index)
        await bus.publish(replace(block_of(index, size.nodes), facts=facts))


def _placed_workloads(size: FleetSize, epoch: int) -> Iterator[Known]:
    """Yields the records of workloads that each have another shape and all replicas in one cluster."""
    state = PlannerState(PlannerRules())
    for number, manifest in enumerate(random_deployment_manifests(size.shapes, KINDS, "known")):
        declared = declaring.next_declaration(state, read_manifests((manifest,)), None)
        generation, count = Generation(epoch, number + 1), declared.replicas
        part = Part(cluster_name(number % size.clusters), generation, count, 0, count, removing=False)
        placed = PlacementDecided(NAMESPACE, declared.name, generation, declared.generation, (part,), 0, "")
        yield declared, placed, facts_of_part(declared.name, part)


@asynccontextmanager
async def _send_heartbeats(bus: KafkaBus, size: FleetSize) -> AsyncIterator[None]:
    """Publishes heartbeats without changes for every cluster until the block ends."""

    async def publish_heartbeats() -> None:
        for number in _BEATS:
            names = (cluster_name(index) for index in range(size.clusters))
            await bus.publish(*(CapacityChanged(name, EPOCH, 0, number, 0, b"", (), (), (), "") for name in names))
            await asyncio.sleep(HEARTBEAT_SECONDS)

    beating = asyncio.create_task(publish_heartbeats())
    try:
        yield
    finally:
        beating.cancel()
        await asyncio.wait({beating})


async def _time_planner_start(rig: Rig, size: FleetSize) -> float:
    """Returns the seconds from the start of the planner until it answers with the room of every cluster."""
    question = CapacityRequest((next(random_deployment_manifests(1, KINDS, "known")),))
    started = time.perf_counter()
    await asyncio.to_thread(rig.stack.supervision.start_program, _PLANNER)

    async def is_planner_active() -> bool:
        return rig.is_program_ready(_PLANNER) and not (await rig.client.list_brakes(ListBrakesRequest())).stale

    async def knows_every_cluster() -> bool:
        found = (await rig.client.capacity(question)).clusters
        return (
            len({entry.cluster for entry in found if 0 <= entry.age_ms <= FRESH_MS and entry.certain}) == size.clusters
        )

    await rig.wait_until("the planner is active", is_planner_active, STARTS_SECONDS)
    await rig.wait_until("every cluster is fresh", knows_every_cluster, STARTS_SECONDS)
    return time.perf_counter() - started


async def _time_log_reading(bus: KafkaBus) -> float:
    """Returns the seconds to read and decode the same records, without unpacking their columns or keeping anything."""
    started = time.perf_counter()
    records = 0
    async with bus.follow_topics(WHOLE) as feed:
        ends = await feed.end_offsets()
        async for batch in feed:
            records += len(batch.records)
            if has_reached_ends(batch.positions, ends):
                break
    if not records:
        raise Unmeasured("nothing was in the log")
    return time.perf_counter() - started


async def _measure_new_shapes(rig: Rig, size: FleetSize) -> Mapping[str, Measured]:
    count = NEW_SHAPES_QUICK if size is QUICK_FLEET else NEW_SHAPES
    asked = [CapacityRequest((manifest,)) for manifest in random_deployment_manifests(count, KINDS, "asked")]
    async with EmptyCalls(await rig.active_planner_address()) as empty:
        base = await time_calls_one_by_one(count, empty)
    seconds = await time_calls_one_by_one(count, lambda number: rig.client.capacity(asked[number]))
    return {
        f"capacity_new_shape_p{percent}_ms": Measured(
            percentile_in_ms(seconds, percent), percentile_in_ms(base, percent)
        )
        for percent in (50, 99)
    }
