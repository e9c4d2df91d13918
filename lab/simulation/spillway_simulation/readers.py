"""Who reads: asks every planner at random moments, those that are cut off or frozen too, and each as it wakes."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

from spillway.api import (
    CapacityRequest,
    ExplainRequest,
    GetRequest,
    ListClustersRequest,
    ListOrphansRequest,
    ListRequest,
    RequestError,
)
from spillway_local.fleet_plan import deployment
from spillway_simulation.brownfield import NAMESPACE
from spillway_simulation.read_oracle import Reader, ReadOracle
from spillway_simulation.world import Process, World

EVERY_SECONDS = 4.0
"""Twice that at the most between two reads of one planner."""
AFTER_WAKING_SECONDS = (0.0, 0.3, 2.0)
SMALL = deployment("small", NAMESPACE, 1, cpu="250m", memory="64Mi")
VERBS = ("list", "list", "get", "list_clusters", "capacity", "explain", "list_orphans")


class Readers:
    """run() goes on until it is cancelled."""

    def __init__(self, world: World) -> None:
        assert world.oracle.reads is not None
        self._world = world
        self._oracle: ReadOracle = world.oracle.reads
        self._random = Random(f"{world.script.seed}/readers")
        world.woken = self._read_after_waking

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._random.uniform(0, EVERY_SECONDS))
            for process, _ in self._world.living_planners():
                self._read_from_planner(process)

    def _read_after_waking(self, process: Process) -> None:
        for seconds in AFTER_WAKING_SECONDS:
            self._world.loop.call_later(seconds, self._read_from_planner, process, context=self._world.network.world)

    def _read_from_planner(self, process: Process) -> None:
        """A frozen process answers when it wakes; the answer is of then, and the question of now."""
        if process.is_over:
            return
        verb = self._random.choice(VERBS)
        now = self._world.loop.time()
        reader = Reader(f"spillway/{process.name}", process.owner, process.began_at, now)
        name = self._random.choice(sorted(self._world.script.asks))
        task = self._world.call_in_process(process, _make_read_call(process.running.service, verb, name))
        task.add_done_callback(lambda task: self._judge_answer(reader, verb, task), context=self._world.network.world)

    def _judge_answer(self, reader: Reader, verb: str, task: "asyncio.Task[Any]") -> None:
        if task.cancelled() or self._world.processes[reader.owner.partition("#")[0]].is_over:
            return
        error = task.exception()
        if error is not None:
            if not isinstance(error, RequestError):
                self._world.oracle.note_violation(f"{verb}: {reader.owner} answers {error!r}")
            return
        reply = task.result()
        placement = getattr(reply, "placement", None)
        if not self._oracle.judge_staleness(
            reader, verb, stale=placement.stale if placement is not None else reply.stale
        ):
            return
        if verb == "list":
            self._oracle.judge_workload_list(reader, reply)
        elif verb == "list_clusters":
            self._oracle.judge_cluster_list(reader, reply)
        elif verb == "get" and not reply.gone:
            self._oracle.judge_placement_reply(reader, reply.placement)


def _make_read_call(planner: Any, verb: str, name: str) -> Any:
    requests: dict[str, Callable[[], Any]] = {
        "list": lambda: planner.list(ListRequest(page_size=1000)),
        "get": lambda: planner.get(GetRequest(NAMESPACE, name)),
        "list_clusters": lambda: planner.list_clusters(ListClustersRequest()),
        "capacity": lambda: planner.capacity(CapacityRequest((SMALL,))),
        "explain": lambda: planner.explain(ExplainRequest(NAMESPACE, name)),
        "list_orphans": lambda: planner.list_orphans(ListOrphansRequest()),
    }
    return requests[verb]()
