"""Which deletions of pods are one request: where a collection can hit nothing but what is to go.

docs/lending.md, *Many pods with one request*, says why each of these bounds is there.
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
"""As many characters of generateName an API server takes."""
DRAWN: Final = re.compile(r"[bcdfghjklmnpqrstvwxz2456789]{5}", re.ASCII)
"""What an API server adds: apimachinery's names.SimpleNameGenerator, over the alphabet of its rand.String."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """least: fewer pods are deleted one by one. most: in one request."""

    least: int
    most: int


@dataclass(frozen=True, slots=True)
class Listed:
    """A pod as a list had it. ended: it is left alone. recurs: another pod may bear its name one day."""

    namespace: str
    ended: bool = False
    recurs: bool = False


@dataclass(frozen=True, slots=True)
class DeleteCollection:
    """One request, of pods of one namespace, with one grace; what it does of these steps."""

    namespace: str
    grace_seconds: int
    steps: tuple[Deletion, ...]


def of_owner(
    steps: Iterable[DeleteReal], namespaces: Mapping[str, str], sizes: Sizes, *, leaving: bool
) -> Iterator[DeleteCollection]:
    """Of real pods, which are named by their pool pods' uids. namespaces: by uid. leaving: the node is recalled.

    By force each is deleted by its own uid.
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


def of_pool(
    steps: Iterable[PoolDeletion], listed: Mapping[str, Listed], sizes: Sizes, *, leaving: bool
) -> Iterator[DeleteCollection]:
    """Of pool pods, where they are all that the list has of a namespace, but for those that have ended.

    listed: by uid, all that the list had of the virtual node.
    """
    groups: dict[str, list[PoolDeletion]] = {}
    for step in steps:
        place = listed.get(step.pool_uid)
        if leaving and place is not None:
            groups.setdefault(place.namespace, []).append(step)
    for namespace, found in groups.items():
        there = {uid: pod for uid, pod in listed.items() if pod.namespace == namespace and not pod.ended}
        graces = {grace_of(step) for step in found}
        alike = len(graces) == 1 and there.keys() == {step.pool_uid for step in found}
        if alike and sizes.least <= len(found) <= sizes.most and not any(pod.recurs for pod in there.values()):
            yield DeleteCollection(namespace, graces.pop(), tuple(found))


def grace_of(step: PoolDeletion) -> int:
    return step.grace_seconds if isinstance(step, DeletePool) else 0


def listed_pod(pod: Manifest) -> Listed:
    return Listed(pod["metadata"]["namespace"], has_ended(pod), recurs=not _is_drawn(pod))


def _is_drawn(pod: Manifest) -> bool:
    """Whether an API server drew its name. A StatefulSet says generateName, too, and gives each pod an ordinal."""
    metadata = pod["metadata"]
    prefix = (metadata.get("generateName") or "")[:GENERATED_PREFIX_MAX]
    owners = metadata.get("ownerReferences") or ()
    if any(owner.get("kind") == "StatefulSet" for owner in owners):
        return False
    return (
        bool(prefix) and metadata["name"].startswith(prefix) and bool(DRAWN.fullmatch(metadata["name"][len(prefix) :]))
    )
