"""Reads a manifest's pod template and rollout strategy, and finds the templates that a workload's parts have."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from planner.core.manifests.kinds import KINDS, completions_of, template_content
from spillway.api import RequestError, invalid_argument_error
from spillway.events import WorkloadDeclared
from spillway.kubernetes import objects
from spillway.kubernetes.pod_shape import convert_manifest_part, shape_of, shape_without_notes
from spillway.model import Part, Shape

READ_KEPT_MAX = 512
KEPT_CHARACTERS_MAX = 16_384
"""The results of reading the last READ_KEPT_MAX requests and manifests are kept. Texts with more than
KEPT_CHARACTERS_MAX characters, YAML aliases expanded, are not kept. A request is read several times: to find new
templates in a batch, to ask clusters, and to decide."""


def pods_of_surge(surge: int | str, replicas: int) -> int:
    """Returns maxSurge in pods: a percentage is rounded up, as the Deployment controller does.

    It is at most the replicas: the controller makes that many new pods and no more, however large maxSurge is.
    """
    wanted = surge if isinstance(surge, int) else -(-replicas * int(surge.rstrip("%")) // 100)
    return min(wanted, replicas)


def _pods_of_unavailable(unavailable: int | str, replicas: int) -> int:
    """Returns maxUnavailable in pods: a percentage is rounded down, as the Deployment controller does."""
    if isinstance(unavailable, int):
        return unavailable
    return replicas * int(unavailable.rstrip("%")) // 100


@dataclass(frozen=True, slots=True)
class RolloutTemplate:
    """A pod template and how it rolls.

    shape: the shape of its pods, without notes.
    unmodelled: the notes: names of requirements that the planner ignores.
    surge, unavailable: a number of pods, or a percentage of the replicas.
    completions: of a Job, how many pods must succeed; None when they share a work queue.
    """

    shape: Shape
    unmodelled: tuple[str, ...]
    surge: int | str
    unavailable: int | str
    labels: Mapping[str, str]
    completions: int | None = None

    def surge_of(self, replicas: int) -> int:
        """Returns how many pods may exist above the replicas during a rollout."""
        return pods_of_surge(self.surge, replicas)

    def may_go_without_surge(self, replicas: int) -> bool:
        """Returns whether the controller may remove old pods before it has room for new ones.

        It may if maxUnavailable is above 0 pods, or if both limits are 0: it always makes progress.
        """
        return _pods_of_unavailable(self.unavailable, replicas) > 0 or self.surge_of(replicas) == 0


class BadDeclaration(Exception):
    """A declaration in the log that no Apply of this version could have made."""


def read_template(manifest: bytes, namespace: str) -> RolloutTemplate:
    """Reads a manifest that was checked when it was applied. Raises BadDeclaration when it is unreadable."""
    try:
        return read_request_template(manifest, namespace)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, RequestError) as error:
        raise BadDeclaration(f"manifest: {error!r}") from error


def read_request_template(manifest: bytes, namespace: str) -> RolloutTemplate:
    """Reads the template in a request's manifest. Raises RequestError that names the wrong field."""
    return (_read_kept if len(manifest) <= KEPT_CHARACTERS_MAX else _read_rollout_template)(manifest, namespace)


def _read_rollout_template(manifest: bytes, namespace: str) -> RolloutTemplate:
    parsed = json.loads(manifest)
    pod = parsed["spec"]["template"]
    shape = shape_of(pod, namespace, f"{parsed['kind']}.spec.template")
    return RolloutTemplate(
        shape=shape_without_notes(shape),
        unmodelled=shape.unmodelled,
        surge=_read_max_surge(parsed),
        unavailable=_read_max_unavailable(parsed),
        labels=(pod.get("metadata") or {}).get("labels") or {},
        completions=completions_of(parsed),
    )


_read_kept = lru_cache(maxsize=READ_KEPT_MAX)(_read_rollout_template)


def _read_max_surge(manifest: Mapping[str, Any]) -> int | str:
    """Returns maxSurge of a manifest; 0 with strategy Recreate, and for kinds without it."""
    if KINDS[manifest["kind"]].whole:
        return 0
    strategy = _read_deployment_strategy(manifest)
    if strategy.type == "Recreate":
        return 0
    surge: int | str = strategy.rolling_update.max_surge if strategy.rolling_update else "25%"
    return _pods_or_percentage(surge, "maxSurge")


def _read_max_unavailable(manifest: Mapping[str, Any]) -> int | str:
    """Returns maxUnavailable of a manifest; 100% with Recreate, and for kinds that delete old pods before new ones."""
    if KINDS[manifest["kind"]].whole:
        return "100%"
    strategy = _read_deployment_strategy(manifest)
    if strategy.type == "Recreate":
        return "100%"
    unavailable: int | str = strategy.rolling_update.max_unavailable if strategy.rolling_update else "25%"
    return _pods_or_percentage(unavailable, "maxUnavailable")


def _read_deployment_strategy(manifest: Mapping[str, Any]) -> objects.DeploymentStrategy:
    strategy: objects.DeploymentStrategy = convert_manifest_part(
        (manifest.get("spec") or {}).get("strategy") or {}, objects.DeploymentStrategy, "Deployment.spec.strategy"
    )
    if strategy.type not in ("RollingUpdate", "Recreate"):
        raise invalid_argument_error("Deployment.spec.strategy.type", strategy.type, "RollingUpdate or Recreate")
    return strategy


def _pods_or_percentage(value: int | str, field: str) -> int | str:
    valid = bool(re.fullmatch(r"[0-9]{1,4}%", value)) if isinstance(value, str) else value >= 0
    if not valid:
        raise invalid_argument_error(
            f"Deployment.spec.strategy.rollingUpdate.{field}", value, "0 or more pods, or a percentage"
        )
    return value


def read_earlier_templates(declared: WorkloadDeclared) -> dict[int, RolloutTemplate]:
    """Returns the earlier templates that parts still have, by template generation."""
    return {
        entry.template_generation: read_template(entry.manifest, declared.namespace)
        for entry in declared.earlier_templates
    }


def template_number(part: Part, declared: WorkloadDeclared) -> int:
    """Returns the template generation that a part has. Old records have 0, which means the newest."""
    return part.template_generation or declared.template_generation


def is_newest(part: Part, declared: WorkloadDeclared) -> bool:
    return template_number(part, declared) == declared.template_generation


def manifests_by_generation(declared: WorkloadDeclared, numbers: Iterable[int]) -> dict[int, bytes]:
    """Returns the manifests of these template generations, as far as a declaration has them."""
    known = {entry.template_generation: entry.manifest for entry in declared.earlier_templates}
    known[declared.template_generation] = declared.manifest
    return {number: known[number] for number in sorted(set(numbers)) if number in known}


def generations_equal_to_newest(before: WorkloadDeclared, declared: WorkloadDeclared) -> frozenset[int]:
    """Returns the earlier template generations whose template equals the newest one of `declared`."""
    earlier = {entry.template_generation for entry in before.earlier_templates} | {before.template_generation}
    rolls = template_content(json.loads(declared.manifest))
    return frozenset(
        number
        for number, manifest in manifests_by_generation(before, earlier - {declared.template_generation}).items()
        if template_content(json.loads(manifest)) == rolls
    )


def is_same_object(one: bytes, other: bytes) -> bool:
    """Returns whether two manifests make the same object in a cluster, apart from the replicas of the placement."""
    return one == other or _without_replicas(one) == _without_replicas(other)


def _without_replicas(manifest: bytes) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(manifest)
    parsed["spec"].pop("replicas", None)
    return parsed


def widest_shape(shape: Shape, others: Sequence[Shape]) -> Shape:
    """Returns `shape` with the largest request of all shapes for each resource. The result belongs to no template."""
    amounts: dict[str, int] = dict(shape.requests)
    for other in others:
        for name, amount in other.requests:
            amounts[name] = max(amounts.get(name, 0), amount)
    return replace(shape, requests=tuple(sorted(amounts.items())), unmodelled=(), template="")
