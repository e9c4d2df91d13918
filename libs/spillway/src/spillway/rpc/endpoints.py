"""Addresses of our services, and the files that a connection needs."""

import ipaddress
from pathlib import Path

from spillway.settings import OperatorError


def is_loopback(host: str) -> bool:
    """Returns whether only this machine can reach the address. Names other than localhost count as outside."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def read_file(name: str, what: str) -> bytes:
    """Returns the content of a file that a setting names. Raises OperatorError."""
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise OperatorError(f"gRPC: {what} {name!r}: {error.strerror or error}") from error
