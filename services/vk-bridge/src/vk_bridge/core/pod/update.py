"""Carries changes of a pool pod to its real pod: images, deadline, labels and annotations.

The real pod keeps in an annotation the values that it was last given. Only values that the pool has changed since then
are written. So additions of the owner's admission do not count as changes, and are not overwritten.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from spillway.lending_marks import GIVEN, digest_of_parts
from vk_bridge.core.node.loan import Manifest
from vk_bridge.core.pod.propagated_metadata import carried_annotations, carried_labels

KINDS: Final = ("containers", "initContainers")


@dataclass(frozen=True, slots=True)
class MutableFields:
    """The fields of a pod that Kubernetes allows users to change.

    images: by container name.
    labels, annotations: digests of the ones that are carried over.
    sizes: the digest of what the pod and its containers ask for; empty if an older version created the real pod. Sizes
        are never carried over: a real pod keeps the sizes with which it was created.
    """

    images: dict[str, str]
    deadline_seconds: int | None
    labels: str
    annotations: str
    sizes: str = ""


def mutable_fields(pool_pod: Manifest, prefixes: Sequence[str]) -> MutableFields:
    """Returns these fields of a pool pod. prefixes: the prefixes of labels and annotations that are carried over."""
    spec = pool_pod["spec"]
    images = {one["name"]: one.get("image", "") for kind in KINDS for one in spec.get(kind) or ()}
    labels, annotations = carried_labels(pool_pod, prefixes), carried_annotations(pool_pod, prefixes)
    return MutableFields(
        images,
        spec.get("activeDeadlineSeconds"),
        _digest_of_values(labels),
        _digest_of_values(annotations),
        _sizes_digest(spec),
    )


def mutable_fields_text(pool_pod: Manifest, prefixes: Sequence[str]) -> str:
    return _encode_fields(mutable_fields(pool_pod, prefixes))


def is_behind(real_pod: Manifest, pool_pod: Manifest, prefixes: Sequence[str]) -> bool:
    """Returns whether the pool pod differs from the values that the real pod was last given.

    A real pod without the annotation is left alone.
    """
    told = _read_given_fields(real_pod)
    return told is not None and told != replace(mutable_fields(pool_pod, prefixes), sizes=told.sizes)


def is_resized(real_pod: Manifest, pool_pod: Manifest) -> bool:
    """Returns whether the requests of the pool pod were changed in place after its real pod was created."""
    told = _read_given_fields(real_pod)
    return told is not None and told.sizes not in ("", _sizes_digest(pool_pod["spec"]))


def update_patch(real_pod: Manifest, pool_pod: Manifest, prefixes: Sequence[str]) -> dict[str, Any]:
    """Returns the merge patch for a real pod that is behind. Labels and annotations removed in the pool stay on it."""
    told, now = _read_given_fields(real_pod), mutable_fields(pool_pod, prefixes)
    assert told is not None
    metadata: dict[str, Any] = {"annotations": {GIVEN: _encode_fields(replace(now, sizes=told.sizes))}}
    if told.labels != now.labels:
        metadata["labels"] = carried_labels(pool_pod, prefixes)
    if told.annotations != now.annotations:
        metadata["annotations"] |= carried_annotations(pool_pod, prefixes)
    spec: dict[str, Any] = {}
    if told.deadline_seconds != now.deadline_seconds:
        spec["activeDeadlineSeconds"] = now.deadline_seconds
    changed = {name: image for name, image in now.images.items() if told.images.get(name, image) != image}
    for kind in KINDS:
        found = real_pod["spec"].get(kind) or ()
        if any(one["name"] in changed for one in found):
            spec[kind] = [{**one, "image": changed.get(one["name"], one.get("image", ""))} for one in found]
    return {"metadata": metadata, **({"spec": spec} if spec else {})}


def _encode_fields(one: MutableFields) -> str:
    return msgspec.json.encode(one).decode()


def _sizes_digest(spec: Manifest) -> str:
    containers = {f"{kind}/{one['name']}": one.get("resources") for kind in KINDS for one in spec.get(kind) or ()}
    asked = {**containers, "": spec.get("resources")}
    return digest_of_parts(
        *(msgspec.json.encode(asked[name] or {}, order="deterministic").decode() for name in sorted(asked))
    )


def _read_given_fields(real_pod: Manifest) -> MutableFields | None:
    """Returns the real pod's last given values; None if unreadable, as anybody in the owner may write there."""
    try:
        return msgspec.json.decode((real_pod["metadata"].get("annotations") or {}).get(GIVEN, ""), type=MutableFields)
    except msgspec.DecodeError:
        return None


def _digest_of_values(values: Mapping[str, str]) -> str:
    return digest_of_parts(*(text for pair in sorted(values.items()) for text in pair))
