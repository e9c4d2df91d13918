"""Starts the bridge with its settings from the environment, Kafka, and the clusters' APIs."""

import os
import sys
from functools import partial

from spillway.clusters.api import ClusterApiSettings
from spillway.kafka.bus import KafkaBus, KafkaSettings
from spillway.running.cluster_serving import connect_to_cluster, serve_clusters
from spillway.running.garbage_collection import survivors_set_aside
from spillway.running.process import Process, print_help_if_asked, run
from spillway.settings import settings_from_environment
from vk_bridge.api.kubelet import KubeletApi
from vk_bridge.service import Bridge
from vk_bridge.settings import VkBridgeSettings

PREFIX = "SPILLWAY_VK_BRIDGE_"
KAFKA_PREFIX = "SPILLWAY_KAFKA_"


async def main(process: Process) -> None:
    process.set_ready("log", False, "not connected")
    settings = settings_from_environment(VkBridgeSettings, os.environ, PREFIX)
    kafka = settings_from_environment(KafkaSettings, os.environ, KAFKA_PREFIX)
    api_settings = ClusterApiSettings(
        request_timeout_seconds=settings.request_timeout_seconds,
        log_streams_max=settings.owner_logs_max,
        log_stream_seconds=settings.log_seconds,
    )
    async with KafkaBus(kafka, settings.fleet, f"spillway/vk-bridge/{process.instance}") as bus:
        bridge = Bridge(bus, partial(connect_to_cluster, settings, api_settings), settings, process.instance)
        async with KubeletApi(settings, bridge.lent_pods):
            with survivors_set_aside():
                await serve_clusters(process, bus, bridge)


if __name__ == "__main__":
    if print_help_if_asked(
        "vk-bridge: lends idle nodes to a pool.", (VkBridgeSettings, PREFIX), (KafkaSettings, KAFKA_PREFIX)
    ):
        sys.exit(0)
    sys.exit(run("vk-bridge", main))
