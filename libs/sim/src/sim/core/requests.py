"""Answers one request to the API, without faults of the network."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sim.core.control_plane import ControlPlane
from sim.core.errors import ApiError, bad_request, no_such_resource, unauthorized, version_too_large
from sim.core.kinds import KIND_BY_PLURAL, SCALABLE, Key, Object
from sim.core.listing import Lister, encode, list_text, object_text, parse_selection
from sim.core.routes import Route, parse_route
from sim.core.subresources import bind_pod, evict_pod, scale_of, write_scale
from sim.core.usage import ROOT
from sim.core.verbs import DeleteOptions, Verbs, WriteOptions

_APPLY = "application/apply-patch+yaml"
_MERGES = ("application/merge-patch+json", "application/strategic-merge-patch+json")
_DISCOVERY: Mapping[str, Any] = {
    "/version": {"major": "1", "minor": "36", "gitVersion": "v1.36.1", "platform": "sim"},
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [
            {"name": group, "versions": [{"groupVersion": f"{group}/{version}", "version": version}]}
            for group, version in sorted({(kind.group, kind.version) for kind in KIND_BY_PLURAL.values() if kind.group})
        ],
    },
}
_HEALTH = frozenset({"/healthz", "/readyz", "/livez"})
Answer = tuple[int, bytes]


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    params: Mapping[str, str]
    body: bytes | None = None
    content_type: str = "application/json"
    accept: str = "application/json"

    @property
    def is_list(self) -> bool:
        return self.method == "GET" and not self.path.startswith(tuple(_HEALTH)) and _is_list_path(self.path)


def requested_version(params: Mapping[str, str]) -> int:
    return _parse_number(params, "resourceVersion")


def wants_metadata_only(accept: str) -> bool:
    return "as=PartialObjectMetadata" in accept


class Api:
    def __init__(self, control_plane: ControlPlane) -> None:
        self._control_plane = control_plane
        self.lister = Lister(control_plane.world.store)
        self._verbs = Verbs(control_plane)

    def answer_request(self, request: Request) -> Answer:
        """Answers a request. Never raises ApiError: that is an answer too."""
        try:
            return self._answer_or_raise(request)
        except ApiError as error:
            return error.code, encode(error.status())

    def has_object(self, route: Route) -> bool:
        return self._control_plane.world.store.get_object(route.kind.plural, _key_of_route(route)) is not None

    def _answer_or_raise(self, request: Request) -> Answer:
        if request.method == "GET" and request.path in _HEALTH:
            return 200, b"ok"
        if request.method == "GET" and request.path.rstrip("/") in _DISCOVERY:
            return 200, encode(_DISCOVERY[request.path.rstrip("/")])
        if request.method == "GET" and request.path.startswith(ROOT):
            return 200, self._control_plane.usage.answer_metrics(request.path)
        route = parse_route(request.path)
        if route.subresource not in ("", "status"):
            return self._answer_subresource(request, route)
        match request.method:
            case "GET":
                return self._answer_read(request, route)
            case "POST" if not route.name:
                found = self._verbs.create(
                    route.kind, route.namespace, _parse_body(request), parse_write_options(request, route)
                )
                return 201, object_text(route.kind, found)
            case "PUT" | "PATCH" if route.name:
                return self._answer_write(request, route)
            case "DELETE" if not route.subresource:
                return self._answer_delete(request, route)
        raise _method_not_allowed()

    def _answer_read(self, request: Request, route: Route) -> Answer:
        only_metadata = wants_metadata_only(request.accept)
        if route.name:
            found = self._verbs.get(route.kind, _key_of_route(route))
            return 200, object_text(route.kind, found, metadata_only=only_metadata)
        self.check_version(request.params)
        selection = parse_selection(route.kind, route.namespace, "", request.params)
        page = self.lister.list_page(
            selection, _parse_number(request.params, "limit"), request.params.get("continue", "")
        )
        return 200, list_text(route.kind, page, metadata_only=only_metadata)

    def check_version(self, params: Mapping[str, str]) -> int:
        """Returns the requested resourceVersion. Raises ApiError 504 when it is not reached yet."""
        asked, current = requested_version(params), self._control_plane.world.store.version
        if asked > current:
            raise version_too_large(asked, current)
        return asked

    def _answer_write(self, request: Request, route: Route) -> Answer:
        options = parse_write_options(request, route)
        key, content_type = _key_of_route(route), request.content_type.partition(";")[0]
        if request.method == "PUT":
            return 200, object_text(route.kind, self._verbs.replace(route.kind, key, _parse_body(request), options))
        if content_type == _APPLY:
            found, created = self._verbs.apply(route.kind, key, _parse_body(request), options)
            return 201 if created else 200, object_text(route.kind, found)
        if content_type in _MERGES:
            return 200, object_text(route.kind, self._verbs.merge(route.kind, key, _parse_body(request), options))
        raise ApiError(415, "UnsupportedMediaType", f"the body of the request was in an unknown format: {content_type}")

    def _answer_delete(self, request: Request, route: Route) -> Answer:
        options = parse_delete_options(request)
        if route.name:
            found = self._verbs.delete(route.kind, _key_of_route(route), options)
            return 200, _deleted_text(route, found)
        self.check_version(request.params)
        selection = parse_selection(route.kind, route.namespace, "", request.params)
        if request.params.get("resourceVersionMatch") == "Exact":
            page = self.lister.list_at_version(selection, _parse_number(request.params, "resourceVersion"))
        else:
            page = self.lister.list_page(selection, 0, "")
        for found in page.items:
            key = (found["metadata"].get("namespace", ""), found["metadata"]["name"])
            if self._control_plane.world.store.get_object(route.kind.plural, key):
                self._verbs.delete(route.kind, key, options)
        return 200, list_text(route.kind, page)

    def _answer_subresource(self, request: Request, route: Route) -> Answer:
        kind, key = route.kind, _key_of_route(route)
        match route.subresource, request.method:
            case "scale", "GET" if kind.plural in SCALABLE:
                return 200, encode(scale_of(self._verbs.get(kind, key)))
            case "scale", "PUT" | "PATCH" if kind.plural in SCALABLE:
                options = parse_write_options(request, route)
                return 200, encode(write_scale(self._verbs, kind, key, _parse_body(request), options))
            case "eviction", "POST" if kind.plural == "pods":
                evict_pod(
                    self._control_plane,
                    self._verbs,
                    key,
                    _delete_options_of(_parse_body(request).get("deleteOptions") or {}, {}),
                )
                return 201, _success_status(route)
            case "binding", "POST" if kind.plural == "pods":
                bind_pod(self._control_plane, self._verbs, key, _parse_body(request))
                return 201, _success_status(route)
        raise no_such_resource()


def parse_write_options(request: Request, route: Route) -> WriteOptions:
    params = request.params
    fallback = "" if is_apply_request(request) else "unknown"
    return WriteOptions(
        dry_run=params.get("dryRun") == "All",
        manager=params.get("fieldManager", fallback),
        force=params.get("force") in ("true", "1"),
        status=route.subresource == "status",
    )


def parse_delete_options(request: Request) -> DeleteOptions:
    return _delete_options_of(_parse_body(request) if request.body else {}, request.params)


def _delete_options_of(body: Mapping[str, Any], params: Mapping[str, str]) -> DeleteOptions:
    preconditions = body.get("preconditions") or {}
    grace = body.get("gracePeriodSeconds", params.get("gracePeriodSeconds"))
    return DeleteOptions(
        propagation=body.get("propagationPolicy") or params.get("propagationPolicy", "Background"),
        grace_seconds=None if grace is None else int(grace),
        uid=preconditions.get("uid") or "",
        resource_version=preconditions.get("resourceVersion") or "",
        dry_run=params.get("dryRun") == "All" or "All" in (body.get("dryRun") or ()),
    )


def is_apply_request(request: Request) -> bool:
    return request.method == "PATCH" and request.content_type.startswith(_APPLY)


def unauthorized_answer() -> Answer:
    return 401, encode(unauthorized().status())


def _parse_body(request: Request) -> Any:
    try:
        body = json.loads(request.body or b"")
    except ValueError as error:
        raise bad_request(f"the body of the request could not be read: {error}") from error
    if not isinstance(body, dict):
        raise bad_request("the body of the request must be a JSON object")
    return body


def _parse_number(params: Mapping[str, str], name: str) -> int:
    text = params.get(name) or "0"
    if not text.isdigit():
        raise bad_request(f'{name}: Invalid value: "{text}": must be a number')
    return int(text)


def _key_of_route(route: Route) -> Key:
    return route.namespace, route.name


def _is_list_path(path: str) -> bool:
    try:
        return not parse_route(path).name
    except ApiError:
        return False


def _method_not_allowed() -> ApiError:
    return ApiError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")


def _success_status(route: Route) -> bytes:
    return encode({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})


def _deleted_text(route: Route, found: Object) -> bytes:
    metadata = found["metadata"]
    if route.kind.plural == "pods" or "deletionTimestamp" in metadata:
        return object_text(route.kind, found)
    details = {"name": metadata["name"], "group": route.kind.group, "kind": route.kind.plural, "uid": metadata["uid"]}
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return encode({**status, "details": {field: value for field, value in details.items() if value}})
