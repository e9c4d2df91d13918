"""Accepts connections up to a limit. It closes strangers' connections first, and survives a lack of file descriptors.

The front of gRPC and the HTTP ports use it. Each passes its own functions to serve and to close a connection.
"""

import asyncio
import errno
import itertools
import resource
import socket
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Final

import structlog

from spillway.rpc.connections import CALLER, ConnectionCounts, ConnectionVerdict, network_of_host

TIME: Final = "time"
DESCRIPTORS: Final = "descriptors"
DESCRIPTORS_KEPT: Final = 128
"""File descriptors that are kept free of connections, for everything else in the process."""
LOG_SECONDS: Final = 10.0
"""The shortest time between two log lines about connections that were closed or refused."""
EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_BACKLOG: Final = 512
"""The connections that wait in the kernel to be accepted. Its own bound (net.core.somaxconn) may be lower."""
_RETRY_SECONDS: Final = 0.1
"""The pause after the process had no file descriptor left. Without it the loop would try all the time."""
_NOT_HERE: Final = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


class ConnectionAcceptor:
    """Accepts connections of one port.

    connections: the counts of open connections. begin: serves a connection, given by its number and socket. It raises
    OSError if the peer has gone. abort: closes the connection of a number at once. changed: called
    when connections open, close or become known.
    """

    def __init__(
        self,
        connections: ConnectionCounts,
        refusals: "RefusalLog",
        begin: Callable[[int, socket.socket], Awaitable[None]],
        abort: Callable[[int], None],
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self.connections = connections
        self._refusals = refusals
        self._begin = begin
        self._abort = abort
        self._changed = changed
        self._numbers = itertools.count(1)

    async def accept_connections(self, listening: socket.socket) -> None:
        """Accepts connections until it is cancelled. An unexpected error raises."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(listening)
            except OSError as error:
                if error.errno in EXHAUSTED:
                    self._free_descriptor(error)
                    await asyncio.sleep(_RETRY_SECONDS)
                continue
            try:
                await self._admit_connection(accepted, network_of_host(str(address[0])))
            except OSError:  # The peer has gone already.
                accepted.close()

    def mark_known(self, number: int) -> bool:
        """Marks a connection as a known caller's. Returns whether it was a stranger's before."""
        was_stranger = self.connections.is_stranger(number)
        self.connections.mark_known(number, time.monotonic())
        if was_stranger:
            self._changed()
        return was_stranger

    def begin_call(self, number: int, caller: str) -> bool:
        """Marks a connection as a known caller's, and counts a call on it.

        If the caller has too many connections then, one of them is closed: this one if calls run on all the others.
        Returns whether the connection was a stranger's before and is still open.
        """
        was_stranger = self.connections.is_stranger(number)
        closed = self.connections.begin_call(number, caller, time.monotonic())
        if was_stranger:
            self._changed()
        if closed is not None:
            self.drop_connection(closed, CALLER)
        return was_stranger and closed != number

    def end_call(self, number: int) -> None:
        """Counts a call of `begin_call` as ended."""
        self.connections.end_call(number, time.monotonic())

    def drop_connection(self, number: int, reason: str) -> None:
        """Closes a connection at once."""
        self._refusals.note_refusal(reason)
        self.forget_connection(number)
        self._abort(number)

    def forget_connection(self, number: int) -> None:
        """Removes a closed connection from the count."""
        self.connections.remove_connection(number)
        self._changed()

    async def _admit_connection(self, accepted: socket.socket, place: str) -> None:
        verdict = self.connections.verdict_on_connection(place, time.monotonic())
        if verdict.reason and not self._make_room(verdict):
            accepted.close()
            return
        number = next(self._numbers)
        self.connections.add_stranger(number, place)
        self._changed()
        try:
            await self._begin(number, accepted)
        except OSError:
            self.forget_connection(number)
            raise

    def _make_room(self, verdict: ConnectionVerdict) -> bool:
        if verdict.closed is None:
            self._refusals.note_refusal(verdict.reason)
            return False
        self.drop_connection(verdict.closed, verdict.reason)
        return True

    def _free_descriptor(self, error: OSError) -> None:
        """Closes the oldest stranger's connection, because no file descriptor is left."""
        self._refusals.note_trouble(error)
        oldest = self.connections.oldest_stranger()
        if oldest is not None:
            self.drop_connection(oldest, DESCRIPTORS)
        else:
            self._refusals.note_refusal(DESCRIPTORS)


class RefusalLog:
    """Counts closed and refused connections. Logs one line for all of them, at most every LOG_SECONDS.

    count: adds one to the metric of a reason. which: fields of the log lines that name the port.
    """

    def __init__(self, count: Callable[[str], None], **which: str) -> None:
        self._count = count
        self._log = structlog.get_logger(**which)
        self._since = Counter[str]()
        self._trouble = ""
        self._next = 0.0

    def note_refusal(self, reason: str) -> None:
        self._count(reason)
        self._since[reason] += 1
        self._log_refusals()

    def note_trouble(self, error: OSError) -> None:
        """Adds this error to the next log line."""
        self._trouble = f"{error.strerror or error}"

    def _log_refusals(self) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + LOG_SECONDS
        more = {"error": self._trouble} if self._trouble else {}
        self._log.warning("connections were closed or refused", **self._since, **more)
        self._since.clear()
        self._trouble = ""


def connection_limit(wanted: int, descriptors_each: int, **which: str) -> int:
    """Returns how many connections the process has file descriptors for, at most wanted. Logs a line if it is fewer."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptors == resource.RLIM_INFINITY:
        return wanted
    most = max(1, (descriptors - DESCRIPTORS_KEPT) // descriptors_each)
    if most < wanted:
        structlog.get_logger(**which).warning(
            "fewer connections than connections_max: too few file descriptors",
            connections=most,
            descriptors=descriptors,
            connections_max=wanted,
        )
    return min(most, wanted)


def open_listening_sockets(host: str, port: int) -> list[socket.socket]:
    """Returns a listening socket for each address of the host, all at one port.

    Raises OSError, or UnicodeError for a text that is no host name.
    """
    made: list[socket.socket] = []
    trouble: OSError = OSError(f"no address of {host}")
    try:
        for family, name in _socket_addresses(host.strip("[]"), port):
            taken = made[0].getsockname()[1] if made else name[1]
            try:
                made.append(_open_listening_socket(family, (name[0], taken, *name[2:])))
            except OSError as error:
                if error.errno not in _NOT_HERE:
                    raise
                trouble = error  # A name may also stand for ::1, and there may be no IPv6.
    except OSError:
        for each in made:
            each.close()
        raise
    if not made:
        raise trouble
    return made


def _socket_addresses(host: str, port: int) -> list[tuple[int, Any]]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return list(dict.fromkeys((family, name) for family, _, _, _, name in found))


def _open_listening_socket(family: int, address: Any) -> socket.socket:
    both = family == socket.AF_INET6 and address[0] == "::" and socket.has_dualstack_ipv6()
    made = socket.create_server(address, family=family, backlog=_BACKLOG, dualstack_ipv6=both)
    made.setblocking(False)
    return made
