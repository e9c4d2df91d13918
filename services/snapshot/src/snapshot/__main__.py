"""python -m snapshot: settings from the environment, Kafka, the clusters' credentials."""

import asyncio
import os
import sys
from functools import partial

from snapshot.service import Snapshot
from snapshot.settings import Settings
from spillway import cluster_api
from spillway.cluster_api import ClusterApi, ClusterApiSettings
from spillway.credentials import load_endpoint
from spillway.events import ClusterJoined
from spillway.kafka import KafkaBus, KafkaSettings
from spillway.process import Process, end_with_the_log, help_asked, run
from spillway.settings import from_environment

PREFIX, KAFKA_PREFIX = "SPILLWAY_SNAPSHOT_", "SPILLWAY_KAFKA_"


def connect(settings: Settings, joined: ClusterJoined) -> ClusterApi:
    read = partial(load_endpoint, settings.credentials_folder, joined.credential, allow_exec=settings.exec_plugins)
    return cluster_api.connect(read, joined.cluster, ClusterApiSettings())


async def serve(process: Process) -> None:
    process.set_ready("log", False, "not connected")
    settings = from_environment(Settings, os.environ, PREFIX)
    kafka = from_environment(KafkaSettings, os.environ, KAFKA_PREFIX)
    async with KafkaBus(kafka, settings.fleet, f"spillway/snapshot/{process.instance}") as bus:
        process.opened()
        snapshot = Snapshot(bus, partial(connect, settings), settings, process.instance)
        snapshot.turns.ready = partial(process.set_ready, "log")
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(end_with_the_log(bus))
            await snapshot.run(process.stopping)
            watching.cancel()


if __name__ == "__main__":
    if help_asked(
        "snapshot: decides what each cluster's capacity is now.", (Settings, PREFIX), (KafkaSettings, KAFKA_PREFIX)
    ):
        sys.exit(0)
    sys.exit(run("snapshot", serve))
