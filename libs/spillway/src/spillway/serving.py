"""A standby service as a process: it answers over gRPC while it runs, and ends with its log."""

import asyncio
import gc
from typing import Protocol

from spillway.bus import Bus
from spillway.process import Process, end_with_the_log
from spillway.rpc import RpcServer, RpcSettings
from spillway.standby import Standby

COLLECTED_AFTER = (700, 3, 33)
"""As gc.set_threshold: objects, collections of the youngest, and of those next to them. Full ones are as seldom as by
Python's own (10, 10), but of what is next to the youngest a third is looked at at a time.
"""


class Served(Protocol):
    @property
    def standby(self) -> Standby: ...

    async def run(self, stopping: asyncio.Event) -> None: ...


def instance_at(process: Process, settings: RpcSettings) -> str:
    """The name that turns bear: with the address at which callers find the active instance."""
    return f"{process.instance}@{settings.host}:{settings.port}"


def set_aside_heap(loaded: bool) -> None:
    """What was read from the log stays for as long as this state: no later collection walks it again.

    Each full one would, for a tenth of a second and more on a big fleet, in which nobody is answered; and finds none of
    it, since what is replaced there is freed by its last reference. Before the next state is read, all is looked at.
    """
    if loaded:
        gc.collect()
        gc.freeze()
        gc.set_threshold(*COLLECTED_AFTER)
    else:
        gc.unfreeze()


async def serve(process: Process, bus: Bus, server: RpcServer, served: Served) -> None:
    """Runs until the process is to stop. Raises OtherFleet, OperatorError."""
    process.opened()
    async with server, asyncio.TaskGroup() as tasks:
        process.log.info("listening", address=server.address, fleet=bus.fleet)
        telling: set[asyncio.Task[None]] = set()

        def note_ready(ready: bool, reason: str) -> None:
            set_aside_heap(ready)
            process.set_ready("log", ready, reason)
            telling.add(tasks.create_task(server.set_serving(ready)))

        served.standby.ready = note_ready
        watchers = [tasks.create_task(server.failed()), tasks.create_task(end_with_the_log(bus))]
        await served.run(process.stopping)
        for watcher in watchers:
            watcher.cancel()
