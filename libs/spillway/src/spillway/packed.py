"""Compressed text inside a record: bounded when it is read, so that a small record cannot ask for all memory."""

from threading import local
from typing import Final

import zstandard

UNPACKED_BYTES_MAX = 16 * 1024 * 1024


class NotPacked(Exception):
    """Bytes that pack did not make; the text says why."""


class _Tools(local):
    """A thread's own: to make them costs several times what a small record does."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=3)
        self.decompressor = zstandard.ZstdDecompressor()


_TOOLS: Final = _Tools()


def pack(text: bytes) -> bytes:
    """Compressed; b"" stays b""."""
    return _TOOLS.compressor.compress(text) if text else b""


def unpack(data: bytes) -> bytes:
    """What pack was given. NotPacked when it cannot be."""
    if not data:
        return b""
    try:
        return _TOOLS.decompressor.decompress(data, max_output_size=UNPACKED_BYTES_MAX)
    except zstandard.ZstdError as error:
        raise NotPacked(str(error)) from error
