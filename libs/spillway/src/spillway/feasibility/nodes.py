"""The nodes of one cluster as arrays that follow its capacity stream."""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from spillway.amounts import clamp_to_int64
from spillway.feasibility.pod_index import Entries, PodIndex
from spillway.lending_marks import LENT_CLUSTER, LENT_NODE
from spillway.model import HOSTNAME_LABEL, NODE_OWNED, HostPort, Int64s, LabelSet, NodeColumns, NodeRow, Taint

ROOM_TO_GROW = 64
NO_BLOCK = -1
NO_DOMAIN = -1

T = TypeVar("T", bound=Hashable)


class ClusterNodes:
    """Rows of nodes. A removed node leaves a hole, which the next new node fills.

    allocatable, requested: int64 [resources, rows]. block: int64 [rows], NO_BLOCK in a hole.
    revision: rises with every change; results computed from these arrays stay valid until then.
    labels_revision: rises when labels of nodes change, or when nodes come or go. namespaces: the labels of namespaces.
    unlent: [rows], virtual nodes that do not count. The columns do not contain this: a reader that also follows the
    owners' rows sets it.
    """

    def __init__(self) -> None:
        self.revision = 0
        self.labels_revision = 0
        self.names: list[str] = []
        self.resources: dict[str, int] = {}
        self.label_sets: list[LabelSet] = []
        self.taint_sets: list[tuple[Taint, ...]] = []
        self.allocatable: Int64s = np.zeros((0, 0), np.int64)
        self.requested: Int64s = np.zeros((0, 0), np.int64)
        self.label_set: Int64s = np.zeros(0, np.int64)
        self.taint_set: Int64s = np.zeros(0, np.int64)
        self.state: Int64s = np.zeros(0, np.int64)
        self.unschedulable: Int64s = np.zeros(0, np.int64)
        self.unlent: npt.NDArray[np.bool_] = np.zeros(0, np.bool_)
        self.block: Int64s = np.zeros(0, np.int64)
        self.ports: dict[int, tuple[HostPort, ...]] = {}
        self.pods = PodIndex()
        self.namespaces: dict[str, Mapping[str, str]] = {}
        self._row_by_name: dict[str, int] = {}
        self._holes: list[int] = []
        self._label_set_ids: dict[LabelSet, int] = {}
        self._taint_set_ids: dict[tuple[Taint, ...], int] = {}
        self._domains: dict[str, tuple[int, Int64s]] = {}
        self._explicit_hostnames: dict[int, str] = {}
        self._virtual_sets: dict[int, tuple[str, str]] = {}
        self._sets_seen = 0
        self._lends = (0, False)
        self._loans: tuple[int, frozenset[tuple[str, int]]] = (0, frozenset())

    @property
    def has_lent_nodes(self) -> bool:
        """Returns whether any node is lent, or on its way back."""
        if self._lends[0] != self.revision:
            self._lends = self.revision, bool(((self.state != NODE_OWNED) & self.live_mask).any())
        return self._lends[1]

    @property
    def loan_states(self) -> frozenset[tuple[str, int]]:
        """Returns (name, state) of each lent or recalled node. Callers compare two results to find changed loans."""
        if self._loans[0] != self.revision:
            rows = np.flatnonzero((self.state != NODE_OWNED) & self.live_mask).tolist()
            self._loans = self.revision, frozenset((self.names[row], int(self.state[row])) for row in rows)
        return self._loans[1]

    @property
    def has_virtual_nodes(self) -> bool:
        """Returns whether there is a virtual node."""
        return bool((self.live_mask & self.virtual_mask).any())

    @property
    def virtual_mask(self) -> npt.NDArray[np.bool_]:
        """Returns [rows]: True for virtual nodes, by their labels. Such a node stands for a node of another cluster."""
        named: npt.NDArray[np.bool_] = np.isin(self.label_set, list(self.lent_node_by_label_set()))
        return named

    @property
    def live_mask(self) -> npt.NDArray[np.bool_]:
        """Returns [rows]: True if the row has a node, False for a hole."""
        there: npt.NDArray[np.bool_] = self.block != NO_BLOCK
        return there

    @property
    def counted_mask(self) -> npt.NDArray[np.bool_]:
        """Returns [rows]: True for nodes that this cluster may use: own nodes not lent away, and nodes lent to it."""
        counts: npt.NDArray[np.bool_] = self.live_mask & (self.state == NODE_OWNED) & ~self.unlent
        return counts

    def replace_block(self, columns: NodeColumns, block: int) -> None:
        """Replaces a whole block. Nodes of the block that are not in the columns are removed."""
        present = set(columns.names)
        here = np.flatnonzero(self.block == block).tolist()
        self._remove_rows(row for row in here if self.names[row] not in present)
        self.upsert_nodes(columns, block)

    def upsert_nodes(self, columns: NodeColumns, block: int) -> None:
        self.revision += 1
        if not columns.names:
            return
        rows = self._ensure_rows(columns.names)
        for index, resource in enumerate(self._resource_rows(columns.resources)):
            self.allocatable[resource, rows] = columns.allocatable[index]
            self.requested[resource, rows] = columns.requested[index]
        said = frozenset(columns.resources)
        absent = [index for name, index in self.resources.items() if name not in said]
        if absent:
            self.allocatable[np.array(absent)[:, None], rows] = 0
            self.requested[np.array(absent)[:, None], rows] = 0
        label_set = _intern_values(columns.label_sets, self._label_set_ids, self.label_sets)[columns.label_set]
        if not (self.live_mask[rows].all() and np.array_equal(self.label_set[rows], label_set)):
            self.labels_revision += 1
        self.label_set[rows] = label_set
        self.taint_set[rows] = _intern_values(columns.taint_sets, self._taint_set_ids, self.taint_sets)[
            columns.taint_set
        ]
        self.state[rows] = columns.state
        self.unschedulable[rows] = columns.unschedulable
        self.block[rows] = block
        self._replace_ports(columns, rows.tolist())
        self.pods.replace_pods(
            rows, columns.pod_tables, Entries(columns.pod_rows, columns.pod_sets, columns.pod_counts)
        )

    def remove_nodes(self, names: Iterable[str]) -> None:
        self.revision += 1
        self._remove_rows(self._row_by_name[name] for name in names if name in self._row_by_name)

    def without_workload_pods(
        self, namespace: str, labels: Mapping[str, str], requests: Sequence[tuple[str, int]], pods: int
    ) -> "ClusterNodes | None":
        """Returns these nodes as they will be without the pods of a workload, which are found by their labels.

        Returns None if not exactly `pods` pods have these labels: then other pods have them, too.
        """
        wanted = set(labels.items())
        own = self.pods.tables_matching((namespace,), lambda table: wanted <= set(table.labels))
        counts = self.pods.pod_counts_of_tables(own, len(self.block))
        if not wanted or int(counts.sum()) != pods:
            return None
        rest = copy(self)
        rest.requested = self.requested.copy()
        rest.pods = self.pods.without_tables(own)
        for name, amount in requests:
            if name in self.resources:  # Without nodes, no resource is known either.
                offered = self.allocatable[self.resources[name]] > 0  # Requests of a resource that a node lacks are 0.
                rest.requested[self.resources[name]] -= amount * counts * offered
        return rest

    def count_terminating_pods(self, namespace: str, labels: Mapping[str, str]) -> int:
        """Returns the number of terminating pods with these labels. Their requests still count."""
        wanted = set(labels.items())
        found = self.pods.tables_matching((namespace,), lambda table: table.terminating and wanted <= set(table.labels))
        return int(self.pods.pod_counts_of_tables(found, len(self.block)).sum())

    def independent_copy(self) -> "ClusterNodes":
        """Returns a copy that can be changed on its own."""
        other = copy(self)
        for name, value in vars(self).items():
            if isinstance(value, (np.ndarray, list, dict)):  # Their elements are never changed.
                setattr(other, name, value.copy())
        other.pods = self.pods.independent_copy()
        return other

    def columns_of_all_nodes(self) -> NodeColumns:
        """Returns all nodes, as a collector would report them in one block."""
        rows = np.flatnonzero(self.live_mask)
        resources = np.array(list(self.resources.values()), np.int64)
        pods = self.pods.all_entries()
        index_of_row = np.full(len(self.block), NO_BLOCK, np.int64)
        index_of_row[rows] = np.arange(len(rows))
        return NodeColumns(
            names=tuple(self.names[row] for row in rows.tolist()),
            resources=tuple(self.resources),
            allocatable=self.allocatable[np.ix_(resources, rows)],
            requested=self.requested[np.ix_(resources, rows)],
            label_sets=tuple(self.label_sets),
            label_set=self.label_set[rows],
            taint_sets=tuple(self.taint_sets),
            taint_set=self.taint_set[rows],
            state=self.state[rows],
            unschedulable=self.unschedulable[rows],
            ports=tuple((index, port) for index, row in enumerate(rows.tolist()) for port in self.ports.get(row, ())),
            pod_tables=tuple(self.pods.tables),
            pod_rows=index_of_row[pods.rows],
            pod_sets=pods.tables,
            pod_counts=pods.counts,
        )

    def node_classes(self) -> Iterator[tuple[int, int]]:
        """Yields (a row, number of nodes) of each class of nodes: they are equal in labels, taints and allocatable."""
        rows = np.flatnonzero(self.live_mask)
        keys = np.vstack((self.label_set[rows], self.taint_set[rows], self.allocatable[:, rows]))
        _, first, counts = np.unique(keys, axis=1, return_index=True, return_counts=True)
        yield from zip(rows[first].tolist(), counts.tolist(), strict=True)

    def empty_node_like(self, row: int, name: str) -> NodeRow:
        """Returns a node of the same class on which nothing runs. It is no virtual node, and has its own hostname."""
        labels = {
            key: value
            for key, value in self.label_sets[int(self.label_set[row])]
            if key not in (LENT_CLUSTER, LENT_NODE)
        }
        if labels.get(HOSTNAME_LABEL) == "":  # This mark means that the nodes have no hostname label.
            del labels[HOSTNAME_LABEL]
        else:
            labels[HOSTNAME_LABEL] = name
        return NodeRow(
            name=name,
            allocatable={resource: int(self.allocatable[index, row]) for resource, index in self.resources.items()},
            requested={},
            labels=tuple(sorted(labels.items())),
            taints=self.taint_sets[int(self.taint_set[row])],
        )

    def row_of(self, name: str) -> int | None:
        return self._row_by_name.get(name)

    def domain_ids(self, key: str) -> Int64s:
        """Returns [rows]: an id for each value of a topology key, NO_DOMAIN without it. Ids are below the row count."""
        kept = self._domains.get(key)
        if kept is not None and kept[0] == self.labels_revision:
            return kept[1]
        domains = np.where(
            self.live_mask,
            self._domain_ids_of_hosts() if key == HOSTNAME_LABEL else self._domain_ids_of_label(key),
            NO_DOMAIN,
        )
        self._domains[key] = (self.labels_revision, domains)
        return domains

    def _domain_ids_of_label(self, key: str) -> Int64s:
        ids: dict[str, int] = {}
        by_set = [
            ids.setdefault(value, len(ids)) if value is not None else NO_DOMAIN
            for value in (dict(labels).get(key) for labels in self.label_sets)
        ]
        values = np.array([*by_set, NO_DOMAIN], np.int64)[self.label_set]
        _, found = np.unique(values, return_inverse=True)
        return np.where(values != NO_DOMAIN, found, NO_DOMAIN)

    def _domain_ids_of_hosts(self) -> Int64s:
        """Returns [rows]: the domain id of each node's hostname, which is its own row. Equal hostnames share one id."""
        hosts, explicit = np.arange(len(self.block)), self.explicit_hostnames()
        first: dict[str, int] = {}
        for row in np.flatnonzero(self.live_mask & np.isin(self.label_set, list(explicit))).tolist():
            hostname = explicit[int(self.label_set[row])]
            named = self._row_by_name.get(hostname)
            if not hostname:
                hosts[row] = NO_DOMAIN
            elif named is not None and int(self.label_set[named]) not in explicit:
                hosts[row] = named
            else:
                hosts[row] = first.setdefault(hostname, row)
        return hosts

    def explicit_hostnames(self) -> Mapping[int, str]:
        """Returns, by label set, each hostname that is not the node's name; "" if the hostname label is missing."""
        self._index_new_label_sets()
        return self._explicit_hostnames

    def lent_node_by_label_set(self) -> Mapping[int, tuple[str, str]]:
        """Returns, by label set of virtual nodes, the owner and the lent node in the labels; "" if one is missing."""
        self._index_new_label_sets()
        return self._virtual_sets

    def own_node_count(self) -> int:
        """Returns the number of live nodes without virtual ones."""
        return int((self.live_mask & ~self.virtual_mask).sum())

    def _index_new_label_sets(self) -> None:
        for index in range(self._sets_seen, len(self.label_sets)):
            labels = dict(self.label_sets[index])
            hostname = labels.get(HOSTNAME_LABEL)
            if hostname is not None:
                self._explicit_hostnames[index] = hostname
            if LENT_CLUSTER in labels or LENT_NODE in labels:
                self._virtual_sets[index] = labels.get(LENT_CLUSTER, ""), labels.get(LENT_NODE, "")
        self._sets_seen = len(self.label_sets)

    def allocatable_and_requested(self) -> tuple[dict[str, int], dict[str, int]]:
        """Returns the sums of allocatable and of requested by resource, over the nodes that count here.

        A lent node counts in the pool cluster alone.
        """
        counted = self.counted_mask
        return (
            {name: _saturated_sum(self.allocatable[index, counted]) for name, index in self.resources.items()},
            {name: _saturated_sum(self.requested[index, counted]) for name, index in self.resources.items()},
        )

    def _remove_rows(self, rows: Iterable[int]) -> None:
        for row in list(rows):
            self.labels_revision += 1
            self.block[row] = NO_BLOCK
            self.unlent[row] = False
            self.allocatable[:, row] = 0
            self.requested[:, row] = 0
            self.ports.pop(row, None)
            self.pods.remove_pods(row)
            self._row_by_name.pop(self.names[row])
            self.names[row] = ""
            self._holes.append(row)

    def _ensure_rows(self, names: Sequence[str]) -> Int64s:
        rows = list(map(self._row_by_name.get, names))
        if None in rows:
            self._add_rows(list(dict.fromkeys(name for name, row in zip(names, rows, strict=True) if row is None)))
            rows = list(map(self._row_by_name.get, names))
        return np.array(rows, np.int64)

    def _add_rows(self, names: list[str]) -> None:
        """Adds rows for names, each given once and not known. Holes are filled first."""
        holes = min(len(names), len(self._holes))
        for name in names[:holes]:
            row = self._row_by_name[name] = self._holes.pop()
            self.names[row] = name
        first = len(self.names)
        self.names += names[holes:]
        self._row_by_name.update(zip(names[holes:], range(first, len(self.names)), strict=True))
        self._grow_arrays(len(self.names))

    def _grow_arrays(self, rows: int) -> None:
        missing = rows - self.block.shape[0]
        if missing <= 0:
            return
        more = missing + ROOM_TO_GROW + rows // 4
        for name in ("label_set", "taint_set", "state", "unschedulable", "unlent"):
            setattr(self, name, np.pad(getattr(self, name), (0, more)))
        self.block = np.pad(self.block, (0, more), constant_values=NO_BLOCK)
        self.allocatable = np.pad(self.allocatable, ((0, 0), (0, more)))
        self.requested = np.pad(self.requested, ((0, 0), (0, more)))

    def _resource_rows(self, resources: Sequence[str]) -> list[int]:
        rows = [self.resources.setdefault(name, len(self.resources)) for name in resources]
        missing = len(self.resources) - self.allocatable.shape[0]
        if missing:  # Grows once for all new resources of a record, without spare rows.
            self.allocatable = np.pad(self.allocatable, ((0, missing), (0, 0)))
            self.requested = np.pad(self.requested, ((0, missing), (0, 0)))
        return rows

    def _replace_ports(self, columns: NodeColumns, rows: list[int]) -> None:
        if self.ports:
            for row in rows:
                self.ports.pop(row, None)
        for index, port in columns.ports:
            self.ports[rows[index]] = (*self.ports.get(rows[index], ()), port)


def _saturated_sum(amounts: Int64s) -> int:
    """Returns the sum, at most the largest 64-bit integer. NumPy's sum could overflow, so two halves are added."""
    return clamp_to_int64((int((amounts >> 32).sum()) << 32) + int((amounts & 0xFFFFFFFF).sum()))


def _intern_values(values: Sequence[T], ids: dict[T, int], table: list[T]) -> Int64s:
    """Returns our id of each value in a record's table, in its order. New values are appended to our `table`."""
    local = []
    for value in values:
        if value not in ids:
            ids[value] = len(table)
            table.append(value)
        local.append(ids[value])
    return np.array(local, np.int64)
