"""Decides which virtual nodes of pools count: the ones whose owner's row says lent (docs/lending.md, promise 3).

The state in the owner's row decides for both clusters. State owned: the owner counts the node. Lent: the pool counts
it. Recalled: neither does. The row also names the pool that the node is lent to. A virtual node in any other cluster
does not count and has no effect. So a node counts at most once, even if one of the two records is old. If two virtual
nodes of that pool stand for one node, neither counts, because nobody knows which is right. Rows of an older snapshot
name no pool. Then neither counts if two virtual nodes in any clusters stand for one node.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np

from spillway.feasibility.cluster_view import ClusterView
from spillway.feasibility.node_match import Bools
from spillway.feasibility.nodes import ClusterNodes
from spillway.lending_marks import LABEL_CHARACTERS_MAX, POOL_CLUSTER, name_within_label_length
from spillway.model import NODE_LENT, Int64s

Views = Mapping[str, ClusterView]
Real = tuple[str, str]
"""(owner, node) of a virtual node. The owner has the first name of its API server; the node, its name in the label."""
NO_ROW = -1
NO_POOL, THIS_POOL, OTHER_POOL = 0, 1, 2
"""The pool that an owner's row names."""
NOTHING: Bools = np.zeros(0, np.bool_)


class _Pool:
    """The virtual nodes of one cluster.

    rows: [virtual nodes], the row of each. real: the lent node that each stands for.
    by_owner: the positions of virtual nodes in these lists, by owner.
    only_here: whether no other virtual node of this cluster stands for the same node.
    only_one: whether no other virtual node of any cluster stands for the same node.
    """

    def __init__(self, name: str, nodes: ClusterNodes, views: Views) -> None:
        self.name = name
        self.nodes, self.labels_revision = nodes, nodes.labels_revision
        found = list(_virtual_rows(nodes))
        self.rows: Int64s = np.array([row for row, _ in found], np.int64)
        self.real: list[Real] = [(_first_name_of_server(owner, views), name) for _, (owner, name) in found]
        self.by_owner: dict[str, Int64s] = {
            owner: np.array([at for at, real in enumerate(self.real) if real[0] == owner], np.int64)
            for owner in {real[0] for real in self.real}
        }
        times = Counter(self.real)
        self.only_here: Bools = np.array([times[real] == 1 for real in self.real], np.bool_)
        self.only_one: Bools = np.ones(len(found), np.bool_)
        self._owner_rows: dict[str, tuple[ClusterNodes, int, Int64s, Int64s]] = {}

    def is_current_for(self, nodes: ClusterNodes) -> bool:
        return self.nodes is nodes and self.labels_revision == nodes.labels_revision

    def counted_mask(self, owner: str, views: Views) -> Bools:
        """Returns for each virtual node of the owner, in the order of by_owner, whether it counts."""
        at = self.by_owner[owner]
        view = views.get(owner)
        if view is None:
            return np.zeros(len(at), np.bool_)
        rows, pools = self._rows_and_pools(owner, view.nodes, views)
        said: Bools = rows != NO_ROW
        if said.any():
            said &= view.nodes.state[rows] == NODE_LENT
        # A row of an older snapshot names no pool. Then the node counts only if no cluster has another one for it.
        named: Bools = said & (pools == THIS_POOL) & self.only_here[at]
        unnamed: Bools = said & (pools == NO_POOL) & self.only_one[at]
        return named | unnamed

    def _rows_and_pools(self, owner: str, nodes: ClusterNodes, views: Views) -> tuple[Int64s, Int64s]:
        """Returns the rows of the owner's nodes, and whether each names this pool, no pool or another one."""
        known = self._owner_rows.get(owner)
        if known is None or known[0] is not nodes or known[1] != nodes.labels_revision:
            long_names = {
                name_within_label_length(name): name for name in nodes.names if len(name) > LABEL_CHARACTERS_MAX
            }
            names = (self.real[at][1] for at in self.by_owner[owner].tolist())
            found = (nodes.row_of(long_names.get(name, name)) for name in names)
            rows = np.array([NO_ROW if row is None else row for row in found], np.int64)
            pools = np.array([self._named_pool(nodes, row, views) for row in rows.tolist()], np.int64)
            known = self._owner_rows[owner] = nodes, nodes.labels_revision, rows, pools
        return known[2], known[3]

    def _named_pool(self, nodes: ClusterNodes, row: int, views: Views) -> int:
        pool = dict(nodes.label_sets[int(nodes.label_set[row])]).get(POOL_CLUSTER, "") if row != NO_ROW else ""
        if not pool:
            return NO_POOL
        return THIS_POOL if _first_name_of_server(pool, views) == self.name else OTHER_POOL


class VirtualNodes:
    """The virtual nodes of all clusters.

    It marks the ones that do not count in the clusters' arrays (ClusterNodes.unlent).
    """

    def __init__(self) -> None:
        self._pools: dict[str, _Pool] = {}

    def follow_cluster(self, views: Views, name: str) -> list[str]:
        """Applies the present nodes of one cluster.

        Returns the clusters in which the set of nodes that count has changed.
        """
        view, pool = views.get(name), self._pools.get(name)
        if view is not None and (
            pool.is_current_for(view.nodes) if pool is not None else not view.nodes.lent_node_by_label_set()
        ):
            return self._mark_uncounted_nodes(views, [name])
        if view is None or not self._index_cluster(views, name):
            self._pools.pop(name, None)
        self._mark_unique_nodes()
        return self._mark_uncounted_nodes(views, None)

    def follow_all_clusters(self, views: Views) -> list[str]:
        """Applies the nodes of all clusters again, after clusters joined, left or turned out to be twins.

        Returns the clusters in which the set of nodes that count has changed.
        """
        self._pools = {}
        for name in views:
            self._index_cluster(views, name)
        self._mark_unique_nodes()
        return self._mark_uncounted_nodes(views, None)

    def _index_cluster(self, views: Views, name: str) -> bool:
        """Adds the virtual nodes of a cluster. Returns whether it has any; a second name of an API server has none."""
        nodes = views[name].nodes
        nodes.unlent[:] = False
        if views[name].twin_of or not nodes.lent_node_by_label_set():
            return False
        self._pools[name] = _Pool(name, nodes, views)
        return True

    def _mark_unique_nodes(self) -> None:
        times = Counter(real for pool in self._pools.values() for real in pool.real)
        for pool in self._pools.values():
            pool.only_one = np.array([times[real] == 1 for real in pool.real], np.bool_)

    def _mark_uncounted_nodes(self, views: Views, owners: list[str] | None) -> list[str]:
        """Marks the virtual nodes again. owners: the clusters whose rows may have changed; None: all."""
        changed = []
        for name, pool in self._pools.items():
            named = pool.by_owner.keys() if owners is None else pool.by_owner.keys() & owners
            before = pool.nodes.unlent[pool.rows] if named else NOTHING
            after = before.copy()
            for owner in named:
                at = pool.by_owner[owner]
                after[at] = ~pool.counted_mask(owner, views)
            if not np.array_equal(before, after):
                pool.nodes.unlent[pool.rows] = after
                pool.nodes.revision += 1
                views[name].revision += 1
                changed.append(name)
        return changed


def _virtual_rows(nodes: ClusterNodes) -> Iterator[tuple[int, Real]]:
    """Yields the rows of virtual nodes, with the owner and node that their labels name."""
    sets = nodes.lent_node_by_label_set()
    for row in np.flatnonzero(nodes.live_mask & np.isin(nodes.label_set, list(sets))).tolist():
        yield row, sets[int(nodes.label_set[row])]


def _first_name_of_server(owner: str, views: Views) -> str:
    view = views.get(owner)
    return view.twin_of or owner if view is not None else owner
