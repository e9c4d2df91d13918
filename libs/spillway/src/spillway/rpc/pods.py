"""Limits on the pods of a caller: Pod Security, priority classes, service accounts; and on objects placed with them.

A pod with root on its node escapes the limits of its namespace. Clusters that enforce Pod Security refuse such pods
themselves. Here they are refused for every cluster, before anything is decided.
"""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any, Final

from spillway.api import PlanBatchRequest, RequestError
from spillway.kubernetes.manifest_text import read_object
from spillway.kubernetes.pod_security import ANY, LEVELS, violations
from spillway.reasons import PODS_NOT_ALLOWED
from spillway.rpc.callers import EVERYTHING, Caller
from spillway.rpc.manifest_fields import manifests_of
from spillway.texts import first_names_text, violation_text

PLACING_VERBS: Final = frozenset({"adopt", "apply", "plan"})
SUPPOSING_VERBS: Final = frozenset({"capacity", "explain"})
"""Verbs whose manifests are never placed. Their answers can still reveal pods of other namespaces."""
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
NAMED_MAX: Final = 3
"""The most violations that the text of one refusal lists."""
UNSHARED_TYPES: Final = ("ClusterIP", "ExternalName")
"""Service types that use neither a port of every node nor a load balancer. A cluster has few such ports and load
balancers."""
SYSTEM_PRIORITY: Final = "system-"
"""The prefix of the names of Kubernetes' own priority classes. Pods of these classes evict others to get their
place."""


def has_pod_limits(caller: Caller, floor: str) -> bool:
    """Returns whether a caller's pods have any limit. floor: the level that the pods of every caller must meet."""
    return stricter_level(caller.pods.security, floor) != ANY or caller.pods.is_bounded


def stricter_level(one: str, other: str) -> str:
    return max(one, other, key=LEVELS.index)


def check_pods(caller: Caller, verb: str, request: Any, floor: str) -> None:
    """Raises PERMISSION_DENIED, with the reason PODS_NOT_ALLOWED, for pods that the caller may not have.

    It reads manifests only if there is a limit. It is slow for large YAML that was not read before (ManifestReading).
    """
    if not has_pod_limits(caller, floor):
        return
    if isinstance(request, PlanBatchRequest):
        for item in request.items:
            if item.apply is not None:
                check_pods(caller, "apply", item.apply, floor)
        return
    if verb not in PLACING_VERBS | SUPPOSING_VERBS:
        return
    wrong_with = _manifest_violations if verb in PLACING_VERBS else _affinity_violations
    for where, manifest in manifests_of(request):
        for wrong in wrong_with(caller, read_object(manifest, where), floor):
            text = f"{where}: caller {caller.name!r} may not have this: {wrong}"
            raise RequestError("PERMISSION_DENIED", text, PODS_NOT_ALLOWED)


def _manifest_violations(caller: Caller, manifest: dict[str, Any], floor: str) -> Iterator[str]:
    level, spec = stricter_level(caller.pods.security, floor), _mapping_or_empty(manifest.get("spec"))
    if manifest["kind"] == "Service":
        yield from _service_violations(caller, spec, level)
    if manifest["kind"] == "PlacementPolicy":
        priority, most = spec.get("priority"), caller.pods.priority_max
        if most is not None and isinstance(priority, int) and priority > most:
            yield f"spec.priority: {priority}: expected at most {most}"
    template = spec.get("template")
    if not isinstance(template, dict):
        return
    if found := list(violations(template, level)):
        named = "; ".join(violation_text(one, "spec.template.") for one in found[:NAMED_MAX])
        more = len(found) - NAMED_MAX
        yield f"Pod Security {level}: {named}{f'; and {more} more' if more > 0 else ''}"
    yield from _affinity_violations(caller, manifest, floor)
    yield from _pod_name_violations(caller, _mapping_or_empty(template.get("spec")))


def _service_violations(caller: Caller, spec: dict[str, Any], level: str) -> Iterator[str]:
    """Yields the fields of a Service that take something from other namespaces: traffic, or ports and addresses.

    A fixed port would be taken in each cluster where the workload is placed.
    """
    if level != ANY and spec.get("externalIPs"):
        yield f"spec.externalIPs: {spec['externalIPs']!r}: expected none: it takes others' traffic to these addresses"
    types = _allowed_service_types(caller, level)
    wanted = spec.get("type") or "ClusterIP"
    if types is not None and wanted not in types:
        expected = f"one of {', '.join(types)}" if types else "no Service"
        yield f"spec.type: {wanted!r:.100}: expected {expected} (service_types of the callers file)"
    if not caller.is_restricted or level == ANY:
        return
    ports = spec["ports"] if isinstance(spec.get("ports"), list) else []
    named = {f"ports[{number}].nodePort": _mapping_or_empty(port) for number, port in enumerate(ports)}
    given = {field: port["nodePort"] for field, port in named.items() if port.get("nodePort")}
    given |= {field: spec[field] for field in ("healthCheckNodePort", "loadBalancerIP") if spec.get(field)}
    for field, value in given.items():
        yield f"spec.{field}: {value!r:.100}: expected none: each cluster chooses one that is free"


def _allowed_service_types(caller: Caller, level: str) -> tuple[str, ...] | None:
    """Returns the types that a caller's Services may have; None for any."""
    types = caller.pods.service_types
    if types is None:
        return UNSHARED_TYPES if level != ANY else None
    return None if EVERYTHING in types else tuple(sorted(types))


def _affinity_violations(caller: Caller, manifest: dict[str, Any], floor: str) -> Iterator[str]:
    """Yields the required terms of pod affinity that select pods in namespaces of others.

    Required anti-affinity holds both ways: one small pod keeps the pods that it selects out of its whole topology
    domain. Required affinity asks where pods of others run. Kubernetes has the quota scope CrossNamespacePodAffinity
    for both.
    """
    if not caller.is_restricted or stricter_level(caller.pods.security, floor) == ANY:
        return
    pod = _mapping_or_empty(_mapping_or_empty(_mapping_or_empty(manifest.get("spec")).get("template")).get("spec"))
    affinity = _mapping_or_empty(pod.get("affinity"))
    for kind in ("podAffinity", "podAntiAffinity"):
        terms = _mapping_or_empty(affinity.get(kind)).get(REQUIRED)
        for number, term in enumerate(terms if isinstance(terms, list) else ()):
            where = f"spec.template.spec.affinity.{kind}.{REQUIRED}[{number}]"
            yield from _affinity_term_violations(caller, _mapping_or_empty(term), where)


def _affinity_term_violations(caller: Caller, term: dict[str, Any], where: str) -> Iterator[str]:
    if (selector := term.get("namespaceSelector")) is not None:
        yield f"{where}.namespaceSelector: {selector!r:.100}: expected none: it selects pods in namespaces of others"
    names = term.get("namespaces")
    for name in names if isinstance(names, list) else ():
        if not caller.may_see_namespace(str(name)):
            yield f"{where}.namespaces: {name!r:.100}: expected {first_names_text(caller.namespaces)}"


def _pod_name_violations(caller: Caller, pod: dict[str, Any]) -> Iterator[str]:
    """Yields names that give a pod rights it may not have. serviceAccount is an older name of serviceAccountName."""
    name = pod.get("priorityClassName") or ""
    if name and not _may_have_priority_class(caller, str(name)):
        yield f"spec.template.spec.priorityClassName: {name!r}: expected {_expected_priority_classes(caller)}"
    patterns = caller.pods.service_accounts
    given = {field: str(pod[field]) for field in ("serviceAccountName", "serviceAccount") if pod.get(field)}
    for field, account in (given or {"serviceAccountName": "default"}).items():
        if not any(fnmatchcase(account, pattern) for pattern in patterns):
            expected = ", ".join(sorted(patterns)) or "none"
            yield f"spec.template.spec.{field}: {account!r}: expected one of {expected}"


def _may_have_priority_class(caller: Caller, name: str) -> bool:
    patterns = caller.pods.priority_classes
    if patterns is None:
        return not name.startswith(SYSTEM_PRIORITY)
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _expected_priority_classes(caller: Caller) -> str:
    patterns = caller.pods.priority_classes
    return f"none of {SYSTEM_PRIORITY}*" if patterns is None else f"one of {', '.join(sorted(patterns)) or 'none'}"


def _mapping_or_empty(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
