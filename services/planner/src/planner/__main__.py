"""Wires the planner: settings from the environment, Kafka, Redis, gRPC."""

import os
import sys
import time

from planner.service import Planner, PlannerClocks
from planner.settings import PlannerSettings
from spillway.kafka.bus import KafkaBus, KafkaSettings
from spillway.rpc.security import RpcSettings
from spillway.rpc.server import RpcServer
from spillway.running.process import Process, print_help_if_asked, run
from spillway.running.serving import instance_name_with_address, serve_standby
from spillway.running.steady_clock import steady_seconds
from spillway.settings import settings_from_environment
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
    settings = settings_from_environment(PlannerSettings, os.environ, PREFIX)
    rpc = settings_from_environment(RpcSettings, os.environ, "SPILLWAY_RPC_")
    kafka = settings_from_environment(KafkaSettings, os.environ, "SPILLWAY_KAFKA_")
    redis = settings_from_environment(StoreSettings, os.environ, "SPILLWAY_REDIS_")
    async with (
        KafkaBus(kafka, "", f"spillway/planner/{process.instance}") as bus,
        RedisStore(redis, bus.fleet_id) as store,
        RedisStore(redis, bus.fleet_id) as reader,
    ):
        clocks = PlannerClocks(steady_seconds, lambda: time.time_ns() // 1_000_000)
        # Callers' reads use a Redis client of their own. Otherwise many reads would delay the planner's writes.
        planner = Planner(bus, store, settings, instance_name_with_address(process, rpc), clocks, reader)
        await serve_standby(
            process, bus, RpcServer(planner, rpc, fleet=bus.fleet_id, prepare=planner.prepare_request), planner
        )


if __name__ == "__main__":
    if print_help_if_asked("planner: decides where each replica goes.", *SECTIONS):
        sys.exit(0)
    sys.exit(run("planner", main))
