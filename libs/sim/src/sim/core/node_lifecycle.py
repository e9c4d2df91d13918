"""Taints nodes that are not ready, and nodes whose Lease has expired, so that they take no new pods."""

from functools import partial
from typing import Any, Final

from sim.core.kinds import Key, Object
from sim.core.world import World, find_condition

NODE_LEASES: Final = "kube-node-lease"
"""The namespace in which each node has its Lease."""
NOT_READY: Final = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
UNREACHABLE: Final = {"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}
_OURS: Final = (NOT_READY, UNREACHABLE)


class NodeLifecycle:
    """Sets the status of a node whose Lease expires to Unknown, and taints nodes that are not ready.

    A node that never had a Lease keeps its status.
    As in Kubernetes, a renewal counts from the time at which it is seen, so that no two clocks are compared.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._heard_at: dict[str, float] = {}

    def on_node(self, name: str, new: Object | None) -> None:
        if new is not None and _node_with_readiness_taint(new) != new:
            self._world.run_after(0, partial(self._taint_node, name))

    def on_lease(self, key: Key, new: Object | None) -> None:
        namespace, name = key
        if namespace != NODE_LEASES:
            return
        if new is None:
            self._heard_at.pop(name, None)
            return
        if name not in self._heard_at:
            self._world.run_after(self._world.settings.node_grace_seconds, partial(self._check_lease, name))
        self._heard_at[name] = self._world.now

    def _taint_node(self, name: str) -> None:
        node = self._world.store.get_object("nodes", ("", name))
        if node is not None and _node_with_readiness_taint(node) != node:
            self._world.store.put_object("nodes", _node_with_readiness_taint(node))

    def _check_lease(self, name: str) -> None:
        heard_at = self._heard_at.get(name)
        if heard_at is None:
            return
        left = heard_at + self._world.settings.node_grace_seconds - self._world.now
        if left > 0:
            self._world.run_after(left, partial(self._check_lease, name))
            return
        del self._heard_at[name]
        node = self._world.store.get_object("nodes", ("", name))
        if node is not None:
            self._world.put_status("nodes", node, _status_with_unknown_conditions(node, self._world.timestamp()))


def _node_with_readiness_taint(node: Object) -> Object:
    """Returns the node with the taint for its readiness and not the other taint; the same object if nothing differs."""
    ready = (find_condition(node, "Ready") or {}).get("status")
    wanted = [] if ready == "True" else [UNREACHABLE if ready == "Unknown" else NOT_READY]
    spec = node.get("spec") or {}
    taints = spec.get("taints") or []
    if [one for one in taints if _is_readiness_taint(one)] == wanted:
        return node
    return {**node, "spec": {**spec, "taints": [*(one for one in taints if not _is_readiness_taint(one)), *wanted]}}


def _is_readiness_taint(taint: dict[str, Any]) -> bool:
    return any((taint["key"], taint["effect"]) == (one["key"], one["effect"]) for one in _OURS)


def _status_with_unknown_conditions(node: Object, stamp: str) -> dict[str, Any]:
    status = node.get("status") or {}
    told = {"status": "Unknown", "reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status."}
    others = [{**one, **told, "lastTransitionTime": stamp} for one in status.get("conditions") or ()]
    return {**status, "conditions": others or [{"type": "Ready", **told, "lastTransitionTime": stamp}]}
