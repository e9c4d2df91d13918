"""Starts hpa with its settings from the environment, Kafka and gRPC."""

import os
import sys
import time

from hpa.external_metrics.collecting import CollectingSettings
from hpa.external_metrics.connections import read_connections
from hpa.service import CollectingOptions, Hpa, HpaClocks
from hpa.settings import HpaSettings
from spillway.kafka.bus import KafkaBus, KafkaSettings
from spillway.rpc.calls import SCALING
from spillway.rpc.security import RpcSettings
from spillway.rpc.server import RpcServer
from spillway.running.process import Process, print_help_if_asked, run
from spillway.running.serving import instance_name_with_address, serve_standby
from spillway.running.steady_clock import steady_seconds
from spillway.settings import settings_from_environment

PREFIX = "SPILLWAY_HPA_"
SECTIONS = (
    (HpaSettings, PREFIX),
    (CollectingSettings, "SPILLWAY_COLLECTING_"),
    (RpcSettings, "SPILLWAY_RPC_"),
    (KafkaSettings, "SPILLWAY_KAFKA_"),
)


async def main(process: Process) -> None:
    process.set_ready("log", False, "not connected")
    settings = settings_from_environment(HpaSettings, os.environ, PREFIX)
    collecting = settings_from_environment(CollectingSettings, os.environ, "SPILLWAY_COLLECTING_")
    asking = CollectingOptions(read_connections(collecting.connections), collecting)
    rpc = settings_from_environment(RpcSettings, os.environ, "SPILLWAY_RPC_")
    kafka = settings_from_environment(KafkaSettings, os.environ, "SPILLWAY_KAFKA_")
    async with KafkaBus(kafka, "", f"spillway/hpa/{process.instance}") as bus:
        clocks = HpaClocks(lambda: time.time_ns() // 1_000_000, steady_seconds)
        hpa = Hpa(bus, settings, instance_name_with_address(process, rpc), clocks, asking)
        await serve_standby(process, bus, RpcServer(hpa, rpc, SCALING, fleet=bus.fleet_id), hpa)


if __name__ == "__main__":
    if print_help_if_asked("hpa: decides how many replicas a workload has.", *SECTIONS):
        sys.exit(0)
    sys.exit(run("hpa", main))
