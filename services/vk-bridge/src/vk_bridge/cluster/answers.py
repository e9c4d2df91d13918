"""The answers of the two clusters about one node: to a reading, and to writes."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from vk_bridge.core.node.loan import Manifest
from vk_bridge.core.pod.delete_collections import ListedPod


@dataclass(frozen=True, slots=True)
class NodeAnswers:
    """The answers of the two clusters about one node.

    node, virtual: the real node and its virtual node; None: it does not exist, or could not be read.
    pool_pods, own_pods: the pods on the virtual node, and all pods on the real node, by uid.
    owner_read, pool_read: True if that cluster could be read.
    pool_listed: the pool pods of one list, at the version pool_version.
    """

    node: Manifest | None
    virtual: Manifest | None
    pool_pods: Mapping[str, Manifest]
    own_pods: Mapping[str, Manifest]
    owner_read: bool
    pool_read: bool
    pool_listed: Mapping[str, ListedPod] = field(default_factory=dict)
    pool_version: str = ""

    def version_by_uid(self) -> dict[str, str]:
        """Returns the resourceVersion of each object, by uid."""
        both = (one for one in (self.node, self.virtual) if one is not None)
        objects = (*both, *self.pool_pods.values(), *self.own_pods.values())
        return {one["metadata"]["uid"]: one["metadata"]["resourceVersion"] for one in objects}


@dataclass(slots=True)
class WriteAnswers:
    """The clusters' answers to writes: the objects as they are now, pods by uid.

    gone: uids of pool pods that were deleted without grace (LetGo), and of a deleted virtual node.
    between: (uid, version) of objects that were written again right after.
    incomplete: True if an object was written and its present state is unknown.
    pods_unknown: the same for pods only.
    put_off: True if the rest of the work waits until no recalled node is waiting.
    """

    node: Manifest | None = None
    virtual: Manifest | None = None
    pool_pods: dict[str, Manifest] = field(default_factory=dict)
    real_pods: dict[str, Manifest] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    between: set[tuple[str, str]] = field(default_factory=set)
    incomplete: bool = False
    pods_unknown: bool = False
    put_off: bool = False

    def note_pod_deletion(self, pods: dict[str, Manifest], uid: str, answer: Manifest) -> None:
        """Stores the answer to a pod's deletion. If the pod is not terminating, its state is unknown."""
        metadata = answer.get("metadata") or {}
        if metadata.get("uid") == uid and metadata.get("deletionTimestamp"):
            pods[uid] = answer
        else:
            self.incomplete = True

    def note_object_removal(self, uid: str, answer: Manifest) -> None:
        """Stores the deletion of a virtual node, or of a pool pod with grace 0: gone unless a finalizer keeps it.

        An API server answers with the deleted object or with a Status.
        """
        metadata = answer.get("metadata") or {}
        told = answer.get("kind") == "Status" or metadata.get("uid") == uid
        if not answer or (told and not metadata.get("finalizers")):
            self.gone.add(uid)
        else:
            self.incomplete = True
