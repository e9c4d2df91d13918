"""What the log says of lending, in few words: nodes, loans, pods that wait."""

from collections.abc import Iterable, Mapping
from typing import Any

from descheduler.core import recalling
from descheduler.core.rules import LendingRules
from descheduler.core.state import DeschedulerState
from spillway.columns import columns_of
from spillway.events import CapacityReported, ClusterJoined, Event, PodsUnschedulable
from spillway.events_lending import LOAN_LENT, LendingDeclared, LendingRule, LentPod, NodeLent
from spillway.lending_marks import LENDING, virtual_node_name
from spillway.model import NODE_LENT, NODE_OWNED, Generation, NodeRow, PodTable, Shape, Taint

GI = 2**30
OWN, POOL = "own-1", "pool"
LENT_TAINT = Taint(LENDING, "lent", "NoSchedule")
NOW_MS = 1_700_000_000_000
RULE = LendingRule("all", (), "idle", 100, 0, 600, 0.0)


def shape_of_cpu(cpu: int = 1000, **more: Any) -> Shape:
    return Shape("default", (("cpu", cpu), ("pods", 1)), **more)


def owned_node_row(name: str, cpu: int = 4000, used: int = 0, **labels: str) -> NodeRow:
    allocatable = {"cpu": cpu, "memory": 64 * GI, "pods": 110}
    return NodeRow(name, allocatable, {"cpu": used} if used else {}, labels=_labels_of_row(name, labels))


def lent_node_row(name: str, cpu: int = 4000, used: int = 0, **labels: str) -> NodeRow:
    """used: by the owner's daemons; what the pool's pods hold no row of a lent node says."""
    row = owned_node_row(name, cpu, used, **labels, **{LENDING: "lent"})
    table = PodTable("spillway-lent-batch", (("app", "train"),))
    return NodeRow(
        row.name, row.allocatable, row.requested, row.labels, (LENT_TAINT,), NODE_LENT, pods=((table, 1),)
    )  # fmt: skip


def _labels_of_row(name: str, labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted({"kubernetes.io/hostname": name, **labels}.items()))


def lent_pod(cpu: int = 1000, **more: Any) -> LentPod:
    return LentPod(
        namespace="batch",
        name=more.get("name", "p"),
        uid=more.get("uid", "u"),
        group=more.get("group", "Job/batch/train"),
        requests=(("cpu", cpu),),
        priority=more.get("priority", 0),
        deletion_cost=more.get("deletion_cost", 0),
        started_ms=more.get("started_ms", 0),
        budgets=more.get("budgets", ()),
    )


def node_lent(node: str, *pods: LentPod, cluster: str = OWN, sequence: int = 1, **more: Any) -> NodeLent:
    return NodeLent(
        cluster=cluster,
        node=node,
        epoch=more.get("epoch", 5),
        sequence=sequence,
        loan=more.get("loan", Generation(5, 1)),
        pool=POOL,
        virtual_node=virtual_node_name(cluster, node),
        rule="all",
        supply_class="idle",
        state=more.get("state", LOAN_LENT),
        cause=more.get("cause", ""),
        offered=(("cpu", 4000),),
        pods=pods,
        lent_ms=NOW_MS - 1000,
        recalled_ms=0,
        waiting="",
    )


def lending_declared(**more: Any) -> LendingDeclared:
    return LendingDeclared(
        cluster=OWN,
        generation=more.pop("generation", Generation(3, 1)),
        pool=POOL,
        rules=(RULE,),
        grace_seconds=30,
        cooldown_seconds=1800,
        recalls_per_minute=more.pop("recalls_per_minute", 0),
        paused=False,
        withdrawing=more.pop("withdrawing", False),
        by="me",
        reason="",
        at_ms=1,
    )


def pods_unschedulable(
    group: str, pods: int, of: Shape | None, workload: str = "", sequence: int = 1
) -> PodsUnschedulable:
    return PodsUnschedulable(OWN, group, 7, sequence, workload, pods, "0/9 nodes", of)


def cluster_joined(cluster: str) -> ClusterJoined:
    return ClusterJoined(cluster, cluster, "", "own", "", "", (), ())


def capacity_reported(cluster: str = OWN, epoch: int = 7, sequence: int = 0, columns: bytes = b"") -> CapacityReported:
    return CapacityReported(cluster, epoch, 0, 1, sequence, 0, columns, ())


def state_with_nodes(rows: Iterable[NodeRow], *events: Event, rules: LendingRules | None = None) -> DeschedulerState:
    """A state in which own-1 has these nodes, each that is lent as a loan without pods, unless events say otherwise."""
    state = DeschedulerState(rules or LendingRules())
    there = list(rows)
    for cluster in (OWN, POOL):
        state.apply_event(cluster_joined(cluster))
    state.apply_event(capacity_reported(), columns=columns_of(there))
    for row in there:
        if row.state != NODE_OWNED:
            state.apply_event(node_lent(row.name))
    for event in events:
        state.apply_event(event)
    return state


def replace_nodes(state: DeschedulerState, sequence: int, *rows: NodeRow) -> None:
    state.apply_event(capacity_reported(sequence=sequence), columns=columns_of(rows))


class Generations:
    """One after the other, of one turn."""

    def __init__(self, epoch: int = 9) -> None:
        self._epoch, self._sequence = epoch, 0

    def __call__(self) -> Generation:
        self._sequence += 1
        return Generation(self._epoch, self._sequence)


def decide_and_apply_steps(state: DeschedulerState, generations: Generations, now_ms: int) -> list[recalling.Written]:
    """Decides what is due of the clusters that changed, and applies it step by step. Returns the events."""
    taken: list[recalling.Written] = []
    for _, events in recalling.decide_dirty_clusters(state, generations, now_ms):
        recalling.apply_events(state, events)
        taken.extend(events)
    return taken
