"""Joins deletions of pods into one request, where the request can select only pods that have to go.

docs/lending.md, *Many pods with one request*, gives the reason for each of these bounds.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from vk_bridge.core.node.loan import Manifest
from vk_bridge.core.pod.parsing import has_ended
from vk_bridge.core.pod.steps import DeletePool, DeleteReal, LetGo

PoolDeletion = DeletePool | LetGo
Deletion = DeleteReal | PoolDeletion
GENERATED_PREFIX_MAX: Final = 58
"""The number of characters of generateName that an API server uses."""
DRAWN: Final = re.compile(r"[bcdfghjklmnpqrstvwxz2456789]{5}", re.ASCII)
"""The suffix that an API server adds: apimachinery's names.SimpleNameGenerator over the alphabet of rand.String."""


@dataclass(frozen=True, slots=True)
class CollectionBounds:
    """The bounds of one request.

    least: the fewest pods of one request. Fewer pods are deleted one by one.
    most: the most pods of one request.
    """

    least: int
    most: int


@dataclass(frozen=True, slots=True)
class ListedPod:
    """A pod as it was in a list.

    ended: True if it has ended. Such a pod is not deleted.
    recurs: True if another pod may get the same name later.
    """

    namespace: str
    ended: bool = False
    recurs: bool = False


@dataclass(frozen=True, slots=True)
class DeleteCollection:
    """One request that deletes pods of one namespace with one grace. steps: the steps that it carries out."""

    namespace: str
    grace_seconds: int
    steps: tuple[Deletion, ...]


def real_pod_collections(
    steps: Iterable[DeleteReal], namespaces: Mapping[str, str], sizes: CollectionBounds, *, leaving: bool
) -> Iterator[DeleteCollection]:
    """Yields requests for real pods, which are selected by their pool pods' uids.

    Forced deletions stay single requests.

    namespaces: the namespace of each real pod, by its uid.
    leaving: whether the node is recalled.
    """
    groups: dict[tuple[str, int], list[DeleteReal]] = {}
    for step in steps:
        if leaving and step.grace_seconds > 0:
            groups.setdefault((namespaces[step.uid], step.grace_seconds), []).append(step)
    for (namespace, grace_seconds), found in groups.items():
        for start in range(0, len(found), sizes.most):
            part = found[start : start + sizes.most]
            if len(part) >= sizes.least:
                yield DeleteCollection(namespace, grace_seconds, tuple(part))


def pool_pod_collections(
    steps: Iterable[PoolDeletion], listed: Mapping[str, ListedPod], sizes: CollectionBounds, *, leaving: bool
) -> Iterator[DeleteCollection]:
    """Yields requests for pool pods, if the steps cover all listed pods of a namespace that have not ended.

    listed: by uid, all pods in the list of the virtual node.
    """
    groups: dict[str, list[PoolDeletion]] = {}
    for step in steps:
        place = listed.get(step.pool_uid)
        if leaving and place is not None:
            groups.setdefault(place.namespace, []).append(step)
    for namespace, found in groups.items():
        there = {uid: pod for uid, pod in listed.items() if pod.namespace == namespace and not pod.ended}
        graces = {deletion_grace_seconds(step) for step in found}
        alike = len(graces) == 1 and there.keys() == {step.pool_uid for step in found}
        if alike and sizes.least <= len(found) <= sizes.most and not any(pod.recurs for pod in there.values()):
            yield DeleteCollection(namespace, graces.pop(), tuple(found))


def deletion_grace_seconds(step: PoolDeletion) -> int:
    return step.grace_seconds if isinstance(step, DeletePool) else 0


def listed_pod(pod: Manifest) -> ListedPod:
    return ListedPod(pod["metadata"]["namespace"], has_ended(pod), recurs=not _has_generated_name(pod))


def _has_generated_name(pod: Manifest) -> bool:
    """Returns whether an API server drew the pod's name. A StatefulSet gives each pod an ordinal instead.

    A StatefulSet's pods have a generateName, too.
    """
    metadata = pod["metadata"]
    prefix = (metadata.get("generateName") or "")[:GENERATED_PREFIX_MAX]
    owners = metadata.get("ownerReferences") or ()
    if any(owner.get("kind") == "StatefulSet" for owner in owners):
        return False
    return (
        bool(prefix) and metadata["name"].startswith(prefix) and bool(DRAWN.fullmatch(metadata["name"][len(prefix) :]))
    )
