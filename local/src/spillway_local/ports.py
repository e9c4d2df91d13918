"""Chooses loopback ports below the ephemeral range and remembers them across restarts.

A client that retries a dead server on an ephemeral port can end up connected to itself and block the server's
restart, so every port of ours is below the range the kernel hands out.
"""

import json
import random
import socket
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from spillway_local.tools import exclusive

LOOPBACK = "127.0.0.1"
FIRST_EPHEMERAL_PORT = 32768
_SESSION_PORTS = range(20000, 31000)


class NoFreePort(RuntimeError):
    """Every port from the base to the ephemeral range is taken."""


def free_port(base: int, *, count: int = 1, taken: Collection[int] = ()) -> int:
    """First port at or above the base which is free, with the `count - 1` ports after it."""
    for port in range(base, FIRST_EPHEMERAL_PORT - count + 1):
        wanted = range(port, port + count)
        if all(one not in taken and is_free(one) for one in wanted):
            return port
    raise NoFreePort(f"no {count} free ports in a row from {base} to {FIRST_EPHEMERAL_PORT - 1}")


def session_port(*, count: int = 1) -> int:
    """A free port for a test session, at random so that sessions side by side seldom want the same."""
    return free_port(random.choice(_SESSION_PORTS), count=count)


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((LOOPBACK, port)) == 0


@dataclass(frozen=True, slots=True)
class PortBook:
    """Ports by name, kept in a file: a name once given a port keeps it, also while its server is down."""

    file: Path

    def port(self, name: str, base: int, *, count: int = 1) -> int:
        with exclusive(self.file.with_suffix(".lock")):
            port_by_name = self.recorded()
            if name not in port_by_name:
                port_by_name |= _chosen(name, base, count, taken=set(port_by_name.values()))
                self._write(port_by_name)
            return port_by_name[name]

    def recorded(self) -> dict[str, int]:
        """Every port given so far; a name with several ports has `name`, `name+1`, and so on."""
        if not self.file.exists():
            return {}
        return {str(name): int(port) for name, port in json.loads(self.file.read_text()).items()}

    def _write(self, port_by_name: dict[str, int]) -> None:
        fresh = self.file.with_suffix(".new")
        fresh.write_text(json.dumps(port_by_name, indent=2, sort_keys=True) + "\n")
        fresh.replace(self.file)


def _chosen(name: str, base: int, count: int, taken: set[int]) -> dict[str, int]:
    port = free_port(base, count=count, taken=taken)
    return {name: port} | {f"{name}+{offset}": port + offset for offset in range(1, count)}
