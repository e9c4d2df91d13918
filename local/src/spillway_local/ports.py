"""Chooses loopback ports below the ephemeral range and remembers them across restarts.

A client that retries a dead server on an ephemeral port can connect to itself and block the server's restart. Therefore
all our ports are below the range from which the kernel chooses.
"""

import json
import random
import socket
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from spillway_local.tools import exclusive_lock

LOOPBACK = "127.0.0.1"
FIRST_EPHEMERAL_PORT = 32768
PORTS_FILE = "ports.json"
"""The file in a run folder that has the port of each name."""
_SESSION_PORTS = range(20000, 31000)


class NoFreePort(RuntimeError):
    """Every port from the base to the ephemeral range is taken."""


def free_port(base: int, *, count: int = 1, taken: Collection[int] = ()) -> int:
    """Returns the first port at or above the base that is free together with the `count - 1` ports after it."""
    for port in range(base, FIRST_EPHEMERAL_PORT - count + 1):
        wanted = range(port, port + count)
        if all(one not in taken and is_free(one) for one in wanted):
            return port
    raise NoFreePort(f"no {count} free ports in a row from {base} to {FIRST_EPHEMERAL_PORT - 1}")


def session_port(*, count: int = 1) -> int:
    """Returns a free port for a test session. It is random, so that parallel sessions seldom want the same port."""
    return free_port(random.choice(_SESSION_PORTS), count=count)


def is_free(port: int) -> bool:
    """Returns whether nothing listens at the port and no start that is under way holds it."""
    with suppress(OSError), _bound_socket(socket.SOCK_DGRAM, port), _bound_socket(socket.SOCK_STREAM, port):
        return True
    return False


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((LOOPBACK, port)) == 0


@dataclass(slots=True)
class PortBook:
    """Ports by name, kept in a file. A name keeps its port, also while its server is down."""

    file: Path
    _holds: ExitStack | None = field(default=None, repr=False, compare=False)
    """For a start that is under way: a UDP socket at each port's number. It ends with this process at the latest."""

    def assign_port(self, name: str, base: int, *, count: int = 1) -> int:
        with self._locked_file():
            port_by_name = self.port_by_name()
            if name not in port_by_name:
                port = self._choose_port(base, count, set(port_by_name.values()))
                port_by_name |= {name: port} | {f"{name}+{after}": port + after for after in range(1, count)}
                self._write_ports(port_by_name)
            return port_by_name[name]

    def port_by_name(self) -> dict[str, int]:
        """Returns every port given so far. A name with several ports has `name`, `name+1`, and so on."""
        if not self.file.exists():
            return {}
        return {str(name): int(port) for name, port in json.loads(self.file.read_text()).items()}

    @contextmanager
    def held_ports(self, ours: Collection[int]) -> Iterator[Mapping[str, int]]:
        """Holds our ports while servers start, so that no other start gets them.

        ours: ports where our servers listen already.

        Yields the recorded ports that other programs have taken since. Their names are given other ports.
        """
        with ExitStack() as holds:
            with self._locked_file():
                port_by_name = self.port_by_name()
                not_held = {name: port for name, port in port_by_name.items() if not _hold_port(holds, port)}
                taken = {name: port for name, port in not_held.items() if port not in ours}
                lost = {_requested_name(name) for name in taken}
                if lost:
                    self._write_ports(
                        {name: port for name, port in port_by_name.items() if _requested_name(name) not in lost}
                    )
            self._holds = holds
            try:
                yield taken
            finally:
                self._holds = None

    def _choose_port(self, base: int, count: int, taken: set[int]) -> int:
        while True:
            port = free_port(base, count=count, taken=taken)
            wanted = range(port, port + count)
            if self._holds is None or all(_hold_port(self._holds, one) for one in wanted):
                return port
            taken = taken | set(wanted)

    def _locked_file(self) -> AbstractContextManager[None]:
        return exclusive_lock(self.file.with_suffix(".lock"))

    def _write_ports(self, port_by_name: dict[str, int]) -> None:
        fresh = self.file.with_suffix(".new")
        fresh.write_text(json.dumps(port_by_name, indent=2, sort_keys=True) + "\n")
        fresh.replace(self.file)


def _requested_name(name: str) -> str:
    """Returns the name under which a port was requested: `name` for the entry `name`, and also for `name+1`."""
    return name.partition("+")[0]


def _hold_port(holds: ExitStack, port: int) -> bool:
    """Holds a port if it is free, by binding its UDP number.

    Our servers use no UDP. Other starts try to bind the same UDP number, so they do not choose this port.
    """
    if not is_free(port):
        return False
    try:
        holds.enter_context(_bound_socket(socket.SOCK_DGRAM, port))
    except OSError:
        return False
    return True


def _bound_socket(kind: socket.SocketKind, port: int) -> socket.socket:
    """Returns a bound socket that does not listen. Raises OSError if another one is bound."""
    bound = socket.socket(type=kind)
    try:
        if kind is socket.SOCK_STREAM:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((LOOPBACK, port))
    except OSError:
        bound.close()
        raise
    return bound
