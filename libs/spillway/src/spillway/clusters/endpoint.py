"""What a kubeconfig says of one Kubernetes API: where it is, what it is believed by, and how we are let in."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

Stamp = tuple[int, int, int] | None
"""Of a file: its inode, its size, and when it was changed, in nanoseconds; None: it cannot be looked at."""


class BadCredentials(Exception):
    """Which file and field is wrong, and what was expected there; never what stands there, since it may be secret."""


@dataclass(frozen=True, slots=True)
class Proxy:
    """url: without user and password. authorization: the value of the header Proxy-Authorization, or nothing."""

    url: str
    authorization: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One Kubernetes API and our credentials for it; secrets are kept out of its repr.

    ends_at: when an exec plugin said that its credentials end, Unix seconds. files: those that the credentials were
    read from, as they were before they were read.
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
        """Whether only the token differs, and until when it is good: a token goes with each request."""
        return _without_token(self) == _without_token(other)


def _without_token(endpoint: Endpoint) -> Endpoint:
    return replace(endpoint, token=None, ends_at=None, files=())


def stamps_of(paths: Iterable[Path]) -> tuple[tuple[Path, Stamp], ...]:
    """How each file is now. Another one in its place, as Kubernetes renews a Secret's files, has another stamp."""
    return tuple((path, _stamp(path)) for path in paths)


def _stamp(path: Path) -> Stamp:
    try:
        found = path.stat()
    except (OSError, ValueError):  # ValueError: a zero byte in the path.
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
