"""For how long each node has had no pod but daemons: never longer than is certain, whatever came late, twice or not.

Times are seconds of the bridge's own clock, which the cluster's watermark is a time of, too.
"""

from dataclasses import dataclass
from typing import NamedTuple


class SeenPod(NamedTuple):
    """What of a pod decides whether its node is idle. version: its resourceVersion. holds: bound, and not ended.

    excused: a daemon, or the pool's own: it does not make its node busy.
    """

    uid: str
    version: int
    node: str
    holds: bool
    excused: bool


@dataclass(slots=True)
class _Node:
    """busy_until: a pod was, or may have been, there until then. pods: uids of those that are there now."""

    uid: str
    busy_until: float
    pods: set[str]


class Idleness:
    """Told of nodes and pods as they are heard, and of the watermark: up to then all that happened has been heard.

    A pod makes its node busy until the moment at which it was heard to be gone: what is heard late has happened before.
    """

    def __init__(self) -> None:
        self._nodes: dict[str, _Node] = {}
        self._pods: dict[str, SeenPod] = {}
        self._pods_without_node: dict[str, set[str]] = {}
        self._watermark = 0.0

    def begin(self, now: float) -> None:
        """Everything is listed anew: pods that came and went in between were never heard of, so all begin again."""
        self._pods.clear()
        self._pods_without_node.clear()
        for node in self._nodes.values():
            node.busy_until, node.pods = now, set()

    def advance(self, watermark: float) -> None:
        """An older watermark than is known says nothing."""
        self._watermark = max(self._watermark, watermark)

    def node(self, name: str, uid: str, now: float) -> None:
        """A node of that name is there. One that is new, or another under an old name, was not idle before."""
        known = self._nodes.get(name)
        if known is None or known.uid != uid:
            pods = known.pods if known is not None else self._pods_without_node.pop(name, set())
            self._nodes[name] = _Node(uid, now, pods)

    def node_gone(self, name: str) -> None:
        known = self._nodes.pop(name, None)
        if known is not None and known.pods:
            self._pods_without_node[name] = known.pods

    def pod(self, pod: SeenPod, now: float) -> None:
        """A pod was added or has changed. What is older than is known of it, or the same, says nothing."""
        known = self._pods.get(pod.uid)
        if known is not None and pod.version <= known.version:
            return
        self._pods[pod.uid] = pod
        if known is not None and (known.node != pod.node or (pod.excused and not known.excused)):
            self._leave(known, now)  # A daemon may be orphaned, and adopted again.
        if pod.excused or not pod.node:
            return
        if pod.holds:
            self._busy(pod.node, now).add(pod.uid)
        else:
            self._leave(pod, now)

    def pod_gone(self, pod: SeenPod, now: float) -> None:
        """A pod was deleted: final for its uid, so that an older change that comes after cannot bring it back."""
        known = self._pods.get(pod.uid)
        last = known if known is not None and known.version > pod.version else pod
        self._pods[pod.uid] = last._replace(version=_NEVER_AGAIN, holds=False)
        for one in (known, last):
            if one is not None and one.node and not one.excused:
                self._leave(one, now)

    def forget_gone(self) -> None:
        """Drops what is remembered of deleted pods; to be called when nothing older can come any more (a bookmark)."""
        self._pods = {uid: pod for uid, pod in self._pods.items() if pod.version != _NEVER_AGAIN}

    def idle_seconds(self, name: str) -> float:
        """0 of a node that is not known, or has a pod that counts."""
        node = self._nodes.get(name)
        if node is None or node.pods:
            return 0.0
        return max(0.0, self._watermark - node.busy_until)

    def _busy(self, name: str, now: float) -> set[str]:
        node = self._nodes.get(name)
        if node is None:
            return self._pods_without_node.setdefault(name, set())
        node.busy_until = max(node.busy_until, now)
        return node.pods

    def _leave(self, pod: SeenPod, now: float) -> None:
        pods = self._busy(pod.node, now)
        pods.discard(pod.uid)
        if not pods:
            self._pods_without_node.pop(pod.node, None)


_NEVER_AGAIN = 2**63 - 1
