"""What a manifest says of its pods and of how they roll, and the templates that a workload's parts bear."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from planner.core.manifests.kinds import completions_of, rolls_with
from planner.core.manifests.request import (
    KEPT_CHARACTERS_MAX,
    READ_KEPT_MAX,
    declared_surge,
    declared_unavailable,
    unavailable_of,
)
from planner.core.manifests.request import surge_of as pods_of_surge
from spillway.api import RequestError
from spillway.events import WorkloadDeclared
from spillway.model import Part, Shape
from spillway.pod_shape import bare, shape_of


@dataclass(frozen=True, slots=True)
class Template:
    """shape: without its notes, which are unmodelled. surge, unavailable: pods, or a percentage of the replicas.

    completions: of a Job, how many pods must succeed, None when they share a queue of work.
    """

    shape: Shape
    unmodelled: tuple[str, ...]
    surge: int | str
    unavailable: int | str
    labels: Mapping[str, str]
    completions: int | None = None

    def surge_of(self, replicas: int) -> int:
        """Pods above the replicas while it rolls."""
        return pods_of_surge(self.surge, replicas)

    def may_go_without_surge(self, replicas: int) -> bool:
        """Whether the controller may take old pods away before it has room for new ones; it never stands still."""
        return unavailable_of(self.unavailable, replicas) > 0 or self.surge_of(replicas) == 0


class BadDeclaration(Exception):
    """A declaration in the log that no Apply of this version could have made."""


def read_template(manifest: bytes, namespace: str) -> Template:
    """From a manifest that was checked when it was applied. BadDeclaration when it cannot be read."""
    return (_read_kept if len(manifest) <= KEPT_CHARACTERS_MAX else _read)(manifest, namespace)


def _read(manifest: bytes, namespace: str) -> Template:
    try:
        parsed = json.loads(manifest)
        pod = parsed["spec"]["template"]
        shape = shape_of(pod, namespace, f"{parsed['kind']}.spec.template")
        labels = (pod.get("metadata") or {}).get("labels") or {}
        return Template(
            shape=bare(shape),
            unmodelled=shape.unmodelled,
            surge=declared_surge(parsed),
            unavailable=declared_unavailable(parsed),
            labels=labels,
            completions=completions_of(parsed),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RequestError) as error:
        raise BadDeclaration(f"manifest: {error!r}") from error


_read_kept = lru_cache(maxsize=READ_KEPT_MAX)(_read)


def read_earlier(declared: WorkloadDeclared) -> dict[int, Template]:
    """The templates that clusters still hold whose turn has not come, by generation."""
    return {
        entry.template_generation: read_template(entry.manifest, declared.namespace)
        for entry in declared.earlier_templates
    }


def template_number(part: Part, declared: WorkloadDeclared) -> int:
    """The template generation that a part bears. Parts say it by number; 0, which old records have, is the newest."""
    return part.template_generation or declared.template_generation


def is_newest(part: Part, declared: WorkloadDeclared) -> bool:
    return template_number(part, declared) == declared.template_generation


def manifests_borne(declared: WorkloadDeclared, numbers: Iterable[int]) -> dict[int, bytes]:
    """The manifests of these template generations, as far as a declaration has them."""
    known = {entry.template_generation: entry.manifest for entry in declared.earlier_templates}
    known[declared.template_generation] = declared.manifest
    return {number: known[number] for number in sorted(set(numbers)) if number in known}


def copies_of_newest(before: WorkloadDeclared, declared: WorkloadDeclared) -> frozenset[int]:
    """Template generations of a declaration of which that of a newer one, or its own newest, is a copy."""
    earlier = {entry.template_generation for entry in before.earlier_templates} | {before.template_generation}
    rolls = rolls_with(json.loads(declared.manifest))
    return frozenset(
        number
        for number, manifest in manifests_borne(before, earlier - {declared.template_generation}).items()
        if rolls_with(json.loads(manifest)) == rolls
    )


def same_object(one: bytes, other: bytes) -> bool:
    """Whether two manifests make the same object in a cluster; its replicas are the placement's."""
    return one == other or _without_replicas(one) == _without_replicas(other)


def _without_replicas(manifest: bytes) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(manifest)
    parsed["spec"].pop("replicas", None)
    return parsed


def wider(shape: Shape, others: Sequence[Shape]) -> Shape:
    """A shape with the largest request of all in every resource, and otherwise its own demands; of no template."""
    amounts: dict[str, int] = dict(shape.requests)
    for other in others:
        for name, amount in other.requests:
            amounts[name] = max(amounts.get(name, 0), amount)
    return replace(shape, requests=tuple(sorted(amounts.items())), unmodelled=(), template="")
