"""Makes copies of the planner's state with a changed fleet, to answer "what if". The real state does not change."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from planner.core.feasibility.promises import ClusterReservations
from planner.core.knowledge.all_clusters import ChangeCounts, ClusterAges, JoinedClusters
from planner.core.knowledge.state import PlannerState
from planner.core.knowledge.workload import Workload, is_orphan
from planner.core.placement.shares import facts_in_cluster
from spillway.columns import columns_of
from spillway.feasibility.cluster_view import ClusterView, WorkloadKey
from spillway.feasibility.nodes import ClusterNodes
from spillway.model import NodeRow, Part, Shape

SUPPOSED_BLOCK = 1_000_000
"""A block index that no collector uses, for supposed nodes."""


class IndistinguishablePods(Exception):
    """A workload's pods in a cluster cannot be distinguished from others: its room without them cannot be computed."""


class Supposition:
    """Makes states in which one workload was never placed; without a workload, states that equal the present one.

    Computed values are kept for the next state, whose shape or cluster differs a little.
    """

    def __init__(self, state: PlannerState, workload: Workload | None) -> None:
        self._state, self._workload = state, workload
        self._promises = ClusterReservations()
        self._emptied: dict[str, tuple[tuple[object, ...], ClusterNodes]] = {}

    def supposed_state(self) -> "SupposedState":
        """Returns the supposed state at this moment.

        Raises IndistinguishablePods when the workload's own pods cannot be removed.
        """
        workload = self._workload
        state = SupposedState(self._state, self._promises, workload.workload_key if workload is not None else None)
        if workload is not None:
            for cluster, part in workload.parts.items():
                self._remove_pods(state, workload, part, cluster)
            state.set_aside_workload(workload)
        return state

    def compute_rooms(self, shape: Shape, now: float) -> Iterator[None]:
        """Computes the rooms of one cluster after the other, in steps, so that later questions find them computed."""
        for cluster in list(self._state.clusters):
            state = self.supposed_state()
            if cluster in state.clusters:
                state.room_in_cluster(cluster, shape, False, now)
            yield

    def _remove_pods(self, state: "SupposedState", workload: Workload, part: Part, cluster: str) -> None:
        """Removes the workload's pods from the cluster."""
        facts = facts_in_cluster(self._state, workload.workload_key, cluster)
        counted = sum(count for _, count in facts.counted) if facts is not None else 0
        if facts is None or not counted:
            return
        borne, view = workload.template_of(part), state.clusters[cluster]
        of = (view.nodes, view.nodes.revision, facts.counted, borne.labels, state.shape_in(cluster, borne.shape))
        known = self._emptied.get(cluster)
        if known is None or known[0] != of:
            nodes = None
            if len(facts.counted) == 1:
                nodes = view.nodes.without_workload_pods(
                    workload.declared.namespace, borne.labels, of[-1].requests, counted
                )
            if nodes is None:
                raise IndistinguishablePods(f"its pods in {cluster} cannot be distinguished from other pods")
            known = self._emptied[cluster] = of, nodes
        state.clusters[cluster] = view.with_nodes(known[1])


class SupposedState(PlannerState):
    """A copy of a state that shares all unchanged parts with it. Use it at once, as the original goes on changing.

    promises: this object takes over the original's reservations, except those of the workload `apart_from`.
    """

    def __init__(self, state: PlannerState, promises: ClusterReservations, apart_from: WorkloadKey | None) -> None:
        self.__dict__.update(state.__dict__)
        self.clusters = dict(state.clusters)
        self.workloads = dict(state.workloads)
        promises.copy_reservations(self._promises, apart_from)
        self._promises = promises
        self._ages, self._joined, self._seen = ClusterAges(), JoinedClusters(), ChangeCounts()
        self._seen.stop_counting()

    def set_aside_workload(self, workload: Workload) -> None:
        """Removes the workload as if it had never been declared. Orphans of its name stay."""
        self.workloads.pop(workload.workload_key, None)
        orphans = {name: said for name, said in workload.statuses.items() if is_orphan(said)}
        self._early_statuses = {**self._early_statuses, workload.workload_key: orphans}

    def with_shape(self, base: Shape, variant: Shape) -> "SupposedState":
        """Changes a template's shape to a variant."""
        self.admitted = self.admitted.copy_with_variant(base, variant)
        return self

    def with_nodes(self, cluster: str, rows: Iterable[NodeRow]) -> "SupposedState":
        """Adds nodes to a cluster."""
        view = self.clusters[cluster]
        nodes = view.nodes.independent_copy()
        nodes.upsert_nodes(columns_of(list(rows)), SUPPOSED_BLOCK)
        self.clusters[cluster] = view.with_nodes(nodes)
        return self

    def with_wider_group(self, cluster: str, group: str, nodes: int) -> "SupposedState":
        """Raises the maximum of a node group by so many nodes."""
        view = self.clusters[cluster].with_nodes(self.clusters[cluster].nodes)
        assert view.joined is not None
        groups = (
            replace(entry, nodes_max=entry.nodes_max + nodes) if entry.name == group else entry
            for entry in view.joined.node_groups
        )
        view.joined = replace(view.joined, node_groups=tuple(groups))
        self.clusters[cluster] = view
        return self


def empty_copies_of_node(view: ClusterView, row: int, count: int) -> list[NodeRow]:
    """Returns empty nodes of the class of an existing node."""
    return [view.nodes.empty_node_like(row, f"supposed-{number}") for number in range(count)]
