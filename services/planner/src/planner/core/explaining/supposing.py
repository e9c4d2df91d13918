"""The fleet as it would be with something changed: more nodes, a workload gone. Nothing real changes."""

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import replace

from planner.core.all_clusters import Ages, Joined, Seen
from planner.core.feasibility.reservation import NOTHING_RESERVED
from planner.core.moving.shares import facts_of
from planner.core.state import PlannerState
from planner.core.workload import Workload, is_orphan
from spillway.columns import columns_of
from spillway.feasibility.cluster_view import ClusterView
from spillway.feasibility.nodes import ClusterNodes
from spillway.model import NodeRow, Shape

SUPPOSED_BLOCK = 1_000_000
"""A block index that no collector has: the nodes that are only supposed."""


class Indistinguishable(Exception):
    """The pods of a workload cannot be told from others in a cluster, so nobody knows what is there without them."""


class SupposedState(PlannerState):
    """Shares with a state what is not changed in it. To be asked at once: the state goes on changing."""

    def __init__(self, state: PlannerState) -> None:
        self.__dict__.update(state.__dict__)
        self.clusters = dict(state.clusters)
        self.workloads = dict(state.workloads)
        self._promises = self._promises.copied()
        self._ages, self._joined, self._seen = Ages(), Joined(), Seen()
        self._seen.stop()

    def without(self, workload: Workload) -> "SupposedState":
        """As if a workload had never been placed: its pods are gone, and what is promised to it. Indistinguishable."""
        for cluster, part in workload.parts.items():
            self._promises.set(cluster, workload.key, NOTHING_RESERVED)
            facts = facts_of(self, workload.key, cluster)
            counted = sum(count for _, count in facts.counted) if facts is not None else 0
            if not counted:
                continue
            view, borne = self.clusters[cluster], workload.template_of(part)
            nodes = None
            own = self.shape_in(cluster, borne.shape)
            if facts is not None and len(facts.counted) == 1:
                nodes = view.nodes.without(workload.declared.namespace, borne.labels, own.requests, counted)
            if nodes is None:
                raise Indistinguishable(f"its pods in {cluster} cannot be told from others")
            self.clusters[cluster] = view.with_nodes(nodes)
        self.workloads.pop(workload.key, None)
        orphans = {name: said for name, said in workload.statuses.items() if is_orphan(said)}
        self._early_statuses = {**self._early_statuses, workload.key: orphans}
        return self

    def with_shape(self, base: Shape, variant: Shape) -> "SupposedState":
        """As if a template's shape were a variant of what it is."""
        self.admitted = self.admitted.varied(base, variant)
        return self

    def with_nodes(self, cluster: str, rows: Iterable[NodeRow]) -> "SupposedState":
        """With these nodes more in a cluster."""
        view = self.clusters[cluster]
        nodes: ClusterNodes = deepcopy(view.nodes)
        nodes.upsert(columns_of(list(rows)), SUPPOSED_BLOCK)
        self.clusters[cluster] = view.with_nodes(nodes)
        return self

    def with_wider_group(self, cluster: str, group: str, nodes: int) -> "SupposedState":
        """With so many nodes more that a node group may have."""
        view = self.clusters[cluster].with_nodes(self.clusters[cluster].nodes)
        assert view.joined is not None
        groups = (
            replace(entry, nodes_max=entry.nodes_max + nodes) if entry.name == group else entry
            for entry in view.joined.node_groups
        )
        view.joined = replace(view.joined, node_groups=tuple(groups))
        self.clusters[cluster] = view
        return self


def copies_of(view: ClusterView, row: int, count: int) -> list[NodeRow]:
    """So many empty nodes of the class of one that is there."""
    return [view.nodes.empty_like(row, f"supposed-{number}") for number in range(count)]
