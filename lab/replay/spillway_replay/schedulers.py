"""The members' schedulers: one with the Kubernetes scheduler's own plugins and scores, and a simple one without Go."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from random import Random
from types import TracebackType
from typing import Any, Protocol, Self

from snapshot.core.cluster_state import ClusterState
from snapshot.core.rules import SnapshotRules
from spillway.kubernetes.objects import NODES, PODS, Manifest
from spillway.kubernetes.pod_shape import shape_of
from spillway.model import NodeRow, Shape

from .objects import decode_objects
from .trace import Cluster


@dataclass(frozen=True, slots=True)
class Pods:
    """A number of replicas of one template. name: the pods are called name-0, name-1, …"""

    namespace: str
    template: Manifest
    count: int
    name: str


class Scheduler(Protocol):
    def place_pods(self, asked: Sequence[Pods]) -> list[list[str]]:
        """Binds pods one after another, each on the node with the best score.

        Returns the nodes for each entry. They are fewer than its count once a pod found no node.
        """

    def remove_pods(self, gone: Sequence[Pods]) -> None:
        """Removes the first `count` pods of each name that were placed before."""

    def count_placeable(self, asked: Sequence[Pods]) -> list[int]:
        """Returns how many pods of each entry would find a node, one after another. Binds none of them."""

    def remove_foreign_pods(self, pods: Sequence[Manifest]) -> None:
        """Removes pods of other users."""

    def put_back_pods(self, pods: Sequence[Manifest]) -> None:
        """Puts removed pods back on the nodes that they name."""

    def reset_cluster(self) -> None:
        """Resets the cluster to its first state."""


class OracleScheduler:
    """Schedules with the oracle of the differential tests: the default profile's filters and scores, random ties."""

    def __init__(self, cluster: Cluster, random: Random) -> None:
        self._oracle_module: Any = import_module("spillway_oracle.oracle")
        self._oracle = self._oracle_module.Oracle()
        self._cluster, self._random = cluster, random

    def __enter__(self) -> Self:
        self._oracle.__enter__()
        self.reset_cluster()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._oracle.__exit__(kind, error, trace)

    def reset_cluster(self) -> None:
        self._ask_oracle(load={"nodes": self._cluster.nodes, "pods": self._cluster.pods})

    def place_pods(self, asked: Sequence[Pods]) -> list[list[str]]:
        answer = self._ask_oracle(place=[self._place_request(pods) for pods in asked])
        for placed in answer.placed:
            assert not placed.error, placed.error
        return [list(placed.sequence) for placed in answer.placed]

    def remove_pods(self, gone: Sequence[Pods]) -> None:
        self._ask_oracle(
            remove=[f"{pods.namespace}/{pods.name}-{index}" for pods in gone for index in range(pods.count)]
        )

    def count_placeable(self, asked: Sequence[Pods]) -> list[int]:
        counts = [len(nodes) for nodes in self.place_pods(asked)]
        self.remove_pods([replace(pods, count=count) for pods, count in zip(asked, counts, strict=True)])
        return counts

    def remove_foreign_pods(self, pods: Sequence[Manifest]) -> None:
        self._ask_oracle(remove=[f"{pod['metadata']['namespace']}/{pod['metadata']['name']}" for pod in pods])

    def put_back_pods(self, pods: Sequence[Manifest]) -> None:
        self._ask_oracle(assume=pods)

    def _place_request(self, pods: Pods) -> Any:
        module, seed = self._oracle_module, self._random.getrandbits(31)
        return module.Place(
            pods.namespace, pods.template, pods.count, module.SCORE, seed, pods.name, keep=True, sequence=True
        )

    def _ask_oracle(self, **request: Any) -> Any:
        return self._oracle.send_request(self._oracle_module.Request(**request))


class PlainScheduler:
    """Schedules with the filters of the planner's own tests, one pod and one node at a time. The emptiest node wins."""

    def __init__(self, cluster: Cluster, random: Random) -> None:
        self._plain: Any = import_module("plain_scheduler")
        self._cluster, self._random = cluster, random
        self.reset_cluster()

    def reset_cluster(self) -> None:
        self._rows = make_node_rows(self._cluster.nodes, self._cluster.pods)
        self._bound: dict[str, tuple[Shape, int]] = {}

    def place_pods(self, asked: Sequence[Pods]) -> list[list[str]]:
        return [self._bind_pods(pods) for pods in asked]

    def _bind_pods(self, pods: Pods) -> list[str]:
        shape, nodes = shape_of(pods.template, pods.namespace, "template"), list[str]()
        for index in range(pods.count):
            fitting = self._plain.open_node_indices(shape, self._rows)
            if not fitting:
                break
            emptiest = max(_free_share(self._rows[row]) for row in fitting)
            chosen = self._random.choice([row for row in fitting if _free_share(self._rows[row]) == emptiest])
            self._rows = self._plain.bind_replica(shape, self._rows, chosen)
            self._bound[f"{pods.namespace}/{pods.name}-{index}"] = shape, chosen
            nodes.append(self._rows[chosen].name)
        return nodes

    def remove_pods(self, gone: Sequence[Pods]) -> None:
        for pods in gone:
            for index in range(pods.count):
                shape, row = self._bound.pop(f"{pods.namespace}/{pods.name}-{index}")
                self._rows[row] = self._row_without_pod(self._rows[row], shape)

    def _row_without_pod(self, row: NodeRow, shape: Shape) -> NodeRow:
        requested, pods = dict(row.requested), dict(row.pods)
        for name, amount in shape.requests:
            requested[name] -= amount
        table = self._plain.pod_table_of(shape)
        pods[table] -= 1
        kept = tuple((entry, count) for entry, count in pods.items() if count)
        return replace(row, requested=requested, pods=kept)

    def count_placeable(self, asked: Sequence[Pods]) -> list[int]:
        rows, bound = self._rows, dict(self._bound)
        counts = [len(nodes) for nodes in self.place_pods(asked)]
        self._rows, self._bound = rows, bound
        return counts

    def remove_foreign_pods(self, pods: Sequence[Manifest]) -> None:
        for row, shape in self._find_rows_of_pods(pods):
            self._rows[row] = self._row_without_pod(self._rows[row], shape)

    def put_back_pods(self, pods: Sequence[Manifest]) -> None:
        for row, shape in self._find_rows_of_pods(pods):
            self._rows = self._plain.bind_replica(shape, self._rows, row)

    def _find_rows_of_pods(self, pods: Sequence[Manifest]) -> Iterator[tuple[int, Shape]]:
        at = {row.name: index for index, row in enumerate(self._rows)}
        for pod in pods:
            yield at[pod["spec"]["nodeName"]], shape_of(pod, pod["metadata"]["namespace"], "pod")


def make_node_rows(nodes: Sequence[Manifest], pods: Sequence[Manifest]) -> list[NodeRow]:
    """Returns the nodes' rows as a collector reports them."""
    state = ClusterState("", SnapshotRules())
    state.replace_objects(NODES, decode_objects(NODES, nodes), 0.0)
    state.replace_objects(PODS, decode_objects(PODS, pods), 0.0)
    return list(state.whole_state().rows)


def _free_share(row: NodeRow) -> float:
    names = [name for name in ("cpu", "memory") if row.allocatable.get(name)]
    return round(sum(1 - row.requested.get(name, 0) / row.allocatable[name] for name in names), 6)
