"""The shell of the bridge: reads the log whole, takes its turns at owners, tells their workers what was read."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import structlog

from spillway import metrics
from spillway.addresses import (
    BRAKES,
    CAPACITY_NEEDED,
    CLUSTERS,
    LENDING,
    LENDING_RULES,
    PENDING,
    RECALLS,
    WORKLOADS,
)
from spillway.bus import Assignment, Batch, Bus, BusUnavailable, Feed, Offsets, Record, reached
from spillway.cluster_api import Change
from spillway.events import ClusterJoined, TurnTaken
from spillway.events_lending import NodeLent, NodeReturned
from vk_bridge.core.log_state import LogState
from vk_bridge.owner_worker import OwnerWorker, Shared
from vk_bridge.pools import Connect, Pools, way
from vk_bridge.settings import Settings

SERVICE = "vk-bridge"
FOLLOWED = (CLUSTERS, LENDING_RULES, LENDING, RECALLS, BRAKES, CAPACITY_NEEDED, PENDING, WORKLOADS)
ABOUT_ALL_NODES = frozenset({LENDING_RULES.name, BRAKES.name})
NO_CLUSTERS = Assignment(frozenset(), 1)

log = structlog.get_logger()


def unix_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class Held:
    """A cluster that is worked on: as it was joined when that began."""

    worker: OwnerWorker
    joined: ClusterJoined
    task: asyncio.Task[None]


class Bridge:
    """One instance. Several share the clusters; each cluster is one instance's turn at a time.

    wall_ms: Unix time, which is told and orders nothing.
    """

    def __init__(
        self, bus: Bus, connect: Connect, settings: Settings, instance: str, wall_ms: Callable[[], int] = unix_ms
    ) -> None:
        self._bus = bus
        self._connect = connect
        self._settings = settings
        self._instance = instance
        self._wall_ms = wall_ms
        self.ready: Callable[[bool, str], None] = lambda ready, reason: None
        """Told when the log has been read to the ends that it had at the start."""
        self._state = LogState()
        self._slots = asyncio.Semaphore(settings.nodes_at_once_overall)
        self._positions: Offsets = {}
        self._read = asyncio.Event()
        self._assignment = NO_CLUSTERS
        self._unsettled = asyncio.Event()
        self._lost: set[str] = set()
        self._workers: dict[str, Held] = {}

    async def run(self, stopping: asyncio.Event) -> None:
        """Until stopping is set; then what is under way is finished. A bug of ours or another fleet's log raises."""
        async with (
            self._bus.follow(FOLLOWED) as feed,
            self._bus.cluster_turns(SERVICE, self._instance) as turns,
            asyncio.TaskGroup() as group,
        ):
            pools = Pools(self._connect, self._settings, group, self._touch_virtual)
            tasks = [
                group.create_task(self._settle(feed, pools, group)),
                group.create_task(self._follow(feed, pools)),
                group.create_task(self._take_turns(turns)),
            ]
            await stopping.wait()
            tasks.pop(0).cancel()  # No cluster is taken any more.
            await self._finish()
            for task in (*tasks, *(held.task for held in self._workers.values())):
                task.cancel()
            pools.close()

    @property
    def held(self) -> frozenset[str]:
        """The clusters that are worked on now."""
        return frozenset(self._workers)

    async def _finish(self) -> None:
        finishing = [asyncio.create_task(held.worker.finish()) for held in self._workers.values()]
        if finishing:
            _, late = await asyncio.wait(finishing, timeout=self._settings.finish_seconds)
            for task in late:
                task.cancel()

    # ── The log ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _follow(self, feed: Feed, pools: Pools) -> None:
        async for batch in feed:
            self._take_in(batch, pools)

    def _take_in(self, batch: Batch, pools: Pools) -> None:
        for record in batch.records:
            self._apply(record)
            if record.topic == CLUSTERS.name and record.key not in self._state.clusters:
                pools.drop(record.key)
        self._positions = batch.positions
        self._read.set()

    def _apply(self, record: Record) -> None:
        event = record.event
        if isinstance(event, TurnTaken):
            self._note_turn(event.cluster, record.offset)
            return
        named, _, node = record.key.partition("/")
        loan = self._state.loan(named, node)
        cluster = self._state.apply(event) if event is not None else self._state.forget(record.topic, record.key)
        if record.topic in ABOUT_ALL_NODES:
            for name, held in self._workers.items():
                if name == cluster or record.topic == BRAKES.name:
                    held.worker.touch_all()
        tells = record.topic == RECALLS.name or (record.topic == LENDING.name and loan != self._state.loan(named, node))
        if cluster in self._workers and tells:
            self._workers[cluster].worker.touch(node)
        if isinstance(event, NodeLent | NodeReturned):
            self._note_loan(event)
        if record.topic in (CLUSTERS.name, LENDING_RULES.name, LENDING.name):
            self._unsettled.set()

    def _note_loan(self, event: NodeLent | NodeReturned) -> None:
        """A record of a higher epoch ends our work there; one of a lower epoch is said again as it is."""
        held = self._workers.get(event.cluster)
        if held is not None and event.epoch > held.worker.epoch:
            self._note_turn(event.cluster, event.epoch)
        elif held is not None and event.epoch < held.worker.epoch:
            held.worker.contradict(event.node)

    def _note_turn(self, cluster: str, epoch: int) -> None:
        """When the group still says later on that the cluster is ours, it was the other one that was late."""
        held = self._workers.get(cluster)
        if held is not None and epoch > held.worker.epoch and cluster not in self._lost:
            log.warning("turn lost to a higher epoch", cluster=cluster, ours=held.worker.epoch, theirs=epoch)
            held.task.cancel()
            self._lost.add(cluster)
            self._unsettled.set()
            asyncio.get_running_loop().call_later(self._settings.reclaim_seconds, self._reclaim, cluster)

    def _reclaim(self, cluster: str) -> None:
        self._lost.discard(cluster)
        self._unsettled.set()

    def _touch_virtual(self, pool: str, virtual_node: str, change: Change) -> None:
        for held in self._workers.values():
            held.worker.touch_virtual(pool, virtual_node, change)

    # ── Turns ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def _take_turns(self, turns: AsyncIterator[Assignment]) -> None:
        async for assignment in turns:
            self._assignment = assignment
            self._lost.clear()
            self._unsettled.set()

    async def _settle(self, feed: Feed, pools: Pools, group: asyncio.TaskGroup) -> None:
        """Keeps what is worked on equal to what is ours to work on."""
        self.ready(False, "reading the log")
        await self._read_to_ends(feed)
        self.ready(True, "")
        log.info("caught up", clusters=len(self._state.clusters), lending=len(self._state.declared))
        while True:
            self._unsettled.clear()
            await self._let_go()
            await self._take(feed, pools, group)
            metrics.TURNS_HELD.labels(SERVICE).set(len(self._workers))
            await self._unsettled.wait()

    def _ours(self) -> dict[str, ClusterJoined]:
        """Clusters that lend, or still have lent nodes: of all others nothing is to be decided."""
        return {
            cluster: joined
            for cluster, joined in self._state.clusters.items()
            if self._assignment.holds(cluster) and cluster not in self._lost and self._state.is_concerned(cluster)
        }

    async def _let_go(self) -> None:
        """Ends what is not ours any more, and what is reached in another way now."""
        ours = self._ours()
        ended = [
            cluster
            for cluster, held in self._workers.items()
            if cluster not in ours or way(ours[cluster]) != way(held.joined) or held.task.cancelling()
        ]
        tasks = [self._workers[cluster].task for cluster in ended]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for cluster in ended:
            del self._workers[cluster]
            metrics.TURNS_LOST.labels(SERVICE).inc()

    async def _take(self, feed: Feed, pools: Pools, group: asyncio.TaskGroup) -> None:
        """Claims what is ours and not worked on yet; work begins when all before the claim has been read."""
        new = sorted(self._ours().keys() - self._workers.keys())
        if not new:
            return
        try:
            positions = await self._bus.publish(*(TurnTaken(SERVICE, cluster, self._instance) for cluster in new))
        except BusUnavailable as error:
            log.warning("clusters not claimed yet", clusters=new, error=str(error))
            self._unsettled.set()
            await asyncio.sleep(self._settings.bus_retry_seconds)
            return
        await self._read_to_ends(feed)
        shared = Shared(self._bus, self._state, self._settings, pools, self._slots, self._wall_ms)
        for cluster, position in zip(new, positions, strict=True):
            joined = self._ours().get(cluster)
            if joined is not None:
                worker = OwnerWorker(cluster, position.offset, self._connect(joined), shared)
                self._workers[cluster] = Held(worker, joined, group.create_task(worker.run()))
                metrics.TURNS_TAKEN.labels(SERVICE).inc()

    async def _read_to_ends(self, feed: Feed) -> None:
        """Until everything has been read that is in the log now."""
        while True:
            try:
                ends = await feed.ends()
                break
            except BusUnavailable as error:
                log.warning("the log's ends are not known yet", error=str(error))
                await asyncio.sleep(self._settings.bus_retry_seconds)
        while not reached(self._positions, ends):
            self._read.clear()
            await self._read.wait()
