"""Runs the bridge: reads the whole log, takes turns at owner clusters, and passes new records to their workers."""

import asyncio
import time
from collections.abc import Callable, Hashable, Iterable

import structlog

from spillway import tracing
from spillway.addresses import (
    BRAKES,
    CAPACITY_NEEDED,
    CLUSTERS,
    LENDING,
    LENDING_RULES,
    PENDING,
    RECALLS,
    WORKLOADS,
    Tombstone,
    lending_address,
)
from spillway.bus import Bus, BusUnavailable, Record
from spillway.clusters.api import Change
from spillway.events import TurnTaken
from spillway.events_lending import NodeLent, NodeRecalled, NodeReturned
from spillway.running.cluster_turns import ClusterTurn, ClusterTurns, way_to
from spillway.running.following import TopicReader
from vk_bridge.api.lent_pods import LentPods
from vk_bridge.cluster.pools import Connect, Pools
from vk_bridge.core.log_state import LendingLogState
from vk_bridge.core.touched import apply_record
from vk_bridge.node_slots import NodeSlots
from vk_bridge.owner_worker import OwnerShared, OwnerWorker
from vk_bridge.settings import VkBridgeSettings

SERVICE = "vk-bridge"
FOLLOWED = (CLUSTERS, LENDING_RULES, LENDING, RECALLS, BRAKES, CAPACITY_NEEDED, PENDING, WORKLOADS)
log = structlog.get_logger()


def unix_ms() -> int:
    return time.time_ns() // 1_000_000


class Bridge:
    """One instance of the bridge. Several instances share the clusters; each cluster is one instance's turn at a time.

    wall_ms: Unix time, which records publish and which orders nothing.
    """

    def __init__(
        self,
        bus: Bus,
        connect: Connect,
        settings: VkBridgeSettings,
        instance: str,
        wall_ms: Callable[[], int] = unix_ms,
    ) -> None:
        self._bus = bus
        self._connect = connect
        self._settings = settings
        self._wall_ms = wall_ms
        self._state = LendingLogState()
        self._slots = NodeSlots(settings.nodes_at_once_overall, settings.nodes_beside_recalled)
        self._recalled_by = tracing.Origins[tuple[str, str]]()
        self._reader = TopicReader(bus, FOLLOWED, self._apply, settings.bus_retry_seconds)
        self._pools: Pools
        self.turns = ClusterTurns[OwnerWorker](bus, SERVICE, instance, settings, self)

    async def run(self, stopping: asyncio.Event) -> None:
        """Runs until stopping is set, then finishes the work under way.

        Raises for a bug, or for another fleet's log.
        """
        async with asyncio.TaskGroup() as group:
            self._pools = Pools(self._connect, self._settings, group, self._touch_virtual)
            tasks = [group.create_task(one()) for one in (self._reader.run, self.turns.run, self._forget_left)]
            await stopping.wait()
            await self.turns.finish()
            for task in tasks:
                task.cancel()
            self._pools.close()

    @property
    def held(self) -> frozenset[str]:
        """Returns the clusters that this instance works on now."""
        return frozenset(self.turns.workers)

    def lent_pods(self) -> list[LentPods]:
        """Returns the LentPods of each cluster that is worked on now, from which the kubelet API answers."""
        return [worker.lent_pods for worker in self.turns.workers.values()]

    # ── Turns ───────────────────────────────────────────────────────────────────────────────────────────────────

    def clusters(self) -> Iterable[str]:
        return self._state.clusters

    def way(self, cluster: str) -> Hashable | None:
        """Returns how the cluster is reached; None if a bridge has nothing to do there."""
        joined = self._state.clusters.get(cluster)
        return None if joined is None or not self._state.is_concerned(cluster) else way_to(joined)

    async def caught_up(self) -> None:
        await self._reader.caught_up()

    def begin(self, turn: ClusterTurn) -> OwnerWorker:
        shared = OwnerShared(
            self._bus,
            self._state,
            self._settings,
            self._pools,
            self._slots,
            self._wall_ms,
            self.turns.reconsider,
            self._recalled_by,
        )
        return OwnerWorker(turn.cluster, turn.epoch, self._connect(self._state.clusters[turn.cluster]), shared)

    # ── The log ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _apply(self, record: Record) -> None:
        event = record.event
        if isinstance(event, TurnTaken):
            self.turns.note(event.cluster, record.offset, event.instance)
            return
        touched = apply_record(self._state, record.topic, record.key, event)
        if touched.recalled:
            self._note_recall(record, (touched.owner, touched.node))
        if touched.node:
            self.turns.tell(touched.owner, lambda worker: worker.touch(touched.node, recalled=touched.recalled))
        if isinstance(event, NodeLent | NodeReturned):
            self._note_loan(event)
        if touched.owners:
            self.turns.reconsider()
        if touched.left:
            self._pools.drop(touched.left)
        if touched.all_nodes:
            if touched.owner:
                self.turns.tell(touched.owner, OwnerWorker.touch_all)
            else:
                self.turns.tell_all(OwnerWorker.touch_all)

    def _note_recall(self, record: Record, key: tuple[str, str]) -> None:
        """Keeps the trace of a node's recall, so that the work for it joins that trace. key: owner and node."""
        self._recalled_by.take(key)
        if isinstance(record.event, NodeRecalled):
            self._recalled_by.note(key, tracing.carried(record.headers))

    def _note_loan(self, event: NodeLent | NodeReturned) -> None:
        """Has the valid record of a loan written again, if a writer whose turn was over has replaced it."""
        self.turns.note(event.cluster, event.epoch)
        if event.cluster in self.turns.workers and event.node in self._state.stale_last(event.cluster):
            self.turns.tell(event.cluster, lambda worker: worker.contradict(event.node))

    async def _forget_left(self) -> None:
        """Writes tombstones for ended loans in clusters that left the fleet, because these have no worker to do it."""
        await self.caught_up()
        while True:
            before_ms = self._wall_ms() - round(self._settings.forget_seconds * 1000)
            gone = [
                Tombstone(lending_address(LENDING, cluster, node))
                for cluster, node in self._state.over_and_left(before_ms)
                if self.turns.holds(cluster) and self.turns.is_free(cluster)
            ]
            for first in range(0, len(gone), self._settings.records_batch):
                try:
                    await self._bus.publish(*gone[first : first + self._settings.records_batch])
                except BusUnavailable as error:
                    log.warning("the log cannot be reached", error=str(error), tombstones=len(gone))
                    break
            await asyncio.sleep(self._settings.resync_seconds)

    def _touch_virtual(self, pool: str, virtual_node: str, change: Change, pods: bool) -> None:
        self.turns.tell_all(lambda worker: worker.touch_virtual(pool, virtual_node, change, pods=pods))
