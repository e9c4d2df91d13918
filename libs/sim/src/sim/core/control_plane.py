"""The control plane as one state machine: every change is passed to the controllers, and `run_step` lets them act."""

from collections.abc import Callable

from sim.core.binder import Binder
from sim.core.deployments import Deployments
from sim.core.garbage import Garbage
from sim.core.jobs import Jobs
from sim.core.kinds import Key, Object
from sim.core.kubelet import Kubelet
from sim.core.node_lifecycle import NODE_LEASES, NodeLifecycle
from sim.core.node_table import NodeTable
from sim.core.nodes import NodeGroups
from sim.core.pod_logs import PodLogs
from sim.core.pods import node_of
from sim.core.quotas import Quotas
from sim.core.replicasets import ReplicaSets
from sim.core.scheduling import Scheduler
from sim.core.shape import PodShape, ShapeBook
from sim.core.statefulsets import StatefulSets
from sim.core.store import Change
from sim.core.usage import Usage
from sim.core.volumes import volume_rules_of
from sim.core.world import RandomSource, World
from sim.settings import Settings


class ControlPlane:
    def __init__(self, settings: Settings, random: RandomSource, now: float) -> None:
        self.world = World(settings, random, now)
        self.table = NodeTable()
        self.shapes = ShapeBook()
        self.shape_by_pod: dict[Key, PodShape] = {}
        below = random.randrange if settings.score == "random" else None
        self.scheduler = Scheduler(self.table, below, lambda shape: volume_rules_of(shape, self.world.store))
        self.binder = Binder(self.world, self.table, self.scheduler)
        self.garbage = Garbage(self.world)
        self.quotas = Quotas(self.world)
        self.kubelet = Kubelet(self.world, self.garbage, self.table)
        self.replicasets = ReplicaSets(self.world, self.garbage, self.quotas, self.shapes)
        self.deployments = Deployments(self.world, self.garbage, self.replicasets)
        self.statefulsets = StatefulSets(self.world, self.garbage, self.quotas, self.shapes)
        self.jobs = Jobs(self.world, self.garbage, self.quotas, self.shapes)
        self.node_lifecycle = NodeLifecycle(self.world)
        self.node_groups = NodeGroups(self.world, self.table)
        self.usage = Usage(self.world)
        self.logs = PodLogs(self.world)
        self.on_write: Callable[[str], None] = lambda _plural: None
        """Called with the plural of the kind after every change, for watches."""
        self.world.store.listener = self._on_change
        uids = {name: self.world.new_uid() for name in ("default", "kube-system")}
        uids[NODE_LEASES] = self.world.derived_uid(uids["kube-system"], NODE_LEASES)
        for name, uid in uids.items():
            self._make_namespace(name, uid)

    def run_step(self, now: float) -> float | None:
        """Does some of the work that is due.

        Returns when to call it again: the present time if more work is due, a later time, or None: after a change.
        """
        self.world.now = max(now, self.world.now)
        limit = self.world.settings.step_changes
        writes = self.world.run_timers(limit)
        writes += self.garbage.collect_garbage(limit)
        writes += self.deployments.reconcile(limit)
        writes += self.replicasets.reconcile(limit)
        writes += self.statefulsets.reconcile(limit)
        writes += self.jobs.reconcile(limit)
        writes += self.binder.schedule_pods(limit)
        writes += self.quotas.write_status()
        if self.node_groups.has_groups and self.binder.waiting:
            self.node_groups.grow_groups({shape: len(pods) for shape, pods in self.binder.waiting.items()})
        controllers = (self.deployments, self.replicasets, self.statefulsets, self.jobs)
        if writes or self.garbage.has_work or any(one.dirty for one in controllers):
            return self.world.now
        due = [at for at in (self.world.next_timer_at(), self.binder.next_run_at()) if at is not None]
        return min(due, default=None)

    def _make_namespace(self, name: str, uid: str) -> None:
        metadata = {"name": name, "uid": uid, "creationTimestamp": self.world.timestamp()}
        labels = {"kubernetes.io/metadata.name": name}
        self.world.store.put_object(
            "namespaces", {"metadata": {**metadata, "labels": labels}, "spec": {}, "status": {"phase": "Active"}}
        )

    def _on_change(self, change: Change) -> None:
        self.garbage.on_change(change)
        new = None if change.type == "DELETED" else change.new
        match change.plural:
            case "pods":
                self._on_pod(change.key, change.old, new)
            case "leases":
                self.node_lifecycle.on_lease(change.key, new)
            case "nodes":
                self.node_lifecycle.on_node(change.key[1], new)
                self._on_node(change.key[1], change.old, new)
            case "replicasets":
                self.replicasets.on_replicaset(change.key, change.old, new)
                self.deployments.on_replicaset(change.key, change.old, new)
            case "deployments":
                self.deployments.on_deployment(change.key, change.old, new)
            case "statefulsets":
                self.statefulsets.on_owner(change.key, change.old, new)
            case "jobs":
                self.jobs.on_owner(change.key, change.old, new)
            case "resourcequotas":
                self.quotas.on_quota(change.key, new)
                self._retry_refused_pods(change.key[0])
            case "configmaps" | "secrets":
                self.kubelet.on_config_written(change.key[0])
            case "serviceaccounts":
                self._retry_refused_pods(change.key[0])
            case "priorityclasses" | "runtimeclasses":
                for _, namespace in list(self.world.store.tables["namespaces"]):
                    self._retry_refused_pods(namespace)
            case "persistentvolumeclaims" | "persistentvolumes":
                self.binder.retry = True
        self.on_write(change.plural)

    def _retry_refused_pods(self, namespace: str) -> None:
        """Retries the owners of pods that a quota refused, or that admission refused because an object was missing."""
        self.replicasets.retry_refused_owners(namespace)
        self.statefulsets.retry_refused_owners(namespace)
        self.jobs.retry_refused_owners(namespace)

    def _on_node(self, name: str, old: Object | None, new: Object | None) -> None:
        if new is None:
            self.table.remove_node(name)
            self.binder.on_node_gone(name, self.shape_by_pod)
        elif old is not None and _is_same_for_scheduler(old, new):
            return
        else:
            self.table.put_node(new)
            if old is None:
                self._count_early_pods(name)
        self.kubelet.on_node(name, new)
        self.binder.retry = True

    def _count_early_pods(self, name: str) -> None:
        """Counts pods that named the node before it existed."""
        for key, shape in list(self.kubelet.pods_by_node.get(name, {}).items()):
            self.table.add_pod(name, shape)
            self.kubelet.on_pod_placed(key, self.world.store.tables["pods"][key], name, shape)

    def _on_pod(self, key: Key, old: Object | None, new: Object | None) -> None:
        shape = self.shape_by_pod.get(key)
        if shape is None:
            shape = self.shape_by_pod[key] = self.shapes.shape_of(new or old or {})
        self._follow_pod_placement(key, shape, old, new)
        if self.quotas.on_pod(shape, old, new):
            self._retry_refused_pods(key[0])
        self.replicasets.on_pod(key, old, new)
        self.statefulsets.on_pod(key, old, new)
        self.jobs.on_pod(key, old, new)
        if new is None:
            self.binder.forget_pod(key, shape)
            del self.shape_by_pod[key]
            if old is not None:
                self.logs.forget_pod(old["metadata"]["uid"])

    def _follow_pod_placement(self, key: Key, shape: PodShape, old: Object | None, new: Object | None) -> None:
        before = node_of(old) if old else ""
        after = node_of(new) if new else ""
        if before and before != after:
            self.table.remove_pod(before, shape)
            self.kubelet.on_pod_left(key, before)
            self.binder.retry = True
        if new is None:
            return
        if after and before != after:
            self._on_pod_bound(key, shape, new, after)
        elif old is not None and "deletionTimestamp" in new["metadata"]:
            if after and _deletion_grace_seconds(old) != _deletion_grace_seconds(new):
                self.kubelet.on_pod_ending(key, new)
            elif old["metadata"].get("finalizers") and not new["metadata"].get("finalizers"):
                self.kubelet.on_finalizers_gone(key, new)
        elif not after and _needs_scheduling(new) and (old is None or not _needs_scheduling(old)):
            self.binder.enqueue_pod(key, shape)

    def _on_pod_bound(self, key: Key, shape: PodShape, pod: Object, node: str) -> None:
        decided = self.binder.assumed.pop(key, None)
        if decided != node:
            if decided:
                self.table.remove_pod(decided, shape)
            resource = self.kubelet.pod_refusal_reason(node, shape)
            if resource:
                self.kubelet.reject_pod(key, pod, resource)
            self.table.add_pod(node, shape)
            self.binder.forget_pod(key, shape)
        self.binder.on_pod_bound()
        self.kubelet.on_pod_placed(key, pod, node, shape)


def _deletion_grace_seconds(pod: Object) -> int | None:
    """Returns the grace period of a pod that is being deleted; None for any other."""
    grace: int | None = pod["metadata"].get("deletionGracePeriodSeconds")
    return grace


def _is_same_for_scheduler(old: Object, new: Object) -> bool:
    """Returns whether two states of a node are equal for the scheduler. Heartbeats must not wake it."""
    same_labels = old["metadata"].get("labels") == new["metadata"].get("labels")
    same_spec = old.get("spec") == new.get("spec")
    same_room = (old.get("status") or {}).get("allocatable") == (new.get("status") or {}).get("allocatable")
    return same_labels and same_spec and same_room


def _needs_scheduling(pod: Object) -> bool:
    spec = pod["spec"]
    ours = spec.get("schedulerName", "default-scheduler") in ("", "default-scheduler")
    return (
        ours
        and not spec.get("schedulingGates")
        and not spec.get("nodeName")
        and "deletionTimestamp" not in pod["metadata"]
    )
