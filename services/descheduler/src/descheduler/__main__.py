"""Starts the descheduler with its settings from the environment, Kafka and gRPC."""

import os
import sys
import time

from descheduler.service import Descheduler, DeschedulerClocks
from descheduler.settings import DeschedulerSettings
from spillway.kafka.bus import KafkaBus, KafkaSettings
from spillway.rpc.calls import LENDING
from spillway.rpc.security import RpcSettings
from spillway.rpc.server import RpcServer
from spillway.running.process import Process, print_help_if_asked, run
from spillway.running.serving import instance_name_with_address, serve_standby
from spillway.running.steady_clock import steady_seconds
from spillway.settings import settings_from_environment

PREFIX = "SPILLWAY_DESCHEDULER_"
SECTIONS = ((DeschedulerSettings, PREFIX), (RpcSettings, "SPILLWAY_RPC_"), (KafkaSettings, "SPILLWAY_KAFKA_"))


async def main(process: Process) -> None:
    process.set_ready("log", False, "not connected")
    settings = settings_from_environment(DeschedulerSettings, os.environ, PREFIX)
    rpc = settings_from_environment(RpcSettings, os.environ, "SPILLWAY_RPC_")
    kafka = settings_from_environment(KafkaSettings, os.environ, "SPILLWAY_KAFKA_")
    async with KafkaBus(kafka, "", f"spillway/descheduler/{process.instance}") as bus:
        clocks = DeschedulerClocks(steady_seconds, lambda: time.time_ns() // 1_000_000)
        descheduler = Descheduler(bus, settings, instance_name_with_address(process, rpc), clocks)
        await serve_standby(process, bus, RpcServer(descheduler, rpc, LENDING, fleet=bus.fleet_id), descheduler)


if __name__ == "__main__":
    if print_help_if_asked("descheduler: decides which lent nodes go back to their owners.", *SECTIONS):
        sys.exit(0)
    sys.exit(run("descheduler", main))
