"""Reads pods of API servers as values: the owner of a pod, and the fields that vk-bridge needs."""

from spillway.lending_marks import POD_NAMESPACE_PREFIX, POOL, POOL_UID
from vk_bridge.core.node.loan import Manifest, PoolPod, RealPod
from vk_bridge.core.node.virtual_node import ENDED
from vk_bridge.core.pod.deletion import PodDeletion, seen_deletion
from vk_bridge.core.pod.status import has_had_real_pod

GRACE_SECONDS = 30
"""Kubernetes' default for a pod that names no grace period."""
DAEMON_KINDS = ("DaemonSet", "Node")
"""The kinds of controllers of daemons. The controller of a static pod is its Node."""


def read_pool_pod(pod: Manifest) -> PoolPod:
    """Reads a pool pod. Its grace_seconds come from its deletion; before that from its spec."""
    metadata, spec = pod["metadata"], pod.get("spec") or {}
    deleting = bool(metadata.get("deletionTimestamp"))
    grace = read_grace_seconds(spec.get("terminationGracePeriodSeconds"))
    if deleting:
        grace = read_grace_seconds(metadata.get("deletionGracePeriodSeconds"), grace)
    return PoolPod(
        uid=metadata["uid"],
        deleting=deleting,
        created=has_had_real_pod(pod),
        ended=has_ended(pod),
        grace_seconds=grace,
        held=deleting and grace == 0 and bool(metadata.get("finalizers")),
    )


def read_real_pod(pod: Manifest, *, overdue: bool, news: bool, behind: bool = False, seconds_left: int = 0) -> RealPod:
    """Reads a real pod.

    overdue: whether its deletion lasts longer than its grace.
    news: the answer of `mirrored_status`.
    behind: the answer of `is_behind`.
    """
    metadata = pod["metadata"]
    return RealPod(
        uid=metadata["uid"],
        pool_uid=(metadata.get("labels") or {}).get(POOL_UID, ""),
        deleting=bool(metadata.get("deletionTimestamp")),
        ended=has_ended(pod),
        overdue=overdue,
        news=news,
        behind=behind,
        seconds_left=seconds_left,
        grace_seconds=read_grace_seconds((pod.get("spec") or {}).get("terminationGracePeriodSeconds")),
    )


def read_grace_seconds(value: object, absent: int = GRACE_SECONDS) -> int:
    """Reads the grace period of a pod, in seconds. absent: the result if there is no value.

    No working API server sends a value of another type, or a negative one. Such a value counts as 0. Otherwise a pool
    could keep its pods on a node that the owner wants back.
    """
    if value is None:
        return absent
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0


def read_deletion(pod: Manifest, before: PodDeletion | None, now: float) -> PodDeletion:
    """Returns how far the deletion of a real pod is. before: as it was seen last; None when it is seen first."""
    return seen_deletion(read_grace_seconds(pod["metadata"].get("deletionGracePeriodSeconds")), before, now)


def pool_of_real_pod(pod: Manifest) -> str:
    """Returns the pool whose real pod this is; empty: it is the owner's own pod.

    Its namespace must be one of ours: labels alone prove nothing, because anybody can set them.
    """
    metadata = pod["metadata"]
    ours = metadata.get("namespace", "").startswith(POD_NAMESPACE_PREFIX)
    labels: dict[str, str] = metadata.get("labels") or {}
    return labels.get(POOL, "") if ours and labels.get(POOL_UID) else ""


def is_real_pod_of(found: Manifest, pool_pod: Manifest, pool_id: str, node: str) -> bool:
    """Returns whether this is the real pod of this pool pod, on the right node. A pod of another pool never is."""
    uid = (found["metadata"].get("labels") or {}).get(POOL_UID)
    return (pool_of_real_pod(found), uid, found["spec"].get("nodeName")) == (pool_id, pool_pod["metadata"]["uid"], node)


def container_names(pod: Manifest) -> list[str]:
    """Returns the containers that the real pod takes from the pool pod. Ephemeral containers are not carried over.

    An ephemeral container may have the name of a container that the owner added.
    """
    kinds = ("containers", "initContainers")
    return [one["name"] for kind in kinds for one in pod["spec"].get(kind) or ()]


def is_daemon(pod: Manifest) -> bool:
    """Returns whether the pod is a daemon: a pod of a DaemonSet, or the node's own static pod."""
    owners = pod["metadata"].get("ownerReferences") or ()
    return any(owner.get("controller") and owner.get("kind") in DAEMON_KINDS for owner in owners)


def has_ended(pod: Manifest) -> bool:
    return (pod.get("status") or {}).get("phase") in ENDED


def is_occupying_node(pod: Manifest) -> bool:
    """Returns whether this pod keeps the node in use by its owner: no daemon, no real pod of a pool, and not ended."""
    return not (has_ended(pod) or is_daemon(pod) or pool_of_real_pod(pod))
