"""What is broken, row by row: each breaks one thing, puts it back, and returns once that part serves again."""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random

from .ground import KINDS, Ground, until

SESSION_SECONDS = 6.0
"""The services' default, which nothing here changes: after it, another instance takes the turn."""


@dataclass(frozen=True, slots=True)
class Broken:
    """What a fault did. times: how often, when one round breaks several parts alike."""

    what: str
    times: int = 1


Fault = Callable[[Ground, Random], Awaitable[Broken]]


@dataclass(frozen=True, slots=True)
class Row:
    """stack: which kind of platform it needs."""

    name: str
    stack: str
    what: str
    fault: Fault


async def _victim(ground: Ground, kind: str, random: Random) -> str:
    """Of planners the one whose turn it is; of the others any, since both have clusters."""
    return await ground.active_planner() if kind == "planner" else f"{kind}-{random.randint(1, 2)}"


def kill(kind: str) -> Fault:
    async def fault(ground: Ground, random: Random) -> Broken:
        name = await _victim(ground, kind, random)
        before = ground.signal(name, signal.SIGKILL)
        await ground.restart_happened(name, before)
        await ground.is_up(name)
        return Broken(f"{name} killed")

    return fault


def freeze(kind: str, shortest: float, longest: float) -> Fault:
    async def fault(ground: Ground, random: Random) -> Broken:
        name, seconds = await _victim(ground, kind, random), random.uniform(shortest, longest)
        ground.signal(name, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            ground.signal(name, signal.SIGCONT)
        await ground.is_up(name)
        return Broken(f"{name} frozen for {seconds:.1f} s")

    return fault


async def kill_kafka(ground: Ground, random: Random) -> Broken:
    broker = random.choice(ground.stack.brokers())
    before = ground.signal(broker.name, signal.SIGKILL)
    await ground.restart_happened(broker.name, before)

    async def ready() -> bool:
        return broker.is_ready()

    await until(f"{broker.name} listens", ready)
    return Broken(f"{broker.name} killed")


async def kill_redis(ground: Ground, _: Random) -> Broken:
    before = ground.signal("redis", signal.SIGKILL)
    await ground.restart_happened("redis", before)
    return Broken("redis killed")


async def flush_redis(ground: Ground, _: Random) -> Broken:
    await ground.redis("FLUSHALL")
    return Broken("redis flushed")


SHORT, LONG = (0.3, 3.0), (SESSION_SECONDS + 2.0, SESSION_SECONDS + 4.0)

ROWS = (
    *(Row(f"{kind}-killed", "sim", f"kill -9 of a {kind}", kill(kind)) for kind in KINDS),
    *(
        Row(f"{kind}-frozen", "sim", f"SIGSTOP of a {kind} past its session, SIGCONT", freeze(kind, *LONG))
        for kind in KINDS
    ),
    *(
        Row(f"{kind}-hiccup", "sim", f"SIGSTOP of a {kind} within its session, SIGCONT", freeze(kind, *SHORT))
        for kind in KINDS
    ),
    Row("kafka-killed", "sim", "kill -9 of the only broker, restarted", kill_kafka),
    Row("redis-killed", "sim", "kill -9 of Redis, restarted", kill_redis),
    Row("redis-flushed", "sim", "FLUSHALL", flush_redis),
    Row("broker-of-three-killed", "brokers", "kill -9 of one of three brokers in a burst, restarted", kill_kafka),
)
ROW_BY_NAME = {row.name: row for row in ROWS}
