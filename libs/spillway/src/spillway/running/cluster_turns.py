"""The turns of one instance for clusters: it claims the clusters that its group assigns, works, and gives them up."""

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import structlog

from spillway import metrics
from spillway.bus import Assignment, Bus, BusUnavailable, OffsetsWentBack
from spillway.events import ClusterJoined, TurnTaken
from spillway.model import Generation
from spillway.running.isolation import Failures
from spillway.settings import constant, setting

CREDENTIALS_FOLDER = Path("credentials")
NO_CLUSTERS = Assignment(frozenset(), 1)
NO_EPOCH = -1
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class ClusterTurnSettings:
    """The settings of a service whose instances share the clusters. Raises ValueError for a number not above 0."""

    fleet: str = setting("", "fleet id that the log must have; empty: any fleet id")
    credentials_folder: Path = setting(CREDENTIALS_FOLDER, "folder of the clusters' kubeconfig files")
    exec_plugins: bool = setting(False, "whether a kubeconfig may run a program to get credentials")
    bus_retry_seconds: float = constant(
        1.0,
        "seconds until an unreachable log is tried again",
        "it is short beside all that waits for the log, and a try costs the instance little",
    )
    reclaim_seconds: float = constant(
        10.0,
        "seconds until this instance claims a cluster again that a later claim took, though the consumer group "
        "assigns it to this instance",
        "the consumer group assigns clusters in less time",
    )
    finish_seconds: float = constant(
        5.0,
        "seconds that running work may take when the process stops",
        "it is within the process' stop_seconds, and the next instance does the rest",
    )
    failed_first_seconds: float = constant(
        1.0,
        "first pause in seconds of a cluster, or of one part of its work, after an unexpected error; each further "
        "pause doubles",
        "the pauses double, so that only the first pause is short",
    )
    failed_longest_seconds: float = constant(
        60.0,
        "longest pause in seconds of a cluster, or of one part of its work, after an unexpected error",
        "a bug that one cluster meets costs little at this pace, and its end is noticed within a minute",
    )

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, int | float) and not isinstance(value, bool) and not value > 0:
                raise ValueError(f"{field.name}: {value}: expected more than 0")


@dataclass(eq=False, slots=True)
class ClusterTurn:
    """This instance's right to write for one cluster.

    way: the value of ClusterService.way_to_cluster at the start. epoch: the offset of its claim; NO_EPOCH: not known.
    read_epoch: the highest epoch read since the start, its own claim included.
    claiming: True while a claim is being written; it may be read before we know its offset.
    """

    cluster: str
    way: Hashable
    epoch: int = NO_EPOCH
    read_epoch: int = NO_EPOCH
    claiming: bool = False

    @property
    def is_overtaken(self) -> bool:
        return not self.claiming and NO_EPOCH < self.epoch < self.read_epoch


class Worker(Protocol):
    async def run(self) -> None:
        """Works until it is cancelled.

        An exception ends only this turn, unless it is one of `isolation.ENDS_THE_PROCESS`.
        """
        ...

    async def finish(self) -> None:
        """Starts nothing new. Returns when running work has ended and its results are published."""
        ...


W = TypeVar("W", bound=Worker)
W_co = TypeVar("W_co", bound=Worker, covariant=True)


class ClusterService(Protocol[W_co]):
    """The part of a service that differs from other services."""

    def clusters_in_log(self) -> Iterable[str]:
        """Returns all clusters in the log."""
        ...

    def way_to_cluster(self, cluster: str) -> Hashable | None:
        """Returns how the cluster is reached, as any value. If the value changes, the work there starts again.

        None: there is no work there.
        """
        ...

    async def wait_until_caught_up(self) -> None:
        """Returns when everything that was in the log at the call has been applied."""
        ...

    def create_worker(self, turn: ClusterTurn) -> W_co:
        """Returns the worker for a cluster. All records before the turn's claim have been applied."""
        ...


class ClusterTurns(Generic[W]):
    """Divides the clusters among instances. By consumer group and log, one instance at a time has a cluster's turn.

    A turn is claimed by a record whose offset is its epoch. Work begins when the log has been read from that record to
    its ends. Any record with a higher epoch ends the work: its writer is the later owner. The cluster is claimed again
    when the group assigns it again, or if the group still assigns it after reclaim_seconds: then the other instance was
    late. For the group, two instances with the same name are one. So an instance that lost a cluster to its own name
    always waits for reclaim_seconds, so that each has time for some work.

    An unexpected error of a worker ends only its turn, and this instance keeps the cluster: the next one would meet the
    same input. After a pause, longer each time, the cluster is claimed again, and work starts again.

    workers: the present worker of each cluster. ready: called with whether the log has been read and the group has
    assigned clusters. changed: called when the group assigned other clusters, or when the work at one has ended.
    """

    def __init__(
        self, bus: Bus, service: str, instance: str, settings: ClusterTurnSettings, work: ClusterService[W]
    ) -> None:
        self.workers: dict[str, W] = {}
        self.ready: Callable[[bool, str], None] = lambda ready, reason: None
        self.changed: Callable[[], None] = lambda: None
        self._bus = bus
        self._service = service
        self._instance = instance
        self._settings = settings
        self._work = work
        self._assignment = NO_CLUSTERS
        self._turns: dict[str, tuple[ClusterTurn, asyncio.Task[None]]] = {}
        self._paused: dict[str, asyncio.TimerHandle] = {}
        self._to_namesakes: set[str] = set()
        """The paused clusters that another process with this instance's name has claimed."""
        self._failures = Failures[str](
            service, "cluster", settings.failed_first_seconds, settings.failed_longest_seconds
        )
        self._resting: dict[str, asyncio.TimerHandle] = {}
        """Clusters that are not worked on after an unexpected error, until they are claimed again."""
        self._read_epochs: dict[str, int] = {}
        """The highest epoch that was read, by cluster."""
        self._unsettled = asyncio.Event()
        self._finishing = False

    async def run(self) -> None:
        """Takes turns until it is cancelled, which must be after `finish`. Raises an error that must end the process.

        The group is joined once the log has been read. Until then the present owners of the clusters go on with them.
        """
        self.ready(False, "reading the log")
        await self._work.wait_until_caught_up()
        self.ready(False, "joining the group")
        async with AsyncExitStack() as stack:
            assignments = await self._join_group(stack)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._settle_turns(group))
                async for assignment in assignments:
                    self._store_assignment(assignment)

    async def finish(self) -> None:
        """Takes no more clusters. Returns when running work has ended, or after finish_seconds."""
        self._finishing = True
        for turn, _ in tuple(self._turns.values()):
            if turn.cluster not in self.workers:
                self._end_turn(turn)
        finishing = [asyncio.create_task(self._finish_worker(*one)) for one in self.workers.items()]
        if finishing:
            done, late = await asyncio.wait(finishing, timeout=self._settings.finish_seconds)
            for task in late:
                task.cancel()
            for task in done:
                task.result()

    async def _finish_worker(self, cluster: str, worker: W) -> None:
        try:
            await worker.finish()
        except Exception as error:
            self._failures.note_failure(cluster, error, cluster=cluster)

    # ── Called by the service ───────────────────────────────────────────────────────────────────────────────────

    def note_epoch(self, cluster: str, epoch: int, claimant: str = "") -> None:
        """Is called for each record of a cluster: a higher epoch ends a turn. claimant: the instance of a claim."""
        self._read_epochs[cluster] = max(epoch, self._read_epochs.get(cluster, NO_EPOCH))
        turn, _ = self._turns.get(cluster, (None, None))
        if turn is not None:
            turn.read_epoch = max(turn.read_epoch, epoch)
            if turn.is_overtaken and claimant == self._instance:
                log.error("another process uses this instance's name", instance=claimant, cluster=cluster)
                self._to_namesakes.add(cluster)
            self._end_if_overtaken(turn)

    def call_worker(self, cluster: str, word: Callable[[W], object]) -> None:
        """Calls `word` with the worker of a cluster, if it has one. An unexpected error ends only that turn."""
        worker = self.workers.get(cluster)
        if worker is not None:
            turn, _ = self._turns[cluster]
            try:
                word(worker)
            except Exception as error:
                self._rest_after_failure(turn, error)
                self._end_turn(turn)

    def call_all_workers(self, word: Callable[[W], object]) -> None:
        """Calls the function `word` with each worker, as `call_worker` does."""
        for cluster in tuple(self.workers):
            self.call_worker(cluster, word)

    def reconsider_turns(self) -> None:
        """Makes this instance begin and end turns as needed. Call it after a change of the clusters or their ways."""
        self._unsettled.set()

    def is_assigned(self, cluster: str) -> bool:
        """Returns whether the group assigns the cluster to this instance."""
        return self._assignment.has_cluster(cluster)

    def is_free(self, cluster: str) -> bool:
        """Returns whether this instance has no turn for the cluster, not even one that begins or ends."""
        return cluster not in self._turns

    async def claim_turn(self, turn: ClusterTurn) -> None:
        """Takes the turn, or takes it once more for a higher epoch. Raises BusUnavailable."""
        turn.claiming = True
        try:
            (position,) = await self._bus.publish(TurnTaken(self._service, turn.cluster, self._instance))
            turn.epoch = position.offset
        finally:
            turn.claiming = False
        self._end_if_overtaken(turn)

    # ── The assigned clusters ───────────────────────────────────────────────────────────────────────────────────

    async def _join_group(self, stack: AsyncExitStack) -> AsyncIterator[Assignment]:
        while True:
            try:
                return await stack.enter_async_context(self._bus.join_cluster_group(self._service, self._instance))
            except BusUnavailable as error:
                log.warning("the consumer group cannot be joined yet", error=str(error))
                await asyncio.sleep(self._settings.bus_retry_seconds)

    def _store_assignment(self, assignment: Assignment) -> None:
        """Stores a new assignment of the group and ends the pauses of clusters.

        A cluster that was lost to an instance with the same name stays paused: the group cannot see that loss.
        """
        log.info("turns", partitions=len(assignment.partitions), of=assignment.partition_count)
        for cluster in self._paused.keys() - self._to_namesakes:
            self._paused.pop(cluster).cancel()
        self._assignment = assignment
        self._unsettled.set()
        self.changed()
        self.ready(True, "")

    async def _settle_turns(self, group: asyncio.TaskGroup) -> None:
        """Begins a turn for each assigned cluster with work, and ends all other turns. Runs until cancelled."""
        while True:
            self._unsettled.clear()
            for turn, _ in tuple(self._turns.values()):
                if self._way_if_assigned(turn.cluster) != turn.way:
                    self._end_turn(turn)
            for cluster in sorted(self._work.clusters_in_log()):
                if self.is_free(cluster) and not self._finishing:
                    self._take_turn(cluster, group)
            await self._unsettled.wait()

    def _way_if_assigned(self, cluster: str) -> Hashable | None:
        """Returns how a cluster is reached; None also if it is paused after a loss or an error, or is not assigned."""
        if cluster in self._paused or cluster in self._resting or not self._assignment.has_cluster(cluster):
            return None
        return self._work.way_to_cluster(cluster)

    # ── One turn ────────────────────────────────────────────────────────────────────────────────────────────────

    def _take_turn(self, cluster: str, group: asyncio.TaskGroup) -> None:
        way = self._way_if_assigned(cluster)
        if way is not None:
            turn = ClusterTurn(cluster, way)
            task = group.create_task(self._hold_turn(turn), name=f"{self._service} at {cluster}")
            self._turns[cluster] = turn, task
            task.add_done_callback(lambda _: self._note_turn_ended(turn))  # Also for a task that never started.

    async def _hold_turn(self, turn: ClusterTurn) -> None:
        read_epoch = self._read_epochs.get(turn.cluster, NO_EPOCH)
        await self._claim_until_written(turn)
        self._check_claim_offset(turn, read_epoch)
        await self._work.wait_until_caught_up()
        if self._way_if_assigned(turn.cluster) != turn.way:
            return  # It changed meanwhile.
        began_at = asyncio.get_running_loop().time()  # An error after a long run gets the shortest pause again.
        try:
            worker = self.workers[turn.cluster] = self._work.create_worker(turn)
            metrics.TURNS_TAKEN.labels(self._service).inc()
            self._set_turns_metric()
            await worker.run()
        except Exception as error:
            if asyncio.get_running_loop().time() - began_at > self._settings.failed_longest_seconds:
                self._failures.reset_failures(turn.cluster)
            self._rest_after_failure(turn, error)

    def _rest_after_failure(self, turn: ClusterTurn, error: Exception) -> None:
        """Logs an error of a cluster's work, and lets the cluster be claimed again after a pause.

        Raises the error if it must end the process.
        """
        cluster = turn.cluster
        seconds = self._failures.note_failure(cluster, error, cluster=cluster, epoch=turn.epoch)
        if cluster not in self._resting:
            self._resting[cluster] = asyncio.get_running_loop().call_later(seconds, self._end_rest, cluster)

    def _end_rest(self, cluster: str) -> None:
        del self._resting[cluster]
        self._unsettled.set()

    async def _claim_until_written(self, turn: ClusterTurn) -> None:
        while turn.epoch == NO_EPOCH:
            try:
                await self.claim_turn(turn)
            except BusUnavailable as error:
                log.warning("the turn of a cluster could not be claimed yet", cluster=turn.cluster, error=str(error))
                await asyncio.sleep(self._settings.bus_retry_seconds)

    def _check_claim_offset(self, turn: ClusterTurn, read_epoch: int) -> None:
        """Raises OffsetsWentBack if our claim's offset is below an epoch that was read before.

        All readers would drop our records then. read_epoch: the highest epoch read before the claim. Its record is
        before our claim in the log.
        """
        if read_epoch > turn.epoch:
            raise OffsetsWentBack(
                f"records of {self._service} of cluster {turn.cluster} bear epoch {read_epoch}, and a claim of it is "
                f"at offset {turn.epoch} now: its topic was made anew or lost its end; nothing is done there"
            )

    def _end_if_overtaken(self, turn: ClusterTurn) -> None:
        if turn.is_overtaken and turn.cluster not in self._paused:
            log.warning(
                "a turn was lost to an instance with a higher epoch",
                cluster=turn.cluster,
                ours=turn.epoch,
                theirs=turn.read_epoch,
            )
            loop = asyncio.get_running_loop()
            self._paused[turn.cluster] = loop.call_later(self._settings.reclaim_seconds, self._end_pause, turn.cluster)
            self._end_turn(turn)

    def _end_pause(self, cluster: str) -> None:
        self._paused.pop(cluster)
        self._to_namesakes.discard(cluster)
        self._unsettled.set()

    def _end_turn(self, turn: ClusterTurn) -> None:
        """Ends a turn at once. Another turn for its cluster begins only after the work of this one has ended."""
        _, task = self._turns[turn.cluster]
        if not task.cancelling():
            self._dismiss_worker(turn.cluster)
            task.cancel()

    def _note_turn_ended(self, turn: ClusterTurn) -> None:
        self._dismiss_worker(turn.cluster)
        del self._turns[turn.cluster]
        self._unsettled.set()
        self.changed()

    def _dismiss_worker(self, cluster: str) -> None:
        if self.workers.pop(cluster, None) is not None:
            metrics.TURNS_LOST.labels(self._service).inc()
            self._set_turns_metric()

    def _set_turns_metric(self) -> None:
        metrics.TURNS_HELD.labels(self._service).set(len(self.workers))


def way_to_joined_cluster(joined: ClusterJoined) -> tuple[str, str, Generation | None]:
    """Returns how a cluster is reached, and when it joined.

    A cluster that left and joined again counts as a new one, also when both records are read at once.
    """
    return joined.endpoint, joined.credential, joined.joined_at
