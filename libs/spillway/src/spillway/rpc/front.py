"""Where connections arrive: bounded in number, and those on which nobody known has called yet in bytes and time.

Bytes are passed on unread to the gRPC server behind it, at a socket in a folder that only this user may enter.
"""

import asyncio
import errno
import itertools
import resource
import shutil
import socket
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

import structlog

from spillway import metrics
from spillway.rpc.connections import Connections, Verdict, place_of
from spillway.rpc.security import RpcSettings
from spillway.settings import OperatorError

BYTES: Final = "bytes"
TIME: Final = "time"
DESCRIPTORS: Final = "descriptors"
SERVER: Final = "server"
DESCRIPTORS_EACH: Final = 3
"""Of one connection: here outside and inside, and at the gRPC server."""
DESCRIPTORS_KEPT: Final = 128
"""For all else that the process does, while connections take all they may."""
LOG_SECONDS: Final = 10.0
"""Between two lines about connections that were closed or refused."""
FLUSH_SECONDS: Final = 1.0
"""How long what the server said last may take to arrive, after it has ended."""
_FLUSH_LOOK_SECONDS: Final = 0.01
_BACKLOG: Final = 512
_RETRY_SECONDS: Final = 0.1
_NOT_HERE: Final = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
_EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

log = structlog.get_logger(part="rpc")


class Front:
    """address_most: connections of one address. port: 0 until it is open."""

    def __init__(self, settings: RpcSettings, address_most: int) -> None:
        self.port = 0
        self._settings = settings
        self._address_most = address_most
        self._numbers = itertools.count(1)
        self._outside: dict[int, _Outside] = {}
        self._told = _Told()
        self._joining: set[asyncio.Task[None]] = set()
        self._listening: list[socket.socket] = []
        self._server = ""

    def open(self) -> None:
        """Raises OperatorError when it cannot listen. Nothing is accepted before there is a server to lead to."""
        settings = self._settings
        most = _connections_most(settings.connections_max)
        self._connections = Connections(most, min(most, self._address_most), min(most, settings.strangers_max))
        self._listening = _sockets(settings.host, settings.port)
        self.port = int(self._listening[0].getsockname()[1])
        self._folder = Path(tempfile.mkdtemp(prefix="spillway-rpc-"))

    def server_path(self) -> str:
        """Where the next server is to listen."""
        return str(self._folder / f"server-{next(self._numbers)}")

    def lead_to(self, path: str) -> None:
        """Connections lead there from now on; those that there are stay where they are."""
        self._server = path

    async def accept(self) -> None:
        """Until it is cancelled, or has a bug."""
        async with asyncio.TaskGroup() as group:
            for listening in self._listening:
                group.create_task(self._accept(listening))

    def know(self, peer: str) -> None:
        """Whose connection it is has been shown. peer: as the server names it."""
        number = _number_of(peer)
        if self._connections.is_stranger(number):
            self._connections.know(number)
            self._outside[number].is_known()
            self._count()

    def refuse(self) -> None:
        """Listens no more; connections that there are go on until the server ends them."""
        for listening in self._listening:
            listening.close()

    async def close(self) -> None:
        """After the server has ended: what it said last still arrives."""
        for outside in [one for one in self._outside.values() if one.other is None]:
            outside.abort()
        until = time.monotonic() + FLUSH_SECONDS
        while self._outside and time.monotonic() < until:
            await asyncio.sleep(_FLUSH_LOOK_SECONDS)
        for outside in list(self._outside.values()):
            outside.abort()
        for joining in self._joining:
            joining.cancel()
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(listening)
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._exhausted(error)
                    await asyncio.sleep(_RETRY_SECONDS)
                continue
            try:
                await self._admit(accepted, place_of(str(address[0])))
            except OSError:  # It has gone already.
                accepted.close()

    async def _admit(self, accepted: socket.socket, place: str) -> None:
        verdict = self._connections.verdict(place)
        if verdict.reason and not self._made_room(verdict):
            accepted.close()
            return
        number = next(self._numbers)
        outside = _Outside(self, number, self._settings.stranger_bytes_max)
        self._connections.add(number, place)
        self._outside[number] = outside
        self._count()
        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: outside, accepted)
        except OSError:
            self.forget(number)
            raise
        outside.close_after(self._settings.stranger_seconds)

    def _made_room(self, verdict: Verdict) -> bool:
        if verdict.closed is None:
            self._told.tell(verdict.reason)
            return False
        self.drop(verdict.closed, verdict.reason)
        return True

    def _exhausted(self, error: OSError) -> None:
        """No descriptor is left, whoever has them: a stranger gives its own back."""
        oldest = self._connections.oldest_stranger()
        if oldest is not None:
            self.drop(oldest, DESCRIPTORS)
        else:
            self._told.tell(DESCRIPTORS)
        self._told.tell_trouble(error)

    def drop(self, number: int, reason: str) -> None:
        """Closes a connection at once."""
        self._told.tell(reason)
        outside = self._outside.get(number)
        self.forget(number)
        if outside is not None:
            outside.abort()

    def forget(self, number: int) -> None:
        self._connections.remove(number)
        self._outside.pop(number, None)
        self._count()

    def join(self, outside: "_Outside") -> None:
        """Begins to connect it with the server."""
        task = asyncio.get_running_loop().create_task(self._join(outside))
        self._joining.add(task)
        task.add_done_callback(self._joining.discard)

    async def _join(self, outside: "_Outside") -> None:
        inside = _Side(outside)
        try:
            connected = self._connected(outside.number)
            await asyncio.get_running_loop().create_unix_connection(lambda: inside, sock=connected)
        except OSError as error:
            self.drop(outside.number, DESCRIPTORS if error.errno in _EXHAUSTED else SERVER)
            self._told.tell_trouble(error)
            return
        outside.joined(inside)

    def _connected(self, number: int) -> socket.socket:
        """With the server, at a path with our number: so the server's calls say which connection they came by."""
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

    def _count(self) -> None:
        metrics.CONNECTIONS.labels("known").set(len(self._connections) - self._connections.strangers)
        metrics.CONNECTIONS.labels("stranger").set(self._connections.strangers)


class _Side(asyncio.Protocol):
    """One end of a connection; what arrives there goes to the other. It reads no more than the other takes."""

    transport: Any = None

    def __init__(self, other: "_Side | None" = None) -> None:
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

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()


class _Outside(_Side):
    """The end at which somebody is. It is connected with the server once something was said."""

    def __init__(self, front: Front, number: int, bytes_max: int) -> None:
        super().__init__()
        self.number = number
        self._front = front
        self._bytes_left: int | None = bytes_max
        self._timer: asyncio.TimerHandle | None = None
        self._first = b""
        self._gone = False

    def close_after(self, seconds: float) -> None:
        """Unless it is known by then."""
        if self._bytes_left is not None and not self._gone:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._front.drop, self.number, TIME)

    def is_known(self) -> None:
        self._bytes_left = None
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        if self._bytes_left is not None:
            self._bytes_left -= len(data)
            if self._bytes_left < 0:
                self._front.drop(self.number, BYTES)
                return
        if self.other is not None:
            self.other.transport.write(data)
            return
        self._first = data
        self.transport.pause_reading()
        self._front.join(self)

    def joined(self, inside: _Side) -> None:
        """With the server, which hears now what was said first."""
        if self._gone:
            inside.abort()
            return
        self.other = inside
        self.transport.resume_reading()
        inside.transport.write(self._first)
        self._first = b""

    def connection_lost(self, error: Exception | None) -> None:
        self._gone = True
        if self._timer is not None:
            self._timer.cancel()
        self._front.forget(self.number)
        super().connection_lost(error)

    def abort(self) -> None:
        self._gone = True
        super().abort()
        if self.other is not None:
            self.other.abort()


class _Told:
    """Counts connections that were closed or refused, and says so in a line now and then, however many they are."""

    def __init__(self) -> None:
        self._since = Counter[str]()
        self._trouble = ""
        self._next = 0.0

    def tell(self, reason: str) -> None:
        metrics.CONNECTIONS_REFUSED.labels(reason).inc()
        self._since[reason] += 1
        self._say()

    def tell_trouble(self, error: OSError) -> None:
        self._trouble = f"{error.strerror or error}"
        self._say()

    def _say(self) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + LOG_SECONDS
        more = {"error": self._trouble} if self._trouble else {}
        log.warning("connections were closed or refused", **self._since, **more)
        self._since.clear()
        self._trouble = ""


def _number_of(peer: str) -> int:
    """Of a connection, by the name of its inner end: unix:/folder/17; 0: of none."""
    name = peer.rpartition("/")[2]
    return int(name) if name.isdecimal() and name.isascii() else 0


def _connections_most(wanted: int) -> int:
    """As many as there are descriptors for, and a line in the log where that is less than wanted."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptors == resource.RLIM_INFINITY:
        return wanted
    most = max(1, (descriptors - DESCRIPTORS_KEPT) // DESCRIPTORS_EACH)
    if most < wanted:
        log.warning(
            "fewer connections than connections_max: too few file descriptors",
            connections=most,
            descriptors=descriptors,
            connections_max=wanted,
        )
    return min(most, wanted)


def _sockets(host: str, port: int) -> list[socket.socket]:
    """Listening, at every address of the host, at one port. Raises OperatorError."""
    made: list[socket.socket] = []
    trouble: Exception = OSError(f"no address of {host}")
    try:
        for family, name in _addresses(host.strip("[]"), port):
            taken = made[0].getsockname()[1] if made else name[1]
            try:
                made.append(_listening(family, (name[0], taken, *name[2:])))
            except OSError as error:
                if error.errno not in _NOT_HERE:
                    raise
                trouble = error  # A name may stand for ::1 as well, where there is no IPv6.
        if made:
            return made
    except (OSError, UnicodeError) as error:
        trouble = error
        for each in made:
            each.close()
    shown = f"[{host}]:{port}" if ":" in host and "[" not in host else f"{host}:{port}"
    raise OperatorError(f"gRPC: cannot listen on {shown}: taken, or not an address of this machine") from trouble


def _addresses(host: str, port: int) -> list[tuple[int, Any]]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return list(dict.fromkeys((family, name) for family, _, _, _, name in found))


def _listening(family: int, address: Any) -> socket.socket:
    both = family == socket.AF_INET6 and address[0] == "::" and socket.has_dualstack_ipv6()
    made = socket.create_server(address, family=family, backlog=_BACKLOG, dualstack_ipv6=both)
    made.setblocking(False)
    return made
