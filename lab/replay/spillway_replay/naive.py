"""A simple planner as a baseline: it estimates each cluster by its newest record, and reserves nothing.

It has the two ways of Karmada's scheduler. SUMS adds up the free resources of a cluster, as the general estimator does
with ResourceSummary. NODES counts node by node with node affinity, as the accurate estimator does. Replicas are divided
in proportion to the estimates, own clusters before the cloud. Replicas without a place are tried again every 5 s.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from snapshot.core.cluster_state import StateChanges
from spillway.columns import columns_of
from spillway.feasibility.fit import compute_fit
from spillway.feasibility.nodes import ClusterNodes
from spillway.kubernetes.pod_shape import shape_of
from spillway.model import Generation, NodeRow, Shape

from .least import Bound, least_moves
from .member import Member, Report
from .ours import CARRIED_OUT_SECONDS
from .system import REFUSED, Answer
from .trace import Cluster
from .workloads import Key, Workload

SUMS, NODES = "sums", "nodes"
RETRY_SECONDS = 5.0


@dataclass(slots=True)
class View:
    """The state of a cluster by its newest record."""

    rows: dict[str, NodeRow] = field(default_factory=dict)
    nodes: ClusterNodes = field(default_factory=ClusterNodes)

    def apply_changes(self, changes: StateChanges) -> None:
        self.rows.update((row.name, row) for row in changes.rows)
        self.nodes.upsert_nodes(columns_of(changes.rows), 0)

    def estimate_replicas(self, shape: Shape, way: str) -> int:
        if way == NODES:
            return compute_fit(shape, self.nodes).total
        free: Counter[str] = Counter()
        for row in self.rows.values():
            for name, amount in row.allocatable.items():
                free[name] += max(0, amount - row.requested.get(name, 0))
        return int(min(free[name] // amount for name, amount in shape.requests))


@dataclass(slots=True)
class Naive:
    way: str
    random: Random
    loop: Any
    members: dict[str, Member] = field(default_factory=dict)
    workloads: dict[Key, Workload] = field(default_factory=dict)
    moves: Counter[str] = field(default_factory=Counter)
    least: Counter[str] = field(default_factory=Counter)
    decisions: Counter[str] = field(default_factory=Counter)
    _views: dict[str, View] = field(default_factory=dict)
    _tiers: dict[str, str] = field(default_factory=dict)
    _parts: dict[Key, dict[str, int]] = field(default_factory=dict)
    _wanted: dict[Key, int] = field(default_factory=dict)
    _made: int = 0
    _retrying: "asyncio.Task[None] | None" = None

    async def start(self) -> None:
        self._retrying = asyncio.create_task(self._retry_unplaced())

    async def add_cluster(self, cluster: Cluster, whole: StateChanges) -> None:
        self._tiers[cluster.name] = cluster.tier
        self._views[cluster.name] = View()
        self._views[cluster.name].apply_changes(whole)

    async def receive_report(self, cluster: str, report: Report) -> None:
        self._views[cluster].apply_changes(report.changes)

    async def apply(self, workload: Workload, idempotency_key: str) -> Answer:
        before = self.workloads.get(workload.key)
        self.workloads[workload.key] = workload
        return self._decide_placement(workload, workload.replicas, "Apply" if before is None else "Policy")

    async def scale(self, workload: Workload, replicas: int, idempotency_key: str) -> Answer:
        if workload.key not in self._parts:
            return Answer(0, 0, "NOT_FOUND")
        return self._decide_placement(self.workloads[workload.key], replicas, "Scale")

    def unplaced_by_workload(self) -> dict[Key, int]:
        missing = {key: wanted - sum(self._parts[key].values()) for key, wanted in self._wanted.items()}
        return {key: count for key, count in missing.items() if count > 0}

    def desired_by_cluster(self) -> Mapping[str, Mapping[Key, int]]:
        wanted: dict[str, dict[Key, int]] = {}
        for key, parts in self._parts.items():
            for cluster, replicas in parts.items():
                wanted.setdefault(cluster, {})[key] = replicas
        return wanted

    def declared_by_workload(self) -> dict[Key, int]:
        return dict(self._wanted)

    async def _retry_unplaced(self) -> None:
        while True:
            await asyncio.sleep(RETRY_SECONDS)
            for key in sorted(self.unplaced_by_workload()):
                self._decide_placement(self.workloads[key], self._wanted[key], "Waiting")

    def _decide_placement(self, workload: Workload, replicas: int, cause: str) -> Answer:
        known = self._parts.get(workload.key)
        before = known or {}
        clusters = workload.clusters or tuple(self._tiers)
        after = {cluster: count for cluster, count in before.items() if cluster in clusters}
        surplus = sum(after.values()) - replicas
        estimates = {}
        if surplus > 0:
            for cluster, count in divide_in_proportion(after, surplus).items():
                after[cluster] -= count
        elif surplus < 0:
            estimates = self._estimate_by_cluster(workload, clusters)
            for tier in ("own", "cloud"):
                rooms = {cluster: room for cluster, room in estimates.items() if self._tiers[cluster] == tier}
                for cluster, count in divide_in_proportion(rooms, replicas - sum(after.values())).items():
                    after[cluster] = after.get(cluster, 0) + count
        placed = sum(after.values())
        if placed < replicas and workload.refuse and cause in ("Apply", "Scale", "Policy"):
            return Answer(0, 0, REFUSED)
        if known is not None:
            bounds = [_bound_of_cluster(cluster, before, after, clusters, estimates) for cluster in self._tiers]
            self.decisions[cause] += 1
            self.moves[cause] += sum(max(0, had - after.get(cluster, 0)) for cluster, had in before.items())
            self.least[cause] += least_moves(bounds, placed)
        self._parts[workload.key], self._wanted[workload.key] = after, replicas
        self._apply_parts_later(workload, before, after)
        return Answer(placed, replicas - placed)

    def _estimate_by_cluster(self, workload: Workload, clusters: tuple[str, ...]) -> dict[str, int]:
        shape = replace(shape_of(workload.template, workload.key[0], "template"), spread=(), apart=(), near=())
        return {cluster: self._views[cluster].estimate_replicas(shape, self.way) for cluster in clusters}

    def _apply_parts_later(self, workload: Workload, before: Mapping[str, int], after: Mapping[str, int]) -> None:
        for cluster in sorted({*before, *after}):
            replicas = after.get(cluster, 0)
            if before.get(cluster) != replicas:
                self._made += 1
                arguments = (workload, Generation(1, self._made), replicas, replicas == 0)
                delay = self.random.uniform(*CARRIED_OUT_SECONDS)
                self.loop.call_later(delay, self.members[cluster].apply_part, *arguments)


def divide_in_proportion(most: Mapping[str, int], wanted: int) -> dict[str, int]:
    """Divides `wanted` replicas in proportion to `most`, never above it. Largest remainders go first, then names."""
    total = sum(most.values())
    wanted = max(0, min(wanted, total))
    if not wanted:
        return {}
    shares = {name: count * wanted // total for name, count in most.items()}
    by_remainder = sorted(most, key=lambda name: (-(most[name] * wanted % total), name))
    for name in by_remainder[: wanted - sum(shares.values())]:
        shares[name] += 1
    return {name: count for name, count in shares.items() if count}


def _bound_of_cluster(
    cluster: str,
    before: Mapping[str, int],
    after: Mapping[str, int],
    clusters: tuple[str, ...],
    estimates: Mapping[str, int],
) -> Bound:
    had, has = before.get(cluster, 0), after.get(cluster, 0)
    return Bound(had, 0, max(has, had + estimates.get(cluster, 0)) if cluster in clusters else has)
