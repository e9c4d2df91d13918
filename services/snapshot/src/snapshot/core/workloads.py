"""Our workloads in a cluster: Deployments that bear our fleet's label, and the ReplicaSets between them and pods."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from spillway import kubernetes
from spillway.model import NO_GENERATION, Generation, WorkloadFacts

FLEET_LABEL = "spillway.io/fleet"
PLACEMENT_ANNOTATION = "spillway.io/placement"

WorkloadKey = tuple[str, str]
"""Namespace and name."""


class DeploymentFacts(NamedTuple):
    namespace: str
    name: str
    version: Generation
    spec_replicas: int
    observed_current: bool
    status_replicas: int
    updated_replicas: int
    ready_replicas: int


class WorkloadTable:
    """dirty: keys of workloads that may have changed since the reader cleared it."""

    def __init__(self, fleet: str) -> None:
        self.dirty: set[WorkloadKey] = set()
        self._fleet = fleet
        self._deployments: dict[str, DeploymentFacts] = {}
        self._uid_by_key: dict[WorkloadKey, str] = {}
        self._deployment_by_replicaset: dict[str, str] = {}
        self._replicasets_by_deployment: dict[str, set[str]] = {}

    def workload_of(self, owner_uid: str) -> WorkloadKey | None:
        """The workload of ours that owns the pods of this ReplicaSet, as far as both are known."""
        deployment = self._deployments.get(self._deployment_by_replicaset.get(owner_uid, ""))
        return (deployment.namespace, deployment.name) if deployment else None

    def keys(self) -> Iterable[WorkloadKey]:
        return self._uid_by_key

    def facts(self, key: WorkloadKey, counted: Mapping[str, Mapping[str, int]]) -> WorkloadFacts | None:
        """counted: pods by ReplicaSet's uid and template hash."""
        uid = self._uid_by_key.get(key)
        if uid is None:
            return None
        total: dict[str, int] = {}
        for replicaset in self._replicasets_by_deployment.get(uid, ()):
            for template_hash, pods in counted.get(replicaset, {}).items():
                total[template_hash] = total.get(template_hash, 0) + pods
        facts = self._deployments[uid]
        return WorkloadFacts(uid=uid, counted=tuple(sorted(total.items())), **facts._asdict())

    def upsert_deployment(self, deployment: kubernetes.Deployment) -> None:
        metadata = deployment.metadata
        if metadata.labels.get(FLEET_LABEL) != self._fleet:
            self.remove_deployment(metadata.uid)
            return
        facts = _read_deployment(deployment)
        key = facts.namespace, facts.name
        if self._deployments.get(metadata.uid) == facts and self._uid_by_key.get(key) == metadata.uid:
            return
        self._deployments[metadata.uid] = facts
        self._uid_by_key[key] = metadata.uid
        self.dirty.add(key)

    def remove_deployment(self, uid: str) -> None:
        facts = self._deployments.pop(uid, None)
        if facts is None:
            return
        key = facts.namespace, facts.name
        if self._uid_by_key.get(key) == uid:  # Else another object has taken the name already.
            del self._uid_by_key[key]
        self.dirty.add(key)

    def retain_deployments(self, uids: set[str]) -> None:
        for uid in [uid for uid in self._deployments if uid not in uids]:
            self.remove_deployment(uid)

    def upsert_replicaset(self, replicaset: kubernetes.ReplicaSet) -> None:
        uid = replicaset.metadata.uid
        owners = (one for one in replicaset.metadata.owner_references if one.controller and one.kind == "Deployment")
        owner = next(owners, None)
        if owner is None:
            self.remove_replicaset(uid)
        elif self._deployment_by_replicaset.get(uid) != owner.uid:
            self.remove_replicaset(uid)
            self._deployment_by_replicaset[uid] = owner.uid
            self._replicasets_by_deployment.setdefault(owner.uid, set()).add(uid)
            self._mark(owner.uid)

    def remove_replicaset(self, uid: str) -> None:
        deployment_uid = self._deployment_by_replicaset.pop(uid, None)
        if deployment_uid is None:
            return
        siblings = self._replicasets_by_deployment[deployment_uid]
        siblings.discard(uid)
        if not siblings:
            del self._replicasets_by_deployment[deployment_uid]
        self._mark(deployment_uid)

    def retain_replicasets(self, uids: set[str]) -> None:
        for uid in [uid for uid in self._deployment_by_replicaset if uid not in uids]:
            self.remove_replicaset(uid)

    def _mark(self, deployment_uid: str) -> None:
        facts = self._deployments.get(deployment_uid)
        if facts is not None:
            self.dirty.add((facts.namespace, facts.name))


def _read_deployment(deployment: kubernetes.Deployment) -> DeploymentFacts:
    metadata, status = deployment.metadata, deployment.status
    return DeploymentFacts(
        namespace=metadata.namespace,
        name=metadata.name,
        version=read_version(metadata.annotations.get(PLACEMENT_ANNOTATION, "")),
        spec_replicas=deployment.spec.replicas,
        observed_current=status.observed_generation >= metadata.generation,
        status_replicas=status.replicas,
        updated_replicas=status.updated_replicas,
        ready_replicas=status.ready_replicas,
    )


def read_version(text: str) -> Generation:
    """NO_GENERATION for what is not "epoch.sequence": anybody may write annotations."""
    epoch, dot, sequence = text.partition(".")
    if not dot or not all(part.isascii() and part.isdigit() and len(part) <= 18 for part in (epoch, sequence)):
        return NO_GENERATION
    return Generation(int(epoch), int(sequence))
