"""Addresses of our services, and the files that a connection needs."""

import ipaddress
from pathlib import Path

from spillway.settings import OperatorError


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address; names other than localhost are taken to be outside."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def read_file(name: str, what: str) -> bytes:
    """A file that a setting names. Raises OperatorError."""
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise OperatorError(f"gRPC: {what} {name!r}: {error.strerror or error}") from error
