"""Keeps the log's newest records of lending: rules, recalls, loans, and the pods that wait for nodes."""

from collections.abc import Iterator, Sequence, Set

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
from spillway.events import (
    PHASE_LEAVING,
    BrakeReleased,
    BrakeSet,
    CapacityNeeded,
    ClusterJoined,
    ClusterLeft,
    Event,
    PodsScheduled,
    PodsUnschedulable,
    WorkloadDeclared,
)
from spillway.events_lending import (
    LendingDeclared,
    NodeLent,
    NodeRecalled,
    NodeReturned,
    RecallSettled,
)
from spillway.kubernetes.pod_shape import declared_shape
from spillway.lending_marks import LENT
from spillway.model import Generation, Shape
from spillway.scopes import FLEET_SCOPE, cluster_scope

Loan = NodeLent | NodeReturned


class LendingLogState:
    """The log's state of lending. Only apply_event, apply_tombstone and note_swept change it; other code only reads.

    loans: the last record of each node's loan, by cluster and node.
    recalls: the open and the settled recalls, by cluster and node.
    """

    def __init__(self) -> None:
        self.clusters: dict[str, ClusterJoined] = {}
        self.declared: dict[str, LendingDeclared] = {}
        self.loans: dict[str, dict[str, Loan]] = {}
        self.recalls: dict[str, dict[str, NodeRecalled | RecallSettled]] = {}
        self.brakes: set[str] = set()
        self._pending: dict[str, dict[str, PodsUnschedulable]] = {}
        self._needed: dict[str, dict[tuple[str, str], CapacityNeeded]] = {}
        self._manifests: dict[tuple[str, str], bytes] = {}
        self._lending_changes: dict[str, int] = {}
        self._stale_last: dict[str, set[str]] = {}
        """By cluster: the nodes whose last loan record in the log has an older epoch than the valid record."""
        self._swept: dict[str, int] = {}
        """By cluster: the value of lending_change_count when a sweep found no copies and namespaces of pool pods
        there."""

    # ── What a decision asks ────────────────────────────────────────────────────────────────────────────────────

    def has_work_in_cluster(self, cluster: str) -> bool:
        """Returns whether a bridge has anything to do at this cluster.

        This is so if the cluster has a lending rule (even a paused one), has loans, or may hold objects that pool pods
        needed. It is also so if it left a virtual node in a pool, or if one of its loan records must be written again.
        """
        return (
            cluster in self.declared
            or self._has_loans(cluster)
            or self.needs_sweep(cluster)
            or any(True for _ in self.left_virtual_nodes(cluster))
            or bool(self.nodes_with_stale_record(cluster))
        )

    def nodes_with_stale_record(self, cluster: str) -> Set[str]:
        """Returns the nodes whose loan record must be written again: a bridge whose turn was over wrote after it."""
        return self._stale_last.get(cluster, frozenset())

    def lends_nothing(self, cluster: str) -> bool:
        """Returns whether the cluster lends no node and will lend none, so that no pool pod needs its objects there."""
        return self.lending_in_force(cluster) is None and not self._has_loans(cluster)

    def needs_sweep(self, cluster: str) -> bool:
        """Returns whether a cluster that lends nothing any more may still hold copies and namespaces of pool pods.

        The result of a sweep is not in the log. So each process that gets the turn makes one sweep.
        """
        lent_once = bool(self.loans.get(cluster))
        return (
            lent_once and self.lends_nothing(cluster) and self._swept.get(cluster) != self.lending_change_count(cluster)
        )

    def lending_change_count(self, cluster: str) -> int:
        """Returns the number of records about this cluster's lending so far: rules, loan records, and its joining."""
        return self._lending_changes.get(cluster, 0)

    def note_swept(self, cluster: str, changes: int) -> None:
        """Records that a sweep found no copy of ours, so that none is made before the cluster's lending changes.

        changes: the value of lending_change_count before the sweep.
        """
        self._swept[cluster] = changes

    def left_virtual_nodes(self, cluster: str) -> Iterator[tuple[str, str]]:
        """Yields node and pool of virtual nodes that may be left in a pool that has joined again."""
        for node, said in self.loans.get(cluster, {}).items():
            yield from ((node, pool) for pool in said.left_in if pool in self.clusters)

    def pools_with_left_node(self, cluster: str, node: str) -> tuple[str, ...]:
        """Returns the pools in which a virtual node of this node may remain."""
        said = self.loans.get(cluster, {}).get(node)
        return said.left_in if said is not None else ()

    def lending_in_force(self, cluster: str) -> LendingDeclared | None:
        """Returns the declaration by which a cluster lends; None if it must not lend.

        A cluster does not lend without a lending rule, with a withdrawn rule, or while it or its pool is leaving.
        """
        declared = self.declared.get(cluster)
        if declared is None or declared.withdrawing or self._is_leaving(cluster) or self._is_leaving(declared.pool):
            return None
        return declared

    def is_frozen(self, cluster: str) -> bool:
        return not self.brakes.isdisjoint((FLEET_SCOPE, cluster_scope(cluster)))

    def lent_record(self, cluster: str, node: str) -> NodeLent | None:
        """Returns the NodeLent of this node, if it is the last loan record in the log."""
        found = self.loans.get(cluster, {}).get(node)
        return found if isinstance(found, NodeLent) else None

    def lacks_loan(self, cluster: str, node: str, state: str, loan: Generation | None) -> bool:
        """Returns whether the log lacks the loan of a node that is marked as lent. Then the node does not open.

        state, loan: from the node's marks.
        """
        return state == LENT and self.loan_generation(cluster, node) != loan

    def loan_generation(self, cluster: str, node: str) -> Generation | None:
        """Returns the generation of the loan that the log has as lent."""
        found = self.lent_record(cluster, node)
        return found.loan if found is not None else None

    def returned_ms(self, cluster: str, node: str) -> int | None:
        """Returns the Unix time at which the node's last loan ended; None: the log has no ended loan."""
        found = self.loans.get(cluster, {}).get(node)
        return found.returned_ms if isinstance(found, NodeReturned) else None

    def ended_loans_of_left_clusters(self, before_ms: int) -> Iterator[tuple[str, str]]:
        """Yields cluster and node of loans that ended before this Unix time, if the cluster is no longer in the fleet.

        Loans that may have left a virtual node in a pool are not among them.
        """
        for cluster, loans in self.loans.items():
            for node, said in loans.items() if cluster not in self.clusters else ():
                if isinstance(said, NodeReturned) and not said.left_in and said.returned_ms < before_ms:
                    yield cluster, node

    def facts_for_next_step(self, cluster: str, node: str) -> tuple[Generation | None, tuple[str, ...]]:
        """Returns the facts in the node's last record on which its next step depends."""
        return self.loan_generation(cluster, node), self.pools_with_left_node(cluster, node)

    def recall_of(self, cluster: str, node: str, loan: Generation | None) -> NodeRecalled | None:
        """Returns the recall of exactly this loan."""
        found = self.recalls.get(cluster, {}).get(node)
        return found if isinstance(found, NodeRecalled) and loan is not None and found.loan == loan else None

    def is_recalled(self, cluster: str, node: str) -> bool:
        """Returns whether the node has an open recall, for any of its loans."""
        return isinstance(self.recalls.get(cluster, {}).get(node), NodeRecalled)

    def needed_shapes(self, cluster: str) -> Sequence[Shape | None]:
        """Returns the shapes that waiting pods and replicas ask for in a cluster; None in place of an unknown shape."""
        shapes = [waits.shape for waits in self._pending.get(cluster, {}).values() if waits.pods]
        for (namespace, name), needed in self._needed.get(cluster, {}).items():
            if needed.replicas_lent or needed.replicas_new:
                manifest = self._manifests.get((namespace, name))
                shapes.append(declared_shape(manifest, namespace) if manifest is not None else None)
        return shapes

    # ── What the log says ───────────────────────────────────────────────────────────────────────────────────────

    def apply_event(self, event: Event) -> str:
        """Applies one record, unless a newer one is known. Returns the cluster that it is about, "" for all."""
        match event:
            case ClusterJoined():
                if event.cluster not in self.clusters:
                    self._count_change(event.cluster)
                self.clusters[event.cluster] = event
            case ClusterLeft():
                self.clusters.pop(event.cluster, None)
            case LendingDeclared():
                known = self.declared.get(event.cluster)
                if known is None or known.generation <= event.generation:
                    self.declared[event.cluster] = event
                    self._count_change(event.cluster)
            case NodeLent() | NodeReturned():
                self._apply_loan(event)
            case NodeRecalled() | RecallSettled():
                self._apply_recall(event)
            case PodsUnschedulable() | PodsScheduled():
                self._apply_waiting_pods(event)
            case CapacityNeeded():
                self._apply_capacity_need(event)
            case WorkloadDeclared():
                self._manifests[event.namespace, event.name] = event.manifest
            case BrakeSet() | BrakeReleased():
                (self.brakes.add if isinstance(event, BrakeSet) else self.brakes.discard)(event.scope)
        return getattr(event, "cluster", "")

    def apply_tombstone(self, topic: str, key: str) -> str:
        """Applies a tombstone. Returns the cluster that it is about, "" for all."""
        first, _, rest = key.partition("/")
        if topic == CAPACITY_NEEDED.name:
            name, _, cluster = rest.partition("/")
            self._needed.get(cluster, {}).pop((first, name), None)
            return cluster
        if topic == WORKLOADS.name:
            self._manifests.pop((first, rest), None)
        elif topic == BRAKES.name:
            self.brakes.discard(key)
        if topic in (WORKLOADS.name, BRAKES.name):
            return ""
        if topic == CLUSTERS.name:
            self.clusters.pop(key, None)
        elif topic == LENDING_RULES.name:
            self.declared.pop(key, None)
        elif topic == LENDING.name:
            self.loans.get(first, {}).pop(rest, None)
            self._stale_last.get(first, set()).discard(rest)
        elif topic == RECALLS.name:
            self.recalls.get(first, {}).pop(rest, None)
        elif topic == PENDING.name:
            self._pending.get(first, {}).pop(rest, None)
        return first

    def _has_loans(self, cluster: str) -> bool:
        """Returns whether the cluster has loans that are not over."""
        return any(isinstance(one, NodeLent) for one in self.loans.get(cluster, {}).values())

    def _count_change(self, cluster: str) -> None:
        self._lending_changes[cluster] = self.lending_change_count(cluster) + 1

    def _is_leaving(self, cluster: str) -> bool:
        joined = self.clusters.get(cluster)
        return joined is not None and joined.phase == PHASE_LEAVING

    def _apply_loan(self, event: Loan) -> None:
        loans = self.loans.setdefault(event.cluster, {})
        known = loans.get(event.node)
        if known is None or (known.epoch, known.sequence) <= (event.epoch, event.sequence):
            if known != event:  # A bridge applies its own record twice: when it is acknowledged and when it is read.
                self._count_change(event.cluster)
            loans[event.node] = event
            self._stale_last.get(event.cluster, set()).discard(event.node)
        elif event.epoch < known.epoch:
            self._stale_last.setdefault(event.cluster, set()).add(event.node)

    def _apply_recall(self, event: NodeRecalled | RecallSettled) -> None:
        recalls = self.recalls.setdefault(event.cluster, {})
        known = recalls.get(event.node)
        if known is None or known.generation <= event.generation:
            recalls[event.node] = event

    def _apply_waiting_pods(self, event: PodsUnschedulable | PodsScheduled) -> None:
        groups = self._pending.setdefault(event.cluster, {})
        known = groups.get(event.group)
        if known is not None and (known.epoch, known.sequence) > (event.epoch, event.sequence):
            return
        if isinstance(event, PodsUnschedulable):
            groups[event.group] = event
        else:
            groups.pop(event.group, None)

    def _apply_capacity_need(self, event: CapacityNeeded) -> None:
        needs, key = self._needed.setdefault(event.cluster, {}), (event.namespace, event.name)
        known = needs.get(key)
        if known is None or known.generation <= event.generation:
            needs[key] = event
