"""Starts snapshot with its settings from the environment, Kafka, and the clusters' credentials."""

import os
import sys
from functools import partial

from snapshot.service import Snapshot
from snapshot.settings import SnapshotSettings
from spillway.clusters.api import ClusterApiSettings
from spillway.kafka.bus import KafkaBus, KafkaSettings
from spillway.running.cluster_serving import connect_to_cluster, serve_clusters
from spillway.running.process import Process, print_help_if_asked, run
from spillway.settings import settings_from_environment

PREFIX, KAFKA_PREFIX = "SPILLWAY_SNAPSHOT_", "SPILLWAY_KAFKA_"


async def main(process: Process) -> None:
    process.set_ready("log", False, "not connected")
    settings = settings_from_environment(SnapshotSettings, os.environ, PREFIX)
    kafka = settings_from_environment(KafkaSettings, os.environ, KAFKA_PREFIX)
    connect = partial(connect_to_cluster, settings, ClusterApiSettings())
    async with KafkaBus(kafka, settings.fleet, f"spillway/snapshot/{process.instance}") as bus:
        await serve_clusters(process, bus, Snapshot(bus, connect, settings, process.instance))


if __name__ == "__main__":
    if print_help_if_asked(
        "snapshot: decides what each cluster's capacity is now.",
        (SnapshotSettings, PREFIX),
        (KafkaSettings, KAFKA_PREFIX),
    ):
        sys.exit(0)
    sys.exit(run("snapshot", main))
