"""The rights that a request needs, and the refusal for an account without one, in the words of Kubernetes' RBAC."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Final

from sim.core.errors import ApiError
from sim.core.kinds import Kind
from sim.core.listing import encode
from sim.core.requests import Answer, Api, Request, is_apply_request
from sim.core.routes import Route, parse_route
from sim.core.usage import NODE_METRICS, POD_METRICS, ROOT
from spillway.clusters.rights import Right, has_right

ON_ONE: Final = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "POST": "create"}
ON_MANY: Final = {"GET": "list", "DELETE": "deletecollection", "POST": "create"}


@dataclass(slots=True)
class Account:
    """The account of a request. may: its rights; None: everything.

    asked: the rights that its requests have needed so far.
    """

    name: str = "sim"
    may: frozenset[Right] | None = None
    asked: set[Right] = field(default_factory=set)

    def refusal_answer(self, api: Api, request: Request) -> Answer | None:
        """Returns the refusal of a request; None when it is allowed. A resource that is not served needs no right."""
        if self.may is None:
            return None
        try:
            needed = [*_needed_rights(api, request)]
        except ApiError:
            return None
        for right, kind, name in needed:
            self.asked.add(right)
            if not has_right(self.may, right):
                return forbidden_answer(self.name, right, kind, name)
        return None


def forbidden_by_rights(request: Request, what: Collection[str]) -> Answer | None:
    """Returns the refusal of a request that no account may make; else None. what: such requests, as `POST pods`."""
    if not what:
        return None
    route = _route_of_path(request.path)
    named = route.kind.qualified_name if route.kind in (NODE_METRICS, POD_METRICS) else route.kind.plural
    if f"{request.method} {named}" not in what:
        return None
    return forbidden_answer("sim", _right_of_request(request, route), route.kind, route.name)


def forbidden_answer(user: str, right: Right, kind: Kind, name: str) -> Answer:
    thing = f'{kind.qualified_name} "{name}"' if name else kind.qualified_name
    place = f'in the namespace "{right.namespace}"' if right.namespace else "at the cluster scope"
    words = f'cannot {right.verb} resource "{right.resource}" in API group "{right.group}" {place}'
    why = f'{thing} is forbidden: User "{user}" {words}'
    return 403, encode(ApiError(403, "Forbidden", why, {"name": name, "kind": kind.plural}).status())


def _needed_rights(api: Api, request: Request) -> Iterator[tuple[Right, Kind, str]]:
    """Yields the rights of a request. An apply of an object that does not exist needs the right to create it, too."""
    route = _route_of_path(request.path)
    right = _right_of_request(request, route)
    yield right, route.kind, route.name
    if is_apply_request(request) and not api.has_object(route):
        yield Right("create", right.group, right.resource, right.namespace), route.kind, route.name


def _right_of_request(request: Request, route: Route) -> Right:
    verb = (ON_ONE if route.name else ON_MANY)[request.method]
    if verb == "list" and request.params.get("watch") in ("true", "1"):
        verb = "watch"
    resource = f"{route.kind.plural}/{route.subresource}" if route.subresource else route.kind.plural
    return Right(verb, route.kind.group, resource, route.namespace)


def _route_of_path(path: str) -> Route:
    if not path.startswith(ROOT):
        return parse_route(path)
    *place, plural = path.removeprefix(ROOT).split("/")
    kind = NODE_METRICS if plural == NODE_METRICS.plural else POD_METRICS
    return Route(kind, place[1] if len(place) == 2 else "")
