"""Accepts connections and limits their number. It also limits the bytes and the time of strangers' connections.

It passes the bytes on unread to the gRPC server behind it, at a socket in a folder that only this user may enter.
"""

import asyncio
import itertools
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from spillway import metrics
from spillway.rpc.accepting import (
    DESCRIPTORS,
    EXHAUSTED,
    TIME,
    ConnectionAcceptor,
    RefusalLog,
    connection_limit,
    open_listening_sockets,
)
from spillway.rpc.connections import STRANGERS, ConnectionCounts
from spillway.rpc.security import RpcSettings
from spillway.settings import OperatorError

BYTES: Final = "bytes"
SERVER: Final = "server"
UNREAD: Final = "unread"
PART: Final = "rpc"
DESCRIPTORS_EACH: Final = 3
"""File descriptors of one connection: the client's side and the inner side here, and one at the gRPC server."""
STRANGERS_CALLS_MAX: Final = 8
"""The most calls without a known caller on a stranger's connection. Each costs as much as an answered one."""
FLUSH_SECONDS: Final = 1.0
"""The most seconds that the server's last data may take to reach clients after the server has ended."""
_FLUSH_LOOK_SECONDS: Final = 0.01
"""The pause between two looks whether all of that data has gone. It is short beside FLUSH_SECONDS."""


class Front:
    """Accepts the connections of a gRPC server.

    address_most, caller_most: the most connections of one address, and of one caller.
    port: the port on which it listens; 0 until it is open.
    """

    def __init__(self, settings: RpcSettings, address_most: int, caller_most: int) -> None:
        self.port = 0
        self._settings = settings
        self._address_most = address_most
        self._caller_most = caller_most
        self._numbers = itertools.count(1)
        self._outside: dict[int, _Outside] = {}
        self._refusals = RefusalLog(lambda reason: metrics.CONNECTIONS_REFUSED.labels(reason).inc(), part=PART)
        self._joining: set[asyncio.Task[None]] = set()
        self._listening: list[socket.socket] = []
        self._server = ""

    def open(self) -> None:
        """Opens the port. Raises OperatorError when it cannot listen. Nothing is accepted before
        `accept_connections`."""
        settings = self._settings
        most = connection_limit(settings.connections_max, DESCRIPTORS_EACH, part=PART)
        # With too few file descriptors an address and a caller have the same part of all connections as with enough.
        of_one = (max(1, one * most // settings.connections_max) for one in (self._address_most, self._caller_most))
        address_most, caller_most = (min(most, one) for one in of_one)
        strangers_most = min(most, settings.strangers_max)
        idle_seconds = settings.connection_idle_seconds
        bounded = ConnectionCounts(most, address_most, strangers_most, caller_most, idle_seconds)
        self._accepting = ConnectionAcceptor(
            bounded, self._refusals, self._begin_connection, self._abort_connection, self._set_connection_metrics
        )
        self._listening = _open_sockets(settings.host, settings.port)
        self.port = int(self._listening[0].getsockname()[1])
        self._folder = Path(tempfile.mkdtemp(prefix="spillway-rpc-"))

    def next_server_path(self) -> str:
        """Returns the path where the next server must listen."""
        return str(self._folder / f"server-{next(self._numbers)}")

    def set_server_path(self, path: str) -> None:
        """Connects new connections with the server at this path. Existing connections stay with their server."""
        self._server = path

    async def accept_connections(self) -> None:
        """Accepts connections until it is cancelled. An unexpected error raises."""
        async with asyncio.TaskGroup() as group:
            for listening in self._listening:
                group.create_task(self._accepting.accept_connections(listening))

    @contextmanager
    def counted_on_connection(self, peer: str, caller: str) -> Iterator[None]:
        """Counts a call of a known caller on its connection while it runs. Removes the limits for strangers from it."""
        number = _connection_number(peer)
        if self._accepting.begin_call(number, caller):
            self._outside[number].end_deadline()
        try:
            yield
        finally:
            self._accepting.end_call(number)

    def count_call_of_stranger(self, peer: str) -> None:
        """Counts a call without a known caller. Closes the connection of a stranger with too many of them."""
        outside = self._outside.get(_connection_number(peer))
        if outside is not None and self._accepting.connections.is_stranger(outside.number):
            outside.calls_of_stranger += 1
            if outside.calls_of_stranger > STRANGERS_CALLS_MAX:
                self.drop_connection(outside.number, STRANGERS)

    def caller_of(self, peer: str) -> str:
        """Returns the caller for whom a connection counts; "" for a stranger's."""
        return self._accepting.connections.caller_of(_connection_number(peer))

    def close_unread_connection(self, peer: str) -> None:
        """Closes the connection of a client that does not take what is sent to it."""
        number = _connection_number(peer)
        if number in self._outside:
            self.drop_connection(number, UNREAD)

    def stop_listening(self) -> None:
        """Stops listening. Existing connections go on until the server ends them."""
        for listening in self._listening:
            listening.close()

    async def close(self) -> None:
        """Closes all connections after the server has ended. The server's last bytes still arrive."""
        for outside in [one for one in self._outside.values() if one.other is None]:
            outside.abort_connection()
        until = time.monotonic() + FLUSH_SECONDS
        while self._outside and time.monotonic() < until:
            await asyncio.sleep(_FLUSH_LOOK_SECONDS)
        for outside in list(self._outside.values()):
            outside.abort_connection()
        for joining in self._joining:
            joining.cancel()
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _begin_connection(self, number: int, accepted: socket.socket) -> None:
        bounds = self._settings.stranger_bytes_max, self._settings.unread_seconds
        outside = self._outside[number] = _Outside(self, number, *bounds)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: outside, accepted)
        except OSError:
            self._outside.pop(number, None)
            raise
        outside.start_deadline(self._settings.stranger_seconds)

    def _abort_connection(self, number: int) -> None:
        outside = self._outside.pop(number, None)
        if outside is not None:
            outside.abort_connection()

    def drop_connection(self, number: int, reason: str) -> None:
        """Closes a connection at once."""
        self._accepting.drop_connection(number, reason)

    def forget_connection(self, number: int) -> None:
        self._outside.pop(number, None)
        self._accepting.forget_connection(number)

    def begin_connecting(self, outside: "_Outside") -> None:
        """Starts a task that connects a client's connection with the server."""
        task = asyncio.get_running_loop().create_task(self._connect_with_server(outside))
        self._joining.add(task)
        task.add_done_callback(self._joining.discard)

    async def _connect_with_server(self, outside: "_Outside") -> None:
        inside = _FrontSide(outside)
        try:
            connected = self._open_server_socket(outside.number)
            await asyncio.get_running_loop().create_unix_connection(lambda: inside, sock=connected)
        except OSError as error:
            self._refusals.note_trouble(error)
            self.drop_connection(outside.number, DESCRIPTORS if error.errno in EXHAUSTED else SERVER)
            return
        outside.note_server_connected(inside)

    def _open_server_socket(self, number: int) -> socket.socket:
        """Returns a socket connected with the server. Its path ends with `number`, so the server can name it."""
        path = self._folder / str(number)
        made = socket.socket(socket.AF_UNIX)
        try:
            made.setblocking(False)
            made.bind(str(path))
            path.unlink()
            made.connect(self._server)
        except OSError:
            made.close()
            raise
        return made

    def _set_connection_metrics(self) -> None:
        connections = self._accepting.connections
        metrics.CONNECTIONS.labels("known").set(len(connections) - connections.stranger_count)
        metrics.CONNECTIONS.labels("stranger").set(connections.stranger_count)


class _FrontSide(asyncio.Protocol):
    """One end of a connection. It passes bytes on to the other end, and reads no more than the other end takes."""

    transport: Any = None

    def __init__(self, other: "_FrontSide | None" = None) -> None:
        self.other = other

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if self.other is not None:
            self.other.transport.write(data)

    def pause_writing(self) -> None:
        if self.other is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()

    def abort_connection(self) -> None:
        if self.transport is not None:
            self.transport.abort()


class _Outside(_FrontSide):
    """The end of a connection at the client. It is connected with the server after the client's first bytes."""

    def __init__(self, front: Front, number: int, bytes_max: int, unread_seconds: float) -> None:
        super().__init__()
        self.number = number
        self.calls_of_stranger = 0
        self._front = front
        self._bytes_left: int | None = bytes_max
        self._unread_seconds = unread_seconds
        self._unread: asyncio.TimerHandle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._first = b""
        self._gone = False

    def start_deadline(self, seconds: float) -> None:
        """Closes the connection after `seconds`, unless it is known by then."""
        if self._bytes_left is not None and not self._gone:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._front.drop_connection, self.number, TIME)

    def end_deadline(self) -> None:
        """Ends the limits on bytes and time, because the peer is a known caller."""
        self._bytes_left = None
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        if self._bytes_left is not None:
            self._bytes_left -= len(data)
            if self._bytes_left < 0:
                self._front.drop_connection(self.number, BYTES)
                return
        if self.other is not None:
            self.other.transport.write(data)
            return
        self._first = data
        self.transport.pause_reading()
        self._front.begin_connecting(self)

    def note_server_connected(self, inside: _FrontSide) -> None:
        """Is called when the connection with the server is open. Passes the client's first bytes on."""
        if self._gone:
            inside.abort_connection()
            return
        self.other = inside
        self.transport.resume_reading()
        inside.transport.write(self._first)
        self._first = b""

    def pause_writing(self) -> None:
        super().pause_writing()
        self._check_unread_later()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()

    def _check_unread_later(self) -> None:
        size, loop = self.transport.get_write_buffer_size(), asyncio.get_running_loop()
        self._unread = loop.call_later(self._unread_seconds, self._close_if_unread, size)

    def _close_if_unread(self, size: int) -> None:
        """Closes the connection if the client has taken nothing since this many bytes waited for it."""
        if self.transport.get_write_buffer_size() >= size:
            self._front.drop_connection(self.number, UNREAD)
        else:
            self._check_unread_later()

    def connection_lost(self, error: Exception | None) -> None:
        self._gone = True
        for timer in (self._timer, self._unread):
            if timer is not None:
                timer.cancel()
        self._front.forget_connection(self.number)
        super().connection_lost(error)

    def abort_connection(self) -> None:
        self._gone = True
        super().abort_connection()
        if self.other is not None:
            self.other.abort_connection()


def _connection_number(peer: str) -> int:
    """Returns the number of a connection from the name of its inner end, unix:/folder/17; 0 for any other name."""
    name = peer.rpartition("/")[2]
    return int(name) if name.isdecimal() and name.isascii() else 0


def _open_sockets(host: str, port: int) -> list[socket.socket]:
    """Returns listening sockets at every address of the host, at one port. Raises OperatorError."""
    try:
        return open_listening_sockets(host, port)
    except (OSError, UnicodeError) as error:
        shown = f"[{host}]:{port}" if ":" in host and "[" not in host else f"{host}:{port}"
        raise OperatorError(f"gRPC: cannot listen on {shown}: taken, or not an address of this machine") from error
