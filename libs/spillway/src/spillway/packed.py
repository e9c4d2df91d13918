"""Compressed text inside a record: bounded when it is read, so that a small record cannot ask for all memory."""

import zstandard

UNPACKED_BYTES_MAX = 16 * 1024 * 1024


class NotPacked(Exception):
    """Bytes that pack did not make; the text says why."""


def pack(text: bytes) -> bytes:
    """Compressed; b"" stays b""."""
    return zstandard.ZstdCompressor(level=3).compress(text) if text else b""


def unpack(data: bytes) -> bytes:
    """What pack was given. NotPacked when it cannot be."""
    if not data:
        return b""
    try:
        return zstandard.ZstdDecompressor().decompress(data, max_output_size=UNPACKED_BYTES_MAX)
    except zstandard.ZstdError as error:
        raise NotPacked(str(error)) from error
