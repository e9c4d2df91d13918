"""Compares the sizes of pods in two clusters: the pool's scheduler counts pool pods, the owner's kubelet real pods.

They can differ. An owner's admission may add a sidecar or raise requests, and a real pod may be resized in place. A
real pod still holds its place when its pool pod was deleted by force. A virtual node that offered what is free by the
pool's count would therefore offer more than fits.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from msgspec import Struct, ValidationError, json

from spillway.kubernetes import objects
from vk_bridge.core.node.loan import Manifest
from vk_bridge.core.node.virtual_node import ENDED, quantity_text


class _Pod(Struct, frozen=True, gc=False):
    spec: objects.ObservedPodSpec = objects.ObservedPodSpec()
    status: objects.PodStatus = objects.PodStatus()


_POD: Final = json.Decoder(_Pod)
REJECTED: Final = "Pod was rejected: "
"""The text before a kubelet's reason, as in rejectPod of Kubernetes."""


@dataclass(frozen=True, slots=True)
class AdmittedSizes:
    """The sizes of one real pod, by resource.

    counted: what the pool's scheduler counts for its pool pod. admitted: what the kubelet counts for the real pod.
    """

    counted: Mapping[str, int]
    admitted: Mapping[str, int]

    def added_amounts(self) -> dict[str, int]:
        """Returns by how much the pod is larger where it runs than where it was scheduled."""
        return {name: more for name in self.admitted if (more := self.admitted[name] - self.counted.get(name, 0)) > 0}


NOTHING: Final = AdmittedSizes({}, {})


def sizes_held(real_pod: Manifest, pool_pod: Manifest | None) -> AdmittedSizes:
    """Returns the amounts that the two pods hold now; none if the real pod has ended, as the pool pod ends soon."""
    return NOTHING if _has_ended(real_pod) else AdmittedSizes(_held_amounts(pool_pod), _held_amounts(real_pod))


def sizes_asked(real_pod: Manifest, pool_pod: Manifest) -> AdmittedSizes:
    """Returns the amounts that the two pods request, even if they have ended."""
    return AdmittedSizes(requested_amounts(pool_pod), requested_amounts(real_pod))


def is_refused_by_its_node(real_pod: Manifest) -> bool:
    """Returns whether the kubelet did not admit the pod (OutOfcpu, …).

    The kubelet has failed the pod, with REJECTED at the start of the message or without any container status. Both
    tests are needed: newer kubelets report containers that never ran, and older ones begin their message otherwise.
    """
    status = real_pod.get("status") or {}
    told_of_containers = status.get("containerStatuses") or status.get("initContainerStatuses")
    says_so = (status.get("message") or "").startswith(REJECTED)
    return status.get("phase") == "Failed" and bool(status.get("reason")) and (says_so or not told_of_containers)


def allocatable_for_pool(
    free: Mapping[str, int], held: Iterable[AdmittedSizes], refused: Iterable[AdmittedSizes] = ()
) -> dict[str, int]:
    """Returns the amounts that a virtual node shows as allocatable, without sizes that the pool's scheduler cannot see.

    held: the sizes of each real pod of the pool.
    refused: sizes that the node did not admit lately. The shown amount lets just as many pods of that kind be bound as
    the kubelet admits, even if they are bound at once.
    """
    pods, kinds = tuple(held), tuple(refused)
    return {name: _allocatable_of_resource(name, amount, pods, kinds) for name, amount in free.items()}


def _allocatable_of_resource(
    name: str, free: int, held: Iterable[AdmittedSizes], refused: Iterable[AdmittedSizes]
) -> int:
    counted, largest = _counted_and_largest_sums(name, held)
    shown, room = free - (largest - counted), max(0, free - largest)
    # By the pool's count, just as many pods of a refused kind may fit as the kubelet still admits.
    for sizes in refused:
        asked, admitted = sizes.counted.get(name, 0), sizes.admitted.get(name, 0)
        if 0 < asked < admitted:
            one_too_many = (room // admitted + 1) * asked
            shown = min(shown, counted + one_too_many - 1)
    return max(0, shown)


def room_for_more_pods(free: Mapping[str, int], held: Iterable[AdmittedSizes]) -> dict[str, int]:
    """Returns the amounts that the kubelet has left for more pods of the pool.

    free: the amounts that all other pods leave. held: the sizes of the pool's real pods.
    """
    pods = tuple(held)
    return {name: max(0, amount - _counted_and_largest_sums(name, pods)[1]) for name, amount in free.items()}


def _counted_and_largest_sums(name: str, held: Iterable[AdmittedSizes]) -> tuple[int, int]:
    """Returns two sums: the sizes that the pool's scheduler counts, and the larger size of each pod."""
    pairs = [(sizes.counted.get(name, 0), sizes.admitted.get(name, 0)) for sizes in held]
    return sum(counted for counted, _ in pairs), sum(map(max, pairs))


def added_sizes_text(real_pod: Manifest, pool_pod: Manifest) -> str:
    """Returns the added sizes as text for users; empty if nothing was added."""
    added = sizes_asked(real_pod, pool_pod).added_amounts()
    return ", ".join(f"{name} {quantity_text(name, amount)}" for name, amount in sorted(added.items()))


def _held_amounts(pod: Manifest | None) -> Mapping[str, int]:
    return {**requested_amounts(pod), "pods": 1} if pod is not None and not _has_ended(pod) else {}


def _has_ended(pod: Manifest) -> bool:
    return (pod.get("status") or {}).get("phase") in ENDED


def requested_amounts(pod: Manifest) -> Mapping[str, int]:
    """Returns a pod's requests; nothing if they cannot be read.

    An unreadable pool pod is refused, and no kubelet has room for an unreadable real pod.
    """
    try:
        found = _POD.decode(json.encode(pod))
    except ValidationError:
        return {}
    return objects.pod_requests_or_none(found.spec, found.status) or {}
