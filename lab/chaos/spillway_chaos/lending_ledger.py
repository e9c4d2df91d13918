"""Finds errors of lending in the observed nodes and pods of all members. The module does no IO."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from spillway.lending_marks import virtual_node_name

from .ledger import Finding

OWNED, LENT = "", "lent"
Node = tuple[str, str]
"""(owner, node)"""


@dataclass(frozen=True, slots=True)
class PodSeen:
    """An observed pod.

    node: the node that it is bound to. pool_uid: of a real pod, the uid of its pool pod.
    going: True if it is being deleted or has ended.
    """

    uid: str
    node: str
    runs: bool
    going: bool
    pool_uid: str = ""


@dataclass(frozen=True, slots=True)
class LendingSeen:
    """The state of all members at one moment.

    states: the value of our taint on each node for lending; OWNED without the taint.
    opened: True if a virtual node takes pods, by its name.
    pooled: the offline pods in the pool.
    real: the real pods of pool pods, by owner. own: the pods of the owner's own users, by owner.
    """

    states: Mapping[Node, str]
    opened: Mapping[str, bool] = field(default_factory=dict)
    pooled: tuple[PodSeen, ...] = ()
    real: Mapping[str, tuple[PodSeen, ...]] = field(default_factory=dict)
    own: Mapping[str, tuple[PodSeen, ...]] = field(default_factory=dict)

    def virtual_name_by_node(self) -> dict[Node, str]:
        return {node: virtual_node_name(*node) for node in self.states}


def nodes_open_and_owned(seen: LendingSeen) -> list[Node]:
    """Returns the nodes that their owner and the pool may use at once, by two streams. Either stream may be late."""
    names = seen.virtual_name_by_node()
    return [node for node, state in seen.states.items() if state == OWNED and seen.opened.get(names[node])]


def find_doubled_pods(seen: LendingSeen) -> Iterator[tuple[str, Finding]]:
    """Yields (name, finding) for each pool pod with more than one real pod. This is an error at any moment."""
    for owner, pods in seen.real.items():
        times = Counter(pod.pool_uid for pod in pods if not pod.going)
        for uid, count in times.items():
            if count > 1:
                yield f"{owner}/{uid}", Finding("doubled", f"{count} real pods of {uid} in {owner}", count - 1)


def find_errors_at_home(seen: LendingSeen) -> Iterator[Finding]:
    """Yields the errors after owners have needed all their nodes for long enough: their pods must run on each node."""
    names = seen.virtual_name_by_node()
    for node, state in seen.states.items():
        if state != OWNED or names[node] in seen.opened:
            there = ", its virtual node is there" if names[node] in seen.opened else ""
            yield Finding("kept", f"{'/'.join(node)} is {state or 'owned'}{there}")
    for name in seen.opened.keys() - set(names.values()):
        yield Finding("kept", f"the virtual node {name} stands for none")
    for owner, pods in seen.real.items():
        for pod in pods:
            yield Finding("orphaned", f"{owner}: the real pod of {pod.pool_uid} is on {pod.node}")
    for pod in seen.pooled:
        if pod.node:
            yield Finding("orphaned", f"the pool's pod {pod.uid} is bound to {pod.node}, which is its owner's")
    for owner in {owner for owner, _ in seen.states}:
        nodes = {node for of, node in seen.states if of == owner}
        yield from _find_own_pod_errors(owner, seen.own.get(owner, ()), nodes)


def find_errors_while_lent(seen: LendingSeen, replicas: int) -> Iterator[Finding]:
    """Yields the errors after owners have needed no nodes for long enough.

    Then exactly `replicas` offline pods must run, each once.
    """
    names = seen.virtual_name_by_node()
    node_of = {name: node for node, name in names.items()}
    for node, state in seen.states.items():
        if state != LENT or not seen.opened.get(names[node]):
            yield Finding("lost", f"{'/'.join(node)} is {state or 'owned'} and not lent, and its owner needs it not")
    alive = [pod for pod in seen.pooled if not pod.going]
    running = sum(pod.runs for pod in alive)
    if running < replicas:
        yield Finding("lost", f"{replicas} offline pods are asked for, {running} run", replicas - running)
    if len(alive) > replicas:
        yield Finding(
            "doubled", f"{replicas} offline pods are asked for, {len(alive)} are there", len(alive) - replicas
        )
    real: defaultdict[str, list[tuple[Node, PodSeen]]] = defaultdict(list)
    for owner, pods in seen.real.items():
        for pod in pods:
            real[pod.pool_uid].append(((owner, pod.node), pod))
    for pod in alive:
        there = [one for at, one in real[pod.uid] if one.runs and at == node_of.get(pod.node)]
        if pod.runs and len(there) != 1:
            yield Finding("doubled" if there else "lost", f"of {pod.uid} on {pod.node} {len(there)} real pods run")
    known = {pod.uid for pod in seen.pooled}
    for uid, found in real.items():
        if uid not in known:
            yield Finding("orphaned", f"{len(found)} real pods of {uid}, which is not in the pool", len(found))
    for owner, pods in seen.own.items():
        if pods:
            yield Finding("doubled", f"{owner}: {len(pods)} pods of its own, and none is asked for", len(pods))


def _find_own_pod_errors(owner: str, pods: tuple[PodSeen, ...], nodes: set[str]) -> Iterator[Finding]:
    there = {pod.node for pod in pods if pod.runs}
    if nodes - there:
        yield Finding("lost", f"{owner}: no pod of its own runs on {sorted(nodes - there)}", len(nodes - there))
    if len(pods) > len(nodes):
        yield Finding("doubled", f"{owner}: {len(nodes)} pods of its own are asked for, {len(pods)} are there")
