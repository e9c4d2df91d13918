"""Who may call us and how much: the bind that is refused, callers by token or certificate, rates and sizes."""

import hashlib
import ipaddress
import json
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import yaml
from msgspec import Meta

from spillway.api import ExplainRequest, FreezeRequest, PlanBatchRequest, RequestError, UnfreezeRequest
from spillway.api_scaling import DeclarePolicyRequest, ReportRequest
from spillway.reasons import TOO_MANY_CALLS
from spillway.rpc.callers import NOBODY, Caller, Callers, CallersFile
from spillway.scopes import read_scope
from spillway.settings import OperatorError, setting
from spillway.yaml_text import read_yaml

MEBIBYTE = 2**20
CLUSTER_WIDE_VERBS = frozenset({"list_clusters"})
"""Which have no namespace, and are answered to callers of some namespaces, too. What changes a cluster or the fleet is
not among them, nor Export: both concern all namespaces."""
DEFAULT_NAMESPACE = "default"
GO_WITH_THEIR_WORKLOAD = frozenset({"PlacementPolicy", "PropagationPolicy", "ConfigMap", "Service"})
"""Kinds that are read as of the namespace of the workload in the same request, where they name none."""


class TooManyCalls(RequestError):
    """RESOURCE_EXHAUSTED; the next call of this caller is let in after so many seconds."""

    def __init__(self, text: str, seconds: float) -> None:
        super().__init__("RESOURCE_EXHAUSTED", text, TOO_MANY_CALLS)
        self.seconds = seconds


class UnsafeBind(OperatorError):
    """The server would be open to others without TLS and callers; it does not start."""


@dataclass(frozen=True, slots=True)
class RpcSettings:
    """Of a gRPC server; the prefix of its variables is SPILLWAY_RPC_."""

    host: str = setting("127.0.0.1", "address to listen on; another than loopback needs TLS and callers")
    port: Annotated[int, Meta(ge=0, le=65535)] = setting(7400, "port to listen on; 0 takes a free one")
    tls_certificate: str = setting("", "file of the server's certificate chain, PEM")
    tls_key: str = setting("", "file of the server's private key, PEM")
    client_ca: str = setting("", "file of the CA whose client certificates are asked for, PEM")
    callers: str = setting("", "file of callers, YAML, JSON or TOML: name, token_sha256, verbs, namespaces")
    callers_check_seconds: Annotated[float, Meta(gt=0)] = setting(
        5.0, "seconds from one look to the next whether the callers file has changed"
    )
    deadline_seconds_max: Annotated[float, Meta(gt=0)] = setting(30.0, "seconds that one call may take at the most")
    request_bytes_max: Annotated[int, Meta(ge=1024, le=16 * MEBIBYTE)] = setting(
        4 * MEBIBYTE, "bytes of the largest request"
    )
    request_entries_max: Annotated[int, Meta(ge=1)] = setting(
        20_000, "entries of all lists of one request together, counted before they are read"
    )
    requests_per_second: Annotated[float, Meta(gt=0)] = setting(500.0, "calls a second that each caller may make")
    requests_burst: Annotated[int, Meta(ge=1)] = setting(1000, "calls that a caller may make at once, after a pause")
    concurrent_requests_max: Annotated[int, Meta(ge=1)] = setting(1000, "calls answered at the same time, all callers")
    watches_max: Annotated[int, Meta(ge=1)] = setting(200, "watches at the same time, all callers")
    stop_seconds: Annotated[float, Meta(ge=0)] = setting(5.0, "seconds that running calls get when the server stops")


LOCAL_CALLER = Caller("local")
CALLER: ContextVar[Caller] = ContextVar("caller", default=LOCAL_CALLER)
"""The caller of the request being answered, for an api that learns only later which namespace is meant."""


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address; names other than localhost are taken to be outside."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_bind(settings: RpcSettings) -> None:
    """Raises UnsafeBind for an address outside loopback without TLS and a way to know callers."""
    if bool(settings.tls_certificate) != bool(settings.tls_key):
        raise UnsafeBind("gRPC: tls_certificate and tls_key: expected both or neither")
    if settings.client_ca and not settings.tls_certificate:
        raise UnsafeBind("gRPC: client_ca: needs tls_certificate and tls_key")
    if is_loopback(settings.host):
        return
    missing = []
    if not settings.tls_certificate:
        missing.append("TLS (tls_certificate and tls_key)")
    if not settings.callers and not settings.client_ca:
        missing.append("callers (a callers file, or a client_ca)")
    if missing:
        raise UnsafeBind(f"gRPC: host {settings.host!r} is not loopback: refused without {' and '.join(missing)}")


def read_file(name: str, what: str) -> bytes:
    """A file that a setting names. Raises OperatorError."""
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise OperatorError(f"gRPC: {what} {name!r}: {error.strerror or error}") from error


class Gate:
    """Lets a call in or says why not. now: a clock in seconds that never goes back."""

    def __init__(self, settings: RpcSettings, now: Callable[[], float]) -> None:
        check_bind(settings)
        self._file = CallersFile(settings.callers) if settings.callers else None
        self._settings = settings
        self._now = now
        self._buckets: dict[str, _Bucket] = {}
        self._open = not settings.callers and not settings.client_ca

    @property
    def callers(self) -> Callers:
        return self._file.callers if self._file else NOBODY

    def look(self) -> bool:
        """Whether the callers file has others than before. Reads it: call it in a thread."""
        return self._file is not None and self._file.look()

    def still_knows(self, caller: Caller) -> bool:
        """Whether it may still do exactly what it could when it was let in."""
        return self._file is None or self.callers.knows(caller)

    def identify(self, authorization: str, certificate_names: Iterable[str]) -> Caller:
        """The caller of a token or of a verified client certificate. Raises UNAUTHENTICATED."""
        if self._open:
            return LOCAL_CALLER
        scheme, _, token = authorization.partition(" ")
        if token and scheme.lower() == "bearer":
            caller = self.callers.by_token.get(hashlib.sha256(token.strip().encode()).hexdigest())
            if caller is None:
                raise RequestError("UNAUTHENTICATED", "authorization: no caller has this token")
            return caller
        for name in certificate_names:
            if self._file is None:
                return Caller(name)
            if name in self.callers.by_certificate:
                return self.callers.by_certificate[name]
        wanted = "authorization: Bearer <token>" + (", or a client certificate" if self._settings.client_ca else "")
        raise RequestError("UNAUTHENTICATED", f"no credentials that are known here: expected {wanted}")

    def admit(self, caller: Caller, verb: str, request_bytes: int) -> None:
        """Raises PERMISSION_DENIED for a verb, INVALID_ARGUMENT for the size, RESOURCE_EXHAUSTED for the rate."""
        caller.require_verb(verb)
        limits = self.callers.limits.get(caller.name)
        bytes_max = (limits.request_bytes_max if limits else 0) or self._settings.request_bytes_max
        if request_bytes > bytes_max:
            raise RequestError("INVALID_ARGUMENT", f"request: {request_bytes} bytes: expected at most {bytes_max}")
        rate = (limits.requests_per_second if limits else 0.0) or self._settings.requests_per_second
        bucket = self._buckets.get(caller.name)
        if bucket is None:
            bucket = self._buckets.setdefault(caller.name, _Bucket(self._settings.requests_burst, self._now()))
        if seconds := bucket.take(rate, self._settings.requests_burst, self._now()):
            text = f"caller {caller.name!r}: more than {rate:g} calls a second: try again in {seconds:.3g} s"
            raise TooManyCalls(text, seconds)


class _Bucket:
    """Calls that may still be made now; refilled as time passes."""

    __slots__ = ("_at", "_left")

    def __init__(self, left: float, at: float) -> None:
        self._left, self._at = left, at

    def take(self, per_second: float, most: float, now: float) -> float:
        """0 when a call was taken; else after how many seconds there is one."""
        self._left = min(most, self._left + (now - self._at) * per_second)
        self._at = now
        if self._left < 1.0:
            return (1.0 - self._left) / per_second
        self._left -= 1.0
        return 0.0


def check_namespaces(caller: Caller, verb: str, request: object) -> None:
    """Raises PERMISSION_DENIED when the request touches a namespace that the caller may not use.

    Reads manifests only for callers that are restricted; slow for large YAML, so call it in a thread.
    """
    if not caller.is_restricted or verb in CLUSTER_WIDE_VERBS:
        return
    if isinstance(request, PlanBatchRequest):
        for item in request.items:
            for inner, asked in (("apply", item.apply), ("scale", item.scale)):
                if asked is not None:
                    check_namespaces(caller, inner, asked)
        return
    if isinstance(request, DeclarePolicyRequest):
        caller.require(verb, _namespace_of(request.manifest, "manifest"))
        return
    if isinstance(request, ReportRequest):
        for namespace in {reported.namespace for reports in (request.loads, request.backlogs) for reported in reports}:
            caller.require(verb, namespace or DEFAULT_NAMESPACE)
        return
    manifests: tuple[str, ...] | None = getattr(request, "manifests", None)
    if isinstance(request, ExplainRequest) and (request.name or not request.manifests):
        caller.require(verb, request.namespace or DEFAULT_NAMESPACE)
    if manifests is None:
        caller.require(verb, _namespace_asked(request))
        return
    for index, manifest in enumerate(manifests):
        if namespace := _namespace_of(manifest, f"manifests[{index}]"):
            caller.require(verb, namespace)


def check_items(caller: Caller, request: object) -> None:
    """Raises PERMISSION_DENIED when a batch has an item that the caller may not ask for alone."""
    for item in request.items if isinstance(request, PlanBatchRequest) else ():
        caller.require_verb("apply" if item.apply is not None else "scale")


def _namespace_asked(request: object) -> str:
    """The one namespace that a request is about; empty when it is about all: the fleet, a cluster."""
    if isinstance(request, FreezeRequest | UnfreezeRequest):
        return read_scope(request.scope).namespace
    namespace: str = getattr(request, "namespace", "")
    return namespace


def _namespace_of(manifest: str, field: str) -> str:
    """The namespace that a manifest is in; empty: that of its workload. What reads two ways, or not, is refused."""
    try:
        value = _load(manifest)
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise RequestError("INVALID_ARGUMENT", f"{field}: expected one object as JSON or YAML: {error}") from error
    named = value if isinstance(value, Mapping) else {}
    kind, metadata = named.get("kind"), named.get("metadata")
    goes_along = isinstance(kind, str) and kind in GO_WITH_THEIR_WORKLOAD
    if metadata is None and goes_along:
        return ""
    namespace = metadata.get("namespace", "") if isinstance(metadata, Mapping) else None
    if not isinstance(namespace, str):
        raise RequestError("INVALID_ARGUMENT", f"{field}.metadata: expected an object with a name and a namespace")
    return namespace or ("" if goes_along else DEFAULT_NAMESPACE)


def _load(manifest: str) -> object:
    try:
        return json.loads(manifest, object_pairs_hook=_without_repeats)
    except json.JSONDecodeError:
        return read_yaml(manifest)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A name twice in one object could be read one way here and another way by the planner."""
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a name stands twice in one object")
    return value
