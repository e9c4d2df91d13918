"""Simulates the kubelets: pods start, are refused and end, and a node's pods are deleted together with the node."""

from functools import partial

from sim.core.filters import is_node_selected
from sim.core.garbage import Garbage
from sim.core.kinds import Key, Object
from sim.core.node_table import HOST_PORT, NodeTable, TaintValue, resources_missing_for_kubelet
from sim.core.pod_config import missing_config_by_container, waiting_pod
from sim.core.pods import (
    NODE_AFFINITY,
    PROGRAM,
    RUN_SECONDS,
    START_SECONDS,
    STOP_SECONDS,
    ended_pod,
    is_terminal,
    pod_refused_by_kubelet,
    running_pod,
)
from sim.core.shape import PodShape
from sim.core.world import World

RUN_BY_US = "kwok.x-k8s.io/node"
"""Annotation of nodes whose kubelet is simulated. Other nodes are left to their own kubelets."""
_VIRTUAL = ("type", "virtual-kubelet")
"""Label of virtual nodes. They never have a simulated kubelet, whatever their annotations say."""


class Kubelet:
    def __init__(self, world: World, garbage: Garbage, table: NodeTable) -> None:
        self._world = world
        self._garbage = garbage
        self._table = table
        self.pods_by_node: dict[str, dict[Key, PodShape]] = {}
        self._waiting: dict[str, dict[Key, str]] = {}
        """Uids of pods whose containers wait for a ConfigMap or Secret, by namespace."""
        self.programs: frozenset[str] = frozenset()
        """Names of the programs that run for pods. A deleted pod remains until the runner reports that its program has
        ended, or until the pod's grace period is over."""

    def is_simulated_node(self, node: str) -> bool:
        found = self._world.store.get_object("nodes", ("", node))
        if found is None or (found["metadata"].get("labels") or {}).get(_VIRTUAL[0]) == _VIRTUAL[1]:
            return False
        return RUN_BY_US in (found["metadata"].get("annotations") or {})

    def pod_refusal_reason(self, node: str, shape: PodShape) -> str:
        """Returns why the kubelet refuses a pod bound without the scheduler: a resource, NODE_AFFINITY, or ""."""
        record = self._table.record_by_name.get(node)
        if record is None or not self.is_simulated_node(node):
            return ""
        missing = next(iter(resources_missing_for_kubelet(record, shape)), "")
        # A kubelet reports missing resources first, then the node affinity, and missing host ports last.
        is_first = not missing or missing == HOST_PORT
        return NODE_AFFINITY if is_first and not is_node_selected(record, shape) else missing

    def on_pod_placed(self, key: Key, pod: Object, node: str, shape: PodShape) -> None:
        self.pods_by_node.setdefault(node, {})[key] = shape
        if pod["status"].get("phase") != "Running" and self.is_simulated_node(node):
            seconds = self._start_seconds(pod)
            if seconds is not None:
                self._world.run_after(seconds, partial(self._start_pod, key, pod["metadata"]["uid"]))
        if "deletionTimestamp" in pod["metadata"]:
            self.on_pod_ending(key, pod)
        self._schedule_eviction(node, key, shape)

    def on_pod_left(self, key: Key, node: str) -> None:
        pods = self.pods_by_node.get(node, {})
        pods.pop(key, None)
        self._waiting.get(key[0], {}).pop(key, None)
        if not pods:
            self.pods_by_node.pop(node, None)

    def on_pod_ending(self, key: Key, pod: Object) -> None:
        node = pod["spec"].get("nodeName", "")
        known = ("", node) in self._world.store.tables["nodes"]
        if known and not self.is_simulated_node(node):
            return
        grace = pod["metadata"].get("deletionGracePeriodSeconds", 30)
        annotations = pod["metadata"].get("annotations") or {}
        own = annotations.get(STOP_SECONDS)
        seconds = min(grace, self._world.settings.delete_delay_seconds if own is None else float(own))
        if annotations.get(PROGRAM) in self.programs:
            seconds = grace
        self._world.run_after(seconds, partial(self._remove_pod, key, pod["metadata"]["uid"]))

    def on_finalizers_gone(self, key: Key, pod: Object) -> None:
        self._world.run_after(0, partial(self._remove_pod, key, pod["metadata"]["uid"]))

    def on_program_ended(self, key: Key, uid: str) -> None:
        pod = self._world.object_with_uid("pods", key, uid)
        if pod and "deletionTimestamp" in pod["metadata"]:
            self._world.run_after(0, partial(self._remove_pod, key, uid))

    def on_config_written(self, namespace: str) -> None:
        """Lets waiting pods look again, after a ConfigMap or Secret of the namespace was written."""
        for key, uid in self._waiting.pop(namespace, {}).items():
            self._world.run_after(0, partial(self._start_pod, key, uid))

    def on_node(self, name: str, new: Object | None) -> None:
        if new is None:
            self._world.run_after(0, partial(self._delete_pods_of_node, name))
        elif any(taint[2] == "NoExecute" for taint in self._taints_of_node(name)):
            for key, shape in self.pods_by_node.get(name, {}).items():
                self._schedule_eviction(name, key, shape)

    def _taints_of_node(self, node: str) -> tuple[TaintValue, ...]:
        record = self._table.record_by_name.get(node)
        return record.taints if record else ()

    def _schedule_eviction(self, node: str, key: Key, shape: PodShape) -> None:
        waits: list[float] = []
        for taint in self._taints_of_node(node):
            if taint[2] != "NoExecute":
                continue
            tolerations = [one for one in shape.tolerations if one.tolerates(*taint)]
            bounded = [one.seconds for one in tolerations if one.seconds is not None]
            if not tolerations:
                waits.append(0)
            elif len(bounded) == len(tolerations):
                waits.append(min(bounded))
        if waits:
            pod = self._world.store.tables["pods"].get(key)
            uid = pod["metadata"]["uid"] if pod else ""
            self._world.run_after(min(waits), partial(self._evict_pod, key, uid, node))

    def _evict_pod(self, key: Key, uid: str, node: str) -> None:
        pod = self._world.object_with_uid("pods", key, uid)
        # The taint may have been removed during the tolerated time.
        if pod and any(taint[2] == "NoExecute" for taint in self._taints_of_node(node)):
            self._garbage.delete_pod(pod)

    def _delete_pods_of_node(self, node: str) -> None:
        if ("", node) in self._world.store.tables["nodes"]:
            return
        for key in list(self.pods_by_node.get(node, ())):
            self._garbage.delete_pod(self._world.store.tables["pods"][key], grace_seconds=0)

    def _start_seconds(self, pod: Object) -> float | None:
        own = (pod["metadata"].get("annotations") or {}).get(START_SECONDS)
        if own is None:
            return self._world.settings.start_delay_seconds
        return None if own == "never" else float(own)

    def _start_pod(self, key: Key, uid: str) -> None:
        pod = self._world.object_with_uid("pods", key, uid)
        if pod and not is_terminal(pod) and "deletionTimestamp" not in pod["metadata"]:
            if self._is_waiting_for_config(key, pod):
                return
            self._world.store.put_object("pods", running_pod(pod, self._world.timestamp(), ready=True))
            seconds = (pod["metadata"].get("annotations") or {}).get(RUN_SECONDS)
            if seconds is not None and pod["spec"].get("restartPolicy", "Always") != "Always":
                self._world.run_after(float(seconds), partial(self._end_pod, key, uid))

    def _is_waiting_for_config(self, key: Key, pod: Object) -> bool:
        """Returns whether a missing ConfigMap or Secret keeps the pod's containers from being created.

        If so, writes that to the pod's status, and notes the pod for the next ConfigMap or Secret of its namespace.
        """
        shape = self.pods_by_node.get(pod["spec"].get("nodeName", ""), {}).get(key)
        lacks = missing_config_by_container(self._world.store.get_object, key[0], shape.config) if shape else {}
        if not lacks:
            return False
        self._waiting.setdefault(key[0], {})[key] = pod["metadata"]["uid"]
        new = waiting_pod(pod, lacks, self._world.timestamp())
        if new["status"].get("containerStatuses") != pod["status"].get("containerStatuses"):
            self._world.store.put_object("pods", new)
        return True

    def _end_pod(self, key: Key, uid: str) -> None:
        pod = self._world.object_with_uid("pods", key, uid)
        if pod and not is_terminal(pod) and "deletionTimestamp" not in pod["metadata"]:
            self._world.store.put_object("pods", ended_pod(pod))

    def _remove_pod(self, key: Key, uid: str) -> None:
        pod = self._world.object_with_uid("pods", key, uid)
        if pod and not pod["metadata"].get("finalizers"):
            self._world.store.remove_object("pods", key)

    def reject_pod(self, key: Key, pod: Object, resource: str) -> None:
        self._world.run_after(0, partial(self._write_rejection, key, pod["metadata"]["uid"], resource))

    def _write_rejection(self, key: Key, uid: str, resource: str) -> None:
        pod = self._world.object_with_uid("pods", key, uid)
        if pod and not is_terminal(pod):
            self._world.store.put_object("pods", pod_refused_by_kubelet(pod, resource))
