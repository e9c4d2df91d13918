"""Reads a Kubernetes resourceVersion as a number. Pure."""

from typing import Final

VERSION_DIGITS_MAX: Final = 20
"""The number of digits of the largest uint64. int() raises ValueError for thousands of digits."""


def version_number(text: str) -> int | None:
    """Returns a version as a number; None if the text is not a number. Versions of one resource only rise.

    Any text is accepted, because any server may have sent it.
    """
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= VERSION_DIGITS_MAX else None
