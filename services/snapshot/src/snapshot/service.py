"""Takes clusters by its turn, and keeps one collector at each: reads, starts, stops. What is decided is in core/."""

import asyncio
import time
from collections.abc import Callable, Sequence

import structlog

from snapshot import counters
from snapshot.collector import SERVICE, Collector, Connect, Surroundings
from snapshot.core.log_book import LogBook, address_of_key
from snapshot.settings import Settings
from spillway.addresses import (
    CAPACITY,
    CAPACITY_CHANGES,
    CLUSTERS,
    PENDING,
    PODS,
    SCALE_POLICIES,
    Tombstone,
    Topic,
)
from spillway.bus import Assignment, Bus, BusUnavailable, Offsets, Record, reached
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

NO_TURN = Assignment(frozenset(), 1)

SetReady = Callable[[str, bool, str], None]


def unix_ms() -> int:
    return time.time_ns() // 1_000_000


class Snapshot:
    """connect opens the door to a cluster and may raise. set_ready(part, ready, reason) hears when turns are known.

    wall_ms: Unix time, which is told and orders nothing.
    """

    def __init__(
        self,
        bus: Bus,
        connect: Connect,
        settings: Settings,
        instance: str,
        set_ready: SetReady | None = None,
        wall_ms: Callable[[], int] = unix_ms,
    ) -> None:
        self._bus = bus
        self._settings = settings
        self._instance = instance
        self._set_ready = set_ready or (lambda part, ready, reason: None)
        self._book = LogBook()
        self._around = Surroundings(
            bus,
            connect,
            settings,
            instance,
            self._book,
            asyncio.Event(),
            asyncio.Semaphore(settings.lists_at_once),
            wall_ms,
        )
        self._log: structlog.typing.FilteringBoundLogger = self._around.log
        self._clusters_read = asyncio.Event()
        self._changes_open = asyncio.Event()
        self._policies_read = asyncio.Event()
        self._policies_changed = asyncio.Event()
        self._something_to_tend = asyncio.Event()
        self._assignment = NO_TURN
        self._joined: dict[str, ClusterJoined] = {}
        self._left: set[str] = set()
        self._running: dict[str, tuple[Collector, asyncio.Task[None]]] = {}
        self._claim_again_at: dict[str, float] = {}

    @property
    def collectors(self) -> dict[str, Collector]:
        return {cluster: collector for cluster, (collector, _) in self._running.items()}

    async def run(self, stopping: asyncio.Event) -> None:
        self._set_ready("clusters", False, "reading clusters")
        async with asyncio.TaskGroup() as tasks:
            work = [
                tasks.create_task(self._read((CLUSTERS,), None, self._apply_cluster, self._clusters_read)),
                tasks.create_task(self._read((CAPACITY, PENDING, PODS), None, self._apply_own, self._around.book_read)),
                tasks.create_task(self._read((SCALE_POLICIES,), None, self._apply_policy, self._policies_read)),
                tasks.create_task(self._tell_policies()),
                tasks.create_task(self._read((CAPACITY_CHANGES,), {}, self._apply_change, self._changes_open)),
                tasks.create_task(self._take_turns()),
                tasks.create_task(self._tend(tasks)),
            ]
            await stopping.wait()
            work.pop().cancel()  # No collector is started any more.
            await self._finish()
            for task in work:
                task.cancel()

    async def _finish(self) -> None:
        running = [task for _, task in self._running.values()]
        for collector, _ in self._running.values():
            collector.finish()
        if running:
            await asyncio.wait(running, timeout=self._settings.finish_seconds)
        for task in running:
            task.cancel()

    # ── Reading ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _read(
        self, topics: Sequence[Topic], start: Offsets | None, apply: Callable[[Record], None], read: asyncio.Event
    ) -> None:
        """read is set when everything is applied that the log had at first."""
        positions, ends = start, None
        while True:
            try:
                async with self._bus.follow(topics, positions) as feed:
                    async for batch in feed:
                        for record in batch.records:
                            apply(record)
                        positions = batch.positions
                        if not read.is_set():
                            ends = ends or await feed.ends()
                            if reached(positions, ends):
                                read.set()
                                self._something_to_tend.set()
            except BusUnavailable as error:
                self._log.warning("the log cannot be read", error=str(error), topics=[topic.name for topic in topics])
                await asyncio.sleep(self._settings.bus_retry_seconds)

    def _apply_cluster(self, record: Record) -> None:
        match record.event:
            case ClusterJoined() as joined:
                self._joined[joined.cluster] = joined
                self._left.discard(joined.cluster)
                if joined.cluster in self._running:
                    self._running[joined.cluster][0].rejoin(joined)
            case ClusterLeft(cluster):
                self._joined.pop(cluster, None)
                self._left.add(cluster)
                self._stop(cluster)
            case None:
                self._joined.pop(record.key, None)
                self._stop(record.key)
        self._something_to_tend.set()

    def _apply_own(self, record: Record) -> None:
        """capacity, pending and pods, as they are in the log."""
        event = record.event
        assert event is None or isinstance(event, CapacityReported | PodsUnschedulable | PodsScheduled | PodsObserved)
        cluster = self._book.note(record.topic, record.key, record.offset, event)
        if event is not None and cluster in self._running:
            self._running[cluster][0].see_epoch(event.epoch)
        if cluster in self._left:
            self._something_to_tend.set()

    def _apply_policy(self, record: Record) -> None:
        namespace, _, name = record.key.partition("/")
        keys = self._around.scaled.keys
        (keys.add if isinstance(record.event, ScalePolicyDeclared) else keys.discard)((namespace, name))
        self._policies_changed.set()

    async def _tell_policies(self) -> None:
        """Once for all that were read together."""
        await self._policies_read.wait()
        self._around.scaled.known = True
        while True:
            for collector, _ in self._running.values():
                collector.see_policies()
            await self._policies_changed.wait()
            self._policies_changed.clear()
            await asyncio.sleep(self._settings.gather_seconds)

    def _apply_change(self, record: Record) -> None:
        match record.event:
            case TurnTaken(_, cluster, instance) if cluster in self._running:
                self._running[cluster][0].see_claim(record.offset, instance)
            case CapacityChanged(cluster=cluster, epoch=epoch) if cluster in self._running:
                self._running[cluster][0].see_epoch(epoch)

    async def _take_turns(self) -> None:
        """Not before our own output is watched: a claim that nobody sees would let two owners go on."""
        for known in (self._clusters_read, self._changes_open):
            await known.wait()
        while True:
            try:
                async with self._bus.cluster_turns(SERVICE, self._instance) as turns:
                    async for assignment in turns:
                        self._assign(assignment)
            except BusUnavailable as error:
                self._log.warning("the group cannot be reached", error=str(error))
                await asyncio.sleep(self._settings.bus_retry_seconds)

    def _assign(self, assignment: Assignment) -> None:
        self._log.info("turns", partitions=len(assignment.partitions), of=assignment.partition_count)
        self._assignment = assignment
        for cluster in list(self._running):
            if not assignment.holds(cluster):
                self._stop(cluster)
        self._claim_again_at = {name: at for name, at in self._claim_again_at.items() if assignment.holds(name)}
        self._set_ready("clusters", True, "")
        self._something_to_tend.set()

    # ── Collectors ──────────────────────────────────────────────────────────────────────────────────────────────

    async def _tend(self, tasks: asyncio.TaskGroup) -> None:
        """Starts what is ours and is not running; buries what is left of clusters that left."""
        while True:
            for cluster, joined in self._joined.items():
                if self._is_due(cluster):
                    self._start(tasks, joined)
            for cluster in [cluster for cluster in self._left if self._assignment.holds(cluster)]:
                await self._bury(cluster)
            try:
                async with asyncio.timeout(self._settings.bus_retry_seconds):
                    await self._something_to_tend.wait()
                self._something_to_tend.clear()
            except TimeoutError:
                continue

    def _is_due(self, cluster: str) -> bool:
        now = asyncio.get_running_loop().time()
        again_at = self._claim_again_at.get(cluster, now)
        return self._assignment.holds(cluster) and cluster not in self._running and now >= again_at

    def _start(self, tasks: asyncio.TaskGroup, joined: ClusterJoined) -> None:
        collector = Collector(joined, self._around)
        task = tasks.create_task(self._collect(collector), name=f"collect {joined.cluster}")
        self._running[joined.cluster] = collector, task
        counters.taken(len(self._running))

    def _stop(self, cluster: str) -> None:
        """At once: nothing more is written for it. It leaves _running when its task has ended."""
        if cluster in self._running:
            self._running[cluster][1].cancel()

    async def _collect(self, collector: Collector) -> None:
        cluster = collector.cluster
        try:
            if await collector.run():
                # The group says that the turn is ours, somebody else's claim says that it is not: theirs stands, unless
                # the group still says so later, for then it was the last word of one that froze.
                self._log.warning("the turn was taken by another instance", cluster=cluster, epoch=collector.core.epoch)
                seconds = self._settings.reclaim_seconds
                self._claim_again_at[cluster] = asyncio.get_running_loop().time() + seconds
        finally:
            del self._running[cluster]
            counters.let_go(cluster, len(self._running))
            self._something_to_tend.set()

    async def _bury(self, cluster: str) -> None:
        """Tombstones for all that the log still says of a cluster that left, once nobody here writes for it."""
        if cluster in self._running or not self._around.book_read.is_set():
            return
        keys = self._book.left_over(cluster)
        addresses = [address_of_key(cluster, key) for key in keys]
        if not addresses:
            self._book.forget(cluster)
            return
        try:
            positions = await self._bus.publish(*(Tombstone(address) for address in addresses))
            for (topic, key), position in zip(keys, positions, strict=True):
                self._book.note(topic, key, position.offset, None)
            self._log.info("forgotten", cluster=cluster, records=len(addresses))
        except BusUnavailable as error:
            self._log.warning("the log cannot be reached", error=str(error), cluster=cluster)
