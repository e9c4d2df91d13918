"""Keeps sums over the pods of a cluster: requests by node, counts by owner, and why pods wait. Keeps no pod objects."""

import sys
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from snapshot.core.interned import InternedValues
from snapshot.core.pod_bounds import has_too_many_containers
from snapshot.core.repelling_terms import TERMS_OF_NODE_MAX, RepellingTerms, weight_of_term
from snapshot.core.waiting_shape import waiting_shape
from snapshot.core.workloads import OwnerKey
from spillway.amounts import clamp_amount
from spillway.kubernetes import objects
from spillway.kubernetes.pod_terms import LABELS_UNKNOWN, anti_affinity_terms, count_of_terms
from spillway.kubernetes.term_bounds import TERMS_MAX, repels_too_much
from spillway.lending_marks import POD_NAMESPACE_PREFIX, digest_of_parts
from spillway.model import HOSTNAME_LABEL, HostPort, PodSelector, PodTable, PodTerm, Shape

TEMPLATE_HASH_LABELS = ("pod-template-hash", "controller-revision-hash")
"""The labels of pods of a ReplicaSet and of a StatefulSet. Pods of a Job have neither."""

Amounts = tuple[tuple[str, int], ...]

NAME_CHARACTERS_MAX = 253
"""The most characters of an owner's kind or name. Both are in a record's key, and API servers do not limit them."""
NODE_CHARACTERS_MAX = 512 * 1024
"""The most characters, roughly, of all labels, terms and ports of one node's pods. A record can have 2 MiB."""
_PORT_CHARACTERS = 24
_ALL = PodSelector(())


class PodOwner(NamedTuple):
    """The controller of a pod, or the pod itself when it has none."""

    kind: str
    namespace: str
    name: str
    uid: str

    @property
    def key(self) -> OwnerKey:
        return self.namespace, self.uid


class PodFacts(NamedTuple):
    """The facts that are kept of one pod.

    requests: the amounts that it takes on its node; empty while `holds` is false.
    holds: whether it is bound and not finished, so that it takes room on its node.
    counts: whether it is bound, not finished and not terminating.
    unreadable: whether its requests cannot be read, or its required anti-affinity is beyond the bounds.
    waiting: the scheduler's message when it could not place the pod; else empty.
    shape: the shape of a waiting pod; None when it cannot be read.
    characters: the length of its table.
    """

    node: str
    table: PodTable
    requests: Amounts
    ports: tuple[HostPort, ...]
    owner: PodOwner
    template_hash: str
    holds: bool
    counts: bool
    unreadable: bool
    waiting: str
    shape: Shape | None = None
    characters: int = 0


@dataclass(slots=True)
class NodeLoad:
    """The sums over the pods of one node. The node itself may be unknown.

    requested: requests by resource. by_pools: the part of it that pools' real pods request.
    tables: number of pods by table. sizes: characters by table. ports: number of pods by host port.
    unreadable: number of pods with unknown requests or terms.
    characters: characters of all pods' tables. terms: weight of all tables' terms.
    """

    requested: dict[str, int] = field(default_factory=dict)
    by_pools: dict[str, int] = field(default_factory=dict)
    tables: dict[PodTable, int] = field(default_factory=dict)
    sizes: dict[PodTable, int] = field(default_factory=dict)
    ports: dict[HostPort, int] = field(default_factory=dict)
    unreadable: int = 0
    characters: int = 0
    terms: int = 0

    @property
    def is_too_long(self) -> bool:
        """Returns whether the node's pods have more ports than fit in a record, or more terms than readers compare.

        If so, the node's row has no pods at all.
        """
        return self._room_in_characters < 0 or self.terms > TERMS_OF_NODE_MAX

    @property
    def _room_in_characters(self) -> int:
        return NODE_CHARACTERS_MAX - _PORT_CHARACTERS * len(self.ports)

    def tables_for_row(self, keys: Container[str]) -> dict[PodTable, int]:
        """Returns the tables of the node's pods for its row, with the number of pods of each.

        If they are too long for a record, each table above its share is replaced by a table with unknown labels.
        Without that, one pod of any tenant could make the node unusable. keys: the label keys of the node.
        """
        if self.characters <= self._room_in_characters or sum(self.sizes.values()) <= self._room_in_characters:
            return self.tables
        share = self._room_in_characters // len(self.tables)
        told: dict[PodTable, int] = {}
        for table, count in self.tables.items():
            _add_to_count(told, table if self.sizes[table] <= share else _table_with_unknown_labels(table, keys), count)
        return told

    def requests_by_resource(self, names: Iterable[str], of_owner: bool) -> dict[str, int]:
        """Returns the total requests of the node's pods for these resources. of_owner: leave pools' pods out."""
        held = ((name, self.requested.get(name, 0) - of_owner * self.by_pools.get(name, 0)) for name in names)
        return {name: amount for name, amount in held if amount}


class Pods:
    """All pods of a cluster. Only upsert_pod(), remove_pod() and retain_pods() change them.

    dirty_nodes, dirty_owners: the nodes and owners whose sums changed since the reader cleared these sets.
    dirty_waiting: the owners whose waiting pods changed.
    """

    def __init__(self, ignored_labels: Iterable[str], reason_characters_max: int) -> None:
        self.loads: dict[str, NodeLoad] = {}
        self.counted: dict[OwnerKey, dict[str, int]] = {}
        self.waiting: dict[PodOwner, dict[str, int]] = {}
        self.waiting_shapes: dict[PodOwner, dict[Shape | None, int]] = {}
        self.dirty_nodes: set[str] = set()
        self.dirty_owners: set[OwnerKey] = set()
        self.dirty_waiting: set[PodOwner] = set()
        self.repelling = RepellingTerms()
        self._ignored = frozenset((*ignored_labels, *dict(LABELS_UNKNOWN)))
        self._reason_characters_max = reason_characters_max
        self._pods: dict[str, PodFacts] = {}
        self._tables: InternedValues[PodTable] = InternedValues()
        self._requests: InternedValues[Amounts] = InternedValues()
        self._owners: InternedValues[PodOwner] = InternedValues()

    def __len__(self) -> int:
        return len(self._pods)

    def upsert_pod(self, pod: objects.Pod) -> None:
        uid, found = pod.metadata.uid, self._read_pod_facts(pod)
        known = self._pods.get(uid)
        if found.waiting:  # A pod's spec does not change while it waits.
            found = found._replace(shape=known.shape if known is not None and known.waiting else waiting_shape(pod))
        if known == found:
            return
        kept = self._intern_facts(found)
        if known is not None:
            self._forget_pod(known)
        self._pods[uid] = kept
        self._count_pod(kept, 1)

    def remove_pod(self, uid: str) -> None:
        known = self._pods.pop(uid, None)
        if known is not None:
            self._forget_pod(known)

    def retain_pods(self, uids: frozenset[str]) -> None:
        """Removes every pod that a whole list does not have. uids: all pods of the list."""
        for uid in [uid for uid in self._pods if uid not in uids]:
            self.remove_pod(uid)

    def update_namespaces_over_bound(self) -> None:
        """Updates which namespaces have too many terms, and marks the nodes whose rows change by that.

        Call it before reading rows, since a row may change because of pods on other nodes.
        """
        self.dirty_nodes.update(self.repelling.update_namespaces_over_bound())

    def _intern_facts(self, found: PodFacts) -> PodFacts:
        return found._replace(
            table=self._tables.intern_value(found.table),
            requests=self._requests.intern_value(found.requests),
            owner=self._owners.intern_value(found.owner),
        )

    def _forget_pod(self, known: PodFacts) -> None:
        self._count_pod(known, -1)
        self._tables.release_value(known.table)
        self._requests.release_value(known.requests)
        self._owners.release_value(known.owner)

    def _count_pod(self, pod: PodFacts, sign: int) -> None:
        if pod.holds:
            self._count_on_node(pod, sign)
        if pod.counts:
            owner = pod.owner.key
            _add_to_count(self.counted.setdefault(owner, {}), pod.template_hash, sign)
            if not self.counted[owner]:
                del self.counted[owner]
            self.dirty_owners.add(owner)
        if pod.waiting:
            _add_to_count(self.waiting.setdefault(pod.owner, {}), pod.waiting, sign)
            _add_to_count(self.waiting_shapes.setdefault(pod.owner, {}), pod.shape, sign)
            if not self.waiting[pod.owner]:
                del self.waiting[pod.owner], self.waiting_shapes[pod.owner]
            self.dirty_waiting.add(pod.owner)

    def _count_on_node(self, pod: PodFacts, sign: int) -> None:
        """Adds a pod to the sums of its node, or removes it. sign: 1 adds, -1 removes."""
        load = self.loads.get(pod.node)
        if load is None:
            load = self.loads[pod.node] = NodeLoad()
        of_pool = pod.table.namespace.startswith(POD_NAMESPACE_PREFIX)
        for resource, amount in pod.requests:
            _add_to_count(load.requested, resource, sign * amount)
            if of_pool:
                _add_to_count(load.by_pools, resource, sign * amount)
        for port in pod.ports:
            _add_to_count(load.ports, port, sign)
        _add_to_count(load.tables, pod.table, sign)
        self.repelling.count_pod(pod.node, pod.table, sign)
        # The terms of a table count once, however many pods have it: with the first pod that comes, and until the last
        # one goes.
        if pod.table.apart and load.tables.get(pod.table, 0) == (1 if sign > 0 else 0):
            load.terms += sign * sum(map(weight_of_term, pod.table.apart))
        if pod.table in load.tables:
            load.sizes[pod.table] = pod.characters
        else:
            load.sizes.pop(pod.table, None)
        load.unreadable += sign if pod.unreadable else 0
        load.characters += sign * pod.characters
        if not load.tables:
            del self.loads[pod.node]
        self.dirty_nodes.add(pod.node)

    def _read_pod_facts(self, pod: objects.Pod) -> PodFacts:
        """Returns the facts of a pod. Only a pod that holds amounts on a node has requests, ports and anti-affinity;
        only a pod without a node can wait."""
        metadata, labels = pod.metadata, pod.metadata.labels
        node = sys.intern(pod.spec.node_name)
        finished = pod.status.phase in ("Succeeded", "Failed")
        terminating = metadata.deletion_timestamp is not None
        holds = node != "" and not finished
        unreadable, requests = requests_of(pod) if holds else (False, ())
        ports = tuple(sorted(_host_ports(pod.spec), key=_port_order)) if holds else ()
        apart = _required_anti_affinity(pod.spec) if holds else ()
        table = PodTable(
            namespace=sys.intern(metadata.namespace),
            labels=tuple(sorted(item for item in labels.items() if item[0] not in self._ignored)),
            apart=apart or (),
            terminating=terminating,
        )
        return PodFacts(
            node=node,
            table=table,
            requests=requests,
            ports=ports,
            owner=owner_of_object(metadata),
            template_hash=sys.intern(next((labels[name] for name in TEMPLATE_HASH_LABELS if name in labels), "")),
            holds=holds,
            counts=holds and not terminating,
            unreadable=unreadable or apart is None,
            waiting="" if node or finished or terminating else self._unschedulable_message(pod.status),
            characters=_characters_of_table(table) if holds else 0,
        )

    def _unschedulable_message(self, status: objects.PodStatus) -> str:
        for condition in status.conditions:
            if (condition.type, condition.status, condition.reason) == ("PodScheduled", "False", "Unschedulable"):
                return condition.message[: self._reason_characters_max] or condition.reason
        return ""


def requests_of(pod: objects.Pod) -> tuple[bool, Amounts]:
    """Returns (unreadable, amounts): the pod's requests on its node, with ("pods", 1) for its own place."""
    amounts = None if has_too_many_containers(pod.spec) else objects.pod_requests_or_none(pod.spec, pod.status)
    if amounts is None:
        return True, (("pods", 1),)
    held = {**amounts, "pods": 1}
    return False, tuple(sorted((name, clamp_amount(name, amount)) for name, amount in held.items() if amount > 0))


def _required_anti_affinity(spec: objects.PodSpec) -> tuple[PodTerm, ...] | None:
    """Returns the required anti-affinity of a pod; None beyond the bounds. Terms are counted before they are read."""
    if count_of_terms(spec.affinity) > TERMS_MAX:
        return None
    terms = anti_affinity_terms(spec.affinity)
    return None if repels_too_much(terms) else terms


def owner_of_object(metadata: objects.Meta) -> PodOwner:
    for reference in metadata.owner_references:
        if reference.controller:
            kind, name = sys.intern(_shortened_name(reference.kind)), _shortened_name(reference.name)
            return PodOwner(kind, sys.intern(metadata.namespace), name, reference.uid)
    return PodOwner("Pod", sys.intern(metadata.namespace), metadata.name, metadata.uid)


def _shortened_name(name: str) -> str:
    return name if len(name) <= NAME_CHARACTERS_MAX else digest_of_parts(name)


def _characters_of_table(table: PodTable) -> int:
    labels = sum(len(key) + len(value) for key, value in table.labels)
    return labels + (len(repr(table.apart)) if table.apart else 0)


def _table_with_unknown_labels(table: PodTable, keys: Container[str]) -> PodTable:
    """Returns the table of a pod with unknown labels, in place of a longer one.

    Its terms keep away every pod that the original terms may keep away, for the topology keys that the node has.
    """
    terms = (
        (term.topology_key_or_hostname, bool(term.namespaces) or term.namespace_selector is not None)
        for term in table.apart
    )
    apart = (
        PodTerm(_ALL, topology_key=key, namespace_selector=_ALL if everywhere else None)
        for key, everywhere in sorted(set(terms))
        if key == HOSTNAME_LABEL or key in keys
    )
    return table._replace(labels=LABELS_UNKNOWN, apart=tuple(apart))


def _host_ports(spec: objects.PodSpec) -> Iterable[HostPort]:
    return (HostPort(ip, protocol, port) for ip, protocol, port in objects.host_ports(spec))


def _port_order(port: HostPort) -> tuple[int, str, str]:
    return port.port, port.protocol, port.ip


def _add_to_count(
    counts: dict[str, int] | dict[HostPort, int] | dict[PodTable, int] | dict[Shape | None, int], key: object, by: int
) -> None:
    """Adds to a count. A count of zero is removed, so that equal states are equal values."""
    amounts: dict[object, int] = counts  # type: ignore[assignment]
    amount = amounts.get(key, 0) + by
    if amount:
        amounts[key] = amount
    else:
        amounts.pop(key, None)
