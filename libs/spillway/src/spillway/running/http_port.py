"""Serves an aiohttp application at a port with a limited number of connections. Strangers' connections close early.

aiohttp alone accepts connections until no file descriptor is left, waits a minute for a TLS handshake, and never closes
a connection whose request stays incomplete.
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
from spillway.rpc.accepting import TIME, ConnectionAcceptor, RefusalLog, connection_limit, open_listening_sockets
from spillway.rpc.connections import ConnectionCounts

_AFTER_A_BUG_SECONDS: Final = 1.0
"""The pause before connections are accepted again after a bug. Without it the log could fill with the same error."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class PortBounds:
    """The limits of one port.

    connections_max: open connections. strangers_max: connections without a known caller. Beyond it the oldest one of
    the address with the most of them is closed.
    stranger_seconds: the age at which a stranger's connection is closed. The TLS handshake, the request and its answer
    must fit into that time.
    idle_seconds: a known caller's connection is closed after so long without a whole request.
    descriptors_each: file descriptors that one connection may use. If the process has too few of them, the port has
    fewer connections.
    """

    connections_max: int
    strangers_max: int
    stranger_seconds: float
    idle_seconds: float
    descriptors_each: int = 1


class HttpPort:
    """The connections of one port. name: of the port in logs and metrics. tls: None for plain HTTP."""

    def __init__(self, name: str, server: web.Server, bounds: PortBounds, tls: ssl.SSLContext | None) -> None:
        most = connection_limit(bounds.connections_max, bounds.descriptors_each, port=name)
        refusals = RefusalLog(lambda reason: metrics.HTTP_CONNECTIONS_REFUSED.labels(name, reason).inc(), port=name)
        no_bound = most + 1  # For one address: probes, scrapes and API servers may all share one.
        connections = ConnectionCounts(most, no_bound, min(most, bounds.strangers_max))
        self._accepting = ConnectionAcceptor(connections, refusals, self._begin_connection, self._abort_connection)
        self._server = server
        self._bounds = bounds
        self._tls = tls
        self._connections: dict[int, _Connection] = {}
        self._numbers: dict[object, int] = {}
        """The number of each connection, by its aiohttp protocol. Each request refers to the protocol."""

    def mark_known(self, request: web.BaseRequest) -> None:
        """Marks the connection of a request as a known caller's. Only idleness closes it from now on."""
        number = self._numbers.get(request.protocol, 0)
        if self._accepting.mark_known(number):
            self._connections[number].stop_timer()

    async def accept_connections(self, listening: socket.socket) -> None:
        """Accepts connections until it is cancelled. An unexpected error is logged, and it goes on."""
        while True:
            try:
                await self._accepting.accept_connections(listening)
            except Exception:
                log.exception("a bug while connections were accepted")
                await asyncio.sleep(_AFTER_A_BUG_SECONDS)

    def close(self) -> None:
        """Cancels the TLS handshakes under way. aiohttp itself closes the connections that it serves."""
        for connection in list(self._connections.values()):
            connection.cancel_handshake()

    async def _begin_connection(self, number: int, accepted: socket.socket) -> None:
        connection = self._connections[number] = _Connection(self, number, self._server(), accepted)
        self._numbers[connection.inner] = number
        connection.begin_serving(self._hand_connection_over(connection), self._bounds.stranger_seconds)

    async def _hand_connection_over(self, connection: "_Connection") -> None:
        """Hands a connection over to aiohttp, after the TLS handshake if the port has TLS."""
        accepted = connection.take_socket()
        patience = self._bounds.stranger_seconds if self._tls else None
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(
                lambda: connection, accepted, ssl=self._tls, ssl_handshake_timeout=patience
            )
        except OSError:  # The peer has gone, speaks no TLS, or has no certificate although one is required.
            pass
        except Exception:  # A bug costs only the connection that met it.
            log.exception("a bug in a TLS handshake")
        if connection.transport is None:
            connection.mark_gone()

    def _abort_connection(self, number: int) -> None:
        connection = self._connections.get(number)
        if connection is not None:
            self.forget_connection(number)
            connection.abort_connection()

    def drop_connection(self, number: int) -> None:
        """Closes a connection whose time is over."""
        self._accepting.drop_connection(number, TIME)

    def forget_connection(self, number: int) -> None:
        connection = self._connections.pop(number, None)
        if connection is not None:
            del self._numbers[connection.inner]
            self._accepting.forget_connection(number)


class _Connection(asyncio.Protocol):
    """One connection of the port. inner: aiohttp's protocol, which gets all received data.

    accepted: its socket, until it is handed over to a transport, which then closes it.
    """

    transport: asyncio.Transport | None = None

    def __init__(self, port: HttpPort, number: int, inner: RequestHandler, accepted: socket.socket) -> None:
        self.inner = inner
        self._accepted: socket.socket | None = accepted
        self._port = port
        self._number = number
        self._handing_over: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._gone = False

    def begin_serving(self, serving: Coroutine[Any, Any, None], seconds: float) -> None:
        """Starts serving. The connection is closed after `seconds` unless it is marked as known before."""
        loop = asyncio.get_running_loop()
        self._handing_over = loop.create_task(serving)
        self._timer = loop.call_later(seconds, self._port.drop_connection, self._number)

    def take_socket(self) -> socket.socket:
        """Gives the socket to the transport that is made for it now."""
        accepted, self._accepted = self._accepted, None
        assert accepted is not None
        return accepted

    def stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def mark_gone(self) -> None:
        self._gone = True
        self.stop_timer()
        self._port.forget_connection(self._number)

    def abort_connection(self) -> None:
        self._gone = True
        self.stop_timer()
        self.cancel_handshake()
        if self.transport is not None:
            self.transport.abort()

    def cancel_handshake(self) -> None:
        if self.transport is None and self._handing_over is not None:
            self._handing_over.cancel()
        # Many connections may be accepted before a task for one of them begins. A task that is cancelled before that
        # leaves the socket to nobody, and only a collection of garbage would close it.
        if self._accepted is not None:
            self._accepted.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        made = cast(asyncio.Transport, transport)
        if self._gone:
            made.abort()
            return
        self.transport = made
        self.inner.connection_made(made)

    def connection_lost(self, error: Exception | None) -> None:
        self.mark_gone()
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
async def open_http_port(
    name: str,
    app: web.Application,
    place: tuple[str, int],
    bounds: PortBounds,
    tls: ssl.SSLContext | None = None,
    **options: Any,
) -> AsyncIterator[HttpPort]:
    """Serves the application at a host and port until the context is left. options: of aiohttp's AppRunner.

    Raises OSError if it cannot listen there, or UnicodeError for a text that is no host name.
    """
    runner = web.AppRunner(app, access_log=None, keepalive_timeout=bounds.idle_seconds, **options)
    await runner.setup()
    try:
        with ExitStack() as sockets:
            listening = [sockets.enter_context(closing(one)) for one in open_listening_sockets(*place)]
            port = HttpPort(name, cast(web.Server, runner.server), bounds, tls)
            tasks = [asyncio.create_task(port.accept_connections(one)) for one in listening]
            try:
                yield port
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                port.close()
    finally:
        await runner.cleanup()
