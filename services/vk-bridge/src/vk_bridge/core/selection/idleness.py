"""Measures how long each node has had no pod except daemons. The time is never too long, even if events come late.

Times are seconds of the bridge's own clock. The cluster's watermark is a time of the same clock. An event may come
late, twice, or never.
"""

from dataclasses import dataclass
from typing import NamedTuple


class SeenPod(NamedTuple):
    """The fields of a pod that decide whether its node is idle.

    version: its resourceVersion, as a number.
    holds: whether it is bound and has not ended.
    excused: whether it is a daemon or a pool's pod, which do not make the node busy.
    """

    uid: str
    version: int
    node: str
    holds: bool
    excused: bool


@dataclass(slots=True)
class _NodeIdleness:
    """The state of one node. busy_until: the time until which a pod was there, or may have been.

    pods: uids of pods there now.
    """

    uid: str
    busy_until: float
    pods: set[str]


class Idleness:
    """Computes idle times from nodes, pods and the watermark. All events before the watermark have been received.

    A pod makes its node busy until the event of its end is received, because an event comes later than its cause.
    """

    def __init__(self) -> None:
        self._nodes: dict[str, _NodeIdleness] = {}
        self._pods: dict[str, SeenPod] = {}
        self._pods_without_node: dict[str, set[str]] = {}
        self._watermark = 0.0

    def begin_new_list(self, now: float) -> None:
        """Begins a new list. Pods that came and went in between are unknown, so every node's idle time begins again."""
        self._pods.clear()
        self._pods_without_node.clear()
        for node in self._nodes.values():
            node.busy_until, node.pods = now, set()

    def advance_watermark(self, watermark: float) -> None:
        """Raises the watermark. An older watermark changes nothing."""
        self._watermark = max(self._watermark, watermark)

    def add_node(self, name: str, uid: str, now: float) -> None:
        """Adds a node. Idle time of a new node, or of another node under an old name, begins now."""
        known = self._nodes.get(name)
        if known is None or known.uid != uid:
            pods = known.pods if known is not None else self._pods_without_node.pop(name, set())
            self._nodes[name] = _NodeIdleness(uid, now, pods)

    def remove_node(self, name: str) -> None:
        known = self._nodes.pop(name, None)
        if known is not None and known.pods:
            self._pods_without_node[name] = known.pods

    def apply_pod(self, pod: SeenPod, now: float) -> None:
        """Applies an added or changed pod. A version that is not newer than the known one changes nothing."""
        known = self._pods.get(pod.uid)
        if known is not None and pod.version <= known.version:
            return
        self._pods[pod.uid] = pod
        if known is not None and (known.node != pod.node or (pod.excused and not known.excused)):
            self._take_pod_off_node(known, now)  # A daemon can be orphaned and adopted again.
        if pod.excused or not pod.node:
            return
        if pod.holds:
            self._mark_node_busy(pod.node, now).add(pod.uid)
        else:
            self._take_pod_off_node(pod, now)

    def remove_pod(self, pod: SeenPod, now: float) -> None:
        """Removes a deleted pod. This is final for its uid, so a late older event cannot bring it back."""
        known = self._pods.get(pod.uid)
        last = known if known is not None and known.version > pod.version else pod
        self._pods[pod.uid] = last._replace(version=_NEVER_AGAIN, holds=False)
        for one in (known, last):
            if one is not None and one.node and not one.excused:
                self._take_pod_off_node(one, now)

    def forget_gone(self) -> None:
        """Forgets deleted pods. Call it when no older event can come any more (a bookmark)."""
        self._pods = {uid: pod for uid, pod in self._pods.items() if pod.version != _NEVER_AGAIN}

    def idle_seconds(self, name: str) -> float:
        """Returns how long a node is idle; 0 if the node is unknown, or has a pod that counts."""
        node = self._nodes.get(name)
        if node is None or node.pods:
            return 0.0
        return max(0.0, self._watermark - node.busy_until)

    def _mark_node_busy(self, name: str, now: float) -> set[str]:
        node = self._nodes.get(name)
        if node is None:
            return self._pods_without_node.setdefault(name, set())
        node.busy_until = max(node.busy_until, now)
        return node.pods

    def _take_pod_off_node(self, pod: SeenPod, now: float) -> None:
        pods = self._mark_node_busy(pod.node, now)
        pods.discard(pod.uid)
        if not pods:
            self._pods_without_node.pop(pod.node, None)


_NEVER_AGAIN = 2**63 - 1
