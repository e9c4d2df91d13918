"""Keeps the log's state of lending: needs in clusters, lent and recalled nodes, and the declarations."""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import replace

from descheduler.core.rules import LendingRules, is_recent
from spillway.addresses import BRAKES, CAPACITY_NEEDED, CLUSTERS, LENDING, LENDING_RULES, PENDING, RECALLS, WORKLOADS
from spillway.events import (
    BrakeReleased,
    BrakeSet,
    CapacityChanged,
    CapacityNeeded,
    CapacityReported,
    ClusterJoined,
    ClusterLeft,
    Event,
    PodsScheduled,
    PodsUnschedulable,
    TurnTaken,
    WorkloadDeclared,
)
from spillway.events_lending import (
    CAUSE_NEED,
    LOAN_LENT,
    LendingDeclared,
    NodeLent,
    NodeRecalled,
    NodeReturned,
    NodeUsed,
    RecallSettled,
)
from spillway.feasibility.cluster_view import NEVER, ClusterView
from spillway.kubernetes.term_bounds import asks_too_many_terms
from spillway.model import NodeColumns
from spillway.scopes import FLEET_SCOPE, cluster_scope

ANY_NUMBER = 2**31
"""The number of replicas that a need is promised for if the recall's record does not say it."""
MINUTE_MS = 60_000
NodeKey = tuple[str, str]
"""Cluster and node."""


class DeschedulerState:
    """The state of all clusters. Only apply_event and apply_tombstone change the facts from the log.

    loans: the last record of each node's loan.
    recalls: the open and the settled recalls.
    dirty: clusters that changed since they were last decided on. The decision clears it.
    used: the hours of each node, in order of time.
    """

    def __init__(self, rules: LendingRules) -> None:
        self.rules = rules
        self.views: dict[str, ClusterView] = {}
        self.declared: dict[str, LendingDeclared] = {}
        self.loans: dict[str, dict[str, NodeLent | NodeReturned]] = {}
        self.recalls: dict[str, dict[str, NodeRecalled | RecallSettled]] = {}
        self.needed: dict[str, dict[tuple[str, str], CapacityNeeded]] = {}
        self.manifests: dict[tuple[str, str], bytes] = {}
        self.brakes: set[str] = set()
        self.used: dict[NodeKey, dict[int, NodeUsed]] = {}
        self.dirty: set[str] = set()
        self.promised: dict[str, dict[str, dict[str, int]]] = {}
        """Replicas by need, by cluster and by node recalled for needs. ANY_NUMBER if the recall does not have the
        number."""
        self.held_since_ms: dict[NodeKey, int] = {}
        """The Unix time since which a budget has kept a node from being recalled."""
        self.needs_recalled_ms: dict[str, deque[int]] = {}
        """The times at which nodes were recalled for needs within the last minute, by cluster."""

    # ── What a decision asks ────────────────────────────────────────────────────────────────────────────────────

    def view_of_cluster(self, cluster: str) -> ClusterView:
        """Returns the view of a cluster's capacity and pending pods, an empty one for an unknown cluster."""
        found = self.views.get(cluster)
        if found is None:
            found = self.views[cluster] = ClusterView(cluster)
        return found

    def is_frozen(self, cluster: str) -> bool:
        """Returns whether a brake is set on the fleet or the cluster."""
        return not self.brakes.isdisjoint((FLEET_SCOPE, cluster_scope(cluster)))

    def open_loans_by_node(self, cluster: str) -> Mapping[str, NodeLent]:
        """Returns the loans of a cluster that are not over, by node. Recalled ones are included."""
        return {node: loan for node, loan in self.loans.get(cluster, {}).items() if isinstance(loan, NodeLent)}

    def recall_of(self, cluster: str, node: str) -> NodeRecalled | None:
        """Returns the open recall of the node's present loan; None when there is none."""
        recall, loan = self.recalls.get(cluster, {}).get(node), self.loans.get(cluster, {}).get(node)
        if not isinstance(recall, NodeRecalled) or loan is None or recall.loan != loan.loan:
            return None
        return recall

    def is_returning(self, cluster: str, loan: NodeLent) -> bool:
        """Returns whether a loan is on its way back already."""
        return loan.state != LOAN_LENT or self.recall_of(cluster, loan.node) is not None

    def open_recalls(self) -> Iterator[NodeRecalled]:
        """Yields all recalls that are not settled."""
        for recalls in self.recalls.values():
            for recall in recalls.values():
                if isinstance(recall, NodeRecalled):
                    yield recall

    def mark_all_dirty(self) -> None:
        """Marks all clusters as changed, because time alone may have changed a decision."""
        self.dirty.update(self.loans.keys() | self.recalls.keys() | self.declared.keys())

    # ── What the log says ───────────────────────────────────────────────────────────────────────────────────────

    def apply_event(
        self, event: Event, now: float = NEVER, offset: int = 0, columns: NodeColumns | None = None
    ) -> None:
        """Applies one record, or drops it when it is older than the known one.

        columns: the columns of a capacity record.
        """
        match event:
            case CapacityReported() | CapacityChanged():
                assert columns is not None
                self._apply_capacity(event, now, offset, columns)
            case TurnTaken(service="snapshot") if event.cluster in self.views:
                self.views[event.cluster].apply_turn_claim(offset)
            case PodsUnschedulable() | PodsScheduled():
                self.view_of_cluster(event.cluster).apply_pending_pods(_without_large_shape(event))
                self.dirty.add(event.cluster)
            case CapacityNeeded():
                self._apply_need(event)
            case WorkloadDeclared():
                self.manifests[event.namespace, event.name] = event.manifest
            case NodeLent() | NodeReturned():
                self._apply_loan(event)
            case NodeRecalled() | RecallSettled():
                self._apply_recall(event)
            case LendingDeclared():
                self._apply_declaration(event)
            case NodeUsed():
                self._apply_usage(event)
            case BrakeSet() | BrakeReleased():
                self._apply_brake(event)
            case ClusterJoined():
                self.view_of_cluster(event.cluster).apply_cluster_joined(event)
                self.dirty.add(event.cluster)
            case ClusterLeft():
                self._forget_joined_cluster(event.cluster)

    def apply_tombstone(self, topic: str, key: str) -> None:
        """Applies a tombstone: removes the facts of the record with this key."""
        first, _, rest = key.partition("/")
        if topic == PENDING.name and first in self.views:
            self.views[first].pending.pop(rest, None)
        elif topic == LENDING.name and rest:
            self.loans.get(first, {}).pop(rest, None)
        elif topic == RECALLS.name:
            self.recalls.get(first, {}).pop(rest, None)
            self.promised.get(first, {}).pop(rest, None)
        elif topic == LENDING_RULES.name:
            self.declared.pop(first, None)
        elif topic == WORKLOADS.name:
            self.manifests.pop((first, rest), None)
        elif topic == CAPACITY_NEEDED.name:
            name, _, cluster = rest.partition("/")
            self.needed.get(cluster, {}).pop((first, name), None)
            first = cluster
        elif topic == BRAKES.name:
            self.brakes.discard(key)
            self.dirty.update(self.views)
        elif topic == CLUSTERS.name:
            self._forget_joined_cluster(first)
        self.dirty.add(first)

    def _apply_capacity(
        self, event: CapacityReported | CapacityChanged, now: float, offset: int, columns: NodeColumns
    ) -> None:
        view = self.view_of_cluster(event.cluster)
        before = view.revision
        if isinstance(event, CapacityReported):
            view.apply_capacity_reported(event, columns)
        else:
            view.apply_capacity_changed(event, columns, now, offset)
        if view.revision != before:
            self.dirty.add(event.cluster)

    def _apply_need(self, event: CapacityNeeded) -> None:
        needs, key = self.needed.setdefault(event.cluster, {}), (event.namespace, event.name)
        known = needs.get(key)
        if known is None or known.generation <= event.generation:
            needs[key] = event
            self.dirty.add(event.cluster)

    def _apply_loan(self, event: NodeLent | NodeReturned) -> None:
        loans = self.loans.setdefault(event.cluster, {})
        known = loans.get(event.node)
        if known is None or (known.epoch, known.sequence) <= (event.epoch, event.sequence):
            loans[event.node] = event
            self.dirty.add(event.cluster)

    def _apply_recall(self, event: NodeRecalled | RecallSettled) -> None:
        recalls = self.recalls.setdefault(event.cluster, {})
        known = recalls.get(event.node)
        if known is None or known.generation <= event.generation:
            recalls[event.node] = event
            self.dirty.add(event.cluster)
            is_new = known is None or known.generation < event.generation
            if is_new and isinstance(event, NodeRecalled) and event.cause == CAUSE_NEED:
                self._count_recall(event)
            if isinstance(event, NodeRecalled) and event.wanted_by:
                # Records of former versions name the needs without their numbers of replicas.
                known_each = len(event.wanted_replicas) == len(event.wanted_by)
                counts = event.wanted_replicas if known_each else (ANY_NUMBER,) * len(event.wanted_by)
                needs = {name.partition("/")[2]: count for name, count in zip(event.wanted_by, counts, strict=True)}
                self.promised.setdefault(event.cluster, {})[event.node] = needs

    def _count_recall(self, event: NodeRecalled) -> None:
        recent = self.needs_recalled_ms.setdefault(event.cluster, deque())
        recent.append(event.at_ms)
        while not is_recent(recent[0], event.at_ms, MINUTE_MS):
            recent.popleft()

    def _apply_declaration(self, event: LendingDeclared) -> None:
        known = self.declared.get(event.cluster)
        if known is None or known.generation <= event.generation:
            self.declared[event.cluster] = event
            self.dirty.add(event.cluster)

    def _apply_usage(self, event: NodeUsed) -> None:
        hours = self.used.setdefault((event.cluster, event.node), {})
        known = hours.get(event.from_ms)
        if known is None or (known.epoch, known.sequence) <= (event.epoch, event.sequence):
            hours[event.from_ms] = event
            while len(hours) > self.rules.usage_hours:
                del hours[min(hours)]

    def _apply_brake(self, event: BrakeSet | BrakeReleased) -> None:
        if isinstance(event, BrakeSet):
            self.brakes.add(event.scope)
        else:
            self.brakes.discard(event.scope)
        self.dirty.update(self.views)

    def _forget_joined_cluster(self, cluster: str) -> None:
        """Forgets that the cluster joined, and its pending pods. Its loans stay: records of their own end them."""
        view = self.views.get(cluster)
        if view is not None:
            view.joined = None
            view.pending.clear()


def _without_large_shape(event: PodsUnschedulable | PodsScheduled) -> PodsUnschedulable | PodsScheduled:
    """Drops a shape beyond the bounds, which an older log may contain. The pods still count as waiting."""
    if isinstance(event, PodsUnschedulable) and event.shape is not None and asks_too_many_terms(event.shape):
        return replace(event, shape=None)
    return event
