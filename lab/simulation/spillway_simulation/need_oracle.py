"""What is said to be needed of lent nodes, and what is recalled and lent beside it (P6, P8).

Replicas wait for what is lent, so no more of them than it would take. For a workload no more is recalled than the
larger of what was said to be needed and of its pods that wait, with what is on its way back already. A replica that
has grown since needs more of what is on its way back. Nothing is lent that somebody who waits for long could use, and
a freeze stops lending and recalls.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping

from sim.cluster import SimCluster
from spillway.events import CapacityNeeded
from spillway.events_lending import CAUSE_NEED, NodeRecalled, RecallSettled
from spillway.lending_marks import LENDING
from spillway_simulation import members
from spillway_simulation.brake_oracle import BrakeOracle
from spillway_simulation.lending_state import OWNED, Real, objects_by_key, register_of
from spillway_simulation.sights import Sights

HEARD_SECONDS = 15.0
"""So old may be what a need or a recall was decided on."""
FROZEN_HEARD_SECONDS = 8.0
"""Who does not hear of a freeze for so long acts no more: a session, or the log's proof, and a moment."""

Key = tuple[str, str]
Place = tuple[str, Key]


class NeedOracle:
    """cpu_least: thousandths of a core, the least that a replica of a workload asked for lately.

    promised_in: replicas that are decided in a cluster, by workload. unplaced: how many of a workload have no place.
    """

    def __init__(
        self,
        clusters: Mapping[str, SimCluster],
        sights: Sights,
        brakes: BrakeOracle,
        violated: Callable[[str], None],
        cpu_least: Callable[[Key, float], int],
        promised_in: Callable[[str], Mapping[Key, int]],
        unplaced: Callable[[Key], int],
    ) -> None:
        self._clusters, self._sights, self._brakes = clusters, sights, brakes
        self._violated, self._cpu_least = violated, cpu_least
        self._promised_in, self._unplaced = promised_in, unplaced
        self._said: dict[Place, list[tuple[float, int]]] = defaultdict(list)
        self._recalled: dict[Real, tuple[float, NodeRecalled]] = {}
        self._cordoned: dict[Real, float] = {}
        """When a node was seen cordoned last."""
        self._marked: dict[str, list[tuple[float, tuple[int, ...]]]] = defaultdict(list)
        self.seen: dict[str, int] = {}

    def note_nodes(self, now: float) -> None:
        """At the nodes that bear the mark of lending, now and then."""
        for name, cluster in self._clusters.items():
            self._note_cordoned_nodes(name, cluster, now)
            seen = self._marked[name]
            seen.append((now, _cpu_of_marked_nodes(cluster)))
            self._marked[name] = [one for one in seen if one[0] >= now - HEARD_SECONDS]

    def on_event(self, event: object) -> None:
        match event:
            case CapacityNeeded() as needed:
                self._on_need(needed)
            case NodeRecalled(cause=cause) as recall if cause == CAUSE_NEED:
                self._on_recall(recall)
            case RecallSettled(cluster=cluster, node=node):
                self._recalled.pop((cluster, node), None)

    def replicas_needed_by_place(self) -> dict[Place, int]:
        """What is said now, where it is more than nothing."""
        return {place: said[-1][1] for place, said in self._said.items() if said[-1][1]}

    def judge_node_taken(self, owner: str, node: str) -> None:
        """A node of the owner is being checked for the pool from now on."""
        now, frozen = asyncio.get_running_loop().time(), self._brakes.frozen_seconds(owner)
        if frozen > FROZEN_HEARD_SECONDS:
            self._violated(f"{owner}/{node}: taken to be lent, and it is frozen for {frozen:.1f} s")
        cpu = _node_cpu_millis(self._clusters[owner], node)
        for (cluster, key), said in self._said.items():
            waits = cluster == owner and said[-1][1] and now - said[-1][0] > HEARD_SECONDS
            if waits and 0 < self._cpu_least(key, 0.0) <= cpu:
                self._violated(f"{owner}/{node}: taken to be lent, and {'/'.join(key)} waits for {said[-1][1]} places")

    def _on_need(self, needed: CapacityNeeded) -> None:
        now, key = asyncio.get_running_loop().time(), (needed.namespace, needed.name)
        self._said[needed.cluster, key].append((now, needed.replicas_lent))
        cpu = self._cpu_least(key, now - HEARD_SECONDS)
        if not needed.replicas_lent or not cpu:
            return
        self._count_event("needs")
        seen = [(now, _cpu_of_marked_nodes(self._clusters[needed.cluster])), *self._marked[needed.cluster]]
        would_take = max(sum(one // cpu for one in cpus) for _, cpus in seen)
        if not self._unplaced(key):  # Overflow says for how many there is to be room at home, with what is free there.
            would_take += members.room_for_pods(self._clusters[needed.cluster], cpu)
        if needed.replicas_lent > would_take and self._has_no_waiting_replicas(needed.cluster, now):
            self._violated(
                f"{'/'.join(key)}: {needed.replicas_lent} wait for lent nodes of {needed.cluster}, "
                f"which would take {would_take}"
            )

    def _has_no_waiting_replicas(self, cluster: str, now: float) -> bool:
        """Whether nobody's replicas wait for a node there: one node more may make many certain that others bar now."""
        self._sights.note_pods(now)
        promised = self._promised_in(cluster)
        return all(count <= self._sights.pods_bound_since(cluster, key, now) for key, count in promised.items())

    def _on_recall(self, recall: NodeRecalled) -> None:
        now, owner = asyncio.get_running_loop().time(), recall.cluster
        self._sights.note_pods(now)
        frozen = self._brakes.frozen_seconds(owner)
        if frozen > FROZEN_HEARD_SECONDS:
            self._violated(f"{owner}/{recall.node}: recalled for a need, and it is frozen for {frozen:.1f} s")
        if not recall.wanted_by:
            self._violated(f"{owner}/{recall.node}: recalled for a need, and nobody's")
        self._recalled.pop((owner, recall.node), None)
        self._note_cordoned_nodes(owner, self._clusters[owner], now)
        others = [
            (at, one)
            for real, (at, one) in self._recalled.items()
            if real[0] == owner
            and self._is_recall_open(one)
            and self._cordoned.get(real, -HEARD_SECONDS) < now - HEARD_SECONDS
        ]
        self._recalled[owner, recall.node] = now, recall
        going = [*others, (now, recall)]
        for name in recall.wanted_by:
            self._judge_recalls_for(owner, name, going)

    def _note_cordoned_nodes(self, name: str, cluster: SimCluster, now: float) -> None:
        """What comes back cordoned takes nobody's pods: for those another node may be recalled."""
        for node, record in cluster.control_plane.table.record_by_name.items():
            if record.unschedulable:
                self._cordoned[name, node] = now

    def _judge_recalls_for(self, owner: str, name: str, going: list[tuple[float, NodeRecalled]]) -> None:
        """name: a workload, as in NodeRecalled.wanted_by. going: all open recalls of that cluster, with this one."""
        for_it = [
            (at, one.node, count)
            for at, one in going
            for whose, count in zip(one.wanted_by, one.wanted_replicas, strict=False)
            if whose == name
        ]
        since = min(at for at, _, _ in for_it) - HEARD_SECONDS
        kind = name.split("/")[1:]
        key = (kind[-2], kind[-1] if len(kind) == 2 else kind[-1].rpartition("-")[0])
        said = self._largest_need_since((owner, key), since) if len(kind) == 2 else 0
        waited = self._sights.pods_waiting_since(owner, key, since)
        cpu, latest = self._cpu_least(key, asyncio.get_running_loop().time()), going[-1][1].node
        recalled = sum(
            count if node == latest or not cpu else min(count, _node_cpu_millis(self._clusters[owner], node) // cpu)
            for _, node, count in for_it
        )
        self._count_event("recalls that were held against their need")
        if recalled > max(said, waited):
            self._violated(f"{name}: nodes are recalled for {recalled}, {said} were needed, and {waited} pods waited")

    def _largest_need_since(self, place: Place, since: float) -> int:
        said = self._said.get(place, [])
        before = [replicas for at, replicas in said if at < since][-1:]
        return max([*before, *(replicas for at, replicas in said if at >= since)], default=0)

    def _is_recall_open(self, recall: NodeRecalled) -> bool:
        """Whether the node has not come back yet."""
        found = register_of(objects_by_key(self._clusters[recall.cluster], "nodes").get(("", recall.node)))
        return found is not None and found.state != OWNED and found.loan == recall.loan

    def _count_event(self, what: str) -> None:
        self.seen[what] = self.seen.get(what, 0) + 1


def _cpu_of_marked_nodes(cluster: SimCluster) -> tuple[int, ...]:
    records = cluster.control_plane.table.record_by_name.values()
    return tuple(
        record.allocatable.get("cpu", 0) for record in records if any(key == LENDING for key, _, _ in record.taints)
    )


def _node_cpu_millis(cluster: SimCluster, node: str) -> int:
    record = cluster.control_plane.table.record_by_name.get(node)
    return record.allocatable.get("cpu", 0) if record is not None else 0
