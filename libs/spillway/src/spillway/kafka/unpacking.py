"""Decompresses the records of a batch up to a limit. aiokafka decompresses a batch whole, however large it becomes.

Each codec writes into a buffer of that size, or gives the size beforehand. So no batch takes more memory than that.
"""

import struct
import zlib
from typing import Final

import cramjam

from spillway.dead_letters import RECORD_BYTES_MAX

UNPACKED_BYTES_MAX: Final = 4 * RECORD_BYTES_MAX
"""The most bytes of the decompressed records of one batch.

A compressed batch on our topics has at most max.message.bytes, which is RECORD_BYTES_MAX. A producer fills a batch up
to batch.size of uncompressed bytes, or up to an estimate by the compression ratio so far. A batch.size of 1 MiB whose
records compress to an eighth reaches this bound. With the default of 16 KiB records would have to compress to a
five-hundredth. A reader holds at most twice this for each of its partitions (batches.py).
"""
CODECS: Final = {1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
"""Codecs by the three lowest bits of a batch's attributes; 0 is no compression."""

_GZIP_WINDOW: Final = 31
"""The window bits that zlib needs for the longest window with gzip's header and checksum."""
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES: Final = 16
"""The size of the header that Java's producers put before blocks of snappy: the magic, its version, and the oldest
version that can read it."""
_BLOCK_BYTES: Final = struct.Struct(">i")


class CannotUnpack(ValueError):
    """Raised if compressed records are invalid for their codec, or larger than the bound."""


def unpacked(codec: int, packed: bytes, bytes_max: int = UNPACKED_BYTES_MAX) -> bytes:
    """Returns the decompressed records of a batch. codec: from the batch's attributes. Raises CannotUnpack."""
    if not packed:  # Compaction has removed all records of the batch.
        return b""
    name = CODECS.get(codec, str(codec))
    try:
        match name:
            case "gzip":
                return _gzip(packed, bytes_max)
            case "snappy":
                return _snappy(packed, bytes_max)
            case "lz4" | "zstd":
                # cramjam fills the buffer in steps, and raises an error if there is more.
                buffer = bytearray(bytes_max)
                length = getattr(cramjam, name).decompress_into(packed, buffer)
                return bytes(memoryview(buffer)[:length])
        raise CannotUnpack(f"expected one of {', '.join(CODECS.values())}")
    except (CannotUnpack, zlib.error, struct.error, cramjam.DecompressionError) as error:
        raise CannotUnpack(f"codec {name}, no records within {bytes_max} bytes: {error}") from error


def _gzip(packed: bytes, bytes_max: int) -> bytes:
    """Decompresses one gzip member, as producers write it. Further members would each cost a copy of the remaining
    bytes."""
    reader = zlib.decompressobj(_GZIP_WINDOW)
    records = reader.decompress(packed, bytes_max + 1)
    if len(records) > bytes_max:
        raise CannotUnpack("there are more")
    if not reader.eof or reader.unused_data:
        raise CannotUnpack("cut off, or something behind the end of the first member")
    return records


def _snappy(packed: bytes, bytes_max: int) -> bytes:
    """Decompresses one snappy block, or the blocks in Java's frame. Each block states its decompressed size."""
    blocks = _blocks(packed) if packed.startswith(_XERIAL_MAGIC) else [packed]
    size = sum(cramjam.snappy.decompress_raw_len(block) for block in blocks)
    if size > bytes_max:
        raise CannotUnpack(f"{size} bytes")
    return b"".join(bytes(cramjam.snappy.decompress_raw(block)) for block in blocks)


def _blocks(packed: bytes) -> list[bytes]:
    blocks, at = [], _XERIAL_HEADER_BYTES
    while at < len(packed):
        (length,) = _BLOCK_BYTES.unpack_from(packed, at)
        at += _BLOCK_BYTES.size
        if not 0 < length <= len(packed) - at:
            raise CannotUnpack(f"a block of {length} bytes where {len(packed) - at} are left")
        blocks.append(packed[at : at + length])
        at += length
    return blocks
