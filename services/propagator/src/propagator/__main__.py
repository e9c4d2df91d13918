"""Wires the propagator: settings from the environment, Kafka, the members' APIs."""

import asyncio
import os
import sys
from functools import partial

from propagator.service import Propagator
from propagator.settings import Settings
from spillway.cluster_api import ClusterApi, ClusterApiSettings, HttpTransport
from spillway.credentials import load_endpoint
from spillway.events import ClusterJoined
from spillway.kafka import KafkaBus, KafkaSettings
from spillway.process import Process, end_with_the_log, help_asked, run
from spillway.settings import from_environment

PREFIX = "SPILLWAY_PROPAGATOR_"
KAFKA_PREFIX = "SPILLWAY_KAFKA_"


def connect(settings: Settings, joined: ClusterJoined) -> ClusterApi:
    """The member's API; its credentials are read when they are first needed, and again when they are refused."""
    api_settings = ClusterApiSettings()
    read_endpoint = partial(
        load_endpoint, settings.credentials_folder, joined.credential, allow_exec=settings.exec_plugins
    )
    return ClusterApi(HttpTransport(read_endpoint, joined.cluster, api_settings), joined.cluster, api_settings)


async def serve(process: Process) -> None:
    process.set_ready("log", False, "not connected")
    settings = from_environment(Settings, os.environ, PREFIX)
    kafka = from_environment(KafkaSettings, os.environ, KAFKA_PREFIX)
    source = f"spillway/propagator/{process.instance}"
    async with KafkaBus(kafka, settings.fleet, source) as bus, asyncio.TaskGroup() as tasks:
        process.opened()
        propagator = Propagator(bus, partial(connect, settings), settings, process.instance)
        propagator.turns.ready = partial(process.set_ready, "log")
        watcher = tasks.create_task(end_with_the_log(bus))
        await propagator.run(process.stopping)
        watcher.cancel()


if __name__ == "__main__":
    if help_asked("propagator: makes placements true in members.", (Settings, PREFIX), (KafkaSettings, KAFKA_PREFIX)):
        sys.exit(0)
    sys.exit(run("propagator", serve))
