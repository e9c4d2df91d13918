"""Publishes the loans of a cluster: NodeLent while a loan lasts, NodeReturned when it ends. Also keeps their gauges."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

import msgspec
import structlog

from spillway.events_lending import LOAN_LENT, Amounts, LentPod, NodeLent, NodeReturned
from spillway.kubernetes import objects
from spillway.kubernetes.objects import object_decoder
from spillway.lending_marks import CHECKING, LENT, RECALLED, virtual_node_name
from spillway.model import Generation
from vk_bridge import metrics
from vk_bridge.cluster.node_reader import NodeReading
from vk_bridge.cluster.version_cache import VersionCache
from vk_bridge.core.log_state import LendingLogState
from vk_bridge.core.node.history import LoanHistory, LoanTerms, is_worth_publishing
from vk_bridge.core.node.loan import Manifest
from vk_bridge.core.node.recall_waiting_text import recall_waiting_text
from vk_bridge.core.pod.lent_pod import make_lent_pod, pods_within_record_limit
from vk_bridge.core.pod.parsing import has_ended
from vk_bridge.core.selection.desired_loans import DesiredLoans
from vk_bridge.core.selection.owner_cache import OwnerCache
from vk_bridge.log.record_writer import Records

_POD = object_decoder(objects.PODS)
log = structlog.get_logger()


class LoanReporter:
    """Reports the loans of one cluster in one epoch. wall_ms: returns the Unix time for records."""

    def __init__(
        self,
        cluster: str,
        state: LendingLogState,
        desired_loans: DesiredLoans,
        records: Records,
        next_generation: Callable[[], Generation],
        wall_ms: Callable[[], int],
    ) -> None:
        self._cluster = cluster
        self._state = state
        self._desired_loans = desired_loans
        self._records = records
        self._next_generation = next_generation
        self._wall_ms = wall_ms
        self._history = LoanHistory()
        self._requests = VersionCache[Amounts]()
        self._measured_at: float | None = None
        self._counted: dict[str, Generation] = {}
        """The last loan of each node whose end was counted."""
        self._classes: set[str] = set()

    def recover_loans(self) -> None:
        """Takes over, from the log, loans that another instance began and ends that it has counted in the metrics."""
        for said in self._state.loans.get(self._cluster, {}).values():
            if isinstance(said, NodeLent):
                self._history.recover_loan(said)
            elif said.returned_ms:
                self._counted[said.node] = said.loan

    def nodes_to_forget(self, owner_cache: OwnerCache, forget_seconds: float) -> list[str]:
        """Returns nodes that are gone and whose last loan ended over forget_seconds ago: their records can be deleted.

        Returns an empty list while the cluster still has to be swept, because only its loan records show that.
        """
        if self._state.needs_sweep(self._cluster):
            return []
        now_ms = self._wall_ms()
        return [
            name
            for name, said in self._state.loans.get(self._cluster, {}).items()
            if isinstance(said, NodeReturned)
            and not said.left_in
            and name not in owner_cache.nodes
            and now_ms - said.returned_ms > forget_seconds * 1000
        ]

    # ── What is seen ────────────────────────────────────────────────────────────────────────────────────────────

    def note_observation(self, reading: NodeReading) -> None:
        self._history.note_observation(reading.name, reading.observation, self._wall_ms())

    def note_eviction(self, reading: NodeReading, uid: str) -> None:
        """Counts the work that is lost because a pool pod, or its real pod, is evicted now.

        A pod that was already terminating or has ended loses nothing.
        """
        pod = reading.pool_pods.get(uid)
        if pod is None or pod["metadata"].get("deletionTimestamp") or has_ended(pod):
            return
        requests = _pod_requests(reading.real_by_pool_uid.get(uid, pod))
        self._history.note_eviction(reading.name, _make_lent_pod(reading, pod, requests), self._wall_ms())

    def note_forced_deletion(self, reading: NodeReading, uid: str) -> None:
        """Counts a real pod that has outlived its grace and was deleted by force."""
        self._history.note_forced_deletion(reading.name, uid)

    # ── What is said ────────────────────────────────────────────────────────────────────────────────────────────

    def publish_node_lent(self, reading: NodeReading, loan: Generation) -> None:
        waiting = self._records.waiting_record(reading.name)
        if isinstance(waiting, NodeLent) and waiting.loan == loan:
            return
        record = self._lent_record_of_reading(reading)
        if record is not None:
            self._records.queue_loan_record(record)

    def publish_virtual_node_cleared(self, node: str, pool: str) -> None:
        """Publishes that the node has no virtual node left in a pool that had left the fleet during its loan."""
        said, number = self._last_record_of_node(node), self._next_generation()
        if said is not None and pool in said.left_in:
            left_in = tuple(name for name in said.left_in if name != pool)
            self._records.queue_loan_record(
                replace(said, epoch=number.epoch, sequence=number.sequence, left_in=left_in)
            )

    def pools_with_left_node(self, node: str, *, log_away: bool) -> tuple[str, ...]:
        """Returns the pools in which a virtual node of this node may remain.

        The log decides; while it is away, the records that wait for it count, too.
        """
        return (
            self._pools_with_left_node_by_last_record(node)
            if log_away
            else self._state.pools_with_left_node(self._cluster, node)
        )

    def publish_left_virtual_node(self, reading: NodeReading, loan: Generation, pool: str) -> None:
        """Publishes that a virtual node may remain in this pool.

        loan: the loan it was created for; the log may not know it.
        """
        name, number = reading.name, self._next_generation()
        said = self._last_record_of_node(name)
        if said is None:
            terms = replace(self._terms_of_loan(reading, loan), pool=pool)
            said = LoanHistory().returned_record_to_publish(terms, number, loan, at_ms=0)
        if pool not in said.left_in:
            left_in = tuple(sorted({*said.left_in, pool}))
            self._records.queue_loan_record(
                replace(said, epoch=number.epoch, sequence=number.sequence, left_in=left_in)
            )

    def publish_node_returned(self, reading: NodeReading, loan: Generation) -> None:
        waiting = self._records.waiting_record(reading.name)
        if isinstance(waiting, NodeReturned) and waiting.loan == loan:
            return
        terms, number = self._terms_of_loan(reading, loan), self._next_generation()
        record = self._history.returned_record_to_publish(terms, number, loan, self._wall_ms())
        given_up = {terms.pool} if reading.pool is None else set[str]()
        left_in = sorted({*self._pools_with_left_node_by_last_record(reading.name), *given_up} - {""})
        self._records.queue_loan_record(replace(record, left_in=tuple(left_in)))

    def publish_loan_change(self, reading: NodeReading) -> None:
        """Publishes the loan's new state, if the log has the loan and its record differs."""
        said = self._records.waiting_record(reading.name) or self._state.lent_record(self._cluster, reading.name)
        if not isinstance(said, NodeLent):
            return
        now = self._lent_record_of_reading(reading)
        if now is not None and now.loan == said.loan and is_worth_publishing(said, now):
            self._records.queue_loan_record(now)

    def apply_acknowledged_record(self, record: NodeLent | NodeReturned) -> None:
        """Applies a record that is now in the log, and counts the end of a loan once in the metrics."""
        self._state.apply_event(record)
        if isinstance(record, NodeReturned):
            self._history.forget_loan(record.node)
            # A record that was published again is not counted again.
            if record.returned_ms and self._counted.get(record.node) != record.loan:
                self._counted[record.node] = record.loan
                self._count_return(record)

    def _lent_record_of_reading(self, reading: NodeReading) -> NodeLent | None:
        """Returns the NodeLent of this reading. Fields that could not be read keep their last published value."""
        node = reading.observation.node
        said = self._state.lent_record(self._cluster, reading.name)
        loan = node.loan if node is not None and node.loan is not None else said.loan if said is not None else None
        if loan is None:
            return None
        pods = self._pods_for_record(reading)
        offered = tuple(sorted(reading.amounts.items()))
        if said is not None and not reading.is_read_on_both_sides:
            pods, offered = said.pods, said.offered
        elif said is not None and node is None:
            offered = said.offered
        terms = self._terms_of_loan(reading, loan)
        record = self._history.lent_record_to_publish(
            terms, self._next_generation(), offered, pods, recall_waiting_text(reading.observation)
        )
        left_in = tuple(pool for pool in self._pools_with_left_node_by_last_record(reading.name) if pool != terms.pool)
        return replace(record, left_in=left_in) if record is not None else None

    def _pods_for_record(self, reading: NodeReading) -> tuple[LentPod, ...]:
        """Returns the pool pods that have not ended, or whose real pod has not.

        Each one has the requests of its real pod; none if there is no real pod yet.
        """
        real = {uid: pod for uid, pod in reading.real_by_pool_uid.items() if not has_ended(pod)}
        versions = {uid: pod["metadata"]["resourceVersion"] for uid, pod in real.items()}
        held = self._requests.value_by_uid(reading.name, versions, lambda uid: _pod_requests(real[uid]))
        pool_pods = ((uid, pod) for uid, pod in reading.pool_pods.items() if uid in real or not has_ended(pod))
        lent = (_make_lent_pod(reading, pod, held.get(uid, ())) for uid, pod in pool_pods)
        return pods_within_record_limit(lent)

    def _pools_with_left_node_by_last_record(self, node: str) -> tuple[str, ...]:
        said = self._last_record_of_node(node)
        return said.left_in if said is not None else ()

    def _last_record_of_node(self, node: str) -> NodeLent | NodeReturned | None:
        return self._records.waiting_record(node) or self._state.loans.get(self._cluster, {}).get(node)

    def _terms_of_loan(self, reading: NodeReading, loan: Generation) -> LoanTerms:
        """Returns the terms with which the loan began; if the log lacks the loan, by the present lending rule."""
        said = self._state.lent_record(self._cluster, reading.name)
        if said is not None and said.loan == loan:
            return LoanTerms(self._cluster, reading.name, said.pool, said.virtual_node, said.rule, said.supply_class)
        labels = reading.node["metadata"].get("labels") or {} if reading.node is not None else {}
        rule = self._desired_loans.lending_rule_for_labels(labels)
        virtual = virtual_node_name(self._cluster, reading.name)
        return LoanTerms(self._cluster, reading.name, reading.side.pool_id, virtual, rule.name, rule.supply_class)

    # ── What is counted ─────────────────────────────────────────────────────────────────────────────────────────

    def update_core_metrics(self, owner_cache: OwnerCache, now: float) -> None:
        """Sets the gauges of lent cores, and adds the core seconds since the last call."""
        cores: dict[str, float] = {}
        for said in self._state.loans.get(self._cluster, {}).values():
            cores.setdefault(said.supply_class, 0.0)
            if isinstance(said, NodeLent) and said.state == LOAN_LENT:
                cores[said.supply_class] += dict(said.offered).get("cpu", 0) / 1000
        passed = now - self._measured_at if self._measured_at is not None else 0.0
        self._measured_at = now
        for supply_class, amount in cores.items():
            metrics.CORE_SECONDS_LENT.labels(self._cluster, supply_class).inc(amount * passed)
        states = Counter(known.register.state for known in owner_cache.nodes.values())
        self._set_gauges(cores, states)

    def reset_gauges(self) -> None:
        """Resets the gauges. The cluster's next worker sets them; a sum over both would count everything twice."""
        self._set_gauges({}, {})

    def _set_gauges(self, cores: Mapping[str, float], states: Mapping[str, int]) -> None:
        self._classes |= cores.keys()
        for supply_class in self._classes:
            metrics.CORES_LENT.labels(self._cluster, supply_class).set(cores.get(supply_class, 0.0))
        for state in (CHECKING, LENT, RECALLED):
            metrics.NODES_ON_LOAN.labels(self._cluster, state).set(states.get(state, 0))

    def _count_return(self, record: NodeReturned) -> None:
        whose = self._cluster, record.supply_class
        metrics.RETURNS.labels(*whose, record.cause).inc()
        if record.recalled_ms:
            metrics.RETURN_SECONDS.labels(*whose).observe(max(0, record.returned_ms - record.recalled_ms) / 1000)
        metrics.PODS_EVICTED.labels(*whose).inc(record.evicted)
        metrics.PODS_FORCED.labels(*whose).inc(record.forced)
        metrics.LOST_CORE_SECONDS.labels(*whose).inc(record.lost_core_seconds)
        log.info(
            "returned", cluster=record.cluster, node=record.node, cause=record.cause, evicted=record.evicted,
            milliseconds=record.returned_ms - record.recalled_ms,
        )  # fmt: skip


def _make_lent_pod(reading: NodeReading, pod: Manifest, requests: Amounts) -> LentPod:
    return make_lent_pod(pod, requests, reading.pool.budgets.budgets_of_pod(pod) if reading.pool is not None else ())


def _pod_requests(pod: Manifest) -> Amounts:
    """Returns a pod's requests in the units of Shape, plus 1 for "pods"; only "pods" if they cannot be read."""
    found = _POD.decode(msgspec.json.encode(pod))
    return tuple(sorted({**(objects.pod_requests_or_none(found.spec, found.status) or {}), "pods": 1}.items()))
