"""Wires the bridge: settings from the environment, Kafka, the clusters' APIs."""

import asyncio
import os
import sys
from functools import partial

from spillway.cluster_api import ClusterApi, ClusterApiSettings, connect
from spillway.credentials import load_endpoint
from spillway.events import ClusterJoined
from spillway.kafka import KafkaBus, KafkaSettings
from spillway.process import Process, end_with_the_log, help_asked, run
from spillway.settings import from_environment
from vk_bridge.kubelet import Kubelet
from vk_bridge.service import Bridge
from vk_bridge.settings import Settings

PREFIX = "SPILLWAY_VK_BRIDGE_"
KAFKA_PREFIX = "SPILLWAY_KAFKA_"


def connected(settings: Settings, joined: ClusterJoined) -> ClusterApi:
    """The cluster's API; its credentials are read when they are first needed, and again when they are refused."""
    api_settings = ClusterApiSettings(
        request_timeout_seconds=settings.request_timeout_seconds,
        max_log_streams=settings.owner_logs_max,
        log_stream_seconds=settings.log_seconds,
    )
    read = partial(load_endpoint, settings.credentials_folder, joined.credential, allow_exec=settings.exec_plugins)
    return connect(read, joined.cluster, api_settings)


async def serve(process: Process) -> None:
    process.set_ready("log", False, "not connected")
    settings = from_environment(Settings, os.environ, PREFIX)
    kafka = from_environment(KafkaSettings, os.environ, KAFKA_PREFIX)
    source = f"spillway/vk-bridge/{process.instance}"
    async with KafkaBus(kafka, settings.fleet, source) as bus, asyncio.TaskGroup() as tasks:
        process.opened()
        bridge = Bridge(bus, partial(connected, settings), settings, process.instance)
        bridge.turns.ready = partial(process.set_ready, "log")
        watcher = tasks.create_task(end_with_the_log(bus))
        async with Kubelet(settings, bridge.lent_pods):
            await bridge.run(process.stopping)
        watcher.cancel()


if __name__ == "__main__":
    if help_asked("vk-bridge: lends idle nodes to a pool.", (Settings, PREFIX), (KafkaSettings, KAFKA_PREFIX)):
        sys.exit(0)
    sys.exit(run("vk-bridge", serve))
