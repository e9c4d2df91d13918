"""The fleet as it would be with something changed: more nodes, a workload gone. Nothing real changes."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from planner.core.feasibility.promises import Promises
from planner.core.knowledge.all_clusters import Ages, Joined, Seen
from planner.core.knowledge.state import PlannerState
from planner.core.knowledge.workload import Workload, is_orphan
from planner.core.placement.shares import facts_of
from spillway.columns import columns_of
from spillway.feasibility.cluster_view import ClusterView, WorkloadKey
from spillway.feasibility.nodes import ClusterNodes
from spillway.model import NodeRow, Part, Shape

SUPPOSED_BLOCK = 1_000_000
"""A block index that no collector has: the nodes that are only supposed."""


class Indistinguishable(Exception):
    """The pods of a workload cannot be told from others in a cluster, so nobody knows what is there without them."""


class Supposition:
    """A fleet as if one workload had never been placed, or just as it is, brought up to date whenever it is asked for.

    What was worked out for one question serves the next one, which differs in a shape, or in one cluster.
    """

    def __init__(self, state: PlannerState, workload: Workload | None) -> None:
        self._state, self._workload = state, workload
        self._promises = Promises()
        self._emptied: dict[str, tuple[tuple[object, ...], ClusterNodes]] = {}

    def now(self) -> "SupposedState":
        """Indistinguishable when the workload's own pods cannot be thought away."""
        workload = self._workload
        state = SupposedState(self._state, self._promises, workload.key if workload is not None else None)
        if workload is not None:
            for cluster, part in workload.parts.items():
                self._empty(state, workload, part, cluster)
            state.set_aside(workload)
        return state

    def look(self, shape: Shape, now: float) -> Iterator[None]:
        """At one cluster after the other, so that no question has to look at all of them at once."""
        for cluster in list(self._state.clusters):
            state = self.now()
            if cluster in state.clusters:
                state.room(cluster, shape, False, now)
            yield

    def _empty(self, state: "SupposedState", workload: Workload, part: Part, cluster: str) -> None:
        """The workload's pods are gone there."""
        facts = facts_of(self._state, workload.key, cluster)
        counted = sum(count for _, count in facts.counted) if facts is not None else 0
        if facts is None or not counted:
            return
        borne, view = workload.template_of(part), state.clusters[cluster]
        of = (view.nodes, view.nodes.revision, facts.counted, borne.labels, state.shape_in(cluster, borne.shape))
        known = self._emptied.get(cluster)
        if known is None or known[0] != of:
            nodes = None
            if len(facts.counted) == 1:
                nodes = view.nodes.without(workload.declared.namespace, borne.labels, of[-1].requests, counted)
            if nodes is None:
                raise Indistinguishable(f"its pods in {cluster} cannot be told from others")
            known = self._emptied[cluster] = of, nodes
        state.clusters[cluster] = view.with_nodes(known[1])


class SupposedState(PlannerState):
    """Shares with a state what is not changed in it. To be asked at once: the state goes on changing.

    promises: become its own but for those to one workload, and take their place.
    """

    def __init__(self, state: PlannerState, promises: Promises, apart_from: WorkloadKey | None) -> None:
        self.__dict__.update(state.__dict__)
        self.clusters = dict(state.clusters)
        self.workloads = dict(state.workloads)
        promises.follow(self._promises, apart_from)
        self._promises = promises
        self._ages, self._joined, self._seen = Ages(), Joined(), Seen()
        self._seen.stop()

    def set_aside(self, workload: Workload) -> None:
        """It was never declared, but for objects of its name that no placement lists."""
        self.workloads.pop(workload.key, None)
        orphans = {name: said for name, said in workload.statuses.items() if is_orphan(said)}
        self._early_statuses = {**self._early_statuses, workload.key: orphans}

    def with_shape(self, base: Shape, variant: Shape) -> "SupposedState":
        """As if a template's shape were a variant of what it is."""
        self.admitted = self.admitted.varied(base, variant)
        return self

    def with_nodes(self, cluster: str, rows: Iterable[NodeRow]) -> "SupposedState":
        """With these nodes more in a cluster."""
        view = self.clusters[cluster]
        nodes = view.nodes.copied()
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
