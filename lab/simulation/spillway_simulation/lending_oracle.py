"""P9 at every write and at every record: tainted before offered, untainted when all is gone, each core counted once."""

import asyncio
from collections.abc import Callable, Iterable, Mapping

from planner.service import Planner
from sim.cluster import SimCluster
from sim.core.kinds import Object
from spillway.events import ClusterJoined, ClusterLeft
from spillway.events_lending import CAUSE_ASKED, CAUSE_NEED, NodeLent, NodeRecalled, NodeReturned, RecallSettled
from spillway.feasibility.cluster_view import ClusterView
from spillway.lending_marks import CHECKING, LENT, RECALLED
from spillway.model import Generation
from spillway_simulation.lending_state import (
    OWNED,
    Real,
    Register,
    Virtual,
    has_had_real_pod,
    is_daemon,
    is_real_pod,
    iterate_virtual_nodes,
    lent_node_of,
    objects_by_key,
    parse_virtual_node,
    pods_on_node,
    register_of,
)
from spillway_simulation.script import Lending

IN_FLIGHT_SECONDS = 2.0
"""Of the bridges' settings here: so long a node stays recalled at the least."""


class LendingOracle:
    """Hears of every write to a node or a pod of an owner or the pool, and of every record of lending.

    taken: told of the owner and the node that begins to be lent.
    """

    def __init__(
        self,
        lending: Lending,
        pool: str,
        clusters: Mapping[str, SimCluster],
        violated: Callable[[str], None],
        taken: Callable[[str, str], None],
    ) -> None:
        self._clusters, self._taken = clusters, taken
        self._violated = violated
        self._owners = lending.owners
        self._pool = pool
        self._said: dict[Real, NodeLent | NodeReturned] = {}
        self._lent: set[tuple[Real, Generation]] = set()
        self._marked_at: dict[Real, float] = {}
        self._tampered: set[Real] = set()
        self.joined: set[str] = set()
        self.given_up: set[str] = set()
        """Clusters that left while they had loans: what was in them nobody may clear until they join again."""
        self.recalls: dict[Real, NodeRecalled] = {}
        self.seen: dict[str, int] = {}

    def count_event(self, what: str) -> None:
        self.seen[what] = self.seen.get(what, 0) + 1

    def is_lending_cluster(self, cluster: str) -> bool:
        return cluster == self._pool or cluster in self._owners

    def note_tampered_node(self, owner: str, node: str) -> None:
        """Notes that a person removed the mark or the virtual node: until the loan has ended, both sides may use it."""
        self._tampered.add((owner, node))

    # ── The log ─────────────────────────────────────────────────────────────────────────────────────────────────

    def on_event(self, event: object) -> None:
        match event:
            case NodeLent(cluster=cluster, node=node, loan=loan):
                if (cluster, node) not in self._said or self._said[cluster, node].loan != loan:
                    self.count_event("loans")
                self._said[cluster, node] = event
                self._lent.add(((cluster, node), loan))
            case NodeReturned(cluster=cluster, node=node):
                self._said[cluster, node] = event
            case NodeRecalled(cluster=cluster, node=node, cause=cause):
                self.recalls[cluster, node] = event
                if cause in (CAUSE_NEED, CAUSE_ASKED):
                    self.count_event(f"recalled: {cause}")
            case RecallSettled(cluster=cluster, node=node):
                self.recalls.pop((cluster, node), None)
            case ClusterJoined(cluster=cluster):
                self.joined.add(cluster)
                self.given_up.discard(cluster)
            case ClusterLeft(cluster=cluster):
                self.joined.discard(cluster)
                if cluster == self._pool or self._has_marked_nodes(cluster):
                    self.given_up.add(cluster)

    def last_loan_event(self, real: Real) -> NodeLent | NodeReturned | None:
        return self._said.get(real)

    def _has_marked_nodes(self, owner: str) -> bool:
        nodes = objects_by_key(self._clusters[owner], "nodes").values()
        return any(found is not None and found.state for found in map(register_of, nodes))

    # ── Writes ──────────────────────────────────────────────────────────────────────────────────────────────────

    def judge_write(self, cluster: str, before: Object | None, after: Object | None) -> None:
        """Judges what a service wrote to a node of an owner or of the pool, and, after any write, the present state."""
        node = after or before
        if cluster in self._owners and node is not None:
            self._judge_register_change(cluster, node["metadata"]["name"], register_of(before), register_of(after))
        if cluster == self._pool and node is not None and lent_node_of(node) is not None:
            self._judge_virtual_node_change(lent_node_of(node), before, after)  # type: ignore[arg-type]
        self.judge_present_state()

    def _judge_register_change(self, owner: str, name: str, before: Register | None, after: Register | None) -> None:
        if before is None or after is None or before.state == after.state:
            return
        real, now = (owner, name), asyncio.get_running_loop().time()
        self.count_event(f"marked {after.state or 'owned'}")
        if after.state == CHECKING and before.state == OWNED:
            self._taken(owner, name)
        if after.state == RECALLED:
            self._marked_at[real] = now
        if after.state == LENT and before.state != CHECKING:
            self._violated(f"{owner}/{name}: lent from {before.state or 'owned'}, and was not checked")
        if after.state != OWNED or real in self._tampered:
            return
        waited = now - self._marked_at.get(real, -IN_FLIGHT_SECONDS)
        if before.state == RECALLED and waited < IN_FLIGHT_SECONDS:
            self._violated(f"{owner}/{name}: untainted {waited:.3f} s after it was recalled")
        self._judge_untainted_node(real, before)

    def _judge_untainted_node(self, real: Real, before: Register) -> None:
        """At the write that takes the mark off."""
        owner, name = real
        left = [pod["metadata"]["name"] for pod in pods_on_node(self._clusters[owner], name) if is_real_pod(pod)]
        if left:
            self._violated(f"{owner}/{name}: untainted, and {left} of the pool's are on it")
        if self._pool not in self.joined or self._may_be_left_in_pool(real):
            return  # Nobody can look there, or could.
        for virtual in self._virtual_nodes_of(real):
            if before.state == CHECKING and not virtual.open:
                continue  # Never opened: it is cleared, also where the pool was silent.
            self._violated(f"{owner}/{name}: untainted, and its virtual node is {'open' if virtual.open else 'there'}")
        if before.state == RECALLED:
            self._judge_no_pool_pods_left(real)

    def _judge_no_pool_pods_left(self, real: Real) -> None:
        owner, name = real
        bound = [
            pod["metadata"]["name"]
            for pod in pods_on_node(self._clusters[self._pool], f"{owner}.{name}")
            if has_had_real_pod(pod)
        ]
        if bound:
            self._violated(f"{owner}/{name}: untainted, and the pool has {bound} on its virtual node")

    def _judge_virtual_node_change(self, real: Real, before: Object | None, after: Object | None) -> None:
        was, now = (parse_virtual_node(one) if one is not None else None for one in (before, after))
        if was is None and now is not None and now.open:
            self._violated(f"{now.name}: made open")
        if now is None or not now.open or (was is not None and was.open):
            return
        self.count_event("opened")
        owner, name = real
        node = objects_by_key(self._clusters[owner], "nodes").get(("", name))
        own = [pod["metadata"]["name"] for pod in pods_on_node(self._clusters[owner], name) if _is_owner_pod(pod)]
        if own and node is not None and real not in self._tampered:
            self._violated(f"{now.name}: opened, and {own} of its owner are on the node")

    # ── Always ──────────────────────────────────────────────────────────────────────────────────────────────────

    def judge_present_state(self) -> None:
        """What must be so at any moment, by what both clusters hold."""
        virtuals = dict(iterate_virtual_nodes(self._clusters[self._pool]))
        for real, virtual in virtuals.items():
            if virtual.open:
                self._judge_open_virtual_node(real, virtual)
        for owner in self._owners:
            self._judge_real_pods(owner, virtuals)

    def _judge_open_virtual_node(self, real: Real, virtual: Virtual) -> None:
        owner, name = real
        found = register_of(objects_by_key(self._clusters[owner], "nodes").get(("", name)))
        if (
            found is None
            or real in self._tampered
            or {owner, self._pool} & self.given_up
            or self._may_be_left_in_pool(real)
        ):
            return
        if found.state not in (LENT, RECALLED):
            self._violated(f"{virtual.name}: open, and its node is {found.state or 'owned'}")
        elif found.loan != virtual.loan:
            self._violated(f"{virtual.name}: open by loan {virtual.loan}, and its node's is {found.loan}")
        elif virtual.loan is None or (real, virtual.loan) not in self._lent:
            self._violated(f"{virtual.name}: open, and the log does not say that loan {virtual.loan} is lent")

    def _judge_real_pods(self, owner: str, virtuals: Mapping[Real, Virtual]) -> None:
        cluster = self._clusters[owner]
        nodes = objects_by_key(cluster, "nodes")
        for pod in objects_by_key(cluster, "pods").values():
            if not is_real_pod(pod) or (pod.get("status") or {}).get("phase") != "Running":
                continue
            real = (owner, pod["spec"]["nodeName"])
            found = register_of(nodes.get(("", real[1])))
            if found is None or found.state in (LENT, RECALLED) or real in self._tampered or owner in self.given_up:
                continue
            self._violated(f"{owner}/{real[1]}: {pod['metadata']['name']} of the pool runs, and it is not lent")
        for real in [real for real in self._tampered if real[0] == owner and real not in virtuals]:
            if not any(is_real_pod(pod) for pod in pods_on_node(cluster, real[1])):
                self._tampered.discard(real)

    def _may_be_left_in_pool(self, real: Real) -> bool:
        """Whether the log says that a virtual node of it may stay in the pool, which was given up and is back."""
        said = self._said.get(real)
        return said is not None and self._pool in said.left_in

    def _virtual_nodes_of(self, real: Real) -> list[Virtual]:
        return [virtual for whose, virtual in iterate_virtual_nodes(self._clusters[self._pool]) if whose == real]


def find_nodes_counted_twice(planner: Planner) -> Iterable[str]:
    """Nodes that the planner counts in more than one cluster, or that it counts though its row of them says lent."""
    seen: dict[Real, str] = {}
    for name, view in planner.state.clusters.items():
        for real in _counted_nodes(name, view):
            if real in seen:
                yield f"{'/'.join(real)} counts in {seen[real]} and in {name}"
            seen[real] = name


def _counted_nodes(name: str, view: ClusterView) -> Iterable[Real]:
    nodes = view.nodes
    virtual = nodes.lent_node_by_label_set()
    for row in nodes.counted_mask.nonzero()[0].tolist():
        yield virtual.get(int(nodes.label_set[row]), (name, nodes.names[row]))


def _is_owner_pod(pod: Object) -> bool:
    return not is_real_pod(pod) and not is_daemon(pod)
