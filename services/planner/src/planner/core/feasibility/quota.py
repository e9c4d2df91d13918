"""Computes how many replicas the quotas of a namespace admit.

Source: ResourceQuota of the Kubernetes API (v1.36) and its evaluator of pods. Of all that a quota can count, replicas
use only pods and the pods' resources. A quota for a resource that the template does not name is ignored: a LimitRange
may set the amount, or the API server refuses the pods.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from planner.core.feasibility.limits import NO_LIMIT, Limit, LimitCode
from spillway.kubernetes.pod_shape import matches_labels
from spillway.model import Quota, Requirement, Shape

UNLIMITED = 2**31
COMPUTE = ("cpu", "memory")


@dataclass(frozen=True, slots=True)
class QuotaAllowance:
    """The number of further replicas that the quotas admit, and the quota that limits them.

    certain: further replicas if all reserved replicas come, too. possible: further replicas if nothing were reserved.
    """

    certain: int = UNLIMITED
    possible: int = UNLIMITED
    limited_by: Limit = NO_LIMIT


def quota_allowance(shape: Shape, quotas: Sequence[Quota], reserved: Iterable[tuple[Shape, int]]) -> QuotaAllowance:
    """Returns how many more replicas the quotas of the shape's namespace admit.

    reserved: (shape, unbound replicas); only replicas in this namespace count. Some of them exist already, and the
    quota counts these as used. Nobody knows how many at the same instant, so they count twice until they are bound.
    """
    found = QuotaAllowance()
    entries = [(other, count) for other, count in reserved if other.namespace == shape.namespace] if quotas else []
    for quota in quotas:
        if not is_in_quota_scope(shape, quota):
            continue
        used, others = dict(quota.used), [entry for entry in entries if is_in_quota_scope(entry[0], quota)]
        for name, hard in quota.hard:
            each = usage_of_replica(shape, name)
            if not each:
                continue
            left = hard - used.get(name, 0)
            certain = max(0, left - sum(count * usage_of_replica(other, name) for other, count in others)) // each
            if certain < found.certain:
                limit = Limit(LimitCode.QUOTA, max(0, left), (quota.name, shape.namespace, name))
                found = QuotaAllowance(certain, min(found.possible, max(0, left) // each), limit)
            found = QuotaAllowance(found.certain, min(found.possible, max(0, left) // each), found.limited_by)
    return found


def usage_of_replica(shape: Shape, name: str) -> int:
    """Returns what one replica uses of a quota's resource: pods, cpu, requests.cpu, limits.memory, requests.gpus, …"""
    if name in ("pods", "count/pods"):
        return 1
    if name.startswith("limits."):
        return _amount_of_resource(shape.traits.limits, name.removeprefix("limits."))
    return _amount_of_resource(shape.requests, name.removeprefix("requests."))


def is_in_quota_scope(shape: Shape, quota: Quota) -> bool:
    return all(_is_in_scope(shape, scope) for scope in quota.scopes)


def _is_in_scope(shape: Shape, scope: Requirement) -> bool:
    traits = shape.traits
    match scope.key:
        case "Terminating":
            return traits.terminating
        case "NotTerminating":
            return not traits.terminating
        case "BestEffort":
            return traits.best_effort or not _has_compute_amounts(shape)
        case "NotBestEffort":
            return _has_compute_amounts(shape) and not traits.best_effort
        case "PriorityClass":
            named: Mapping[str, str] = {"PriorityClass": traits.priority_class} if traits.priority_class else {}
            return matches_labels((scope,), named)
        case "CrossNamespacePodAffinity":
            terms = (*shape.apart, *shape.near)
            return traits.names_namespaces or any(
                term.namespaces or term.namespace_selector is not None for term in terms
            )
    return True


def _has_compute_amounts(shape: Shape) -> bool:
    return any(
        _amount_of_resource(amounts, name) for amounts in (shape.requests, shape.traits.limits) for name in COMPUTE
    )


def _amount_of_resource(amounts: Sequence[tuple[str, int]], name: str) -> int:
    return next((amount for known, amount in amounts if known == name), 0)


def resource_of_quota_name(name: str) -> str:
    return name.removeprefix("limits.").removeprefix("requests.")
