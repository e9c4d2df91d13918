"""Keeps for each pod of a controller the facts that decide whether and how it counts for scaling."""

from collections.abc import Iterable
from typing import NamedTuple

from snapshot.core.workloads import OwnerKey
from spillway.events_scaling import ContainerRequests, PodRequests
from spillway.kubernetes import objects
from spillway.kubernetes.pod_metrics import unix_ms
from spillway.kubernetes.quantities import parse_quantity

CONTROLLERS = frozenset({"ReplicaSet", "StatefulSet", "Job"})

_Asked = tuple[tuple[objects.Container, ...], tuple[objects.Container, ...], objects.Resources | None]


class PodDetail(NamedTuple):
    """The facts of one pod. Times are as in ObservedPod.

    deleting: whether it has a deletion timestamp.
    ready: the status of its condition Ready: true, false or unknown; empty without this condition.
    """

    name: str
    phase: str
    deleting: bool
    started_ms: int
    ready: str
    ready_changed_ms: int
    requests: PodRequests


class PodDetails:
    """The pods of a cluster's controllers.

    dirty_owners: ReplicaSets, StatefulSets and Jobs whose pods changed since the reader cleared it.
    """

    def __init__(self) -> None:
        self.dirty_owners: set[OwnerKey] = set()
        self._owner_by_pod: dict[str, OwnerKey] = {}
        self._by_owner: dict[OwnerKey, dict[str, PodDetail]] = {}
        self._requests_by_owner: dict[OwnerKey, tuple[_Asked, PodRequests]] = {}

    def pods_of_owners(self, owners: Iterable[OwnerKey]) -> list[PodDetail]:
        """Returns the pods of these owners, by name."""
        return sorted(detail for owner in owners for detail in self._by_owner.get(owner, {}).values())

    def upsert_pod(self, pod: objects.Pod) -> None:
        uid, owner = pod.metadata.uid, _controller_of(pod.metadata)
        if self._owner_by_pod.get(uid, owner) != owner:
            self.remove_pod(uid)
        if owner is None:
            return
        pods = self._by_owner.setdefault(owner, {})
        found = _read_pod_detail(pod, self._requests_of_owner(owner, pod.spec))
        if pods.get(uid) == found:
            return
        self._owner_by_pod[uid] = owner
        pods[uid] = found
        self.dirty_owners.add(owner)

    def remove_pod(self, uid: str) -> None:
        owner = self._owner_by_pod.pop(uid, None)
        if owner is None:
            return
        pods = self._by_owner[owner]
        del pods[uid]
        if not pods:
            del self._by_owner[owner], self._requests_by_owner[owner]
        self.dirty_owners.add(owner)

    def retain_pods(self, uids: frozenset[str]) -> None:
        """Removes every pod that a whole list does not have. uids: all pods of the list."""
        for uid in [uid for uid in self._owner_by_pod if uid not in uids]:
            self.remove_pod(uid)

    def _requests_of_owner(self, owner: OwnerKey, spec: objects.PodSpec) -> PodRequests:
        """Returns the requests of a pod. They are kept by owner, as nearly all pods of one owner have the same."""
        asked = spec.containers, spec.init_containers, spec.resources
        known = self._requests_by_owner.get(owner)
        if known is None or known[0] != asked:
            known = self._requests_by_owner[owner] = asked, _read_pod_requests(spec)
        return known[1]


def _controller_of(metadata: objects.Meta) -> OwnerKey | None:
    references = (one for one in metadata.owner_references if one.controller and one.kind in CONTROLLERS)
    return next(((metadata.namespace, one.uid) for one in references), None)


def _read_pod_detail(pod: objects.Pod, requests: PodRequests) -> PodDetail:
    status = pod.status
    ready = next((one for one in status.conditions if one.type == "Ready"), None)
    return PodDetail(
        name=pod.metadata.name,
        phase=status.phase,
        deleting=pod.metadata.deletion_timestamp is not None,
        started_ms=unix_ms(status.start_time),
        ready="" if ready is None else ready.status.lower(),
        ready_changed_ms=0 if ready is None else unix_ms(ready.last_transition_time),
        requests=requests,
    )


def _read_pod_requests(spec: objects.PodSpec) -> PodRequests:
    """Returns the requests in the pod's spec, and not those of a resize in progress.

    Kubernetes' HorizontalPodAutoscaler reads the same requests.
    """
    containers = [_read_container_requests(one) for one in spec.containers]
    containers += [_read_container_requests(one, init=True) for one in spec.init_containers]
    return PodRequests(tuple(containers), () if spec.resources is None else _requested_amounts(spec.resources))


def _read_container_requests(container: objects.Container, *, init: bool = False) -> ContainerRequests:
    restartable = init and container.restart_policy == "Always"
    return ContainerRequests(container.name, _requested_amounts(container.resources), init, restartable)


def _requested_amounts(resources: objects.Resources) -> tuple[tuple[str, int], ...]:
    return milli_amounts(resources.requests.items())


def milli_amounts(items: Iterable[tuple[str, objects.Quantity]]) -> tuple[tuple[str, int], ...]:
    """Returns the amounts in thousandths, by resource.

    An unreadable amount is left out. A reader that needs it reports it as missing.
    """
    amounts: list[tuple[str, int]] = []
    for name, text in items:
        try:
            amounts.append((name, parse_quantity(text, milli=True)))
        except ValueError:
            continue
    return tuple(sorted(amounts))
