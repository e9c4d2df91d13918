"""Keeps the nodes of a cluster. A list that lacks most of the known nodes is not believed at once.

A faulty server may have sent such a list.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from spillway.amounts import clamp_amount
from spillway.kubernetes import objects
from spillway.lending_marks import LENDING, LENT, POOL_CLUSTER, RECALLED, loan_state_from_taints
from spillway.model import NODE_LENT, NODE_OWNED, LabelSet, Taint
from spillway.troubles import NO_TROUBLE, Trouble, TroubleCode

CHARACTERS_MAX = 128 * 1024
"""The most characters of all labels, taints and resource names of one node. Usual nodes have some hundreds. A node with
more is unschedulable and offers nothing. Two nodes of this size in one block still fit into a record."""


class NodeFacts(NamedTuple):
    """The facts of a node, from its object. Amounts of zero are left out."""

    allocatable: tuple[tuple[str, int], ...]
    labels: LabelSet
    taints: tuple[Taint, ...]
    unschedulable: bool


@dataclass(slots=True)
class DoubtedList:
    """A list that lacks more than half of the known nodes. It replaces them once probes have confirmed it, or once it
    has most of the nodes again.

    since: the time from which the confirmation counts.
    lost: the number of known nodes that are not in the list.
    agreed: the number of probes in a row that agreed with the list.
    """

    nodes: dict[str, NodeFacts]
    since: float
    lost: int
    agreed: int = 0


class NodeTable:
    """The nodes of a cluster.

    nodes: the known nodes, from the last list that was believed and the changes since.
    doubt: the cluster's present list while it is not believed yet; else None.
    dirty: names of nodes that may have changed since the reader cleared it.
    """

    def __init__(self, confirm_seconds: float, confirm_probes: int) -> None:
        self.nodes: dict[str, NodeFacts] = {}
        self.doubt: DoubtedList | None = None
        self.dirty: set[str] = set()
        self._confirm_seconds = confirm_seconds
        self._confirm_probes = confirm_probes

    @property
    def node_count(self) -> int:
        """Returns how many nodes the cluster's watch has reported, to compare with the count of a probe."""
        return len(self.doubt.nodes if self.doubt else self.nodes)

    @property
    def node_list_trouble(self) -> Trouble:
        if self.doubt is None:
            return NO_TROUBLE
        why = f"the list of nodes lost {self.doubt.lost} of {len(self.nodes)}; not believed yet"
        return Trouble(TroubleCode.NODES_DOUBTED, why)

    def replace_nodes(self, nodes: Iterable[objects.Node], now: float) -> None:
        found = {node.metadata.name: read_node(node) for node in nodes}
        lost = len(self.nodes.keys() - found.keys())
        if not self._has_lost_most(lost):
            self._accept_nodes(found)
        elif self.doubt is None:
            self.doubt = DoubtedList(found, now, lost)
        else:
            self.doubt.nodes, self.doubt.lost = found, lost

    def upsert_node(self, node: objects.Node) -> None:
        name, facts = node.metadata.name, read_node(node)
        if self.doubt is not None:
            self.doubt.lost -= name in self.nodes and name not in self.doubt.nodes
            self.doubt.nodes[name] = facts
            if not self._has_lost_most(self.doubt.lost):
                self._accept_nodes(self.doubt.nodes)
        elif self.nodes.get(name) != facts:
            self.nodes[name] = facts
            self.dirty.add(name)

    def remove_node(self, name: str) -> None:
        if self.doubt is not None:
            self.doubt.lost += self.doubt.nodes.pop(name, None) is not None and name in self.nodes
        elif self.nodes.pop(name, None) is not None:
            self.dirty.add(name)

    def check_doubted_list(self, nodes: int, now: float) -> None:
        """Compares the doubted list with the number of nodes that a probe counted.

        The list is believed once enough probes in a row have agreed for long enough.
        """
        doubt = self.doubt
        if doubt is None:
            return
        doubt.agreed = doubt.agreed + 1 if nodes == len(doubt.nodes) else 0
        if doubt.agreed == 0:
            doubt.since = now
        if doubt.agreed >= self._confirm_probes and now - doubt.since >= self._confirm_seconds:
            self._accept_nodes(doubt.nodes)

    def _has_lost_most(self, lost: int) -> bool:
        return 2 * lost > len(self.nodes)

    def _accept_nodes(self, found: dict[str, NodeFacts]) -> None:
        known, self.nodes, self.doubt = self.nodes, found, None
        self.dirty.update(name for name in known.keys() | found.keys() if known.get(name) != found.get(name))


def read_node(node: objects.Node) -> NodeFacts:
    """Reads a node. A node with more characters than CHARACTERS_MAX is unschedulable and offers nothing."""
    taints = tuple(Taint(*one) for one in sorted((one.key, one.value, one.effect) for one in node.spec.taints))
    if _characters_of_node(node) > CHARACTERS_MAX:
        return NodeFacts((), (), _lending_taints(taints), unschedulable=True)
    return NodeFacts(
        allocatable=_readable_amounts(node.status.allocatable),
        labels=_row_labels(node, taints),
        taints=taints,
        unschedulable=node.spec.unschedulable,
    )


def _row_labels(node: objects.Node, taints: tuple[Taint, ...]) -> tuple[tuple[str, str], ...]:
    """Returns the labels of a node's row. For a lent node they include the loan's pool, from the node's annotation.

    With it, a reader of the row counts a virtual node in that pool alone. If the node itself has a label with this key,
    that label is left out.
    """
    labels = {key: value for key, value in node.metadata.labels.items() if key != POOL_CLUSTER}
    pool = node.metadata.annotations.pool_cluster
    if pool and loan_state_from_taints(taints) != NODE_OWNED:
        labels[POOL_CLUSTER] = pool
    return tuple(sorted(labels.items()))


def _characters_of_node(node: objects.Node) -> int:
    said = sum(len(key) + len(value) for key, value in node.metadata.labels.items())
    said += sum(len(one.key) + len(one.value) + len(one.effect) for one in node.spec.taints)
    said += len(node.metadata.annotations.pool_cluster)
    return said + sum(map(len, node.status.allocatable))


def _lending_taints(taints: tuple[Taint, ...]) -> tuple[Taint, ...]:
    """Returns only the taint of lending, if there is one. A node that offers nothing keeps it, so that readers still
    know the state of its loan."""
    state = loan_state_from_taints(taints)
    return () if state == NODE_OWNED else (Taint(LENDING, LENT if state == NODE_LENT else RECALLED, "NoSchedule"),)


def _readable_amounts(quantities: dict[str, objects.Quantity]) -> tuple[tuple[str, int], ...]:
    """Returns the amounts of the readable quantities.

    An unreadable quantity is left out; an impossibly large amount is clamped (amounts.py).
    """
    amounts = []
    for name, quantity in sorted(quantities.items()):
        try:
            amount = objects.parse_quantity(quantity, milli=name == "cpu")
        except ValueError:
            continue
        if amount > 0:
            amounts.append((name, clamp_amount(name, amount)))
    return tuple(amounts)
