"""Measures Capacity calls, and the time until a node's change in a cluster is in the answers."""

import asyncio
import itertools
import time
from collections.abc import Mapping
from random import Random
from typing import Any

import aiohttp
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from spillway.api import CapacityRequest
from spillway_local.fleet_plan import deployment

from .big_member import NODE_PREFIX
from .calls import EmptyCalls, time_calls_one_by_one
from .figures import Measured, Unmeasured, percentile_in_ms
from .rig import BIG, EMPTY, Rig

PAUSE_LONGEST_SECONDS = 0.3
CHANGE_SECONDS = 10.0
WARM_CALLS = 10
FROZEN_SECONDS = 60.0
_TOPIC = "bench-round-trip"
_QUESTION = CapacityRequest((deployment("probe", "bench", 1),))


async def measure_capacity_calls(rig: Rig) -> Mapping[str, Measured]:
    rig.say(f"{rig.sizes.calls} Capacity calls on {rig.sizes.nodes} nodes")
    async with EmptyCalls(await rig.active_planner_address()) as empty:
        base = await time_calls_one_by_one(rig.sizes.calls, empty)
    await rig.client.capacity(_QUESTION)
    seconds = await time_calls_one_by_one(rig.sizes.calls, lambda _: rig.client.capacity(_QUESTION))
    return {
        "capacity_call_p50_ms": Measured(percentile_in_ms(seconds, 50), percentile_in_ms(base, 50)),
        "capacity_call_p99_ms": Measured(percentile_in_ms(seconds, 99), percentile_in_ms(base, 99)),
    }


async def measure_calls_with_frozen_cluster(rig: Rig) -> Mapping[str, Measured]:
    """Measures Capacity calls for new shapes while the small cluster is frozen, and as baseline while none is.

    Half of the calls with the frozen cluster come before the planner notices it, half after. The baseline is measured
    half before and half after the freeze, so that a machine that slows down shows in both numbers.
    """
    rig.say(f"2 × {rig.sizes.calls} Capacity calls for new shapes; {EMPTY} is frozen in the middle")
    shapes = (deployment("probe", "bench", 1, f"{100 + number}m") for number in itertools.count())

    async def ask_capacity(_: int) -> None:
        await rig.client.capacity(CapacityRequest((next(shapes),)))

    async def is_frozen_cluster_missed() -> bool:
        return not await rig.is_cluster_ready(EMPTY)

    planner = await rig.active_planner_program()
    spent: list[float] = []

    async def measure_half() -> list[float]:
        before = rig.cpu_seconds_by_program()[planner]
        seconds = await time_calls_one_by_one(rig.sizes.calls // 2, ask_capacity)
        spent.append(1000 * (rig.cpu_seconds_by_program()[planner] - before) / len(seconds))
        return seconds

    await time_calls_one_by_one(WARM_CALLS, ask_capacity)
    well = await measure_half()
    rig.stack.silence_member(EMPTY)
    try:
        frozen = await measure_half()
        await rig.wait_until(f"{EMPTY} is missed", is_frozen_cluster_missed, FROZEN_SECONDS)
        frozen += await measure_half()
    finally:
        rig.stack.wake_member(EMPTY)
    await rig.wait_until(f"{EMPTY} is back", lambda: rig.is_cluster_ready(EMPTY), FROZEN_SECONDS)
    well += await measure_half()
    rig.say(
        f"the planner's CPU a call: {', '.join(f'{each:.2f}' for each in spent)} ms; frozen in the second and third"
    )
    return {
        f"capacity_one_frozen_p{percent}_ms": Measured(
            percentile_in_ms(frozen, percent), percentile_in_ms(well, percent)
        )
        for percent in (50, 99)
    }


async def measure_node_changes(rig: Rig) -> Mapping[str, Measured]:
    """Measures the time from just before a cordon is sent to the cluster until the first answer that counts it."""
    random = Random(1)
    rig.say(f"{rig.sizes.round_trips} bare Kafka round trips")
    trips = await measure_kafka_round_trips(rig.addresses.kafka, rig.sizes.round_trips, random)
    async with EmptyCalls(await rig.active_planner_address()) as empty:
        base = await time_calls_one_by_one(rig.sizes.calls, empty)
    rig.say(f"{rig.sizes.node_changes} nodes are cordoned and uncordoned at random moments")
    seconds, polls = await _time_cordons(rig, random)
    return {
        "node_change_visible_p50_ms": Measured(percentile_in_ms(seconds, 50), percentile_in_ms(trips, 50)),
        "node_change_visible_p99_ms": Measured(percentile_in_ms(seconds, 99), percentile_in_ms(trips, 99)),
        "node_change_poll_p50_ms": Measured(percentile_in_ms(polls, 50), percentile_in_ms(base, 50)),
    }


async def measure_kafka_round_trips(bootstrap: str, count: int, random: Random) -> list[float]:
    """Returns the seconds of Kafka round trips: from producing a record (acks=all) until this process consumes it."""
    await _create_topic(bootstrap)
    producer: Any = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all")
    consumer: Any = AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    await producer.start()
    await consumer.start()
    try:
        place = TopicPartition(_TOPIC, 0)
        consumer.assign([place])
        await consumer.seek_to_end(place)
        seconds = []
        for _ in range(count + 1):
            await asyncio.sleep(random.uniform(0.0, 0.02))
            started = time.perf_counter()
            await producer.send_and_wait(_TOPIC, b"change", partition=0)
            await consumer.getone()
            seconds.append(time.perf_counter() - started)
        return seconds[1:]  # The first round trip also connects.
    finally:
        await consumer.stop()
        await producer.stop()


async def _create_topic(bootstrap: str) -> None:
    admin: Any = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(_TOPIC, 1, 1)])
    finally:
        await admin.close()


async def _time_cordons(rig: Rig, random: Random) -> tuple[list[float], list[float]]:
    """Returns (seconds until each change was visible, seconds of each Capacity call that looked for it)."""
    seconds: list[float] = []
    polls: list[float] = []
    endpoint = rig.big_endpoint()
    headers = {"Authorization": f"Bearer {endpoint.token}", "Content-Type": "application/merge-patch+json"}
    async with aiohttp.ClientSession(headers=headers) as session:
        room = await _poll_room(rig, polls)
        node, cordoned = "", False
        for _ in range(rig.sizes.node_changes):
            await asyncio.sleep(random.uniform(0.0, PAUSE_LONGEST_SECONDS))
            node = node if cordoned else f"{NODE_PREFIX}{random.randrange(rig.sizes.nodes)}"
            cordoned = not cordoned
            url, patch = f"{endpoint.server}/api/v1/nodes/{node}", {"spec": {"unschedulable": cordoned}}
            started = time.perf_counter()
            async with session.patch(url, json=patch) as answer:
                answer.raise_for_status()
            before = room
            while (room := await _poll_room(rig, polls)) == before:
                if time.perf_counter() - started > CHANGE_SECONDS:
                    raise Unmeasured(f"{node}: {patch} was not visible within {CHANGE_SECONDS:.0f} s")
            seconds.append(time.perf_counter() - started)
            if (room < before) != cordoned:
                raise Unmeasured(f"{node}: {patch} changed the room from {before} to {room}")
    return seconds, polls


async def _poll_room(rig: Rig, polls: list[float]) -> int:
    started = time.perf_counter()
    reply = await rig.client.capacity(_QUESTION)
    polls.append(time.perf_counter() - started)
    return next(entry.certain for entry in reply.clusters if entry.cluster == BIG)
