"""The kubelet API of virtual nodes, over HTTPS. Pools' API servers ask it for the logs of pool pods.

A request names a namespace and a pod, and two pools may use the same names. So each pool has a port of its own, which
accepts only clients of that pool's CA: the port shows which pool asks.
"""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AsyncExitStack, aclosing, contextmanager
from pathlib import Path
from typing import Final, Self

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler

from spillway.clusters.api import PODS, ClusterUnreachable, Refused
from spillway.kubernetes.objects import is_object_name
from spillway.running.http_port import HttpPort, PortBounds, open_http_port
from spillway.settings import SettingsError
from vk_bridge import metrics
from vk_bridge.api.lent_pods import LentPods
from vk_bridge.api.log_request import read_log_options
from vk_bridge.cluster.pools import Pool
from vk_bridge.core.node.loan import Manifest
from vk_bridge.core.pod.parsing import container_names
from vk_bridge.core.shares import LogPlaces, Tenant
from vk_bridge.settings import VkBridgeSettings

NOT_LENT: Final = {
    "exec": "commands in containers",
    "run": "commands in containers",
    "attach": "attaching to containers",
    "portForward": "forwarding of ports",
    "cri": "streams of a container runtime",
    "checkpoint": "checkpoints of containers",
    "stats": "measured use",
    "metrics": "measured use",
    "logs": "logs of the machine",
    "configz": "a kubelet's settings",
    "pods": "lists of pods (the API server has them)",
    "runningpods": "lists of pods (the API server has them)",
}
"""The parts of a kubelet's API that virtual nodes do not serve, by the first part of the path. Lists of pods could be
very long, and nobody needs them from a bridge."""
POOL: Final = web.AppKey("pool", str)
SHUTDOWN_SECONDS: Final = 1.0
DESCRIPTORS_EACH: Final = 2
"""The file descriptors of each connection: its own, and one for the log that is read from an owner for it."""

log = structlog.get_logger()


class _ErrorAnswer(Exception):
    """Raised to answer a request with an HTTP error status and a text."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


class KubeletApi:
    """Serves the kubelet API inside its `async with` block.

    owners: returns the LentPods of each cluster where this instance has the turn. It is called for each request.
    """

    def __init__(self, settings: VkBridgeSettings, owners: Callable[[], list[LentPods]]) -> None:
        self._settings = settings
        self._owners = owners
        self._open = 0
        self._log_places = LogPlaces(settings.kubelet_requests_max)
        self._entered = AsyncExitStack()
        self._port_by_pool: dict[str, HttpPort] = {}

    async def __aenter__(self) -> Self:
        """Opens all ports. Raises SettingsError for an unreadable file, and for an address that it cannot listen on."""
        try:
            for pool, port in self._settings.port_by_pool.items():
                await self._listen_for_pool(pool, port)
        except BaseException:
            await self._entered.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._entered.aclose()

    async def _listen_for_pool(self, pool: str, port: int) -> None:
        host = self._settings.kubelet_listen or self._settings.kubelet_address
        context = server_context(self._settings, pool)
        app = web.Application(middlewares=[self._answer_request])
        app[POOL] = pool
        app.add_routes([web.get("/healthz", self._healthz)])
        app.add_routes([web.get("/containerLogs/{namespace}/{pod}/{container}", self._answer_container_logs)])
        app.add_routes([web.route("*", "/{rest:.*}", self._refuse_unserved_path)])
        # A followed log ends when its reader disconnects, so that must cancel the handler.
        options = {"handler_cancellation": True, "shutdown_timeout": SHUTDOWN_SECONDS}
        opening = open_http_port(f"kubelet {pool}", app, (host, port), self._port_bounds(), context, **options)
        try:
            self._port_by_pool[pool] = await self._entered.enter_async_context(opening)
        except (OSError, UnicodeError) as error:
            raise SettingsError(f"kubelet_ports: cannot listen on {host}:{port} for {pool}: {error}") from error
        log.info("kubelet API listens", pool=pool, host=host, port=port)

    def _port_bounds(self) -> PortBounds:
        """Returns the bounds of each pool's port."""
        settings = self._settings
        return PortBounds(
            settings.kubelet_connections_max,
            settings.kubelet_strangers_max,
            settings.kubelet_stranger_seconds,
            settings.kubelet_idle_seconds,
            DESCRIPTORS_EACH * len(settings.port_by_pool),
        )

    # ── Who may ask, and how much ───────────────────────────────────────────────────────────────────────────────

    @web.middleware
    async def _answer_request(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        kind = request.path.lstrip("/").partition("/")[0]
        try:
            self._check_caller(request)
            self._port_by_pool[request.app[POOL]].mark_known(request)
            with self._hold_request_slot():
                response = await handler(request)
        except _ErrorAnswer as answer:
            response = web.Response(status=answer.status, text=answer.text)
        except Refused as error:
            response = web.Response(status=error.status, text=error.message)
        except ClusterUnreachable as error:
            # An API server shows users the text of status 500, but not of 502 or 503.
            response = web.Response(status=500, text=str(error))
        known = kind if kind in ("containerLogs", "healthz", *NOT_LENT) else "other"
        metrics.KUBELET_REQUESTS.labels(known, response.status).inc()
        return response

    def _check_caller(self, request: web.Request) -> None:
        """Raises a 403 unless the certificate names an API server. The handshake has verified the certificate."""
        found = request.transport.get_extra_info("peercert") if request.transport is not None else None
        subject = (found or {}).get("subject", ())
        names = [value for part in subject for key, value in part if key == "commonName"]
        if not any(name in self._settings.kubelet_client_names for name in names):
            expected = ", ".join(self._settings.kubelet_client_names)
            raise _ErrorAnswer(
                403, f"the certificate's common name is {', '.join(names) or 'not there'}: expected {expected}"
            )

    @contextmanager
    def _hold_request_slot(self) -> Iterator[None]:
        most = self._settings.kubelet_requests_max
        if self._open >= most:
            raise _ErrorAnswer(429, f"{most} requests are being answered already")
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1

    @contextmanager
    def _hold_log_place(self, places: LogPlaces, tenant: Tenant) -> Iterator[None]:
        """Holds a place of one log. Raises a 429 if the tenant has as many as it leaves free, or if none is free."""
        text = places.refusal_text(tenant)
        if text:
            raise _ErrorAnswer(429, text)
        places.take_place(tenant)
        try:
            yield
        finally:
            places.give_back_place(tenant)

    # ── What is answered ────────────────────────────────────────────────────────────────────────────────────────

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def _answer_container_logs(self, request: web.Request) -> web.StreamResponse:
        namespace, name, container = (_read_object_name(request, part) for part in ("namespace", "pod", "container"))
        try:
            options = read_log_options(container, request.query, self._settings.log_bytes_max)
        except ValueError as error:
            raise _ErrorAnswer(400, str(error)) from error
        tenant = Tenant(request.app[POOL], namespace)
        with self._hold_log_place(self._log_places, tenant):
            owner, real_pod = await self._find_owner_and_real_pod(tenant.pool, namespace, name, container)
            with self._hold_log_place(owner.log_places, tenant):
                async with aclosing(owner.stream_pod_logs(real_pod, options)) as chunks:
                    return await self._stream_log(request, chunks)

    async def _refuse_unserved_path(self, request: web.Request) -> web.Response:
        kind = request.match_info["rest"].split("/", 1)[0]
        if kind in NOT_LENT:
            raise _ErrorAnswer(501, f"{kind} is not served for lent nodes: no {NOT_LENT[kind]}, logs alone")
        raise _ErrorAnswer(404, f"/{kind[:64]} is nothing that is served for lent nodes")

    def _find_pool(self, name: str) -> Pool:
        pool = next((found for owner in self._owners() if (found := owner.find_pool(name)) is not None), None)
        if pool is None:
            raise _ErrorAnswer(404, f"nothing that this bridge works on is lent to {name}")
        return pool

    async def _find_owner_and_real_pod(
        self, pool_id: str, namespace: str, name: str, container: str
    ) -> tuple[LentPods, Manifest]:
        """Returns the owner where the pool pod runs now, and its real pod there."""
        pool, place = self._find_pool(pool_id), f"pod {namespace}/{name}"
        pool_pod = await pool.gate.send_request(lambda: pool.api.get(PODS, namespace, name))
        if pool_pod is None:
            raise _ErrorAnswer(404, f"{place} is not there in {pool_id}")
        node = pool_pod["spec"].get("nodeName", "")
        owner = next((one for one in self._owners() if one.has_virtual_node(node)), None)
        if owner is None:
            raise _ErrorAnswer(404, f"{place} is on node {node or '(none)'}, which this bridge does not serve")
        if container not in container_names(pool_pod):
            raise _ErrorAnswer(404, f"{place} has no container {container[:64]}")
        real_pod = await owner.find_real_pod(pool_id, pool_pod)
        if real_pod is None:
            raise _ErrorAnswer(404, f"{place} has no real pod on the node for which {node} stands")
        return owner, real_pod

    async def _stream_log(self, request: web.Request, chunks: AsyncGenerator[bytes, None]) -> web.StreamResponse:
        """Streams a log. An error in the middle aborts the connection, so that it does not look like the log's end."""
        chunk = await anext(chunks, None)
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        try:
            while chunk is not None:
                async with asyncio.timeout(self._settings.log_stalled_seconds):
                    await response.write(chunk)
                chunk = await anext(chunks, None)
        except (ClusterUnreachable, Refused, TimeoutError) as error:
            log.warning("a log is cut off", path=request.path, error=str(error) or "its reader does not read")
            if request.transport is not None:
                request.transport.abort()
        return response


def _read_object_name(request: web.Request, part: str) -> str:
    """Returns a part of the request's path. A name of dots alone would change the path of our request to a cluster."""
    name = request.match_info[part]
    if not is_object_name(name):
        raise _ErrorAnswer(400, f"{part}: {name[:64]!r}: expected a name of small letters, digits, '-' and '.'")
    return name


def server_context(settings: VkBridgeSettings, pool: str) -> ssl.SSLContext:
    """Returns the TLS settings of one pool's port. Its handshake rejects clients without a certificate of the pool's
    CA."""
    client_ca: Path = settings.kubelet_clients_folder / f"{pool}.crt"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_verify_locations(cafile=client_ca)
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(f"kubelet_clients_folder: {client_ca}: expected a CA, PEM: {error}") from error
    try:
        context.load_cert_chain(settings.kubelet_certificate, settings.kubelet_key)
    except (OSError, ssl.SSLError) as error:
        files = f"{settings.kubelet_certificate}, {settings.kubelet_key}"
        raise SettingsError(f"kubelet_certificate, kubelet_key: {files}: expected both, PEM: {error}") from error
    return context
