"""The baseline for the planner's speed: a simple NumPy computation with whole passes over one matrix of all nodes."""

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import zstandard

from spillway.columns import NO_NODES
from spillway.feasibility.node_match import find_untolerated_taint
from spillway.kubernetes.pod_shape import matches_labels
from spillway.model import Int64s, NodeColumns, Shape
from spillway.v1 import events_pb2

COPY_BYTES = 2**28
COPIES = 5


def measure_copy_bytes_per_second() -> float:
    """Returns the bytes per second that one core copies, reads plus writes. It is the best of several copies."""
    source = np.ones(COPY_BYTES // 8)
    target = np.empty_like(source)
    best = 0.0
    for _ in range(COPIES + 1):
        started = time.thread_time()
        np.copyto(target, source)
        best = max(best, 2 * COPY_BYTES / (time.thread_time() - started))
    return best


class Plain:
    """All nodes of a fleet in arrays, cluster after cluster.

    allocatable, requested: amounts, [resources, all nodes]. label_set, taint_set: the number of the set, [all nodes].
    """

    def __init__(self, clusters: Sequence[NodeColumns]) -> None:
        first = clusters[0]
        self.nodes = len(first.names)
        self.resources = {name: index for index, name in enumerate(first.resources)}
        self.allocatable = np.concatenate([one.allocatable for one in clusters], axis=1)
        self.requested = np.concatenate([one.requested for one in clusters], axis=1)
        self.label_sets, self.taint_sets = first.label_sets, first.taint_sets
        self.label_set = np.concatenate([one.label_set for one in clusters])
        self.taint_set = np.concatenate([one.taint_set for one in clusters])
        self.cordoned = np.concatenate([one.unschedulable for one in clusters]) != 0
        self.starts = np.arange(0, len(self.label_set), self.nodes)

    @property
    def amount_bytes(self) -> int:
        return self.allocatable.nbytes + self.requested.nbytes

    @property
    def bytes_of_one_pass(self) -> int:
        """Returns the bytes of the free cpu, memory and pods of all nodes, as int64."""
        return 3 * 8 * len(self.label_set)

    def replicas_in_each_cluster(self, shape: Shape) -> Int64s:
        """Returns the replicas that fit in each cluster by resources, labels and taints, as an array [clusters]."""
        result: Int64s = np.add.reduceat(self._replicas_by_node(shape, slice(None)), self.starts)
        return result

    def replicas_in_cluster(self, cluster: int, shape: Shape) -> int:
        return int(self._replicas_by_node(shape, slice(cluster * self.nodes, (cluster + 1) * self.nodes)).sum())

    def _replicas_by_node(self, shape: Shape, part: slice) -> Int64s:
        by_resource = [
            (self.allocatable[self.resources[name], part] - self.requested[self.resources[name], part]) // amount
            for name, amount in shape.requests
        ]
        takes = np.maximum(np.minimum.reduce(by_resource), 0)
        selected = set(shape.node_selector)
        labels = [
            selected <= set(found)
            and (not shape.node_terms or any(matches_labels(term.labels, dict(found)) for term in shape.node_terms))
            for found in self.label_sets
        ]
        taints = [find_untolerated_taint(found, shape.tolerations) is None for found in self.taint_sets]
        is_open = np.array(labels)[self.label_set[part]] & np.array(taints)[self.taint_set[part]]
        result: Int64s = np.where(is_open & ~self.cordoned[part], takes, 0)
        return result

    def add_or_remove_pod(self, cluster: int, row: int) -> NodeColumns:
        """Adds a pod to a node, or removes one when the node is full. Returns the node as a collector would send it."""
        place = cluster * self.nodes + row
        free = self.allocatable[:, place] - self.requested[:, place]
        sign = 1 if free[self.resources["cpu"]] > 2_000 else -1
        self.requested[self.resources["cpu"], place] += sign * 500
        self.requested[self.resources["memory"], place] += sign * 2**29
        self.requested[self.resources["pods"], place] += sign
        return replace(
            NO_NODES,
            names=(f"cluster-{cluster:03}-node-{row:05}",),
            resources=tuple(self.resources),
            allocatable=self.allocatable[:, place : place + 1],
            requested=self.requested[:, place : place + 1],
            label_sets=(self.label_sets[int(self.label_set[place])],),
            label_set=np.zeros(1, np.int64),
            taint_sets=(self.taint_sets[int(self.taint_set[place])],),
            taint_set=np.zeros(1, np.int64),
            state=np.zeros(1, np.int64),
            unschedulable=self.cordoned[place : place + 1].astype(np.int64),
        )

    def parse_records(self, records: Sequence[bytes]) -> None:
        """Decompresses and parses records and writes their amounts into the matrix."""
        decompressor = zstandard.ZstdDecompressor()
        for cluster, record in enumerate(records):
            message = events_pb2.NodeColumns.FromString(decompressor.decompress(record, max_output_size=2**26))
            part = slice(cluster * self.nodes, (cluster + 1) * self.nodes)
            for index, resource in enumerate(message.resources):
                self.allocatable[index, part] = np.asarray(resource.allocatable)
                self.requested[index, part] = np.asarray(resource.requested)
            self.label_set[part], self.taint_set[part] = np.asarray(message.label_set), np.asarray(message.taint_set)
