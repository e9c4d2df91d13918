"""What an Apply costs through gRPC and Kafka: at a steady rate, and when many come at once."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from spillway.api import ApplyRequest, BatchItem, PlanBatchRequest, ScaleRequest
from spillway_local.fleet_plan import deployment

from .calls import Call, EmptyCalls, all_at_once, at_rate
from .figures import Measured, Unmeasured, in_ms
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
    async with EmptyCalls(await rig.leader()) as empty:
        seconds = min(EMPTY_SECONDS, sizes.apply_seconds)
        base = await at_rate(per_second, round(per_second * seconds), empty)
    async with _transactions_told(rig):
        seconds_of_applies = await at_rate(per_second, round(per_second * sizes.apply_seconds), _apply(rig, "steady"))
    size = math.ceil(len(seconds_of_applies) / SLICES)
    slices = [seconds_of_applies[start : start + size] for start in range(0, len(seconds_of_applies), size)]
    rig.say("median by tenth of the time, ms: " + ", ".join(f"{in_ms(part, 50):.0f}" for part in slices))
    return {
        "apply_p50_ms": Measured(in_ms(seconds_of_applies, 50), in_ms(base, 50)),
        "apply_p99_ms": Measured(in_ms(seconds_of_applies, 99), in_ms(base, 99)),
    }


async def measure_burst(rig: Rig) -> Mapping[str, Measured]:
    rig.say(f"{rig.sizes.burst} empty calls at once, then as many Apply calls")
    async with EmptyCalls(await rig.leader()) as empty:
        base = await all_at_once(rig.sizes.burst, empty)
    async with _transactions_told(rig):
        per_second = await all_at_once(rig.sizes.burst, _apply(rig, "burst"))
    return {"apply_burst_per_s": Measured(per_second, base)}


async def measure_batches(rig: Rig) -> Mapping[str, Measured]:
    """Callers that each send their next batch once the last one is in the log: new workloads, and then one replica more
    of each, while no propagator carries anything out."""
    sizes = rig.sizes
    rig.say(f"{sizes.batched} workloads in PlanBatches of {BATCH_ITEMS}, from {BATCH_CALLERS} callers")
    async with EmptyCalls(await rig.leader()) as empty:
        base = await all_at_once(sizes.burst, empty)
    new = await _in_batches(rig, _new, REPLICAS)
    rig.say("one replica more of each, without propagators")
    for program in PROPAGATORS:
        await asyncio.to_thread(rig.stack.supervision.stop_program, program)
    try:
        alone = await _in_batches(rig, _one_more, REPLICAS + 1)
    finally:
        for program in PROPAGATORS:
            await asyncio.to_thread(rig.stack.supervision.start_program, program)
    return {
        "durable_plans_per_second": Measured(new, base),
        "durable_plans_alone_per_second": Measured(alone, base),
    }


async def _in_batches(rig: Rig, item: Callable[[str], BatchItem], placed: int) -> float:
    """Workloads a second. placed: so many replicas of each, else nothing was measured."""
    per_caller = rig.sizes.batched // (BATCH_CALLERS * BATCH_ITEMS)

    async def caller(number: int) -> None:
        for batch in range(per_caller):
            first = (number * per_caller + batch) * BATCH_ITEMS
            names = [f"batched-{first + offset:05}" for offset in range(BATCH_ITEMS)]
            reply = await rig.client.plan_batch(PlanBatchRequest(tuple(item(name) for name in names)))
            for name, answer in zip(names, reply.answers, strict=True):
                if answer.placement is None or answer.placement.placed != placed:
                    raise Unmeasured(f"{name}: {answer.error or answer.placement}")

    async with _transactions_told(rig):
        return await all_at_once(BATCH_CALLERS, caller) * per_caller * BATCH_ITEMS


def _new(name: str) -> BatchItem:
    return BatchItem(ApplyRequest((deployment(name, NAMESPACE, REPLICAS),), name))


def _one_more(name: str) -> BatchItem:
    return BatchItem(scale=ScaleRequest(NAMESPACE, name, REPLICAS + 1, f"{name}-more"))


def _apply(rig: Rig, prefix: str) -> Call:
    """Each call declares another workload, which is placed at once."""

    async def call(number: int) -> None:
        name = f"{prefix}-{number:05}"
        reply = await rig.client.apply(ApplyRequest((deployment(name, NAMESPACE, REPLICAS),), name))
        if reply.placed != REPLICAS:
            raise Unmeasured(f"{name}: {reply.placed} replicas were placed of {REPLICAS}: {reply.waiting_for}")

    return call


@asynccontextmanager
async def _transactions_told(rig: Rig) -> AsyncIterator[None]:
    """Says, by the planner's own count, where the time went."""
    planner = await rig.active_planner()

    async def counted() -> list[float]:
        return [await asyncio.to_thread(rig.own_metric, planner, f"spillway_{name}") for name in _COUNTED]

    before, started = await counted(), time.monotonic()
    cpu = await asyncio.to_thread(rig.cpu_seconds)
    yield
    elapsed = time.monotonic() - started
    spent = {name: now - cpu.get(name, 0.0) for name, now in (await asyncio.to_thread(rig.cpu_seconds)).items()}
    most = sorted(spent.items(), key=lambda entry: -entry[1])[:PROGRAMS_SHOWN]
    rig.say(f"of {elapsed:.1f} s, CPU seconds: " + ", ".join(f"{name} {seconds:.1f}" for name, seconds in most))
    count, seconds, requests, records = (now - then for now, then in zip(await counted(), before, strict=True))
    if count:
        rig.say(
            f"{planner}: {count:.0f} transactions, {1000 * seconds / count:.1f} ms each, "
            f"with {requests / count:.1f} requests and {records / count:.1f} records"
        )
