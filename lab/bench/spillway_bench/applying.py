"""Measures Apply calls through gRPC and Kafka: at a steady rate, in bursts, and in batches."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from spillway.api import ApplyRequest, BatchItem, PlanBatchRequest, ScaleRequest
from spillway_local.fleet_plan import deployment

from .calls import Call, EmptyCalls, measure_calls_per_second, time_calls_at_rate
from .figures import Measured, Unmeasured, percentile_in_ms
from .rig import Rig

NAMESPACE = "bench"
REPLICAS = 2
EMPTY_SECONDS = 10.0
SLICES = 10
PROGRAMS_SHOWN = 6
BATCH_ITEMS = 100
BATCH_CALLERS = 4
PROPAGATORS = ("propagator-1", "propagator-2")
_COUNTED = (
    "transaction_seconds_count",
    "transaction_seconds_sum",
    "transaction_requests_sum",
    "transaction_events_sum",
)


async def measure_applies(rig: Rig) -> Mapping[str, Measured]:
    sizes = rig.sizes
    per_second = sizes.applies_per_second
    rig.say(f"{per_second:.0f} empty calls a second, then as many Apply calls for {sizes.apply_seconds:.0f} s")
    async with EmptyCalls(await rig.active_planner_address()) as empty:
        seconds = min(EMPTY_SECONDS, sizes.apply_seconds)
        base = await time_calls_at_rate(per_second, round(per_second * seconds), empty)
    async with _report_transactions(rig):
        seconds_of_applies = await time_calls_at_rate(
            per_second, round(per_second * sizes.apply_seconds), _make_apply_call(rig, "steady")
        )
    size = math.ceil(len(seconds_of_applies) / SLICES)
    slices = [seconds_of_applies[start : start + size] for start in range(0, len(seconds_of_applies), size)]
    rig.say("median by tenth of the time, ms: " + ", ".join(f"{percentile_in_ms(part, 50):.0f}" for part in slices))
    return {
        "apply_p50_ms": Measured(percentile_in_ms(seconds_of_applies, 50), percentile_in_ms(base, 50)),
        "apply_p99_ms": Measured(percentile_in_ms(seconds_of_applies, 99), percentile_in_ms(base, 99)),
    }


async def measure_burst(rig: Rig) -> Mapping[str, Measured]:
    rig.say(f"{rig.sizes.burst} empty calls at once, then as many Apply calls")
    async with EmptyCalls(await rig.active_planner_address()) as empty:
        base = await measure_calls_per_second(rig.sizes.burst, empty)
    async with _report_transactions(rig):
        per_second = await measure_calls_per_second(rig.sizes.burst, _make_apply_call(rig, "burst"))
    return {"apply_burst_per_s": Measured(per_second, base)}


async def measure_batches(rig: Rig) -> Mapping[str, Measured]:
    """Measures batches: first of new workloads, then with one more replica for each workload.

    Each caller sends its next batch once the last one is in the log. No propagator runs meanwhile.
    """
    sizes = rig.sizes
    rig.say(f"{sizes.batched} workloads in PlanBatches of {BATCH_ITEMS}, from {BATCH_CALLERS} callers")
    async with EmptyCalls(await rig.active_planner_address()) as empty:
        base = await measure_calls_per_second(sizes.burst, empty)
    new = await _measure_batch_rate(rig, _new_workload_item, REPLICAS)
    rig.say("one replica more of each, without propagators")
    for program in PROPAGATORS:
        await asyncio.to_thread(rig.stack.supervision.stop_program, program)
    try:
        alone = await _measure_batch_rate(rig, _one_more_replica_item, REPLICAS + 1)
    finally:
        for program in PROPAGATORS:
            await asyncio.to_thread(rig.stack.supervision.start_program, program)
    return {
        "durable_plans_per_second": Measured(new, base),
        "durable_plans_alone_per_second": Measured(alone, base),
    }


async def _measure_batch_rate(rig: Rig, item: Callable[[str], BatchItem], placed: int) -> float:
    """Returns the planned workloads per second.

    placed: the replicas that each workload must get. Raises Unmeasured if an answer has another number.
    """
    per_caller = rig.sizes.batched // (BATCH_CALLERS * BATCH_ITEMS)

    async def send_batches(number: int) -> None:
        for batch in range(per_caller):
            first = (number * per_caller + batch) * BATCH_ITEMS
            names = [f"batched-{first + offset:05}" for offset in range(BATCH_ITEMS)]
            reply = await rig.client.plan_batch(PlanBatchRequest(tuple(item(name) for name in names)))
            for name, answer in zip(names, reply.answers, strict=True):
                if answer.placement is None or answer.placement.placed != placed:
                    raise Unmeasured(f"{name}: {answer.error or answer.placement}")

    async with _report_transactions(rig):
        return await measure_calls_per_second(BATCH_CALLERS, send_batches) * per_caller * BATCH_ITEMS


def _new_workload_item(name: str) -> BatchItem:
    return BatchItem(ApplyRequest((deployment(name, NAMESPACE, REPLICAS),), name))


def _one_more_replica_item(name: str) -> BatchItem:
    return BatchItem(scale=ScaleRequest(NAMESPACE, name, REPLICAS + 1, f"{name}-more"))


def _make_apply_call(rig: Rig, prefix: str) -> Call:
    """Returns a call that declares a new workload each time. Raises Unmeasured if it is not placed at once."""

    async def apply_workload(number: int) -> None:
        name = f"{prefix}-{number:05}"
        reply = await rig.client.apply(ApplyRequest((deployment(name, NAMESPACE, REPLICAS),), name))
        if reply.placed != REPLICAS:
            raise Unmeasured(f"{name}: {reply.placed} replicas were placed of {REPLICAS}: {reply.waiting_for}")

    return apply_workload


@asynccontextmanager
async def _report_transactions(rig: Rig) -> AsyncIterator[None]:
    """Prints, after the block, how the planner spent the time, from the planner's own counters."""
    planner = await rig.active_planner_program()

    async def read_counters() -> list[float]:
        return [await asyncio.to_thread(rig.read_own_metric, planner, f"spillway_{name}") for name in _COUNTED]

    before, started = await read_counters(), time.monotonic()
    cpu = await asyncio.to_thread(rig.cpu_seconds_by_program)
    yield
    elapsed = time.monotonic() - started
    spent = {
        name: now - cpu.get(name, 0.0) for name, now in (await asyncio.to_thread(rig.cpu_seconds_by_program)).items()
    }
    most = sorted(spent.items(), key=lambda entry: -entry[1])[:PROGRAMS_SHOWN]
    rig.say(f"of {elapsed:.1f} s, CPU seconds: " + ", ".join(f"{name} {seconds:.1f}" for name, seconds in most))
    count, seconds, requests, records = (now - then for now, then in zip(await read_counters(), before, strict=True))
    if count:
        rig.say(
            f"{planner}: {count:.0f} transactions, {1000 * seconds / count:.1f} ms each, "
            f"with {requests / count:.1f} requests and {records / count:.1f} records"
        )
