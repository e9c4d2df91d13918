"""Runs a standby service with its gRPC server. It ends when the log is no longer this fleet's."""

import asyncio
from typing import Protocol

from spillway.bus import Bus
from spillway.rpc.security import RpcSettings
from spillway.rpc.server import RpcServer
from spillway.running.garbage_collection import set_aside_heap
from spillway.running.process import Process, end_when_fleet_changes
from spillway.running.standby import Standby


class ServedStandby(Protocol):
    @property
    def standby(self) -> Standby: ...

    async def run(self, stopping: asyncio.Event) -> None: ...


def instance_name_with_address(process: Process, settings: RpcSettings) -> str:
    """Returns the name of this instance in turns, with the address at which callers find the active instance."""
    return f"{process.instance}@{settings.host}:{settings.port}"


async def serve_standby(process: Process, bus: Bus, server: RpcServer, served: ServedStandby) -> None:
    """Runs the service with its gRPC server until the process must stop. Raises OtherFleet, OperatorError."""
    process.note_opened()
    async with server, asyncio.TaskGroup() as tasks:
        process.log.info("listening", address=server.address, fleet=bus.fleet_id)
        telling: set[asyncio.Task[None]] = set()

        def note_ready(ready: bool, reason: str) -> None:
            set_aside_heap(ready)
            process.set_ready("log", ready, reason)
            telling.add(tasks.create_task(server.set_serving(ready)))

        served.standby.ready = note_ready
        watchers = [tasks.create_task(server.wait_for_failure()), tasks.create_task(end_when_fleet_changes(bus))]
        await served.run(process.stopping)
        for watcher in watchers:
            watcher.cancel()
