"""Wires hpa: settings from the environment, Kafka, gRPC."""

import asyncio
import os
import sys
import time

from hpa.collecting import CollectingSettings
from hpa.connections import read_connections
from hpa.service import Asking, Hpa
from hpa.settings import HpaSettings
from spillway.bus import OtherFleet
from spillway.kafka import KafkaBus, KafkaSettings
from spillway.process import Process, help_asked, run
from spillway.rpc import SCALING, RpcServer, RpcSettings
from spillway.settings import from_environment

PREFIX = "SPILLWAY_HPA_"
SECTIONS = (
    (HpaSettings, PREFIX),
    (CollectingSettings, "SPILLWAY_COLLECTING_"),
    (RpcSettings, "SPILLWAY_RPC_"),
    (KafkaSettings, "SPILLWAY_KAFKA_"),
)


async def end_with_the_log(bus: KafkaBus) -> None:
    """Raises when the log becomes another fleet's, or none: the process must stop."""
    raise OtherFleet(await bus.fleet_changed())


async def serve(process: Process) -> None:
    process.set_ready("log", False, "not connected")
    settings = from_environment(HpaSettings, os.environ, PREFIX)
    collecting = from_environment(CollectingSettings, os.environ, "SPILLWAY_COLLECTING_")
    asking = Asking(read_connections(collecting.connections), collecting)
    rpc = from_environment(RpcSettings, os.environ, "SPILLWAY_RPC_")
    kafka = from_environment(KafkaSettings, os.environ, "SPILLWAY_KAFKA_")
    instance = f"{process.instance}@{rpc.host}:{rpc.port}"
    async with KafkaBus(kafka, "", f"spillway/hpa/{process.instance}") as bus:
        hpa = Hpa(bus, settings, instance, lambda: time.time_ns() // 1_000_000, asking)
        async with RpcServer(hpa, rpc, SCALING) as server, asyncio.TaskGroup() as tasks:
            process.log.info("listening", address=server.address, fleet=bus.fleet)
            serving: set[asyncio.Task[None]] = set()

            def note_ready(ready: bool, reason: str) -> None:
                process.set_ready("log", ready, reason)
                serving.add(tasks.create_task(server.set_serving(ready)))

            hpa.ready = note_ready
            watchers = [tasks.create_task(server.failed()), tasks.create_task(end_with_the_log(bus))]
            await hpa.run(process.stopping)
            for watcher in watchers:
                watcher.cancel()


if __name__ == "__main__":
    if help_asked("hpa: decides how many replicas a workload has.", *SECTIONS):
        sys.exit(0)
    sys.exit(run("hpa", serve))
