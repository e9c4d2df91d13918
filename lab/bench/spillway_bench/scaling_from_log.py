"""Measures the time from a metric's value to the decision, through real Kafka, with one hpa process and many workloads.

Policies, workloads and a first value of each workload are in the log before the timed part. Then values are published
at a fixed rate. Some values change the size of a workload, each of another one. They are timed from the moment at which
the value is due until its committed ScaleDecided is read. The other values repeat known ones, and also cost a decision.
"""

import asyncio
import itertools
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from spillway.addresses import LOAD, SCALE, SCALE_STATE
from spillway.bus import Writer
from spillway.events import Event
from spillway.events_scaling import LoadObserved, ScaleStateChanged
from spillway.kafka.bus import KafkaBus
from spillway.model import Generation
from spillway.rpc.client import PlannerClient
from spillway.wire import TYPE_PREFIX, decode_event
from spillway_local.stack import Stack, StackOptions

from .figures import Measured, Unmeasured, percentile_in_ms
from .machine import memory_of
from .rig import Rig, Say, Sizes
from .scaled_fleet import NAMESPACE, PODS, QUEUE, load_observed_event, policy_declared_event, workload_declared_event

FIGURES = (
    "metric_to_scale_p50_ms",
    "metric_to_scale_p99_ms",
    "metric_to_scale_light_p50_ms",
    "metric_to_scale_light_p99_ms",
)
SECONDS_MAX = 400.0
STARTS_SECONDS = 120.0
LATE_SECONDS = 20.0
"""The longest wait for the last decision after the last value."""
EVENTS_IN_TRANSACTION = 500
TICK_SECONDS = 0.01
EACH_MILLI = 10_000
GROWN = 23
"""The replicas that a changed value asks for: outside the tolerance, and within the limits of scaling rates."""
CHANGED = "changed"
"""The source field of the timed values."""
LOAD_TYPE = f"{TYPE_PREFIX}{LoadObserved.__name__}"
STATE_TYPE = f"{TYPE_PREFIX}{ScaleStateChanged.__name__}"
POLL_MS = 100
Counts = Callable[[bytes], bool]
"""Returns whether a record's value is one that the measurement waits for."""
_HPA = "hpa-1"
_RELAYED = "bench-relayed"


@dataclass(frozen=True, slots=True)
class Rate:
    """A rate of values. per_second: values per second. one_in: one of this many values changes a size."""

    per_second: int
    seconds: float
    one_in: int

    @property
    def value_count(self) -> int:
        return round(self.per_second * self.seconds)


@dataclass(frozen=True, slots=True)
class Plan:
    workloads: int
    full: Rate
    light: Rate


FULL = Plan(10_000, Rate(2_000, 30.0, 10), Rate(20, 30.0, 1))
QUICK = Plan(300, Rate(200, 3.0, 10), Rate(20, 3.0, 1))


def measure_scaling_from_log(folder: Path, sizes: Sizes, say: Say) -> Mapping[str, Measured]:
    """Measures on a stack of its own. Only its log and one hpa go on running."""
    stack = Stack(StackOptions(folder, fleet=(), instances=1, outlives=False), say)
    try:
        stack.stop_and_delete_data()
        stack.start()
        for service in ("snapshot-1", "propagator-1", "planner-1", _HPA):
            stack.supervision.stop_program(service)
        return asyncio.run(_measure_on_stack(stack, sizes, say))
    finally:
        stack.stop()


async def _measure_on_stack(stack: Stack, sizes: Sizes, say: Say) -> Mapping[str, Measured]:
    plan = QUICK if sizes.in_process_small else FULL
    addresses = stack.addresses()
    async with asyncio.timeout(SECONDS_MAX), PlannerClient(addresses.planners) as client:
        rig = Rig(stack, addresses, sizes, client, say)
        async with rig.new_bus() as bus:
            async with _run_relay(rig, bus):
                bases = await _time_values(rig, bus, plan, _RELAYED, _is_changed_value)
            say(f"{plan.workloads} workloads and policies are written to the log")
            await _write_workloads_and_policies(bus, plan)
            await _start_hpa(rig, bus, plan)
            found = await _time_values(rig, bus, plan, bus.topic_name(SCALE), lambda _: True)
    return {
        f"metric_to_scale{kind}_p{percent}_ms": Measured(
            percentile_in_ms(found[rate], percent), percentile_in_ms(bases[rate], percent)
        )
        for kind, rate in (("", plan.full), ("_light", plan.light))
        for percent in (50, 99)
    }


# ── Values, at a rate ───────────────────────────────────────────────────────────────────────────────────────────────


class Values:
    """Makes the values to publish. Each value that changes a size is for a workload that had no change before."""

    def __init__(self, workloads: int) -> None:
        self._replicas = [PODS] * workloads
        self._unchanged = iter(range(workloads))
        self._repeated = itertools.cycle(range(workloads))

    def next_value(self, changed: bool, at_ms: int) -> LoadObserved:
        workload = next(self._unchanged if changed else self._repeated)
        if changed:
            self._replicas[workload] = GROWN
        event = load_observed_event(workload, self._replicas[workload] * EACH_MILLI, at_ms)
        return replace(event, source=CHANGED) if changed else event


async def _time_values(rig: Rig, bus: KafkaBus, plan: Plan, topic: str, counts: Counts) -> dict[Rate, list[float]]:
    """Returns for each rate the seconds from the due time of each changed value until its record in `topic`.

    The lighter rate is measured first.
    """
    values, found = Values(plan.workloads), {}
    for rate in (plan.light, plan.full):
        before, began = rig.cpu_seconds_by_program(), time.monotonic()
        async with _watch_arrivals(rig.addresses.kafka, topic, counts) as arrived:
            found[rate] = await _publish_at_rate(bus, values, rate, arrived)
        spent = {name: seconds - before.get(name, 0.0) for name, seconds in rig.cpu_seconds_by_program().items()}
        used = ", ".join(f"{name} {seconds:.1f}" for name, seconds in spent.items() if seconds > 0.1)
        took = f"p50 {percentile_in_ms(found[rate], 50):.1f} ms, p99 {percentile_in_ms(found[rate], 99):.1f} ms"
        rig.say(f"{topic}: {rate.per_second} values a second, {len(found[rate])} timed: {took}")
        rig.say(f"CPU seconds in {time.monotonic() - began:.0f} s: {used}")
    return found


async def _publish_at_rate(bus: KafkaBus, values: Values, rate: Rate, arrived: Mapping[str, float]) -> list[float]:
    """Publishes values at a rate and returns the seconds of the changed ones.

    The values due in a tick are published at once, also if earlier values are not acknowledged yet.
    """
    due_by_key: dict[str, float] = {}
    tasks: list[asyncio.Task[object]] = []
    begin, number = time.perf_counter() + TICK_SECONDS, 0
    while number < rate.value_count:
        await asyncio.sleep(max(0.0, begin + number / rate.per_second - time.perf_counter()))
        events = []
        while number < rate.value_count and (due := begin + number / rate.per_second) <= time.perf_counter():
            changed = number % rate.one_in == 0
            events.append(values.next_value(changed, time.time_ns() // 1_000_000))
            if changed:
                due_by_key[f"{NAMESPACE}/{events[-1].name}"] = due
            number += 1
        if events:
            tasks.append(asyncio.create_task(bus.publish(*events)))
    await asyncio.gather(*tasks)
    deadline = time.perf_counter() + LATE_SECONDS
    while not due_by_key.keys() <= arrived.keys():
        if time.perf_counter() > deadline:
            missing = len(due_by_key.keys() - arrived.keys())
            raise Unmeasured(f"{missing} of {len(due_by_key)} changed values did not arrive in {LATE_SECONDS:.0f} s")
        await asyncio.sleep(TICK_SECONDS)
    return [arrived[key] - due for key, due in due_by_key.items()]


@asynccontextmanager
async def _watch_arrivals(bootstrap: str, topic: str, counts: Counts) -> AsyncIterator[Mapping[str, float]]:
    """Yields a map with the time of the first committed record of each key that `counts`, from now on."""
    consumer: Any = AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap, enable_auto_commit=False, isolation_level="read_committed"
    )
    await consumer.start()
    await consumer.seek_to_end()
    arrived: dict[str, float] = {}

    async def read_records() -> None:
        while True:
            found = await consumer.getmany(timeout_ms=POLL_MS)
            now = time.perf_counter()
            for records in found.values():
                for record in records:
                    if counts(record.value):
                        arrived.setdefault(record.key.decode(), now)

    reading = asyncio.create_task(read_records())
    try:
        yield arrived
    finally:
        reading.cancel()
        await asyncio.wait({reading})
        await consumer.stop()


# ── The baseline ────────────────────────────────────────────────────────────────────────────────────────────────────


def _is_changed_value(value: bytes) -> bool:
    event = decode_event(LOAD.name, LOAD_TYPE, value)
    return isinstance(event, LoadObserved) and event.source == CHANGED


@asynccontextmanager
async def _run_relay(rig: Rig, bus: KafkaBus) -> AsyncIterator[None]:
    """Runs a process that consumes the values and produces as many records in transactions, until the block ends."""
    admin: Any = AIOKafkaAdminClient(bootstrap_servers=rig.addresses.kafka)
    await admin.start()
    await admin.create_topics([NewTopic(_RELAYED, bus.partition_count(LOAD), 1)])
    await admin.close()
    command = (sys.executable, "-m", "spillway_bench.relay", rig.addresses.kafka, bus.topic_name(LOAD), _RELAYED)
    process = await asyncio.create_subprocess_exec(
        *command, cwd=Path(__file__).parent.parent, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(STARTS_SECONDS):
            if await process.stdout.readline() != b"ready\n":
                raise Unmeasured("the relay did not start")
        yield
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


# ── Records before the timed part ───────────────────────────────────────────────────────────────────────────────────


async def _write_workloads_and_policies(bus: KafkaBus, plan: Plan) -> None:
    now_ms = time.time_ns() // 1_000_000
    async with bus.join_standby_group("planner", "bench") as turn:
        writer = await turn.wait_for_turn()
        await _write_events(writer, [workload_declared_event(number) for number in range(plan.workloads)])
    async with bus.join_standby_group("hpa", "bench") as turn:
        writer = await turn.wait_for_turn()
        generations = (Generation(writer.turn_epoch, number + 1) for number in range(plan.workloads))
        await _write_events(
            writer, [policy_declared_event(number, QUEUE, one, now_ms) for number, one in enumerate(generations)]
        )


async def _write_events(writer: Writer, events: Sequence[Event]) -> None:
    for at in range(0, len(events), EVENTS_IN_TRANSACTION):
        await writer.write_events(events[at : at + EVENTS_IN_TRANSACTION])


async def _start_hpa(rig: Rig, bus: KafkaBus, plan: Plan) -> None:
    """Starts hpa and waits until it is active and has decided on a first value of each workload."""
    started = time.perf_counter()
    await asyncio.to_thread(rig.stack.supervision.start_program, _HPA)

    async def is_hpa_active() -> bool:
        return rig.is_program_ready(_HPA) and rig.read_own_metric(_HPA, "spillway_hpa_active") == 1

    await rig.wait_until("hpa is active", is_hpa_active, STARTS_SECONDS)
    active = time.perf_counter() - started
    first_ms = time.time_ns() // 1_000_000

    def is_after_first_value(state: bytes) -> bool:
        """Returns whether a state is from after the first values. A turn begins with states without any value."""
        event = decode_event(SCALE_STATE.name, STATE_TYPE, state)
        return isinstance(event, ScaleStateChanged) and event.at_ms >= first_ms

    async with _watch_arrivals(rig.addresses.kafka, bus.topic_name(SCALE_STATE), is_after_first_value) as arrived:
        for at in range(0, plan.workloads, EVENTS_IN_TRANSACTION):
            numbers = range(at, min(at + EVENTS_IN_TRANSACTION, plan.workloads))
            now_ms = time.time_ns() // 1_000_000
            await bus.publish(*(load_observed_event(number, PODS * EACH_MILLI, now_ms) for number in numbers))

        async def has_decided_on_all() -> bool:
            return len(arrived) == plan.workloads

        await rig.wait_until("each workload was decided on", has_decided_on_all, STARTS_SECONDS)
    memory = memory_of(rig.pid_of_program(_HPA)).resident_mb
    rig.say(f"hpa was active after {active:.1f} s; with {plan.workloads} workloads it has {memory:.0f} MB")
