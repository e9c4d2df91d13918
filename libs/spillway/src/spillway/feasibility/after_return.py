"""The nodes of a cluster as they would be if all that it has lent were back: no pool pods, none of our marks."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from spillway.events_lending import NodeLent
from spillway.feasibility.nodes import ClusterNodes
from spillway.lending_marks import LENDING, POD_NAMESPACE_PREFIX
from spillway.model import NODE_OWNED, Int64s, NodeColumns

Bools = npt.NDArray[np.bool_]


def after_return(nodes: ClusterNodes, lent: Mapping[str, NodeLent] | None = None) -> ClusterNodes:
    """lent: by node, with the pool's pods that run there, as far as the log tells.

    What the row counts of them and the loan does not name yet still counts: less room is seen then, never more. None:
    no loan is known; of a node with a pool's pods nothing that is requested counts then, though its daemons stay.
    """
    columns = nodes.columns()
    requested = _without_pool_nodes(columns) if lent is None else _requested_by_owners(columns, lent)
    returned = ClusterNodes()
    returned.namespaces = nodes.namespaces
    returned.upsert(
        replace(
            _without_pool_pods(columns),
            requested=requested,
            state=np.full_like(columns.state, NODE_OWNED),
            taint_sets=tuple(tuple(taint for taint in taints if taint.key != LENDING) for taints in columns.taint_sets),
            label_sets=tuple(tuple(label for label in labels if label[0] != LENDING) for labels in columns.label_sets),
        ),
        0,
    )
    returned.unlent[: len(columns.names)] = nodes.unlent[nodes.live]
    return returned


def _of_pools(columns: NodeColumns) -> Bools:
    """[entries of pods]: whether they are a pool's."""
    of_pool = [table.namespace.startswith(POD_NAMESPACE_PREFIX) for table in columns.pod_tables]
    found: Bools = np.array(of_pool, np.bool_)[columns.pod_sets] if of_pool else np.zeros(0, np.bool_)
    return found


def _without_pool_pods(columns: NodeColumns) -> NodeColumns:
    kept = ~_of_pools(columns)
    return replace(
        columns,
        pod_rows=columns.pod_rows[kept],
        pod_sets=columns.pod_sets[kept],
        pod_counts=columns.pod_counts[kept],
    )


def _without_pool_nodes(columns: NodeColumns) -> Int64s:
    requested = columns.requested.copy()
    requested[:, columns.pod_rows[_of_pools(columns)]] = 0
    return requested


def _requested_by_owners(columns: NodeColumns, lent: Mapping[str, NodeLent]) -> Int64s:
    requested = columns.requested.copy()
    index_of = {name: index for index, name in enumerate(columns.resources)}
    for row, name in enumerate(columns.names):
        for pod in lent[name].pods if name in lent else ():
            for resource, amount in pod.requests:
                if resource in index_of:
                    requested[index_of[resource], row] -= amount
    return np.minimum(np.maximum(requested, 0), columns.requested)
