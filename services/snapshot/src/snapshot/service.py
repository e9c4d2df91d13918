"""Runs snapshot: one collector for each cluster at which this instance has the turn. The decisions are in core/."""

import asyncio
import time
from collections.abc import Callable, Iterable

import structlog

from snapshot.collector import SERVICE, Collector, CollectorShared, Connect
from snapshot.core.log_book import LogBook, address_of_key
from snapshot.settings import SnapshotSettings
from spillway.addresses import CAPACITY, CAPACITY_CHANGES, CLUSTERS, PENDING, PODS, SCALE_POLICIES, Tombstone, Topic
from spillway.bus import Bus, BusUnavailable, Offsets, Record
from spillway.events import (
    CapacityChanged,
    CapacityReported,
    ClusterJoined,
    ClusterLeft,
    PodsScheduled,
    PodsUnschedulable,
    TurnTaken,
)
from spillway.events_scaling import PodsObserved, ScalePolicyDeclared
from spillway.model import Generation
from spillway.running.cluster_turns import ClusterTurn, ClusterTurns
from spillway.running.following import TopicReader
from spillway.waiting import is_set_within


def current_unix_ms() -> int:
    return time.time_ns() // 1_000_000


class Snapshot:
    """One instance of snapshot.

    connect: opens the API of a cluster; may raise.
    wall_ms: returns Unix time in milliseconds. It is written to records, and never used for order.
    """

    def __init__(
        self,
        bus: Bus,
        connect: Connect,
        settings: SnapshotSettings,
        instance: str,
        wall_ms: Callable[[], int] = current_unix_ms,
    ) -> None:
        self._bus = bus
        self._settings = settings
        self._book = LogBook()
        self.turns = ClusterTurns[Collector](bus, SERVICE, instance, settings, self)
        self._around = CollectorShared(
            bus,
            connect,
            settings,
            self.turns.claim_turn,
            self._book,
            asyncio.Event(),
            asyncio.Semaphore(settings.lists_at_once),
            wall_ms,
        )
        self._log: structlog.typing.FilteringBoundLogger = self._around.log
        self._clusters = self._make_reader(self._apply_cluster, CLUSTERS)
        self._own = self._make_reader(self._apply_own_record, CAPACITY, PENDING, PODS)
        self._policies = self._make_reader(self._apply_policy, SCALE_POLICIES)
        self._changes = self._make_reader(self._note_change_epoch, CAPACITY_CHANGES, start={})
        self._policies_changed = asyncio.Event()
        self._joined: dict[str, ClusterJoined] = {}
        self._left: set[str] = set()
        self._something_to_bury = asyncio.Event()
        self.turns.changed = self._something_to_bury.set

    def _make_reader(
        self, apply: Callable[[Record], None], *topics: Topic, start: Offsets | None = None
    ) -> TopicReader:
        return TopicReader(self._bus, topics, apply, self._settings.bus_retry_seconds, start)

    @property
    def collectors(self) -> dict[str, Collector]:
        return self.turns.workers

    async def run(self, stopping: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as group:
            readers = (self._clusters, self._own, self._policies, self._changes)
            work = (
                *(reader.run for reader in readers),
                self._pass_on_policies,
                self._delete_left_clusters,
                self.turns.run,
            )
            tasks = [group.create_task(one()) for one in work]
            await stopping.wait()
            await self.turns.finish()
            for task in tasks:
                task.cancel()

    # ── Turns ───────────────────────────────────────────────────────────────────────────────────────────────────

    def clusters_in_log(self) -> Iterable[str]:
        return self._joined

    def way_to_cluster(self, cluster: str) -> tuple[Generation | None] | None:
        """Returns a value that identifies one membership of a cluster; None when it has not joined.

        While the value is the same, the collector is kept, even with a new credential or endpoint. A cluster that left
        and joined again gets a new collector, because readers have forgotten its former records.
        """
        joined = self._joined.get(cluster)
        return None if joined is None else (joined.joined_at,)

    async def wait_until_caught_up(self) -> None:
        """Waits until all clusters and claims in the log have been read.

        If a claim were unread, two instances could write for one cluster.
        """
        await self._clusters.wait_until_caught_up()
        await self._changes.wait_until_caught_up()

    def create_worker(self, turn: ClusterTurn) -> Collector:
        return Collector(turn, self._joined[turn.cluster], self._around)

    # ── Reading ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _apply_cluster(self, record: Record) -> None:
        match record.event:
            case ClusterJoined() as joined:
                self._joined[joined.cluster] = joined
                self._left.discard(joined.cluster)
                self.turns.call_worker(joined.cluster, lambda collector: collector.apply_cluster_joined(joined))
            case ClusterLeft(cluster):
                self._joined.pop(cluster, None)
                self._left.add(cluster)
            case None:
                self._joined.pop(record.key, None)
        self.turns.reconsider_turns()
        self._something_to_bury.set()

    def _apply_own_record(self, record: Record) -> None:
        """Applies a record of capacity, pending or pods, in the order of the log."""
        event = record.event
        assert event is None or isinstance(event, CapacityReported | PodsUnschedulable | PodsScheduled | PodsObserved)
        cluster = self._book.note_record(record.topic, record.key, record.offset, event)
        if event is not None:
            self.turns.note_epoch(cluster, event.epoch)
        if cluster in self._left:
            self._something_to_bury.set()

    def _apply_policy(self, record: Record) -> None:
        namespace, _, name = record.key.partition("/")
        keys = self._around.scaled.keys
        (keys.add if isinstance(record.event, ScalePolicyDeclared) else keys.discard)((namespace, name))
        self._policies_changed.set()

    async def _pass_on_policies(self) -> None:
        """Passes changed scale policies to the collectors. Changes that are read together are passed once."""
        await self._policies.wait_until_caught_up()
        self._around.scaled.known = True
        while True:
            self.turns.call_all_workers(Collector.apply_scale_policies)
            await self._policies_changed.wait()
            self._policies_changed.clear()
            await asyncio.sleep(self._settings.gather_seconds)

    def _note_change_epoch(self, record: Record) -> None:
        match record.event:
            case TurnTaken(_, cluster, instance):
                self.turns.note_epoch(cluster, record.offset, instance)
            case CapacityChanged(cluster=cluster, epoch=epoch):
                self.turns.note_epoch(cluster, epoch)

    # ── What is left of clusters that left ──────────────────────────────────────────────────────────────────────

    async def _delete_left_clusters(self) -> None:
        """Publishes tombstones for the records of clusters that left. It waits until no collector writes for them."""
        await self._own.wait_until_caught_up()
        self._around.book_read.set()
        while True:
            self._something_to_bury.clear()
            for cluster in sorted(self._left):
                if self.turns.is_assigned(cluster) and self.turns.is_free(cluster):
                    await self._delete_cluster_records(cluster)
            await is_set_within(self._something_to_bury, self._settings.bus_retry_seconds)

    async def _delete_cluster_records(self, cluster: str) -> None:
        keys = self._book.keys_left_over(cluster)
        addresses = [address_of_key(cluster, key) for key in keys]
        if not addresses:
            self._book.forget_cluster(cluster)
            return
        try:
            positions = await self._bus.publish(*(Tombstone(address) for address in addresses))
            for (topic, key), position in zip(keys, positions, strict=True):
                self._book.note_record(topic, key, position.offset, None)
            self._log.info("forgotten", cluster=cluster, records=len(addresses))
        except BusUnavailable as error:
            self._log.warning("the log cannot be reached", error=str(error), cluster=cluster)
