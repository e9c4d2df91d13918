"""Starts the propagator with its settings from the environment, Kafka, and the APIs of the clusters."""

import os
import sys
from functools import partial

from propagator.service import Propagator
from propagator.settings import PropagatorSettings
from spillway.clusters.api import ClusterApiSettings
from spillway.kafka.bus import KafkaBus, KafkaSettings
from spillway.running.cluster_serving import connect_to_cluster, serve_clusters
from spillway.running.process import Process, print_help_if_asked, run
from spillway.settings import settings_from_environment

PREFIX = "SPILLWAY_PROPAGATOR_"
KAFKA_PREFIX = "SPILLWAY_KAFKA_"


async def main(process: Process) -> None:
    process.set_ready("log", False, "not connected")
    settings = settings_from_environment(PropagatorSettings, os.environ, PREFIX)
    kafka = settings_from_environment(KafkaSettings, os.environ, KAFKA_PREFIX)
    connect = partial(connect_to_cluster, settings, ClusterApiSettings())
    async with KafkaBus(kafka, settings.fleet, f"spillway/propagator/{process.instance}") as bus:
        await serve_clusters(process, bus, Propagator(bus, connect, settings, process.instance))


if __name__ == "__main__":
    if print_help_if_asked(
        "propagator: makes placements true in the clusters.",
        (PropagatorSettings, PREFIX),
        (KafkaSettings, KAFKA_PREFIX),
    ):
        sys.exit(0)
    sys.exit(run("propagator", main))
