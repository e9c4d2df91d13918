"""Compressed text inside a record.

Its size is limited when it is read, so that a small record cannot ask for all memory.
"""

from threading import local
from typing import Final

import zstandard

UNPACKED_BYTES_MAX = 16 * 1024 * 1024


class NotPacked(Exception):
    """Raised for bytes that `pack_text` did not make. The text is the reason."""


class _Tools(local):
    """The compressor and decompressor of one thread. To make them takes longer than to compress a small record."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=3)
        self.decompressor = zstandard.ZstdDecompressor()


_TOOLS: Final = _Tools()


def pack_text(text: bytes) -> bytes:
    """Returns the compressed text; b"" stays b""."""
    return _TOOLS.compressor.compress(text) if text else b""


def unpack_text(packed: bytes) -> bytes:
    """Returns the text that `pack_text` compressed. Raises NotPacked."""
    return decompress_bounded(packed, UNPACKED_BYTES_MAX) if packed else b""


def decompress_bounded(packed: bytes, bytes_max: int) -> bytes:
    """Returns the content of a zstandard frame. Raises NotPacked, also for more than bytes_max bytes."""
    try:
        # The library looks at max_output_size only where the frame does not say its size itself.
        size = zstandard.frame_content_size(packed)
        if size > bytes_max:
            raise NotPacked(f"{size} bytes once unpacked: expected at most {bytes_max}")
        return _TOOLS.decompressor.decompress(packed, max_output_size=bytes_max)
    except zstandard.ZstdError as error:
        raise NotPacked(str(error)) from error
