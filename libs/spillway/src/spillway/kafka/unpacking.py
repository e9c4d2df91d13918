"""Compressed records of a batch, unpacked up to a bound: aiokafka unpacks whatever a batch says, however much it is.

Each codec writes into a buffer of the bound, or says beforehand how much it will be, so that a batch never costs more.
"""

import struct
import zlib
from typing import Final

import cramjam

from spillway.dead_letters import RECORD_BYTES_MAX

UNPACKED_BYTES_MAX: Final = 4 * RECORD_BYTES_MAX
"""What the records of one batch may come to, in bytes.

As it is sent, a batch on our topics has at most max.message.bytes, which is RECORD_BYTES_MAX. Producers count either
what is not compressed yet, which is then no more than that, or go by a ratio that they learnt: one whose batch.size is
1 MiB, of what shrinks to an eighth, comes to this. With the default of 16 KiB it would have to shrink to a
five-hundredth. A reader holds at most this, and as much again, for each of its partitions (batches.py).
"""
CODECS: Final = {1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
"""By the three lowest bits of a batch's attributes; 0 is none."""

_GZIP_WINDOW: Final = 31
"""zlib's word for the longest window, with the header and the checksum of gzip."""
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES: Final = 16
"""Of the frame that Java's producers put around blocks of snappy: the magic, its version, the oldest that reads it."""
_BLOCK_BYTES: Final = struct.Struct(">i")


class CannotUnpack(ValueError):
    """What is said to be compressed records is none by its codec, or more than the bound."""


def unpacked(codec: int, packed: bytes, bytes_max: int = UNPACKED_BYTES_MAX) -> bytes:
    """The records of a batch. codec: by its attributes. Raises CannotUnpack."""
    if not packed:  # Of a batch whose records are all compacted away.
        return b""
    name = CODECS.get(codec, str(codec))
    try:
        match name:
            case "gzip":
                return _gzip(packed, bytes_max)
            case "snappy":
                return _snappy(packed, bytes_max)
            case "lz4" | "zstd":
                # It unpacks in steps into the buffer, and fails where there is more.
                buffer = bytearray(bytes_max)
                length = getattr(cramjam, name).decompress_into(packed, buffer)
                return bytes(memoryview(buffer)[:length])
        raise CannotUnpack(f"expected one of {', '.join(CODECS.values())}")
    except (CannotUnpack, zlib.error, struct.error, cramjam.DecompressionError) as error:
        raise CannotUnpack(f"codec {name}, no records within {bytes_max} bytes: {error}") from error


def _gzip(packed: bytes, bytes_max: int) -> bytes:
    """Of one member, as producers write it: a hundred thousand empty ones would each cost a copy of the rest."""
    reader = zlib.decompressobj(_GZIP_WINDOW)
    records = reader.decompress(packed, bytes_max + 1)
    if len(records) > bytes_max:
        raise CannotUnpack("there are more")
    if not reader.eof or reader.unused_data:
        raise CannotUnpack("cut off, or something behind the end of the first member")
    return records


def _snappy(packed: bytes, bytes_max: int) -> bytes:
    """Each block says beforehand how much it unpacks to. There is one, or Java's frame around several."""
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
