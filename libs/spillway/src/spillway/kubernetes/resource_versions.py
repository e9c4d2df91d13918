"""Reads a Kubernetes resourceVersion as a number. Pure."""

from typing import Final

VERSION_DIGITS_MAX: Final = 20
"""The number of digits of the largest uint64. int() raises ValueError for thousands of digits."""


def version_number(text: str) -> int | None:
    """Returns a version as a number, or None when the text is no number. Versions of one resource rise.

    The text may be anything, since any server may send it.
    """
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= VERSION_DIGITS_MAX else None
