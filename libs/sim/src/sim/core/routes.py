"""Finds the resource that a URL path names."""

from dataclasses import dataclass
from urllib.parse import unquote

from sim.core.errors import no_such_resource
from sim.core.kinds import KIND_BY_ROUTE, Kind


@dataclass(frozen=True, slots=True)
class Route:
    kind: Kind
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def parse_route(path: str) -> Route:
    """Returns the route of a path. Raises ApiError 404 for a resource that is not served."""
    parts = [unquote(part) for part in path.strip("/").split("/")]
    group, version, rest = _split_group(parts)
    namespace = ""
    if len(rest) > 2 and rest[0] == "namespaces" and (group, version, rest[2]) in KIND_BY_ROUTE:
        namespace, rest = rest[1], rest[2:]
    kind = KIND_BY_ROUTE.get((group, version, rest[0]))
    if kind is None or len(rest) > 3 or (namespace and not kind.namespaced) or (len(rest) > 1 and not rest[1]):
        raise no_such_resource()
    if kind.namespaced and not namespace and len(rest) > 1:
        raise no_such_resource()
    return Route(kind, namespace, rest[1] if len(rest) > 1 else "", rest[2] if len(rest) > 2 else "")


def _split_group(parts: list[str]) -> tuple[str, str, list[str]]:
    if parts[0] == "api" and len(parts) > 2:
        return "", parts[1], parts[2:]
    if parts[0] == "apis" and len(parts) > 3:
        return parts[1], parts[2], parts[3:]
    raise no_such_resource()
