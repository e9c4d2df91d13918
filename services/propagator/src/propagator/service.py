"""The shell of the propagator: reads the log whole, takes its turns at clusters, tells their workers what was read."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass

import structlog

from propagator.cluster_worker import ClusterWorker, Headers, Shared
from propagator.core.actions import Rules
from propagator.core.desired import Desired, Target
from propagator.log_proof import LogProof
from propagator.settings import Settings
from spillway import metrics, tracing
from spillway.addresses import (
    ADOPTIONS,
    CLUSTERS,
    DEPENDENCIES,
    PLACEMENTS,
    SHAPES,
    SHAPES_ASKED,
    WORKLOAD_STATUS,
    WORKLOADS,
    Tombstone,
    shape_address,
    status_address,
)
from spillway.bus import Assignment, Batch, Bus, BusUnavailable, Feed, Offsets, Record, reached
from spillway.cluster_api import ClusterApi
from spillway.events import AdoptionAsked, ClusterJoined, ShapeAdmitted, ShapeAsked, TurnTaken, WorkloadObserved

SERVICE = "propagator"
FOLLOWED = (CLUSTERS, WORKLOADS, DEPENDENCIES, PLACEMENTS, WORKLOAD_STATUS, ADOPTIONS, SHAPES, SHAPES_ASKED)
NO_CLUSTERS = Assignment(frozenset(), 1)

log = structlog.get_logger()

Connect = Callable[[ClusterJoined], ClusterApi]


@dataclass(frozen=True, slots=True)
class Held:
    """A cluster that is worked on: as it was joined when that began."""

    worker: ClusterWorker
    joined: ClusterJoined
    task: asyncio.Task[None]


class Propagator:
    """One instance. Several share the clusters; each cluster is one instance's turn at a time."""

    def __init__(
        self,
        bus: Bus,
        connect: Connect,
        settings: Settings,
        instance: str,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._bus = bus
        self._connect = connect
        self._settings = settings
        self._instance = instance
        self._clock = clock
        self.ready: Callable[[bool, str], None] = lambda ready, reason: None
        """Told when the log has been read to the ends that it had at the start."""
        self._slots = asyncio.Semaphore(settings.objects_at_once_overall)
        self._desired = Desired()
        self._traces: dict[tuple[str, str], Headers] = {}
        self._positions: Offsets = {}
        self._read = asyncio.Event()
        self._proof = LogProof(settings.log_proven_seconds)
        self._assignment = NO_CLUSTERS
        self._unsettled = asyncio.Event()
        self._lost: set[str] = set()
        self._workers: dict[str, Held] = {}

    async def run(self, stopping: asyncio.Event) -> None:
        """Until stopping is set. A bug of ours, another fleet's log or too many dead letters end it by raising."""
        async with (
            self._bus.follow(FOLLOWED) as feed,
            self._bus.cluster_turns(SERVICE, self._instance) as turns,
            asyncio.TaskGroup() as group,
        ):
            tasks = [
                group.create_task(self._follow(feed)),
                group.create_task(self._take_turns(turns)),
                group.create_task(self._settle(feed, group)),
                group.create_task(self._prove(feed)),
            ]
            await stopping.wait()
            for task in (*tasks, *(held.task for held in self._workers.values())):
                task.cancel()

    @property
    def held(self) -> frozenset[str]:
        """The clusters that are worked on now."""
        return frozenset(self._workers)

    # ── The log ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _follow(self, feed: Feed) -> None:
        async for batch in feed:
            self._take_in(batch)

    def _take_in(self, batch: Batch) -> None:
        for record in batch.records:
            self._apply(record)
        self._positions = batch.positions
        self._read.set()

    def _apply(self, record: Record) -> None:
        event = record.event
        if isinstance(event, TurnTaken):
            self._note_turn(event.cluster, record.offset)
            return
        if isinstance(event, AdoptionAsked):
            self._ask(event)
            return
        if isinstance(event, ShapeAsked):
            for held in self._held_of(event.clusters):
                held.worker.ask_shape(event)
            return
        self._note_trace(record)
        touched = self._desired.apply(record.topic, record.key, event)
        for target in touched.targets:
            if target.cluster in self._workers:
                self._workers[target.cluster].worker.touch(target)
        if isinstance(event, WorkloadObserved):
            self._note_status(event, overruled=touched.overruled is not None)
        if isinstance(event, ShapeAdmitted):
            self._note_shape(event)
        forgotten = event is None and record.topic == PLACEMENTS.name
        if touched.clusters or forgotten:
            self._unsettled.set()

    def _ask(self, asked: AdoptionAsked) -> None:
        """Of the clusters that are worked on now; a question from before that is old, and is asked again if need be."""
        for held in self._held_of(asked.clusters):
            held.worker.ask(asked)

    def _held_of(self, clusters: Iterable[str]) -> list[Held]:
        return [self._workers[cluster] for cluster in clusters if cluster in self._workers]

    def _note_trace(self, record: Record) -> None:
        """Under which trace the work on this workload belongs from now on; nothing is kept while tracing is off."""
        if record.topic == PLACEMENTS.name and tracing.is_on():
            namespace, _, name = record.key.partition("/")
            self._traces.pop((namespace, name), None)
            if record.event is not None:
                self._traces[namespace, name] = record.headers

    def _note_turn(self, cluster: str, epoch: int) -> None:
        """A claim or a status of a higher epoch ends our work there.

        When the group still says later on that the cluster is ours, it was the other one that was late.
        """
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

    def _note_status(self, event: WorkloadObserved, *, overruled: bool) -> None:
        held = self._workers.get(event.cluster)
        if held is None:
            return
        if event.epoch > held.worker.epoch:
            self._note_turn(event.cluster, event.epoch)
        elif event.epoch < held.worker.epoch:
            held.worker.contradict(Target(event.cluster, event.namespace, event.name), overruled=overruled)

    def _note_shape(self, event: ShapeAdmitted) -> None:
        held = self._workers.get(event.cluster)
        if held is not None and event.epoch > held.worker.epoch:
            self._note_turn(event.cluster, event.epoch)
        elif held is not None and event.epoch < held.worker.epoch:
            held.worker.contradict_shape(event.template)

    # ── Turns ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _take_turns(self, turns: AsyncIterator[Assignment]) -> None:
        async for assignment in turns:
            self._assignment = assignment
            self._lost.clear()
            self._unsettled.set()

    async def _settle(self, feed: Feed, group: asyncio.TaskGroup) -> None:
        """Keeps what is worked on equal to what is ours to work on."""
        self.ready(False, "reading the log")
        await self._read_to_ends(feed)
        self.ready(True, "")
        log.info("caught up", clusters=len(self._desired.clusters), empty=self._desired.empty)
        while True:
            self._unsettled.clear()
            await self._let_go()
            await self._take(feed, group)
            await self._forget_statuses()
            metrics.TURNS_HELD.labels(SERVICE).set(len(self._workers))
            await self._unsettled.wait()

    def _ours(self) -> dict[str, ClusterJoined]:
        return {
            cluster: joined
            for cluster, joined in self._desired.clusters.items()
            if self._assignment.holds(cluster) and cluster not in self._lost
        }

    async def _let_go(self) -> None:
        """Ends what is not ours any more, and what is reached in another way now."""
        ours = self._ours()
        ended = [
            cluster
            for cluster, held in self._workers.items()
            if cluster not in ours or _way(ours[cluster]) != _way(held.joined) or held.task.cancelling()
        ]
        tasks = [self._workers[cluster].task for cluster in ended]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for cluster in ended:
            del self._workers[cluster]
            metrics.TURNS_LOST.labels(SERVICE).inc()

    async def _take(self, feed: Feed, group: asyncio.TaskGroup) -> None:
        """Claims what is ours and not worked on yet; work begins when all before the claim has been read."""
        new = sorted(self._ours().keys() - self._workers.keys())
        if not new:
            return
        claims = [TurnTaken(SERVICE, cluster, self._instance) for cluster in new]
        try:
            positions = await self._bus.publish(*claims)
        except BusUnavailable as error:
            log.warning("clusters not claimed yet", clusters=new, error=str(error))
            self._unsettled.set()
            await asyncio.sleep(self._settings.bus_retry_seconds)
            return
        await self._read_to_ends(feed)
        for cluster, position in zip(new, positions, strict=True):
            joined = self._ours().get(cluster)
            if joined is not None:
                worker = ClusterWorker(cluster, position.offset, self._connect(joined), self._shared())
                self._workers[cluster] = Held(worker, joined, group.create_task(worker.run()))
                metrics.TURNS_TAKEN.labels(SERVICE).inc()

    def _shared(self) -> Shared:
        return Shared(
            bus=self._bus,
            desired=self._desired,
            rules=self._rules(),
            settings=self._settings,
            clock=self._clock or asyncio.get_running_loop().time,
            slots=self._slots,
            traces=self._traces,
            proof=self._proof,
        )

    def _rules(self) -> Rules:
        settings = self._settings
        return Rules(
            fleet=self._bus.fleet,
            create_namespaces=settings.create_namespaces,
            corrections_max=settings.corrections_max,
            creations_max=settings.creations_max,
            window_seconds=settings.window_seconds,
        )

    async def _forget_statuses(self) -> None:
        """Takes back what was said of workloads that the log does not place any more, and of clusters that left."""
        gone = [
            status_address(target.namespace, target.name, target.cluster)
            for target in sorted(self._desired.superseded())
            if self._assignment.holds(target.cluster)
        ]
        gone += [
            shape_address(digest, cluster)
            for cluster, digests in sorted(self._desired.shapes.items())
            if cluster not in self._desired.clusters and self._assignment.holds(cluster)
            for digest in digests
        ]
        for first in range(0, len(gone), self._settings.status_batch):
            addresses = gone[first : first + self._settings.status_batch]
            try:
                await self._bus.publish(*(Tombstone(address) for address in addresses))
            except BusUnavailable as error:
                log.warning("statuses not taken back yet", error=str(error))
                self._unsettled.set()
                await asyncio.sleep(self._settings.bus_retry_seconds)
                return

    async def _prove(self, feed: Feed) -> None:
        """Notes again and again that all of the log was read: who cannot, may know neither turns nor placements."""
        clock = asyncio.get_running_loop().time
        while True:
            asked_at = clock()
            await self._read_to_ends(feed)
            self._proof.proven(asked_at)
            await asyncio.sleep(self._settings.log_asked_seconds)

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


def _way(joined: ClusterJoined) -> tuple[str, str]:
    return joined.endpoint, joined.credential
