"""The content of a kubeconfig for one Kubernetes API: its address, the CA that proves it, and our credentials."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

Stamp = tuple[int, int, int] | None
"""The inode of a file, its size in bytes and its modification time in nanoseconds; None if it cannot be examined."""


class BadCredentials(Exception):
    """Raised with the wrong file and field and the expected content. Never quotes the content, since it may be
    secret."""


@dataclass(frozen=True, slots=True)
class Proxy:
    """An HTTP proxy. url: without user and password. authorization: value of the header Proxy-Authorization, or ""."""

    url: str
    authorization: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One Kubernetes API and our credentials for it. Its repr contains no secrets.

    ends_at: Unix seconds at which the credentials of an exec plugin end; None if not known.
    files: files of the credentials, each with its stamp from before it was read.
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
        """Returns whether at most the token, its end and its files differ. Each request carries the token anew."""
        return _without_token(self) == _without_token(other)


def _without_token(endpoint: Endpoint) -> Endpoint:
    return replace(endpoint, token=None, ends_at=None, files=())


def stamps_of(paths: Iterable[Path]) -> tuple[tuple[Path, Stamp], ...]:
    """Returns each path with its present stamp. A replaced file, as when Kubernetes renews a Secret, has another
    stamp."""
    return tuple((path, _stamp(path)) for path in paths)


def _stamp(path: Path) -> Stamp:
    try:
        found = path.stat()
    except (OSError, ValueError):  # ValueError: a zero byte in the path.
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
