"""Makes and times calls: one after another, at a given rate, or all at once. Also has an empty call as a baseline."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Self

from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

Call = Callable[[int], Awaitable[object]]
"""Makes the call with this number. Any exception fails the measurement."""


async def time_calls_one_by_one(count: int, call: Call) -> list[float]:
    """Makes `count` calls one after another and returns the seconds of each."""
    seconds = []
    for number in range(count):
        started = time.perf_counter()
        await call(number)
        seconds.append(time.perf_counter() - started)
    return seconds


async def time_calls_at_rate(per_second: float, count: int, call: Call) -> list[float]:
    """Makes calls at a fixed rate. Returns the seconds from the time at which each call was due until its answer.

    A call does not wait for earlier ones, so that a slow server cannot slow its callers down.
    """
    begin = time.perf_counter() + 0.1

    async def time_due_call(number: int) -> float:
        due = begin + number / per_second
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        await call(number)
        return time.perf_counter() - due

    return await asyncio.gather(*(time_due_call(number) for number in range(count)))


async def measure_calls_per_second(count: int, call: Call) -> float:
    """Makes `count` calls at once and returns the calls per second until the last answer."""
    started = time.perf_counter()
    await asyncio.gather(*(call(number) for number in range(count)))
    return count / (time.perf_counter() - started)


class EmptyCalls:
    """Calls the health check of a gRPC server: the cost of a unary call that does no work."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint

    async def __aenter__(self) -> Self:
        self._channel: Any = aio.insecure_channel(self._endpoint)
        self._stub = health_pb2_grpc.HealthStub(self._channel)
        await self(0)  # The connection is made before anything is timed.
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close()

    async def __call__(self, _: int) -> object:
        return await self._stub.Check(health_pb2.HealthCheckRequest())
