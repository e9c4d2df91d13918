"""Follows one cluster with streams and a probe, and writes the records that its core returns.

Only one task of a collector writes.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import structlog

from snapshot import metrics
from snapshot.core.cluster_state import KINDS, WORKLOAD_KINDS
from snapshot.core.collection import TROUBLE_CHARACTERS_MAX, Collection, Record, UnwrittenRecord
from snapshot.core.log_book import LogBook
from snapshot.core.workloads import FLEET_LABEL, WorkloadKey
from snapshot.settings import SnapshotSettings
from spillway import tracing
from spillway.bus import Bus, BusUnavailable, Headers
from spillway.clusters.api import (
    Change,
    ClusterApi,
    ClusterUnreachable,
    FollowingFailed,
    ListedObjects,
    ListedPage,
    ObjectRemoved,
    ObjectUpserted,
    PagesEnded,
    StreamAlive,
)
from spillway.clusters.credentials import BadCredentials
from spillway.dead_letters import EventTooLarge, UnwritableEvent
from spillway.events import ClusterJoined, PodsUnschedulable
from spillway.events_scaling import PodsObserved
from spillway.fitting import UnwritableKeys, write_errors_by_index
from spillway.kubernetes.objects import NODES, Kind
from spillway.pauses import doubled_pause_seconds
from spillway.running.cluster_turns import ClusterTurn
from spillway.troubles import Trouble, TroubleCode, code_of_reason
from spillway.waiting import is_set_within
from spillway.wire import pack_columns

SERVICE = "snapshot"
SHORTEST_WAIT_SECONDS = 0.001
"""The shortest wait. A shorter wait may be rounded to zero, and then its loop would use all the CPU."""

Connect = Callable[[ClusterJoined], ClusterApi]


@dataclass(slots=True)
class ScaledWorkloads:
    """The workloads with a scale policy. known: whether all policies have been read."""

    keys: set[WorkloadKey] = field(default_factory=set)
    known: bool = False


@dataclass(frozen=True, slots=True)
class CollectorShared:
    """The objects that the collectors of one process share.

    connect: opens the API of a cluster; may raise.
    claim: claims a turn once more, to get a higher epoch. Raises BusUnavailable.
    book: the last records of our keys. book_read: is set once the book was read to its end.
    list_slots: bounds how many clusters read their first lists at the same time.
    """

    bus: Bus
    connect: Connect
    settings: SnapshotSettings
    claim: Callable[[ClusterTurn], Awaitable[None]]
    book: LogBook
    book_read: asyncio.Event
    list_slots: asyncio.Semaphore
    wall_ms: Callable[[], int]
    scaled: ScaledWorkloads = field(default_factory=ScaledWorkloads)
    log: structlog.typing.FilteringBoundLogger = field(default_factory=lambda: structlog.get_logger(service=SERVICE))


class Collector:
    """Collects one cluster's capacity during one turn. It runs until it is cancelled or finished.

    An exception in its core ends it and is raised.
    """

    def __init__(self, turn: ClusterTurn, joined: ClusterJoined, around: CollectorShared) -> None:
        self.cluster = joined.cluster
        self.core = Collection(joined.cluster, around.bus.fleet_id, around.settings.rules(), pack_columns)
        self._turn = turn
        self._joined = joined
        self._around = around
        self._settings = around.settings
        self._log = around.log.bind(cluster=joined.cluster)
        self._unwritable_keys = UnwritableKeys()
        self._heard = asyncio.Event()
        self._rejoined = asyncio.Event()
        self._finishing = asyncio.Event()
        self._finished = asyncio.Event()
        self._may_list = asyncio.Event()
        self._lists_settled = asyncio.Event()
        self._sample_now = asyncio.Event()
        self.apply_scale_policies()
        self._streams: dict[Kind, asyncio.Task[None]] = {}

    # ── What the service tells it ───────────────────────────────────────────────────────────────────────────────

    def apply_cluster_joined(self, joined: ClusterJoined) -> None:
        """Applies a new ClusterJoined of the cluster. Connects again if its credential or endpoint has changed."""
        before, self._joined = self._joined, joined
        if (before.credential, before.endpoint) != (joined.credential, joined.endpoint):
            self._rejoined.set()

    def apply_scale_policies(self) -> None:
        """Applies the set of workloads with a scale policy. Call it when the set was first read or has changed."""
        if self._around.scaled.known:
            self.core.set_scaled_workloads(self._around.scaled.keys)
            self._sample_now.set()
            self._heard.set()

    async def finish(self) -> None:
        """Ends the collector. Waits until it has written the records that are due."""
        self._finishing.set()
        self._heard.set()
        await self._finished.wait()

    async def run(self) -> None:
        self._begin_epoch()
        try:
            async with asyncio.TaskGroup() as tasks:
                following = tasks.create_task(self._stay_connected(), name=f"follow {self.cluster}")
                await self._write_until_finished()
                following.cancel()
        finally:
            self._finished.set()
            metrics.remove_cluster_gauges(self.cluster)

    # ── Following ───────────────────────────────────────────────────────────────────────────────────────────────

    async def _stay_connected(self) -> None:
        setbacks = 0
        while True:
            self._rejoined.clear()
            try:
                api = self._around.connect(self._joined)
            except (ClusterUnreachable, BadCredentials, OSError) as error:
                self._log.warning("cannot connect", error=str(error))
                self.core.age.note_connection_failed(_connection_trouble(error))
                self._heard.set()
                first, longest = self._settings.connect_first_seconds, self._settings.connect_longest_seconds
                await is_set_within(self._rejoined, doubled_pause_seconds(first, longest, setbacks))
                setbacks += 1
                continue
            setbacks = 0
            try:
                await self._follow_cluster(api)
            finally:
                await api.close()

    async def _follow_cluster(self, api: ClusterApi) -> None:
        """Follows the cluster until its credential or endpoint changes."""
        self.core.age.note_connecting()
        self._may_list.clear()
        self._lists_settled.clear()
        async with asyncio.TaskGroup() as tasks:
            for kind in KINDS:
                self._start_stream(tasks, api, kind)
            others = [
                tasks.create_task(self._hold_list_slot()),
                tasks.create_task(self._run_probes(tasks, api)),
                tasks.create_task(self._run_pod_samplings(api)),
            ]
            await self._rejoined.wait()
            for task in (*self._streams.values(), *others):
                task.cancel()

    def _start_stream(self, tasks: asyncio.TaskGroup, api: ClusterApi, kind: Kind) -> None:
        self._streams[kind] = tasks.create_task(self._follow_kind(api, kind), name=f"{kind.plural} of {self.cluster}")

    async def _hold_list_slot(self) -> None:
        """Waits for a slot in which this cluster may read its first lists, and frees it after a bounded time.

        So a slow or silent cluster does not delay other clusters. Its own lists continue.
        """
        async with self._around.list_slots:
            self._may_list.set()
            await is_set_within(self._lists_settled, self._settings.list_slot_seconds)

    async def _follow_kind(self, api: ClusterApi, kind: Kind) -> None:
        await self._may_list.wait()
        selector = f"{FLEET_LABEL}={self._around.bus.fleet_id}" if kind in WORKLOAD_KINDS else ""
        follow = api.follow_objects if kind is NODES else api.follow_in_pages
        batches = follow(kind, label_selector=selector)
        try:
            async for batch in batches:
                for number, change in enumerate(batch, 1):
                    await self._apply_change(kind, change)
                    if number % self._settings.list_step_objects == 0:
                        await asyncio.sleep(0)
                self._heard.set()
                if self.core.age.is_fully_listed:
                    self._lists_settled.set()
        finally:
            if isinstance(batches, AsyncGenerator):
                await batches.aclose()

    async def _apply_change(self, kind: Kind, change: Change) -> None:
        now = asyncio.get_running_loop().time
        match change:
            case ObjectUpserted():
                self.core.upsert_objects(kind, (change.object,), now())
            case ObjectRemoved():
                self.core.remove_object(kind, change.object, now())
            case StreamAlive():
                self.core.note_stream_alive(kind, now())
            case ListedObjects():
                self.core.replace_objects(kind, change.objects, now())
            case ListedPage():
                step = self._settings.list_step_objects
                for start in range(0, len(change.objects), step):
                    self.core.upsert_page(kind, change.objects[start : start + step])
                    await asyncio.sleep(0)
            case PagesEnded():
                self.core.end_paged_list(kind, change.uids, now())
            case FollowingFailed():
                metrics.count_unreachable(change.error.reason)
                self._log.warning("stream failed", kind=kind.plural, error=str(change.error))
                self.core.note_stream_failed(
                    kind, _trouble_of_error(change.error), forbidden=change.error.reason == "forbidden"
                )
                self._heard.set()
                self._lists_settled.set()

    async def _run_probes(self, tasks: asyncio.TaskGroup, api: ClusterApi) -> None:
        """Probes the cluster at intervals, and lists kinds again whose count differs from the probes' for too long.

        The first probe waits for the lists, for at most probe_seconds, so that its answer can be compared at once.
        """
        loop = asyncio.get_running_loop()
        pause_seconds = self._settings.probe_seconds
        await is_set_within(self._lists_settled, pause_seconds)
        while True:
            started_at = loop.time()
            self.core.age.note_probe_started(started_at)
            for kind in self.core.take_kinds_to_relist(started_at):
                self._log.warning("what is known differs from the cluster: listing again", kind=kind.plural)
                self._streams[kind].cancel()
                self._start_stream(tasks, api, kind)
            try:
                probe = await api.count_nodes_and_pods()
            except ClusterUnreachable as error:
                metrics.count_unreachable(error.reason)
                self.core.age.note_probe_failed(_trouble_of_error(error, "probe: "))
                pause_seconds = min(2 * pause_seconds, self._settings.probe_longest_seconds)
            else:
                self.core.note_probe_answered(probe.started_at, probe.nodes, probe.pods, loop.time(), probe.version)
                pause_seconds = self._settings.probe_seconds
            self._heard.set()
            await asyncio.sleep(max(0.0, started_at + pause_seconds - loop.time()))

    async def _run_pod_samplings(self, api: ClusterApi) -> None:
        """Samples the pods' usage at intervals, and at once when the scale policies change."""
        loop, settings = asyncio.get_running_loop(), self._settings
        await self._lists_settled.wait()
        while True:
            started_at = loop.time()
            self._sample_now.clear()
            slots = asyncio.Semaphore(settings.metrics_at_once)
            async with asyncio.TaskGroup() as tasks:
                for namespace in self.core.observed.namespaces_to_sample():
                    tasks.create_task(self._sample_namespace(api, namespace, slots))
            await is_set_within(
                self._sample_now, max(SHORTEST_WAIT_SECONDS, started_at + settings.metrics_seconds - loop.time())
            )

    async def _sample_namespace(self, api: ClusterApi, namespace: str, slots: asyncio.Semaphore) -> None:
        async with slots:
            try:
                samples = await api.pod_metrics(namespace, self._settings.metrics_answer_seconds)
            except ClusterUnreachable as error:
                metrics.count_unreachable(error.reason)
                why = f"metrics: {error.reason}: {error.detail}"
                self.core.drop_samples(namespace, why[:TROUBLE_CHARACTERS_MAX])
            else:
                self.core.store_samples(namespace, samples)
        self._heard.set()

    # ── Writing ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _write_until_finished(self) -> None:
        """Writes records until finishing is set, then once more.

        Only this method writes. So no write of ours is under way when it compares the records of others with ours.
        """
        while not self._finishing.is_set():
            if self.core.needs_claim:
                await self._claim_again()
            else:
                await self._wait_until_due()
                if self._around.book_read.is_set():
                    self.core.overrule_foreign_records(self._around.book)
                await self._write_due_records()
        await self._write_due_records()

    async def _claim_again(self) -> None:
        try:
            await self._around.claim(self._turn)
        except BusUnavailable as error:
            await self._pause_after_bus_failure(error)
        else:
            self._begin_epoch()

    def _begin_epoch(self) -> None:
        self.core.begin_epoch(self._turn.epoch, asyncio.get_running_loop().time())
        self._log.info("turn taken", epoch=self._turn.epoch)

    async def _wait_until_due(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._finishing.is_set():
            self._heard.clear()
            now = loop.time()
            if self.core.has_record_due(now):
                await is_set_within(self._finishing, self._settings.gather_seconds)
                return
            seconds = self.core.next_due_at(now) - now
            if seconds <= 0:
                return
            await is_set_within(self._heard, max(seconds, SHORTEST_WAIT_SECONDS))

    async def _write_due_records(self) -> None:
        loop, started_ns = asyncio.get_running_loop(), tracing.clock_ns()
        taken_at = loop.time()
        records = self.core.take_due_records(taken_at, self._around.wall_ms())
        if not records:
            return
        try:
            positions = await self._around.bus.publish(
                *records, traces=_traces_by_index(self.cluster, records, started_ns)
            )
        except BusUnavailable as error:
            self.core.note_unconfirmed_records(records)
            await self._pause_after_bus_failure(error)
            return
        except UnwritableEvent:
            self._note_unwritable_records(records, loop.time())
            await is_set_within(self._finishing, self._settings.bus_retry_seconds)
            return
        self._unwritable_keys.note_written(records)
        self.core.note_written_records(records, (position.offset for position in positions))
        # After a slow write the age in the records is too small, so a heartbeat tells the right one.
        if loop.time() - taken_at > self._settings.late_seconds:
            self.core.make_heartbeat_due()
        metrics.count_written_records(records)
        metrics.update_cluster_gauges(self.core, loop.time())

    def _note_unwritable_records(self, records: Sequence[Record], now: float) -> None:
        """Tells the core which records are too large for the log, so that it writes them in another form.

        No record of the batch was sent. The core returns the other records again with the next batch.
        """
        wrong = write_errors_by_index(records)
        for index, error in wrong.items():
            self._unwritable_keys.note_unwritable(records[index], error)
        self.core.note_unconfirmed_records(records)
        self.core.note_unwritable_records(
            [_unwritten_record(records[index], error) for index, error in wrong.items()], now
        )

    async def _pause_after_bus_failure(self, error: BusUnavailable) -> None:
        self._log.warning("the log cannot be reached", error=str(error))
        await is_set_within(self._finishing, self._settings.bus_retry_seconds)


def _traces_by_index(cluster: str, records: Sequence[object], started_ns: int) -> dict[int, Headers]:
    """Returns the headers of one new trace for each record of pending pods or of pods' usage, by the record's index.

    A decision may follow from these records. Records of capacity start no trace.
    """
    if not tracing.is_on():
        return {}
    found = [index for index, one in enumerate(records) if isinstance(one, PodsUnschedulable | PodsObserved)]
    trace = tracing.record_decision("observe", None, started_ns, {"k8s.cluster.name": cluster}) if found else ()
    return dict.fromkeys(found, trace) if trace else {}


def _unwritten_record(record: Record, error: UnwritableEvent) -> UnwrittenRecord:
    return UnwrittenRecord(record, str(error), error.size - error.size_max if isinstance(error, EventTooLarge) else 0)


def _trouble_of_error(error: ClusterUnreachable, what: str = "") -> Trouble:
    text = f"{what}{error.reason}: {error.detail}"
    return Trouble(code_of_reason(error.reason), text[:TROUBLE_CHARACTERS_MAX])


def _connection_trouble(error: Exception) -> Trouble:
    """Returns the Trouble of a cluster whose API could not be opened. Its text is "connect: reason: detail"."""
    if isinstance(error, ClusterUnreachable):
        return _trouble_of_error(error, "connect: ")
    return Trouble(TroubleCode.NOT_ALLOWED, f"connect: credential: {error}"[:TROUBLE_CHARACTERS_MAX])
