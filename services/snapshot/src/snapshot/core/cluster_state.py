"""Combines the streams of one cluster into node rows, workload facts and groups of waiting pods.

Each stream is in order, but the streams are not in order with each other. A pod may be seen before its node, its
ReplicaSet or its workload. So sums are kept by name or uid, and joined when they are read.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from snapshot.core.namespaces import NamespaceTable
from snapshot.core.nodes import NodeTable
from snapshot.core.pod_details import PodDetails
from snapshot.core.pods import NodeLoad, Pods
from snapshot.core.rules import SnapshotRules
from snapshot.core.waiting_groups import WaitingGroup, WaitingGroups
from snapshot.core.workloads import WorkloadKey, WorkloadTable
from spillway.amounts import clamp_amount
from spillway.kubernetes.objects import (
    DEPLOYMENTS,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    REPLICASETS,
    RESOURCE_QUOTAS,
    STATEFULSETS,
    VOLUME_CLAIMS,
    VOLUMES,
    Kind,
)
from spillway.lending_marks import loan_state_from_taints
from spillway.model import NODE_OWNED, LabelSet, NamespaceFacts, NodeRow, PodTable, WorkloadFacts

WORKLOAD_KINDS = (DEPLOYMENTS, STATEFULSETS, JOBS)
KINDS = (NODES, PODS, REPLICASETS, *WORKLOAD_KINDS, NAMESPACES, RESOURCE_QUOTAS, VOLUMES, VOLUME_CLAIMS)
NOT_VITAL = (VOLUMES, VOLUME_CLAIMS)
"""The kinds that are ignored if our account may not read them. Then volumes are unknown, and records show that."""

NO_LOAD = NodeLoad()
ALWAYS_SAID = ("cpu", "memory", "ephemeral-storage", "pods")
"""The resources whose requests are in a node's row even when the node does not offer them. Requests for others are not:
a pod may name any resource, and each name would become a column of all readers."""


@dataclass(frozen=True, slots=True)
class StateChanges:
    """The changes of a cluster since the last call, as records contain them. api_server is always filled."""

    rows: tuple[NodeRow, ...]
    removed: tuple[str, ...]
    facts: tuple[WorkloadFacts, ...]
    facts_removed: tuple[WorkloadKey, ...]
    namespaces: tuple[NamespaceFacts, ...] = ()
    namespaces_removed: tuple[str, ...] = ()
    api_server: str = ""

    def __bool__(self) -> bool:
        found = self.rows or self.removed or self.facts or self.facts_removed
        return bool(found or self.namespaces or self.namespaces_removed)


class ClusterState:
    """The state of one cluster, from the objects of its streams."""

    def __init__(self, fleet: str, rules: SnapshotRules) -> None:
        self.nodes = NodeTable(rules.shrink_confirm_seconds, rules.shrink_confirm_probes)
        self.pods = Pods(rules.ignored_pod_labels, rules.reason_characters_max)
        self.details = PodDetails()
        self.workloads = WorkloadTable(fleet)
        self.namespaces = NamespaceTable(rules.volume_claims_max)
        self._groups = WaitingGroups(self.pods, self.workloads)

    @property
    def has_changes(self) -> bool:
        """Returns whether take_changes or take_waiting_groups may have something new."""
        nodes, pods = self.nodes.dirty, self.pods
        return bool(
            nodes
            or pods.dirty_nodes
            or pods.dirty_owners
            or self.workloads.dirty
            or pods.dirty_waiting
            or self.namespaces.dirty
        )  # fmt: skip

    # ── What the cluster says ───────────────────────────────────────────────────────────────────────────────────

    def replace_objects(self, kind: Kind, objects: Iterable[Any], now: float) -> None:
        """Replaces all objects of a kind by this list."""
        found = tuple(objects)
        if kind is NODES:
            self.nodes.replace_nodes(found, now)
            return
        for item in found:
            self.upsert_object(kind, item)
        self.retain_objects(kind, frozenset(item.metadata.uid for item in found))

    def retain_objects(self, kind: Kind, uids: frozenset[str]) -> None:
        """Removes the objects of a kind that a whole list does not have. It is not for nodes.

        Call it after the objects of the list were upserted. uids: all objects of the list.
        """
        if kind is PODS:
            self.pods.retain_pods(uids)
            self.details.retain_pods(uids)
        elif kind is REPLICASETS:
            self.workloads.retain_replicasets(uids)
        elif kind is NAMESPACES:
            self.namespaces.retain_namespaces(uids)
        elif kind is RESOURCE_QUOTAS:
            self.namespaces.retain_quotas(uids)
        elif kind is VOLUME_CLAIMS:
            self.namespaces.volumes.retain_claims(uids)
        elif kind is VOLUMES:
            self.namespaces.volumes.retain_volumes(uids)
        else:
            assert kind in WORKLOAD_KINDS, kind
            self.workloads.retain_workloads(kind, uids)

    def upsert_object(self, kind: Kind, item: Any) -> None:
        if kind is PODS:
            self.pods.upsert_pod(item)
            self.details.upsert_pod(item)
        elif kind is NODES:
            self.nodes.upsert_node(item)
        elif kind is REPLICASETS:
            self.workloads.upsert_replicaset(item)
        elif kind is NAMESPACES:
            self.namespaces.upsert_namespace(item)
        elif kind is RESOURCE_QUOTAS:
            self.namespaces.upsert_quota(item)
        elif kind is VOLUME_CLAIMS:
            self.namespaces.volumes.upsert_claim(item)
        elif kind is VOLUMES:
            self.namespaces.volumes.upsert_volume(item)
        else:
            assert kind in WORKLOAD_KINDS, kind
            self.workloads.upsert_workload(kind, item)

    def remove_object(self, kind: Kind, item: Any) -> None:
        if kind is PODS:
            self.pods.remove_pod(item.metadata.uid)
            self.details.remove_pod(item.metadata.uid)
        elif kind is NODES:
            self.nodes.remove_node(item.metadata.name)
        elif kind is REPLICASETS:
            self.workloads.remove_replicaset(item.metadata.uid)
        elif kind is NAMESPACES:
            self.namespaces.remove_namespace(item.metadata.uid)
        elif kind is RESOURCE_QUOTAS:
            self.namespaces.remove_quota(item.metadata.uid)
        elif kind is VOLUME_CLAIMS:
            self.namespaces.volumes.remove_claim(item.metadata.uid)
        elif kind is VOLUMES:
            self.namespaces.volumes.remove_volume(item.metadata.uid)
        else:
            assert kind in WORKLOAD_KINDS, kind
            self.workloads.remove_workload(kind, item.metadata.uid)

    # ── What is said of it ──────────────────────────────────────────────────────────────────────────────────────

    def take_changes(self) -> StateChanges:
        """Returns the changes of the cluster since the last call."""
        self.pods.update_namespaces_over_bound()
        names = self.nodes.dirty | self.pods.dirty_nodes
        owned = (self.workloads.workload_of(owner) for owner in self.pods.dirty_owners)
        keys = self.workloads.dirty | {key for key in owned if key is not None}
        self._groups.refresh_groups(self.workloads.dirty)
        for dirty in (self.nodes.dirty, self.pods.dirty_nodes, self.pods.dirty_owners, self.workloads.dirty):
            dirty.clear()
        facts = {key: self.workloads.workload_facts(key, self.pods.counted) for key in sorted(keys)}
        namespaces = {name: self.namespaces.namespace_facts(name) for name in sorted(self.namespaces.dirty)}
        self.namespaces.dirty.clear()
        return StateChanges(
            rows=tuple(self.node_row(name) for name in sorted(names) if name in self.nodes.nodes),
            # A pod may be bound to an unknown node, which never had a row.
            removed=tuple(sorted(name for name in names if name not in self.nodes.nodes)),
            facts=tuple(entry for entry in facts.values() if entry is not None),
            facts_removed=tuple(key for key, entry in facts.items() if entry is None),
            namespaces=tuple(entry for entry in namespaces.values() if entry is not None),
            namespaces_removed=tuple(name for name, entry in namespaces.items() if entry is None),
            api_server=self.namespaces.api_server,
        )

    def whole_state(self) -> StateChanges:
        """Returns the whole state as changes from an empty state."""
        self.pods.update_namespaces_over_bound()
        facts = (
            self.workloads.workload_facts(key, self.pods.counted) for key in sorted(self.workloads.workload_keys())
        )
        namespaces = (self.namespaces.namespace_facts(name) for name in sorted(self.namespaces.namespace_names()))
        return StateChanges(
            rows=tuple(self.node_row(name) for name in sorted(self.nodes.nodes)),
            removed=(),
            facts=tuple(entry for entry in facts if entry is not None),
            facts_removed=(),
            namespaces=tuple(entry for entry in namespaces if entry is not None),
            api_server=self.namespaces.api_server,
        )

    def node_row(self, name: str) -> NodeRow:
        """Returns the row of a node. On a lent node, the pods of pools do not count.

        The row is unschedulable and offers nothing when the node's free resources or its pods' terms are unknown. There
        are three such cases: a pod's requests cannot be read; the pods have too many ports or terms for a record; or a
        pod with terms is in a namespace with too many terms. Unschedulable alone would not be enough, because some pods
        tolerate it.
        """
        node, found = self.nodes.nodes[name], self.pods.loads.get(name, NO_LOAD)
        load = NO_LOAD if found.is_too_long else found
        told = load.tables_for_row(dict(node.labels))
        tables = _tables_without_terms(told, self.pods.repelling.over)
        closed = found.unreadable > 0 or found.is_too_long or tables is not told
        state = loan_state_from_taints(node.taints)
        requested = load.requests_by_resource({*ALWAYS_SAID, *dict(node.allocatable)}, of_owner=state != NODE_OWNED)
        return NodeRow(
            name=name,
            allocatable={} if closed else dict(node.allocatable),
            requested={resource: clamp_amount(resource, amount) for resource, amount in sorted(requested.items())},
            labels=node.labels,
            taints=node.taints,
            state=state,
            unschedulable=node.unschedulable or closed,
            ports=tuple(sorted(load.ports, key=lambda port: (port.port, port.protocol, port.ip))),
            pods=tuple(sorted(tables.items(), key=_table_order)),
        )

    def take_waiting_groups(self) -> dict[str, WaitingGroup] | None:
        """Returns the groups of waiting pods; None when they have not changed since the last call."""
        self._groups.refresh_groups(self.workloads.dirty)
        if not self._groups.changed:
            return None
        self._groups.changed = False
        return self._groups.groups()


def _tables_without_terms(tables: dict[PodTable, int], namespaces: frozenset[str]) -> dict[PodTable, int]:
    """Returns the tables without the terms of pods in these namespaces; the same dict when there are none."""
    if not namespaces or not any(table.apart and table.namespace in namespaces for table in tables):
        return tables
    told: dict[PodTable, int] = {}
    for table, pods in tables.items():
        known = table._replace(apart=()) if table.namespace in namespaces else table
        told[known] = told.get(known, 0) + pods
    return told


def _table_order(entry: tuple[PodTable, int]) -> tuple[str, LabelSet, bool, str]:
    table = entry[0]
    return table.namespace, table.labels, table.terminating, repr(table.apart) if table.apart else ""
