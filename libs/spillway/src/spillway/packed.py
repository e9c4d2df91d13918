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
    return decompressed(data, UNPACKED_BYTES_MAX) if data else b""


def decompressed(data: bytes, bytes_max: int) -> bytes:
    """What a zstandard frame holds, where that is not more than so many bytes. NotPacked."""
    try:
        # The library looks at max_output_size only where the frame does not say its size itself.
        size = zstandard.frame_content_size(data)
        if size > bytes_max:
            raise NotPacked(f"{size} bytes once unpacked: expected at most {bytes_max}")
        return _TOOLS.decompressor.decompress(data, max_output_size=bytes_max)
    except zstandard.ZstdError as error:
        raise NotPacked(str(error)) from error
