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
from spillway.running.cluster_turns import ClusterTurn, ClusterTurns, way_to_joined_cluster
from spillway.running.following import TopicReader
from vk_bridge.api.lent_pods import LentPods
from vk_bridge.cluster.pools import Connect, Pools
from vk_bridge.core.log_state import LendingLogState
from vk_bridge.core.touched_work import apply_record
from vk_bridge.node_slots import NodeSlots
from vk_bridge.owner_worker import OwnerShared, OwnerWorker
from vk_bridge.settings import VkBridgeSettings

SERVICE = "vk-bridge"
FOLLOWED = (CLUSTERS, LENDING_RULES, LENDING, RECALLS, BRAKES, CAPACITY_NEEDED, PENDING, WORKLOADS)
log = structlog.get_logger()


def current_unix_ms() -> int:
    return time.time_ns() // 1_000_000


class Bridge:
    """One instance of the bridge. Several instances share the clusters; each cluster is one instance's turn at a time.

    wall_ms: returns the Unix time for records. No order of records depends on it.
    """

    def __init__(
        self,
        bus: Bus,
        connect: Connect,
        settings: VkBridgeSettings,
        instance: str,
        wall_ms: Callable[[], int] = current_unix_ms,
    ) -> None:
        self._bus = bus
        self._connect = connect
        self._settings = settings
        self._wall_ms = wall_ms
        self._state = LendingLogState()
        self._slots = NodeSlots(settings.nodes_at_once_overall, settings.nodes_beside_recalled)
        self._recalled_by = tracing.Origins[tuple[str, str]]()
        self._reader = TopicReader(bus, FOLLOWED, self._apply_record, settings.bus_retry_seconds)
        self._pools: Pools
        self.turns = ClusterTurns[OwnerWorker](bus, SERVICE, instance, settings, self)

    async def run(self, stopping: asyncio.Event) -> None:
        """Runs until stopping is set, then finishes the work under way.

        Raises for a bug, or for another fleet's log.
        """
        async with asyncio.TaskGroup() as group:
            self._pools = Pools(self._connect, self._settings, group, self._queue_nodes_of_pool_change)
            tasks = [group.create_task(one()) for one in (self._reader.run, self.turns.run, self._forget_left_clusters)]
            await stopping.wait()
            await self.turns.finish()
            for task in tasks:
                task.cancel()
            self._pools.close()

    @property
    def clusters_worked_on(self) -> frozenset[str]:
        """Returns the clusters that this instance works on now."""
        return frozenset(self.turns.workers)

    def lent_pods(self) -> list[LentPods]:
        """Returns the LentPods of each cluster that is worked on now, from which the kubelet API answers."""
        return [worker.lent_pods for worker in self.turns.workers.values()]

    # ── Turns ───────────────────────────────────────────────────────────────────────────────────────────────────

    def clusters_in_log(self) -> Iterable[str]:
        return self._state.clusters

    def way_to_cluster(self, cluster: str) -> Hashable | None:
        """Returns the way to reach the cluster; None if a bridge has nothing to do there."""
        joined = self._state.clusters.get(cluster)
        return None if joined is None or not self._state.has_work_in_cluster(cluster) else way_to_joined_cluster(joined)

    async def wait_until_caught_up(self) -> None:
        await self._reader.wait_until_caught_up()

    def create_worker(self, turn: ClusterTurn) -> OwnerWorker:
        shared = OwnerShared(
            self._bus,
            self._state,
            self._settings,
            self._pools,
            self._slots,
            self._wall_ms,
            self.turns.reconsider_turns,
            self._recalled_by,
        )
        return OwnerWorker(turn.cluster, turn.epoch, self._connect(self._state.clusters[turn.cluster]), shared)

    # ── The log ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _apply_record(self, record: Record) -> None:
        event = record.event
        if isinstance(event, TurnTaken):
            self.turns.note_epoch(event.cluster, record.offset, event.instance)
            return
        touched = apply_record(self._state, record.topic, record.key, event)
        if touched.recalled:
            self._note_recall(record, (touched.owner, touched.node))
        if touched.node:
            self.turns.call_worker(
                touched.owner, lambda worker: worker.queue_node(touched.node, recalled=touched.recalled)
            )
        if isinstance(event, NodeLent | NodeReturned):
            self._handle_loan_record(event)
        if touched.owners:
            self.turns.reconsider_turns()
        if touched.left:
            self._pools.stop_following_pool(touched.left)
        if touched.all_nodes:
            if touched.owner:
                self.turns.call_worker(touched.owner, OwnerWorker.queue_all_nodes)
            else:
                self.turns.call_all_workers(OwnerWorker.queue_all_nodes)

    def _note_recall(self, record: Record, key: tuple[str, str]) -> None:
        """Keeps the trace of a node's recall, so that the work for it joins that trace. key: owner and node."""
        self._recalled_by.take_origin(key)
        if isinstance(record.event, NodeRecalled):
            self._recalled_by.note_origin(key, tracing.select_trace_headers(record.headers))

    def _handle_loan_record(self, event: NodeLent | NodeReturned) -> None:
        """Causes the valid record of a loan to be written again, if a bridge whose turn was over has replaced it."""
        self.turns.note_epoch(event.cluster, event.epoch)
        if event.cluster in self.turns.workers and event.node in self._state.nodes_with_stale_record(event.cluster):
            self.turns.call_worker(event.cluster, lambda worker: worker.republish_loan_record(event.node))

    async def _forget_left_clusters(self) -> None:
        """Writes tombstones for ended loans in clusters that left the fleet, because these have no worker to do it."""
        await self.wait_until_caught_up()
        while True:
            before_ms = self._wall_ms() - round(self._settings.forget_seconds * 1000)
            gone = [
                Tombstone(lending_address(LENDING, cluster, node))
                for cluster, node in self._state.ended_loans_of_left_clusters(before_ms)
                if self.turns.is_assigned(cluster) and self.turns.is_free(cluster)
            ]
            for first in range(0, len(gone), self._settings.records_batch):
                try:
                    await self._bus.publish(*gone[first : first + self._settings.records_batch])
                except BusUnavailable as error:
                    log.warning("the log cannot be reached", error=str(error), tombstones=len(gone))
                    break
            await asyncio.sleep(self._settings.resync_seconds)

    def _queue_nodes_of_pool_change(self, pool: str, virtual_node: str, change: Change, pods: bool) -> None:
        self.turns.call_all_workers(
            lambda worker: worker.queue_nodes_of_pool_change(pool, virtual_node, change, pods=pods)
        )
