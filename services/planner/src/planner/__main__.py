"""Wires the planner: settings from the environment, Kafka, Redis, gRPC."""

import asyncio
import os
import sys
import time

from planner.service import Clocks, Planner
from planner.settings import PlannerSettings
from spillway.bus import OtherFleet
from spillway.kafka import KafkaBus, KafkaSettings
from spillway.process import Process, help_asked, run
from spillway.rpc import RpcServer, RpcSettings
from spillway.settings import from_environment
from spillway.store import RedisStore, StoreSettings

PREFIX = "SPILLWAY_PLANNER_"
SECTIONS = (
    (PlannerSettings, PREFIX),
    (RpcSettings, "SPILLWAY_RPC_"),
    (KafkaSettings, "SPILLWAY_KAFKA_"),
    (StoreSettings, "SPILLWAY_REDIS_"),
)


async def end_with_the_log(bus: KafkaBus) -> None:
    """Raises when the log becomes another fleet's, or none: the process must stop."""
    raise OtherFleet(await bus.fleet_changed())


async def serve(process: Process) -> None:
    process.set_ready("log", False, "not connected")
    settings = from_environment(PlannerSettings, os.environ, PREFIX)
    rpc = from_environment(RpcSettings, os.environ, "SPILLWAY_RPC_")
    kafka = from_environment(KafkaSettings, os.environ, "SPILLWAY_KAFKA_")
    redis = from_environment(StoreSettings, os.environ, "SPILLWAY_REDIS_")
    instance = f"{process.instance}@{rpc.host}:{rpc.port}"
    async with (
        KafkaBus(kafka, "", f"spillway/planner/{process.instance}") as bus,
        RedisStore(redis, bus.fleet) as store,
    ):
        clocks = Clocks(time.monotonic, lambda: time.time_ns() // 1_000_000)
        planner = Planner(bus, store, settings, instance, clocks)
        async with RpcServer(planner, rpc) as server, asyncio.TaskGroup() as tasks:
            process.log.info("listening", address=server.address, fleet=bus.fleet)
            serving: set[asyncio.Task[None]] = set()

            def note_ready(ready: bool, reason: str) -> None:
                process.set_ready("log", ready, reason)
                serving.add(tasks.create_task(server.set_serving(ready)))

            planner.ready = note_ready
            watchers = [tasks.create_task(server.failed()), tasks.create_task(end_with_the_log(bus))]
            await planner.run(process.stopping)
            for watcher in watchers:
                watcher.cancel()


if __name__ == "__main__":
    if help_asked("planner: decides where each replica goes.", *SECTIONS):
        sys.exit(0)
    sys.exit(run("planner", serve))
