"""Computes the nodes of a cluster as if all its lent nodes were back: without real pods of pools, without our marks."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from spillway.feasibility.nodes import ClusterNodes
from spillway.lending_marks import LENDING, POD_NAMESPACE_PREFIX
from spillway.model import NODE_OWNED, NodeColumns

Bools = npt.NDArray[np.bool_]


def nodes_after_return(nodes: ClusterNodes) -> ClusterNodes:
    """Returns the nodes as they will be after all loans are over.

    `requested` stays as it is: in the row of a lent node it counts only the owner's pods.
    """
    columns = nodes.columns_of_all_nodes()
    returned = ClusterNodes()
    returned.namespaces = nodes.namespaces
    returned.upsert_nodes(
        replace(
            _without_pool_pods(columns),
            state=np.full_like(columns.state, NODE_OWNED),
            taint_sets=tuple(tuple(taint for taint in taints if taint.key != LENDING) for taints in columns.taint_sets),
            label_sets=tuple(tuple(label for label in labels if label[0] != LENDING) for labels in columns.label_sets),
        ),
        0,
    )
    returned.unlent[: len(columns.names)] = nodes.unlent[nodes.live_mask]
    return returned


def _pool_pod_mask(columns: NodeColumns) -> Bools:
    """Returns, for each entry of the pod columns, whether its pods are real pods of a pool, by their namespace."""
    of_pool = [table.namespace.startswith(POD_NAMESPACE_PREFIX) for table in columns.pod_tables]
    found: Bools = np.array(of_pool, np.bool_)[columns.pod_sets] if of_pool else np.zeros(0, np.bool_)
    return found


def _without_pool_pods(columns: NodeColumns) -> NodeColumns:
    kept = ~_pool_pod_mask(columns)
    return replace(
        columns,
        pod_rows=columns.pod_rows[kept],
        pod_sets=columns.pod_sets[kept],
        pod_counts=columns.pod_counts[kept],
    )
