"""Runs one owner cluster while this instance has its turn: decides which nodes are lent, and carries each step out."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial

import structlog

from spillway import tracing
from spillway.addresses import RECALLS
from spillway.bus import Bus
from spillway.clusters.api import Change, ClusterApi, ClusterUnreachable, Conflict, ListedObjects, Refused
from spillway.events_lending import NodeLent, NodeReturned
from spillway.lending_marks import LENT_NODE, POOL_UID, virtual_node_name
from spillway.model import Generation
from spillway.pauses import doubled_pause_seconds
from spillway.running.isolation import Failures
from spillway.running.work_queue import WorkQueue
from vk_bridge import metrics
from vk_bridge.api.lent_pods import LentPods
from vk_bridge.cluster.answers import WriteAnswers
from vk_bridge.cluster.backoff_gate import BackoffGate
from vk_bridge.cluster.cluster_watch import ClusterWatch
from vk_bridge.cluster.copies import Copies
from vk_bridge.cluster.copy_tender import CopyTender
from vk_bridge.cluster.leases import Leases
from vk_bridge.cluster.left_virtual_nodes import LeftVirtualNodes
from vk_bridge.cluster.listing import Listing, Part, listing_of_nodes, listing_of_pods
from vk_bridge.cluster.node_reader import NodeReader, NodeReading
from vk_bridge.cluster.node_writer import NodeWriter
from vk_bridge.cluster.pod_conversion import SERVICE
from vk_bridge.cluster.pod_writer import PodWriter
from vk_bridge.cluster.pools import Pool, Pools
from vk_bridge.cluster.read_cache import ReadCache, RestingNode, is_of_pod
from vk_bridge.core.log_state import LendingLogState
from vk_bridge.core.node.loan import OWNED
from vk_bridge.core.node.steps import (
    CloseVirtual,
    FirstObservations,
    Mark,
    ShowVirtual,
    Step,
    WaitUntil,
    may_use_amended_reading,
    next_step,
    node_context,
    step_text,
)
from vk_bridge.core.node.urgency import Urgency, urgency_of_delayed_work, urgency_of_node
from vk_bridge.core.pod.steps import DeletePool, DeleteReal, LetGo, Mirror, PodStep, steps_while_others_wait
from vk_bridge.core.selection.desired_loans import DesiredLoans, KubeletAddress
from vk_bridge.core.selection.owner_cache import OwnerCache, WatchedPod
from vk_bridge.log.loan_reporter import LoanReporter
from vk_bridge.log.record_writer import Records
from vk_bridge.log.usage_reporter import UsageReporter
from vk_bridge.node_slots import NodeSlots
from vk_bridge.settings import VkBridgeSettings

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class OwnerShared:
    """The objects that all OwnerWorkers of one instance share.

    wall_ms: returns the Unix time for records. No order of records depends on it.
    reconsider: is called when there may be nothing more to do at a cluster.
    recalled_by: the trace of each open recall, by cluster and node.
    """

    bus: Bus
    state: LendingLogState
    settings: VkBridgeSettings
    pools: Pools
    slots: NodeSlots
    wall_ms: Callable[[], int]
    reconsider: Callable[[], None]
    recalled_by: tracing.Origins[tuple[str, str]] = field(default_factory=tracing.Origins)


@dataclass(frozen=True, slots=True)
class NodePlan:
    """The writes that are due for one node. due_at: the clock time of the next change that no watch reports.

    bears_amendment: the answer of `may_use_amended_reading` for this step.
    """

    step: Step | None
    pod_steps: tuple[PodStep, ...]
    due_at: float | None
    bears_amendment: bool = field(compare=False)


class OwnerWorker:
    """Works on one owner until run() is cancelled. Other methods pass on new log records and changes in a pool."""

    def __init__(self, cluster: str, epoch: int, api: ClusterApi, shared: OwnerShared) -> None:
        self.cluster = cluster
        self.epoch = epoch
        self._api = api
        self._shared = shared
        self._settings = settings = shared.settings
        self._state = shared.state
        self._sequence = 0
        self._finishing = False
        self._running = 0
        self._rested = asyncio.Event()
        fleet = shared.bus.fleet_id
        gate = BackoffGate(cluster, settings)
        self._queue = WorkQueue[str]()
        self._owner_cache = OwnerCache(cluster, fleet)
        self._watch = ClusterWatch(api, self._owner_cache, settings, self._handle_owner_change)
        self._records = Records(shared.bus, settings, self._apply_acknowledged_record)
        address = KubeletAddress(settings.kubelet_address, settings.port_by_pool)
        self._desired_loans = DesiredLoans(cluster, fleet, shared.state, self._owner_cache, address, shared.wall_ms)
        self._loan_reporter = LoanReporter(
            cluster, shared.state, self._desired_loans, self._records, self.next_generation, shared.wall_ms
        )
        lends_nothing = partial(shared.state.lends_nothing, cluster)
        self._copies = Copies(fleet, api, gate, settings, self._owner_cache, lends_nothing)
        self._copy_tender = CopyTender(cluster, self._copies, shared.state, settings, shared.reconsider)
        self._reader = NodeReader(cluster, fleet, api, gate, settings)
        self._writer = NodeWriter(
            cluster,
            fleet,
            api,
            gate,
            self._loan_reporter.publish_node_lent,
            self._loan_reporter.publish_node_returned,
            self._loan_reporter.publish_left_virtual_node,
        )
        self._pod_writer = PodWriter(cluster, api, gate, self._copies, settings)
        self._left_virtual_nodes = LeftVirtualNodes(
            self._reader,
            self._writer,
            self._pod_writer,
            self._desired_loans,
            self._loan_reporter.publish_virtual_node_cleared,
            settings,
        )
        self._first_observations = FirstObservations()
        self._read_cache = ReadCache()
        self._whole: set[str] = set()
        """Nodes that have to be read completely next time, not only their pods."""
        self._restless: dict[str, int] = {}
        """By node: the number of rounds in a row after which something was left to do."""
        self._failures = Failures[str](SERVICE, "node", settings.failed_first_seconds, settings.failed_longest_seconds)
        self._gathering: set[str] = set()
        """Nodes whose changes of leaving pods are being gathered."""
        self._leases = Leases(cluster, shared.pools, settings, shared.wall_ms)
        self.lent_pods = LentPods(api, gate, self._owner_cache, shared.pools, settings.owner_logs_max)
        self._usage_reporter = UsageReporter(api, self._owner_cache, self._desired_loans, settings, shared.wall_ms)

    async def run(self) -> None:
        log.info("cluster taken", cluster=self.cluster, epoch=self.epoch)
        for node in sorted(self._state.nodes_with_stale_record(self.cluster)):
            self.republish_loan_record(node)  # No bridge had the turn when the stale record came.
        try:
            async with asyncio.TaskGroup() as group:
                for work in (
                    self._watch.run,
                    self._records.run,
                    self._run_reviews,
                    self._resync_nodes,
                    self._tend_copies,
                ):
                    group.create_task(work())
                group.create_task(self._leases.run())
                group.create_task(self._report_usage())
                group.create_task(self._remove_left_virtual_nodes())
                for _ in range(self._settings.nodes_at_once):
                    group.create_task(self._reconcile_queued_nodes())
        finally:
            self._queue.close()
            metrics.NODES_WAITING.labels(self.cluster).set(0)
            self._loan_reporter.reset_gauges()
            log.info("the turn of a cluster is given back", cluster=self.cluster, epoch=self.epoch)
            await self._api.close()

    async def finish(self) -> None:
        """Begins no new node, waits until the nodes under way are done, and publishes the waiting records."""
        self._finishing = True
        while self._running:
            self._rested.clear()
            await self._rested.wait()
        await self._records.flush()

    def next_generation(self) -> Generation:
        self._sequence += 1
        return Generation(self.epoch, self._sequence)

    # ── What is heard ───────────────────────────────────────────────────────────────────────────────────────────

    def queue_node(self, node: str, *, recalled: bool = False) -> None:
        """Queues a node of which the log has a new record. recalled: the record is a recall; the node is unchanged."""
        if self._is_marked_or_lent(node):
            self._add_to_queue(node, pods_alone=recalled)

    def queue_all_nodes(self) -> None:
        """Queues every node, after a change that may concern all of them: a lending rule or a brake."""
        self._copy_tender.note_lending_changed()
        for node in self._nodes_with_loan_or_marks():
            self._add_to_queue(node)

    def queue_nodes_of_pool_change(self, pool: str, virtual_node: str, change: Change, *, pods: bool) -> None:
        """Queues the nodes that a pool's change is about; a list may be about all. pods: the change is of pods."""
        if isinstance(change, ListedObjects):
            part: Part = "pool_pods" if pods else "virtual"
            listing = listing_of_pods(part, change.objects) if pods else listing_of_nodes(part, change.objects)
            for node in self._nodes_with_loan_or_marks():
                self._queue_if_list_differs(node, listing, virtual_node_name(self.cluster, node), change)
            return
        known = self._owner_cache.node_by_virtual.get(virtual_node)
        name = known or self._shared.pools.lent_node_of_virtual(pool, virtual_node, self.cluster)
        if name and self._read_cache.is_news(name, change):
            self._queue_changed_node(name, change)

    def _add_to_queue(self, node: str, delay_seconds: float = 0.0, *, pods_alone: bool = False) -> None:
        """Queues a node by its Urgency: nodes that an owner waits for come first. pods_alone: only its pods changed."""
        if not pods_alone:
            self._whole.add(node)
        rank = self._urgency_of_node(node)
        if delay_seconds > 0:
            rank = urgency_of_delayed_work(rank)
        self._queue.add_target(node, delay_seconds, rank=rank)

    def _urgency_of_node(self, node: str) -> Urgency:
        known = self._owner_cache.nodes.get(node)
        return urgency_of_node(
            known.register.state if known is not None else OWNED,
            recalled=self._state.is_recalled(self.cluster, node),
            has_real_pods=self._owner_cache.has_real_pods(node),
        )

    def republish_loan_record(self, node: str) -> None:
        """Publishes the valid loan record again, because a bridge whose turn is over has written a stale one since."""
        said = self._state.loans.get(self.cluster, {}).get(node)
        if said is not None and self._records.waiting_record(node) is None:
            number = self.next_generation()
            self._records.queue_loan_record(replace(said, epoch=number.epoch, sequence=number.sequence))

    def _handle_owner_change(self, nodes: Iterable[str], change: Change) -> None:
        if not self._watch.listed.is_set():
            return  # The first lists are not complete, so there may be pods that are not known yet.
        listing = self._listing_of_change(change)
        for node in nodes:
            self._usage_reporter.note_node_use(node)
            if listing is not None and self._is_marked_or_lent(node):
                self._queue_if_list_differs(node, listing, node, change)
            elif self._is_marked_or_lent(node) and self._read_cache.is_news(node, change):
                self._queue_changed_node(node, change)

    @staticmethod
    def _listing_of_change(change: Change) -> Listing | None:
        """Returns the owner's nodes or pods of a list; None if the change is not a list."""
        if not isinstance(change, ListedObjects):
            return None
        of_pods = any(isinstance(one, WatchedPod) for one in change.objects)
        return listing_of_pods("own_pods", change.objects) if of_pods else listing_of_nodes("node", change.objects)

    def _queue_if_list_differs(self, node: str, listing: Listing, listed_as: str, change: Change) -> None:
        """Queues a node after a watch restarted, but only if the list differs from what was read of that node."""
        if self._read_cache.is_news_in_list(node, listing.part, listing.version_by_uid(listed_as), change):
            self._add_to_queue(node)

    def _queue_changed_node(self, node: str, change: Change) -> None:
        """Queues a node. Changes of leaving pods are gathered for a moment; the last pod's end is queued at once."""
        if not is_of_pod(change) or self._urgency_of_node(node) != Urgency.LEAVING:
            self._add_to_queue(node, pods_alone=is_of_pod(change))
        elif node not in self._gathering:
            self._gathering.add(node)
            self._queue.add_target(node, self._settings.leaving_seconds, rank=Urgency.LEAVING)

    def _is_marked_or_lent(self, node: str) -> bool:
        return self._owner_cache.is_marked(node) or self._state.lent_record(self.cluster, node) is not None

    def _nodes_with_loan_or_marks(self) -> set[str]:
        """Returns the nodes that are marked, that are lent in the log, or that have a virtual node."""
        virtual = {
            node.metadata.annotations.get(LENT_NODE, "")
            for pool in self._shared.pools.followed_pools()
            for node in pool.virtual_nodes_of_owner(self.cluster)
        }
        lent = {name for name, one in self._state.loans.get(self.cluster, {}).items() if isinstance(one, NodeLent)}
        return {name for name in self._owner_cache.nodes if self._owner_cache.is_marked(name)} | lent | virtual - {""}

    # ── Which nodes are wanted ──────────────────────────────────────────────────────────────────────────────────

    async def _run_reviews(self) -> None:
        await self._watch.listed.wait()
        self._loan_reporter.recover_loans()
        self._pool_in_fleet(self._desired_loans.declared_pool())
        self.queue_all_nodes()
        while True:
            for node in self._desired_loans.review_nodes(self._settings.review_slice_nodes):
                if node:
                    self._add_to_queue(node)
                else:
                    await asyncio.sleep(0)
            for node in self._lent_nodes_not_in_log():
                self._add_to_queue(node)
            self._loan_reporter.update_core_metrics(self._owner_cache, asyncio.get_running_loop().time())
            await asyncio.sleep(self._settings.review_seconds)

    def _lent_nodes_not_in_log(self) -> list[str]:
        """Returns the nodes that are marked as lent but do not open, because the log is away and lacks their loan."""
        if not self._records.is_log_away():
            return []
        registers = ((name, known.register) for name, known in self._owner_cache.nodes.items())
        lacks_loan = partial(self._state.lacks_loan, self.cluster)
        return [name for name, register in registers if lacks_loan(name, register.state, register.loan)]

    async def _resync_nodes(self) -> None:
        """Queues each node once per resync_seconds, spread over that time so that real changes do not have to wait."""
        while True:
            nodes = sorted(self._nodes_with_loan_or_marks())
            for node in nodes:
                await asyncio.sleep(self._settings.resync_seconds / len(nodes))
                self._add_to_queue(node)
            if not nodes:
                await asyncio.sleep(self._settings.resync_seconds)
            if self._watch.listed.is_set():
                gone = partial(self._loan_reporter.nodes_to_forget, self._owner_cache, self._settings.forget_seconds)
                await self._records.write_tombstones(self.cluster, gone)

    async def _tend_copies(self) -> None:
        await self._watch.listed.wait()
        await self._copy_tender.run(self._pool_in_fleet)

    async def _report_usage(self) -> None:
        await self._watch.listed.wait()
        while True:
            self._records.queue_usage_records(await self._usage_reporter.take_hours(self.next_generation))
            await asyncio.sleep(self._settings.usage_seconds)

    async def _remove_left_virtual_nodes(self) -> None:
        await self._watch.listed.wait()
        while True:
            await self._left_virtual_nodes.remove_virtual_nodes(
                self._state.left_virtual_nodes(self.cluster), self._pool_in_fleet
            )
            await asyncio.sleep(self._settings.left_virtual_nodes_seconds)

    def _pool_in_fleet(self, name: str) -> Pool | None:
        """Returns the pool cluster of this name; None if it is not in the fleet."""
        joined = self._state.clusters.get(name)
        return self._shared.pools.follow_pool(joined) if joined is not None else None

    # ── One node ────────────────────────────────────────────────────────────────────────────────────────────────

    async def _reconcile_queued_nodes(self) -> None:
        await self._watch.listed.wait()
        while True:
            node = await self._queue.take_target()
            self._gathering.discard(node)
            if self._finishing:
                await asyncio.Event().wait()  # It waits until this worker is cancelled.
            self._running += 1
            try:
                trace = self._shared.recalled_by.find_origin((self.cluster, node))
                about = {"k8s.cluster.name": self.cluster, "k8s.node.name": node}
                async with self._shared.slots.hold_slot(recalled=self._state.is_recalled(self.cluster, node)):
                    with tracing.processing_span(RECALLS.name, "vk-bridge", about, trace):
                        again, rested = await self._reconcile_node_isolated(node)
                if again is not None:
                    self._add_to_queue(node, max(again, 0.001), pods_alone=True)
                for change in self._read_cache.end_work(node, rested):
                    self._queue_changed_node(node, change)
            finally:
                self._running -= 1
                self._rested.set()
                self._queue.finish_target(node)
                metrics.NODES_WAITING.labels(self.cluster).set(len(self._queue))

    async def _reconcile_node_isolated(self, name: str) -> tuple[float | None, NodeReading | None]:
        """Does the same as `_reconcile_node`; after an unexpected error only this node is read again, after a pause."""
        try:
            done = await self._reconcile_node(name)
        except Exception as error:
            self._whole.add(name)
            return self._failures.note_failure(name, error, cluster=self.cluster, node=name, epoch=self.epoch), None
        self._failures.reset_failures(name)
        return done

    async def _reconcile_node(self, name: str) -> tuple[float | None, NodeReading | None]:
        """Reads, decides and writes until nothing is left to do. Returns the seconds after which to look again.

        Also returns the last reading if nothing was left. After a write, the clusters' answers replace what was read.
        Steps that need a fresh reading get one.
        """
        settings, before = self._settings, None
        known, pods_alone = self._read_cache.begin_work(name), name not in self._whole
        self._whole.discard(name)
        reading = await self._read_node(name, known if pods_alone else None)
        for _ in range(settings.steps_max):
            self._read_cache.note_reading(reading)
            plan = self._plan_writes(reading)
            if not (reading.fresh or plan.bears_amendment):
                reading = await self._read_node(name)
                continue
            if plan == before:
                break  # The plan was carried out without a visible effect; a second try at once would not help.
            before, answers = plan, WriteAnswers()
            try:
                written, again = await self._carry_out_plan(plan, reading, answers)
            except Conflict as error:
                log.info(
                    "a write met a conflict: the object is read again",
                    cluster=self.cluster,
                    node=name,
                    error=str(error),
                )
                before, answers.incomplete = None, True
            except Refused as error:
                log.warning("refused", cluster=self.cluster, node=name, step=str(plan.step), error=str(error))
                return settings.refused_seconds, None
            except ClusterUnreachable:
                return settings.unread_seconds, None
            else:
                if not written:
                    self._restless.pop(name, None)
                    return again if reading.is_read_on_both_sides else settings.unread_seconds, reading
                if answers.put_off and not answers.incomplete and not isinstance(plan.step, Mark):
                    rested = self._reader.amended_reading(reading, answers, self._desired_loans.virtual_node_spec)
                    self._read_cache.note_reading(rested)
                    self._loan_reporter.note_observation(rested)
                    return None, rested
            reading = await self._next_reading(reading, answers)
        self._restless[name] = goes = self._restless.get(name, 0) + 1
        return doubled_pause_seconds(settings.retry_seconds, settings.retry_longest_seconds, goes - 1), None

    async def _next_reading(self, reading: NodeReading, answers: WriteAnswers) -> NodeReading:
        self._read_cache.note_versions(reading.name, answers.between)
        if answers.incomplete:
            return await self._read_node(reading.name)
        if answers.pods_unknown:
            return await self._reader.read_pods_again(reading, answers, self._desired_loans.virtual_node_spec)
        return self._reader.amended_reading(reading, answers, self._desired_loans.virtual_node_spec)

    async def _read_node(self, name: str, known: RestingNode | None = None) -> NodeReading:
        """Reads a node with the pool that its register names; reads again if that is not the expected pool.

        known: the last reading, if its nodes are unchanged. Then only pods are read, unless the pool joined or left.
        """
        pool_name = self._desired_loans.pool_of_node(name)
        pool = self._pool_in_fleet(pool_name)
        if known is not None and known.pool is pool:
            return await self._reader.read_pods(
                name, pool_name, pool, (known.node, known.virtual), self._desired_loans.virtual_node_spec
            )
        reading = await self._reader.read_node(name, pool_name, pool, self._desired_loans.virtual_node_spec)
        node = reading.observation.node
        if node is not None and node.pool and node.pool != pool_name:
            return await self._reader.read_node(
                name, node.pool, self._pool_in_fleet(node.pool), self._desired_loans.virtual_node_spec
            )
        return reading

    def _plan_writes(self, reading: NodeReading) -> NodePlan:
        """Returns the writes that are due now, and the time at which something is due without a change."""
        name, observation = reading.name, reading.observation
        self._loan_reporter.note_observation(reading)
        if not self._is_marked_or_lent(name):  # It was acknowledged as returned since it was read.
            self._copies.forget_references(name)
        elif observation.pool_read:
            self._copies.note_references(name, reading.side, reading.pool_pods.values())
        since = (
            self._first_observations.first_read_at(name, observation.node, observation.read_at)
            if observation.owner_read
            else observation.read_at
        )
        pool_joined, log_away = reading.pool is not None, self._records.is_log_away()
        left_in = self._loan_reporter.pools_with_left_node(name, log_away=log_away)
        desired = self._desired_loans.desired_loan_of_node(
            name, observation, self.next_generation(), pool_joined=pool_joined, log_away=log_away, left_in=left_in
        )
        step = next_step(observation, desired, since, self._settings.in_flight_seconds)
        context = node_context(observation, desired, self._desired_loans.grace_seconds(name, observation))
        pod_steps, failed = self._pod_writer.decide_steps(reading, context)
        wait_until = step.seconds if isinstance(step, WaitUntil) else None
        failed_until = asyncio.get_running_loop().time() + self._settings.refused_seconds if failed else None
        due = [at for at in (reading.due_at, wait_until, failed_until) if at is not None]
        bears = may_use_amended_reading(step, observation, reading.listed_at, since + self._settings.in_flight_seconds)
        return NodePlan(step, pod_steps, min(due, default=None), bears)

    async def _carry_out_plan(
        self, plan: NodePlan, reading: NodeReading, answers: WriteAnswers
    ) -> tuple[bool, float | None]:
        """Carries out a plan. Returns whether anything was written, and the seconds until something is due.

        If the node's step fails, no pod is evicted: pods evicted from an open virtual node would come back.
        """
        written = plan.step is not None and await self._carry_out_step(plan.step, reading, answers)
        counts, pod_steps = Counter[str](), plan.pod_steps
        if self._queue.rank_of_running(reading.name) >= Urgency.RECALLED and self._queue.has_waiting_target(
            Urgency.RECALLED
        ):
            pod_steps = steps_while_others_wait(plan.pod_steps)
        if pod_steps != plan.pod_steps:
            answers.put_off = True
            self._queue.add_target(reading.name, rank=Urgency.LEAVING)
        written_pods, waits = await self._pod_writer.carry_out_steps(
            pod_steps, reading, answers, partial(self._note_pod_write, reading, counts)
        )
        for name, pods in counts.items():
            log.info("carried out", step=name, pods=pods, cluster=self.cluster, node=reading.name, epoch=self.epoch)
        self._loan_reporter.publish_loan_change(reading)
        now = asyncio.get_running_loop().time()
        due = [plan.due_at - now] if plan.due_at is not None else []
        due += [self._settings.missing_seconds] if waits else []
        return written or written_pods, min(due, default=None)

    def _note_pod_write(self, reading: NodeReading, counts: Counter[str], step: PodStep) -> None:
        match step:
            case DeletePool(uid) | LetGo(uid):
                self._loan_reporter.note_eviction(reading, uid)
            case DeleteReal(uid, 0):
                self._loan_reporter.note_forced_deletion(reading, uid)
                self._reader.note_forced_deletion(reading.name, uid)
            case DeleteReal(uid):
                self._loan_reporter.note_eviction(reading, reading.real_pods[uid]["metadata"]["labels"][POOL_UID])
        if not isinstance(step, Mirror):
            counts[type(step).__name__] += 1

    async def _carry_out_step(self, step: Step, reading: NodeReading, answers: WriteAnswers) -> bool:
        kind = type(step).__name__
        try:
            written = await self._writer.carry_out_step(step, reading, answers)
        except (Conflict, Refused, ClusterUnreachable) as error:
            metrics.STEPS.labels(kind, type(error).__name__).inc()
            raise
        if written:
            metrics.STEPS.labels(kind, "done").inc()
            log.info("carried out", step=step_text(step), cluster=self.cluster, node=reading.name, epoch=self.epoch)
        if isinstance(step, ShowVirtual | CloseVirtual):
            self._reader.note_virtual_node_shown(reading.name)
        if isinstance(step, Mark) and step.state == OWNED:
            self._desired_loans.forget_verdict(reading.name)
        return written

    # ── The log ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _apply_acknowledged_record(self, record: NodeLent | NodeReturned) -> None:
        """Applies an acknowledged record. Queues the node only if facts have changed that its next step depends on."""
        before = self._state.facts_for_next_step(self.cluster, record.node)
        self._loan_reporter.apply_acknowledged_record(record)
        if isinstance(record, NodeReturned):
            self._read_cache.forget_node(record.node)
            self._copies.forget_references(record.node)
            self._copy_tender.note_lending_changed()
            self._restless.pop(record.node, None)
        if self._state.facts_for_next_step(self.cluster, record.node) != before:
            self.queue_node(record.node)
