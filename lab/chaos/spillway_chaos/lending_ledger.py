"""What members show of lending, and what is wrong with it; pure: told what was seen, says what was lost."""

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
    """node: where it is bound. pool_uid: of a real pod, whose it is. going: it is being deleted, or has ended."""

    uid: str
    node: str
    runs: bool
    going: bool
    pool_uid: str = ""


@dataclass(frozen=True, slots=True)
class LendingSeen:
    """What all members show at one moment.

    states: of the nodes that are there to be lent, the value of our taint, OWNED without. opened: virtual nodes by
    name, whether they take pods. pooled: offline pods in the pool. real: in the owners, the pools' pods. own: the
    pods of each owner's own people.
    """

    states: Mapping[Node, str]
    opened: Mapping[str, bool] = field(default_factory=dict)
    pooled: tuple[PodSeen, ...] = ()
    real: Mapping[str, tuple[PodSeen, ...]] = field(default_factory=dict)
    own: Mapping[str, tuple[PodSeen, ...]] = field(default_factory=dict)

    def virtual_name_by_node(self) -> dict[Node, str]:
        return {node: virtual_node_name(*node) for node in self.states}


def nodes_open_and_owned(seen: LendingSeen) -> list[Node]:
    """Nodes that their owner and the pool may use at once, as two streams tell it: each may be late."""
    names = seen.virtual_name_by_node()
    return [node for node, state in seen.states.items() if state == OWNED and seen.opened.get(names[node])]


def find_doubled_pods(seen: LendingSeen) -> Iterator[tuple[str, Finding]]:
    """Pool pods for which two real ones are there at once, with a name for each such finding. True at any moment."""
    for owner, pods in seen.real.items():
        times = Counter(pod.pool_uid for pod in pods if not pod.going)
        for uid, count in times.items():
            if count > 1:
                yield f"{owner}/{uid}", Finding("doubled", f"{count} real pods of {uid} in {owner}", count - 1)


def find_errors_at_home(seen: LendingSeen) -> Iterator[Finding]:
    """What is not as it should be once owners have needed all their nodes for long enough: their pods run on each."""
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
    """The same once owners have needed none for long enough: as many offline pods as were asked run, each once."""
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
