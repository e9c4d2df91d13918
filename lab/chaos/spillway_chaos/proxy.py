"""A proxy between the platform and a real control plane. It can answer as a broken control plane would."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import aiohttp
from aiohttp import web

from spillway_local.member_credentials import CredentialFiles

from .audit import Door

_BODY_BYTES_MAX = 16 << 20
_LISTS = ("nodes", "pods", "deployments", "replicasets")
_PASSED_ON = ("Accept", "Content-Type")


@dataclass(slots=True)
class Proxy:
    """The proxy of one member.

    door: the access to the real API. port: the proxy's port, which the platform uses.
    unauthorized: True to answer every new request with 401. shown: the part of each list that is left, 0 to 1, by kind.
    """

    door: Door
    files: CredentialFiles
    port: int
    unauthorized: bool = False
    shown: dict[str, float] = field(default_factory=dict)
    _watches: set[asyncio.Task[Any]] = field(default_factory=set)
    _expired: set[str] = field(default_factory=set)
    _session: aiohttp.ClientSession | None = None

    @asynccontextmanager
    async def serve_requests(self) -> AsyncIterator[None]:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.files.certificate, self.files.certificate_key)
        app = web.Application(client_max_size=_BODY_BYTES_MAX)
        app.router.add_route("*", "/{path:.*}", self._answer_or_abort)
        connector = aiohttp.TCPConnector(ssl=self.door.ssl_context() or True, limit=0)
        # The proxy has no time-out, because the platform's own time-outs must notice a slow member.
        async with aiohttp.ClientSession(
            self.door.server, connector=connector, timeout=aiohttp.ClientTimeout(total=None)
        ) as self._session:
            runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.2)
            await runner.setup()
            try:
                await web.TCPSite(runner, "127.0.0.1", self.port, ssl_context=context).start()
                yield
            finally:
                await runner.cleanup()

    def end_watches(self, expired: bool = False) -> None:
        """Ends all watches. expired: also answers 410 once to a watch from an old version, so that its client lists."""
        if expired:
            self._expired = set(_LISTS)
        for task in self._watches:
            task.cancel()

    async def _answer_or_abort(self, request: web.Request) -> web.StreamResponse:
        """Answers a request. Cuts the connection if the member does not answer."""
        try:
            return await self._answer_request(request)
        except (aiohttp.ClientError, OSError):
            if request.transport:
                request.transport.abort()
            return web.Response(status=HTTPStatus.BAD_GATEWAY)

    async def _answer_request(self, request: web.Request) -> web.StreamResponse:
        if self.unauthorized:
            return _status_response(HTTPStatus.UNAUTHORIZED, "Unauthorized")
        plural = request.path.rpartition("/")[2]
        if request.method == "GET" and request.query.get("watch") == "true":
            if plural in self._expired:
                self._expired.discard(plural)
                return _status_response(HTTPStatus.GONE, "Expired")
            return await self._answer_watch(request)
        async with self._request_member(request, await request.read()) as answer:
            body = await answer.read()
            if request.method == "GET" and answer.status == HTTPStatus.OK and plural in self.shown:
                # A probe lists one object to read the count of all. Only lists are cut, never this count.
                body = body if request.query.get("limit") == "1" else _cut_list(body, self.shown[plural])
            return web.Response(status=answer.status, body=body, content_type=answer.content_type)

    async def _answer_watch(self, request: web.Request) -> web.StreamResponse:
        passing = asyncio.current_task()
        assert passing is not None
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        stream = asyncio.create_task(self._stream_watch(request, response))
        self._watches.add(stream)
        try:
            # A stream that the proxy ends has no closing event, as when a connection is cut.
            with suppress(asyncio.CancelledError):
                return await stream
            if request.transport:
                request.transport.abort()
            return response
        finally:
            stream.cancel()
            self._watches.discard(stream)

    async def _stream_watch(self, request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
        async with self._request_member(request, b"") as answer:
            if answer.status != HTTPStatus.OK:
                return web.Response(status=answer.status, body=await answer.read(), content_type=answer.content_type)
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
        return response

    def _request_member(self, request: web.Request, body: bytes) -> Any:
        assert self._session is not None
        headers = {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
        headers["Authorization"] = request.headers.get("Authorization", "")
        return self._session.request(request.method, request.rel_url, headers=headers, data=body or None)


def _cut_list(body: bytes, shown: float) -> bytes:
    """Returns the first part of a list as if it were whole: without a continue token and a remaining count."""
    listed = json.loads(body)
    items = listed.get("items") or []
    listed["items"] = items[: int(len(items) * shown)]
    for name in ("continue", "remainingItemCount"):
        listed["metadata"].pop(name, None)
    return json.dumps(listed).encode()


def _status_response(code: HTTPStatus, reason: str) -> web.Response:
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": int(code)}
    return web.json_response(status | {"message": f"{reason} (chaos)", "metadata": {}}, status=code)
