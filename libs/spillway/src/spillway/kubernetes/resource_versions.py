"""The number that a resourceVersion is. Pure."""

from typing import Final

VERSION_DIGITS_MAX: Final = 20
"""As many as a uint64 has; int() of thousands of digits raises."""


def version_number(text: str) -> int | None:
    """Versions of one resource rise; None: it is no number, which orders nothing. Any server may say anything here."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= VERSION_DIGITS_MAX else None
