"""Runs a propagator: reads the whole log, takes turns at clusters, and passes the records to the clusters' workers."""

import asyncio
from collections.abc import Callable, Hashable, Iterable
from json import loads

import structlog

from propagator.cluster_worker import ClusterWorker, SharedResources
from propagator.core.actions import PropagationRules
from propagator.core.desired import (
    DesiredState,
    PartTarget,
    TouchedTargets,
    is_from_former_turn,
    target_of_status_key,
)
from propagator.core.manifests import NamedTemplate
from propagator.log.log_proof import LogProof
from propagator.settings import PropagatorSettings
from spillway import tracing
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
from spillway.bus import Bus, BusUnavailable, Headers, Record
from spillway.clusters.api import ClusterApi
from spillway.events import AdoptionAsked, ClusterJoined, ShapeAdmitted, ShapeAsked, TurnTaken, WorkloadObserved
from spillway.running.cluster_turns import ClusterTurn, ClusterTurns, way_to_joined_cluster
from spillway.running.following import TopicReader

SERVICE = "propagator"
FOLLOWED = (CLUSTERS, WORKLOADS, DEPENDENCIES, PLACEMENTS, WORKLOAD_STATUS, ADOPTIONS, SHAPES, SHAPES_ASKED)

log = structlog.get_logger()

Connect = Callable[[ClusterJoined], ClusterApi]


class Propagator:
    """One instance of the propagator. Several instances share the clusters; each cluster has one instance at a time."""

    def __init__(
        self,
        bus: Bus,
        connect: Connect,
        settings: PropagatorSettings,
        instance: str,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._bus = bus
        self._connect = connect
        self._settings = settings
        self._clock = clock
        self._slots = asyncio.Semaphore(settings.objects_at_once_overall)
        self._desired = DesiredState()
        self._placed_by = tracing.Origins[PartTarget]()
        self._reader = TopicReader(bus, FOLLOWED, self._apply_record, settings.bus_retry_seconds)
        self._proof = LogProof(settings.log_proven_seconds)
        self._superseded = asyncio.Event()
        self.turns = ClusterTurns[ClusterWorker](bus, SERVICE, instance, settings, self)
        self.turns.changed = self._superseded.set

    async def run(self, stopping: asyncio.Event) -> None:
        """Runs until stopping is set.

        Raises an error for a bug, for another fleet's log, and for too many dead letters.
        """
        async with asyncio.TaskGroup() as group:
            work = (self._reader.run, self.turns.run, self._prove_log_read, self._publish_due_tombstones)
            tasks = [group.create_task(one()) for one in work]
            await stopping.wait()
            await self.turns.finish()
            for task in tasks:
                task.cancel()

    @property
    def clusters_worked_on(self) -> frozenset[str]:
        """Returns the clusters that this instance works on now."""
        return frozenset(self.turns.workers)

    # ── Turns ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def clusters_in_log(self) -> Iterable[str]:
        return self._desired.clusters

    def way_to_cluster(self, cluster: str) -> Hashable | None:
        joined = self._desired.clusters.get(cluster)
        return None if joined is None else way_to_joined_cluster(joined)

    async def wait_until_caught_up(self) -> None:
        await self._reader.wait_until_caught_up()

    def create_worker(self, turn: ClusterTurn) -> ClusterWorker:
        api = self._connect(self._desired.clusters[turn.cluster])
        api.write_only_while(self._proof.is_valid)
        return ClusterWorker(turn.cluster, turn.epoch, api, self._shared_resources())

    # ── The log ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _apply_record(self, record: Record) -> None:
        event = record.event
        if isinstance(event, TurnTaken):
            self.turns.note_epoch(event.cluster, record.offset, event.instance)
            return
        if isinstance(event, AdoptionAsked):
            self._pass_on_adoption_question(event, tracing.select_trace_headers(record.headers))
            return
        if isinstance(event, ShapeAsked):
            self._pass_on_shape_question(event, tracing.select_trace_headers(record.headers))
            return
        touched = self._desired.apply_record(record.topic, record.key, event)
        self._note_trace(record, touched)
        for target in touched.targets:
            self.turns.call_worker(target.cluster, lambda worker, target=target: worker.refresh_target(target))  # type: ignore[misc]
        if isinstance(event, WorkloadObserved):
            self._check_status_writer(event, record.offset)
        if isinstance(event, ShapeAdmitted):
            self._check_shape_writer(event)
        if event is None:
            self._republish_deleted_record(record)
        forgotten = event is None and record.topic == PLACEMENTS.name
        if touched.clusters or forgotten:
            self.turns.reconsider_turns()
            self._superseded.set()

    def _pass_on_adoption_question(self, asked: AdoptionAsked, trace: Headers) -> None:
        """Passes the question to its clusters' workers. Clusters without one are skipped: the planner asks again."""
        for cluster in asked.clusters:
            self.turns.call_worker(cluster, lambda worker: worker.queue_adoption_question(asked, trace))

    def _pass_on_shape_question(self, asked: ShapeAsked, trace: Headers) -> None:
        workers = self.turns.workers
        clusters = [
            one for one in asked.clusters if one in workers and not workers[one].has_admitted_shape(asked.template)
        ]
        if clusters:
            template = NamedTemplate(asked.template, asked.namespace, asked.name, loads(asked.pod))
            for cluster in clusters:
                self.turns.call_worker(cluster, lambda worker: worker.queue_shape_question(template, trace))

    def _note_trace(self, record: Record, touched: TouchedTargets) -> None:
        """Keeps the trace of a placement until the work for it is done, so that the work joins that trace."""
        if record.topic == PLACEMENTS.name and tracing.is_on():
            for target in touched.targets:
                self._placed_by.take_origin(target)
                self._placed_by.note_origin(target, tracing.select_trace_headers(record.headers))

    def _check_status_writer(self, event: WorkloadObserved, offset: int) -> None:
        self.turns.note_epoch(event.cluster, event.epoch)
        target = PartTarget(event.cluster, event.namespace, event.name)
        worker = self.turns.workers.get(event.cluster)
        if worker is not None and is_from_former_turn(event, worker.epoch):
            self.turns.call_worker(event.cluster, lambda worker: worker.republish_status(target, offset))

    def _check_shape_writer(self, event: ShapeAdmitted) -> None:
        self.turns.note_epoch(event.cluster, event.epoch)
        worker = self.turns.workers.get(event.cluster)
        if worker is not None and is_from_former_turn(event, worker.epoch):
            self.turns.call_worker(event.cluster, lambda worker: worker.republish_shape(event.template))

    def _republish_deleted_record(self, record: Record) -> None:
        """Asks the cluster's worker to publish a status or shape again when its record was deleted from the log.

        A tombstone has no epoch, so it does not show whether its writer still had the turn.
        """
        if record.topic == WORKLOAD_STATUS.name and (target := target_of_status_key(record.key)) is not None:
            self.turns.call_worker(target.cluster, lambda worker: worker.republish_status(target, record.offset))
        elif record.topic == SHAPES.name:
            digest, _, cluster = record.key.partition("/")
            self.turns.call_worker(cluster, lambda worker: worker.ask_shape_again(digest))

    def _shared_resources(self) -> SharedResources:
        return SharedResources(
            bus=self._bus,
            desired=self._desired,
            rules=self._propagation_rules(),
            settings=self._settings,
            clock=self._clock or asyncio.get_running_loop().time,
            slots=self._slots,
            placed_by=self._placed_by,
            proof=self._proof,
        )

    def _propagation_rules(self) -> PropagationRules:
        settings = self._settings
        return PropagationRules(
            fleet=self._bus.fleet_id,
            create_namespaces=settings.create_namespaces,
            corrections_max=settings.corrections_max,
            creations_max=settings.creations_max,
            window_seconds=settings.window_seconds,
        )

    async def _publish_due_tombstones(self) -> None:
        """Publishes tombstones for statuses and shapes that nobody writes any more.

        These are the statuses of workloads without a placement, and the statuses and shapes of clusters that left.
        """
        await self.wait_until_caught_up()
        while True:
            self._superseded.clear()
            gone = self._due_tombstones()
            for first in range(0, len(gone), self._settings.status_batch):
                try:
                    await self._bus.publish(*gone[first : first + self._settings.status_batch])
                except BusUnavailable as error:
                    log.warning("statuses of a former turn are not taken back yet", error=str(error))
                    await asyncio.sleep(self._settings.bus_retry_seconds)
                    self._superseded.set()
                    break
            await self._superseded.wait()

    def _due_tombstones(self) -> list[Tombstone]:
        gone = [
            status_address(target.namespace, target.name, target.cluster)
            for target in sorted(self._desired.targets_of_obsolete_statuses())
            if self.turns.is_assigned(target.cluster)
        ]
        gone += [
            shape_address(digest, cluster)
            for cluster, digest in self._desired.obsolete_shapes()
            if self.turns.is_assigned(cluster)
        ]
        return [Tombstone(address) for address in gone]

    async def _prove_log_read(self) -> None:
        """Reads the log to its end at intervals, as a LogProof. Otherwise this instance might not know a newer claim
        or placement, and write to a cluster where another instance has the turn."""
        clock = asyncio.get_running_loop().time
        while True:
            asked_at, held = clock(), self._proof.is_valid()
            await self.wait_until_caught_up()
            self._proof.note_log_read_up_to(asked_at)
            self.turns.call_all_workers(lambda worker: worker.note_log_read(renewed=not held))  # noqa: B023 - called at once
            await asyncio.sleep(self._settings.log_asked_seconds)
