"""Runs a service whose instances share the clusters. It ends when the log is no longer this fleet's."""

import asyncio
from functools import partial
from typing import Any, Protocol

from spillway.bus import Bus
from spillway.clusters.api import ClusterApi, ClusterApiSettings, make_cluster_api
from spillway.clusters.credentials import load_endpoint
from spillway.events import ClusterJoined
from spillway.http_client import check_aiohttp_internals
from spillway.running.cluster_turns import ClusterTurns, ClusterTurnSettings
from spillway.running.garbage_collection import delayed_collections
from spillway.running.process import Process, end_when_fleet_changes


class SharingService(Protocol):
    """A service whose instances share the clusters. run: works until stopping is set."""

    turns: ClusterTurns[Any]

    async def run(self, stopping: asyncio.Event) -> None: ...


def connect_to_cluster(
    settings: ClusterTurnSettings, api_settings: ClusterApiSettings, joined: ClusterJoined
) -> ClusterApi:
    """Returns the cluster's API. Its credentials are read at the first use, and again when they are refused."""
    read = partial(load_endpoint, settings.credentials_folder, joined.credential, allow_exec=settings.exec_plugins)
    return make_cluster_api(read, joined.cluster, api_settings)


async def serve_clusters(process: Process, bus: Bus, service: SharingService) -> None:
    """Runs the service until the process must stop.

    Raises OtherFleet, ChangedHttpLibrary, and the error of a worker that met a bug.
    """
    check_aiohttp_internals()
    process.note_opened()
    service.turns.ready = partial(process.set_ready, "log")
    async with asyncio.TaskGroup() as tasks:
        watcher = tasks.create_task(end_when_fleet_changes(bus))
        with delayed_collections():
            await service.run(process.stopping)
        watcher.cancel()
