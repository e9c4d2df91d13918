"""The parts of a kubeconfig that describe one Kubernetes API: its address, its CA, and our credentials there."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

Stamp = tuple[int, int, int] | None
"""The state of a file: its inode, its size, and the time of its last change in nanoseconds. None if it cannot be
read."""


class BadCredentials(Exception):
    """Raised for a wrong kubeconfig. The text has file, field and expected value. It never has a value: a secret."""


@dataclass(frozen=True, slots=True)
class Proxy:
    """An HTTP proxy. url: without user and password. authorization: value of the header Proxy-Authorization, or ""."""

    url: str
    authorization: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One Kubernetes API and our credentials for it. Its repr contains no secrets.

    ends_at: the end of the credentials from an exec plugin, in Unix seconds; None: unknown.
    files: the files that the credentials were read from, with their stamps from before they were read.
    """

    server: str
    ca: bytes | None = None  # PEM; None is the system's own trust store
    token: str | None = field(default=None, repr=False)
    client_certificate: bytes | None = field(default=None, repr=False)  # PEM
    client_key: bytes | None = field(default=None, repr=False)  # PEM
    insecure: bool = False
    tls_server_name: str | None = None
    proxy: Proxy | None = None
    ends_at: float | None = None
    files: tuple[tuple[Path, Stamp], ...] = ()

    def has_same_connections(self, other: "Endpoint") -> bool:
        """Returns whether only the token and its end differ. Connections can stay then: each request carries the
        token."""
        return _without_token(self) == _without_token(other)


def _without_token(endpoint: Endpoint) -> Endpoint:
    return replace(endpoint, token=None, ends_at=None, files=())


def stamps_of(paths: Iterable[Path]) -> tuple[tuple[Path, Stamp], ...]:
    """Returns the stamp of each file. A file that replaces another has a new stamp, as when Kubernetes renews a
    Secret."""
    return tuple((path, _file_stamp(path)) for path in paths)


def _file_stamp(path: Path) -> Stamp:
    try:
        found = path.stat()
    except (OSError, ValueError):  # ValueError: a zero byte in the path.
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
