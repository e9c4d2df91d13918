"""An HTTP port with a bounded number of connections, of which those on which nobody known has asked are closed early.

aiohttp answers on the connections. It would accept as many as there are file descriptors, wait a minute for a handshake
of TLS, and close no connection whose request does not come whole.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Coroutine
from contextlib import ExitStack, asynccontextmanager, closing
from dataclasses import dataclass
from typing import Any, Final, cast

import structlog
from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from spillway import metrics
from spillway.rpc.accepting import TIME, Accepting, Told, connections_most, listening_sockets
from spillway.rpc.connections import Connections

_AFTER_A_BUG_SECONDS: Final = 1.0

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class PortBounds:
    """Of one port. connections_max: at the same time. strangers_max: of these, on which nobody known has asked; for one
    more the oldest of the address that has most of them is closed. stranger_seconds: until such a one is closed; the
    handshake of TLS and a request have to come within them, and an answer to somebody who stays unknown. idle_seconds:
    until a known one is closed on which no whole request comes. descriptors_each: what a connection takes of the
    process' file descriptors, with what it shares them with; where these are too few there are fewer connections.
    """

    connections_max: int
    strangers_max: int
    stranger_seconds: float
    idle_seconds: float
    descriptors_each: int = 1


class HttpPort:
    """Connections of one port. name: in logs and metrics. tls: None: plain HTTP."""

    def __init__(self, name: str, server: web.Server, bounds: PortBounds, tls: ssl.SSLContext | None) -> None:
        most = connections_most(bounds.connections_max, bounds.descriptors_each, port=name)
        self._told = Told(lambda reason: metrics.HTTP_CONNECTIONS_REFUSED.labels(name, reason).inc(), port=name)
        no_bound = most + 1  # Of one address: probes, scrapes and API servers may all come by way of one.
        connections = Connections(most, no_bound, min(most, bounds.strangers_max))
        self._accepting = Accepting(connections, self._told, self._begin, self._abort)
        self._server = server
        self._bounds = bounds
        self._tls = tls
        self._guests: dict[int, _Guest] = {}
        self._numbers: dict[object, int] = {}
        """By aiohttp's protocol of a connection, which its requests name."""

    def know(self, request: web.BaseRequest) -> None:
        """Who asks is known: its connection is closed for nobody else's, and only once it is idle."""
        number = self._numbers.get(request.protocol, 0)
        if self._accepting.know(number):
            self._guests[number].is_known()

    async def accept(self, listening: socket.socket) -> None:
        """Until it is cancelled. A bug that one connection meets ends nothing."""
        while True:
            try:
                await self._accepting.accept(listening)
            except Exception:
                log.exception("bug where connections are accepted")
                await asyncio.sleep(_AFTER_A_BUG_SECONDS)

    def close(self) -> None:
        """Ends handshakes. Connections on which somebody is answered are aiohttp's to end."""
        for guest in list(self._guests.values()):
            guest.cancel_handshake()

    async def _begin(self, number: int, accepted: socket.socket) -> None:
        guest = self._guests[number] = _Guest(self, number, self._server())
        self._numbers[guest.inner] = number
        guest.begin(self._greet(guest, accepted), self._bounds.stranger_seconds)

    async def _greet(self, guest: "_Guest", accepted: socket.socket) -> None:
        """Hands the connection to aiohttp, after the handshake where there is one."""
        patience = self._bounds.stranger_seconds if self._tls else None
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(lambda: guest, accepted, ssl=self._tls, ssl_handshake_timeout=patience)
        except OSError:  # It has gone, is no TLS, or has no certificate that is asked for.
            pass
        except Exception:  # A bug that one connection meets costs that connection alone.
            log.exception("bug in a handshake")
        if guest.transport is None:
            guest.forget()

    def _abort(self, number: int) -> None:
        guest = self._guests.get(number)
        if guest is not None:
            self.forget(number)
            guest.abort()

    def drop(self, number: int) -> None:
        """Closes a connection whose time is over."""
        self._accepting.drop(number, TIME)

    def forget(self, number: int) -> None:
        guest = self._guests.pop(number, None)
        if guest is not None:
            del self._numbers[guest.inner]
            self._accepting.forget(number)


class _Guest(asyncio.Protocol):
    """Whoever is at the other end of a connection. inner: aiohttp's protocol, which gets all that is heard."""

    transport: asyncio.Transport | None = None

    def __init__(self, port: HttpPort, number: int, inner: RequestHandler) -> None:
        self.inner = inner
        self._port = port
        self._number = number
        self._greeting: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._gone = False

    def begin(self, greeting: Coroutine[Any, Any, None], seconds: float) -> None:
        """Closed after so many seconds, unless it is known by then."""
        loop = asyncio.get_running_loop()
        self._greeting = loop.create_task(greeting)
        self._timer = loop.call_later(seconds, self._port.drop, self._number)

    def is_known(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def forget(self) -> None:
        self._gone = True
        self.is_known()
        self._port.forget(self._number)

    def abort(self) -> None:
        self._gone = True
        self.is_known()
        self.cancel_handshake()
        if self.transport is not None:
            self.transport.abort()

    def cancel_handshake(self) -> None:
        if self.transport is None and self._greeting is not None:
            self._greeting.cancel()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        made = cast(asyncio.Transport, transport)
        if self._gone:
            made.abort()
            return
        self.transport = made
        self.inner.connection_made(made)

    def connection_lost(self, error: Exception | None) -> None:
        self.forget()
        if self.transport is not None:
            self.inner.connection_lost(error)

    def data_received(self, data: bytes) -> None:
        self.inner.data_received(data)

    def eof_received(self) -> None:
        self.inner.eof_received()

    def pause_writing(self) -> None:
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        self.inner.resume_writing()


@asynccontextmanager
async def http_port(
    name: str,
    app: web.Application,
    place: tuple[str, int],
    bounds: PortBounds,
    tls: ssl.SSLContext | None = None,
    **options: Any,
) -> AsyncIterator[HttpPort]:
    """Serves the app at a host and port while it is entered. options: of aiohttp's runner.

    Raises OSError, or UnicodeError for what is no name of a host, when it cannot listen there.
    """
    runner = web.AppRunner(app, access_log=None, keepalive_timeout=bounds.idle_seconds, **options)
    await runner.setup()
    try:
        with ExitStack() as sockets:
            listening = [sockets.enter_context(closing(one)) for one in listening_sockets(*place)]
            port = HttpPort(name, cast(web.Server, runner.server), bounds, tls)
            tasks = [asyncio.create_task(port.accept(one)) for one in listening]
            try:
                yield port
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                port.close()
    finally:
        await runner.cleanup()
