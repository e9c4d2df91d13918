"""The only door to a Kubernetes API: read, write, follow, probe; says values inward, named errors outward."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass
from random import Random
from types import MappingProxyType
from typing import Any, Final, Literal, Protocol

import aiohttp
import msgspec

from spillway import kubernetes, metrics
from spillway.credentials import BadCredentials, Endpoint, Session
from spillway.kubernetes import JSON, Manifests, Page, T
from spillway.pod_metrics import POD_METRICS, PodMetrics

Kind = kubernetes.Kind
Manifest = kubernetes.Manifest
NODES, PODS, NAMESPACES = kubernetes.NODES, kubernetes.PODS, kubernetes.NAMESPACES
DEPLOYMENTS, REPLICASETS, RESOURCE_QUOTAS = kubernetes.DEPLOYMENTS, kubernetes.REPLICASETS, kubernetes.RESOURCE_QUOTAS
CONFIG_MAPS, SECRETS, SERVICES = kubernetes.CONFIG_MAPS, kubernetes.SECRETS, kubernetes.SERVICES
HORIZONTAL_POD_AUTOSCALERS = kubernetes.HORIZONTAL_POD_AUTOSCALERS
MERGE_PATCH: Final = "application/merge-patch+json"
UnreachableReason = Literal[
    "unauthorized", "forbidden", "timeout", "connection", "garbage", "server", "closed", "absent"
]


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    body: bytes


class TransportStatus(Exception):
    """A stream was answered with another status than 200."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"HTTP status {status}: {body[:500].decode(errors='replace')}")
        self.status = status
        self.body = body


class ClusterUnreachable(Exception):
    """The cluster told us nothing: what is known of it stands, and grows old."""

    def __init__(self, cluster: str, reason: UnreachableReason, detail: str) -> None:
        super().__init__(f"cluster {cluster} is unreachable ({reason}): {detail}")
        self.cluster = cluster
        self.reason = reason
        self.detail = detail


class Conflict(Exception):
    """409: the object exists already, or is not the version that the caller saw. Read again and compare."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message


class Refused(Exception):
    """The cluster answered, and will not do it: admission, quota, RBAC, an invalid object, a missing namespace."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message


class Transport(Protocol):
    """HTTP to one API server. Raises ClusterUnreachable when there is no answer; any status is an answer."""

    async def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        body: bytes | None = None,
        content_type: str = JSON,
        accept: str = JSON,
    ) -> Response: ...

    def stream(self, path: str, params: Mapping[str, str], accept: str = JSON) -> AsyncIterator[bytes]:
        """Raw chunks, cut anywhere, and first an empty one when it is open; TransportStatus when it is refused."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Listed:
    """Everything there is; what a reader knows and is not in it, is gone."""

    objects: tuple[Any, ...]
    resource_version: str


@dataclass(frozen=True, slots=True)
class Upserted:
    object: Any


@dataclass(frozen=True, slots=True)
class Removed:
    object: Any  # as it was last


@dataclass(frozen=True, slots=True)
class Alive:
    """Nothing changed, and the stream is known to live: a bookmark, or the stream opened."""


@dataclass(frozen=True, slots=True)
class Failed:
    """Said once when following begins to fail; any other change says that it is well again."""

    error: ClusterUnreachable


Change = Listed | Upserted | Removed | Alive | Failed


@dataclass(frozen=True, slots=True)
class Probe:
    nodes: int
    pods: int
    started_at: float  # the loop's monotonic clock, before the first of the two requests


@dataclass(frozen=True, slots=True)
class ClusterApiSettings:
    connect_timeout_seconds: float = 5.0
    """To open one connection."""
    request_timeout_seconds: float = 30.0
    """For one whole answer; a list is one request a page."""
    probe_timeout_seconds: float = 5.0
    """For each of the probe's two requests."""
    watch_idle_seconds: float = 90.0
    """A watch that says nothing for so long is dead; servers send a bookmark about every 60 s."""
    watch_shortest_seconds: int = 240
    """The server ends each watch after a random time between these two, so that clusters do not all resume at once."""
    watch_longest_seconds: int = 480
    page_objects: int = 500
    """Objects asked for in one page of a list."""
    read_attempts: int = 3
    """Times that a read is tried when the server answers 429 or 5xx; a write only for 429, which says: not done."""
    first_pause_seconds: float = 0.5
    """Pauses double from this one to the longest, each shortened by up to half at random."""
    longest_pause_seconds: float = 10.0
    max_response_bytes: int = 256 * 2**20
    max_line_bytes: int = 16 * 2**20
    """Of one event of a watch; an object in etcd is at most 1.5 MiB, and JSON is at most some times larger."""
    max_connections: int = 32
    """At one time, to one cluster, watches included; the probe has its own."""
    field_manager: str = "spillway"

    def pause_seconds(self, setbacks: int, random: Random) -> float:
        longest = min(self.longest_pause_seconds, self.first_pause_seconds * 2.0 ** min(setbacks - 1, 32))
        return random.uniform(longest / 2, longest) if setbacks else 0.0


UNAUTHORIZED, FORBIDDEN, NOT_FOUND, CONFLICT, GONE, TOO_MANY = 401, 403, 404, 409, 410, 429
SERVER_ERRORS: Final = 500  # and above
SHORT_WATCH_SECONDS: Final = 5.0


class _Expired(ClusterUnreachable):
    """410: the version, or the place in a list, is no longer kept; only a new list helps."""


class ClusterApi:
    """`probe_transport` lets the probe have a connection of its own; without it `transport` serves both."""

    def __init__(
        self,
        transport: Transport,
        name: str,
        settings: ClusterApiSettings,
        *,
        random: Random | None = None,
        probe_transport: Transport | None = None,
    ) -> None:
        self.name, self.settings = name, settings
        self.random = random or Random()
        self._transport = transport
        self._probe_transport = probe_transport or transport

    def follow(
        self, kind: Kind, *, label_selector: str = "", field_selector: str = ""
    ) -> AsyncIterator[tuple[Change, ...]]:
        """Never ends and never raises but for a bug: failures are said as Failed and tried again."""
        return _Reflector(self, kind, kubernetes.selectors(label_selector, field_selector)).changes()

    async def probe(self) -> Probe:
        """Counts by quorum reads, so that an answer proves what the store holds, not what a cache remembers."""
        started_at = asyncio.get_running_loop().time()
        return Probe(await self._count(NODES), await self._count(PODS), started_at)

    async def get(self, kind: Kind, namespace: str, name: str) -> Manifest | None:
        response = await self._ask("GET", kind.path(namespace, name))
        if self._absent(response):
            return None
        return self.decoded(kubernetes.MANIFEST, self.read(response))

    async def list(
        self, kind: Kind, namespace: str = "", label_selector: str = "", field_selector: str = ""
    ) -> Manifests:
        params = kubernetes.selectors(label_selector, field_selector)
        for _ in range(self.settings.read_attempts):
            with suppress(_Expired):
                return [*(await self.pages(kind, params, kubernetes.MANIFEST_PAGE, namespace))[0]]
        raise ClusterUnreachable(self.name, "server", f"the list of {kind.plural} expired before its end, repeatedly")

    async def pod_metrics(self, namespace: str, seconds: float) -> tuple[PodMetrics, ...]:
        """The newest samples of a namespace's pods, asked for once; "absent" where the cluster has no such API."""
        path = POD_METRICS.path(namespace)
        response = await self._bounded(self._transport.request("GET", path, {}), seconds)
        if response.status == NOT_FOUND:
            raise ClusterUnreachable(self.name, "absent", "metrics.k8s.io is not served")
        return self.decoded(kubernetes.page_decoder(POD_METRICS), self.read(response)).items or ()

    async def create(self, kind: Kind, manifest: Manifest) -> Manifest:
        """Conflict (AlreadyExists) when there is one. What a later apply leaves out stays: see kubernetes.ABSENT."""
        path, params = kind.path(kind.place(manifest)[0]), {"fieldManager": self.settings.field_manager}
        return self._written(await self._ask("POST", path, params, msgspec.json.encode(manifest)))

    async def try_create(self, kind: Kind, namespace: str, manifest: Manifest) -> Manifest:
        """The object as it would be stored, with all that admission adds; nothing is (dryRun=All)."""
        params = {"fieldManager": self.settings.field_manager, "dryRun": "All"}
        return self._written(await self._ask("POST", kind.path(namespace), params, msgspec.json.encode(manifest)))

    async def apply(
        self, kind: Kind, manifest: Manifest, *, resource_version: str, force: bool, uid: str = ""
    ) -> Manifest:
        """Conflict when the object is not at that version, or, without force, a field belongs to another manager.

        An object that is absent is created, whatever the version, unless `uid` says which one is meant: then Conflict.
        """
        path = kind.path(*kind.place(manifest))
        params = {"fieldManager": self.settings.field_manager, "force": "true" if force else "false"}
        body = msgspec.json.encode(kubernetes.at_version(manifest, uid, resource_version))
        return self._written(await self._ask("PATCH", path, params, body, "application/apply-patch+yaml"))

    async def patch(
        self, kind: Kind, namespace: str, name: str, change: Manifest, *, resource_version: str
    ) -> Manifest:
        """A merge patch: only the fields in `change` are touched, null removes one, a list is replaced whole.

        Conflict when the object is not at that version; Refused (404) when it is absent: a patch never creates.
        """
        metadata = change.get("metadata") or {}
        body = msgspec.json.encode(change | {"metadata": metadata | {"resourceVersion": resource_version}})
        params = {"fieldManager": self.settings.field_manager}
        return self._written(await self._ask("PATCH", kind.path(namespace, name), params, body, MERGE_PATCH))

    async def delete(self, kind: Kind, namespace: str, name: str, *, uid: str, resource_version: str) -> None:
        """Conflict when the object is another one, or at another version; what is absent already is well."""
        body = msgspec.json.encode(kubernetes.delete_options(uid, resource_version))
        response = await self._ask("DELETE", kind.path(namespace, name), body=body)
        if not self._absent(response):
            self._written(response)

    async def close(self) -> None:
        for transport in {id(one): one for one in (self._transport, self._probe_transport)}.values():
            await transport.close()

    async def pages(
        self, kind: Kind, params: Mapping[str, str], decoder: msgspec.json.Decoder[Page[T]], namespace: str = ""
    ) -> tuple[tuple[T, ...], str]:
        """Every object, and the version that the list is as of; _Expired when the server lost its place in it."""
        query = {**params, "limit": str(self.settings.page_objects)}
        objects: list[T] = []
        while True:
            response = await self._ask("GET", kind.path(namespace), query, accept=kind.accept("List"))
            page = self.decoded(decoder, self.read(response))
            objects.extend(page.items or ())
            if not page.metadata.continue_:
                return tuple(objects), page.metadata.resource_version
            query["continue"] = page.metadata.continue_

    async def chunks(self, kind: Kind, params: Mapping[str, str], version: str) -> AsyncGenerator[bytes, None]:
        """One watch, until the server ends it; raises when it is silent for too long."""
        settings, path = self.settings, kind.path()
        seconds = self.random.randint(settings.watch_shortest_seconds, settings.watch_longest_seconds)
        bounds = {"allowWatchBookmarks": "true", "timeoutSeconds": str(seconds), "resourceVersion": version}
        chunks = self._transport.stream(path, {**params, "watch": "true", **bounds}, kind.accept())
        try:
            while True:
                async with asyncio.timeout(settings.watch_idle_seconds):
                    chunk = await anext(chunks, None)
                if chunk is None:
                    return
                yield chunk
        except TimeoutError as error:
            detail = f"the watch of {path} said nothing for {settings.watch_idle_seconds} s"
            raise ClusterUnreachable(self.name, "timeout", detail) from error
        except TransportStatus as answer:
            self.read(Response(answer.status, answer.body))
            raise self._garbage(Response(answer.status, answer.body)) from answer
        finally:
            if isinstance(chunks, AsyncGenerator):
                await chunks.aclose()

    async def _count(self, kind: Kind) -> int:
        call = self._probe_transport.request("GET", kind.path(), {"limit": "1"})
        response = await self._bounded(call, self.settings.probe_timeout_seconds)
        total = self.decoded(kubernetes.RAW_PAGE, self.read(response)).total()
        if total is None:
            raise ClusterUnreachable(self.name, "garbage", f"a page of {kind.plural} without remainingItemCount")
        return total

    async def _ask(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] = MappingProxyType({}),
        body: bytes | None = None,
        content_type: str = JSON,
        accept: str = JSON,
    ) -> Response:
        """An answer, tried again while the server only says that it cannot answer now."""
        attempt = 1
        while True:
            call = self._transport.request(method, path, params, body, content_type, accept)
            response = await self._bounded(call, self.settings.request_timeout_seconds)
            passing = response.status == TOO_MANY or (method == "GET" and response.status >= SERVER_ERRORS)
            if not passing or attempt >= self.settings.read_attempts:
                return response
            await asyncio.sleep(self.settings.pause_seconds(attempt, self.random))
            attempt += 1

    async def _bounded(self, call: Coroutine[Any, Any, Response], seconds: float) -> Response:
        try:
            async with asyncio.timeout(seconds):
                return await call
        except TimeoutError as error:
            raise ClusterUnreachable(self.name, "timeout", f"no answer within {seconds} s") from error

    def _garbage(self, response: Response) -> ClusterUnreachable:
        return ClusterUnreachable(self.name, "garbage", str(TransportStatus(response.status, response.body)))

    def read(self, response: Response) -> bytes:
        """The body of a good answer to a read."""
        self._reached(response)
        if response.status == GONE:
            raise _Expired(self.name, "server", kubernetes.read_status(response.body).message)
        if response.status == FORBIDDEN:
            raise ClusterUnreachable(self.name, "forbidden", kubernetes.read_status(response.body).message)
        if not 200 <= response.status < 300:
            raise self._garbage(response)
        return response.body

    def _written(self, response: Response) -> Manifest:
        self._reached(response)
        if 200 <= response.status < 300:
            return self.decoded(kubernetes.MANIFEST, response.body)
        status = kubernetes.read_status(response.body)
        if status.kind != "Status":
            raise self._garbage(response)
        if response.status == CONFLICT:
            raise Conflict(status.reason, status.message)
        raise Refused(response.status, status.reason, status.message)

    def _reached(self, response: Response) -> None:
        if response.status == UNAUTHORIZED:
            raise ClusterUnreachable(self.name, "unauthorized", kubernetes.read_status(response.body).message)
        if response.status == TOO_MANY or response.status >= SERVER_ERRORS:
            raise ClusterUnreachable(self.name, "server", str(TransportStatus(response.status, response.body)))

    def _absent(self, response: Response) -> bool:
        """Absent is only what a Kubernetes API calls so: a proxy's 404 must never pass for a deleted object."""
        return response.status == NOT_FOUND and kubernetes.read_status(response.body).kind == "Status"

    def decoded(self, decoder: msgspec.json.Decoder[T], body: bytes | msgspec.Raw) -> T:
        try:
            return decoder.decode(body)
        except kubernetes.UNREADABLE as error:  # What it says quotes nothing: there may be a secret in the body.
            raise ClusterUnreachable(self.name, "garbage", str(error)) from error


class _Reflector:
    """Lists, then watches; lists again only when told that its version is gone, or when it cannot read what it got."""

    def __init__(self, api: ClusterApi, kind: Kind, params: Mapping[str, str]) -> None:
        self._api = api
        self._kind = kind
        self._params = params
        self._version = ""  # Where to watch from; without one, list.
        self._setbacks = 0  # In a row.
        self._watching_since: float | None = None
        self._heard = False  # On the watch that is open, or was last.
        self._failing = False

    async def changes(self) -> AsyncGenerator[tuple[Change, ...], None]:
        while True:
            self._watching_since = None
            try:
                if not self._version:
                    yield (await self._listed(),)
                async with aclosing(self._watched()) as batches:
                    async for batch in batches:
                        yield batch
                self._setbacks = 0 if self._heard else self._setbacks_now()
            except _Expired:
                metrics.WATCH_RESTARTS.labels(self._kind.plural, "expired").inc()
                self._version = ""
                self._setbacks = self._setbacks_now()
            except ClusterUnreachable as error:
                metrics.WATCH_RESTARTS.labels(self._kind.plural, error.reason).inc()
                self._version = "" if error.reason == "garbage" else self._version
                self._setbacks = self._setbacks_now()
                if not self._failing:
                    self._failing = True
                    yield (Failed(error),)
            await asyncio.sleep(self._api.settings.pause_seconds(self._setbacks, self._api.random))

    def _setbacks_now(self) -> int:
        """A watch that lived for a while is a fresh start; one that ends at once must not be opened in a tight loop."""
        since = self._watching_since
        fresh = since is not None and asyncio.get_running_loop().time() - since >= SHORT_WATCH_SECONDS
        return 1 if fresh else self._setbacks + 1

    async def _listed(self) -> Listed:
        with metrics.LIST_SECONDS.labels(self._kind.plural).time():
            objects, version = await self._api.pages(self._kind, self._params, kubernetes.page_decoder(self._kind))
        if not version:
            raise ClusterUnreachable(self._api.name, "garbage", f"a list of {self._kind.plural} without a version")
        self._version = version
        self._failing = False
        return Listed(objects, version)

    async def _watched(self) -> AsyncGenerator[tuple[Change, ...], None]:
        lines = kubernetes.Lines(self._api.settings.max_line_bytes)
        self._heard = False
        self._watching_since = asyncio.get_running_loop().time()
        async with aclosing(self._api.chunks(self._kind, self._params, self._version)) as chunks:
            async for chunk in chunks:
                batch: list[Change] = [] if chunk else [Alive()]
                trouble: ClusterUnreachable | None = None
                try:
                    for line in lines.feed(chunk):
                        batch.append(self._change(line))
                        self._heard = True
                except ClusterUnreachable as error:
                    trouble = error
                except kubernetes.LineTooLong as error:
                    trouble = ClusterUnreachable(self._api.name, "garbage", str(error))
                if batch:  # What came before the trouble in the same chunk is true all the same.
                    self._failing = False
                    yield tuple(batch)
                if trouble is not None:
                    raise trouble

    def _change(self, line: bytes) -> Change:
        event = self._api.decoded(kubernetes.WATCH_EVENT, line)
        if event.type in ("ADDED", "MODIFIED", "DELETED"):
            found = self._api.decoded(kubernetes.object_decoder(self._kind), event.object)
            self._version = found.metadata.resource_version
            return Removed(found) if event.type == "DELETED" else Upserted(found)
        if event.type == "BOOKMARK":
            self._version = self._api.decoded(kubernetes.BOOKMARK, event.object).metadata.resource_version
            return Alive()
        if event.type == "ERROR":
            self._api.read(Response(self._api.decoded(kubernetes.STATUS, event.object).code, bytes(event.object)))
        raise ClusterUnreachable(self._api.name, "garbage", f"an event of type {event.type[:40]!r}")


class HttpTransport:
    """aiohttp to one API server, with one pool of connections."""

    def __init__(self, read_endpoint: Callable[[], Endpoint], name: str, settings: ClusterApiSettings) -> None:
        self._session = Session(read_endpoint, settings.connect_timeout_seconds, settings.max_connections)
        self._name = name
        self._max_bytes = settings.max_response_bytes

    async def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        body: bytes | None = None,
        content_type: str = JSON,
        accept: str = JSON,
    ) -> Response:
        headers = {"Accept": accept} if body is None else {"Accept": accept, "Content-Type": content_type}
        with self._named_errors(f"{method} {path}"):
            async with self._session.send(method, path, params, headers, body) as answer:
                return Response(answer.status, await self._bounded_body(answer))

    async def stream(self, path: str, params: Mapping[str, str], accept: str = JSON) -> AsyncGenerator[bytes, None]:
        with self._named_errors(f"watch {path}"):
            async with self._session.send("GET", path, params, {"Accept": accept}) as answer:
                if answer.status != 200:
                    raise TransportStatus(answer.status, await self._bounded_body(answer))
                yield b""
                async for chunk in answer.content.iter_any():
                    yield chunk

    async def close(self) -> None:
        await self._session.close()

    async def _bounded_body(self, answer: aiohttp.ClientResponse) -> bytes:
        body = bytearray()
        async for chunk in answer.content.iter_any():
            body += chunk
            if len(body) > self._max_bytes:
                raise ClusterUnreachable(self._name, "garbage", f"an answer of more than {self._max_bytes} bytes")
        return bytes(body)

    @contextmanager
    def _named_errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except BadCredentials as error:
            raise ClusterUnreachable(self._name, "unauthorized", str(error)) from error
        except TimeoutError as error:
            raise ClusterUnreachable(self._name, "timeout", f"{what}: {error}") from error
        except (aiohttp.ClientError, OSError) as error:
            raise ClusterUnreachable(self._name, "connection", f"{what}: {error}") from error


def connect(
    read_endpoint: Callable[[], Endpoint], name: str, settings: ClusterApiSettings, random: Random | None = None
) -> ClusterApi:
    """Over HTTP; nothing is opened before it is first needed. `read_endpoint` runs in a thread, again after a 401."""
    transport, probe_transport = (HttpTransport(read_endpoint, name, settings) for _ in range(2))
    return ClusterApi(transport, name, settings, random=random, probe_transport=probe_transport)
