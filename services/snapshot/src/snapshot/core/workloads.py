"""Keeps the objects in a cluster that have our fleet's label, and the ReplicaSets between Deployments and pods."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from spillway.kubernetes import objects
from spillway.kubernetes.objects import Kind
from spillway.model import NO_GENERATION, Generation, WorkloadFacts

FLEET_LABEL = "spillway.io/fleet"
PLACEMENT_ANNOTATION = "spillway.io/placement"

Workload = objects.Deployment | objects.StatefulSet | objects.Job
WorkloadKey = tuple[str, str]
"""(namespace, name) of a workload."""
OwnerKey = tuple[str, str]
"""(namespace, uid) of an object that owns pods. The namespace is the pod's: an owner that a pod names in another
namespace does not own it."""


class ObjectFacts(NamedTuple):
    namespace: str
    name: str
    version: Generation
    spec_replicas: int
    observed_current: bool
    status_replicas: int
    updated_replicas: int
    ready_replicas: int
    succeeded: int = 0
    ended: str = ""


class WorkloadTable:
    """The workloads of our fleet in a cluster.

    Objects of all kinds are kept by uid. If several objects have one name, the last one counts as the workload, since a
    name is one workload of one kind.

    dirty: keys of workloads that may have changed since the reader cleared it.
    moved: the same, for another reader.
    """

    def __init__(self, fleet: str) -> None:
        self.dirty: set[WorkloadKey] = set()
        self.moved: set[WorkloadKey] = set()
        self._fleet = fleet
        self._objects: dict[str, ObjectFacts] = {}
        self._uids_by_kind: dict[Kind, set[str]] = {}
        self._uid_by_key: dict[WorkloadKey, str] = {}
        self._deployment_by_replicaset: dict[str, OwnerKey] = {}
        self._replicasets_by_deployment: dict[OwnerKey, set[str]] = {}

    def workload_of(self, owner: OwnerKey) -> WorkloadKey | None:
        """Returns our workload that owns the pods of this ReplicaSet, StatefulSet or Job; None while it is unknown."""
        namespace, uid = self._deployment_by_replicaset.get(owner[1], owner)
        found = self._objects.get(uid)
        return (found.namespace, found.name) if found and owner[0] == namespace == found.namespace else None

    def workload_keys(self) -> Iterable[WorkloadKey]:
        return self._uid_by_key

    def has_workload(self, key: WorkloadKey) -> bool:
        return key in self._uid_by_key

    def pod_owners_of(self, key: WorkloadKey) -> tuple[OwnerKey, ...]:
        """Returns the objects that may own the workload's pods: its own object and its ReplicaSets."""
        namespace, uid = key[0], self._uid_by_key[key]
        return tuple((namespace, one) for one in (uid, *self._replicasets_by_deployment.get((namespace, uid), ())))

    def workload_facts(self, key: WorkloadKey, counted: Mapping[OwnerKey, Mapping[str, int]]) -> WorkloadFacts | None:
        """Returns the facts of a workload; None for an unknown one. counted: pods by owner and template hash."""
        uid = self._uid_by_key.get(key)
        if uid is None:
            return None
        total: dict[str, int] = {}
        for owner in self.pod_owners_of(key):
            for template_hash, pods in counted.get(owner, {}).items():
                total[template_hash] = total.get(template_hash, 0) + pods
        facts = self._objects[uid]
        return WorkloadFacts(uid=uid, counted=tuple(sorted(total.items())), **facts._asdict())

    def upsert_workload(self, kind: Kind, item: Workload) -> None:
        metadata = item.metadata
        if metadata.labels.get(FLEET_LABEL) != self._fleet:
            self.remove_workload(kind, metadata.uid)
            return
        facts = _read_object_facts(item)
        key = facts.namespace, facts.name
        self._uids_by_kind.setdefault(kind, set()).add(metadata.uid)
        if self._objects.get(metadata.uid) == facts and self._uid_by_key.get(key) == metadata.uid:
            return
        self._objects[metadata.uid] = facts
        self._uid_by_key[key] = metadata.uid
        self._mark_workload_changed(key)

    def remove_workload(self, kind: Kind, uid: str) -> None:
        self._uids_by_kind.get(kind, set()).discard(uid)
        facts = self._objects.pop(uid, None)
        if facts is None:
            return
        key = facts.namespace, facts.name
        if self._uid_by_key.get(key) == uid:  # Else another object has taken the name already.
            del self._uid_by_key[key]
        self._mark_workload_changed(key)

    def retain_workloads(self, kind: Kind, uids: frozenset[str]) -> None:
        for uid in self._uids_by_kind.get(kind, set()) - uids:
            self.remove_workload(kind, uid)

    def upsert_replicaset(self, replicaset: objects.ReplicaSet) -> None:
        uid = replicaset.metadata.uid
        owners = (one for one in replicaset.metadata.owner_references if one.controller and one.kind == "Deployment")
        owner = next(owners, None)
        deployment = None if owner is None else (replicaset.metadata.namespace, owner.uid)
        if deployment is None:
            self.remove_replicaset(uid)
        elif self._deployment_by_replicaset.get(uid) != deployment:
            self.remove_replicaset(uid)
            self._deployment_by_replicaset[uid] = deployment
            self._replicasets_by_deployment.setdefault(deployment, set()).add(uid)
            self._mark_deployment_changed(deployment)

    def remove_replicaset(self, uid: str) -> None:
        deployment = self._deployment_by_replicaset.pop(uid, None)
        if deployment is None:
            return
        siblings = self._replicasets_by_deployment[deployment]
        siblings.discard(uid)
        if not siblings:
            del self._replicasets_by_deployment[deployment]
        self._mark_deployment_changed(deployment)

    def retain_replicasets(self, uids: frozenset[str]) -> None:
        for uid in [uid for uid in self._deployment_by_replicaset if uid not in uids]:
            self.remove_replicaset(uid)

    def _mark_deployment_changed(self, deployment: OwnerKey) -> None:
        facts = self._objects.get(deployment[1])
        if facts is not None and facts.namespace == deployment[0]:
            self._mark_workload_changed((facts.namespace, facts.name))

    def _mark_workload_changed(self, key: WorkloadKey) -> None:
        self.dirty.add(key)
        self.moved.add(key)


def _read_object_facts(item: Workload) -> ObjectFacts:
    metadata = item.metadata
    version = read_placement_version(metadata.annotations.get(PLACEMENT_ANNOTATION, ""))
    if isinstance(item, objects.Job):
        return _read_job(item, version)
    status = item.status
    return ObjectFacts(
        namespace=metadata.namespace,
        name=metadata.name,
        version=version,
        spec_replicas=item.spec.replicas,
        observed_current=status.observed_generation >= metadata.generation,
        status_replicas=status.replicas,
        updated_replicas=status.updated_replicas,
        ready_replicas=status.ready_replicas,
    )


def _read_job(job: objects.Job, version: Generation) -> ObjectFacts:
    """Returns the facts of a Job.

    Its status has no generation, so it counts as current if its annotation can be read.
    """
    status = job.status
    return ObjectFacts(
        namespace=job.metadata.namespace,
        name=job.metadata.name,
        version=version,
        spec_replicas=job.spec.parallelism,
        observed_current=version != NO_GENERATION,
        status_replicas=status.active,
        updated_replicas=status.active,
        ready_replicas=status.ready,
        succeeded=status.succeeded,
        ended=objects.job_end_condition((one.type, one.status) for one in status.conditions),
    )


def read_placement_version(text: str) -> Generation:
    """Returns the version in the text of a placement annotation; NO_GENERATION when it is not "epoch.sequence".

    Anybody may write annotations, so the text may be anything.
    """
    epoch, dot, sequence = text.partition(".")
    if not dot or not all(part.isascii() and part.isdigit() and len(part) <= 18 for part in (epoch, sequence)):
        return NO_GENERATION
    return Generation(int(epoch), int(sequence))
