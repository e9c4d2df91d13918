"""What may be in the pods of a caller: Pod Security, priority classes, service accounts; and what goes along with them.

A caller that is confined to namespaces is confined by no namespace once its pod has its node's root. Members that
enforce Pod Security refuse such pods themselves; here they are refused before anything is decided, on every member.
"""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any, Final

from spillway.api import PlanBatchRequest, RequestError
from spillway.kubernetes.manifest_text import read_object
from spillway.kubernetes.pod_security import ANY, LEVELS, violations
from spillway.reasons import PODS_NOT_ALLOWED
from spillway.rpc.callers import Caller
from spillway.rpc.manifest_fields import manifests_of
from spillway.texts import violation_text

PLACING_VERBS: Final = frozenset({"adopt", "apply", "plan"})
NAMED_MAX: Final = 3
"""Violations in one refusal."""
SYSTEM_PRIORITY: Final = "system-"
"""With which the names of Kubernetes' own priority classes begin: such pods end others to have their place."""


def bounds_pods(caller: Caller, floor: str) -> bool:
    """Whether there is anything that a caller's pods may not be. floor: the level that holds for everybody."""
    return stricter(caller.pods.security, floor) != ANY or caller.pods.is_bounded


def stricter(one: str, other: str) -> str:
    return max(one, other, key=LEVELS.index)


def check_pods(caller: Caller, verb: str, request: Any, floor: str) -> None:
    """Raises PERMISSION_DENIED, with the reason PODS_NOT_ALLOWED, for pods that the caller may not have.

    Reads manifests only where something is bounded; slow for large YAML that nobody has read before (ManifestReading).
    """
    if not bounds_pods(caller, floor):
        return
    if isinstance(request, PlanBatchRequest):
        for item in request.items:
            if item.apply is not None:
                check_pods(caller, "apply", item.apply, floor)
        return
    if verb not in PLACING_VERBS:
        return
    for where, manifest in manifests_of(request):
        for wrong in _wrong_with(caller, read_object(manifest, where), floor):
            text = f"{where}: caller {caller.name!r} may not have this: {wrong}"
            raise RequestError("PERMISSION_DENIED", text, PODS_NOT_ALLOWED)


def _wrong_with(caller: Caller, manifest: dict[str, Any], floor: str) -> Iterator[str]:
    level, spec = stricter(caller.pods.security, floor), _mapping(manifest.get("spec"))
    if manifest["kind"] == "Service" and level != ANY and spec.get("externalIPs"):
        yield f"spec.externalIPs: {spec['externalIPs']!r}: expected none: it takes others' traffic to these addresses"
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
    pod = _mapping(template.get("spec"))
    yield from _wrong_names(caller, pod)


def _wrong_names(caller: Caller, pod: dict[str, Any]) -> Iterator[str]:
    """Of names that give a pod more than others have. serviceAccount is the older name of serviceAccountName."""
    name = pod.get("priorityClassName") or ""
    if name and not _may_have_class(caller, str(name)):
        yield f"spec.template.spec.priorityClassName: {name!r}: expected {_expected_classes(caller)}"
    patterns = caller.pods.service_accounts
    given = {field: str(pod[field]) for field in ("serviceAccountName", "serviceAccount") if pod.get(field)}
    for field, account in (given or {"serviceAccountName": "default"}).items():
        if not any(fnmatchcase(account, pattern) for pattern in patterns):
            expected = ", ".join(sorted(patterns)) or "none"
            yield f"spec.template.spec.{field}: {account!r}: expected one of {expected}"


def _may_have_class(caller: Caller, name: str) -> bool:
    patterns = caller.pods.priority_classes
    if patterns is None:
        return not name.startswith(SYSTEM_PRIORITY)
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _expected_classes(caller: Caller) -> str:
    patterns = caller.pods.priority_classes
    return f"none of {SYSTEM_PRIORITY}*" if patterns is None else f"one of {', '.join(sorted(patterns)) or 'none'}"


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
