"""Wires the planner: settings from the environment, Kafka, Redis, gRPC."""

import os
import sys
import time

from planner.service import Planner, PlannerClocks
from planner.settings import PlannerSettings
from spillway.kafka.bus import KafkaBus, KafkaSettings
from spillway.rpc.security import RpcSettings
from spillway.rpc.server import RpcServer
from spillway.running.process import Process, help_asked, run
from spillway.running.serving import instance_at, serve
from spillway.running.steady_clock import steady_seconds
from spillway.settings import from_environment
from spillway.store import RedisStore, StoreSettings

PREFIX = "SPILLWAY_PLANNER_"
SECTIONS = (
    (PlannerSettings, PREFIX),
    (RpcSettings, "SPILLWAY_RPC_"),
    (KafkaSettings, "SPILLWAY_KAFKA_"),
    (StoreSettings, "SPILLWAY_REDIS_"),
)


async def main(process: Process) -> None:
    process.set_ready("log", False, "not connected")
    settings = from_environment(PlannerSettings, os.environ, PREFIX)
    rpc = from_environment(RpcSettings, os.environ, "SPILLWAY_RPC_")
    kafka = from_environment(KafkaSettings, os.environ, "SPILLWAY_KAFKA_")
    redis = from_environment(StoreSettings, os.environ, "SPILLWAY_REDIS_")
    async with (
        KafkaBus(kafka, "", f"spillway/planner/{process.instance}") as bus,
        RedisStore(redis, bus.fleet) as store,
    ):
        clocks = PlannerClocks(steady_seconds, lambda: time.time_ns() // 1_000_000)
        planner = Planner(bus, store, settings, instance_at(process, rpc), clocks)
        await serve(process, bus, RpcServer(planner, rpc, fleet=bus.fleet, prepare=planner.prepared), planner)


if __name__ == "__main__":
    if help_asked("planner: decides where each replica goes.", *SECTIONS):
        sys.exit(0)
    sys.exit(run("planner", main))
