"""Describes one Redis server on loopback: its command line, and whether it is ready."""

import socket
from dataclasses import dataclass
from pathlib import Path

from spillway_local.ports import LOOPBACK
from spillway_local.programs import Program
from spillway_local.tools import ensure_program, wait_until

_ADVICE = "point REDIS_URL at a server of your own."


def ensure_redis() -> Path:
    return ensure_program("redis-server", ("redis-server",), _ADVICE)


@dataclass(frozen=True, slots=True)
class RedisServer:
    """A Redis server. With keeps_data its folder holds an append-only file, synced once a second."""

    folder: Path
    port: int
    name: str = "redis"
    keeps_data: bool = True

    @property
    def url(self) -> str:
        return f"redis://{LOOPBACK}:{self.port}/0"

    def command(self) -> list[str]:
        return [str(ensure_redis()), *self.arguments(str(self.folder))]

    def arguments(self, folder: str) -> list[str]:
        """Returns the server's arguments. folder: the folder of its data, as the server sees it."""
        settings = {
            "--port": str(self.port),
            "--bind": LOOPBACK,
            "--dir": folder,
            "--daemonize": "no",
            "--save": "",
            "--appendonly": "yes" if self.keeps_data else "no",
            "--appendfsync": "everysec",
            # A title would overwrite the process's environment, by which supervision recognizes its programs.
            "--set-proc-title": "no",
        }
        return [part for setting in settings.items() for part in setting]

    def prepare_program(self) -> Program:
        self.folder.mkdir(parents=True, exist_ok=True)
        return Program(self.name, tuple(self.command()), self.folder, ports=(self.port,))

    def is_ready(self) -> bool:
        """Returns whether the server answers a ping. While it loads its data it does not."""
        try:
            with socket.create_connection((LOOPBACK, self.port), timeout=1.0) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(64).startswith(b"+PONG")
        except OSError:
            return False

    def wait_ready(self, timeout_seconds: float = 10.0) -> float:
        return wait_until(self.is_ready, timeout_seconds, self.name)
