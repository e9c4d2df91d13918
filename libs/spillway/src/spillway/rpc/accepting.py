"""Accepts connections within bounds: strangers make room for others, and a process without file descriptors goes on.

What a connection is, and how it is closed, is said by whoever listens: the front of gRPC, or an HTTP port.
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

from spillway.rpc.connections import Connections, Verdict, place_of

TIME: Final = "time"
DESCRIPTORS: Final = "descriptors"
DESCRIPTORS_KEPT: Final = 128
"""For all else that the process does, while connections take all they may."""
LOG_SECONDS: Final = 10.0
"""Between two lines about connections that were closed or refused."""
EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_BACKLOG: Final = 512
_RETRY_SECONDS: Final = 0.1
_NOT_HERE: Final = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


class Accepting:
    """connections: counts those that are open. begin: carries one on by its number, and raises OSError when it has gone
    already. abort: closes one at once. changed: hears that there are more, fewer, or others that are known."""

    def __init__(
        self,
        connections: Connections,
        told: "Told",
        begin: Callable[[int, socket.socket], Awaitable[None]],
        abort: Callable[[int], None],
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self.connections = connections
        self._told = told
        self._begin = begin
        self._abort = abort
        self._changed = changed
        self._numbers = itertools.count(1)

    async def accept(self, listening: socket.socket) -> None:
        """Until it is cancelled, or has a bug."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(listening)
            except OSError as error:
                if error.errno in EXHAUSTED:
                    self._exhausted(error)
                    await asyncio.sleep(_RETRY_SECONDS)
                continue
            try:
                await self._admit(accepted, place_of(str(address[0])))
            except OSError:  # It has gone already.
                accepted.close()

    def know(self, number: int) -> bool:
        """Whose connection it is has been shown; whether nobody knew before."""
        was_stranger = self.connections.is_stranger(number)
        if was_stranger:
            self.connections.know(number)
            self._changed()
        return was_stranger

    def drop(self, number: int, reason: str) -> None:
        """Closes a connection at once."""
        self._told.tell(reason)
        self.forget(number)
        self._abort(number)

    def forget(self, number: int) -> None:
        """It is closed."""
        self.connections.remove(number)
        self._changed()

    async def _admit(self, accepted: socket.socket, place: str) -> None:
        verdict = self.connections.verdict(place)
        if verdict.reason and not self._made_room(verdict):
            accepted.close()
            return
        number = next(self._numbers)
        self.connections.add(number, place)
        self._changed()
        try:
            await self._begin(number, accepted)
        except OSError:
            self.forget(number)
            raise

    def _made_room(self, verdict: Verdict) -> bool:
        if verdict.closed is None:
            self._told.tell(verdict.reason)
            return False
        self.drop(verdict.closed, verdict.reason)
        return True

    def _exhausted(self, error: OSError) -> None:
        """No descriptor is left, whoever has them: a stranger gives its own back."""
        self._told.note_trouble(error)
        oldest = self.connections.oldest_stranger()
        if oldest is not None:
            self.drop(oldest, DESCRIPTORS)
        else:
            self._told.tell(DESCRIPTORS)


class Told:
    """Counts connections that were closed or refused, and says so in a line now and then, however many they are.

    count: counts one of a reason. which: what of a process the connections are of, as fields of these lines.
    """

    def __init__(self, count: Callable[[str], None], **which: str) -> None:
        self._count = count
        self._log = structlog.get_logger(**which)
        self._since = Counter[str]()
        self._trouble = ""
        self._next = 0.0

    def tell(self, reason: str) -> None:
        self._count(reason)
        self._since[reason] += 1
        self._say()

    def note_trouble(self, error: OSError) -> None:
        """The next line says it, too."""
        self._trouble = f"{error.strerror or error}"

    def _say(self) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + LOG_SECONDS
        more = {"error": self._trouble} if self._trouble else {}
        self._log.warning("connections were closed or refused", **self._since, **more)
        self._since.clear()
        self._trouble = ""


def connections_most(wanted: int, descriptors_each: int, **which: str) -> int:
    """As many as there are descriptors for, and a line in the log where that is less than wanted."""
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


def listening_sockets(host: str, port: int) -> list[socket.socket]:
    """At every address of the host, at one port. Raises OSError, and UnicodeError for what is no name of a host."""
    made: list[socket.socket] = []
    trouble: OSError = OSError(f"no address of {host}")
    try:
        for family, name in _addresses(host.strip("[]"), port):
            taken = made[0].getsockname()[1] if made else name[1]
            try:
                made.append(_listening(family, (name[0], taken, *name[2:])))
            except OSError as error:
                if error.errno not in _NOT_HERE:
                    raise
                trouble = error  # A name may stand for ::1 as well, where there is no IPv6.
    except OSError:
        for each in made:
            each.close()
        raise
    if not made:
        raise trouble
    return made


def _addresses(host: str, port: int) -> list[tuple[int, Any]]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return list(dict.fromkeys((family, name) for family, _, _, _, name in found))


def _listening(family: int, address: Any) -> socket.socket:
    both = family == socket.AF_INET6 and address[0] == "::" and socket.has_dualstack_ipv6()
    made = socket.create_server(address, family=family, backlog=_BACKLOG, dualstack_ipv6=both)
    made.setblocking(False)
    return made
