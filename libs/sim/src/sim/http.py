"""The simulated API over real HTTP on loopback, with a bearer token, and endpoints for tests under /sim/."""

import asyncio
import hmac
from collections.abc import Awaitable, Callable
from dataclasses import replace
from ipaddress import ip_address
from typing import Any

import msgspec
from aiohttp import web

from sim.cluster import SimCluster
from sim.core.requests import Request, unauthorized_answer
from sim.pod_logs import is_log_path
from sim.rest import SimTransport
from sim.settings import Faults, LogSpec, NodeSpec, UsageSpec
from spillway.clusters.api import ClusterUnreachable, TransportStatus

_BODY_LIMIT_BYTES = 16 << 20
_SHUTDOWN_SECONDS = 0.2
_JSON = "application/json"


class SimServer:
    """The HTTP server of a cluster. `port` 0 takes a free one; read `port` after `start`."""

    def __init__(self, cluster: SimCluster, token: str, host: str = "127.0.0.1", port: int = 0) -> None:
        if not is_loopback(host):
            raise ValueError(f"host {host}: expected a loopback address; the simulator is not for networks")
        self._cluster = cluster
        self._token = token
        self._transport = SimTransport(cluster, cluster.token)
        self._host = host
        self.port = port
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://{self._host}:{self.port}"

    async def start(self) -> None:
        app = web.Application(middlewares=[self._authorize], client_max_size=_BODY_LIMIT_BYTES)
        app.router.add_post("/sim/faults", self._set_faults)
        app.router.add_post("/sim/nodes", self._add_nodes)
        app.router.add_post("/sim/load", self._set_load)
        app.router.add_post("/sim/log", self._write_log)
        app.router.add_post("/sim/drop-watches", self._drop_watches)
        app.router.add_post("/sim/expire-history", self._expire_history)
        app.router.add_route("*", "/{path:.*}", self._answer_request)
        # A watch notices a lost client because its handler is cancelled.
        self._runner = web.AppRunner(
            app, handler_cancellation=True, shutdown_timeout=_SHUTDOWN_SECONDS, access_log=None
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, self.port).start()
        self.port = self._runner.addresses[0][1]

    async def close(self) -> None:
        await self._transport.close()
        if self._runner:
            await self._runner.cleanup()

    @web.middleware
    async def _authorize(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        given = request.headers.get("Authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {self._token}".encode()):
            return _json_response(*unauthorized_answer())
        return await handler(request)

    async def _answer_request(self, request: web.Request) -> web.StreamResponse:
        params = dict(request.query)
        if request.method == "GET" and params.get("watch") in ("true", "1"):
            return await self._answer_stream(request, params, _JSON)
        if request.method == "GET" and is_log_path(request.path):
            return await self._answer_stream(request, params, "text/plain")
        asked = Request(request.method, request.path, params)
        if self._cluster.faults.stall_list and asked.is_list:
            return await self._stall_list(request)
        body = await request.read() if request.can_read_body else None
        accept = request.headers.get("Accept", _JSON)
        content_type = request.headers.get("Content-Type", _JSON)
        try:
            answer = await self._transport.request(request.method, request.path, params, body, content_type, accept)
        except ClusterUnreachable:
            return _cut_connection(request)
        return _json_response(answer.status, answer.body)

    async def _answer_stream(
        self, request: web.Request, params: dict[str, str], content_type: str
    ) -> web.StreamResponse:
        chunks = self._transport.stream(request.path, params, request.headers.get("Accept", _JSON))
        response = web.StreamResponse(headers={"Content-Type": content_type})
        try:
            async for chunk in chunks:
                if not response.prepared:
                    await response.prepare(request)
                if chunk:
                    await response.write(chunk)
        except TransportStatus as error:
            return _json_response(error.status, error.body)
        except ClusterUnreachable:
            return _cut_connection(request)
        finally:
            await chunks.aclose()
        return response

    async def _stall_list(self, request: web.Request) -> web.StreamResponse:
        """Sends the beginning of a list, and then nothing."""
        response = web.StreamResponse(headers={"Content-Type": _JSON})
        await response.prepare(request)
        await response.write(b'{"kind":"List","items":[{"metadata":{"name":"')
        while self._cluster.faults.stall_list and not self._cluster.is_closed:
            await self._cluster.wait_for_fault_change()
        return _cut_connection(request)

    async def _set_faults(self, request: web.Request) -> web.StreamResponse:
        """Changes only the fields that the request names."""
        declared = await request.json()
        try:
            whole = {field: getattr(self._cluster.faults, field) for field in Faults.__slots__} | declared
            faults = msgspec.convert(whole, Faults)
            replace(self._cluster.faults, **declared)
        except (msgspec.ValidationError, TypeError) as error:
            return _json_response(400, msgspec.json.encode({"message": str(error)}))
        self._cluster.set_faults(faults)
        return _json_response(200, msgspec.json.encode(faults))

    async def _add_nodes(self, request: web.Request) -> web.StreamResponse:
        try:
            specs = msgspec.json.decode(await request.read(), type=list[NodeSpec])
        except msgspec.MsgspecError as error:
            return _json_response(400, msgspec.json.encode({"message": str(error)}))
        return _json_response(200, msgspec.json.encode(self._cluster.add_nodes(specs)))

    async def _set_load(self, request: web.Request) -> web.StreamResponse:
        try:
            asked = msgspec.json.decode(await request.read(), type=UsageSpec)
        except msgspec.MsgspecError as error:
            return _json_response(400, msgspec.json.encode({"message": str(error)}))
        (self._cluster.set_pod_usage if asked.pod else self._cluster.set_load)(
            asked.namespace, asked.pod or asked.workload, asked.amounts
        )
        return _json_response(200, b"{}")

    async def _write_log(self, request: web.Request) -> web.StreamResponse:
        try:
            asked = msgspec.json.decode(await request.read(), type=LogSpec)
            self._cluster.write_log(asked.namespace, asked.pod, asked.text, asked.container)
        except (msgspec.MsgspecError, KeyError) as error:
            return _json_response(400, msgspec.json.encode({"message": str(error)}))
        return _json_response(200, b"{}")

    async def _drop_watches(self, _request: web.Request) -> web.StreamResponse:
        self._cluster.drop_watches()
        return _json_response(200, b"{}")

    async def _expire_history(self, _request: web.Request) -> web.StreamResponse:
        self._cluster.expire_history()
        return _json_response(200, b"{}")


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def kubeconfig(name: str, url: str, token: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": {"server": url}}],
        "users": [{"name": name, "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    }


def _json_response(status: int, body: bytes) -> web.Response:
    return web.Response(status=status, body=body, content_type=_JSON)


def _cut_connection(request: web.Request) -> web.StreamResponse:
    """Cuts the connection before the answer is complete."""
    if request.transport:
        request.transport.abort()
    raise asyncio.CancelledError
