"""Converts rows of nodes to columns and back, and checks columns for consistency. Pure."""

from collections.abc import Iterable, Sequence

import numpy as np

from spillway.model import HOSTNAME_LABEL, HostPort, LabelSet, NodeColumns, NodeRow, PodTable, Taint

_NONE = np.zeros(0, np.int64)

NO_NODES = NodeColumns(
    names=(),
    resources=(),
    allocatable=np.zeros((0, 0), np.int64),
    requested=np.zeros((0, 0), np.int64),
    label_sets=(),
    label_set=_NONE,
    taint_sets=(),
    taint_set=_NONE,
    state=_NONE,
    unschedulable=_NONE,
    ports=(),
    pod_tables=(),
    pod_rows=_NONE,
    pod_sets=_NONE,
    pod_counts=_NONE,
)


def columns_of(rows: Sequence[NodeRow]) -> NodeColumns:
    """Returns rows as columns. Equal label sets, taint sets and pod tables are stored once."""
    if not rows:
        return NO_NODES
    resources = tuple(sorted({name for row in rows for name in (*row.allocatable, *row.requested)}))
    label_sets: dict[LabelSet, int] = {}
    taint_sets: dict[tuple[Taint, ...], int] = {}
    pod_tables: dict[PodTable, int] = {}
    label_set = [label_sets.setdefault(_without_hostname(row), len(label_sets)) for row in rows]
    taint_set = [taint_sets.setdefault(row.taints, len(taint_sets)) for row in rows]
    pods = [
        (index, pod_tables.setdefault(table, len(pod_tables)), count)
        for index, row in enumerate(rows)
        for table, count in row.pods
    ]
    pod_columns = np.array(pods, np.int64).reshape(-1, 3)
    return NodeColumns(
        names=tuple(row.name for row in rows),
        resources=resources,
        allocatable=np.array([[row.allocatable.get(name, 0) for row in rows] for name in resources], np.int64),
        requested=np.array([[row.requested.get(name, 0) for row in rows] for name in resources], np.int64),
        label_sets=tuple(label_sets),
        label_set=np.array(label_set, np.int64),
        taint_sets=tuple(taint_sets),
        taint_set=np.array(taint_set, np.int64),
        state=np.array([row.state for row in rows], np.int64),
        unschedulable=np.array([int(row.unschedulable) for row in rows], np.int64),
        ports=tuple((index, port) for index, row in enumerate(rows) for port in row.ports),
        pod_tables=tuple(pod_tables),
        pod_rows=pod_columns[:, 0],
        pod_sets=pod_columns[:, 1],
        pod_counts=pod_columns[:, 2],
    )


def rows_of(columns: NodeColumns) -> list[NodeRow]:
    """Returns the rows from which columns_of made these columns. Amounts of zero are left out."""
    ports: dict[int, list[HostPort]] = {}
    for row, port in columns.ports:
        ports.setdefault(row, []).append(port)
    pods: dict[int, list[tuple[PodTable, int]]] = {}
    for row, table, count in zip(
        columns.pod_rows.tolist(), columns.pod_sets.tolist(), columns.pod_counts.tolist(), strict=True
    ):
        pods.setdefault(row, []).append((columns.pod_tables[table], count))
    allocatable, requested = columns.allocatable.T.tolist(), columns.requested.T.tolist()
    label_sets, taint_sets = columns.label_set.tolist(), columns.taint_set.tolist()
    return [
        NodeRow(
            name=name,
            allocatable=_amounts_by_resource(columns.resources, allocatable[index] if allocatable else ()),
            requested=_amounts_by_resource(columns.resources, requested[index] if requested else ()),
            labels=_with_hostname(columns.label_sets[label_sets[index]], name),
            taints=columns.taint_sets[taint_sets[index]],
            state=int(columns.state[index]),
            unschedulable=bool(columns.unschedulable[index]),
            ports=tuple(ports.get(index, ())),
            pods=tuple(pods.get(index, ())),
        )
        for index, name in enumerate(columns.names)
    ]


def inconsistency(columns: NodeColumns) -> str:
    """Returns the first fault of columns from a record, for example a wrong length, as text; empty without a fault."""
    nodes = len(columns.names)
    per_node = {
        "label_set": columns.label_set,
        "taint_set": columns.taint_set,
        "state": columns.state,
        "unschedulable": columns.unschedulable,
    }
    for name, column in per_node.items():
        if column.shape != (nodes,):
            return f"{name} has {column.shape[0]} entries for {nodes} nodes"
    for name, matrix in (("allocatable", columns.allocatable), ("requested", columns.requested)):
        if matrix.shape != (len(columns.resources), nodes):
            return f"{name} has shape {matrix.shape}, expected {(len(columns.resources), nodes)}"
        if matrix.size and int(matrix.min()) < 0:
            return f"{name} has a negative amount"
    if len(columns.pod_rows) != len(columns.pod_sets) or len(columns.pod_rows) != len(columns.pod_counts):
        return "pod_rows, pod_sets and pod_counts differ in length"
    indices = (
        ("label_set", columns.label_set, len(columns.label_sets)),
        ("taint_set", columns.taint_set, len(columns.taint_sets)),
        ("pod_rows", columns.pod_rows, nodes),
        ("pod_sets", columns.pod_sets, len(columns.pod_tables)),
    )
    for name, column, limit in indices:
        if column.size and int(column.max()) >= limit:
            return f"{name} points at {int(column.max())} of {limit}"
    if any(row >= nodes for row, _ in columns.ports):
        return "a host port points past the nodes"
    return ""


def _amounts_by_resource(resources: Sequence[str], amounts: Iterable[int]) -> dict[str, int]:
    return {name: amount for name, amount in zip(resources, amounts, strict=False) if amount}


def _without_hostname(row: NodeRow) -> LabelSet:
    implied = (HOSTNAME_LABEL, row.name)
    if implied in row.labels:
        return tuple(label for label in row.labels if label != implied)
    # An empty value, which no kubelet writes, means that there is no hostname label.
    if any(key == HOSTNAME_LABEL for key, _ in row.labels):
        return row.labels
    return tuple(sorted((*row.labels, (HOSTNAME_LABEL, ""))))


def _with_hostname(labels: LabelSet, name: str) -> LabelSet:
    if (HOSTNAME_LABEL, "") in labels:
        return tuple(label for label in labels if label != (HOSTNAME_LABEL, ""))
    if any(key == HOSTNAME_LABEL for key, _ in labels):
        return labels
    return tuple(sorted((*labels, (HOSTNAME_LABEL, name))))
